/* config.c - reads settings, and notes what is wrong with them, all of it. */
#include "server/config.h"

#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <weir/error.h>

#include "proto/duration.h"
#include "rt/mem.h"

enum { FILE_BYTES_MAX = 256 * 1024, NAME_BYTES = 96 };

__attribute__((format(printf, 3, 4))) static void note(struct config *config, const char *where,
                                                       const char *format, ...)
{
    va_list args;

    if (config->problem_count < CONFIG_PROBLEMS_MAX) {
        struct config_problem *problem = &config->problems[config->problem_count];

        (void)snprintf(problem->where, sizeof problem->where, "%s", where);
        va_start(args, format);
        (void)vsnprintf(problem->what, sizeof problem->what, format, args);
        va_end(args);
    }
    config->problem_count++;
}

/* ---- Values ---- */

int config_size_parse(struct bytes text, int64_t *ret_bytes)
{
    static const char units[] = "KMGT";
    int64_t value = 0, factor = 1;
    size_t digits = 0;

    while (digits < text.count && is_digit(text.at[digits])) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, text.at[digits] - '0', &value))
            return WEIR_EREFUSED;
        digits++;
    }
    if (digits == 0 || text.count - digits > 1) return WEIR_EREFUSED;
    if (text.count > digits) {
        const char *unit = strchr(units, text.at[digits]);

        if (!unit || !*unit) return WEIR_EREFUSED;
        factor = (int64_t)1 << (10 * (unit - units + 1));
    }
    return __builtin_mul_overflow(value, factor, ret_bytes) ? WEIR_EREFUSED : 0;
}

static int parse_int(struct bytes text, int64_t *ret_value)
{
    int64_t bytes;

    for (size_t i = 0; i < text.count; i++)
        if (!is_digit(text.at[i])) return WEIR_EREFUSED;
    if (config_size_parse(text, &bytes) < 0) return WEIR_EREFUSED;
    *ret_value = bytes;
    return 0;
}

/* "0.25", in millionths. */
static int parse_ratio(struct bytes text, int64_t *ret_value)
{
    int64_t value = 0, unit = 1000000;
    size_t at = 0;

    if (text.count == 0 || (text.at[0] != '0' && text.at[0] != '1')) return WEIR_EREFUSED;
    value = (text.at[at++] - '0') * unit;
    if (at < text.count && text.at[at++] != '.') return WEIR_EREFUSED;
    if (at == 2 && at == text.count) return WEIR_EREFUSED;
    for (; at < text.count; at++) {
        if (!is_digit(text.at[at]) || unit == 1) return WEIR_EREFUSED;
        unit /= 10;
        value += (text.at[at] - '0') * unit;
    }
    if (value > 1000000) return WEIR_EREFUSED;
    *ret_value = value;
    return 0;
}

static bool is_choice(const struct setting_row *row, struct bytes text)
{
    for (const char *const *choice = row->choices; *choice; choice++)
        if (bytes_are(text, bytes_of(*choice))) return true;
    return false;
}

static void note_choice(struct config *config, const struct setting_row *row, struct bytes text,
                        const char *where)
{
    char choices[CONFIG_TEXT_BYTES] = "";

    for (const char *const *choice = row->choices; *choice; choice++) {
        size_t used = strlen(choices);

        (void)snprintf(choices + used, sizeof choices - used, " %s", *choice);
    }
    note(config, where, "%s.%s: '%.*s' is none of:%s", row->section, row->key,
         (int)(text.count < 80 ? text.count : 80), text.at, choices);
}

/* Whether `text` is a value of this row, with what it is as a number; else it is noted. */
static bool valid(struct config *config, const struct setting_row *row, struct bytes text,
                  const char *where, int64_t *ret_number)
{
    static const char *const wanted[] = {
        [SETTING_INT] = "a whole number",
        [SETTING_SIZE] = "a size (4096, 64K, 256M, 2G)",
        [SETTING_DURATION] = "a duration (500ms, 30s, 1h30m)",
        [SETTING_RATIO] = "a number from 0 to 1",
    };
    int r = 0;

    *ret_number = 0;
    for (size_t i = 0; i < text.count; i++) {
        if ((unsigned char)text.at[i] >= ' ' && text.at[i] != 0x7f) continue;
        note(config, where, "%s.%s: a control character", row->section, row->key);
        return false;
    }
    switch (row->kind) {
    case SETTING_INT: r = parse_int(text, ret_number); break;
    case SETTING_SIZE: r = config_size_parse(text, ret_number); break;
    case SETTING_DURATION:
        r = duration_parse(text, ret_number);
        *ret_number /= DURATION_MS;
        break;
    case SETTING_RATIO:
        r = parse_ratio(text, ret_number);
        if (r == 0) return true;
        break;
    case SETTING_CHOICE:
        if (is_choice(row, text)) return true;
        note_choice(config, row, text, where);
        return false;
    case SETTING_KIND_NONE:
    case SETTING_TEXT:
    case SETTING_LIST: return true;
    }
    if (r < 0) {
        note(config, where, "%s.%s: '%.*s' is not %s", row->section, row->key,
             (int)(text.count < 80 ? text.count : 80), text.at, wanted[row->kind]);
        return false;
    }
    if (*ret_number < row->min || *ret_number > row->max) {
        note(config, where, "%s.%s: '%.*s' is not between %lld and %lld%s", row->section, row->key,
             (int)(text.count < 80 ? text.count : 80), text.at, (long long)row->min,
             (long long)row->max, row->kind == SETTING_DURATION ? " milliseconds" : "");
        return false;
    }
    return true;
}

static void take(struct config *config, enum setting setting, enum config_level level,
                 struct bytes text, const char *origin)
{
    struct setting_value *value = &config->values[setting];
    int64_t number;

    if (text.count >= sizeof value->text) {
        note(config, origin, "%s.%s: longer than %zu bytes", setting_rows[setting].section,
             setting_rows[setting].key, sizeof value->text - 1);
        return;
    }
    if (!valid(config, &setting_rows[setting], text, origin, &number)) return;
    if (level < value->level) return;
    value->level = level;
    value->number = number;
    memcpy(value->text, text.at, text.count);
    value->text[text.count] = '\0';
    (void)snprintf(value->origin, sizeof value->origin, "%s", origin);
}

struct config *config_new(void)
{
    struct config *config = mem_alloc_zeroed(sizeof *config);

    if (!config) return NULL;
    for (enum setting i = 0; i < SETTINGS; i++)
        take(config, i, CONFIG_DEFAULT, bytes_of(setting_rows[i].initial), "default");
    return config;
}

void config_free(struct config *config)
{
    mem_free(config);
}

/* ---- Names ---- */

static bool name_is(const struct setting_row *row, const char *section, const char *key)
{
    return strcmp(row->section, section) == 0 && strcmp(row->key, key) == 0;
}

static enum setting find(const char *section, const char *key)
{
    for (enum setting i = 0; i < SETTINGS; i++)
        if (name_is(&setting_rows[i], section, key)) return i;
    return SETTINGS;
}

static bool is_section(const char *section)
{
    for (enum setting i = 0; i < SETTINGS; i++)
        if (strcmp(setting_rows[i].section, section) == 0) return true;
    return false;
}

/* The key that begins or ends alike, for a typing error. */
static const char *similar(const char *section, const char *key)
{
    for (enum setting i = 0; i < SETTINGS; i++) {
        const char *known = setting_rows[i].key;
        size_t same = 0, a = strlen(known), b = strlen(key), end = 0;

        if (strcmp(setting_rows[i].section, section) != 0) continue;
        while (same < a && same < b && known[same] == key[same]) same++;
        while (end + same < a && end + same < b && known[a - 1 - end] == key[b - 1 - end]) end++;
        if (same + end + 2 >= (a > b ? a : b)) return known;
    }
    return NULL;
}

static void note_unknown(struct config *config, const char *section, const char *key,
                         const char *where)
{
    const char *like = similar(section, key);

    if (section[0] == '\0')
        note(config, where, "'%.60s' is in no section: write [server] before it", key);
    else if (!is_section(section))
        note(config, where,
             "there is no section [%.60s]; there are server, limits, store, tls, "
             "log, trace and security",
             section);
    else if (like)
        note(config, where, "[%s] has no '%.60s'; do you mean '%s'?", section, key, like);
    else
        note(config, where, "[%s] has no '%.60s'; 'weir config show' lists all settings", section,
             key);
}

void config_set(struct config *config, enum config_level level, const char *name,
                struct bytes value, const char *origin)
{
    char section[NAME_BYTES];
    const char *dot = strchr(name, '.');
    enum setting setting;

    if (!dot || (size_t)(dot - name) >= sizeof section) {
        note(config, origin, "'%.80s' is no setting: write SECTION.KEY=VALUE", name);
        return;
    }
    (void)snprintf(section, sizeof section, "%.*s", (int)(dot - name), name);
    setting = find(section, dot + 1);
    if (setting == SETTINGS)
        note_unknown(config, section, dot + 1, origin);
    else
        take(config, setting, level, value, origin);
}

/* ---- The file ---- */

struct reading {
    struct config *config;
    const char *name;
    struct bytes left;
    unsigned line;
    unsigned first[SETTINGS]; /* lines that said them */
};

static void where_of(const struct reading *reading, char where[CONFIG_ORIGIN_BYTES])
{
    (void)snprintf(where, CONFIG_ORIGIN_BYTES, "%.200s:%u", reading->name, reading->line);
}

/* What is neither a section, a comment nor a setting is noted here, since inih tells the first
 * such line only. */
static bool line_has_form(struct bytes line)
{
    if (line.count == 0 || line.at[0] == ';' || line.at[0] == '#') return true;
    if (line.at[0] == '[') return memchr(line.at, ']', line.count) != NULL;
    return memchr(line.at, '=', line.count) != NULL || memchr(line.at, ':', line.count) != NULL;
}

/* inih's reader: one line, without blanks before it, so that none continues another. */
static char *next_line(char *line, int room, void *stream)
{
    struct reading *reading = stream;
    char where[CONFIG_ORIGIN_BYTES];
    struct bytes text;

    while (bytes_split(&reading->left, '\n', &text)) {
        reading->line++;
        if (text.count > 0 && text.at[text.count - 1] == '\r') text.count--;
        text = bytes_trim(text);
        where_of(reading, where);
        if (text.count > 0 && memchr(text.at, '\0', text.count)) {
            note(reading->config, where, "a NUL byte");
        } else if ((size_t)room < text.count + 2) {
            note(reading->config, where, "the line is longer than %d bytes", room - 2);
        } else if (!line_has_form(text)) {
            note(reading->config, where, "neither [section] nor key = value");
        } else {
            if (text.count > 0) memcpy(line, text.at, text.count);
            memcpy(line + text.count, "\n", 2);
            return line;
        }
    }
    return NULL;
}

static int on_setting(void *user, const char *section, const char *key, const char *text)
{
    struct reading *reading = user;
    enum setting setting = find(section, key);
    char where[CONFIG_ORIGIN_BYTES];
    struct bytes value = bytes_trim(bytes_of(text));

    where_of(reading, where);
    if (setting == SETTINGS) {
        note_unknown(reading->config, section, key, where);
        return 1;
    }
    if (reading->first[setting]) {
        note(reading->config, where, "%s.%s was said in line %u already", section, key,
             reading->first[setting]);
        return 1;
    }
    reading->first[setting] = reading->line;
    if (value.count >= 2 && value.at[0] == '"' && value.at[value.count - 1] == '"')
        value = (struct bytes){value.at + 1, value.count - 2};
    take(reading->config, setting, CONFIG_FILE, value, where);
    return 1;
}

void config_read_text(struct config *config, const char *name, struct bytes text)
{
    struct reading reading = {.config = config, .name = name, .left = text};

    if (text.count == 0) return;
    (void)snprintf(config->path, sizeof config->path, "%.200s", name);
    (void)ini_parse_stream(next_line, &reading, on_setting, &reading);
}

static int read_all(const char *path, char *text, size_t room, size_t *ret_count)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), r = 0;
    size_t used = 0;

    if (fd < 0) return -errno;
    while (r == 0 && used < room) {
        ssize_t n = read(fd, text + used, room - used);

        if (n == 0) break;
        if (n < 0 && errno != EINTR) r = -errno;
        if (n > 0) used += (size_t)n;
    }
    if (r == 0 && used == room) r = -EFBIG;
    (void)close(fd);
    *ret_count = used;
    return r;
}

int config_read_file(struct config *config, const char *path)
{
    char *text = mem_alloc(FILE_BYTES_MAX);
    size_t count = 0;
    int r = text ? read_all(path, text, FILE_BYTES_MAX, &count) : -ENOMEM;

    if (r < 0)
        note(config, path, "cannot be read: %s", weir_strerror(r));
    else
        config_read_text(config, path, (struct bytes){text, count});
    mem_free(text);
    return r;
}

/* ---- The environment ---- */

/* WEIR_SERVER and WEIR_LOG alone are others': of the command line and of the library. */
static bool names_section(const char *name, char section[NAME_BYTES])
{
    const char *low = strchr(name, '_');
    size_t count = low ? (size_t)(low - name) : 0;

    if (!low || count >= NAME_BYTES) return false;
    for (size_t i = 0; i < count; i++) section[i] = to_lower(name[i]);
    section[count] = '\0';
    return is_section(section);
}

void config_read_environment(struct config *config, char *const *environment)
{
    for (; environment && *environment; environment++) {
        const char *variable = *environment, *equals = strchr(variable, '=');
        char section[NAME_BYTES] = "", key[NAME_BYTES] = "", origin[NAME_BYTES];
        size_t begin, count;

        if (!equals || strncmp(variable, "WEIR_", 5) != 0) continue;
        if ((size_t)(equals - variable) >= sizeof origin) continue;
        (void)snprintf(origin, sizeof origin, "%.*s", (int)(equals - variable), variable);
        if (!names_section(origin + 5, section)) continue;
        begin = 5 + strlen(section) + 1;
        count = strlen(origin) - begin;
        for (size_t i = 0; i < count; i++) key[i] = to_lower(origin[begin + i]);
        key[count] = '\0';
        if (find(section, key) == SETTINGS)
            note_unknown(config, section, key, origin);
        else
            take(config, find(section, key), CONFIG_ENVIRONMENT, bytes_of(equals + 1), origin);
    }
}

/* ---- Looking ---- */

bool config_is(const struct config *config, enum setting setting, const char *text)
{
    return strcmp(config->values[setting].text, text) == 0;
}

size_t config_words(const struct config *config, enum setting setting, struct bytes *ret_words,
                    size_t max)
{
    struct bytes rest = bytes_of(config->values[setting].text);
    size_t count = 0;

    while (rest.count > 0 && count < max) {
        size_t used = 0;

        while (used < rest.count && !strchr(", \t", rest.at[used])) used++;
        if (used > 0) ret_words[count++] = (struct bytes){rest.at, used};
        rest = bytes_after(rest, used < rest.count ? used + 1 : used);
    }
    return count;
}

static const char *origin_of(const struct config *config, enum setting setting)
{
    return config->values[setting].origin;
}

/* None at all would be taken for any. */
static void check_hosts(struct config *config)
{
    struct bytes words[CONFIG_HOSTS_MAX + 1];
    size_t count = config_words(config, SETTING_SERVER_HOSTS, words, CONFIG_HOSTS_MAX + 1);

    if (count == 0 || count > CONFIG_HOSTS_MAX)
        note(config, origin_of(config, SETTING_SERVER_HOSTS),
             "server.hosts: say one to %d names, or * for any", CONFIG_HOSTS_MAX);
}

enum { ANSWER_BESIDES_BYTES = 512 * 1024 }; /* of a job beside its payload: all its errors */

void config_check(struct config *config)
{
    bool certificate = config_text(config, SETTING_TLS_CERTIFICATE)[0] != '\0';
    bool key = config_text(config, SETTING_TLS_KEY)[0] != '\0';
    const char *sentence = config_text(config, SETTING_SECURITY_INSECURE_LISTEN);
    struct bytes words[16];
    size_t count = config_words(config, SETTING_SERVER_LISTEN, words, 16);

    if (certificate != key)
        note(config, origin_of(config, certificate ? SETTING_TLS_CERTIFICATE : SETTING_TLS_KEY),
             "tls.certificate and tls.key go together: say both or none");
    if (count == 0 || count > 8)
        note(config, origin_of(config, SETTING_SERVER_LISTEN),
             "server.listen: say one to eight addresses");
    for (size_t i = 0; i < count; i++) {
        if (bytes_begin(words[i], BYTES("tls:")) && !certificate)
            note(config, origin_of(config, SETTING_SERVER_LISTEN),
                 "server.listen: '%.*s' needs tls.certificate and tls.key", (int)words[i].count,
                 words[i].at);
        else if (!bytes_begin(words[i], BYTES("tls:")) && !bytes_begin(words[i], BYTES("tcp:")) &&
                 !bytes_begin(words[i], BYTES("unix:")))
            note(config, origin_of(config, SETTING_SERVER_LISTEN),
                 "server.listen: '%.*s' is none of tcp:HOST:PORT, tls:HOST:PORT, unix:PATH",
                 (int)words[i].count, words[i].at);
    }
    check_hosts(config);
    if (sentence[0] && strcmp(sentence, CONFIG_INSECURE_SENTENCE) != 0)
        note(config, origin_of(config, SETTING_SECURITY_INSECURE_LISTEN),
             "security.insecure_listen: say nothing, or exactly \"" CONFIG_INSECURE_SENTENCE "\"");
    /* A job whose payload does not fit into an answer would be leased for ever. */
    if (config_number(config, SETTING_LIMITS_ANSWER_BYTES) <
        config_number(config, SETTING_STORE_PAYLOAD_BYTES) / 3 * 4 + ANSWER_BESIDES_BYTES)
        note(config, origin_of(config, SETTING_LIMITS_ANSWER_BYTES),
             "limits.answer_bytes: a job with a payload of store.payload_bytes has to fit in: say "
             "at least 4/3 of that and 512K");
    if (config_text(config, SETTING_SERVER_DATA)[0] == '\0')
        note(config, origin_of(config, SETTING_SERVER_DATA), "server.data: say a folder");
}

unsigned config_reload(struct config *config, const struct config *from, config_differs_fn differs,
                       void *arg)
{
    unsigned left = 0;

    for (enum setting i = 0; i < SETTINGS; i++) {
        const struct setting_row *row = &setting_rows[i];

        if (strcmp(config->values[i].text, from->values[i].text) == 0) continue;
        if (row->reloadable)
            config->values[i] = from->values[i];
        else
            left++;
        differs(arg, row, row->reloadable);
    }
    return left;
}

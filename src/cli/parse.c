/* parse.c - from the command line to a call: words, options, arguments. */
#include "cli/command.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "proto/bytes.h"
#include "proto/duration.h"
#include "server/config.h"

enum { NAMES_MAX = 128, WORDS_MAX = 4, DISTANCE_WORD_MAX = 48 };

static const struct cli_option help_options[] = {
    {.name = "help", .letter = 'h', .kind = CLI_FLAG, .help = "say what the command does, and end"},
    {0},
};
static const struct cli_option client_options[] = {
    {.name = "server",
     .letter = 's',
     .kind = CLI_TEXT,
     .value = "ADDRESS",
     .initial = "http://127.0.0.1:7411",
     .env = "WEIR_SERVER",
     .help = "the server: http://HOST:PORT, https://HOST:PORT or unix:PATH"},
    {.name = "token-file",
     .kind = CLI_PATH,
     .value = "FILE",
     .env = "WEIR_TOKEN_FILE",
     .help = "a file with the token; WEIR_TOKEN has the token itself. There is no option for it: "
             "a command line can be read by everybody on the machine"},
    {.name = "ca-file",
     .kind = CLI_PATH,
     .value = "FILE",
     .env = "WEIR_CA_FILE",
     .help = "certificates (PEM) to trust for https, instead of the system's"},
    {.name = "request-timeout",
     .kind = CLI_DURATION,
     .value = "DURATION",
     .initial = "30s",
     .min = 1,
     .max = 24 * 3600 * 1000,
     .help = "how long one request may take"},
    {0},
};
static const struct cli_option output_options[] = {
    {.name = "json", .letter = 'j', .kind = CLI_FLAG, .help = "answer in JSON, for programs"},
    {0},
};

__attribute__((format(printf, 2, 3))) static int refuse(char *why, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(why, CLI_WHY_BYTES, format, args);
    va_end(args);
    return CLI_USAGE;
}

static unsigned gather(const struct cli_option *from, const struct cli_option **options,
                       unsigned count)
{
    for (; from && from->name; from++) {
        assert(count < CLI_OPTIONS_MAX);
        options[count++] = from;
    }
    return count;
}

unsigned cli_options_of(const struct cli_command *command,
                        const struct cli_option *ret_options[CLI_OPTIONS_MAX])
{
    unsigned count = gather(command->options, ret_options, 0);

    if (command->groups & CLI_GROUP_OUTPUT) count = gather(output_options, ret_options, count);
    if (command->groups & CLI_GROUP_CLIENT) count = gather(client_options, ret_options, count);
    return gather(help_options, ret_options, count);
}

/* ---- The nearest name ---- */

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
    unsigned least = a < b ? a : b;

    return least < c ? least : c;
}

/* How many letters have to be put in, left out, exchanged or swapped. */
static unsigned distance(const char *a, const char *b)
{
    unsigned rows[3][DISTANCE_WORD_MAX + 1];
    size_t a_count = strlen(a), b_count = strlen(b);

    if (a_count > DISTANCE_WORD_MAX || b_count > DISTANCE_WORD_MAX) return DISTANCE_WORD_MAX;
    for (size_t j = 0; j <= b_count; j++) rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= a_count; i++) {
        unsigned *now = rows[i % 3], *before = rows[(i - 1) % 3], *twice = rows[(i + 1) % 3];

        now[0] = (unsigned)i;
        for (size_t j = 1; j <= b_count; j++) {
            unsigned differs = a[i - 1] != b[j - 1];

            now[j] = min3(before[j] + 1, now[j - 1] + 1, before[j - 1] + differs);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                twice[j - 2] + 1 < now[j])
                now[j] = twice[j - 2] + 1;
        }
    }
    return rows[a_count % 3][b_count];
}

const char *cli_nearest(const char *word, const char *const *names, unsigned count)
{
    const char *nearest = NULL;
    unsigned least = (unsigned)strlen(word) / 3 + 2;

    for (unsigned i = 0; i < count; i++) {
        unsigned d = distance(word, names[i]);

        if (d < least) {
            least = d;
            nearest = names[i];
        }
    }
    return nearest;
}

/* ---- The command ---- */

/* How many words of `argv` are the words of the command; 0: it is another. */
static int words_match(const char *words, int argc, char *const *argv)
{
    int used = 0;

    while (*words) {
        size_t count = strcspn(words, " ");

        if (used == argc || strlen(argv[used]) != count || strncmp(words, argv[used], count) != 0)
            return 0;
        used++;
        words += count;
        if (*words == ' ') words++;
    }
    return used;
}

static int unknown_command(const struct cli_command *commands, int argc, char *const *argv,
                           char *why)
{
    char said[CLI_WHY_BYTES / 4] = "";
    const char *names[NAMES_MAX] = {NULL}, *nearest;
    unsigned count = 0;

    for (int i = 0; i < argc && i < 2 && argv[i][0] != '-'; i++) {
        size_t used = strlen(said);

        (void)snprintf(said + used, sizeof said - used, "%s%.40s", i ? " " : "", argv[i]);
        if (i > 0) break;
    }
    for (; commands->words && count < NAMES_MAX; commands++)
        if (!commands->hidden) names[count++] = commands->words;
    nearest = cli_nearest(said, names, count);
    if (!nearest && argc > 0) nearest = cli_nearest(argv[0], names, count);
    if (nearest)
        return refuse(why, "there is no command '%s'; do you mean 'weir %s'?", said, nearest);
    return refuse(why, "there is no command '%s'; 'weir help' lists those there are", said);
}

/* The longest match wins: "queue list" is not "queue" with an argument. */
static int find_command(const struct cli_command *commands, int argc, char *const *argv,
                        struct cli_call *call, char *why)
{
    int used = 0;

    for (const struct cli_command *at = commands; at->words; at++) {
        int match = words_match(at->words, argc, argv);

        if (match <= used) continue;
        used = match;
        call->command = at;
    }
    if (used > 0) return used;
    if (argc > 0 && argv[0][0] != '-') {
        char first[64];
        unsigned count = 0;

        /* "weir queue" alone: say which there are. */
        (void)snprintf(why, CLI_WHY_BYTES, "'weir %.40s' needs one of:", argv[0]);
        (void)snprintf(first, sizeof first, "%.40s ", argv[0]);
        for (const struct cli_command *at = commands; at->words; at++) {
            size_t length = strlen(why);

            if (strncmp(at->words, first, strlen(first)) != 0) continue;
            (void)snprintf(why + length, CLI_WHY_BYTES - length, "%s %s", count++ ? "," : "",
                           at->words + strlen(first));
        }
        if (count > 0 && (argc == 1 || argv[1][0] == '-')) return -CLI_USAGE;
    }
    return -unknown_command(commands, argc, argv, why);
}

/* ---- Options ---- */

static int option_bounds(const struct cli_option *option, const char *text, int64_t value,
                         char *why)
{
    if (value >= option->min && (option->max == 0 || value <= option->max)) return 0;
    if (option->kind == CLI_DURATION) {
        char least[DURATION_BYTES], most[DURATION_BYTES];

        least[duration_format(option->min * DURATION_MS, least)] = '\0';
        most[duration_format(option->max * DURATION_MS, most)] = '\0';
        return refuse(why, "--%s: '%.80s' is not between %s and %s", option->name, text, least,
                      most);
    }
    return refuse(why, "--%s: '%.80s' is not between %lld and %lld", option->name, text,
                  (long long)option->min, (long long)option->max);
}

static int option_choice(const struct cli_option *option, const char *text, char *why)
{
    size_t used;

    for (const char *const *choice = option->choices; *choice; choice++)
        if (strcmp(*choice, text) == 0) return 0;
    (void)refuse(why, "--%s: '%.80s' is none of", option->name, text);
    for (const char *const *choice = option->choices; *choice; choice++) {
        used = strlen(why);
        (void)snprintf(why + used, CLI_WHY_BYTES - used, " %s", *choice);
    }
    return CLI_USAGE;
}

static int set_value(struct cli_call *call, struct cli_value *value, const char *text, char *why)
{
    const struct cli_option *option = value->option;
    char *end;

    value->text = text;
    switch (option->kind) {
    case CLI_INT:
        errno = 0;
        value->number = strtoll(text, &end, 10);
        if (end == text || *end || errno)
            return refuse(why, "--%s: '%.80s' is no whole number", option->name, text);
        return option_bounds(option, text, value->number, why);
    case CLI_DURATION:
        if (duration_parse(bytes_of(text), &value->number) < 0)
            return refuse(why, "--%s: '%.80s' is no duration; write 500ms, 30s or 1h30m",
                          option->name, text);
        value->number /= DURATION_MS;
        return option_bounds(option, text, value->number, why);
    case CLI_SIZE:
        if (config_size_parse(bytes_of(text), &value->number) < 0)
            return refuse(why, "--%s: '%.80s' is no size; write 4096, 64K, 256M or 2G",
                          option->name, text);
        return option_bounds(option, text, value->number, why);
    case CLI_CHOICE: return option_choice(option, text, why);
    case CLI_MANY:
        if (call->many_count == CLI_ARGUMENTS_MAX)
            return refuse(why, "--%s: at most %d times", option->name, CLI_ARGUMENTS_MAX);
        call->many[call->many_count++] = text;
        return 0;
    case CLI_KIND_NONE:
    case CLI_FLAG:
    case CLI_TEXT:
    case CLI_PATH: break;
    }
    return 0;
}

static struct cli_value *find_option(struct cli_call *call, const char *name, size_t count)
{
    for (unsigned i = 0; i < call->value_count; i++) {
        const char *known = call->values[i].option->name;

        if (strlen(known) == count && strncmp(known, name, count) == 0) return &call->values[i];
    }
    return NULL;
}

static int unknown_option(const struct cli_call *call, const char *said, char *why)
{
    const char *names[CLI_OPTIONS_MAX], *nearest;

    for (unsigned i = 0; i < call->value_count; i++) names[i] = call->values[i].option->name;
    nearest = cli_nearest(said, names, call->value_count);
    if (nearest)
        return refuse(why, "'weir %s' has no option '--%.60s'; do you mean '--%s'?",
                      call->command->words, said, nearest);
    return refuse(why, "'weir %s' has no option '--%.60s'; 'weir help %s' lists those there are",
                  call->command->words, said, call->command->words);
}

/* `next` is the word after it, or NULL. How many words were used, or -CLI_USAGE. */
static int take_option(struct cli_call *call, struct cli_value *value, const char *attached,
                       const char *next, char *why)
{
    const char *name = value->option->name;

    value->said = true;
    if (value->option->kind == CLI_FLAG) {
        if (attached) return -refuse(why, "--%s takes no value", name);
        value->number++;
        if (strcmp(name, "help") == 0) call->help = true;
        return 1;
    }
    if (!attached && !next)
        return -refuse(why, "--%s needs a value: --%s %s", name, name,
                       value->option->value ? value->option->value : "VALUE");
    if (set_value(call, value, attached ? attached : next, why) != 0) return -CLI_USAGE;
    return attached ? 1 : 2;
}

static int take_long(struct cli_call *call, const char *word, const char *next, char *why)
{
    const char *equals = strchr(word, '=');
    size_t count = equals ? (size_t)(equals - word) : strlen(word);
    struct cli_value *value = find_option(call, word, count);

    if (!value) {
        char said[64];

        (void)snprintf(said, sizeof said, "%.*s", (int)(count < 60 ? count : 60), word);
        return -unknown_option(call, said, why);
    }
    return take_option(call, value, equals ? equals + 1 : NULL, next, why);
}

/* "-j", "-n4", "-n 4", "-jn4". */
static int take_short(struct cli_call *call, const char *word, const char *next, char *why)
{
    for (const char *at = word; *at; at++) {
        struct cli_value *value = NULL;
        int used;

        for (unsigned i = 0; i < call->value_count; i++)
            if (call->values[i].option->letter == *at) value = &call->values[i];
        if (!value)
            return -refuse(why,
                           "'weir %s' has no option '-%c'; 'weir help %s' lists those there are",
                           call->command->words, *at, call->command->words);
        if (value->option->kind == CLI_FLAG) {
            used = take_option(call, value, NULL, NULL, why);
            if (used < 0) return used;
            continue;
        }
        return take_option(call, value, at[1] ? at + 1 : NULL, next, why);
    }
    return 1;
}

static int take_words(struct cli_call *call, int argc, char *const *argv, char *why)
{
    for (int i = 0; i < argc;) {
        const char *word = argv[i], *next = i + 1 < argc ? argv[i + 1] : NULL;
        int used = 1;

        if (strcmp(word, "--") == 0) {
            if (!call->command->rest)
                return refuse(why, "'weir %s' takes nothing after '--'", call->command->words);
            call->rest = argv + i + 1;
            return 0;
        }
        if (word[0] == '-' && word[1] == '-') {
            used = take_long(call, word + 2, next, why);
        } else if (word[0] == '-' && word[1] != '\0') {
            used = take_short(call, word + 1, next, why);
        } else {
            if (call->argument_count == CLI_ARGUMENTS_MAX)
                return refuse(why, "more than %d arguments", CLI_ARGUMENTS_MAX);
            call->arguments[call->argument_count++] = word;
        }
        if (used < 0) return CLI_USAGE;
        i += used;
    }
    return 0;
}

static int take_environment(struct cli_call *call, cli_env_fn env, char *why)
{
    for (unsigned i = 0; i < call->value_count; i++) {
        struct cli_value *value = &call->values[i];
        const char *text;

        if (value->said) continue;
        text = value->option->env && env ? env(value->option->env) : NULL;
        if (text && *text) {
            value->said = value->from_env = true;
            if (set_value(call, value, text, why) != 0) {
                size_t used = strlen(why);

                (void)snprintf(why + used, CLI_WHY_BYTES - used, " (from the environment: %s)",
                               value->option->env);
                return CLI_USAGE;
            }
        } else if (value->option->initial) {
            int r = set_value(call, value, value->option->initial, why);

            assert(r == 0);
            (void)r;
        }
    }
    return 0;
}

static int check_arguments(const struct cli_call *call, char *why)
{
    const struct cli_command *command = call->command;
    unsigned taken = 0;
    bool many = false;

    for (const struct cli_argument *at = command->arguments; at && at->name; at++) {
        if (taken == call->argument_count && !at->optional)
            return refuse(why, "'weir %s' needs %s: %s", command->words, at->name, at->help);
        if (taken < call->argument_count) taken++;
        many = at->many;
    }
    if (taken < call->argument_count && !many)
        return refuse(why, "'weir %s' takes no further argument '%.80s'", command->words,
                      call->arguments[taken]);
    if (command->rest && (!call->rest || !call->rest[0]))
        return refuse(why, "'weir %s' needs '--' and then %s", command->words, command->rest);
    return 0;
}

static bool is_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

/* No command itself, but the first word of some. */
static bool is_group(const struct cli_command *commands, const char *word)
{
    size_t count = strlen(word);
    bool found = false;

    for (const struct cli_command *at = commands; at->words; at++) {
        if (at->hidden || strncmp(at->words, word, count) != 0) continue;
        if (at->words[count] == '\0') return false;
        if (at->words[count] == ' ') found = true;
    }
    return found;
}

int cli_parse(const struct cli_command *commands, int argc, char *const *argv, cli_env_fn env,
              struct cli_call *ret_call, char ret_why[CLI_WHY_BYTES])
{
    static char word[] = "version";
    static char *const version[] = {word, NULL};
    const struct cli_option *options[CLI_OPTIONS_MAX];
    int used, r;

    memset(ret_call, 0, sizeof *ret_call);
    ret_why[0] = '\0';
    if (argc > 0 && is_help(argv[0])) {
        ret_call->help = true;
        return 0;
    }
    if (argc > 1 && is_help(argv[1]) && is_group(commands, argv[0])) {
        ret_call->help = true;
        ret_call->group = argv[0];
        return 0;
    }
    if (argc == 0) return refuse(ret_why, "which command? 'weir help' lists them");
    if (strcmp(argv[0], "--version") == 0) {
        argc = 1;
        argv = version;
    }
    used = find_command(commands, argc, argv, ret_call, ret_why);
    if (used < 0) return -used;
    ret_call->value_count = cli_options_of(ret_call->command, options);
    for (unsigned i = 0; i < ret_call->value_count; i++) ret_call->values[i].option = options[i];
    r = take_words(ret_call, argc - used, argv + used, ret_why);
    if (r != 0 || ret_call->help) return r;
    r = take_environment(ret_call, env, ret_why);
    return r == 0 ? check_arguments(ret_call, ret_why) : r;
}

/* ---- What was said ---- */

const struct cli_value *cli_value_of(const struct cli_call *call, const char *name)
{
    for (unsigned i = 0; i < call->value_count; i++)
        if (strcmp(call->values[i].option->name, name) == 0) return &call->values[i];
    assert(!"a command asks for an option that it has");
    return NULL;
}

const char *cli_text(const struct cli_call *call, const char *name)
{
    return cli_value_of(call, name)->text;
}

int64_t cli_number(const struct cli_call *call, const char *name)
{
    return cli_value_of(call, name)->number;
}

bool cli_has(const struct cli_call *call, const char *name)
{
    return cli_value_of(call, name)->said;
}

const char *cli_argument_at(const struct cli_call *call, unsigned index)
{
    return index < call->argument_count ? call->arguments[index] : NULL;
}

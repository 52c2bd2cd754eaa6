/* filter.c - the filter language: terms by a table, and members of payloads. */
#include "server/filter.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <weir/error.h>

#include "proto/duration.h"

/* What stands between name and value. */
enum operator{ OP_NONE, OP_IS, OP_LESS, OP_LESS_OR_IS, OP_MORE, OP_MORE_OR_IS };

struct scanner {
    struct bytes text;
    size_t at;
    struct filter *filter;
    struct filter_refusal *refusal;
};

struct term {
    struct bytes name;
    enum operator op;
    struct bytes value; /* in the filter's texts, ended by a NUL */
    bool quoted;
    size_t name_at, op_at, value_at;
};

__attribute__((format(printf, 3, 4))) static int refuse_at(struct scanner *scanner, size_t offset,
                                                           const char *format, ...)
{
    va_list list;

    scanner->refusal->offset = offset;
    va_start(list, format);
    (void)vsnprintf(scanner->refusal->why, sizeof scanner->refusal->why, format, list);
    va_end(list);
    return WEIR_EREFUSED;
}

/* ---- Terms as text ---- */

static bool is_name(char c)
{
    return is_letter(c) || is_digit(c) || c == '_' || c == '.' || c == '-';
}

static bool at_end(const struct scanner *scanner)
{
    return scanner->at >= scanner->text.count;
}

static char peek(const struct scanner *scanner)
{
    return at_end(scanner) ? '\0' : scanner->text.at[scanner->at];
}

static enum operator scan_operator(struct scanner *scanner)
{
    char c = peek(scanner);
    bool or_is;

    if (c != ':' && c != '<' && c != '>') return OP_NONE;
    scanner->at++;
    if (c == ':') return OP_IS;
    or_is = peek(scanner) == '=';
    if (or_is) scanner->at++;
    if (c == '<') return or_is ? OP_LESS_OR_IS : OP_LESS;
    return or_is ? OP_MORE_OR_IS : OP_MORE;
}

/* A character of a value into the texts, which have room for all that was read. */
static void keep(struct scanner *scanner, char c)
{
    scanner->filter->texts[scanner->filter->used++] = c;
}

static int scan_quoted(struct scanner *scanner, struct term *term)
{
    scanner->at++;
    term->quoted = true;
    for (;;) {
        char c = peek(scanner);

        if (at_end(scanner))
            return refuse_at(scanner, term->value_at, "this quote has no end: a \" was expected");
        scanner->at++;
        if (c == '"') return 0;
        if (c == '\\') {
            c = peek(scanner);
            if (c != '"' && c != '\\')
                return refuse_at(scanner, scanner->at, "\\\" or \\\\ was expected");
            scanner->at++;
        }
        if (c == '\0') return refuse_at(scanner, scanner->at - 1, "NUL is in no value");
        keep(scanner, c);
    }
}

static int scan_value(struct scanner *scanner, struct term *term)
{
    size_t begin = scanner->filter->used;
    int r = 0;

    term->value_at = scanner->at;
    if (peek(scanner) == '"') {
        r = scan_quoted(scanner, term);
        if (r < 0) return r;
        if (!at_end(scanner) && peek(scanner) != ' ')
            return refuse_at(scanner, scanner->at, "a blank was expected after the quote");
    } else {
        while (!at_end(scanner) && peek(scanner) != ' ') {
            if ((unsigned char)peek(scanner) < ' ' || peek(scanner) == '"')
                return refuse_at(scanner, scanner->at, "such a value has to stand in quotes");
            keep(scanner, scanner->text.at[scanner->at++]);
        }
    }
    term->value = (struct bytes){scanner->filter->texts + begin, scanner->filter->used - begin};
    keep(scanner, '\0');
    if (term->value.count == 0)
        return refuse_at(scanner, term->value_at, "a value was expected after the name");
    return 0;
}

/* 1: a term; 0: no more. */
static int scan_term(struct scanner *scanner, struct term *term)
{
    int r;

    *term = (struct term){.op = OP_NONE};
    while (peek(scanner) == ' ') scanner->at++;
    if (at_end(scanner)) return 0;
    term->name_at = scanner->at;
    while (!at_end(scanner) && is_name(peek(scanner))) scanner->at++;
    term->name = (struct bytes){scanner->text.at + term->name_at, scanner->at - term->name_at};
    if (term->name.count == 0)
        return refuse_at(scanner, scanner->at, "a name was expected, as in state:dead");
    term->op_at = scanner->at;
    term->op = scan_operator(scanner);
    if (term->op == OP_NONE)
        return refuse_at(scanner, scanner->at, "one of : > < >= <= was expected after '%.*s'",
                         term->name.count < 32 ? (int)term->name.count : 32, term->name.at);
    r = scan_value(scanner, term);
    return r < 0 ? r : 1;
}

/* ---- What they mean ---- */

static int only_is(struct scanner *scanner, const struct term *term)
{
    if (term->op == OP_IS) return 0;
    return refuse_at(scanner, term->op_at, "only : fits here");
}

/* A name, which may end in an asterisk. */
static int take_name(struct scanner *scanner, const struct term *term, const char **ret_name,
                     bool *ret_prefix)
{
    const char *star = term->quoted ? NULL : memchr(term->value.at, '*', term->value.count);
    size_t at = star ? (size_t)(star - term->value.at) : 0;

    if (only_is(scanner, term) < 0) return WEIR_EREFUSED;
    if (star && at + 1 != term->value.count)
        return refuse_at(scanner, term->value_at + at, "an asterisk stands at the end only");
    if (star) scanner->filter->texts[star - scanner->filter->texts] = '\0';
    *ret_prefix = star != NULL;
    *ret_name = term->value.at;
    return 0;
}

static int take_number(struct scanner *scanner, const struct term *term, uint64_t max,
                       uint64_t *ret_value)
{
    uint64_t value = 0;

    for (size_t i = 0; i < term->value.count; i++) {
        char c = term->value.at[i];

        if (!is_digit(c) || term->quoted)
            return refuse_at(scanner, term->value_at + (term->quoted ? 0 : i),
                             "a whole number was expected");
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(c - '0'), &value) || value > max)
            return refuse_at(scanner, term->value_at, "a number of at most %llu was expected",
                             (unsigned long long)max);
    }
    *ret_value = value;
    return 0;
}

static int read_state(struct scanner *scanner, const struct term *term)
{
    const uint32_t live = 0x3e, ended = 0x3c0;
    struct bytes rest = term->value, part;
    uint32_t states = 0;

    if (only_is(scanner, term) < 0) return WEIR_EREFUSED;
    while (bytes_split(&rest, ',', &part)) {
        uint32_t found = 0;

        for (int state = WEIR_JOB_SCHEDULED; state <= WEIR_JOB_EXPIRED; state++)
            if (bytes_are(part, bytes_of(weir_job_state_name((enum weir_job_state)state))))
                found = WEIR_JOB_STATE_BIT(state);
        if (bytes_are(part, BYTES("live"))) found = live;
        if (bytes_are(part, BYTES("ended"))) found = ended;
        if (bytes_are(part, BYTES("any"))) found = live | ended;
        if (!found)
            return refuse_at(scanner,
                             term->value_at + (size_t)(part.at - term->value.at) + term->quoted,
                             "scheduled, held, ready, blocked, leased, done, dead, cancelled, "
                             "expired, live, ended or any was expected");
        states |= found;
    }
    scanner->filter->jobs.states = states;
    return 0;
}

static int read_queue(struct scanner *scanner, const struct term *term)
{
    weir_job_filter *jobs = &scanner->filter->jobs;

    return take_name(scanner, term, &jobs->queue, &jobs->queue_prefix);
}

static int read_kind(struct scanner *scanner, const struct term *term)
{
    weir_job_filter *jobs = &scanner->filter->jobs;

    return take_name(scanner, term, &jobs->kind, &jobs->kind_prefix);
}

static int read_text(struct scanner *scanner, const struct term *term, const char **ret_text)
{
    if (only_is(scanner, term) < 0) return WEIR_EREFUSED;
    *ret_text = term->value.at;
    return 0;
}

static int read_tag(struct scanner *scanner, const struct term *term)
{
    return read_text(scanner, term, &scanner->filter->jobs.tag);
}

static int read_error(struct scanner *scanner, const struct term *term)
{
    return read_text(scanner, term, &scanner->filter->jobs.error_class);
}

static int read_key(struct scanner *scanner, const struct term *term)
{
    return read_text(scanner, term, &scanner->filter->jobs.key);
}

static int read_id_into(struct scanner *scanner, const struct term *term, uint64_t *ret_id)
{
    int r = only_is(scanner, term);

    if (r == 0) r = take_number(scanner, term, UINT64_MAX, ret_id);
    if (r == 0 && *ret_id == 0) r = refuse_at(scanner, term->value_at, "no job has the id 0");
    return r;
}

static int read_id(struct scanner *scanner, const struct term *term)
{
    return read_id_into(scanner, term, &scanner->filter->jobs.id);
}

static int read_batch(struct scanner *scanner, const struct term *term)
{
    return read_id_into(scanner, term, &scanner->filter->jobs.batch);
}

static int read_age(struct scanner *scanner, const struct term *term)
{
    bool older = term->op == OP_MORE || term->op == OP_MORE_OR_IS;
    int64_t *into = older ? &scanner->filter->older_than_ms : &scanner->filter->younger_than_ms;
    int64_t ns;

    if (term->op == OP_IS) return refuse_at(scanner, term->op_at, "age> or age< was expected");
    if (*into >= 0) return refuse_at(scanner, term->name_at, "age is said twice that way");
    if (term->quoted || duration_parse(term->value, &ns) < 0)
        return refuse_at(scanner, term->value_at, "a duration was expected: 30s, 1h30m, 2d");
    *into = ns / DURATION_MS;
    return 0;
}

/* A range of whole numbers: [min, below). */
static int read_range(struct scanner *scanner, const struct term *term, uint64_t max, uint64_t *min,
                      uint64_t *below)
{
    uint64_t value = 0;
    int r = take_number(scanner, term, max, &value);

    if (r < 0) return r;
    if (term->op == OP_IS || term->op == OP_MORE_OR_IS) *min = value > *min ? value : *min;
    if (term->op == OP_MORE) *min = value + 1 > *min ? value + 1 : *min;
    if (term->op == OP_LESS && value == 0)
        return refuse_at(scanner, term->value_at, "nothing is less than 0");
    if (term->op == OP_LESS && (!*below || value < *below)) *below = value;
    if ((term->op == OP_IS || term->op == OP_LESS_OR_IS) && (!*below || value + 1 < *below))
        *below = value + 1;
    return 0;
}

static int read_priority(struct scanner *scanner, const struct term *term)
{
    weir_job_filter *jobs = &scanner->filter->jobs;
    uint64_t min = jobs->priority_min, below = jobs->priority_below;
    int r = read_range(scanner, term, WEIR_JOB_PRIORITY_MAX, &min, &below);

    jobs->priority_min = (uint8_t)min;
    jobs->priority_below = (uint8_t)below;
    return r;
}

static int read_attempt(struct scanner *scanner, const struct term *term)
{
    weir_job_filter *jobs = &scanner->filter->jobs;
    uint64_t min = jobs->attempts_min, below = jobs->attempts_below;
    int r = read_range(scanner, term, 60000, &min, &below);

    jobs->attempts_min = (uint16_t)min;
    jobs->attempts_below = (uint16_t)below;
    return r;
}

static int read_field(struct scanner *scanner, const struct term *term)
{
    struct filter *filter = scanner->filter;
    struct bytes rest = bytes_after(term->name, sizeof "payload." - 1), part;
    struct filter_field *field;

    if (only_is(scanner, term) < 0) return WEIR_EREFUSED;
    if (filter->field_count == FILTER_FIELDS_MAX)
        return refuse_at(scanner, term->name_at, "at most %d members of payloads are looked at",
                         FILTER_FIELDS_MAX);
    field = &filter->fields[filter->field_count++];
    field->path_count = 0;
    field->value = term->value;
    while (bytes_split(&rest, '.', &part)) {
        size_t at = term->name_at + (size_t)(part.at - term->name.at);

        if (part.count == 0)
            return refuse_at(scanner, at, "a name was expected, as in payload.user.id:17");
        if (field->path_count == FILTER_PATH_MAX)
            return refuse_at(scanner, at, "at most %d names in one another", FILTER_PATH_MAX);
        /* The text given goes; the filter stays. */
        memcpy(filter->texts + filter->used, part.at, part.count);
        field->path[field->path_count++] = (struct bytes){filter->texts + filter->used, part.count};
        filter->used += part.count;
    }
    return 0;
}

struct word {
    const char *name;
    int (*read)(struct scanner *scanner, const struct term *term);
    bool often; /* it may be said more than once */
};

static const struct word words[] = {
    {"state", read_state, false},      {"queue", read_queue, false},    {"kind", read_kind, false},
    {"tag", read_tag, false},          {"error", read_error, false},    {"key", read_key, false},
    {"batch", read_batch, false},      {"id", read_id, false},          {"age", read_age, true},
    {"priority", read_priority, true}, {"attempt", read_attempt, true},
};

static int read_term(struct scanner *scanner, const struct term *term)
{
    if (bytes_begin(term->name, BYTES("payload."))) return read_field(scanner, term);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!bytes_are(term->name, bytes_of(words[i].name))) continue;
        if (!words[i].often && scanner->filter->said & 1u << i)
            return refuse_at(scanner, term->name_at, "%s is said twice", words[i].name);
        scanner->filter->said |= 1u << i;
        return words[i].read(scanner, term);
    }
    return refuse_at(scanner, term->name_at,
                     "state, queue, kind, tag, error, key, batch, id, age, priority, attempt or "
                     "payload.NAME was expected");
}

int filter_parse(struct bytes text, struct filter *ret_filter, struct filter_refusal *ret_refusal)
{
    struct scanner scanner = {.text = text, .filter = ret_filter, .refusal = ret_refusal};
    struct term term;
    int r;

    memset(ret_filter, 0, sizeof *ret_filter);
    ret_filter->older_than_ms = ret_filter->younger_than_ms = -1;
    ret_filter->jobs.states = 0x3fe; /* any */
    /* A term takes less in the texts than in the filter, but for one NUL. */
    if (text.count > FILTER_BYTES_MAX)
        return refuse_at(&scanner, FILTER_BYTES_MAX, "a filter has at most %d bytes",
                         FILTER_BYTES_MAX);
    while ((r = scan_term(&scanner, &term)) > 0) {
        r = read_term(&scanner, &term);
        if (r < 0) return r;
    }
    return r;
}

void filter_at(struct filter *filter, int64_t now_ms)
{
    int64_t before = filter->older_than_ms < now_ms ? now_ms - filter->older_than_ms : 1;
    int64_t from = filter->younger_than_ms < now_ms ? now_ms - filter->younger_than_ms + 1 : 0;

    filter->jobs.created_before_ms = filter->older_than_ms >= 0 ? before : 0;
    filter->jobs.created_from_ms = filter->younger_than_ms >= 0 ? from : 0;
}

/* ---- Payloads ---- */

static bool value_is(const struct json_token *token, struct bytes wanted)
{
    if (token->kind == JSON_STRING) {
        char text[FILTER_BYTES_MAX];
        struct bytes said = {text, 0};

        if (!token->escaped) return bytes_are(token->text, wanted);
        if (token->text.count > sizeof text) return false;
        said.count = json_text(token, text);
        return bytes_are(said, wanted);
    }
    if (token->kind == JSON_BOOL)
        return bytes_are(bytes_of(token->truth ? "true" : "false"), wanted);
    if (token->kind == JSON_NULL) return bytes_are(BYTES("null"), wanted);
    return token->kind == JSON_NUMBER && bytes_are(token->text, wanted);
}

static bool is_index(struct bytes name, unsigned index)
{
    char text[16];
    int count = snprintf(text, sizeof text, "%u", index);

    return bytes_are(name, (struct bytes){text, (size_t)count});
}

/* Goes down by one name. 1: `token` is what is there; 0: nothing is; negative: no JSON. */
static int step_into(struct json_reader *reader, struct bytes name, struct json_token *token)
{
    bool object = token->kind == JSON_OBJECT;

    if (!object && token->kind != JSON_ARRAY) return 0;
    for (unsigned i = 0;; i++) {
        struct json_token key = json_next(reader);
        bool found;

        if (key.kind == JSON_FAILED) return WEIR_EREFUSED;
        if (key.kind == JSON_OBJECT_END || key.kind == JSON_ARRAY_END) return 0;
        found = object ? json_text_is(&key, name) : is_index(name, i);
        *token = object ? json_next(reader) : key;
        if (found) return 1;
        if (!json_skip(reader, *token).at) return WEIR_EREFUSED;
    }
}

static bool field_passes(const struct filter_field *field, struct bytes payload,
                         const struct json_limits *limits)
{
    struct json_reader reader;
    struct json_token token;

    json_reader_init(&reader, payload, limits);
    token = json_next(&reader);
    for (unsigned i = 0; i < field->path_count; i++)
        if (step_into(&reader, field->path[i], &token) <= 0) return false;
    return value_is(&token, field->value);
}

bool filter_payload_passes(const struct filter *filter, struct bytes payload,
                           const struct json_limits *limits)
{
    for (unsigned i = 0; i < filter->field_count; i++)
        if (!field_passes(&filter->fields[i], payload, limits)) return false;
    return true;
}

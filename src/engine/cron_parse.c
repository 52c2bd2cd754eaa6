/* cron_parse.c - from the text of an expression to its sets of bits. */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <weir/error.h>

#include "engine/cron.h"

struct parser {
    const char *text, *at, *end; /* `end` is moved to the end of a field while that is read */
    const char *field;           /* its name, for refusals */
    char *why;
    size_t why_bytes;
};

struct field {
    const char *name, *expected;
    int min, max;
    const char *names; /* of three letters each, the first for the value names_min; or NULL */
    int names_min;
    bool is_day; /* takes '?' */
};

enum { SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY, FIELDS };

static const struct field fields[FIELDS] = {
    [SECOND] = {"second", "0-59", 0, 59, NULL, 0, false},
    [MINUTE] = {"minute", "0-59", 0, 59, NULL, 0, false},
    [HOUR] = {"hour", "0-23", 0, 23, NULL, 0, false},
    [DAY] = {"day of the month", "1-31", 1, 31, NULL, 0, true},
    [MONTH] = {"month", "1-12 or JAN-DEC", 1, 12, "JANFEBMARAPRMAYJUNJULAUGSEPOCTNOVDEC", 1, false},
    [WEEKDAY] = {"day of the week", "0-7 or SUN-SAT", 0, 7, "SUNMONTUEWEDTHUFRISAT", 0, true},
};

static const struct {
    const char *name, *expression;
} shorthands[] = {
    {"hourly", "0 * * * *"},   {"daily", "0 0 * * *"},   {"midnight", "0 0 * * *"},
    {"weekly", "0 0 * * 0"},   {"monthly", "0 0 1 * *"}, {"yearly", "0 0 1 1 *"},
    {"annually", "0 0 1 1 *"},
};

#define SHORTHANDS_EXPECTED \
    "@hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually or @every"

/* ---- Characters ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static char to_upper(char c)
{
    return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

static bool is_letter(char c)
{
    return to_upper(c) >= 'A' && to_upper(c) <= 'Z';
}

static bool same_letters(const char *a, const char *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (to_upper(a[i]) != to_upper(b[i])) return false;
    }
    return true;
}

/* ---- Refusals ---- */

/* The word at a place, made printable and short. */
static void copy_word(const struct parser *parser, const char *at, char *word, size_t word_bytes)
{
    size_t length = 0;

    while (at < parser->end && !is_blank(*at) && *at != ',' && length + 1 < word_bytes) {
        word[length++] = *at >= ' ' && *at <= '~' ? *at : '?';
        at++;
    }
    /* The place is at a comma or a blank: that is what was found. */
    if (length == 0 && at < parser->end) word[length++] = *at == ',' ? ',' : ' ';
    word[length] = '\0';
}

/* "hour, character 3: expected 0-23, found '25'" */
__attribute__((format(printf, 3, 4))) static void say(const struct parser *parser, const char *at,
                                                      const char *format, ...)
{
    char expected[CRON_WHY_BYTES], word[16];
    va_list arguments;

    if (parser->why == NULL || parser->why_bytes == 0) return;
    va_start(arguments, format);
    (void)vsnprintf(expected, sizeof expected, format, arguments);
    va_end(arguments);
    copy_word(parser, at, word, sizeof word);
    (void)snprintf(parser->why, parser->why_bytes, "%s, character %zu: expected %s, found %s%s%s",
                   parser->field, (size_t)(at - parser->text) + 1, expected,
                   word[0] ? "'" : "its end", word, word[0] ? "'" : "");
}

/* A macro, so that analysers see that it is an error. */
#define REFUSE(...) (say(__VA_ARGS__), WEIR_EREFUSED)

/* ---- Fields ---- */

static bool take(struct parser *parser, char wanted)
{
    if (parser->at == parser->end || *parser->at != wanted) return false;
    parser->at++;
    return true;
}

/* Digits at the place, as a number up to `max`, or -1; the place moves behind them. */
static int64_t take_number(struct parser *parser, int64_t max)
{
    const char *begin = parser->at;
    int64_t number = 0;

    while (parser->at < parser->end && is_digit(*parser->at)) {
        if (number <= max) number = number * 10 + (*parser->at - '0');
        parser->at++;
    }
    return parser->at == begin || number > max ? -1 : number;
}

/* A name of the field as its value, or -1. */
static int take_name(struct parser *parser, const struct field *field)
{
    const char *begin = parser->at;

    while (parser->at < parser->end && is_letter(*parser->at)) parser->at++;
    if (field->names == NULL || parser->at - begin != 3) return -1;
    for (int i = 0; field->names[i * 3] != '\0'; i++) {
        if (same_letters(begin, field->names + i * 3, 3)) return field->names_min + i;
    }
    return -1;
}

static int take_value(struct parser *parser, const struct field *field, int *ret_value)
{
    const char *begin = parser->at;
    bool named = begin < parser->end && is_letter(*begin);
    int value = named ? take_name(parser, field) : (int)take_number(parser, field->max);

    if (value < field->min) return REFUSE(parser, begin, "%s", field->expected);
    *ret_value = value;
    return 0;
}

/* One part of a list: its first and last value, and its step. */
static int take_range(struct parser *parser, const struct field *field, int *low, int *high)
{
    const char *begin = parser->at;
    int r;

    if (take(parser, '*') || (field->is_day && take(parser, '?'))) {
        *low = field->min;
        *high = field == &fields[WEEKDAY] ? 6 : field->max;
        return 0;
    }
    r = take_value(parser, field, low);
    if (r < 0) return r;
    *high = *low;
    if (!take(parser, '-')) {
        /* a/n goes on to the end of the field. */
        if (parser->at < parser->end && *parser->at == '/' && *high < field->max) {
            *high = field == &fields[WEEKDAY] ? 6 : field->max;
        }
        return 0;
    }
    r = take_value(parser, field, high);
    if (r < 0) return r;
    if (field == &fields[WEEKDAY] && *high == 0 && *low > 0) *high = 7;
    if (*high < *low) return REFUSE(parser, begin, "a range that does not run backwards");
    return 0;
}

static int take_part(struct parser *parser, const struct field *field, uint64_t *set)
{
    const char *begin;
    int low, high, step_max, r;
    int64_t step = 1;

    r = take_range(parser, field, &low, &high);
    if (r < 0) return r;
    if (take(parser, '/')) {
        begin = parser->at;
        step_max = field == &fields[WEEKDAY] ? 6 : field->max - field->min;
        step = take_number(parser, step_max);
        if (step < 1) return REFUSE(parser, begin, "a step of 1-%d", step_max);
    }
    for (int value = low; value <= high; value += (int)step) {
        *set |= UINT64_C(1) << (field == &fields[WEEKDAY] ? value % 7 : value);
    }
    return 0;
}

/* The field from `begin` to `end` as a set. */
static int parse_field(struct parser *parser, const struct field *field, const char *begin,
                       const char *end, uint64_t *ret_set)
{
    const char *whole_end = parser->end;
    uint64_t set = 0;
    int r;

    parser->at = begin;
    parser->end = end;
    parser->field = field->name;
    do {
        r = take_part(parser, field, &set);
        if (r < 0) return r;
    } while (take(parser, ','));
    if (parser->at < parser->end) return REFUSE(parser, parser->at, "',', '-', '/' or a blank");
    parser->end = whole_end;
    *ret_set = set;
    return 0;
}

static bool begins_with_star(const char *at)
{
    return *at == '*' || *at == '?';
}

static int parse_fields(struct parser *parser, struct cron *cron)
{
    const char *begin[FIELDS], *end[FIELDS];
    uint64_t sets[FIELDS] = {[SECOND] = 1};
    int count = 0, first, r;

    while (parser->at < parser->end) {
        if (count == FIELDS) return REFUSE(parser, parser->at, "the end after 6 fields");
        begin[count] = parser->at;
        while (parser->at < parser->end && !is_blank(*parser->at)) parser->at++;
        end[count++] = parser->at;
        while (parser->at < parser->end && is_blank(*parser->at)) parser->at++;
    }
    if (count < FIELDS - 1) {
        return REFUSE(parser, parser->at,
                      "5 fields (minute hour day month weekday) or 6 with "
                      "seconds first");
    }
    first = FIELDS - count;
    for (int i = first; i < FIELDS; i++) {
        r = parse_field(parser, &fields[i], begin[i - first], end[i - first], &sets[i]);
        if (r < 0) return r;
    }
    cron->seconds = sets[SECOND];
    cron->minutes = sets[MINUTE];
    cron->hours = (uint32_t)sets[HOUR];
    cron->days = (uint32_t)sets[DAY];
    cron->months = (uint16_t)sets[MONTH];
    cron->weekdays = (uint8_t)sets[WEEKDAY];
    if (!begins_with_star(begin[HOUR - first]) && cron->hours != 0xffffff) {
        cron->flags |= CRON_BY_WALL;
    }
    if (!begins_with_star(begin[DAY - first]) && !begins_with_star(begin[WEEKDAY - first])) {
        cron->flags |= CRON_EITHER_DAY;
    }
    return 0;
}

/* ---- Shorthands ---- */

static int parse_every(struct parser *parser, struct cron *cron)
{
    static const struct {
        char letter;
        int64_t ms;
    } units[] = {{'w', 604800000}, {'d', 86400000}, {'h', 3600000}, {'m', 60000}, {'s', 1000}};
    const size_t count = sizeof units / sizeof units[0];
    const int64_t max_ms = INT64_C(366) * 86400000;
    const char *begin;
    size_t unit = 0;

    parser->field = "@every";
    while (parser->at < parser->end && is_blank(*parser->at)) parser->at++;
    begin = parser->at;
    do {
        const char *digits = parser->at;
        int64_t number = take_number(parser, max_ms / 1000);

        if (number < 0) return REFUSE(parser, digits, "an interval like 1h30m (up to 366d)");
        while (unit < count && !take(parser, units[unit].letter)) unit++;
        if (unit == count) return REFUSE(parser, parser->at, "a unit: w d h m s, in this order");
        cron->every_ms += number * units[unit++].ms;
    } while (parser->at < parser->end);
    if (cron->every_ms < 1000 || cron->every_ms > max_ms) {
        return REFUSE(parser, begin, "an interval from 1s to 366d");
    }
    return 0;
}

static int parse_shorthand(struct parser *parser, struct cron *cron)
{
    const char *begin = parser->at++;
    const char *name = parser->at;
    size_t length;

    while (parser->at < parser->end && is_letter(*parser->at)) parser->at++;
    length = (size_t)(parser->at - name);
    if (length == 5 && same_letters(name, "every", 5)) {
        if (parser->at < parser->end && is_blank(*parser->at)) return parse_every(parser, cron);
    }
    if (parser->at < parser->end) return REFUSE(parser, begin, SHORTHANDS_EXPECTED);
    for (size_t i = 0; i < sizeof shorthands / sizeof shorthands[0]; i++) {
        const char *text = shorthands[i].expression;

        if (length == strlen(shorthands[i].name) &&
            same_letters(name, shorthands[i].name, length)) {
            return cron_parse(text, strlen(text), cron, NULL, 0);
        }
    }
    return REFUSE(parser, begin, SHORTHANDS_EXPECTED);
}

int cron_parse(const char *text, size_t length, struct cron *ret_cron, char *why, size_t why_bytes)
{
    struct parser parser = {text, text, text + length, "expression", why, why_bytes};
    struct cron cron;
    int r;

    if (length > CRON_TEXT_MAX) {
        return REFUSE(&parser, text + CRON_TEXT_MAX, "at most %d characters", CRON_TEXT_MAX);
    }
    while (parser.at < parser.end && is_blank(*parser.at)) parser.at++;
    while (parser.at < parser.end && is_blank(parser.end[-1])) parser.end--;
    memset(&cron, 0, sizeof cron);
    r = parser.at < parser.end && *parser.at == '@' ? parse_shorthand(&parser, &cron)
                                                    : parse_fields(&parser, &cron);
    if (r == 0) *ret_cron = cron;
    return r;
}

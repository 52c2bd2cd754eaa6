/* zone_parse.c - zones from bytes of TZif files and from POSIX rules, which anybody can have
 * written: each count and index is checked before it is used. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <weir/error.h>

#include "engine/zone.h"

/* ---- Refusals ---- */

struct reason {
    char *text; /* NULL: nobody asks */
    size_t bytes;
};

__attribute__((format(printf, 2, 3))) static void say(const struct reason *reason,
                                                      const char *format, ...)
{
    va_list arguments;

    if (reason->text == NULL || reason->bytes == 0) return;
    va_start(arguments, format);
    (void)vsnprintf(reason->text, reason->bytes, format, arguments);
    va_end(arguments);
}

/* A macro, so that analysers see that it is an error. */
#define REFUSE(...) (say(__VA_ARGS__), WEIR_EREFUSED)

/* ---- POSIX rules ---- */

enum { SECONDS_HOUR = 3600, OFFSET_HOURS_MAX = 24, CHANGE_HOURS_MAX = 167 };

struct text {
    const char *begin, *at, *end;
};

static bool text_take(struct text *text, char wanted)
{
    if (text->at == text->end || *text->at != wanted) return false;
    text->at++;
    return true;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* One to three digits, as many as any number in a rule has. */
static bool text_number(struct text *text, int min, int max, int *ret_number)
{
    const char *at = text->at;
    int number = 0;

    while (at < text->end && is_digit(*at) && at - text->at < 3) number = number * 10 + *at++ - '0';
    if (at == text->at || (at < text->end && is_digit(*at))) return false;
    if (number < min || number > max) return false;
    text->at = at;
    *ret_number = number;
    return true;
}

/* A name of three letters or more, or of letters, digits and signs in <>. It is not kept. */
static bool text_name(struct text *text)
{
    bool quoted = text_take(text, '<');
    const char *begin = text->at;

    while (text->at < text->end) {
        char c = *text->at;
        if (!is_letter(c) && !(quoted && (is_digit(c) || c == '+' || c == '-'))) break;
        text->at++;
    }
    if (text->at - begin < 3) return false;
    return !quoted || text_take(text, '>');
}

/* [+-]hours[:minutes[:seconds]] */
static bool text_time(struct text *text, int hours_max, int32_t *ret_s)
{
    int hours, minutes = 0, seconds = 0;
    bool negative = text_take(text, '-');

    if (!negative) (void)text_take(text, '+');
    if (!text_number(text, 0, hours_max, &hours)) return false;
    if (text_take(text, ':')) {
        if (!text_number(text, 0, 59, &minutes)) return false;
        if (text_take(text, ':') && !text_number(text, 0, 59, &seconds)) return false;
    }
    *ret_s = hours * SECONDS_HOUR + minutes * 60 + seconds;
    if (negative) *ret_s = -*ret_s;
    return true;
}

static bool text_change(struct text *text, struct zone_change *change)
{
    int day = 0, month = 0, week = 0, weekday = 0;

    if (!text_take(text, ',')) return false;
    if (text_take(text, 'M')) {
        change->kind = ZONE_DAY_OF_MONTH;
        if (!text_number(text, 1, 12, &month) || !text_take(text, '.') ||
            !text_number(text, 1, 5, &week) || !text_take(text, '.') ||
            !text_number(text, 0, 6, &weekday)) {
            return false;
        }
    } else if (text_take(text, 'J')) {
        change->kind = ZONE_DAY_JULIAN;
        if (!text_number(text, 1, 365, &day)) return false;
    } else {
        change->kind = ZONE_DAY_OF_YEAR;
        if (!text_number(text, 0, 365, &day)) return false;
    }
    change->day = (uint16_t)day;
    change->month = (uint8_t)month;
    change->week = (uint8_t)week;
    change->weekday = (uint8_t)weekday;
    change->time_s = 2 * SECONDS_HOUR;
    return !text_take(text, '/') || text_time(text, CHANGE_HOURS_MAX, &change->time_s);
}

/* What was being looked for where the text went wrong, or NULL. */
static const char *parse_rule(struct text *text, struct zone_rule *rule)
{
    int32_t west_s;

    if (!text_name(text)) return "a name of 3 letters or more";
    if (!text_time(text, OFFSET_HOURS_MAX, &west_s)) return "an offset from UTC (0 to 24 hours)";
    rule->kind = ZONE_RULE_FIXED;
    rule->standard_s = -west_s; /* POSIX counts what is missing to UTC */
    if (text->at == text->end) return NULL;

    if (!text_name(text)) return "a name for summer time, of 3 letters or more";
    rule->kind = ZONE_RULE_SUMMER;
    rule->summer_s = rule->standard_s + SECONDS_HOUR;
    if (text->at < text->end && *text->at != ',') {
        if (!text_time(text, OFFSET_HOURS_MAX, &west_s)) return "the offset of summer time";
        rule->summer_s = -west_s;
    }
    if (!text_change(text, &rule->begin)) return "when summer time begins (',M3.5.0/2')";
    if (!text_change(text, &rule->end)) return "when summer time ends (',M10.5.0/3')";
    return text->at == text->end ? NULL : "the end of the rule";
}

static int rule_of(const char *what, const char *begin, size_t length, struct zone_rule *ret_rule,
                   const struct reason *reason)
{
    struct text text = {begin, begin, begin + length};
    const char *wanted = parse_rule(&text, ret_rule);

    if (wanted == NULL) return 0;
    return REFUSE(reason, "%s, character %zu: expected %s", what,
                  (size_t)(text.at - text.begin) + 1, wanted);
}

int zone_parse_rule(const char *text, size_t length, struct zone *ret_zone, char *why,
                    size_t why_bytes)
{
    struct reason reason = {why, why_bytes};
    struct zone_rule rule;
    int r;

    memset(&rule, 0, sizeof rule);
    rule.from_s = INT64_MIN;
    r = rule_of("rule of the time zone", text, length, &rule, &reason);
    if (r < 0) return r;
    memset(ret_zone, 0, sizeof *ret_zone);
    ret_zone->rule = rule;
    return 0;
}

/* ---- TZif files ---- */

enum {
    HEADER_BYTES = 44,
    TYPE_BYTES = 6,
    TYPES_MAX = 256, /* an index is one byte */
};

/* In the order of the file. */
struct counts {
    uint32_t universal, standard, leaps, transitions, types, names;
};

/* Where the parts of the newest data in a file are. */
struct layout {
    struct counts counts;
    size_t time_bytes; /* of one transition time: 4 or 8 */
    const uint8_t *times, *indexes, *types;
    const char *footer; /* NULL: there is none */
    size_t footer_bytes;
};

static uint32_t big_endian(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static int64_t transition_time(const struct layout *layout, uint32_t index)
{
    const uint8_t *at = layout->times + index * layout->time_bytes;

    if (layout->time_bytes == 4) return (int32_t)big_endian(at);
    return (int64_t)((uint64_t)big_endian(at) << 32 | big_endian(at + 4));
}

static int32_t type_offset(const struct layout *layout, uint32_t index)
{
    return (int32_t)big_endian(layout->types + (size_t)index * TYPE_BYTES);
}

/* Also of counts that will be refused: it does not overflow. */
static uint64_t block_bytes(const struct counts *counts, uint64_t time_bytes)
{
    return counts->transitions * (time_bytes + 1) + counts->types * (uint64_t)TYPE_BYTES +
           counts->names + counts->leaps * (time_bytes + 4) + counts->standard + counts->universal;
}

/* The header at `at`, of which `left` bytes are there with all that follows. */
static int read_header(const uint8_t *at, size_t left, size_t time_bytes, struct counts *ret_counts,
                       const struct reason *reason)
{
    if (left < HEADER_BYTES || memcmp(at, "TZif", 4) != 0) {
        return REFUSE(reason, "zone file: a header (TZif) is missing");
    }
    ret_counts->universal = big_endian(at + 20);
    ret_counts->standard = big_endian(at + 24);
    ret_counts->leaps = big_endian(at + 28);
    ret_counts->transitions = big_endian(at + 32);
    ret_counts->types = big_endian(at + 36);
    ret_counts->names = big_endian(at + 40);
    if (block_bytes(ret_counts, time_bytes) > left - HEADER_BYTES) {
        return REFUSE(reason, "zone file: it ends before the data that its header announces");
    }
    return 0;
}

static int check_counts(const struct counts *counts, const struct reason *reason)
{
    if (counts->transitions > ZONE_TRANSITIONS_MAX) {
        return REFUSE(reason, "zone file: %u transitions are more than %d", counts->transitions,
                      ZONE_TRANSITIONS_MAX);
    }
    if (counts->types == 0 || counts->types > TYPES_MAX) {
        return REFUSE(reason, "zone file: %u types of local time, not 1 to %d", counts->types,
                      TYPES_MAX);
    }
    if (counts->leaps > 0) {
        return REFUSE(reason, "zone file: it counts leap seconds, which Unix time does not");
    }
    if ((counts->universal != 0 && counts->universal != counts->types) ||
        (counts->standard != 0 && counts->standard != counts->types)) {
        return REFUSE(reason, "zone file: indicators for some of the types only");
    }
    return 0;
}

static int find_footer(const uint8_t *at, size_t left, struct layout *layout,
                       const struct reason *reason)
{
    if (left < 2 || at[0] != '\n' || at[left - 1] != '\n' || memchr(at + 1, '\n', left - 2)) {
        return REFUSE(reason, "zone file: the footer is not one line between two newlines");
    }
    layout->footer = (const char *)at + 1;
    layout->footer_bytes = left - 2;
    return 0;
}

/* From version 2 on the data comes twice, and the second time with longer times. */
static int find_layout(const uint8_t *data, size_t bytes, struct layout *layout,
                       const struct reason *reason)
{
    size_t at = 0, block;
    int r;

    memset(layout, 0, sizeof *layout);
    layout->time_bytes = 4;
    r = read_header(data, bytes, layout->time_bytes, &layout->counts, reason);
    if (r < 0) return r;
    if (data[4] != '\0' && data[4] < '2') return REFUSE(reason, "zone file: unknown version");
    if (data[4] != '\0') {
        at = HEADER_BYTES + (size_t)block_bytes(&layout->counts, 4);
        layout->time_bytes = 8;
        r = read_header(data + at, bytes - at, layout->time_bytes, &layout->counts, reason);
        if (r < 0) return r;
    }
    r = check_counts(&layout->counts, reason);
    if (r < 0) return r;

    block = (size_t)block_bytes(&layout->counts, layout->time_bytes);
    at += HEADER_BYTES;
    layout->times = data + at;
    layout->indexes = layout->times + layout->counts.transitions * layout->time_bytes;
    layout->types = layout->indexes + layout->counts.transitions;
    at += block;
    if (data[4] != '\0') return find_footer(data + at, bytes - at, layout, reason);
    if (at < bytes) return REFUSE(reason, "zone file: %zu bytes too many", bytes - at);
    return 0;
}

static int check_types(const struct layout *layout, const struct reason *reason)
{
    for (uint32_t i = 0; i < layout->counts.types; i++) {
        const uint8_t *type = layout->types + (size_t)i * TYPE_BYTES;
        int32_t offset_s = type_offset(layout, i);

        if (offset_s <= -ZONE_OFFSET_MAX_S || offset_s >= ZONE_OFFSET_MAX_S) {
            return REFUSE(reason, "zone file: type %u is %d seconds from UTC", i, offset_s);
        }
        if (type[4] > 1 || type[5] >= layout->counts.names) {
            return REFUSE(reason, "zone file: type %u has no name or is no summer time", i);
        }
    }
    return 0;
}

/* Checks every transition, and keeps those that change the offset. */
static int take_transitions(const struct layout *layout, struct zone *zone,
                            const struct reason *reason)
{
    int64_t last_s = 0;
    int32_t offset_s = zone->first_offset_s;

    for (uint32_t i = 0; i < layout->counts.transitions; i++) {
        struct zone_transition *kept = &zone->transitions[zone->count];
        int64_t at_s = transition_time(layout, i);

        if (at_s > ZONE_TIME_MAX_S || at_s < -ZONE_TIME_MAX_S) {
            return REFUSE(reason, "zone file: transition %u is beyond all times", i);
        }
        if (i > 0 && at_s <= last_s) {
            return REFUSE(reason, "zone file: transition %u is not after the one before", i);
        }
        if (layout->indexes[i] >= layout->counts.types) {
            return REFUSE(reason, "zone file: transition %u is to a type that is not there", i);
        }
        last_s = at_s;
        if (type_offset(layout, layout->indexes[i]) == offset_s) continue;
        offset_s = type_offset(layout, layout->indexes[i]);
        *kept = (struct zone_transition){.at_s = at_s, .offset_s = offset_s};
        zone->count++;
    }
    return 0;
}

int zone_measure(const void *data, size_t data_bytes, size_t *ret_bytes, char *why,
                 size_t why_bytes)
{
    struct reason reason = {why, why_bytes};
    struct layout layout;
    int r = find_layout(data, data_bytes, &layout, &reason);

    if (r < 0) return r;
    *ret_bytes = sizeof(struct zone) + layout.counts.transitions * sizeof(struct zone_transition);
    return 0;
}

int zone_parse(const void *data, size_t data_bytes, struct zone *ret_zone, size_t zone_bytes_max,
               char *why, size_t why_bytes)
{
    struct reason reason = {why, why_bytes};
    struct layout layout;
    struct zone_rule *rule = &ret_zone->rule;
    int r = find_layout(data, data_bytes, &layout, &reason);

    if (r < 0) return r;
    if (sizeof *ret_zone + layout.counts.transitions * sizeof ret_zone->transitions[0] >
        zone_bytes_max) {
        return REFUSE(&reason, "zone file: %u transitions do not fit into %zu bytes",
                      layout.counts.transitions, zone_bytes_max);
    }
    r = check_types(&layout, &reason);
    if (r < 0) return r;
    memset(ret_zone, 0, sizeof *ret_zone);
    ret_zone->first_offset_s = type_offset(&layout, 0);
    r = take_transitions(&layout, ret_zone, &reason);
    if (r < 0 || layout.footer_bytes == 0) return r;
    /* The last transition counts here even if it was not kept. */
    rule->from_s = layout.counts.transitions > 0
                       ? transition_time(&layout, layout.counts.transitions - 1)
                       : INT64_MIN;
    return rule_of("footer of the zone file", layout.footer, layout.footer_bytes, rule, &reason);
}

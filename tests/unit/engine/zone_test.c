/* zone_test.c - offsets and local times of zones, as their tables have them and as the C library
 * finds them; files that are not right are refused. */
#include "engine/zone.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <weir/error.h>

#include "engine/civil.h"
#include "unit/engine/zones.h"
#include "unit/policy/chance.h"

#define DAY_S INT64_C(86400)

static void check_shows(enum zones_id id, const char *utc, const char *expected)
{
    char text[ZONES_TEXT_BYTES];

    CHECK_STR(zones_show(zones_get(id), zones_time(utc), text), expected);
}

TEST(zone_shows_what_its_clocks_show)
{
    check_shows(UTC_EMPTY, "2025-01-01 00:00:00", "2025-01-01 00:00:00+00:00");
    check_shows(BERLIN, "1893-03-31 23:06:31", "1893-03-31 23:59:59+00:53");
    check_shows(BERLIN, "1893-03-31 23:06:32", "1893-04-01 00:06:32+01:00");
    check_shows(BERLIN, "2025-03-30 00:59:59", "2025-03-30 01:59:59+01:00");
    check_shows(BERLIN, "2025-03-30 01:00:00", "2025-03-30 03:00:00+02:00");
    check_shows(BERLIN, "2025-10-26 00:59:59", "2025-10-26 02:59:59+02:00");
    check_shows(BERLIN, "2025-10-26 01:00:00", "2025-10-26 02:00:00+01:00");
    check_shows(BERLIN, "9999-07-01 00:00:00", "9999-07-01 02:00:00+02:00");
    check_shows(NEW_YORK, "2024-03-10 06:59:59", "2024-03-10 01:59:59-05:00");
    check_shows(NEW_YORK, "2024-03-10 07:00:00", "2024-03-10 03:00:00-04:00");
    check_shows(NEW_YORK, "2024-11-03 06:00:00", "2024-11-03 01:00:00-05:00");
    check_shows(LORD_HOWE, "2024-10-05 15:29:59", "2024-10-06 01:59:59+10:30");
    check_shows(LORD_HOWE, "2024-10-05 15:30:00", "2024-10-06 02:30:00+11:00");
    check_shows(LORD_HOWE, "2024-04-06 15:00:00", "2024-04-07 01:30:00+10:30");
    check_shows(KOLKATA, "1999-12-31 18:30:00", "2000-01-01 00:00:00+05:30");
    check_shows(APIA, "2011-12-30 09:59:59", "2011-12-29 23:59:59-10:00");
    check_shows(APIA, "2011-12-30 10:00:00", "2011-12-31 00:00:00+14:00");
    check_shows(APIA, "2030-12-30 10:00:00", "2030-12-30 23:00:00+13:00");
    check_shows(SAO_PAULO, "2018-11-04 03:00:00", "2018-11-04 01:00:00-02:00");
    check_shows(SAO_PAULO, "2030-11-04 03:00:00", "2030-11-04 00:00:00-03:00");
    check_shows(CASABLANCA, "2025-02-23 01:59:59", "2025-02-23 02:59:59+01:00");
    check_shows(CASABLANCA, "2025-02-23 02:00:00", "2025-02-23 02:00:00+00:00");
    check_shows(DUBLIN, "2025-01-15 12:00:00", "2025-01-15 12:00:00+00:00");
    check_shows(DUBLIN, "2025-03-30 01:00:00", "2025-03-30 02:00:00+01:00");
    check_shows(DUBLIN, "2025-10-26 01:00:00", "2025-10-26 01:00:00+00:00");
    for (int64_t day = 0; day < 3000; day++) {
        CHECK_INT(zone_offset(zones_get(SUMMER_ALWAYS), day * DAY_S), ==, -2 * 3600);
    }
}

TEST(zone_rule_takes_every_kind_of_day)
{
    /* Of a rule in which summer time is an hour ahead of UTC, and begins at 02:00. */
    static const struct {
        const char *rule, *begins;
    } rows[] = {
        {"UTC0SUM,J59,J300", "2024-02-28 02:00:00"},
        {"UTC0SUM,J60,J300", "2024-03-01 02:00:00"},
        {"UTC0SUM,J60,J300", "2023-03-01 02:00:00"},
        {"UTC0SUM,59,300", "2024-02-29 02:00:00"},
        {"UTC0SUM,59,300", "2023-03-01 02:00:00"},
        {"UTC0SUM,0/0,300", "2023-01-01 00:00:00"},
        {"UTC0SUM,M2.5.4,300", "2024-02-29 02:00:00"},
        {"UTC0SUM,M2.5.4,300", "2023-02-23 02:00:00"},
        {"UTC0SUM,M2.1.4,300", "2024-02-01 02:00:00"},
        {"UTC0SUM,M9.4.6/-1,300", "2024-09-27 23:00:00"},
        {"UTC0SUM,M3.1.0/167:59:59,300", "2024-03-09 23:59:59"},
        {"UTC0SUM,M1.1.0/-167,300", "2022-12-25 01:00:00"}, /* for 2023, which began on a Sunday */
    };
    struct zone zone;
    char why[ZONE_WHY_BYTES];

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int64_t at_s = zones_time(rows[i].begins);

        test_note("%s", rows[i].rule);
        CHECK_OK(zone_parse_rule(rows[i].rule, strlen(rows[i].rule), &zone, why, sizeof why));
        CHECK_INT(zone_offset(&zone, at_s - 1), ==, 0);
        CHECK_INT(zone_offset(&zone, at_s), ==, 3600);
        CHECK_INT(zone_segment_at(&zone, at_s).start_s, ==, at_s);
        CHECK_INT(zone_segment_at(&zone, at_s - 1).end_s, ==, at_s);
    }
}

TEST(zone_rule_whose_changes_lie_in_the_next_year_holds_in_the_days_before_them)
{
    static const char begins_first[] = "UTC0SUM,J365/150,J365/160";
    static const char ends_first[] = "UTC0SUM,J365/160,J365/150";
    int64_t at_s = zones_time("2024-01-03 00:00:00");
    struct zone zone;

    CHECK_OK(zone_parse_rule(begins_first, strlen(begins_first), &zone, NULL, 0));
    CHECK_INT(zone_offset(&zone, at_s), ==, 0);
    CHECK_INT(zone_segment_at(&zone, at_s).start_s, ==, zones_time("2023-01-06 15:00:00"));
    CHECK_INT(zone_segment_at(&zone, at_s).end_s, ==, zones_time("2024-01-06 06:00:00"));
    CHECK_OK(zone_parse_rule(ends_first, strlen(ends_first), &zone, NULL, 0));
    CHECK_INT(zone_offset(&zone, at_s), ==, 3600);
    CHECK_INT(zone_segment_at(&zone, at_s).start_s, ==, zones_time("2023-01-06 16:00:00"));
}

static void check_local(enum zones_id id, const char *local, int count, const char *first,
                        const char *last)
{
    struct zone_instants instants = zone_local(zones_get(id), zones_time(local));

    test_note("%s %s", zones[id].name, local);
    CHECK_INT(instants.count, ==, count);
    CHECK_INT(instants.first_s, ==, zones_time(first));
    CHECK_INT(instants.last_s, ==, zones_time(last));
    CHECK_INT(zone_reach(zones_get(id), zones_time(local)), ==, zones_time(first));
}

TEST(zone_local_time_comes_once_twice_or_never)
{
    check_local(BERLIN, "2025-07-01 12:00:00", 1, "2025-07-01 10:00:00", "2025-07-01 10:00:00");
    check_local(BERLIN, "2025-03-30 01:59:59", 1, "2025-03-30 00:59:59", "2025-03-30 00:59:59");
    check_local(BERLIN, "2025-03-30 02:00:00", 0, "2025-03-30 01:00:00", "2025-03-30 01:00:00");
    check_local(BERLIN, "2025-03-30 02:59:59", 0, "2025-03-30 01:00:00", "2025-03-30 01:00:00");
    check_local(BERLIN, "2025-03-30 03:00:00", 1, "2025-03-30 01:00:00", "2025-03-30 01:00:00");
    check_local(BERLIN, "2025-10-26 01:59:59", 1, "2025-10-25 23:59:59", "2025-10-25 23:59:59");
    check_local(BERLIN, "2025-10-26 02:00:00", 2, "2025-10-26 00:00:00", "2025-10-26 01:00:00");
    check_local(BERLIN, "2025-10-26 02:59:59", 2, "2025-10-26 00:59:59", "2025-10-26 01:59:59");
    check_local(BERLIN, "2025-10-26 03:00:00", 1, "2025-10-26 02:00:00", "2025-10-26 02:00:00");
    check_local(LORD_HOWE, "2024-10-06 02:15", 0, "2024-10-05 15:30:00", "2024-10-05 15:30:00");
    check_local(LORD_HOWE, "2024-04-07 01:45", 2, "2024-04-06 14:45:00", "2024-04-06 15:15:00");
    check_local(APIA, "2011-12-30 00:00:00", 0, "2011-12-30 10:00:00", "2011-12-30 10:00:00");
    check_local(APIA, "2011-12-30 23:59:59", 0, "2011-12-30 10:00:00", "2011-12-30 10:00:00");
    check_local(APIA, "2011-12-31 00:00:00", 1, "2011-12-30 10:00:00", "2011-12-30 10:00:00");
    check_local(SAO_PAULO, "2018-11-04 00:00:00", 0, "2018-11-04 03:00", "2018-11-04 03:00");
    check_local(SAO_PAULO, "2018-02-17 23:30:00", 2, "2018-02-18 01:30", "2018-02-18 02:30");
    check_local(KOLKATA, "2024-10-06 02:15:00", 1, "2024-10-05 20:45", "2024-10-05 20:45");
}

/* In any zone: offsets from its segments, which lie one after the other without a hole. */
static void check_segments(const struct zone *zone, int64_t from_s, int64_t to_s)
{
    struct zone_segment segment = zone_segment_at(zone, from_s);

    while (segment.end_s < to_s) {
        struct zone_segment next = zone_segment_at(zone, segment.end_s);

        CHECK_INT(zone_offset(zone, segment.end_s - 1), ==, segment.offset_s);
        CHECK_INT(next.start_s, ==, segment.end_s);
        CHECK_INT(next.end_s, >, next.start_s);
        segment = next;
    }
}

TEST(zone_segments_lie_one_after_the_other)
{
    for (int id = 0; id < ZONES; id++) {
        check_segments(zones_get((enum zones_id)id), zones_time("1800-01-01"),
                       zones_time("2400-01-01"));
    }
}

/* A zone that no place has: changes come every few hours, by up to a day. */
static const struct zone *wild_zone(uint64_t *seed)
{
    static union {
        struct zone zone;
        uint8_t bytes[sizeof(struct zone) + 64 * sizeof(struct zone_transition)];
    } made;
    int64_t at_s = 0;

    memset(&made, 0, sizeof made);
    made.zone.count = 1 + (uint32_t)chance_below(seed, 64);
    for (uint32_t i = 0; i < made.zone.count; i++) {
        at_s += 1 + (int64_t)chance_below(seed, chance_below(seed, 4) ? 40000 : 5);
        made.zone.transitions[i].at_s = at_s;
        made.zone.transitions[i].offset_s =
            (int32_t)chance_below(seed, 2 * ZONE_OFFSET_MAX_S - 1) - ZONE_OFFSET_MAX_S + 1;
    }
    return &made.zone;
}

TEST(zone_reach_and_shown_agree_with_a_scan_in_wild_zones)
{
    uint64_t seed = chance_seed();

    for (int round = 0; round < 8; round++) {
        const struct zone *zone = wild_zone(&seed);
        int64_t end_s = zone->transitions[zone->count - 1].at_s + 3 * ZONE_OFFSET_MAX_S;
        int64_t shown_s = INT64_MIN;

        /* Every minute is looked at, and every second around a change. */
        for (int64_t at_s = -3 * ZONE_OFFSET_MAX_S; at_s < end_s;) {
            struct zone_segment segment = zone_segment_at(zone, at_s);
            bool near = at_s < segment.start_s + 3 || at_s > segment.end_s - 63;
            int64_t local_s = at_s + segment.offset_s;

            CHECK_INT(zone_reach(zone, local_s), <=, at_s);
            if (local_s > shown_s) {
                CHECK_INT(zone_reach(zone, local_s), ==, at_s);
                if (shown_s != INT64_MIN && near) {
                    CHECK_INT(zone_reach(zone, shown_s + 1), <=, at_s);
                }
                shown_s = local_s;
            }
            CHECK_INT(zone_shown(zone, at_s), ==, shown_s);
            CHECK_INT(zone_reach(zone, shown_s + 1), >, at_s);
            at_s += near ? 1 : 60;
        }
    }
}

TEST(zone_far_times_are_taken_for_the_farthest)
{
    static const int64_t times[] = {INT64_MIN, INT64_MAX, INT64_MIN + 1, INT64_MAX - 1};

    for (int id = 0; id < ZONES; id++) {
        const struct zone *zone = zones_get((enum zones_id)id);

        for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
            int64_t reach_s = zone_reach(zone, times[i]);

            CHECK_INT(llabs(llabs(reach_s) - ZONE_TIME_MAX_S), <=, ZONE_OFFSET_MAX_S);
            CHECK_INT(llabs(zone_shown(zone, times[i])), <=, ZONE_TIME_MAX_S + ZONE_OFFSET_MAX_S);
            CHECK_INT(zone_local(zone, times[i]).count, >=, 0);
            CHECK_INT(abs(zone_offset(zone, times[i])), <, ZONE_OFFSET_MAX_S);
        }
    }
}

/* ---- Files ---- */

struct parsed {
    int result;
    char why[ZONE_WHY_BYTES];
    union {
        struct zone zone;
        uint8_t bytes[sizeof(struct zone) + ZONES_ROWS * sizeof(struct zone_transition)];
    } memory;
};

static void parse(const uint8_t *data, size_t bytes, struct parsed *parsed)
{
    /* Of this very size, so that the sanitizers see a byte too far. */
    uint8_t *copy = malloc(bytes > 0 ? bytes : 1);

    CHECK(copy);
    memcpy(copy, data, bytes);
    memset(parsed, 0, sizeof *parsed);
    parsed->result = zone_parse(copy, bytes, &parsed->memory.zone, sizeof parsed->memory,
                                parsed->why, sizeof parsed->why);
    free(copy);
}

TEST(zone_file_means_the_same_in_every_version)
{
    for (int id = 0; id < ZONES; id++) {
        for (int version = 1; version <= 4; version++) {
            const struct zone *zone = zones_get((enum zones_id)id);
            uint8_t data[ZONES_FILE_BYTES];
            size_t bytes = zones_write(&zones[id], version, data), measured;
            struct parsed parsed;

            if (version == 1 && id < SAO_PAULO) continue; /* these begin before 1901 */
            test_note("%s version %d", zones[id].name, version);
            parse(data, bytes, &parsed);
            CHECK_OK(parsed.result);
            CHECK_OK(zone_measure(data, bytes, &measured, NULL, 0));
            CHECK_INT(measured, ==,
                      sizeof *zone + (size_t)zones[id].count * sizeof(struct zone_transition));
            if (version == 1) {
                CHECK_INT(parsed.memory.zone.rule.kind, ==, ZONE_RULE_NONE);
                CHECK_INT(parsed.memory.zone.count, ==, zone->count);
            } else {
                CHECK_INT(zone_bytes(&parsed.memory.zone), ==, zone_bytes(zone));
                CHECK(memcmp(&parsed.memory, zone, zone_bytes(zone)) == 0);
            }
        }
    }
    CHECK_INT(zone_bytes(zone_utc()), ==, sizeof(struct zone));
}

TEST(zone_transition_that_changes_nothing_is_not_kept_but_begins_the_rule)
{
    struct zones_table table = {.name = "test",
                                .first_offset_s = 0,
                                .count = 2,
                                .rows = {{2000, 1, 1, 0, 0, 0, 7200}, {2010, 1, 1, 0, 0, 0, 7200}},
                                .footer = "ABC-3"};
    uint8_t data[ZONES_FILE_BYTES];
    struct parsed parsed;

    parse(data, zones_write(&table, 3, data), &parsed);
    CHECK_OK(parsed.result);
    CHECK_INT(parsed.memory.zone.count, ==, 1);
    CHECK_INT(zone_offset(&parsed.memory.zone, zones_time("2009-12-31 23:59:59")), ==, 7200);
    CHECK_INT(zone_offset(&parsed.memory.zone, zones_time("2010-01-01")), ==, 10800);
    CHECK_INT(zone_segment_at(&parsed.memory.zone, zones_time("2005-01-01")).end_s, ==,
              zones_time("2010-01-01"));
    check_segments(&parsed.memory.zone, zones_time("1990-01-01"), zones_time("2040-01-01"));
}

TEST(zone_file_cut_anywhere_is_refused)
{
    uint8_t data[ZONES_FILE_BYTES];
    struct parsed parsed;

    for (int version = 1; version <= 3; version++) {
        size_t whole = zones_write(&zones[APIA], version, data);

        for (size_t bytes = 0; bytes < whole; bytes++) {
            parse(data, bytes, &parsed);
            CHECK_INT(parsed.result, ==, WEIR_EREFUSED);
            CHECK_CONTAINS(parsed.why, "zone file");
        }
        data[whole] = 'x';
        parse(data, whole + 1, &parsed);
        CHECK_INT(parsed.result, ==, WEIR_EREFUSED);
    }
}

TEST(zone_file_with_any_byte_changed_is_a_zone_or_refused)
{
    uint8_t data[ZONES_FILE_BYTES];
    struct parsed parsed;
    size_t whole = zones_write(&zones[APIA], 2, data);
    int refused = 0;

    for (size_t at = 0; at < whole; at++) {
        for (int flip = 1; flip < 256; flip++) {
            data[at] ^= (uint8_t)flip;
            parse(data, whole, &parsed);
            data[at] ^= (uint8_t)flip;
            if (parsed.result < 0) {
                CHECK_INT(parsed.result, ==, WEIR_EREFUSED);
                CHECK(parsed.why[0] != '\0');
                refused++;
            } else {
                (void)zone_local(&parsed.memory.zone, zones_time("2011-12-30"));
                (void)zone_shown(&parsed.memory.zone, zones_time("2025-12-30"));
            }
        }
    }
    CHECK_INT(refused, >, 10000);
}

/* A number of the second header or its block, changed. */
static void check_refused(size_t at, int bytes, int64_t number, const char *why)
{
    uint8_t data[ZONES_FILE_BYTES];
    struct parsed parsed;
    size_t whole = zones_write(&zones[APIA], 2, data);

    at += 44 + 6 + 4; /* the first header and its block: one type and its name */
    for (int i = 0; i < bytes; i++)
        data[at + (size_t)i] = (uint8_t)(number >> (8 * (bytes - 1 - i)));
    parse(data, whole, &parsed);
    CHECK_INT(parsed.result, ==, WEIR_EREFUSED);
    CHECK_CONTAINS(parsed.why, why);
}

TEST(zone_file_refused_says_what_is_wrong)
{
    enum { COUNT = 32, TYPES = 36, NAMES = 40, TIMES = 44, INDEXES = TIMES + 7 * 8 };
    enum { FIRST_TYPE = INDEXES + 7 };
    uint8_t data[ZONES_FILE_BYTES];
    struct parsed parsed;
    char why[ZONE_WHY_BYTES];
    size_t whole = zones_write(&zones[APIA], 2, data);

    check_refused(0, 1, 'X', "header");
    check_refused(COUNT, 4, UINT32_MAX, "ends before");
    check_refused(COUNT, 4, 8, "newlines");
    check_refused(NAMES, 4, INT32_MAX, "ends before");
    check_refused(TYPES, 4, 0, "types");
    check_refused(TIMES, 8, INT64_MIN, "beyond all times");
    check_refused(TIMES, 8, INT64_MAX, "beyond all times");
    check_refused(TIMES + 8, 8, 0, "not after");
    check_refused(TIMES + 8, 8, zones_row_s(&zones[APIA].rows[0]), "not after");
    check_refused(INDEXES + 3, 1, 8, "type that is not there");
    check_refused(FIRST_TYPE, 4, ZONE_OFFSET_MAX_S, "seconds from UTC");
    check_refused(FIRST_TYPE, 4, INT32_MIN, "seconds from UTC");
    check_refused(FIRST_TYPE + 5, 1, 4, "name");
    CHECK_INT(zone_parse(data, whole, &parsed.memory.zone, sizeof(struct zone), why, sizeof why),
              ==, WEIR_EREFUSED);
    CHECK_CONTAINS(why, "do not fit");
    /* Without a place for the sentence, and with a short one. */
    CHECK_INT(zone_parse(data, 10, &parsed.memory.zone, sizeof parsed.memory, NULL, 0), ==,
              WEIR_EREFUSED);
    CHECK_INT(zone_parse(data, 10, &parsed.memory.zone, sizeof parsed.memory, why, 5), ==,
              WEIR_EREFUSED);
    CHECK_STR(why, "zone");
}

TEST(zone_file_with_too_many_transitions_is_refused)
{
    enum { COUNT = ZONE_TRANSITIONS_MAX + 1, BYTES = 44 + COUNT * 5 + 6 + 4 };
    uint8_t *data = calloc(1, BYTES);
    char why[ZONE_WHY_BYTES];
    size_t measured;

    CHECK(data);
    memcpy(data, "TZif", 4);
    data[34] = COUNT >> 8;
    data[35] = COUNT & 255;
    data[39] = 1;
    data[43] = 4;
    CHECK_INT(zone_measure(data, BYTES, &measured, why, sizeof why), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(why, "2001 transitions are more than 2000");
    free(data);
}

TEST(zone_file_that_counts_leap_seconds_is_refused)
{
    uint8_t data[44 + 6 + 4 + 8] = "TZif";
    char why[ZONE_WHY_BYTES];
    size_t measured;

    data[31] = 1;
    data[39] = 1;
    data[43] = 4;
    CHECK_INT(zone_measure(data, sizeof data, &measured, why, sizeof why), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(why, "leap seconds");
    data[31] = 0;
    CHECK_OK(zone_measure(data, sizeof data - 8, &measured, why, sizeof why));
}

TEST(zone_rule_refused_says_where_and_what_was_expected)
{
    static const struct {
        const char *rule, *why;
    } rows[] = {
        {"", "character 1: expected a name"},
        {"AB1", "character 3: expected a name"},
        {"<+1", "character 4: expected a name"},
        {"ABC", "character 4: expected an offset"},
        {"ABC25", "character 4: expected an offset"},
        {"ABC1:60", "expected an offset"},
        {"ABC1DE", "expected a name for summer time"},
        {"ABC1DEF", "character 8: expected when summer time begins"},
        {"ABC1DEF,", "expected when summer time begins"},
        {"ABC1DEF,M13.1.0,M10.1.0", "begins"},
        {"ABC1DEF,M3.6.0,M10.1.0", "begins"},
        {"ABC1DEF,M3.1.7,M10.1.0", "begins"},
        {"ABC1DEF,J0,M10.1.0", "begins"},
        {"ABC1DEF,366,M10.1.0", "begins"},
        {"ABC1DEF,M3.1.0/168,M10.1.0", "begins"},
        {"ABC1DEF,M3.1.0", "expected when summer time ends"},
        {"ABC1DEF,M3.1.0,J1000", "expected when summer time ends"},
        {"ABC1DEF,M3.1.0,J100x", "character 20: expected the end"},
    };
    struct zone zone;
    char why[ZONE_WHY_BYTES];

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        test_note("'%s'", rows[i].rule);
        CHECK_INT(zone_parse_rule(rows[i].rule, strlen(rows[i].rule), &zone, why, sizeof why), ==,
                  WEIR_EREFUSED);
        CHECK_CONTAINS(why, rows[i].why);
    }
}

/* ---- The files of this machine, and what the C library finds in them ---- */

enum { FILE_BYTES_MAX = 64 * 1024 };

static const char *const places[] = {
    "Europe/Berlin",    "America/New_York",  "Australia/Lord_Howe", "Asia/Kolkata",
    "Pacific/Apia",     "America/Sao_Paulo", "Africa/Casablanca",   "Europe/Dublin",
    "America/St_Johns", "Antarctica/Troll",  "Asia/Gaza",           "America/Nuuk",
    "Africa/Monrovia",  "Asia/Kathmandu",    "Pacific/Kiritimati",  "America/Godthab",
    "Europe/Lisbon",    "Atlantic/Azores",   "Asia/Tehran",         "Etc/UTC",
};

/* 0: there is no such file. */
static size_t read_zone(const char *name, uint8_t *data)
{
    char path[128];
    size_t bytes;
    FILE *file;

    (void)snprintf(path, sizeof path, "/usr/share/zoneinfo/%s", name);
    file = fopen(path, "rbe");
    if (!file) return 0;
    bytes = fread(data, 1, FILE_BYTES_MAX, file);
    (void)fclose(file);
    return bytes;
}

static void compare_with_libc(const char *name, const struct zone *zone, uint64_t *seed)
{
    int rounds = TEST_SLOW ? 200 : 2000;

    CHECK_INT(setenv("TZ", name, 1), ==, 0);
    tzset();
    for (int round = 0; round < rounds; round++) {
        /* From 1970 to 2200; each second time within two days of a change. */
        int64_t at_s = (int64_t)chance_below(seed, UINT64_C(7258118400));
        struct zone_segment segment = zone_segment_at(zone, at_s);
        struct zone_instants instants;
        time_t libc_time;
        struct tm tm;

        if (round % 2 && segment.end_s < INT64_MAX) {
            at_s = segment.end_s + (int64_t)chance_below(seed, 4 * DAY_S) - 2 * DAY_S;
        }
        if (at_s < 0) continue;
        libc_time = (time_t)at_s;
        CHECK(localtime_r(&libc_time, &tm));
        if (tm.tm_gmtoff != zone_offset(zone, at_s)) {
            TEST_FAIL("%s at %lld: %d, by the C library %ld", name, (long long)at_s,
                      zone_offset(zone, at_s), tm.tm_gmtoff);
        }
        instants = zone_local(zone, at_s + tm.tm_gmtoff);
        CHECK(instants.count >= 1 && instants.first_s <= at_s && at_s <= instants.last_s);
#ifdef __GLIBC__ /* which looks for a time that shows the same; others guess */
        if (instants.count == 1) CHECK_INT(mktime(&tm), ==, instants.first_s);
#endif
    }
}

TEST(zone_files_of_this_machine_mean_what_the_c_library_finds)
{
    uint64_t seed = chance_seed();
    uint8_t *data = malloc(FILE_BYTES_MAX);
    int found = 0;

    CHECK(data);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        size_t bytes = read_zone(places[i], data), measured;
        char why[ZONE_WHY_BYTES] = "";
        struct zone *zone;

        if (bytes == 0) continue;
        found++;
        test_note("%s WEIR_TEST_SEED=%llu", places[i], (unsigned long long)seed);
        CHECK_OK(zone_measure(data, bytes, &measured, why, sizeof why));
        zone = malloc(measured);
        CHECK(zone);
        if (zone_parse(data, bytes, zone, measured, why, sizeof why) < 0) {
            TEST_FAIL("%s: %s", places[i], why);
        }
        CHECK_INT(zone_bytes(zone), <=, measured);
        check_segments(zone, zones_time("1800-01-01"), zones_time("2200-01-01"));
        compare_with_libc(places[i], zone, &seed);
        free(zone);
    }
    free(data);
    if (found == 0) TEST_SKIP("no files of time zones on this machine (tzdata)");
}

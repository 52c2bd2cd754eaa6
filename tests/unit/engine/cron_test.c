/* cron_test.c - expressions: what they mean, what is refused, and when they run while clocks
 * change. That they equal a scan of every minute: cron_scan_test.c. */
#include "engine/cron.h"

#include <errno.h>
#include <weir/error.h>

#include "engine/civil.h"
#include "unit/engine/zones.h"
#include "unit/policy/chance.h"

static struct cron parse(const char *text)
{
    char why[CRON_WHY_BYTES] = "";
    struct cron cron;

    if (cron_parse(text, strlen(text), &cron, why, sizeof why) < 0) {
        TEST_FAIL("'%s': %s", text, why);
    }
    return cron;
}

static void check_same(const char *a, const char *b)
{
    struct cron left = parse(a), right = parse(b);

    test_note("'%s' and '%s'", a, b);
    CHECK(memcmp(&left, &right, sizeof left) == 0);
}

/* ---- Text ---- */

TEST(cron_fields_are_sets)
{
    struct cron cron = parse("5,10-12,20-30/5,50/4 1-3 15 FEB,dec Mon-Wed");

    CHECK_INT(cron.seconds, ==, 1);
    CHECK_INT(cron.minutes, ==,
              UINT64_C(1) << 5 | UINT64_C(7) << 10 | UINT64_C(1) << 20 | UINT64_C(1) << 25 |
                  UINT64_C(1) << 30 | UINT64_C(1) << 50 | UINT64_C(1) << 54 | UINT64_C(1) << 58);
    CHECK_INT(cron.hours, ==, 0xe);
    CHECK_INT(cron.days, ==, 1u << 15);
    CHECK_INT(cron.months, ==, 1u << 2 | 1u << 12);
    CHECK_INT(cron.weekdays, ==, 0xe);
    CHECK_INT(cron.flags, ==, CRON_BY_WALL | CRON_EITHER_DAY);
    CHECK_INT(cron.every_ms, ==, 0);
    CHECK_INT(sizeof cron, ==, 40);

    cron = parse("* * * * * *");
    CHECK_INT(cron.seconds, ==, (UINT64_C(1) << 60) - 1);
    CHECK_INT(cron.minutes, ==, (UINT64_C(1) << 60) - 1);
    CHECK_INT(cron.hours, ==, 0xffffff);
    CHECK_INT(cron.days, ==, 0xfffffffe);
    CHECK_INT(cron.months, ==, 0x1ffe);
    CHECK_INT(cron.weekdays, ==, 0x7f);
    CHECK_INT(cron.flags, ==, 0);
}

TEST(cron_texts_that_mean_the_same)
{
    check_same("*/15 * * * *", "0,15,30,45 * * * *");
    check_same("0 */15 * * * *", "*/15 * * * *");
    check_same(" \t5   4\t3 2 1  ", "5 4 3 2 1");
    check_same("05 04 03 02 01", "5 4 3 2 1");
    check_same("0 0 * * 0", "0 0 * * 7");
    check_same("0 0 * * sun", "0 0 * * 7");
    check_same("0 0 * * 5-7", "0 0 * * FRI-SUN");
    check_same("0 0 * * 5-0", "0 0 * * 0,5,6");
    check_same("0 0 * * SUN-TUE", "0 0 * * 0-2");
    check_same("0 0 * * 0-7", "0 0 * * 0-6");
    check_same("0 0 * * 1/2", "0 0 * * 1,3,5");
    check_same("0 0 * * 7/2", "0 0 * * 0");
    check_same("0 0 ? * ?", "0 0 * * *");
    check_same("0 0 ? * MON", "0 0 * * 1");
    check_same("0 0 1 1/3 *", "0 0 1 1,4,7,10 *");
    check_same("0 0 31/5 * *", "0 0 31 * *");
    check_same("0 0 1 JAN-DEC *", "0 0 1 1-12 *");
    check_same("0 0-23 * * *", "0 * * * *");
    check_same("0 0,1-11,12-23/1 * * *", "0 * * * *");
    check_same("@hourly", "0 * * * *");
    check_same("@daily", "0 0 * * *");
    check_same("@midnight", "0 0 * * *");
    check_same("@weekly", "0 0 * * 0");
    check_same("@monthly", "0 0 1 * *");
    check_same("@yearly", "0 0 1 1 *");
    check_same(" @Annually ", "0 0 1 1 *");
    check_same("@every 90m", "@every 1h30m");
    check_same("@every 1w", "@every  6d24h");
    check_same("@every 1d1s", "@every 86401s ");
    CHECK_INT(parse("@every 1h2m3s").every_ms, ==, 3723000);
    CHECK_INT(parse("@every 366d").every_ms, ==, INT64_C(366) * 86400000);
}

TEST(cron_hours_say_which_clock_is_followed)
{
    CHECK(!(parse("*/15 * * * *").flags & CRON_BY_WALL));
    CHECK(!(parse("0 */2 * * *").flags & CRON_BY_WALL));
    CHECK(!(parse("0 0-23 * * *").flags & CRON_BY_WALL));
    CHECK(parse("*/15 2 * * *").flags & CRON_BY_WALL);
    CHECK(parse("0 0-22 * * *").flags & CRON_BY_WALL);
    CHECK(parse("0 0-23/2 * * *").flags & CRON_BY_WALL);
}

TEST(cron_refusals_name_the_field_the_place_and_what_was_expected)
{
    static const struct {
        const char *text, *why;
    } rows[] = {
        {"", "expression, character 1: expected 5 fields (minute hour day month weekday) or 6 with "
             "seconds first, found its end"},
        {"   ", "found its end"},
        {"* * * *", "expression, character 8: expected 5 fields"},
        {"* * * * * * *", "expression, character 13: expected the end after 6 fields, found '*'"},
        {"60 * * * *", "minute, character 1: expected 0-59, found '60'"},
        {"60 * * * * *", "second, character 1: expected 0-59, found '60'"},
        {"0 24 * * *", "hour, character 3: expected 0-23, found '24'"},
        {"0 0 0 * *", "day of the month, character 5: expected 1-31, found '0'"},
        {"0 0 32 * *", "day of the month, character 5: expected 1-31, found '32'"},
        {"0 0 * 13 *", "month, character 7: expected 1-12 or JAN-DEC, found '13'"},
        {"0 0 * 0 *", "month, character 7"},
        {"0 0 * JANUARY *", "month, character 7: expected 1-12 or JAN-DEC, found 'JANUARY'"},
        {"0 0 * MON *", "month, character 7"},
        {"0 0 * * 8", "day of the week, character 9: expected 0-7 or SUN-SAT, found '8'"},
        {"0 0 * * FEB", "day of the week, character 9"},
        {"0 0 * * MON-", "day of the week, character 13: expected 0-7 or SUN-SAT, found its end"},
        {"0 0 * * FRI-MON", "a range that does not run backwards, found 'FRI-MON'"},
        {"30-20 * * * *", "minute, character 1: expected a range that does not run backwards"},
        {"*/0 * * * *", "minute, character 3: expected a step of 1-59, found '0'"},
        {"*/60 * * * *", "minute, character 3: expected a step of 1-59, found '60'"},
        {"0 */24 * * *", "hour, character 5: expected a step of 1-23, found '24'"},
        {"0 0 * * */7", "day of the week, character 11: expected a step of 1-6, found '7'"},
        {"*/ * * * *", "minute, character 3: expected a step of 1-59, found its end"},
        {"*/-1 * * * *", "minute, character 3: expected a step"},
        {"1,,2 * * * *", "minute, character 3: expected 0-59, found ','"},
        {"1, * * * *", "minute, character 3: expected 0-59, found its end"},
        {",1 * * * *", "minute, character 1"},
        {"1-2-3 * * * *", "minute, character 4: expected ',', '-', '/' or a blank, found '-3'"},
        {"1/2/3 * * * *", "minute, character 4: expected ',', '-', '/' or a blank"},
        {"*5 * * * *", "minute, character 2"},
        {"-1 * * * *", "minute, character 1: expected 0-59, found '-1'"},
        {"99999999999999999999 * * * *", "minute, character 1: expected 0-59"},
        {"? * * * *", "minute, character 1: expected 0-59, found '?'"},
        {"0 0 L * *", "day of the month, character 5: expected 1-31, found 'L'"},
        {"0 0 15W * *", "day of the month, character 7"},
        {"0 0 * * MON#2", "day of the week, character 12"},
        {"0 0 * * \x01\xff", "found '\?\?'"},
        {"@reboot", "expression, character 1: expected @hourly, @daily, @midnight, @weekly, "
                    "@monthly, @yearly, @annually or @every, found '@reboot'"},
        {"@", "expected @hourly"},
        {"@dailyx", "expected @hourly"},
        {"@daily 5", "expected @hourly"},
        {"@every", "expected @hourly"},
        {"@every x",
         "@every, character 8: expected an interval like 1h30m (up to 366d), found 'x'"},
        {"@every 5",
         "@every, character 9: expected a unit: w d h m s, in this order, found its end"},
        {"@every 5ms",
         "@every, character 10: expected an interval like 1h30m (up to 366d), found 's'"},
        {"@every 5m1h", "@every, character 11: expected a unit"},
        {"@every 5m5m", "@every, character 11: expected a unit"},
        {"@every 5m ", NULL},
        {"@every 1h 5m",
         "@every, character 10: expected an interval like 1h30m (up to 366d), found ' '"},
        {"@every 0s", "@every, character 8: expected an interval from 1s to 366d, found '0s'"},
        {"@every 367d", "@every, character 8: expected an interval from 1s to 366d"},
        {"@every 99999999999999999999s", "@every, character 8: expected an interval"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct cron cron, before;
        char why[CRON_WHY_BYTES] = "";
        int r;

        memset(&cron, 0x5a, sizeof cron);
        before = cron;
        test_note("'%s'", rows[i].text);
        r = cron_parse(rows[i].text, strlen(rows[i].text), &cron, why, sizeof why);
        if (rows[i].why == NULL) {
            CHECK_OK(r);
            continue;
        }
        CHECK_INT(r, ==, WEIR_EREFUSED);
        CHECK_CONTAINS(why, rows[i].why);
        CHECK(memcmp(&cron, &before, sizeof cron) == 0);
    }
}

TEST(cron_text_has_a_longest_length_and_may_hold_any_byte)
{
    char text[CRON_TEXT_MAX + 1], why[CRON_WHY_BYTES], brief[8];
    struct cron cron;

    memset(text, ' ', sizeof text);
    memcpy(text, "* * * * *", 9);
    CHECK_OK(cron_parse(text, CRON_TEXT_MAX, &cron, why, sizeof why));
    CHECK_INT(cron_parse(text, CRON_TEXT_MAX + 1, &cron, why, sizeof why), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(why, "at most 255 characters");
    CHECK_INT(cron_parse("0 0 \0 * *", 9, &cron, why, sizeof why), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(why, "day of the month, character 5");
    CHECK_INT(cron_parse("x", 1, &cron, NULL, 0), ==, WEIR_EREFUSED);
    CHECK_INT(cron_parse("x", 1, &cron, brief, sizeof brief), ==, WEIR_EREFUSED);
    CHECK_STR(brief, "express");
}

/* ---- Times ---- */

enum { RUNS_MAX = 8 };

struct runs_row {
    enum zones_id zone;
    const char *expression;
    const char *after; /* UTC */
    const char *runs[RUNS_MAX];
};

static void check_runs(const struct runs_row *row)
{
    const struct zone *zone = zones_get(row->zone);
    struct cron cron = parse(row->expression);
    int64_t at_ms = zones_time(row->after) * 1000;

    for (int i = 0; i < RUNS_MAX && row->runs[i] != NULL; i++) {
        char text[ZONES_TEXT_BYTES];

        test_note("%s '%s', run %d after %s", zones[row->zone].name, row->expression, i + 1,
                  row->after);
        CHECK_OK(cron_next(&cron, zone, at_ms, &at_ms));
        CHECK_INT(at_ms % 1000, ==, 0);
        CHECK_STR(zones_show(zone, at_ms / 1000, text), row->runs[i]);
    }
}

TEST(cron_runs_on_days_of_the_month_and_of_the_week)
{
    static const struct runs_row rows[] = {
        {UTC_EMPTY,
         "0 12 * * *",
         "2024-02-28 12:00:00",
         {"2024-02-29 12:00:00+00:00", "2024-03-01 12:00:00+00:00"}},
        {UTC_EMPTY,
         "0 0 31 * *",
         "2023-01-31 00:00:00",
         {"2023-03-31 00:00:00+00:00", "2023-05-31 00:00:00+00:00", "2023-07-31 00:00:00+00:00"}},
        {UTC_EMPTY,
         "0 0 29 2 *",
         "2096-02-29 00:00:00",
         {"2104-02-29 00:00:00+00:00", "2108-02-29 00:00:00+00:00"}},
        /* Both fields are restricted: either matches. Friday the 13th comes once. */
        {UTC_EMPTY,
         "0 0 13 * FRI",
         "2024-09-06 00:00:00",
         {"2024-09-13 00:00:00+00:00", "2024-09-20 00:00:00+00:00", "2024-09-27 00:00:00+00:00",
          "2024-10-04 00:00:00+00:00", "2024-10-11 00:00:00+00:00", "2024-10-13 00:00:00+00:00"}},
        /* One begins with a star: both must match. */
        {UTC_EMPTY,
         "0 0 */2 * MON",
         "2024-09-01 00:00:00",
         {"2024-09-09 00:00:00+00:00", "2024-09-23 00:00:00+00:00", "2024-10-07 00:00:00+00:00"}},
        {UTC_EMPTY,
         "0 0 1 * */6",
         "2024-01-01 00:00:00",
         {"2024-06-01 00:00:00+00:00", "2024-09-01 00:00:00+00:00", "2024-12-01 00:00:00+00:00"}},
        {UTC_EMPTY,
         "59 59 23 31 DEC ?",
         "2024-12-31 23:59:58",
         {"2024-12-31 23:59:59+00:00", "2025-12-31 23:59:59+00:00"}},
        {UTC_EMPTY,
         "10,50 30 * * * *",
         "2024-12-31 23:30:10",
         {"2024-12-31 23:30:50+00:00", "2025-01-01 00:30:10+00:00", "2025-01-01 00:30:50+00:00"}},
        {KOLKATA,
         "30 0 * * *",
         "2024-10-05 18:59:59",
         {"2024-10-06 00:30:00+05:30", "2024-10-07 00:30:00+05:30"}},
        {KOLKATA,
         "0 * * * *",
         "2024-10-05 18:00:00",
         {"2024-10-06 00:00:00+05:30", "2024-10-06 01:00:00+05:30"}},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) check_runs(&rows[i]);
}

TEST(cron_time_in_a_gap_runs_once_when_the_gap_ends)
{
    static const struct runs_row rows[] = {
        {BERLIN,
         "30 2 * * *",
         "2025-03-29 00:00:00",
         {"2025-03-29 02:30:00+01:00", "2025-03-30 03:00:00+02:00", "2025-03-31 02:30:00+02:00"}},
        {BERLIN,
         "0,15,30 2 * * *",
         "2025-03-29 02:00:00",
         {"2025-03-30 03:00:00+02:00", "2025-03-31 02:00:00+02:00", "2025-03-31 02:15:00+02:00"}},
        {BERLIN,
         "*/15 2 * * *",
         "2025-03-29 02:00:00",
         {"2025-03-30 03:00:00+02:00", "2025-03-31 02:00:00+02:00", "2025-03-31 02:15:00+02:00"}},
        /* The time at which the gap ends is one of the expression's own: once. */
        {BERLIN,
         "0 2,3 * * *",
         "2025-03-29 03:00:00",
         {"2025-03-30 03:00:00+02:00", "2025-03-31 02:00:00+02:00", "2025-03-31 03:00:00+02:00"}},
        {BERLIN,
         "0 30 2 30 3 *",
         "2025-01-01 00:00:00",
         {"2025-03-30 03:00:00+02:00", "2026-03-30 02:30:00+02:00"}},
        {NEW_YORK,
         "15 2 * * *",
         "2024-03-09 08:00:00",
         {"2024-03-10 03:00:00-04:00", "2024-03-11 02:15:00-04:00"}},
        {LORD_HOWE,
         "15 2 * * *",
         "2024-10-05 00:00:00",
         {"2024-10-06 02:30:00+11:00", "2024-10-07 02:15:00+11:00"}},
        {LORD_HOWE,
         "15,45 2 * * *",
         "2024-10-05 00:00:00",
         {"2024-10-06 02:30:00+11:00", "2024-10-06 02:45:00+11:00", "2024-10-07 02:15:00+11:00"}},
        /* Midnight itself is left out. */
        {SAO_PAULO,
         "@daily",
         "2018-11-03 12:00:00",
         {"2018-11-04 01:00:00-02:00", "2018-11-05 00:00:00-02:00"}},
        {CASABLANCA,
         "30 2 * * *",
         "2025-04-05 12:00:00",
         {"2025-04-06 03:00:00+01:00", "2025-04-07 02:30:00+01:00"}},
        /* A whole day is left out: a Friday. */
        {APIA,
         "0 9 * * *",
         "2011-12-29 00:00:00",
         {"2011-12-29 09:00:00-10:00", "2011-12-31 00:00:00+14:00", "2011-12-31 09:00:00+14:00"}},
        {APIA,
         "0 9 * * FRI",
         "2011-12-24 00:00:00",
         {"2011-12-31 00:00:00+14:00", "2012-01-06 09:00:00+14:00"}},
        {APIA,
         "0 0 30 * *",
         "2011-12-01 00:00:00",
         {"2011-12-31 00:00:00+14:00", "2012-01-30 00:00:00+14:00"}},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) check_runs(&rows[i]);
}

TEST(cron_time_in_an_overlap_runs_at_its_first_occurrence_only)
{
    static const struct runs_row rows[] = {
        {BERLIN,
         "30 2 * * *",
         "2025-10-25 12:00:00",
         {"2025-10-26 02:30:00+02:00", "2025-10-27 02:30:00+01:00"}},
        {BERLIN,
         "0,30 2,3 * * *",
         "2025-10-25 12:00:00",
         {"2025-10-26 02:00:00+02:00", "2025-10-26 02:30:00+02:00", "2025-10-26 03:00:00+01:00"}},
        /* Asked between the two occurrences, and in the second. */
        {BERLIN, "30 2 * * *", "2025-10-26 00:45:00", {"2025-10-27 02:30:00+01:00"}},
        {BERLIN, "30 2 * * *", "2025-10-26 01:15:00", {"2025-10-27 02:30:00+01:00"}},
        {BERLIN, "45 2,5 * * *", "2025-10-26 01:15:00", {"2025-10-26 05:45:00+01:00"}},
        {NEW_YORK,
         "30 1 * * SUN",
         "2024-11-02 12:00:00",
         {"2024-11-03 01:30:00-04:00", "2024-11-10 01:30:00-05:00"}},
        {LORD_HOWE,
         "45 1 * * *",
         "2024-04-06 12:00:00",
         {"2024-04-07 01:45:00+11:00", "2024-04-08 01:45:00+10:30"}},
        /* The day before comes again for an hour: not its runs, and midnight is not new. */
        {SAO_PAULO,
         "30 23 * * *",
         "2018-02-17 12:00:00",
         {"2018-02-17 23:30:00-02:00", "2018-02-18 23:30:00-03:00"}},
        {SAO_PAULO,
         "@daily",
         "2018-02-17 12:00:00",
         {"2018-02-18 00:00:00-03:00", "2018-02-19 00:00:00-03:00"}},
        {CASABLANCA,
         "30 2 * * *",
         "2025-02-22 12:00:00",
         {"2025-02-23 02:30:00+01:00", "2025-02-24 02:30:00+00:00"}},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) check_runs(&rows[i]);
}

TEST(cron_of_every_hour_follows_real_time)
{
    static const struct runs_row rows[] = {
        {BERLIN,
         "*/30 * * * *",
         "2025-03-30 00:15:00",
         {"2025-03-30 01:30:00+01:00", "2025-03-30 03:00:00+02:00", "2025-03-30 03:30:00+02:00"}},
        {BERLIN,
         "*/30 * * * *",
         "2025-10-26 00:15:00",
         {"2025-10-26 02:30:00+02:00", "2025-10-26 02:00:00+01:00", "2025-10-26 02:30:00+01:00",
          "2025-10-26 03:00:00+01:00"}},
        {BERLIN,
         "@hourly",
         "2025-03-29 23:30:00",
         {"2025-03-30 01:00:00+01:00", "2025-03-30 03:00:00+02:00"}},
        /* Every two hours by the wall, and nothing instead of 02:00. */
        {BERLIN,
         "0 */2 * * *",
         "2025-03-29 22:30:00",
         {"2025-03-30 00:00:00+01:00", "2025-03-30 04:00:00+02:00"}},
        {LORD_HOWE,
         "*/15 * * * *",
         "2024-04-06 14:40:00",
         {"2024-04-07 01:45:00+11:00", "2024-04-07 01:30:00+10:30", "2024-04-07 01:45:00+10:30",
          "2024-04-07 02:00:00+10:30"}},
        {APIA,
         "30 * * * *",
         "2011-12-30 09:00:00",
         {"2011-12-29 23:30:00-10:00", "2011-12-31 00:30:00+14:00"}},
        {SAO_PAULO,
         "0 * * * 6",
         "2018-02-18 00:30:00",
         {"2018-02-17 23:00:00-02:00", "2018-02-17 23:00:00-03:00", "2018-02-24 00:00:00-03:00"}},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) check_runs(&rows[i]);
}

TEST(cron_intervals_are_multiples_since_1970_in_any_zone)
{
    struct cron cron = parse("@every 90m");
    int64_t at_ms;

    for (int id = 0; id < ZONES; id++) {
        const struct zone *zone = zones_get((enum zones_id)id);

        CHECK_OK(cron_next(&cron, zone, -1, &at_ms));
        CHECK_INT(at_ms, ==, 0);
        CHECK_OK(cron_next(&cron, zone, 0, &at_ms));
        CHECK_INT(at_ms, ==, 5400000);
        CHECK_OK(cron_next(&cron, zone, 5399999, &at_ms));
        CHECK_INT(at_ms, ==, 5400000);
        CHECK_OK(cron_next(&cron, zone, zones_time("2025-03-30 01:00:01") * 1000, &at_ms));
        CHECK_INT(at_ms, ==, zones_time("2025-03-30 01:30:00") * 1000);
    }
}

TEST(cron_that_never_comes_says_so)
{
    static const char *const never[] = {"30 2 30 2 *", "0 0 31 2,4,6,9,11 *", "0 * 30 2 *",
                                        "0 0 31 4 */2"};

    for (size_t i = 0; i < sizeof never / sizeof never[0]; i++) {
        struct cron cron = parse(never[i]);

        for (int id = 0; id < ZONES; id++) {
            int64_t at_ms = 4711;
            test_note("%s '%s'", zones[id].name, never[i]);
            CHECK_INT(cron_next(&cron, zones_get((enum zones_id)id), 0, &at_ms), ==, -ENOENT);
            CHECK_INT(at_ms, ==, 4711);
        }
    }
}

TEST(cron_times_lie_between_1970_and_the_year_10000)
{
    struct cron cron = parse("* * * * * *"), yearly = parse("@yearly"), every = parse("@every 7d");
    int64_t at_ms = 4711;

    CHECK_OK(cron_next(&cron, zone_utc(), INT64_MIN, &at_ms));
    CHECK_INT(at_ms, ==, 0);
    CHECK_OK(cron_next(&cron, zone_utc(), -1, &at_ms));
    CHECK_INT(at_ms, ==, 0);
    CHECK_OK(cron_next(&cron, zone_utc(), 0, &at_ms));
    CHECK_INT(at_ms, ==, 1000);
    CHECK_OK(cron_next(&cron, zone_utc(), 999, &at_ms));
    CHECK_INT(at_ms, ==, 1000);
    CHECK_OK(cron_next(&cron, zone_utc(), CRON_LAST_MS - 1, &at_ms));
    CHECK_INT(at_ms, ==, CRON_LAST_MS);
    CHECK_INT(CRON_LAST_MS, ==, zones_time("9999-12-31 23:59:59") * 1000);
    CHECK_INT(cron_next(&cron, zone_utc(), CRON_LAST_MS, &at_ms), ==, -ENOENT);
    CHECK_INT(cron_next(&cron, zone_utc(), INT64_MAX, &at_ms), ==, -ENOENT);
    CHECK_INT(cron_next(&every, zone_utc(), CRON_LAST_MS - 1, &at_ms), ==, -ENOENT);
    /* East of UTC the year 10000 begins before it ends here. */
    CHECK_INT(cron_next(&yearly, zones_get(NEW_YORK), zones_time("9999-06-01") * 1000, &at_ms), ==,
              -ENOENT);
    CHECK_OK(cron_next(&yearly, zones_get(KOLKATA), zones_time("9999-06-01") * 1000, &at_ms));
    CHECK_INT(at_ms, ==, zones_time("9999-12-31 18:30:00") * 1000);
}

TEST(cron_finds_a_leap_day_on_a_weekday_over_forty_years)
{
    static const int64_t years[] = {1970, 1996, 2068, 2076, 2084, 2088, 2180, 2284, 3080, 9900};

    for (int weekday = 0; weekday < 7; weekday++) {
        /* The field begins with a star, so the day must match both; all hours, or one. */
        for (int by_wall = 0; by_wall < 2; by_wall++) {
            struct cron cron = parse(by_wall ? "0 0 29 2 *" : "0 * 29 2 *");

            cron.weekdays = (uint8_t)(1u << weekday);
            for (size_t i = 0; i < sizeof years / sizeof years[0]; i++) {
                int64_t at_ms = 0, year = years[i];
                int r = cron_next(&cron, zone_utc(), civil_to_days(year, 1, 1) * CIVIL_DAY_S * 1000,
                                  &at_ms);

                while (!civil_leap(year) || civil_weekday(civil_to_days(year, 2, 29)) != weekday) {
                    year++;
                }
                CHECK_INT(year - years[i], <=, 40);
                CHECK_OK(r);
                CHECK_INT(at_ms / 1000, ==, civil_to_days(year, 2, 29) * CIVIL_DAY_S);
            }
        }
    }
}

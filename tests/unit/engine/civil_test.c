/* civil_test.c - dates and days: as a loop counts them, day after day. */
#include "engine/civil.h"

#include "unit/policy/chance.h"

/* A calendar that only knows how to go to the next day. */
struct counted {
    int64_t year;
    int month, day, weekday;
};

static int naive_month_days(int64_t year, int month)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;

    return month == 2 && leap ? 29 : days[month - 1];
}

static void next_day(struct counted *at)
{
    at->weekday = (at->weekday + 1) % 7;
    if (++at->day <= naive_month_days(at->year, at->month)) return;
    at->day = 1;
    if (++at->month <= 12) return;
    at->month = 1;
    at->year++;
}

TEST(civil_dates_equal_a_count_of_every_day_from_1600_to_2800)
{
    struct counted at = {.year = 1600, .month = 1, .day = 1, .weekday = 6}; /* a Saturday */
    int64_t days = civil_to_days(1600, 1, 1);

    CHECK_INT(days, ==, -135140);
    for (; at.year < 2800; next_day(&at), days++) {
        struct civil_date date = civil_from_days(days);

        if (date.year != at.year || date.month != at.month || date.day != at.day ||
            civil_weekday(days) != at.weekday || civil_to_days(at.year, at.month, at.day) != days ||
            civil_month_days(at.year, at.month) != naive_month_days(at.year, at.month)) {
            TEST_FAIL("day %lld is %lld-%02d-%02d, not %lld-%02d-%02d", (long long)days,
                      (long long)at.year, at.month, at.day, (long long)date.year, date.month,
                      date.day);
        }
    }
}

TEST(civil_dates_that_everybody_knows)
{
    CHECK_INT(civil_to_days(1970, 1, 1), ==, 0);
    CHECK_INT(civil_weekday(0), ==, 4);
    CHECK_INT(civil_to_days(1969, 12, 31), ==, -1);
    CHECK_INT(civil_weekday(-1), ==, 3);
    CHECK_INT(civil_to_days(2000, 2, 29), ==, 11016);
    CHECK_INT(civil_to_days(2038, 1, 19), ==, INT32_MAX / CIVIL_DAY_S);
    CHECK_INT(civil_to_days(9999, 12, 31), ==, 2932896);
    CHECK_INT(civil_to_days(0, 3, 1), ==, -CIVIL_EPOCH_DAYS);
    CHECK_INT(civil_from_days(-CIVIL_EPOCH_DAYS - 1).day, ==, 29); /* the year 0 is a leap year */
    CHECK(civil_leap(2000) && civil_leap(2024) && !civil_leap(1900) && !civil_leap(2023));
}

TEST(civil_dates_go_there_and_back_far_from_today)
{
    uint64_t seed = chance_seed();

    for (int round = 0; round < 100000; round++) {
        int64_t year = (int64_t)chance_below(&seed, 2 * CIVIL_YEAR_MAX) - CIVIL_YEAR_MAX;
        int month = 1 + (int)chance_below(&seed, 12);
        int day = 1 + (int)chance_below(&seed, (uint64_t)civil_month_days(year, month));
        int64_t days = civil_to_days(year, month, day);
        struct civil_date date = civil_from_days(days);

        CHECK_INT(date.year, ==, year);
        CHECK_INT(date.month, ==, month);
        CHECK_INT(date.day, ==, day);
        CHECK_INT(civil_weekday(days), ==, civil_weekday(days + 7 * 1000003));
        /* 400 years later the calendar is the same, on the same weekdays. */
        CHECK_INT(civil_to_days(year + 400, month, day), ==, days + CIVIL_CYCLE_DAYS);
    }
}

TEST(civil_division_rounds_towards_the_past)
{
    for (int64_t value = -50; value <= 50; value++) {
        for (int64_t by = 1; by <= 9; by++) {
            int64_t quotient = civil_divide(value, by), rest = civil_remainder(value, by);

            CHECK_INT(quotient * by + rest, ==, value);
            CHECK(rest >= 0 && rest < by);
        }
    }
}

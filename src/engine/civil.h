/* civil.h - dates of the Gregorian calendar as numbers of days, and back.
 *
 * The calendar is proleptic: its rules hold before 1582 too. Day 0 is 1970-01-01, a Thursday.
 *
 * Invariants: a year begins in March inside these functions, so that a leap day is the last day of
 * its year. Years go from -CIVIL_YEAR_MAX to CIVIL_YEAR_MAX, within which nothing overflows.
 * Threads: any. No state.
 */
#ifndef WEIR_ENGINE_CIVIL_H
#define WEIR_ENGINE_CIVIL_H

#include <stdbool.h>
#include <stdint.h>

#define CIVIL_YEAR_MAX INT64_C(100000000000)
#define CIVIL_DAY_S INT64_C(86400)

/* The 400 years after which weekdays and leap years come again. */
#define CIVIL_CYCLE_YEARS INT64_C(400)
#define CIVIL_CYCLE_DAYS INT64_C(146097)
/* From 0000-03-01, where the cycles are counted from, to 1970-01-01. */
#define CIVIL_EPOCH_DAYS INT64_C(719468)

struct civil_date {
    int64_t year;
    int month; /* 1 to 12 */
    int day;   /* 1 to 31 */
};

/* Rounded towards the past, and what is left: never negative. `by` is positive. */
static inline int64_t civil_divide(int64_t value, int64_t by)
{
    return value / by - (value % by < 0);
}

static inline int64_t civil_remainder(int64_t value, int64_t by)
{
    int64_t rest = value % by;
    return rest < 0 ? rest + by : rest;
}

static inline bool civil_leap(int64_t year)
{
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

static inline int civil_month_days(int64_t year, int month)
{
    if (month == 2) return civil_leap(year) ? 29 : 28;
    return 30 + ((month + month / 8) & 1); /* from August on the long months are the even ones */
}

/* Days from March 1st to the first of the month that comes so many months later (0 to 11). */
static inline int64_t civil_days_before(int64_t months)
{
    return (153 * months + 2) / 5; /* 31, 30, 31, 30, 31 days, again and again */
}

static inline int64_t civil_to_days(int64_t year, int month, int day)
{
    int64_t months = month > 2 ? month - 3 : month + 9;
    int64_t march_year = year - (month <= 2);
    int64_t cycle = civil_divide(march_year, CIVIL_CYCLE_YEARS);
    int64_t year_of_cycle = march_year - cycle * CIVIL_CYCLE_YEARS;
    int64_t day_of_cycle = year_of_cycle * 365 + year_of_cycle / 4 - year_of_cycle / 100 +
                           civil_days_before(months) + day - 1;

    return cycle * CIVIL_CYCLE_DAYS + day_of_cycle - CIVIL_EPOCH_DAYS;
}

static inline struct civil_date civil_from_days(int64_t days)
{
    int64_t since = days + CIVIL_EPOCH_DAYS;
    int64_t cycle = civil_divide(since, CIVIL_CYCLE_DAYS);
    int64_t left = since - cycle * CIVIL_CYCLE_DAYS;
    /* The last century of a cycle, and the last year of four, are a day longer: not one more. */
    int64_t century = left / 36524 - left / 146096;
    int64_t four, year, months;

    left -= century * 36524;
    four = left / 1461;
    left -= four * 1461;
    year = left / 365 - left / 1460;
    left -= year * 365;
    months = (5 * left + 2) / 153;
    left -= civil_days_before(months);
    year += cycle * CIVIL_CYCLE_YEARS + century * 100 + four * 4;
    return (struct civil_date){
        .year = year + (months >= 10),
        .month = (int)(months < 10 ? months + 3 : months - 9),
        .day = (int)left + 1,
    };
}

/* 0 is Sunday. */
static inline int civil_weekday(int64_t days)
{
    return (int)civil_remainder(days + 4, 7);
}

#endif

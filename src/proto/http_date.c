/* http_date.c - the calendar between 1970 and 9999. */
#include "proto/http_date.h"

#include <assert.h>
#include <stdio.h>
#include <weir/error.h>

static const char weekdays[] = "SunMonTueWedThuFriSat";
static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";

enum { DAY_S = 86400, YEAR_FIRST = 1970, YEAR_LAST = 9999, THURSDAY = 4 };

static bool is_leap(int year)
{
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

static int days_of_month(int year, int month)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};

    return days[month] + (month == 1 && is_leap(year));
}

/* Days from 1970 to the first of January of a year. */
static int64_t days_before_year(int year)
{
    int before = year - 1;

    return 365 * (int64_t)(year - YEAR_FIRST) + (before / 4 - before / 100 + before / 400) -
           (1969 / 4 - 1969 / 100 + 1969 / 400);
}

void http_date_format(int64_t time_s, char ret_text[HTTP_DATE_BYTES])
{
    int64_t days = time_s / DAY_S;
    int of_day = (int)(time_s % DAY_S), year, month = 0, weekday;

    assert(time_s >= 0 && days < days_before_year(YEAR_LAST + 1));
    weekday = (int)((days + THURSDAY) % 7);
    year = YEAR_FIRST + (int)(days / 366);
    while (days_before_year(year + 1) <= days) year++;
    days -= days_before_year(year);
    while (days >= days_of_month(year, month)) days -= days_of_month(year, month++);
    (void)snprintf(ret_text, HTTP_DATE_BYTES, "%.3s, %02u %.3s %04u %02u:%02u:%02u GMT",
                   weekdays + (size_t)weekday * 3, (unsigned)(days + 1) % 100,
                   months + (size_t)month * 3, (unsigned)year % 10000,
                   (unsigned)(of_day / 3600) % 100, (unsigned)(of_day / 60 % 60),
                   (unsigned)(of_day % 60));
}

/* The number of so many digits, or -1. */
static int number_at(struct bytes text, size_t at, size_t digits)
{
    int number = 0;

    for (size_t i = at; i < at + digits; i++) {
        if (!is_digit(text.at[i])) return -1;
        number = number * 10 + (text.at[i] - '0');
    }
    return number;
}

static int month_at(struct bytes text, size_t at)
{
    for (int month = 0; month < 12; month++) {
        if (memcmp(text.at + at, months + (size_t)month * 3, 3) == 0) return month;
    }
    return -1;
}

int http_date_parse(struct bytes text, int64_t *ret_time_s)
{
    int day, month, year, hour, minute, second;
    int64_t time_s;
    char again[HTTP_DATE_BYTES];

    if (text.count != HTTP_DATE_BYTES - 1) return WEIR_EREFUSED;
    day = number_at(text, 5, 2);
    month = month_at(text, 8);
    year = number_at(text, 12, 4);
    hour = number_at(text, 17, 2);
    minute = number_at(text, 20, 2);
    second = number_at(text, 23, 2);
    if (year < YEAR_FIRST || month < 0 || day < 1 || day > days_of_month(year, month) || hour < 0 ||
        hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 59) {
        return WEIR_EREFUSED;
    }
    time_s = days_before_year(year) + day - 1;
    for (int i = 0; i < month; i++) time_s += days_of_month(year, i);
    time_s = time_s * DAY_S + hour * 3600 + minute * 60 + second;
    /* The weekday and all that stands between the numbers. */
    http_date_format(time_s, again);
    if (memcmp(again, text.at, text.count) != 0) return WEIR_EREFUSED;
    *ret_time_s = time_s;
    return 0;
}

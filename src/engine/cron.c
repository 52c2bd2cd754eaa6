/* cron.c - the next time of an expression. How one is parsed: cron_parse.c.
 *
 * Times here are seconds. Dates and times of the day are looked for on the wall, where they do not
 * depend on the zone (next_local); the zone then says when the wall shows them.
 */
#include "engine/cron.h"

#include <errno.h>

#include "engine/civil.h"

#define NONE INT64_MIN

/* The lowest value of the set that is `from` or more, or -1. */
static int next_bit(uint64_t set, int from)
{
    if (from > 63) return -1;
    set &= ~UINT64_C(0) << from;
    return set == 0 ? -1 : __builtin_ctzll(set);
}

/* The first second of the day that matches and is not before second_of_day, or -1. */
static int next_of_day(const struct cron *cron, int second_of_day)
{
    int hour_now = second_of_day / 3600, minute_now = second_of_day / 60 % 60;
    int hour = next_bit(cron->hours, hour_now);
    int minute = 0, second;

    if (hour < 0) return -1;
    if (hour == hour_now) {
        minute = next_bit(cron->minutes, minute_now);
        if (minute == minute_now) {
            second = next_bit(cron->seconds, second_of_day % 60);
            if (second >= 0) return (hour * 60 + minute) * 60 + second;
            minute = next_bit(cron->minutes, minute_now + 1);
        }
        if (minute < 0) hour = next_bit(cron->hours, hour_now + 1);
        if (hour < 0) return -1;
    }
    if (hour != hour_now) minute = next_bit(cron->minutes, 0);
    return (hour * 60 + minute) * 60 + next_bit(cron->seconds, 0);
}

/* The days of a month that match, bit 1 for its first. */
static uint32_t days_of_month(const struct cron *cron, int64_t year, int month)
{
    int weekday = civil_weekday(civil_to_days(year, month, 1));
    uint64_t by_week = 0;
    uint32_t all = (uint32_t)((UINT64_C(2) << civil_month_days(year, month)) - 2);

    for (int week = 0; week < 6; week++) { by_week |= (uint64_t)cron->weekdays << (week * 7); }
    by_week = by_week >> weekday << 1;
    if (cron->flags & CRON_EITHER_DAY) return all & (cron->days | (uint32_t)by_week);
    return all & cron->days & (uint32_t)by_week;
}

/* The first day that matches and is not before `day`, or NONE. */
static int64_t next_day(const struct cron *cron, int64_t day)
{
    struct civil_date date = civil_from_days(day);
    int64_t year_last = date.year + CRON_YEARS_MAX;

    while (date.year <= year_last) {
        int month = next_bit(cron->months, date.month), found;

        if (month != date.month) date.day = 1;
        if (month < 0) {
            date.year++;
            date.month = 1;
            continue;
        }
        found = next_bit(days_of_month(cron, date.year, month), date.day);
        if (found >= 0) return civil_to_days(date.year, month, found);
        date.month = month + 1;
        date.day = 1;
    }
    return NONE;
}

/* The first time on the wall that matches and is not before local_s, or NONE. */
static int64_t next_local(const struct cron *cron, int64_t local_s)
{
    int64_t today = civil_divide(local_s, CIVIL_DAY_S);
    int64_t day = next_day(cron, today);
    int second;

    if (day == NONE) return NONE;
    if (day == today) {
        second = next_of_day(cron, (int)(local_s - today * CIVIL_DAY_S));
        if (second >= 0) return day * CIVIL_DAY_S + second;
        day = next_day(cron, today + 1);
        if (day == NONE) return NONE;
    }
    return day * CIVIL_DAY_S + next_of_day(cron, 0);
}

/* What the wall has shown is done with; the next time after that comes when it is reached. */
static int64_t next_by_wall(const struct cron *cron, const struct zone *zone, int64_t after_s)
{
    int64_t local_s = next_local(cron, zone_shown(zone, after_s) + 1);

    return local_s == NONE ? NONE : zone_reach(zone, local_s);
}

/* Segment after segment, each of which has one offset. No time that matches comes earlier than the
 * largest offset before it is shown: that takes most of the way at once. */
static int64_t next_by_real_time(const struct cron *cron, const struct zone *zone, int64_t after_s)
{
    int64_t from_s = after_s + 1;

    for (;;) {
        int64_t local_s = next_local(cron, from_s - ZONE_OFFSET_MAX_S);
        struct zone_segment segment;

        if (local_s == NONE) return NONE;
        if (from_s < local_s - ZONE_OFFSET_MAX_S) from_s = local_s - ZONE_OFFSET_MAX_S;
        segment = zone_segment_at(zone, from_s);
        local_s = next_local(cron, from_s + segment.offset_s);
        if (local_s != NONE && local_s - segment.offset_s < segment.end_s) {
            return local_s - segment.offset_s;
        }
        if (segment.end_s > CRON_LAST_MS / 1000) return NONE;
        from_s = segment.end_s;
    }
}

int cron_next(const struct cron *cron, const struct zone *zone, int64_t after_ms, int64_t *ret_ms)
{
    int64_t next_s;

    if (after_ms < -1) after_ms = -1;
    if (after_ms >= CRON_LAST_MS) return -ENOENT;
    if (cron->every_ms > 0) {
        int64_t next_ms = (civil_divide(after_ms, cron->every_ms) + 1) * cron->every_ms;

        if (next_ms > CRON_LAST_MS) return -ENOENT;
        *ret_ms = next_ms;
        return 0;
    }
    next_s = civil_divide(after_ms, 1000);
    next_s = cron->flags & CRON_BY_WALL ? next_by_wall(cron, zone, next_s)
                                        : next_by_real_time(cron, zone, next_s);
    if (next_s == NONE || next_s > CRON_LAST_MS / 1000) return -ENOENT;
    *ret_ms = next_s * 1000;
    return 0;
}

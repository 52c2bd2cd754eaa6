/* zone.c - which offset holds when, and when the wall shows a time. How a zone is made:
 * zone_parse.c. */
#include "engine/zone.h"

#include "engine/civil.h"

/* Changes of five years, two each. A change is moved by up to a week from its day, so the last
 * one before a time, and the next one after it, can belong to the year but one. */
enum { YEARS_AROUND = 2, CHANGES = 2 * (2 * YEARS_AROUND + 1) };

static int64_t clamp(int64_t time_s, int64_t max_s)
{
    if (time_s > max_s) return max_s;
    return time_s < -max_s ? -max_s : time_s;
}

/* Midnight of the day in that year, in days. */
static int64_t change_day(const struct zone_change *change, int64_t year)
{
    int64_t first;
    int day;

    switch ((enum zone_day_kind)change->kind) {
    case ZONE_DAY_JULIAN:
        return civil_to_days(year, 1, 1) + change->day - 1 + (change->day > 59 && civil_leap(year));
    case ZONE_DAY_OF_YEAR: return civil_to_days(year, 1, 1) + change->day;
    case ZONE_DAY_OF_MONTH: break;
    }
    first = civil_to_days(year, change->month, 1);
    day = (change->weekday - civil_weekday(first) + 7) % 7 + 7 * (change->week - 1);
    if (day >= civil_month_days(year, change->month)) day -= 7;
    return first + day;
}

/* The wall shows the time of the change by the offset that ends with it. */
static int64_t change_s(const struct zone_change *change, int64_t year, int32_t offset_s)
{
    return change_day(change, year) * CIVIL_DAY_S + change->time_s - offset_s;
}

/* The changes of the years around one, ascending. Of two at the same time the one of the later
 * year comes last and so is the one that holds: that is how a zone with summer time all year is
 * written. */
static void changes_around(const struct zone_rule *rule, int64_t year,
                           struct zone_transition changes[static CHANGES])
{
    int count = 0;

    for (int64_t y = year - YEARS_AROUND; y <= year + YEARS_AROUND; y++) {
        struct zone_transition of_year[] = {
            {.at_s = change_s(&rule->begin, y, rule->standard_s), .offset_s = rule->summer_s},
            {.at_s = change_s(&rule->end, y, rule->summer_s), .offset_s = rule->standard_s},
        };

        for (int i = 0; i < 2; i++) {
            int at = count++;
            for (; at > 0 && changes[at - 1].at_s > of_year[i].at_s; at--) {
                changes[at] = changes[at - 1];
            }
            changes[at] = of_year[i];
        }
    }
}

static struct zone_segment rule_segment(const struct zone_rule *rule, int64_t utc_s)
{
    struct zone_transition changes[CHANGES] = {0};
    struct zone_segment segment = {rule->from_s, INT64_MAX, rule->standard_s};
    int next = 0;

    if (rule->kind != ZONE_RULE_SUMMER) return segment;
    changes_around(rule, civil_from_days(civil_divide(utc_s, CIVIL_DAY_S)).year, changes);
    while (next < CHANGES && changes[next].at_s <= utc_s) next++;
    if (next < CHANGES) segment.end_s = changes[next].at_s;
    if (next > 0) {
        segment.offset_s = changes[next - 1].offset_s;
        if (segment.start_s < changes[next - 1].at_s) segment.start_s = changes[next - 1].at_s;
    }
    return segment;
}

/* How many of the transitions are not later than a time. */
static uint32_t transitions_by(const struct zone *zone, int64_t utc_s)
{
    uint32_t low = 0, high = zone->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (zone->transitions[middle].at_s <= utc_s) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

struct zone_segment zone_segment_at(const struct zone *zone, int64_t utc_s)
{
    struct zone_segment segment = {INT64_MIN, INT64_MAX, zone->first_offset_s};
    uint32_t passed;

    /* Twice as far as others go, which look at the segments around their time too. */
    utc_s = clamp(utc_s, 2 * ZONE_TIME_MAX_S);
    if (zone->rule.kind != ZONE_RULE_NONE) {
        if (utc_s >= zone->rule.from_s) return rule_segment(&zone->rule, utc_s);
        segment.end_s = zone->rule.from_s;
    }
    passed = transitions_by(zone, utc_s);
    if (passed < zone->count && zone->transitions[passed].at_s < segment.end_s) {
        segment.end_s = zone->transitions[passed].at_s;
    }
    if (passed > 0) {
        segment.start_s = zone->transitions[passed - 1].at_s;
        segment.offset_s = zone->transitions[passed - 1].offset_s;
    }
    return segment;
}

int32_t zone_offset(const struct zone *zone, int64_t utc_s)
{
    return zone_segment_at(zone, utc_s).offset_s;
}

/* No offset takes a time further than ZONE_OFFSET_MAX_S, so only the segments that near can show
 * it. */
struct zone_instants zone_local(const struct zone *zone, int64_t local_s)
{
    struct zone_instants instants = {0};
    struct zone_segment segment;

    local_s = clamp(local_s, ZONE_TIME_MAX_S);
    segment = zone_segment_at(zone, local_s - ZONE_OFFSET_MAX_S);
    for (;;) {
        int64_t at_s = local_s - segment.offset_s;

        if (at_s >= segment.start_s && at_s < segment.end_s) {
            if (instants.count++ == 0) instants.first_s = at_s;
            instants.last_s = at_s;
        }
        if (segment.end_s > local_s + ZONE_OFFSET_MAX_S) break;
        segment = zone_segment_at(zone, segment.end_s);
    }
    if (instants.count == 0) instants.first_s = instants.last_s = zone_reach(zone, local_s);
    return instants;
}

int64_t zone_reach(const struct zone *zone, int64_t local_s)
{
    struct zone_segment segment;

    local_s = clamp(local_s, ZONE_TIME_MAX_S);
    segment = zone_segment_at(zone, local_s - ZONE_OFFSET_MAX_S);
    for (;;) {
        int64_t at_s = local_s - segment.offset_s;

        if (at_s < segment.start_s) at_s = segment.start_s;
        if (at_s < segment.end_s) return at_s;
        segment = zone_segment_at(zone, segment.end_s);
    }
}

int64_t zone_shown(const struct zone *zone, int64_t utc_s)
{
    struct zone_segment segment;
    int64_t shown_s;

    utc_s = clamp(utc_s, ZONE_TIME_MAX_S);
    segment = zone_segment_at(zone, utc_s);
    shown_s = utc_s + segment.offset_s;
    /* What came more than two such offsets ago showed less than is shown now. */
    while (segment.start_s > utc_s - 2 * ZONE_OFFSET_MAX_S) {
        int64_t last_s = segment.start_s - 1;

        segment = zone_segment_at(zone, last_s);
        if (shown_s < last_s + segment.offset_s) shown_s = last_s + segment.offset_s;
    }
    return shown_s;
}

const struct zone *zone_utc(void)
{
    static const struct zone utc = {.rule = {.from_s = INT64_MIN, .kind = ZONE_RULE_FIXED}};
    return &utc;
}

size_t zone_bytes(const struct zone *zone)
{
    return sizeof *zone + zone->count * sizeof zone->transitions[0];
}

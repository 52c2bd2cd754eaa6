/* cron_scan_test.c - cron_next against a scan that looks at every minute, or every second, and
 * reads the text of the expression in its own way. */
#include <stdio.h>
#include <stdlib.h>
#include <weir/error.h>

#include "engine/civil.h"
#include "engine/cron.h"
#include "unit/engine/zones.h"
#include "unit/policy/chance.h"

#define DAY_S CIVIL_DAY_S
enum { VALUES = 60, FIELDS = 6, FIELD_BYTES = 128 };

static const struct {
    int min, max;
} limits[FIELDS] = {{0, 59}, {0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 7}};

/* ---- Expressions at random ---- */

static int random_value(uint64_t *seed, int field)
{
    int count = limits[field].max - limits[field].min + 1;

    return limits[field].min + (int)chance_below(seed, (uint64_t)count);
}

static void random_part(uint64_t *seed, int field, char *text, size_t bytes)
{
    int a = random_value(seed, field), b = random_value(seed, field);
    int low = a < b ? a : b, high = a < b ? b : a;
    int steps = limits[field].max - limits[field].min - 1;
    int step = 1 + (int)chance_below(seed, (uint64_t)steps);

    switch (chance_below(seed, 8)) {
    case 0: (void)snprintf(text, bytes, "*/%d", step); break;
    case 1: (void)snprintf(text, bytes, "%d-%d", low, high); break;
    case 2: (void)snprintf(text, bytes, "%d-%d/%d", low, high, step); break;
    case 3: (void)snprintf(text, bytes, "%d/%d", low, step); break;
    case 4: (void)snprintf(text, bytes, "*"); break;
    default: (void)snprintf(text, bytes, "%d", a); break;
    }
}

static void random_field(uint64_t *seed, int field, char text[FIELD_BYTES])
{
    size_t length = 0;
    int parts = 1 + (int)chance_below(seed, 3);
    /* Days and months are mostly open, or nothing would ever come near a change of clocks. */
    bool open = chance_below(seed, field >= 3 ? 5 : 8) < (field >= 3 ? 3 : 1);

    if (open) parts = 0;
    (void)snprintf(text, FIELD_BYTES, "*");
    for (int i = 0; i < parts; i++) {
        char part[40];

        random_part(seed, field, part, sizeof part);
        (void)snprintf(text + length, FIELD_BYTES - length, "%s%s", i > 0 ? "," : "", part);
        length = strlen(text);
    }
}

/* ---- The naive reading of it ---- */

struct naive {
    bool matches[FIELDS][VALUES];
    bool either_day, by_wall;
};

static void read_part(bool *matches, int field, const char *part)
{
    int top = field == 5 ? 6 : limits[field].max;
    int low = limits[field].min, high = top, step = 1;
    const char *slash = strchr(part, '/'), *dash = strchr(part, '-');

    if (slash) step = atoi(slash + 1);
    if (part[0] != '*') {
        low = atoi(part);
        high = dash ? atoi(dash + 1) : low;
        if (slash && !dash && high < top) high = top;
    }
    for (int value = low; value <= high; value++) {
        if ((value - low) % step == 0) matches[field == 5 ? value % 7 : value] = true;
    }
}

static void read_naively(struct naive *naive, char texts[FIELDS][FIELD_BYTES])
{
    bool all_hours = true;

    memset(naive, 0, sizeof *naive);
    for (int field = 0; field < FIELDS; field++) {
        char copy[FIELD_BYTES], *rest = copy, *part;

        memcpy(copy, texts[field], FIELD_BYTES);
        while ((part = strsep(&rest, ","))) read_part(naive->matches[field], field, part);
    }
    for (int hour = 0; hour < 24; hour++) all_hours = all_hours && naive->matches[2][hour];
    naive->either_day = texts[3][0] != '*' && texts[5][0] != '*';
    naive->by_wall = texts[2][0] != '*' && !all_hours;
}

static bool naive_matches(const struct naive *naive, int64_t local_s)
{
    static int64_t day_known = INT64_MIN; /* only to be quick: most times are of one day */
    static struct civil_date date;
    int64_t day = civil_divide(local_s, DAY_S);
    int of_day = (int)(local_s - day * DAY_S);
    bool by_month, by_week;

    if (!naive->matches[2][of_day / 3600] || !naive->matches[1][of_day / 60 % 60] ||
        !naive->matches[0][of_day % 60]) {
        return false;
    }
    if (day != day_known) {
        date = civil_from_days(day);
        day_known = day;
    }
    if (!naive->matches[4][date.month]) return false;
    by_month = naive->matches[3][date.day];
    by_week = naive->matches[5][civil_weekday(day)];
    return naive->either_day ? by_month || by_week : by_month && by_week;
}

/* The offset of the last time that was asked for is mostly that of the next. */
static int64_t local_of(const struct zone *zone, struct zone_segment *segment, int64_t utc_s)
{
    if (utc_s < segment->start_s || utc_s >= segment->end_s)
        *segment = zone_segment_at(zone, utc_s);
    return utc_s + segment->offset_s;
}

/* The first run after after_s and up to end_s, or INT64_MAX. All that changes, changes at whole
 * steps. */
static int64_t scan(const struct naive *naive, const struct zone *zone, int64_t after_s,
                    int64_t end_s, int64_t step_s)
{
    int64_t utc_s = civil_divide(after_s, step_s) * step_s - 2 * DAY_S, latest_s = INT64_MIN;
    struct zone_segment segment = {0};

    for (; utc_s <= end_s; utc_s += step_s) {
        int64_t local_s = local_of(zone, &segment, utc_s);
        bool runs;

        if (!naive->by_wall) {
            runs = utc_s > after_s && naive_matches(naive, local_s);
        } else if (local_s <= latest_s) {
            runs = false; /* the wall has shown it before */
        } else {
            /* More than one step forward: all that was left out is made up for now. */
            runs = false;
            if (latest_s == INT64_MIN || utc_s <= after_s) latest_s = local_s - step_s;
            for (int64_t s = latest_s + step_s; s <= local_s && !runs; s += step_s) {
                runs = naive_matches(naive, s);
            }
            runs = runs && utc_s > after_s;
            latest_s = local_s;
        }
        if (runs) return utc_s;
    }
    return INT64_MAX;
}

/* ---- Both ---- */

/* Most of the time near a change of the clocks, if there is one. */
static int64_t random_time(uint64_t *seed, const struct zone *zone)
{
    int64_t at_s = zones_time("2010-06-01") + (int64_t)chance_below(seed, 20 * 365 * DAY_S);
    struct zone_segment segment = zone_segment_at(zone, at_s);

    if (chance_below(seed, 4) > 0 && segment.end_s < zones_time("2040-01-01")) {
        at_s = segment.end_s + (int64_t)chance_below(seed, 3 * DAY_S) - 2 * DAY_S;
    }
    return at_s;
}

static void compare(uint64_t *seed, bool with_seconds)
{
    char texts[FIELDS][FIELD_BYTES], text[FIELDS * FIELD_BYTES], why[CRON_WHY_BYTES] = "";
    int id = (int)chance_below(seed, ZONES);
    const struct zone *zone = zones_get((enum zones_id)id);
    int64_t step_s = with_seconds ? 1 : 60;
    int64_t at_s = random_time(seed, zone);
    int64_t end_s = at_s + (with_seconds ? 2 * DAY_S : 30 * DAY_S);
    struct naive naive;
    struct cron cron;

    for (int field = 0; field < FIELDS; field++) random_field(seed, field, texts[field]);
    if (!with_seconds) (void)snprintf(texts[0], FIELD_BYTES, "0");
    (void)snprintf(text, sizeof text, "%s%s%s %s %s %s %s", with_seconds ? texts[0] : "",
                   with_seconds ? " " : "", texts[1], texts[2], texts[3], texts[4], texts[5]);
    read_naively(&naive, texts);
    if (cron_parse(text, strlen(text), &cron, why, sizeof why) < 0) {
        TEST_FAIL("'%s': %s", text, why);
    }
    for (int run = 0; run < 4; run++) {
        int64_t expected_s = scan(&naive, zone, at_s, end_s, step_s), next_ms = 0;
        int r = cron_next(&cron, zone, at_s * 1000 + (int64_t)chance_below(seed, 1000), &next_ms);
        bool none = r < 0 || next_ms > end_s * 1000;

        if (expected_s == INT64_MAX ? !none : next_ms != expected_s * 1000) {
            TEST_FAIL("%s '%s' after %lld: %lld (%d), the scan has %lld", zones[id].name, text,
                      (long long)at_s, (long long)(next_ms / 1000), r, (long long)expected_s);
        }
        if (none) break;
        at_s = expected_s;
    }
}

TEST(cron_next_equals_a_scan_of_every_minute)
{
    uint64_t seed = chance_seed();
    int rounds = 2000 / test_slower();

    for (int round = 0; round < rounds; round++) compare(&seed, false);
}

TEST(cron_next_equals_a_scan_of_every_second)
{
    uint64_t seed = chance_seed();
    int rounds = 200 / test_slower();

    for (int round = 0; round < rounds; round++) compare(&seed, true);
}

TEST_WITH(cron_next_equals_a_scan_for_long, .timeout_ms = 300000, .long_only = true)
{
    uint64_t seed = chance_seed();
    int rounds = 50000 / test_slower();

    for (int round = 0; round < rounds; round++) compare(&seed, round % 8 == 0);
}

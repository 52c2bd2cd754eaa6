/* cron_fuzz.c - cron expressions from any text: what parses has times that are its own, one after
 * the other, in any zone.
 *
 * input = expression [newline rule of a zone [newline]], so that the corpus can be edited as text
 */
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <weir/error.h>

#include "engine/civil.h"
#include "engine/cron.h"
#include "fuzz/fuzz.h"

enum { RUNS = 6 };

static bool has(uint64_t set, int value)
{
    return set >> value & 1;
}

static bool matches(const struct cron *cron, int64_t local_s)
{
    int64_t day = civil_divide(local_s, CIVIL_DAY_S);
    int of_day = (int)(local_s - day * CIVIL_DAY_S);
    struct civil_date date = civil_from_days(day);
    bool by_month = has(cron->days, date.day);
    bool by_week = has(cron->weekdays, civil_weekday(day));
    bool either = cron->flags & CRON_EITHER_DAY;

    return has(cron->seconds, of_day % 60) && has(cron->minutes, of_day / 60 % 60) &&
           has(cron->hours, of_day / 3600) && has(cron->months, date.month) &&
           (either ? by_month || by_week : by_month && by_week);
}

/* Some time that the wall has passed since the second before matches. */
static bool matches_passed(const struct cron *cron, const struct zone *zone, int64_t utc_s)
{
    int64_t to_s = zone_shown(zone, utc_s);

    for (int64_t s = zone_shown(zone, utc_s - 1) + 1; s <= to_s; s++) {
        if (matches(cron, s)) return true;
    }
    return false;
}

static void check_run(const struct cron *cron, const struct zone *zone, int64_t after_ms,
                      int64_t next_ms)
{
    int64_t next_s = next_ms / 1000, again_ms;

    MUST(next_ms > after_ms && next_ms >= 0 && next_ms <= CRON_LAST_MS);
    MUST(next_ms % 1000 == 0);
    /* Asked at any time before it, the answer is the same. */
    MUST(cron_next(cron, zone, next_ms - 1, &again_ms) == 0 && again_ms == next_ms);
    MUST(cron_next(cron, zone, after_ms + (next_ms - after_ms) / 2, &again_ms) == 0);
    MUST(again_ms == next_ms);
    if (cron->every_ms > 0) {
        MUST(next_ms % cron->every_ms == 0);
    } else if (cron->flags & CRON_BY_WALL) {
        MUST(matches_passed(cron, zone, next_s));
    } else {
        MUST(matches(cron, next_s + zone_offset(zone, next_s)));
    }
}

static void check_runs(const struct cron *cron, const struct zone *zone, int64_t after_ms)
{
    for (int run = 0; run < RUNS; run++) {
        int64_t next_ms = 4711;
        int r = cron_next(cron, zone, after_ms, &next_ms);

        if (r < 0) {
            MUST(r == -ENOENT && next_ms == 4711);
            return;
        }
        check_run(cron, zone, after_ms < -1 ? -1 : after_ms, next_ms);
        after_ms = next_ms;
    }
}

static void check_everywhere(const struct cron *cron, const struct zone *zone)
{
    check_runs(cron, zone, INT64_MIN);
    check_runs(cron, zone, INT64_C(1711846800000));  /* 2024-03-31, clocks in Europe change */
    check_runs(cron, zone, INT64_C(1729987199999));  /* 2024-10-27, and back */
    check_runs(cron, zone, INT64_C(4107456000000));  /* 2100: no leap year */
    check_runs(cron, zone, CRON_LAST_MS - 86400000); /* the end of all times */
}

/* Of this very size, so that a byte too far is found. */
static char *copy(const uint8_t *data, size_t size)
{
    char *text = calloc(1, size > 0 ? size : 1);

    if (!text) abort();
    if (size > 0) memcpy(text, data, size);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *line = size > 0 ? memchr(data, '\n', size) : NULL;
    size_t expression_bytes = line ? (size_t)(line - data) : size;
    size_t rule_bytes = line ? size - expression_bytes - 1 : 0;
    char *expression = copy(data, expression_bytes), *rule;
    char why[CRON_WHY_BYTES] = "";
    struct cron cron;
    struct zone zone;
    int r = cron_parse(expression, expression_bytes, &cron, why, sizeof why);

    if (r < 0) {
        MUST(r == WEIR_EREFUSED);
        MUST(strstr(why, "expected ") && strlen(why) < sizeof why - 1);
    } else {
        check_everywhere(&cron, zone_utc());
        if (rule_bytes > 0 && line[rule_bytes] == '\n') rule_bytes--;
        rule = line ? copy(line + 1, rule_bytes) : NULL;
        if (rule && zone_parse_rule(rule, rule_bytes, &zone, why, sizeof why) == 0) {
            check_everywhere(&cron, &zone);
        }
        free(rule);
    }
    free(expression);
    return 0;
}

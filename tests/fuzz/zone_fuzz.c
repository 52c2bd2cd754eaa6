/* zone_fuzz.c - time zones from any bytes: what parses has segments without holes, and what its
 * wall shows and when it does agree.
 *
 * input = a TZif file, or anything else for the rule of a zone
 */
#include <stdbool.h>
#include <string.h>
#include <weir/error.h>

#include "engine/cron.h"
#include "fuzz/fuzz.h"

enum { SEGMENTS = 300 };
/* Nearer to the end of time a wall shows what is beyond it, which is taken for the end. */
#define WALL_MAX_S (ZONE_TIME_MAX_S - 2 * ZONE_OFFSET_MAX_S)

static void check_at(const struct zone *zone, int64_t utc_s)
{
    struct zone_segment segment = zone_segment_at(zone, utc_s);
    int64_t local_s = utc_s + segment.offset_s, shown_s = zone_shown(zone, utc_s);
    struct zone_instants instants = zone_local(zone, local_s);

    MUST(segment.start_s <= utc_s && utc_s < segment.end_s);
    MUST(segment.offset_s < ZONE_OFFSET_MAX_S && segment.offset_s > -ZONE_OFFSET_MAX_S);
    if (utc_s < -WALL_MAX_S || utc_s > WALL_MAX_S) return;
    MUST(instants.count >= 1 && instants.first_s <= utc_s && utc_s <= instants.last_s);
    MUST(zone_offset(zone, instants.first_s) + instants.first_s == local_s);
    MUST(zone_offset(zone, instants.last_s) + instants.last_s == local_s);
    MUST(shown_s >= local_s);
    MUST(zone_reach(zone, local_s) <= instants.first_s);
    MUST(zone_reach(zone, shown_s) <= utc_s);
    MUST(zone_reach(zone, shown_s + 1) > utc_s);
}

static void check_zone(const struct zone *zone)
{
    struct zone_segment segment = zone_segment_at(zone, -ZONE_TIME_MAX_S);

    for (int i = 0; i < SEGMENTS && segment.end_s < ZONE_TIME_MAX_S; i++) {
        struct zone_segment next = zone_segment_at(zone, segment.end_s);

        MUST(next.start_s == segment.end_s && next.end_s > next.start_s);
        check_at(zone, segment.end_s - 1);
        check_at(zone, segment.end_s);
        /* On from the year 1, or a rule would be looked at in times that nobody knows. */
        segment = next.end_s < INT64_C(-62135596800) ? zone_segment_at(zone, -62135596800) : next;
    }
}

static void check_schedules(const struct zone *zone)
{
    static const char *const texts[] = {"30 2 * * *", "*/7 * 29 2 *", "0 0 0 1 1 *"};

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct cron cron;
        int64_t at_ms = -1, next_ms;

        MUST(cron_parse(texts[i], strlen(texts[i]), &cron, NULL, 0) == 0);
        for (int run = 0; run < 10 && cron_next(&cron, zone, at_ms, &next_ms) == 0; run++) {
            MUST(next_ms > at_ms);
            at_ms = next_ms;
        }
    }
}

static void check_copy(const struct zone *zone)
{
    struct zone *again = malloc(zone_bytes(zone));

    if (!again) abort();
    memcpy(again, zone, zone_bytes(zone));
    check_zone(again);
    check_schedules(again);
    free(again);
}

static void check_rule(const uint8_t *data, size_t size)
{
    char why[ZONE_WHY_BYTES] = "";
    struct zone zone;
    int r = zone_parse_rule((const char *)data, size, &zone, why, sizeof why);

    if (r < 0) {
        MUST(r == WEIR_EREFUSED && strstr(why, "expected "));
    } else {
        check_copy(&zone);
    }
}

static void check_file(const uint8_t *data, size_t size)
{
    char why[ZONE_WHY_BYTES] = "";
    size_t bytes;
    struct zone *zone;
    int r = zone_measure(data, size, &bytes, why, sizeof why);

    if (r < 0) {
        MUST(r == WEIR_EREFUSED && why[0] != '\0' && strlen(why) < sizeof why - 1);
        return;
    }
    zone = malloc(bytes);
    if (!zone) abort();
    r = zone_parse(data, size, zone, bytes, why, sizeof why);
    if (r < 0) {
        MUST(r == WEIR_EREFUSED && why[0] != '\0' && strlen(why) < sizeof why - 1);
    } else {
        MUST(zone_bytes(zone) <= bytes);
        check_copy(zone);
    }
    free(zone);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size >= 4 && memcmp(data, "TZif", 4) == 0) {
        check_file(data, size);
    } else {
        check_rule(data, size);
    }
    return 0;
}

/* zone.h - a time zone as a value: which offset holds when, and what a clock on the wall shows.
 *
 * A zone is made from the bytes of a TZif file (RFC 8536, versions 1 to 3, and later ones, which
 * only add to them) or from the rule of a POSIX TZ variable ("CET-1CEST,M3.5.0,M10.5.0/3"). Who
 * calls has read the file, and brings the memory. All times are seconds of Unix time; "local" times
 * are the same count for what the wall shows, as if it were UTC.
 *
 *      first offset    transitions, ascending         rule, from its time on (or the last offset)
 *     ──────────────┬─────────┬────────────┬────────┬──────┬──────┬──────┬──────▶
 *                   └ each segment between two changes has one offset ┘
 *
 * What is taken from a file, and what is refused:
 * - Before the first transition the file's first type holds, from the last one on its rule (the
 *   footer). With no transition the rule holds always; with no footer, or an empty one, the last
 *   offset goes on for ever, and so it does for a file of version 1.
 * - Names of zones and what counts as summer time are checked, and not kept. A transition that
 *   leaves the offset as it is is not kept either.
 * - A file with leap seconds ("right/") is refused: its times are not Unix time. So are an offset
 *   of 26 hours or more, more than ZONE_TRANSITIONS_MAX transitions, times that do not ascend, and
 *   bytes that are missing or left over.
 * - A footer that names summer time must say when that begins and ends.
 *
 * A local time can come once, twice (an overlap: the clock was set back) or never (a gap: it was
 * set forward); zone_local says which. zone_reach and zone_shown are what schedules are made of:
 * the first instant at which the wall shows a time or a later one, and the latest time that it has
 * shown by an instant. They agree with each other in any zone, however wild:
 *
 *     zone_reach(local) <= utc   if and only if   local <= zone_shown(utc)
 *
 * Invariants: the struct has no pointers: its zone_bytes() bytes can be copied, and are equal for
 * equal zones. Transitions ascend strictly, and each changes the offset. Every offset is less than
 * ZONE_OFFSET_MAX_S either way. Times beyond ZONE_TIME_MAX_S are taken for that.
 * Threads: any; a zone that was made does not change.
 */
#ifndef WEIR_ENGINE_ZONE_H
#define WEIR_ENGINE_ZONE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ZONE_TRANSITIONS_MAX 2000
#define ZONE_OFFSET_MAX_S (26 * 3600)
#define ZONE_TIME_MAX_S (INT64_C(1) << 59)
#define ZONE_WHY_BYTES 160 /* enough for the sentence of any refusal */

enum zone_day_kind {
    ZONE_DAY_JULIAN = 1, /* Jn: 1 to 365, February 29th is never counted */
    ZONE_DAY_OF_YEAR,    /* n: 0 to 365 */
    ZONE_DAY_OF_MONTH,   /* Mm.w.d: the w-th weekday d of the month m; w = 5: the last */
};

/* When summer time begins or ends in every year. */
struct zone_change {
    int32_t time_s; /* of the day, on the wall before the change; -167 to 167 hours */
    uint16_t day;   /* JULIAN, OF_YEAR */
    uint8_t kind;   /* enum zone_day_kind */
    uint8_t month, week, weekday;
    uint16_t unused; /* 0: bytes of equal zones are equal */
};

enum zone_rule_kind {
    ZONE_RULE_NONE, /* the last offset goes on */
    ZONE_RULE_FIXED,
    ZONE_RULE_SUMMER,
};

struct zone_rule {
    int64_t from_s; /* INT64_MIN: always */
    int32_t kind;   /* enum zone_rule_kind */
    int32_t standard_s;
    int32_t summer_s;
    struct zone_change begin, end;
    int32_t unused;
};

struct zone_transition {
    int64_t at_s;
    int32_t offset_s; /* from then on */
    int32_t unused;
};

struct zone {
    struct zone_rule rule;
    int32_t first_offset_s;
    uint32_t count;
    struct zone_transition transitions[];
};

/* The times from start_s (INT64_MIN: always) to before end_s (INT64_MAX: for ever) have one
 * offset. The segment before or after may have the same. */
struct zone_segment {
    int64_t start_s, end_s;
    int32_t offset_s;
};

struct zone_instants {
    int count;       /* 0: in a gap, 1, or 2 and more: in an overlap */
    int64_t first_s; /* the first instant that shows the time; in a gap the one that ends it */
    int64_t last_s;  /* the last that does; in a gap first_s */
};

/* How many bytes zone_parse needs for the zone of this file: ret_bytes. Refuses with WEIR_EREFUSED
 * what it sees to be no TZif file. `why` gets a sentence, and has ZONE_WHY_BYTES or more, or is
 * NULL; so below. */
int zone_measure(const void *data, size_t data_bytes, size_t *ret_bytes, char *why,
                 size_t why_bytes);

/* The zone of a TZif file, into memory that is aligned for it. WEIR_EREFUSED: the file is not
 * right, or zone_bytes_max is less than zone_measure says. The memory then holds no zone. */
int zone_parse(const void *data, size_t data_bytes, struct zone *ret_zone, size_t zone_bytes_max,
               char *why, size_t why_bytes);

/* The zone of a POSIX rule, which needs no more memory than the struct. WEIR_EREFUSED: it is none.
 */
int zone_parse_rule(const char *text, size_t length, struct zone *ret_zone, char *why,
                    size_t why_bytes);

/* UTC. Valid for the whole run. */
const struct zone *zone_utc(void);

/* The bytes of the whole value. */
size_t zone_bytes(const struct zone *zone);

/* The segment that a time is in. */
struct zone_segment zone_segment_at(const struct zone *zone, int64_t utc_s);

/* What is added to Unix time for what the wall shows. */
int32_t zone_offset(const struct zone *zone, int64_t utc_s);

/* When the wall shows this time. */
struct zone_instants zone_local(const struct zone *zone, int64_t local_s);

/* The first instant at which the wall shows local_s or a later time. */
int64_t zone_reach(const struct zone *zone, int64_t local_s);

/* The latest time that the wall has shown by utc_s, at which it counts. */
int64_t zone_shown(const struct zone *zone, int64_t utc_s);

#endif

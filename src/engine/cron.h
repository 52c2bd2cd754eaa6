/* cron.h - cron expressions: from text to a set of times, and the next of them after a time.
 *
 *     ┌──────── second, 0-59 (only if there are six fields; else second 0)
 *     │ ┌────── minute, 0-59
 *     │ │ ┌──── hour, 0-23
 *     │ │ │ ┌── day of the month, 1-31
 *     │ │ │ │ ┌ month, 1-12 or JAN-DEC
 *     │ │ │ │ │ ┌ day of the week, 0-7 or SUN-SAT: 0 and 7 are Sunday
 *     0 30 4 * * MON-FRI
 *
 * A field is a list of parts with commas between them:
 *
 *     *        every value                   * /n     every n-th, from the lowest on
 *     a        this one                      a/n      every n-th from a to the highest
 *     a-b      these and all between         a-b/n    every n-th of those
 *
 * (* /n is written without the blank, here and below; C would take it for the end of a comment.)
 * Names are of three letters, small or large. A range does not run backwards, but Sunday ends one
 * (FRI-SUN). A step that leads out of the field from any of its values is refused.
 * `?` is the same as `*`, for the two fields of days. `L`, `W` and `#` are refused, as is @reboot.
 * Blanks and tabs separate fields.
 *
 * Days, as in Vixie cron: if both fields of days are restricted, a day that matches either is
 * taken. If one of them begins with `*` or `?` a day must match both, so 0 0 * /2 * MON is every
 * Monday with an odd date.
 *
 *     @hourly    0 * * * *         @monthly             0 0 1 * *
 *     @daily     0 0 * * *         @yearly, @annually   0 0 1 1 *
 *     @midnight  0 0 * * *         @weekly              0 0 * * 0
 *     @every 1h30m    whole multiples of the interval since 1970-01-01 00:00 UTC, in any zone: so
 *                     they are the same after a restart, and on every machine. Units w d h m s,
 *                     each once and in this order; from 1 s to 366 d.
 *
 * When the clocks change. Expressions are of two kinds:
 * - By real time: the hour field begins with `*`, or has all 24 hours. It runs whenever the wall
 *   shows one of its times: nothing is added in a gap, and in an overlap its times come twice, so
 *   that every 15 minutes stays every 15 minutes.
 * - By the wall: all others. Each of its times is run once, at the first instant at which the wall
 *   shows it or a later one. So a time in a gap is run when the gap ends (several times in one gap:
 *   once together), and a time in an overlap on its first occurrence. It does not matter how long
 *   the gap is: a day that a zone leaves out is made up for at the next midnight.
 *   This differs from Vixie cron, which leaves out * /15 2 * * * on the day that has no hour 2.
 *
 * Invariants: a struct cron is a value: 40 bytes without pointers, equal bytes for equal fields.
 * An expression can match nothing (0 0 30 2 *): cron_next says so.
 * Threads: any.
 */
#ifndef WEIR_ENGINE_CRON_H
#define WEIR_ENGINE_CRON_H

#include <stddef.h>
#include <stdint.h>

#include "engine/zone.h"

#define CRON_TEXT_MAX 255
#define CRON_WHY_BYTES 160 /* enough for the sentence of any refusal */
/* What matches at all matches within 40 years: February 29th on one weekday, over a year like 2100
 * that is no leap year. Beyond this many years nothing is looked for. */
#define CRON_YEARS_MAX 100
/* 9999-12-31 23:59:59 UTC: nothing runs later. */
#define CRON_LAST_MS INT64_C(253402300799000)

enum cron_flags {
    CRON_BY_WALL = 1,    /* see above; else by real time */
    CRON_EITHER_DAY = 2, /* both fields of days are restricted */
};

/* A bit for each value, bit 0 for the value 0. */
struct cron {
    int64_t every_ms; /* above 0: @every, and all else is 0 */
    uint64_t seconds, minutes;
    uint32_t hours, days;
    uint16_t months;
    uint8_t weekdays; /* bit 0: Sunday */
    uint8_t flags;    /* enum cron_flags */
    uint32_t unused;  /* 0: bytes of equal expressions are equal */
};

/* WEIR_EREFUSED: the text is no expression. `why` then says in which field, at which character, and
 * what was expected; it has CRON_WHY_BYTES or more, or is NULL. */
int cron_parse(const char *text, size_t length, struct cron *ret_cron, char *why, size_t why_bytes);

/* The next time strictly after after_ms, in milliseconds of Unix time; before 1970 counts as the
 * end of 1969. -ENOENT: there is none within CRON_YEARS_MAX years, or before the year 10000. Takes
 * steps for months and for changes of the clocks, not for minutes. */
int cron_next(const struct cron *cron, const struct zone *zone, int64_t after_ms, int64_t *ret_ms);

#endif

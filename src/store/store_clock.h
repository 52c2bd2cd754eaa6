/* store_clock.h - the store's time: the wall clock's, but it never goes back and never stands.
 *
 * Deadlines of jobs are by the wall; leases are lengths of time. A wall clock that is set back (by
 * an operator, or since the store was closed) would stop both if time merely did not go back. So
 * time then runs on by the steady clock, a tenth slower, until the wall has caught up.
 */
#ifndef WEIR_STORE_STORE_CLOCK_H
#define WEIR_STORE_STORE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

/* A wall clock that has gone on for less than this since the steady one was read is believed, if
 * who runs the calling task has not seen more time go by either: most calls read one clock. */
#define STORE_CLOCK_FRESH_NS INT64_C(1000000)

struct store_clock {
    int64_t now_ns;
    int64_t ahead_ns;      /* of the wall */
    int64_t steady_ns;     /* when that clock was read, */
    int64_t steady_now_ns; /* ... and what now_ns was then */
};

/* At `now_ms` or later: where the store was when it was closed. */
static inline void store_clock_begin(struct store_clock *clock, int64_t now_ms, int64_t wall_ns,
                                     int64_t steady_ns)
{
    int64_t last_ns = now_ms * 1000000;

    clock->now_ns = wall_ns > last_ns ? wall_ns : last_ns;
    clock->ahead_ns = clock->now_ns - wall_ns;
    clock->steady_ns = steady_ns;
    clock->steady_now_ns = clock->now_ns;
}

/* By the wall clock; `seen_ns` is a look at the steady one some time ago. False: that is to be
 * read, for store_clock_ms. */
static inline bool store_clock_by_wall(struct store_clock *clock, int64_t wall_ns, int64_t seen_ns,
                                       int64_t *ret_ms)
{
    if (wall_ns < clock->now_ns || wall_ns - clock->steady_now_ns >= STORE_CLOCK_FRESH_NS ||
        seen_ns - clock->steady_ns >= STORE_CLOCK_FRESH_NS)
        return false;
    clock->now_ns = wall_ns;
    clock->ahead_ns = 0;
    *ret_ms = wall_ns / 1000000;
    return true;
}

static inline int64_t store_clock_ms(struct store_clock *clock, int64_t wall_ns, int64_t steady_ns)
{
    int64_t passed_ns = steady_ns - clock->steady_ns;
    int64_t slow_ns = clock->steady_now_ns + (passed_ns > 0 ? passed_ns - passed_ns / 10 : 0);

    if (wall_ns > clock->now_ns) clock->now_ns = wall_ns;
    if (slow_ns > clock->now_ns) clock->now_ns = slow_ns;
    clock->ahead_ns = clock->now_ns - wall_ns;
    clock->steady_ns = steady_ns;
    clock->steady_now_ns = clock->now_ns;
    return clock->now_ns / 1000000;
}

#endif

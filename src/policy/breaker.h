/* breaker.h - a circuit breaker: what fails too often is left alone for a while.
 *
 *                 too many failed, or were slow
 *        CLOSED ───────────────────────────────▶ OPEN ◀──────────┐
 *          ▲ ▲                                   │  │             │ a probe failed
 *          │ └──────────── reset ────────────────┘  │ open_ns     │ or was slow
 *          │                                        ▼             │
 *          └──── probes_needed went well ──────── HALF_OPEN ──────┘
 *
 * breaker_set_state() is the only setter and checks every move against a table. Each move
 * begins an epoch; whoever was let in during an earlier one is not counted any more when it
 * reports: a call that was begun before the outage says nothing about how things are now.
 *
 * CLOSED counts what has ended in a rolling window: the last window_calls, or those of the
 * last window_ns, in BREAKER_SLICES slices of which the oldest falls out as a whole. It opens
 * when the window has calls_min, and failure_percent of them failed or slow_percent of them
 * took slow_ns. OPEN lets nobody in. It becomes HALF_OPEN when the first one comes after
 * open_ns; that one is a probe. HALF_OPEN lets in probes_max at a time. A probe that reports
 * nothing gives its place back; places of probes that have not reported within lost_ns since
 * the last one was let in are free again, and those probes are not counted any more.
 *
 * Invariants: no clock (time comes in and may be a little behind what came before), no
 * allocation, no lock.
 */
#ifndef WEIR_POLICY_BREAKER_H
#define WEIR_POLICY_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

enum breaker_state { BREAKER_CLOSED, BREAKER_OPEN, BREAKER_HALF_OPEN, BREAKER_STATES };

enum {
    BREAKER_CALLS_MAX = 1024, /* in a window by count */
    BREAKER_SLICES = 16,      /* of a window by time */
};

/* Checked by whoever makes them: window_calls (1 to BREAKER_CALLS_MAX) or window_ns (at least
 * BREAKER_SLICES) is said, the other is 0; percents are 1 to 100; slow_percent may be 0: how
 * long a call takes does not matter. */
struct breaker_rules {
    uint32_t window_calls;
    int64_t window_ns;
    uint32_t calls_min;
    uint32_t failure_percent;
    uint32_t slow_percent;
    int64_t slow_ns;
    int64_t open_ns;
    uint32_t probes_max;
    uint32_t probes_needed;
    int64_t lost_ns;
};

/* What a call has to say. */
enum breaker_report {
    BREAKER_WENT_WELL,
    BREAKER_HAS_FAILED,
    BREAKER_SAYS_NOTHING, /* it was cancelled, or never made */
};

struct breaker_sums {
    uint32_t calls, failed, slow;
};

struct breaker {
    struct breaker_rules rules;
    enum breaker_state state;
    uint32_t epoch;
    int64_t since_ns; /* of the state */
    struct breaker_sums sums;
    /* HALF_OPEN */
    uint32_t probes;    /* let in and not heard of */
    uint32_t probes_ok; /* in this epoch */
    int64_t probe_ns;   /* when the last one was let in */
    /* The window */
    union {
        struct {
            uint32_t next; /* where the next call goes: it takes the oldest one's place */
            uint64_t failed[BREAKER_CALLS_MAX / 64];
            uint64_t slow[BREAKER_CALLS_MAX / 64];
        } calls;
        struct {
            int64_t newest; /* number of the newest slice: its beginning by the width */
            struct breaker_sums sums[BREAKER_SLICES];
        } slices;
    } window;
};

/* What somebody who was let in brings back. */
struct breaker_pass {
    uint32_t epoch;
};

void breaker_init(struct breaker *breaker, const struct breaker_rules *rules);

/* May a call be made now? Then it is reported by breaker_leave. */
bool breaker_enter(struct breaker *breaker, int64_t now_ns, struct breaker_pass *ret_pass);

/* A call that was let in has ended after run_ns. */
void breaker_leave(struct breaker *breaker, const struct breaker_pass *pass,
                   enum breaker_report report, int64_t run_ns, int64_t now_ns);

/* Whether they have to know the time: not where all calls go well, and how long they take does
 * not matter. */
static inline bool breaker_enter_wants_time(const struct breaker *breaker)
{
    return breaker->state != BREAKER_CLOSED || breaker->rules.slow_percent > 0;
}
static inline bool breaker_leave_wants_time(const struct breaker *breaker,
                                            enum breaker_report report)
{
    return breaker_enter_wants_time(breaker) || breaker->rules.window_ns > 0 ||
           breaker->sums.failed > 0 || report != BREAKER_WENT_WELL;
}

/* Nothing has changed since it was let in: it may be tried once more. */
static inline bool breaker_still(const struct breaker *breaker, const struct breaker_pass *pass)
{
    return breaker->epoch == pass->epoch;
}

/* By hand: open it now, as if too many had failed; or close it. */
void breaker_trip(struct breaker *breaker, int64_t now_ns);
void breaker_reset(struct breaker *breaker, int64_t now_ns);

#endif

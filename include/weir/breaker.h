/* breaker.h - a circuit breaker: what fails too often is left alone for a while.
 *
 *                 too many failed, or were slow
 *        CLOSED ───────────────────────────────▶ OPEN ◀── a probe failed ──┐
 *          ▲                                      │ open_ms                │
 *          └──── probes_needed went well ─────────┴──────▶ HALF_OPEN ──────┘
 *
 * Usually a guard (guard.h) asks it; a program may ask it around anything:
 *
 *     r = weir_breaker_enter(breaker, &pass);
 *     if (r < 0) return r;                          WEIR_EBREAKER: it was not called
 *     r = call_the_other_side(...);
 *     weir_breaker_leave(breaker, &pass, r);        exactly once
 *
 * While it is closed it counts what has ended, in a rolling window. It opens when the window
 * has calls_min or more, and failure_percent of them have failed (or slow_percent of them took
 * slow_ms). Then everybody is refused for open_ms. After that the next probes_max calls at a
 * time are let in as probes: if probes_needed of them go well it closes and begins with an
 * empty window, if one fails it opens again. A probe that is cancelled gives its place back;
 * so does one that has not reported for probe_lost_ms. A call that was let in before the last
 * change of state is not counted when it ends.
 *
 * Owner: a scope. Lifetime: until it is closed or the scope ends. Backpressure: when it is open
 * it refuses at once; it has no queue. Failure: WEIR_EBREAKER. What counts as a failure is said
 * by is_failure; a call that was cancelled (WEIR_ECANCELED) is not counted at all.
 * Invariants: at most probes_max probes at a time; nobody is let in for open_ms after it opened.
 * Threads: tasks and callbacks of the runtime, on any worker: it may be shared. No call suspends.
 */
#ifndef WEIR_BREAKER_H
#define WEIR_BREAKER_H

#include <weir/defs.h>
#include <weir/error.h>

WEIR_BEGIN

typedef struct weir_breaker weir_breaker;

#define WEIR_BREAKER_CALLS_MAX 1024
#define WEIR_BREAKER_SLICES 16 /* that a window by time has: it moves on by one of them */

/* How it is now; as drawn above. */
enum weir_breaker_state { WEIR_BREAKER_CLOSED, WEIR_BREAKER_OPEN, WEIR_BREAKER_HALF_OPEN };

/* A change of state. */
typedef struct weir_breaker_change {
    const char *breaker; /* its name, valid for the call */
    enum weir_breaker_state from, to;
    uint64_t number; /* 1: its first change; two workers may tell of two in another order */
    int64_t at_ns;   /* on the clock of weir_now_ns */
} weir_breaker_change;

/* Called once for each change, after it, by whoever made it; it must not suspend. */
typedef void (*weir_breaker_fn)(const weir_breaker_change *change, void *keep_arg);

/* Whether a call that ended with `result` has failed, for the breaker. Not asked about
 * WEIR_ECANCELED. It must not suspend. */
typedef bool (*weir_failure_fn)(int result, void *keep_arg);

/* name, one of window_calls and window_ms, calls_min, failure_percent, open_ms and probes_max
 * must be said. */
typedef struct weir_breaker_spec {
    const char *name;         /* copied, at most 31 bytes */
    unsigned window_calls;    /* the last so many calls are looked at, to WEIR_BREAKER_CALLS_MAX; */
    int64_t window_ms;        /* or those of the last so many ms, at least 16 */
    unsigned calls_min;       /* with less in the window it does not open */
    unsigned failure_percent; /* 1 to 100: so many of them failed, and it opens */
    int64_t open_ms;          /* how long it lets nobody in */
    unsigned probes_max;      /* at one time, when it is half open */
    unsigned probes_needed;   /* that go well, and it closes; default: probes_max */
    unsigned slow_percent;    /* so many of them were slow, and it opens; default: never */
    int64_t slow_ms;          /* a call that takes this long is slow; with slow_percent only */
    int64_t probe_lost_ms;    /* a probe that says nothing for so long is given up; default:
                                 open_ms */
    weir_failure_fn is_failure; /* default: any negative result */
    weir_breaker_fn on_change;
    void *keep_arg; /* of both */
} weir_breaker_spec;

/* weir_breaker_spec_init - set every member to "not said". */
static inline void weir_breaker_spec_init(weir_breaker_spec *spec)
{
    memset(spec, 0, sizeof *spec);
}

/* weir_breaker_open(scope, &spec, &breaker) - a breaker, closed. Errors: WEIR_EREFUSED
 * (weir_why), WEIR_ECANCELED (the scope is), WEIR_ENOTASK, -ENOMEM, -ENFILE. Never suspends. */
WEIR_API WEIR_MUST_USE int weir_breaker_open_sized(weir_scope *scope, size_t spec_bytes,
                                                   const weir_breaker_spec *spec,
                                                   weir_breaker **ret_breaker);
#define weir_breaker_open(scope, ...) \
    weir_breaker_open_sized((scope), sizeof(weir_breaker_spec), __VA_ARGS__)

/* What somebody who was let in keeps until it reports. */
typedef struct weir_breaker_pass {
    int64_t began_ns;
    uint32_t epoch;
} weir_breaker_pass;

/* weir_breaker_enter - may a call be made now? 0: yes, and weir_breaker_leave must follow.
 * Errors: WEIR_EBREAKER (it is open, or has its probes), WEIR_ECLOSED. Never suspends. */
WEIR_API WEIR_MUST_USE int weir_breaker_enter(weir_breaker *breaker, weir_breaker_pass *ret_pass);

/* weir_breaker_leave - the call has ended with `result`; WEIR_ECANCELED: it is not counted, and
 * a probe's place is free again. Never suspends. */
WEIR_API void weir_breaker_leave(weir_breaker *breaker, const weir_breaker_pass *pass, int result);

/* weir_breaker_trip - open it now, for open_ms. weir_breaker_reset - close it now, with an empty
 * window. For operators. Never suspend. */
WEIR_API void weir_breaker_trip(weir_breaker *breaker);
WEIR_API void weir_breaker_reset(weir_breaker *breaker);

/* What it has seen: let_in = went_well + failed + silent + those that have not ended. */
typedef struct weir_breaker_figures {
    enum weir_breaker_state state;
    uint64_t let_in, refused;
    uint64_t went_well, failed;           /* however late they came */
    uint64_t silent;                      /* cancelled */
    uint64_t slow;                        /* of those that went well or failed */
    uint64_t opened, half_opened, closed; /* changes to that state */
    unsigned window_calls, window_failed, window_slow;
} weir_breaker_figures;

/* weir_breaker_figures_of - the figures now. A breaker whose open_ms are over is half open only
 * when the next call has come. Never suspends. */
WEIR_API void weir_breaker_figures_of(weir_breaker *breaker, weir_breaker_figures *ret_figures);

/* weir_breaker_close - free it. Takes NULL. Never suspends. */
WEIR_API void weir_breaker_close(weir_breaker *take_breaker);

WEIR_END

#endif

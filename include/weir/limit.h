/* limit.h - how much is let through: so many in a time (rate), so many at a time (limit).
 *
 *     r = weir_rate_open(scope, &(weir_rate_spec){.name = "mail", .rate = 100, .burst = 20,
 *             .overflow = WEIR_REJECT}, &mail);
 *     r = weir_rate_take(mail, 1);                       0, or WEIR_EOVERLOAD
 *
 *     r = weir_limit_open(scope, &(weir_limit_spec){.name = "upstream",
 *             .kind = WEIR_LIMIT_ADAPTIVE, .concurrency = 20, .concurrency_max = 200,
 *             .overflow = WEIR_WAIT, .waiters_max = 50}, &upstream);
 *     r = weir_limit_enter(upstream, &pass);
 *     if (r == 0) {
 *         r = call_it();
 *         weir_limit_leave(upstream, &pass, r);
 *     }
 *
 * They may be shared by all who do the same thing, on all workers. Whoever waits longest goes
 * first, and nobody is passed by.
 *
 * Owner: a scope. Lifetime: until it is closed or the scope ends; who waits then gets
 * WEIR_ECLOSED. Backpressure: the rate or the concurrency, and the named overflow: with
 * WEIR_WAIT waiters_max tasks may wait and more are rejected, with WEIR_REJECT all are.
 * Failure: none of its own; a rejection is WEIR_EOVERLOAD, at once, and counted.
 *
 * Invariants: over any time no more than burst + rate × time tokens are given. No more than the
 * limit of the moment get in; what has got in leaves once.
 * Cancel: nothing moved: a call that failed has taken nothing.
 * Errors of every call that waits: WEIR_EOVERLOAD, WEIR_ECLOSED, WEIR_ECANCELED, WEIR_ETIMEDOUT,
 * WEIR_ENOTASK. Errors of every open: WEIR_EREFUSED (weir_why), WEIR_ECANCELED (the scope
 * is), WEIR_ENOTASK, -ENOMEM, -ENFILE.
 * Threads: tasks of the runtime, on any worker; calls that never suspend also callbacks on
 * a worker.
 */
#ifndef WEIR_LIMIT_H
#define WEIR_LIMIT_H

#include <weir/defs.h>
#include <weir/error.h>

WEIR_BEGIN

/* ---- Rate: so many in a time ---- */

typedef struct weir_rate weir_rate;

#define WEIR_RATE_PER_MS_DEFAULT 1000

/* name, rate, burst and overflow must be said; with WEIR_WAIT waiters_max as well. */
typedef struct weir_rate_spec {
    const char *name;            /* copied, at most 31 bytes */
    size_t rate;                 /* tokens that come in per_ms */
    size_t burst;                /* tokens that are kept at most; it begins with so many */
    enum weir_overflow overflow; /* WEIR_WAIT: waiters_max may wait, more get WEIR_EOVERLOAD;
                                    WEIR_REJECT: nobody waits, waiters_max must be 0 */
    size_t waiters_max;          /* tasks that wait for tokens */
    int64_t per_ms;              /* default: WEIR_RATE_PER_MS_DEFAULT, a second */
    size_t rate_max, burst_max;  /* weir_rate_resize may go up to these; default: rate, burst */
    int64_t latency_ms;          /* how long a wait should take at most; shown beside what is
                                    measured; 0: not said */
} weir_rate_spec;

/* weir_rate_spec_init - set every member to "not said". */
static inline void weir_rate_spec_init(weir_rate_spec *spec)
{
    memset(spec, 0, sizeof *spec);
}

/* weir_rate_open(scope, &spec, &rate) - Never suspends. */
WEIR_API WEIR_MUST_USE int weir_rate_open_sized(weir_scope *scope, size_t spec_bytes,
                                                const weir_rate_spec *spec, weir_rate **ret_rate);
#define weir_rate_open(scope, ...) \
    weir_rate_open_sized((scope), sizeof(weir_rate_spec), __VA_ARGS__)

/* weir_rate_take - take `tokens`, all of them or none; with WEIR_WAIT as soon as they have come
 * and those who came before have theirs. Errors also: WEIR_EREFUSED (0, or more than the burst:
 * they never come). */
WEIR_SUSPENDS int weir_rate_take(weir_rate *rate, unsigned tokens);

/* weir_rate_resize - another rate (1 to rate_max) and burst (1 to burst_max); 0 leaves it as it
 * is. It holds from now on, also for who waits; who waits for more than the new burst gets
 * WEIR_EOVERLOAD. Errors: WEIR_EREFUSED, WEIR_ECLOSED (by another worker, just now). Never
 * suspends. */
WEIR_API WEIR_MUST_USE int weir_rate_resize(weir_rate *rate, size_t tokens, size_t burst);

/* What a rate has seen. */
typedef struct weir_rate_figures {
    size_t rate, burst;
    size_t tokens;     /* that are there now */
    size_t waiting;    /* tasks, now */
    uint64_t admitted; /* calls that got their tokens */
    uint64_t taken;    /* tokens */
    uint64_t returned; /* of those: that a guard had for a call that it did not try */
    uint64_t waited;   /* calls that have waited, whatever came of it */
    uint64_t rejected; /* calls that got WEIR_EOVERLOAD */
} weir_rate_figures;

/* weir_rate_figures_of - the figures now. Never suspends. */
WEIR_API void weir_rate_figures_of(weir_rate *rate, weir_rate_figures *ret_figures);

/* weir_rate_close - free it; who waits gets WEIR_ECLOSED. Takes NULL. Never suspends. */
WEIR_API void weir_rate_close(weir_rate *take_rate);

/* ---- Limit: so many at a time ---- */

typedef struct weir_limit weir_limit;

enum weir_limit_kind {
    WEIR_LIMIT_UNSET = 0,
    WEIR_LIMIT_FIXED, /* concurrency, until it is resized */
    /* From concurrency_min to concurrency_max, learnt from how long calls take: it grows as long as
     * more of them at a time take no longer, and falls as soon as they wait for one another on
     * the other side. To know how long they take without that it lets fewer in for a moment, at
     * the beginning, every probe_ms, and when it keeps falling. */
    WEIR_LIMIT_ADAPTIVE,
};

#define WEIR_LIMIT_CONCURRENCY_MAX 1048576
#define WEIR_LIMIT_WINDOW_MS_DEFAULT 100
#define WEIR_LIMIT_PROBE_MS_DEFAULT 10000
#define WEIR_LIMIT_TOLERANCE_PCT_DEFAULT 25

/* name, kind, concurrency and overflow must be said; with WEIR_WAIT waiters_max, and with
 * WEIR_LIMIT_ADAPTIVE concurrency_max as well. */
typedef struct weir_limit_spec {
    const char *name; /* copied, at most 31 bytes */
    enum weir_limit_kind kind;
    size_t concurrency;          /* that get in at a time; adaptive: to begin with */
    enum weir_overflow overflow; /* WEIR_WAIT: waiters_max may wait, more get WEIR_EOVERLOAD;
                                    WEIR_REJECT: nobody waits, waiters_max must be 0 */
    size_t waiters_max;          /* tasks that wait to get in */
    size_t concurrency_max;      /* at most WEIR_LIMIT_CONCURRENCY_MAX. Fixed: weir_limit_resize
                                    may go up to this, default: concurrency. Adaptive: it grows
                                    up to this */
    size_t concurrency_min;      /* adaptive: it falls down to this; default: 1 */
    int64_t window_ms;           /* adaptive: it changes once in this time, if 32 calls were timed;
                                    default: WEIR_LIMIT_WINDOW_MS_DEFAULT */
    int64_t probe_ms;            /* adaptive; default: WEIR_LIMIT_PROBE_MS_DEFAULT */
    unsigned tolerance_pct;      /* adaptive: how much longer calls may take than without a queue;
                                    default: WEIR_LIMIT_TOLERANCE_PCT_DEFAULT */
    int64_t latency_ms;          /* how long a wait should take at most; shown beside what is
                                    measured; 0: not said */
} weir_limit_spec;

/* weir_limit_spec_init - set every member to "not said". */
static inline void weir_limit_spec_init(weir_limit_spec *spec)
{
    memset(spec, 0, sizeof *spec);
}

/* weir_limit_open(scope, &spec, &limit) - Never suspends. */
WEIR_API WEIR_MUST_USE int weir_limit_open_sized(weir_scope *scope, size_t spec_bytes,
                                                 const weir_limit_spec *spec,
                                                 weir_limit **ret_limit);
#define weir_limit_open(scope, ...) \
    weir_limit_open_sized((scope), sizeof(weir_limit_spec), __VA_ARGS__)

/* What got in. The caller's storage, not to be copied; zeroed is none. */
typedef struct weir_limit_pass {
    const void *limit;
    int64_t began_ns;
} weir_limit_pass;

/* weir_limit_enter - get in. On success `ret_pass` is to be left. */
WEIR_SUSPENDS int weir_limit_enter(weir_limit *limit, weir_limit_pass *ret_pass);

/* weir_limit_leave - what got in is over, with this result. An adaptive limit learns from it: 0 or
 * more counts with the time since it got in; WEIR_ETIMEDOUT, -ETIMEDOUT and WEIR_EOVERLOAD say
 * that it was too much; other errors say nothing. To leave again, or after the limit was closed,
 * changes nothing. A pass of another limit is misuse and aborts with a sentence. Never
 * suspends. */
WEIR_API void weir_limit_leave(weir_limit *limit, weir_limit_pass *pass, int result);

/* weir_limit_resize - another concurrency, from 1 (adaptive: concurrency_min) to concurrency_max.
 * With less than are inside now nobody gets in until enough have left. An adaptive limit goes on
 * from there. Errors: WEIR_EREFUSED, WEIR_ECLOSED (by another worker, just now). Never
 * suspends. */
WEIR_API WEIR_MUST_USE int weir_limit_resize(weir_limit *limit, size_t concurrency);

/* What a limit has seen. */
typedef struct weir_limit_figures {
    size_t limit; /* now */
    size_t in_flight, in_flight_max;
    size_t waiting;    /* tasks, now */
    uint64_t admitted; /* calls that got in */
    uint64_t waited;   /* calls that have waited, whatever came of it */
    uint64_t rejected; /* calls that got WEIR_EOVERLOAD */
} weir_limit_figures;

/* weir_limit_figures_of - the figures now. Never suspends. */
WEIR_API void weir_limit_figures_of(weir_limit *limit, weir_limit_figures *ret_figures);

/* weir_limit_close - free it; who waits gets WEIR_ECLOSED. Takes NULL. Never suspends. */
WEIR_API void weir_limit_close(weir_limit *take_limit);

WEIR_END

#endif

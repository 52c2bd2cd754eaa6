/* guard.h - all policies around any function, in one order.
 *
 *     r = weir_guard_open(scope, &(weir_guard_spec){.name = "prices", .timeout_ms = 500,
 *             .attempt_timeout_ms = 100, .keep_limit = limit, .keep_breaker = breaker,
 *             .idempotent = true, .retry = {.attempts = 3, .backoff_ms = 20, .backoff_ms_max = 50,
 *             .errors = {-ECONNRESET, WEIR_ETIMEDOUT}, .on_exhausted = WEIR_EXHAUSTED_FAIL,
 *             .keep_budget = budget}, .fallback = last_known_price}, &prices);
 *     r = weir_guard_call(prices, fetch_price, &price, sizeof price, NULL);
 *
 * From the outside in, each part only if the spec names it:
 *
 *     deadline   timeout_ms for everything below, waits included; the caller's own deadlines and
 *                cancellations go on to hold
 *     shed       refuses what has waited too long to be let in (WEIR_EOVERLOAD)
 *     rate       one token for each call, however many attempts it takes (WEIR_EOVERLOAD, or
 *                waits); it comes back if the call is not tried at all
 *     limit      one permit from here to the end of the last attempt, waits between attempts
 *                included (WEIR_EOVERLOAD, or waits). An adaptive one learns nothing from how long
 *                a call took that went well only when it was tried again.
 *     breaker    lets the call in or refuses it (WEIR_EBREAKER), and counts it once, when its last
 *                attempt has ended: by what its caller would get, which is what the breaker
 *                protects. A call that needed three attempts and got its answer went well. When
 *                the breaker opens meanwhile, calls that it has let in are not tried again.
 *     retry      attempts, one after the other, with waits between them
 *     hedge      a second one beside an attempt that takes long; the first success counts
 *     call       fn, within attempt_timeout_ms, on a copy of the argument
 *     fallback   when all of that has failed or refused, in place of the result; not when the
 *                caller was cancelled. It is outside everything: nothing counts its result.
 *
 * What a call waits for rate and limit is its time in the queue, so shedding is decided when that
 * wait is over, as CoDel does; what is shed gives its permit and its token back. In
 * a stage of a pipeline it is the time in the stage's queue, and is decided first.
 *
 * fn gets a copy of the argument, a fresh one for each attempt, so that attempts that failed have
 * changed nothing, and two at a time do not meet. When one succeeds its copy goes back to the
 * caller's argument: results are written there. What the argument points at is shared, and fn must
 * leave it alone unless it succeeds.
 *
 * Owner: a scope. Lifetime: until it is closed or the scope ends; calls under way go on to their
 * end. What it names (keep_...) must outlive them. Backpressure: that of its parts. Failure: the
 * error of the last attempt, or of the part that refused, or the fallback's result (WEIR_PARTIAL);
 * with WEIR_EXHAUSTED_DEAD_LETTER also a letter, if it was tried, was not cancelled and no fallback
 * took its place.
 * Invariants: no call takes longer than timeout_ms and what fn does after its deadline; at most
 * attempts * 2 calls of fn (attempts without a hedge); a call ends with everything given back and
 * nothing left running.
 * Threads: tasks of the runtime, on any worker: a guard may be shared.
 */
#ifndef WEIR_GUARD_H
#define WEIR_GUARD_H

#include <weir/breaker.h>
#include <weir/chan.h>
#include <weir/dead_letter.h>
#include <weir/defs.h>
#include <weir/error.h>
#include <weir/limit.h>
#include <weir/pipeline.h>
#include <weir/retry.h>
#include <weir/shed.h>

WEIR_BEGIN

typedef struct weir_guard weir_guard;

/* Takes the place of a result: writes it into `arg`, which is as it was at the call; `error` is
 * what the call would end with. 0 or more: the call returns WEIR_PARTIAL; negative: that error
 * instead. It must not suspend. */
typedef int (*weir_fallback_fn)(void *arg, int error, void *keep_arg);

/* name and timeout_ms must be said; and attempt_timeout_ms, idempotent (or idempotency_key) and
 * all of `retry` for more than one attempt. */
typedef struct weir_guard_spec {
    const char *name;           /* copied, at most 31 bytes */
    int64_t timeout_ms;         /* of a whole call */
    int64_t attempt_timeout_ms; /* of one attempt, its hedge included; default: what is left */
    weir_shed *keep_shed;
    weir_rate *keep_rate;
    weir_limit *keep_limit;
    weir_breaker *keep_breaker;
    bool idempotent;             /* doing it twice is the same as once: needed for more than one
                                    attempt, and for a hedge; */
    const char *idempotency_key; /* or what makes it so ("header Idempotency-Key"); copied, at most
                                    31 bytes, shown on the map */
    weir_retry_spec retry;
    int64_t hedge_after_ms; /* how long an attempt takes before a second one is started beside it,
                               if the retry budget has a token; needs a budget; default: never */
    weir_fallback_fn fallback;
    void *keep_arg;     /* of fallback */
    int64_t latency_ms; /* how long a call should take; shown beside what is measured */
} weir_guard_spec;

/* weir_guard_spec_init - set every member to "not said". */
static inline void weir_guard_spec_init(weir_guard_spec *spec)
{
    memset(spec, 0, sizeof *spec);
}

/* weir_guard_open(scope, &spec, &guard) - Errors: WEIR_EREFUSED (weir_why; also if attempts *
 * attempt_timeout_ms and the longest waits between them are more than timeout_ms), WEIR_ECANCELED
 * (the scope is), WEIR_ENOTASK, -ENOMEM, -ENFILE. Never suspends. */
WEIR_API WEIR_MUST_USE int weir_guard_open_sized(weir_scope *scope, size_t spec_bytes,
                                                 const weir_guard_spec *spec,
                                                 weir_guard **ret_guard);
#define weir_guard_open(scope, ...) \
    weir_guard_open_sized((scope), sizeof(weir_guard_spec), __VA_ARGS__)

/* Which part a call ended at. */
enum weir_guard_end {
    WEIR_GUARD_OK = 0,
    WEIR_GUARD_SHED,     /* refused: not tried at all */
    WEIR_GUARD_RATE,     /* likewise, or its time was up while it waited */
    WEIR_GUARD_LIMIT,    /* likewise */
    WEIR_GUARD_BREAKER,  /* refused; or it opened after attempts had failed */
    WEIR_GUARD_FATAL,    /* an attempt ended with an error that is not to be tried again */
    WEIR_GUARD_ATTEMPTS, /* all attempts have failed */
    WEIR_GUARD_BUDGET,   /* an attempt has failed, and the retry budget was spent */
    WEIR_GUARD_TIME,     /* timeout_ms is up, or there was no time for another attempt */
    WEIR_GUARD_CANCELED, /* the caller was */
};

/* What came of a call. */
typedef struct weir_guard_outcome {
    enum weir_guard_end end; /* before the fallback */
    int error;               /* likewise; 0: it went well */
    int attempts;            /* begun, hedges not counted */
    int hedges;              /* begun beside them */
    bool hedge_won;          /* the result is one of these */
    bool is_dead_letter;     /* it was put into the sink */
    int64_t waited_ns;       /* for rate and limit */
    int64_t took_ns;         /* all in all, the fallback not included */
} weir_guard_outcome;

/* weir_guard_call - run fn(copy of `arg`) inside the guard. `arg_bytes` is 0 (`arg` may be NULL)
 * to WEIR_ITEM_BYTES_MAX. fn runs in the calling task, and a hedge in a child task. Returns 0, or
 * WEIR_PARTIAL if the fallback took its place; `arg` then has the result, and is unchanged after
 * an error. `ret_outcome` (may be NULL) is written also on error, unless the call was misused.
 * Cancel: as what fn calls: outcome unknown once an attempt has begun, nothing moved before.
 * Errors: those of fn; WEIR_EOVERLOAD (shed, rate, limit), WEIR_EBREAKER, WEIR_ETIMEDOUT (an
 * attempt's time, or timeout_ms, or the caller's block), WEIR_ECANCELED, WEIR_ECLOSED (the guard
 * or its breaker was closed), WEIR_EREFUSED (arg_bytes), WEIR_ENOTASK. */
WEIR_SUSPENDS int weir_guard_call(weir_guard *guard, weir_task_fn fn, void *arg, size_t arg_bytes,
                                  weir_guard_outcome *ret_outcome);

/* weir_guard_stage_policy - the guard as the policy of a stage (weir_stage_spec.keep_policy): shed,
 * rate, limit, breaker, retry with its waits, and dead letters, in the same order and with the same
 * meaning; the item is the argument. What a stage has itself is the stage's: its timeout_ms is that
 * of an attempt, the item's budget the deadline, its on_failure the fallback; so the guard's
 * timeouts are not used there. NULL, with a sentence (weir_why), for a guard that hedges or has a
 * fallback. The pointer is valid while the guard is open; any number of stages may share it. The
 * guard and its parts must be opened before the pipeline is, in its scope or one around it. Never
 * suspends. */
WEIR_API const weir_stage_policy *weir_guard_stage_policy(weir_guard *guard);

/* What it has seen, as of now; calls that are under way are in none of them. Items of stages
 * count as calls. */
typedef struct weir_guard_figures {
    uint64_t went_well, partial, failed;
    uint64_t refused; /* by shed, rate, limit or breaker, before any attempt; those that the
                         fallback made good are in partial too */
    uint64_t canceled;
    uint64_t attempts; /* begun, hedges not counted */
    uint64_t hedges, hedges_won;
    uint64_t dead_letters;
} weir_guard_figures;

/* weir_guard_figures_of - the figures now. Never suspends. */
WEIR_API void weir_guard_figures_of(weir_guard *guard, weir_guard_figures *ret_figures);

/* weir_guard_close - free it; calls under way go on to their end. Not while a stage has it as its
 * policy. Takes NULL. Never suspends. */
WEIR_API void weir_guard_close(weir_guard *take_guard);

WEIR_END

#endif

/* retry.h - trying again: a value that says how, and a budget that callers share.
 *
 * A weir_retry_spec is part of a guard (guard.h), which carries it out:
 *
 *     .retry = {.attempts = 3, .backoff_ms = 20, .backoff_ms_max = 200,
 *               .errors = {-ECONNRESET, -ECONNREFUSED, WEIR_ETIMEDOUT},
 *               .on_exhausted = WEIR_EXHAUSTED_FAIL, .keep_budget = budget},
 *
 * Before attempt n + 1 it waits a random time from 0 to min(backoff_ms * 2^(n-1),
 * backoff_ms_max): exponential, with full jitter and a cap. A wait that would end after the
 * deadline in force is not begun. Nothing is tried again that was cancelled: WEIR_ECANCELED is
 * never among the errors, so that a retry does not eat its caller's deadline.
 *
 * A budget is one bucket of tokens for everybody who shares it: each call brings ratio_percent
 * hundredths of a token, each second per_second tokens, at most burst are kept; a retry or a
 * hedge takes one. So when all calls fail, the load grows by the ratio and not by the number of
 * attempts. A retry that finds no token is not made: the call ends with its last error.
 *
 * Owner (budget): a scope. Lifetime: until it is closed or the scope ends. Backpressure: its
 * tokens; it has no queue and nobody waits for one. Failure: WEIR_EOVERLOAD when it is spent.
 * Invariants: retries <= burst + per_second * seconds + calls * ratio_percent / 100.
 * Threads: tasks and callbacks of the runtime, on any worker: it may be shared. No call suspends.
 */
#ifndef WEIR_RETRY_H
#define WEIR_RETRY_H

#include <weir/dead_letter.h>
#include <weir/defs.h>
#include <weir/error.h>

WEIR_BEGIN

typedef struct weir_retry_budget weir_retry_budget;

#define WEIR_ATTEMPTS_MAX 16
#define WEIR_RETRY_ERRORS_MAX 16
#define WEIR_RETRY_RATIO_PERCENT_MAX 1000
#define WEIR_RETRY_PER_SECOND_MAX 1000000
#define WEIR_RETRY_BURST_MAX 1000000
#define WEIR_RETRY_BURST_DEFAULT 10

/* What becomes of a call that has failed for good. Its caller has the error in any case. */
enum weir_exhausted {
    WEIR_EXHAUSTED_UNSET = 0,
    WEIR_EXHAUSTED_FAIL,        /* nothing more */
    WEIR_EXHAUSTED_DEAD_LETTER, /* its argument and its history go to keep_dead_letters */
};

/* attempts, backoff_ms, backoff_ms_max, errors and on_exhausted must be said if anything is; with
 * one attempt, to name what becomes of it when it fails, attempts and on_exhausted. */
typedef struct weir_retry_spec {
    int attempts;                      /* in all, the first one included: 1 to WEIR_ATTEMPTS_MAX */
    int64_t backoff_ms;                /* the longest wait before the second; doubled each time, */
    int64_t backoff_ms_max;            /* up to this */
    int errors[WEIR_RETRY_ERRORS_MAX]; /* that are tried again; 0 ends them */
    enum weir_exhausted on_exhausted;
    weir_dead_letters *keep_dead_letters; /* with WEIR_EXHAUSTED_DEAD_LETTER */
    weir_retry_budget *keep_budget;       /* default: none, the attempts are the only bound */
} weir_retry_spec;

/* weir_retry_spec_init - set every member to "not said". */
static inline void weir_retry_spec_init(weir_retry_spec *spec)
{
    memset(spec, 0, sizeof *spec);
}

/* name, and ratio_percent or per_second, must be said. */
typedef struct weir_retry_budget_spec {
    const char *name;       /* copied, at most 31 bytes */
    unsigned ratio_percent; /* retries for each 100 calls, to WEIR_RETRY_RATIO_PERCENT_MAX */
    unsigned per_second;    /* retries that there always are, to WEIR_RETRY_PER_SECOND_MAX */
    unsigned burst;         /* that are kept, to WEIR_RETRY_BURST_MAX; WEIR_RETRY_BURST_DEFAULT */
} weir_retry_budget_spec;

/* weir_retry_budget_spec_init - set every member to "not said". */
static inline void weir_retry_budget_spec_init(weir_retry_budget_spec *spec)
{
    memset(spec, 0, sizeof *spec);
}

/* weir_retry_budget_open(scope, &spec, &budget) - a budget, full. Errors: WEIR_EREFUSED
 * (weir_why), WEIR_ECANCELED (the scope is), WEIR_ENOTASK, -ENOMEM, -ENFILE. Never suspends. */
WEIR_API WEIR_MUST_USE int weir_retry_budget_open_sized(weir_scope *scope, size_t spec_bytes,
                                                        const weir_retry_budget_spec *spec,
                                                        weir_retry_budget **ret_budget);
#define weir_retry_budget_open(scope, ...) \
    weir_retry_budget_open_sized((scope), sizeof(weir_retry_budget_spec), __VA_ARGS__)

/* weir_retry_budget_call - a call is made: its share of a token comes in. Guards do this
 * themselves. Never suspends. */
WEIR_API void weir_retry_budget_call(weir_retry_budget *budget);

/* weir_retry_budget_take - a token for one more attempt: 0, or WEIR_EOVERLOAD (it is spent), or
 * WEIR_ECLOSED. Guards do this themselves. Never suspends. */
WEIR_API WEIR_MUST_USE int weir_retry_budget_take(weir_retry_budget *budget);

typedef struct weir_retry_budget_figures {
    unsigned tokens, burst; /* there now; at most */
    uint64_t calls;
    uint64_t taken;
    uint64_t returned; /* of those: a guard did not make the attempt after all */
    uint64_t refused;  /* it was spent */
} weir_retry_budget_figures;

/* weir_retry_budget_figures_of - the figures now. Never suspends. */
WEIR_API void weir_retry_budget_figures_of(weir_retry_budget *budget,
                                           weir_retry_budget_figures *ret_figures);

/* weir_retry_budget_close - free it. Takes NULL. Never suspends. */
WEIR_API void weir_retry_budget_close(weir_retry_budget *take_budget);

WEIR_END

#endif

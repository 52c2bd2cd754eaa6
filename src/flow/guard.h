/* guard.h - what a guard is inside, and what a call of it holds.
 *
 *     guard.c         opening, figures, its scope
 *     guard_parts.c   getting in: shed, rate, limit, breaker; whether to try again; how it ends
 *     guard_call.c    a call: deadlines, attempts, hedges, the fallback
 *     guard_stage.c   the same for an item of a pipeline's stage
 *
 * One call is a struct guarded, on the stack of its task (of a stage: in the item's memory):
 *
 *     guarded_init ──▶ guarded_enter ──0──▶ guarded_begin ──▶ (an attempt) ──▶ guarded_heard
 *                          │ refused             ▲                              │      │ done
 *                          │                     └──── again, after a wait ─────┘      │
 *                          └──────────────▶ guarded_end ◀──────────────────────────────┘
 *
 * Invariants: a guard never changes once it is open, but for its figures, which its lock covers;
 * a call is a holder and keeps its memory, also if it is closed meanwhile; guarded_end gives back
 * whatever guarded_enter took, exactly once.
 */
#ifndef WEIR_FLOW_GUARD_H
#define WEIR_FLOW_GUARD_H

#include <weir/guard.h>
#include <weir/limit.h>

#include "flow/meters.h"
#include "flow/sync.h"
#include "policy/breaker.h"
#include "policy/retry.h"

enum { GUARD_NONE = -1 };

struct guard_figures {
    uint64_t went_well, partial, failed, canceled;
    uint64_t refused[4]; /* shed, rate, limit, breaker: WEIR_GUARD_SHED and on */
    uint64_t made_good;  /* of those: by the fallback, so that they are partial */
    uint64_t retries;    /* attempts beyond the first of each call */
    uint64_t firsts;
    uint64_t exhausted[3]; /* attempts, budget, time: WEIR_GUARD_ATTEMPTS and on */
    uint64_t hedges, hedges_won;
    uint64_t dead_letters;
};

struct weir_guard {
    struct sync sync;
    struct metered metered;
    weir_guard_spec spec; /* its strings are not used */
    char idempotency_key[FLOW_NAME_BYTES];
    struct retry_rules rules;
    weir_stage_policy policy;
    unsigned holders;
    bool gone; /* its scope has let it go */
    struct guard_figures figures;
};

enum { GUARD_WAIT, GUARD_RUN }; /* histograms */

struct guarded {
    weir_guard *guard;
    int64_t began_ns, now_ns; /* the clock is read after whatever may have waited */
    int64_t entered_ns;       /* it was let in by all parts */
    bool has_rate, has_limit, has_breaker;
    bool has_token; /* of the retry budget, for an attempt that has not begun */
    weir_limit_pass limit_pass;
    struct breaker_pass breaker_pass;
    struct retry retry;
    enum weir_guard_end end;
    unsigned hedges;
    bool hedge_won;
    unsigned attempt_count;
    weir_attempt attempts[WEIR_LETTER_ATTEMPTS_MAX];
};

/* ---- guard.c ---- */

/* A call begins, unless the guard was closed; and ends, with what it has counted. */
int guard_hold(const weir_guard *handle, weir_guard *guard);
void guard_let_go(weir_guard *guard, const struct guarded *guarded, int result,
                  bool is_dead_letter);

/* ---- guard_parts.c ---- */

void guarded_init(struct guarded *guarded, weir_guard *guard, int64_t now_ns);
/* Get in, in the order of the header. `waited_ns`: in a queue before this, which is what shedding
 * goes by; or GUARD_NONE: by how long rate and limit take. May suspend. */
int guarded_enter(struct guarded *guarded, int64_t waited_ns);
/* An attempt begins at now_ns. */
void guarded_begin(struct guarded *guarded);
/* One has ended, at now_ns. */
void guarded_note(struct guarded *guarded, int result, int64_t began_ns, int64_t ended_ns,
                  bool is_hedge);
/* It, and its hedge, ended as its time was up: what they saw as a cancellation was that. */
void guarded_note_timeout(struct guarded *guarded);
/* What follows from the attempt's result: in how many ns to try again, or GUARD_NONE. */
int64_t guarded_heard(struct guarded *guarded, int result, int64_t deadline_ns);
/* Whether, after the wait, it may still be tried again: the breaker has not opened. */
bool guarded_may_go_on(struct guarded *guarded);
/* It is over, with `result` as its caller would get it before a fallback: give back, count. */
void guarded_end(struct guarded *guarded, int result);
/* Hand it over to the sink, if the guard says so: true, it was. */
bool guarded_bury(const struct guarded *guarded, const char *source, const char *sub_source,
                  int error, const void *item, size_t item_bytes);

/* ---- guard_stage.c ---- */

void guard_stage_init(weir_guard *guard);

#endif

/* guard_parts.c - getting through the parts of a guard, trying again, giving back. */
#include <assert.h>
#include <stdio.h>
#include <weir/runtime.h>

#include "base/planted.h"
#include "flow/breaker.h"
#include "flow/dead_letter.h"
#include "flow/guard.h"
#include "flow/limit.h"
#include "flow/retry_budget.h"

_Static_assert(sizeof(struct guarded) <= WEIR_STAGE_KEEP_BYTES, "a stage has room for it");

void guarded_init(struct guarded *guarded, weir_guard *guard, int64_t now_ns)
{
    guarded->guard = guard;
    guarded->began_ns = guarded->now_ns = guarded->entered_ns = now_ns;
    guarded->has_rate = guarded->has_limit = guarded->has_breaker = false;
    guarded->has_token = false;
    guarded->end = WEIR_GUARD_OK;
    guarded->hedges = 0;
    guarded->hedge_won = false;
    guarded->attempt_count = 0;
    retry_init(&guarded->retry, &guard->rules);
}

/* ---- Getting in ---- */

static int refused_at(struct guarded *guarded, enum weir_guard_end end, int error)
{
    guarded->end = error == WEIR_ECANCELED ? WEIR_GUARD_CANCELED : end;
    return error;
}

/* The clock is read again only if one of them has waited. */
static int enter_limits(struct guarded *guarded)
{
    const weir_guard_spec *spec = &guarded->guard->spec;
    int r;

    if (spec->keep_rate) {
        r = rate_take(spec->keep_rate, 1, guarded->now_ns);
        if (r < 0) return refused_at(guarded, WEIR_GUARD_RATE, r);
        guarded->has_rate = true;
        if (r == LINE_WAITED) guarded->now_ns = weir_now_ns();
    }
    if (spec->keep_limit) {
        r = limit_enter(spec->keep_limit, &guarded->limit_pass, guarded->now_ns);
        if (r < 0) return refused_at(guarded, WEIR_GUARD_LIMIT, r);
        guarded->has_limit = true;
        if (r == LINE_WAITED) guarded->now_ns = weir_now_ns();
    }
    return 0;
}

static int enter_shed(struct guarded *guarded, int64_t waited_ns)
{
    int r;

    if (!guarded->guard->spec.keep_shed) return 0;
    r = shed_enter(guarded->guard->spec.keep_shed, waited_ns,
                   PLANTED(SHED_CLOCK_STALE) ? guarded->began_ns : guarded->now_ns);
    return r < 0 ? refused_at(guarded, WEIR_GUARD_SHED, r) : 0;
}

int guarded_enter(struct guarded *guarded, int64_t waited_ns)
{
    const weir_guard_spec *spec = &guarded->guard->spec;
    int r = 0;

    if (waited_ns != GUARD_NONE) r = enter_shed(guarded, waited_ns);
    if (r == 0) r = enter_limits(guarded);
    if (r == 0 && waited_ns == GUARD_NONE) {
        r = enter_shed(guarded, guarded->now_ns - guarded->began_ns);
    }
    if (r == 0 && spec->keep_breaker) {
        r = breaker_ask(spec->keep_breaker, guarded->now_ns, &guarded->breaker_pass);
        if (r < 0) return refused_at(guarded, WEIR_GUARD_BREAKER, r);
        guarded->has_breaker = true;
    }
    if (r < 0) return r;
    guarded->entered_ns = guarded->now_ns;
    if (spec->retry.keep_budget) budget_deposit(spec->retry.keep_budget, guarded->now_ns);
    return 0;
}

/* ---- Attempts ---- */

void guarded_begin(struct guarded *guarded)
{
    guarded->has_token = false; /* it is used */
    retry_begin(&guarded->retry);
}

void guarded_note(struct guarded *guarded, int result, int64_t began_ns, int64_t ended_ns,
                  bool is_hedge)
{
    assert(guarded->attempt_count < WEIR_LETTER_ATTEMPTS_MAX);
    guarded->attempts[guarded->attempt_count++] =
        (weir_attempt){.began_ns = began_ns,
                       .run_ns = ended_ns - began_ns,
                       .error = result < 0 ? result : 0,
                       .number = (uint8_t)guarded->retry.attempts,
                       .is_hedge = is_hedge};
}

void guarded_note_timeout(struct guarded *guarded)
{
    for (unsigned i = guarded->attempt_count; i-- > 0;) {
        weir_attempt *attempt = &guarded->attempts[i];
        if (attempt->number != guarded->retry.attempts) return;
        if (attempt->error == WEIR_ECANCELED) attempt->error = WEIR_ETIMEDOUT;
    }
}

static uint64_t random_number(void)
{
    const struct kernel *kernel = worker_self()->kernel;
    uint64_t random;

    kernel->random(kernel, &random, sizeof random);
    return random;
}

bool guarded_may_go_on(struct guarded *guarded)
{
    if (!guarded->has_breaker) return true;
    if (breaker_holds(guarded->guard->spec.keep_breaker, &guarded->breaker_pass)) return true;
    retry_give_up(&guarded->retry, RETRY_BREAKER);
    return false;
}

/* Apart: most calls need no second attempt. */
static __attribute__((noinline)) int64_t plan_next(struct guarded *guarded, int64_t deadline_ns)
{
    weir_retry_budget *budget = guarded->guard->spec.retry.keep_budget;
    int64_t wait_ns;

    wait_ns = retry_wait(&guarded->retry, random_number(), guarded->now_ns, deadline_ns);
    if (wait_ns < 0 || !guarded_may_go_on(guarded)) return GUARD_NONE;
    if (budget && budget_withdraw(budget, guarded->now_ns) < 0) {
        retry_give_up(&guarded->retry, RETRY_NO_BUDGET);
        return GUARD_NONE;
    }
    guarded->has_token = budget != NULL;
    return wait_ns;
}

int64_t guarded_heard(struct guarded *guarded, int result, int64_t deadline_ns)
{
    if (!retry_heard(&guarded->retry, result)) return GUARD_NONE;
    return plan_next(guarded, deadline_ns);
}

/* ---- The end ---- */

static enum weir_guard_end end_of(enum retry_end end)
{
    switch (end) {
    case RETRY_WENT_WELL: return WEIR_GUARD_OK;
    case RETRY_FATAL: return WEIR_GUARD_FATAL;
    case RETRY_ATTEMPTS: return WEIR_GUARD_ATTEMPTS;
    case RETRY_NO_BUDGET: return WEIR_GUARD_BUDGET;
    case RETRY_NO_TIME: return WEIR_GUARD_TIME;
    case RETRY_BREAKER: return WEIR_GUARD_BREAKER;
    default: return WEIR_GUARD_CANCELED;
    }
}

/* What was not tried, shed or refused by the breaker, tells a limit nothing; nor does how long it
 * took to go well after all, with the attempts that failed and the waits between them. */
static int result_for_limit(const struct guarded *guarded, int result)
{
    uint32_t attempts = guarded->retry.attempts;

    return attempts == 0 || (attempts > 1 && result >= 0) ? WEIR_ECANCELED : result;
}

void guarded_end(struct guarded *guarded, int result)
{
    const weir_guard_spec *spec = &guarded->guard->spec;

    if (guarded->retry.attempts > 0 && guarded->end == WEIR_GUARD_OK) {
        guarded->end = end_of(guarded->retry.end);
    }
    if (result == WEIR_ECANCELED) guarded->end = WEIR_GUARD_CANCELED;
    if (guarded->has_token && !PLANTED(BUDGET_TOKEN_KEPT)) {
        budget_give_back(spec->retry.keep_budget);
        guarded->has_token = false;
    }
    if (guarded->has_breaker) {
        breaker_tell(spec->keep_breaker, &guarded->breaker_pass,
                     guarded->retry.attempts > 0 ? result : WEIR_ECANCELED,
                     guarded->now_ns - guarded->entered_ns, guarded->now_ns);
        guarded->has_breaker = false;
    }
    if (guarded->has_limit) {
        limit_leave(spec->keep_limit, &guarded->limit_pass, result_for_limit(guarded, result),
                    guarded->now_ns);
        guarded->has_limit = false;
    }
    if (__builtin_expect(guarded->retry.attempts == 0 && guarded->has_rate, 0)) {
        /* Those behind it would wait for what nobody has used: where all wait too long, so that
         * all are shed, no call would ever be made. */
        rate_give_back(spec->keep_rate, 1);
    }
    guarded->has_rate = false;
}

static enum weir_letter_reason reason_of(enum weir_guard_end end)
{
    switch (end) {
    case WEIR_GUARD_FATAL: return WEIR_LETTER_FATAL;
    case WEIR_GUARD_ATTEMPTS: return WEIR_LETTER_ATTEMPTS;
    case WEIR_GUARD_BUDGET: return WEIR_LETTER_BUDGET;
    case WEIR_GUARD_TIME: return WEIR_LETTER_TIME;
    case WEIR_GUARD_BREAKER: return WEIR_LETTER_BREAKER;
    default: return WEIR_LETTER_UNSET;
    }
}

static __attribute__((noinline)) bool bury(const struct guarded *guarded, const char *source,
                                           const char *sub_source, int error, const void *item,
                                           size_t item_bytes)
{
    weir_letter letter;

    memset(&letter, 0, sizeof letter);
    (void)snprintf(letter.source, sizeof letter.source, "%s%s%s", source, *sub_source ? "/" : "",
                   sub_source);
    letter.error = error;
    letter.reason = reason_of(guarded->end);
    letter.first_ns = guarded->began_ns;
    letter.last_ns = guarded->now_ns;
    letter.attempt_count = guarded->attempt_count;
    memcpy(letter.attempts, guarded->attempts, guarded->attempt_count * sizeof letter.attempts[0]);
    return letters_put(guarded->guard->spec.retry.keep_dead_letters, &letter, item, item_bytes) ==
           0;
}

bool guarded_bury(const struct guarded *guarded, const char *source, const char *sub_source,
                  int error, const void *item, size_t item_bytes)
{
    if (guarded->guard->spec.retry.on_exhausted != WEIR_EXHAUSTED_DEAD_LETTER) return false;
    if (guarded->retry.attempts == 0 || guarded->end == WEIR_GUARD_CANCELED) return false;
    return bury(guarded, source, sub_source, error, item, item_bytes);
}

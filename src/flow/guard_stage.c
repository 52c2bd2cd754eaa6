/* guard_stage.c - a guard in the policy slot of a pipeline's stage.
 *
 * The stage makes the attempts, in its own time limits and on its own copies of the item; this
 * lets the item in before the first one, says after each whether there is another, and gives
 * everything back when the stage is done with it. What is kept meanwhile is in the item's memory.
 */
#include <weir/runtime.h>

#include "flow/guard.h"

#define MS_NS INT64_C(1000000)

static enum weir_stage_refusal refusal_of(enum weir_guard_end end)
{
    switch (end) {
    case WEIR_GUARD_SHED: return WEIR_REFUSED_SHED;
    case WEIR_GUARD_RATE:
    case WEIR_GUARD_LIMIT: return WEIR_REFUSED_LIMIT;
    case WEIR_GUARD_BREAKER: return WEIR_REFUSED_BREAKER;
    default: return WEIR_REFUSED_POLICY;
    }
}

static int last_error(const struct guarded *guarded)
{
    return guarded->attempts[guarded->attempt_count - 1].error;
}

static int stage_before(void *keep_state, const weir_stage_attempt *attempt)
{
    struct guarded *guarded = attempt->keep;
    weir_guard *guard = keep_state;
    int r;

    if (attempt->number > 1) {
        if (!guarded_may_go_on(guarded)) {
            *attempt->ret_refusal = WEIR_REFUSED_BREAKER;
            return last_error(guarded);
        }
        guarded_begin(guarded);
        return 0;
    }
    sync_lock(&guard->sync);
    guard->holders++;
    sync_unlock(&guard->sync);
    guarded_init(guarded, guard, weir_now_ns());
    r = guarded_enter(guarded, attempt->waited_ns);
    if (r < 0) {
        *attempt->ret_refusal = refusal_of(guarded->end);
        return r;
    }
    guarded_begin(guarded);
    return 0;
}

static int64_t stage_after(void *keep_state, const weir_stage_attempt *attempt, int result,
                           int64_t run_ns)
{
    struct guarded *guarded = attempt->keep;
    int64_t wait_ns;

    (void)keep_state;
    guarded->now_ns = weir_now_ns();
    guarded_note(guarded, result, guarded->now_ns - run_ns, guarded->now_ns, false);
    wait_ns = guarded_heard(guarded, result, attempt->deadline_ns);
    return wait_ns == GUARD_NONE ? WEIR_STAGE_DONE : wait_ns / MS_NS;
}

static void stage_ended(void *keep_state, const weir_stage_attempt *attempt, int result)
{
    struct guarded *guarded = attempt->keep;
    weir_guard *guard = keep_state;
    bool is_dead_letter = false;

    /* The item's budget is a deadline of this block: not its caller's, and not a cancellation. */
    if (result == WEIR_ECANCELED && task_interruption(task_self(), false) == WEIR_ETIMEDOUT) {
        result = WEIR_ETIMEDOUT;
        if (guarded->retry.attempts > 0) guarded->end = WEIR_GUARD_TIME;
    }
    /* It was to be tried again, and its time was up while it waited, or it was cancelled. */
    if (guarded->retry.state == RETRY_WAITING) {
        bool timed_out = task_interruption(task_self(), false) == WEIR_ETIMEDOUT;
        retry_give_up(&guarded->retry, timed_out ? RETRY_NO_TIME : RETRY_INTERRUPTED);
        if (!timed_out) result = WEIR_ECANCELED;
    }
    guarded_end(guarded, result);
    if (result < 0) {
        is_dead_letter = guarded_bury(guarded, attempt->pipeline, attempt->stage, result,
                                      attempt->item, attempt->item_bytes);
    }
    guard_let_go(guard, guarded, result < 0 ? result : 0, is_dead_letter);
}

static int64_t stage_worst_case_ms(void *keep_state, int64_t timeout_ms)
{
    const weir_guard *guard = keep_state;
    int64_t waits_ms = (retry_backoff_total_ns(&guard->rules) + MS_NS - 1) / MS_NS;
    int64_t attempts = guard->rules.attempts_max;

    if (timeout_ms > (INT64_MAX - waits_ms) / attempts) return INT64_MAX;
    return attempts * timeout_ms + waits_ms;
}

void guard_stage_init(weir_guard *guard)
{
    guard->policy = (weir_stage_policy){
        .before = stage_before,
        .after = stage_after,
        .ended = stage_ended,
        .worst_case_ms = stage_worst_case_ms,
        .attempts_max = (int)guard->rules.attempts_max,
        .keep_state = guard,
    };
}

const weir_stage_policy *weir_guard_stage_policy(weir_guard *handle)
{
    weir_guard *guard = flow_look_up(handle, HANDLE_GUARD, "guard", "weir_guard_stage_policy");
    const char *name = guard->sync.object.name;

    if (guard->spec.hedge_after_ms > 0) {
        (void)refuse("guard '%s': a stage cannot be hedged: hedge_after_ms must not be set", name);
        return NULL;
    }
    if (guard->spec.fallback) {
        (void)refuse("guard '%s': a stage has a fallback of its own: this one must not be set",
                     name);
        return NULL;
    }
    return &guard->policy;
}

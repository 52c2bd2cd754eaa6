/* guard_call.c - a call of a guard: deadlines, attempts, hedges, the fallback. */
#include <assert.h>
#include <string.h>
#include <weir/runtime.h>

#include "base/planted.h"
#include "flow/guard.h"
#include "flow/retry_budget.h"
#include "policy/hedge.h"
#include "watch/trace.h"

enum { SMALL_BYTES = 256 };

struct calling {
    struct guarded guarded; /* the first member */
    struct task *self;
    weir_task_fn fn;
    void *arg;
    size_t arg_bytes;
    unsigned char *copies[2]; /* of the argument, for an attempt and for its hedge */
    unsigned char *winner;    /* the one that has the result */
};

static int64_t clock_now(void)
{
    const struct kernel *kernel = worker_self()->kernel;
    return kernel->now_ns(kernel);
}

/* Without bytes to copy the pointer is the argument. */
static int call_fn(const struct calling *call, unsigned char *copy)
{
    if (call->arg_bytes == 0) return call->fn(call->arg);
    flow_copy(copy, call->arg, call->arg_bytes);
    return call->fn(copy);
}

/* ---- Hedging: the attempt, the timer and the hedge take turns on one worker ---- */

struct hedging {
    struct calling *call;
    struct hedge machine;
    struct timer timer;
    weir_scope *scope;
    bool started; /* there is a hedge */
    bool began;   /* and it has called the function */
    /* What the caller works with, as it was before the attempt. */
    struct local *locals;
    struct trace_node *trace;
};

static int hedge_main(void *arg)
{
    struct hedging *hedging = *(struct hedging **)arg;
    struct calling *call = hedging->call;
    struct task *self = task_self();
    int64_t began_ns = clock_now();
    int r;

    if (hedging->machine.state == HEDGE_DONE) return 0; /* too late, and cancelled */
    hedging->began = true;
    sanitize_acquire(hedging);
    if (hedging->locals || hedging->trace) {
        /* It was spawned by a timer, and does its caller's work. */
        self->locals = local_ref(hedging->locals);
        self->trace = trace_ref(hedging->trace);
        self->has_extras = true;
    }
    r = call_fn(call, call->copies[1]);
    guarded_note(&call->guarded, r, began_ns, clock_now(), true);
    if (hedge_heard(&hedging->machine, 1, r)) {
        weir_scope_cancel(hedging->scope, 0, "the hedge of this attempt was faster");
    }
    return 0;
}

static void hedge_is_due(struct worker *worker, struct timer *timer)
{
    struct hedging *hedging = container_of(timer, struct hedging, timer);
    weir_retry_budget *budget = hedging->call->guarded.guard->spec.retry.keep_budget;

    if (hedging->call->self->attention & SIGNAL_INTERRUPTS) return; /* it ends anyway */
    if (!hedge_due(&hedging->machine)) return;
    if (budget_withdraw(budget, worker->now_ns) < 0) {
        hedge_undo(&hedging->machine);
        return;
    }
    if (weir_spawn_named(hedging->scope, "hedge", hedge_main, &hedging, sizeof hedging) < 0) {
        budget_give_back(budget);
        hedge_undo(&hedging->machine);
        return;
    }
    hedging->started = true;
}

static int open_hedging(struct hedging *hedging)
{
    struct calling *call = hedging->call;
    struct worker *worker = worker_self();
    weir_scope *scope;
    int r = scope_open(worker, call->self, "hedge_after_ms of a guard",
                       &(weir_scope_spec){.name = call->guarded.guard->sync.object.name,
                                          .on_failure = WEIR_COLLECT,
                                          .max_tasks = 1,
                                          .overflow = WEIR_REJECT,
                                          .place = WEIR_PLACE_HERE},
                       &scope);

    if (r < 0) return r;
    /* The function has the stack that it would have here. */
    scope->size_class = call->self->size_class;
    scope->special = scope->size_class != worker->runtime->default_class;
    hedging->scope = scope;
    return 0;
}

/* There was a hedge, and it is over. */
static void end_hedge(const struct hedging *hedging)
{
    struct guarded *guarded = &hedging->call->guarded;

    guarded->now_ns = clock_now();
    if (hedging->began) {
        guarded->hedges++;
    } else if (!PLANTED(HEDGE_TOKEN_KEPT)) { /* the attempt ended before it had its turn */
        budget_give_back(guarded->guard->spec.retry.keep_budget);
    }
}

static __attribute__((noinline)) int attempt_hedged(struct calling *call, int64_t began_ns)
{
    struct hedging hedging = {.call = call};
    struct guarded *guarded = &call->guarded;
    int64_t due_ns = time_after_ms(began_ns, guarded->guard->spec.hedge_after_ms);
    int r = open_hedging(&hedging);

    if (r < 0) return r;
    if (call->self->has_extras) {
        hedging.locals = local_ref(call->self->locals);
        hedging.trace = trace_ref(call->self->trace);
    }
    hedge_init(&hedging.machine);
    timer_init(&hedging.timer, hedge_is_due);
    timer_arm(worker_self(), &hedging.timer, due_ns);
    sanitize_release(&hedging);
    r = call_fn(call, call->copies[0]);
    timer_disarm(worker_self(), &hedging.timer);
    guarded->now_ns = clock_now();
    guarded_note(guarded, r, began_ns, guarded->now_ns, false);
    if (hedge_heard(&hedging.machine, 0, r) && hedging.started && !PLANTED(HEDGE_RUNS_ON)) {
        weir_scope_cancel(hedging.scope, 0, "the attempt that this is a hedge of was faster");
    }
    r = weir_scope_close(hedging.scope); /* waits for the hedge, if there is one */
    (void)r;                             /* the machine has its result */
    if (hedging.started) end_hedge(&hedging);
    local_unref(hedging.locals);
    trace_unref(hedging.trace);
    assert(hedging.machine.state == HEDGE_DONE);
    if (hedging.machine.winner == 1) {
        call->winner = call->copies[1];
        guarded->hedge_won = true;
    }
    return hedging.machine.result;
}

/* ---- Attempts ---- */

/* One attempt, within its time. */
static int attempt(struct calling *call)
{
    struct guarded *guarded = &call->guarded;
    const weir_guard_spec *spec = &guarded->guard->spec;
    int64_t began_ns = guarded->now_ns;
    weir_block block WEIR_UNINITIALIZED_;
    int r;

    guarded_begin(guarded);
    call->winner = call->copies[0];
    if (spec->attempt_timeout_ms > 0) {
        block_enter_deadline(&block, call->self, began_ns,
                             time_after_ms(began_ns, spec->attempt_timeout_ms),
                             "attempt_timeout_ms of a guard");
    }
    if (spec->hedge_after_ms > 0) {
        r = attempt_hedged(call, began_ns);
    } else {
        r = call_fn(call, call->copies[0]);
        guarded->now_ns = clock_now();
        guarded_note(guarded, r, began_ns, guarded->now_ns, false);
    }
    /* In a scope inside this block its own deadline looks like a cancellation. */
    if (r == WEIR_ECANCELED && task_interruption(call->self, false) == WEIR_ETIMEDOUT) {
        r = WEIR_ETIMEDOUT;
        guarded_note_timeout(guarded);
    }
    if (spec->attempt_timeout_ms > 0) weir_block_leave(&block);
    return r;
}

static __attribute__((noinline)) int wait_for_next(struct calling *call, int64_t wait_ns)
{
    int r = task_enter(call->self, ENTER_PLAIN);

    if (r == 0) r = timer_sleep_until(call->guarded.now_ns + wait_ns);
    call->guarded.now_ns = clock_now();
    return r;
}

/* The result of the last one; or of a wait between two that was cancelled. */
static int attempt_all(struct calling *call)
{
    struct guarded *guarded = &call->guarded;

    for (;;) {
        int r = attempt(call), waited;
        int64_t wait_ns = guarded_heard(guarded, r, call->self->top->deadline_ns);

        if (wait_ns == GUARD_NONE) return r;
        waited = wait_for_next(call, wait_ns);
        if (waited < 0) {
            bool timed_out = waited == WEIR_ETIMEDOUT;
            retry_give_up(&guarded->retry, timed_out ? RETRY_NO_TIME : RETRY_INTERRUPTED);
            return timed_out ? r : waited;
        }
        if (!guarded_may_go_on(guarded)) return r;
    }
}

/* ---- The call ---- */

/* Everything but the fallback: its result as the guard sees it. */
static int run_inside(struct calling *call)
{
    struct guarded *guarded = &call->guarded;
    weir_guard *guard = guarded->guard;
    weir_block block WEIR_UNINITIALIZED_;
    int r, interruption;

    block_enter_deadline(&block, call->self, guarded->now_ns,
                         time_after_ms(guarded->now_ns, guard->spec.timeout_ms),
                         "timeout_ms of a guard");
    r = guarded_enter(guarded, GUARD_NONE);
    if (__builtin_expect(r == 0, 1)) {
        r = attempt_all(call);
    } else if (guard->spec.keep_rate || guard->spec.keep_limit) {
        guarded->now_ns = clock_now();
    }
    interruption = task_interruption(call->self, false);
    if (__builtin_expect(interruption < 0, 0)) {
        if (r == WEIR_ECANCELED) r = interruption;
        if (r == WEIR_ETIMEDOUT && interruption == r) guarded_note_timeout(guarded);
        if (r == WEIR_ETIMEDOUT && interruption == r && guarded->retry.attempts > 0) {
            guarded->end = WEIR_GUARD_TIME;
        }
    }
    weir_block_leave(&block);
    guarded_end(guarded, r);
    return r;
}

/* What it has failed with becomes of it: the fallback's result, or the error. */
static __attribute__((noinline)) int fail(struct calling *call, int error, bool *ret_is_dead_letter)
{
    struct guarded *guarded = &call->guarded;
    const weir_guard_spec *spec = &guarded->guard->spec;
    int interruption, r = error;

    if (guarded->end == WEIR_GUARD_CANCELED) {
        /* Inside our block the deadline of the caller's own looked like a cancellation. */
        interruption = task_interruption(call->self, false);
        return interruption < 0 ? interruption : error;
    }
    if (spec->fallback) {
        void *arg = call->arg;
        if (call->arg_bytes > 0) {
            flow_copy(call->copies[0], call->arg, call->arg_bytes);
            arg = call->winner = call->copies[0];
        }
        r = spec->fallback(arg, error, spec->keep_arg);
        if (r >= 0) return WEIR_PARTIAL;
    }
    *ret_is_dead_letter = guarded_bury(guarded, guarded->guard->sync.object.name, "", error,
                                       call->arg, call->arg_bytes);
    return r;
}

static void fill_outcome(const struct guarded *guarded, int error, bool is_dead_letter,
                         weir_guard_outcome *ret_outcome)
{
    *ret_outcome = (weir_guard_outcome){
        .end = guarded->end,
        .error = error < 0 ? error : 0,
        .attempts = (int)guarded->retry.attempts,
        .hedges = (int)guarded->hedges,
        .hedge_won = guarded->hedge_won,
        .is_dead_letter = is_dead_letter,
        .waited_ns = guarded->entered_ns - guarded->began_ns,
        .took_ns = guarded->now_ns - guarded->began_ns,
    };
}

/* The guard is held, and let go. */
static int run(weir_guard *guard, struct calling *call, weir_guard_outcome *ret_outcome)
{
    bool is_dead_letter = false;
    int error, r;

    guarded_init(&call->guarded, guard, clock_now());
    error = run_inside(call);
    r = error >= 0 ? 0 : fail(call, error, &is_dead_letter);
    if (r >= 0 && call->arg_bytes > 0) flow_copy(call->arg, call->winner, call->arg_bytes);
    if (ret_outcome) fill_outcome(&call->guarded, error, is_dead_letter, ret_outcome);
    guard_let_go(guard, &call->guarded, r, is_dead_letter);
    return r;
}

/* With room for the copies. */
static __attribute__((noinline)) int run_large(weir_guard *guard, struct calling *call,
                                               weir_guard_outcome *ret_outcome)
{
    unsigned char copies[2][WEIR_ITEM_BYTES_MAX] WEIR_UNINITIALIZED_ __attribute__((aligned(16)));

    call->copies[0] = copies[0];
    call->copies[1] = copies[1];
    return run(guard, call, ret_outcome);
}

static __attribute__((noinline)) int run_small(weir_guard *guard, struct calling *call,
                                               weir_guard_outcome *ret_outcome)
{
    unsigned char copies[2][SMALL_BYTES] WEIR_UNINITIALIZED_ __attribute__((aligned(16)));

    call->copies[0] = copies[0];
    call->copies[1] = copies[1];
    return run(guard, call, ret_outcome);
}

static int refuse_arg(const weir_guard *guard, weir_task_fn fn, const void *arg, size_t arg_bytes)
{
    const char *name = guard->sync.object.name;

    if (!fn) return refuse("guard '%s': a call without a function", name);
    if (arg_bytes > WEIR_ITEM_BYTES_MAX) {
        return refuse("guard '%s': arg_bytes is %zu, at most %d (pass a pointer instead)", name,
                      arg_bytes, WEIR_ITEM_BYTES_MAX);
    }
    if (arg_bytes > 0 && !arg) return refuse("guard '%s': arg is NULL", name);
    return 0;
}

int weir_guard_call(weir_guard *handle, weir_task_fn fn, void *arg, size_t arg_bytes,
                    weir_guard_outcome *ret_outcome)
{
    weir_guard *guard = flow_look_up(handle, HANDLE_GUARD, "guard", "weir_guard_call");
    struct task *self = task_self();
    struct calling call WEIR_UNINITIALIZED_;
    int r;

    if (!self) return refuse_no_task("weir_guard_call");
    if (__builtin_expect(!fn || arg_bytes > WEIR_ITEM_BYTES_MAX || (arg_bytes > 0 && !arg), 0)) {
        return refuse_arg(guard, fn, arg, arg_bytes);
    }
    r = task_enter(self, ENTER_PLAIN);
    if (r == 0) r = guard_hold(handle, guard);
    if (r < 0) {
        if (ret_outcome)
            *ret_outcome = (weir_guard_outcome){.end = WEIR_GUARD_CANCELED, .error = r};
        return r;
    }
    call.self = self;
    call.fn = fn;
    call.arg = arg;
    call.arg_bytes = arg_bytes;
    if (arg_bytes <= SMALL_BYTES) return run_small(guard, &call, ret_outcome);
    return run_large(guard, &call, ret_outcome);
}

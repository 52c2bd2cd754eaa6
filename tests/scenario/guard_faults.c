/* guard_faults.c - guards and their parts when anything fails: every allocation in turn, a cancel
 * at every suspension; and when a thousand callers share them.
 */
#include <errno.h>
#include <string.h>

#include "base/atomic.h"
#include "rt/runtime.h"
#include "unit/flow/guard_test.h"
#include "unit/flow/pipeline_test.h"

struct parts {
    weir_breaker *breaker;
    weir_retry_budget *budget;
    weir_dead_letters *sink;
    weir_guard *guard, *hedged;
    weir_pipeline *pipeline;
};

static void lose_letter(const weir_letter *letter, const void *item, void *keep_arg)
{
    (void)item;
    CHECK(letter->id > 0);
    if (keep_arg) (void)atom_add((ATOM(int) *)keep_arg, 1);
}

static int step_with_failures(void *data, void *keep_arg)
{
    struct item *item = data;
    ATOM(int) *turn = keep_arg;
    int r = weir_yield();

    item->trail++;
    if (r < 0) return r;
    return atom_add(turn, 1) % 3 == 0 ? -EAGAIN : 0;
}

static int open_parts(weir_scope *scope, struct parts *parts, ATOM(int) * lost)
{
    weir_breaker_spec breaker = breaker_spec();
    weir_guard_spec guard = guard_spec(), hedged;
    int r;

    breaker.open_ms = 1;
    breaker.calls_min = 8;
    r = weir_breaker_open(scope, &breaker, &parts->breaker);
    if (r < 0) return r;
    r = weir_retry_budget_open(
        scope, &(weir_retry_budget_spec){.name = "budget", .ratio_percent = 50, .burst = 100},
        &parts->budget);
    if (r < 0) return r;
    r = weir_dead_letters_open(scope,
                               &(weir_dead_letters_spec){.name = "dead",
                                                         .capacity = 4,
                                                         .item_bytes_max = 64,
                                                         .overflow = WEIR_DROP_OLDEST,
                                                         .on_lost = lose_letter,
                                                         .keep_arg = lost},
                               &parts->sink);
    if (r < 0) return r;
    guard.attempt_timeout_ms = 5000 * test_slower();
    guard.timeout_ms = 20000 * test_slower();
    guard.keep_breaker = parts->breaker;
    guard.retry = thrice_spec(parts->budget);
    guard.retry.backoff_ms = guard.retry.backoff_ms_max = 1;
    guard.retry.on_exhausted = WEIR_EXHAUSTED_DEAD_LETTER;
    guard.retry.keep_dead_letters = parts->sink;
    r = weir_guard_open(scope, &guard, &parts->guard);
    if (r < 0) return r;
    hedged = guard;
    hedged.name = "hedged";
    hedged.hedge_after_ms = 1;
    return weir_guard_open(scope, &hedged, &parts->hedged);
}

static int open_pipeline(weir_scope *scope, struct parts *parts, ATOM(int) * turn)
{
    weir_stage_spec stages[1] = {stage(0)};
    weir_pipeline_spec spec = {.name = "pipe",
                               .item_bytes = sizeof(struct item),
                               .budget_ms = 18000,
                               .stages = stages,
                               .stage_count = 1,
                               .on_lost = note_lost};

    stages[0].fn = step_with_failures;
    stages[0].keep_arg = turn;
    stages[0].concurrency = 2;
    stages[0].idempotent = true;
    stages[0].keep_policy = weir_guard_stage_policy(parts->guard);
    return weir_pipeline_open(scope, &spec, &parts->pipeline);
}

/* What was let in has left, and what was accepted has ended. */
static void check_parts(const struct parts *parts)
{
    weir_breaker_figures b;
    weir_dead_letters_figures d;

    weir_breaker_figures_of(parts->breaker, &b);
    CHECK_INT(b.let_in, ==, b.went_well + b.failed + b.silent);
    weir_dead_letters_figures_of(parts->sink, &d);
    CHECK_INT(d.put, ==, d.depth + d.taken + d.purged + d.lost);
}

static int tolerated(int r)
{
    CHECK(r >= 0 || r == WEIR_ECANCELED || r == WEIR_ETIMEDOUT || r == WEIR_EBREAKER ||
          r == WEIR_ECLOSED || r == -EAGAIN || r == -ENOMEM);
    return r;
}

/* ---- Sweeps ---- */

static int is_fault(int r)
{
    return r == WEIR_ECANCELED || r == -ENOMEM ? r : 0;
}

/* One call of each kind: tried again, hedged, failing for good, through a stage. */
static int use_parts(struct parts *parts)
{
    struct script again = SCRIPT({2, -EAGAIN}, {0, 0}), slow = SCRIPT({5, 0}, {1, 0}),
                  fatal = SCRIPT({1, -EAGAIN});
    struct item item = {0};
    int r;

    r = is_fault(tolerated(call_script(parts->guard, &again, NULL, NULL)));
    if (r == 0) r = is_fault(tolerated(call_script(parts->hedged, &slow, NULL, NULL)));
    if (r == 0) r = is_fault(tolerated(call_script(parts->guard, &fatal, NULL, NULL)));
    if (r == 0) r = is_fault(tolerated(weir_pipeline_call(parts->pipeline, &item, NULL)));
    return r;
}

struct user {
    struct parts *parts;
};

static int use_in_task(void *arg)
{
    return use_parts(((struct user *)arg)->parts);
}

static int body(void *arg)
{
    static ATOM(int) turn; /* outlives the pipeline */
    struct parts parts = {0};
    int r = 0, result = 0;

    (void)arg;
    reset();
    atom_store(&turn, 0);
    WEIR_DEADLINE(20000) {
        /* The parts are around what is cancelled, so that they can be looked at. */
        WEIR_SCOPE(outer, &result, .name = "outer", .on_failure = WEIR_COLLECT, .max_tasks = 8,
                   .overflow = WEIR_REJECT) {
            r = open_parts(outer, &parts, NULL);
            if (r < 0) break;
            WEIR_SCOPE(inner, &r, .name = "inner", .on_failure = WEIR_FAIL_FAST, .max_tasks = 8,
                       .overflow = WEIR_REJECT) {
                runtime_cancel_target(inner);
                r = open_pipeline(inner, &parts, &turn);
                if (r == 0) {
                    r = weir_spawn(inner, use_in_task, &(struct user){&parts}, sizeof(struct user));
                }
                if (r == 0) r = weir_scope_join(inner);
            }
            check_parts(&parts);
        }
    }
    return r < 0 ? r : result;
}

static int scenario(void *arg)
{
    int workers = *(int *)arg;
    return weir_run(&(weir_config){.workers = workers, .log_level = WEIR_LOG_OFF}, body, NULL);
}

TEST_WITH(guards_survive_every_failed_allocation, .timeout_ms = 60000)
{
    for (int workers = 1; workers <= 2; workers++) {
        CHECK_INT(test_sweep_alloc(scenario, &workers), >=, 10);
    }
}

TEST_WITH(guards_cancelled_anywhere_give_everything_back, .timeout_ms = 60000)
{
    for (int workers = 1; workers <= 2; workers++) {
        CHECK_INT(test_sweep_cancel(scenario, &workers), >=, 8);
    }
}

/* ---- A thousand callers ---- */

enum { CALLERS = 1000, CALLS = 5 };

struct crowd {
    struct parts *parts;
    ATOM(uint64_t) turn, began, failed, partial;
};

static int fail_sometimes(void *arg)
{
    struct crowd *crowd = *(struct crowd **)arg;
    uint64_t turn = atom_add(&crowd->turn, 1);
    int r = turn % 4 == 0 ? weir_sleep(1) : weir_yield();

    (void)atom_add(&crowd->began, 1);
    if (r < 0) return r;
    if (turn % 7 == 0) return -EIO;
    return turn % 3 == 0 ? -EAGAIN : 0;
}

static int caller(void *arg)
{
    struct crowd *crowd = *(struct crowd **)arg;

    for (int i = 0; i < CALLS; i++) {
        struct crowd *pointer = crowd;
        weir_guard *guard = i % 2 ? crowd->parts->hedged : crowd->parts->guard;
        int r = weir_guard_call(guard, fail_sometimes, &pointer, sizeof pointer, NULL);
        CHECK(r == 0 || r == -EIO || r == -EAGAIN || r == WEIR_EBREAKER);
        CHECK(pointer == crowd);
    }
    return 0;
}

FLOW_TEST(guards_shared_by_a_thousand_callers_keep_their_sums)
{
    static ATOM(int) lost;
    struct parts parts = {0};
    struct crowd crowd = {.parts = &parts};
    struct crowd *pointer = &crowd;
    int result;

    FLOW_SCOPE_ANYWHERE(scope, &result)
    {
        weir_guard_figures f, h;
        weir_breaker_figures b;
        weir_retry_budget_figures budget;
        weir_dead_letters_figures d;
        CHECK_OK(open_parts(scope, &parts, &lost));
        for (int i = 0; i < CALLERS; i++) {
            CHECK_OK(weir_spawn(scope, caller, &pointer, sizeof pointer));
        }
        CHECK_OK(weir_scope_join(scope));
        check_parts(&parts);
        weir_guard_figures_of(parts.guard, &f);
        weir_guard_figures_of(parts.hedged, &h);
        weir_breaker_figures_of(parts.breaker, &b);
        weir_retry_budget_figures_of(parts.budget, &budget);
        weir_dead_letters_figures_of(parts.sink, &d);
        CHECK_INT(f.went_well + f.failed + f.refused + h.went_well + h.failed + h.refused, ==,
                  CALLERS * CALLS);
        CHECK_INT(b.let_in, ==, CALLERS * CALLS - f.refused - h.refused);
        CHECK_INT(b.went_well, ==, f.went_well + h.went_well);
        CHECK_INT(b.failed, ==, f.failed + h.failed);
        CHECK_INT(b.refused, ==, f.refused + h.refused);
        CHECK_INT(budget.calls, ==, b.let_in);
        /* Every attempt, and every hedge that came to run, was one call of the function. */
        CHECK_INT(atom_load(&crowd.began), ==, f.attempts + h.attempts + h.hedges);
        /* So was every token that did not come back. */
        CHECK_INT(f.attempts + h.attempts + h.hedges - b.let_in, ==,
                  budget.taken - budget.returned);
        CHECK_INT(d.put, ==, f.dead_letters + h.dead_letters);
        CHECK_INT(d.put, ==, f.failed + h.failed);
    }
    return result;
}

/* cancel_sweep.c - cancelled at every suspension point in turn.
 *
 * Each scenario gives the scope it works in to runtime_cancel_target, so that the
 * runtime itself goes on and the scenario can look at what is left. What every run
 * must show: all tasks have ended, each cleanup has run exactly once, nothing leaks.
 */
#include <errno.h>

#include "rt/runtime.h"
#include "unit/rt/support.h"

/* What was begun and what was cleaned up, over all tasks of a run. */
struct ledger {
    ATOM(int) begun;
    ATOM(int) cleaned;
    ATOM(int) finished;
};

static bool cancelled(int r)
{
    CHECK(r >= 0 || r == WEIR_ECANCELED);
    return r < 0;
}

struct scene {
    int (*play)(struct ledger *ledger);
    int workers;
};

static struct ledger *ledger_of_run;

static int run_scene(void *arg)
{
    const struct scene *scene = arg;
    struct ledger ledger = {0};
    weir_scope *target = open_scope("target", WEIR_FAIL_FAST);
    int r, closed;

    runtime_cancel_target(target);
    ledger_of_run = &ledger;
    r = scene->play(&ledger);
    closed = weir_scope_close(target);
    CHECK(r >= 0 || r == WEIR_ECANCELED);
    CHECK(closed == 0 || closed == WEIR_ECANCELED);
    CHECK_INT(atom_load(&ledger.begun), ==, atom_load(&ledger.cleaned));
    return r < 0 ? 0 : r;
}

static int scenario(void *arg)
{
    const struct scene *scene = arg;

    return run_on(scene->workers, run_scene, arg);
}

static int sweep(int (*play)(struct ledger *ledger), int workers)
{
    struct scene scene = {play, workers};

    return test_sweep_cancel(scenario, &scene);
}

/* ---- Each suspending call ---- */

static int play_calls(struct ledger *ledger)
{
    weir_scope *scope;
    weir_task task;
    int r, result = 7;

    (void)ledger;
    if (cancelled(r = weir_yield())) return r;
    if (cancelled(r = weir_checkpoint())) return r;
    if (cancelled(r = weir_sleep(5))) return r;
    if (cancelled(r = weir_sleep(0))) return r;
    scope = open_bounded("calls", WEIR_FAIL_FAST, 1, WEIR_WAIT);
    r = weir_task_spawn(
        scope, &(weir_task_spec){.fn = return_argument, .arg = &result, .arg_bytes = sizeof result},
        &task);
    if (!cancelled(r)) {
        int got = 0;

        r = weir_task_join(task, &got);
        if (!cancelled(r)) CHECK_INT(got, ==, 7);
    }
    result = 0;
    /* The second one waits for room. */
    for (int i = 0; i < 3 && !cancelled(r); i++)
        r = weir_spawn(scope, return_argument, &result, sizeof result);
    if (!cancelled(r)) r = weir_scope_join(scope);
    result = weir_scope_close(scope);
    CHECK(result == 0 || result == WEIR_ECANCELED);
    return r < 0 ? r : result;
}

TEST(cancel_at_every_suspension_of_every_call)
{
    test_clock_auto();
    CHECK_INT(sweep(play_calls, 1), >=, 10);
}

/* ---- Nested scopes with shields that clean up ---- */

static int cleaning_task(void *arg)
{
    int depth = *(int *)arg - 1;
    struct ledger *ledger = ledger_of_run;
    int r, result = 0;

    (void)atom_add(&ledger->begun, 1);
    r = weir_sleep(2);
    if (r == 0 && depth > 0) {
        WEIR_SCOPE(scope, &result, .name = "nested", .on_failure = WEIR_FAIL_FAST, .max_tasks = 4,
                   .overflow = WEIR_WAIT) {
            for (int i = 0; i < 2 && r == 0; i++)
                r = weir_spawn(scope, cleaning_task, &depth, sizeof depth);
        }
        if (r == 0) r = result;
    }
    /* Cleanup suspends itself, and must get through. */
    WEIR_SHIELD(60000) {
        int cleaning = weir_sleep(1);

        CHECK_OK(cleaning);
        WEIR_SCOPE(scope, &result, .name = "cleanup", .on_failure = WEIR_FAIL_FAST, .max_tasks = 1,
                   .overflow = WEIR_WAIT) {
            CHECK_OK(weir_spawn(scope, return_argument, &(int){0}, sizeof(int)));
        }
        CHECK_OK(result);
        (void)atom_add(&ledger->cleaned, 1);
    }
    return r;
}

static int play_nested(struct ledger *ledger)
{
    int depth = 3;

    (void)ledger;
    return cleaning_task(&depth);
}

TEST_WITH(cancel_at_every_suspension_of_three_nested_scopes_with_shields, .timeout_ms = 60000)
{
    test_clock_auto();
    CHECK_INT(sweep(play_nested, 1), >=, 30);
}

TEST_WITH(cancel_at_every_suspension_of_nested_scopes_on_two_workers, .timeout_ms = 60000)
{
    CHECK_INT(sweep(play_nested, 2), >=, 30);
}

/* ---- Supervised tasks ---- */

static int crash_twice(void *arg)
{
    ATOM(int) *starts = *(ATOM(int) **)arg;
    struct ledger *ledger = ledger_of_run;
    int r;

    (void)atom_add(&ledger->begun, 1);
    r = weir_sleep(1);
    (void)atom_add(&ledger->cleaned, 1);
    if (r < 0) return r;
    return atom_add(starts, 1) < 2 ? -EIO : 0;
}

static int play_supervised(struct ledger *ledger)
{
    ATOM(int) starts[2] = {0, 0};
    weir_scope *scope;
    int r = 0, closed;

    (void)ledger;
    CHECK_OK(weir_scope_open(
        &(weir_scope_spec){.name = "supervised",
                           .on_failure = WEIR_SUPERVISE,
                           .max_tasks = 2,
                           .overflow = WEIR_WAIT,
                           .restart = {.max_restarts = 4, .window_ms = 1000, .backoff_ms = 3}},
        &scope));
    for (int i = 0; i < 2 && r == 0; i++) {
        ATOM(int) *pointer = &starts[i];

        r = weir_spawn(scope, crash_twice, &pointer, sizeof pointer);
    }
    closed = weir_scope_close(scope);
    CHECK(closed == 0 || closed == WEIR_ECANCELED);
    if (closed == 0 && r == 0) CHECK_INT(atom_load(&starts[0]), ==, 3);
    return r < 0 ? r : closed;
}

TEST(cancel_at_every_suspension_of_supervised_tasks)
{
    test_clock_auto();
    CHECK_INT(sweep(play_supervised, 1), >=, 5);
}

/* ---- Timers and postboxes ---- */

static void fire(weir_timer *timer, void *arg)
{
    int *fired = arg;

    if (++*fired < 3) weir_timer_start(timer, 1);
}

static int posted(void *arg)
{
    struct ledger *ledger = *(struct ledger **)arg;
    int r = weir_sleep(1);

    (void)atom_add(&ledger->cleaned, 1); /* what it was given is its own, cancelled or not */
    return r;
}

static int play_belongings(struct ledger *ledger)
{
    weir_scope *scope = open_bounded("belongings", WEIR_FAIL_FAST, 2, WEIR_WAIT);
    weir_postbox *box = NULL;
    weir_timer *timer = NULL;
    int fired = 0, r, closed;

    r = weir_timer_open(scope, &(weir_timer_spec){.name = "t", .on_fire = fire, .keep_arg = &fired},
                        &timer);
    CHECK(r == 0 || r == WEIR_ECANCELED);
    if (r == 0) weir_timer_start(timer, 1);
    r = weir_postbox_open(
        scope, &(weir_postbox_spec){.name = "b", .capacity = 8, .overflow = WEIR_REJECT}, &box);
    CHECK(r == 0 || r == WEIR_ECANCELED);
    for (int i = 0; i < 5 && box != NULL; i++) {
        CHECK_OK(weir_post(box, posted, &ledger, sizeof ledger));
        (void)atom_add(&ledger->begun, 1);
        if (i == 2) r = weir_sleep(2);
    }
    if (r == 0) r = weir_sleep(10);
    if (r == 0) CHECK_INT(fired, ==, 3);
    closed = weir_scope_close(scope);
    CHECK(closed == 0 || closed == WEIR_ECANCELED);
    weir_postbox_unref(box);
    return r < 0 ? r : closed;
}

TEST(cancel_at_every_suspension_with_timers_and_posts)
{
    test_clock_auto();
    CHECK_INT(sweep(play_belongings, 1), >=, 5);
}

/* ---- A ring of tasks that join each other, with handles and single cancels ---- */

static int wait_a_while(void *arg)
{
    struct ledger *ledger = ledger_of_run;
    int r;

    (void)arg;
    (void)atom_add(&ledger->begun, 1);
    r = weir_sleep(5);
    (void)atom_add(&ledger->cleaned, 1);
    return r;
}

static int join_one(void *arg)
{
    int result = 0;
    int r = weir_task_join(*(weir_task *)arg, &result);

    return r < 0 ? r : result;
}

static int play_handles(struct ledger *ledger)
{
    weir_scope *waiters = open_scope("waiters", WEIR_FAIL_FAST);
    weir_scope *joiners = open_scope("joiners", WEIR_COLLECT);
    weir_task tasks[3];
    int r = 0, count = 0, first, second;

    (void)ledger;
    for (; count < 3 && r == 0; count++) {
        r = weir_task_spawn(waiters, &(weir_task_spec){.fn = wait_a_while}, &tasks[count]);
        if (r < 0) break;
        r = weir_spawn(joiners, join_one, &tasks[count], sizeof tasks[count]);
    }
    if (r == 0) r = weir_sleep(1);
    if (r == 0) CHECK_OK(weir_task_cancel(tasks[1], "just this one"));
    first = weir_scope_close(joiners);
    /* The joiner of the task that was cancelled alone fails with what it got. */
    CHECK(first == 0 || first == WEIR_ECANCELED);
    second = weir_scope_close(waiters);
    CHECK(second == 0 || second == WEIR_ECANCELED);
    return r;
}

TEST(cancel_at_every_suspension_of_joins_and_single_cancels)
{
    test_clock_auto();
    CHECK_INT(sweep(play_handles, 1), >=, 8);
}

/* ---- The root scope: the whole runtime ends cleanly ---- */

static int ledger_main(void *arg)
{
    struct ledger *ledger = arg;
    int depth = 2;

    *ledger = (struct ledger){0};
    ledger_of_run = ledger;
    return cleaning_task(&depth);
}

static int whole_runtime(void *arg)
{
    struct ledger *ledger = arg;
    int r = run_on(1, ledger_main, ledger);

    CHECK(r == 0 || r == WEIR_ECANCELED);
    CHECK_INT(atom_load(&ledger->begun), ==, atom_load(&ledger->cleaned));
    return r;
}

TEST(cancel_of_the_root_at_every_suspension_ends_the_runtime_cleanly)
{
    struct ledger ledger;

    test_clock_auto();
    CHECK_INT(test_sweep_cancel(whole_runtime, &ledger), >=, 15);
}

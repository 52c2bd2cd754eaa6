/* rt_cancel.c - cancellation in simulation: at any moment, to the end, and not beyond. */
#include "sim/rt_programs.h"

static weir_scope *open_scope(const char *name, size_t max_tasks)
{
    weir_scope *scope;

    CHECK_OK(weir_scope_open(&(weir_scope_spec){.name = name,
                                                .on_failure = WEIR_FAIL_FAST,
                                                .max_tasks = max_tasks,
                                                .overflow = WEIR_WAIT},
                             &scope));
    return scope;
}

static void spawn_on(weir_scope *scope, int worker, weir_task_fn fn, const void *arg, size_t bytes,
                     weir_task *ret_task)
{
    CHECK_OK(weir_task_spawn(
        scope,
        &(weir_task_spec){
            .fn = fn, .arg = arg, .arg_bytes = bytes, .place = WEIR_PLACE_WORKER, .worker = worker},
        ret_task));
}

/* ---- A canceller on another worker ---- */

static struct {
    bool cancelled;
    int started, ended;
} cut;

/* From its first ECANCELED on a task gets nothing else. */
static int wait_in_many_ways(void *arg)
{
    weir_cause_info info;
    int r = 0;

    (void)arg;
    cut.started++;
    while (r == 0) {
        switch (weir_sim_choose(3)) {
        case 0: r = weir_yield(); break;
        case 1: r = weir_sleep(1); break;
        default: r = rt_sleep_forever(); break;
        }
    }
    CHECK_INT(r, ==, WEIR_ECANCELED);
    CHECK(cut.cancelled);
    CHECK_INT(weir_cause(&info), ==, WEIR_CAUSE_CANCEL);
    CHECK_STR(info.why, "enough");
    CHECK_STR(info.scope, "cut");
    for (int i = 0; i < 3; i++) CHECK_INT(weir_yield(), ==, WEIR_ECANCELED);
    CHECK_INT(weir_sleep(1), ==, WEIR_ECANCELED);
    cut.ended++;
    return r;
}

static int cancel_it(void *arg)
{
    weir_scope *scope = *(weir_scope **)arg;

    for (unsigned n = weir_sim_choose(3); n > 0; n--) CHECK_OK(weir_yield());
    cut.cancelled = true;
    weir_scope_cancel(scope, -EPIPE, "enough");
    return 0;
}

int rt_program_cancel(void *arg)
{
    weir_scope *beside, *scope;
    int spawned = 0, r = 0;

    (void)arg;
    rt_begin();
    memset(&cut, 0, sizeof cut);
    beside = open_scope("beside", 4);
    scope = open_scope("cut", 4);
    spawn_on(beside, 1, cancel_it, &scope, sizeof scope, NULL);
    for (int i = 0; i < 3 && r == 0; i++) {
        r = weir_spawn(scope, wait_in_many_ways, NULL, 0);
        if (r == 0) spawned++;
    }
    if (r < 0) CHECK_INT(r, ==, WEIR_ECANCELED);
    CHECK_INT(weir_scope_close(scope), ==, -EPIPE);
    CHECK_INT(cut.started, ==, spawned);
    CHECK_INT(cut.ended, ==, spawned);
    CHECK_OK(weir_scope_close(beside));
    CHECK_OK(weir_checkpoint());
    return 0;
}

SIM_TEST(rt_cancel_reaches_every_task_at_any_moment, .runs_max = 20000, .config = &rt_two_workers,
         .run_ms_max = 100)
{
    return rt_program_cancel(arg);
}

/* ---- One task among others ---- */

static int nap(void *arg)
{
    int r = weir_sleep(*(int *)arg);

    CHECK_INT(rt_ms(), ==, r == 0 ? *(int *)arg : 2);
    return r;
}

int rt_program_cancel_one(void *arg)
{
    static const int naps[] = {5, 5, 2};
    weir_task tasks[3];
    weir_scope *scope;
    int results[3];

    (void)arg;
    rt_begin();
    scope = open_scope("naps", 4);
    for (int i = 0; i < 3; i++) spawn_on(scope, i % 2, nap, &naps[i], sizeof(int), &tasks[i]);
    CHECK_OK(weir_task_join(tasks[2], &results[2]));
    CHECK_INT(results[2], ==, 0);
    CHECK_OK(weir_task_cancel(tasks[1], "not this one"));
    CHECK_INT(weir_task_cancel(tasks[2], "it is gone"), ==, WEIR_ECLOSED);
    CHECK_OK(weir_task_join(tasks[1], &results[1]));
    CHECK_INT(results[1], ==, WEIR_ECANCELED);
    CHECK_INT(rt_ms(), ==, 2);
    CHECK_OK(weir_task_join(tasks[0], &results[0]));
    CHECK_INT(results[0], ==, 0);
    CHECK_OK(weir_scope_close(scope));
    CHECK_INT(rt_ms(), ==, 5);
    return 0;
}

SIM_TEST(rt_cancel_of_one_task_leaves_the_others, .runs_max = 10000, .config = &rt_two_workers)
{
    return rt_program_cancel_one(arg);
}

/* ---- A join that is given up while its task ends ---- */

static int end_some_time(void *arg)
{
    (void)arg;
    for (unsigned n = weir_sim_choose(3); n > 0; n--) CHECK_OK(weir_yield());
    return 42;
}

static int join_until_cancelled(void *arg)
{
    int result = 0;
    int r = weir_task_join(*(weir_task *)arg, &result);

    CHECK(r == 0 ? result == 42 : r == WEIR_ECANCELED);
    /* The handle was used up, or it stays usable. */
    WEIR_SHIELD(10) {
        int again = weir_task_join(*(weir_task *)arg, &result);
        CHECK_INT(again, ==, r == 0 ? WEIR_ECLOSED : 0);
    }
    CHECK_INT(result, ==, 42);
    return r;
}

int rt_program_join_given_up(void *arg)
{
    weir_task ender, joiner;
    weir_scope *scope;
    int result = 1;

    (void)arg;
    rt_begin();
    scope = open_scope("joined", 4);
    spawn_on(scope, 1, end_some_time, NULL, 0, &ender);
    spawn_on(scope, 0, join_until_cancelled, &ender, sizeof ender, &joiner);
    CHECK_OK(weir_yield());
    (void)weir_task_cancel(joiner, "give it up");
    CHECK_OK(weir_task_join(joiner, &result));
    CHECK(result == 0 || result == WEIR_ECANCELED);
    CHECK_OK(weir_scope_close(scope));
    CHECK_INT(rt_ms(), ==, 0);
    return 0;
}

SIM_TEST(rt_join_that_is_given_up_moves_nothing, .runs_max = 20000, .config = &rt_two_workers)
{
    return rt_program_join_given_up(arg);
}

/* ---- The opener inside its own scope ---- */

static int cancel_the_opener(void *arg)
{
    CHECK_OK(weir_yield());
    weir_scope_cancel(*(weir_scope **)arg, 0, "the answer is there");
    return 0;
}

int rt_program_opener(void *arg)
{
    weir_scope *scope;
    int shielded;

    (void)arg;
    rt_begin();
    scope = open_scope("own", 2);
    CHECK_OK(weir_spawn(scope, cancel_the_opener, &scope, sizeof scope));
    CHECK_INT(rt_sleep_forever(), ==, WEIR_ECANCELED);
    CHECK_INT(weir_yield(), ==, WEIR_ECANCELED);
    CHECK_INT(rt_ms(), ==, 0);
    /* Cleanup has its time, to the millisecond, and no more. */
    WEIR_SHIELD(5) {
        CHECK_OK(weir_sleep(3));
        CHECK_INT(rt_ms(), ==, 3);
        shielded = weir_sleep(10);
        CHECK(shielded == WEIR_ECANCELED || shielded == WEIR_ETIMEDOUT);
        CHECK_INT(rt_ms(), ==, 5);
    }
    CHECK_INT(weir_yield(), ==, WEIR_ECANCELED);
    CHECK_OK(weir_scope_close(scope));
    CHECK_OK(weir_sleep(1));
    CHECK_INT(rt_ms(), ==, 6);
    return 0;
}

SIM_TEST(rt_opener_is_cancelled_inside_its_scope, .runs_max = 10000, .config = &rt_two_workers)
{
    return rt_program_opener(arg);
}

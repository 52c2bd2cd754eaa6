/* rt_scope.c - scopes in simulation: failures travel, and nothing outlives a close. */
#include "sim/rt_programs.h"

/* ---- Fail fast ---- */

static struct {
    int started, cancelled;
    int fails_at_ms;
} fast;

static int wait_for_the_failure(void *arg)
{
    weir_cause_info info;

    (void)arg;
    fast.started++;
    CHECK_INT(rt_sleep_forever(), ==, WEIR_ECANCELED);
    CHECK_INT(weir_cause(&info), ==, WEIR_CAUSE_FAILURE);
    CHECK_INT(info.error, ==, -EIO);
    CHECK_INT(rt_ms(), ==, fast.fails_at_ms);
    CHECK_INT(weir_yield(), ==, WEIR_ECANCELED);
    CHECK_INT(weir_checkpoint(), ==, WEIR_ECANCELED);
    fast.cancelled++;
    return WEIR_ECANCELED;
}

static int fail_some_time(void *arg)
{
    (void)arg;
    fast.fails_at_ms = (int)weir_sim_choose(3);
    if (fast.fails_at_ms > 0) CHECK_OK(weir_sleep(fast.fails_at_ms));
    return -EIO;
}

SIM_TEST(rt_failure_cancels_siblings_at_once, .runs_max = 20000, .config = &rt_two_workers)
{
    weir_scope *scope;
    int spawned = 0;

    rt_begin();
    memset(&fast, 0, sizeof fast);
    CHECK_OK(weir_scope_open(
        &(weir_scope_spec){
            .name = "fast", .on_failure = WEIR_FAIL_FAST, .max_tasks = 8, .overflow = WEIR_REJECT},
        &scope));
    for (int i = 0; i < 4; i++) {
        weir_task_fn fn = i == 1 ? fail_some_time : wait_for_the_failure;
        int r = weir_spawn(scope, fn, NULL, 0);

        if (r == 0)
            spawned++;
        else
            CHECK_INT(r, ==, WEIR_ECANCELED);
    }
    CHECK_INT(weir_scope_close(scope), ==, -EIO);
    CHECK_INT(fast.started, ==, spawned - 1);
    CHECK_INT(fast.cancelled, ==, spawned - 1);
    CHECK_INT(rt_ms(), ==, fast.fails_at_ms);
    CHECK_INT(weir_checkpoint(), ==, 0);
    return 0;
}

/* ---- Collect ---- */

static struct {
    int ended;
    int first_error;
} collected;

static int end_with(void *arg)
{
    int result = *(int *)arg;

    CHECK_OK(weir_yield());
    collected.ended++;
    if (result < 0 && collected.first_error == 0) collected.first_error = result;
    return result;
}

SIM_TEST(rt_collected_failures_disturb_nobody, .runs_max = 20000, .config = &rt_two_workers)
{
    static const int results[] = {-EIO, 0, -EPERM, 7};
    weir_failure failures[4];
    weir_scope *scope;
    int r;

    rt_begin();
    memset(&collected, 0, sizeof collected);
    CHECK_OK(weir_scope_open(
        &(weir_scope_spec){
            .name = "all", .on_failure = WEIR_COLLECT, .max_tasks = 4, .overflow = WEIR_REJECT},
        &scope));
    for (int i = 0; i < 4; i++) {
        CHECK_OK(weir_spawn(scope, end_with, &results[i], sizeof results[i]));
    }
    r = weir_scope_join(scope);
    CHECK_INT(collected.ended, ==, 4);
    CHECK_INT(weir_scope_task_count(scope), ==, 0);
    CHECK_INT(weir_scope_failures(scope, failures, 4), ==, 2);
    CHECK_INT(failures[0].error + failures[1].error, ==, -EIO - EPERM);
    CHECK_INT(failures[0].error, ==, r);
    CHECK_INT(weir_scope_close(scope), ==, r);
    CHECK_INT(rt_ms(), ==, 0);
    return 0;
}

/* ---- Supervise ---- */

static struct {
    int runs;
    int alive, alive_max;
    int sibling_ended;
} supervised;

struct attempt {
    int fails;
    int changed;
};

static int fail_for_a_while(void *arg)
{
    struct attempt *attempt = arg;
    static const int at_ms[] = {0, 10, 30, 70, 110};

    CHECK_INT(attempt->changed, ==, 0);
    attempt->changed = 1;
    CHECK_INT(weir_task_restarts(), ==, supervised.runs);
    CHECK_INT(rt_ms(), ==, at_ms[supervised.runs]);
    supervised.runs++;
    CHECK_INT(++supervised.alive, ==, 1);
    CHECK_OK(weir_yield());
    supervised.alive--;
    return supervised.runs <= attempt->fails ? -EIO : 0;
}

static int live_beside_it(void *arg)
{
    int64_t ms = *(int64_t *)arg;
    int r = weir_sleep(ms);

    CHECK(r == 0 || r == WEIR_ECANCELED);
    supervised.sibling_ended++;
    return r;
}

static weir_scope *supervise(int fails, int64_t sibling_ms)
{
    struct attempt attempt = {.fails = fails};
    weir_scope *scope;

    rt_begin();
    memset(&supervised, 0, sizeof supervised);
    CHECK_OK(weir_scope_open(&(weir_scope_spec){.name = "kept alive",
                                                .on_failure = WEIR_SUPERVISE,
                                                .max_tasks = 4,
                                                .overflow = WEIR_REJECT,
                                                .restart = {.max_restarts = 4,
                                                            .window_ms = 1000,
                                                            .backoff_ms = 10,
                                                            .backoff_ms_max = 40}},
                             &scope));
    CHECK_OK(weir_spawn(scope, fail_for_a_while, &attempt, sizeof attempt));
    CHECK_OK(weir_spawn(scope, live_beside_it, &sibling_ms, sizeof sibling_ms));
    return scope;
}

SIM_TEST(rt_supervised_task_is_started_again_on_time, .runs_max = 10000, .config = &rt_two_workers)
{
    weir_scope *scope = supervise(3, 50);

    CHECK_OK(weir_scope_close(scope));
    CHECK_INT(supervised.runs, ==, 4);
    CHECK_INT(supervised.sibling_ended, ==, 1);
    CHECK_INT(rt_ms(), ==, 70);
    return 0;
}

SIM_TEST(rt_supervision_gives_up_beyond_its_intensity, .runs_max = 10000, .config = &rt_two_workers)
{
    weir_scope *scope = supervise(9, 5000);

    CHECK_INT(weir_scope_close(scope), ==, -EIO);
    CHECK_INT(supervised.runs, ==, 5);
    CHECK_INT(supervised.sibling_ended, ==, 1);
    CHECK_INT(rt_ms(), ==, 110);
    return 0;
}

static int stop_it(void *arg)
{
    CHECK_OK(weir_sleep(weir_sim_choose(2) * 10));
    weir_scope_stop(*(weir_scope **)arg, 1000);
    return 0;
}

/* A task that waits for its restart when the scope is stopped is not started again. */
int rt_program_supervise_stop(void *arg)
{
    weir_scope *scope = supervise(9, 25);
    weir_scope *beside;
    int runs;

    (void)arg;
    CHECK_OK(weir_scope_open(&(weir_scope_spec){.name = "beside",
                                                .on_failure = WEIR_FAIL_FAST,
                                                .max_tasks = 1,
                                                .overflow = WEIR_REJECT},
                             &beside));
    CHECK_OK(weir_spawn(beside, stop_it, &scope, sizeof scope));
    CHECK_OK(weir_scope_close(beside));
    runs = supervised.runs;
    CHECK_INT(weir_scope_close(scope), ==, -EIO);
    /* One that was running when the stop came may have been on its way. */
    CHECK_INT(supervised.runs, <=, runs + 1);
    CHECK_INT(supervised.sibling_ended, ==, 1);
    CHECK_INT(rt_ms(), ==, 25);
    return 0;
}

SIM_TEST(rt_stopped_supervision_restarts_nobody, .runs_max = 10000, .config = &rt_two_workers)
{
    return rt_program_supervise_stop(arg);
}

/* ---- Joins ---- */

static struct {
    int ended[3];
    int joined;
} joins;

static int end_as_told(void *arg)
{
    int index = *(int *)arg;

    for (int i = 0; i < index; i++) CHECK_OK(weir_yield());
    joins.ended[index]++;
    return 100 + index;
}

static int join_the_first(void *arg)
{
    weir_task task = *(weir_task *)arg;
    int result = 0;
    int r = weir_task_join(task, &result);

    CHECK(r == 0 || r == WEIR_EINUSE || r == WEIR_ECLOSED);
    if (r == 0) {
        CHECK_INT(result, ==, 100);
        CHECK_INT(joins.ended[0], ==, 1);
        joins.joined++;
    }
    return 0;
}

SIM_TEST(rt_result_of_a_task_is_taken_once, .runs_max = 20000, .config = &rt_two_workers)
{
    weir_scope *scope;
    weir_task tasks[3];

    rt_begin();
    memset(&joins, 0, sizeof joins);
    CHECK_OK(weir_scope_open(&(weir_scope_spec){.name = "joined",
                                                .on_failure = WEIR_FAIL_FAST,
                                                .max_tasks = 8,
                                                .overflow = WEIR_REJECT},
                             &scope));
    for (int i = 0; i < 3; i++) {
        CHECK_OK(weir_task_spawn(scope,
                                 &(weir_task_spec){.fn = end_as_told,
                                                   .arg = &i,
                                                   .arg_bytes = sizeof i,
                                                   .place = WEIR_PLACE_WORKER,
                                                   .worker = i % 2},
                                 &tasks[i]));
    }
    CHECK_OK(weir_spawn(scope, join_the_first, &tasks[0], sizeof tasks[0]));
    CHECK_OK(weir_spawn(scope, join_the_first, &tasks[0], sizeof tasks[0]));
    for (int i = 2; i > 0; i--) {
        int result = 0;

        CHECK_OK(weir_task_join(tasks[i], &result));
        CHECK_INT(result, ==, 100 + i);
        CHECK_INT(joins.ended[i], ==, 1);
        CHECK_INT(weir_task_join(tasks[i], NULL), ==, WEIR_ECLOSED);
    }
    CHECK_OK(weir_scope_close(scope));
    CHECK_INT(joins.joined, ==, 1);
    CHECK_INT(weir_task_join(tasks[0], NULL), ==, WEIR_ECLOSED);
    CHECK_INT(rt_ms(), ==, 0);
    return 0;
}

/* ---- Trees ---- */

static struct {
    int alive, started, ended, spawned;
} tree;

static int grow(void *arg)
{
    int depth = *(int *)arg - 1;
    weir_scope *scope;
    int r = 0, below = 0, ended;

    tree.started++;
    tree.alive++;
    WEIR_SCOPE(branch, &r, .name = "branch", .on_failure = WEIR_FAIL_FAST, .max_tasks = 2,
               .overflow = WEIR_WAIT) {
        scope = branch;
        for (int i = 0; i < 2 && depth > 0 && r == 0; i++) {
            r = weir_spawn(scope, grow, &depth, sizeof depth);
            if (r == 0) below++;
        }
        tree.spawned += below;
        ended = weir_yield();
        if (r == 0) r = ended;
    }
    CHECK(r == 0 || r == WEIR_ECANCELED);
    if (r < 0) CHECK_INT(weir_yield(), ==, WEIR_ECANCELED);
    tree.alive--;
    tree.ended++;
    return r;
}

static bool tree_is_counted(void *arg)
{
    (void)arg;
    return tree.started == tree.alive + tree.ended && tree.ended <= tree.spawned + 1;
}

/* Cancelled at any suspending call: what was spawned is run and awaited, and nothing else. */
SIM_TEST(rt_cancelled_tree_ends_from_its_leaves, .runs_max = 20000, .config = &rt_two_workers,
         .any_result = true, .faults = {.cancel = 20, .faults_max = 1},
         .invariants = {{.name = "tasks are counted", .holds = tree_is_counted}})
{
    int depth = 3;
    int r;

    rt_begin();
    memset(&tree, 0, sizeof tree);
    r = grow(&depth);
    CHECK_INT(tree.alive, ==, 0);
    CHECK_INT(tree.started, ==, tree.spawned + 1);
    CHECK_INT(tree.ended, ==, tree.started);
    if (r == 0) CHECK_INT(tree.started, ==, 7);
    CHECK_INT(rt_ms(), ==, 0);
    return r;
}

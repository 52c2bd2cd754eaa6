/* policies_table.c - what a failure does, as a table: policy times what happens. */
#include <errno.h>

#include "unit/rt/support.h"

enum happening { ALL_WELL, ONE_FAILS, TWO_FAIL, CANCELLED };

struct row {
    enum weir_failure_policy policy;
    enum happening happening;
    int close;    /* what weir_scope_close returns */
    int sibling;  /* what the sibling's long sleep returned */
    int failures; /* weir_scope_failures */
    int starts;   /* of the first task */
};

/* SUPERVISE allows one restart: the first failure is made good, the second is not. */
static const struct row rows[] = {
    {WEIR_FAIL_FAST, ALL_WELL, 0, 0, 0, 1},
    {WEIR_FAIL_FAST, ONE_FAILS, -EIO, WEIR_ECANCELED, 1, 1},
    {WEIR_FAIL_FAST, TWO_FAIL, -EIO, WEIR_ECANCELED, 2, 1},
    {WEIR_FAIL_FAST, CANCELLED, -EPERM, WEIR_ECANCELED, 0, 1},
    {WEIR_COLLECT, ALL_WELL, 0, 0, 0, 1},
    {WEIR_COLLECT, ONE_FAILS, -EIO, 0, 1, 1},
    {WEIR_COLLECT, TWO_FAIL, -EIO, 0, 2, 1},
    {WEIR_COLLECT, CANCELLED, -EPERM, WEIR_ECANCELED, 0, 1},
    {WEIR_SUPERVISE, ALL_WELL, 0, 0, 0, 1},
    {WEIR_SUPERVISE, ONE_FAILS, 0, 0, 0, 2},
    {WEIR_SUPERVISE, TWO_FAIL, -EIO, WEIR_ECANCELED, 1, 2},
    {WEIR_SUPERVISE, CANCELLED, -EPERM, WEIR_ECANCELED, 0, 1},
};

struct stage {
    const struct row *row;
    int starts;
    int sibling;
    bool sibling_cleaned;
};

/* Fails after 10 ms as often as the row says. */
static int first_task(void *arg)
{
    struct stage *stage = *(struct stage **)arg;
    enum happening happening = stage->row->happening;
    int r;

    stage->starts++;
    r = weir_sleep(10);
    if (r < 0) return r;
    if (happening == ONE_FAILS && stage->starts == 1) return -EIO;
    if (happening == TWO_FAIL) return -EIO;
    return 5; /* a positive result is a success */
}

/* The second to fail: 1 ms later, whether it is cancelled meanwhile or not. */
static int second_task(void *arg)
{
    struct stage *stage = *(struct stage **)arg;
    int r = 0;

    WEIR_SHIELD(100) r = weir_sleep(11);
    CHECK_OK(r);
    return stage->row->happening == TWO_FAIL && stage->row->policy != WEIR_SUPERVISE ? -ENOENT : 0;
}

static int sibling_task(void *arg)
{
    struct stage *stage = *(struct stage **)arg;

    stage->sibling = weir_sleep(1000);
    WEIR_SHIELD(100) CHECK_OK(weir_sleep(5));
    stage->sibling_cleaned = true;
    return stage->sibling;
}

static int play_row(void *arg)
{
    const struct row *row = arg;
    struct stage stage = {.row = row};
    struct stage *pointer = &stage;
    weir_failure failures[4];
    weir_scope *scope;
    weir_scope_spec spec = {
        .name = "stage", .on_failure = row->policy, .max_tasks = 10, .overflow = WEIR_WAIT};

    if (row->policy == WEIR_SUPERVISE)
        spec.restart = (weir_restart){.max_restarts = 1, .window_ms = 1000};
    CHECK_OK(weir_scope_open(&spec, &scope));
    CHECK_OK(weir_spawn(scope, first_task, &pointer, sizeof pointer));
    CHECK_OK(weir_spawn(scope, second_task, &pointer, sizeof pointer));
    CHECK_OK(weir_spawn(scope, sibling_task, &pointer, sizeof pointer));
    if (row->happening == CANCELLED) {
        CHECK_OK(weir_sleep(5));
        weir_scope_cancel(scope, -EPERM, "the row says so");
    }
    CHECK_INT(weir_scope_join(scope), ==, row->close);
    CHECK_INT(weir_scope_failures(scope, failures, 4), ==, row->failures);
    if (row->failures > 0) {
        CHECK_INT(failures[0].error, ==, -EIO);
        CHECK_STR(failures[0].task, "first_task");
        CHECK_INT(failures[0].restarts, ==, row->starts - 1);
    }
    if (row->failures > 1) CHECK_INT(failures[1].error, ==, -ENOENT);
    CHECK_INT(weir_scope_close(scope), ==, row->close);
    CHECK_INT(stage.starts, ==, row->starts);
    CHECK_INT(stage.sibling, ==, row->sibling);
    CHECK(stage.sibling_cleaned); /* close waits for its cleanup, too */
    return 0;
}

TEST(failure_policies_as_a_table)
{
    test_clock_auto();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct row row = rows[i];

        test_note("row %zu", i);
        CHECK_OK(run_on(1, play_row, &row));
    }
}

/* ---- Many tasks under each policy ---- */

struct crowd {
    enum weir_failure_policy policy;
    int count;
    ATOM(int) ended;
};

static int crowd_member(void *arg)
{
    struct {
        struct crowd *crowd;
        int id;
    } *given = arg;
    int r = weir_yield();

    (void)atom_add(&given->crowd->ended, 1);
    if (r < 0) return r;
    return given->id % 1000 == 999 ? -EIO : 0;
}

static int run_crowd(void *arg)
{
    struct crowd *crowd = arg;
    weir_scope *scope;
    weir_scope_spec spec = {
        .name = "crowd", .on_failure = crowd->policy, .max_tasks = 1000, .overflow = WEIR_WAIT};
    int spawned = 0, r = 0;
    size_t failures;

    if (crowd->policy == WEIR_SUPERVISE)
        spec.restart = (weir_restart){.max_restarts = 50, .window_ms = 3600000};
    CHECK_OK(weir_scope_open(&spec, &scope));
    for (; spawned < crowd->count; spawned++) {
        struct {
            struct crowd *crowd;
            int id;
        } given = {crowd, spawned};

        r = weir_spawn(scope, crowd_member, &given, sizeof given);
        if (r < 0) break;
    }
    failures = 0;
    if (crowd->policy == WEIR_COLLECT) {
        CHECK_OK(r);
        CHECK_INT(weir_scope_join(scope), ==, -EIO);
        failures = weir_scope_failures(scope, NULL, 0);
        CHECK_INT(failures, ==, crowd->count / 1000);
        CHECK_INT(atom_load(&crowd->ended), ==, crowd->count);
    } else {
        CHECK(r == 0 || r == WEIR_ECANCELED); /* whether it fails before all are spawned */
    }
    CHECK_INT(weir_scope_close(scope), ==, -EIO);
    if (crowd->policy == WEIR_FAIL_FAST) CHECK_INT(atom_load(&crowd->ended), ==, spawned);
    return 0;
}

TEST_WITH(hundred_thousand_tasks_under_each_policy, .timeout_ms = 60000)
{
    for (int policy = WEIR_FAIL_FAST; policy <= WEIR_SUPERVISE; policy++) {
        for (int workers = 1; workers <= 2; workers++) {
            struct crowd crowd = {(enum weir_failure_policy)policy, TEST_SANITIZED ? 5000 : 100000,
                                  0};

            test_note("policy %d, %d workers", policy, workers);
            CHECK_OK(weir_run(&(weir_config){.workers = workers, .log_level = WEIR_LOG_OFF},
                              run_crowd, &crowd));
        }
    }
}

/* ---- Blast radius ---- */

static int failing_subsystem(void *arg)
{
    weir_scope *scope = open_scope("subsystem", WEIR_FAIL_FAST);
    int r;

    (void)arg;
    for (int i = 0; i < 10; i++) CHECK_OK(weir_spawn(scope, sleep_until_cancelled, NULL, 0));
    CHECK_OK(weir_spawn(scope, return_argument, &(int){-EIO}, sizeof(int)));
    r = weir_scope_close(scope);
    CHECK_INT(r, ==, -EIO);
    return 0; /* handled here: nothing gets out */
}

static int healthy_subsystem(void *arg)
{
    (void)arg;
    for (int i = 0; i < 20; i++) CHECK_OK(weir_sleep(1));
    return 0;
}

static int two_subsystems(void *arg)
{
    weir_scope *scope = open_scope("program", WEIR_FAIL_FAST);

    (void)arg;
    for (int i = 0; i < 5; i++) {
        CHECK_OK(weir_spawn(scope, failing_subsystem, NULL, 0));
        CHECK_OK(weir_spawn(scope, healthy_subsystem, NULL, 0));
    }
    return weir_scope_close(scope);
}

TEST(failure_stays_inside_the_scope_that_handles_it)
{
    CHECK_OK(run_on(1, two_subsystems, NULL));
    CHECK_OK(run_on(2, two_subsystems, NULL));
}

/* pool_faults_test.c - pools when something goes wrong: at every suspension, at every
 * allocation, without threads; and when short jobs turn into long ones.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>

#include "base/atomic.h"
#include "unit/flow/flow_test.h"

static const weir_pool_class roomy[] = {{.name = "work", .weight = 1, .queue_max = 256}};
static const weir_pool_spec two_threads = {.name = "pool",
                                           .threads_max = 2,
                                           .overflow = WEIR_WAIT,
                                           .on_close = WEIR_DRAIN,
                                           .classes = roomy,
                                           .class_count = 1};

/* ---- Something goes wrong at each place in turn ---- */

enum { SWEPT_CALLERS = 3, SWEPT_JOBS = 3, LARGE_BYTES = 4096 };

static ATOM(int) ran, answered;

struct numbers {
    long first;
    char more[LARGE_BYTES];
};

static int count_one(void *data)
{
    (void)atom_add(&ran, 1);
    ++*(long *)data;
    return 0;
}

/* Errors that a call may give then. */
static int tolerated(int r)
{
    CHECK(r >= 0 || r == WEIR_ECANCELED || r == WEIR_ECLOSED || r == -ENOMEM || r == -EAGAIN);
    return r;
}

static int swept_caller(void *arg)
{
    weir_pool *pool = *(weir_pool **)arg;

    for (long i = 0; i < SWEPT_JOBS; i++) {
        struct numbers numbers = {.first = i};
        /* Some lie in the job, some need memory of their own. */
        size_t bytes = i == 1 ? sizeof numbers : sizeof numbers.first;
        int r = tolerated(weir_pool_run(pool, (unsigned)i % 2, count_one, &numbers, bytes));
        CHECK_INT(numbers.first, ==, r == 0 ? i + 1 : i);
        if (r < 0) return r;
        (void)atom_add(&answered, 1);
    }
    return 0;
}

static int swept_use(weir_pool *pool)
{
    int result, r = 0;

    FLOW_SCOPE_ANYWHERE(scope, &result)
    {
        for (int i = 0; i < SWEPT_CALLERS && r == 0; i++) {
            r = tolerated(weir_spawn(scope, swept_caller, &pool, sizeof pool));
        }
        if (r == 0) CHECK_OK(weir_pool_resize(pool, 3));
    }
    return tolerated(r < 0 ? r : result);
}

static int swept_task(void *arg)
{
    static const weir_pool_class tiny[] = {{.name = "one", .weight = 2, .queue_max = 1},
                                           {.name = "two", .weight = 1, .queue_max = 1}};
    const weir_pool_spec *given = arg;
    weir_pool_spec spec = *given;
    weir_pool_figures figures[2];
    weir_pool *pool;
    int result, used = 0, orphaned = 0;

    spec.classes = tiny;
    spec.class_count = 2;
    spec.threads_limit = 3;
    atom_store(&ran, 0);
    atom_store(&answered, 0);
    FLOW_SCOPE(scope, &result)
    {
        used = tolerated(weir_pool_open(scope, &spec, &pool));
        if (used == 0) {
            used = swept_use(pool);
            for (unsigned i = 0; i < 2; i++) {
                CHECK_OK(weir_pool_figures_of(pool, i, &figures[i]));
                CHECK_INT(figures[i].queued, ==, 0);
                CHECK_INT(figures[i].queued_max, <=, 1);
                orphaned += (int)figures[i].orphaned;
            }
            weir_pool_close(pool);
        }
    }
    /* Every job that ran has answered its caller, or was counted as an orphan. */
    CHECK_INT(atom_load(&ran), ==, atom_load(&answered) + orphaned);
    if (used == 0) CHECK_INT(atom_load(&answered), ==, SWEPT_CALLERS * SWEPT_JOBS);
    return used < 0 ? used : tolerated(result);
}

static int swept_scenario(void *arg)
{
    return weir_run(&(weir_config){.workers = test_workers(), .log_level = WEIR_LOG_OFF},
                    swept_task, arg);
}

TEST(pool_accounts_for_every_job_wherever_it_is_cancelled)
{
    weir_pool_spec spec = two_threads;

    CHECK_INT(test_sweep_cancel(swept_scenario, &spec), >, SWEPT_JOBS);
    spec.on_close = WEIR_DISCARD;
    spec.cancel_ms = 10000;
    CHECK_INT(test_sweep_cancel(swept_scenario, &spec), >, SWEPT_JOBS);
}

TEST(pool_accounts_for_every_job_whatever_allocation_fails)
{
    weir_pool_spec spec = two_threads;

    CHECK_INT(test_sweep_alloc(swept_scenario, &spec), >, SWEPT_JOBS);
}

static int without_threads(void *arg)
{
    weir_pool *pool;
    long number = 1;
    int result;

    (void)arg;
    FLOW_SCOPE(scope, &result)
    {
        weir_pool_figures figures;
        CHECK_OK(weir_pool_open(scope, &two_threads, &pool));
        test_fault("thread_start", -EAGAIN, 1);
        CHECK_INT(weir_pool_run(pool, 0, count_one, &number, sizeof number), ==, -EAGAIN);
        CHECK_INT(number, ==, 1);
        CHECK_OK(weir_pool_figures_of(pool, 0, &figures));
        CHECK_INT(figures.queued, ==, 0);
        CHECK_OK(weir_pool_run(pool, 0, count_one, &number, sizeof number));
        CHECK_INT(number, ==, 2);
    }
    return result;
}

TEST(pool_without_any_thread_says_so_and_goes_on_when_there_is_one)
{
    test_fault("thread_start", -EAGAIN, 0); /* none yet: workers are threads too */
    CHECK_OK(flow_test_run(without_threads));
}

/* ---- Jobs that wait until the test lets them go ---- */

struct gate {
    ATOM(int) entered, returned;
    ATOM(bool) open;
};

static struct gate gate;

static int pass(void *data)
{
    (void)data;
    (void)atom_add(&gate.entered, 1);
    while (!atom_load_acquire(&gate.open)) (void)sched_yield();
    return 0;
}

static int nothing(void *data)
{
    (void)data;
    return 0;
}

static int run_pass(void *arg)
{
    return weir_pool_run(*(weir_pool **)arg, 0, pass, NULL, 0);
}

static int run_nothing(void *arg)
{
    int r = weir_pool_run(*(weir_pool **)arg, 0, nothing, NULL, 0);
    (void)atom_add(&gate.returned, 1);
    return r;
}

static int run_nothing_often(void *arg)
{
    for (int i = 0; i < 50; i++) {
        int r = weir_pool_run(*(weir_pool **)arg, 0, nothing, NULL, 0);
        if (r < 0) return r;
    }
    return 0;
}

static void await(ATOM(int) * count, int wanted)
{
    while (atom_load_acquire(count) < wanted) CHECK_OK(weir_sleep(1));
}

static void gate_close(void)
{
    atom_store(&gate.entered, 0);
    atom_store(&gate.returned, 0);
    atom_store(&gate.open, false);
}

static void spawn_all(weir_scope *scope, int count, weir_task_fn fn, weir_pool *pool)
{
    for (int i = 0; i < count; i++) CHECK_OK(weir_spawn(scope, fn, &pool, sizeof pool));
}

/* Short jobs are given back many at a time, and no thread is woken for a few of them. Both
 * rely on the next job being short too; here it is not. */
static void long_job_among_short_ones(int threads_max, int returned)
{
    enum { SIDE = 16 };
    weir_pool_spec spec = two_threads;
    weir_pool *pool;
    int result, warm;

    spec.threads_max = threads_max;
    for (int round = 0; round < 10; round++) {
        gate_close();
        FLOW_SCOPE(scope, &result)
        {
            CHECK_OK(weir_pool_open(scope, &spec, &pool));
            FLOW_SCOPE(before, &warm)
            {
                spawn_all(before, 2 * SIDE, run_nothing_often, pool);
            }
            CHECK_OK(warm);
            spawn_all(scope, SIDE, run_nothing, pool);
            spawn_all(scope, 1, run_pass, pool);
            spawn_all(scope, SIDE, run_nothing, pool);
            await(&gate.returned, returned); /* while the long one runs */
            CHECK(!atom_load(&gate.open));
            atom_store_release(&gate.open, true);
        }
        CHECK_OK(result);
        CHECK_INT(atom_load(&gate.returned), ==, 2 * SIDE);
    }
}

FLOW_TEST(pool_gives_short_jobs_back_although_a_long_one_follows)
{
    long_job_among_short_ones(1, 16);
    return 0;
}

FLOW_TEST(pool_does_short_jobs_although_a_long_one_is_before_them)
{
    long_job_among_short_ones(2, 32);
    return 0;
}

FLOW_TEST(pool_retires_idle_threads_down_to_its_minimum)
{
    weir_pool_spec spec = two_threads;
    weir_pool_figures figures;
    weir_pool *pool;
    int result;

    gate_close();
    spec.threads_max = 4;
    spec.threads_min = 1;
    spec.idle_ms = 1;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_pool_open(scope, &spec, &pool));
        spawn_all(scope, 4, run_pass, pool);
        await(&gate.entered, 4);
        CHECK_OK(weir_pool_figures_of(pool, 0, &figures));
        CHECK_INT(figures.threads, ==, 4);
        atom_store_release(&gate.open, true);
        do {
            CHECK_OK(weir_sleep(1));
            CHECK_OK(weir_pool_figures_of(pool, 0, &figures));
        } while (figures.threads > 1);
        for (int i = 0; i < 5; i++) {
            CHECK_OK(weir_sleep(2));
            CHECK_OK(weir_pool_figures_of(pool, 0, &figures));
            CHECK_INT(figures.threads, ==, 1);
        }
        CHECK_OK(run_nothing(&pool)); /* and it works */
    }
    return result;
}

FLOW_TEST(pool_removes_a_cancelled_job_that_waits_for_room)
{
    static const weir_pool_class tiny[] = {{.name = "work", .weight = 1, .queue_max = 1}};
    weir_pool_spec spec = two_threads;
    weir_pool_figures figures;
    weir_pool *pool;
    long number = 0;
    int result, r = 0;

    gate_close();
    atom_store(&ran, 0);
    spec.threads_max = 1;
    spec.classes = tiny;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_pool_open(scope, &spec, &pool));
        spawn_all(scope, 1, run_pass, pool);
        await(&gate.entered, 1);
        spawn_all(scope, 1, run_nothing, pool);
        CHECK_OK(weir_yield());
        WEIR_DEADLINE(5) { r = weir_pool_run(pool, 0, count_one, &number, sizeof number); }
        CHECK_INT(r, ==, WEIR_ETIMEDOUT);
        CHECK_OK(weir_pool_figures_of(pool, 0, &figures));
        CHECK_INT(figures.removed, ==, 1);
        CHECK_INT(figures.queued, ==, 1);
        atom_store_release(&gate.open, true);
    }
    CHECK_INT(atom_load(&ran), ==, 0);
    CHECK_INT(number, ==, 0);
    return result;
}

FLOW_TEST(pool_makes_an_orphan_of_a_job_that_does_not_end_within_its_grace)
{
    weir_pool_spec spec = two_threads;
    weir_pool_figures figures = {0};
    uint64_t removed;
    weir_pool *pool;
    int64_t began_ns;
    int result, r = 0;

    gate_close();
    spec.cancel_ms = 30;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_pool_open(scope, &spec, &pool));
        /* So that it runs when the deadline passes, and is not only queued. On a busy machine it
         * may be, and never happens: once more. */
        CHECK_OK(run_nothing(&pool));
        do {
            removed = figures.removed;
            began_ns = weir_now_ns();
            WEIR_DEADLINE(200) { r = weir_pool_run(pool, 0, pass, NULL, 0); }
            CHECK_INT(r, ==, WEIR_ETIMEDOUT);
            CHECK_OK(weir_pool_figures_of(pool, 0, &figures));
        } while (figures.removed > removed);
        CHECK_INT(weir_now_ns() - began_ns, >=, 230 * 1000000LL); /* it was awaited */
        CHECK_INT(figures.orphaned, ==, 1);
        CHECK_INT(figures.orphans, ==, 1);
        CHECK_INT(figures.running, ==, 1);
        atom_store_release(&gate.open, true);
        do {
            CHECK_OK(weir_sleep(1));
            CHECK_OK(weir_pool_figures_of(pool, 0, &figures));
        } while (figures.orphans > 0);
        CHECK_INT(figures.orphaned, ==, 1);
        CHECK_INT(figures.running, ==, 0);
        CHECK_INT(figures.finished, ==, 2);
    }
    return result;
}

/* ---- Many at once ---- */

enum { CROWD = 128, CROWD_JOBS = 100 };

static ATOM(int) crowd_left, given_up;

static int one_of_a_crowd(void *arg)
{
    weir_pool *pool = *(weir_pool **)arg;

    for (long i = 0; i < CROWD_JOBS; i++) {
        long number = i;
        int r = 0;
        if (i % 16 == 7) { /* it may come in time, or not */
            WEIR_DEADLINE(1) { r = weir_pool_run(pool, 0, count_one, &number, sizeof number); }
        } else {
            r = weir_pool_run(pool, 0, count_one, &number, sizeof number);
        }
        CHECK_INT(number, ==, r == 0 ? i + 1 : i);
        if (r == 0) {
            (void)atom_add(&answered, 1);
        } else {
            CHECK_INT(r, ==, WEIR_ETIMEDOUT);
            (void)atom_add(&given_up, 1);
        }
    }
    (void)atom_sub(&crowd_left, 1);
    return 0;
}

static int resize_all_the_time(void *arg)
{
    weir_pool *pool = *(weir_pool **)arg;

    for (int i = 0; atom_load(&crowd_left) > 0; i++) {
        weir_pool_figures figures;
        CHECK_OK(weir_pool_resize(pool, 1 + i % 4));
        CHECK_OK(weir_pool_figures_of(pool, 0, &figures));
        CHECK_INT(figures.threads, <=, 4);
        CHECK_OK(weir_yield());
    }
    return 0;
}

FLOW_TEST(pool_keeps_count_of_a_crowd_that_gives_up_while_it_is_resized)
{
    weir_pool_spec spec = two_threads;
    weir_pool_figures figures;
    weir_pool *pool;
    int result, inner, orphaned = 0;

    atom_store(&ran, 0);
    atom_store(&answered, 0);
    atom_store(&given_up, 0);
    atom_store(&crowd_left, CROWD);
    spec.threads_limit = 4;
    spec.idle_ms = 1;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_pool_open(scope, &spec, &pool));
        FLOW_SCOPE_ANYWHERE(crowd, &inner)
        {
            spawn_all(crowd, CROWD, one_of_a_crowd, pool);
            spawn_all(crowd, 1, resize_all_the_time, pool);
        }
        CHECK_OK(inner);
        CHECK_OK(weir_pool_figures_of(pool, 0, &figures));
        orphaned = (int)figures.orphaned;
        CHECK_INT(figures.queued, ==, 0);
        CHECK_INT(atom_load(&given_up), ==, (int)figures.removed + orphaned);
    }
    CHECK_INT(atom_load(&answered) + atom_load(&given_up), ==, CROWD * CROWD_JOBS);
    CHECK_INT(atom_load(&ran), ==, atom_load(&answered) + orphaned);
    return result;
}

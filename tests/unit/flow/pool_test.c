/* pool_test.c - threads for work: results, bounds, classes, cancelling, ending. */
#include <errno.h>
#include <sched.h>
#include <string.h>

#include "base/atomic.h"
#include "flow/pool.h"
#include "unit/flow/flow_test.h"

static const weir_pool_class one_class[] = {{.name = "work", .weight = 1, .queue_max = 64}};
static const weir_pool_spec two_threads = {.name = "pool",
                                           .threads_max = 2,
                                           .overflow = WEIR_REJECT,
                                           .on_close = WEIR_DRAIN,
                                           .classes = one_class,
                                           .class_count = 1};

struct sum {
    int a, b, sum;
};

static int add(void *data)
{
    struct sum *sum = data;
    sum->sum = sum->a + sum->b;
    return sum->sum < 0 ? -ERANGE : 0;
}

FLOW_TEST(pool_returns_what_the_job_returned_and_left)
{
    weir_pool *pool;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        struct sum sum = {.a = 2, .b = 3};
        CHECK_OK(weir_pool_open(scope, &two_threads, &pool));
        CHECK_OK(weir_pool_run(pool, 0, add, &sum, sizeof sum));
        CHECK_INT(sum.sum, ==, 5);
        sum.a = -9;
        CHECK_INT(weir_pool_run(pool, 0, add, &sum, sizeof sum), ==, -ERANGE);
        CHECK_INT(weir_pool_run(pool, 1, add, &sum, sizeof sum), ==, WEIR_EREFUSED);
        CHECK_INT(weir_pool_run(pool, 0, NULL, &sum, sizeof sum), ==, WEIR_EREFUSED);
    }
    return result;
}

FLOW_TEST(pool_spec_names_what_is_missing_or_contradicts)
{
    static const weir_pool_class no_weight[] = {{.name = "c", .queue_max = 1}};
    static const weir_pool_class no_queue[] = {{.name = "c", .weight = 1}};
    static const weir_pool_class no_name[] = {{.weight = 1, .queue_max = 1}};
    weir_pool_spec specs[10];
    static const char *const why[10] = {"name",        "threads_max", "overflow",  "on_close",
                                        "classes",     "weight",      "queue_max", "name of",
                                        "threads_min", "must be"};
    int result;

    for (int i = 0; i < 10; i++) specs[i] = two_threads;
    specs[0].name = NULL;
    specs[1].threads_max = 0;
    specs[2].overflow = WEIR_OVERFLOW_UNSET;
    specs[3].on_close = WEIR_ON_CLOSE_UNSET;
    specs[4].class_count = 0;
    specs[5].classes = no_weight;
    specs[6].classes = no_queue;
    specs[7].classes = no_name;
    specs[8].threads_min = 3;
    specs[9].overflow = WEIR_DROP_OLDEST;
    FLOW_SCOPE(scope, &result)
    {
        for (int i = 0; i < 10; i++) {
            weir_pool *pool;
            test_note("row %d", i);
            CHECK_INT(weir_pool_open(scope, &specs[i], &pool), ==, WEIR_EREFUSED);
            CHECK(strstr(weir_why(), why[i]) != NULL);
        }
    }
    return result;
}

/* ---- Jobs that wait until the test lets them go ---- */

struct gate {
    ATOM(int) entered, told, left;
    ATOM(bool) open;
};

struct passage {
    struct gate *gate;
    int *order; /* where to note it, or NULL */
    int number;
};

/* Work of a known length, which others may run beside. */
static void work_a_moment(void)
{
    int64_t until_ns = weir_now_ns() + 200000;
    while (weir_now_ns() < until_ns) (void)sched_yield();
}

static int pass(void *data)
{
    struct passage *passage = data;
    (void)atom_add(&passage->gate->entered, 1);
    while (!atom_load_acquire(&passage->gate->open)) {
        if (weir_pool_told()) {
            (void)atom_add(&passage->gate->told, 1);
            break;
        }
        work_a_moment();
    }
    (void)atom_add(&passage->gate->left, 1);
    return 0;
}

struct call {
    weir_pool *pool;
    unsigned class_index;
    struct passage passage;
    int expected;
};

static int run_passage(void *arg)
{
    struct call *call = arg;
    int r =
        weir_pool_run(call->pool, call->class_index, pass, &call->passage, sizeof call->passage);
    CHECK_INT(r, ==, call->expected);
    return 0;
}

static void await(ATOM(int) * count, int wanted)
{
    while (atom_load_acquire(count) < wanted) CHECK_OK(weir_sleep(1));
}

FLOW_TEST(pool_bounds_its_queue_and_removes_cancelled_jobs)
{
    static const weir_pool_class short_queue[] = {{.name = "work", .weight = 1, .queue_max = 2}};
    weir_pool_spec spec = two_threads;
    static struct gate gate;
    weir_pool_figures figures;
    weir_pool *pool;
    int result, r = 0;

    memset(&gate, 0, sizeof gate);
    spec.threads_max = 1;
    spec.classes = short_queue;
    FLOW_SCOPE(scope, &result)
    {
        struct call call = {.passage = {.gate = &gate}};
        CHECK_OK(weir_pool_open(scope, &spec, &pool));
        call.pool = pool;
        CHECK_OK(weir_spawn(scope, run_passage, &call, sizeof call));
        await(&gate.entered, 1);
        CHECK_OK(weir_spawn(scope, run_passage, &call, sizeof call));
        CHECK_OK(weir_yield());
        WEIR_DEADLINE(5) { r = weir_pool_run(pool, 0, pass, &call.passage, sizeof call.passage); }
        CHECK_INT(r, ==, WEIR_ETIMEDOUT); /* it was queued: it never happens */
        CHECK_OK(weir_spawn(scope, run_passage, &call, sizeof call));
        CHECK_OK(weir_yield());
        CHECK_INT(weir_pool_run(pool, 0, pass, &call.passage, sizeof call.passage), ==,
                  WEIR_EOVERLOAD);
        CHECK_OK(weir_pool_figures_of(pool, 0, &figures));
        CHECK_INT(figures.queued, ==, 2);
        CHECK_INT(figures.rejected, ==, 1);
        CHECK_INT(figures.removed, ==, 1);
        atom_store_release(&gate.open, true);
    }
    CHECK_OK(result);
    CHECK_INT(atom_load(&gate.left), ==, 3);
    return 0;
}

/* A deadline ends the call while its job runs. On a busy machine the job may not have begun by
 * then, and never happens: once more. */
static int run_until_late(weir_pool *pool, weir_pool_fn fn, void *data, size_t bytes)
{
    weir_pool_figures figures = {0};
    uint64_t removed;
    int r = 0;

    do {
        removed = figures.removed;
        WEIR_DEADLINE(100) { r = weir_pool_run(pool, 0, fn, data, bytes); }
        CHECK_OK(weir_pool_figures_of(pool, 0, &figures));
    } while (figures.removed > removed);
    return r;
}

FLOW_TEST(pool_tells_running_jobs_and_waits_for_them_within_its_grace)
{
    weir_pool_spec spec = two_threads;
    static struct gate gate;
    weir_pool_figures figures;
    weir_pool *pool;
    int result, r = 0;

    memset(&gate, 0, sizeof gate);
    spec.cancel_ms = 10000;
    FLOW_SCOPE(scope, &result)
    {
        struct passage passage = {.gate = &gate};
        CHECK_OK(weir_pool_open(scope, &spec, &pool));
        r = run_until_late(pool, pass, &passage, sizeof passage);
        CHECK_INT(r, ==, 0); /* it ended because it was told, and was awaited */
        CHECK_INT(atom_load(&gate.told), ==, 1);
        CHECK_OK(weir_pool_figures_of(pool, 0, &figures));
        CHECK_INT(figures.orphaned, ==, 0);
    }
    return result;
}

FLOW_TEST(pool_makes_an_orphan_of_a_job_that_outlives_its_caller)
{
    static struct gate gate;
    weir_pool_figures figures;
    weir_pool *pool;
    int result, r = 0;

    memset(&gate, 0, sizeof gate);
    FLOW_SCOPE(scope, &result)
    {
        struct passage passage = {.gate = &gate};
        CHECK_OK(weir_pool_open(scope, &two_threads, &pool));
        r = run_until_late(pool, pass, &passage, sizeof passage);
        CHECK_INT(r, ==, WEIR_ETIMEDOUT);
        CHECK_OK(weir_pool_figures_of(pool, 0, &figures));
        CHECK_INT(figures.orphaned, ==, 1);
    } /* waits for it: it is told, and ends */
    CHECK_OK(result);
    CHECK_INT(atom_load(&gate.left), ==, 1);
    return 0;
}

/* ---- Classes ---- */

static ATOM(int) bulk_done, bulk_done_before_user;
static ATOM(bool) bulk_ends, bulk_held;
static ATOM(int) bulk_waiting;

static int do_bulk(void *data)
{
    (void)data;
    work_a_moment();
    (void)atom_add(&bulk_waiting, 1);
    while (atom_load_acquire(&bulk_held)) (void)sched_yield();
    (void)atom_sub(&bulk_waiting, 1);
    (void)atom_add(&bulk_done, 1);
    return 0;
}

static int do_user(void *data)
{
    (void)data;
    int before = atom_load(&bulk_done);
    if (before > atom_load(&bulk_done_before_user)) atom_store(&bulk_done_before_user, before);
    return 0;
}

static int run_bulk(void *arg)
{
    int r = 0;

    while (r == 0 && !atom_load(&bulk_ends)) {
        r = weir_pool_run(*(weir_pool **)arg, 0, do_bulk, NULL, 0);
    }
    return r;
}

static int run_user(void *arg)
{
    return weir_pool_run(*(weir_pool **)arg, 1, do_user, NULL, 0);
}

/* Both threads have a job of the bulk in hand, and the one of the user is in its queue: how many
 * of the bulk are done before it, from then on. */
static int done_before_user(weir_scope *scope, weir_pool *pool)
{
    weir_pool_figures figures;
    weir_task user;
    int before;

    atom_store(&bulk_held, true);
    while (atom_load(&bulk_waiting) < 2) CHECK_OK(weir_sleep(1));
    before = atom_load(&bulk_done);
    atom_store(&bulk_done_before_user, 0);
    CHECK_OK(weir_task_spawn(
        scope, &(weir_task_spec){.fn = run_user, .arg = &pool, .arg_bytes = sizeof pool}, &user));
    do {
        CHECK_OK(weir_sleep(1));
        CHECK_OK(weir_pool_figures_of(pool, 1, &figures));
    } while (figures.queued == 0);
    atom_store_release(&bulk_held, false);
    CHECK_OK(weir_task_join(user, NULL));
    return atom_load(&bulk_done_before_user) - before;
}

FLOW_TEST(pool_with_a_saturated_bulk_class_still_serves_the_other_at_once)
{
    enum { BULK = 200 };
    static const weir_pool_class classes[] = {
        {.name = "bulk", .weight = 1, .queue_max = BULK},
        {.name = "user", .weight = 10, .queue_max = 8},
    };
    weir_pool_spec spec = two_threads;
    weir_pool *pool;
    int result;

    atom_store(&bulk_done, 0);
    atom_store(&bulk_held, false);
    atom_store(&bulk_waiting, 0);
    atom_store(&bulk_ends, false);
    spec.classes = classes;
    spec.class_count = 2;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_pool_open(scope, &spec, &pool));
        for (int i = 0; i < BULK; i++) CHECK_OK(weir_spawn(scope, run_bulk, &pool, sizeof pool));
        CHECK_OK(weir_yield());
        for (int i = 0; i < 10; i++) {
            /* Those that ran already, and few more: far from all that were queued before it. */
            CHECK_INT(done_before_user(scope, pool), <=, BULK / 4);
        }
        atom_store(&bulk_ends, true);
    }
    return result;
}

FLOW_TEST(pool_class_limit_keeps_threads_for_the_others)
{
    static const weir_pool_class classes[] = {
        {.name = "bulk", .weight = 100, .queue_max = 16, .running_max = 1},
        {.name = "user", .weight = 1, .queue_max = 16},
    };
    weir_pool_spec spec = two_threads;
    static struct gate gate;
    weir_pool *pool;
    int result;

    memset(&gate, 0, sizeof gate);
    spec.classes = classes;
    spec.class_count = 2;
    FLOW_SCOPE(scope, &result)
    {
        struct call call = {.class_index = 0, .passage = {.gate = &gate}};
        struct sum sum = {.a = 1, .b = 1};
        CHECK_OK(weir_pool_open(scope, &spec, &pool));
        call.pool = pool;
        for (int i = 0; i < 4; i++) CHECK_OK(weir_spawn(scope, run_passage, &call, sizeof call));
        await(&gate.entered, 1);
        CHECK_OK(weir_pool_run(pool, 1, add, &sum, sizeof sum));
        CHECK_INT(atom_load(&gate.entered), ==, 1);
        atom_store_release(&gate.open, true);
    }
    return result;
}

/* ---- Ending, resizing ---- */

FLOW_TEST(pool_discards_queued_jobs_at_its_end_when_its_spec_says_so)
{
    weir_pool_spec spec = two_threads;
    static struct gate gate;
    weir_pool *pool;
    int result, inner;

    memset(&gate, 0, sizeof gate);
    spec.threads_max = 1;
    spec.on_close = WEIR_DISCARD;
    FLOW_SCOPE(scope, &result)
    {
        FLOW_SCOPE(owner, &inner)
        {
            struct call call = {.passage = {.gate = &gate}};
            CHECK_OK(weir_pool_open(owner, &spec, &pool));
            call.pool = pool;
            CHECK_OK(weir_spawn(scope, run_passage, &call, sizeof call));
            await(&gate.entered, 1);
            call.expected = WEIR_ECLOSED;
            CHECK_OK(weir_spawn(scope, run_passage, &call, sizeof call));
            CHECK_OK(weir_yield());
            weir_pool_close(pool);
            CHECK_OK(weir_yield());
            CHECK_OK(weir_sleep(1));
            atom_store_release(&gate.open, true);
        }
        CHECK_OK(inner);
    }
    return result;
}

FLOW_TEST(pool_resize_starts_and_ends_threads)
{
    weir_pool_spec spec = two_threads;
    static struct gate gate;
    weir_pool_figures figures;
    weir_pool *pool;
    int result;

    memset(&gate, 0, sizeof gate);
    spec.threads_max = 1;
    spec.threads_limit = 4;
    FLOW_SCOPE(scope, &result)
    {
        struct call call = {.passage = {.gate = &gate}};
        CHECK_OK(weir_pool_open(scope, &spec, &pool));
        call.pool = pool;
        for (int i = 0; i < 4; i++) CHECK_OK(weir_spawn(scope, run_passage, &call, sizeof call));
        await(&gate.entered, 1);
        CHECK_OK(weir_pool_resize(pool, 4));
        await(&gate.entered, 4);
        CHECK_INT(weir_pool_resize(pool, 5), ==, WEIR_EREFUSED);
        CHECK_INT(weir_pool_resize(pool, 0), ==, WEIR_EREFUSED);
        CHECK_OK(weir_pool_resize(pool, 1));
        atom_store_release(&gate.open, true);
        do {
            CHECK_OK(weir_sleep(1));
            CHECK_OK(weir_pool_figures_of(pool, 0, &figures));
        } while (figures.threads > 1);
    }
    return result;
}

static int run_many(void *arg)
{
    weir_pool *pool = *(weir_pool **)arg;
    for (int i = 0; i < 30; i++) {
        struct sum sum = {.a = i, .b = 1};
        int r = weir_pool_run(pool, 0, add, &sum, sizeof sum);
        if (r < 0) return r;
        CHECK_INT(sum.sum, ==, i + 1);
    }
    return 0;
}

FLOW_TEST(pool_that_waits_for_room_serves_many_callers)
{
    static const weir_pool_class tiny[] = {{.name = "work", .weight = 1, .queue_max = 1}};
    weir_pool_spec spec = two_threads;
    weir_pool_figures figures;
    weir_pool *pool;
    int result;

    spec.overflow = WEIR_WAIT;
    spec.classes = tiny;
    FLOW_SCOPE_ANYWHERE(scope, &result)
    {
        CHECK_OK(weir_pool_open(scope, &spec, &pool));
        for (int i = 0; i < 50; i++) CHECK_OK(weir_spawn(scope, run_many, &pool, sizeof pool));
        CHECK_OK(weir_scope_join(scope));
        CHECK_OK(weir_pool_figures_of(pool, 0, &figures));
        CHECK_INT(figures.finished, ==, 1500);
        CHECK_INT(figures.queued_max, ==, 1);
    }
    return result;
}

FLOW_TEST(pool_gives_jobs_that_waited_for_room_threads_of_their_own)
{
    static const weir_pool_class tiny[] = {{.name = "work", .weight = 1, .queue_max = 1}};
    static struct gate gate;
    weir_pool_spec spec = two_threads;
    weir_pool *pool;
    int result;

    memset(&gate, 0, sizeof gate);
    spec.overflow = WEIR_WAIT;
    spec.classes = tiny;
    spec.threads_max = 4;
    FLOW_SCOPE(scope, &result)
    {
        struct call call = {.passage = {.gate = &gate}};
        CHECK_OK(weir_pool_open(scope, &spec, &pool));
        call.pool = pool;
        for (int i = 0; i < 4; i++) CHECK_OK(weir_spawn(scope, run_passage, &call, sizeof call));
        await(&gate.entered, 4); /* none has left: all four run at one time */
        atom_store_release(&gate.open, true);
    }
    CHECK_INT(atom_load(&gate.left), ==, 4);
    return result;
}

/* ---- A promise to look ---- */

static ATOM(bool) first_goes_on, second_ran;
static ATOM(int) first_entered, long_entered;

static int be_first(void *data)
{
    (void)data;
    (void)atom_add(&first_entered, 1);
    while (!atom_load_acquire(&first_goes_on)) (void)sched_yield();
    return 0;
}

/* Of two that can only run at one time. */
static int wait_for_second(void *data)
{
    int64_t until_ns = weir_now_ns() + INT64_C(5000000000);

    (void)data;
    (void)atom_add(&long_entered, 1);
    while (!atom_load_acquire(&second_ran) && weir_now_ns() < until_ns) (void)sched_yield();
    return atom_load_acquire(&second_ran) ? 0 : -ETIMEDOUT;
}

static int be_second(void *data)
{
    (void)data;
    atom_store_release(&second_ran, true);
    return 0;
}

struct job_call {
    weir_pool *pool;
    weir_pool_fn fn;
};

static int run_job(void *arg)
{
    struct job_call *call = arg;
    return weir_pool_run(call->pool, 0, call->fn, NULL, 0);
}

/* The worker says that it will look, as after many short jobs, but not in the time of this test. */
static void promise_to_look(weir_pool *handle)
{
    struct pool *pool = handle_object(handle, HANDLE_POOL);
    struct pool_desk *desk = &pool->desks[worker_self()->index];

    lock_acquire(&pool->lock);
    desk->brief = desk->watched = true;
    timer_arm(desk->worker, &desk->look, time_after_ms(weir_now_ns(), 3600000));
    lock_release(&pool->lock);
}

/* So no thread is woken for the next jobs. Then a job was not short, and it will not look: now
 * threads are needed for those. */
FLOW_TEST(pool_worker_that_will_not_look_after_all_asks_for_threads)
{
    weir_pool *pool;
    int result;

    atom_store(&first_goes_on, false);
    atom_store(&second_ran, false);
    atom_store(&first_entered, 0);
    atom_store(&long_entered, 0);
    FLOW_SCOPE(scope, &result)
    {
        struct job_call first = {.fn = be_first}, next = {.fn = wait_for_second};
        CHECK_OK(weir_pool_open(scope, &two_threads, &pool));
        first.pool = next.pool = pool;
        CHECK_OK(weir_spawn(scope, run_job, &first, sizeof first));
        await(&first_entered, 1);
        promise_to_look(pool);
        CHECK_OK(weir_spawn(scope, run_job, &next, sizeof next));
        CHECK_OK(weir_yield());
        CHECK_INT(atom_load(&long_entered), ==, 0);
        atom_store_release(&first_goes_on, true);
        while (atom_load(&long_entered) == 0)
            (void)sched_yield(); /* without taking anything back */
        CHECK_OK(weir_pool_run(pool, 0, be_second, NULL, 0));
    }
    return result;
}

static ATOM(bool) second_returned;

static int run_second(void *arg)
{
    int r = run_job(arg);
    atom_store_release(&second_returned, true);
    return r;
}

static int wait_for_return(void *data)
{
    int64_t until_ns = weir_now_ns() + INT64_C(5000000000);

    (void)data;
    while (!atom_load_acquire(&second_returned) && weir_now_ns() < until_ns) (void)sched_yield();
    return atom_load_acquire(&second_returned) ? 0 : -ETIMEDOUT;
}

/* Three jobs for one thread: the caller of the second goes on while the third runs, although the
 * worker has promised to look. */
FLOW_TEST(pool_tells_few_callers_at_once_although_their_worker_will_look)
{
    weir_pool_spec spec = two_threads;
    weir_pool *pool;
    int result;

    spec.threads_max = 1;
    atom_store(&first_goes_on, false);
    atom_store(&first_entered, 0);
    atom_store(&second_returned, false);
    FLOW_SCOPE(scope, &result)
    {
        struct job_call first = {.fn = be_first}, second = {.fn = be_second};
        struct job_call third = {.fn = wait_for_return};
        CHECK_OK(weir_pool_open(scope, &spec, &pool));
        first.pool = second.pool = third.pool = pool;
        CHECK_OK(weir_spawn(scope, run_job, &first, sizeof first));
        await(&first_entered, 1);
        promise_to_look(pool);
        CHECK_OK(weir_spawn(scope, run_second, &second, sizeof second));
        CHECK_OK(weir_spawn(scope, run_job, &third, sizeof third));
        CHECK_OK(weir_yield());
        atom_store_release(&first_goes_on, true);
    }
    return result;
}

static ATOM(int) stuck_entered, stuck_goes_on, stuck_left;

static int be_stuck(void *data)
{
    (void)data;
    (void)atom_add(&stuck_entered, 1);
    while (!atom_load_acquire(&stuck_goes_on)) (void)sched_yield();
    (void)atom_add(&stuck_left, 1);
    return 0;
}

/* The scope goes on without it; what is left of the pool is freed by the thread. */
FLOW_TEST(pool_leaves_a_stuck_thread_alone_and_tells_who_is_queued)
{
    weir_pool_spec spec = two_threads;
    weir_pool *pool;
    int result, r = 0;

    if (WEIR_TSAN) return 0; /* reports what this is about: a thread that nobody joins */
    atom_store(&stuck_entered, 0);
    atom_store(&stuck_goes_on, 0);
    atom_store(&stuck_left, 0);
    spec.threads_max = 1;
    spec.close_ms = 5;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_pool_open(scope, &spec, &pool));
        r = run_until_late(pool, be_stuck, NULL, 0);
        CHECK_INT(r, ==, WEIR_ETIMEDOUT);
    }
    CHECK_OK(result);
    CHECK_INT(atom_load(&stuck_entered), ==, 1);
    CHECK_INT(atom_load(&stuck_left), ==, 0);
    atom_store_release(&stuck_goes_on, 1);
    await(&stuck_left, 1);
    return 0;
}

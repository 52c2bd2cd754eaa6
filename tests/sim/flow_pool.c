/* flow_pool.c - pools in simulation: each job once, and nobody waits for a thread that sleeps. */
#include <errno.h>

#include "sim/flow_program.h"

enum { CALLERS = 4, JOBS = 2, THREADS = 2, QUICK = 0, BULK = 1 };

#define SOON_NS (WEIR_POOL_IDLE_MS_DEFAULT * INT64_C(500000))

struct work {
    weir_pool *pool;
    int ran[CALLERS][JOBS];
    int running, running_of[2];
    int returned, removed, begun;
};

struct job {
    struct work *work;
    int caller, number;
    unsigned class_index;
    int result; /* written by the job, in its copy */
};

struct caller {
    struct work *work;
    int index;
    bool may_be_closed;
};

/* On a thread of the pool. */
static int run_job(void *data)
{
    struct job *job = data;
    struct work *work = job->work;

    CHECK_INT(++work->running, <=, THREADS);
    CHECK_INT(++work->running_of[job->class_index], <=, job->class_index == BULK ? 1 : THREADS);
    CHECK_INT(++work->ran[job->caller][job->number], ==, 1);
    (void)weir_pool_told(); /* others may go on here */
    job->result = job->number + 1;
    work->running--;
    work->running_of[job->class_index]--;
    return 7;
}

static int run_jobs(void *arg)
{
    const struct caller *caller = arg;
    struct work *work = caller->work;

    work->begun++;
    for (int i = 0; i < JOBS; i++) {
        struct job job = {work, caller->index, i, caller->index % 2 ? BULK : QUICK, 0};
        int r = weir_pool_run(work->pool, job.class_index, run_job, &job, sizeof job);
        if (r != 7) {
            CHECK(r == WEIR_ECANCELED || (caller->may_be_closed && r == WEIR_ECLOSED));
            CHECK_INT(job.result, ==, 0);
            if (r == WEIR_ECLOSED) CHECK_INT(work->ran[caller->index][i], ==, 0);
            return 0;
        }
        CHECK_INT(job.result, ==, i + 1);
        CHECK_INT(work->ran[caller->index][i], ==, 1);
        work->returned++;
        if (caller->may_be_closed) return 0;
    }
    return 0;
}

static int cancel_task(void *arg)
{
    weir_task task = *(weir_task *)arg;

    (void)weir_task_cancel(task, "the program says so");
    return 0;
}

static const weir_pool_class classes[] = {
    {.name = "quick", .weight = 3, .queue_max = 1},
    {.name = "bulk", .weight = 1, .queue_max = 1, .running_max = 1}};

static bool open_pool(weir_scope *scope, struct work *work, int64_t cancel_ms,
                      enum weir_on_close on_close, int threads_max)
{
    weir_pool_spec spec = {.name = "crew",
                           .threads_max = threads_max,
                           .threads_limit = THREADS,
                           .overflow = WEIR_WAIT,
                           .on_close = on_close,
                           .classes = classes,
                           .class_count = 2,
                           .cancel_ms = cancel_ms};
    int r = weir_pool_open(scope, &spec, &work->pool);

    CHECK(r == 0 || r == WEIR_ECANCELED);
    return r == 0;
}

static int ran_in_all(const struct work *work)
{
    int ran = 0;

    for (int i = 0; i < CALLERS * JOBS; i++) ran += work->ran[i / JOBS][i % JOBS];
    return ran;
}

static void check_figures(const struct work *work, bool awaited)
{
    weir_pool_figures figures;
    uint64_t finished = 0, orphaned = 0, running = 0;

    for (unsigned i = 0; i < 2; i++) {
        CHECK_OK(weir_pool_figures_of(work->pool, i, &figures));
        finished += figures.finished;
        orphaned += figures.orphaned;
        running += figures.running;
        CHECK_INT(figures.queued, ==, 0);
        CHECK_INT(figures.queued_max, <=, 1);
    }
    if (awaited) CHECK_INT(orphaned, ==, 0);
    CHECK_INT(finished + running, <=, (uint64_t)work->returned + orphaned);
    CHECK_INT(finished + orphaned, >=, (uint64_t)work->returned);
}

int flow_use_pool(bool cancels, int64_t cancel_ms)
{
    struct work work = {.running = 0};
    int64_t began_ns = weir_now_ns();
    weir_scope *outer = flow_scope_open(), *scope = NULL;
    weir_task second = {NULL, 0};

    if (!outer) return 0;
    if (open_pool(outer, &work, cancel_ms, WEIR_DRAIN, THREADS)) scope = flow_scope_open();
    if (scope) {
        for (int i = 0; i < CALLERS; i++) {
            struct caller caller = {&work, i, false};
            (void)flow_spawn(scope, i, run_jobs, &caller, sizeof caller, i == 1 ? &second : NULL);
        }
        if (cancels && second.ref) {
            (void)flow_spawn(scope, 0, cancel_task, &second, sizeof second, NULL);
        }
        flow_scope_close(scope);
        check_figures(&work, cancel_ms > 0);
        /* One that is awaited returns its result; else it was removed and never ran. */
        if (cancel_ms > 0) CHECK_INT(ran_in_all(&work), ==, work.returned);
        /* Nothing takes time but the sleep of threads that nobody has woken. */
        CHECK_INT(weir_now_ns() - began_ns, <, SOON_NS);
    }
    flow_scope_close(outer);
    CHECK_INT(work.running, ==, 0);
    return work.returned;
}

SIM_TEST(pool_runs_each_job_once_within_its_bounds, .runs_max = 6000, .config = FLOW_HOST)
{
    CHECK_INT(flow_use_pool(false, 0), ==, CALLERS * JOBS);
    return 0;
}

SIM_TEST(cancelled_job_is_removed_or_awaited, .runs_max = 6000, .config = FLOW_HOST)
{
    CHECK_INT(flow_use_pool(true, 1000), >=, (CALLERS - 1) * JOBS);
    return 0;
}

SIM_TEST(cancelled_job_that_runs_is_an_orphan_and_ends, .runs_max = 6000, .config = FLOW_HOST)
{
    CHECK_INT(flow_use_pool(true, 0), >=, (CALLERS - 1) * JOBS);
    return 0;
}

SIM_TEST(pool_survives_a_cancel_of_all, .runs_max = 6000, .config = FLOW_HOST, .any_result = true,
         .faults = {.cancel = 10, .faults_max = 1})
{
    return flow_use_pool(false, 1000);
}

/* ---- Another size ---- */

static int resize(void *arg)
{
    struct work *work = *(struct work **)arg;

    for (int i = 0; i < 4; i++) {
        CHECK_OK(weir_pool_resize(work->pool, 1 + (i + 1) % 2));
        flow_linger();
    }
    return 0;
}

SIM_TEST(pool_that_is_resized_runs_each_job_once, .runs_max = 6000, .config = FLOW_HOST)
{
    struct work work = {.running = 0}, *keep = &work;
    int64_t began_ns = weir_now_ns();
    weir_scope *outer = flow_scope_open(), *scope;

    CHECK(open_pool(outer, &work, 0, WEIR_DRAIN, 1));
    scope = flow_scope_open();
    for (int i = 0; i < CALLERS; i++) {
        struct caller caller = {&work, i, false};
        (void)flow_spawn(scope, i, run_jobs, &caller, sizeof caller, NULL);
    }
    (void)flow_spawn(scope, 1, resize, &keep, sizeof keep, NULL);
    flow_scope_close(scope);
    CHECK_INT(work.returned, ==, CALLERS * JOBS);
    CHECK_INT(weir_now_ns() - began_ns, <, SOON_NS);
    flow_scope_close(outer);
    return 0;
}

/* ---- Closing: on the callers' worker, so that all of them are inside ---- */

static int close_pool(void *arg)
{
    struct work *work = *(struct work **)arg;

    while (work->begun < CALLERS) CHECK_OK(weir_yield());
    weir_pool_close(work->pool);
    return 0;
}

static int close_with_jobs_inside(enum weir_on_close on_close)
{
    struct work work = {.running = 0}, *keep = &work;
    weir_scope *outer = flow_scope_open(), *scope;

    CHECK(open_pool(outer, &work, 0, on_close, 1));
    scope = flow_scope_open();
    for (int i = 0; i < CALLERS; i++) {
        struct caller caller = {&work, i, true};
        (void)flow_spawn(scope, 0, run_jobs, &caller, sizeof caller, NULL);
    }
    (void)flow_spawn(scope, 0, close_pool, &keep, sizeof keep, NULL);
    flow_scope_close(scope);
    flow_scope_close(outer);
    CHECK_INT(ran_in_all(&work), ==, work.returned);
    CHECK_INT(work.running, ==, 0);
    return work.returned;
}

SIM_TEST(pool_that_drains_answers_every_caller, .runs_max = 6000, .config = FLOW_HOST)
{
    return close_with_jobs_inside(WEIR_DRAIN);
}

SIM_TEST(pool_that_discards_has_run_what_it_says, .runs_max = 6000, .config = FLOW_HOST)
{
    return close_with_jobs_inside(WEIR_DISCARD);
}

/* ---- Without memory ---- */

static int run_if_possible(void *arg)
{
    const struct caller *caller = arg;
    struct work *work = caller->work;

    for (int i = 0; i < JOBS; i++) {
        struct job job = {work, caller->index, i, caller->index % 2 ? BULK : QUICK, 0};
        int r = weir_pool_run(work->pool, job.class_index, run_job, &job, sizeof job);
        CHECK(r == 7 || r == -ENOMEM || r == -EAGAIN);
        CHECK_INT(work->ran[caller->index][i], ==, r == 7);
        CHECK_INT(job.result, ==, r == 7 ? i + 1 : 0);
    }
    return 0;
}

SIM_TEST(pool_without_memory_runs_what_it_has_accepted, .runs_max = 6000, .config = FLOW_HOST,
         .any_result = true, .faults = {.no_memory = 6, .faults_max = 3})
{
    struct work work = {.running = 0};
    weir_scope_spec spec = {
        .name = "program", .on_failure = WEIR_COLLECT, .max_tasks = 16, .overflow = WEIR_REJECT};
    weir_pool_spec pool_spec = {.name = "crew",
                                .threads_max = THREADS,
                                .overflow = WEIR_WAIT,
                                .on_close = WEIR_DRAIN,
                                .classes = classes,
                                .class_count = 2};
    weir_scope *outer, *scope;
    int r = weir_scope_open(&spec, &outer);

    if (r < 0) return r;
    r = weir_pool_open(outer, &pool_spec, &work.pool);
    if (r == 0) r = weir_scope_open(&spec, &scope);
    if (r == 0) {
        for (int i = 0; i < CALLERS; i++) {
            struct caller caller = {&work, i, false};
            r = weir_spawn_named(scope, "caller", run_if_possible, &caller, sizeof caller);
            CHECK(r == 0 || r == -ENOMEM || r == WEIR_EOVERLOAD);
        }
        r = weir_scope_close(scope);
    }
    CHECK_OK(weir_scope_close(outer));
    CHECK_INT(work.running, ==, 0);
    return r;
}

/* worker_stop_test.c - leases that are kept, lost and cancelled; orders; how a worker ends. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "unit/store/worker_test.h"

static void advance(int64_t ms)
{
    test_clock_advance_ms(ms);
    CHECK_OK(weir_yield());
}

/* While it is leased: until when. */
static int64_t when_ms(struct worker_stand *stand, uint64_t id)
{
    weir_job_info info;
    int64_t ms;

    CHECK_OK(weir_job_get(stand->store, id, &info));
    ms = info.when_ms;
    weir_job_info_free(&info);
    return ms;
}

static unsigned attempts_of(struct worker_stand *stand, uint64_t id)
{
    weir_job_info info;
    unsigned attempt;

    CHECK_OK(weir_job_get(stand->store, id, &info));
    attempt = info.attempt;
    weir_job_info_free(&info);
    return attempt;
}

/* ---- Leases ---- */

static uint64_t commits_of(const struct worker_stand *stand)
{
    weir_store_figures figures;

    weir_store_figures_of(stand->store, &figures);
    return figures.commits;
}

WORKER_TEST_CLOCK(a_heartbeat_keeps_the_leases_of_long_jobs)
{
    enum { JOBS = 100, BEATS = 7, COMMITS_MAX = 12 };
    int result = 0;

    WORKER_SCOPE(scope, &result)
    {
        uint64_t ids[JOBS];
        weir_worker *worker;

        for (int i = 0; i < JOBS; i++) ids[i] = worker_stand_enqueue(stand, "wait", 1);
        worker = worker_stand_open(stand, scope, JOBS);
        UNTIL(atom_load(&stand->begun) == JOBS);
        for (int beat = 0; beat < BEATS; beat++) {
            uint64_t commits = commits_of(stand);
            int64_t before_ms = when_ms(stand, ids[JOBS - 1]);
            advance(WORKER_BEAT_MS);
            UNTIL(when_ms(stand, ids[JOBS - 1]) > before_ms);
            /* Renewed together, not one after the other: each call has its sync. */
            CHECK_INT(commits_of(stand) - commits, <=, COMMITS_MAX);
        }
        weir_event_set(stand->go);
        UNTIL(worker_stand_figures(worker).ok == JOBS);
        CHECK_INT(worker_stand_figures(worker).lost, ==, 0);
        CHECK_INT(atom_load(&stand->interrupted), ==, 0);
        CHECK_INT(atom_load(&stand->begun), ==, JOBS);
    }
    return result;
}

WORKER_TEST_CLOCK(a_running_job_that_is_cancelled_is_interrupted_at_the_next_heartbeat)
{
    int result = 0;

    WORKER_SCOPE(scope, &result)
    {
        uint64_t id = worker_stand_enqueue(stand, "wait", 3);
        uint64_t other = worker_stand_enqueue(stand, "wait", 3);
        weir_worker *worker = worker_stand_open(stand, scope, 2);

        UNTIL(atom_load(&stand->begun) == 2);
        CHECK_INT(weir_job_cancel(stand->store, id), ==, WEIR_JOB_LEASED);
        CHECK_INT(atom_load(&stand->interrupted), ==, 0);
        advance(WORKER_BEAT_MS);
        CHECK_INT(weir_job_wait(stand->store, id), ==, WEIR_JOB_CANCELLED);
        CHECK_INT(atom_load(&stand->interrupted), ==, 1);
        CHECK_INT(worker_stand_state(stand, other), ==, WEIR_JOB_LEASED);
        UNTIL(worker_stand_figures(worker).cancelled == 1);
        weir_event_set(stand->go);
        CHECK_INT(weir_job_wait(stand->store, other), ==, WEIR_JOB_DONE);
    }
    return result;
}

WORKER_TEST_CLOCK(a_cancelled_job_that_succeeds_all_the_same_is_done)
{
    int result = 0;

    WORKER_SCOPE(scope, &result)
    {
        uint64_t id = worker_stand_enqueue(stand, "wait deaf", 3);
        weir_worker *worker = worker_stand_open(stand, scope, 1);

        UNTIL(atom_load(&stand->begun) == 1);
        CHECK_INT(weir_job_cancel(stand->store, id), ==, WEIR_JOB_LEASED);
        advance(WORKER_BEAT_MS);
        CHECK_INT(weir_job_wait(stand->store, id), ==, WEIR_JOB_DONE);
        UNTIL(worker_stand_figures(worker).ok == 1);
    }
    return result;
}

/* Its time is up before its lease would be. */
WORKER_TEST_CLOCK(a_job_whose_time_is_up_is_interrupted_and_not_settled)
{
    int result = 0;

    WORKER_SCOPE(scope, &result)
    {
        weir_job_spec spec = stand_job("q", "wait");
        weir_worker *worker = worker_stand_open(stand, scope, 1);
        weir_enqueued enqueued;

        spec.timeout_ms = 300000;
        spec.retry = (weir_job_retry){.attempts_max = 1};
        CHECK_OK(weir_job_enqueue(stand->store, &spec, &enqueued));
        UNTIL(atom_load(&stand->begun) == 1);
        while (worker_stand_figures(worker).lost == 0) advance(10000);
        CHECK_INT(atom_load(&stand->interrupted), ==, 1);
        CHECK_INT(weir_job_wait(stand->store, enqueued.id), ==, WEIR_JOB_DEAD);
        CHECK_INT(worker_stand_figures(worker).settle_failures, ==, 0);
        CHECK_INT(worker_stand_figures(worker).running, ==, 0);
    }
    return result;
}

/* ---- Orders ---- */

WORKER_TEST_CLOCK(a_quiet_worker_takes_on_nothing_until_it_may_again)
{
    int result = 0;

    WORKER_SCOPE(scope, &result)
    {
        weir_worker *worker = worker_stand_open(stand, scope, 2);
        uint64_t id;

        UNTIL(weir_scope_task_count(scope) > 0);
        CHECK_OK(weir_worker_order(stand->store, "w", WEIR_GO_QUIET));
        UNTIL(worker_stand_figures(worker).quiet);
        id = worker_stand_enqueue(stand, "ok", 1);
        advance(WORKER_BEAT_MS);
        for (int i = 0; i < 20; i++) CHECK_OK(weir_yield());
        CHECK_INT(worker_stand_state(stand, id), ==, WEIR_JOB_READY);
        CHECK(!worker_stand_figures(worker).ended);
        CHECK_OK(weir_worker_order(stand->store, "w", WEIR_GO_ON));
        advance(WORKER_BEAT_MS);
        CHECK_INT(weir_job_wait(stand->store, id), ==, WEIR_JOB_DONE);
        CHECK(!worker_stand_figures(worker).quiet);
    }
    return result;
}

WORKER_TEST_CLOCK(a_worker_with_jobs_hears_of_an_order_by_its_heartbeat)
{
    int result = 0;

    WORKER_SCOPE(scope, &result)
    {
        uint64_t id = worker_stand_enqueue(stand, "wait", 1);
        weir_worker *worker = worker_stand_open(stand, scope, 1);

        UNTIL(atom_load(&stand->begun) == 1);
        CHECK_OK(weir_worker_order(stand->store, "w", WEIR_GO_QUIET));
        advance(WORKER_BEAT_MS);
        UNTIL(worker_stand_figures(worker).quiet);
        CHECK_OK(weir_worker_order(stand->store, "w", WEIR_GO_QUIET | WEIR_GO_END));
        /* The drain begins, and is over some time; the job itself would go on for ever. */
        while (!worker_stand_figures(worker).ended) {
            int64_t before_ms = when_ms(stand, id);
            advance(WORKER_BEAT_MS);
            UNTIL(worker_stand_figures(worker).ended || when_ms(stand, id) != before_ms);
        }
        CHECK_INT(weir_worker_wait(worker), ==, 0);
        CHECK_INT(atom_load(&stand->interrupted), ==, 1);
        CHECK_INT(worker_stand_state(stand, id), ==, WEIR_JOB_READY);
    }
    return result;
}

WORKER_TEST(an_idle_worker_that_is_told_to_end_ends)
{
    int result = 0;

    WORKER_SCOPE(scope, &result)
    {
        weir_worker *worker = worker_stand_open(stand, scope, 1);

        CHECK_OK(weir_worker_order(stand->store, "w", WEIR_GO_END));
        CHECK_INT(weir_worker_wait(worker), ==, 0);
        CHECK_INT(weir_worker_close(worker), ==, 0);
    }
    return result;
}

/* ---- Stopping ---- */

/* Who waits for a job. */
static uint64_t leasers_of(weir_store *store)
{
    weir_store_figures figures;

    weir_store_figures_of(store, &figures);
    return figures.waiting;
}

WORKER_TEST(a_stopped_worker_finishes_what_runs_and_leases_no_more)
{
    int result = 0;

    WORKER_SCOPE(scope, &result)
    {
        uint64_t id = worker_stand_enqueue(stand, "wait", 1), later;
        weir_worker *worker = worker_stand_open(stand, scope, 2);

        UNTIL(atom_load(&stand->begun) == 1);
        UNTIL(leasers_of(stand->store) == 1);
        weir_worker_stop(worker);
        UNTIL(leasers_of(stand->store) == 0);
        later = worker_stand_enqueue(stand, "ok", 1);
        weir_event_set(stand->go);
        CHECK_INT(weir_worker_wait(worker), ==, 0);
        CHECK_INT(worker_stand_state(stand, id), ==, WEIR_JOB_DONE);
        CHECK_INT(worker_stand_state(stand, later), ==, WEIR_JOB_READY);
        CHECK_INT(worker_stand_figures(worker).leased, ==, 1);
        CHECK_INT(weir_worker_close(worker), ==, 0);
    }
    return result;
}

WORKER_TEST_CLOCK(what_is_not_done_after_drain_ms_is_released_and_does_not_count)
{
    int result = 0;

    WORKER_SCOPE(scope, &result)
    {
        uint64_t same = worker_stand_enqueue(stand, "wait", 2);
        uint64_t other = worker_stand_enqueue(stand, "wait other", 2);
        uint64_t dead = worker_stand_enqueue(stand, "wait dead", 2);
        uint64_t deaf = worker_stand_enqueue(stand, "wait deaf", 2);
        uint64_t once = worker_stand_enqueue(stand, "wait", WORKER_STAND_ONCE);
        weir_worker *worker = worker_stand_open(stand, scope, 5);

        UNTIL(atom_load(&stand->begun) == 5);
        weir_worker_stop(worker);
        for (int i = 0; i < 5; i++) CHECK_OK(weir_yield()); /* its drain begins */
        advance(WORKER_LEASE_MS / 2);
        CHECK_INT(atom_load(&stand->interrupted), ==, 0);
        advance(WORKER_LEASE_MS / 2 + 1);
        CHECK_INT(weir_worker_wait(worker), ==, 0);
        CHECK_INT(atom_load(&stand->interrupted), ==, 5);
        CHECK_INT(worker_stand_state(stand, same), ==, WEIR_JOB_READY);
        CHECK_INT(attempts_of(stand, same), ==, 0);
        CHECK_INT(worker_stand_state(stand, other), ==, WEIR_JOB_READY); /* whatever it says */
        CHECK_INT(attempts_of(stand, other), ==, 0);
        CHECK_INT(worker_stand_state(stand, dead), ==, WEIR_JOB_DEAD);
        CHECK_INT(worker_stand_state(stand, deaf), ==, WEIR_JOB_DONE);
        CHECK_INT(worker_stand_state(stand, once), ==, WEIR_JOB_DEAD); /* it has begun */
        CHECK_INT(worker_stand_figures(worker).released, ==, 2);
        CHECK_INT(worker_stand_figures(worker).lost, ==, 0);
    }
    return result;
}

WORKER_TEST(the_end_of_its_scope_is_a_drain)
{
    int result = 0;
    uint64_t id = worker_stand_enqueue(stand, "wait", 1);

    WORKER_SCOPE(scope, &result)
    {
        (void)worker_stand_open(stand, scope, 1);
        UNTIL(atom_load(&stand->begun) == 1);
        weir_event_set(stand->go);
    }
    CHECK_INT(worker_stand_state(stand, id), ==, WEIR_JOB_DONE);
    return result;
}

WORKER_TEST(a_stop_of_its_scope_is_a_drain)
{
    int result = 0;
    uint64_t id = worker_stand_enqueue(stand, "wait", 1);

    WORKER_SCOPE(scope, &result)
    {
        weir_worker *worker = worker_stand_open(stand, scope, 2);

        UNTIL(atom_load(&stand->begun) == 1);
        weir_scope_stop(scope, WORKER_LEASE_MS);
        for (int i = 0; i < 50; i++) CHECK_OK(weir_yield());
        CHECK(!worker_stand_figures(worker).ended);
        weir_event_set(stand->go);
        CHECK_INT(weir_worker_wait(worker), ==, 0);
    }
    CHECK_INT(worker_stand_state(stand, id), ==, WEIR_JOB_DONE);
    return result;
}

WORKER_TEST(a_cancel_of_its_scope_releases_what_runs)
{
    int result = 0;
    uint64_t id = worker_stand_enqueue(stand, "wait", 2);

    WORKER_SCOPE(scope, &result)
    {
        (void)worker_stand_open(stand, scope, 2);
        UNTIL(atom_load(&stand->begun) == 1);
        weir_scope_cancel(scope, 0, "the test");
    }
    CHECK_INT(atom_load(&stand->interrupted), ==, 1);
    CHECK_INT(worker_stand_state(stand, id), ==, WEIR_JOB_READY);
    CHECK_INT(attempts_of(stand, id), ==, 0);
    return result;
}

static int close_it(void *arg)
{
    weir_worker *worker = *(weir_worker **)arg;
    return weir_worker_close(worker) == WEIR_ECANCELED ? 0 : WEIR_EREFUSED;
}

WORKER_TEST(a_close_that_is_cancelled_ends_the_drain)
{
    int result = 0;
    uint64_t id = worker_stand_enqueue(stand, "wait", 2);

    WORKER_SCOPE(scope, &result)
    {
        weir_worker *worker = worker_stand_open(stand, scope, 1);
        weir_task task;
        int closed = 1;

        UNTIL(atom_load(&stand->begun) == 1);
        CHECK_OK(weir_task_spawn(
            scope,
            &(weir_task_spec){
                .fn = close_it, .arg = &worker, .arg_bytes = sizeof worker, .name = "closer"},
            &task));
        for (int i = 0; i < 50; i++) CHECK_OK(weir_yield());
        CHECK_OK(weir_task_cancel(task, "the test"));
        CHECK_OK(weir_task_join(task, &closed));
        CHECK_INT(closed, ==, 0);
        CHECK_INT(worker_stand_state(stand, id), ==, WEIR_JOB_READY);
    }
    return result;
}

static int close_own(void *keep_deps, weir_job job, weir_job_outcome *outcome)
{
    weir_worker **worker = keep_deps;

    (void)job, (void)outcome;
    CHECK_INT(weir_worker_wait(*worker), ==, WEIR_EREFUSED);
    CHECK_INT(weir_worker_close(*worker), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "one of its handlers");
    return 0;
}

WORKER_TEST(a_handler_cannot_wait_for_the_end_of_its_worker)
{
    static const weir_handler handlers[] = {{"work", 1, 1, close_own}};
    int result = 0;

    WORKER_SCOPE(scope, &result)
    {
        weir_worker_spec spec = worker_stand_spec(stand, 1);
        weir_worker *worker;
        uint64_t id;

        spec.handlers = handlers;
        spec.keep_deps = &worker;
        CHECK_OK(weir_worker_open(scope, &spec, &worker));
        id = worker_stand_enqueue(stand, "ok", 1);
        CHECK_INT(weir_job_wait(stand->store, id), ==, WEIR_JOB_DONE);
    }
    return result;
}

/* ---- Without a store ---- */

WORKER_TEST(a_worker_whose_store_is_closed_ends_with_that)
{
    int result = 0;

    WEIR_SCOPE(scope, &result, .name = "workers", .on_failure = WEIR_COLLECT, .max_tasks = 8,
               .overflow = WEIR_REJECT) {
        weir_worker *idle = worker_stand_open(stand, scope, 2);
        weir_worker_spec spec = worker_stand_spec(stand, 1);
        weir_worker *busy;

        spec.name = "busy";
        spec.queue = "p";
        CHECK_OK(weir_worker_open(scope, &spec, &busy));
        (void)stand_enqueue(stand->store, "p", "wait");
        UNTIL(atom_load(&stand->begun) == 1);
        CHECK_OK(weir_store_close(stand->store));
        CHECK_INT(weir_worker_wait(idle), ==, WEIR_ECLOSED);
        weir_event_set(stand->go);
        CHECK_INT(weir_worker_wait(busy), ==, WEIR_ECLOSED);
        CHECK_INT(worker_stand_figures(busy).settle_failures, ==, 1);
        CHECK_INT(weir_worker_close(busy), ==, WEIR_ECLOSED);
    }
    CHECK_INT(result, ==, WEIR_ECLOSED);
    return 0;
}

/* ---- When something is missing ---- */

static int scenario_fn(struct store_stand *base, weir_scope *scope)
{
    weir_store *store = NULL;
    static const weir_handler handlers[] = {{"work", 1, 1, worker_stand_handle}};
    struct worker_stand stand = {.all_count = 3};
    weir_worker *worker = NULL;
    int r;

    base->scope = scope;
    r = weir_event_open(scope, "all", &stand.all);
    if (r == 0) r = store_stand_try(base, &store);
    if (r < 0) return r;
    for (int i = 0; i < 3 && r >= 0; i++) {
        weir_job_spec spec = stand_job("q", i == 2 ? "then" : i == 1 ? "fail" : "ok");
        weir_enqueued enqueued;
        r = weir_job_enqueue(store, &spec, &enqueued);
    }
    if (r >= 0) {
        r = weir_worker_open(scope,
                             &(weir_worker_spec){.name = "w",
                                                 .store = store,
                                                 .queue = "q",
                                                 .handlers = handlers,
                                                 .handler_count = 1,
                                                 .concurrency = 2,
                                                 .executor = WEIR_ON_TASKS,
                                                 .lease_ms = WORKER_LEASE_MS,
                                                 .drain_ms = 60000,
                                                 .keep_deps = &stand},
                             &worker);
    }
    if (r >= 0) r = weir_event_wait(stand.all); /* if the worker fails, so does the scope */
    if (worker) {
        int closed = weir_worker_close(worker);
        if (r >= 0) r = closed;
    }
    if (r >= 0) r = weir_store_close(store);
    return r;
}

static int scenario_task(void *arg)
{
    int result = 0, r = 0;

    WEIR_DEADLINE((int64_t)60000 * test_slower()) {
        WEIR_SCOPE(scope, &result, .name = "scenario", .on_failure = WEIR_FAIL_FAST,
                   .max_tasks = 16, .overflow = WEIR_REJECT) {
            weir_test_cancel_target(scope);
            r = scenario_fn(*(struct store_stand **)arg, scope);
        }
    }
    return r < 0 ? r : result;
}

static int scenario(void *arg)
{
    struct store_stand stand, *pointer = &stand;
    int r;

    (void)arg;
    store_stand_make(&stand);
    r = weir_run(&(weir_config){.workers = 1, .log_level = WEIR_LOG_OFF}, scenario_task, &pointer);
    store_stand_remove(&stand);
    return r;
}

TEST_WITH(a_worker_survives_the_failure_of_every_allocation, .timeout_ms = 60000, .workers = 1)
{
    CHECK_INT(test_sweep_alloc(scenario, NULL), >, 30);
}

TEST_WITH(a_worker_survives_a_cancel_at_every_point, .timeout_ms = 60000, .workers = 1)
{
    CHECK_INT(test_sweep_cancel(scenario, NULL), >, 10);
}

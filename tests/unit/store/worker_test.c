/* worker_test.c - what handlers say and what becomes of their jobs; bounds; how a worker opens. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "unit/store/worker_test.h"

/* ---- Outcomes ---- */

WORKER_TEST(every_class_of_outcome_is_settled)
{
    int result = 0;

    WORKER_SCOPE(scope, &result)
    {
        weir_worker *worker = worker_stand_open(stand, scope, 4);
        uint64_t ok = worker_stand_enqueue(stand, "ok", 3);
        uint64_t failed = worker_stand_enqueue(stand, "fail", 1);
        uint64_t own = worker_stand_enqueue(stand, "refused", 1);
        uint64_t dead = worker_stand_enqueue(stand, "dead", 3);
        uint64_t at = worker_stand_enqueue(stand, "at", 3);
        uint64_t snoozed = worker_stand_enqueue(stand, "snooze", 1);
        const char *message;
        weir_worker_figures figures;

        CHECK_INT(weir_job_wait(stand->store, ok), ==, WEIR_JOB_DONE);
        CHECK_INT(weir_job_wait(stand->store, failed), ==, WEIR_JOB_DEAD);
        CHECK_STR(worker_stand_error(stand, failed, &message), "EDOM");
        CHECK_CONTAINS(message, "omain");
        CHECK_INT(weir_job_wait(stand->store, own), ==, WEIR_JOB_DEAD);
        CHECK_STR(worker_stand_error(stand, own, NULL), "WEIR_ETIMEDOUT");
        CHECK_INT(weir_job_wait(stand->store, dead), ==, WEIR_JOB_DEAD);
        CHECK_STR(worker_stand_error(stand, dead, &message), "own class");
        CHECK_STR(message, "own words");
        UNTIL(worker_stand_state(stand, at) == WEIR_JOB_SCHEDULED);
        CHECK_STR(worker_stand_error(stand, at, NULL), "own class");
        UNTIL(worker_stand_state(stand, snoozed) == WEIR_JOB_SCHEDULED);
        CHECK_STR(worker_stand_error(stand, snoozed, NULL), "");
        /* They are counted one after the other, when the store has answered. */
        do {
            CHECK_OK(weir_yield());
            figures = worker_stand_figures(worker);
        } while (figures.ok + figures.dead + figures.retried + figures.snoozed < 6);
        CHECK_INT(figures.running, ==, 0);
        CHECK_INT(figures.snoozed, ==, 1);
        CHECK_INT(figures.leased, ==, 6);
        CHECK_INT(figures.ok, ==, 1);
        CHECK_INT(figures.dead, ==, 3);
        CHECK_INT(figures.retried, ==, 1);
        CHECK_INT(figures.settle_failures, ==, 0);
        CHECK_INT(weir_worker_close(worker), ==, 0);
    }
    return result;
}

WORKER_TEST(a_job_that_fails_is_tried_again_until_it_is_dead)
{
    int result = 0;

    WORKER_SCOPE(scope, &result)
    {
        weir_worker *worker = worker_stand_open(stand, scope, 2);
        uint64_t id = worker_stand_enqueue(stand, "fail", 4);

        CHECK_INT(weir_job_wait(stand->store, id), ==, WEIR_JOB_DEAD);
        CHECK_INT(atom_load(&stand->begun), ==, 4);
        UNTIL(worker_stand_figures(worker).dead == 1);
        CHECK_INT(worker_stand_figures(worker).retried, ==, 3);
    }
    return result;
}

WORKER_TEST(results_are_kept)
{
    int result = 0;

    WORKER_SCOPE(scope, &result)
    {
        char bytes[64] = "", expected[64];
        uint64_t id = worker_stand_enqueue(stand, "result", 1);

        (void)worker_stand_open(stand, scope, 1);
        CHECK_INT(weir_job_wait(stand->store, id), ==, WEIR_JOB_DONE);
        (void)snprintf(expected, sizeof expected, "job %llu", (unsigned long long)id);
        CHECK_INT(weir_job_result_read(stand->store, id, bytes, sizeof bytes), ==,
                  strlen(expected));
        CHECK_STR(bytes, expected);
    }
    return result;
}

WORKER_TEST(an_outcome_that_makes_no_sense_is_a_failed_attempt)
{
    int result = 0;

    WORKER_SCOPE(scope, &result)
    {
        uint64_t large = worker_stand_enqueue(stand, "too much", 1);
        uint64_t negative = worker_stand_enqueue(stand, "negative", 1);
        const char *message;

        (void)worker_stand_open(stand, scope, 2);
        CHECK_INT(weir_job_wait(stand->store, large), ==, WEIR_JOB_DEAD);
        CHECK_STR(worker_stand_error(stand, large, &message), "EMSGSIZE");
        CHECK_CONTAINS(message, "result_bytes_max");
        CHECK_INT(weir_job_wait(stand->store, negative), ==, WEIR_JOB_DEAD);
        CHECK_STR(worker_stand_error(stand, negative, &message), "EINVAL");
        CHECK_CONTAINS(message, "delay_ms");
    }
    return result;
}

/* ---- Jobs that follow ---- */

WORKER_TEST(jobs_that_follow_are_enqueued_with_the_acknowledgement)
{
    int result = 0;

    WORKER_SCOPE(scope, &result)
    {
        weir_worker *worker = worker_stand_open(stand, scope, 2);
        uint64_t id = worker_stand_enqueue(stand, "then", 1);

        CHECK_INT(weir_job_wait(stand->store, id), ==, WEIR_JOB_DONE);
        UNTIL(worker_stand_figures(worker).ok == 4);
        CHECK_INT(worker_stand_figures(worker).leased, ==, 4);
        CHECK_INT(atom_load(&stand->ended), ==, 4);
    }
    return result;
}

WORKER_TEST(a_job_that_cannot_follow_fails_the_attempt)
{
    int result = 0;

    WORKER_SCOPE(scope, &result)
    {
        uint64_t bad = worker_stand_enqueue(stand, "then bad", 1);
        uint64_t many = worker_stand_enqueue(stand, "then many", 1);
        uint64_t fine = worker_stand_enqueue(stand, "ok", 1);
        const char *message;

        (void)worker_stand_open(stand, scope, 3);
        CHECK_INT(weir_job_wait(stand->store, bad), ==, WEIR_JOB_DEAD);
        CHECK_STR(worker_stand_error(stand, bad, &message), "WEIR_EREFUSED");
        CHECK_CONTAINS(message, "follows");
        CHECK_INT(weir_job_wait(stand->store, many), ==, WEIR_JOB_DEAD);
        CHECK_STR(worker_stand_error(stand, many, NULL), "WEIR_EOVERLOAD");
        CHECK_INT(weir_job_wait(stand->store, fine), ==, WEIR_JOB_DONE);
    }
    return result;
}

static void set_depth(struct worker_stand *stand, const char *queue, uint32_t depth_max)
{
    CHECK_OK(weir_queue_set(
        stand->store,
        &(weir_queue_spec){.name = queue, .depth_max = depth_max, .overflow = WEIR_REJECT}));
}

static uint64_t fill(struct worker_stand *stand, const char *queue)
{
    weir_enqueued enqueued;

    set_depth(stand, queue, 1);
    CHECK_OK(weir_job_enqueue(
        stand->store,
        &(weir_job_spec){.queue = queue, .kind = "other", .version = 1, .idempotent = WEIR_YES},
        &enqueued));
    return enqueued.id;
}

WORKER_TEST_CLOCK(an_acknowledgement_waits_for_room_for_what_follows)
{
    int result = 0;

    WORKER_SCOPE(scope, &result)
    {
        uint64_t in_the_way = fill(stand, "full");
        uint64_t id = worker_stand_enqueue(stand, "then full", 1);
        uint64_t other = worker_stand_enqueue(stand, "ok", 1);
        weir_worker *worker = worker_stand_open(stand, scope, 2);

        UNTIL(atom_load(&stand->ended) == 2);
        CHECK_INT(weir_job_wait(stand->store, other), ==, WEIR_JOB_DONE); /* is not held up */
        CHECK_INT(worker_stand_state(stand, id), ==, WEIR_JOB_LEASED);
        CHECK_INT(weir_job_cancel(stand->store, in_the_way), ==, WEIR_JOB_CANCELLED);
        while (worker_stand_state(stand, id) == WEIR_JOB_LEASED) {
            test_clock_advance_ms(100);
            CHECK_OK(weir_yield());
        }
        CHECK_INT(worker_stand_state(stand, id), ==, WEIR_JOB_DONE);
        UNTIL(worker_stand_figures(worker).ok == 2);
        CHECK_INT(worker_stand_figures(worker).lost, ==, 0);
    }
    return result;
}

WORKER_TEST_CLOCK(what_cannot_be_settled_until_the_lease_ends_is_counted_as_lost)
{
    int result = 0;

    WORKER_SCOPE(scope, &result)
    {
        weir_worker *worker = worker_stand_open(stand, scope, 1);

        (void)fill(stand, "full");
        (void)worker_stand_enqueue(stand, "then full", 1);
        UNTIL(atom_load(&stand->ended) == 1);
        while (worker_stand_figures(worker).lost == 0) {
            test_clock_advance_ms(10000);
            CHECK_OK(weir_yield());
        }
        CHECK_INT(worker_stand_figures(worker).settle_failures, ==, 1);
        CHECK_INT(worker_stand_figures(worker).ok, ==, 0);
    }
    return result;
}

/* ---- Bounds ---- */

WORKER_TEST(no_more_run_than_its_concurrency)
{
    enum { CONCURRENCY = 3, JOBS = 20 };
    int result = 0;

    WORKER_SCOPE(scope, &result)
    {
        weir_worker *worker;

        for (int i = 0; i < JOBS; i++) (void)worker_stand_enqueue(stand, "wait", 1);
        worker = worker_stand_open(stand, scope, CONCURRENCY);
        UNTIL(atom_load(&stand->begun) == CONCURRENCY);
        for (int i = 0; i < 50; i++) CHECK_OK(weir_yield());
        CHECK_INT(worker_stand_figures(worker).leased, ==, CONCURRENCY);
        weir_event_set(stand->go);
        UNTIL(worker_stand_figures(worker).ok == JOBS);
        CHECK_INT(atom_load(&stand->running_max), <=, CONCURRENCY);
        CHECK_INT(atom_load(&stand->begun), ==, JOBS);
    }
    return result;
}

WORKER_TEST(many_workers_of_one_queue_run_each_job_once)
{
    enum { WORKERS = 4, JOBS = 300 };
    int result = 0;

    WORKER_SCOPE(scope, &result)
    {
        weir_worker *workers[WORKERS];
        uint64_t leased = 0, ok = 0;

        for (int i = 0; i < WORKERS; i++) {
            weir_worker_spec spec = worker_stand_spec(stand, 1 + i * 5);
            char name[16];
            (void)snprintf(name, sizeof name, "w%d", i);
            spec.name = name;
            CHECK_OK(weir_worker_open(scope, &spec, &workers[i]));
        }
        for (int i = 0; i < JOBS; i++) (void)worker_stand_enqueue(stand, "ok", 1);
        do {
            CHECK_OK(weir_yield());
            ok = 0;
            for (int i = 0; i < WORKERS; i++) ok += worker_stand_figures(workers[i]).ok;
        } while (ok < JOBS);
        for (int i = 0; i < WORKERS; i++) {
            leased += worker_stand_figures(workers[i]).leased;
            CHECK_OK(weir_worker_close(workers[i]));
        }
        CHECK_INT(ok, ==, JOBS);
        CHECK_INT(leased, ==, JOBS);
        CHECK_INT(atom_load(&stand->begun), ==, JOBS);
    }
    return result;
}

/* On one worker all have ended before anybody can settle the first. */
WORKER_TEST_(jobs_that_end_at_once_are_settled_together, false, .timeout_ms = 20000, .workers = 1)
{
    enum { JOBS = 64 };
    int result = 0;

    WORKER_SCOPE(scope, &result)
    {
        weir_store_figures before, after;
        weir_worker *worker;

        for (int i = 0; i < JOBS; i++) (void)worker_stand_enqueue(stand, "wait", 1);
        worker = worker_stand_open(stand, scope, JOBS);
        UNTIL(atom_load(&stand->begun) == JOBS);
        weir_store_figures_of(stand->store, &before);
        weir_event_set(stand->go);
        UNTIL(worker_stand_figures(worker).ok == JOBS);
        weir_store_figures_of(stand->store, &after);
        CHECK_INT(after.commits - before.commits, <=, 4); /* the store may sync as well */
    }
    return result;
}

/* ---- Opening ---- */

static void check_refused(struct worker_stand *stand, weir_worker_spec spec, const char *sentence)
{
    weir_worker *worker;

    CHECK_INT(weir_worker_open(stand->scope, &spec, &worker), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), sentence);
}

#define REFUSED(change_, sentence_)                          \
    do {                                                     \
        weir_worker_spec spec = worker_stand_spec(stand, 1); \
        change_;                                             \
        check_refused(stand, spec, sentence_);               \
    } while (0)

WORKER_TEST(a_worker_whose_spec_says_too_little_or_too_much_is_refused)
{
    static const weir_handler twice[] = {{"a", 1, 4, worker_stand_handle},
                                         {"a", 4, 0, worker_stand_handle}};
    static const weir_handler back[] = {{"a", 2, 1, worker_stand_handle}};
    static const weir_handler none[] = {{"a", 1, 1, NULL}};
    static char long_name[WEIR_JOB_NAME_BYTES_MAX + 2];

    memset(long_name, 'n', sizeof long_name - 1);
    REFUSED(spec.name = NULL, "name is not set");
    REFUSED(spec.name = long_name, "name has more than 31 bytes");
    REFUSED(spec.store = NULL, "store is not set");
    REFUSED(spec.queue = "", "queue is not set");
    REFUSED(spec.queue = long_name, "queue has more than 200 bytes");
    REFUSED(spec.handler_count = 0, "handlers is not set");
    REFUSED(spec.handler_count = 257, "257 handlers");
    REFUSED((spec.handlers = twice, spec.handler_count = 2), "two handlers for kind 'a'");
    REFUSED(spec.handlers = back, "version_max of handler 'a'");
    REFUSED(spec.handlers = none, "fn of handler 'a'");
    REFUSED(spec.concurrency = 0, "concurrency is 0");
    REFUSED(spec.concurrency = 10001, "must be 1 to 10000");
    REFUSED(spec.executor = WEIR_EXECUTOR_UNSET, "executor is not set");
    REFUSED(spec.executor = WEIR_ON_POOL, "pool is set if and only if");
    REFUSED(spec.executor = WEIR_ON_PROCESSES, "processes is set if and only if");
    REFUSED(spec.lease_ms = 0, "lease_ms is 0");
    REFUSED(spec.lease_ms = WEIR_JOB_LEASE_MS_MAX + 1, "lease_ms");
    REFUSED(spec.drain_ms = 0, "drain_ms is not set");
    REFUSED(spec.result_bytes_max = 1 << 20, "result_bytes_max");
    REFUSED(spec.durability = (enum weir_durability)9, "durability");
    return 0;
}

WORKER_TEST(jobs_of_kinds_it_does_not_know_are_left)
{
    int result = 0;

    WORKER_SCOPE(scope, &result)
    {
        weir_job_spec other = stand_job("q", "ok");
        weir_worker *worker = worker_stand_open(stand, scope, 2);
        weir_enqueued kind, version;
        uint64_t id;

        other.kind = "other";
        CHECK_OK(weir_job_enqueue(stand->store, &other, &kind));
        other.kind = "work";
        other.version = 2;
        CHECK_OK(weir_job_enqueue(stand->store, &other, &version));
        id = worker_stand_enqueue(stand, "ok", 1);
        CHECK_INT(weir_job_wait(stand->store, id), ==, WEIR_JOB_DONE);
        CHECK_INT(worker_stand_state(stand, kind.id), ==, WEIR_JOB_READY);
        CHECK_INT(worker_stand_state(stand, version.id), ==, WEIR_JOB_READY);
        CHECK_INT(worker_stand_figures(worker).leased, ==, 1);
    }
    return result;
}

/* ---- Looking ---- */

static int keep_text(const char *text, size_t bytes, void *keep_arg)
{
    (void)bytes;
    CHECK_CONTAINS(text, "weir_worker_settled_total{worker=\"w\",outcome=\"ok\"} 1");
    CHECK_CONTAINS(text, "weir_worker_settled_total{worker=\"w\",outcome=\"dead\"} 1");
    CHECK_CONTAINS(text, "weir_worker_running{worker=\"w\"} 0");
    CHECK_CONTAINS(text, "weir_worker_concurrency{worker=\"w\"} 2");
    CHECK_CONTAINS(text, "weir_job_run_seconds_count{queue=\"q\"} 2");
    *(bool *)keep_arg = true;
    return 0;
}

WORKER_TEST(a_worker_shows_its_figures)
{
    int result = 0;

    WORKER_SCOPE(scope, &result)
    {
        weir_worker *worker = worker_stand_open(stand, scope, 2);
        bool seen = false;

        (void)worker_stand_enqueue(stand, "ok", 1);
        (void)worker_stand_enqueue(stand, "dead", 1);
        UNTIL(worker_stand_figures(worker).ok == 1 && worker_stand_figures(worker).dead == 1);
        CHECK_OK(weir_metrics_read(WEIR_METRICS_PROMETHEUS, keep_text, &seen));
        CHECK(seen);
    }
    return result;
}

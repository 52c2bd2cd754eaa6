/* worker_exec_test.c - handlers on threads of a pool and in helper processes; traces. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "unit/io/process_test.h"
#include "unit/store/worker_test.h"

static unsigned attempts_of(struct worker_stand *stand, uint64_t id)
{
    weir_job_info info;
    unsigned attempt;

    CHECK_OK(weir_job_get(stand->store, id, &info));
    attempt = info.attempt;
    weir_job_info_free(&info);
    return attempt;
}

/* ---- Threads ---- */

static weir_pool *open_pool(struct worker_stand *stand, int threads, int64_t cancel_ms)
{
    static const weir_pool_class classes[] = {{.name = "jobs", .weight = 1, .queue_max = 16}};
    weir_pool *pool;

    CHECK_OK(weir_pool_open(stand->scope,
                            &(weir_pool_spec){.name = "threads",
                                              .threads_max = threads,
                                              .overflow = WEIR_WAIT,
                                              .on_close = WEIR_DISCARD,
                                              .classes = classes,
                                              .class_count = 1,
                                              .cancel_ms = cancel_ms},
                            &pool));
    return pool;
}

static weir_worker *open_on_pool(struct worker_stand *stand, weir_scope *scope, weir_pool *pool,
                                 int concurrency)
{
    weir_worker_spec spec = worker_stand_spec(stand, concurrency);
    weir_worker *worker;

    spec.executor = WEIR_ON_POOL;
    spec.pool = pool;
    CHECK_OK(weir_worker_open(scope, &spec, &worker));
    return worker;
}

WORKER_TEST(handlers_run_on_threads_of_a_pool)
{
    int result = 0;

    WORKER_SCOPE(scope, &result)
    {
        weir_worker *worker = open_on_pool(stand, scope, open_pool(stand, 2, 0), 4);
        char bytes[64] = "";
        uint64_t ok = worker_stand_enqueue(stand, "result", 1);
        uint64_t failed = worker_stand_enqueue(stand, "fail", 1);
        uint64_t then = worker_stand_enqueue(stand, "then", 1);

        CHECK_INT(weir_job_wait(stand->store, ok), ==, WEIR_JOB_DONE);
        CHECK_INT(weir_job_result_read(stand->store, ok, bytes, sizeof bytes), >, 4);
        CHECK(memcmp(bytes, "job ", 4) == 0);
        CHECK_INT(weir_job_wait(stand->store, failed), ==, WEIR_JOB_DEAD);
        CHECK_STR(worker_stand_error(stand, failed, NULL), "EDOM");
        CHECK_INT(weir_job_wait(stand->store, then), ==, WEIR_JOB_DONE);
        UNTIL(worker_stand_figures(worker).ok == 5);
    }
    return result;
}

WORKER_TEST(a_thread_that_hears_of_the_cancel_has_its_job_released)
{
    int result = 0;
    uint64_t id = worker_stand_enqueue(stand, "thread hears", 2);
    weir_pool *pool = open_pool(stand, 1, 60000 * (int64_t)test_slower());

    WORKER_SCOPE(scope, &result)
    {
        (void)open_on_pool(stand, scope, pool, 1);
        UNTIL(atom_load(&stand->begun) == 1);
        weir_scope_cancel(scope, 0, "the test");
    }
    CHECK_INT(atom_load(&stand->interrupted), ==, 1);
    CHECK_INT(worker_stand_state(stand, id), ==, WEIR_JOB_READY);
    CHECK_INT(attempts_of(stand, id), ==, 0);
    return result;
}

WORKER_TEST(a_job_that_waits_for_a_thread_is_released)
{
    int result = 0;
    uint64_t first = worker_stand_enqueue(stand, "thread hears", 2);
    uint64_t second = worker_stand_enqueue(stand, "thread hears", 2);
    weir_pool *pool = open_pool(stand, 1, 60000 * (int64_t)test_slower());
    weir_pool_figures figures = {0};

    WORKER_SCOPE(scope, &result)
    {
        (void)open_on_pool(stand, scope, pool, 2);
        do {
            CHECK_OK(weir_yield());
            CHECK_OK(weir_pool_figures_of(pool, 0, &figures));
        } while (figures.running < 1 || figures.queued < 1);
        UNTIL(atom_load(&stand->begun) == 1);
        weir_scope_cancel(scope, 0, "the test");
    }
    /* The thread may have come to the second before that was taken back. */
    CHECK_INT(atom_load(&stand->interrupted), ==, atom_load(&stand->begun));
    CHECK_INT(worker_stand_state(stand, first), ==, WEIR_JOB_READY);
    CHECK_INT(worker_stand_state(stand, second), ==, WEIR_JOB_READY);
    return result;
}

/* It cannot be given to another while its thread is at it. */
WORKER_TEST(a_job_whose_thread_goes_on_is_left_to_it)
{
    int result = 0;
    uint64_t id = worker_stand_enqueue(stand, "thread deaf", 2);
    weir_pool *pool = open_pool(stand, 1, 0);

    WORKER_SCOPE(scope, &result)
    {
        (void)open_on_pool(stand, scope, pool, 1);
        UNTIL(atom_load(&stand->begun) == 1);
        weir_scope_cancel(scope, 0, "the test");
    }
    CHECK_INT(worker_stand_state(stand, id), ==, WEIR_JOB_LEASED);
    atom_store(&stand->may_end, true);
    return result;
}

WORKER_TEST_CLOCK(a_slot_whose_thread_goes_on_is_used_again)
{
    int result = 0;

    WORKER_SCOPE(scope, &result)
    {
        weir_worker *worker = open_on_pool(stand, scope, open_pool(stand, 2, 0), 1);
        uint64_t id = worker_stand_enqueue(stand, "thread deaf", 1), next;

        UNTIL(atom_load(&stand->begun) == 1);
        CHECK_INT(weir_job_cancel(stand->store, id), ==, WEIR_JOB_LEASED);
        test_clock_advance_ms(WORKER_BEAT_MS);
        UNTIL(worker_stand_figures(worker).lost == 1);
        next = worker_stand_enqueue(stand, "ok", 1);
        CHECK_INT(weir_job_wait(stand->store, next), ==, WEIR_JOB_DONE);
        CHECK_INT(worker_stand_state(stand, id), ==, WEIR_JOB_LEASED);
        atom_store(&stand->may_end, true);
    }
    return result;
}

/* ---- Processes ---- */

static int in_helper(void *keep_deps, weir_job job, weir_job_outcome *outcome)
{
    const char *text = job.payload;
    const struct rlimit none = {0, 0};

    CHECK_STR(keep_deps, "deps");
    switch (job.payload_bytes > 0 ? text[0] : 'r') {
    case 'r':
        outcome->result_bytes = (size_t)snprintf(outcome->result, 128, "%s %s %u %u of %u: %.*s",
                                                 job.queue, job.kind, job.version, job.attempt,
                                                 job.attempts_max, (int)job.payload_bytes, text);
        return 0;
    case 'd':
        outcome->as = WEIR_CLASS_DEAD;
        (void)strcpy(outcome->error_class, "own class");
        (void)strcpy(outcome->error_message, "own words");
        return 0;
    case 's':
        outcome->as = WEIR_CLASS_SNOOZE;
        outcome->delay_ms = 1000000;
        return 0;
    case 'f': return -EDOM;
    case 't': return weir_outcome_then(outcome, &(weir_job_spec){.queue = "q", .kind = "work"});
    case 'l': outcome->result_bytes = 1 << 20; return 0;
    case 'h': (void)pause(); return 0;
    default:
        (void)setrlimit(RLIMIT_CORE, &none);
        (void)signal(SIGSEGV, SIG_DFL);
        (void)raise(SIGSEGV);
        return 0;
    }
}

static const weir_handler helper_handlers[] = {{"work", 1, 1, in_helper}};

TEST_PROGRAM(worker_helper)
{
    char name[] = WEIR_PROCESS_POOL_HELPER;
    char *arguments[] = {argv[0], name, NULL};
    char deps[] = "deps";

    weir_worker_helper(2, arguments, helper_handlers, 1, deps);
    return 99;
}

static weir_process_pool *open_some(struct worker_stand *stand, int64_t job_ms, int max_restarts,
                                    int helpers_min)
{
    static const char *const arguments[] = {"worker_helper", NULL};
    weir_process_pool *pool;

    CHECK_OK(weir_process_pool_open(stand->scope,
                                    &(weir_process_pool_spec){.name = "helpers",
                                                              .program = TEST_PROGRAM_PATH,
                                                              .arguments = arguments,
                                                              .helpers_min = helpers_min,
                                                              .helpers_max = 2,
                                                              .in_bytes_max = 4096,
                                                              .out_bytes_max = 2048,
                                                              .overflow = WEIR_WAIT,
                                                              .job_ms = job_ms,
                                                              .max_restarts = max_restarts,
                                                              .window_ms = 600000,
                                                              .on_close = WEIR_DRAIN},
                                    &pool));
    return pool;
}

static weir_process_pool *open_processes(struct worker_stand *stand, int64_t job_ms,
                                         int max_restarts)
{
    return open_some(stand, job_ms, max_restarts, 0);
}

static weir_worker_spec process_spec(struct worker_stand *stand, weir_process_pool *pool)
{
    static const weir_handler handlers[] = {{"work", 1, 1, NULL}, {"unknown", 1, 1, NULL}};
    weir_worker_spec spec = worker_stand_spec(stand, 3);

    spec.executor = WEIR_ON_PROCESSES;
    spec.processes = pool;
    spec.handlers = handlers;
    spec.handler_count = 2;
    spec.result_bytes_max = 1024;
    return spec;
}

#define LONG_MS ((int64_t)60000 * test_slower())

#define HELPER_TEST(name_)                                       \
    static int process_body_##name_(struct worker_stand *stand); \
    TEST_WITH(name_, .timeout_ms = 60000)                        \
    {                                                            \
        io_test_needs_helpers();                                 \
        worker_stand_run(process_body_##name_, false);           \
    }                                                            \
    static int process_body_##name_(struct worker_stand *stand)

HELPER_TEST(handlers_run_in_helper_processes)
{
    int result = 0;

    WORKER_SCOPE(scope, &result)
    {
        weir_worker_spec spec = process_spec(stand, open_processes(stand, LONG_MS, 100));
        weir_job_spec unknown = stand_job("q", "r");
        weir_worker *worker;
        weir_enqueued enqueued;
        char bytes[128] = "";
        const char *message;
        uint64_t ok, dead, snoozed, failed, then, large, empty;

        CHECK_OK(weir_worker_open(scope, &spec, &worker));
        ok = worker_stand_enqueue(stand, "result", 3);
        dead = worker_stand_enqueue(stand, "dead", 3);
        snoozed = worker_stand_enqueue(stand, "snooze", 1);
        failed = worker_stand_enqueue(stand, "fail", 1);
        then = worker_stand_enqueue(stand, "then", 1);
        large = worker_stand_enqueue(stand, "large", 1);
        empty = worker_stand_enqueue(stand, "", 1);
        unknown.kind = "unknown";
        unknown.retry = (weir_job_retry){.attempts_max = 1};
        CHECK_OK(weir_job_enqueue(stand->store, &unknown, &enqueued));
        CHECK_INT(weir_job_wait(stand->store, ok), ==, WEIR_JOB_DONE);
        CHECK_OK(weir_job_result_read(stand->store, ok, bytes, sizeof bytes));
        CHECK_STR(bytes, "q work 1 1 of 3: result");
        CHECK_INT(weir_job_wait(stand->store, empty), ==, WEIR_JOB_DONE);
        CHECK_INT(weir_job_wait(stand->store, dead), ==, WEIR_JOB_DEAD);
        CHECK_STR(worker_stand_error(stand, dead, &message), "own class");
        CHECK_STR(message, "own words");
        CHECK_INT(weir_job_wait(stand->store, failed), ==, WEIR_JOB_DEAD);
        CHECK_STR(worker_stand_error(stand, failed, NULL), "EDOM");
        CHECK_INT(weir_job_wait(stand->store, then), ==, WEIR_JOB_DEAD);
        CHECK_STR(worker_stand_error(stand, then, &message), "WEIR_EREFUSED");
        CHECK_CONTAINS(message, "not in a helper process");
        CHECK_INT(weir_job_wait(stand->store, large), ==, WEIR_JOB_DEAD);
        CHECK_STR(worker_stand_error(stand, large, NULL), "EMSGSIZE");
        CHECK_INT(weir_job_wait(stand->store, enqueued.id), ==, WEIR_JOB_DEAD);
        CHECK_STR(worker_stand_error(stand, enqueued.id, &message), "ENOSYS");
        CHECK_CONTAINS(message, "'unknown'");
        UNTIL(worker_stand_state(stand, snoozed) == WEIR_JOB_SCHEDULED);
    }
    return result;
}

HELPER_TEST(a_helper_that_crashes_is_a_failed_attempt)
{
    int result = 0;

    WORKER_SCOPE(scope, &result)
    {
        weir_worker_spec spec = process_spec(stand, open_processes(stand, LONG_MS, 100));
        weir_worker *worker;
        const char *message;
        uint64_t id = worker_stand_enqueue(stand, "crash", 2);
        uint64_t fine = worker_stand_enqueue(stand, "result", 1);

        CHECK_OK(weir_worker_open(scope, &spec, &worker));
        CHECK_INT(weir_job_wait(stand->store, id), ==, WEIR_JOB_DEAD);
        CHECK_STR(worker_stand_error(stand, id, &message), "crashed");
        CHECK_CONTAINS(message, "SIGSEGV");
        CHECK_INT(attempts_of(stand, id), ==, 2);
        CHECK_INT(weir_job_wait(stand->store, fine), ==, WEIR_JOB_DONE);
    }
    return result;
}

HELPER_TEST(a_helper_that_hangs_is_a_failed_attempt)
{
    int result = 0;

    WORKER_SCOPE(scope, &result)
    {
        weir_worker_spec spec = process_spec(stand, open_processes(stand, 300, 100));
        weir_worker *worker;
        uint64_t id = worker_stand_enqueue(stand, "hang", 1);

        CHECK_OK(weir_worker_open(scope, &spec, &worker));
        CHECK_INT(weir_job_wait(stand->store, id), ==, WEIR_JOB_DEAD);
        CHECK_STR(worker_stand_error(stand, id, NULL), "overtime");
    }
    return result;
}

HELPER_TEST(a_cancel_kills_the_helper_and_releases_the_job)
{
    int result = 0;
    weir_process_pool *pool = open_processes(stand, LONG_MS, 100);
    uint64_t id = worker_stand_enqueue(stand, "hang", 2);
    weir_process_pool_stats stats;

    WORKER_SCOPE(scope, &result)
    {
        weir_worker_spec spec = process_spec(stand, pool);
        weir_worker *worker;

        CHECK_OK(weir_worker_open(scope, &spec, &worker));
        do {
            CHECK_OK(weir_yield());
            weir_process_pool_stats_get(pool, &stats);
        } while (stats.helpers_started == 0);
        weir_scope_cancel(scope, 0, "the test");
    }
    CHECK_INT(worker_stand_state(stand, id), ==, WEIR_JOB_READY);
    CHECK_INT(attempts_of(stand, id), ==, 0);
    return result;
}

/* Its helper was at it: given back, it would be begun twice. One that waits for a helper is not. */
HELPER_TEST(a_cancel_gives_back_what_may_not_be_begun_twice_only_if_no_helper_has_it)
{
    int result = 0;
    weir_process_pool *pool = open_some(stand, LONG_MS, 100, 2);
    uint64_t ids[3];
    int dead = 0, ready = 0;
    weir_process_pool_stats stats;

    for (int i = 0; i < 3; i++) ids[i] = worker_stand_enqueue(stand, "hang", WORKER_STAND_ONCE);
    WORKER_SCOPE(scope, &result)
    {
        weir_worker_spec spec = process_spec(stand, pool);
        weir_worker *worker;

        CHECK_OK(weir_worker_open(scope, &spec, &worker));
        do {
            CHECK_OK(weir_yield());
            weir_process_pool_stats_get(pool, &stats);
        } while (stats.idle > 0 || stats.queued == 0);
        weir_scope_cancel(scope, 0, "the test");
    }
    for (int i = 0; i < 3; i++) {
        bool is_dead = worker_stand_state(stand, ids[i]) == WEIR_JOB_DEAD;

        CHECK_STR(worker_stand_error(stand, ids[i], NULL), is_dead ? "interrupted" : "");
        dead += is_dead;
        ready += worker_stand_state(stand, ids[i]) == WEIR_JOB_READY;
    }
    CHECK_INT(dead, ==, 2);
    CHECK_INT(ready, ==, 1);
    return result;
}

HELPER_TEST(a_pool_that_has_failed_is_the_end_of_the_worker)
{
    int result = 0;

    WEIR_SCOPE(scope, &result, .name = "workers", .on_failure = WEIR_COLLECT, .max_tasks = 8,
               .overflow = WEIR_REJECT) {
        weir_worker_spec spec = process_spec(stand, open_processes(stand, LONG_MS, 1));
        weir_worker *worker;

        spec.concurrency = 1;
        CHECK_OK(weir_worker_open(scope, &spec, &worker));
        for (int i = 0; i < 3; i++) (void)worker_stand_enqueue(stand, "crash", 1);
        CHECK_INT(weir_worker_wait(worker), ==, WEIR_ECLOSED);
        CHECK_INT(worker_stand_figures(worker).dead, ==, 2);
        CHECK_INT(worker_stand_figures(worker).released, ==, 1);
    }
    CHECK_INT(result, ==, WEIR_ECLOSED);
    return 0;
}

HELPER_TEST(a_pool_whose_answers_are_too_small_is_refused)
{
    weir_worker_spec spec = process_spec(stand, open_processes(stand, LONG_MS, 1));
    weir_worker *worker;

    spec.result_bytes_max = 2048;
    CHECK_INT(weir_worker_open(stand->scope, &spec, &worker), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "out_bytes_max of process pool 'helpers' is 2048");
    return 0;
}

/* ---- Traces ---- */

static int drop_spans(void *arg, const weir_trace_batch *batch)
{
    (void)arg, (void)batch;
    return 0;
}

static weir_trace_context seen, seen_by_next;
static ATOM(int) traced;

static int look_at_trace(void *keep_deps, weir_job job, weir_job_outcome *outcome)
{
    bool first = job.payload_bytes > 0;

    (void)keep_deps;
    CHECK(weir_trace_current(first ? &seen : &seen_by_next));
    if (first) {
        CHECK_OK(weir_outcome_then(
            outcome,
            &(weir_job_spec){.queue = "q", .kind = "work", .version = 1, .idempotent = WEIR_YES}));
    }
    (void)atom_add(&traced, 1);
    return 0;
}

static int trace_task(void *arg)
{
    struct store_stand *base = *(struct store_stand **)arg;
    static const weir_handler handlers[] = {{"work", 1, 1, look_at_trace}};
    weir_trace_context own = {0};
    int result = 0;

    WEIR_NO_DEADLINE("the test has a timeout") {
        WORKER_SCOPE(scope, &result)
        {
            struct worker_stand stand = {.scope = scope};
            weir_worker_spec spec;
            weir_worker *worker;
            uint64_t id = 0;

            base->scope = scope;
            stand.store = store_stand_open(base);
            spec = worker_stand_spec(&stand, 2);
            spec.handlers = handlers;
            CHECK_OK(weir_worker_open(scope, &spec, &worker));
            WEIR_SPAN("producer") {
                CHECK(weir_trace_current(&own));
                id = stand_enqueue(stand.store, "q", "first");
            }
            CHECK_INT(weir_job_wait(stand.store, id), ==, WEIR_JOB_DONE);
            UNTIL(atom_load(&traced) == 2);
            CHECK_OK(weir_worker_close(worker));
        }
    }
    CHECK(memcmp(seen.trace_id, own.trace_id, sizeof own.trace_id) == 0);
    CHECK(memcmp(seen.span_id, own.span_id, sizeof own.span_id) != 0);
    CHECK(memcmp(seen_by_next.trace_id, own.trace_id, sizeof own.trace_id) == 0);
    return result;
}

TEST(handlers_work_in_the_trace_of_who_has_enqueued_the_job)
{
    static const weir_trace_exporter exporter = {.name = "none", .write = drop_spans};
    static struct store_stand stand;
    struct store_stand *pointer = &stand;

    store_stand_make(&stand);
    CHECK_OK(
        weir_run(&(weir_config){.workers = test_workers(),
                                .log_level = WEIR_LOG_OFF,
                                .trace = WEIR_TRACE(.service = "test", .sampling = WEIR_TRACE_ALL,
                                                    .overflow = WEIR_DROP_NEWEST,
                                                    .keep_exporter = &exporter)},
                 trace_task, &pointer));
    store_stand_remove(&stand);
}

/* jobs_stand.c - see jobs_test.h. */
#include "unit/store/jobs_test.h"

#include <stdlib.h>

/* The test has a timeout; this is for calls that insist on a deadline, while years pass. */
#define JOBS_DEADLINE_MS (INT64_C(10) * 365 * 24 * 3600 * 1000)

struct run {
    struct jobs_stand stand;
    int (*fn)(struct jobs_stand *stand);
};

static int run_main(void *arg)
{
    struct run *run = *(struct run **)arg;
    int result = 0, r = 0;

    WEIR_DEADLINE(JOBS_DEADLINE_MS) {
        WEIR_SCOPE(scope, &result, .name = "jobs", .on_failure = WEIR_FAIL_FAST, .max_tasks = 64,
                   .overflow = WEIR_REJECT) {
            run->stand.base.scope = scope;
            run->stand.store = store_stand_open(&run->stand.base);
            r = run->fn(&run->stand);
            if (run->stand.store) CHECK_OK(weir_store_close(run->stand.store));
        }
    }
    return r < 0 ? r : result;
}

void jobs_stand_run(int (*fn)(struct jobs_stand *stand), void (*prepare)(struct jobs_stand *stand))
{
    struct run *run = calloc(1, sizeof *run);

    CHECK(run != NULL);
    store_stand_make(&run->stand.base);
    run->fn = fn;
    if (prepare) prepare(&run->stand);
    test_clock_manual();
    test_wall(JOBS_START_MS * 1000000);
    CHECK_OK(weir_run(&(weir_config){.workers = test_workers(), .log_level = WEIR_LOG_OFF},
                      run_main, &run));
    store_stand_remove(&run->stand.base);
    free(run);
}

void jobs_reopen(struct jobs_stand *stand)
{
    CHECK_OK(weir_store_close(stand->store));
    stand->store = store_stand_open(&stand->base);
}

void jobs_pass_ms(int64_t ms)
{
    test_clock_advance_ms(ms);
}

int64_t jobs_now_ms(void)
{
    return JOBS_START_MS + (test_clock_now_ns() - TEST_CLOCK_START_NS) / 1000000;
}

int64_t jobs_try(weir_store *store, const char *queue, weir_job_spec spec)
{
    weir_enqueued enqueued;
    int r;

    spec.queue = queue;
    if (!spec.kind) spec.kind = "work";
    if (spec.idempotent == WEIR_ANSWER_UNSET) spec.idempotent = WEIR_YES;
    if (spec.retry.attempts_max == 0 && spec.idempotent == WEIR_YES)
        spec.retry = (weir_job_retry){
            .attempts_max = 3, .backoff_ms = 1000, .backoff_ms_max = 10000, .no_jitter = true};
    r = weir_job_enqueue(store, &spec, &enqueued);
    return r < 0 ? r : (int64_t)enqueued.id;
}

uint64_t jobs_sure(weir_store *store, const char *queue, weir_job_spec spec)
{
    int64_t r = jobs_try(store, queue, spec);

    CHECK_OK(r);
    return (uint64_t)r;
}

uint64_t jobs_lease(weir_store *store, const char *queue, uint64_t *ret_token)
{
    weir_job job;
    uint64_t id;

    if (stand_lease(store, queue, &job) == 0) return 0;
    id = job.id;
    if (ret_token) *ret_token = job.token;
    weir_job_free(&job);
    return id;
}

uint64_t jobs_work(weir_store *store, const char *queue)
{
    uint64_t token = 0, id = jobs_lease(store, queue, &token);

    if (id != 0) CHECK_OK(weir_job_ack(store, id, token, NULL, 0));
    return id;
}

uint64_t jobs_kill(weir_store *store, const char *queue, const char *error_class)
{
    uint64_t token = 0, id = jobs_lease(store, queue, &token);
    weir_settlement one = {.id = id,
                           .token = token,
                           .how = WEIR_SETTLE_DEAD,
                           .error_class = error_class,
                           .error_message = "it was killed by its test"};

    CHECK(id != 0);
    CHECK_INT(weir_job_settle(store, &one, 1), ==, 1);
    CHECK_INT(one.ret_state, ==, WEIR_JOB_DEAD);
    return id;
}

weir_queue_figures jobs_queue(weir_store *store, const char *queue)
{
    weir_queue_figures figures;

    CHECK_OK(weir_queue_get(store, queue, &figures));
    return figures;
}

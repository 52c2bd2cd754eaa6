/* jobs_scale_test.c - a million queued jobs of 100 bytes (ten in the long tests): what they cost in
 * memory, that they are all there after a restart, and that a lease finds its job among them. */
#include <stdlib.h>

#include "unit/store/jobs_test.h"
#include "unit/store/log_test.h"

enum {
    JOB_BYTES_MAX = 160, /* of memory, a job */
    PAYLOAD_BYTES = 100,
    SCALE_SEGMENT_BYTES = 64 << 20,
};

struct scale {
    struct store_stand stand;
    uint64_t jobs;
};

static void enqueue_many(weir_store *store, uint64_t count)
{
    static char payloads[WEIR_JOB_ENQUEUE_MAX][PAYLOAD_BYTES];
    static weir_job_spec specs[WEIR_JOB_ENQUEUE_MAX];
    static weir_enqueued enqueued[WEIR_JOB_ENQUEUE_MAX];

    for (uint64_t at = 0; at < count; at += WEIR_JOB_ENQUEUE_MAX) {
        size_t n = count - at < WEIR_JOB_ENQUEUE_MAX ? count - at : WEIR_JOB_ENQUEUE_MAX;

        for (size_t i = 0; i < n; i++) {
            uint64_t number = at + i;

            specs[i] = stand_job("q", "");
            memcpy(payloads[i], &number, sizeof number);
            specs[i].payload = payloads[i];
            specs[i].payload_bytes = PAYLOAD_BYTES;
            specs[i].durability = WEIR_MEMORY;
        }
        CHECK_OK(weir_job_enqueue_all(store, specs, n, enqueued));
    }
    CHECK_OK(weir_store_sync(store));
}

static void check_memory(weir_store *store, uint64_t jobs)
{
    weir_store_figures figures;

    weir_store_figures_of(store, &figures);
    CHECK_INT(figures.jobs, ==, jobs);
    CHECK_INT(figures.memory_bytes, <=, figures.memory_bytes_max);
    test_note("%.1f bytes a job, opened in %lld ms", (double)figures.memory_bytes / (double)jobs,
              (long long)figures.open_ms);
    if (jobs >= 100000) CHECK_INT(figures.memory_bytes / jobs, <=, JOB_BYTES_MAX);
}

static void work_some(weir_store *store, uint64_t first)
{
    for (uint64_t i = first; i < first + 100; i++) {
        weir_job job;
        uint64_t number;

        CHECK_INT(stand_lease(store, "q", &job), ==, 1);
        CHECK_INT(job.payload_bytes, ==, PAYLOAD_BYTES);
        memcpy(&number, job.payload, sizeof number);
        CHECK_INT(number, ==, i);
        CHECK_OK(weir_job_ack(store, job.id, job.token, NULL, 0));
        weir_job_free(&job);
    }
}

static int queue_and_reopen(void *arg)
{
    struct scale *scale = *(struct scale **)arg;
    int closed;

    WEIR_NO_DEADLINE("the test has a timeout") {
        WEIR_SCOPE(scope, &closed, .name = "scale", .on_failure = WEIR_FAIL_FAST, .max_tasks = 8,
                   .overflow = WEIR_REJECT) {
            weir_store *store;

            scale->stand.scope = scope;
            store = store_stand_open(&scale->stand);
            enqueue_many(store, scale->jobs);
            check_memory(store, scale->jobs);
            work_some(store, 0);
            CHECK_OK(weir_store_close(store));
            store = store_stand_open(&scale->stand);
            check_memory(store, scale->jobs);
            CHECK_INT(jobs_queue(store, "q").by_state[WEIR_JOB_READY], ==, scale->jobs - 100);
            work_some(store, 100);
            CHECK_OK(weir_store_close(store));
        }
    }
    return closed;
}

static void run_scale(uint64_t jobs)
{
    struct scale *scale = calloc(1, sizeof *scale);
    char path[] = "/tmp/weir-test-XXXXXX";

    CHECK(scale != NULL);
    store_stand_make(&scale->stand);
    store_stand_remove(&scale->stand); /* it may be in memory, of which there may be too little */
    CHECK(mkdtemp(path) != NULL);
    (void)snprintf(scale->stand.path, sizeof scale->stand.path, "%s", path);
    scale->stand.spec.queue_depth_max = 20000000;
    scale->stand.spec.memory_bytes_max = jobs * JOB_BYTES_MAX + (1 << 20);
    scale->stand.sizes.segment_bytes = SCALE_SEGMENT_BYTES;
    scale->stand.sizes.buffer_bytes = 4 << 20;
    scale->stand.sizes.record_bytes_max = 1 << 20;
    scale->jobs = jobs;
    CHECK_OK(weir_run(&(weir_config){.workers = 1, .log_level = WEIR_LOG_OFF}, queue_and_reopen,
                      &scale));
    store_stand_remove(&scale->stand);
    free(scale);
}

TEST_WITH(a_million_queued_jobs_fit_into_the_memory_that_was_said, .timeout_ms = 120000)
{
    run_scale(sanitize_on_valgrind() ? 2000 : TEST_SLOW || test_emulated() ? 50000 : 1000000);
}

TEST_WITH(ten_million_queued_jobs_fit_into_the_memory_that_was_said, .timeout_ms = 900000,
          .long_only = true)
{
    if (TEST_SLOW || test_emulated()) TEST_SKIP("it takes too long here");
    run_scale(10000000);
}

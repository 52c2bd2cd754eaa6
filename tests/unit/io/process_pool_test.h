/* process_pool_test.h - what the tests of process pools share. Their helper is in
 * process_pool_test.c. */
#ifndef WEIR_TESTS_PROCESS_POOL_TEST_H
#define WEIR_TESTS_PROCESS_POOL_TEST_H

#include <string.h>

#include "unit/io/process_test.h"

enum { JOB_BYTES = 100000 };

#define POOL_TEST(name_)                        \
    static int io_body_##name_(void *arg);      \
    TEST_WITH(name_, .timeout_ms = 30000)       \
    {                                           \
        io_test_needs_helpers();                \
        CHECK_OK(io_test_run(io_body_##name_)); \
        check_no_children();                    \
    }                                           \
    static int io_body_##name_(__attribute__((unused)) void *arg)

/* A job that hangs is killed after that; one that does not is done by then, also by a helper
 * that has to wait for a processor. */
#define HANG_MS (1500 * test_slower())

static inline weir_process_pool_spec pool_spec(void)
{
    return (weir_process_pool_spec){.name = "test",
                                    .helpers_max = 2,
                                    .in_bytes_max = JOB_BYTES,
                                    .out_bytes_max = JOB_BYTES,
                                    .overflow = WEIR_WAIT,
                                    .job_ms = 10000,
                                    .max_restarts = 100,
                                    .window_ms = 60000,
                                    .on_close = WEIR_DRAIN};
}

static inline int run_text(weir_process_pool *pool, const char *text)
{
    weir_job_result result;
    char out[64];
    int r = weir_process_pool_run(pool, text, strlen(text), out, sizeof out, &result);

    return r < 0 ? r : result.value;
}

static inline weir_process_pool_stats stats_of(weir_process_pool *pool)
{
    weir_process_pool_stats stats;

    weir_process_pool_stats_get(pool, &stats);
    return stats;
}

struct caller {
    weir_process_pool *pool;
    const char *job;
    int expected;
};

static inline int call_pool(void *arg)
{
    const struct caller *caller = arg;

    WEIR_DEADLINE(IO_TEST_MS) {
        int r = run_text(caller->pool, caller->job);
        if (r == caller->expected) return 0;
        test_note("'%s': %d, %s", caller->job, r, weir_why());
        return -EBADMSG;
    }
    return WEIR_EREFUSED;
}

/* Until the jobs are where they should be. */
static inline void await_queue(weir_process_pool *pool, int helpers, size_t queued)
{
    for (;;) {
        weir_process_pool_stats stats = stats_of(pool);
        if (stats.helpers - stats.idle == helpers && stats.queued == queued) return;
        CHECK_OK(weir_sleep(1));
    }
}

#endif

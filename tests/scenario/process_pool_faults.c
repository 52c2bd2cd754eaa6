/* process_pool_faults.c - a pool of helper processes with something going wrong at every
 * point in turn. Whatever it is, nothing is left: no zombie, no descriptor, no memory. */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "rt/runtime.h"
#include "unit/io/io_test.h"

static int one_job(void *arg)
{
    char out[16];
    int r = weir_process_pool_run(*(weir_process_pool **)arg, "ehello", 6, out, sizeof out, NULL);
    return r < 0 ? r : 0;
}

/* Two helpers, three jobs, of which one waits for the others. */
static int use(weir_scope *scope, weir_process_pool *pool)
{
    char out[16];
    int r = 0;

    for (int i = 0; i < 2 && r == 0; i++) r = weir_spawn(scope, one_job, &pool, sizeof pool);
    if (r < 0) return r;
    return weir_process_pool_run(pool, "ehello", 6, out, sizeof out, NULL);
}

static int working(void *arg)
{
    int result;

    (void)arg;
    WEIR_DEADLINE(IO_TEST_MS) {
        WEIR_SCOPE(owner, &result, .name = "owner", .on_failure = WEIR_FAIL_FAST, .max_tasks = 4,
                   .overflow = WEIR_REJECT) {
            const weir_process_pool_spec spec = {
                .name = "faulty",
                .helpers_min = 1,
                .helpers_max = 2,
                .in_bytes_max = 64,
                .out_bytes_max = 64,
                .overflow = WEIR_WAIT,
                .job_ms = 5000,
                .max_restarts = 10,
                .window_ms = 10000,
                .on_close = WEIR_DRAIN,
            };
            weir_process_pool *pool;
            int r = weir_process_pool_open(owner, &spec, &pool);

            if (r == 0) {
                int inner;
                WEIR_SCOPE(jobs, &inner, .name = "jobs", .on_failure = WEIR_FAIL_FAST,
                           .max_tasks = 8, .overflow = WEIR_REJECT) {
                    r = use(jobs, pool);
                }
                if (r == 0) r = inner;
                if (r == 0) r = weir_process_pool_close(pool);
            }
            if (r < 0) weir_scope_cancel(owner, r, "the work has failed");
        }
        return result;
    }
    return WEIR_EREFUSED;
}

static int scenario(void *arg)
{
    int r;

    (void)arg;
    r = weir_run(&(weir_config){.workers = test_workers(), .log_level = WEIR_LOG_OFF}, working,
                 NULL);
    CHECK_INT(waitpid(-1, NULL, WNOHANG), ==, -1);
    CHECK_INT(errno, ==, ECHILD);
    return r;
}

TEST_WITH(process_pools_survive_a_cancel_at_every_suspension, .timeout_ms = 60000)
{
    io_test_needs_helpers();
    CHECK_INT(test_sweep_cancel(scenario, NULL), >=, 10);
}

TEST_WITH(process_pools_survive_every_allocation_that_fails, .timeout_ms = 60000)
{
    io_test_needs_helpers();
    CHECK_INT(test_sweep_alloc(scenario, NULL), >=, 15);
}

TEST_WITH(process_pools_survive_every_system_call_that_fails, .timeout_ms = 120000)
{
    io_test_needs_helpers();
    CHECK_INT(test_sweep_calls(scenario, NULL, -ENOMEM), >=, 30);
}

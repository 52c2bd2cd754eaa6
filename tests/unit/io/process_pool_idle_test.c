/* process_pool_idle_test.c - helpers that nobody needs, and pools that are closed early. */
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "unit/io/process_pool_test.h"

/* Each has a helper of its own, since none ends before all have begun. */
static int three_jobs_at_a_time(weir_process_pool *pool, char letter)
{
    char folder[] = "/tmp/weir-pool-XXXXXX";
    char job[PATH_MAX];
    struct caller caller = {pool, job, 0};
    int result, fd;

    CHECK(mkdtemp(folder) != NULL);
    (void)snprintf(job, sizeof job, "%c%s/pipe", letter, folder);
    CHECK_INT(mkfifo(job + 1, 0600), ==, 0);
    IO_SCOPE(jobs, &result)
    {
        for (int i = 0; i < 3; i++) CHECK_OK(weir_spawn(jobs, call_pool, &caller, sizeof caller));
        await_queue(pool, 3, 0);
        fd = open(job + 1, O_RDWR | O_CLOEXEC);
        CHECK_INT(fd, >=, 0);
        CHECK_OK(weir_scope_join(jobs));
        CHECK_INT(close(fd), ==, 0);
    }
    CHECK_INT(unlink(job + 1), ==, 0);
    CHECK_INT(rmdir(folder), ==, 0);
    CHECK_INT(stats_of(pool).helpers_started, ==, 3);
    return result;
}

POOL_TEST(idle_helpers_beyond_the_minimum_end)
{
    weir_process_pool_spec spec = pool_spec();
    int result;

    IO_SCOPE(scope, &result)
    {
        weir_process_pool *pool;

        spec.helpers_min = 1;
        spec.helpers_max = 3;
        spec.idle_ms = 20;
        CHECK_OK(weir_process_pool_open(scope, &spec, &pool));
        CHECK_INT(stats_of(pool).idle, ==, 1);
        CHECK_INT(stats_of(pool).helpers_started, ==, 1);
        CHECK_OK(three_jobs_at_a_time(pool, 'f'));
        while (stats_of(pool).helpers > 1) CHECK_OK(weir_sleep(5));
        CHECK_OK(weir_sleep(60));
        CHECK_INT(stats_of(pool).helpers, ==, 1); /* that one is kept */
        CHECK_INT(stats_of(pool).helpers_retired, ==, 2);
        CHECK_INT(stats_of(pool).helpers_crashed, ==, 0);
    }
    return result;
}

/* They take longer to die than it takes to look for idle ones again. */
POOL_TEST(the_minimum_is_kept_while_others_are_dying)
{
    weir_process_pool_spec spec = pool_spec();
    int result;

    IO_SCOPE(scope, &result)
    {
        weir_process_pool *pool;

        spec.helpers_min = 1;
        spec.helpers_max = 3;
        spec.idle_ms = 20;
        spec.grace_ms = 200;
        CHECK_OK(weir_process_pool_open(scope, &spec, &pool));
        CHECK_OK(three_jobs_at_a_time(pool, 'i'));
        while (stats_of(pool).helpers > 1) CHECK_OK(weir_sleep(5));
        CHECK_INT(stats_of(pool).idle, ==, 1);
        CHECK_INT(stats_of(pool).helpers_retired, ==, 2);
    }
    return result;
}

/* ---- Closed early ---- */

static int run_job(void *pool)
{
    return run_text(pool, "e");
}

static int end_pool(void *pool)
{
    return weir_process_pool_close(pool);
}

static int run_late(void *arg)
{
    weir_process_pool_spec spec = pool_spec();
    int result;

    (void)arg;
    IO_SCOPE(scope, &result)
    {
        weir_process_pool *pool;

        CHECK_OK(weir_process_pool_open(scope, &spec, &pool));
        (void)io_test_close_before_it_begins(pool, run_job, end_pool);
    }
    return result;
}

static void run_run_late(void *arg)
{
    (void)arg;
    (void)io_test_run(run_late);
}

TEST(a_pool_that_is_closed_while_its_caller_gives_way_is_told)
{
    io_test_needs_helpers();
    CHECK_ABORTS(run_run_late, NULL, "weir_process_pool_run: the process pool is closed");
}

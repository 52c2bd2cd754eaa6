/* supervise_restarts.c - restart intensity, backoff and cancellation of supervised tasks. */
#include <errno.h>

#include "unit/rt/support.h"

#define MS INT64_C(1000000)

static weir_scope *open_supervised(int max_restarts, int64_t window_ms, int64_t backoff_ms,
                                   int64_t backoff_ms_max)
{
    weir_scope *scope = NULL;

    CHECK_OK(weir_scope_open(&(weir_scope_spec){.name = "supervised",
                                                .on_failure = WEIR_SUPERVISE,
                                                .max_tasks = 10,
                                                .overflow = WEIR_WAIT,
                                                .restart = {.max_restarts = max_restarts,
                                                            .window_ms = window_ms,
                                                            .backoff_ms = backoff_ms,
                                                            .backoff_ms_max = backoff_ms_max}},
                             &scope));
    return scope;
}

enum { STARTS_MAX = 64 };

/* What a crashing task is told, and what it has noted. */
struct crasher {
    ATOM(int) starts;
    int64_t started_ns[STARTS_MAX];
    int64_t lives_ms; /* how long it runs before it fails */
    int fails;        /* that often, then it succeeds */
    int scratch;
};

struct crasher_arg {
    struct crasher *crasher;
    int pristine; /* the task changes its copy */
    char padding[100];
};

static int crash(void *arg)
{
    struct crasher_arg *given = arg;
    struct crasher *crasher = given->crasher;

    CHECK_INT(given->pristine, ==, 12345);
    given->pristine = -1;
    memset(given->padding, 0xff, sizeof given->padding);
    CHECK_INT(crasher->starts, <, STARTS_MAX);
    crasher->started_ns[crasher->starts++] = weir_now_ns();
    if (crasher->lives_ms > 0) {
        int r = weir_sleep(crasher->lives_ms);

        if (r < 0) return r;
    }
    return crasher->starts <= crasher->fails ? -EIO : 0;
}

static weir_task spawn_crasher(weir_scope *scope, struct crasher *crasher)
{
    struct crasher_arg given = {crasher, 12345, ""};

    return spawn_task(scope, "crasher", crash, &given, sizeof given);
}

/* ---- Intensity ---- */

/* `fails` failures, one each life of lives_ms, against max_restarts in window_ms. */
struct intensity {
    int max_restarts;
    int64_t window_ms;
    int64_t lives_ms;
    int fails;
    int close;
    int starts;
};

static int play_intensity(void *arg)
{
    const struct intensity *row = arg;
    struct crasher crasher = {.lives_ms = row->lives_ms, .fails = row->fails};
    weir_scope *scope = open_supervised(row->max_restarts, row->window_ms, 0, 0);

    CHECK_OK(weir_spawn(scope, sleep_until_cancelled, NULL, 0));
    spawn_crasher(scope, &crasher);
    CHECK_OK(weir_sleep(100000) == 0 || row->close < 0 ? 0 : -1);
    if (row->close == 0) {
        CHECK_INT(weir_scope_task_count(scope), ==, 1); /* only the sibling is left */
        weir_scope_cancel(scope, 0, "nothing failed for good");
    }
    CHECK_INT(weir_scope_close(scope), ==, row->close);
    CHECK_INT(crasher.starts, ==, row->starts);
    return 0;
}

TEST(restart_intensity_is_exact_at_its_limit_and_its_window_slides)
{
    static const struct intensity rows[] = {
        {3, 1000, 10, 3, 0, 4},    /* as many failures as restarts */
        {3, 1000, 10, 4, -EIO, 4}, /* one more */
        {3, 1000, 10, 50, -EIO, 4},     {1, 1000, 10, 1, 0, 2}, {1, 1000, 10, 2, -EIO, 2},
        {1, 1000, 999, 2, -EIO, 2},  /* the first restart is still inside */
        {1, 1000, 1000, 20, 0, 21},  /* it has just left the window */
        {3, 1000, 400, 20, 0, 21},   /* at most three in any 1000 ms: 400, 800, 1200 */
        {3, 1000, 300, 20, -EIO, 4}, /* the fourth comes 900 ms after the first */
        {2, INT64_MAX, 10, 2, 0, 3}, /* a window without end */
        {2, INT64_MAX, 10, 3, -EIO, 3},
    };

    test_clock_auto();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct intensity row = rows[i];

        test_note("row %zu", i);
        CHECK_OK(run_on(1, play_intensity, &row));
    }
}

/* ---- Backoff ---- */

static int play_backoff(void *arg)
{
    static const int64_t waits_ms[] = {10, 20, 40, 80, 100, 100, 100};
    struct crasher crasher = {.fails = 7};
    weir_scope *scope = open_supervised(10, 100000, 10, 100);

    (void)arg;
    spawn_crasher(scope, &crasher);
    CHECK_OK(weir_scope_close(scope));
    CHECK_INT(crasher.starts, ==, 8);
    for (int i = 0; i < 7; i++)
        CHECK_INT(crasher.started_ns[i + 1] - crasher.started_ns[i], ==, waits_ms[i] * MS);

    /* Without a maximum it stays what it is; a quiet window begins anew. */
    crasher = (struct crasher){.fails = 3};
    scope = open_supervised(10, 100000, 7, 0);
    spawn_crasher(scope, &crasher);
    CHECK_OK(weir_scope_close(scope));
    for (int i = 0; i < 3; i++)
        CHECK_INT(crasher.started_ns[i + 1] - crasher.started_ns[i], ==, 7 * MS);

    crasher = (struct crasher){.fails = 3, .lives_ms = 500};
    scope = open_supervised(10, 400, 10, 100);
    spawn_crasher(scope, &crasher);
    CHECK_OK(weir_scope_close(scope));
    for (int i = 0; i < 3; i++)
        CHECK_INT(crasher.started_ns[i + 1] - crasher.started_ns[i], ==, 510 * MS);
    return 0;
}

TEST(backoff_doubles_up_to_its_maximum_and_begins_anew_after_a_quiet_window)
{
    test_clock_auto();
    CHECK_OK(run_on(1, play_backoff, NULL));
}

static int play_huge_backoff(void *arg)
{
    struct crasher crasher = {.fails = 4};
    weir_scope *scope = open_supervised(10, INT64_MAX, INT64_MAX / 2 + 1, INT64_MAX);

    (void)arg;
    spawn_crasher(scope, &crasher);
    CHECK_OK(weir_sleep(1000));
    CHECK_INT(crasher.starts, ==, 1);
    weir_scope_cancel(scope, 0, "nobody waits that long");
    return weir_scope_close(scope);
}

TEST(backoff_of_any_size_does_not_overflow)
{
    test_clock_auto();
    CHECK_OK(run_on(1, play_huge_backoff, NULL));
}

/* ---- Cancel during backoff ---- */

static int cancel_backoff(void *arg)
{
    struct crasher crasher = {.fails = 100};
    int64_t start_ns = weir_now_ns();
    weir_scope *scope = open_supervised(10, 1000000, 60000, 60000);
    weir_task task = spawn_crasher(scope, &crasher);
    int result = 0;

    (void)arg;
    spawn_crasher(scope, &crasher);
    CHECK_OK(weir_sleep(10));
    CHECK_INT(crasher.starts, ==, 2);
    CHECK_INT(weir_scope_task_count(scope), ==, 2); /* waiting for a restart is alive */
    CHECK_OK(weir_task_cancel(task, "this one"));
    CHECK_OK(weir_task_join(task, &result));
    CHECK_INT(result, ==, WEIR_ECANCELED);
    CHECK_INT(weir_scope_task_count(scope), ==, 1);
    weir_scope_cancel(scope, 0, "and the other");
    CHECK_OK(weir_scope_close(scope));
    CHECK_INT(weir_now_ns() - start_ns, ==, 10 * MS); /* at once */
    CHECK_INT(crasher.starts, ==, 2);
    return 0;
}

TEST(cancel_during_backoff_ends_the_task_at_once)
{
    test_clock_auto();
    CHECK_OK(run_on(1, cancel_backoff, NULL));
}

/* A task that waits for its restart has nothing to finish: a drain does not wait for it,
 * and the failure it was to be restarted for is final. */
static int stop_backoff(void *arg)
{
    struct crasher crasher = {.fails = 100};
    int64_t start_ns = weir_now_ns();
    weir_scope *scope = open_supervised(10, 1000000, 60000, 60000);
    weir_task task = spawn_crasher(scope, &crasher);
    weir_failure failures[2];
    int result = 0;

    (void)arg;
    CHECK_OK(weir_sleep(10));
    CHECK_INT(weir_scope_task_count(scope), ==, 1);
    weir_scope_stop(scope, 3000);
    CHECK_OK(weir_task_join(task, &result));
    CHECK_INT(result, ==, -EIO);
    CHECK_INT(weir_scope_join(scope), ==, -EIO);
    CHECK_INT(weir_now_ns() - start_ns, ==, 10 * MS); /* at once */
    CHECK_INT(weir_scope_failures(scope, failures, 2), ==, 1);
    CHECK_INT(failures[0].error, ==, -EIO);
    CHECK_STR(failures[0].task, "crasher");
    CHECK_INT(weir_scope_close(scope), ==, -EIO);
    CHECK_INT(crasher.starts, ==, 1);
    return 0;
}

TEST(stop_during_backoff_ends_the_task_and_keeps_its_failure)
{
    struct capture capture;

    test_clock_auto();
    CHECK_OK(run_logged(1, WEIR_LOG_WARNING, &capture, stop_backoff, NULL));
    CHECK_INT(capture_count(&capture, WEIR_LOG_WARNING, NULL, "was cut off"), ==, 0);
}

static int join_through_restarts(void *arg)
{
    struct crasher crasher = {.fails = 3, .lives_ms = 1};
    weir_scope *scope = open_supervised(10, 1000, 1, 1);
    weir_task task = spawn_crasher(scope, &crasher);
    int result = -1;

    (void)arg;
    CHECK_OK(weir_task_join(task, &result));
    CHECK_INT(result, ==, 0);
    CHECK_INT(crasher.starts, ==, 4);
    return weir_scope_close(scope);
}

TEST(join_waits_through_restarts)
{
    CHECK_OK(run_on(1, join_through_restarts, NULL));
    CHECK_OK(run_on(2, join_through_restarts, NULL));
}

/* ---- Exhaustion ---- */

static int exhaust(void *arg)
{
    struct crasher crasher = {.fails = 100};
    weir_scope *scope = open_supervised(2, 1000, 0, 0);
    weir_task sibling = spawn_task(scope, "sibling", sleep_until_cancelled, NULL, 0);
    weir_failure failure = {0};
    int result = 0;

    (void)arg;
    spawn_crasher(scope, &crasher);
    CHECK_OK(weir_sleep(10) == WEIR_ECANCELED ? 0 : -1);
    WEIR_SHIELD(60000) CHECK_OK(weir_task_join(sibling, &result));
    CHECK_INT(result, ==, WEIR_ECANCELED);
    CHECK_INT(weir_scope_failures(scope, &failure, 1), ==, 1);
    CHECK_INT(failure.error, ==, -EIO);
    CHECK_INT(failure.restarts, ==, 2);
    CHECK_STR(failure.task, "crasher");
    CHECK_INT(weir_scope_close(scope), ==, -EIO);
    return 0;
}

TEST(beyond_the_intensity_the_failure_is_the_scopes_and_its_siblings_are_cancelled)
{
    struct capture capture;

    test_clock_auto();
    CHECK_OK(run_logged(1, WEIR_LOG_ERROR, &capture, exhaust, NULL));
    CHECK_INT(capture_count(&capture, WEIR_LOG_ERROR, "crasher", "failed: "), ==, 3);
    CHECK_INT(capture_count(&capture, WEIR_LOG_ERROR, "crasher",
                            "more than 2 restarts within 1000 ms in scope 'supervised'"),
              ==, 1);
}

/* ---- On several workers ---- */

static int crash_often(void *arg)
{
    ATOM(int) *left = *(ATOM(int) **)arg;
    int r = weir_yield();

    if (r < 0) return r;
    return atom_sub(left, 1) > 0 ? -EIO : 0;
}

static int crash_on_both(void *arg)
{
    ATOM(int) left = 900;
    ATOM(int) *pointer = &left;
    weir_scope *scope = open_supervised(1000, 1000000, 0, 0);

    (void)arg;
    for (int i = 0; i < 8; i++) spawn_at(scope, i % 2, "c", crash_often, &pointer, sizeof pointer);
    CHECK_OK(weir_scope_close(scope));
    CHECK_INT(atom_load(&left), <=, 0);
    return 0;
}

TEST(supervised_tasks_of_two_workers_share_one_intensity)
{
    CHECK_OK(run_on(2, crash_on_both, NULL));
}

static int crash_now_and_then(void *arg)
{
    int r = weir_sleep(1);

    (void)atom_sub(*(ATOM(int) **)arg, 1);
    return r < 0 ? r : -EIO;
}

static int cancel_while_crashing(void *arg)
{
    int rounds = *(int *)arg;

    for (int i = 0; i < rounds && (i == 0 || !test_late()); i++) {
        ATOM(int) left = 1000000;
        ATOM(int) *pointer = &left;
        weir_scope *scope = open_supervised(1000, 1000000, i % 2, 1);
        int r;

        for (int n = 0; n < 6; n++)
            spawn_at(scope, n % 2, "c", crash_now_and_then, &pointer, sizeof pointer);
        while (atom_load(&left) > 1000000 - 20) {
            r = weir_yield();
            if (r < 0) break;
        }
        weir_scope_cancel(scope, 0, "in the midst of it");
        r = weir_scope_close(scope);
        CHECK(r == 0 || r == -EIO); /* some fail in the moment of the cancel */
    }
    return 0;
}

TEST(cancel_of_crashing_tasks_on_two_workers_ends_them_all)
{
    int rounds = TEST_SLOW ? 20 : 100;

    CHECK_OK(run_on(2, cancel_while_crashing, &rounds));
}

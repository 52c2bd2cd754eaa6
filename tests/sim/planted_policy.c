/* planted_policy.c - bugs that are planted in policies, and in input and output: each program is
 * the smallest that shows its bug. */
#include "sim/planted.h"
#include "sim/policy.h"

/* ---- Policies ---- */

static weir_breaker *breaker;
static weir_retry_budget *budget;
static weir_limit *limit;
static weir_rate *rate;
static weir_dead_letters *letters;
static weir_guard *guard;
static int counted;

static int sleep_by_lot(void *arg)
{
    (void)arg;
    return weir_sleep(weir_sim_choose(20));
}

static int call_guard(void *arg)
{
    int r = weir_guard_call(guard, sleep_by_lot, NULL, 0, NULL);

    (void)arg;
    return r == WEIR_ECANCELED ? r : 0;
}

static int cancelled_probe(void *arg)
{
    weir_task task;
    int r = 0;

    (void)arg;
    SCOPE_OF(scope, &r, 2)
    {
        CHECK_OK(weir_breaker_open(scope,
                                   &(weir_breaker_spec){.name = "breaker",
                                                        .window_calls = 4,
                                                        .calls_min = 4,
                                                        .failure_percent = 100,
                                                        .open_ms = 10,
                                                        .probes_max = 1,
                                                        .probe_lost_ms = CROWD_MS},
                                   &breaker));
        CHECK_OK(weir_guard_open(
            scope, &(weir_guard_spec){.name = "guard", .timeout_ms = 1000, .keep_breaker = breaker},
            &guard));
        weir_breaker_trip(breaker);
        CHECK_OK(weir_sleep(10));
        CHECK_OK(weir_task_spawn(scope, &(weir_task_spec){.fn = call_guard}, &task));
        CHECK_OK(weir_sleep(weir_sim_choose(20)));
        (void)weir_task_cancel(task, "the test cancels it");
        CHECK_OK(weir_task_join(task, NULL));
        CHECK_OK(weir_guard_call(guard, sleep_by_lot, NULL, 0, NULL));
    }
    return r;
}
PLANTED_CASE(BREAKER_PROBE_LEAK, cancelled_probe, .runs_max = 25)

static int take_token(void *arg)
{
    (void)arg;
    if (weir_retry_budget_take(budget) == 0) counted++;
    return 0;
}

/* Two tokens are wanted, and one is there. */
static int budget_for_one(void *arg)
{
    int r = 0;

    (void)arg;
    counted = 0;
    SCOPE_OF(scope, &r, 1)
    {
        CHECK_OK(weir_retry_budget_open(
            scope, &(weir_retry_budget_spec){.name = "budget", .ratio_percent = 1, .burst = 1},
            &budget));
        CHECK_OK(crowd(2, take_token));
        CHECK_INT(counted, ==, 1);
    }
    return r;
}
PLANTED_CASE(BUDGET_CHECKED_THEN_TAKEN, budget_for_one, .runs_max = 800,
             .config = &policy_two_workers)

static int fail_at_once(void *arg)
{
    (void)arg;
    counted++;
    return -ECONNRESET;
}

static int call_that_fails(void *arg)
{
    int r = weir_guard_call(guard, fail_at_once, NULL, 0, NULL);

    (void)arg;
    return r == WEIR_ECANCELED ? r : 0;
}

static void open_budget_guard(weir_scope *scope, int attempts, int64_t hedge_after_ms)
{
    weir_guard_spec spec = {.name = "guard",
                            .timeout_ms = 1000,
                            .attempt_timeout_ms = 100,
                            .idempotent = true,
                            .hedge_after_ms = hedge_after_ms,
                            .retry = {.attempts = attempts, .on_exhausted = WEIR_EXHAUSTED_FAIL}};

    CHECK_OK(weir_retry_budget_open(
        scope, &(weir_retry_budget_spec){.name = "budget", .ratio_percent = 1}, &budget));
    spec.retry.keep_budget = budget;
    if (attempts > 1) {
        spec.retry.backoff_ms = spec.retry.backoff_ms_max = 10;
        spec.retry.errors[0] = -ECONNRESET;
    }
    CHECK_OK(weir_guard_open(scope, &spec, &guard));
}

static int cancelled_retry(void *arg)
{
    weir_retry_budget_figures figures;
    weir_task task;
    int r = 0;

    (void)arg;
    counted = 0;
    SCOPE_OF(scope, &r, 1)
    {
        open_budget_guard(scope, 2, 0);
        CHECK_OK(weir_task_spawn(scope, &(weir_task_spec){.fn = call_that_fails}, &task));
        CHECK_OK(weir_sleep(weir_sim_choose(10)));
        (void)weir_task_cancel(task, "the test cancels it");
        CHECK_OK(weir_task_join(task, NULL));
        weir_retry_budget_figures_of(budget, &figures);
        if (counted > 0) CHECK_INT(figures.taken - figures.returned, ==, counted - 1);
    }
    return r;
}
PLANTED_CASE(BUDGET_TOKEN_KEPT, cancelled_retry, .runs_max = 20)

static int first_is_slower(void *arg)
{
    (void)arg;
    return weir_sleep(counted++ == 0 ? 20 : 40);
}

static int hedge_that_loses(void *arg)
{
    int64_t began_ns = weir_now_ns();
    int r = 0;

    (void)arg;
    counted = 0;
    SCOPE_OF(scope, &r, 1)
    {
        open_budget_guard(scope, 1, 10);
        CHECK_OK(weir_guard_call(guard, first_is_slower, NULL, 0, NULL));
        CHECK_INT(weir_now_ns() - began_ns, ==, 20 * MS_NS);
    }
    return r;
}
PLANTED_CASE(HEDGE_RUNS_ON, hedge_that_loses, .runs_max = 10)

static int count_and_sleep(void *arg)
{
    (void)arg;
    counted++;
    return weir_sleep(10);
}

/* The attempt ends in the moment in which the hedge is due. */
static int hedge_without_a_turn(void *arg)
{
    weir_retry_budget_figures figures;
    int r = 0;

    (void)arg;
    counted = 0;
    SCOPE_OF(scope, &r, 1)
    {
        open_budget_guard(scope, 1, 10);
        CHECK_OK(weir_guard_call(guard, count_and_sleep, NULL, 0, NULL));
        weir_retry_budget_figures_of(budget, &figures);
        CHECK_INT(figures.taken - figures.returned, ==, counted - 1);
    }
    return r;
}
PLANTED_CASE(HEDGE_TOKEN_KEPT, hedge_without_a_turn, .runs_max = 25)

static int go_in_and_out(void *arg)
{
    weir_limit_pass pass = {0};
    int r = weir_limit_enter(limit, &pass);

    (void)arg;
    if (r < 0) return r;
    r = weir_sleep(1);
    weir_limit_leave(limit, &pass, r);
    return r;
}

static void open_limit(weir_scope *scope)
{
    CHECK_OK(weir_limit_open(scope,
                             &(weir_limit_spec){.name = "limit",
                                                .kind = WEIR_LIMIT_FIXED,
                                                .concurrency = 1,
                                                .overflow = WEIR_WAIT,
                                                .waiters_max = 4},
                             &limit));
}

static int cancelled_in_line(void *arg)
{
    weir_limit_figures figures;
    weir_task tasks[2];
    int r = 0;

    (void)arg;
    SCOPE_OF(scope, &r, 2)
    {
        open_limit(scope);
        CHECK_OK(crowd_of(2, go_in_and_out, scope, tasks));
        CHECK_OK(weir_sleep(1));
        (void)weir_task_cancel(tasks[1], "the test cancels it");
        for (unsigned i = 0; i < 2; i++) CHECK_OK(weir_task_join(tasks[i], NULL));
        weir_limit_figures_of(limit, &figures);
        CHECK_INT(figures.in_flight, ==, 0);
    }
    return r;
}
PLANTED_CASE(LIMIT_PERMIT_LEAK, cancelled_in_line, .runs_max = 85)

static int go_through(void *arg)
{
    weir_limit_pass pass = {0};
    int r = weir_limit_enter(limit, &pass);

    (void)arg;
    if (r == 0) weir_limit_leave(limit, &pass, 0);
    return r;
}

static int through_a_limit(void *arg)
{
    int r = 0;

    (void)arg;
    SCOPE_OF(scope, &r, 1)
    {
        open_limit(scope);
        CHECK_OK(crowd(3, go_through));
    }
    return r;
}
PLANTED_CASE(LIMIT_LOOKS_TOO_EARLY, through_a_limit, .runs_max = 1300,
             .config = &policy_two_workers)

static int take_one(void *arg)
{
    (void)arg;
    return weir_rate_take(rate, 1);
}

static void open_rate(weir_scope *scope)
{
    CHECK_OK(weir_rate_open(
        scope,
        &(weir_rate_spec){
            .name = "rate", .rate = 100, .burst = 1, .overflow = WEIR_WAIT, .waiters_max = 4},
        &rate));
}

/* Three tokens take two times ten milliseconds, no less and no more. */
static int rate_for_three(void *arg)
{
    int64_t began_ns = weir_now_ns();
    int r = 0;

    (void)arg;
    SCOPE_OF(scope, &r, 1)
    {
        open_rate(scope);
        CHECK_OK(crowd(3, take_one));
        CHECK_INT(weir_now_ns() - began_ns, >=, 20 * MS_NS);
        CHECK_INT(weir_now_ns() - began_ns, <=, 22 * MS_NS);
    }
    return r;
}
PLANTED_CASE(RATE_ELSEWHERE_FORGOTTEN, rate_for_three, .runs_max = 20,
             .config = &policy_two_workers)
PLANTED_CASE(RATE_REFILLED_TWICE, rate_for_three, .runs_max = 10)

int shed_in_a_guard(void *arg); /* policy_shed.c */
PLANTED_CASE(SHED_CLOCK_STALE, shed_in_a_guard, .runs_max = 85)

static void lose(const weir_letter *letter, const void *item, void *keep_arg)
{
    (void)letter, (void)item, (void)keep_arg;
}

static int take_letter(void *arg)
{
    weir_letter letter;

    (void)arg;
    counted += weir_dead_letters_take(letters, 0, &letter, NULL, 0);
    return 0;
}

static int one_letter(void *arg)
{
    int r = 0;

    (void)arg;
    counted = 0;
    SCOPE_OF(scope, &r, 1)
    {
        CHECK_OK(weir_dead_letters_open(scope,
                                        &(weir_dead_letters_spec){.name = "letters",
                                                                  .capacity = 2,
                                                                  .item_bytes_max = 8,
                                                                  .overflow = WEIR_REJECT,
                                                                  .on_lost = lose},
                                        &letters));
        CHECK_OK(weir_dead_letters_put(
            letters, &(weir_letter){.source = "test", .reason = WEIR_LETTER_PROGRAM}, NULL, 0));
        CHECK_OK(crowd(2, take_letter));
        CHECK_INT(counted, ==, 1);
    }
    return r;
}
PLANTED_CASE(LETTER_TAKEN_TWICE, one_letter, .runs_max = 1600, .config = &policy_two_workers)

/* ---- Input and output ---- */

static weir_conn *ends[2];
static weir_listener *listener;

static int read_in_pieces(void *arg)
{
    char data[64];
    size_t taken = 0;

    (void)arg;
    WEIR_DEADLINE(1000) {
        while (taken < 40) {
            ssize_t n = weir_conn_read(ends[0], data, sizeof data);
            CHECK_INT(n, >, 0);
            taken += (size_t)n;
        }
    }
    return 0;
}

static int write_pieces(void *arg)
{
    (void)arg;
    WEIR_DEADLINE(1000) {
        for (unsigned i = 0; i < 2; i++) {
            CHECK_OK(weir_conn_send_all(ends[1], "0123456789abcdefghij", 20, NULL));
            CHECK_OK(weir_yield());
        }
    }
    return 0;
}

static int read_or_write(void *arg)
{
    return *(unsigned *)arg == 0 ? read_in_pieces(NULL) : write_pieces(NULL);
}

static int pieces(void *arg)
{
    (void)arg;
    CHECK_OK(weir_socketpair(&ends[0], &ends[1]));
    CHECK_OK(crowd(2, read_or_write));
    weir_conn_close(ends[0]);
    weir_conn_close(ends[1]);
    return 0;
}
PLANTED_CASE(READ_FORGETS_READINESS, pieces, .runs_max = 35, .faults = {.short_io = 2})

static int accept_or_connect(void *arg)
{
    weir_conn *conn;

    WEIR_DEADLINE(1000) {
        if (*(unsigned *)arg > 0) {
            CHECK_OK(weir_connect("tcp:127.0.0.1:7000", &conn));
            CHECK_OK(weir_sleep(500));
            weir_conn_close(conn);
        } else {
            for (unsigned i = 0; i < 2; i++) {
                CHECK_OK(weir_accept(listener, &conn));
                weir_conn_close(conn);
            }
        }
    }
    return 0;
}

static int two_connect(void *arg)
{
    (void)arg;
    CHECK_OK(weir_listen(&(weir_listen_spec){.address = "tcp:127.0.0.1:7000"}, &listener));
    CHECK_OK(crowd(3, accept_or_connect));
    weir_listener_close(listener);
    return 0;
}
PLANTED_CASE(ACCEPT_ONE_PER_EDGE, two_connect, .runs_max = 10)

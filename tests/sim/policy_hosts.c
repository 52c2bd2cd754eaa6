/* policy_hosts.c - a guard around calls of another host, which is cut off, killed and started
 * again: every call ends in its time, the breaker opens and closes, and the budget bounds what is
 * tried. */
#include "sim/policy.h"

enum { CALLERS = 3, CALLS = 8, TIMEOUT_MS = 200, ATTEMPT_MS = 60, PORT = 7000 };

static weir_guard *guard;
static weir_breaker *breaker;
static weir_retry_budget *budget;

static struct {
    unsigned calls, answered, failed, retries, attempts, served;
    uint64_t opened, closed;
} seen;

static void forget(void *arg)
{
    (void)arg;
    memset(&seen, 0, sizeof seen);
}

/* ---- The service: a number comes, and its double goes back ---- */

static int serve_conn(void *arg)
{
    weir_conn *conn = *(weir_conn **)arg;
    uint32_t number;

    WEIR_DEADLINE(CROWD_MS) {
        while (weir_conn_read_exact(conn, &number, sizeof number, NULL) == 0) {
            number *= 2;
            seen.served++;
            if (weir_conn_send_all(conn, &number, sizeof number, NULL) < 0) break;
        }
    }
    weir_conn_close(conn);
    return 0;
}

static int service(void *arg)
{
    int r = 0;

    (void)arg;
    WEIR_SCOPE(scope, &r, .name = "service", .on_failure = WEIR_COLLECT, .max_tasks = 64,
               .overflow = WEIR_REJECT, .deadline_ms = CROWD_MS) {
        weir_listener *listener;
        weir_conn *conn;

        CHECK_OK(weir_listen(&(weir_listen_spec){.address = "tcp:0.0.0.0:7000"}, &listener));
        while (weir_accept(listener, &conn) == 0) {
            if (weir_spawn(scope, serve_conn, &conn, sizeof conn) < 0) weir_conn_close(conn);
        }
        weir_listener_close(listener);
    }
    return r;
}

/* ---- Its callers ---- */

static int ask(void *arg)
{
    uint32_t *number = arg;
    weir_address address;
    weir_conn *conn;
    int r = weir_resolve("service", PORT, WEIR_TCP, &address, 1);

    seen.attempts++;
    if (r < 0) return r;
    r = weir_connect_to(&address, &conn);
    if (r < 0) return r;
    r = weir_conn_send_all(conn, number, sizeof *number, NULL);
    if (r == 0) r = weir_conn_read_exact(conn, number, sizeof *number, NULL);
    weir_conn_close(conn);
    return r;
}

static int call_some(void *arg)
{
    uint32_t caller = *(unsigned *)arg;

    for (uint32_t i = 0; i < CALLS; i++) {
        uint32_t number = caller * 100 + i;
        int64_t began_ns = weir_now_ns();
        weir_guard_outcome outcome;
        int r = weir_guard_call(guard, ask, &number, sizeof number, &outcome);

        seen.calls++;
        CHECK_INT(weir_now_ns() - began_ns, <=, TIMEOUT_MS * MS_NS);
        if (r == 0) {
            CHECK_INT(number, ==, (caller * 100 + i) * 2);
            seen.answered++;
        } else {
            CHECK_INT(number, ==, caller * 100 + i);
            seen.failed++;
        }
        if (outcome.attempts > 1) seen.retries += (unsigned)outcome.attempts - 1;
        CHECK_OK(weir_sleep(20 + weir_sim_choose(40)));
    }
    return 0;
}

static void open_guard(weir_scope *scope)
{
    CHECK_OK(weir_breaker_open(scope,
                               &(weir_breaker_spec){.name = "service",
                                                    .window_calls = 4,
                                                    .calls_min = 3,
                                                    .failure_percent = 60,
                                                    .open_ms = 50,
                                                    .probes_max = 1},
                               &breaker));
    CHECK_OK(weir_retry_budget_open(
        scope, &(weir_retry_budget_spec){.name = "service", .ratio_percent = 20, .burst = 2},
        &budget));
    CHECK_OK(weir_guard_open(
        scope,
        &(weir_guard_spec){
            .name = "service",
            .timeout_ms = TIMEOUT_MS,
            .attempt_timeout_ms = ATTEMPT_MS,
            .keep_breaker = breaker,
            .idempotent = true,
            .retry = {.attempts = 3,
                      .backoff_ms = 5,
                      .backoff_ms_max = 10,
                      .errors = {-ECONNRESET, -ECONNREFUSED, -EPIPE, WEIR_ETIMEDOUT, WEIR_ECLOSED},
                      .on_exhausted = WEIR_EXHAUSTED_FAIL,
                      .keep_budget = budget}},
        &guard));
}

/* After the outage: everything is well again, and was within its bounds. */
static void check_after(void)
{
    weir_retry_budget_figures figures;
    weir_breaker_figures broken;

    weir_retry_budget_figures_of(budget, &figures);
    weir_breaker_figures_of(breaker, &broken);
    CHECK_INT(seen.calls, ==, seen.answered + seen.failed);
    CHECK_INT(seen.retries, ==, figures.taken - figures.returned);
    CHECK_INT(seen.retries * 100, <=, 2 * 100 + figures.calls * 20);
    CHECK_INT(broken.let_in, ==, broken.went_well + broken.failed + broken.silent);
}

static int outage(bool by_kill)
{
    weir_sim_host *host = host_start("service", service);
    int r = 0;

    SCOPE_OF(scope, &r, 1)
    {
        uint32_t number = 21;

        open_guard(scope);
        CHECK_OK(weir_sleep(10));
        SCOPE_OF(inner, &r, CALLERS)
        {
            CHECK_OK(crowd_of(CALLERS, call_some, inner, NULL));
            CHECK_OK(weir_sleep(weir_sim_choose(200)));
            if (by_kill) {
                weir_sim_host_kill(host);
            } else {
                weir_sim_partition(weir_sim_host_self(), host);
            }
            CHECK_OK(weir_sleep(100 + weir_sim_choose(300)));
            if (by_kill) {
                CHECK_OK(weir_sim_host_restart(host));
            } else {
                weir_sim_heal(weir_sim_host_self(), host);
            }
        }
        CHECK_OK(r);
        check_after();
        /* What failed on its way is over, the breaker's time too: so a call goes well. */
        CHECK_OK(weir_sleep(1000));
        CHECK_OK(weir_guard_call(guard, ask, &number, sizeof number, NULL));
        CHECK_INT(number, ==, 42);
    }
    return r;
}

SIM_TEST(sim_guard_rides_out_a_partition_within_its_budgets, .runs_max = 600, .begin = forget)
{
    return outage(false);
}

SIM_TEST(sim_guard_rides_out_a_killed_host_within_its_budgets, .runs_max = 600, .begin = forget)
{
    return outage(true);
}

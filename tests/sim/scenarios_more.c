/* scenarios_more.c - the rest of the situations by name: streams that break and go on, consumers
 * that are slow, messages that nobody can handle, cancellation at every suspension, and a stop. */
#include "sim/policy.h"

enum {
    RECORDS = 20,
    CAPACITY = 3,
    MESSAGES = 8,
    POISON = 3,
    ATTEMPTS = 3,
    PATIENCE_MS = 60 * 1000
};

static struct {
    uint32_t next; /* the record that the client wants */
    unsigned connects, accepted, answered, closed;
    unsigned handled[MESSAGES], tried[MESSAGES], letters;
    unsigned sent, received, depth_max;
    unsigned entered, left;
    unsigned asked, done, refused;
} seen;

static void forget(void *arg)
{
    (void)arg;
    memset(&seen, 0, sizeof seen);
}

static bool is_broken(ssize_t r)
{
    return r == -ECONNRESET || r == -EPIPE || r == -ENOTCONN || r == WEIR_ECLOSED;
}

/* ---- A log that is read from a position: reconnects and replay ---- */

static int serve_log(void *arg)
{
    weir_conn *conn = *(weir_conn **)arg;
    uint32_t position;

    WEIR_DEADLINE(PATIENCE_MS) {
        int r = weir_conn_read_exact(conn, &position, sizeof position, NULL);

        /* A durable log keeps its records beyond the server's end; here they are numbers. */
        for (; r == 0 && position < RECORDS; position++) {
            r = weir_conn_send_all(conn, &position, sizeof position, NULL);
        }
    }
    weir_conn_close(conn);
    return 0;
}

static int log_server(void *arg)
{
    int r = 0;

    (void)arg;
    WEIR_SCOPE(scope, &r, .name = "log", .on_failure = WEIR_COLLECT, .max_tasks = 64,
               .overflow = WEIR_REJECT, .deadline_ms = PATIENCE_MS) {
        weir_listener *listener;
        weir_conn *conn;

        CHECK_OK(weir_listen(&(weir_listen_spec){.address = "tcp:0.0.0.0:7000"}, &listener));
        while (weir_accept(listener, &conn) == 0) {
            CHECK_OK(weir_spawn(scope, serve_log, &conn, sizeof conn));
        }
        weir_listener_close(listener);
    }
    return r;
}

/* From where it stands to the end, or to the break. */
static int follow(weir_conn *conn, bool from_the_start)
{
    uint32_t position = from_the_start ? 0 : seen.next, record;
    int r = weir_conn_send_all(conn, &position, sizeof position, NULL);

    while (r == 0 && seen.next < RECORDS) {
        r = weir_conn_read_exact(conn, &record, sizeof record, NULL);
        if (r < 0) break;
        CHECK_INT(record, ==, position++);    /* none is left out, none comes twice */
        if (record == seen.next) seen.next++; /* else it is a replay of what is known */
    }
    return r;
}

static int follow_log(bool from_the_start)
{
    (void)host_start("log", log_server);
    WEIR_DEADLINE(PATIENCE_MS) {
        while (seen.next < RECORDS) {
            weir_conn *conn;
            int r = 0;

            WEIR_DEADLINE(500) { /* a host that was killed says nothing */
                r = weir_connect("tcp:10.0.0.2:7000", &conn);
                if (r == 0) {
                    seen.connects++;
                    r = follow(conn, from_the_start);
                    weir_conn_close(conn);
                }
            }
            CHECK(r == 0 || r == -ECONNREFUSED || r == -EHOSTUNREACH || r == WEIR_ETIMEDOUT ||
                  is_broken(r));
            if (r < 0) CHECK_OK(weir_sleep(5));
        }
    }
    CHECK_INT(seen.next, ==, RECORDS);
    return 0;
}

SIM_TEST(scenario_reconnects, .runs_max = 400, .begin = forget,
         .faults = {.reset = 15, .short_io = 4, .refuse = 5, .faults_max = 60})
{
    return follow_log(false);
}

SIM_TEST(scenario_replay, .runs_max = 400, .begin = forget,
         .faults = {.reset = 30, .kill = 60, .faults_max = 12, .late = 10})
{
    return follow_log(true);
}

/* ---- A consumer that is slow: the producer waits, and no more than the bound lies between ---- */

static weir_tx *tx;
static weir_rx *rx;

static int produce_or_consume(void *arg)
{
    uint32_t item = 0;
    int r = 0;

    if (*(unsigned *)arg == 0) {
        for (; item < RECORDS && r == 0; item++) {
            weir_chan_figures figures;

            r = weir_tx_send(tx, &item);
            if (r == 0) seen.sent++;
            weir_tx_figures(tx, &figures);
            CHECK_INT(figures.depth_max, <=, CAPACITY);
        }
        weir_tx_close(tx);
        return r;
    }
    while ((r = weir_rx_recv(rx, &item)) == 0) {
        CHECK_INT(item, ==, seen.received++);
        CHECK_INT(seen.sent - seen.received + 1, <=, CAPACITY + 2);
        CHECK_OK(weir_sleep(weir_sim_choose(20)));
    }
    return r == WEIR_ECLOSED ? 0 : r;
}

SIM_TEST(scenario_slow_consumers, .runs_max = 2000, .begin = forget, .config = &policy_two_workers)
{
    int r = 0;

    SCOPE_OF(scope, &r, 1)
    {
        CHECK_OK(weir_chan_open_sized(scope, sizeof(weir_chan_spec),
                                      &(weir_chan_spec){.name = "records",
                                                        .item_bytes = sizeof(uint32_t),
                                                        .capacity = CAPACITY,
                                                        .overflow = WEIR_WAIT,
                                                        .on_close = WEIR_DRAIN},
                                      sizeof(uint32_t), &tx, &rx));
        CHECK_OK(crowd(2, produce_or_consume));
        CHECK_INT(seen.received, ==, RECORDS);
    }
    return r;
}

/* ---- Messages that nobody can handle, and attempts that run out ---- */

static weir_guard *guard;
static weir_dead_letters *letters;

static int handle(void *arg)
{
    unsigned number = *(unsigned *)arg;

    seen.tried[number]++;
    if (number == POISON) return -EBADMSG;
    if (weir_sim_choose(3) == 2) return -ECONNRESET;
    CHECK_OK(weir_sleep(weir_sim_choose(5)));
    seen.handled[number]++;
    return 0;
}

static void lose(const weir_letter *letter, const void *item, void *keep_arg)
{
    (void)letter, (void)item, (void)keep_arg;
    seen.letters++;
}

static int handle_all(void *arg)
{
    for (unsigned i = *(unsigned *)arg; i < MESSAGES; i += 2) {
        weir_guard_outcome outcome;
        unsigned number = i;
        int r = weir_guard_call(guard, handle, &number, sizeof number, &outcome);

        /* Handled once, or a letter: the poison at its first attempt, others at their last. */
        CHECK_INT(seen.handled[i], ==, r == 0);
        CHECK_INT(outcome.is_dead_letter, ==, r != 0);
        if (i == POISON) CHECK_INT(seen.tried[i], ==, 1);
        if (r == -ECONNRESET) CHECK_INT(seen.tried[i], ==, ATTEMPTS);
        CHECK_INT(seen.tried[i], <=, ATTEMPTS);
        seen.answered += r != 0;
    }
    return 0;
}

static int handle_messages(void)
{
    int r = 0;

    SCOPE_OF(scope, &r, 1)
    {
        CHECK_OK(weir_dead_letters_open(scope,
                                        &(weir_dead_letters_spec){.name = "letters",
                                                                  .capacity = MESSAGES,
                                                                  .item_bytes_max = 8,
                                                                  .overflow = WEIR_REJECT,
                                                                  .on_lost = lose},
                                        &letters));
        CHECK_OK(
            weir_guard_open(scope,
                            &(weir_guard_spec){.name = "messages",
                                               .timeout_ms = 1000,
                                               .attempt_timeout_ms = 50,
                                               .idempotent = true,
                                               .retry = {.attempts = ATTEMPTS,
                                                         .backoff_ms = 10,
                                                         .backoff_ms_max = 20,
                                                         .errors = {-ECONNRESET},
                                                         .on_exhausted = WEIR_EXHAUSTED_DEAD_LETTER,
                                                         .keep_dead_letters = letters}},
                            &guard));
        CHECK_OK(crowd(2, handle_all));
    }
    CHECK_INT(seen.letters, ==, seen.answered);
    CHECK_INT(seen.handled[POISON], ==, 0);
    return r;
}

SIM_TEST(scenario_poison_messages, .runs_max = 2000, .begin = forget)
{
    return handle_messages();
}

SIM_TEST(scenario_retry_exhaustion, .runs_max = 2000, .begin = forget,
         .config = &policy_two_workers)
{
    return handle_messages();
}

/* ---- Cancellation at any suspension: everybody ends, and gives back what it has ---- */

static weir_limit *limit;

static int use_and_release(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < 3; i++) {
        weir_limit_pass pass = {0};
        int r = weir_limit_enter(limit, &pass);

        if (r < 0) return r;
        seen.entered++;
        r = weir_sleep(weir_sim_choose(5));
        seen.left++;
        weir_limit_leave(limit, &pass, r);
        if (r < 0) return r;
    }
    return 0;
}

SIM_TEST(scenario_cancellation, .runs_max = 4000, .begin = forget, .any_result = true,
         .faults = {.cancel = 20, .faults_max = 1})
{
    weir_limit_figures figures;
    int r = 0, ended = 0;

    SCOPE_OF(scope, &r, 1)
    {
        r = weir_limit_open(scope,
                            &(weir_limit_spec){.name = "limit",
                                               .kind = WEIR_LIMIT_FIXED,
                                               .concurrency = 1,
                                               .overflow = WEIR_WAIT,
                                               .waiters_max = 8},
                            &limit);
        if (r < 0) return r;
        ended = crowd(4, use_and_release);
        CHECK(ended == 0 || ended == WEIR_ECANCELED);
        CHECK_INT(seen.entered, ==, seen.left);
        weir_limit_figures_of(limit, &figures);
        CHECK_INT(figures.in_flight, ==, 0);
        CHECK_INT(figures.waiting, ==, 0);
    }
    return r;
}

/* ---- A stop: what was accepted is answered or closed, within the grace ---- */

static int answer_slowly(void *arg)
{
    weir_conn *conn = *(weir_conn **)arg;
    char byte;

    WEIR_DEADLINE(PATIENCE_MS) {
        int r = weir_conn_read_exact(conn, &byte, 1, NULL);

        if (r == 0) r = weir_sleep(weir_sim_choose(50));
        if (r == 0) r = weir_conn_send_all(conn, &byte, 1, NULL);
        if (r == 0) seen.answered++;
    }
    weir_conn_close(conn);
    seen.closed++;
    return 0;
}

static int stopping_server(void *arg)
{
    int r = 0;

    (void)arg;
    WEIR_SCOPE(scope, &r, .name = "server", .on_failure = WEIR_COLLECT, .max_tasks = 64,
               .overflow = WEIR_REJECT, .deadline_ms = PATIENCE_MS) {
        weir_listener *listener;
        weir_conn *conn;

        CHECK_OK(weir_listen(&(weir_listen_spec){.address = "tcp:0.0.0.0:7000"}, &listener));
        while ((r = weir_accept(listener, &conn)) == 0) {
            seen.accepted++;
            CHECK_OK(weir_spawn(scope, answer_slowly, &conn, sizeof conn));
        }
        CHECK(r == WEIR_ESTOPPING || r == WEIR_ECANCELED);
        r = 0;
        weir_listener_close(listener);
    }
    return 0;
}

static int ask_once(void *arg)
{
    weir_conn *conn;
    char byte = 'x';
    int r;

    (void)arg;
    CHECK_OK(weir_sleep(1 + weir_sim_choose(60)));
    seen.asked++;
    r = weir_connect("tcp:10.0.0.2:7000", &conn);
    if (r == 0) {
        r = weir_conn_send_all(conn, &byte, 1, NULL);
        if (r == 0) r = weir_conn_read_exact(conn, &byte, 1, NULL);
        weir_conn_close(conn);
    }
    CHECK(r == 0 || r == -ECONNREFUSED || is_broken(r));
    seen.done += r == 0;
    seen.refused += r != 0;
    return 0;
}

SIM_TEST(scenario_shutdown, .runs_max = 800, .begin = forget)
{
    weir_sim_host *host = host_start("server", stopping_server);
    int64_t stopped_ns;
    int r = 0;

    SCOPE_OF(scope, &r, 4)
    {
        CHECK_OK(crowd_of(4, ask_once, scope, NULL));
        CHECK_OK(weir_sleep(20 + weir_sim_choose(60)));
        weir_sim_host_stop(host, 200);
        stopped_ns = weir_now_ns();
        while (weir_sim_host_running(host)) CHECK_OK(weir_sleep(1));
        CHECK_INT(weir_now_ns() - stopped_ns, <=, 202 * MS_NS);
    }
    CHECK_INT(seen.accepted, ==, seen.closed);
    CHECK_INT(seen.asked, ==, seen.done + seen.refused);
    CHECK_INT(seen.done, <=, seen.answered);
    return r;
}

/* io_stream.c - connections between hosts: what is accepted is served or closed, bytes arrive once,
 * in order, or the break is told; idle waits end once; a name finds its host. */
#include "sim/policy.h"

enum { CLIENTS = 3, BYTES = 900, LIMIT_MS = 60 * 1000 };

static struct {
    unsigned accepted, closed, whole, broken, called, taken_max;
} seen;

static void forget(void *arg)
{
    (void)arg;
    memset(&seen, 0, sizeof seen);
}

static char byte_at(size_t at)
{
    return (char)(at * 7 + (at >> 8));
}

static bool is_broken(ssize_t r)
{
    return r == -ECONNRESET || r == -EPIPE || r == -ENOTCONN || r == WEIR_ECLOSED;
}

/* ---- The server: sends back what comes, to the end, and then its length ---- */

static int echo(void *arg)
{
    weir_conn *conn = *(weir_conn **)arg;
    char data[200];
    uint32_t taken = 0;

    WEIR_DEADLINE(LIMIT_MS) {
        for (;;) {
            ssize_t n = weir_conn_read(conn, data, sizeof data);

            if (n == 0) {
                int r = weir_conn_send_all(conn, &taken, sizeof taken, NULL);
                CHECK(r == 0 || is_broken(r));
                break;
            }
            if (n < 0) break;
            for (ssize_t i = 0; i < n; i++) CHECK_INT(data[i], ==, byte_at(taken + (size_t)i));
            taken += (uint32_t)n;
            if (weir_conn_send_all(conn, data, (size_t)n, NULL) < 0) break;
        }
    }
    weir_conn_close(conn);
    seen.closed++;
    return 0;
}

static int echo_server(void *arg)
{
    int r = 0;

    (void)arg;
    WEIR_SCOPE(scope, &r, .name = "server", .on_failure = WEIR_COLLECT, .max_tasks = 64,
               .overflow = WEIR_REJECT, .deadline_ms = LIMIT_MS) {
        weir_listener *listener;
        weir_conn *conn;

        CHECK_OK(weir_listen(&(weir_listen_spec){.address = "tcp:0.0.0.0:7000"}, &listener));
        while (weir_accept(listener, &conn) == 0) {
            seen.accepted++;
            CHECK_OK(weir_spawn(scope, echo, &conn, sizeof conn));
        }
        weir_listener_close(listener);
    }
    return r;
}

/* ---- Clients ---- */

static int send_stream(void *arg)
{
    weir_conn *conn = *(weir_conn **)arg;
    char data[BYTES];
    int r;

    for (size_t i = 0; i < BYTES; i++) data[i] = byte_at(i);
    r = weir_conn_send_all(conn, data, BYTES, NULL);
    if (r == 0) r = weir_conn_shutdown(conn, SHUT_WR);
    return r == 0 || is_broken(r) ? 0 : r;
}

/* All of it comes back, and its length after our end: half of the connection is closed then. */
static int receive_stream(weir_conn *conn)
{
    char data[BYTES];
    uint32_t length = 0;
    int r = weir_conn_read_exact(conn, data, BYTES, NULL);

    if (r < 0) return r;
    for (size_t i = 0; i < BYTES; i++) CHECK_INT(data[i], ==, byte_at(i));
    r = weir_conn_read_exact(conn, &length, sizeof length, NULL);
    if (r < 0) return r;
    CHECK_INT(length, ==, BYTES);
    CHECK_INT(weir_conn_read(conn, data, 1), <=, 0);
    return 0;
}

static int echo_client(void *arg)
{
    weir_address address;
    weir_conn *conn;
    int r, sent = 0;

    (void)arg;
    CHECK_INT(weir_resolve("server", 7000, WEIR_TCP, &address, 1), ==, 1);
    do {
        r = weir_connect_to(&address, &conn);
        if (r == -ECONNREFUSED) CHECK_OK(weir_sleep(1));
    } while (r == -ECONNREFUSED);
    CHECK(r == 0 || is_broken(r));
    if (r < 0) return 0;
    SCOPE_OF(scope, &sent, 1)
    {
        CHECK_OK(weir_spawn(scope, send_stream, &conn, sizeof conn));
        r = receive_stream(conn);
    }
    CHECK_OK(sent);
    CHECK(r == 0 || is_broken(r));
    seen.whole += r == 0;
    seen.broken += r != 0;
    weir_conn_close(conn);
    return 0;
}

static int echo_all(void)
{
    (void)host_start("server", echo_server);
    CHECK_OK(crowd(CLIENTS, echo_client));
    CHECK_OK(weir_sleep(1000)); /* the server hears of the ends */
    CHECK_INT(seen.accepted, ==, seen.closed);
    return 0;
}

SIM_TEST(sim_streams_come_whole_in_pieces_and_late, .runs_max = 400, .begin = forget,
         .faults = {.short_io = 3, .late = 8, .late_ms_max = 50})
{
    CHECK_OK(echo_all());
    CHECK_INT(seen.whole, ==, CLIENTS);
    return 0;
}

SIM_TEST(sim_streams_that_break_are_told_and_closed, .runs_max = 400, .begin = forget,
         .faults = {.short_io = 3, .late = 8, .reset = 40, .refuse = 4, .faults_max = 40})
{
    return echo_all();
}

SIM_TEST(sim_streams_outlast_a_partition, .runs_max = 400, .begin = forget,
         .faults = {.short_io = 4})
{
    weir_sim_host *host = host_start("server", echo_server);
    int r = 0;

    SCOPE_OF(scope, &r, CLIENTS)
    {
        CHECK_OK(crowd_of(CLIENTS, echo_client, scope, NULL));
        CHECK_OK(weir_sleep(weir_sim_choose(4)));
        weir_sim_partition(weir_sim_host_self(), host);
        CHECK_OK(weir_sleep(1 + weir_sim_choose(500)));
        weir_sim_heal(weir_sim_host_self(), host);
    }
    CHECK_OK(weir_sleep(1000));
    CHECK_INT(seen.accepted, ==, seen.closed);
    CHECK_INT(seen.whole + seen.broken, ==, CLIENTS);
    return r;
}

/* ---- Idle waits ---- */

static void on_ready(weir_conn *conn, int status, void *keep_arg)
{
    (void)keep_arg;
    CHECK(status == 0 || status == WEIR_ETIMEDOUT || status == WEIR_ECANCELED);
    seen.called++;
    weir_conn_close(conn);
}

SIM_TEST(sim_idle_waits_call_exactly_once, .runs_max = 4000, .begin = forget)
{
    weir_conn *a, *b;
    int r = 0, sent;

    CHECK_OK(weir_socketpair(&a, &b));
    SCOPE_OF(scope, &r, 1)
    {
        CHECK_OK(weir_conn_idle(scope, a, &(weir_idle_spec){.on_ready = on_ready, .idle_ms = 10}));
        /* Its time, what comes, and the scope's end may meet in one moment. */
        CHECK_OK(weir_sleep(weir_sim_choose(2) ? 10 : weir_sim_choose(20)));
        sent = weir_conn_send_all(b, "x", 1, NULL);
        CHECK(sent == 0 || is_broken(sent));
        if (weir_sim_choose(2)) CHECK_OK(weir_yield());
        if (weir_sim_choose(2)) weir_scope_cancel(scope, 0, "the test ends it");
    }
    CHECK_INT(seen.called, ==, 1);
    weir_conn_close(b);
    return r;
}

/* ---- Datagrams ---- */

enum { DATAGRAMS = 12 };

static int datagram_server(void *arg)
{
    weir_udp *udp;

    (void)arg;
    WEIR_DEADLINE(LIMIT_MS) {
        weir_address from;
        uint32_t number;

        CHECK_OK(weir_udp_open("udp:0.0.0.0:7000", &udp));
        while (weir_udp_recv(udp, &number, sizeof number, &from) == sizeof number) {
            number = ~number;
            CHECK_INT(weir_udp_send(udp, &from, &number, sizeof number), ==, sizeof number);
        }
        weir_udp_close(udp);
    }
    return 0;
}

/* Whole or not at all: each answer is one of what was sent; and what is asked often enough is
 * answered. */
SIM_TEST(sim_datagrams_are_whole_however_they_travel, .runs_max = 600, .begin = forget,
         .faults = {.datagram_loss = 4, .datagram_twice = 4, .datagram_order = 4, .late = 4})
{
    bool answered[DATAGRAMS] = {false};
    unsigned left = DATAGRAMS;
    weir_address to;
    weir_udp *udp;

    (void)host_start("server", datagram_server);
    WEIR_DEADLINE(LIMIT_MS / 2) {
        CHECK_OK(weir_udp_open("udp:0.0.0.0:0", &udp));
        CHECK_INT(weir_resolve("server", 7000, WEIR_UDP, &to, 1), ==, 1);
        while (left > 0) {
            for (uint32_t i = 0; i < DATAGRAMS; i++) {
                ssize_t n = answered[i] ? 0 : weir_udp_send(udp, &to, &i, sizeof i);
                CHECK(n >= 0 || n == -ECONNREFUSED);
            }
            WEIR_DEADLINE(300) {
                uint32_t number;
                ssize_t n;

                while ((n = weir_udp_recv(udp, &number, sizeof number, NULL)) > 0 ||
                       n == -ECONNREFUSED) {
                    if (n < 0) continue;
                    CHECK_INT(n, ==, sizeof number);
                    number = ~number;
                    CHECK_INT(number, <, DATAGRAMS);
                    left -= !answered[number];
                    answered[number] = true;
                }
            }
        }
        weir_udp_close(udp);
    }
    CHECK_INT(left, ==, 0);
    return 0;
}

/* ---- Files ---- */

enum { VERSIONS = 6, FILE_BYTES = 1300 };

static unsigned promised;

static void forget_promise(void *arg)
{
    (void)arg;
    promised = 0;
}

/* What is there: its version, or 0. A torn one fails the run. */
static unsigned file_version(void)
{
    unsigned char data[FILE_BYTES];
    weir_file *file;
    int r = weir_file_open("/state", O_RDONLY, 0, &file);

    if (r == -ENOENT) return 0;
    CHECK_OK(r);
    CHECK_INT(weir_file_read(file, data, sizeof data, 0), ==, FILE_BYTES);
    CHECK_OK(weir_file_close(file));
    for (unsigned i = 1; i < FILE_BYTES; i++) CHECK_INT(data[i], ==, data[0]);
    return data[0];
}

static void sync_directory(void)
{
    weir_file *directory;

    CHECK_OK(weir_file_open("/", O_RDONLY | O_DIRECTORY, 0, &directory));
    CHECK_OK(weir_file_sync(directory, false));
    CHECK_OK(weir_file_close(directory));
}

static void file_replace(unsigned version)
{
    unsigned char data[FILE_BYTES];
    weir_file *file;

    memset(data, (int)version, sizeof data);
    CHECK_OK(weir_file_open("/state.new", O_WRONLY | O_CREAT | O_TRUNC, 0644, &file));
    CHECK_INT(weir_file_write(file, data, sizeof data, 0), ==, FILE_BYTES);
    CHECK_OK(weir_file_sync(file, true));
    CHECK_OK(weir_file_close(file));
    CHECK_OK(weir_path_rename("/state.new", "/state"));
    sync_directory();
}

static int replacer(void *arg)
{
    (void)arg;
    WEIR_DEADLINE(LIMIT_MS) {
        unsigned version = file_version();

        CHECK_INT(version, >=, promised);
        if (version > promised) {
            sync_directory(); /* it was killed before it knew that this one is there to stay */
            promised = version;
        }
        while (version < VERSIONS) {
            file_replace(++version);
            promised = version;
        }
    }
    return 0;
}

static bool is_replaced(void *arg)
{
    (void)arg;
    return promised == VERSIONS;
}

SIM_TEST(sim_atomic_replace_never_shows_a_torn_file, .runs_max = 1500, .begin = forget_promise,
         .faults = {.kill = 25, .faults_max = 4},
         .invariants = {{.name = "it is replaced", .holds = is_replaced, .within_ms = LIMIT_MS}})
{
    (void)host_start("disk", replacer); /* it is killed by chance, and started again */
    while (promised < VERSIONS) CHECK_OK(weir_sleep(50));
    return 0;
}

/* net_test.c - connections between simulated hosts: nothing is lost, or it is told. */
#include "unit/sim/net_test.h"

enum { STREAM_BYTES = 150 * 1000, LIMIT_MS = 600 * 1000 };

static bool is_broken(ssize_t r)
{
    return r == -ECONNRESET || r == -EPIPE;
}

/* ---- A stream ---- */

/* Read to the end and check it; how much, or the error. */
static ssize_t take_stream(weir_conn *conn)
{
    char data[5000];
    size_t taken = 0;

    for (;;) {
        ssize_t n = weir_conn_read(conn, data, sizeof data);

        if (n < 0) return n;
        if (n == 0) return (ssize_t)taken;
        net_check(data, taken, (size_t)n);
        taken += (size_t)n;
    }
}

static int give_stream(weir_conn *conn, size_t bytes)
{
    static char data[STREAM_BYTES];

    net_fill(data, 0, bytes);
    return weir_conn_send_all(conn, data, bytes, NULL);
}

/* One connection: take a stream, and answer its length after its end. */
static int serve_one(weir_listener *listener)
{
    weir_conn *conn;
    ssize_t taken;
    int r = weir_accept(listener, &conn);

    if (r < 0) return r;
    taken = take_stream(conn);
    if (taken >= 0) {
        uint64_t length = (uint64_t)taken;
        r = weir_conn_send_all(conn, &length, sizeof length, NULL);
        HOLDS(r == 0 || is_broken(r));
    } else {
        HOLDS(is_broken(taken));
    }
    weir_conn_close(conn);
    return 0;
}

static int stream_server(void *arg)
{
    weir_listener *listener;

    (void)arg;
    WEIR_DEADLINE(LIMIT_MS) {
        IS(weir_listen(&(weir_listen_spec){.address = "tcp:0.0.0.0:7000"}, &listener), 0);
        while (serve_one(listener) == 0) {}
        weir_listener_close(listener);
    }
    return 0;
}

/* What came of a stream to the server: 0, or the error. */
static int stream_once(void)
{
    weir_conn *conn;
    uint64_t length = 0;
    int r = net_connect_soon(NET_SERVER, &conn);

    if (r < 0) return r;
    r = give_stream(conn, STREAM_BYTES);
    if (r == 0) r = weir_conn_shutdown(conn, SHUT_WR);
    if (r == 0) r = weir_conn_read_exact(conn, &length, sizeof length, NULL);
    if (r == 0) IS(length, STREAM_BYTES);
    weir_conn_close(conn);
    return r;
}

static int stream_client(void *arg)
{
    struct seen *seen = arg;

    (void)net_server(stream_server, seen);
    seen->runs++;
    WEIR_DEADLINE(LIMIT_MS) {
        int r = stream_once();

        if (r == 0) {
            seen->whole++;
        } else {
            HOLDS(is_broken(r) || r == -ENOTCONN || r == WEIR_ECLOSED);
            seen->broken++;
        }
    }
    return 0;
}

TEST(streams_arrive_whole_and_in_order)
{
    struct seen *seen = seen_open();

    NET_RUNS("streams", stream_client, seen, 30);
    CHECK_INT(seen->whole, ==, seen->runs);
    NET_RUNS("streams in pieces", stream_client, seen, 30, .faults = {.short_io = 3, .late = 10});
    CHECK_INT(seen->whole, ==, seen->runs);
    CHECK_INT(seen->runs, >=, 60);
    seen_close(seen);
}

TEST(a_stream_that_is_reset_fails_for_both)
{
    struct seen *seen = seen_open();

    NET_RUNS("streams that are reset", stream_client, seen, 100,
             .faults = {.short_io = 3, .late = 10, .reset = 60});
    CHECK_INT(seen->whole, >, 0);
    CHECK_INT(seen->broken, >, 0);
    CHECK_INT(seen->whole + seen->broken, ==, seen->runs);
    seen_close(seen);
}

/* ---- Connecting ---- */

static int refused_client(void *arg)
{
    struct seen *seen = arg;
    weir_conn *conn;
    int r;

    (void)net_server(stream_server, seen);
    WEIR_DEADLINE(LIMIT_MS) {
        IS(weir_sleep(1000), 0); /* it listens by now */
        IS(weir_connect("tcp:10.0.0.2:7001", &conn), -ECONNREFUSED);
        IS(weir_connect("tcp:127.0.0.1:7000", &conn), -ECONNREFUSED);
        IS(weir_connect("tcp:10.0.0.77:7000", &conn), -EHOSTUNREACH);
        IS(weir_connect("tcp:192.168.0.1:7000", &conn), -ENETUNREACH);
        IS(weir_connect("tcp:[2001:db8::1]:7000", &conn), -ENETUNREACH);
        r = weir_connect(NET_SERVER, &conn);
        if (r == 0) {
            seen->whole++;
            weir_conn_close(conn);
        } else {
            IS(r, -ECONNREFUSED);
            seen->refused++;
        }
    }
    return 0;
}

TEST(connections_are_refused_where_nobody_listens_and_by_chance)
{
    struct seen *seen = seen_open();

    NET_RUNS("refused", refused_client, seen, 10);
    CHECK_INT(seen->refused, ==, 0);
    NET_RUNS("refused by chance", refused_client, seen, 60, .faults = {.refuse = 3});
    CHECK_INT(seen->refused, >, 0);
    CHECK_INT(seen->whole, >, 10);
    seen_close(seen);
}

static int names_client(void *arg)
{
    weir_address address, own, peer;
    weir_conn *conn;
    char text[WEIR_ADDRESS_TEXT_MAX];

    (void)net_server(stream_server, arg);
    WEIR_DEADLINE(LIMIT_MS) {
        IS(weir_sleep(1000), 0);
        IS(weir_resolve("nowhere", 1, WEIR_TCP, &address, 1), WEIR_ENONAME);
        IS(weir_resolve("localhost", 1, WEIR_TCP, &address, 1), 1);
        IS(weir_resolve("main", 1, WEIR_TCP, &address, 1), 1);
        (void)weir_address_format(&address, text, sizeof text);
        HOLDS(strcmp(text, "tcp:10.0.0.1:1") == 0);
        IS(weir_resolve("server", NET_PORT, WEIR_TCP, &address, 1), 1);
        IS(weir_connect_to(&address, &conn), 0);
        IS(weir_conn_peer(conn, &peer), 0);
        HOLDS(memcmp(&peer, &address, sizeof peer) == 0);
        IS(weir_conn_local(conn, &own), 0);
        (void)weir_address_format(&own, text, sizeof text);
        HOLDS(strncmp(text, "tcp:10.0.0.1:", 13) == 0);
        weir_conn_close(conn);
    }
    return 0;
}

TEST(hosts_are_found_by_their_names)
{
    struct seen *seen = seen_open();

    NET_RUNS("names", names_client, seen, 10);
    seen_close(seen);
}

/* ---- Partitions ---- */

static int64_t now_ms(void)
{
    return weir_now_ns() / 1000000;
}

static int timed_out_client(void *arg)
{
    weir_sim_host *server = net_server(stream_server, arg);
    weir_conn *conn;

    WEIR_DEADLINE(LIMIT_MS) {
        int64_t began_ms = now_ms();

        weir_sim_partition(weir_sim_host_self(), server);
        IS(weir_connect(NET_SERVER, &conn), -ETIMEDOUT);
        IS(now_ms() - began_ms, 127000);
        WEIR_DEADLINE(500) { IS(weir_connect(NET_SERVER, &conn), WEIR_ETIMEDOUT); }
    }
    return 0;
}

TEST(a_connect_into_a_partition_times_out)
{
    struct seen *seen = seen_open();

    NET_RUNS("timed out", timed_out_client, seen, 10);
    seen_close(seen);
}

static int heal_later(void *arg)
{
    weir_sim_host *server = *(weir_sim_host **)arg;

    IS(weir_sleep(5000), 0);
    weir_sim_heal(weir_sim_host_self(), server);
    return 0;
}

/* Send until nothing more is taken; how much. */
static size_t fill_up(weir_conn *conn)
{
    static char data[STREAM_BYTES];
    size_t sent = 0;

    net_fill(data, 0, sizeof data);
    for (;;) {
        ssize_t n = 0;

        WEIR_DEADLINE(50) { n = weir_conn_write(conn, data + sent, sizeof data - sent); }
        if (n < 0) {
            IS(n, WEIR_ETIMEDOUT);
            return sent;
        }
        sent += (size_t)n;
    }
}

static int partition_client(void *arg)
{
    weir_sim_host *server = net_server(stream_server, arg);
    static char data[STREAM_BYTES];
    uint64_t length = 0;
    weir_conn *conn, *late;
    size_t sent;
    int r;

    net_fill(data, 0, sizeof data);
    WEIR_DEADLINE(LIMIT_MS) {
        IS(net_connect_soon(NET_SERVER, &conn), 0);
        IS(weir_sleep(10), 0);
        weir_sim_partition(weir_sim_host_self(), server);
        sent = fill_up(conn);
        IS(sent, 64 * 1024); /* all of it is on this side */
        WEIR_SCOPE(scope, &r, .name = "partition", .on_failure = WEIR_FAIL_FAST, .max_tasks = 1,
                   .overflow = WEIR_REJECT) {
            IS(weir_spawn(scope, heal_later, &server, sizeof server), 0);
            WEIR_DEADLINE(60000) { IS(weir_connect(NET_SERVER, &late), 0); }
        }
        IS(r, 0);
        weir_conn_close(late);
        IS(weir_conn_send_all(conn, data + sent, sizeof data - sent, NULL), 0);
        IS(weir_conn_shutdown(conn, SHUT_WR), 0);
        IS(weir_conn_read_exact(conn, &length, sizeof length, NULL), 0);
        IS(length, sizeof data);
        weir_conn_close(conn);
    }
    return 0;
}

TEST(what_a_partition_holds_back_arrives_when_it_heals)
{
    struct seen *seen = seen_open();

    NET_RUNS("partition", partition_client, seen, 20);
    NET_RUNS("partition and pieces", partition_client, seen, 20, .faults = {.late = 5});
    seen_close(seen);
}

/* ---- Dead hosts ---- */

static int silent_server(void *arg)
{
    weir_listener *listener;
    weir_conn *conn;

    (void)arg;
    WEIR_DEADLINE(LIMIT_MS) {
        IS(weir_listen(&(weir_listen_spec){.address = "tcp:10.0.0.2:7000"}, &listener), 0);
        IS(weir_accept(listener, &conn), 0);
        IS(weir_sleep(LIMIT_MS), WEIR_ETIMEDOUT);
        weir_conn_close(conn);
        weir_listener_close(listener);
    }
    return 0;
}

static int killed_client(void *arg)
{
    weir_sim_host *server = net_server(silent_server, arg);
    weir_conn *conn, *other;
    char byte;

    WEIR_DEADLINE(LIMIT_MS) {
        IS(net_connect_soon(NET_SERVER, &conn), 0);
        IS(weir_sleep(10), 0);
        weir_sim_host_kill(server);
        /* Who only reads learns nothing, and what is sent waits for somebody to answer. */
        WEIR_DEADLINE(1000) { IS(weir_conn_read(conn, &byte, 1), WEIR_ETIMEDOUT); }
        IS(weir_conn_write(conn, "x", 1), 1);
        WEIR_DEADLINE(1000) { IS(weir_conn_read(conn, &byte, 1), WEIR_ETIMEDOUT); }
        WEIR_DEADLINE(1000) { IS(weir_connect(NET_SERVER, &other), WEIR_ETIMEDOUT); }
        IS(weir_sim_host_restart(server), 0);
        IS(weir_conn_read(conn, &byte, 1), -ECONNRESET);
        IS(weir_conn_read(conn, &byte, 1), 0);
        IS(weir_conn_write(conn, "x", 1), -EPIPE);
        weir_conn_close(conn);
        IS(net_connect_soon(NET_SERVER, &conn), 0);
        weir_conn_close(conn);
    }
    return 0;
}

TEST(peers_of_a_dead_host_are_reset_when_it_is_back)
{
    struct seen *seen = seen_open();

    NET_RUNS("killed", killed_client, seen, 20);
    seen_close(seen);
}

/* ---- Full ---- */

static int backlog_client(void *arg)
{
    weir_listener *listener;
    weir_conn *conns[4], *accepted;

    (void)arg;
    WEIR_DEADLINE(LIMIT_MS) {
        IS(weir_listen(&(weir_listen_spec){.address = "tcp:127.0.0.1:7000", .backlog = 2},
                       &listener),
           0);
        for (int i = 0; i < 3; i++) IS(weir_connect("tcp:127.0.0.1:7000", &conns[i]), 0);
        WEIR_DEADLINE(5000) { IS(weir_connect("tcp:127.0.0.1:7000", &conns[3]), WEIR_ETIMEDOUT); }
        IS(weir_accept(listener, &accepted), 0);
        IS(weir_connect("tcp:127.0.0.1:7000", &conns[3]), 0);
        weir_conn_close(accepted);
        weir_listener_close(listener); /* resets those that nobody has accepted */
        for (int i = 0; i < 4; i++) {
            char byte;

            IS(weir_conn_read(conns[i], &byte, 1), i == 0 ? 0 : -ECONNRESET);
            weir_conn_close(conns[i]);
        }
    }
    return 0;
}

TEST(a_full_backlog_holds_connections_off)
{
    struct seen *seen = seen_open();

    NET_RUNS("backlog", backlog_client, seen, 10);
    seen_close(seen);
}

static int unix_client(void *arg)
{
    weir_listener *listener, *second;
    weir_conn *client, *server;
    char data[8] = "";

    WEIR_DEADLINE(LIMIT_MS) {
        const char *address = arg;

        IS(weir_listen(&(weir_listen_spec){.address = address}, &listener), 0);
        IS(weir_listen(&(weir_listen_spec){.address = address}, &second), -EADDRINUSE);
        IS(weir_connect(address, &client), 0);
        IS(weir_accept(listener, &server), 0);
        IS(weir_conn_send_all(client, "abc", 4, NULL), 0);
        IS(weir_conn_read_exact(server, data, 4, NULL), 0);
        HOLDS(strcmp(data, "abc") == 0);
        weir_conn_close(client);
        IS(weir_conn_read(server, data, 1), 0);
        weir_conn_close(server);
        weir_listener_close(listener);
        HOLDS(weir_connect(address, &client) < 0);
        IS(weir_listen(&(weir_listen_spec){.address = address}, &listener), 0);
        weir_listener_close(listener);
    }
    return 0;
}

TEST(unix_sockets_have_names_and_files)
{
    char abstract[] = "unix:@weir-name";
    char file[] = "unix:/weir.sock";

    NET_RUNS("abstract name", unix_client, abstract, 10, .faults = {.short_io = 2});
    NET_RUNS("socket file", unix_client, file, 10, .faults = {.short_io = 2});
}

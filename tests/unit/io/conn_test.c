/* conn_test.c - reading, writing and closing connections. */
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "io/conn.h"
#include "unit/io/io_test.h"

/* ---- What moves ---- */

IO_TEST(a_pipe_carries_bytes_and_ends_with_its_writer)
{
    weir_conn *reader, *writer;
    weir_address address;
    char data[8] = "";

    CHECK_OK(weir_pipe(&reader, &writer));
    CHECK_INT(weir_conn_write(writer, "abc", 3), ==, 3);
    CHECK_INT(weir_conn_read(reader, data, sizeof data), ==, 3);
    CHECK_STR(data, "abc");
    CHECK_INT(weir_conn_shutdown(writer, SHUT_WR), ==, -ENOTSOCK);
    CHECK_INT(weir_conn_peer(writer, &address), ==, -ENOTSOCK);
    weir_conn_close(writer);
    CHECK_INT(weir_conn_read(reader, data, sizeof data), ==, 0);
    weir_conn_close(reader);
    weir_conn_close(NULL);
    return 0;
}

IO_TEST(nothing_is_asked_of_the_kernel_for_no_bytes)
{
    weir_conn *a, *b;
    struct iovec empty[2] = {{NULL, 0}, {NULL, 0}};
    size_t moved = 7;

    CHECK_OK(weir_socketpair(&a, &b));
    CHECK_INT(weir_conn_read(a, NULL, 0), ==, 0);
    CHECK_INT(weir_conn_write(a, NULL, 0), ==, 0);
    CHECK_INT(weir_conn_readv(a, empty, 2), ==, 0);
    CHECK_INT(weir_conn_writev(a, empty, 0), ==, 0);
    CHECK_INT(weir_conn_readv(a, empty, -1), ==, -EINVAL);
    CHECK_INT(weir_conn_writev(a, empty, 5000), ==, -EINVAL);
    CHECK_INT(weir_conn_send_all(a, NULL, 0, &moved), ==, 0);
    CHECK_INT(moved, ==, 0);
    CHECK_INT(weir_conn_read_exact(a, NULL, 0, NULL), ==, 0);
    weir_conn_close(a);
    weir_conn_close(b);
    return 0;
}

static void exchange_vectors(weir_conn *from, weir_conn *to)
{
    char text[] = "hello, world";
    char left[5], right[20] = "";
    struct iovec out[3] = {{text, 7}, {NULL, 0}, {text + 7, 5}};
    struct iovec in[2] = {{left, sizeof left}, {right, sizeof right}};

    CHECK_INT(weir_conn_writev(from, out, 3), ==, 12);
    CHECK_INT(weir_conn_readv(to, in, 2), ==, 12);
    CHECK(memcmp(left, "hello", 5) == 0);
    CHECK_STR(right, ", world");
}

IO_TEST(vectors_are_gathered_and_scattered)
{
    weir_conn *a, *b;

    CHECK_OK(weir_socketpair(&a, &b));
    exchange_vectors(a, b);
    weir_conn_close(a);
    weir_conn_close(b);
    CHECK_OK(weir_pipe(&a, &b));
    exchange_vectors(b, a);
    weir_conn_close(a);
    weir_conn_close(b);
    io_test_pair(&a, &b);
    exchange_vectors(a, b);
    weir_conn_close(a);
    weir_conn_close(b);
    return 0;
}

enum { BULK_BYTES = 3 * 1000 * 1000 };

static unsigned char bulk_byte(size_t at)
{
    return (unsigned char)(at * 31 + at / 256);
}

static int send_bulk(void *arg)
{
    weir_conn *conn = *(weir_conn **)arg;
    unsigned char *data = malloc(BULK_BYTES);
    size_t sent = 0;
    int r;

    for (size_t i = 0; i < BULK_BYTES; i++) data[i] = bulk_byte(i);
    r = weir_conn_send_all(conn, data, BULK_BYTES, &sent);
    free(data);
    CHECK_INT(sent, ==, BULK_BYTES);
    if (weir_conn_shutdown(conn, SHUT_WR) == -ENOTSOCK) weir_conn_close(conn);
    return r;
}

/* `to` gets all of what a task sends through `from`, then the end. */
static void move_bulk(weir_conn *from, weir_conn *to)
{
    int r;

    IO_SCOPE(scope, &r)
    {
        unsigned char data[5000];
        size_t received = 0;

        CHECK_OK(weir_spawn(scope, send_bulk, &from, sizeof from));
        while (received < BULK_BYTES) {
            size_t ask = BULK_BYTES - received < sizeof data ? BULK_BYTES - received : sizeof data;
            CHECK_INT(weir_conn_read_exact(to, data, ask, NULL), ==, 0);
            for (size_t i = 0; i < ask; i++) CHECK_INT(data[i], ==, bulk_byte(received + i));
            received += ask;
        }
        received = 7;
        CHECK_INT(weir_conn_read_exact(to, data, 10, &received), ==, WEIR_ECLOSED);
        CHECK_INT(received, ==, 0);
    }
    CHECK_OK(r);
}

IO_TEST(send_all_waits_for_room_and_keeps_the_order)
{
    weir_conn *a, *b;

    CHECK_OK(weir_socketpair(&a, &b));
    move_bulk(a, b);
    weir_conn_close(a);
    weir_conn_close(b);
    CHECK_OK(weir_pipe(&a, &b));
    move_bulk(b, a); /* closes the writing end */
    weir_conn_close(a);
    io_test_pair(&a, &b);
    move_bulk(a, b);
    weir_conn_close(a);
    weir_conn_close(b);
    return 0;
}

/* ---- The end of a connection ---- */

IO_TEST(a_half_closed_connection_still_carries_the_other_half)
{
    weir_conn *client, *server;
    char data[8];
    size_t received = 0;

    io_test_pair(&client, &server);
    CHECK_INT(weir_conn_write(client, "ask", 3), ==, 3);
    CHECK_OK(weir_conn_shutdown(client, SHUT_WR));
    CHECK_INT(weir_conn_read_exact(server, data, 8, &received), ==, WEIR_ECLOSED);
    CHECK_INT(received, ==, 3);
    CHECK_INT(weir_conn_read(server, data, 8), ==, 0);
    CHECK_INT(weir_conn_write(server, "told", 4), ==, 4);
    CHECK_INT(weir_conn_read(client, data, 8), ==, 4);
    CHECK_INT(weir_conn_write(client, "x", 1), ==, -EPIPE);
    weir_conn_close(client);
    weir_conn_close(server);
    return 0;
}

IO_TEST(a_peer_that_is_gone_is_an_error_and_no_signal)
{
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    weir_conn *a, *b;
    char data[8];
    size_t sent = 7;

    CHECK_OK(weir_pipe(&a, &b));
    weir_conn_close(a);
    CHECK_INT(weir_conn_write(b, "x", 1), ==, -EPIPE);
    CHECK_INT(weir_conn_send_all(b, "x", 1, &sent), ==, -EPIPE);
    CHECK_INT(sent, ==, 0);
    weir_conn_close(b);

    CHECK_OK(weir_socketpair(&a, &b));
    weir_conn_close(a);
    CHECK_INT(weir_conn_write(b, "x", 1), ==, -EPIPE);
    CHECK_INT(weir_conn_read(b, data, 8), ==, 0);
    weir_conn_close(b);

    io_test_pair(&a, &b);
    CHECK_INT(setsockopt(weir_conn_fd(a), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), ==, 0);
    weir_conn_close(a);
    CHECK_INT(weir_conn_read(b, data, 8), ==, -ECONNRESET);
    CHECK_INT(weir_conn_write(b, "x", 1), ==, -EPIPE);
    weir_conn_close(b);
    return 0;
}

static int read_reset(void *arg)
{
    char byte;
    CHECK_INT(weir_conn_read(*(weir_conn **)arg, &byte, 1), ==, -ECONNRESET);
    return 0;
}

IO_TEST(a_reset_wakes_the_reader)
{
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    weir_conn *a, *b;
    int r;

    io_test_pair(&a, &b);
    CHECK_INT(setsockopt(weir_conn_fd(a), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), ==, 0);
    IO_SCOPE(scope, &r)
    {
        CHECK_OK(weir_spawn(scope, read_reset, &b, sizeof b));
        CHECK_OK(weir_yield());
        weir_conn_close(a);
    }
    CHECK_OK(r);
    weir_conn_close(b);
    return 0;
}

/* ---- One reader, one writer ---- */

struct use {
    weir_conn *conn;
    const void *data;
    size_t bytes;
};

static int read_byte(void *arg)
{
    char byte;
    ssize_t n = weir_conn_read(*(weir_conn **)arg, &byte, 1);
    return n < 0 ? (int)n : 0;
}

static int send_much(void *arg)
{
    const struct use *use = arg;
    return weir_conn_send_all(use->conn, use->data, use->bytes, NULL);
}

IO_TEST(a_second_reader_and_a_second_writer_are_told_so)
{
    static char data[BULK_BYTES], taken[100000];
    weir_conn *a, *b;
    size_t received = 0;
    int r;

    CHECK_OK(weir_socketpair(&a, &b));
    IO_SCOPE(scope, &r)
    {
        struct use use = {a, data, sizeof data};
        char byte;

        CHECK_OK(weir_spawn(scope, read_byte, &a, sizeof a));
        CHECK_OK(weir_spawn(scope, send_much, &use, sizeof use));
        CHECK_OK(weir_yield());
        CHECK_INT(weir_conn_read(a, &byte, 1), ==, WEIR_EINUSE);
        CHECK_INT(weir_conn_read_exact(a, &byte, 1, NULL), ==, WEIR_EINUSE);
        CHECK_INT(weir_conn_write(a, "x", 1), ==, WEIR_EINUSE);
        CHECK_INT(weir_conn_send_all(a, "x", 1, NULL), ==, WEIR_EINUSE);
        /* There is room again, and still the other one is not done. */
        CHECK_INT(weir_conn_read(b, taken, sizeof taken), >, 0);
        CHECK_INT(weir_conn_write(a, "x", 1), ==, WEIR_EINUSE);
        weir_scope_cancel(scope, 0, "enough");
    }
    CHECK_OK(r);
    CHECK_INT(weir_conn_write(a, "x", 0), ==, 0);
    CHECK_INT(weir_conn_write(b, "y", 1), ==, 1);
    CHECK_INT(weir_conn_read_exact(a, data, 1, &received), ==, 0);
    weir_conn_close(a);
    weir_conn_close(b);
    return 0;
}

static int close_while_reading(void *arg)
{
    weir_conn *a, *b;
    int r;

    (void)arg;
    CHECK_OK(weir_socketpair(&a, &b));
    IO_SCOPE(scope, &r)
    {
        CHECK_OK(weir_spawn(scope, read_byte, &a, sizeof a));
        CHECK_OK(weir_yield());
        weir_conn_close(a);
    }
    return r;
}

static void close_while_reading_process(void *arg)
{
    (void)arg;
    (void)!io_test_run(close_while_reading);
}

TEST(closing_under_a_reader_aborts_and_names_it)
{
    CHECK_ABORTS(close_while_reading_process, NULL, "task 'read_byte' is reading");
}

/* ---- Adopting ---- */

IO_TEST(a_descriptor_is_adopted_or_stays_the_callers)
{
    weir_conn *conn, *again;
    char path[] = "/tmp/weir-test-XXXXXX";
    weir_address address;
    int fds[2];
    int file = mkstemp(path);

    CHECK(file >= 0);
    CHECK_INT(unlink(path), ==, 0);
    CHECK_INT(weir_conn_from_fd(file, &conn), ==, -EPERM);
    CHECK_INT(close(file), ==, 0);
    CHECK_INT(weir_conn_from_fd(-1, &conn), ==, -EBADF);

    CHECK_INT(pipe2(fds, O_CLOEXEC), ==, 0);
    CHECK_OK(weir_conn_from_fd(fds[0], &conn));
    CHECK(fcntl(fds[0], F_GETFL) & O_NONBLOCK);
    CHECK_INT(weir_conn_fd(conn), ==, fds[0]);
    CHECK_INT(write(fds[1], "x", 1), ==, 1);
    CHECK_INT(weir_conn_read(conn, path, 1), ==, 1);
    WEIR_DEADLINE(1) { CHECK_INT(weir_conn_read(conn, path, 1), ==, WEIR_ETIMEDOUT); }
    /* It is watched now; with several workers the other one may be asked. */
    CHECK_INT(weir_conn_from_fd(fds[0], &again), ==, -EEXIST);
    weir_conn_close(conn);
    CHECK_INT(close(fds[1]), ==, 0);

    CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), ==, 0);
    CHECK_OK(weir_conn_from_fd(fds[0], &conn));
    CHECK_OK(weir_conn_from_fd(fds[1], &again));
    CHECK_INT(weir_conn_write(conn, "ab", 2), ==, 2);
    CHECK_INT(weir_conn_write(conn, "cd", 2), ==, 2);
    CHECK_INT(weir_conn_read(again, path, 8), ==, 2);
    CHECK_OK(weir_conn_peer(conn, &address));
    CHECK_INT(address.transport, ==, WEIR_UNIX);
    weir_conn_close(conn);
    weir_conn_close(again);
    return 0;
}

IO_TEST(both_sides_have_an_address_and_small_pieces_are_not_held_back)
{
    char address[WEIR_ADDRESS_TEXT_MAX], text[WEIR_ADDRESS_TEXT_MAX];
    weir_listener *listener = io_test_listen(address);
    weir_conn *conns[2];
    weir_address local, peer;

    CHECK_OK(weir_connect(address, &conns[0]));
    CHECK_OK(weir_accept(listener, &conns[1]));
    CHECK_OK(weir_conn_peer(conns[0], &peer));
    weir_address_format(&peer, text, sizeof text);
    CHECK_STR(text, address);
    CHECK_OK(weir_conn_local(conns[0], &local));
    CHECK_OK(weir_conn_peer(conns[1], &peer));
    CHECK(memcmp(&local, &peer, sizeof local) == 0);
    for (int i = 0; i < 2; i++) {
        int on = 0;
        socklen_t bytes = sizeof on;
        CHECK_INT(getsockopt(weir_conn_fd(conns[i]), IPPROTO_TCP, TCP_NODELAY, &on, &bytes), ==, 0);
        CHECK_INT(on, !=, 0);
        CHECK(fcntl(weir_conn_fd(conns[i]), F_GETFD) & FD_CLOEXEC);
        weir_conn_close(conns[i]);
    }
    weir_listener_close(listener);
    return 0;
}

/* ---- A read that stops short ---- */

static struct kernel counting_kernel;
static ATOM(int) recv_calls;

static ssize_t counting_recv(const struct kernel *kernel, int fd, void *data, size_t bytes,
                             int flags)
{
    (void)atom_add(&recv_calls, 1);
    return kernel_epoll.recv(kernel, fd, data, bytes, flags);
}

struct echo_end {
    weir_conn *conn;
    int rounds;
};

static int answer_rounds(void *arg)
{
    const struct echo_end *end = arg;
    char data[100];

    for (int i = 0; i < end->rounds; i++) {
        ssize_t n = weir_conn_read(end->conn, data, sizeof data);
        if (n <= 0) return n < 0 ? (int)n : WEIR_ECLOSED;
        n = weir_conn_write(end->conn, data, (size_t)n);
        if (n < 0) return (int)n;
    }
    return 0;
}

static void ask(weir_conn *conn)
{
    char byte = 'a';

    CHECK_INT(send(weir_conn_fd(conn), &byte, 1, 0), ==, 1);
    CHECK_INT(weir_conn_read(conn, &byte, 1), ==, 1); /* not short: always tried */
}

/* What is behind the handle. */
static weir_conn *object_of(const weir_conn *handle)
{
    return handle_object(handle, HANDLE_CONN);
}

static int count_reads(void *arg)
{
    enum { ROUNDS = 50 };
    weir_conn *client, *server;
    int r;

    (void)arg;
    io_test_pair(&client, &server);
    atom_store(&recv_calls, 0);
    IO_SCOPE(scope, &r)
    {
        struct echo_end end = {server, ROUNDS};
        CHECK_OK(weir_spawn(scope, answer_rounds, &end, sizeof end));
        CHECK_OK(weir_yield());
        for (int i = 0; i < ROUNDS; i++) ask(client);
    }
    CHECK_OK(r);
    /* The client tries twice each time. The server tries twice at first; after that once
     * each time, and once more for an edge that it had used already. */
    CHECK_INT(atom_load(&recv_calls), <=, 2 * ROUNDS + ROUNDS + 10);
    weir_conn_close(client);
    weir_conn_close(server);
    return 0;
}

TEST(after_a_short_read_the_next_one_waits_without_trying)
{
    counting_kernel = kernel_epoll;
    counting_kernel.recv = counting_recv;
    kernel_override(&counting_kernel);
    CHECK_OK(io_test_run(count_reads));
    kernel_override(NULL);
}

static bool is_drained(const weir_conn *handle)
{
    return object_of(handle)->drained;
}

/* A task reads until the end or an error; what it got, and how it ended. */
struct reading {
    weir_conn *conn;
    ATOM(int) reads;
    char text[16];
    ssize_t last;
    bool drained; /* after the first read */
};

static int read_to_the_end(void *arg)
{
    struct reading *reading = *(struct reading **)arg;
    char data[16];
    size_t bytes = 0;

    do {
        reading->last = weir_conn_read(reading->conn, data, sizeof data);
        if (reading->reads++ == 0) reading->drained = is_drained(reading->conn);
        if (reading->last <= 0) break;
        memcpy(reading->text + bytes, data, (size_t)reading->last);
        bytes += (size_t)reading->last;
    } while (bytes < sizeof reading->text - 1);
    return 0;
}

enum arrival { NOTHING, DATA, END, RESET, URGENT };

static void arrive(weir_conn *client, enum arrival what)
{
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    int fd = weir_conn_fd(client);

    switch (what) {
    case NOTHING: break;
    case DATA: CHECK_INT(send(fd, "d", 1, 0), ==, 1); break;
    case END: CHECK_INT(shutdown(fd, SHUT_WR), ==, 0); break;
    case RESET:
        CHECK_INT(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), ==, 0);
        /* Disconnecting sends the reset and keeps the descriptor. */
        CHECK_INT(connect(fd, &(struct sockaddr){.sa_family = AF_UNSPEC}, sizeof(struct sockaddr)),
                  ==, 0);
        break;
    case URGENT:
        CHECK_INT(send(fd, "u", 1, MSG_OOB), ==, 1);
        CHECK_INT(send(fd, "v", 1, 0), ==, 1);
        break;
    }
}

/* The reader waits; `with` comes in one edge with a first byte; `later` comes when that
 * was read and nobody waits, or when the reader waits again. */
static void read_arrivals(struct reading *reading, enum arrival with, enum arrival later, bool last)
{
    weir_conn *client, *server;
    int r;

    memset(reading, 0, sizeof *reading);
    io_test_pair(&client, &server);
    reading->conn = server;
    IO_SCOPE(scope, &r)
    {
        CHECK_OK(weir_spawn(scope, read_to_the_end, &reading, sizeof reading));
        CHECK_OK(weir_yield());
        arrive(client, DATA);
        arrive(client, with);
        while (reading->reads == 0) CHECK_OK(weir_sleep(1));
        arrive(client, later);
        if (last) arrive(client, END);
    }
    CHECK_OK(r);
    weir_conn_close(client);
    weir_conn_close(server);
}

IO_TEST(what_comes_after_a_short_read_is_never_missed)
{
    struct reading reading;

    test_note("data, later the end");
    read_arrivals(&reading, NOTHING, END, false);
    CHECK(reading.drained);
    CHECK_STR(reading.text, "d");
    CHECK_INT(reading.last, ==, 0);
    test_note("data, later data, then the end");
    read_arrivals(&reading, NOTHING, DATA, true);
    CHECK(reading.drained);
    CHECK_STR(reading.text, "dd");
    CHECK_INT(reading.last, ==, 0);
    test_note("data, later a reset");
    read_arrivals(&reading, NOTHING, RESET, false);
    CHECK(reading.drained);
    CHECK_STR(reading.text, "d");
    CHECK_INT(reading.last, ==, -ECONNRESET);
    return 0;
}

/* One edge for both: no other one follows. */
IO_TEST(what_comes_in_one_edge_with_the_data_is_never_missed)
{
    struct reading reading;

    test_note("data with the end");
    read_arrivals(&reading, END, NOTHING, false);
    CHECK(!reading.drained);
    CHECK_STR(reading.text, "d");
    CHECK_INT(reading.last, ==, 0);
    test_note("data with a reset");
    read_arrivals(&reading, RESET, NOTHING, false);
    CHECK(!reading.drained);
    CHECK_INT(reading.last, ==, -ECONNRESET);
    test_note("data around urgent data");
    read_arrivals(&reading, URGENT, NOTHING, true);
    CHECK(!reading.drained);
    CHECK_STR(reading.text, "dv");
    CHECK_INT(reading.last, ==, 0);
    return 0;
}

static int write_byte(void *arg)
{
    ssize_t n = weir_conn_write(*(weir_conn **)arg, "y", 1);
    return n < 0 ? (int)n : 0;
}

/* The edge comes when nobody waits, and is remembered. */
IO_TEST(an_edge_between_two_reads_ends_the_wait_of_the_second)
{
    weir_conn *client, *server;
    char data[16];
    int r;

    io_test_pair(&client, &server);
    IO_SCOPE(scope, &r)
    {
        CHECK_OK(weir_spawn(scope, write_byte, &client, sizeof client));
        CHECK_INT(weir_conn_read(server, data, sizeof data), ==, 1);
        CHECK(is_drained(server));
        for (int i = 0; i < 3; i++) {
            CHECK_INT(weir_conn_write(client, "z", 1), ==, 1);
            CHECK_OK(i == 1 ? weir_sleep(1) : weir_checkpoint());
            CHECK_INT(weir_conn_read(server, data, sizeof data), ==, 1);
        }
        CHECK_INT(weir_conn_write(client, "abc", 3), ==, 3);
        CHECK_OK(weir_sleep(1));
        CHECK_INT(weir_conn_read(server, data, 2), ==, 2);
        CHECK(!is_drained(server));
        CHECK_INT(weir_conn_read(server, data, 2), ==, 1);
    }
    CHECK_OK(r);
    weir_conn_close(client);
    weir_conn_close(server);
    return 0;
}

static void idle_over(weir_conn *conn, int status, void *arg)
{
    (void)conn;
    atom_store((ATOM(int) *)arg, status);
}

IO_TEST(a_drained_connection_may_wait_without_a_task)
{
    weir_conn *client, *server;
    char data[16];
    static ATOM(int) status;
    int r;

    atom_store(&status, 99);
    io_test_pair(&client, &server);
    IO_SCOPE(scope, &r)
    {
        CHECK_OK(weir_spawn(scope, write_byte, &client, sizeof client));
        CHECK_INT(weir_conn_read(server, data, sizeof data), ==, 1);
        CHECK(is_drained(server));
        CHECK_OK(weir_conn_idle(
            scope, server,
            &(weir_idle_spec){.on_ready = idle_over, .keep_arg = &status, .idle_ms = 10000}));
        CHECK_INT(weir_conn_write(client, "z", 1), ==, 1);
        while (atom_load(&status) == 99) CHECK_OK(weir_sleep(1));
        CHECK_INT(weir_conn_read(server, data, sizeof data), ==, 1);
    }
    CHECK_OK(r);
    CHECK_INT(atom_load(&status), ==, 0);
    weir_conn_close(client);
    weir_conn_close(server);
    return 0;
}

/* ---- Outside a task ---- */

TEST(calls_outside_a_runtime_are_refused)
{
    weir_conn *a, *b;
    weir_udp *udp;
    weir_listener *listener;

    CHECK_INT(weir_pipe(&a, &b), ==, WEIR_ENOTASK);
    CHECK_CONTAINS(weir_why(), "weir_pipe");
    CHECK_INT(weir_socketpair(&a, &b), ==, WEIR_ENOTASK);
    CHECK_INT(weir_conn_from_fd(0, &a), ==, WEIR_ENOTASK);
    CHECK_INT(weir_connect("tcp:127.0.0.1:1", &a), ==, WEIR_ENOTASK);
    CHECK_INT(weir_listen(&(weir_listen_spec){.address = "tcp:127.0.0.1:0"}, &listener), ==,
              WEIR_ENOTASK);
    CHECK_INT(weir_udp_open("udp:127.0.0.1:0", &udp), ==, WEIR_ENOTASK);
}

/* ---- Two workers: a reader and a writer of one connection on different ones ---- */

struct half {
    weir_conn *conn;
    size_t bytes;
};

static int pump_out(void *arg)
{
    const struct half *half = arg;
    unsigned char data[1777];
    size_t sent = 0;

    while (sent < half->bytes) {
        size_t part = half->bytes - sent < sizeof data ? half->bytes - sent : sizeof data;
        int r;
        for (size_t i = 0; i < part; i++) data[i] = bulk_byte(sent + i);
        r = weir_conn_send_all(half->conn, data, part, NULL);
        if (r < 0) return r;
        sent += part;
    }
    return 0;
}

static int pump_in(void *arg)
{
    const struct half *half = arg;
    unsigned char data[2048];
    size_t received = 0;

    while (received < half->bytes) {
        ssize_t n = weir_conn_read(half->conn, data, sizeof data);
        if (n <= 0) return n < 0 ? (int)n : WEIR_ECLOSED;
        for (size_t i = 0; i < (size_t)n; i++) CHECK_INT(data[i], ==, bulk_byte(received + i));
        received += (size_t)n;
    }
    return 0;
}

static int spawn_on(weir_scope *scope, weir_task_fn fn, const void *arg, size_t bytes, int worker)
{
    return weir_task_spawn(
        scope,
        &(weir_task_spec){
            .fn = fn, .arg = arg, .arg_bytes = bytes, .place = WEIR_PLACE_WORKER, .worker = worker},
        NULL);
}

IO_TEST(reader_and_writer_may_live_on_different_workers)
{
    enum { BYTES = TEST_SANITIZED ? 200000 : 2000000 };
    weir_conn *a, *b;
    int last = weir_worker_count() - 1;
    int r;

    io_test_pair(&a, &b);
    IO_SCOPE(scope, &r)
    {
        struct half half_a = {a, BYTES}, half_b = {b, BYTES};
        CHECK_OK(spawn_on(scope, pump_out, &half_a, sizeof half_a, 0));
        CHECK_OK(spawn_on(scope, pump_in, &half_a, sizeof half_a, last));
        CHECK_OK(spawn_on(scope, pump_out, &half_b, sizeof half_b, last));
        CHECK_OK(spawn_on(scope, pump_in, &half_b, sizeof half_b, 0));
    }
    CHECK_OK(r);
    weir_conn_close(a);
    weir_conn_close(b);
    return 0;
}

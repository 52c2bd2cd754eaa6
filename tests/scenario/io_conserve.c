/* io_conserve.c - whatever goes wrong, nothing is lost and nothing is left: bytes sent
 * are received or still there, and memory and descriptors go back (the sweeps look
 * for leaks after each run). */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic.h"
#include "rt/runtime.h"
#include "unit/io/io_test.h"

/* ---- Bytes: sent = received + still in the connection ---- */

enum { CHUNK_BYTES = 6000, CHUNKS = 12, SOCKET_BUFFER_BYTES = 4096 };

struct transfer {
    weir_conn *conn;
    size_t *bytes; /* as reported by the calls, whatever they returned */
};

static int send_chunks(void *arg)
{
    const struct transfer *transfer = arg;
    static const char data[CHUNK_BYTES];

    for (int i = 0; i < CHUNKS; i++) {
        size_t sent = 0;
        int r = weir_conn_send_all(transfer->conn, data, sizeof data, &sent);
        *transfer->bytes += sent;
        if (r < 0) return r;
    }
    return 0;
}

static int receive_chunks(void *arg)
{
    const struct transfer *transfer = arg;
    const size_t all = (size_t)CHUNK_BYTES * CHUNKS;
    char data[CHUNK_BYTES / 4];

    while (*transfer->bytes < all) {
        size_t left = all - *transfer->bytes;
        size_t received = 0;
        ssize_t n;
        int r;

        n = weir_conn_read(transfer->conn, data, sizeof data);
        if (n < 0) return (int)n;
        *transfer->bytes += (size_t)n;
        left -= (size_t)n;
        r = weir_conn_read_exact(transfer->conn, data, left < sizeof data ? left : sizeof data,
                                 &received);
        *transfer->bytes += received;
        if (r < 0) return r;
    }
    return 0;
}

static size_t drain(int fd)
{
    char data[4096];
    size_t bytes = 0;
    ssize_t n;

    while ((n = read(fd, data, sizeof data)) > 0) bytes += (size_t)n;
    CHECK(n == 0 || errno == EAGAIN);
    return bytes;
}

static int open_pair(int kind, weir_conn **ret_reader, weir_conn **ret_writer)
{
    const int small = SOCKET_BUFFER_BYTES;
    int r = kind == 0 ? weir_pipe(ret_reader, ret_writer) : weir_socketpair(ret_reader, ret_writer);

    if (r < 0) return r;
    if (kind == 1) {
        int fd = weir_conn_fd(*ret_writer);
        CHECK_INT(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small), ==, 0);
    } else {
        CHECK_INT(fcntl(weir_conn_fd(*ret_writer), F_SETPIPE_SZ, SOCKET_BUFFER_BYTES), >=, 0);
    }
    return 0;
}

static int transfer_main(void *arg)
{
    const int *kind = arg;
    weir_conn *reader, *writer;
    size_t sent = 0, received = 0;
    int r = open_pair(*kind, &reader, &writer);

    if (r < 0) return r;
    WEIR_DEADLINE(IO_TEST_MS) {
        int opened = 0;
        WEIR_SCOPE(scope, &opened, .name = "transfer", .on_failure = WEIR_FAIL_FAST, .max_tasks = 2,
                   .overflow = WEIR_REJECT) {
            struct transfer in = {reader, &received}, out = {writer, &sent};
            runtime_cancel_target(scope);
            r = weir_spawn(scope, receive_chunks, &in, sizeof in);
            if (r == 0) r = weir_spawn(scope, send_chunks, &out, sizeof out);
            if (r < 0) weir_scope_cancel(scope, r, "could not start");
        }
        runtime_cancel_target(worker_self()->runtime->root);
        r = opened;
    }
    CHECK_INT(sent, ==, received + drain(weir_conn_fd(reader)));
    weir_conn_close(reader);
    weir_conn_close(writer);
    return r;
}

static int transfer_run(void *arg)
{
    return weir_run(&(weir_config){.workers = test_workers(), .log_level = WEIR_LOG_OFF},
                    transfer_main, arg);
}

TEST_WITH(bytes_are_conserved_when_cancelled_anywhere, .timeout_ms = 60000)
{
    for (int kind = 0; kind < 2; kind++) {
        int points = test_sweep_cancel(transfer_run, &kind);
        CHECK_INT(points, >=, CHUNKS);
    }
}

TEST_WITH(bytes_are_conserved_when_memory_runs_out_anywhere, .timeout_ms = 60000)
{
    for (int kind = 0; kind < 2; kind++) CHECK_INT(test_sweep_alloc(transfer_run, &kind), >, 0);
}

TEST_WITH(bytes_are_conserved_in_small_pieces, .timeout_ms = 60000)
{
    static const size_t sizes[] = {1, 2, 3, 1000};

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        test_note("at most %zu bytes", sizes[i]);
        test_short_io(sizes[i]);
        for (int kind = 0; kind < 2; kind++) CHECK_OK(transfer_run(&kind));
    }
}

/* ---- One of everything ---- */

struct objects {
    weir_listener *listener, *unix_listener;
    weir_conn *client, *server, *pipe_reader, *pipe_writer, *unix_client, *unix_server;
    weir_udp *udp;
    weir_file *file;
    weir_listing *listing;
    char folder[32], path[64], other[64], socket[80];
};

#define STEP(call)                        \
    do {                                  \
        ssize_t step_ = (call);           \
        if (step_ < 0) return (int)step_; \
    } while (0)

static int use_tcp(struct objects *objects)
{
    weir_address address;
    char text[WEIR_ADDRESS_TEXT_MAX];
    char data[16];
    struct iovec parts[2] = {{data, 3}, {data + 3, 3}};

    STEP(weir_listen(&(weir_listen_spec){.address = "tcp:127.0.0.1:0", .per_worker = false},
                     &objects->listener));
    STEP(weir_listener_address(objects->listener, &address));
    weir_address_format(&address, text, sizeof text);
    STEP(weir_connect(text, &objects->client));
    STEP(weir_accept(objects->listener, &objects->server));
    STEP(weir_conn_send_all(objects->client, "abcdef", 6, NULL));
    STEP(weir_conn_read_exact(objects->server, data, 6, NULL));
    CHECK(memcmp(data, "abcdef", 6) == 0);
    STEP(weir_conn_writev(objects->server, parts, 2));
    STEP(weir_conn_readv(objects->client, parts, 2));
    STEP(weir_conn_shutdown(objects->client, SHUT_WR));
    STEP(weir_conn_read(objects->server, data, sizeof data));
    return 0;
}

static int use_local(struct objects *objects)
{
    char data[8];

    STEP(weir_pipe(&objects->pipe_reader, &objects->pipe_writer));
    STEP(weir_conn_send_all(objects->pipe_writer, "xyz", 3, NULL));
    STEP(weir_conn_read_exact(objects->pipe_reader, data, 3, NULL));
    CHECK(memcmp(data, "xyz", 3) == 0);
    STEP(weir_listen(&(weir_listen_spec){.address = objects->socket}, &objects->unix_listener));
    STEP(weir_connect(objects->socket, &objects->unix_client));
    STEP(weir_accept(objects->unix_listener, &objects->unix_server));
    STEP(weir_conn_write(objects->unix_client, "u", 1));
    STEP(weir_conn_read(objects->unix_server, data, sizeof data));
    return 0;
}

static int use_udp(struct objects *objects)
{
    weir_address address, from;
    char data[8];

    STEP(weir_udp_open("udp:127.0.0.1:0", &objects->udp));
    STEP(weir_udp_local(objects->udp, &address));
    STEP(weir_udp_send(objects->udp, &address, "dgram", 5));
    STEP(weir_udp_recv(objects->udp, data, sizeof data, &from));
    CHECK(memcmp(data, "dgram", 5) == 0);
    return 0;
}

static int use_files(struct objects *objects)
{
    char data[8] = "";
    struct stat found;
    size_t written = 0;

    STEP(weir_path_mkdir(objects->other, 0700));
    STEP(weir_file_open(objects->path, O_RDWR | O_CREAT, 0600, &objects->file));
    while (written < 4) {
        ssize_t n = weir_file_write(objects->file, &"data"[written], 4 - written, (int64_t)written);
        if (n < 0) return (int)n;
        written += (size_t)n;
    }
    STEP(weir_file_sync(objects->file, true));
    STEP(weir_file_read(objects->file, data, sizeof data, 0));
    CHECK(memcmp(data, "data", 1) == 0);
    STEP(weir_file_stat(objects->file, &found));
    STEP(weir_path_stat(objects->path, &found));
    STEP(weir_path_list(objects->folder, 10, &objects->listing));
    STEP(weir_path_unlink(objects->path));
    return 0;
}

static int use_name(void)
{
    weir_address addresses[2];
    STEP(weir_resolve("localhost", 1, WEIR_TCP, addresses, 2));
    return 0;
}

static int everything(void *arg)
{
    struct objects *objects = arg;
    int r = 0;

    WEIR_DEADLINE(IO_TEST_MS) {
        r = use_tcp(objects);
        if (r == 0) r = use_local(objects);
        if (r == 0) r = use_udp(objects);
        if (r == 0) r = use_files(objects);
        if (r == 0) r = use_name();
    }
    weir_conn_close(objects->client);
    weir_conn_close(objects->server);
    weir_conn_close(objects->pipe_reader);
    weir_conn_close(objects->pipe_writer);
    weir_conn_close(objects->unix_client);
    weir_conn_close(objects->unix_server);
    weir_listener_close(objects->listener);
    weir_listener_close(objects->unix_listener);
    weir_udp_close(objects->udp);
    weir_listing_free(objects->listing);
    (void)!weir_file_close(objects->file);
    return r;
}

/* What a fault in the removal of a file leaves is not the library's to clean up. */
static void everything_remove(const struct objects *objects)
{
    char lock[96];

    (void)snprintf(lock, sizeof lock, "%s.lock", objects->socket + strlen("unix:"));
    (void)unlink(lock);
    (void)unlink(objects->path);
    (void)unlink(objects->socket + strlen("unix:"));
    (void)rmdir(objects->other);
    CHECK_INT(rmdir(objects->folder), ==, 0);
}

static int everything_run(void *arg)
{
    struct objects objects = {0};
    int r;

    (void)arg;
    strcpy(objects.folder, "/tmp/weir-test-XXXXXX");
    CHECK(mkdtemp(objects.folder) != NULL);
    (void)snprintf(objects.path, sizeof objects.path, "%s/file", objects.folder);
    (void)snprintf(objects.other, sizeof objects.other, "%s/folder", objects.folder);
    (void)snprintf(objects.socket, sizeof objects.socket, "unix:%s/socket", objects.folder);
    r = weir_run(&(weir_config){.workers = test_workers(), .log_level = WEIR_LOG_OFF}, everything,
                 &objects);
    everything_remove(&objects);
    return r;
}

TEST_WITH(cancel_anywhere_leaves_nothing_behind, .timeout_ms = 60000)
{
    CHECK_INT(test_sweep_cancel(everything_run, NULL), >=, 25);
}

TEST_WITH(no_memory_anywhere_leaves_nothing_behind, .timeout_ms = 60000)
{
    CHECK_INT(test_sweep_alloc(everything_run, NULL), >=, 25);
}

TEST_WITH(no_descriptor_anywhere_leaves_nothing_behind, .timeout_ms = 120000)
{
    CHECK_INT(test_sweep_calls(everything_run, NULL, -EMFILE), >=, 25);
}

/* Calls that a signal may cut short are made again; nothing is seen of it. */
static int interrupted_run(void *arg)
{
    static const char *const retried[] = {
        "accept", "connect", "read",    "readv",  "write", "writev",      "recv",
        "send",   "recvmsg", "sendmsg", "open",   "pread", "pwrite",      "fsync",
        "fstat",  "stat",    "rename",  "unlink", "mkdir", "getaddrinfo", "list_directory",
    };
    int r = everything_run(arg);

    for (size_t i = 0; i < sizeof retried / sizeof retried[0]; i++) {
        if (strcmp(test_call_failed_name(), retried[i]) == 0) CHECK_OK(r);
    }
    return r;
}

TEST_WITH(an_interrupted_call_is_made_again, .timeout_ms = 120000)
{
    CHECK_INT(test_sweep_calls(interrupted_run, NULL, -EINTR), >=, 25);
}

TEST_WITH(everything_works_in_small_pieces, .timeout_ms = 60000)
{
    for (size_t bytes = 1; bytes <= 3; bytes++) {
        test_short_io(bytes);
        CHECK_OK(everything_run(NULL));
    }
}

/* ---- Connections that are made and cancelled on both sides ---- */

static int knock(void *arg)
{
    weir_conn *conn;
    char byte = 'k';
    int r = weir_connect(arg, &conn);

    if (r < 0) return r;
    r = weir_conn_send_all(conn, &byte, 1, NULL);
    if (r == 0) r = weir_conn_read_exact(conn, &byte, 1, NULL);
    weir_conn_close(conn);
    return r;
}

static int answer(void *arg)
{
    weir_listener *listener = *(weir_listener **)arg;
    int r = 0;

    for (int i = 0; i < 3 && r == 0; i++) {
        weir_conn *conn;
        char byte;

        r = weir_accept(listener, &conn);
        if (r < 0) break;
        r = weir_conn_read_exact(conn, &byte, 1, NULL);
        if (r == 0) r = weir_conn_send_all(conn, &byte, 1, NULL);
        weir_conn_close(conn);
    }
    return r;
}

static int visits_main(void *arg)
{
    char address[WEIR_ADDRESS_TEXT_MAX];
    weir_listener *listener = NULL;
    weir_address bound;
    int r = weir_listen(&(weir_listen_spec){.address = arg}, &listener);

    if (r < 0) return r;
    CHECK_OK(weir_listener_address(listener, &bound));
    weir_address_format(&bound, address, sizeof address);
    WEIR_DEADLINE(IO_TEST_MS) {
        WEIR_SCOPE(scope, &r, .name = "visits", .on_failure = WEIR_FAIL_FAST, .max_tasks = 8,
                   .overflow = WEIR_REJECT) {
            int s = weir_spawn(scope, answer, &listener, sizeof listener);
            for (int i = 0; i < 3 && s == 0; i++) {
                s = weir_spawn(scope, knock, address, sizeof address);
            }
            if (s < 0) weir_scope_cancel(scope, s, "could not start");
        }
    }
    weir_listener_close(listener);
    return r;
}

static int visits_run(void *arg)
{
    return weir_run(&(weir_config){.workers = test_workers(), .log_level = WEIR_LOG_OFF},
                    visits_main, arg);
}

TEST_WITH(visits_cancelled_anywhere_leave_nothing_behind, .timeout_ms = 60000)
{
    char tcp[] = "tcp:127.0.0.1:0";
    char local[WEIR_ADDRESS_TEXT_MAX];

    (void)io_test_name("visits", local);
    CHECK_INT(test_sweep_cancel(visits_run, tcp), >=, 15);
    CHECK_INT(test_sweep_cancel(visits_run, local), >=, 15);
    CHECK_INT(test_sweep_alloc(visits_run, tcp), >=, 8);
}

/* io_interrupt.c - every call that waits: refused without a deadline, ended by its
 * deadline, by an outer one, by cancel, and by a stop only if it takes on work. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic.h"
#include "rt/runtime.h"
#include "unit/io/io_test.h"

/* Objects on which each of the calls has to wait. */
struct fixture {
    weir_conn *quiet, *quiet_peer; /* nothing to read */
    weir_conn *full, *full_peer;   /* no room to write */
    weir_listener *listener;       /* nobody comes */
    weir_listener *crowded;        /* its backlog is full */
    char crowded_address[WEIR_ADDRESS_TEXT_MAX];
    weir_conn *crowd[4];
    int crowd_count;
    weir_udp *udp;
    char folder[32];
    char fifo[64]; /* nobody writes */
};

static void fill(weir_conn *conn)
{
    static char data[65536];
    ssize_t n = 1;

    while (n > 0) n = send(weir_conn_fd(conn), data, sizeof data, MSG_DONTWAIT | MSG_NOSIGNAL);
    CHECK_INT(errno, ==, EAGAIN);
}

static void fixture_open(struct fixture *fixture)
{
    char address[WEIR_ADDRESS_TEXT_MAX];
    int r = 0;

    memset(fixture, 0, sizeof *fixture);
    CHECK_OK(weir_socketpair(&fixture->quiet, &fixture->quiet_peer));
    CHECK_OK(weir_socketpair(&fixture->full, &fixture->full_peer));
    fill(fixture->full);
    fixture->listener = io_test_listen(address);
    (void)io_test_name("crowded", fixture->crowded_address);
    CHECK_OK(weir_listen(&(weir_listen_spec){.address = fixture->crowded_address, .backlog = 1},
                         &fixture->crowded));
    while (fixture->crowd_count < 4) {
        WEIR_DEADLINE(15) {
            r = weir_connect(fixture->crowded_address, &fixture->crowd[fixture->crowd_count]);
        }
        if (r < 0) break;
        fixture->crowd_count++;
    }
    CHECK_INT(r, ==, WEIR_ETIMEDOUT);
    CHECK_OK(weir_udp_open("udp:127.0.0.1:0", &fixture->udp));
    strcpy(fixture->folder, "/tmp/weir-test-XXXXXX");
    CHECK(mkdtemp(fixture->folder) != NULL);
    (void)snprintf(fixture->fifo, sizeof fixture->fifo, "%s/fifo", fixture->folder);
    CHECK_INT(mkfifo(fixture->fifo, 0600), ==, 0);
}

static size_t orphan_count(void)
{
    struct blocking *files = &worker_self()->runtime->files;
    size_t count;

    (void)pthread_mutex_lock(&files->mutex);
    count = files->orphan_count;
    (void)pthread_mutex_unlock(&files->mutex);
    return count;
}

/* Threads that were left in the opening of the fifo go on once it has a writer. */
static void fixture_close(struct fixture *fixture)
{
    int fd = open(fixture->fifo, O_RDWR | O_NONBLOCK | O_CLOEXEC);

    CHECK(fd >= 0);
    while (orphan_count() > 0) CHECK_OK(weir_sleep(1));
    CHECK_INT(close(fd), ==, 0);
    weir_conn_close(fixture->quiet);
    weir_conn_close(fixture->quiet_peer);
    weir_conn_close(fixture->full);
    weir_conn_close(fixture->full_peer);
    weir_listener_close(fixture->listener);
    weir_listener_close(fixture->crowded);
    while (fixture->crowd_count > 0) weir_conn_close(fixture->crowd[--fixture->crowd_count]);
    weir_udp_close(fixture->udp);
    CHECK_INT(unlink(fixture->fifo), ==, 0);
    CHECK_INT(rmdir(fixture->folder), ==, 0);
}

/* ---- The calls ---- */

static char byte_sink[4];

static int wait_read(struct fixture *fixture)
{
    return (int)weir_conn_read(fixture->quiet, byte_sink, sizeof byte_sink);
}

static int wait_readv(struct fixture *fixture)
{
    struct iovec parts[2] = {{byte_sink, 2}, {byte_sink + 2, 2}};
    return (int)weir_conn_readv(fixture->quiet, parts, 2);
}

static int wait_read_exact(struct fixture *fixture)
{
    size_t received = 9;
    int r = weir_conn_read_exact(fixture->quiet, byte_sink, sizeof byte_sink, &received);
    CHECK_INT(received, ==, 0);
    return r;
}

static int wait_write(struct fixture *fixture)
{
    return (int)weir_conn_write(fixture->full, "abc", 3);
}

static int wait_writev(struct fixture *fixture)
{
    char data[] = "abc";
    struct iovec parts[2] = {{data, 1}, {data + 1, 2}};
    return (int)weir_conn_writev(fixture->full, parts, 2);
}

static int wait_send_all(struct fixture *fixture)
{
    size_t sent = 9;
    int r = weir_conn_send_all(fixture->full, "abc", 3, &sent);
    CHECK_INT(sent, ==, 0);
    return r;
}

static int wait_accept(struct fixture *fixture)
{
    weir_conn *conn;
    return weir_accept(fixture->listener, &conn);
}

static int wait_connect(struct fixture *fixture)
{
    weir_conn *conn;
    return weir_connect(fixture->crowded_address, &conn);
}

static int wait_recv(struct fixture *fixture)
{
    return (int)weir_udp_recv(fixture->udp, byte_sink, sizeof byte_sink, NULL);
}

static int wait_open(struct fixture *fixture)
{
    weir_file *file;
    return weir_file_open(fixture->fifo, O_RDONLY, 0, &file);
}

static const struct waiting_call {
    const char *name;
    int (*call)(struct fixture *fixture);
    bool takes_work;
} waiting_calls[] = {
    {"weir_conn_read", wait_read, false},
    {"weir_conn_readv", wait_readv, false},
    {"weir_conn_read_exact", wait_read_exact, false},
    {"weir_conn_write", wait_write, false},
    {"weir_conn_writev", wait_writev, false},
    {"weir_conn_send_all", wait_send_all, false},
    {"weir_accept", wait_accept, true},
    {"weir_connect", wait_connect, false},
    {"weir_udp_recv", wait_recv, false},
    {"weir_file_open", wait_open, false},
};
enum { WAITING_CALLS = sizeof waiting_calls / sizeof waiting_calls[0] };

/* ---- Deadlines ---- */

IO_TEST(every_wait_ends_with_its_own_deadline)
{
    struct fixture fixture;

    fixture_open(&fixture);
    for (int i = 0; i < WAITING_CALLS; i++) {
        test_note("%s", waiting_calls[i].name);
        WEIR_DEADLINE(2) {
            CHECK_INT(waiting_calls[i].call(&fixture), ==, WEIR_ETIMEDOUT);
            CHECK_INT(waiting_calls[i].call(&fixture), ==, WEIR_ETIMEDOUT);
            CHECK_INT(weir_cause(NULL), ==, WEIR_CAUSE_DEADLINE);
        }
    }
    fixture_close(&fixture);
    return 0;
}

IO_TEST(an_outer_deadline_cancels_the_wait_inside)
{
    struct fixture fixture;

    fixture_open(&fixture);
    for (int i = 0; i < WAITING_CALLS; i++) {
        test_note("%s", waiting_calls[i].name);
        WEIR_DEADLINE(2) {
            WEIR_DEADLINE(1000) {
                weir_cause_info info;
                CHECK_INT(waiting_calls[i].call(&fixture), ==, WEIR_ECANCELED);
                CHECK_INT(weir_cause(&info), ==, WEIR_CAUSE_DEADLINE);
            }
        }
    }
    fixture_close(&fixture);
    return 0;
}

/* Calls that never had to wait are refused just the same. */
static int refused_calls(struct fixture *fixture)
{
    weir_address address;
    weir_listing *listing;
    struct stat found;
    int refused = 0;

    for (int i = 0; i < WAITING_CALLS; i++) {
        test_note("%s", waiting_calls[i].name);
        CHECK_INT(waiting_calls[i].call(fixture), ==, WEIR_ENODEADLINE);
        CHECK_CONTAINS(weir_why(), "WEIR_DEADLINE");
        refused++;
    }
    CHECK_OK(weir_udp_local(fixture->udp, &address));
    CHECK_INT(weir_udp_send(fixture->udp, &address, "x", 1), ==, WEIR_ENODEADLINE);
    CHECK_INT(weir_resolve("localhost", 1, WEIR_TCP, &address, 1), ==, WEIR_ENODEADLINE);
    CHECK_INT(weir_path_stat("/", &found), ==, WEIR_ENODEADLINE);
    CHECK_INT(weir_path_rename("/nonexistent/a", "/nonexistent/b"), ==, WEIR_ENODEADLINE);
    CHECK_INT(weir_path_unlink("/nonexistent/a"), ==, WEIR_ENODEADLINE);
    CHECK_INT(weir_path_mkdir("/nonexistent/a", 0700), ==, WEIR_ENODEADLINE);
    CHECK_INT(weir_path_list("/", 1, &listing), ==, WEIR_ENODEADLINE);
    return refused;
}

static int no_deadline(void *arg)
{
    struct fixture fixture;
    weir_file *file = NULL;
    struct stat found;
    char byte;

    (void)arg;
    WEIR_NO_DEADLINE("the fixture is local") {
        fixture_open(&fixture);
        CHECK_OK(weir_file_open("/tmp", O_RDONLY, 0, &file));
    }
    CHECK_INT(refused_calls(&fixture), ==, WAITING_CALLS);
    CHECK_INT(weir_file_read(file, &byte, 1, 0), ==, WEIR_ENODEADLINE);
    CHECK_INT(weir_file_write(file, &byte, 1, 0), ==, WEIR_ENODEADLINE);
    CHECK_INT(weir_file_sync(file, false), ==, WEIR_ENODEADLINE);
    CHECK_INT(weir_file_stat(file, &found), ==, WEIR_ENODEADLINE);
    CHECK_INT(weir_file_close(file), ==, 0);
    WEIR_NO_DEADLINE("the fixture is local") { fixture_close(&fixture); }
    return 0;
}

TEST(every_wait_without_a_deadline_is_refused)
{
    CHECK_OK(weir_run(&(weir_config){.workers = test_workers()}, no_deadline, NULL));
}

/* ---- Cancel and stop ---- */

struct attempt {
    struct fixture *fixture;
    const struct waiting_call *call;
    ATOM(int) * result; /* 1 while it waits */
};

static int attempt_main(void *arg)
{
    const struct attempt *attempt = arg;
    int r = attempt->call->call(attempt->fixture);

    atom_store(attempt->result, r);
    if (r == WEIR_ECANCELED) {
        CHECK_INT(attempt->call->call(attempt->fixture), ==, WEIR_ECANCELED);
        CHECK_INT(weir_cause(NULL), ==, WEIR_CAUSE_CANCEL);
    } else if (r == WEIR_ESTOPPING) {
        CHECK_INT(attempt->call->call(attempt->fixture), ==, WEIR_ESTOPPING);
    }
    return 0;
}

IO_TEST(cancel_ends_every_wait)
{
    struct fixture fixture;

    fixture_open(&fixture);
    for (int i = 0; i < WAITING_CALLS; i++) {
        static ATOM(int) result;
        struct attempt attempt = {&fixture, &waiting_calls[i], &result};
        int r;

        test_note("%s", waiting_calls[i].name);
        atom_store(&result, 1);
        IO_SCOPE(scope, &r)
        {
            CHECK_OK(weir_spawn(scope, attempt_main, &attempt, sizeof attempt));
            CHECK_OK(weir_yield());
            CHECK_INT(atom_load(&result), ==, 1);
            weir_scope_cancel(scope, 0, "enough");
        }
        CHECK_OK(r);
        CHECK_INT(atom_load(&result), ==, WEIR_ECANCELED);
    }
    fixture_close(&fixture);
    return 0;
}

IO_TEST(stop_ends_only_the_waits_that_take_on_work)
{
    struct fixture fixture;

    fixture_open(&fixture);
    for (int i = 0; i < WAITING_CALLS; i++) {
        static ATOM(int) result;
        struct attempt attempt = {&fixture, &waiting_calls[i], &result};
        int r;

        test_note("%s", waiting_calls[i].name);
        atom_store(&result, 1);
        IO_SCOPE(scope, &r)
        {
            CHECK_OK(weir_spawn(scope, attempt_main, &attempt, sizeof attempt));
            CHECK_OK(weir_yield());
            weir_scope_stop(scope, 10000);
            CHECK_OK(weir_sleep(1));
            CHECK_INT(atom_load(&result), ==, waiting_calls[i].takes_work ? WEIR_ESTOPPING : 1);
            weir_scope_cancel(scope, 0, "enough");
        }
        CHECK_OK(r);
        if (!waiting_calls[i].takes_work) CHECK_INT(atom_load(&result), ==, WEIR_ECANCELED);
    }
    fixture_close(&fixture);
    return 0;
}

/* ---- A wake-up and a cancel in one turn ----
 *
 * Two tasks of one worker wait; both are woken by one poll, and the first of them
 * cancels the other before that has run. */

struct meeting {
    weir_conn *first, *second; /* read by the two tasks */
    weir_scope *scope;
    bool steal; /* the first takes away what woke the second */
    ATOM(int) result;
};

static int second_reader(void *arg)
{
    struct meeting *meeting = *(struct meeting **)arg;
    char byte;
    ssize_t n = weir_conn_read(meeting->second, &byte, 1);

    atom_store(&meeting->result, (int)n);
    CHECK_INT(weir_conn_read(meeting->second, &byte, 1), ==, WEIR_ECANCELED);
    return 0;
}

static int first_reader(void *arg)
{
    struct meeting *meeting = *(struct meeting **)arg;
    char byte;

    CHECK_INT(weir_conn_read(meeting->first, &byte, 1), ==, 1);
    CHECK_INT(atom_load(&meeting->result), ==, 99);
    if (meeting->steal) CHECK_INT(recv(weir_conn_fd(meeting->second), &byte, 1, 0), ==, 1);
    weir_scope_cancel(meeting->scope, 0, "in the same turn");
    return 0;
}

static int meet(bool steal)
{
    struct meeting meeting = {.steal = steal, .result = 99};
    struct meeting *at = &meeting;
    weir_conn *first, *second;
    int r, inner;

    CHECK_OK(weir_socketpair(&meeting.first, &first));
    CHECK_OK(weir_socketpair(&meeting.second, &second));
    IO_SCOPE(outer, &r)
    {
        IO_SCOPE(scope, &inner)
        {
            meeting.scope = scope;
            CHECK_OK(weir_spawn(outer, first_reader, &at, sizeof at));
            CHECK_OK(weir_spawn(scope, second_reader, &at, sizeof at));
            CHECK_OK(weir_yield());
            CHECK_INT(weir_conn_write(first, "x", 1), ==, 1);
            CHECK_INT(weir_conn_write(second, "x", 1), ==, 1);
        }
    }
    CHECK_OK(inner);
    CHECK_OK(r);
    weir_conn_close(meeting.first);
    weir_conn_close(meeting.second);
    weir_conn_close(first);
    weir_conn_close(second);
    return atom_load(&meeting.result);
}

IO_TEST(what_was_read_is_returned_although_a_cancel_came_at_the_same_time)
{
    CHECK_INT(meet(false), ==, 1);
    return 0;
}

IO_TEST(a_cancel_is_not_lost_behind_a_wake_up_that_meant_nothing)
{
    CHECK_INT(meet(true), ==, WEIR_ECANCELED);
    return 0;
}

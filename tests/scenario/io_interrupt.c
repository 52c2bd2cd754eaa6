/* io_interrupt.c - every call that waits: refused without a deadline, ended by its
 * deadline, by an outer one, by cancel, and by a stop only if it takes on work. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic.h"
#include "rt/kernel.h"
#include "rt/runtime.h"
#include "unit/io/io_test.h"

/* ---- A kernel whose files and names are stuck ----
 *
 * On the threads of the executors calls wait at a gate; on the workers, which make some
 * of them too, they do not. */

static struct kernel gated;
static pthread_mutex_t gate_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_moved = PTHREAD_COND_INITIALIZER;
static bool gate_open = true;

static void gate_set(bool open)
{
    (void)pthread_mutex_lock(&gate_mutex);
    gate_open = open;
    (void)pthread_cond_broadcast(&gate_moved);
    (void)pthread_mutex_unlock(&gate_mutex);
}

static void gate_pass(void)
{
    if (worker_self()) return;
    (void)pthread_mutex_lock(&gate_mutex);
    while (!gate_open) (void)pthread_cond_wait(&gate_moved, &gate_mutex);
    (void)pthread_mutex_unlock(&gate_mutex);
}

#define GATED(type, name, parameters, ...)                    \
    static type gated_##name parameters                       \
    {                                                         \
        gate_pass();                                          \
        (void)kernel;                                         \
        return kernel_epoll.name(&kernel_epoll, __VA_ARGS__); \
    }
#define KERNEL const struct kernel *kernel

GATED(int, close, (KERNEL, int fd), fd)
GATED(ssize_t, pread, (KERNEL, int fd, void *data, size_t bytes, int64_t offset), fd, data, bytes,
      offset)
GATED(ssize_t, pwrite, (KERNEL, int fd, const void *data, size_t bytes, int64_t offset), fd, data,
      bytes, offset)
GATED(int, fsync, (KERNEL, int fd, bool data_only), fd, data_only)
GATED(int, fstat, (KERNEL, int fd, struct stat *ret_stat), fd, ret_stat)
GATED(int, stat, (KERNEL, const char *path, struct stat *ret_stat), path, ret_stat)
GATED(int, rename, (KERNEL, const char *from, const char *to), from, to)
GATED(int, unlink, (KERNEL, const char *path), path)
GATED(int, mkdir, (KERNEL, const char *path, mode_t mode), path, mode)
GATED(int, list_directory,
      (KERNEL, const char *path, int (*entry)(void *arg, const char *name), void *arg), path, entry,
      arg)
GATED(int, getaddrinfo,
      (KERNEL, const char *host, const char *service, const struct addrinfo *hints,
       struct addrinfo **ret_list),
      host, service, hints, ret_list)

/* Datagrams find no room. */
static ssize_t full_sendmsg(KERNEL, int fd, const struct msghdr *message, int flags)
{
    if (message->msg_name) return -EAGAIN;
    return kernel_epoll.sendmsg(kernel, fd, message, flags);
}

static int run_gated(weir_task_fn body, bool with_deadline)
{
    int r;

    gated = kernel_epoll;
    gated.close = gated_close;
    gated.pread = gated_pread;
    gated.pwrite = gated_pwrite;
    gated.fsync = gated_fsync;
    gated.fstat = gated_fstat;
    gated.stat = gated_stat;
    gated.rename = gated_rename;
    gated.unlink = gated_unlink;
    gated.mkdir = gated_mkdir;
    gated.list_directory = gated_list_directory;
    gated.getaddrinfo = gated_getaddrinfo;
    gated.sendmsg = full_sendmsg;
    kernel_override(&gated);
    r = with_deadline ? io_test_run(body)
                      : weir_run(&(weir_config){.workers = test_workers()}, body, NULL);
    kernel_override(NULL);
    return r;
}

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
    weir_file *file;
    weir_signal_watch *watch;
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

static void fixture_open(struct fixture *fixture, weir_scope *scope)
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
        if (r == 0) fixture->crowd_count++;
        /* There is room for one more than the backlog: if one of them was too late, once more. */
        if (r < 0 && fixture->crowd_count >= 2) break;
    }
    CHECK_INT(r, ==, WEIR_ETIMEDOUT);
    CHECK_OK(weir_udp_open("udp:127.0.0.1:0", &fixture->udp));
    strcpy(fixture->folder, "/tmp/weir-test-XXXXXX");
    CHECK(mkdtemp(fixture->folder) != NULL);
    (void)snprintf(fixture->fifo, sizeof fixture->fifo, "%s/fifo", fixture->folder);
    CHECK_INT(mkfifo(fixture->fifo, 0600), ==, 0);
    CHECK_OK(weir_file_open("/dev/null", O_RDWR, 0, &fixture->file));
    CHECK_OK(weir_signal_open(
        scope,
        &(weir_signal_spec){.name = "none", .signals = (const int[]){SIGUSR2}, .signals_count = 1},
        &fixture->watch));
    gate_set(false);
}

static size_t orphan_count(void)
{
    weir_runtime *runtime = worker_self()->runtime;
    return blocking_orphan_count(&runtime->files) + blocking_orphan_count(&runtime->names);
}

/* Let the threads go on that were left in a call: at the gate, or in the opening of the
 * fifo, which now has a writer. So each call finds a thread that is free. */
static void fixture_settle(struct fixture *fixture)
{
    int fd = open(fixture->fifo, O_RDWR | O_NONBLOCK | O_CLOEXEC);

    CHECK(fd >= 0);
    gate_set(true);
    while (orphan_count() > 0) CHECK_OK(weir_sleep(1));
    gate_set(false);
    CHECK_INT(close(fd), ==, 0);
}

static void fixture_close(struct fixture *fixture)
{
    gate_set(true);
    CHECK_INT(weir_file_close(fixture->file), ==, 0);
    weir_signal_close(fixture->watch);
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

static int wait_connect_to(struct fixture *fixture)
{
    weir_address address;
    weir_conn *conn;
    CHECK_OK(weir_address_parse(fixture->crowded_address, &address));
    return weir_connect_to(&address, &conn);
}

static int wait_udp_send(struct fixture *fixture)
{
    weir_address address;
    CHECK_OK(weir_udp_local(fixture->udp, &address));
    return (int)weir_udp_send(fixture->udp, &address, "x", 1);
}

static int wait_resolve(struct fixture *fixture)
{
    weir_address address;
    (void)fixture;
    return weir_resolve("localhost", 1, WEIR_TCP, &address, 1);
}

static int wait_signal(struct fixture *fixture)
{
    weir_signal_event event;
    return weir_signal_wait(fixture->watch, &event);
}

static int wait_open(struct fixture *fixture)
{
    weir_file *file;
    return weir_file_open(fixture->fifo, O_RDONLY, 0, &file);
}

static int wait_file_read(struct fixture *fixture)
{
    return (int)weir_file_read(fixture->file, byte_sink, sizeof byte_sink, 0);
}

static int wait_file_write(struct fixture *fixture)
{
    return (int)weir_file_write(fixture->file, "x", 1, 0);
}

static int wait_file_sync(struct fixture *fixture)
{
    return weir_file_sync(fixture->file, false);
}

static int wait_file_stat(struct fixture *fixture)
{
    struct stat found;
    return weir_file_stat(fixture->file, &found);
}

static int wait_path_stat(struct fixture *fixture)
{
    struct stat found;
    return weir_path_stat(fixture->folder, &found);
}

static int wait_path_rename(struct fixture *fixture)
{
    (void)fixture;
    return weir_path_rename("/nonexistent/a", "/nonexistent/b");
}

static int wait_path_unlink(struct fixture *fixture)
{
    (void)fixture;
    return weir_path_unlink("/nonexistent/a");
}

static int wait_path_mkdir(struct fixture *fixture)
{
    (void)fixture;
    return weir_path_mkdir("/nonexistent/a", 0700);
}

static int wait_path_list(struct fixture *fixture)
{
    weir_listing *listing;
    return weir_path_list(fixture->folder, 10, &listing);
}

/* All but weir_file_close, which closes whatever comes: unit/io/file_test.c. */
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
    {"weir_connect_to", wait_connect_to, false},
    {"weir_udp_recv", wait_recv, false},
    {"weir_udp_send", wait_udp_send, false},
    {"weir_resolve", wait_resolve, false},
    {"weir_signal_wait", wait_signal, true},
    {"weir_file_open", wait_open, false},
    {"weir_file_read", wait_file_read, false},
    {"weir_file_write", wait_file_write, false},
    {"weir_file_sync", wait_file_sync, false},
    {"weir_file_stat", wait_file_stat, false},
    {"weir_path_stat", wait_path_stat, false},
    {"weir_path_rename", wait_path_rename, false},
    {"weir_path_unlink", wait_path_unlink, false},
    {"weir_path_mkdir", wait_path_mkdir, false},
    {"weir_path_list", wait_path_list, false},
};
enum { WAITING_CALLS = sizeof waiting_calls / sizeof waiting_calls[0] };

/* Check each of the calls in turn. */
static void each_call(void (*check)(struct fixture *fixture, const struct waiting_call *call))
{
    struct fixture fixture;
    int r;

    IO_SCOPE(scope, &r)
    {
        fixture_open(&fixture, scope);
        for (int i = 0; i < WAITING_CALLS; i++) {
            test_note("%s", waiting_calls[i].name);
            check(&fixture, &waiting_calls[i]);
            fixture_settle(&fixture);
        }
        fixture_close(&fixture);
    }
    CHECK_OK(r);
}

/* EACH_CALL_TEST(name) { … } - a test whose body checks `call` in `fixture`. */
#define EACH_CALL_TEST(name_)                                                            \
    static void check_##name_(struct fixture *fixture, const struct waiting_call *call); \
    static int body_##name_(void *arg)                                                   \
    {                                                                                    \
        (void)arg;                                                                       \
        each_call(check_##name_);                                                        \
        return 0;                                                                        \
    }                                                                                    \
    TEST(name_)                                                                          \
    {                                                                                    \
        CHECK_OK(run_gated(body_##name_, true));                                         \
    }                                                                                    \
    static void check_##name_(struct fixture *fixture, const struct waiting_call *call)

/* ---- Deadlines ---- */

EACH_CALL_TEST(every_wait_ends_with_its_own_deadline)
{
    WEIR_DEADLINE(2) {
        CHECK_INT(call->call(fixture), ==, WEIR_ETIMEDOUT);
        CHECK_INT(call->call(fixture), ==, WEIR_ETIMEDOUT);
        CHECK_INT(weir_cause(NULL), ==, WEIR_CAUSE_DEADLINE);
    }
}

EACH_CALL_TEST(an_outer_deadline_cancels_the_wait_inside)
{
    WEIR_DEADLINE(2) {
        WEIR_DEADLINE(60000) {
            weir_cause_info info;
            CHECK_INT(call->call(fixture), ==, WEIR_ECANCELED);
            CHECK_INT(weir_cause(&info), ==, WEIR_CAUSE_DEADLINE);
        }
    }
}

static int no_deadline(void *arg)
{
    struct fixture fixture;
    int r;

    (void)arg;
    IO_SCOPE(scope, &r)
    {
        WEIR_NO_DEADLINE("the fixture is local") { fixture_open(&fixture, scope); }
        for (int i = 0; i < WAITING_CALLS; i++) {
            test_note("%s", waiting_calls[i].name);
            CHECK_INT(waiting_calls[i].call(&fixture), ==, WEIR_ENODEADLINE);
            CHECK_CONTAINS(weir_why(), "WEIR_DEADLINE");
        }
        WEIR_NO_DEADLINE("the fixture is local") { fixture_close(&fixture); }
    }
    return r;
}

TEST(every_wait_without_a_deadline_is_refused)
{
    CHECK_OK(run_gated(no_deadline, false));
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

/* A task that waits is stopped, if so wanted, and then cancelled. How its call ended. */
static int interrupted(struct fixture *fixture, const struct waiting_call *call, bool stop)
{
    static ATOM(int) result;
    struct attempt attempt = {fixture, call, &result};
    int r;

    atom_store(&result, 1);
    IO_SCOPE(scope, &r)
    {
        CHECK_OK(weir_spawn(scope, attempt_main, &attempt, sizeof attempt));
        CHECK_OK(weir_yield());
        CHECK_INT(atom_load(&result), ==, 1);
        if (stop) {
            weir_scope_stop(scope, 10000);
            CHECK_OK(weir_sleep(1));
            CHECK_INT(atom_load(&result), ==, call->takes_work ? WEIR_ESTOPPING : 1);
        }
        weir_scope_cancel(scope, 0, "enough");
    }
    CHECK_OK(r);
    return atom_load(&result);
}

EACH_CALL_TEST(cancel_ends_every_wait)
{
    CHECK_INT(interrupted(fixture, call, false), ==, WEIR_ECANCELED);
}

EACH_CALL_TEST(stop_ends_only_the_waits_that_take_on_work)
{
    CHECK_INT(interrupted(fixture, call, true), ==,
              call->takes_work ? WEIR_ESTOPPING : WEIR_ECANCELED);
}

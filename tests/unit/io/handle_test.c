/* handle_test.c - handles that are used wrongly end the process with a sentence. */
#include <fcntl.h>
#include <pthread.h>

#include "unit/io/io_test.h"

static int write_closed(void *arg)
{
    weir_conn *a, *b;

    (void)arg;
    CHECK_OK(weir_socketpair(&a, &b));
    weir_conn_close(a);
    return (int)weir_conn_write(a, "x", 1);
}

static int close_twice(void *arg)
{
    weir_conn *a, *b;

    (void)arg;
    CHECK_OK(weir_socketpair(&a, &b));
    weir_conn_close(a);
    weir_conn_close(a);
    return 0;
}

static void *close_conn(void *conn)
{
    weir_conn_close(conn);
    return NULL;
}

static int close_elsewhere(void *arg)
{
    weir_conn *a, *b;
    pthread_t thread;

    (void)arg;
    CHECK_OK(weir_socketpair(&a, &b));
    CHECK_INT(pthread_create(&thread, NULL, close_conn, a), ==, 0);
    CHECK_INT(pthread_join(thread, NULL), ==, 0);
    return 0;
}

static int read_first(void *arg)
{
    char byte;
    return (int)weir_conn_read(*(weir_conn **)arg, &byte, 1);
}

static int accept_first(void *arg)
{
    weir_conn *conn;
    return weir_accept(*(weir_listener **)arg, &conn);
}

/* The task that waits on it is woken by the cancel, and behind this one in the queue. */
static int close_under_a_woken(weir_task_fn waiter, void *handle, void *(*close_it)(void *handle))
{
    int r;

    IO_SCOPE(scope, &r)
    {
        CHECK_OK(weir_spawn(scope, waiter, &handle, sizeof handle));
        CHECK_OK(weir_yield());
        weir_scope_cancel(scope, 0, "wake it");
        (void)close_it(handle);
    }
    return r;
}

static int close_under_a_woken_reader(void *arg)
{
    weir_conn *a, *b;

    (void)arg;
    CHECK_OK(weir_socketpair(&a, &b));
    return close_under_a_woken(read_first, a, close_conn);
}

static void *close_listener(void *listener)
{
    weir_listener_close(listener);
    return NULL;
}

static int close_under_a_woken_acceptor(void *arg)
{
    char address[WEIR_ADDRESS_TEXT_MAX];

    (void)arg;
    return close_under_a_woken(accept_first, io_test_listen(address), close_listener);
}

static void misuse_in_a_task(void *arg)
{
    (void)io_test_run(*(weir_task_fn *)arg);
}

static void check_misuse(weir_task_fn body, const char *sentence)
{
    CHECK_ABORTS(misuse_in_a_task, &body, sentence);
}

TEST(a_handle_is_closed_by_a_worker_when_nobody_uses_it)
{
    check_misuse(close_elsewhere, "weir_conn_close: called on a thread that is not the runtime's");
    check_misuse(close_under_a_woken_reader, "is reading the connection");
    check_misuse(close_under_a_woken_acceptor, "is accepting on it");
}

static int send_closed(void *arg)
{
    weir_udp *udp;
    weir_address to;

    (void)arg;
    CHECK_OK(weir_udp_open("udp:127.0.0.1:0", &udp));
    CHECK_OK(weir_udp_local(udp, &to));
    weir_udp_close(udp);
    return (int)weir_udp_send(udp, &to, "x", 1);
}

static int accept_closed(void *arg)
{
    char address[WEIR_ADDRESS_TEXT_MAX];
    weir_listener *listener = io_test_listen(address);

    (void)arg;
    weir_listener_close(listener);
    return accept_first(&listener);
}

static int read_closed_file(void *arg)
{
    weir_file *file;
    char byte;

    (void)arg;
    CHECK_OK(weir_file_open("/tmp", O_RDONLY, 0, &file));
    CHECK_INT(weir_file_close(file), ==, 0);
    return (int)weir_file_read(file, &byte, 1, 0);
}

TEST(a_handle_that_is_closed_is_told)
{
    check_misuse(send_closed, "weir_udp_send: the socket is closed");
    check_misuse(accept_closed, "weir_accept: the listener is closed");
    check_misuse(read_closed_file, "weir_file_read: the file is closed");
    check_misuse(write_closed, "weir_conn_write: the connection is closed");
    check_misuse(close_twice, "weir_conn_close: the connection is closed");
}

/* ---- Closed while the caller gives way ---- */

static int read_conn(void *conn)
{
    char byte;
    return (int)weir_conn_read(conn, &byte, 1);
}

static int end_conn(void *conn)
{
    weir_conn_close(conn);
    return 0;
}

static int read_late(void *arg)
{
    weir_conn *a, *b;

    (void)arg;
    CHECK_OK(weir_socketpair(&a, &b));
    return io_test_close_before_it_begins(a, read_conn, end_conn);
}

static int accept_on(void *listener)
{
    weir_conn *conn;
    return weir_accept(listener, &conn);
}

static int end_listener(void *listener)
{
    weir_listener_close(listener);
    return 0;
}

static int accept_late(void *arg)
{
    char address[WEIR_ADDRESS_TEXT_MAX];

    (void)arg;
    return io_test_close_before_it_begins(io_test_listen(address), accept_on, end_listener);
}

static int read_file(void *file)
{
    char byte;
    return (int)weir_file_read(file, &byte, 1, 0);
}

static int end_file(void *file)
{
    return weir_file_close(file);
}

static int read_file_late(void *arg)
{
    weir_file *file;

    (void)arg;
    CHECK_OK(weir_file_open("/tmp", O_RDONLY, 0, &file));
    return io_test_close_before_it_begins(file, read_file, end_file);
}

TEST(a_handle_that_is_closed_while_its_caller_gives_way_is_told)
{
    check_misuse(read_late, "weir_conn_read: the connection is closed");
    check_misuse(accept_late, "weir_accept: the listener is closed");
    check_misuse(read_file_late, "weir_file_read: the file is closed");
}

/* Another connection is made where the closed one was: it has its place in the table,
 * its descriptor, and most likely its memory. */
static weir_conn *closed_and_replaced(weir_conn **ret_new)
{
    for (int i = 0; i < 100; i++) {
        weir_conn *a, *b, *new_a, *new_b;
        int fd;

        CHECK_OK(weir_socketpair(&a, &b));
        fd = weir_conn_fd(a);
        weir_conn_close(a);
        CHECK_OK(weir_socketpair(&new_a, &new_b));
        CHECK(new_a != a && new_b != a);
        *ret_new = new_a;
        if (weir_conn_fd(new_a) == fd || weir_conn_fd(new_b) == fd) return a;
        /* Another worker, which is just beginning, was faster. */
        weir_conn_close(b);
        weir_conn_close(new_a);
        weir_conn_close(new_b);
    }
    TEST_FAIL("no descriptor was used again");
}

static int read_replaced(void *arg)
{
    weir_conn *new_conn;
    char byte;
    (void)arg;
    return (int)weir_conn_read(closed_and_replaced(&new_conn), &byte, 1);
}

static int close_replaced(void *arg)
{
    weir_conn *new_conn;
    (void)arg;
    weir_conn_close(closed_and_replaced(&new_conn));
    return 0;
}

static int ask_replaced(void *arg)
{
    weir_conn *new_conn;
    (void)arg;
    return weir_conn_fd(closed_and_replaced(&new_conn));
}

static int send_all_replaced(void *arg)
{
    weir_conn *new_conn;
    (void)arg;
    return weir_conn_send_all(closed_and_replaced(&new_conn), "x", 1, NULL);
}

static void on_ready(weir_conn *conn, int status, void *arg)
{
    (void)conn, (void)status, (void)arg;
}

static int idle_replaced(void *arg)
{
    weir_conn *new_conn;
    int r;

    (void)arg;
    IO_SCOPE(scope, &r)
    {
        return weir_conn_idle(scope, closed_and_replaced(&new_conn),
                              &(weir_idle_spec){.on_ready = on_ready, .idle_ms = 1});
    }
    return r;
}

TEST(a_closed_handle_never_means_what_was_opened_after_it)
{
    check_misuse(read_replaced, "weir_conn_read: the connection is closed");
    check_misuse(close_replaced, "weir_conn_close: the connection is closed");
    check_misuse(ask_replaced, "weir_conn_fd: the connection is closed");
    check_misuse(send_all_replaced, "weir_conn_send_all: the connection is closed");
    check_misuse(idle_replaced, "weir_conn_idle: the connection is closed");
}

/* ---- Another runtime's ---- */

/* Two runtimes of one process: one shows its handles, the other uses one of them. */
struct foreign {
    weir_conn *conn;
    weir_listener *listener;
    weir_udp *udp;
    weir_file *file;
    int (*body)(struct foreign *foreign); /* of the runtime that is started next */
    int (*use)(struct foreign *foreign);
};

static int in_a_deadline(void *arg)
{
    struct foreign *foreign = arg;
    WEIR_DEADLINE(IO_TEST_MS) { return foreign->body(foreign); }
    return WEIR_EREFUSED;
}

static void run_body(struct foreign *foreign, int (*body)(struct foreign *foreign))
{
    foreign->body = body;
    CHECK_OK(
        weir_run(&(weir_config){.workers = 1, .log_level = WEIR_LOG_OFF}, in_a_deadline, foreign));
}

static void *run_another(void *arg)
{
    struct foreign *foreign = arg;
    run_body(foreign, foreign->use);
    return NULL;
}

static int open_handles(struct foreign *foreign)
{
    char address[WEIR_ADDRESS_TEXT_MAX];
    weir_conn *other;

    CHECK_OK(weir_socketpair(&foreign->conn, &other));
    foreign->listener = io_test_listen(address);
    CHECK_OK(weir_udp_open("udp:127.0.0.1:0", &foreign->udp));
    CHECK_OK(weir_file_open("/tmp", O_RDONLY, 0, &foreign->file));
    return 0;
}

static int show_handles(struct foreign *foreign)
{
    pthread_t thread;

    CHECK_OK(open_handles(foreign));
    CHECK_INT(pthread_create(&thread, NULL, run_another, foreign), ==, 0);
    CHECK_INT(pthread_join(thread, NULL), ==, 0);
    return 0;
}

static int use_conn(struct foreign *foreign)
{
    return (int)weir_conn_write(foreign->conn, "x", 1);
}

static int use_listener(struct foreign *foreign)
{
    weir_conn *conn;
    return weir_accept(foreign->listener, &conn);
}

static int use_udp(struct foreign *foreign)
{
    char byte;
    return (int)weir_udp_recv(foreign->udp, &byte, 1, NULL);
}

static int use_file(struct foreign *foreign)
{
    char byte;
    return (int)weir_file_read(foreign->file, &byte, 1, 0);
}

static int close_foreign(struct foreign *foreign)
{
    weir_conn_close(foreign->conn);
    return 0;
}

static void use_while_it_runs(void *arg)
{
    struct foreign foreign = {.use = *(int (**)(struct foreign *))arg};
    run_body(&foreign, show_handles);
}

/* The runtime that made the handle has ended, and with it most likely the memory. */
static void use_after_it_ended(void *arg)
{
    struct foreign foreign = {.use = *(int (**)(struct foreign *))arg};
    run_body(&foreign, open_handles);
    run_body(&foreign, foreign.use);
}

static void check_foreign(int (*use)(struct foreign *foreign), const char *running,
                          const char *ended)
{
    CHECK_ABORTS(use_while_it_runs, &use, running);
    CHECK_ABORTS(use_after_it_ended, &use, ended);
}

TEST(a_handle_of_another_runtime_is_told)
{
    check_foreign(use_conn, "weir_conn_write: the connection belongs to another runtime",
                  "weir_conn_write: the connection is closed");
    check_foreign(use_listener, "weir_accept: the listener belongs to another runtime",
                  "weir_accept: the listener is closed");
    check_foreign(use_udp, "weir_udp_recv: the socket belongs to another runtime",
                  "weir_udp_recv: the socket is closed");
    check_foreign(use_file, "weir_file_read: the file belongs to another runtime",
                  "weir_file_read: the file is closed");
    check_foreign(close_foreign, "weir_conn_close: the connection belongs to another runtime",
                  "weir_conn_close: the connection is closed");
}

/* Anything may stand in a pointer that was never set. */
static int write_garbage(void *arg)
{
    char text[] = "not a connection";
    (void)arg;
    return (int)weir_conn_write((weir_conn *)(void *)text, "x", 1);
}

static int write_to_a_listener(void *arg)
{
    char address[WEIR_ADDRESS_TEXT_MAX];
    (void)arg;
    return (int)weir_conn_write((weir_conn *)(void *)io_test_listen(address), "x", 1);
}

TEST(what_is_no_handle_is_told)
{
    check_misuse(write_garbage, "weir_conn_write: the connection is closed");
    check_misuse(write_to_a_listener, "weir_conn_write: the connection is closed");
}

static int write_null(void *arg)
{
    (void)arg;
    return (int)weir_conn_write(NULL, "x", 1);
}

TEST(a_connection_that_is_null_is_told)
{
    check_misuse(write_null, "weir_conn_write: the connection is NULL");
}

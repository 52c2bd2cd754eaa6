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

/* Woken by the cancel, and behind this task in the queue. */
static int close_under_a_woken_reader(void *arg)
{
    weir_conn *a, *b;
    int r;

    (void)arg;
    CHECK_OK(weir_socketpair(&a, &b));
    IO_SCOPE(scope, &r)
    {
        CHECK_OK(weir_spawn(scope, read_first, &a, sizeof a));
        CHECK_OK(weir_yield());
        weir_scope_cancel(scope, 0, "wake it");
        weir_conn_close(a);
    }
    return r;
}

static int accept_first(void *arg)
{
    weir_conn *conn;
    return weir_accept(*(weir_listener **)arg, &conn);
}

static int close_under_a_woken_acceptor(void *arg)
{
    char address[WEIR_ADDRESS_TEXT_MAX];
    weir_listener *listener = io_test_listen(address);
    int r;

    (void)arg;
    IO_SCOPE(scope, &r)
    {
        CHECK_OK(weir_spawn(scope, accept_first, &listener, sizeof listener));
        CHECK_OK(weir_yield());
        weir_scope_cancel(scope, 0, "wake it");
        weir_listener_close(listener);
    }
    return r;
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
    if (TEST_SANITIZED) TEST_SKIP("the sanitizer tells it first");
    check_misuse(send_closed, "weir_udp_send: the socket is closed");
    check_misuse(accept_closed, "weir_accept: the listener is closed");
    check_misuse(read_closed_file, "weir_file_read: the file is closed");
    check_misuse(write_closed, "weir_conn_write: the connection is closed");
    check_misuse(close_twice, "weir_conn_close: the connection is closed");
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

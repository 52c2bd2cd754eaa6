/* io_test.h - what the tests of this layer share.
 *
 *     IO_TEST(pipe_ends_with_its_writer) { ... return 0; }
 *
 * is a test whose body is the first task of a runtime with test_workers() workers,
 * inside a deadline that is longer than any of them should take.
 */
#ifndef WEIR_TESTS_IO_TEST_H
#define WEIR_TESTS_IO_TEST_H

#include <errno.h>
#include <stdio.h>
#include <unistd.h>
#include <weir/weir.h>

#include "harness/test.h"
#include "rt/task.h"

#define IO_TEST_MS (15000 * test_slower())

static inline int io_test_task(void *arg)
{
    weir_task_fn *body = arg;
    WEIR_DEADLINE(IO_TEST_MS) { return (*body)(NULL); }
    return WEIR_EREFUSED;
}

static inline int io_test_run(weir_task_fn body)
{
    return weir_run(&(weir_config){.workers = test_workers(), .log_level = WEIR_LOG_OFF},
                    io_test_task, &body);
}

#define IO_TEST_WITH(name_, ...)                \
    static int io_body_##name_(void *arg);      \
    TEST_WITH(name_, __VA_ARGS__)               \
    {                                           \
        CHECK_OK(io_test_run(io_body_##name_)); \
    }                                           \
    static int io_body_##name_(__attribute__((unused)) void *arg)

#define IO_TEST(name_) IO_TEST_WITH(name_, .timeout_ms = TEST_TIMEOUT_MS_DEFAULT)

/* A scope of the test: its tasks stay on the worker of the one who spawns them, so
 * that one yield lets each of them run until it waits. */
#define IO_SCOPE(scope_, ret_result, ...)                                        \
    WEIR_SCOPE(scope_, ret_result, .name = "test", .on_failure = WEIR_FAIL_FAST, \
               .max_tasks = 1024, .overflow = WEIR_REJECT, .place = WEIR_PLACE_HERE, __VA_ARGS__)

/* A call that gives way to other tasks before it begins, and a task that closes its handle
 * just then. */
struct io_test_meeting {
    void *handle;
    int (*use)(void *handle);
    int (*close)(void *handle);
};

static inline int io_test_use_late(void *arg)
{
    const struct io_test_meeting *meeting = arg;

    for (int i = 0; i < TASK_BUDGET; i++) CHECK_OK(weir_checkpoint());
    return meeting->use(meeting->handle);
}

static inline int io_test_close_meanwhile(void *arg)
{
    const struct io_test_meeting *meeting = arg;
    return meeting->close(meeting->handle);
}

static inline int io_test_close_before_it_begins(void *handle, int (*use)(void *handle),
                                                 int (*close)(void *handle))
{
    struct io_test_meeting meeting = {handle, use, close};
    int r;

    IO_SCOPE(scope, &r)
    {
        CHECK_OK(weir_spawn(scope, io_test_use_late, &meeting, sizeof meeting));
        CHECK_OK(weir_spawn(scope, io_test_close_meanwhile, &meeting, sizeof meeting));
    }
    return r;
}

/* Skip what needs child processes where there can be none. */
static inline void io_test_needs_processes(void)
{
    if (test_emulated()) TEST_SKIP("the emulator makes no process with a pidfd");
}

/* ... or this program as a child. */
static inline void io_test_needs_helpers(void)
{
    io_test_needs_processes();
    TEST_SKIP_ON_VALGRIND("it does not follow a program that runs itself anew");
}

/* A unix address that is this process's own: tests run side by side. */
static inline const char *io_test_name(const char *what, char address[WEIR_ADDRESS_TEXT_MAX])
{
    (void)snprintf(address, WEIR_ADDRESS_TEXT_MAX, "unix:@weir-test-%s-%d", what, (int)getpid());
    return address;
}

/* A listener on a free port of the loopback, and its address as text. */
static inline weir_listener *io_test_listen(char address[WEIR_ADDRESS_TEXT_MAX])
{
    weir_listener *listener = NULL;
    weir_address bound;

    CHECK_OK(weir_listen(&(weir_listen_spec){.address = "tcp:127.0.0.1:0"}, &listener));
    CHECK_OK(weir_listener_address(listener, &bound));
    weir_address_format(&bound, address, WEIR_ADDRESS_TEXT_MAX);
    return listener;
}

/* Two ends of a TCP connection. */
static inline void io_test_pair(weir_conn **ret_client, weir_conn **ret_server)
{
    char address[WEIR_ADDRESS_TEXT_MAX];
    weir_listener *listener = io_test_listen(address);

    CHECK_OK(weir_connect(address, ret_client));
    CHECK_OK(weir_accept(listener, ret_server));
    weir_listener_close(listener);
}

#endif

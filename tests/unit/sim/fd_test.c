/* fd_test.c - descriptors and pipes of a simulated run. */
#include "rt/runtime.h"
#include "sim/sim.h"
#include "unit/sim/net_test.h"

enum { LIMIT_MS = 60 * 1000, PIPE_BYTES = 200 * 1000 };

/* ---- Numbers ---- */

static int numbers(void *arg)
{
    const struct kernel *kernel = worker_self()->kernel;
    int fds[2], more[2], copy;

    (void)arg;
    IS(kernel->pipe(kernel, fds), 0);
    HOLDS(fds[0] >= SIM_FD_FIRST);
    IS(fds[1], fds[0] + 1);
    copy = kernel->duplicate(kernel, fds[1]);
    IS(copy, fds[1] + 1);
    IS(kernel->close(kernel, fds[0]), 0);
    IS(kernel->close(kernel, fds[0]), -EBADF);
    IS(kernel->set_nonblocking(kernel, fds[0]), -EBADF);
    IS(kernel->set_nonblocking(kernel, copy), 0);
    IS(kernel->pipe(kernel, more), 0);
    IS(more[0], fds[0]); /* the lowest that is free */
    IS(more[1], copy + 1);
    IS(kernel->write(kernel, fds[1], "x", 1), -EPIPE);
    IS(kernel->close(kernel, more[0]), 0);
    IS(kernel->close(kernel, more[1]), 0);
    IS(kernel->close(kernel, fds[1]), 0);
    IS(kernel->write(kernel, copy, "x", 1), -EPIPE);
    IS(kernel->close(kernel, copy), 0);
    return 0;
}

TEST(descriptors_are_the_lowest_free_numbers)
{
    NET_RUNS("numbers", numbers, NULL, 5);
}

static int too_many(void *arg)
{
    const struct kernel *kernel = worker_self()->kernel;
    int count = 0;
    int fd;

    (void)arg;
    while ((fd = kernel->socket(kernel, AF_INET, SOCK_STREAM, 0)) >= 0) count++;
    IS(fd, -EMFILE);
    IS(count, SIM_FDS_MAX);
    for (int i = 0; i < count; i++) IS(kernel->close(kernel, SIM_FD_FIRST + i), 0);
    return 0;
}

TEST(descriptors_have_a_bound)
{
    NET_RUNS("too many", too_many, NULL, 1);
}

/* ---- Pipes ---- */

static int write_pipe(void *arg)
{
    static char data[PIPE_BYTES];
    weir_conn *writer = *(weir_conn **)arg;
    size_t sent = 0;

    net_fill(data, 0, sizeof data);
    /* Pieces of all sizes, whole ones and such that the pipe may cut. */
    for (size_t i = 0; sent < sizeof data; i++) {
        size_t bytes = 1 + (i * 7919) % 9000;

        if (bytes > sizeof data - sent) bytes = sizeof data - sent;
        IS(weir_conn_send_all(writer, data + sent, bytes, NULL), 0);
        sent += bytes;
    }
    weir_conn_close(writer);
    return 0;
}

static int pipe_program(void *arg)
{
    struct seen *seen = arg;
    weir_conn *reader, *writer;
    char data[3000];
    size_t taken = 0;
    ssize_t n = 0;
    int r;

    WEIR_DEADLINE(LIMIT_MS) {
        IS(weir_pipe(&reader, &writer), 0);
        WEIR_SCOPE(scope, &r, .name = "pipe", .on_failure = WEIR_FAIL_FAST, .max_tasks = 1,
                   .overflow = WEIR_REJECT) {
            IS(weir_spawn(scope, write_pipe, &writer, sizeof writer), 0);
            while ((n = weir_conn_read(reader, data, sizeof data)) > 0) {
                net_check(data, taken, (size_t)n);
                taken += (size_t)n;
                if ((size_t)n < sizeof data) seen->broken++; /* short */
            }
        }
        IS(r, 0);
        IS(n, 0);
        IS(taken, PIPE_BYTES);
        weir_conn_close(reader);
    }
    seen->runs++;
    return 0;
}

TEST(pipes_keep_every_byte_in_order)
{
    struct seen *seen = seen_open();
    unsigned long plain;

    NET_RUNS("pipe", pipe_program, seen, 10);
    plain = seen->broken;
    seen->broken = 0;
    NET_RUNS("pipe in pieces", pipe_program, seen, 10, .faults = {.short_io = 3});
    CHECK_INT(seen->broken, >, plain);
    CHECK_INT(seen->runs, >=, 20);
    seen_close(seen);
}

/* ---- Waiting ---- */

static int idle_reader(void *arg)
{
    weir_conn *reader, *writer;
    int64_t began_ns;
    char byte;

    (void)arg;
    WEIR_DEADLINE(LIMIT_MS) {
        IS(weir_pipe(&reader, &writer), 0);
        began_ns = weir_now_ns();
        WEIR_DEADLINE(1234) { IS(weir_conn_read(reader, &byte, 1), WEIR_ETIMEDOUT); }
        IS((weir_now_ns() - began_ns) / 1000000, 1234);
        weir_conn_close(reader);
        IS(weir_conn_write(writer, "x", 1), -EPIPE);
        weir_conn_close(writer);
    }
    return 0;
}

TEST(a_wait_ends_at_its_time)
{
    NET_RUNS("idle", idle_reader, NULL, 5);
}

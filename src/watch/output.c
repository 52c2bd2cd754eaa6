/* output.c - bounded writing. */
#include "watch/output.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>

#include "rt/kernel.h"

int output_write(int fd, const char *data, size_t bytes, int64_t wait_ms)
{
    /* The real table, whatever a runtime runs on: the descriptor is the program's. */
    const struct kernel *kernel = &kernel_epoll;
    int64_t until_ns = kernel->now_ns(kernel) + wait_ms * 1000000;
    size_t done = 0;

    if (fd < 0) return -EBADF; /* which poll would ignore */
    while (done < bytes) {
        struct pollfd poller = {.fd = fd, .events = POLLOUT};
        int64_t left_ns = until_ns - kernel->now_ns(kernel);
        /* What a pipe takes without blocking once it is writable. */
        size_t part = bytes - done < PIPE_BUF ? bytes - done : PIPE_BUF;
        ssize_t n;

        if (left_ns <= 0) return -EAGAIN;
        if (poll(&poller, 1, (int)(left_ns / 1000000) + 1) <= 0) continue;
        n = kernel->write(kernel, fd, data + done, part);
        if (n >= 0) {
            done += (size_t)n;
        } else if (n != -EAGAIN && n != -EINTR) {
            return (int)n;
        }
    }
    return 0;
}

/* search_test.c - how long a worker looks for work before it sleeps. */
#include <errno.h>
#include <unistd.h>

#include "rt/pollable.h"
#include "rt/runtime.h"
#include "unit/rt/support.h"

static const struct wait_kind wait_pipe = {
    .name = "pipe",
    .abort = pollable_abort,
    .describe = pollable_describe,
};

/* A thread that sends back each byte: what a worker waits for that only the kernel can tell. */
static void *send_back(void *arg)
{
    const int *fds = arg;
    char byte;

    while (read(fds[0], &byte, 1) == 1 && write(fds[1], &byte, 1) == 1) {}
    return NULL;
}

static void ask_and_wait(struct pollable *pollable, int in, int out)
{
    char byte = 'x';

    CHECK_INT(write(out, &byte, 1), ==, 1);
    while (read(in, &byte, 1) != 1) {
        CHECK_INT(errno, ==, EAGAIN);
        CHECK_OK(pollable_wait(pollable, READY_IN, &wait_pipe));
    }
}

enum { ASKED_MAX = 100000 };

static void wait_until_it_rests(struct pollable *pollable, int in, int out)
{
    const struct worker *worker = worker_self();
    unsigned passed;
    int asked = 0;

    while (worker->spin_failures < WORKER_SPIN_FAILURES_MAX && asked++ < ASKED_MAX)
        ask_and_wait(pollable, in, out);
    CHECK_INT(worker->spin_failures, ==, WORKER_SPIN_FAILURES_MAX);
    do {
        passed = worker->spins_passed;
        ask_and_wait(pollable, in, out);
    } while (worker->spins_passed >= passed && asked++ < ASKED_MAX);
    CHECK_INT(worker->spins_passed, <, passed); /* it has tried again */
}

static int wait_for_a_thread(void *arg)
{
    const struct kernel *kernel = kernel_current();
    struct pollable *pollable;
    pthread_t thread;
    int there[2], back[2], fds[2];

    (void)arg;
    if (!worker_self()->runtime->spin) return 0; /* fewer cores than workers: it never searches */
    CHECK_OK(pipe(there));
    CHECK_OK(kernel->pipe(kernel, back));
    fds[0] = there[0];
    fds[1] = back[1];
    CHECK_OK(pollable_new(back[0], &pollable));
    CHECK_INT(pthread_create(&thread, NULL, send_back, fds), ==, 0);
    wait_until_it_rests(pollable, back[0], there[1]);
    CHECK_OK(close(there[1]));
    CHECK_INT(pthread_join(thread, NULL), ==, 0);
    pollable_free(pollable, "the test");
    CHECK_OK(close(there[0]));
    for (int i = 0; i < 2; i++) CHECK_OK(kernel->close(kernel, back[i]));
    return 0;
}

TEST(worker_that_waits_for_input_stops_searching_and_tries_again_later)
{
    CHECK_OK(run_on(2, wait_for_a_thread, NULL));
}

/* search_test.c - how long a worker looks for work before it sleeps. */
#include <errno.h>
#include <sched.h>
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

/* A task that keeps its worker, and leaves new ones behind that the other worker has to take. */
static struct worker *searcher;
static ATOM(int) taken;
static ATOM(unsigned) failures_left; /* the fewest that were seen */

static int be_taken(void *arg)
{
    struct worker *worker = worker_self();

    (void)arg;
    if (worker == searcher) {
        sanitize_acquire(&failures_left); /* what the scheduler has of it, tasks share here */
        if (worker->spin_failures < atom_load(&failures_left))
            atom_store(&failures_left, worker->spin_failures);
        /* It tries again at one of the next times: some are when it is woken for the next task. */
        worker->spins_passed = 60 + (unsigned)atom_load(&taken) % 4;
        sanitize_release(&failures_left);
    }
    (void)atom_add(&taken, 1);
    return 0;
}

static int leave_tasks_behind(void *arg)
{
    weir_scope *scope = *(weir_scope **)arg;

    for (int i = 1; i <= 1000 && atom_load(&failures_left) > WORKER_SPIN_FAILURES_MAX - 4; i++) {
        CHECK_OK(weir_spawn(scope, be_taken, NULL, 0));
        while (atom_load(&taken) < i) (void)sched_yield();
    }
    return 0;
}

static int search_for_tasks(void *arg)
{
    struct worker *worker = worker_self();
    int result = 0;

    (void)arg;
    if (!worker->runtime->spin) return 0; /* as above */
    searcher = worker;
    atom_store(&taken, 0);
    atom_store(&failures_left, WORKER_SPIN_FAILURES_MAX);
    WEIR_SCOPE(scope, &result, .name = "left", .on_failure = WEIR_FAIL_FAST, .max_tasks = 4,
               .overflow = WEIR_WAIT) {
        CHECK_OK(weir_spawn(scope, leave_tasks_behind, &scope, sizeof scope));
        /* The other worker takes it, while this one is kept. */
        while (atom_load(&worker->fresh_count) > 0) (void)sched_yield();
        worker->spin_failures = WORKER_SPIN_FAILURES_MAX;
        sanitize_release(&failures_left);
    }
    /* One that found something makes up for four that did not. */
    CHECK_INT(atom_load(&failures_left), <=, WORKER_SPIN_FAILURES_MAX - 4);
    return result;
}

TEST(worker_that_finds_what_it_searches_for_takes_to_searching_again)
{
    CHECK_OK(run_on(2, search_for_tasks, NULL));
}

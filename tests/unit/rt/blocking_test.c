/* blocking_test.c - the executor for calls that block in the kernel. */
#include "rt/blocking.h"

#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>

#include "rt/kernel.h"
#include "rt/runtime.h"
#include "unit/rt/support.h"

/* A call that blocks until the test lets it go. */
struct gate {
    sem_t entered; /* posted by each call that runs */
    sem_t open;    /* waited for by each call */
    ATOM(int) ran;
    ATOM(int) discarded;
    ATOM(int) at_once;
    ATOM(int) at_once_most;
};

struct gated_call {
    struct blocking_call call;
    struct gate *gate;
    int result;
};

static void gate_init(struct gate *gate)
{
    memset(gate, 0, sizeof *gate);
    CHECK_INT(sem_init(&gate->entered, 0, 0), ==, 0);
    CHECK_INT(sem_init(&gate->open, 0, 0), ==, 0);
}

static void run_gated(struct blocking_call *call)
{
    struct gated_call *gated = container_of(call, struct gated_call, call);
    int at_once = atom_add(&gated->gate->at_once, 1) + 1;
    int most = atom_load(&gated->gate->at_once_most);

    while (at_once > most && !atom_cas(&gated->gate->at_once_most, &most, at_once)) {}
    CHECK_INT(weir_worker_index(), ==, -1); /* on a thread of the executor */
    sem_post(&gated->gate->entered);
    while (sem_wait(&gated->gate->open) != 0) CHECK_INT(errno, ==, EINTR);
    (void)atom_sub(&gated->gate->at_once, 1);
    (void)atom_add(&gated->gate->ran, 1);
    gated->result = 42;
}

static void discard_gated(struct blocking_call *call)
{
    struct gated_call *gated = container_of(call, struct gated_call, call);

    (void)atom_add(&gated->gate->discarded, 1);
    free(gated);
}

struct work {
    struct blocking *executor;
    struct gate *gate;
    bool must_run;
    int wanted;
};

static int make_call(void *arg)
{
    struct work *work = arg;
    struct gated_call *gated = calloc(1, sizeof *gated);
    int r;

    gated->call.name = "gate";
    gated->call.run = run_gated;
    gated->call.discard = discard_gated;
    gated->gate = work->gate;
    r = blocking_run(work->executor, &gated->call, work->must_run);
    CHECK_INT(r, ==, work->wanted);
    if (r == 0) {
        CHECK_INT(gated->result, ==, 42);
        discard_gated(&gated->call);
    }
    return r;
}

static void open_executor(struct blocking *executor, int threads_max, size_t queue_max)
{
    blocking_init(executor, "test", kernel_current(), threads_max, queue_max);
}

static void await_entered(struct gate *gate)
{
    while (sem_trywait(&gate->entered) != 0) CHECK_OK(weir_yield());
}

static void await_queued(struct blocking *executor, size_t count)
{
    size_t queued;

    do {
        CHECK_OK(weir_yield());
        lock_acquire(&executor->lock);
        queued = executor->queue_count;
        lock_release(&executor->lock);
    } while (queued != count);
}

static int bounds(void *arg)
{
    static struct blocking executor; /* not on a stack: other workers use it */
    struct gate gate;
    weir_scope *scope = open_scope("bounds", WEIR_FAIL_FAST);
    weir_scope *rejected = open_scope("rejected", WEIR_COLLECT);
    struct work work = {&executor, &gate, false, 0};
    struct work overload = {&executor, &gate, false, WEIR_EOVERLOAD};

    (void)arg;
    gate_init(&gate);
    open_executor(&executor, 2, 3);
    for (int i = 0; i < 5; i++) {
        CHECK_OK(weir_spawn(scope, make_call, &work, sizeof work));
        if (i < 2) await_entered(&gate);
    }
    await_queued(&executor, 3);
    CHECK_OK(weir_spawn(rejected, make_call, &overload, sizeof overload));
    CHECK_INT(weir_scope_close(rejected), ==, WEIR_EOVERLOAD);
    CHECK_INT(executor.rejected_total, ==, 1);
    CHECK_INT(atom_load(&gate.discarded), ==, 1); /* the call is not the caller's any more */
    for (int i = 0; i < 5; i++) sem_post(&gate.open);
    CHECK_OK(weir_scope_close(scope));
    CHECK_INT(atom_load(&gate.ran), ==, 5);
    CHECK_INT(atom_load(&gate.at_once_most), ==, 2);
    CHECK_INT(atom_load(&gate.discarded), ==, 6);
    CHECK_INT(blocking_deinit(&executor, 10000), ==, 0);
    return 0;
}

TEST(executor_keeps_its_threads_and_queue_within_their_bounds)
{
    CHECK_OK(run_on(1, bounds, NULL));
    CHECK_OK(run_on(2, bounds, NULL));
}

/* Threads that are made at once and begin late, as on a machine that is busy. */
static sem_t may_begin;

struct late_thread {
    void *(*fn)(void *arg);
    void *arg;
};

static void *begin_late(void *arg)
{
    struct late_thread thread = *(struct late_thread *)arg;

    free(arg);
    while (sem_wait(&may_begin) != 0) CHECK_INT(errno, ==, EINTR);
    return thread.fn(thread.arg);
}

static int start_late(const struct kernel *kernel, pthread_t *ret_thread, void *(*fn)(void *arg),
                      void *arg)
{
    struct late_thread *thread = malloc(sizeof *thread);

    (void)kernel;
    CHECK(thread != NULL);
    *thread = (struct late_thread){fn, arg};
    return kernel_current()->thread_start(kernel_current(), ret_thread, begin_late, thread);
}

/* A call that a thread is about to take does not count as queued. */
static int calls_before_threads(void *arg)
{
    enum { THREADS = 8, QUEUE = 1 };
    static struct blocking executor; /* not on a stack: other workers use it */
    struct kernel kernel = *kernel_current();
    struct gate gate;
    weir_scope *scope = open_scope("accepted", WEIR_FAIL_FAST);
    weir_scope *rejected = open_scope("rejected", WEIR_COLLECT);
    struct work work = {&executor, &gate, false, 0};
    struct work overload = {&executor, &gate, false, WEIR_EOVERLOAD};

    (void)arg;
    gate_init(&gate);
    CHECK_INT(sem_init(&may_begin, 0, 0), ==, 0);
    kernel.thread_start = start_late;
    blocking_init(&executor, "test", &kernel, THREADS, QUEUE);
    for (int i = 0; i < THREADS + QUEUE; i++)
        CHECK_OK(weir_spawn(scope, make_call, &work, sizeof work));
    await_queued(&executor, THREADS + QUEUE);
    CHECK_OK(weir_spawn(rejected, make_call, &overload, sizeof overload));
    CHECK_INT(weir_scope_close(rejected), ==, WEIR_EOVERLOAD);
    for (int i = 0; i < THREADS; i++) sem_post(&may_begin);
    for (int i = 0; i < THREADS; i++) await_entered(&gate);
    await_queued(&executor, QUEUE);
    for (int i = 0; i < THREADS + QUEUE; i++) sem_post(&gate.open);
    CHECK_OK(weir_scope_close(scope));
    CHECK_INT(atom_load(&gate.at_once_most), ==, THREADS);
    CHECK_INT(executor.rejected_total, ==, 1);
    CHECK_INT(blocking_deinit(&executor, 10000), ==, 0);
    return 0;
}

TEST(calls_are_not_rejected_while_threads_are_about_to_take_them)
{
    CHECK_OK(run_on(1, calls_before_threads, NULL));
    CHECK_OK(run_on(2, calls_before_threads, NULL));
}

static int cancel_calls(void *arg)
{
    static struct blocking executor; /* not on a stack: other workers use it */
    struct gate gate;
    weir_scope *scope = open_scope("cancelled", WEIR_FAIL_FAST);
    struct work work = {&executor, &gate, false, WEIR_ECANCELED};

    (void)arg;
    gate_init(&gate);
    open_executor(&executor, 1, 10);
    CHECK_OK(weir_spawn(scope, make_call, &work, sizeof work));
    await_entered(&gate);
    for (int i = 0; i < 3; i++) CHECK_OK(weir_spawn(scope, make_call, &work, sizeof work));
    await_queued(&executor, 3);
    weir_scope_cancel(scope, 0, "does not wait for what blocks");
    CHECK_OK(weir_scope_close(scope));
    /* Those in the queue never happen; the one that runs is an orphan. */
    CHECK_INT(executor.queue_count, ==, 0);
    CHECK_INT(executor.orphan_count, ==, 1);
    CHECK_INT(executor.orphans_total, ==, 1);
    CHECK_INT(atom_load(&gate.discarded), ==, 3);
    sem_post(&gate.open);
    CHECK_INT(blocking_deinit(&executor, 10000), ==, 0);
    CHECK_INT(atom_load(&gate.discarded), ==, 4);
    CHECK_INT(atom_load(&gate.ran), ==, 1);
    return 0;
}

TEST(cancel_removes_queued_calls_and_orphans_the_running_one)
{
    CHECK_OK(run_on(1, cancel_calls, NULL));
    CHECK_OK(run_on(2, cancel_calls, NULL));
}

static int run_in_any_case(void *arg)
{
    static struct blocking executor; /* not on a stack: other workers use it */
    struct gate gate;
    weir_scope *scope = open_scope("must run", WEIR_COLLECT);
    struct work work = {&executor, &gate, true, WEIR_ECANCELED};
    struct work overload = {&executor, &gate, true, WEIR_EOVERLOAD};

    (void)arg;
    gate_init(&gate);
    open_executor(&executor, 2, 10);
    CHECK_OK(weir_spawn(scope, make_call, &work, sizeof work));
    await_entered(&gate);
    /* Taken by a thread already, or not yet: it runs. */
    CHECK_OK(weir_spawn(scope, make_call, &work, sizeof work));
    CHECK_OK(weir_yield());
    weir_scope_cancel(scope, 0, "it runs all the same");
    CHECK_INT(weir_scope_close(scope), ==, 0);
    await_entered(&gate);
    CHECK_INT(blocking_orphan_count(&executor), ==, 2);
    /* The queue has room, but the threads are stuck. */
    CHECK_INT(make_call(&overload), ==, WEIR_EOVERLOAD);
    sem_post(&gate.open);
    sem_post(&gate.open);
    CHECK_INT(blocking_deinit(&executor, 10000), ==, 0);
    CHECK_INT(atom_load(&gate.ran), ==, 2);
    CHECK_INT(atom_load(&gate.discarded), ==, 3);
    return 0;
}

TEST(call_that_must_run_runs_without_its_caller_and_never_queues)
{
    CHECK_OK(run_on(1, run_in_any_case, NULL));
}

static int without_threads(void *arg)
{
    static struct blocking executor; /* not on a stack: other workers use it */
    struct gate gate;
    struct work work = {&executor, &gate, false, -EAGAIN};

    (void)arg;
    gate_init(&gate);
    open_executor(&executor, 2, 10);
    test_fault("thread_start", -EAGAIN, 1);
    CHECK_INT(make_call(&work), ==, -EAGAIN);
    CHECK_INT(atom_load(&gate.discarded), ==, 1);
    work.wanted = 0;
    sem_post(&gate.open);
    CHECK_OK(make_call(&work));
    CHECK_INT(blocking_deinit(&executor, 10000), ==, 0);
    return 0;
}

TEST(call_without_a_thread_is_the_callers_error)
{
    test_kernel_install();
    CHECK_OK(run_on(1, without_threads, NULL));
}

static int leave_one_stuck(void *arg)
{
    static struct blocking executor; /* outlives the call that is stuck in it */
    static struct gate gate;
    weir_scope *scope = open_scope("stuck", WEIR_FAIL_FAST);
    struct work work = {&executor, &gate, false, WEIR_ECANCELED};

    (void)arg;
    gate_init(&gate);
    open_executor(&executor, 1, 10);
    CHECK_OK(weir_spawn(scope, make_call, &work, sizeof work));
    await_entered(&gate);
    weir_scope_cancel(scope, 0, "it is stuck");
    CHECK_OK(weir_scope_close(scope));
    CHECK_INT(executor.orphan_count, ==, 1);
    CHECK_INT(blocking_deinit(&executor, 10), ==, 1);
    sem_post(&gate.open);
    CHECK_INT(blocking_deinit(&executor, 10000), ==, 0);
    return 0;
}

TEST(end_of_the_executor_says_how_many_calls_are_stuck)
{
    CHECK_OK(run_on(1, leave_one_stuck, NULL));
}

/* Calls end at the moment their callers are cancelled: each call is discarded once. */
static int race_with_cancel(void *arg)
{
    int rounds = *(int *)arg;

    for (int i = 0; i < rounds && (i == 0 || !test_late()); i++) {
        struct blocking executor;
        struct gate gate;
        weir_scope *scope = open_scope("race", WEIR_COLLECT);
        int made = 0;

        gate_init(&gate);
        open_executor(&executor, 2, 16);
        for (int n = 0; n < 8; n++) sem_post(&gate.open);
        for (; made < 8; made++) {
            struct gated_call *gated = calloc(1, sizeof *gated);
            int r = 0;

            gated->call.name = "race";
            gated->call.run = run_gated;
            gated->call.discard = discard_gated;
            gated->gate = &gate;
            WEIR_DEADLINE(made % 2) r = blocking_run(&executor, &gated->call, false);
            if (r == 0) discard_gated(&gated->call);
            CHECK(r == 0 || r == WEIR_ETIMEDOUT);
        }
        CHECK_OK(weir_scope_close(scope));
        CHECK_INT(blocking_deinit(&executor, 10000), ==, 0);
        CHECK_INT(atom_load(&gate.discarded), ==, 8);
    }
    return 0;
}

TEST(call_is_discarded_exactly_once_when_it_ends_while_it_is_cancelled)
{
    int rounds = TEST_SLOW ? 10 : 50;

    CHECK_OK(run_on(1, race_with_cancel, &rounds));
}

/* blocking.c - threads for calls that block in the kernel. */
#include "rt/blocking.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

#include "base/planted.h"
#include "rt/kernel.h"
#include "rt/runtime.h"
#include "rt/task.h"

/* What was cancelled ends soon, or not at all: a disk that hangs. */
#define CANCEL_NS INT64_C(1000000000)

void blocking_init(struct blocking *executor, const char *name, const struct kernel *kernel,
                   int threads_max, size_t queue_max)
{
    sanitize_unseen_begin(); /* a task may make it, and another worker use it first */
    *executor = (struct blocking){
        .name = name, .kernel = kernel, .threads_max = threads_max, .queue_max = queue_max};
    list_init(&executor->queue);
    list_init(&executor->running);
    list_init(&executor->orphans);
    sanitize_unseen_end();
    lock_init(&executor->lock);
    bell_init(&executor->work, kernel);
    bell_init(&executor->ended, kernel);
}

static void deliver_done(struct worker *worker, struct mail *mail)
{
    struct blocking_call *call = container_of(mail, struct blocking_call, mail);
    (void)worker;
    sanitize_acquire(call);
    task_wake(call->caller, 0);
}

/* The caller has gone on, the call is in no list; the lock is held. */
static void become_orphan(struct blocking *executor, struct blocking_call *call)
{
    call->state = BLOCKING_ORPHAN;
    list_add_tail(&executor->orphans, &call->node);
    executor->orphan_count++;
    executor->orphans_total++;
}

/* Run one call; the lock is held on entry and on return. */
static void run_one(struct blocking *executor, struct blocking_call *call) LOCK_UNCHECKED;
static void run_one(struct blocking *executor, struct blocking_call *call)
{
    list_remove(&call->node);
    executor->queue_count--;
    executor->busy_count++;
    if (call->caller) {
        call->state = BLOCKING_RUNNING;
        list_add_tail(&executor->running, &call->node);
    } else {
        become_orphan(executor, call);
    }
    lock_release(&executor->lock);

    sanitize_acquire(call);
    call->run(call);

    lock_acquire(&executor->lock);
    executor->busy_count--;
    list_remove(&call->node);
    if (call->state == BLOCKING_ORPHAN) {
        executor->orphan_count--;
        lock_release(&executor->lock);
        sanitize_acquire(call); /* its caller has looked at it when it went on */
        call->discard(call);
        lock_acquire(&executor->lock);
    } else {
        /* After the post the call is its caller's: it may be gone at once. */
        call->state = BLOCKING_DONE;
        sanitize_release(call);
        mail_post(call->worker, &call->mail);
    }
}

static void *thread_main(void *arg)
{
    struct blocking *executor = arg;

    lock_acquire(&executor->lock);
    for (;;) {
        struct list *first = list_first(&executor->queue);
        if (first) {
            run_one(executor, container_of(first, struct blocking_call, node));
        } else if (executor->closing) {
            break;
        } else {
            executor->idle_count++;
            if (PLANTED(BELL_MISSED)) {
                lock_release(&executor->lock);
                lock_acquire(&executor->lock);
            }
            (void)bell_wait(&executor->work, &executor->lock, BELL_FOR_EVER);
            executor->idle_count--;
        }
    }
    executor->left_count++;
    bell_ring(&executor->ended);
    lock_release(&executor->lock);
    return NULL;
}

size_t blocking_orphan_count(struct blocking *executor)
{
    size_t count;
    lock_acquire(&executor->lock);
    count = executor->orphan_count;
    lock_release(&executor->lock);
    return count;
}

int blocking_deinit(struct blocking *executor, int64_t wait_ms)
{
    int64_t until_ns = bell_after_ms(&executor->ended, wait_ms);
    int stuck;

    lock_acquire(&executor->lock);
    executor->closing = true;
    bell_ring_all(&executor->work);
    while (executor->left_count < executor->thread_count) {
        if (bell_wait(&executor->ended, &executor->lock, until_ns) == -ETIMEDOUT) break;
    }
    stuck = executor->thread_count - executor->left_count;
    lock_release(&executor->lock);
    if (stuck > 0) return stuck;
    for (int i = 0; i < executor->thread_count; i++) {
        (void)executor->kernel->thread_join(executor->kernel, executor->threads[i]);
    }
    bell_deinit(&executor->work);
    bell_deinit(&executor->ended);
    lock_deinit(&executor->lock);
    return 0;
}

/* Put the call in the queue, with one more thread if none is free. The lock is
 * held. */
static int submit(struct blocking *executor, struct blocking_call *call)
{
    size_t free_threads = (size_t)(executor->thread_count - executor->busy_count);
    bool want_thread =
        free_threads <= executor->queue_count && executor->thread_count < executor->threads_max;
    size_t queue_max;
    int r;

    if (want_thread) {
        r = executor->kernel->thread_start(
            executor->kernel, &executor->threads[executor->thread_count], thread_main, executor);
        if (r == 0) {
            executor->thread_count++;
            free_threads++;
        } else if (executor->thread_count == 0) {
            return r;
        }
    }
    /* What a free thread is about to take does not wait. A call that must run never waits
     * in the queue: the threads may all be stuck, and it could not be taken back. */
    queue_max = call->must_run ? 0 : executor->queue_max;
    if (executor->queue_count >= queue_max + free_threads) {
        executor->rejected_total++;
        return WEIR_EOVERLOAD;
    }
    call->state = BLOCKING_QUEUED;
    list_add_tail(&executor->queue, &call->node);
    executor->queue_count++;
    bell_ring(&executor->work);
    return 0;
}

/* ---- By completion ---- */

static void deliver_completed(struct worker *worker, struct blocking_call *call)
{
    struct blocking *executor = call->executor;
    bool orphan;

    worker->completions--;
    lock_acquire(&executor->lock);
    list_remove(&call->node);
    executor->completion_count--;
    orphan = call->state == BLOCKING_ORPHAN;
    if (orphan) executor->orphan_count--;
    call->state = BLOCKING_DONE;
    lock_release(&executor->lock);
    sanitize_acquire(call);
    call->take(call);
    if (orphan) {
        call->discard(call);
    } else {
        task_wake(call->caller, 0);
    }
}

/* The kernel could not: by a thread, then. False: nobody waits for it, or no thread can. */
static bool hand_over(struct blocking *executor, struct blocking_call *call)
{
    int r;

    lock_acquire(&executor->lock);
    if (call->state == BLOCKING_ORPHAN) {
        lock_release(&executor->lock);
        return false;
    }
    list_remove(&call->node);
    call->by_completion = false;
    sanitize_release(call);
    r = submit(executor, call);
    if (r == 0) {
        executor->completion_count--;
        call->worker->completions--;
    } else {
        call->op->result = r;
        call->state = BLOCKING_RUNNING;
        list_add_tail(&executor->running, &call->node);
    }
    lock_release(&executor->lock);
    return r == 0;
}

static void op_done(struct kernel_file_op *op)
{
    struct blocking_call *call = op->arg;

    if (op->result == -ENOSYS && hand_over(call->executor, call)) return;
    deliver_completed(call->worker, call);
}

/* 0: under way; 1: done already; -ENOSYS: not without a thread. */
static int submit_op(struct blocking *executor, struct blocking_call *call)
{
    struct worker *worker = call->worker;
    size_t completions_max = executor->queue_max + (size_t)executor->threads_max;
    int r;

    if (!call->op || !worker->kernel->queue_submit) return -ENOSYS;
    if (executor->completion_count >= completions_max) {
        executor->rejected_total++;
        return WEIR_EOVERLOAD;
    }
    call->op->done = op_done;
    call->op->arg = call;
    r = worker->kernel->queue_submit(worker->queue, call->op);
    if (r != 0) return r;
    call->by_completion = true;
    call->state = BLOCKING_RUNNING;
    list_add_tail(&executor->running, &call->node);
    executor->completion_count++;
    worker->completions++;
    return 0;
}

/* Take back what the kernel has not seen; the lock is held. */
static bool withdraw_op(struct blocking *executor, struct blocking_call *call)
{
    struct worker *worker = call->worker;

    if (!worker->kernel->queue_withdraw(worker->queue, call->op)) return false;
    list_remove(&call->node);
    executor->completion_count--;
    worker->completions--;
    return true;
}

size_t blocking_drain(struct worker *worker, int64_t wait_ms)
{
    const struct kernel *kernel = worker->kernel;
    /* Not the runtime's clock, which a test may have stopped: the kernel really works. */
    int64_t now_ns = kernel->thread_now_ns(kernel);
    int64_t until_ns = time_after_ms(now_ns, wait_ms);
    bool cancelled = false;

    while (worker->completions > 0) {
        if (now_ns >= until_ns) {
            if (cancelled) break;
            kernel->queue_cancel_all(worker->queue);
            cancelled = true;
            until_ns = now_ns + CANCEL_NS;
        }
        (void)kernel->queue_wait(worker->queue, until_ns - now_ns, worker->events, WORKER_EVENTS);
        now_ns = kernel->thread_now_ns(kernel);
    }
    return worker->completions;
}

/* ---- The caller ---- */

/* True: the caller goes on; the call was removed, or has become an orphan. */
static bool call_abort(struct task *task, void *object)
{
    struct blocking_call *call = object;
    struct blocking *executor = call->executor;
    enum blocking_state state;
    bool removed;

    (void)task;
    lock_acquire(&executor->lock);
    state = call->state;
    removed = state == BLOCKING_QUEUED && !call->must_run;
    if (removed) {
        list_remove(&call->node);
        executor->queue_count--;
    } else if (call->by_completion && state == BLOCKING_RUNNING && withdraw_op(executor, call)) {
        removed = true;
    } else if (state == BLOCKING_QUEUED) {
        call->caller = NULL; /* the thread that is free for it makes it an orphan */
    } else if (state == BLOCKING_RUNNING) {
        call->caller = NULL;
        list_remove(&call->node);
        become_orphan(executor, call);
    }
    sanitize_release(call);
    lock_release(&executor->lock);
    if (removed) {
        sanitize_acquire(call);
        call->discard(call);
    }
    return state != BLOCKING_DONE;
}

static void call_describe(const void *object, char *text, size_t bytes)
{
    const struct blocking_call *call = object;
    (void)snprintf(text, bytes, "%s %s", call->name, call->detail);
}

static const struct wait_kind wait_call = {
    .name = "blocking call",
    .abort = call_abort,
    .describe = call_describe,
    .what = WAIT_FOR_THREAD,
};

int blocking_run(struct blocking *executor, struct blocking_call *take_call, bool must_run)
{
    struct worker *worker = worker_self();
    struct task *self = atom_load(&worker->current);
    int r;

    take_call->kernel = executor->kernel;
    take_call->executor = executor;
    take_call->since_ns = worker->now_ns;
    take_call->caller = self;
    take_call->worker = worker;
    take_call->mail.deliver = deliver_done;
    take_call->must_run = must_run;
    take_call->by_completion = false;
    sanitize_release(take_call);
    lock_acquire(&executor->lock);
    /* The one place that decides: by completion, or by a thread (see also hand_over). */
    r = submit_op(executor, take_call);
    if (r == -ENOSYS) r = submit(executor, take_call);
    lock_release(&executor->lock);
    if (r == 1) {
        take_call->take(take_call);
        return 0;
    }
    if (r < 0) {
        take_call->discard(take_call);
        return r;
    }
    return task_park(self, &wait_call, take_call);
}

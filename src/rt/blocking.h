/* blocking.h - a bounded executor for calls that block in the kernel.
 *
 * A call that the worker's queue can make by completion needs no thread; all the rest of
 * its life is the same, with the kernel in the place of the thread. A call is QUEUED
 * there until the kernel has seen it.
 *
 *     QUEUED ──a thread takes it──▶ RUNNING ──returns──▶ DONE ──mail──▶ caller goes on
 *        │ caller is cancelled         │ caller is cancelled
 *        ▼                             ▼
 *     removed: it never happens     ORPHAN: the caller goes on; the thread calls
 *                                   `discard` when the call returns
 *     (a call that must run is not removed: the thread that is free for it takes it as
 *     an orphan)
 *
 * Owner: the runtime; lifetime: the runtime's. Backpressure: threads_max threads,
 * queue_max calls waiting, more are rejected with WEIR_EOVERLOAD. Failure: the
 * call's result goes to its caller. By completion at most threads_max + queue_max are
 * under way. Orphans are bounded by threads_max (each keeps a thread) and by that; the
 * dump shows them and shutdown reports them.
 *
 * Invariant: a call touches only memory of its own (struct blocking_call and what
 * it owns), never the caller's stack or buffers, so that the caller may go on.
 */
#ifndef WEIR_RT_BLOCKING_H
#define WEIR_RT_BLOCKING_H

#include <pthread.h>
#include <stdint.h>

#include "base/list.h"
#include "rt/bell.h"
#include "rt/kernel.h"
#include "rt/lock.h"
#include "rt/mail.h"

struct task;
struct wait_kind;

enum { BLOCKING_THREADS_LIMIT = 64, BLOCKING_DETAIL_BYTES = 64 };

enum blocking_state { BLOCKING_QUEUED, BLOCKING_RUNNING, BLOCKING_DONE, BLOCKING_ORPHAN };

struct blocking;

struct blocking_call {
    /* Said by the caller. */
    const char *name;                            /* "fsync"; a constant */
    char detail[BLOCKING_DETAIL_BYTES];          /* what it is about, for the dump */
    void (*run)(struct blocking_call *call);     /* on a thread of the executor */
    void (*discard)(struct blocking_call *call); /* free it and what it produced; any thread */
    /* NULL: only a thread can make it. Else `take` reads its results, on the worker, before
     * the caller goes on or `discard` is called. */
    struct kernel_file_op *op;
    void (*take)(struct blocking_call *call);

    /* The executor's own. */
    const struct kernel *kernel;
    struct blocking *executor;
    struct list node;
    enum blocking_state state;
    bool must_run;
    int64_t since_ns;
    struct task *caller; /* NULL: has gone on */
    struct worker *worker;
    bool by_completion;
    struct mail mail;
};

struct blocking {
    const char *name;
    const struct kernel *kernel;
    struct lock lock;
    struct bell work;  /* there is a call, or it is closing */
    struct bell ended; /* a thread has left */
    struct list queue;
    struct list running;
    struct list orphans;
    size_t queue_count;
    size_t queue_max;
    size_t completion_count; /* calls under way without a thread, orphans included */
    size_t orphan_count;
    uint64_t orphans_total;
    uint64_t rejected_total;
    int threads_max;
    int thread_count;
    int idle_count; /* threads that wait for a call */
    int busy_count; /* threads that run one, orphans included */
    int left_count;
    bool closing;
    pthread_t threads[BLOCKING_THREADS_LIMIT];
};

void blocking_init(struct blocking *executor, const char *name, const struct kernel *kernel,
                   int threads_max, size_t queue_max);

/* End the threads: waits for calls that run, at most wait_ms. Returns how many are
 * still stuck after that; their memory is then left alone for good. */
int blocking_deinit(struct blocking *executor, int64_t wait_ms);

/* On a worker's own thread, after its last task: let the calls that are under way by
 * completion end, at most wait_ms, then cancel them. Returns how many are still stuck
 * after that: the kernel goes on using their memory, and the queue, for good. */
size_t blocking_drain(struct worker *worker, int64_t wait_ms);

/* Calls that run on although their callers have gone on. Any thread. */
size_t blocking_orphan_count(struct blocking *executor);

/* Run the call and wait for it. 0: it is done, the caller reads its results from
 * `call` and calls discard. Any error (WEIR_EOVERLOAD, WEIR_ECANCELED,
 * WEIR_ETIMEDOUT, -EAGAIN: no thread): the call is not the caller's any more.
 * `must_run`: once it was taken it runs, whatever becomes of its caller; it is taken only
 * if a thread is free for it (else WEIR_EOVERLOAD, or no thread: -EAGAIN), so that it
 * never stands behind threads that are stuck. The caller has called task_enter. */
int blocking_run(struct blocking *executor, struct blocking_call *take_call, bool must_run);

#endif

/* pool.h - what a pool is inside.
 *
 * Its lock covers everything that is not said to be a worker's own, and is always taken,
 * since the pool's threads are not workers. Held for a few lines, never while a job runs.
 *
 * A job goes from its caller's desk to a thread and back: a desk is what a worker has of a
 * pool. Done jobs are taken back by the worker itself, as many as there are at a time, and
 * it does what is left to do for them: results, figures, memory.
 *
 * Invariants: a job is in its class's queue, or runs, or is in its desk's `done`, or is an
 * orphan; `busy` counts jobs that run, orphans included; a desk with done jobs has its mail
 * posted, or its timer armed (`watched`); while there is mail nobody else takes them;
 * the pool's memory is freed by the last that uses it (pool_is_over): its scope, a caller,
 * or a thread that was stuck when the scope ended.
 */
#ifndef WEIR_FLOW_POOL_H
#define WEIR_FLOW_POOL_H

#include <pthread.h>
#include <weir/pool.h>

#include "flow/object.h"
#include "rt/bell.h"
#include "rt/timer.h"
#include "watch/metrics.h"

/*   WAITING ──room in its queue──▶ QUEUED ──a thread──▶ RUNNING ──▶ DONE
 *      └──────── cancelled: removed ───┘                   └──cancelled──▶ ORPHAN      */
enum pool_job_state { JOB_WAITING, JOB_QUEUED, JOB_RUNNING, JOB_DONE, JOB_ORPHAN };

enum { POOL_INLINE_BYTES = 128, POOL_CACHE_LINE = 64 };

struct pool;
struct pool_desk;

/* Two lines of it, up to the first bytes of the data, go from core to core with a short job. */
struct pool_job {
    struct list node;
    weir_pool_fn fn;
    void *data;        /* inline_data, or behind the job */
    int64_t queued_ns; /* when it was handed over, ... */
    int64_t begun_ns;  /* ... a thread took it, ... */
    int64_t ended_ns;  /* ... and was done */
    int result;
    uint8_t class_index;
    uint8_t state;   /* enum pool_job_state */
    ATOM(bool) told; /* the caller has been cancelled */
    unsigned char inline_data[POOL_INLINE_BYTES] __attribute__((aligned(16)));
    struct pool_desk *desk;
    struct task *caller;
    void *caller_data; /* what it left in the data goes there, ... */
    size_t bytes;
    int *caller_result;       /* ... and its result there */
    bool *caller_orphan;      /* ... or that it runs on without its caller; may be NULL */
    struct trace_node *trace; /* in which it runs; its own */
    struct timer grace;       /* on the caller's worker, while it waits although it is cancelled */
};

/* What a worker has of a pool. */
struct pool_desk {
    struct pool *pool;
    struct worker *worker;
    struct mail mail;  /* there are done jobs */
    struct timer look; /* the worker looks for done jobs itself, if nobody wakes it before */
    struct list done;  /* jobs that it has not taken back, ... */
    size_t done_count; /* ... so many */
    size_t callers;    /* its tasks inside weir_pool_run */
    bool posted;       /* the mail is under way */
    bool watched;      /* `look` is armed: threads may leave done jobs without a word */
    bool brief;        /* its own: the last jobs were short */
    int free_count;    /* its own: jobs that nobody uses */
    struct pool_job *free_jobs;
} __attribute__((aligned(POOL_CACHE_LINE)));

struct pool_class {
    struct pool *pool;
    struct metered metered;
    weir_pool_class spec;
    struct list queue;
    struct list waiting; /* jobs for which the queue has no room yet (WEIR_WAIT) */
    uint64_t pass;       /* of stride scheduling: the class with the smallest goes next */
    size_t queued, queued_max, running;
    uint64_t finished, rejected, removed, orphaned;
};

struct pool_thread {
    struct pool *pool;
    pthread_t thread;
    bool started;
    bool left;
};

struct pool {
    struct belonging belonging;
    void *handle;
    char name[FLOW_NAME_BYTES];
    const struct kernel *kernel;
    weir_runtime *runtime;
    struct metered metered;
    struct mail mail; /* the last thread has left */
    struct timer close_timer;
    bool released; /* its scope wants it to end */
    bool settled;  /* nothing but late mail of the scope keeps it from being let go */

    struct lock lock __attribute__((aligned(POOL_CACHE_LINE)));
    ATOM(size_t) queued; /* in all classes; threads that look for work read it without the lock */
    uint64_t pass;       /* of the class that was served last */
    size_t class_count;
    int thread_count, busy;
    int sleeping; /* threads that wait for `work` */
    int coming;   /* threads that were woken or started, and have not looked for a job yet */
    int looking;  /* threads that look for work without sleeping: at most one */
    int threads_max;
    int64_t run_ns; /* how long jobs take, lately */
    size_t callers; /* tasks that are inside weir_pool_run */
    bool closing;
    bool spin;     /* looking is worth it: there are cores for it */
    bool given_up; /* threads were stuck at the end */
    bool gone;     /* its scope has let it go */
    struct pool_class classes[WEIR_POOL_CLASSES_MAX] __attribute__((aligned(POOL_CACHE_LINE)));
    enum weir_overflow overflow;
    enum weir_on_close on_close;
    int threads_min, threads_limit;
    int64_t idle_ms, cancel_ms, close_ms;
    size_t orphan_count;
    struct bell work;
    unsigned wakes; /* of sleeping threads, not yet taken by one */
    void *memory;   /* what to free: the pool begins in it, with a cache line */
    unsigned desk_count;
    struct pool_desk *desks;     /* one for each worker of the runtime; behind the pool */
    struct pool_thread *threads; /* threads_limit of them; behind the desks */
};

/* ---- pool_threads.c ---- */

/* Which job the calling thread runs, from now on; returns what it was. For a simulator. */
struct pool_job *pool_thread_swap(struct pool_job *job);

/* There is one more job: wake a thread for it, or start one; or, if `patient`, leave it to
 * those that are awake, if they can be expected to come to it before another would: the
 * caller calls pool_want_threads a little later if they do not. The lock is held.
 * 1: pool_signal is next, with or without the lock, on which the thread is going to wait.
 * -EAGAIN: there is none and none can be had. */
int pool_want_thread(struct pool *pool, bool patient);
void pool_signal(struct pool *pool);
/* As many as there are jobs. The lock is held. */
void pool_want_threads(struct pool *pool);
/* All that sleep look at what there is. The lock is held. */
void pool_wake_all(struct pool *pool);
/* The lock is held: does nobody use the pool any more? Then the caller frees it. */
static inline bool pool_is_over(const struct pool *pool)
{
    return pool->gone && pool->callers == 0 && pool->thread_count == 0;
}
void pool_free(struct pool *pool);
/* Join threads that have left; they are at their last instructions. The lock is held. */
void pool_join(struct pool *pool);
/* Put the job into its class's queue: pool_want_thread is next. The lock is held. */
void pool_enqueue(struct pool *pool, struct pool_job *job);
/* Take it out of whatever list it is in before it runs. The lock is held. */
void pool_remove(struct pool *pool, struct pool_job *job);

/* ---- pool_job.c ---- */

/* weir_pool_run for who has to know, after a cancel, whether the job runs on: then *ret_orphan is
 * true, and what the data points to is still used by its thread. May be NULL. */
WEIR_MUST_USE WEIR_NO_PARK_EXCLUDED int pool_run(weir_pool *handle, unsigned class_index,
                                                 weir_pool_fn fn, void *data, size_t bytes,
                                                 bool *ret_orphan);

void pool_desk_init(struct pool_desk *desk, struct pool *pool, struct worker *worker);
void pool_desk_deinit(struct pool_desk *desk);
/* The job is done: give it back. The lock is held. True: the desk's mail is to be posted,
 * with or without the lock. */
bool pool_give_back(struct pool *pool, struct pool_job *job);

#endif

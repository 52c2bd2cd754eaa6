/* pool.h - what a pool is inside.
 *
 * Its lock covers everything, and is always taken, since the pool's threads are not workers.
 * Held for a few lines, never while a job runs.
 *
 * Invariants: a job is in its class's queue, or in `running`, or in `orphans`, or it is its
 * caller's; `busy` counts jobs that run, orphans included; the pool's memory is freed by
 * the last that uses it (pool_is_over): its scope, a caller that has not gone on yet, or a
 * thread that was stuck when the scope ended.
 */
#ifndef WEIR_FLOW_POOL_H
#define WEIR_FLOW_POOL_H

#include <pthread.h>
#include <weir/pool.h>

#include "flow/object.h"
#include "rt/timer.h"
#include "watch/metrics.h"

/*   WAITING ──room in its queue──▶ QUEUED ──a thread──▶ RUNNING ──▶ DONE
 *      └──────── cancelled: removed ───┘                   └──cancelled──▶ ORPHAN      */
enum pool_job_state { JOB_WAITING, JOB_QUEUED, JOB_RUNNING, JOB_DONE, JOB_ORPHAN };

enum { POOL_INLINE_BYTES = 128 };

struct pool;

struct pool_job {
    struct list node;
    struct pool *pool;
    unsigned class_index;
    enum pool_job_state state;
    ATOM(bool) told; /* the caller has been cancelled */
    weir_pool_fn fn;
    int result;
    struct task *caller; /* NULL: has gone on */
    struct worker *worker;
    struct mail mail;
    struct timer grace; /* on the caller's worker, while it waits although it is cancelled */
    int64_t queued_ns;  /* when it was handed over, and then ... */
    int64_t begun_ns;   /* ... when a thread took it; 0: its class is not measured */
    size_t bytes;
    void *data; /* inline_data, or behind the job */
    unsigned char inline_data[POOL_INLINE_BYTES] __attribute__((aligned(16)));
};

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

    struct lock lock; /* shared with threads that are not workers: always taken */
    pthread_cond_t work;
    struct pool_class classes[WEIR_POOL_CLASSES_MAX];
    size_t class_count;
    uint64_t pass; /* of the class that was served last */
    enum weir_overflow overflow;
    enum weir_on_close on_close;
    int threads_min, threads_max, threads_limit;
    int64_t idle_ms, cancel_ms, close_ms;
    int thread_count, idle_count, busy;
    size_t queued; /* in all classes */
    struct list running;
    struct list orphans;
    size_t orphan_count;
    size_t callers; /* tasks that are inside weir_pool_run */
    bool closing;
    bool given_up; /* threads were stuck at the end */
    bool gone;     /* its scope has let it go */
    struct pool_job *free_jobs;
    unsigned free_job_count;
    struct pool_thread *threads; /* threads_limit of them */
};

/* The lock is held. What happens in libc orders nothing: see rt/sanitize.h. */
static inline void pool_wake_one(struct pool *pool)
{
    sanitize_unordered_begin();
    (void)pthread_cond_signal(&pool->work);
    sanitize_unordered_end();
}

static inline void pool_wake_all(struct pool *pool)
{
    sanitize_unordered_begin();
    (void)pthread_cond_broadcast(&pool->work);
    sanitize_unordered_end();
}

/* ---- pool_threads.c ---- */

/* There is one more job: wake a thread for it, or start one. The lock is held.
 * -EAGAIN: there is none and none can be had. */
int pool_want_thread(struct pool *pool);
/* The lock is held. */
void pool_job_free_locked(struct pool *pool, struct pool_job *job);
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

#endif

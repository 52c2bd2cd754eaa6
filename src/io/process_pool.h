/* process_pool.h - a pool of helper processes inside.
 *
 *     pool:    OPEN ──close──▶ DRAINING ──closer is cancelled──▶ DISCARDING
 *                ├──close, or its scope is cancelled or ends────▶ │
 *                └──too many failures──▶ FAILED ────────close───▶ ┘
 *     helper:  STARTING ──hello──▶ BUSY ◀──▶ IDLE
 *                  └──────────────────┴──────────┴──▶ DOOMED ──its process has ended──▶ freed
 *
 * There is no task of the pool's own: each caller starts, talks to and judges the helper
 * that it has. A helper is in `idle`, or one caller has it, or it is DOOMED and only its
 * process's end is awaited. A caller that finds neither an idle helper nor room for one
 * more waits in `queue`, and is given the one or the other by whoever makes it free.
 *
 * Invariants: `helper_count` counts helpers from the permit to start one to the end of its
 * process, so helpers_max bounds processes, also dying ones; `process` of a helper is set
 * under the lock and cleared under it before the process's memory goes; the pool's memory
 * goes on its worker, when it was dismissed (by close or by the end of its scope), no
 * caller is inside and no helper is left.
 * Locks: the pool's is taken before the runtime's process_lock.
 */
#ifndef WEIR_IO_PROCESS_POOL_H
#define WEIR_IO_PROCESS_POOL_H

#include <weir/process_pool.h>

#include "io/conn.h"
#include "io/process.h"

enum pool_state { POOL_OPEN, POOL_DRAINING, POOL_FAILED, POOL_DISCARDING };

enum helper_state { HELPER_STARTING, HELPER_BUSY, HELPER_IDLE, HELPER_DOOMED };

struct helper {
    struct list node; /* in pool->helpers */
    struct list idle; /* in pool->idle, the most recent first */
    weir_process_pool *pool;
    enum helper_state state;
    weir_process *process; /* NULL: not yet, or it has ended */
    pid_t pid;
    weir_conn *conn;        /* the handle */
    weir_conn *conn_object; /* what it names */
    bool has_caller;
    bool ended;
    struct task *awaiting; /* the caller, until it has ended */
    struct process_result result;
    uint64_t jobs;
    int64_t idle_since_ns;
};

/* A caller that waits for a helper; on its stack. */
struct pool_wait {
    struct list node;
    weir_process_pool *pool;
    struct task *task;
    bool waiting;
    struct helper *helper; /* NULL: permission to start one */
    int error;
};

struct weir_process_pool {
    struct io_head head;
    struct belonging belonging;
    char name[PROCESS_NAME_BYTES];
    weir_process_pool_spec spec; /* its strings are copies */
    char *strings;               /* ... in here */
    weir_scope *scope;
    struct timer idle_timer;
    struct mail mail; /* it may be over: look, on its worker */

    /* ---- covered by the lock ---- */
    struct lock lock;
    enum pool_state state;
    bool mail_posted;
    bool dismissed;
    struct list helpers;
    struct list idle;
    struct list queue; /* struct pool_wait */
    int helper_count;
    size_t callers;      /* inside of run */
    struct task *closer; /* waits until nobody is inside and no helper is left */
    uint64_t next_id;
    char why[160]; /* it has failed */
    weir_process_pool_stats stats;
    int failure_count; /* in the ring */
    int failure_head;
    int64_t failures_ns[]; /* ring of max_restarts */
};

static inline void pool_lock(weir_process_pool *pool)
    LOCK_ACQUIRES(pool->lock, weir_no_park) LOCK_UNCHECKED
{
    lock_acquire_if(&pool->lock, pool->head.runtime->shared);
}

static inline void pool_unlock(weir_process_pool *pool)
    LOCK_RELEASES(pool->lock, weir_no_park) LOCK_UNCHECKED
{
    lock_release_if(&pool->lock, pool->head.runtime->shared);
}

/* ---- process_pool.c: who gets which helper ---- */

/* What went wrong with a helper. */
enum helper_fault { FAULT_CRASH, FAULT_OVERTIME, FAULT_NONSENSE, FAULT_START };

/* End the helper, at once with SIGKILL or with its grace. */
void pool_doom(struct helper *helper, bool at_once);

/* Count a fault; too many of them are the end of the pool. */
void pool_blame(weir_process_pool *pool, enum helper_fault fault, const char *what);

/* Wait until the process of a doomed helper has ended, and `result` says how. Suspends. */
int pool_await_end(struct helper *helper, struct task *self);

/* For process_hook: its process has ended. */
void pool_helper_ended(weir_process *process, const struct process_result *result, void *arg);

/* ---- process_pool_open.c: its spec ---- */

int pool_check_spec(const weir_process_pool_spec *spec);

/* A pool of a checked spec that belongs to nobody yet. */
int pool_new(weir_scope *scope, const weir_process_pool_spec *spec, weir_process_pool **ret_pool);

/* ---- process_pool_job.c: what is said to it. ---- */

/* Start the helper's process and exchange hellos; on failure it is doomed and blamed. */
int helper_start(struct helper *helper, struct task *self);

struct job {
    const void *in;
    size_t in_bytes;
    void *out;
    size_t out_bytes;
    weir_job_result result;
    bool begun; /* a helper has it */
};
/* Send the job, read the answer; on failure it is doomed and blamed. */
int helper_run(struct helper *helper, struct task *self, struct job *job);

/* weir_process_pool_run for who has to know, after a failure, whether a helper may have begun. */
WEIR_MUST_USE WEIR_NO_PARK_EXCLUDED int process_pool_run(weir_process_pool *handle, const void *in,
                                                         size_t in_bytes, void *out,
                                                         size_t out_bytes,
                                                         weir_job_result *ret_result,
                                                         bool *ret_begun);

#endif

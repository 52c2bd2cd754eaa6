/* worker.h - run jobs of a store: lease, heartbeat, execute, settle, drain.
 *
 *     static int welcome(void *deps, weir_job job, weir_job_outcome *outcome);
 *     r = weir_worker_open(scope, &(weir_worker_spec){.name = "mailer-1", .store = store,
 *                          .queue = "mail",
 *                          .handlers = (weir_handler[]){{"welcome", 1, 1, welcome}},
 *                          .handler_count = 1, .concurrency = 16, .executor = WEIR_ON_TASKS,
 *                          .lease_ms = 30000, .drain_ms = 10000, .keep_deps = &deps}, &worker);
 *
 * Each job is run by its kind's handler: in a task, on a thread of a pool, or in a helper process.
 * While it runs its lease is renewed every third of lease_ms; a job that was cancelled, whose time
 * is up or whose lease is lost has its task cancelled. A thread of a pool is told (weir_pool_told):
 * if it goes on after cancel_ms of the pool, the job is left to it and its lease to run out. A
 * helper process is killed. No deadline is in force in a handler: it says its own for I/O.
 * What the handler says is settled together with the jobs it wants to follow, in one commit; many
 * that end at once are one commit. What cannot be settled now (no space, no room for a job that
 * follows) is tried again until the lease ends, then the job is lost, which is logged. A handler
 * that crashes takes the process with it, unless it is in a helper: the lease runs out, and that
 * attempt counts. A crash of a helper is a failed attempt of the class "crashed", and one that
 * takes longer than job_ms of its pool of "overtime".
 *
 * Owner: a scope. Lifetime: until closed, or the scope ends. Backpressure: `concurrency` jobs at
 * once, no more are leased; their memory is allocated by open. Failure: a job's failure is settled
 * (retry policy, dead letters); when the store has stopped or is closed, or the pool is, the worker
 * ends with that. Stop (of the scope, weir_worker_stop, an order to end, the end of the scope) is a
 * drain: no more jobs are leased, those that run have drain_ms to end; then they are cancelled. A
 * cancelled handler that fails, with whatever error, has its job released: the attempt does not
 * count. One that has succeeded all the same, or says WEIR_CLASS_DEAD or _SNOOZE, has its way. When
 * the scope is cancelled the same is done without a drain, and for WEIR_WORKER_RELEASE_MS at most;
 * what is not settled by then is lost when its lease ends.
 * Threads: tasks of the runtime.
 */
#ifndef WEIR_WORKER_H
#define WEIR_WORKER_H

#include <weir/defs.h>
#include <weir/error.h>
#include <weir/jobs.h>
#include <weir/pool.h>
#include <weir/process_pool.h>

WEIR_BEGIN

typedef struct weir_worker weir_worker;

/* What became of a job, in the words of its handler. */
enum weir_job_class {
    WEIR_CLASS_BY_RETURN = 0, /* 0 or more: ok; negative: retry */
    WEIR_CLASS_OK,
    WEIR_CLASS_RETRY,    /* failed: again as its policy says */
    WEIR_CLASS_RETRY_AT, /* failed: again in delay_ms, if it has attempts left */
    WEIR_CLASS_DEAD,     /* failed for good */
    WEIR_CLASS_SNOOZE,   /* not now: again in delay_ms, and this was no attempt */
};

#define WEIR_OUTCOME_TEXT_BYTES 256

/* What a handler may say beside its return value; zeroed before, but for `result`. */
typedef struct weir_job_outcome {
    enum weir_job_class as;
    int64_t delay_ms;
    void *result; /* room for result_bytes_max of the worker's spec */
    size_t result_bytes;
    char error_class[64]; /* default: the name of the return value, as "WEIR_ETIMEDOUT" */
    char error_message[WEIR_OUTCOME_TEXT_BYTES];
    const weir_job_spec *then; /* what weir_outcome_then has put here */
    size_t then_count;
    void *memory_;
} weir_job_outcome;

/* weir_outcome_then(outcome, &spec) - one more job that is enqueued if and only if this one is
 * acknowledged; all that the spec points to is copied. If it is refused (its queue is full, the
 * spec contradicts itself) nothing is acknowledged: what may pass is tried again until the lease
 * ends, else the attempt has failed with that. Errors: -ENOMEM, WEIR_EOVERLOAD (more than 16),
 * WEIR_EREFUSED (in a helper process: its answer has no room for jobs). Never suspends. In the
 * handler, also on a thread of a pool. */
WEIR_API WEIR_MUST_USE int weir_outcome_then_sized(weir_job_outcome *outcome, size_t spec_bytes,
                                                   const weir_job_spec *spec);
#define weir_outcome_then(outcome, ...) \
    weir_outcome_then_sized((outcome), sizeof(weir_job_spec), __VA_ARGS__)

/* What runs a job. The bundle of dependencies by reference, the job by value; the bytes that it
 * points to are valid for the call. On a thread of a pool the bundle must be valid until the pool
 * ends: a job that was left to its thread still uses it. */
typedef int (*weir_handler_fn)(void *keep_deps, weir_job job, weir_job_outcome *outcome);

typedef struct weir_handler {
    const char *kind;
    uint32_t version_min;
    uint32_t version_max; /* 0 counts as version_min */
    weir_handler_fn fn;   /* NULL with WEIR_ON_PROCESSES */
} weir_handler;

enum weir_job_executor {
    WEIR_EXECUTOR_UNSET = 0,
    WEIR_ON_TASKS,     /* I/O-bound: a task for each job; the handler may suspend */
    WEIR_ON_POOL,      /* CPU-bound or blocking: a thread of spec.pool */
    WEIR_ON_PROCESSES, /* may crash, leak or hang: a helper of spec.processes, whose program calls
                          weir_worker_helper */
};

/* name, store, queue, handlers, concurrency, executor, lease_ms and drain_ms must be said. */
typedef struct weir_worker_spec {
    const char *name;             /* copied, at most 31 bytes; one of its own for each worker */
    weir_store *store;            /* outlives the worker, or that ends with WEIR_ECLOSED */
    const char *queue;            /* copied */
    const weir_handler *handlers; /* copied; to WEIR_WORKER_HANDLERS_MAX */
    size_t handler_count;
    int concurrency; /* to WEIR_WORKER_CONCURRENCY_MAX */
    enum weir_job_executor executor;
    weir_pool *pool;              /* with WEIR_ON_POOL; outlives the worker */
    unsigned pool_class;          /* likewise */
    weir_process_pool *processes; /* with WEIR_ON_PROCESSES; outlives the worker */
    int64_t lease_ms;
    int64_t drain_ms; /* of a stop */
    void *keep_deps;
    size_t result_bytes_max;         /* of outcome.result; default 4096. out_bytes_max of a process
                                        pool has room for it and WEIR_WORKER_ANSWER_BYTES */
    size_t stack_bytes;              /* of tasks that run handlers; default: the scope's */
    enum weir_durability durability; /* of leases; default: the store's, as of settlements */
} weir_worker_spec;
#define WEIR_WORKER_HANDLERS_MAX 256
#define WEIR_WORKER_CONCURRENCY_MAX 10000
#define WEIR_WORKER_RELEASE_MS 5000
#define WEIR_WORKER_ANSWER_BYTES 344  /* what an answer of a helper has beside the result */
#define WEIR_WORKER_REQUEST_BYTES 736 /* what a job has beside its payload, at most */

/* weir_worker_spec_init - set every member to "not said". */
static inline void weir_worker_spec_init(weir_worker_spec *spec)
{
    memset(spec, 0, sizeof *spec);
}

/* weir_worker_open(scope, &spec, &worker) - it begins at once. Suspends only while the scope is
 * full. Cancel: nothing moved. Errors: WEIR_EREFUSED (weir_why), WEIR_ECANCELED, WEIR_EOVERLOAD
 * (the scope or the runtime is full), -ENOMEM, -ENFILE. */
WEIR_SUSPENDS int weir_worker_open_sized(weir_scope *scope, size_t spec_bytes,
                                         const weir_worker_spec *spec, weir_worker **ret_worker);
#define weir_worker_open(scope, ...) \
    weir_worker_open_sized((scope), sizeof(weir_worker_spec), __VA_ARGS__)

/* weir_worker_stop - drain, as above. Never suspends. */
WEIR_API void weir_worker_stop(weir_worker *worker);
/* weir_worker_wait - until it has ended: 0, or why. Cancel: nothing moved. Not in a handler of its
 * own (WEIR_EREFUSED). */
WEIR_SUSPENDS int weir_worker_wait(weir_worker *worker);
/* weir_worker_close - stop, wait, free. Cancel: not cut short, but then drain_ms is over.
 * Takes NULL. Returns as weir_worker_wait; a failure is then not the scope's. Not in a handler of
 * its own. */
WEIR_SUSPENDS int weir_worker_close(weir_worker *take_worker);

typedef struct weir_worker_figures {
    int running;
    uint64_t leased; /* each of which runs, is being settled, or is one of these: */
    uint64_t ok, retried, dead, snoozed, released, lost, cancelled;
    uint64_t settle_failures; /* of the lost ones: they had ended, and were not settled */
    bool quiet;               /* it was told so */
    bool ended;
} weir_worker_figures;

/* weir_worker_figures_of - the figures now. Never suspends. */
WEIR_API void weir_worker_figures_of(weir_worker *worker, weir_worker_figures *ret_figures);

/* weir_worker_helper - call it first in main of a program that is a helper of a process pool for
 * workers: serves jobs with these handlers and ends the process; else it returns at once. A job has
 * no token there. Threads: main, before there are others. */
WEIR_API void weir_worker_helper(int argc, char **argv, const weir_handler *handlers,
                                 size_t handler_count, void *keep_deps);

WEIR_END

#endif

/* process_pool.h - jobs in helper processes: work that may crash, leak or hang.
 *
 * A job is bytes in, bytes out and a number, made by a function in another process: this
 * very program run again, or any program that speaks the protocol
 * (docs/formats/process-pool.md). A helper that crashes, hangs, exits or talks nonsense is
 * one failed job, and is replaced by a new one when a job needs it.
 *
 *     static int checksum(void *arg, const void *in, size_t in_bytes, void *out,
 *                         size_t out_bytes_max, size_t *ret_out_bytes);
 *     int main(int argc, char **argv)
 *     {
 *         weir_process_pool_helper(argc, argv, checksum, NULL);
 *         return weir_run(NULL, program, NULL) < 0;
 *     }
 *
 * Owner: a scope. Lifetime: until weir_process_pool_close or the end of its scope.
 * Backpressure: helpers_max, queue_max and `overflow`; the runtime's processes_max counts
 * helpers, too. Failure: a job's failure goes to its caller; more than max_restarts failed
 * helpers within window_ms are the end of the pool: jobs that wait and all later ones get
 * WEIR_ECLOSED with the reason (a helper that cannot be started because something is scarce
 * is not counted). At close `on_close` says what becomes of jobs.
 *
 * Threads: any task of the runtime, on any worker, but weir_process_pool_helper.
 */
#ifndef WEIR_PROCESS_POOL_H
#define WEIR_PROCESS_POOL_H

#include <weir/defs.h>
#include <weir/error.h>

WEIR_BEGIN

#define WEIR_PROCESS_POOL_HELPERS_MAX 1024
#define WEIR_PROCESS_POOL_JOB_BYTES_MAX (1024 * 1024 * 1024)
#define WEIR_PROCESS_POOL_IDLE_MS_DEFAULT 30000
#define WEIR_PROCESS_POOL_START_MS_DEFAULT 10000
#define WEIR_PROCESS_POOL_GRACE_MS_DEFAULT 1000
#define WEIR_PROCESS_POOL_RESTARTS_MAX 1000

/* The argument by which a helper knows what it is, and the descriptor it talks on. */
#define WEIR_PROCESS_POOL_HELPER "weir-process-pool-helper"
#define WEIR_PROCESS_POOL_HELPER_FD 3

typedef struct weir_process_pool weir_process_pool;

/* What a helper does with a job. The result goes to the caller as it is, together with the
 * first *ret_out_bytes of `out`; negative numbers are the job's own failure, not the
 * helper's. Runs in the helper, on its main thread, without a runtime: it may block. */
typedef int (*weir_job_fn)(void *arg, const void *in, size_t in_bytes, void *out,
                           size_t out_bytes_max, size_t *ret_out_bytes);

/* weir_process_pool_helper - call it first in main. In a helper it serves jobs with
 * fn(arg, ...) until its pool has gone, and ends the process; else it returns at once.
 * Threads: main, before there are others. */
WEIR_API void weir_process_pool_helper(int argc, char **argv, weir_job_fn fn, void *arg);

typedef struct weir_process_pool_spec {
    const char *name;    /* must be said; copied, at most 31 bytes */
    const char *program; /* default: this program, which calls weir_process_pool_helper */
    const char *const
        *arguments;              /* of `program`; of this program: after WEIR_PROCESS_POOL_HELPER */
    int helpers_max;             /* must be said */
    int helpers_min;             /* started by open, and kept when idle; default none */
    size_t in_bytes_max;         /* of a job; must be said */
    size_t out_bytes_max;        /* of its answer; must be said */
    size_t queue_max;            /* jobs that wait for a helper; must be said with WEIR_REJECT,
                                     and must not with WEIR_WAIT: then their tasks are the bound */
    enum weir_overflow overflow; /* must be said: WEIR_REJECT or WEIR_WAIT */
    int64_t job_ms;    /* the time a job may take; must be said. Then its helper is killed */
    int max_restarts;  /* must be said: helpers that may fail ... */
    int64_t window_ms; /* ... within this time; must be said */
    enum weir_on_close on_close; /* must be said: WEIR_DRAIN or WEIR_DISCARD */
    uint64_t memory_bytes;       /* limit of each helper's address space; default none */
    uint64_t jobs_per_helper;    /* a helper that has done so many is replaced; default no limit */
    int64_t idle_ms;             /* an idle one beyond helpers_min ends after it;
                                     WEIR_PROCESS_POOL_IDLE_MS_DEFAULT, WEIR_FOREVER: never */
    int64_t start_ms;            /* for a helper to say hello; WEIR_PROCESS_POOL_START_MS_DEFAULT */
    int64_t grace_ms; /* of a helper that is asked to end; WEIR_PROCESS_POOL_GRACE_MS_DEFAULT */
} weir_process_pool_spec;

/* weir_process_pool_spec_init - set every member to "not said". */
static inline void weir_process_pool_spec_init(weir_process_pool_spec *spec)
{
    memset(spec, 0, sizeof *spec);
}

/* weir_process_pool_open(scope, &spec, &pool) - a pool that belongs to `scope`; starts
 * helpers_min helpers. Suspends and needs a deadline. Cancel: nothing is left.
 * Errors: WEIR_EREFUSED; those of weir_process_start; WEIR_EEXIT, WEIR_EOVERTIME or
 * WEIR_EPROTOCOL of a helper that does not say hello. */
WEIR_SUSPENDS int weir_process_pool_open_sized(weir_scope *scope, size_t spec_bytes,
                                               const weir_process_pool_spec *spec,
                                               weir_process_pool **ret_pool);
#define weir_process_pool_open(scope, ...) \
    weir_process_pool_open_sized((scope), sizeof(weir_process_pool_spec), __VA_ARGS__)

typedef struct weir_job_result {
    int value;        /* what the job's function returned */
    size_t out_bytes; /* how many bytes of `out` are its answer */
} weir_job_result;

/* weir_process_pool_run - have `in` worked on by a helper; its answer, of at most
 * out_bytes (and the pool's out_bytes_max), goes to `out`. Suspends and needs a deadline.
 * Cancel: a job that waits for a helper is removed: nothing moved. Of a job that runs the
 * helper is killed: outcome unknown. After any error `out` may have been written to.
 * Errors: WEIR_EEXIT (the helper crashed or exited), WEIR_EOVERTIME (job_ms),
 * WEIR_EPROTOCOL (nonsense), each with a sentence; WEIR_EOVERLOAD (queue_max),
 * WEIR_ECLOSED (the pool is closed or has failed), WEIR_EREFUSED (in_bytes), -ENOMEM, and
 * those of weir_process_start for a job that needed a new helper. */
WEIR_SUSPENDS int weir_process_pool_run(weir_process_pool *pool, const void *in, size_t in_bytes,
                                        void *out, size_t out_bytes, weir_job_result *ret_result);

typedef struct weir_process_pool_stats {
    int helpers; /* alive, those that start or end included */
    int idle;
    size_t queued;
    uint64_t jobs_done;     /* with an answer */
    uint64_t jobs_failed;   /* by their helper's failure */
    uint64_t jobs_rejected; /* WEIR_EOVERLOAD */
    uint64_t jobs_cancelled;
    uint64_t helpers_started;
    uint64_t helpers_crashed; /* ended by themselves */
    uint64_t helpers_overtime;
    uint64_t helpers_nonsense;
    uint64_t helpers_retired; /* idle, or after jobs_per_helper */
    bool failed;              /* too many failures: it takes no jobs any more */
} weir_process_pool_stats;

/* weir_process_pool_stats_get - figures of now. Never suspends. */
WEIR_API void weir_process_pool_stats_get(weir_process_pool *pool,
                                          weir_process_pool_stats *ret_stats);

/* weir_process_pool_close - take no more jobs; drain: finish those that run and wait;
 * discard: they get WEIR_ECLOSED. Then end the helpers, and free the pool when they are
 * gone. Takes NULL. Suspends; needs no deadline. Cancel: not cut short, but draining
 * becomes discarding. */
WEIR_SUSPENDS int weir_process_pool_close(weir_process_pool *take_pool);

WEIR_END

#endif

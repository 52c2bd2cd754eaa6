/* pool.h - threads for work that would hold a worker: computation, and calls that block.
 *
 * A task hands a function and a small struct to the pool and waits for its result. The
 * struct is copied in, the function works on the copy on a thread of the pool, and it is
 * copied back when the function has returned. So nothing of the caller is touched while it
 * may be gone. Jobs are of a class; each class has a queue of its own, a weight, and a limit,
 * so that bulk work cannot starve work that somebody waits for.
 *
 *     QUEUED ──a thread takes it──▶ RUNNING ──returns──▶ the caller goes on
 *        │ the caller is cancelled     │ the caller is cancelled: the job is told
 *        ▼                             ▼ (weir_pool_told) and awaited for cancel_ms;
 *     removed, it never happens     after that it is an orphan: counted, shown, and its
 *                                   result is thrown away
 *
 * Owner: a scope. Lifetime: until the scope ends, which waits for what runs. Backpressure:
 * threads_max, and for each class its queue and the pool's overflow. Failure: the result of
 * a job goes to its caller; at the end of the scope queued jobs are done or discarded.
 *
 * Cancel: nothing moved if the job was queued; outcome unknown if it was running.
 * Threads: tasks of the runtime, on any worker.
 */
#ifndef WEIR_POOL_H
#define WEIR_POOL_H

#include <weir/chan.h>
#include <weir/defs.h>
#include <weir/error.h>

WEIR_BEGIN

typedef struct weir_pool weir_pool;

#define WEIR_POOL_THREADS_MAX 256
#define WEIR_POOL_CLASSES_MAX 8
#define WEIR_POOL_DATA_BYTES_MAX (64 * 1024)
#define WEIR_POOL_IDLE_MS_DEFAULT 10000
#define WEIR_POOL_CLOSE_MS_DEFAULT 10000

/* What a thread of the pool runs. It is not a task: it may block and compute, and calls of
 * weir that suspend answer WEIR_ENOTASK. Its result goes to the caller of weir_pool_run. */
typedef int (*weir_pool_fn)(void *data);

/* A class of work. All but the last two must be said. */
typedef struct weir_pool_class {
    const char *name;   /* kept by pointer: a string constant */
    unsigned weight;    /* 1 to 1000: its share of the threads while all classes have work */
    size_t queue_max;   /* jobs of it that wait for a thread */
    int running_max;    /* jobs of it that run at one time; default: the pool's threads_max */
    int64_t latency_ms; /* how long a job should wait at most; shown beside what is measured */
} weir_pool_class;

/* name, threads_max, overflow, on_close and at least one class must be said. */
typedef struct weir_pool_spec {
    const char *name; /* copied, at most 31 bytes */
    int threads_max;
    enum weir_overflow overflow; /* of each class: WEIR_WAIT or WEIR_REJECT */
    enum weir_on_close on_close; /* of queued jobs when the scope ends */
    const weir_pool_class *classes;
    size_t class_count;
    int threads_min;   /* kept when there is nothing to do; default 0 */
    int threads_limit; /* weir_pool_resize may go up to this; default: threads_max */
    int64_t idle_ms;   /* a thread beyond threads_min ends after that without work;
                           WEIR_POOL_IDLE_MS_DEFAULT */
    int64_t cancel_ms; /* how long a cancelled caller waits for a job that runs; default: not
                           at all, it is an orphan at once */
    int64_t close_ms;  /* how long the end of the scope waits for jobs that run;
                           WEIR_POOL_CLOSE_MS_DEFAULT. Threads that are stuck after that are
                           logged and left alone */
} weir_pool_spec;

/* weir_pool_spec_init - set every member to "not said". */
static inline void weir_pool_spec_init(weir_pool_spec *spec)
{
    memset(spec, 0, sizeof *spec);
}

/* weir_pool_open(scope, &spec, &pool) - threads are started when there is work. Errors:
 * WEIR_EREFUSED (weir_why), WEIR_ECANCELED (the scope is), WEIR_ENOTASK, -ENOMEM, -ENFILE.
 * Never suspends. */
WEIR_API WEIR_MUST_USE int weir_pool_open_sized(weir_scope *scope, size_t spec_bytes,
                                                const weir_pool_spec *spec, weir_pool **ret_pool);
#define weir_pool_open(scope, ...) \
    weir_pool_open_sized((scope), sizeof(weir_pool_spec), __VA_ARGS__)

/* weir_pool_run - run `fn(copy of data)` as a job of the class (an index into the spec's) and
 * return its result; what it left in the copy is then in `data`. Errors of its own:
 * WEIR_EOVERLOAD (the class's queue is full), WEIR_ECLOSED (the scope has ended before it
 * ran), -EAGAIN (no thread can be started), -ENOMEM, WEIR_EREFUSED, WEIR_ECANCELED,
 * WEIR_ETIMEDOUT, WEIR_ENOTASK. */
WEIR_SUSPENDS int weir_pool_run(weir_pool *pool, unsigned class_index, weir_pool_fn fn, void *data,
                                size_t bytes);

/* weir_pool_told - in a job: whether its caller has been cancelled, so that the work is not
 * wanted any more. False elsewhere. Never suspends. Any thread. */
WEIR_API bool weir_pool_told(void);

/* weir_pool_resize - another threads_max, from threads_min (at least 1) to threads_limit.
 * Threads that run jobs end after those. Errors: WEIR_EREFUSED. Never suspends. */
WEIR_API WEIR_MUST_USE int weir_pool_resize(weir_pool *pool, int threads_max);

/* What a class of a pool has seen. */
typedef struct weir_pool_figures {
    size_t queued, queued_max, running;
    uint64_t finished, rejected, removed, orphaned;
    int threads; /* of the whole pool */
    size_t orphans;
} weir_pool_figures;

/* weir_pool_figures_of - the figures of a class now. Errors: WEIR_EREFUSED (no such class).
 * Never suspends. */
WEIR_API WEIR_MUST_USE int weir_pool_figures_of(weir_pool *pool, unsigned class_index,
                                                weir_pool_figures *ret_figures);

/* weir_pool_close - end it before its scope does: as the end of the scope would, without
 * waiting here. Takes NULL. Never suspends. */
WEIR_API void weir_pool_close(weir_pool *take_pool);

WEIR_END

#endif

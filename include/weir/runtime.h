/* runtime.h - run a program on weir, or embed weir in a program's own loop.
 *
 * A runtime is a fixed number of workers: threads that run tasks. weir_run() is
 * the usual entry. A program that has an event loop of its own opens a runtime
 * with one worker on its own thread instead, polls weir_runtime_fd() for
 * reading, and calls weir_turn() when it is ready.
 *
 * Invariants: a task never changes its worker once it has started; a runtime
 * ends only after all its tasks have.
 * Threads: weir_run and the embedding calls belong to the thread that made the
 * runtime. Other threads reach it through a postbox (postbox.h) only.
 */
#ifndef WEIR_RUNTIME_H
#define WEIR_RUNTIME_H

#include <weir/check.h>
#include <weir/defs.h>
#include <weir/log.h>
#include <weir/watchdog.h>

WEIR_BEGIN

#define WEIR_STACK_BYTES_DEFAULT (64 * 1024)
#define WEIR_STACK_BYTES_MIN (16 * 1024)
#define WEIR_STACK_BYTES_MAX (8 * 1024 * 1024)
#define WEIR_DRAIN_MS_DEFAULT 5000
#define WEIR_BLOCKING_THREADS_DEFAULT 8
#define WEIR_BLOCKING_QUEUE_DEFAULT 256
#define WEIR_WORKERS_MAX 256
#define WEIR_TASKS_EXACT_MAX 16384
#define WEIR_STACK_BUDGET_PART 2

/* Signals are taken only if asked for; the handlers that were there before come
 * back when the runtime ends. */
enum weir_signals {
    WEIR_SIGNALS_NONE = 0,
    WEIR_SIGNAL_DRAIN = 1 << 0,    /* TERM, INT: stop, drain within drain_ms, cancel, report; a
                                      second one ends the process at once with 128 + signal */
    WEIR_SIGNAL_DUMP = 1 << 1,     /* USR1: weir_dump to standard error */
    WEIR_SIGNAL_OVERFLOW = 1 << 2, /* SEGV, BUS: name the task that overflowed its stack */
};

/* The members of a configuration, all optional: zero means the named default. */
typedef struct weir_config {
    const char *name;    /* of the root scope; default "root" */
    int workers;         /* default: the cores this process may use (affinity, cgroup) */
    unsigned signals;    /* of enum weir_signals */
    int64_t drain_ms;    /* budget of a stop by signal; WEIR_DRAIN_MS_DEFAULT */
    size_t stack_bytes;  /* of a task's stack; WEIR_STACK_BYTES_DEFAULT */
    size_t max_tasks;    /* of the whole runtime; default: what the guard pages allow and, under
                            a memory limit (cgroup), what fits into one WEIR_STACK_BUDGET_PART-th
                            of it when each task counts with a quarter of its stack: 16,384 tasks
                            with the default stack in 512 MiB. Exact below WEIR_TASKS_EXACT_MAX
                            per worker; above that up to 128 per worker may lie unused */
    const char *backend; /* "io_uring" or "epoll": that one, or WEIR_EREFUSED with the reason
                                     in weir_why. Default: io_uring where it works, else epoll
                                     (the log says why, once). weir_dump shows which */
    enum weir_log_level log_level;
    weir_log_fn log; /* default: one line each to standard error */
    void *log_arg;
    int blocking_threads_max;  /* for file calls, and as many for name look-ups */
    size_t blocking_queue_max; /* calls waiting for such a thread; more are rejected. Without
                                     threads (io_uring) the sum of both is the bound */
    int processes_max;         /* child processes at a time; WEIR_PROCESSES_DEFAULT */
    bool metrics_off;          /* nothing is measured (metrics.h): to see what that costs */
    /* Tasks that keep a worker for too long are reported: watchdog.h. */
    int watchdog_signal; /* turns it on: SIGURG, or another one that nobody else uses */
    int64_t watchdog_ms; /* how long is too long; WEIR_WATCHDOG_MS_DEFAULT */
    enum weir_watchdog_clock watchdog_clock;
    weir_watchdog_fn on_watchdog; /* gets each report, besides the log */
    void *on_watchdog_arg;
    const struct weir_trace_spec *trace; /* spans are recorded: WEIR_TRACE(…) of trace.h, copied.
                                            Default: none are */
    enum weir_checks lock_checks;     /* of locks (check.h): about 0.1 us for each that is taken */
    enum weir_checks deadlock_checks; /* for tasks that wait for each other: once a second, while
                                         a worker has nothing to do, at most 1 % of the time */
    weir_check_fn on_check;           /* told what they find, besides the log; may be NULL */
    void *check_arg;
} weir_config;

/* weir_config_init - set every member to "not said". */
static inline void weir_config_init(weir_config *config)
{
    memset(config, 0, sizeof *config);
}

/* weir_run - start the workers, run `fn(keep_arg)` as the first task, and return
 * its result when it and everything it started have ended. `config` may be NULL.
 *
 * Errors: WEIR_EREFUSED (weir_why), -ENOMEM, -EAGAIN (no thread), -EMFILE, else
 * what `fn` returned. Blocks the calling thread, which becomes worker 0.
 * Threads: any that is not inside a runtime already. */
WEIR_API WEIR_MUST_USE int weir_run_sized(size_t config_bytes, const weir_config *config,
                                          weir_task_fn fn, void *keep_arg);
#define weir_run(...) weir_run_sized(sizeof(weir_config), __VA_ARGS__)

/* weir_runtime_open - a runtime with one worker, driven by the calling thread.
 * Errors as weir_run; config->workers must be 0 or 1. Never suspends. */
WEIR_API WEIR_MUST_USE int weir_runtime_open_sized(size_t config_bytes, const weir_config *config,
                                                   weir_runtime **ret_runtime);
#define weir_runtime_open(...) weir_runtime_open_sized(sizeof(weir_config), __VA_ARGS__)

/* weir_runtime_fd - a descriptor that is readable whenever weir_turn has
 * something to do, timers included. It belongs to the runtime. Or the kernel's error
 * (-EMFILE), if it could not be made. */
WEIR_API int weir_runtime_fd(const weir_runtime *runtime);

/* weir_runtime_scope - the root scope, to spawn the first tasks into. */
WEIR_API weir_scope *weir_runtime_scope(weir_runtime *runtime);

/* weir_turn - run what is ready, poll once without waiting, and return the number of
 * the root scope's tasks that are alive, or the kernel's error (no descriptor for its
 * timer). Bounded: work that is left over keeps the
 * descriptor readable. Does not block. Threads: the one that opened it. */
WEIR_API WEIR_MUST_USE int weir_turn(weir_runtime *runtime);

/* weir_runtime_close - cancel what still runs, run it to its end, and free the
 * runtime. Returns the root scope's first failure. Takes NULL. Blocks until the
 * tasks have ended. Threads: the one that opened it. */
WEIR_API WEIR_MUST_USE int weir_runtime_close(weir_runtime *runtime);

/* weir_stop - stop the whole runtime of the calling task as the drain signal
 * would: see weir_scope_stop. Returns 0 or WEIR_ENOTASK. Never suspends. */
WEIR_API int weir_stop(int64_t grace_ms);

/* weir_worker_index - the calling worker's index, or -1 outside a runtime.
 * weir_worker_count - how many workers the calling task's runtime has, or 0. */
WEIR_API int weir_worker_index(void);
WEIR_API int weir_worker_count(void);

/* weir_now_ns - the runtime's clock: monotonic, never wall time. Any thread. */
WEIR_API int64_t weir_now_ns(void);

/* weir_dump - write the tree of scopes and tasks to `fd`: state, what each is
 * parked on and for how long, why it does not run, deadline, stack use, orphans, and the
 * backtrace of each parked task; before it the workers, and what they may use: cores, quota, memory
 * limit, stack budget. Returns 0, or the kernel's error from writing. Call it from a
 * task or from the thread that embeds the runtime. Waits, at most a second, for
 * other workers to reach a safe point; the ones that do not are shown as busy. */
WEIR_API int weir_dump(int fd);

/* Memory: every allocation of the library goes through one function, so that a
 * program can count, limit or fail it. `resize(arg, NULL, n)` allocates,
 * `resize(arg, p, 0)` frees and returns NULL, otherwise as realloc. */
typedef struct weir_allocator {
    void *(*resize)(void *arg, void *memory, size_t bytes);
    void *arg;
} weir_allocator;

/* weir_set_allocator - replace the allocator of the whole process; NULL brings
 * realloc/free back. Returns -EBUSY while a runtime is open or a postbox is held. Any
 * thread. */
WEIR_API int weir_set_allocator(const weir_allocator *allocator);

WEIR_END

#endif

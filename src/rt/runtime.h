/* runtime.h - the runtime and its workers.
 *
 * A worker is a thread that owns a run queue, timers, a kernel queue and caches;
 * others reach it by mail, and may take tasks that have not started from its
 * `fresh` queue. One turn: mail, timers, a batch of tasks, poll.
 *
 * Invariants: a runtime with one worker touches no lock and no shared cache line
 * on its hot paths; a worker that is awake is never woken.
 */
#ifndef WEIR_RT_RUNTIME_H
#define WEIR_RT_RUNTIME_H

#include <pthread.h>
#include <signal.h>
#include <weir/runtime.h>

#include "base/agenda.h"
#include "base/atomic.h"
#include "base/wheel.h"
#include "rt/bell.h"
#include "rt/blocking.h"
#include "rt/kernel.h"
#include "rt/lock.h"
#include "rt/mail.h"
#include "rt/ready.h"
#include "rt/sanitize.h"
#include "rt/stable.h"
#include "rt/stack.h"
#include "rt/switch.h"
#include "rt/task.h"

enum {
    WORKER_EVENTS = 128,
    WORKER_LOOK_TASKS = 64,
    WORKER_SPIN_FAILURES_MAX = 16, /* searches in vain before a worker stops trying */
    TASK_CACHE_MAX = 128,
};

enum worker_rest { WORKER_AWAKE, WORKER_SLEEPING };

struct worker {
    /* Own: touched on this worker only. */
    ATOM(struct task *) current; /* worker_set_current; read by the dump of another worker */
    unsigned look_at;            /* place in `ready` at which the clock is looked at, ... */
    unsigned look_tasks;         /* after so many tasks: adapts to how long they run; and ... */
    unsigned looks_left;         /* ... how often in this turn; 0: the turn is over */
    bool plain;                  /* neither `shared` nor a kernel that chooses */
    bool shared;                 /* the runtime has more than one worker */
    bool fresh_turn;             /* if shared: look at the fresh queue first next time */
    unsigned index;
    weir_runtime *runtime;
    const struct kernel *kernel;
    struct switch_context loop_context;
    struct sanitize_context sanitize;
    ATOM(int64_t) turn_began_ns;           /* read by the dump of another worker */
    int64_t now_ns;                        /* as of the last look at the clock */
    struct sanitize_context left_sanitize; /* of a task that has ended just now */
    struct mail *local_head;
    struct mail *local_tail;
    bool delivering;
    struct wheel wheel;
    bool timers_far;    /* programs' timers that are far go to the agenda; once so, always so */
    size_t timers_open; /* of programs */
    struct timer_slab *timer_slabs;
    struct kernel_queue *queue;
    ATOM(size_t) watched; /* descriptors in the queue */
    size_t completions;   /* blocking calls under way in it */
    struct task *free_tasks;
    unsigned free_task_count;
    unsigned task_cache_max;  /* free tasks it keeps for itself */
    unsigned task_move_count; /* moved between it and the runtime at a time */
    weir_scope *free_scopes;
    struct weir_timer *free_timers;
    struct stack_cache stacks;
    uint64_t next_id;       /* index + 1, then in steps of the number of workers */
    unsigned spin_failures; /* searches that found nothing */
    unsigned spins_passed;  /* ... since it has stopped trying */
    uint32_t select_turn;   /* which case of a select comes first next */
    int64_t trimmed_ns;
    uint64_t trimmed_started; /* tasks_started then */
    struct kernel_event events[WORKER_EVENTS];
    void *signal_stack;
    stack_t old_signal_stack;
    /* For the watchdog: the thread while it can be asked where it is, else 0; its clock. */
    ATOM(int) thread_id;
    clockid_t thread_clock;
    pthread_t thread;
    bool thread_started;
    struct agenda agenda;     /* big: behind what is touched all the time */
    bool ended;               /* the thread has left its loop (under ended_lock), with ... */
    size_t stuck_completions; /* ... calls that do not end: then it stays for them */

    /* Shared: written by other threads. */
    ATOM(struct mail *) inbox __attribute__((aligned(64)));
    ATOM(int) rest;            /* enum worker_rest */
    ATOM(bool) standing_still; /* for a dump */
    ATOM(unsigned) fresh_count;
    struct lock fresh_lock;
    struct run_queue fresh; /* unstarted tasks that any worker may take: fresh_count */

    /* Figures, written here, read by the dump. */
    ATOM(uint64_t) tasks_started __attribute__((aligned(64)));
    ATOM(uint64_t) tasks_ended;
    ATOM(uint64_t) tasks_stolen;
    ATOM(uint64_t) turns;
    ATOM(uint64_t) batches; /* turns in which a task was run */

    /* Own again: at the end for its size. */
    struct ready_queue ready __attribute__((aligned(64)));
};

struct weir_runtime {
    struct list node; /* in the process's list of runtimes */
    const struct kernel *kernel;
    unsigned worker_count;
    bool shared;
    bool embedded;
    bool spin;                /* worth it: a core for each worker, and not less than one in all */
    int cores;                /* that are usable, when it was opened */
    int64_t quota_milli;      /* of a core, by cgroup; -1: none */
    int64_t memory_max_bytes; /* by cgroup; -1: no limit */
    void *worker_memory;
    struct worker *workers; /* in it, aligned to cache lines */
    struct stack_pool stacks;
    unsigned default_class;
    weir_scope *root;
    int main_result;
    int64_t drain_ms;
    unsigned signals;
    enum weir_log_level log_level;
    weir_log_fn log;
    void *log_arg;
    struct blocking files;
    struct blocking names;
    struct blocking spawns;   /* the making of processes */
    struct lock process_lock; /* of all processes: io/process.h */
    ATOM(int) process_count;
    int processes_max;
    bool metrics_off;
    ATOM(struct metrics *) metrics;   /* watch/metrics.h; NULL until something is measured */
    ATOM(struct watchdog *) watchdog; /* watch/watchdog.h; NULL: there is none */
    ATOM(bool) watchdog_rests;        /* until a worker has something to run */
    struct tracer *tracer;            /* watch/trace.h; NULL: nothing is traced */
    bool lock_checks, deadlock_checks;
    struct checks *checks; /* watch/checks.h; NULL if neither is on */

    ATOM(unsigned) sleeping;
    ATOM(unsigned) searching;
    ATOM(int) ending;          /* workers leave their loops */
    ATOM(int) dump_fd;         /* a requested dump, or -1 */
    ATOM(int) pause;           /* worker + 1 that wants the others to stand still, or 0 */
    int pause_depth;           /* the pauser's own: pauses inside its pause */
    bool in_turn;              /* embedded: weir_turn is running */
    ATOM(int) drain;           /* a signal wants a stop */
    ATOM(bool) signal_arrived; /* one that may be watched */
    ATOM(unsigned) signal_watches;
    struct lock ended_lock; /* covers `ended` of the workers */
    struct bell worker_ended;
    struct lock signal_lock; /* covers the list below, and what each of it says */
    struct list signal_watchers;
    weir_scope *cancel_target;

    struct lock memory_lock; /* covers the lists below */
    struct task *free_tasks;
    size_t free_task_count;
    struct task_slab *task_slabs;
    weir_scope *free_scopes;
    struct scope_slab *scope_slabs;
    struct pollable *free_pollables;
    struct pollable_slab *pollable_slabs;
    struct timer_slab *timer_slabs;
    struct stable *stables;
    struct stable *free_stables[STABLE_CLASSES];
};

/* Thread locals that are found without a call: by one look at a table in the shared library, and by
 * none in a program that has the static one in it. */
#if defined(__PIC__) && !defined(__PIE__)
#define THREAD_LOCAL_NEAR __attribute__((tls_model("initial-exec")))
#else
#define THREAD_LOCAL_NEAR __attribute__((tls_model("local-exec")))
#endif

/* The calling thread's worker, or NULL. Inline is safe: a started task never
 * changes its thread, so an address of thread-local storage that the compiler
 * keeps across a switch stays right. */
extern _Thread_local struct worker *worker_current THREAD_LOCAL_NEAR;
static inline struct worker *worker_self(void)
{
    return worker_current;
}

/* The calling task, or NULL: what the thread's worker has as `current`, one step nearer, since
 * nearly every call of a program begins with it. */
extern _Thread_local struct task *task_current THREAD_LOCAL_NEAR;
static inline struct task *task_self(void)
{
    return task_current;
}

/* What the runtime keeps for each thread. Zeroed: that of a thread which has just begun. */
enum { WHY_BYTES = 256 };
struct thread_locals {
    struct worker *worker;
    struct task *task;
    char why[WHY_BYTES]; /* the sentence of weir_why outside tasks */
};
/* Exchange the calling thread's with `own`: for a simulator, whose threads are one to the
 * system. The layers above have the same for theirs (sim/locals.h). */
void thread_locals_swap(struct thread_locals *own);

/* On the worker's own thread: which task runs. */
static inline void worker_set_current(struct worker *worker, struct task *task)
{
    atom_store(&worker->current, task);
    task_current = task;
}

/* Around a program's callback (of a timer, of an idle wait) on the worker's own stack.
 * It never runs at the same time as a task of the worker, wherever that was placed, so
 * the sanitizer is told that they are ordered: tasks release `worker` when they leave
 * and acquire its events when they go on. */
static inline void callback_begin(struct worker *worker)
{
    sanitize_acquire(worker);
}

static inline void callback_end(struct worker *worker, weir_scope *scope)
{
    sanitize_release(&worker->events);
    sanitize_release(scope);
}

/* ---- sched.c ---- */

/* The worker's loop, until the runtime ends. */
void worker_loop(struct worker *worker);
/* One turn; waits for events if nothing is ready and `may_wait`. */
void worker_turn(struct worker *worker, bool may_wait);
/* A parked task may run: put it at the end of the queue. */
void worker_ready(struct worker *worker, struct task *task);
/* Put a task whose state is set already at the end of the queue. */
void worker_requeue(struct worker *worker, struct task *task);
/* Place a new task according to its `place`. */
void worker_place(struct worker *worker, struct task *task);
/* The running task's function has returned. Returns the next task if that can run
 * on the same stack; else leaves the stack for good. */
struct task *worker_finish(struct worker *worker, struct task *task);
/* Make `worker` look at its mail if it sleeps. Any thread. */
void worker_wake(struct worker *worker);
/* Something is here to be run or delivered. */
bool worker_has_work(struct worker *worker);
/* A call outside a task has made work: if the program that embeds the runtime made it
 * between two turns, the descriptor must show it. */
static inline void worker_touched(struct worker *worker)
{
    if (worker->runtime->embedded) worker_wake(worker);
}
/* Between two tasks: stand still for a dump that another worker takes, and take
 * the ones that were asked for. */
void worker_safe_point(struct worker *worker);

/* ---- runtime.c ---- */

/* How many runtimes are open in this process. */
int runtime_live_count(void);
/* Async-signal-safe: every open runtime prints its dump to `fd` at its next safe
 * point. */
void runtime_request_dump(int fd);
/* Async-signal-safe: every open runtime that watches signals looks which have come. */
void runtime_signal_arrived(void);
/* Make every worker take a turn. Async-signal-safe. */
void runtime_wake_all(weir_runtime *runtime);
/* The root scope has no tasks any more; its lock is held. */
void runtime_root_settled(weir_runtime *runtime);
/* The scope that CHOOSE_CANCEL cancels in the calling task's runtime; by default the
 * root scope. When it has been closed there is none. */
void runtime_cancel_target(weir_scope *scope);
/* How many forks lie between the first process and this one: what was made in another
 * generation stayed there. */
unsigned runtime_fork_generation(void);
/* Why a call that needs a task has none; records the sentence for weir_why. */
int refuse_no_task(const char *call);
/* Make the other workers stand still between two tasks, waiting at most wait_ns for
 * them; returns how many do (worker_stands_still tells which). On a worker's thread. */
unsigned runtime_pause(weir_runtime *runtime, int64_t wait_ns);
void runtime_resume(weir_runtime *runtime);
bool worker_stands_still(const struct worker *worker);
/* Write the dump, on a worker's thread. Provided by watch/dump.c: the runtime asks
 * for its own picture when a signal or a misuse calls for it. */
int dump_runtime(weir_runtime *runtime, int fd);
/* The open runtimes of the process: open_runtimes.c. Errors: WEIR_EREFUSED (too many). */
int runtime_register(weir_runtime *runtime);
void runtime_unregister(weir_runtime *runtime);
bool runtime_is_open(const weir_runtime *runtime); /* looks at its address only */
/* None of them will ever go on: those of a simulated run that is over. */
void runtimes_forget(void);
/* From now on a forked child knows that it has none of them. */
void runtime_watch_forks(void);
/* Figures live as long as the runtime. Provided by watch/metrics.c. */
void metrics_free(weir_runtime *runtime);
/* The watchdog, if the configuration asks for one. Provided by watch/watchdog.c. Opened with
 * the runtime; started when its workers run (`watchdog_start` never fails for lack of one);
 * closed when their threads have ended. */
int watchdog_open(weir_runtime *runtime, const weir_config *config);
int watchdog_start(weir_runtime *runtime);
void watchdog_close(weir_runtime *runtime);
/* A worker is about to run a task, and `watchdog_rests` is set. */
void watchdog_wake(weir_runtime *runtime);
/* In a forked child: its thread and its handler stayed in the parent. */
void watchdog_forget_in_child(void);
/* Spans are exported as long as the runtime lives. Provided by watch/tracer.c: refuse or make
 * what config->trace asks for, if anything; and end it once all tasks have ended: 1 if the
 * exporter does not return, so that the runtime's memory must stay. */
int tracer_check(const weir_config *config);
int tracer_open(weir_runtime *runtime, const weir_config *config);
int tracer_close(weir_runtime *runtime);
/* Copy a spec of a caller that may know fewer or more members than we do. */
void spec_copy(void *spec, size_t bytes, const void *given, size_t given_bytes);
/* Memory that lives as long as the runtime. */
void task_slabs_free(weir_runtime *runtime);
void scope_slabs_free(weir_runtime *runtime);
void pollable_slabs_free(weir_runtime *runtime);

/* ---- timer.c: all timers of a worker ---- */

void worker_timers_advance(struct worker *worker); /* then pop what is due from the wheel */
int64_t worker_timers_next_ns(const struct worker *worker); /* not later than the next one */
void worker_timers_free(struct worker *worker);
static inline size_t worker_timers_count(const struct worker *worker)
{
    return wheel_count(&worker->wheel) + agenda_count(&worker->agenda);
}

/* ---- log.c ---- */

static inline bool log_wanted(const weir_runtime *runtime, enum weir_log_level level)
{
    return level <= runtime->log_level;
}
void log_write(weir_runtime *runtime, enum weir_log_level level, const struct task *task,
               const char *format, ...) __attribute__((format(printf, 4, 5)));
/* The same about a task that may be gone: its name and the path of its scope, without
 * control characters. Any thread. */
void log_write_about(weir_runtime *runtime, enum weir_log_level level, const char *task,
                     const char *scope, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* ---- why.c ---- */

/* Record the sentence of a refusal for weir_why and return WEIR_EREFUSED. */
int refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same with another error. */
int refuse_as(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Misuse that cannot be reported: a sentence and the dump on standard error, abort. */
_Noreturn void misuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif

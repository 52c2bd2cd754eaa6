/* watchdog.h - tasks that keep a worker to themselves are named while they do.
 *
 * A task runs until it suspends. One that computes for long, or makes a call that blocks
 * in the kernel, keeps all other tasks of its worker waiting. With a watchdog a thread of the
 * runtime looks at the workers every quarter of the threshold (1 to 100 ms); a task that has kept
 * its worker for the threshold is reported: its name, the path of its scope, for how long, and
 * where it is, by function names. Work in pools is not meant: it keeps a thread of its own.
 *
 * What counts is the time that the worker's thread has computed or was blocked in a call.
 * Time for which the system let it wait although it could run is nobody's fault in the program and
 * does not count; nor does what a program that embeds the runtime does between two turns.
 *
 *     off ──weir_run with watchdog_signal──▶ watching ──all workers asleep──▶ resting
 *                                                ▲                               │
 *                                                └────────── one wakes up ───────┘
 *
 * Owner: the runtime. Lifetime: the runtime's. Off unless the program gives it a signal
 * (weir_config.watchdog_signal), with which it asks a worker where it is. SIGURG is a
 * good choice: nobody minds one too many. The signal must have no handler and must not be
 * blocked. The handler copies registers and stack, no more, on a stack of its own; it is
 * installed with SA_RESTART, so of the calls that block only those that no signal lets go on
 * (nanosleep, poll, select, ...; see signal(7)) return early with EINTR.
 * Backpressure: WEIR_WATCHDOG_BURST reports at once, then one each WEIR_WATCHDOG_REPORT_MS;
 * what is more is counted, not reported. A task that goes on is reported again when it has
 * taken ten times as long.
 * Failure: a report without a backtrace says why it has none; without memory for the handlers'
 * stacks there is no runtime (-ENOMEM), and a worker that the system gives no such stack is not
 * watched, which is logged as an error; a system without a clock for threads is refused with a
 * sentence; a run on a clock that is not the real one has no watchdog.
 * Cost: see docs/debugging.md. Metrics: weir_watchdog_hits_total, weir_watchdog_suppressed_total.
 * Threads: reports come on the watchdog's own thread.
 */
#ifndef WEIR_WATCHDOG_H
#define WEIR_WATCHDOG_H

#include <weir/defs.h>

WEIR_BEGIN

#define WEIR_WATCHDOG_MS_DEFAULT 10
#define WEIR_WATCHDOG_MS_MAX 3600000
#define WEIR_WATCHDOG_BURST 10
#define WEIR_WATCHDOG_REPORT_MS 1000

/* What counts as keeping a worker. */
enum weir_watchdog_clock {
    WEIR_WATCHDOG_CLOCK_UNSET = 0, /* WEIR_WATCHDOG_WALL */
    WEIR_WATCHDOG_WALL,            /* computing, and being blocked in a call of the system */
    WEIR_WATCHDOG_CPU,             /* computing only */
};

typedef struct weir_watchdog_report {
    const char *task; /* its name */
    uint64_t task_id;
    const char *scope; /* path: "root/serve/request" */
    int worker;
    int64_t held_ns;          /* at least so long ... */
    int64_t cpu_ns;           /* ... of which it has computed so long */
    bool blocked;             /* at this moment it waits in a call of the system */
    const char *backtrace;    /* one line each, innermost first: "spin+0x1c (server)"; or "" */
    const char *no_backtrace; /* why there is none; or "" */
    uint64_t hits;            /* as the metrics say, this one included */
    uint64_t suppressed;
} weir_watchdog_report;

/* Gets what is also logged (as warnings). Called on the watchdog's thread, one at a time;
 * nobody is watched meanwhile, and the runtime cannot be closed. It must not call back into weir.
 * The report and its strings are valid for the call only. */
typedef void (*weir_watchdog_fn)(void *keep_arg, const weir_watchdog_report *report);

WEIR_END

#endif

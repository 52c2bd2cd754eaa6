/* watchdog.h - who keeps a worker to itself.
 *
 * One thread looks at all workers every quarter of the threshold. A worker publishes what
 * it does by what it counts anyway (struct work); if that is the same at two looks, one task
 * has run all the time between them. How long it has kept the worker since it was first seen
 * is what the thread has computed, by its own clock, plus what it was blocked:
 *
 *     blocked = time passed - computed - ready to run but not running (schedstat)
 *
 * which is right only at a look that finds the thread blocked, and is taken only then: while
 * it waits for a processor, that time is not in the system's figure yet.
 *
 * When all workers sleep, so does the watchdog; the first one that has a task to
 * run wakes it.
 *
 * Invariants: the watchdog writes nothing that a worker reads on its hot paths; it reads
 * memory of tasks only by read_memory, which cannot fault, and believes it only if the
 * worker still does the same afterwards; every wait is bounded.
 * Threads: the functions here, on the watchdog's own.
 */
#ifndef WEIR_WATCH_WATCHDOG_H
#define WEIR_WATCH_WATCHDOG_H

#include <pthread.h>
#include <weir/watchdog.h>

#include "rt/bell.h"
#include "rt/runtime.h"
#include "watch/backtrace.h"
#include "watch/capture.h"
#include "watch/symbol.h"

enum {
    WATCHED_NAME_BYTES = 64,
    WATCHED_PATH_BYTES = 256,
    WATCHED_LEVELS = 16,
    WATCHDOG_TEXT_BYTES = 8 * 1024,
};

/* What a worker does, since it was first seen doing it. */
struct slice {
    struct work work;
    bool seen;
    int64_t seen_ns, seen_cpu_ns;
    /* The look before, and the first one of the system's view. */
    bool looked;
    int64_t look_ns, look_cpu_ns;
    int64_t base_ns, base_cpu_ns, base_waited_ns;
    bool blocked;
    int64_t blocked_ns;
    int64_t report_ns; /* the next report is due when it has kept the worker so long */
    bool named;
    uint64_t id;
    char name[WATCHED_NAME_BYTES];
    char path[WATCHED_PATH_BYTES];
};

struct watchdog {
    weir_runtime *runtime;
    int64_t threshold_ns;
    int64_t tick_ns;
    enum weir_watchdog_clock clock;
    weir_watchdog_fn report;
    void *report_arg;
    int signal;
    struct sigaction old_action;

    pthread_t thread;
    bool thread_started;
    struct lock lock; /* covers the two below */
    struct bell changed;
    bool closing;
    bool woken;

    ATOM(uint64_t) hits;
    ATOM(uint64_t) suppressed;
    ATOM(uint64_t) looks; /* for tests: an idle program has few */

    /* The thread's own. */
    int64_t tokens_ns; /* reports that may be made, as time: WEIR_WATCHDOG_REPORT_MS each */
    int64_t tokens_at_ns;
    struct capture capture;
    struct backtrace backtrace;
    struct symbol_table symbols;
    char text[WATCHDOG_TEXT_BYTES];
    struct slice slices[]; /* by worker */
};

/* The capture of a runtime's watchdog, or NULL. Safe in a signal handler. */
struct capture *watchdog_capture(weir_runtime *runtime);

/* Wait for something to change, at most so long; false: it is to end. The mutex is taken. */
bool watchdog_pause(struct watchdog *watchdog, int64_t ns);

/* ---- watchdog_report.c ---- */

/* "10 ms, 3 hits, 0 reports suppressed", for the dump; false: there is none. Any thread. */
bool watchdog_describe(weir_runtime *runtime, char *text, size_t bytes);

/* Read the names of what the worker does; false: it does something else by now. */
bool watchdog_name(struct watchdog *watchdog, struct worker *worker, struct slice *slice);
/* It has kept the worker for `held_ns`, `cpu_ns` of them computing. */
void watchdog_report(struct watchdog *watchdog, struct worker *worker, struct slice *slice,
                     int64_t held_ns, int64_t cpu_ns);

#endif

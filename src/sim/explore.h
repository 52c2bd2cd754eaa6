/* explore.h - many runs in a process of their own, until one fails; then that one, shorter.
 *
 *     explore() ── fork ── explorer child: runs, one after the other           explore_child.c
 *         │  watches it: progress, no step for too long, its end              explore_process.c
 *         ├── fork for each attempt: the failed run with fewer departures      shorten.c
 *         └── fork: the shortest one once more, in detail, to be printed       report.c
 *
 * What a child has to say is in memory that it shares with the parent, written before it can
 * crash: the trace of its run above all, whose departures name the run.
 *
 * Invariants: a child never outlives its parent, and never leaves it by a way but _exit; every
 * wait for one is bounded; a child that has seen a failed run makes no other.
 * Threads: one.
 */
#ifndef WEIR_SIM_EXPLORE_H
#define WEIR_SIM_EXPLORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/sim.h>

#include "sim/run.h"
#include "sim/trace.h"

enum {
    EXPLORE_NO_STEP_MS = 10000, /* without a choice: an endless loop, or a call that blocks, ... */
    EXPLORE_NO_STEP_AGAIN_MS = 1000,      /* ... and in attempts to make such a run shorter, */
    EXPLORE_SLOWER = 6,                   /* ... times this with a sanitizer or on valgrind */
    EXPLORE_LAST_WORDS_MS = 2000,         /* between SIGABRT, which says where it is, and SIGKILL */
    EXPLORE_LOOK_MS = 50,                 /* between looks at a child */
    EXPLORE_DISTINCT_SLOTS_MAX = 1 << 20, /* traces that are told apart: 3/4 of this */
    SHORTEN_ATTEMPTS_MAX = 2000,
    SHORTEN_MS_MAX = 10000,
};

/* sim_run_once(), or a test's own. */
typedef void (*explore_run)(const struct sim_setup *setup, struct strategy *strategy,
                            struct trace *trace, int report_fd, struct run_outcome *ret_outcome);

/* What children and parent share. */
struct explore_shared {
    uint64_t runs; /* that did not fail */
    uint64_t distinct;
    uint64_t repeated;
    uint64_t steps;
    bool distinct_full; /* there are more different runs than could be told apart */
    bool complete;
    bool done;            /* the child has said all it has to say */
    bool hung;            /* written by the parent: say where you are, and end */
    bool failed;          /* with `failure`, ... */
    bool not_again;       /* ... which is about several runs: not to be seen in one */
    const char *strategy; /* of the run that is made now, ... */
    uint64_t seed;        /* ... its seed, */
    char words[64];       /* ... and its words, "": its path is its only name */
    char failure[256];
    char places[256];   /* where a hung run was */
    struct trace trace; /* of that run, ... */
    struct trace again; /* ... and when it was made a second time */
};

/* How a child has ended. */
struct explore_end {
    bool failed;
    bool hung;
    char failure[256];
};

/* The run that failed. */
struct explore_found {
    uint64_t run; /* counted from 1 */
    const char *strategy;
    uint64_t seed;
    char words[64];
    char replay[WEIR_SIM_REPLAY_BYTES];
    struct explore_end end;
    bool not_again;          /* it cannot be seen in one run */
    bool again;              /* it failed the same way when it was made again */
    struct explore_end then; /* how that ended, if not */
    char places[256];        /* where a hung run was, or "" */
    uint64_t departures_before;
    size_t departures; /* in `path` */
    bool path_whole;   /* `path` has all of them */
    struct departure path[TRACE_DEPARTURES_MAX];
};

struct explorer {
    const struct sim_setup *setup;
    explore_run run;
    struct explore_shared *shared;
    struct strategy *strategy; /* of the exploring child */
    int64_t begun_ns;
    bool progress;
    bool progress_shown;
    struct explore_found *found;
};

/* weir_sim_run_sized() with runs made by `run`. */
int explore(size_t spec_bytes, const weir_sim_spec *spec, weir_task_fn fn, void *keep_arg,
            explore_run run);

int64_t explore_now_ns(void);

/* ---- explore_child.c: in the child ---- */

void explore_child(struct explorer *explorer, void *unused);

/* ---- explore_process.c ---- */

struct explore_process {
    void (*body)(struct explorer *explorer, void *arg);
    void *arg;
    int64_t no_step_ms;
    bool silent; /* what it prints is thrown away */
};

/* Run a body in a child until it ends or hangs. -EAGAIN, -ENOMEM: no child. */
int explore_process(struct explorer *explorer, const struct explore_process *process,
                    struct explore_end *ret_end);

/* One run by `strategy` in a child. report_fd: as of sim_run_once. */
int explore_attempt(struct explorer *explorer, struct strategy *strategy, bool detailed,
                    int report_fd, int64_t no_step_ms, struct explore_end *ret_end);

/* ---- shorten.c ---- */

/* Make explorer->found again, and shorter. -ENOMEM, -EAGAIN. */
int explore_shorten(struct explorer *explorer);
/* Whether two failures are the same but for numbers in them. */
bool explore_same_failure(const struct explore_end *a, const struct explore_end *b);

/* ---- report.c ---- */

/* "812,344" */
const char *explore_number(uint64_t number, char text[32]);
void explore_show_progress(struct explorer *explorer, bool last);
/* The failed run once more, in detail, and all about it to standard error. */
void explore_report(struct explorer *explorer);
/* The same for a run made in this process, whose dump is printed. */
void explore_report_here(const struct sim_setup *setup, const char *words, const char *failure,
                         const struct trace *trace);

#endif

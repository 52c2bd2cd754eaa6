/* sim.h - run a weir program in simulation: find the race, replay it by its seed.
 *
 *     static int transfer(void *arg) { ... any weir program ... }
 *
 *     r = weir_sim_run(&(weir_sim_spec){
 *         .name       = "transfers",
 *         .runs_max   = 100000,
 *         .invariants = {{.name = "money is kept", .holds = money_is_kept}},
 *     }, transfer, &bank);
 *
 * A run is the whole program on a simulated kernel: one thread of the system runs every worker,
 * pool thread and host, time is virtual and jumps when all of them wait, the network and the disks
 * are memory, and everything that could go one way or another is a choice: which task goes on,
 * who is woken, which case of a select is taken, whether a call suspends, how much a read
 * returns, whether a fault happens. Runs differ in their choices only, so a run that fails is
 * named by how its choices were made and made again from that name.
 *
 * Strategies: a random walk; PCT, which gives tasks priorities and changes them at `depth` - 1
 * moments of a run; and exhaustive search with a bound on how often a run departs from the
 * scheduler's own order, for small programs. A run that fails is made again with fewer departures
 * and fewer faults, as long as it fails the same way; what is left is printed: the line to replay
 * it by (WEIR_SIM=...), the last decisions in words, and the dump. With that line in the
 * environment weir_sim_run makes that one run, in this process, for a debugger (gdb wants "handle
 * SIGSYS nostop noprint"); if it fails, this process makes no other.
 *
 * What fails a run: an invariant, weir_sim_fail, a result below 0 (unless `any_result`), a crash,
 * an assertion, a check of weir/check.h, tasks that wait for what nobody will do, more virtual
 * time or steps than the bounds, memory of the library that is not freed, descriptors that a host
 * leaves open, a call that blocks the thread behind weir's back (it is named, on x86-64 with Linux
 * 5.11; elsewhere no step is made for 10 s), and a run that goes another way when it is repeated
 * (one in WEIR_SIM_REPEAT_EVERY is).
 *
 * Two levels. A library as it is installed is explored at task level: tasks change places at
 * calls that may suspend, workers where they wait. A library built with -Dsim_workers=true is
 * explored at worker level: every atomic and every lock of the library is a point at which
 * another worker may go on. Sequentially consistent: reorderings of the processor are not explored.
 *
 * Owner: the caller. Lifetime: the call. Runs are made in a forked process, so a crash or a
 * hang is one failed run; what a run leaves in the program's own variables is seen by the next
 * run of that process only, hence `begin`.
 * Backpressure: one run at a time; `runs_max` or `seconds_max` ends it.
 * Failure: the first run that fails ends it: WEIR_EFOUND.
 * Threads: the calling process has one thread, and no runtime that is open.
 */
#ifndef WEIR_SIM_H
#define WEIR_SIM_H

#include <weir/defs.h>
#include <weir/runtime.h>

WEIR_BEGIN

#define WEIR_SIM_RUN_MS_DEFAULT 3600000
#define WEIR_SIM_STEPS_DEFAULT 1000000
#define WEIR_SIM_DEPTH_DEFAULT 3
#define WEIR_SIM_DEPTH_MAX 8
#define WEIR_SIM_INVARIANTS_MAX 16
#define WEIR_SIM_HOSTS_MAX 16
#define WEIR_SIM_REPEAT_EVERY 1024
#define WEIR_SIM_REPLAY_BYTES 1024
#define WEIR_SIM_DISK_BYTES_DEFAULT (64 * 1024 * 1024)

/* How runs are chosen, as bits; several take turns. */
enum weir_sim_strategy {
    WEIR_SIM_STRATEGY_UNSET = 0,  /* random and PCT in turn */
    WEIR_SIM_RANDOM = 1 << 0,     /* each choice by lot */
    WEIR_SIM_PCT = 1 << 1,        /* by priorities that change at `depth` - 1 moments */
    WEIR_SIM_EXHAUSTIVE = 1 << 2, /* all runs with at most `departures_max` departures; with no
                                     other strategy, and no faults */
};

/* Something that must be so. */
typedef struct weir_sim_invariant {
    const char *name;
    bool (*holds)(void *arg); /* looks at the program's variables; suspends nowhere */
    void *arg;
    int64_t within_ms; /* 0: always, it is looked at after each step. Else: eventually, at some
                          time within so long (virtual) from the run's begin, and before its end */
} weir_sim_invariant;

/* What may go wrong: each once in so many chances, by lot; 0: never. */
typedef struct weir_sim_faults {
    unsigned faults_max;     /* in one run; 0: no bound */
    unsigned short_io;       /* a read or write of a stream moves less than it could */
    unsigned late;           /* data is on its way for up to late_ms_max */
    int64_t late_ms_max;     /* 0: 100 */
    unsigned reset;          /* a connection is reset, at a read or write */
    unsigned refuse;         /* a connect is refused */
    unsigned datagram_loss;  /* a datagram never comes, */
    unsigned datagram_twice; /* ... or comes twice, */
    unsigned datagram_order; /* ... or after later ones */
    unsigned disk_error;     /* a read or write of a file gives EIO */
    unsigned disk_full;      /* a write of a file gives ENOSPC */
    unsigned sync_error;     /* a sync fails, and what it should have saved may be lost */
    unsigned no_memory;      /* an allocation of the library fails */
    unsigned cancel;         /* a suspending call cancels the first host's root scope, or what
                                weir_sim_cancel_target was given */
    unsigned kill;           /* at a suspending call the host is killed (weir_sim_host_kill), and
                                started again after up to late_ms_max; not the first host */
} weir_sim_faults;

/* What came of it. */
typedef struct weir_sim_result {
    uint64_t runs;
    uint64_t distinct; /* different runs among them, by the hashes of their traces */
    uint64_t repeated; /* made twice, and equal */
    uint64_t steps;    /* choices in all of them */
    double seconds;    /* of real time */
    bool complete;     /* exhaustive, and there is no further run */
    char failure[256]; /* "": none. Else what failed, in a sentence, ... */
    char replay[WEIR_SIM_REPLAY_BYTES]; /* ... and what to put into WEIR_SIM to see it again */
    uint64_t shortened_from; /* departures and faults of the run that failed first, ... */
    uint64_t shortened_to;   /* ... and of the one in `replay` */
} weir_sim_result;

typedef struct weir_sim_spec {
    const char *name;          /* mandatory */
    uint64_t runs_max;         /* this or ... */
    int64_t seconds_max;       /* ... this is mandatory: real time */
    unsigned strategies;       /* of enum weir_sim_strategy */
    int depth;                 /* of PCT, 2 and more; WEIR_SIM_DEPTH_DEFAULT */
    int departures_max;        /* of exhaustive search; 0: no bound */
    uint64_t seed;             /* of the first run; the next ones count up from it */
    const weir_config *config; /* of the first host; its workers: default 1 */
    void (*begin)(void *arg);  /* before each run, with the run's `arg`: put variables back */
    void (*end)(void *arg);    /* after each run that has not failed: look, weir_sim_fail */
    weir_sim_invariant invariants[WEIR_SIM_INVARIANTS_MAX]; /* up to the first without a name */
    weir_sim_faults faults;
    bool any_result;             /* of the first host's program: below 0 is no failure */
    bool no_checks;              /* those of weir/check.h are off, else on */
    int64_t run_ms_max;          /* virtual; WEIR_SIM_RUN_MS_DEFAULT */
    uint64_t steps_max;          /* choices of one run; WEIR_SIM_STEPS_DEFAULT */
    bool quiet;                  /* print neither progress nor the failure */
    weir_sim_result *ret_result; /* may be NULL */
} weir_sim_spec;

/* weir_sim_spec_init - set every member to "not said". */
static inline void weir_sim_spec_init(weir_sim_spec *spec)
{
    memset(spec, 0, sizeof *spec);
}

/* weir_sim_run - make runs of `fn(keep_arg)`, the program of the first host ("main"), until one
 * fails or the budget is used up. Progress (runs, runs a second, distinct ones) goes to standard
 * error once a second if that is a terminal, or if WEIR_SIM_PROGRESS is set.
 * Returns 0: no run failed; WEIR_EFOUND: one did, it was printed to standard error;
 * WEIR_EREFUSED (weir_why); -ENOMEM, -EAGAIN (no process).
 * Blocks the calling thread, which is neither inside a runtime nor inside a run. */
WEIR_API WEIR_MUST_USE int weir_sim_run_sized(size_t spec_bytes, const weir_sim_spec *spec,
                                              weir_task_fn fn, void *keep_arg);
#define weir_sim_run(...) weir_sim_run_sized(sizeof(weir_sim_spec), __VA_ARGS__)

/* ---- Inside a run ---- */

/* weir_sim_running - whether the caller is inside a simulated run. Any thread. */
WEIR_API bool weir_sim_running(void);

/* weir_sim_worker_level - whether this library explores at worker level. Any thread. */
WEIR_API bool weir_sim_worker_level(void);

/* weir_sim_fail - the run has failed, with this sentence; it ends here. Outside a run it prints the
 * sentence and aborts, also in `begin`. Never returns, never suspends. In a task, in `holds` or in
 * `end`. */
WEIR_API void weir_sim_fail(const char *format, ...)
    __attribute__((format(printf, 1, 2), noreturn));

/* weir_sim_choose - one of 0 ... n - 1, a choice of the run like all others; 0 is the plain
 * one. Outside a run: 0. Never suspends. */
WEIR_API unsigned weir_sim_choose(unsigned n);

/* weir_sim_cancel_target - the scope that the fault `cancel` cancels from now on, until it is
 * closed: then nothing is cancelled any more. Never suspends. In a task of the first host. */
WEIR_API void weir_sim_cancel_target(weir_scope *scope);

/* ---- Hosts ----
 *
 * The first host is there from the begin and its program's end ends the run (others are killed).
 * Each host has a runtime, an address (10.0.0.1, 10.0.0.2, ...; its name resolves to it), and a
 * disk that outlives its program. Hosts belong to the run. */

typedef struct weir_sim_host weir_sim_host;

typedef struct weir_sim_host_spec {
    const char *name;          /* mandatory, of its own */
    weir_task_fn fn;           /* mandatory: its program, from the start again at each restart */
    const void *arg;           /* copied once; the program gets a fresh copy at each start */
    size_t arg_bytes;          /* ... of so many bytes; at most 256 */
    const weir_config *config; /* as of weir_sim_spec; copied */
    size_t disk_bytes_max;     /* WEIR_SIM_DISK_BYTES_DEFAULT */
} weir_sim_host_spec;

/* weir_sim_host_start - add a host to the run and start its program.
 * Errors: WEIR_EREFUSED (weir_why), -ENOMEM. Never suspends. In a task of any host. */
WEIR_API WEIR_MUST_USE int weir_sim_host_start_sized(size_t spec_bytes,
                                                     const weir_sim_host_spec *spec,
                                                     weir_sim_host **ret_host);
#define weir_sim_host_start(...) weir_sim_host_start_sized(sizeof(weir_sim_host_spec), __VA_ARGS__)

/* weir_sim_host_self - the host that the caller runs on, or NULL outside a run. */
WEIR_API weir_sim_host *weir_sim_host_self(void);

/* weir_sim_host_kill - end the host's program at once, as a power cut does: its tasks never go on,
 * its connections are reset when the other side next hears of it, and of what its disk was
 * given since the last sync any part may be lost, sector by sector. Nothing happens if it does
 * not run. Never suspends. Neither the caller's own host nor the first: that fails the run. */
WEIR_API void weir_sim_host_kill(weir_sim_host *host);

/* weir_sim_host_restart - start the program of a host that was killed or has ended, on its disk.
 * Errors: WEIR_EREFUSED (it runs; weir_why), -ENOMEM. Never suspends. */
WEIR_API WEIR_MUST_USE int weir_sim_host_restart(weir_sim_host *host);

/* weir_sim_host_stop - what TERM does to a program with WEIR_SIGNAL_DRAIN: weir_stop(grace_ms) on
 * that host. Never suspends. */
WEIR_API void weir_sim_host_stop(weir_sim_host *host, int64_t grace_ms);

/* weir_sim_host_running - whether its program runs. */
WEIR_API bool weir_sim_host_running(const weir_sim_host *host);

/* weir_sim_host_result - what its program returned last; WEIR_ECRASHED: it was killed. */
WEIR_API int weir_sim_host_result(const weir_sim_host *host);

/* weir_sim_partition - from now on nothing passes between the two hosts; what is on its way waits.
 * weir_sim_heal - it passes again. Neither suspends. */
WEIR_API void weir_sim_partition(weir_sim_host *a, weir_sim_host *b);
WEIR_API void weir_sim_heal(weir_sim_host *a, weir_sim_host *b);

/* weir_sim_wall_jump - set the host's wall clock so much forward, or back; its steady clock, by
 * which tasks sleep, goes on as it was. Kept over restarts. Never suspends. */
WEIR_API void weir_sim_wall_jump(weir_sim_host *host, int64_t jump_ms);

WEIR_END

#endif

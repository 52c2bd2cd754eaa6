/* world.h - what a run consists of: shared by the files that make it up, and by no others.
 *
 *     outside ──sim_run_once──▶ thread "main" of host 0 ──▶ other threads, one at a time
 *        ▲                                                      │
 *        └──────────── the run has ended, or failed ────────────┘
 *
 * A thread is RUNNABLE (in `runnable`, by how long it waits for its turn), RUNNING (one), ASLEEP
 * (in `sleeping`, until somebody wakes it or its time comes) or ENDED.
 */
#ifndef WEIR_SIM_WORLD_H
#define WEIR_SIM_WORLD_H

#include "rt/runtime.h"
#include "sim/locals.h"
#include "sim/run.h"
#include "sim/sim.h"

enum { SIM_IDS_MAX = 64, SIM_ARG_BYTES_MAX = 256, SIM_NAME_BYTES = 32 };

enum sim_thread_state { SIM_RUNNABLE, SIM_RUNNING, SIM_ASLEEP, SIM_ENDED };

/* The stack of a thread; kept for the next run. */
struct sim_stack {
    struct sim_stack *next;
    char *low;
    char *top;
};

struct sim_thread {
    struct list node;      /* in runnable, sleeping, or none */
    struct list host_node; /* in the host's threads */
    struct sim_host *host;
    uint64_t id; /* from 1, in the order of their birth */
    enum sim_thread_state state;
    int64_t until_ns;
    bool idle;
    bool woken;
    unsigned points;       /* that it has passed since it span */
    bool spins;            /* runnable, but it cannot go on before somebody else has had a turn */
    bool killed;           /* with its host: nobody joins it */
    bool inside;           /* worker level: it is in the simulator, whose atomics are no points */
    const char *waits_for; /* in a word, while it is asleep */
    const void *waits_on;  /* a condition, or a thread whose end it awaits; or NULL */
    struct switch_context context;
    struct sanitize_context sanitize;
    struct sim_locals locals;
    struct sim_stack *stack;
    void *(*fn)(void *arg);
    void *arg;
};

enum host_state { HOST_STOPPED, HOST_STARTING, HOST_RUNNING, HOST_ENDING };

struct sim_host {
    struct sim *sim;
    unsigned index;
    char name[SIM_NAME_BYTES];
    enum host_state state;
    bool kill_wanted; /* while it is starting: as soon as it has */
    bool dying;       /* its threads go no further than to their next wait */
    int result;
    weir_config config;
    weir_task_fn fn;
    void *main_arg; /* of the first host: the caller's own */
    _Alignas(16) unsigned char arg[SIM_ARG_BYTES_MAX];
    _Alignas(16) unsigned char arg_copy[SIM_ARG_BYTES_MAX];
    weir_runtime *runtime; /* HOST_RUNNING */
    struct list threads;
    struct list blocks;   /* memory of the library */
    uint32_t cut_off;     /* bit i: nothing passes to host i */
    int64_t wall_jump_ns; /* of its wall clock, in all */
    struct sim_net *net;
    struct sim_disk *disk;
    size_t disk_bytes_max;
    struct sim_event restart;
};

struct sim {
    struct kernel table;
    const struct sim_setup *setup;
    struct strategy *strategy;
    struct trace *trace;
    int report_fd;
    struct run_outcome *outcome;
    int64_t now_ns;
    uint64_t random_state;
    struct list events;
    struct list runnable;
    unsigned runnable_count;
    struct list sleeping;
    struct sim_thread *running;
    struct sim_thread *left; /* who switched away last: the sanitizer learns its stack's bounds */
    uint64_t next_thread_id;
    unsigned spin_rounds; /* everybody who could go on spins: so many times in a row */
    unsigned idle_rounds; /* looks around in vain, by everybody, in a row */
    struct sim_host *hosts[WEIR_SIM_HOSTS_MAX];
    unsigned host_count;
    unsigned fault_count;
    uint32_t eventually_met; /* bit i: invariant i has held */
    const char *looks_at;    /* the invariant that is looked at now */
    bool ending;             /* the first host's program has ended */
    unsigned handle_users;   /* of the process, before the run */
    struct list own_blocks;  /* sim_alloc */
    struct list dead_blocks; /* of hosts that were killed */
    struct list dead_threads;
    struct switch_context outside;
    struct sanitize_context outside_sanitize;
    uint64_t ids[SIM_IDS_MAX];
};

/* ---- sim.c ---- */

/* The same as sim_choose with the candidates known: `ids`, n of them; or, where n is 2 and 1 lets
 * somebody else go first, `running` and the others. */
unsigned sim_choose_among(struct sim *sim, unsigned kind, unsigned n, const char *about,
                          uint64_t running, unsigned id_count);
/* After a step of the program: what must always be so is. */
void sim_look_at_invariants(struct sim *sim);
/* Fire what is due. */
void sim_fire_due(struct sim *sim);
int64_t sim_next_event_ns(const struct sim *sim);
/* Move the clock; refuses to pass the run's bound. */
void sim_advance_to(struct sim *sim, int64_t at_ns);

/* ---- thread.c ---- */

/* A thread of the host that is runnable. NULL: no memory. */
struct sim_thread *sim_thread_new(struct sim *sim, struct sim_host *host, void *(*fn)(void *),
                                  void *arg);
/* Who would go on if the caller was interrupted: so many in sim->ids. Somebody could. */
unsigned sim_thread_candidates(struct sim *sim);
/* Somebody else who can go on does so first. */
void sim_thread_preempt(struct sim *sim);
/* The caller spins: it cannot go on before somebody else has done something. */
void sim_thread_let_others(struct sim *sim);
/* From the outside into the run, until it has ended or failed. */
void sim_threads_run(struct sim *sim);
/* The running thread leaves for good: to the outside. */
_Noreturn void sim_leave_run(struct sim *sim);
/* Never to run again. The running one among them: the caller does not return to it. */
void sim_threads_kill(struct sim *sim, struct sim_host *host);
/* The host is dying: its threads that were interrupted at worker level, maybe with a lock of the
 * process, go on to their next waits; others go on meanwhile. Nothing to do at task level. */
void sim_threads_settle(struct sim *sim, const struct sim_host *host);
/* The running thread is one that was killed: somebody else goes on. */
_Noreturn void sim_thread_abandon(struct sim *sim);
void sim_threads_free(struct sim *sim);
/* Those of a host that were killed, for others to have their stacks. No thread of it runs. */
void sim_threads_reclaim(struct sim *sim, const struct sim_host *host);
void sim_thread_fill_table(struct kernel *table);

/* ---- host.c ---- */

int sim_host_new(struct sim *sim, const char *name, const weir_config *config,
                 struct sim_host **ret_host);
int sim_host_begin(struct sim *sim, struct sim_host *host); /* its program, from the start */
/* At once; nothing if it does not run. Its running thread, if it is the caller's, must go
 * (sim_thread_abandon). */
void sim_host_kill(struct sim *sim, struct sim_host *host);
void sim_host_end_all(struct sim *sim); /* the run is over: kill what runs */
void sim_hosts_free(struct sim *sim);
/* By the fault: the host of the running thread dies here, and comes back later. */
void sim_host_maybe_killed(struct sim *sim);

/* ---- memory.c ---- */

void sim_memory_begin(struct sim *sim);
/* What a host has allocated is given up, not freed: others may still hold it. */
void sim_memory_bury(struct sim *sim, struct sim_host *host);
/* What it had mapped until it was buried, for others to have. No thread of it runs. */
void sim_memory_reclaim(const struct sim_host *host);
/* Bytes and blocks that hosts which ended by themselves have left. */
size_t sim_memory_left(const struct sim *sim, size_t *ret_blocks);
void sim_memory_end(struct sim *sim);
void sim_memory_fill_table(struct kernel *table);

/* ---- kernel_sim.c ---- */

void sim_fill_table(struct sim *sim);

static inline struct sim *sim_of(const struct kernel *kernel)
{
    return kernel->state;
}

#endif

/* kernel_sim.c - the simulated kernel: the table of rt/kernel.h that a run's runtimes use.
 *
 * Its parts are filled in by the files that have them; here are time, chance, the scheduler's
 * choices, and what a simulated host does not have.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rt/kernel_real.h"
#include "sim/trace.h"
#include "sim/world.h"

/* Runs begin on the first of January 2030. */
#define WALL_BEGIN_NS (INT64_C(1893456000) * 1000000000)

/* ---- Time and chance ---- */

static int64_t table_now_ns(const struct kernel *kernel)
{
    return sim_of(kernel)->now_ns;
}

static int64_t table_wall_ns(const struct kernel *kernel)
{
    const struct sim *sim = sim_of(kernel);
    int64_t jump_ns = sim->running ? sim_host_running(sim)->wall_jump_ns : 0;

    return WALL_BEGIN_NS + sim->now_ns + jump_ns;
}

static void table_random(const struct kernel *kernel, void *data, size_t bytes)
{
    unsigned char *at = data;

    while (bytes > 0) {
        uint64_t word = sim_random(sim_of(kernel));
        size_t part = bytes < sizeof word ? bytes : sizeof word;
        memcpy(at, &word, part);
        at += part;
        bytes -= part;
    }
}

/* ---- The scheduler's choices ---- */

/* Tasks of different hosts are different. */
static uint64_t id_of(const struct sim *sim, const struct task *task)
{
    return task->id | (uint64_t)(sim_host_running(sim)->index + 1) << 56;
}

static const struct task *ready_at(const struct worker *worker, unsigned index)
{
    return worker->ready.tasks[(atom_load(&worker->ready.head) + index) % READY_RING];
}

/* The ids of the tasks that are ready, or none if there are too many to look at each. */
static unsigned find_ids(struct sim *sim, const struct worker *worker)
{
    unsigned count = worker->ready.count;

    if (count > SIM_IDS_MAX) return 0;
    for (unsigned i = 0; i < count; i++) sim->ids[i] = id_of(sim, ready_at(worker, i));
    return count;
}

/* Who was meant by the answer just given: known only after it. */
static void say_who(struct sim *sim, const struct task *task)
{
    struct decision *last = &sim->trace->last[(sim->trace->choices - 1) % TRACE_LAST];

    (void)snprintf(last->about, sizeof last->about, "%s", task->name);
}

static unsigned choose_task(struct sim *sim, unsigned n)
{
    const struct worker *worker = worker_self();
    unsigned answer = sim_choose_among(sim, CHOOSE_TASK, n, "", 0, find_ids(sim, worker));

    if (__builtin_expect(sim->trace->detailed, 0) && answer < READY_RING) {
        say_who(sim, ready_at(worker, answer));
    }
    return answer;
}

/* Between two steps of the program. */
static unsigned choose_cancel(struct sim *sim)
{
    sim_look_at_invariants(sim);
    sim_host_maybe_killed(sim);
    if (sim_host_running(sim)->index > 0) return 0;
    return sim_fault(sim, SIM_FAULT_CANCEL, "cancel") ? 1 : 0;
}

static unsigned choose(struct sim *sim, enum choice kind, unsigned n)
{
    switch (kind) {
    case CHOOSE_TASK: return choose_task(sim, n);
    case CHOOSE_CANCEL: return choose_cancel(sim);
    case CHOOSE_YIELD:
        return sim_choose_among(sim, CHOOSE_YIELD, n, "", id_of(sim, task_self()),
                                find_ids(sim, worker_self()));
    case CHOOSE_STEAL:
    case CHOOSE_PLACE:
    case CHOOSE_CASE:
    case CHOOSE_KINDS: break;
    }
    return sim_choose(sim, kind, n, "");
}

static unsigned table_choose(const struct kernel *kernel, enum choice kind, unsigned n)
{
    struct sim *sim = sim_of(kernel);
    struct sim_thread *self = sim->running;
    bool inside = self->inside;
    unsigned answer;

    self->inside = true;
    answer = choose(sim, kind, n);
    self->inside = inside;
    return answer;
}

/* ---- What a simulated host does not have ---- */

static int table_process_start(const struct kernel *kernel, const struct process_plan *plan,
                               struct process_made *ret_made)
{
    (void)kernel, (void)plan;
    ret_made->step = STEP_PARENT;
    return -ENOSYS;
}

static int table_process_signal(const struct kernel *kernel, int pidfd, pid_t group, int signo)
{
    (void)kernel, (void)pidfd, (void)group, (void)signo;
    return -ENOSYS;
}

static int table_process_reap(const struct kernel *kernel, int pidfd, pid_t group, bool wait,
                              struct process_end *ret_end)
{
    (void)kernel, (void)pidfd, (void)group, (void)wait, (void)ret_end;
    return -ECHILD;
}

void sim_fill_table(struct sim *sim)
{
    struct kernel *table = &sim->table;

    *table = (struct kernel){
        .name = "simulation",
        .state = sim,
        .simulated = true,
        .now_ns = table_now_ns,
        .thread_now_ns = table_now_ns,
        .wall_ns = table_wall_ns,
        .random = table_random,
        .choose = table_choose,
        .read_memory = real_read_memory,
        .process_start = table_process_start,
        .process_signal = table_process_signal,
        .process_reap = table_process_reap,
    };
    sim_thread_fill_table(table);
    sim_memory_fill_table(table);
    sim_fd_fill_table(table);
    sim_net_fill_table(table);
    sim_disk_fill_table(table);
}

/* run.c - one run, from its begin to its end or failure. */
#include "sim/run.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rt/cores.h"
#include "rt/handle.h"
#include "rt/mem.h"
#include "sim/raw_calls.h"
#include "sim/strategy.h"
#include "sim/trace.h"
#include "sim/worker_level.h"
#include "sim/world.h"

/* There is one thread for all of it, hence one run at a time: kernel tables, the allocator and
 * the hooks of atomics are the process's too. */
static struct sim world;
static struct sim *running_world;
static bool spoilt; /* a run has failed: see run.h */

bool sim_process_spoilt(void)
{
    return spoilt;
}

struct sim *sim_now_running(void)
{
    return running_world;
}

/* One processor: a worker that would look around for work in a loop sleeps instead. */
static const struct cores_source one_core = {.affinity_count = 1};

/* ---- Failing ---- */

static _Noreturn __attribute__((format(printf, 2, 0))) void fail_with(struct sim *sim,
                                                                      const char *format,
                                                                      va_list arguments)
{
    struct run_outcome *outcome = sim->outcome;

    worker_level_off();
    raw_calls_off();
    if (!outcome->failed) {
        outcome->failed = true;
        (void)vsnprintf(outcome->failure, sizeof outcome->failure, format, arguments);
    }
    if (!sim->running) {
        /* Nothing of the program runs outside. */
        (void)fprintf(stderr, "weir_sim: %s\n", outcome->failure);
        abort();
    }
    sim_leave_run(sim);
}

_Noreturn void sim_fail(struct sim *sim, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    fail_with(sim, format, arguments);
    va_end(arguments);
}

_Noreturn void weir_sim_fail(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    if (running_world && running_world->running) fail_with(running_world, format, arguments);
    (void)vfprintf(stderr, format, arguments);
    va_end(arguments);
    (void)fputc('\n', stderr);
    abort();
}

static void raw_call_caught(const char *call, const char *places)
{
    sim_fail(&world, "the program makes the call '%s' behind weir's back: %s", call, places);
}

/* ---- The dump of a run that failed ---- */

/* Its threads stand still wherever they are, for good. */
static void dump_host(struct sim_host *host, int fd)
{
    weir_runtime *runtime = host->runtime;
    struct worker *worker = worker_current;

    (void)dprintf(fd, "host '%s', at %lld.%06lld ms:\n", host->name,
                  (long long)(host->sim->now_ns / 1000000),
                  (long long)(host->sim->now_ns % 1000000));
    if (!runtime || !runtime_is_open(runtime)) {
        (void)dprintf(fd, "  it does not run\n");
        return;
    }
    for (unsigned i = 0; i < runtime->worker_count; i++) {
        atom_store(&runtime->workers[i].standing_still, true);
    }
    worker_current = &runtime->workers[0];
    (void)dump_runtime(runtime, fd);
    worker_current = worker;
}

static void dump_all(struct sim *sim)
{
    if (sim->report_fd < 0) return;
    for (unsigned i = 0; i < sim->host_count; i++) dump_host(sim->hosts[i], sim->report_fd);
}

/* ---- The run ---- */

static void world_begin(struct sim *sim, const struct sim_setup *setup, struct strategy *strategy,
                        struct trace *trace, int report_fd, struct run_outcome *outcome)
{
    memset(sim, 0, sizeof *sim);
    sim->setup = setup;
    sim->strategy = strategy;
    sim->trace = trace;
    sim->report_fd = report_fd;
    sim->outcome = outcome;
    sim->random_state = strategy_seed(strategy);
    list_init(&sim->events);
    list_init(&sim->runnable);
    list_init(&sim->sleeping);
    list_init(&sim->dead_threads);
    sim->handle_users = handles_users();
    running_world = sim;
    sim_fill_table(sim);
    sim_memory_begin(sim);
    kernel_override(&sim->table);
    cores_override(&one_core);
}

static void world_end(struct sim *sim)
{
    kernel_override(NULL);
    cores_override(NULL);
    if (sim->outcome->failed) {
        /* Stacks and memory of the program are left as they are: see run.h. */
        spoilt = true;
        mem_override(NULL);
        running_world = NULL;
        return;
    }
    sim_threads_free(sim);
    sim_hosts_free(sim);
    sim_memory_end(sim);
    running_world = NULL;
}

void sim_run_once(const struct sim_setup *setup, struct strategy *strategy, struct trace *trace,
                  int report_fd, struct run_outcome *ret_outcome)
{
    struct sim *sim = &world;
    struct sim_host *first;

    *ret_outcome = (struct run_outcome){.failed = false};
    world_begin(sim, setup, strategy, trace, report_fd, ret_outcome);
    if (setup->spec->begin) setup->spec->begin(setup->arg);
    if (sim_host_new(sim, "main", setup->spec->config, &first) < 0) goto no_memory;
    first->fn = setup->fn;
    first->main_arg = setup->arg;
    if (sim_host_begin(sim, first) < 0) goto no_memory;
    raw_calls_enable(raw_call_caught);
    worker_level_on();
    raw_calls_on();
    sim_threads_run(sim);
    raw_calls_off();
    worker_level_off();
    if (ret_outcome->failed) dump_all(sim);
    world_end(sim);
    return;

no_memory:
    ret_outcome->failed = true;
    (void)snprintf(ret_outcome->failure, sizeof ret_outcome->failure,
                   "no memory for the simulation itself");
    world_end(sim);
}

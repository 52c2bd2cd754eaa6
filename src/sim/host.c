/* host.c - simulated hosts: a program on a runtime of its own, an address, a disk.
 *
 *     STOPPED ──begin──▶ STARTING ──its first task runs──▶ RUNNING ──its program returned──▶ ENDING
 *        ▲                                                    │                                │
 *        └───────────────────── killed ◀──────────────────────┘                                │
 *        └──────────────────────────────── weir_run returned ◀─────────────────────────────────┘
 *
 * A host is killed only while it is RUNNING: while a runtime is being opened or closed it is not
 * yet, or no more, known to the process, and there is nothing to lose but time.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "flow/once.h"
#include "rt/handle.h"
#include "sim/world.h"

/* Legal moves of a host. */
static const bool legal[][4] = {
    [HOST_STOPPED] = {[HOST_STARTING] = true},
    /* Without memory there is no runtime, and it ends before it has begun. */
    [HOST_STARTING] = {[HOST_RUNNING] = true, [HOST_ENDING] = true, [HOST_STOPPED] = true},
    [HOST_RUNNING] = {[HOST_ENDING] = true, [HOST_STOPPED] = true},
    [HOST_ENDING] = {[HOST_STOPPED] = true},
};

static void host_set_state(struct sim_host *host, enum host_state state)
{
    if (!legal[host->state][state]) {
        sim_fail(host->sim, "the simulator is wrong: host '%s' from state %d to %d", host->name,
                 (int)host->state, (int)state);
    }
    host->state = state;
}

/* ---- Finding them ---- */

struct sim_host *sim_host_running(const struct sim *sim)
{
    return sim->running ? sim->running->host : NULL;
}

struct sim_host *sim_host_at(const struct sim *sim, unsigned index)
{
    return index < sim->host_count ? sim->hosts[index] : NULL;
}

struct sim_host *sim_host_named(const struct sim *sim, const char *name)
{
    for (unsigned i = 0; i < sim->host_count; i++) {
        if (strcmp(sim->hosts[i]->name, name) == 0) return sim->hosts[i];
    }
    return NULL;
}

unsigned sim_host_index(const struct sim_host *host)
{
    return host->index;
}

const char *sim_host_name(const struct sim_host *host)
{
    return host->name;
}

bool sim_host_reaches(const struct sim_host *a, const struct sim_host *b)
{
    return a == b || !(a->cut_off & (1U << b->index));
}

struct sim_net *sim_host_net(const struct sim_host *host)
{
    return host->net;
}

struct sim_disk *sim_host_disk(const struct sim_host *host)
{
    return host->disk;
}

/* ---- A program's life ---- */

/* The run ends with the first host's program: what must be so then is looked at on its thread. */
_Noreturn static void end_run(struct sim *sim, int result)
{
    const weir_sim_spec *spec = sim->setup->spec;
    size_t blocks;
    size_t bytes;

    sim->ending = true;
    sim_host_end_all(sim);
    sim_look_at_invariants(sim);
    if (result < 0 && !spec->any_result) {
        sim_fail(sim, "the program returned %s (%s)", weir_error_name(result),
                 weir_strerror(result));
    }
    bytes = sim_memory_left(sim, &blocks);
    if (bytes > 0) {
        sim_fail(sim, "%zu bytes of the library's memory in %zu blocks were not freed", bytes,
                 blocks);
    }
    if (spec->end) spec->end(sim->setup->arg);
    sim_leave_run(sim);
}

/* The first task of a host. */
static int host_program(void *arg)
{
    struct sim_host *host = arg;
    void *program_arg = host->main_arg;
    int result;

    host->runtime = worker_self()->runtime;
    host_set_state(host, HOST_RUNNING);
    if (host->kill_wanted) {
        sim_host_kill(host->sim, host);
        sim_thread_abandon(host->sim);
    }
    if (host->index > 0) {
        memcpy(host->arg_copy, host->arg, sizeof host->arg);
        program_arg = host->arg_copy;
    }
    result = host->fn(program_arg);
    return result;
}

static void *host_thread(void *arg)
{
    struct sim_host *host = arg;
    struct sim *sim = host->sim;
    int result = weir_run(&host->config, host_program, host);
    unsigned left;

    host->result = result;
    host->runtime = NULL;
    /* A runtime that could not be opened has had no program. */
    if (host->state == HOST_RUNNING) host_set_state(host, HOST_ENDING);
    left = sim_fds_close_all(sim, host);
    if (left > 0) sim_fail(sim, "host '%s' has left %u descriptors open", host->name, left);
    host_set_state(host, HOST_STOPPED);
    if (host->index == 0) end_run(sim, result);
    return NULL;
}

static void checks_found(void *arg, const weir_check_report *report)
{
    struct sim_host *host = arg;
    int first_line = (int)strcspn(report->text, "\n");

    sim_fail(host->sim, "checks: %s: %.*s", weir_check_name(report->kind), first_line,
             report->text);
}

/* What a simulated host has no use for is left out: signals are sent by weir_sim_host_stop, and a
 * thread's time of computing says nothing. */
static void set_config(struct sim_host *host, const weir_config *given)
{
    const weir_sim_spec *spec = host->sim->setup->spec;

    weir_config_init(&host->config);
    if (given) host->config = *given;
    host->config.signals = 0;
    host->config.watchdog_signal = 0;
    host->config.backend = NULL;
    if (host->config.workers == 0) host->config.workers = 1;
    if (!host->config.name) host->config.name = host->name;
    if (!given || given->log_level == 0) host->config.log_level = WEIR_LOG_OFF;
    if (host->config.on_check) return; /* the program looks at them itself */
    host->config.lock_checks = spec->no_checks ? WEIR_CHECKS_OFF : WEIR_CHECKS_ON;
    host->config.deadlock_checks = spec->no_checks ? WEIR_CHECKS_OFF : WEIR_CHECKS_ON;
    host->config.on_check = checks_found;
    host->config.check_arg = host;
}

static void fire_restart(struct sim *sim, struct sim_event *event)
{
    struct sim_host *host = container_of(event, struct sim_host, restart);

    if (host->state == HOST_STOPPED && !sim->ending && sim_host_begin(sim, host) < 0) {
        sim_fail(sim, "no memory to start host '%s' again", host->name);
    }
}

int sim_host_new(struct sim *sim, const char *name, const weir_config *config,
                 struct sim_host **ret_host)
{
    struct sim_host *host = sim_alloc(sim, sizeof *host);

    if (!host) return -ENOMEM;
    host->sim = sim;
    host->index = sim->host_count;
    (void)snprintf(host->name, sizeof host->name, "%s", name);
    list_init(&host->threads);
    list_init(&host->blocks);
    sim_event_init(&host->restart, fire_restart);
    set_config(host, config);
    sim->hosts[sim->host_count++] = host;
    *ret_host = host;
    return 0;
}

int sim_host_begin(struct sim *sim, struct sim_host *host)
{
    int r = 0;

    if (!host->net) r = sim_net_open(sim, host, &host->net);
    if (r == 0 && !host->disk) r = sim_disk_open(sim, host, host->disk_bytes_max, &host->disk);
    if (r < 0) return r;
    host->kill_wanted = false;
    host->dying = false;
    /* Or a run with many power cuts would have more mappings than the system allows; unless it is
     * one of these threads, at its last, that has come to the time of the restart. */
    if (sim->running && sim->running->host != host) {
        sim_threads_reclaim(sim, host);
        sim_memory_reclaim(host);
    }
    if (!sim_thread_new(sim, host, host_thread, host)) return -ENOMEM;
    host_set_state(host, HOST_STARTING);
    return 0;
}

/* ---- Being killed ---- */

/* What the process knows of its runtime. */
static void forget_runtime(struct sim_host *host)
{
    once_forget(host->runtime);
    runtime_unregister(host->runtime);
    handles_end();
}

void sim_host_kill(struct sim *sim, struct sim_host *host)
{
    if (host->state == HOST_STARTING) host->kill_wanted = true;
    if (host->state != HOST_RUNNING || host->dying) return;
    host->dying = true;
    sim_threads_settle(sim, host);
    if (host->state != HOST_RUNNING) return; /* it has just ended by itself */
    sim_threads_kill(sim, host);
    sim_net_cut(sim, host);
    (void)sim_fds_close_all(sim, host);
    sim_disk_crash(sim, host->disk);
    forget_runtime(host);
    sim_memory_bury(sim, host);
    host->runtime = NULL;
    host->result = WEIR_ECRASHED;
    host_set_state(host, HOST_STOPPED);
}

void sim_host_maybe_killed(struct sim *sim)
{
    struct sim_host *host = sim_host_running(sim);
    int64_t most_ms = sim_late_ms_max(sim);

    if (!host || host->index == 0 || host->state != HOST_RUNNING) return;
    if (!sim_fault(sim, SIM_FAULT_KILL, host->name)) return;
    sim_event_start(sim, &host->restart,
                    sim->now_ns + (int64_t)sim_amount(sim, (uint64_t)most_ms, "down") * 1000000);
    sim_host_kill(sim, host);
    sim_thread_abandon(sim);
}

/* The run is over: what still runs goes the way of a power cut, but for its disk. */
void sim_host_end_all(struct sim *sim)
{
    for (unsigned i = 1; i < sim->host_count; i++) {
        struct sim_host *host = sim->hosts[i];
        if (host->state == HOST_STOPPED) continue;
        host->dying = true;
        sim_threads_settle(sim, host);
        if (host->state == HOST_STOPPED) continue;
        sim_threads_kill(sim, host);
        if (host->runtime) once_forget(host->runtime);
        (void)sim_fds_close_all(sim, host);
        sim_memory_bury(sim, host);
        host->runtime = NULL;
        host->state = HOST_STOPPED;
    }
    /* Also those that were being opened or closed. */
    runtimes_forget();
    while (handles_users() > sim->handle_users) handles_end();
}

void sim_hosts_free(struct sim *sim)
{
    for (unsigned i = 0; i < sim->host_count; i++) {
        struct sim_host *host = sim->hosts[i];
        if (host->net) sim_net_close(sim, host->net);
        if (host->disk) sim_disk_close(sim, host->disk);
        sim_free(sim, host);
    }
    sim->host_count = 0;
}

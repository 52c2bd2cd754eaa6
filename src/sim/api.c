/* api.c - what a program calls inside a run: hosts, partitions, choices of its own. */
#include <errno.h>
#include <string.h>

#include "sim/world.h"

/* The public name of the same thing. */
static struct sim_host *host_of(const weir_sim_host *host)
{
    return (struct sim_host *)(uintptr_t)host;
}

static weir_sim_host *public_of(struct sim_host *host)
{
    return (weir_sim_host *)(void *)host;
}

bool weir_sim_running(void)
{
    const struct sim *sim = sim_now_running();

    return sim && sim->running;
}

unsigned weir_sim_choose(unsigned n)
{
    struct sim *sim = sim_now_running();

    return sim && sim->running ? sim_choose(sim, SIM_USER, n, "") : 0;
}

void weir_sim_cancel_target(weir_scope *scope)
{
    if (weir_sim_running() && worker_self()) runtime_cancel_target(scope);
}

/* ---- Hosts ---- */

static int check_spec(const struct sim *sim, const weir_sim_host_spec *spec)
{
    if (!sim || !sim->running) {
        return refuse_as(WEIR_ENOTASK, "weir_sim_host_start: not inside a simulated run");
    }
    if (!spec->name || !*spec->name) return refuse("simulated host: name is not set");
    if (strlen(spec->name) >= SIM_NAME_BYTES) {
        return refuse("simulated host '%s': the name is longer than %d bytes", spec->name,
                      SIM_NAME_BYTES - 1);
    }
    if (sim_host_named(sim, spec->name)) {
        return refuse("simulated host '%s': there is one of that name", spec->name);
    }
    if (!spec->fn) return refuse("simulated host '%s': fn is not set", spec->name);
    if (spec->arg_bytes > SIM_ARG_BYTES_MAX) {
        return refuse("simulated host '%s': arg_bytes is %zu, at most %d", spec->name,
                      spec->arg_bytes, SIM_ARG_BYTES_MAX);
    }
    if (sim->host_count == WEIR_SIM_HOSTS_MAX) {
        return refuse("simulated host '%s': more than %d hosts", spec->name, WEIR_SIM_HOSTS_MAX);
    }
    return 0;
}

int weir_sim_host_start_sized(size_t spec_bytes, const weir_sim_host_spec *given,
                              weir_sim_host **ret_host)
{
    struct sim *sim = sim_now_running();
    weir_sim_host_spec spec;
    struct sim_host *host;
    int r;

    spec_copy(&spec, sizeof spec, given, spec_bytes);
    r = check_spec(sim, &spec);
    if (r < 0) return r;
    r = sim_host_new(sim, spec.name, spec.config, &host);
    if (r < 0) return r;
    host->fn = spec.fn;
    if (spec.arg_bytes > 0) memcpy(host->arg, spec.arg, spec.arg_bytes);
    host->disk_bytes_max =
        spec.disk_bytes_max ? spec.disk_bytes_max : (size_t)WEIR_SIM_DISK_BYTES_DEFAULT;
    r = sim_host_begin(sim, host);
    if (r < 0) return r;
    *ret_host = public_of(host);
    return 0;
}

weir_sim_host *weir_sim_host_self(void)
{
    struct sim *sim = sim_now_running();

    return sim && sim->running ? public_of(sim_host_running(sim)) : NULL;
}

void weir_sim_host_kill(weir_sim_host *host)
{
    struct sim_host *victim = host_of(host);
    struct sim *sim = victim->sim;

    if (victim == sim_host_running(victim->sim)) {
        sim_fail(victim->sim, "weir_sim_host_kill: host '%s' kills itself", victim->name);
    }
    if (victim->index == 0) {
        sim_fail(victim->sim, "weir_sim_host_kill: the first host's program ends the run");
    }
    sim_host_kill(sim, victim);
    /* At worker level somebody else may be about to: it is gone when this returns. */
    while (victim->dying && victim->state == HOST_RUNNING) sim_thread_let_others(sim);
}

int weir_sim_host_restart(weir_sim_host *host)
{
    struct sim_host *again = host_of(host);

    /* Killed before its program had begun: as if it was started now. */
    if (again->state == HOST_STARTING && again->kill_wanted) {
        again->kill_wanted = false;
        return 0;
    }
    if (again->state != HOST_STOPPED) {
        return refuse("simulated host '%s': it runs, and cannot be started again", again->name);
    }
    sim_event_stop(&again->restart);
    return sim_host_begin(again->sim, again);
}

/* As a signal would: the host's own worker takes notice at its next turn. */
void weir_sim_host_stop(weir_sim_host *host, int64_t grace_ms)
{
    struct sim_host *stopped = host_of(host);
    struct sim_thread *self = stopped->sim->running;
    bool inside = self->inside;

    self->inside = true; /* nobody closes it meanwhile */
    if (stopped->runtime && runtime_is_open(stopped->runtime)) {
        stopped->runtime->drain_ms = grace_ms;
        atom_store(&stopped->runtime->drain, SIGTERM);
        runtime_wake_all(stopped->runtime);
    }
    self->inside = inside;
}

bool weir_sim_host_running(const weir_sim_host *host)
{
    const struct sim_host *looked_at = host_of(host);

    return looked_at->state != HOST_STOPPED && !looked_at->kill_wanted;
}

int weir_sim_host_result(const weir_sim_host *host)
{
    const struct sim_host *looked_at = host_of(host);

    return looked_at->kill_wanted ? WEIR_ECRASHED : looked_at->result;
}

void weir_sim_partition(weir_sim_host *a, weir_sim_host *b)
{
    host_of(a)->cut_off |= 1U << host_of(b)->index;
    host_of(b)->cut_off |= 1U << host_of(a)->index;
}

void weir_sim_heal(weir_sim_host *a, weir_sim_host *b)
{
    host_of(a)->cut_off &= ~(1U << host_of(b)->index);
    host_of(b)->cut_off &= ~(1U << host_of(a)->index);
    sim_net_healed(host_of(a)->sim);
}

void weir_sim_wall_jump(weir_sim_host *host, int64_t jump_ms)
{
    host_of(host)->wall_jump_ns += jump_ms * INT64_C(1000000);
}

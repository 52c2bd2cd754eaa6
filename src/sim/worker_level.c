/* worker_level.c - see worker_level.h. */
#include "sim/worker_level.h"

#include "base/atomic.h"
#include "sim/world.h"

#if WEIR_SIM_WORKERS

enum { SPIN_POINTS_MAX = 16 };

static void point(const volatile void *address)
{
    struct sim *sim = sim_now_running();
    struct sim_thread *self = sim ? sim->running : NULL;
    unsigned count;

    (void)address;
    if (!self || self->inside || sim->runnable_count == 0) return;
    self->inside = true;
    /* Between two looks of a spin there are fewer: it has gone on. */
    if (++self->points > SPIN_POINTS_MAX) sim->spin_rounds = 0;
    count = sim_thread_candidates(sim);
    if (sim_choose_among(sim, SIM_SWITCH, 2, "", self->id, count) == 1) { sim_thread_preempt(sim); }
    self->inside = false;
}

/* In the simulator itself nothing is waited for: there is nobody to wait for. */
static bool stuck(void)
{
    struct sim *sim = sim_now_running();
    struct sim_thread *self = sim ? sim->running : NULL;

    if (!self || self->inside) return false;
    self->inside = true;
    self->points = 0;
    sim_thread_let_others(sim);
    self->inside = false;
    return true;
}

void worker_level_on(void)
{
    (void)atom_hooks_set(&(struct atom_hooks){.point = point, .stuck = stuck});
}

void worker_level_off(void)
{
    (void)atom_hooks_set(NULL);
}

bool weir_sim_worker_level(void)
{
    return true;
}

#else

void worker_level_on(void)
{
}

void worker_level_off(void)
{
}

bool weir_sim_worker_level(void)
{
    return false;
}

#endif

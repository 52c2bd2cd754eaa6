/* sim.c - choices, time, events and invariants of a run. */
#include "sim/sim.h"

#include <stdio.h>
#include <string.h>

#include "sim/choice.h"
#include "sim/strategy.h"
#include "sim/trace.h"
#include "sim/world.h"

/* ---- Choices ---- */

static unsigned ask(struct sim *sim, const struct question *question, const char *about)
{
    const struct sim_host *host = sim_host_running(sim);
    const struct task *task = task_self();
    unsigned answer = strategy_answer(sim->strategy, question);

    trace_add(sim->trace, sim->now_ns, question->kind, question->n, answer, host ? host->name : "",
              task ? task->name : "", about);
    if (sim->trace->choices > sim->setup->spec->steps_max) {
        sim_fail(sim, "more than %llu choices in one run",
                 (unsigned long long)sim->setup->spec->steps_max);
    }
    return answer;
}

unsigned sim_choose(struct sim *sim, unsigned kind, unsigned n, const char *about)
{
    struct question question = {.kind = kind, .class = choice_row(kind)->class, .n = n};

    if (n <= 1) return 0;
    return ask(sim, &question, about);
}

unsigned sim_choose_among(struct sim *sim, unsigned kind, unsigned n, const char *about,
                          uint64_t running, unsigned id_count)
{
    struct question question = {
        .kind = kind,
        .class = choice_row(kind)->class,
        .n = n,
        .ids = id_count > 0 ? sim->ids : NULL,
        .running = running,
        .id_count = id_count,
    };

    return ask(sim, &question, about);
}

/* In the order of enum sim_fault. */
static unsigned lot_of(const weir_sim_faults *faults, enum sim_fault fault)
{
    switch (fault) {
    case SIM_FAULT_SHORT_IO: return faults->short_io;
    case SIM_FAULT_LATE: return faults->late;
    case SIM_FAULT_RESET: return faults->reset;
    case SIM_FAULT_REFUSE: return faults->refuse;
    case SIM_FAULT_DATAGRAM_LOSS: return faults->datagram_loss;
    case SIM_FAULT_DATAGRAM_TWICE: return faults->datagram_twice;
    case SIM_FAULT_DATAGRAM_ORDER: return faults->datagram_order;
    case SIM_FAULT_DISK_ERROR: return faults->disk_error;
    case SIM_FAULT_DISK_FULL: return faults->disk_full;
    case SIM_FAULT_SYNC_ERROR: return faults->sync_error;
    case SIM_FAULT_NO_MEMORY: return faults->no_memory;
    case SIM_FAULT_CANCEL: return faults->cancel;
    case SIM_FAULT_KILL: return faults->kill;
    case SIM_FAULTS: break;
    }
    return 0;
}

bool sim_fault(struct sim *sim, enum sim_fault fault, const char *about)
{
    const weir_sim_faults *faults = &sim->setup->spec->faults;
    struct question question = {.kind = SIM_FAULT, .class = CLASS_FAULT, .n = 2};

    question.one_in = lot_of(faults, fault);
    if (question.one_in == 0 || sim->ending) return false;
    if (faults->faults_max > 0 && sim->fault_count >= faults->faults_max) return false;
    if (ask(sim, &question, about) == 0) return false;
    sim->fault_count++;
    return true;
}

int64_t sim_late_ms_max(const struct sim *sim)
{
    return sim->setup->spec->faults.late_ms_max;
}

uint64_t sim_amount(struct sim *sim, uint64_t most, const char *about)
{
    unsigned n = most < UINT32_MAX ? (unsigned)most : UINT32_MAX;

    return 1 + (uint64_t)sim_choose(sim, SIM_AMOUNT, n, about);
}

/* splitmix: a counter that is mixed well. */
uint64_t sim_random(struct sim *sim)
{
    uint64_t word = sim->random_state += UINT64_C(0x9e3779b97f4a7c15);

    word = (word ^ (word >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    word = (word ^ (word >> 27)) * UINT64_C(0x94d049bb133111eb);
    return word ^ (word >> 31);
}

/* ---- Time and events ---- */

int64_t sim_now_ns(const struct sim *sim)
{
    return sim->now_ns;
}

void sim_event_init(struct sim_event *event, void (*fire)(struct sim *, struct sim_event *))
{
    list_init(&event->node);
    event->fire = fire;
}

void sim_event_start(struct sim *sim, struct sim_event *event, int64_t at_ns)
{
    struct list *before;

    list_remove(&event->node);
    event->at_ns = at_ns;
    before = sim->events.prev;
    /* From the end: what is new is mostly late. Events of one time stay in order. */
    while (before != &sim->events && container_of(before, struct sim_event, node)->at_ns > at_ns) {
        before = before->prev;
    }
    list_add_head(before, &event->node);
}

void sim_event_stop(struct sim_event *event)
{
    list_remove(&event->node);
}

int64_t sim_next_event_ns(const struct sim *sim)
{
    struct list *first = list_first(&sim->events);

    return first ? container_of(first, struct sim_event, node)->at_ns : INT64_MAX;
}

/* How many of the first events are due at one and the same time. */
static unsigned due_together(const struct sim *sim)
{
    int64_t at_ns = sim_next_event_ns(sim);
    unsigned count = 0;

    list_for_each(node, &sim->events) {
        if (container_of(node, struct sim_event, node)->at_ns != at_ns) break;
        if (++count == SIM_IDS_MAX) break;
    }
    return count;
}

void sim_fire_due(struct sim *sim)
{
    while (sim_next_event_ns(sim) <= sim->now_ns) {
        unsigned index = sim_choose(sim, SIM_EVENT, due_together(sim), "");
        struct list *node = sim->events.next;
        struct sim_event *event;

        while (index-- > 0) node = node->next;
        event = container_of(node, struct sim_event, node);
        list_remove(&event->node);
        sim->idle_rounds = 0;
        event->fire(sim, event);
    }
}

void sim_advance_to(struct sim *sim, int64_t at_ns)
{
    int64_t most_ns = sim->setup->spec->run_ms_max * 1000000;

    if (at_ns > most_ns) {
        sim_fail(sim, "the run has not ended after %lld ms of virtual time",
                 (long long)sim->setup->spec->run_ms_max);
    }
    sim->now_ns = at_ns;
}

/* ---- Invariants ---- */

static void look_at(struct sim *sim, unsigned i, const weir_sim_invariant *invariant)
{
    if (invariant->within_ms == 0) {
        if (!invariant->holds(invariant->arg)) {
            sim_fail(sim, "invariant '%s' does not hold", invariant->name);
        }
        return;
    }
    if (sim->eventually_met & (1U << i)) return;
    /* What comes true when the time is over comes too late: it was looked at when it was not. */
    if (sim->now_ns <= invariant->within_ms * 1000000 && invariant->holds(invariant->arg)) {
        sim->eventually_met |= 1U << i;
    } else if (sim->ending || sim->now_ns > invariant->within_ms * 1000000) {
        sim_fail(sim, "'%s' has not come true within %lld ms", invariant->name,
                 (long long)invariant->within_ms);
    }
}

void sim_look_at_invariants(struct sim *sim)
{
    const weir_sim_invariant *invariants = sim->setup->spec->invariants;

    if (sim->looks_at) {
        sim_fail(sim, "invariant '%s' makes a call that may suspend", sim->looks_at);
    }
    for (unsigned i = 0; i < WEIR_SIM_INVARIANTS_MAX && invariants[i].name; i++) {
        sim->looks_at = invariants[i].name;
        look_at(sim, i, &invariants[i]);
    }
    sim->looks_at = NULL;
}

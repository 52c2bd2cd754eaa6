/* locks.c - what tasks hold: order, suspensions, recursion, ends. */
#include "watch/locks.h"

#include <stdio.h>
#include <string.h>

#include "rt/mem.h"
#include "rt/task.h"
#include "watch/checks.h"

static unsigned long long id_of(const struct task *task)
{
    return (unsigned long long)atom_load(&task->id);
}

static struct checks *checks_of(void)
{
    return worker_self()->runtime->checks;
}

/* ---- Who holds what ---- */

void locks_opened(struct checked_lock *lock, const char *kind, const char *keep_name,
                  ATOM(const char *) * keep_across)
{
    *lock = (struct checked_lock){.kind = kind, .name = keep_name, .across = keep_across};
}

void locks_closed(weir_runtime *runtime, struct checked_lock *lock)
{
    struct checks *checks = runtime->checks;

    lock_acquire(&checks->lock);
    sanitize_unseen_begin(); /* the lock orders it, see sanitize.h */
    order_forget(&checks->order, lock->instance_node);
    lock->instance_node = 0;
    sanitize_unseen_end();
    lock_release(&checks->lock);
}

struct held *locks_find(const struct task *self, const struct checked_lock *lock)
{
    for (struct held *held = self->held; held; held = held->next) {
        if (held->lock == lock) return held;
    }
    return NULL;
}

void locks_taken(struct task *self, struct checked_lock *lock, struct held *held, uintptr_t place)
{
    *held = (struct held){.next = self->held,
                          .lock = lock,
                          .task = self,
                          .task_id = atom_load(&self->id),
                          .place = place};
    self->held = held;
    task_set_attention(self, self->attention | ATTENTION_HELD);
}

void locks_released(struct task *self, struct held *held)
{
    struct held **link = &self->held;

    while (*link && *link != held) link = &(*link)->next;
    if (*link) *link = held->next;
    held->task = NULL;
    if (!self->held) { task_set_attention(self, self->attention & (uint8_t)~ATTENTION_HELD); }
}

/* ---- Their order ---- */

/* The nodes between which the order of two locks is kept. The lock of the checks is held. */
static bool nodes_of(struct order *order, struct checked_lock *from, struct checked_lock *to,
                     uint32_t *ret_from, uint32_t *ret_to)
{
    static ATOM(uint64_t) instances;
    struct checked_lock *both[2] = {from, to};

    for (int i = 0; i < 2; i++) {
        struct checked_lock *lock = both[i];
        if (lock->class_node) continue;
        lock->class_node = order_node(order, lock->kind, lock->name, 0);
    }
    *ret_from = from->class_node;
    *ret_to = to->class_node;
    if (!*ret_from || !*ret_to) return false;
    if (*ret_from != *ret_to) return true;
    for (int i = 0; i < 2; i++) {
        struct checked_lock *lock = both[i];
        if (lock->instance_node) continue;
        if (!lock->instance) lock->instance = atom_add(&instances, 1) + 1;
        lock->instance_node = order_node(order, lock->kind, lock->name, lock->instance);
    }
    *ret_from = from->instance_node;
    *ret_to = to->instance_node;
    return *ret_from && *ret_to;
}

static void fill_edge(struct order_edge *edge, const struct task *self, const struct held *held,
                      uintptr_t place, const struct backtrace *here)
{
    edge->place = place;
    edge->held_place = held->place;
    edge->task_id = atom_load(&self->id);
    (void)snprintf(edge->task, sizeof edge->task, "%s", self->name);
    edge->count = here->count < ORDER_FRAMES_MAX ? here->count : ORDER_FRAMES_MAX;
    memcpy(edge->frames, here->frames, edge->count * sizeof edge->frames[0]);
}

/* A lock that is about to be taken. */
struct taking {
    struct checked_lock *lock;
    const void *handle;
    enum handle_kind kind;
    uintptr_t place;
};

/* The lock of the checks is held: if so, the lock is there until that is let go. */
static bool is_there(const struct taking *taking)
{
    return handle_object(taking->handle, taking->kind) != NULL;
}

/* What is too much for a small stack. */
struct inversion {
    const char *kind; /* of the lock that is taken, ... */
    char name[ORDER_NAME_BYTES];
    struct order_cycle cycle;
    struct order_edge edge;
    struct backtrace here;
};

static void report_edge(struct report *report, const struct order_edge *edge, const char *kind,
                        const char *name, const char *held_kind, const char *held_name, bool now)
{
    struct backtrace frames = {.count = edge->count};

    memcpy(frames.frames, edge->frames, edge->count * sizeof edge->frames[0]);
    report_say(report, "\ntask '%s' #%llu %s %s '%s' while it %s %s '%s' (taken at ", edge->task,
               (unsigned long long)edge->task_id, now ? "takes" : "took", kind, name,
               now ? "holds" : "held", held_kind, held_name);
    report_place(report, edge->held_place);
    report_say(report, "):");
    report_backtrace(report, &frames, edge->place);
}

static void report_inversion(struct checks *checks, const struct inversion *inversion,
                             const struct held *held)
{
    const struct order_cycle *cycle = &inversion->cycle;
    const char *kind = inversion->kind, *name = inversion->name;
    struct report report;

    report_begin(&report, checks);
    report_say(&report, "lock order: %s '%s' and %s '%s' are taken in both orders%s",
               held->lock->kind, held->lock->name, kind, name,
               cycle->count > 1 ? ", with others between" : "");
    report_edge(&report, &inversion->edge, kind, name, held->lock->kind, held->lock->name, true);
    for (unsigned i = 0; i < cycle->count; i++) {
        report_edge(&report, &cycle->edges[i], cycle->locks[i].kind, cycle->locks[i].name, kind,
                    name, false);
        kind = cycle->locks[i].kind;
        name = cycle->locks[i].name;
    }
    if (cycle->cut) report_say(&report, "\nand so on");
    report_end(&report, WEIR_CHECK_ORDER);
}

static void say_full(struct checks *checks)
{
    if (!checks_first(checks, checks_mix(WEIR_CHECK_ORDER, 0))) return;
    log_write(checks->runtime, WEIR_LOG_WARNING, NULL,
              "checks: the order of locks is not watched any further: there are more than %d of "
              "them, or %d pairs, or there was no memory",
              ORDER_NODES_MAX, ORDER_EDGES_MAX);
}

/* Whether the pair is new; then the nodes are in the edge. */
static bool is_new(struct checks *checks, struct checked_lock *from, const struct taking *to,
                   struct order_edge *ret_edge)
{
    bool fresh, full;

    lock_acquire(&checks->lock);
    sanitize_unseen_begin(); /* the lock orders it, see sanitize.h */
    fresh = is_there(to) &&
            nodes_of(&checks->order, from, to->lock, &ret_edge->from, &ret_edge->to) &&
            !order_knows(&checks->order, ret_edge->from, ret_edge->to);
    full = checks->order.full;
    sanitize_unseen_end();
    lock_release(&checks->lock);
    if (__builtin_expect(full, 0)) say_full(checks);
    return fresh;
}

static __attribute__((noinline)) void take_note(struct checks *checks, struct task *self,
                                                const struct taking *taking,
                                                const struct held *held,
                                                const struct order_edge *nodes)
{
    struct inversion *inversion = mem_alloc_zeroed(sizeof *inversion);
    bool inverted;

    if (!inversion) return; /* the next time */
    inversion->edge.from = nodes->from;
    inversion->edge.to = nodes->to;
    backtrace_here(&inversion->here);
    fill_edge(&inversion->edge, self, held, taking->place, &inversion->here);
    lock_acquire(&checks->lock);
    sanitize_unseen_begin(); /* the lock orders it, see sanitize.h */
    /* If not, its node may be another's by now. */
    inverted = is_there(taking) && !order_knows(&checks->order, nodes->from, nodes->to) &&
               order_add(&checks->order, &inversion->edge, &inversion->cycle);
    if (inverted) {
        inversion->kind = taking->lock->kind;
        (void)snprintf(inversion->name, sizeof inversion->name, "%s", taking->lock->name);
    }
    sanitize_unseen_end();
    lock_release(&checks->lock);
    if (inverted) report_inversion(checks, inversion, held);
    mem_free(inversion);
}

void locks_taking(struct task *self, struct checked_lock *lock, const void *handle,
                  enum handle_kind kind, uintptr_t place)
{
    struct checks *checks = checks_of();
    struct taking taking = {lock, handle, kind, place};
    struct order_edge nodes = {.from = 0};

    for (const struct held *held = self->held; held; held = held->next) {
        if (held->lock == lock) continue;
        if (is_new(checks, held->lock, &taking, &nodes)) {
            take_note(checks, self, &taking, held, &nodes);
        }
    }
}

/* ---- Across a suspension ---- */

/* Without this file's own frame. */
static void drop_own(struct backtrace *here)
{
    if (here->count == 0) return;
    here->count--;
    memmove(here->frames, here->frames + 1, here->count * sizeof here->frames[0]);
}

/* Where the program made its call: the frame of the public call, and the one that made it. 0
 * when it is not known. */
static uint64_t place_of_call(const struct report *report, const struct backtrace *here)
{
    unsigned first = report->symbols ? backtrace_first(here, report->symbols) : 0;

    if (!report->symbols || first + 1 >= here->count) return 0;
    return checks_mix(checks_mix(WEIR_CHECK_ACROSS, here->frames[first]), here->frames[first + 1]);
}

static __attribute__((noinline)) void report_across(struct task *self, const struct held *held,
                                                    const struct backtrace *here)
{
    struct report report;
    uint64_t call;

    report_begin(&report, checks_of());
    call = place_of_call(&report, here);
    if (call && !checks_first(checks_of(), checks_mix(call, held->place))) {
        report_drop(&report); /* the same two places, reached another way */
        return;
    }
    report_say(&report, "lock across a suspension: task '%s' #%llu holds %s '%s' (taken at ",
               self->name, id_of(self), held->lock->kind, held->lock->name);
    report_place(&report, held->place);
    report_say(&report, ") and makes a call that may suspend:");
    report_backtrace(&report, here, 0);
    report_end(&report, WEIR_CHECK_ACROSS);
}

void checks_suspends(struct task *self)
{
    struct backtrace *here = NULL;
    uint64_t key = 0;

    for (const struct held *held = self->held; held; held = held->next) {
        if (atom_load(held->lock->across)) continue;
        if (!here) {
            here = mem_alloc(sizeof *here);
            if (!here) return;
            backtrace_here(here);
            drop_own(here);
            /* A way there that was looked at is not looked up again. */
            for (unsigned i = 0; i < here->count && i < 6; i++) {
                key = checks_mix(key, here->frames[i]);
            }
        }
        if (checks_first(checks_of(), checks_mix(key, held->place))) {
            report_across(self, held, here);
        }
    }
    mem_free(here);
}

/* ---- Recursion, and ends ---- */

void locks_recursion(struct task *self, struct checked_lock *lock, const struct held *held,
                     uintptr_t place, bool refused)
{
    struct checks *checks = checks_of();
    struct backtrace *here = mem_alloc(sizeof *here);
    struct report report;
    uint64_t key = checks_mix(WEIR_CHECK_RECURSION, held ? held->place : 0);

    if (!here) return;
    backtrace_here(here);
    if (checks_first(checks, checks_mix(key, place))) {
        report_begin(&report, checks);
        report_say(&report, "lock taken twice: task '%s' #%llu has %s '%s' (taken at ", self->name,
                   id_of(self), lock->kind, lock->name);
        report_place(&report, held ? held->place : 0);
        report_say(&report, ") and takes it again, which %s:",
                   refused ? "is refused" : "blocks as soon as a writer waits between");
        report_backtrace(&report, here, place);
        report_end(&report, WEIR_CHECK_RECURSION);
    }
    mem_free(here);
}

void checks_ends(struct task *task)
{
    struct report report;
    struct held *held;

    while ((held = task->held)) {
        task->held = held->next;
        held->ended = true;
        if (!checks_first(checks_of(), checks_mix(WEIR_CHECK_LEAK, held->place))) continue;
        report_begin(&report, checks_of());
        report_say(&report, "leak: task '%s' #%llu has ended with %s '%s' (taken at ", task->name,
                   id_of(task), held->lock->kind, held->lock->name);
        report_place(&report, held->place);
        report_say(&report, ")");
        report_end(&report, WEIR_CHECK_LEAK);
    }
    task_set_attention(task, task->attention & (uint8_t)~ATTENTION_HELD);
}

/* semaphore.c - permits, first come first served: one who wants many is not passed by. */
#include <stdio.h>
#include <weir/sync.h>

#include "base/planted.h"
#include "flow/line.h"
#include "policy/bulkhead.h"
#include "rt/mem.h"
#include "watch/locks.h"

/* A task that has permits, if it is kept who has: it names itself, and gives them back. */
struct taker {
    struct list node; /* in semaphore->takers; covered by the lock */
    const struct task *task;
    uint64_t task_id; /* another, or none: it has ended */
    size_t count;
    uintptr_t place;
};

struct weir_semaphore {
    struct line line;
    struct bulkhead permits;
    size_t permits_max;
    ATOM(bool) keeps_takers; /* they are kept: it was promised, and is checked */
    struct list takers;      /* of `known` permits */
    size_t known;
};

/* Of permits that others could give back, or make by a resize, nobody is known. Who is first
 * waits for those who have some, the others for the one before them. */
static void semaphore_facts(const void *object, struct waiting *ret_waiting)
{
    const struct line_waiter *waiter = object;
    const weir_semaphore *semaphore = container_of(waiter->line, struct weir_semaphore, line);
    struct list *before = waiter->waiter.node.prev;

    waiter_facts_of(waiter->waiter.object, ret_waiting);
    if (list_empty(&waiter->waiter.node)) { /* it has got them */
        ret_waiting->ends = ENDS_OUTSIDE;
        return;
    }
    if (!atom_load(&semaphore->keeps_takers) || semaphore->known != semaphore->permits.inside ||
        semaphore->permits.limit != semaphore->permits_max) {
        return;
    }
    if (before != &semaphore->line.sync.waiters) {
        ret_waiting->ends = ENDS_WITH_ALL;
        waiting_by(ret_waiting, container_of(before, struct waiter, node)->task, 0);
        return;
    }
    ret_waiting->ends = ENDS_WITH_ANY;
    list_for_each(node, &semaphore->takers) {
        const struct taker *taker = container_of(node, struct taker, node);
        if (atom_load(&taker->task->id) != taker->task_id) continue;
        waiting_by(ret_waiting, taker->task, taker->place);
    }
    ret_waiting->gone = ret_waiting->by_count == 0;
}

static const struct wait_kind wait_semaphore = {
    .name = "semaphore",
    .abort = line_abort,
    .describe = waiter_describe,
    .what = WAIT_FOR_PERMIT,
    .ends = ENDS_WITH_TASKS,
    .facts = semaphore_facts,
};

/* The lock is held. */
static void forget_takers(weir_semaphore *semaphore)
{
    struct list *node;

    atom_store(&semaphore->keeps_takers, false);
    while ((node = list_pop(&semaphore->takers))) mem_free(container_of(node, struct taker, node));
}

static void semaphore_release(struct worker *worker, struct belonging *belonging)
{
    weir_semaphore *semaphore =
        container_of(belonging, struct weir_semaphore, line.sync.object.belonging);

    sync_lock(&semaphore->line.sync);
    forget_takers(semaphore);
    sync_unlock(&semaphore->line.sync);
    sync_release(worker, belonging);
}

static bool semaphore_boundary(struct belonging *belonging, unsigned row,
                               struct boundary *ret_boundary)
{
    struct weir_semaphore *semaphore =
        container_of(belonging, struct weir_semaphore, line.sync.object.belonging);

    if (row > 0) return false;
    (void)snprintf(ret_boundary->bound, sizeof ret_boundary->bound,
                   "%zu permits (at most %zu), %zu may wait", semaphore->permits.limit,
                   semaphore->permits_max, semaphore->line.waiters_max);
    ret_boundary->overflow = line_overflow(&semaphore->line);
    if (sync_boundary(&semaphore->line.sync, ret_boundary)) {
        boundary_figure(ret_boundary, "taken", semaphore->permits.inside);
        sync_boundary_end(&semaphore->line.sync);
    }
    return true;
}

static bool semaphore_take(struct line *line, size_t count)
{
    return bulkhead_enter(&container_of(line, struct weir_semaphore, line)->permits, count);
}

static const struct line_kind semaphore_kind = {
    .sync = {.belonging = {.name = "semaphore",
                           .signalled = sync_signalled,
                           .release = semaphore_release,
                           .describe = sync_describe,
                           .boundary = semaphore_boundary,
                           .is_passive = belonging_is_passive},
             .handle = HANDLE_SEMAPHORE,
             .what = "semaphore"},
    .take = semaphore_take,
};

static weir_semaphore *look_up(const weir_semaphore *handle, const char *call)
{
    return flow_look_up(handle, HANDLE_SEMAPHORE, "semaphore", call);
}

/* ---- Who has them ---- */

static struct taker *taker_of(const weir_semaphore *semaphore, const struct task *task)
{
    list_for_each(node, &semaphore->takers) {
        struct taker *taker = container_of(node, struct taker, node);
        if (taker->task == task && taker->task_id == atom_load(&task->id)) return taker;
    }
    return NULL;
}

/* The task has got some. What was taken by no task, or for lack of memory by nobody who is known,
 * can be given back by anybody: then it is not kept any more. */
static void note_taken(const weir_semaphore *handle, weir_semaphore *semaphore, struct task *self,
                       size_t count, uintptr_t place)
{
    struct taker *made = self ? mem_alloc_zeroed(sizeof *made) : NULL;
    struct taker *taker;

    sync_lock(&semaphore->line.sync);
    if (!flow_names(handle, HANDLE_SEMAPHORE, semaphore)) { /* closed meanwhile: another's memory */
        sync_unlock(&semaphore->line.sync);
        mem_free(made);
        return;
    }
    taker = self ? taker_of(semaphore, self) : NULL;
    if (!taker && made) {
        taker = made;
        taker->task = self;
        taker->task_id = atom_load(&self->id);
        taker->place = place;
        list_add_tail(&semaphore->takers, &taker->node);
        made = NULL;
    }
    if (taker) {
        taker->count += count;
        semaphore->known += count;
    } else {
        forget_takers(semaphore);
    }
    sync_unlock(&semaphore->line.sync);
    mem_free(made);
}

/* The lock is held. A promise that is not kept is not relied on any more. */
static void note_released(weir_semaphore *semaphore, const struct task *self, size_t count)
{
    struct taker *taker = self ? taker_of(semaphore, self) : NULL;

    if (!taker || taker->count < count) {
        forget_takers(semaphore);
        return;
    }
    taker->count -= count;
    semaphore->known -= count;
    if (taker->count > 0) return;
    list_remove(&taker->node);
    mem_free(taker);
}

static int check_spec(const weir_semaphore_spec *spec)
{
    const char *name = spec->name;
    int r = flow_check_name("semaphore", name);
    if (r < 0) return r;
    if (spec->permits == 0) return refuse("semaphore '%s': permits is not set", name);
    if (spec->permits_max && spec->permits_max < spec->permits) {
        return refuse("semaphore '%s': permits_max is less than permits", name);
    }
    return line_check_spec("semaphore", name, spec->overflow, spec->waiters_max);
}

int weir_semaphore_open_sized(weir_scope *scope, size_t spec_bytes,
                              const weir_semaphore_spec *given, weir_semaphore **ret_semaphore)
{
    weir_semaphore_spec spec;
    weir_semaphore *semaphore;
    struct sync *sync;
    int r;

    if (!worker_self()) return refuse_no_task("weir_semaphore_open");
    spec_copy(&spec, sizeof spec, given, spec_bytes);
    r = check_spec(&spec);
    if (r < 0) return r;
    r = sync_open(scope, &semaphore_kind.sync, sizeof *semaphore, spec.name, "weir_semaphore_open",
                  &sync);
    if (r < 0) return r;
    semaphore = container_of(sync, struct weir_semaphore, line.sync);
    bulkhead_init(&semaphore->permits, &(struct bulkhead_rules){.limit = spec.permits});
    semaphore->permits_max = spec.permits_max ? spec.permits_max : spec.permits;
    semaphore->line.waiters_max = spec.waiters_max;
    list_init(&semaphore->takers);
    atom_store(&semaphore->keeps_takers,
               spec.taker_releases && worker_self()->runtime->deadlock_checks);
    *ret_semaphore = sync->handle;
    return 0;
}

/* The lock is held: take them if they are there and nobody waits for them. */
static bool take_now(weir_semaphore *semaphore, size_t count)
{
    return semaphore->line.waiting == 0 && bulkhead_enter(&semaphore->permits, count);
}

static int refuse_count(const weir_semaphore *semaphore, size_t count)
{
    return refuse("semaphore '%s': %zu permits can never be had, there are 1 to %zu",
                  semaphore->line.sync.object.name, count, semaphore->permits_max);
}

int weir_semaphore_acquire(weir_semaphore *handle, size_t count)
{
    weir_semaphore *semaphore = look_up(handle, "weir_semaphore_acquire");
    struct task *self = task_self();
    int r;

    if (!self) return refuse_no_task("weir_semaphore_acquire");
    if (count == 0 || count > semaphore->permits_max) return refuse_count(semaphore, count);
    r = task_enter(self, ENTER_PLAIN);
    if (r < 0) return r;
    sync_lock(&semaphore->line.sync);
    if (!flow_names(handle, HANDLE_SEMAPHORE, semaphore)) {
        sync_unlock(&semaphore->line.sync);
        r = WEIR_ECLOSED;
    } else if (take_now(semaphore, count)) {
        sync_unlock(&semaphore->line.sync);
    } else {
        r = line_wait(&semaphore->line, self, count, &wait_semaphore);
    }
    sanitize_acquire(semaphore);
    if (PLANTED(PERMIT_LEAK) && r == 0) r = task_interruption(self, false);
    if (r == 0 && atom_load(&semaphore->keeps_takers)) {
        note_taken(handle, semaphore, self, count, CALLER_PLACE());
    }
    return r;
}

int weir_semaphore_try_acquire(weir_semaphore *handle, size_t count)
{
    weir_semaphore *semaphore = look_up(handle, "weir_semaphore_try_acquire");
    bool taken;

    flow_check_worker("weir_semaphore_try_acquire");
    if (count == 0 || count > semaphore->permits_max) return refuse_count(semaphore, count);
    sync_lock(&semaphore->line.sync);
    taken = take_now(semaphore, count);
    sync_unlock(&semaphore->line.sync);
    sanitize_acquire(semaphore);
    if (taken && atom_load(&semaphore->keeps_takers)) {
        note_taken(handle, semaphore, task_self(), count, CALLER_PLACE());
    }
    return taken ? 0 : WEIR_EOVERLOAD;
}

void weir_semaphore_release(weir_semaphore *handle, size_t count)
{
    weir_semaphore *semaphore = look_up(handle, "weir_semaphore_release");
    struct worker *worker = worker_self();
    size_t taken;

    flow_check_worker("weir_semaphore_release");
    sanitize_release(semaphore);
    sync_lock(&semaphore->line.sync);
    taken = semaphore->permits.inside;
    if (atom_load(&semaphore->keeps_takers)) note_released(semaphore, task_self(), count);
    if (bulkhead_leave(&semaphore->permits, count)) line_grant(&semaphore->line);
    sync_unlock(&semaphore->line.sync);
    if (count > taken) {
        misuse("weir_semaphore_release: semaphore '%s': %zu permits are given back, %zu were taken",
               semaphore->line.sync.object.name, count, taken);
    }
    worker_touched(worker);
}

int weir_semaphore_resize(weir_semaphore *handle, size_t permits)
{
    weir_semaphore *semaphore = look_up(handle, "weir_semaphore_resize");
    flow_check_worker("weir_semaphore_resize");
    if (permits == 0 || permits > semaphore->permits_max) {
        return refuse("semaphore '%s': permits %zu is not within 1 and permits_max, %zu",
                      semaphore->line.sync.object.name, permits, semaphore->permits_max);
    }
    sync_lock(&semaphore->line.sync);
    bulkhead_resize(&semaphore->permits, permits);
    line_grant(&semaphore->line);
    sync_unlock(&semaphore->line.sync);
    worker_touched(worker_self());
    return 0;
}

void weir_semaphore_close(weir_semaphore *take_semaphore)
{
    if (take_semaphore) sync_close(take_semaphore, &semaphore_kind.sync, "weir_semaphore_close");
}

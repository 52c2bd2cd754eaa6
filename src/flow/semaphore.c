/* semaphore.c - permits, first come first served: one who wants many is not passed by. */
#include <stdio.h>
#include <weir/sync.h>

#include "flow/sync.h"

struct weir_semaphore {
    struct sync sync;
    size_t permits; /* that there are in all */
    size_t permits_max;
    size_t taken;
    size_t waiters_max;
    size_t waiting;
};

struct semaphore_waiter {
    struct waiter waiter; /* the first member */
    weir_semaphore *semaphore;
    size_t count;
};

/* One that waits has been interrupted: it may have been in the way of others. */
static void grant(weir_semaphore *semaphore);
static bool semaphore_abort(struct task *task, void *object)
{
    struct semaphore_waiter *waiter = object;
    weir_semaphore *semaphore = waiter->semaphore;
    bool waiting;

    (void)task;
    sync_lock(&semaphore->sync);
    waiting = !list_empty(&waiter->waiter.node);
    if (waiting) {
        list_remove(&waiter->waiter.node);
        semaphore->waiting--;
        grant(semaphore);
    }
    sync_unlock(&semaphore->sync);
    return waiting;
}

static const struct wait_kind wait_semaphore = {
    .name = "semaphore", .abort = semaphore_abort, .describe = waiter_describe};

static bool semaphore_boundary(struct belonging *belonging, unsigned row,
                               struct boundary *ret_boundary)
{
    struct weir_semaphore *semaphore =
        container_of(belonging, struct weir_semaphore, sync.object.belonging);

    if (row > 0) return false;
    (void)snprintf(ret_boundary->bound, sizeof ret_boundary->bound,
                   "%zu permits (at most %zu), %zu may wait", semaphore->permits,
                   semaphore->permits_max, semaphore->waiters_max);
    ret_boundary->overflow = semaphore->waiters_max > 0 ? "wait, then reject" : "reject";
    if (sync_boundary(&semaphore->sync, ret_boundary)) {
        boundary_figure(ret_boundary, "taken", semaphore->taken);
        sync_boundary_end(&semaphore->sync);
    }
    return true;
}

static const struct sync_kind semaphore_kind = {
    .belonging = {.name = "semaphore",
                  .signalled = sync_signalled,
                  .release = sync_release,
                  .describe = sync_describe,
                  .boundary = semaphore_boundary},
    .handle = HANDLE_SEMAPHORE,
    .what = "semaphore",
};

static weir_semaphore *look_up(const weir_semaphore *handle, const char *call)
{
    return flow_look_up(handle, HANDLE_SEMAPHORE, "semaphore", call);
}

static bool there_are(const weir_semaphore *semaphore, size_t count)
{
    return semaphore->taken <= semaphore->permits && count <= semaphore->permits - semaphore->taken;
}

/* Permits came back: to those who wait, in order. The lock is held. */
static void grant(weir_semaphore *semaphore)
{
    struct list *node;
    while ((node = list_first(&semaphore->sync.waiters))) {
        struct waiter *waiter = container_of(node, struct waiter, node);
        size_t count = container_of(waiter, struct semaphore_waiter, waiter)->count;
        if (!there_are(semaphore, count)) return;
        list_remove(node);
        semaphore->taken += count;
        semaphore->waiting--;
        waiter_wake(waiter, 0);
    }
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
    switch (spec->overflow) {
    case WEIR_WAIT:
        if (spec->waiters_max == 0) return refuse("semaphore '%s': waiters_max is not set", name);
        return 0;
    case WEIR_REJECT:
        if (spec->waiters_max > 0) {
            return refuse("semaphore '%s': with WEIR_REJECT nobody waits, waiters_max must be 0",
                          name);
        }
        return 0;
    case WEIR_OVERFLOW_UNSET: return refuse("semaphore '%s': overflow is not set", name);
    default: return refuse("semaphore '%s': overflow must be WEIR_WAIT or WEIR_REJECT", name);
    }
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
    r = sync_open(scope, &semaphore_kind, sizeof *semaphore, spec.name, "weir_semaphore_open",
                  &sync);
    if (r < 0) return r;
    semaphore = container_of(sync, struct weir_semaphore, sync);
    semaphore->permits = spec.permits;
    semaphore->permits_max = spec.permits_max ? spec.permits_max : spec.permits;
    semaphore->waiters_max = spec.waiters_max;
    *ret_semaphore = sync->handle;
    return 0;
}

/* The lock is held: take them if they are there and nobody waits for them. */
static bool take_now(weir_semaphore *semaphore, size_t count)
{
    if (semaphore->waiting > 0 || !there_are(semaphore, count)) return false;
    semaphore->taken += count;
    return true;
}

static int refuse_count(const weir_semaphore *semaphore, size_t count)
{
    return refuse("semaphore '%s': %zu permits can never be had, there are 1 to %zu",
                  semaphore->sync.object.name, count, semaphore->permits_max);
}

int weir_semaphore_acquire(weir_semaphore *handle, size_t count)
{
    weir_semaphore *semaphore = look_up(handle, "weir_semaphore_acquire");
    struct semaphore_waiter waiter = {.semaphore = semaphore, .count = count};
    struct task *self = task_self();
    int r;

    if (!self) return refuse_no_task("weir_semaphore_acquire");
    if (count == 0 || count > semaphore->permits_max) return refuse_count(semaphore, count);
    r = task_enter(self, ENTER_PLAIN);
    if (r < 0) return r;
    sync_lock(&semaphore->sync);
    if (!flow_names(handle, HANDLE_SEMAPHORE, semaphore)) {
        sync_unlock(&semaphore->sync);
        r = WEIR_ECLOSED;
    } else if (take_now(semaphore, count)) {
        sync_unlock(&semaphore->sync);
    } else if (semaphore->waiting >= semaphore->waiters_max) {
        sync_unlock(&semaphore->sync);
        r = WEIR_EOVERLOAD;
    } else {
        semaphore->waiting++;
        r = sync_wait(&semaphore->sync, self, &waiter.waiter, &wait_semaphore);
    }
    sanitize_acquire(semaphore);
    return r;
}

int weir_semaphore_try_acquire(weir_semaphore *handle, size_t count)
{
    weir_semaphore *semaphore = look_up(handle, "weir_semaphore_try_acquire");
    bool taken;

    flow_check_worker("weir_semaphore_try_acquire");
    if (count == 0 || count > semaphore->permits_max) return refuse_count(semaphore, count);
    sync_lock(&semaphore->sync);
    taken = take_now(semaphore, count);
    sync_unlock(&semaphore->sync);
    sanitize_acquire(semaphore);
    return taken ? 0 : WEIR_EOVERLOAD;
}

void weir_semaphore_release(weir_semaphore *handle, size_t count)
{
    weir_semaphore *semaphore = look_up(handle, "weir_semaphore_release");
    struct worker *worker = worker_self();
    size_t taken;

    flow_check_worker("weir_semaphore_release");
    sanitize_release(semaphore);
    sync_lock(&semaphore->sync);
    taken = semaphore->taken;
    if (count <= taken) {
        semaphore->taken -= count;
        grant(semaphore);
    }
    sync_unlock(&semaphore->sync);
    if (count > taken) {
        misuse("weir_semaphore_release: semaphore '%s': %zu permits are given back, %zu were taken",
               semaphore->sync.object.name, count, taken);
    }
    worker_touched(worker);
}

int weir_semaphore_resize(weir_semaphore *handle, size_t permits)
{
    weir_semaphore *semaphore = look_up(handle, "weir_semaphore_resize");
    flow_check_worker("weir_semaphore_resize");
    if (permits == 0 || permits > semaphore->permits_max) {
        return refuse("semaphore '%s': permits %zu is not within 1 and permits_max, %zu",
                      semaphore->sync.object.name, permits, semaphore->permits_max);
    }
    sync_lock(&semaphore->sync);
    semaphore->permits = permits;
    grant(semaphore);
    sync_unlock(&semaphore->sync);
    worker_touched(worker_self());
    return 0;
}

void weir_semaphore_close(weir_semaphore *take_semaphore)
{
    if (take_semaphore) sync_close(take_semaphore, &semaphore_kind, "weir_semaphore_close");
}

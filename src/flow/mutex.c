/* mutex.c - handed from task to task in the order in which they came. */
#include <stdio.h>
#include <weir/sync.h>

#include "flow/sync.h"

struct weir_mutex {
    struct sync sync;
    ATOM(struct task *) holder; /* written under the lock; a task may ask whether it is itself */
};

static const struct wait_kind wait_mutex = {
    .name = "mutex", .abort = waiter_abort, .describe = waiter_describe};

static void mutex_check_end(struct flow_object *object)
{
    const weir_mutex *mutex = container_of(object, struct weir_mutex, sync.object);
    const struct task *holder = atom_load(&mutex->holder);
    if (holder) { misuse("mutex '%s' ends while task '%s' holds it", object->name, holder->name); }
}

static bool mutex_boundary(struct belonging *belonging, unsigned row, struct boundary *ret_boundary)
{
    struct weir_mutex *mutex = container_of(belonging, struct weir_mutex, sync.object.belonging);

    if (row > 0) return false;
    (void)snprintf(ret_boundary->bound, sizeof ret_boundary->bound,
                   "1 holder; as many may wait as there are tasks");
    ret_boundary->overflow = boundary_overflow(WEIR_WAIT);
    if (sync_boundary(&mutex->sync, ret_boundary)) {
        boundary_figure(ret_boundary, "held", atom_load(&mutex->holder) != NULL);
        sync_boundary_end(&mutex->sync);
    }
    return true;
}

static const struct sync_kind mutex_kind = {
    .belonging = {.name = "mutex",
                  .signalled = sync_signalled,
                  .release = sync_release,
                  .describe = sync_describe,
                  .boundary = mutex_boundary},
    .handle = HANDLE_MUTEX,
    .what = "mutex",
    .check_end = mutex_check_end,
};

static weir_mutex *look_up(const weir_mutex *handle, const char *call)
{
    return flow_look_up(handle, HANDLE_MUTEX, "mutex", call);
}

int weir_mutex_open(weir_scope *scope, const char *name, weir_mutex **ret_mutex)
{
    struct sync *sync;
    int r =
        sync_open(scope, &mutex_kind, sizeof(struct weir_mutex), name, "weir_mutex_open", &sync);
    if (r == 0) *ret_mutex = sync->handle;
    return r;
}

static __attribute__((noinline)) int lock_slowly(weir_mutex *handle)
{
    weir_mutex *mutex = look_up(handle, "weir_mutex_lock");
    struct task *self = task_self();
    struct waiter waiter = {.item = NULL};
    int r;

    if (__builtin_expect(!self, 0)) return refuse_no_task("weir_mutex_lock");
    r = task_enter(self, ENTER_PLAIN);
    if (__builtin_expect(r < 0, 0)) return r;
    if (__builtin_expect(atom_load(&mutex->holder) == self, 0)) {
        return refuse("mutex '%s': task '%s' holds it already", mutex->sync.object.name,
                      self->name);
    }
    sync_lock(&mutex->sync);
    if (!flow_names(handle, HANDLE_MUTEX, mutex)) {
        sync_unlock(&mutex->sync);
        r = WEIR_ECLOSED;
    } else if (!atom_load(&mutex->holder)) {
        atom_store(&mutex->holder, self);
        sync_unlock(&mutex->sync);
    } else {
        r = sync_wait(&mutex->sync, self, &waiter, &wait_mutex);
    }
    sanitize_acquire(mutex);
    return r;
}

int weir_mutex_lock(weir_mutex *handle)
{
    weir_mutex *mutex = handle_object(handle, HANDLE_MUTEX);
    struct task *self = task_self();

    if (__builtin_expect(!mutex || !self || mutex->sync.object.stable.shared ||
                             atom_load(&mutex->holder) || self->attention != 0 || self->budget <= 0,
                         0)) {
        return lock_slowly(handle);
    }
    self->budget--;
    atom_store(&mutex->holder, self);
    sanitize_acquire(mutex);
    return 0;
}

static __attribute__((noinline)) void unlock_slowly(weir_mutex *handle)
{
    weir_mutex *mutex = look_up(handle, "weir_mutex_unlock");
    struct task *self = task_self();
    struct waiter *next;

    if (__builtin_expect(!self || atom_load(&mutex->holder) != self, 0)) {
        const struct task *holder = atom_load(&mutex->holder);
        misuse("weir_mutex_unlock: mutex '%s' is held by %s%s%s, not by the caller",
               mutex->sync.object.name, holder ? "task '" : "nobody", holder ? holder->name : "",
               holder ? "'" : "");
    }
    sanitize_release(mutex);
    sync_lock(&mutex->sync);
    next = waiter_pop(&mutex->sync.waiters);
    atom_store(&mutex->holder, next ? next->task : NULL);
    if (next) waiter_wake(next, 0);
    sync_unlock(&mutex->sync);
}

void weir_mutex_unlock(weir_mutex *handle)
{
    weir_mutex *mutex = handle_object(handle, HANDLE_MUTEX);
    struct task *self = task_self();

    if (__builtin_expect(!mutex || !self || mutex->sync.object.stable.shared ||
                             atom_load(&mutex->holder) != self || !list_empty(&mutex->sync.waiters),
                         0)) {
        unlock_slowly(handle);
        return;
    }
    sanitize_release(mutex);
    atom_store(&mutex->holder, NULL);
}

void weir_mutex_close(weir_mutex *take_mutex)
{
    if (take_mutex) sync_close(take_mutex, &mutex_kind, "weir_mutex_close");
}

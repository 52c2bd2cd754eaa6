/* rwlock.c - many readers or one writer, in order of arrival. */
#include <stdio.h>
#include <weir/sync.h>

#include "flow/sync.h"

struct weir_rwlock {
    struct sync sync;
    size_t readers;
    struct task *writer;
};

struct rwlock_waiter {
    struct waiter waiter; /* the first member */
    weir_rwlock *lock;
    bool writes;
};

static void grant(weir_rwlock *lock);

/* A writer that goes away lets the readers behind it in. */
static bool rwlock_abort(struct task *task, void *object)
{
    struct rwlock_waiter *waiter = object;
    weir_rwlock *lock = waiter->lock;
    bool waiting;

    (void)task;
    sync_lock(&lock->sync);
    waiting = !list_empty(&waiter->waiter.node);
    if (waiting) {
        list_remove(&waiter->waiter.node);
        grant(lock);
    }
    sync_unlock(&lock->sync);
    return waiting;
}

static const struct wait_kind wait_read = {
    .name = "read lock", .abort = rwlock_abort, .describe = waiter_describe};
static const struct wait_kind wait_write = {
    .name = "write lock", .abort = rwlock_abort, .describe = waiter_describe};

static void rwlock_check_end(struct flow_object *object)
{
    const weir_rwlock *lock = container_of(object, struct weir_rwlock, sync.object);
    if (lock->writer) {
        misuse("read-write lock '%s' ends while task '%s' writes", object->name,
               lock->writer->name);
    }
    if (lock->readers > 0) {
        misuse("read-write lock '%s' ends while %zu tasks read", object->name, lock->readers);
    }
}

static bool rwlock_boundary(struct belonging *belonging, unsigned row,
                            struct boundary *ret_boundary)
{
    struct weir_rwlock *lock = container_of(belonging, struct weir_rwlock, sync.object.belonging);

    if (row > 0) return false;
    (void)snprintf(ret_boundary->bound, sizeof ret_boundary->bound,
                   "1 writer or any readers; as many may wait as there are tasks");
    ret_boundary->overflow = boundary_overflow(WEIR_WAIT);
    if (sync_boundary(&lock->sync, ret_boundary)) {
        boundary_figure(ret_boundary, "readers", lock->readers);
        boundary_figure(ret_boundary, "writers", lock->writer != NULL);
        sync_boundary_end(&lock->sync);
    }
    return true;
}

static const struct sync_kind rwlock_kind = {
    .belonging = {.name = "read-write lock",
                  .signalled = sync_signalled,
                  .release = sync_release,
                  .describe = sync_describe,
                  .boundary = rwlock_boundary},
    .handle = HANDLE_RWLOCK,
    .what = "read-write lock",
    .check_end = rwlock_check_end,
};

static weir_rwlock *look_up(const weir_rwlock *handle, const char *call)
{
    return flow_look_up(handle, HANDLE_RWLOCK, "read-write lock", call);
}

int weir_rwlock_open(weir_scope *scope, const char *name, weir_rwlock **ret_lock)
{
    struct sync *sync;
    int r =
        sync_open(scope, &rwlock_kind, sizeof(struct weir_rwlock), name, "weir_rwlock_open", &sync);
    if (r == 0) *ret_lock = sync->handle;
    return r;
}

/* The lock is held. */
static bool enter(weir_rwlock *lock, struct task *task, bool writes)
{
    if (lock->writer || (writes && lock->readers > 0)) return false;
    if (writes) {
        lock->writer = task;
    } else {
        lock->readers++;
    }
    return true;
}

/* Whoever is first in the queue and can go on, does. The lock is held. */
static void grant(weir_rwlock *lock)
{
    struct list *node;
    while ((node = list_first(&lock->sync.waiters))) {
        struct rwlock_waiter *waiter = container_of(node, struct rwlock_waiter, waiter.node);
        if (!enter(lock, waiter->waiter.task, waiter->writes)) return;
        list_remove(node);
        waiter_wake(&waiter->waiter, 0);
    }
}

static int take(const weir_rwlock *handle, bool writes, const char *call)
{
    weir_rwlock *lock = look_up(handle, call);
    struct rwlock_waiter waiter = {.lock = lock, .writes = writes};
    struct task *self = task_self();
    int r;

    if (!self) return refuse_no_task(call);
    r = task_enter(self, ENTER_PLAIN);
    if (r < 0) return r;
    sync_lock(&lock->sync);
    if (!flow_names(handle, HANDLE_RWLOCK, lock)) {
        sync_unlock(&lock->sync);
        return WEIR_ECLOSED;
    }
    if (lock->writer == self) {
        sync_unlock(&lock->sync);
        return refuse("read-write lock '%s': task '%s' holds it for writing already",
                      lock->sync.object.name, self->name);
    }
    if (list_empty(&lock->sync.waiters) && enter(lock, self, writes)) {
        sync_unlock(&lock->sync);
    } else {
        r = sync_wait(&lock->sync, self, &waiter.waiter, writes ? &wait_write : &wait_read);
    }
    sanitize_acquire(lock);
    return r;
}

int weir_rwlock_read(weir_rwlock *handle)
{
    return take(handle, false, "weir_rwlock_read");
}

int weir_rwlock_write(weir_rwlock *handle)
{
    return take(handle, true, "weir_rwlock_write");
}

void weir_rwlock_unlock(weir_rwlock *handle)
{
    weir_rwlock *lock = look_up(handle, "weir_rwlock_unlock");
    struct task *self = task_self();
    bool held;

    sanitize_release(lock);
    sync_lock(&lock->sync);
    held = self && (lock->writer ? lock->writer == self : lock->readers > 0);
    if (held) {
        if (lock->writer) {
            lock->writer = NULL;
        } else {
            lock->readers--;
        }
        grant(lock);
    }
    sync_unlock(&lock->sync);
    if (!held) {
        misuse("weir_rwlock_unlock: read-write lock '%s' is not held by the caller",
               lock->sync.object.name);
    }
}

void weir_rwlock_close(weir_rwlock *take_lock)
{
    if (take_lock) sync_close(take_lock, &rwlock_kind, "weir_rwlock_close");
}

/* rwlock.c - many readers or one writer, in order of arrival. */
#include <stdio.h>
#include <weir/sync.h>

#include "base/planted.h"
#include "flow/sync.h"
#include "rt/mem.h"
#include "watch/locks.h"

/* Of a lock that is checked: a task that reads. */
struct reader {
    struct list node; /* in lock->check->known; covered by the lock */
    struct held held;
};

/* Of a lock that is checked. */
struct rwlock_check {
    struct checked_lock lock;
    struct held held;  /* by the writer */
    struct list known; /* readers: those for whom there was memory, and who have run since */
    size_t known_count;
};

struct weir_rwlock {
    struct sync sync;
    size_t readers;
    struct task *writer;
    bool is_checked;             /* watch/locks.h */
    ATOM(const char *) across;   /* why it may be held across suspensions; NULL: it may not */
    struct rwlock_check check[]; /* one, or none */
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

/* Who is first waits for those who have it, the others for the one before them. Readers are
 * known only if the lock is checked. */
static void rwlock_facts(const void *object, struct waiting *ret_waiting)
{
    const struct rwlock_waiter *waiter = object;
    const weir_rwlock *lock = waiter->lock;
    struct list *before = waiter->waiter.node.prev;

    waiter_facts_of(waiter->waiter.object, ret_waiting);
    ret_waiting->place = (uintptr_t)waiter->waiter.item;
    if (list_empty(&waiter->waiter.node)) { /* it has been let in */
        ret_waiting->ends = ENDS_OUTSIDE;
        return;
    }
    if (!lock->writer && (!lock->is_checked || lock->check->known_count != lock->readers)) return;
    ret_waiting->ends = ENDS_WITH_ALL;
    if (before != &lock->sync.waiters) {
        waiting_by(ret_waiting, container_of(before, struct waiter, node)->task, 0);
    } else if (lock->writer) {
        ret_waiting->gone = lock->is_checked && lock->check->held.ended;
        if (!ret_waiting->gone) {
            waiting_by(ret_waiting, lock->writer,
                       lock->is_checked && lock->check->held.task == lock->writer
                           ? lock->check->held.place
                           : 0);
        }
    }
    if (ret_waiting->by_count > 0 || !lock->is_checked) return;
    list_for_each(node, &lock->check->known) {
        const struct reader *reader = container_of(node, struct reader, node);
        if (reader->held.ended) ret_waiting->gone = true;
        if (!reader->held.ended) waiting_by(ret_waiting, reader->held.task, reader->held.place);
    }
}

static const struct wait_kind wait_read = {
    .name = "read lock",
    .abort = rwlock_abort,
    .describe = waiter_describe,
    .what = WAIT_FOR_LOCK,
    .ends = ENDS_WITH_TASKS,
    .facts = rwlock_facts,
};
static const struct wait_kind wait_write = {
    .name = "write lock",
    .abort = rwlock_abort,
    .describe = waiter_describe,
    .what = WAIT_FOR_LOCK,
    .ends = ENDS_WITH_TASKS,
    .facts = rwlock_facts,
};

static void rwlock_check_end(struct flow_object *object)
{
    const weir_rwlock *lock = container_of(object, struct weir_rwlock, sync.object);
    if (lock->writer && lock->is_checked && lock->check->held.ended) { /* its name may be gone */
        misuse("read-write lock '%s' ends while task #%llu, which has ended, writes", object->name,
               (unsigned long long)lock->check->held.task_id);
    }
    if (lock->writer) {
        misuse("read-write lock '%s' ends while task '%s' writes", object->name,
               lock->writer->name);
    }
    if (lock->readers > 0) {
        misuse("read-write lock '%s' ends while %zu tasks read", object->name, lock->readers);
    }
}

static void rwlock_release(struct worker *worker, struct belonging *belonging)
{
    weir_rwlock *lock = container_of(belonging, struct weir_rwlock, sync.object.belonging);
    sync_end(&lock->sync);
    if (lock->is_checked) locks_closed(worker->runtime, &lock->check->lock);
    sync_release(worker, belonging);
}

static bool rwlock_boundary(struct belonging *belonging, unsigned row,
                            struct boundary *ret_boundary)
{
    struct weir_rwlock *lock = container_of(belonging, struct weir_rwlock, sync.object.belonging);
    const char *across;

    if (row > 0) return false;
    across = atom_load(&lock->across);
    (void)snprintf(ret_boundary->bound, sizeof ret_boundary->bound,
                   "1 writer or any readers%s%s; as many may wait as there are tasks",
                   across ? ", across suspensions: " : "", across ? across : "");
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
                  .release = rwlock_release,
                  .describe = sync_describe,
                  .boundary = rwlock_boundary,
                  .is_passive = belonging_is_passive},
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
    weir_rwlock *lock;
    bool checked = worker_self() && worker_self()->runtime->lock_checks;
    size_t bytes = sizeof *lock + (checked ? sizeof lock->check[0] : 0);
    int r = sync_open(scope, &rwlock_kind, bytes, name, "weir_rwlock_open", &sync);

    if (r < 0) return r;
    lock = container_of(sync, struct weir_rwlock, sync);
    if (checked) {
        lock->is_checked = true;
        list_init(&lock->check->known);
        locks_opened(&lock->check->lock, "read-write lock", sync->object.name, &lock->across);
    }
    *ret_lock = sync->handle;
    return 0;
}

/* ---- If it is checked ---- */

/* The task has it already, to read. To write then would wait for itself; to read again does as
 * soon as a writer waits. True: it is refused. */
static bool taken_twice(weir_rwlock *lock, struct task *self, bool writes, uintptr_t place)
{
    const struct held *held = locks_find(self, &lock->check->lock);
    bool waits;

    if (!held || held == &lock->check->held) return false; /* a writer is refused anyway */
    sync_lock(&lock->sync);
    waits = writes || !list_empty(&lock->sync.waiters);
    sync_unlock(&lock->sync);
    locks_recursion(self, &lock->check->lock, held, place, waits);
    return waits;
}

static void note_taken(weir_rwlock *lock, struct task *self, bool writes, uintptr_t place)
{
    struct reader *reader;

    if (writes) {
        locks_taken(self, &lock->check->lock, &lock->check->held, place);
        return;
    }
    reader = mem_alloc_zeroed(sizeof *reader);
    if (!reader) return;
    locks_taken(self, &lock->check->lock, &reader->held, place);
    sync_lock(&lock->sync);
    list_add_tail(&lock->check->known, &reader->node);
    lock->check->known_count++;
    sync_unlock(&lock->sync);
}

/* Before it is given back. */
static void note_released(weir_rwlock *lock, struct task *self)
{
    struct held *held = locks_find(self, &lock->check->lock);
    struct reader *reader;

    if (!held) return;
    locks_released(self, held);
    if (held == &lock->check->held) return;
    reader = container_of(held, struct reader, held);
    sync_lock(&lock->sync);
    list_remove(&reader->node);
    lock->check->known_count--;
    sync_unlock(&lock->sync);
    mem_free(reader);
}

/* The lock is held. */
static bool enter(weir_rwlock *lock, struct task *task, bool writes)
{
    if (lock->writer || (writes && lock->readers > (PLANTED(RWLOCK_BESIDE) ? 1 : 0))) return false;
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

static int take_unchecked(const weir_rwlock *handle, weir_rwlock *lock, struct task *self,
                          bool writes, uintptr_t place)
{
    struct rwlock_waiter waiter = {
        .waiter = {.item = (void *)place}, .lock = lock, .writes = writes};
    int r = 0;

    sync_lock(&lock->sync);
    if (!flow_names(handle, HANDLE_RWLOCK, lock)) {
        sync_unlock(&lock->sync);
        return WEIR_ECLOSED;
    }
    if (lock->writer == self) {
        sync_unlock(&lock->sync);
        if (lock->is_checked)
            locks_recursion(self, &lock->check->lock, &lock->check->held, place, true);
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

static int take(const weir_rwlock *handle, bool writes, const char *call, uintptr_t place)
{
    weir_rwlock *lock = look_up(handle, call);
    struct task *self = task_self();
    bool checked = lock->is_checked;
    int r;

    if (!self) return refuse_no_task(call);
    r = task_enter(self, ENTER_LOCK);
    if (r < 0) return r;
    if (checked && self->held && flow_names(handle, HANDLE_RWLOCK, lock)) {
        if (taken_twice(lock, self, writes, place)) {
            return refuse("read-write lock '%s': task '%s' holds it for reading already",
                          lock->sync.object.name, self->name);
        }
        locks_taking(self, &lock->check->lock, handle, HANDLE_RWLOCK, place);
    }
    r = take_unchecked(handle, lock, self, writes, place);
    if (checked && r == 0) note_taken(lock, self, writes, place);
    return r;
}

int weir_rwlock_read(weir_rwlock *handle)
{
    return take(handle, false, "weir_rwlock_read", CALLER_PLACE());
}

int weir_rwlock_write(weir_rwlock *handle)
{
    return take(handle, true, "weir_rwlock_write", CALLER_PLACE());
}

void weir_rwlock_unlock(weir_rwlock *handle)
{
    weir_rwlock *lock = look_up(handle, "weir_rwlock_unlock");
    struct task *self = task_self();
    bool held;

    if (self && lock->is_checked) note_released(lock, self);
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

void weir_rwlock_may_suspend(weir_rwlock *handle, const char *keep_why)
{
    weir_rwlock *lock = look_up(handle, "weir_rwlock_may_suspend");
    atom_store(&lock->across, keep_why && *keep_why ? keep_why : "not said");
}

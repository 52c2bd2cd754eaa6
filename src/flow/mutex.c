/* mutex.c - handed from task to task in the order in which they came.
 *
 *     word: free ──lock──▶ holder ──another must wait──▶ holder | MUTEX_WAITED
 *           ▲                │ unlock                      │ unlock: to the first who waits
 *           └────────────────┘ ◀───────────────────────────┘ (none is left: free)
 *
 * Of a mutex that several workers share every word has MUTEX_SHARED as well, so that the moves
 * of the only worker, plain loads and stores, fail; free is that alone. With one worker it is
 * MUTEX_FREE, which is not what a call that comes late finds in memory that was zeroed, or
 * is something else's. There it is locked with the object's lock
 * held; unlocked without it by a compare and exchange, unless MUTEX_WAITED is set. That is
 * set by who begins to wait, and taken away, with the object's lock held: as long as it
 * is set nobody else changes the word, so that whoever unlocks hands the mutex over, and none
 * is left to wait for nobody.
 */
#include <stdio.h>
#include <weir/sync.h>

#include "flow/sync.h"

struct weir_mutex {
    struct sync sync;
    ATOM(uintptr_t) word; /* the task that holds it, and MUTEX_* */
};

enum { MUTEX_WAITED = 1, MUTEX_SHARED = 2, MUTEX_FREE = 0x5f3759d4 };

static struct task *holder_of(const weir_mutex *mutex)
{
    uintptr_t word = atom_load(&mutex->word);
    if (word == MUTEX_FREE) return NULL;
    return (struct task *)(word & ~(uintptr_t)(MUTEX_WAITED | MUTEX_SHARED));
}

static const struct wait_kind wait_mutex = {
    .name = "mutex", .abort = waiter_abort, .describe = waiter_describe};

static void mutex_check_end(struct flow_object *object)
{
    const weir_mutex *mutex = container_of(object, struct weir_mutex, sync.object);
    const struct task *holder = holder_of(mutex);
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
        boundary_figure(ret_boundary, "held", holder_of(mutex) != NULL);
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
    weir_mutex *mutex;
    struct sync *sync;
    int r =
        sync_open(scope, &mutex_kind, sizeof(struct weir_mutex), name, "weir_mutex_open", &sync);
    if (r < 0) return r;
    mutex = container_of(sync, struct weir_mutex, sync);
    atom_store(&mutex->word, sync->object.stable.shared ? MUTEX_SHARED : MUTEX_FREE);
    *ret_mutex = sync->handle;
    return 0;
}

/* ---- Several workers ---- */

/* Take it if nobody has it, or leave word that somebody waits. The lock is held. */
static bool take_or_be_waited_for(weir_mutex *mutex, const struct task *self)
{
    uintptr_t word = MUTEX_SHARED;

    while (!atom_cas(&mutex->word, &word, (uintptr_t)self | MUTEX_SHARED)) {
        if (word != MUTEX_SHARED && atom_cas(&mutex->word, &word, word | MUTEX_WAITED)) {
            return false;
        }
        word = MUTEX_SHARED;
    }
    return true;
}

/* With the lock, since another worker may close it: then its memory may be another's. */
static int lock_shared(const weir_mutex *handle, weir_mutex *mutex, struct task *self)
{
    struct waiter waiter = {.item = NULL};
    int r = 0;

    sync_lock(&mutex->sync);
    if (!flow_names(handle, HANDLE_MUTEX, mutex)) {
        r = WEIR_ECLOSED;
    } else if (!take_or_be_waited_for(mutex, self)) {
        return sync_wait(&mutex->sync, self, &waiter, &wait_mutex);
    }
    sync_unlock(&mutex->sync);
    return r;
}

static void unlock_shared(weir_mutex *mutex, const struct task *self)
{
    uintptr_t word = (uintptr_t)self | MUTEX_SHARED;
    struct waiter *next;

    if (atom_cas(&mutex->word, &word, MUTEX_SHARED)) return;
    sync_lock(&mutex->sync);
    next = waiter_pop(&mutex->sync.waiters);
    word = MUTEX_SHARED | (next ? (uintptr_t)next->task : 0);
    if (!list_empty(&mutex->sync.waiters)) word |= MUTEX_WAITED;
    atom_store_release(&mutex->word, word);
    if (next) waiter_wake(next, 0);
    sync_unlock(&mutex->sync);
}

/* ---- One worker ---- */

static SWITCH_RETURNS int wait_here(weir_mutex *mutex, struct task *self)
{
    struct waiter waiter WEIR_UNINITIALIZED_;
    int r;

    atom_store(&mutex->word, atom_load(&mutex->word) | MUTEX_WAITED);
    waiter_init(&waiter, self, &mutex->sync.object, NULL);
    list_add_tail(&mutex->sync.waiters, &waiter.node);
    r = task_park(self, &wait_mutex, &waiter);
    sanitize_acquire(mutex);
    return r;
}

static void hand_over(weir_mutex *mutex, struct worker *worker)
{
    struct waiter *next = waiter_pop(&mutex->sync.waiters);
    uintptr_t word = next ? (uintptr_t)next->task : MUTEX_FREE;

    if (!list_empty(&mutex->sync.waiters)) word |= MUTEX_WAITED;
    atom_store(&mutex->word, word);
    if (next) waiter_wake_here(worker, next);
}

/* ---- The calls ---- */

static __attribute__((noinline)) int lock_slowly(weir_mutex *handle)
{
    weir_mutex *mutex = look_up(handle, "weir_mutex_lock");
    struct task *self = task_self();
    int r;

    if (__builtin_expect(!self, 0)) return refuse_no_task("weir_mutex_lock");
    r = task_enter(self, ENTER_PLAIN);
    if (__builtin_expect(r < 0, 0)) return r;
    if (__builtin_expect(holder_of(mutex) == self, 0)) {
        return refuse("mutex '%s': task '%s' holds it already", mutex->sync.object.name,
                      self->name);
    }
    if (mutex->sync.object.stable.shared) {
        r = lock_shared(handle, mutex, self);
    } else if (!flow_names(handle, HANDLE_MUTEX, mutex)) {
        r = WEIR_ECLOSED;
    } else if (atom_load(&mutex->word) != MUTEX_FREE) {
        return wait_here(mutex, self);
    } else {
        atom_store(&mutex->word, (uintptr_t)self);
    }
    sanitize_acquire(mutex);
    return r;
}

int weir_mutex_lock(weir_mutex *handle)
{
    weir_mutex *mutex = handle_object(handle, HANDLE_MUTEX);
    struct task *self;

    if (__builtin_expect(!mutex, 0)) return lock_slowly(handle);
    self = task_self();
    if (__builtin_expect(!self || atom_load(&mutex->word) != MUTEX_FREE || self->attention != 0 ||
                             self->budget <= 0,
                         0)) {
        return lock_slowly(handle);
    }
    self->budget--;
    atom_store(&mutex->word, (uintptr_t)self);
    sanitize_acquire(mutex);
    return 0;
}

static __attribute__((noinline)) void unlock_slowly(weir_mutex *handle)
{
    weir_mutex *mutex = look_up(handle, "weir_mutex_unlock");
    struct task *self = task_self();

    if (__builtin_expect(!self || holder_of(mutex) != self, 0)) {
        const struct task *holder = holder_of(mutex);
        misuse("weir_mutex_unlock: mutex '%s' is held by %s%s%s, not by the caller",
               mutex->sync.object.name, holder ? "task '" : "nobody", holder ? holder->name : "",
               holder ? "'" : "");
    }
    sanitize_release(mutex);
    if (mutex->sync.object.stable.shared) {
        unlock_shared(mutex, self);
    } else {
        hand_over(mutex, worker_self());
    }
}

void weir_mutex_unlock(weir_mutex *handle)
{
    weir_mutex *mutex = handle_object(handle, HANDLE_MUTEX);
    struct task *self;

    if (__builtin_expect(!mutex, 0)) {
        unlock_slowly(handle);
        return;
    }
    self = task_self();
    if (__builtin_expect(!self || atom_load(&mutex->word) != (uintptr_t)self, 0)) {
        unlock_slowly(handle);
        return;
    }
    sanitize_release(mutex);
    atom_store(&mutex->word, MUTEX_FREE);
}

void weir_mutex_close(weir_mutex *take_mutex)
{
    if (take_mutex) sync_close(take_mutex, &mutex_kind, "weir_mutex_close");
}

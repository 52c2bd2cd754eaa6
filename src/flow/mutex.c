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
 *
 * Of one that is checked (watch/locks.h) every word has MUTEX_CHECKED, for the same reason: the
 * common moves fail, and cost nothing for it.
 */
#include <stdio.h>
#include <weir/sync.h>

#include "base/planted.h"
#include "flow/sync.h"
#include "rt/park.h"
#include "watch/locks.h"

/* Of a mutex that is checked. */
struct mutex_check {
    struct checked_lock lock;
    struct held held; /* by whom */
};

struct weir_mutex {
    struct sync sync;
    ATOM(uintptr_t) word; /* the task that holds it, and MUTEX_* */
    uintptr_t always;     /* MUTEX_SHARED and MUTEX_CHECKED, as far as they are in every word */
    ATOM(const char *) across;  /* why it may be held across suspensions; NULL: it may not */
    struct mutex_check check[]; /* one, or none */
};

enum { MUTEX_WAITED = 1, MUTEX_SHARED = 2, MUTEX_CHECKED = 4, MUTEX_FREE = 0x5f3759d4 };

static struct task *holder_of(const weir_mutex *mutex)
{
    uintptr_t word = atom_load(&mutex->word);
    if (word == MUTEX_FREE) return NULL;
    return (struct task *)(word & ~(uintptr_t)(MUTEX_WAITED | MUTEX_SHARED | MUTEX_CHECKED));
}

static uintptr_t free_word(const weir_mutex *mutex)
{
    return mutex->always ? mutex->always : MUTEX_FREE;
}

static bool is_checked(const weir_mutex *mutex)
{
    return mutex->always & MUTEX_CHECKED;
}

static void mutex_facts(const void *object, struct waiting *ret_waiting)
{
    const struct waiter *waiter = object;
    const weir_mutex *mutex = container_of(waiter->object, struct weir_mutex, sync.object);
    waiter_facts_of(waiter->object, ret_waiting);
    ret_waiting->place = (uintptr_t)waiter->item;
    ret_waiting->gone = is_checked(mutex) && mutex->check->held.ended;
    if (ret_waiting->gone) return;
    waiting_by(ret_waiting, holder_of(mutex),
               is_checked(mutex) && mutex->check->held.task == holder_of(mutex)
                   ? mutex->check->held.place
                   : 0);
}

static const struct wait_kind wait_mutex = {
    .name = "mutex",
    .abort = waiter_abort,
    .describe = waiter_describe,
    .what = WAIT_FOR_LOCK,
    .ends = ENDS_WITH_ALL,
    .facts = mutex_facts,
};

static void mutex_check_end(struct flow_object *object)
{
    const weir_mutex *mutex = container_of(object, struct weir_mutex, sync.object);
    const struct task *holder = holder_of(mutex);

    if (holder && is_checked(mutex) && mutex->check->held.ended) { /* its name may be gone */
        misuse("mutex '%s' ends while task #%llu, which has ended, holds it", object->name,
               (unsigned long long)mutex->check->held.task_id);
    }
    if (holder) { misuse("mutex '%s' ends while task '%s' holds it", object->name, holder->name); }
}

static void mutex_release(struct worker *worker, struct belonging *belonging)
{
    weir_mutex *mutex = container_of(belonging, struct weir_mutex, sync.object.belonging);
    sync_end(&mutex->sync);
    if (is_checked(mutex)) locks_closed(worker->runtime, &mutex->check->lock);
    sync_release(worker, belonging);
}

static bool mutex_boundary(struct belonging *belonging, unsigned row, struct boundary *ret_boundary)
{
    struct weir_mutex *mutex = container_of(belonging, struct weir_mutex, sync.object.belonging);
    const char *across;

    if (row > 0) return false;
    across = atom_load(&mutex->across);
    (void)snprintf(ret_boundary->bound, sizeof ret_boundary->bound,
                   "1 holder%s%s; as many may wait as there are tasks",
                   across ? ", across suspensions: " : "", across ? across : "");
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
                  .release = mutex_release,
                  .describe = sync_describe,
                  .boundary = mutex_boundary,
                  .is_passive = belonging_is_passive},
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
    bool checked = worker_self() && worker_self()->runtime->lock_checks;
    size_t bytes = sizeof *mutex + (checked ? sizeof mutex->check[0] : 0);
    int r = sync_open(scope, &mutex_kind, bytes, name, "weir_mutex_open", &sync);
    if (r < 0) return r;
    mutex = container_of(sync, struct weir_mutex, sync);
    if (sync->object.stable.shared) mutex->always |= MUTEX_SHARED;
    if (checked) {
        mutex->always |= MUTEX_CHECKED;
        locks_opened(&mutex->check->lock, "mutex", sync->object.name, &mutex->across);
    }
    atom_store(&mutex->word, free_word(mutex));
    *ret_mutex = sync->handle;
    return 0;
}

/* ---- Several workers ---- */

/* Take it if nobody has it, or leave word that somebody waits. The lock is held. */
static bool take_or_be_waited_for(weir_mutex *mutex, const struct task *self)
{
    uintptr_t word = mutex->always;

    while (!atom_cas(&mutex->word, &word, (uintptr_t)self | mutex->always)) {
        if (word != mutex->always && atom_cas(&mutex->word, &word, word | MUTEX_WAITED)) {
            return false;
        }
        word = mutex->always;
    }
    return true;
}

/* With the lock, since another worker may close it: then its memory may be another's. */
static int lock_shared(const weir_mutex *handle, weir_mutex *mutex, struct task *self,
                       uintptr_t place)
{
    struct waiter waiter = {.item = (void *)place};
    int r = 0;

    sync_lock(&mutex->sync);
    if (!flow_names(handle, HANDLE_MUTEX, mutex)) {
        r = WEIR_ECLOSED;
    } else if (!take_or_be_waited_for(mutex, self)) {
        r = sync_wait(&mutex->sync, self, &waiter, &wait_mutex);
        if (PLANTED(MUTEX_TO_CANCELLED) && r == 0) r = task_interruption(self, false);
        return r;
    }
    sync_unlock(&mutex->sync);
    return r;
}

static void unlock_shared(weir_mutex *mutex, const struct task *self)
{
    uintptr_t word = (uintptr_t)self | mutex->always;
    struct waiter *next;

    if (PLANTED(MUTEX_UNLOCK_TORN) && atom_load(&mutex->word) == word) {
        atom_store(&mutex->word, mutex->always);
        return;
    }
    if (atom_cas(&mutex->word, &word, mutex->always)) return;
    sync_lock(&mutex->sync);
    next = waiter_pop(&mutex->sync.waiters);
    word = mutex->always | (next ? (uintptr_t)next->task : 0);
    if (!list_empty(&mutex->sync.waiters) && !PLANTED(MUTEX_FORGETS)) word |= MUTEX_WAITED;
    atom_store_release(&mutex->word, word);
    if (next) waiter_wake(next, 0);
    sync_unlock(&mutex->sync);
}

/* ---- One worker ---- */

static SWITCH_RETURNS SWITCH_UNGUARDED int wait_here(weir_mutex *mutex, struct task *self,
                                                     uintptr_t place)
{
    struct waiter waiter WEIR_UNINITIALIZED_;
    int r;

    atom_store(&mutex->word, atom_load(&mutex->word) | MUTEX_WAITED);
    waiter_init(&waiter, self, &mutex->sync.object, (void *)place, 0);
    list_add_tail(&mutex->sync.waiters, &waiter.node);
    r = task_park_here(atom_load(&self->home), self, &wait_mutex, &waiter);
    sanitize_acquire(mutex);
    return r;
}

static inline __attribute__((always_inline)) void hand_over(weir_mutex *mutex,
                                                            struct worker *worker, uintptr_t always)
{
    struct waiter *next = waiter_pop(&mutex->sync.waiters);
    uintptr_t word = next ? (uintptr_t)next->task | always : (always ? always : MUTEX_FREE);

    if (!list_empty(&mutex->sync.waiters)) word |= MUTEX_WAITED;
    atom_store(&mutex->word, word);
    if (next) waiter_wake_here(worker, next);
}

/* ---- The calls ---- */

/* Take it, or wait. `always` is the mutex's, or 0 where it is known to be: one that the only
 * worker has alone, and that is not checked. */
static inline __attribute__((always_inline)) int take(const weir_mutex *handle, weir_mutex *mutex,
                                                      struct task *self, uintptr_t always,
                                                      uintptr_t place)
{
    int r = 0;

    if (always & MUTEX_SHARED) {
        r = lock_shared(handle, mutex, self, place);
    } else if (!flow_names(handle, HANDLE_MUTEX, mutex)) {
        r = WEIR_ECLOSED;
    } else if (atom_load(&mutex->word) != (always ? always : MUTEX_FREE)) {
        return wait_here(mutex, self, place);
    } else {
        atom_store(&mutex->word, (uintptr_t)self | always);
    }
    sanitize_acquire(mutex);
    return r;
}

static int refuse_twice(const weir_mutex *mutex, const struct task *self)
{
    return refuse("mutex '%s': task '%s' holds it already", mutex->sync.object.name, self->name);
}

/* The holder has ended, and the caller has got its memory. */
static bool was_anothers(const weir_mutex *mutex, const struct task *self)
{
    return mutex->check->held.ended && mutex->check->held.task_id != atom_load(&self->id);
}

static __attribute__((noinline)) int lock_checked(const weir_mutex *handle, weir_mutex *mutex,
                                                  struct task *self, uintptr_t place)
{
    int r;

    if (!flow_names(handle, HANDLE_MUTEX, mutex)) return WEIR_ECLOSED;
    if (holder_of(mutex) == self && !was_anothers(mutex, self)) {
        locks_recursion(self, &mutex->check->lock, &mutex->check->held, place, true);
        return refuse_twice(mutex, self);
    }
    if (self->held) locks_taking(self, &mutex->check->lock, handle, HANDLE_MUTEX, place);
    r = take(handle, mutex, self, mutex->always, place);
    if (r == 0) locks_taken(self, &mutex->check->lock, &mutex->check->held, place);
    return r;
}

static __attribute__((noinline)) int lock_slowly(weir_mutex *handle, uintptr_t place)
{
    weir_mutex *mutex = look_up(handle, "weir_mutex_lock");
    struct task *self = task_self();
    uintptr_t always = mutex->always;
    int r;

    if (__builtin_expect(!self, 0)) return refuse_no_task("weir_mutex_lock");
    r = task_enter(self, ENTER_LOCK);
    if (__builtin_expect(r < 0, 0)) return r;
    if (__builtin_expect(always & MUTEX_CHECKED, 0)) {
        return lock_checked(handle, mutex, self, place);
    }
    if (__builtin_expect(holder_of(mutex) == self, 0)) return refuse_twice(mutex, self);
    return always ? take(handle, mutex, self, MUTEX_SHARED, place)
                  : take(handle, mutex, self, 0, place);
}

int weir_mutex_lock(weir_mutex *handle)
{
    struct task *self = task_self();
    weir_mutex *mutex = handle_object_near(handle, HANDLE_MUTEX);

    if (__builtin_expect(!self || !mutex || atom_load(&mutex->word) != MUTEX_FREE, 0) ||
        !task_enter_at_once(self)) {
        return lock_slowly(handle, CALLER_PLACE());
    }
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
    if (__builtin_expect(is_checked(mutex), 0)) locks_released(self, &mutex->check->held);
    sanitize_release(mutex);
    if (mutex->always & MUTEX_SHARED) {
        unlock_shared(mutex, self);
    } else if (__builtin_expect(is_checked(mutex), 0)) {
        hand_over(mutex, worker_self(), MUTEX_CHECKED);
    } else {
        hand_over(mutex, worker_self(), 0);
    }
}

void weir_mutex_unlock(weir_mutex *handle)
{
    const struct task *self = task_self();
    weir_mutex *mutex = handle_object_near(handle, HANDLE_MUTEX);

    if (__builtin_expect(!self || !mutex || atom_load(&mutex->word) != (uintptr_t)self, 0)) {
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

void weir_mutex_may_suspend(weir_mutex *handle, const char *keep_why)
{
    weir_mutex *mutex = look_up(handle, "weir_mutex_may_suspend");
    atom_store(&mutex->across, keep_why && *keep_why ? keep_why : "not said");
}

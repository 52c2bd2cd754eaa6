/* sync.h - shared state between tasks: event, semaphore, mutex, read-write lock, once.
 *
 * These park tasks, not threads. Message passing (chan.h) is the easier way; use these
 * where state really is shared. Whoever waits longest goes first.
 *
 * Owner: a scope. Lifetime: until it is closed or the scope ends; who waits then gets
 * WEIR_ECLOSED. Backpressure: a semaphore bounds its waiters; the others are bounded by
 * the tasks there are. Failure: a mutex or lock whose holder ends without giving it back
 * is misuse and aborts with a sentence when the scope ends, or when it is noticed.
 *
 * Cancel: nothing moved: a call that failed has not taken anything.
 * Errors of every call that waits: WEIR_ECLOSED, WEIR_ECANCELED, WEIR_ETIMEDOUT,
 * WEIR_ENOTASK. Errors of every open: WEIR_EREFUSED (weir_why), WEIR_ECANCELED (the scope
 * is), WEIR_ENOTASK, -ENOMEM, -ENFILE.
 * Threads: tasks of the runtime, on any worker; calls that never suspend also callbacks on
 * a worker.
 */
#ifndef WEIR_SYNC_H
#define WEIR_SYNC_H

#include <weir/defs.h>
#include <weir/error.h>

WEIR_BEGIN

/* With WEIR_LOCK_ANALYSIS defined, clang -Wthread-safety checks at compile time that a lock is
 * given back on every way out, and that nothing suspends while one is held. The result of a call
 * that takes a lock must then be compared with 0 by == or != (the analysis does not follow <);
 * a function that is meant to suspend, or to take a second lock, is WEIR_NOT_ANALYSED. */
#if defined(__clang__) && defined(WEIR_LOCK_ANALYSIS)
#define WEIR_LOCK_TYPE_(name) struct __attribute__((capability("mutex"))) name
#define WEIR_TAKES_(lock) __attribute__((try_acquire_capability(0, lock, weir_no_park)))
#define WEIR_SHARES_(lock)                                  \
    __attribute__((try_acquire_shared_capability(0, lock))) \
    __attribute__((try_acquire_capability(0, weir_no_park)))
#define WEIR_GIVES_BACK_(lock) __attribute__((release_capability(lock, weir_no_park)))
#define WEIR_GIVES_EITHER_BACK_(lock)                 \
    __attribute__((release_generic_capability(lock))) \
    __attribute__((release_capability(weir_no_park)))
#define WEIR_NOT_ANALYSED __attribute__((no_thread_safety_analysis))
#else
#define WEIR_LOCK_TYPE_(name) struct name
#define WEIR_TAKES_(lock)
#define WEIR_SHARES_(lock)
#define WEIR_GIVES_BACK_(lock)
#define WEIR_GIVES_EITHER_BACK_(lock)
#define WEIR_NOT_ANALYSED
#endif

/* ---- Event: something has happened, once and for all, or until it is reset ---- */

typedef struct weir_event weir_event;

/* weir_event_open - an event that is not set; `name` is copied, at most 31 bytes. Never
 * suspends. */
WEIR_API WEIR_MUST_USE int weir_event_open(weir_scope *scope, const char *name,
                                           weir_event **ret_event);

/* weir_event_wait - wait until the event is set; returns at once if it is. */
WEIR_SUSPENDS int weir_event_wait(weir_event *event);

/* weir_event_set - let everybody who waits go on, and who comes later pass. Never suspends.
 * weir_event_reset - who comes from now on waits. weir_event_is_set - how it is now. */
WEIR_API void weir_event_set(weir_event *event);
WEIR_API void weir_event_reset(weir_event *event);
WEIR_API bool weir_event_is_set(weir_event *event);

/* weir_event_close - free it; who waits gets WEIR_ECLOSED. Takes NULL. Never suspends. */
WEIR_API void weir_event_close(weir_event *take_event);

/* ---- Semaphore: at most so many at a time ---- */

typedef struct weir_semaphore weir_semaphore;

/* name, permits, waiters_max and overflow must be said. */
typedef struct weir_semaphore_spec {
    const char *name;            /* copied, at most 31 bytes */
    size_t permits;              /* that there are */
    size_t waiters_max;          /* tasks that wait for one */
    enum weir_overflow overflow; /* WEIR_WAIT: waiters_max may wait, more get WEIR_EOVERLOAD;
                                    WEIR_REJECT: nobody waits, waiters_max must be 0 */
    size_t permits_max;          /* weir_semaphore_resize may go up to this; default: permits */
    bool taker_releases;         /* whoever takes permits gives them back itself, so that checks
                                    (check.h) know for whom others wait; default: anybody may */
} weir_semaphore_spec;

/* weir_semaphore_spec_init - set every member to "not said". */
static inline void weir_semaphore_spec_init(weir_semaphore_spec *spec)
{
    memset(spec, 0, sizeof *spec);
}

/* weir_semaphore_open(scope, &spec, &semaphore) - Never suspends. */
WEIR_API WEIR_MUST_USE int weir_semaphore_open_sized(weir_scope *scope, size_t spec_bytes,
                                                     const weir_semaphore_spec *spec,
                                                     weir_semaphore **ret_semaphore);
#define weir_semaphore_open(scope, ...) \
    weir_semaphore_open_sized((scope), sizeof(weir_semaphore_spec), __VA_ARGS__)

/* weir_semaphore_acquire - take `count` permits, all of them or none. Errors also:
 * WEIR_EOVERLOAD (nobody else may wait), WEIR_EREFUSED (more than there are). */
WEIR_SUSPENDS int weir_semaphore_acquire(weir_semaphore *semaphore, size_t count);

/* weir_semaphore_try_acquire - the same without waiting: WEIR_EOVERLOAD if they are not
 * there now, or others wait for them. Never suspends. */
WEIR_API WEIR_MUST_USE int weir_semaphore_try_acquire(weir_semaphore *semaphore, size_t count);

/* weir_semaphore_release - give `count` permits back. More than were taken is misuse and
 * aborts with a sentence. Never suspends. */
WEIR_API void weir_semaphore_release(weir_semaphore *semaphore, size_t count);

/* weir_semaphore_resize - another number of permits, from 1 to permits_max. With less than
 * are taken now nobody gets one until enough came back. Errors: WEIR_EREFUSED. Never
 * suspends. */
WEIR_API WEIR_MUST_USE int weir_semaphore_resize(weir_semaphore *semaphore, size_t permits);

/* weir_semaphore_close - free it; who waits gets WEIR_ECLOSED. Takes NULL. Never suspends. */
WEIR_API void weir_semaphore_close(weir_semaphore *take_semaphore);

/* ---- Mutex: one task at a time ---- */

WEIR_LOCK_TYPE_(weir_mutex);
typedef struct weir_mutex weir_mutex;

/* weir_mutex_open - `name` is copied, at most 31 bytes. Never suspends. */
WEIR_API WEIR_MUST_USE int weir_mutex_open(weir_scope *scope, const char *name,
                                           weir_mutex **ret_mutex);

/* weir_mutex_lock - take it. A task that has it already is refused (WEIR_EREFUSED). */
WEIR_SUSPENDS int weir_mutex_lock(weir_mutex *mutex) WEIR_TAKES_(mutex);

/* weir_mutex_unlock - give it to whoever waits longest. By the task that has it; anything
 * else is misuse and aborts with a sentence. Never suspends. */
WEIR_API void weir_mutex_unlock(weir_mutex *mutex) WEIR_GIVES_BACK_(mutex);

/* weir_mutex_may_suspend - tasks may suspend while they hold it, and lock_checks (check.h) do
 * not report it: `why` says what for, and is shown on the map; it is kept, not copied. Never
 * suspends. Otherwise a lock is for a few lines without a suspending call, but for that of
 * another lock: whoever holds one keeps all others waiting. */
WEIR_API void weir_mutex_may_suspend(weir_mutex *mutex, const char *keep_why);

/* weir_mutex_close - free it; who waits gets WEIR_ECLOSED. It must not be held. Takes NULL.
 * Never suspends. */
WEIR_API void weir_mutex_close(weir_mutex *take_mutex);

/* ---- Read-write lock: many readers, or one writer ---- */

WEIR_LOCK_TYPE_(weir_rwlock);
typedef struct weir_rwlock weir_rwlock;

/* weir_rwlock_open - `name` is copied, at most 31 bytes. Never suspends. */
WEIR_API WEIR_MUST_USE int weir_rwlock_open(weir_scope *scope, const char *name,
                                            weir_rwlock **ret_lock);

/* weir_rwlock_read, weir_rwlock_write - take it, shared with other readers, or alone. In
 * order of arrival: a reader waits behind a writer that waits, so neither side starves;
 * hence a task must not read-lock twice. */
WEIR_SUSPENDS int weir_rwlock_read(weir_rwlock *lock) WEIR_SHARES_(lock);
WEIR_SUSPENDS int weir_rwlock_write(weir_rwlock *lock) WEIR_TAKES_(lock);

/* weir_rwlock_unlock - give back what the calling task has taken. If nobody has it, or
 * another task has it for writing, that is misuse and aborts with a sentence. Never
 * suspends. */
WEIR_API void weir_rwlock_unlock(weir_rwlock *lock) WEIR_GIVES_EITHER_BACK_(lock);

/* weir_rwlock_may_suspend - as weir_mutex_may_suspend. */
WEIR_API void weir_rwlock_may_suspend(weir_rwlock *lock, const char *keep_why);

/* weir_rwlock_close - free it; who waits gets WEIR_ECLOSED. It must not be held. Takes NULL.
 * Never suspends. */
WEIR_API void weir_rwlock_close(weir_rwlock *take_lock);

/* ---- Once: the first one does it, the others wait for it ---- */

/* Zero-initialised, of static lifetime or owned by what the tasks share; one runtime. */
typedef struct weir_once {
    void *opaque[2];
} weir_once;

/* weir_once_run - call `fn(arg)` unless it has succeeded before (returned 0 or more); who
 * comes meanwhile waits. When it fails, its caller gets the error and the next one that
 * waits tries again. Returns 0, or what `fn` returned. Cancel: nothing moved; `fn` sees
 * cancellation as any code of its task does. A task whose `fn` comes back here is refused. */
WEIR_SUSPENDS int weir_once_run(weir_once *once, weir_task_fn fn, void *arg);

WEIR_END

#endif

/* lock.h - a short lock: held for a few instructions, never across a suspension.
 *
 * clang -Wthread-safety checks that: taking one also takes the role weir_no_park,
 * which every WEIR_SUSPENDS call excludes.
 */
#ifndef WEIR_RT_LOCK_H
#define WEIR_RT_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <weir/defs.h>

#include "base/atomic.h"
#include "rt/sanitize.h"

#if defined(__clang__)
#define LOCK_CAPABILITY __attribute__((capability("mutex")))
#define LOCK_ACQUIRES(...) __attribute__((acquire_capability(__VA_ARGS__)))
#define LOCK_RELEASES(...) __attribute__((release_capability(__VA_ARGS__)))
#define LOCK_ACQUIRES_IF_TRUE(...) __attribute__((try_acquire_capability(true, __VA_ARGS__)))
#define LOCK_UNCHECKED __attribute__((no_thread_safety_analysis))
#else
#define LOCK_CAPABILITY
#define LOCK_ACQUIRES(...)
#define LOCK_RELEASES(...)
#define LOCK_ACQUIRES_IF_TRUE(...)
#define LOCK_UNCHECKED
#endif

struct LOCK_CAPABILITY lock {
    pthread_mutex_t mutex;
};

/* Who finds it held spins for a moment before it sleeps: mostly that is enough. Only where
 * the runtime spins at all: below one core the holder is not running meanwhile. */
static inline void lock_init_spinning(struct lock *lock, bool spin)
{
    pthread_mutexattr_t kind;

    sanitize_unordered_begin();
    (void)pthread_mutexattr_init(&kind);
#if defined(PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP) /* glibc; musl has no choice */
    if (spin) (void)pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ADAPTIVE_NP);
#else
    (void)spin;
#endif
    (void)pthread_mutex_init(&lock->mutex, &kind);
    (void)pthread_mutexattr_destroy(&kind);
    sanitize_unordered_end();
}

static inline void lock_init(struct lock *lock)
{
    lock_init_spinning(lock, false);
}

static inline void lock_deinit(struct lock *lock)
{
    sanitize_unordered_begin();
    (void)pthread_mutex_destroy(&lock->mutex);
    sanitize_unordered_end();
}

/* True: it was free, and is the caller's. */
static inline bool lock_try(struct lock *lock)
    LOCK_ACQUIRES_IF_TRUE(lock, weir_no_park) LOCK_UNCHECKED
{
    bool held;

    atom_point(lock);
    sanitize_unordered_begin();
    held = pthread_mutex_trylock(&lock->mutex) == 0;
    sanitize_unordered_end();
    return held;
}

static inline void lock_acquire(struct lock *lock) LOCK_ACQUIRES(lock, weir_no_park) LOCK_UNCHECKED
{
#if WEIR_SIM_WORKERS
    /* In a run, who holds it is another fiber of this very thread: to sleep would be for ever. */
    do {
        if (lock_try(lock)) return;
    } while (atom_stuck());
#endif
    sanitize_unordered_begin();
    (void)pthread_mutex_lock(&lock->mutex);
    sanitize_unordered_end();
}

static inline void lock_release(struct lock *lock) LOCK_RELEASES(lock, weir_no_park) LOCK_UNCHECKED
{
    sanitize_unordered_begin();
    (void)pthread_mutex_unlock(&lock->mutex);
    sanitize_unordered_end();
    atom_point(lock);
}

/* With one worker nobody else can be inside, so the lock is left out: `shared`
 * says whether the runtime has more than one. It must have the same value in the
 * matching release. */
static inline void lock_acquire_if(struct lock *lock, bool shared)
    LOCK_ACQUIRES(lock, weir_no_park) LOCK_UNCHECKED
{
    if (shared) lock_acquire(lock);
}

static inline void lock_release_if(struct lock *lock, bool shared)
    LOCK_RELEASES(lock, weir_no_park) LOCK_UNCHECKED
{
    if (shared) lock_release(lock);
}

#endif

/* lock.h - a short lock: held for a few instructions, never across a suspension. So who finds
 * it held spins for a moment before it sleeps: mostly that is enough.
 *
 * clang -Wthread-safety checks that: taking one also takes the role weir_no_park,
 * which every WEIR_SUSPENDS call excludes.
 */
#ifndef WEIR_RT_LOCK_H
#define WEIR_RT_LOCK_H

#include <pthread.h>
#include <weir/defs.h>

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

static inline void lock_init(struct lock *lock)
{
    pthread_mutexattr_t spins_first;

    sanitize_unordered_begin();
    (void)pthread_mutexattr_init(&spins_first);
#if defined(PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP) /* glibc; musl's spin anyway */
    (void)pthread_mutexattr_settype(&spins_first, PTHREAD_MUTEX_ADAPTIVE_NP);
#endif
    (void)pthread_mutex_init(&lock->mutex, &spins_first);
    (void)pthread_mutexattr_destroy(&spins_first);
    sanitize_unordered_end();
}

static inline void lock_deinit(struct lock *lock)
{
    sanitize_unordered_begin();
    (void)pthread_mutex_destroy(&lock->mutex);
    sanitize_unordered_end();
}

static inline void lock_acquire(struct lock *lock) LOCK_ACQUIRES(lock, weir_no_park) LOCK_UNCHECKED
{
    sanitize_unordered_begin();
    (void)pthread_mutex_lock(&lock->mutex);
    sanitize_unordered_end();
}

static inline void lock_release(struct lock *lock) LOCK_RELEASES(lock, weir_no_park) LOCK_UNCHECKED
{
    sanitize_unordered_begin();
    (void)pthread_mutex_unlock(&lock->mutex);
    sanitize_unordered_end();
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

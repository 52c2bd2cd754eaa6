/* bell.h - one thread waits until another rings.
 *
 * What is waited for is said in memory that a lock covers; the bell only says "look again".
 * All waits of one thread for another, but thread_join, are by bells: so a simulator's threads
 * wait in its time, and are woken in the order that it chooses.
 *
 * Owner: whoever has the lock. Threads: any. Like a lock, a bell orders nothing for a sanitizer
 * in strict mode; what is handed over says so itself.
 */
#ifndef WEIR_RT_BELL_H
#define WEIR_RT_BELL_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "rt/kernel.h"
#include "rt/lock.h"
#include "rt/timer.h"

#define BELL_FOR_EVER INT64_MAX

struct bell {
    const struct kernel *kernel;
    struct kernel_bell bell;
};

static inline void bell_init(struct bell *bell, const struct kernel *keep_kernel)
{
    *bell = (struct bell){.kernel = keep_kernel};
}

static inline void bell_deinit(struct bell *bell)
{
    (void)bell; /* nobody waits: there is nothing to give back */
}

/* By the clock of bell_wait. `ns` is not negative; beyond the end of time: BELL_FOR_EVER. */
static inline int64_t bell_after_ns(const struct bell *bell, int64_t ns)
{
    int64_t until_ns;

    if (__builtin_add_overflow(bell->kernel->thread_now_ns(bell->kernel), ns, &until_ns)) {
        return BELL_FOR_EVER;
    }
    return until_ns;
}

static inline int64_t bell_after_ms(const struct bell *bell, int64_t ms)
{
    return time_after_ms(bell->kernel->thread_now_ns(bell->kernel), ms);
}

/* Until it is rung, or until_ns; the lock is held, and let go of meanwhile. 0, or -ETIMEDOUT.
 * 0 may come for no reason: look again. */
static inline int bell_wait(struct bell *bell, struct lock *lock, int64_t until_ns)
{
    const struct kernel *kernel = bell->kernel;
    int64_t timeout_ns = -1;
    int r;

    if (until_ns != BELL_FOR_EVER) {
        timeout_ns = until_ns - kernel->thread_now_ns(kernel);
        if (timeout_ns <= 0) return -ETIMEDOUT;
    }
    sanitize_unordered_begin();
    r = kernel->thread_wait(kernel, &bell->bell, &lock->mutex, timeout_ns);
    sanitize_unordered_end();
    return r;
}

/* For one of those that wait, or all of them. With or without the lock. */
static inline void bell_ring(struct bell *bell)
{
    sanitize_unordered_begin();
    bell->kernel->thread_notify(bell->kernel, &bell->bell, false);
    sanitize_unordered_end();
}

static inline void bell_ring_all(struct bell *bell)
{
    sanitize_unordered_begin();
    bell->kernel->thread_notify(bell->kernel, &bell->bell, true);
    sanitize_unordered_end();
}

#endif

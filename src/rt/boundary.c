/* boundary.c - words of the map that several kinds share. */
#include "rt/boundary.h"

#include <assert.h>
#include <stdio.h>
#include <weir/defs.h>

#include "rt/kernel.h"
#include "rt/lock.h"

enum { HOLD_TRIES = 100 };

void boundary_bound(struct boundary *boundary, uint64_t count, const char *things)
{
    (void)snprintf(boundary->bound, sizeof boundary->bound, "%llu %s", (unsigned long long)count,
                   things);
}

void boundary_figure(struct boundary *boundary, const char *name, uint64_t value)
{
    assert(boundary->figure_count < BOUNDARY_FIGURES_MAX);
    boundary->figures[boundary->figure_count].name = name;
    boundary->figures[boundary->figure_count++].value = value;
}

bool boundary_hold(struct lock *lock, bool shared) LOCK_UNCHECKED
{
    const struct kernel *kernel = kernel_current();

    if (!shared) return true;
    for (int i = 0; i < HOLD_TRIES; i++) {
        if (lock_try(lock)) return true;
        kernel->thread_yield(kernel);
    }
    return false;
}

void boundary_let_go(struct lock *lock, bool shared) LOCK_UNCHECKED
{
    lock_release_if(lock, shared);
}

const char *boundary_overflow(int overflow)
{
    static const char *const names[] = {[WEIR_WAIT] = "wait",
                                        [WEIR_REJECT] = "reject",
                                        [WEIR_DROP_NEWEST] = "drop newest",
                                        [WEIR_DROP_OLDEST] = "drop oldest"};

    if (overflow <= 0 || (size_t)overflow >= sizeof names / sizeof names[0]) return "unset";
    return names[overflow];
}

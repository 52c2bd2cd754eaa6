/* atomic.c - who is told of the points of base/atomic.h, in a library that has them. */
#include "base/atomic.h"

#if WEIR_SIM_WORKERS

struct atom_hooks atom_hooks;

bool atom_hooks_set(const struct atom_hooks *hooks)
{
    atom_hooks = hooks ? *hooks : (struct atom_hooks){0};
    return true;
}

#else

bool atom_hooks_set(const struct atom_hooks *hooks)
{
    (void)hooks;
    return false;
}

#endif

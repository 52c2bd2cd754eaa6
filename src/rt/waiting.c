/* waiting.c - filling in what is known of a wait. */
#include "rt/waiting.h"

#include <stdio.h>

void waiting_by(struct waiting *waiting, const struct task *task, uintptr_t place)
{
    if (!task) return;
    if (waiting->by_count == WAITING_BY_MAX) {
        waiting->by_cut = true;
        return;
    }
    waiting->by[waiting->by_count++] = (struct waiting_by){task, place};
}

void waiting_name(struct waiting *waiting, const char *kind, const char *name)
{
    waiting->kind = kind;
    (void)snprintf(waiting->name, sizeof waiting->name, "%s", name);
}

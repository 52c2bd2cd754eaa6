/* wait.c - interrupting a wait. */
#include "flow/wait.h"

#include <stdio.h>

bool waiter_abort(struct task *task, void *object)
{
    struct waiter *waiter = object;
    struct flow_object *owner = waiter->object;
    bool waiting;

    (void)task;
    flow_lock(owner); /* the memory is type-stable: there is a lock also if it has ended */
    waiting = !list_empty(&waiter->node);
    if (waiting) list_remove(&waiter->node);
    flow_unlock(owner);
    return waiting;
}

void waiter_describe(const void *object, char *text, size_t bytes)
{
    const struct waiter *waiter = object;
    (void)snprintf(text, bytes, "'%s'", waiter->object->name);
}

void waiter_facts_of(const struct flow_object *object, struct waiting *ret_waiting)
{
    const struct belonging_kind *kind = object->belonging.kind;
    waiting_name(ret_waiting, kind ? kind->name : "", object->name);
    ret_waiting->object = object;
}

void waiter_facts(const void *object, struct waiting *ret_waiting)
{
    const struct waiter *waiter = object;
    waiter_facts_of(waiter->object, ret_waiting);
}

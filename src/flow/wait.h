/* wait.h - tasks that wait in a queue until something is handed to them.
 *
 * A waiter lies on the stack of the task that waits and is linked into a queue of an
 * object, under the object's lock. Whoever takes it out of the queue, and may claim it,
 * hands over what it waits for and wakes its task, exactly once. A task that waits for
 * one of several things at once (select.c) has a waiter in each queue, all of one group:
 * the first that is claimed decides, and the others are left alone; or, where there is one worker
 * and all of them are in queues of channels, taken out by whoever claims.
 *
 *     LINKED ──popped and claimed──▶ woken (its memory may be gone at once)
 *        │ ──popped, another of its group was claimed──▶ left alone
 *        └──interrupted──▶ unlinked, nothing has moved
 */
#ifndef WEIR_FLOW_WAIT_H
#define WEIR_FLOW_WAIT_H

#include <string.h>

#include "base/atomic.h"
#include "base/list.h"
#include "flow/object.h"
#include "rt/task.h"

enum { GROUP_UNDECIDED = -1, GROUP_INTERRUPTED = -2 };

/* The waiters of a task that waits for one of several things. */
struct wait_group {
    ATOM(int) winner;    /* index of the claimed waiter, or GROUP_* */
    bool shared;         /* several may try to claim at the same time */
    unsigned mate_count; /* or 0: who is claimed takes the others out, not who claims */
    struct waiter *mates;
};

struct waiter {
    struct list node;
    struct task *task;
    struct flow_object *object; /* in whose queue it is */
    struct wait_group *group;   /* NULL: the task waits for this alone */
    int index;                  /* in its group */
    int result;                 /* of the claimed one of a group */
    void *item;                 /* where a value goes, or comes from */
    int64_t since_ns;           /* of a send whose wait is measured; else 0 */
};

static inline bool group_claim(struct wait_group *group, int index)
{
    int undecided = GROUP_UNDECIDED;
    if (group->shared) return atom_cas(&group->winner, &undecided, index);
    if (atom_load(&group->winner) != GROUP_UNDECIDED) return false;
    atom_store(&group->winner, index);
    /* All the others are still in their queues: they have been the only way to claim it. Else each
     * of those who come next would find one that is of no use to it. */
    for (int i = 0; i < (int)group->mate_count; i++) {
        struct list *node = &group->mates[i].node;
        if (i == index) continue;
        node->prev->next = node->next;
        node->next->prev = node->prev;
    }
    return true;
}

/* The first waiter that may be woken, or NULL. The object's lock is held; the caller
 * hands over what it has and calls waiter_wake. */
static inline struct waiter *waiter_pop(struct list *queue)
{
    struct list *node;
    while ((node = list_pop(queue))) {
        struct waiter *waiter = container_of(node, struct waiter, node);
        if (!waiter->group || group_claim(waiter->group, waiter->index)) return waiter;
    }
    return NULL;
}

/* The waiter that was popped goes on with `result`. Its memory may be gone after this. */
static inline void waiter_wake(struct waiter *waiter, int result)
{
    waiter->result = result;
    task_wake(waiter->task, waiter->group ? 0 : result);
}

/* Wake a task with success, on the only worker that there is. */
static inline void task_wake_here(struct worker *worker, struct task *task)
{
    task->wake_result = 0;
    sanitize_release(task);
    task_step_state(task, TASK_PARKED, TASK_READY);
    ready_push(&worker->ready, task);
}

/* The same as waiter_wake there. */
static inline void waiter_wake_here(struct worker *worker, struct waiter *waiter)
{
    if (__builtin_expect(waiter->group != NULL, 0)) waiter->result = 0;
    task_wake_here(worker, waiter->task);
}

/* Of a task that waits for this alone. Its node is for the queue to fill in. */
static inline void waiter_init(struct waiter *waiter, struct task *task, struct flow_object *object,
                               void *item, int64_t since_ns)
{
    waiter->task = task;
    waiter->object = object;
    waiter->group = NULL;
    waiter->item = item;
    waiter->since_ns = since_ns;
}

/* Wake all that wait in the queue. */
static inline void waiter_wake_all(struct list *queue, int result)
{
    struct waiter *waiter;
    while ((waiter = waiter_pop(queue))) waiter_wake(waiter, result);
}

/* The same for those who wait for an end: with what it has ended goes to their items. */
static inline void waiter_tell_all(struct list *queue, int result)
{
    struct waiter *waiter;
    while ((waiter = waiter_pop(queue))) {
        *(int *)waiter->item = result;
        waiter_wake(waiter, 0);
    }
}

/* Park until the waiter is woken; it is linked, and the lock was let go. `kind` uses
 * waiter_abort; its object is the waiter. */
static inline int waiter_park(struct task *self, struct waiter *waiter,
                              const struct wait_kind *kind)
{
    return task_park(self, kind, waiter);
}

/* Copy what moves between tasks: the edges are those of the calls, not of the copies. */
static inline void flow_copy(void *to, const void *from, size_t bytes)
{
    sanitize_unseen_begin();
    memcpy(to, from, bytes);
    sanitize_unseen_end();
}

/* For struct wait_kind. */
bool waiter_abort(struct task *task, void *object);
void waiter_describe(const void *object, char *text, size_t bytes);
void waiter_facts(const void *object, struct waiting *ret_waiting);
/* The name of the object in whose queue the waiter is. */
void waiter_facts_of(const struct flow_object *object, struct waiting *ret_waiting);

#endif

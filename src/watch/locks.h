/* locks.h - locks that are checked: who holds them, in which order, and across what.
 *
 * A lock of flow has a struct checked_lock, and a struct held for each task that has it; both are
 * its own memory, and nothing here is touched unless runtime->lock_checks is on. What a task
 * holds is a list (task->held), and a bit of its attention (ATTENTION_HELD), which every
 * suspending call looks at anyway: that is how a lock across a suspension is found.
 *
 * Threads: a task's list is its own; the order is the runtime's (checks->lock).
 */
#ifndef WEIR_WATCH_LOCKS_H
#define WEIR_WATCH_LOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "rt/handle.h"

struct task;
struct weir_runtime;

struct checked_lock {
    const char *kind; /* "mutex" */
    const char *name;
    ATOM(const char *) * across; /* to why it may be held across suspensions; NULL: it may not */
    /* Covered by checks->lock. */
    uint64_t instance;
    uint32_t class_node, instance_node; /* of order.h; 0: none yet */
};

struct held {
    struct held *next; /* of its task */
    struct checked_lock *lock;
    struct task *task; /* NULL: nobody has it */
    uint64_t task_id;
    uintptr_t place; /* where it was taken: a return address - 1 */
    bool ended;      /* its task has, without giving it back */
};

/* In a public call: where it was made from. */
#define CALLER_PLACE() ((uintptr_t)__builtin_return_address(0) - 1)

void locks_opened(struct checked_lock *lock, const char *kind, const char *keep_name,
                  ATOM(const char *) * keep_across);
/* Its handle is closed, and its memory is there still. */
void locks_closed(struct weir_runtime *runtime, struct checked_lock *lock);

/* The task has checked locks of its own, this one among them? */
struct held *locks_find(const struct task *self, const struct checked_lock *lock);
/* It is about to take one, and has it not: where does that stand in the order? Another worker
 * may close it meanwhile: it is touched only while `handle` names something, see locks_closed. */
void locks_taking(struct task *self, struct checked_lock *lock, const void *handle,
                  enum handle_kind kind, uintptr_t place);
/* It has it. */
void locks_taken(struct task *self, struct checked_lock *lock, struct held *held, uintptr_t place);
/* It gives it back. */
void locks_released(struct task *self, struct held *held);
/* It takes what it has already (`held` may be NULL), and is refused, or not. */
void locks_recursion(struct task *self, struct checked_lock *lock, const struct held *held,
                     uintptr_t place, bool refused);

#endif

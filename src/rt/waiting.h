/* waiting.h - what is known of a wait: for what, and who could end it.
 *
 * Filled by a wait_kind (task.h): what is the same for all waits of a kind is a constant of it,
 * the rest comes from its `facts` function, while all workers stand still (runtime_pause), so
 * that nothing is locked. Shown by watch/waits.h, and followed by the search for deadlocks.
 *
 * Invariants: `ends` never promises too much. Where somebody who is not in `by` could end the
 * wait, it is ENDS_WITH_TASKS or ENDS_OUTSIDE.
 */
#ifndef WEIR_RT_WAITING_H
#define WEIR_RT_WAITING_H

#include <stdbool.h>
#include <stdint.h>
#include <weir/defs.h>

struct task;

enum { WAITING_NAME_BYTES = 64, WAITING_BY_MAX = 8 };

enum wait_for {
    WAIT_FOR_SOMETHING, /* not said */
    WAIT_FOR_TASK,      /* its end */
    WAIT_FOR_SCOPE,     /* the end of its tasks */
    WAIT_FOR_SLOT,      /* of a scope that is full */
    WAIT_FOR_LOCK,
    WAIT_FOR_PERMIT,
    WAIT_FOR_ROOM, /* in a channel, a stage */
    WAIT_FOR_ITEM, /* of a channel, a broadcast, a pipeline's results */
    WAIT_FOR_EVENT,
    WAIT_FOR_ONE_OF, /* select */
    WAIT_FOR_ANSWER, /* of an actor */
    WAIT_FOR_END,    /* of an actor, a pipeline */
    WAIT_FOR_WORK,   /* an actor's or a stage's own task that has nothing to do */
    WAIT_FOR_TIME,
    WAIT_FOR_CANCEL, /* a sleep for ever */
    WAIT_FOR_DESCRIPTOR,
    WAIT_FOR_THREAD, /* a pool's, an executor's */
    WAIT_FOR_PROCESS,
    WAIT_FOR_SIGNAL,
    WAIT_FOR_COUNT,
};

enum wait_ends {
    ENDS_OUTSIDE,    /* by something that is no task of this runtime, or nobody knows */
    ENDS_WITH_ALL,   /* when each of `by` has done its part, and not before */
    ENDS_WITH_ANY,   /* when one of `by` has, and nobody else can end it */
    ENDS_WITH_TASKS, /* some task of the runtime must act: which one is not known */
    ENDS_AT_CLOSE,   /* the same, or its scope is closed: it serves, nobody waits for its end */
};

struct waiting_by {
    const struct task *task;
    uintptr_t place; /* where it took what is waited for: a return address - 1; 0: not known */
};

struct waiting {
    enum wait_for what;
    enum wait_ends ends;
    const char *kind; /* of the object: "mutex"; "" if there is none */
    char name[WAITING_NAME_BYTES];
    const void *object;      /* to tell one from another */
    uintptr_t place;         /* where the call was made, if that is known; else 0 */
    bool gone;               /* who could have ended it has ended: nobody will */
    const weir_scope *scope; /* its tasks are among `by` as well; or NULL */
    unsigned by_count;
    bool by_cut; /* there are more than are named */
    struct waiting_by by[WAITING_BY_MAX];
};

/* One more who could end it. */
void waiting_by(struct waiting *waiting, const struct task *task, uintptr_t place);
/* For what. */
void waiting_name(struct waiting *waiting, const char *kind, const char *name);

#endif

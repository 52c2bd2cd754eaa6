/* reason.h - why a task does not run, in one line.
 *
 *     waits for mutex 'state', held by task 'writer' #7, which waits for room in channel 'log'
 *     waits for the end of 3 tasks of scope 'serve'
 *     sleeps: 28 ms left
 *     not started: worker 1 is busy with task 'resize' #12 for 1003 ms
 *
 * What it waits for and who could end that comes from waits.h; if it is one task, the line
 * goes on with why that one does not run, some steps far.
 *
 * Invariants: nothing is allocated; locks are only tried.
 * Threads: on a worker, while the task's own stands still (runtime_pause).
 */
#ifndef WEIR_WATCH_REASON_H
#define WEIR_WATCH_REASON_H

#include "rt/runtime.h"
#include "watch/waits.h"

enum { REASON_BYTES = 480, REASON_STEPS_MAX = 4 };

/* Too large for a task's stack: part of what asks. */
struct reason {
    weir_runtime *runtime;
    int64_t now_ns;
    bool all_still;
    const bool *still;            /* by worker */
    struct symbol_table *symbols; /* or NULL */
    const weir_scope *held;       /* whose lock the caller has; or NULL */

    struct waits waits; /* of the task that was asked about last, if it is parked */
    bool parked;
    char part[192];
    size_t used;
    char text[REASON_BYTES]; /* the line; "" for a task that runs */
};

/* Into reason->text. The members above the gap were set. */
void reason_find(struct reason *reason, const struct task *task);

/* "task 'resize' #12": of one that a worker runs which does not stand still. False: it is gone. */
bool reason_busy_task(struct reason *reason, struct task *task);

/* As reason_find for a task that has no worker yet while one does not stand still and may take it:
 * nothing of it is looked at but where it shall run. Its scope's lock is held. */
void reason_not_started(struct reason *reason, const struct task *task);

#endif

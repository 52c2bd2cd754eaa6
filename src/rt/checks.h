/* checks.h - where the runtime asks the checks (watch/checks.h) to look.
 *
 * The functions are provided by watch, as dump_runtime is: the runtime knows when a task
 * suspends, ends, or a worker has nothing to do; what that means for locks and waits is not its
 * business. None is called in a runtime whose checks are off, but for a test of a bit that is
 * tested anyway (ATTENTION_HELD, runtime->deadlock_checks).
 */
#ifndef WEIR_RT_CHECKS_H
#define WEIR_RT_CHECKS_H

#include <stdbool.h>
#include <weir/check.h>

#include "base/atomic.h"

struct task;
struct worker;
struct checks;

/* What WEIR_CHECKS_DEFAULT means; a program of tests sets it before it opens a runtime. */
extern ATOM(bool) checks_default;
bool checks_wanted(enum weir_checks said);
/* How long a task has waited at least when it is said to be stuck, and how often that is looked
 * for: a second. Likewise set by a program of tests. */
extern ATOM(int64_t) checks_patience_ns;
/* Told of every report before the program is, if set: by a program of tests. */
extern ATOM(weir_check_fn) checks_observer;

/* 0, or -ENOMEM; runtime->lock_checks and deadlock_checks are set. */
int checks_open(weir_runtime *runtime, weir_check_fn fn, void *keep_arg);
void checks_free(weir_runtime *runtime);

/* The running task holds a lock, and makes a call that may suspend; or it ends. */
void checks_suspends(struct task *self);
void checks_ends(struct task *task);

/* The worker has nothing to do, and is about to sleep for limit_ns: for how long it should, at
 * most. On its own stack. */
int64_t checks_idle(struct worker *worker, int64_t limit_ns);

#endif

/* supervise.h - restarts under WEIR_SUPERVISE.
 *
 * The intensity is the scope's: a ring of the times of the last max_restarts
 * restarts. The backoff is the task's own: it doubles with each restart and begins
 * anew when the task has run for a whole window.
 */
#ifndef WEIR_RT_SUPERVISE_H
#define WEIR_RT_SUPERVISE_H

#include <weir/defs.h>

struct task;
struct worker;

/* Keep what a restart of the new task needs: 0 or -ENOMEM. */
int supervise_prepare(struct task *task);

/* The task has failed; its scope's lock is held. True: it stays in the scope and
 * starts again after its backoff. */
bool supervise_restart(struct worker *worker, weir_scope *scope, struct task *task);

#endif

/* signals.h - the signals a program lets its runtime take.
 *
 * Process-wide: one runtime at a time may take them. Handlers do no more than set a
 * flag and wake a worker; the handlers that were there before come back.
 */
#ifndef WEIR_RT_SIGNALS_H
#define WEIR_RT_SIGNALS_H

#include <weir/defs.h>

#include "base/list.h"

struct worker;

/* Install what runtime->signals asks for: 0, or WEIR_EREFUSED. */
int signals_install(weir_runtime *runtime);
void signals_remove(weir_runtime *runtime);
/* In a forked child: what the handlers were for stayed in the parent. */
void signals_forget_in_child(void);

/* A stack for signal handlers on a worker's thread, if overflow is reported or there is a
 * watchdog: its memory, on any thread before that one begins, and back if it does not; then
 * on that thread. */
int signals_worker_prepare(struct worker *worker);
void signals_worker_unprepare(struct worker *worker);
int signals_worker_begin(struct worker *worker);
void signals_worker_end(struct worker *worker);

/* Who wants to know when a signal has come that is watched. In runtime->signal_watchers,
 * counted by signal_watches; `look` is called under signal_lock. */
struct signal_watcher {
    struct list node;
    void (*look)(struct signal_watcher *watcher);
};

/* At a safe point: act on a signal that asked for a drain, and on watched ones. */
void signals_safe_point(struct worker *worker);

#endif

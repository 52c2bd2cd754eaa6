/* timer.h - a callback after a time, without a task.
 *
 * Owner: a scope. Lifetime: until weir_timer_close or the scope ends, whichever
 * is first. Backpressure: one pending expiry per timer. Failure: the callback
 * cannot fail; it may spawn a task that can.
 *
 * Threads: a timer belongs to the worker it was opened on; all its calls and its
 * callback happen there. The callback must not suspend (suspending calls answer
 * WEIR_ENOTASK in it). Once its scope is cancelled a timer does not fire any more.
 */
#ifndef WEIR_TIMER_H
#define WEIR_TIMER_H

#include <weir/defs.h>

WEIR_BEGIN

typedef struct weir_timer weir_timer;
/* What is called when the time has come, on the timer's worker. */
typedef void (*weir_timer_fn)(weir_timer *timer, void *keep_arg);

typedef struct weir_timer_spec {
    const char *name;      /* must be said; kept by pointer: a string constant */
    weir_timer_fn on_fire; /* must be said */
    void *keep_arg;
} weir_timer_spec;

/* weir_timer_spec_init - set every member to "not said". */
static inline void weir_timer_spec_init(weir_timer_spec *spec)
{
    memset(spec, 0, sizeof *spec);
}

/* weir_timer_open(scope, &spec, &timer) - a timer that is not running yet.
 * Errors: WEIR_EREFUSED, WEIR_ECANCELED (the scope is), -ENOMEM. Never suspends. */
WEIR_API WEIR_MUST_USE int weir_timer_open_sized(weir_scope *scope, size_t spec_bytes,
                                                 const weir_timer_spec *spec,
                                                 weir_timer **ret_timer);
#define weir_timer_open(scope, ...) \
    weir_timer_open_sized((scope), sizeof(weir_timer_spec), __VA_ARGS__)

/* weir_timer_start - fire once, `after_ms` from now; a running timer is set anew. "Now"
 * is the worker's last look at the clock: in a task that has kept the worker since then
 * a timer is early by that time, at most by a tick of the system (1 to 10 ms). For exact
 * times use weir_sleep. */
WEIR_API void weir_timer_start(weir_timer *timer, int64_t after_ms);

/* weir_timer_stop - do not fire. Returns whether the timer was running. */
WEIR_API bool weir_timer_stop(weir_timer *timer);

/* weir_timer_close - stop it and free it; its callback does not run any more. Takes NULL. */
WEIR_API void weir_timer_close(weir_timer *timer);

WEIR_END

#endif

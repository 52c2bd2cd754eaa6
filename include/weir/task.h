/* task.h - tasks: functions with a stack of their own, owned by a scope.
 *
 * Invariants: spawn copies its argument and never runs the child at once; a task
 * that has started stays on its worker; a task runs until its function returns.
 * Its argument's copy lives as long as the task.
 * Threads: from tasks and from callbacks (timers, idle waits) on a worker.
 */
#ifndef WEIR_TASK_H
#define WEIR_TASK_H

#include <weir/defs.h>
#include <weir/error.h>
#include <weir/scope.h>

WEIR_BEGIN

#define WEIR_ARG_BYTES_MAX (64 * 1024)

/* Names one task, also after it has ended. It stays usable until it is joined or
 * its scope is closed; after that the calls answer WEIR_ECLOSED. */
typedef struct weir_task {
    void *ref;
    uint64_t id;
} weir_task;

typedef struct weir_task_spec {
    weir_task_fn fn;       /* must be said */
    const void *arg;       /* copied: arg_bytes of it */
    size_t arg_bytes;      /* at most WEIR_ARG_BYTES_MAX */
    const char *name;      /* copied, at most 31 bytes; default "task" */
    enum weir_place place; /* default: the scope's */
    int worker;            /* with WEIR_PLACE_WORKER */
    size_t stack_bytes;    /* default: the scope's */
} weir_task_spec;

/* weir_task_spec_init - set every member to "not said". */
static inline void weir_task_spec_init(weir_task_spec *spec)
{
    memset(spec, 0, sizeof *spec);
}

/* weir_spawn(scope, fn, &value, sizeof value) - a task in `scope` that runs
 * fn(copy of value); its name is the text of `fn`.
 * Suspends only while the scope is full and its overflow is WEIR_WAIT.
 * Cancel: nothing moved (no task was made).
 * Errors: WEIR_EOVERLOAD (scope or runtime is full), WEIR_ECANCELED (the scope or
 * the caller is cancelled), WEIR_EREFUSED, WEIR_ENOTASK, -ENOMEM (no stack). */
WEIR_SUSPENDS int weir_spawn_named(weir_scope *scope, const char *name, weir_task_fn fn,
                                   const void *arg, size_t arg_bytes);
#define weir_spawn(scope, fn, arg, arg_bytes) \
    weir_spawn_named((scope), #fn, (fn), (arg), (arg_bytes))

/* weir_task_spawn(scope, &spec, &task) - the same with every choice said, and a
 * handle (ret_task may be NULL). Cancel and errors as weir_spawn. */
WEIR_SUSPENDS int weir_task_spawn_sized(weir_scope *scope, size_t spec_bytes,
                                        const weir_task_spec *spec, weir_task *ret_task);
#define weir_task_spawn(scope, ...) \
    weir_task_spawn_sized((scope), sizeof(weir_task_spec), __VA_ARGS__)

/* weir_task_join - wait until the task has ended; its function's result goes to
 * `ret_result` (may be NULL), and the handle is used up. A task joined this way
 * still reports its failure to its scope.
 * Cancel: nothing moved (the handle stays usable). Errors: WEIR_ECLOSED (already
 * joined, or its scope is closed), WEIR_EINUSE (another task is joining it). */
WEIR_SUSPENDS int weir_task_join(weir_task task, int *ret_result);

/* weir_task_cancel - cancel this one task and what is below it. Its ending with
 * WEIR_ECANCELED is then no failure. Returns 0, or WEIR_ECLOSED if it is gone.
 * `why` is kept by pointer and must be a string constant. Never suspends. */
WEIR_API int weir_task_cancel(weir_task task, const char *why);

/* weir_task_self - the calling task, or {NULL, 0} outside one.
 * weir_task_name - the calling task's name, or "". */
WEIR_API weir_task weir_task_self(void);
WEIR_API const char *weir_task_name(void);

/* weir_task_restarts - how often the calling task was started again by its
 * supervising scope. Never suspends. */
WEIR_API int weir_task_restarts(void);

/* weir_stopping - whether the calling task's scope is being stopped: finish what you
 * have and take on no more (weir_scope_stop). Never suspends. */
WEIR_API bool weir_stopping(void);

/* weir_yield - let every other ready task of this worker run once.
 * Cancel: nothing moved. Errors: WEIR_ECANCELED, WEIR_ETIMEDOUT, WEIR_ENOTASK. */
WEIR_SUSPENDS int weir_yield(void);

/* weir_checkpoint - check for cancellation; yields only when the task's budget of
 * suspending calls is used up. For long loops that make no suspending call.
 * Cancel: nothing moved. Errors as weir_yield. */
WEIR_SUSPENDS int weir_checkpoint(void);

/* weir_sleep - park for `ms`. WEIR_FOREVER parks until cancelled and is refused
 * (WEIR_ENODEADLINE) unless a deadline or WEIR_NO_DEADLINE is in force.
 * Cancel: nothing moved. Errors as weir_yield. */
#define WEIR_FOREVER INT64_MAX
WEIR_SUSPENDS int weir_sleep(int64_t ms);

/* weir_deadline_ns - the deadline in force for the calling task, on the clock of
 * weir_now_ns, or WEIR_FOREVER. Never suspends. */
WEIR_API int64_t weir_deadline_ns(void);

/* ---- Task locals: values that children inherit. ---- */

#define WEIR_LOCAL_BYTES_MAX 256

/* A key is a variable of static lifetime; its address is its identity. */
typedef struct weir_local_key {
    const char *name;
} weir_local_key;

/* weir_local_set - give the calling task its own value for `keep_key`: `bytes` of
 * `value` are copied; 0 bytes unset it. Tasks spawned later inherit the value as
 * it is then; changing it does not change theirs. Returns 0, -ENOMEM,
 * WEIR_EREFUSED (too large), WEIR_ENOTASK. Never suspends. */
WEIR_API WEIR_MUST_USE int weir_local_set(const weir_local_key *keep_key, const void *value,
                                          size_t bytes);

/* weir_local_get - the calling task's value for `key`, or NULL. Valid until the
 * task sets it again. Never suspends. */
WEIR_API const void *weir_local_get(const weir_local_key *key);

WEIR_END

#endif

/* scope.h - a scope owns tasks and does not end before they do.
 *
 * A task opens a scope, spawns tasks into it and closes it. Closing waits for
 * all of them and returns the first failure. Scopes nest: a scope opened inside
 * another one is cancelled with it, and its deadline is never later.
 *
 * Invariants: every task has a scope; a scope is closed by the task that opened
 * it, innermost first; a task that returns with an open scope aborts the program
 * with a sentence that names both places.
 * Threads: all calls belong to tasks of the runtime (any worker); open, join and
 * close to the opener. Other threads use a postbox (postbox.h).
 */
#ifndef WEIR_SCOPE_H
#define WEIR_SCOPE_H

#include <weir/defs.h>
#include <weir/error.h>

WEIR_BEGIN

/* What a task's failure does to its scope. */
enum weir_failure_policy {
    WEIR_FAILURE_UNSET = 0,
    WEIR_FAIL_FAST, /* the first failure cancels the siblings */
    WEIR_COLLECT,   /* the siblings go on; failures are gathered */
    WEIR_SUPERVISE, /* the task is started again, within the restart intensity; beyond it as
                       WEIR_FAIL_FAST; while the scope is stopping as WEIR_COLLECT */
};

/* Where a task may run: decided before its first instruction, never after. */
enum weir_place {
    WEIR_PLACE_UNSET = 0, /* of a task: as its scope says; of a scope: WEIR_ANYWHERE */
    WEIR_ANYWHERE,        /* here, unless an idle worker takes it first */
    WEIR_PLACE_HERE,      /* on the worker that spawns it */
    WEIR_PLACE_WORKER,    /* on the worker with the given index */
};

/* Restart intensity of WEIR_SUPERVISE: more than max_restarts failures within
 * window_ms are the scope's failure. A restart waits backoff_ms, doubled with
 * each restart inside the window up to backoff_ms_max, and gets a fresh copy of
 * the task's argument. */
typedef struct weir_restart {
    int max_restarts;
    int64_t window_ms;
    int64_t backoff_ms;
    int64_t backoff_ms_max; /* 0: backoff_ms */
} weir_restart;

#define WEIR_FAILURES_KEPT_DEFAULT 16

/* name, on_failure, max_tasks and overflow must be said. */
typedef struct weir_scope_spec {
    const char *name; /* copied, at most 63 bytes */
    enum weir_failure_policy on_failure;
    size_t max_tasks;            /* alive at one time */
    enum weir_overflow overflow; /* WEIR_WAIT or WEIR_REJECT */
    int64_t deadline_ms;         /* from now; 0: that of the enclosing block */
    weir_restart restart;        /* with WEIR_SUPERVISE only */
    enum weir_place place;       /* of its tasks; default WEIR_ANYWHERE */
    size_t stack_bytes;          /* of its tasks; default: the runtime's */
    size_t failures_kept;        /* for weir_scope_failures; WEIR_FAILURES_KEPT_DEFAULT */
} weir_scope_spec;

/* weir_scope_spec_init - set every member to "not said". */
static inline void weir_scope_spec_init(weir_scope_spec *spec)
{
    memset(spec, 0, sizeof *spec);
}

/* weir_scope_open(&spec, &scope) - open a scope inside the calling task's
 * innermost block. Errors: WEIR_EREFUSED (weir_why), WEIR_ENOTASK, -ENOMEM.
 * Never suspends. */
WEIR_API WEIR_MUST_USE int weir_scope_open_at(const char *where, size_t spec_bytes,
                                              const weir_scope_spec *spec, weir_scope **ret_scope);
#define weir_scope_open(...) weir_scope_open_at(WEIR_HERE, sizeof(weir_scope_spec), __VA_ARGS__)

/* weir_scope_join - wait until all tasks of the scope have ended, but for those of its
 * actors and pipelines, which serve others; it stays open. Returns what close would.
 * Suspends.
 * Cancel: nothing moved. A cancellation of the scope reaches its tasks, which are
 * awaited; a WEIR_DEADLINE inside the scope ends the wait with WEIR_ETIMEDOUT and the
 * tasks go on. */
WEIR_SUSPENDS int weir_scope_join(weir_scope *scope);

/* weir_scope_close - wait until all tasks have ended, release the scope and
 * return the first failure: a task's error; WEIR_ETIMEDOUT if the scope's own
 * deadline cut a task short; WEIR_ECANCELED if a cancellation from outside or the end
 * of a stop did; the error given to weir_scope_cancel. Tasks that all returned 0 or
 * more had their way: that is 0, however late. Order of release: tasks; actors and
 * pipelines, the newest first, each of which finishes what it has; postboxes and idle waits,
 * timers, then the scope. Suspends. Cancel: it is not cut short (see join).
 * Closing out of order or from another task aborts with a sentence. */
WEIR_SUSPENDS int weir_scope_close_at(const char *where, weir_scope *scope);
#define weir_scope_close(scope) weir_scope_close_at(WEIR_HERE, (scope))

/* weir_scope_cancel - every suspending call of every task below the scope fails
 * with WEIR_ECANCELED from now on. `error` is what close returns: 0 if this is a
 * normal way to end (the answer is there, drop the rest). `why` is kept by
 * pointer and must be a string constant. The first cancel wins; later ones change
 * nothing. Any task of the runtime that knows the scope is alive. Never suspends. */
WEIR_API void weir_scope_cancel(weir_scope *scope, int error, const char *why);

/* weir_scope_stop - not cancel: calls that take on new work (accept) return
 * WEIR_ESTOPPING, all others go on. After grace_ms what is left is cancelled, and
 * what was cut off is logged. Never suspends. Threads as cancel. */
WEIR_API void weir_scope_stop(weir_scope *scope, int64_t grace_ms);

typedef struct weir_failure {
    int error;
    char task[32];    /* name of the task, cut to fit */
    uint64_t task_id; /* as in the dump and the log */
    int restarts;     /* how often it had been started again */
    char why[128];    /* the task's weir_why() at its end, cut to fit */
} weir_failure;

/* weir_scope_failures - copy the failures recorded so far, oldest first, into
 * `failures` (at most `count_max`), and return how many there were in all, also
 * those beyond failures_kept. Never suspends. Threads as cancel. */
WEIR_API size_t weir_scope_failures(weir_scope *scope, weir_failure *failures, size_t count_max);

/* weir_scope_task_count - tasks alive now (waiting for a restart included). */
WEIR_API size_t weir_scope_task_count(weir_scope *scope);

/* weir_scope_name - the name given in its spec. */
WEIR_API const char *weir_scope_name(const weir_scope *scope);

/* Why the calling task is being cancelled. */
enum weir_cause {
    WEIR_CAUSE_NONE = 0,
    WEIR_CAUSE_DEADLINE, /* an enclosing deadline passed */
    WEIR_CAUSE_FAILURE,  /* a sibling failed under WEIR_FAIL_FAST */
    WEIR_CAUSE_CANCEL,   /* weir_scope_cancel or weir_task_cancel */
    WEIR_CAUSE_STOP,     /* the grace period of a stop ended */
};
typedef struct weir_cause_info {
    enum weir_cause cause;
    int error;         /* the sibling's, or the one given to cancel */
    const char *why;   /* a sentence */
    const char *scope; /* name of the scope or task that was cancelled */
} weir_cause_info;

/* weir_cause - fill `ret_info` with the cause of the outermost cancellation in
 * force for the calling task, and return it. Never suspends. The strings are
 * valid while the task stays in the block. */
WEIR_API enum weir_cause weir_cause(weir_cause_info *ret_info);

/* ---- Blocks. They may be left by return, break or goto out of them. ---- */

/* What a block keeps on the stack of the task; private to the library. */
typedef struct weir_block {
    void *opaque[14];
} weir_block;

/* weir_deadline_enter - what WEIR_DEADLINE calls. */
WEIR_API weir_block *weir_deadline_enter(weir_block *block, int64_t ms, const char *where);

/* weir_shield_enter - what WEIR_SHIELD calls. */
WEIR_API weir_block *weir_shield_enter(weir_block *block, int64_t ms, const char *where);

/* weir_no_deadline_enter - what WEIR_NO_DEADLINE calls. */
WEIR_API weir_block *weir_no_deadline_enter(weir_block *block, const char *keep_reason,
                                            const char *where);

/* weir_block_leave - what leaving such a block calls. */
WEIR_API void weir_block_leave(weir_block *block);

/* `n` makes the names unique, also for two blocks on one line. */
#define WEIR_BLOCK_(enter, ...) WEIR_BLOCK_N_(enter, __COUNTER__, __VA_ARGS__)
#define WEIR_BLOCK_N_(enter, n, ...) WEIR_BLOCK_NAMED_(enter, n, __VA_ARGS__)
#define WEIR_BLOCK_NAMED_(enter, n, ...)                                                           \
    for (weir_block weir_block_##n __attribute__((cleanup(weir_block_leave))) WEIR_UNINITIALIZED_, \
         *weir_once_##n = enter(&weir_block_##n, __VA_ARGS__, WEIR_HERE);                          \
         weir_once_##n; weir_once_##n = NULL)

/* WEIR_DEADLINE(ms) { … } - everything in the block must be done in `ms` from
 * now. When it is not, suspending calls in the block fail with WEIR_ETIMEDOUT;
 * when an outer deadline passes they fail with WEIR_ECANCELED. The earliest wins. */
#define WEIR_DEADLINE(ms) WEIR_BLOCK_(weir_deadline_enter, (ms))

/* WEIR_SHIELD(ms) { … } - for cleanup only: cancellation and deadlines from
 * outside do not reach the block, for at most `ms`. */
#define WEIR_SHIELD(ms) WEIR_BLOCK_(weir_shield_enter, (ms))

/* WEIR_NO_DEADLINE("why this may wait for ever") { … } - I/O in the block, in this
 * task, may wait without a deadline. Deadlines that are in force stay in force.
 * The reason is shown by the dump. */
#define WEIR_NO_DEADLINE(reason) WEIR_BLOCK_(weir_no_deadline_enter, (reason))

/* weir_scope_block_enter, weir_scope_block_leave - what WEIR_SCOPE calls.
 *
 * WEIR_SCOPE(scope, &result, .name = …, …) { … } - open a scope, run the block
 * with `scope` in it, close it however the block is left, and put close's result
 * (or open's error: then the block is skipped) into `result`. A negative value that
 * the block itself has put there stays, unless close has an error of its own. */
typedef struct weir_scope_block {
    weir_scope *scope;
    int *ret_result;
    const char *where;
} weir_scope_block;
WEIR_API weir_scope_block weir_scope_block_enter(const char *where, int *ret_result,
                                                 size_t spec_bytes, const weir_scope_spec *spec);
WEIR_API void weir_scope_block_leave(weir_scope_block *block);

#ifndef __cplusplus /* needs compound literals; C++ uses open and close */
#define WEIR_SCOPE(scope, ret_result, ...) \
    WEIR_SCOPE_N_(scope, __COUNTER__, ret_result, __VA_ARGS__)
#define WEIR_SCOPE_N_(scope, n, ret_result, ...) \
    WEIR_SCOPE_NAMED_(scope, n, ret_result, __VA_ARGS__)
#define WEIR_SCOPE_NAMED_(scope_, n, ret_result, ...)                                            \
    for (weir_scope_block weir_block_##n                                                         \
         __attribute__((cleanup(weir_scope_block_leave))) = weir_scope_block_enter(              \
             WEIR_HERE, (ret_result), sizeof(weir_scope_spec), &(weir_scope_spec){__VA_ARGS__}), \
         *weir_once_##n = weir_block_##n.scope ? &weir_block_##n : NULL;                         \
         weir_once_##n; weir_once_##n = NULL)                                                    \
        for (weir_scope *scope_ = weir_block_##n.scope; scope_; scope_ = NULL)
#endif

WEIR_END

#endif

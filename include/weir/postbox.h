/* postbox.h - how a thread that is not a worker gives work to a scope.
 *
 * Owner: a scope. Lifetime: until the scope ends; after that posting answers
 * WEIR_ECLOSED. The memory lives until the last holder has let go. Backpressure:
 * `capacity` posted functions that have not started; more are rejected, for a
 * foreign thread cannot be parked. Failure: a posted function is a task of the
 * scope and fails like one; what is still queued when the scope is cancelled is
 * run (its first suspending call fails), for it may own what it was given.
 *
 * Threads: any may post; it is opened by a task of the runtime.
 */
#ifndef WEIR_POSTBOX_H
#define WEIR_POSTBOX_H

#include <weir/defs.h>
#include <weir/error.h>

WEIR_BEGIN

typedef struct weir_postbox weir_postbox;

typedef struct weir_postbox_spec {
    const char *name;            /* must be said; copied, at most 31 bytes */
    size_t capacity;             /* must be said */
    enum weir_overflow overflow; /* must be WEIR_REJECT */
} weir_postbox_spec;

/* weir_postbox_spec_init - set every member to "not said". */
static inline void weir_postbox_spec_init(weir_postbox_spec *spec)
{
    memset(spec, 0, sizeof *spec);
}

/* weir_postbox_open(scope, &spec, &box) - the caller holds one reference.
 * Call it from the task that opened the scope. Errors: WEIR_EREFUSED,
 * WEIR_ECANCELED (the scope is), -ENOMEM.
 * Never suspends. An open postbox does not keep its scope from closing. */
WEIR_API WEIR_MUST_USE int weir_postbox_open_sized(weir_scope *scope, size_t spec_bytes,
                                                   const weir_postbox_spec *spec,
                                                   weir_postbox **ret_box);
#define weir_postbox_open(scope, ...) \
    weir_postbox_open_sized((scope), sizeof(weir_postbox_spec), __VA_ARGS__)

/* weir_postbox_ref - one more holder. weir_postbox_unref - one less; takes NULL. Any thread. */
WEIR_API weir_postbox *weir_postbox_ref(weir_postbox *box);
WEIR_API void weir_postbox_unref(weir_postbox *box);

/* weir_post(box, fn, &value, sizeof value) - run fn(copy of value) as a task of
 * the scope. Any thread; never blocks beyond a short lock, never suspends.
 * Errors: WEIR_EOVERLOAD (full), WEIR_ECLOSED (the scope has ended), -ENOMEM,
 * WEIR_ENOTASK (in a forked process). */
WEIR_API WEIR_MUST_USE int weir_post_named(weir_postbox *box, const char *name, weir_task_fn fn,
                                           const void *arg, size_t arg_bytes);
#define weir_post(box, fn, arg, arg_bytes) weir_post_named((box), #fn, (fn), (arg), (arg_bytes))

WEIR_END

#endif

/* shed.h - what has waited too long is let go, so that the rest is served in time.
 *
 *     r = weir_shed_open(scope, &(weir_shed_spec){.name = "requests", .target_ms = 5,
 *             .interval_ms = 100}, &shed);
 *     ...
 *     r = weir_shed_enter(shed, weir_now_ns() - request->came_ns);
 *     if (r == WEIR_EOVERLOAD) answer that it is too much, and take the next
 *
 * A queue that is only full for a moment is a good thing. One in which everything waits is not:
 * nobody is served any better for it. This tells the two apart by how long things have waited
 * when they are taken out (controlled delay, RFC 8289):
 *
 *  - Waits of less than target_ms are fine, for good.
 *  - More is fine for interval_ms: that is a burst, and nothing of it is shed.
 *  - If not one wait was under the target for that long, some are shed: one, the next
 *    interval_ms / √2 later, then interval_ms / √3, and so on, until a wait is under the target.
 *  - Whatever has waited longer than wait_max_ms is shed, in any case.
 *
 * While it sheds (weir_shed_is_shedding), a queue does well to serve its newest first: those
 * can still be served in time, and the oldest are shed by the last rule.
 *
 * Owner: a scope. Lifetime: until it is closed or the scope ends. Backpressure: this is it: what
 * is too much gets WEIR_EOVERLOAD, at once, and is counted. Failure: none of its own.
 *
 * Invariants: what has waited less than target_ms is never shed.
 * Threads: tasks of the runtime and callbacks, on any worker.
 */
#ifndef WEIR_SHED_H
#define WEIR_SHED_H

#include <weir/defs.h>
#include <weir/error.h>

WEIR_BEGIN

typedef struct weir_shed weir_shed;

/* name, target_ms and interval_ms must be said. */
typedef struct weir_shed_spec {
    const char *name;    /* copied, at most 31 bytes */
    int64_t target_ms;   /* how long things may wait for good */
    int64_t interval_ms; /* for how long it may be more; a few times as long as the target */
    int64_t wait_max_ms; /* at least target_ms; default: interval_ms */
} weir_shed_spec;

/* weir_shed_spec_init - set every member to "not said". */
static inline void weir_shed_spec_init(weir_shed_spec *spec)
{
    memset(spec, 0, sizeof *spec);
}

/* weir_shed_open(scope, &spec, &shed) - Errors: WEIR_EREFUSED (weir_why), WEIR_ECANCELED (the
 * scope is), WEIR_ENOTASK, -ENOMEM, -ENFILE. Never suspends. */
WEIR_API WEIR_MUST_USE int weir_shed_open_sized(weir_scope *scope, size_t spec_bytes,
                                                const weir_shed_spec *spec, weir_shed **ret_shed);
#define weir_shed_open(scope, ...) \
    weir_shed_open_sized((scope), sizeof(weir_shed_spec), __VA_ARGS__)

/* weir_shed_enter - something was taken out of its queue after `waited_ns`. Returns 0: it may go
 * on. Errors: WEIR_EOVERLOAD (it is to be shed), WEIR_ECLOSED (by another worker, just now).
 * Never suspends. */
WEIR_API WEIR_MUST_USE int weir_shed_enter(weir_shed *shed, int64_t waited_ns);

/* weir_shed_is_shedding - whether waits have been too long for too long, and still are. Never
 * suspends. */
WEIR_API bool weir_shed_is_shedding(weir_shed *shed);

/* What it has seen. */
typedef struct weir_shed_figures {
    uint64_t admitted;
    uint64_t shed;
    uint64_t too_late; /* of those: by wait_max_ms alone */
    bool shedding;     /* now */
} weir_shed_figures;

/* weir_shed_figures_of - the figures now. Never suspends. */
WEIR_API void weir_shed_figures_of(weir_shed *shed, weir_shed_figures *ret_figures);

/* weir_shed_close - free it. Takes NULL. Never suspends. */
WEIR_API void weir_shed_close(weir_shed *take_shed);

WEIR_END

#endif

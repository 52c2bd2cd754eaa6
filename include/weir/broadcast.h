/* broadcast.h - one value to many: every value to each subscriber, or only the latest.
 *
 * A **broadcast** keeps the last values that were published; each subscriber has a place in
 * them and gets all values in order. One that falls behind the history meets the policy
 * it has named. A **watch** keeps the latest value only: who looks gets that, and may wait
 * for the next change. Values are copied in and out.
 *
 * Owner: a scope. Lifetime: until it is closed or the scope ends; subscribers get what is
 * left of the history, then WEIR_ECLOSED. Backpressure: `history` values; a slow subscriber
 * by its lag policy. Failure: none of its own.
 *
 * Cancel: nothing moved.
 * Errors of every call that waits: WEIR_ECLOSED, WEIR_ECANCELED, WEIR_ETIMEDOUT, WEIR_ENOTASK.
 * Threads: tasks of the runtime, on any worker; calls that never suspend also callbacks on
 * a worker.
 */
#ifndef WEIR_BROADCAST_H
#define WEIR_BROADCAST_H

#include <weir/defs.h>
#include <weir/error.h>

WEIR_BEGIN

/* ---- Broadcast ---- */

typedef struct weir_broadcast weir_broadcast;
typedef struct weir_subscriber weir_subscriber;

#define WEIR_BROADCAST_HISTORY_MAX 65536
#define WEIR_BROADCAST_VALUE_BYTES_MAX 4096

/* What happens to a subscriber that has not taken a value which the history has no more
 * room for. */
enum weir_lag {
    WEIR_LAG_UNSET = 0,
    WEIR_LAG_SKIP,  /* it loses the oldest, and is told how many */
    WEIR_LAG_CLOSE, /* it gets WEIR_EOVERLOAD once, and from then on WEIR_ECLOSED */
    WEIR_LAG_WAIT,  /* publishers wait for it */
};

/* name, value_bytes, history and subscribers_max must be said. */
typedef struct weir_broadcast_spec {
    const char *name; /* copied, at most 31 bytes */
    size_t value_bytes;
    size_t history;         /* values kept */
    size_t subscribers_max; /* at one time */
} weir_broadcast_spec;

/* weir_broadcast_spec_init - set every member to "not said". */
static inline void weir_broadcast_spec_init(weir_broadcast_spec *spec)
{
    memset(spec, 0, sizeof *spec);
}

/* weir_broadcast_open(scope, &spec, &broadcast) - Errors: WEIR_EREFUSED (weir_why),
 * WEIR_ECANCELED (the scope is), WEIR_ENOTASK, -ENOMEM, -ENFILE. Never suspends. */
WEIR_API WEIR_MUST_USE int weir_broadcast_open_sized(weir_scope *scope, size_t spec_bytes,
                                                     const weir_broadcast_spec *spec,
                                                     weir_broadcast **ret_broadcast);
#define weir_broadcast_open(scope, ...) \
    weir_broadcast_open_sized((scope), sizeof(weir_broadcast_spec), __VA_ARGS__)

/* weir_broadcast_publish - a value for every subscriber there is now. Suspends only while a
 * subscriber with WEIR_LAG_WAIT has not taken the oldest value. Without subscribers the
 * value is only kept in the history. */
WEIR_SUSPENDS int weir_broadcast_publish(weir_broadcast *broadcast, const void *value);

/* weir_broadcast_subscribe - from the next value on, or, with `replay`, from the oldest that
 * is kept. Errors: WEIR_EREFUSED (lag is not set), WEIR_EOVERLOAD (subscribers_max),
 * -ENOMEM, -ENFILE. Never suspends. */
WEIR_API WEIR_MUST_USE int weir_broadcast_subscribe(weir_broadcast *broadcast, enum weir_lag lag,
                                                    bool replay, weir_subscriber **ret_subscriber);

/* weir_subscriber_next - the next value, copied to `ret_value`. Returns how many values were
 * lost before it (0 unless WEIR_LAG_SKIP), or an error; WEIR_EOVERLOAD: see WEIR_LAG_CLOSE. */
WEIR_SUSPENDS int weir_subscriber_next(weir_subscriber *subscriber, void *ret_value);

/* weir_subscriber_close - no more values for it. Takes NULL. Never suspends. */
WEIR_API void weir_subscriber_close(weir_subscriber *take_subscriber);

/* weir_broadcast_close - no more values. Subscribers get what is left, then WEIR_ECLOSED;
 * they stay until they are closed, or the scope ends. Takes NULL. Never suspends. */
WEIR_API void weir_broadcast_close(weir_broadcast *take_broadcast);

/* ---- Watch ---- */

typedef struct weir_watch weir_watch;

/* weir_watch_open - with a first value of `value_bytes` (at most
 * WEIR_BROADCAST_VALUE_BYTES_MAX). `name` is copied, at most 31 bytes. Errors as
 * weir_broadcast_open. Never suspends. */
WEIR_API WEIR_MUST_USE int weir_watch_open(weir_scope *scope, const char *name, const void *value,
                                           size_t value_bytes, weir_watch **ret_watch);

/* weir_watch_set - replace the value, and let everybody who waits for a change go on. Never
 * suspends. */
WEIR_API void weir_watch_set(weir_watch *watch, const void *value);

/* weir_watch_get - copy the value to `ret_value` (may be NULL) and return its version, which
 * is 1 at first and grows with each change. Never suspends. */
WEIR_API uint64_t weir_watch_get(weir_watch *watch, void *ret_value);

/* weir_watch_changed - wait until the version is beyond `*version`; then copy the value to
 * `ret_value` (may be NULL) and the new version to `*version`. Changes in between are not
 * seen: it is the latest. */
WEIR_SUSPENDS int weir_watch_changed(weir_watch *watch, uint64_t *version, void *ret_value);

/* weir_watch_close - free it; who waits gets WEIR_ECLOSED. Takes NULL. Never suspends. */
WEIR_API void weir_watch_close(weir_watch *take_watch);

WEIR_END

#endif

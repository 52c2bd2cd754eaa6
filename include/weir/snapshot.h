/* snapshot.h - a value that many read as it is, while somebody makes the next one.
 *
 * What is published never changes. A reader takes the latest version, reads it without a
 * lock for as long as it likes, and gives it back; a writer makes the next version from a
 * copy and puts it in place (copy on write). For settings, tables of routes, lists of
 * peers: what is read by everybody and changed now and then. What is small and is only
 * copied out is simpler as a watch (broadcast.h).
 *
 *     const struct routes *routes = weir_snapshot_take(snapshot);
 *     ... may suspend, and hand it to a pool ...
 *     weir_snapshot_give_back(routes);
 *
 * Owner: a scope. Lifetime: until it is closed or the scope ends; versions that were taken
 * stay until they are given back. Backpressure: `versions_max` versions exist at one time; a
 * writer is refused (WEIR_EOVERLOAD) while readers hold that many. Failure: none of its own;
 * `on_free` gets every version once, when nobody can read it any more.
 *
 * Threads: tasks of the runtime, on any worker, and callbacks there; what is said at each
 * call.
 */
#ifndef WEIR_SNAPSHOT_H
#define WEIR_SNAPSHOT_H

#include <weir/defs.h>
#include <weir/error.h>

WEIR_BEGIN

typedef struct weir_snapshot weir_snapshot;

#define WEIR_SNAPSHOT_BYTES_MAX (64 * 1024 * 1024)
#define WEIR_SNAPSHOT_VERSIONS_MAX 65536

/* Called once for each version that nobody will read any more, to free what it points at;
 * on the thread of whoever made it so. It must not suspend. */
typedef void (*weir_snapshot_free_fn)(void *value, void *keep_arg);

/* Changes a copy of the latest version: 0 or more, or an error, and then nothing is
 * published. It must not suspend. */
typedef int (*weir_snapshot_update_fn)(void *value, void *arg);

/* name, value_bytes and versions_max must be said. */
typedef struct weir_snapshot_spec {
    const char *name; /* copied, at most 31 bytes */
    size_t value_bytes;
    size_t versions_max;           /* the latest one, and those that are still read; at least 2 */
    weir_snapshot_free_fn on_free; /* default: values are plain bytes and are forgotten */
    void *keep_arg;                /* of on_free */
} weir_snapshot_spec;

/* weir_snapshot_spec_init - set every member to "not said". */
static inline void weir_snapshot_spec_init(weir_snapshot_spec *spec)
{
    memset(spec, 0, sizeof *spec);
}

/* weir_snapshot_open(scope, &spec, &value, &snapshot) - with a first version, copied from
 * `value`. Errors (`value` is still the caller's): WEIR_EREFUSED (weir_why), WEIR_ECANCELED
 * (the scope is), WEIR_ENOTASK, -ENOMEM, -ENFILE. Never suspends. */
WEIR_API WEIR_MUST_USE int weir_snapshot_open_sized(weir_scope *scope, size_t spec_bytes,
                                                    const weir_snapshot_spec *spec,
                                                    const void *value,
                                                    weir_snapshot **ret_snapshot);
#define weir_snapshot_open(scope, ...) \
    weir_snapshot_open_sized((scope), sizeof(weir_snapshot_spec), __VA_ARGS__)

/* weir_snapshot_take - the latest version, which stays as it is until it is given back. Never
 * fails, never suspends. */
WEIR_API WEIR_MUST_USE const void *weir_snapshot_take(weir_snapshot *snapshot);

/* weir_snapshot_give_back - the reader is done with a version that it has taken. What was
 * never taken, or is given back once more than it was, is misuse and aborts with a sentence
 * as far as that can be seen. Takes NULL. Never suspends. Any thread, also after the scope. */
WEIR_API void weir_snapshot_give_back(const void *take_value);

/* weir_snapshot_publish - the next version, copied from `value`. Errors (`value` is still the
 * caller's): WEIR_EOVERLOAD (versions_max), -ENOMEM. Never suspends. */
WEIR_API WEIR_MUST_USE int weir_snapshot_publish(weir_snapshot *snapshot, const void *value);

/* weir_snapshot_update - the next version is a copy of the latest that `fn(copy, arg)` has
 * changed. No change of another writer is lost: if one came in between, the copy is forgotten
 * and `fn` is called with a new one. So what `fn` allocates for the copy it must free itself
 * when it is called again. Returns 0, or what `fn` returned if that is an error. Errors of its
 * own: WEIR_EOVERLOAD, -ENOMEM. Never suspends. */
WEIR_API WEIR_MUST_USE int weir_snapshot_update(weir_snapshot *snapshot, weir_snapshot_update_fn fn,
                                                void *arg);

/* What a snapshot has seen. */
typedef struct weir_snapshot_figures {
    uint64_t version;      /* 1 at first, one more with each that is published */
    size_t versions_alive; /* the latest one, and those that are still read */
    uint64_t rejected;     /* WEIR_EOVERLOAD */
} weir_snapshot_figures;

/* weir_snapshot_figures_of - the figures now. Never suspends. */
WEIR_API void weir_snapshot_figures_of(weir_snapshot *snapshot, weir_snapshot_figures *ret_figures);

/* weir_snapshot_close - free it. Versions that are taken stay. Takes NULL. Never suspends. */
WEIR_API void weir_snapshot_close(weir_snapshot *take_snapshot);

WEIR_END

#endif

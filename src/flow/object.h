/* object.h - what every object of this layer is: named, owned by a scope, known by handles.
 *
 * A program holds handles (rt/handle.h). The object's memory is type-stable (rt/stable.h),
 * so that a task whose wait is interrupted while it is being woken finds a lock. Its
 * scope ends it: then its handles name nothing any more.
 *
 * Invariants: what a kind keeps is covered by the object's lock, which is left out when
 * one worker is alone with it (`stable.shared` is false); nothing is called under it that is not
 * this layer's own: hooks of programs run after it was let go.
 */
#ifndef WEIR_FLOW_OBJECT_H
#define WEIR_FLOW_OBJECT_H

#include "rt/handle.h"
#include "rt/runtime.h"
#include "rt/scope.h"
#include "rt/stable.h"

enum { FLOW_NAME_BYTES = 32 };

struct flow_object {
    struct stable stable; /* with the lock; the first member */
    bool ended;           /* its scope has let it go */
    bool has_sides;       /* a channel with a second lock: chan.h */
    struct belonging belonging;
    char name[FLOW_NAME_BYTES];
};

/* Keep a copy of a name, as much of it as fits. */
void flow_name(char to[FLOW_NAME_BYTES], const char *name);
/* On a worker: memory for an object of `bytes` that begins with a struct flow_object. */
void *flow_alloc(size_t bytes, const char *name);
void *flow_alloc_kept(size_t bytes, size_t kept_from, const char *name); /* rt/stable.h */
/* An object that no scope owns (yet, or any more). Takes NULL. */
void flow_free(struct flow_object *take_object);

static inline void flow_lock(struct flow_object *object)
    LOCK_ACQUIRES(object->stable.lock, weir_no_park) LOCK_UNCHECKED
{
    lock_acquire_if(&object->stable.lock, object->stable.shared);
}

static inline void flow_unlock(struct flow_object *object)
    LOCK_RELEASES(object->stable.lock, weir_no_park) LOCK_UNCHECKED
{
    lock_release_if(&object->stable.lock, object->stable.shared);
}

/* Which rule it is that `call` breaks with this handle. */
_Noreturn void flow_misused(const void *handle, const char *what, const char *call);

/* Abort if the calling thread is not a worker: `call` may wake tasks, or needs no lock. */
void flow_check_worker(const char *call);

/* What a handle of a program names, for calls of any thread. */
static inline void *flow_look_up(const void *handle, enum handle_kind kind, const char *what,
                                 const char *call)
{
    void *object = handle_object(handle, kind);
    if (__builtin_expect(!object, 0)) flow_misused(handle, what, call);
    return object;
}

/* Whether the handle still names it: a call may have yielded since it looked it up, or another
 * worker has closed it, which the object's lock orders. Such a call is told WEIR_ECLOSED, as
 * if it had waited. */
static inline bool flow_names(const void *handle, enum handle_kind kind, const void *object)
{
    return __builtin_expect(handle_object(handle, kind) == object, 1);
}

/* A spec's name: 0, or refused with a sentence that begins with `what`. */
int flow_check_name(const char *what, const char *name);

#endif

/* sync.h - what event, semaphore, mutex and read-write lock share: a queue, and an end. */
#ifndef WEIR_FLOW_SYNC_H
#define WEIR_FLOW_SYNC_H

#include "flow/wait.h"

struct sync_kind {
    struct belonging_kind belonging; /* the first member */
    enum handle_kind handle;
    const char *what;                        /* "mutex" */
    void (*check_end)(struct flow_object *); /* may be NULL: nothing forbids its end now */
};

/* An object with one queue of waiters. */
struct sync {
    struct flow_object object; /* the first member */
    const struct sync_kind *kind;
    void *handle;
    struct list waiters;
};

/* Make one of `bytes` in the scope. */
int sync_open(weir_scope *scope, const struct sync_kind *kind, size_t bytes, const char *name,
              const char *call, struct sync **ret_sync);
void sync_close(const void *handle, const struct sync_kind *kind, const char *call);

/* What a kind's `release` does: its scope ends, or it is closed before that. True: it is
 * free. False: mail is under way, and `release` will be called again. On its worker. */
bool sync_let_go(struct worker *worker, struct sync *sync);
/* The first part of that: nobody finds it any more, and who waits is told. Again: nothing. */
void sync_end(struct sync *sync);
/* The same for one whose memory is in use still: true: its scope knows it no more, and whoever
 * is the last calls flow_free. */
bool sync_forget(struct sync *sync);

/* For struct sync_kind. */
void sync_release(struct worker *worker, struct belonging *belonging);
void sync_signalled(struct worker *worker, struct belonging *belonging, uint8_t signals);
void sync_describe(const struct belonging *belonging, char *text, size_t bytes);
/* The part of a `boundary` that all of them share: the name, the lifetime, who waits. True
 * if the lock could be taken, and is held: then the kind may read what changes, and calls
 * sync_boundary_end. */
bool sync_boundary(struct sync *sync, struct boundary *ret_boundary);
void sync_boundary_end(struct sync *sync);

/* Wait in the queue. The lock is held, and let go. `waiter` is filled but for its task. */
int sync_wait(struct sync *sync, struct task *self, struct waiter *waiter,
              const struct wait_kind *kind) LOCK_RELEASES(sync->object.stable.lock, weir_no_park);

static inline void sync_unlock(struct sync *sync)
    LOCK_RELEASES(sync->object.stable.lock, weir_no_park) LOCK_UNCHECKED
{
    flow_unlock(&sync->object);
}

static inline void sync_lock(struct sync *sync)
    LOCK_ACQUIRES(sync->object.stable.lock, weir_no_park) LOCK_UNCHECKED
{
    flow_lock(&sync->object);
}

#endif

/* pollable.h - a descriptor that tasks wait on.
 *
 * Edge-triggered: the caller tries its system call first and waits only after
 * -EAGAIN; an edge that arrives while nobody waits is remembered in `ready`, so a
 * wait after it returns at once and the caller tries again.
 *
 * Invariants: at most one task waits for each direction; the descriptor is
 * registered with the worker that first waited (`home`), but the waiting tasks may
 * be on any; the memory is type-stable and `generation` tells a late event of a
 * former life from one of this.
 * Threads: the lock covers everything; with one worker it is left out.
 */
#ifndef WEIR_RT_POLLABLE_H
#define WEIR_RT_POLLABLE_H

#include <weir/defs.h>

#include "base/atomic.h"
#include "rt/kernel.h"
#include "rt/lock.h"

struct task;
struct worker;
struct wait_kind;

/* Called once on the home worker, on its own stack, when the descriptor is
 * readable. */
typedef void (*pollable_fn)(struct worker *worker, void *arg);

struct pollable {
    /* One line of the cache: all that a wait and a wake-up touch with one worker. */
    int fd;
    uint16_t generation;
    uint8_t ready;     /* READY_*: edges nobody has used yet */
    ATOM(bool) beyond; /* READY_BEYOND was reported; stays set */
    weir_runtime *runtime;
    struct worker *home;     /* NULL: not registered yet */
    struct task *waiters[2]; /* for in, for out */
    pollable_fn callback;    /* instead of a waiter for in */
    void *callback_arg;
    struct pollable *free_next;
    struct lock lock;
} __attribute__((aligned(64)));

/* For a descriptor that stays the caller's. Never suspends. On a worker. */
int pollable_new(int fd, struct pollable **ret_pollable);

/* Unregister and free; before the descriptor is closed. A waiting task is misuse.
 * Takes NULL. On any worker, or after the runtime's tasks have ended. */
void pollable_free(struct pollable *pollable, const char *call);

/* Wait for `direction` (READY_IN or READY_OUT). 0: try again. WEIR_EINUSE: another
 * task waits for the same. The caller has called task_enter; `kind` uses
 * pollable_abort and pollable_describe. Suspends. */
int pollable_wait(struct pollable *pollable, unsigned direction, const struct wait_kind *kind);

/* Have `fn(worker, arg)` called when it is readable, on the calling worker, which
 * becomes its home. 0; WEIR_EINUSE; or the kernel's error. The call may come for an
 * edge of the past, so the descriptor is read-tested by whoever is called. */
int pollable_call_when_readable(struct pollable *pollable, pollable_fn fn, void *arg);
/* Take that back. True: it will not be called. On the home worker. */
bool pollable_call_off(struct pollable *pollable);

/* Has an edge told of more than data? Then a read that stops short proves nothing: the
 * end that came with the data makes no edge of its own. Edges that were used before
 * are known here; one that was not will end the next wait. */
static inline bool pollable_beyond(const struct pollable *pollable)
{
    return atom_load(&pollable->beyond);
}

/* The descriptor of a program's connection. Provided by io/conn.c, so that a select can
 * wait for one beside other things; `ret_now`: it is readable at once. NULL: it is being
 * read by somebody else. On a worker of the connection's runtime. */
struct pollable *pollable_of_conn(const void *conn, const char *call, bool *ret_now);
/* An edge was reported: is there really something to read? */
bool pollable_of_conn_readable(const void *conn);
/* The wait for it is over: others may read. */
void pollable_of_conn_done(const void *conn);

/* For struct wait_kind; the object is the pollable. */
bool pollable_abort(struct task *task, void *object);
void pollable_describe(const void *object, char *text, size_t bytes);

/* The worker's queue has reported something. */
void pollable_event(struct worker *worker, const struct kernel_event *event);

#endif

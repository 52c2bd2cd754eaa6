/* pollable.c - readiness of descriptors, from the kernel's queue to the tasks. */
#include "rt/pollable.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

#include "rt/mem.h"
#include "rt/runtime.h"
#include "rt/task.h"

enum { POLLABLE_SLAB_COUNT = 32, TAG_GENERATION_SHIFT = 48 };

struct pollable_slab {
    struct pollable_slab *next;
    unsigned char memory[]; /* pollables, from the first aligned address on */
};

static struct pollable *first_of(struct pollable_slab *slab)
{
    uintptr_t alignment = _Alignof(struct pollable);

    return (struct pollable *)(((uintptr_t)slab->memory + alignment - 1) & ~(alignment - 1));
}

static void pollable_lock(struct pollable *pollable)
    LOCK_ACQUIRES(pollable->lock, weir_no_park) LOCK_UNCHECKED
{
    lock_acquire_if(&pollable->lock, pollable->runtime->shared);
}

static void pollable_unlock(struct pollable *pollable)
    LOCK_RELEASES(pollable->lock, weir_no_park) LOCK_UNCHECKED
{
    lock_release_if(&pollable->lock, pollable->runtime->shared);
}

/* User-space addresses have 48 bits: the rest of the tag holds the generation. */
static uint64_t tag_of(const struct pollable *pollable)
{
    return (uint64_t)(uintptr_t)pollable | ((uint64_t)pollable->generation << TAG_GENERATION_SHIFT);
}

static int slab_add(weir_runtime *runtime)
{
    size_t bytes = POLLABLE_SLAB_COUNT * sizeof(struct pollable) + _Alignof(struct pollable);
    struct pollable_slab *slab = mem_alloc_zeroed(sizeof *slab + bytes);

    if (!slab) return -ENOMEM;
    for (unsigned i = 0; i < POLLABLE_SLAB_COUNT; i++) {
        struct pollable *pollable = first_of(slab) + i;
        lock_init(&pollable->lock);
        pollable->runtime = runtime;
        pollable->free_next = runtime->free_pollables;
        runtime->free_pollables = pollable;
    }
    slab->next = runtime->pollable_slabs;
    runtime->pollable_slabs = slab;
    return 0;
}

void pollable_slabs_free(weir_runtime *runtime)
{
    while (runtime->pollable_slabs) {
        struct pollable_slab *slab = runtime->pollable_slabs;
        runtime->pollable_slabs = slab->next;
        for (unsigned i = 0; i < POLLABLE_SLAB_COUNT; i++) lock_deinit(&first_of(slab)[i].lock);
        mem_free(slab);
    }
}

int pollable_new(int fd, struct pollable **ret_pollable)
{
    weir_runtime *runtime = worker_self()->runtime;
    struct pollable *pollable;
    int r = 0;

    lock_acquire(&runtime->memory_lock);
    if (!runtime->free_pollables) r = slab_add(runtime);
    pollable = runtime->free_pollables;
    if (r == 0) runtime->free_pollables = pollable->free_next;
    lock_release(&runtime->memory_lock);
    if (r < 0) return r;
    pollable_lock(pollable);
    pollable->fd = fd;
    pollable->ready = 0;
    atom_store(&pollable->beyond, false);
    pollable->home = NULL;
    pollable->callback = NULL;
    pollable_unlock(pollable);
    *ret_pollable = pollable;
    return 0;
}

/* The lock is held. */
static void unwatch(struct pollable *pollable)
{
    struct worker *home = pollable->home;
    if (!home) return;
    home->kernel->queue_unwatch(home->queue, pollable->fd);
    (void)atom_sub(&home->watched, 1);
    pollable->home = NULL;
    pollable->generation++;
}

/* The lock is held. */
static int watch(struct pollable *pollable, struct worker *worker)
{
    int r = worker->kernel->queue_watch(worker->queue, pollable->fd, tag_of(pollable));
    if (r < 0) return r;
    pollable->home = worker;
    (void)atom_add(&worker->watched, 1);
    return 0;
}

void pollable_free(struct pollable *pollable, const char *call)
{
    weir_runtime *runtime;
    struct task *waiter;

    if (!pollable) return;
    runtime = pollable->runtime;
    pollable_lock(pollable);
    waiter = pollable->waiters[0] ? pollable->waiters[0] : pollable->waiters[1];
    if (waiter) {
        misuse("%s: task '%s' is waiting on the descriptor (%d) that is being closed", call,
               waiter->name, pollable->fd);
    }
    unwatch(pollable);
    pollable->generation++;
    pollable_unlock(pollable);
    lock_acquire(&runtime->memory_lock);
    pollable->free_next = runtime->free_pollables;
    runtime->free_pollables = pollable;
    lock_release(&runtime->memory_lock);
}

static unsigned index_of(unsigned direction)
{
    return direction == READY_IN ? 0 : 1;
}

/* 1: an edge was there, try again; 0: the task is registered and must park. */
static int register_waiter(struct pollable *pollable, struct worker *worker, unsigned direction,
                           struct task *self)
{
    unsigned index = index_of(direction);

    if (pollable->waiters[index] || (direction == READY_IN && pollable->callback)) {
        return WEIR_EINUSE;
    }
    if (!pollable->home) {
        int r = watch(pollable, worker);
        if (r < 0) return r;
    }
    if (pollable->ready & direction) {
        pollable->ready &= (uint8_t)~direction;
        return 1;
    }
    pollable->waiters[index] = self;
    return 0;
}

int pollable_wait(struct pollable *pollable, unsigned direction, const struct wait_kind *kind)
{
    struct worker *worker = worker_self();
    struct task *self = atom_load(&worker->current);
    int r;

    pollable_lock(pollable);
    r = register_waiter(pollable, worker, direction, self);
    pollable_unlock(pollable);
    if (r != 0) return r < 0 ? r : 0;
    return task_park(self, kind, pollable);
}

bool pollable_abort(struct task *task, void *object)
{
    struct pollable *pollable = object;
    bool waiting = false;

    pollable_lock(pollable);
    for (unsigned i = 0; i < 2; i++) {
        if (pollable->waiters[i] != task) continue;
        pollable->waiters[i] = NULL;
        waiting = true;
    }
    pollable_unlock(pollable);
    return waiting;
}

void pollable_describe(const void *object, char *text, size_t bytes)
{
    const struct pollable *pollable = object;
    (void)snprintf(text, bytes, "descriptor %d", pollable->fd);
}

int pollable_call_when_readable(struct pollable *pollable, pollable_fn fn, void *arg)
{
    struct worker *worker = worker_self();
    int r = 0;

    pollable_lock(pollable);
    if (pollable->waiters[0] || pollable->callback ||
        (pollable->home && pollable->home != worker && pollable->waiters[1])) {
        r = WEIR_EINUSE;
    } else {
        /* Registering anew makes the kernel report what is readable already. */
        unwatch(pollable);
        r = watch(pollable, worker);
        if (r < 0 && pollable->waiters[1]) {
            struct task *writer = pollable->waiters[1];
            pollable->waiters[1] = NULL;
            task_wake(writer, r); /* nobody reports to it any more */
        }
    }
    if (r == 0) {
        pollable->ready &= (uint8_t)~READY_IN;
        pollable->callback = fn;
        pollable->callback_arg = arg;
    }
    pollable_unlock(pollable);
    return r;
}

bool pollable_call_off(struct pollable *pollable)
{
    bool waiting;
    pollable_lock(pollable);
    waiting = pollable->callback != NULL;
    pollable->callback = NULL;
    pollable_unlock(pollable);
    return waiting;
}

void pollable_event(struct worker *worker, const struct kernel_event *event)
{
    uintptr_t address = (uintptr_t)(event->tag & ((UINT64_C(1) << TAG_GENERATION_SHIFT) - 1));
    struct pollable *pollable = (struct pollable *)address;
    pollable_fn callback = NULL;
    void *arg = NULL;

    pollable_lock(pollable);
    if (pollable->home != worker || tag_of(pollable) != event->tag) {
        pollable_unlock(pollable); /* of a former life */
        return;
    }
    /* Before the wake-ups: who is woken sees it. */
    if (event->ready & READY_BEYOND) atom_store(&pollable->beyond, true);
    for (unsigned i = 0; i < 2; i++) {
        unsigned direction = i == 0 ? READY_IN : READY_OUT;
        struct task *waiter = pollable->waiters[i];
        if (!(event->ready & direction)) continue;
        if (waiter) {
            pollable->waiters[i] = NULL;
            task_wake(waiter, 0);
        } else if (direction == READY_IN && pollable->callback) {
            callback = pollable->callback;
            arg = pollable->callback_arg;
            pollable->callback = NULL;
        } else {
            pollable->ready |= (uint8_t)direction;
        }
    }
    pollable_unlock(pollable);
    if (callback) callback(worker, arg);
}

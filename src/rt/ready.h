/* ready.h - the tasks that are ready on a worker, first in, first out.
 *
 * They stand in a ring, so that the ones that run next are known without a look at
 * those before them, and can be on their way from memory in time: with many tasks each
 * is a few misses of the caches, and mostly one of the page tables too. What does not
 * fit waits in a list behind the ring, so that a wake-up neither fails nor allocates.
 *
 * Invariants: the first READY_RING tasks are in the ring, the others in the list; `head`
 * moves by one with each task that is taken from the ring's front, and only then.
 */
#ifndef WEIR_RT_READY_H
#define WEIR_RT_READY_H

#include "base/atomic.h"
#include "rt/task.h"

/* First in, first out; intrusive through run_next. */
struct run_queue {
    struct task *head;
    struct task *tail;
};

static inline void run_queue_push(struct run_queue *queue, struct task *task)
{
    task->run_next = NULL;
    if (queue->tail) {
        queue->tail->run_next = task;
    } else {
        queue->head = task;
    }
    queue->tail = task;
}

static inline struct task *run_queue_pop(struct run_queue *queue)
{
    struct task *task = queue->head;
    if (!task) return NULL;
    queue->head = task->run_next;
    if (!queue->head) queue->tail = NULL;
    return task;
}

enum {
    READY_RING = 1024, /* a power of two */
    READY_AHEAD = 4,   /* the task so many places ahead is fetched, ... */
    READY_LINES = 2,   /* ... with so much of its stack; ... */
    /* ... and so much if it may come back from a wait, through the frames of a few calls. */
    READY_LINES_DEEP = 6,
};

struct ready_queue {
    /* Place of the next task; counts up for ever, so that it also tells the watchdog whether
     * the worker has taken another one. */
    ATOM(unsigned) head;
    struct run_queue list;
    /* In the ring and in the list. Not beside `head`: the two are written one by one, and must
     * not be read as one word, which would wait for both. */
    unsigned count;
    struct task *tasks[READY_RING];
    /* Only what to fetch: where the task's stack goes on, or went on in a former life. */
    const void *stacks[READY_RING];
};

static inline void ready_put(struct ready_queue *queue, unsigned place, struct task *task,
                             const void *stack)
{
    queue->tasks[place % READY_RING] = task;
    queue->stacks[place % READY_RING] = stack;
}

static inline void ready_push(struct ready_queue *queue, struct task *task)
{
    unsigned count = queue->count++;
    if (__builtin_expect(count < READY_RING, 1)) {
        unsigned place = (atom_load(&queue->head) + count) % READY_RING;
        queue->tasks[place] = task;
        /* Those at the front are not fetched any more. */
        if (count >= READY_AHEAD) queue->stacks[place] = task->context.sp;
    } else {
        run_queue_push(&queue->list, task);
    }
}

/* Before the next task is taken. */
static inline __attribute__((always_inline)) void ready_fetch_ahead(const struct ready_queue *queue,
                                                                    unsigned head, unsigned lines)
{
    /* Maybe of a task that has run long ago, or of none: harmless, and cheaper than to
     * ask. As an integer, for there is no arithmetic on NULL. */
    unsigned place = (head + READY_AHEAD) % READY_RING;
    uintptr_t stack = (uintptr_t)queue->stacks[place];
    __builtin_prefetch(queue->tasks[place]);
    for (unsigned i = 0; i < lines; i++) __builtin_prefetch((const void *)(stack + i * 64));
}

/* A place of the ring has become free: the first task of the list gets it. The one
 * behind that is wanted next. */
static inline void ready_refill(struct ready_queue *queue)
{
    struct task *task = run_queue_pop(&queue->list);
    __builtin_prefetch(queue->list.head);
    ready_put(queue, atom_load(&queue->head) + READY_RING - 1, task, task->context.sp);
}

static inline struct task *ready_pop(struct ready_queue *queue)
{
    struct task *task;
    unsigned head;

    if (queue->count == 0) return NULL;
    head = atom_load(&queue->head);
    if (queue->count > READY_AHEAD) ready_fetch_ahead(queue, head, READY_LINES_DEEP);
    task = queue->tasks[head % READY_RING];
    atom_store(&queue->head, head + 1);
    if (__builtin_expect(queue->count-- > READY_RING, 0)) ready_refill(queue);
    return task;
}

/* Take the task at `index`, which is below `count`; 0 has waited longest. */
struct task *ready_take(struct ready_queue *queue, unsigned index);

#endif

/* stack.h - stacks for tasks: mapped in slabs, guarded, reused while hot.
 *
 * Size classes are powers of two from WEIR_STACK_BYTES_MIN, and no less than a page;
 * the whole size is usable, the guard lies below it. Stacks of a class are mapped in slabs of
 * STACK_SLAB_COUNT. A credit is the promise of a stack: whoever holds one gets a
 * stack without failing, so "no stack" is an error of spawn, not of running.
 *
 * Invariants: mapped >= credits given out + what workers may keep in their caches;
 * a stack is taken and given back on the same worker; the memory of a free stack
 * is never touched: its description lies in its slab.
 * Threads: the pool has a lock; a cache belongs to its worker.
 */
#ifndef WEIR_RT_STACK_H
#define WEIR_RT_STACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/list.h"
#include "rt/kernel.h"
#include "rt/lock.h"

enum {
    STACK_CLASSES = 12,
    STACK_SLAB_COUNT = 64,
    STACK_CACHE_MAX = 64, /* free stacks a worker keeps, per class */
    STACK_MOVE_COUNT = 32 /* moved between a cache and the pool at a time */
};

/* Caps when guards cost two mappings each (vm.max_map_count is 65,530 by default). */
#define STACK_COUNT_MAX_PROTECTED 32000
#define STACK_COUNT_MAX_DEFAULT 4000000

/* With a budget every credit costs a part of its stack: most tasks touch less of it,
 * some touch all. And a runtime that can have a few tasks can say what is wrong. */
#define STACK_CHARGE_PART 4
#define STACK_COUNT_MAX_LEAST 64

struct stack_slab;

struct stack {
    struct list node; /* in a pool's hot list, else unused */
    struct stack_slab *slab;
    char *low;     /* lowest usable byte, directly above the guard */
    char *top;     /* first byte above it: frames begin here */
    uint8_t index; /* in its slab */
    uint8_t size_class;
    unsigned known_as; /* to valgrind */
};

struct stack_pool_class {
    size_t bytes;           /* usable */
    struct list hot;        /* free stacks that were used, most recent first */
    ATOM(size_t) hot_count; /* written under the lock, looked at without */
    struct list slabs;      /* that have untouched or given-back stacks */
    size_t mapped;          /* stacks */
    size_t credits;         /* given out */
};

struct stack_pool {
    const struct kernel *kernel;
    struct lock lock;
    size_t page_bytes;
    size_t count_max;    /* credits of all classes together */
    size_t credits;      /* given out, of all classes */
    size_t caches;       /* workers that keep a cache of their own */
    size_t budget_bytes; /* for the charges of all credits; 0: none is set */
    size_t charged_bytes;
    bool guard_by_advice; /* MADV_GUARD_INSTALL holds here */
    struct list all_slabs;
    struct stack_pool_class classes[STACK_CLASSES];
};

/* A worker's own free stacks, hottest last. */
struct stack_cache {
    unsigned count[STACK_CLASSES];
    struct stack *stacks[STACK_CLASSES][STACK_CACHE_MAX];
};

/* `count_max` 0: what the guards allow. `caches`: how many workers there are. */
int stack_pool_init(struct stack_pool *pool, const struct kernel *kernel, size_t count_max,
                    size_t caches);
void stack_pool_deinit(struct stack_pool *pool); /* all stacks are free */

/* Bound what all credits together are charged, and `count_max` by that for stacks of
 * `size_class`. Before the first credit is taken. */
void stack_pool_set_budget(struct stack_pool *pool, size_t budget_bytes, unsigned size_class);

/* The class whose stacks have at least `bytes` usable, or -1 if none is so large. */
int stack_class_for(size_t bytes);
size_t stack_class_bytes(const struct stack_pool *pool, unsigned size_class);

/* Take `count` credits: 0, WEIR_EOVERLOAD at the cap or beyond the budget, or -ENOMEM. */
int stack_credit_take(struct stack_pool *pool, unsigned size_class, size_t count);
void stack_credit_return(struct stack_pool *pool, unsigned size_class, size_t count);

/* One more credit of another class for a task that holds one already: it does not
 * count against the cap, but against the budget. 0, WEIR_EOVERLOAD or -ENOMEM. */
int stack_credit_lend(struct stack_pool *pool, unsigned size_class);
void stack_credit_unlend(struct stack_pool *pool, unsigned size_class);

/* A stack for a holder of a credit: never fails. Returning one does not look at it:
 * with many tasks that would be a cache miss each. */
struct stack *stack_take(struct stack_pool *pool, struct stack_cache *cache, unsigned size_class);
void stack_return(struct stack_pool *pool, struct stack_cache *cache, struct stack *stack,
                  unsigned size_class);

/* Give the memory of up to `count_max` long unused stacks back to the system. Returns
 * how many there were. */
size_t stack_pool_trim(struct stack_pool *pool, size_t count_max);

/* Whether there is something to trim, now or after a flush; a hint. */
bool stack_pool_has_hot(const struct stack_pool *pool);
bool stack_cache_holds(const struct stack_cache *cache);

/* Return a worker's cached stacks to the pool. */
void stack_cache_flush(struct stack_pool *pool, struct stack_cache *cache);

/* Top of the usable part (16-byte aligned): where frames begin. */
static inline char *stack_top(const struct stack *stack)
{
    return stack->top;
}

/* The usable bytes of the stack. */
static inline size_t stack_bytes(const struct stack *stack)
{
    return (size_t)(stack->top - stack->low);
}

/* Bytes that were ever touched since the stack's memory was last given back. */
size_t stack_touched_bytes(const struct stack_pool *pool, const struct stack *stack);

/* Whether `address` lies in the guard of `stack`. Safe in a signal handler. */
bool stack_guard_contains(const struct stack_pool *pool, const struct stack *stack,
                          const void *address);

#endif

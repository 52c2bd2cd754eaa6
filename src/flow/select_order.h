/* select_order.h - which case of a select is tried first, and which after it.
 *
 * Invariants: every choice is the kernel's where it chooses, and of cases that are tried again
 * and again each comes first alike often, unless the program has asked for its own order.
 * Threads: the worker's.
 */
#ifndef WEIR_FLOW_SELECT_ORDER_H
#define WEIR_FLOW_SELECT_ORDER_H

#include <weir/select.h>

#include "rt/runtime.h"

/* The order in which the cases are tried: a shuffle that is made as far as it is needed, since
 * mostly the first is ready. (Going round from a random first would favour the case behind
 * those that are not ready.) */
struct trial {
    size_t made;                    /* positions that are decided */
    uint8_t order[WEIR_SELECT_MAX]; /* filled with the second */
};

/* One of `n`: over time each alike often. Where the kernel does not choose: on a plain worker. */
static inline size_t one_of_plain(struct worker *worker, size_t n, enum weir_select_order order)
{
    if (order == WEIR_IN_ORDER || n == 1) return 0;
    worker->select_turn = worker->select_turn * 1664525u + 1013904223u;
    return (size_t)(((uint64_t)worker->select_turn * n) >> 32);
}

static inline size_t one_of(struct worker *worker, size_t n, enum weir_select_order order)
{
    if (__builtin_expect(worker->kernel->choose != NULL, 0) && order != WEIR_IN_ORDER && n > 1) {
        return kernel_choose(worker->kernel, CHOOSE_CASE, (unsigned)n);
    }
    return one_of_plain(worker, n, order);
}

/* The case that is tried in place `i`; places are asked for in order, the first is `first`. */
static inline size_t trial_at(struct trial *trial, size_t i, size_t first, size_t count,
                              struct worker *worker, enum weir_select_order order)
{
    size_t with;
    uint8_t held;

    if (i == 0) return first;
    if (i < trial->made) return trial->order[i];
    if (i == 1) {
        for (size_t k = 0; k < count; k++) trial->order[k] = (uint8_t)k;
        trial->order[first] = 0;
        trial->order[0] = (uint8_t)first;
    }
    with = i + one_of(worker, count - i, order);
    held = trial->order[with];
    trial->order[with] = trial->order[i];
    trial->order[i] = held;
    trial->made = i + 1;
    return held;
}

#endif

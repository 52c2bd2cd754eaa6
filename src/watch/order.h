/* order.h - which lock was taken while which was held: a graph, and its cycles.
 *
 * A lock is known by its class: its kind and its name. Two locks of one class (one of each
 * account, say) are told apart among themselves by instance.
 * An edge a -> b says that b was taken while a was held, by whom and where, when that was seen
 * first. An edge that closes a cycle is an inversion: said at once, whether or not anybody has
 * ever waited for it.
 *
 * Invariants: bounded: ORDER_NODES_MAX classes and instances, ORDER_EDGES_MAX edges; what does
 * not fit is not watched, and `full` says so. An instance leaves with its lock.
 * Threads: one at a time (checks->lock).
 */
#ifndef WEIR_WATCH_ORDER_H
#define WEIR_WATCH_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "watch/backtrace.h"

enum {
    ORDER_NODES_MAX = 1024,
    ORDER_EDGES_MAX = 4096,
    ORDER_FRAMES_MAX = 16,
    ORDER_CYCLE_MAX = 6,
    ORDER_NAME_BYTES = 32,
};

struct order_node {
    const char *kind; /* NULL: not in use */
    char name[ORDER_NAME_BYTES];
    uint64_t instance; /* 0: the class */
    uint32_t first;    /* of its edges; 0: none */
    /* Of the search that has come here last. */
    uint32_t search, via, next;
};

struct order_edge {
    uint32_t from, to;
    uint32_t next;        /* of `from`; or in the list of those not in use */
    uintptr_t held_place; /* where `from` was taken, ... */
    uintptr_t place;      /* ... and `to` */
    uint64_t task_id;     /* who has done it first */
    char task[ORDER_NAME_BYTES];
    unsigned count;
    uintptr_t frames[ORDER_FRAMES_MAX];
};

struct order {
    struct order_node *nodes; /* both from 1 on */
    struct order_edge *edges;
    uint32_t node_count, node_room;
    uint32_t edge_count, edge_room;
    uint32_t free_edges;
    uint32_t searches;
    bool full;
};

struct order_cycle {
    unsigned count;
    bool cut; /* it is longer */
    struct order_edge edges[ORDER_CYCLE_MAX];
    struct {
        const char *kind;
        char name[ORDER_NAME_BYTES];
    } locks[ORDER_CYCLE_MAX]; /* what edge i goes to */
};

void order_deinit(struct order *order);

/* The node of a class (instance 0) or of an instance; 0: there is no room. */
uint32_t order_node(struct order *order, const char *kind, const char *name, uint64_t instance);
/* Its lock is gone. */
void order_forget(struct order *order, uint32_t node);

/* Whether from -> to is known. */
bool order_knows(const struct order *order, uint32_t from, uint32_t to);
/* Remember it. True: it closes a cycle, whose other edges are in `ret_cycle`, from `to` back
 * to `from`. */
bool order_add(struct order *order, const struct order_edge *edge, struct order_cycle *ret_cycle);

#endif

/* order.c - the graph of locks, and the search for a way back. */
#include "watch/order.h"

#include <stdio.h>
#include <string.h>

#include "rt/mem.h"

enum { ROOM_FIRST = 32 };

void order_deinit(struct order *order)
{
    mem_free(order->nodes);
    mem_free(order->edges);
}

/* Room for one more of `bytes`; entry 0 is never used. */
static bool grow(void **array, uint32_t *room, uint32_t count, uint32_t count_max, size_t bytes)
{
    uint32_t want = *room ? *room * 2 : (uint32_t)ROOM_FIRST;
    void *moved;

    if (count + 1 < *room) return true;
    if (count >= count_max) return false;
    if (want > count_max + 1) want = count_max + 1;
    moved = mem_resize(*array, want * bytes);
    if (!moved) return false;
    *array = moved;
    *room = want;
    return true;
}

static uint32_t new_node(struct order *order)
{
    for (uint32_t i = 1; i <= order->node_count; i++) {
        if (!order->nodes[i].kind) return i;
    }
    if (!grow((void **)&order->nodes, &order->node_room, order->node_count, ORDER_NODES_MAX,
              sizeof *order->nodes)) {
        order->full = true;
        return 0;
    }
    return ++order->node_count;
}

uint32_t order_node(struct order *order, const char *kind, const char *name, uint64_t instance)
{
    uint32_t node;

    for (uint32_t i = 1; i <= order->node_count; i++) {
        const struct order_node *one = &order->nodes[i];
        if (one->kind == kind && one->instance == instance &&
            strncmp(one->name, name, sizeof one->name - 1) == 0) {
            return i;
        }
    }
    node = new_node(order);
    if (node == 0) return 0;
    order->nodes[node] = (struct order_node){.kind = kind, .instance = instance};
    (void)snprintf(order->nodes[node].name, ORDER_NAME_BYTES, "%s", name);
    return node;
}

static void free_edge(struct order *order, uint32_t edge)
{
    order->edges[edge] = (struct order_edge){.next = order->free_edges};
    order->free_edges = edge;
}

void order_forget(struct order *order, uint32_t node)
{
    if (node == 0) return;
    for (uint32_t i = 1; i <= order->node_count; i++) {
        uint32_t *link = &order->nodes[i].first;
        while (*link) {
            uint32_t edge = *link;
            if (i == node || order->edges[edge].to == node) {
                *link = order->edges[edge].next;
                free_edge(order, edge);
            } else {
                link = &order->edges[edge].next;
            }
        }
    }
    order->nodes[node] = (struct order_node){.kind = NULL};
}

bool order_knows(const struct order *order, uint32_t from, uint32_t to)
{
    for (uint32_t edge = order->nodes[from].first; edge; edge = order->edges[edge].next) {
        if (order->edges[edge].to == to) return true;
    }
    return false;
}

/* A shortest way from one node to another; its last edge is `via` of the other, and so on. */
static bool find_way(struct order *order, uint32_t from, uint32_t to)
{
    uint32_t search = ++order->searches;
    uint32_t last = from;

    order->nodes[from].search = search;
    order->nodes[from].next = 0;
    for (uint32_t node = from; node; node = order->nodes[node].next) {
        for (uint32_t edge = order->nodes[node].first; edge; edge = order->edges[edge].next) {
            uint32_t next = order->edges[edge].to;
            if (order->nodes[next].search == search) continue;
            order->nodes[next].search = search;
            order->nodes[next].via = edge;
            order->nodes[next].next = 0;
            order->nodes[last].next = next;
            last = next;
            if (next == to) return true;
        }
    }
    return false;
}

static void describe_way(const struct order *order, uint32_t from, uint32_t to,
                         struct order_cycle *ret_cycle)
{
    unsigned length = 0, at;

    for (uint32_t node = to; node != from; node = order->edges[order->nodes[node].via].from) {
        length++;
    }
    ret_cycle->cut = length > ORDER_CYCLE_MAX;
    ret_cycle->count = length < ORDER_CYCLE_MAX ? length : ORDER_CYCLE_MAX;
    at = length;
    for (uint32_t node = to; node != from; node = order->edges[order->nodes[node].via].from) {
        if (--at >= ORDER_CYCLE_MAX) continue;
        ret_cycle->edges[at] = order->edges[order->nodes[node].via];
        ret_cycle->locks[at].kind = order->nodes[node].kind;
        memcpy(ret_cycle->locks[at].name, order->nodes[node].name, ORDER_NAME_BYTES);
    }
}

bool order_add(struct order *order, const struct order_edge *edge, struct order_cycle *ret_cycle)
{
    uint32_t place = order->free_edges;

    if (place) {
        order->free_edges = order->edges[place].next;
    } else if (grow((void **)&order->edges, &order->edge_room, order->edge_count, ORDER_EDGES_MAX,
                    sizeof *order->edges)) {
        place = ++order->edge_count;
    } else {
        order->full = true;
        return false;
    }
    order->edges[place] = *edge;
    order->edges[place].next = order->nodes[edge->from].first;
    order->nodes[edge->from].first = place;
    if (!find_way(order, edge->to, edge->from)) return false;
    describe_way(order, edge->to, edge->from, ret_cycle);
    return true;
}

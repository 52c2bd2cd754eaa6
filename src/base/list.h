/* list.h - intrusive lists.
 *
 * struct list: doubly linked, circular, removal in constant time from anywhere.
 * A node that is in no list points at itself. The list owns nothing.
 */
#ifndef WEIR_BASE_LIST_H
#define WEIR_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *next;
    struct list *prev;
};

#define container_of(pointer, type, member) \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

static inline void list_init(struct list *list)
{
    list->next = list;
    list->prev = list;
}

static inline bool list_empty(const struct list *list)
{
    return list->next == list;
}

static inline void list_add_tail(struct list *list, struct list *node)
{
    node->prev = list->prev;
    node->next = list;
    list->prev->next = node;
    list->prev = node;
}

static inline void list_add_head(struct list *list, struct list *node)
{
    list_add_tail(list->next, node);
}

static inline void list_remove(struct list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

/* First node, or NULL. */
static inline struct list *list_first(const struct list *list)
{
    return list->next == list ? NULL : list->next;
}

static inline struct list *list_last(const struct list *list)
{
    return list->prev == list ? NULL : list->prev;
}

static inline struct list *list_pop(struct list *list)
{
    struct list *node = list_first(list);
    if (node) list_remove(node);
    return node;
}

/* All nodes of `from` to the end of `list`; then `from` is empty. */
static inline void list_move_all(struct list *list, struct list *from)
{
    if (list_empty(from)) return;
    from->next->prev = list->prev;
    from->prev->next = list;
    list->prev->next = from->next;
    list->prev = from->prev;
    list_init(from);
}

/* Walk; the body may not remove `node`. */
#define list_for_each(node, head) \
    for (struct list *node = (head)->next; node != (head); node = node->next)

#endif

/* tree.h - ordered sets of rows: treaps through links of 8 bytes in the rows themselves.
 *
 * Adding, taking out and finding the first take O(log n) expected steps, whatever the order in
 * which rows come: the shape depends on the rows' numbers, hashed, and on nothing else. Nothing is
 * allocated, so none of it can fail.
 *
 *     static struct tree_links *links_of(const void *arg, uint32_t row);
 *     static bool comes_before(const void *arg, uint32_t a, uint32_t b);   a strict total order
 *     tree_add(&root, row, links_of, comes_before, arg);
 *
 * Invariant: a row's place in the order does not change while it is in a tree.
 */
#ifndef WEIR_ENGINE_TREE_H
#define WEIR_ENGINE_TREE_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

struct tree_links {
    uint32_t left;
    uint32_t right;
};

typedef struct tree_links *(*tree_links_fn)(const void *arg, uint32_t row);
typedef bool (*tree_less_fn)(const void *arg, uint32_t a, uint32_t b);

#define TREE_INLINE static inline __attribute__((always_inline))

/* Who has more is nearer to the root. */
static inline uint32_t tree_rank(uint32_t row)
{
    row *= 0x9e3779b1u;
    row ^= row >> 15;
    row *= 0x85ebca77u;
    return row ^ row >> 13;
}

TREE_INLINE void tree_add(uint32_t *root, uint32_t row, tree_links_fn links, tree_less_fn less,
                          const void *arg)
{
    uint32_t rank = tree_rank(row);
    struct tree_links *mine = links(arg, row);
    uint32_t *at = root;
    uint32_t *low = &mine->left;
    uint32_t *high = &mine->right;
    uint32_t split;

    while (*at && tree_rank(*at) >= rank) {
        struct tree_links *node = links(arg, *at);
        at = less(arg, row, *at) ? &node->left : &node->right;
    }
    split = *at;
    *at = row;
    while (split) {
        struct tree_links *node = links(arg, split);
        if (less(arg, split, row)) {
            *low = split;
            low = &node->right;
            split = node->right;
        } else {
            *high = split;
            high = &node->left;
            split = node->left;
        }
    }
    *low = 0;
    *high = 0;
}

TREE_INLINE void tree_remove(uint32_t *root, uint32_t row, tree_links_fn links, tree_less_fn less,
                             const void *arg)
{
    struct tree_links *mine = links(arg, row);
    uint32_t *at = root;
    uint32_t left = mine->left;
    uint32_t right = mine->right;

    while (*at != row) {
        struct tree_links *node;
        assert(*at);
        node = links(arg, *at);
        at = less(arg, row, *at) ? &node->left : &node->right;
    }
    while (left && right) {
        if (tree_rank(left) >= tree_rank(right)) {
            *at = left;
            at = &links(arg, left)->right;
            left = *at;
        } else {
            *at = right;
            at = &links(arg, right)->left;
            right = *at;
        }
    }
    *at = left ? left : right;
    mine->left = 0;
    mine->right = 0;
}

TREE_INLINE uint32_t tree_first(uint32_t root, tree_links_fn links, const void *arg)
{
    uint32_t left;
    if (!root) return 0;
    while ((left = links(arg, root)->left) != 0) root = left;
    return root;
}

/* The row after this one, or 0. */
TREE_INLINE uint32_t tree_after(uint32_t root, uint32_t row, tree_links_fn links, tree_less_fn less,
                                const void *arg)
{
    uint32_t found = 0;
    while (root) {
        if (less(arg, row, root)) {
            found = root;
            root = links(arg, root)->left;
        } else {
            root = links(arg, root)->right;
        }
    }
    return found;
}

#endif

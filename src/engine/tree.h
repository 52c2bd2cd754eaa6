/* tree.h - ordered sets of rows: treaps through links of 8 bytes in the rows themselves; and such
 * as know both their ends, for 4 bytes more in each row.
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

/* For who knows that the row comes behind the last one, and which that is (0: there is none): the
 * same tree as by tree_add(), but nothing is compared. Half of all rows are below the last one; for
 * the others as many rows are passed as the right edge has. */
TREE_INLINE void tree_append(uint32_t *root, uint32_t last, uint32_t row, tree_links_fn links,
                             const void *arg)
{
    uint32_t rank = tree_rank(row);
    struct tree_links *mine = links(arg, row);
    uint32_t *at = root;

    if (last && tree_rank(last) >= rank) {
        at = &links(arg, last)->right;
        assert(!*at);
    }
    while (*at && tree_rank(*at) >= rank) at = &links(arg, *at)->right;
    mine->left = *at;
    mine->right = 0;
    *at = row;
}

TREE_INLINE uint32_t tree_last(uint32_t root, tree_links_fn links, const void *arg)
{
    uint32_t right;
    if (!root) return 0;
    while ((right = links(arg, root)->right) != 0) root = right;
    return root;
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

/* ---- Trees that know both their ends ----
 *
 * Of most rows that come and go, each comes behind the last one and leaves as the first. Rows know
 * whose child they are: so adding one behind the last and taking the first out touches a few rows,
 * however many there are, and taking out any other one searches for nobody. To add one anywhere
 * else takes O(log n) steps.
 *
 *     static uint32_t *parent_of(const void *arg, uint32_t row);
 *     tree_ends_add(&ends, row, links_of, parent_of, comes_before, arg);
 */
struct tree_ends {
    uint32_t root;
    uint32_t first, last;
};

typedef uint32_t *(*tree_parent_fn)(const void *arg, uint32_t row);

TREE_INLINE void tree_put(uint32_t *at, uint32_t row, uint32_t parent, tree_parent_fn parent_of,
                          const void *arg)
{
    *at = row;
    if (row) *parent_of(arg, row) = parent;
}

/* What is below `split` goes to the left or to the right of the new row. */
TREE_INLINE void tree_divide(uint32_t split, uint32_t row, tree_links_fn links,
                             tree_parent_fn parent_of, tree_less_fn less, const void *arg)
{
    struct tree_links *mine = links(arg, row);
    uint32_t *low = &mine->left;
    uint32_t *high = &mine->right;
    uint32_t low_parent = row, high_parent = row;

    while (split) {
        struct tree_links *node = links(arg, split);
        if (less(arg, split, row)) {
            tree_put(low, split, low_parent, parent_of, arg);
            low = &node->right;
            low_parent = split;
            split = node->right;
        } else {
            tree_put(high, split, high_parent, parent_of, arg);
            high = &node->left;
            high_parent = split;
            split = node->left;
        }
    }
    *low = 0;
    *high = 0;
}

TREE_INLINE void tree_ends_add(struct tree_ends *ends, uint32_t row, tree_links_fn links,
                               tree_parent_fn parent_of, tree_less_fn less, const void *arg)
{
    uint32_t rank = tree_rank(row);
    uint32_t parent = ends->last;
    uint32_t *at;
    uint32_t split;
    bool is_last = true;

    /* Below which row of the right edge it belongs, seen from the last one upwards. Those that it
     * comes before, and those of a lower rank, will be below it. */
    if (parent && less(arg, row, parent)) {
        is_last = false;
        do {
            parent = *parent_of(arg, parent);
        } while (parent && less(arg, row, parent));
    }
    while (parent && tree_rank(parent) < rank) parent = *parent_of(arg, parent);
    at = parent ? &links(arg, parent)->right : &ends->root;
    while (*at && tree_rank(*at) >= rank) {
        parent = *at;
        at = less(arg, row, parent) ? &links(arg, parent)->left : &links(arg, parent)->right;
    }
    split = *at;
    tree_put(at, row, parent, parent_of, arg);
    tree_divide(split, row, links, parent_of, less, arg);
    if (is_last) ends->last = row;
    if (!ends->first || (!is_last && less(arg, row, ends->first))) ends->first = row;
}

TREE_INLINE void tree_ends_remove(struct tree_ends *ends, uint32_t row, tree_links_fn links,
                                  tree_parent_fn parent_of, const void *arg)
{
    struct tree_links *mine = links(arg, row);
    uint32_t left = mine->left;
    uint32_t right = mine->right;
    uint32_t parent = *parent_of(arg, row);
    uint32_t *at = &ends->root;

    if (parent) {
        struct tree_links *above = links(arg, parent);
        at = above->left == row ? &above->left : &above->right;
    }
    /* The first has nobody to its left, the last nobody to its right. */
    if (ends->last == row) {
        uint32_t last = left ? left : parent;
        while (left && links(arg, last)->right) last = links(arg, last)->right;
        ends->last = last;
    }
    if (ends->first == row) {
        uint32_t first = right ? right : parent;
        while (right && links(arg, first)->left) first = links(arg, first)->left;
        ends->first = first;
    }
    while (left && right) {
        if (tree_rank(left) >= tree_rank(right)) {
            tree_put(at, left, parent, parent_of, arg);
            parent = left;
            at = &links(arg, left)->right;
            left = *at;
        } else {
            tree_put(at, right, parent, parent_of, arg);
            parent = right;
            at = &links(arg, right)->left;
            right = *at;
        }
    }
    tree_put(at, left ? left : right, parent, parent_of, arg);
    mine->left = 0;
    mine->right = 0;
    *parent_of(arg, row) = 0;
}

#endif

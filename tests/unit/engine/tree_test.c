/* tree_test.c - trees that know both their ends, against a list. */
#include "engine/tree.h"
#include "harness/test.h"
#include "unit/policy/chance.h"

enum { ROWS = 600, STEPS = 20000 };

struct row {
    uint64_t key;
    struct tree_links links;
    uint32_t parent;
    bool in;
};

static struct row rows[ROWS + 1];
static uint64_t steps;

static struct tree_links *links_of(const void *arg, uint32_t row)
{
    (void)arg;
    steps++;
    return &rows[row].links;
}

static uint32_t *parent_of(const void *arg, uint32_t row)
{
    (void)arg;
    return &rows[row].parent;
}

static bool comes_before(const void *arg, uint32_t a, uint32_t b)
{
    (void)arg;
    return rows[a].key != rows[b].key ? rows[a].key < rows[b].key : a < b;
}

static void add(struct tree_ends *ends, uint32_t row)
{
    rows[row].in = true;
    tree_ends_add(ends, row, links_of, parent_of, comes_before, NULL);
}

static void take_out(struct tree_ends *ends, uint32_t row)
{
    rows[row].in = false;
    tree_ends_remove(ends, row, links_of, parent_of, NULL);
}

/* Rows below, in their order; each is its parent's child. */
static uint32_t count_below(uint32_t row, uint32_t parent, uint32_t *before)
{
    uint32_t count;

    if (!row) return 0;
    CHECK_INT(rows[row].parent, ==, parent);
    count = count_below(rows[row].links.left, row, before);
    CHECK(rows[row].in);
    CHECK(!*before || comes_before(NULL, *before, row));
    *before = row;
    return 1 + count + count_below(rows[row].links.right, row, before);
}

static void check_ends(const struct tree_ends *ends)
{
    uint32_t count = 0, before = 0, first = 0, last = 0;

    for (uint32_t row = 1; row <= ROWS; row++) {
        if (!rows[row].in) continue;
        count++;
        if (!first || comes_before(NULL, row, first)) first = row;
        if (!last || comes_before(NULL, last, row)) last = row;
    }
    CHECK_INT(count_below(ends->root, 0, &before), ==, count);
    CHECK_INT(ends->first, ==, first);
    CHECK_INT(ends->last, ==, last);
}

TEST(a_tree_knows_its_ends_whatever_comes_and_goes)
{
    uint64_t seed = 11;

    for (uint64_t keys = 1; keys <= 1000; keys *= 10) {
        struct tree_ends ends = {0};

        for (int i = 0; i < STEPS; i++) {
            uint32_t row = 1 + (uint32_t)chance_below(&seed, ROWS);
            if (rows[row].in) {
                take_out(&ends, row);
            } else {
                rows[row].key = chance_below(&seed, keys);
                add(&ends, row);
            }
            if (i % 97 == 0) check_ends(&ends);
        }
        while (ends.first) take_out(&ends, ends.first);
        check_ends(&ends);
    }
}

TEST(who_comes_last_and_leaves_first_costs_the_same_in_a_large_tree)
{
    struct tree_ends ends = {0};
    uint64_t key = 0;

    for (uint32_t row = 1; row <= ROWS; row++) {
        rows[row].key = key++;
        add(&ends, row);
    }
    steps = 0;
    for (int i = 0; i < STEPS; i++) {
        uint32_t row = ends.first;
        take_out(&ends, row);
        rows[row].key = key++;
        add(&ends, row);
    }
    CHECK_INT(steps, <, 10 * STEPS); /* less than the 18 to search twice */
    check_ends(&ends);
    while (ends.last) take_out(&ends, ends.last);
}

TEST(a_row_that_is_appended_is_where_it_would_have_been_added)
{
    uint32_t root = 0, last = 0;

    for (uint32_t row = 1; row <= ROWS; row++) {
        rows[row].key = row;
        tree_add(&root, row, links_of, comes_before, NULL);
    }
    for (uint32_t row = 1; row <= ROWS; row++) {
        rows[row].parent = rows[row].links.left;
        rows[row].key = rows[row].links.right;
    }
    CHECK_INT(tree_last(root, links_of, NULL), ==, ROWS);
    last = root;
    root = 0;
    for (uint32_t row = 1; row <= ROWS; row++) { tree_append(&root, row - 1, row, links_of, NULL); }
    CHECK_INT(root, ==, last);
    for (uint32_t row = 1; row <= ROWS; row++) {
        CHECK_INT(rows[row].links.left, ==, rows[row].parent);
        CHECK_INT(rows[row].links.right, ==, rows[row].key);
    }
}

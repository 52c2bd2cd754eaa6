/* stress_trees.c - random trees of scopes with random cancels, failures, deadlines and
 * stops in them. Every task that was spawned runs, every scope that was opened closes,
 * and no error comes out that nobody put in.
 *
 * WEIR_TEST_SEED=n begins with tree n; the seed of a failing one is in the report.
 */
#include <errno.h>
#include <stdlib.h>

#include "unit/rt/support.h"

enum {
    TREES = TEST_SANITIZED ? 40 : 600,
    DEPTH_MAX = 4,
    CHILDREN_MAX = 4,
};

struct tree {
    ATOM(int) spawned;
    ATOM(int) entered;
    ATOM(int) left;
    ATOM(int) open_scopes;
};

struct node {
    struct tree *tree;
    uint64_t state;
    int depth;
};

static unsigned choose(struct node *node, unsigned n)
{
    node->state ^= node->state >> 12;
    node->state ^= node->state << 25;
    node->state ^= node->state >> 27;
    return (unsigned)((node->state * UINT64_C(0x2545f4914f6cdd1d)) >> 33) % n;
}

static void check_result(int r)
{
    switch (r) {
    case 0:
    case -EIO:        /* what nodes fail with */
    case -ECONNRESET: /* what scopes are cancelled with */
    case WEIR_ECANCELED:
    case WEIR_ETIMEDOUT: return;
    default: TEST_FAIL("nobody put %s into the tree", weir_error_name(r));
    }
}

static int grow(void *arg);

/* One child, unless the scope is full or cancelled. */
static void spawn_node(struct node *node, weir_scope *scope, weir_task *ret_task)
{
    struct node child = {node->tree, node->state ^ choose(node, 1u << 30), node->depth + 1};
    int r;

    child.state |= 1;
    r = weir_task_spawn(
        scope,
        &(weir_task_spec){.fn = grow,
                          .arg = &child,
                          .arg_bytes = sizeof child,
                          .place = choose(node, 2) ? WEIR_ANYWHERE : WEIR_PLACE_HERE},
        ret_task);
    if (r == 0) {
        (void)atom_add(&node->tree->spawned, 1);
    } else if (r != WEIR_EOVERLOAD) {
        check_result(r);
    }
    if (r < 0) *ret_task = (weir_task){NULL, 0};
}

static void disturb(struct node *node, weir_scope *scope, weir_task *tasks, int count)
{
    weir_task victim = tasks[choose(node, (unsigned)count)];
    int r = 0, result = 0;

    switch (choose(node, 9)) {
    case 0: weir_scope_cancel(scope, 0, "a normal way to end"); break;
    case 1: weir_scope_cancel(scope, -ECONNRESET, "the peer is gone"); break;
    case 2: weir_scope_stop(scope, choose(node, 3)); break;
    case 3:
        if (victim.ref) r = weir_task_cancel(victim, "this one");
        if (r != WEIR_ECLOSED) CHECK_OK(r);
        break;
    case 4:
        if (victim.ref) r = weir_task_join(victim, &result);
        if (r != WEIR_ECLOSED) check_result(r);
        check_result(result);
        break;
    case 5: check_result(weir_sleep(choose(node, 3))); break;
    case 6:
        WEIR_DEADLINE(1) check_result(weir_sleep(choose(node, 4)));
        break;
    case 7:
        WEIR_SHIELD(60000) CHECK_OK(weir_sleep(choose(node, 2)));
        break;
    default: check_result(weir_yield()); break;
    }
}

static int branch(struct node *node)
{
    weir_scope_spec spec = {
        .name = "branch",
        .on_failure = choose(node, 2) ? WEIR_FAIL_FAST : WEIR_COLLECT,
        .max_tasks = 1 + choose(node, CHILDREN_MAX),
        .overflow = choose(node, 2) ? WEIR_WAIT : WEIR_REJECT,
        .deadline_ms = choose(node, 4) ? 0 : 1 + choose(node, 4),
    };
    int count = 1 + (int)choose(node, CHILDREN_MAX), r;
    weir_task tasks[CHILDREN_MAX];
    weir_scope *scope;

    if (choose(node, 4) == 0) {
        spec.on_failure = WEIR_SUPERVISE;
        spec.restart = (weir_restart){.max_restarts = 1 + (int)choose(node, 3),
                                      .window_ms = 1000,
                                      .backoff_ms = choose(node, 2)};
    }
    CHECK_OK(weir_scope_open(&spec, &scope));
    (void)atom_add(&node->tree->open_scopes, 1);
    for (int i = 0; i < count; i++) spawn_node(node, scope, &tasks[i]);
    for (int i = 0; i < count; i++) disturb(node, scope, tasks, count);
    if (choose(node, 3) == 0) check_result(weir_scope_join(scope));
    r = weir_scope_close(scope);
    (void)atom_sub(&node->tree->open_scopes, 1);
    check_result(r);
    return r;
}

static int grow(void *arg)
{
    struct node *node = arg;
    int r = 0;

    (void)atom_add(&node->tree->entered, 1);
    if (node->depth < DEPTH_MAX && choose(node, 4) > 0) r = branch(node);
    if (choose(node, 8) == 0) r = -EIO;
    if (choose(node, 3) == 0) r = weir_sleep(choose(node, 3));
    (void)atom_add(&node->tree->left, 1);
    return r;
}

static int plant(void *arg)
{
    uint64_t seed = *(uint64_t *)arg;
    struct tree tree = {0};
    struct node root = {&tree, seed * UINT64_C(0x9e3779b97f4a7c15) + 1, 0};
    int r = branch(&root);

    check_result(r);
    CHECK_INT(atom_load(&tree.open_scopes), ==, 0);
    CHECK_INT(atom_load(&tree.left), ==, atom_load(&tree.entered));
    /* Supervised ones enter once more for each restart. */
    CHECK_INT(atom_load(&tree.entered), >=, atom_load(&tree.spawned));
    return 0;
}

static void plant_forest(int workers)
{
    const char *given = getenv("WEIR_TEST_SEED");
    uint64_t first = given ? strtoull(given, NULL, 0) : 1;

    for (uint64_t seed = first; seed < first + TREES && (seed == first || !test_late()); seed++) {
        test_note("WEIR_TEST_SEED=%llu, %d workers", (unsigned long long)seed, workers);
        CHECK_OK(run_on(workers, plant, &seed));
    }
}

TEST_WITH(random_trees_of_scopes_end_with_everything_accounted_for, .timeout_ms = 60000)
{
    plant_forest(1);
    plant_forest(2);
}

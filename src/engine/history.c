/* history.c - jobs that have ended and are kept for a while: of each queue a tree, by when they are
 * forgotten, then by id.
 *
 * Nearly all of them come at the end of that order and leave at its beginning, and there are
 * thousands of others between, which nobody has touched for long. So these trees (treaps, as those
 * of tree.h) know both their ends, and each row whose child it is: to add one behind the last, and
 * to take the first out, a few rows are touched, however many there are. Anywhere else it takes
 * O(log n) steps.
 *
 * These jobs are in no tree of timers: their queue is, with the first of them. */
#include "engine/state.h"

static struct tree_links *links(const struct engine *engine, uint32_t job)
{
    step(engine);
    return &job_at(engine, job)->place;
}

/* A row of a history has no timer of its own: there is room for whose child it is. */
static uint32_t *parent_of(const struct engine *engine, uint32_t job)
{
    return &job_at(engine, job)->timer.left;
}

static bool comes_before(const struct engine *engine, uint32_t a, uint32_t b)
{
    const struct job *one = job_at(engine, a);
    const struct job *two = job_at(engine, b);
    return one->when_ms != two->when_ms ? one->when_ms < two->when_ms : one->id < two->id;
}

/* ---- When the first one is forgotten ---- */

static struct tree_links *queue_links(const void *engine, uint32_t queue)
{
    step(engine);
    return &queue_at(engine, queue)->history.timer;
}

static bool forgets_before(const void *engine, uint32_t a, uint32_t b)
{
    const struct history *one = &queue_at(engine, a)->history;
    const struct history *two = &queue_at(engine, b)->history;
    return one->first_ms != two->first_ms ? one->first_ms < two->first_ms
                                          : one->first_id < two->first_id;
}

static void foresee_row(const struct engine *engine, uint32_t number)
{
    const struct job *job = job_at(engine, number);

    __builtin_prefetch(job);
    __builtin_prefetch((const char *)job + sizeof *job - 1);
}

/* It is forgotten next, when another one ends, and then the one after it; nobody has touched them
 * for long, and each of their lines would be a wait for memory. They are on their way by then. */
static void foresee(const struct engine *engine, uint32_t first)
{
    const struct job *job = job_at(engine, first);
    uint32_t after = job->place.right ? job->place.right : *parent_of(engine, first);

    if (after) foresee_row(engine, after);
    __builtin_prefetch(job->extra);
    table_foresee(&engine->job_table, hash_in_order(job->id));
}

void history_foresee(const struct engine *engine, const struct queue *queue)
{
    uint32_t first = queue->history.first;

    if (first && queue->history.count >= engine->config.history_count_max)
        hold_foresee(engine, job_at(engine, first));
}

static void set_first(struct engine *engine, uint32_t queue, uint32_t first)
{
    struct history *history = &queue_at(engine, queue)->history;

    if (history->first) {
        tree_remove(&engine->history_timers, queue, queue_links, forgets_before, engine);
    }
    history->first = first;
    if (!first) return;
    history->first_ms = job_at(engine, first)->when_ms;
    history->first_id = job_at(engine, first)->id;
    tree_add(&engine->history_timers, queue, queue_links, forgets_before, engine);
    foresee(engine, first);
}

uint32_t history_first_timer(const struct engine *engine)
{
    uint32_t queue = tree_first(engine->history_timers, queue_links, engine);
    return queue ? queue_at(engine, queue)->history.first : 0;
}

/* ---- The tree ---- */

static uint32_t *child_link(const struct engine *engine, struct history *history, uint32_t parent,
                            uint32_t job)
{
    struct tree_links *at;
    if (!parent) return &history->root;
    at = links(engine, parent);
    return at->left == job ? &at->left : &at->right;
}

static void put(const struct engine *engine, uint32_t *at, uint32_t job, uint32_t parent)
{
    *at = job;
    if (job) *parent_of(engine, job) = parent;
}

/* Below which row of the right edge it belongs, seen from the last one upwards; 0: the root. Those
 * that it comes before, and those of a lower rank, will be below it. */
static uint32_t climb(const struct engine *engine, const struct history *history, uint32_t job)
{
    uint32_t rank = tree_rank(job);
    uint32_t at = history->last;

    while (at && (tree_rank(at) < rank || comes_before(engine, job, at))) {
        at = *parent_of(engine, at);
    }
    return at;
}

/* What is below `split` goes to the left or to the right of the new row. */
static void divide(struct engine *engine, uint32_t split, uint32_t job)
{
    uint32_t *low = &job_at(engine, job)->place.left;
    uint32_t *high = &job_at(engine, job)->place.right;
    uint32_t low_parent = job, high_parent = job;

    while (split) {
        struct tree_links *node = links(engine, split);
        if (comes_before(engine, split, job)) {
            put(engine, low, split, low_parent);
            low = &node->right;
            low_parent = split;
            split = node->right;
        } else {
            put(engine, high, split, high_parent);
            high = &node->left;
            high_parent = split;
            split = node->left;
        }
    }
    *low = 0;
    *high = 0;
}

void history_add(struct engine *engine, uint32_t queue, uint32_t job)
{
    struct history *history = &queue_at(engine, queue)->history;
    uint32_t rank = tree_rank(job);
    uint32_t parent = climb(engine, history, job);
    uint32_t *at = parent ? &links(engine, parent)->right : &history->root;
    uint32_t split;

    while (*at && tree_rank(*at) >= rank) {
        parent = *at;
        at = comes_before(engine, job, parent) ? &links(engine, parent)->left
                                               : &links(engine, parent)->right;
    }
    split = *at;
    put(engine, at, job, parent);
    divide(engine, split, job);
    history->count++;
    if (!history->last || comes_before(engine, history->last, job)) history->last = job;
    if (!history->first || comes_before(engine, job, history->first)) {
        set_first(engine, queue, job);
    }
}

static uint32_t leftmost(const struct engine *engine, uint32_t job)
{
    while (links(engine, job)->left) job = links(engine, job)->left;
    return job;
}

static uint32_t rightmost(const struct engine *engine, uint32_t job)
{
    while (links(engine, job)->right) job = links(engine, job)->right;
    return job;
}

void history_remove(struct engine *engine, uint32_t queue, uint32_t job)
{
    struct history *history = &queue_at(engine, queue)->history;
    uint32_t left = links(engine, job)->left;
    uint32_t right = links(engine, job)->right;
    uint32_t parent = *parent_of(engine, job);
    uint32_t *at = child_link(engine, history, parent, job);

    /* The first has nobody to its left, the last nobody to its right. */
    if (history->last == job) history->last = left ? rightmost(engine, left) : parent;
    if (history->first == job) set_first(engine, queue, right ? leftmost(engine, right) : parent);
    while (left && right) {
        if (tree_rank(left) >= tree_rank(right)) {
            put(engine, at, left, parent);
            parent = left;
            at = &links(engine, left)->right;
            left = *at;
        } else {
            put(engine, at, right, parent);
            parent = right;
            at = &links(engine, right)->left;
            right = *at;
        }
    }
    put(engine, at, left ? left : right, parent);
    job_at(engine, job)->place = (struct tree_links){0, 0};
    job_at(engine, job)->timer = (struct tree_links){0, 0};
    history->count--;
}

/* ---- For who checks ---- */

const char *history_check(const struct engine *engine, const struct queue *queue)
{
    const struct history *history = &queue->history;
    uint32_t count = 0, before = 0;
    uint32_t at = history->root ? leftmost(engine, history->root) : 0;

    if (at != history->first) return "the first of a history is another";
    while (at) {
        uint32_t right = links(engine, at)->right;
        uint32_t child;

        if (before && !comes_before(engine, before, at)) return "a history is out of order";
        before = at;
        count++;
        if (right) {
            at = leftmost(engine, right);
            continue;
        }
        do {
            child = at;
            at = *parent_of(engine, at);
        } while (at && links(engine, at)->right == child);
    }
    if (before != history->last) return "the last of a history is another";
    return count == history->count ? NULL : "a history is not counted right";
}

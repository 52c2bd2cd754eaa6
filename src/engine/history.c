/* history.c - jobs that have ended and are kept for a while: of each queue a tree, by when they are
 * forgotten, then by id.
 *
 * Nearly all of them come at the end of that order and leave at its beginning, and there are
 * thousands of others between, which nobody has touched for long: hence a tree that knows its ends.
 *
 * These jobs are in no tree of timers: their queue is, with the first of them. */
#include "engine/state.h"

static struct tree_links *links(const void *engine, uint32_t job)
{
    step(engine);
    return &job_at(engine, job)->place;
}

/* A row of a history has no timer of its own: there is room for whose child it is. */
static uint32_t *parent_of(const void *engine, uint32_t job)
{
    return &job_at(engine, job)->timer.left;
}

static bool comes_before(const void *engine, uint32_t a, uint32_t b)
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
    uint32_t first = queue->history.ends.first;

    if (first && queue->history.count >= engine->config.history_count_max)
        hold_foresee(engine, job_at(engine, first));
}

/* Another one is the first. */
static void set_first(struct engine *engine, uint32_t queue, uint32_t before)
{
    struct history *history = &queue_at(engine, queue)->history;
    uint32_t first = history->ends.first;

    if (before) {
        tree_remove(&engine->history_timers, queue, queue_links, forgets_before, engine);
    }
    if (!first) return;
    history->first_ms = job_at(engine, first)->when_ms;
    history->first_id = job_at(engine, first)->id;
    tree_add(&engine->history_timers, queue, queue_links, forgets_before, engine);
    foresee(engine, first);
}

uint32_t history_first_timer(const struct engine *engine)
{
    uint32_t queue = tree_first(engine->history_timers, queue_links, engine);
    return queue ? queue_at(engine, queue)->history.ends.first : 0;
}

/* ---- Coming and going ---- */

void history_add(struct engine *engine, uint32_t queue, uint32_t job)
{
    struct history *history = &queue_at(engine, queue)->history;
    uint32_t first = history->ends.first;

    tree_ends_add(&history->ends, job, links, parent_of, comes_before, engine);
    history->count++;
    if (history->ends.first != first) set_first(engine, queue, first);
}

void history_remove(struct engine *engine, uint32_t queue, uint32_t job)
{
    struct history *history = &queue_at(engine, queue)->history;
    uint32_t first = history->ends.first;

    tree_ends_remove(&history->ends, job, links, parent_of, engine);
    history->count--;
    if (history->ends.first != first) set_first(engine, queue, first);
}

/* ---- For who checks ---- */

static uint32_t leftmost(const struct engine *engine, uint32_t job)
{
    return tree_first(job, links, engine);
}

const char *history_check(const struct engine *engine, const struct queue *queue)
{
    const struct history *history = &queue->history;
    uint32_t count = 0, before = 0;
    uint32_t at = history->ends.root ? leftmost(engine, history->ends.root) : 0;

    if (at != history->ends.first) return "the first of a history is another";
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
    if (before != history->ends.last) return "the last of a history is another";
    return count == history->count ? NULL : "a history is not counted right";
}

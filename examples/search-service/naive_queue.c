/* naive_queue.c - a mistake: a queue without a bound.
 *
 * Nobody is ever turned away. Under overload the queue grows as long as the overload lasts, and
 * everybody waits as long as the queue is: soon all answers come when nobody wants them any more,
 * and the work for them goes on long after the overload is over.
 */
#include <errno.h>
#include <string.h>

#include "naive.h"

enum { RUNNING_MAX = 16, CALL_MS = 80, RANK_MS = 1000 };

int naive_queue_open(weir_scope *scope, const struct path_deps *keep_deps,
                     struct naive_queue *queue)
{
    static const weir_pool_class classes[] = {
        {.name = "rank", .weight = 1, .queue_max = RUNNING_MAX}};

    queue->deps = keep_deps;
    queue->running_max = RUNNING_MAX;
    queue->last = &queue->first;
    (void)pthread_mutex_init(&queue->lock, NULL);
    return weir_pool_open(scope,
                          &(weir_pool_spec){.name = "ranking",
                                            .threads_max = keep_deps->rank_threads,
                                            .overflow = WEIR_WAIT,
                                            .on_close = WEIR_DRAIN,
                                            .classes = classes,
                                            .class_count = 1},
                          &queue->ranking);
}

size_t naive_queue_length(struct naive_queue *queue)
{
    size_t length;

    if (!queue->deps) return 0; /* it is not in use */
    (void)pthread_mutex_lock(&queue->lock);
    length = queue->length;
    (void)pthread_mutex_unlock(&queue->lock);
    return length;
}

/* True: it is our turn already. */
static bool enter(struct naive_queue *queue, struct naive_waiter *waiter)
{
    bool at_once;

    (void)pthread_mutex_lock(&queue->lock);
    at_once = queue->running < queue->running_max;
    if (at_once) {
        queue->running++;
    } else {
        *queue->last = waiter;
        queue->last = &waiter->next;
        queue->length++;
    }
    (void)pthread_mutex_unlock(&queue->lock);
    return at_once;
}

/* Our place goes to whoever waits longest. */
static void leave(struct naive_queue *queue)
{
    struct naive_waiter *waiter;

    (void)pthread_mutex_lock(&queue->lock);
    waiter = queue->first;
    if (waiter) {
        queue->first = waiter->next;
        if (!queue->first) queue->last = &queue->first;
        queue->length--;
    } else {
        queue->running--;
    }
    (void)pthread_mutex_unlock(&queue->lock);
    if (waiter) weir_event_set(waiter->turn); /* it waits for that, so it is still there */
}

struct rank_job {
    struct search search;
    int cost_us;
    int64_t (*time_us)(void);
};

static int rank(void *data)
{
    struct rank_job *job = data;

    search_rank(&job->search, job->cost_us, job->time_us, NULL);
    return 0;
}

static int rank_in_pool(struct naive_queue *queue, struct search *search)
{
    struct rank_job job = {
        .search = *search, .cost_us = queue->deps->rank_us, .time_us = queue->deps->time_us};
    int r = WEIR_ECANCELED;

    WEIR_DEADLINE(RANK_MS * queue->deps->patience)
        r = weir_pool_run(queue->ranking, 0, rank, &job, sizeof job);
    if (r == 0) *search = job.search;
    return r;
}

static enum search_code work(struct naive_queue *queue, struct search *search)
{
    int titled = -EHOSTUNREACH;
    int r = search_normalize(search);

    if (r < 0) return SEARCH_BAD_REQUEST;
    WEIR_DEADLINE(CALL_MS * queue->deps->patience) r = upstream_fetch(queue->deps->index, search);
    if (r < 0) return r == WEIR_ETIMEDOUT ? SEARCH_TIMEOUT : SEARCH_UPSTREAM;
    r = rank_in_pool(queue, search);
    if (r < 0) return SEARCH_INTERNAL;
    if (queue->deps->titles)
        WEIR_DEADLINE(CALL_MS * queue->deps->patience)
            titled = upstream_titles(queue->deps->titles, search);
    if (titled < 0) search_title_all(search);
    return titled < 0 ? SEARCH_PARTIAL : SEARCH_OK;
}

enum search_code naive_queue_search(void *keep_queue, struct search *search)
{
    struct naive_queue *queue = keep_queue;
    struct naive_waiter waiter = {.next = NULL};
    enum search_code code = SEARCH_INTERNAL;
    int result;

    WEIR_SCOPE(scope, &result, .name = "queued", .on_failure = WEIR_COLLECT, .max_tasks = 1,
               .overflow = WEIR_REJECT) {
        result = weir_event_open(scope, "turn", &waiter.turn);
        if (result == 0) {
            WEIR_SHIELD(600000) /* a place in a list on our stack: it must be left in turn */
                result = enter(queue, &waiter) ? 0 : weir_event_wait(waiter.turn);
            code = work(queue, search);
            leave(queue);
        }
    }
    return code;
}

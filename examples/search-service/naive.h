/* naive.h - the same service with one mistake each, to see what the mistake costs.
 *
 * None of this is a way to write a service. The library has no unbounded queue and refuses a retry
 * without an end, so these are made by hand here, as they are found in the wild.
 */
#ifndef SEARCH_NAIVE_H
#define SEARCH_NAIVE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <weir/weir.h>

#include "clients.h"
#include "path.h"

enum naive {
    NAIVE_NOT,
    NAIVE_UNBOUNDED_QUEUE,      /* everything is let in, and waits for its turn */
    NAIVE_THREAD_PER_REQUEST,   /* each request is a thread that blocks */
    NAIVE_RETRY_WITHOUT_BUDGET, /* what fails is tried again at once, as long as there is time */
    NAIVES,
};

/* naive_named - by its name on the command line; NAIVES: there is none. */
enum naive naive_named(const char *name);
const char *naive_name(enum naive naive);

/* ---- A queue without a bound ---- */

struct naive_waiter {
    struct naive_waiter *next;
    weir_event *turn;
};

struct naive_queue {
    const struct path_deps *deps;
    weir_pool *ranking;
    pthread_mutex_t lock; /* of what follows */
    struct naive_waiter *first, **last;
    size_t length;
    int running, running_max;
};

/* naive_queue_open - in `scope`, with which it ends. Errors of weir_pool_open. */
WEIR_MUST_USE int naive_queue_open(weir_scope *scope, const struct path_deps *keep_deps,
                                   struct naive_queue *queue);

/* naive_queue_length - requests that wait. */
size_t naive_queue_length(struct naive_queue *queue);

/* naive_queue_search - a search_fn; the argument is the queue. */
enum search_code naive_queue_search(void *keep_queue, struct search *search);

/* ---- A thread for each request ---- */

struct naive_threads {
    const char *upstream_address;
    int rank_us;
    int64_t (*time_us)(void); /* as of path_deps */
    int listen_fd;
    atomic_bool stop;
    atomic_long threads;
    struct clients_figures *figures;
    atomic_ulong *asked; /* of the upstream */
    pthread_t acceptor;
};

/* naive_threads_start - listen on the port (0: any; `ret_port` is the one it is), on threads that
 * know nothing of weir. Returns 0 or the kernel's error. naive_threads_stop - and wait until they
 * have ended, at most two seconds. */
WEIR_MUST_USE int naive_threads_start(struct naive_threads *threads, int port, int *ret_port);
void naive_threads_stop(struct naive_threads *threads);

/* ---- Retries without a budget ---- */

enum { NAIVE_FETCHES = 64, NAIVE_FETCH_MS = 320 };

/* naive_fetch - a stage: ask, and ask again at once, each time for `attempt_ms`, until there is an
 * answer or the stage's time is up. */
WEIR_MUST_USE int naive_fetch(struct upstream *upstream, struct search *search, int attempt_ms);

#endif

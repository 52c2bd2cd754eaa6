/* path.h - the way of a request: parse -> fetch -> rank -> enrich, as one pipeline with one budget.
 *
 * Whoever answers clients knows none of this: it hands a search over (search_fn) and gets a code.
 */
#ifndef SEARCH_PATH_H
#define SEARCH_PATH_H

#include <stdatomic.h>
#include <weir/weir.h>

#include "search.h"
#include "upstream.h"

/* What a request needs on its way, and nothing else. Made once, by whoever owns the scope in which
 * all of it lives; handed to the stages by reference, which outlive none of it. */
struct path_deps {
    struct upstream *index;  /* where documents come from */
    struct upstream *titles; /* optional: NULL means that answers go out without, as partial */
    int rank_threads, rank_us;
    int64_t (*time_us)(void); /* how long the calling thread has computed: what rank_us is of */
    int patience; /* all times of the path, times this: for machines that are slow or busy */
    bool retry_without_budget; /* a mistake, to see what it costs: naive.h */
};

enum path_stage { PATH_PARSE, PATH_FETCH, PATH_RANK, PATH_ENRICH, PATH_STAGES };

enum {
    PATH_BUDGET_MS = 500, /* from the line that was read to the answer */
    PATH_QUEUE_MAX = 24,  /* requests that wait to be let in; more are turned away at once */
};

struct path {
    const struct path_deps *deps;
    weir_pool *ranking;
    weir_shed *shed;              /* of the first queue: what has waited too long is let go */
    weir_limit *limit;            /* of calls to the index at a time */
    weir_breaker *breaker;        /* of the index, */
    weir_breaker *titles_breaker; /* and of the titles */
    weir_retry_budget *retries;   /* shared by all who ask the index */
    weir_guard *admitting, *fetching, *enriching; /* around the stages */
    weir_pipeline *pipeline;
};

/* search_fn - what answers a search: how it ended; the search has what is answered. Suspends. */
typedef enum search_code (*search_fn)(void *keep_arg, struct search *search);

/* path_open - the pipeline, its pool and its policies, in `scope`, with which they end. Errors:
 * those of weir_pipeline_open and of what it needs. */
WEIR_MUST_USE int path_open(weir_scope *scope, const struct path_deps *keep_deps,
                            struct path *path);

/* path_search - a search_fn; the argument is the path. */
enum search_code path_search(void *keep_path, struct search *search);

/* path_breaker_name - how the breaker of the upstream is: "closed", "open", "half open". */
const char *path_breaker_name(const struct path *path);

/* path_code - what a failed request is answered with; `stage` is where it failed. */
enum search_code path_code(int error, unsigned stage);

#endif

/* path.c - the way of a request. */
#include "path.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "naive.h"

enum {
    PARSE_MS = 20,
    FETCH_MS = 80, /* one attempt */
    RANK_MS = 100,
    ENRICH_MS = 50,
    FETCH_ATTEMPTS = 3,
    SHED_TARGET_MS = 20,    /* how long requests may wait to be let in, for good; */
    SHED_INTERVAL_MS = 100, /* and for how long it may be longer */
    SHED_WAIT_MAX_MS = 150,
    BREAKER_OPEN_MS = 500,
    FETCHES = 24, /* at a time */
    ENRICHES = 16,
    STAGE_QUEUE_MAX = 8, /* between two stages: enough to keep the next one busy */
    RANK_CLOSE_MS = 1000,
};

/* ---- What the stages do ---- */

static int parse(void *item, void *keep_arg)
{
    (void)keep_arg;
    return search_normalize(item);
}

static int fetch(void *item, void *keep_arg)
{
    const struct path_deps *deps = keep_arg;

    return upstream_fetch(deps->index, item);
}

static int fetch_again_and_again(void *item, void *keep_arg) /* naive.h */
{
    const struct path_deps *deps = keep_arg;

    return naive_fetch(deps->index, item, FETCH_MS * deps->patience);
}

/* On a thread of the pool: it computes, and holds no worker up. */
static int rank(void *item, void *keep_arg)
{
    const struct path_deps *deps = keep_arg;

    search_rank(item, deps->rank_us, deps->time_us, weir_pool_told);
    return 0;
}

static int enrich(void *item, void *keep_arg)
{
    const struct path_deps *deps = keep_arg;

    return deps->titles ? upstream_titles(deps->titles, item) : -EHOSTUNREACH;
}

/* The answer is worth something without titles, and says that it is partial. */
static int enrich_from_what_is_here(void *item, void *keep_arg)
{
    (void)keep_arg;
    search_title_all(item);
    return 0;
}

/* ---- What guards them ---- */

/* A queue that is full for a moment is fine. One in which everybody waits is not. */
static int guard_admission(weir_scope *scope, struct path *path)
{
    int r =
        weir_shed_open(scope,
                       &(weir_shed_spec){.name = "admission",
                                         .target_ms = SHED_TARGET_MS * path->deps->patience,
                                         .interval_ms = SHED_INTERVAL_MS * path->deps->patience,
                                         .wait_max_ms = SHED_WAIT_MAX_MS * path->deps->patience},
                       &path->shed);

    if (r < 0) return r;
    return weir_guard_open(scope,
                           &(weir_guard_spec){.name = "admission",
                                              .timeout_ms = PATH_BUDGET_MS * path->deps->patience,
                                              .keep_shed = path->shed},
                           &path->admitting);
}

static int open_breaker(weir_scope *scope, const char *name, weir_breaker **ret_breaker)
{
    return weir_breaker_open(scope,
                             &(weir_breaker_spec){.name = name,
                                                  .window_calls = 50,
                                                  .calls_min = 10,
                                                  .failure_percent = 50,
                                                  .open_ms = BREAKER_OPEN_MS,
                                                  .probes_max = 3},
                             ret_breaker);
}

/* What the upstream can bear: so many calls at a time, as many as it is seen to take. Its answers
 * take 15 to 25 ms when nobody waits there, so only twice the usual time means a queue. */
static int open_limit(weir_scope *scope, weir_limit **ret_limit)
{
    return weir_limit_open(scope,
                           &(weir_limit_spec){.name = "upstream",
                                              .kind = WEIR_LIMIT_ADAPTIVE,
                                              .concurrency = FETCHES / 2,
                                              .concurrency_min = FETCHES / 4,
                                              .concurrency_max = FETCHES,
                                              .tolerance_pct = 100,
                                              .overflow = WEIR_WAIT,
                                              .waiters_max = FETCHES},
                           ret_limit);
}

/* Asking twice finds the same documents, so it may be tried again: at most three times, and all
 * callers together not more often than one time in ten. */
static int guard_fetch(weir_scope *scope, struct path *path)
{
    weir_guard_spec spec = {.name = "fetch",
                            .timeout_ms = PATH_BUDGET_MS * path->deps->patience,
                            .attempt_timeout_ms = FETCH_MS * path->deps->patience,
                            .idempotent = true,
                            .retry = {.attempts = FETCH_ATTEMPTS,
                                      .backoff_ms = 10,
                                      .backoff_ms_max = 20,
                                      .errors = {-ECONNREFUSED, -ECONNRESET, -EPIPE, -EREMOTEIO,
                                                 WEIR_ECLOSED, WEIR_EPROTOCOL, WEIR_ETIMEDOUT},
                                      .on_exhausted = WEIR_EXHAUSTED_FAIL}};
    int r = weir_retry_budget_open(
        scope, &(weir_retry_budget_spec){.name = "upstream", .ratio_percent = 10, .burst = 10},
        &path->retries);

    if (r == 0) r = open_breaker(scope, "upstream", &path->breaker);
    if (r == 0) r = open_limit(scope, &path->limit);
    if (r < 0) return r;
    spec.retry.keep_budget = path->retries;
    spec.keep_breaker = path->breaker;
    spec.keep_limit = path->limit;
    return weir_guard_open(scope, &spec, &path->fetching);
}

/* Titles are good to have: they are not tried again, and left alone when they fail. */
static int guard_enrich(weir_scope *scope, struct path *path)
{
    int r = open_breaker(scope, "titles", &path->titles_breaker);

    if (r < 0) return r;
    return weir_guard_open(scope,
                           &(weir_guard_spec){.name = "enrich",
                                              .timeout_ms = ENRICH_MS * path->deps->patience,
                                              .keep_breaker = path->titles_breaker},
                           &path->enriching);
}

static int open_guards(weir_scope *scope, struct path *path)
{
    int r = guard_admission(scope, path);

    if (r == 0) r = guard_fetch(scope, path);
    if (r == 0) r = guard_enrich(scope, path);
    return r;
}

/* ---- Made of stages ---- */

static int open_ranking(weir_scope *scope, int threads, weir_pool **ret_pool)
{
    static const weir_pool_class classes[] = {{.name = "rank", .weight = 1, .queue_max = 1}};

    return weir_pool_open(scope,
                          &(weir_pool_spec){.name = "ranking",
                                            .threads_max = threads,
                                            .overflow = WEIR_WAIT,
                                            .on_close = WEIR_DRAIN,
                                            .classes = classes,
                                            .class_count = 1,
                                            .close_ms = RANK_CLOSE_MS},
                          ret_pool);
}

static void describe_stages(struct path *path, weir_stage_spec stages[PATH_STAGES])
{
    stages[PATH_PARSE] = (weir_stage_spec){.name = "parse",
                                           .fn = parse,
                                           .concurrency = 1,
                                           .queue_max = PATH_QUEUE_MAX,
                                           .overflow = WEIR_REJECT,
                                           .timeout_ms = PARSE_MS,
                                           .on_failure = WEIR_STAGE_FAIL,
                                           .keep_policy = weir_guard_stage_policy(path->admitting)};
    stages[PATH_FETCH] = (weir_stage_spec){.name = "fetch",
                                           .fn = fetch,
                                           .concurrency = FETCHES,
                                           .queue_max = STAGE_QUEUE_MAX,
                                           .overflow = WEIR_WAIT,
                                           .timeout_ms = FETCH_MS,
                                           .on_failure = WEIR_STAGE_FAIL,
                                           .idempotent = true,
                                           .keep_policy = weir_guard_stage_policy(path->fetching)};
    stages[PATH_RANK] = (weir_stage_spec){.name = "rank",
                                          .fn = rank,
                                          .concurrency = path->deps->rank_threads,
                                          .queue_max = STAGE_QUEUE_MAX,
                                          .overflow = WEIR_WAIT,
                                          .timeout_ms = RANK_MS,
                                          .on_failure = WEIR_STAGE_FAIL,
                                          .pool = path->ranking};
    stages[PATH_ENRICH] =
        (weir_stage_spec){.name = "enrich",
                          .fn = enrich,
                          .concurrency = ENRICHES,
                          .queue_max = STAGE_QUEUE_MAX,
                          .overflow = WEIR_WAIT,
                          .timeout_ms = ENRICH_MS,
                          .on_failure = WEIR_STAGE_FALLBACK,
                          .fallback = enrich_from_what_is_here,
                          .keep_policy = weir_guard_stage_policy(path->enriching)};
}

/* naive.h: what the policies of the stage are there for is left to the function. */
static void make_naive(weir_stage_spec *fetching)
{
    fetching->fn = fetch_again_and_again;
    fetching->timeout_ms = NAIVE_FETCH_MS;
    fetching->concurrency = NAIVE_FETCHES;
    fetching->keep_policy = NULL;
}

static void be_patient(weir_stage_spec stages[PATH_STAGES], int patience)
{
    for (int i = 0; i < PATH_STAGES; i++) stages[i].timeout_ms *= patience;
}

/* Every caller waits for its own result, so only those that were cancelled leave one behind. */
static void note_lost(void *item, const weir_lost *lost, void *keep_arg)
{
    (void)item, (void)lost, (void)keep_arg;
}

int path_open(weir_scope *scope, const struct path_deps *keep_deps, struct path *path)
{
    weir_stage_spec stages[PATH_STAGES];
    weir_pipeline_spec spec = {.name = "search",
                               .item_bytes = sizeof(struct search),
                               .budget_ms = PATH_BUDGET_MS * keep_deps->patience,
                               .stages = stages,
                               .stage_count = PATH_STAGES,
                               .on_lost = note_lost,
                               .latency_ms = PATH_BUDGET_MS};
    int r;

    path->deps = keep_deps;
    r = open_ranking(scope, keep_deps->rank_threads, &path->ranking);
    if (r == 0) r = open_guards(scope, path);
    if (r < 0) return r;
    describe_stages(path, stages);
    if (keep_deps->retry_without_budget) make_naive(&stages[PATH_FETCH]);
    be_patient(stages, keep_deps->patience);
    for (int i = 0; i < PATH_STAGES; i++) stages[i].keep_arg = (void *)(uintptr_t)keep_deps;
    return weir_pipeline_open(scope, &spec, &path->pipeline);
}

/* ---- One request ---- */

enum search_code path_code(int error, unsigned stage)
{
    switch (error) {
    case 0: return SEARCH_OK;
    case WEIR_PARTIAL: return SEARCH_PARTIAL;
    case -EBADMSG: return SEARCH_BAD_REQUEST;
    case WEIR_EOVERLOAD: return stage == PATH_PARSE ? SEARCH_SHED : SEARCH_OVERLOAD;
    case WEIR_EBREAKER: return SEARCH_UNAVAILABLE;
    case WEIR_ETIMEDOUT: return SEARCH_TIMEOUT;
    case WEIR_ECANCELED:
    case WEIR_ESTOPPING: return SEARCH_STOPPING;
    default: return stage == PATH_FETCH ? SEARCH_UPSTREAM : SEARCH_INTERNAL;
    }
}

enum search_code path_search(void *keep_path, struct search *search)
{
    struct path *path = keep_path;
    weir_outcome outcome = {.failed_stage = UINT_MAX}; /* stays so if it is not let in */
    int r = weir_pipeline_call(path->pipeline, search, &outcome);

    return path_code(r, outcome.failed_stage);
}

const char *path_breaker_name(const struct path *path)
{
    static const char *const names[] = {[WEIR_BREAKER_CLOSED] = "closed",
                                        [WEIR_BREAKER_OPEN] = "open",
                                        [WEIR_BREAKER_HALF_OPEN] = "half open"};
    weir_breaker_figures figures;

    if (!path->breaker) return "none";
    weir_breaker_figures_of(path->breaker, &figures);
    return names[figures.state];
}

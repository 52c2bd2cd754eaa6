/* pipeline.h - stages joined by bounded queues.
 *
 * Items enter at the first stage and go through all of them, in order of arrival as far as
 * a stage works on one at a time. A stage that is slow fills its queue; then the stage before
 * it waits, and so on up to whoever sends: backpressure needs no code.
 *
 *     r = weir_pipeline_open(scope, &(weir_pipeline_spec){.name = "pages",
 *             .item_bytes = sizeof(struct page), .budget_ms = 2000, .on_lost = page_lost,
 *             .stages = stages, .stage_count = 3}, &pages);
 *     r = weir_pipeline_call(pages, &page, &outcome);    for its own result, or
 *     r = weir_pipeline_send(pages, &page);              and elsewhere weir_pipeline_recv
 *
 * A stage's function works on a copy of the item, which takes the item's place when the
 * function succeeds. So a stage that fails, or is tried again, has changed nothing of the
 * item; what the item points at it must leave as it found it when it fails. One thing that
 * becomes another on its way is a struct or a union with both.
 *
 * Owner: a scope, of which the stages' tasks are. Lifetime: until it is stopped or closed, or
 * the scope ends: the close of a scope lets pipelines finish what they have when all other
 * tasks have ended. Backpressure: for each stage its concurrency, its queue and the named
 * overflow. Failure: for each stage a timeout, its policy slot, and what its failure means
 * for the item; the end-to-end budget, which the stages' worst case must fit; on_lost gets
 * every item that does not come out.
 *
 * Invariants: an item that was accepted comes out once (from a call, from a receive, or at
 * the end of the last stage), or goes to on_lost once, or its caller gets it back with an
 * error, or was removed from the first queue as its caller was cancelled. A result says which
 * stages it went without.
 * Threads: tasks of the runtime, on any worker.
 */
#ifndef WEIR_PIPELINE_H
#define WEIR_PIPELINE_H

#include <weir/chan.h>
#include <weir/defs.h>
#include <weir/error.h>
#include <weir/pool.h>
#include <weir/scope.h>

WEIR_BEGIN

typedef struct weir_pipeline weir_pipeline;

#define WEIR_STAGES_MAX 32
#define WEIR_STAGE_CONCURRENCY_MAX 4096
#define WEIR_STAGE_QUEUE_MAX 1048576

/* What a call that succeeded returns if a stage was skipped or replaced. */
#define WEIR_PARTIAL 1

/* What a stage does to an item: 0 or more, or it has failed. In a task of the pipeline it may
 * suspend; in a pool it may block and compute, and is no task. */
typedef int (*weir_stage_fn)(void *item, void *keep_arg);

/* What the failure of a stage, its last attempt included, means for the item. */
enum weir_stage_failure {
    WEIR_STAGE_UNSET = 0,
    WEIR_STAGE_FAIL,     /* it has failed */
    WEIR_STAGE_SKIP,     /* it goes on as it was before the stage; the result is partial */
    WEIR_STAGE_FALLBACK, /* `fallback` takes the stage's place; the result is partial */
};

/* Why a policy has refused an item, as its figures tell it. */
enum weir_stage_refusal {
    WEIR_REFUSED_POLICY = 0, /* not said */
    WEIR_REFUSED_SHED,
    WEIR_REFUSED_LIMIT, /* rate, or concurrency */
    WEIR_REFUSED_BREAKER,
};

#define WEIR_STAGE_KEEP_BYTES 1024

/* What a policy is told about an attempt. */
typedef struct weir_stage_attempt {
    const char *pipeline, *stage;
    int number;          /* 1: the first */
    int64_t waited_ns;   /* that the item has been in the stage's queue */
    int64_t deadline_ns; /* of the item, on the clock of weir_now_ns */
    const void *item;    /* as it was when it came to the stage */
    size_t item_bytes;
    void *keep; /* WEIR_STAGE_KEEP_BYTES for what the policy keeps of this item, from `before` of
                   its first attempt, which finds anything there, to `ended` */
    enum weir_stage_refusal *ret_refusal; /* for `before`, when it refuses */
} weir_stage_attempt;

/* As what `after` returns: the attempt's result stands. */
#define WEIR_STAGE_DONE (-1)

/* The slot for policies around a stage (limits, breaker, retry): shared by its tasks, on all
 * workers. Its calls are made in a task of the pipeline and may suspend, within what is left
 * of the item's time. worst_case_ms and attempts_max must be said. */
typedef struct weir_stage_policy {
    /* Before each attempt: 0, or the error with which the stage fails without one. */
    int (*before)(void *keep_state, const weir_stage_attempt *attempt);
    /* After each attempt, with its result: WEIR_STAGE_DONE, or in how many ms to try again
     * (only what has failed, and at most attempts_max times, is). */
    int64_t (*after)(void *keep_state, const weir_stage_attempt *attempt, int result,
                     int64_t run_ns);
    /* The longest that all attempts of `timeout_ms` and the times between them can take. */
    int64_t (*worst_case_ms)(void *keep_state, int64_t timeout_ms);
    int attempts_max;
    void *keep_state;
    /* Exactly once for each item for which `before` of the first attempt was called, with the
     * stage's result, also when `before` has refused, or the stage was cancelled between two
     * attempts: what was taken for it is given back here. It must not suspend. */
    void (*ended)(void *keep_state, const weir_stage_attempt *attempt, int result);
} weir_stage_policy;

/* name, fn, concurrency, queue_max, overflow, timeout_ms and on_failure must be said. */
typedef struct weir_stage_spec {
    const char *name; /* copied, at most 31 bytes */
    weir_stage_fn fn;
    void *keep_arg;  /* of fn and fallback */
    int concurrency; /* items that are worked on at one time */
    size_t queue_max;
    /* WEIR_REJECT, WEIR_DROP_*: of the first stage, for its sender; an item of a later one that
     * finds no room has failed with WEIR_EOVERLOAD. */
    enum weir_overflow overflow;
    int64_t timeout_ms; /* of one attempt */
    enum weir_stage_failure on_failure;
    weir_stage_fn fallback; /* with WEIR_STAGE_FALLBACK; in a task; it must not suspend */
    weir_pool *pool;        /* where fn runs; default: in tasks of the pipeline */
    unsigned pool_class;
    int concurrency_max; /* weir_pipeline_resize may go up to this; default: concurrency */
    size_t queue_limit;  /* likewise; default: queue_max */
    int64_t latency_ms;  /* how long waiting and working should take at most; shown beside what
                            is measured; 0: not said */
    bool idempotent;     /* it may be tried again: needed for a policy with more attempts */
    const weir_stage_policy *keep_policy;
    size_t stack_bytes; /* of its tasks; default: the scope's */
} weir_stage_spec;

/* weir_stage_spec_init - set every member to "not said". */
static inline void weir_stage_spec_init(weir_stage_spec *spec)
{
    memset(spec, 0, sizeof *spec);
}

/* Where and why an item was lost. */
typedef struct weir_lost {
    const char *stage; /* its name; "" if it is a result that nobody has received */
    unsigned stage_index;
    int error; /* the stage's; WEIR_EOVERLOAD (no room); WEIR_ETIMEDOUT (stage or budget);
                  WEIR_ECANCELED (its caller was); WEIR_ECLOSED (the pipeline has ended) */
} weir_lost;

/* Called once for each item that was accepted and does not come out, and that no caller gets
 * back; the item is as the last stage that succeeded has left it, and valid for the call. On
 * the thread of whoever made it so; it must not suspend. */
typedef void (*weir_lost_fn)(void *item, const weir_lost *lost, void *keep_arg);

/* name, item_bytes, budget_ms, stages and on_lost must be said. */
typedef struct weir_pipeline_spec {
    const char *name;  /* copied, at most 31 bytes */
    size_t item_bytes; /* at most WEIR_ITEM_BYTES_MAX */
    int64_t budget_ms; /* end to end, from the call or the send */
    const weir_stage_spec *stages;
    size_t stage_count; /* at most WEIR_STAGES_MAX */
    weir_lost_fn on_lost;
    void *keep_arg;     /* of on_lost */
    size_t results_max; /* of sent items, that wait for weir_pipeline_recv; 0: the last stage is
                           their end */
    int64_t latency_ms; /* end to end, what users expect; shown beside what is measured */
} weir_pipeline_spec;

/* weir_pipeline_spec_init - set every member to "not said". */
static inline void weir_pipeline_spec_init(weir_pipeline_spec *spec)
{
    memset(spec, 0, sizeof *spec);
}

/* weir_pipeline_open(scope, &spec, &pipeline) - a pipeline, and concurrency_max tasks for
 * each stage. Suspends only while the scope is full and its overflow is WEIR_WAIT. Cancel:
 * nothing moved (there is no pipeline). Errors: WEIR_EREFUSED (weir_why; also if the stages'
 * worst case is longer than the budget), WEIR_EOVERLOAD (no room for its tasks),
 * WEIR_ECANCELED, WEIR_ENOTASK, -ENOMEM, -ENFILE. */
WEIR_SUSPENDS int weir_pipeline_open_sized(weir_scope *scope, size_t spec_bytes,
                                           size_t stage_spec_bytes, const weir_pipeline_spec *spec,
                                           weir_pipeline **ret_pipeline);
#define weir_pipeline_open(scope, ...)                                                     \
    weir_pipeline_open_sized((scope), sizeof(weir_pipeline_spec), sizeof(weir_stage_spec), \
                             __VA_ARGS__)

/* What has become of an item. */
typedef struct weir_outcome {
    uint32_t skipped;      /* bit i: stage i was skipped or replaced by its fallback */
    int skip_error;        /* of the first such stage; 0: none */
    unsigned failed_stage; /* with an error: the stage */
    int64_t latency_ns;    /* from the call or the send to its end */
} weir_outcome;

/* weir_pipeline_call - put an item in, copied, and wait for its result, which is then in
 * `item`; `ret_outcome` (may be NULL) is written also on error, if it was accepted. Returns 0
 * or WEIR_PARTIAL. Waits no longer than the budget. Cancel: nothing moved while the item waits
 * in the first queue; later outcome unknown: it goes to on_lost when its stage is done.
 * Errors: those of stages (`item` is then as the last one that succeeded has left it),
 * WEIR_ETIMEDOUT (a stage, the budget, or the block), WEIR_EOVERLOAD (no room), WEIR_ECLOSED
 * (the pipeline ends or has ended), WEIR_ECANCELED, WEIR_ENOTASK. */
WEIR_SUSPENDS int weir_pipeline_call(weir_pipeline *pipeline, void *item,
                                     weir_outcome *ret_outcome);

/* weir_pipeline_send - put an item in, copied; suspends while the first queue is full and its
 * overflow is WEIR_WAIT. Cancel: nothing moved. Errors: WEIR_EOVERLOAD, WEIR_ECLOSED,
 * WEIR_ECANCELED, WEIR_ETIMEDOUT, WEIR_ENOTASK. */
WEIR_SUSPENDS int weir_pipeline_send(weir_pipeline *pipeline, const void *item);

/* weir_pipeline_recv - the next result of an item that was sent. Returns 0 or WEIR_PARTIAL.
 * Needs results_max. Cancel: nothing moved. Errors: WEIR_ECLOSED (the pipeline was stopped and
 * all was received), WEIR_EREFUSED, WEIR_ECANCELED, WEIR_ETIMEDOUT, WEIR_ENOTASK. */
WEIR_SUSPENDS int weir_pipeline_recv(weir_pipeline *pipeline, void *ret_item,
                                     weir_outcome *ret_outcome);

/* weir_pipeline_stop - no more items are accepted. WEIR_DRAIN: what is inside comes out, then
 * the pipeline ends. WEIR_DISCARD: stages are cancelled at what they do, and what is inside is
 * lost. Never suspends. Stopping again changes nothing, but for WEIR_DISCARD after WEIR_DRAIN.
 * Threads: a worker. */
WEIR_API void weir_pipeline_stop(weir_pipeline *pipeline, enum weir_on_close how);

/* weir_pipeline_wait - wait until all stages have ended; results may be left to receive.
 * Cancel: nothing moved. Returns 0, or WEIR_ECANCELED if it did not end by draining. Errors of
 * its own: WEIR_ECLOSED (it was closed before this could wait), WEIR_ECANCELED, WEIR_ETIMEDOUT,
 * WEIR_ENOTASK. */
WEIR_SUSPENDS int weir_pipeline_wait(weir_pipeline *pipeline);

/* weir_pipeline_close - give the handle up: as weir_pipeline_stop with WEIR_DISCARD; its memory
 * is freed when it has ended, before its scope is. Takes NULL. Never suspends. */
WEIR_API void weir_pipeline_close(weir_pipeline *take_pipeline);

/* weir_pipeline_resize - another concurrency (1 to concurrency_max) and queue_max (1 to
 * queue_limit) for a stage; 0 leaves it as it is. Items that are being worked on, or are
 * queued, stay. Errors: WEIR_EREFUSED. Never suspends. Threads: a worker. */
WEIR_API WEIR_MUST_USE int weir_pipeline_resize(weir_pipeline *pipeline, unsigned stage_index,
                                                int concurrency, size_t queue_max);

/* Times of something that has happened `count` times. */
typedef struct weir_times {
    uint64_t count;
    int64_t total_ns, max_ns;
} weir_times;

/* What a stage has seen: entered = depth + running + finished + skipped + failed + removed. */
typedef struct weir_stage_figures {
    size_t depth, depth_max, queue_max;
    int running, running_max, concurrency;
    uint64_t entered, finished;
    uint64_t skipped;   /* skipped, or replaced by the fallback */
    uint64_t failed;    /* lost here after they entered, dropped ones included */
    uint64_t removed;   /* their callers were cancelled while they were in the first queue */
    uint64_t rejected;  /* no room for them (drops included), or refused by the policy */
    uint64_t timeouts;  /* attempts that took longer than timeout_ms, and items whose budget
                          was used up */
    weir_times waited;  /* in the queue */
    weir_times ran;     /* attempts */
    int64_t latency_ms; /* of the spec, to be shown beside these */
} weir_stage_figures;

/* weir_pipeline_stage_figures - the figures of a stage now. Errors: WEIR_EREFUSED (no such
 * stage). Never suspends. */
WEIR_API WEIR_MUST_USE int weir_pipeline_stage_figures(weir_pipeline *pipeline,
                                                       unsigned stage_index,
                                                       weir_stage_figures *ret_figures);

/* What a pipeline has seen: accepted = inside + finished + lost + removed. */
typedef struct weir_pipeline_figures {
    size_t inside; /* results that wait included */
    uint64_t accepted, finished;
    uint64_t partial; /* of those that finished */
    uint64_t lost;    /* to on_lost, or back to their callers with an error */
    uint64_t removed;
    weir_times end_to_end; /* of those that finished */
    int64_t latency_ms;    /* of the spec */
    bool ended;
} weir_pipeline_figures;

/* weir_pipeline_figures_of - the figures now. Never suspends. */
WEIR_API void weir_pipeline_figures_of(weir_pipeline *pipeline, weir_pipeline_figures *ret_figures);

WEIR_END

#endif

/* meters.c - the tables of what is shown, and the figures of stages. */
#include "flow/meters.h"

#include <weir/error.h>

#include "flow/actor.h"
#include "flow/chan.h"
#include "flow/pipeline.h"
#include "flow/pool.h"

enum { MS_DIGITS = 3 };

int meter_interrupted(struct meter *meter, unsigned value, int error)
{
    if (error == WEIR_ETIMEDOUT ||
        (error == WEIR_ECANCELED && weir_cause(NULL) == WEIR_CAUSE_DEADLINE)) {
        meter_count(meter, value, 1);
    }
    return error;
}

/* ---- Channels ---- */

static void collect_chan(struct metered *object, uint64_t *values)
{
    struct chan *chan = container_of(object, struct chan, metered);

    chan_lock(chan);
    values[CHAN_OPEN] = 1;
    values[CHAN_DEPTH] = chan->count;
    values[CHAN_DEPTH_MAX] = chan->depth_max;
    values[CHAN_CAPACITY] = chan->capacity;
    values[CHAN_ACCEPTED] = chan_accepted(chan);
    values[CHAN_RECEIVED] = chan->received;
    values[CHAN_REJECTED] = chan->rejected;
    values[CHAN_DROPPED] = chan->dropped;
    values[CHAN_LATENCY_TARGET] = (uint64_t)chan->latency_ms;
    chan_unlock(chan);
}

static const struct meter_value chan_values[CHAN_VALUES] = {
    [CHAN_OPEN] = {"weir_channel_open", "Channels with this name that are open.", METER_GAUGE},
    [CHAN_DEPTH] = {"weir_channel_depth", "Items that are stored now.", METER_GAUGE},
    [CHAN_DEPTH_MAX] = {"weir_channel_depth_max", "The most items that one of them has stored.",
                        METER_GAUGE_MAX},
    [CHAN_CAPACITY] = {"weir_channel_capacity", "Items that can be stored; a rendezvous has 0.",
                       METER_GAUGE},
    [CHAN_ACCEPTED] = {"weir_channel_accepted_total", "Items that were accepted.", METER_COUNTER},
    [CHAN_RECEIVED] = {"weir_channel_received_total", "Items that were received.", METER_COUNTER},
    [CHAN_REJECTED] = {"weir_channel_rejected_total", "Items that were refused: it was full.",
                       METER_COUNTER},
    [CHAN_DROPPED] = {"weir_channel_dropped_total", "Items that were accepted and dropped.",
                      METER_COUNTER},
    [CHAN_TIMEOUTS] = {"weir_channel_timeouts_total",
                       "Sends and receives that a deadline has ended.", METER_COUNTER},
    [CHAN_LATENCY_TARGET] = {"weir_channel_latency_target_seconds",
                             "How long an item should wait at most.", METER_GAUGE_MAX, MS_DIGITS,
                             true},
};

static const struct meter_histogram chan_histograms[] = {
    [CHAN_WAIT] = {"weir_channel_wait_seconds",
                   "From send to receive, of 1 item in 64 (in 512 with several workers)."},
};

const struct meter_kind chan_meter_kind = {
    .labels = {"channel"},
    .values = chan_values,
    .value_count = CHAN_VALUES,
    .histograms = chan_histograms,
    .histogram_count = 1,
    .collect = collect_chan,
};

/* ---- Actors ---- */

static void collect_actor(struct metered *object, uint64_t *values)
{
    struct actor *actor = container_of(object, struct actor, metered);

    flow_lock(&actor->object);
    values[ACTOR_DEPTH] = actor->depth;
    values[ACTOR_DEPTH_MAX] = actor->depth_max;
    values[ACTOR_CAPACITY] = actor->mailbox_max;
    values[ACTOR_ACCEPTED] = actor->accepted;
    values[ACTOR_HANDLED] = actor->handled;
    values[ACTOR_REJECTED] = actor->rejected;
    values[ACTOR_UNDELIVERED] = actor->undelivered;
    values[ACTOR_CRASHED] = actor->crashed;
    values[ACTOR_RESTARTS] = actor->restarts;
    values[ACTOR_LATENCY_TARGET] = (uint64_t)actor->spec.latency_ms;
    flow_unlock(&actor->object);
}

static const struct meter_value actor_values[ACTOR_VALUES] = {
    [ACTOR_DEPTH] = {"weir_actor_depth", "Messages that wait in the mailbox.", METER_GAUGE},
    [ACTOR_DEPTH_MAX] = {"weir_actor_depth_max", "The most messages that have waited at once.",
                         METER_GAUGE_MAX},
    [ACTOR_CAPACITY] = {"weir_actor_capacity", "Messages that can wait.", METER_GAUGE},
    [ACTOR_ACCEPTED] = {"weir_actor_accepted_total", "Messages that were accepted.", METER_COUNTER},
    [ACTOR_HANDLED] = {"weir_actor_handled_total", "Messages that were handled.", METER_COUNTER},
    [ACTOR_REJECTED] = {"weir_actor_rejected_total", "Messages that were refused: it was full.",
                        METER_COUNTER},
    [ACTOR_UNDELIVERED] = {"weir_actor_undelivered_total",
                           "Messages that were accepted and handled by nobody.", METER_COUNTER},
    [ACTOR_CRASHED] = {"weir_actor_crashed_total", "Messages at which it has failed.",
                       METER_COUNTER},
    [ACTOR_RESTARTS] = {"weir_actor_restarts_total", "How often it was started again.",
                        METER_COUNTER},
    [ACTOR_TIMEOUTS] = {"weir_actor_timeouts_total", "Calls and casts that a deadline has ended.",
                        METER_COUNTER},
    [ACTOR_LATENCY_TARGET] = {"weir_actor_latency_target_seconds",
                              "How long a message should wait at most.", METER_GAUGE_MAX, MS_DIGITS,
                              true},
};

static const struct meter_histogram actor_histograms[] = {
    [ACTOR_WAIT] = {"weir_actor_wait_seconds",
                    "How long messages are in the mailbox, of 1 message in 64."},
    [ACTOR_RUN] = {"weir_actor_run_seconds", "How long it handles them, of 1 message in 64."},
};

const struct meter_kind actor_meter_kind = {
    .labels = {"actor"},
    .values = actor_values,
    .value_count = ACTOR_VALUES,
    .histograms = actor_histograms,
    .histogram_count = 2,
    .collect = collect_actor,
};

/* ---- Pools ---- */

static void collect_pool(struct metered *object, uint64_t *values)
{
    struct pool *pool = container_of(object, struct pool, metered);

    lock_acquire(&pool->lock);
    values[POOL_THREADS] = (uint64_t)pool->thread_count;
    values[POOL_THREADS_MAX] = (uint64_t)pool->threads_max;
    values[POOL_ORPHANS] = pool->orphan_count;
    lock_release(&pool->lock);
}

static void collect_pool_class(struct metered *object, uint64_t *values)
{
    struct pool_class *class = container_of(object, struct pool_class, metered);

    lock_acquire(&class->pool->lock);
    values[POOL_QUEUED] = class->queued;
    values[POOL_QUEUED_MAX] = class->queued_max;
    values[POOL_CAPACITY] = class->spec.queue_max;
    values[POOL_RUNNING] = class->running;
    values[POOL_FINISHED] = class->finished;
    values[POOL_REJECTED] = class->rejected;
    values[POOL_REMOVED] = class->removed;
    values[POOL_ORPHANED] = class->orphaned;
    values[POOL_LATENCY_TARGET] = (uint64_t) class->spec.latency_ms;
    lock_release(&class->pool->lock);
}

static const struct meter_value pool_class_values[POOL_CLASS_VALUES] = {
    [POOL_QUEUED] = {"weir_pool_queued", "Jobs that wait for a thread.", METER_GAUGE},
    [POOL_QUEUED_MAX] = {"weir_pool_queued_max", "The most jobs that have waited at once.",
                         METER_GAUGE_MAX},
    [POOL_CAPACITY] = {"weir_pool_capacity", "Jobs that can wait for a thread.", METER_GAUGE},
    [POOL_RUNNING] = {"weir_pool_running", "Jobs that run.", METER_GAUGE},
    [POOL_FINISHED] = {"weir_pool_finished_total", "Jobs that were run to their end.",
                       METER_COUNTER},
    [POOL_REJECTED] = {"weir_pool_rejected_total", "Jobs that were refused: the queue was full.",
                       METER_COUNTER},
    [POOL_REMOVED] = {"weir_pool_removed_total", "Jobs that were cancelled before they ran.",
                      METER_COUNTER},
    [POOL_ORPHANED] = {"weir_pool_orphaned_total", "Jobs whose callers went on without them.",
                       METER_COUNTER},
    [POOL_TIMEOUTS] = {"weir_pool_timeouts_total", "Jobs whose callers a deadline has ended.",
                       METER_COUNTER},
    [POOL_LATENCY_TARGET] = {"weir_pool_latency_target_seconds",
                             "How long a job should wait at most.", METER_GAUGE_MAX, MS_DIGITS,
                             true},
};

static const struct meter_histogram pool_histograms[] = {
    [POOL_WAIT] = {"weir_pool_wait_seconds", "From the call until a thread begins the job."},
    [POOL_RUN] = {"weir_pool_run_seconds", "How long jobs run."},
};

const struct meter_kind pool_class_meter_kind = {
    .labels = {"pool", "class"},
    .values = pool_class_values,
    .value_count = POOL_CLASS_VALUES,
    .histograms = pool_histograms,
    .histogram_count = 2,
    .collect = collect_pool_class,
};

static const struct meter_value pool_values[POOL_VALUES] = {
    [POOL_THREADS] = {"weir_pool_threads", "Threads that the pool has.", METER_GAUGE},
    [POOL_THREADS_MAX] = {"weir_pool_threads_max", "Threads that the pool may have.", METER_GAUGE},
    [POOL_ORPHANS] = {"weir_pool_orphans", "Jobs that run although their callers went on.",
                      METER_GAUGE},
};

const struct meter_kind pool_meter_kind = {
    .labels = {"pool"},
    .values = pool_values,
    .value_count = POOL_VALUES,
    .collect = collect_pool,
};

/* ---- Stages ---- */

static void collect_stage(struct metered *object, uint64_t *values)
{
    struct stage_meter *stage = container_of(object, struct stage_meter, metered);
    struct stage *counted = stage->counted;

    values[STAGE_DEPTH] = atom_load(&stage->depth);
    values[STAGE_LATENCY_TARGET] = atom_load(&stage->latency_ms);
    if (!counted) return;
    flow_lock(&counted->pipeline->object);
    values[STAGE_DEPTH] = counted->depth;
    values[STAGE_DEPTH_MAX] = counted->depth_max;
    values[STAGE_CAPACITY] = counted->queue_max;
    values[STAGE_FINISHED] = counted->figures.finished;
    flow_unlock(&counted->pipeline->object);
}

#define REJECTED(reason_, label_)                                                            \
    [STAGE_REJECTED + (reason_)] = {"weir_stage_rejected_total", "Items that were refused.", \
                                    METER_COUNTER, .label = "reason", .label_value = (label_)}

static const struct meter_value stage_values[STAGE_VALUES] = {
    [STAGE_DEPTH] = {"weir_stage_depth", "Items that wait for the stage.", METER_GAUGE},
    [STAGE_DEPTH_MAX] = {"weir_stage_depth_max", "The most items that have waited at once.",
                         METER_GAUGE_MAX},
    [STAGE_CAPACITY] = {"weir_stage_capacity", "Items that can wait for the stage.", METER_GAUGE,
                        .zero_is_unset = true},
    [STAGE_FINISHED] = {"weir_stage_finished_total", "Items that were handled.", METER_COUNTER},
    [STAGE_FAILED] = {"weir_stage_failed_total", "Items whose handling has failed.", METER_COUNTER},
    [STAGE_TIMEOUTS] = {"weir_stage_timeouts_total", "Items whose time in the stage was up.",
                        METER_COUNTER},
    [STAGE_LATENCY_TARGET] = {"weir_stage_latency_target_seconds",
                              "How long an item should take at most.", METER_GAUGE_MAX, MS_DIGITS,
                              true},
    REJECTED(STAGE_REJECTED_FULL, "full"),
    REJECTED(STAGE_REJECTED_SHED, "shed"),
    REJECTED(STAGE_REJECTED_LIMIT, "limit"),
    REJECTED(STAGE_REJECTED_BREAKER, "breaker"),
    REJECTED(STAGE_REJECTED_EXPIRED, "expired"),
    REJECTED(STAGE_REJECTED_CLOSED, "closed"),
    REJECTED(STAGE_REJECTED_POLICY, "policy"),
};

static const struct meter_histogram stage_histograms[] = {
    [STAGE_WAIT] = {"weir_stage_wait_seconds", "How long items wait for the stage."},
    [STAGE_RUN] = {"weir_stage_run_seconds", "How long the stage takes for an item."},
};

const struct meter_kind stage_meter_kind = {
    .labels = {"stage"},
    .values = stage_values,
    .value_count = STAGE_VALUES,
    .histograms = stage_histograms,
    .histogram_count = 2,
    .collect = collect_stage,
};

static void open_stage(struct stage_meter *stage, struct stage *counted, const char *name,
                       int64_t latency_ms)
{
    stage->counted = counted;
    atom_store(&stage->depth, 0);
    atom_store(&stage->latency_ms, latency_ms > 0 ? (uint64_t)latency_ms : 0);
    meter_enter(&stage->metered, meter_get(&stage_meter_kind, name, NULL));
}

void stage_meter_open(struct stage_meter *stage, const char *name, int64_t latency_ms)
{
    open_stage(stage, NULL, name, latency_ms);
}

void stage_meter_open_counted(struct stage_meter *stage, struct stage *counted)
{
    open_stage(stage, counted, counted->name, counted->spec.latency_ms);
}

void stage_meter_close(struct stage_meter *stage)
{
    meter_leave(&stage->metered);
}

void stage_item_queued(struct stage_meter *stage)
{
    uint64_t depth = atom_add(&stage->depth, 1) + 1;
    meter_count(stage->metered.meter, STAGE_DEPTH_MAX, depth);
}

void stage_item_begun(struct stage_meter *stage, int64_t wait_ns)
{
    (void)atom_sub(&stage->depth, 1);
    meter_observe(stage->metered.meter, STAGE_WAIT, wait_ns);
}

void stage_item_removed(struct stage_meter *stage)
{
    (void)atom_sub(&stage->depth, 1);
}

void stage_item_ended(struct stage_meter *stage, int64_t run_ns, int result)
{
    struct meter *meter = stage->metered.meter;

    meter_observe(meter, STAGE_RUN, run_ns);
    meter_count(meter, result < 0 ? STAGE_FAILED : STAGE_FINISHED, 1);
    if (result == WEIR_ETIMEDOUT) meter_count(meter, STAGE_TIMEOUTS, 1);
}

void stage_item_rejected(struct stage_meter *stage, enum stage_reason reason)
{
    meter_count(stage->metered.meter, STAGE_REJECTED + (unsigned)reason, 1);
}

/* ---- Pipelines ---- */

static void collect_pipeline(struct metered *object, uint64_t *values)
{
    struct pipeline_meter *pipeline = container_of(object, struct pipeline_meter, metered);
    struct pipeline *counted = pipeline->counted;

    values[PIPELINE_LATENCY_TARGET] = atom_load(&pipeline->latency_ms);
    if (!counted) return;
    flow_lock(&counted->object);
    values[PIPELINE_FINISHED] = counted->figures.finished;
    values[PIPELINE_PARTIAL] = counted->figures.partial;
    flow_unlock(&counted->object);
}

static const struct meter_value pipeline_values[PIPELINE_VALUES] = {
    [PIPELINE_FINISHED] = {"weir_pipeline_finished_total", "Items that came out at the end.",
                           METER_COUNTER},
    [PIPELINE_FAILED] = {"weir_pipeline_failed_total", "Items that came out with an error.",
                         METER_COUNTER},
    [PIPELINE_PARTIAL] = {"weir_pipeline_partial_total",
                          "Items that came out without an optional stage.", METER_COUNTER},
    [PIPELINE_TIMEOUTS] = {"weir_pipeline_timeouts_total", "Items whose time was up.",
                           METER_COUNTER},
    [PIPELINE_LATENCY_TARGET] = {"weir_pipeline_latency_target_seconds",
                                 "How long an item should take from end to end.", METER_GAUGE_MAX,
                                 MS_DIGITS, true},
};

static const struct meter_histogram pipeline_histograms[] = {
    [PIPELINE_LATENCY] = {"weir_pipeline_latency_seconds",
                          "From the call until the item has left the last stage."},
};

const struct meter_kind pipeline_meter_kind = {
    .labels = {"pipeline"},
    .values = pipeline_values,
    .value_count = PIPELINE_VALUES,
    .histograms = pipeline_histograms,
    .histogram_count = 1,
    .collect = collect_pipeline,
};

static void open_pipeline(struct pipeline_meter *pipeline, struct pipeline *counted,
                          const char *name, int64_t latency_ms)
{
    pipeline->counted = counted;
    atom_store(&pipeline->latency_ms, latency_ms > 0 ? (uint64_t)latency_ms : 0);
    meter_enter(&pipeline->metered, meter_get(&pipeline_meter_kind, name, NULL));
}

void pipeline_meter_open(struct pipeline_meter *pipeline, const char *name, int64_t latency_ms)
{
    open_pipeline(pipeline, NULL, name, latency_ms);
}

void pipeline_meter_open_counted(struct pipeline_meter *pipeline, struct pipeline *counted)
{
    open_pipeline(pipeline, counted, counted->object.name, counted->spec.latency_ms);
}

void pipeline_meter_close(struct pipeline_meter *pipeline)
{
    meter_leave(&pipeline->metered);
}

void pipeline_item_ended(struct pipeline_meter *pipeline, int64_t latency_ns, int result,
                         bool partial)
{
    struct meter *meter = pipeline->metered.meter;

    meter_observe(meter, PIPELINE_LATENCY, latency_ns);
    meter_count(meter, result < 0 ? PIPELINE_FAILED : PIPELINE_FINISHED, 1);
    if (partial) meter_count(meter, PIPELINE_PARTIAL, 1);
    if (result == WEIR_ETIMEDOUT) meter_count(meter, PIPELINE_TIMEOUTS, 1);
}

/* meters.h - what channels, actors, pools, stages and pipelines measure (watch/metrics.h).
 *
 * Channels, actors and pools keep their counters themselves and are asked for them; their
 * waits go to the histograms named here. So do stages of a pipeline with what they count for
 * every item (`counted`); whatever else is a stage calls stage_* for every item, on whatever
 * thread handles it, and asks the clock itself.
 */
#ifndef WEIR_FLOW_METERS_H
#define WEIR_FLOW_METERS_H

#include "watch/metrics.h"

struct pipeline;
struct stage;

/* A task's wait was interrupted with `error`, which is returned: a deadline's counts as one
 * more of `value`. For after the wait, when the object may be gone and its meter is not. */
int meter_interrupted(struct meter *meter, unsigned value, int error);

/* ---- Channels ---- */

enum { CHAN_WAIT }; /* histograms */
enum {
    CHAN_OPEN,
    CHAN_DEPTH,
    CHAN_DEPTH_MAX,
    CHAN_CAPACITY,
    CHAN_ACCEPTED,
    CHAN_RECEIVED,
    CHAN_REJECTED,
    CHAN_DROPPED,
    CHAN_TIMEOUTS,
    CHAN_LATENCY_TARGET,
    CHAN_VALUES,
};
extern const struct meter_kind chan_meter_kind;

/* ---- Actors ---- */

enum { ACTOR_WAIT, ACTOR_RUN };
enum {
    ACTOR_DEPTH,
    ACTOR_DEPTH_MAX,
    ACTOR_CAPACITY,
    ACTOR_ACCEPTED,
    ACTOR_HANDLED,
    ACTOR_REJECTED,
    ACTOR_UNDELIVERED,
    ACTOR_CRASHED,
    ACTOR_RESTARTS,
    ACTOR_TIMEOUTS,
    ACTOR_LATENCY_TARGET,
    ACTOR_VALUES,
};
extern const struct meter_kind actor_meter_kind;

/* ---- Pools ---- */

enum { POOL_WAIT, POOL_RUN };
enum {
    POOL_QUEUED,
    POOL_QUEUED_MAX,
    POOL_CAPACITY,
    POOL_RUNNING,
    POOL_FINISHED,
    POOL_REJECTED,
    POOL_REMOVED,
    POOL_ORPHANED,
    POOL_TIMEOUTS,
    POOL_LATENCY_TARGET,
    POOL_CLASS_VALUES,
};
extern const struct meter_kind pool_class_meter_kind;

enum { POOL_THREADS, POOL_THREADS_MAX, POOL_ORPHANS, POOL_VALUES };
extern const struct meter_kind pool_meter_kind;

/* ---- Stages: every item ---- */

enum stage_reason {
    STAGE_REJECTED_FULL,    /* its queue is */
    STAGE_REJECTED_SHED,    /* load shedding */
    STAGE_REJECTED_LIMIT,   /* a limiter */
    STAGE_REJECTED_BREAKER, /* a breaker is open */
    STAGE_REJECTED_EXPIRED, /* its deadline had passed before its turn came */
    STAGE_REJECTED_CLOSED,  /* the stage is draining, or has ended */
    STAGE_REJECTED_POLICY,  /* its policy said no */
    STAGE_REASONS,
};

enum { STAGE_WAIT, STAGE_RUN };
enum {
    STAGE_DEPTH,
    STAGE_DEPTH_MAX,
    STAGE_CAPACITY,
    STAGE_FINISHED,
    STAGE_FAILED,
    STAGE_TIMEOUTS,
    STAGE_LATENCY_TARGET,
    STAGE_REJECTED,
    STAGE_VALUES = STAGE_REJECTED + STAGE_REASONS,
};
extern const struct meter_kind stage_meter_kind;

/* In a stage. `depth` (items that wait for it) and `latency_ms` are the stage's to keep up
 * to date; both are read when somebody looks. */
struct stage_meter {
    struct metered metered; /* the first member */
    struct stage *counted;  /* has depth and finished items itself, under its lock; or NULL */
    ATOM(uint64_t) depth;
    ATOM(uint64_t) latency_ms;
};

/* On the stage's worker: when it is opened, and when its scope lets it go. */
void stage_meter_open(struct stage_meter *stage, const char *name, int64_t latency_ms);
void stage_meter_open_counted(struct stage_meter *stage, struct stage *counted);
void stage_meter_close(struct stage_meter *stage);

/* Any thread. An item has come to wait; it leaves the queue after wait_ns; it has been
 * handled within run_ns, with this result (WEIR_ETIMEDOUT counts as a timeout, any error as
 * failed); or it was refused. */
void stage_item_queued(struct stage_meter *stage);
void stage_item_begun(struct stage_meter *stage, int64_t wait_ns);
void stage_item_ended(struct stage_meter *stage, int64_t run_ns, int result);
void stage_item_rejected(struct stage_meter *stage, enum stage_reason reason);
/* It has left the queue without being handled: cancelled, or dropped. */
void stage_item_removed(struct stage_meter *stage);

/* ---- Pipelines: end to end ---- */

enum { PIPELINE_LATENCY };
enum {
    PIPELINE_FINISHED,
    PIPELINE_FAILED,
    PIPELINE_PARTIAL,
    PIPELINE_TIMEOUTS,
    PIPELINE_LATENCY_TARGET,
    PIPELINE_VALUES,
};
extern const struct meter_kind pipeline_meter_kind;

struct pipeline_meter {
    struct metered metered;   /* the first member */
    struct pipeline *counted; /* has finished items itself, under its lock; or NULL */
    ATOM(uint64_t) latency_ms;
};

void pipeline_meter_open(struct pipeline_meter *pipeline, const char *name, int64_t latency_ms);
void pipeline_meter_open_counted(struct pipeline_meter *pipeline, struct pipeline *counted);
void pipeline_meter_close(struct pipeline_meter *pipeline);
/* Any thread: an item has left the pipeline, latency_ns after it came. */
void pipeline_item_ended(struct pipeline_meter *pipeline, int64_t latency_ns, int result,
                         bool partial);

#endif

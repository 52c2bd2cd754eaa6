/* engine.h - durable jobs as a pure state machine: commands and time in, decisions and effects out.
 *
 *     r = engine_enqueue(engine, now_ms, &spec, &enqueued);   decides, and changes the state
 *     engine_record(engine, &bytes, &count);                  what was decided since the last one
 *     position = append(log, bytes, count);
 *     engine_logged(engine, position);                        the record is taken
 *     ...
 *     engine_apply(other, bytes, count, position);            the same state again
 *
 * Several commands before one engine_logged() are one record: all or nothing. A record holds
 * decisions, never commands: "job 7: leased, token 12, until 5000". Applying it decides nothing.
 * docs/formats/engine.md says how it is written.
 *
 * Invariants: README.md. Time given by the caller may go back: the engine's own does not.
 * Errors: 0 or a count, or negative, and then nothing has changed and engine_why() says why:
 *   -EINVAL a spec that contradicts itself   -ENOENT no such job, queue, ...
 *   -ESTALE the token is not (or no longer) that of a lease   -EBUSY not in this state
 *   WEIR_EOVERLOAD the queue is full   -ENOBUFS the memory bound is reached: no new work
 *   -ENOMEM no memory   -EBADMSG no valid record
 * Threads: none; the owner serialises all calls. No call suspends, reads a clock or a file.
 */
#ifndef WEIR_ENGINE_ENGINE_H
#define WEIR_ENGINE_ENGINE_H

#include <weir/error.h>

#include "engine/memory.h"

struct engine;

struct engine_slice {
    const void *at;
    size_t count;
};

enum {
    ENGINE_NAME_BYTES_MAX = 200, /* of a queue, a kind, a key, a class of errors */
    ENGINE_LIMIT_KEYS_MAX = 4,
    ENGINE_CLASSES_MAX = 4,
    ENGINE_PRIORITY_MAX = 31,
    ENGINE_ERRORS_KEPT = 10,   /* of a job: its last ones */
    ENGINE_TICK_STEPS = 256,   /* of one engine_tick() */
    ENGINE_MOVES_MAX = 64,     /* of jobs that a command lets go on, beside its own */
    ENGINE_CLAIM_MAX = 64,     /* jobs of one claim */
    ENGINE_SKIP_MAX = 64,      /* candidates that one claim finds blocked or expired after all */
    ENGINE_RATE_MAX = 1000000, /* of a rate, and of a burst */
    ENGINE_PERIOD_MS_MAX = 86400000,
};
#define ENGINE_TIME_MS_MAX INT64_C(8000000000000) /* the year 2223 */
#define ENGINE_SPAN_MS_MAX INT64_C(100000000000)  /* of a delay or a window: three years */

enum engine_state {
    ENGINE_NO_JOB,
    ENGINE_SCHEDULED, /* waits for a time: its first, its next attempt's */
    ENGINE_HELD,      /* waits for others: its predecessor in order, its batch */
    ENGINE_READY,     /* can be claimed */
    ENGINE_BLOCKED,   /* waits for one of its limit keys */
    ENGINE_LEASED,    /* a worker has it */
    ENGINE_DONE,
    ENGINE_DEAD, /* a dead letter */
    ENGINE_CANCELLED,
    ENGINE_EXPIRED,
    ENGINE_STATES,
};
#define ENGINE_STATE_BIT(state_) (1u << (state_))
/* The states of a job that has not ended. */
#define ENGINE_LIVE_STATES                                                \
    (ENGINE_STATE_BIT(ENGINE_SCHEDULED) | ENGINE_STATE_BIT(ENGINE_HELD) | \
     ENGINE_STATE_BIT(ENGINE_READY) | ENGINE_STATE_BIT(ENGINE_BLOCKED) |  \
     ENGINE_STATE_BIT(ENGINE_LEASED))

struct engine_config {
    engine_resize_fn resize; /* memory; required */
    void *resize_arg;
    size_t memory_bytes_max; /* from here on new work is refused; required */
    uint64_t seed;           /* of jitter, and of hashes */
    uint32_t payload_bytes_max;
    uint32_t result_bytes_max;
    uint32_t message_bytes_max; /* of an error: longer ones are cut */
    uint32_t depth_max;         /* of a queue that says nothing itself */
    int64_t history_ms;         /* how long a job that has ended is kept */
    int64_t dead_ms;            /* and a dead letter */
    uint32_t history_count_max; /* of a queue */
};

int engine_open(const struct engine_config *config, struct engine **ret_engine);
void engine_close(struct engine *engine);
const char *engine_why(const struct engine *engine);

/* ---- Records ---- */

/* What was decided since the last engine_logged(); count 0: nothing. Valid until the next call. */
void engine_record(struct engine *engine, const void **ret_bytes, size_t *ret_count);
/* The record is in the log at `position`: jobs in it remember that. */
void engine_logged(struct engine *engine, uint64_t position);
/* Makes a record's decisions; only while nothing undone is in engine_record(). -EBADMSG: nothing
 * has changed. -ENOMEM: close the engine. */
int engine_apply(struct engine *engine, const void *bytes, size_t count, uint64_t position);

/* A slice of the state, as a record that does not count as decided: about bytes_max bytes, and one
 * job at least; in the first also all queues, keys, schedules and sets. `cursor` begins zeroed.
 * Returns 1 while there is more, 0 at the end. Commands may come between slices. State = all slices
 * applied in order, then every record that was logged since before the first slice. */
struct engine_cursor {
    uint32_t after;
    bool begun;
};
int engine_snapshot(struct engine *engine, struct engine_cursor *cursor, size_t bytes_max,
                    const void **ret_bytes, size_t *ret_count);
/* One job again, whole, in the next record, so that the log can drop the old one: with the bytes
 * that the caller has read there. */
int engine_relog(struct engine *engine, int64_t now_ms, uint64_t id, struct engine_slice payload,
                 struct engine_slice trace, struct engine_slice result);
/* What a record holds of a job that the engine keeps no bytes of. -ENOENT: nothing. */
struct engine_found {
    struct engine_slice payload;
    struct engine_slice trace;
    struct engine_slice result;
};
int engine_record_find(const void *bytes, size_t count, uint64_t id,
                       struct engine_found *ret_found);

/* ---- Jobs ---- */

struct engine_retry {
    uint16_t attempts_max; /* 0 counts as 1 */
    uint32_t backoff_ms;   /* before the second attempt; doubles */
    uint32_t backoff_ms_max;
    bool jitter;                                   /* full: between 0 and that */
    struct engine_slice never[ENGINE_CLASSES_MAX]; /* errors of these classes are not retried */
    uint32_t never_count;
};

/* When a job that gathers a batch runs: when all its members have ended, or only if all are done.
 * In the second case another end of a member makes it a dead letter. */
enum engine_gathers { ENGINE_GATHERS_NOTHING, ENGINE_WHEN_ENDED, ENGINE_WHEN_DONE };

struct engine_job_spec {
    struct engine_slice queue;
    struct engine_slice kind;
    uint32_t version;
    struct engine_slice payload;
    struct engine_slice trace;
    struct engine_slice tags; /* kept as they are; up to ENGINE_NAME_BYTES_MAX */
    uint8_t priority;         /* 0 to ENGINE_PRIORITY_MAX: more is sooner */
    int64_t run_at_ms;        /* 0: now */
    int64_t expires_ms;       /* not begun by then: expired; 0: never */
    uint32_t timeout_ms;      /* of one attempt, however often it is renewed; 0: none */
    struct engine_retry retry;
    bool idempotent; /* may be begun twice */
    struct engine_slice unique_key;
    int64_t unique_ms;      /* counted from its enqueueing; 0: as long as it is there */
    uint32_t unique_states; /* bits: ENGINE_LIVE_STATES and others; 0: just those */
    struct engine_slice idempotency_key;
    int64_t idempotency_ms; /* required with the key */
    struct engine_slice limit_keys[ENGINE_LIMIT_KEYS_MAX];
    uint32_t limit_key_count;
    struct engine_slice fairness_key;
    struct engine_slice order_key;
    uint64_t batch; /* the batch it belongs to: the id of the job that gathers it; 0: none */
    enum engine_gathers gathers; /* it opens a batch of its own, and waits for it */
};

struct engine_enqueued {
    uint64_t id;
    bool duplicate; /* of a job with the same unique or idempotency key: `id` is that one */
};
int engine_enqueue(struct engine *engine, int64_t now_ms, const struct engine_job_spec *spec,
                   struct engine_enqueued *ret_enqueued);

struct engine_kind {
    struct engine_slice name;
    uint32_t version_min;
    uint32_t version_max;
};
struct engine_claim_spec {
    struct engine_slice queue;
    const struct engine_kind *kinds; /* what the worker knows */
    uint32_t kind_count;             /* 0: all there are */
    uint32_t count;                  /* how many jobs at most; 1 to ENGINE_CLAIM_MAX */
    int64_t lease_ms;
};
struct engine_claimed {
    uint64_t id;
    uint64_t token;
    uint64_t position;
    uint32_t payload_bytes;
    uint32_t version;
    struct engine_slice kind; /* valid until the next call */
    uint16_t run;             /* how often it was begun, this time included */
    uint16_t attempt;         /* of attempts_max */
    uint16_t attempts_max;
    uint8_t priority;
    int64_t created_ms;
    int64_t lease_until_ms;
};
/* The number of jobs claimed, in order; 0: nothing for this worker now. */
int engine_claim(struct engine *engine, int64_t now_ms, const struct engine_claim_spec *spec,
                 struct engine_claimed *ret_claimed);

enum engine_orders {
    ENGINE_GO_ON = 0,
    ENGINE_GO_CANCELLED = 1, /* stop this job */
    ENGINE_GO_QUIET = 2,     /* its queue is drained: take on no more */
};
struct engine_renewed {
    int64_t lease_until_ms;
    unsigned orders; /* bits of enum engine_orders */
};
int engine_renew(struct engine *engine, int64_t now_ms, uint64_t id, uint64_t token,
                 int64_t lease_ms, struct engine_renewed *ret_renewed);
/* A number of the job's own, shown to who looks. */
int engine_progress(struct engine *engine, int64_t now_ms, uint64_t id, uint64_t token,
                    uint32_t progress);
int engine_ack(struct engine *engine, int64_t now_ms, uint64_t id, uint64_t token,
               struct engine_slice result);

struct engine_failure {
    struct engine_slice class;
    struct engine_slice message;
    int64_t delay_ms; /* before the next attempt; negative: as its policy says */
    bool dead;        /* whatever its policy says */
};
/* Returns the state that the job is in then. */
int engine_fail(struct engine *engine, int64_t now_ms, uint64_t id, uint64_t token,
                const struct engine_failure *failure);
/* Given back: the attempt does not count. With a delay: snoozed. */
int engine_release(struct engine *engine, int64_t now_ms, uint64_t id, uint64_t token,
                   int64_t delay_ms);
/* No more members come. Returns the state of the job that gathers the batch then. */
int engine_batch_seal(struct engine *engine, int64_t now_ms, uint64_t batch);
/* Returns ENGINE_CANCELLED, or ENGINE_LEASED: the worker is told when it renews. */
int engine_cancel(struct engine *engine, int64_t now_ms, uint64_t id);

/* ---- Queues and keys ---- */

struct engine_rate {
    uint32_t count; /* 0: no limit */
    uint32_t period_ms;
    uint32_t burst; /* 0 counts as 1 */
};
/* Waiting for room is the caller's. Nothing is dropped for room: it was acknowledged. */
enum engine_overflow { ENGINE_OVERFLOW_UNSET, ENGINE_REJECT };
struct engine_queue_spec {
    struct engine_slice name;
    uint32_t depth_max; /* of jobs that wait; 0: the engine's */
    enum engine_overflow overflow;
    uint32_t concurrency; /* 0: no limit */
    struct engine_rate rate;
    uint32_t latency_target_ms; /* shown with the figures */
    bool paused;                /* nothing is claimed */
    bool draining;              /* nothing is enqueued, and workers are told to be quiet */
};
int engine_queue_set(struct engine *engine, int64_t now_ms, const struct engine_queue_spec *spec);

struct engine_key_spec {
    struct engine_slice name;
    uint32_t concurrency; /* 0: no limit */
    struct engine_rate rate;
    uint32_t weight; /* as a fairness key; 0 counts as 1 */
};
/* A key that says nothing (all zero) is forgotten when no job has it. */
int engine_key_set(struct engine *engine, int64_t now_ms, const struct engine_key_spec *spec);

/* ---- Schedules ---- */

/* While the job of the time before has not ended. */
enum engine_overlap { ENGINE_OVERLAP_UNSET, ENGINE_OVERLAP_ALLOW, ENGINE_OVERLAP_SKIP };
/* For times that passed while nobody ticked: none (but what is ENGINE_LATE_MS late is not missed),
 * one for all of them, or all. */
enum engine_catch_up {
    ENGINE_CATCH_UP_UNSET,
    ENGINE_CATCH_UP_NONE,
    ENGINE_CATCH_UP_ONE,
    ENGINE_CATCH_UP_ALL,
};
enum { ENGINE_LATE_MS = 60000 };

struct engine_schedule_spec {
    struct engine_slice name;
    struct engine_slice cron; /* engine/cron.h */
    struct engine_slice zone; /* as given to engine_zone_set(); empty: UTC */
    enum engine_overlap overlap;
    enum engine_catch_up catch_up;
    bool paused;
    struct engine_job_spec job; /* without times, idempotency key and batch */
};
/* A schedule whose zone is not there is kept, and comes when the zone is given. */
int engine_schedule_set(struct engine *engine, int64_t now_ms,
                        const struct engine_schedule_spec *spec);
int engine_schedule_drop(struct engine *engine, int64_t now_ms, struct engine_slice name);
/* The bytes of a TZif file, copied. They are not logged: give them after each start. */
int engine_zone_set(struct engine *engine, struct engine_slice name, struct engine_slice tzif);

struct engine_schedule {
    int64_t next_ms; /* 0: it does not come */
    uint64_t last_id;
    bool paused;
    bool zone_missing;
    uint64_t skipped; /* since the engine was opened: overlaps, and jobs that were refused */
};
int engine_schedule_get(const struct engine *engine, struct engine_slice name,
                        struct engine_schedule *ret_schedule);

/* ---- Time ---- */

/* What is due by now, in at most ENGINE_TICK_STEPS steps. Returns 1 if more is due, or 0. */
int engine_tick(struct engine *engine, int64_t now_ms);
/* When the next tick has something to do; INT64_MAX: never. */
int64_t engine_next_ms(const struct engine *engine);
int64_t engine_now_ms(const struct engine *engine);

/* ---- Effects ---- */

/* A queue that has got something to claim since it was last asked; false: none. */
bool engine_next_wake(struct engine *engine, struct engine_slice *ret_queue);

/* ---- Looking ---- */

struct engine_error {
    uint16_t run;
    int64_t at_ms;
    struct engine_slice class;
    struct engine_slice message;
};
struct engine_job {
    uint64_t id;
    enum engine_state state;
    struct engine_slice queue;
    struct engine_slice kind;
    uint32_t version;
    uint8_t priority;
    uint16_t run;
    uint16_t attempt;
    uint16_t attempts_max;
    uint64_t token; /* of the lease */
    uint64_t position;
    uint32_t payload_bytes;
    uint64_t result_position;
    uint32_t result_bytes;
    uint32_t progress;
    int64_t created_ms;
    int64_t started_ms;
    int64_t when_ms; /* run at, lease until, kept until */
    int64_t expires_ms;
    bool cancel_asked;
    uint64_t batch;
    /* Of the batch that it gathers. */
    uint32_t members;
    uint32_t members_left;
    uint32_t members_not_done;
    struct engine_slice tags;
    struct engine_slice unique_key;
    struct engine_slice idempotency_key;
    struct engine_slice fairness_key;
    struct engine_slice order_key;
    uint32_t limit_key_count;
    struct engine_slice limit_keys[ENGINE_LIMIT_KEYS_MAX];
    struct engine_slice blocked_on; /* the limit key */
};
/* Slices are valid until the next call. */
int engine_job_get(const struct engine *engine, uint64_t id, struct engine_job *ret_job);
/* The errors kept, oldest first: how many. */
int engine_job_errors(const struct engine *engine, uint64_t id,
                      struct engine_error ret_errors[ENGINE_ERRORS_KEPT]);

struct engine_figures {
    uint64_t by_state[ENGINE_STATES];
    uint64_t unknown;  /* ready, of kinds that no worker has asked for since the start */
    int64_t oldest_ms; /* when the first of the claimable jobs was made ready; 0: none */
    uint32_t latency_target_ms;
    /* Since the engine was opened. */
    uint64_t enqueued, started, done, failed, died, expired, cancelled, rejected, lost;
    uint64_t wait_ms, run_ms; /* sums, over started and over done */
};
int engine_figures(const struct engine *engine, struct engine_slice queue,
                   struct engine_figures *ret_figures);
size_t engine_memory_used(const struct engine *engine);
/* Steps in trees and tables so far: what the scale tests count. */
uint64_t engine_steps(const struct engine *engine);

/* ---- Dead letters ---- */

/* The ids of dead letters of a queue after an id, rising: how many. */
int engine_dead_list(const struct engine *engine, struct engine_slice queue, uint64_t after,
                     uint64_t *ret_ids, int ids_max);
/* Makes a dead letter a new job of the same id: its attempts begin anew. With a payload if
 * `payload` is not NULL (edited). One whose expires_ms has passed would expire at once: -EINVAL. */
int engine_dead_replay(struct engine *engine, int64_t now_ms, uint64_t id,
                       const struct engine_slice *payload);
/* Forgets a job that has ended. */
int engine_purge(struct engine *engine, int64_t now_ms, uint64_t id);

/* ---- Many jobs ---- */

/* Which jobs: all that is said must hold. */
struct engine_filter {
    struct engine_slice queue; /* required */
    uint32_t states;           /* bits; required */
    struct engine_slice kind;
    struct engine_slice tags;        /* exactly these bytes */
    struct engine_slice error_class; /* of its last error */
};
enum engine_action {
    ENGINE_ACTION_UNSET,
    ENGINE_ACTION_REPLAY, /* engine_dead_replay() */
    ENGINE_ACTION_PURGE,
    ENGINE_ACTION_CANCEL,
};
enum { ENGINE_BULK_MAX = 100000, ENGINE_BULK_CHUNK = 64 };

/* How many there are now: looks at every job. */
int64_t engine_filter_count(const struct engine *engine, const struct engine_filter *filter);
/* Freezes the set of jobs that the filter finds now, at most ENGINE_BULK_MAX, by rising id; ticks
 * work it off, up to ENGINE_BULK_CHUNK jobs each, also after a restart. Returns how many there
 * are. A job that has changed meanwhile and does not allow the action counts as failed. */
int engine_bulk_begin(struct engine *engine, int64_t now_ms, const struct engine_filter *filter,
                      enum engine_action action, uint64_t *ret_id);
struct engine_bulk {
    uint64_t id;
    enum engine_action action;
    uint32_t count;
    uint32_t done; /* the failed ones included */
    uint32_t failed;
};
/* Those that there are, the newest first: how many. They stay until they are dropped. */
int engine_bulk_list(const struct engine *engine, struct engine_bulk *ret_bulks, int bulks_max);
int engine_bulk_drop(struct engine *engine, int64_t now_ms, uint64_t id);

/* ---- Proof ---- */

/* The whole state, row by row, in no order: each as the operation that says it. Equal for equal
 * states. 0 or -ENOMEM. */
typedef void (*engine_row_fn)(void *arg, const void *bytes, size_t count);
int engine_rows(struct engine *engine, engine_row_fn row, void *arg);
/* Counts everything anew and compares: NULL, or what is wrong. */
const char *engine_check(const struct engine *engine);

#endif

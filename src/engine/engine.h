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
    ENGINE_ERRORS_KEPT = 64,   /* of a job: its last ones */
    ENGINE_TICK_STEPS = 256,   /* of one engine_tick() */
    ENGINE_MOVES_MAX = 64,     /* of jobs that a command lets go on, beside its own */
    ENGINE_SETTLE_MAX = 32,    /* leases of one engine_settle_begin() */
    ENGINE_CLAIM_MAX = 64,     /* jobs of one claim */
    ENGINE_SKIP_MAX = 64,      /* candidates that one claim finds blocked or expired after all */
    ENGINE_RATE_MAX = 1000000, /* of a rate, and of a burst */
    ENGINE_MESSAGE_BYTES_MAX = 2048, /* of an error */
    ENGINE_PERIOD_MS_MAX = 86400000,
};
/* The record of one command is never longer than this and the bytes that the command was given:
 * payload, trace, result, message, keys. */
#define ENGINE_COMMAND_BYTES_MAX ((size_t)192 << 10)
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

/* Of a queue that is full: both are answered with WEIR_EOVERLOAD; that who enqueues is to wait for
 * room is the caller's. Nothing is dropped for room: it was acknowledged. */
enum engine_overflow { ENGINE_OVERFLOW_UNSET, ENGINE_REJECT, ENGINE_WAIT };

struct engine_config {
    engine_resize_fn resize; /* memory; required */
    void *resize_arg;
    size_t memory_bytes_max; /* from here on new work is refused; required */
    uint64_t seed;           /* of jitter, and of hashes */
    uint32_t payload_bytes_max;
    uint32_t result_bytes_max;
    uint32_t message_bytes_max;    /* of an error: longer ones are cut; at most 2048 */
    uint32_t depth_max;            /* of a queue that says nothing itself */
    enum engine_overflow overflow; /* and this; unset counts as ENGINE_REJECT */
    int64_t history_ms;            /* how long a job that has ended is kept */
    int64_t dead_ms;               /* and a dead letter */
    uint32_t history_count_max;    /* of a queue */
};

int engine_open(const struct engine_config *config, struct engine **ret_engine);
void engine_close(struct engine *engine);
const char *engine_why(const struct engine *engine);

/* ---- Records ---- */

/* What was decided since the last engine_logged(); count 0: nothing. Valid until the next call. */
void engine_record(struct engine *engine, const void **ret_bytes, size_t *ret_count);
/* How long it is by now, without its head. */
size_t engine_record_bytes(const struct engine *engine);
/* The record is in the log at `position`: jobs in it remember that. */
void engine_logged(struct engine *engine, uint64_t position);
/* Makes a record's decisions; only while nothing undone is in engine_record(). -EBADMSG: nothing
 * has changed. -ENOMEM: close the engine. */
int engine_apply(struct engine *engine, const void *bytes, size_t count, uint64_t position);

/* A slice of all that is no job (queues, keys, schedules, sets), as a record that does not count as
 * decided: about bytes_max bytes, and one row at least. `cursor` begins zeroed. Returns 1 while
 * there is more, 0 at the end. Commands may come between slices: a slice is right at the place in
 * the log where it was taken, and also before that, if the log goes on from before the first. */
struct engine_names_cursor {
    unsigned part;
    uint64_t after;
};
int engine_names(struct engine *engine, struct engine_names_cursor *cursor, size_t bytes_max,
                 const void **ret_bytes, size_t *ret_count);
/* The same of the whole state, jobs behind the names. State = all slices applied in order, then
 * every record that was logged since before the first slice. */
struct engine_cursor {
    struct engine_names_cursor names;
    uint32_t after;
};
int engine_snapshot(struct engine *engine, struct engine_cursor *cursor, size_t bytes_max,
                    const void **ret_bytes, size_t *ret_count);
/* One job again, whole, in the next record, so that the log can drop the old one: with the bytes
 * that the caller has read there. */
int engine_relog(struct engine *engine, int64_t now_ms, uint64_t id, struct engine_slice payload,
                 struct engine_slice trace, struct engine_slice result);
/* Which jobs still need a record: those whose payload is there, or only their result. `cursor`
 * begins zeroed. Returns 1 with the next one, 0 at the end, or -EBADMSG. One that is logged again
 * between the calls needs it no more. */
struct engine_needed {
    uint64_t id;
    struct engine_slice payload; /* at NULL: it is in the record at payload_position */
    struct engine_slice trace;
    uint64_t payload_position;
    uint64_t result_position; /* this record, or another */
    uint32_t result_bytes;    /* 0: there is none */
};
struct engine_needed_cursor {
    size_t at;
    bool has_edits; /* the record may have two payloads of one job */
};
int engine_record_needed(const struct engine *engine, const void *bytes, size_t count,
                         uint64_t position, struct engine_needed_cursor *cursor,
                         struct engine_needed *ret_needed);
/* What a record holds of a job that the engine keeps no bytes of. -ENOENT: nothing. */
struct engine_found {
    struct engine_slice payload;
    struct engine_slice trace;
    struct engine_slice result;
};
int engine_record_find(const void *bytes, size_t count, uint64_t id,
                       struct engine_found *ret_found);
/* Payload and trace of every job that it has them of, in one pass; of one job the last ones count.
 * 0, or -EBADMSG. */
typedef void (*engine_payload_fn)(void *arg, uint64_t id, const struct engine_found *found);
int engine_record_payloads(const void *bytes, size_t count, engine_payload_fn fn, void *arg);

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

/* The job is enqueued soon, behind a few others: its keys are looked for in memory meanwhile. */
void engine_foresee(const struct engine *engine, const struct engine_job_spec *spec);

/* Undoes the enqueueing of a job by the record that is not logged yet: for a command that is made
 * of several, of which a later one was refused. The last one first: -EBUSY if it was begun or has
 * ended, or if others have joined its batch. Memory for it was kept when it was enqueued, so that
 * it never fails if all that was decided since was taken back. Else -ENOMEM if others, who wait
 * behind it, would go on and there is none for them. Its id is not given again. */
int engine_take_back(struct engine *engine, int64_t now_ms, uint64_t id);
/* Several leases that end together: memory for all of them, or -ENOMEM, and nothing has changed.
 * Then none of the calls that end them fails for want of it, until engine_settle_end(); nothing
 * else is decided between. Together they let as many others go on as one command does. */
struct engine_settle {
    uint64_t id;         /* of a job that there is */
    size_t result_bytes; /* of engine_ack() */
    bool fails;          /* engine_fail(), with ... */
    struct engine_slice class, message;
};
int engine_settle_begin(struct engine *engine, const struct engine_settle *settles, uint32_t count);
void engine_settle_end(struct engine *engine);

/* The next ids and tokens are so much higher: those that somebody was told, and that a crash has
 * lost, must not be given again. The next record says it. */
void engine_skip(struct engine *engine, uint64_t count);

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
    int64_t wait_ms; /* since it could have been begun */
    bool idempotent; /* may be begun again */
    int64_t lease_until_ms;
    uint32_t timeout_ms; /* of this attempt, however often it is renewed; 0: none */
};
/* The number of jobs claimed, in order; 0: nothing for this worker now. */
int engine_claim(struct engine *engine, int64_t now_ms, const struct engine_claim_spec *spec,
                 struct engine_claimed *ret_claimed);

enum engine_orders {
    ENGINE_GO_ON = 0,
    ENGINE_GO_CANCELLED = 1, /* stop this job */
};
struct engine_renewed {
    int64_t lease_until_ms;
    unsigned orders; /* bits of enum engine_orders */
};
int engine_renew(struct engine *engine, int64_t now_ms, uint64_t id, uint64_t token,
                 int64_t lease_ms, struct engine_renewed *ret_renewed);
/* What engine_ack() would say to the token: 0, -ENOENT or -ESTALE. */
int engine_lease_check(struct engine *engine, uint64_t id, uint64_t token);
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
struct engine_queue_spec {
    struct engine_slice name;
    uint32_t depth_max; /* of jobs that wait; 0: the engine's */
    enum engine_overflow overflow;
    uint32_t concurrency; /* 0: no limit */
    struct engine_rate rate;
    uint32_t latency_target_ms; /* shown with the figures */
    bool paused;                /* nothing is claimed */
    bool draining;              /* nothing is enqueued; what there is is worked off */
};
int engine_queue_set(struct engine *engine, int64_t now_ms, const struct engine_queue_spec *spec);
/* Whether a job would not be refused by WEIR_EOVERLOAD now; if it would, whether its caller waits.
 */
bool engine_has_room(const struct engine *engine, struct engine_slice queue);
bool engine_queue_waits(const struct engine *engine, struct engine_slice queue);
/* How many jobs of the queue are ready. */
uint32_t engine_ready(const struct engine *engine, struct engine_slice queue);

struct engine_key_spec {
    struct engine_slice name;
    uint32_t concurrency; /* 0: no limit */
    struct engine_rate rate;
    uint32_t weight; /* as a fairness key; 0 counts as 1 */
};
/* A key that says nothing (all zero) is forgotten when no job has it. */
int engine_key_set(struct engine *engine, int64_t now_ms, const struct engine_key_spec *spec);

/* What is said of queues and keys, also of those that are only there because jobs name them. Each
 * in turn: `cursor` begins with 0; 1, or 0 at the end. Commands may come between. Slices are valid
 * until the next call. */
struct engine_queue_info {
    struct engine_queue_spec spec; /* overflow: the engine's, if it is not configured */
    uint32_t depth_max;            /* the queue's, or the engine's */
    bool configured;
};
struct engine_key_info {
    struct engine_key_spec spec;
    bool configured;
};
int engine_queue_next(const struct engine *engine, uint32_t *cursor,
                      struct engine_queue_info *ret_info);
int engine_key_next(const struct engine *engine, uint32_t *cursor,
                    struct engine_key_info *ret_info);
int engine_queue_get(const struct engine *engine, struct engine_slice name,
                     struct engine_queue_info *ret_info);

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

struct engine_schedule_info {
    struct engine_slice name;
    struct engine_slice cron;
    struct engine_slice zone;
    struct engine_slice queue;
    struct engine_slice kind;
    enum engine_overlap overlap;
    enum engine_catch_up catch_up;
    struct engine_schedule state;
};
/* Each in turn, as engine_queue_next(). */
int engine_schedule_next(const struct engine *engine, uint32_t *cursor,
                         struct engine_schedule_info *ret_info);

/* ---- Time ---- */

/* What is due by now, in at most ENGINE_TICK_STEPS steps, and none once the record has bytes_max
 * bytes: so it ends with less than bytes_max + ENGINE_COMMAND_BYTES_MAX + the job of a schedule.
 * Returns 1 if more is due, or 0. */
int engine_tick(struct engine *engine, int64_t now_ms, size_t bytes_max);
/* When the next tick has something to do; INT64_MAX: never. */
int64_t engine_next_ms(const struct engine *engine);
int64_t engine_now_ms(const struct engine *engine);

/* ---- Effects ---- */

/* A queue that has got something to claim since it was last asked; false: none. */
bool engine_next_wake(struct engine *engine, struct engine_slice *ret_queue);

/* Called in the midst of a command or of engine_apply(): they must not call the engine. */
struct engine_hooks {
    void *arg;
    /* Rows need so many bytes more (or less) of the record at a position: of a job about its
     * payload and keys, of a result its bytes. 0 in all: the record can go. */
    void (*live)(void *arg, uint64_t position, int64_t bytes);
    /* A job has been decided to be done, dead, cancelled or expired; not by engine_apply(). */
    void (*ended)(void *arg, uint64_t id, enum engine_state state);
};
/* Either may be NULL. What is live now is told at once. */
void engine_hooks_set(struct engine *engine, const struct engine_hooks *hooks);

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
/* Rows, those of jobs that have ended included. */
uint64_t engine_job_count(const struct engine *engine);
size_t engine_memory_used(const struct engine *engine);
/* Steps in trees and tables so far: what the scale tests count. */
uint64_t engine_steps(const struct engine *engine);

/* ---- Dead letters ---- */

/* The ids of dead letters of a queue after an id, rising: how many. */
int engine_dead_list(const struct engine *engine, struct engine_slice queue, uint64_t after,
                     uint64_t *ret_ids, int ids_max);
/* Makes a dead letter a new job of the same id: its attempts begin anew. With another payload if
 * `payload` is not NULL (edited), and with this trace then: the old ones are not kept. One whose
 * expires_ms has passed would expire at once: -EINVAL. */
int engine_dead_replay(struct engine *engine, int64_t now_ms, uint64_t id,
                       const struct engine_slice *payload, struct engine_slice trace);
/* Changes what is said of a job that waits: scheduled, ready or blocked, else -EBUSY. It is logged
 * whole again, with the bytes that the caller has read. Returns its state then. */
struct engine_patch {
    bool has_priority, has_run_at, has_expires;
    uint8_t priority;
    int64_t run_at_ms;  /* 0: now */
    int64_t expires_ms; /* 0: never */
};
int engine_patch(struct engine *engine, int64_t now_ms, uint64_t id,
                 const struct engine_patch *patch, struct engine_slice payload,
                 struct engine_slice trace);
/* Forgets a job that has ended. */
int engine_purge(struct engine *engine, int64_t now_ms, uint64_t id);

/* ---- Many jobs ---- */

/* Which jobs: all that is said must hold. */
struct engine_filter {
    struct engine_slice queue; /* empty: all */
    uint32_t states;           /* bits; required */
    struct engine_slice kind;
    struct engine_slice tags;        /* exactly these bytes */
    struct engine_slice error_class; /* of its last error */
    bool queue_prefix, kind_prefix;  /* names that begin so */
    struct engine_slice tag;         /* one of its tags, which blanks and commas keep apart */
    struct engine_slice key;         /* one of its keys, of whatever sort */
    uint64_t id, batch;              /* 0: any */
    int64_t created_from_ms, created_before_ms; /* 0: any */
    uint8_t priority_min, priority_below;       /* below 0: any */
    uint16_t attempts_min, attempts_below;      /* likewise */
};
enum engine_action {
    ENGINE_ACTION_UNSET,
    ENGINE_ACTION_REPLAY, /* engine_dead_replay() */
    ENGINE_ACTION_PURGE,
    ENGINE_ACTION_CANCEL,
};
enum {
    ENGINE_BULK_MAX = 100000,
    ENGINE_BULK_BYTES_MAX = 160 << 10, /* of its ids: a set of ids far apart is smaller */
    ENGINE_BULK_CHUNK = 64,
    ENGINE_BULKS_DONE_MAX = 16, /* kept of those that are done: the oldest goes */
};

/* The ids of jobs that pass, in no order: how many. Looks at up to scan_max rows from `cursor` on,
 * which begins with 0, and is 0 again at the end. Jobs that come meanwhile may be missed. */
int engine_list(const struct engine *engine, const struct engine_filter *filter, uint32_t *cursor,
                uint32_t scan_max, uint64_t *ret_ids, int ids_max, uint32_t *ret_scanned);
/* How many there are now: looks at every job. */
int64_t engine_filter_count(const struct engine *engine, const struct engine_filter *filter);
/* Freezes the set of jobs that the filter finds now, at most ENGINE_BULK_MAX and what fits into
 * ENGINE_BULK_BYTES_MAX, the lowest ids; ticks work it off by rising id, up to ENGINE_BULK_CHUNK
 * jobs each, also after a restart. Returns how many there are. A job that has changed meanwhile and
 * does not allow the action counts as failed. */
int engine_bulk_begin(struct engine *engine, int64_t now_ms, const struct engine_filter *filter,
                      enum engine_action action, uint64_t *ret_id);
/* The same for ids that somebody else has found: rising, each once. */
int engine_bulk_begin_ids(struct engine *engine, int64_t now_ms, const uint64_t *ids,
                          uint32_t count, enum engine_action action, uint64_t *ret_id);
struct engine_bulk {
    uint64_t id;
    enum engine_action action;
    uint32_t count;
    uint32_t done; /* the failed ones included */
    uint32_t failed;
};
/* Those that there are, the newest first: how many. */
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

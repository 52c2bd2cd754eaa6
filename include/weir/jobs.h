/* jobs.h - durable jobs: enqueue, lease, settle, look; queues, keys, schedules, dead letters.
 *
 *     r = weir_job_enqueue(store, &(weir_job_spec){.queue = "mail", .kind = "welcome",
 *                          .payload = text, .payload_bytes = bytes, .idempotent = WEIR_YES,
 *                          .retry = {.attempts_max = 5, .backoff_ms = 1000,
 *                                    .backoff_ms_max = 60000}}, &enqueued);
 *     n = weir_job_lease(store, &(weir_lease_spec){.queue = "mail", .worker = "w1", .count = 8,
 *                        .lease_ms = 30000}, jobs);
 *     r = weir_job_ack(store, jobs[0].id, jobs[0].token, "sent", 4);
 *
 * Most programs do not lease themselves: worker.h does it for them.
 *
 * A job runs at least once. A lease has a token that only rises: who comes late with an old one
 * gets -ESTALE, never a silent success. A lease that is not renewed is lost: the job is given to
 * another, or, if it is not idempotent, is a dead letter. What has failed for good is kept with
 * its errors (weir_dead_*) until somebody acts on it or dead_ms are over.
 *
 * Owner: a queue belongs to its store. Lifetime: a job is kept until its end and some time
 * longer. Backpressure: depth and overflow of the queue. Failure: the job's retry policy, then the
 * dead letters.
 *
 * All calls suspend (the reply gate of store.h) and need a deadline unless they say otherwise.
 * Cancel: before the decision nothing moved; while it waits for the disk the outcome is unknown, as
 * for anybody whose connection breaks: ask again with the same idempotency key or token.
 * Errors of all of them: what the store has stopped with, WEIR_ECLOSED, WEIR_ECANCELED,
 * WEIR_ETIMEDOUT, WEIR_ENOTASK, -ENOMEM, -ENOSPC (the disk is full), and WEIR_EREFUSED or -EINVAL
 * for what contradicts itself, with a sentence (weir_why).
 * Times are milliseconds since 1970. Strings and bytes given are borrowed for the call.
 * Threads: tasks of the store's runtime, on any worker.
 */
#ifndef WEIR_JOBS_H
#define WEIR_JOBS_H

#include <weir/defs.h>
#include <weir/error.h>
#include <weir/store.h>

WEIR_BEGIN

#define WEIR_JOB_NAME_BYTES_MAX 200 /* of a queue, kind, key, tag, class of errors */
#define WEIR_JOB_LIMIT_KEYS_MAX 4
#define WEIR_JOB_NEVER_MAX 4
#define WEIR_JOB_PRIORITY_MAX 31
#define WEIR_JOB_ERRORS_KEPT 64   /* of a job: of its last attempts */
#define WEIR_JOB_LEASE_MAX 1024   /* jobs of one lease call */
#define WEIR_JOB_ENQUEUE_MAX 1024 /* jobs of one enqueue call */
#define WEIR_JOB_SETTLE_MAX 1024  /* leases of one settle call */
#define WEIR_JOB_THEN_MAX 256     /* jobs that follow from one settlement */
#define WEIR_JOB_RENEW_MAX 64
#define WEIR_COMMIT_SETTLE_MAX 32 /* settlements of one commit: they share a record */
#define WEIR_JOB_LEASE_MS_MAX (24 * 3600 * 1000LL)

enum weir_job_state {
    WEIR_JOB_NONE = 0,
    WEIR_JOB_SCHEDULED, /* waits for a time: its first, its next attempt's */
    WEIR_JOB_HELD,      /* waits for others: its predecessor in order, its batch */
    WEIR_JOB_READY,
    WEIR_JOB_BLOCKED, /* waits for one of its limit keys */
    WEIR_JOB_LEASED,
    WEIR_JOB_DONE,
    WEIR_JOB_DEAD,
    WEIR_JOB_CANCELLED,
    WEIR_JOB_EXPIRED,
};
/* WEIR_JOB_STATE_BIT - a state in a set of states: filters, unique_states. */
#define WEIR_JOB_STATE_BIT(state) (1u << (state))

/* weir_job_state_name - "ready", ... Never suspends; any thread. */
WEIR_API const char *weir_job_state_name(enum weir_job_state state);

/* What has to be said, and has no default. */
enum weir_answer { WEIR_ANSWER_UNSET = 0, WEIR_NO, WEIR_YES };

/* Retries of a job. Full jitter is on unless it is switched off. */
typedef struct weir_job_retry {
    uint16_t attempts_max;   /* 0 counts as 1; more only if it is idempotent */
    uint32_t backoff_ms;     /* before the second; doubles; must be said with more */
    uint32_t backoff_ms_max; /* likewise */
    bool no_jitter;
    const char *never[WEIR_JOB_NEVER_MAX]; /* errors of these classes are not tried again */
} weir_job_retry;

/* When a job that gathers a batch runs: when all members have ended, or only if all are done; in
 * the second case another end of a member makes it a dead letter. */
enum weir_gathers { WEIR_GATHERS_NOTHING = 0, WEIR_WHEN_ENDED, WEIR_WHEN_DONE };

/* queue, kind and idempotent must be said. */
typedef struct weir_job_spec {
    const char *queue;
    const char *kind;
    uint32_t version; /* of the payload's schema */
    const void *payload;
    size_t payload_bytes;
    enum weir_answer idempotent; /* may it be begun twice? */
    weir_job_retry retry;
    uint8_t priority;    /* to WEIR_JOB_PRIORITY_MAX: more is sooner */
    int64_t run_at_ms;   /* 0: now */
    int64_t delay_ms;    /* from now; not with run_at_ms */
    int64_t expires_ms;  /* not begun by then: expired; 0: never */
    uint32_t timeout_ms; /* of one attempt, however often it is renewed; 0: none */
    const char *unique_key;
    int64_t unique_ms;      /* from its enqueueing on; 0: as long as it is there */
    uint32_t unique_states; /* bits; 0: all that have not ended */
    const char *idempotency_key;
    int64_t idempotency_ms; /* required with the key */
    const char *limit_keys[WEIR_JOB_LIMIT_KEYS_MAX];
    const char *fairness_key;
    const char *order_key;
    const char *tags;  /* as they are */
    const char *trace; /* W3C traceparent, at most 63 bytes; default: the calling task's, if any */
    uint64_t batch;    /* the job that gathers it; 0: none */
    enum weir_gathers gathers;
    enum weir_durability durability; /* default: the store's */
} weir_job_spec;

/* weir_job_spec_init - set every member to "not said". */
static inline void weir_job_spec_init(weir_job_spec *spec)
{
    memset(spec, 0, sizeof *spec);
}

typedef struct weir_enqueued {
    uint64_t id;
    bool duplicate; /* `id` is that of a job with the same unique or idempotency key */
    enum weir_durability durability; /* what it has got */
} weir_enqueued;

/* weir_job_enqueue(store, &spec, &enqueued) - a new job. Waits for room in a queue whose overflow
 * is WEIR_WAIT. Errors: WEIR_EOVERLOAD (the queue is full), WEIR_ESTOPPING (it is drained),
 * -ENOBUFS (memory_bytes_max), -EMSGSIZE (payload). */
WEIR_SUSPENDS int weir_job_enqueue_sized(weir_store *store, size_t spec_bytes,
                                         const weir_job_spec *spec, weir_enqueued *ret_enqueued);
#define weir_job_enqueue(store, ...) \
    weir_job_enqueue_sized((store), sizeof(weir_job_spec), __VA_ARGS__)

/* weir_job_enqueue_all - up to WEIR_JOB_ENQUEUE_MAX jobs, all or none, in one record. Their
 * durability is that of the first. `ret_enqueued` has `count` elements. Does not wait for room in
 * queues. Errors: as weir_job_enqueue; -EMSGSIZE if together they are longer than a record, which
 * 1024 jobs of 1 KiB with short names are not. */
WEIR_SUSPENDS int weir_job_enqueue_all_sized(weir_store *store, size_t spec_bytes,
                                             const weir_job_spec *specs, size_t count,
                                             weir_enqueued *ret_enqueued);
#define weir_job_enqueue_all(store, ...) \
    weir_job_enqueue_all_sized((store), sizeof(weir_job_spec), __VA_ARGS__)

/* ---- Leases ---- */

typedef struct weir_job_kind {
    const char *name;
    uint32_t version_min;
    uint32_t version_max; /* 0 counts as version_min */
} weir_job_kind;

/* queue, worker, count and lease_ms must be said. */
typedef struct weir_lease_spec {
    const char *queue;
    const char *worker;              /* whose orders are told when it renews (weir_worker_order) */
    const weir_job_kind *kinds;      /* what it knows; other jobs are left for others */
    size_t kind_count;               /* 0: all there are */
    size_t count;                    /* at most, to WEIR_JOB_LEASE_MAX; fewer are no error */
    int64_t lease_ms;                /* to WEIR_JOB_LEASE_MS_MAX */
    bool at_once;                    /* do not wait for a job: 0 if there is none */
    enum weir_durability durability; /* default: the store's */
} weir_lease_spec;

/* weir_lease_spec_init - set every member to "not said". */
static inline void weir_lease_spec_init(weir_lease_spec *spec)
{
    memset(spec, 0, sizeof *spec);
}

/* A job as its worker has it. Its memory is given back with weir_job_free. */
typedef struct weir_job {
    uint64_t id;
    uint64_t token;
    const char *queue;
    const char *kind;
    uint32_t version;
    const void *payload;
    size_t payload_bytes;
    const char *trace; /* "": none */
    unsigned run;      /* how often it was begun, this time included */
    unsigned attempt;  /* of attempts_max */
    unsigned attempts_max;
    uint8_t priority;
    bool idempotent; /* may be begun again */
    int64_t created_ms;
    int64_t lease_until_ms;
    uint32_t timeout_ms; /* of this attempt, however often it is renewed; 0: none */
    void *memory_;
} weir_job;

/* weir_job_lease(store, &spec, jobs) - up to spec.count jobs; waits for the first one, unless
 * at_once. Returns how many. Takes on work: WEIR_ESTOPPING once the caller's scope is stopping, or
 * its worker was told to be quiet or to end. Cancel while it waits for a job: nothing moved. */
WEIR_SUSPENDS int weir_job_lease_sized(weir_store *store, size_t spec_bytes,
                                       const weir_lease_spec *spec, weir_job *ret_jobs);
#define weir_job_lease(store, ...) \
    weir_job_lease_sized((store), sizeof(weir_lease_spec), __VA_ARGS__)

/* weir_job_free - give back what the members point to; the lease is another matter. Takes NULL.
 * Never suspends; any thread. */
WEIR_API void weir_job_free(weir_job *job);

/* Bits of what a worker is told when it renews. */
enum weir_orders {
    WEIR_GO_ON = 0,
    WEIR_GO_CANCELLED = 1, /* stop this job */
    WEIR_GO_QUIET = 2,     /* take on no more */
    WEIR_GO_END = 4,       /* release what you have, and end */
};

typedef struct weir_renewed {
    int64_t lease_until_ms;
    unsigned orders; /* bits of enum weir_orders */
} weir_renewed;

/* weir_job_renew - the heartbeat: the lease lasts lease_ms from now. `worker` may be NULL. Errors:
 * -ESTALE (it is not, or no longer, the lease's token), -ENOENT. */
WEIR_SUSPENDS int weir_job_renew(weir_store *store, uint64_t id, uint64_t token, const char *worker,
                                 int64_t lease_ms, weir_renewed *ret_renewed);

/* One of many leases that are renewed together. id and token must be said. */
typedef struct weir_renewal {
    uint64_t id;
    uint64_t token;
    int ret_error; /* 0: renewed; -ESTALE, -ENOENT, -ENOMEM: it is not */
    weir_renewed ret_renewed;
} weir_renewal;

/* weir_job_renew_all - the heartbeat of a worker with many jobs: up to WEIR_JOB_RENEW_MAX leases,
 * in one record, which wait for the disk once. Each is renewed or not by itself: ret_error. Returns
 * how many were. */
WEIR_SUSPENDS int weir_job_renew_all_sized(weir_store *store, size_t renewal_bytes,
                                           weir_renewal *renewals, size_t count, const char *worker,
                                           int64_t lease_ms);
#define weir_job_renew_all(store, renewals, count, worker, lease_ms)                       \
    weir_job_renew_all_sized((store), sizeof(weir_renewal), (renewals), (count), (worker), \
                             (lease_ms))

/* weir_job_progress - a number of the job's own, shown while it runs. Errors: -ESTALE, -ENOENT. */
WEIR_SUSPENDS int weir_job_progress(weir_store *store, uint64_t id, uint64_t token,
                                    uint32_t progress);

/* What becomes of a leased job. */
enum weir_settle {
    WEIR_SETTLE_UNSET = 0,
    WEIR_SETTLE_ACK,     /* done, with a result */
    WEIR_SETTLE_FAIL,    /* tried again as its policy says, or dead */
    WEIR_SETTLE_DEAD,    /* dead, whatever its policy says */
    WEIR_SETTLE_RELEASE, /* given back: the attempt does not count; with delay_ms: snoozed */
};

/* id, token and how must be said. */
typedef struct weir_settlement {
    uint64_t id;
    uint64_t token;
    enum weir_settle how;
    const void *result; /* with ACK */
    size_t result_bytes;
    const char *error_class;   /* with FAIL and DEAD */
    const char *error_message; /* likewise; as much as fits is kept */
    int64_t delay_ms; /* before the next attempt; negative: as its policy says; 0: at once */
    const weir_job_spec *then; /* jobs that are enqueued if and only if this is settled */
    size_t then_count;         /* to WEIR_JOB_THEN_MAX */
    uint64_t *ret_then_ids;    /* of these; may be NULL */
    int ret_error; /* 0: settled; -ESTALE, -ENOENT, or why a `then` was refused: then it is not */
    enum weir_job_state ret_state;   /* what it is in now */
    enum weir_durability durability; /* default: the store's; not in a commit, which has its own */
} weir_settlement;

/* weir_job_settle - up to WEIR_JOB_SETTLE_MAX leases, which wait for the disk once, as the safest
 * of them asks for. Each is settled, with all its `then`, or not at all: ret_error. A `then` is as
 * safe as its settlement, whatever it asks for itself. It is enqueued while the job is still
 * leased: one with the same unique key is a duplicate of it. Returns how many were settled; an
 * error only if none was, or if it is not known to be as safe. */
WEIR_SUSPENDS int weir_job_settle_sized(weir_store *store, size_t settlement_bytes,
                                        weir_settlement *settlements, size_t count);
#define weir_job_settle(store, settlements, count) \
    weir_job_settle_sized((store), sizeof(weir_settlement), (settlements), (count))

/* weir_job_ack, weir_job_fail and weir_job_release have the store's durability; weir_job_settle
 * takes another. */

/* weir_job_ack - done. Errors: -ESTALE, -ENOENT, -EMSGSIZE (result_bytes_max). */
WEIR_SUSPENDS int weir_job_ack(weir_store *store, uint64_t id, uint64_t token, const void *result,
                               size_t result_bytes);
/* weir_job_fail - an attempt has failed. delay_ms as above. Returns the job's state. */
WEIR_SUSPENDS int weir_job_fail(weir_store *store, uint64_t id, uint64_t token,
                                const char *error_class, const char *error_message,
                                int64_t delay_ms);
/* weir_job_release - given back unbegun, or to be begun again in delay_ms. That it may be begun
 * again is the caller's word, also of a job that is not idempotent. */
WEIR_SUSPENDS int weir_job_release(weir_store *store, uint64_t id, uint64_t token,
                                   int64_t delay_ms);

/* New jobs and ends of leases that belong together. At least one of them must be said. */
typedef struct weir_commit_spec {
    const weir_job_spec *jobs; /* to WEIR_JOB_ENQUEUE_MAX; each one of this version's size */
    size_t job_count;
    weir_settlement *settlements; /* to WEIR_COMMIT_SETTLE_MAX; without `then` */
    size_t settlement_count;
    weir_enqueued *ret_enqueued;     /* of the jobs; may be NULL */
    enum weir_durability durability; /* default: the store's */
} weir_commit_spec;

/* weir_commit(store, &spec) - all of it in one record, or nothing: the first job that is refused,
 * or the first lease that is not, or no longer, its token's, refuses all; its settlement has
 * ret_error. Does not wait for room in queues. Errors: as weir_job_enqueue, -ESTALE, -ENOENT,
 * -EMSGSIZE (more than one record holds, which the most jobs of 100 bytes and the most settlements
 * are not). */
WEIR_SUSPENDS int weir_commit_sized(weir_store *store, size_t spec_bytes,
                                    const weir_commit_spec *spec);
#define weir_commit(store, ...) weir_commit_sized((store), sizeof(weir_commit_spec), __VA_ARGS__)

/* weir_job_cancel - a job that waits is cancelled; the worker of one that runs is told when it
 * renews. Returns WEIR_JOB_CANCELLED or WEIR_JOB_LEASED. Errors: -ENOENT, -EBUSY (it has ended). */
WEIR_SUSPENDS int weir_job_cancel(weir_store *store, uint64_t id);

/* weir_batch_seal - no more members come: from now on the job that gathers the batch waits for
 * those that there are. Returns its state. Errors: -ENOENT (also: it is sealed). */
WEIR_SUSPENDS int weir_batch_seal(weir_store *store, uint64_t id);

/* ---- Looking ---- */

/* What an attempt has failed with. */
typedef struct weir_job_error {
    unsigned run;
    int64_t at_ms;
    const char *error_class;
    const char *message;
} weir_job_error;

/* All there is to know of a job but its bytes. Its memory is given back with weir_job_info_free. */
typedef struct weir_job_info {
    uint64_t id;
    enum weir_job_state state;
    const char *queue;
    const char *kind;
    uint32_t version;
    uint8_t priority;
    unsigned run, attempt, attempts_max;
    size_t payload_bytes;
    size_t result_bytes;
    uint32_t progress;
    int64_t created_ms, started_ms;
    int64_t when_ms; /* by state: run at, lease until, kept until */
    int64_t expires_ms;
    bool cancel_asked;
    uint64_t batch;
    uint32_t members, members_left, members_not_done; /* of the batch that it gathers */
    const char *tags, *unique_key, *idempotency_key, *fairness_key, *order_key; /* "": none */
    const char *limit_keys[WEIR_JOB_LIMIT_KEYS_MAX];                            /* likewise */
    const char *blocked_on;
    const weir_job_error *errors; /* of its last attempts, oldest first */
    size_t error_count;
    void *memory_;
} weir_job_info;

/* weir_job_get - what it is now. Errors: -ENOENT. */
WEIR_SUSPENDS int weir_job_get(weir_store *store, uint64_t id, weir_job_info *ret_info);
/* weir_job_info_free - give back what the members point to. Takes NULL. Never suspends. */
WEIR_API void weir_job_info_free(weir_job_info *info);

/* weir_job_wait - until it has ended. Returns its state then. Cancel: nothing moved. Errors:
 * -ENOENT (also: forgotten meanwhile). */
WEIR_SUSPENDS int weir_job_wait(weir_store *store, uint64_t id);

/* weir_job_payload, weir_job_result_read - its bytes, as many as fit; returns how many there are.
 * Errors: -ENOENT, -EBADMSG (damaged on disk), errors of the disk. */
WEIR_SUSPENDS int weir_job_payload(weir_store *store, uint64_t id, void *bytes, size_t bytes_max);
WEIR_SUSPENDS int weir_job_result_read(weir_store *store, uint64_t id, void *bytes,
                                       size_t bytes_max);

/* Which jobs: all that is said must hold. `states` must be said. */
typedef struct weir_job_filter {
    const char *queue; /* NULL: all */
    uint32_t states;   /* bits */
    const char *kind;
    const char *tags;        /* exactly these */
    const char *error_class; /* of its last error */
    bool queue_prefix;       /* names of queues that begin so */
    bool kind_prefix;
    const char *tag;    /* one of its tags, which blanks and commas keep apart */
    const char *key;    /* one of its keys, of whatever sort */
    uint64_t id, batch; /* 0: any */
    int64_t created_from_ms, created_before_ms; /* 0: any */
    uint8_t priority_min, priority_below;       /* below 0: any */
    uint16_t attempts_min, attempts_below;      /* likewise */
} weir_job_filter;

/* weir_job_list - ids of jobs that the filter finds, in no order, at most ids_max; looks at no more
 * than scan_max rows. *cursor begins with 0 and is 0 again at the end. Returns how many. */
WEIR_SUSPENDS int weir_job_list(weir_store *store, const weir_job_filter *filter, uint32_t *cursor,
                                uint32_t scan_max, uint64_t *ret_ids, size_t ids_max,
                                uint32_t *ret_scanned);

/* weir_job_count - how many the filter finds now. Looks at every job. */
WEIR_SUSPENDS int64_t weir_job_count(weir_store *store, const weir_job_filter *filter);

/* What is changed of a job that waits; what is not said stays. */
typedef struct weir_job_patch {
    bool has_priority, has_run_at, has_expires;
    uint8_t priority;
    int64_t run_at_ms;  /* 0: now */
    int64_t expires_ms; /* 0: never */
} weir_job_patch;

/* weir_job_patch_set - change a job that is scheduled, ready or blocked; it goes to the end of
 * those that wait beside it. Returns its state. Errors: -ENOENT, -EBUSY (it does not wait),
 * -EINVAL. */
WEIR_SUSPENDS int weir_job_patch_set(weir_store *store, uint64_t id, const weir_job_patch *patch);

/* ---- Queues and keys ---- */

typedef struct weir_job_rate {
    uint32_t count; /* jobs begun within period_ms; 0: no limit */
    uint32_t period_ms;
    uint32_t burst; /* 0 counts as 1 */
} weir_job_rate;

/* name, depth_max and overflow must be said. */
typedef struct weir_queue_spec {
    const char *name;
    uint32_t depth_max;          /* of jobs that wait */
    enum weir_overflow overflow; /* WEIR_REJECT or WEIR_WAIT: nothing is dropped for room */
    uint32_t concurrency;        /* jobs that run at once; 0: no limit */
    weir_job_rate rate;
    uint32_t latency_target_ms; /* how long a job should wait; shown beside what is measured */
    bool paused;                /* nothing is leased */
    bool draining;              /* nothing is enqueued; what there is is worked off */
} weir_queue_spec;

/* weir_queue_spec_init - set every member to "not said". */
static inline void weir_queue_spec_init(weir_queue_spec *spec)
{
    memset(spec, 0, sizeof *spec);
}

/* weir_queue_set(store, &spec) - what holds for the queue from now on, also after a restart. */
WEIR_SUSPENDS int weir_queue_set_sized(weir_store *store, size_t spec_bytes,
                                       const weir_queue_spec *spec);
#define weir_queue_set(store, ...) \
    weir_queue_set_sized((store), sizeof(weir_queue_spec), __VA_ARGS__)

/* weir_queue_pause - nothing is leased from it. Errors: -ENOENT (no such queue). */
WEIR_SUSPENDS int weir_queue_pause(weir_store *store, const char *name);
/* weir_queue_drain - nothing is enqueued; what there is is worked off. Errors: -ENOENT. */
WEIR_SUSPENDS int weir_queue_drain(weir_store *store, const char *name);
/* weir_queue_resume - the end of both. Errors: -ENOENT. */
WEIR_SUSPENDS int weir_queue_resume(weir_store *store, const char *name);

typedef struct weir_queue_figures {
    char name[WEIR_JOB_NAME_BYTES_MAX + 1];
    weir_queue_spec spec;  /* in force; its name is the one above */
    uint64_t by_state[10]; /* jobs, by enum weir_job_state */
    uint64_t unknown;      /* ready, of kinds that no worker has asked for since the store opened */
    int64_t oldest_ms;     /* how long the oldest ready job has waited; 0: none */
    /* Since the store was opened. */
    uint64_t enqueued, started, done, failed, died, expired, cancelled, rejected, lost;
} weir_queue_figures;

/* weir_queue_get - a queue's settings and figures. Errors: -ENOENT. */
WEIR_SUSPENDS int weir_queue_get(weir_store *store, const char *name,
                                 weir_queue_figures *ret_figures);
/* weir_queue_next - all queues, one by one; *cursor begins with 0. Returns 1, or 0: no more. */
WEIR_SUSPENDS int weir_queue_next(weir_store *store, uint32_t *cursor,
                                  weir_queue_figures *ret_figures);

/* What holds for a limit key or a fairness key, in all queues. */
typedef struct weir_key_spec {
    const char *name;
    uint32_t concurrency; /* 0: no limit */
    weir_job_rate rate;
    uint32_t weight; /* as a fairness key; 0 counts as 1 */
} weir_key_spec;

/* weir_key_set(store, &spec) - from now on; a key that says nothing is forgotten in time. */
WEIR_SUSPENDS int weir_key_set_sized(weir_store *store, size_t spec_bytes,
                                     const weir_key_spec *spec);
#define weir_key_set(store, ...) weir_key_set_sized((store), sizeof(weir_key_spec), __VA_ARGS__)

/* ---- Workers ---- */

/* weir_worker_order - what a worker is told from its next heartbeat on: bits of WEIR_GO_QUIET and
 * WEIR_GO_END, or WEIR_GO_ON. Leases that it waits for end with WEIR_ESTOPPING. Not kept over a
 * restart of the store. Errors: WEIR_EOVERLOAD (more than 4096 workers have orders). Never waits
 * for the disk. */
WEIR_SUSPENDS int weir_worker_order(weir_store *store, const char *worker, unsigned orders);
/* weir_worker_orders - what it is told now: bits of enum weir_orders. Never suspends. */
WEIR_API unsigned weir_worker_orders(weir_store *store, const char *worker);

/* ---- Schedules ---- */

/* While the job of the time before has not ended. */
enum weir_overlap { WEIR_OVERLAP_UNSET = 0, WEIR_OVERLAP_ALLOW, WEIR_OVERLAP_SKIP };
/* For times that passed while the store was closed: none, one for all of them, or all. */
enum weir_catch_up {
    WEIR_CATCH_UP_UNSET = 0,
    WEIR_CATCH_UP_NONE,
    WEIR_CATCH_UP_ONE,
    WEIR_CATCH_UP_ALL
};

/* name, cron, overlap, catch_up and job must be said. */
typedef struct weir_schedule_spec {
    const char *name;
    const char *cron; /* "m h dom mon dow", "@daily", ...: docs/guide/jobs.md */
    const char *zone; /* "Europe/Vienna", of the store's zones; default: UTC */
    enum weir_overlap overlap;
    enum weir_catch_up catch_up;
    bool paused;
    weir_job_spec job; /* without times, idempotency key and batch */
} weir_schedule_spec;

/* weir_schedule_spec_init - set every member to "not said". */
static inline void weir_schedule_spec_init(weir_schedule_spec *spec)
{
    memset(spec, 0, sizeof *spec);
}

/* weir_schedule_set(store, &spec) - a new one, or in place of the one with the name. Errors:
 * -EINVAL (weir_why names field and character), -ENOENT (no such zone). */
WEIR_SUSPENDS int weir_schedule_set_sized(weir_store *store, size_t spec_bytes,
                                          const weir_schedule_spec *spec);
#define weir_schedule_set(store, ...) \
    weir_schedule_set_sized((store), sizeof(weir_schedule_spec), __VA_ARGS__)
/* weir_schedule_drop - it does not come any more. Errors: -ENOENT. */
WEIR_SUSPENDS int weir_schedule_drop(weir_store *store, const char *name);

typedef struct weir_schedule_info {
    char name[WEIR_JOB_NAME_BYTES_MAX + 1];
    char cron[WEIR_JOB_NAME_BYTES_MAX + 1];
    char zone[WEIR_JOB_NAME_BYTES_MAX + 1];
    char queue[WEIR_JOB_NAME_BYTES_MAX + 1]; /* of its jobs, as the kind */
    char kind[WEIR_JOB_NAME_BYTES_MAX + 1];
    enum weir_overlap overlap;
    enum weir_catch_up catch_up;
    int64_t next_ms; /* 0: it does not come */
    uint64_t last_id;
    bool paused;
    bool zone_missing; /* it does not come, and catches up with nothing later */
    uint64_t skipped;  /* since the store was opened: overlaps, and jobs that were refused */
} weir_schedule_info;

/* weir_schedule_next - all of them, one by one; *cursor begins with 0. Returns 1, or 0. */
WEIR_SUSPENDS int weir_schedule_next(weir_store *store, uint32_t *cursor,
                                     weir_schedule_info *ret_info);

/* ---- Dead letters, and many jobs at once ---- */

/* weir_dead_list - ids of a queue's dead letters above `after`, rising. Returns how many. Their
 * errors: weir_job_get. */
WEIR_SUSPENDS int weir_dead_list(weir_store *store, const char *queue, uint64_t after,
                                 uint64_t *ret_ids, size_t ids_max);
/* weir_dead_replay - a dead letter becomes a job again, with the same id, its attempts begin anew;
 * with another payload if that is not NULL. It may go beyond its queue's depth_max, as it is no new
 * work. Returns its state. Errors: -ENOENT, -EBUSY (it is no dead letter), -EINVAL (it has
 * expired), -EEXIST (its unique key is taken), -EMSGSIZE (payload). */
WEIR_SUSPENDS int weir_dead_replay(weir_store *store, uint64_t id, const void *payload,
                                   size_t payload_bytes);
/* weir_job_purge - forget a job that has ended. Errors: -ENOENT, -EBUSY. */
WEIR_SUSPENDS int weir_job_purge(weir_store *store, uint64_t id);

/* What is done to each job of a set. */
enum weir_bulk_action {
    WEIR_BULK_UNSET = 0,
    WEIR_BULK_REPLAY,
    WEIR_BULK_PURGE,
    WEIR_BULK_CANCEL,
};
#define WEIR_BULK_MAX 100000
#define WEIR_BULK_ANY UINT64_MAX
#define WEIR_BULKS_DONE_MAX 16 /* of the sets that are done, so many are kept */

/* weir_bulk_begin - do that to all that the filter finds now, at most WEIR_BULK_MAX: their ids are
 * frozen and worked off in the background, also after a restart. `expected` is how many the caller
 * thinks there are, or WEIR_BULK_ANY. Returns how many. Errors: -EEXIST (there are another number:
 * weir_why says how many), -E2BIG (more than WEIR_BULK_MAX, or than one record holds, if their ids
 * are far apart: then none is touched, and the filter has to find fewer). */
WEIR_SUSPENDS int weir_bulk_begin(weir_store *store, const weir_job_filter *filter,
                                  enum weir_bulk_action action, uint64_t expected,
                                  uint64_t *ret_id);

/* weir_bulk_begin_ids - the same for ids, which rise. Errors: -EINVAL, -E2BIG. */
WEIR_SUSPENDS int weir_bulk_begin_ids(weir_store *store, const uint64_t *ids, size_t count,
                                      enum weir_bulk_action action, uint64_t *ret_id);

typedef struct weir_bulk_info {
    uint64_t id;
    enum weir_bulk_action action;
    uint32_t count;
    uint32_t done; /* the failed ones included */
    uint32_t failed;
} weir_bulk_info;

/* weir_bulk_list - those that there are, the newest first: all that are not done, and the last
 * WEIR_BULKS_DONE_MAX that are. Returns how many. */
WEIR_SUSPENDS int weir_bulk_list(weir_store *store, weir_bulk_info *ret_bulks, size_t bulks_max);
/* weir_bulk_drop - forget it; if it is not done, it stops there. Errors: -ENOENT. */
WEIR_SUSPENDS int weir_bulk_drop(weir_store *store, uint64_t id);

WEIR_END

#endif

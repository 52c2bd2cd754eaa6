/* store_jobs.h - a store of jobs on a host that loses power, whose disk fails, whose clock jumps.
 *
 * Producers, workers and an administrator use the store on that host, by its public calls. What
 * they were told is noted outside of it, at once, and outlives it; the store is held to that:
 *
 * 1. Nothing that was acknowledged as synced is lost: jobs, their ends, settings of queues.
 * 2. No id and no token is given twice, whatever was lost. Tokens of a job rise.
 * 3. No two leases of a job at a time; who settles with an old token is refused.
 * 4. Limits of keys and of queues hold; jobs with an order key run one after the other, in order.
 * 5. No two jobs with a unique key; an idempotency key gives the same job.
 * 6. All jobs come to an end once nothing goes wrong any more; figures are what lists say.
 * 7. What a start of the host did not find, no later one finds.
 * 8. Of a queue or a limit key no more jobs are begun than its rate allows, and none after it has
 *    expired.
 *    However often a lease is renewed, it ends with the time of the attempt.
 * 9. A job that gathers a batch runs after all members have ended, or only if all are done.
 * 10. A job that is not idempotent is begun once, unless who began it has given it back.
 */
#ifndef WEIR_TESTS_SIM_STORE_JOBS_H
#define WEIR_TESTS_SIM_STORE_JOBS_H

#include <weir/sim.h>
#include <weir/weir.h>

#include "harness/test.h"

#define CLIENTS_PATIENCE_MS INT64_C(600000)

enum {
    /* "plain"; "keyed", whose jobs have keys, and of which few run at once; "paced", with a rate;
     * "gathering", deep enough for all that gather: they take room until their batch has ended. */
    QUEUES = 4,
    KEYED = 1,
    PACED = 2,
    GATHERING = 3,
    DEPTH_OF_GATHERING = 1000,
    KEYS = 2, /* of each kind */
    WANTED_MAX = 192,
    JOBS_MAX = 320,
    TOKENS_MAX = 2048,
    QUEUE_CONCURRENCY = 2,
    RATED_KEY = 1,  /* the limit key that has a rate as well */
    RATE_COUNT = 2, /* of the paced queue and of that key, in */
    RATE_PERIOD_MS = 40,
    RATE_BURST = 2,
    RATES = 2,
    TIMEOUT_MS = 120, /* of attempts, for some */
    LEASE_MS_MAX = 200,
    NO_KEY = -1,
    BY_SCHEDULE = -2,
    WANTED_UNKNOWN = -1,
};

/* What somebody wants to be done. Its number is in the payload. */
struct wanted {
    int queue;
    int unique, idempotency, order, limit; /* keys */
    bool once;                             /* it is not idempotent */
    uint32_t timeout_ms;                   /* or 0 */
    int64_t expires_ms;                    /* or 0 */
    enum weir_gathers gathers;
    int batch;   /* who gathers it, or NO_KEY */
    uint64_t id; /* that was told last; 0: none */
};

/* A job that somebody was told of. */
struct job {
    uint64_t id;
    int wanted; /* or WANTED_UNKNOWN, or BY_SCHEDULE */
    bool kept;  /* a reply that waited for a sync has shown it */
    bool lost;  /* a start of the host did not find it */
    bool purge_asked, purged;
    /* Nobody knows whose it is: who enqueued it was never told, and a list has shown it. So it may
     * be one of many that were to be cancelled or purged before that, and forgotten since. */
    bool maybe_purged;
    bool changed;             /* somebody wanted it to be another: replayed, many at once */
    enum weir_job_state told; /* its end, if that was told; else 0 */
    bool over;                /* that it has ended was told, but not how */
    /* The newest lease that was told. */
    uint64_t token;
    int64_t claimed_ms, until_ms; /* by the store's clock */
    bool held;                    /* nobody has begun to settle it */
    bool synced;                  /* a power cut does not end it */
    bool begun, given_back;       /* by somebody who had it for sure; and released, perhaps */
};

/* When jobs with a rate were begun, for sure. */
struct pace {
    int64_t begun_ms[TOKENS_MAX];
    int count;
};

struct world {
    struct wanted wanted[WANTED_MAX];
    int wanted_count;
    struct job jobs[JOBS_MAX];
    int job_count;
    uint64_t tokens[TOKENS_MAX];
    int token_count;
    struct pace paces[RATES]; /* of the paced queue, and of the rated key */
    uint64_t same_id[KEYS];   /* of an idempotency key, once it was told as synced */
    /* Settings of queues, by a number in them. */
    uint32_t setting_asked[QUEUES], setting_told[QUEUES];
    bool keys_told;
    /* Many were changed at once: what was wanted by then may be among them, also if nobody had
     * been told of its job. */
    int changed_below, purged_below;
    enum weir_bulk_action changing; /* the call that is under way, or was at a power cut */
    int settled, replayed, jumps;   /* how much of everything there was */
    int gathered, handled;
};
extern struct world world;
extern const char *const queue_names[QUEUES];

/* Bytes of a payload, at most; and whether few of the jobs that have ended are kept. */
extern size_t payload_bytes;
extern bool forgets;

void world_begin(void);
/* The next one, by choice. NULL: there are enough. */
struct wanted *world_want(void);
struct wanted *world_want_in(int queue);
int world_number(const struct wanted *wanted);
/* As a job; `payload` has room for so many bytes. */
enum { PAYLOAD_BYTES_MAX = 12 * 1024 };
void world_spec(const struct wanted *wanted, unsigned char *payload, weir_job_spec *ret_spec);

/* The job with that id; made if nobody was told of it before. */
struct job *world_job(uint64_t id);
const struct wanted *world_wanted(const struct job *job); /* or NULL */
/* Somebody may have had it forgotten. */
bool world_may_be_gone(const struct job *job);

/* ---- What was told ---- */

void world_enqueued(struct wanted *wanted, const weir_enqueued *told);
/* `now_ms`: of the store's clock, when that was told. */
struct job *world_leased(const weir_job *leased, int64_t lease_ms, bool synced, int64_t now_ms);
/* Before and after a call that settles; `how` of enum weir_settle, r its state or error. */
bool world_settle_asked(struct job *job, uint64_t token);
/* Before a release: who begins it next does no wrong. */
void world_release_asked(struct job *job, uint64_t token);
/* A lease was renewed. */
void world_renewed(struct job *job, uint64_t token, bool was_newest, const weir_renewed *renewed);
/* Before it may come to its end: it may be forgotten then. */
void world_end_asked(struct job *job);
/* Before and after a call that changes many; after a start of the host, too. */
void world_change_asked(enum weir_bulk_action action);
void world_change_told(void);
void world_settled(struct job *job, uint64_t token, int how, bool was_newest, int r);
void world_ended(struct job *job, enum weir_job_state state);

/* ---- Looking (store_jobs_look.c) ---- */

/* All that was told is there. 0, or an error of the store. */
int look_at_all(weir_store *store);
/* Figures of queues are what lists of their jobs say. Nobody else works. */
int look_at_figures(weir_store *store);
/* Those before it with the same order key have ended. */
int look_at_order(weir_store *store, const struct job *job);
/* Those with the same unique key and lower ids have ended. */
int look_at_unique(weir_store *store, const struct job *job);
/* The members of its batch have ended, and are done if that is what it waits for. */
int look_at_batch(weir_store *store, const struct job *job);
/* 1: all jobs have ended; 0: *ret_job has not, which is in *ret_state. */
int look_for_ends(weir_store *store, uint64_t *ret_id, enum weir_job_state *ret_state);

/* ---- Clients (store_jobs_clients.c) ---- */

/* What the store's clock has shown. */
int64_t clients_now_ms(weir_store *store);
/* Enqueue it; its durability and its patience are by choice. */
int clients_enqueue(weir_store *store, struct wanted *wanted);
/* Several at once, all or none. */
int clients_enqueue_some(weir_store *store);
/* One that gathers, its members, and the seal. */
int clients_enqueue_batch(weir_store *store);
/* A worker (weir/worker.h) of the plain queue. `calm`: nothing but a jump of the clock takes a
 * lease away that its heartbeats renew. It looks at *keep_draining. */
int clients_open_worker(weir_store *store, weir_scope *scope, bool calm, const bool *keep_draining);
enum weir_durability clients_durability(void); /* by choice */

/* ---- The program (store_jobs.c) ---- */

void store_jobs_begin(void *arg);       /* of a weir_sim_spec: small payloads */
void store_jobs_begin_large(void *arg); /* ... or large ones: much is compacted */
void store_jobs_begin_many(void *arg);  /* ... and so many that who enqueues waits for that */
void store_jobs_begin_calm(void *arg);  /* small ones, and nothing goes wrong */
void store_jobs_begin_wide(void *arg);  /* small ones, on two workers of the runtime */
int store_jobs_program(void *arg);

#endif

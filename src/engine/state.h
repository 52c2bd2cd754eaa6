/* state.h - the rows of the engine, and what keeps them in order.
 *
 * What is written into records ("said") and what follows from it ("derived"): a row's said
 * members are only changed by apply.c, from an operation that is in a record. Derived members are
 * kept by place.c (lanes, groups, gates), by apply.c (trees, counts) and by atom.c (names).
 *
 *     queue ── stage (kind, version) ── lane ── jobs that are ready, first come first
 *                │                       └ group (queue, priority, fairness key): turn, deficit
 *                └ gate (limit key) ── lane ── jobs that are blocked by that key
 *                                        └ group (gate, priority, fairness key): turn, deficit
 */
#ifndef WEIR_ENGINE_STATE_H
#define WEIR_ENGINE_STATE_H

#include "engine/codec.h"
#include "engine/cron.h"
#include "engine/engine.h"
#include "engine/tree.h"

/* ---- Names ---- */

enum atom_type {
    ATOM_QUEUE,
    ATOM_STAGE,
    ATOM_KEY,
    ATOM_CHAIN,
    ATOM_POLICY,
    ATOM_SCHEDULE,
    ATOM_TYPES
};

/* What a row with a name begins with. It goes when nobody refers to it. */
struct atom {
    char *text;
    uint32_t bytes;
    uint32_t scope;  /* the queue of a stage or a chain */
    uint32_t number; /* the version of a stage */
    uint32_t refs;
};

/* Jobs of a queue that have ended, and how many are kept: history.c. */
struct history {
    struct tree_ends ends; /* by when_ms, then id */
    uint32_t count;
    int64_t first_ms; /* when the first one is forgotten; while there is one, in a tree: */
    uint64_t first_id;
    struct tree_links timer;
};

struct queue {
    struct atom atom;
    bool configured; /* said, as the rest of this block */
    bool paused;
    bool draining;
    bool waits; /* ENGINE_WAIT */
    uint32_t depth_max;
    uint32_t concurrency;
    uint32_t latency_target_ms;
    struct engine_rate rate;
    int64_t tat; /* see rate.c */

    uint32_t stages; /* first of the list */
    uint32_t dead;   /* tree by id */
    struct history history;
    uint32_t by_state[ENGINE_STATES];
    uint32_t wake_next; /* in the list of queues to wake; itself: the last; 0: in none */
    int64_t opens_ms;   /* when a token comes that a claim asked for; 0: in no tree */
    struct tree_links timer;
    struct engine_figures counted; /* since it was opened */
};

struct stage {
    struct atom atom;
    uint32_t next; /* of the same queue */
    uint32_t ready;
    uint32_t priorities;                             /* bits: there are lanes */
    bool known;                                      /* a worker has asked for it */
    struct tree_ends lanes[ENGINE_PRIORITY_MAX + 1]; /* of each priority by turn */
};

struct key {
    struct atom atom;
    bool configured; /* said, as the rest of this block */
    uint32_t concurrency;
    uint32_t weight;
    struct engine_rate rate;
    int64_t tat;

    uint32_t running;
    uint32_t blocked; /* jobs, over all gates */
    uint32_t gates;   /* first of the list */
    int64_t opens_ms; /* when a token comes that a blocked job waits for; 0: in no tree */
    struct tree_links timer;
};

/* Jobs with one order key in one queue: at most one of them is not held. */
struct chain {
    struct atom atom;
    uint32_t active; /* jobs that are neither held nor ended */
    uint32_t held;   /* tree by id */
};

/* What many jobs say alike. The text of the atom is its encoding. */
struct policy {
    struct atom atom;
    struct policy_text says; /* its slices are in that text */
};

struct schedule {
    struct atom atom;
    char *bytes; /* text, zone and job, one behind the other */
    uint32_t text_bytes, zone_bytes, job_bytes;
    uint8_t overlap;
    uint8_t catch_up;
    bool paused;
    int64_t next_ms;
    uint64_t last_id;

    struct tree_links timer;
    uint64_t skipped;
};

struct named_zone {
    struct named_zone *next;
    size_t bytes; /* of all of it */
    size_t name_bytes;
    char name[ENGINE_NAME_BYTES_MAX];
    struct zone zone; /* the last: its transitions are behind it */
};

struct bulk {
    struct bulk *below; /* the next older one */
    uint64_t id;
    uint8_t action;
    uint32_t next;
    uint32_t failed;
    uint32_t count;
    uint32_t kept; /* ids: all, or none once it is done */
    uint64_t ids[];
};

/* ---- Places ---- */

struct lane {
    uint32_t stage; /* of ready jobs, or ... */
    uint32_t gate;  /* ... of blocked ones; the other is 0 */
    uint32_t group;
    uint32_t group_next;
    struct tree_links links; /* among the lanes of the stage or gate: by priority, then turn */
    uint32_t parent;
    uint32_t jobs; /* tree by mark */
    uint32_t last; /* of them */
};

/* Who takes turns: a fairness key at one priority of a queue, or of a gate. */
struct group {
    uint32_t queue; /* or ... */
    uint32_t gate;  /* ... the other is 0 */
    uint32_t fair;
    uint32_t lanes;   /* list */
    uint64_t turn;    /* said: the smallest is next */
    uint32_t deficit; /* said: how many jobs it may still give in this turn */
    uint8_t priority;
};

struct gate {
    uint32_t key;
    uint32_t stage;
    uint32_t next;    /* of the same key */
    uint32_t ready;   /* jobs of the stage with this key that are ready: candidates */
    uint32_t blocked; /* and those that wait here */
    struct tree_ends lanes;
};

/* ---- Jobs ---- */

enum {
    JOB_CANCEL = 1,     /* its worker is to stop */
    JOB_GATHERS = 2,    /* held until the members of its batch have ended */
    JOB_OPEN_BATCH = 4, /* and members may still come */
    JOB_ALL_DONE = 8,   /* and it runs only if all of them are done */
    JOB_COUNTED = 16,   /* its batch has counted its end */
};

/* What few jobs have: behind it `words` (limit keys, order chain, batch, errors), then text. */
struct extra {
    uint8_t limit_count;
    uint8_t has; /* EXTRA_... */
    uint8_t unique_bytes;
    uint8_t idempotency_bytes;
    uint8_t tag_bytes;
    uint8_t reserved[3];
    uint32_t words[];
};
enum { EXTRA_CHAIN = 1, EXTRA_BATCH = 2, EXTRA_ERRORS = 4 };

struct job {
    uint64_t id;
    uint64_t position; /* of the record with its payload */
    uint64_t mark;   /* by state: number in its lane; token of the lease; position of the result */
    int64_t when_ms; /* by state: run at; lease until; kept until */
    int64_t expires_ms;
    int64_t created_ms;
    int64_t started_ms; /* of its last attempt */
    uint32_t payload_bytes;
    uint32_t stage;
    uint32_t policy;
    uint32_t fair; /* key, or 0 */
    uint32_t lane; /* derived, as the trees */
    uint32_t note; /* progress; when done, bytes of the result */
    struct tree_links timer;
    struct tree_links place; /* of a lane's, chain's or queue's tree, by state */
    struct extra *extra;
    uint16_t runs;
    uint16_t attempts;
    uint8_t state;
    uint8_t priority;
    uint8_t flags;
    uint8_t blocked_on; /* which of its limit keys */
};
_Static_assert(sizeof(struct job) <= 112, "the index costs at most 160 bytes a job");

/* A look for who stands for a key. */
enum hold { HOLD_UNIQUE, HOLD_IDEMPOTENCY, HOLDS };
struct hold_looked {
    uint64_t hash;
    bool free; /* nobody */
};

/* The names that a job refers to, as numbers. */
struct job_names {
    uint32_t stage, policy, fair, chain;
    uint32_t limits[ENGINE_LIMIT_KEYS_MAX];
    struct extra *extra;
    struct hold_looked looked[HOLDS]; /* zeroed: nobody has */
};

struct failure {
    uint32_t next;
    uint16_t run;
    uint16_t class_bytes;
    uint32_t message_bytes;
    bool beside_payload; /* in the same record: see live.c */
    int64_t at_ms;
    char *text;
};

/* Memory for the text of an error that is to come. */
struct kept_text {
    char *text; /* NULL: it was taken */
    size_t bytes;
};

enum { PENDING_POSITION_FIRST = 16 };
#define POSITION_PENDING UINT64_MAX

struct engine {
    struct memory memory;
    struct engine_config config;
    char why[240];
    char woken[ENGINE_NAME_BYTES_MAX];

    /* said */
    int64_t now_ms;
    uint64_t last_id;
    uint64_t last_token;
    uint64_t last_mark;
    uint64_t last_turn;
    uint64_t logged_id; /* the last one of a record that was logged */

    struct slab jobs;
    struct slab atoms[ATOM_TYPES];
    struct slab lanes;
    struct slab groups;
    struct slab gates;
    struct slab failures;
    struct table job_table;
    uint64_t highest_id; /* that ever was in it */
    uint64_t seen_id;    /* who was found last is mostly who is looked for next */
    uint32_t seen_job;
    struct table atom_tables[ATOM_TYPES];
    uint32_t seen_atoms[ATOM_TYPES]; /* the same for names; 0: none */
    struct table group_table;
    uint32_t seen_group; /* who was found last; 0: none */
    struct table gate_table;
    struct table holders[2]; /* of unique keys, of idempotency keys: who stands for the key */
    uint32_t keyed[2];       /* jobs that have such a key */
    uint32_t job_timers;     /* of jobs that wait and that are dead */
    struct tree_ends leases; /* of jobs that are leased */
    uint32_t history_timers; /* queues */
    uint32_t key_timers;
    uint32_t queue_timers;
    uint32_t schedule_timers;
    struct named_zone *zones;
    struct bulk *bulks;
    bool zones_changed; /* schedules may have waited for one: those after zones_at */
    uint32_t zones_at;
    uint32_t wake_first;
    uint32_t wake_last;
    uint64_t steps;
    bool follows; /* records from the log came last: what is due is not known */

    const struct job_names *found; /* of the job that is being decided */
    struct writer record;
    struct writer slice; /* of a snapshot */
    uint32_t *pending;   /* jobs whose record has no position yet */
    uint32_t pending_count;
    uint32_t pending_room;
    struct engine_hooks hooks;
    int64_t live_bytes; /* the sum of what hooks.live was told */
    unsigned moves_left;
    bool settling; /* engine_settle_begin(): commands share moves_left, all memory is there */
    struct kept_text kept_texts[ENGINE_SETTLE_MAX];
    uint32_t kept_text_count;
    size_t take_back_bytes; /* of the record, for taking back what it has enqueued: always there */
    size_t command_at;      /* where the command began in the record, and what it was given */
    size_t command_given;
};

#define SLAB_ROW(slab_, number_, type_) slab_row(slab_, number_, (sizeof(type_) + 7) / 8 * 8)

static inline struct job *job_at(const struct engine *engine, uint32_t job)
{
    return SLAB_ROW(&engine->jobs, job, struct job);
}
static inline struct queue *queue_at(const struct engine *engine, uint32_t queue)
{
    return SLAB_ROW(&engine->atoms[ATOM_QUEUE], queue, struct queue);
}
static inline struct stage *stage_at(const struct engine *engine, uint32_t stage)
{
    return SLAB_ROW(&engine->atoms[ATOM_STAGE], stage, struct stage);
}
static inline struct key *key_at(const struct engine *engine, uint32_t key)
{
    return SLAB_ROW(&engine->atoms[ATOM_KEY], key, struct key);
}
static inline struct chain *chain_at(const struct engine *engine, uint32_t chain)
{
    return SLAB_ROW(&engine->atoms[ATOM_CHAIN], chain, struct chain);
}
static inline struct policy *policy_at(const struct engine *engine, uint32_t policy)
{
    return SLAB_ROW(&engine->atoms[ATOM_POLICY], policy, struct policy);
}
static inline struct schedule *schedule_at(const struct engine *engine, uint32_t schedule)
{
    return SLAB_ROW(&engine->atoms[ATOM_SCHEDULE], schedule, struct schedule);
}
static inline struct lane *lane_at(const struct engine *engine, uint32_t lane)
{
    return SLAB_ROW(&engine->lanes, lane, struct lane);
}
static inline struct group *group_at(const struct engine *engine, uint32_t group)
{
    return SLAB_ROW(&engine->groups, group, struct group);
}
static inline struct gate *gate_at(const struct engine *engine, uint32_t gate)
{
    return SLAB_ROW(&engine->gates, gate, struct gate);
}
static inline struct queue *queue_of(const struct engine *engine, const struct job *job)
{
    return queue_at(engine, stage_at(engine, job->stage)->atom.scope);
}

/* Counts a step through links: what the scale tests look at. */
static inline void step(const void *engine)
{
    ((struct engine *)(uintptr_t)engine)->steps++;
}

/* ---- extra.c ---- */

static inline uint32_t job_limit_count(const struct job *job)
{
    return job->extra ? job->extra->limit_count : 0;
}
static inline uint32_t job_limit(const struct job *job, uint32_t i)
{
    return job->extra->words[i];
}
static inline uint32_t extra_word_count(const struct extra *extra)
{
    return extra->limit_count + (extra->has & EXTRA_CHAIN ? 1u : 0u) +
           (extra->has & EXTRA_BATCH ? 2u : 0u) + (extra->has & EXTRA_ERRORS ? 1u : 0u);
}
static inline char *extra_text(const struct extra *extra)
{
    return (char *)(uintptr_t)(extra->words + extra_word_count(extra));
}
static inline uint32_t job_chain(const struct job *job)
{
    const struct extra *extra = job->extra;
    return extra && extra->has & EXTRA_CHAIN ? extra->words[extra->limit_count] : 0;
}
static inline bool job_has_unique_key(const struct job *job)
{
    return job->extra && job->extra->unique_bytes > 0;
}
static inline bool job_has_idempotency_key(const struct job *job)
{
    return job->extra && job->extra->idempotency_bytes > 0;
}
static inline struct engine_slice job_unique_key(const struct job *job)
{
    if (!job_has_unique_key(job)) return (struct engine_slice){0};
    return (struct engine_slice){extra_text(job->extra), job->extra->unique_bytes};
}
static inline struct engine_slice job_idempotency_key(const struct job *job)
{
    if (!job_has_idempotency_key(job)) return (struct engine_slice){0};
    return (struct engine_slice){extra_text(job->extra) + job->extra->unique_bytes,
                                 job->extra->idempotency_bytes};
}
static inline struct engine_slice job_tags(const struct job *job)
{
    if (!job->extra) return (struct engine_slice){0};
    return (struct engine_slice){extra_text(job->extra) + job->extra->unique_bytes +
                                     job->extra->idempotency_bytes,
                                 job->extra->tag_bytes};
}
uint64_t job_batch_of(const struct job *job);
static inline uint64_t job_batch(const struct job *job)
{
    return job->extra && job->extra->has & EXTRA_BATCH ? job_batch_of(job) : 0;
}
uint32_t job_failures(const struct job *job);
static inline struct failure *failure_at(const struct engine *engine, uint32_t failure)
{
    return slab_at(&engine->failures, failure);
}
int extra_new(struct engine *engine, const struct op_job *op, const uint32_t *limits,
              uint32_t chain, struct extra **ret_extra);
void extra_free(struct engine *engine, struct extra *extra);
/* Remembers an error of a run; the oldest is forgotten. 0 or -ENOMEM. */
int failure_set(struct engine *engine, struct job *job, const struct op_error *op,
                uint64_t position);
/* All of them are written again with the job. */
void failures_join_payload(struct engine *engine, const struct job *job);
/* Memory for the error that this will be: 0 or -ENOMEM. */
int failure_keep(struct engine *engine, const struct engine_settle *settle);

/* ---- atom.c ---- */

size_t atom_bytes(enum atom_type type);
/* By name: an order that does not depend on who came first. */
bool atom_before(const struct atom *a, const struct atom *b);

uint32_t atom_find(const struct engine *engine, enum atom_type type, uint32_t scope,
                   uint32_t number, struct engine_slice text);
/* With one reference more; 0: no memory. */
uint32_t atom_get(struct engine *engine, enum atom_type type, uint32_t scope, uint32_t number,
                  struct engine_slice text);
void atoms_deinit(struct engine *engine);
/* Mostly it is known how large the row is: see slab_row(). */
static inline __attribute__((always_inline)) struct atom *atom_at(const struct engine *engine,
                                                                  enum atom_type type,
                                                                  uint32_t atom)
{
    if (__builtin_constant_p(type) && type == ATOM_QUEUE) return &queue_at(engine, atom)->atom;
    if (__builtin_constant_p(type) && type == ATOM_STAGE) return &stage_at(engine, atom)->atom;
    if (__builtin_constant_p(type) && type == ATOM_KEY) return &key_at(engine, atom)->atom;
    if (__builtin_constant_p(type) && type == ATOM_CHAIN) return &chain_at(engine, atom)->atom;
    if (__builtin_constant_p(type) && type == ATOM_POLICY) return &policy_at(engine, atom)->atom;
    return slab_at(&engine->atoms[type], atom);
}
static inline __attribute__((always_inline)) void atom_ref(struct engine *engine,
                                                           enum atom_type type, uint32_t atom)
{
    atom_at(engine, type, atom)->refs++;
}
void atom_drop(struct engine *engine, enum atom_type type, uint32_t atom);
static inline __attribute__((always_inline)) void atom_unref(struct engine *engine,
                                                             enum atom_type type, uint32_t number)
{
    struct atom *atom = atom_at(engine, type, number);

    assert(atom->refs > 0);
    if (--atom->refs == 0) atom_drop(engine, type, number);
}
static inline struct engine_slice atom_text(const struct atom *atom)
{
    return (struct engine_slice){atom->text, atom->bytes};
}

/* ---- rate.c ---- */

/* How many may go now; UINT32_MAX: any number. */
uint32_t rate_free(const struct engine_rate *rate, int64_t tat, int64_t now_ms);
/* What tat is after one has gone. */
int64_t rate_after(const struct engine_rate *rate, int64_t tat, int64_t now_ms);
/* When one more than rate_free() says may go. */
int64_t rate_next_ms(const struct engine_rate *rate, int64_t tat, int64_t now_ms);
bool rate_valid(const struct engine_rate *rate);
uint32_t key_free(const struct engine *engine, const struct key *key);
/* Writes down when the key opens by itself. */
void key_set_timer(struct engine *engine, uint32_t key);
/* More could go on than one command may move. */
#define KEY_AT_ONCE 1
void key_set_timer_at(struct engine *engine, uint32_t key, int64_t opens_ms);
uint32_t key_first_timer(const struct engine *engine);
/* When who claims from the queue is woken; 0: not by time. */
void queue_set_timer_at(struct engine *engine, uint32_t queue, int64_t opens_ms);
uint32_t queue_first_timer(const struct engine *engine);

/* ---- place.c ---- */

/* Rows for what a command of so many jobs may need, and those that it lets go on: 0 or -ENOMEM. */
int place_reserve(struct engine *engine, uint32_t jobs);
/* Puts a job into the lane that its state (ready, blocked) asks for, and takes it out. */
void place_link(struct engine *engine, uint32_t job, const struct op_turn *turn);
void place_unlink(struct engine *engine, uint32_t job);
/* The group that a job in this state would have or has; 0: there is none. */
uint32_t place_group(const struct engine *engine, const struct job *job, enum engine_state state,
                     uint32_t blocked_on);
void group_set_turn(struct engine *engine, uint32_t group, const struct op_turn *turn);
/* Whether the job is in a lane now: that of its queue (0), or at the gate of this limit key. */
bool place_is(const struct job *job, uint8_t from_gate);
/* The same for the group of the job's lane, which the job is about to leave: if the group goes with
 * it, nothing is done. */
void place_set_turn_left(struct engine *engine, const struct job *job, const struct op_turn *turn);
/* Its turn after giving one job, and after taking one. */
struct op_turn turn_after_give(struct engine *engine, uint32_t group);
struct op_turn turn_after_take(struct engine *engine, const struct job *job,
                               enum engine_state state, uint32_t blocked_on);
/* 0: there is none. */
uint32_t stage_first_lane(const struct stage *stage);
uint32_t job_first_of_lane(const struct engine *engine, uint32_t lane);
bool lane_before(const void *engine, uint32_t a, uint32_t b);
uint32_t gate_find(const struct engine *engine, uint32_t key, uint32_t stage);

/* ---- hold.c: unique and idempotency keys ---- */

/* Room for one more job with such keys. */
int hold_reserve(struct engine *engine);
void hold_join(struct engine *engine, uint32_t job);
void hold_leave(struct engine *engine, uint32_t job);
/* Whose turn it is to stand for the keys of a job that has changed its state. */
void hold_update(struct engine *engine, uint32_t job);
/* Who stands for a key of a queue; 0: nobody. */
uint32_t hold_find(const struct engine *engine, enum hold which, uint32_t queue,
                   struct engine_slice key);
/* The same for a job that is about to take it. */
uint32_t hold_look(const struct engine *engine, enum hold which, uint32_t queue,
                   struct engine_slice key, struct hold_looked *ret_looked);
/* Somebody looks for the job's keys soon. */
void hold_foresee(const struct engine *engine, const struct job *job);
/* Whether the job, by its state, keeps others with its key out. */
bool hold_by_state(const struct engine *engine, enum hold which, const struct job *job);

/* ---- live.c ---- */

/* A row has come to refer to the record with its payload, its result (1), or does no more (-1). */
void live_job(struct engine *engine, const struct job *job, int sign);
void live_result(struct engine *engine, const struct job *job, int sign);
int64_t live_bytes_of(const struct engine *engine, const struct job *job);
/* One error of a job has come (1) or goes (-1). */
void live_failure(struct engine *engine, const struct job *job, const struct failure *failure,
                  int sign);
void tell_ended(struct engine *engine, uint64_t id, enum engine_state state);

/* ---- apply.c ---- */

uint32_t job_find(const struct engine *engine, uint64_t id);
/* The next look for this id finds this job at once. */
void job_see(const struct engine *engine, uint64_t id, uint32_t job);
/* When the job's own timer rings; INT64_MAX: never. */
int64_t job_timer_ms(const struct job *job);
/* The first to ring, of those that are in history too. */
uint32_t job_first_timer(const struct engine *engine);
uint32_t chain_first_held(const struct engine *engine, const struct chain *chain);
uint32_t queue_next_dead(const struct engine *engine, const struct queue *queue, uint64_t after);
bool job_is_history(const struct engine *engine, const struct job *job);
bool state_may_become(enum engine_state from, enum engine_state to);
int apply_op(struct engine *engine, const struct op *op, uint64_t position);
void apply_set(struct engine *engine, uint32_t job, const struct op_set *set, uint64_t position);
/* The row of a job that was written whole: what a patch may change of it. */
void apply_patch(struct engine *engine, uint32_t number, const struct op_job *op);
extern const char *const engine_state_names[ENGINE_STATES];

/* ---- history.c ---- */

void history_add(struct engine *engine, uint32_t queue, uint32_t job);
/* A job of the queue is about to end: who is forgotten for it is. */
void history_foresee(const struct engine *engine, const struct queue *queue);
void history_remove(struct engine *engine, uint32_t queue, uint32_t job);
/* Who is forgotten next, of all queues; 0: nobody. */
uint32_t history_first_timer(const struct engine *engine);
/* NULL, or what is wrong. */
const char *history_check(const struct engine *engine, const struct queue *queue);

/* ---- decide.c: what commands are made of ---- */

/* Begins a command, or a step of a tick: time, and memory for what it will do. `given_bytes` come
 * from the caller. 0 or -ENOMEM. */
int command_begin(struct engine *engine, int64_t now_ms, size_t given_bytes);
/* The command goes on: memory for the next of its jobs, and `bytes` beside. */
int command_reserve(struct engine *engine, size_t bytes);
/* What it was given is known only now. */
int command_give(struct engine *engine, size_t given_bytes);
/* Its record is within ENGINE_COMMAND_BYTES_MAX: asserted. */
void command_check(const struct engine *engine);
/* Decides an operation: into the record, and into the state. Only the first of a command can
 * fail. */
int command_op(struct engine *engine, const struct op *op);
int engine_refuse(struct engine *engine, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* What the job says now, to be changed and decided. */
void set_from(const struct job *job, struct op_set *ret_set);
/* What the job says from now on. */
void decide_set(struct engine *engine, uint32_t job, const struct op_set *set);
/* Ready, or blocked by the first of its limit keys without room. */
void fill_place(struct engine *engine, const struct job *job, struct op_set *set);
/* The same, or scheduled if its time has not come. */
void fill_onward(struct engine *engine, const struct job *job, int64_t run_at_ms,
                 struct op_set *set);
/* The end of a job, and what follows from it for its successor and its keys. */
void decide_end(struct engine *engine, uint32_t job, enum engine_state state,
                struct engine_slice result);
/* The same, but no history is forgotten: for an end that is part of another one's, whose job is
 * still needed. */
void decide_end_kept(struct engine *engine, uint32_t job, enum engine_state state,
                     struct engine_slice result);
/* The first that is held in the chain goes on, if none is active. */
void decide_successor(struct engine *engine, uint32_t chain);
/* Moves blocked jobs of the key on while it has room. */
void decide_topup(struct engine *engine, uint32_t key);
void decide_topups(struct engine *engine, const struct job *job);
/* ---- admin.c: what keys and queues say ---- */
void decide_key_tat(struct engine *engine, uint32_t key, int64_t tat);
void decide_queue_tat(struct engine *engine, uint32_t queue, int64_t tat);
struct op_key key_says(const struct key *key);
struct op_queue queue_says(const struct queue *queue);
enum engine_overflow queue_overflow(const struct engine *engine, const struct queue *queue);

/* ---- schedule.c ---- */
int apply_schedule(struct engine *engine, const struct op_schedule *op);
void apply_scheduled(struct engine *engine, const struct op_schedule *op);
void apply_unschedule(struct engine *engine, struct engine_slice name);
void schedules_deinit(struct engine *engine);
struct op_schedule schedule_says(const struct schedule *schedule);
uint32_t schedule_first_timer(const struct engine *engine);
/* Enqueues what is due, and says when it is due again. 0 or -ENOMEM. */
int schedule_fire(struct engine *engine, uint32_t schedule);
/* The next one that waits for a zone is looked at again. */
int schedules_look_again(struct engine *engine);

/* ---- bulk.c ---- */
int apply_bulk(struct engine *engine, const struct op_bulk *op);
void apply_bulk_at(struct engine *engine, const struct op_bulk *op);
void apply_bulk_drop(struct engine *engine, uint64_t id);
void bulks_deinit(struct engine *engine);
/* The first one with an id above this, as an operation; its id, 0: there is none, or -ENOMEM. */
int64_t bulk_write_next(struct engine *engine, struct writer *writer, uint64_t after);
bool bulk_is_due(const struct engine *engine);
/* Works on the next job of the oldest. 0 or -ENOMEM. */
int bulk_go_on(struct engine *engine);

/* ---- record.c ---- */
/* A record begins: what it is written against is what is so now. `says_all`: its head is to have
 * all counters, also those that none of its operations refers to. */
void writer_begin(const struct engine *engine, struct writer *writer, bool says_all);
/* The head, as long as it is, right before the operations. Returns where it begins. */
size_t put_head(const struct engine *engine, struct writer *writer);
int write_op(struct engine *engine, struct writer *writer, const struct op *op);
/* The whole job, with these bytes, into the record: the row needs no older one. 0 or -ENOMEM. */
int write_again(struct engine *engine, uint32_t number, struct engine_slice payload,
                struct engine_slice trace, struct engine_slice result);
/* The errors of a job's runs. */
int write_errors(struct engine *engine, struct writer *writer, uint64_t id);
void job_says(const struct engine *engine, const struct job *job, struct op_job *ret_op);

/* ---- batch.c ---- */
/* A job has joined its batch; a member has ended. */
void batch_join(struct engine *engine, uint64_t batch);
void batch_leave(struct engine *engine, uint64_t batch, enum engine_state state);
/* A member has never been there. */
void batch_unjoin(struct engine *engine, uint64_t batch);
/* The job that gathers this batch, open for members; 0: there is none. */
uint32_t batch_find_open(const struct engine *engine, uint64_t batch);

/* ---- lease.c ---- */
/* An attempt has failed: retried, or dead. Memory for the error is there, or nothing happens. */
int decide_failure(struct engine *engine, uint32_t job, const struct engine_failure *failure);

/* ---- enqueue.c ---- */
/* Whether the job keeps others with its unique key out now. */
bool unique_held(const struct engine *engine, const struct job *job);
uint32_t queue_depth(const struct queue *queue);
uint32_t queue_depth_max(const struct engine *engine, const struct queue *queue);
int check_spec(struct engine *engine, const struct engine_job_spec *spec);
void fill_policy(const struct engine_job_spec *spec, struct writer *writer);
void fill_job(struct engine *engine, const struct engine_job_spec *spec, struct op_job *job);
/* ---- rate.c ---- */
/* Whoever is blocked is looked at again by the next tick. */
void keys_look_again(struct engine *engine);
/* The next tick goes on with it. */
void key_todo(struct engine *engine, uint32_t key);
/* A queue that can be claimed from again. */
void wake_queue(struct engine *engine, uint32_t queue);
int writer_reserve(struct engine *engine, struct writer *writer, size_t bytes);
/* A number below the bound that depends on the job and its run only. */
uint32_t jitter_below(const struct engine *engine, const struct job *job, uint32_t bound);

#endif

/* store.h - a store from the inside: one engine that decides, one log that remembers.
 *
 *     call ──room in the log?──▶ engine decides ──▶ its record is appended ──▶ who waits is served
 *                                                        │
 *            reply ◀── all that it has seen is as safe as asked for (the gate) ◀┘
 *
 *     OPEN ──close, or its scope ends──▶ CLOSING ──nobody inside, all on disk──▶ ENDED
 *
 * Everything between "room" and "served" is done under the store's lock by whoever calls; nothing
 * suspends there. One task of the store's own (upkeep) lets time pass for the engine, syncs what
 * nobody waits for, and compacts.
 *
 * Invariants, under the lock:
 * 1. What the engine has decided is appended before the lock is let go, so records are in the
 *    order of decisions, and `end` is behind all that anybody can have seen.
 * 2. A command is given to the engine only when the log has room for its record.
 * 3. Who waits for a job waits only while there is none for it, or no room to write a lease.
 * 4. Before segments are let go, everything in them that is needed is appended again: jobs one by
 *    one, names (queues, keys, schedules, sets of jobs) all together, at names_position.
 */
#ifndef WEIR_STORE_STORE_H
#define WEIR_STORE_STORE_H

#include <weir/jobs.h>
#include <weir/store.h>

#include "engine/engine.h"
#include "flow/meters.h"
#include "flow/wait.h"
#include "store/log.h"
#include "store/store_clock.h"

/* Tags of records. The engine's own have none of the others' meaning. */
enum store_tag {
    STORE_TAG_ENGINE = 1, /* decisions */
    STORE_TAG_NAMES,      /* a slice of names: the first of a row of slices */
    STORE_TAG_NAMES_MORE,
    STORE_TAG_NAMES_LAST, /* may be the first as well: see STORE_TAG_NAMES_ALL */
    STORE_TAG_NAMES_ALL,
    STORE_TAG_CLOSED, /* the store was closed: all before it is here. Without bytes */
    STORE_TAG_OPENED, /* it was opened: from here on ids are told that may be lost. Without bytes */
};

enum {
    STORE_RECORD_BYTES_MAX = 2 << 20, /* two of the longest payloads, or 1024 of a KiB */
    STORE_BUFFER_BYTES = 2 * STORE_RECORD_BYTES_MAX,
    STORE_RECENT_BYTES = 512 * 1024, /* of the log in memory: most jobs are taken soon */
    STORE_TICK_BYTES = 64 * 1024,    /* of one tick's record, about */
    STORE_NAMES_BYTES = 32 * 1024,   /* of one slice of names */
    STORE_BUCKETS = 256,             /* of who waits, by name or id */
    STORE_ORDERS_MAX = 4096,
    STORE_MESSAGE_BYTES_MAX = 1024, /* kept of an error */
    STORE_LIVE_MAX = 16,            /* more are told at once */
    STORE_GUESS_BYTES = 768,        /* of a record that is read: most are shorter */
    STORE_READ_TRIES = 8,           /* a record can be moved while it is looked for */
};
/* The end of what was decided when the log had stopped: no gate lets anybody pass it. */
#define STORE_END_LOST UINT64_MAX
/* Ids that may have been told to somebody and are lost: less than what is decided in a second. */
#define STORE_LOST_IDS_MAX (UINT64_C(1) << 28)

_Static_assert(STORE_RECORD_BYTES_MAX >= 2 * WEIR_STORE_PAYLOAD_BYTES_MAX + 256 * 1024,
               "a settlement with a job that follows fits into a record");

enum store_state { STORE_OPEN, STORE_CLOSING, STORE_ENDED };

/* Who waits in one queue: for jobs, and for room. There while somebody does. */
struct queue_waits {
    struct list node; /* in its bucket */
    struct list leasers;
    struct list rooms;
    struct list full; /* in store->full, while somebody waits for room */
    size_t name_bytes;
    char name[];
};

struct worker_orders {
    struct list node; /* in its bucket */
    unsigned orders;
    size_t name_bytes;
    char name[];
};

/* The figures of one queue, for whoever scrapes. */
struct queue_meter {
    struct metered metered;
    struct store *store;
    struct queue_meter *next;
    size_t name_bytes;
    char name[];
};

/* Who waits, by name and by id. Beside the store, whose own memory is small. */
struct store_tables {
    struct list waits[STORE_BUCKETS];  /* struct queue_waits */
    struct list enders[STORE_BUCKETS]; /* struct end_wait */
    struct list orders[STORE_BUCKETS]; /* struct worker_orders */
};

struct store {
    struct flow_object object; /* the first member */
    void *handle;
    weir_store_spec spec; /* its strings are in `strings` */
    size_t record_bytes_max;
    char *strings;
    struct metered metered;
    struct meter *sync_meter; /* the same, for the log's thread */

    struct engine *engine;
    struct log *log;
    struct store_clock clock;
    enum store_state state;
    bool given_up; /* closed by the program: upkeep's end is its own */
    int result;    /* of its end */
    uint64_t end;  /* behind the last record that was appended; or STORE_END_LOST */
    uint64_t records, appended_bytes;
    /* What the log is to know of its bytes, with the next record that is appended: only an append
     * begins a segment, and the newest one is never let go. */
    struct log_live live[STORE_LIVE_MAX];
    unsigned live_count;
    int64_t
        unsynced_ns; /* when the first record was appended that upkeep has not synced; 0: none */
    int stopped;     /* what the log has stopped with, once upkeep has seen it */
    int64_t open_ms;
    unsigned users; /* calls that are inside */

    struct store_tables *tables;
    struct list full; /* queues for which somebody waits for room */
    size_t leaser_count, room_count, ender_count, order_count;
    bool serve_again; /* somebody could not be served for want of room in the log */

    struct list upkeeper;  /* the upkeep task, while it sleeps */
    int64_t planned_ms;    /* when it wakes by itself, in the store's time */
    bool rung;             /* it is to look again */
    struct list finishers; /* who waits for its end */
    struct list closer;    /* upkeep, until nobody is inside */

    uint64_t names_position; /* all names are at or behind it; 0: nowhere as a whole */
    int64_t names_bytes;     /* that the log counts for them there */
    uint64_t round_end;      /* of the log when upkeep began to compact all of it; 0: it does not */
    uint64_t round_segments; /* ... and how many there were, */
    uint64_t round_work;     /* ... and what others than compaction had appended by then */
    int64_t in_vain_until_ns; /* the last round was in vain: until then; 0: it was not */
    uint64_t copied_bytes;    /* of appended_bytes: by compaction */
    uint64_t segment_bytes;
    uint64_t looked_end; /* where upkeep was last told that there is a segment more */
    int64_t compact_after_ns;
    struct queue_meter *meters;
    unsigned meter_count;

    /* While it is opened. */
    uint64_t names_candidate;
    int64_t names_candidate_bytes;
    uint64_t bad_position; /* of a record that could not be applied; 0: none */
    uint16_t bad_tag;
    bool replayed;    /* there was a record */
    bool closed_well; /* the last record says so */
};

extern const struct meter_kind store_meter_kind, store_queue_meter_kind;
enum { STORE_SYNC_HISTOGRAM = 0, JOB_WAIT_HISTOGRAM = 0 };

/* ---- The lock: it orders what the engine's memory is used for (strict sanitizers see no lock) */

static inline void store_lock(struct store *store)
    LOCK_ACQUIRES(store->object.stable.lock, weir_no_park) LOCK_UNCHECKED
{
    flow_lock(&store->object);
    sanitize_acquire(store);
}

static inline void store_unlock(struct store *store)
    LOCK_RELEASES(store->object.stable.lock, weir_no_park) LOCK_UNCHECKED
{
    sanitize_release(store);
    flow_unlock(&store->object);
}

/* The same for who has come in by store_enter, which the analysis of locks cannot follow. */
static inline void store_unlock_entered(struct store *store) LOCK_UNCHECKED
{
    store_unlock(store);
}

/* ---- store_call.c: how every call goes ---- */

/* What a call is about to do. `bytes`: the program's own that go into its record. */
struct store_intent {
    const char *call;
    enum log_use use; /* LOG_USE_UNSET: it only looks */
    size_t bytes;
    enum task_entry entry; /* 0 counts as ENTER_IO */
};

/* 0: the caller is inside, holds the lock, and there is room for the record. Else nothing. */
LOG_SUSPENDS int store_enter(weir_store *handle, const struct store_intent *intent,
                             struct store **ret_store) LOCK_UNCHECKED;
/* The same for one who is inside already, without the lock. On failure it is still inside. */
LOG_SUSPENDS int store_enter_again(struct store *store,
                                   const struct store_intent *intent) LOCK_UNCHECKED;
/* Let go of the lock, wait at the gate if r is no error, and leave. Returns r, or the gate's. */
LOG_SUSPENDS int store_leave(struct store *store, enum weir_durability durability,
                             int r) LOCK_UNCHECKED;
/* The parts of that. The gate is for who is inside, without the lock. */
LOG_SUSPENDS int store_gate(struct store *store, uint64_t seen, enum weir_durability durability);
/* For who has something to do before it goes to the gate: the disk begins with it now. */
void store_ask(struct store *store, uint64_t seen, enum weir_durability durability);
void store_exit(struct store *store); /* without the lock */

int64_t store_now_ms(struct store *store); /* the lock is held, as for the rest */
/* What was decided is appended, and who waits is served. `use` as of the room that was kept. */
void store_commit(struct store *store, enum log_use use);
/* A record. Returns its position. */
uint64_t store_append(struct store *store, enum log_use use, uint16_t tag, const void *bytes,
                      size_t count);
/* So many more bytes of the record at `position` are needed; and: the log knows all of that. */
void store_live(struct store *store, uint64_t position, int64_t bytes);
void store_live_told(struct store *store);
/* An error of the engine, with its sentence. */
int store_refuse(struct store *store, int error);
/* What the log has stopped with, with its sentence. Without the lock, too. */
int store_stopped(struct store *store, int error);
enum weir_durability store_durability(const struct store *store, enum weir_durability asked);
void store_ring(struct store *store); /* upkeep looks again */

static inline struct engine_slice slice_of(const char *text)
{
    return (struct engine_slice){text, text ? strlen(text) : 0};
}

/* ---- store_wait.c: who waits, and is served ---- */

/* A job that was claimed, with what the engine keeps no longer than until the next call. */
struct claimed_job {
    struct engine_claimed job;
    char kind[ENGINE_NAME_BYTES_MAX + 1];
};

struct lease_wait {
    struct waiter waiter; /* the first member */
    const struct engine_claim_spec *claim;
    const char *worker;
    size_t worker_bytes;
    struct claimed_job *jobs; /* room for claim->count */
    int count;
    uint64_t seen; /* what the gate has to wait for */
};

/* Claims for one, now: what it has not got yet, but not more than one record holds. Returns how
 * many came. The lock is held and there is room. */
int store_claim(struct store *store, struct lease_wait *wait);
/* Until there is a job, in turn; the lock is held, and let go of. 0: served. */
LOG_SUSPENDS int store_wait_job(struct store *store, struct lease_wait *wait) LOCK_UNCHECKED;
/* Until the queue has room again, the same; 0: try again. `first`: it was in turn already. */
LOG_SUSPENDS int store_wait_room(struct store *store, struct engine_slice queue,
                                 bool first) LOCK_UNCHECKED;
/* Who was given room and does not take it: the next one is told. Without the lock. */
void store_pass_room(struct store *store);
/* Whether somebody waits for that. */
bool store_room_is_awaited(struct store *store, struct engine_slice queue);
LOG_SUSPENDS int store_wait_end(struct store *store, uint64_t id, bool until_stop) LOCK_UNCHECKED;

/* Queues that have got something are claimed from for who waits. */
void store_serve(struct store *store);
/* All queues, since there was no room in the log before. */
void store_serve_all(struct store *store);
/* Everybody who waits is told to go. */
void store_wake_all(struct store *store, int result);
/* For the engine: a job has ended. */
void store_job_ended(void *arg, uint64_t id, enum engine_state state);

unsigned store_orders_of(struct store *store, struct engine_slice worker);
int store_order(struct store *store, struct engine_slice worker, unsigned orders);
void store_waits_deinit(struct store *store);

/* ---- store_read.c: bytes that are on disk ---- */

/* A record's bytes, in memory of their own. */
struct store_bytes {
    unsigned char *memory;
    size_t count;
};
/* Payload, trace and result of a job, wherever they are by now, in *ret_bytes, which is given back
 * with mem_free(memory). The caller is inside, without the lock. -ENOENT: there is no such job. */
LOG_SUSPENDS int store_read_job(struct store *store, uint64_t id, uint64_t position, bool result,
                                struct store_bytes *ret_bytes, struct engine_found *ret_found);
LOG_SUSPENDS int store_read_record(struct store *store, uint64_t position, size_t guess,
                                   struct store_bytes *ret_bytes);

/* ---- store_zone.c ---- */

/* Give the engine the zone, from its file. The caller is inside, without the lock. */
LOG_SUSPENDS int store_load_zone(struct store *store, const char *name);
/* Those of all schedules; missing ones are logged. */
LOG_SUSPENDS int store_load_zones(struct store *store);

/* ---- store_open.c ---- */

/* How large its files and buffers are: smaller for tests that open many. */
struct store_sizes {
    uint64_t segment_bytes; /* of a new store, if the spec says nothing */
    size_t buffer_bytes;
    size_t record_bytes_max; /* more than ENGINE_COMMAND_BYTES_MAX */
    int held_segments;       /* as of a log */
};
LOG_SUSPENDS int store_open(weir_scope *scope, const weir_store_spec *spec,
                            const struct store_sizes *sizes, weir_store **ret_store);
/* From now on a call with it is misuse. The lock is held, or nobody else is left. */
void store_drop_handle(struct store *store);

/* ---- store_upkeep.c ---- */

int store_upkeep_main(void *arg);
/* Nobody comes in any more, who waits is told, and what was appended is put on disk, or fails. */
void store_shut(struct store *store);
void store_shut_locked(struct store *store);

/* ---- store_meters.c ---- */

/* New queues get figures of their own. On upkeep's worker, without the lock. */
void store_meters_update(struct store *store);
void store_meters_leave(struct store *store);
bool store_boundary(struct belonging *belonging, unsigned row, struct boundary *ret_boundary);

/* ---- job_enqueue.c ---- */

/* The spec in the engine's words; `context` holds a trace if the task's own is taken. 0 or
 * refused. */
enum { JOB_TRACE_BYTES = 64 };
int job_spec_convert(struct store *store, const weir_job_spec *spec, char trace[JOB_TRACE_BYTES],
                     struct engine_job_spec *ret_spec);
/* Bytes that it takes in a record, beside a command's own: at most, before it is converted; and
 * closely, as one of many that must fit into one record. */
size_t job_spec_bytes(const weir_job_spec *spec);
size_t job_one_of_many_bytes(const struct engine_job_spec *job);
/* Jobs that the record which is not appended yet has enqueued were never there: the last one first,
 * and whatever memory there is. Ids that are 0 are those of duplicates. The lock is held. */
void job_take_back(struct store *store, int64_t now_ms, const uint64_t *ids, size_t count);

/* ---- job_settle.c ---- */

/* Whether a settlement says what it must: 0, or refused. */
int job_settle_check(const struct store *store, const weir_settlement *one);
/* The job itself, without what follows. Returns its state, or an error of the engine. The lock is
 * held. */
int job_settle_now(struct store *store, int64_t now_ms, const weir_settlement *one);

/* More than disk_bytes_max are in use: no new work. */
static inline bool store_disk_is_used_up(const struct store *store,
                                         const struct log_figures *figures)
{
    return store->spec.disk_bytes_max > 0 &&
           (figures->segment_count + figures->spare_count) * figures->segment_bytes >
               store->spec.disk_bytes_max;
}

static inline struct store *store_look_up(const weir_store *handle, const char *call)
{
    return flow_look_up(handle, HANDLE_STORE, "store", call);
}

#endif

/* store_lmdb.c - jobs in LMDB, synced at each commit, as it is by default.
 *
 * Two tables: rows by id, payload included, and keys in the order of claims, in which a leased
 * job's time is the end of its lease. */
#include <endian.h>
#include <lmdb.h>
#include <stddef.h>

#include "store.h"

#define LMDB_MAP_BYTES ((size_t)STORE_FILE_BYTES_MAX)
#define LMDB_PAYLOAD_BYTES_MAX 1024

struct lmdb_row {
    uint64_t token;
    int64_t when_us;
    uint32_t queue;
    uint32_t attempt;
    uint8_t state;
    uint8_t priority;
    uint8_t unused[6];
    uint8_t payload[LMDB_PAYLOAD_BYTES_MAX];
};

/* Big-endian, so that LMDB's order of bytes is the order of claims. */
struct lmdb_key {
    uint32_t queue;
    uint8_t state;
    uint8_t priority;
    uint64_t when_us;
    uint64_t id;
} __attribute__((packed));

struct lmdb {
    const struct bench *bench;
    MDB_env *env;
    MDB_dbi jobs;
    MDB_dbi claims;
    MDB_txn *group;
    MDB_cursor *next;
};

static void lmdb_check(const struct lmdb *lmdb, const char *what, int r)
{
    if (r != 0) bench_fail(lmdb->bench, what, mdb_strerror(r));
}

static void lmdb_begin(void *store)
{
    struct lmdb *lmdb = store;

    lmdb_check(lmdb, "begin", mdb_txn_begin(lmdb->env, NULL, 0, &lmdb->group));
    lmdb->next = NULL;
}

static void lmdb_commit(void *store)
{
    struct lmdb *lmdb = store;

    if (lmdb->next) mdb_cursor_close(lmdb->next);
    lmdb_check(lmdb, "commit", mdb_txn_commit(lmdb->group));
}

static void *lmdb_open(const struct store_plan *plan)
{
    struct lmdb *lmdb = calloc(1, sizeof *lmdb);

    if (!lmdb) bench_fail(plan->bench, "memory", strerror(errno));
    lmdb->bench = plan->bench;
    lmdb_check(lmdb, "env", mdb_env_create(&lmdb->env));
    lmdb_check(lmdb, "map", mdb_env_set_mapsize(lmdb->env, LMDB_MAP_BYTES));
    lmdb_check(lmdb, "tables", mdb_env_set_maxdbs(lmdb->env, 2));
    lmdb_check(lmdb, "open", mdb_env_open(lmdb->env, "jobs.mdb", MDB_NOSUBDIR, 0600));
    lmdb_begin(lmdb);
    lmdb_check(lmdb, "jobs",
               mdb_dbi_open(lmdb->group, "jobs", MDB_CREATE | MDB_INTEGERKEY, &lmdb->jobs));
    lmdb_check(lmdb, "claims", mdb_dbi_open(lmdb->group, "claims", MDB_CREATE, &lmdb->claims));
    lmdb_commit(lmdb);
    return lmdb;
}

static struct lmdb_key lmdb_key_of(uint64_t id, const struct lmdb_row *row)
{
    return (struct lmdb_key){
        .queue = htobe32(row->queue),
        .state = row->state,
        .priority = row->priority,
        .when_us = htobe64((uint64_t)row->when_us),
        .id = htobe64(id),
    };
}

static void lmdb_put_row(struct lmdb *lmdb, uint64_t id, struct lmdb_row *row, size_t payload_bytes,
                         unsigned flags)
{
    MDB_val key = {sizeof id, &id};
    MDB_val value = {offsetof(struct lmdb_row, payload) + payload_bytes, row};

    lmdb_check(lmdb, "put row", mdb_put(lmdb->group, lmdb->jobs, &key, &value, flags));
}

/* Returns the bytes of the payload. */
static size_t lmdb_get_row(struct lmdb *lmdb, uint64_t id, struct lmdb_row *ret_row)
{
    MDB_val key = {sizeof id, &id};
    MDB_val value;

    lmdb_check(lmdb, "get row", mdb_get(lmdb->group, lmdb->jobs, &key, &value));
    memcpy(ret_row, value.mv_data, value.mv_size);
    return value.mv_size - offsetof(struct lmdb_row, payload);
}

static void lmdb_put_key(struct lmdb *lmdb, uint64_t id, const struct lmdb_row *row)
{
    struct lmdb_key order = lmdb_key_of(id, row);
    MDB_val key = {sizeof order, &order};
    MDB_val value = {0, NULL};

    lmdb_check(lmdb, "put key", mdb_put(lmdb->group, lmdb->claims, &key, &value, 0));
}

static void lmdb_insert(void *store, const struct store_job *job)
{
    struct lmdb *lmdb = store;
    struct lmdb_row row;

    if (job->payload_bytes > sizeof row.payload) bench_fail(lmdb->bench, "insert", "too large");
    memset(&row, 0, offsetof(struct lmdb_row, payload));
    row.queue = STORE_QUEUE;
    row.state = STORE_READY;
    row.priority = job->priority;
    row.when_us = job->run_at_us;
    memcpy(row.payload, job->payload, job->payload_bytes);
    lmdb_put_row(lmdb, job->id, &row, job->payload_bytes, MDB_APPEND);
    lmdb_put_key(lmdb, job->id, &row);
}

/* Takes the first key that is ready and due; a priority whose first one is not due has none. */
static uint64_t lmdb_take_next(struct lmdb *lmdb, int64_t now_us)
{
    struct lmdb_row from = {.queue = STORE_QUEUE, .state = STORE_READY};

    if (!lmdb->next) {
        lmdb_check(lmdb, "cursor", mdb_cursor_open(lmdb->group, lmdb->claims, &lmdb->next));
    }
    for (;;) {
        struct lmdb_key order = lmdb_key_of(0, &from);
        MDB_val key = {sizeof order, &order};
        MDB_val value;
        lmdb_check(lmdb, "claim", mdb_cursor_get(lmdb->next, &key, &value, MDB_SET_RANGE));
        memcpy(&order, key.mv_data, sizeof order);
        if (be32toh(order.queue) != STORE_QUEUE || order.state != STORE_READY) {
            bench_fail(lmdb->bench, "claim", "no job is ready");
        }
        if ((int64_t)be64toh(order.when_us) <= now_us) {
            lmdb_check(lmdb, "take", mdb_cursor_del(lmdb->next, 0));
            return be64toh(order.id);
        }
        from.priority = order.priority + 1;
    }
}

static uint64_t lmdb_claim(void *store, int64_t now_us, uint64_t token,
                           struct store_lease *ret_lease)
{
    struct lmdb *lmdb = store;
    uint64_t id = lmdb_take_next(lmdb, now_us);
    struct lmdb_row row;
    size_t payload_bytes = lmdb_get_row(lmdb, id, &row);

    row.state = STORE_LEASED;
    row.when_us = now_us + STORE_LEASE_US;
    row.token = token;
    row.attempt++;
    lmdb_put_row(lmdb, id, &row, payload_bytes, 0);
    lmdb_put_key(lmdb, id, &row);
    *ret_lease = (struct store_lease){.id = id, .token = token};
    return store_payload_sum(row.payload, payload_bytes);
}

static void lmdb_acknowledge(void *store, const struct store_lease *lease)
{
    struct lmdb *lmdb = store;
    uint64_t id = lease->id;
    struct lmdb_row row;
    struct lmdb_key order;
    MDB_val key = {sizeof order, &order};
    MDB_val number = {sizeof id, &id};

    lmdb_get_row(lmdb, id, &row);
    if (row.state != STORE_LEASED || row.token != lease->token) {
        bench_fail(lmdb->bench, "acknowledge", "the lease is not the job's");
    }
    order = lmdb_key_of(id, &row);
    lmdb_check(lmdb, "delete key", mdb_del(lmdb->group, lmdb->claims, &key, NULL));
    lmdb_check(lmdb, "delete row", mdb_del(lmdb->group, lmdb->jobs, &number, NULL));
}

static size_t lmdb_count(void *store)
{
    struct lmdb *lmdb = store;
    MDB_stat jobs;
    MDB_stat claims;

    lmdb_begin(lmdb);
    lmdb_check(lmdb, "count", mdb_stat(lmdb->group, lmdb->jobs, &jobs));
    lmdb_check(lmdb, "count", mdb_stat(lmdb->group, lmdb->claims, &claims));
    mdb_txn_abort(lmdb->group);
    if (jobs.ms_entries != claims.ms_entries) {
        bench_fail(lmdb->bench, "count", "rows and keys are not as many");
    }
    return jobs.ms_entries;
}

static void lmdb_close(void *store)
{
    struct lmdb *lmdb = store;

    mdb_env_close(lmdb->env);
    free(lmdb);
}

const struct store_engine store_engine = {
    .program = "bench-store-lmdb",
    .peer = "lmdb",
    .open = lmdb_open,
    .begin = lmdb_begin,
    .insert = lmdb_insert,
    .claim = lmdb_claim,
    .acknowledge = lmdb_acknowledge,
    .commit = lmdb_commit,
    .count = lmdb_count,
    .close = lmdb_close,
};

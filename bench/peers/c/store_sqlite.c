/* store_sqlite.c - jobs in a table of SQLite: WAL, synchronous=FULL, one connection.
 *
 * One index serves claims and expired leases: a leased job's time is the end of its lease. */
#include <sqlite3.h>

#include "store.h"

enum sqlite_call {
    SQLITE_CALL_BEGIN,
    SQLITE_CALL_INSERT,
    SQLITE_CALL_CLAIM,
    SQLITE_CALL_ACKNOWLEDGE,
    SQLITE_CALL_COMMIT,
    SQLITE_CALL_COUNT,
    SQLITE_CALLS
};

static const char *const texts[SQLITE_CALLS] = {
    [SQLITE_CALL_BEGIN] = "BEGIN IMMEDIATE",
    [SQLITE_CALL_INSERT] = "INSERT INTO jobs (id, queue, state, priority, run_at, payload)"
                           " VALUES (?1, ?2, 0, ?3, ?4, ?5)",
    [SQLITE_CALL_CLAIM] =
        "UPDATE jobs SET state = 1, run_at = ?3, token = ?4, attempt = attempt + 1"
        " WHERE id = (SELECT id FROM jobs WHERE queue = ?1 AND state = 0 AND run_at <= ?2"
        " ORDER BY priority, run_at LIMIT 1) RETURNING id, payload",
    [SQLITE_CALL_ACKNOWLEDGE] = "DELETE FROM jobs WHERE id = ?1 AND state = 1 AND token = ?2",
    [SQLITE_CALL_COMMIT] = "COMMIT",
    [SQLITE_CALL_COUNT] = "SELECT count(*) FROM jobs",
};

static const char schema[] =
    "CREATE TABLE jobs (id INTEGER PRIMARY KEY, queue INTEGER NOT NULL, state INTEGER NOT NULL,"
    " priority INTEGER NOT NULL, run_at INTEGER NOT NULL, attempt INTEGER NOT NULL DEFAULT 0,"
    " token INTEGER NOT NULL DEFAULT 0, payload BLOB NOT NULL);"
    "CREATE INDEX jobs_claim ON jobs (queue, state, priority, run_at)";

struct sqlite {
    const struct bench *bench;
    sqlite3 *database;
    sqlite3_stmt *calls[SQLITE_CALLS];
};

_Noreturn static void sqlite_fail(const struct sqlite *sqlite, const char *what)
{
    bench_fail(sqlite->bench, what, sqlite3_errmsg(sqlite->database));
}

/* A setting that SQLite does not take is no error of its: so it is asked what it has. */
static void sqlite_set(struct sqlite *sqlite, const char *text, const char *expected)
{
    sqlite3_stmt *call;

    if (sqlite3_prepare_v2(sqlite->database, text, -1, &call, NULL) != SQLITE_OK ||
        sqlite3_step(call) != SQLITE_ROW) {
        sqlite_fail(sqlite, text);
    }
    if (strcmp((const char *)sqlite3_column_text(call, 0), expected) != 0) {
        bench_fail(sqlite->bench, text, "SQLite has not taken it");
    }
    sqlite3_finalize(call);
}

static void *sqlite_open(const struct store_plan *plan)
{
    struct sqlite *sqlite = calloc(1, sizeof *sqlite);

    if (!sqlite) bench_fail(plan->bench, "memory", strerror(errno));
    sqlite->bench = plan->bench;
    if (sqlite3_open("jobs.db", &sqlite->database) != SQLITE_OK) { sqlite_fail(sqlite, "open"); }
    sqlite_set(sqlite, "PRAGMA journal_mode = WAL", "wal");
    sqlite3_exec(sqlite->database, "PRAGMA synchronous = FULL", NULL, NULL, NULL);
    sqlite_set(sqlite, "PRAGMA synchronous", "2");
    if (sqlite3_exec(sqlite->database, schema, NULL, NULL, NULL) != SQLITE_OK) {
        sqlite_fail(sqlite, "schema");
    }
    for (size_t i = 0; i < SQLITE_CALLS; i++) {
        if (sqlite3_prepare_v3(sqlite->database, texts[i], -1, SQLITE_PREPARE_PERSISTENT,
                               &sqlite->calls[i], NULL) != SQLITE_OK) {
            sqlite_fail(sqlite, texts[i]);
        }
    }
    return sqlite;
}

/* A call that returns no row. */
static void sqlite_run(struct sqlite *sqlite, enum sqlite_call call)
{
    if (sqlite3_step(sqlite->calls[call]) != SQLITE_DONE) sqlite_fail(sqlite, texts[call]);
    sqlite3_reset(sqlite->calls[call]);
}

static void sqlite_begin(void *store)
{
    sqlite_run(store, SQLITE_CALL_BEGIN);
}

static void sqlite_commit(void *store)
{
    sqlite_run(store, SQLITE_CALL_COMMIT);
}

static void sqlite_insert(void *store, const struct store_job *job)
{
    struct sqlite *sqlite = store;
    sqlite3_stmt *call = sqlite->calls[SQLITE_CALL_INSERT];

    sqlite3_bind_int64(call, 1, (sqlite3_int64)job->id);
    sqlite3_bind_int(call, 2, STORE_QUEUE);
    sqlite3_bind_int(call, 3, job->priority);
    sqlite3_bind_int64(call, 4, job->run_at_us);
    sqlite3_bind_blob(call, 5, job->payload, (int)job->payload_bytes, SQLITE_STATIC);
    sqlite_run(sqlite, SQLITE_CALL_INSERT);
}

static uint64_t sqlite_claim(void *store, int64_t now_us, uint64_t token,
                             struct store_lease *ret_lease)
{
    struct sqlite *sqlite = store;
    sqlite3_stmt *call = sqlite->calls[SQLITE_CALL_CLAIM];
    uint64_t sum;

    sqlite3_bind_int(call, 1, STORE_QUEUE);
    sqlite3_bind_int64(call, 2, now_us);
    sqlite3_bind_int64(call, 3, now_us + STORE_LEASE_US);
    sqlite3_bind_int64(call, 4, (sqlite3_int64)token);
    if (sqlite3_step(call) != SQLITE_ROW) sqlite_fail(sqlite, texts[SQLITE_CALL_CLAIM]);
    *ret_lease = (struct store_lease){
        .id = (uint64_t)sqlite3_column_int64(call, 0),
        .token = token,
    };
    sum = store_payload_sum(sqlite3_column_blob(call, 1), (size_t)sqlite3_column_bytes(call, 1));
    sqlite_run(sqlite, SQLITE_CALL_CLAIM);
    return sum;
}

static void sqlite_acknowledge(void *store, const struct store_lease *lease)
{
    struct sqlite *sqlite = store;
    sqlite3_stmt *call = sqlite->calls[SQLITE_CALL_ACKNOWLEDGE];

    sqlite3_bind_int64(call, 1, (sqlite3_int64)lease->id);
    sqlite3_bind_int64(call, 2, (sqlite3_int64)lease->token);
    sqlite_run(sqlite, SQLITE_CALL_ACKNOWLEDGE);
    if (sqlite3_changes(sqlite->database) != 1) {
        bench_fail(sqlite->bench, "acknowledge", "the lease is not the job's");
    }
}

static size_t sqlite_count(void *store)
{
    struct sqlite *sqlite = store;
    sqlite3_stmt *call = sqlite->calls[SQLITE_CALL_COUNT];
    size_t count;

    if (sqlite3_step(call) != SQLITE_ROW) sqlite_fail(sqlite, texts[SQLITE_CALL_COUNT]);
    count = (size_t)sqlite3_column_int64(call, 0);
    sqlite3_reset(call);
    return count;
}

static void sqlite_close(void *store)
{
    struct sqlite *sqlite = store;

    for (size_t i = 0; i < SQLITE_CALLS; i++) sqlite3_finalize(sqlite->calls[i]);
    sqlite3_close(sqlite->database);
    free(sqlite);
}

const struct store_engine store_engine = {
    .program = "bench-store-sqlite",
    .peer = "sqlite",
    .open = sqlite_open,
    .begin = sqlite_begin,
    .insert = sqlite_insert,
    .claim = sqlite_claim,
    .acknowledge = sqlite_acknowledge,
    .commit = sqlite_commit,
    .count = sqlite_count,
    .close = sqlite_close,
};

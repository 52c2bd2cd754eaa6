/* store_outbox.c - the relay of an outbox on a host that loses power, whose disk fails, beside a
 * database that does neither.
 *
 * The database is outside of that host: what it was told is kept at once, whole or not at all. But
 * its calls take time and fail, also after they have done what they were asked; and the host may
 * lose power before it is told. A program commits rows while the relay reads them, a worker takes
 * the jobs. What must hold:
 *
 * 1. A row that was committed becomes one job, however often it is read; no other row does.
 * 2. A row that is marked done has its job on the disk, or was given up.
 * 3. A row that the store refuses becomes no job.
 * 4. All rows are marked in the end, and the jobs of all come to their end. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/planted.h"
#include "sim/store_host.h"
#include "store/store.h"

enum {
    ROWS = 10,
    QUEUES = 2, /* "wide", and "narrow", which is full now and then */
    NARROW_DEPTH = 2,
    PAYLOAD_BYTES = 1024, /* at most */
    BATCH = 4,
    LEASE_MS = 200,
};
#define PATIENCE_MS INT64_C(600000)
#define MONTH_MS (30 * 24 * 3600 * INT64_C(1000))
#define HOUR_MS (3600 * INT64_C(1000))

static const char *const queues[QUEUES] = {"wide", "narrow"};

/* ---- The database ---- */

struct row {
    int queue;
    bool too_large; /* its payload, for any store */
    bool given_up;
    bool done;
    bool had_job; /* a start of the host has found it, and made sure of it */
};

static struct row rows[ROWS];
static int committed;

static void kind_of(int number, char kind[16])
{
    (void)snprintf(kind, 16, "row %d", number);
}

/* Time passes, which only a task can wait for, and the connection may be lost. */
static int take_time(void)
{
    int r = 0;

    if (weir_sim_choose(3) == 1 && weir_worker_index() >= 0) r = weir_sleep(weir_sim_choose(20));
    if (r == 0 && weir_sim_choose(12) == 1) r = -ECONNRESET;
    return r;
}

static int peek(void *keep_arg, weir_outbox_row *ret_rows, size_t max)
{
    static const char large[PAYLOAD_BYTES + 1];
    static char kinds[ROWS][16];
    size_t count = 0;
    int r = take_time();

    (void)keep_arg;
    for (int i = 0; r == 0 && i < committed && count < max; i++) {
        weir_outbox_row *row = &ret_rows[count];

        if (rows[i].done) continue;
        kind_of(i, kinds[i]);
        (void)snprintf(row->key, sizeof row->key, "%d", i);
        row->job =
            (weir_job_spec){.queue = queues[rows[i].queue],
                            .kind = kinds[i],
                            .payload = large,
                            .payload_bytes = rows[i].too_large ? sizeof large : 8,
                            .idempotent = WEIR_YES,
                            .retry = {.attempts_max = 100, .backoff_ms = 1, .backoff_ms_max = 10}};
        count++;
    }
    return r < 0 ? r : (int)count;
}

static int done(void *keep_arg, const weir_outbox_row *marked, size_t count)
{
    int r = take_time();

    (void)keep_arg;
    if (r < 0) return r;
    for (size_t i = 0; i < count; i++) {
        int number = atoi(marked[i].key);

        if (number < 0 || number >= committed) weir_sim_fail("row %d was never committed", number);
        rows[number].done = true;
    }
    return take_time();
}

static bool refused(void *keep_arg, const weir_outbox_row *row, int error, const char *why)
{
    struct row *its = &rows[atoi(row->key)];

    (void)keep_arg;
    if (error != -EMSGSIZE || !its->too_large)
        weir_sim_fail("row %s is refused (%s): %s", row->key, weir_strerror(error), why);
    if (weir_sim_choose(3) == 1) return false; /* it is asked about again */
    its->given_up = true;
    return true;
}

/* ---- What is held to it ---- */

/* How many jobs the row has, or an error. */
static int jobs_of(weir_store *store, int number)
{
    char kind[16];
    const weir_job_filter filter = {.states = UINT32_MAX, .kind = kind};
    int64_t count;

    kind_of(number, kind);
    count = weir_job_count(store, &filter);
    return count > INT32_MAX ? INT32_MAX : (int)count;
}

static int look_at_rows(weir_store *store)
{
    int total = 0, r = 0;
    int64_t all;

    for (int i = 0; i < committed; i++) {
        bool was_done = rows[i].done;

        r = jobs_of(store, i);
        if (r < 0) return r;
        total += r;
        if (r > 1) weir_sim_fail("row %d has %d jobs", i, r);
        if (r > 0 && rows[i].too_large) weir_sim_fail("row %d was refused, and has a job", i);
        if (r == 0 && was_done && !rows[i].given_up)
            weir_sim_fail("row %d is done, and has no job", i);
        if (r == 0 && rows[i].had_job) weir_sim_fail("row %d had a job, which is lost", i);
        if (r > 0) rows[i].had_job = true;
    }
    all = weir_job_count(store, &(weir_job_filter){.states = UINT32_MAX});
    if (all < 0) return (int)all;
    if (all != total) weir_sim_fail("there are %d jobs, of rows only %d", (int)all, total);
    return 0;
}

/* 1: not yet. A row that on_refused keeps may be left by a drain. */
static int look_at_end(weir_store *store)
{
    int64_t waiting;
    bool keeps = false;

    for (int i = 0; i < committed; i++) {
        if (!rows[i].done && !rows[i].too_large)
            weir_sim_fail("row %d is left, and the outbox was drained", i);
        keeps = keeps || !rows[i].done;
    }
    if (keeps) return 1;
    waiting =
        weir_job_count(store, &(weir_job_filter){.states = ~WEIR_JOB_STATE_BIT(WEIR_JOB_DONE)});
    if (waiting < 0) return (int)waiting;
    return waiting > 0 ? 1 : look_at_rows(store);
}

/* ---- A start of the host ---- */

static struct host_life life;

static void begin(void *arg)
{
    (void)arg;
    memset(rows, 0, sizeof rows);
    committed = 0;
    life = (struct host_life){0};
}

/* Errors after which the next call may do better. */
static int later(int r)
{
    if (r == WEIR_ETIMEDOUT || r == WEIR_EOVERLOAD || r == -ENOSPC || r == -ENOMEM || r == -ENOBUFS)
        return weir_sleep(10);
    return r;
}

/* The program with its data. */
static int commit_rows(weir_outbox *outbox)
{
    int r = 0;

    while (r == 0 && committed < ROWS) {
        rows[committed].queue = (int)weir_sim_choose(QUEUES);
        rows[committed].too_large = weir_sim_choose(6) == 1;
        committed++;
        if (weir_sim_choose(2) == 1) weir_outbox_ring(outbox);
        if (weir_sim_choose(2) == 1) r = weir_sleep(weir_sim_choose(30));
    }
    return r;
}

static int work(void *arg)
{
    weir_store *store = *(weir_store **)arg;
    int r = 0;

    for (unsigned turn = 0; r == 0; turn++) {
        const weir_lease_spec spec = {
            .queue = queues[turn % QUEUES], .worker = "w", .count = 1, .lease_ms = LEASE_MS};
        weir_job job;
        int leased = 0;

        WEIR_DEADLINE(30) leased = weir_job_lease(store, &spec, &job);
        if (leased <= 0) {
            r = later(leased);
            continue;
        }
        if (weir_sim_choose(6) != 1) r = weir_job_ack(store, job.id, job.token, NULL, 0);
        weir_job_free(&job);
        if (r == -ESTALE || r == -ENOENT) r = 0;
        r = later(r);
    }
    return r;
}

static int relay(weir_store *store, weir_scope *scope)
{
    static const weir_pool_class classes[] = {{.name = "all", .weight = 1, .queue_max = 8}};
    weir_outbox_spec spec = {.name = "orders",
                             .store = store,
                             .peek = peek,
                             .done = done,
                             .on_refused = refused,
                             .batch_max = BATCH,
                             .poll_ms = 50,
                             .retry_ms_max = 100,
                             .window_ms = HOUR_MS};
    weir_outbox *outbox;
    int r = 0, closed;

    if (weir_sim_choose(2) == 1)
        r = weir_pool_open(scope,
                           &(weir_pool_spec){.name = "database",
                                             .threads_max = 1,
                                             .overflow = WEIR_WAIT,
                                             .on_close = WEIR_DRAIN,
                                             .classes = classes,
                                             .class_count = 1},
                           &spec.pool);
    if (r == 0) r = weir_outbox_open(scope, &spec, &outbox);
    if (r < 0) return r;
    r = commit_rows(outbox);
    for (int ended = 1; r == 0 && ended != 0;) {
        r = weir_outbox_drain(outbox);
        if (r < 0) break;
        ended = look_at_end(store);
        r = ended < 0 ? later(ended) : weir_sleep(20);
    }
    closed = weir_outbox_close(outbox);
    return r < 0 ? r : closed;
}

static int use_store(weir_store *store)
{
    int r, closed = 0;

    r = weir_queue_set(
        store,
        &(weir_queue_spec){.name = queues[1], .depth_max = NARROW_DEPTH, .overflow = WEIR_REJECT});
    if (r < 0) return r;
    WEIR_SCOPE(scope, &closed, .name = "relay", .on_failure = WEIR_FAIL_FAST, .max_tasks = 4,
               .overflow = WEIR_REJECT) {
        r = weir_spawn(scope, work, &store, sizeof store);
        if (r == 0) r = relay(store, scope);
        weir_scope_cancel(scope, 0, "all is done");
    }
    if (r == 0) life.is_done = true;
    return r;
}

static int live(weir_scope *scope)
{
    const weir_store_spec spec = {.name = "work",
                                  .path = "/store",
                                  .create = true,
                                  .durability = WEIR_SYNCED,
                                  .memory_bytes_max = 16 << 20,
                                  .queue_depth_max = 100,
                                  .queue_overflow = WEIR_REJECT,
                                  .payload_bytes_max = PAYLOAD_BYTES,
                                  .result_bytes_max = 1024,
                                  .history_ms = MONTH_MS,
                                  .history_count_max = 1000};
    const struct store_sizes sizes = {
        .segment_bytes = 384 * 1024, .buffer_bytes = 448 * 1024, .record_bytes_max = 216 * 1024};
    weir_store *store = NULL;
    int r = store_open(scope, &spec, &sizes, &store), closed;

    if (r == -EBADMSG || r == -EBUSY || r == WEIR_EREFUSED || r == -ENOENT)
        weir_sim_fail("the store cannot be opened: %s", weir_why());
    if (r < 0) return r;
    r = look_at_rows(store);
    if (r == 0 && !life.looks_only) r = use_store(store);
    closed = weir_store_close(store);
    if (r == 0) r = closed;
    if (r == 0 && life.looks_only) life.is_over = true;
    return r;
}

static int host_main(void *arg)
{
    int r = 0, closed = 0;

    (void)arg;
    host_begins(&life);
    WEIR_DEADLINE(PATIENCE_MS) {
        WEIR_SCOPE(scope, &closed, .name = "host", .on_failure = WEIR_FAIL_FAST, .max_tasks = 4,
                   .overflow = WEIR_REJECT) {
            r = live(scope);
        }
    }
    if (r == WEIR_ETIMEDOUT || closed == WEIR_ETIMEDOUT) weir_sim_fail("there is no end");
    return r < 0 ? r : closed;
}

static int outbox_program(void *arg)
{
    static const weir_config config = {.workers = 1};

    (void)arg;
    return host_live(&life, host_main, &config);
}

/* ---- The tests ---- */

#define STORE_OUTBOX_TEST(name_, ...)                                                       \
    TEST_WITH(name_, .timeout_ms = 600000)                                                  \
    {                                                                                       \
        weir_test_sim(&(weir_sim_spec){.name = #name_, __VA_ARGS__}, outbox_program, NULL); \
    }

STORE_OUTBOX_TEST(store_outbox_makes_one_job_of_a_row, .runs_max = 1500, .begin = begin)
STORE_OUTBOX_TEST(store_outbox_makes_one_job_through_power_cuts, .runs_max = 4000, .begin = begin,
                  .faults = {.kill = 500})
STORE_OUTBOX_TEST(
    store_outbox_makes_one_job_when_disks_fail, .runs_max = 3000, .begin = begin,
    .faults = {.kill = 200, .disk_error = 150, .disk_full = 60, .sync_error = 80, .faults_max = 12})
STORE_OUTBOX_TEST(store_outbox_makes_one_job_when_all_goes_wrong, .runs_max = 1500, .begin = begin,
                  .any_result = true,
                  .faults = {.kill = 300,
                             .disk_error = 200,
                             .disk_full = 100,
                             .sync_error = 100,
                             .no_memory = 300,
                             .faults_max = 16})

/* ---- Bugs that are planted ---- */

PLANTED_CASE(OUTBOX_KEY_FORGOTTEN, outbox_program, .runs_max = 300, .begin = begin,
             .faults = {.kill = 200})
PLANTED_CASE(OUTBOX_DONE_TOO_EARLY, outbox_program, .runs_max = 1000, .begin = begin,
             .faults = {.kill = 200})
PLANTED_CASE(OUTBOX_FULL_IS_DONE, outbox_program, .runs_max = 300, .begin = begin)

/* outbox_stand.c - what the tests of relays share. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "unit/store/log_test.h"
#include "unit/store/outbox_test.h"

void set_depth(weir_store *store, const char *queue, uint32_t depth)
{
    weir_queue_spec spec = {.name = queue, .depth_max = depth, .overflow = WEIR_REJECT};
    CHECK_OK(weir_queue_set(store, &spec));
}

void table_add(struct user_table *table, int count, const char *queue, enum fault fault)
{
    for (int i = 0; i < count; i++) {
        CHECK_INT(table->count, <, ROWS_MAX);
        table->rows[table->count++] =
            (struct order){.number = table->next++, .queue = queue, .fault = fault};
    }
}

static int table_peek(void *keep_arg, weir_outbox_row *ret_rows, size_t max)
{
    static const char large[PAYLOAD_BYTES_MAX + 1];
    struct user_table *table = keep_arg;
    size_t count = table->count < max ? table->count : max;
    int r;

    if (table->peeks < 64) {
        table->peek_ns[table->peeks] = weir_now_ns();
        table->peek_counts[table->peeks] = table->count;
    }
    table->peeks++;
    if (weir_worker_index() >= 0) table->on_worker = true;
    if (table->peeked) weir_event_set(table->peeked);
    if (table->gate && (r = weir_event_wait(table->gate)) < 0) return r;
    if (table->closes_itself) {
        CHECK_INT(weir_outbox_close(table->closes_itself), ==, WEIR_EREFUSED);
        CHECK_CONTAINS(weir_why(), "closed by its own task");
    }
    if (table->says_too_many) return table->says_too_many;
    if (table->peek_failures > 0) {
        table->peek_failures--;
        return -EIO;
    }
    for (size_t i = 0; i < count; i++) {
        const struct order *order = &table->rows[i];
        weir_outbox_row *row = &ret_rows[i];
        CHECK_INT(row->key[0], ==, 0);
        if (order->fault != NO_KEY) (void)snprintf(row->key, sizeof row->key, "%d", order->number);
        row->job = (weir_job_spec){.queue = order->fault == NO_QUEUE ? NULL : order->queue,
                                   .kind = "mail",
                                   .payload = large,
                                   .payload_bytes = order->fault == TOO_LARGE ? sizeof large : 8,
                                   .idempotency_key = order->fault == OWN_KEY ? "mine" : NULL,
                                   .idempotent = WEIR_YES};
    }
    return (int)count;
}

static int table_done(void *keep_arg, const weir_outbox_row *rows, size_t count)
{
    struct user_table *table = keep_arg;

    table->dones++;
    if (weir_worker_index() >= 0) table->on_worker = true;
    if (table->done_failures > 0) {
        table->done_failures--;
        return -EIO;
    }
    if (table->done_forgets_nothing) return 0;
    for (size_t i = 0; i < count; i++) {
        size_t at = 0;
        if (rows[i].key[0])
            while (at < table->count && table->rows[at].number != atoi(rows[i].key)) at++;
        else
            while (at < table->count && table->rows[at].fault != NO_KEY) at++;
        CHECK_INT(at, <, table->count); /* no row is marked twice */
        table->count--;
        memmove(&table->rows[at], &table->rows[at + 1],
                (table->count - at) * sizeof table->rows[0]);
    }
    return 0;
}

static bool table_refused(void *keep_arg, const weir_outbox_row *row, int error, const char *why)
{
    struct user_table *table = keep_arg;

    table->refusals++;
    table->last_refused = atoi(row->key);
    table->refused_error = error;
    if (weir_worker_index() >= 0) table->on_worker = true;
    (void)snprintf(table->why, sizeof table->why, "%s", why);
    if (table->makes_room) set_depth(table->makes_room, "small", 100);
    return table->gives_up;
}

/* ---- A store and a table in a runtime ---- */

static int bench_open_store(struct bench *bench)
{
    return weir_store_open(bench->scope,
                           &(weir_store_spec){.name = "work",
                                              .path = bench->path,
                                              .create = true,
                                              .durability = WEIR_SYNCED,
                                              .memory_bytes_max = 16 << 20,
                                              .payload_bytes_max = PAYLOAD_BYTES_MAX,
                                              .segment_bytes = WEIR_STORE_SEGMENT_BYTES_MIN,
                                              .queue_depth_max = 1000,
                                              .queue_overflow = WEIR_REJECT},
                           &bench->store);
}

static int bench_task(void *arg)
{
    struct bench *bench = arg;
    int result = 0, r = WEIR_ECANCELED;

    WEIR_DEADLINE((int64_t)20000 * test_slower()) {
        WEIR_SCOPE(scope, &result, .name = "bench", .on_failure = WEIR_COLLECT, .max_tasks = 64,
                   .overflow = WEIR_REJECT) {
            bench->scope = scope;
            r = bench_open_store(bench);
            if (r >= 0) {
                bench->spec.store = bench->store;
                r = bench->body(bench);
            }
            /* Whatever has a relay has closed it, or its scope. */
            if (bench->store) {
                int closed = weir_store_close(bench->store);
                if (r >= 0) r = closed;
            }
            bench->store = NULL;
        }
    }
    return r < 0 ? r : result;
}

void bench_make(struct bench *bench)
{
    (void)snprintf(bench->path, sizeof bench->path, "%s/weir-test-XXXXXX",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    CHECK(mkdtemp(bench->path) != NULL);
    memset(&bench->table, 0, sizeof bench->table);
    bench->spec = (weir_outbox_spec){.name = "orders",
                                     .peek = table_peek,
                                     .done = table_done,
                                     .on_refused = table_refused,
                                     .keep_arg = &bench->table,
                                     .batch_max = 16,
                                     .poll_ms = HOUR_MS,
                                     .retry_ms_max = 100,
                                     .window_ms = HOUR_MS};
}

int bench_run(struct bench *bench)
{
    bench->store = NULL;
    return weir_run(&(weir_config){.workers = test_workers(), .log_level = WEIR_LOG_OFF},
                    bench_task, bench);
}

int bench_run_once(struct bench *bench)
{
    int r;

    bench_make(bench);
    r = bench_run(bench);
    folder_remove_all(bench->path);
    return r;
}

uint64_t jobs_in(struct bench *bench)
{
    weir_store_figures figures;
    weir_store_figures_of(bench->store, &figures);
    return figures.jobs;
}

weir_outbox_figures figures_of(weir_outbox *outbox)
{
    weir_outbox_figures figures;
    weir_outbox_figures_of(outbox, &figures);
    return figures;
}

weir_outbox *bench_open(struct bench *bench)
{
    weir_outbox *outbox = NULL;
    CHECK_OK(weir_outbox_open(bench->scope, &bench->spec, &outbox));
    return outbox;
}

/* outbox.h - jobs for data that lives elsewhere: exactly one for each row of an outbox.
 *
 * A program writes its own data and, in the same transaction of its own database, a row into an
 * outbox: never a job before the data is committed, never data without its job. A relay reads the
 * rows, enqueues a job for each with the row's key as idempotency key, and marks them done:
 *
 *     peek ──▶ enqueue (synced; a row that was enqueued before is a duplicate) ──▶ mark done
 *
 * A crash between any two steps repeats them; the idempotency key, NAME/KEY, makes that one job as
 * long as a row is marked within `window_ms` from when it became a job. A job is kept in the store
 * for so long, also when it has ended. Keys are known by queue: a row names the same queue whenever
 * it is read.
 *
 *     r = weir_outbox_open(scope, &(weir_outbox_spec){.name = "orders", .store = store,
 *                          .peek = peek, .done = done, .on_refused = refused, .keep_arg = &shop,
 *                          .pool = pool, .batch_max = 64, .poll_ms = 1000, .retry_ms_max = 30000,
 *                          .window_ms = 24 * 3600 * 1000}, &outbox);
 *
 * Owner: a scope. Lifetime: until closed, or the scope ends or stops. Backpressure: `batch_max`
 * rows at a time; a queue or store that is full makes the relay wait, and the rows stay where they
 * are; rows of other queues in the same batch go on. Failure: an error of peek or done, or of the
 * store, is counted, logged and tried again after a time that doubles from WEIR_OUTBOX_RETRY_MS up
 * to `retry_ms_max`; a row whose job is refused for what it says goes to `on_refused`. When the
 * store or the pool is closed, or the store has stopped, the relay's task fails with that error.
 * Threads: tasks of the runtime, on any worker.
 */
#ifndef WEIR_OUTBOX_H
#define WEIR_OUTBOX_H

#include <weir/defs.h>
#include <weir/error.h>
#include <weir/jobs.h>
#include <weir/pool.h>

WEIR_BEGIN

typedef struct weir_outbox weir_outbox;

#define WEIR_OUTBOX_BATCH_MAX 128
#define WEIR_OUTBOX_KEY_BYTES_MAX 100
#define WEIR_OUTBOX_WINDOW_MS_MIN (3600 * 1000LL)
#define WEIR_OUTBOX_RETRY_MS 50
#define WEIR_OUTBOX_ENQUEUE_MS_MAX 30000 /* after that it is a failure, and tried again */

/* A row: its key, unique in the outbox for ever, and the job. */
typedef struct weir_outbox_row {
    char key[WEIR_OUTBOX_KEY_BYTES_MAX + 1];
    weir_job_spec job; /* without idempotency key; always synced. What it points to stays valid
                          until the next peek, or the end of the relay */
} weir_outbox_row;

/* The oldest rows that are not done, at most `max`: how many, or an error. `ret_rows` are zeroed
 * before. */
typedef int (*weir_outbox_peek_fn)(void *keep_arg, weir_outbox_row *ret_rows, size_t max);
/* These rows are jobs now, or were given up: forget them, in one transaction. 0 or an error. Rows
 * that are forgotten already are no error. */
typedef int (*weir_outbox_done_fn)(void *keep_arg, const weir_outbox_row *rows, size_t count);
/* A row that is refused for what it says (error: why). True: it is given up, mark it done; false:
 * it stays, and is tried again at the next look. One that stays takes a place in each batch. */
typedef bool (*weir_outbox_refused_fn)(void *keep_arg, const weir_outbox_row *row, int error,
                                       const char *why);

/* name, store, peek, done, on_refused, batch_max, poll_ms, retry_ms_max and window_ms must be
 * said. */
typedef struct weir_outbox_spec {
    const char *name;  /* copied, at most 31 bytes without '/'; part of the keys: keep it */
    weir_store *store; /* outlives the relay */
    weir_outbox_peek_fn peek;
    weir_outbox_done_fn done;
    weir_outbox_refused_fn on_refused;
    void *keep_arg;  /* with a pool it outlives that, too: a call that runs there when the relay is
                        cancelled goes on to its end */
    weir_pool *pool; /* where the three are called, as a database's calls block; outlives the relay.
                        NULL: in the relay's own task */
    unsigned pool_class;
    size_t batch_max;     /* to WEIR_OUTBOX_BATCH_MAX */
    int64_t poll_ms;      /* how long it waits when there is nothing, unless weir_outbox_ring */
    int64_t retry_ms_max; /* at least WEIR_OUTBOX_RETRY_MS */
    int64_t window_ms;    /* of idempotency keys: WEIR_OUTBOX_WINDOW_MS_MIN to three years */
    size_t stack_bytes;   /* of the relay's task; default: the scope's */
} weir_outbox_spec;

/* weir_outbox_spec_init - set every member to "not said". */
static inline void weir_outbox_spec_init(weir_outbox_spec *spec)
{
    memset(spec, 0, sizeof *spec);
}

/* weir_outbox_open(scope, &spec, &outbox) - the relay begins at once. Errors: WEIR_EREFUSED
 * (weir_why), WEIR_ECANCELED, WEIR_EOVERLOAD (the scope is full), WEIR_ENOTASK, -ENOMEM, -ENFILE.
 * Suspends only while the scope is full. Cancel: nothing moved. */
WEIR_SUSPENDS int weir_outbox_open_sized(weir_scope *scope, size_t spec_bytes, size_t row_bytes,
                                         const weir_outbox_spec *spec, weir_outbox **ret_outbox);
#define weir_outbox_open(scope, ...) \
    weir_outbox_open_sized((scope), sizeof(weir_outbox_spec), sizeof(weir_outbox_row), __VA_ARGS__)

/* weir_outbox_ring - there are new rows: look now. A relay that waits after a failure, or for room,
 * waits on. Never suspends. */
WEIR_API void weir_outbox_ring(weir_outbox *outbox);

/* weir_outbox_drain - look now, and wait until there are no rows left but those that on_refused
 * keeps. Suspends and needs a deadline. Cancel: nothing moved. Errors: WEIR_ECLOSED (the relay
 * ends), or the error with which it has ended. */
WEIR_SUSPENDS int weir_outbox_drain(weir_outbox *outbox);

typedef struct weir_outbox_figures {
    uint64_t relayed;    /* rows that became jobs, */
    uint64_t duplicates; /* ... and those that were jobs already */
    uint64_t refused;    /* by what they say; again each time */
    uint64_t failures;   /* of peek, done, on_refused or the store */
    uint64_t full;       /* looks that had to leave rows since a queue or the store was full */
    int last_error;      /* of these two; 0: there was none */
    bool ended;
} weir_outbox_figures;

/* weir_outbox_figures_of - the figures now. Never suspends. */
WEIR_API void weir_outbox_figures_of(weir_outbox *outbox, weir_outbox_figures *ret_figures);

/* weir_outbox_close - end the relay; rows that are not done stay in the outbox. Returns 0, or the
 * error with which it has ended before. Suspends until the look that it is at has ended. Cancel:
 * not cut short. Errors: WEIR_EREFUSED (called by the relay's own peek, done or on_refused),
 * WEIR_ENOTASK, WEIR_ECLOSED (another is closing it, as who calls it meanwhile is told). Takes
 * NULL. */
WEIR_SUSPENDS int weir_outbox_close(weir_outbox *take_outbox);

WEIR_END

#endif

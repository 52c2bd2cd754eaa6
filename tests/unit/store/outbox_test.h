/* outbox_test.h - a table of the user, a store in a folder of the test, and a relay between them.
 *
 *     OUTBOX_TEST(rows_become_jobs)
 *     {
 *         weir_outbox *outbox = bench_open(bench);
 *         table_add(&bench->table, 5, "mail", FINE);
 *         CHECK_OK(weir_outbox_drain(outbox));
 *         CHECK_INT(jobs_in(bench), ==, 5);
 *         return weir_outbox_close(outbox);
 *     }
 */
#ifndef WEIR_TESTS_UNIT_STORE_OUTBOX_TEST_H
#define WEIR_TESTS_UNIT_STORE_OUTBOX_TEST_H

#include <weir/weir.h>

#include "harness/test.h"
#include "store/outbox.h"

enum { ROWS_MAX = 512, HOUR_MS = 3600 * 1000, PAYLOAD_BYTES_MAX = 1024 };

/* What is wrong with a row. */
enum fault { FINE, NO_KEY, NO_QUEUE, OWN_KEY, TOO_LARGE };

struct order {
    int number;
    const char *queue;
    enum fault fault;
};

/* A table of the user's. It is written by the test and, while a look is at it, by the relay: the
 * calls of the outbox order both. */
struct user_table {
    struct order rows[ROWS_MAX];
    size_t count;
    int next;
    /* What the functions do. */
    int peek_failures, done_failures; /* so many times, with -EIO */
    bool done_forgets_nothing;
    bool gives_up;
    int says_too_many;
    weir_store *makes_room; /* when a row is refused, for the queue "small" */
    weir_event *peeked;     /* set by peek, if there is one; not on a pool */
    weir_event *gate;       /* peek waits for it, likewise */
    weir_outbox *closes_itself;
    /* What was seen. */
    int peeks, dones, refusals;
    int last_refused, refused_error;
    char why[OUTBOX_WHY_BYTES];
    bool on_worker; /* some call was made on a worker */
    int64_t peek_ns[64];
    size_t peek_counts[64]; /* rows that there were */
};

/* More rows, of the next numbers. */
void table_add(struct user_table *table, int count, const char *queue, enum fault fault);

struct bench {
    char path[64];
    struct user_table table;
    weir_store *store;
    weir_scope *scope;
    weir_outbox_spec spec;
    int (*body)(struct bench *bench);
};

/* A new folder, an empty table, and a spec of a relay that looks when it is rung. */
void bench_make(struct bench *bench);
/* Open the store in a runtime, run the body, close it. Again: with what is in the folder. */
int bench_run(struct bench *bench);
/* All of it, and remove the folder. */
int bench_run_once(struct bench *bench);

weir_outbox *bench_open(struct bench *bench);
uint64_t jobs_in(struct bench *bench);
weir_outbox_figures figures_of(weir_outbox *outbox);
void set_depth(weir_store *store, const char *queue, uint32_t depth);

#define OUTBOX_TEST(name_)                                         \
    static int outbox_body_##name_(struct bench *bench);           \
    TEST(name_)                                                    \
    {                                                              \
        static struct bench bench = {.body = outbox_body_##name_}; \
        CHECK_OK(bench_run_once(&bench));                          \
    }                                                              \
    static int outbox_body_##name_(struct bench *bench)

#endif

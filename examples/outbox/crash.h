/* crash.h - places at which the program kills itself, as a power switch would: for tests.
 *
 * A step is passed many times; the process ends, without cleaning up anything, when it is passed
 * for the n-th time.
 */
#ifndef WEIR_EXAMPLES_OUTBOX_CRASH_H
#define WEIR_EXAMPLES_OUTBOX_CRASH_H

#include <stdatomic.h>
#include <stdbool.h>

enum crash_step {
    CRASH_NEVER,
    CRASH_ORDER_WRITTEN, /* in the transaction: the order is written, its row is not */
    CRASH_ROW_WRITTEN,   /* in the transaction: both are */
    CRASH_COMMITTED,
    CRASH_PEEKED,   /* rows were read */
    CRASH_ENQUEUED, /* their jobs are durable, and nothing is marked */
    CRASH_MARKING,  /* in the transaction that marks them */
    CRASH_MARKED,
    CRASH_LEASED,  /* a worker has a job, */
    CRASH_MAILING, /* ... is in the transaction that sends its mail, */
    CRASH_MAILED,  /* ... has sent it and said nothing yet, */
    CRASH_ACKED,   /* ... has said so */
    CRASH_STEPS,
};

struct crash {
    enum crash_step step;
    int after;
    atomic_int passed;
};

/* "enqueued" and so on; false: there is no such step. */
bool crash_step_from(const char *name, enum crash_step *ret_step);
/* All their names, with spaces between. */
const char *crash_step_names(void);
/* Any thread. */
void crash_at(struct crash *crash, enum crash_step step);

#endif

/* outbox.h - a relay from the inside.
 *
 *     OPEN ──told: close, dismissed──▶ TOLD ──its task has left──▶ ENDED
 *       └── failed, cancelled, its scope stops ──────────────────────▲
 *
 * Its task looks, again and again: peek, enqueue, mark done. Between two looks it is in `idle`,
 * from which a ring wakes it, or after a failure in `pauses`, from which it does not.
 *
 * Invariants: what lies below the line belongs to the task alone, the rest is covered by the
 * object's lock; a row is handed to `done` only after its job is synced, or on_refused gave it up;
 * rows of a queue that is full are left in their order; nobody waits in a relay that has ended.
 */
#ifndef WEIR_STORE_OUTBOX_H
#define WEIR_STORE_OUTBOX_H

#include <weir/outbox.h>
#include <weir/task.h>

#include "flow/wait.h"
#include "watch/metrics.h"

enum { OUTBOX_ID_BYTES = FLOW_NAME_BYTES + 1 + WEIR_OUTBOX_KEY_BYTES_MAX, OUTBOX_WHY_BYTES = 256 };
enum outbox_state { OUTBOX_OPEN, OUTBOX_TOLD, OUTBOX_ENDED };

_Static_assert(OUTBOX_ID_BYTES <= WEIR_JOB_NAME_BYTES_MAX + 1, "an idempotency key takes it");

/* What becomes of a row in this look. */
enum row_fate {
    ROW_LEFT,
    ROW_FULL, /* left: its queue has no room */
    ROW_RELAYED,
    ROW_DUPLICATE,
    ROW_GIVEN_UP,
};

/* A call of peek or done: a value, since a pool works on a copy of it. */
struct outbox_call {
    weir_outbox_peek_fn peek;
    weir_outbox_done_fn done;
    void *keep_arg;
    size_t count;
    int result;
    unsigned char rows[] __attribute__((aligned(16))); /* of row_bytes each */
};

/* A call of on_refused, likewise. */
struct outbox_refusal {
    weir_outbox_refused_fn on_refused;
    void *keep_arg;
    int error;
    bool gives_up;
    char why[OUTBOX_WHY_BYTES];
    unsigned char row[] __attribute__((aligned(16)));
};

/* A pool copies a whole batch, also of rows that have grown by a third. */
_Static_assert(sizeof(struct outbox_call) + WEIR_OUTBOX_BATCH_MAX * sizeof(weir_outbox_row) <
                   WEIR_POOL_DATA_BYTES_MAX * 3 / 4,
               "a batch is a pool's job");

struct outbox {
    struct flow_object object;
    void *handle; /* NULL once it was given up */
    weir_outbox_spec spec;
    weir_task task; /* its own, once it runs */
    enum outbox_state state;
    bool rung;           /* since the look that it is at began */
    bool given_up;       /* weir_outbox_close: free it when its task has ended */
    int result;          /* with which it has ended */
    uint64_t look_count; /* looks that have begun */
    struct list idle;
    struct list pauses;
    struct list drainers;  /* struct drain */
    struct list finishers; /* wait for its end */
    weir_outbox_figures figures;
    struct metered metered;

    /* ---- its task's ---- */
    void *memory; /* of all that follows */
    size_t row_bytes;
    size_t call_bytes;
    struct outbox_call *call;
    struct outbox_refusal *refusal;
    weir_job_spec *jobs;
    weir_enqueued *enqueued;
    char (*ids)[OUTBOX_ID_BYTES];
    enum row_fate *fates;
    bool is_over;         /* the store or the pool will not come back */
    unsigned stale_looks; /* one after the other that found nothing but duplicates */
    int64_t retry_ms;     /* waited after the last failure; 0: it went well */
};

/* A task that waits until there is nothing left: for a look that begins after its call. */
struct drain {
    struct waiter waiter;
    uint64_t look; /* that one, or a later one */
};

/* It orders what tasks hand to each other (a sanitizer in strict mode sees no lock). */
static inline void outbox_lock(struct outbox *outbox)
    LOCK_ACQUIRES(outbox->object.stable.lock, weir_no_park) LOCK_UNCHECKED
{
    flow_lock(&outbox->object);
    sanitize_acquire(outbox);
}

static inline void outbox_unlock(struct outbox *outbox)
    LOCK_RELEASES(outbox->object.stable.lock, weir_no_park) LOCK_UNCHECKED
{
    sanitize_release(outbox);
    flow_unlock(&outbox->object);
}

/* ---- outbox.c ---- */

enum {
    LOOK_IS_IDLE, /* there is nothing left but rows that on_refused keeps */
    LOOK_AGAIN,
    LOOK_LATER, /* not at once, although there may be more */
};
/* One look: LOOK_*, or an error. */
int outbox_look(struct outbox *outbox);

/* ---- outbox_life.c ---- */

enum { OUTBOX_RELAYED, OUTBOX_DUPLICATES, OUTBOX_REFUSED, OUTBOX_FAILURES, OUTBOX_FULL };
extern const struct meter_kind outbox_meter_kind;

#endif

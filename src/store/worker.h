/* worker.h - what runs jobs, from the inside.
 *
 *     main ──opens──▶ scope of services: settler, heartbeats
 *       └────opens──▶ scope of jobs: leaser, and a runner for each job
 *
 *     of a slot:  FREE ──leased──▶ HELD ──its runner begins──▶ RUNNING ──handler has ended──▶ ENDED
 *                  ▲                 └── no runner to be had ───────────────────────────▶ │
 *                  └──────────────── settled, or lost ────────────────────────────────────┘
 *     of a worker:  OPEN ──stop, order, failure, cancel──▶ STOPPING ──main has left──▶ ENDED
 *
 * Main is the one task in the program's scope, an attendant. It waits until it is told to stop, and
 * is the only one that touches the two scopes: a stop is weir_scope_stop of the scope of jobs,
 * which sends the leaser home and cancels runners after drain_ms; when that scope is closed the
 * services have nothing left to come, and end.
 *
 * Invariants, under the lock: a slot is in `free_slots`, or HELD or RUNNING and then in `renewals`
 * unless a heartbeat has it or its lease is lost, or ENDED and then in `ended` unless the settler
 * has it; `renewals` is sorted by renew_at_ns. A heartbeat has no slot while it asks the store:
 * when it comes back, the slot is the same lease's only if it has the token. Nothing is renewed
 * after its handler has ended: a settlement is tried again until that lease ends, and no longer.
 * A call (struct job_call) is its slot's, but for one whose thread of a pool did not end in time:
 * that one is the thread's, and the slot gets another.
 */
#ifndef WEIR_STORE_WORKER_H
#define WEIR_STORE_WORKER_H

#include <errno.h>
#include <weir/task.h>
#include <weir/worker.h>

#include "base/atomic.h"
#include "flow/meters.h"
#include "flow/wait.h"

enum {
    WORKER_RESULT_BYTES_DEFAULT = 4096,
    WORKER_HEARTBEATS_MAX = 32,
    WORKER_JOBS_PER_HEARTBEAT = WEIR_JOB_RENEW_MAX,
    WORKER_THEN_MAX = 16,
    WORKER_AT_ONCE_MAX = 64,    /* jobs of one lease, and of one settlement */
    WORKER_PAUSE_MS = 100,      /* after something that may be mended: memory, room */
    WORKER_PAUSE_MS_MAX = 1000, /* it doubles up to that */
    WORKER_QUIET_MS_MAX = 5000, /* then one that was told to be quiet looks again */
};

enum slot_state { SLOT_FREE, SLOT_HELD, SLOT_RUNNING, SLOT_ENDED };
enum worker_state { WORKER_OPEN, WORKER_STOPPING, WORKER_ENDED };

/* What a heartbeat has found out about a job. */
enum { TOLD_CANCELLED = 1 << 0, TOLD_LOST = 1 << 1 };

/* All that a handler is given, and what it has said. */
struct job_call {
    ATOM(unsigned) holders; /* the slot, and a thread of a pool */
    weir_handler_fn fn;
    void *deps;
    weir_job job; /* its memory, too */
    weir_job_outcome outcome;
    int returned;
    bool has_run; /* the handler has returned */
    size_t result_bytes_max;
    unsigned char result[] __attribute__((aligned(16)));
};

/* How a job is settled. */
struct verdict {
    enum weir_settle how; /* WEIR_SETTLE_UNSET: not at all, the lease is left to end */
    int64_t delay_ms;
    bool snoozes;
    bool has_result; /* and jobs that follow */
    char error_class[64];
    char error_message[WEIR_OUTCOME_TEXT_BYTES];
};

struct job_slot {
    struct list node;    /* in free_slots, ended, or the settler's own */
    struct list renewal; /* in renewals, or by itself */
    struct job_worker *worker;
    struct job_call *call; /* NULL: a thread has it; made anew for the next job */
    enum slot_state state;
    uint64_t id, token;
    weir_task task; /* its runner, once that has begun */
    unsigned told;
    int64_t lease_until_ns; /* by our own clock */
    int64_t renew_at_ns;
    struct verdict verdict;
    int64_t settle_at_ns; /* not before */
    int64_t settle_pause_ms;
};

struct job_worker {
    struct flow_object object;    /* the first member */
    void *handle;                 /* NULL once it was given up */
    weir_worker_spec spec;        /* its strings are in `strings` */
    weir_job_kind *kinds;         /* of the handlers, for leases */
    char *strings;                /* handlers, kinds, then the text */
    struct job_slot *slots;       /* in one block with the next two */
    weir_job *leased;             /* the leaser's: WORKER_AT_ONCE_MAX */
    weir_settlement *settlements; /* the settler's: as many */
    struct metered metered;
    struct meter *run_meter; /* of the queue */

    /* ---- covered by the lock ---- */
    enum worker_state state;
    weir_task main;         /* once it runs */
    const weir_scope *jobs; /* to know its own tasks by; never looked into */
    bool closing;           /* weir_worker_close: who calls it is told how it ends */
    bool services_end;      /* nothing comes any more */
    int error;              /* why it cannot go on */
    int result;             /* with which it has ended */
    struct list free_slots;
    size_t free_count;
    struct list renewals;  /* the most urgent first */
    struct list ended;     /* slots to be settled */
    struct list mains;     /* main, while it waits to be stopped */
    struct list leasers;   /* the leaser, while it waits for a slot, or pauses */
    struct list beaters;   /* heartbeats */
    struct list settlers;  /* the settler */
    struct list finishers; /* wait for its end */
    weir_worker_figures figures;
};

/* It orders what tasks hand to each other (a sanitizer in strict mode sees no lock). */
static inline void worker_lock(struct job_worker *worker)
    LOCK_ACQUIRES(worker->object.stable.lock, weir_no_park) LOCK_UNCHECKED
{
    flow_lock(&worker->object);
    sanitize_acquire(worker);
}

static inline void worker_unlock(struct job_worker *worker)
    LOCK_RELEASES(worker->object.stable.lock, weir_no_park) LOCK_UNCHECKED
{
    sanitize_release(worker);
    flow_unlock(&worker->object);
}

extern const struct meter_kind worker_meter_kind;
extern const struct meter_kind job_run_meter_kind;

/* ---- worker.c ---- */

/* Drain it, or, with an error, end it at once. Not under the lock; may be repeated. */
void worker_stop(struct job_worker *worker, int error);
/* Whether the store can be called: a program may have closed it before its worker. */
static inline bool worker_has_store(const struct job_worker *worker)
{
    return handle_object(worker->spec.store, HANDLE_STORE) != NULL;
}
/* What the store wants it to do, besides what renewals say of single jobs: bits of WEIR_GO_*. */
unsigned worker_orders(const struct job_worker *worker);
/* Main has left, with this result: everybody who waits is told. */
void worker_end(struct job_worker *worker, int result);

/* Something that may be gone in a while: memory, room, threads. */
static inline bool worker_may_retry(int error)
{
    return error == -ENOMEM || error == -ENOSPC || error == -ENOBUFS || error == -EAGAIN ||
           error == WEIR_EOVERLOAD;
}

/* What comes before the lock is taken to wait: 0, or the interruption in force. Suspends. */
int worker_enter(const struct wait_kind *kind);
/* Park in one of the worker's lists until woken, for `ms` at most (WEIR_FOREVER: without an end).
 * Enters with the lock held and leaves without it. 0: woken, or the time is over. */
int worker_park(struct job_worker *worker, struct list *list, const struct wait_kind *kind,
                int64_t ms) LOCK_RELEASES(worker->object.stable.lock, weir_no_park) LOCK_UNCHECKED;
/* From now to then, rounded up: at least 1. */
int64_t worker_ms_until(int64_t at_ns);
extern const struct wait_kind worker_wait_work; /* a stop interrupts it */
extern const struct wait_kind worker_wait_service;

/* ---- worker_run.c ---- */

/* The task of the worker's own; its argument is a pointer to it. */
int worker_main(void *arg);

/* ---- worker_settle.c ---- */

/* What is to become of the slot's job, after its handler. `interrupted`: its task was. */
void worker_judge(struct job_slot *slot, bool interrupted);
/* It goes to the settler, or, if there is nothing to settle, is free. Not under the lock. */
void worker_hand_in(struct job_slot *slot);
int worker_settler(void *arg);
/* The services have ended: what was not settled is lost. */
void worker_lose_rest(struct job_worker *worker);

/* ---- worker_call.c ---- */

struct job_call *call_new(const weir_worker_spec *spec);
/* Give back the job and what its handler has made; the call is ready for the next one. */
void call_clear(struct job_call *call);
/* Takes NULL. */
void call_free(struct job_call *take_call);
/* Run the handler of the slot's job. 0: it has returned, and said what it has to say in the call;
 * else why it did not: then the verdict says what to do. Suspends. */
int worker_call(struct job_slot *slot);

/* ---- worker_helper.c ---- */

/* In place of the memory of an outcome: it is a helper's, and can have no jobs that follow. */
#define OUTCOME_OF_HELPER ((void *)(uintptr_t)1)

/* The same in a helper process. */
int worker_call_process(struct job_slot *slot);
/* Whether the pool's answers are large enough for this worker's results. */
int worker_check_processes(const weir_worker_spec *spec);

#endif

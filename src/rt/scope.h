/* scope.h - what a scope is inside.
 *
 *     OPEN ──close──▶ CLOSING ──last task ended, belongings gone──▶ CLOSED
 *
 * Signals (cancelled, expired, stopping) are independent of that and only ever
 * added. The scope's lock covers everything below the line in the struct; with
 * one worker it is left out.
 *
 * Invariants: `live` counts the children plus the slots granted to waiting
 * spawners, and `attendants` is never more; children_signals is what block_refresh
 * last found in force, plus what was signalled directly; the memory is type-stable
 * and the lock is never destroyed while the runtime lives, so that a late unlock is
 * harmless.
 */
#ifndef WEIR_RT_SCOPE_H
#define WEIR_RT_SCOPE_H

#include <weir/scope.h>

#include "base/list.h"
#include "rt/block.h"
#include "rt/boundary.h"
#include "rt/lock.h"
#include "rt/mail.h"
#include "rt/runtime.h"
#include "rt/task.h"

enum { SCOPE_NAME_BYTES = 64, SCOPE_RESTARTS_MAX = 1000, SCOPE_FAILURES_KEPT_MAX = 65536 };

enum scope_state { SCOPE_FREE, SCOPE_OPEN, SCOPE_CLOSING, SCOPE_CLOSED };

/* Something that lives on one worker and ends with the scope: a timer, an idle
 * wait, a postbox. `signalled` and `release` run on `worker`. */
struct belonging;
struct belonging_kind {
    const char *name;
    /* The scope's signals have changed. May remove the belonging. */
    void (*signalled)(struct worker *worker, struct belonging *belonging, uint8_t signals);
    /* The scope ends: let go, and call scope_forget. */
    void (*release)(struct worker *worker, struct belonging *belonging);
    void (*describe)(const struct belonging *belonging, char *text, size_t bytes);
    /* What it declares and does, for the map: its row `row` (most kinds have only row 0);
     * false: there is no such row. `ret_boundary` is zeroed before, but for what the map
     * knows itself. The scope's lock may be held. Every kind has one (scope_own). */
    bool (*boundary)(struct belonging *belonging, unsigned row, struct boundary *ret_boundary);
    /* The scope is being closed, and nobody is left in it but attendants: those of this
     * one, the newest, are to finish what they have and end. May be NULL without any. */
    void (*dismissed)(struct worker *worker, struct belonging *belonging);
    /* Whether it only ever does what tasks ask it for: nothing outside (time, a descriptor,
     * another thread) acts through it. NULL: it may. All workers stand still. */
    bool (*is_passive)(const struct belonging *belonging);
};
/* For kinds that always are. */
bool belonging_is_passive(const struct belonging *belonging);
struct belonging {
    struct list node; /* in scope->belongings */
    weir_scope *scope;
    struct worker *worker;
    const struct belonging_kind *kind;
    struct mail mail;
    ATOM(uint8_t) mail_bits;
    uint32_t attendants; /* tasks that serve it; covered by the scope's lock */
};
enum {
    BELONGING_SIGNALLED = 1 << 0,
    BELONGING_RELEASE = 1 << 1,
    BELONGING_FORGOTTEN = 1 << 2, /* gone, but mail is still under way */
    BELONGING_DISMISSED = 1 << 3,
};

struct weir_scope {
    struct block block;
    ATOM(uint8_t) state; /* enum scope_state */
    bool shared;         /* the runtime has more than one worker */
    weir_runtime *runtime;
    struct worker *home; /* worker of the opener */
    struct task *opener; /* NULL: the root scope */
    const char *where;
    struct timer deadline; /* armed when its deadline is its own */
    struct timer grace;
    bool own_deadline;
    enum weir_failure_policy on_failure;
    enum weir_overflow overflow;
    enum weir_place place;
    unsigned size_class;
    bool special; /* supervised, or stacks of another size than the default */
    size_t max_tasks;
    weir_restart restart;
    char name[SCOPE_NAME_BYTES];

    /* ---- covered by the lock ---- */
    struct lock lock;
    struct list children; /* tasks alive */
    struct list ended;    /* tasks whose handle was not joined yet */
    size_t live;
    size_t attendants;    /* those of `live` that serve a belonging: nobody waits for them */
    struct list spawners; /* struct spawn_wait, first come first served */
    bool room_wanted;     /* a postbox found the scope full */
    bool posts_turn;      /* whose turn it is when spawners wait as well */
    struct list belongings;
    size_t interrupted;  /* tasks that a cancellation ended */
    struct task *joiner; /* the opener, waiting in join or close */
    ATOM(uint8_t) children_signals;
    enum weir_cause cause; /* of the first cancel; written before the signal */
    int cancel_error;
    const char *cancel_why;
    char cancel_name[32]; /* of the task whose failure was the cause */
    int first_error;
    size_t failures_total;
    size_t failures_count;
    size_t failures_kept;
    weir_failure *failures; /* allocated with the first one */
    int64_t *restart_times; /* ring of restart.max_restarts */
    unsigned restart_head;
    unsigned restart_count;
    bool cut_off_reported;
    int64_t stop_at_ns; /* end of the grace period */
    int64_t stop_grace_ms;
    struct mail mail; /* asks the home worker to arm the grace timer */
    ATOM(uint8_t) mail_pending;
    struct weir_scope *free_next;
};

/* Left out with one worker. */
static inline void scope_lock(weir_scope *scope)
    LOCK_ACQUIRES(scope->lock, weir_no_park) LOCK_UNCHECKED
{
    lock_acquire_if(&scope->lock, scope->shared);
}

static inline void scope_unlock(weir_scope *scope)
    LOCK_RELEASES(scope->lock, weir_no_park) LOCK_UNCHECKED
{
    lock_release_if(&scope->lock, scope->shared);
}

/* The scope's spec, checked: 0 or WEIR_EREFUSED. */
int scope_check_spec(const weir_scope_spec *spec);

/* Open under `opener` (NULL: the root scope). */
int scope_open(struct worker *worker, struct task *opener, const char *where,
               const weir_scope_spec *spec, weir_scope **ret_scope);

/* Give the memory back; all tasks and belongings are gone. */
void scope_release(struct worker *worker, weir_scope *scope);

/* Add signals with their cause, and tell everybody below. Not under the lock. */
void scope_signal(weir_scope *scope, uint8_t signals, enum weir_cause cause, int error,
                  const char *why);

/* The same with the lock held; the caller delivers local mail after letting go. */
void scope_signal_locked(weir_scope *scope, uint8_t signals, enum weir_cause cause, int error,
                         const char *why);

/* Wake the opener if it waits and there is nothing left. The lock is held. */
void scope_settle(weir_scope *scope);

/* Hand on what is in force in the scope's own block; by block_refresh. */
void scope_hand_on(struct worker *worker, weir_scope *scope);

/* What close returns, as far as it is known. */
int scope_result(weir_scope *scope);

/* Accounting of a task: its entry, and its end. Entry parks `self` while the scope is
 * full and its overflow is WEIR_WAIT; `self` is NULL in callbacks, which get
 * WEIR_EOVERLOAD. `posted`: also into a cancelled scope, and when it is full its
 * postboxes are signalled as soon as there is room. */
int scope_admit(weir_scope *scope, struct task *self, struct task *task, bool posted);
void scope_task_ended(struct worker *worker, weir_scope *scope, struct task *task);

/* A postbox that was signalled has taken the room it wanted: the rest is for the
 * spawners that wait. */
void scope_offer_room(weir_scope *scope);

/* Belongings. Add on the belonging's worker; forget on it too: false if mail is
 * still under way, then the kind's `release` is called again to free the memory. */
int scope_own(weir_scope *scope, struct worker *worker, struct belonging *belonging,
              const struct belonging_kind *kind);
bool scope_forget(struct belonging *belonging);
/* Tell it something (BELONGING_*) on its worker. The scope's lock is held. */
void belonging_mail(struct belonging *belonging, uint8_t bits);

/* The calling task of the belonging's scope serves it (an actor's, a stage's) until it
 * leaves, which is the last thing it does. A join does not wait for it; a close dismisses
 * it when all others have ended, the newest belonging first. */
void scope_attend(struct belonging *belonging);
void scope_attend_end(struct belonging *belonging);

/* Ask every belonging to let go, on its worker. */
void scope_release_belongings(weir_scope *scope);

/* Abort the program if `scope` is not an open one. */
_Noreturn void scope_misused(const weir_scope *scope, const char *call);
static inline void scope_check(const weir_scope *scope, const char *call)
{
    if (__builtin_expect(!scope, 0)) scope_misused(scope, call);
    uint8_t state = atom_load(&scope->state);
    if (__builtin_expect(state != SCOPE_OPEN && state != SCOPE_CLOSING, 0)) {
        scope_misused(scope, call);
    }
    if (worker_current && __builtin_expect(worker_current->runtime != scope->runtime, 0)) {
        scope_misused(scope, call);
    }
}

#endif

/* task.h - what a task is inside.
 *
 *            spawn             first run            park / wake
 *     FREE ───────▶ NEW ───────────────▶ RUNNING ◀────────────▶ PARKED
 *      ▲             ▲                    │   ▲                   │ wake
 *      │             │ backoff ends       │   └───── READY ◀──────┘
 *      │          BACKOFF ◀───────────────┤ failed, supervised
 *      └─────────── ENDED ◀───────────────┘ returned
 *            joined, or scope closed
 *
 * task_set_state() is the only setter and checks every move against a table.
 *
 * Invariants: from its first run to its end a task is touched only on its worker,
 * except `mail` and what its scope's lock covers (sibling, joiner, result); its
 * memory is type-stable: a stale handle finds another id, never something else.
 */
#ifndef WEIR_RT_TASK_H
#define WEIR_RT_TASK_H

#include <assert.h>
#include <weir/task.h>

#include "base/atomic.h"
#include "base/list.h"
#include "rt/block.h"
#include "rt/mail.h"
#include "rt/sanitize.h"
#include "rt/stack.h"
#include "rt/switch.h"
#include "rt/waiting.h"

struct worker;
struct task;

enum task_state {
    TASK_FREE,
    TASK_NEW,
    TASK_READY,
    TASK_RUNNING,
    TASK_PARKED,
    TASK_BACKOFF,
    TASK_ENDED,
    TASK_STATES,
};

/* A kind of waiting: one constant per suspending call. */
struct wait_kind {
    const char *name; /* as the dump says it: "read", "join" */
    bool takes_work;  /* a stop interrupts it */
    /* Take the task out of what it waits in. True: done, nothing has moved. False: a
     * wake-up is already on its way and the wait must be left to it. NULL: this
     * wait cannot be interrupted. On the task's worker. */
    bool (*abort)(struct task *task, void *object);
    /* What it waits for, for the dump; may be NULL. The waiter does not run meanwhile,
     * but other workers may: locks are only tried. */
    void (*describe)(const void *object, char *text, size_t bytes);
    /* The same for programs: what is waited for, and who could end it (waiting.h). Not said:
     * something outside. `facts` may be NULL; `ret_waiting` has the kind's constants. All
     * workers stand still, and it takes no lock. */
    enum wait_for what;
    enum wait_ends ends;
    void (*facts)(const void *object, struct waiting *ret_waiting);
};

struct wait {
    const struct wait_kind *kind;
    void *object;
    int64_t since_ns; /* by the worker's clock of that turn */
};

/* What supervision needs to start a task again. */
struct restart_record {
    struct timer timer;
    struct task *task;
    int count; /* restarts in the current window, for the backoff */
    int total;
    int64_t last_ns;
    unsigned char pristine[]; /* the argument as it was given */
};

/* One value of a task local. Immutable and shared by all tasks that inherited it. */
struct local;

/* The context of a trace. Immutable and shared by all that work in it. */
struct trace_node;

enum {
    /* In strict mode none: a task's argument is memory of its own, not its predecessor's. */
    TASK_ARG_INLINE = WEIR_TSAN_STRICT ? 0 : 32,
    TASK_BUDGET = 128, /* suspending calls that need not wait, between two yields */
    /* What the budget is less by while there is something else to look at. */
    TASK_BUDGET_ATTENTION = 1 << 20,
};

/* Bits of attention beyond the signals in force. */
enum {
    ATTENTION_HOOK = 1 << 7, /* the kernel table wants to choose at each suspension */
    ATTENTION_HELD = 1 << 6, /* it holds locks, which are checked (checks.h) */
    ATTENTION_STAYS = ATTENTION_HOOK | ATTENTION_HELD, /* whatever the signals do */
};

/* Bits of mail_bits. */
enum {
    MAIL_START = 1 << 0, /* an unstarted task for this worker's queue */
    MAIL_WAKE = 1 << 1,
    MAIL_REFRESH = 1 << 2, /* signals have changed */
    MAIL_RELEASE = 1 << 3, /* ended while mail was under way: free it on delivery */
    MAIL_BUSY = 1 << 4,    /* being delivered */
};

struct task {
    /* The first line: what a switch touches. */
    struct switch_context context; /* where it goes on, while it is parked or ready */
    /* In a run queue: fresh, or behind the ring of `ready`. Else the task that ran after this one
     * when it parked last, or any other: a guess of park.h. */
    struct task *run_next;
    uint8_t state;
    uint8_t place;
    bool has_handle;
    bool ended;        /* covered by the scope's lock, unlike `state` */
    uint8_t attention; /* top->effective, and ATTENTION_STAYS: task_set_attention */
    bool has_extras;   /* something of the last line is set */
    uint8_t size_class;
    uint8_t target_worker;
    int budget; /* below 0 if `attention` is not 0: a call looks at this alone */
    int wake_result;
    struct block *top;
    ATOM(struct worker *) home; /* NULL before the first run */

    /* The second: what a cancellation looks at as well. */
    struct wait wait;
    struct stack *stack; /* NULL before the first run */
    struct block base;

    /* The third and fourth: its beginning and its end. */
    weir_scope *scope;
    struct list sibling; /* in scope->children, or scope->ended */
    struct mail mail;
    weir_task_fn fn;
    uint32_t arg_bytes;
    uint32_t open_scopes; /* that it has opened and not closed */
    ATOM(uint64_t) id;    /* 0 while free */
    void *arg;            /* inline_arg, or allocated (a copied name lies behind it) */
    ATOM(uint8_t) mail_bits;
    int result;
    const char *name;
    unsigned char inline_arg[TASK_ARG_INLINE] __attribute__((aligned(16)));

    /* The rest: what most tasks have nothing of. */
    struct local *locals __attribute__((aligned(64)));
    struct restart_record *restart;
    char *why; /* sentence of the last refusal, allocated on first use */
    const char *cancel_why;
    struct join_wait *joiner;    /* meaningless without a handle */
    struct held *held;           /* locks it has, the last first, if they are checked */
    int ignored;                 /* suspending calls that failed since it was cancelled */
    struct trace_node *trace;    /* in which context it works: watch/trace.h */
    struct trace_node *received; /* in which the last item was sent of a traced channel */
    struct sanitize_context sanitize;
} __attribute__((aligned(64)));

/* A task that waits for another one's end; on the waiter's stack. */
struct join_wait {
    struct task *waiter;
    struct task *target; /* NULL once it has ended */
    weir_scope *scope;   /* of the target */
    int result;
    /* Called instead of waking the waiter, on the target's worker, under its scope's
     * lock; may be NULL. False: the waiter does not want it any more, the handle stays. */
    bool (*ended)(struct join_wait *wait);
};

/* What task_join_begin may do. */
enum { JOIN_TAKES = 1, JOIN_WAITS = 2 };

/* Look at the task of a handle. 1: it has ended, and with JOIN_TAKES its result is in
 * `wait` and the handle is used up; 0: it has not, and with JOIN_WAITS `wait` is
 * registered; or an error. Never suspends. */
int task_join_begin(weir_task handle, struct join_wait *wait, unsigned may);
/* Take that back. False: the task has ended and `wait` was told. */
bool task_join_cancel(struct join_wait *wait);

/* Row r, bit s: a task may go from state r to state s. */
extern const uint8_t task_moves[TASK_STATES];

static inline void task_set_state(struct task *task, enum task_state state)
{
    assert(task_moves[task->state] & (1u << state));
    task->state = (uint8_t)state;
}

/* The same for a caller that knows where the task comes from: on hot paths. */
static inline void task_step_state(struct task *task, enum task_state from, enum task_state to)
{
    assert(task->state == from);
    task->state = (uint8_t)to;
}

/* On the task's worker, or before it has one. */
static inline void task_set_attention(struct task *task, uint8_t attention)
{
    if (task->attention == 0 && attention != 0) task->budget -= TASK_BUDGET_ATTENTION;
    if (task->attention != 0 && attention == 0) task->budget += TASK_BUDGET_ATTENTION;
    task->attention = attention;
}

/* It runs from here on. */
static inline void task_renew_budget(struct task *task)
{
    if (__builtin_expect(task->attention != 0, 0)) {
        __asm__(""); /* a branch that is not taken is less than to compute both */
        task->budget = TASK_BUDGET - TASK_BUDGET_ATTENTION;
    } else {
        task->budget = TASK_BUDGET;
    }
}

/* Park the running task until task_wake; returns the wake-up's result, or the
 * error of an interruption. The caller has already registered it with whatever
 * wakes it, and has called task_enter. */
int task_park(struct task *self, const struct wait_kind *kind, void *object);

/* Go to the end of the worker's queue; returns when it is run again. */
void task_yield(struct task *self);

/* Wake a parked task, from any worker: exactly once per park. */
void task_wake(struct task *task, int result);

/* Set mail bits; returns the old ones. With one worker nobody else can be at it. */
static inline unsigned task_mail_bits_add(bool shared, struct task *task, unsigned bits)
{
    unsigned old;
    if (shared) return atom_or(&task->mail_bits, (uint8_t)bits);
    old = atom_load(&task->mail_bits);
    atom_store(&task->mail_bits, (uint8_t)(old | bits));
    return old;
}

/* Delivers a task's mail, on its worker. */
void task_deliver_mail(struct worker *worker, struct mail *mail);

/* Tell a task that its signals changed; from any worker, its scope's lock held or
 * the task otherwise kept alive. Delivered by mail. */
void task_mail(struct task *task, unsigned bits);

/* The calling task, if there is one, looks at its signals now: mail to it may be under
 * way from another worker already, and what it calls next must not succeed once it has
 * been cancelled by itself. */
void task_refresh_self(void);

/* What a suspending call is about to do. */
enum task_entry {
    ENTER_PLAIN,
    ENTER_IO,        /* needs a deadline in force, or permission to have none */
    ENTER_TAKE_WORK, /* likewise, and a stop refuses it */
    ENTER_LOCK,      /* as plain; to have other locks meanwhile is a matter of their order */
};

/* May a wait begin here: does it end some time, or has somebody said that it need not? */
static inline bool task_wait_is_bounded(const struct task *self)
{
    return self->top->deadline_ns != INT64_MAX || self->top->no_deadline;
}

/* Begin a suspending call if there is nothing to look at: no signal, and no yield is due. */
static inline bool task_enter_at_once(struct task *self)
{
    if (__builtin_expect(--self->budget >= 0, 1)) return true;
    __asm__("" : "+m"(self->budget)); /* or the common case would keep the value for this one */
    self->budget++;                   /* it has not begun */
    return false;
}

/* Every suspending call begins with this: 0, or the error with which it fails. */
int task_enter_slow(struct task *self, enum task_entry entry);
static inline int task_enter(struct task *self, enum task_entry entry)
{
    if ((entry == ENTER_PLAIN || entry == ENTER_LOCK ||
         __builtin_expect(task_wait_is_bounded(self), 1)) &&
        task_enter_at_once(self)) {
        return 0;
    }
    return task_enter_slow(self, entry);
}

/* At a suspension point of a run whose kernel chooses: maybe cancel its target. */
void task_offer_cancel_point(void);

/* task_interruption for the running task, which is named if it ignores many. */
int task_interrupted(struct task *self, bool takes_work);

/* The error that the signals in force mean for a wait; 0 if it may go on. */
int task_interruption(const struct task *task, bool takes_work);

/* Make a task; the caller has room for it in the scope. WEIR_EOVERLOAD, -ENOMEM. */
int task_new(struct worker *worker, weir_scope *scope, const weir_task_spec *spec,
             bool name_is_constant, struct task **ret_task);

/* The task's function has returned: account for it in its scope. On its worker. */
void task_end(struct worker *worker, struct task *task);

/* Put the memory of a released task back for the next one. */
void task_free(struct worker *worker, struct task *task);

/* Give what a task that is in no list owns back, and its memory. On any worker. */
void task_release(struct worker *worker, struct task *task);

/* Run the task's function; the entry of every task's stack. */
void task_main(void *task);

/* Path of a scope for messages: "root/serve/request". */
void scope_path(const weir_scope *scope, char *text, size_t bytes);

/* Task locals: one more holder of a list of values, and one less. */
struct local *local_ref(struct local *local);
void local_unref(struct local *local);

/* Contexts of traces: the same. Provided by watch/trace.c; take NULL. */
struct trace_node *trace_ref(struct trace_node *node);
void trace_unref(struct trace_node *node);

#endif

/* block.c - nested blocks: what is in force, deadlines, shields. */
#include "rt/block.h"

#include <assert.h>
#include <stdio.h>
#include <weir/error.h>
#include <weir/scope.h>
#include <weir/task.h>

#include "base/planted.h"
#include "rt/runtime.h"
#include "rt/scope.h"
#include "rt/task.h"

uint8_t block_inherited(uint8_t outer)
{
    uint8_t in = outer & SIGNAL_STOPPING;
    if (outer & SIGNAL_INTERRUPTS) in |= SIGNAL_CANCELLED;
    return in;
}

static uint8_t in_force(const struct block *block, uint8_t outer)
{
    uint8_t own = atom_load_total(&block->own);
    uint8_t in = block_inherited(outer);

    if (block->kind == BLOCK_SHIELD && !(own & SIGNAL_EXPIRED)) in = 0;
    if (in & SIGNAL_CANCELLED) return in | (own & SIGNAL_STOPPING);
    return in | own;
}

static void set_attention(struct task *task)
{
    task_set_attention(task, task->top->effective | (task->attention & ATTENTION_STAYS));
}

void block_start_slow(struct task *task)
{
    task->base.effective = in_force(&task->base, atom_load_total(&task->scope->children_signals));
    task_set_attention(task, task->attention | task->base.effective);
}

void block_push(struct task *task, struct block *block)
{
    block->outer = task->top;
    task->top->inner = block;
    block->effective = in_force(block, task->top->effective);
    task->top = block;
    set_attention(task);
}

void block_pop(struct task *task, struct block *block)
{
    uint8_t before = task->attention;

    assert(task->top == block);
    task->top = block->outer;
    set_attention(task);
    /* What it was to end has ended. */
    if (before & SIGNAL_INTERRUPTS && !(task->attention & SIGNAL_INTERRUPTS)) task->ignored = 0;
}

static void interrupt_wait(struct worker *worker, struct task *task)
{
    const struct wait_kind *kind = task->wait.kind;
    int error;

    if (!kind->abort) return;
    error = task_interruption(task, kind->takes_work);
    if (error == 0 || !kind->abort(task, task->wait.object)) return;
    task->wake_result = error;
    sanitize_release(task);
    worker_ready(worker, task);
}

/* A task that waits for its restart has no stack and nothing to clean up: it ends. */
static void end_backoff(struct worker *worker, struct task *task)
{
    timer_disarm(worker, &task->restart->timer);
    sanitize_acquire(task); /* of its last run, which goes on to the scope */
    /* While the scope drains the failure it was to be restarted for is final. */
    if (task->attention & SIGNAL_INTERRUPTS) task->result = WEIR_ECANCELED;
    scope_task_ended(worker, task->scope, task);
}

void block_refresh(struct worker *worker, struct task *task)
{
    uint8_t outer = atom_load_total(&task->scope->children_signals);
    struct block *block = &task->base;

    for (;;) {
        uint8_t before = block->effective;
        block->effective = in_force(block, outer);
        outer = block->effective;
        if (block->kind == BLOCK_SCOPE && block->effective != before) {
            scope_hand_on(worker, container_of(block, weir_scope, block));
        }
        if (block == task->top) break;
        block = block->inner;
    }
    set_attention(task);
    if (task->state == TASK_PARKED) {
        interrupt_wait(worker, task);
    } else if (task->state == TASK_BACKOFF && task->base.effective) {
        end_backoff(worker, task);
    }
}

bool block_refresh_if_simple(struct worker *worker, struct task *task)
{
    if (task->state != TASK_PARKED || task->open_scopes > 0) return false;
    block_refresh(worker, task);
    return true;
}

void block_describe(const struct block *block, char *text, size_t bytes)
{
    const struct timed_block *timed = (const struct timed_block *)block;
    switch ((enum block_kind)block->kind) {
    case BLOCK_TASK: (void)snprintf(text, bytes, "the task itself"); return;
    case BLOCK_SCOPE: {
        const weir_scope *scope = (const weir_scope *)block;
        (void)snprintf(text, bytes, "scope '%s' opened at %s", scope->name, scope->where);
        return;
    }
    case BLOCK_DEADLINE: (void)snprintf(text, bytes, "WEIR_DEADLINE at %s", timed->where); return;
    case BLOCK_SHIELD: (void)snprintf(text, bytes, "WEIR_SHIELD at %s", timed->where); return;
    case BLOCK_NO_DEADLINE:
        (void)snprintf(text, bytes, "WEIR_NO_DEADLINE at %s", timed->where);
        return;
    }
}

static struct task *entering_task(const char *what, const char *where)
{
    struct task *self = task_self();
    if (!self) misuse("%s at %s is outside a task: blocks belong to tasks", what, where);
    return self;
}

static void deadline_passed(struct worker *worker, struct timer *timer)
{
    struct timed_block *timed = container_of(timer, struct timed_block, timer);
    (void)atom_or(&timed->block.own, SIGNAL_EXPIRED);
    block_refresh(worker, timed->task);
    mail_deliver_local(worker);
}

static void timed_init(struct timed_block *timed, enum block_kind kind, struct task *task,
                       const char *where)
{
    timed->block.kind = (uint8_t)kind;
    timed->block.no_deadline = task->top->no_deadline;
    timed->block.deadline_ns = task->top->deadline_ns;
    atom_store(&timed->block.own, 0);
    timer_init(&timed->timer, deadline_passed);
    timed->task = task;
    timed->where = where;
    timed->reason = NULL;
}

/* Give the block a deadline of its own. */
static void timed_arm(struct timed_block *timed, int64_t now_ns, int64_t at_ns)
{
    timed->block.deadline_ns = at_ns;
    if (at_ns <= now_ns) {
        atom_store(&timed->block.own, SIGNAL_EXPIRED);
    } else {
        timer_arm(worker_self(), &timed->timer, at_ns);
    }
}

void block_enter_deadline(weir_block *block, struct task *self, int64_t now_ns, int64_t at_ns,
                          const char *where)
{
    struct timed_block *timed = (struct timed_block *)(void *)block;

    timed_init(timed, BLOCK_DEADLINE, self, where);
    if (at_ns < self->top->deadline_ns || PLANTED(INNER_DEADLINE_LATER))
        timed_arm(timed, now_ns, at_ns);
    block_push(self, &timed->block);
}

weir_block *weir_deadline_enter(weir_block *block, int64_t ms, const char *where)
{
    struct task *self = entering_task("WEIR_DEADLINE", where);
    int64_t now_ns = worker_self()->kernel->now_ns(worker_self()->kernel);

    block_enter_deadline(block, self, now_ns, time_after_ms(now_ns, ms), where);
    return block;
}

weir_block *weir_shield_enter(weir_block *block, int64_t ms, const char *where)
{
    struct timed_block *timed = (struct timed_block *)(void *)block;
    struct task *self = entering_task("WEIR_SHIELD", where);
    int64_t now_ns = worker_self()->kernel->now_ns(worker_self()->kernel);

    if (ms == WEIR_FOREVER) misuse("WEIR_SHIELD at %s: cleanup needs a bound", where);
    timed_init(timed, BLOCK_SHIELD, self, where);
    timed_arm(timed, now_ns, time_after_ms(now_ns, ms));
    block_push(self, &timed->block);
    return block;
}

weir_block *weir_no_deadline_enter(weir_block *block, const char *keep_reason, const char *where)
{
    struct timed_block *timed = (struct timed_block *)(void *)block;
    struct task *self = entering_task("WEIR_NO_DEADLINE", where);

    if (!keep_reason || !*keep_reason) {
        misuse("WEIR_NO_DEADLINE at %s: say why this may wait for ever", where);
    }
    timed_init(timed, BLOCK_NO_DEADLINE, self, where);
    timed->block.no_deadline = true;
    timed->reason = keep_reason;
    block_push(self, &timed->block);
    return block;
}

/* Apart: its text would lie between the frames of every task that leaves a block. */
static __attribute__((noinline)) _Noreturn void leave_misused(const struct timed_block *timed,
                                                              const struct task *self)
{
    char inner[160];
    block_describe(self->top, inner, sizeof inner);
    misuse("the block at %s is left while %s is still open in it", timed->where, inner);
}

void weir_block_leave(weir_block *block)
{
    struct timed_block *timed = (struct timed_block *)(void *)block;
    struct task *self = task_self();

    if (!worker_self()) return; /* in a forked child: the block stayed in the parent */
    if (self != timed->task) misuse("the block at %s is left by another task", timed->where);
    if (self->top != &timed->block) leave_misused(timed, self);
    timer_disarm(worker_self(), &timed->timer);
    block_pop(self, &timed->block);
}

/* One step outwards, across tasks: the block of a task's scope is outside the task.
 * `ret_task` follows along. */
static const struct block *step_out(const struct block *block, const struct task **ret_task)
{
    if (block->outer) return block->outer;
    const weir_scope *scope = (*ret_task)->scope;
    *ret_task = scope->opener;
    return &scope->block;
}

static void cause_of(const struct block *block, uint8_t own, const struct task *task,
                     weir_cause_info *info)
{
    const weir_scope *scope = (const weir_scope *)block;

    if (block->kind == BLOCK_SCOPE) {
        if (own & SIGNAL_CANCELLED) {
            *info = (weir_cause_info){scope->cause, scope->cancel_error, scope->cancel_why,
                                      scope->name};
        } else {
            *info = (weir_cause_info){WEIR_CAUSE_DEADLINE, WEIR_ETIMEDOUT,
                                      "the scope's deadline passed", scope->name};
        }
    } else if (block->kind == BLOCK_TASK) {
        *info = (weir_cause_info){WEIR_CAUSE_CANCEL, WEIR_ECANCELED, task->cancel_why, task->name};
    } else {
        *info =
            (weir_cause_info){WEIR_CAUSE_DEADLINE, WEIR_ETIMEDOUT, "an enclosing deadline passed",
                              ((const struct timed_block *)block)->where};
    }
}

enum weir_cause weir_cause(weir_cause_info *ret_info)
{
    const struct task *task = task_self();
    weir_cause_info info = {WEIR_CAUSE_NONE, 0, "", ""};

    if (task && (task->attention & SIGNAL_INTERRUPTS)) {
        const struct block *block = task->top;
        for (;;) {
            uint8_t own = atom_load_acquire(&block->own);
            if (own & SIGNAL_INTERRUPTS) cause_of(block, own, task, &info);
            if (block->kind == BLOCK_SHIELD && !(own & SIGNAL_EXPIRED)) break;
            if (!block->outer && !(block->kind == BLOCK_TASK)) break; /* the root scope */
            block = step_out(block, &task);
        }
    }
    if (ret_info) *ret_info = info;
    return info.cause;
}

int64_t weir_deadline_ns(void)
{
    const struct task *self = task_self();
    return self ? self->top->deadline_ns : INT64_MAX;
}

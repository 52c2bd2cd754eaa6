/* task.c - signals, wake-ups and interruptions of tasks; handles. */
#include "rt/task.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/planted.h"
#include "rt/checks.h"
#include "rt/mem.h"
#include "rt/runtime.h"
#include "rt/scope.h"

enum { IGNORED_REPORT_AT = 1000 };

#define MOVE(state) (1u << (state))
const uint8_t task_moves[TASK_STATES] = {
    [TASK_FREE] = MOVE(TASK_NEW),
    [TASK_NEW] = MOVE(TASK_RUNNING) | MOVE(TASK_FREE),
    [TASK_READY] = MOVE(TASK_RUNNING),
    [TASK_RUNNING] = MOVE(TASK_READY) | MOVE(TASK_PARKED) | MOVE(TASK_BACKOFF) | MOVE(TASK_ENDED),
    [TASK_PARKED] = MOVE(TASK_READY),
    [TASK_BACKOFF] = MOVE(TASK_NEW) | MOVE(TASK_ENDED),
    [TASK_ENDED] = MOVE(TASK_FREE),
};

/* ---- Mail: signals, wake-ups and starts from other workers ---- */

static unsigned mail_bits_set(bool shared, struct task *task, uint8_t bits)
{
    unsigned old;
    if (shared) return atom_exchange(&task->mail_bits, bits);
    old = atom_load(&task->mail_bits);
    atom_store(&task->mail_bits, bits);
    return old;
}

/* With one worker: nothing came in while the bits were worked off. */
static bool mail_bits_done(struct task *task)
{
    if (atom_load(&task->mail_bits) != MAIL_BUSY) return false;
    atom_store(&task->mail_bits, 0);
    return true;
}

/* MAIL_BUSY stays set while the bits are worked off, so that nobody frees the task
 * meanwhile, and bits that come in are found here instead of being posted. */
void task_deliver_mail(struct worker *worker, struct mail *mail)
{
    struct task *task = container_of(mail, struct task, mail);
    uint8_t busy;

    do {
        unsigned bits = mail_bits_set(worker->shared, task, MAIL_BUSY);
        if (bits & MAIL_RELEASE) {
            atom_store(&task->mail_bits, 0);
            task_free(worker, task);
            return;
        }
        if (bits & MAIL_START) worker_requeue(worker, task);
        if (bits & MAIL_WAKE) worker_ready(worker, task);
        if (bits & MAIL_REFRESH) block_refresh(worker, task);
        busy = MAIL_BUSY;
        if (PLANTED(MAIL_BITS_LOST)) busy = atom_load(&task->mail_bits);
    } while (!(worker->shared ? atom_cas(&task->mail_bits, &busy, 0) : mail_bits_done(task)));
}

void task_mail(struct task *task, unsigned bits)
{
    struct worker *self = worker_self();
    struct worker *home = atom_load_total(&task->home);

    sanitize_release(task);
    /* Not started: it looks at its scope's signals when it starts. */
    if (!home && bits == MAIL_REFRESH) return;
    if (task_mail_bits_add(self->shared, task, bits) != 0) return;
    if (home == self) {
        mail_post_local(self, &task->mail);
    } else {
        mail_post(home, &task->mail);
    }
}

void task_refresh_self(void)
{
    struct worker *worker = worker_self();
    struct task *self = atom_load(&worker->current);
    if (self) block_refresh(worker, self);
}

void task_wake(struct task *task, int result)
{
    struct worker *self = worker_self();
    struct worker *home = atom_load(&task->home);

    task->wake_result = result;
    if (home == self) {
        sanitize_release(task);
        worker_ready(self, task);
    } else {
        task_mail(task, MAIL_WAKE);
    }
}

/* ---- Suspending ---- */

int task_interruption(const struct task *task, bool takes_work)
{
    uint8_t signals = task->attention;
    if (signals & SIGNAL_CANCELLED) return WEIR_ECANCELED;
    if (signals & SIGNAL_EXPIRED) return WEIR_ETIMEDOUT;
    if (takes_work && (signals & SIGNAL_STOPPING)) return WEIR_ESTOPPING;
    return 0;
}

/* A cancelled task that goes on calling is not stopped, but it is named. */
static void count_ignored(struct task *self)
{
    self->has_extras = true;
    if (self->ignored > IGNORED_REPORT_AT || ++self->ignored != IGNORED_REPORT_AT) return;
    log_write(worker_self()->runtime, WEIR_LOG_WARNING, self,
              "has made %d suspending calls since it was cancelled and does not end",
              IGNORED_REPORT_AT);
}

void task_offer_cancel_point(void)
{
    weir_runtime *runtime = worker_self()->runtime;
    if (kernel_choose(runtime->kernel, CHOOSE_CANCEL, 2) == 1 && runtime->cancel_target) {
        scope_signal(runtime->cancel_target, SIGNAL_CANCELLED, WEIR_CAUSE_CANCEL, WEIR_ECANCELED,
                     "cancelled at a chosen suspension point");
    }
}

/* Whether another task goes first, of those that could. */
static void offer_yield_point(struct task *self)
{
    struct worker *worker = worker_self();

    if (worker->ready.count == 0 && atom_load(&worker->fresh_count) == 0) return;
    if (kernel_choose(worker->kernel, CHOOSE_YIELD, 2) == 1) task_yield(self);
}

int task_interrupted(struct task *self, bool takes_work)
{
    int error = task_interruption(self, takes_work);
    if (error < 0) count_ignored(self);
    return error;
}

int task_enter_slow(struct task *self, enum task_entry entry)
{
    int error, left;

    if (self->attention & ATTENTION_HOOK) {
        task_offer_cancel_point();
        offer_yield_point(self);
    }
    if ((self->attention & ATTENTION_HELD) && entry != ENTER_LOCK) checks_suspends(self);
    left = self->budget-- + (self->attention != 0 ? TASK_BUDGET_ATTENTION : 0);
    if (left <= 0) {
        /* So many calls may have taken long: the next pick looks at the clock. */
        worker_self()->look_at = atom_load(&worker_self()->ready.head);
        task_yield(self);
    }
    error = task_interrupted(self, entry == ENTER_TAKE_WORK);
    if (error < 0) return error;
    if (entry != ENTER_PLAIN && entry != ENTER_LOCK && !task_wait_is_bounded(self)) {
        return refuse_as(
            WEIR_ENODEADLINE,
            "task '%s': this wait has no deadline: put it inside WEIR_DEADLINE(ms), or "
            "inside WEIR_NO_DEADLINE(\"reason\") if it may last for ever",
            self->name);
    }
    return 0;
}

int weir_checkpoint(void)
{
    struct task *self = task_self();
    if (!self) return refuse_no_task("weir_checkpoint");
    return task_enter(self, ENTER_PLAIN);
}

/* ---- Beginning and ending ---- */

void task_main(void *arg)
{
    struct task *task = arg;
    struct worker *worker = worker_self();

    sanitize_arrived(&task->sanitize, &worker->sanitize);
    sanitize_acquire(task);
    sanitize_acquire(&worker->events);
    sanitize_task_end(&worker->left_sanitize);
    for (;;) {
        task->result = task->fn(task->arg);
        if (__builtin_expect(worker_self() != worker, 0)) {
            misuse("task '%s' returned in a forked process, which has no runtime to return to: it "
                   "must end with _exit or exec",
                   task->name);
        }
        task = worker_finish(worker, task);
    }
}

/* ---- Public calls ---- */

weir_task weir_task_self(void)
{
    struct task *self = task_self();
    if (!self) return (weir_task){NULL, 0};
    return (weir_task){self, atom_load(&self->id)};
}

const char *weir_task_name(void)
{
    struct task *self = task_self();
    return self ? self->name : "";
}

int weir_task_restarts(void)
{
    struct task *self = task_self();
    return self && self->restart ? self->restart->total : 0;
}

bool weir_stopping(void)
{
    struct task *self = task_self();
    return self && (self->attention & SIGNAL_STOPPING);
}

/* ---- Joining and cancelling one task ---- */

/* Lock the scope of a handle's task. False, and nothing locked, if it is gone: the
 * memory of tasks and scopes is type-stable, so looking is safe. */
static bool handle_lock(weir_task handle, struct task **ret_task,
                        weir_scope **ret_scope) LOCK_UNCHECKED;
static bool handle_lock(weir_task handle, struct task **ret_task, weir_scope **ret_scope)
{
    struct task *task = handle.ref;
    weir_scope *scope;

    if (!task || atom_load(&task->id) != handle.id) return false;
    scope = task->scope;
    if (scope->runtime != worker_self()->runtime) misuse("a task handle of another runtime");
    lock_acquire_if(&scope->lock, scope->runtime->shared);
    if (atom_load(&task->id) != handle.id || task->scope != scope) {
        lock_release_if(&scope->lock, scope->runtime->shared);
        return false;
    }
    *ret_task = task;
    *ret_scope = scope;
    return true;
}

static void handle_unlock(weir_scope *scope) LOCK_UNCHECKED;
static void handle_unlock(weir_scope *scope)
{
    lock_release_if(&scope->lock, scope->shared);
}

bool task_join_cancel(struct join_wait *wait)
{
    weir_scope *scope = wait->scope; /* its memory outlives it, so the lock may be taken */
    bool waiting = false;

    lock_acquire_if(&scope->lock, scope->runtime->shared);
    if (wait->target) { /* else it has ended and the wake-up is on its way */
        wait->target->joiner = NULL;
        waiting = true;
    }
    if (PLANTED(JOINER_WOKEN_TWICE)) waiting = true;
    lock_release_if(&scope->lock, scope->runtime->shared);
    return waiting;
}

static bool join_abort(struct task *task, void *object)
{
    (void)task;
    return task_join_cancel(object);
}

/* The target may end on another worker meanwhile: its name is read under the lock, if
 * that can be had. */
static void join_describe(const void *object, char *text, size_t bytes) LOCK_UNCHECKED;
static void join_describe(const void *object, char *text, size_t bytes)
{
    const struct join_wait *wait = object;
    weir_scope *scope = wait->scope;
    if (scope->shared && !lock_try(&scope->lock)) {
        (void)snprintf(text, bytes, "a task of scope '%s'", scope->name);
        return;
    }
    (void)snprintf(text, bytes, "task '%s'", wait->target ? wait->target->name : "(ended)");
    lock_release_if(&scope->lock, scope->shared);
}

static void join_facts(const void *object, struct waiting *ret_waiting)
{
    const struct join_wait *wait = object;
    waiting_name(ret_waiting, "task", wait->target ? wait->target->name : "");
    waiting_by(ret_waiting, wait->target, 0);
}

static const struct wait_kind wait_join = {
    .name = "join",
    .abort = join_abort,
    .describe = join_describe,
    .what = WAIT_FOR_TASK,
    .ends = ENDS_WITH_ALL,
    .facts = join_facts,
};

int task_join_begin(weir_task handle, struct join_wait *wait, unsigned may)
{
    struct worker *worker = worker_self();
    struct task *self = wait->waiter;
    struct task *task;
    weir_scope *scope;
    int r;

    if (handle.ref == self && handle.id == atom_load(&self->id)) {
        return refuse("task '%s': a task cannot join itself", self->name);
    }
    if (!handle_lock(handle, &task, &scope)) return WEIR_ECLOSED;
    if (!task->has_handle || task->joiner) {
        r = WEIR_EINUSE;
        if (!task->has_handle) {
            r = refuse("task '%s': was spawned without a handle; its scope joins it", task->name);
        }
        handle_unlock(scope);
        return r;
    }
    if (task->ended && (may & JOIN_TAKES)) {
        sanitize_acquire(task);
        wait->result = task->result;
        list_remove(&task->sibling);
        atom_store(&task->id, 0); /* before anybody else can lock: the handle is used up */
        handle_unlock(scope);
        task_release(worker, task);
        return 1;
    }
    r = task->ended ? 1 : 0;
    if (r == 0 && (may & JOIN_WAITS)) {
        wait->target = task;
        wait->scope = scope;
        task->joiner = wait;
    }
    handle_unlock(scope);
    return r;
}

int weir_task_join(weir_task handle, int *ret_result)
{
    struct task *self = task_self();
    struct join_wait wait = {.waiter = self};
    int r;

    if (!self) return refuse_no_task("weir_task_join");
    r = task_enter(self, ENTER_PLAIN);
    if (r < 0) return r;
    r = task_join_begin(handle, &wait, JOIN_TAKES | JOIN_WAITS);
    if (r == 0) r = task_park(self, &wait_join, &wait);
    if (r < 0) return r;
    if (ret_result) *ret_result = wait.result;
    return 0;
}

int weir_task_cancel(weir_task handle, const char *why)
{
    struct worker *worker = worker_self();
    struct task *task;
    weir_scope *scope;
    bool alive;

    if (!worker) return refuse_no_task("weir_task_cancel");
    worker_touched(worker);
    if (!handle_lock(handle, &task, &scope)) return WEIR_ECLOSED;
    alive = !task->ended;
    if (alive && !(atom_load(&task->base.own) & SIGNAL_CANCELLED)) {
        /* Before the signal, by which it is read; what a former life left is never. */
        task->cancel_why = why ? why : "";
        (void)atom_or(&task->base.own, SIGNAL_CANCELLED);
        task_mail(task, MAIL_REFRESH);
    }
    handle_unlock(scope);
    task_refresh_self();
    mail_deliver_local(worker);
    return alive ? 0 : WEIR_ECLOSED;
}

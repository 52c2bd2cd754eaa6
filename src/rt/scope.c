/* scope.c - opening, joining, closing and signalling scopes. */
#include "rt/scope.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rt/mem.h"
#include "rt/runtime.h"

/* ---- Memory: type-stable, with locks that are made once ---- */

enum { SCOPE_SLAB_COUNT = 16 };
struct scope_slab {
    struct scope_slab *next;
    weir_scope scopes[SCOPE_SLAB_COUNT];
};

static int scopes_refill(struct worker *worker)
{
    weir_runtime *runtime = worker->runtime;
    struct scope_slab *slab = mem_alloc_zeroed(sizeof *slab);
    if (!slab) return -ENOMEM;
    for (unsigned i = 0; i < SCOPE_SLAB_COUNT; i++) {
        weir_scope *scope = &slab->scopes[i];
        lock_init(&scope->lock);
        scope->runtime = runtime;
        scope->free_next = worker->free_scopes;
        worker->free_scopes = scope;
    }
    lock_acquire(&runtime->memory_lock);
    slab->next = runtime->scope_slabs;
    runtime->scope_slabs = slab;
    lock_release(&runtime->memory_lock);
    return 0;
}

void scope_slabs_free(weir_runtime *runtime)
{
    while (runtime->scope_slabs) {
        struct scope_slab *slab = runtime->scope_slabs;
        runtime->scope_slabs = slab->next;
        for (unsigned i = 0; i < SCOPE_SLAB_COUNT; i++) lock_deinit(&slab->scopes[i].lock);
        mem_free(slab);
    }
}

/* ---- Locking: left out with one worker ---- */

static void scope_lock(weir_scope *scope) LOCK_ACQUIRES(scope->lock, weir_no_park) LOCK_UNCHECKED
{
    lock_acquire_if(&scope->lock, scope->runtime->shared);
}

static void scope_unlock(weir_scope *scope) LOCK_RELEASES(scope->lock, weir_no_park)
    LOCK_UNCHECKED
{
    lock_release_if(&scope->lock, scope->runtime->shared);
}

/* ---- Checking ---- */

static int check_restart(const weir_scope_spec *spec)
{
    const weir_restart *restart = &spec->restart;
    bool said = restart->max_restarts || restart->window_ms || restart->backoff_ms ||
                restart->backoff_ms_max;

    if (spec->on_failure != WEIR_SUPERVISE) {
        if (!said) return 0;
        return refuse("scope '%s': restart is set but on_failure is not WEIR_SUPERVISE",
                      spec->name);
    }
    if (restart->max_restarts < 1 || restart->max_restarts > SCOPE_RESTARTS_MAX) {
        return refuse("scope '%s': restart.max_restarts is %d, must be 1 to %d", spec->name,
                      restart->max_restarts, SCOPE_RESTARTS_MAX);
    }
    if (restart->window_ms <= 0) {
        return refuse("scope '%s': restart.window_ms is not set", spec->name);
    }
    if (restart->backoff_ms < 0 || restart->backoff_ms_max < 0) {
        return refuse("scope '%s': restart.backoff_ms is negative", spec->name);
    }
    if (restart->backoff_ms_max > 0 && restart->backoff_ms_max < restart->backoff_ms) {
        return refuse("scope '%s': restart.backoff_ms_max is smaller than backoff_ms", spec->name);
    }
    return 0;
}

int scope_check_spec(const weir_scope_spec *spec)
{
    if (!spec->name || !*spec->name) return refuse("scope: name is not set");
    if (spec->on_failure == WEIR_FAILURE_UNSET) {
        return refuse("scope '%s': on_failure is not set", spec->name);
    }
    if ((unsigned)spec->on_failure > WEIR_SUPERVISE) {
        return refuse("scope '%s': on_failure is not one of enum weir_failure_policy", spec->name);
    }
    if (spec->max_tasks == 0) return refuse("scope '%s': max_tasks is not set", spec->name);
    if (spec->overflow == WEIR_OVERFLOW_UNSET) {
        return refuse("scope '%s': overflow is not set", spec->name);
    }
    if (spec->overflow != WEIR_WAIT && spec->overflow != WEIR_REJECT) {
        return refuse("scope '%s': overflow must be WEIR_WAIT or WEIR_REJECT, tasks are not dropped",
                      spec->name);
    }
    if (spec->deadline_ms < 0) {
        return refuse("scope '%s': deadline_ms is negative", spec->name);
    }
    if (spec->place == WEIR_PLACE_WORKER || (unsigned)spec->place > WEIR_PLACE_WORKER) {
        return refuse("scope '%s': place must be WEIR_ANYWHERE or WEIR_PLACE_HERE; a worker is "
                      "named for each task",
                      spec->name);
    }
    if (spec->stack_bytes > WEIR_STACK_BYTES_MAX) {
        return refuse("scope '%s': stack_bytes is %zu, at most %d", spec->name, spec->stack_bytes,
                      WEIR_STACK_BYTES_MAX);
    }
    if (spec->failures_kept > SCOPE_FAILURES_KEPT_MAX) {
        return refuse("scope '%s': failures_kept is %zu, at most %d", spec->name,
                      spec->failures_kept, SCOPE_FAILURES_KEPT_MAX);
    }
    return check_restart(spec);
}

void scope_check(const weir_scope *scope, const char *call)
{
    uint8_t state;
    if (!scope) misuse("%s: scope is NULL", call);
    state = atom_load(&scope->state);
    if (state != SCOPE_OPEN && state != SCOPE_CLOSING) {
        misuse("%s: the scope is closed (it was '%s', opened at %s)", call, scope->name,
               scope->where ? scope->where : "?");
    }
}

void scope_path(const weir_scope *scope, char *text, size_t bytes)
{
    enum { LEVELS = 16 };
    const weir_scope *path[LEVELS];
    int count = 0;
    size_t used = 0;

    text[0] = '\0';
    while (scope && count < LEVELS) {
        path[count++] = scope;
        scope = scope->opener ? scope->opener->scope : NULL;
    }
    if (scope) used = (size_t)snprintf(text, bytes, "…/");
    while (count-- > 0 && used < bytes) {
        int n = snprintf(text + used, bytes - used, "%s%s", path[count]->name, count ? "/" : "");
        used += n > 0 ? (size_t)n : 0;
    }
}

/* ---- Opening ---- */

static void deadline_passed(struct worker *worker, struct timer *timer);
static void grace_over(struct worker *worker, struct timer *timer);
static void arm_grace(struct worker *worker, struct mail *mail);

static void scope_init(weir_scope *scope, struct worker *worker, struct task *opener,
                       const char *where, const weir_scope_spec *spec)
{
    scope->home = worker;
    scope->opener = opener;
    scope->where = where;
    scope->on_failure = spec->on_failure;
    scope->overflow = spec->overflow;
    scope->place = spec->place ? spec->place : WEIR_ANYWHERE;
    scope->max_tasks = spec->max_tasks;
    scope->restart = spec->restart;
    (void)snprintf(scope->name, sizeof scope->name, "%s", spec->name);
    timer_init(&scope->deadline, deadline_passed);
    timer_init(&scope->grace, grace_over);
    list_init(&scope->children);
    list_init(&scope->ended);
    list_init(&scope->spawners);
    list_init(&scope->belongings);
    scope->live = 0;
    scope->room_wanted = false;
    scope->interrupted = 0;
    scope->joiner = NULL;
    scope->cause = WEIR_CAUSE_NONE;
    scope->cancel_error = 0;
    scope->cancel_why = "";
    scope->cancel_name[0] = '\0';
    scope->first_error = 0;
    scope->failures_total = 0;
    scope->failures_count = 0;
    scope->failures_kept =
        spec->failures_kept ? spec->failures_kept : (size_t)WEIR_FAILURES_KEPT_DEFAULT;
    scope->failures = NULL;
    scope->restart_head = 0;
    scope->restart_count = 0;
    scope->cut_off_reported = false;
    scope->stop_at_ns = INT64_MAX;
    scope->mail.deliver = arm_grace;
    atom_store(&scope->mail_pending, 0);
    atom_store(&scope->children_signals, 0);
    atom_store(&scope->block.own, 0);
    scope->block.outer = NULL;
    scope->block.kind = BLOCK_SCOPE;
    scope->block.effective = 0;
    scope->block.no_deadline = opener && opener->top->no_deadline;
    scope->block.deadline_ns = opener ? opener->top->deadline_ns : INT64_MAX;
    atom_store_release(&scope->state, SCOPE_OPEN);
}

static void set_deadline(struct worker *worker, weir_scope *scope, int64_t deadline_ms)
{
    int64_t at_ns;
    scope->own_deadline = false;
    if (deadline_ms == 0) return;
    at_ns = time_after_ms(worker->kernel->now_ns(worker->kernel), deadline_ms);
    if (at_ns >= scope->block.deadline_ns) return;
    scope->own_deadline = true;
    scope->block.deadline_ns = at_ns;
    timer_arm(worker, &scope->deadline, at_ns);
}

int scope_open(struct worker *worker, struct task *opener, const char *where,
               const weir_scope_spec *spec, weir_scope **ret_scope)
{
    weir_scope *scope;
    int64_t *restart_times = NULL;
    int size_class = (int)worker->runtime->default_class;

    if (spec->stack_bytes > 0) size_class = stack_class_for(spec->stack_bytes);
    if (spec->on_failure == WEIR_SUPERVISE) {
        restart_times =
            mem_alloc_zeroed((size_t)spec->restart.max_restarts * sizeof *restart_times);
        if (!restart_times) return -ENOMEM;
    }
    if (!worker->free_scopes) {
        int r = scopes_refill(worker);
        if (r < 0) {
            mem_free(restart_times);
            return r;
        }
    }
    scope = worker->free_scopes;
    worker->free_scopes = scope->free_next;
    scope_init(scope, worker, opener, where, spec);
    scope->size_class = (unsigned)size_class;
    scope->restart_times = restart_times;
    set_deadline(worker, scope, spec->deadline_ms);
    if (opener) {
        block_push(opener, &scope->block);
        atom_store(&scope->children_signals, block_inherited(scope->block.effective));
    }
    *ret_scope = scope;
    return 0;
}

void scope_release(struct worker *worker, weir_scope *scope)
{
    struct list *node;

    while ((node = list_pop(&scope->ended))) {
        task_release(worker, container_of(node, struct task, sibling));
    }
    timer_disarm(worker, &scope->deadline);
    timer_disarm(worker, &scope->grace);
    mem_free(scope->failures);
    mem_free(scope->restart_times);
    scope->failures = NULL;
    scope->restart_times = NULL;
    atom_store(&scope->state, SCOPE_CLOSED);
    scope->free_next = worker->free_scopes;
    worker->free_scopes = scope;
}

int weir_scope_open_at(const char *where, size_t spec_bytes, const weir_scope_spec *given,
                       weir_scope **ret_scope)
{
    struct task *self = task_self();
    weir_scope_spec spec;
    int r;

    if (!self) return refuse_no_task("weir_scope_open");
    spec_copy(&spec, sizeof spec, given, spec_bytes);
    r = scope_check_spec(&spec);
    if (r < 0) return r;
    return scope_open(worker_self(), self, where, &spec, ret_scope);
}

/* ---- Signals ---- */

static void belonging_mail(struct belonging *belonging, uint8_t bits)
{
    struct worker *self = worker_self();
    if (atom_or(&belonging->mail_bits, bits) != 0) return;
    if (belonging->worker == self) {
        mail_post_local(self, &belonging->mail);
    } else {
        mail_post(belonging->worker, &belonging->mail);
    }
}

/* Tell everybody below what is in force; the lock is held. */
static void hand_on(weir_scope *scope, uint8_t signals)
{
    if ((atom_load(&scope->children_signals) & signals) == signals) return;
    /* Before the walk: a child that starts now, and so is not told, reads it itself. */
    (void)atom_or(&scope->children_signals, signals);
    list_for_each(node, &scope->children) {
        task_mail(container_of(node, struct task, sibling), MAIL_REFRESH);
    }
    list_for_each(node, &scope->belongings) {
        belonging_mail(container_of(node, struct belonging, node), BELONGING_SIGNALLED);
    }
}

void scope_hand_on(struct worker *worker, weir_scope *scope)
{
    (void)worker;
    scope_lock(scope);
    hand_on(scope, block_inherited(scope->block.effective));
    scope_unlock(scope);
}

/* The lock is held; the caller delivers local mail after it has let go of it. */
static void signal_locked(weir_scope *scope, uint8_t signals, enum weir_cause cause, int error,
                          const char *why)
{
    uint8_t own = atom_load(&scope->block.own);
    if ((own & signals) == signals) return;
    if ((signals & SIGNAL_INTERRUPTS) && scope->cause == WEIR_CAUSE_NONE) {
        scope->cause = cause;
        scope->cancel_error = error;
        scope->cancel_why = why ? why : "";
    }
    (void)atom_or(&scope->block.own, signals);
    hand_on(scope, block_inherited(signals));
    if (scope->opener) task_mail(scope->opener, MAIL_REFRESH);
}

void scope_signal(weir_scope *scope, uint8_t signals, enum weir_cause cause, int error,
                  const char *why)
{
    scope_lock(scope);
    if (cause == WEIR_CAUSE_CANCEL && error < 0 && scope->first_error == 0 &&
        !(atom_load(&scope->block.own) & SIGNAL_CANCELLED)) {
        scope->first_error = error;
    }
    signal_locked(scope, signals, cause, error, why);
    scope_unlock(scope);
    mail_deliver_local(worker_self());
}

static void deadline_passed(struct worker *worker, struct timer *timer)
{
    weir_scope *scope = container_of(timer, weir_scope, deadline);
    (void)worker;
    scope_signal(scope, SIGNAL_EXPIRED, WEIR_CAUSE_DEADLINE, WEIR_ETIMEDOUT,
                 "the scope's deadline passed");
}

void weir_scope_cancel(weir_scope *scope, int error, const char *why)
{
    scope_check(scope, "weir_scope_cancel");
    if (!worker_self()) misuse("weir_scope_cancel: called outside the runtime");
    if (error > 0) error = 0;
    scope_signal(scope, SIGNAL_CANCELLED, WEIR_CAUSE_CANCEL, error, why);
}

/* ---- Stopping ---- */

static void report_alive(weir_scope *scope, const char *what)
{
    enum { NAMED_MAX = 16 };
    size_t named = 0;

    scope_lock(scope);
    list_for_each(node, &scope->children) {
        if (named++ == NAMED_MAX) break;
        log_write(scope->runtime, WEIR_LOG_WARNING, container_of(node, struct task, sibling),
                  "%s", what);
    }
    if (scope->live > NAMED_MAX) {
        log_write(scope->runtime, WEIR_LOG_WARNING, NULL, "scope '%s': and %zu more: %s",
                  scope->name, scope->live - NAMED_MAX, what);
    }
    scope_unlock(scope);
}

static void grace_over(struct worker *worker, struct timer *timer)
{
    weir_scope *scope = container_of(timer, weir_scope, grace);
    int64_t again_ms = scope->stop_grace_ms > 1000 ? scope->stop_grace_ms : 1000;

    if (scope->cut_off_reported) {
        report_alive(scope, "has not ended although its grace period is over and it is cancelled");
    } else {
        scope->cut_off_reported = true;
        report_alive(scope, "was cut off: it had not ended when the grace period was over");
        scope_signal(scope, SIGNAL_CANCELLED, WEIR_CAUSE_STOP, WEIR_ECANCELED,
                     "the grace period of the stop is over");
    }
    timer_arm(worker, timer, time_after_ms(worker->now_ns, again_ms));
}

static void arm_grace(struct worker *worker, struct mail *mail)
{
    weir_scope *scope = container_of(mail, weir_scope, mail);
    atom_store_total(&scope->mail_pending, 0);
    if (!scope->cut_off_reported) timer_arm(worker, &scope->grace, scope->stop_at_ns);
}

void weir_scope_stop(weir_scope *scope, int64_t grace_ms)
{
    struct worker *worker = worker_self();
    int64_t at_ns;
    bool sooner;

    scope_check(scope, "weir_scope_stop");
    if (!worker) misuse("weir_scope_stop: called outside the runtime");
    if (grace_ms < 0) grace_ms = 0;
    at_ns = time_after_ms(worker->kernel->now_ns(worker->kernel), grace_ms);
    scope_lock(scope);
    sooner = at_ns < scope->stop_at_ns;
    if (sooner) {
        scope->stop_at_ns = at_ns;
        scope->stop_grace_ms = grace_ms;
    }
    signal_locked(scope, SIGNAL_STOPPING, WEIR_CAUSE_STOP, 0, "stopping");
    if (sooner && atom_exchange(&scope->mail_pending, 1) == 0) {
        if (scope->home == worker) {
            mail_post_local(worker, &scope->mail);
        } else {
            mail_post(scope->home, &scope->mail);
        }
    }
    scope_unlock(scope);
    mail_deliver_local(worker);
}

/* ---- Admitting tasks ---- */

struct spawn_wait {
    struct list node; /* in scope->spawners until granted */
    weir_scope *scope;
    struct task *waiter;
    bool granted;
};

static bool spawn_abort(struct task *task, void *object)
{
    struct spawn_wait *wait = object;
    bool waiting;
    (void)task;
    scope_lock(wait->scope);
    waiting = !wait->granted;
    if (waiting) list_remove(&wait->node);
    scope_unlock(wait->scope);
    return waiting;
}

static void spawn_describe(const void *object, char *text, size_t bytes)
{
    const struct spawn_wait *wait = object;
    (void)snprintf(text, bytes, "room in scope '%s' (max_tasks %zu)", wait->scope->name,
                   wait->scope->max_tasks);
}

static const struct wait_kind wait_spawn = {
    .name = "spawn",
    .abort = spawn_abort,
    .describe = spawn_describe,
};

/* A slot has become free: it goes to the spawner that has waited longest. The lock is
 * held. */
static void slot_return(weir_scope *scope)
{
    struct list *first = list_first(&scope->spawners);
    if (first) {
        struct spawn_wait *wait = container_of(first, struct spawn_wait, node);
        list_remove(first);
        wait->granted = true;
        task_wake(wait->waiter, 0);
        return;
    }
    scope->live--;
    if (!scope->room_wanted) return;
    scope->room_wanted = false;
    list_for_each(node, &scope->belongings) {
        belonging_mail(container_of(node, struct belonging, node), BELONGING_SIGNALLED);
    }
}

static int wait_for_slot(weir_scope *scope, struct task *self)
{
    struct spawn_wait wait = {.scope = scope, .waiter = self};
    list_add_tail(&scope->spawners, &wait.node);
    scope_unlock(scope);
    int r = task_park(self, &wait_spawn, &wait);
    scope_lock(scope);
    return r;
}

static void scope_settle(weir_scope *scope);

int scope_admit(weir_scope *scope, struct task *self, struct task *task, bool even_if_cancelled)
{
    int r = 0;

    scope_lock(scope);
    if (!even_if_cancelled && (atom_load(&scope->children_signals) & SIGNAL_CANCELLED)) {
        r = WEIR_ECANCELED;
    } else if (scope->live < scope->max_tasks) {
        scope->live++;
    } else if (scope->overflow == WEIR_REJECT || !self) {
        r = WEIR_EOVERLOAD;
        if (!self) scope->room_wanted = true;
    } else {
        r = wait_for_slot(scope, self);
        if (r == 0 && (atom_load(&scope->children_signals) & SIGNAL_CANCELLED)) {
            r = WEIR_ECANCELED;
            slot_return(scope);
            scope_settle(scope);
        }
    }
    if (r == 0) list_add_tail(&scope->children, &task->sibling);
    scope_unlock(scope);
    return r;
}

/* ---- Ending tasks ---- */

static void record_failure(weir_scope *scope, const struct task *task)
{
    if (scope->first_error == 0) scope->first_error = task->result;
    scope->failures_total++;
    if (!scope->failures) {
        scope->failures = mem_alloc(scope->failures_kept * sizeof *scope->failures);
    }
    /* Without memory the failure is still counted, logged and, if it is the first,
     * returned by close. */
    if (!scope->failures || scope->failures_count == scope->failures_kept) return;
    weir_failure *failure = &scope->failures[scope->failures_count++];
    *failure = (weir_failure){.error = task->result,
                              .task_id = atom_load(&task->id),
                              .restarts = task->restart ? task->restart->total : 0};
    (void)snprintf(failure->task, sizeof failure->task, "%s", task->name);
}

static void restart_now(struct worker *worker, struct timer *timer)
{
    struct restart_record *record = container_of(timer, struct restart_record, timer);
    struct task *task = record->task;

    if (task->arg_bytes > 0) memcpy(task->arg, record->pristine, task->arg_bytes);
    task->ignored = 0;
    task->ignored_reported = false;
    task_set_state(task, TASK_NEW);
    worker_requeue(worker, task);
}

/* Whether one more restart stays within the scope's intensity; if so it is counted. */
static bool restart_allowed(weir_scope *scope, int64_t now_ns)
{
    unsigned max = (unsigned)scope->restart.max_restarts;
    int64_t since_ns = time_after_ms(now_ns, -scope->restart.window_ms);

    while (scope->restart_count > 0 && scope->restart_times[scope->restart_head] <= since_ns) {
        scope->restart_head = (scope->restart_head + 1) % max;
        scope->restart_count--;
    }
    if (scope->restart_count == max) return false;
    scope->restart_times[(scope->restart_head + scope->restart_count) % max] = now_ns;
    scope->restart_count++;
    return true;
}

static int64_t restart_backoff_ms(const weir_scope *scope, struct restart_record *record,
                                  int64_t now_ns)
{
    int64_t max_ms = scope->restart.backoff_ms_max ? scope->restart.backoff_ms_max
                                                   : scope->restart.backoff_ms;
    int64_t ms = scope->restart.backoff_ms;

    if (record->total > 0 && now_ns - record->last_ns > scope->restart.window_ms * 1000000) {
        record->count = 0;
    }
    for (int i = 0; i < record->count && ms < max_ms; i++) ms *= 2;
    return ms < max_ms ? ms : max_ms;
}

/* The lock is held. True: the task stays in the scope and starts again. */
static bool try_restart(struct worker *worker, weir_scope *scope, struct task *task)
{
    struct restart_record *record = task->restart;
    int64_t now_ns = worker->kernel->now_ns(worker->kernel);
    int64_t backoff_ms;

    if (scope->on_failure != WEIR_SUPERVISE || (task->base.effective & SIGNAL_CANCELLED) ||
        (atom_load(&scope->children_signals) & SIGNAL_CANCELLED)) {
        return false;
    }
    if (!restart_allowed(scope, now_ns)) {
        log_write(worker->runtime, WEIR_LOG_ERROR, task,
                  "is not started again: more than %d restarts within %lld ms in scope '%s'",
                  scope->restart.max_restarts, (long long)scope->restart.window_ms, scope->name);
        return false;
    }
    backoff_ms = restart_backoff_ms(scope, record, now_ns);
    record->count++;
    record->total++;
    record->last_ns = now_ns;
    timer_init(&record->timer, restart_now);
    task_set_state(task, TASK_BACKOFF);
    timer_arm(worker, &record->timer, time_after_ms(now_ns, backoff_ms));
    return true;
}

/* Wake the opener if it waits and there is nothing left. The lock is held. */
static void scope_settle(weir_scope *scope)
{
    if (scope->live > 0) return;
    if (scope->joiner) {
        struct task *joiner = scope->joiner;
        scope->joiner = NULL;
        task_wake(joiner, 0);
    } else if (!scope->opener) {
        runtime_root_settled(scope->runtime);
    }
}

/* Hand the result to whoever joins the task. True: nobody does yet, but there is a
 * handle, so that the task must be kept. The lock is held. */
static bool hand_over_result(weir_scope *scope, struct task *task)
{
    struct join_wait *joiner = task->joiner;

    task->ended = true;
    if (joiner) {
        joiner->result = task->result;
        joiner->target = NULL;
        task_wake(joiner->waiter, 0);
        return false;
    }
    if (!task->has_handle) return false;
    list_add_tail(&scope->ended, &task->sibling);
    return true;
}

void scope_task_ended(struct worker *worker, weir_scope *scope, struct task *task)
{
    bool cancelled = task->base.effective & SIGNAL_CANCELLED;
    bool failed = task->result < 0 && !(task->result == WEIR_ECANCELED && cancelled);
    bool keep;

    sanitize_release(scope);
    sanitize_release(task);
    scope_lock(scope);
    if (failed && try_restart(worker, scope, task)) {
        scope_unlock(scope);
        return;
    }
    task_set_state(task, TASK_ENDED);
    list_remove(&task->sibling);
    if (failed) {
        record_failure(scope, task);
        if (scope->on_failure != WEIR_COLLECT) {
            (void)snprintf(scope->cancel_name, sizeof scope->cancel_name, "%s", task->name);
            signal_locked(scope, SIGNAL_CANCELLED, WEIR_CAUSE_FAILURE, task->result,
                          "a task of the scope failed");
        }
    } else if (task->result < 0) {
        scope->interrupted++;
    }
    keep = hand_over_result(scope, task);
    slot_return(scope);
    scope_settle(scope);
    scope_unlock(scope);
    /* The scope may be gone from here on, and so may a task that is kept. */
    mail_deliver_local(worker);
    if (!keep) task_release(worker, task);
}

/* ---- Joining and closing ---- */

static void close_describe(const void *object, char *text, size_t bytes)
{
    const weir_scope *scope = object;
    (void)snprintf(text, bytes, "scope '%s', %zu tasks alive", scope->name, scope->live);
}

static const struct wait_kind wait_close = {
    .name = "close",
    .describe = close_describe,
};

static void wait_for_tasks(weir_scope *scope, struct task *self)
{
    /* A suspension point like any other, but one that cannot fail. */
    (void)task_enter(self, ENTER_PLAIN);
    scope_lock(scope);
    while (scope->live > 0) {
        scope->joiner = self;
        scope_unlock(scope);
        (void)task_park(self, &wait_close, scope);
        scope_lock(scope);
    }
    scope_unlock(scope);
    sanitize_acquire(scope);
}

static bool has_belongings(weir_scope *scope)
{
    bool some;
    scope_lock(scope);
    some = !list_empty(&scope->belongings);
    scope_unlock(scope);
    return some;
}

void scope_release_belongings(weir_scope *scope)
{
    scope_lock(scope);
    list_for_each(node, &scope->belongings) {
        belonging_mail(container_of(node, struct belonging, node), BELONGING_RELEASE);
    }
    scope_unlock(scope);
    mail_deliver_local(worker_self());
}

/* Each is let go on its own worker; callbacks of idle waits may spawn again. */
static void release_belongings(weir_scope *scope, struct task *self)
{
    scope_release_belongings(scope);
    scope_lock(scope);
    if (!list_empty(&scope->belongings)) {
        scope->joiner = self;
        scope_unlock(scope);
        (void)task_park(self, &wait_close, scope);
        scope_lock(scope);
    }
    scope_unlock(scope);
}

int scope_result(weir_scope *scope)
{
    uint8_t own = atom_load(&scope->block.own);
    if (scope->first_error < 0) return scope->first_error;
    if (scope->interrupted == 0) return 0;
    if (own & SIGNAL_CANCELLED) {
        return scope->cause == WEIR_CAUSE_CANCEL ? scope->cancel_error : WEIR_ECANCELED;
    }
    if (scope->block.effective & SIGNAL_CANCELLED) return WEIR_ECANCELED;
    if (own & SIGNAL_EXPIRED) return WEIR_ETIMEDOUT;
    return 0;
}

int weir_scope_join(weir_scope *scope)
{
    struct task *self = task_self();
    int r;

    if (!self) return refuse_no_task("weir_scope_join");
    scope_check(scope, "weir_scope_join");
    if (scope->opener != self) {
        misuse("weir_scope_join: scope '%s' was opened by another task at %s", scope->name,
               scope->where);
    }
    wait_for_tasks(scope, self);
    scope_lock(scope);
    r = scope_result(scope);
    scope_unlock(scope);
    return r;
}

static void check_close(const char *where, weir_scope *scope, struct task *self)
{
    scope_check(scope, "weir_scope_close");
    if (scope->opener != self) {
        misuse("scope '%s' was opened by task '%s' at %s and is closed by task '%s' at %s",
               scope->name, scope->opener ? scope->opener->name : "(the runtime)", scope->where,
               self->name, where);
    }
    if (self->top != &scope->block) {
        char inner[160];
        block_describe(self->top, inner, sizeof inner);
        misuse("scope '%s' opened at %s is closed at %s, but %s is still open inside it",
               scope->name, scope->where, where, inner);
    }
}

int weir_scope_close_at(const char *where, weir_scope *scope)
{
    struct task *self = task_self();
    struct worker *worker = worker_self();
    int r;

    if (!self) return refuse_no_task("weir_scope_close");
    check_close(where, scope, self);
    atom_store(&scope->state, SCOPE_CLOSING);
    wait_for_tasks(scope, self);
    while (has_belongings(scope)) {
        release_belongings(scope, self);
        wait_for_tasks(scope, self);
    }
    /* A stop from another worker may have mail under way to this one. */
    while (atom_load_total(&scope->mail_pending)) task_yield(self);
    r = scope_result(scope);
    block_pop(self, &scope->block);
    scope_release(worker, scope);
    return r;
}

weir_scope_block weir_scope_block_enter(const char *where, int *ret_result, size_t spec_bytes,
                                        const weir_scope_spec *spec)
{
    weir_scope_block block = {.ret_result = ret_result, .where = where};
    int r = weir_scope_open_at(where, spec_bytes, spec, &block.scope);
    if (r < 0) block.scope = NULL;
    if (ret_result) *ret_result = r;
    return block;
}

void weir_scope_block_leave(weir_scope_block *block)
{
    int r;
    if (!block->scope) return;
    r = weir_scope_close_at(block->where, block->scope);
    if (block->ret_result) *block->ret_result = r;
}

/* ---- Looking ---- */

size_t weir_scope_failures(weir_scope *scope, weir_failure *failures, size_t count_max)
{
    size_t total;
    scope_check(scope, "weir_scope_failures");
    scope_lock(scope);
    for (size_t i = 0; i < scope->failures_count && i < count_max; i++) {
        failures[i] = scope->failures[i];
    }
    total = scope->failures_total;
    scope_unlock(scope);
    return total;
}

size_t weir_scope_task_count(weir_scope *scope)
{
    size_t live;
    scope_check(scope, "weir_scope_task_count");
    scope_lock(scope);
    live = scope->live;
    scope_unlock(scope);
    return live;
}

const char *weir_scope_name(const weir_scope *scope)
{
    scope_check(scope, "weir_scope_name");
    return scope->name;
}

/* ---- Belongings ---- */

static void deliver_belonging_mail(struct worker *worker, struct mail *mail)
{
    struct belonging *belonging = container_of(mail, struct belonging, mail);
    uint8_t bits = atom_exchange(&belonging->mail_bits, 0);

    /* Each call may free it, so there is at most one. */
    if (bits & (BELONGING_FORGOTTEN | BELONGING_RELEASE)) {
        belonging->kind->release(worker, belonging);
    } else if (bits & BELONGING_SIGNALLED) {
        belonging->kind->signalled(worker, belonging,
                                   atom_load(&belonging->scope->children_signals));
    }
}

int scope_own(weir_scope *scope, struct worker *worker, struct belonging *belonging,
              const struct belonging_kind *kind)
{
    int r = 0;

    belonging->scope = scope;
    belonging->worker = worker;
    belonging->kind = kind;
    belonging->mail.deliver = deliver_belonging_mail;
    atom_store(&belonging->mail_bits, 0);
    scope_lock(scope);
    if (atom_load(&scope->children_signals) & SIGNAL_CANCELLED) {
        r = WEIR_ECANCELED;
    } else {
        list_add_tail(&scope->belongings, &belonging->node);
    }
    scope_unlock(scope);
    return r;
}

bool scope_forget(struct belonging *belonging)
{
    weir_scope *scope = belonging->scope;

    if (!scope) return true; /* the second time, by the delivery of late mail */
    scope_lock(scope);
    list_remove(&belonging->node);
    belonging->scope = NULL;
    if (list_empty(&scope->belongings)) scope_settle(scope);
    scope_unlock(scope);
    /* Out of the list nobody posts it any more; what is under way comes back. */
    if (atom_exchange(&belonging->mail_bits, BELONGING_FORGOTTEN) != 0) return false;
    atom_store(&belonging->mail_bits, 0);
    return true;
}

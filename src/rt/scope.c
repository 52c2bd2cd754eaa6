/* scope.c - opening, joining, closing and signalling scopes. */
#include "rt/scope.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/planted.h"
#include "rt/mem.h"
#include "rt/report.h"
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
        lock_init_spinning(&scope->lock, runtime->spin);
        scope->runtime = runtime;
        scope->shared = runtime->shared;
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
        return refuse(
            "scope '%s': overflow must be WEIR_WAIT or WEIR_REJECT, tasks are not dropped",
            spec->name);
    }
    if (spec->deadline_ms < 0) { return refuse("scope '%s': deadline_ms is negative", spec->name); }
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

void scope_misused(const weir_scope *scope, const char *call)
{
    if (!scope) misuse("%s: scope is NULL", call);
    if (atom_load(&scope->state) == SCOPE_OPEN || atom_load(&scope->state) == SCOPE_CLOSING) {
        misuse("%s: scope '%s', opened at %s, belongs to another runtime", call, scope->name,
               scope->where);
    }
    misuse("%s: the scope is closed (it was '%s', opened at %s)", call, scope->name,
           scope->where ? scope->where : "?");
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
    size_t name_bytes;

    scope->home = worker;
    scope->opener = opener;
    scope->where = where;
    scope->on_failure = spec->on_failure;
    scope->overflow = spec->overflow;
    scope->place = spec->place ? spec->place : WEIR_ANYWHERE;
    scope->max_tasks = spec->max_tasks;
    scope->restart = spec->restart;
    sanitize_unseen_begin(); /* another task's scope was here before */
    name_bytes = strnlen(spec->name, sizeof scope->name - 1);
    memcpy(scope->name, spec->name, name_bytes); /* a third of the price of snprintf */
    scope->name[name_bytes] = '\0';
    sanitize_unseen_end();
    timer_init(&scope->deadline, deadline_passed);
    timer_init(&scope->grace, grace_over);
    list_init(&scope->children);
    list_init(&scope->ended);
    list_init(&scope->spawners);
    list_init(&scope->belongings);
    scope->live = 0;
    scope->attendants = 0;
    scope->room_wanted = false;
    scope->posts_turn = false;
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
    scope->special =
        spec->on_failure == WEIR_SUPERVISE || scope->size_class != worker->runtime->default_class;
    scope->restart_times = restart_times;
    set_deadline(worker, scope, spec->deadline_ms);
    if (opener) {
        opener->open_scopes++;
        block_push(opener, &scope->block);
        atom_store(&scope->children_signals, block_inherited(scope->block.effective));
    }
    *ret_scope = scope;
    return 0;
}

/* A task whose handle nobody has joined. From here on the handle is stale, for a
 * joiner on another worker too. */
static struct task *take_ended(weir_scope *scope)
{
    struct task *task = NULL;
    struct list *node;

    scope_lock(scope);
    node = list_pop(&scope->ended);
    if (node) {
        task = container_of(node, struct task, sibling);
        atom_store(&task->id, 0);
    }
    scope_unlock(scope);
    return task;
}

void scope_release(struct worker *worker, weir_scope *scope)
{
    struct task *task;

    while ((task = take_ended(scope))) task_release(worker, task);
    timer_disarm(worker, &scope->deadline);
    timer_disarm(worker, &scope->grace);
    mem_free(scope->failures);
    mem_free(scope->restart_times);
    scope->failures = NULL;
    scope->restart_times = NULL;
    if (__builtin_expect(scope->runtime->cancel_target == scope, 0)) {
        scope->runtime->cancel_target = NULL;
    }
    atom_store(&scope->state, SCOPE_CLOSED);
    sanitize_forget(scope);
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

/* A million children are a million cache misses in three or four places each; so the
 * walk is accompanied by two others ahead of it, which only prefetch. */
struct look_ahead {
    struct list *far;  /* its task is wanted soon */
    struct list *near; /* its task is here: its innermost block is wanted next */
};
enum { LOOK_FAR = 8, LOOK_NEAR = 4 };

static void look_ahead_step(struct look_ahead *ahead, const struct list *end)
{
    if (ahead->far != end) {
        struct task *task = container_of(ahead->far, struct task, sibling);
        __builtin_prefetch(task);
        __builtin_prefetch(&task->wait);
        ahead->far = ahead->far->next;
        __builtin_prefetch(ahead->far);
    }
    if (ahead->near != end) {
        __builtin_prefetch(container_of(ahead->near, struct task, sibling)->top);
        ahead->near = ahead->near->next;
    }
}

/* With one worker a simple parked task is interrupted on the spot: then it is walked
 * over once, not twice. The lock is held. */
static void tell_children(weir_scope *scope)
{
    struct worker *worker = worker_self();
    const struct list *end = &scope->children;
    struct look_ahead ahead = {scope->children.next, scope->children.next};

    /* The blocks of tasks on other workers are theirs, to look at as well. */
    if (scope->shared) ahead.near = &scope->children;

    for (int i = 0; i < LOOK_FAR && ahead.far != end; i++) ahead.far = ahead.far->next;
    for (int i = 0; i < LOOK_NEAR && ahead.near != end; i++) ahead.near = ahead.near->next;
    list_for_each(node, &scope->children) {
        struct task *task = container_of(node, struct task, sibling);
        look_ahead_step(&ahead, end);
        if (scope->shared || !block_refresh_if_simple(worker, task)) {
            task_mail(task, MAIL_REFRESH);
        }
    }
}

/* Tell everybody below what is in force; the lock is held. */
static void hand_on(weir_scope *scope, uint8_t signals)
{
    if ((atom_load(&scope->children_signals) & signals) == signals) return;
    /* Before the walk: a child that starts now, and so is not told, reads it itself. */
    if (!PLANTED(SIGNALS_AFTER_WALK)) (void)atom_or(&scope->children_signals, signals);
    tell_children(scope);
    if (PLANTED(SIGNALS_AFTER_WALK)) (void)atom_or(&scope->children_signals, signals);
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

void scope_signal_locked(weir_scope *scope, uint8_t signals, enum weir_cause cause, int error,
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
    if (scope->opener && !PLANTED(OPENER_NOT_TOLD)) task_mail(scope->opener, MAIL_REFRESH);
}

void scope_signal(weir_scope *scope, uint8_t signals, enum weir_cause cause, int error,
                  const char *why)
{
    scope_lock(scope);
    if (cause == WEIR_CAUSE_CANCEL && error < 0 && scope->first_error == 0 &&
        scope->cause == WEIR_CAUSE_NONE) {
        scope->first_error = error;
    }
    scope_signal_locked(scope, signals, cause, error, why);
    scope_unlock(scope);
    task_refresh_self();
    mail_deliver_local(worker_self());
}

static void deadline_passed(struct worker *worker, struct timer *timer)
{
    weir_scope *scope = container_of(timer, weir_scope, deadline);
    (void)worker;
    scope_signal(scope, SIGNAL_EXPIRED, WEIR_CAUSE_DEADLINE, WEIR_ETIMEDOUT,
                 "the scope's deadline passed");
}

static struct worker *calling_worker(const char *call)
{
    struct worker *worker = worker_self();
    if (!worker) misuse("%s: called outside the runtime", call);
    return worker;
}

void weir_scope_cancel(weir_scope *scope, int error, const char *why)
{
    scope_check(scope, "weir_scope_cancel");
    worker_touched(calling_worker("weir_scope_cancel"));
    if (error > 0) error = 0;
    scope_signal(scope, SIGNAL_CANCELLED, WEIR_CAUSE_CANCEL, error, why);
}

/* ---- Stopping ---- */

static void grace_over(struct worker *worker, struct timer *timer)
{
    weir_scope *scope = container_of(timer, weir_scope, grace);
    int64_t again_ms;

    scope_lock(scope); /* another worker may shorten it */
    again_ms = scope->stop_grace_ms > 1000 ? scope->stop_grace_ms : 1000;
    scope_unlock(scope);
    if (scope->cut_off_reported) {
        report_alive(worker, scope,
                     "has not ended although its grace period is over and it is cancelled");
    } else {
        scope->cut_off_reported = true;
        report_alive(worker, scope, "was cut off: it had not ended when the grace period was over");
        scope_signal(scope, SIGNAL_CANCELLED, WEIR_CAUSE_STOP, WEIR_ECANCELED,
                     "the grace period of the stop is over");
    }
    timer_arm(worker, timer, time_after_ms(worker->now_ns, again_ms));
}

static void arm_grace(struct worker *worker, struct mail *mail)
{
    weir_scope *scope = container_of(mail, weir_scope, mail);
    int64_t at_ns;

    /* Under the lock: a stop that comes after this reading posts the mail again. */
    scope_lock(scope);
    atom_store_total(&scope->mail_pending, 0);
    at_ns = scope->stop_at_ns;
    scope_unlock(scope);
    if (!scope->cut_off_reported) timer_arm(worker, &scope->grace, at_ns);
}

void weir_scope_stop(weir_scope *scope, int64_t grace_ms)
{
    struct worker *worker = calling_worker("weir_scope_stop");
    int64_t at_ns;
    bool sooner;

    scope_check(scope, "weir_scope_stop");
    worker_touched(worker);
    if (grace_ms < 0) grace_ms = 0;
    at_ns = time_after_ms(worker->kernel->now_ns(worker->kernel), grace_ms);
    scope_lock(scope);
    sooner = at_ns < scope->stop_at_ns;
    if (sooner) {
        scope->stop_at_ns = at_ns;
        scope->stop_grace_ms = grace_ms;
    }
    scope_signal_locked(scope, SIGNAL_STOPPING, WEIR_CAUSE_STOP, 0, "stopping");
    if (sooner && atom_exchange(&scope->mail_pending, 1) == 0) {
        if (scope->home == worker) {
            mail_post_local(worker, &scope->mail);
        } else {
            mail_post(scope->home, &scope->mail);
        }
    }
    scope_unlock(scope);
    task_refresh_self();
    mail_deliver_local(worker);
}

/* ---- Joining and closing ---- */

void scope_settle(weir_scope *scope)
{
    if (scope->live > scope->attendants) return;
    if (scope->joiner) {
        struct task *joiner = scope->joiner;
        scope->joiner = NULL;
        task_wake(joiner, 0);
    } else if (!scope->opener && scope->live == 0) {
        runtime_root_settled(scope->runtime);
    }
}

static void close_describe(const void *object, char *text, size_t bytes)
{
    const weir_scope *scope = object;
    (void)snprintf(text, bytes, "scope '%s', %zu task%s alive", scope->name, scope->live,
                   scope->live == 1 ? "" : "s");
}

/* Without tasks it waits for belongings, which let go on their workers. Attendants that have
 * nothing to do (ENDS_AT_CLOSE) are dismissed when all others have ended. */
static void close_facts(const void *object, struct waiting *ret_waiting)
{
    const weir_scope *scope = object;
    waiting_name(ret_waiting, "scope", scope->name);
    ret_waiting->scope = scope;
    if (scope->live == 0 || !scope->joiner) ret_waiting->ends = ENDS_OUTSIDE;
}

static const struct wait_kind wait_close = {
    .name = "close",
    .describe = close_describe,
    .what = WAIT_FOR_SCOPE,
    .ends = ENDS_WITH_ALL,
    .facts = close_facts,
};

/* Whether a deadline or a shield between the scope and the place of the join has run
 * out. What interrupts the scope itself interrupts its tasks too: then the join has an
 * end, and waits for it. */
static bool interrupted_inside(const struct task *task, const weir_scope *scope)
{
    for (const struct block *block = task->top; block && block != &scope->block;
         block = block->outer) {
        if (atom_load(&block->own) & SIGNAL_INTERRUPTS) return true;
    }
    return false;
}

static bool scope_join_abort(struct task *task, void *object)
{
    weir_scope *scope = object;
    bool waiting;

    if (!interrupted_inside(task, scope)) return false;
    scope_lock(scope);
    waiting = scope->joiner == task;
    if (waiting) scope->joiner = NULL;
    scope_unlock(scope);
    return waiting;
}

static const struct wait_kind wait_scope_join = {
    .name = "scope join",
    .abort = scope_join_abort,
    .describe = close_describe,
    .what = WAIT_FOR_SCOPE,
    .ends = ENDS_WITH_ALL,
    .facts = close_facts,
};

/* Park until somebody settles the scope; the lock is held and taken again. */
static int wait_until_settled(weir_scope *scope, struct task *self,
                              const struct wait_kind *kind) LOCK_UNCHECKED;
static int wait_until_settled(weir_scope *scope, struct task *self, const struct wait_kind *kind)
{
    int r;
    scope->joiner = self;
    scope_unlock(scope);
    r = task_park(self, kind, scope);
    scope_lock(scope);
    return r;
}

/* Ask all belongings to let go, each on its own worker. The lock is held. */
static void ask_to_let_go(weir_scope *scope)
{
    list_for_each(node, &scope->belongings) {
        belonging_mail(container_of(node, struct belonging, node), BELONGING_RELEASE);
    }
}

void scope_release_belongings(weir_scope *scope)
{
    scope_lock(scope);
    ask_to_let_go(scope);
    scope_unlock(scope);
}

/* Nobody is left but attendants. The newest may need the older ones to finish what it has,
 * so each is dismissed when those after it have ended. The lock is held. */
static void dismiss_newest(weir_scope *scope)
{
    for (struct list *node = scope->belongings.prev; node != &scope->belongings;
         node = node->prev) {
        struct belonging *belonging = container_of(node, struct belonging, node);
        if (belonging->attendants == 0) continue;
        belonging_mail(belonging, BELONGING_DISMISSED);
        return;
    }
}

/* Wait until there is neither a task nor a belonging. Both are looked at under one hold
 * of the lock: a belonging's callback may spawn a task and let go of itself. */
static void wait_for_everything(weir_scope *scope, struct task *self)
{
    /* A suspension point like any other, but one that cannot fail. */
    (void)task_enter(self, ENTER_PLAIN);
    scope_lock(scope);
    while (scope->live > 0 ||
           (!list_empty(&scope->belongings) && !PLANTED(BELONGINGS_NOT_AWAITED))) {
        if (scope->live == 0) {
            ask_to_let_go(scope);
        } else if (scope->live == scope->attendants) {
            dismiss_newest(scope);
        }
        (void)wait_until_settled(scope, self, &wait_close);
    }
    scope_unlock(scope);
    sanitize_acquire(scope);
}

int scope_result(weir_scope *scope)
{
    const struct block *outer = scope->block.outer;

    if (scope->first_error < 0) return scope->first_error;
    if (scope->interrupted == 0) return 0;
    /* What came first is the reason; later signals change nothing. */
    if (scope->cause == WEIR_CAUSE_CANCEL) return scope->cancel_error;
    if (scope->cause == WEIR_CAUSE_DEADLINE && !(outer && outer->effective & SIGNAL_INTERRUPTS)) {
        return WEIR_ETIMEDOUT;
    }
    return scope->block.effective & SIGNAL_INTERRUPTS || scope->cause ? WEIR_ECANCELED : 0;
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
    r = task_enter(self, ENTER_PLAIN);
    if (r < 0 && interrupted_inside(self, scope)) return r;
    r = 0;
    scope_lock(scope);
    while (r == 0 && scope->live > scope->attendants) {
        r = wait_until_settled(scope, self, &wait_scope_join);
    }
    if (r == 0) r = scope_result(scope);
    scope_unlock(scope);
    sanitize_acquire(scope);
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
    wait_for_everything(scope, self);
    /* A stop from another worker may have mail under way to this one. */
    while (atom_load_total(&scope->mail_pending)) task_yield(self);
    r = scope_result(scope);
    block_pop(self, &scope->block);
    self->open_scopes--;
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
    if (block->ret_result && (r < 0 || *block->ret_result >= 0)) *block->ret_result = r;
}

/* ---- Looking ---- */

size_t weir_scope_failures(weir_scope *scope, weir_failure *failures, size_t count_max)
{
    size_t total;
    scope_check(scope, "weir_scope_failures");
    scope_lock(scope);
    sanitize_unseen_begin(); /* the lock orders it, see sanitize.h */
    for (size_t i = 0; i < scope->failures_count && i < count_max; i++) {
        failures[i] = scope->failures[i];
    }
    sanitize_unseen_end();
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

/* task.c - making, parking, waking and ending tasks. */
#include "rt/task.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rt/mem.h"
#include "rt/runtime.h"
#include "rt/scope.h"

enum { IGNORED_REPORT_AT = 1000 };

/* Bit s of row r: a task may go from state r to state s. */
#define MOVE(state) (1u << (state))
static const uint8_t task_moves[TASK_STATES] = {
    [TASK_FREE] = MOVE(TASK_NEW),
    [TASK_NEW] = MOVE(TASK_RUNNING) | MOVE(TASK_FREE),
    [TASK_READY] = MOVE(TASK_RUNNING),
    [TASK_RUNNING] = MOVE(TASK_READY) | MOVE(TASK_PARKED) | MOVE(TASK_BACKOFF) | MOVE(TASK_ENDED),
    [TASK_PARKED] = MOVE(TASK_READY),
    [TASK_BACKOFF] = MOVE(TASK_NEW) | MOVE(TASK_ENDED),
    [TASK_ENDED] = MOVE(TASK_FREE),
};

void task_set_state(struct task *task, enum task_state state)
{
    assert(task_moves[task->state] & MOVE(state));
    task->state = (uint8_t)state;
}

struct task *task_self(void)
{
    struct worker *worker = worker_self();
    return worker ? worker->current : NULL;
}

/* ---- Memory ---- */

struct task_slab {
    struct task_slab *next;
    struct task tasks[];
};

static void deliver_task_mail(struct worker *worker, struct mail *mail);

/* Fetch free tasks from the runtime, or make some. Each carries one credit for a
 * stack of the default class, so having a task is having a stack. */
static int refill(struct worker *worker)
{
    weir_runtime *runtime = worker->runtime;
    unsigned count = 0;
    struct task_slab *slab;
    int r;

    lock_acquire(&runtime->memory_lock);
    while (runtime->free_tasks && count < worker->task_move_count) {
        struct task *task = runtime->free_tasks;
        runtime->free_tasks = task->run_next;
        task->run_next = worker->free_tasks;
        worker->free_tasks = task;
        count++;
    }
    runtime->free_task_count -= count;
    lock_release(&runtime->memory_lock);
    worker->free_task_count += count;
    if (count > 0) return 0;

    /* Close to the cap the last few are made one by one. */
    count = worker->task_move_count;
    r = stack_credit_take(&runtime->stacks, runtime->default_class, count);
    if (r == WEIR_EOVERLOAD && count > 1) {
        count = 1;
        r = stack_credit_take(&runtime->stacks, runtime->default_class, count);
    }
    if (r < 0) return r;
    slab = mem_alloc_zeroed(sizeof *slab + count * sizeof slab->tasks[0]);
    if (!slab) {
        stack_credit_return(&runtime->stacks, runtime->default_class, count);
        return -ENOMEM;
    }
    for (unsigned i = 0; i < count; i++) {
        slab->tasks[i].mail.deliver = deliver_task_mail;
        slab->tasks[i].run_next = worker->free_tasks;
        worker->free_tasks = &slab->tasks[i];
    }
    worker->free_task_count += count;
    lock_acquire(&runtime->memory_lock);
    slab->next = runtime->task_slabs;
    runtime->task_slabs = slab;
    lock_release(&runtime->memory_lock);
    return 0;
}

void task_slabs_free(weir_runtime *runtime)
{
    while (runtime->task_slabs) {
        struct task_slab *slab = runtime->task_slabs;
        runtime->task_slabs = slab->next;
        mem_free(slab);
    }
}

static void give_back_surplus(struct worker *worker)
{
    weir_runtime *runtime = worker->runtime;
    lock_acquire(&runtime->memory_lock);
    for (unsigned i = 0; i < TASK_MOVE_COUNT; i++) {
        struct task *task = worker->free_tasks;
        worker->free_tasks = task->run_next;
        task->run_next = runtime->free_tasks;
        runtime->free_tasks = task;
    }
    runtime->free_task_count += TASK_MOVE_COUNT;
    lock_release(&runtime->memory_lock);
    worker->free_task_count -= TASK_MOVE_COUNT;
}

static void task_free(struct worker *worker, struct task *task)
{
    task_set_state(task, TASK_FREE);
    task->run_next = worker->free_tasks;
    worker->free_tasks = task;
    if (++worker->free_task_count > TASK_CACHE_MAX && worker->shared) give_back_surplus(worker);
}

/* Copy the argument, and the name unless it is a constant. */
static int copy_argument(struct task *task, const weir_task_spec *spec, bool name_is_constant)
{
    size_t name_bytes = 0;
    size_t arg_room = (spec->arg_bytes + 15) & ~(size_t)15;
    char *memory;

    task->arg_bytes = spec->arg_bytes;
    task->name = spec->name ? spec->name : "task";
    if (spec->name && !name_is_constant) name_bytes = strnlen(spec->name, 31) + 1;
    if (name_bytes == 0 && spec->arg_bytes <= TASK_ARG_INLINE) {
        task->arg = task->inline_arg;
        if (spec->arg_bytes > 0) memcpy(task->arg, spec->arg, spec->arg_bytes);
        return 0;
    }
    memory = mem_alloc(arg_room + name_bytes);
    if (!memory) return -ENOMEM;
    task->arg = memory;
    if (spec->arg_bytes > 0) memcpy(memory, spec->arg, spec->arg_bytes);
    if (name_bytes > 0) {
        memcpy(memory + arg_room, spec->name, name_bytes - 1);
        memory[arg_room + name_bytes - 1] = '\0';
        task->name = memory + arg_room;
    }
    return 0;
}

static int make_restartable(struct task *task)
{
    struct restart_record *record = mem_alloc_zeroed(sizeof *record + task->arg_bytes);
    if (!record) return -ENOMEM;
    record->task = task;
    if (task->arg_bytes > 0) memcpy(record->pristine, task->arg, task->arg_bytes);
    task->restart = record;
    return 0;
}

int task_new(struct worker *worker, weir_scope *scope, const weir_task_spec *spec,
             bool name_is_constant, struct task **ret_task)
{
    struct task *task;
    unsigned size_class = scope->size_class;
    int r;

    if (!worker->free_tasks) {
        r = refill(worker);
        if (r < 0) return r;
    }
    if (spec->stack_bytes > 0) size_class = (unsigned)stack_class_for(spec->stack_bytes);
    if (size_class != worker->runtime->default_class) {
        r = stack_credit_take(&worker->runtime->stacks, size_class, 1);
        if (r < 0) return r;
    }
    task = worker->free_tasks;
    r = copy_argument(task, spec, name_is_constant);
    if (r < 0) goto fail_credit;
    if (scope->on_failure == WEIR_SUPERVISE) {
        r = make_restartable(task);
        if (r < 0) goto fail_argument;
    }
    worker->free_tasks = task->run_next;
    worker->free_task_count--;
    task_set_state(task, TASK_NEW);
    task->scope = scope;
    task->fn = spec->fn;
    task->size_class = (uint8_t)size_class;
    task->place = (uint8_t)(spec->place ? spec->place : scope->place);
    task->target_worker = (uint8_t)spec->worker;
    task->budget = TASK_BUDGET;
    task->attention = 0;
    block_init_task(&task->base, scope);
    task->top = &task->base;
    task->locals = worker->current ? local_ref(worker->current->locals) : NULL;
    atom_store(&task->home, NULL);
    atom_store(&task->id, ((uint64_t)worker->index << 48) | ++worker->next_id);
    *ret_task = task;
    return 0;

fail_argument:
    if (task->arg != task->inline_arg) mem_free(task->arg);
fail_credit:
    if (size_class != worker->runtime->default_class) {
        stack_credit_return(&worker->runtime->stacks, size_class, 1);
    }
    return r;
}

/* Set bits; returns the old ones. With one worker nobody else can be at it. */
static unsigned mail_bits_add(struct worker *worker, struct task *task, unsigned bits)
{
    unsigned old;
    if (worker->shared) return atom_or(&task->mail_bits, (uint8_t)bits);
    old = atom_load(&task->mail_bits);
    atom_store(&task->mail_bits, (uint8_t)(old | bits));
    return old;
}

void task_release(struct worker *worker, struct task *task)
{
    assert(!task->stack);
    atom_store(&task->id, 0);
    if (task->arg != task->inline_arg) mem_free(task->arg);
    if (task->restart) {
        mem_free(task->restart);
        task->restart = NULL;
    }
    if (task->locals) {
        local_unref(task->locals);
        task->locals = NULL;
    }
    if (task->why) {
        mem_free(task->why);
        task->why = NULL;
    }
    task->has_handle = false;
    task->ended = false;
    task->joiner = NULL;
    task->ignored = 0;
    task->ignored_reported = false;
    task->cancel_why = NULL;
    if (task->size_class != worker->runtime->default_class) {
        stack_credit_return(&worker->runtime->stacks, task->size_class, 1);
    }
    /* Mail that is still under way brings the task back here by its delivery. */
    if (mail_bits_add(worker, task, MAIL_RELEASE) != 0) return;
    atom_store(&task->mail_bits, 0);
    task_free(worker, task);
}

/* ---- Mail: signals, wake-ups and starts from other workers ---- */

/* MAIL_BUSY stays set while the bits are worked off, so that nobody frees the task
 * meanwhile, and bits that come in are found here instead of being posted. */
static void deliver_task_mail(struct worker *worker, struct mail *mail)
{
    struct task *task = container_of(mail, struct task, mail);
    uint8_t busy = MAIL_BUSY;

    do {
        unsigned bits = atom_exchange(&task->mail_bits, MAIL_BUSY);
        if (bits & MAIL_RELEASE) {
            atom_store(&task->mail_bits, 0);
            task_free(worker, task);
            return;
        }
        if (bits & MAIL_START) worker_requeue(worker, task);
        if (bits & MAIL_WAKE) worker_ready(worker, task);
        if (bits & MAIL_REFRESH) block_refresh(worker, task);
        busy = MAIL_BUSY;
    } while (!atom_cas(&task->mail_bits, &busy, 0));
}

void task_mail(struct task *task, unsigned bits)
{
    struct worker *self = worker_self();
    struct worker *home = atom_load_total(&task->home);

    /* Not started: it looks at its scope's signals when it starts. */
    if (!home && bits == MAIL_REFRESH) return;
    sanitize_release(task);
    if (mail_bits_add(self, task, bits) != 0) return;
    if (home == self) {
        mail_post_local(self, &task->mail);
    } else {
        mail_post(home, &task->mail);
    }
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

int task_park(struct task *self, const struct wait_kind *kind, void *object)
{
    struct worker *worker = worker_self();

    self->wait.kind = kind;
    self->wait.object = object;
    self->wait.since_ns = worker->now_ns;
    task_set_state(self, TASK_PARKED);
    worker_leave(worker, self);
    self->wait.kind = NULL;
    return self->wake_result;
}

int task_interruption(const struct task *task, bool takes_work)
{
    uint8_t signals = task->attention;
    if (signals & SIGNAL_CANCELLED) return WEIR_ECANCELED;
    if (signals & SIGNAL_EXPIRED) return WEIR_ETIMEDOUT;
    if (takes_work && (signals & SIGNAL_STOPPING)) return WEIR_ESTOPPING;
    return 0;
}

void task_yield(struct task *self)
{
    struct worker *worker = worker_self();
    task_set_state(self, TASK_READY);
    worker_requeue(worker, self);
    worker_leave(worker, self);
}

/* A cancelled task that goes on calling is not stopped, but it is named. */
static void count_ignored(struct task *self)
{
    if (++self->ignored < IGNORED_REPORT_AT || self->ignored_reported) return;
    self->ignored_reported = true;
    log_write(worker_self()->runtime, WEIR_LOG_WARNING, self,
              "has made %d suspending calls since it was cancelled and does not end",
              IGNORED_REPORT_AT);
}

static void offer_cancel_point(struct task *self)
{
    weir_runtime *runtime = worker_self()->runtime;
    (void)self;
    if (kernel_choose(runtime->kernel, CHOOSE_CANCEL, 2) == 1) {
        scope_signal(runtime->cancel_target, SIGNAL_CANCELLED, WEIR_CAUSE_CANCEL, WEIR_ECANCELED,
                     "cancelled at a chosen suspension point");
    }
}

int task_enter_slow(struct task *self, enum task_entry entry)
{
    int error;

    if (self->attention & ATTENTION_HOOK) offer_cancel_point(self);
    if (self->budget-- <= 0) task_yield(self);
    error = task_interruption(self, entry == ENTER_TAKE_WORK);
    if (error < 0) {
        count_ignored(self);
        return error;
    }
    if (entry != ENTER_PLAIN && self->top->deadline_ns == INT64_MAX && !self->top->no_deadline) {
        return refuse_as(WEIR_ENODEADLINE,
                         "task '%s': this wait has no deadline: put it inside WEIR_DEADLINE(ms), or "
                         "inside WEIR_NO_DEADLINE(\"reason\") if it may last for ever",
                         self->name);
    }
    return 0;
}

int weir_yield(void)
{
    struct task *self = task_self();
    int error;

    if (!self) return refuse_no_task("weir_yield");
    if (self->attention & ATTENTION_HOOK) offer_cancel_point(self);
    task_yield(self);
    error = task_interruption(self, false);
    if (error < 0) count_ignored(self);
    return error;
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
    worker_arrived(worker);
    for (;;) {
        task->result = task->fn(task->arg);
        task = worker_finish(worker, task);
    }
}

static void log_end(struct worker *worker, struct task *task, bool failed)
{
    if (failed) {
        log_write(worker->runtime, WEIR_LOG_ERROR, task, "failed: %s (%s)",
                  weir_strerror(task->result), weir_error_name(task->result));
    } else {
        log_write(worker->runtime, WEIR_LOG_DEBUG, task, "ended: %d", task->result);
    }
}

void task_end(struct worker *worker, struct task *task)
{
    bool quiet = task->result >= 0 ||
                 (task->result == WEIR_ECANCELED && (task->base.effective & SIGNAL_CANCELLED));

    if (task->top != &task->base) {
        char what[160];
        block_describe(task->top, what, sizeof what);
        misuse("task '%s' returned %d with %s still open", task->name, task->result, what);
    }
    if (log_wanted(worker->runtime, quiet ? WEIR_LOG_DEBUG : WEIR_LOG_ERROR)) {
        log_end(worker, task, !quiet);
    }
    scope_task_ended(worker, task->scope, task);
}

/* ---- Public calls ---- */

static int check_spec(const weir_scope *scope, const weir_task_spec *spec, const char *name)
{
    if (!spec->fn) return refuse("task '%s' in scope '%s': fn is not set", name, scope->name);
    if (spec->arg_bytes > WEIR_ARG_BYTES_MAX) {
        return refuse("task '%s' in scope '%s': arg_bytes is %zu, at most %d", name, scope->name,
                      spec->arg_bytes, WEIR_ARG_BYTES_MAX);
    }
    if (spec->arg_bytes > 0 && !spec->arg) {
        return refuse("task '%s' in scope '%s': arg_bytes is %zu but arg is NULL", name,
                      scope->name, spec->arg_bytes);
    }
    if ((unsigned)spec->place > WEIR_PLACE_WORKER) {
        return refuse("task '%s' in scope '%s': place is not one of enum weir_place", name,
                      scope->name);
    }
    if (spec->place == WEIR_PLACE_WORKER &&
        (spec->worker < 0 || (unsigned)spec->worker >= scope->runtime->worker_count)) {
        return refuse("task '%s' in scope '%s': worker is %d, the runtime has %u", name,
                      scope->name, spec->worker, scope->runtime->worker_count);
    }
    if (spec->stack_bytes > WEIR_STACK_BYTES_MAX) {
        return refuse("task '%s' in scope '%s': stack_bytes is %zu, at most %d", name, scope->name,
                      spec->stack_bytes, WEIR_STACK_BYTES_MAX);
    }
    return 0;
}

static int spawn(weir_scope *scope, const weir_task_spec *spec, bool name_is_constant,
                 weir_task *ret_task)
{
    struct worker *worker = worker_self();
    struct task *self = worker->current;
    struct task *task;
    int r;

    if (self) {
        r = task_enter(self, ENTER_PLAIN);
        if (r < 0) return r;
    }
    r = task_new(worker, scope, spec, name_is_constant, &task);
    if (r < 0) return r;
    task->has_handle = ret_task != NULL;
    r = scope_admit(scope, self, task, false);
    if (r < 0) {
        task_release(worker, task);
        return r;
    }
    if (ret_task) *ret_task = (weir_task){task, atom_load(&task->id)};
    sanitize_release(task);
    worker_place(worker, task);
    return 0;
}

int weir_spawn_named(weir_scope *scope, const char *name, weir_task_fn fn, const void *arg,
                     size_t arg_bytes)
{
    weir_task_spec spec = {.fn = fn, .arg = arg, .arg_bytes = arg_bytes, .name = name};

    if (!worker_self()) return refuse_no_task("weir_spawn");
    scope_check(scope, "weir_spawn");
    if (__builtin_expect(!fn || arg_bytes > WEIR_ARG_BYTES_MAX || (arg_bytes > 0 && !arg), 0)) {
        return check_spec(scope, &spec, name ? name : "task");
    }
    return spawn(scope, &spec, true, NULL);
}

int weir_task_spawn_sized(weir_scope *scope, size_t spec_bytes, const weir_task_spec *given,
                          weir_task *ret_task)
{
    weir_task_spec spec;
    int r;

    if (!worker_self()) return refuse_no_task("weir_task_spawn");
    scope_check(scope, "weir_task_spawn");
    spec_copy(&spec, sizeof spec, given, spec_bytes);
    r = check_spec(scope, &spec, spec.name ? spec.name : "task");
    if (r < 0) return r;
    return spawn(scope, &spec, false, ret_task);
}

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

/* ---- Joining and cancelling one task ---- */

/* Lock the scope of a handle's task. False, and nothing locked, if it is gone: the
 * memory of tasks and scopes is type-stable, so looking is safe. */
static bool handle_lock(weir_task handle, struct task **ret_task, weir_scope **ret_scope)
    LOCK_UNCHECKED;
static bool handle_lock(weir_task handle, struct task **ret_task, weir_scope **ret_scope)
{
    struct task *task = handle.ref;
    weir_scope *scope;

    if (!task || atom_load(&task->id) != handle.id) return false;
    scope = task->scope;
    lock_acquire_if(&scope->lock, scope->runtime->shared);
    if (atom_load(&task->id) != handle.id || task->scope != scope) {
        lock_release_if(&scope->lock, scope->runtime->shared);
        return false;
    }
    *ret_task = task;
    *ret_scope = scope;
    return true;
}

static bool join_abort(struct task *task, void *object)
{
    struct join_wait *wait = object;
    weir_scope *scope;
    bool waiting = false;

    (void)task;
    scope = wait->scope; /* its memory outlives it, so the lock may be taken */
    lock_acquire_if(&scope->lock, scope->runtime->shared);
    if (wait->target) { /* else it has ended and the wake-up is on its way */
        wait->target->joiner = NULL;
        waiting = true;
    }
    lock_release_if(&scope->lock, scope->runtime->shared);
    return waiting;
}

static void join_describe(const void *object, char *text, size_t bytes)
{
    const struct join_wait *wait = object;
    const struct task *target = wait->target;
    (void)snprintf(text, bytes, "task '%s'", target ? target->name : "(ended)");
}

static const struct wait_kind wait_join = {
    .name = "join",
    .abort = join_abort,
    .describe = join_describe,
};

int weir_task_join(weir_task handle, int *ret_result)
{
    struct worker *worker = worker_self();
    struct task *self = task_self();
    struct join_wait wait = {.waiter = self};
    struct task *task;
    weir_scope *scope;
    int r;

    if (!self) return refuse_no_task("weir_task_join");
    r = task_enter(self, ENTER_PLAIN);
    if (r < 0) return r;
    if (handle.ref == self) return refuse("task '%s': a task cannot join itself", self->name);
    if (!handle_lock(handle, &task, &scope)) return WEIR_ECLOSED;
    if (!task->has_handle || task->joiner) {
        bool in_use = task->joiner != NULL;
        lock_release_if(&scope->lock, worker->shared);
        if (in_use) return WEIR_EINUSE;
        return refuse("task '%s': was spawned without a handle; its scope joins it", task->name);
    }
    if (task->ended) {
        wait.result = task->result;
        list_remove(&task->sibling);
        lock_release_if(&scope->lock, worker->shared);
        task_release(worker, task);
    } else {
        wait.target = task;
        wait.scope = scope;
        task->joiner = &wait;
        lock_release_if(&scope->lock, worker->shared);
        r = task_park(self, &wait_join, &wait);
        if (r < 0) return r;
    }
    sanitize_acquire(task);
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
    if (!handle_lock(handle, &task, &scope)) return WEIR_ECLOSED;
    alive = !task->ended;
    if (alive && !(atom_load(&task->base.own) & SIGNAL_CANCELLED)) {
        task->cancel_why = why ? why : "";
        (void)atom_or(&task->base.own, SIGNAL_CANCELLED);
        task_mail(task, MAIL_REFRESH);
    }
    lock_release_if(&scope->lock, worker->shared);
    mail_deliver_local(worker);
    return alive ? 0 : WEIR_ECLOSED;
}

/* life.c - the life of a task in its scope: made, admitted, ended, released.
 *
 * One file, because this is the hot path of spawning: with one worker it takes no
 * lock and no atomic read-modify-write from spawn to release.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/planted.h"
#include "rt/checks.h"
#include "rt/mem.h"
#include "rt/runtime.h"
#include "rt/scope.h"
#include "rt/supervise.h"
#include "rt/task.h"

/* ---- Memory ---- */

struct task_slab {
    struct task_slab *next;
    unsigned char memory[]; /* tasks, from the first aligned address on */
};

static struct task *slab_tasks(struct task_slab *slab)
{
    uintptr_t address = (uintptr_t)slab->memory + _Alignof(struct task) - 1;
    return (struct task *)(address & ~(uintptr_t)(_Alignof(struct task) - 1));
}

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
    slab = mem_alloc_zeroed(sizeof *slab + count * sizeof(struct task) + _Alignof(struct task));
    if (!slab) {
        if (PLANTED(CREDIT_LEAKED)) return -ENOMEM;
        stack_credit_return(&runtime->stacks, runtime->default_class, count);
        return -ENOMEM;
    }
    for (unsigned i = 0; i < count; i++) {
        struct task *task = &slab_tasks(slab)[i];
        task->mail.deliver = task_deliver_mail;
        task->run_next = worker->free_tasks;
        worker->free_tasks = task;
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
    for (unsigned i = 0; i < worker->task_move_count; i++) {
        struct task *task = worker->free_tasks;
        worker->free_tasks = task->run_next;
        task->run_next = runtime->free_tasks;
        runtime->free_tasks = task;
    }
    runtime->free_task_count += worker->task_move_count;
    lock_release(&runtime->memory_lock);
    worker->free_task_count -= worker->task_move_count;
}

void task_free(struct worker *worker, struct task *task)
{
    task_set_state(task, TASK_FREE);
    task->run_next = worker->free_tasks;
    worker->free_tasks = task;
    if (++worker->free_task_count > worker->task_cache_max && worker->shared) {
        give_back_surplus(worker);
    }
}

/* Copy the argument, and the name unless it is a constant. */
static int copy_argument(struct task *task, const weir_task_spec *spec, bool name_is_constant)
{
    size_t name_bytes = 0;
    size_t arg_room = (spec->arg_bytes + 15) & ~(size_t)15;
    char *memory;

    task->arg_bytes = (uint32_t)spec->arg_bytes;
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

static inline void prefetch_task(const struct task *task)
{
    uintptr_t address = (uintptr_t)task; /* also of none */
    __builtin_prefetch((const void *)address, 1);
    __builtin_prefetch((const void *)(address + 64), 1);
    __builtin_prefetch((const void *)(address + 128), 1);
    __builtin_prefetch((const void *)(address + 192), 1);
}

/* What a spawner hands on besides the argument. Apart: most have nothing of it. */
static __attribute__((noinline)) void inherit_extras(struct task *task, struct task *spawner)
{
    if (!spawner->locals && !spawner->trace) return;
    task->locals = local_ref(spawner->locals);
    task->trace = trace_ref(spawner->trace);
    task->has_extras = true;
}

/* Take the first free task and make it a new one of the scope; its name, argument and
 * choices are set by the caller. */
static inline __attribute__((always_inline)) struct task *take_free(struct worker *worker,
                                                                    weir_scope *scope,
                                                                    weir_task_fn fn,
                                                                    unsigned size_class)
{
    struct task *spawner = atom_load(&worker->current);
    struct task *task = worker->free_tasks;

    worker->free_tasks = task->run_next;
    worker->free_task_count--;
    prefetch_task(task->run_next); /* for the spawn after this one */
    task_step_state(task, TASK_FREE, TASK_NEW);
    task->attention = 0;
    task->place = (uint8_t)scope->place;
    task->has_handle = false;
    task->ended = false;
    task->size_class = (uint8_t)size_class;
    task->budget = TASK_BUDGET;
    task->top = &task->base;
    atom_store(&task->home, NULL);
    block_init_task(&task->base, scope->block.deadline_ns);
    task->scope = scope;
    task->fn = fn;
    atom_store(&task->id, worker->next_id);
    worker->next_id += worker->runtime->worker_count;
    if (spawner && __builtin_expect(spawner->has_extras, 0)) inherit_extras(task, spawner);
    return task;
}

/* The cap, or the budget that a memory limit has set. */
static __attribute__((noinline)) int refuse_no_stack(const weir_runtime *runtime,
                                                     const weir_scope *scope)
{
    const struct stack_pool *stacks = &runtime->stacks;

    if (stacks->budget_bytes > 0) {
        return refuse_as(WEIR_EOVERLOAD,
                         "scope '%s': no stack for another task: the budget of %zu KiB, which the "
                         "container's memory limit of %lld KiB has set, is used up (max_tasks of "
                         "weir_config sets another bound)",
                         scope->name, stacks->budget_bytes / 1024,
                         (long long)(runtime->memory_max_bytes / 1024));
    }
    return refuse_as(WEIR_EOVERLOAD,
                     "scope '%s': no stack for another task: the runtime has room for %zu",
                     scope->name, stacks->count_max);
}

int task_new(struct worker *worker, weir_scope *scope, const weir_task_spec *spec,
             bool name_is_constant, struct task **ret_task)
{
    struct task *task;
    unsigned size_class = scope->size_class;
    int r;

    if (!worker->free_tasks) {
        r = refill(worker);
        if (r < 0) goto fail;
    }
    if (spec->stack_bytes > 0) size_class = (unsigned)stack_class_for(spec->stack_bytes);
    if (size_class != worker->runtime->default_class) {
        r = stack_credit_lend(&worker->runtime->stacks, size_class);
        if (r < 0) goto fail;
    }
    task = worker->free_tasks;
    assert(task); /* there was one, or refill has brought some */
    r = copy_argument(task, spec, name_is_constant);
    if (r < 0) goto fail_credit;
    if (scope->on_failure == WEIR_SUPERVISE) {
        r = supervise_prepare(task);
        if (r < 0) goto fail_argument;
    }
    task = take_free(worker, scope, spec->fn, size_class);
    if (spec->place) task->place = (uint8_t)spec->place;
    task->target_worker = (uint8_t)spec->worker;
    *ret_task = task;
    return 0;

fail_argument:
    if (task->arg != task->inline_arg) mem_free(task->arg);
fail_credit:
    if (size_class != worker->runtime->default_class) {
        stack_credit_unlend(&worker->runtime->stacks, size_class);
    }
    return r;

fail:
    return r == WEIR_EOVERLOAD ? refuse_no_stack(worker->runtime, scope) : r;
}

static __attribute__((noinline)) void release_extras(struct task *task)
{
    mem_free(task->restart);
    mem_free(task->why);
    local_unref(task->locals);
    trace_unref(task->trace);
    trace_unref(task->received);
    task->trace = NULL;
    task->received = NULL;
    task->restart = NULL;
    task->why = NULL;
    task->locals = NULL;
    task->ignored = 0;
    task->has_extras = false;
}

static inline __attribute__((always_inline)) void release(struct worker *worker, struct task *task)
{
    assert(!task->stack);
    atom_store(&task->id, 0);
    sanitize_forget(task);
    if (task->arg != task->inline_arg) mem_free(task->arg);
    if (__builtin_expect(task->has_extras, 0)) release_extras(task);
    if (__builtin_expect(task->size_class != worker->runtime->default_class, 0)) {
        stack_credit_unlend(&worker->runtime->stacks, task->size_class);
    }
    /* Mail that is still under way brings the task back here by its delivery. */
    if (task_mail_bits_add(worker->shared, task, MAIL_RELEASE) != 0) return;
    atom_store(&task->mail_bits, 0);
    task_free(worker, task);
}

void task_release(struct worker *worker, struct task *task)
{
    release(worker, task);
}

/* ---- Admission ---- */

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

static void spawn_facts(const void *object, struct waiting *ret_waiting)
{
    const struct spawn_wait *wait = object;
    waiting_name(ret_waiting, "scope", wait->scope->name);
    ret_waiting->scope = wait->scope;
    if (wait->granted) ret_waiting->ends = ENDS_OUTSIDE; /* it is on its way */
}

static const struct wait_kind wait_spawn = {
    .name = "spawn",
    .abort = spawn_abort,
    .describe = spawn_describe,
    .what = WAIT_FOR_SLOT,
    .ends = ENDS_WITH_ANY,
    .facts = spawn_facts,
};

/* Wake the spawner that has waited longest; the slot is its own. The lock is held. */
static void grant_slot(struct list *first)
{
    struct spawn_wait *wait = container_of(first, struct spawn_wait, node);
    list_remove(first);
    wait->granted = true;
    task_wake(wait->waiter, 0);
}

/* A slot has become free. It goes to the spawner that has waited longest; but when a
 * postbox wants room too they take turns, so that neither starves. The lock is held. */
static void slot_return(weir_scope *scope)
{
    struct list *first = list_first(&scope->spawners);

    scope->posts_turn = !scope->posts_turn;
    if (first && !(scope->room_wanted && scope->posts_turn)) {
        grant_slot(first);
        return;
    }
    scope->live--;
    if (!scope->room_wanted) return;
    scope->room_wanted = false;
    list_for_each(node, &scope->belongings) {
        belonging_mail(container_of(node, struct belonging, node), BELONGING_SIGNALLED);
    }
}

void scope_offer_room(weir_scope *scope)
{
    struct list *first;

    scope_lock(scope);
    while (scope->live < scope->max_tasks && (first = list_first(&scope->spawners))) {
        scope->live++;
        grant_slot(first);
    }
    scope_unlock(scope);
}

/* Lets go of the lock while it waits. */
static int wait_for_slot(weir_scope *scope, struct task *self) LOCK_UNCHECKED;
static int wait_for_slot(weir_scope *scope, struct task *self)
{
    struct spawn_wait wait = {.scope = scope, .waiter = self};
    list_add_tail(&scope->spawners, &wait.node);
    scope_unlock(scope);
    int r = task_park(self, &wait_spawn, &wait);
    scope_lock(scope);
    return r;
}

int scope_admit(weir_scope *scope, struct task *self, struct task *task, bool posted)
{
    int r = 0;

    scope_lock(scope);
    if (!posted && (atom_load(&scope->children_signals) & SIGNAL_CANCELLED)) {
        r = WEIR_ECANCELED;
    } else if (scope->live < scope->max_tasks) {
        scope->live++;
    } else if (scope->overflow == WEIR_REJECT || !self) {
        r = WEIR_EOVERLOAD;
        if (posted) scope->room_wanted = true;
    } else {
        r = wait_for_slot(scope, self);
        if (r == 0 && (atom_load(&scope->children_signals) & SIGNAL_CANCELLED)) {
            r = WEIR_ECANCELED;
            if (!PLANTED(SLOT_LEAKED)) slot_return(scope);
            scope_settle(scope);
        }
    }
    if (r == 0) list_add_tail(&scope->children, &task->sibling);
    scope_unlock(scope);
    return r;
}

/* ---- Ending ---- */

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
    sanitize_unseen_begin();
    *failure = (weir_failure){.error = task->result,
                              .task_id = atom_load(&task->id),
                              .restarts = task->restart ? task->restart->total : 0};
    (void)snprintf(failure->task, sizeof failure->task, "%s", task->name);
    sanitize_unseen_end();
    (void)snprintf(failure->why, sizeof failure->why, "%s", task->why ? task->why : "");
}

/* Hand the result to whoever joins the task. True: nobody does yet, but there is a
 * handle, so that the task must be kept. The lock is held. */
static bool hand_over_result(weir_scope *scope, struct task *task)
{
    struct join_wait *joiner = task->has_handle ? task->joiner : NULL;

    task->ended = true;
    if (joiner) {
        if (PLANTED(WOKEN_BEFORE_RESULT) && !joiner->ended) task_wake(joiner->waiter, 0);
        joiner->result = task->result;
        joiner->target = NULL;
        task->joiner = NULL;
        if (!joiner->ended) {
            if (PLANTED(WOKEN_BEFORE_RESULT)) return false;
            task_wake(joiner->waiter, 0);
            return false;
        }
        if (joiner->ended(joiner)) return false;
    }
    if (!task->has_handle) return false;
    list_add_tail(&scope->ended, &task->sibling);
    return true;
}

/* It succeeded, or it gave way to a cancellation. */
static inline bool ended_quietly(const struct task *task)
{
    return task->result >= 0 ||
           (task->result == WEIR_ECANCELED && (task->base.effective & SIGNAL_CANCELLED));
}

void scope_task_ended(struct worker *worker, weir_scope *scope, struct task *task)
{
    bool failed = !ended_quietly(task);
    bool keep;

    sanitize_release(task);
    scope_lock(scope);
    if (failed && supervise_restart(worker, scope, task)) {
        scope_unlock(scope);
        return;
    }
    task_set_state(task, TASK_ENDED);
    list_remove(&task->sibling);
    if (failed) {
        bool stopping = atom_load(&scope->children_signals) & SIGNAL_STOPPING;
        record_failure(scope, task);
        /* A supervised task that fails while the scope drains is not started again; its
         * siblings finish what they have. */
        if (scope->on_failure == WEIR_FAIL_FAST ||
            (scope->on_failure == WEIR_SUPERVISE && !stopping)) {
            sanitize_unseen_begin();
            (void)snprintf(scope->cancel_name, sizeof scope->cancel_name, "%s", task->name);
            sanitize_unseen_end();
            scope_signal_locked(scope, SIGNAL_CANCELLED, WEIR_CAUSE_FAILURE, task->result,
                                "a task of the scope failed");
        }
    } else if (task->result < 0) {
        scope->interrupted++;
    }
    sanitize_release(scope);
    keep = hand_over_result(scope, task);
    /* Before the scope counts it as gone: whoever waits for that finds it released. A
     * task that is kept may be gone as soon as the lock is. */
    if (!keep) {
        atom_store(&task->id, 0);
        release(worker, task);
    }
    slot_return(scope);
    scope_settle(scope);
    scope_unlock(scope);
    /* The scope may be gone from here on. */
    if (worker->local_head) mail_deliver_local(worker);
}

/* The common end: it succeeded, or a cancellation ended it; nobody holds a handle, and
 * mostly nobody waits for room. */
static inline void end_plain(struct worker *worker, weir_scope *scope, struct task *task)
{
    bool unwanted = PLANTED(ROOM_WANTED_TOO_LATE) && list_empty(&scope->spawners);

    sanitize_release(scope);
    scope_lock(scope);
    task_set_state(task, TASK_ENDED);
    task->sibling.prev->next = task->sibling.next;
    task->sibling.next->prev = task->sibling.prev;
    atom_store(&task->id, 0);
    if (__builtin_expect(task->result < 0, 0)) scope->interrupted++;
    /* Before the scope counts it as gone: whoever waits for that finds it released. */
    release(worker, task);
    if (__builtin_expect(unwanted || (list_empty(&scope->spawners) && !scope->room_wanted), 1)) {
        scope->live--;
    } else {
        slot_return(scope);
    }
    if (scope->live <= scope->attendants) scope_settle(scope);
    scope_unlock(scope);
    if (__builtin_expect(worker->local_head != NULL, 0)) mail_deliver_local(worker);
}

static void log_end(struct worker *worker, struct task *task, bool failed)
{
    if (failed) {
        bool refused = task->why && task->result <= -4096;
        log_write(worker->runtime, WEIR_LOG_ERROR, task, "failed: %s (%s)%s%s",
                  weir_strerror(task->result), weir_error_name(task->result), refused ? ": " : "",
                  refused ? task->why : "");
    } else {
        log_write(worker->runtime, WEIR_LOG_DEBUG, task, "ended: %d", task->result);
    }
}

/* Apart, like whatever needs room on the stack: what task_main reserves is a part of
 * every task's stack that is touched in vain. */
static __attribute__((noinline)) _Noreturn void end_misused(const struct task *task)
{
    char what[160];
    block_describe(task->top, what, sizeof what);
    misuse("task '%s' returned %d with %s still open", task->name, task->result, what);
}

void task_end(struct worker *worker, struct task *task)
{
    bool quiet;

    if (__builtin_expect(task->attention & ATTENTION_HELD, 0)) checks_ends(task);
    if (__builtin_expect(ended_quietly(task) && task->top == &task->base && !task->has_handle &&
                             !log_wanted(worker->runtime, WEIR_LOG_DEBUG),
                         1)) {
        end_plain(worker, task->scope, task);
        return;
    }
    /* What is in force by now, also if the mail about it has not come yet. */
    if (task->result < 0 && task->top == &task->base) block_refresh(worker, task);
    quiet = ended_quietly(task);
    if (task->top != &task->base) end_misused(task);
    if (log_wanted(worker->runtime, quiet ? WEIR_LOG_DEBUG : WEIR_LOG_ERROR)) {
        log_end(worker, task, !quiet);
    }
    scope_task_ended(worker, task->scope, task);
}

/* ---- Spawning ---- */

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

/* The caller has called task_enter. */
static __attribute__((noinline)) int spawn_any(weir_scope *scope, const weir_task_spec *spec,
                                               bool name_is_constant, weir_task *ret_task)
{
    struct worker *worker = worker_self();
    struct task *self = atom_load(&worker->current);
    struct task *task = NULL;
    int r;

    r = task_new(worker, scope, spec, name_is_constant, &task);
    if (r < 0) return r;
    assert(task);
    task->has_handle = ret_task != NULL;
    task->joiner = NULL;
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

/* The common spawn: a free task is at hand, the argument fits in it, the scope has
 * room and wants nothing special. False: nothing was done. */
static inline bool spawn_plain(struct worker *worker, weir_scope *scope, const char *name,
                               weir_task_fn fn, const void *arg, size_t arg_bytes)
{
    struct task *task;

    if (!worker->free_tasks || arg_bytes > TASK_ARG_INLINE || scope->special) return false;
    scope_lock(scope);
    if ((atom_load(&scope->children_signals) & SIGNAL_CANCELLED) ||
        scope->live >= scope->max_tasks) {
        scope_unlock(scope);
        return false;
    }
    task = take_free(worker, scope, fn, scope->size_class);
    task->name = name;
    task->arg = task->inline_arg;
    task->arg_bytes = (uint32_t)arg_bytes;
    if (arg_bytes == sizeof(void *)) {
        memcpy(task->inline_arg, arg, sizeof(void *)); /* the usual case: one move */
    } else if (arg_bytes > 0) {
        memcpy(task->inline_arg, arg, arg_bytes);
    }
    scope->live++;
    list_add_tail(&scope->children, &task->sibling);
    scope_unlock(scope);
    sanitize_release(task);
    if (!scope->shared) {
        ready_push(&worker->ready, task);
    } else {
        worker_place(worker, task);
    }
    return true;
}

/* Apart, so that the common path has no spec on its stack. */
static __attribute__((noinline)) int spawn_named_slowly(weir_scope *scope, const char *name,
                                                        weir_task_fn fn, const void *arg,
                                                        size_t arg_bytes)
{
    weir_task_spec spec = {.fn = fn, .arg = arg, .arg_bytes = arg_bytes, .name = name};
    return spawn_any(scope, &spec, true, NULL);
}

static __attribute__((noinline)) int refuse_named(weir_scope *scope, const char *name,
                                                  weir_task_fn fn, const void *arg,
                                                  size_t arg_bytes)
{
    weir_task_spec spec = {.fn = fn, .arg = arg, .arg_bytes = arg_bytes};
    return check_spec(scope, &spec, name);
}

int weir_spawn_named(weir_scope *scope, const char *name, weir_task_fn fn, const void *arg,
                     size_t arg_bytes)
{
    struct worker *worker = worker_self();
    struct task *self;
    int r;

    if (!worker) return refuse_no_task("weir_spawn");
    scope_check(scope, "weir_spawn");
    if (!name) name = "task";
    if (__builtin_expect(!fn || arg_bytes > WEIR_ARG_BYTES_MAX || (arg_bytes > 0 && !arg), 0)) {
        return refuse_named(scope, name, fn, arg, arg_bytes);
    }
    self = atom_load(&worker->current);
    if (__builtin_expect(self != NULL, 1)) {
        r = task_enter(self, ENTER_PLAIN);
        if (r < 0) return r;
    } else {
        worker_touched(worker);
    }
    if (spawn_plain(worker, scope, name, fn, arg, arg_bytes)) return 0;
    r = spawn_named_slowly(scope, name, fn, arg, arg_bytes);
    /* Not a tail call: a task that is parked in here is shown to be in weir_spawn. */
    __asm__ volatile("");
    return r;
}

int weir_task_spawn_sized(weir_scope *scope, size_t spec_bytes, const weir_task_spec *given,
                          weir_task *ret_task)
{
    weir_task_spec spec;
    struct task *self = task_self();
    int r;

    if (!worker_self()) return refuse_no_task("weir_task_spawn");
    scope_check(scope, "weir_task_spawn");
    spec_copy(&spec, sizeof spec, given, spec_bytes);
    r = check_spec(scope, &spec, spec.name ? spec.name : "task");
    if (r < 0) return r;
    if (self) {
        r = task_enter(self, ENTER_PLAIN);
        if (r < 0) return r;
    } else {
        worker_touched(worker_self());
    }
    return spawn_any(scope, &spec, false, ret_task);
}

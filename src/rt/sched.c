/* sched.c - a worker's turn: mail, timers, a batch of tasks, poll.
 *
 *     AWAKE ──nothing ready, nothing found by a short search──▶ SLEEPING
 *       ▲                                                          │
 *       └────── event, timer, or worker_wake from another ─────────┘
 *
 * No lost wake-up: a sleeper says SLEEPING first and looks for work after that; a
 * poster leaves its work first and looks for SLEEPING after that; both with
 * sequentially consistent operations, so one of them sees the other.
 */
#include <assert.h>
#include <errno.h>

#include "base/planted.h"
#include "rt/checks.h"
#include "rt/park.h"
#include "rt/pollable.h"
#include "rt/runtime.h"
#include "rt/scope.h"
#include "rt/switch.h"

enum {
    LOOK_TASKS = WORKER_LOOK_TASKS, /* tasks run between two looks at the clock, at most */
    TURN_LOOKS = 4,                 /* looks in one turn, at most: then it is time to poll */
    TURN_TIMERS = 1024,             /* timers fired in one turn */
    STEAL_MAX = 32,
    SPIN_ROUNDS = 400,      /* about 10 µs */
    SPIN_ROUNDS_CHOSEN = 2, /* in a run that is steered: each is a choice */
    SPIN_FOUND_COUNTS = 4,  /* one that has found something makes up for so many of these */
    SPIN_AGAIN_AFTER = 64,  /* then it tries once in so many times */
    TRIM_COUNT = 64,
    TRIM_STEPS = 32,
};
#define TURN_NS INT64_C(100000)
#define WAIT_NS_MAX INT64_C(1000000000)
#define TRIM_NS INT64_C(100000000)

_Thread_local struct worker *worker_current THREAD_LOCAL_NEAR;
_Thread_local struct task *task_current THREAD_LOCAL_NEAR;

/* ---- Run queues ---- */

void worker_requeue(struct worker *worker, struct task *task)
{
    ready_push(&worker->ready, task);
}

void worker_ready(struct worker *worker, struct task *task)
{
    task_set_state(task, TASK_READY);
    ready_push(&worker->ready, task);
}

/* ---- Placing new tasks, and taking them from others ---- */

static void wake_somebody(struct worker *worker)
{
    weir_runtime *runtime = worker->runtime;
    unsigned first = kernel_choose(worker->kernel, CHOOSE_PLACE, runtime->worker_count);
    for (unsigned i = 0; i < runtime->worker_count; i++) {
        struct worker *other =
            &runtime->workers[(worker->index + 1 + first + i) % runtime->worker_count];
        if (other != worker && atom_load(&other->rest) == WORKER_SLEEPING) {
            worker_wake(other);
            return;
        }
    }
}

static void place_anywhere(struct worker *worker, struct task *task)
{
    lock_acquire(&worker->fresh_lock);
    run_queue_push(&worker->fresh, task);
    /* See the top: the task is visible before we look for a sleeper. */
    atom_store_total(&worker->fresh_count, atom_load(&worker->fresh_count) + 1);
    lock_release(&worker->fresh_lock);
    if (atom_load_total(&worker->runtime->sleeping) > 0 &&
        atom_load(&worker->runtime->searching) == 0) {
        wake_somebody(worker);
    }
}

void worker_place(struct worker *worker, struct task *task)
{
    if (!worker->shared || task->place == WEIR_PLACE_HERE ||
        (task->place == WEIR_PLACE_WORKER && task->target_worker == worker->index)) {
        ready_push(&worker->ready, task);
    } else if (task->place == WEIR_PLACE_WORKER) {
        struct worker *target = &worker->runtime->workers[task->target_worker];
        (void)atom_or(&task->mail_bits, MAIL_START);
        mail_post(target, &task->mail);
    } else {
        place_anywhere(worker, task);
    }
}

static struct task *take_fresh(struct worker *worker)
{
    struct task *task;
    if (atom_load(&worker->fresh_count) == 0) return NULL;
    lock_acquire(&worker->fresh_lock);
    task = run_queue_pop(&worker->fresh);
    if (task) atom_store(&worker->fresh_count, atom_load(&worker->fresh_count) - 1);
    lock_release(&worker->fresh_lock);
    return task;
}

static void move_tasks(struct run_queue *from, struct run_queue *to, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct task *task = run_queue_pop(from);
        assert(task);
        run_queue_push(to, task);
    }
}

/* Move up to half of another worker's unstarted tasks here. */
static bool steal_from(struct worker *worker, struct worker *victim)
{
    struct run_queue taken = {0};
    unsigned count;

    if (atom_load(&victim->fresh_count) == 0) return false;
    lock_acquire_if(&victim->fresh_lock, !PLANTED(STEALS_UNLOCKED));
    count = (atom_load(&victim->fresh_count) + 1) / 2;
    if (count > STEAL_MAX) count = STEAL_MAX;
    move_tasks(&victim->fresh, &taken, count);
    atom_store(&victim->fresh_count, atom_load(&victim->fresh_count) - count);
    lock_release_if(&victim->fresh_lock, !PLANTED(STEALS_UNLOCKED));
    if (count == 0) return false;

    /* One is ours for good: else two workers could take a task from each other for ever, and
     * neither start it. */
    ready_push(&worker->ready, run_queue_pop(&taken));
    if (count > 1) {
        lock_acquire(&worker->fresh_lock);
        move_tasks(&taken, &worker->fresh, count - 1);
        atom_store(&worker->fresh_count, atom_load(&worker->fresh_count) + count - 1);
        lock_release(&worker->fresh_lock);
    }
    atom_store(&worker->tasks_stolen, atom_load(&worker->tasks_stolen) + count);
    return true;
}

static bool steal(struct worker *worker)
{
    weir_runtime *runtime = worker->runtime;
    unsigned others = runtime->worker_count - 1;
    unsigned first;

    if (others == 0) return false;
    first = kernel_choose(worker->kernel, CHOOSE_STEAL, others);
    for (unsigned i = 0; i < others; i++) {
        unsigned index = (worker->index + 1 + (first + i) % others) % runtime->worker_count;
        if (steal_from(worker, &runtime->workers[index])) return true;
    }
    return false;
}

/* ---- Running tasks ---- */

/* Tasks that wait for their turn and tasks that have not started share the worker
 * one by one, so that neither can starve the other. */
static struct task *pick_chosen(struct worker *worker)
{
    unsigned place = atom_load(&worker->ready.head);
    struct task *task = NULL;

    if (worker->shared) {
        worker->fresh_turn = !worker->fresh_turn && !PLANTED(NEW_TASKS_STARVE);
        if (worker->fresh_turn || worker->ready.count == 0) task = take_fresh(worker);
    }
    if (!task && worker->ready.count > 0) {
        unsigned index = 0;
        if (worker->kernel->choose && worker->ready.count > 1) {
            index = kernel_choose(worker->kernel, CHOOSE_TASK, worker->ready.count);
        }
        task = index == 0 ? ready_pop(&worker->ready) : ready_take(&worker->ready, index);
    }
    /* It counts as one, although the queue has not moved on. */
    if (task && atom_load(&worker->ready.head) == place) worker->look_at--;
    return task;
}

/* Every LOOK_TASKS tasks: whether the turn may go on. */
static __attribute__((noinline)) bool look_at_clock(struct worker *worker)
{
    int64_t before_ns = worker->now_ns;

    /* If the turn is over, the next pick comes here again. */
    worker->look_at = atom_load(&worker->ready.head);
    if (worker->looks_left == 0) return false;
    worker->now_ns = worker->kernel->now_ns(worker->kernel);
    /* Slow tasks: look more often, down to after each; fast ones: less often again. */
    if (worker->now_ns - before_ns > TURN_NS) {
        worker->look_tasks = worker->look_tasks / 2 + 1;
        if (worker->now_ns - before_ns > TURN_NS * LOOK_TASKS) worker->look_tasks = 1;
    } else if (worker->look_tasks < LOOK_TASKS && worker->now_ns - before_ns < TURN_NS / 4) {
        worker->look_tasks *= 2;
    }
    if (--worker->looks_left == 0 || worker->now_ns - atom_load(&worker->turn_began_ns) > TURN_NS) {
        worker->looks_left = 0;
        return false;
    }
    worker->look_at = atom_load(&worker->ready.head) + worker->look_tasks;
    return true;
}

/* The next task of this turn, or NULL: nothing is ready, or it is time to poll. */
static inline struct task *pick(struct worker *worker)
{
    if (__builtin_expect(atom_load(&worker->ready.head) == worker->look_at, 0) &&
        !look_at_clock(worker)) {
        return NULL;
    }
    if (__builtin_expect(worker->plain, 1)) return ready_pop(&worker->ready);
    return pick_chosen(worker);
}

/* From now on the task is this worker's. */
static void start(struct worker *worker, struct task *task)
{
    if (PLANTED(HOME_AFTER_SIGNALS)) {
    } else if (worker->shared) {
        atom_store_total(&task->home, worker);
    } else {
        atom_store(&task->home, worker);
    }
    if (__builtin_expect(worker->kernel->choose != NULL, 0))
        task_set_attention(task, ATTENTION_HOOK);
    if (__builtin_expect(atom_load_total(&task->scope->children_signals) |
                             atom_load_total(&task->base.own),
                         0)) {
        block_start_slow(task);
    }
    if (PLANTED(HOME_AFTER_SIGNALS)) atom_store_total(&task->home, worker);
    atom_store(&worker->tasks_started, atom_load(&worker->tasks_started) + 1);
    if (__builtin_expect(log_wanted(worker->runtime, WEIR_LOG_DEBUG), 0)) {
        log_write(worker->runtime, WEIR_LOG_DEBUG, task, "started");
    }
}

static __attribute__((noinline)) void start_on_stack(struct worker *worker, struct task *task)
{
    start(worker, task);
    task->stack = stack_take(&worker->runtime->stacks, &worker->stacks, task->size_class);
    sanitize_task_begin(&task->sanitize, task->stack->low, stack_bytes(task->stack));
    switch_prepare(&task->context, stack_top(task->stack), task_main, task);
}

/* Make the task the running one; it has a stack when this returns. */
static inline void enter(struct worker *worker, struct task *task)
{
    if (__builtin_expect(task->state == TASK_NEW, 0)) {
        start_on_stack(worker, task);
        task_step_state(task, TASK_NEW, TASK_RUNNING);
    } else {
        task_step_state(task, TASK_READY, TASK_RUNNING);
    }
    task_renew_budget(task);
    worker_set_current(worker, task);
}

static inline __attribute__((always_inline)) void leave(struct worker *worker, struct task *self)
{
    struct task *next = pick(worker);

    if (next == self) {
        enter(worker, self);
        return;
    }
    sanitize_release(worker);
    if (next) {
        enter(worker, next);
        sanitize_switch(&self->sanitize, &next->sanitize, 0);
        switch_to(&self->context, &next->context);
    } else {
        worker_set_current(worker, NULL);
        sanitize_switch(&self->sanitize, &worker->sanitize, 0);
        switch_to(&self->context, &worker->loop_context);
    }
    task_arrived(worker, self);
}

/* ---- Suspending ---- */

int task_park(struct task *self, const struct wait_kind *kind, void *object)
{
    struct worker *worker = worker_self();

    self->wait.kind = kind;
    self->wait.object = object;
    self->wait.since_ns = worker->now_ns;
    task_step_state(self, TASK_RUNNING, TASK_PARKED);
    leave(worker, self);
    return self->wake_result;
}

/* Always inline: a call that is entered by one task and returned from by another is a
 * return that the processor predicts wrongly. */
static inline __attribute__((always_inline)) void yield(struct worker *worker, struct task *self)
{
    task_step_state(self, TASK_RUNNING, TASK_READY);
    ready_push(&worker->ready, self);
    leave(worker, self);
}

void task_yield(struct task *self)
{
    yield(worker_self(), self);
}

/* The common yield: the next task is at hand and has started. False: nothing was done.
 * It is measured in instructions, so there are few: `ready.count` stays, and nothing but
 * `self` is kept across the switch. */
static inline __attribute__((always_inline)) bool yield_plain(struct worker *worker,
                                                              struct task *self)
{
    struct ready_queue *queue = &worker->ready;
    unsigned place = atom_load(&queue->head);
    unsigned count = queue->count;
    struct task *next = queue->tasks[place % READY_RING];

    if (__builtin_expect(count - 1 >= READY_RING || place == worker->look_at || !worker->plain,
                         0)) {
        return false;
    }
    if (__builtin_expect(next->state != TASK_READY, 0)) return false;
    task_step_state(next, TASK_READY, TASK_RUNNING);
    task_step_state(self, TASK_RUNNING, TASK_READY);
    ready_fetch_ahead(queue, place, READY_LINES);
    ready_put(queue, place + count, self, switch_sp());
    atom_store(&queue->head, place + 1);
    task_renew_budget(next);
    worker_set_current(worker, next);
    sanitize_release(worker);
    sanitize_switch(&self->sanitize, &next->sanitize, 0);
    switch_to(&self->context, &next->context);
    task_arrived(worker_self(), self);
    return true;
}

static __attribute__((noinline)) void yield_noticed(struct task *self)
{
    if (self->attention & ATTENTION_HOOK) task_offer_cancel_point();
    if (self->attention & ATTENTION_HELD) checks_suspends(self);
}

int weir_yield(void)
{
    struct worker *worker = worker_self();
    struct task *self = worker ? atom_load(&worker->current) : NULL;

    if (__builtin_expect(!self, 0)) return refuse_no_task("weir_yield");
    if (__builtin_expect(self->attention & ATTENTION_STAYS, 0)) yield_noticed(self);
    if (__builtin_expect(!yield_plain(worker, self), 0)) yield(worker, self);
    if (__builtin_expect((self->attention & SIGNAL_INTERRUPTS) == 0, 1)) return 0;
    return task_interrupted(self, false);
}

/* ---- Ending ---- */

struct task *worker_finish(struct worker *worker, struct task *task)
{
    struct stack *stack = task->stack;
    unsigned size_class = task->size_class;
    struct sanitize_context context = task->sanitize;
    struct task *next;
    struct switch_context unused;

    task->stack = NULL;
    worker_set_current(worker, NULL);
    atom_store(&worker->tasks_ended, atom_load(&worker->tasks_ended) + 1);
    task_end(worker, task);
    next = pick(worker);
#if !WEIR_ASAN && !WEIR_TSAN
    /* A run of short tasks shares one hot stack and needs no switch at all. */
    if (next && next->state == TASK_NEW && next->size_class == size_class) {
        start(worker, next);
        next->stack = stack;
        task_set_state(next, TASK_RUNNING);
        worker_set_current(worker, next);
        return next;
    }
#endif
    worker->left_sanitize = context;
    sanitize_release(worker);
    if (next) enter(worker, next);
    /* We are still on it, and until the switch nobody else can be: it goes into the cache
     * of this worker, which takes none before. */
    stack_return(&worker->runtime->stacks, &worker->stacks, stack, size_class);
    if (next) {
        sanitize_switch(&context, &next->sanitize, 1);
        switch_to(&unused, &next->context);
    } else {
        sanitize_switch(&context, &worker->sanitize, 1);
        switch_to(&unused, &worker->loop_context);
    }
    __builtin_unreachable();
}

/* From the worker's loop into a task; returns when a task finds nothing to run. */
static void run(struct worker *worker, struct task *task)
{
    /* A watchdog that wants to rest says so first and looks whether all workers sleep after
     * that; we have said that we do not before we look here. */
    if (__builtin_expect(atom_load_total(&worker->runtime->watchdog_rests), 0)) {
        watchdog_wake(worker->runtime);
    }
    enter(worker, task);
    sanitize_switch(&worker->sanitize, &task->sanitize, 0);
    switch_to(&worker->loop_context, &task->context);
    sanitize_arrived(&worker->sanitize, &worker->sanitize);
    sanitize_task_end(&worker->left_sanitize);
}

/* ---- Waiting ---- */

void worker_wake(struct worker *worker)
{
    if (atom_load_total(&worker->rest) != WORKER_SLEEPING) return;
    if (atom_exchange(&worker->rest, WORKER_AWAKE) == WORKER_SLEEPING) {
        worker->kernel->queue_wake(worker->queue);
    }
}

static bool fresh_anywhere(struct worker *worker)
{
    weir_runtime *runtime = worker->runtime;
    for (unsigned i = 0; i < runtime->worker_count; i++) {
        if (atom_load_total(&runtime->workers[i].fresh_count) > 0) return true;
    }
    return false;
}

bool worker_has_work(struct worker *worker)
{
    return worker->ready.count > 0 || worker->local_head || atom_load_total(&worker->inbox) ||
           atom_load(&worker->fresh_count) > 0;
}

/* A worker that finds something in one search of five goes on searching, one that finds less tries
 * now and then whether that has changed. That there was input when it slept says nothing: no search
 * would have seen it. */
static bool search_is_worth_it(struct worker *worker)
{
    if (worker->spin_failures < WORKER_SPIN_FAILURES_MAX) return true;
    if (++worker->spins_passed < SPIN_AGAIN_AFTER) return false;
    worker->spins_passed = 0;
    return true;
}

static void note_search(struct worker *worker, bool found)
{
    if (!found) {
        if (worker->spin_failures < WORKER_SPIN_FAILURES_MAX) worker->spin_failures++;
    } else {
        worker->spin_failures -=
            worker->spin_failures < SPIN_FOUND_COUNTS ? worker->spin_failures : SPIN_FOUND_COUNTS;
    }
}

/* Waking a sleeping thread costs a hundred times what a short look around does; but
 * a worker that keeps finding nothing stops looking. */
static bool search(struct worker *worker)
{
    weir_runtime *runtime = worker->runtime;
    unsigned rounds = worker->kernel->choose ? SPIN_ROUNDS_CHOSEN : SPIN_ROUNDS;
    bool found = false;

    if (!worker->shared) return false;
    if (!runtime->spin || !search_is_worth_it(worker)) return steal(worker);
    (void)atom_add(&runtime->searching, 1);
    for (unsigned i = 0; i < rounds && !found; i++) {
        found = atom_load(&worker->inbox) || steal(worker);
        if (!found) atom_pause();
    }
    (void)atom_sub(&runtime->searching, 1);
    note_search(worker, found);
    /* While we searched, spawners relied on us and woke nobody. */
    if (found && atom_load_total(&runtime->sleeping) > 0 && fresh_anywhere(worker)) {
        wake_somebody(worker);
    }
    return found;
}

static void dispatch(struct worker *worker, int count)
{
    for (int i = 0; i < count; i++) pollable_event(worker, &worker->events[i]);
    mail_deliver_local(worker);
}

static int64_t wait_limit_ns(struct worker *worker)
{
    int64_t next_ns = worker_timers_next_ns(worker);
    int64_t now_ns;
    if (next_ns == INT64_MAX) return WAIT_NS_MAX;
    /* Timers that this turn had no room for count as due. */
    now_ns = worker->kernel->now_ns(worker->kernel);
    if (next_ns <= now_ns) return 0;
    return next_ns - now_ns < WAIT_NS_MAX ? next_ns - now_ns : WAIT_NS_MAX;
}

/* Free stacks that nobody wants for a while are given back, a few at a time. A worker
 * that has run nothing new since the last time gives up its own cache as well. */
static int64_t trim(struct worker *worker, int64_t limit_ns)
{
    struct stack_pool *pool = &worker->runtime->stacks;
    uint64_t started = atom_load(&worker->tasks_started);

    if (limit_ns < TRIM_NS) return limit_ns;
    if (worker->now_ns - worker->trimmed_ns >= TRIM_NS) {
        if (started == worker->trimmed_started) stack_cache_flush(pool, &worker->stacks);
        worker->trimmed_started = started;
        worker->trimmed_ns = worker->now_ns;
        /* In small steps: the pool's lock is held in each. */
        for (int i = 0; i < TRIM_STEPS && stack_pool_trim(pool, TRIM_COUNT) > 0; i++) {}
    }
    return stack_pool_has_hot(pool) || stack_cache_holds(&worker->stacks) ? TRIM_NS : limit_ns;
}

static void wait_for_events(struct worker *worker)
{
    weir_runtime *runtime = worker->runtime;
    int64_t limit_ns;
    int count;

    if (search(worker)) return;
    limit_ns = trim(worker, wait_limit_ns(worker));
    if (__builtin_expect(runtime->deadlock_checks, 0)) limit_ns = checks_idle(worker, limit_ns);
    (void)atom_add(&runtime->sleeping, 1);
    if (!PLANTED(LOOKS_BEFORE_SLEEPING)) atom_store_total(&worker->rest, WORKER_SLEEPING);
    if (worker_has_work(worker) || (worker->shared && fresh_anywhere(worker)) ||
        atom_load_total(&runtime->ending) || atom_load_total(&runtime->pause)) {
        limit_ns = 0;
    }
    if (PLANTED(LOOKS_BEFORE_SLEEPING)) atom_store_total(&worker->rest, WORKER_SLEEPING);
    count = worker->kernel->queue_wait(worker->queue, limit_ns, worker->events, WORKER_EVENTS);
    atom_store_total(&worker->rest, WORKER_AWAKE);
    (void)atom_sub(&runtime->sleeping, 1);
    if (count > 0) dispatch(worker, count);
}

static void poll(struct worker *worker)
{
    int count;
    /* Embedded, also wake-ups must be taken, or the descriptor stays readable. In a simulation
     * other threads go on here only, also for a task that yields until they have. */
    if (atom_load(&worker->watched) == 0 && worker->completions == 0 &&
        !worker->runtime->embedded && !worker->kernel->simulated) {
        return;
    }
    count = worker->kernel->queue_wait(worker->queue, 0, worker->events, WORKER_EVENTS);
    if (count > 0) dispatch(worker, count);
}

/* ---- The turn ---- */

static void fire_timers(struct worker *worker)
{
    struct wheel_timer *due;
    unsigned left = TURN_TIMERS;

    if (worker_timers_count(worker) == 0) return;
    worker_timers_advance(worker);
    while (left-- > 0 && (due = wheel_pop_due(&worker->wheel))) {
        struct timer *timer = container_of(due, struct timer, wheel);
        timer->fire(worker, timer);
    }
    mail_deliver_local(worker);
}

void worker_turn(struct worker *worker, bool may_wait)
{
    struct task *task;

    atom_store(&worker->turns, atom_load(&worker->turns) + 1);
    worker->now_ns = worker->kernel->now_ns(worker->kernel);
    atom_store(&worker->turn_began_ns, worker->now_ns);
    worker_safe_point(worker);
    (void)mail_deliver_inbox(worker);
    fire_timers(worker);

    /* One task runs before the first look, however long mail and timers have taken. */
    worker->look_at = atom_load(&worker->ready.head) + worker->look_tasks;
    worker->looks_left = TURN_LOOKS;
    task = pick(worker);
    if (task) atom_store(&worker->batches, atom_load(&worker->batches) + 1);
    for (; task; task = pick(worker)) run(worker, task);
    mail_deliver_local(worker);

    if (may_wait && !worker_has_work(worker)) {
        wait_for_events(worker);
    } else {
        if (__builtin_expect(worker->runtime->deadlock_checks && worker->runtime->embedded, 0) &&
            !worker_has_work(worker)) {
            (void)checks_idle(worker, 0);
        }
        poll(worker);
    }
}

void worker_loop(struct worker *worker)
{
    sanitize_loop_begin(&worker->sanitize);
    while (!atom_load_acquire(&worker->runtime->ending)) worker_turn(worker, true);
}

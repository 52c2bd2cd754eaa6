/* thread.c - threads of simulated programs: stacks that take turns on one thread.
 *
 * Time moves in `next_thread` only, when nobody can go on.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sim/world.h"

enum {
    STACK_BYTES = WEIR_ASAN || WEIR_TSAN ? 1024 * 1024 : 256 * 1024,
    GUARD_BYTES = 64 * 1024, /* the largest page there is */
    /* Looks around by everybody, in vain, before the run counts as stuck: the checks for
     * deadlocks look once a second, and find better words. */
    IDLE_ROUNDS_MAX = 8,
    SPIN_ROUNDS_MAX = 64 * 1024, /* of all that can go on, before that is said of them */
};

/* ---- Stacks: kept for the next run ---- */

static struct sim_stack *free_stacks;

static struct sim_stack *stack_take_any(void)
{
    struct sim_stack *stack = free_stacks;
    char *low;

    if (stack) {
        free_stacks = stack->next;
        return stack;
    }
    low = mmap(NULL, GUARD_BYTES + STACK_BYTES + sizeof *stack, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (low == MAP_FAILED) return NULL;
    (void)mprotect(low, GUARD_BYTES, PROT_NONE); /* without it an overflow is found later */
    /* The record lies behind it, on a page of its own: a sanitizer may clear the stack's. */
    stack = (struct sim_stack *)(void *)(low + GUARD_BYTES + STACK_BYTES);
    stack->low = low + GUARD_BYTES;
    stack->top = (char *)stack;
    sanitize_stack_mapped(stack->low, STACK_BYTES);
    (void)sanitize_stack_known(stack->low, stack->top);
    return stack;
}

static void stack_keep(struct sim_stack *stack)
{
    stack->next = free_stacks;
    free_stacks = stack;
}

/* ---- Switching ---- */

struct sim_thread *sim_thread_running(const struct sim *sim)
{
    return sim->running;
}

static void arrived(struct sim *sim, struct sanitize_context *self)
{
    sanitize_thread_arrived(self, sim->left ? &sim->left->sanitize : &sim->outside_sanitize);
}

/* From the running thread, which is in a list or gone, to `next`. */
static void switch_threads(struct sim *sim, struct sim_thread *self, struct sim_thread *next)
{
    next->state = SIM_RUNNING;
    sim->running = next;
    if (next == self) return;
    sim->left = self;
    sim_locals_swap(&self->locals);
    sim_locals_swap(&next->locals);
    sanitize_thread_leaves(&self->sanitize);
    sanitize_switch(&self->sanitize, &next->sanitize, 0);
    switch_to(&self->context, &next->context);
    arrived(sim, &self->sanitize);
}

_Noreturn void sim_leave_run(struct sim *sim)
{
    struct sim_thread *self = sim->running;

    sim->left = self;
    sim->running = NULL;
    self->state = SIM_ENDED;
    list_add_tail(&sim->dead_threads, &self->node);
    sim_locals_swap(&self->locals);
    sanitize_thread_leaves(&self->sanitize);
    sanitize_switch(&self->sanitize, &sim->outside_sanitize, 0);
    switch_to(&self->context, &sim->outside);
    __builtin_unreachable();
}

/* ---- Who is next ---- */

static void make_runnable(struct sim *sim, struct sim_thread *thread)
{
    list_remove(&thread->node);
    thread->state = SIM_RUNNABLE;
    thread->spins = false;
    list_add_tail(&sim->runnable, &thread->node);
    sim->runnable_count++;
}

/* The earliest time at which a sleeper wants to go on; `idle` ones count if asked for. */
static int64_t next_sleeper_ns(const struct sim *sim, bool with_idle)
{
    int64_t next_ns = INT64_MAX;

    list_for_each(node, &sim->sleeping) {
        const struct sim_thread *thread = container_of(node, struct sim_thread, node);
        if (thread->idle && !with_idle) continue;
        if (thread->until_ns < next_ns) next_ns = thread->until_ns;
    }
    return next_ns;
}

static void wake_due(struct sim *sim)
{
    struct list *node = sim->sleeping.next;

    while (node != &sim->sleeping) {
        struct sim_thread *thread = container_of(node, struct sim_thread, node);
        node = node->next;
        if (thread->until_ns <= sim->now_ns) make_runnable(sim, thread);
    }
}

/* A task's last step has no call behind it that would look. */
static void look_before_time_passes(struct sim *sim)
{
    struct sim_thread *self = sim->running;
    bool inside = self->inside;

    self->inside = true;
    sim_look_at_invariants(sim);
    self->inside = inside;
}

/* Nobody can go on: time passes until somebody can. */
static void let_time_pass(struct sim *sim)
{
    int64_t event_ns = sim_next_event_ns(sim);
    int64_t due_ns = next_sleeper_ns(sim, false);

    look_before_time_passes(sim);
    if (event_ns == INT64_MAX && due_ns == INT64_MAX) {
        due_ns = next_sleeper_ns(sim, true);
        if (due_ns == INT64_MAX || ++sim->idle_rounds > IDLE_ROUNDS_MAX) {
            sim_fail(sim, "stuck: everybody waits, and nothing is left that could happen");
        }
    } else {
        int64_t idle_ns = next_sleeper_ns(sim, true);
        if (idle_ns < due_ns) due_ns = idle_ns;
    }
    sim_advance_to(sim, event_ns < due_ns ? event_ns : due_ns);
    sim_fire_due(sim);
    wake_due(sim);
}

static struct sim_thread *nth_candidate(const struct sim *sim, unsigned index)
{
    struct list *node = sim->runnable.next;

    for (;; node = node->next) {
        struct sim_thread *thread = container_of(node, struct sim_thread, node);
        if (!thread->spins && index-- == 0) return thread;
    }
}

/* Threads that spin are passed over: two of them could hand the turn to each other for ever, by
 * the priorities of PCT, while the one that both wait for could go on. */
static unsigned find_ids(struct sim *sim, bool spinning)
{
    unsigned count = 0;

    list_for_each(node, &sim->runnable) {
        const struct sim_thread *thread = container_of(node, struct sim_thread, node);
        if (count == SIM_IDS_MAX) break;
        if (thread->spins == spinning) sim->ids[count++] = thread->id;
    }
    return count;
}

static unsigned find_candidates(struct sim *sim)
{
    return find_ids(sim, false);
}

/* The very ones that sim_thread_preempt picks from: PCT would go on interrupting two threads for
 * the sake of a third, of higher priority, that spins and is passed over. */
unsigned sim_thread_candidates(struct sim *sim)
{
    unsigned count = find_candidates(sim);

    return count > 0 ? count : find_ids(sim, true);
}

static void pass_over_nobody(struct sim *sim)
{
    list_for_each(node, &sim->runnable) container_of(node, struct sim_thread, node)->spins = false;
}

static struct sim_thread *take_candidate(struct sim *sim, unsigned count)
{
    unsigned index = count == 1 ? 0 : sim_choose_among(sim, SIM_THREAD, count, "", 0, count);
    struct sim_thread *next = nth_candidate(sim, index);

    list_remove(&next->node);
    sim->runnable_count--;
    return next;
}

static struct sim_thread *next_thread(struct sim *sim)
{
    sim_fire_due(sim);
    while (sim->runnable_count == 0) let_time_pass(sim);
    pass_over_nobody(sim);
    sim->spin_rounds = 0;
    return take_candidate(sim, find_candidates(sim));
}

/* The same for a thread that spins. If all others do so too they take turns; if there are none
 * the thread goes on itself, since it may spin for a while only: NULL. Time does not pass: nothing
 * in the library spins for something that takes any. */
static struct sim_thread *next_thread_to_help(struct sim *sim)
{
    unsigned count;

    sim_fire_due(sim);
    count = find_candidates(sim);
    if (count == 0) {
        if (++sim->spin_rounds == SPIN_ROUNDS_MAX) {
            sim_fail(sim, "stuck: whoever could go on only spins");
        }
        pass_over_nobody(sim);
        count = find_candidates(sim);
    }
    return count > 0 ? take_candidate(sim, count) : NULL;
}

/* ---- Sleeping and waking ---- */

/* Of a host that is dying: it holds no lock here, and never goes on. */
static void freeze(struct sim *sim)
{
    struct sim_thread *self = sim->running;

    list_add_tail(&sim->dead_threads, &self->node);
    self->state = SIM_ENDED;
    switch_threads(sim, self, next_thread(sim));
}

bool sim_thread_sleep(struct sim *sim, int64_t until_ns, bool idle, const char *what)
{
    struct sim_thread *self = sim->running;

    if (self->host->dying) freeze(sim);

    self->state = SIM_ASLEEP;
    self->until_ns = until_ns;
    self->idle = idle;
    self->woken = false;
    self->waits_for = what;
    list_add_tail(&sim->sleeping, &self->node);
    switch_threads(sim, self, next_thread(sim));
    self->waits_for = NULL;
    return self->woken;
}

void sim_thread_wake(struct sim *sim, struct sim_thread *thread)
{
    if (thread->state != SIM_ASLEEP) return;
    thread->woken = true;
    sim->idle_rounds = 0;
    make_runnable(sim, thread);
}

/* Another one goes first; the caller could go on. */
void sim_thread_preempt(struct sim *sim)
{
    struct sim_thread *self = sim->running;
    struct sim_thread *next;
    unsigned count = find_candidates(sim);

    if (count == 0) {
        pass_over_nobody(sim); /* they look again */
        count = find_candidates(sim);
    }
    next = take_candidate(sim, count);
    make_runnable(sim, self);
    switch_threads(sim, self, next);
}

/* The caller cannot go on before somebody else has done something: in a loop. */
void sim_thread_let_others(struct sim *sim)
{
    struct sim_thread *self = sim->running;
    struct sim_thread *next;

    next = next_thread_to_help(sim);
    if (!next) return;
    make_runnable(sim, self);
    self->spins = true;
    switch_threads(sim, self, next);
}

void sim_thread_yield(struct sim *sim)
{
    struct sim_thread *self = sim->running;

    if (self->host->dying) freeze(sim);
    if (sim->runnable_count == 0 && sim_next_event_ns(sim) > sim->now_ns) return;
    make_runnable(sim, self);
    switch_threads(sim, self, next_thread(sim));
}

/* ---- Waiting on something: a condition, or the end of a thread ---- */

static unsigned count_waiting(const struct sim *sim, const void *object)
{
    unsigned count = 0;

    list_for_each(node, &sim->sleeping) {
        if (container_of(node, struct sim_thread, node)->waits_on == object) count++;
    }
    return count;
}

/* The one that is number `index`, in the order they began to wait. */
static struct sim_thread *nth_waiting(const struct sim *sim, const void *object, unsigned index)
{
    list_for_each(node, &sim->sleeping) {
        struct sim_thread *thread = container_of(node, struct sim_thread, node);
        if (thread->waits_on == object && index-- == 0) return thread;
    }
    return NULL;
}

static void wake_all_waiting(struct sim *sim, const void *object)
{
    struct sim_thread *thread;

    while ((thread = nth_waiting(sim, object, 0))) sim_thread_wake(sim, thread);
}

static bool wait_on(struct sim *sim, const void *object, int64_t until_ns, const char *what)
{
    struct sim_thread *self = sim->running;
    bool woken;

    self->waits_on = object;
    woken = sim_thread_sleep(sim, until_ns, false, what);
    self->waits_on = NULL;
    return woken;
}

/* ---- Birth and end ---- */

static void thread_entry(void *arg)
{
    struct sim_thread *self = arg;
    struct sim *sim = self->host->sim;

    arrived(sim, &self->sanitize);
    (void)self->fn(self->arg);
    self->state = SIM_ENDED;
    wake_all_waiting(sim, self);
    sim_thread_abandon(sim);
}

_Noreturn void sim_thread_abandon(struct sim *sim)
{
    struct sim_thread *self = sim->running;

    self->state = SIM_ENDED;
    list_add_tail(&sim->dead_threads, &self->node);
    switch_threads(sim, self, next_thread(sim));
    __builtin_unreachable();
}

static bool is_interrupted(const struct sim *sim, const struct sim_host *host)
{
    list_for_each(node, &host->threads) {
        const struct sim_thread *thread = container_of(node, struct sim_thread, host_node);
        if (thread != sim->running && thread->state == SIM_RUNNABLE && thread->inside) return true;
    }
    return false;
}

void sim_threads_settle(struct sim *sim, const struct sim_host *host)
{
    struct sim_thread *self = sim->running;
    bool inside = self->inside;

    self->inside = true;
    while (is_interrupted(sim, host)) sim_thread_let_others(sim);
    self->inside = inside;
}

void sim_threads_kill(struct sim *sim, struct sim_host *host)
{
    struct list *node;

    while ((node = list_first(&host->threads))) {
        struct sim_thread *thread = container_of(node, struct sim_thread, host_node);
        list_remove(&thread->host_node);
        thread->killed = true;
        if (thread->state == SIM_ENDED || thread == sim->running) continue;
        if (thread->state == SIM_RUNNABLE) sim->runnable_count--;
        list_remove(&thread->node);
        thread->state = SIM_ENDED;
        list_add_tail(&sim->dead_threads, &thread->node);
    }
}

static void thread_free(struct sim *sim, struct sim_thread *thread)
{
    list_remove(&thread->node);
    list_remove(&thread->host_node);
    sanitize_task_end(&thread->sanitize);
    stack_keep(thread->stack);
    sim_free(sim, thread);
}

void sim_threads_reclaim(struct sim *sim, const struct sim_host *host)
{
    struct list *node = sim->dead_threads.next;

    while (node != &sim->dead_threads) {
        struct sim_thread *thread = container_of(node, struct sim_thread, node);
        node = node->next;
        if (thread->killed && thread->host == host) thread_free(sim, thread);
    }
}

void sim_threads_free(struct sim *sim)
{
    struct list *node;

    while ((node = list_first(&sim->dead_threads))) {
        thread_free(sim, container_of(node, struct sim_thread, node));
    }
}

void sim_threads_run(struct sim *sim)
{
    struct sim_thread *first = next_thread(sim);

    first->state = SIM_RUNNING;
    sim->running = first;
    sim->left = NULL;
    sanitize_thread_leaves(&sim->outside_sanitize);
    sanitize_switch(&sim->outside_sanitize, &first->sanitize, 0);
    sim_locals_swap(&first->locals);
    switch_to(&sim->outside, &first->context);
    sanitize_thread_arrived(&sim->outside_sanitize, &sim->left->sanitize);
}

struct sim_thread *sim_thread_new(struct sim *sim, struct sim_host *host, void *(*fn)(void *),
                                  void *arg)
{
    struct sim_thread *thread = sim_alloc(sim, sizeof *thread);

    if (!thread) return NULL;
    thread->stack = stack_take_any();
    if (!thread->stack) {
        sim_free(sim, thread);
        return NULL;
    }
    thread->host = host;
    thread->id = ++sim->next_thread_id;
    thread->fn = fn;
    thread->arg = arg;
    list_init(&thread->node);
    list_add_tail(&host->threads, &thread->host_node);
    sanitize_task_begin(&thread->sanitize, thread->stack->low,
                        (size_t)(thread->stack->top - thread->stack->low));
    switch_prepare(&thread->context, thread->stack->top, thread_entry, thread);
    make_runnable(sim, thread);
    return thread;
}

/* ---- The table ---- */

static int table_thread_start(const struct kernel *kernel, pthread_t *ret_thread,
                              void *(*fn)(void *), void *arg)
{
    struct sim *sim = sim_of(kernel);
    struct sim_thread *thread = sim_thread_new(sim, sim_host_running(sim), fn, arg);

    if (!thread) return -EAGAIN;
    *ret_thread = (pthread_t)(uintptr_t)thread;
    return 0;
}

static int table_thread_join(const struct kernel *kernel, pthread_t joined)
{
    struct sim *sim = sim_of(kernel);
    struct sim_thread *thread = (struct sim_thread *)(uintptr_t)joined;

    while (thread->state != SIM_ENDED) (void)wait_on(sim, thread, INT64_MAX, "thread_join");
    return 0;
}

static int table_thread_wait(const struct kernel *kernel, struct kernel_bell *bell,
                             pthread_mutex_t *mutex, int64_t timeout_ns)
{
    struct sim *sim = sim_of(kernel);
    int64_t until_ns = INT64_MAX;
    bool woken;

    if (timeout_ns >= 0 && timeout_ns < INT64_MAX - sim->now_ns)
        until_ns = sim->now_ns + timeout_ns;
    (void)pthread_mutex_unlock(mutex);
    woken = wait_on(sim, bell, until_ns, "thread_wait");
    while (pthread_mutex_trylock(mutex) != 0) sim_thread_let_others(sim);
    return woken ? 0 : -ETIMEDOUT;
}

static void table_thread_notify(const struct kernel *kernel, struct kernel_bell *bell, bool all)
{
    struct sim *sim = sim_of(kernel);
    unsigned count = count_waiting(sim, bell);

    if (count == 0) return;
    if (all) {
        wake_all_waiting(sim, bell);
    } else {
        unsigned index = sim_choose(sim, SIM_NOTIFY, count, "");
        struct sim_thread *thread = nth_waiting(sim, bell, index);
        if (thread) sim_thread_wake(sim, thread);
    }
}

static void table_thread_yield(const struct kernel *kernel)
{
    struct sim *sim = sim_of(kernel);

    if (sim->running) sim_thread_let_others(sim); /* else for the dump: nobody else is there */
}

static int64_t table_thread_cpu_ns(const struct kernel *kernel, clockid_t clock)
{
    (void)kernel, (void)clock;
    return -ENOSYS;
}

static int table_thread_look(const struct kernel *kernel, pid_t thread,
                             struct kernel_thread *ret_look)
{
    (void)kernel, (void)thread, (void)ret_look;
    return -ENOSYS;
}

static int table_thread_signal(const struct kernel *kernel, pid_t thread, int signo)
{
    (void)kernel, (void)thread, (void)signo;
    return -ENOSYS;
}

void sim_thread_fill_table(struct kernel *table)
{
    table->thread_start = table_thread_start;
    table->thread_join = table_thread_join;
    table->thread_wait = table_thread_wait;
    table->thread_notify = table_thread_notify;
    table->thread_yield = table_thread_yield;
    table->thread_cpu_ns = table_thread_cpu_ns;
    table->thread_look = table_thread_look;
    table->thread_signal = table_thread_signal;
}

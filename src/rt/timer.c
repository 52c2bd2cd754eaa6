/* timer.c - timers of the runtime, weir_sleep, and timers for programs. */
#include "rt/timer.h"

#include <errno.h>
#include <stdio.h>
#include <weir/task.h>
#include <weir/timer.h>

#include "rt/mem.h"
#include "rt/runtime.h"
#include "rt/scope.h"
#include "rt/task.h"

void timer_init(struct timer *timer, void (*fire)(struct worker *worker, struct timer *timer))
{
    wheel_timer_init(&timer->wheel);
    timer->fire = fire;
}

void timer_arm(struct worker *worker, struct timer *timer, int64_t at_ns)
{
    if (wheel_timer_armed(&timer->wheel)) wheel_remove(&worker->wheel, &timer->wheel);
    wheel_add(&worker->wheel, &timer->wheel, at_ns);
}

void timer_disarm(struct worker *worker, struct timer *timer)
{
    if (wheel_timer_armed(&timer->wheel)) wheel_remove(&worker->wheel, &timer->wheel);
}

int64_t time_after_ms(int64_t now_ns, int64_t ms)
{
    int64_t ns;
    int64_t at_ns;
    if (__builtin_mul_overflow(ms, INT64_C(1000000), &ns)) return ms < 0 ? INT64_MIN : INT64_MAX;
    if (__builtin_add_overflow(now_ns, ns, &at_ns)) return ns < 0 ? INT64_MIN : INT64_MAX;
    return at_ns;
}

/* ---- weir_sleep ---- */

struct sleep_wait {
    struct timer timer;
    struct task *task;
};

static void sleep_over(struct worker *worker, struct timer *timer)
{
    (void)worker;
    task_wake(container_of(timer, struct sleep_wait, timer)->task, 0);
}

static bool sleep_abort(struct task *task, void *object)
{
    struct sleep_wait *wait = object;
    timer_disarm(atom_load(&task->home), &wait->timer);
    return true; /* a timer that has fired has made the task ready already */
}

static void sleep_describe(const void *object, char *text, size_t bytes)
{
    const struct sleep_wait *wait = object;
    int64_t left_ns = wait->timer.wheel.at_ns - weir_now_ns();
    (void)snprintf(text, bytes, "%lld ms left", (long long)(left_ns / 1000000));
}

static const struct wait_kind wait_sleep = {
    .name = "sleep",
    .abort = sleep_abort,
    .describe = sleep_describe,
};

/* Without a timer there is nothing to take the task out of. */
static bool forever_abort(struct task *task, void *object)
{
    (void)task, (void)object;
    return true;
}

static const struct wait_kind wait_forever = {
    .name = "sleep for ever",
    .abort = forever_abort,
};

int weir_sleep(int64_t ms)
{
    struct worker *worker = worker_self();
    struct task *self = task_self();
    struct sleep_wait wait;
    int r;

    if (!self) return refuse_no_task("weir_sleep");
    r = task_enter(self, ms == WEIR_FOREVER ? ENTER_IO : ENTER_PLAIN);
    if (r < 0) return r;
    if (ms == WEIR_FOREVER) return task_park(self, &wait_forever, NULL);
    wait.task = self;
    timer_init(&wait.timer, sleep_over);
    timer_arm(worker, &wait.timer, time_after_ms(worker->kernel->now_ns(worker->kernel), ms));
    return task_park(self, &wait_sleep, &wait);
}

/* ---- Timers for programs ---- */

/* Starting and stopping touch the first cache line only. */
struct weir_timer {
    struct timer timer;
    struct worker *worker;
    weir_scope *scope; /* NULL: closed */
    const char *name;
    struct belonging belonging;
    weir_timer_fn on_fire;
    void *arg;
    struct weir_timer *free_next;
} __attribute__((aligned(64)));

enum { TIMER_SLAB_COUNT = 64 };
struct timer_slab {
    struct timer_slab *next;
    unsigned char memory[]; /* timers, from the first aligned address on */
};

static void timer_fired(struct worker *worker, struct timer *timer)
{
    struct weir_timer *mine = container_of(timer, struct weir_timer, timer);
    weir_scope *scope = mine->belonging.scope;

    /* Of another worker's cancel the mail may not have come yet. */
    if (atom_load(&scope->children_signals) & SIGNAL_CANCELLED) return;
    callback_begin(worker);
    mine->on_fire(mine, mine->arg);
    callback_end(worker, scope); /* the timer may have been closed meanwhile */
}

static void timer_free(struct worker *worker, struct weir_timer *timer)
{
    timer->free_next = worker->free_timers;
    worker->free_timers = timer;
}

static void timer_signalled(struct worker *worker, struct belonging *belonging, uint8_t signals)
{
    struct weir_timer *timer = container_of(belonging, struct weir_timer, belonging);
    if (signals & SIGNAL_CANCELLED) timer_disarm(worker, &timer->timer);
}

static void timer_release(struct worker *worker, struct belonging *belonging)
{
    struct weir_timer *timer = container_of(belonging, struct weir_timer, belonging);
    timer_disarm(worker, &timer->timer);
    timer->scope = NULL;
    if (scope_forget(belonging)) timer_free(worker, timer);
}

static void timer_describe(const struct belonging *belonging, char *text, size_t bytes)
{
    const struct weir_timer *timer =
        (const struct weir_timer *)(const void *)((const char *)belonging -
                                                  offsetof(struct weir_timer, belonging));
    if (wheel_timer_armed(&timer->timer.wheel)) {
        int64_t left_ns = timer->timer.wheel.at_ns - weir_now_ns();
        (void)snprintf(text, bytes, "'%s', fires in %lld ms", timer->name,
                       (long long)(left_ns / 1000000));
    } else {
        (void)snprintf(text, bytes, "'%s', stopped", timer->name);
    }
}

static const struct belonging_kind timer_kind = {
    .name = "timer",
    .signalled = timer_signalled,
    .release = timer_release,
    .describe = timer_describe,
};

static struct weir_timer *timer_alloc(struct worker *worker)
{
    struct weir_timer *timer = worker->free_timers;
    if (!timer) {
        size_t alignment = _Alignof(struct weir_timer);
        size_t bytes = TIMER_SLAB_COUNT * sizeof *timer + alignment;
        struct timer_slab *slab = mem_alloc_zeroed(sizeof *slab + bytes);
        if (!slab) return NULL;
        uintptr_t first = ((uintptr_t)slab->memory + alignment - 1) & ~(uintptr_t)(alignment - 1);
        lock_acquire(&worker->runtime->memory_lock);
        slab->next = worker->runtime->timer_slabs;
        worker->runtime->timer_slabs = slab;
        lock_release(&worker->runtime->memory_lock);
        for (unsigned i = 0; i < TIMER_SLAB_COUNT; i++) {
            timer_free(worker, (struct weir_timer *)first + i);
        }
        timer = worker->free_timers;
    }
    worker->free_timers = timer->free_next;
    return timer;
}

void timer_slabs_free(weir_runtime *runtime)
{
    while (runtime->timer_slabs) {
        struct timer_slab *slab = runtime->timer_slabs;
        runtime->timer_slabs = slab->next;
        mem_free(slab);
    }
}

int weir_timer_open_sized(weir_scope *scope, size_t spec_bytes, const weir_timer_spec *given,
                          weir_timer **ret_timer)
{
    struct worker *worker = worker_self();
    weir_timer_spec spec;
    struct weir_timer *timer;
    int r;

    if (!worker) return refuse_no_task("weir_timer_open");
    scope_check(scope, "weir_timer_open");
    spec_copy(&spec, sizeof spec, given, spec_bytes);
    if (!spec.name || !*spec.name) return refuse("timer: name is not set");
    if (!spec.on_fire) return refuse("timer '%s': on_fire is not set", spec.name);
    timer = timer_alloc(worker);
    if (!timer) return -ENOMEM;
    timer->name = spec.name;
    timer->on_fire = spec.on_fire;
    timer->arg = spec.keep_arg;
    timer_init(&timer->timer, timer_fired);
    timer->worker = worker;
    timer->scope = scope;
    r = scope_own(scope, worker, &timer->belonging, &timer_kind);
    if (r < 0) {
        timer->scope = NULL;
        timer_free(worker, timer);
        return r;
    }
    *ret_timer = timer;
    return 0;
}

static struct worker *timer_worker(weir_timer *timer, const char *call)
{
    struct worker *worker = worker_self();
    if (!timer->scope) misuse("%s: timer '%s' is closed", call, timer->name);
    if (timer->worker != worker) {
        misuse("%s: timer '%s' belongs to worker %u", call, timer->name, timer->worker->index);
    }
    return worker;
}

/* The worker's last look at the clock, unless the running task has kept the worker for
 * a tick of the system since then: good enough for a callback, and much cheaper than
 * the clock itself. */
static int64_t recent_now_ns(struct worker *worker)
{
    const struct kernel *kernel = worker->kernel;
    int64_t coarse_ns;

    if (!kernel->coarse_now_ns) return kernel->now_ns(kernel);
    coarse_ns = kernel->coarse_now_ns(kernel);
    if (coarse_ns > worker->now_ns) worker->now_ns = kernel->now_ns(kernel);
    return worker->now_ns;
}

void weir_timer_start(weir_timer *timer, int64_t after_ms)
{
    struct worker *worker = timer_worker(timer, "weir_timer_start");
    if (atom_load(&timer->scope->children_signals) & SIGNAL_CANCELLED) return;
    timer_arm(worker, &timer->timer, time_after_ms(recent_now_ns(worker), after_ms));
    worker_touched(worker);
}

bool weir_timer_stop(weir_timer *timer)
{
    struct worker *worker = timer_worker(timer, "weir_timer_stop");
    bool was_running = wheel_timer_armed(&timer->timer.wheel);
    timer_disarm(worker, &timer->timer);
    return was_running;
}

void weir_timer_close(weir_timer *timer)
{
    if (!timer) return;
    timer_release(timer_worker(timer, "weir_timer_close"), &timer->belonging);
}

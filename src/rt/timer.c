/* timer.c - timers of the runtime, weir_sleep, and timers for programs. */
#include "rt/timer.h"

#include <errno.h>
#include <stdio.h>
#include <weir/task.h>
#include <weir/timer.h>

#include "base/planted.h"
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
    if (PLANTED(SLEEP_NOT_DISARMED)) return true;
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
    .what = WAIT_FOR_TIME,
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
    .what = WAIT_FOR_CANCEL,
};

int timer_sleep_until(int64_t at_ns)
{
    struct task *self = task_self();
    struct sleep_wait wait;

    wait.task = self;
    timer_init(&wait.timer, sleep_over);
    timer_arm(worker_self(), &wait.timer, at_ns);
    return task_park(self, &wait_sleep, &wait);
}

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

/* ---- Timers for programs ----
 *
 * Of a million timers that are set anew at random none is in a cache, and every word that
 * is read of one is waited for. So starting and stopping read two bits, its state; those
 * of all timers lie together in their slabs, whose address is the timer's, rounded down.
 * The cell is only written there, and the timer itself is not touched while its time is
 * far (base/agenda.h). */

enum timer_state {
    TIMER_CLOSED, /* also one that was never opened; or its cell is CELL_CANCELLED */
    TIMER_STOPPED,
    TIMER_NEAR, /* in the worker's wheel */
    TIMER_FAR,  /* in its agenda; the cell says where */
};

enum { CELL_EMPTY, CELL_CANCELLED }; /* what else than the agenda's positions is in a cell */

struct weir_timer {
    struct timer timer;
    const char *name;
    struct belonging belonging;
    weir_timer_fn on_fire;
    union {
        void *arg;
        struct weir_timer *free_next;
    };
};

enum {
    TIMER_SLAB_BYTES = 1 << 18, /* and so aligned */
    TIMER_SLAB_COUNT = 1980,
    TIMER_STATE_BITS = 2,
    TIMER_STATES = 32, /* in a word */
    /* With fewer timers everything is in a cache, and stopping one leaves nothing behind. */
    TIMERS_FAR_MIN = 512,
};

struct timer_slab {
    struct worker *worker; /* of all its timers */
    struct timer_slab *next;
    void *memory; /* what was mapped: twice the slab, to have it aligned */
    size_t used;
    uint64_t states[(TIMER_SLAB_COUNT + TIMER_STATES - 1) / TIMER_STATES];
    uint32_t cells[TIMER_SLAB_COUNT];
    struct weir_timer timers[TIMER_SLAB_COUNT] __attribute__((aligned(64)));
};
static_assert(sizeof(struct timer_slab) <= TIMER_SLAB_BYTES, "a slab fits");
static_assert(sizeof(struct weir_timer) == 128, "a timer is found without a division");

static struct timer_slab *slab_of(const void *inside)
{
    return (struct timer_slab *)((uintptr_t)inside & ~(uintptr_t)(TIMER_SLAB_BYTES - 1));
}

/* A timer as starting and stopping see it. */
struct place {
    struct timer_slab *slab;
    size_t index;
};

static struct place place_of(const struct weir_timer *timer)
{
    struct timer_slab *slab = slab_of(timer);
    return (struct place){slab, (size_t)(timer - slab->timers)};
}

static enum timer_state state_get(struct place place)
{
    uint64_t word = place.slab->states[place.index / TIMER_STATES];
    return word >> (place.index % TIMER_STATES * TIMER_STATE_BITS) & TIMER_FAR;
}

static void state_set(struct place place, enum timer_state state)
{
    uint64_t *word = &place.slab->states[place.index / TIMER_STATES];
    unsigned shift = place.index % TIMER_STATES * TIMER_STATE_BITS;
    *word = (*word & ~((uint64_t)TIMER_FAR << shift)) | (uint64_t)state << shift;
}

/* Its time is near: from now on the wheel has it. */
static void cell_hand_over(void *arg, uint32_t *cell, int64_t at_ns)
{
    struct worker *worker = arg;
    struct timer_slab *slab = slab_of(cell);
    struct place place = {slab, (size_t)(cell - slab->cells)};
    wheel_add(&worker->wheel, &slab->timers[place.index].timer.wheel, at_ns);
    *cell = CELL_EMPTY;
    state_set(place, TIMER_NEAR);
}

void worker_timers_advance(struct worker *worker)
{
    agenda_advance(&worker->agenda, worker->now_ns, cell_hand_over, worker);
    wheel_advance(&worker->wheel, worker->now_ns);
}

int64_t worker_timers_next_ns(const struct worker *worker)
{
    int64_t near_ns = wheel_next_ns(&worker->wheel);
    int64_t far_ns = agenda_next_ns(&worker->agenda);
    return near_ns < far_ns ? near_ns : far_ns;
}

/* Without memory there is still the wheel. */
static bool agenda_grow(struct agenda *agenda)
{
    size_t bytes = agenda_block_bytes(agenda);
    void *block = bytes > 0 ? mem_alloc(bytes) : NULL;
    if (!block) return false;
    agenda_give_block(agenda, block);
    return true;
}

static __attribute__((noinline)) void arm_near(struct worker *worker, struct place place,
                                               int64_t at_ns)
{
    if (worker->timers_far && at_ns != WHEEL_NEVER_NS && !agenda_is_near(&worker->agenda, at_ns) &&
        agenda_grow(&worker->agenda)) {
        bool added = agenda_add(&worker->agenda, &place.slab->cells[place.index], at_ns);
        assert(added);
        state_set(place, TIMER_FAR);
        return;
    }
    timer_arm(worker, &place.slab->timers[place.index].timer, at_ns);
    state_set(place, TIMER_NEAR);
}

/* Take a running one out of where it is. */
static void disarm(struct worker *worker, struct place place, enum timer_state state)
{
    if (state == TIMER_FAR) {
        agenda_drop(&worker->agenda, &place.slab->cells[place.index]);
    } else {
        timer_disarm(worker, &place.slab->timers[place.index].timer);
    }
}

static void timer_fired(struct worker *worker, struct timer *timer)
{
    struct weir_timer *mine = container_of(timer, struct weir_timer, timer);
    weir_scope *scope = mine->belonging.scope;

    state_set(place_of(mine), TIMER_STOPPED);
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

/* Stop it for good. */
static void timer_end(struct worker *worker, struct place place)
{
    enum timer_state state = state_get(place);
    if (state == TIMER_NEAR || state == TIMER_FAR) disarm(worker, place, state);
    state_set(place, TIMER_CLOSED);
}

static void timer_signalled(struct worker *worker, struct belonging *belonging, uint8_t signals)
{
    struct place place = place_of(container_of(belonging, struct weir_timer, belonging));
    if (!(signals & SIGNAL_CANCELLED) || state_get(place) == TIMER_CLOSED) return;
    timer_end(worker, place);
    place.slab->cells[place.index] = CELL_CANCELLED;
}

static bool timer_is_open(struct place place)
{
    return state_get(place) != TIMER_CLOSED || place.slab->cells[place.index] == CELL_CANCELLED;
}

static void timer_release(struct worker *worker, struct belonging *belonging)
{
    struct weir_timer *timer = container_of(belonging, struct weir_timer, belonging);
    struct place place = place_of(timer);
    if (timer_is_open(place)) worker->timers_open--;
    timer_end(worker, place);
    place.slab->cells[place.index] = CELL_EMPTY;
    if (scope_forget(belonging)) timer_free(worker, timer);
}

static void timer_describe(const struct belonging *belonging, char *text, size_t bytes)
{
    const struct weir_timer *timer =
        (const struct weir_timer *)(const void *)((const char *)belonging -
                                                  offsetof(struct weir_timer, belonging));
    struct place place = place_of(timer);
    enum timer_state state = state_get(place);
    int64_t at_ns;

    if (state == TIMER_FAR) {
        at_ns = agenda_at_ns(&belonging->worker->agenda, &place.slab->cells[place.index]);
    } else if (state == TIMER_NEAR) {
        at_ns = timer->timer.wheel.at_ns;
    } else {
        (void)snprintf(text, bytes, "'%s', stopped", timer->name);
        return;
    }
    (void)snprintf(text, bytes, "'%s', fires in %lld ms", timer->name,
                   (long long)((at_ns - weir_now_ns()) / 1000000));
}

static bool timer_boundary(struct belonging *belonging, unsigned row, struct boundary *ret_boundary)
{
    const struct weir_timer *timer = container_of(belonging, struct weir_timer, belonging);
    enum timer_state state = state_get(place_of(timer));

    if (row > 0) return false;
    (void)snprintf(ret_boundary->name, sizeof ret_boundary->name, "%s", timer->name);
    ret_boundary->lifetime = "until closed, or the scope ends";
    boundary_bound(ret_boundary, 1, "time set");
    ret_boundary->overflow = "setting it again replaces the time";
    (void)snprintf(ret_boundary->failure, sizeof ret_boundary->failure,
                   "none of its own; never fires once the scope is cancelled");
    boundary_figure(ret_boundary, "armed", state == TIMER_FAR || state == TIMER_NEAR);
    return true;
}

static const struct belonging_kind timer_kind = {
    .name = "timer",
    .signalled = timer_signalled,
    .release = timer_release,
    .describe = timer_describe,
    .boundary = timer_boundary,
    .is_passive = belonging_is_passive, /* those that run are counted: worker_timers_count */
};

/* Memory that is touched only as far as it is used. */
static struct timer_slab *slab_new(struct worker *worker)
{
    char *memory = worker->kernel->map(worker->kernel, 2 * (size_t)TIMER_SLAB_BYTES);
    struct timer_slab *slab;

    if (!memory) return NULL;
    slab = slab_of(memory + TIMER_SLAB_BYTES - 1);
    slab->memory = memory;
    slab->worker = worker;
    slab->next = worker->timer_slabs;
    worker->timer_slabs = slab;
    return slab;
}

static struct weir_timer *timer_alloc(struct worker *worker)
{
    struct weir_timer *timer = worker->free_timers;
    struct timer_slab *slab = worker->timer_slabs;

    if (timer) {
        worker->free_timers = timer->free_next;
        return timer;
    }
    if (!slab || slab->used == TIMER_SLAB_COUNT) slab = slab_new(worker);
    return slab ? &slab->timers[slab->used++] : NULL;
}

void worker_timers_free(struct worker *worker)
{
    while (worker->timer_slabs) {
        struct timer_slab *slab = worker->timer_slabs;
        worker->timer_slabs = slab->next;
        worker->kernel->unmap(worker->kernel, slab->memory, 2 * (size_t)TIMER_SLAB_BYTES);
    }
    for (unsigned i = 0; i < worker->agenda.block_count; i++) mem_free(worker->agenda.blocks[i]);
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
    r = scope_own(scope, worker, &timer->belonging, &timer_kind);
    if (r < 0) {
        timer_free(worker, timer);
        return r;
    }
    state_set(place_of(timer), TIMER_STOPPED);
    if (++worker->timers_open >= TIMERS_FAR_MIN) worker->timers_far = true;
    *ret_timer = timer;
    return 0;
}

static __attribute__((noinline, cold)) void check_open(weir_timer *timer, const char *call)
{
    if (!timer_is_open(place_of(timer))) misuse("%s: timer '%s' is closed", call, timer->name);
}

static struct worker *timer_worker(weir_timer *timer, const char *call)
{
    struct worker *worker = worker_self();
    const struct worker *owner = slab_of(timer)->worker;
    if (__builtin_expect(owner != worker, 0)) {
        misuse("%s: timer '%s' belongs to worker %u", call, timer->name, owner->index);
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
    struct place place = place_of(timer);
    enum timer_state state = state_get(place);
    int64_t at_ns;

    if (__builtin_expect(state == TIMER_CLOSED, 0)) {
        check_open(timer, "weir_timer_start");
        return; /* the scope is cancelled */
    }
    at_ns = time_after_ms(recent_now_ns(worker), after_ms);
    if (state != TIMER_STOPPED) disarm(worker, place, state);
    if (worker->timers_far && at_ns != WHEEL_NEVER_NS &&
        agenda_add(&worker->agenda, &place.slab->cells[place.index], at_ns)) {
        state_set(place, TIMER_FAR);
    } else {
        arm_near(worker, place, at_ns);
    }
    worker_touched(worker);
}

bool weir_timer_stop(weir_timer *timer)
{
    struct worker *worker = timer_worker(timer, "weir_timer_stop");
    struct place place = place_of(timer);
    enum timer_state state = state_get(place);

    /* Written at the end, here and by a start that follows: on its way from now on. */
    __builtin_prefetch(&place.slab->cells[place.index], 1);
    if (state == TIMER_CLOSED) check_open(timer, "weir_timer_stop");
    if (state < TIMER_NEAR) return false;
    if (!PLANTED(DUE_TIMER_FIRES) || timer->timer.wheel.at_ns > worker->now_ns)
        disarm(worker, place, state);
    state_set(place, TIMER_STOPPED);
    return true;
}

void weir_timer_close(weir_timer *timer)
{
    struct worker *worker;

    if (!timer) return;
    worker = timer_worker(timer, "weir_timer_close");
    check_open(timer, "weir_timer_close");
    timer_release(worker, &timer->belonging);
}

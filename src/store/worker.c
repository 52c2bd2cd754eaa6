/* worker.c - a worker as an object: opening, stopping, its end, figures, the map. */
#include "store/worker.h"

#include <stdio.h>
#include <string.h>

#include "rt/mem.h"

/* ---- Waiting ---- */

const struct wait_kind worker_wait_work = {
    .name = "worker",
    .takes_work = true,
    .abort = waiter_abort,
    .describe = waiter_describe,
    .what = WAIT_FOR_WORK,
    .ends = ENDS_AT_CLOSE,
    .facts = waiter_facts,
};
const struct wait_kind worker_wait_service = {
    .name = "jobs of a worker",
    .abort = waiter_abort,
    .describe = waiter_describe,
    .what = WAIT_FOR_WORK,
    .ends = ENDS_AT_CLOSE,
    .facts = waiter_facts,
};
static const struct wait_kind wait_end = {
    .name = "worker's end",
    .abort = waiter_abort,
    .describe = waiter_describe,
    .what = WAIT_FOR_END,
    .ends = ENDS_OUTSIDE,
    .facts = waiter_facts,
};
static const struct wait_kind wait_close = {
    .name = "close of a worker",
    .describe = waiter_describe,
    .what = WAIT_FOR_END,
    .ends = ENDS_OUTSIDE,
    .facts = waiter_facts,
};

int64_t worker_ms_until(int64_t at_ns)
{
    int64_t left_ns = at_ns - weir_now_ns();
    return left_ns > 0 ? left_ns / 1000000 + 1 : 1;
}

int worker_enter(const struct wait_kind *kind)
{
    struct task *self = task_self();
    int r = task_enter(self, ENTER_PLAIN);

    return r < 0 || !kind->takes_work ? r : task_interruption(self, true);
}

int worker_park(struct job_worker *worker, struct list *list, const struct wait_kind *kind,
                int64_t ms)
{
    struct task *self = task_self();
    struct waiter waiter = {.task = self, .object = &worker->object};
    int r = 0;

    list_add_tail(list, &waiter.node);
    worker_unlock(worker);
    if (ms == WEIR_FOREVER) return waiter_park(self, &waiter, kind);
    WEIR_DEADLINE(ms) r = waiter_park(self, &waiter, kind);
    return r == WEIR_ETIMEDOUT ? 0 : r;
}

/* ---- Orders ---- */

unsigned worker_orders(const struct job_worker *worker)
{
    if (!worker_has_store(worker)) return 0;
    return weir_worker_orders(worker->spec.store, worker->object.name);
}

/* ---- The end ---- */

void worker_stop(struct job_worker *worker, int error)
{
    bool fails;

    worker_lock(worker);
    if (worker->state == WORKER_OPEN) worker->state = WORKER_STOPPING;
    fails = error < 0 && worker->error == 0 && worker->state == WORKER_STOPPING;
    if (fails) worker->error = error;
    waiter_wake_all(&worker->mains, 0);
    worker_unlock(worker);
    if (fails) {
        log_write(worker->object.stable.runtime, WEIR_LOG_ERROR, NULL,
                  "worker '%s' cannot go on: %s", worker->object.name, weir_error_name(error));
    }
}

void worker_end(struct job_worker *worker, int result)
{
    sanitize_release(&worker->finishers);
    worker_lock(worker);
    worker->state = WORKER_ENDED;
    worker->result = result;
    worker->jobs = NULL;
    waiter_tell_all(&worker->finishers, result);
    worker_unlock(worker);
}

static void worker_free(struct job_worker *worker)
{
    for (int i = 0; worker->slots && i < worker->spec.concurrency; i++) {
        call_free(worker->slots[i].call);
    }
    mem_free(worker->slots);
    mem_free(worker->strings);
    flow_free(&worker->object);
}

/* Main has ended, or never was. On its worker. */
static void let_go(struct job_worker *worker)
{
    /* The bit keeps others from posting mail; if some is under way, it comes back here. */
    if (atom_or(&worker->object.belonging.mail_bits, BELONGING_RELEASE) != 0) return;
    meter_leave(&worker->metered);
    (void)scope_forget(&worker->object.belonging);
    worker_free(worker);
}

/* ---- Belonging to a scope ---- */

static void worker_release(struct worker *home, struct belonging *belonging)
{
    struct job_worker *worker = container_of(belonging, struct job_worker, object.belonging);

    (void)home;
    if (worker->handle) handle_close(worker->handle);
    worker->handle = NULL;
    let_go(worker);
}

static void worker_signalled(struct worker *home, struct belonging *belonging, uint8_t signals)
{
    (void)home, (void)belonging, (void)signals; /* its task is told by its scope */
}

static void worker_dismissed(struct worker *home, struct belonging *belonging)
{
    (void)home;
    worker_stop(container_of(belonging, struct job_worker, object.belonging), 0);
}

static void worker_describe(const struct belonging *belonging, char *text, size_t bytes)
{
    static const char *const states[] = {"", ", stopping", ", ended"};
    const struct job_worker *worker =
        (const struct job_worker *)(const void *)((const char *)belonging -
                                                  offsetof(struct job_worker, object.belonging));

    (void)snprintf(text, bytes, "'%s', queue '%s', %d of %d jobs%s%s", worker->object.name,
                   worker->spec.queue, worker->figures.running, worker->spec.concurrency,
                   states[worker->state], worker->figures.quiet ? ", quiet" : "");
}

static bool worker_boundary(struct belonging *belonging, unsigned row,
                            struct boundary *ret_boundary)
{
    struct job_worker *worker = container_of(belonging, struct job_worker, object.belonging);
    const weir_worker_figures *figures = &worker->figures;
    struct lock *lock = &worker->object.stable.lock;

    if (row > 0) return false;
    (void)snprintf(ret_boundary->name, sizeof ret_boundary->name, "%s", worker->object.name);
    ret_boundary->lifetime = "until closed, or the scope ends";
    boundary_bound(ret_boundary, (uint64_t)worker->spec.concurrency, "jobs");
    ret_boundary->overflow = "waits: no more are leased";
    (void)snprintf(ret_boundary->failure, sizeof ret_boundary->failure,
                   "settled by the job's retry policy; drain %lld ms at a stop",
                   (long long)worker->spec.drain_ms);
    ret_boundary->meter = worker->run_meter;
    ret_boundary->wait_histogram = -1;
    ret_boundary->run_histogram = 0;
    if (!boundary_hold(lock, worker->object.stable.shared)) return true;
    boundary_figure(ret_boundary, "running", (uint64_t)figures->running);
    boundary_figure(ret_boundary, "leased", figures->leased);
    boundary_figure(ret_boundary, "ok", figures->ok);
    boundary_figure(ret_boundary, "retried", figures->retried);
    boundary_figure(ret_boundary, "dead", figures->dead);
    boundary_figure(ret_boundary, "snoozed", figures->snoozed);
    boundary_figure(ret_boundary, "released", figures->released);
    boundary_figure(ret_boundary, "lost", figures->lost);
    boundary_figure(ret_boundary, "cancelled", figures->cancelled);
    boundary_figure(ret_boundary, "settle_failures", figures->settle_failures);
    boundary_let_go(lock, worker->object.stable.shared);
    return true;
}

static const struct belonging_kind worker_kind = {
    .name = "worker",
    .signalled = worker_signalled,
    .release = worker_release,
    .describe = worker_describe,
    .boundary = worker_boundary,
    .is_passive = belonging_is_passive,
    .dismissed = worker_dismissed,
};

/* ---- Figures ---- */

enum {
    WORKER_RUNNING,
    WORKER_CONCURRENCY,
    WORKER_OK,
    WORKER_RETRIED,
    WORKER_DEAD,
    WORKER_SNOOZED,
    WORKER_RELEASED,
    WORKER_LOST,
    WORKER_CANCELLED,
    WORKER_VALUES,
};

static void collect_worker(struct metered *object, uint64_t *values)
{
    struct job_worker *worker = container_of(object, struct job_worker, metered);
    const weir_worker_figures *figures = &worker->figures;

    worker_lock(worker);
    values[WORKER_RUNNING] = (uint64_t)figures->running;
    values[WORKER_CONCURRENCY] = (uint64_t)worker->spec.concurrency;
    values[WORKER_OK] = figures->ok;
    values[WORKER_RETRIED] = figures->retried;
    values[WORKER_DEAD] = figures->dead;
    values[WORKER_SNOOZED] = figures->snoozed;
    values[WORKER_RELEASED] = figures->released;
    values[WORKER_LOST] = figures->lost;
    values[WORKER_CANCELLED] = figures->cancelled;
    worker_unlock(worker);
}

#define SETTLED(outcome_)                                                           \
    {                                                                               \
        .name = "weir_worker_settled_total", .help = "Jobs that it was done with.", \
        .type = METER_COUNTER, .label = "outcome", .label_value = outcome_,         \
    }
static const struct meter_value worker_values[WORKER_VALUES] = {
    [WORKER_RUNNING] = {"weir_worker_running", "Jobs that run now.", METER_GAUGE},
    [WORKER_CONCURRENCY] = {"weir_worker_concurrency", "Jobs that may run at a time.", METER_GAUGE},
    [WORKER_OK] = SETTLED("ok"),
    [WORKER_RETRIED] = SETTLED("retried"),
    [WORKER_DEAD] = SETTLED("dead"),
    [WORKER_SNOOZED] = SETTLED("snoozed"),
    [WORKER_RELEASED] = SETTLED("released"),
    [WORKER_LOST] = SETTLED("lost"),
    [WORKER_CANCELLED] = SETTLED("cancelled"),
};

const struct meter_kind worker_meter_kind = {
    .labels = {"worker"},
    .values = worker_values,
    .value_count = WORKER_VALUES,
    .collect = collect_worker,
};

static const struct meter_histogram job_run_histograms[] = {
    {"weir_job_run_seconds", "How long handlers run, of every job."},
};

const struct meter_kind job_run_meter_kind = {
    .labels = {"queue"},
    .histograms = job_run_histograms,
    .histogram_count = 1,
};

/* ---- Calls ---- */

static struct job_worker *look_up(const weir_worker *handle, const char *call)
{
    return flow_look_up(handle, HANDLE_JOB_WORKER, "worker", call);
}

void weir_worker_stop(weir_worker *handle)
{
    struct job_worker *worker = look_up(handle, "weir_worker_stop");

    flow_check_worker("weir_worker_stop");
    worker_stop(worker, 0);
    worker_touched(worker_self());
}

/* Until it has ended. Cancel: nothing moved. */
static int await_end(weir_worker *handle, struct job_worker *worker, struct task *self,
                     bool hurries)
{
    int r = 0, result = 0; /* written by who wakes us: the worker may be gone then */
    struct waiter waiter = {.task = self, .object = &worker->object, .item = &result};
    weir_task main = {NULL, 0};

    worker_lock(worker);
    if (!flow_names(handle, HANDLE_JOB_WORKER, worker)) {
        worker_unlock(worker);
        return WEIR_ECLOSED;
    }
    if (worker->state == WORKER_ENDED) {
        result = worker->result;
        worker_unlock(worker);
    } else {
        if (hurries) main = worker->main;
        list_add_tail(&worker->finishers, &waiter.node);
        worker_unlock(worker);
        if (main.ref) (void)weir_task_cancel(main, "the worker is closed in a hurry");
        r = waiter_park(self, &waiter, hurries ? &wait_close : &wait_end);
    }
    if (r < 0) return r;
    sanitize_acquire(&worker->finishers);
    return result;
}

static int check_not_own(struct job_worker *worker, const struct task *self)
{
    bool own;

    worker_lock(worker);
    own = worker->jobs && self->scope == worker->jobs;
    worker_unlock(worker);
    if (!own) return 0;
    return refuse("worker '%s': one of its handlers waits for its end", worker->object.name);
}

int weir_worker_wait(weir_worker *handle)
{
    struct job_worker *worker = look_up(handle, "weir_worker_wait");
    struct task *self = task_self();
    int r;

    if (!self) return refuse_no_task("weir_worker_wait");
    r = task_enter(self, ENTER_PLAIN);
    if (r == 0) r = check_not_own(worker, self);
    return r < 0 ? r : await_end(handle, worker, self, false);
}

/* It has ended; its memory goes now, or with its scope if that may start its task again. */
static void give_up(weir_worker *handle, struct job_worker *worker)
{
    weir_scope *scope;
    bool stays;

    worker_lock(worker);
    if (!flow_names(handle, HANDLE_JOB_WORKER, worker)) {
        worker_unlock(worker); /* with its scope */
        return;
    }
    handle_close(handle);
    worker->handle = NULL;
    scope = worker->object.belonging.scope;
    stays = worker->result < 0 && scope->on_failure == WEIR_SUPERVISE;
    worker_unlock(worker);
    if (stays) return;
    scope_lock(scope);
    belonging_mail(&worker->object.belonging, BELONGING_RELEASE);
    scope_unlock(scope);
}

int weir_worker_close(weir_worker *take_worker)
{
    struct job_worker *worker;
    struct task *self = task_self();
    int r;

    if (!take_worker) return 0;
    worker = look_up(take_worker, "weir_worker_close");
    if (!self) return refuse_no_task("weir_worker_close");
    r = check_not_own(worker, self);
    if (r < 0) return r;
    worker_lock(worker);
    if (worker->closing) misuse("weir_worker_close: '%s' is being closed", worker->object.name);
    worker->closing = true;
    worker_unlock(worker);
    worker_stop(worker, 0);
    r = task_enter(self, ENTER_PLAIN);
    if (r == 0) r = await_end(take_worker, worker, self, false);
    if (task_interruption(self, false) < 0) r = await_end(take_worker, worker, self, true);
    give_up(take_worker, worker);
    return r;
}

void weir_worker_figures_of(weir_worker *handle, weir_worker_figures *ret_figures)
{
    struct job_worker *worker = look_up(handle, "weir_worker_figures_of");

    flow_check_worker("weir_worker_figures_of");
    worker_lock(worker);
    *ret_figures = worker->figures;
    ret_figures->ended = worker->state == WORKER_ENDED;
    worker_unlock(worker);
}

/* ---- Opening ---- */

static int check_name_bytes(const char *worker, const char *what, const char *name)
{
    if (!name || !*name) return refuse("worker '%s': %s is not set", worker, what);
    if (strlen(name) <= WEIR_JOB_NAME_BYTES_MAX) return 0;
    return refuse("worker '%s': %s has more than %d bytes", worker, what, WEIR_JOB_NAME_BYTES_MAX);
}

static uint32_t version_max_of(const weir_handler *handler)
{
    return handler->version_max ? handler->version_max : handler->version_min;
}

static bool overlap(const weir_handler *a, const weir_handler *b)
{
    return strcmp(a->kind, b->kind) == 0 && a->version_min <= version_max_of(b) &&
           b->version_min <= version_max_of(a);
}

static int check_handlers(const weir_worker_spec *spec)
{
    const char *name = spec->name;

    if (!spec->handlers || spec->handler_count == 0) {
        return refuse("worker '%s': handlers is not set", name);
    }
    if (spec->handler_count > WEIR_WORKER_HANDLERS_MAX) {
        return refuse("worker '%s': %zu handlers, at most %d", name, spec->handler_count,
                      WEIR_WORKER_HANDLERS_MAX);
    }
    for (size_t i = 0; i < spec->handler_count; i++) {
        const weir_handler *handler = &spec->handlers[i];
        int r = check_name_bytes(name, "kind of a handler", handler->kind);
        if (r < 0) return r;
        if (version_max_of(handler) < handler->version_min) {
            return refuse("worker '%s': version_max of handler '%s' is less than version_min", name,
                          handler->kind);
        }
        if (!handler->fn == (spec->executor != WEIR_ON_PROCESSES)) {
            return refuse("worker '%s': fn of handler '%s' is set if and only if the executor is "
                          "not WEIR_ON_PROCESSES",
                          name, handler->kind);
        }
        for (size_t k = 0; k < i; k++) {
            if (!overlap(handler, &spec->handlers[k])) continue;
            return refuse("worker '%s': two handlers for kind '%s' and the same version", name,
                          handler->kind);
        }
    }
    return 0;
}

static int check_executor(const weir_worker_spec *spec)
{
    const char *name = spec->name;
    weir_pool_figures figures;

    if (spec->executor == WEIR_EXECUTOR_UNSET || spec->executor > WEIR_ON_PROCESSES) {
        return refuse("worker '%s': executor is not set", name);
    }
    if (!spec->pool != (spec->executor != WEIR_ON_POOL)) {
        return refuse("worker '%s': pool is set if and only if the executor is WEIR_ON_POOL", name);
    }
    if (!spec->processes != (spec->executor != WEIR_ON_PROCESSES)) {
        return refuse("worker '%s': processes is set if and only if the executor is "
                      "WEIR_ON_PROCESSES",
                      name);
    }
    if (spec->pool && weir_pool_figures_of(spec->pool, spec->pool_class, &figures) < 0) {
        return refuse("worker '%s': pool_class is %u, which its pool does not have", name,
                      spec->pool_class);
    }
    return 0;
}

static int check_spec(const weir_worker_spec *spec)
{
    const char *name = spec->name;
    int r = flow_check_name("worker", name);

    if (r < 0) return r;
    if (strlen(name) >= FLOW_NAME_BYTES) {
        /* The store knows it by its name: two that are cut alike would share their orders. */
        return refuse("worker '%s': name has more than %d bytes", name, FLOW_NAME_BYTES - 1);
    }
    if (!spec->store) return refuse("worker '%s': store is not set", name);
    r = check_name_bytes(name, "queue", spec->queue);
    if (r < 0) return r;
    if (spec->concurrency < 1 || spec->concurrency > WEIR_WORKER_CONCURRENCY_MAX) {
        return refuse("worker '%s': concurrency is %d, must be 1 to %d", name, spec->concurrency,
                      WEIR_WORKER_CONCURRENCY_MAX);
    }
    if (spec->lease_ms <= 0 || spec->lease_ms > WEIR_JOB_LEASE_MS_MAX) {
        return refuse("worker '%s': lease_ms is %lld, must be 1 to %lld", name,
                      (long long)spec->lease_ms, (long long)WEIR_JOB_LEASE_MS_MAX);
    }
    if (spec->drain_ms <= 0) return refuse("worker '%s': drain_ms is not set", name);
    if (spec->result_bytes_max > WEIR_STORE_PAYLOAD_BYTES_MAX) {
        return refuse("worker '%s': result_bytes_max is %zu, at most %d", name,
                      spec->result_bytes_max, WEIR_STORE_PAYLOAD_BYTES_MAX);
    }
    if ((unsigned)spec->durability > WEIR_SYNCED) {
        return refuse("worker '%s': durability is no weir_durability", name);
    }
    r = check_executor(spec);
    return r < 0 ? r : check_handlers(spec);
}

/* One allocation: handlers, kinds, then the text. */
static int copy_strings(struct job_worker *worker, const weir_worker_spec *given)
{
    size_t count = given->handler_count;
    size_t arrays = count * (sizeof(weir_handler) + sizeof(weir_job_kind));
    size_t bytes = arrays + strlen(given->queue) + 1;
    weir_handler *handlers;
    char *at;

    for (size_t i = 0; i < count; i++) bytes += strlen(given->handlers[i].kind) + 1;
    worker->strings = mem_alloc(bytes);
    if (!worker->strings) return -ENOMEM;
    handlers = (void *)worker->strings;
    worker->kinds = (void *)(handlers + count);
    at = worker->strings + arrays;
    worker->spec.queue = at;
    at = stpcpy(at, given->queue) + 1;
    for (size_t i = 0; i < count; i++) {
        handlers[i] = given->handlers[i];
        handlers[i].version_max = version_max_of(&given->handlers[i]);
        handlers[i].kind = at;
        at = stpcpy(at, given->handlers[i].kind) + 1;
        worker->kinds[i] =
            (weir_job_kind){handlers[i].kind, handlers[i].version_min, handlers[i].version_max};
    }
    worker->spec.handlers = handlers;
    return 0;
}

static int make_slots(struct job_worker *worker)
{
    size_t count = (size_t)worker->spec.concurrency;

    worker->slots = mem_alloc_zeroed(count * sizeof *worker->slots +
                                     WORKER_AT_ONCE_MAX * sizeof *worker->leased +
                                     WORKER_AT_ONCE_MAX * sizeof *worker->settlements);
    if (!worker->slots) return -ENOMEM;
    worker->leased = (void *)(worker->slots + count);
    worker->settlements = (void *)(worker->leased + WORKER_AT_ONCE_MAX);
    for (size_t i = 0; i < count; i++) {
        struct job_slot *slot = &worker->slots[i];
        slot->worker = worker;
        list_init(&slot->renewal);
        list_add_tail(&worker->free_slots, &slot->node);
        slot->call = call_new(&worker->spec);
        if (!slot->call) return -ENOMEM;
    }
    worker->free_count = count;
    return 0;
}

static int worker_new(const weir_worker_spec *spec, struct job_worker **ret_worker)
{
    struct job_worker *worker = flow_alloc(sizeof *worker, spec->name);
    int r;

    if (!worker) return -ENOMEM;
    worker->spec = *spec;
    worker->spec.name = worker->object.name;
    if (spec->result_bytes_max == 0) {
        worker->spec.result_bytes_max = WORKER_RESULT_BYTES_DEFAULT;
    }
    list_init(&worker->free_slots);
    list_init(&worker->renewals);
    list_init(&worker->ended);
    list_init(&worker->mains);
    list_init(&worker->leasers);
    list_init(&worker->beaters);
    list_init(&worker->settlers);
    list_init(&worker->finishers);
    r = copy_strings(worker, spec);
    if (r == 0) r = make_slots(worker);
    if (r < 0) {
        worker_free(worker);
        return r;
    }
    *ret_worker = worker;
    return 0;
}

int weir_worker_open_sized(weir_scope *scope, size_t spec_bytes, const weir_worker_spec *given,
                           weir_worker **ret_worker)
{
    struct worker *home = worker_self();
    struct job_worker *worker;
    weir_worker_spec spec;
    weir_task_spec task;
    void *handle;
    int r;

    if (!task_self()) return refuse_no_task("weir_worker_open");
    scope_check(scope, "weir_worker_open");
    spec_copy(&spec, sizeof spec, given, spec_bytes);
    r = check_spec(&spec);
    if (r < 0) return r;
    r = worker_new(&spec, &worker);
    if (r < 0) return r;
    if (spec.processes) r = worker_check_processes(&worker->spec);
    if (r == 0) r = handle_open(HANDLE_JOB_WORKER, worker, &worker->handle);
    if (r < 0) goto fail_free;
    r = scope_own(scope, home, &worker->object.belonging, &worker_kind);
    if (r < 0) goto fail_handle;
    meter_enter(&worker->metered, meter_get(&worker_meter_kind, worker->object.name, NULL));
    worker->run_meter = meter_get(&job_run_meter_kind, worker->spec.queue, NULL);
    handle = worker->handle;
    task = (weir_task_spec){
        .fn = worker_main, .arg = &worker, .arg_bytes = sizeof worker, .name = worker->object.name};
    r = weir_task_spawn(scope, &task, NULL);
    if (r < 0) {
        worker_release(home, &worker->object.belonging);
    } else {
        *ret_worker = handle;
    }
    return r;

fail_handle:
    handle_close(worker->handle);
fail_free:
    worker_free(worker);
    return r;
}

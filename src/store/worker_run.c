/* worker_run.c - the tasks of a worker: main, leaser, runners and heartbeats. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "rt/mem.h"
#include "store/worker.h"
#include "watch/trace.h"

/* ---- Leases, by our own clock ---- */

/* How long a lease lasts from `since_ns` on, when the store was asked for it, or later. The store's
 * time is the wall's, or ahead of it; whatever a clock does meanwhile, the lease is taken for
 * neither longer than was asked for nor for over at once. */
static int64_t lease_left_ms(const struct job_worker *worker, int64_t lease_until_ms,
                             int64_t since_ns)
{
    const struct kernel *kernel = worker->object.stable.runtime->kernel;
    int64_t lease_ms = worker->spec.lease_ms, least_ms = lease_ms / 16 + 1;
    weir_store_figures figures;
    int64_t left_ms;

    if (!worker_has_store(worker)) return lease_ms;
    weir_store_figures_of(worker->spec.store, &figures);
    left_ms = lease_until_ms - kernel->wall_ns(kernel) / 1000000 - figures.clock_ahead_ms +
              (weir_now_ns() - since_ns) / 1000000;
    if (left_ms > lease_ms) left_ms = lease_ms;
    return left_ms < least_ms ? least_ms : left_ms;
}

/* Into `renewals`, mostly at its end. The lock is held. */
static void plan_renewal(struct job_slot *slot, int64_t renew_at_ns)
{
    struct job_worker *worker = slot->worker;
    struct list *before = worker->renewals.prev;

    slot->renew_at_ns = renew_at_ns;
    while (before != &worker->renewals &&
           container_of(before, struct job_slot, renewal)->renew_at_ns > renew_at_ns) {
        before = before->prev;
    }
    list_add_head(before, &slot->renewal);
    if (worker->renewals.next == &slot->renewal) waiter_wake_all(&worker->beaters, 0);
}

/* The lease lasts so long from then on. The lock is held. */
static void note_lease(struct job_slot *slot, int64_t since_ns, int64_t left_ms)
{
    int64_t third_ms = slot->worker->spec.lease_ms / 3 + 1;

    slot->lease_until_ns = time_after_ms(since_ns, left_ms);
    plan_renewal(slot, time_after_ms(since_ns, left_ms < third_ms ? left_ms : third_ms));
}

/* ---- Heartbeats ---- */

struct beat {
    struct job_slot *slot;
    uint64_t id, token;
    int64_t lease_until_ns;
};

/* Leases that are due, and those that soon will be: they are renewed by one call. */
struct beats {
    struct beat beats[WEIR_JOB_RENEW_MAX];
    weir_renewal renewals[WEIR_JOB_RENEW_MAX];
    size_t count;
    int64_t first_until_ns; /* when the first of these leases ends */
};

/* Out of `renewals`, those that are due or almost. A call has until the first of its leases ends:
 * so those that are about to (their job's time is up) go by themselves, and cut no others short.
 * The lock is held. */
static void take_due(struct job_worker *worker, int64_t now_ns, struct beats *beats)
{
    int64_t by_ns = time_after_ms(now_ns, worker->spec.lease_ms / 16);
    int64_t near_ns = time_after_ms(now_ns, worker->spec.lease_ms / 4);
    struct list *first;

    beats->count = 0;
    beats->first_until_ns = INT64_MAX;
    while (beats->count < WEIR_JOB_RENEW_MAX && (first = list_first(&worker->renewals))) {
        struct job_slot *slot = container_of(first, struct job_slot, renewal);
        bool ends = slot->lease_until_ns < near_ns;

        if (slot->renew_at_ns > by_ns) break;
        if (beats->count > 0 && ends != (beats->beats[0].lease_until_ns < near_ns)) break;
        list_remove(&slot->renewal);
        beats->renewals[beats->count] = (weir_renewal){.id = slot->id, .token = slot->token};
        beats->beats[beats->count++] =
            (struct beat){slot, slot->id, slot->token, slot->lease_until_ns};
        if (slot->lease_until_ns < beats->first_until_ns)
            beats->first_until_ns = slot->lease_until_ns;
    }
}

/* The leases that are to be renewed next. 1: there will be none. */
static int await_due(struct job_worker *worker, struct beats *beats)
{
    for (;;) {
        struct list *first;
        int64_t ms = WEIR_FOREVER;
        int r = worker_enter(&worker_wait_service);

        if (r < 0) return r;
        worker_lock(worker);
        if (worker->services_end) {
            worker_unlock(worker);
            return 1;
        }
        first = list_first(&worker->renewals);
        if (first) {
            int64_t at_ns = container_of(first, struct job_slot, renewal)->renew_at_ns;
            int64_t now_ns = weir_now_ns();
            if (at_ns <= now_ns) {
                take_due(worker, now_ns, beats);
                worker_unlock(worker);
                return 0;
            }
            ms = worker_ms_until(at_ns);
        }
        r = worker_park(worker, &worker->beaters, &worker_wait_service, ms);
        if (r < 0) return r;
    }
}

/* Whether the slot still has the lease that was renewed. The lock is held. */
static bool is_held(const struct beat *beat)
{
    const struct job_slot *slot = beat->slot;
    return slot->token == beat->token && slot->id == beat->id &&
           (slot->state == SLOT_HELD || slot->state == SLOT_RUNNING);
}

/* The job is to end. */
static void tell(struct job_worker *worker, const struct beat *beat, unsigned what, const char *why)
{
    weir_task task = {NULL, 0};

    worker_lock(worker);
    if (is_held(beat)) {
        beat->slot->told |= what;
        task = beat->slot->task; /* none: its runner will find it told */
        if (what & TOLD_LOST) list_remove(&beat->slot->renewal);
    }
    worker_unlock(worker);
    if (task.ref) (void)weir_task_cancel(task, why);
}

static void follow_orders(struct job_worker *worker, const struct beat *beat, unsigned orders)
{
    if (orders & WEIR_GO_CANCELLED) tell(worker, beat, TOLD_CANCELLED, "the job was cancelled");
    worker_lock(worker);
    if (worker->figures.quiet && !(orders & WEIR_GO_QUIET)) waiter_wake_all(&worker->leasers, 0);
    worker->figures.quiet = (orders & WEIR_GO_QUIET) != 0;
    worker_unlock(worker);
    if (orders & WEIR_GO_END) worker_stop(worker, 0);
}

/* It was not renewed this time. */
static void again_soon(struct job_worker *worker, const struct beat *beat)
{
    int64_t now_ns = weir_now_ns();

    if (now_ns >= beat->lease_until_ns) {
        tell(worker, beat, TOLD_LOST, "its lease could not be renewed in time");
        return;
    }
    worker_lock(worker);
    if (is_held(beat)) {
        plan_renewal(beat->slot, time_after_ms(now_ns, worker->spec.lease_ms / 16 + 1));
    }
    worker_unlock(worker);
}

/* What the store has said of one lease. */
static void after_beat(struct job_worker *worker, const struct beat *beat, int r,
                       const weir_renewed *renewed, int64_t asked_ns)
{
    if (r == 0) {
        int64_t left_ms = lease_left_ms(worker, renewed->lease_until_ms, asked_ns);
        worker_lock(worker);
        if (is_held(beat)) note_lease(beat->slot, asked_ns, left_ms);
        worker_unlock(worker);
        follow_orders(worker, beat, renewed->orders);
    } else if (r == -ESTALE || r == -ENOENT) {
        tell(worker, beat, TOLD_LOST, "its lease was lost");
    } else if (r == WEIR_ETIMEDOUT || worker_may_retry(r)) {
        again_soon(worker, beat);
    } else if (r != WEIR_ECANCELED) {
        worker_stop(worker, r);
    }
}

static int renew(struct job_worker *worker, struct beats *beats)
{
    const weir_worker_spec *spec = &worker->spec;
    int64_t asked_ns = weir_now_ns();
    int r = WEIR_ECLOSED;

    if (worker_has_store(worker)) {
        WEIR_DEADLINE(worker_ms_until(beats->first_until_ns)) {
            r = weir_job_renew_all(spec->store, beats->renewals, beats->count, worker->object.name,
                                   spec->lease_ms);
        }
    }
    for (size_t i = 0; i < beats->count; i++) {
        const weir_renewal *one = &beats->renewals[i];
        after_beat(worker, &beats->beats[i], r < 0 ? r : one->ret_error, &one->ret_renewed,
                   asked_ns);
    }
    return r == WEIR_ECANCELED ? r : 0;
}

static int heartbeat(void *arg)
{
    struct job_worker *worker = *(struct job_worker **)arg;
    struct beats beats;
    int r = 0;

    while (r == 0) {
        r = await_due(worker, &beats);
        if (r == 0) r = renew(worker, &beats);
    }
    return 0;
}

/* ---- Runners ---- */

static weir_handler_fn find_handler(const struct job_worker *worker, const weir_job *job)
{
    const weir_worker_spec *spec = &worker->spec;

    for (size_t i = 0; i < spec->handler_count; i++) {
        const weir_handler *handler = &spec->handlers[i];
        if (strcmp(handler->kind, job->kind) == 0 && job->version >= handler->version_min &&
            job->version <= handler->version_max) {
            return handler->fn;
        }
    }
    return NULL;
}

/* The handler was not run, for want of something. */
static void give_back(struct job_slot *slot, int error)
{
    struct job_worker *worker = slot->worker;
    bool passes = error == WEIR_ECANCELED || error == WEIR_ETIMEDOUT;

    slot->verdict = (struct verdict){.how = WEIR_SETTLE_RELEASE};
    if (passes) return;
    slot->verdict.delay_ms = WORKER_PAUSE_MS_MAX;
    log_write(worker->object.stable.runtime, WEIR_LOG_WARNING, NULL,
              "worker '%s': job %" PRIu64 " cannot be run now and is given back: %s",
              worker->object.name, slot->id, weir_error_name(error));
    /* Without what runs its jobs there is nothing that it could do. */
    if (!worker_may_retry(error)) worker_stop(worker, error);
}

static void run_job(struct job_slot *slot, const struct task *self)
{
    struct job_worker *worker = slot->worker;
    int64_t begun_ns = weir_now_ns();
    int r;

    slot->verdict = (struct verdict){.how = WEIR_SETTLE_UNSET};
    slot->call->fn = find_handler(worker, &slot->call->job);
    if (!slot->call->fn && worker->spec.executor != WEIR_ON_PROCESSES) {
        give_back(slot, -ENOSYS); /* it was leased although it was not asked for */
        return;
    }
    r = worker_call(slot);
    meter_observe(worker->run_meter, 0, weir_now_ns() - begun_ns);
    if (r == 0) {
        worker_judge(slot, task_interruption(self, false) < 0);
    } else if (slot->call && slot->verdict.how == WEIR_SETTLE_UNSET) {
        give_back(slot, r);
    }
}

static int runner(void *arg)
{
    struct job_slot *slot = *(struct job_slot **)arg;
    struct job_worker *worker = slot->worker;
    struct task *self = task_self();
    bool told;

    worker_lock(worker);
    slot->task = weir_task_self();
    slot->state = SLOT_RUNNING;
    told = slot->told != 0;
    worker_unlock(worker);
    if (told || task_interruption(self, false) < 0) {
        give_back(slot, WEIR_ECANCELED); /* it has not begun */
    } else {
        run_job(slot, self);
    }
    worker_hand_in(slot);
    return 0;
}

/* ---- The leaser ---- */

/* So many slots are free now. Waits for one. */
static int await_slots(struct job_worker *worker, size_t *ret_count)
{
    for (;;) {
        int r = worker_enter(&worker_wait_work);

        if (r < 0) return r;
        worker_lock(worker);
        *ret_count = worker->free_count;
        if (*ret_count > 0) {
            worker_unlock(worker);
            return 0;
        }
        r = worker_park(worker, &worker->leasers, &worker_wait_work, WEIR_FOREVER);
        if (r < 0) return r;
    }
}

/* Until the time is over, or there may be a reason to go on sooner. */
static int pause_leasing(struct job_worker *worker, int64_t ms)
{
    int r = worker_enter(&worker_wait_work);

    if (r < 0) return r;
    worker_lock(worker);
    return worker_park(worker, &worker->leasers, &worker_wait_work, ms);
}

/* Its job, or a release of it, is on its way. */
static void start(struct job_worker *worker, weir_scope *jobs, weir_job *take_job, int64_t now_ns)
{
    int64_t left_ms = lease_left_ms(worker, take_job->lease_until_ms, now_ns);
    struct job_slot *slot;
    weir_task_spec task = {.fn = runner, .arg = &slot, .arg_bytes = sizeof slot};
    int r = 0;

    worker_lock(worker);
    slot = container_of(list_pop(&worker->free_slots), struct job_slot, node);
    worker->free_count--;
    slot->state = SLOT_HELD;
    slot->id = take_job->id;
    slot->token = take_job->token;
    slot->told = 0;
    slot->task = (weir_task){NULL, 0};
    worker->figures.leased++;
    worker->figures.running++;
    note_lease(slot, now_ns, left_ms);
    worker_unlock(worker);
    if (!slot->call) {
        slot->call = call_new(&worker->spec);
        r = slot->call ? 0 : -ENOMEM;
    }
    if (r == 0) {
        slot->call->job = *take_job;
        task.name = slot->call->job.kind;
        r = weir_task_spawn(jobs, &task, NULL);
    } else {
        weir_job_free(take_job);
    }
    if (r == 0) return;
    give_back(slot, r);
    worker_hand_in(slot);
}

/* Jobs were leased, or it was found that there are none to be had. */
static int lease_some(struct job_worker *worker, weir_scope *jobs, size_t count)
{
    const weir_worker_spec *spec = &worker->spec;
    weir_lease_spec lease = {
        .queue = spec->queue,
        .worker = worker->object.name,
        .kinds = worker->kinds,
        .kind_count = spec->handler_count,
        .count = count < WORKER_AT_ONCE_MAX ? count : WORKER_AT_ONCE_MAX,
        .lease_ms = spec->lease_ms,
        .durability = spec->durability,
    };
    int64_t now_ns;
    int n = WEIR_ECLOSED;

    if (worker_has_store(worker)) {
        WEIR_NO_DEADLINE("waits for a job") {
            n = weir_job_lease(spec->store, &lease, worker->leased);
        }
    }
    if (n < 0) return n;
    worker_lock(worker);
    worker->figures.quiet = false;
    worker_unlock(worker);
    now_ns = weir_now_ns();
    for (int i = 0; i < n; i++) start(worker, jobs, &worker->leased[i], now_ns);
    return 0;
}

/* What leasing has failed with: 0, it goes on after a while; else the leaser is done. */
static int after_failure(struct job_worker *worker, const struct task *self, int error,
                         int64_t *pause_ms)
{
    int64_t quiet_ms;

    if (task_interruption(self, true) < 0) return error; /* stopped, or cancelled */
    if (error == WEIR_ESTOPPING) {
        /* It was told to be quiet, or to end: also one that has nothing to renew. */
        if (worker_orders(worker) & WEIR_GO_END) {
            worker_stop(worker, 0);
            return error;
        }
        worker_lock(worker);
        worker->figures.quiet = true;
        worker_unlock(worker);
        /* No heartbeat tells one without jobs: it asks itself, however long its leases are. */
        quiet_ms = worker->spec.lease_ms / 3 + 1;
        if (quiet_ms > WORKER_QUIET_MS_MAX) quiet_ms = WORKER_QUIET_MS_MAX;
        return pause_leasing(worker, quiet_ms);
    }
    if (!worker_may_retry(error)) {
        worker_stop(worker, error);
        return error;
    }
    log_write(worker->object.stable.runtime, WEIR_LOG_WARNING, self,
              "worker '%s' gets no jobs now: %s", worker->object.name, weir_error_name(error));
    error = pause_leasing(worker, *pause_ms);
    *pause_ms = *pause_ms * 2 < WORKER_PAUSE_MS_MAX ? *pause_ms * 2 : WORKER_PAUSE_MS_MAX;
    return error;
}

struct leaser {
    struct job_worker *worker;
    weir_scope *jobs;
};

static int leaser(void *arg)
{
    const struct leaser *own = arg;
    struct job_worker *worker = own->worker;
    int64_t pause_ms = WORKER_PAUSE_MS;
    size_t count;
    int r = 0;

    while (r == 0) {
        r = await_slots(worker, &count);
        if (r == 0) r = lease_some(worker, own->jobs, count);
        if (r < 0) {
            r = after_failure(worker, task_self(), r, &pause_ms);
        } else {
            pause_ms = WORKER_PAUSE_MS;
        }
    }
    return 0;
}

/* ---- Main ---- */

static int begin_services(struct job_worker *worker, weir_scope *services, int heartbeats)
{
    int r = weir_spawn_named(services, "settler", worker_settler, &worker, sizeof worker);

    for (int i = 0; i < heartbeats && r == 0; i++) {
        r = weir_spawn_named(services, "heartbeat", heartbeat, &worker, sizeof worker);
    }
    return r;
}

static void end_services(struct job_worker *worker)
{
    worker_lock(worker);
    worker->services_end = true;
    waiter_wake_all(&worker->settlers, 0);
    waiter_wake_all(&worker->beaters, 0);
    worker_unlock(worker);
}

/* Until it is told to stop: 0, or why it cannot go on, or WEIR_ECANCELED. */
static int await_stop(struct job_worker *worker)
{
    for (;;) {
        int r = worker_enter(&worker_wait_work);

        if (r < 0) return r == WEIR_ESTOPPING ? 0 : r;
        worker_lock(worker);
        if (worker->state != WORKER_OPEN) {
            r = worker->error;
            worker_unlock(worker);
            return r;
        }
        r = worker_park(worker, &worker->mains, &worker_wait_work, WEIR_FOREVER);
        if (r < 0) return r == WEIR_ESTOPPING ? 0 : r;
    }
}

/* Until it is stopped, and nothing runs any more: drained, or cancelled if there is an error. */
static int run_jobs(struct job_worker *worker)
{
    const weir_worker_spec *spec = &worker->spec;
    weir_scope_spec scope_spec = {
        .name = "jobs",
        .on_failure = WEIR_COLLECT,
        .max_tasks = (size_t)spec->concurrency + 1,
        .overflow = WEIR_WAIT, /* a runner may be at its last instructions when its slot is free */
        .stack_bytes = spec->stack_bytes,
    };
    struct leaser own = {.worker = worker};
    int r = weir_scope_open(&scope_spec, &own.jobs);
    int closed;

    if (r < 0) return r;
    worker_lock(worker);
    worker->jobs = own.jobs;
    worker_unlock(worker);
    r = weir_spawn_named(own.jobs, "leaser", leaser, &own, sizeof own);
    if (r == 0) r = await_stop(worker);
    if (r == 0) {
        weir_scope_stop(own.jobs, spec->drain_ms);
    } else {
        weir_scope_cancel(own.jobs, 0, "the worker ends");
    }
    closed = weir_scope_close(own.jobs);
    return r < 0 ? r : closed;
}

static int serve(struct job_worker *worker, const struct task *self)
{
    int heartbeats = (worker->spec.concurrency - 1) / WORKER_JOBS_PER_HEARTBEAT + 1;
    weir_scope_spec scope_spec = {.name = worker->object.name,
                                  .on_failure = WEIR_COLLECT,
                                  .max_tasks = WORKER_HEARTBEATS_MAX + 1,
                                  .overflow = WEIR_REJECT};
    weir_scope *services;
    int r = weir_scope_open(&scope_spec, &services);
    int closed;

    if (r < 0) return r;
    if (heartbeats > WORKER_HEARTBEATS_MAX) heartbeats = WORKER_HEARTBEATS_MAX;
    r = begin_services(worker, services, heartbeats);
    if (r == 0) r = run_jobs(worker);
    end_services(worker);
    closed = weir_scope_close(services);
    worker_lose_rest(worker);
    if (worker->error < 0) return worker->error;
    if (r == 0) r = closed;
    return r == 0 && task_interruption(self, false) < 0 ? WEIR_ECANCELED : r;
}

/* From here on others may cancel it. False: it was told to end before it has begun. */
static bool begin(struct job_worker *worker)
{
    bool wanted;

    worker_lock(worker);
    worker->main = weir_task_self();
    wanted = worker->state == WORKER_OPEN;
    worker_unlock(worker);
    return wanted;
}

int worker_main(void *arg)
{
    struct job_worker *worker = *(struct job_worker **)arg;
    struct belonging *belonging = &worker->object.belonging;
    struct task *self = task_self();
    bool closing;
    int r = 0;

    if (worker->state == WORKER_ENDED) return worker->result; /* its scope supervises, in vain */
    if (trace_of(self)) trace_unref(trace_swap(self, NULL));  /* it works for who enqueues */
    scope_attend(belonging);
    if (begin(worker)) r = serve(worker, self);
    worker_lock(worker);
    closing = worker->closing;
    worker_unlock(worker);
    scope_attend_end(belonging);
    worker_end(worker, r);
    return closing ? 0 : r; /* who closes it is told */
}

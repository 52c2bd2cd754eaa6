/* outbox_life.c - opening a relay, its task, what others ask of it, and how it is freed. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"
#include "rt/mem.h"
#include "store/outbox.h"

/* ---- Its task ---- */

static const struct wait_kind wait_idle = {
    .name = "outbox",
    .takes_work = true,
    .abort = waiter_abort,
    .describe = waiter_describe,
    .what = WAIT_FOR_TIME,
    .ends = ENDS_OUTSIDE,
    .facts = waiter_facts,
};

/* Until the time is over or it is told to end; if it is `idle`, also until it is rung. */
static int pause_for(struct outbox *outbox, struct task *self, bool idle, int64_t ms)
{
    struct waiter waiter = {.task = self, .object = &outbox->object};
    int r = 0;

    WEIR_DEADLINE(ms) {
        r = task_enter(self, ENTER_TAKE_WORK);
        if (r < 0) break;
        outbox_lock(outbox);
        if (outbox->state == OUTBOX_OPEN && !(idle && outbox->rung)) {
            list_add_tail(idle ? &outbox->idle : &outbox->pauses, &waiter.node);
            outbox_unlock(outbox);
            r = waiter_park(self, &waiter, &wait_idle);
        } else {
            outbox_unlock(outbox);
        }
    }
    return r == WEIR_ETIMEDOUT ? 0 : r;
}

/* Whether there is to be another look; from here on a ring asks for the next one. */
static bool begin_look(struct outbox *outbox)
{
    bool wanted;

    outbox_lock(outbox);
    wanted = outbox->state == OUTBOX_OPEN;
    outbox->rung = false;
    outbox->look_count++;
    outbox_unlock(outbox);
    sanitize_acquire(outbox);
    return wanted;
}

/* This look has found nothing left: tell who waited for one that began after they asked. */
static void tell_drainers(struct outbox *outbox)
{
    struct list *node, *next;

    sanitize_release(outbox);
    outbox_lock(outbox);
    for (node = outbox->drainers.next; node != &outbox->drainers; node = next) {
        struct drain *drain = container_of(node, struct drain, waiter.node);
        next = node->next;
        if (drain->look > outbox->look_count) continue;
        list_remove(node);
        waiter_wake(&drain->waiter, 0);
    }
    outbox_unlock(outbox);
}

static int64_t next_retry_ms(struct outbox *outbox)
{
    int64_t max = outbox->spec.retry_ms_max, ms = outbox->retry_ms;

    ms = ms == 0 ? WEIR_OUTBOX_RETRY_MS : ms > max / 2 ? max : ms * 2;
    outbox->retry_ms = ms;
    return ms;
}

static int live(struct outbox *outbox, struct task *self)
{
    int r = task_interruption(self, true);

    while (r >= 0 && begin_look(outbox)) {
        bool failed;
        r = outbox_look(outbox);
        failed = r < 0;
        if (failed && outbox->is_over) return r;
        if (r == LOOK_IS_IDLE) tell_drainers(outbox);
        if (!failed) outbox->retry_ms = 0;
        if (r == LOOK_AGAIN) {
            r = task_interruption(self, true);
        } else {
            r = pause_for(outbox, self, !failed,
                          failed ? next_retry_ms(outbox) : outbox->spec.poll_ms);
        }
    }
    return r == WEIR_ESTOPPING ? 0 : r;
}

/* From now on a call with it is misuse. The lock is held, or nobody else is left. */
static void drop_handle(struct outbox *outbox)
{
    if (outbox->handle) handle_close(outbox->handle);
    outbox->handle = NULL;
}

/* It has ended: everybody who waits is told. True: it was given up, and the caller frees it; else
 * it may be gone at once. */
static bool end(struct outbox *outbox, int result)
{
    bool given_up;

    sanitize_release(outbox);
    outbox_lock(outbox);
    outbox->state = OUTBOX_ENDED;
    outbox->result = result;
    outbox->figures.ended = true;
    waiter_wake_all(&outbox->drainers, result < 0 ? result : WEIR_ECLOSED);
    given_up = outbox->given_up;
    if (given_up) drop_handle(outbox);
    waiter_tell_all(&outbox->finishers, result);
    outbox_unlock(outbox);
    return given_up;
}

static int outbox_main(void *arg)
{
    struct outbox *outbox = *(struct outbox **)arg;
    struct belonging *belonging = &outbox->object.belonging;
    weir_scope *scope = belonging->scope;
    struct task *self = task_self();
    bool ended;
    int r;

    outbox_lock(outbox);
    ended = outbox->state == OUTBOX_ENDED;
    if (!ended) outbox->task = weir_task_self();
    outbox_unlock(outbox);
    if (ended) return outbox->result; /* its scope supervises, in vain */
    scope_attend(belonging);
    r = live(outbox, self);
    if (r < 0 && r != WEIR_ECANCELED) {
        log_write(worker_self()->runtime, WEIR_LOG_ERROR, self, "outbox '%s' ends with %s",
                  outbox->object.name, weir_error_name(r));
    }
    scope_attend_end(belonging);
    if (end(outbox, r)) {
        scope_lock(scope);
        belonging_mail(belonging, BELONGING_RELEASE);
        scope_unlock(scope);
    }
    return r;
}

/* It is to end when the look is over that it is at. */
static void tell_locked(struct outbox *outbox)
{
    if (outbox->state == OUTBOX_OPEN) outbox->state = OUTBOX_TOLD;
    waiter_wake_all(&outbox->idle, 0);
    waiter_wake_all(&outbox->pauses, 0);
}

static void tell(struct outbox *outbox)
{
    outbox_lock(outbox);
    tell_locked(outbox);
    outbox_unlock(outbox);
}

/* ---- Belonging to a scope ---- */

static void outbox_release(struct worker *worker, struct belonging *belonging)
{
    struct outbox *outbox = container_of(belonging, struct outbox, object.belonging);

    (void)worker;
    drop_handle(outbox);
    /* The bit keeps others from posting mail; if some is under way, it comes back here. */
    if (atom_or(&belonging->mail_bits, BELONGING_RELEASE) != 0) return;
    meter_leave(&outbox->metered);
    (void)scope_forget(belonging);
    mem_free(outbox->memory);
    flow_free(&outbox->object);
}

static void outbox_signalled(struct worker *worker, struct belonging *belonging, uint8_t signals)
{
    (void)worker, (void)belonging, (void)signals; /* its task is told by its scope */
}

static void outbox_dismissed(struct worker *worker, struct belonging *belonging)
{
    (void)worker;
    tell(container_of(belonging, struct outbox, object.belonging));
}

static void outbox_describe(const struct belonging *belonging, char *text, size_t bytes)
{
    const struct outbox *outbox =
        (const struct outbox *)(const void *)((const char *)belonging -
                                              offsetof(struct outbox, object.belonging));
    (void)snprintf(text, bytes, "'%s', %llu rows relayed%s", outbox->object.name,
                   (unsigned long long)outbox->figures.relayed,
                   outbox->state == OUTBOX_ENDED ? ", ended" : "");
}

static bool outbox_boundary(struct belonging *belonging, unsigned row,
                            struct boundary *ret_boundary)
{
    struct outbox *outbox = container_of(belonging, struct outbox, object.belonging);
    struct lock *lock = &outbox->object.stable.lock;

    if (row > 0) return false;
    (void)snprintf(ret_boundary->name, sizeof ret_boundary->name, "%s", outbox->object.name);
    ret_boundary->lifetime = "until closed, or the scope ends";
    boundary_bound(ret_boundary, outbox->spec.batch_max, "rows at a time");
    ret_boundary->overflow = "rows stay in the outbox";
    (void)snprintf(ret_boundary->failure, sizeof ret_boundary->failure,
                   "tried again within %lld ms; refused rows go to on_refused",
                   (long long)outbox->spec.retry_ms_max);
    ret_boundary->meter = outbox->metered.meter;
    ret_boundary->wait_histogram = -1;
    ret_boundary->run_histogram = -1;
    if (!boundary_hold(lock, outbox->object.stable.shared)) return true;
    boundary_figure(ret_boundary, "relayed", outbox->figures.relayed);
    boundary_figure(ret_boundary, "duplicates", outbox->figures.duplicates);
    boundary_figure(ret_boundary, "refused", outbox->figures.refused);
    boundary_figure(ret_boundary, "failures", outbox->figures.failures);
    boundary_figure(ret_boundary, "full", outbox->figures.full);
    boundary_let_go(lock, outbox->object.stable.shared);
    return true;
}

static const struct belonging_kind outbox_kind = {
    .name = "outbox",
    .signalled = outbox_signalled,
    .release = outbox_release,
    .describe = outbox_describe,
    .boundary = outbox_boundary,
    .is_passive = belonging_is_passive,
    .dismissed = outbox_dismissed,
};

/* ---- What it measures ---- */

static void collect(struct metered *object, uint64_t *values)
{
    struct outbox *outbox = container_of(object, struct outbox, metered);

    outbox_lock(outbox);
    values[OUTBOX_RELAYED] = outbox->figures.relayed;
    values[OUTBOX_DUPLICATES] = outbox->figures.duplicates;
    values[OUTBOX_REFUSED] = outbox->figures.refused;
    values[OUTBOX_FAILURES] = outbox->figures.failures;
    values[OUTBOX_FULL] = outbox->figures.full;
    outbox_unlock(outbox);
}

static const struct meter_value outbox_values[] = {
    [OUTBOX_RELAYED] = {"weir_outbox_relayed_total", "Rows that became jobs.", METER_COUNTER},
    [OUTBOX_DUPLICATES] = {"weir_outbox_duplicates_total", "Rows that were jobs already.",
                           METER_COUNTER},
    [OUTBOX_REFUSED] = {"weir_outbox_refused_total", "Rows that were refused for what they say.",
                        METER_COUNTER},
    [OUTBOX_FAILURES] = {"weir_outbox_failures_total",
                         "Failures of reading, enqueueing or marking rows.", METER_COUNTER},
    [OUTBOX_FULL] = {"weir_outbox_full_total",
                     "Looks that left rows since a queue or the store was full.", METER_COUNTER},
};

const struct meter_kind outbox_meter_kind = {
    .labels = {"outbox"},
    .values = outbox_values,
    .value_count = sizeof outbox_values / sizeof outbox_values[0],
    .collect = collect,
};

/* ---- Opening ---- */

static int check_pool(const weir_outbox_spec *spec, size_t row_bytes)
{
    weir_pool_figures figures;

    if (!spec->pool) {
        return spec->pool_class ? refuse("outbox '%s': pool_class without a pool", spec->name) : 0;
    }
    if (row_bytes > (WEIR_POOL_DATA_BYTES_MAX - sizeof(struct outbox_call)) / spec->batch_max) {
        return refuse("outbox '%s': batch_max rows are more than a pool's job takes", spec->name);
    }
    return weir_pool_figures_of(spec->pool, spec->pool_class, &figures);
}

static int check_functions(const weir_outbox_spec *spec)
{
    const char *name = spec->name;

    if (!spec->store) return refuse("outbox '%s': store is not set", name);
    if (!spec->peek) return refuse("outbox '%s': peek is not set", name);
    if (!spec->done) return refuse("outbox '%s': done is not set", name);
    if (!spec->on_refused) return refuse("outbox '%s': on_refused is not set", name);
    return 0;
}

static int check_spec(const weir_outbox_spec *spec, size_t row_bytes)
{
    const char *name = spec->name;
    int r = flow_check_name("outbox", name);

    if (r < 0) return r;
    /* It is part of the keys: two names must never make the same one. */
    if (strlen(name) >= FLOW_NAME_BYTES) {
        return refuse("outbox '%s': name has more than %d bytes", name, FLOW_NAME_BYTES - 1);
    }
    if (strchr(name, '/')) return refuse("outbox '%s': name has a '/'", name);
    r = check_functions(spec);
    if (r < 0) return r;
    if (spec->batch_max < 1 || spec->batch_max > WEIR_OUTBOX_BATCH_MAX) {
        return refuse("outbox '%s': batch_max is %zu, must be 1 to %d", name, spec->batch_max,
                      WEIR_OUTBOX_BATCH_MAX);
    }
    if (spec->poll_ms < 1) return refuse("outbox '%s': poll_ms is not set", name);
    if (spec->retry_ms_max < WEIR_OUTBOX_RETRY_MS) {
        return refuse("outbox '%s': retry_ms_max is %lld, at least %d", name,
                      (long long)spec->retry_ms_max, WEIR_OUTBOX_RETRY_MS);
    }
    if (spec->window_ms < WEIR_OUTBOX_WINDOW_MS_MIN) {
        return refuse("outbox '%s': window_ms is %lld, at least %lld", name,
                      (long long)spec->window_ms, (long long)WEIR_OUTBOX_WINDOW_MS_MIN);
    }
    /* Else the store would refuse each row for it. */
    if (spec->window_ms > ENGINE_SPAN_MS_MAX) {
        return refuse("outbox '%s': window_ms is %lld, more than three years", name,
                      (long long)spec->window_ms);
    }
    return check_pool(spec, row_bytes);
}

static size_t rounded(size_t bytes)
{
    return (bytes + 15) & ~(size_t)15;
}

/* One allocation for all that a look needs. */
static int lay_out(struct outbox *outbox)
{
    const weir_outbox_spec *spec = &outbox->spec;
    size_t count = spec->batch_max;
    size_t call = rounded(sizeof *outbox->call + count * outbox->row_bytes);
    size_t refusal = rounded(sizeof *outbox->refusal + outbox->row_bytes);
    size_t jobs = rounded(count * sizeof *outbox->jobs);
    size_t enqueued = rounded(count * sizeof *outbox->enqueued);
    size_t ids = rounded(count * sizeof *outbox->ids);
    unsigned char *at =
        mem_alloc_zeroed(call + refusal + jobs + enqueued + ids + count * sizeof *outbox->fates);

    if (!at) return -ENOMEM;
    outbox->memory = at;
    outbox->call_bytes = call;
    outbox->call = (void *)at;
    outbox->refusal = (void *)(at += call);
    outbox->jobs = (void *)(at += refusal);
    outbox->enqueued = (void *)(at += jobs);
    outbox->ids = (void *)(at += enqueued);
    outbox->fates = (void *)(at + ids);
    outbox->call->peek = spec->peek;
    outbox->call->done = spec->done;
    outbox->call->keep_arg = spec->keep_arg;
    outbox->refusal->on_refused = spec->on_refused;
    outbox->refusal->keep_arg = spec->keep_arg;
    return 0;
}

static int outbox_new(const weir_outbox_spec *spec, size_t row_bytes, struct outbox **ret_outbox)
{
    struct outbox *outbox = flow_alloc(sizeof *outbox, spec->name);
    int r;

    if (!outbox) return -ENOMEM;
    outbox->spec = *spec;
    outbox->spec.name = outbox->object.name;
    outbox->row_bytes = row_bytes;
    list_init(&outbox->idle);
    list_init(&outbox->pauses);
    list_init(&outbox->drainers);
    list_init(&outbox->finishers);
    r = lay_out(outbox);
    if (r < 0) {
        flow_free(&outbox->object);
        return r;
    }
    *ret_outbox = outbox;
    return 0;
}

int weir_outbox_open_sized(weir_scope *scope, size_t spec_bytes, size_t row_bytes,
                           const weir_outbox_spec *given, weir_outbox **ret_outbox)
{
    struct worker *worker = worker_self();
    weir_outbox_spec spec;
    weir_task_spec task;
    struct outbox *outbox;
    void *handle;
    int r;

    if (!task_self()) return refuse_no_task("weir_outbox_open");
    scope_check(scope, "weir_outbox_open");
    spec_copy(&spec, sizeof spec, given, spec_bytes);
    r = check_spec(&spec, row_bytes);
    if (r < 0) return r;
    r = outbox_new(&spec, row_bytes, &outbox);
    if (r < 0) return r;
    r = handle_open(HANDLE_OUTBOX, outbox, &outbox->handle);
    if (r < 0) goto fail_free;
    r = scope_own(scope, worker, &outbox->object.belonging, &outbox_kind);
    if (r < 0) goto fail_handle;
    meter_enter(&outbox->metered, meter_get(&outbox_meter_kind, outbox->object.name, NULL));
    handle = outbox->handle;
    task = (weir_task_spec){.fn = outbox_main,
                            .arg = &outbox,
                            .arg_bytes = sizeof outbox,
                            .name = outbox->object.name,
                            .stack_bytes = spec.stack_bytes};
    r = weir_task_spawn(scope, &task, NULL);
    if (r < 0) {
        outbox_release(worker, &outbox->object.belonging);
    } else {
        *ret_outbox = handle;
    }
    return r;

fail_handle:
    handle_close(outbox->handle);
fail_free:
    mem_free(outbox->memory);
    flow_free(&outbox->object);
    return r;
}

/* ---- Calls of programs ---- */

static struct outbox *look_up(const weir_outbox *handle, const char *call)
{
    struct outbox *outbox = flow_look_up(handle, HANDLE_OUTBOX, "outbox", call);
    flow_check_worker(call);
    return outbox;
}

/* The lock is held. */
static void ring(struct outbox *outbox)
{
    outbox->rung = true;
    waiter_wake_all(&outbox->idle, 0);
}

void weir_outbox_ring(weir_outbox *handle)
{
    struct outbox *outbox = look_up(handle, "weir_outbox_ring");

    sanitize_release(outbox);
    outbox_lock(outbox);
    ring(outbox);
    outbox_unlock(outbox);
    worker_touched(worker_self());
}

static const struct wait_kind wait_drained = {
    .name = "outbox drained",
    .abort = waiter_abort,
    .describe = waiter_describe,
    .what = WAIT_FOR_END,
    .ends = ENDS_OUTSIDE,
    .facts = waiter_facts,
};

int weir_outbox_drain(weir_outbox *handle)
{
    struct outbox *outbox = look_up(handle, "weir_outbox_drain");
    struct task *self = task_self();
    struct drain drain;
    int r;

    if (!self) return refuse_no_task("weir_outbox_drain");
    r = task_enter(self, ENTER_IO);
    if (r < 0) return r;
    sanitize_release(outbox);
    outbox_lock(outbox);
    if (!flow_names(handle, HANDLE_OUTBOX, outbox)) { /* closed while this task yielded */
        outbox_unlock(outbox);
        return WEIR_ECLOSED;
    }
    if (outbox->state != OUTBOX_OPEN) {
        r = outbox->state == OUTBOX_ENDED && outbox->result < 0 ? outbox->result : WEIR_ECLOSED;
        outbox_unlock(outbox);
        return r;
    }
    waiter_init(&drain.waiter, self, &outbox->object, NULL, 0);
    drain.look = outbox->look_count + 1;
    list_add_tail(&outbox->drainers, &drain.waiter.node);
    ring(outbox);
    outbox_unlock(outbox);
    r = waiter_park(self, &drain.waiter, &wait_drained);
    sanitize_acquire(outbox);
    return r;
}

void weir_outbox_figures_of(weir_outbox *handle, weir_outbox_figures *ret_figures)
{
    struct outbox *outbox = look_up(handle, "weir_outbox_figures_of");

    outbox_lock(outbox);
    *ret_figures = outbox->figures;
    outbox_unlock(outbox);
}

/* No interruption ends it: the relay's memory is in use. */
static const struct wait_kind wait_end = {
    .name = "outbox's end",
    .describe = waiter_describe,
    .what = WAIT_FOR_END,
    .ends = ENDS_OUTSIDE,
    .facts = waiter_facts,
};

int weir_outbox_close(weir_outbox *take_outbox)
{
    struct task *self = task_self();
    struct waiter waiter;
    struct outbox *outbox;
    weir_scope *scope;
    bool is_own;
    int result = 0;

    if (!take_outbox) return 0;
    if (!self) return refuse_no_task("weir_outbox_close");
    outbox = look_up(take_outbox, "weir_outbox_close");
    outbox_lock(outbox);
    is_own = outbox->task.id == weir_task_self().id;
    if (is_own || outbox->given_up || !flow_names(take_outbox, HANDLE_OUTBOX, outbox)) {
        outbox_unlock(outbox);
        if (!is_own) return WEIR_ECLOSED; /* by another, or with its scope, at this moment */
        return refuse("outbox '%s': closed by its own task", outbox->object.name);
    }
    scope = outbox->object.belonging.scope;
    tell_locked(outbox);
    outbox->given_up = true;
    if (outbox->state != OUTBOX_ENDED) {
        /* The handle goes with its end: until then others are told that it is closed. */
        waiter_init(&waiter, self, &outbox->object, &result, 0);
        list_add_tail(&outbox->finishers, &waiter.node);
        outbox_unlock(outbox);
        (void)waiter_park(self, &waiter, &wait_end);
        sanitize_acquire(outbox);
        return result == WEIR_ECANCELED ? 0 : result;
    }
    result = outbox->result;
    drop_handle(outbox);
    outbox_unlock(outbox);
    sanitize_acquire(outbox);
    /* A scope that supervises may be about to start its task again. */
    if (result < 0 && scope->on_failure == WEIR_SUPERVISE) return result;
    scope_lock(scope);
    belonging_mail(&outbox->object.belonging, BELONGING_RELEASE);
    scope_unlock(scope);
    return result == WEIR_ECANCELED ? 0 : result;
}

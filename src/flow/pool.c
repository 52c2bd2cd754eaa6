/* pool.c - jobs for threads: handing them over, waiting, cancelling; a pool's end. */
#include "flow/pool.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "flow/meters.h"
#include "rt/mem.h"
#include "rt/task.h"

static struct pool *look_up(const weir_pool *handle, const char *call)
{
    return flow_look_up(handle, HANDLE_POOL, "pool", call);
}

/* ---- The end ---- */

static void enter_meters(struct pool *pool)
{
    meter_enter(&pool->metered, meter_get(&pool_meter_kind, pool->name, NULL));
    for (size_t i = 0; i < pool->class_count; i++) {
        struct pool_class *class = &pool->classes[i];
        struct meter *meter = meter_get(&pool_class_meter_kind, pool->name, class->spec.name);
        meter_enter(&class->metered, meter);
    }
}

static void leave_meters(struct pool *pool)
{
    meter_leave(&pool->metered);
    for (size_t i = 0; i < pool->class_count; i++) meter_leave(&pool->classes[i].metered);
}

/* No thread is left, or those that are were given up. On the home worker. */
static void let_go(struct pool *pool)
{
    bool over;

    pool->settled = true;
    /* The bit keeps others from posting mail; if some is under way, it comes back here. */
    if (atom_or(&pool->belonging.mail_bits, BELONGING_RELEASE) != 0) return;
    leave_meters(pool);
    (void)scope_forget(&pool->belonging);
    lock_acquire(&pool->lock);
    pool->gone = true;
    pool_join(pool);
    over = pool_is_over(pool);
    lock_release(&pool->lock);
    if (over) pool_free(pool);
}

/* Queued jobs are told that they never happen. The lock is held; on a worker. */
static void discard_queued(struct pool *pool)
{
    for (size_t i = 0; i < pool->class_count; i++) {
        struct pool_class *class = &pool->classes[i];
        struct list *lists[2] = {&class->waiting, &class->queue};
        for (int k = 0; k < 2; k++) {
            struct list *node;
            while ((node = list_first(lists[k]))) {
                struct pool_job *job = container_of(node, struct pool_job, node);
                pool_remove(pool, job);
                class->removed++;
                job->result = WEIR_ECLOSED;
                job->begun_ns = 0;
                job->ended_ns = 0;
                if (pool_give_back(pool, job)) mail_post(job->desk->worker, &job->desk->mail);
            }
        }
    }
}

static void give_up(struct pool *pool)
{
    int stuck;

    lock_acquire(&pool->lock);
    stuck = pool->thread_count;
    pool->given_up = stuck > 0;
    if (stuck > 0) discard_queued(pool); /* nobody may ever do them */
    lock_release(&pool->lock);
    if (stuck == 0) return; /* the last has just left: its mail is under way */
    log_write(pool->runtime, WEIR_LOG_ERROR, NULL,
              "pool '%s' ends while %d of its threads are stuck in jobs; they are left alone",
              pool->name, stuck);
    let_go(pool);
}

static void close_time_over(struct worker *worker, struct timer *timer)
{
    (void)worker;
    give_up(container_of(timer, struct pool, close_timer));
}

/* The last thread has left. */
static void deliver_left(struct worker *worker, struct mail *mail)
{
    struct pool *pool = container_of(mail, struct pool, mail);
    timer_disarm(worker, &pool->close_timer);
    let_go(pool);
}

static void begin_close(struct worker *worker, struct pool *pool)
{
    bool over;

    pool->released = true;
    lock_acquire(&pool->lock);
    pool->closing = true;
    if (pool->on_close == WEIR_DISCARD) discard_queued(pool);
    pool_want_threads(pool);
    if (pool->thread_count == 0) discard_queued(pool); /* nobody can do them */
    pool_wake_all(pool);
    over = pool->thread_count == 0;
    lock_release(&pool->lock);
    if (over) {
        let_go(pool);
    } else {
        timer_arm(worker, &pool->close_timer, time_after_ms(worker->now_ns, pool->close_ms));
    }
}

static void pool_release(struct worker *worker, struct belonging *belonging)
{
    struct pool *pool = container_of(belonging, struct pool, belonging);

    if (pool->released) {
        /* Mail of the scope that was late: if everything else is over, this was awaited. */
        if (pool->settled) let_go(pool);
        return;
    }
    if (pool->handle) handle_close(pool->handle);
    pool->handle = NULL;
    begin_close(worker, pool);
}

static void pool_signalled(struct worker *worker, struct belonging *belonging, uint8_t signals)
{
    (void)worker, (void)belonging, (void)signals; /* callers are told by their own scopes */
}

static void pool_describe(const struct belonging *belonging, char *text, size_t bytes)
{
    const struct pool *pool = (const struct pool *)(const void *)((const char *)belonging -
                                                                  offsetof(struct pool, belonging));
    (void)snprintf(text, bytes, "'%s', %d of %d threads, %zu queued, %d run, %zu orphans",
                   pool->name, pool->thread_count, pool->threads_max, atom_load(&pool->queued),
                   pool->busy, pool->orphan_count);
}

/* The first row is the pool, the others are its classes. */
static void class_boundary(struct pool *pool, const struct pool_class *class, struct boundary *ret)
{
    ret->kind = "pool class";
    (void)snprintf(ret->name, sizeof ret->name, "%s/%s", pool->name, class->spec.name);
    (void)snprintf(ret->bound, sizeof ret->bound, "%zu queued, %d running, weight %u",
                   class->spec.queue_max, class->spec.running_max, class->spec.weight);
    (void)snprintf(ret->failure, sizeof ret->failure,
                   "result to the caller; cancelled: removed, or told and awaited %lld ms",
                   (long long)pool->cancel_ms);
    ret->latency_target_ms = class->spec.latency_ms;
    ret->meter = class->metered.meter;
    ret->wait_histogram = POOL_WAIT;
    ret->run_histogram = POOL_RUN;
    if (!boundary_hold(&pool->lock, true)) return;
    boundary_figure(ret, "depth", class->queued);
    boundary_figure(ret, "depth_max", class->queued_max);
    boundary_figure(ret, "running", class->running);
    boundary_figure(ret, "finished", class->finished);
    boundary_figure(ret, "rejected", class->rejected);
    boundary_figure(ret, "removed", class->removed);
    boundary_figure(ret, "orphaned", class->orphaned);
    boundary_let_go(&pool->lock, true);
}

static bool pool_boundary(struct belonging *belonging, unsigned row, struct boundary *ret_boundary)
{
    struct pool *pool = container_of(belonging, struct pool, belonging);

    if (row > pool->class_count) return false;
    ret_boundary->lifetime = "until closed, or the scope ends";
    ret_boundary->overflow = boundary_overflow((int)pool->overflow);
    if (row > 0) {
        class_boundary(pool, &pool->classes[row - 1], ret_boundary);
        return true;
    }
    (void)snprintf(ret_boundary->name, sizeof ret_boundary->name, "%s", pool->name);
    (void)snprintf(ret_boundary->bound, sizeof ret_boundary->bound,
                   "%d to %d threads (at most %d), %zu classes", pool->threads_min,
                   pool->threads_max, pool->threads_limit, pool->class_count);
    (void)snprintf(ret_boundary->failure, sizeof ret_boundary->failure,
                   "%s at close; threads that are stuck after %lld ms are reported",
                   pool->on_close == WEIR_DRAIN ? "drain" : "discard", (long long)pool->close_ms);
    if (!boundary_hold(&pool->lock, true)) return true;
    boundary_figure(ret_boundary, "threads", (uint64_t)pool->thread_count);
    boundary_figure(ret_boundary, "running", (uint64_t)pool->busy);
    boundary_figure(ret_boundary, "depth", atom_load(&pool->queued));
    boundary_figure(ret_boundary, "orphans", pool->orphan_count);
    boundary_let_go(&pool->lock, true);
    return true;
}

static const struct belonging_kind pool_kind = {
    .name = "pool",
    .signalled = pool_signalled,
    .release = pool_release,
    .describe = pool_describe,
    .boundary = pool_boundary,
    .is_passive = belonging_is_passive, /* who waits for a job says so itself */
};

/* ---- Opening ---- */

static int check_classes(const weir_pool_spec *spec)
{
    if (spec->class_count == 0 || !spec->classes) {
        return refuse("pool '%s': classes is not set", spec->name);
    }
    if (spec->class_count > WEIR_POOL_CLASSES_MAX) {
        return refuse("pool '%s': %zu classes, at most %d", spec->name, spec->class_count,
                      WEIR_POOL_CLASSES_MAX);
    }
    for (size_t i = 0; i < spec->class_count; i++) {
        const weir_pool_class *class = &spec->classes[i];
        if (!class->name || !*class->name) {
            return refuse("pool '%s': name of class %zu is not set", spec->name, i);
        }
        if (class->weight == 0 || class->weight > 1000) {
            return refuse("pool '%s': weight of class '%s' is %u, must be 1 to 1000", spec->name,
                          class->name, class->weight);
        }
        if (class->queue_max == 0) {
            return refuse("pool '%s': queue_max of class '%s' is not set", spec->name, class->name);
        }
        if (class->running_max < 0) {
            return refuse("pool '%s': running_max of class '%s' is negative", spec->name,
                          class->name);
        }
        if (class->latency_ms < 0) {
            return refuse("pool '%s': latency_ms of class '%s' is negative", spec->name,
                          class->name);
        }
    }
    return 0;
}

static int check_spec(const weir_pool_spec *spec)
{
    int r = flow_check_name("pool", spec->name);
    if (r < 0) return r;
    if (spec->threads_max < 1 || spec->threads_max > WEIR_POOL_THREADS_MAX) {
        return refuse("pool '%s': threads_max is %d, must be 1 to %d", spec->name,
                      spec->threads_max, WEIR_POOL_THREADS_MAX);
    }
    if (spec->threads_min < 0 || spec->threads_min > spec->threads_max) {
        return refuse("pool '%s': threads_min is not within 0 and threads_max", spec->name);
    }
    if (spec->threads_limit &&
        (spec->threads_limit < spec->threads_max || spec->threads_limit > WEIR_POOL_THREADS_MAX)) {
        return refuse("pool '%s': threads_limit is less than threads_max, or more than %d",
                      spec->name, WEIR_POOL_THREADS_MAX);
    }
    if (spec->overflow == WEIR_OVERFLOW_UNSET) {
        return refuse("pool '%s': overflow is not set", spec->name);
    }
    if (spec->overflow != WEIR_WAIT && spec->overflow != WEIR_REJECT) {
        return refuse("pool '%s': overflow must be WEIR_WAIT or WEIR_REJECT", spec->name);
    }
    if (spec->on_close != WEIR_DRAIN && spec->on_close != WEIR_DISCARD) {
        return refuse("pool '%s': on_close is not set", spec->name);
    }
    if (spec->idle_ms < 0 || spec->cancel_ms < 0 || spec->close_ms < 0) {
        return refuse("pool '%s': a time is negative", spec->name);
    }
    return check_classes(spec);
}

static void primitives_init(struct pool *pool)
{
    lock_init_spinning(&pool->lock, pool->spin);
    bell_init(&pool->work, pool->kernel);
}

static void classes_init(struct pool *pool, const weir_pool_spec *spec)
{
    pool->class_count = spec->class_count;
    for (size_t i = 0; i < spec->class_count; i++) {
        struct pool_class *class = &pool->classes[i];
        class->pool = pool;
        class->spec = spec->classes[i];
        if (class->spec.running_max == 0) class->spec.running_max = pool->threads_limit;
        list_init(&class->queue);
        list_init(&class->waiting);
    }
}

/* Without what it needs. Lines of it belong to one core each, so it begins with one. */
static struct pool *pool_alloc(size_t threads, size_t desks)
{
    size_t desk_bytes = desks * sizeof(struct pool_desk);
    size_t thread_bytes = threads * sizeof(struct pool_thread);
    char *memory =
        mem_alloc_zeroed(sizeof(struct pool) + desk_bytes + thread_bytes + POOL_CACHE_LINE - 1);
    struct pool *pool;

    if (!memory) return NULL;
    pool = (struct pool *)(void *)(((uintptr_t)memory + POOL_CACHE_LINE - 1) &
                                   ~(uintptr_t)(POOL_CACHE_LINE - 1));
    pool->memory = memory;
    pool->desks = (struct pool_desk *)(void *)(pool + 1);
    pool->threads = (struct pool_thread *)(void *)(pool->desks + desks);
    return pool;
}

static struct pool *pool_new(const weir_pool_spec *spec, struct worker *worker)
{
    int limit = spec->threads_limit ? spec->threads_limit : spec->threads_max;
    weir_runtime *runtime = worker->runtime;
    struct pool *pool = pool_alloc((size_t)limit, runtime->worker_count);

    if (!pool) return NULL;
    flow_name(pool->name, spec->name);
    pool->kernel = worker->kernel;
    pool->runtime = runtime;
    pool->mail.deliver = deliver_left;
    timer_init(&pool->close_timer, close_time_over);
    pool->spin = runtime->spin && (runtime->cores > 1 || runtime->kernel->choose);
    pool->threads_limit = limit;
    primitives_init(pool);
    classes_init(pool, spec);
    pool->overflow = spec->overflow;
    pool->on_close = spec->on_close;
    pool->threads_min = spec->threads_min;
    pool->threads_max = spec->threads_max;
    pool->idle_ms = spec->idle_ms ? spec->idle_ms : WEIR_POOL_IDLE_MS_DEFAULT;
    pool->cancel_ms = spec->cancel_ms;
    pool->close_ms = spec->close_ms ? spec->close_ms : WEIR_POOL_CLOSE_MS_DEFAULT;
    pool->desk_count = runtime->worker_count;
    for (unsigned i = 0; i < pool->desk_count; i++) {
        pool_desk_init(&pool->desks[i], pool, &runtime->workers[i]);
    }
    mem_hold();
    return pool;
}

int weir_pool_open_sized(weir_scope *scope, size_t spec_bytes, const weir_pool_spec *given,
                         weir_pool **ret_pool)
{
    struct worker *worker = worker_self();
    weir_pool_spec spec;
    struct pool *pool;
    int r;

    if (!worker) return refuse_no_task("weir_pool_open");
    scope_check(scope, "weir_pool_open");
    spec_copy(&spec, sizeof spec, given, spec_bytes);
    r = check_spec(&spec);
    if (r < 0) return r;
    pool = pool_new(&spec, worker);
    if (!pool) return -ENOMEM;
    r = handle_open(HANDLE_POOL, pool, &pool->handle);
    if (r < 0) goto fail_free;
    r = scope_own(scope, worker, &pool->belonging, &pool_kind);
    if (r < 0) goto fail_handle;
    enter_meters(pool);
    *ret_pool = pool->handle;
    return 0;

fail_handle:
    handle_close(pool->handle);
fail_free:
    pool_free(pool);
    return r;
}

void weir_pool_close(weir_pool *take_pool)
{
    struct pool *pool;
    weir_scope *scope;

    if (!take_pool) return;
    pool = look_up(take_pool, "weir_pool_close");
    flow_check_worker("weir_pool_close");
    handle_close(take_pool);
    pool->handle = NULL;
    scope = pool->belonging.scope;
    scope_lock(scope);
    belonging_mail(&pool->belonging, BELONGING_RELEASE);
    scope_unlock(scope);
}

/* ---- Changing and looking ---- */

int weir_pool_resize(weir_pool *handle, int threads_max)
{
    struct pool *pool = look_up(handle, "weir_pool_resize");

    if (threads_max < 1 || threads_max < pool->threads_min || threads_max > pool->threads_limit) {
        return refuse("pool '%s': threads_max %d is not within threads_min, %d, and threads_limit, "
                      "%d",
                      pool->name, threads_max, pool->threads_min, pool->threads_limit);
    }
    lock_acquire(&pool->lock);
    pool->threads_max = threads_max;
    pool_want_threads(pool);
    pool_wake_all(pool); /* those that are too many end */
    lock_release(&pool->lock);
    return 0;
}

int weir_pool_figures_of(weir_pool *handle, unsigned class_index, weir_pool_figures *ret_figures)
{
    struct pool *pool = look_up(handle, "weir_pool_figures_of");
    const struct pool_class *class;

    if (class_index >= pool->class_count) {
        return refuse("pool '%s': there is no class %u", pool->name, class_index);
    }
    lock_acquire(&pool->lock);
    class = &pool->classes[class_index];
    *ret_figures = (weir_pool_figures){
        .queued = class->queued,
        .queued_max = class->queued_max,
        .running = class->running,
        .finished = class->finished,
        .rejected = class->rejected,
        .removed = class->removed,
        .orphaned = class->orphaned,
        .threads = pool->thread_count,
        .orphans = pool->orphan_count,
    };
    lock_release(&pool->lock);
    return 0;
}

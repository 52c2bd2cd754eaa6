/* process_pool.c - pools of helper processes: who gets which helper, when one is started,
 * retired or given up, and when the pool itself is. */
#include "io/process_pool.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <weir/task.h>

#include "rt/mem.h"

/* ---- The end of the pool: settled whenever something has changed ---- */

static bool is_empty(const weir_process_pool *pool)
{
    return pool->callers == 0 && pool->helper_count == 0;
}

/* Have its worker look whether its memory can go. The lock is held. */
static void post_look(weir_process_pool *pool)
{
    if (pool->mail_posted) return;
    pool->mail_posted = true;
    mail_post(pool->belonging.worker, &pool->mail);
}

static void pool_free(weir_process_pool *pool)
{
    if (pool->head.handle) io_head_deinit(&pool->head);
    lock_deinit(&pool->lock);
    mem_free(pool->strings);
    mem_free(pool);
}

/* On its worker. As in idle.c: the bit keeps others from posting; mail that is under way
 * comes back here through `release`. */
static void pool_let_go(struct worker *worker, weir_process_pool *pool)
{
    bool over;

    pool_lock(pool);
    over = pool->dismissed && !pool->mail_posted && is_empty(pool);
    pool_unlock(pool);
    if (!over || atom_or(&pool->belonging.mail_bits, BELONGING_RELEASE) != 0) return;
    timer_disarm(worker, &pool->idle_timer);
    (void)scope_forget(&pool->belonging);
    pool_free(pool);
}

static void deliver_look(struct worker *worker, struct mail *mail)
{
    weir_process_pool *pool = container_of(mail, weir_process_pool, mail);

    pool_lock(pool);
    pool->mail_posted = false;
    pool_unlock(pool);
    pool_let_go(worker, pool);
}

static bool takes_jobs(const weir_process_pool *pool)
{
    return pool->state == POOL_OPEN || pool->state == POOL_DRAINING;
}

/* Give what is free to those who wait longest. The lock is held. */
static void grant(weir_process_pool *pool)
{
    struct list *first;

    while ((first = list_first(&pool->queue))) {
        struct pool_wait *wait = container_of(first, struct pool_wait, node);
        struct list *idle = NULL;

        if (!takes_jobs(pool)) {
            wait->error = WEIR_ECLOSED;
        } else if ((idle = list_pop(&pool->idle))) {
            wait->helper = container_of(idle, struct helper, idle);
            wait->helper->state = HELPER_BUSY;
            wait->helper->has_caller = true;
        } else if (pool->helper_count < pool->spec.helpers_max) {
            pool->helper_count++;
        } else {
            return;
        }
        list_remove(&wait->node);
        wait->waiting = false;
        pool->stats.queued--;
        task_wake(wait->task, 0);
    }
}

/* The lock is held. */
static void doom_locked(struct helper *helper, bool at_once)
{
    helper->state = HELPER_DOOMED;
    if (helper->process) process_dismiss(helper->process, at_once);
}

/* Whatever has changed: those who wait are served first, then a pool that is not open any
 * more ends the helpers that nobody comes for. The lock is held. */
static void settle(weir_process_pool *pool)
{
    struct list *node;

    grant(pool);
    if (pool->state == POOL_OPEN) return;
    while (pool->callers == 0 && (node = list_pop(&pool->idle))) {
        doom_locked(container_of(node, struct helper, idle), false);
    }
    if (!is_empty(pool)) return;
    if (pool->closer) {
        struct task *closer = pool->closer;
        pool->closer = NULL;
        task_wake(closer, 0);
    }
    if (pool->dismissed) post_look(pool);
}

/* Nothing is finished any more. The lock is held. */
static void discard(weir_process_pool *pool)
{
    pool->state = POOL_DISCARDING;
    list_for_each(node, &pool->helpers) {
        struct helper *helper = container_of(node, struct helper, node);
        if (helper->state == HELPER_BUSY || helper->state == HELPER_STARTING) {
            doom_locked(helper, true);
        }
    }
    settle(pool);
}

/* ---- Faults ---- */

/* The lock is held. */
static void pool_fail(weir_process_pool *pool, const char *what)
{
    (void)snprintf(pool->why, sizeof pool->why, "%d helpers failed within %lld ms; the last: %s",
                   pool->failure_count + 1, (long long)pool->spec.window_ms, what);
    pool->stats.failed = true;
    log_write(pool->head.runtime, WEIR_LOG_ERROR, NULL, "process pool '%s' has failed: %s",
              pool->name, pool->why);
    if (pool->state == POOL_OPEN) pool->state = POOL_FAILED;
    if (pool->state == POOL_DRAINING) pool->state = POOL_DISCARDING;
    settle(pool);
}

/* The lock is held. */
static void blame(weir_process_pool *pool, enum helper_fault fault, const char *what)
{
    const struct kernel *kernel = pool->head.runtime->kernel;
    int64_t now_ns = kernel->now_ns(kernel);
    int max = pool->spec.max_restarts;

    pool->stats.helpers_crashed += fault == FAULT_CRASH;
    pool->stats.helpers_overtime += fault == FAULT_OVERTIME;
    pool->stats.helpers_nonsense += fault == FAULT_NONSENSE;
    log_write(pool->head.runtime, WEIR_LOG_WARNING, NULL, "process pool '%s': %s", pool->name,
              what);
    if (!takes_jobs(pool)) return;
    /* Those that are too old leave the ring. */
    while (pool->failure_count > 0 &&
           time_after_ms(pool->failures_ns[pool->failure_head], pool->spec.window_ms) < now_ns) {
        pool->failure_head = (pool->failure_head + 1) % max;
        pool->failure_count--;
    }
    if (pool->failure_count == max) {
        pool_fail(pool, what);
        return;
    }
    pool->failures_ns[(pool->failure_head + pool->failure_count++) % max] = now_ns;
}

void pool_blame(weir_process_pool *pool, enum helper_fault fault, const char *what)
{
    pool_lock(pool);
    blame(pool, fault, what);
    pool_unlock(pool);
}

/* ---- Helpers ---- */

/* A helper that is to be started, or the permission to do so is given back. */
static int new_or_permit_back(weir_process_pool *pool, struct helper **ret_helper)
{
    struct helper *helper = mem_alloc_zeroed(sizeof *helper);

    pool_lock(pool);
    if (helper) {
        sanitize_forget(helper);
        helper->pool = pool;
        helper->state = HELPER_STARTING;
        helper->has_caller = true;
        list_init(&helper->idle);
        list_add_tail(&pool->helpers, &helper->node);
    } else {
        pool->helper_count--;
        settle(pool);
    }
    pool_unlock(pool);
    *ret_helper = helper;
    return helper ? 0 : -ENOMEM;
}

/* It is in no list any more, and nobody has it. Not under the lock. */
static void helper_free(struct helper *helper)
{
    sanitize_acquire(helper);
    weir_conn_close(helper->conn);
    mem_free(helper);
}

/* The permit to have it is free again. The lock is held. */
static void helper_gone(weir_process_pool *pool, struct helper *helper)
{
    helper->ended = true;
    list_remove(&helper->node);
    pool->helper_count--;
    settle(pool);
}

void pool_helper_ended(weir_process *process, const struct process_result *result, void *arg)
{
    struct helper *helper = arg;
    weir_process_pool *pool = helper->pool;
    struct worker *worker = worker_self();
    bool unused;

    pool_lock(pool);
    if (helper->state == HELPER_IDLE) {
        list_remove(&helper->idle);
        helper->state = HELPER_DOOMED;
        if (!result->status.ended_by_us) {
            char what[160], how[96];
            process_describe_end(result, how, sizeof how);
            (void)snprintf(what, sizeof what, "helper (pid %d) ended when idle, with %s",
                           (int)result->pid, how);
            blame(pool, FAULT_CRASH, what);
        }
    }
    helper->process = NULL;
    process_dismiss(process, true); /* its memory is not needed any more */
    helper->result = *result;
    if (helper->awaiting) {
        task_wake(helper->awaiting, 0);
        helper->awaiting = NULL;
    }
    unused = !helper->has_caller;
    helper_gone(pool, helper); /* after it the pool may be gone */
    pool_unlock(pool);
    if (!unused) return;
    callback_begin(worker);
    helper_free(helper);
    sanitize_release(&worker->events);
}

void pool_doom(struct helper *helper, bool at_once)
{
    weir_process_pool *pool = helper->pool;

    pool_lock(pool);
    doom_locked(helper, at_once);
    /* One that was never started has no end that could be told. */
    if (!helper->process && !helper->ended) helper_gone(pool, helper);
    pool_unlock(pool);
}

/* The caller lets go of a doomed helper: its memory goes with its process. */
static void drop(struct helper *helper)
{
    weir_process_pool *pool = helper->pool;
    bool ended;

    sanitize_release(helper);
    pool_lock(pool);
    helper->has_caller = false;
    ended = helper->ended;
    pool_unlock(pool);
    if (ended) helper_free(helper);
}

/* The caller is done with a helper that works. */
static void give_back(struct helper *helper)
{
    weir_process_pool *pool = helper->pool;
    const weir_process_pool_spec *spec = &pool->spec;
    const struct kernel *kernel = pool->head.runtime->kernel;
    bool ended;

    sanitize_release(helper); /* its next caller goes on with its connection */
    pool_lock(pool);
    helper->has_caller = false;
    ended = helper->ended;
    if (ended) {
        blame(pool, FAULT_CRASH, "helper ended after its answer");
    } else if (helper->state == HELPER_DOOMED) {
        /* by close, while the answer came */
    } else if (spec->jobs_per_helper > 0 && helper->jobs >= spec->jobs_per_helper) {
        pool->stats.helpers_retired++;
        doom_locked(helper, false);
    } else {
        helper->state = HELPER_IDLE;
        helper->idle_since_ns = kernel->now_ns(kernel);
        list_add_head(&pool->idle, &helper->idle);
        settle(pool);
    }
    pool_unlock(pool);
    if (ended) helper_free(helper);
}

static bool end_abort(struct task *task, void *object)
{
    struct helper *helper = object;
    bool waiting;

    pool_lock(helper->pool);
    waiting = helper->awaiting == task;
    if (waiting) helper->awaiting = NULL;
    pool_unlock(helper->pool);
    return waiting;
}

static void end_describe(const void *object, char *text, size_t bytes)
{
    const struct helper *helper = object;
    (void)snprintf(text, bytes, "pid %d", (int)helper->pid);
}

static const struct wait_kind wait_end = {
    .name = "end of a helper",
    .abort = end_abort,
    .describe = end_describe,
    .what = WAIT_FOR_PROCESS,
};

int pool_await_end(struct helper *helper, struct task *self)
{
    bool ended;
    int r = task_interruption(self, false);

    if (r < 0) return r;
    pool_lock(helper->pool);
    ended = helper->ended;
    if (!ended) helper->awaiting = self;
    pool_unlock(helper->pool);
    return ended ? 0 : task_park(self, &wait_end, helper);
}

/* End those that have been idle for long, on the pool's worker. */
static void retire_idle(struct worker *worker, struct timer *timer)
{
    weir_process_pool *pool = container_of(timer, weir_process_pool, idle_timer);
    int64_t idle_ms = pool->spec.idle_ms;
    int64_t now_ns = worker->kernel->now_ns(worker->kernel);
    int spare = -pool->spec.helpers_min;

    pool_lock(pool);
    list_for_each(node, &pool->helpers) { /* one that is dying already is none to keep */
        spare += container_of(node, struct helper, node)->state != HELPER_DOOMED;
    }
    for (; spare > 0; spare--) {
        struct list *oldest = list_last(&pool->idle);
        struct helper *helper;

        if (!oldest) break;
        helper = container_of(oldest, struct helper, idle);
        if (time_after_ms(helper->idle_since_ns, idle_ms) > now_ns) break;
        list_remove(oldest);
        pool->stats.helpers_retired++;
        doom_locked(helper, false);
    }
    pool_unlock(pool);
    timer_arm(worker, timer, time_after_ms(now_ns, idle_ms / 2 + 1));
}

/* ---- Getting one ---- */

static bool queue_abort(struct task *task, void *object)
{
    struct pool_wait *wait = object;
    bool waiting;

    (void)task;
    pool_lock(wait->pool);
    waiting = wait->waiting;
    if (waiting) {
        list_remove(&wait->node);
        wait->pool->stats.queued--;
    }
    pool_unlock(wait->pool);
    return waiting;
}

static void queue_describe(const void *object, char *text, size_t bytes)
{
    const struct pool_wait *wait = object;
    (void)snprintf(text, bytes, "'%s', for one of %d helpers", wait->pool->name,
                   wait->pool->spec.helpers_max);
}

static const struct wait_kind wait_helper = {
    .name = "process pool",
    .abort = queue_abort,
    .describe = queue_describe,
    .what = WAIT_FOR_PROCESS,
};

/* A caller that is cancelled itself is told so, also if it met the closed pool first: its
 * mail may still be under way. */
static int refuse_closed(const weir_process_pool *pool, const struct task *self)
{
    int r;

    task_refresh_self();
    r = task_interruption(self, false);
    if (r < 0) return r;
    if (pool->stats.failed) {
        return refuse_as(WEIR_ECLOSED, "process pool '%s' has failed: %s", pool->name, pool->why);
    }
    return refuse_as(WEIR_ECLOSED, "process pool '%s' is closed", pool->name);
}

/* 0: there is a helper, or permission to start one; 1: wait. The lock is held. Not
 * inlined: see process.c. */
static __attribute__((noinline)) int take_or_wait(weir_process_pool *pool, struct pool_wait *wait)
{
    bool rejects = pool->spec.overflow == WEIR_REJECT;

    if (rejects && list_empty(&pool->idle) && pool->helper_count >= pool->spec.helpers_max &&
        pool->stats.queued >= pool->spec.queue_max) {
        pool->stats.jobs_rejected++;
        return WEIR_EOVERLOAD;
    }
    wait->waiting = true;
    list_add_tail(&pool->queue, &wait->node);
    pool->stats.queued++;
    return 1;
}

/* A helper for the caller: an idle one, or one that it has to start. */
static int acquire(weir_process_pool *pool, struct task *self, struct helper **ret_helper)
{
    struct pool_wait wait = {.pool = pool, .task = self};
    struct list *idle;
    int r = 0;

    pool_lock(pool);
    if (!takes_jobs(pool)) {
        r = WEIR_ECLOSED;
    } else if (list_empty(&pool->queue) && (idle = list_pop(&pool->idle))) {
        wait.helper = container_of(idle, struct helper, idle);
        wait.helper->state = HELPER_BUSY;
        wait.helper->has_caller = true;
    } else if (list_empty(&pool->queue) && pool->helper_count < pool->spec.helpers_max) {
        pool->helper_count++;
    } else {
        r = take_or_wait(pool, &wait);
    }
    pool_unlock(pool);
    if (r == 1) r = task_park(self, &wait_helper, &wait);
    if (r == 0) r = wait.error;
    if (r == WEIR_ECLOSED) return refuse_closed(pool, self);
    if (r == WEIR_EOVERLOAD) {
        return refuse_as(r, "process pool '%s': %d helpers are busy and %zu jobs wait (queue_max)",
                         pool->name, pool->spec.helpers_max, pool->spec.queue_max);
    }
    if (r != 0) return r;
    if (!wait.helper) return new_or_permit_back(pool, ret_helper);
    *ret_helper = wait.helper;
    return 0;
}

/* One that is ready for a job. What has died or said something since its last one is not. */
static int acquire_ready(weir_process_pool *pool, struct task *self, struct helper **ret_helper)
{
    for (;;) {
        struct helper *helper = NULL;
        int r = acquire(pool, self, &helper);

        if (r != 0) return r;
        assert(helper);
        sanitize_acquire(helper);
        if (!helper->conn) {
            r = helper_start(helper, self);
            if (r < 0) {
                drop(helper);
                return r;
            }
            pool_lock(pool);
            if (helper->state == HELPER_STARTING) helper->state = HELPER_BUSY;
            pool_unlock(pool);
        } else if (conn_readable_now(helper->conn_object)) {
            pool_doom(helper, true);
            pool_blame(pool, FAULT_CRASH, "helper ended when idle, or spoke without being asked");
            drop(helper);
            continue;
        }
        *ret_helper = helper;
        return 0;
    }
}

/* ---- Running a job ---- */

static int enter(weir_process_pool *pool, const struct task *self)
{
    bool open;

    pool_lock(pool);
    open = pool->state == POOL_OPEN;
    if (open) pool->callers++;
    pool_unlock(pool);
    return open ? 0 : refuse_closed(pool, self);
}

/* After it the pool may be gone. */
static void leave(weir_process_pool *pool)
{
    pool_lock(pool);
    pool->callers--;
    settle(pool);
    pool_unlock(pool);
}

static int run_inside(weir_process_pool *pool, struct task *self, struct job *job)
{
    struct helper *helper = NULL;
    int r = acquire_ready(pool, self, &helper);

    if (r == 0) {
        job->begun = true;
        r = helper_run(helper, self, job);
        if (r == 0) {
            pool_lock(pool);
            pool->stats.jobs_done++;
            pool_unlock(pool);
            give_back(helper);
            return 0;
        }
        drop(helper);
    }
    pool_lock(pool);
    pool->stats.jobs_failed += r == WEIR_EEXIT || r == WEIR_EOVERTIME || r == WEIR_EPROTOCOL;
    pool->stats.jobs_cancelled += r == WEIR_ECANCELED || r == WEIR_ETIMEDOUT;
    pool_unlock(pool);
    return r;
}

int process_pool_run(weir_process_pool *handle, const void *in, size_t in_bytes, void *out,
                     size_t out_bytes, weir_job_result *ret_result, bool *ret_begun)
{
    struct task *self = task_self();
    weir_process_pool *pool;
    struct job job = {.in = in, .in_bytes = in_bytes, .out = out, .out_bytes = out_bytes};
    int r;

    *ret_begun = false;
    if (!self) return refuse_no_task("weir_process_pool_run");
    r = task_enter(self, ENTER_IO);
    if (r < 0) return r;
    pool = io_check(handle, HANDLE_PROCESS_POOL, "weir_process_pool_run"); /* see io.h */
    if (in_bytes > pool->spec.in_bytes_max) {
        return refuse("process pool '%s': a job of %zu bytes, and in_bytes_max is %zu", pool->name,
                      in_bytes, pool->spec.in_bytes_max);
    }
    r = enter(pool, self);
    if (r < 0) return r;
    r = run_inside(pool, self, &job);
    leave(pool);
    *ret_begun = job.begun;
    if (r == 0 && ret_result) *ret_result = job.result;
    return r;
}

/* ---- As a belonging ---- */

static void pool_signalled(struct worker *worker, struct belonging *belonging, uint8_t signals)
{
    weir_process_pool *pool = container_of(belonging, weir_process_pool, belonging);

    (void)worker;
    if (!(signals & SIGNAL_CANCELLED)) return;
    pool_lock(pool);
    if (pool->state != POOL_DISCARDING) discard(pool);
    pool_unlock(pool);
}

static void pool_release(struct worker *worker, struct belonging *belonging)
{
    weir_process_pool *pool = container_of(belonging, weir_process_pool, belonging);

    pool_lock(pool);
    pool->dismissed = true;
    discard(pool);
    pool_unlock(pool);
    pool_let_go(worker, pool);
}

static void pool_describe(const struct belonging *belonging, char *text, size_t bytes)
{
    static const char *const states[] = {"", ", draining", ", failed", ", closing"};
    const weir_process_pool *pool =
        (const weir_process_pool *)(const void *)((const char *)belonging -
                                                  offsetof(weir_process_pool, belonging));
    const weir_process_pool_stats *stats = &pool->stats;

    (void)snprintf(
        text, bytes,
        "'%s'%s: %d of %d helpers, %zu queued; jobs: %llu done, %llu failed, %llu "
        "rejected; helpers: %llu started, %llu crashed, %llu overtime, %llu nonsense",
        pool->name, states[pool->state], pool->helper_count, pool->spec.helpers_max, stats->queued,
        (unsigned long long)stats->jobs_done, (unsigned long long)stats->jobs_failed,
        (unsigned long long)stats->jobs_rejected, (unsigned long long)stats->helpers_started,
        (unsigned long long)stats->helpers_crashed, (unsigned long long)stats->helpers_overtime,
        (unsigned long long)stats->helpers_nonsense);
}

static bool pool_boundary(struct belonging *belonging, unsigned row, struct boundary *ret_boundary)
{
    weir_process_pool *pool = container_of(belonging, weir_process_pool, belonging);
    const weir_process_pool_spec *spec = &pool->spec;
    bool shared = pool->head.runtime->shared;

    if (row > 0) return false;
    (void)snprintf(ret_boundary->name, sizeof ret_boundary->name, "%s", pool->name);
    ret_boundary->lifetime = "until closed, or the scope ends";
    if (spec->overflow == WEIR_REJECT) {
        (void)snprintf(ret_boundary->bound, sizeof ret_boundary->bound, "%d helpers, %zu queued",
                       spec->helpers_max, spec->queue_max);
    } else {
        (void)snprintf(ret_boundary->bound, sizeof ret_boundary->bound,
                       "%d helpers; tasks that call it wait", spec->helpers_max);
    }
    ret_boundary->overflow = boundary_overflow((int)spec->overflow);
    (void)snprintf(ret_boundary->failure, sizeof ret_boundary->failure,
                   "error to the caller; at most %d faults in %lld ms; %s at close",
                   spec->max_restarts, (long long)spec->window_ms,
                   spec->on_close == WEIR_DRAIN ? "drain" : "discard");
    if (!boundary_hold(&pool->lock, shared)) return true;
    boundary_figure(ret_boundary, "helpers", (uint64_t)pool->helper_count);
    boundary_figure(ret_boundary, "depth", pool->stats.queued);
    boundary_figure(ret_boundary, "finished", pool->stats.jobs_done);
    boundary_figure(ret_boundary, "failed", pool->stats.jobs_failed);
    boundary_figure(ret_boundary, "rejected", pool->stats.jobs_rejected);
    boundary_let_go(&pool->lock, shared);
    return true;
}

static const struct belonging_kind pool_kind = {
    .name = "process pool",
    .signalled = pool_signalled,
    .release = pool_release,
    .describe = pool_describe,
    .boundary = pool_boundary,
};

/* ---- Closing ---- */

static bool close_abort(struct task *task, void *object)
{
    weir_process_pool *pool = object;
    bool waiting;

    pool_lock(pool);
    waiting = pool->closer == task;
    if (waiting) pool->closer = NULL;
    pool_unlock(pool);
    return waiting;
}

static const struct wait_kind wait_drain = {.name = "drain of a process pool",
                                            .abort = close_abort};
static const struct wait_kind wait_pool_close = {.name = "close of a process pool"};

/* 0, or the error of a drain that was cut short. */
static int close_wait(weir_process_pool *pool, struct task *self, bool drains)
{
    bool empty;

    pool_lock(pool);
    if (drains) {
        pool->state = POOL_DRAINING;
        settle(pool);
    } else {
        discard(pool);
    }
    empty = is_empty(pool);
    if (!empty) pool->closer = self;
    pool_unlock(pool);
    return empty ? 0 : task_park(self, drains ? &wait_drain : &wait_pool_close, pool);
}

static void pool_end(weir_process_pool *pool, struct task *self)
{
    bool drains = pool->spec.on_close == WEIR_DRAIN && task_interruption(self, false) == 0;

    pool_lock(pool);
    if (pool->closer) misuse("weir_process_pool_close: '%s' is being closed", pool->name);
    drains = drains && pool->state == POOL_OPEN;
    pool_unlock(pool);
    if (!drains || close_wait(pool, self, true) < 0) (void)close_wait(pool, self, false);
    pool_lock(pool);
    io_head_deinit(&pool->head);
    pool->head.handle = NULL;
    pool->dismissed = true;
    post_look(pool);
    pool_unlock(pool);
}

int weir_process_pool_close(weir_process_pool *take_handle)
{
    weir_process_pool *pool;
    struct task *self = task_self();

    if (!take_handle) return 0;
    if (!self) return refuse_no_task("weir_process_pool_close");
    (void)task_enter(self, ENTER_PLAIN);
    pool = io_check(take_handle, HANDLE_PROCESS_POOL, "weir_process_pool_close");
    pool_end(pool, self);
    return 0;
}

/* ---- Opening ---- */

/* Start helpers_min of them; the caller is inside. */
static int start_first(weir_process_pool *pool, struct task *self)
{
    int r = 0;

    for (int i = 0; i < pool->spec.helpers_min && r == 0; i++) {
        struct helper *helper = NULL;

        pool_lock(pool);
        pool->helper_count++;
        pool_unlock(pool);
        r = new_or_permit_back(pool, &helper);
        if (r != 0) return r;
        r = helper_start(helper, self);
        if (r < 0) {
            drop(helper);
        } else {
            give_back(helper);
        }
    }
    return r;
}

int weir_process_pool_open_sized(weir_scope *scope, size_t spec_bytes,
                                 const weir_process_pool_spec *given, weir_process_pool **ret_pool)
{
    struct worker *worker = worker_self();
    struct task *self = task_self();
    weir_process_pool_spec spec;
    weir_process_pool *pool = NULL;
    int r;

    if (!self) return refuse_no_task("weir_process_pool_open");
    scope_check(scope, "weir_process_pool_open");
    spec_copy(&spec, sizeof spec, given, spec_bytes);
    r = pool_check_spec(&spec);
    if (r == 0) r = task_enter(self, ENTER_IO);
    if (r == 0) r = pool_new(scope, &spec, &pool);
    if (r != 0) return r;
    pool->mail.deliver = deliver_look;
    timer_init(&pool->idle_timer, retire_idle);
    r = scope_own(scope, worker, &pool->belonging, &pool_kind);
    if (r < 0) {
        pool_free(pool);
        return r;
    }
    if (pool->spec.idle_ms != WEIR_FOREVER) {
        timer_arm(worker, &pool->idle_timer, time_after_ms(worker->now_ns, pool->spec.idle_ms));
    }
    pool->callers++; /* nobody else knows it */
    r = start_first(pool, self);
    leave(pool);
    if (r < 0) {
        pool->spec.on_close = WEIR_DISCARD;
        pool_end(pool, self);
        return r;
    }
    *ret_pool = pool->head.handle;
    return 0;
}

void weir_process_pool_stats_get(weir_process_pool *handle, weir_process_pool_stats *ret_stats)
{
    weir_process_pool *pool = io_check(handle, HANDLE_PROCESS_POOL, "weir_process_pool_stats_get");

    pool_lock(pool);
    *ret_stats = pool->stats;
    ret_stats->helpers = pool->helper_count;
    list_for_each(node, &pool->idle) ret_stats->idle++;
    pool_unlock(pool);
}

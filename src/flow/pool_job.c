/* pool_job.c - the callers' side of a pool: handing jobs over, cancelling, taking them back.
 *
 * Waking a worker that sleeps costs more than a short job. As long as jobs are short and
 * more of them wait, a worker says that it will look for itself soon (`watched`: a timer of
 * WATCH_NS), and threads wake it once for most of what it has handed over: what is left keeps
 * them busy until it comes. A thread that runs out of jobs always wakes it. So nobody waits
 * longer than the timer for that.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/planted.h"
#include "flow/meters.h"
#include "flow/pool.h"
#include "rt/mem.h"
#include "rt/task.h"
#include "watch/trace.h"

enum {
    FREE_JOBS_MAX = 256,
    WATCH_CALLERS_MIN = 8,
    WAKE_DONE = 4, /* so many of ... */
    WAKE_OF = 5,   /* ... what it has handed over, when threads wake it */
    DONE_MAX = 64, /* done jobs that threads hold back at one time */
};
#define WATCH_NS INT64_C(100000)
#define BRIEF_NS INT64_C(10000)

/* ---- Memory of jobs ---- */

static struct pool_job *job_new(struct pool_desk *desk, size_t bytes)
{
    struct pool_job *job = NULL;

    if (bytes <= POOL_INLINE_BYTES && (job = desk->free_jobs)) {
        desk->free_jobs = (struct pool_job *)(void *)job->node.next;
        desk->free_count--;
    } else {
        job = mem_alloc(sizeof *job + (bytes > POOL_INLINE_BYTES ? bytes : 0));
    }
    if (!job) return NULL;
    job->data = bytes > POOL_INLINE_BYTES ? (void *)(job + 1) : job->inline_data;
    return job;
}

static void job_free(struct pool_desk *desk, struct pool_job *job)
{
    if (__builtin_expect(job->trace != NULL, 0)) trace_unref(job->trace);
    /* In strict mode a job's memory is its own, not its predecessor's. */
    bool keep = !WEIR_TSAN_STRICT && desk->free_count < FREE_JOBS_MAX;

    if (job->data != job->inline_data || !keep) {
        mem_free(job);
        return;
    }
    job->node.next = (struct list *)(void *)desk->free_jobs;
    desk->free_jobs = job;
    desk->free_count++;
}

/* ---- Taking back ---- */

/* On the desk's worker; the lock is held. */
static void watch(struct pool_desk *desk, int64_t now_ns)
{
    desk->watched = true;
    timer_arm(desk->worker, &desk->look, now_ns + WATCH_NS);
}

static void watch_no_more(struct pool_desk *desk)
{
    desk->watched = false;
    timer_disarm(desk->worker, &desk->look);
    if (desk->done_count == 0 || desk->posted) return;
    /* Some were left for the timer meanwhile. */
    desk->posted = true;
    mail_post(desk->worker, &desk->mail);
}

/* So many of the desk's tasks are not inside any more. On its worker; the lock is held. */
static void callers_left(struct pool_desk *desk, size_t count)
{
    desk->callers -= count;
    desk->pool->callers -= count;
    if (desk->callers == 0) watch_no_more(desk); /* the pool may go away */
}

/* Here, where the worker is alone with its figures, and not by the threads. */
static void measure(const struct pool *pool, const struct pool_job *job)
{
    struct meter *meter = pool->classes[job->class_index].metered.meter;
    struct meter_shard *shard;

    if (!meter || job->ended_ns == 0) return;
    shard = meter_shard_here(meter);
    meter_observe_here(meter, shard, POOL_WAIT, job->begun_ns - job->queued_ns);
    meter_observe_here(meter, shard, POOL_RUN, job->ended_ns - job->begun_ns);
}

/* What is left to do for a done job: its caller goes on. */
static void finish(struct pool_desk *desk, struct pool_job *job)
{
    timer_disarm(desk->worker, &job->grace);
    sanitize_acquire(job);
    measure(desk->pool, job);
    sanitize_unseen_begin();
    if (job->bytes > 0) memcpy(job->caller_data, job->data, job->bytes);
    sanitize_unseen_end();
    *job->caller_result = job->result;
    task_wake(job->caller, 0);
    job_free(desk, job);
}

/* Short, and measured by a clock that moves: one that stands still fires no timer. */
static bool is_brief(const struct pool_job *job)
{
    int64_t run_ns = job->ended_ns - job->begun_ns;
    return run_ns > 0 && run_ns < BRIEF_NS;
}

/* On the desk's worker: its done jobs are taken out, as a list by `next` only. */
static struct list *take_done(struct pool_desk *desk)
{
    struct list *first = list_first(&desk->done);

    if (first) desk->done.prev->next = NULL;
    list_init(&desk->done);
    desk->done_count = 0;
    return first;
}

/* On the desk's worker, with its jobs. The pool may be gone when this returns. */
static void take_back(struct pool_desk *desk, struct list *node)
{
    struct pool *pool = desk->pool;
    struct list *next;
    size_t count = 0, brief = 0;
    bool over;

    for (; node; node = next, count++) {
        struct pool_job *job = container_of(node, struct pool_job, node);
        next = node->next;
        /* Another core has written it: fetch it while this one is worked on. */
        if (next) __builtin_prefetch(next);
        brief += is_brief(job);
        finish(desk, job);
    }

    lock_acquire(&pool->lock);
    desk->brief = brief * 2 > count; /* one may have been held up by others */
    if (!desk->brief) {
        /* Jobs for which nobody was woken, since we were going to look, are left to threads. */
        if (desk->watched) pool_want_threads(pool);
        watch_no_more(desk);
    } else if (desk->watched) {
        watch(desk, desk->worker->now_ns);
    }
    callers_left(desk, count);
    over = pool_is_over(pool);
    lock_release(&pool->lock);
    if (over) pool_free(pool); /* its scope has ended while they were on their way back */
}

static void deliver_done(struct worker *worker, struct mail *mail)
{
    struct pool_desk *desk = container_of(mail, struct pool_desk, mail);
    struct list *jobs;

    (void)worker;
    lock_acquire(&desk->pool->lock);
    desk->posted = false;
    jobs = take_done(desk);
    lock_release(&desk->pool->lock);
    take_back(desk, jobs);
}

static void look_time(struct worker *worker, struct timer *timer)
{
    struct pool_desk *desk = container_of(timer, struct pool_desk, look);
    bool posted;
    struct list *jobs = NULL;

    (void)worker;
    lock_acquire(&desk->pool->lock);
    desk->watched = false;
    pool_want_threads(desk->pool); /* whoever was expected to do what is queued did not come */
    posted = desk->posted;
    if (!posted) jobs = take_done(desk);
    lock_release(&desk->pool->lock);
    /* What was posted is the mail's to take: the desk must be there when it comes. */
    if (!posted) take_back(desk, jobs);
}

bool pool_give_back(struct pool *pool, struct pool_job *job)
{
    struct pool_desk *desk = job->desk;

    job->state = JOB_DONE;
    list_add_tail(&desk->done, &job->node);
    desk->done_count++;
    if (desk->posted) return false;
    if (desk->watched && desk->callers >= WATCH_CALLERS_MIN && atom_load(&pool->queued) > 0 &&
        desk->done_count < DONE_MAX && desk->done_count * WAKE_OF < desk->callers * WAKE_DONE) {
        return false;
    }
    desk->posted = true;
    return true;
}

void pool_desk_init(struct pool_desk *desk, struct pool *pool, struct worker *worker)
{
    desk->pool = pool;
    desk->worker = worker;
    desk->mail.deliver = deliver_done;
    timer_init(&desk->look, look_time);
    list_init(&desk->done);
}

void pool_desk_deinit(struct pool_desk *desk)
{
    while (desk->free_jobs) {
        struct pool_job *job = desk->free_jobs;
        desk->free_jobs = (struct pool_job *)(void *)job->node.next;
        mem_free(job);
    }
}

/* ---- Cancelling ---- */

/* The caller goes on, the job runs on. The lock is held. */
static void become_orphan(struct pool *pool, struct pool_job *job)
{
    job->state = JOB_ORPHAN;
    if (job->caller_orphan) *job->caller_orphan = true; /* it is parked: its stack is there */
    pool->orphan_count++;
    pool->classes[job->class_index].orphaned++;
    callers_left(job->desk, 1);
}

/* A cancelled caller has waited long enough for its job. */
static void grace_over(struct worker *worker, struct timer *timer)
{
    struct pool_job *job = container_of(timer, struct pool_job, grace);
    struct pool *pool = job->desk->pool;
    struct task *caller = job->caller;
    bool orphan;

    (void)worker;
    lock_acquire(&pool->lock);
    orphan = job->state == JOB_RUNNING;
    if (orphan) become_orphan(pool, job);
    lock_release(&pool->lock);
    if (orphan) task_wake(caller, task_interruption(caller, false));
}

/* True: the caller goes on; the job was removed, or has become an orphan. */
static bool job_abort(struct task *task, void *object)
{
    struct pool_job *job = object;
    struct pool_desk *desk = job->desk;
    struct pool *pool = desk->pool;
    bool leaves = false;

    (void)task;
    lock_acquire(&pool->lock);
    switch ((enum pool_job_state)job->state) {
    case JOB_WAITING:
    case JOB_QUEUED:
        pool_remove(pool, job);
        pool->classes[job->class_index].removed++;
        job_free(desk, job);
        callers_left(desk, 1); /* not the last use: a pool with jobs queued is not gone */
        leaves = true;
        break;
    case JOB_RUNNING:
        atom_store_release(&job->told, true);
        if (pool->cancel_ms == 0) {
            become_orphan(pool, job);
            leaves = true;
        } else if (!wheel_timer_armed(&job->grace.wheel)) {
            struct worker *worker = desk->worker;
            timer_arm(worker, &job->grace, time_after_ms(worker->now_ns, pool->cancel_ms));
        }
        break;
    case JOB_DONE: leaves = PLANTED(POOL_LEAVES_DONE); break;
    case JOB_ORPHAN: break;
    }
    lock_release(&pool->lock);
    return leaves;
}

static void job_describe(const void *object, char *text, size_t bytes)
{
    const struct pool_job *job = object;
    const struct pool *pool = job->desk->pool;
    (void)snprintf(text, bytes, "'%s', class '%s'", pool->name,
                   pool->classes[job->class_index].spec.name);
}

static void job_facts(const void *object, struct waiting *ret_waiting)
{
    const struct pool_job *job = object;
    waiting_name(ret_waiting, "pool", job->desk->pool->name);
}

static const struct wait_kind wait_job = {
    .name = "pool",
    .abort = job_abort,
    .describe = job_describe,
    .what = WAIT_FOR_THREAD,
    .ends = ENDS_OUTSIDE,
    .facts = job_facts,
};

/* ---- Handing over ---- */

/* As pool_want_thread. The lock is held. */
static int submit(struct pool *pool, struct pool_job *job)
{
    struct pool_class *class = &pool->classes[job->class_index];
    int r;

    if (pool->closing) return WEIR_ECLOSED;
    if (class->queued >= class->spec.queue_max) {
        if (pool->overflow == WEIR_REJECT) {
            class->rejected++;
            return WEIR_EOVERLOAD;
        }
        job->state = JOB_WAITING;
        list_add_tail(&class->waiting, &job->node);
        return 0;
    }
    pool_enqueue(pool, job);
    r = pool_want_thread(pool, job->desk->watched);
    if (r < 0) pool_remove(pool, job);
    return r;
}

/* On success the job is the pool's, until its caller is woken. */
static int hand_over(struct pool_desk *desk, struct pool_job *job)
{
    struct pool *pool = desk->pool;
    int r;

    sanitize_release(job);
    lock_acquire(&pool->lock);
    r = submit(pool, job);
    if (r >= 0) {
        pool->callers++;
        desk->callers++;
        if (desk->brief && !desk->watched && desk->callers >= WATCH_CALLERS_MIN) {
            watch(desk, job->queued_ns);
        }
    }
    lock_release(&pool->lock);
    if (r > 0) pool_signal(pool);
    return r;
}

static int check_run(const struct pool *pool, unsigned class_index, weir_pool_fn fn,
                     const void *data, size_t bytes)
{
    if (class_index >= pool->class_count) {
        return refuse("pool '%s': there is no class %u", pool->name, class_index);
    }
    if (!fn) return refuse("pool '%s': fn is NULL", pool->name);
    if (bytes > WEIR_POOL_DATA_BYTES_MAX || (bytes > 0 && !data)) {
        return refuse("pool '%s': %zu bytes of data, at most %d, not NULL", pool->name, bytes,
                      WEIR_POOL_DATA_BYTES_MAX);
    }
    return 0;
}

static __attribute__((noinline)) int run(weir_pool *handle, struct pool *pool, unsigned class_index,
                                         weir_pool_fn fn, void *data, size_t bytes,
                                         bool *ret_orphan)
{
    struct worker *worker = worker_self();
    struct task *self = task_self();
    struct pool_desk *desk;
    struct pool_job *job;
    struct meter *meter;
    int r, result = 0;

    if (!self) return refuse_no_task("weir_pool_run");
    r = check_run(pool, class_index, fn, data, bytes);
    if (r < 0) return r;
    meter = pool->classes[class_index].metered.meter;
    r = task_enter(self, ENTER_PLAIN);
    if (r < 0) return r;
    if (!flow_names(handle, HANDLE_POOL, pool)) return WEIR_ECLOSED; /* it has yielded */
    desk = &pool->desks[worker->index];
    job = job_new(desk, bytes);
    if (!job) return -ENOMEM;
    job->desk = desk;
    job->trace = trace_ref(trace_of(self));
    job->class_index = (uint8_t)class_index;
    atom_store(&job->told, false);
    job->fn = fn;
    job->caller = self;
    job->caller_data = data;
    job->caller_result = &result;
    job->caller_orphan = ret_orphan;
    timer_init(&job->grace, grace_over);
    job->queued_ns = worker->kernel->now_ns(worker->kernel);
    job->bytes = bytes;
    list_init(&job->node);
    sanitize_unseen_begin();
    if (bytes > 0) memcpy(job->data, data, bytes);
    sanitize_unseen_end();
    r = hand_over(desk, job);
    if (r < 0) {
        job_free(desk, job);
        return r;
    }
    r = task_park(self, &wait_job, job); /* the job is not ours any more when it returns */
    if (r < 0) return meter_interrupted(meter, POOL_TIMEOUTS, r);
    return result;
}

/* A span of its caller: waiting in the queue, and running. */
static __attribute__((noinline)) int run_traced(weir_pool *handle, struct pool *pool,
                                                unsigned class_index, weir_pool_fn fn, void *data,
                                                size_t bytes, bool *ret_orphan)
{
    weir_span span __attribute__((cleanup(weir_span_leave)));
    int r;

    span_begin(&span, "pool", pool->name, WEIR_SPAN_INTERNAL);
    r = run(handle, pool, class_index, fn, data, bytes, ret_orphan);
    if (r < 0) weir_span_result(r);
    return r;
}

int pool_run(weir_pool *handle, unsigned class_index, weir_pool_fn fn, void *data, size_t bytes,
             bool *ret_orphan)
{
    struct pool *pool = flow_look_up(handle, HANDLE_POOL, "pool", "weir_pool_run");

    if (trace_is_on()) return run_traced(handle, pool, class_index, fn, data, bytes, ret_orphan);
    return run(handle, pool, class_index, fn, data, bytes, ret_orphan);
}

int weir_pool_run(weir_pool *handle, unsigned class_index, weir_pool_fn fn, void *data,
                  size_t bytes)
{
    int r = pool_run(handle, class_index, fn, data, bytes, NULL);
    /* Not a tail call: a task that is parked in here is shown to be in weir_pool_run. */
    __asm__ volatile("");
    return r;
}

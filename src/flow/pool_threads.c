/* pool_threads.c - the threads of a pool: which job is next, running it, ending. */
#include <assert.h>
#include <errno.h>
#include <time.h>

#include "flow/meters.h"
#include "flow/pool.h"
#include "rt/mem.h"
#include "rt/task.h"

enum { STRIDE = 1000000, FREE_JOBS_MAX = 256 };
#define NS_PER_S INT64_C(1000000000)

/* The job that the calling thread runs. */
static _Thread_local struct pool_job *current_job;

bool weir_pool_told(void)
{
    const struct pool_job *job = current_job;
    return job && atom_load_acquire(&job->told);
}

/* ---- Queues ---- */

void pool_enqueue(struct pool *pool, struct pool_job *job)
{
    struct pool_class *class = &pool->classes[job->class_index];

    job->state = JOB_QUEUED;
    list_add_tail(&class->queue, &job->node);
    /* A class that had nothing to do has saved up nothing. */
    if (class->queued == 0 && class->pass < pool->pass) class->pass = pool->pass;
    if (++class->queued > class->queued_max) class->queued_max = class->queued;
    pool->queued++;
}

/* There is room in the queue: the job that has waited for it longest takes it. */
static void refill(struct pool *pool, struct pool_class *class)
{
    struct list *node;
    if (class->queued >= class->spec.queue_max) return;
    node = list_pop(&class->waiting);
    if (!node) return;
    pool_enqueue(pool, container_of(node, struct pool_job, node));
    /* Nobody was asked to do it yet. There is a thread, so that this cannot fail. */
    (void)pool_want_thread(pool);
}

void pool_remove(struct pool *pool, struct pool_job *job)
{
    struct pool_class *class = &pool->classes[job->class_index];

    list_remove(&job->node);
    if (job->state != JOB_QUEUED) return;
    class->queued--;
    pool->queued--;
    refill(pool, class);
}

/* By stride scheduling: over time each class gets threads in proportion to its weight. */
static struct pool_job *next_job(struct pool *pool)
{
    struct pool_class *best = NULL;
    struct pool_job *job;

    for (size_t i = 0; i < pool->class_count; i++) {
        struct pool_class *class = &pool->classes[i];
        if (class->queued == 0 || class->running >= (size_t) class->spec.running_max) continue;
        if (!best || class->pass < best->pass) best = class;
    }
    if (!best) return NULL;
    pool->pass = best->pass;
    best->pass += STRIDE / best->spec.weight;
    job = container_of(list_first(&best->queue), struct pool_job, node);
    pool_remove(pool, job);
    return job;
}

/* ---- Memory of jobs ---- */

void pool_job_free_locked(struct pool *pool, struct pool_job *job)
{
    /* In strict mode a job's memory is its own, not its predecessor's. */
    bool keep = !WEIR_TSAN_STRICT && pool->free_job_count < FREE_JOBS_MAX;

    if (job->data != job->inline_data || !keep) {
        mem_free(job);
        return;
    }
    job->node.next = (struct list *)(void *)pool->free_jobs;
    pool->free_jobs = job;
    pool->free_job_count++;
}

void pool_free(struct pool *pool)
{
    while (pool->free_jobs) {
        struct pool_job *job = pool->free_jobs;
        pool->free_jobs = (struct pool_job *)(void *)job->node.next;
        mem_free(job);
    }
    sanitize_unordered_begin();
    (void)pthread_cond_destroy(&pool->work);
    sanitize_unordered_end();
    lock_deinit(&pool->lock);
    mem_free(pool->threads);
    mem_free(pool);
    mem_unhold();
}

/* ---- Running ---- */

/* A job begins, or has ended. The lock is held. The meters are the runtime's, which a stuck
 * thread may outlive: not so as long as the scope has not let the pool go. */
static void measure_wait(const struct pool *pool, struct pool_job *job)
{
    struct meter *meter = pool->classes[job->class_index].metered.meter;

    job->begun_ns = 0;
    if (!meter || pool->gone) return;
    job->begun_ns = pool->kernel->now_ns(pool->kernel);
    meter_observe(meter, POOL_WAIT, job->begun_ns - job->queued_ns);
}

static void measure_run(const struct pool *pool, const struct pool_job *job)
{
    if (job->begun_ns == 0 || pool->gone) return;
    meter_observe(pool->classes[job->class_index].metered.meter, POOL_RUN,
                  pool->kernel->now_ns(pool->kernel) - job->begun_ns);
}

/* The lock is held on entry and on return. */
static void run(struct pool *pool, struct pool_job *job) LOCK_UNCHECKED;
static void run(struct pool *pool, struct pool_job *job)
{
    struct pool_class *class = &pool->classes[job->class_index];

    job->state = JOB_RUNNING;
    list_add_tail(&pool->running, &job->node);
    class->running++;
    pool->busy++;
    measure_wait(pool, job);
    lock_release(&pool->lock);

    sanitize_acquire(job);
    current_job = job;
    job->result = job->fn(job->data);
    current_job = NULL;
    sanitize_release(job);

    lock_acquire(&pool->lock);
    list_remove(&job->node);
    class->running--;
    class->finished++;
    pool->busy--;
    measure_run(pool, job);
    if (job->state == JOB_ORPHAN) {
        pool->orphan_count--;
        pool_job_free_locked(pool, job);
    } else {
        /* After the post the job is its caller's. */
        job->state = JOB_DONE;
        mail_post(job->worker, &job->mail);
    }
}

static bool has_work(const struct pool *pool)
{
    for (size_t i = 0; i < pool->class_count; i++) {
        const struct pool_class *class = &pool->classes[i];
        if (class->queued > 0 && class->running < (size_t) class->spec.running_max) return true;
    }
    return false;
}

/* Wait for work. False: there was none for so long that the thread is not needed. */
static bool wait_for_work(struct pool *pool)
{
    /* The real clock, whatever clock the runtime runs on: threads really wait. */
    int64_t until_ns = time_after_ms(kernel_epoll.now_ns(&kernel_epoll), pool->idle_ms);
    struct timespec until = {.tv_sec = until_ns / NS_PER_S, .tv_nsec = until_ns % NS_PER_S};
    int r;

    pool->idle_count++;
    sanitize_unordered_begin();
    r = pthread_cond_timedwait(&pool->work, &pool->lock.mutex, &until);
    sanitize_unordered_end();
    pool->idle_count--;
    return r != ETIMEDOUT;
}

static bool too_many(const struct pool *pool)
{
    return pool->thread_count > pool->threads_max;
}

static void *thread_main(void *arg)
{
    struct pool_thread *self = arg;
    struct pool *pool = self->pool;
    bool frees;

    lock_acquire(&pool->lock);
    for (;;) {
        struct pool_job *job = too_many(pool) ? NULL : next_job(pool);
        if (job) {
            run(pool, job);
            continue;
        }
        if (too_many(pool) || (pool->closing && pool->queued == 0)) break;
        if (!wait_for_work(pool) && pool->thread_count > pool->threads_min && !has_work(pool))
            break;
    }
    self->left = true;
    pool->thread_count--;
    /* It may have been woken for a job that another can do; and at the end all go. */
    if (pool->closing) {
        pool_wake_all(pool);
    } else if (has_work(pool)) {
        pool_wake_one(pool);
    }
    if (pool->closing && !pool->given_up && pool->thread_count == 0) {
        mail_post(pool->belonging.worker, &pool->mail);
    }
    frees = pool_is_over(pool); /* it was stuck when the scope ended, and stays unjoined */
    lock_release(&pool->lock);
    if (frees) pool_free(pool);
    return NULL;
}

/* ---- Threads ---- */

static int start_thread(struct pool *pool)
{
    for (int i = 0; i < pool->threads_limit; i++) {
        struct pool_thread *thread = &pool->threads[i];
        int r;

        if (thread->started && !thread->left) continue;
        /* A thread that has left is at its last instructions: joining it does not wait. */
        if (thread->started) (void)pool->kernel->thread_join(pool->kernel, thread->thread);
        *thread = (struct pool_thread){.pool = pool};
        r = pool->kernel->thread_start(pool->kernel, &thread->thread, thread_main, thread);
        if (r < 0) return r;
        thread->started = true;
        pool->thread_count++;
        return 0;
    }
    return -EAGAIN;
}

int pool_want_thread(struct pool *pool)
{
    if (pool->idle_count > 0) {
        pool_wake_one(pool);
        if ((size_t)pool->idle_count >= pool->queued) return 0;
    }
    if (pool->thread_count < pool->threads_max) {
        int r = start_thread(pool);
        if (r < 0 && pool->thread_count == 0) return r;
    }
    return 0;
}

void pool_join(struct pool *pool)
{
    for (int i = 0; i < pool->threads_limit; i++) {
        struct pool_thread *thread = &pool->threads[i];
        if (thread->started && thread->left) {
            (void)pool->kernel->thread_join(pool->kernel, thread->thread);
            thread->started = false;
        }
    }
}

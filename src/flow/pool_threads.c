/* pool_threads.c - the threads of a pool: which job is next, running it, ending. */
#include <assert.h>
#include <errno.h>

#include "base/planted.h"
#include "flow/meters.h"
#include "flow/pool.h"
#include "rt/mem.h"
#include "rt/task.h"
#include "watch/trace.h"

enum {
    STRIDE = 1000000,
    LOOK_ROUNDS = 400,      /* about 10 µs */
    LOOK_ROUNDS_YIELD = 20, /* so often the processor is offered to others meanwhile */
    LOOK_ROUNDS_CHOSEN = 2, /* in a run that is steered: each is a choice */
    LOOK_FAILURES_MAX = 4,  /* looks in vain in a row before a thread stops trying */
};
/* A thread that is woken runs after half of it, and what it takes over must be worth that too. The
 * worker's own look ends all patience after as long. */
#define WAKE_WORTH_NS INT64_C(100000)
#define RUN_NS_MAX INT64_C(100000) /* longer jobs count as this: they are not waited for */

/* The job that the calling thread runs. */
static _Thread_local struct pool_job *current_job;

struct pool_job *pool_thread_swap(struct pool_job *job)
{
    struct pool_job *before = current_job;

    current_job = job;
    return before;
}

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
    atom_store(&pool->queued, atom_load(&pool->queued) + 1);
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
    if (pool_want_thread(pool, false) > 0) pool_signal(pool);
}

void pool_remove(struct pool *pool, struct pool_job *job)
{
    struct pool_class *class = &pool->classes[job->class_index];

    list_remove(&job->node);
    if (job->state != JOB_QUEUED) return;
    class->queued--;
    atom_store(&pool->queued, atom_load(&pool->queued) - 1);
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
    assert(job);
    pool_remove(pool, job);
    return job;
}

void pool_free(struct pool *pool)
{
    for (unsigned i = 0; i < pool->desk_count; i++) pool_desk_deinit(&pool->desks[i]);
    bell_deinit(&pool->work);
    lock_deinit(&pool->lock);
    mem_free(pool->memory);
    mem_unhold();
}

/* ---- Waking ----
 * A thread sleeps until it is given one of the `wakes`, and is counted as sleeping until one
 * is given to it, not until it runs: so that nobody wakes it twice. The lock is
 * held. */

/* pool_signal is next. */
static void wake_one(struct pool *pool)
{
    pool->sleeping--;
    pool->coming++;
    pool->wakes++;
}

void pool_signal(struct pool *pool)
{
    bell_ring(&pool->work);
}

void pool_wake_all(struct pool *pool)
{
    if (pool->sleeping == 0) return;
    pool->wakes += (unsigned)pool->sleeping;
    pool->coming += pool->sleeping;
    pool->sleeping = 0;
    bell_ring_all(&pool->work);
}

/* False: nobody woke it for so long that it is not needed. */
static bool sleep_until_woken(struct pool *pool)
{
    int64_t until_ns = bell_after_ms(&pool->work, pool->idle_ms);
    int r = 0;

    pool->sleeping++;
    while (pool->wakes == 0 && r != -ETIMEDOUT) {
        r = bell_wait(&pool->work, &pool->lock, until_ns);
    }
    if (pool->wakes == 0) {
        pool->sleeping--;
        return false;
    }
    pool->wakes--;
    pool->coming--;
    return true;
}

/* ---- Running ---- */

/* What a thread remembers from one job to the next. */
struct shift {
    struct pool_desk *to_tell; /* that there are done jobs, or NULL */
    int64_t ended_ns;          /* when its last job did, if it went on at once; else 0 */
    bool looked;               /* for work, after its last one */
    unsigned failures;         /* to find any, in a row */
};

/* Without the lock: this may wake a worker, which wants it. The desk's callers are inside
 * until they are told, so it is still there. */
static void tell(struct shift *shift)
{
    struct pool_desk *desk = shift->to_tell;

    shift->to_tell = NULL;
    if (desk) mail_post(desk->worker, &desk->mail);
}

/* The caller of the job has gone on long ago: nobody else measures it. The meters are the
 * runtime's, which a stuck thread may outlive: not so while the scope has not let the pool
 * go. The lock is held. */
static void end_orphan(struct pool *pool, struct pool_job *job)
{
    struct meter *meter = pool->classes[job->class_index].metered.meter;

    if (meter && !pool->gone) {
        meter_observe(meter, POOL_WAIT, job->begun_ns - job->queued_ns);
        meter_observe(meter, POOL_RUN, job->ended_ns - job->begun_ns);
    }
    pool->orphan_count--;
    trace_unref(job->trace);
    mem_free(job);
}

/* How long jobs take, lately. The lock is held. */
static void note_run(struct pool *pool, int64_t run_ns)
{
    if (run_ns > RUN_NS_MAX) run_ns = RUN_NS_MAX;
    pool->run_ns += (run_ns - pool->run_ns) / 8;
}

/* The lock is held on entry and on return. */
static void run(struct pool *pool, struct pool_job *job, struct shift *shift) LOCK_UNCHECKED;
static void run(struct pool *pool, struct pool_job *job, struct shift *shift)
{
    struct pool_class *class = &pool->classes[job->class_index];
    struct pool_desk *desk;
    int64_t begun_ns;

    job->state = JOB_RUNNING;
    class->running++;
    pool->busy++;
    lock_release(&pool->lock);
    tell(shift);

    /* The end of one job is the beginning of the next: the clock is asked once for both. */
    begun_ns = shift->ended_ns ? shift->ended_ns : pool->kernel->now_ns(pool->kernel);
    if (begun_ns < job->queued_ns) begun_ns = job->queued_ns;
    job->begun_ns = begun_ns;
    sanitize_acquire(job);
    current_job = job;
    if (__builtin_expect(job->trace != NULL, 0)) trace_thread(job->trace);
    job->result = job->fn(job->data);
    if (__builtin_expect(job->trace != NULL, 0)) trace_thread(NULL);
    current_job = NULL;
    sanitize_release(job);
    shift->ended_ns = pool->kernel->now_ns(pool->kernel);
    job->ended_ns = shift->ended_ns;
    shift->looked = false;

    lock_acquire(&pool->lock);
    class->running--;
    class->finished++;
    pool->busy--;
    note_run(pool, shift->ended_ns - begun_ns);
    if (job->state == JOB_ORPHAN) {
        end_orphan(pool, job);
        return;
    }
    desk = job->desk;
    if (pool_give_back(pool, job)) shift->to_tell = desk;
}

static bool has_work(const struct pool *pool)
{
    for (size_t i = 0; i < pool->class_count; i++) {
        const struct pool_class *class = &pool->classes[i];
        if (class->queued > 0 && class->running < (size_t) class->spec.running_max) return true;
    }
    return false;
}

/* One round of looking. The worker that is to hand over more may have been woken on this very
 * core, and the kernel lets it run only when this thread's time is up, which is long after. */
static void look_on(const struct pool *pool, int round)
{
    atom_pause();
    if (round % LOOK_ROUNDS_YIELD == 0) pool->kernel->thread_yield(pool->kernel);
}

/* Waking a thread costs a hundred times what a short look around does; but one that keeps
 * finding nothing stops looking. One looks at a time, and once before it sleeps. The lock is
 * held on entry and on return; true: it was let go meanwhile, so all has to be seen anew. */
static bool look_around(struct pool *pool, struct shift *shift) LOCK_UNCHECKED;
static bool look_around(struct pool *pool, struct shift *shift)
{
    int rounds = pool->kernel->choose ? LOOK_ROUNDS_CHOSEN : LOOK_ROUNDS;
    bool found = false;

    if (!pool->spin || shift->looked || pool->looking > 0 || atom_load(&pool->queued) > 0 ||
        shift->failures >= LOOK_FAILURES_MAX) {
        return false;
    }
    pool->looking++;
    lock_release(&pool->lock);
    for (int i = 0; i < rounds && !found; i++) {
        found = atom_load(&pool->queued) > 0;
        if (!found) look_on(pool, i);
    }
    lock_acquire(&pool->lock);
    pool->looking--;
    shift->looked = true;
    shift->failures = found ? 0 : shift->failures + 1;
    return true;
}

/* Wait for work. False: there was none for so long that the thread is not needed. */
static bool wait_for_work(struct pool *pool, struct shift *shift)
{
    shift->ended_ns = 0;
    if (look_around(pool, shift)) return true;
    shift->looked = false;
    return sleep_until_woken(pool);
}

static bool too_many(const struct pool *pool)
{
    return pool->thread_count > pool->threads_max;
}

static void *thread_main(void *arg)
{
    struct pool_thread *self = arg;
    struct pool *pool = self->pool;
    struct shift shift = {0};
    bool frees;

    lock_acquire(&pool->lock);
    pool->coming--;
    for (;;) {
        struct pool_job *job = too_many(pool) ? NULL : next_job(pool);
        if (job) {
            run(pool, job, &shift);
            continue;
        }
        if (shift.to_tell) {
            lock_release(&pool->lock);
            tell(&shift);
            lock_acquire(&pool->lock);
            continue; /* what was seen may have changed */
        }
        if (too_many(pool) || (pool->closing && atom_load(&pool->queued) == 0)) break;
        if (!wait_for_work(pool, &shift) && pool->thread_count > pool->threads_min &&
            !has_work(pool))
            break;
    }
    self->left = true;
    pool->thread_count--;
    /* It may have been woken for a job that another can do; and at the end all go. */
    if (pool->closing) {
        pool_wake_all(pool);
    } else if (has_work(pool) && pool->sleeping > 0) {
        wake_one(pool);
        pool_signal(pool);
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
        pool->coming++;
        return 0;
    }
    return -EAGAIN;
}

/* Whether those that are awake have so little to do that one more thread would find nothing
 * when it is there. */
static bool awake_suffice(const struct pool *pool)
{
    int awake = pool->thread_count - pool->sleeping;
    return awake > 0 &&
           (int64_t)atom_load(&pool->queued) * pool->run_ns < (int64_t)awake * WAKE_WORTH_NS;
}

int pool_want_thread(struct pool *pool, bool patient)
{
    int about_to_look = pool->coming + pool->looking;

    if (PLANTED(POOL_SLEEPERS_COUNTED)) about_to_look += pool->sleeping;
    /* Those that are about to look for a job find as many. */
    if (atom_load(&pool->queued) <= (size_t)about_to_look) return 0;
    if (patient && awake_suffice(pool)) return 0;
    if (pool->sleeping > 0) {
        wake_one(pool);
        return 1;
    } else if (pool->thread_count < pool->threads_max) {
        int r = start_thread(pool);
        if (r < 0 && pool->thread_count == 0) return r;
    }
    return 0;
}

void pool_want_threads(struct pool *pool)
{
    int before;
    do {
        before = pool->coming;
        if (pool_want_thread(pool, false) > 0) pool_signal(pool);
    } while (pool->coming > before);
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

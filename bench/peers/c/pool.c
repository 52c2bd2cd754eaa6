/* pool.c - a pool and a fan-out of bare threads: the least that handing work over costs.
 *
 * The pool has one lock around two lists, what is to do and what is done. Its thread gives a job
 * back and takes the next one under the same lock; main keeps BENCH_POOL_CALLERS jobs in flight,
 * as many as there are callers elsewhere, takes all that is done at a time and hands it in anew.
 * It is woken when half of them are done, or nothing is left to do: woken for each, it costs four
 * times as much.
 */
#include "pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "job.h"

enum { THREADS_MAX = 64, WAKE_COUNT = BENCH_POOL_CALLERS / 2 };

static void check(const struct bench *bench, const char *call, int error)
{
    if (error != 0) bench_fail(bench, call, strerror(error));
}

/* ---- The pool ---- */

struct job {
    struct job *next;
    uint64_t steps, result;
};

struct list {
    struct job *first, **end;
};

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t work, news;
    struct list to_do, done;
    int idle, done_count;
    bool main_waits, ends;
};

static void list_init(struct list *list)
{
    list->first = NULL;
    list->end = &list->first;
}

static void list_add(struct list *list, struct job *job)
{
    job->next = NULL;
    *list->end = job;
    list->end = &job->next;
}

static struct job *list_take(struct list *list)
{
    struct job *job = list->first;

    list->first = job->next;
    if (!job->next) list->end = &list->first;
    return job;
}

static void *pool_thread(void *arg)
{
    struct pool *pool = arg;

    pthread_mutex_lock(&pool->lock);
    for (;;) {
        struct job *job;
        while (!pool->to_do.first && !pool->ends) {
            pool->idle++;
            pthread_cond_wait(&pool->work, &pool->lock);
            pool->idle--;
        }
        if (pool->ends) break;
        job = list_take(&pool->to_do);
        pthread_mutex_unlock(&pool->lock);
        job->result = job_run(job->steps);
        pthread_mutex_lock(&pool->lock);
        list_add(&pool->done, job);
        pool->done_count++;
        if (pool->main_waits && (!pool->to_do.first || pool->done_count >= WAKE_COUNT))
            pthread_cond_signal(&pool->news);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* Hands `count` jobs in, at most as many at a time as `jobs` has, and waits for all of them. */
static void pool_run(struct pool *pool, struct job *jobs, size_t count)
{
    size_t handed_in = 0, finished = 0;

    pthread_mutex_lock(&pool->lock);
    for (; handed_in < BENCH_POOL_CALLERS && handed_in < count; handed_in++)
        list_add(&pool->to_do, &jobs[handed_in]);
    pthread_cond_broadcast(&pool->work);
    while (finished < count) {
        int added = 0;
        while (!pool->done.first) {
            pool->main_waits = true;
            pthread_cond_wait(&pool->news, &pool->lock);
            pool->main_waits = false;
        }
        while (pool->done.first) {
            struct job *job = list_take(&pool->done);
            finished++;
            pool->done_count--;
            if (handed_in == count) continue;
            handed_in++;
            list_add(&pool->to_do, job);
            added++;
        }
        for (int i = 0; i < added && i < pool->idle; i++) pthread_cond_signal(&pool->work);
    }
    pool->ends = true;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
}

void pool_measure(const struct bench *bench)
{
    struct pool pool = {.lock = PTHREAD_MUTEX_INITIALIZER,
                        .work = PTHREAD_COND_INITIALIZER,
                        .news = PTHREAD_COND_INITIALIZER};
    struct job jobs[BENCH_POOL_CALLERS];
    pthread_t threads[BENCH_POOL_THREADS];
    struct job_clock clock;

    list_init(&pool.to_do);
    list_init(&pool.done);
    for (int i = 0; i < BENCH_POOL_CALLERS; i++) jobs[i].steps = job_steps();
    for (int i = 0; i < BENCH_POOL_THREADS; i++)
        check(bench, "pthread_create", pthread_create(&threads[i], NULL, pool_thread, &pool));
    job_clock_start(&clock, job_steps());
    pool_run(&pool, jobs, bench->n);
    job_clock_print(bench, &clock, bench->n);
    for (int i = 0; i < BENCH_POOL_THREADS; i++) pthread_join(threads[i], NULL);
}

/* ---- The fan-out ---- */

struct fan {
    size_t count;
    const uint64_t *seeds;
    uint64_t *results;
    atomic_size_t next;
};

static void *fan_thread(void *arg)
{
    struct fan *fan = arg;

    for (;;) {
        size_t index = atomic_fetch_add(&fan->next, 1);
        if (index >= fan->count) return NULL;
        fan->results[index] = fan_run(fan->seeds[index]);
    }
}

void fan_measure(const struct bench *bench, int thread_count)
{
    uint64_t *seeds = fan_seeds(bench);
    uint64_t *results = fan_seeds(bench);
    struct fan fan = {.count = bench->n, .seeds = seeds, .results = results};
    pthread_t threads[THREADS_MAX];
    int64_t begin_ns = bench_now_ns();

    if (thread_count > THREADS_MAX) bench_fail(bench, bench->workload, "too many threads");
    for (int i = 1; i < thread_count; i++)
        check(bench, "pthread_create", pthread_create(&threads[i], NULL, fan_thread, &fan));
    fan_thread(&fan);
    for (int i = 1; i < thread_count; i++) pthread_join(threads[i], NULL);
    bench_print_ns(bench, bench->workload, bench_now_ns() - begin_ns, bench->n);
    fan_print_checksum(bench, results);
    free(results);
    free(seeds);
}

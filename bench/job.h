/* job.h - the work that the group `flow` hands out, and what handing it over costs.
 *
 * A pool's job is JOB_STEPS steps of the generator, the same in every peer. What is printed is
 * the processor time of the whole process for each job, less what the job itself takes: that is
 * measured in the same process before and after, as the smallest of several rounds. An input of
 * the fan-out is FAN_STEPS steps from a seed of its own; the sum of all results is printed, so
 * that the runner sees that every peer has done the same work.
 */
#ifndef BENCH_JOB_H
#define BENCH_JOB_H

#include "bench.h"

#define JOB_STEPS 700 /* about 1 µs */
#define BENCH_CHANNEL_CAPACITY 128
#define BENCH_POOL_CALLERS 64 /* tasks that wait for a job each */
#define BENCH_POOL_THREADS 2
#define FAN_STEPS 14000 /* about 20 µs */
#define FAN_IN_FLIGHT 8

struct job_clock {
    uint64_t steps;
    double job_ns;
    int64_t begin_ns;
};

static inline uint64_t job_steps(void)
{
    return JOB_STEPS;
}

static __attribute__((noinline)) uint64_t job_run(uint64_t steps)
{
    uint64_t state = BENCH_RANDOM_SEED;

    /* Without this it is a pure function, which a compiler runs once for a whole loop of jobs. */
    __asm__ volatile("" : "+r"(state));
    for (uint64_t i = 0; i < steps; i++) (void)bench_random(&state);
    return state;
}

/* What a job takes by itself now. */
static inline double job_alone_ns(uint64_t steps)
{
    enum { ROUNDS = 20, JOBS = 2000 };
    double best_ns = 1e9;

    for (int round = 0; round < ROUNDS; round++) {
        int64_t begin_ns = bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
        double each_ns;
        for (int i = 0; i < JOBS; i++) {
            uint64_t result = job_run(steps);
            __asm__ volatile("" : : "r"(result));
        }
        each_ns = (double)(bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID) - begin_ns) / JOBS;
        if (each_ns < best_ns) best_ns = each_ns;
    }
    return best_ns;
}

static inline void job_clock_start(struct job_clock *clock, uint64_t steps)
{
    clock->steps = steps;
    clock->job_ns = job_alone_ns(steps);
    clock->begin_ns = bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

static inline void job_clock_print(const struct bench *bench, const struct job_clock *clock,
                                   size_t jobs)
{
    int64_t spent_ns = bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID) - clock->begin_ns;
    double job_ns = job_alone_ns(clock->steps);

    /* The processor may have been slower before than it was in between. */
    if (clock->job_ns < job_ns) job_ns = clock->job_ns;
    bench_print_ns(bench, bench->workload, spent_ns - (int64_t)(job_ns * (double)jobs), jobs);
}

/* ---- The fan-out ---- */

static __attribute__((noinline)) uint64_t fan_run(uint64_t seed)
{
    uint64_t state = seed;

    __asm__ volatile("" : "+r"(state)); /* as in job_run */
    for (uint64_t i = 0; i < FAN_STEPS; i++) (void)bench_random(&state);
    return state;
}

/* One seed for each input; the caller frees them. */
static inline uint64_t *fan_seeds(const struct bench *bench)
{
    uint64_t *seeds = calloc(bench->n, sizeof *seeds);

    if (!seeds) bench_fail(bench, bench->workload, strerror(errno));
    for (size_t i = 0; i < bench->n; i++) seeds[i] = BENCH_RANDOM_SEED + i;
    return seeds;
}

static inline void fan_print_checksum(const struct bench *bench, const uint64_t *results)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < bench->n; i++) sum += results[i];
    printf("{\"workload\":\"%s\",\"peer\":\"%s\",\"n\":%zu,\"checksum\":\"%016llx\"}\n",
           bench->workload, bench->peer, bench->n, (unsigned long long)sum);
}

#endif

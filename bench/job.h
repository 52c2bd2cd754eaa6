/* job.h - the job of about 1 µs that is handed to a pool, and what handing it over costs.
 *
 * A job is JOB_STEPS steps of the generator, the same in every peer. What is printed is the
 * processor time of the whole process for each job, less what the job itself takes: that is
 * measured in the same process before, as the smallest of several rounds.
 */
#ifndef BENCH_JOB_H
#define BENCH_JOB_H

#include "bench.h"

#define JOB_STEPS 700 /* about 1 µs */
#define BENCH_CHANNEL_CAPACITY 128
#define BENCH_POOL_CALLERS 64 /* tasks that wait for a job each */
#define BENCH_POOL_THREADS 2

struct job_clock {
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

static inline void job_clock_start(struct job_clock *clock, uint64_t steps)
{
    enum { ROUNDS = 20, JOBS = 2000 };

    clock->job_ns = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        int64_t begin_ns = bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
        double each_ns;
        for (int i = 0; i < JOBS; i++) {
            uint64_t result = job_run(steps);
            __asm__ volatile("" : : "r"(result));
        }
        each_ns = (double)(bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID) - begin_ns) / JOBS;
        if (each_ns < clock->job_ns) clock->job_ns = each_ns;
    }
    clock->begin_ns = bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

static inline void job_clock_print(const struct bench *bench, const struct job_clock *clock,
                                   size_t jobs)
{
    int64_t spent_ns = bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID) - clock->begin_ns;

    bench_print_ns(bench, bench->workload, spent_ns - (int64_t)(clock->job_ns * (double)jobs),
                   jobs);
}

#endif

/* sequential.h - the loop that weir and plain C both run, to compare their cost.
 *
 * Invariants: no call, no memory and no branch inside the loop, each step
 * depends on the one before, and the function starts on a cache line: so its
 * speed does not hang on where a linker puts it or on which stack it runs.
 */
#ifndef BENCH_SEQUENTIAL_H
#define BENCH_SEQUENTIAL_H

#include "bench.h"

#define SEQUENTIAL_STEPS_DEFAULT 400000000
#define SEQUENTIAL_SLICES 16

/* `step_count` steps of xorshift64 from `seed`, adding up the bits that are set. The bits
 * are counted by hand: the builtin is a library call where the processor's
 * instruction is not assumed. */
__attribute__((noinline, aligned(64))) static uint64_t sequential_loop(uint64_t seed,
                                                                       size_t step_count)
{
    uint64_t state = seed;
    uint64_t total = 0;

    for (size_t i = 0; i < step_count; i++) {
        uint64_t x = bench_random(&state);
        x -= (x >> 1) & UINT64_C(0x5555555555555555);
        x = (x & UINT64_C(0x3333333333333333)) + ((x >> 2) & UINT64_C(0x3333333333333333));
        x = (x + (x >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
        total += (x * UINT64_C(0x0101010101010101)) >> 56;
    }
    return total;
}

/* Measures the loop in slices and prints the best one: the bar is one per cent,
 * and a busy neighbour on the same machine costs more than that. A slice takes
 * about 70 ms, longer than the period of anything a runtime does regularly, so
 * that its cost is in every slice. The time is processor time of the whole
 * process: it leaves out what other programs take and counts helper threads. */
static inline void sequential_measure(const struct bench *bench)
{
    size_t slice_steps = bench->n / SEQUENTIAL_SLICES ? bench->n / SEQUENTIAL_SLICES : 1;
    uint64_t total = sequential_loop(BENCH_RANDOM_SEED, slice_steps);
    int64_t best_ns = INT64_MAX;

    for (int i = 0; i < SEQUENTIAL_SLICES; i++) {
        int64_t begin_ns = bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
        int64_t slice_ns;
        uint64_t seed = BENCH_RANDOM_SEED;

        /* The loop is a pure function: without these fences a compiler runs it
         * once for all slices, or outside the two readings of the clock. */
        __asm__ volatile("" : "+r"(seed) : : "memory");
        total += sequential_loop(seed, slice_steps);
        __asm__ volatile("" : "+r"(total) : : "memory");
        slice_ns = bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID) - begin_ns;
        if (slice_ns < best_ns) best_ns = slice_ns;
    }
    bench_print_ns(bench, bench->workload, best_ns, slice_steps);
    /* The sum goes out, so that no compiler can leave the loop out. */
    fprintf(stderr, "%s: bits counted: %llu\n", bench->program, (unsigned long long)total);
}

#endif

/* pool.h - plain C's side of `bench flow`: threads, a mutex and conditions, nothing else.
 *
 * Threads: each call is made once, by main.
 */
#ifndef BENCH_C_POOL_H
#define BENCH_C_POOL_H

#include "bench.h"

void pool_measure(const struct bench *bench);

/* On `thread_count` threads, of which the caller is one. */
void fan_measure(const struct bench *bench, int thread_count);

#endif

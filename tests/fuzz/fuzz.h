/* fuzz.h - what a fuzz target defines, and how it says that something is wrong.
 *
 * Each NAME_fuzz.c is built twice: by clang with libFuzzer as fuzz-NAME
 * (-Dfuzz=true), and in every other build with replay.c as corpus-NAME, which runs
 * the inputs of corpus/NAME. An input that once failed is added there.
 *
 * Invariants: a target keeps nothing from one input to the next.
 * Threads: one.
 */
#ifndef FUZZ_FUZZ_H
#define FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* The name and the 0 it gives back are libFuzzer's. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Aborts, which both the fuzzer and the replayer take for a failure. */
#define MUST(condition)                                                                \
    do {                                                                               \
        if (condition) break;                                                          \
        fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
        abort();                                                                       \
    } while (0)

#endif

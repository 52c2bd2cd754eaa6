/* chance.h - made-up inputs for models; WEIR_TEST_SEED sets the seed that a failure shows. */
#ifndef WEIR_TESTS_CHANCE_H
#define WEIR_TESTS_CHANCE_H

#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

#include "harness/test.h"

static inline uint64_t chance_next(uint64_t *chance)
{
    uint64_t z = (*chance += UINT64_C(0x9e3779b97f4a7c15)); /* splitmix64 */

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline uint64_t chance_below(uint64_t *chance, uint64_t bound)
{
    return chance_next(chance) % bound;
}

static inline uint64_t chance_seed(void)
{
    const char *given = getenv("WEIR_TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 0) : 0;

    if (!given) CHECK_INT(getrandom(&seed, sizeof seed, 0), ==, sizeof seed);
    test_note("WEIR_TEST_SEED=%llu", (unsigned long long)seed);
    return seed;
}

#endif

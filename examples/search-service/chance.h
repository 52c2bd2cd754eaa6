/* chance.h - numbers that look random and are the same in every run with the same seed. */
#ifndef SEARCH_CHANCE_H
#define SEARCH_CHANCE_H

#include <math.h>
#include <stdint.h>

/* xorshift64* (Vigna 2016); never 0. */
static inline uint64_t chance_next(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(2685821657736338717);
}

/* At least 0, less than 1. */
static inline double chance_part(uint64_t *state)
{
    return (double)(chance_next(state) >> 11) * 0x1p-53;
}

/* The time to the next of events that come independently of each other, `rate` in a second. */
static inline int64_t chance_gap_ns(uint64_t *state, double rate)
{
    return (int64_t)(-log(1.0 - chance_part(state)) / rate * 1e9);
}

#endif

/* chance.h - a small generator of numbers that look like chance, the same for the same seed.
 *
 * A multiplication carries the state on, and the product of its halves' mixture is what is given
 * out: a few operations for each number, good enough to choose by, not for secrets.
 */
#ifndef WEIR_SIM_CHANCE_H
#define WEIR_SIM_CHANCE_H

#include <stdint.h>

struct chance {
    uint64_t state;
};

/* Seeds that follow one another give streams that have nothing in common. */
static inline uint64_t chance_mix(uint64_t x)
{
    x = (x ^ x >> 31) * UINT64_C(0x9fb21c651e98df25);
    x = (x ^ x >> 29) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 32;
}

static inline uint64_t chance_next(struct chance *chance)
{
    uint64_t x;

    chance->state = chance->state * UINT64_C(0x5851f42d4c957f2d) + UINT64_C(0x14057b7ef767814f);
    x = (chance->state ^ chance->state >> 33) * UINT64_C(0x9fb21c651e98df25);
    return x ^ x >> 30;
}

static inline void chance_init(struct chance *chance, uint64_t seed)
{
    chance->state = chance_mix(seed + UINT64_C(0x632be59bd9b4e019));
    (void)chance_next(chance);
}

/* 0 ... n - 1, of equal weight but for 1 in 2^32 / n; n is 1 or more. */
static inline uint32_t chance_below(struct chance *chance, uint32_t n)
{
    return (uint32_t)((chance_next(chance) >> 32) * n >> 32);
}

#endif

/* registers.h - a caller that keeps values in all registers that a call must preserve. */
#ifndef WEIR_UNIT_REGISTERS_H
#define WEIR_UNIT_REGISTERS_H

#include <stdint.h>

/* Call fn(arg) with seed + n in the n-th such register; a bit for each that has another
 * value afterwards. */
uint64_t registers_across(void (*fn)(void *arg), void *arg, uint64_t seed);

#endif

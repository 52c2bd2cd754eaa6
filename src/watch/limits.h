/* limits.h - what a runtime may use of its machine, in words for the dump. */
#ifndef WEIR_WATCH_LIMITS_H
#define WEIR_WATCH_LIMITS_H

#include <stddef.h>
#include <weir/defs.h>

#define LIMITS_TEXT_MAX 256

/* Cores, quota, memory limit, and how much of the stacks is promised to tasks. The
 * pool's lock is only tried: the dump may be called with it held. */
void limits_describe(weir_runtime *runtime, char *text, size_t bytes);

#endif

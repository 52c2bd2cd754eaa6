/* places.h - a backtrace in one line: "sync_all <- flush <- main". */
#ifndef WEIR_SIM_PLACES_H
#define WEIR_SIM_PLACES_H

#include <stddef.h>

struct backtrace;

/* The functions of a backtrace from frame `skip` on, cut to size. One thread at a time; not
 * for a stack of its own that is small: see watch/symbol.h. */
void places_write(const struct backtrace *backtrace, unsigned skip, char *text, size_t bytes);

#endif

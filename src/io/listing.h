/* listing.h - the names in a directory, sorted; read on a thread of the executor.
 *
 * Invariants: a listing holds at most the entries it was asked for; its names are in
 * one block of memory, one after the other, each terminated.
 */
#ifndef WEIR_IO_LISTING_H
#define WEIR_IO_LISTING_H

#include <weir/file.h>

struct kernel;

/* 0, -EOVERFLOW (more than entries_max), -ENOMEM or the kernel's error. Blocks. */
int listing_fill(const struct kernel *kernel, const char *path, size_t entries_max,
                 weir_listing **ret_listing);

#endif

/* memory.h - where buffers of the server get their memory: that of the library.
 *
 * Threads: any. No state.
 */
#ifndef WEIR_SERVER_MEMORY_H
#define WEIR_SERVER_MEMORY_H

#include "rt/mem.h"

/* The hook of buffer.h. */
static inline void *memory_resize_hook(void *arg, void *block, size_t bytes_before, size_t bytes)
{
    (void)arg;
    (void)bytes_before;
    if (bytes > 0) return mem_resize(block, bytes);
    mem_free(block);
    return NULL;
}

#endif

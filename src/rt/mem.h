/* mem.h - every allocation of the library, through one replaceable function.
 *
 * Invariants: NULL means "no memory" and is always handled; memory is not zeroed
 * unless the name says so. Any thread.
 */
#ifndef WEIR_RT_MEM_H
#define WEIR_RT_MEM_H

#include <stddef.h>
#include <weir/runtime.h>

void *mem_alloc(size_t bytes);
void *mem_alloc_zeroed(size_t bytes);
void *mem_resize(void *memory, size_t bytes);
void mem_free(void *memory); /* takes NULL */

/* Something that outlives its runtime holds memory: the allocator must stay. */
void mem_hold(void);
void mem_unhold(void);

/* From now on memory comes from `replacement`, whatever the program has set; NULL: from there
 * again. For the simulator; while no runtime is open. */
void mem_override(const weir_allocator *replacement);

#endif

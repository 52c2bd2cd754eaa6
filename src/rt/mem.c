/* mem.c - the allocator hook. */
#include "rt/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <weir/runtime.h>

#include "rt/runtime.h"

static void *resize_with_libc(void *arg, void *memory, size_t bytes)
{
    (void)arg;
    if (bytes == 0) {
        free(memory);
        return NULL;
    }
    return realloc(memory, bytes);
}

/* Process-wide by nature: it is where the process gets its memory. It changes
 * only while no runtime is open, so it needs no lock. */
static weir_allocator allocator = {.resize = resize_with_libc};
static weir_allocator overridden; /* what it was, while another is in force */

void *mem_resize(void *memory, size_t bytes)
{
    void *moved;

    sanitize_unseen_begin();
    moved = allocator.resize(allocator.arg, memory, bytes ? bytes : 1);
    sanitize_unseen_end();
    return moved;
}

void *mem_alloc(size_t bytes)
{
    return mem_resize(NULL, bytes);
}

void *mem_alloc_zeroed(size_t bytes)
{
    void *memory = mem_alloc(bytes);
    if (!memory) return NULL;
    sanitize_unseen_begin();
    memset(memory, 0, bytes);
    sanitize_unseen_end();
    return memory;
}

void mem_free(void *memory)
{
    if (!memory) return;
    sanitize_unseen_begin();
    (void)allocator.resize(allocator.arg, memory, 0);
    sanitize_unseen_end();
}

/* Objects that outlive their runtime. */
static ATOM(int) holds;

void mem_hold(void)
{
    (void)atom_add(&holds, 1);
}

void mem_unhold(void)
{
    (void)atom_sub(&holds, 1);
}

int weir_set_allocator(const weir_allocator *replacement)
{
    if (runtime_live_count() > 0 || atom_load_acquire(&holds) > 0) return -EBUSY;
    if (replacement && replacement->resize) {
        allocator = *replacement;
    } else {
        allocator = (weir_allocator){.resize = resize_with_libc};
    }
    return 0;
}

void mem_override(const weir_allocator *replacement)
{
    if (replacement) {
        overridden = allocator;
        allocator = *replacement;
    } else {
        allocator = overridden;
    }
}

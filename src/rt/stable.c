/* stable.c - lists of free objects by size; nothing is given back before the runtime ends. */
#include "rt/stable.h"

#include <assert.h>
#include <string.h>

#include "rt/mem.h"
#include "rt/runtime.h"

static size_t class_bytes(unsigned size_class)
{
    return size_class == STABLE_KEPT ? STABLE_KEPT_BYTES : (size_t)256 << size_class;
}

static struct stable *stable_new(weir_runtime *runtime, unsigned size_class)
{
    struct stable *stable = mem_alloc_zeroed(class_bytes(size_class));
    if (!stable) return NULL;
    lock_init_spinning(&stable->lock, runtime->spin);
    stable->runtime = runtime;
    stable->size_class = (uint8_t)size_class;
    stable->shared = runtime->shared;
    lock_acquire(&runtime->memory_lock);
    stable->number = runtime->stables ? runtime->stables->number + 1 : 1;
    stable->all_next = runtime->stables;
    runtime->stables = stable;
    lock_release(&runtime->memory_lock);
    return stable;
}

static void *take(weir_runtime *runtime, unsigned size_class, size_t zeroed)
{
    struct stable *stable;

    lock_acquire(&runtime->memory_lock);
    stable = runtime->free_stables[size_class];
    if (stable) runtime->free_stables[size_class] = stable->next;
    lock_release(&runtime->memory_lock);
    if (!stable) return stable_new(runtime, size_class);
    /* Somebody late may look at the lock, never at more. */
    sanitize_unseen_begin(); /* another task's object was here before */
    memset((char *)stable + sizeof *stable, 0, zeroed - sizeof *stable);
    sanitize_unseen_end();
    return stable;
}

void *stable_alloc(weir_runtime *runtime, size_t bytes)
{
    unsigned size_class = 0;

    assert(bytes >= sizeof(struct stable) && bytes <= STABLE_BYTES_MAX);
    while (class_bytes(size_class) < bytes) size_class++;
    return take(runtime, size_class, class_bytes(size_class));
}

void *stable_alloc_kept(weir_runtime *runtime, size_t bytes, size_t kept_from)
{
    assert(kept_from >= sizeof(struct stable) && kept_from <= bytes && bytes <= STABLE_KEPT_BYTES);
    return take(runtime, STABLE_KEPT, kept_from);
}

void stable_free(struct stable *take_stable)
{
    weir_runtime *runtime;

    if (!take_stable) return;
    runtime = take_stable->runtime;
    lock_acquire(&runtime->memory_lock);
    take_stable->next = runtime->free_stables[take_stable->size_class];
    runtime->free_stables[take_stable->size_class] = take_stable;
    lock_release(&runtime->memory_lock);
}

void stable_free_all(weir_runtime *runtime)
{
    while (runtime->stables) {
        struct stable *stable = runtime->stables;
        runtime->stables = stable->all_next;
        lock_deinit(&stable->lock);
        mem_free(stable);
    }
}

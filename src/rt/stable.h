/* stable.h - memory of objects that a late look may still reach after they have ended.
 *
 * A task that is being woken by an object may be interrupted at the same time, and then
 * looks at the object's lock although the object has ended. So objects that tasks wait
 * on begin with a struct stable: their memory is used again only for others that do, the
 * lock lives as long as the runtime, and what is found there is something of its kind.
 *
 * Owner: the runtime. Threads: its workers.
 */
#ifndef WEIR_RT_STABLE_H
#define WEIR_RT_STABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <weir/defs.h>

#include "rt/lock.h"

/* 256, 512, 1024, 2048 bytes; and one more class for those with locks of their own. */
enum { STABLE_KEPT = 4, STABLE_CLASSES = 5, STABLE_BYTES_MAX = 2048, STABLE_KEPT_BYTES = 1024 };

struct stable {
    struct lock lock;
    weir_runtime *runtime;
    struct stable *next; /* in the list of free ones */
    struct stable *all_next;
    uint32_t number; /* of its runtime's, in the order they were made: what locks are sorted by */
    uint8_t size_class;
    bool shared; /* the lock is taken: several workers, or foreign threads; never changes */
};

/* An object of `bytes` that begins with a struct stable; the rest is zeroed. NULL: no
 * memory. On a worker. */
void *stable_alloc(weir_runtime *runtime, size_t bytes);

/* The same for the one kind of object that has more which a late look may reach, from
 * `kept_from` on: that was zeroed once, and is as the last object has left it. */
void *stable_alloc_kept(weir_runtime *runtime, size_t bytes, size_t kept_from);

/* The object has ended; nobody waits on it any more. Takes NULL. On a worker. */
void stable_free(struct stable *take_stable);

/* With the runtime. */
void stable_free_all(weir_runtime *runtime);

#endif

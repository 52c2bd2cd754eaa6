/* handle.h - values that name objects, and name nothing any more once they are closed.
 *
 * What a program holds of a connection, a file, an end of a channel or a lock is called
 * a pointer and is none: it is a word that is looked up here. See docs/decisions/0012.
 *
 *     bits 63..31  serial, without its last bits: never given twice
 *     bits 30..26  enum handle_kind, never 0
 *     bits 25..4   slot in the table: as it stands, the distance in bytes
 *     bits  3..0   the last bits of the serial
 *
 * Every call of a program begins with a look-up, so the bits lie where that has least to do.
 *
 * Invariants: a slot holds the key, which is the word without its kind, of the one open handle
 * that it belongs to, or 0; slot 0 belongs to none, since its words without a serial have the
 * key 0, and holds a key of no word of its own; looking up reads nothing but slots, so that any
 * word may be looked up, also one of a runtime that has ended. The first slots lie in an array,
 * which takes no memory before they are used, and are found without reading anything else; those
 * beyond it in chunks. The table is the process's, since a handle may be shown to another runtime
 * by mistake, or to none; it is emptied with the last runtime.
 * Threads: any.
 */
#ifndef WEIR_RT_HANDLE_H
#define WEIR_RT_HANDLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/atomic.h"

enum handle_kind {
    HANDLE_NONE = 0,
    HANDLE_CONN,
    HANDLE_LISTENER,
    HANDLE_UDP,
    HANDLE_FILE,
    HANDLE_SIGNALS,
    HANDLE_PROCESS,
    HANDLE_PROCESS_POOL,
    HANDLE_TX,
    HANDLE_RX,
    HANDLE_EVENT,
    HANDLE_SEMAPHORE,
    HANDLE_MUTEX,
    HANDLE_RWLOCK,
    HANDLE_WATCH,
    HANDLE_SNAPSHOT,
    HANDLE_BROADCAST,
    HANDLE_SUBSCRIBER,
    HANDLE_ACTOR,
    HANDLE_POOL,
    HANDLE_PIPELINE,
    HANDLE_RATE,
    HANDLE_LIMIT,
    HANDLE_SHED,
    HANDLE_BREAKER,
    HANDLE_RETRY_BUDGET,
    HANDLE_DEAD_LETTERS,
    HANDLE_GUARD,
    HANDLE_STORE,
    HANDLE_JOB_WORKER,
    HANDLE_OUTBOX,
    HANDLE_KINDS,
};

enum {
    HANDLE_SLOT_SHIFT = 4, /* of the size of a slot */
    HANDLE_SLOT_BITS = 22,
    HANDLE_KIND_SHIFT = HANDLE_SLOT_SHIFT + HANDLE_SLOT_BITS,
    HANDLE_KIND_BITS = 5,
    HANDLE_SERIAL_SHIFT = HANDLE_KIND_SHIFT + HANDLE_KIND_BITS,
    HANDLE_NEAR_BITS = 18,
    HANDLES_NEAR = 1 << HANDLE_NEAR_BITS, /* slots that lie in the array */
    /* Open at one time, without slot 0; descriptors end before that. */
    HANDLES_MAX = (1 << HANDLE_SLOT_BITS) - 1,
};

_Static_assert(sizeof(uintptr_t) == 8, "a handle needs the bits of a 64-bit pointer");
_Static_assert(HANDLE_KINDS <= 1 << HANDLE_KIND_BITS, "every kind has a number");

struct handle_slot {
    ATOM(uint64_t) key;  /* of the open handle, or 0 */
    ATOM(void *) object; /* of the open handle; of a free slot: the next free one */
};

_Static_assert(sizeof(struct handle_slot) == 1 << HANDLE_SLOT_SHIFT, "a slot is two words");

extern struct handle_slot handle_slots[HANDLES_NEAR];

/* A handle for `keep_object`. -ENOMEM; -ENFILE: HANDLES_MAX are open. */
int handle_open(enum handle_kind kind, void *keep_object, void **ret_handle);

/* The handle names nothing any more. It is one that is open. */
void handle_close(void *take_handle);

/* The same as handle_object for a word that is not that of a slot of the array. */
__attribute__((cold)) void *handle_object_far(const void *handle, enum handle_kind kind);

/* What an open handle of this kind names, in whose slot it is; NULL: it is none. Another thread may
 * close it at this moment, and its slot be another's: so the object is read before the key, which
 * is changed before the object is. */
static inline void *handle_slot_object(struct handle_slot *slot, const void *handle,
                                       enum handle_kind kind)
{
    /* No slot's, if it is of another kind. */
    uint64_t key = (uint64_t)(uintptr_t)handle - ((uint64_t)kind << HANDLE_KIND_SHIFT);
    void *object = atom_load_acquire(&slot->object);

    if (__builtin_expect(atom_load(&slot->key) != key, 0)) return NULL;
    if (!object) __builtin_unreachable(); /* an open handle names something */
    return object;
}

/* What an open handle of this kind names, or NULL: it is none, or its slot is not in the array. For
 * calls that have a slower way for those as well, so that the common one needs no frame. */
static inline void *handle_object_near(const void *handle, enum handle_kind kind)
{
    uint64_t at = (uint64_t)(uintptr_t)handle & (uint64_t)(HANDLES_NEAR - 1) << HANDLE_SLOT_SHIFT;
    char *slots = (char *)handle_slots;

    return handle_slot_object((struct handle_slot *)(void *)(slots + at), handle, kind);
}

/* What an open handle of this kind names; NULL: it is none. Whoever was given the handle came
 * after its opening. */
static inline void *handle_object(const void *handle, enum handle_kind kind)
{
    void *object = handle_object_near(handle, kind);
    return __builtin_expect(object != NULL, 1) ? object : handle_object_far(handle, kind);
}

/* A runtime begins, and ends: the table lives from the first to the last. */
void handles_begin(void);
void handles_end(void);
unsigned handles_users(void); /* how many have begun and not ended */
/* In a forked child: another thread may have been at it when the process was copied. */
void handles_forget_in_child(void);

#endif

/* handle.c - the table of open handles. */
#include "rt/handle.h"

#include <assert.h>
#include <errno.h>

#include "rt/lock.h"
#include "rt/mem.h"

enum {
    SERIAL_LOW = (1 << HANDLE_SLOT_SHIFT) - 1,
    NOTHING_FREE = HANDLES_MAX + 1,
    /* Slots beyond the array. Chunks are counted from its beginning, where there are none. */
    CHUNK_BITS = 12,
    CHUNK_SLOTS = 1 << CHUNK_BITS,
    CHUNKS = 1 << (HANDLE_SLOT_BITS - CHUNK_BITS),
};
/* Its bits name the last slot. */
#define KEY_OF_NOTHING UINT64_MAX

struct handle_slot handle_slots[HANDLES_NEAR];
static ATOM(struct handle_slot *) chunks[CHUNKS];

/* Process-wide by nature, see handle.h. The lock covers all of these and the adding and
 * freeing of chunks; it is taken once when a handle is opened and once when it is
 * closed, never to look one up. */
static struct {
    struct lock lock;
    unsigned free;   /* index of the first slot that was used and is free, or NOTHING_FREE */
    unsigned unused; /* from here on the slots were never used */
    unsigned count;  /* of slots that there are */
    unsigned users;  /* runtimes */
    uint64_t serial; /* of the last handle; goes on when the table is emptied */
} table = {
    .lock = {PTHREAD_MUTEX_INITIALIZER}, .free = NOTHING_FREE, .unused = 1, .count = HANDLES_NEAR};

static uint64_t key_of(unsigned index, uint64_t serial)
{
    return serial >> HANDLE_SLOT_SHIFT << HANDLE_SERIAL_SHIFT |
           (uint64_t)index << HANDLE_SLOT_SHIFT | (serial & SERIAL_LOW);
}

static unsigned index_of(uint64_t word)
{
    return (unsigned)(word >> HANDLE_SLOT_SHIFT) & HANDLES_MAX;
}

/* NULL: there is none. */
static struct handle_slot *slot_at(unsigned index)
{
    struct handle_slot *chunk;

    if (index < HANDLES_NEAR) return &handle_slots[index];
    /* Acquired: a word that nobody was given comes after no opening. */
    chunk = atom_load_acquire(&chunks[index >> CHUNK_BITS]);
    return chunk ? &chunk[index & (CHUNK_SLOTS - 1)] : NULL;
}

void *handle_object_far(const void *handle, enum handle_kind kind)
{
    unsigned index = index_of((uint64_t)(uintptr_t)handle);
    struct handle_slot *slot = index < HANDLES_NEAR ? NULL : slot_at(index);
    return slot ? handle_slot_object(slot, handle, kind) : NULL;
}

/* The lock is held. The object's place holds the index of the next one. Released: who sees
 * it, or what comes after it, sees that the handle was closed (handle_slot_object). */
static void slot_free(unsigned index)
{
    atom_store_release(&slot_at(index)->object, (void *)(uintptr_t)table.free);
    table.free = index;
}

/* The lock is held. */
static int add_chunk(void)
{
    struct handle_slot *chunk;

    if (table.count > HANDLES_MAX) return -ENFILE;
    chunk = mem_alloc_zeroed(CHUNK_SLOTS * sizeof *chunk);
    if (!chunk) return -ENOMEM;
    atom_store_release(&chunks[table.count >> CHUNK_BITS], chunk);
    table.count += CHUNK_SLOTS;
    return 0;
}

/* The lock is held. A slot that nobody has, in *ret_index. */
static int slot_take(unsigned *ret_index)
{
    int r = 0;

    if (table.free != NOTHING_FREE) {
        *ret_index = table.free;
        table.free = (unsigned)(uintptr_t)atom_load(&slot_at(table.free)->object);
        return 0;
    }
    if (table.unused == table.count) r = add_chunk();
    if (r == 0) *ret_index = table.unused++;
    return r;
}

int handle_open(enum handle_kind kind, void *keep_object, void **ret_handle)
{
    struct handle_slot *slot;
    unsigned index;
    uint64_t key;
    int r;

    lock_acquire(&table.lock);
    r = slot_take(&index);
    if (r == 0) {
        key = key_of(index, ++table.serial);
        slot = slot_at(index);
        atom_store_release(&slot->object, keep_object);
        atom_store_release(&slot->key, key);
        *ret_handle = (void *)(uintptr_t)(key + ((uint64_t)kind << HANDLE_KIND_SHIFT));
    }
    lock_release(&table.lock);
    return r;
}

void handle_close(void *take_handle)
{
    uint64_t word = (uint64_t)(uintptr_t)take_handle;
    uint64_t kind = (uint64_t)((1 << HANDLE_KIND_BITS) - 1) << HANDLE_KIND_SHIFT;
    unsigned index = index_of(word);
    struct handle_slot *slot = slot_at(index);

    assert(slot);
    assert(atom_load(&slot->key) == (word & ~kind));
    atom_store(&slot->key, 0);
    lock_acquire(&table.lock);
    slot_free(index);
    lock_release(&table.lock);
}

void handles_begin(void)
{
    lock_acquire(&table.lock);
    atom_store(&handle_slots[0].key, KEY_OF_NOTHING);
    table.users++;
    lock_release(&table.lock);
}

/* The lock is held. Handles that nobody has closed name nothing from here on; their objects are
 * the program's leak, as before. */
static void empty(void)
{
    unsigned near = table.unused < HANDLES_NEAR ? table.unused : HANDLES_NEAR;

    for (unsigned i = 1; i < near; i++) {
        atom_store(&handle_slots[i].key, 0);
        atom_store_release(&handle_slots[i].object, NULL);
    }
    while (table.count > HANDLES_NEAR) {
        table.count -= CHUNK_SLOTS;
        mem_free(atom_exchange(&chunks[table.count >> CHUNK_BITS], NULL));
    }
    table.free = NOTHING_FREE;
    table.unused = 1;
}

void handles_end(void)
{
    lock_acquire(&table.lock);
    if (--table.users == 0) empty();
    lock_release(&table.lock);
}

unsigned handles_users(void)
{
    unsigned users;

    lock_acquire(&table.lock);
    users = table.users;
    lock_release(&table.lock);
    return users;
}

void handles_forget_in_child(void)
{
    lock_init(&table.lock);
    /* What the parent had open stays known here, so that it is told from what is closed;
     * hence the table is not emptied any more. What is free is found anew. */
    table.count = HANDLES_NEAR;
    while (table.count <= HANDLES_MAX && slot_at(table.count)) table.count += CHUNK_SLOTS;
    table.users = table.unused > 1;
    table.free = NOTHING_FREE;
    for (unsigned i = 1; i < table.unused; i++) {
        if (atom_load(&slot_at(i)->key) == 0) slot_free(i);
    }
}

/* handle.c - the table of open handles. */
#include "rt/handle.h"

#include <assert.h>
#include <errno.h>

#include "rt/lock.h"
#include "rt/mem.h"

enum { SERIAL_LOW = (1 << HANDLE_SLOT_SHIFT) - 1, NOTHING_FREE = HANDLES_MAX + 1 };
/* Its bits name the last slot. */
#define KEY_OF_NOTHING UINT64_MAX

ATOM(struct handle_slot *) handle_chunks[HANDLE_CHUNKS];

/* Process-wide by nature, see handle.h. The lock covers all of these and the adding and
 * freeing of chunks; it is taken once when a handle is opened and once when it is
 * closed, never to look one up. */
static struct {
    struct lock lock;
    unsigned free;   /* index of the first slot that was used and is free, or NOTHING_FREE */
    unsigned unused; /* from here on the slots of all chunks were never used */
    unsigned chunk_count;
    unsigned users;  /* runtimes */
    uint64_t serial; /* of the last handle; goes on when the table is freed */
} table = {.lock = {PTHREAD_MUTEX_INITIALIZER}, .free = NOTHING_FREE};

static uint64_t key_of(unsigned index, uint64_t serial)
{
    return (uint64_t)(index >> HANDLE_SLOT_BITS) << HANDLE_CHUNK_SHIFT |
           (uint64_t)(index & (HANDLE_CHUNK_SLOTS - 1)) << HANDLE_SLOT_SHIFT |
           /* Without those that would be the chunk's: it is then as if it began anew. */
           (serial >> HANDLE_SLOT_SHIFT << HANDLE_SERIAL_SHIFT &
            ((UINT64_C(1) << HANDLE_CHUNK_SHIFT) - 1)) |
           (serial & SERIAL_LOW);
}

static unsigned index_of(uint64_t word)
{
    return (unsigned)(word >> HANDLE_CHUNK_SHIFT) << HANDLE_SLOT_BITS |
           ((unsigned)(word >> HANDLE_SLOT_SHIFT) & (HANDLE_CHUNK_SLOTS - 1));
}

static struct handle_slot *slot_at(unsigned index)
{
    struct handle_slot *chunk = atom_load(&handle_chunks[index >> HANDLE_SLOT_BITS]);
    return &chunk[index & (HANDLE_CHUNK_SLOTS - 1)];
}

/* The lock is held. The object's place holds the index of the next one. Released: who sees
 * it, or what comes after it, sees that the handle was closed (handle_object). */
static void slot_free(unsigned index)
{
    atom_store_release(&slot_at(index)->object, (void *)(uintptr_t)table.free);
    table.free = index;
}

/* The lock is held. */
static int add_chunk(void)
{
    unsigned first = table.chunk_count * HANDLE_CHUNK_SLOTS;
    struct handle_slot *chunk;

    if (table.chunk_count == HANDLE_CHUNKS) return -ENFILE;
    chunk = mem_alloc_zeroed(HANDLE_CHUNK_SLOTS * sizeof *chunk);
    if (!chunk) return -ENOMEM;
    atom_store_release(&handle_chunks[table.chunk_count++], chunk);
    if (first == 0) atom_store(&chunk->key, KEY_OF_NOTHING);
    table.unused = first == 0 ? 1 : first;
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
    if (table.unused == table.chunk_count * HANDLE_CHUNK_SLOTS) r = add_chunk();
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

    assert(atom_load(&slot->key) == (word & ~kind));
    atom_store(&slot->key, 0);
    lock_acquire(&table.lock);
    slot_free(index);
    lock_release(&table.lock);
}

void handles_begin(void)
{
    lock_acquire(&table.lock);
    table.users++;
    lock_release(&table.lock);
}

void handles_end(void)
{
    lock_acquire(&table.lock);
    if (--table.users == 0) {
        /* Handles that nobody has closed name nothing from here on; their objects are
         * the program's leak, as before. */
        while (table.chunk_count > 0) {
            ATOM(struct handle_slot *) *chunk = &handle_chunks[--table.chunk_count];
            mem_free(atom_exchange(chunk, NULL));
        }
        table.free = NOTHING_FREE;
        table.unused = 0;
    }
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
     * hence the table is not freed any more. What is free is found anew. */
    table.chunk_count = 0;
    while (table.chunk_count < HANDLE_CHUNKS && atom_load(&handle_chunks[table.chunk_count])) {
        table.chunk_count++;
    }
    table.users = table.chunk_count > 0;
    table.free = NOTHING_FREE;
    table.unused = table.chunk_count * HANDLE_CHUNK_SLOTS;
    for (unsigned i = 0; i < table.chunk_count * HANDLE_CHUNK_SLOTS; i++) {
        if (atom_load(&slot_at(i)->key) == 0) slot_free(i);
    }
}

/* handle.c - the table of open handles. */
#include "rt/handle.h"

#include <assert.h>
#include <errno.h>

#include "rt/lock.h"
#include "rt/mem.h"

enum { SERIAL_SHIFT = HANDLE_KIND_BITS + HANDLE_INDEX_BITS, NOTHING_FREE = HANDLES_MAX };

ATOM(struct handle_slot *) handle_chunks[HANDLE_CHUNKS];

/* Process-wide by nature, see handle.h. The lock covers all of these and the adding and
 * freeing of chunks; it is taken once when a handle is opened and once when it is
 * closed, never to look one up. */
static struct {
    struct lock lock;
    unsigned free; /* index of the first free slot, or NOTHING_FREE */
    unsigned chunk_count;
    unsigned users;  /* runtimes */
    uint64_t serial; /* of the last handle; goes on when the table is freed */
} table = {.lock = {PTHREAD_MUTEX_INITIALIZER}, .free = NOTHING_FREE};

static struct handle_slot *slot_at(unsigned index)
{
    struct handle_slot *chunk = atom_load(&handle_chunks[index >> HANDLE_CHUNK_BITS]);
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
    for (unsigned i = HANDLE_CHUNK_SLOTS; i-- > 0;) slot_free(first + i);
    return 0;
}

int handle_open(enum handle_kind kind, void *keep_object, void **ret_handle)
{
    struct handle_slot *slot;
    uint64_t word = (uint64_t)kind;
    int r;

    lock_acquire(&table.lock);
    r = table.free == NOTHING_FREE ? add_chunk() : 0;
    if (r == 0) {
        word |= (uint64_t)table.free << HANDLE_KIND_BITS | ++table.serial << SERIAL_SHIFT;
        slot = slot_at(table.free);
        table.free = (unsigned)(uintptr_t)atom_load(&slot->object);
        atom_store_release(&slot->object, keep_object);
        atom_store_release(&slot->word, word);
        *ret_handle = (void *)(uintptr_t)word;
    }
    lock_release(&table.lock);
    return r;
}

void handle_close(void *take_handle)
{
    uint64_t word = (uint64_t)(uintptr_t)take_handle;
    unsigned index = (unsigned)(word >> HANDLE_KIND_BITS) & (HANDLES_MAX - 1);
    struct handle_slot *slot = slot_at(index);

    assert(atom_load(&slot->word) == word);
    atom_store(&slot->word, 0);
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
    }
    lock_release(&table.lock);
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
    for (unsigned i = 0; i < table.chunk_count * HANDLE_CHUNK_SLOTS; i++) {
        if (atom_load(&slot_at(i)->word) == 0) slot_free(i);
    }
}

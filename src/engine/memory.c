/* memory.c - slabs and tables on one hook. */
#include "engine/memory.h"

#include <errno.h>

void *memory_resize(struct memory *memory, void *block, size_t bytes_before, size_t bytes)
{
    void *moved = memory->resize(memory->arg, block, bytes_before, bytes);
    if (bytes > 0 && !moved) return NULL;
    memory->used += bytes;
    memory->used -= bytes_before;
    return moved;
}

/* ---- Slabs ---- */

void slab_init(struct slab *slab, size_t row_bytes)
{
    memset(slab, 0, sizeof *slab);
    slab->row_bytes = (uint32_t)((row_bytes + 7) / 8 * 8);
}

static size_t chunk_bytes(const struct slab *slab)
{
    return (size_t)slab->row_bytes << slab_shift(slab->row_bytes);
}

void slab_deinit(struct slab *slab, struct memory *memory)
{
    for (uint32_t i = 0; i < slab->chunk_count; i++) {
        memory_resize(memory, slab->chunks[i], chunk_bytes(slab), 0);
    }
    if (slab->chunks) { memory_resize(memory, slab->chunks, slab->chunk_room * sizeof(char *), 0); }
    slab_init(slab, slab->row_bytes);
}

static int slab_add_chunk(struct slab *slab, struct memory *memory)
{
    char *chunk;
    if (slab->chunk_count == slab->chunk_room) {
        uint32_t room = slab->chunk_room ? slab->chunk_room * 2 : 4;
        char **chunks = memory_resize(memory, slab->chunks, slab->chunk_room * sizeof *chunks,
                                      room * sizeof *chunks);
        if (!chunks) return -ENOMEM;
        slab->chunks = chunks;
        slab->chunk_room = room;
    }
    if (slab->chunk_count == UINT32_MAX >> slab_shift(slab->row_bytes)) return -ENOMEM;
    chunk = memory_resize(memory, NULL, 0, chunk_bytes(slab));
    if (!chunk) return -ENOMEM;
    slab->chunks[slab->chunk_count++] = chunk;
    /* Nobody has the number 0. */
    slab->left += (1u << slab_shift(slab->row_bytes)) - (slab->chunk_count == 1);
    return 0;
}

int slab_grow(struct slab *slab, struct memory *memory, uint32_t count)
{
    while (slab->left < count) {
        int r = slab_add_chunk(slab, memory);
        if (r < 0) return r;
    }
    return 0;
}

uint32_t slab_take(struct slab *slab)
{
    uint32_t number = slab->free;
    assert(slab->left > 0);
    if (number) {
        memcpy(&slab->free, slab_at(slab, number), sizeof slab->free);
    } else {
        number = ++slab->last;
    }
    slab->taken++;
    slab->left--;
    memset(slab_at(slab, number), 0, slab->row_bytes);
    return number;
}

void slab_give(struct slab *slab, uint32_t number)
{
    memcpy(slab_at(slab, number), &slab->free, sizeof slab->free);
    slab->free = number;
    slab->taken--;
    slab->left++;
}

/* ---- Tables ---- */

static size_t table_bytes(uint32_t room)
{
    return (size_t)room * (sizeof(uint32_t) + 1);
}

void table_deinit(struct table *table, struct memory *memory)
{
    if (table->slots) memory_resize(memory, table->slots, table_bytes(table->room), 0);
    *table = (struct table){.neighbours = table->neighbours};
}

/* Each number is in a row of its own, and goes to a place of its own: several waits for memory go
 * on at the same time if all hashes are asked for before the first number is put. */
static void table_move(const struct table *from, struct table *to, table_hash_fn hash,
                       const void *arg)
{
    enum { AT_ONCE = 32 };
    uint64_t hashes[AT_ONCE];
    uint32_t numbers[AT_ONCE];
    uint32_t at = 0;

    while (at < from->room) {
        uint32_t count = 0;

        for (; at < from->room && count < AT_ONCE; at++) {
            if (!from->slots[at]) continue;
            numbers[count] = from->slots[at];
            hashes[count] = hash(arg, numbers[count]);
            table_foresee(to, hashes[count++]);
        }
        for (uint32_t i = 0; i < count; i++) table_insert(to, hashes[i], numbers[i]);
    }
}

int table_grow(struct table *table, struct memory *memory, uint32_t count, table_hash_fn hash,
               const void *arg)
{
    struct table bigger = {.room = table->room ? table->room : 16, .neighbours = table->neighbours};
    uint64_t wanted = (uint64_t)table->count + count;

    while (wanted * 4 > (uint64_t)bigger.room * 3) {
        if (bigger.room > UINT32_MAX / 4) return -ENOMEM;
        bigger.room *= 2;
    }
    bigger.count_max = bigger.room / 4 * 3;
    bigger.bits = (uint8_t)__builtin_ctz(bigger.room);
    bigger.slots = memory_resize(memory, NULL, 0, table_bytes(bigger.room));
    if (!bigger.slots) return -ENOMEM;
    memset(bigger.slots, 0, table_bytes(bigger.room));
    table_move(table, &bigger, hash, arg);
    table_deinit(table, memory);
    *table = bigger;
    return 0;
}

void table_insert(struct table *table, uint64_t hash, uint32_t number)
{
    uint32_t mask = table->room - 1;
    uint32_t begin = table_place(table, hash);
    uint32_t at = begin;
    uint32_t slot;

    assert(table->count < table->room);
    while (table->slots[slot = table_slot(table, at)]) at = (at + 1) & mask;
    table->slots[slot] = number;
    table_ways(table)[slot] = table_way((at - begin) & mask);
    table->count++;
}

bool table_remove(struct table *table, uint64_t hash, uint32_t number, table_hash_fn hash_of,
                  const void *arg)
{
    uint8_t *ways = table_ways(table);
    uint32_t mask = table->room - 1;
    uint32_t hole, hole_slot, slot;

    if (table->room == 0) return false;
    hole = table_place(table, hash);
    while (table->slots[hole_slot = table_slot(table, hole)] != number) {
        if (!table->slots[hole_slot]) return false;
        hole = (hole + 1) & mask;
    }
    /* Move back what would not be found any more past the hole. */
    for (uint32_t at = (hole + 1) & mask; table->slots[slot = table_slot(table, at)];
         at = (at + 1) & mask) {
        uint32_t way = ways[slot];
        if (way == TABLE_FAR) {
            way = (at - table_place(table, hash_of(arg, table->slots[slot]))) & mask;
        }
        if (way < ((at - hole) & mask)) continue;
        table->slots[hole_slot] = table->slots[slot];
        ways[hole_slot] = table_way(way - ((at - hole) & mask));
        hole = at;
        hole_slot = slot;
    }
    table->slots[hole_slot] = 0;
    table->count--;
    return true;
}

static uint64_t fold(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

uint64_t hash_bytes(uint64_t seed, const void *bytes, size_t count)
{
    const unsigned char *from = bytes;
    uint64_t hash = seed ^ UINT64_C(0x9e3779b97f4a7c15);
    uint64_t word;

    for (; count > 8; from += 8, count -= 8) {
        memcpy(&word, from, 8);
        hash = fold(hash ^ word, UINT64_C(0xa0761d6478bd642f) ^ seed);
    }
    word = 0;
    if (count > 0) memcpy(&word, from, count);
    hash = fold(hash ^ word, UINT64_C(0xe7037ed1a0b428db) ^ count);
    return hash_number(hash ^ seed);
}

/* memory.h - the engine's memory: one hook, one count, numbered rows, and tables of numbers.
 *
 * Rows are named by numbers of 32 bits and never move, so that links between them take 4 bytes
 * and survive growth. Number 0 is nobody.
 *
 * Invariants: `used` is what the hook was asked for and has not got back. What slab_ensure() has
 * promised, slab_take() gives without asking the hook: so a decision that has begun never fails.
 */
#ifndef WEIR_ENGINE_MEMORY_H
#define WEIR_ENGINE_MEMORY_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* As realloc: bytes 0 gives the block back and returns NULL, NULL is a new one. */
typedef void *(*engine_resize_fn)(void *arg, void *block, size_t bytes_before, size_t bytes);

struct memory {
    engine_resize_fn resize;
    void *arg;
    size_t used;
};

void *memory_resize(struct memory *memory, void *block, size_t bytes_before, size_t bytes);

/* Rows of a chunk: few of the large ones, of which there are few. */
enum { SLAB_SHIFT = 8, SLAB_SHIFT_LARGE = 4, SLAB_ROW_BYTES_LARGE = 256 };
static inline unsigned slab_shift(size_t row_bytes)
{
    return row_bytes <= SLAB_ROW_BYTES_LARGE ? SLAB_SHIFT : SLAB_SHIFT_LARGE;
}

struct slab {
    char **chunks;
    uint32_t chunk_count;
    uint32_t chunk_room; /* of the array of chunks */
    uint32_t row_bytes;
    uint32_t taken;
    uint32_t left; /* so many more can be taken */
    uint32_t last; /* the highest number that ever was taken */
    uint32_t free; /* given back: the first 4 bytes of a row name the next one */
};

void slab_init(struct slab *slab, size_t row_bytes);
void slab_deinit(struct slab *slab, struct memory *memory);
/* 0 or -ENOMEM: the next `count` rows are there. */
int slab_grow(struct slab *slab, struct memory *memory, uint32_t count);
static inline int slab_ensure(struct slab *slab, struct memory *memory, uint32_t count)
{
    if (slab->left >= count) return 0;
    return slab_grow(slab, memory, count);
}
/* A zeroed row; slab_ensure() came before. */
uint32_t slab_take(struct slab *slab);
void slab_give(struct slab *slab, uint32_t number);

/* For who knows how large the rows are: a constant costs no multiplication. */
static inline __attribute__((always_inline)) void *slab_row(const struct slab *slab,
                                                            uint32_t number, size_t row_bytes)
{
    assert(number - 1 < slab->last); /* not 0 */
    return slab->chunks[number >> slab_shift(row_bytes)] +
           (number & ((1u << slab_shift(row_bytes)) - 1)) * row_bytes;
}

static inline void *slab_at(const struct slab *slab, uint32_t number)
{
    return slab_row(slab, number, slab->row_bytes);
}

/* Numbers by hash: open addressing, no tombstones. Who uses it knows how to hash and compare. How
 * far each lies from its place is kept beside it, so that a look touches hardly a row but the one
 * that it is for: rows lie far apart, and each would be a wait for memory. */
#define TABLE_FAR 255 /* so far, or farther */
struct table {
    uint32_t *slots; /* numbers; behind them, in the same block, a byte for each: how far it is */
    uint32_t room;   /* a power of two, or 0 */
    uint32_t count;
    uint32_t count_max; /* that the room is for: fuller tables take long ways */
    uint8_t bits;       /* of the room */
    uint8_t neighbours; /* bits: see hash_in_order; set before anything is in it */
};

static inline uint8_t *table_ways(const struct table *table)
{
    return (uint8_t *)(table->slots + table->room);
}

static inline uint8_t table_way(uint32_t distance)
{
    return distance < TABLE_FAR ? (uint8_t)distance : TABLE_FAR;
}

typedef uint64_t (*table_hash_fn)(const void *arg, uint32_t number);

void table_deinit(struct table *table, struct memory *memory);
/* 0 or -ENOMEM: the next `count` insertions have room. */
int table_grow(struct table *table, struct memory *memory, uint32_t count, table_hash_fn hash,
               const void *arg);
static inline int table_ensure(struct table *table, struct memory *memory, uint32_t count,
                               table_hash_fn hash, const void *arg)
{
    if (table->count + (uint64_t)count <= table->count_max) return 0;
    return table_grow(table, memory, count, hash, arg);
}
void table_insert(struct table *table, uint64_t hash, uint32_t number);
/* False: it is not there. */
bool table_remove(struct table *table, uint64_t hash, uint32_t number, table_hash_fn hash_of,
                  const void *arg);

/* Where a hash belongs. Who does not find a free place there goes on to the next one; the places of
 * neighbours are far from each other, so that one who goes on does not meet all of another's. */
static inline uint32_t table_place(const struct table *table, uint64_t hash)
{
    uint32_t mask = table->room - 1;
    uint32_t low = mask >> table->neighbours;
    uint32_t neighbour = (uint32_t)hash & ((1u << table->neighbours) - 1);
    return ((uint32_t)(hash >> table->neighbours) & low) | (neighbour * (low + 1));
}

/* Which slot a place is: those of neighbours lie side by side. */
static inline uint32_t table_slot(const struct table *table, uint32_t place)
{
    return (place << table->neighbours | place >> (table->bits - table->neighbours)) &
           (table->room - 1);
}

/* Walks the numbers whose hash may be this one: `at` begins with TABLE_BEGIN; 0: no more. */
#define TABLE_BEGIN UINT32_MAX
static inline uint32_t table_next(const struct table *table, uint64_t hash, uint32_t *at)
{
    const uint32_t mask = table->room - 1;
    const uint8_t *ways;
    uint32_t begin;

    if (table->room == 0) return 0;
    ways = table_ways(table);
    begin = table_place(table, hash);
    *at = (*at == TABLE_BEGIN ? begin : *at + 1) & mask;
    for (;;) {
        uint32_t slot = table_slot(table, *at);
        if (!table->slots[slot] || ways[slot] == table_way((*at - begin) & mask))
            return table->slots[slot];
        *at = (*at + 1) & mask;
    }
}

/* A hash that who does not know the seed cannot foresee. */
uint64_t hash_bytes(uint64_t seed, const void *bytes, size_t count);

static inline uint64_t hash_number(uint64_t value)
{
    value ^= value >> 32;
    value *= UINT64_C(0xd6e8feb86659fd93);
    value ^= value >> 32;
    value *= UINT64_C(0xd6e8feb86659fd93);
    return value ^ value >> 32;
}

/* Of numbers that are given out one after the other: neighbours lie side by side in a table, so
 * that who goes through them in their order waits for memory once for several. Which of them comes
 * first is another one each time: of numbers far apart none is crowded. */
enum { HASH_NEIGHBOURS_BITS = 3 };
static inline uint64_t hash_in_order(uint64_t value)
{
    uint64_t hash = hash_number(value >> HASH_NEIGHBOURS_BITS);
    uint64_t neighbour = (value + (hash >> 61)) & ((1u << HASH_NEIGHBOURS_BITS) - 1);
    return hash << HASH_NEIGHBOURS_BITS | neighbour;
}

/* Somebody will look for this hash soon. */
static inline void table_foresee(const struct table *table, uint64_t hash)
{
    uint32_t at;

    if (table->room == 0) return;
    at = table_slot(table, table_place(table, hash));
    __builtin_prefetch(table->slots + at);
    __builtin_prefetch(table_ways(table) + at);
}

#endif

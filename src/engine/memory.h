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

enum { SLAB_CHUNK_ROWS = 256 };

struct slab {
    char **chunks;
    uint32_t chunk_count;
    uint32_t chunk_room; /* of the array of chunks */
    uint32_t row_bytes;
    uint32_t taken;
    uint32_t fresh; /* the lowest number that was never taken */
    uint32_t free;  /* given back: the first 4 bytes of a row name the next one */
};

void slab_init(struct slab *slab, size_t row_bytes);
void slab_deinit(struct slab *slab, struct memory *memory);
/* 0 or -ENOMEM: the next `count` rows are there. */
int slab_ensure(struct slab *slab, struct memory *memory, uint32_t count);
/* A zeroed row; slab_ensure() came before. */
uint32_t slab_take(struct slab *slab);
void slab_give(struct slab *slab, uint32_t number);

static inline void *slab_at(const struct slab *slab, uint32_t number)
{
    assert(number > 0 && number < slab->fresh);
    return slab->chunks[number / SLAB_CHUNK_ROWS] +
           (size_t)(number % SLAB_CHUNK_ROWS) * slab->row_bytes;
}

/* Numbers by hash: open addressing, no tombstones. Who uses it knows how to hash and compare. */
struct table {
    uint32_t *slots;
    uint32_t room; /* a power of two, or 0 */
    uint32_t count;
};

typedef uint64_t (*table_hash_fn)(const void *arg, uint32_t number);

void table_deinit(struct table *table, struct memory *memory);
/* 0 or -ENOMEM: the next `count` insertions have room. */
int table_ensure(struct table *table, struct memory *memory, uint32_t count, table_hash_fn hash,
                 const void *arg);
void table_insert(struct table *table, uint64_t hash, uint32_t number);
void table_remove(struct table *table, uint64_t hash, uint32_t number, table_hash_fn hash_of,
                  const void *arg);

/* Walks the numbers whose hash may be this one: `at` begins with TABLE_BEGIN; 0: no more. */
#define TABLE_BEGIN UINT32_MAX
static inline uint32_t table_next(const struct table *table, uint64_t hash, uint32_t *at)
{
    if (table->room == 0) return 0;
    *at = (*at == TABLE_BEGIN ? (uint32_t)hash : *at + 1) & (table->room - 1);
    return table->slots[*at];
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

#endif

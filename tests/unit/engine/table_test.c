/* table_test.c - tables of numbers by hash: what is found, and how far it lies. */
#include <stdlib.h>

#include "engine/memory.h"
#include "harness/test.h"
#include "unit/policy/chance.h"

enum { NUMBERS = 3000 };

static uint64_t ids[NUMBERS + 1]; /* 0: not there */

static void *resize(void *arg, void *block, size_t bytes_before, size_t bytes)
{
    (void)arg, (void)bytes_before;
    if (bytes > 0) return realloc(block, bytes);
    free(block);
    return NULL;
}

static uint64_t hash_of(const void *arg, uint32_t number)
{
    (void)arg;
    return hash_in_order(ids[number]);
}

static uint32_t look_up(const struct table *table, uint64_t id, uint32_t *ret_looks)
{
    uint32_t at = TABLE_BEGIN;
    uint32_t found;

    *ret_looks = 0;
    while ((found = table_next(table, hash_in_order(id), &at)) != 0) {
        (*ret_looks)++;
        if (ids[found] == id) return found;
    }
    return 0;
}

static void put(struct table *table, struct memory *memory, uint32_t number, uint64_t id)
{
    CHECK_OK(table_ensure(table, memory, 1, hash_of, NULL));
    ids[number] = id;
    table_insert(table, hash_in_order(id), number);
}

static void take(struct table *table, uint32_t number)
{
    CHECK(table_remove(table, hash_in_order(ids[number]), number, hash_of, NULL));
    ids[number] = 0;
}

/* How far the rows lie from where they belong, on the average, in tenths. */
static uint64_t tenths_away(const struct table *table)
{
    uint64_t sum = 0;

    for (uint32_t slot = 0; slot < table->room; slot++) {
        if (table->slots[slot]) sum += table_ways(table)[slot];
    }
    return 10 * sum / table->count;
}

static void check_stride(uint64_t stride)
{
    struct memory memory = {.resize = resize};
    struct table table = {.neighbours = HASH_NEIGHBOURS_BITS};
    uint32_t looks;

    for (uint32_t i = 1; i <= NUMBERS; i++) put(&table, &memory, i, i * stride);
    test_note("ids %llu apart: %llu tenths of a place away, %u of %u", (unsigned long long)stride,
              (unsigned long long)tenths_away(&table), table.count, table.room);
    /* As full as it is (73 of 100), chance alone makes it 14. */
    CHECK_INT(tenths_away(&table), <, 40);
    for (uint32_t i = 1; i <= NUMBERS; i++) CHECK_INT(look_up(&table, i * stride, &looks), ==, i);
    for (uint32_t i = 1; i <= NUMBERS; i++) take(&table, i);
    CHECK_INT(table.count, ==, 0);
    table_deinit(&table, &memory);
    CHECK_INT(memory.used, ==, 0);
}

TEST(ids_lie_near_their_places_however_far_apart_they_are)
{
    for (uint64_t stride = 1; stride <= 4096; stride *= 2) check_stride(stride);
    check_stride(3);
    check_stride(1000);
}

/* Everybody's hash is one of three: who came late lies farther away than a byte says. */
static uint64_t crowded_hash_of(const void *arg, uint32_t number)
{
    (void)arg;
    return hash_number(number % 3);
}

static bool is_in_crowd(const struct table *table, uint32_t number)
{
    uint32_t at = TABLE_BEGIN;
    uint32_t found;

    while ((found = table_next(table, crowded_hash_of(NULL, number), &at)) != 0) {
        if (found == number) return true;
    }
    return false;
}

static void check_crowd(uint8_t neighbours)
{
    enum { CROWD = 1000 };
    struct memory memory = {.resize = resize};
    struct table table = {.neighbours = neighbours};
    uint64_t seed = 17;
    bool in[CROWD + 1] = {false};

    for (int i = 0; i < 6 * CROWD; i++) {
        uint32_t number = 1 + (uint32_t)chance_below(&seed, CROWD);
        uint64_t hash = crowded_hash_of(NULL, number);
        if (in[number]) {
            CHECK(table_remove(&table, hash, number, crowded_hash_of, NULL));
        } else {
            CHECK_OK(table_ensure(&table, &memory, 1, crowded_hash_of, NULL));
            table_insert(&table, hash, number);
        }
        in[number] = !in[number];
        if (i % 100 != 0) continue;
        for (uint32_t n = 1; n <= CROWD; n++) CHECK_INT(is_in_crowd(&table, n), ==, in[n]);
    }
    table_deinit(&table, &memory);
    CHECK_INT(memory.used, ==, 0);
}

TEST(a_table_finds_who_lies_farther_away_than_a_byte_says)
{
    check_crowd(0);
    check_crowd(HASH_NEIGHBOURS_BITS);
}

TEST(a_table_finds_what_is_in_it_and_nothing_else)
{
    struct memory memory = {.resize = resize};
    struct table table = {.neighbours = HASH_NEIGHBOURS_BITS};
    uint64_t seed = 5;
    uint32_t looks;

    for (int i = 0; i < 200000; i++) {
        uint32_t number = 1 + (uint32_t)chance_below(&seed, NUMBERS);
        if (ids[number]) {
            uint64_t id = ids[number];
            take(&table, number);
            CHECK_INT(look_up(&table, id, &looks), ==, 0);
            CHECK(!table_remove(&table, hash_in_order(id), number, hash_of, NULL));
        } else {
            put(&table, &memory, number, number + NUMBERS * (uint64_t)i);
            CHECK_INT(look_up(&table, ids[number], &looks), ==, number);
        }
    }
    for (uint32_t i = 1; i <= NUMBERS; i++) {
        if (!ids[i]) continue;
        CHECK_INT(look_up(&table, ids[i], &looks), ==, i);
        take(&table, i);
    }
    table_deinit(&table, &memory);
}

/* bulkhead_test.c - never more inside than the limit of the moment lets in. */
#include "policy/bulkhead.h"

#include "unit/policy/chance.h"

TEST(bulkhead_equals_its_model)
{
    uint64_t seed = chance_seed();
    struct bulkhead bulkhead;
    size_t inside = 0, limit = 8;

    bulkhead_init(&bulkhead, &(struct bulkhead_rules){.limit = limit});
    for (int step = 0; step < 100000; step++) {
        size_t count = 1 + chance_below(&seed, 4);
        switch (chance_below(&seed, 8)) {
        case 0:
            limit = 1 + chance_below(&seed, 16);
            bulkhead_resize(&bulkhead, limit);
            break;
        case 1:
        case 2:
        case 3: /* what is not inside cannot leave */
            CHECK_INT(bulkhead_leave(&bulkhead, count), ==, count <= inside);
            if (count <= inside) inside -= count;
            break;
        default:
            CHECK_INT(bulkhead_enter(&bulkhead, count), ==, inside + count <= limit);
            if (inside + count <= limit) inside += count;
        }
        CHECK_INT(bulkhead.inside, ==, inside);
    }
}

TEST(bulkhead_made_smaller_lets_nobody_in_until_enough_have_left)
{
    struct bulkhead bulkhead;

    bulkhead_init(&bulkhead, &(struct bulkhead_rules){.limit = 4});
    CHECK(bulkhead_enter(&bulkhead, 4));
    bulkhead_resize(&bulkhead, 2);
    CHECK(!bulkhead_enter(&bulkhead, 1));
    CHECK(bulkhead_leave(&bulkhead, 2));
    CHECK(!bulkhead_enter(&bulkhead, 1));
    CHECK(bulkhead_leave(&bulkhead, 1));
    CHECK(bulkhead_enter(&bulkhead, 1));
    CHECK(!bulkhead_enter(&bulkhead, SIZE_MAX));
}

/* histogram_test.c - against a sorted array of everything that was added. */
#include "base/histogram.h"

#include <stdlib.h>
#include <string.h>

#include "harness/test.h"

enum { VALUES_MAX = 20000 };

static uint64_t values[VALUES_MAX];
static struct histogram histogram, other, both;
static uint64_t seed;

static uint64_t random_u64(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

/* Spread over all powers of two, as waits are. */
static uint64_t random_value(unsigned bits_max)
{
    unsigned bits = (unsigned)(random_u64() % bits_max) + 1;
    return random_u64() & ((UINT64_C(1) << bits) - 1);
}

static int ascending(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

static uint64_t naive_quantile(size_t count, double q)
{
    size_t rank = (size_t)(q * (double)count);
    if ((double)rank < q * (double)count) rank++;
    if (rank == 0) rank = 1;
    return values[rank - 1];
}

static void check_within_one_percent(uint64_t got, uint64_t exact)
{
    uint64_t off = got > exact ? got - exact : exact - got;
    if (off * 100 > exact) {
        TEST_FAIL("%llu is more than 1 %% off %llu", (unsigned long long)got,
                  (unsigned long long)exact);
    }
}

TEST(histogram_buckets_are_in_order_and_hold_their_middle)
{
    unsigned last = 0;

    for (uint64_t value = 0; value < 100000; value++) {
        unsigned bucket = histogram_bucket(value);
        CHECK(bucket == last || bucket == last + 1);
        last = bucket;
    }
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        CHECK_INT(histogram_bucket(histogram_middle(i)), ==, i);
    }
    CHECK_INT(histogram_bucket(HISTOGRAM_VALUE_MAX), ==, HISTOGRAM_BUCKETS - 1);
    CHECK_INT(histogram_bucket(UINT64_MAX), ==, HISTOGRAM_BUCKETS - 1);
}

TEST(histogram_quantiles_are_within_one_percent_of_the_sorted_values)
{
    static const double shares[] = {0, 0.001, 0.25, 0.5, 0.9, 0.95, 0.99, 0.999, 1};

    for (seed = 1; seed < 60; seed++) {
        uint64_t state = seed;
        size_t count = (size_t)(random_u64() % VALUES_MAX) + 1;
        uint64_t sum = 0;

        test_note("seed %llu", (unsigned long long)state);
        histogram_init(&histogram);
        for (size_t i = 0; i < count; i++) {
            values[i] = random_value(HISTOGRAM_VALUE_BITS);
            sum += values[i];
            histogram_add(&histogram, values[i]);
        }
        qsort(values, count, sizeof values[0], ascending);
        CHECK_INT(histogram.count, ==, count);
        CHECK(histogram.sum == sum);
        CHECK(histogram.max == values[count - 1]);
        for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
            check_within_one_percent(histogram_quantile(&histogram, shares[i]),
                                     naive_quantile(count, shares[i]));
        }
        seed = state;
    }
}

TEST(histogram_merge_is_the_histogram_of_both)
{
    seed = 77;
    histogram_init(&histogram);
    histogram_init(&other);
    histogram_init(&both);
    for (int i = 0; i < 50000; i++) {
        uint64_t value = random_value(40);
        histogram_add(i % 3 ? &histogram : &other, value);
        histogram_add(&both, value);
    }
    histogram_merge(&histogram, &other);
    CHECK(memcmp(&histogram, &both, sizeof both) == 0);
}

TEST(histogram_counts_what_is_too_large_and_knows_the_largest)
{
    histogram_init(&histogram);
    CHECK_INT(histogram_quantile(&histogram, 0.5), ==, 0);
    histogram_add(&histogram, 10);
    histogram_add(&histogram, UINT64_C(1) << 50);
    CHECK_INT(histogram.count, ==, 2);
    CHECK_INT(histogram_quantile(&histogram, 0.5), ==, 10);
    CHECK(histogram_quantile(&histogram, 0.99) == UINT64_C(1) << 50);
}

TEST(histogram_counts_up_to_a_value)
{
    histogram_init(&histogram);
    for (uint64_t value = 1; value <= 10000; value++) histogram_add(&histogram, value);
    for (uint64_t value = 100; value <= 10000; value += 37) {
        check_within_one_percent(histogram_count_to(&histogram, value), value);
    }
    CHECK_INT(histogram_count_to(&histogram, 63), ==, 63);
    CHECK_INT(histogram_count_to(&histogram, UINT64_MAX), ==, 10000);
}

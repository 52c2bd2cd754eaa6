/* histogram.c - counting, merging, quantiles. */
#include "base/histogram.h"

#include <string.h>

uint64_t histogram_middle(unsigned bucket)
{
    unsigned shift;
    uint64_t low;

    if (bucket < 2 * HISTOGRAM_BAND_BUCKETS) return bucket; /* one value each */
    shift = (bucket >> HISTOGRAM_BAND_BITS) - 1;
    low = (uint64_t)(bucket - (shift << HISTOGRAM_BAND_BITS)) << shift;
    return low + (UINT64_C(1) << shift) / 2;
}

void histogram_init(struct histogram *histogram)
{
    memset(histogram, 0, sizeof *histogram);
}

void histogram_add_bucket(struct histogram *histogram, unsigned bucket, uint64_t times)
{
    histogram->buckets[bucket] += times;
    histogram->count += times;
}

void histogram_add(struct histogram *histogram, uint64_t value)
{
    histogram_add_bucket(histogram, histogram_bucket(value), 1);
    histogram->sum += value;
    if (value > histogram->max) histogram->max = value;
}

void histogram_merge(struct histogram *into, const struct histogram *from)
{
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) into->buckets[i] += from->buckets[i];
    into->count += from->count;
    into->sum += from->sum;
    if (from->max > into->max) into->max = from->max;
}

uint64_t histogram_quantile(const struct histogram *histogram, double q)
{
    double exact = q * (double)histogram->count;
    uint64_t rank = (uint64_t)exact;
    uint64_t seen = 0;

    if (histogram->count == 0) return 0;
    if ((double)rank < exact) rank++;
    if (rank == 0) rank = 1;
    /* The largest of all is known exactly, also beyond the last bucket. */
    if (rank >= histogram->count) return histogram->max;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += histogram->buckets[i];
        if (seen >= rank) {
            uint64_t middle = histogram_middle(i);
            return middle < histogram->max ? middle : histogram->max;
        }
    }
    return histogram->max;
}

uint64_t histogram_count_to(const struct histogram *histogram, uint64_t value)
{
    uint64_t seen = 0;

    for (unsigned i = 0; i < HISTOGRAM_BUCKETS && histogram_middle(i) <= value; i++) {
        seen += histogram->buckets[i];
    }
    return seen;
}

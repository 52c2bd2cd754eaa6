/* histogram.h - how often which values came, within 1 % of each.
 *
 * Log-linear: values below 64 are counted one by one; above that every power of two is
 * cut into 64 buckets of the same width. A bucket answers with its middle, so the answer
 * is off by at most 1/128 of the value. Values beyond HISTOGRAM_VALUE_MAX are counted in
 * the last bucket; `max` is always exact, and no quantile is above it.
 *
 * Buckets come in bands of 64 that lie side by side (a power of two, or the first 64
 * values), so that whoever counts for a long time can bring memory for a band when its
 * first value comes (watch/metrics.c).
 *
 * Invariants: fixed memory; merging two histograms is the histogram of both inputs; `count`
 * is the sum of the buckets. Threads: one at a time.
 */
#ifndef WEIR_BASE_HISTOGRAM_H
#define WEIR_BASE_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

enum {
    HISTOGRAM_BAND_BITS = 6,
    HISTOGRAM_BAND_BUCKETS = 1 << HISTOGRAM_BAND_BITS,
    HISTOGRAM_VALUE_BITS = 42, /* of nanoseconds: 73 minutes */
    HISTOGRAM_BANDS = HISTOGRAM_VALUE_BITS - HISTOGRAM_BAND_BITS + 1,
    HISTOGRAM_BUCKETS = HISTOGRAM_BANDS * HISTOGRAM_BAND_BUCKETS,
};
#define HISTOGRAM_VALUE_MAX ((UINT64_C(1) << HISTOGRAM_VALUE_BITS) - 1)

struct histogram {
    uint64_t count;
    uint64_t sum; /* wraps around; of nanoseconds that takes 584 years */
    uint64_t max;
    uint64_t buckets[HISTOGRAM_BUCKETS];
};

/* Which bucket a value is counted in. */
static inline unsigned histogram_bucket(uint64_t value)
{
    unsigned shift;

    if (value < HISTOGRAM_BAND_BUCKETS) return (unsigned)value;
    if (value > HISTOGRAM_VALUE_MAX) return HISTOGRAM_BUCKETS - 1;
    shift = 63u - (unsigned)__builtin_clzll(value) - HISTOGRAM_BAND_BITS;
    /* The leading bit of the mantissa counts as one band. */
    return (shift << HISTOGRAM_BAND_BITS) + (unsigned)(value >> shift);
}

/* The middle of the values that a bucket counts. */
uint64_t histogram_middle(unsigned bucket);

void histogram_init(struct histogram *histogram);
void histogram_add(struct histogram *histogram, uint64_t value);
/* `times` values of one bucket, whose sum and maximum the caller adds itself. */
void histogram_add_bucket(struct histogram *histogram, unsigned bucket, uint64_t times);
void histogram_merge(struct histogram *into, const struct histogram *from);

/* The value below or at which the share `q` (0 to 1) of all values lies: of the sorted
 * values the one at rank ceil(q * count), within 1 %. 0 if there are none. */
uint64_t histogram_quantile(const struct histogram *histogram, double q);

/* How many values are at most `value`, give or take those within 1 % of it. */
uint64_t histogram_count_to(const struct histogram *histogram, uint64_t value);

#endif

/* bucket.c - making a token bucket, changing it, and when it will have enough. */
#include "policy/bucket.h"

bool bucket_fits(const struct bucket_rules *rules)
{
    int64_t full;
    return rules->rate > 0 && rules->period_ns > 0 && rules->burst > 0 &&
           !__builtin_mul_overflow(rules->burst, rules->period_ns, &full);
}

void bucket_init(struct bucket *bucket, const struct bucket_rules *rules)
{
    bucket->rate = rules->rate;
    bucket->period = (uint64_t)rules->period_ns;
    bucket->full = rules->burst * bucket->period;
    bucket->level = bucket->full;
    bucket->at_ns = INT64_MIN; /* full: it does not matter since when */
}

void bucket_resize(struct bucket *bucket, uint64_t rate, uint64_t burst, int64_t now_ns)
{
    bucket_refill(bucket, now_ns);
    bucket->rate = rate;
    bucket->full = burst * bucket->period;
    if (bucket->level > bucket->full) bucket->level = bucket->full;
}

int64_t bucket_ready_ns(struct bucket *bucket, uint64_t tokens, int64_t now_ns)
{
    uint64_t missing;
    uint64_t wait_ns;
    int64_t ready_ns;

    bucket_refill(bucket, now_ns);
    if (!bucket_holds(bucket, tokens)) return INT64_MAX;
    if (tokens * bucket->period <= bucket->level) return now_ns;
    missing = tokens * bucket->period - bucket->level;
    wait_ns = missing / bucket->rate + (missing % bucket->rate != 0);
    /* From when the last came, which another worker may have seen a moment after `now_ns`. */
    if (__builtin_add_overflow(bucket->at_ns, wait_ns, &ready_ns)) return INT64_MAX;
    return ready_ns;
}

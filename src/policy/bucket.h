/* bucket.h - tokens that come at a rate, and are kept up to a burst.
 *
 *     level ──────▶ + rate for each nanosecond that passes, at most `full`
 *           ──────▶ - period_ns for each token that is taken
 *
 * It has no states but its level. That is counted in parts of a token: a token is
 * period_ns of them, and each nanosecond brings `rate`. So nothing is ever rounded, and over
 * any time no more than burst + rate × time / period are given, and no fewer to who takes all as
 * they come. (With a burst of one, what comes in the rest of the nanosecond in which it gets full
 * finds no place.)
 *
 * Invariants: level <= full; at_ns never goes back.
 */
#ifndef WEIR_POLICY_BUCKET_H
#define WEIR_POLICY_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/planted.h"

/* rate and burst are 1 or more, and burst × period_ns is at most INT64_MAX. */
struct bucket_rules {
    uint64_t rate;     /* tokens in a period */
    int64_t period_ns; /* 1 or more */
    uint64_t burst;    /* tokens that are kept at most */
};

struct bucket {
    uint64_t level;
    uint64_t full; /* burst × period */
    uint64_t rate;
    uint64_t period;
    int64_t at_ns; /* up to when tokens have come */
};

/* Whether the rules can be counted with. */
bool bucket_fits(const struct bucket_rules *rules);

/* It begins full. */
void bucket_init(struct bucket *bucket, const struct bucket_rules *rules);

/* Another rate and burst, the period as it is; what has come by now came at the old rate. */
void bucket_resize(struct bucket *bucket, uint64_t rate, uint64_t burst, int64_t now_ns);

/* What has come until now. */
static inline void bucket_refill(struct bucket *bucket, int64_t now_ns)
{
    uint64_t passed;
    uint64_t came;

    if (now_ns <= bucket->at_ns) return;
    passed = (uint64_t)now_ns - (uint64_t)bucket->at_ns;
    if (!PLANTED(RATE_REFILLED_TWICE)) bucket->at_ns = now_ns;
    if (__builtin_mul_overflow(passed, bucket->rate, &came) ||
        came >= bucket->full - bucket->level) {
        bucket->level = bucket->full;
    } else {
        bucket->level += came;
    }
}

/* Whether a bucket that is full has so many: if not, they never come. */
static inline bool bucket_holds(const struct bucket *bucket, uint64_t tokens)
{
    return tokens <= bucket->full / bucket->period;
}

/* Take them if they are there. */
static inline bool bucket_take(struct bucket *bucket, uint64_t tokens, int64_t now_ns)
{
    uint64_t parts;

    bucket_refill(bucket, now_ns);
    if (__builtin_mul_overflow(tokens, bucket->period, &parts) || parts > bucket->level) {
        return false;
    }
    bucket->level -= parts;
    return true;
}

/* Tokens that were taken come back unused. */
static inline void bucket_give_back(struct bucket *bucket, uint64_t tokens)
{
    uint64_t parts;

    if (__builtin_mul_overflow(tokens, bucket->period, &parts) ||
        parts > bucket->full - bucket->level) {
        bucket->level = bucket->full;
    } else {
        bucket->level += parts;
    }
}

/* The earliest time at which so many are there, if nobody takes any before; INT64_MAX: never. */
int64_t bucket_ready_ns(struct bucket *bucket, uint64_t tokens, int64_t now_ns);

/* Whole tokens that are there. */
static inline uint64_t bucket_tokens(const struct bucket *bucket)
{
    return bucket->level / bucket->period;
}

#endif

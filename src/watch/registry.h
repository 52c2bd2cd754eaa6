/* registry.h - how meters are kept: shared by metrics.c, which counts, and scrape.c, which
 * shows.
 *
 * Invariants: meters are only added, and `meter_count` is written after the meter; a shard
 * or a band that was published stays until the runtime ends.
 */
#ifndef WEIR_WATCH_REGISTRY_H
#define WEIR_WATCH_REGISTRY_H

#include "watch/metrics.h"

enum { REGISTRY_TABLE = 256, REGISTRY_CACHE = 64, REGISTRY_KINDS_MAX = 32 };

struct meter_band {
    ATOM(uint64_t) buckets[HISTOGRAM_BAND_BUCKETS];
};

/* A histogram that grows by bands; how many values it has is the sum of its buckets, so
 * that a reader beside a writer sees a histogram that could have been. */
struct meter_counts {
    ATOM(uint64_t) sum;
    ATOM(uint64_t) max;
    ATOM(struct meter_band *) bands[HISTOGRAM_BANDS];
};

struct meter_shard {
    struct lock lock; /* covers `living`, and what an object leaves behind */
    struct list living;
    void *memory;
    ATOM(uint64_t) values[METER_VALUES_MAX];
    struct meter_counts histograms[METER_HISTOGRAMS_MAX];
} __attribute__((aligned(64)));

struct meter {
    struct metrics *metrics;
    const struct meter_kind *kind;
    struct meter *hash_next;
    uint32_t hash;
    char name[METER_NAME_BYTES];
    char second[METER_NAME_BYTES];
    ATOM(struct meter_shard *) shards[]; /* of each worker, and of all other threads */
};

/* What a worker has found lately. */
struct meter_cache {
    struct meter *meters[REGISTRY_CACHE];
};

struct metrics {
    struct lock lock; /* covers the table, the kinds, and adding */
    unsigned shard_count;
    bool shared;
    struct meter *table[REGISTRY_TABLE];
    const struct meter_kind *kinds[REGISTRY_KINDS_MAX];
    unsigned kind_count;
    ATOM(uint64_t) refused; /* objects beyond the bound, or without memory */
    ATOM(uint64_t) lost;    /* figures for which there was no memory */
    ATOM(unsigned) meter_count;
    struct meter *meters[WEIR_METRICS_SERIES_MAX];
    struct meter_cache caches[]; /* of each worker */
};

/* All values of a meter now: METER_VALUES_MAX numbers. */
void meter_values(struct meter *meter, uint64_t *ret_values);

#endif

/* metrics.c - the registry of meters: finding, counting, reading. */
#include "watch/metrics.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "rt/mem.h"
#include "watch/registry.h"
#include "watch/text.h"

enum { CACHE_LINE = 64 };

/* ---- Finding ---- */

/* The registry is made with its first meter. */
static struct metrics *metrics_of(weir_runtime *runtime)
{
    struct metrics *metrics = atom_load_acquire(&runtime->metrics);
    struct metrics *none = NULL;

    if (metrics) return metrics;
    metrics = mem_alloc_zeroed(sizeof *metrics + runtime->worker_count * sizeof metrics->caches[0]);
    if (!metrics) return NULL;
    lock_init(&metrics->lock);
    metrics->shard_count = runtime->worker_count + 1;
    metrics->shared = runtime->shared;
    if (atom_cas(&runtime->metrics, &none, metrics)) return metrics;
    lock_deinit(&metrics->lock);
    mem_free(metrics);
    return none; /* another worker was first */
}

static uint32_t hash_string(uint32_t hash, const char *string)
{
    for (unsigned left = METER_NAME_BYTES - 1; left > 0 && *string; left--) {
        hash = (hash ^ (unsigned char)*string++) * 16777619u; /* FNV-1a */
    }
    return hash;
}

/* By hand: ThreadSanitizer watches strncmp in strict mode too (rt/sanitize.h). */
static bool same_name(const char *kept, const char *name)
{
    for (unsigned i = 0; i < METER_NAME_BYTES - 1; i++) {
        if (kept[i] != name[i]) return false;
        if (!kept[i]) break;
    }
    return true;
}

static bool is_it(const struct meter *meter, uint32_t hash, const struct meter_kind *kind,
                  const char *name, const char *second)
{
    return meter->hash == hash && meter->kind == kind && same_name(meter->name, name) &&
           same_name(meter->second, second);
}

/* The lock is held. */
static void note_kind(struct metrics *metrics, const struct meter_kind *kind)
{
    for (unsigned i = 0; i < metrics->kind_count; i++) {
        if (metrics->kinds[i] == kind) return;
    }
    assert(metrics->kind_count < REGISTRY_KINDS_MAX);
    assert(kind->value_count <= METER_VALUES_MAX);
    assert(kind->histogram_count <= METER_HISTOGRAMS_MAX);
    metrics->kinds[metrics->kind_count++] = kind;
}

/* The lock is held. */
static struct meter *meter_new(struct metrics *metrics, uint32_t hash,
                               const struct meter_kind *kind, const char *name, const char *second)
{
    unsigned count = atom_load(&metrics->meter_count);
    struct meter *meter;

    if (count == WEIR_METRICS_SERIES_MAX) return NULL;
    meter = mem_alloc_zeroed(sizeof *meter + metrics->shard_count * sizeof meter->shards[0]);
    if (!meter) return NULL;
    meter->metrics = metrics;
    meter->kind = kind;
    meter->hash = hash;
    sanitize_unseen_begin(); /* tasks that have nothing to do with each other share it */
    (void)snprintf(meter->name, sizeof meter->name, "%s", name);
    (void)snprintf(meter->second, sizeof meter->second, "%s", second);
    sanitize_unseen_end();
    note_kind(metrics, kind);
    meter->hash_next = metrics->table[hash % REGISTRY_TABLE];
    metrics->table[hash % REGISTRY_TABLE] = meter;
    metrics->meters[count] = meter;
    atom_store_release(&metrics->meter_count, count + 1); /* readers take no lock */
    return meter;
}

static uint32_t hash_names(const struct meter_kind *kind, const char *name, const char *second)
{
    uint32_t hash = hash_string((uint32_t)((uintptr_t)kind >> 4) ^ 2166136261u, name);
    return hash_string(hash * 31, second);
}

/* Names are told apart as they are shown, or a reader would find the same series twice. */
static struct meter *find_or_make(struct metrics *metrics, const struct meter_kind *kind,
                                  const char *given, const char *given_second)
{
    char name[METER_NAME_BYTES], second[METER_NAME_BYTES];
    struct meter *meter;
    uint32_t hash;

    text_copy_name(name, sizeof name, given);
    text_copy_name(second, sizeof second, given_second);
    hash = hash_names(kind, name, second);
    lock_acquire(&metrics->lock);
    for (meter = metrics->table[hash % REGISTRY_TABLE]; meter; meter = meter->hash_next) {
        if (is_it(meter, hash, kind, name, second)) break;
    }
    if (!meter) meter = meter_new(metrics, hash, kind, name, second);
    lock_release(&metrics->lock);
    if (!meter) (void)atom_add(&metrics->refused, 1);
    return meter;
}

struct meter *meter_get(const struct meter_kind *kind, const char *name, const char *second)
{
    struct worker *worker = worker_self();
    struct metrics *metrics;
    struct meter **cached;
    uint32_t hash;

    if (!worker || worker->runtime->metrics_off) return NULL;
    metrics = metrics_of(worker->runtime);
    if (!metrics) return NULL;
    if (!second) second = "";
    hash = hash_names(kind, name, second);
    cached = &metrics->caches[worker->index].meters[hash % REGISTRY_CACHE];
    if (*cached && is_it(*cached, hash, kind, name, second)) return *cached;
    *cached = find_or_make(metrics, kind, name, second);
    return *cached;
}

/* ---- Shards ---- */

/* The calling thread's: its worker's, or the one that other threads share. */
static unsigned shard_index(const struct meter *meter)
{
    const struct worker *worker = worker_self();
    if (worker && atom_load(&worker->runtime->metrics) == meter->metrics) return worker->index;
    return meter->metrics->shard_count - 1;
}

static __attribute__((noinline)) struct meter_shard *shard_new(struct meter *meter, unsigned index)
{
    struct meter_shard *none = NULL;
    char *memory = mem_alloc_zeroed(sizeof(struct meter_shard) + CACHE_LINE - 1);
    struct meter_shard *shard;

    if (!memory) {
        (void)atom_add(&meter->metrics->lost, 1);
        return NULL;
    }
    shard =
        (struct meter_shard *)(((uintptr_t)memory + CACHE_LINE - 1) & ~(uintptr_t)(CACHE_LINE - 1));
    shard->memory = memory;
    lock_init(&shard->lock);
    list_init(&shard->living);
    if (atom_cas(&meter->shards[index], &none, shard)) return shard;
    lock_deinit(&shard->lock);
    mem_free(memory);
    return none; /* another thread was first */
}

static struct meter_shard *shard_of(struct meter *meter, unsigned index)
{
    struct meter_shard *shard = atom_load_acquire(&meter->shards[index]);
    return __builtin_expect(shard != NULL, 1) ? shard : shard_new(meter, index);
}

/* A worker is alone with its shard: nothing but readers beside it. */
static void add(ATOM(uint64_t) * figure, uint64_t amount, bool alone)
{
    if (alone) {
        atom_store(figure, atom_load(figure) + amount);
    } else {
        (void)atom_add(figure, amount);
    }
}

static void raise_to(ATOM(uint64_t) * figure, uint64_t value)
{
    uint64_t before = atom_load(figure);
    while (value > before && !atom_cas(figure, &before, value)) {}
}

void meter_count(struct meter *meter, unsigned value, uint64_t amount)
{
    struct meter_shard *shard;
    unsigned index;

    if (!meter) return;
    index = shard_index(meter);
    shard = shard_of(meter, index);
    if (!shard) return;
    if (meter->kind->values[value].type == METER_GAUGE_MAX) {
        raise_to(&shard->values[value], amount);
    } else {
        add(&shard->values[value], amount, index + 1 < meter->metrics->shard_count);
    }
}

static __attribute__((noinline)) struct meter_band *band_new(struct meter *meter,
                                                             ATOM(struct meter_band *) * place)
{
    struct meter_band *band = mem_alloc_zeroed(sizeof *band);
    struct meter_band *none = NULL;

    if (!band) {
        (void)atom_add(&meter->metrics->lost, 1);
        return NULL;
    }
    if (atom_cas(place, &none, band)) return band;
    mem_free(band);
    return none;
}

static inline void observe(struct meter *meter, struct meter_shard *shard, unsigned histogram,
                           int64_t ns, bool alone)
{
    uint64_t value = ns > 0 ? (uint64_t)ns : 0;
    unsigned bucket = histogram_bucket(value);
    struct meter_counts *counts = &shard->histograms[histogram];
    struct meter_band *band;

    band = atom_load_acquire(&counts->bands[bucket >> HISTOGRAM_BAND_BITS]);
    if (__builtin_expect(!band, 0)) {
        band = band_new(meter, &counts->bands[bucket >> HISTOGRAM_BAND_BITS]);
    }
    if (!band) return;
    add(&counts->sum, value, alone);
    if (value > atom_load(&counts->max)) raise_to(&counts->max, value);
    add(&band->buckets[bucket & (HISTOGRAM_BAND_BUCKETS - 1)], 1, alone);
}

void meter_observe(struct meter *meter, unsigned histogram, int64_t ns)
{
    struct meter_shard *shard;
    unsigned index;

    if (!meter) return;
    index = shard_index(meter);
    shard = shard_of(meter, index);
    if (shard) observe(meter, shard, histogram, ns, index + 1 < meter->metrics->shard_count);
}

struct meter_shard *meter_shard_here(struct meter *meter)
{
    return meter ? shard_of(meter, shard_index(meter)) : NULL;
}

void meter_observe_here(struct meter *meter, struct meter_shard *shard, unsigned histogram,
                        int64_t ns)
{
    if (shard) observe(meter, shard, histogram, ns, true);
}

/* ---- Objects ---- */

void meter_enter(struct metered *object, struct meter *meter)
{
    unsigned index;

    object->meter = NULL;
    object->shard = NULL;
    list_init(&object->node);
    if (!meter) return;
    object->meter = meter;
    index = shard_index(meter);
    object->shard = shard_of(meter, index);
    if (!object->shard) return;
    lock_acquire_if(&object->shard->lock, meter->metrics->shared);
    list_add_tail(&object->shard->living, &object->node);
    lock_release_if(&object->shard->lock, meter->metrics->shared);
}

/* Its counters stay. The shard's lock is held, so that a reader sees them once. */
static void leave_behind(struct metered *object)
{
    const struct meter_kind *kind = object->meter->kind;
    uint64_t values[METER_VALUES_MAX] = {0};

    kind->collect(object, values);
    for (unsigned i = 0; i < kind->value_count; i++) {
        ATOM(uint64_t) *figure = &object->shard->values[i];
        if (values[i] == 0) continue;
        if (kind->values[i].type == METER_COUNTER) add(figure, values[i], true);
        if (kind->values[i].type == METER_GAUGE_MAX) raise_to(figure, values[i]);
    }
}

void meter_leave(struct metered *object)
{
    struct meter_shard *shard = object->shard;
    bool shared;

    if (!shard) return;
    shared = object->meter->metrics->shared;
    lock_acquire_if(&shard->lock, shared);
    leave_behind(object);
    list_remove(&object->node);
    lock_release_if(&shard->lock, shared);
    object->shard = NULL;
}

/* ---- Reading ---- */

static void merge_counts(struct histogram *into, struct meter_counts *counts)
{
    uint64_t max = atom_load(&counts->max);

    into->sum += atom_load(&counts->sum);
    if (max > into->max) into->max = max;
    for (unsigned i = 0; i < HISTOGRAM_BANDS; i++) {
        struct meter_band *band = atom_load_acquire(&counts->bands[i]);
        if (!band) continue;
        for (unsigned k = 0; k < HISTOGRAM_BAND_BUCKETS; k++) {
            histogram_add_bucket(into, (i << HISTOGRAM_BAND_BITS) + k,
                                 atom_load(&band->buckets[k]));
        }
    }
}

void meter_read(struct meter *meter, unsigned histogram, struct histogram *ret_histogram)
{
    histogram_init(ret_histogram);
    if (!meter) return;
    for (unsigned i = 0; i < meter->metrics->shard_count; i++) {
        struct meter_shard *shard = atom_load_acquire(&meter->shards[i]);
        if (shard) merge_counts(ret_histogram, &shard->histograms[histogram]);
    }
}

static void combine(const struct meter_kind *kind, uint64_t *values, const uint64_t *more)
{
    for (unsigned i = 0; i < kind->value_count; i++) {
        if (kind->values[i].type == METER_GAUGE_MAX) {
            if (more[i] > values[i]) values[i] = more[i];
        } else {
            values[i] += more[i];
        }
    }
}

void meter_values(struct meter *meter, uint64_t *ret_values)
{
    const struct meter_kind *kind = meter->kind;
    uint64_t more[METER_VALUES_MAX];

    memset(ret_values, 0, METER_VALUES_MAX * sizeof *ret_values);
    for (unsigned i = 0; i < meter->metrics->shard_count; i++) {
        struct meter_shard *shard = atom_load_acquire(&meter->shards[i]);
        if (!shard) continue;
        lock_acquire_if(&shard->lock, meter->metrics->shared);
        for (unsigned k = 0; k < kind->value_count; k++) more[k] = atom_load(&shard->values[k]);
        combine(kind, ret_values, more);
        list_for_each(node, &shard->living) {
            memset(more, 0, sizeof more);
            kind->collect(container_of(node, struct metered, node), more);
            combine(kind, ret_values, more);
        }
        lock_release_if(&shard->lock, meter->metrics->shared);
    }
}

/* ---- The end ---- */

static void shard_free(struct meter_shard *shard)
{
    if (!shard) return;
    for (unsigned i = 0; i < METER_HISTOGRAMS_MAX; i++) {
        for (unsigned k = 0; k < HISTOGRAM_BANDS; k++) {
            mem_free(atom_load(&shard->histograms[i].bands[k]));
        }
    }
    lock_deinit(&shard->lock);
    mem_free(shard->memory);
}

void metrics_free(weir_runtime *runtime)
{
    struct metrics *metrics = atom_load(&runtime->metrics);

    if (!metrics) return;
    for (unsigned i = 0; i < atom_load(&metrics->meter_count); i++) {
        struct meter *meter = metrics->meters[i];
        for (unsigned k = 0; k < metrics->shard_count; k++)
            shard_free(atom_load(&meter->shards[k]));
        mem_free(meter);
    }
    lock_deinit(&metrics->lock);
    mem_free(metrics);
}

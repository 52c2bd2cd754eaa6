/* metrics.h - series of figures, shared by all objects of one kind and name.
 *
 * A meter is what one kind and name have in common: counters, gauges and histograms,
 * described by a table (struct meter_kind). An object asks for its meter when it is opened
 * and keeps the pointer; meters live as long as the runtime.
 *
 * Where figures are kept: hot ones in the object itself, under its own lock, at no extra
 * cost; an object that has entered is asked for them when somebody looks (`collect`), and
 * leaves its counters behind when it leaves. What is not an object's own is counted
 * in shards, one for each worker with cache lines of its own, and one that all other
 * threads share. Shards and bands of histograms are allocated when they are first used.
 *
 * No lock is shared by workers on the way: a meter is found in the worker's own cache (the
 * registry's lock is for the first time), and a shard's lock is taken by its worker and by
 * who looks.
 *
 * Lock order: a shard's lock, then an object's (in `collect`). The registry's alone.
 * Failure: no memory, or too many series, means "not measured": counted, never an error.
 */
#ifndef WEIR_WATCH_METRICS_H
#define WEIR_WATCH_METRICS_H

#include <weir/metrics.h>

#include "base/atomic.h"
#include "base/histogram.h"
#include "base/list.h"
#include "rt/lock.h"
#include "rt/runtime.h"

enum { METER_NAME_BYTES = 64, METER_VALUES_MAX = 20, METER_HISTOGRAMS_MAX = 2 };

enum meter_type {
    METER_COUNTER,   /* only grows; what an object has counted stays when it ends */
    METER_GAUGE,     /* the sum over living objects */
    METER_GAUGE_MAX, /* the largest that was ever seen */
};

/* A row of what is shown; rows that follow each other with the same name are one family. */
struct meter_value {
    const char *name; /* "weir_channel_depth" */
    const char *help;
    enum meter_type type;
    unsigned digits;                 /* the value is shown divided by 10^digits */
    bool zero_is_unset;              /* then nothing is shown */
    const char *label, *label_value; /* one more label, or NULL */
};

struct meter_histogram {
    const char *name; /* "weir_channel_wait_seconds" */
    const char *help;
};

struct metered;

struct meter_kind {
    const char *labels[2]; /* of the meter's name, and of its second name or NULL */
    const struct meter_value *values;
    unsigned value_count;
    const struct meter_histogram *histograms;
    unsigned histogram_count;
    /* What a living object shows: value_count numbers, zeroed before. May take the object's
     * lock. NULL: its objects do not enter. */
    void (*collect)(struct metered *object, uint64_t *values);
};

struct meter;

/* In an object that is asked for its figures. */
struct metered {
    struct list node;
    struct meter *meter; /* NULL: not measured */
    struct meter_shard *shard;
};

/* The meter of a kind and name, or NULL: not measured. On a worker. */
struct meter *meter_get(const struct meter_kind *kind, const char *name, const char *second);

/* The object's figures count from here on; on the worker on which it will leave.
 * The meter may be NULL. */
void meter_enter(struct metered *object, struct meter *meter);
void meter_leave(struct metered *object);

/* Any thread; the meter may be NULL. A METER_GAUGE_MAX takes the larger one. */
void meter_count(struct meter *meter, unsigned value, uint64_t amount);
void meter_observe(struct meter *meter, unsigned histogram, int64_t ns);

/* The same for a task that observes often, and stays on its worker: it keeps the worker's shard
 * for as long as it runs. NULL: not measured, or no memory now. */
struct meter_shard *meter_shard_here(struct meter *meter);
void meter_observe_here(struct meter *meter, struct meter_shard *shard, unsigned histogram,
                        int64_t ns);

/* All that was observed by now. The meter may be NULL. */
void meter_read(struct meter *meter, unsigned histogram, struct histogram *ret_histogram);

/* The format is one of the two: 0, or refused. */
int metrics_check_format(enum weir_metrics_format format);

#endif

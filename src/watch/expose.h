/* expose.h - figures as Prometheus text (format 0.0.4) or as JSON, by one set of calls.
 *
 *     expose_family(&out, "weir_channel_depth", "gauge", "Items that are stored now.");
 *     expose_label(&out, "channel", "orders");
 *     expose_value(&out, 3, 0);
 *
 * Values are whole numbers over a power of ten, so that nothing is rounded. Histograms
 * count nanoseconds and are shown in seconds: for Prometheus by cumulative buckets at
 * fixed bounds, in JSON by quantiles.
 *
 * Invariant: all samples of a family follow its expose_family; labels come before the
 * sample that they belong to.
 */
#ifndef WEIR_WATCH_EXPOSE_H
#define WEIR_WATCH_EXPOSE_H

#include <weir/metrics.h>

#include "base/histogram.h"
#include "watch/text.h"

enum { EXPOSE_LABELS_MAX = 4 };

struct exposition {
    struct text text;
    enum weir_metrics_format format;
    const char *family; /* NULL: none yet */
    bool any_family, any_sample;
    unsigned label_count;
    struct {
        const char *name, *value;
    } labels[EXPOSE_LABELS_MAX];
};

void expose_begin(struct exposition *out, enum weir_metrics_format format);
/* `type` is "counter", "gauge" or "histogram". A family without samples shows nothing but
 * its head. */
void expose_family(struct exposition *out, const char *name, const char *type, const char *help);
/* Of the next sample; the strings are read then. */
void expose_label(struct exposition *out, const char *name, const char *value);
void expose_value(struct exposition *out, uint64_t value, unsigned digits);
void expose_histogram(struct exposition *out, const struct histogram *histogram);
/* All is said; out->text has it, or its error. */
void expose_end(struct exposition *out);

#endif

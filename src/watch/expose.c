/* expose.c - the two formats. */
#include "watch/expose.h"

#include <assert.h>

/* Bounds of the buckets that Prometheus sees, in nanoseconds: 1, 2.5, 5 in each power of
 * ten from 1 microsecond to a minute and beyond. */
static const uint64_t bounds[] = {
    1000,        2500,        5000,        10000,        25000,      50000,      100000,
    250000,      500000,      1000000,     2500000,      5000000,    10000000,   25000000,
    50000000,    100000000,   250000000,   500000000,    1000000000, 2500000000, 5000000000,
    10000000000, 25000000000, 60000000000, 300000000000,
};
enum { BOUNDS = sizeof bounds / sizeof bounds[0], NS_DIGITS = 9 };

static bool is_json(const struct exposition *out)
{
    return out->format == WEIR_METRICS_JSON;
}

void expose_begin(struct exposition *out, enum weir_metrics_format format)
{
    *out = (struct exposition){.format = format};
    text_init(&out->text);
    if (is_json(out)) text_say(&out->text, "{\"metrics\":[");
}

static void end_family(struct exposition *out)
{
    if (is_json(out) && out->family) text_say(&out->text, "]}");
    out->family = NULL;
}

void expose_family(struct exposition *out, const char *name, const char *type, const char *help)
{
    end_family(out);
    if (is_json(out)) {
        text_say(&out->text,
                 "%s\n{\"name\":\"%s\",\"type\":\"%s\",\"help\":", out->any_family ? "," : "", name,
                 type);
        text_json(&out->text, help);
        text_say(&out->text, ",\"samples\":[");
    } else {
        text_say(&out->text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
    }
    out->family = name;
    out->any_family = true;
    out->any_sample = false;
}

void expose_label(struct exposition *out, const char *name, const char *value)
{
    assert(out->label_count < EXPOSE_LABELS_MAX);
    out->labels[out->label_count].name = name;
    out->labels[out->label_count++].value = value;
}

/* ---- Prometheus ---- */

/* name_suffix{labels,le="bound"} - with the blank before the value. */
static void prometheus_head(struct exposition *out, const char *suffix, const uint64_t *bound)
{
    struct text *text = &out->text;
    const char *before = "{";

    text_say(text, "%s%s", out->family, suffix);
    for (unsigned i = 0; i < out->label_count; i++) {
        text_say(text, "%s%s=", before, out->labels[i].name);
        text_label(text, out->labels[i].value);
        before = ",";
    }
    if (bound) {
        text_say(text, "%sle=\"", before);
        if (*bound == UINT64_MAX) {
            text_say(text, "+Inf");
        } else {
            text_decimal(text, *bound, NS_DIGITS);
        }
        text_say(text, "\"");
        before = ",";
    }
    text_say(text, "%s ", *before == ',' ? "}" : "");
}

static void prometheus_histogram(struct exposition *out, const struct histogram *histogram)
{
    const uint64_t infinite = UINT64_MAX;

    for (unsigned i = 0; i < BOUNDS; i++) {
        prometheus_head(out, "_bucket", &bounds[i]);
        text_say(&out->text, "%llu\n",
                 (unsigned long long)histogram_count_to(histogram, bounds[i]));
    }
    prometheus_head(out, "_bucket", &infinite);
    text_say(&out->text, "%llu\n", (unsigned long long)histogram->count);
    prometheus_head(out, "_sum", NULL);
    text_decimal(&out->text, histogram->sum, NS_DIGITS);
    text_say(&out->text, "\n");
    prometheus_head(out, "_count", NULL);
    text_say(&out->text, "%llu\n", (unsigned long long)histogram->count);
}

/* ---- JSON ---- */

static void json_labels(struct exposition *out)
{
    struct text *text = &out->text;

    text_say(text, "%s{\"labels\":{", out->any_sample ? "," : "");
    for (unsigned i = 0; i < out->label_count; i++) {
        text_say(text, "%s\"%s\":", i > 0 ? "," : "", out->labels[i].name);
        text_json(text, out->labels[i].value);
    }
    text_say(text, "}");
}

static void json_histogram(struct exposition *out, const struct histogram *histogram)
{
    static const struct {
        const char *name;
        double share;
    } quantiles[] = {{"p50", 0.5}, {"p95", 0.95}, {"p99", 0.99}};
    struct text *text = &out->text;

    json_labels(out);
    text_say(text, ",\"count\":%llu,\"sum\":", (unsigned long long)histogram->count);
    text_decimal(text, histogram->sum, NS_DIGITS);
    for (unsigned i = 0; i < 3; i++) {
        text_say(text, ",\"%s\":", quantiles[i].name);
        text_decimal(text, histogram_quantile(histogram, quantiles[i].share), NS_DIGITS);
    }
    text_say(text, ",\"max\":");
    text_decimal(text, histogram->max, NS_DIGITS);
    text_say(text, "}");
}

/* ---- Both ---- */

static void end_sample(struct exposition *out)
{
    out->any_sample = true;
    out->label_count = 0;
}

void expose_value(struct exposition *out, uint64_t value, unsigned digits)
{
    if (is_json(out)) {
        json_labels(out);
        text_say(&out->text, ",\"value\":");
        text_decimal(&out->text, value, digits);
        text_say(&out->text, "}");
    } else {
        prometheus_head(out, "", NULL);
        text_decimal(&out->text, value, digits);
        text_say(&out->text, "\n");
    }
    end_sample(out);
}

void expose_histogram(struct exposition *out, const struct histogram *histogram)
{
    if (is_json(out)) {
        json_histogram(out, histogram);
    } else {
        prometheus_histogram(out, histogram);
    }
    end_sample(out);
}

void expose_end(struct exposition *out)
{
    end_family(out);
    if (is_json(out)) text_say(&out->text, "\n]}\n");
}

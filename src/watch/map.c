/* map.c - the boundary map as text and as JSON; graph.c draws it. */
#include <errno.h>
#include <string.h>
#include <weir/map.h>

#include "rt/mem.h"
#include "watch/map.h"
#include "watch/metrics.h"
#include "watch/output.h"

enum { WRITABLE_MS_MAX = 1000, MS_DIGITS = 6 };

/* Too large for a task's stack. */
struct writer {
    struct map map;
    struct text text;
    struct histogram histogram;
};

static const struct {
    const char *name;
    double share;
} quantiles[] = {{"p50", 0.5}, {"p95", 0.95}, {"p99", 0.99}, {"max", 1}};
enum { QUANTILES = sizeof quantiles / sizeof quantiles[0] };

static const char *owner_of(const struct writer *writer, const struct map_row *row)
{
    return writer->map.owners.data + row->owner;
}

/* ---- Text ---- */

static void text_measured(struct writer *writer, const char *what, struct meter *meter,
                          int histogram)
{
    struct text *text = &writer->text;

    if (!meter || histogram < 0) return;
    meter_read(meter, (unsigned)histogram, &writer->histogram);
    if (writer->histogram.count == 0) return;
    text_say(text, "; %s ", what);
    for (unsigned i = 0; i < QUANTILES; i++) {
        text_say(text, "%s ", quantiles[i].name);
        /* Microseconds are enough for people. */
        text_decimal(text, histogram_quantile(&writer->histogram, quantiles[i].share) / 1000, 3);
        text_say(text, ", ");
    }
    text_say(text, "ms, of %llu", (unsigned long long)writer->histogram.count);
}

static void text_latency(struct writer *writer, const struct boundary *boundary)
{
    struct text *text = &writer->text;

    if (boundary->latency_target_ms == 0 && !boundary->meter) return;
    text_say(text, "    latency: ");
    if (boundary->latency_target_ms > 0) {
        text_say(text, "target %lld ms", (long long)boundary->latency_target_ms);
    } else {
        text_say(text, "no target");
    }
    text_measured(writer, "wait", boundary->meter, boundary->wait_histogram);
    text_measured(writer, "run", boundary->meter, boundary->run_histogram);
    text_say(text, "\n");
}

static void text_figures(struct text *text, const struct boundary *boundary)
{
    for (unsigned i = 0; i < boundary->figure_count; i++) {
        text_say(text, "%s%s %llu", i > 0 ? ", " : "    figures: ", boundary->figures[i].name,
                 (unsigned long long)boundary->figures[i].value);
    }
    if (boundary->figure_count > 0) text_say(text, "\n");
}

static void text_row(struct writer *writer, const struct map_row *row)
{
    const struct boundary *boundary = &row->boundary;
    struct text *text = &writer->text;

    text_say(text, "%s '", boundary->kind);
    text_plain(text, boundary->name);
    text_say(text, "' of ");
    text_plain(text, owner_of(writer, row));
    if (boundary->where) text_say(text, " (%s)", boundary->where);
    text_say(text, "%s\n", row->inspected ? "" : ": not inspected (busy)");
    if (!boundary->lifetime) return;
    text_say(text, "    lifetime: %s\n    bound: %s; overflow: %s\n    failure: %s\n",
             boundary->lifetime, boundary->bound, boundary->overflow, boundary->failure);
    text_latency(writer, boundary);
    text_figures(text, boundary);
}

static void write_text(struct writer *writer)
{
    struct map *map = &writer->map;

    text_say(&writer->text, "%zu boundaries\n", map->row_count + map->omitted);
    for (size_t i = 0; i < map->row_count; i++) text_row(writer, &map->rows[i]);
    if (map->omitted > 0) { text_say(&writer->text, "and %zu more, not shown\n", map->omitted); }
}

/* ---- JSON ---- */

/* A member whose value is a string, or null. */
static void json_string(struct text *text, const char *name, const char *value)
{
    text_say(text, ",\"%s\":", name);
    if (value && *value) {
        text_json(text, value);
    } else {
        text_say(text, "null");
    }
}

static void json_measured(struct writer *writer, const char *name, struct meter *meter,
                          int histogram)
{
    struct text *text = &writer->text;

    text_say(text, ",\"%s\":", name);
    if (!meter || histogram < 0) {
        text_say(text, "null");
        return;
    }
    meter_read(meter, (unsigned)histogram, &writer->histogram);
    text_say(text, "{\"count\":%llu", (unsigned long long)writer->histogram.count);
    for (unsigned i = 0; i < QUANTILES; i++) {
        text_say(text, ",\"%s_ms\":", quantiles[i].name);
        text_decimal(text, histogram_quantile(&writer->histogram, quantiles[i].share), MS_DIGITS);
    }
    text_say(text, "}");
}

static void json_row(struct writer *writer, const struct map_row *row)
{
    const struct boundary *boundary = &row->boundary;
    struct text *text = &writer->text;

    text_say(text, "{\"kind\":\"%s\"", boundary->kind);
    json_string(text, "name", boundary->name);
    json_string(text, "owner", owner_of(writer, row));
    json_string(text, "where", boundary->where);
    text_say(text, ",\"inspected\":%s", row->inspected ? "true" : "false");
    json_string(text, "lifetime", boundary->lifetime);
    json_string(text, "bound", boundary->bound);
    json_string(text, "overflow", boundary->overflow);
    json_string(text, "failure", boundary->failure);
    if (boundary->latency_target_ms > 0) {
        text_say(text, ",\"latency_target_ms\":%lld", (long long)boundary->latency_target_ms);
    } else {
        text_say(text, ",\"latency_target_ms\":null");
    }
    json_measured(writer, "wait", boundary->meter, boundary->wait_histogram);
    json_measured(writer, "run", boundary->meter, boundary->run_histogram);
    text_say(text, ",\"figures\":{");
    for (unsigned i = 0; i < boundary->figure_count; i++) {
        text_say(text, "%s\"%s\":%llu", i > 0 ? "," : "", boundary->figures[i].name,
                 (unsigned long long)boundary->figures[i].value);
    }
    text_say(text, "}}");
}

static void write_json(struct writer *writer)
{
    struct map *map = &writer->map;

    text_say(&writer->text, "{\"boundaries\":[");
    for (size_t i = 0; i < map->row_count; i++) {
        text_say(&writer->text, "%s\n", i > 0 ? "," : "");
        json_row(writer, &map->rows[i]);
    }
    text_say(&writer->text, "\n],\"omitted\":%zu}\n", map->omitted);
}

/* ---- The call ---- */

static void write_as(struct writer *writer, enum weir_map_format format)
{
    switch (format) {
    case WEIR_MAP_JSON: write_json(writer); break;
    case WEIR_MAP_GRAPHVIZ: graph_write(&writer->map, &writer->text); break;
    default: write_text(writer); break;
    }
}

int weir_map(int fd, enum weir_map_format format)
{
    struct writer *writer;
    int r;

    if (!worker_self()) return refuse_no_task("weir_map");
    if (format != WEIR_MAP_TEXT && format != WEIR_MAP_JSON && format != WEIR_MAP_GRAPHVIZ) {
        return refuse("map: format is not set (WEIR_MAP_TEXT, WEIR_MAP_JSON or "
                      "WEIR_MAP_GRAPHVIZ)");
    }
    writer = mem_alloc_zeroed(sizeof *writer);
    if (!writer) return -ENOMEM;
    writer->map.with_tasks = format == WEIR_MAP_GRAPHVIZ;
    r = map_walk(&writer->map);
    if (r == 0) {
        write_as(writer, format);
        r = writer->text.error;
    }
    if (r == 0) r = output_write(fd, writer->text.data, writer->text.used, WRITABLE_MS_MAX);
    text_deinit(&writer->text);
    map_deinit(&writer->map);
    mem_free(writer);
    return r;
}

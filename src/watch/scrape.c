/* scrape.c - everything that is measured, as one text.
 *
 * Workers are not stopped for it: each figure is right by itself, and those of one object
 * belong together, since its lock is held while it is asked.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rt/mem.h"
#include "rt/runtime.h"
#include "watch/checks.h"
#include "watch/expose.h"
#include "watch/output.h"
#include "watch/process.h"
#include "watch/registry.h"
#include "watch/trace.h"
#include "watch/watchdog.h"

enum { WRITABLE_MS_MAX = 1000 };

/* Too large for a task's stack. */
struct scrape {
    weir_runtime *runtime;
    struct metrics *metrics; /* NULL: nothing was measured so far */
    struct exposition out;
    struct histogram histogram;
    const struct meter_kind *kinds[REGISTRY_KINDS_MAX];
    unsigned kind_count;
    unsigned meter_count;
    uint64_t values[][METER_VALUES_MAX]; /* of each meter */
};

int metrics_check_format(enum weir_metrics_format format)
{
    if (format == WEIR_METRICS_PROMETHEUS || format == WEIR_METRICS_JSON) return 0;
    return refuse("metrics: format is not set (WEIR_METRICS_PROMETHEUS or WEIR_METRICS_JSON)");
}

/* ---- The runtime ---- */

static void one(struct scrape *scrape, const char *name, const char *type, const char *help,
                uint64_t value)
{
    expose_family(&scrape->out, name, type, help);
    expose_value(&scrape->out, value, 0);
}

static void labelled(struct scrape *scrape, const char *label, const char *label_value,
                     uint64_t value)
{
    expose_label(&scrape->out, label, label_value);
    expose_value(&scrape->out, value, 0);
}

static void show_build(struct scrape *scrape)
{
    char version[32];

    (void)snprintf(version, sizeof version, "%d.%d.%d", WEIR_VERSION_MAJOR, WEIR_VERSION_MINOR,
                   WEIR_VERSION_PATCH);
    expose_family(&scrape->out, "weir_build_info", "gauge", "Version and kernel interface; is 1.");
    expose_label(&scrape->out, "version", version);
    labelled(scrape, "backend", scrape->runtime->kernel->name, 1);
}

static void show_tasks(struct scrape *scrape)
{
    uint64_t started = 0, ended = 0, stolen = 0, running = 0, unstarted = 0;

    for (unsigned i = 0; i < scrape->runtime->worker_count; i++) {
        struct worker *worker = &scrape->runtime->workers[i];
        /* The ended ones first: a task that ends meanwhile counts as alive. */
        ended += atom_load_acquire(&worker->tasks_ended);
        started += atom_load(&worker->tasks_started);
        stolen += atom_load(&worker->tasks_stolen);
        running += atom_load(&worker->current) != NULL;
        unstarted += atom_load(&worker->fresh_count);
    }
    if (running > started - ended) running = started - ended;
    expose_family(&scrape->out, "weir_tasks", "gauge",
                  "Tasks that are alive; waiting: for something, or for their turn.");
    labelled(scrape, "state", "running", running);
    labelled(scrape, "state", "waiting", started - ended - running);
    labelled(scrape, "state", "unstarted", unstarted);
    one(scrape, "weir_tasks_started_total", "counter", "Tasks that have begun to run.", started);
    one(scrape, "weir_tasks_stolen_total", "counter",
        "Tasks that another worker than their spawner's has begun.", stolen);
    one(scrape, "weir_workers", "gauge", "Threads that run tasks.", scrape->runtime->worker_count);
}

static void show_watchdog(struct scrape *scrape)
{
    const struct watchdog *watchdog = atom_load_acquire(&scrape->runtime->watchdog);

    one(scrape, "weir_watchdog_hits_total", "counter",
        "Tasks that have kept a worker longer than the watchdog's threshold.",
        watchdog ? atom_load(&watchdog->hits) : 0);
    one(scrape, "weir_watchdog_suppressed_total", "counter",
        "Reports of the watchdog that were not made because there were too many.",
        watchdog ? atom_load(&watchdog->suppressed) : 0);
}

enum { EXECUTORS = 3 };

struct executor_figures {
    const char *name;
    uint64_t queued, busy, orphans, rejected;
};

static struct executor_figures read_executor(struct blocking *executor)
{
    struct executor_figures figures = {.name = executor->name};

    lock_acquire(&executor->lock);
    figures.queued = executor->queue_count;
    figures.busy = (uint64_t)executor->busy_count + executor->completion_count;
    figures.orphans = executor->orphans_total;
    figures.rejected = executor->rejected_total;
    lock_release(&executor->lock);
    return figures;
}

static void show_executors(struct scrape *scrape)
{
    weir_runtime *runtime = scrape->runtime;
    const struct executor_figures all[EXECUTORS] = {read_executor(&runtime->files),
                                                    read_executor(&runtime->names),
                                                    read_executor(&runtime->spawns)};

    expose_family(&scrape->out, "weir_executor_queued", "gauge", "Calls that wait to be made.");
    for (int i = 0; i < EXECUTORS; i++) labelled(scrape, "executor", all[i].name, all[i].queued);
    expose_family(&scrape->out, "weir_executor_busy", "gauge", "Calls that are being made.");
    for (int i = 0; i < EXECUTORS; i++) labelled(scrape, "executor", all[i].name, all[i].busy);
    expose_family(&scrape->out, "weir_executor_orphans_total", "counter",
                  "Calls whose callers went on without them.");
    for (int i = 0; i < EXECUTORS; i++) labelled(scrape, "executor", all[i].name, all[i].orphans);
    expose_family(&scrape->out, "weir_executor_rejected_total", "counter",
                  "Calls that were refused because the queue was full.");
    for (int i = 0; i < EXECUTORS; i++) labelled(scrape, "executor", all[i].name, all[i].rejected);
}

static void show_tracer(struct scrape *scrape)
{
    struct tracer_figures figures;

    if (!scrape->runtime->tracer) return;
    tracer_figures(scrape->runtime->tracer, &figures);
    one(scrape, "weir_trace_spans_buffered", "gauge", "Spans that wait to be exported.",
        figures.buffered);
    one(scrape, "weir_trace_spans_buffered_max", "gauge", "Spans that may wait to be exported.",
        figures.buffer_max * scrape->runtime->worker_count);
    one(scrape, "weir_trace_spans_ended_total", "counter", "Recorded spans that have ended.",
        figures.ended);
    one(scrape, "weir_trace_spans_exported_total", "counter", "Spans that the exporter has taken.",
        figures.exported);
    expose_family(&scrape->out, "weir_trace_spans_dropped_total", "counter",
                  "Spans that were lost: the buffer was full, there was no memory, the export "
                  "has failed.");
    labelled(scrape, "reason", "full", figures.dropped_full);
    labelled(scrape, "reason", "memory", figures.dropped_memory);
    labelled(scrape, "reason", "export", figures.lost);
    one(scrape, "weir_trace_export_failures_total", "counter",
        "Batches that the exporter has failed to take.", figures.failures);
}

static void show_checks(struct scrape *scrape)
{
    struct checks *checks = scrape->runtime->checks;

    expose_family(&scrape->out, "weir_checks_total", "counter",
                  "Faults of locks and waits that were reported, by kind.");
    for (int i = WEIR_CHECK_ACROSS; i < WEIR_CHECK_KINDS; i++) {
        labelled(scrape, "kind", weir_check_name((enum weir_check_kind)i),
                 checks ? atom_load(&checks->counts[i]) : 0);
    }
}

static void show_registry(struct scrape *scrape)
{
    struct metrics *metrics = scrape->metrics;

    one(scrape, "weir_metrics_series", "gauge", "Names that are measured.", scrape->meter_count);
    one(scrape, "weir_metrics_series_max", "gauge", "Names that can be measured.",
        WEIR_METRICS_SERIES_MAX);
    one(scrape, "weir_metrics_refused_total", "counter",
        "Objects that are not measured: too many names, or no memory.",
        metrics ? atom_load(&metrics->refused) : 0);
    one(scrape, "weir_metrics_lost_total", "counter",
        "Figures that were not counted for lack of memory.",
        metrics ? atom_load(&metrics->lost) : 0);
}

/* ---- Meters ---- */

static const char *const type_names[] = {
    [METER_COUNTER] = "counter", [METER_GAUGE] = "gauge", [METER_GAUGE_MAX] = "gauge"};

static void label_meter(struct scrape *scrape, const struct meter *meter)
{
    expose_label(&scrape->out, meter->kind->labels[0], meter->name);
    if (meter->kind->labels[1]) expose_label(&scrape->out, meter->kind->labels[1], meter->second);
}

static bool same_family(const struct meter_value *a, const struct meter_value *b)
{
    return strcmp(a->name, b->name) == 0;
}

/* The rows from `first` on that are one family, of all meters of the kind. Returns the row
 * after them. */
static unsigned show_family(struct scrape *scrape, const struct meter_kind *kind, unsigned first)
{
    const struct meter_value *head = &kind->values[first];
    unsigned next = first + 1;

    while (next < kind->value_count && same_family(head, &kind->values[next])) next++;
    expose_family(&scrape->out, head->name, type_names[head->type], head->help);
    for (unsigned i = 0; i < scrape->meter_count; i++) {
        const struct meter *meter = scrape->metrics->meters[i];
        if (meter->kind != kind) continue;
        for (unsigned k = first; k < next; k++) {
            const struct meter_value *row = &kind->values[k];
            if (row->zero_is_unset && scrape->values[i][k] == 0) continue;
            label_meter(scrape, meter);
            if (row->label) expose_label(&scrape->out, row->label, row->label_value);
            expose_value(&scrape->out, scrape->values[i][k], row->digits);
        }
    }
    return next;
}

static void show_kind(struct scrape *scrape, const struct meter_kind *kind)
{
    for (unsigned i = 0; i < kind->value_count;) i = show_family(scrape, kind, i);
    for (unsigned i = 0; i < kind->histogram_count; i++) {
        expose_family(&scrape->out, kind->histograms[i].name, "histogram",
                      kind->histograms[i].help);
        for (unsigned k = 0; k < scrape->meter_count; k++) {
            struct meter *meter = scrape->metrics->meters[k];
            if (meter->kind != kind) continue;
            meter_read(meter, i, &scrape->histogram);
            label_meter(scrape, meter);
            expose_histogram(&scrape->out, &scrape->histogram);
        }
    }
}

static void show_meters(struct scrape *scrape)
{
    struct metrics *metrics = scrape->metrics;

    if (!metrics) return;
    lock_acquire(&metrics->lock);
    scrape->kind_count = metrics->kind_count;
    memcpy(scrape->kinds, metrics->kinds, sizeof scrape->kinds);
    lock_release(&metrics->lock);
    for (unsigned i = 0; i < scrape->meter_count; i++) {
        meter_values(metrics->meters[i], scrape->values[i]);
    }
    for (unsigned i = 0; i < scrape->kind_count; i++) show_kind(scrape, scrape->kinds[i]);
}

/* ---- The calls ---- */

static int scrape_new(enum weir_metrics_format format, const char *call, struct scrape **ret_scrape)
{
    struct worker *worker = worker_self();
    struct metrics *metrics;
    struct scrape *scrape;
    unsigned meters;
    int r;

    if (!worker) return refuse_no_task(call);
    r = metrics_check_format(format);
    if (r < 0) return r;
    metrics = atom_load_acquire(&worker->runtime->metrics);
    meters = metrics ? atom_load_acquire(&metrics->meter_count) : 0;
    scrape = mem_alloc_zeroed(sizeof *scrape + meters * sizeof scrape->values[0]);
    if (!scrape) return -ENOMEM;
    scrape->runtime = worker->runtime;
    scrape->metrics = metrics;
    scrape->meter_count = meters;
    expose_begin(&scrape->out, format);
    show_build(scrape);
    show_tasks(scrape);
    show_watchdog(scrape);
    show_executors(scrape);
    show_tracer(scrape);
    show_meters(scrape);
    show_checks(scrape);
    show_registry(scrape);
    process_expose(&scrape->out, worker->kernel);
    expose_end(&scrape->out);
    *ret_scrape = scrape;
    return scrape->out.text.error;
}

static void scrape_free(struct scrape *scrape)
{
    text_deinit(&scrape->out.text);
    mem_free(scrape);
}

int weir_metrics_read(enum weir_metrics_format format, weir_metrics_fn fn, void *keep_arg)
{
    struct scrape *scrape = NULL;
    int r;

    if (!fn) return refuse("metrics: fn is NULL");
    r = scrape_new(format, "weir_metrics_read", &scrape);
    if (r == 0 && scrape) r = fn(scrape->out.text.data, scrape->out.text.used, keep_arg);
    if (scrape) scrape_free(scrape);
    return r;
}

int weir_metrics_write(int fd, enum weir_metrics_format format)
{
    struct scrape *scrape = NULL;
    int r = scrape_new(format, "weir_metrics_write", &scrape);

    if (r == 0 && scrape) {
        r = output_write(fd, scrape->out.text.data, scrape->out.text.used, WRITABLE_MS_MAX);
    }
    if (scrape) scrape_free(scrape);
    return r;
}

/* pipeline.c - readings on their way: parse -> enrich -> compress -> write.
 *
 *     pipeline [--readings N] [--budget MS] [--slow N]
 *
 * Enriching asks a directory where a sensor stands. That is good to have, not needed: when the
 * directory does not answer in time, the reading goes on without, and says that it is partial.
 * Compressing is computation, so it runs in a pool of threads. What cannot be parsed is handed to
 * a hook, by stage and error. A budget that the stages do not fit is refused, with the sum.
 * Exit status: 0 every reading is accounted for, 1 a failure, 2 wrong usage.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

#include "options.h"

enum { TEXT_BYTES = 64, PLACE_BYTES = 16, SENSORS = 5, SILENT_SENSOR = 3, BAD_EVERY = 10 };

struct reading {
    char text[TEXT_BYTES]; /* as it came */
    int sensor;
    char place[PLACE_BYTES];
    char packed[2 * TEXT_BYTES];
};

/* What the stages need, in one place; a member that may be missing is a pointer. */
struct services {
    const char *const *directory; /* places by sensor, or NULL: nobody is asked */
    int readings, budget_ms, slow;
    int written, partial, lost;
    size_t bytes_in, bytes_out;
};

static int parse(void *item, void *keep_arg)
{
    struct reading *reading = item;
    char *end;

    (void)keep_arg;
    if (strncmp(reading->text, "sensor=", 7) != 0) return -EBADMSG;
    reading->sensor = (int)strtol(reading->text + 7, &end, 10);
    return end > reading->text + 7 ? 0 : -EBADMSG;
}

static int enrich(void *item, void *keep_arg)
{
    const struct services *services = keep_arg;
    struct reading *reading = item;
    int r;

    if (!services->directory) return -EHOSTUNREACH;
    r = weir_sleep(reading->sensor == SILENT_SENSOR ? 10000 : 1);
    if (r < 0) return r;
    snprintf(reading->place, sizeof reading->place, "%s", services->directory[reading->sensor]);
    return 0;
}

/* Runs on a thread of the pool: a run of equal bytes becomes a count and the byte. */
static int compress(void *item, void *keep_arg)
{
    struct reading *reading = item;
    size_t used = 0;

    (void)keep_arg;
    for (const char *at = reading->text; *at;) {
        int run = 1;
        while (run < 9 && at[run] == *at) run++;
        if (run > 1) reading->packed[used++] = (char)('0' + run);
        reading->packed[used++] = *at;
        at += run;
    }
    reading->packed[used] = '\0';
    return 0;
}

/* One at a time, so the counts are its own. */
static int write_out(void *item, void *keep_arg)
{
    struct services *services = keep_arg;
    struct reading *reading = item;

    services->written++;
    services->partial += reading->place[0] == '\0';
    services->bytes_in += strlen(reading->text);
    services->bytes_out += strlen(reading->packed);
    return 0;
}

static void note_lost(void *item, const weir_lost *lost, void *keep_arg)
{
    struct services *services = keep_arg;
    struct reading *reading = item;

    if (services->lost++ == 0)
        printf("lost in stage '%s': '%s': %s\n", lost->stage, reading->text,
               weir_strerror(lost->error));
}

static void print_figures(weir_pipeline *pipeline, const char *const names[], unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        weir_stage_figures figures;
        if (weir_pipeline_stage_figures(pipeline, i, &figures) < 0) return;
        printf(
            "%-9s %3llu in, %3llu done, %2llu skipped, %2llu failed, %2llu timeouts, at most %zu "
            "queued\n",
            names[i], (unsigned long long)figures.entered, (unsigned long long)figures.finished,
            (unsigned long long)figures.skipped, (unsigned long long)figures.failed,
            (unsigned long long)figures.timeouts, figures.depth_max);
    }
}

static int feed(weir_pipeline *pipeline, const struct services *services)
{
    int r = 0;

    for (int i = 0; r == 0 && i < services->readings; i++) {
        struct reading reading = {.sensor = 0};
        snprintf(reading.text, sizeof reading.text, "%s=%d level=%.*s",
                 i % BAD_EVERY == BAD_EVERY - 1 ? "noise" : "sensor", i % SENSORS, 8 + i % 8,
                 "################");
        r = weir_pipeline_send(pipeline, &reading); /* waits while the first queue is full */
    }
    return r;
}

/* One more, whose sender waits for its own result. */
static int ask(weir_pipeline *pipeline)
{
    struct reading reading = {.text = "sensor=3 level=######"};
    weir_outcome outcome;
    int r = weir_pipeline_call(pipeline, &reading, &outcome);

    if (r < 0) return r;
    printf("asked: '%s' is packed to '%s'%s\n", reading.text, reading.packed,
           r == WEIR_PARTIAL ? ", partial: without its place" : "");
    return 0;
}

static int run_in(weir_scope *scope, struct services *services)
{
    static const weir_pool_class compressing[] = {
        {.name = "compress", .weight = 1, .queue_max = 8}};
    static const char *const names[] = {"parse", "enrich", "compress", "write"};
    weir_stage_spec stages[] = {
        {.name = "parse",
         .fn = parse,
         .concurrency = 1,
         .queue_max = 8,
         .overflow = WEIR_WAIT,
         .timeout_ms = 100,
         .on_failure = WEIR_STAGE_FAIL},
        {.name = "enrich",
         .fn = enrich,
         .concurrency = 4,
         .queue_max = 8,
         .overflow = WEIR_WAIT,
         .timeout_ms = 150,
         .on_failure = WEIR_STAGE_SKIP,
         .latency_ms = 20},
        {.name = "compress",
         .fn = compress,
         .concurrency = 2,
         .queue_max = 8,
         .overflow = WEIR_WAIT,
         .timeout_ms = 1000,
         .on_failure = WEIR_STAGE_FAIL},
        {.name = "write",
         .fn = write_out,
         .concurrency = 1,
         .queue_max = 8,
         .overflow = WEIR_WAIT,
         .timeout_ms = 500,
         .on_failure = WEIR_STAGE_FAIL},
    };
    weir_pipeline_spec spec = {.name = "readings",
                               .item_bytes = sizeof(struct reading),
                               .budget_ms = services->budget_ms,
                               .stages = stages,
                               .stage_count = 4,
                               .on_lost = note_lost,
                               .keep_arg = services,
                               .latency_ms = 200};
    weir_pipeline *pipeline;
    weir_pool *pool;
    int r;

    r = weir_pool_open(scope,
                       &(weir_pool_spec){.name = "compress",
                                         .threads_max = 2,
                                         .overflow = WEIR_WAIT,
                                         .on_close = WEIR_DRAIN,
                                         .classes = compressing,
                                         .class_count = 1},
                       &pool);
    if (r < 0) return r;
    stages[2].pool = pool;
    for (int i = 0; i < 4; i++) {
        stages[i].keep_arg = services;
        stages[i].timeout_ms *= services->slow;
    }
    r = weir_pipeline_open(scope, &spec, &pipeline);
    if (r == WEIR_EREFUSED) printf("refused: %s\n", weir_why());
    if (r < 0) return r;
    r = feed(pipeline, services);
    if (r == 0) r = ask(pipeline);
    if (r < 0) return r;
    weir_pipeline_stop(pipeline, WEIR_DRAIN);
    r = weir_pipeline_wait(pipeline);
    print_figures(pipeline, names, 4);
    return r;
}

static int run(void *arg)
{
    struct services *services = arg;
    int sent = services->readings + 1;
    int result;

    WEIR_SCOPE(scope, &result, .name = "readings", .on_failure = WEIR_FAIL_FAST, .max_tasks = 16,
               .overflow = WEIR_REJECT, .deadline_ms = 30000) {
        int r = run_in(scope, services);
        if (r < 0) weir_scope_cancel(scope, r, "the pipeline has failed");
        result = r;
    }
    if (result < 0) return result;
    printf("%d readings: %d written, %d of them partial, %d lost; %zu bytes became %zu\n", sent,
           services->written, services->partial, services->lost, services->bytes_in,
           services->bytes_out);
    return services->written + services->lost == sent ? 0 : -EBADMSG;
}

int main(int argc, char **argv)
{
    static const char *const places[SENSORS] = {"gate", "lock", "spillway", "weir", "bridge"};
    static struct services services = {.directory = places};
    weir_config config = {.name = "pipeline", .log_level = WEIR_LOG_ERROR};
    const struct option_number options[] = {
        {"--readings", &services.readings, 100, 1, 100000, "readings that are sent"},
        {"--budget", &services.budget_ms, 5000, 1, 60000, "end-to-end budget in ms"},
        {"--slow", &services.slow, 1, 1, 10, "times as long for each stage, on a busy machine"},
        {0},
    };
    int first = options_read(argc, argv, "pipeline [OPTION]...", options);
    int r;

    if (first < argc)
        return fprintf(stderr, "pipeline: unexpected argument '%s'\n", argv[first]), 2;
    r = weir_run(&config, run, &services);
    if (r < 0) fprintf(stderr, "pipeline: %s\n", weir_strerror(r));
    return r < 0;
}

/* live.c - the figures of the service, once a second. */
#include <stdio.h>
#include <unistd.h>

#include "service.h"

static const char *const stage_names[PATH_STAGES] = {"parse", "fetch", "rank", "enrich"};

/* What was there a second ago. Only the timer's worker touches it. */
struct live {
    struct service *service;
    bool in_place;
    int lines; /* that were printed last */
    unsigned long answered[SEARCH_CODES], asked;
    weir_times end_to_end;
};

static unsigned long since(unsigned long now, unsigned long *before)
{
    unsigned long count = now - *before;

    *before = now;
    return count;
}

static void count_answers(struct live *live, unsigned long *ret_good,
                          unsigned long *ret_turned_away, unsigned long *ret_failed)
{
    *ret_good = *ret_turned_away = *ret_failed = 0;
    for (int code = 0; code < SEARCH_CODES; code++) {
        unsigned long count = since(live->service->figures.answered[code], &live->answered[code]);
        if (code <= SEARCH_PARTIAL) {
            *ret_good += count;
        } else if (search_was_accepted((enum search_code)code)) {
            *ret_failed += count;
        } else {
            *ret_turned_away += count;
        }
    }
}

/* The mean of the last second, in ms. */
static double latency_ms(struct live *live)
{
    weir_pipeline_figures figures;
    uint64_t count;
    double ms;

    weir_pipeline_figures_of(live->service->path.pipeline, &figures);
    count = figures.end_to_end.count - live->end_to_end.count;
    ms = count == 0 ? 0
                    : (double)(figures.end_to_end.total_ns - live->end_to_end.total_ns) / 1e6 /
                          (double)count;
    live->end_to_end = figures.end_to_end;
    return ms;
}

static void print_stages(struct live *live, FILE *stream)
{
    for (unsigned i = 0; i < PATH_STAGES; i++) {
        weir_stage_figures figures;
        if (weir_pipeline_stage_figures(live->service->path.pipeline, i, &figures) < 0) return;
        fprintf(
            stream, "  %-7s %3zu of %2zu queued, %2d of %2d at work, %llu failed, %llu skipped\n",
            stage_names[i], figures.depth, figures.queue_max, figures.running, figures.concurrency,
            (unsigned long long)figures.failed, (unsigned long long)figures.skipped);
    }
    live->lines += PATH_STAGES;
}

static void show(struct live *live)
{
    struct service *service = live->service;
    unsigned long good, turned_away, failed;

    count_answers(live, &good, &turned_away, &failed);
    if (live->in_place && live->lines > 0) fprintf(stderr, "\033[%dA\033[J", live->lines);
    live->lines = 2;
    fprintf(
        stderr, "search: %lu clients, %lu answers/s in %.0f ms, %lu turned away/s, %lu failed/s%s",
        (unsigned long)service->figures.open, good, service->path.pipeline ? latency_ms(live) : 0,
        turned_away, failed, live->in_place ? "\n  " : ", ");
    fprintf(stderr, "upstream %lu calls/s, breaker %s, %zu queued\n",
            since(service->index.asked, &live->asked), path_breaker_name(&service->path),
            service_queued(service));
    if (live->in_place && service->path.pipeline) print_stages(live, stderr);
}

static void every_second(weir_timer *timer, void *keep_arg)
{
    show(keep_arg);
    weir_timer_start(timer, 1000);
}

int live_open(weir_scope *scope, struct service *keep_service)
{
    static struct live live; /* there is one terminal */
    weir_timer_spec spec = {.name = "live", .on_fire = every_second, .keep_arg = &live};
    weir_timer *timer;
    int r = weir_timer_open(scope, &spec, &timer);

    if (r < 0) return r;
    live = (struct live){.service = keep_service, .in_place = isatty(STDERR_FILENO)};
    weir_timer_start(timer, 1000);
    return 0;
}

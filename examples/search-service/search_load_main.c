/* search_load_main.c - load for the search service, and what it makes of it.
 *
 *     search-load --rate 1000 --seconds 10            so many requests in a second, for so long
 *     search-load --story 10 --csv run.csv            calm, 1x, 5x overload, an upstream outage,
 *                                                     recovery; the unit is 10 seconds
 *
 * The story measures the capacity first, so that 5x means the same on every machine, and closes
 * with what was claimed and whether it held. Exit status: 0 it has run (and no more claims were
 * missed than --max-missed says), 1 a failure, 2 wrong usage.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../options.h"
#include "load.h"

static const struct phase story[] = {
    {.name = "calm", .factor = 0.3, .seconds = 0.5},
    {.name = "1x", .factor = 1.0, .seconds = 1.0},
    {.name = "5x", .factor = 5.0, .seconds = 1.5},
    {.name = "relief", .factor = 0.7, .seconds = 1.0},
    {.name = "outage", .factor = 0.7, .seconds = 1.0, .outage = true},
    {.name = "recovery", .factor = 0.7, .seconds = 1.5},
};

static void say_phase(const struct phase *phase)
{
    fprintf(stderr, "search-load: %s: %.0f requests/s for %.1f s\n", phase->name, phase->rate,
            phase->seconds);
}

static void write_story(struct load *load, double capacity)
{
    load->phase_count = (int)(sizeof story / sizeof story[0]);
    for (int i = 0; i < load->phase_count; i++) {
        load->phases[i] = story[i];
        load->phases[i].rate = story[i].factor * capacity;
        load->phases[i].seconds = story[i].seconds * load->story_seconds;
    }
}

static int run(void *arg)
{
    struct load *load = arg;
    double capacity = load->capacity;
    int r = 0;

    if (load->story_seconds > 0 || load->rate == 0) {
        if (capacity == 0) r = load_measure_capacity(load, &capacity);
        if (r < 0) return r;
        printf("capacity %.1f requests/s\n", capacity);
        (void)fflush(stdout);
        if (load->story_seconds == 0) return 0;
        if (capacity < 1) return -ENODATA;
        write_story(load, capacity);
    } else {
        load->phase_count = 1;
        load->phases[0] = (struct phase){
            .name = "load", .factor = 1, .seconds = load->seconds, .rate = load->rate};
    }
    r = load_run(load);
    if (r == 0 && load->csv) r = load_write_csv(load);
    if (r == 0 && load_report(load, capacity) > load->max_missed) r = -EDOM;
    return r;
}

static int allocate(struct load *load)
{
    load->intervals = calloc(INTERVALS_MAX, sizeof *load->intervals);
    load->samples = calloc(INTERVALS_MAX, sizeof *load->samples);
    load->interval_phases = calloc(INTERVALS_MAX, sizeof *load->interval_phases);
    load->interval_rates = calloc(INTERVALS_MAX, sizeof *load->interval_rates);
    return load->intervals && load->samples && load->interval_phases && load->interval_rates
               ? 0
               : -ENOMEM;
}

int main(int argc, char **argv)
{
    static struct load load = {.service = "tcp:127.0.0.1:7700",
                               .lock = PTHREAD_MUTEX_INITIALIZER,
                               .intervals_max = INTERVALS_MAX,
                               .on_phase = say_phase};
    weir_config config = {.name = "search-load", .workers = 1, .signals = WEIR_SIGNAL_DUMP};
    const struct option_number options[] = {
        {"--service", NULL, 0, 0, 0, "its address", &load.service},
        {"--admin", NULL, 0, 0, 0, "where it has its figures", &load.admin},
        {"--control", NULL, 0, 0, 0, "the control port of its upstream", &load.control},
        {"--rate", &load.rate, 0, 0, 1000000, "requests in a second; 0: only measure the capacity"},
        {"--seconds", &load.seconds, 10, 1, 600, "for how long"},
        {"--story", &load.story_seconds, 0, 0, 60, "run the story, with this unit in seconds"},
        {"--capacity", &load.capacity, 0, 0, 1000000, "of the story; 0: measure it"},
        {"--capacity-seconds", &load.capacity_seconds, 5, 1, 60, "how long it is measured"},
        {"--connections", &load.connections, 32, 1, CONNECTIONS_MAX, "that requests are sent on"},
        {"--budget", &load.budget_ms, 500, 1, 60000, "ms after which an answer is of no use"},
        {"--max-missed", &load.max_missed, 99, 0, 99, "claims that may be missed"},
        {"--csv", NULL, 0, 0, 0, "a file for the figures of each interval", &load.csv},
        {0},
    };
    int r = options_read(argc, argv, "search-load [OPTION]...", options);

    if (r < argc) return fprintf(stderr, "search-load: unexpected argument '%s'\n", argv[r]), 2;
    if (load.story_seconds > 0 && (!load.admin || !load.control))
        return fprintf(stderr, "search-load: the story needs --admin and --control\n"), 2;
    r = allocate(&load);
    if (r == 0) r = weir_run(&config, run, &load);
    free(load.intervals);
    free(load.samples);
    free(load.interval_phases);
    free(load.interval_rates);
    if (r < 0 && r != -EDOM)
        fprintf(stderr, "search-load: %s\n", r == WEIR_EREFUSED ? weir_why() : weir_strerror(r));
    return r < 0;
}

/* search_upstream_main.c - what the search service depends on, as a program: upstream_server.h.
 *
 *     search-upstream [--port N] [--control-port N] [--slots N] [--latency MS] [--jitter MS]
 *
 * Exit status: 0 it was told to stop, 1 a failure, 2 wrong usage.
 */
#include <stdio.h>
#include <sys/resource.h>

#include "../options.h"
#include "upstream_server.h"

enum { DRAIN_MS = 200 };

static void say(const char *what, const char *address)
{
    printf("search-upstream: %s on %s\n", what, address);
    (void)fflush(stdout);
}

static int run(void *arg)
{
    return upstream_server_run(arg);
}

/* Each client is a descriptor. */
static void allow_descriptors(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

int main(int argc, char **argv)
{
    static struct upstream_server upstream = {.listen_host = "127.0.0.1", .on_listen = say};
    weir_config config = {.name = "search-upstream",
                          .workers = 1,
                          .signals = WEIR_SIGNAL_DRAIN | WEIR_SIGNAL_DUMP,
                          .drain_ms = DRAIN_MS,
                          .log_level = WEIR_LOG_OFF}; /* clients that go away are its daily life */
    const struct option_number options[] = {
        {"--port", &upstream.port, 7801, 0, 65535, "where to listen; 0: any port that is free"},
        {"--control-port", &upstream.control_port, 7802, 0, 65535, "likewise, for control lines"},
        {"--slots", &upstream.slots_count, 16, 1, 4096, "requests that are worked on at a time"},
        {"--latency", &upstream.latency_ms_first, 15, 0, 60000, "ms that a request takes"},
        {"--jitter", &upstream.jitter_ms_first, 10, 0, 60000, "ms that it may take more"},
        {0},
    };
    int r = options_read(argc, argv, "search-upstream [OPTION]...", options);

    if (r < argc) return fprintf(stderr, "search-upstream: unexpected argument '%s'\n", argv[r]), 2;
    allow_descriptors();
    r = weir_run(&config, run, &upstream);
    if (r < 0)
        fprintf(stderr, "search-upstream: %s\n",
                r == WEIR_EREFUSED ? weir_why() : weir_strerror(r));
    return r < 0;
}

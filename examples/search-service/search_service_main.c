/* search_service_main.c - a search service that survives overload and what it depends on.
 *
 *     search-service --demo                      with an upstream of its own, and live figures
 *     search-service --upstream tcp:HOST:PORT    with one that is there
 *
 * search.h has the protocol, docs/guide/search-service.md the tour. TERM or INT stops it: nothing
 * new is read, what was accepted is answered. Exit status: 0 all of it was, 1 a failure, or
 * something was cut off, 2 wrong usage.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "../options.h"
#include "lines.h"
#include "service.h"

enum { STARTING_MS = 5000, UPSTREAM_GRACE_MS = 1000 };

/* The service, and what else was asked for on the command line. */
struct program {
    struct service service;
    int demo, quiet, memory_max_mb;
};

static char control[WEIR_ADDRESS_TEXT_MAX]; /* of the upstream that was started; or "" */

/* ---- Its own upstream ---- */

/* "search-upstream: control on tcp:127.0.0.1:7802", and the same for where it listens. */
static int read_address(struct line_reader *reader, char *text, size_t bytes)
{
    char *line, *at;
    int r = line_next(reader, &line);

    if (r < 0) return r;
    at = strstr(line, " on tcp:");
    if (!at) return -EBADMSG;
    (void)snprintf(text, bytes, "%s", at + 4);
    return 0;
}

static void beside(const char *name, char *path, size_t bytes)
{
    ssize_t length = readlink("/proc/self/exe", path, bytes - 1);
    char *slash;

    path[length > 0 ? length : 0] = '\0';
    slash = strrchr(path, '/');
    if (slash) (void)snprintf(slash + 1, bytes - (size_t)(slash + 1 - path), "%s", name);
}

/* It ends with the scope, which is around everything that asks it. */
static int start_upstream(weir_scope *scope, struct service *service)
{
    static char path[4096], address[WEIR_ADDRESS_TEXT_MAX];
    const char *const any_port[] = {"--port", "0", "--control-port", "0", NULL};
    const char *const no_arguments[] = {NULL};
    struct line_reader reader;
    weir_process *process;
    weir_conn *output = NULL;
    int r = WEIR_ECANCELED;

    beside("search-upstream", path, sizeof path);
    WEIR_DEADLINE(STARTING_MS) {
        r = weir_process_start(
            scope,
            &(weir_process_spec){.name = "search-upstream",
                                 .program = path,
                                 .arguments = service->port == 0 ? any_port : no_arguments,
                                 .grace_ms = UPSTREAM_GRACE_MS,
                                 .on_exit = WEIR_EXIT_ANY,
                                 .out = {.kind = WEIR_STDIO_PIPE, .ret_conn = &output},
                                 .err = {.kind = WEIR_STDIO_INHERIT},
                                 .parent_death_signal = SIGKILL},
            &process);
        if (r < 0) return r;
        line_reader_init(&reader, output);
        r = read_address(&reader, control, sizeof control);
        if (r == 0) r = read_address(&reader, address, sizeof address);
    }
    weir_conn_close(output);
    service->upstream_address = address;
    return r == WEIR_ECLOSED ? -ECONNREFUSED : r; /* it has said on standard error why it ended */
}

static const char *port_of(const char *address)
{
    return strrchr(address, ':') + 1;
}

static void print_welcome(const struct service *service)
{
    printf("search-service: listening on %s, figures on http://127.0.0.1:%s/metrics\n",
           service->address, port_of(service->admin_address));
    if (control[0]) {
        const char *port = port_of(service->address);
        printf("from another terminal, in bash:\n"
               "    exec 3<>/dev/tcp/127.0.0.1/%s; echo 'SEARCH 1 old mill' >&3; head -n 1 <&3\n"
               "    curl -s http://127.0.0.1:%s/map      every boundary, its bounds and figures\n"
               "    echo 'outage on' >/dev/tcp/127.0.0.1/%s   the upstream hangs; 'outage off'\n"
               "    echo 'details fail' >/dev/tcp/127.0.0.1/%s   partial answers; 'details ok'\n"
               "    build/release/examples/search-load --service %s --rate 1000 --seconds 10\n"
               "Ctrl-C, or kill %d, ends it when all that was accepted is answered\n",
               port, port_of(service->admin_address), port_of(control), port_of(control),
               service->address, (int)getpid());
    }
    (void)fflush(stdout);
}

/* ---- The service ---- */

static void print_end(const struct service *service)
{
    unsigned long answered = 0;

    for (int code = 0; code < SEARCH_CODES; code++) answered += service->figures.answered[code];
    fprintf(stderr, "search-service: stopped: %lu accepted, %lu answered, %lu not taken\n",
            (unsigned long)service->figures.accepted, answered,
            (unsigned long)service->figures.unanswered);
}

static int run(void *arg)
{
    struct program *program = arg;
    struct service *service = &program->service;
    int result;

    WEIR_SCOPE(scope, &result, .name = "search", .on_failure = WEIR_FAIL_FAST, .max_tasks = 1,
               .overflow = WEIR_REJECT) {
        int r = program->demo ? start_upstream(scope, service) : 0;
        if (r == 0) r = service_run(service);
        if (r < 0) weir_scope_cancel(scope, r, "the service has failed");
    }
    print_end(service);
    return result;
}

/* A mistake must not take the machine with it. */
static void limit_memory(int mb)
{
    struct rlimit limit = {.rlim_cur = (rlim_t)mb << 20, .rlim_max = (rlim_t)mb << 20};

    if (mb > 0) (void)setrlimit(RLIMIT_AS, &limit);
}

int main(int argc, char **argv)
{
    static struct program program;
    struct service *service = &program.service;
    const char *naive = naive_name(NAIVE_NOT);
    weir_config config = {.name = "search-service",
                          .signals = WEIR_SIGNAL_DRAIN | WEIR_SIGNAL_DUMP | WEIR_SIGNAL_OVERFLOW};
    const struct option_number options[] = {
        {"--port", &service->port, 7700, 0, 65535, "where to listen; 0: any port that is free"},
        {"--admin-port", &service->admin_port, 7701, 0, 65535, "likewise, for figures over HTTP"},
        {"--upstream", NULL, 0, 0, 0, "its address", &service->upstream_address},
        {"--demo", &program.demo, 0, 0, 0, "start an upstream, too"},
        {"--quiet", &program.quiet, 0, 0, 0, "no live figures"},
        {"--no-titles", &service->no_titles, 0, 0, 0,
         "answers are partial: nobody is asked for titles"},
        {"--workers", &config.workers, 0, 0, WEIR_WORKERS_MAX, "threads; 0: the usable cores"},
        {"--rank-threads", &service->deps.rank_threads, 1, 1, 64, "threads that rank"},
        {"--rank-us", &service->deps.rank_us, 4000, 0, 1000000, "what ranking a search costs"},
        {"--patience", &service->deps.patience, 1, 1, 1000,
         "all timeouts and the budget, times this"},
        {"--line-ms", &service->line_ms, 2000, 10, 60000,
         "for a line to come, or answers to be taken"},
        {"--idle-ms", &service->idle_ms, 60000, 10, 3600000, "between two requests"},
        {"--naive", NULL, 0, 0, 0,
         "a mistake: unbounded-queue, thread-per-request, retry-without-budget", &naive},
        {"--memory-max", &program.memory_max_mb, 0, 0, 1 << 20, "MB of address space; 0: no limit"},
        {0},
    };
    int r;

    service->upstream_address = "tcp:127.0.0.1:7801";
    service->listen_host = "127.0.0.1";
    service->deps.time_us = search_thread_time_us;
    service->on_open = print_welcome;
    r = options_read(argc, argv, "search-service [OPTION]...", options);
    if (r < argc) return fprintf(stderr, "search-service: unexpected argument '%s'\n", argv[r]), 2;
    service->naive = naive_named(naive);
    if (service->naive == NAIVES)
        return fprintf(stderr, "search-service: no mistake '%s'\n", naive), 2;
    if (!program.quiet) service->watch_open = live_open;
    limit_memory(program.memory_max_mb);
    config.drain_ms = CLIENTS_DRAIN_MS * service->deps.patience;
    r = weir_run(&config, run, &program);
    if (r < 0)
        fprintf(stderr, "search-service: %s\n", r == WEIR_EREFUSED ? weir_why() : weir_strerror(r));
    return r < 0;
}

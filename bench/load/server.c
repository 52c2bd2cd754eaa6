/* server.c - the load generator of `bench server`: one for all servers.
 *
 *     bench-server-load WORKLOAD MS PEER SERVER [ARGUMENT...]
 *
 * Starts SERVER on a port of 127.0.0.1 with a fresh folder, drives it for MS milliseconds after a
 * warm-up, and kills it. In the arguments {port} and {data} are filled in, and {config} is a copy
 * of the file that BENCH_CONFIG names, with both filled in. BENCH_PROTOCOL is the language: http,
 * redis, beanstalkd. The folder is below BENCH_DATA. BENCH_DURABILITY is what weir is asked for.
 *
 *     enqueue_C      jobs of 100 bytes, over C connections
 *     lifecycle_C    each connection enqueues one, leases one and acknowledges that
 *     get_C          a small GET, by wrk
 *
 * With _apart the server is on the last core and the client on the first; otherwise the kernel puts
 * them where it likes (get is always apart). What comes after that in the name is for the reader.
 *
 * Exit status: 0 all metrics were printed, 1 a failure, 2 wrong usage, 77 it cannot be measured
 * here. */
#include "load/server.h"

#include <signal.h>
#include <stdarg.h>
#include <unistd.h>

#include "bench_store.h"

struct load load = {.bench = {.program = "bench-server-load"}, .server = -1};

static const struct protocol *const protocols[] = {&protocol_http, &protocol_redis,
                                                   &protocol_beanstalkd};

_Noreturn void leave(int status)
{
    server_kill();
    exit(status);
}

_Noreturn void stop(int status, const char *format, ...)
{
    va_list arguments;

    fprintf(stderr, "bench-server-load: ");
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\n");
    leave(status);
}

_Noreturn void stop_errno(const char *call)
{
    stop(1, "%s: %s", call, strerror(errno));
}

void print_figure(const char *metric, const char *unit, double figure)
{
    printf("{\"workload\":\"%s_%s\",\"peer\":\"%s\",\"n\":%zu,\"%s\":%.4f}\n", load.bench.workload,
           metric, load.bench.peer, load.bench.n, unit, figure);
}

/* ---- Workloads ---- */

enum kind { KIND_ENQUEUE, KIND_LIFECYCLE, KIND_GET };

struct workload {
    enum kind kind;
    size_t connections;
};

static const char *const kinds[] = {
    [KIND_ENQUEUE] = "enqueue_", [KIND_LIFECYCLE] = "lifecycle_", [KIND_GET] = "get_"};

static bool parse_workload(const char *name, struct workload *ret_workload)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t prefix = strlen(kinds[i]);
        if (strncmp(name, kinds[i], prefix) != 0) continue;
        ret_workload->kind = (enum kind)i;
        ret_workload->connections = strtoull(name + prefix, NULL, 10);
        return ret_workload->connections >= 1 && ret_workload->connections <= CONNECTIONS_MAX;
    }
    return false;
}

static const struct protocol *parse_protocol(const char *name)
{
    for (size_t i = 0; name && i < sizeof protocols / sizeof *protocols; i++)
        if (strcmp(protocols[i]->name, name) == 0) return protocols[i];
    return NULL;
}

/* ---- main ---- */

static void out_of_time(int signal_number)
{
    static const char text[] = "bench-server-load: not done in time\n";

    (void)signal_number;
    if (write(2, text, sizeof text - 1) < 0) { /* nobody is there to be told */
    }
    server_kill();
    _exit(1);
}

int main(int argc, char **argv)
{
    struct workload workload;

    if (argc < 5) {
        fprintf(stderr, "usage: bench-server-load WORKLOAD MS PEER SERVER [ARGUMENT...]\n");
        return 2;
    }
    load.bench.workload = argv[1];
    load.bench.n = bench_parse_count(argv[2], RUN_SECONDS_MAX * 1000 / 2);
    load.bench.peer = argv[3];
    load.protocol = parse_protocol(getenv("BENCH_PROTOCOL"));
    if (!parse_workload(argv[1], &workload) || load.bench.n == 0 || !load.protocol)
        stop(2, "no such workload, time or BENCH_PROTOCOL");
    load.apart = workload.kind == KIND_GET || strstr(argv[1], "_apart");
    signal(SIGPIPE, SIG_IGN);
    signal(SIGALRM, out_of_time);
    alarm(RUN_SECONDS_MAX);
    store_folder_open(&load.bench);
    snprintf(load.data, sizeof load.data, "%.*s", (int)sizeof load.data - 1, store_folder);
    server_start(argv + 4);
    if (workload.kind == KIND_GET)
        measure_get(workload.connections);
    else
        measure_jobs(workload.connections, workload.kind == KIND_LIFECYCLE);
    fflush(stdout);
    leave(0);
}

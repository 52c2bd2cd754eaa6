/* main.c - plain C's side of `bench runtime` and `bench flow`: no runtime around the work.
 *
 * BENCH_WORKERS (default 1) is the number of threads of fan_out; with more than one the peer
 * calls itself c2, c3 and so on. */
#include "bare.h"
#include "pool.h"
#include "sequential.h"

static int workers = 1;

static void fan_out_measure(const struct bench *bench)
{
    fan_measure(bench, workers);
}

static const struct bench_workload workloads[] = {
    {"sequential", SEQUENTIAL_STEPS_DEFAULT, sequential_measure},
    {"pool", 500000, pool_measure},
    {"fan_out", 40000, fan_out_measure},
    {"ping_pong", 5000000, bare_ping_pong},
    {"channel_1_1", 20000000, bare_channel_1_1},
    {"channel_4_4", 20000000, bare_channel_4_4},
    {"select_4_0", 5000000, bare_select_4_0},
    {"select_4_128", 10000000, bare_select_4_128},
    {"mutex", 50000000, bare_mutex},
    {"mutex_1000", 10000000, bare_mutex_1000},
    {0},
};

int main(int argc, char **argv)
{
    char peer[16] = "c";
    struct bench bench = {.program = "bench-c", .peer = peer};
    const struct bench_workload *workload = bench_parse(argc, argv, workloads, &bench);
    const char *text = getenv("BENCH_WORKERS");

    if (!workload) return 2;
    if (text) workers = (int)bench_parse_count(text, 64);
    if (workers == 0) {
        fprintf(stderr, "bench-c: BENCH_WORKERS is '%s', not a count from 1 to 64\n", text);
        return 2;
    }
    if (workers > 1) snprintf(peer, sizeof peer, "c%d", workers);
    workload->run(&bench);
    return 0;
}

/* sim.c - `bench sim`: how many simulated runs of a small program are made in a minute.
 *
 * Six tasks, about 65 choices: three producers and two consumers at a channel that is mostly full
 * or empty, and one that cancels the producers when it has had a few turns. The figure is in
 * processor time of the process that makes the runs (it is forked by weir_sim_run), one core by its
 * nature; what passes between begin and end on a busy machine says nothing. */
#include <sys/resource.h>
#include <weir/weir.h>

#include "bench.h"

enum { PRODUCERS = 3, CONSUMERS = 2, ITEMS = 5, TURNS = 10 };

typedef WEIR_TX(int) item_tx;
typedef WEIR_RX(int) item_rx;

static int produce(void *arg)
{
    item_tx tx = *(item_tx *)arg;
    int r = 0;

    for (int i = 0; i < ITEMS && r == 0; i++) r = weir_send(tx, &i);
    return r == WEIR_ECANCELED ? 0 : r;
}

static int consume(void *arg)
{
    item_rx rx = *(item_rx *)arg;
    int item, r;

    while ((r = weir_recv(rx, &item)) == 0) continue;
    return r == WEIR_ECLOSED ? 0 : r;
}

static int cancel(void *arg)
{
    weir_scope *producers = *(weir_scope **)arg;
    int r = 0;

    for (int i = 0; i < TURNS && r == 0; i++) r = weir_yield();
    weir_scope_cancel(producers, 0, "enough");
    return r == WEIR_ECANCELED ? 0 : r;
}

static int produce_until_cancelled(item_tx tx)
{
    int result;

    WEIR_SCOPE(producers, &result, .name = "producers", .on_failure = WEIR_COLLECT,
               .max_tasks = PRODUCERS + 1, .overflow = WEIR_REJECT, .deadline_ms = 60000) {
        result = weir_spawn(producers, cancel, &producers, sizeof producers);
        for (int i = 0; i < PRODUCERS && result == 0; i++)
            result = weir_spawn(producers, produce, &tx, sizeof tx);
    }
    return result == WEIR_ECANCELED ? 0 : result;
}

static int program(void *arg)
{
    item_tx tx;
    item_rx rx;
    int result;

    (void)arg;
    WEIR_SCOPE(all, &result, .name = "all", .on_failure = WEIR_FAIL_FAST, .max_tasks = CONSUMERS,
               .overflow = WEIR_REJECT, .deadline_ms = 60000) {
        result = weir_chan_open(
            all,
            &(weir_chan_spec){
                .name = "items", .capacity = 2, .overflow = WEIR_WAIT, .on_close = WEIR_DRAIN},
            &tx, &rx);
        for (int i = 0; i < CONSUMERS && result == 0; i++)
            result = weir_spawn(all, consume, &rx, sizeof rx);
        if (result == 0) result = produce_until_cancelled(tx);
        weir_tx_drop(tx.end);
    }
    return result;
}

/* Of the processes that were forked and have ended. */
static double children_seconds(const struct bench *bench)
{
    struct rusage usage;

    if (getrusage(RUSAGE_CHILDREN, &usage) != 0) bench_fail(bench, "getrusage", strerror(errno));
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void measure(const struct bench *bench, unsigned strategy)
{
    static weir_sim_result result;
    double seconds = children_seconds(bench);
    int r = weir_sim_run(
        &(weir_sim_spec){
            .name = "bench", .runs_max = bench->n, .strategies = strategy, .ret_result = &result},
        program, NULL);

    if (r < 0) bench_fail(bench, "weir_sim_run", r == WEIR_EFOUND ? result.failure : weir_why());
    seconds = children_seconds(bench) - seconds;
    printf("{\"workload\":\"%s\",\"peer\":\"weir\",\"n\":%zu,\"runs_per_minute\":%.0f}\n",
           bench->workload, bench->n, (double)result.runs * 60 / seconds);
    printf("{\"workload\":\"%s_steps\",\"peer\":\"weir\",\"n\":%zu,\"steps_per_run\":%.1f}\n",
           bench->workload, bench->n, (double)result.steps / (double)result.runs);
    printf("{\"workload\":\"%s_distinct\",\"peer\":\"weir\",\"n\":%zu,\"of_100\":%.1f}\n",
           bench->workload, bench->n, 100 * (double)result.distinct / (double)result.runs);
}

static void measure_random(const struct bench *bench)
{
    measure(bench, WEIR_SIM_RANDOM);
}

static void measure_pct(const struct bench *bench)
{
    measure(bench, WEIR_SIM_PCT);
}

static const struct bench_workload workloads[] = {
    {"sim_random", 500000, measure_random},
    {"sim_pct", 500000, measure_pct},
    {0},
};

int main(int argc, char **argv)
{
    struct bench bench = {.program = "bench-sim", .peer = "weir"};
    const struct bench_workload *workload = bench_parse(argc, argv, workloads, &bench);

    if (!workload) return 2;
    workload->run(&bench);
    return 0;
}

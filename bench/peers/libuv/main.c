/* main.c - libuv's side of `bench runtime`: timers. It has no tasks.
 *
 * The timers lie in one array, as they would inside objects of the program. For
 * timer_new it is memory that was never touched, else it is resident before the
 * clock runs. */
#include <stdbool.h>
#include <uv.h>

#include "bench.h"

struct timers {
    uv_loop_t loop;
    uv_timer_t *timer; /* array of n */
    uint64_t random;
};

static void on_fire(uv_timer_t *timer)
{
    (void)timer;
}

static void check(const struct bench *bench, const char *call, int error)
{
    if (error < 0) bench_fail(bench, call, uv_strerror(error));
}

static void timers_init(struct timers *timers, const struct bench *bench, bool touch)
{
    timers->random = BENCH_RANDOM_SEED;
    timers->timer = calloc(bench->n, sizeof *timers->timer);
    if (!timers->timer) bench_fail(bench, "calloc", strerror(ENOMEM));
    if (touch) memset(timers->timer, 1, bench->n * sizeof *timers->timer);
    check(bench, "uv_loop_init", uv_loop_init(&timers->loop));
}

static void timers_deinit(struct timers *timers, const struct bench *bench)
{
    for (size_t i = 0; i < bench->n; i++) uv_close((uv_handle_t *)&timers->timer[i], NULL);
    check(bench, "uv_run", uv_run(&timers->loop, UV_RUN_NOWAIT));
    check(bench, "uv_loop_close", uv_loop_close(&timers->loop));
    free(timers->timer);
}

static void timer_start(struct timers *timers, const struct bench *bench, size_t index)
{
    uint64_t delay_ms = (uint64_t)bench_random_delay_ms(&timers->random);

    check(bench, "uv_timer_start", uv_timer_start(&timers->timer[index], on_fire, delay_ms, 0));
}

static void timers_insert(struct timers *timers, const struct bench *bench)
{
    for (size_t i = 0; i < bench->n; i++) {
        check(bench, "uv_timer_init", uv_timer_init(&timers->loop, &timers->timer[i]));
        timer_start(timers, bench, i);
    }
}

static void insert_measured(const struct bench *bench, bool touch)
{
    struct timers timers;
    int64_t begin_ns;

    timers_init(&timers, bench, touch);
    begin_ns = bench_now_ns();
    timers_insert(&timers, bench);
    bench_print_ns(bench, bench->workload, bench_now_ns() - begin_ns, bench->n);
    timers_deinit(&timers, bench);
}

static void run_timer_insert(const struct bench *bench)
{
    insert_measured(bench, true);
}

static void run_timer_new(const struct bench *bench)
{
    insert_measured(bench, false);
}

static void churn(const struct bench *bench, bool at_random)
{
    struct timers timers;
    int64_t begin_ns;

    timers_init(&timers, bench, true);
    timers_insert(&timers, bench);
    begin_ns = bench_now_ns();
    for (size_t i = 0; i < bench->n; i++) {
        size_t victim = at_random ? bench_random(&timers.random) % bench->n : i;

        check(bench, "uv_timer_stop", uv_timer_stop(&timers.timer[victim]));
        timer_start(&timers, bench, victim);
    }
    bench_print_ns(bench, bench->workload, bench_now_ns() - begin_ns, bench->n);
    timers_deinit(&timers, bench);
}

static void run_timer_churn_in_order(const struct bench *bench)
{
    churn(bench, false);
}

static void run_timer_churn(const struct bench *bench)
{
    churn(bench, true);
}

static const struct bench_workload workloads[] = {
    {"timer_insert", 1000000, run_timer_insert},
    {"timer_new", 1000000, run_timer_new},
    {"timer_churn_in_order", 1000000, run_timer_churn_in_order},
    {"timer_churn", 1000000, run_timer_churn},
    {0},
};

int main(int argc, char **argv)
{
    struct bench bench = {.program = "bench-libuv", .peer = "libuv"};
    const struct bench_workload *workload = bench_parse(argc, argv, workloads, &bench);

    if (!workload) return 2;
    workload->run(&bench);
    return 0;
}

/* runtime.c - weir's side of `bench runtime`.
 *
 * BENCH_WORKERS (default 1) is the number of workers; with more than one the
 * peer calls itself weir2, weir3 and so on. */
#include <stdbool.h>
#include <weir/weir.h>

#include "sequential.h"
#include "weir_session.h"

static int workers = 1;

static void check(const struct bench *bench, const char *call, int result)
{
    if (result >= 0) return;
    bench_fail(bench, call, *weir_why() ? weir_why() : weir_strerror(result));
}

/* ---- spawn ---- */

static int return_at_once(void *arg)
{
    (void)arg;
    return 0;
}

static int yield_once(void *arg)
{
    (void)arg;
    return weir_yield();
}

/* BENCH_ALIVE tasks in a scope of their own, joined by its close, until n are done. */
static void spawn_rounds(const struct bench *bench, size_t n, weir_task_fn fn)
{
    while (n > 0) {
        size_t batch = n < BENCH_ALIVE ? n : BENCH_ALIVE;
        weir_scope *scope;

        check(bench, "weir_scope_open",
              weir_scope_open(&(weir_scope_spec){.name = "round",
                                                 .on_failure = WEIR_FAIL_FAST,
                                                 .max_tasks = BENCH_ALIVE,
                                                 .overflow = WEIR_WAIT},
                              &scope));
        for (size_t i = 0; i < batch; i++)
            check(bench, "weir_spawn", weir_spawn(scope, fn, NULL, 0));
        check(bench, "weir_scope_close", weir_scope_close(scope));
        n -= batch;
    }
}

static void spawn_measured(const struct bench *bench, weir_task_fn fn)
{
    int64_t begin_ns;

    spawn_rounds(bench, BENCH_ALIVE, fn);
    begin_ns = bench_now_ns();
    spawn_rounds(bench, bench->n, fn);
    bench_print_ns(bench, bench->workload, bench_now_ns() - begin_ns, bench->n);
}

static void measure_spawn_join(const struct bench *bench)
{
    spawn_measured(bench, return_at_once);
}

static void measure_spawn_yield_join(const struct bench *bench)
{
    spawn_measured(bench, yield_once);
}

/* ---- yield ---- */

static int yield_often(void *arg)
{
    size_t left = *(size_t *)arg;
    int r = 0;

    while (left-- > 0 && r == 0) r = weir_yield();
    return r;
}

static void yield_measured(const struct bench *bench, size_t task_count)
{
    size_t each = bench->n / task_count ? bench->n / task_count : 1;
    int64_t begin_ns = bench_now_ns();
    int result = 0;

    WEIR_SCOPE(scope, &result, .name = "yielding", .on_failure = WEIR_FAIL_FAST,
               .max_tasks = task_count, .overflow = WEIR_WAIT) {
        for (size_t i = 0; i < task_count; i++)
            check(bench, "weir_spawn", weir_spawn(scope, yield_often, &each, sizeof each));
    }
    check(bench, "WEIR_SCOPE", result);
    bench_print_ns(bench, bench->workload, bench_now_ns() - begin_ns, task_count * each);
}

static void measure_yield_1000(const struct bench *bench)
{
    yield_measured(bench, BENCH_YIELDING_MANY);
}

static void measure_yield_2(const struct bench *bench)
{
    yield_measured(bench, 2);
}

/* ---- timers ---- */

struct timers {
    weir_scope *scope;
    weir_timer **timer; /* array of n */
    uint64_t random;
};

static void on_fire(weir_timer *timer, void *arg)
{
    (void)timer;
    (void)arg;
}

static void timers_init(struct timers *timers, const struct bench *bench)
{
    timers->random = BENCH_RANDOM_SEED;
    timers->timer = calloc(bench->n, sizeof(weir_timer *));
    if (!timers->timer) bench_fail(bench, "calloc", strerror(ENOMEM));
    check(bench, "weir_scope_open",
          weir_scope_open(&(weir_scope_spec){.name = "timers",
                                             .on_failure = WEIR_FAIL_FAST,
                                             .max_tasks = 1,
                                             .overflow = WEIR_REJECT},
                          &timers->scope));
}

static void timers_deinit(struct timers *timers, const struct bench *bench)
{
    for (size_t i = 0; i < bench->n; i++) weir_timer_close(timers->timer[i]);
    check(bench, "weir_scope_close", weir_scope_close(timers->scope));
    free(timers->timer);
}

static void timer_open(struct timers *timers, const struct bench *bench, size_t index)
{
    check(bench, "weir_timer_open",
          weir_timer_open(timers->scope, &(weir_timer_spec){.name = "pending", .on_fire = on_fire},
                          &timers->timer[index]));
}

static void timer_start(struct timers *timers, size_t index)
{
    weir_timer_start(timers->timer[index], bench_random_delay_ms(&timers->random));
}

static void measure_timer_insert(const struct bench *bench)
{
    struct timers timers;
    int64_t begin_ns;

    timers_init(&timers, bench);
    for (size_t i = 0; i < bench->n; i++) timer_open(&timers, bench, i);
    begin_ns = bench_now_ns();
    for (size_t i = 0; i < bench->n; i++) timer_start(&timers, i);
    bench_print_ns(bench, bench->workload, bench_now_ns() - begin_ns, bench->n);
    timers_deinit(&timers, bench);
}

static void measure_timer_new(const struct bench *bench)
{
    struct timers timers;
    int64_t begin_ns;

    timers_init(&timers, bench);
    begin_ns = bench_now_ns();
    for (size_t i = 0; i < bench->n; i++) {
        timer_open(&timers, bench, i);
        timer_start(&timers, i);
    }
    bench_print_ns(bench, bench->workload, bench_now_ns() - begin_ns, bench->n);
    timers_deinit(&timers, bench);
}

/* In order: the timers are renewed one after the other, as connections that are all
 * busy do. At random: every pair is a few misses of the caches, whatever the timers
 * cost. */
static void churn(const struct bench *bench, bool at_random)
{
    struct timers timers;
    int64_t begin_ns;

    timers_init(&timers, bench);
    for (size_t i = 0; i < bench->n; i++) {
        timer_open(&timers, bench, i);
        timer_start(&timers, i);
    }
    begin_ns = bench_now_ns();
    for (size_t i = 0; i < bench->n; i++) {
        size_t victim = at_random ? bench_random(&timers.random) % bench->n : i;

        if (!weir_timer_stop(timers.timer[victim]))
            bench_fail(bench, "weir_timer_stop", "a timer fired that should be pending");
        timer_start(&timers, victim);
    }
    bench_print_ns(bench, bench->workload, bench_now_ns() - begin_ns, bench->n);
    timers_deinit(&timers, bench);
}

static void measure_timer_churn_in_order(const struct bench *bench)
{
    churn(bench, false);
}

static void measure_timer_churn(const struct bench *bench)
{
    churn(bench, true);
}

/* ---- one million parked tasks ---- */

/* Not atomic: these tasks share one worker (see measure_parked_million). */
static size_t parked_count;

static int park_until_cancelled(void *arg)
{
    (void)arg;
    WEIR_NO_DEADLINE("waits to be cancelled") {
        parked_count++;
        return weir_sleep(WEIR_FOREVER);
    }
    return 0;
}

static void measure_parked_million(const struct bench *bench)
{
    weir_scope *scope;
    int64_t before_bytes, begin_ns;

    if (workers != 1) bench_fail(bench, bench->workload, "is measured on one worker only");
    before_bytes = bench_resident_bytes(bench);
    begin_ns = bench_now_ns();
    check(bench, "weir_scope_open",
          weir_scope_open(&(weir_scope_spec){.name = "parked",
                                             .on_failure = WEIR_FAIL_FAST,
                                             .max_tasks = bench->n,
                                             .overflow = WEIR_REJECT},
                          &scope));
    for (size_t i = 0; i < bench->n; i++)
        check(bench, "weir_spawn", weir_spawn(scope, park_until_cancelled, NULL, 0));
    while (parked_count < bench->n && weir_scope_task_count(scope) == bench->n)
        check(bench, "weir_yield", weir_yield());
    if (weir_scope_task_count(scope) != bench->n)
        bench_fail(bench, "weir_sleep", "a task ended instead of parking");
    bench_print_ns(bench, "parked_create", bench_now_ns() - begin_ns, bench->n);
    bench_print_bytes(bench, "parked_bytes", bench_resident_bytes(bench) - before_bytes, bench->n);

    begin_ns = bench_now_ns();
    weir_scope_cancel(scope, 0, "everything is measured");
    check(bench, "weir_scope_close", weir_scope_close(scope));
    bench_print_ns(bench, "parked_cancel", bench_now_ns() - begin_ns, bench->n);
}

/* ---- main ---- */

static const struct bench_workload workloads[] = {
    {"spawn_join", 1000000, measure_spawn_join},
    {"spawn_yield_join", 1000000, measure_spawn_yield_join},
    {"yield_1000", 10000000, measure_yield_1000},
    {"yield_2", 10000000, measure_yield_2},
    {"timer_insert", 1000000, measure_timer_insert},
    {"timer_new", 1000000, measure_timer_new},
    {"timer_churn_in_order", 1000000, measure_timer_churn_in_order},
    {"timer_churn", 1000000, measure_timer_churn},
    {"parked_million", 1000000, measure_parked_million},
    {"sequential", SEQUENTIAL_STEPS_DEFAULT, sequential_measure},
    {0},
};

int main(int argc, char **argv)
{
    char peer[16] = "weir";
    struct bench bench = {.program = "bench-runtime", .peer = peer};
    struct session session = {.bench = &bench};
    weir_config config = {.name = "bench"};

    session.workload = bench_parse(argc, argv, workloads, &bench);
    if (!session.workload) return 2;
    workers = session_workers(&bench);
    if (workers == 0) return 2;
    if (workers > 1) snprintf(peer, sizeof peer, "weir%d", workers);
    config.workers = workers;
    check(&bench, "weir_run", weir_run(&config, session_task, &session));
    return 0;
}

/* flow.c - weir's side of `bench flow`.
 *
 * BENCH_WORKERS (default 1) is the number of workers; with more than one the
 * peer calls itself weir2, weir3 and so on. Tasks run where the runtime puts them; with BENCH_APART
 * senders and receivers of channels are placed on the workers in turn, so that the items of
 * a single sender cross from one worker to the other, and the name ends in _apart. With
 * BENCH_METRICS=off nothing is measured by weir itself, and the name ends in _off. */
#include <stdbool.h>
#include <weir/weir.h>

#include "job.h"
#include "weir_session.h"

static int workers = 1;
static bool apart;

typedef WEIR_TX(uint64_t) item_tx;
typedef WEIR_RX(uint64_t) item_rx;

static void check(const struct bench *bench, const char *call, int result)
{
    if (result >= 0) return;
    bench_fail(bench, call, *weir_why() ? weir_why() : weir_strerror(result));
}

static weir_scope *scope_new(const struct bench *bench)
{
    weir_scope *scope;

    check(bench, "weir_scope_open",
          weir_scope_open(&(weir_scope_spec){.name = "measured",
                                             .on_failure = WEIR_FAIL_FAST,
                                             .max_tasks = BENCH_YIELDING_MANY,
                                             .overflow = WEIR_WAIT},
                          &scope));
    return scope;
}

static void channel(const struct bench *bench, weir_scope *scope, size_t capacity, item_tx *ret_tx,
                    item_rx *ret_rx)
{
    weir_chan_spec spec = {
        .name = "items", .capacity = capacity, .overflow = WEIR_WAIT, .on_close = WEIR_DRAIN};

    check(bench, "weir_chan_open", weir_chan_open(scope, &spec, ret_tx, ret_rx));
}

enum { ANYWHERE = -1 };

static void spawn(const struct bench *bench, weir_scope *scope, int worker, weir_task_fn fn,
                  const void *arg, size_t arg_bytes)
{
    weir_task_spec spec = {.fn = fn, .arg = arg, .arg_bytes = arg_bytes};

    if (worker != ANYWHERE) {
        spec.place = WEIR_PLACE_WORKER;
        spec.worker = worker % workers;
    }
    check(bench, "weir_task_spawn", weir_task_spawn(scope, &spec, NULL));
}

/* ---- Channels ---- */

struct stream {
    item_tx tx;
    item_rx rx;
    size_t count;
};

static int send_all(void *arg)
{
    struct stream *stream = arg;
    int r = 0;

    for (uint64_t i = 0; i < stream->count && r == 0; i++) r = weir_send(stream->tx, &i);
    return r;
}

static int receive_all(void *arg)
{
    struct stream *stream = arg;
    uint64_t item;
    int r = 0;

    for (size_t i = 0; i < stream->count && r == 0; i++) r = weir_recv(stream->rx, &item);
    return r;
}

static void channel_measured(const struct bench *bench, int pairs)
{
    weir_scope *scope = scope_new(bench);
    struct stream stream = {.count = bench->n / (size_t)pairs};
    int64_t begin_ns;

    channel(bench, scope, BENCH_CHANNEL_CAPACITY, &stream.tx, &stream.rx);
    begin_ns = bench_now_ns();
    for (int i = 0; i < pairs; i++) {
        spawn(bench, scope, apart ? i : ANYWHERE, send_all, &stream, sizeof stream);
        spawn(bench, scope, apart ? i + 1 : ANYWHERE, receive_all, &stream, sizeof stream);
    }
    check(bench, "weir_scope_close", weir_scope_close(scope));
    bench_print_ns(bench, bench->workload, bench_now_ns() - begin_ns, stream.count * (size_t)pairs);
}

static void measure_channel_1_1(const struct bench *bench)
{
    channel_measured(bench, 1);
}

static void measure_channel_4_4(const struct bench *bench)
{
    channel_measured(bench, 4);
}

struct table {
    struct stream there, back;
};

static int ping(void *arg)
{
    struct table *table = arg;
    uint64_t ball;
    int r = 0;

    for (uint64_t i = 0; i < table->there.count && r == 0; i++) {
        r = weir_send(table->there.tx, &i);
        if (r == 0) r = weir_recv(table->back.rx, &ball);
    }
    return r;
}

static int pong(void *arg)
{
    struct table *table = arg;
    uint64_t ball;
    int r = 0;

    for (size_t i = 0; i < table->there.count && r == 0; i++) {
        r = weir_recv(table->there.rx, &ball);
        if (r == 0) r = weir_send(table->back.tx, &ball);
    }
    return r;
}

static void measure_ping_pong(const struct bench *bench)
{
    weir_scope *scope = scope_new(bench);
    struct table table = {.there = {.count = bench->n}};
    int64_t begin_ns;

    channel(bench, scope, WEIR_RENDEZVOUS, &table.there.tx, &table.there.rx);
    channel(bench, scope, WEIR_RENDEZVOUS, &table.back.tx, &table.back.rx);
    begin_ns = bench_now_ns();
    spawn(bench, scope, 0, ping, &table, sizeof table);
    spawn(bench, scope, 1, pong, &table, sizeof table);
    check(bench, "weir_scope_close", weir_scope_close(scope));
    bench_print_ns(bench, bench->workload, bench_now_ns() - begin_ns, bench->n);
}

/* ---- Select ---- */

enum { CASES = 4 };

struct choice {
    item_rx rx[CASES];
    size_t count;
};

static int select_all(void *arg)
{
    struct choice *choice = arg;
    uint64_t item;
    weir_case cases[CASES];

    for (int i = 0; i < CASES; i++) cases[i] = WEIR_CASE_RECV(choice->rx[i], &item);
    for (size_t i = 0; i < choice->count; i++) {
        int r = weir_select(cases, CASES, WEIR_FAIR);
        if (r < 0) return r;
    }
    return 0;
}

static void select_measured(const struct bench *bench, size_t capacity)
{
    weir_scope *scope = scope_new(bench);
    struct stream stream[CASES];
    struct choice choice = {.count = bench->n / CASES * CASES};
    int64_t begin_ns;

    for (int i = 0; i < CASES; i++) {
        stream[i].count = bench->n / CASES;
        channel(bench, scope, capacity, &stream[i].tx, &stream[i].rx);
        choice.rx[i] = stream[i].rx;
    }
    begin_ns = bench_now_ns();
    for (int i = 0; i < CASES; i++) spawn(bench, scope, 0, send_all, &stream[i], sizeof stream[i]);
    spawn(bench, scope, 1, select_all, &choice, sizeof choice);
    check(bench, "weir_scope_close", weir_scope_close(scope));
    bench_print_ns(bench, bench->workload, bench_now_ns() - begin_ns, choice.count);
}

static void measure_select_4_0(const struct bench *bench)
{
    select_measured(bench, WEIR_RENDEZVOUS);
}

static void measure_select_4_128(const struct bench *bench)
{
    select_measured(bench, BENCH_CHANNEL_CAPACITY);
}

/* ---- Mutex ---- */

struct critical {
    weir_mutex *mutex, *outer;
    size_t count;
    bool yields;
};

static int lock_often(void *arg)
{
    struct critical *critical = arg;
    int r = 0;

    for (size_t i = 0; i < critical->count && r == 0; i++) {
        r = weir_mutex_lock(critical->mutex);
        if (r < 0) return r;
        if (critical->yields) r = weir_yield();
        weir_mutex_unlock(critical->mutex);
    }
    return r;
}

static void mutex_measured(const struct bench *bench, size_t task_count, bool yields)
{
    weir_scope *scope = scope_new(bench);
    struct critical critical = {.count = bench->n / task_count, .yields = yields};
    int64_t begin_ns;

    check(bench, "weir_mutex_open", weir_mutex_open(scope, "critical", &critical.mutex));
    begin_ns = bench_now_ns();
    for (size_t i = 0; i < task_count; i++)
        spawn(bench, scope, 0, lock_often, &critical, sizeof critical);
    check(bench, "weir_scope_close", weir_scope_close(scope));
    bench_print_ns(bench, bench->workload, bench_now_ns() - begin_ns, critical.count * task_count);
}

static void measure_mutex(const struct bench *bench)
{
    mutex_measured(bench, 1, false);
}

/* With lock_checks on: see main. */
static void measure_mutex_checked(const struct bench *bench)
{
    mutex_measured(bench, 1, false);
}

/* The same inside another one, so that their order is looked up each time. */
static int lock_inside(void *arg)
{
    struct critical *critical = arg;
    int r = weir_mutex_lock(critical->outer);

    if (r < 0) return r;
    r = lock_often(critical);
    weir_mutex_unlock(critical->outer);
    return r;
}

static void measure_mutex_inside(const struct bench *bench)
{
    weir_scope *scope = scope_new(bench);
    struct critical critical = {.count = bench->n};
    int64_t begin_ns;

    check(bench, "weir_mutex_open", weir_mutex_open(scope, "critical", &critical.mutex));
    check(bench, "weir_mutex_open", weir_mutex_open(scope, "outer", &critical.outer));
    begin_ns = bench_now_ns();
    spawn(bench, scope, 0, lock_inside, &critical, sizeof critical);
    check(bench, "weir_scope_close", weir_scope_close(scope));
    bench_print_ns(bench, bench->workload, bench_now_ns() - begin_ns, critical.count);
}

static void measure_mutex_1000(const struct bench *bench)
{
    mutex_measured(bench, BENCH_YIELDING_MANY, true);
}

/* ---- Pool ---- */

struct office {
    weir_pool *pool;
    size_t count;
    uint64_t steps;
};

static int do_job(void *data)
{
    uint64_t *steps = data;
    *steps = job_run(*steps);
    return 0;
}

static int hand_over(void *arg)
{
    struct office *office = arg;
    int r = 0;

    for (size_t i = 0; i < office->count && r >= 0; i++) {
        uint64_t steps = office->steps;
        r = weir_pool_run(office->pool, 0, do_job, &steps, sizeof steps);
    }
    return r;
}

static weir_pool *pool_new(const struct bench *bench, weir_scope *scope)
{
    static const weir_pool_class classes[] = {
        {.name = "job", .weight = 1, .queue_max = BENCH_POOL_CALLERS}};
    weir_pool *pool;

    check(bench, "weir_pool_open",
          weir_pool_open(scope,
                         &(weir_pool_spec){.name = "pool",
                                           .threads_max = BENCH_POOL_THREADS,
                                           .overflow = WEIR_WAIT,
                                           .on_close = WEIR_DRAIN,
                                           .classes = classes,
                                           .class_count = 1},
                         &pool));
    return pool;
}

static void measure_pool(const struct bench *bench)
{
    weir_scope *scope = scope_new(bench);
    struct office office = {.pool = pool_new(bench, scope),
                            .count = bench->n / BENCH_POOL_CALLERS,
                            .steps = job_steps()};
    struct job_clock clock;

    job_clock_start(&clock, office.steps);
    for (int i = 0; i < BENCH_POOL_CALLERS; i++)
        spawn(bench, scope, 0, hand_over, &office, sizeof office);
    check(bench, "weir_scope_join", weir_scope_join(scope));
    job_clock_print(bench, &clock, office.count * BENCH_POOL_CALLERS);
    check(bench, "weir_scope_close", weir_scope_close(scope));
}

/* ---- Pipeline ---- */

static int pass_on(void *item, void *keep_arg)
{
    (void)item, (void)keep_arg;
    return 0;
}

/* Nothing may get lost here, and who receives would wait for it. */
static void item_lost(void *item, const weir_lost *lost, void *keep_arg)
{
    (void)item, (void)keep_arg;
    fprintf(stderr, "bench-flow: stage '%s' has lost an item: %s\n", lost->stage,
            weir_strerror(lost->error));
    exit(1);
}

struct source {
    weir_pipeline *pipeline;
    size_t count;
};

static int send_into_pipeline(void *arg)
{
    struct source *source = arg;
    int r = 0;

    for (uint64_t i = 0; i < source->count && r == 0; i++)
        r = weir_pipeline_send(source->pipeline, &i);
    return r;
}

/* Three stages that do nothing, the second in `pool` if there is one. */
static weir_pipeline *pipeline_new(const struct bench *bench, weir_scope *scope, weir_pool *pool)
{
    weir_stage_spec empty = {.name = "first",
                             .fn = pass_on,
                             .concurrency = 1,
                             .queue_max = BENCH_CHANNEL_CAPACITY,
                             .overflow = WEIR_WAIT,
                             .timeout_ms = 10000,
                             .on_failure = WEIR_STAGE_FAIL};
    weir_stage_spec stages[] = {empty, empty, empty};
    weir_pipeline *pipeline;

    stages[1].name = "second";
    stages[1].pool = pool;
    if (pool) stages[1].concurrency = BENCH_POOL_CALLERS;
    stages[2].name = "third";
    check(bench, "weir_pipeline_open",
          weir_pipeline_open(scope,
                             &(weir_pipeline_spec){.name = "empty",
                                                   .item_bytes = sizeof(uint64_t),
                                                   .budget_ms = 60000,
                                                   .stages = stages,
                                                   .stage_count = 3,
                                                   .on_lost = item_lost,
                                                   .results_max = BENCH_CHANNEL_CAPACITY},
                             &pipeline));
    return pipeline;
}

static void pipeline_measured(const struct bench *bench, bool pooled)
{
    weir_scope *scope = scope_new(bench);
    weir_pool *pool = pooled ? pool_new(bench, scope) : NULL;
    struct source source = {.pipeline = pipeline_new(bench, scope, pool), .count = bench->n};
    int64_t begin_ns = bench_now_ns();
    uint64_t item;

    spawn(bench, scope, 0, send_into_pipeline, &source, sizeof source);
    for (size_t i = 0; i < bench->n; i++)
        check(bench, "weir_pipeline_recv", weir_pipeline_recv(source.pipeline, &item, NULL));
    bench_print_ns(bench, bench->workload, bench_now_ns() - begin_ns, bench->n);
    check(bench, "weir_scope_close", weir_scope_close(scope));
}

static void measure_pipeline_item(const struct bench *bench)
{
    pipeline_measured(bench, false);
}

static void measure_pipeline_pool(const struct bench *bench)
{
    pipeline_measured(bench, true);
}

/* ---- Fan-out ---- */

static int fan_input(size_t index, const void *input, void *result, void *keep_arg)
{
    const uint64_t *seed = input;
    uint64_t *end = result;

    (void)index, (void)keep_arg;
    *end = fan_run(*seed);
    return 0;
}

static void measure_fan_out(const struct bench *bench)
{
    uint64_t *seeds = fan_seeds(bench);
    uint64_t *results = fan_seeds(bench);
    weir_fan_spec spec = {.name = "fan",
                          .in_flight_max = FAN_IN_FLIGHT,
                          .policy = WEIR_FAN_FAIL_FAST,
                          .fn = fan_input,
                          .count = bench->n,
                          .inputs = seeds,
                          .input_bytes = sizeof *seeds,
                          .results = results,
                          .result_bytes = sizeof *results};
    int64_t begin_ns = bench_now_ns();

    check(bench, "weir_fan_out", weir_fan_out(&spec, NULL));
    bench_print_ns(bench, bench->workload, bench_now_ns() - begin_ns, bench->n);
    fan_print_checksum(bench, results);
    free(results);
    free(seeds);
}

/* ---- main ---- */

static const struct bench_workload workloads[] = {
    {"ping_pong", 5000000, measure_ping_pong},
    {"channel_1_1", 20000000, measure_channel_1_1},
    {"channel_4_4", 20000000, measure_channel_4_4},
    {"select_4_0", 5000000, measure_select_4_0},
    {"select_4_128", 10000000, measure_select_4_128},
    {"mutex", 50000000, measure_mutex},
    {"mutex_1000", 10000000, measure_mutex_1000},
    {"mutex_checked", 10000000, measure_mutex_checked},
    {"mutex_inside_checked", 5000000, measure_mutex_inside},
    {"pool", 500000, measure_pool},
    {"pipeline_item", 3000000, measure_pipeline_item},
    {"pipeline_pool", 500000, measure_pipeline_pool},
    {"fan_out", 40000, measure_fan_out},
    {0},
};

/* Whether BENCH_METRICS is "off"; it must be that, "on" or nothing. Negative: it is not. */
static int metrics_asked_off(void)
{
    const char *text = getenv("BENCH_METRICS");

    if (!text || strcmp(text, "on") == 0) return 0;
    return strcmp(text, "off") == 0 ? 1 : -EINVAL;
}

static void name_peer(char *ret_peer, size_t peer_bytes, bool metrics_off)
{
    char count[12] = "";

    if (workers > 1) snprintf(count, sizeof count, "%d", workers);
    snprintf(ret_peer, peer_bytes, "weir%s%s%s", count, apart ? "_apart" : "",
             metrics_off ? "_off" : "");
}

int main(int argc, char **argv)
{
    char peer[32];
    int metrics_off = metrics_asked_off();
    struct bench bench = {.program = "bench-flow", .peer = peer};
    struct session session = {.bench = &bench};
    weir_config config = {.name = "bench"};

    session.workload = bench_parse(argc, argv, workloads, &bench);
    if (!session.workload) return 2;
    workers = session_workers(&bench);
    if (workers == 0) return 2;
    if (metrics_off < 0) {
        fprintf(stderr, "bench-flow: BENCH_METRICS is '%s', neither on nor off\n",
                getenv("BENCH_METRICS"));
        return 2;
    }
    apart = getenv("BENCH_APART") != NULL;
    name_peer(peer, sizeof peer, metrics_off);
    config.workers = workers;
    config.metrics_off = metrics_off;
    config.lock_checks = strstr(bench.workload, "_checked") ? WEIR_CHECKS_ON : WEIR_CHECKS_OFF;
    config.deadlock_checks = config.lock_checks;
    check(&bench, "weir_run", weir_run(&config, session_task, &session));
    return 0;
}

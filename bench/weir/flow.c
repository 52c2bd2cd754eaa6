/* flow.c - weir's side of `bench flow`.
 *
 * BENCH_WORKERS (default 1) is the number of workers; with more than one the
 * peer calls itself weir2, weir3 and so on. With two workers senders and receivers are placed
 * so that every item crosses from one to the other. */
#include <stdbool.h>
#include <weir/weir.h>

#include "bench.h"
#include "job.h"

static int workers = 1;

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

static void spawn(const struct bench *bench, weir_scope *scope, int worker, weir_task_fn fn,
                  const void *arg, size_t arg_bytes)
{
    check(bench, "weir_task_spawn",
          weir_task_spawn(scope,
                          &(weir_task_spec){.fn = fn,
                                            .arg = arg,
                                            .arg_bytes = arg_bytes,
                                            .place = WEIR_PLACE_WORKER,
                                            .worker = worker % workers},
                          NULL));
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
        spawn(bench, scope, i, send_all, &stream, sizeof stream);
        spawn(bench, scope, i + 1, receive_all, &stream, sizeof stream);
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
    weir_mutex *mutex;
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

static void measure_pool(const struct bench *bench)
{
    static const weir_pool_class classes[] = {
        {.name = "job", .weight = 1, .queue_max = BENCH_POOL_CALLERS}};
    weir_scope *scope = scope_new(bench);
    struct office office = {.count = bench->n / BENCH_POOL_CALLERS, .steps = job_steps()};
    struct job_clock clock;

    check(bench, "weir_pool_open",
          weir_pool_open(scope,
                         &(weir_pool_spec){.name = "pool",
                                           .threads_max = BENCH_POOL_THREADS,
                                           .overflow = WEIR_WAIT,
                                           .on_close = WEIR_DRAIN,
                                           .classes = classes,
                                           .class_count = 1},
                         &office.pool));
    job_clock_start(&clock, office.steps);
    for (int i = 0; i < BENCH_POOL_CALLERS; i++)
        spawn(bench, scope, 0, hand_over, &office, sizeof office);
    check(bench, "weir_scope_join", weir_scope_join(scope));
    job_clock_print(bench, &clock, office.count * BENCH_POOL_CALLERS);
    check(bench, "weir_scope_close", weir_scope_close(scope));
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
    {"pool", 500000, measure_pool},
    {0},
};

struct session {
    const struct bench *bench;
    const struct bench_workload *workload;
};

static int first_task(void *arg)
{
    const struct session *session = arg;

    session->workload->run(session->bench);
    return 0;
}

/* How many workers BENCH_WORKERS asks for; 0 if it is not a count. */
static int workers_asked(void)
{
    const char *text = getenv("BENCH_WORKERS");

    return text ? (int)bench_parse_count(text, WEIR_WORKERS_MAX) : 1;
}

int main(int argc, char **argv)
{
    char peer[16] = "weir";
    struct bench bench = {.program = "bench-flow", .peer = peer};
    struct session session = {.bench = &bench};
    weir_config config = {.name = "bench"};

    session.workload = bench_parse(argc, argv, workloads, &bench);
    if (!session.workload) return 2;
    workers = workers_asked();
    if (workers == 0) {
        fprintf(stderr, "bench-flow: BENCH_WORKERS is '%s', not a count from 1 to %d\n",
                getenv("BENCH_WORKERS"), WEIR_WORKERS_MAX);
        return 2;
    }
    if (workers > 1) snprintf(peer, sizeof peer, "weir%d", workers);
    config.workers = workers;
    check(&bench, "weir_run", weir_run(&config, first_task, &session));
    return 0;
}

/* store.c - drives a peer of `bench store` as so many concurrent callers would.
 *
 * BENCH_GROUP replaces the group size of an enqueue by the one that arose elsewhere. With
 * BENCH_SYNC_ONLY the peer is the disk alone: each commit is a sync of one page. */
#include "store.h"

struct run {
    const struct bench *bench;
    void *store;
    struct store_shape shape;
    uint64_t id;
    uint64_t token;
    uint64_t sum;
    struct store_lease *leases;
};

static struct run run_open(const struct bench *bench, size_t jobs_max)
{
    struct run run = {.bench = bench, .shape = store_shape_of(bench)};
    struct store_plan plan = {.bench = bench, .shape = run.shape, .jobs_max = jobs_max};

    if (plan.jobs_max < run.shape.group) plan.jobs_max = run.shape.group;
    run.leases = calloc(run.shape.group, sizeof *run.leases);
    if (!run.leases) bench_fail(bench, bench->workload, strerror(errno));
    run.store = store_engine.open(&plan);
    (void)store_payload(1); /* makes the table */
    return run;
}

static void run_close(struct run *run, size_t jobs_left)
{
    size_t count = store_engine.count(run->store);

    if (count != jobs_left) {
        bench_fail(run->bench, run->bench->workload,
                   "the jobs that are left are not as many as due");
    }
    store_engine.close(run->store);
    free(run->leases);
}

static void run_insert(struct run *run)
{
    int64_t now_us = store_now_us();

    store_engine.begin(run->store);
    for (size_t i = 0; i < run->shape.group; i++) {
        struct store_job job = store_job_of(++run->id, &run->shape, now_us);
        store_engine.insert(run->store, &job);
    }
    store_engine.commit(run->store);
}

static void run_lifecycles(struct run *run)
{
    int64_t now_us;

    run_insert(run);

    now_us = store_now_us();
    store_engine.begin(run->store);
    for (size_t i = 0; i < run->shape.group; i++) {
        run->sum += store_engine.claim(run->store, now_us, ++run->token, &run->leases[i]);
    }
    store_engine.commit(run->store);

    store_engine.begin(run->store);
    for (size_t i = 0; i < run->shape.group; i++) {
        store_engine.acknowledge(run->store, &run->leases[i]);
    }
    store_engine.commit(run->store);
}

/* As many groups as N has, rounded up. */
static size_t rounds_of(const struct run *run)
{
    return (run->bench->n + run->shape.group - 1) / run->shape.group;
}

static void lifecycle_measure(const struct bench *bench)
{
    struct run run = run_open(bench, 0);
    size_t rounds = rounds_of(&run);
    size_t count = rounds * run.shape.group;
    struct store_clock begin;
    struct store_clock end;

    run_lifecycles(&run); /* the first one creates what is there later */
    run.sum = 0;
    begin = store_clock_now(bench);
    for (size_t i = 0; i < rounds; i++) {
        run_lifecycles(&run);
        store_clock_check(bench, &begin);
    }
    end = store_clock_now(bench);
    store_print_rate(bench, &begin, &end, count, "lifecycles_per_s");
    store_print_costs(bench, &begin, &end, count);
    /* With groups of its own it has other jobs than the others. */
    if (!getenv("BENCH_GROUP")) store_print_checksum(bench, count, run.sum);
    run_close(&run, 0);
}

static void enqueue_measure(const struct bench *bench)
{
    struct run run = run_open(bench, bench->n + 2 * store_shape_of(bench).group);
    size_t rounds = rounds_of(&run);
    size_t count = rounds * run.shape.group;
    int64_t *times_ns = store_times_new(bench, rounds);
    struct store_clock begin;
    struct store_clock end;

    run_insert(&run);
    begin = store_clock_now(bench);
    for (size_t i = 0; i < rounds; i++) {
        int64_t begin_ns = bench_now_ns();
        run_insert(&run);
        times_ns[i] = bench_now_ns() - begin_ns;
        store_clock_check(bench, &begin);
    }
    end = store_clock_now(bench);
    store_print_rate(bench, &begin, &end, count, "jobs_per_s");
    store_print(bench, "group", "jobs_per_commit", (double)run.shape.group);
    store_print_times(bench, times_ns, rounds);
    free(times_ns);
    run_close(&run, count + run.shape.group);
}

static void sync_measure(const struct bench *bench)
{
    size_t group = store_shape_of(bench).group;

    store_measure_sync(bench, (bench->n + group - 1) / group);
}

static const struct bench_workload workloads[] = {
    {"lifecycle_1", 4000, lifecycle_measure},
    {"lifecycle_16", 40000, lifecycle_measure},
    {"lifecycle_128", 200000, lifecycle_measure},
    {"lifecycle_1024", 400000, lifecycle_measure},
    {"lifecycle_1_1k", 4000, lifecycle_measure},
    {"lifecycle_16_1k", 40000, lifecycle_measure},
    {"lifecycle_128_1k", 100000, lifecycle_measure},
    {"lifecycle_1024_1k", 100000, lifecycle_measure},
    {"tasks_1", 4000, lifecycle_measure},
    {"tasks_16", 40000, lifecycle_measure},
    {"tasks_64", 100000, lifecycle_measure},
    {"tasks_256", 200000, lifecycle_measure},
    {"tasks_1_1k", 4000, lifecycle_measure},
    {"tasks_16_1k", 40000, lifecycle_measure},
    {"tasks_64_1k", 100000, lifecycle_measure},
    {"tasks_256_1k", 100000, lifecycle_measure},
    {"enqueue_1", 4000, enqueue_measure},
    {"enqueue_16", 40000, enqueue_measure},
    {"enqueue_64", 100000, enqueue_measure},
    {"enqueue_256", 300000, enqueue_measure},
    {"enqueue_1_1k", 4000, enqueue_measure},
    {"enqueue_16_1k", 40000, enqueue_measure},
    {"enqueue_64_1k", 100000, enqueue_measure},
    {"enqueue_256_1k", 100000, enqueue_measure},
    {"insert_1", 4000, enqueue_measure},
    {"insert_16", 40000, enqueue_measure},
    {"insert_128", 200000, enqueue_measure},
    {"insert_1024", 400000, enqueue_measure},
    {"insert_1_1k", 4000, enqueue_measure},
    {"insert_16_1k", 40000, enqueue_measure},
    {"insert_128_1k", 100000, enqueue_measure},
    {"insert_1024_1k", 100000, enqueue_measure},
    {"sync", 5000, sync_measure},
    {0},
};

int main(int argc, char **argv)
{
    struct bench bench = {.program = store_engine.program, .peer = store_engine.peer};
    const struct bench_workload *workload = bench_parse(argc, argv, workloads, &bench);

    if (!workload) return 2;
    if (getenv("BENCH_SYNC_ONLY")) bench.peer = "disk";
    if (getenv("BENCH_HANDED")) bench.peer = "bare_handed";
    store_folder_open(&bench);
    if (getenv("BENCH_SYNC_ONLY")) {
        sync_measure(&bench);
    } else {
        workload->run(&bench);
    }
    return 0;
}

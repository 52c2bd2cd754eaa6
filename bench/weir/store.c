/* store.c - `bench store`: jobs in weir's own store, on disk before the answer.
 *
 * lifecycle_B and insert_B: one task whose calls are of B jobs each, as the peers' groups are.
 * tasks_P and enqueue_P: P tasks of one worker, each of which has one job at a time and waits for
 * the answer of every call; groups form by themselves. Every call is under a deadline. The jobs of
 * lifecycle_B and tasks_P have a limit key, a fairness key and a unique key; the store's sizes are
 * its defaults, and its metrics are on.
 *
 * What is written by a lifecycle is counted by the store itself, with whole pages as the peers'. */
#include <weir/weir.h>

#include "bench_store.h"
#include "weir_session.h"

#define QUEUE "work"
#define TENANTS 16
#define DEADLINE_MS 60000
#define LEASE_MS 30000
#define MANY 1000000
#define PRELOADED_AT_ONCE 4 /* jobs of one record: who reads one of them reads all */
#define MEMORY_BYTES_MAX ((size_t)2 << 30)

struct run {
    const struct bench *bench;
    weir_store *store;
    struct store_shape shape;
    size_t rounds;
    uint64_t id;
    uint64_t sum;
    int64_t *times_ns;
    size_t time_count;
    /* Of the row `compaction`. */
    bool compacting;
    bool done;
    int64_t *calm_ns;
    size_t calm_count;
};

static void check(const struct bench *bench, const char *call, int result)
{
    if (result >= 0) return;
    bench_fail(bench, call, *weir_why() ? weir_why() : weir_strerror(result));
}

/* ---- The store ---- */

static void run_open(struct run *run, weir_scope *scope)
{
    weir_store_spec spec = {.name = "bench",
                            .path = "store",
                            .create = true,
                            .durability = WEIR_SYNCED,
                            .memory_bytes_max = MEMORY_BYTES_MAX,
                            .queue_depth_max = 2 * MANY,
                            .queue_overflow = WEIR_REJECT};
    int r = -ECANCELED;

    WEIR_DEADLINE(DEADLINE_MS) { r = weir_store_open(scope, &spec, &run->store); }
    check(run->bench, "weir_store_open", r);
}

static void run_close(struct run *run)
{
    check(run->bench, "weir_store_close", weir_store_close(run->store));
    run->store = NULL;
}

static weir_store_figures run_figures(const struct run *run)
{
    weir_store_figures figures;

    weir_store_figures_of(run->store, &figures);
    return figures;
}

/* So many tasks, until all have ended. */
static void run_callers(struct run *run, size_t count, int (*caller)(void *))
{
    int result = 0;

    WEIR_SCOPE(scope, &result, .name = "callers", .on_failure = WEIR_FAIL_FAST, .max_tasks = count,
               .overflow = WEIR_REJECT) {
        for (size_t i = 0; i < count; i++) {
            check(run->bench, "weir_spawn", weir_spawn(scope, caller, &run, sizeof run));
        }
    }
    check(run->bench, "a caller", result);
}

/* The store makes its spares when it is opened: that is none of the first lifecycles' business. */
static void run_settle(struct run *run)
{
    uint64_t before = 0;

    for (int quiet = 0; quiet < 20; quiet++) {
        weir_store_figures figures = run_figures(run);
        if (figures.disk_bytes != before) quiet = 0;
        before = figures.disk_bytes;
        check(run->bench, "weir_sleep", weir_sleep(10));
    }
}

/* ---- Jobs ---- */

static const char *tenant_of(uint64_t id)
{
    static const char names[TENANTS][10] = {
        "tenant-00", "tenant-01", "tenant-02", "tenant-03", "tenant-04", "tenant-05",
        "tenant-06", "tenant-07", "tenant-08", "tenant-09", "tenant-10", "tenant-11",
        "tenant-12", "tenant-13", "tenant-14", "tenant-15",
    };

    return names[id % TENANTS];
}

/* Cheaper than printf, as a program's own keys are there already. */
static void key_of(uint64_t id, char key[17])
{
    for (int i = 0; i < 16; i++) key[i] = "0123456789abcdef"[id >> (60 - 4 * i) & 15];
    key[16] = '\0';
}

/* The peers' job: their lowest priority number comes first, weir's highest. */
static weir_job_spec job_of(const struct run *run, uint64_t id)
{
    struct store_job job = store_job_of(id, &run->shape, 0);

    return (weir_job_spec){
        .queue = QUEUE,
        .kind = "bench",
        .payload = job.payload,
        .payload_bytes = job.payload_bytes,
        .idempotent = WEIR_YES,
        .retry = {.attempts_max = 5, .backoff_ms = 1000, .backoff_ms_max = 60000},
        .priority = (uint8_t)(STORE_PRIORITIES - 1 - job.priority),
    };
}

/* Without waiting for the disk: what is there before the clock starts. */
static void preload(struct run *run, size_t count, void (*shape)(weir_job_spec *spec, uint64_t id))
{
    static weir_job_spec specs[PRELOADED_AT_ONCE];
    static weir_enqueued enqueued[PRELOADED_AT_ONCE];
    int r = 0;

    WEIR_DEADLINE(STORE_SECONDS_MAX *INT64_C(1000)) {
        for (size_t done = 0; done < count && r >= 0;) {
            size_t part = count - done < PRELOADED_AT_ONCE ? count - done : PRELOADED_AT_ONCE;
            for (size_t i = 0; i < part; i++) {
                specs[i] = job_of(run, ++run->id);
                specs[i].durability = WEIR_MEMORY;
                if (shape) shape(&specs[i], run->id);
            }
            r = weir_job_enqueue_all(run->store, specs, part, enqueued);
            done += part;
        }
        if (r >= 0) r = weir_store_sync(run->store);
    }
    check(run->bench, "preload", r);
}

/* ---- Lifecycles ---- */

/* With all features on; the key's text is the caller's. */
static weir_job_spec whole_job_of(const struct run *run, uint64_t id, char key[17])
{
    weir_job_spec spec = job_of(run, id);

    key_of(id, key);
    spec.unique_key = key;
    spec.limit_keys[0] = tenant_of(id);
    spec.fairness_key = tenant_of(id);
    return spec;
}

/* What a call has waited for its answer. Beside compaction only new work is looked at: the rest is
 * never held back by it, and would hide that. */
static void note_time(struct run *run, int64_t begin_ns, bool compacting, bool new_work)
{
    int64_t ns;

    if (!run->times_ns || (run->calm_ns && !new_work)) return;
    ns = bench_now_ns() - begin_ns;
    if (!run->calm_ns || compacting || run->compacting)
        run->times_ns[run->time_count++] = ns;
    else
        run->calm_ns[run->calm_count++] = ns;
}

static int64_t begin_time(const struct run *run)
{
    return run->times_ns ? bench_now_ns() : 0;
}

static int lifecycle(struct run *run, char key[17])
{
    weir_job_spec spec = whole_job_of(run, ++run->id, key);
    weir_enqueued enqueued;
    weir_job job;
    bool compacting = run->compacting;
    int64_t begin_ns = begin_time(run);
    int r = weir_job_enqueue(run->store, &spec, &enqueued);

    if (r < 0) return r;
    note_time(run, begin_ns, compacting, true);
    begin_ns = begin_time(run);
    r = weir_job_lease(
        run->store,
        &(weir_lease_spec){.queue = QUEUE, .worker = "bench", .count = 1, .lease_ms = LEASE_MS},
        &job);
    if (r < 0) return r;
    note_time(run, begin_ns, false, false);
    run->sum += store_payload_sum(job.payload, job.payload_bytes);
    begin_ns = begin_time(run);
    r = weir_job_ack(run->store, job.id, job.token, NULL, 0);
    note_time(run, begin_ns, false, false);
    weir_job_free(&job);
    return r;
}

static int lifecycle_caller(void *arg)
{
    struct run *run = *(struct run **)arg;
    char key[17];
    int r = 0;

    for (size_t i = 0; i < run->rounds && r >= 0; i++) {
        WEIR_DEADLINE(DEADLINE_MS) { r = lifecycle(run, key); }
    }
    return r;
}

/* Limits that all of them have, and none of them meets. */
static void set_limits(struct run *run, uint32_t concurrency)
{
    int r = 0;

    WEIR_DEADLINE(DEADLINE_MS) {
        for (uint64_t i = 0; i < TENANTS && r >= 0; i++) {
            r = weir_key_set(
                run->store,
                &(weir_key_spec){.name = tenant_of(i), .concurrency = concurrency, .weight = 1});
        }
    }
    check(run->bench, "weir_key_set", r);
}

/* As the peers' bytes are counted (store_bytes_written), but by the store's own figures: what was
 * appended, and for each commit its mark and the rest of a page. The system's count also has
 * what is written to prepare space for later, once for each segment there will ever be. */
static double bytes_written(const weir_store_figures *before, const weir_store_figures *after)
{
    enum { MARK_BYTES = 24 };

    return (double)(after->appended_bytes - before->appended_bytes) +
           (double)(after->commits - before->commits) * (MARK_BYTES + STORE_PAGE_BYTES);
}

static void print_lifecycles(const struct run *run, const struct store_clock *begin,
                             const struct store_clock *end, const weir_store_figures *before,
                             size_t count)
{
    weir_store_figures after = run_figures(run);
    double lifecycles = (double)count;

    store_print_rate(run->bench, begin, end, count, "lifecycles_per_s");
    store_print(run->bench, "cpu", "us_per_lifecycle",
                (double)(end->cpu_ns - begin->cpu_ns) / 1e3 / lifecycles);
    store_print(run->bench, "bytes", "bytes_per_lifecycle",
                bytes_written(before, &after) / lifecycles);
    store_print(run->bench, "logged", "bytes_per_lifecycle",
                (double)(after.appended_bytes - before->appended_bytes) / lifecycles);
    store_print(run->bench, "compacted", "bytes_per_lifecycle",
                (double)(after.compacted_bytes - before->compacted_bytes) / lifecycles);
    store_print(run->bench, "group", "jobs_per_commit",
                3.0 * lifecycles / (double)(after.commits - before->commits));
}

/* What a caller with many jobs at a time has in hand. */
struct group {
    weir_job_spec specs[WEIR_JOB_ENQUEUE_MAX];
    weir_enqueued enqueued[WEIR_JOB_ENQUEUE_MAX];
    char keys[WEIR_JOB_ENQUEUE_MAX][17];
    weir_job jobs[WEIR_JOB_LEASE_MAX];
    weir_settlement settlements[WEIR_JOB_SETTLE_MAX];
};

/* The group's specs, in one commit. */
static int insert_group(struct run *run, struct group *group)
{
    int64_t begin_ns = begin_time(run);
    int r = weir_job_enqueue_all(run->store, group->specs, run->shape.group, group->enqueued);

    note_time(run, begin_ns, false, true);
    return r;
}

/* One commit for all inserts, one for all claims, one for all acknowledgements. */
static int group_lifecycles(struct run *run, struct group *group)
{
    size_t count = run->shape.group;
    weir_lease_spec lease = {
        .queue = QUEUE, .worker = "bench", .count = count, .lease_ms = LEASE_MS};
    int64_t begin_ns;
    int r;

    for (size_t i = 0; i < count; i++)
        group->specs[i] = whole_job_of(run, ++run->id, group->keys[i]);
    r = insert_group(run, group);
    if (r < 0) return r;
    begin_ns = begin_time(run);
    r = weir_job_lease(run->store, &lease, group->jobs);
    if (r >= 0 && (size_t)r != count) r = -ENOENT; /* a lease gives all that there are */
    if (r < 0) return r;
    note_time(run, begin_ns, false, false);
    for (size_t i = 0; i < count; i++) {
        const weir_job *job = &group->jobs[i];

        run->sum += store_payload_sum(job->payload, job->payload_bytes);
        group->settlements[i] =
            (weir_settlement){.id = job->id, .token = job->token, .how = WEIR_SETTLE_ACK};
    }
    begin_ns = begin_time(run);
    r = weir_job_settle(run->store, group->settlements, count);
    note_time(run, begin_ns, false, false);
    for (size_t i = 0; i < count; i++) weir_job_free(&group->jobs[i]);
    return r >= 0 && (size_t)r != count ? -ESTALE : r;
}

static int group_caller(void *arg)
{
    static struct group group;
    struct run *run = *(struct run **)arg;
    int r = 0;

    for (size_t i = 0; i < run->rounds && r >= 0; i++) {
        WEIR_DEADLINE(DEADLINE_MS) { r = group_lifecycles(run, &group); }
    }
    return r < 0 ? r : 0;
}

static void lifecycles_by(struct run *run, weir_scope *scope, size_t callers,
                          int (*caller)(void *arg))
{
    size_t group = run->shape.group;
    size_t rounds = (run->bench->n + group - 1) / group;
    weir_store_figures before;
    struct store_clock begin;
    struct store_clock end;

    run_open(run, scope);
    set_limits(run, (uint32_t)group);
    (void)store_payload(1); /* makes the table */
    run->rounds = 1;
    run_callers(run, callers, caller); /* as the peers' first one */
    run_settle(run);
    run->sum = 0;
    run->time_count = 0;
    run->rounds = rounds;
    before = run_figures(run);
    begin = store_clock_now(run->bench);
    run_callers(run, callers, caller);
    end = store_clock_now(run->bench);
    print_lifecycles(run, &begin, &end, &before, rounds * group);
    store_print_checksum(run->bench, rounds * group, run->sum);
    if (run->times_ns) store_print_times(run->bench, run->times_ns, run->time_count);
    run_close(run);
}

static void lifecycle_in(struct run *run, weir_scope *scope)
{
    if (run->shape.group > WEIR_JOB_ENQUEUE_MAX)
        bench_fail(run->bench, run->bench->workload, "more jobs than one call takes");
    run->times_ns = store_times_new(run->bench, 3 * (run->bench->n / run->shape.group + 2));
    lifecycles_by(run, scope, 1, group_caller);
    free(run->times_ns);
}

static void tasks_in(struct run *run, weir_scope *scope)
{
    run->times_ns = store_times_new(run->bench, 3 * (run->bench->n + 2 * run->shape.group));
    lifecycles_by(run, scope, run->shape.group, lifecycle_caller);
    free(run->times_ns);
}

/* ---- Enqueue ---- */

static int enqueue_caller(void *arg)
{
    struct run *run = *(struct run **)arg;
    int r = 0;

    for (size_t i = 0; i < run->rounds && r >= 0; i++) {
        weir_job_spec spec = job_of(run, ++run->id);
        weir_enqueued enqueued;
        int64_t begin_ns = bench_now_ns();

        WEIR_DEADLINE(DEADLINE_MS) { r = weir_job_enqueue(run->store, &spec, &enqueued); }
        run->times_ns[run->time_count++] = bench_now_ns() - begin_ns;
    }
    return r;
}

/* As the peers' groups: one call for all of them. */
static int insert_caller(void *arg)
{
    static struct group group;
    struct run *run = *(struct run **)arg;
    int r = 0;

    for (size_t i = 0; i < run->rounds && r >= 0; i++) {
        for (size_t k = 0; k < run->shape.group; k++) group.specs[k] = job_of(run, ++run->id);
        WEIR_DEADLINE(DEADLINE_MS) { r = insert_group(run, &group); }
    }
    return r < 0 ? r : 0;
}

static void inserts_by(struct run *run, weir_scope *scope, size_t callers, int (*caller)(void *arg))
{
    size_t group = run->shape.group;
    size_t rounds = (run->bench->n + group - 1) / group;
    weir_store_figures before;
    weir_store_figures after;
    struct store_clock begin;
    struct store_clock end;

    run->times_ns = store_times_new(run->bench, (rounds + 1) * group);
    run_open(run, scope);
    (void)store_payload(1);
    run->rounds = 1;
    run_callers(run, callers, caller);
    run_settle(run);
    run->time_count = 0;
    run->rounds = rounds;
    before = run_figures(run);
    begin = store_clock_now(run->bench);
    run_callers(run, callers, caller);
    end = store_clock_now(run->bench);
    after = run_figures(run);
    store_print_rate(run->bench, &begin, &end, rounds * group, "jobs_per_s");
    store_print(run->bench, "group", "jobs_per_commit",
                (double)(rounds * group) / (double)(after.commits - before.commits));
    store_print_times(run->bench, run->times_ns, run->time_count);
    free(run->times_ns);
    run_close(run);
}

static void enqueue_in(struct run *run, weir_scope *scope)
{
    inserts_by(run, scope, run->shape.group, enqueue_caller);
}

static void insert_in(struct run *run, weir_scope *scope)
{
    if (run->shape.group > WEIR_JOB_ENQUEUE_MAX)
        bench_fail(run->bench, run->bench->workload, "more jobs than one call takes");
    inserts_by(run, scope, 1, insert_caller);
}

/* ---- Open ---- */

/* What a worker of a service that comes back waits for, all in the page cache. */
static void open_in(struct run *run, weir_scope *scope)
{
    int64_t begin_ns;

    run_open(run, scope);
    preload(run, run->bench->n, NULL);
    run_close(run);
    begin_ns = bench_now_ns();
    run_open(run, scope);
    store_print(run->bench, "time", "ms", (double)(bench_now_ns() - begin_ns) / 1e6);
    if (run_figures(run).jobs != run->bench->n) {
        bench_fail(run->bench, run->bench->workload, "not all jobs are there");
    }
    store_print(run->bench, "memory", "bytes_per_job",
                (double)run_figures(run).memory_bytes / (double)run->bench->n);
    run_close(run);
}

/* ---- Claims ---- */

/* One of a hundred jobs has a key without a limit; the others' have room for one each. */
static void shape_limited(weir_job_spec *spec, uint64_t id)
{
    spec->priority = 0;
    spec->limit_keys[0] = id % 100 == 0 ? "free" : tenant_of(id);
}

/* Processor time of the worker for a claim that waits for no disk; the payload is read. */
static double claim_ns(struct run *run, weir_scope *scope, uint32_t concurrency)
{
    size_t count = run->bench->n / 200;
    weir_lease_spec spec = {.queue = QUEUE,
                            .worker = "bench",
                            .count = 1,
                            .lease_ms = LEASE_MS,
                            .at_once = true,
                            .durability = WEIR_MEMORY};
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
    int r = 0;

    run->id = 0;
    run_open(run, scope);
    set_limits(run, concurrency);
    preload(run, run->bench->n, shape_limited);
    run_settle(run);
    WEIR_DEADLINE(DEADLINE_MS) {
        /* Those that run when the clock starts: one of each key that has a limit. */
        for (size_t i = 0; i < count + 2 * TENANTS && r >= 0; i++) {
            weir_job job;
            if (i == 2 * TENANTS) begin_ns = bench_clock_ns(CLOCK_THREAD_CPUTIME_ID);
            r = weir_job_lease(run->store, &spec, &job);
            if (r == 0) r = -ENOENT;
            if (r > 0) weir_job_free(&job);
        }
        end_ns = bench_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    }
    check(run->bench, "weir_job_lease", r);
    run_close(run);
    return (double)(end_ns - begin_ns) / (double)count;
}

static void remove_store(const struct bench *bench)
{
    if (nftw("store", store_remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0) {
        bench_fail(bench, "store", strerror(errno));
    }
}

static void claim_in(struct run *run, weir_scope *scope)
{
    double none, blocked;

    none = claim_ns(run, scope, 0);
    remove_store(run->bench);
    blocked = claim_ns(run, scope, 1);
    store_print(run->bench, "none", "ns_per_op", none);
    store_print(run->bench, "blocked", "ns_per_op", blocked);
    store_print(run->bench, "ratio", "ratio", blocked / none);
}

/* ---- Compaction ---- */

static void shape_parked(weir_job_spec *spec, uint64_t id)
{
    (void)id;
    spec->queue = "parked";
}

/* Sees when copies are made. */
static int watch(void *arg)
{
    struct run *run = *(struct run **)arg;
    uint64_t before = run_figures(run).compacted_bytes;
    int r = 0;

    while (!run->done && r >= 0) {
        uint64_t now = run_figures(run).compacted_bytes;
        run->compacting = now != before;
        before = now;
        r = weir_sleep(2);
    }
    return r;
}

/* Jobs that stay fill more than a segment; what comes and goes beside them makes compaction due
 * again and again. */
static void compaction_in(struct run *run, weir_scope *scope)
{
    enum { CALLERS = 128, PARKED = 60000 };
    size_t rounds = run->bench->n / CALLERS + 1;
    weir_store_figures before;
    weir_store_figures after;
    struct store_clock begin;
    struct store_clock end;
    int result = 0;

    run->shape = (struct store_shape){.group = CALLERS, .payload_bytes = 1024};
    run->times_ns = store_times_new(run->bench, rounds * CALLERS);
    run->calm_ns = store_times_new(run->bench, rounds * CALLERS);
    run_open(run, scope);
    set_limits(run, CALLERS);
    preload(run, PARKED, shape_parked);
    run_settle(run);
    run->rounds = rounds;
    before = run_figures(run);
    begin = store_clock_now(run->bench);
    WEIR_SCOPE(watchers, &result, .name = "watchers", .on_failure = WEIR_FAIL_FAST, .max_tasks = 1,
               .overflow = WEIR_REJECT) {
        check(run->bench, "weir_spawn", weir_spawn(watchers, watch, &run, sizeof run));
        run_callers(run, CALLERS, lifecycle_caller);
        run->done = true;
    }
    check(run->bench, "watch", result);
    end = store_clock_now(run->bench);
    after = run_figures(run);
    store_print_rate(run->bench, &begin, &end, rounds * CALLERS, "lifecycles_per_s");
    store_print(run->bench, "copied", "ratio",
                (double)(after.compacted_bytes - before.compacted_bytes) /
                    (double)(after.appended_bytes - before.appended_bytes));
    store_print(run->bench, "part", "of_100",
                100.0 * (double)run->time_count / (double)(run->time_count + run->calm_count));
    if (run->time_count > 1000 && run->calm_count > 1000) {
        int64_t during, without;
        qsort(run->times_ns, run->time_count, sizeof during, store_compare_times);
        qsort(run->calm_ns, run->calm_count, sizeof without, store_compare_times);
        during = run->times_ns[run->time_count - 1 - run->time_count / 100];
        without = run->calm_ns[run->calm_count - 1 - run->calm_count / 100];
        store_print(run->bench, "p99", "us", (double)during / 1e3);
        store_print(run->bench, "p99_without", "us", (double)without / 1e3);
        store_print(run->bench, "p99_ratio", "ratio", (double)during / (double)without);
    }
    free(run->times_ns);
    free(run->calm_ns);
    run_close(run);
}

/* ---- The program ---- */

static void in_scope(const struct bench *bench, void (*body)(struct run *, weir_scope *))
{
    struct run run = {.bench = bench, .shape = store_shape_of(bench)};
    int result = 0;

    WEIR_SCOPE(scope, &result, .name = "stores", .on_failure = WEIR_FAIL_FAST, .max_tasks = 8,
               .overflow = WEIR_REJECT) {
        body(&run, scope);
    }
    check(bench, "stores", result);
}

static void lifecycle_measure(const struct bench *bench)
{
    in_scope(bench, lifecycle_in);
}

static void tasks_measure(const struct bench *bench)
{
    in_scope(bench, tasks_in);
}

static void enqueue_measure(const struct bench *bench)
{
    in_scope(bench, enqueue_in);
}

static void insert_measure(const struct bench *bench)
{
    in_scope(bench, insert_in);
}

static void open_measure(const struct bench *bench)
{
    in_scope(bench, open_in);
}

static void claim_measure(const struct bench *bench)
{
    in_scope(bench, claim_in);
}

static void compaction_measure(const struct bench *bench)
{
    in_scope(bench, compaction_in);
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
    {"tasks_1", 4000, tasks_measure},
    {"tasks_16", 40000, tasks_measure},
    {"tasks_64", 100000, tasks_measure},
    {"tasks_256", 200000, tasks_measure},
    {"tasks_1_1k", 4000, tasks_measure},
    {"tasks_16_1k", 40000, tasks_measure},
    {"tasks_64_1k", 100000, tasks_measure},
    {"tasks_256_1k", 100000, tasks_measure},
    {"enqueue_1", 4000, enqueue_measure},
    {"enqueue_16", 40000, enqueue_measure},
    {"enqueue_64", 100000, enqueue_measure},
    {"enqueue_256", 300000, enqueue_measure},
    {"enqueue_1_1k", 4000, enqueue_measure},
    {"enqueue_16_1k", 40000, enqueue_measure},
    {"enqueue_64_1k", 100000, enqueue_measure},
    {"enqueue_256_1k", 100000, enqueue_measure},
    {"insert_1", 4000, insert_measure},
    {"insert_16", 40000, insert_measure},
    {"insert_128", 200000, insert_measure},
    {"insert_1024", 400000, insert_measure},
    {"insert_1_1k", 4000, insert_measure},
    {"insert_16_1k", 40000, insert_measure},
    {"insert_128_1k", 100000, insert_measure},
    {"insert_1024_1k", 100000, insert_measure},
    {"open", MANY, open_measure},
    {"claim", MANY, claim_measure},
    {"compaction", 400000, compaction_measure},
    {0},
};

int main(int argc, char **argv)
{
    struct bench bench = {.program = "bench-store", .peer = "weir"};
    struct session session = {.bench = &bench};
    weir_config config = {.name = "bench"};

    session.workload = bench_parse(argc, argv, workloads, &bench);
    if (!session.workload) return 2;
    config.workers = session_workers(&bench);
    if (config.workers == 0) return 2;
    store_folder_open(&bench);
    check(&bench, "weir_run", weir_run(&config, session_task, &session));
    return 0;
}

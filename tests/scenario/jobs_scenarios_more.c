/* jobs_scenarios_more.c - the other half of jobs_scenarios.c: duplicates, reordering, drops,
 * reconnects, replay, slow consumers, poison messages. */
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "unit/store/jobs_test.h"

#define INNER_SCOPE(scope_, ret_result)                                            \
    WEIR_SCOPE(scope_, ret_result, .name = "scenario", .on_failure = WEIR_COLLECT, \
               .max_tasks = 64, .overflow = WEIR_REJECT)

static uint64_t in_state(weir_store *store, enum weir_job_state state)
{
    return jobs_queue(store, "q").by_state[state];
}

/* ---- Duplicates: the same request many times, at once and later ---- */

struct requester {
    weir_store *store;
    uint64_t *id;
    bool *duplicate;
};

static int request(void *arg)
{
    struct requester *one = arg;
    weir_job_spec spec = stand_job("q", "pay 10");
    weir_enqueued enqueued;
    int r;

    spec.idempotency_key = "request 4711";
    spec.idempotency_ms = 3600000;
    r = weir_job_enqueue(one->store, &spec, &enqueued);
    if (r < 0) return r;
    *one->id = enqueued.id;
    *one->duplicate = enqueued.duplicate;
    return 0;
}

STORE_TEST(jobs_scenario_duplicates)
{
    weir_store *store = store_stand_open(stand);
    uint64_t ids[16];
    bool duplicate[17];
    int closed, firsts = 0;

    INNER_SCOPE(scope, &closed)
    {
        for (int i = 0; i < 16; i++) {
            struct requester one = {store, &ids[i], &duplicate[i]};

            CHECK_OK(weir_spawn(scope, request, &one, sizeof one));
        }
    }
    CHECK_OK(closed);
    for (int i = 0; i < 16; i++) {
        CHECK_INT(ids[i], ==, ids[0]);
        firsts += !duplicate[i];
    }
    CHECK_INT(firsts, ==, 1);
    CHECK_INT(stand_work(store, "q"), ==, ids[0]);
    CHECK_OK(weir_store_close(store));
    store = store_stand_open(stand);
    CHECK_OK(request(&(struct requester){store, &ids[1], &duplicate[16]}));
    CHECK(duplicate[16]);
    CHECK_INT(ids[1], ==, ids[0]);
    CHECK_INT(in_state(store, WEIR_JOB_READY), ==, 0);
    CHECK_OK(weir_store_close(store));
}

/* ---- Reordering: many workers, failures between, and each key in its order all the same ---- */

enum { ORDER_KEYS = 4, ORDER_EACH = 12 };

struct ordered {
    ATOM(int) next[ORDER_KEYS];
    ATOM(int) done;
};

struct step {
    uint8_t key, number;
};

static int take_step(void *deps, weir_job job, weir_job_outcome *outcome)
{
    struct ordered *ordered = deps;
    struct step step;

    (void)outcome;
    memcpy(&step, job.payload, sizeof step);
    CHECK_INT(atom_load(&ordered->next[step.key]), ==, step.number);
    for (int i = 0; i < step.key; i++) CHECK_OK(weir_yield()); /* they take different times */
    if (job.attempt == 1 && step.number % 3 == 1) return -EAGAIN;
    (void)atom_add(&ordered->next[step.key], 1);
    (void)atom_add(&ordered->done, 1);
    return 0;
}

JOBS_TEST(jobs_scenario_reordering)
{
    static const char *const keys[ORDER_KEYS] = {"a", "b", "c", "d"};
    const weir_handler handler = {"work", 0, 0, take_step};
    struct ordered ordered = {0};
    weir_store *store = stand->store;
    int closed;

    for (int i = 0; i < ORDER_EACH; i++)
        for (int key = 0; key < ORDER_KEYS; key++) {
            struct step step = {(uint8_t)key, (uint8_t)i};

            (void)jobs_enqueue(store, "q", .payload = &step, .payload_bytes = sizeof step,
                               .order_key = keys[key], .priority = (uint8_t)(i % 5));
        }
    INNER_SCOPE(scope, &closed)
    {
        weir_worker *workers[3];

        for (int i = 0; i < 3; i++)
            CHECK_OK(weir_worker_open(scope,
                                      &(weir_worker_spec){.name = keys[i],
                                                          .store = store,
                                                          .queue = "q",
                                                          .handlers = &handler,
                                                          .handler_count = 1,
                                                          .concurrency = 4,
                                                          .executor = WEIR_ON_TASKS,
                                                          .lease_ms = WEIR_JOB_LEASE_MS_MAX,
                                                          .drain_ms = 1000,
                                                          .keep_deps = &ordered},
                                      &workers[i]));
        /* Who looks waits for the disk, so no time passes while a lease does: it would run out. */
        while (in_state(store, WEIR_JOB_DONE) < ORDER_KEYS * ORDER_EACH) {
            jobs_pass_ms(100); /* what failed waits a second */
            CHECK_OK(weir_yield());
        }
        CHECK_INT(atom_load(&ordered.done), ==, ORDER_KEYS * ORDER_EACH);
        for (int i = 0; i < 3; i++) CHECK_OK(weir_worker_close(workers[i]));
    }
    CHECK_OK(closed);
    CHECK_INT(in_state(store, WEIR_JOB_DONE), ==, ORDER_KEYS * ORDER_EACH);
}

/* ---- Drops: workers that vanish without a word ---- */

JOBS_TEST(jobs_scenario_drops)
{
    weir_store *store = stand->store;
    uint64_t rounds = 0;

    for (int i = 0; i < 40; i++) (void)jobs_enqueue(store, "q");
    while (in_state(store, WEIR_JOB_DONE) < 40) {
        weir_job jobs[8];
        int n = weir_job_lease(
            store,
            &(weir_lease_spec){
                .queue = "q", .worker = "w", .count = 8, .lease_ms = 1000, .at_once = true},
            jobs);

        CHECK_OK(n);
        /* Of the first runs two in three are dropped. */
        for (int i = 0; i < n; i++) {
            if (jobs[i].attempt > 1 || jobs[i].id % 3 == 0)
                CHECK_OK(weir_job_ack(store, jobs[i].id, jobs[i].token, NULL, 0));
            weir_job_free(&jobs[i]);
        }
        if (n == 0) jobs_pass_ms(500);
        CHECK_OK(weir_yield());
        CHECK_INT(++rounds, <, 100000);
    }
    CHECK_INT(jobs_queue(store, "q").lost, ==, 27);
    CHECK_INT(jobs_queue(store, "q").done, ==, 40);
    CHECK_INT(in_state(store, WEIR_JOB_DEAD), ==, 0);
}

/* ---- Reconnects: the store is closed under its workers, and comes back ---- */

struct counted {
    ATOM(int) begun;
    weir_event *go;
};

static int count_and_wait(void *deps, weir_job job, weir_job_outcome *outcome)
{
    struct counted *counted = deps;

    (void)job, (void)outcome;
    (void)atom_add(&counted->begun, 1);
    return weir_event_wait(counted->go);
}

/* Until so many are done; 0: until the store is closed under it. */
static void work_until_done(struct jobs_stand *stand, struct counted *counted, uint64_t jobs)
{
    /* The test's time flies while the disk is real: the second worker's leases must outlast it. */
    int64_t lease_ms = jobs == 0 ? 60000 : WEIR_JOB_LEASE_MS_MAX;
    const weir_handler handler = {"work", 0, 0, count_and_wait};
    int closed;

    INNER_SCOPE(scope, &closed)
    {
        weir_worker *worker;

        CHECK_OK(weir_worker_open(scope,
                                  &(weir_worker_spec){.name = "w",
                                                      .store = stand->store,
                                                      .queue = "q",
                                                      .handlers = &handler,
                                                      .handler_count = 1,
                                                      .concurrency = 4,
                                                      .executor = WEIR_ON_TASKS,
                                                      .lease_ms = lease_ms,
                                                      .drain_ms = 1000,
                                                      .keep_deps = counted},
                                  &worker));
        JOBS_UNTIL(atom_load(&counted->begun) >= 4);
        if (jobs == 0) {
            CHECK_OK(weir_store_close(stand->store));
            jobs_pass_ms(21000); /* all its slots are busy: it learns it by its heartbeat */
            CHECK_INT(weir_worker_wait(worker), ==, WEIR_ECLOSED);
            CHECK_INT(weir_worker_close(worker), ==, WEIR_ECLOSED);
        } else {
            while (in_state(stand->store, WEIR_JOB_DONE) < jobs) {
                jobs_pass_ms(100);
                CHECK_OK(weir_yield());
            }
            CHECK_OK(weir_worker_close(worker));
        }
    }
}

JOBS_TEST(jobs_scenario_reconnects)
{
    struct counted counted = {0};

    CHECK_OK(weir_event_open(stand->base.scope, "go", &counted.go));
    for (int i = 0; i < 20; i++) (void)jobs_enqueue(stand->store, "q");
    work_until_done(stand, &counted, 0);
    stand->store = store_stand_open(&stand->base);
    weir_event_set(counted.go);
    work_until_done(stand, &counted, 20);
    CHECK_INT(in_state(stand->store, WEIR_JOB_DONE), ==, 20);
    /* Four were begun twice: when the store went away they were running. */
    CHECK_INT(atom_load(&counted.begun), ==, 24);
}

/* ---- Replay: what died of a bug is done again when that is mended ---- */

JOBS_TEST(jobs_scenario_replay)
{
    weir_job_filter dead = {.queue = "q", .states = WEIR_JOB_STATE_BIT(WEIR_JOB_DEAD)};
    weir_store *store = stand->store;
    uint64_t ids[30], bulk;
    weir_bulk_info info;

    for (int i = 0; i < 30; i++) {
        ids[i] = jobs_enqueue(store, "q");
        CHECK_INT(jobs_kill(store, "q", i < 20 ? "bug" : "other"), ==, ids[i]);
    }
    jobs_reopen(stand); /* the new version is deployed */
    store = stand->store;
    dead.error_class = "bug";
    CHECK_INT(weir_bulk_begin(store, &dead, WEIR_BULK_REPLAY, 20, &bulk), ==, 20);
    do {
        CHECK_OK(weir_yield());
        CHECK_INT(weir_bulk_list(store, &info, 1), ==, 1);
    } while (info.done < 20);
    for (int i = 0; i < 20; i++) CHECK(jobs_work(store, "q") != 0);
    for (int i = 0; i < 30; i++)
        CHECK_INT(stand_state(store, ids[i]), ==, i < 20 ? WEIR_JOB_DONE : WEIR_JOB_DEAD);
}

/* ---- Slow consumers: producers wait, memory does not grow ---- */

enum { SLOW_JOBS = 200, SLOW_DEPTH = 4 };

static int produce(void *arg)
{
    weir_store *store = *(weir_store **)arg;

    for (int i = 0; i < SLOW_JOBS / 4; i++) {
        int64_t r = jobs_try(store, "q", (weir_job_spec){.payload = "x", .payload_bytes = 1});
        if (r < 0) return (int)r;
    }
    return 0;
}

static void keep_little(struct jobs_stand *stand)
{
    stand->base.spec.history_count_max = 1;
}

JOBS_TEST_WITH(jobs_scenario_slow_consumers, keep_little, .hidden = false)
{
    weir_store *store = stand->store;
    weir_store_figures figures;
    uint64_t memory_max = 0, jobs_max = 0;
    int closed, worked = 0;

    CHECK_OK(weir_queue_set(
        store, &(weir_queue_spec){.name = "q", .depth_max = SLOW_DEPTH, .overflow = WEIR_WAIT}));
    INNER_SCOPE(scope, &closed)
    {
        for (int i = 0; i < 4; i++) CHECK_OK(weir_spawn(scope, produce, &store, sizeof store));
        while (worked < SLOW_JOBS) {
            weir_store_figures_of(store, &figures);
            CHECK_INT(in_state(store, WEIR_JOB_READY), <=, SLOW_DEPTH);
            if (figures.memory_bytes > memory_max && worked < 20) memory_max = figures.memory_bytes;
            if (figures.jobs > jobs_max) jobs_max = figures.jobs;
            if (worked >= 20) CHECK_INT(figures.memory_bytes, <=, memory_max + 4096);
            worked += jobs_work(store, "q") != 0;
            CHECK_OK(weir_yield());
        }
    }
    CHECK_OK(closed);
    CHECK_INT(jobs_max, <=, SLOW_DEPTH + 3);
    CHECK_INT(jobs_queue(store, "q").enqueued, ==, SLOW_JOBS);
    CHECK_INT(jobs_queue(store, "q").rejected, ==, 0);
}

/* ---- Poison messages: a job that kills whoever runs it ---- */

struct victim {
    const char *path;
    int64_t wall_ms;
};

static int run_all(void *arg)
{
    const struct victim *victim = *(const struct victim **)arg;
    struct store_stand stand;
    int closed;

    store_stand_make(&stand);
    store_stand_remove(&stand); /* only its settings are wanted */
    stand.spec.path = victim->path;
    WEIR_DEADLINE(STORE_STAND_DEADLINE_MS) {
        INNER_SCOPE(scope, &closed)
        {
            weir_store *store;

            stand.scope = scope;
            store = store_stand_open(&stand);
            JOBS_UNTIL(in_state(store, WEIR_JOB_LEASED) == 0); /* of who died before */
            while (in_state(store, WEIR_JOB_READY) + in_state(store, WEIR_JOB_SCHEDULED) > 0) {
                weir_job job;
                int n = weir_job_lease(
                    store,
                    &(weir_lease_spec){
                        .queue = "q", .worker = "victim", .count = 1, .lease_ms = 60000},
                    &job);

                CHECK_INT(n, ==, 1);
                if (job.payload_bytes == 6 && memcmp(job.payload, "poison", 6) == 0)
                    (void)kill(getpid(), SIGKILL);
                CHECK_OK(weir_job_ack(store, job.id, job.token, NULL, 0));
                weir_job_free(&job);
            }
            CHECK_OK(weir_store_close(store));
        }
    }
    return 0;
}

TEST_PROGRAM(jobs_poison_victim)
{
    struct victim victim = {argc > 2 ? argv[2] : "", argc > 3 ? atoll(argv[3]) : 0};
    struct victim *it = &victim;

    test_wall(victim.wall_ms * 1000000);
    return weir_run(&(weir_config){.workers = 1, .log_level = WEIR_LOG_OFF}, run_all, &it) < 0;
}

static uint64_t poison_id;

static int put_poison(struct store_stand *stand)
{
    weir_store *store = store_stand_open(stand);
    const weir_job_retry retry = {.attempts_max = 3, .backoff_ms = 1, .backoff_ms_max = 1};

    poison_id = jobs_enqueue(store, "q", .payload = "poison", .payload_bytes = 6, .retry = retry,
                             .priority = 9);
    for (int i = 0; i < 5; i++)
        (void)jobs_enqueue(store, "q", .payload = "food", .payload_bytes = 4, .retry = retry);
    return weir_store_close(store);
}

static int look_at_poison(struct store_stand *stand)
{
    weir_store *store = store_stand_open(stand);
    weir_job_info info;

    CHECK_OK(weir_job_get(store, poison_id, &info));
    CHECK_INT(info.state, ==, WEIR_JOB_DEAD);
    CHECK_INT(info.attempt, ==, 3);
    CHECK_INT(info.error_count, ==, 3);
    weir_job_info_free(&info);
    CHECK_INT(in_state(store, WEIR_JOB_DONE), ==, 5);
    CHECK_INT(in_state(store, WEIR_JOB_DEAD), ==, 1);
    return weir_store_close(store);
}

TEST_WITH(jobs_scenario_poison_messages, .timeout_ms = 60000)
{
    static struct store_stand stand;
    int64_t wall_ms = INT64_C(4000000000000); /* ahead of any clock, so only this one counts */
    int deaths = 0, status;

    TEST_SKIP_ON_VALGRIND("it does not follow a program that runs itself anew");
    store_stand_make(&stand);
    CHECK_OK(store_stand_run(&stand, put_poison));
    for (;;) {
        char number[32], output[4096];
        const char *const argv[] = {TEST_PROGRAM_PATH, "jobs_poison_victim", stand.path, number,
                                    NULL};

        (void)snprintf(number, sizeof number, "%lld", (long long)wall_ms);
        status = test_exec(argv, output, sizeof output);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) break;
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
            TEST_FAIL("the victim ended with %x: %s", (unsigned)status, output);
        CHECK_INT(++deaths, <=, 3);
        wall_ms += 3600000; /* its lease has run out when the next one comes */
    }
    CHECK_INT(deaths, ==, 3);
    CHECK_OK(store_stand_run(&stand, look_at_poison));
    store_stand_remove(&stand);
}

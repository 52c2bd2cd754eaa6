/* store_jobs.c - producers, workers and an administrator of a store of jobs: see store_jobs.h. */
#include "sim/store_jobs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "sim/store_host.h"
#include "store/store.h"

enum {
    PRODUCERS = 3,
    WORKERS = QUEUES + 1, /* one for each queue, one for all */
    JOBS_EACH = 5,        /* of a producer, or, if segments are to be filled, */
    JOBS_EACH_LARGE = 14,
    JOBS_EACH_MANY = 45,
    ADMIN_STEPS = 8,
    LEASED_MAX = 3,
    DRAIN_TRIES = 600,
    DRAIN_MS = 100,
};
#define PATIENCE_MS CLIENTS_PATIENCE_MS
#define MONTH_MS (30 * 24 * 3600 * INT64_C(1000))

/* What is left to do, whichever start of the host it is. */
static int produced[PRODUCERS], admin_steps;
static int jobs_each;
/* Waits for compaction, in all runs: they are made in another process. NULL: nobody asks. */
static ATOM(uint64_t) * held_back;
static struct host_life life;
static bool calm; /* nothing goes wrong */
static weir_config config;
/* Of the running program. */
static weir_store *store;
static bool draining;

static void begin(size_t bytes, bool forgetful, int jobs)
{
    jobs_each = jobs;
    world_begin();
    payload_bytes = bytes;
    forgets = forgetful;
    memset(produced, 0, sizeof produced);
    admin_steps = 0;
    life = (struct host_life){0};
    draining = calm = false;
    config = (weir_config){.workers = 1};
    store = NULL;
}

void store_jobs_begin(void *arg)
{
    (void)arg;
    begin(64, false, JOBS_EACH);
}

void store_jobs_begin_large(void *arg)
{
    (void)arg;
    begin(12000, true, JOBS_EACH_LARGE);
}

void store_jobs_begin_many(void *arg)
{
    (void)arg;
    begin(12000, true, JOBS_EACH_MANY);
}

void store_jobs_begin_calm(void *arg)
{
    store_jobs_begin(arg);
    calm = true;
}

void store_jobs_begin_wide(void *arg)
{
    store_jobs_begin(arg);
    config.workers = 2;
}

/* Errors after which the next call may do better. */
static bool is_passing(int r)
{
    return r == WEIR_ETIMEDOUT || r == WEIR_EOVERLOAD || r == -ENOSPC || r == -ENOMEM ||
           r == -ENOBUFS;
}

/* A call was refused for the moment: later. Others end the task, and with it this start. */
static int later(int r)
{
    return is_passing(r) ? weir_sleep(10) : r;
}

/* ---- Producers ---- */

static int produce(void *arg)
{
    int *number = &produced[*(int *)arg];
    int r = 0;

    while (r == 0 && *number < jobs_each) {
        struct wanted *wanted;

        (*number)++;
        switch (weir_sim_choose(8)) {
        case 1: r = later(clients_enqueue_some(store)); continue;
        case 2: r = later(clients_enqueue_batch(store)); continue;
        default: break;
        }
        wanted = world_want();
        if (!wanted) break;
        if (weir_sim_choose(8) == 1)
            wanted->expires_ms = clients_now_ms(store) + 20 + 30 * weir_sim_choose(8);
        r = clients_enqueue(store, wanted);
        /* Who has a key that makes it safe asks again. */
        if (is_passing(r) && wanted->idempotency != NO_KEY) {
            r = weir_sleep(5);
            if (r == 0) r = clients_enqueue(store, wanted);
        }
        r = later(r);
    }
    return r;
}

/* ---- Workers ---- */

static int settle(struct job *job, uint64_t token, int how)
{
    bool newest = world_settle_asked(job, token);
    weir_settlement one = {.id = job->id, .token = token, .how = (enum weir_settle)how};
    unsigned char payload[PAYLOAD_BYTES_MAX];
    struct wanted *then = NULL;
    weir_job_spec spec;
    uint64_t then_id = 0;
    int r;

    if (how == WEIR_SETTLE_RELEASE) world_release_asked(job, token);
    one.delay_ms = how == WEIR_SETTLE_FAIL ? -1 : 0;
    one.error_class = how == WEIR_SETTLE_FAIL ? "flaw" : NULL;
    if (how == WEIR_SETTLE_ACK && !draining && weir_sim_choose(4) == 1) then = world_want_in(0);
    if (then) {
        world_spec(then, payload, &spec);
        one.then = &spec;
        one.then_count = 1;
        one.ret_then_ids = &then_id;
    }
    r = weir_job_settle(store, &one, 1);
    if (r < 0) return r;
    world_settled(job, token, how, newest, r == 1 ? (int)one.ret_state : one.ret_error);
    if (r == 1 && then)
        world_enqueued(then, &(weir_enqueued){.id = then_id, .durability = WEIR_SYNCED});
    return 0;
}

static int renew(struct job *job, uint64_t token)
{
    weir_renewed renewed;
    bool newest = job->token == token;
    int r = weir_job_renew(store, job->id, token, "w", LEASE_MS_MAX, &renewed);

    if (r == -ESTALE || r == -ENOENT) return 0;
    if (r < 0) return r;
    world_renewed(job, token, newest, &renewed);
    return 0;
}

/* What becomes of a leased job, by choice. */
static int work_on(struct job *job, uint64_t token)
{
    unsigned what = draining ? 0 : weir_sim_choose(8);
    int r = 0;

    if (what == 5 || what == 6) r = renew(job, token);
    if (r == 0 && what == 6) r = weir_sleep(LEASE_MS_MAX + 10); /* too long */
    if (r < 0 || what == 7) return r;                           /* without a word */
    if (what == 3) return settle(job, token, WEIR_SETTLE_FAIL);
    if (what == 4) return settle(job, token, WEIR_SETTLE_RELEASE);
    return settle(job, token, WEIR_SETTLE_ACK);
}

static int take(const char *queue, enum weir_durability durability, weir_job *jobs)
{
    weir_lease_spec spec = {.queue = queue,
                            .worker = "w",
                            .count = 1 + weir_sim_choose(LEASED_MAX),
                            .lease_ms = LEASE_MS_MAX - (draining ? 0 : 100 * weir_sim_choose(2)),
                            .at_once = !draining && weir_sim_choose(4) == 1,
                            .durability = durability};
    int r = 0;

    /* Towards the end nobody looks again by itself: who waits must be served. */
    WEIR_DEADLINE(draining || weir_sim_choose(2) ? PATIENCE_MS : 20)
        r = weir_job_lease(store, &spec, jobs);
    for (int i = 0; i < r; i++)
        (void)world_leased(&jobs[i], spec.lease_ms, durability == WEIR_SYNCED,
                           clients_now_ms(store));
    return r;
}

static int work(void *arg)
{
    int number = *(int *)arg;
    int r = 0;

    while (r == 0) {
        int queue = number < QUEUES ? number : (int)weir_sim_choose(QUEUES);
        weir_job jobs[LEASED_MAX];
        int count = take(queue_names[queue], clients_durability(), jobs);

        if (count < 0) r = later(count);
        if (count == 0) r = weir_sleep(7);
        for (int i = 0; i < count; i++) {
            struct job *job = world_job(jobs[i].id);

            if (r == 0) r = look_at_order(store, job);
            if (r == 0) r = look_at_batch(store, job);
            if (r == 0) r = later(work_on(job, jobs[i].token));
            weir_job_free(&jobs[i]);
        }
    }
    return r;
}

/* ---- The administrator ---- */

static int set_queue(int queue)
{
    const weir_job_rate rate = {RATE_COUNT, RATE_PERIOD_MS, RATE_BURST}, no_rate = {0};
    uint32_t setting = world.setting_asked[queue] + 1;
    uint32_t depth = queue == GATHERING ? DEPTH_OF_GATHERING : 2 + setting % 2;
    int r;

    world.setting_asked[queue] = setting;
    r = weir_queue_set(store,
                       &(weir_queue_spec){.name = queue_names[queue],
                                          .depth_max = depth,
                                          .overflow = WEIR_WAIT,
                                          .concurrency = queue == KEYED ? QUEUE_CONCURRENCY : 0,
                                          .rate = queue == PACED ? rate : no_rate,
                                          .latency_target_ms = setting});
    if (r == 0) world.setting_told[queue] = setting;
    return r;
}

static struct job *job_by_choice(void)
{
    return world.job_count == 0 ? NULL : &world.jobs[weir_sim_choose((unsigned)world.job_count)];
}

static int cancel_one(void)
{
    struct job *job = job_by_choice();
    int r;

    if (!job) return 0;
    world_end_asked(job);
    r = weir_job_cancel(store, job->id);
    if (r == WEIR_JOB_CANCELLED) world_ended(job, WEIR_JOB_CANCELLED);
    if (r == -EBUSY) job->over = true; /* a refusal, too, says what is on disk */
    return r == -ENOENT || r == -EBUSY || r > 0 ? 0 : r;
}

static int purge_one(void)
{
    struct job *job = job_by_choice();
    bool asked;
    int r;

    if (!job) return 0;
    asked = job->purge_asked;
    job->purge_asked = true;
    r = weir_job_purge(store, job->id);
    if (r == 0 || r == -ENOENT) job->purged = true; /* a refusal, too, says what is on disk */
    if (r == -EBUSY && !forgets) job->purge_asked = asked; /* it has not ended: nothing happened */
    return r == -ENOENT || r == -EBUSY ? 0 : r;
}

static int replay_dead(int queue)
{
    uint64_t ids[4];
    int count = weir_dead_list(store, queue_names[queue], 0, ids, 4);
    int r = count < 0 ? count : 0;

    for (int i = 0; i < count && r == 0; i++) {
        world_job(ids[i])->changed = true;
        r = weir_dead_replay(store, ids[i], NULL, 0);
        if (r >= 0) world.replayed++;
        if (r > 0 || r == -ENOENT || r == -EBUSY || r == WEIR_EOVERLOAD || r == -EINVAL ||
            r == -EEXIST)
            r = 0;
    }
    return r;
}

/* Many at once, in the background. */
static int change_many(int queue, enum weir_bulk_action action)
{
    const weir_job_filter filter = {
        .queue = queue_names[queue],
        .states = action == WEIR_BULK_PURGE    ? WEIR_JOB_STATE_BIT(WEIR_JOB_DONE)
                  : action == WEIR_BULK_REPLAY ? WEIR_JOB_STATE_BIT(WEIR_JOB_DEAD)
                                               : WEIR_JOB_STATE_BIT(WEIR_JOB_READY)};
    uint64_t id;
    int r;

    world_change_asked(action);
    r = weir_bulk_begin(store, &filter, action, WEIR_BULK_ANY, &id);
    world_change_told();
    return r < 0 ? r : 0;
}

static int jump(void)
{
    static const int64_t jumps_ms[] = {1000, -1000, 70000, -70000, 3600000, -3600000};

    world.jumps++;
    weir_sim_wall_jump(weir_sim_host_self(), jumps_ms[weir_sim_choose(6)]);
    return 0;
}

static int admin_step(void)
{
    int queue = (int)weir_sim_choose(QUEUES);

    switch (weir_sim_choose(16)) {
    case 1: return weir_queue_pause(store, queue_names[queue]);
    case 2:
    case 3: return weir_queue_resume(store, queue_names[queue]);
    case 4:
    case 5: return cancel_one();
    case 6: return purge_one();
    case 7:
    case 8: return replay_dead(queue);
    case 9: return weir_sim_choose(4) == 1 ? change_many(queue, WEIR_BULK_REPLAY) : 0;
    case 10: return weir_sim_choose(4) == 1 ? change_many(queue, WEIR_BULK_PURGE) : 0;
    case 11: return weir_sim_choose(4) == 1 ? change_many(queue, WEIR_BULK_CANCEL) : 0;
    case 12:
    case 13: return jump();
    case 14: return weir_store_sync(store);
    case 15: return weir_sim_choose(4) == 1 ? WEIR_ESTOPPING : 0; /* closed, and started again */
    default: return set_queue(queue);
    }
}

static int resume_all(void)
{
    int r = 0;

    for (int i = 0; i < QUEUES && r == 0; i++) {
        r = weir_queue_resume(store, queue_names[i]);
        while (is_passing(r)) {
            r = weir_sleep(10);
            if (r == 0) r = weir_queue_resume(store, queue_names[i]);
        }
    }
    return r;
}

static int administer(void *arg)
{
    int r = 0;

    (void)arg;
    while (r == 0 && admin_steps < ADMIN_STEPS) {
        admin_steps++;
        r = later(admin_step());
        if (r == 0) r = weir_sleep(weir_sim_choose(30));
    }
    return r == 0 ? resume_all() : r; /* who waits for room in a paused queue waits for that */
}

/* ---- A start of the host ---- */

static int set_up(void)
{
    static const char *const limits[KEYS] = {"limit 0", "limit 1"};
    const weir_job_rate rate = {RATE_COUNT, RATE_PERIOD_MS, RATE_BURST}, no_rate = {0};
    int r = 0;

    for (int i = 0; i < QUEUES && r == 0; i++)
        if (world.setting_told[i] == 0) r = set_queue(i);
    for (int i = 0; i < KEYS && r == 0 && !world.keys_told; i++)
        r = weir_key_set(store, &(weir_key_spec){.name = limits[i],
                                                 .concurrency = 1,
                                                 .rate = i == RATED_KEY ? rate : no_rate});
    if (r == 0 && !world.keys_told)
        r = weir_schedule_set(store, &(weir_schedule_spec){.name = "each minute",
                                                           .cron = "* * * * *",
                                                           .overlap = WEIR_OVERLAP_SKIP,
                                                           .catch_up = WEIR_CATCH_UP_ONE,
                                                           .job = {.queue = "plain",
                                                                   .kind = "work",
                                                                   .payload = "tick",
                                                                   .payload_bytes = 4,
                                                                   .idempotent = WEIR_NO}});
    if (r == 0) world.keys_told = true;
    return r;
}

/* Nothing goes wrong any more by itself: everything comes to its end. */
static int drain(void)
{
    enum weir_job_state state = WEIR_JOB_NONE;
    uint64_t id = 0;
    int r = 0;

    draining = true;
    for (int tries = 0; r == 0 && tries < DRAIN_TRIES; tries++) {
        r = look_for_ends(store, &id, &state);
        if (r == 1) return 0;
        if (r == 0 && state == WEIR_JOB_HELD) { /* who would have sealed its batch may be gone */
            r = weir_batch_seal(store, id);
            if (r > 0 || r == -ENOENT) r = 0;
        }
        r = r == 0 ? weir_sleep(DRAIN_MS) : later(r);
    }
    if (r == 0)
        weir_sim_fail("job %llu does not end: it is %s", (unsigned long long)id,
                      weir_job_state_name(state));
    return r;
}

static int run_clients(void)
{
    int r = 0;

    WEIR_SCOPE(clients, &r, .name = "clients", .on_failure = WEIR_FAIL_FAST,
               .max_tasks = PRODUCERS + 1, .overflow = WEIR_REJECT) {
        for (int i = 0; i < PRODUCERS && r == 0; i++)
            r = weir_spawn(clients, produce, &i, sizeof i);
        if (r == 0) r = weir_spawn(clients, administer, NULL, 0);
    }
    return r;
}

/* Workers work until all is done. */
static int use_store(void)
{
    weir_store_figures figures;
    int r = 0, closed = 0;

    draining = false;
    WEIR_SCOPE(workers, &closed, .name = "workers", .on_failure = WEIR_FAIL_FAST,
               .max_tasks = WORKERS + 1, .overflow = WEIR_REJECT) {
        for (int i = 0; i < WORKERS && r == 0; i++) r = weir_spawn(workers, work, &i, sizeof i);
        if (r == 0 && weir_sim_choose(2) == 1) {
            r = clients_open_worker(store, workers, calm, &draining);
            if (r == -ENOMEM) r = 0;
        }
        if (r == 0) r = run_clients();
        if (r == 0) r = drain();
        weir_scope_cancel(workers, 0, "all is done");
    }
    weir_store_figures_of(store, &figures);
    if (held_back) (void)atom_add(held_back, figures.held_back);
    if (r == 0 && closed < 0) r = closed;
    if (r == 0) r = look_at_figures(store);
    if (r == 0) life.is_done = true;
    return r;
}

static int open_and_look(weir_scope *scope)
{
    const weir_store_spec spec = {.name = "work",
                                  .path = "/store",
                                  .create = true,
                                  .durability = WEIR_SYNCED,
                                  .memory_bytes_max = 16 << 20,
                                  .queue_depth_max = 100,
                                  .queue_overflow = WEIR_REJECT,
                                  .payload_bytes_max = PAYLOAD_BYTES_MAX,
                                  .result_bytes_max = 1024,
                                  .history_ms = MONTH_MS,
                                  .history_count_max = forgets ? 2 : 1000};
    const struct store_sizes sizes = {.segment_bytes = 384 * 1024,
                                      .buffer_bytes = 448 * 1024,
                                      .record_bytes_max = 216 * 1024,
                                      .held_segments = jobs_each == JOBS_EACH_MANY ? -1 : 0};
    int r = store_open(scope, &spec, &sizes, &store);

    if (r == -EBADMSG || r == -EBUSY || r == WEIR_EREFUSED || r == -ENOENT)
        weir_sim_fail("the store cannot be opened: %s", weir_why());
    if (r < 0) return r;
    r = look_at_all(store);
    return r < 0 ? r : look_at_figures(store);
}

static int live(weir_scope *scope)
{
    int r = open_and_look(scope), closed;

    if (r == 0 && life.looks_only) { /* what was found once is found again */
        weir_store *first = store;

        store = NULL;
        r = weir_store_close(first);
        if (r == 0) r = open_and_look(scope);
    } else if (r == 0) {
        r = set_up();
        if (r == 0) r = use_store();
    }
    closed = weir_store_close(store);
    store = NULL;
    if (r == 0) r = closed;
    if (r == 0 && life.looks_only) life.is_over = true;
    return r;
}

/* The host's program, at each of its starts. */
static int host_main(void *arg)
{
    int r = 0, closed = 0;

    (void)arg;
    host_begins(&life);
    world_change_told();
    store = NULL;
    WEIR_DEADLINE(PATIENCE_MS * 2) {
        WEIR_SCOPE(scope, &closed, .name = "host", .on_failure = WEIR_FAIL_FAST, .max_tasks = 4,
                   .overflow = WEIR_REJECT) {
            r = live(scope);
        }
    }
    return r < 0 ? r : closed;
}

int store_jobs_program(void *arg)
{
    (void)arg;
    return host_live(&life, host_main, &config);
}

/* ---- The tests: more than 10,000 runs in all ---- */

#define STORE_JOBS_TEST(name_, ...)                                                             \
    TEST_WITH(name_, .timeout_ms = 600000)                                                      \
    {                                                                                           \
        weir_test_sim(&(weir_sim_spec){.name = #name_, __VA_ARGS__}, store_jobs_program, NULL); \
    }

STORE_JOBS_TEST(store_jobs_without_any_fault, .runs_max = 2000, .begin = store_jobs_begin_calm)
STORE_JOBS_TEST(store_jobs_on_two_workers_through_power_cuts, .runs_max = 300,
                .begin = store_jobs_begin_wide, .faults = {.kill = 300, .sync_error = 200})
STORE_JOBS_TEST(store_jobs_through_power_cuts, .runs_max = 2800, .begin = store_jobs_begin,
                .faults = {.kill = 500})
STORE_JOBS_TEST(store_jobs_when_disks_fail, .runs_max = 1800, .begin = store_jobs_begin,
                .faults = {.disk_error = 150, .disk_full = 60, .sync_error = 80, .faults_max = 12})
STORE_JOBS_TEST(store_jobs_compacted_through_power_cuts, .runs_max = 1300,
                .begin = store_jobs_begin_large, .faults = {.kill = 500, .sync_error = 300})
STORE_JOBS_TEST(store_jobs_when_all_goes_wrong, .runs_max = 1300, .begin = store_jobs_begin_large,
                .any_result = true,
                .faults = {.kill = 500,
                           .disk_error = 200,
                           .disk_full = 100,
                           .sync_error = 100,
                           .no_memory = 300,
                           .faults_max = 16})

STORE_JOBS_TEST(store_jobs_outrun_compaction_when_all_goes_wrong, .runs_max = 300,
                .begin = store_jobs_begin_many, .any_result = true,
                .faults = {.kill = 300,
                           .disk_error = 200,
                           .disk_full = 100,
                           .sync_error = 100,
                           .no_memory = 300,
                           .faults_max = 16})

/* Whoever has to wait comes to its end, and nothing is lost meanwhile. */
TEST_WITH(store_jobs_when_compaction_is_outrun, .timeout_ms = 600000)
{
    void *shared =
        mmap(NULL, sizeof *held_back, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(shared != MAP_FAILED);
    held_back = shared;
    weir_test_sim(&(weir_sim_spec){.name = "store_jobs_when_compaction_is_outrun",
                                   .runs_max = 400,
                                   .begin = store_jobs_begin_many,
                                   .faults = {.kill = 300, .sync_error = 200}},
                  store_jobs_program, NULL);
    CHECK(atom_load(held_back) > 0 || getenv("WEIR_SIM"));
    (void)munmap(shared, sizeof *held_back);
    held_back = NULL;
}

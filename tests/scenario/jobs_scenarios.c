/* jobs_scenarios.c - what happens to jobs in a real life: contention, lost workers, duplicates,
 * shutdown. jobs_scenarios_more.c has the others. Each is named after what goes wrong. */
#include "base/atomic.h"
#include "unit/store/jobs_test.h"

#define INNER_SCOPE(scope_, ret_result)                                              \
    WEIR_SCOPE(scope_, ret_result, .name = "scenario", .on_failure = WEIR_FAIL_FAST, \
               .max_tasks = 64, .overflow = WEIR_REJECT)

static weir_worker_spec worker_spec(weir_store *store, const char *name,
                                    const weir_handler *handler, void *deps)
{
    return (weir_worker_spec){.name = name,
                              .store = store,
                              .queue = "q",
                              .handlers = handler,
                              .handler_count = 1,
                              .concurrency = 4,
                              .executor = WEIR_ON_TASKS,
                              .lease_ms = 60000,
                              .drain_ms = 60000,
                              .keep_deps = deps};
}

static uint64_t in_state(weir_store *store, enum weir_job_state state)
{
    return jobs_queue(store, "q").by_state[state];
}

/* ---- Contention: many leasers, one queue, one limited key ---- */

enum { CONTENDED_JOBS = 300, CONTENDERS = 8, CONTENDED_MAX = 3 };

struct contended {
    weir_store *store;
    ATOM(int) running, running_max, begun;
    ATOM(int) runs[CONTENDED_JOBS + 1];
};

static void run_contended(struct contended *all, uint64_t number)
{
    int running = atom_add(&all->running, 1) + 1;
    int max = atom_load(&all->running_max);

    while (running > max && !atom_cas(&all->running_max, &max, running)) {}
    (void)atom_add(&all->runs[number], 1);
    for (int i = 0; i < 3; i++) CHECK_OK(weir_yield());
    (void)atom_sub(&all->running, 1);
}

static int contend(void *arg)
{
    struct contended *all = *(struct contended **)arg;
    weir_lease_spec spec = {.queue = "q", .worker = "w", .count = 2, .lease_ms = 60000};

    while (atom_load(&all->begun) < CONTENDED_JOBS) {
        weir_job jobs[2];
        int n;

        spec.at_once = true;
        n = weir_job_lease(all->store, &spec, jobs);
        if (n < 0) return n;
        for (int i = 0; i < n; i++) {
            uint16_t number;

            memcpy(&number, jobs[i].payload, sizeof number);
            (void)atom_add(&all->begun, 1);
            run_contended(all, number);
            CHECK_OK(weir_job_ack(all->store, jobs[i].id, jobs[i].token, NULL, 0));
            weir_job_free(&jobs[i]);
        }
        if (n == 0) CHECK_OK(weir_yield());
    }
    return 0;
}

STORE_TEST(jobs_scenario_contention)
{
    static struct contended all;
    struct contended *shared = &all;
    int closed;

    all.store = store_stand_open(stand);
    CHECK_OK(
        weir_key_set(all.store, &(weir_key_spec){.name = "api", .concurrency = CONTENDED_MAX}));
    INNER_SCOPE(scope, &closed)
    {
        for (int i = 0; i < CONTENDERS; i++)
            CHECK_OK(weir_spawn(scope, contend, &shared, sizeof shared));
        for (int i = 0; i < CONTENDED_JOBS; i++) {
            uint16_t number = (uint16_t)i;

            (void)jobs_enqueue(all.store, "q", .payload = &number, .payload_bytes = sizeof number,
                               .limit_keys = {"api"});
        }
    }
    CHECK_OK(closed);
    for (int i = 0; i < CONTENDED_JOBS; i++) CHECK_INT(atom_load(&all.runs[i]), ==, 1);
    /* Two jobs of one lease run one after the other, so there may be fewer. */
    CHECK_INT(atom_load(&all.running_max), <=, CONTENDED_MAX);
    CHECK_INT(in_state(all.store, WEIR_JOB_DONE), ==, CONTENDED_JOBS);
    CHECK_OK(weir_store_close(all.store));
}

/* ---- Cancellation: of a job that waits, and of one that runs ---- */

struct patient {
    weir_event *go;
    ATOM(int) begun, interrupted;
};

static int wait_for_go(void *deps, weir_job job, weir_job_outcome *outcome)
{
    struct patient *patient = deps;
    int r;

    (void)job, (void)outcome;
    (void)atom_add(&patient->begun, 1);
    r = weir_event_wait(patient->go);
    if (r < 0) (void)atom_add(&patient->interrupted, 1);
    return r;
}

JOBS_TEST(jobs_scenario_cancellation)
{
    const weir_handler handler = {"work", 0, 0, wait_for_go};
    weir_store *store = stand->store;
    struct patient patient = {0};
    uint64_t running, waiting;
    int closed;

    CHECK_OK(weir_event_open(stand->base.scope, "go", &patient.go));
    INNER_SCOPE(scope, &closed)
    {
        weir_worker_spec spec = worker_spec(store, "w", &handler, &patient);
        weir_worker *worker;

        running = jobs_enqueue(store, "q");
        CHECK_OK(weir_worker_open(scope, &spec, &worker));
        JOBS_UNTIL(atom_load(&patient.begun) == 1);
        waiting = jobs_enqueue(store, "q", .delay_ms = 1000);
        CHECK_INT(weir_job_cancel(store, waiting), ==, WEIR_JOB_CANCELLED);
        CHECK_INT(weir_job_cancel(store, running), ==, WEIR_JOB_LEASED);
        jobs_pass_ms(21000); /* the next heartbeat */
        CHECK_INT(weir_job_wait(store, running), ==, WEIR_JOB_CANCELLED);
        CHECK_INT(atom_load(&patient.interrupted), ==, 1);
        CHECK_INT(weir_job_wait(store, waiting), ==, WEIR_JOB_CANCELLED);
        CHECK_OK(weir_worker_close(worker));
    }
    CHECK_OK(closed);
    CHECK_INT(atom_load(&patient.begun), ==, 1);
}

/* ---- Shutdown: what runs is finished, what waits is kept for the next process ---- */

JOBS_TEST(jobs_scenario_shutdown)
{
    const weir_handler handler = {"work", 0, 0, wait_for_go};
    struct patient patient = {0};
    int closed;

    CHECK_OK(weir_event_open(stand->base.scope, "go", &patient.go));
    for (int i = 0; i < 10; i++) (void)jobs_enqueue(stand->store, "q");
    INNER_SCOPE(scope, &closed)
    {
        weir_worker_spec spec = worker_spec(stand->store, "w", &handler, &patient);
        weir_worker *worker;

        CHECK_OK(weir_worker_open(scope, &spec, &worker));
        JOBS_UNTIL(atom_load(&patient.begun) == 4);
        weir_worker_stop(worker);
        weir_event_set(patient.go);
        CHECK_OK(weir_worker_close(worker));
    }
    CHECK_OK(closed);
    CHECK_INT(atom_load(&patient.begun), ==, 4);
    CHECK_INT(atom_load(&patient.interrupted), ==, 0);
    jobs_reopen(stand);
    CHECK_INT(in_state(stand->store, WEIR_JOB_DONE), ==, 4);
    CHECK_INT(in_state(stand->store, WEIR_JOB_READY), ==, 6);
    while (jobs_work(stand->store, "q") != 0) {}
    CHECK_INT(in_state(stand->store, WEIR_JOB_DONE), ==, 10);
}

/* ---- Duplicate execution: a worker that was thought lost is not ---- */

JOBS_TEST(jobs_scenario_duplicate_execution)
{
    weir_store *store = stand->store;
    uint64_t id = jobs_enqueue(store, "q"), first, second;
    uint64_t sent[4]; /* what has an effect remembers by the job's id that it has had it */
    int sent_count = 0, begun = 0;

    CHECK_INT(jobs_lease(store, "q", &first), ==, id);
    jobs_pass_ms(60001); /* it is slow, and does not renew */
    JOBS_UNTIL(stand_state(store, id) != WEIR_JOB_LEASED);
    jobs_pass_ms(10000);
    JOBS_UNTIL(stand_state(store, id) == WEIR_JOB_READY);
    CHECK_INT(jobs_lease(store, "q", &second), ==, id);
    CHECK(second > first);
    for (int worker = 0; worker < 2; worker++) {
        begun++;
        if (sent_count > 0 && sent[0] == id) continue;
        sent[sent_count++] = id;
    }
    CHECK_INT(weir_job_ack(store, id, first, "late", 4), ==, -ESTALE);
    CHECK_OK(weir_job_ack(store, id, second, "right", 5));
    CHECK_INT(begun, ==, 2);
    CHECK_INT(sent_count, ==, 1);
    CHECK_INT(jobs_queue(store, "q").lost, ==, 1);
    CHECK_INT(jobs_queue(store, "q").started, ==, 2);
}

/* ---- Retry exhaustion: bounded attempts, growing waits, then the dead letters ---- */

static int always_fails(void *deps, weir_job job, weir_job_outcome *outcome)
{
    (void)job;
    (void)snprintf(outcome->error_message, sizeof outcome->error_message, "no answer");
    (void)atom_add((ATOM(int) *)deps, 1);
    return -EHOSTUNREACH;
}

JOBS_TEST(jobs_scenario_retry_exhaustion)
{
    const weir_handler handler = {"work", 0, 0, always_fails};
    weir_store *store = stand->store;
    ATOM(int) begun = 0;
    int closed;
    uint64_t id = jobs_enqueue(store, "q");
    weir_job_info info;

    INNER_SCOPE(scope, &closed)
    {
        weir_worker_spec spec = worker_spec(store, "w", &handler, &begun);
        weir_worker *worker;

        CHECK_OK(weir_worker_open(scope, &spec, &worker));
        JOBS_UNTIL(stand_state(store, id) == WEIR_JOB_SCHEDULED);
        jobs_pass_ms(999);
        for (int i = 0; i < 20; i++) CHECK_OK(weir_yield());
        CHECK_INT(atom_load(&begun), ==, 1);
        jobs_pass_ms(1);
        JOBS_UNTIL(atom_load(&begun) == 2 && stand_state(store, id) == WEIR_JOB_SCHEDULED);
        jobs_pass_ms(2000); /* it doubles */
        CHECK_INT(weir_job_wait(store, id), ==, WEIR_JOB_DEAD);
        CHECK_OK(weir_worker_close(worker));
    }
    CHECK_OK(closed);
    CHECK_INT(atom_load(&begun), ==, 3);
    CHECK_OK(weir_job_get(store, id, &info));
    CHECK_INT(info.error_count, ==, 3);
    CHECK_STR(info.errors[2].error_class, "EHOSTUNREACH");
    CHECK_STR(info.errors[2].message, "no answer");
    weir_job_info_free(&info);
    CHECK_INT(jobs_queue(store, "q").failed, ==, 3);
    CHECK_INT(jobs_queue(store, "q").died, ==, 1);
}

/* ---- Missing or changing data: what a job names may be gone, or not be there yet ---- */

struct records {
    ATOM(bool) is_there, is_gone;
    ATOM(int) looked, done;
};

static int use_record(void *deps, weir_job job, weir_job_outcome *outcome)
{
    struct records *records = deps;

    CHECK_INT(job.payload_bytes, ==, 8);
    CHECK(memcmp(job.payload, "record 7", 8) == 0);
    (void)atom_add(&records->looked, 1);
    if (atom_load(&records->is_gone)) {
        outcome->as = WEIR_CLASS_DEAD;
        (void)snprintf(outcome->error_class, sizeof outcome->error_class, "gone");
        return 0;
    }
    if (!atom_load(&records->is_there)) {
        outcome->as = WEIR_CLASS_SNOOZE;
        outcome->delay_ms = 5000;
        return 0;
    }
    (void)atom_add(&records->done, 1);
    return 0;
}

JOBS_TEST(jobs_scenario_missing_or_changing_data)
{
    const weir_handler handler = {"work", 0, 0, use_record};
    weir_store *store = stand->store;
    struct records records = {0};
    char payload[] = "record 7";
    uint64_t id;
    int closed;

    INNER_SCOPE(scope, &closed)
    {
        weir_worker_spec spec = worker_spec(store, "w", &handler, &records);
        weir_worker *worker;

        id = jobs_enqueue(store, "q", .payload = payload, .payload_bytes = 8);
        memset(payload, 'x', sizeof payload - 1); /* the job has its own bytes */
        CHECK_OK(weir_worker_open(scope, &spec, &worker));
        for (int i = 1; i <= 5; i++) { /* more often than it has attempts */
            JOBS_UNTIL(atom_load(&records.looked) == i &&
                       stand_state(store, id) == WEIR_JOB_SCHEDULED);
            if (i == 5) atom_store(&records.is_there, true);
            jobs_pass_ms(5000);
        }
        CHECK_INT(weir_job_wait(store, id), ==, WEIR_JOB_DONE);
        CHECK_INT(atom_load(&records.done), ==, 1);
        atom_store(&records.is_gone, true);
        id = jobs_enqueue(store, "q", .payload = "record 7", .payload_bytes = 8);
        CHECK_INT(weir_job_wait(store, id), ==, WEIR_JOB_DEAD);
        CHECK_INT(records.looked, ==, 7);
        CHECK_OK(weir_worker_close(worker));
    }
    CHECK_OK(closed);
}

/* ---- Expired sessions: a lease that ran out is worth nothing, also after a restart ---- */

JOBS_TEST(jobs_scenario_expired_sessions)
{
    uint64_t id = jobs_enqueue(stand->store, "q"), first, second;
    weir_renewed renewed;

    CHECK_INT(jobs_lease(stand->store, "q", &first), ==, id);
    CHECK_OK(weir_store_close(stand->store));
    jobs_pass_ms(60001);
    stand->store = store_stand_open(&stand->base);
    JOBS_UNTIL(stand_state(stand->store, id) != WEIR_JOB_LEASED);
    CHECK_INT(weir_job_renew(stand->store, id, first, "w", 60000, &renewed), ==, -ESTALE);
    CHECK_INT(weir_job_ack(stand->store, id, first, NULL, 0), ==, -ESTALE);
    CHECK_INT(weir_job_fail(stand->store, id, first, "E", "m", -1), ==, -ESTALE);
    CHECK_INT(weir_job_release(stand->store, id, first, 0), ==, -ESTALE);
    CHECK_INT(weir_job_progress(stand->store, id, first, 1), ==, -ESTALE);
    jobs_pass_ms(10000);
    JOBS_UNTIL(stand_state(stand->store, id) == WEIR_JOB_READY);
    CHECK_INT(jobs_lease(stand->store, "q", &second), ==, id);
    CHECK(second > first);
    jobs_reopen(stand); /* a lease that has not run out goes on over a restart */
    CHECK_OK(weir_job_renew(stand->store, id, second, "w", 60000, &renewed));
    CHECK_OK(weir_job_ack(stand->store, id, second, NULL, 0));
}

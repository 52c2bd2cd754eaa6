/* worker_stand.c - see worker_test.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit/store/worker_test.h"

/* ---- The handler ---- */

static bool says(const weir_job *job, const char *text)
{
    return job->payload_bytes == strlen(text) &&
           memcmp(job->payload, text, job->payload_bytes) == 0;
}

static void enter(struct worker_stand *stand)
{
    int running = atom_add(&stand->running, 1) + 1;
    int max = atom_load(&stand->running_max);

    while (running > max && !atom_cas(&stand->running_max, &max, running)) {}
    (void)atom_add(&stand->begun, 1);
}

static int leave(struct worker_stand *stand, int r)
{
    (void)atom_sub(&stand->running, 1);
    if (atom_add(&stand->ended, 1) + 1 == stand->all_count) weir_event_set(stand->all);
    return r;
}

static int wait_for_go(struct worker_stand *stand)
{
    int r = weir_event_wait(stand->go);

    if (r < 0) (void)atom_add(&stand->interrupted, 1);
    return r;
}

static int follow(weir_job_outcome *outcome, const char *queue, int count)
{
    int r = 0;

    for (int i = 0; i < count && r == 0; i++) {
        char payload[16] = "ok";
        r = weir_outcome_then(outcome, &(weir_job_spec){.queue = queue,
                                                        .kind = "work",
                                                        .version = 1,
                                                        .payload = payload,
                                                        .payload_bytes = 2,
                                                        .idempotent = WEIR_YES});
        memset(payload, 'x', sizeof payload); /* it was copied */
    }
    return r;
}

static int on_thread(struct worker_stand *stand, const weir_job *job)
{
    if (says(job, "thread hears")) {
        while (!weir_pool_told()) {}
        (void)atom_add(&stand->interrupted, 1);
        return -EINTR;
    }
    while (!atom_load(&stand->may_end)) {} /* "thread deaf" */
    return 0;
}

static int outcome_of(struct worker_stand *stand, const weir_job *job, weir_job_outcome *outcome)
{
    if (says(job, "ok")) return 0;
    if (says(job, "result")) {
        outcome->result_bytes =
            (size_t)snprintf(outcome->result, 64, "job %llu", (unsigned long long)job->id);
        return 1;
    }
    if (says(job, "fail")) return -EDOM;
    if (says(job, "refused")) return WEIR_ETIMEDOUT;
    if (says(job, "dead") || says(job, "at") || says(job, "snooze")) {
        bool snoozes = says(job, "snooze") && job->run > 1;
        outcome->as = says(job, "dead") ? WEIR_CLASS_DEAD
                      : says(job, "at") ? WEIR_CLASS_RETRY_AT
                                        : WEIR_CLASS_SNOOZE;
        outcome->delay_ms = 1000000;
        if (snoozes) outcome->as = WEIR_CLASS_OK;
        (void)strcpy(outcome->error_class, "own class");
        (void)strcpy(outcome->error_message, "own words");
        return -EDOM;
    }
    if (says(job, "too much")) {
        outcome->result_bytes = 1 << 20;
        return 0;
    }
    if (says(job, "negative")) {
        outcome->as = WEIR_CLASS_SNOOZE;
        outcome->delay_ms = -1;
        return 0;
    }
    if (says(job, "then")) return follow(outcome, "q", 3);
    if (says(job, "then full")) return follow(outcome, "full", 1);
    if (says(job, "then bad")) return follow(outcome, "", 1);
    if (says(job, "then many")) return follow(outcome, "q", 17);
    if (says(job, "wait")) return wait_for_go(stand);
    if (says(job, "wait deaf")) {
        (void)wait_for_go(stand);
        return 0;
    }
    if (says(job, "wait other")) return wait_for_go(stand) < 0 ? -EIO : 0;
    if (says(job, "wait dead")) {
        if (wait_for_go(stand) < 0) outcome->as = WEIR_CLASS_DEAD;
        return -EIO;
    }
    return on_thread(stand, job);
}

int worker_stand_handle(void *keep_deps, weir_job job, weir_job_outcome *outcome)
{
    struct worker_stand *stand = keep_deps;
    int r;

    enter(stand);
    r = outcome_of(stand, &job, outcome);
    return leave(stand, r);
}

/* ---- The stand ---- */

struct run {
    struct worker_stand stand;
    int (*fn)(struct worker_stand *stand);
};

static int run_main(void *arg)
{
    struct run *run = *(struct run **)arg;
    struct worker_stand *stand = &run->stand;
    int result = 0, r = 0;

    WEIR_NO_DEADLINE("the test has a timeout") {
        WEIR_SCOPE(scope, &result, .name = "test", .on_failure = WEIR_FAIL_FAST, .max_tasks = 64,
                   .overflow = WEIR_REJECT) {
            stand->scope = scope;
            stand->store_stand.scope = scope;
            stand->store = store_stand_open(&stand->store_stand);
            CHECK_OK(weir_event_open(scope, "go", &stand->go));
            r = run->fn(stand);
        }
    }
    return r < 0 ? r : result;
}

void worker_stand_run(int (*fn)(struct worker_stand *stand), bool clock_stands)
{
    struct run *run = calloc(1, sizeof *run);

    CHECK(run != NULL);
    store_stand_make(&run->stand.store_stand);
    run->fn = fn;
    if (clock_stands) test_clock_manual();
    CHECK_OK(weir_run(&(weir_config){.workers = test_workers(), .log_level = WEIR_LOG_OFF},
                      run_main, &run));
    store_stand_remove(&run->stand.store_stand);
    free(run);
}

static const weir_handler handlers[] = {{"work", 1, 1, worker_stand_handle}};

weir_worker_spec worker_stand_spec(struct worker_stand *stand, int concurrency)
{
    return (weir_worker_spec){.name = "w",
                              .store = stand->store,
                              .queue = "q",
                              .handlers = handlers,
                              .handler_count = 1,
                              .concurrency = concurrency,
                              .executor = WEIR_ON_TASKS,
                              .lease_ms = WORKER_LEASE_MS,
                              .drain_ms = WORKER_LEASE_MS,
                              .keep_deps = stand};
}

weir_worker *worker_stand_open(struct worker_stand *stand, weir_scope *scope, int concurrency)
{
    weir_worker_spec spec = worker_stand_spec(stand, concurrency);
    weir_worker *worker = NULL;

    CHECK_OK(weir_worker_open(scope, &spec, &worker));
    return worker;
}

weir_worker_figures worker_stand_figures(weir_worker *worker)
{
    weir_worker_figures figures;

    weir_worker_figures_of(worker, &figures);
    return figures;
}

uint64_t worker_stand_enqueue(struct worker_stand *stand, const char *payload, int attempts_max)
{
    weir_job_spec spec = stand_job("q", payload);
    weir_enqueued enqueued;

    spec.retry = (weir_job_retry){.attempts_max = (uint16_t)attempts_max,
                                  .backoff_ms = 1,
                                  .backoff_ms_max = 1,
                                  .no_jitter = true};
    if (attempts_max == WORKER_STAND_ONCE) spec.idempotent = WEIR_NO;
    CHECK_OK(weir_job_enqueue(stand->store, &spec, &enqueued));
    return enqueued.id;
}

enum weir_job_state worker_stand_state(struct worker_stand *stand, uint64_t id)
{
    return stand_state(stand->store, id);
}

const char *worker_stand_error(struct worker_stand *stand, uint64_t id, const char **ret_message)
{
    static char class[WEIR_JOB_NAME_BYTES_MAX + 1], message[WEIR_OUTCOME_TEXT_BYTES];
    weir_job_info info;

    class[0] = message[0] = '\0';
    CHECK_OK(weir_job_get(stand->store, id, &info));
    if (info.error_count > 0) {
        const weir_job_error *last = &info.errors[info.error_count - 1];
        (void)snprintf(class, sizeof class, "%s", last->error_class);
        (void)snprintf(message, sizeof message, "%s", last->message);
    }
    weir_job_info_free(&info);
    if (ret_message) *ret_message = message;
    return class;
}

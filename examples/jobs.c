/* jobs.c - durable jobs: the pieces of code of docs/guide/jobs.md, as one program that runs them.
 *
 *     jobs FOLDER
 *
 * Opens a store in FOLDER, which it makes, enqueues mails, a charge that fails, an import of
 * several parts and a nightly report, works them off, replays what died, and makes a backup in
 * FOLDER-backup if there is none. Run it again: everything is still there.
 * Exit status: 0 all jobs ended as they should, 1 a failure, 2 wrong usage.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

/* ---- The store ---- */

static int open_store(weir_scope *scope, const char *folder, weir_store **ret_store)
{
    return weir_store_open(scope,
                           &(weir_store_spec){
                               .name = "work",
                               .path = folder,
                               .create = true,
                               .durability = WEIR_SYNCED,      /* acknowledged means on disk */
                               .memory_bytes_max = 64 << 20,   /* of the index: 400,000 jobs */
                               .disk_bytes_max = 1ULL << 30,   /* of the folder */
                               .queue_depth_max = 100000,      /* of a queue that says nothing */
                               .queue_overflow = WEIR_REJECT,  /* likewise */
                               .history_ms = 7 * 24 * 3600000, /* what has ended is kept so long */
                           },
                           ret_store);
}

/* ---- The first job ---- */

static int enqueue_welcome(weir_store *store, const char *address, uint64_t *ret_id)
{
    weir_enqueued enqueued;
    int r = weir_job_enqueue(store,
                             &(weir_job_spec){
                                 .queue = "mail",
                                 .kind = "welcome", /* which handler */
                                 .version = 1,      /* of what the payload looks like */
                                 .payload = address,
                                 .payload_bytes = strlen(address),
                                 .idempotent = WEIR_YES, /* may be begun twice */
                                 .retry = {.attempts_max = 5,
                                           .backoff_ms = 1000, /* then 2, 4, 8 s, with jitter */
                                           .backoff_ms_max = 60000},
                             },
                             &enqueued);

    if (r == 0) *ret_id = enqueued.id; /* from here on it is not lost */
    return r;
}

/* ---- A worker ---- */

struct mailer {
    int sent;
    bool bank_answers;
};

static int welcome(void *deps, weir_job job, weir_job_outcome *outcome)
{
    struct mailer *mailer = deps;

    printf("welcome, %.*s\n", (int)job.payload_bytes, (const char *)job.payload);
    mailer->sent++;
    outcome->result_bytes = (size_t)snprintf(outcome->result, 64, "sent as %d", mailer->sent);
    return 0; /* done */
}

static int charge(void *deps, weir_job job, weir_job_outcome *outcome)
{
    struct mailer *mailer = deps;

    (void)job;
    if (mailer->bank_answers) return 0;
    (void)snprintf(outcome->error_message, sizeof outcome->error_message, "the bank is away");
    return -ECONNREFUSED; /* failed: again as its policy says, then a dead letter */
}

static int import_part(void *deps, weir_job job, weir_job_outcome *outcome)
{
    (void)deps, (void)job;
    /* What follows is enqueued together with the acknowledgement, or not at all. */
    return weir_outcome_then(
        outcome,
        &(weir_job_spec){.queue = "mail", .kind = "tidy", .version = 1, .idempotent = WEIR_YES});
}

static int quiet(void *deps, weir_job job, weir_job_outcome *outcome)
{
    (void)deps, (void)job, (void)outcome;
    return 0;
}

static int open_worker(weir_scope *scope, weir_store *store, struct mailer *mailer,
                       weir_worker **ret_worker)
{
    static const weir_handler handlers[] = {
        {"welcome", 1, 1, welcome}, /* kind, versions from and to, function */
        {"charge", 1, 1, charge},   {"import", 1, 1, import_part},
        {"gather", 1, 1, quiet},    {"tidy", 1, 1, quiet},
    };

    return weir_worker_open(scope,
                            &(weir_worker_spec){
                                .name = "mailer-1",
                                .store = store,
                                .queue = "mail",
                                .handlers = handlers,
                                .handler_count = sizeof handlers / sizeof *handlers,
                                .concurrency = 8,          /* jobs at once */
                                .executor = WEIR_ON_TASKS, /* or a pool, or helper processes */
                                .lease_ms = 30000,         /* renewed every 10 s by itself */
                                .drain_ms = 10000,         /* what runs may end, at a stop */
                                .keep_deps = mailer,
                            },
                            ret_worker);
}

/* ---- Retries, and who is never tried again ---- */

static int enqueue_charge(weir_store *store, const char *order, uint64_t *ret_id)
{
    weir_enqueued enqueued;
    int r = weir_job_enqueue(store,
                             &(weir_job_spec){
                                 .queue = "mail",
                                 .kind = "charge",
                                 .version = 1,
                                 .payload = order,
                                 .payload_bytes = strlen(order),
                                 .idempotent = WEIR_YES,
                                 .retry = {.attempts_max = 3,
                                           .backoff_ms = 1,
                                           .backoff_ms_max = 10,
                                           .never = {"EINVAL", "card refused"}},
                                 .timeout_ms = 5000, /* of an attempt */
                             },
                             &enqueued);

    if (r == 0) *ret_id = enqueued.id;
    return r;
}

/* ---- Dead letters ---- */

static int show_dead(weir_store *store, const char *queue)
{
    uint64_t ids[64], after = 0;
    int n;

    while ((n = weir_dead_list(store, queue, after, ids, 64)) > 0) {
        for (int i = 0; i < n; i++) {
            weir_job_info info;

            if (weir_job_get(store, ids[i], &info) < 0) continue; /* gone meanwhile */
            printf("%s died after %u attempts:", info.kind, info.attempt);
            for (size_t e = 0; e < info.error_count; e++)
                printf(" [%s: %s]", info.errors[e].error_class, info.errors[e].message);
            printf("\n");
            weir_job_info_free(&info);
        }
        after = ids[n - 1];
    }
    return n;
}

static int replay_charges(weir_store *store)
{
    const weir_job_filter filter = {
        .queue = "mail", .states = WEIR_JOB_STATE_BIT(WEIR_JOB_DEAD), .kind = "charge"};
    uint64_t bulk;

    /* Their ids are frozen now, and worked off in the background, also after a restart. */
    return weir_bulk_begin(store, &filter, WEIR_BULK_REPLAY, WEIR_BULK_ANY, &bulk);
}

/* ---- Keys ---- */

static int limit_the_api(weir_store *store)
{
    int r = weir_key_set(store,
                         &(weir_key_spec){.name = "maps-api",
                                          .concurrency = 4,
                                          .rate = {.count = 100, .period_ms = 1000, .burst = 20}});

    if (r == 0) /* this tenant has three turns where others have one */
        r = weir_key_set(store, &(weir_key_spec){.name = "tenant:42", .weight = 3});
    return r;
}

static int enqueue_sync(weir_store *store, weir_enqueued *ret_enqueued)
{
    return weir_job_enqueue(store,
                            &(weir_job_spec){
                                .queue = "sync",
                                .kind = "sync",
                                .idempotent = WEIR_YES,
                                .unique_key = "sync:account:7", /* one that has not ended */
                                .idempotency_key = "request:4711",
                                .idempotency_ms = 3600000,  /* the same answer for an hour */
                                .limit_keys = {"maps-api"}, /* not more than that allows */
                                .fairness_key = "tenant:42",
                                .order_key = "account:7", /* one after the other */
                                .priority = 5,
                            },
                            ret_enqueued);
}

/* ---- A queue ---- */

static int set_up_queue(weir_store *store)
{
    return weir_queue_set(store, &(weir_queue_spec){
                                     .name = "mail",
                                     .depth_max = 10000,
                                     .overflow = WEIR_WAIT, /* producers wait for room */
                                     .concurrency = 50,     /* of all workers together */
                                     .latency_target_ms = 5000,
                                 });
}

/* ---- A schedule ---- */

static int schedule_report(weir_store *store)
{
    return weir_schedule_set(
        store, &(weir_schedule_spec){
                   .name = "nightly report",
                   .cron = "30 2 * * MON-FRI",
                   .overlap = WEIR_OVERLAP_SKIP,
                   .catch_up = WEIR_CATCH_UP_ONE,
                   .job = {.queue = "reports", .kind = "report", .idempotent = WEIR_YES},
               });
}

/* ---- A batch ---- */

static int enqueue_import(weir_store *store, int parts, uint64_t *ret_id)
{
    weir_enqueued gatherer, part;
    int r = weir_job_enqueue(store,
                             &(weir_job_spec){.queue = "mail",
                                              .kind = "gather",
                                              .version = 1,
                                              .idempotent = WEIR_YES,
                                              .gathers = WEIR_WHEN_DONE},
                             &gatherer);

    for (int i = 0; r == 0 && i < parts; i++)
        r = weir_job_enqueue(store,
                             &(weir_job_spec){.queue = "mail",
                                              .kind = "import",
                                              .version = 1,
                                              .payload = &i,
                                              .payload_bytes = sizeof i,
                                              .idempotent = WEIR_YES,
                                              .batch = gatherer.id},
                             &part);
    if (r == 0) r = weir_batch_seal(store, gatherer.id); /* no more come */
    if (r >= 0) *ret_id = gatherer.id;
    return r < 0 ? r : 0;
}

/* ---- Less than synced ---- */

static int count_visit(weir_store *store)
{
    weir_enqueued enqueued;

    return weir_job_enqueue(store,
                            &(weir_job_spec){.queue = "visits",
                                             .kind = "visit",
                                             .idempotent = WEIR_YES,
                                             .durability = WEIR_MEMORY}, /* on disk in a second */
                            &enqueued);
}

/* ---- All together ---- */

static int ends_as(weir_store *store, uint64_t id, enum weir_job_state wanted)
{
    int state = weir_job_wait(store, id);

    if (state < 0) return state;
    printf("job ended: %s\n", weir_job_state_name((enum weir_job_state)state));
    return state == (int)wanted ? 0 : -EPROTO;
}

static int back_up(weir_store *store, const char *folder)
{
    char copy[512];
    int r;

    (void)snprintf(copy, sizeof copy, "%s-backup", folder);
    r = weir_store_copy(store, copy); /* while work goes on; what is synced by now is in it */
    return r == -EEXIST ? 0 : r;
}

static int enqueue_all(weir_store *store)
{
    weir_enqueued first = {0}, second = {0};
    int r = set_up_queue(store);

    if (r == 0) r = limit_the_api(store);
    if (r == 0) r = enqueue_sync(store, &first);
    if (r == 0) r = enqueue_sync(store, &second);
    if (r == 0 && second.id != first.id) r = -EPROTO;
    if (r == 0) printf("twice asked for, %s\n", second.duplicate ? "one job" : "two jobs");
    if (r == 0) r = schedule_report(store);
    if (r == 0) r = count_visit(store);
    return r;
}

static int work(weir_scope *scope, weir_store *store, const char *folder)
{
    struct mailer mailer = {0};
    weir_worker *worker = NULL;
    uint64_t mail = 0, order = 0, import = 0;
    int ended, r = enqueue_all(store);

    if (r == 0) r = open_worker(scope, store, &mailer, &worker);
    if (r < 0) return r;
    r = enqueue_welcome(store, "ada@example.org", &mail);
    if (r == 0) r = ends_as(store, mail, WEIR_JOB_DONE);
    if (r == 0) r = enqueue_charge(store, "order 7", &order);
    if (r == 0) r = ends_as(store, order, WEIR_JOB_DEAD);
    if (r == 0) r = show_dead(store, "mail");
    mailer.bank_answers = true;
    if (r == 0) r = replay_charges(store);
    if (r > 0) r = 0;
    while (r == 0 && weir_job_wait(store, order) == WEIR_JOB_DEAD) r = weir_yield();
    if (r == 0) r = ends_as(store, order, WEIR_JOB_DONE);
    if (r == 0) r = enqueue_import(store, 3, &import);
    if (r == 0) r = ends_as(store, import, WEIR_JOB_DONE);
    if (r == 0) r = back_up(store, folder);
    if (r < 0) printf("failed: %s (%s)\n", weir_strerror(r), weir_why());
    ended = weir_worker_close(worker); /* drains: what runs ends */
    return r < 0 ? r : ended;
}

static int run(void *arg)
{
    const char *folder = *(const char **)arg;
    int closed = 0, r = 0;

    WEIR_DEADLINE(60000) {
        WEIR_SCOPE(scope, &closed, .name = "jobs", .on_failure = WEIR_FAIL_FAST, .max_tasks = 64,
                   .overflow = WEIR_REJECT) {
            weir_store *store;

            r = open_store(scope, folder, &store);
            if (r < 0) printf("%s: %s (%s)\n", folder, weir_strerror(r), weir_why());
            if (r == 0) {
                int ended;

                r = work(scope, store, folder);
                ended = weir_store_close(store);
                if (r == 0) r = ended;
            }
        }
    }
    return r < 0 ? r : closed;
}

int main(int argc, char **argv)
{
    const char *folder = argc == 2 ? argv[1] : NULL;

    if (!folder) {
        fprintf(stderr, "usage: jobs FOLDER\n");
        return 2;
    }
    return weir_run(&(weir_config){.name = "jobs"}, run, &folder) < 0;
}

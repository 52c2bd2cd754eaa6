/* store_life_test.c - a job's life through a store: enqueued, leased, settled, and there again. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "unit/store/store_test.h"

STORE_TEST(store_keeps_jobs_over_a_restart)
{
    weir_store *store = store_stand_open(stand);
    uint64_t first = stand_enqueue(store, "mail", "one");
    uint64_t second = stand_enqueue(store, "mail", "two");
    weir_job job;
    char result[16];

    CHECK_INT(stand_work(store, "mail"), ==, first);
    CHECK_OK(weir_store_close(store));
    store = store_stand_open(stand);
    CHECK_INT(stand_state(store, first), ==, WEIR_JOB_DONE);
    CHECK_INT(weir_job_result_read(store, first, result, sizeof result), ==, 4);
    CHECK(memcmp(result, "fine", 4) == 0);
    CHECK_INT(stand_lease(store, "mail", &job), ==, 1);
    CHECK_INT(job.id, ==, second);
    CHECK_INT(job.payload_bytes, ==, 3);
    CHECK(memcmp(job.payload, "two", 3) == 0);
    CHECK_STR(job.kind, "work");
    CHECK_STR(job.queue, "mail");
    CHECK_INT(job.attempts_max, ==, 3);
    weir_job_free(&job);
    CHECK_INT(stand_lease(store, "mail", &job), ==, 0);
    CHECK_OK(weir_store_close(store));
    store = store_stand_open(stand);
    CHECK_INT(stand_state(store, second), ==, WEIR_JOB_LEASED);
    CHECK_OK(weir_store_close(store));
}

STORE_TEST(store_gives_no_id_twice_whether_it_was_closed_or_not)
{
    weir_store *store = store_stand_open(stand);
    uint64_t id = stand_enqueue(store, "mail", "one");

    CHECK_OK(weir_store_close(store));
    store = store_stand_open(stand);
    CHECK_INT(stand_enqueue(store, "mail", "two"), ==, id + 1);
    CHECK_OK(weir_store_close(store));
}

STORE_TEST(store_refuses_a_spec_that_leaves_something_out)
{
    weir_store_spec good = stand->spec;
    weir_store *store;

    stand->spec.durability = WEIR_DURABILITY_UNSET;
    CHECK_INT(store_stand_try(stand, &store), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "durability is not set");
    stand->spec = good;
    stand->spec.queue_overflow = WEIR_DROP_OLDEST;
    CHECK_INT(store_stand_try(stand, &store), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "queue_overflow");
    stand->spec = good;
    stand->spec.memory_bytes_max = 0;
    CHECK_INT(store_stand_try(stand, &store), ==, WEIR_EREFUSED);
    stand->spec = good;
    stand->spec.queue_depth_max = 0;
    CHECK_INT(store_stand_try(stand, &store), ==, WEIR_EREFUSED);
    stand->spec = good;
    stand->spec.path = "";
    CHECK_INT(store_stand_try(stand, &store), ==, WEIR_EREFUSED);
    stand->spec = good;
    stand->spec.create = false;
    CHECK_INT(store_stand_try(stand, &store), ==, -ENOENT);
}

STORE_TEST(store_refuses_a_job_that_leaves_something_out)
{
    weir_store *store = store_stand_open(stand);
    weir_job_spec spec = stand_job("mail", "x");
    weir_enqueued enqueued;

    spec.idempotent = WEIR_ANSWER_UNSET;
    CHECK_INT(weir_job_enqueue(store, &spec, &enqueued), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "idempotent is not set");
    spec = stand_job("mail", "x");
    spec.idempotent = WEIR_NO;
    CHECK_INT(weir_job_enqueue(store, &spec, &enqueued), ==, -EINVAL);
    spec = stand_job("mail", "x");
    spec.payload_bytes = stand->spec.payload_bytes_max + 1;
    CHECK_INT(weir_job_enqueue(store, &spec, &enqueued), ==, -EMSGSIZE);
    spec = stand_job("", "x");
    CHECK_INT(weir_job_enqueue(store, &spec, &enqueued), ==, WEIR_EREFUSED);
    spec = stand_job("mail", "x");
    spec.trace = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01-and-more";
    CHECK_INT(weir_job_enqueue(store, &spec, &enqueued), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "trace has 64 bytes, at most 63");
    CHECK_OK(weir_store_close(store));
}

STORE_TEST(files_of_a_store_are_their_owners_alone)
{
    mode_t before = umask(0);
    weir_store *store = store_stand_open(stand);
    struct dirent *entry;
    int files = 0;
    DIR *folder;

    (void)stand_enqueue(store, "mail", "one");
    CHECK_OK(weir_store_close(store));
    (void)umask(before);
    folder = opendir(stand->path);
    CHECK(folder != NULL);
    while ((entry = readdir(folder))) {
        struct stat about;

        CHECK_INT(fstatat(dirfd(folder), entry->d_name, &about, AT_SYMLINK_NOFOLLOW), ==, 0);
        if (!S_ISREG(about.st_mode)) continue;
        CHECK_INT(about.st_mode & 077, ==, 0);
        files++;
    }
    CHECK_INT(files, >=, 3);
    CHECK_INT(closedir(folder), ==, 0);
}

STORE_TEST(store_that_is_open_is_not_opened_twice)
{
    weir_store *store = store_stand_open(stand), *other;

    CHECK_INT(store_stand_try(stand, &other), ==, -EBUSY);
    CHECK_OK(weir_store_close(store));
}

STORE_TEST(store_ends_with_its_scope_and_loses_nothing)
{
    weir_store *store;
    uint64_t id = 0;
    int closed;

    WEIR_SCOPE(inner, &closed, .name = "inner", .on_failure = WEIR_FAIL_FAST, .max_tasks = 8,
               .overflow = WEIR_REJECT) {
        CHECK_OK(store_open(inner, &stand->spec, &stand->sizes, &store));
        id = stand_enqueue(store, "mail", "one");
    }
    CHECK_OK(closed);
    store = store_stand_open(stand);
    CHECK_INT(stand_state(store, id), ==, WEIR_JOB_READY);
    CHECK_OK(weir_store_close(store));
}

static int lease_and_ack(void *arg)
{
    weir_store *store = *(weir_store **)arg;
    weir_job job;
    int r = weir_job_lease(
        store, &(weir_lease_spec){.queue = "mail", .worker = "w", .count = 1, .lease_ms = 60000},
        &job);

    if (r < 0) return r;
    r = weir_job_ack(store, job.id, job.token, NULL, 0);
    weir_job_free(&job);
    return r;
}

static void until_waiting(weir_store *store, uint64_t count)
{
    weir_store_figures figures;

    for (;;) {
        weir_store_figures_of(store, &figures);
        if (figures.waiting >= count) return;
        CHECK_OK(weir_yield());
    }
}

STORE_TEST(a_lease_waits_for_a_job)
{
    weir_store *store = store_stand_open(stand);
    uint64_t ids[4];
    int r = 0, closed;

    WEIR_SCOPE(inner, &closed, .name = "inner", .on_failure = WEIR_FAIL_FAST, .max_tasks = 8,
               .overflow = WEIR_REJECT) {
        for (int i = 0; i < 4; i++)
            CHECK_OK(weir_spawn(inner, lease_and_ack, &store, sizeof store));
        until_waiting(store, 4);
        for (int i = 0; i < 4; i++) ids[i] = stand_enqueue(store, "mail", "x");
        r = weir_scope_join(inner);
    }
    CHECK_OK(r);
    CHECK_OK(closed);
    for (int i = 0; i < 4; i++) CHECK_INT(stand_state(store, ids[i]), ==, WEIR_JOB_DONE);
    CHECK_OK(weir_store_close(store));
}

STORE_TEST(a_lease_that_waits_ends_with_the_store)
{
    weir_store *store = store_stand_open(stand);
    int r = 0, closed;

    WEIR_SCOPE(inner, &closed, .name = "inner", .on_failure = WEIR_COLLECT, .max_tasks = 8,
               .overflow = WEIR_REJECT) {
        weir_task task;

        CHECK_OK(weir_task_spawn(
            inner,
            &(weir_task_spec){
                .fn = lease_and_ack, .arg = &store, .arg_bytes = sizeof store, .name = "leaser"},
            &task));
        until_waiting(store, 1);
        CHECK_OK(weir_store_close(store));
        CHECK_OK(weir_task_join(task, &r));
        CHECK_INT(r, ==, WEIR_ECLOSED);
    }
    CHECK_INT(closed, ==, WEIR_ECLOSED);
}

/* Every kind of call, while another closes the store. */
static int call_a_closing_store(void *arg)
{
    weir_store *store = *(weir_store **)arg;
    weir_job_spec spec = stand_job("mail", "late");
    weir_store_figures figures;
    weir_enqueued enqueued;

    weir_store_figures_of(store, &figures);
    CHECK_INT(weir_job_enqueue(store, &spec, &enqueued), ==, WEIR_ECLOSED);
    CHECK_INT(lease_and_ack(&store), ==, WEIR_ECLOSED);
    CHECK_INT(weir_job_cancel(store, 1), ==, WEIR_ECLOSED);
    CHECK_INT(weir_store_sync(store), ==, WEIR_ECLOSED);
    CHECK_INT(weir_store_close(store), ==, WEIR_ECLOSED);
    return 0;
}

static int close_with_a_caller(struct store_stand *stand)
{
    weir_store *store = store_stand_open(stand);

    (void)stand_enqueue(store, "mail", "x");
    CHECK_OK(weir_spawn(stand->scope, call_a_closing_store, &store, sizeof store));
    return weir_store_close(store); /* with one worker, the other runs before this is over */
}

TEST(who_calls_while_a_store_is_being_closed_is_told_so)
{
    static struct store_stand stand;

    store_stand_make(&stand);
    stand.workers = 1;
    CHECK_OK(store_stand_run(&stand, close_with_a_caller));
    store_stand_remove(&stand);
}

STORE_TEST(a_stale_token_gets_a_conflict)
{
    weir_store *store = store_stand_open(stand);
    uint64_t id = stand_enqueue(store, "mail", "x");
    weir_job job, again;

    CHECK_INT(stand_lease(store, "mail", &job), ==, 1);
    CHECK_OK(weir_job_release(store, job.id, job.token, 0));
    CHECK_INT(stand_lease(store, "mail", &again), ==, 1);
    CHECK_INT(again.id, ==, id);
    CHECK(again.token > job.token);
    CHECK_INT(weir_job_ack(store, job.id, job.token, NULL, 0), ==, -ESTALE);
    CHECK_INT(weir_job_fail(store, job.id, job.token, "x", "y", -1), ==, -ESTALE);
    CHECK_OK(weir_job_ack(store, again.id, again.token, NULL, 0));
    CHECK_INT(weir_job_ack(store, again.id, again.token, NULL, 0), ==, -ESTALE);
    weir_job_free(&job);
    weir_job_free(&again);
    CHECK_OK(weir_store_close(store));
}

STORE_TEST(many_jobs_are_enqueued_all_or_none)
{
    weir_store *store = store_stand_open(stand);
    weir_job_spec specs[5];
    weir_enqueued enqueued[5];
    weir_queue_figures figures;

    for (int i = 0; i < 5; i++) specs[i] = stand_job("mail", "x");
    specs[4].idempotent = WEIR_NO; /* and has three attempts: refused by the engine */
    CHECK_INT(weir_job_enqueue_all(store, specs, 5, enqueued), ==, -EINVAL);
    CHECK_INT(weir_queue_get(store, "mail", &figures), ==, -ENOENT);
    specs[4].idempotent = WEIR_YES;
    CHECK_OK(weir_job_enqueue_all(store, specs, 5, enqueued));
    CHECK_OK(weir_queue_get(store, "mail", &figures));
    CHECK_INT(figures.by_state[WEIR_JOB_READY], ==, 5);
    CHECK_INT(enqueued[4].durability, ==, WEIR_SYNCED);
    for (int i = 0; i < 5; i++) CHECK_INT(stand_work(store, "mail"), ==, enqueued[i].id);
    CHECK_OK(weir_store_close(store));
}

STORE_TEST(what_follows_is_enqueued_with_the_acknowledgement_or_not_at_all)
{
    weir_store *store = store_stand_open(stand);
    uint64_t id = stand_enqueue(store, "mail", "x");
    weir_job_spec then[2] = {stand_job("next", "a"), stand_job("next", "b")};
    weir_settlement one;
    uint64_t ids[2];
    weir_job job;

    CHECK_INT(stand_lease(store, "mail", &job), ==, 1);
    one = (weir_settlement){.id = job.id,
                            .token = job.token,
                            .how = WEIR_SETTLE_ACK,
                            .then = then,
                            .then_count = 2,
                            .ret_then_ids = ids};
    then[1].priority = 200;
    CHECK_INT(weir_job_settle(store, &one, 1), ==, 0);
    CHECK_INT(one.ret_error, ==, -EINVAL);
    CHECK_INT(stand_state(store, id), ==, WEIR_JOB_LEASED);
    then[1].priority = 0;
    CHECK_INT(weir_job_settle(store, &one, 1), ==, 1);
    CHECK_INT(one.ret_error, ==, 0);
    CHECK_INT(stand_state(store, id), ==, WEIR_JOB_DONE);
    CHECK_INT(stand_work(store, "next"), ==, ids[0]);
    CHECK_INT(stand_work(store, "next"), ==, ids[1]);
    weir_job_free(&job);
    CHECK_OK(weir_store_close(store));
}

STORE_TEST(a_worker_that_is_to_be_quiet_gets_no_more)
{
    weir_store *store = store_stand_open(stand);
    weir_renewed renewed;
    weir_job job;

    (void)stand_enqueue(store, "mail", "x");
    (void)stand_enqueue(store, "mail", "y");
    CHECK_INT(stand_lease(store, "mail", &job), ==, 1);
    CHECK_OK(weir_worker_order(store, "w", WEIR_GO_QUIET));
    CHECK_OK(weir_job_renew(store, job.id, job.token, "w", 60000, &renewed));
    CHECK_INT(renewed.orders, ==, WEIR_GO_QUIET);
    CHECK_INT(
        weir_job_lease(
            store,
            &(weir_lease_spec){
                .queue = "mail", .worker = "w", .count = 1, .lease_ms = 1000, .at_once = true},
            &job),
        ==, WEIR_ESTOPPING);
    CHECK_OK(weir_worker_order(store, "w", WEIR_GO_ON));
    weir_job_free(&job);
    CHECK_INT(stand_lease(store, "mail", &job), ==, 1);
    weir_job_free(&job);
    CHECK_OK(weir_store_close(store));
}

/* A dead letter with all the errors that a job keeps, each as long as it may be. */
static void fail_often(weir_store *store)
{
    weir_job_spec spec = stand_job("failing", "x");
    weir_enqueued enqueued;
    char message[1024 + 1];

    memset(message, 'm', sizeof message - 1);
    message[sizeof message - 1] = '\0';
    spec.retry.attempts_max = WEIR_JOB_ERRORS_KEPT;
    CHECK_OK(weir_job_enqueue(store, &spec, &enqueued));
    for (unsigned attempt = 0; attempt < WEIR_JOB_ERRORS_KEPT; attempt++) {
        weir_job job;

        while (stand_lease(store, "failing", &job) == 0) CHECK_OK(weir_yield());
        CHECK_INT(weir_job_fail(store, job.id, job.token, "net", message, 0), >=, 0);
        weir_job_free(&job);
    }
}

/* What is copied and not counted as needed would make compaction due for ever. */
static bool comes_to_rest(weir_store *store, uint64_t *ret_compacted)
{
    enum { REST_MS = 2500, RESTS = 4 }; /* longer than a store waits that has copied in vain */
    weir_store_figures before, after;

    weir_store_figures_of(store, &after);
    for (int i = 0; i < RESTS; i++) {
        before = after;
        CHECK_OK(weir_sleep(REST_MS));
        weir_store_figures_of(store, &after);
        *ret_compacted = after.compacted_bytes;
        if (after.compacted_bytes == before.compacted_bytes) return true;
    }
    return false;
}

STORE_TEST(a_store_at_rest_stops_copying_the_errors_of_its_dead_letters)
{
    weir_store *store = store_stand_open(stand);
    uint64_t compacted;

    for (int i = 0; i < 40; i++) fail_often(store);
    CHECK_OK(weir_store_sync(store));
    CHECK(comes_to_rest(store, &compacted));
    CHECK_INT(compacted, >, 0);
    CHECK_OK(weir_store_close(store));
}

STORE_TEST(a_store_at_rest_stops_copying_jobs_with_long_names)
{
    char name[151];
    weir_store *store = store_stand_open(stand);
    weir_job_spec spec = stand_job("q", "x");
    uint64_t compacted;

    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    spec.fairness_key = name;
    spec.kind = name;
    spec.durability = WEIR_MEMORY;
    for (int i = 0; i < 4; i++) spec.limit_keys[i] = name + i;
    for (int i = 0; i < 10000; i++) {
        weir_enqueued enqueued;
        CHECK_OK(weir_job_enqueue(store, &spec, &enqueued));
    }
    CHECK_OK(weir_store_sync(store));
    CHECK(comes_to_rest(store, &compacted));
    CHECK_INT(compacted, <, 20 << 20);
    CHECK_OK(weir_store_close(store));
}

STORE_TEST(compaction_keeps_disk_use_within_its_bound_and_loses_nothing)
{
    static char payload[8000];
    weir_store *store;
    uint64_t kept[20];
    weir_store_figures figures;
    uint64_t bound;
    char bytes[8000];

    memset(payload, 'p', sizeof payload - 1);
    stand->spec.history_count_max = 1;
    store = store_stand_open(stand);
    CHECK_OK(weir_queue_set(
        store, &(weir_queue_spec){.name = "mail", .depth_max = 77, .overflow = WEIR_WAIT}));
    for (int i = 0; i < 20; i++) {
        payload[0] = (char)('a' + i);
        kept[i] = stand_enqueue(store, "kept", payload);
    }
    payload[0] = 'p';
    for (int i = 0; i < 2000; i++) {
        (void)stand_enqueue(store, "mail", payload);
        (void)stand_work(store, "mail");
    }
    CHECK_OK(weir_store_sync(store));
    /* Upkeep may be at it still. */
    for (;;) {
        weir_store_figures_of(store, &figures);
        bound = 2 * figures.live_bytes + 3 * stand->sizes.segment_bytes +
                4 * stand->sizes.segment_bytes; /* spares */
        if (figures.disk_bytes <= bound) break;
        CHECK_OK(weir_sleep(1));
    }
    CHECK(figures.compacted_bytes > 0);
    for (int round = 0; round < 2; round++) {
        weir_queue_figures queue;

        for (int i = 0; i < 20; i++) {
            CHECK_INT(weir_job_payload(store, kept[i], bytes, sizeof bytes), ==, 7999);
            CHECK_INT(bytes[0], ==, 'a' + i);
        }
        CHECK_OK(weir_queue_get(store, "mail", &queue));
        CHECK_INT(queue.spec.depth_max, ==, 77);
        CHECK_INT(queue.spec.overflow, ==, WEIR_WAIT);
        CHECK_OK(weir_store_close(store));
        store = store_stand_open(stand);
    }
    CHECK_OK(weir_store_close(store));
}

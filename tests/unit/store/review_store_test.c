/* review_store_test.c - stores under callers that are refused, or that edit, at a bad moment. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "unit/store/store_test.h"

/* ---- Room in a queue that is not taken ---- */

struct producer {
    weir_store *store;
    uint64_t batch;
};

static int enqueue_small(void *arg)
{
    const struct producer *producer = arg;
    weir_job_spec spec = stand_job("small", "x");
    weir_enqueued enqueued;

    spec.batch = producer->batch;
    return weir_job_enqueue(producer->store, &spec, &enqueued);
}

static void spawn_producer(weir_scope *scope, weir_store *store, uint64_t batch, weir_task *ret)
{
    struct producer producer = {store, batch};
    weir_store_figures before, now;

    weir_store_figures_of(store, &before);
    CHECK_OK(weir_task_spawn(scope,
                             &(weir_task_spec){.fn = enqueue_small,
                                               .arg = &producer,
                                               .arg_bytes = sizeof producer,
                                               .name = "producer"},
                             ret));
    do {
        CHECK_OK(weir_yield());
        weir_store_figures_of(store, &now);
    } while (now.waiting_room == before.waiting_room);
}

static void make_small(weir_store *store)
{
    weir_queue_spec spec = {.name = "small", .depth_max = 1, .overflow = WEIR_WAIT};

    CHECK_OK(weir_queue_set(store, &spec));
    (void)stand_enqueue(store, "small", "first");
}

STORE_TEST(all_who_wait_for_room_learn_that_the_queue_is_drained)
{
    weir_store *store = store_stand_open(stand);
    weir_task tasks[3];
    int closed, r;

    make_small(store);
    WEIR_SCOPE(inner, &closed, .name = "inner", .on_failure = WEIR_COLLECT, .max_tasks = 8,
               .overflow = WEIR_REJECT) {
        for (int i = 0; i < 3; i++) spawn_producer(inner, store, 0, &tasks[i]);
        CHECK_OK(weir_queue_drain(store, "small"));
        for (int i = 0; i < 3; i++) {
            CHECK_OK(weir_task_join(tasks[i], &r));
            CHECK_INT(r, ==, WEIR_ESTOPPING);
        }
    }
    CHECK_INT(closed, ==, WEIR_ESTOPPING);
    CHECK_OK(weir_store_close(store));
}

STORE_TEST(room_that_its_first_cannot_take_is_the_next_ones)
{
    weir_store *store = store_stand_open(stand);
    weir_job_spec gathers = stand_job("other", "x");
    weir_enqueued batch;
    weir_task tasks[2];
    weir_job job;
    int closed, r;

    gathers.gathers = WEIR_WHEN_ENDED;
    CHECK_OK(weir_job_enqueue(store, &gathers, &batch));
    make_small(store);
    WEIR_SCOPE(inner, &closed, .name = "inner", .on_failure = WEIR_COLLECT, .max_tasks = 8,
               .overflow = WEIR_REJECT) {
        spawn_producer(inner, store, batch.id, &tasks[0]);
        spawn_producer(inner, store, 0, &tasks[1]);
        CHECK_OK(weir_batch_seal(store, batch.id)); /* the first comes too late for it */
        CHECK_INT(stand_lease(store, "small", &job), ==, 1);
        CHECK_OK(weir_task_join(tasks[0], &r));
        CHECK_INT(r, <, 0);
        CHECK_OK(weir_task_join(tasks[1], &r));
        CHECK_OK(r);
    }
    CHECK_INT(closed, <, 0);
    weir_job_free(&job);
    CHECK_OK(weir_store_close(store));
}

/* ---- Times ---- */

STORE_TEST(times_that_are_none_are_refused)
{
    weir_store *store = store_stand_open(stand);
    weir_job_spec spec = stand_job("mail", "x");
    weir_enqueued enqueued;
    weir_job job;

    spec.delay_ms = INT64_MAX;
    CHECK_INT(weir_job_enqueue(store, &spec, &enqueued), <, 0);
    CHECK_INT(weir_job_enqueue_all(store, &spec, 1, &enqueued), <, 0);
    spec.delay_ms = 0;
    spec.run_at_ms = -5;
    CHECK_INT(weir_job_enqueue(store, &spec, &enqueued), <, 0);
    CHECK_INT(weir_job_enqueue_all(store, &spec, 1, &enqueued), <, 0);
    spec.run_at_ms = INT64_MIN;
    CHECK_INT(weir_job_enqueue_all(store, &spec, 1, &enqueued), <, 0);
    spec.run_at_ms = 0;
    spec.delay_ms = INT64_MAX;
    (void)stand_enqueue(store, "mail", "x");
    CHECK_INT(stand_lease(store, "mail", &job), ==, 1);
    {
        weir_settlement one = {.id = job.id,
                               .token = job.token,
                               .how = WEIR_SETTLE_ACK,
                               .then = &spec,
                               .then_count = 1};
        CHECK_OK(weir_job_settle(store, &one, 1));
        CHECK_INT(one.ret_error, <, 0);
        one.then_count = 0;
        one.how = WEIR_SETTLE_FAIL;
        one.delay_ms = INT64_MAX;
        CHECK_OK(weir_job_settle(store, &one, 1));
        CHECK_INT(one.ret_error, <, 0);
        one.how = WEIR_SETTLE_RELEASE;
        CHECK_OK(weir_job_settle(store, &one, 1));
        CHECK_INT(one.ret_error, <, 0);
    }
    CHECK_OK(weir_job_ack(store, job.id, job.token, NULL, 0));
    weir_job_free(&job);
    CHECK_OK(weir_store_close(store));
}

/* ---- Edits while old segments are let go ---- */

enum { EDITED = 100, EDIT_BYTES = 2048, EDIT_ROUNDS = 5 };

struct edits {
    weir_store *store;
    uint64_t ids[EDITED];
    unsigned says[EDITED];
};

static void fill_edit(unsigned char *bytes, unsigned says)
{
    memset(bytes, (int)(says & 0xff), EDIT_BYTES);
    memcpy(bytes, &says, sizeof says);
}

static void make_dead(weir_store *store)
{
    weir_job job;

    CHECK_INT(stand_lease(store, "edited", &job), ==, 1);
    CHECK_INT(weir_job_fail(store, job.id, job.token, "x", "", -1), ==, WEIR_JOB_DEAD);
    weir_job_free(&job);
}

/* Others come and go, so that segments are worth to be let go of. */
static int churn(void *arg)
{
    weir_store *store = *(weir_store **)arg;
    static const char payload[30000];
    weir_job_spec spec = stand_job("churn", "");
    int r = 0;

    spec.payload = payload;
    spec.payload_bytes = sizeof payload;
    while (r >= 0) {
        weir_enqueued enqueued;
        r = weir_job_enqueue(store, &spec, &enqueued);
        if (r >= 0) r = weir_job_cancel(store, enqueued.id);
        if (r >= 0) r = weir_job_purge(store, enqueued.id);
    }
    return r == WEIR_ECANCELED ? 0 : r;
}

static void edit_all(struct edits *edits, unsigned round)
{
    unsigned char bytes[EDIT_BYTES], got[EDIT_BYTES];

    for (unsigned i = 0; i < EDITED; i++) {
        int n = weir_job_payload(edits->store, edits->ids[i], got, sizeof got);
        CHECK_INT(n, ==, EDIT_BYTES);
        fill_edit(bytes, edits->says[i]);
        CHECK(memcmp(bytes, got, sizeof bytes) == 0);
        edits->says[i] = round * EDITED + i;
        fill_edit(bytes, edits->says[i]);
        CHECK_OK(weir_dead_replay(edits->store, edits->ids[i], bytes, sizeof bytes));
        make_dead(edits->store);
    }
}

STORE_TEST(an_edit_is_not_undone_by_compaction)
{
    static struct edits edits;
    unsigned char bytes[EDIT_BYTES];
    int closed;

    stand->spec.durability = WEIR_MEMORY;
    edits = (struct edits){.store = store_stand_open(stand)};
    for (unsigned i = 0; i < EDITED; i++) {
        weir_job_spec spec = stand_job("edited", "");
        weir_enqueued enqueued;

        spec.retry = (weir_job_retry){.attempts_max = 1};
        spec.payload = bytes;
        spec.payload_bytes = sizeof bytes;
        edits.says[i] = i;
        fill_edit(bytes, i);
        CHECK_OK(weir_job_enqueue(edits.store, &spec, &enqueued));
        edits.ids[i] = enqueued.id;
        make_dead(edits.store);
    }
    WEIR_SCOPE(inner, &closed, .name = "inner", .on_failure = WEIR_FAIL_FAST, .max_tasks = 8,
               .overflow = WEIR_REJECT) {
        for (int i = 0; i < 2; i++)
            CHECK_OK(weir_spawn(inner, churn, &edits.store, sizeof edits.store));
        for (unsigned round = 1; round <= (TEST_SLOW || test_emulated() ? 2 : EDIT_ROUNDS); round++)
            edit_all(&edits, round);
        weir_scope_cancel(inner, 0, "enough");
    }
    CHECK_OK(weir_store_close(edits.store));
}

/* ---- Jobs that follow ---- */

STORE_TEST(a_job_that_follows_and_is_too_large_says_so)
{
    static char large[64 * 1024];
    weir_store *store = store_stand_open(stand);
    weir_job_spec then = stand_job("mail", "x");
    weir_settlement one;
    weir_job job;

    (void)stand_enqueue(store, "mail", "x");
    CHECK_INT(stand_lease(store, "mail", &job), ==, 1);
    then.payload = large;
    then.payload_bytes = sizeof large;
    one = (weir_settlement){
        .id = job.id, .token = job.token, .how = WEIR_SETTLE_ACK, .then = &then, .then_count = 1};
    CHECK_INT(weir_job_settle(store, &one, 1), ==, 0);
    CHECK_INT(one.ret_error, ==, -EMSGSIZE);
    CHECK_CONTAINS(weir_why(), "bytes of payload");
    CHECK_INT(weir_job_payload(store, job.id, NULL, 0), ==, 1);
    CHECK_OK(weir_job_ack(store, job.id, job.token, NULL, 0));
    weir_job_free(&job);
    CHECK_OK(weir_store_close(store));
}

STORE_TEST(a_job_that_is_settled_still_has_its_unique_key)
{
    weir_store *store = store_stand_open(stand);
    weir_job_spec spec = stand_job("mail", "x");
    weir_enqueued enqueued;
    weir_settlement one;
    uint64_t id = 0;
    weir_job job;

    spec.unique_key = "only";
    CHECK_OK(weir_job_enqueue(store, &spec, &enqueued));
    CHECK_INT(stand_lease(store, "mail", &job), ==, 1);
    one = (weir_settlement){.id = job.id,
                            .token = job.token,
                            .how = WEIR_SETTLE_ACK,
                            .then = &spec,
                            .then_count = 1,
                            .ret_then_ids = &id};
    CHECK_INT(weir_job_settle(store, &one, 1), ==, 1);
    CHECK_INT(id, ==, job.id);
    CHECK_INT(stand_state(store, id), ==, WEIR_JOB_DONE);
    weir_job_free(&job);
    CHECK_OK(weir_store_close(store));
}

/* ---- The bound of the disk ---- */

STORE_TEST(a_disk_bound_is_no_end_while_there_is_something_to_let_go_of)
{
    static char payload[30000];
    weir_job_spec spec = stand_job("churn", "");
    weir_store *store;
    int done = 0;

    stand->spec.disk_bytes_max = 8 << 20;
    store = store_stand_open(stand);
    spec.payload = payload;
    spec.payload_bytes = sizeof payload;
    while (done < 300) {
        weir_enqueued enqueued;
        int r = weir_job_enqueue(store, &spec, &enqueued);

        if (r == -ENOSPC) {
            CHECK_OK(weir_yield());
            continue;
        }
        CHECK_OK(r);
        CHECK_OK(weir_job_cancel(store, enqueued.id));
        CHECK_OK(weir_job_purge(store, enqueued.id));
        done++;
    }
    /* One who asks again, since upkeep is told at once, gets room in the end. */
    CHECK_INT(done, ==, 300);
    CHECK_OK(weir_store_close(store));
}

/* jobs_dead_test.c - dead letters: list, inspect, edit, replay, purge; and many jobs at once. */
#include "unit/store/jobs_test.h"

static void fail_for_good(weir_store *store, uint64_t id)
{
    for (int attempt = 1; attempt <= 3; attempt++) {
        char message[32];
        uint64_t token;
        int state;

        JOBS_UNTIL(stand_state(store, id) == WEIR_JOB_READY);
        CHECK_INT(jobs_lease(store, "q", &token), ==, id);
        (void)snprintf(message, sizeof message, "attempt %d", attempt);
        state = weir_job_fail(store, id, token, "EDOM", message, -1);
        CHECK_INT(state, ==, attempt < 3 ? WEIR_JOB_SCHEDULED : WEIR_JOB_DEAD);
        jobs_pass_ms(10000);
    }
}

JOBS_TEST(a_job_that_has_used_up_its_attempts_is_a_dead_letter_with_all_its_errors)
{
    weir_store *store = stand->store;
    uint64_t id = jobs_enqueue(store, "q", .payload = "abc", .payload_bytes = 3), ids[4];
    weir_job_info info;

    fail_for_good(store, id);
    jobs_reopen(stand);
    store = stand->store;
    CHECK_INT(weir_dead_list(store, "q", 0, ids, 4), ==, 1);
    CHECK_INT(ids[0], ==, id);
    CHECK_INT(weir_dead_list(store, "q", id, ids, 4), ==, 0);
    CHECK_INT(weir_dead_list(store, "other", 0, ids, 4), ==, 0);
    CHECK_INT(weir_dead_list(store, NULL, 0, ids, 4), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "queue is not set");
    CHECK_OK(weir_job_get(store, id, &info));
    CHECK_INT(info.state, ==, WEIR_JOB_DEAD);
    CHECK_INT(info.attempt, ==, 3);
    CHECK_INT(info.run, ==, 3);
    CHECK_INT(info.error_count, ==, 3);
    for (unsigned i = 0; i < 3; i++) {
        char message[32];

        (void)snprintf(message, sizeof message, "attempt %u", i + 1);
        CHECK_INT(info.errors[i].run, ==, i + 1);
        CHECK_STR(info.errors[i].error_class, "EDOM");
        CHECK_STR(info.errors[i].message, message);
        CHECK_INT(info.errors[i].at_ms, ==, JOBS_START_MS + 10000 * i);
    }
    weir_job_info_free(&info);
}

/* With messages as long as they may be, so that the row with all of them still fits a record. */
JOBS_TEST(a_job_keeps_the_errors_of_its_last_64_attempts_whole)
{
    enum { ATTEMPTS = WEIR_JOB_ERRORS_KEPT + 6, BYTES = 1024 };
    uint64_t id = jobs_enqueue(stand->store, "q", .retry = {.attempts_max = ATTEMPTS});
    char message[BYTES + 1];
    weir_job_info info;

    for (unsigned attempt = 1; attempt <= ATTEMPTS; attempt++) {
        uint64_t token;

        JOBS_UNTIL(stand_state(stand->store, id) == WEIR_JOB_READY);
        CHECK_INT(jobs_lease(stand->store, "q", &token), ==, id);
        (void)snprintf(message, sizeof message, "%0*u", BYTES, attempt);
        CHECK_INT(weir_job_fail(stand->store, id, token, "EDOM", message, 0), >=, 0);
    }
    jobs_reopen(stand);
    CHECK_OK(weir_job_get(stand->store, id, &info));
    CHECK_INT(info.state, ==, WEIR_JOB_DEAD);
    CHECK_INT(info.error_count, ==, WEIR_JOB_ERRORS_KEPT);
    for (unsigned i = 0; i < WEIR_JOB_ERRORS_KEPT; i++) {
        (void)snprintf(message, sizeof message, "%0*u", BYTES, i + 7);
        CHECK_INT(info.errors[i].run, ==, i + 7);
        CHECK_STR(info.errors[i].message, message);
    }
    weir_job_info_free(&info);
    CHECK_INT(weir_dead_replay(stand->store, id, "x", 1), ==, WEIR_JOB_READY);
}

JOBS_TEST(a_dead_letter_is_replayed_as_it_is_or_edited)
{
    weir_store *store = stand->store;
    uint64_t id = jobs_enqueue(store, "q", .payload = "abc", .payload_bytes = 3);
    char bytes[16];
    weir_job job;

    CHECK_INT(weir_dead_replay(store, id, NULL, 0), ==, -EBUSY);
    CHECK_INT(weir_dead_replay(store, 999, NULL, 0), ==, -ENOENT);
    CHECK_INT(jobs_kill(store, "q", "bad"), ==, id);
    CHECK_OK(weir_dead_replay(store, id, NULL, 0));
    CHECK_INT(stand_lease(store, "q", &job), ==, 1);
    CHECK_INT(job.id, ==, id);
    CHECK_INT(job.attempt, ==, 1);
    CHECK_INT(job.run, ==, 2);
    CHECK_INT(job.payload_bytes, ==, 3);
    CHECK_INT(weir_job_fail(store, id, job.token, "never", "m", -1), ==, WEIR_JOB_SCHEDULED);
    weir_job_free(&job);
    jobs_pass_ms(10000);
    JOBS_UNTIL(stand_state(store, id) == WEIR_JOB_READY);
    CHECK_INT(jobs_kill(store, "q", "bad"), ==, id);
    CHECK_INT(weir_dead_replay(store, id, bytes, 1 << 20), ==, -EMSGSIZE);
    CHECK_OK(weir_dead_replay(store, id, "mended", 6));
    jobs_reopen(stand);
    store = stand->store;
    CHECK_INT(weir_job_payload(store, id, bytes, sizeof bytes), ==, 6);
    CHECK(memcmp(bytes, "mended", 6) == 0);
    CHECK_INT(jobs_work(store, "q"), ==, id);
    CHECK_INT(weir_dead_replay(store, id, NULL, 0), ==, -EBUSY);
}

JOBS_TEST(a_replay_is_refused_while_its_key_is_taken_and_not_for_depth)
{
    weir_store *store = stand->store;
    uint64_t id = jobs_enqueue(store, "q", .unique_key = "k");

    CHECK_INT(jobs_kill(store, "q", "bad"), ==, id);
    CHECK(jobs_enqueue(store, "q", .unique_key = "k") != id);
    CHECK_INT(weir_dead_replay(store, id, NULL, 0), ==, -EEXIST);
    CHECK(jobs_work(store, "q") != 0);
    CHECK_OK(weir_queue_set(
        store, &(weir_queue_spec){.name = "q", .depth_max = 1, .overflow = WEIR_REJECT}));
    (void)jobs_enqueue(store, "q");
    CHECK_INT(weir_dead_replay(store, id, NULL, 0), ==, WEIR_JOB_READY);
    CHECK_INT(jobs_queue(store, "q").by_state[WEIR_JOB_READY], ==, 2);
    CHECK_INT(jobs_try(store, "q", (weir_job_spec){0}), ==, WEIR_EOVERLOAD);
}

JOBS_TEST(what_has_ended_is_purged_and_nothing_else)
{
    weir_store *store = stand->store;
    uint64_t id = jobs_enqueue(store, "q");
    weir_job_info info;

    CHECK_INT(weir_job_purge(store, id), ==, -EBUSY);
    CHECK_INT(jobs_kill(store, "q", "bad"), ==, id);
    CHECK_OK(weir_job_purge(store, id));
    CHECK_INT(weir_job_purge(store, id), ==, -ENOENT);
    CHECK_INT(weir_job_get(store, id, &info), ==, -ENOENT);
    jobs_reopen(stand);
    CHECK_INT(weir_job_get(stand->store, id, &info), ==, -ENOENT);
}

JOBS_TEST(errors_of_some_classes_are_not_tried_again)
{
    uint64_t token, id;

    id = jobs_enqueue(
        stand->store, "q",
        .retry = {
            .attempts_max = 5, .backoff_ms = 1, .backoff_ms_max = 1, .never = {"EINVAL", "EPERM"}});
    CHECK_INT(jobs_lease(stand->store, "q", &token), ==, id);
    CHECK_INT(weir_job_fail(stand->store, id, token, "EPERM", "no", -1), ==, WEIR_JOB_DEAD);
}

JOBS_TEST(a_job_that_is_not_idempotent_is_refused_attempts_and_dies_with_its_lease)
{
    weir_store *store = stand->store;
    uint64_t id;
    weir_job_info info;

    CHECK_INT(jobs_try(store, "q",
                       (weir_job_spec){
                           .idempotent = WEIR_NO,
                           .retry = {.attempts_max = 2, .backoff_ms = 1, .backoff_ms_max = 1}}),
              ==, -EINVAL);
    CHECK_CONTAINS(weir_why(), "idempotent");
    id = jobs_enqueue(store, "q", .idempotent = WEIR_NO);
    CHECK_INT(jobs_lease(store, "q", NULL), ==, id);
    jobs_pass_ms(60001);
    JOBS_UNTIL(stand_state(store, id) == WEIR_JOB_DEAD);
    CHECK_OK(weir_job_get(store, id, &info));
    CHECK_INT(info.error_count, ==, 1);
    weir_job_info_free(&info);
    CHECK_INT(jobs_queue(store, "q").lost, ==, 1);
    CHECK_INT(jobs_queue(store, "q").died, ==, 1);
}

static void keep_dead_for_an_hour(struct jobs_stand *stand)
{
    stand->base.spec.dead_ms = 3600000;
    stand->base.spec.history_ms = 60000;
}

JOBS_TEST_WITH(what_has_ended_is_forgotten_in_time, keep_dead_for_an_hour, .hidden = false)
{
    weir_store *store = stand->store;
    uint64_t done = jobs_enqueue(store, "q"), dead;
    weir_job_info info;

    CHECK_INT(jobs_work(store, "q"), ==, done);
    dead = jobs_enqueue(store, "q");
    CHECK_INT(jobs_kill(store, "q", "bad"), ==, dead);
    jobs_pass_ms(59999);
    CHECK_INT(stand_state(store, done), ==, WEIR_JOB_DONE);
    jobs_pass_ms(2);
    JOBS_UNTIL(weir_job_get(store, done, &info) == -ENOENT || (weir_job_info_free(&info), false));
    CHECK_INT(stand_state(store, dead), ==, WEIR_JOB_DEAD);
    jobs_pass_ms(3600000);
    JOBS_UNTIL(weir_job_get(store, dead, &info) == -ENOENT || (weir_job_info_free(&info), false));
}

/* ---- Many at once ---- */

static weir_job_filter dead_letters(const char *queue)
{
    return (weir_job_filter){.queue = queue, .states = WEIR_JOB_STATE_BIT(WEIR_JOB_DEAD)};
}

static void kill_many(weir_store *store, int count)
{
    for (int i = 0; i < count; i++) {
        (void)jobs_enqueue(store, "q");
        (void)jobs_kill(store, "q", i % 2 ? "odd" : "even");
    }
}

static bool bulk_is_done(weir_store *store, uint64_t id, weir_bulk_info *ret_info)
{
    CHECK_INT(weir_bulk_list(store, ret_info, 1), ==, 1);
    CHECK_INT(ret_info->id, ==, id);
    CHECK_INT(ret_info->done, <=, ret_info->count);
    return ret_info->done == ret_info->count;
}

JOBS_TEST(many_dead_letters_are_replayed_by_a_filter_with_progress)
{
    weir_store *store = stand->store;
    weir_job_filter filter = dead_letters("q");
    weir_bulk_info info;
    uint64_t bulk;

    kill_many(store, 300);
    filter.error_class = "odd";
    CHECK_INT(weir_bulk_begin(store, &filter, WEIR_BULK_REPLAY, 149, &bulk), ==, -EEXIST);
    CHECK_CONTAINS(weir_why(), "150 jobs are found, and 149 were expected");
    CHECK_INT(weir_bulk_begin(store, &filter, WEIR_BULK_UNSET, 150, &bulk), ==, WEIR_EREFUSED);
    filter.states = 0;
    CHECK_INT(weir_bulk_begin(store, &filter, WEIR_BULK_REPLAY, 150, &bulk), ==, WEIR_EREFUSED);
    filter.states = WEIR_JOB_STATE_BIT(WEIR_JOB_DEAD);
    CHECK_INT(weir_bulk_begin(store, &filter, WEIR_BULK_REPLAY, 150, &bulk), ==, 150);
    JOBS_UNTIL(bulk_is_done(store, bulk, &info));
    CHECK_INT(info.action, ==, WEIR_BULK_REPLAY);
    CHECK_INT(info.failed, ==, 0);
    CHECK_INT(jobs_queue(store, "q").by_state[WEIR_JOB_READY], ==, 150);
    CHECK_INT(jobs_queue(store, "q").by_state[WEIR_JOB_DEAD], ==, 150);
    CHECK_OK(weir_bulk_drop(store, bulk));
    CHECK_INT(weir_bulk_drop(store, bulk), ==, -ENOENT);
    CHECK_INT(weir_bulk_list(store, &info, 1), ==, 0);
}

JOBS_TEST(a_set_of_jobs_is_frozen_and_goes_on_after_a_restart)
{
    weir_store *store = stand->store;
    weir_job_filter filter = dead_letters("q");
    weir_bulk_info info;
    uint64_t bulk, late;

    kill_many(store, 200);
    CHECK_INT(weir_bulk_begin(store, &filter, WEIR_BULK_PURGE, WEIR_BULK_ANY, &bulk), ==, 200);
    late = jobs_enqueue(store, "q");
    CHECK_INT(jobs_kill(store, "q", "late"), ==, late);
    jobs_reopen(stand);
    store = stand->store;
    JOBS_UNTIL(bulk_is_done(store, bulk, &info));
    CHECK_INT(info.count, ==, 200);
    CHECK_INT(jobs_queue(store, "q").by_state[WEIR_JOB_DEAD], ==, 1);
    CHECK_INT(stand_state(store, late), ==, WEIR_JOB_DEAD);
}

JOBS_TEST(many_jobs_are_cancelled_and_what_has_changed_meanwhile_is_counted)
{
    weir_store *store = stand->store;
    weir_job_filter filter = {
        .queue = "q", .states = WEIR_JOB_STATE_BIT(WEIR_JOB_READY), .kind = "work", .tags = "bulk"};
    weir_bulk_info info;
    uint64_t bulk, kept;

    for (int i = 0; i < 100; i++) (void)jobs_enqueue(store, "q", .tags = "bulk");
    kept = jobs_enqueue(store, "q", .tags = "user");
    CHECK_INT(weir_bulk_begin(store, &filter, WEIR_BULK_CANCEL, 100, &bulk), ==, 100);
    JOBS_UNTIL(bulk_is_done(store, bulk, &info));
    CHECK_INT(jobs_queue(store, "q").by_state[WEIR_JOB_CANCELLED], ==, 100);
    CHECK_INT(jobs_work(store, "q"), ==, kept);
}

JOBS_TEST(a_set_that_would_not_hold_all_jobs_is_refused)
{
    enum { COUNT = 40000 };
    static uint64_t ids[COUNT];
    weir_store *store = stand->store;
    weir_bulk_info info;
    uint64_t bulk = 7;

    for (uint64_t i = 0; i < COUNT; i++) ids[i] = (i + 1) << 35; /* far apart */
    CHECK_INT(weir_bulk_begin_ids(store, ids, COUNT, WEIR_BULK_CANCEL, &bulk), ==, -E2BIG);
    CHECK_CONTAINS(weir_why(), "of 40000 jobs ");
    CHECK_CONTAINS(weir_why(), "ids are far apart");
    CHECK_INT(bulk, ==, 7);
    CHECK_INT(weir_bulk_list(store, &info, 1), ==, 0);
    CHECK_INT(weir_bulk_begin_ids(store, ids, COUNT / 2, WEIR_BULK_CANCEL, &bulk), ==, COUNT / 2);
    CHECK_INT(weir_bulk_drop(store, bulk), ==, 0);
    jobs_reopen(stand);
    CHECK_INT(weir_bulk_list(stand->store, &info, 1), ==, 0);
}

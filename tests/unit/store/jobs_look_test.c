/* jobs_look_test.c - jobs as others see them: their life, lists, ends, batches, results. */
#include "unit/store/jobs_test.h"

JOBS_TEST(a_job_shows_all_that_was_said_of_it)
{
    uint64_t id = jobs_enqueue(stand->store, "mail", .kind = "welcome", .version = 3,
                               .payload = "abc", .payload_bytes = 3, .priority = 4,
                               .expires_ms = JOBS_START_MS + 90000, .tags = "a=1",
                               .unique_key = "u", .idempotency_key = "i", .idempotency_ms = 1000,
                               .fairness_key = "f", .order_key = "o", .limit_keys = {"l", "k"});

    for (int round = 0; round < 2; round++) {
        weir_job_info info;
        char bytes[2];

        CHECK_OK(weir_job_get(stand->store, id, &info));
        CHECK_INT(info.id, ==, id);
        CHECK_INT(info.state, ==, WEIR_JOB_READY);
        CHECK_STR(info.queue, "mail");
        CHECK_STR(info.kind, "welcome");
        CHECK_INT(info.version, ==, 3);
        CHECK_INT(info.priority, ==, 4);
        CHECK_INT(info.attempts_max, ==, 3);
        CHECK_INT(info.payload_bytes, ==, 3);
        CHECK_INT(info.created_ms, ==, JOBS_START_MS);
        CHECK_INT(info.expires_ms, ==, JOBS_START_MS + 90000);
        CHECK_STR(info.tags, "a=1");
        CHECK_STR(info.unique_key, "u");
        CHECK_STR(info.idempotency_key, "i");
        CHECK_STR(info.fairness_key, "f");
        CHECK_STR(info.order_key, "o");
        CHECK_STR(info.limit_keys[0], "k"); /* by name */
        CHECK_STR(info.limit_keys[1], "l");
        CHECK_STR(info.limit_keys[2], "");
        CHECK_INT(info.error_count, ==, 0);
        weir_job_info_free(&info);
        CHECK_INT(weir_job_payload(stand->store, id, bytes, 2), ==, 3);
        CHECK(memcmp(bytes, "ab", 2) == 0);
        jobs_reopen(stand);
    }
    weir_job_info_free(NULL);
    CHECK_STR(weir_job_state_name(WEIR_JOB_CANCELLED), "cancelled");
    CHECK_STR(weir_job_state_name((enum weir_job_state)77), "unknown");
}

JOBS_TEST(what_is_not_there_is_not_found_and_says_so)
{
    weir_store *store = stand->store;
    weir_job_info info;
    weir_renewed renewed;
    char bytes[8];

    CHECK_INT(weir_job_get(store, 99, &info), ==, -ENOENT);
    CHECK_CONTAINS(weir_why(), "there is no job 99");
    CHECK_INT(weir_job_payload(store, 99, bytes, 8), ==, -ENOENT);
    CHECK_INT(weir_job_result_read(store, 99, bytes, 8), ==, -ENOENT);
    CHECK_INT(weir_job_wait(store, 99), ==, -ENOENT);
    CHECK_INT(weir_job_cancel(store, 99), ==, -ENOENT);
    CHECK_INT(weir_job_ack(store, 99, 1, NULL, 0), ==, -ENOENT);
    CHECK_INT(weir_job_renew(store, 99, 1, "w", 1000, &renewed), ==, -ENOENT);
    CHECK_INT(weir_job_progress(store, 99, 1, 1), ==, -ENOENT);
    CHECK_INT(weir_batch_seal(store, 99), ==, -ENOENT);
    CHECK_INT(weir_schedule_drop(store, "s"), ==, -ENOENT);
}

JOBS_TEST(leases_that_say_too_little_or_too_much_are_refused)
{
    weir_store *store = stand->store;
    weir_job job;
    weir_renewed renewed;
    const struct {
        weir_lease_spec spec;
        const char *why;
    } rows[] = {
        {{.worker = "w", .count = 1, .lease_ms = 1}, "queue is not set"},
        {{.queue = "q", .count = 1, .lease_ms = 1}, "worker is not set"},
        {{.queue = "q", .worker = "w", .lease_ms = 1}, "count is 0, must be 1 to 1024"},
        {{.queue = "q", .worker = "w", .count = 1025, .lease_ms = 1}, "count is 1025"},
        {{.queue = "q", .worker = "w", .count = 1}, "lease_ms is 0"},
        {{.queue = "q", .worker = "w", .count = 1, .lease_ms = 1, .kind_count = 1},
         "kinds is NULL"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK_INT(weir_job_lease(store, &rows[i].spec, &job), ==, WEIR_EREFUSED);
        CHECK_CONTAINS(weir_why(), rows[i].why);
    }
    CHECK_INT(weir_job_renew(store, 1, 1, "w", 0, &renewed), ==, WEIR_EREFUSED);
    CHECK_INT(weir_worker_order(store, "w", WEIR_GO_CANCELLED), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "only WEIR_GO_QUIET and WEIR_GO_END");
}

JOBS_TEST(delayed_jobs_come_in_time_and_expired_ones_are_not_begun)
{
    weir_store *store = stand->store;
    uint64_t late = jobs_enqueue(store, "q", .delay_ms = 5000);
    uint64_t at = jobs_enqueue(store, "q", .run_at_ms = JOBS_START_MS + 3000);
    uint64_t stale = jobs_enqueue(store, "q", .delay_ms = 1000, .expires_ms = JOBS_START_MS + 1500);

    CHECK_INT(jobs_lease(store, "q", NULL), ==, 0);
    CHECK_INT(stand_state(store, stale), ==, WEIR_JOB_SCHEDULED);
    jobs_pass_ms(1000);
    JOBS_UNTIL(stand_state(store, stale) == WEIR_JOB_READY);
    jobs_pass_ms(500);
    JOBS_UNTIL(stand_state(store, stale) == WEIR_JOB_EXPIRED);
    jobs_pass_ms(1500);
    JOBS_UNTIL(stand_state(store, at) == WEIR_JOB_READY);
    CHECK_INT(jobs_work(store, "q"), ==, at);
    CHECK_INT(jobs_work(store, "q"), ==, 0);
    jobs_pass_ms(2000);
    JOBS_UNTIL(stand_state(store, late) == WEIR_JOB_READY);
    CHECK_INT(jobs_queue(store, "q").expired, ==, 1);
}

JOBS_TEST(a_lease_lasts_as_long_as_it_is_renewed_and_an_attempt_as_long_as_it_may)
{
    weir_store *store = stand->store;
    uint64_t id = jobs_enqueue(store, "q", .timeout_ms = 100000), token, old;
    weir_renewed renewed;

    CHECK_INT(jobs_lease(store, "q", &token), ==, id);
    jobs_pass_ms(50000);
    CHECK_OK(weir_job_renew(store, id, token, "w", 60000, &renewed));
    CHECK_INT(renewed.lease_until_ms, ==, JOBS_START_MS + 100000); /* not beyond its time */
    CHECK_OK(weir_job_progress(store, id, token, 42));
    jobs_pass_ms(49999);
    CHECK_INT(stand_state(store, id), ==, WEIR_JOB_LEASED);
    jobs_pass_ms(2);
    JOBS_UNTIL(stand_state(store, id) != WEIR_JOB_LEASED);
    CHECK_INT(weir_job_renew(store, id, token, "w", 60000, &renewed), ==, -ESTALE);
    CHECK_INT(weir_job_progress(store, id, token, 43), ==, -ESTALE);
    jobs_pass_ms(10000);
    JOBS_UNTIL(stand_state(store, id) == WEIR_JOB_READY);
    old = token;
    CHECK_INT(jobs_lease(store, "q", &token), ==, id);
    CHECK(token > old);
    CHECK_INT(jobs_queue(store, "q").lost, ==, 1);
}

/* Each by itself: one that is lost does not hold back the others. One commit for all. */
JOBS_TEST(many_leases_are_renewed_by_one_commit)
{
    enum { JOBS = WEIR_JOB_RENEW_MAX };
    weir_store *store = stand->store;
    weir_renewal renewals[JOBS + 1];
    weir_store_figures before, after;

    for (int i = 0; i < JOBS; i++) {
        renewals[i].id = jobs_enqueue(store, "q");
        CHECK_INT(jobs_lease(store, "q", &renewals[i].token), ==, renewals[i].id);
    }
    jobs_pass_ms(50000);
    CHECK_INT(weir_job_cancel(store, renewals[3].id), ==, WEIR_JOB_LEASED);
    CHECK_OK(weir_worker_order(store, "w", WEIR_GO_QUIET));
    CHECK_OK(weir_job_ack(store, renewals[7].id, renewals[7].token, NULL, 0));
    renewals[9].token++;
    weir_store_figures_of(store, &before);
    CHECK_INT(weir_job_renew_all(store, renewals, JOBS, "w", 60000), ==, JOBS - 2);
    weir_store_figures_of(store, &after);
    CHECK_INT(after.records - before.records, ==, 1);
    CHECK_INT(after.commits - before.commits, <=, 2); /* one of upkeep's may come between */
    for (int i = 0; i < JOBS; i++) {
        const weir_renewal *one = &renewals[i];

        CHECK_INT(one->ret_error, ==, i == 7 || i == 9 ? -ESTALE : 0);
        if (one->ret_error < 0) continue;
        CHECK_INT(one->ret_renewed.lease_until_ms, ==, JOBS_START_MS + 110000);
        CHECK_INT(one->ret_renewed.orders, ==, WEIR_GO_QUIET | (i == 3 ? WEIR_GO_CANCELLED : 0));
    }
    jobs_pass_ms(10001);
    JOBS_UNTIL(stand_state(store, renewals[9].id) != WEIR_JOB_LEASED);
    CHECK_INT(jobs_queue(store, "q").by_state[WEIR_JOB_LEASED], ==, JOBS - 2);
    CHECK_INT(weir_job_renew_all(store, renewals, JOBS + 1, "w", 60000), ==, WEIR_EREFUSED);
    CHECK_INT(weir_job_renew_all(store, renewals, 1, "w", 0), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "weir_job_renew_all: lease_ms is 0");
    CHECK_INT(weir_job_renew_all(store, renewals, 0, "w", 1000), ==, 0);
}

/* That it has not begun is its worker's word: a release is none of its attempts. */
JOBS_TEST(a_job_that_is_not_idempotent_is_begun_again_only_if_it_was_released)
{
    weir_store *store = stand->store;
    const weir_job_spec spec = {.queue = "q", .kind = "work", .version = 1, .idempotent = WEIR_NO};
    weir_enqueued enqueued;
    uint64_t token, old;

    CHECK_OK(weir_job_enqueue(store, &spec, &enqueued));
    CHECK_INT(jobs_lease(store, "q", &old), ==, enqueued.id);
    CHECK_OK(weir_job_release(store, enqueued.id, old, 0));
    CHECK_INT(jobs_lease(store, "q", &token), ==, enqueued.id);
    CHECK_INT(weir_job_release(store, enqueued.id, old, 0), ==, -ESTALE);
    CHECK_INT(weir_job_fail(store, enqueued.id, token, "flaw", "", 0), ==, WEIR_JOB_DEAD);
    CHECK_INT(jobs_lease(store, "q", NULL), ==, 0);
}

JOBS_TEST(progress_and_results_are_kept)
{
    weir_store *store = stand->store;
    uint64_t id = jobs_enqueue(store, "q"), token;
    weir_job_info info;
    char bytes[8];
    static char large[1 << 16];

    CHECK_INT(jobs_lease(store, "q", &token), ==, id);
    CHECK_OK(weir_job_progress(store, id, token, 42));
    jobs_reopen(stand);
    store = stand->store;
    CHECK_OK(weir_job_get(store, id, &info));
    CHECK_INT(info.progress, ==, 42);
    weir_job_info_free(&info);
    CHECK_INT(weir_job_result_read(store, id, bytes, 8), ==, 0);
    CHECK_INT(weir_job_ack(store, id, token, large, sizeof large), ==, -EMSGSIZE);
    CHECK_CONTAINS(weir_why(), "65536 bytes of result, at most 32768");
    CHECK_OK(weir_job_ack(store, id, token, "fine", 4));
    jobs_reopen(stand);
    CHECK_OK(weir_job_get(stand->store, id, &info));
    CHECK_INT(info.result_bytes, ==, 4);
    CHECK_INT(info.state, ==, WEIR_JOB_DONE);
    weir_job_info_free(&info);
    CHECK_INT(weir_job_result_read(stand->store, id, bytes, 8), ==, 4);
}

JOBS_TEST(a_job_is_cancelled_while_it_waits_and_told_while_it_runs)
{
    weir_store *store = stand->store;
    uint64_t id = jobs_enqueue(store, "q"), token;
    weir_renewed renewed;

    CHECK_INT(weir_job_cancel(store, id), ==, WEIR_JOB_CANCELLED);
    CHECK_INT(weir_job_cancel(store, id), ==, -EBUSY);
    CHECK_INT(jobs_lease(store, "q", NULL), ==, 0);
    id = jobs_enqueue(store, "q");
    CHECK_INT(jobs_lease(store, "q", &token), ==, id);
    CHECK_INT(weir_job_cancel(store, id), ==, WEIR_JOB_LEASED);
    CHECK_OK(weir_job_renew(store, id, token, "w", 1000, &renewed));
    CHECK_INT(renewed.orders, ==, WEIR_GO_CANCELLED);
    CHECK_INT(weir_job_fail(store, id, token, "cancelled", "", -1), ==, WEIR_JOB_CANCELLED);
    CHECK_INT(jobs_queue(store, "q").cancelled, ==, 2);
}

JOBS_TEST(a_snoozed_job_comes_back_and_its_attempt_does_not_count)
{
    weir_store *store = stand->store;
    uint64_t id = jobs_enqueue(store, "q"), token;
    weir_job job;

    CHECK_INT(jobs_lease(store, "q", &token), ==, id);
    CHECK_OK(weir_job_release(store, id, token, 5000));
    CHECK_INT(stand_state(store, id), ==, WEIR_JOB_SCHEDULED);
    jobs_pass_ms(5000);
    JOBS_UNTIL(stand_state(store, id) == WEIR_JOB_READY);
    CHECK_INT(stand_lease(store, "q", &job), ==, 1);
    CHECK_INT(job.attempt, ==, 1);
    CHECK_INT(job.run, ==, 2);
    weir_job_free(&job);
}

JOBS_TEST(jobs_of_kinds_that_nobody_knows_wait_and_are_counted)
{
    weir_store *store = stand->store;
    uint64_t old = jobs_enqueue(store, "q", .kind = "resize", .version = 1);
    uint64_t new = jobs_enqueue(store, "q", .kind = "resize", .version = 2);
    const weir_job_kind knows = {"resize", 1, 1}, knows_both = {"resize", 1, 2};
    weir_lease_spec spec = {.queue = "q",
                            .worker = "w",
                            .count = 8,
                            .lease_ms = 1000,
                            .at_once = true,
                            .kinds = &knows,
                            .kind_count = 1};
    weir_job jobs[8];

    CHECK_INT(jobs_queue(store, "q").unknown, ==, 2);
    CHECK_INT(weir_job_lease(store, &spec, jobs), ==, 1);
    CHECK_INT(jobs[0].id, ==, old);
    weir_job_free(&jobs[0]);
    CHECK_INT(jobs_queue(store, "q").unknown, ==, 1);
    CHECK_INT(weir_job_lease(store, &spec, jobs), ==, 0);
    spec.kinds = &knows_both;
    CHECK_INT(weir_job_lease(store, &spec, jobs), ==, 1);
    CHECK_INT(jobs[0].id, ==, new);
    CHECK_INT(jobs[0].version, ==, 2);
    weir_job_free(&jobs[0]);
    CHECK_INT(jobs_queue(store, "q").unknown, ==, 0);
}

/* ---- Waiting for the end ---- */

struct ender {
    weir_store *store;
    uint64_t id;
    int *state;
};

static int wait_end(void *arg)
{
    struct ender *ender = arg;

    *ender->state = weir_job_wait(ender->store, ender->id);
    return *ender->state < 0 ? *ender->state : 0;
}

JOBS_TEST(who_waits_for_a_job_is_told_how_it_ended)
{
    weir_store *store = stand->store;
    uint64_t id = jobs_enqueue(store, "q"), token;
    int states[2] = {0}, closed;

    WEIR_SCOPE(inner, &closed, .name = "enders", .on_failure = WEIR_FAIL_FAST, .max_tasks = 8,
               .overflow = WEIR_REJECT) {
        for (int i = 0; i < 2; i++) {
            struct ender ender = {store, id, &states[i]};

            CHECK_OK(weir_spawn(inner, wait_end, &ender, sizeof ender));
        }
        for (int i = 0; i < 20; i++) CHECK_OK(weir_yield());
        CHECK_INT(states[0], ==, 0);
        CHECK_INT(jobs_lease(store, "q", &token), ==, id);
        CHECK_OK(weir_job_ack(store, id, token, NULL, 0));
    }
    CHECK_OK(closed);
    CHECK_INT(states[0], ==, WEIR_JOB_DONE);
    CHECK_INT(states[1], ==, WEIR_JOB_DONE);
    CHECK_INT(weir_job_wait(store, id), ==, WEIR_JOB_DONE);
}

/* ---- Lists ---- */

JOBS_TEST(jobs_are_listed_by_a_filter_in_steps)
{
    weir_store *store = stand->store;
    weir_job_filter filter = {.queue = "q", .states = WEIR_JOB_STATE_BIT(WEIR_JOB_READY)};
    uint64_t ids[16], found = 0, sum = 0, wanted = 0;
    uint32_t cursor = 0, scanned;

    for (int i = 0; i < 100; i++) {
        uint64_t id = jobs_enqueue(store, "q", .tags = i % 4 ? "no" : "yes");

        if (i % 4 == 0) wanted += id;
        (void)jobs_enqueue(store, "other", .tags = "yes");
    }
    filter.tags = "yes";
    do {
        int n = weir_job_list(store, &filter, &cursor, 20, ids, 16, &scanned);

        CHECK_OK(n);
        CHECK_INT(scanned, <=, 20);
        found += (uint64_t)n;
        for (int i = 0; i < n; i++) sum += ids[i];
    } while (cursor != 0);
    CHECK_INT(found, ==, 25);
    CHECK_INT(sum, ==, wanted);
    filter.states = 0;
    CHECK_INT(weir_job_list(store, &filter, &cursor, 20, ids, 16, &scanned), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "states is not set");
}

/* ---- Batches ---- */

static uint64_t gatherer(weir_store *store, enum weir_gathers gathers)
{
    return jobs_enqueue(store, "gather", .gathers = gathers);
}

JOBS_TEST(a_batch_is_gathered_when_all_its_members_have_ended)
{
    weir_store *store = stand->store;
    uint64_t batch = gatherer(store, WEIR_WHEN_ENDED);
    weir_job_info info;

    for (int i = 0; i < 3; i++) (void)jobs_enqueue(store, "q", .batch = batch);
    CHECK(jobs_work(store, "q") != 0);
    (void)jobs_kill(store, "q", "bad");
    CHECK_INT(weir_batch_seal(store, batch), ==, WEIR_JOB_HELD);
    CHECK_INT(jobs_try(store, "q", (weir_job_spec){.batch = batch}), ==, -ENOENT);
    CHECK_CONTAINS(weir_why(), "sealed");
    jobs_reopen(stand);
    store = stand->store;
    CHECK_OK(weir_job_get(store, batch, &info));
    CHECK_INT(info.members, ==, 3);
    CHECK_INT(info.members_left, ==, 1);
    CHECK_INT(info.members_not_done, ==, 1);
    weir_job_info_free(&info);
    CHECK_INT(jobs_lease(store, "gather", NULL), ==, 0);
    CHECK(jobs_work(store, "q") != 0);
    CHECK_INT(jobs_work(store, "gather"), ==, batch);
}

JOBS_TEST(a_batch_that_must_be_done_is_a_dead_letter_when_a_member_is_not)
{
    weir_store *store = stand->store;
    uint64_t good = gatherer(store, WEIR_WHEN_DONE), bad = gatherer(store, WEIR_WHEN_DONE);

    (void)jobs_enqueue(store, "q", .batch = good);
    CHECK(jobs_work(store, "q") != 0);
    CHECK_INT(weir_batch_seal(store, good), ==, WEIR_JOB_READY);
    CHECK_INT(jobs_work(store, "gather"), ==, good);
    (void)jobs_enqueue(store, "q", .batch = bad);
    (void)jobs_kill(store, "q", "bad");
    CHECK_INT(weir_batch_seal(store, bad), ==, WEIR_JOB_DEAD);
    CHECK_INT(weir_batch_seal(store, bad), ==, -ENOENT);
    CHECK_CONTAINS(weir_why(), "sealed");
}

/* ---- Figures ---- */

JOBS_TEST(figures_of_a_store_count_what_happened)
{
    weir_store *store = stand->store;
    weir_store_figures before, after;

    weir_store_figures_of(store, &before);
    CHECK_INT(before.jobs, ==, 0);
    CHECK_INT(before.error, ==, 0);
    CHECK_INT(before.room_error, ==, 0);
    for (int i = 0; i < 10; i++) (void)jobs_enqueue(store, "q");
    weir_store_figures_of(store, &after);
    CHECK_INT(after.jobs, ==, 10);
    CHECK_INT(after.records, ==, before.records + 10);
    CHECK_INT(after.appended_bytes, >, before.appended_bytes);
    CHECK_INT(after.commits, >=, before.commits + 10);
    CHECK_INT(after.memory_bytes, >, before.memory_bytes);
    CHECK_INT(after.memory_bytes_max, ==, stand->base.spec.memory_bytes_max);
    CHECK_INT(after.disk_bytes, >, 0);
    CHECK_INT(after.clock_ahead_ms, ==, 0);
    jobs_reopen(stand);
    weir_store_figures_of(stand->store, &after);
    CHECK_INT(after.jobs, ==, 10);
    CHECK_INT(after.records_replayed, >=, 10);
    CHECK_INT(after.torn_bytes, ==, 0);
}

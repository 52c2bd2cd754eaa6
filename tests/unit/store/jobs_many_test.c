/* jobs_many_test.c - commits, heartbeats of a worker, sets of ids; and patches. */
#include "unit/store/jobs_test.h"

JOBS_TEST(a_commit_that_is_refused_has_changed_nothing)
{
    weir_store *store = stand->store;
    uint64_t token, id = jobs_enqueue(store, "q", .priority = 1);
    weir_job_spec jobs[3] = {stand_job("next", "a"), stand_job("next", "b"),
                             stand_job("next", "c")};
    weir_settlement one = {.how = WEIR_SETTLE_ACK};
    weir_enqueued enqueued[3];

    CHECK_INT(jobs_lease(store, "q", &token), ==, id);
    one.id = id;
    one.token = token;
    jobs[2].batch = 4711; /* there is none */
    CHECK_INT(weir_commit(store, &(weir_commit_spec){.jobs = jobs,
                                                     .job_count = 3,
                                                     .settlements = &one,
                                                     .settlement_count = 1,
                                                     .ret_enqueued = enqueued}),
              ==, -ENOENT);
    CHECK_INT(jobs_lease(store, "next", NULL), ==, 0);
    CHECK_INT(stand_state(store, id), ==, WEIR_JOB_LEASED);
    one.token = token + 1;
    CHECK_INT(weir_commit(store, &(weir_commit_spec){.jobs = jobs,
                                                     .job_count = 2,
                                                     .settlements = &one,
                                                     .settlement_count = 1}),
              ==, -ESTALE);
    CHECK_INT(one.ret_error, ==, -ESTALE);
    jobs_reopen(stand);
    CHECK_INT(jobs_lease(stand->store, "next", NULL), ==, 0);
    CHECK_INT(weir_commit(stand->store, &(weir_commit_spec){.job_count = 0}), ==, WEIR_EREFUSED);
}

JOBS_TEST(a_commit_is_there_as_a_whole_after_a_restart)
{
    weir_store *store = stand->store;
    uint64_t tokens[2],
        ids[2] = {jobs_enqueue(store, "q", .priority = 1), jobs_enqueue(store, "q", .priority = 1)};
    weir_job_spec jobs[2] = {stand_job("next", "a"), stand_job("next", "b")};
    weir_settlement settle[2] = {{.how = WEIR_SETTLE_ACK, .result = "r", .result_bytes = 1},
                                 {.how = WEIR_SETTLE_FAIL, .error_class = "c", .delay_ms = 5000}};
    weir_enqueued enqueued[2];

    jobs[1].delay_ms = 60000;
    for (int i = 0; i < 2; i++) {
        settle[i].id = jobs_lease(store, "q", &tokens[i]);
        settle[i].token = tokens[i];
        CHECK_INT(settle[i].id, ==, ids[i]);
    }
    CHECK_OK(weir_commit(store, &(weir_commit_spec){.jobs = jobs,
                                                    .job_count = 2,
                                                    .settlements = settle,
                                                    .settlement_count = 2,
                                                    .ret_enqueued = enqueued}));
    CHECK_INT(enqueued[0].durability, ==, WEIR_SYNCED);
    CHECK_INT(settle[0].ret_state, ==, WEIR_JOB_DONE);
    CHECK_INT(settle[1].ret_state, ==, WEIR_JOB_SCHEDULED);
    jobs_reopen(stand);
    store = stand->store;
    CHECK_INT(stand_state(store, ids[0]), ==, WEIR_JOB_DONE);
    CHECK_INT(stand_state(store, ids[1]), ==, WEIR_JOB_SCHEDULED);
    CHECK_INT(stand_state(store, enqueued[1].id), ==, WEIR_JOB_SCHEDULED);
    CHECK_INT(jobs_lease(store, "next", NULL), ==, enqueued[0].id);
}

JOBS_TEST(many_leases_are_renewed_and_each_says_what_became_of_it)
{
    weir_store *store = stand->store;
    weir_renewal renewals[3] = {{.id = 999, .token = 1}};

    (void)jobs_enqueue(store, "q", .priority = 1);
    (void)jobs_enqueue(store, "q", .priority = 1);
    for (int i = 1; i < 3; i++) renewals[i].id = jobs_lease(store, "q", &renewals[i].token);
    CHECK_OK(weir_worker_order(store, "w", WEIR_GO_QUIET));
    CHECK_INT(weir_job_cancel(store, renewals[2].id), ==, WEIR_JOB_LEASED);
    CHECK_INT(weir_job_renew_all(store, renewals, 3, "w", 120000), ==, 2);
    CHECK_INT(renewals[0].ret_error, ==, -ENOENT);
    CHECK_INT(renewals[1].ret_error, ==, 0);
    CHECK_INT(renewals[1].ret_renewed.lease_until_ms, ==, jobs_now_ms() + 120000);
    CHECK_INT(renewals[1].ret_renewed.orders, ==, WEIR_GO_QUIET);
    CHECK_INT(renewals[2].ret_renewed.orders, ==, WEIR_GO_QUIET | WEIR_GO_CANCELLED);
    CHECK_INT(weir_job_renew_all(store, renewals, 3, "w", 0), ==, WEIR_EREFUSED);
}

JOBS_TEST(a_patched_job_is_the_same_after_a_restart_with_its_errors_and_bytes)
{
    weir_store *store = stand->store;
    uint64_t token,
        id = jobs_enqueue(store, "q", .payload = "abc", .payload_bytes = 3, .limit_keys = {"k"},
                          .fairness_key = "f", .tags = "x y", .unique_key = "u");
    weir_job_patch patch = {.has_priority = true, .priority = 9, .has_expires = true};
    weir_job_info info;
    char bytes[8];

    CHECK_INT(jobs_lease(store, "q", &token), ==, id);
    CHECK_INT(weir_job_patch_set(store, id, &patch), ==, -EBUSY);
    CHECK_INT(weir_job_fail(store, id, token, "class", "message", 60000), ==, WEIR_JOB_SCHEDULED);
    patch.expires_ms = jobs_now_ms() + 3600000;
    CHECK_INT(weir_job_patch_set(store, id, &patch), ==, WEIR_JOB_SCHEDULED);
    for (int round = 0; round < 2; round++) {
        CHECK_OK(weir_job_get(stand->store, id, &info));
        CHECK_INT(info.priority, ==, 9);
        CHECK_INT(info.expires_ms, ==, patch.expires_ms);
        CHECK_INT(info.attempt, ==, 1);
        CHECK_INT(info.error_count, ==, 1);
        CHECK_STR(info.errors[0].message, "message");
        CHECK_STR(info.tags, "x y");
        CHECK_STR(info.unique_key, "u");
        weir_job_info_free(&info);
        CHECK_INT(weir_job_payload(stand->store, id, bytes, sizeof bytes), ==, 3);
        if (round == 0) jobs_reopen(stand);
    }
    store = stand->store;
    CHECK_INT(weir_job_patch_set(store, id, &(weir_job_patch){.has_run_at = true}), ==,
              WEIR_JOB_READY);
    CHECK_INT(jobs_lease(store, "q", NULL), ==, id);
    CHECK_INT(weir_job_patch_set(store, 999, &patch), ==, -ENOENT);
}

JOBS_TEST(a_patch_that_takes_a_job_from_a_limit_key_lets_the_next_one_go)
{
    weir_store *store = stand->store;
    uint64_t first, second;

    CHECK_OK(weir_key_set(store, &(weir_key_spec){.name = "k", .concurrency = 1}));
    first = jobs_enqueue(store, "q", .limit_keys = {"k"});
    second = jobs_enqueue(store, "q", .limit_keys = {"k"});
    CHECK_INT(stand_state(store, second), ==, WEIR_JOB_BLOCKED);
    CHECK_INT(
        weir_job_patch_set(
            store, first, &(weir_job_patch){.has_run_at = true, .run_at_ms = jobs_now_ms() + 5000}),
        ==, WEIR_JOB_SCHEDULED);
    CHECK_INT(stand_state(store, second), ==, WEIR_JOB_READY);
    /* One that only changes its priority does not stay behind its own key. */
    CHECK_INT(weir_job_patch_set(store, second, &(weir_job_patch){.has_priority = true}), ==,
              WEIR_JOB_READY);
    CHECK_INT(jobs_lease(store, "q", NULL), ==, second);
}

JOBS_TEST(a_set_of_ids_is_worked_off)
{
    weir_store *store = stand->store;
    uint64_t ids[3], bulk;

    for (int i = 0; i < 3; i++) ids[i] = jobs_enqueue(store, "q", .priority = 1);
    CHECK_INT(weir_bulk_begin_ids(store, (uint64_t[]){ids[2], ids[0]}, 2, WEIR_BULK_CANCEL, &bulk),
              ==, -EINVAL);
    CHECK_INT(weir_bulk_begin_ids(store, (uint64_t[]){ids[0], ids[2]}, 2, WEIR_BULK_CANCEL, &bulk),
              ==, 2);
    JOBS_UNTIL(stand_state(store, ids[2]) == WEIR_JOB_CANCELLED);
    CHECK_INT(stand_state(store, ids[0]), ==, WEIR_JOB_CANCELLED);
    CHECK_INT(stand_state(store, ids[1]), ==, WEIR_JOB_READY);
}

JOBS_TEST(jobs_are_counted_by_what_a_filter_can_say)
{
    weir_store *store = stand->store;
    weir_job_filter filter = {.states = 0x3fe};

    (void)jobs_enqueue(store, "mail", .tags = "eu,de", .priority = 3);
    jobs_pass_ms(1000);
    (void)jobs_enqueue(store, "mailer", .order_key = "o", .limit_keys = {"l"});
    CHECK_INT(weir_job_count(store, &filter), ==, 2);
    filter.queue = "mail";
    CHECK_INT(weir_job_count(store, &filter), ==, 1);
    filter.queue_prefix = true;
    CHECK_INT(weir_job_count(store, &filter), ==, 2);
    filter.tag = "de";
    CHECK_INT(weir_job_count(store, &filter), ==, 1);
    filter.tag = NULL;
    filter.key = "o";
    CHECK_INT(weir_job_count(store, &filter), ==, 1);
    filter.key = "l";
    CHECK_INT(weir_job_count(store, &filter), ==, 1);
    filter.key = NULL;
    filter.created_before_ms = jobs_now_ms();
    CHECK_INT(weir_job_count(store, &filter), ==, 1);
    filter.created_before_ms = 0;
    filter.created_from_ms = jobs_now_ms();
    CHECK_INT(weir_job_count(store, &filter), ==, 1);
    filter.created_from_ms = 0;
    filter.priority_min = 3;
    filter.priority_below = 4;
    CHECK_INT(weir_job_count(store, &filter), ==, 1);
    filter.id = 1;
    filter.attempts_min = 1;
    CHECK_INT(weir_job_count(store, &filter), ==, 0);
}

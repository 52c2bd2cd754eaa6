/* jobs_key_test.c - keys of jobs: limits, fairness, order, uniqueness, idempotency. */
#include "unit/store/jobs_test.h"

JOBS_TEST(a_limit_key_holds_in_all_queues)
{
    weir_store *store = stand->store;
    uint64_t first, second, token;
    weir_job_info info;

    CHECK_OK(weir_key_set(store, &(weir_key_spec){.name = "api", .concurrency = 1}));
    first = jobs_enqueue(store, "a", .limit_keys = {"api"});
    second = jobs_enqueue(store, "b", .limit_keys = {"api"});
    CHECK_INT(jobs_lease(store, "a", &token), ==, first);
    CHECK_INT(jobs_lease(store, "b", NULL), ==, 0);
    CHECK_OK(weir_job_get(store, second, &info));
    CHECK_INT(info.state, ==, WEIR_JOB_BLOCKED);
    CHECK_STR(info.blocked_on, "api");
    CHECK_STR(info.limit_keys[0], "api");
    CHECK_STR(info.limit_keys[1], "");
    weir_job_info_free(&info);
    CHECK_OK(weir_job_ack(store, first, token, NULL, 0));
    CHECK_INT(jobs_lease(store, "b", NULL), ==, second);
}

JOBS_TEST(a_blocked_key_does_not_hold_up_other_jobs)
{
    weir_store *store = stand->store;
    uint64_t free_one;

    CHECK_OK(weir_key_set(store, &(weir_key_spec){.name = "busy", .concurrency = 1}));
    for (int i = 0; i < 50; i++) (void)jobs_enqueue(store, "q", .limit_keys = {"busy"});
    free_one = jobs_enqueue(store, "q", .limit_keys = {"idle"});
    CHECK(jobs_lease(store, "q", NULL) != 0);
    CHECK_INT(jobs_lease(store, "q", NULL), ==, free_one);
    CHECK_INT(jobs_lease(store, "q", NULL), ==, 0);
    CHECK_INT(jobs_queue(store, "q").by_state[WEIR_JOB_BLOCKED], ==, 49);
}

JOBS_TEST(a_limit_key_has_a_rate)
{
    weir_store *store = stand->store;

    CHECK_OK(weir_key_set(
        store, &(weir_key_spec){.name = "api", .rate = {.count = 1, .period_ms = 1000}}));
    for (int i = 0; i < 3; i++) (void)jobs_enqueue(store, "q", .limit_keys = {"api"});
    CHECK(jobs_work(store, "q") != 0);
    CHECK_INT(jobs_work(store, "q"), ==, 0);
    jobs_pass_ms(1000);
    JOBS_UNTIL(jobs_work(store, "q") != 0);
    CHECK_INT(jobs_work(store, "q"), ==, 0);
}

JOBS_TEST(tenants_take_turns_by_their_weight)
{
    weir_store *store = stand->store;
    int turns[2] = {0};

    CHECK_OK(weir_key_set(store, &(weir_key_spec){.name = "big", .weight = 3}));
    for (int i = 0; i < 400; i++) (void)jobs_enqueue(store, "q", .fairness_key = "big");
    for (int i = 0; i < 400; i++) (void)jobs_enqueue(store, "q", .fairness_key = "small");
    for (int i = 0; i < 100; i++) {
        weir_job_info info;

        CHECK_OK(weir_job_get(store, jobs_work(store, "q"), &info));
        turns[strcmp(info.fairness_key, "big") == 0]++;
        weir_job_info_free(&info);
    }
    CHECK_INT(turns[1], ==, 75);
    CHECK_INT(turns[0], ==, 25);
}

JOBS_TEST(jobs_of_an_order_key_run_one_by_one_and_a_failed_one_blocks_only_its_key)
{
    weir_store *store = stand->store;
    uint64_t first = jobs_enqueue(store, "q", .order_key = "account 1");
    uint64_t second = jobs_enqueue(store, "q", .order_key = "account 1");
    uint64_t other = jobs_enqueue(store, "q", .order_key = "account 2");
    uint64_t token;

    CHECK_INT(jobs_lease(store, "q", &token), ==, first);
    CHECK_INT(stand_state(store, second), ==, WEIR_JOB_HELD);
    CHECK_INT(weir_job_fail(store, first, token, "E", "m", -1), ==, WEIR_JOB_SCHEDULED);
    CHECK_INT(jobs_work(store, "q"), ==, other);
    CHECK_INT(jobs_work(store, "q"), ==, 0);
    jobs_pass_ms(1000);
    JOBS_UNTIL(stand_state(store, first) == WEIR_JOB_READY);
    CHECK_INT(jobs_work(store, "q"), ==, first);
    CHECK_INT(jobs_work(store, "q"), ==, second);
}

JOBS_TEST(a_unique_key_is_held_by_one_job_until_it_has_ended)
{
    weir_store *store = stand->store;
    weir_job_spec spec = stand_job("q", "x");
    weir_enqueued first, second, third;

    spec.unique_key = "sync 7";
    CHECK_OK(weir_job_enqueue(store, &spec, &first));
    CHECK(!first.duplicate);
    CHECK_OK(weir_job_enqueue(store, &spec, &second));
    CHECK(second.duplicate);
    CHECK_INT(second.id, ==, first.id);
    CHECK_INT(second.durability, ==, WEIR_SYNCED);
    jobs_reopen(stand);
    store = stand->store;
    CHECK_OK(weir_job_enqueue(store, &spec, &second));
    CHECK(second.duplicate);
    CHECK_INT(jobs_work(store, "q"), ==, first.id);
    CHECK_OK(weir_job_enqueue(store, &spec, &third));
    CHECK(!third.duplicate);
    CHECK(third.id > first.id);
}

JOBS_TEST(a_unique_key_with_a_window_is_free_when_that_is_over)
{
    weir_store *store = stand->store;
    weir_job_spec spec = stand_job("q", "x");
    weir_enqueued first, second;

    spec.unique_key = "sync 7";
    spec.unique_ms = 5000;
    CHECK_OK(weir_job_enqueue(store, &spec, &first));
    jobs_pass_ms(4999);
    CHECK_OK(weir_job_enqueue(store, &spec, &second));
    CHECK(second.duplicate);
    jobs_pass_ms(1);
    CHECK_OK(weir_job_enqueue(store, &spec, &second));
    CHECK(!second.duplicate);
}

JOBS_TEST(an_idempotency_key_gives_the_same_job_within_its_window_also_after_its_end)
{
    weir_store *store = stand->store;
    weir_job_spec spec = stand_job("q", "x");
    weir_enqueued first, second;

    spec.idempotency_key = "request 1";
    CHECK_INT(weir_job_enqueue(store, &spec, &first), ==, -EINVAL);
    CHECK_CONTAINS(weir_why(), "the window of a key is missing");
    spec.idempotency_ms = 60000;
    CHECK_OK(weir_job_enqueue(store, &spec, &first));
    CHECK_INT(jobs_work(store, "q"), ==, first.id);
    jobs_reopen(stand);
    store = stand->store;
    CHECK_OK(weir_job_enqueue(store, &spec, &second));
    CHECK(second.duplicate);
    CHECK_INT(second.id, ==, first.id);
    CHECK_INT(jobs_work(store, "q"), ==, 0);
    jobs_pass_ms(60001);
    CHECK_OK(weir_job_enqueue(store, &spec, &second));
    CHECK(!second.duplicate);
}

JOBS_TEST(duplicates_within_one_call_are_one_job)
{
    weir_job_spec specs[2] = {stand_job("q", "x"), stand_job("q", "y")};
    weir_enqueued enqueued[2];

    specs[0].unique_key = specs[1].unique_key = "same";
    CHECK_OK(weir_job_enqueue_all(stand->store, specs, 2, enqueued));
    CHECK(!enqueued[0].duplicate && enqueued[1].duplicate);
    CHECK_INT(enqueued[0].id, ==, enqueued[1].id);
    CHECK_INT(jobs_queue(stand->store, "q").by_state[WEIR_JOB_READY], ==, 1);
}

JOBS_TEST(keys_that_are_too_long_or_contradict_are_refused_by_name)
{
    weir_store *store = stand->store;
    weir_job_spec spec = stand_job("q", "x");
    weir_enqueued enqueued;
    char name[WEIR_JOB_NAME_BYTES_MAX + 2];

    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    CHECK_INT(jobs_try(store, "q", (weir_job_spec){.unique_key = name}), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "unique_key has 201 bytes");
    CHECK_INT(jobs_try(store, "q", (weir_job_spec){.limit_keys = {"a", name}}), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "a limit key");
    CHECK_INT(jobs_try(store, "q",
                       (weir_job_spec){.unique_key = "k",
                                       .unique_states = WEIR_JOB_STATE_BIT(WEIR_JOB_READY)}),
              ==, -EINVAL);
    CHECK_CONTAINS(weir_why(), "unique_states");
    CHECK_INT(jobs_try(store, "q", (weir_job_spec){.run_at_ms = 1, .delay_ms = 1}), ==,
              WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "run_at_ms and delay_ms are both set");
    spec.run_at_ms = -5;
    CHECK_INT(weir_job_enqueue(store, &spec, &enqueued), ==, -EINVAL);
    CHECK_INT(weir_job_enqueue_all(store, &spec, 1, &enqueued), ==, -EINVAL);
    CHECK_CONTAINS(weir_why(), "run_at_ms is negative");
    CHECK_INT(jobs_try(store, "q", (weir_job_spec){.expires_ms = JOBS_START_MS - 1}), ==, -EINVAL);
    CHECK_CONTAINS(weir_why(), "expires_ms has passed");
    CHECK_INT(weir_key_set(store, &(weir_key_spec){.weight = 1}), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "key: name is not set");
}

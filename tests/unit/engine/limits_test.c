/* limits_test.c - keys, fairness, order, queues, kinds: who may go when. */
#include "unit/engine/helper.h"

static void set_key(struct engine *engine, const char *name, uint32_t concurrency, uint32_t weight)
{
    struct engine_key_spec spec = {
        .name = slice(name), .concurrency = concurrency, .weight = weight};
    CHECK_OK(engine_key_set(engine, T0, &spec));
}

TEST(a_limit_key_holds_over_queues_and_lets_the_next_one_in)
{
    struct engine *engine = helper_open();
    struct engine_job_spec spec = job_spec("a");
    struct engine_claimed one, two;
    uint64_t later;

    set_key(engine, "api", 1, 0);
    spec.limit_keys[0] = slice("api");
    spec.limit_key_count = 1;
    put(engine, T0, &spec);
    later = put(engine, T0, &spec);
    spec.queue = slice("b");
    put(engine, T0, &spec);
    CHECK_INT(state_of(engine, later), ==, ENGINE_BLOCKED);
    one = take(engine, T0, "a");
    CHECK_INT(take(engine, T0, "a").id, ==, 0);
    CHECK_INT(take(engine, T0, "b").id, ==, 0); /* a candidate, but b was too late */
    CHECK_OK(ack(engine, T0, &one));
    two = take(engine, T0, "b");
    CHECK_INT(two.id, >, 0);
    CHECK_INT(take(engine, T0, "a").id, ==, 0);
    CHECK_OK(ack(engine, T0, &two));
    CHECK_INT(take(engine, T0, "a").id, ==, later);
    check_engine(engine);
    engine_close(engine);
}

TEST(a_rate_gives_its_burst_and_then_one_for_each_part_of_its_period)
{
    struct engine *engine = helper_open();
    struct engine_job_spec spec = job_spec("q");
    struct engine_key_spec key = {.name = slice("api"), .rate = {3, 100, 2}};

    CHECK_OK(engine_key_set(engine, T0, &key));
    spec.limit_keys[0] = slice("api");
    spec.limit_key_count = 1;
    for (int i = 0; i < 4; i++) put(engine, T0, &spec);
    CHECK_INT(take(engine, T0, "q").id, ==, 1);
    CHECK_INT(take(engine, T0, "q").id, ==, 2);
    CHECK_INT(take(engine, T0, "q").id, ==, 0);
    CHECK_INT(engine_next_ms(engine), ==, T0 + 34); /* a third of 100, rounded up */
    engine_tick(engine, T0 + 33, SIZE_MAX);
    CHECK_INT(take(engine, T0 + 33, "q").id, ==, 0);
    engine_tick(engine, T0 + 34, SIZE_MAX);
    CHECK_INT(take(engine, T0 + 34, "q").id, ==, 3);
    engine_tick(engine, T0 + 66, SIZE_MAX);
    CHECK_INT(take(engine, T0 + 66, "q").id, ==, 0);
    engine_tick(engine, T0 + 67, SIZE_MAX);
    CHECK_INT(take(engine, T0 + 67, "q").id, ==, 4);
    engine_close(engine);
}

TEST(tenants_share_by_weight_whoever_came_first)
{
    struct engine *engine = helper_open();
    struct engine_job_spec spec = job_spec("q");
    int shares[2] = {0};

    set_key(engine, "big", 0, 3);
    for (int i = 0; i < 200; i++) {
        spec.fairness_key = slice(i < 100 ? "small" : "big");
        put(engine, T0, &spec);
    }
    for (int i = 0; i < 80; i++) shares[take(engine, T0, "q").id > 100]++;
    CHECK_INT(shares[0], ==, 20);
    CHECK_INT(shares[1], ==, 60);
    engine_close(engine);
}

TEST(a_tenant_with_many_kinds_gets_no_more_than_one_with_one)
{
    static const char *const kinds[] = {"a", "b", "c", "d"};
    struct engine *engine = helper_open();
    struct engine_job_spec spec = job_spec("q");
    int shares[2] = {0};

    for (int i = 0; i < 80; i++) {
        spec.fairness_key = slice(i < 40 ? "many" : "one");
        spec.kind = slice(kinds[i < 40 ? i % 4 : 0]);
        put(engine, T0, &spec);
    }
    for (int i = 0; i < 40; i++) shares[take(engine, T0, "q").id > 40]++;
    CHECK_INT(shares[0], ==, 20);
    engine_close(engine);
}

TEST(tenants_share_a_limit_key_fairly_too)
{
    struct engine *engine = helper_open();
    struct engine_job_spec spec = job_spec("q");
    int shares[2] = {0};

    set_key(engine, "api", 1, 0);
    spec.limit_keys[0] = slice("api");
    spec.limit_key_count = 1;
    for (int i = 0; i < 100; i++) {
        spec.fairness_key = slice(i < 90 ? "greedy" : "modest");
        put(engine, T0, &spec);
    }
    for (int i = 0; i < 20; i++) {
        struct engine_claimed claimed = take(engine, T0, "q");
        shares[claimed.id > 90]++;
        CHECK_OK(ack(engine, T0, &claimed));
    }
    CHECK_INT(shares[1], >=, 9);
    engine_close(engine);
}

TEST(a_failed_job_blocks_its_order_key_only)
{
    struct engine *engine = helper_open();
    struct engine_job_spec spec = job_spec("q");
    struct engine_claimed claimed;
    uint64_t ids[4];

    spec.idempotent = true;
    spec.retry = (struct engine_retry){.attempts_max = 2, .backoff_ms = 10, .backoff_ms_max = 10};
    for (int i = 0; i < 4; i++) {
        spec.order_key = slice(i < 2 ? "x" : "y");
        ids[i] = put(engine, T0, &spec);
    }
    claimed = take(engine, T0, "q");
    CHECK_INT(claimed.id, ==, ids[0]);
    CHECK_INT(fail(engine, T0, &claimed, "net"), ==, ENGINE_SCHEDULED);
    CHECK_INT(state_of(engine, ids[1]), ==, ENGINE_HELD);
    CHECK_INT(take(engine, T0, "q").id, ==, ids[2]);
    CHECK_INT(take(engine, T0, "q").id, ==, 0);
    engine_tick(engine, T0 + 10, SIZE_MAX);
    claimed = take(engine, T0 + 10, "q");
    CHECK_INT(claimed.id, ==, ids[0]);
    CHECK_INT(fail(engine, T0 + 10, &claimed, "net"), ==, ENGINE_DEAD);
    CHECK_INT(take(engine, T0 + 10, "q").id, ==, ids[1]);
    /* Replayed it waits for who is at work, then it is first. */
    CHECK_INT(engine_dead_replay(engine, T0 + 10, ids[0], NULL, slice("")), ==, ENGINE_HELD);
    engine_close(engine);
}

TEST(a_queue_is_bounded_paused_drained_and_limited)
{
    struct engine *engine = helper_open();
    struct engine_queue_spec queue = {
        .name = slice("q"), .overflow = ENGINE_REJECT, .depth_max = 2, .concurrency = 1};
    struct engine_job_spec spec = job_spec("q");
    struct engine_enqueued enqueued;
    struct engine_claimed claimed;
    struct engine_renewed renewed;

    CHECK_OK(engine_queue_set(engine, T0, &queue));
    put(engine, T0, &spec);
    put(engine, T0, &spec);
    CHECK_INT(engine_enqueue(engine, T0, &spec, &enqueued), ==, WEIR_EOVERLOAD);
    CHECK_CONTAINS(engine_why(engine), "'q'");
    claimed = take(engine, T0, "q");
    CHECK_INT(take(engine, T0, "q").id, ==, 0);
    queue.draining = true;
    queue.paused = true;
    CHECK_OK(engine_queue_set(engine, T0, &queue));
    CHECK_INT(engine_enqueue(engine, T0, &spec, &enqueued), ==, WEIR_ESTOPPING);
    CHECK_OK(engine_renew(engine, T0, claimed.id, claimed.token, 100, &renewed));
    CHECK_INT(renewed.orders, ==, ENGINE_GO_ON);
    CHECK_OK(ack(engine, T0, &claimed));
    CHECK_INT(take(engine, T0, "q").id, ==, 0);
    queue.paused = false;
    CHECK_OK(engine_queue_set(engine, T0, &queue));
    CHECK_INT(take(engine, T0, "q").id, ==, 2);
    queue.overflow = 0;
    CHECK_INT(engine_queue_set(engine, T0, &queue), ==, -EINVAL);
    engine_close(engine);
}

TEST(a_job_of_an_unknown_kind_waits_for_who_knows_it)
{
    struct engine *engine = helper_open();
    struct engine_kind kind = {slice("mail"), 1, 2};
    struct engine_claim_spec claim = {
        .queue = slice("q"), .kinds = &kind, .kind_count = 1, .count = 4, .lease_ms = 100};
    struct engine_job_spec spec = job_spec("q");
    struct engine_claimed claimed[4];
    struct engine_figures figures;

    spec.version = 3;
    put(engine, T0, &spec);
    spec.version = 2;
    put(engine, T0, &spec);
    CHECK_INT(engine_claim(engine, T0, &claim, claimed), ==, 1);
    CHECK_INT(claimed[0].id, ==, 2);
    CHECK_OK(engine_figures(engine, slice("q"), &figures));
    CHECK_INT(figures.unknown, ==, 1);
    kind.version_max = 3;
    CHECK_INT(engine_claim(engine, T0, &claim, claimed), ==, 1);
    CHECK_INT(claimed[0].version, ==, 3);
    CHECK_OK(engine_figures(engine, slice("q"), &figures));
    CHECK_INT(figures.unknown, ==, 0);
    engine_close(engine);
}

TEST(a_queue_is_woken_when_it_has_something_to_claim)
{
    struct engine *engine = helper_open();
    struct engine_job_spec spec = job_spec("q");
    struct engine_slice woken;

    CHECK(!engine_next_wake(engine, &woken));
    put(engine, T0, &spec);
    put(engine, T0, &spec);
    CHECK(engine_next_wake(engine, &woken));
    CHECK(woken.count == 1 && memcmp(woken.at, "q", 1) == 0);
    CHECK(!engine_next_wake(engine, &woken));
    spec.run_at_ms = T0 + 5;
    put(engine, T0, &spec);
    CHECK(!engine_next_wake(engine, &woken));
    engine_tick(engine, T0 + 5, SIZE_MAX);
    CHECK(engine_next_wake(engine, &woken));
    engine_close(engine);
}

TEST(at_the_memory_bound_new_work_is_refused_and_old_work_ends)
{
    struct engine_config config = helper_config;
    struct engine_job_spec spec = job_spec("q");
    struct engine_enqueued enqueued;
    struct engine *engine;
    int count = 0;
    int r;

    config.memory_bytes_max = 400000;
    CHECK_OK(engine_open(&config, &engine));
    while ((r = engine_enqueue(engine, T0, &spec, &enqueued)) == 0) {
        count++;
        engine_logged(engine, 1);
    }
    CHECK_INT(r, ==, -ENOBUFS);
    CHECK_INT(count, >, 100);
    for (int i = 0; i < count; i++) {
        struct engine_claimed claimed = take(engine, T0, "q");
        CHECK_OK(ack(engine, T0, &claimed));
        engine_logged(engine, 1);
    }
    CHECK_INT(take(engine, T0, "q").id, ==, 0);
    engine_close(engine);
}

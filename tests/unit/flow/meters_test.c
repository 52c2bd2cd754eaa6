/* meters_test.c - what channels, actors, pools, stages and pipelines measure. */
#include "flow/meters.h"

#include <sched.h>
#include <string.h>

#include "flow/chan.h"
#include "unit/flow/flow_test.h"
#include "watch/registry.h"

#define MS INT64_C(1000000)

static struct histogram seen;

static uint64_t value_of(const struct meter_kind *kind, const char *name, const char *second,
                         unsigned value)
{
    uint64_t values[METER_VALUES_MAX];
    meter_values(meter_get(kind, name, second), values);
    return values[value];
}

static void read_waits(const char *name)
{
    meter_read(meter_get(&chan_meter_kind, name, NULL), CHAN_WAIT, &seen);
}

static void check_near(uint64_t ns, int64_t expected_ns)
{
    CHECK_INT(ns, >=, expected_ns - expected_ns / 100);
    CHECK_INT(ns, <=, expected_ns + expected_ns / 100);
}

/* A test on one worker whose clock stands still. */
#define CLOCK_TEST(name_)                                                          \
    static int clock_body_##name_(void *arg);                                      \
    TEST(name_)                                                                    \
    {                                                                              \
        test_clock_manual();                                                       \
        CHECK_OK(weir_run(&(weir_config){.workers = 1, .log_level = WEIR_LOG_OFF}, \
                          clock_body_##name_, NULL));                              \
    }                                                                              \
    static int clock_body_##name_(__attribute__((unused)) void *arg)

/* ---- Channels ---- */

static weir_chan_spec waiting(const char *name, size_t capacity)
{
    return (weir_chan_spec){
        .name = name, .capacity = capacity, .overflow = WEIR_WAIT, .on_close = WEIR_DRAIN};
}

CLOCK_TEST(channel_measures_the_wait_of_one_item_in_64)
{
    weir_chan_spec spec = waiting("orders", 1000);
    int result, item = 0;
    int_tx tx;
    int_rx rx;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_chan_open(scope, &spec, &tx, &rx));
        for (int round = 0; round < 3; round++) {
            for (int i = 0; i < CHAN_SAMPLE_EVERY; i++) CHECK_OK(weir_try_send(tx, &item));
            test_clock_advance_ms(20);
            for (int i = 0; i < CHAN_SAMPLE_EVERY; i++) CHECK_OK(weir_try_recv(rx, &item));
        }
        read_waits("orders");
        CHECK_INT(seen.count, ==, 3);
        CHECK_INT(seen.sum, ==, 60 * MS);
        check_near(histogram_quantile(&seen, 0.5), 20 * MS);
        /* Only one at a time: of 128 more that wait together the first is measured. */
        for (int i = 0; i < 2 * CHAN_SAMPLE_EVERY; i++) CHECK_OK(weir_try_send(tx, &item));
        test_clock_advance_ms(40);
        for (int i = 0; i < 2 * CHAN_SAMPLE_EVERY; i++) CHECK_OK(weir_try_recv(rx, &item));
        read_waits("orders");
        CHECK_INT(seen.count, ==, 4);
        CHECK_INT(seen.max, ==, 40 * MS);
    }
    return result;
}

CLOCK_TEST(channel_does_not_measure_what_it_drops)
{
    weir_chan_spec spec = waiting("latest", 1);
    int result, item = 0;
    int_tx tx;
    int_rx rx;

    spec.overflow = WEIR_DROP_OLDEST;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_chan_open(scope, &spec, &tx, &rx));
        for (int i = 0; i < CHAN_SAMPLE_EVERY + 1; i++) CHECK_OK(weir_try_send(tx, &item));
        CHECK_INT(weir_try_recv(rx, &item), ==, 1);
        read_waits("latest");
        CHECK_INT(seen.count, ==, 0);
        /* The next one is measured again. */
        for (int i = 0; i < CHAN_SAMPLE_EVERY - 1; i++) CHECK_OK(weir_try_send(tx, &item));
        test_clock_advance_ms(7);
        CHECK_INT(weir_try_recv(rx, &item), ==, 1);
        read_waits("latest");
        CHECK_INT(seen.count, ==, 1);
        CHECK_INT(seen.sum, ==, 7 * MS);
    }
    return result;
}

struct flow {
    int_tx tx;
    int_rx rx;
    int count;
};

static int send_many(void *arg)
{
    struct flow *flow = arg;
    for (int i = 0; i < flow->count; i++) CHECK_OK(weir_send(flow->tx, &i));
    return 0;
}

static int receive_many(void *arg)
{
    struct flow *flow = arg;
    int item;
    for (int i = 0; i < flow->count; i++) CHECK_OK(weir_recv(flow->rx, &item));
    return 0;
}

CLOCK_TEST(rendezvous_measures_how_long_senders_wait)
{
    weir_chan_spec spec = waiting("meet", WEIR_RENDEZVOUS);
    int result, item = 0;
    struct flow flow = {.count = 2 * CHAN_SAMPLE_EVERY};

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_chan_open(scope, &spec, &flow.tx, &flow.rx));
        CHECK_OK(weir_spawn(scope, send_many, &flow, sizeof flow));
        for (int i = 0; i < flow.count; i++) {
            CHECK_OK(weir_yield()); /* it has parked */
            test_clock_advance_ms(3);
            CHECK_OK(weir_recv(flow.rx, &item));
        }
        read_waits("meet");
        CHECK_INT(seen.count, ==, 2);
        CHECK_INT(seen.sum, ==, 6 * MS);
    }
    return result;
}

CLOCK_TEST(channel_measures_from_the_send_also_if_the_sender_had_to_wait)
{
    weir_chan_spec spec = waiting("full", 1);
    int result, item = 0;
    struct flow flow = {.count = CHAN_SAMPLE_EVERY + 1};

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_chan_open(scope, &spec, &flow.tx, &flow.rx));
        CHECK_OK(weir_spawn(scope, send_many, &flow, sizeof flow));
        CHECK_OK(weir_yield()); /* one is stored, the second waits */
        for (int i = 0; i < flow.count; i++) {
            test_clock_advance_ms(2);
            CHECK_OK(weir_recv(flow.rx, &item));
            CHECK_OK(weir_yield());
        }
        read_waits("full");
        /* The 64th item: 2 ms before it was stored and 2 after. */
        CHECK_INT(seen.count, ==, 1);
        CHECK_INT(seen.sum, ==, 4 * MS);
    }
    return result;
}

CLOCK_TEST(what_is_handed_to_a_waiting_receiver_has_not_waited)
{
    weir_chan_spec spec = waiting("direct", 8);
    struct flow flow = {.count = CHAN_SAMPLE_EVERY};
    int result;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_chan_open(scope, &spec, &flow.tx, &flow.rx));
        CHECK_OK(weir_spawn(scope, receive_many, &flow, sizeof flow));
        CHECK_OK(weir_yield());
        for (int i = 0; i < flow.count; i++) {
            test_clock_advance_ms(1);
            CHECK_OK(weir_send(flow.tx, &i));
            CHECK_OK(weir_yield());
        }
        read_waits("direct");
        CHECK_INT(seen.count, ==, 1);
        CHECK_INT(seen.max, ==, 0);
    }
    return result;
}

static int wait_for_nothing(void *arg)
{
    struct flow *flow = arg;
    int item;
    WEIR_DEADLINE(10) { CHECK_INT(weir_recv(flow->rx, &item), ==, WEIR_ETIMEDOUT); }
    WEIR_DEADLINE(10) {
        WEIR_DEADLINE(60000) { CHECK_INT(weir_recv(flow->rx, &item), ==, WEIR_ECANCELED); }
    }
    CHECK_OK(weir_try_send(flow->tx, &item));
    WEIR_DEADLINE(10) { CHECK_INT(weir_send(flow->tx, &item), ==, WEIR_ETIMEDOUT); }
    return 0;
}

static int timeouts_are_counted(void *arg)
{
    weir_chan_spec spec = waiting("slow", 1);
    struct flow flow;
    int result, item;

    (void)arg;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_chan_open(scope, &spec, &flow.tx, &flow.rx));
        CHECK_OK(wait_for_nothing(&flow));
        CHECK_INT(value_of(&chan_meter_kind, "slow", NULL, CHAN_TIMEOUTS), ==, 3);
        /* A cancel is none. */
        CHECK_INT(weir_try_recv(flow.rx, &item), ==, 1);
        CHECK_OK(weir_spawn(scope, receive_many, &flow, sizeof flow));
        CHECK_OK(weir_yield());
        weir_scope_cancel(scope, 0, "enough");
    }
    CHECK_INT(value_of(&chan_meter_kind, "slow", NULL, CHAN_TIMEOUTS), ==, 3);
    return result == WEIR_ECANCELED ? 0 : result;
}

TEST(waits_that_a_deadline_ends_are_counted_as_timeouts)
{
    test_clock_auto();
    CHECK_OK(weir_run(&(weir_config){.workers = 1, .log_level = WEIR_LOG_OFF}, timeouts_are_counted,
                      NULL));
}

enum { REQUESTS = 64, ITEMS = 100 };

static int handle_request(void *arg)
{
    weir_chan_spec spec = waiting("reply", 4);
    struct flow flow = {.count = ITEMS};
    int result;

    (void)arg;
    FLOW_SCOPE_ANYWHERE(scope, &result)
    {
        CHECK_OK(weir_chan_open(scope, &spec, &flow.tx, &flow.rx));
        CHECK_OK(weir_spawn(scope, receive_many, &flow, sizeof flow));
        CHECK_OK(send_many(&flow));
    }
    return result;
}

FLOW_TEST(channels_of_many_requests_are_one_series_and_nothing_is_lost)
{
    uint64_t before = 0;
    int result;

    FLOW_SCOPE_ANYWHERE(scope, &result)
    {
        for (int i = 0; i < REQUESTS; i++) CHECK_OK(weir_spawn(scope, handle_request, NULL, 0));
        while (weir_scope_task_count(scope) > 0) {
            uint64_t now = value_of(&chan_meter_kind, "reply", NULL, CHAN_ACCEPTED);
            CHECK_INT(now, >=, before); /* a counter never goes back, also while some end */
            before = now;
            CHECK_OK(weir_yield());
        }
    }
    CHECK_INT(value_of(&chan_meter_kind, "reply", NULL, CHAN_ACCEPTED), ==, REQUESTS * ITEMS);
    CHECK_INT(value_of(&chan_meter_kind, "reply", NULL, CHAN_RECEIVED), ==, REQUESTS * ITEMS);
    CHECK_INT(value_of(&chan_meter_kind, "reply", NULL, CHAN_OPEN), ==, 0);
    CHECK_INT(value_of(&chan_meter_kind, "reply", NULL, CHAN_DEPTH_MAX), <=, 4);
    read_waits("reply");
    CHECK_INT(seen.count, >=, REQUESTS);
    CHECK_INT(seen.count, <=, REQUESTS * (ITEMS / CHAN_SAMPLE_EVERY + 2));
    return result;
}

/* ---- Actors ---- */

enum { QUICK, SLOW, FATAL };

static int act(void *state, const void *message, void *reply, void *keep_arg)
{
    (void)state, (void)reply, (void)keep_arg;
    test_clock_advance_ms(3);
    if (*(const int *)message == SLOW) return weir_sleep(60000);
    return *(const int *)message == FATAL ? -1 : 0;
}

CLOCK_TEST(actor_measures_wait_and_run_of_one_message_in_64)
{
    static const weir_actor_spec spec = {.name = "clerk",
                                         .mailbox_max = 100,
                                         .overflow = WEIR_REJECT,
                                         .on_restart = WEIR_RESTART_NEVER,
                                         .on_message = act,
                                         .message_bytes = sizeof(int),
                                         .latency_ms = 20};
    int result, inner = 0, quick = QUICK, slow = SLOW, fatal = FATAL;
    weir_actor *actor;

    FLOW_SCOPE(scope, &result)
    {
        FLOW_SCOPE(office, &inner)
        {
            CHECK_OK(weir_actor_open(office, &spec, &actor));
            for (int i = 0; i < 65; i++) CHECK_OK(weir_actor_cast(actor, &quick));
            test_clock_advance_ms(10);
            CHECK_OK(weir_actor_call(actor, &quick, NULL)); /* all of them were handled */
            meter_read(meter_get(&actor_meter_kind, "clerk", NULL), ACTOR_WAIT, &seen);
            CHECK_INT(seen.count, ==, 2);
            check_near(seen.max, (10 + 64 * 3) * MS);
            meter_read(meter_get(&actor_meter_kind, "clerk", NULL), ACTOR_RUN, &seen);
            CHECK_INT(seen.count, ==, 2);
            check_near(seen.max, 3 * MS);
            CHECK_INT(value_of(&actor_meter_kind, "clerk", NULL, ACTOR_DEPTH_MAX), ==, 66);
            CHECK_INT(value_of(&actor_meter_kind, "clerk", NULL, ACTOR_LATENCY_TARGET), ==, 20);
            WEIR_DEADLINE(1) { CHECK_INT(weir_actor_call(actor, &slow, NULL), <, 0); }
            weir_actor_stop(actor, WEIR_DISCARD);
        }
        CHECK_INT(value_of(&actor_meter_kind, "clerk", NULL, ACTOR_TIMEOUTS), ==, 1);
        CHECK_INT(value_of(&actor_meter_kind, "clerk", NULL, ACTOR_HANDLED), ==, 66);
        FLOW_SCOPE(office, &inner)
        {
            CHECK_OK(weir_actor_open(office, &spec, &actor));
            CHECK_INT(weir_actor_call(actor, &fatal, NULL), ==, WEIR_ECRASHED);
        }
        /* What has ended is still counted. */
        CHECK_INT(value_of(&actor_meter_kind, "clerk", NULL, ACTOR_CRASHED), >=, 1);
        CHECK_INT(value_of(&actor_meter_kind, "clerk", NULL, ACTOR_HANDLED), ==, 66);
        CHECK_INT(value_of(&actor_meter_kind, "clerk", NULL, ACTOR_DEPTH), ==, 0);
    }
    return result;
}

/* ---- Pools ---- */

static const weir_pool_class classes[] = {
    {.name = "user", .weight = 4, .queue_max = 64, .latency_ms = 250},
    {.name = "bulk", .weight = 1, .queue_max = 64}};
static const weir_pool_spec one_thread = {.name = "pool",
                                          .threads_max = 1,
                                          .overflow = WEIR_REJECT,
                                          .on_close = WEIR_DRAIN,
                                          .classes = classes,
                                          .class_count = 2};

static int work_two_ms(void *data)
{
    int64_t until_ns = weir_now_ns() + 2 * MS;
    (void)data;
    while (weir_now_ns() < until_ns) (void)sched_yield();
    return 0;
}

struct pool_call {
    weir_pool *pool;
    unsigned class_index;
};

static int call_pool(void *arg)
{
    const struct pool_call *call = arg;
    return weir_pool_run(call->pool, call->class_index, work_two_ms, NULL, 0);
}

FLOW_TEST(pool_measures_wait_and_run_of_every_job_by_class)
{
    struct pool_call call = {.class_index = 0};
    int result;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_pool_open(scope, &one_thread, &call.pool));
        FLOW_SCOPE(callers, &result)
        {
            for (int i = 0; i < 10; i++)
                CHECK_OK(weir_spawn(callers, call_pool, &call, sizeof call));
        }
        CHECK_OK(result);
        call.class_index = 1;
        CHECK_OK(call_pool(&call));
        meter_read(meter_get(&pool_class_meter_kind, "pool", "user"), POOL_RUN, &seen);
        CHECK_INT(seen.count, ==, 10);
        CHECK_INT(histogram_quantile(&seen, 0), >=, 2 * MS - 2 * MS / 100);
        meter_read(meter_get(&pool_class_meter_kind, "pool", "user"), POOL_WAIT, &seen);
        CHECK_INT(seen.count, ==, 10);
        CHECK_INT(seen.max, >=, 4 * MS); /* some wait for several of 2 ms */
        meter_read(meter_get(&pool_class_meter_kind, "pool", "bulk"), POOL_RUN, &seen);
        CHECK_INT(seen.count, ==, 1);
        CHECK_INT(value_of(&pool_class_meter_kind, "pool", "user", POOL_FINISHED), ==, 10);
        CHECK_INT(value_of(&pool_class_meter_kind, "pool", "user", POOL_LATENCY_TARGET), ==, 250);
        CHECK_INT(value_of(&pool_meter_kind, "pool", NULL, POOL_THREADS_MAX), ==, 1);
    }
    CHECK_INT(value_of(&pool_class_meter_kind, "pool", "user", POOL_FINISHED), ==, 10);
    CHECK_INT(value_of(&pool_meter_kind, "pool", NULL, POOL_THREADS), ==, 0);
    return result;
}

static int work_until_told(void *data)
{
    (void)data;
    while (!weir_pool_told()) (void)sched_yield();
    return 0;
}

FLOW_TEST(pool_counts_callers_that_a_deadline_ends)
{
    weir_pool *pool;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_pool_open(scope, &one_thread, &pool));
        WEIR_DEADLINE(5) {
            CHECK_INT(weir_pool_run(pool, 1, work_until_told, NULL, 0), ==, WEIR_ETIMEDOUT);
        }
        CHECK_INT(value_of(&pool_class_meter_kind, "pool", "bulk", POOL_TIMEOUTS), ==, 1);
    }
    return result;
}

FLOW_TEST(pool_class_refuses_a_negative_latency)
{
    static const weir_pool_class wrong[] = {
        {.name = "c", .weight = 1, .queue_max = 1, .latency_ms = -1}};
    weir_pool_spec spec = one_thread;
    weir_pool *pool;
    int result;

    spec.classes = wrong;
    spec.class_count = 1;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_INT(weir_pool_open(scope, &spec, &pool), ==, WEIR_EREFUSED);
        CHECK_CONTAINS(weir_why(), "latency_ms of class 'c'");
    }
    return result;
}

/* ---- Stages and pipelines ---- */

FLOW_TEST(stage_meter_has_every_item)
{
    struct meter *meter;
    uint64_t values[METER_VALUES_MAX];
    struct stage_meter stage;

    stage_meter_open(&stage, "parse", 30);
    meter = stage.metered.meter;
    for (int i = 0; i < 10; i++) stage_item_queued(&stage);
    for (int i = 0; i < 8; i++) {
        stage_item_begun(&stage, 5 * MS);
        stage_item_ended(&stage, i * MS, i == 7 ? WEIR_ETIMEDOUT : 0);
    }
    stage_item_removed(&stage);
    stage_item_rejected(&stage, STAGE_REJECTED_FULL);
    stage_item_rejected(&stage, STAGE_REJECTED_BREAKER);
    stage_item_rejected(&stage, STAGE_REJECTED_BREAKER);
    meter_values(meter, values);
    CHECK_INT(values[STAGE_DEPTH], ==, 1);
    CHECK_INT(values[STAGE_DEPTH_MAX], ==, 10);
    CHECK_INT(values[STAGE_FINISHED], ==, 7);
    CHECK_INT(values[STAGE_FAILED], ==, 1);
    CHECK_INT(values[STAGE_TIMEOUTS], ==, 1);
    CHECK_INT(values[STAGE_REJECTED + STAGE_REJECTED_FULL], ==, 1);
    CHECK_INT(values[STAGE_REJECTED + STAGE_REJECTED_BREAKER], ==, 2);
    CHECK_INT(values[STAGE_LATENCY_TARGET], ==, 30);
    meter_read(meter, STAGE_WAIT, &seen);
    CHECK_INT(seen.count, ==, 8);
    check_near(histogram_quantile(&seen, 0.99), 5 * MS);
    meter_read(meter, STAGE_RUN, &seen);
    CHECK_INT(seen.sum, ==, 28 * MS);
    stage_meter_close(&stage);
    meter_values(meter, values);
    CHECK_INT(values[STAGE_DEPTH], ==, 0);
    CHECK_INT(values[STAGE_FINISHED], ==, 7);
    return 0;
}

FLOW_TEST(pipeline_meter_measures_from_end_to_end)
{
    struct meter *meter;
    uint64_t values[METER_VALUES_MAX];
    struct pipeline_meter pipeline;

    pipeline_meter_open(&pipeline, "orders", 100);
    meter = pipeline.metered.meter;
    pipeline_item_ended(&pipeline, 80 * MS, 0, false);
    pipeline_item_ended(&pipeline, 90 * MS, 0, true);
    pipeline_item_ended(&pipeline, 200 * MS, WEIR_ETIMEDOUT, false);
    meter_values(meter, values);
    CHECK_INT(values[PIPELINE_FINISHED], ==, 2);
    CHECK_INT(values[PIPELINE_FAILED], ==, 1);
    CHECK_INT(values[PIPELINE_PARTIAL], ==, 1);
    CHECK_INT(values[PIPELINE_TIMEOUTS], ==, 1);
    meter_read(meter, PIPELINE_LATENCY, &seen);
    CHECK_INT(seen.max, ==, 200 * MS);
    pipeline_meter_close(&pipeline);
    return 0;
}

static int pass_through(void *item, void *keep_arg)
{
    (void)item, (void)keep_arg;
    return 0;
}

static void note_lost(void *item, const weir_lost *lost, void *keep_arg)
{
    (void)item, (void)lost, (void)keep_arg;
}

FLOW_TEST(a_pipeline_measures_its_stages_and_itself)
{
    static const weir_stage_spec stages[] = {{.name = "only",
                                              .fn = pass_through,
                                              .concurrency = 1,
                                              .queue_max = 4,
                                              .overflow = WEIR_REJECT,
                                              .timeout_ms = 20000,
                                              .latency_ms = 10,
                                              .on_failure = WEIR_STAGE_FAIL}};
    static const weir_pipeline_spec spec = {.name = "line",
                                            .item_bytes = sizeof(int),
                                            .budget_ms = 60000,
                                            .stages = stages,
                                            .stage_count = 1,
                                            .on_lost = note_lost};
    weir_pipeline *pipeline;
    int result, item = 1, calls = 0;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_pipeline_open(scope, &spec, &pipeline));
        for (; calls < 20; calls++) CHECK_OK(weir_pipeline_call(pipeline, &item, NULL));
    }
    meter_read(meter_get(&stage_meter_kind, "only", NULL), STAGE_WAIT, &seen);
    CHECK_INT(seen.count, ==, 20);
    meter_read(meter_get(&stage_meter_kind, "only", NULL), STAGE_RUN, &seen);
    CHECK_INT(seen.count, ==, 20);
    meter_read(meter_get(&pipeline_meter_kind, "line", NULL), PIPELINE_LATENCY, &seen);
    CHECK_INT(seen.count, ==, 20);
    CHECK_INT(value_of(&stage_meter_kind, "only", NULL, STAGE_FINISHED), ==, 20);
    CHECK_INT(value_of(&stage_meter_kind, "only", NULL, STAGE_DEPTH), ==, 0);
    CHECK_INT(value_of(&stage_meter_kind, "only", NULL, STAGE_LATENCY_TARGET), ==, 10);
    CHECK_INT(value_of(&pipeline_meter_kind, "line", NULL, PIPELINE_FINISHED), ==, 20);
    return result;
}

FLOW_TEST(a_pipeline_counts_what_its_first_stage_drops)
{
    static const enum weir_overflow drops[] = {WEIR_DROP_NEWEST, WEIR_DROP_OLDEST};
    int result, item = 1;

    for (int i = 0; i < 2; i++) {
        weir_stage_spec stages[] = {{.name = "only",
                                     .fn = pass_through,
                                     .concurrency = 1,
                                     .queue_max = 1,
                                     .overflow = drops[i],
                                     .timeout_ms = 15000,
                                     .on_failure = WEIR_STAGE_FAIL}};
        weir_pipeline_spec spec = {.name = i ? "oldest" : "newest",
                                   .item_bytes = sizeof(int),
                                   .budget_ms = 18000,
                                   .stages = stages,
                                   .stage_count = 1,
                                   .on_lost = note_lost};
        weir_pipeline *pipeline;
        FLOW_SCOPE(scope, &result)
        {
            CHECK_OK(weir_pipeline_open(scope, &spec, &pipeline));
            for (int k = 0; k < 4; k++) CHECK_OK(weir_pipeline_send(pipeline, &item));
        }
        CHECK_OK(result);
        CHECK_INT(value_of(&pipeline_meter_kind, spec.name, NULL, PIPELINE_FAILED), ==, 3);
        CHECK_INT(value_of(&pipeline_meter_kind, spec.name, NULL, PIPELINE_FINISHED), ==, 1);
    }
    return 0;
}

/* trace_carry_test.c - the context of a trace goes with jobs, items, passages and messages. */
#include <semaphore.h>

#include "base/atomic.h"
#include "unit/flow/flow_test.h"
#include "unit/watch/trace_test.h"

static void no_check(void)
{
}

/* The calling task's span, as a number; 0: none. */
static uint64_t here(void)
{
    weir_trace_context context;
    uint64_t id = 0;
    if (weir_trace_current(&context)) memcpy(&id, context.span_id, sizeof id);
    return id;
}

static uint64_t received(void)
{
    weir_trace_context context;
    uint64_t id = 0;
    if (weir_trace_received(&context)) memcpy(&id, context.span_id, sizeof id);
    return id;
}

/* ---- Pools ---- */

static const weir_pool_class classes[] = {{.name = "all", .weight = 1, .queue_max = 8}};

static weir_pool *open_pool(weir_scope *scope)
{
    weir_pool *pool;
    CHECK_OK(weir_pool_open(scope,
                            &(weir_pool_spec){.name = "work",
                                              .threads_max = 2,
                                              .overflow = WEIR_WAIT,
                                              .on_close = WEIR_DRAIN,
                                              .classes = classes,
                                              .class_count = 1},
                            &pool));
    return pool;
}

static int job(void *data)
{
    *(uint64_t *)data = here();
    WEIR_SPAN("on no task") {} /* does nothing */
    return here() == *(uint64_t *)data ? 7 : WEIR_ECLOSED;
}

static uint64_t job_span;

static void check_pool(void)
{
    CHECK_INT(test_sink.count, ==, 2);
    check_child("pool work", "caller");
    CHECK(memcmp(seen_named("pool work")->span_id, &job_span, 8) == 0);
}

TRACE_TEST(a_job_of_a_pool_works_in_the_context_of_its_caller, check_pool)
{
    int r = 0;

    FLOW_SCOPE(scope, &r)
    {
        weir_pool *pool = open_pool(scope);
        WEIR_SPAN("caller") {
            uint64_t before = here();
            CHECK_INT(weir_pool_run(pool, 0, job, &job_span, sizeof job_span), ==, 7);
            CHECK(here() == before);
            CHECK(job_span != before);
        }
    }
    return r;
}

/* ---- Hedges: what they do is done for the caller, beside the attempt and not inside it ---- */

static int twice(void *arg)
{
    ATOM(int) *begun = *(ATOM(int) **)arg;
    bool first = atom_add(begun, 1) == 0;
    int r = 0;

    WEIR_SPAN(first ? "first" : "second")
        if (first) r = weir_sleep(60000);
    return r;
}

static void check_hedge(void)
{
    CHECK_INT(test_sink.count, ==, 3);
    check_child("first", "caller");
    check_child("second", "caller");
}

TRACE_TEST(a_hedge_works_in_the_context_of_its_caller, check_hedge)
{
    ATOM(int) begun = 0, *pointer = &begun;
    int r = 0;

    FLOW_SCOPE(scope, &r)
    {
        weir_guard_spec spec = {
            .name = "hedged", .timeout_ms = 70000, .idempotent = true, .hedge_after_ms = 5};
        weir_guard *guard;
        CHECK_OK(weir_retry_budget_open(
            scope, &(weir_retry_budget_spec){.name = "budget", .ratio_percent = 10},
            &spec.retry.keep_budget));
        CHECK_OK(weir_guard_open(scope, &spec, &guard));
        WEIR_SPAN("caller") {
            CHECK_OK(weir_guard_call(guard, twice, &pointer, sizeof pointer, NULL));
        }
    }
    return r;
}

/* ---- Channels: an item is the span in which it was sent ---- */

typedef WEIR_TX(uint64_t) id_tx;
typedef WEIR_RX(uint64_t) id_rx;

enum { SENT = 40 };

struct ends {
    id_tx tx;
    id_rx rx;
};

static void open_chan(weir_scope *scope, size_t capacity, enum weir_overflow overflow,
                      struct ends *ends)
{
    CHECK_OK(weir_chan_open(scope,
                            &(weir_chan_spec){.name = "ids",
                                              .capacity = capacity,
                                              .overflow = overflow,
                                              .on_close = WEIR_DRAIN,
                                              .trace = true},
                            &ends->tx, &ends->rx));
}

static int send_ids(void *arg)
{
    id_tx tx = ((struct ends *)arg)->tx;

    for (int i = 0; i < SENT; i++) {
        WEIR_SPAN("send") {
            uint64_t id = here();
            if (i % 3 == 2) {
                weir_case cases[] = {WEIR_CASE_SEND(tx, &id)};
                CHECK_INT(weir_select(cases, 1, WEIR_FAIR), ==, 0);
                CHECK_OK(cases[0].result);
            } else {
                CHECK_OK(weir_send(tx, &id));
            }
            CHECK(received() == 0);
        }
    }
    CHECK_OK(weir_send(tx, &(uint64_t){0})); /* in no span */
    weir_tx_drop(tx.end);
    return 0;
}

static void receive_one(id_rx rx, int how, uint64_t *ret_id)
{
    if (how == 0) {
        CHECK_OK(weir_recv(rx, ret_id));
    } else if (how == 1) {
        weir_case cases[] = {WEIR_CASE_RECV(rx, ret_id)};
        CHECK_INT(weir_select(cases, 1, WEIR_FAIR), ==, 0);
        CHECK_OK(cases[0].result);
    } else if (how == 2) {
        int r;
        while ((r = weir_try_recv(rx, ret_id)) == 0) CHECK_OK(weir_yield());
        CHECK_INT(r, ==, 1);
    } else {
        CHECK_INT(weir_recv_many(rx, ret_id, 1), ==, 1);
    }
}

static int carry_through(size_t capacity)
{
    uint64_t id;
    int r = 0;

    FLOW_SCOPE_ANYWHERE(scope, &r)
    {
        struct ends ends;
        open_chan(scope, capacity, WEIR_WAIT, &ends);
        CHECK_OK(weir_spawn(scope, send_ids, &ends, sizeof ends));
        for (int i = 0; i < SENT; i++) {
            receive_one(ends.rx, i % 4, &id);
            CHECK(id != 0);
            CHECK(received() == id);
            CHECK(here() == 0); /* it is not made the current one */
        }
        receive_one(ends.rx, 0, &id);
        CHECK(id == 0 && received() == 0);
        CHECK_INT(weir_recv(ends.rx, &id), ==, WEIR_ECLOSED);
    }
    return r;
}

TRACE_TEST(items_bring_the_context_in_which_they_were_sent, no_check)
{
    CHECK_OK(carry_through(8));
    CHECK_OK(carry_through(1));
    return carry_through(WEIR_RENDEZVOUS);
}

/* Nothing is left of contexts that went with items that nobody got: the leak check looks. */
TRACE_TEST(contexts_of_items_that_are_dropped_are_dropped_too, no_check)
{
    uint64_t id, last = 0;
    int r = 0;

    FLOW_SCOPE(scope, &r)
    {
        struct ends oldest, newest;
        open_chan(scope, 2, WEIR_DROP_OLDEST, &oldest);
        open_chan(scope, 2, WEIR_DROP_NEWEST, &newest);
        for (int i = 0; i < 5; i++) {
            WEIR_SPAN("send") {
                last = here();
                CHECK_OK(weir_send(oldest.tx, &last));
                CHECK_OK(weir_send(newest.tx, &last));
            }
        }
        CHECK_OK(weir_recv(oldest.rx, &id));
        CHECK(received() == id);
        CHECK_OK(weir_recv(newest.rx, &id));
        CHECK(received() == id);
        /* One is left in each: they end with the scope. */
    }
    return r;
}

static int without_trace(void *arg)
{
    (void)arg;
    WEIR_SPAN("nothing") {
        int r = 0;
        FLOW_SCOPE(scope, &r)
        {
            struct ends ends;
            uint64_t id = 5;
            open_chan(scope, 2, WEIR_WAIT, &ends);
            CHECK_OK(weir_send(ends.tx, &id));
            CHECK_OK(weir_recv(ends.rx, &id));
            CHECK(received() == 0);
        }
        return r;
    }
    return 0;
}

TEST(a_traced_channel_of_a_runtime_that_does_not_trace_is_like_any_other)
{
    CHECK_OK(trace_test_run(without_trace, NULL));
}

/* ---- Pipelines ---- */

static int stage_ids(void *item, void *arg)
{
    uint64_t *id = item;
    (void)arg;
    CHECK(here() != 0 && here() != *id);
    *id = here();
    return 0;
}

static int stage_fails(void *item, void *arg)
{
    (void)item, (void)arg;
    return WEIR_EOVERLOAD;
}

static int64_t try_again(void *keep_state, const weir_stage_attempt *attempt, int result,
                         int64_t run_ns)
{
    (void)keep_state, (void)attempt, (void)run_ns;
    return result < 0 ? 0 : WEIR_STAGE_DONE;
}

static int64_t worst_case_ms(void *keep_state, int64_t timeout_ms)
{
    (void)keep_state;
    return 3 * timeout_ms;
}

static const weir_stage_policy three_times = {
    .after = try_again, .worst_case_ms = worst_case_ms, .attempts_max = 3};

static void lost(void *item, const weir_lost *why, void *arg)
{
    (void)item, (void)why, (void)arg;
}

#define STAGE(name_, fn_, ...)                                                                 \
    {                                                                                          \
        .name = (name_), .fn = (fn_), .concurrency = 2, .queue_max = 4, .overflow = WEIR_WAIT, \
        .timeout_ms = 3000, __VA_ARGS__                                                        \
    }

static weir_pipeline *open_pipeline(weir_scope *scope)
{
    const weir_stage_spec stages[] = {
        STAGE("first", stage_ids, .on_failure = WEIR_STAGE_FAIL),
        STAGE("flaky", stage_fails, .on_failure = WEIR_STAGE_SKIP, .idempotent = true,
              .keep_policy = &three_times),
        STAGE("last", stage_ids, .on_failure = WEIR_STAGE_FAIL),
    };
    weir_pipeline *pipeline;

    CHECK_OK(weir_pipeline_open(scope,
                                &(weir_pipeline_spec){.name = "line",
                                                      .item_bytes = sizeof(uint64_t),
                                                      .budget_ms = 20000,
                                                      .stages = stages,
                                                      .stage_count = 3,
                                                      .results_max = 8,
                                                      .on_lost = lost},
                                &pipeline));
    return pipeline;
}

static void check_stages(const char *parent)
{
    const struct seen *flaky = seen_named("stage flaky");

    check_child("stage first", parent);
    check_child("stage flaky", parent);
    check_child("stage last", parent);
    CHECK_CONTAINS(seen_named("stage first")->attributes, "weir.pipeline=line;weir.queue_wait_ns=");
    CHECK_CONTAINS(seen_named("stage first")->attributes, "weir.attempts=1;");
    CHECK_CONTAINS(flaky->attributes, "weir.attempts=3;weir.skipped=true;");
    CHECK_CONTAINS(flaky->attributes, "error.type=WEIR_EOVERLOAD;");
    CHECK_INT(flaky->status, ==, WEIR_SPAN_ERROR);
    CHECK_INT(seen_named("stage last")->status, ==, WEIR_SPAN_UNSET);
}

static void check_call(void)
{
    CHECK_INT(test_sink.count, ==, 5);
    check_child("pipeline line", "caller");
    check_stages("pipeline line");
    CHECK_STR(seen_named("pipeline line")->attributes, "weir.partial=true;");
}

TRACE_TEST(a_call_of_a_pipeline_and_its_stages_are_spans_of_the_callers_trace, check_call)
{
    weir_outcome outcome;
    int r = 0;

    FLOW_SCOPE_ANYWHERE(scope, &r)
    {
        WEIR_SPAN("caller") {
            weir_pipeline *pipeline = open_pipeline(scope);
            uint64_t id = here();
            CHECK_INT(weir_pipeline_call(pipeline, &id, &outcome), ==, WEIR_PARTIAL);
            CHECK(id != here());
        }
    }
    return r;
}

static void check_send(void)
{
    CHECK_INT(test_sink.count, ==, 4);
    check_stages("sender");
}

TRACE_TEST(an_item_that_is_sent_takes_its_senders_context_through_all_stages, check_send)
{
    int r = 0;

    FLOW_SCOPE_ANYWHERE(scope, &r)
    {
        weir_pipeline *pipeline = open_pipeline(scope);
        uint64_t id = 0;
        WEIR_SPAN("sender") {
            id = here();
            CHECK_OK(weir_pipeline_send(pipeline, &id));
        }
        CHECK_INT(weir_pipeline_recv(pipeline, &id, NULL), ==, WEIR_PARTIAL);
    }
    return r;
}

static void check_rootless(void)
{
    CHECK_INT(test_sink.count, ==, 3);
    CHECK(has_no_parent(seen_named("stage first")));
    CHECK(has_no_parent(seen_named("stage last")));
    CHECK(same_trace(seen_named("stage first"), seen_named("stage last")));
}

TRACE_TEST(an_item_that_is_sent_in_no_trace_begins_one, check_rootless)
{
    int r = 0;

    FLOW_SCOPE_ANYWHERE(scope, &r)
    {
        weir_pipeline *pipeline = open_pipeline(scope);
        uint64_t id = 1;
        CHECK_OK(weir_pipeline_send(pipeline, &id));
        CHECK_INT(weir_pipeline_recv(pipeline, &id, NULL), ==, WEIR_PARTIAL);
    }
    return r;
}

/* ---- Actors ---- */

static int on_message(void *state, const void *message, void *reply, void *arg)
{
    (void)state, (void)arg;
    CHECK(here() != 0 && here() != *(const uint64_t *)message);
    if (reply) *(uint64_t *)reply = here();
    return 0;
}

static void check_actor(void)
{
    CHECK_INT(test_sink.count, ==, 4);
    for (size_t i = 0; i < test_sink.count; i++) {
        const struct seen *span = &test_sink.spans[i];
        if (strcmp(span->name, "actor counter") != 0) continue;
        CHECK(memcmp(span->parent_id, seen_named("caller")->span_id, 8) == 0 ||
              memcmp(span->parent_id, seen_named("caster")->span_id, 8) == 0);
    }
}

TRACE_TEST(a_message_to_an_actor_is_handled_in_its_senders_trace, check_actor)
{
    int r = 0;

    FLOW_SCOPE_ANYWHERE(scope, &r)
    {
        weir_actor *actor;
        uint64_t id, reply = 0;

        CHECK_OK(weir_actor_open(scope,
                                 &(weir_actor_spec){.name = "counter",
                                                    .mailbox_max = 4,
                                                    .overflow = WEIR_WAIT,
                                                    .on_restart = WEIR_RESTART_NEVER,
                                                    .on_message = on_message,
                                                    .message_bytes = sizeof id,
                                                    .reply_bytes = sizeof id},
                                 &actor));
        WEIR_SPAN("caster") {
            id = here();
            CHECK_OK(weir_actor_cast(actor, &id));
        }
        WEIR_SPAN("caller") {
            id = here();
            CHECK_OK(weir_actor_call(actor, &id, &reply));
        }
        CHECK(reply != 0 && reply != id);
    }
    return r;
}

/* ---- What nobody gets, takes or answers: the leak check looks for its contexts ---- */

static sem_t gate;

static int wait_at_gate(void *data)
{
    (void)data;
    while (sem_wait(&gate) < 0) {} /* signals */
    return 0;
}

static int run_briefly(weir_pool *pool, weir_pool_fn fn)
{
    WEIR_DEADLINE(5) { return weir_pool_run(pool, 0, fn, NULL, 0); }
    return 0;
}

/* The first job is left by its caller while it runs, the second one while it is queued. */
TRACE_TEST(contexts_of_jobs_that_are_left_alone_end_with_them, no_check)
{
    int r = 0;

    CHECK_INT(sem_init(&gate, 0, 0), ==, 0);
    FLOW_SCOPE(scope, &r)
    {
        weir_pool *pool;
        CHECK_OK(weir_pool_open(scope,
                                &(weir_pool_spec){.name = "work",
                                                  .threads_max = 1,
                                                  .overflow = WEIR_WAIT,
                                                  .on_close = WEIR_DISCARD,
                                                  .classes = classes,
                                                  .class_count = 1},
                                &pool));
        WEIR_SPAN("caller") {
            CHECK_INT(run_briefly(pool, wait_at_gate), ==, WEIR_ETIMEDOUT);
            CHECK_INT(run_briefly(pool, wait_at_gate), ==, WEIR_ETIMEDOUT);
        }
        CHECK_INT(sem_post(&gate), ==, 0);
    }
    return r;
}

static int stage_waits(void *item, void *arg)
{
    (void)item, (void)arg;
    return weir_sleep(WEIR_FOREVER);
}

/* Results that nobody has received, an item that is worked on, and others behind it. */
TRACE_TEST(contexts_of_items_that_a_pipeline_loses_end_with_them, no_check)
{
    const weir_stage_spec stages[] = {STAGE("stuck", stage_waits, .on_failure = WEIR_STAGE_FAIL)};
    int r = 0;

    FLOW_SCOPE(scope, &r)
    {
        weir_pipeline *done = open_pipeline(scope), *stuck;
        CHECK_OK(weir_pipeline_open(scope,
                                    &(weir_pipeline_spec){.name = "stuck",
                                                          .item_bytes = sizeof(uint64_t),
                                                          .budget_ms = 20000,
                                                          .stages = stages,
                                                          .stage_count = 1,
                                                          .results_max = 8,
                                                          .on_lost = lost},
                                    &stuck));
        for (int i = 0; i < 4; i++) {
            WEIR_SPAN("send") {
                uint64_t id = here();
                CHECK_OK(weir_pipeline_send(done, &id));
                CHECK_OK(weir_pipeline_send(stuck, &id));
            }
        }
        CHECK_OK(weir_sleep(5));
        weir_scope_cancel(scope, 0, "enough");
    }
    return r == WEIR_ECANCELED ? 0 : r;
}

static int on_message_wait(void *state, const void *message, void *reply, void *arg)
{
    (void)state, (void)message, (void)reply, (void)arg;
    return weir_sleep(WEIR_FOREVER);
}

/* One is being handled, two are in the mailbox; a call is given up in between. */
TRACE_TEST(contexts_of_messages_that_nobody_handles_end_with_them, no_check)
{
    int r = 0;

    FLOW_SCOPE(scope, &r)
    {
        weir_actor *actor;
        uint64_t id = 0;
        CHECK_OK(weir_actor_open(scope,
                                 &(weir_actor_spec){.name = "stuck",
                                                    .mailbox_max = 4,
                                                    .overflow = WEIR_WAIT,
                                                    .on_restart = WEIR_RESTART_NEVER,
                                                    .on_message = on_message_wait,
                                                    .message_bytes = sizeof id},
                                 &actor));
        WEIR_SPAN("caster") {
            for (int i = 0; i < 3; i++) CHECK_OK(weir_actor_cast(actor, &id));
            WEIR_DEADLINE(5) { CHECK_INT(weir_actor_call(actor, &id, NULL), ==, WEIR_ETIMEDOUT); }
        }
        weir_scope_cancel(scope, 0, "enough");
    }
    return r == WEIR_ECANCELED ? 0 : r;
}

/* A channel that threads may use outlives its scope; its items do not. */
TRACE_TEST(contexts_of_items_for_any_thread_end_with_the_scope, no_check)
{
    struct ends ends;
    int r = 0;

    FLOW_SCOPE(scope, &r)
    {
        CHECK_OK(weir_chan_open(scope,
                                &(weir_chan_spec){.name = "ids",
                                                  .capacity = 4,
                                                  .overflow = WEIR_REJECT,
                                                  .on_close = WEIR_DRAIN,
                                                  .any_thread = true,
                                                  .trace = true},
                                &ends.tx, &ends.rx));
        WEIR_SPAN("send") {
            uint64_t id = here();
            for (int i = 0; i < 3; i++) CHECK_OK(weir_send(ends.tx, &id));
        }
    }
    weir_tx_drop(ends.tx.end);
    weir_rx_drop(ends.rx.end);
    return r;
}

/* ---- All of it, with something going wrong ---- */

static int everything(void *arg)
{
    int r = 0;

    (void)arg;
    FLOW_SCOPE(scope, &r)
    {
        weir_tx *tx;
        weir_rx *rx;
        weir_pool *pool;
        uint64_t id = 0;

        WEIR_SPAN("all") {
            r = weir_chan_open_sized(scope, sizeof(weir_chan_spec),
                                     &(weir_chan_spec){.name = "ids",
                                                       .capacity = 2,
                                                       .overflow = WEIR_WAIT,
                                                       .on_close = WEIR_DRAIN,
                                                       .trace = true},
                                     sizeof id, &tx, &rx);
            if (r < 0) break;
            r = weir_tx_send(tx, &id);
            if (r < 0) break;
            r = weir_rx_recv(rx, &id);
            if (r < 0) break;
            r = weir_pool_open(scope,
                               &(weir_pool_spec){.name = "work",
                                                 .threads_max = 1,
                                                 .overflow = WEIR_WAIT,
                                                 .on_close = WEIR_DRAIN,
                                                 .classes = classes,
                                                 .class_count = 1},
                               &pool);
            if (r < 0) break;
            r = weir_pool_run(pool, 0, job, &id, sizeof id);
        }
    }
    return r < 0 ? r : 0;
}

static int everything_scenario(void *arg)
{
    weir_task_fn body = everything;
    (void)arg;
    test_sink.ended = false;
    return weir_run(&(weir_config){.workers = 1, .log_level = WEIR_LOG_OFF, .trace = TRACE_SINK()},
                    trace_test_task, &body);
}

TEST(contexts_survive_each_allocation_that_fails)
{
    CHECK_INT(test_sweep_alloc(everything_scenario, NULL), >, 20);
}

TEST(contexts_survive_a_cancel_at_each_suspension)
{
    CHECK_INT(test_sweep_cancel(everything_scenario, NULL), >, 2);
}

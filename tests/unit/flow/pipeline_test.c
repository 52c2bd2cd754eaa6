/* pipeline_test.c - pipelines: the way of an item, specs, budgets, bounds, ending. */
#include "unit/flow/pipeline_test.h"

FLOW_TEST(pipeline_call_gets_its_own_item_through_all_stages)
{
    weir_stage_spec stages[3];
    weir_pipeline_spec spec = three(stages);
    weir_pipeline_figures f;
    weir_pipeline *pipeline;
    weir_outcome outcome;
    int result;

    reset();
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_pipeline_open(scope, &spec, &pipeline));
        for (int i = 0; i < 10; i++) {
            struct item item = {.id = i};
            CHECK_INT(weir_pipeline_call(pipeline, &item, &outcome), ==, 0);
            CHECK_INT(item.id, ==, i);
            CHECK_INT(item.trail, ==, 123);
            CHECK_INT(outcome.skipped, ==, 0);
            CHECK_INT(outcome.latency_ns, >=, 0);
        }
        CHECK_OK(weir_scope_join(scope)); /* does not wait for its tasks */
        check_conserved(pipeline, 3);
        weir_pipeline_figures_of(pipeline, &f);
        CHECK_INT(f.finished, ==, 10);
        CHECK_INT(f.end_to_end.count, ==, 10);
        CHECK_INT(f.inside, ==, 0);
        CHECK_INT(weir_pipeline_recv(pipeline, &(struct item){0}, NULL), ==, WEIR_EREFUSED);
    }
    CHECK_INT(atom_load(&lost_count), ==, 0);
    return result;
}

/* ---- Specs and budgets ---- */

static int64_t too_little(void *keep_state, int64_t timeout_ms)
{
    (void)keep_state;
    return timeout_ms - 1;
}

FLOW_TEST(pipeline_spec_names_what_is_missing_or_contradicts)
{
    static const weir_stage_policy silent = {.attempts_max = 1};
    static const weir_stage_policy retrying = {.attempts_max = 3, .worst_case_ms = thrice};
    static const weir_stage_policy wrong = {.attempts_max = 1, .worst_case_ms = too_little};
    static const char *const why[] = {
        "pipeline: name", "item_bytes",      "budget_ms",
        "on_lost",        "stages",          "name of stage 1",
        "fn of stage",    "concurrency",     "queue_max",
        "overflow",       "timeout_ms",      "on_failure",
        "fallback",       "concurrency_max", "queue_limit",
        "worst_case_ms",  "idempotent",      "less than its timeout_ms"};
    enum { ROWS = sizeof why / sizeof why[0] };
    int result;

    reset();
    FLOW_SCOPE(scope, &result)
    {
        for (int i = 0; i < ROWS; i++) {
            weir_stage_spec stages[3];
            weir_pipeline_spec spec = three(stages);
            weir_pipeline *pipeline;
            test_note("row %d", i);
            if (i == 0) spec.name = NULL;
            if (i == 1) spec.item_bytes = 0;
            if (i == 2) spec.budget_ms = 0;
            if (i == 3) spec.on_lost = NULL;
            if (i == 4) spec.stage_count = 0;
            if (i == 5) stages[1].name = NULL;
            if (i == 6) stages[1].fn = NULL;
            if (i == 7) stages[1].concurrency = 0;
            if (i == 8) stages[1].queue_max = 0;
            if (i == 9) stages[1].overflow = WEIR_OVERFLOW_UNSET;
            if (i == 10) stages[1].timeout_ms = 0;
            if (i == 11) stages[1].on_failure = WEIR_STAGE_UNSET;
            if (i == 12) stages[1].on_failure = WEIR_STAGE_FALLBACK;
            if (i == 13) stages[1].concurrency = 3, stages[1].concurrency_max = 2;
            if (i == 14) stages[1].queue_limit = 1;
            if (i == 15) stages[1].keep_policy = &silent;
            if (i == 16) stages[1].keep_policy = &retrying;
            if (i == 17) stages[1].keep_policy = &wrong;
            CHECK_INT(weir_pipeline_open(scope, &spec, &pipeline), ==, WEIR_EREFUSED);
            CHECK_CONTAINS(weir_why(), why[i]);
            if (i >= 6) CHECK_CONTAINS(weir_why(), "'two'");
        }
    }
    return result;
}

FLOW_TEST(pipeline_is_refused_if_its_stages_can_take_longer_than_its_budget)
{
    static const weir_stage_policy retrying = {.attempts_max = 3, .worst_case_ms = thrice};
    weir_stage_spec stages[3];
    weir_pipeline_spec spec = three(stages);
    weir_pipeline *pipeline;
    int result;

    reset();
    stages[0].timeout_ms = 100;
    stages[1].timeout_ms = 200;
    stages[1].idempotent = true;
    stages[1].keep_policy = &retrying;
    stages[2].timeout_ms = 50;
    FLOW_SCOPE(scope, &result)
    {
        spec.budget_ms = 779;
        CHECK_INT(weir_pipeline_open(scope, &spec, &pipeline), ==, WEIR_EREFUSED);
        CHECK_STR(weir_why(), "pipeline 'pipe': its stages take 780 ms at worst ('one' 100 + 'two' "
                              "630 + 'three' 50), more than budget_ms, 779");
        spec.budget_ms = 780;
        CHECK_OK(weir_pipeline_open(scope, &spec, &pipeline));
    }
    return result;
}

/* ---- Streams ---- */

static int send_stream(void *arg)
{
    struct stream *stream = arg;
    int r = 0;
    for (int i = 0; r == 0 && i < stream->count; i++) {
        r = weir_pipeline_send(stream->pipeline, &(struct item){.id = i});
    }
    weir_pipeline_stop(stream->pipeline, WEIR_DRAIN);
    return r;
}

FLOW_TEST(pipeline_stream_comes_out_in_order_and_ends)
{
    weir_stage_spec stages[3];
    weir_pipeline_spec spec = three(stages);
    weir_pipeline *pipeline;
    int result, r, next = 0;

    reset();
    spec.results_max = 3;
    FLOW_SCOPE_ANYWHERE(scope, &result)
    {
        struct stream stream = {.count = 500};
        struct item item;
        CHECK_OK(weir_pipeline_open(scope, &spec, &pipeline));
        stream.pipeline = pipeline;
        CHECK_OK(weir_spawn(scope, send_stream, &stream, sizeof stream));
        while ((r = weir_pipeline_recv(pipeline, &item, NULL)) == 0) {
            CHECK_INT(item.id, ==, next++);
            CHECK_INT(item.trail, ==, 123);
        }
        CHECK_INT(r, ==, WEIR_ECLOSED);
        CHECK_INT(next, ==, 500);
        CHECK_OK(weir_pipeline_wait(pipeline));
        CHECK_INT(weir_pipeline_send(pipeline, &item), ==, WEIR_ECLOSED);
        check_conserved(pipeline, 3);
    }
    CHECK_INT(atom_load(&lost_count), ==, 0);
    return result;
}

FLOW_TEST(pipeline_backpressure_travels_upstream_to_the_sender)
{
    enum { INSIDE = 3 * (1 + 2) }; /* each stage: one in work, two queued */
    weir_stage_spec stages[3];
    weir_pipeline_spec spec = three(stages);
    weir_pipeline_figures f;
    weir_pipeline *pipeline;
    int result, r = 0;

    reset();
    FLOW_SCOPE(scope, &result)
    {
        struct item item = {.wait_stage = 3};
        CHECK_OK(weir_event_open(scope, "gate", &places[2].gate));
        CHECK_OK(weir_pipeline_open(scope, &spec, &pipeline));
        for (int i = 0; i < INSIDE; i++) {
            settle();
            CHECK_OK(weir_pipeline_send(pipeline, &item));
        }
        settle();
        WEIR_DEADLINE(5) { r = weir_pipeline_send(pipeline, &item); }
        CHECK_INT(r, ==, WEIR_ETIMEDOUT);
        weir_pipeline_figures_of(pipeline, &f);
        CHECK_INT(f.inside, ==, INSIDE);
        CHECK_INT(f.accepted, ==, INSIDE);
        for (unsigned i = 0; i < 3; i++) {
            weir_stage_figures s;
            CHECK_OK(weir_pipeline_stage_figures(pipeline, i, &s));
            CHECK_INT(s.depth, ==, 2);
            CHECK_INT(s.running, ==, 1);
        }
        weir_event_set(places[2].gate);
        CHECK_OK(weir_pipeline_send(pipeline, &item));
        weir_pipeline_stop(pipeline, WEIR_DRAIN);
        CHECK_OK(weir_pipeline_wait(pipeline));
        weir_pipeline_figures_of(pipeline, &f);
        CHECK_INT(f.finished, ==, INSIDE + 1);
        check_conserved(pipeline, 3);
    }
    CHECK_INT(atom_load(&lost_count), ==, 0);
    return result;
}

/* ---- Overflow ---- */

struct overflow_row {
    int stage; /* whose overflow it is */
    enum weir_overflow overflow;
    int send;  /* what the send of one too many gets */
    int lost;  /* how many went to the hook */
    int trail; /* of the one that was lost */
};

FLOW_TEST(pipeline_overflow_is_what_each_stage_says)
{
    static const struct overflow_row rows[] = {
        {0, WEIR_REJECT, WEIR_EOVERLOAD, 0, 0}, {0, WEIR_DROP_NEWEST, 0, 1, 0},
        {0, WEIR_DROP_OLDEST, 0, 1, 0},         {1, WEIR_REJECT, 0, 1, 1},
        {1, WEIR_DROP_NEWEST, 0, 1, 1},         {1, WEIR_DROP_OLDEST, 0, 1, 1},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct overflow_row *row = &rows[i];
        weir_stage_spec stages[3];
        weir_pipeline_spec spec = three(stages);
        weir_pipeline_figures f;
        weir_stage_figures s;
        weir_pipeline *pipeline;
        int result;

        reset();
        test_note("row %zu", i);
        stages[row->stage].overflow = row->overflow;
        FLOW_SCOPE(scope, &result)
        {
            struct item item = {.wait_stage = row->stage + 1};
            CHECK_OK(weir_event_open(scope, "gate", &places[row->stage].gate));
            CHECK_OK(weir_pipeline_open(scope, &spec, &pipeline));
            for (int k = 0; k < 3; k++) { /* one in work, two queued */
                CHECK_OK(weir_pipeline_send(pipeline, &item));
                settle();
            }
            CHECK_INT(weir_pipeline_send(pipeline, &item), ==, row->send);
            settle();
            CHECK_INT(atom_load(&lost_count), ==, row->lost);
            if (row->lost) {
                CHECK_INT(atom_load(&lost_error), ==, WEIR_EOVERLOAD);
                CHECK_INT(atom_load(&lost_stage), ==, row->stage);
                CHECK_INT(atom_load(&lost_trail), ==, row->trail);
            }
            CHECK_OK(weir_pipeline_stage_figures(pipeline, (unsigned)row->stage, &s));
            CHECK_INT(s.rejected, ==, 1);
            check_conserved(pipeline, 3);
            weir_event_set(places[row->stage].gate);
            weir_pipeline_stop(pipeline, WEIR_DRAIN);
            CHECK_OK(weir_pipeline_wait(pipeline));
            weir_pipeline_figures_of(pipeline, &f);
            CHECK_INT(f.finished, ==, 3);
            CHECK_INT(f.lost, ==, row->lost);
            check_conserved(pipeline, 3);
        }
        CHECK_OK(result);
    }
    return 0;
}

/* ---- Changing, ending ---- */

FLOW_TEST(pipeline_concurrency_and_queue_change_while_it_runs)
{
    weir_stage_spec stages[3];
    weir_pipeline_spec spec = three(stages);
    weir_stage_figures s;
    weir_pipeline *pipeline;
    int result;

    reset();
    stages[0].overflow = WEIR_REJECT;
    stages[0].concurrency_max = 3;
    stages[0].queue_limit = 4;
    FLOW_SCOPE(scope, &result)
    {
        struct item item = {.wait_stage = 1};
        CHECK_OK(weir_event_open(scope, "gate", &places[0].gate));
        CHECK_OK(weir_pipeline_open(scope, &spec, &pipeline));
        for (int i = 0; i < 3; i++) {
            CHECK_OK(weir_pipeline_send(pipeline, &item));
            settle();
        }
        CHECK_INT(weir_pipeline_send(pipeline, &item), ==, WEIR_EOVERLOAD);
        CHECK_OK(weir_pipeline_resize(pipeline, 0, 3, 0));
        settle();
        CHECK_OK(weir_pipeline_stage_figures(pipeline, 0, &s));
        CHECK_INT(s.running, ==, 3);
        CHECK_INT(s.depth, ==, 0);
        CHECK_OK(weir_pipeline_resize(pipeline, 0, 0, 4));
        for (int i = 0; i < 4; i++) CHECK_OK(weir_pipeline_send(pipeline, &item));
        CHECK_INT(weir_pipeline_send(pipeline, &item), ==, WEIR_EOVERLOAD);
        CHECK_INT(weir_pipeline_resize(pipeline, 0, 4, 0), ==, WEIR_EREFUSED);
        CHECK_INT(weir_pipeline_resize(pipeline, 0, 0, 5), ==, WEIR_EREFUSED);
        CHECK_INT(weir_pipeline_resize(pipeline, 3, 1, 1), ==, WEIR_EREFUSED);
        check_conserved(pipeline, 1);
        CHECK_OK(weir_pipeline_resize(pipeline, 0, 1, 1));
        weir_event_set(places[0].gate);
        weir_pipeline_stop(pipeline, WEIR_DRAIN);
        CHECK_OK(weir_pipeline_wait(pipeline));
        CHECK_INT(atom_load(&places[2].left), ==, 7);
    }
    return result;
}

FLOW_TEST(pipeline_stop_discards_what_is_inside_and_says_so)
{
    weir_stage_spec stages[3];
    weir_pipeline_spec spec = three(stages);
    weir_pipeline_figures f;
    weir_pipeline *pipeline;
    int result;

    reset();
    FLOW_SCOPE(scope, &result)
    {
        struct stream stream = {.count = 2};
        CHECK_OK(weir_event_open(scope, "gate", &places[1].gate));
        CHECK_OK(weir_pipeline_open(scope, &spec, &pipeline));
        stream.pipeline = pipeline;
        for (int i = 0; i < 3; i++) {
            CHECK_OK(weir_pipeline_send(pipeline, &(struct item){.wait_stage = 2}));
            CHECK_OK(weir_spawn(scope, call_item, &stream, sizeof stream));
            settle();
        }
        for (int i = 0; i < 3; i++) {
            CHECK_OK(weir_spawn(scope, call_item, &stream, sizeof stream));
        }
        settle();
        weir_pipeline_stop(pipeline, WEIR_DISCARD);
        CHECK_INT(weir_pipeline_wait(pipeline), ==, WEIR_ECANCELED);
        CHECK_OK(weir_scope_join(scope));
        CHECK_INT(atom_load(&lost_count), ==, 3);
        CHECK_INT(atom_load(&lost_error), ==, WEIR_ECLOSED);
        weir_pipeline_figures_of(pipeline, &f);
        CHECK_INT(f.inside, ==, 0);
        CHECK_INT(f.finished, ==, 0);
        CHECK(f.ended);
        check_conserved(pipeline, 3);
    }
    return result;
}

FLOW_TEST(pipeline_is_drained_by_the_close_of_its_scope)
{
    for (int results = 0; results < 2; results++) {
        weir_stage_spec stages[3];
        weir_pipeline_spec spec = three(stages);
        weir_pipeline *pipeline;
        int result;

        reset();
        spec.results_max = results ? 2 : 0;
        FLOW_SCOPE(scope, &result)
        {
            CHECK_OK(weir_pipeline_open(scope, &spec, &pipeline));
            for (int i = 0; i < 8; i++) {
                CHECK_OK(weir_pipeline_send(pipeline, &(struct item){.id = i}));
            }
        }
        CHECK_OK(result);
        CHECK_INT(atom_load(&places[2].left), ==, 8);
        /* Nobody is left to receive them. */
        CHECK_INT(atom_load(&lost_count), ==, results ? 8 : 0);
        if (results) CHECK_INT(atom_load(&lost_trail), ==, 123);
    }
    return 0;
}

FLOW_TEST_UNMEASURED(pipeline_that_is_closed_is_freed_before_its_scope_ends)
{
    size_t before = 0;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        for (int i = 0; i < 30; i++) {
            weir_stage_spec stages[3];
            weir_pipeline_spec spec = three(stages);
            weir_pipeline *pipeline;
            reset();
            spec.results_max = 2;
            CHECK_OK(weir_pipeline_open(scope, &spec, &pipeline));
            CHECK_OK(weir_pipeline_send(pipeline, &(struct item){0}));
            if (i % 3 == 0) {
                weir_pipeline_stop(pipeline, WEIR_DRAIN);
                CHECK_OK(weir_pipeline_wait(pipeline));
            } else if (i % 3 == 1) {
                settle();
            }
            weir_pipeline_close(pipeline);
            while (weir_scope_task_count(scope) > 0) CHECK_OK(weir_yield());
            for (int k = 0; k < 3; k++) CHECK_OK(weir_sleep(0));
            CHECK_INT(atom_load(&lost_count), ==, 1);
            if (i == 9) before = test_live_blocks();
            if (i > 9) CHECK_INT(test_live_blocks(), <=, before + 2);
        }
        weir_pipeline_close(NULL);
    }
    return result;
}

FLOW_TEST(pipeline_stage_of_a_class_that_its_pool_does_not_have_is_refused)
{
    static const weir_pool_class classes[] = {{.name = "c", .weight = 1, .queue_max = 1}};
    weir_pool_spec pool_spec = {.name = "p",
                                .threads_max = 1,
                                .overflow = WEIR_WAIT,
                                .on_close = WEIR_DRAIN,
                                .classes = classes,
                                .class_count = 1};
    weir_stage_spec stages[3];
    weir_pipeline_spec spec = three(stages);
    weir_pipeline *pipeline;
    int result;

    reset();
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_pool_open(scope, &pool_spec, &stages[1].pool));
        stages[1].pool_class = 1;
        CHECK_INT(weir_pipeline_open(scope, &spec, &pipeline), ==, WEIR_EREFUSED);
        CHECK_STR(weir_why(),
                  "pipeline 'pipe': pool_class of stage 'two' is 1, which its pool does "
                  "not have");
        stages[1].pool_class = 0;
        CHECK_OK(weir_pipeline_open(scope, &spec, &pipeline));
        CHECK_INT(weir_pipeline_call(pipeline, &(struct item){0}, NULL), ==, 0);
    }
    return result;
}

FLOW_TEST(pipeline_that_would_wait_for_ever_for_its_tasks_is_refused)
{
    weir_stage_spec stages[3];
    weir_pipeline_spec spec = three(stages);
    weir_pipeline *pipeline;
    int result;

    reset();
    WEIR_SCOPE(scope, &result, .name = "small", .on_failure = WEIR_FAIL_FAST, .max_tasks = 2,
               .overflow = WEIR_WAIT) {
        CHECK_INT(weir_pipeline_open(scope, &spec, &pipeline), ==, WEIR_EREFUSED);
        CHECK_STR(weir_why(), "pipeline 'pipe': its stages need 3 tasks, and max_tasks of scope "
                              "'small' is 2");
    }
    return result;
}

FLOW_TEST(pipeline_without_room_for_its_tasks_is_refused_and_freed)
{
    weir_stage_spec stages[3];
    weir_pipeline_spec spec = three(stages);
    weir_pipeline *pipeline;
    int result;

    reset();
    WEIR_SCOPE(scope, &result, .name = "small", .on_failure = WEIR_FAIL_FAST, .max_tasks = 2,
               .overflow = WEIR_REJECT) {
        for (int i = 0; i < 5; i++) {
            CHECK_INT(weir_pipeline_open(scope, &spec, &pipeline), ==, WEIR_EOVERLOAD);
            while (weir_scope_task_count(scope) > 0) CHECK_OK(weir_yield());
        }
        spec.stage_count = 2;
        CHECK_OK(weir_pipeline_open(scope, &spec, &pipeline));
        CHECK_INT(weir_pipeline_call(pipeline, &(struct item){0}, NULL), ==, 0);
    }
    return result;
}

/* ---- One item after the other ---- */

static int nap(void *data, void *keep_arg)
{
    const struct item *item = data;
    (void)keep_arg;
    return weir_sleep(item->id);
}

static int nap_in_turn(void *arg)
{
    static const int naps_ms[] = {5, 50, 0, 5, 0, 50, 5};
    weir_stage_spec one = stage(0);
    weir_pipeline_spec spec = {.name = "naps",
                               .item_bytes = sizeof(struct item),
                               .budget_ms = 1000,
                               .stages = &one,
                               .stage_count = 1,
                               .on_lost = note_lost};
    weir_stage_figures s;
    weir_pipeline *pipeline;
    int result;

    (void)arg;
    reset();
    one.fn = nap;
    one.timeout_ms = 9;
    one.queue_max = 8;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_pipeline_open(scope, &spec, &pipeline));
        for (int i = 0; i < 7; i++) {
            CHECK_OK(weir_pipeline_send(pipeline, &(struct item){.id = naps_ms[i]}));
        }
        weir_pipeline_stop(pipeline, WEIR_DRAIN);
        CHECK_OK(weir_pipeline_wait(pipeline));
        CHECK_OK(weir_pipeline_stage_figures(pipeline, 0, &s));
        CHECK_INT(s.finished, ==, 5);
        CHECK_INT(s.timeouts, ==, 2);
        CHECK_INT(atom_load(&lost_count), ==, 2);
        CHECK_INT(atom_load(&lost_error), ==, WEIR_ETIMEDOUT);
        /* 5 and 9 and 5 and 9 and 5: neither is cut short by the time of the one before. */
        CHECK_INT(s.ran.count, ==, 7);
        CHECK_INT(s.ran.total_ns, >=, 33 * INT64_C(1000000));
        CHECK_INT(s.ran.total_ns, <, 34 * INT64_C(1000000));
        /* Each waits for all before it: 0, 5, 14, 14, 19, 19, 28. */
        CHECK_INT(s.waited.count, ==, 7);
        CHECK_INT(s.waited.total_ns, >=, 99 * INT64_C(1000000));
        CHECK_INT(s.waited.total_ns, <, 101 * INT64_C(1000000));
        check_conserved(pipeline, 1);
    }
    return result;
}

TEST_WITH(pipeline_stage_gives_each_item_its_own_time, .workers = 1)
{
    test_clock_auto();
    CHECK_OK(flow_test_run(nap_in_turn));
}

/* Items that wait at the gate all at once, although only the first has woken a task. */
FLOW_TEST(pipeline_stage_works_on_as_many_items_as_its_concurrency)
{
    enum { CONCURRENCY = 5, ITEMS = 12 };
    weir_stage_spec stages[3];
    weir_pipeline_spec spec = three(stages);
    weir_stage_figures s;
    weir_pipeline *pipeline;
    int result;

    reset();
    stages[0].concurrency = CONCURRENCY;
    stages[0].queue_max = ITEMS;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_event_open(scope, "gate", &places[0].gate));
        CHECK_OK(weir_pipeline_open(scope, &spec, &pipeline));
        settle(); /* its tasks wait for items */
        for (int i = 0; i < ITEMS; i++) {
            CHECK_OK(weir_pipeline_send(pipeline, &(struct item){.wait_stage = 1}));
        }
        settle();
        CHECK_INT(atom_load(&places[0].entered), ==, CONCURRENCY);
        CHECK_OK(weir_pipeline_stage_figures(pipeline, 0, &s));
        CHECK_INT(s.running, ==, CONCURRENCY);
        CHECK_INT(s.depth, ==, ITEMS - CONCURRENCY);
        weir_event_set(places[0].gate);
        weir_pipeline_stop(pipeline, WEIR_DRAIN);
        CHECK_OK(weir_pipeline_wait(pipeline));
        CHECK_INT(atom_load(&places[2].left), ==, ITEMS);
        check_conserved(pipeline, 3);
    }
    return result;
}

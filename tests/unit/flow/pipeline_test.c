/* pipeline_test.c - pipelines: the way of an item, bounds, budgets, failures, ending. */
#include <errno.h>
#include <string.h>

#include "base/atomic.h"
#include "unit/flow/flow_test.h"

struct item {
    int id;
    int trail;      /* a digit for each stage it went through */
    int fail_stage; /* the stage that fails (its digit), or 0 */
    int error;
    int wait_stage; /* the stage that waits at the gate */
};

/* What is shared by the functions of a stage. */
struct place {
    int digit;
    weir_event *gate;
    ATOM(int) entered, left;
};

enum { PLACES = 4 };
static struct place places[PLACES];
static ATOM(int) lost_count, lost_error, lost_stage, lost_trail;

static void reset(void)
{
    memset(places, 0, sizeof places);
    for (int i = 0; i < PLACES; i++) places[i].digit = i + 1;
    atom_store(&lost_count, 0);
    atom_store(&lost_error, 0);
    atom_store(&lost_stage, -1);
    atom_store(&lost_trail, 0);
}

static int step(void *data, void *keep_arg)
{
    struct item *item = data;
    struct place *place = keep_arg;
    int r = 0;

    (void)atom_add(&place->entered, 1);
    item->trail = item->trail * 10 + place->digit;
    if (item->wait_stage == place->digit) r = weir_event_wait(place->gate);
    if (item->fail_stage == place->digit) r = item->error;
    (void)atom_add(&place->left, 1);
    return r;
}

static int replace(void *data, void *keep_arg)
{
    struct item *item = data;
    (void)keep_arg;
    item->trail = item->trail * 10 + 9;
    return item->error == -ENOENT ? -ENODATA : 0;
}

static void note_lost(void *data, const weir_lost *lost, void *keep_arg)
{
    const struct item *item = data;
    (void)keep_arg;
    (void)atom_add(&lost_count, 1);
    atom_store(&lost_error, lost->error);
    atom_store(&lost_stage, (int)lost->stage_index);
    atom_store(&lost_trail, item->trail);
}

static weir_stage_spec stage(int number)
{
    static const char *const names[PLACES] = {"one", "two", "three", "four"};
    return (weir_stage_spec){.name = names[number],
                             .fn = step,
                             .keep_arg = &places[number],
                             .concurrency = 1,
                             .queue_max = 2,
                             .overflow = WEIR_WAIT,
                             .timeout_ms = 5000,
                             .on_failure = WEIR_STAGE_FAIL};
}

static weir_pipeline_spec three(weir_stage_spec stages[3])
{
    for (int i = 0; i < 3; i++) stages[i] = stage(i);
    return (weir_pipeline_spec){.name = "pipe",
                                .item_bytes = sizeof(struct item),
                                .budget_ms = 18000,
                                .stages = stages,
                                .stage_count = 3,
                                .on_lost = note_lost};
}

static void check_conserved(weir_pipeline *pipeline, unsigned stage_count)
{
    weir_pipeline_figures f;
    weir_pipeline_figures_of(pipeline, &f);
    CHECK_INT(f.accepted, ==, f.inside + f.finished + f.lost + f.removed);
    for (unsigned i = 0; i < stage_count; i++) {
        weir_stage_figures s;
        CHECK_OK(weir_pipeline_stage_figures(pipeline, i, &s));
        test_note("stage %u", i);
        CHECK_INT(s.depth_max, <=, s.queue_max);
        CHECK_INT(s.running_max, <=, s.concurrency);
        CHECK_INT(s.entered, >=, s.depth + s.finished + s.skipped + s.failed + s.removed);
        /* A task that has just handed an item on is counted as running for a moment. */
        CHECK_INT(s.entered, <=,
                  s.depth + s.running + s.finished + s.skipped + s.failed + s.removed);
        CHECK_INT(s.waited.count, <=, s.entered);
    }
}

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

static int64_t thrice(void *keep_state, int64_t timeout_ms)
{
    (void)keep_state;
    return 3 * timeout_ms + 30;
}

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

struct stream {
    weir_pipeline *pipeline;
    int count;
};

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

/* Let all tasks of this worker run until they wait. */
static void settle(void)
{
    for (int i = 0; i < 30; i++) CHECK_OK(weir_yield());
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

/* ---- Failures ---- */

struct failure_row {
    enum weir_stage_failure on_failure;
    int error;    /* of the second stage; 0: it waits too long */
    int expected; /* result of the call */
    int trail;
    int skip_error;
};

FLOW_TEST(pipeline_stage_failure_means_what_its_spec_says)
{
    static const struct failure_row rows[] = {
        {WEIR_STAGE_FAIL, -EIO, -EIO, 1, 0},
        {WEIR_STAGE_SKIP, -EIO, WEIR_PARTIAL, 13, -EIO},
        {WEIR_STAGE_FALLBACK, -EIO, WEIR_PARTIAL, 193, -EIO},
        {WEIR_STAGE_FALLBACK, -ENOENT, -ENODATA, 1, 0}, /* the fallback fails too */
        {WEIR_STAGE_FAIL, 0, WEIR_ETIMEDOUT, 1, 0},
        {WEIR_STAGE_SKIP, 0, WEIR_PARTIAL, 13, WEIR_ETIMEDOUT},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct failure_row *row = &rows[i];
        weir_stage_spec stages[3];
        weir_pipeline_spec spec = three(stages);
        weir_pipeline_figures f;
        weir_stage_figures s;
        weir_pipeline *pipeline;
        weir_outcome outcome;
        int result;

        reset();
        test_note("row %zu", i);
        stages[1].on_failure = row->on_failure;
        if (row->on_failure == WEIR_STAGE_FALLBACK) stages[1].fallback = replace;
        if (row->error == 0) stages[1].timeout_ms = 5;
        FLOW_SCOPE(scope, &result)
        {
            struct item item = {.fail_stage = row->error ? 2 : 0,
                                .error = row->error,
                                .wait_stage = row->error ? 0 : 2};
            bool fails = row->expected < 0;
            CHECK_OK(weir_event_open(scope, "gate", &places[1].gate));
            CHECK_OK(weir_pipeline_open(scope, &spec, &pipeline));
            CHECK_INT(weir_pipeline_call(pipeline, &item, &outcome), ==, row->expected);
            CHECK_INT(item.trail, ==, row->trail);
            CHECK_INT(outcome.skipped, ==, fails ? 0 : 1 << 1);
            CHECK_INT(outcome.skip_error, ==, row->skip_error);
            if (fails) CHECK_INT(outcome.failed_stage, ==, 1);
            CHECK_OK(weir_pipeline_stage_figures(pipeline, 1, &s));
            CHECK_INT(s.skipped, ==, !fails);
            CHECK_INT(s.failed, ==, fails);
            CHECK_INT(s.timeouts, ==, row->error == 0);
            weir_pipeline_figures_of(pipeline, &f);
            CHECK_INT(f.partial, ==, !fails);
            CHECK_INT(f.lost, ==, fails);
            CHECK_INT(atom_load(&lost_count), ==, 0); /* the caller has it */
            item = (struct item){
                .fail_stage = item.fail_stage, .error = item.error, .wait_stage = item.wait_stage};
            CHECK_OK(weir_pipeline_send(pipeline, &item));
            weir_pipeline_stop(pipeline, WEIR_DRAIN);
            CHECK_OK(weir_pipeline_wait(pipeline));
            CHECK_INT(atom_load(&lost_count), ==, fails);
            if (fails) {
                CHECK_INT(atom_load(&lost_error), ==, row->expected);
                CHECK_INT(atom_load(&lost_trail), ==, 1);
                CHECK_INT(atom_load(&lost_stage), ==, 1);
            }
            check_conserved(pipeline, 3);
        }
        CHECK_OK(result);
    }
    return 0;
}

/* ---- The caller's time ---- */

static int call_item(void *arg)
{
    struct stream *stream = arg;
    struct item item = {.wait_stage = stream->count};
    int r = weir_pipeline_call(stream->pipeline, &item, NULL);
    return r == WEIR_ECLOSED ? 0 : r;
}

FLOW_TEST(pipeline_call_that_is_cancelled_is_removed_or_lost)
{
    weir_stage_spec stages[3];
    weir_pipeline_spec spec = three(stages);
    weir_pipeline_figures f;
    weir_pipeline *pipeline;
    int result, r = 0;

    reset();
    FLOW_SCOPE(scope, &result)
    {
        struct stream stream = {.count = 1};
        CHECK_OK(weir_event_open(scope, "gate", &places[0].gate));
        CHECK_OK(weir_event_open(scope, "gate", &places[1].gate));
        CHECK_OK(weir_pipeline_open(scope, &spec, &pipeline));
        stream.pipeline = pipeline;
        /* In work: the stage goes on, and its item is lost after it. */
        WEIR_DEADLINE(5) {
            r = weir_pipeline_call(pipeline, &(struct item){.wait_stage = 2}, NULL);
        }
        CHECK_INT(r, ==, WEIR_ETIMEDOUT);
        weir_event_set(places[1].gate);
        settle();
        weir_pipeline_figures_of(pipeline, &f);
        CHECK_INT(f.lost, ==, 1);
        CHECK_INT(atom_load(&lost_count), ==, 1);
        CHECK_INT(atom_load(&lost_error), <, 0);
        CHECK_INT(f.inside, ==, 0);
        /* In the first queue: it never happens. */
        CHECK_OK(weir_spawn(scope, call_item, &stream, sizeof stream));
        settle();
        WEIR_DEADLINE(5) { r = weir_pipeline_call(pipeline, &(struct item){0}, NULL); }
        CHECK_INT(r, ==, WEIR_ETIMEDOUT);
        weir_pipeline_figures_of(pipeline, &f);
        CHECK_INT(f.removed, ==, 1);
        CHECK_INT(f.inside, ==, 1);
        weir_event_set(places[0].gate);
        CHECK_OK(weir_scope_join(scope));
        CHECK_INT(atom_load(&places[0].entered), ==, 2);
        check_conserved(pipeline, 3);
    }
    return result;
}

FLOW_TEST(pipeline_works_on_nothing_whose_budget_is_used_up)
{
    weir_stage_spec stages[3];
    weir_pipeline_spec spec = three(stages);
    weir_stage_figures s;
    weir_pipeline *pipeline;
    int result;

    reset();
    for (int i = 0; i < 3; i++) stages[i].timeout_ms = 10;
    spec.budget_ms = 30;
    stages[0].timeout_ms = 9;
    stages[1].on_failure = WEIR_STAGE_SKIP; /* not even then */
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_event_open(scope, "gate", &places[0].gate));
        CHECK_OK(weir_pipeline_open(scope, &spec, &pipeline));
        /* Each holds the first stage for its timeout; the last one's budget is over by then. */
        for (int i = 0; i < 6; i++) {
            CHECK_OK(weir_pipeline_send(pipeline, &(struct item){.wait_stage = 1}));
        }
        weir_pipeline_stop(pipeline, WEIR_DRAIN);
        CHECK_OK(weir_pipeline_wait(pipeline));
        CHECK_INT(atom_load(&lost_count), ==, 6);
        CHECK_INT(atom_load(&lost_error), ==, WEIR_ETIMEDOUT);
        CHECK_INT(atom_load(&places[0].entered), <, 6);
        CHECK_OK(weir_pipeline_stage_figures(pipeline, 0, &s));
        CHECK_INT(s.timeouts, ==, 6);
        check_conserved(pipeline, 3);
    }
    return result;
}

/* ---- Pools ---- */

static const weir_pool_class one_class[] = {{.name = "work", .weight = 1, .queue_max = 64}};
static const weir_pool_spec small_pool = {.name = "pool",
                                          .threads_max = 2,
                                          .overflow = WEIR_WAIT,
                                          .on_close = WEIR_DRAIN,
                                          .classes = one_class,
                                          .class_count = 1};

static ATOM(bool) pool_gate;

static int step_in_pool(void *data, void *keep_arg)
{
    struct item *item = data;
    struct place *place = keep_arg;

    CHECK_INT(weir_worker_index(), ==, -1);
    (void)atom_add(&place->entered, 1);
    while (item->wait_stage == place->digit && !atom_load_acquire(&pool_gate)) {
        if (weir_pool_told()) break;
    }
    item->trail = item->trail * 10 + place->digit;
    return item->fail_stage == place->digit ? item->error : 0;
}

FLOW_TEST(pipeline_stage_runs_in_a_pool_and_a_late_job_touches_nothing)
{
    weir_stage_spec stages[3];
    weir_pipeline_spec spec = three(stages);
    weir_pipeline *pipeline;
    weir_pool *pool;
    int result;

    reset();
    atom_store(&pool_gate, false);
    stages[1].fn = step_in_pool;
    stages[1].timeout_ms = 200 * test_slower();
    stages[1].on_failure = WEIR_STAGE_SKIP;
    spec.budget_ms = 15000 + 200 * test_slower();
    FLOW_SCOPE(scope, &result)
    {
        struct item item = {0};
        CHECK_OK(weir_pool_open(scope, &small_pool, &pool));
        stages[1].pool = pool;
        CHECK_OK(weir_pipeline_open(scope, &spec, &pipeline));
        CHECK_INT(weir_pipeline_call(pipeline, &item, NULL), ==, 0);
        CHECK_INT(item.trail, ==, 123);
        item = (struct item){.fail_stage = 2, .error = -EDOM};
        CHECK_INT(weir_pipeline_call(pipeline, &item, NULL), ==, WEIR_PARTIAL);
        CHECK_INT(item.trail, ==, 13);
        item = (struct item){.wait_stage = 2};
        CHECK_INT(weir_pipeline_call(pipeline, &item, NULL), ==, WEIR_PARTIAL);
        CHECK_INT(item.trail, ==, 13);
        atom_store_release(&pool_gate, true);
        check_conserved(pipeline, 3);
    }
    return result;
}

/* ---- The policy slot ---- */

struct fake_policy {
    int refuse_from; /* attempts from this number on are refused */
    int before, after;
    int results[8];
    int64_t again_ms;
};

static int fake_before(void *keep_state, const weir_stage_attempt *attempt)
{
    struct fake_policy *fake = keep_state;
    CHECK_STR(attempt->pipeline, "pipe");
    CHECK_STR(attempt->stage, "two");
    CHECK_INT(attempt->number, ==, ++fake->before);
    CHECK_INT(attempt->deadline_ns, >, weir_now_ns());
    if (fake->refuse_from && attempt->number >= fake->refuse_from) return WEIR_EOVERLOAD;
    return weir_yield();
}

static int64_t fake_after(void *keep_state, const weir_stage_attempt *attempt, int result,
                          int64_t run_ns)
{
    struct fake_policy *fake = keep_state;
    CHECK_INT(attempt->number, ==, fake->after + 1);
    CHECK_INT(run_ns, >=, 0);
    fake->results[fake->after++] = result;
    return result < 0 ? fake->again_ms : WEIR_STAGE_DONE;
}

/* Fails until it was called for the third time; every time it finds the item as it was. */
static int third_time(void *data, void *keep_arg)
{
    struct item *item = data;
    struct place *place = keep_arg;
    CHECK_INT(item->trail, ==, 1);
    item->trail = 77;
    if (atom_add(&place->entered, 1) + 1 < 3) return -EAGAIN;
    item->trail = 12;
    return 0;
}

struct policy_row {
    int attempts_max, refuse_from;
    int64_t again_ms;
    int expected, before, after;
};

FLOW_TEST(pipeline_policy_slot_decides_before_and_after_each_attempt)
{
    static const struct policy_row rows[] = {
        {5, 0, 1, 0, 3, 3},                     /* tried again until it succeeds */
        {2, 0, 1, -EAGAIN, 2, 2},               /* at most attempts_max times */
        {5, 0, WEIR_STAGE_DONE, -EAGAIN, 1, 1}, /* the policy wants no more */
        {5, 1, 1, WEIR_EOVERLOAD, 1, 0},        /* refused at once */
        {5, 2, 1, WEIR_EOVERLOAD, 2, 1},        /* refused later */
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct policy_row *row = &rows[i];
        struct fake_policy fake = {.refuse_from = row->refuse_from, .again_ms = row->again_ms};
        const weir_stage_policy policy = {.before = fake_before,
                                          .after = fake_after,
                                          .worst_case_ms = thrice,
                                          .attempts_max = row->attempts_max,
                                          .keep_state = &fake};
        weir_stage_spec stages[3];
        weir_pipeline_spec spec = three(stages);
        weir_stage_figures s;
        weir_pipeline *pipeline;
        int result;

        reset();
        test_note("row %zu", i);
        stages[1].fn = third_time;
        stages[1].keep_policy = &policy;
        stages[1].idempotent = true;
        stages[1].timeout_ms = 1000;
        FLOW_SCOPE(scope, &result)
        {
            struct item item = {0};
            CHECK_OK(weir_pipeline_open(scope, &spec, &pipeline));
            CHECK_INT(weir_pipeline_call(pipeline, &item, NULL), ==, row->expected);
            CHECK_INT(item.trail, ==, row->expected ? 1 : 123);
            CHECK_INT(fake.before, ==, row->before);
            CHECK_INT(fake.after, ==, row->after);
            for (int k = 0; k < fake.after; k++) {
                CHECK_INT(fake.results[k], ==, k < 2 ? -EAGAIN : 0);
            }
            CHECK_OK(weir_pipeline_stage_figures(pipeline, 1, &s));
            CHECK_INT(s.rejected, ==, row->refuse_from != 0);
            CHECK_INT(s.ran.count, ==, (uint64_t)row->after);
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

FLOW_TEST(pipeline_that_is_closed_is_freed_before_its_scope_ends)
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

/* ---- With something going wrong everywhere ---- */

struct swept {
    ATOM(int) out;
    int in;
};

static int receive_all(void *arg)
{
    struct swept *swept = *(struct swept **)arg;
    weir_pipeline *pipeline = ((weir_pipeline **)arg)[1];
    struct item item;
    int r;

    while ((r = weir_pipeline_recv(pipeline, &item, NULL)) >= 0) (void)atom_add(&swept->out, 1);
    return r == WEIR_ECLOSED ? 0 : r;
}

static int swept_task(void *arg)
{
    struct swept swept = {.in = 0};
    weir_stage_spec stages[3];
    weir_pipeline_spec spec = three(stages);
    weir_pipeline *pipeline = NULL;
    int result, r, called = 0;

    (void)arg;
    reset();
    stages[0].queue_max = 1;
    stages[1].on_failure = WEIR_STAGE_SKIP;
    spec.results_max = 1;
    WEIR_SCOPE(scope, &result, .name = "swept", .on_failure = WEIR_FAIL_FAST, .max_tasks = 8,
               .overflow = WEIR_REJECT) {
        r = weir_pipeline_open(scope, &spec, &pipeline);
        if (r == 0) {
            void *both[2] = {&swept, pipeline};
            r = weir_spawn(scope, receive_all, both, sizeof both);
        }
        for (int i = 0; r == 0 && i < 4; i++) {
            struct item item = {.fail_stage = i == 1 ? 2 : i == 2 ? 3 : 0, .error = -EIO};
            r = weir_pipeline_send(pipeline, &item);
            if (r == 0) swept.in++;
        }
        if (r == 0) {
            r = weir_pipeline_call(pipeline, &(struct item){0}, NULL);
            if (r == 0) called++;
        }
        if (r == 0) {
            weir_pipeline_stop(pipeline, WEIR_DRAIN);
            r = weir_pipeline_wait(pipeline);
        }
        if (r < 0) weir_scope_cancel(scope, r, "swept");
        result = r;
    }
    /* A call that was cut short may have left its item to the hook. */
    CHECK_INT(atom_load(&swept.out) + atom_load(&lost_count), >=, swept.in);
    CHECK_INT(atom_load(&swept.out) + atom_load(&lost_count), <=, swept.in + 1 - called);
    return result;
}

static int swept_scenario(void *arg)
{
    return weir_run(&(weir_config){.workers = test_workers(), .log_level = WEIR_LOG_OFF},
                    swept_task, arg);
}

TEST(pipeline_cancelled_anywhere_loses_no_item_silently)
{
    CHECK_INT(test_sweep_cancel(swept_scenario, NULL), >, 10);
}

TEST(pipeline_without_memory_loses_no_item_silently)
{
    CHECK_INT(test_sweep_alloc(swept_scenario, NULL), >, 4);
}

/* ---- Many at once ---- */

struct load {
    weir_pipeline *pipeline;
    ATOM(int) * finished;
    bool calls;
    bool short_of_time;
};

static int load_pipeline(void *arg)
{
    struct load *load = arg;
    for (int i = 0; i < 100; i++) {
        struct item item = {.id = i, .fail_stage = i % 10 == 9 ? 3 : 0, .error = -EIO};
        int r = 0;
        if (!load->calls) {
            r = weir_pipeline_send(load->pipeline, &item);
        } else if (load->short_of_time && i % 8 == 0) {
            WEIR_DEADLINE(1) { r = weir_pipeline_call(load->pipeline, &item, NULL); }
            if (r == WEIR_ETIMEDOUT) r = 0;
        } else {
            r = weir_pipeline_call(load->pipeline, &item, NULL);
            if (r == 0) {
                CHECK_INT(item.trail, ==, 123);
                CHECK_INT(item.id, ==, i);
                (void)atom_add(load->finished, 1);
            }
        }
        if (r < 0 && r != -EIO) return r;
    }
    return 0;
}

FLOW_TEST(pipeline_accounts_for_every_item_of_many_callers_and_senders)
{
    static ATOM(int) finished;
    int callers = TEST_SLOW ? 60 : 200;
    weir_stage_spec stages[3];
    weir_pipeline_spec spec = three(stages);
    weir_pipeline_figures f;
    weir_pipeline *pipeline;
    int result;

    reset();
    atom_store(&finished, 0);
    for (int i = 0; i < 3; i++) stages[i].concurrency = i + 1;
    FLOW_SCOPE_ANYWHERE(scope, &result)
    {
        CHECK_OK(weir_pipeline_open(scope, &spec, &pipeline));
        for (int i = 0; i < callers; i++) {
            struct load load = {pipeline, &finished, i % 2 == 0, i % 4 == 0};
            CHECK_OK(weir_spawn(scope, load_pipeline, &load, sizeof load));
        }
        CHECK_OK(weir_scope_join(scope));
        weir_pipeline_stop(pipeline, WEIR_DRAIN);
        CHECK_OK(weir_pipeline_wait(pipeline));
        weir_pipeline_figures_of(pipeline, &f);
        CHECK_INT(f.inside, ==, 0);
        CHECK_INT(f.accepted, ==, f.finished + f.lost + f.removed);
        CHECK_INT(f.finished, >=, atom_load(&finished));
        CHECK_INT(atom_load(&lost_count), <=, f.lost);
        check_conserved(pipeline, 3);
    }
    return result;
}

static int run_producer(void *arg)
{
    const struct stream *stream = arg;
    for (;;) {
        int r = weir_pipeline_send(stream->pipeline, &(struct item){0});
        if (r < 0) return r == WEIR_ECLOSED ? 0 : r;
    }
}

static int slow_step(void *data, void *keep_arg)
{
    (void)data;
    (void)atom_add(&((struct place *)keep_arg)->left, 1);
    return weir_sleep(1);
}

static void outrun(int for_ms)
{
    weir_stage_spec stages[3];
    weir_pipeline_spec spec = three(stages);
    weir_pipeline *pipeline;
    size_t bytes = 0;
    int result;

    reset();
    stages[2].fn = slow_step;
    FLOW_SCOPE_ANYWHERE(scope, &result)
    {
        CHECK_OK(weir_pipeline_open(scope, &spec, &pipeline));
        for (int i = 0; i < 20; i++) {
            struct stream stream = {.pipeline = pipeline};
            CHECK_OK(weir_spawn(scope, run_producer, &stream, sizeof stream));
        }
        for (int64_t until = weir_now_ns() + for_ms * INT64_C(1000000); weir_now_ns() < until;) {
            while (atom_load(&places[2].left) < 20) CHECK_OK(weir_sleep(1));
            CHECK_OK(weir_sleep(10));
            if (!bytes) bytes = test_live_bytes();
            CHECK_INT(test_live_bytes(), <=, bytes + 4096);
            check_conserved(pipeline, 3);
        }
        weir_pipeline_stop(pipeline, WEIR_DRAIN);
    }
    CHECK_OK(result);
    CHECK_INT(atom_load(&lost_count), ==, 0);
}

FLOW_TEST(pipeline_stays_at_its_bounds_while_producers_outrun_it)
{
    outrun(100);
    return 0;
}

static int outrun_for_long(void *arg)
{
    (void)arg;
    outrun(10000);
    return 0;
}

TEST_WITH(pipeline_stays_at_its_bounds_for_ten_seconds, .long_only = true, .timeout_ms = 60000)
{
    CHECK_OK(flow_test_run(outrun_for_long));
}

/* ---- Blast radius ---- */

FLOW_TEST(pipeline_that_is_stuck_saturated_and_failing_leaves_its_neighbour_alone)
{
    weir_stage_spec bad_stages[3], good_stages[3];
    weir_pipeline_spec bad_spec = three(bad_stages), good_spec = three(good_stages);
    weir_pipeline *bad, *good;
    weir_pool *bad_pool, *good_pool;
    weir_pool_figures f;
    int result, inner, rejected = 0;

    reset();
    atom_store(&pool_gate, false);
    bad_stages[0].overflow = WEIR_REJECT;
    bad_stages[1].fn = step_in_pool;
    bad_stages[1].concurrency = 4;
    bad_stages[2].concurrency = 4;
    good_stages[1].fn = step_in_pool;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_pool_open(scope, &small_pool, &good_pool));
        good_stages[1].pool = good_pool;
        CHECK_OK(weir_pipeline_open(scope, &good_spec, &good));
        WEIR_SCOPE(owner, &inner, .name = "bad", .on_failure = WEIR_COLLECT, .max_tasks = 16,
                   .overflow = WEIR_REJECT, .place = WEIR_PLACE_HERE) {
            CHECK_OK(weir_pool_open(owner, &small_pool, &bad_pool));
            bad_stages[1].pool = bad_pool;
            CHECK_OK(weir_pipeline_open(owner, &bad_spec, &bad));
            /* Its pool's threads are stuck, and its queues are full, all the while. */
            for (int i = 0; i < 100; i++) {
                struct item item = {.wait_stage = 2, .fail_stage = 3, .error = -EIO};
                struct item well = {0};
                int r = weir_pipeline_send(bad, &item);
                CHECK(r == 0 || r == WEIR_EOVERLOAD);
                rejected += r == WEIR_EOVERLOAD;
                CHECK_INT(weir_pipeline_call(good, &well, NULL), ==, 0);
                CHECK_INT(well.trail, ==, 123);
            }
            CHECK_INT(rejected, >, 80);
            CHECK_OK(weir_pool_figures_of(good_pool, 0, &f));
            CHECK_INT(f.finished, ==, 100);
            check_conserved(bad, 3);
            check_conserved(good, 3);
            atom_store_release(&pool_gate, true);
        }
        CHECK_OK(inner);
        CHECK_INT(atom_load(&lost_count), ==, 100 - rejected); /* each has failed, by itself */
        CHECK_INT(weir_pipeline_call(good, &(struct item){0}, NULL), ==, 0);
    }
    return result;
}

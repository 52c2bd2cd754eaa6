/* flow_pipeline.c - pipelines in simulation: what goes in comes out once, or is told of. */
#include "sim/flow_program.h"

enum { CALLERS = 3, SENDERS = 2, RECEIVERS = 2, ITEMS = 3, ITEMS_MAX = 8 };

struct item {
    int number;
    int doubled;  /* by the first stage */
    int squared;  /* by the second, which is optional */
    int sleep_ms; /* that the second one takes */
};

struct line {
    weir_pipeline *pipeline;
    int at_first; /* items that the first stage, of one at a time, works on */
    int at_second;
    int accepted[ITEMS_MAX], out[ITEMS_MAX], lost[ITEMS_MAX];
    int returned, receivers_done, senders_left;
};

struct hand {
    struct line *line;
    int index;
    int sleep_ms;
};

static int linger_at(int *at, int most, int64_t sleep_ms)
{
    int r;

    CHECK_INT(++*at, <=, most);
    r = sleep_ms > 0 ? weir_sleep(sleep_ms) : weir_yield();
    --*at;
    return r;
}

static int double_it(void *data, void *arg)
{
    struct item *item = data;
    struct line *line = arg;
    int r = linger_at(&line->at_first, 1, 0);

    if (r < 0) return r;
    item->doubled = 2 * item->number;
    return 0;
}

/* Of numbers that are odd it fails, having changed its copy. */
static int square_it(void *data, void *arg)
{
    struct item *item = data;
    struct line *line = arg;
    int r;

    CHECK_INT(item->doubled, ==, 2 * item->number);
    item->squared = -1;
    r = linger_at(&line->at_second, 2, item->sleep_ms);
    if (r < 0) return r;
    if (item->number % 2) return -5;
    item->squared = item->number * item->number;
    return 0;
}

static void note_lost(void *data, const weir_lost *lost, void *arg)
{
    const struct item *item = data;
    struct line *line = arg;

    CHECK_INT(lost->error, <, 0);
    CHECK(item->number >= 0 && item->number < ITEMS_MAX);
    CHECK_INT(++line->lost[item->number], ==, 1);
}

static bool open_line(weir_scope *scope, struct line *line, size_t results_max)
{
    const weir_stage_spec stages[] = {{.name = "double",
                                       .fn = double_it,
                                       .keep_arg = line,
                                       .concurrency = 1,
                                       .queue_max = 1,
                                       .overflow = WEIR_WAIT,
                                       .timeout_ms = 100,
                                       .on_failure = WEIR_STAGE_FAIL},
                                      {.name = "square",
                                       .fn = square_it,
                                       .keep_arg = line,
                                       .concurrency = 2,
                                       .queue_max = 1,
                                       .overflow = WEIR_WAIT,
                                       .timeout_ms = 100,
                                       .on_failure = WEIR_STAGE_SKIP}};
    weir_pipeline_spec spec = {.name = "line",
                               .item_bytes = sizeof(struct item),
                               .budget_ms = 1000,
                               .stages = stages,
                               .stage_count = 2,
                               .on_lost = note_lost,
                               .keep_arg = line,
                               .results_max = results_max};
    int r = weir_pipeline_open(scope, &spec, &line->pipeline);

    CHECK(r == 0 || r == WEIR_ECANCELED);
    return r == 0;
}

/* It is what the stages make of that number, and says so if one was left out. */
static void check_result(const struct item *item, int r, const weir_outcome *outcome)
{
    bool skipped = item->number % 2 || item->sleep_ms > 100;

    CHECK_INT(r, ==, skipped ? WEIR_PARTIAL : 0);
    CHECK_INT(outcome->skipped, ==, skipped ? 2 : 0);
    CHECK_INT(outcome->skip_error, ==, !skipped ? 0 : item->sleep_ms > 100 ? WEIR_ETIMEDOUT : -5);
    CHECK_INT(item->doubled, ==, 2 * item->number);
    CHECK_INT(item->squared, ==, skipped ? 0 : item->number * item->number);
}

static void check_figures(const struct line *line)
{
    weir_pipeline_figures figures;

    weir_pipeline_figures_of(line->pipeline, &figures);
    CHECK_INT(figures.accepted, ==,
              figures.inside + figures.finished + figures.lost + figures.removed);
    for (unsigned i = 0; i < 2; i++) {
        weir_stage_figures stage;
        CHECK_OK(weir_pipeline_stage_figures(line->pipeline, i, &stage));
        CHECK_INT(stage.entered, ==,
                  stage.depth + (uint64_t)stage.running + stage.finished + stage.skipped +
                      stage.failed + stage.removed);
        CHECK_INT(stage.depth_max, <=, 1);
        CHECK_INT(stage.running_max, <=, stage.concurrency);
    }
}

static int cancel_task(void *arg)
{
    weir_task task = *(weir_task *)arg;

    (void)weir_task_cancel(task, "the program says so");
    return 0;
}

/* ---- Calls ---- */

static int call_twice(void *arg)
{
    const struct hand *hand = arg;
    struct line *line = hand->line;

    for (int i = 0; i < 2; i++) {
        struct item item = {.number = 2 * hand->index + i, .sleep_ms = hand->sleep_ms};
        weir_outcome outcome = {0};
        int r = weir_pipeline_call(line->pipeline, &item, &outcome);
        CHECK_INT(item.number, ==, 2 * hand->index + i);
        if (r < 0) {
            CHECK(flow_is_end(r));
            flow_linger(); /* nobody writes to the item of one that has left */
            if (r == WEIR_ECANCELED) CHECK_INT(item.doubled + item.squared, ==, 0);
            return 0;
        }
        check_result(&item, r, &outcome);
        line->out[item.number]++;
        line->returned++;
    }
    return 0;
}

static int call_all(bool cancels, int sleep_ms)
{
    struct line line = {.returned = 0};
    weir_scope *outer = flow_scope_open(), *scope = NULL;
    weir_task second = {NULL, 0};

    if (!outer) return 0;
    if (open_line(outer, &line, 0)) scope = flow_scope_open();
    if (scope) {
        for (int i = 0; i < CALLERS; i++) {
            struct hand hand = {&line, i, i == 1 ? sleep_ms : 0};
            (void)flow_spawn(scope, i, call_twice, &hand, sizeof hand, i == 1 ? &second : NULL);
        }
        if (cancels && second.ref) {
            (void)flow_spawn(scope, 0, cancel_task, &second, sizeof second, NULL);
        }
        flow_scope_close(scope);
        check_figures(&line);
        weir_pipeline_stop(line.pipeline, WEIR_DRAIN);
    }
    flow_scope_close(outer);
    for (int i = 0; i < ITEMS_MAX; i++) CHECK_INT(line.out[i] + line.lost[i], <=, 1);
    CHECK_INT(line.at_first + line.at_second, ==, 0);
    return line.returned;
}

int flow_call_pipeline(bool cancels)
{
    return call_all(cancels, 0);
}

SIM_TEST(pipeline_gives_each_caller_its_own_result, .runs_max = 4000, .config = FLOW_HOST)
{
    CHECK_INT(flow_call_pipeline(false), ==, 2 * CALLERS);
    return 0;
}

SIM_TEST(pipeline_goes_on_when_a_caller_has_left, .runs_max = 4000, .config = FLOW_HOST)
{
    CHECK_INT(flow_call_pipeline(true), >=, 2 * (CALLERS - 1));
    return 0;
}

SIM_TEST(pipeline_does_without_a_stage_that_takes_too_long, .runs_max = 4000, .config = FLOW_HOST)
{
    CHECK_INT(call_all(false, 150), ==, 2 * CALLERS);
    return 0;
}

SIM_TEST(pipeline_and_callers_end_with_a_cancel_of_all, .runs_max = 4000, .config = FLOW_HOST,
         FLOW_CANCELS_ONCE)
{
    return flow_call_pipeline(false);
}

/* ---- A stream ---- */

static int send_items(void *arg)
{
    const struct hand *hand = arg;
    struct line *line = hand->line;
    int r = 0;

    for (int i = 0; i < ITEMS && r == 0; i++) {
        struct item item = {.number = hand->index * ITEMS + i};
        r = weir_pipeline_send(line->pipeline, &item);
        CHECK(r == 0 || flow_is_end(r));
        if (r == 0) line->accepted[item.number]++;
    }
    if (--line->senders_left == 0) weir_pipeline_stop(line->pipeline, WEIR_DRAIN);
    return 0;
}

static int receive_items(void *arg)
{
    const struct hand *hand = arg;
    struct line *line = hand->line;

    for (;;) {
        struct item item = {.number = -1};
        weir_outcome outcome;
        int r = weir_pipeline_recv(line->pipeline, &item, &outcome);
        if (r < 0) {
            CHECK(flow_is_end(r));
            CHECK_INT(item.number, ==, -1);
            if (r == WEIR_ECLOSED) line->receivers_done++;
            return 0;
        }
        CHECK(item.number >= 0 && item.number < ITEMS_MAX);
        check_result(&item, r, &outcome);
        CHECK_INT(++line->out[item.number], ==, 1);
    }
}

static int abort_line(void *arg)
{
    const struct hand *hand = arg;

    weir_pipeline_stop(hand->line->pipeline, WEIR_DISCARD);
    return 0;
}

static void spawn_hands(weir_scope *scope, struct line *line, bool cancels, bool aborts)
{
    weir_task first = {NULL, 0};

    line->senders_left = SENDERS;
    for (int i = 0; i < RECEIVERS; i++) {
        struct hand hand = {line, i, 0};
        (void)flow_spawn(scope, i, receive_items, &hand, sizeof hand, i == 0 ? &first : NULL);
    }
    for (int i = 0; i < SENDERS; i++) {
        struct hand hand = {line, i, 0};
        (void)flow_spawn(scope, i, send_items, &hand, sizeof hand, NULL);
    }
    if (cancels && first.ref) {
        (void)flow_spawn(scope, 1, cancel_task, &first, sizeof first, NULL);
    }
    if (aborts) {
        (void)flow_spawn(scope, 1, abort_line, &(struct hand){line, 0, 0}, sizeof(struct hand),
                         NULL);
    }
}

static int stream(bool cancels, bool aborts)
{
    struct line line = {.returned = 0};
    weir_scope *outer = flow_scope_open(), *scope = NULL;
    bool ended = false;

    if (!outer) return 0;
    if (open_line(outer, &line, 1)) scope = flow_scope_open();
    if (scope) {
        spawn_hands(scope, &line, cancels, aborts);
        flow_scope_close(scope);
        check_figures(&line);
        ended = line.senders_left == 0;
    }
    flow_scope_close(outer);
    for (int i = 0; i < ITEMS_MAX && ended; i++) {
        CHECK_INT(line.out[i] + line.lost[i], ==, line.accepted[i]);
        if (!aborts && weir_checkpoint() == 0) CHECK_INT(line.lost[i], ==, 0);
    }
    CHECK_INT(line.at_first + line.at_second, ==, 0);
    return line.receivers_done;
}

int flow_stream(bool cancels)
{
    return stream(cancels, false);
}

SIM_TEST(stream_comes_out_once_and_whole, .runs_max = 4000, .config = FLOW_HOST)
{
    CHECK_INT(flow_stream(false), ==, RECEIVERS);
    return 0;
}

SIM_TEST(stream_goes_to_the_receiver_that_is_left, .runs_max = 4000, .config = FLOW_HOST)
{
    CHECK_INT(flow_stream(true), >=, RECEIVERS - 1);
    return 0;
}

SIM_TEST(stream_that_is_aborted_loses_nothing_untold, .runs_max = 4000, .config = FLOW_HOST)
{
    (void)stream(false, true);
    return 0;
}

SIM_TEST(stream_ends_with_a_cancel_of_all, .runs_max = 4000, .config = FLOW_HOST, FLOW_CANCELS_ONCE)
{
    (void)stream(true, false);
    return 0;
}

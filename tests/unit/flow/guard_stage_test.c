/* guard_stage_test.c - guards in the policy slots of stages. */
#include "unit/flow/guard_test.h"
#include "unit/flow/pipeline_test.h"

/* What the attempts of the stage do: results one after the other, the last one for all others. */
struct plan {
    int results[6];
    int count;
    int64_t sleep_ms;
    ATOM(int) begun;
};

static int follow_plan(void *data, void *keep_arg)
{
    struct plan *plan = keep_arg;
    struct item *item = data;
    int number = atom_add(&plan->begun, 1);
    int r = 0;

    item->trail = item->trail * 10 + 2;
    if (plan->sleep_ms > 0) r = weir_sleep(plan->sleep_ms);
    return r < 0 ? r : plan->results[number < plan->count ? number : plan->count - 1];
}

/* Three stages, of which the second is guarded. */
static weir_pipeline *open_guarded(weir_scope *scope, weir_guard *guard, struct plan *plan)
{
    weir_stage_spec stages[3];
    weir_pipeline_spec spec = three(stages);
    weir_pipeline *pipeline;

    reset();
    stages[1].fn = follow_plan;
    stages[1].keep_arg = plan;
    stages[1].timeout_ms = 100;
    stages[1].idempotent = true;
    stages[1].keep_policy = weir_guard_stage_policy(guard);
    CHECK(stages[1].keep_policy != NULL);
    CHECK_OK(weir_pipeline_open(scope, &spec, &pipeline));
    return pipeline;
}

static void check_nothing_held(weir_guard *guard, uint64_t calls)
{
    weir_guard_figures f;
    weir_guard_figures_of(guard, &f);
    CHECK_INT(f.went_well + f.failed + f.refused + f.canceled, ==, calls);
}

FLOW_TEST_CLOCK(stage_with_a_guard_is_tried_again_as_the_guard_says)
{
    static const struct {
        struct plan plan;
        int expected, begun, trail;
    } rows[] = {
        {{{0}, 1, 0}, 0, 1, 123},
        {{{-EAGAIN, -EAGAIN, 0}, 3, 0}, 0, 3, 123},
        {{{-EAGAIN}, 1, 0}, -EAGAIN, 3, 1},
        {{{-EAGAIN, -EIO}, 2, 0}, -EIO, 2, 1},
        {{{0}, 1, 200}, WEIR_ETIMEDOUT, 3, 1}, /* the stage's timeout_ms is that of an attempt */
    };
    weir_guard_spec spec = guard_spec();
    weir_guard_figures f;
    int result;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct plan plan = {.count = rows[i].plan.count, .sleep_ms = rows[i].plan.sleep_ms};
        test_note("row %zu", i);
        memcpy(plan.results, rows[i].plan.results, sizeof plan.results);
        FLOW_SCOPE(scope, &result)
        {
            weir_guard *guard = open_guard(scope, &spec);
            weir_pipeline *pipeline = open_guarded(scope, guard, &plan);
            struct item item = {0};
            CHECK_INT(weir_pipeline_call(pipeline, &item, NULL), ==, rows[i].expected);
            CHECK_INT(item.trail, ==, rows[i].trail);
            CHECK_INT(atom_load(&plan.begun), ==, rows[i].begun);
            weir_guard_figures_of(guard, &f);
            CHECK_INT(f.attempts, ==, (uint64_t)rows[i].begun);
            CHECK_INT(f.went_well, ==, rows[i].expected == 0);
            check_conserved(pipeline, 3);
        }
        CHECK_OK(result);
    }
    return 0;
}

FLOW_TEST_CLOCK(stage_is_refused_by_its_open_breaker_and_says_so)
{
    struct plan plan = {.results = {-EIO}, .count = 1};
    weir_guard_spec spec = guard_spec();
    weir_stage_figures s;
    weir_breaker_figures b;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        weir_pipeline *pipeline;
        weir_guard *guard;
        spec.keep_breaker = open_breaker(scope);
        guard = open_guard(scope, &spec);
        pipeline = open_guarded(scope, guard, &plan);
        for (int i = 0; i < 5; i++) {
            struct item item = {0};
            CHECK_INT(weir_pipeline_call(pipeline, &item, NULL), ==, i < 2 ? -EIO : WEIR_EBREAKER);
            CHECK_INT(item.trail, ==, 1);
        }
        CHECK_INT(atom_load(&plan.begun), ==, 2);
        CHECK_OK(weir_pipeline_stage_figures(pipeline, 1, &s));
        CHECK_INT(s.rejected, ==, 3);
        weir_breaker_figures_of(spec.keep_breaker, &b);
        CHECK_INT(b.failed, ==, 2);
        CHECK_INT(b.refused, ==, 3);
        CHECK_OK(weir_sleep(100));
        plan = (struct plan){.count = 1};
        struct item item = {0};
        CHECK_OK(weir_pipeline_call(pipeline, &item, NULL));
        CHECK_INT(item.trail, ==, 123);
        check_nothing_held(guard, 6);
    }
    return result;
}

/* Of two stages, and of a call beside them, with one budget and one breaker. */
FLOW_TEST_CLOCK(guard_is_shared_by_stages_and_calls)
{
    struct plan plan = {.results = {-EAGAIN}, .count = 1}, other = plan;
    weir_guard_spec spec = guard_spec();
    weir_guard_figures f;
    weir_retry_budget_figures b;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        struct script script = SCRIPT({0, -EAGAIN});
        weir_pipeline *pipelines[2];
        weir_guard *guard;
        struct item item = {0};
        spec.retry.keep_budget = open_budget(scope, 4);
        guard = open_guard(scope, &spec);
        pipelines[0] = open_guarded(scope, guard, &plan);
        pipelines[1] = open_guarded(scope, guard, &other);
        CHECK_INT(weir_pipeline_call(pipelines[0], &item, NULL), ==, -EAGAIN);
        item = (struct item){0};
        CHECK_INT(weir_pipeline_call(pipelines[1], &item, NULL), ==, -EAGAIN);
        CHECK_INT(call_script(guard, &script, NULL, NULL), ==, -EAGAIN);
        weir_guard_figures_of(guard, &f);
        CHECK_INT(f.attempts, ==, 3 + 3 + 1); /* four retries, and the budget is spent */
        weir_retry_budget_figures_of(spec.retry.keep_budget, &b);
        CHECK_INT(b.calls, ==, 3);
        CHECK_INT(b.taken, ==, 4);
    }
    return result;
}

static void keep_letter(const weir_letter *letter, const void *item, void *keep_arg)
{
    (void)letter, (void)item;
    ++*(int *)keep_arg;
}

FLOW_TEST_CLOCK(stage_hands_over_what_exhausted_its_guard)
{
    struct plan plan = {.results = {-EAGAIN}, .count = 1};
    weir_guard_spec spec = guard_spec();
    weir_dead_letters *sink;
    weir_letter letter;
    struct item item;
    int result, lost = 0;

    FLOW_SCOPE(scope, &result)
    {
        weir_pipeline *pipeline;
        CHECK_OK(weir_dead_letters_open(scope,
                                        &(weir_dead_letters_spec){.name = "dead",
                                                                  .capacity = 2,
                                                                  .item_bytes_max = sizeof item,
                                                                  .overflow = WEIR_DROP_OLDEST,
                                                                  .on_lost = keep_letter,
                                                                  .keep_arg = &lost},
                                        &sink));
        spec.retry.on_exhausted = WEIR_EXHAUSTED_DEAD_LETTER;
        spec.retry.keep_dead_letters = sink;
        pipeline = open_guarded(scope, open_guard(scope, &spec), &plan);
        item = (struct item){.id = 7};
        CHECK_OK(weir_pipeline_send(pipeline, &item));
        weir_pipeline_stop(pipeline, WEIR_DRAIN);
        CHECK_OK(weir_pipeline_wait(pipeline));
        CHECK_INT(atom_load(&lost_count), ==, 1); /* on_lost has it, too */
        item = (struct item){0};
        CHECK_INT(weir_dead_letters_take(sink, 0, &letter, &item, sizeof item), ==, 1);
        CHECK_STR(letter.source, "pipe/two");
        CHECK_INT(letter.reason, ==, WEIR_LETTER_ATTEMPTS);
        CHECK_INT(letter.error, ==, -EAGAIN);
        CHECK_INT(letter.attempt_count, ==, 3);
        CHECK_INT(item.id, ==, 7);
        CHECK_INT(item.trail, ==, 1); /* as it came to the stage */
    }
    return result;
}

/* The stage is cancelled in an attempt, and between two: the probe's place is free again. */
FLOW_TEST_CLOCK(stage_that_is_cancelled_gives_back_what_it_was_let_in_with)
{
    static const struct plan plans[] = {{.count = 1, .sleep_ms = 90},
                                        {.results = {-EAGAIN}, .count = 1}};
    int result = 0;

    for (size_t i = 0; i < 2; i++) {
        weir_guard_spec spec = guard_spec();
        struct plan plan = {.count = 1, .sleep_ms = plans[i].sleep_ms};
        test_note("plan %zu", i);
        memcpy(plan.results, plans[i].results, sizeof plan.results);
        spec.retry.backoff_ms = spec.retry.backoff_ms_max = 300;
        FLOW_SCOPE(scope, &result)
        {
            weir_breaker_figures b;
            weir_breaker_pass pass;
            weir_pipeline *pipeline;
            weir_guard *guard;
            spec.keep_breaker = open_breaker(scope);
            guard = open_guard(scope, &spec);
            pipeline = open_guarded(scope, guard, &plan);
            weir_breaker_trip(spec.keep_breaker);
            CHECK_OK(weir_sleep(100));
            CHECK_OK(weir_pipeline_send(pipeline, &(struct item){0}));
            settle();
            CHECK_INT(atom_load(&plan.begun), ==, 1);
            CHECK_INT(weir_breaker_enter(spec.keep_breaker, &pass), ==, WEIR_EBREAKER);
            weir_pipeline_stop(pipeline, WEIR_DISCARD);
            CHECK_INT(weir_pipeline_wait(pipeline), ==, WEIR_ECANCELED);
            weir_breaker_figures_of(spec.keep_breaker, &b);
            CHECK_INT(b.silent, ==, 1);
            CHECK_OK(weir_breaker_enter(spec.keep_breaker, &pass)); /* its place is free */
            weir_breaker_leave(spec.keep_breaker, &pass, 0);
            check_nothing_held(guard, 1);
        }
        CHECK_OK(result);
    }
    return result;
}

/* The item's budget passes in an attempt: that is a failure of the stage, not a cancellation. */
FLOW_TEST_CLOCK(stage_whose_item_runs_out_of_time_has_failed_for_the_breaker)
{
    struct plan plan = {.count = 1, .sleep_ms = 90};
    weir_guard_spec spec = {.name = "guard", .timeout_ms = 100};
    weir_breaker_figures b;
    int result, r = 0;

    FLOW_SCOPE(scope, &result)
    {
        weir_pipeline *pipeline;
        struct item item = {0};
        spec.keep_breaker = open_breaker(scope);
        pipeline = open_guarded(scope, open_guard(scope, &spec), &plan);
        WEIR_DEADLINE(50) r = weir_pipeline_call(pipeline, &item, NULL);
        CHECK_INT(r, ==, WEIR_ETIMEDOUT);
        weir_pipeline_stop(pipeline, WEIR_DRAIN);
        CHECK_OK(weir_pipeline_wait(pipeline));
        weir_breaker_figures_of(spec.keep_breaker, &b);
        CHECK_INT(b.failed, ==, 1);
        CHECK_INT(b.silent, ==, 0);
    }
    return result;
}

static int nothing_else(void *arg, int error, void *keep_arg)
{
    (void)arg, (void)keep_arg;
    return error;
}

FLOW_TEST(stage_refuses_a_guard_that_does_not_fit)
{
    weir_stage_spec stages[3];
    weir_pipeline_spec pipeline_spec = three(stages);
    weir_guard_spec spec = guard_spec();
    weir_pipeline *pipeline;
    int result;

    reset();
    FLOW_SCOPE(scope, &result)
    {
        stages[1].keep_policy = weir_guard_stage_policy(open_guard(scope, &spec));
        CHECK_INT(weir_pipeline_open(scope, &pipeline_spec, &pipeline), ==, WEIR_EREFUSED);
        CHECK_CONTAINS(weir_why(), "stage 'two' is not declared idempotent");
        stages[1].idempotent = true; /* 5000 + 3 * 5000 + 30 + 5000 */
        CHECK_INT(weir_pipeline_open(scope, &pipeline_spec, &pipeline), ==, WEIR_EREFUSED);
        CHECK_CONTAINS(weir_why(), "its stages take 25030 ms at worst");
        spec.fallback = nothing_else;
        CHECK(weir_guard_stage_policy(open_guard(scope, &spec)) == NULL);
        CHECK_CONTAINS(weir_why(), "guard 'guard': a stage has a fallback of its own");
        spec.fallback = NULL;
        spec.hedge_after_ms = 10;
        spec.retry.keep_budget = open_budget(scope, 1);
        CHECK(weir_guard_stage_policy(open_guard(scope, &spec)) == NULL);
        CHECK_CONTAINS(weir_why(), "guard 'guard': a stage cannot be hedged");
    }
    return result;
}

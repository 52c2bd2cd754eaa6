/* breaker_object_test.c - a breaker that tasks share: its spec, its hook, its figures. */
#include "rt/runtime.h"
#include "unit/flow/guard_test.h"

FLOW_TEST(breaker_spec_names_what_is_missing_or_contradicts)
{
    weir_breaker_spec good = breaker_spec(), specs[12];
    static const char *const why[] = {
        "breaker: name is not set",
        "breaker 'breaker': exactly one of window_calls and window_ms must be set",
        "breaker 'breaker': exactly one of window_calls and window_ms must be set",
        "breaker 'breaker': window_calls is 1025, at most 1024",
        "breaker 'breaker': window_ms is 15, at least 16",
        "breaker 'breaker': calls_min is not set",
        "breaker 'breaker': calls_min, 11, is more than window_calls, 10",
        "breaker 'breaker': failure_percent is 0, must be 1 to 100",
        "breaker 'breaker': failure_percent is 101, must be 1 to 100",
        "breaker 'breaker': slow_percent and slow_ms belong together",
        "breaker 'breaker': open_ms is not set",
        "breaker 'breaker': probes_max is not set",
    };
    weir_breaker *breaker = NULL;
    int result;

    for (size_t i = 0; i < 12; i++) specs[i] = good;
    specs[0].name = NULL;
    specs[1].window_calls = 0;
    specs[2].window_ms = 100;
    specs[3].window_calls = 1025;
    specs[4].window_calls = 0;
    specs[4].window_ms = 15;
    specs[5].calls_min = 0;
    specs[6].calls_min = 11;
    specs[7].failure_percent = 0;
    specs[8].failure_percent = 101;
    specs[9].slow_percent = 50;
    specs[10].open_ms = 0;
    specs[11].probes_max = 0;
    FLOW_SCOPE(scope, &result)
    {
        for (size_t i = 0; i < 12; i++) {
            CHECK_INT(weir_breaker_open(scope, &specs[i], &breaker), ==, WEIR_EREFUSED);
            CHECK_CONTAINS(weir_why(), why[i]);
        }
        CHECK(breaker == NULL);
        CHECK_OK(weir_breaker_open(scope, &good, &breaker));
        weir_breaker_close(breaker);
        weir_breaker_close(NULL);
    }
    return result;
}

struct changes {
    int count;
    struct {
        int from, to;
        int64_t at_ns;
    } seen[8];
};

static void note_change(const weir_breaker_change *change, void *keep_arg)
{
    struct changes *changes = keep_arg;
    CHECK_STR(change->breaker, "breaker");
    CHECK_INT(change->number, ==, ++changes->count);
    changes->seen[changes->count - 1].from = (int)change->from;
    changes->seen[changes->count - 1].to = (int)change->to;
    changes->seen[changes->count - 1].at_ns = change->at_ns;
}

static void call(weir_breaker *breaker, int result)
{
    weir_breaker_pass pass;
    CHECK_OK(weir_breaker_enter(breaker, &pass));
    weir_breaker_leave(breaker, &pass, result);
}

FLOW_TEST_CLOCK(breaker_tells_each_change_once_and_counts_it)
{
    static const int moves[][2] = {{WEIR_BREAKER_CLOSED, WEIR_BREAKER_OPEN},
                                   {WEIR_BREAKER_OPEN, WEIR_BREAKER_HALF_OPEN},
                                   {WEIR_BREAKER_HALF_OPEN, WEIR_BREAKER_OPEN},
                                   {WEIR_BREAKER_OPEN, WEIR_BREAKER_HALF_OPEN},
                                   {WEIR_BREAKER_HALF_OPEN, WEIR_BREAKER_CLOSED}};
    weir_breaker_spec spec = breaker_spec();
    struct changes changes = {0};
    weir_breaker_figures f;
    weir_breaker_pass pass;
    weir_breaker *breaker;
    int64_t began_ns = weir_now_ns();
    int result;

    spec.on_change = note_change;
    spec.keep_arg = &changes;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_breaker_open(scope, &spec, &breaker));
        call(breaker, 0);
        call(breaker, WEIR_ECANCELED); /* says nothing */
        call(breaker, -EIO);
        CHECK_INT(weir_breaker_enter(breaker, &pass), ==, WEIR_EBREAKER);
        CHECK_OK(weir_sleep(100));
        call(breaker, -EIO);
        CHECK_INT(weir_breaker_enter(breaker, &pass), ==, WEIR_EBREAKER);
        CHECK_OK(weir_sleep(100));
        call(breaker, 0);
        CHECK_INT(changes.count, ==, 5);
        for (int i = 0; i < 5; i++) {
            CHECK_INT(changes.seen[i].from, ==, moves[i][0]);
            CHECK_INT(changes.seen[i].to, ==, moves[i][1]);
            CHECK_INT((changes.seen[i].at_ns - began_ns) / 1000000, ==, (i + 1) / 2 * 100);
        }
        weir_breaker_figures_of(breaker, &f);
        CHECK_INT(f.state, ==, WEIR_BREAKER_CLOSED);
        CHECK_INT(f.let_in, ==, 5);
        CHECK_INT(f.refused, ==, 2);
        CHECK_INT(f.went_well, ==, 2);
        CHECK_INT(f.failed, ==, 2);
        CHECK_INT(f.silent, ==, 1);
        CHECK_INT(f.opened, ==, 2);
        CHECK_INT(f.half_opened, ==, 2);
        CHECK_INT(f.closed, ==, 1);
        weir_breaker_trip(breaker);
        weir_breaker_reset(breaker);
        CHECK_INT(changes.count, ==, 7);
    }
    return result;
}

static bool only_resets(int result, void *keep_arg)
{
    ++*(int *)keep_arg;
    return result == -ECONNRESET;
}

FLOW_TEST(breaker_counts_as_failure_what_its_spec_says)
{
    weir_breaker_spec spec = breaker_spec();
    weir_breaker_figures f;
    weir_breaker *breaker;
    int result, asked = 0;

    spec.is_failure = only_resets;
    spec.keep_arg = &asked;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_breaker_open(scope, &spec, &breaker));
        for (int i = 0; i < 5; i++) call(breaker, -ENOENT);
        call(breaker, WEIR_ECANCELED);
        weir_breaker_figures_of(breaker, &f);
        CHECK_INT(f.state, ==, WEIR_BREAKER_CLOSED);
        CHECK_INT(asked, ==, 5);
        for (int i = 0; i < 5; i++) call(breaker, -ECONNRESET);
        weir_breaker_figures_of(breaker, &f);
        CHECK_INT(f.state, ==, WEIR_BREAKER_OPEN);
        CHECK_INT(f.failed, ==, 5);
    }
    return result;
}

FLOW_TEST_CLOCK(breaker_opens_for_slow_calls)
{
    weir_breaker_spec spec = breaker_spec();
    weir_breaker_pass pass;
    weir_breaker *breaker;
    int result;

    spec.slow_percent = 100;
    spec.slow_ms = 50;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_breaker_open(scope, &spec, &breaker));
        for (int i = 0; i < 2; i++) {
            CHECK_OK(weir_breaker_enter(breaker, &pass));
            CHECK_OK(weir_sleep(50));
            weir_breaker_leave(breaker, &pass, 0);
        }
        CHECK_INT(weir_breaker_enter(breaker, &pass), ==, WEIR_EBREAKER);
    }
    return result;
}

static int enter_closed(__attribute__((unused)) void *arg)
{
    weir_breaker_spec spec = breaker_spec();
    weir_breaker_pass pass;
    weir_breaker *breaker;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_breaker_open(scope, &spec, &breaker));
        weir_breaker_close(breaker);
        CHECK_OK(weir_breaker_enter(breaker, &pass));
    }
    return result;
}

static void run_enter_closed(void *arg)
{
    (void)arg;
    (void)flow_test_run(enter_closed);
}

TEST(breaker_that_is_closed_names_nothing)
{
    CHECK_ABORTS(run_enter_closed, NULL, "weir_breaker_enter: the breaker is closed");
}

/* ---- The retry budget ---- */

FLOW_TEST(retry_budget_spec_names_what_is_missing)
{
    weir_retry_budget *budget;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_INT(
            weir_retry_budget_open(scope, &(weir_retry_budget_spec){.per_second = 1}, &budget), ==,
            WEIR_EREFUSED);
        CHECK_CONTAINS(weir_why(), "retry budget: name is not set");
        CHECK_INT(weir_retry_budget_open(scope, &(weir_retry_budget_spec){.name = "b"}, &budget),
                  ==, WEIR_EREFUSED);
        CHECK_CONTAINS(weir_why(), "'b': neither ratio_percent nor per_second is set");
        CHECK_INT(
            weir_retry_budget_open(
                scope, &(weir_retry_budget_spec){.name = "b", .ratio_percent = 1001}, &budget),
            ==, WEIR_EREFUSED);
        CHECK_CONTAINS(weir_why(), "ratio_percent is 1001, at most 1000");
        CHECK_INT(
            weir_retry_budget_open(
                scope, &(weir_retry_budget_spec){.name = "b", .per_second = 1000001}, &budget),
            ==, WEIR_EREFUSED);
        CHECK_CONTAINS(weir_why(), "per_second or burst is more than 1000000");
    }
    return result;
}

FLOW_TEST_CLOCK(retry_budget_is_filled_by_calls_and_by_time)
{
    weir_retry_budget_figures f;
    weir_retry_budget *budget;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_retry_budget_open(
            scope,
            &(weir_retry_budget_spec){
                .name = "b", .ratio_percent = 50, .per_second = 2, .burst = 3},
            &budget));
        for (int i = 0; i < 3; i++) CHECK_OK(weir_retry_budget_take(budget));
        CHECK_INT(weir_retry_budget_take(budget), ==, WEIR_EOVERLOAD);
        weir_retry_budget_call(budget);
        CHECK_INT(weir_retry_budget_take(budget), ==, WEIR_EOVERLOAD);
        weir_retry_budget_call(budget);
        CHECK_OK(weir_retry_budget_take(budget));
        CHECK_OK(weir_sleep(500));
        CHECK_OK(weir_retry_budget_take(budget));
        weir_retry_budget_figures_of(budget, &f);
        CHECK_INT(f.tokens, ==, 0);
        CHECK_INT(f.burst, ==, 3);
        CHECK_INT(f.calls, ==, 2);
        CHECK_INT(f.taken, ==, 5);
        CHECK_INT(f.refused, ==, 2);
        weir_retry_budget_close(budget);
    }
    return result;
}

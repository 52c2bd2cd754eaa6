/* guard_back_test.c - what a guard has taken for something that is not done comes back. */
#include "unit/flow/guard_test.h"

/* ---- Tokens of the retry budget ---- */

static void check_returned(weir_retry_budget *budget, unsigned tokens, uint64_t returned)
{
    weir_retry_budget_figures f;

    weir_retry_budget_figures_of(budget, &f);
    CHECK_INT(f.tokens, ==, tokens);
    CHECK_INT(f.returned, ==, returned);
    CHECK_INT(f.taken, ==, returned);
}

/* A breaker opens, or the caller is cancelled, in the wait before an attempt. */
struct waiting {
    weir_guard *guard;
    struct script script;
    int expected;
    enum weir_guard_end end;
};

static int call_once(void *arg)
{
    struct waiting *waiting = *(struct waiting **)arg;
    weir_guard_outcome outcome;

    CHECK_INT(call_script(waiting->guard, &waiting->script, NULL, &outcome), ==, waiting->expected);
    CHECK_INT(outcome.end, ==, waiting->end);
    CHECK_INT(outcome.attempts, ==, 1);
    return 0;
}

FLOW_TEST_CLOCK(guard_gives_a_token_back_if_the_attempt_is_not_made)
{
    weir_guard_spec spec = guard_spec();
    weir_scope *inner;
    int result;

    spec.timeout_ms = 100000;
    FLOW_SCOPE(scope, &result)
    {
        weir_retry_budget *budget = open_budget(scope, 3);
        struct waiting waiting = {.script = SCRIPT({0, -EAGAIN}),
                                  .expected = -EAGAIN,
                                  .end = WEIR_GUARD_BREAKER},
                       *pointer = &waiting;
        spec.retry.keep_budget = budget;
        spec.retry.backoff_ms = spec.retry.backoff_ms_max = 10000; /* 10 ms have not passed */
        spec.keep_breaker = open_breaker(scope);
        waiting.guard = open_guard(scope, &spec);
        CHECK_OK(weir_spawn(scope, call_once, &pointer, sizeof pointer));
        CHECK_OK(weir_yield());
        CHECK_INT(atom_load(&waiting.script.ended), ==, 1);
        weir_breaker_trip(spec.keep_breaker);
        CHECK_OK(weir_scope_join(scope));
        check_returned(budget, 3, 1);
        weir_breaker_reset(spec.keep_breaker);
        waiting.expected = WEIR_ECANCELED;
        waiting.end = WEIR_GUARD_CANCELED;
        CHECK_OK(weir_scope_open(&(weir_scope_spec){.name = "inner",
                                                    .on_failure = WEIR_COLLECT,
                                                    .max_tasks = 1,
                                                    .overflow = WEIR_REJECT},
                                 &inner));
        CHECK_OK(weir_spawn(inner, call_once, &pointer, sizeof pointer));
        CHECK_OK(weir_yield());
        weir_scope_cancel(inner, 0, "in the wait");
        CHECK_OK(weir_scope_close(inner));
        CHECK_INT(atom_load(&waiting.script.ended), ==, 2);
        check_returned(budget, 3, 2);
    }
    return result;
}

/* ---- Tokens of the rate ---- */

static weir_rate *open_rate(weir_scope *scope, size_t burst, size_t waiters_max)
{
    weir_rate *rate;

    CHECK_OK(weir_rate_open(scope,
                            &(weir_rate_spec){.name = "rate",
                                              .rate = 10,
                                              .burst = burst,
                                              .overflow = waiters_max > 0 ? WEIR_WAIT : WEIR_REJECT,
                                              .waiters_max = waiters_max},
                            &rate));
    return rate;
}

FLOW_TEST_CLOCK(guard_gives_the_rate_its_token_back_if_it_does_not_try)
{
    struct script script = SCRIPT({0, -EIO});
    weir_guard_spec spec = guard_spec();
    weir_rate_figures f;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        weir_limit_pass pass;
        weir_guard *guard;
        spec.keep_rate = open_rate(scope, 2, 0);
        spec.keep_breaker = open_breaker(scope);
        CHECK_OK(weir_limit_open(scope,
                                 &(weir_limit_spec){.name = "limit",
                                                    .kind = WEIR_LIMIT_FIXED,
                                                    .concurrency = 1,
                                                    .overflow = WEIR_REJECT},
                                 &spec.keep_limit));
        guard = open_guard(scope, &spec);
        weir_breaker_trip(spec.keep_breaker);
        for (int i = 0; i < 5; i++) {
            CHECK_INT(call_script(guard, &script, NULL, NULL), ==, WEIR_EBREAKER);
        }
        CHECK_OK(weir_limit_enter(spec.keep_limit, &pass));
        for (int i = 0; i < 5; i++) {
            CHECK_INT(call_script(guard, &script, NULL, NULL), ==, WEIR_EOVERLOAD);
        }
        weir_limit_leave(spec.keep_limit, &pass, 0);
        weir_rate_figures_of(spec.keep_rate, &f);
        CHECK_INT(f.tokens, ==, 2);
        CHECK_INT(f.taken, ==, 10);
        CHECK_INT(f.returned, ==, 10);
        weir_breaker_reset(spec.keep_breaker);
        CHECK_INT(call_script(guard, &script, NULL, NULL), ==, -EIO); /* one that was tried */
        weir_rate_figures_of(spec.keep_rate, &f);
        CHECK_INT(f.tokens, ==, 1);
        CHECK_INT(f.returned, ==, 10);
    }
    return result;
}

enum { CROWD = 200, EVERY_MS = 20 };

struct late {
    weir_guard *guard;
    struct script *script;
    int64_t at_ms;
};

static int call_late(void *arg)
{
    struct late *late = arg;
    struct work work = {.script = late->script, .value = 1};
    int r = weir_sleep(late->at_ms);

    if (r == 0) r = weir_guard_call(late->guard, play, &work, sizeof work, NULL);
    CHECK(r == 0 || r == WEIR_EOVERLOAD);
    return 0;
}

/* Five times too many for four seconds: those who waited too long do not use up what there is. */
FLOW_TEST_CLOCK(guard_that_sheds_behind_a_rate_still_makes_as_many_calls_as_the_rate_lets_it)
{
    struct script script = SCRIPT({0, 0});
    weir_guard_spec spec = guard_spec();
    int result;

    spec.timeout_ms = 10000;
    FLOW_SCOPE(scope, &result)
    {
        struct late late = {.script = &script};
        spec.keep_rate = open_rate(scope, 1, CROWD);
        CHECK_OK(weir_shed_open(
            scope, &(weir_shed_spec){.name = "shed", .target_ms = 100, .interval_ms = 300},
            &spec.keep_shed));
        late.guard = open_guard(scope, &spec);
        for (int i = 0; i < CROWD; i++) {
            late.at_ms = (int64_t)i * EVERY_MS;
            CHECK_OK(weir_spawn(scope, call_late, &late, sizeof late));
        }
        CHECK_OK(weir_scope_join(scope));
        CHECK_INT(atom_load(&script.ended), >=, CROWD * EVERY_MS / 100 * 9 / 10);
        CHECK_INT(atom_load(&script.ended), <=, CROWD * EVERY_MS / 100 + 4);
    }
    return result;
}

/* ---- A guard that goes while a call of it ends on another worker ---- */

struct racing {
    weir_guard *guard;
    ATOM(int) begun, closes;
};

static int spin(void *arg)
{
    struct racing *racing = arg;

    atom_store(&racing->begun, 1);
    while (!atom_load(&racing->closes)) CHECK_OK(weir_yield());
    return 0;
}

static int call_racing(void *arg)
{
    struct racing *racing = *(struct racing **)arg;
    return weir_guard_call(racing->guard, spin, racing, 0, NULL);
}

FLOW_TEST(guard_is_freed_once_whoever_lets_it_go_last)
{
    weir_guard_spec spec = {.name = "brief", .timeout_ms = 20000};
    int result;

    FLOW_SCOPE_ANYWHERE(scope, &result)
    {
        for (int i = 0; i < 300 && !test_late(); i++) {
            struct racing racing = {.guard = open_guard(scope, &spec)}, *pointer = &racing;
            CHECK_OK(weir_spawn(scope, call_racing, &pointer, sizeof pointer));
            while (!atom_load(&racing.begun)) CHECK_OK(weir_yield());
            atom_store(&racing.closes, 1);
            weir_guard_close(racing.guard);
            CHECK_OK(weir_scope_join(scope));
        }
    }
    return result;
}

/* ---- A hedge that wins cancels what its caller is in, and no more ---- */

static ATOM(int) warnings;

static void count_warning(void *keep_arg, const weir_log_record *record)
{
    (void)keep_arg;
    (void)record;
    (void)atom_add(&warnings, 1);
}

static int hedge_often(void *arg)
{
    weir_guard_figures f;
    int result;

    (void)arg;
    FLOW_SCOPE(scope, &result)
    {
        weir_guard_spec spec = {
            .name = "hedged", .timeout_ms = 200, .idempotent = true, .hedge_after_ms = 20};
        weir_guard *guard;
        CHECK_OK(weir_retry_budget_open(
            scope, &(weir_retry_budget_spec){.name = "budget", .ratio_percent = 100, .burst = 10},
            &spec.retry.keep_budget));
        guard = open_guard(scope, &spec);
        for (int i = 0; i < 2400; i++) {
            struct script script = SCRIPT({60, 0}, {i % 2 ? 5 : 60, 0});
            CHECK_OK(call_script(guard, &script, NULL, NULL));
        }
        weir_guard_figures_of(guard, &f);
        CHECK_INT(f.hedges, ==, 2400);
        CHECK_INT(f.hedges_won, ==, 1200);
    }
    return result;
}

TEST_WITH(guard_that_hedges_often_is_not_taken_for_one_that_ignores_its_end, .workers = 1)
{
    test_clock_auto();
    atom_store(&warnings, 0);
    CHECK_OK(
        weir_run(&(weir_config){.workers = 1, .log_level = WEIR_LOG_WARNING, .log = count_warning},
                 hedge_often, NULL));
    CHECK_INT(atom_load(&warnings), ==, 0);
}

/* guard_call_test.c - calls of a guard: attempts, times, what counts, hedges, the fallback. */
#include "unit/flow/guard_test.h"

/* ---- Attempts ---- */

FLOW_TEST_CLOCK(guard_gives_back_the_copy_of_the_attempt_that_succeeded)
{
    struct script script = SCRIPT({0, -EAGAIN}, {0, -EAGAIN}, {0, 5});
    weir_guard_spec spec = guard_spec();
    weir_guard_outcome outcome;
    struct work work;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        weir_guard *guard = open_guard(scope, &spec);
        CHECK_INT(call_script(guard, &script, &work, &outcome), ==, 0);
        CHECK_INT(work.value, ==, 31);
        CHECK_INT(outcome.end, ==, WEIR_GUARD_OK);
        CHECK_INT(outcome.attempts, ==, 3);
        CHECK_INT(outcome.error, ==, 0);
        CHECK_INT(outcome.took_ns, <=, 30 * 1000000);
        script = SCRIPT({0, -EIO});
        CHECK_INT(call_script(guard, &script, &work, &outcome), ==, -EIO);
        CHECK_INT(work.value, ==, 1); /* what failed has changed nothing */
        CHECK_INT(outcome.end, ==, WEIR_GUARD_FATAL);
        CHECK_INT(outcome.attempts, ==, 1);
    }
    return result;
}

struct attempts_row {
    struct step steps[4];
    int count;
    int expected;
    enum weir_guard_end end;
    int attempts;
};

FLOW_TEST_CLOCK(guard_tries_again_what_is_named_and_nothing_else)
{
    static const struct attempts_row rows[] = {
        {{{0, 0}}, 1, 0, WEIR_GUARD_OK, 1},
        {{{0, -EAGAIN}, {0, 0}}, 2, 0, WEIR_GUARD_OK, 2},
        {{{0, -EAGAIN}}, 1, -EAGAIN, WEIR_GUARD_ATTEMPTS, 3},
        {{{0, -EAGAIN}, {0, -EIO}}, 2, -EIO, WEIR_GUARD_FATAL, 2},
        {{{200, 0}, {0, 0}}, 2, 0, WEIR_GUARD_OK, 2}, /* the attempt's own time was up */
        {{{200, 0}}, 1, WEIR_ETIMEDOUT, WEIR_GUARD_ATTEMPTS, 3},
        {{{0, WEIR_ECANCELED}}, 1, WEIR_ECANCELED, WEIR_GUARD_CANCELED, 1}, /* whatever it means */
    };
    int result;

    FLOW_SCOPE(scope, &result)
    {
        weir_guard_spec spec = guard_spec();
        weir_guard *guard = open_guard(scope, &spec);
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            struct script script = {.steps = rows[i].steps, .step_count = rows[i].count};
            weir_guard_outcome outcome;
            test_note("row %zu", i);
            CHECK_INT(call_script(guard, &script, NULL, &outcome), ==, rows[i].expected);
            CHECK_INT(outcome.end, ==, rows[i].end);
            CHECK_INT(outcome.attempts, ==, rows[i].attempts);
            CHECK_INT(outcome.error, ==, rows[i].expected);
            CHECK_INT(atom_load(&script.begun), ==, rows[i].attempts);
        }
    }
    return result;
}

static int read_pointer(void *arg)
{
    int *number = arg;
    return ++*number < 3 ? -EAGAIN : 0;
}

FLOW_TEST_CLOCK(guard_without_bytes_passes_the_pointer_on)
{
    weir_guard_spec spec = guard_spec();
    int result, number = 0;

    FLOW_SCOPE(scope, &result)
    {
        weir_guard *guard = open_guard(scope, &spec);
        CHECK_INT(weir_guard_call(guard, read_pointer, &number, 0, NULL), ==, 0);
        CHECK_INT(number, ==, 3);
    }
    return result;
}

struct large {
    unsigned char bytes[WEIR_ITEM_BYTES_MAX];
};

static int fill_large(void *arg)
{
    struct large *large = arg;
    for (size_t i = 0; i < sizeof large->bytes; i++) CHECK_INT(large->bytes[i], ==, i % 251);
    memset(large, 7, sizeof *large);
    return 0;
}

FLOW_TEST_CLOCK(guard_takes_arguments_up_to_the_bound)
{
    weir_guard_spec spec = guard_spec();
    struct large large;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        weir_guard *guard = open_guard(scope, &spec);
        for (size_t i = 0; i < sizeof large.bytes; i++) large.bytes[i] = i % 251;
        CHECK_OK(weir_guard_call(guard, fill_large, &large, sizeof large, NULL));
        CHECK_INT(large.bytes[0], ==, 7);
        CHECK_INT(large.bytes[sizeof large - 1], ==, 7);
        CHECK_INT(weir_guard_call(guard, fill_large, &large, sizeof large + 1, NULL), ==,
                  WEIR_EREFUSED);
        CHECK_CONTAINS(weir_why(), "guard 'guard': arg_bytes is 4097");
        CHECK_INT(weir_guard_call(guard, fill_large, NULL, 1, NULL), ==, WEIR_EREFUSED);
        CHECK_INT(weir_guard_call(guard, NULL, &large, 1, NULL), ==, WEIR_EREFUSED);
    }
    return result;
}

/* ---- Time ---- */

FLOW_TEST_CLOCK(guard_ends_at_its_own_time_also_between_attempts)
{
    struct script script = SCRIPT({90, -EAGAIN});
    weir_guard_spec spec = guard_spec();
    weir_guard_outcome outcome;
    int result;

    spec.timeout_ms = 330;
    FLOW_SCOPE(scope, &result)
    {
        weir_guard *guard = open_guard(scope, &spec);
        weir_guard *single;
        CHECK_INT(call_script(guard, &script, NULL, &outcome), ==, -EAGAIN);
        CHECK_INT(outcome.took_ns, <=, 330 * INT64_C(1000000));
        /* One attempt, and only the whole call has a time. */
        CHECK_OK(weir_guard_open(scope, &(weir_guard_spec){.name = "single", .timeout_ms = 50},
                                 &single));
        script = SCRIPT({200, 0});
        CHECK_INT(call_script(single, &script, NULL, &outcome), ==, WEIR_ETIMEDOUT);
        CHECK_INT(outcome.end, ==, WEIR_GUARD_TIME);
        CHECK_INT(outcome.took_ns, ==, 50 * INT64_C(1000000));
        CHECK_INT(atom_load(&script.interrupted), ==, 1);
    }
    return result;
}

/* The caller's deadline is shorter than the guard's: it is not eaten, and not tried again. */
FLOW_TEST_CLOCK(guard_never_eats_its_callers_deadline)
{
    weir_guard_spec spec = guard_spec();
    weir_guard_outcome outcome;
    weir_breaker_figures f;
    int result, r = 0;

    FLOW_SCOPE(scope, &result)
    {
        weir_guard *guard;
        spec.keep_breaker = open_breaker(scope);
        guard = open_guard(scope, &spec);
        struct script script = SCRIPT({80, 0});
        WEIR_DEADLINE(30) r = call_script(guard, &script, NULL, &outcome);
        CHECK_INT(r, ==, WEIR_ETIMEDOUT); /* as any call in that block */
        CHECK_INT(outcome.end, ==, WEIR_GUARD_CANCELED);
        CHECK_INT(outcome.attempts, ==, 1);
        WEIR_DEADLINE(30) {
            WEIR_DEADLINE(1000) r = call_script(guard, &script, NULL, &outcome);
            CHECK_INT(r, ==, WEIR_ECANCELED); /* an outer one: cancelled */
        }
        weir_breaker_figures_of(spec.keep_breaker, &f);
        CHECK_INT(f.let_in, ==, 2);
        CHECK_INT(f.silent, ==, 2); /* neither says anything about the other side */
        /* Enough time for one attempt, not for a wait and another: the error now. */
        script = SCRIPT({25, -EAGAIN});
        WEIR_DEADLINE(25) r = call_script(guard, &script, NULL, &outcome);
        CHECK(r == -EAGAIN || r == WEIR_ETIMEDOUT);
    }
    return result;
}

struct cancelled {
    weir_guard *guard;
    struct script *script;
    ATOM(int) result;
    weir_guard_outcome outcome;
};

static int call_to_be_cancelled(void *arg)
{
    struct cancelled *cancelled = *(struct cancelled **)arg;
    int r = call_script(cancelled->guard, cancelled->script, NULL, &cancelled->outcome);
    atom_store(&cancelled->result, r);
    return 0;
}

FLOW_TEST_CLOCK(guard_call_that_is_cancelled_ends_at_once_wherever_it_is)
{
    /* In an attempt, and in a wait between two. */
    static const struct step in_attempt[] = {{80, 0}}, in_wait[] = {{0, -EAGAIN}};
    weir_guard_spec spec = guard_spec();
    int result;

    spec.retry.backoff_ms = spec.retry.backoff_ms_max = 300;
    FLOW_SCOPE(scope, &result)
    {
        weir_guard *guard = open_guard(scope, &spec);
        for (int i = 0; i < 2; i++) {
            struct script script = {.steps = i ? in_wait : in_attempt, .step_count = 1};
            struct cancelled cancelled = {.guard = guard, .script = &script};
            struct cancelled *pointer = &cancelled;
            weir_task task;
            CHECK_OK(weir_task_spawn(scope,
                                     &(weir_task_spec){.fn = call_to_be_cancelled,
                                                       .arg = &pointer,
                                                       .arg_bytes = sizeof pointer},
                                     &task));
            CHECK_OK(weir_yield());
            CHECK_INT(atom_load(&script.begun), ==, 1);
            CHECK_OK(weir_task_cancel(task, "test"));
            CHECK_OK(weir_task_join(task, NULL));
            CHECK_INT(atom_load(&cancelled.result), ==, WEIR_ECANCELED);
            CHECK_INT(cancelled.outcome.end, ==, WEIR_GUARD_CANCELED);
            CHECK_INT(atom_load(&script.begun), ==, 1);
        }
    }
    return result;
}

/* ---- The breaker ---- */

FLOW_TEST_CLOCK(guard_breaker_counts_a_call_once_by_what_its_caller_gets)
{
    weir_guard_spec spec = guard_spec();
    weir_breaker_figures f;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        weir_guard *guard;
        spec.keep_breaker = open_breaker(scope);
        guard = open_guard(scope, &spec);
        for (int i = 0; i < 4; i++) { /* two attempts of three fail, and all calls go well */
            struct script script = SCRIPT({0, -EAGAIN}, {0, -EAGAIN}, {0, 0});
            CHECK_OK(call_script(guard, &script, NULL, NULL));
        }
        weir_breaker_figures_of(spec.keep_breaker, &f);
        CHECK_INT(f.state, ==, WEIR_BREAKER_CLOSED);
        CHECK_INT(f.went_well, ==, 4);
        CHECK_INT(f.failed, ==, 0);
        for (int i = 0; i < 4; i++) { /* three failed attempts are one failure */
            struct script script = SCRIPT({0, -EAGAIN});
            CHECK_INT(f.failed, ==, i);
            CHECK_INT(call_script(guard, &script, NULL, NULL), ==, -EAGAIN);
            weir_breaker_figures_of(spec.keep_breaker, &f);
        }
        CHECK_INT(f.state, ==, WEIR_BREAKER_OPEN);
    }
    return result;
}

FLOW_TEST_CLOCK(guard_refuses_while_the_breaker_is_open_and_probes_after)
{
    struct script failing = SCRIPT({0, -EIO}), well = SCRIPT({0, 0});
    weir_guard_spec spec = guard_spec();
    weir_guard_outcome outcome;
    weir_guard_figures f;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        weir_guard *guard;
        spec.keep_breaker = open_breaker(scope);
        guard = open_guard(scope, &spec);
        CHECK_INT(call_script(guard, &failing, NULL, NULL), ==, -EIO);
        CHECK_INT(call_script(guard, &failing, NULL, NULL), ==, -EIO);
        CHECK_INT(call_script(guard, &well, NULL, &outcome), ==, WEIR_EBREAKER);
        CHECK_INT(outcome.end, ==, WEIR_GUARD_BREAKER);
        CHECK_INT(outcome.attempts, ==, 0);
        CHECK_INT(atom_load(&well.begun), ==, 0);
        CHECK_OK(weir_sleep(100));
        CHECK_OK(call_script(guard, &well, NULL, &outcome));
        CHECK_OK(call_script(guard, &well, NULL, &outcome));
        weir_guard_figures_of(guard, &f);
        CHECK_INT(f.went_well, ==, 2);
        CHECK_INT(f.failed, ==, 2);
        CHECK_INT(f.refused, ==, 1);
        CHECK_INT(f.attempts, ==, 4);
    }
    return result;
}

static int trip_then_fail(void *arg)
{
    weir_breaker_trip(*(weir_breaker **)arg);
    return -EAGAIN;
}

FLOW_TEST_CLOCK(guard_does_not_try_again_when_the_breaker_has_opened_meanwhile)
{
    weir_guard_spec spec = guard_spec();
    weir_guard_outcome outcome;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        weir_breaker *breaker = spec.keep_breaker = open_breaker(scope);
        weir_guard *guard = open_guard(scope, &spec);
        CHECK_INT(weir_guard_call(guard, trip_then_fail, &breaker, sizeof breaker, &outcome), ==,
                  -EAGAIN);
        CHECK_INT(outcome.end, ==, WEIR_GUARD_BREAKER);
        CHECK_INT(outcome.attempts, ==, 1);
    }
    return result;
}

/* A probe that is cancelled gives its place back. */
FLOW_TEST_CLOCK(guard_call_that_is_cancelled_as_a_probe_is_none)
{
    struct script script = SCRIPT({80, 0});
    weir_guard_spec spec = guard_spec();
    weir_guard_outcome outcome;
    int result, r = 0;

    FLOW_SCOPE(scope, &result)
    {
        weir_guard *guard;
        spec.keep_breaker = open_breaker(scope);
        guard = open_guard(scope, &spec);
        weir_breaker_trip(spec.keep_breaker);
        CHECK_OK(weir_sleep(100));
        WEIR_DEADLINE(10) r = call_script(guard, &script, NULL, &outcome);
        CHECK_INT(r, ==, WEIR_ETIMEDOUT);
        CHECK_OK(call_script(guard, &script, NULL, &outcome));
    }
    return result;
}

/* ---- The budget ---- */

FLOW_TEST_CLOCK(guards_share_a_budget_and_stop_when_it_is_spent)
{
    weir_guard_spec spec = guard_spec();
    weir_retry_budget_figures f;
    weir_guard_outcome outcome;
    int result, attempts = 0;

    FLOW_SCOPE(scope, &result)
    {
        weir_retry_budget *budget = open_budget(scope, 3);
        weir_guard *guards[2];
        spec.retry = thrice_spec(budget);
        guards[0] = open_guard(scope, &spec);
        spec.name = "other";
        guards[1] = open_guard(scope, &spec);
        for (int i = 0; i < 10; i++) {
            struct script script = SCRIPT({0, -EAGAIN});
            CHECK_INT(call_script(guards[i % 2], &script, NULL, &outcome), ==, -EAGAIN);
            attempts += outcome.attempts;
        }
        CHECK_INT(outcome.end, ==, WEIR_GUARD_BUDGET);
        /* 10 calls, and 3 tokens: a tenth for each call but the first, which found it full */
        CHECK_INT(attempts, ==, 10 + 3);
        weir_retry_budget_figures_of(budget, &f);
        CHECK_INT(f.calls, ==, 10);
        CHECK_INT(f.taken, ==, 3);
        CHECK_INT(f.tokens, ==, 0);
        CHECK_INT(f.refused, ==, 9);
    }
    return result;
}

/* ---- The fallback ---- */

static int fall_back(void *arg, int error, void *keep_arg)
{
    struct work *work = arg;
    CHECK_INT(work->value, ==, 1); /* as it was at the call */
    CHECK_INT(error, ==, *(int *)keep_arg);
    work->value = 99;
    return error == -EPERM ? -EXDEV : 0;
}

FLOW_TEST_CLOCK(guard_fallback_takes_the_place_of_what_failed_or_was_refused)
{
    weir_guard_spec spec = guard_spec();
    weir_guard_outcome outcome;
    weir_breaker_figures b;
    weir_guard_figures f;
    struct work work;
    int result, expected = -EIO, r = 0;

    FLOW_SCOPE(scope, &result)
    {
        struct script failing = SCRIPT({0, -EIO}), slow = SCRIPT({80, 0});
        weir_guard *guard;
        spec.keep_breaker = open_breaker(scope);
        spec.fallback = fall_back;
        spec.keep_arg = &expected;
        guard = open_guard(scope, &spec);
        CHECK_INT(call_script(guard, &failing, &work, &outcome), ==, WEIR_PARTIAL);
        CHECK_INT(work.value, ==, 99);
        CHECK_INT(outcome.error, ==, -EIO);
        CHECK_INT(outcome.end, ==, WEIR_GUARD_FATAL);
        /* Not when the caller itself is at its end. */
        WEIR_DEADLINE(10) r = call_script(guard, &slow, &work, &outcome);
        CHECK_INT(r, ==, WEIR_ETIMEDOUT);
        CHECK_INT(work.value, ==, 1);
        expected = -EPERM; /* and when it fails itself its error is the call's */
        failing = SCRIPT({0, -EPERM});
        CHECK_INT(call_script(guard, &failing, &work, &outcome), ==, -EXDEV);
        CHECK_INT(outcome.error, ==, -EPERM);
        CHECK_INT(work.value, ==, 1);
        /* What it makes good is a failure for the breaker all the same. */
        weir_breaker_figures_of(spec.keep_breaker, &b);
        CHECK_INT(b.failed, ==, 2);
        CHECK_INT(b.state, ==, WEIR_BREAKER_OPEN);
        expected = WEIR_EBREAKER;
        CHECK_INT(call_script(guard, &failing, &work, &outcome), ==, WEIR_PARTIAL);
        CHECK_INT(outcome.attempts, ==, 0);
        weir_guard_figures_of(guard, &f);
        CHECK_INT(f.partial, ==, 2);
        CHECK_INT(f.failed, ==, 1);
        CHECK_INT(f.canceled, ==, 1);
        CHECK_INT(f.refused, ==, 1);
    }
    return result;
}

/* ---- Hedges ---- */

static weir_guard *open_hedged(weir_scope *scope, unsigned burst, weir_retry_budget **ret_budget)
{
    *ret_budget = open_budget(scope, burst);
    return open_guard(scope, &(weir_guard_spec){.name = "hedged",
                                                .timeout_ms = 200,
                                                .attempt_timeout_ms = 100,
                                                .idempotent = true,
                                                .hedge_after_ms = 20,
                                                .retry = {.keep_budget = *ret_budget}});
}

struct hedge_row {
    struct step steps[2];
    int expected;
    int64_t took_ms;
    int hedges;
    int value;
    int interrupted;
};

FLOW_TEST_CLOCK(guard_hedge_starts_late_and_the_first_success_wins)
{
    static const struct hedge_row rows[] = {
        {{{10, 0}, {0, 0}}, 0, 10, 0, 11, 0},            /* in time: none is made */
        {{{10, -EIO}, {0, 0}}, -EIO, 10, 0, 1, 0},       /* nor for what fails early */
        {{{90, 0}, {5, 0}}, 0, 25, 1, 21, 1},            /* the second is faster */
        {{{30, 0}, {60, 0}}, 0, 30, 1, 11, 1},           /* the first is, after all */
        {{{30, -EIO}, {60, 0}}, 0, 80, 1, 21, 0},        /* one fails, the other is waited for */
        {{{60, 0}, {10, -EPERM}}, 0, 60, 1, 11, 0},      /* likewise */
        {{{40, -EIO}, {10, -EPERM}}, -EIO, 40, 1, 1, 0}, /* both do: the first one's error */
        {{{500, 0}, {500, 0}}, WEIR_ETIMEDOUT, 100, 1, 1, 2}, /* they share the attempt's time */
    };
    int result;

    FLOW_SCOPE(scope, &result)
    {
        weir_retry_budget *budget;
        weir_guard *guard = open_hedged(scope, 100, &budget);
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            struct script script = {.steps = rows[i].steps, .step_count = 2};
            weir_guard_outcome outcome;
            struct work work;
            test_note("row %zu", i);
            CHECK_INT(call_script(guard, &script, &work, &outcome), ==, rows[i].expected);
            CHECK_INT(outcome.took_ns / 1000000, ==, rows[i].took_ms);
            CHECK_INT(outcome.hedges, ==, rows[i].hedges);
            CHECK_INT(outcome.attempts, ==, 1);
            CHECK_INT(work.value, ==, rows[i].value);
            CHECK_INT(outcome.hedge_won, ==, rows[i].value == 21);
            CHECK_INT(atom_load(&script.interrupted), ==, rows[i].interrupted);
        }
    }
    return result;
}

FLOW_TEST_CLOCK(guard_hedges_within_the_retry_budget)
{
    weir_retry_budget_figures f;
    weir_guard_outcome outcome;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        weir_retry_budget *budget;
        weir_guard *guard = open_hedged(scope, 1, &budget);
        for (int i = 0; i < 2; i++) {
            struct script script = SCRIPT({60, 0}, {5, 0});
            CHECK_OK(call_script(guard, &script, NULL, &outcome));
            CHECK_INT(outcome.hedges, ==, i == 0);
            CHECK_INT(outcome.took_ns / 1000000, ==, i == 0 ? 25 : 60);
        }
        weir_retry_budget_figures_of(budget, &f);
        CHECK_INT(f.taken, ==, 1);
        CHECK_INT(f.refused, ==, 1);
    }
    return result;
}

static const weir_local_key trace_key = {"trace"};

static int check_local(void *arg)
{
    ATOM(int) *begun = *(ATOM(int) **)arg;
    const int *trace = weir_local_get(&trace_key);
    bool first = atom_add(begun, 1) == 0;

    CHECK(trace != NULL);
    CHECK_INT(*trace, ==, 4711);
    return first ? weir_sleep(60) : 0;
}

FLOW_TEST_CLOCK(guard_hedge_inherits_what_its_caller_has)
{
    ATOM(int) begun = 0, *pointer = &begun;
    int result, trace = 4711;

    FLOW_SCOPE(scope, &result)
    {
        weir_retry_budget *budget;
        weir_guard *guard = open_hedged(scope, 1, &budget);
        CHECK_OK(weir_local_set(&trace_key, &trace, sizeof trace));
        CHECK_OK(weir_guard_call(guard, check_local, &pointer, sizeof pointer, NULL));
        CHECK_INT(atom_load(&begun), ==, 2);
        CHECK_OK(weir_local_set(&trace_key, NULL, 0));
    }
    return result;
}

/* Each attempt may have its hedge, and all of it is in the letter. */
FLOW_TEST_CLOCK(guard_retries_what_failed_with_its_hedge)
{
    weir_guard_spec spec = guard_spec();
    weir_guard_outcome outcome;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        struct script script = SCRIPT({50, -EAGAIN}, {10, -EAGAIN}, {50, 0}, {10, -EAGAIN});
        weir_guard *guard;
        spec.hedge_after_ms = 20;
        spec.retry.keep_budget = open_budget(scope, 10);
        guard = open_guard(scope, &spec);
        CHECK_OK(call_script(guard, &script, NULL, &outcome));
        CHECK_INT(outcome.attempts, ==, 2);
        CHECK_INT(outcome.hedges, ==, 2);
        CHECK(!outcome.hedge_won);
        CHECK_INT(atom_load(&script.running_max), ==, 2);
    }
    return result;
}

/* ---- Its end ---- */

static int close_own_guard(void *arg)
{
    weir_guard_close(*(weir_guard **)arg);
    return weir_sleep(5);
}

FLOW_TEST_CLOCK(guard_that_is_closed_lets_calls_under_way_end)
{
    weir_guard_spec spec = guard_spec();
    int result;

    FLOW_SCOPE(scope, &result)
    {
        weir_guard *guard = open_guard(scope, &spec);
        CHECK_OK(weir_guard_call(guard, close_own_guard, &guard, sizeof guard, NULL));
    }
    return result;
}

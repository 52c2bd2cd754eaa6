/* policy_retry.c - callers that share a retry budget: attempts, waits, tokens and hedges are within
 * what was said. */
#include <sys/mman.h>

#include "sim/policy.h"

enum {
    CALLERS = 4,
    ATTEMPTS = 3,
    BACKOFF_MS = 20,
    BACKOFF_MS_MAX = 30,
    ATTEMPT_MS = 40,
    TIMEOUT_MS = 200,
    BURST = 2,
    RATIO_PERCENT = 50,
    HEDGE_MS = 10,
};

static weir_guard *guard;
static weir_retry_budget *budget;

/* What the function has seen of each caller's call. */
static struct record {
    int64_t began_ns[2 * ATTEMPTS], ended_ns[2 * ATTEMPTS];
    int results[2 * ATTEMPTS];
    unsigned begun, ended, running, running_max, went_well;
} records[CALLERS];
static unsigned retries, hedges, calls;

static void forget(void *arg)
{
    (void)arg;
    memset(records, 0, sizeof records);
    retries = hedges = calls = 0;
}

/* The argument of a call: a copy of it is worked on. */
struct work {
    unsigned caller;
    int answer;
};

static int work_by_lot(void *arg)
{
    static const int errors[] = {0, -ECONNRESET, -EIO};
    struct work *work = arg;
    struct record *record = &records[work->caller];
    unsigned number = record->begun++;
    int r;

    CHECK_INT(number, <, 2 * ATTEMPTS);
    record->began_ns[number] = weir_now_ns();
    if (++record->running > record->running_max) record->running_max = record->running;
    CHECK_INT(work->answer, ==, 0); /* no attempt sees what another one has written */
    work->answer = (int)number + 1;
    r = weir_sleep(weir_sim_choose(ATTEMPT_MS * 2));
    if (r == 0) r = errors[weir_sim_choose(3)];
    record->running--;
    record->ended++;
    record->results[number] = r;
    record->ended_ns[number] = weir_now_ns();
    if (r == 0) record->went_well++;
    return r;
}

/* Beside a hedge the function sees the end of its time as a cancellation: that of the scope that
 * the two are in. */
static bool may_follow(const struct record *record, unsigned i)
{
    int64_t ran_ns = record->ended_ns[i] - record->began_ns[i];

    if (record->results[i] == WEIR_ECANCELED) return ran_ns == ATTEMPT_MS * MS_NS;
    return record->results[i] == -ECONNRESET || record->results[i] == WEIR_ETIMEDOUT;
}

/* Without hedges: each attempt but the first is one that was to be made, and when. */
static void check_attempts(const struct record *record, const weir_guard_outcome *outcome)
{
    CHECK_INT(record->begun, ==, outcome->attempts);
    CHECK_INT(record->begun, <=, ATTEMPTS);
    CHECK_INT(record->running_max, <=, 1);
    for (unsigned i = 1; i < record->begun; i++) {
        int64_t wait_ns = record->began_ns[i] - record->ended_ns[i - 1];
        int64_t longest_ms = i == 1 ? BACKOFF_MS : BACKOFF_MS_MAX;

        CHECK(may_follow(record, i - 1));
        CHECK_INT(wait_ns, >=, 0);
        CHECK_INT(wait_ns, <=, longest_ms * MS_NS);
    }
    for (unsigned i = 0; i < record->begun; i++) {
        CHECK_INT(record->ended_ns[i] - record->began_ns[i], <=, ATTEMPT_MS * MS_NS);
    }
}

static int call_once(void *arg)
{
    struct work work = {.caller = *(unsigned *)arg};
    const struct record *record = &records[work.caller];
    weir_guard_outcome outcome;
    int64_t began_ns = weir_now_ns();
    int r;

    calls++;
    r = weir_guard_call(guard, work_by_lot, &work, sizeof work, &outcome);
    CHECK_INT(weir_now_ns() - began_ns, <=, TIMEOUT_MS * MS_NS);
    CHECK_INT(record->running, ==, 0);
    CHECK_INT(record->begun, ==, record->ended);
    CHECK_INT(record->begun, ==, outcome.attempts + outcome.hedges);
    CHECK_INT(outcome.hedges, <=, outcome.attempts);
    CHECK_INT(r == 0, ==, work.answer != 0); /* after an error the argument is as it was */
    if (r == 0) CHECK_INT(record->results[work.answer - 1], ==, 0);
    if (outcome.hedges == 0) check_attempts(record, &outcome);
    if (outcome.attempts > 1) retries += (unsigned)outcome.attempts - 1;
    hedges += (unsigned)outcome.hedges;
    return r == WEIR_ECANCELED ? r : 0;
}

/* When all callers are done: what was taken is what was used, and was there. */
static void check_budget(void)
{
    weir_retry_budget_figures figures;

    weir_retry_budget_figures_of(budget, &figures);
    CHECK_INT(figures.calls, <=, calls);
    CHECK_INT(figures.taken - figures.returned, ==, retries + hedges);
    CHECK_INT(figures.tokens, <=, BURST);
    CHECK_INT((retries + hedges) * 100, <=, BURST * 100 + figures.calls * RATIO_PERCENT);
}

static int callers_share(int64_t hedge_after_ms, bool with_cancel)
{
    int r = 0;

    SCOPE_OF(scope, &r, 1)
    {
        weir_guard_spec spec = {.name = "retries",
                                .timeout_ms = TIMEOUT_MS,
                                .attempt_timeout_ms = ATTEMPT_MS,
                                .idempotent = true,
                                .hedge_after_ms = hedge_after_ms,
                                .retry = {.attempts = ATTEMPTS,
                                          .backoff_ms = BACKOFF_MS,
                                          .backoff_ms_max = BACKOFF_MS_MAX,
                                          .errors = {-ECONNRESET, WEIR_ETIMEDOUT},
                                          .on_exhausted = WEIR_EXHAUSTED_FAIL}};

        CHECK_OK(weir_retry_budget_open(scope,
                                        &(weir_retry_budget_spec){.name = "shared",
                                                                  .ratio_percent = RATIO_PERCENT,
                                                                  .burst = BURST},
                                        &budget));
        spec.retry.keep_budget = budget;
        CHECK_OK(weir_guard_open(scope, &spec, &guard));
        SCOPE_OF(inner, &r, CALLERS)
        {
            weir_task tasks[CALLERS];

            CHECK_OK(crowd_of(CALLERS, call_once, inner, tasks));
            for (unsigned i = 0; with_cancel && i < 2; i++) {
                CHECK_OK(weir_sleep(weir_sim_choose(60)));
                (void)weir_task_cancel(tasks[i], "the test cancels it");
            }
        }
        check_budget();
    }
    return r;
}

SIM_TEST(sim_retries_are_within_attempts_waits_errors_and_budget, .runs_max = 4000, .begin = forget)
{
    return callers_share(0, false);
}

SIM_TEST(sim_retries_that_are_cancelled_overdraw_and_keep_nothing, .runs_max = 4000,
         .begin = forget, .config = &policy_two_workers)
{
    return callers_share(0, true);
}

SIM_TEST(sim_hedges_are_within_the_budget_and_one_result_counts, .runs_max = 4000, .begin = forget)
{
    return callers_share(HEDGE_MS, false);
}

SIM_TEST(sim_hedges_that_are_cancelled_leave_nothing_behind, .runs_max = 4000, .begin = forget,
         .config = &policy_two_workers)
{
    return callers_share(HEDGE_MS, true);
}

/* ---- A loser is cancelled at once ---- */

static int slow_first(void *arg)
{
    struct record *record = &records[0];
    unsigned number = record->begun++;
    int r;

    (void)arg;
    r = weir_sleep(number == 0 ? 25 : (int64_t)weir_sim_choose(30));
    record->results[number] = r;
    record->ended_ns[number] = weir_now_ns();
    return r;
}

static int hedge_loses_or_wins(void)
{
    weir_guard_outcome outcome;
    int r = 0;

    SCOPE_OF(scope, &r, 1)
    {
        CHECK_OK(weir_retry_budget_open(
            scope, &(weir_retry_budget_spec){.name = "hedges", .ratio_percent = 100}, &budget));
        CHECK_OK(weir_guard_open(scope,
                                 &(weir_guard_spec){.name = "hedged",
                                                    .timeout_ms = TIMEOUT_MS,
                                                    .idempotent = true,
                                                    .hedge_after_ms = HEDGE_MS,
                                                    .retry = {.attempts = 1,
                                                              .on_exhausted = WEIR_EXHAUSTED_FAIL,
                                                              .keep_budget = budget}},
                                 &guard));
        CHECK_OK(weir_guard_call(guard, slow_first, NULL, 0, &outcome));
        CHECK_INT(outcome.hedges, ==, 1);
        CHECK_INT(records[0].begun, ==, 2);
        /* One of the two, and the call does not wait for what the other one would have done. */
        CHECK_INT(records[0].results[outcome.hedge_won], ==, 0);
        CHECK_INT(outcome.took_ns, <=, 25 * MS_NS);
        if (records[0].results[!outcome.hedge_won] != 0) {
            CHECK_INT(records[0].results[!outcome.hedge_won], ==, WEIR_ECANCELED);
        }
        CHECK_INT(records[0].ended_ns[0], ==, records[0].ended_ns[1]);
    }
    return r;
}

SIM_TEST(sim_hedge_that_loses_is_cancelled_in_that_moment, .runs_max = 2000, .begin = forget)
{
    return hedge_loses_or_wins();
}

/* ---- Full jitter: any wait up to the cap, and none beyond it ---- */

struct waits {
    unsigned long count;
    int64_t least_ns, most_ns;
};

static int fail_always(void *arg)
{
    struct record *record = &records[0];

    (void)arg;
    record->began_ns[record->begun++] = weir_now_ns();
    return -ECONNRESET;
}

static int measure_waits(void *arg)
{
    struct waits *waits = arg;
    int r = 0;

    forget(NULL);
    SCOPE_OF(scope, &r, 1)
    {
        CHECK_OK(weir_guard_open(scope,
                                 &(weir_guard_spec){.name = "jitter",
                                                    .timeout_ms = TIMEOUT_MS,
                                                    .attempt_timeout_ms = 1,
                                                    .idempotent = true,
                                                    .retry = {.attempts = ATTEMPTS,
                                                              .backoff_ms = BACKOFF_MS,
                                                              .backoff_ms_max = BACKOFF_MS,
                                                              .errors = {-ECONNRESET},
                                                              .on_exhausted = WEIR_EXHAUSTED_FAIL}},
                                 &guard));
        CHECK_INT(weir_guard_call(guard, fail_always, NULL, 0, NULL), ==, -ECONNRESET);
        CHECK_INT(records[0].begun, ==, ATTEMPTS);
    }
    for (unsigned i = 1; i < ATTEMPTS; i++) {
        int64_t wait_ns = records[0].began_ns[i] - records[0].began_ns[i - 1];

        CHECK_INT(wait_ns, <=, BACKOFF_MS * MS_NS);
        if (waits->count == 0 || wait_ns < waits->least_ns) waits->least_ns = wait_ns;
        if (wait_ns > waits->most_ns) waits->most_ns = wait_ns;
        waits->count++;
    }
    return r;
}

TEST(sim_waits_between_attempts_have_full_jitter)
{
    /* Runs happen in another process. */
    struct waits *waits =
        mmap(NULL, sizeof *waits, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(waits != MAP_FAILED);
    test_sim(&(weir_sim_spec){.name = "jitter", .runs_max = 4000}, measure_waits, waits);
    CHECK_INT(waits->count, >=, 100);
    CHECK_INT(waits->least_ns, <, BACKOFF_MS * MS_NS / 10);
    CHECK_INT(waits->most_ns, >, BACKOFF_MS * MS_NS / 10 * 9);
    CHECK_OK(munmap(waits, sizeof *waits));
}

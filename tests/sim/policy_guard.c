/* policy_guard.c - all parts of a guard around calls of many tasks: in their order, each call ends
 * once, and what it had is given back; what has waited too long is shed by the rule; what has
 * failed for good is a letter, once, with all that was tried. */
#include "sim/policy.h"

enum { CALLERS = 5, CALLS = 2, INSIDE_MAX = 2, TIMEOUT_MS = 300, ATTEMPTS = 2 };

static weir_shed *shed;
static weir_rate *rate;
static weir_limit *limit;
static weir_breaker *breaker;
static weir_dead_letters *letters;
static weir_guard *guard;

static struct {
    unsigned calls, tried, attempts, inside, inside_max;
    unsigned went_well, partial, failed, canceled, refused, fallbacks, buried;
} seen;

/* What the letters must say, by the item. */
static struct {
    unsigned attempts;
    int errors[ATTEMPTS];
    unsigned buried, found;
} works[CALLERS * CALLS];

static void forget(void *arg)
{
    (void)arg;
    memset(&seen, 0, sizeof seen);
    memset(works, 0, sizeof works);
}

static bool is_within_limit(void *arg)
{
    (void)arg;
    return seen.inside <= INSIDE_MAX;
}

static int work_by_lot(void *arg)
{
    static const int errors[] = {0, -ECONNRESET, -EIO, 0};
    unsigned number = *(unsigned *)arg, attempt = works[number].attempts++;
    int r;

    CHECK_INT(attempt, <, ATTEMPTS);
    seen.attempts++;
    if (++seen.inside > seen.inside_max) seen.inside_max = seen.inside;
    r = weir_sleep(weir_sim_choose(60));
    if (r == 0) r = errors[weir_sim_choose(4)];
    seen.inside--;
    works[number].errors[attempt] = r;
    return r;
}

static int say_something(void *arg, int error, void *keep_arg)
{
    (void)arg, (void)keep_arg;
    CHECK_INT(error, <, 0);
    CHECK_INT(error, !=, WEIR_ECANCELED);
    seen.fallbacks++;
    return 0;
}

static void check_end(int r, const weir_guard_outcome *outcome, unsigned number)
{
    bool tried = outcome->attempts > 0;

    CHECK_INT(outcome->attempts, ==, works[number].attempts);
    seen.tried += tried;
    switch (outcome->end) {
    case WEIR_GUARD_OK: CHECK_INT(r, ==, 0); break;
    case WEIR_GUARD_SHED:
    case WEIR_GUARD_RATE:
    case WEIR_GUARD_LIMIT:
        CHECK(!tried);
        CHECK(outcome->error == WEIR_EOVERLOAD || outcome->error == WEIR_ETIMEDOUT);
        break;
    case WEIR_GUARD_BREAKER: CHECK(tried || outcome->error == WEIR_EBREAKER); break;
    case WEIR_GUARD_CANCELED: CHECK_INT(r, ==, WEIR_ECANCELED); break;
    case WEIR_GUARD_ATTEMPTS: CHECK_INT(outcome->attempts, ==, ATTEMPTS); break;
    case WEIR_GUARD_FATAL: CHECK_INT(outcome->error, ==, -EIO); break;
    case WEIR_GUARD_BUDGET:
    case WEIR_GUARD_TIME: CHECK(tried); break;
    }
    seen.went_well += r == 0;
    seen.partial += r == WEIR_PARTIAL;
    seen.canceled += r == WEIR_ECANCELED;
    seen.failed += r < 0 && r != WEIR_ECANCELED;
    seen.buried += outcome->is_dead_letter;
    works[number].buried = outcome->is_dead_letter;
    CHECK_INT(outcome->is_dead_letter, ==, letters && tried && r < 0 && r != WEIR_ECANCELED);
}

static int call_some(void *arg)
{
    unsigned caller = *(unsigned *)arg;
    int r = 0;

    for (unsigned i = 0; i < CALLS && r != WEIR_ECANCELED; i++) {
        unsigned number = caller * CALLS + i;
        int64_t began_ns = weir_now_ns();
        weir_guard_outcome outcome;

        seen.calls++;
        r = weir_guard_call(guard, work_by_lot, &number, sizeof number, &outcome);
        CHECK_INT(weir_now_ns() - began_ns, <=, TIMEOUT_MS * MS_NS);
        check_end(r, &outcome, caller * CALLS + i);
    }
    return r == WEIR_ECANCELED ? r : 0;
}

static void open_parts(weir_scope *scope)
{
    CHECK_OK(weir_shed_open(
        scope, &(weir_shed_spec){.name = "shed", .target_ms = 5, .interval_ms = 40}, &shed));
    CHECK_OK(weir_rate_open(
        scope,
        &(weir_rate_spec){
            .name = "rate", .rate = 100, .burst = 3, .overflow = WEIR_WAIT, .waiters_max = CALLERS},
        &rate));
    CHECK_OK(weir_limit_open(scope,
                             &(weir_limit_spec){.name = "limit",
                                                .kind = WEIR_LIMIT_FIXED,
                                                .concurrency = INSIDE_MAX,
                                                .overflow = WEIR_WAIT,
                                                .waiters_max = 2},
                             &limit));
    CHECK_OK(weir_breaker_open(scope,
                               &(weir_breaker_spec){.name = "breaker",
                                                    .window_calls = 4,
                                                    .calls_min = 3,
                                                    .failure_percent = 60,
                                                    .open_ms = 30,
                                                    .probes_max = 1},
                               &breaker));
}

static void open_guard(weir_scope *scope, weir_fallback_fn fallback)
{
    CHECK_OK(weir_guard_open(
        scope,
        &(weir_guard_spec){
            .name = "whole",
            .timeout_ms = TIMEOUT_MS,
            .attempt_timeout_ms = 50,
            .keep_shed = shed,
            .keep_rate = rate,
            .keep_limit = limit,
            .keep_breaker = breaker,
            .idempotent = true,
            .retry = {.attempts = ATTEMPTS,
                      .backoff_ms = 10,
                      .backoff_ms_max = 10,
                      .errors = {-ECONNRESET, WEIR_ETIMEDOUT},
                      .on_exhausted = letters ? WEIR_EXHAUSTED_DEAD_LETTER : WEIR_EXHAUSTED_FAIL,
                      .keep_dead_letters = letters},
            .fallback = fallback},
        &guard));
}

/* Everything is back where it was, and counted. */
static void check_parts(void)
{
    weir_rate_figures rated;
    weir_limit_figures limited;
    weir_breaker_figures broken;
    weir_guard_figures guarded;

    weir_rate_figures_of(rate, &rated);
    weir_limit_figures_of(limit, &limited);
    weir_breaker_figures_of(breaker, &broken);
    weir_guard_figures_of(guard, &guarded);
    CHECK_INT(rated.taken - rated.returned, ==, seen.tried); /* one token for each, however often */
    CHECK_INT(rated.waiting, ==, 0);
    CHECK_INT(limited.in_flight, ==, 0);
    CHECK_INT(limited.waiting, ==, 0);
    CHECK_INT(limited.in_flight_max, <=, INSIDE_MAX);
    CHECK_INT(broken.let_in, ==, seen.tried);
    CHECK_INT(broken.let_in, ==, broken.went_well + broken.failed + broken.silent);
    CHECK_INT(guarded.attempts, ==, seen.attempts);
    CHECK_INT(guarded.went_well, ==, seen.went_well);
    CHECK_INT(guarded.partial, ==, seen.partial);
    CHECK_INT(guarded.canceled, <=, seen.canceled); /* not one that was before it called */
    CHECK_INT(guarded.dead_letters, ==, seen.buried);
    CHECK_INT(seen.calls, ==, seen.went_well + seen.partial + seen.failed + seen.canceled);
}

static void run_callers(bool with_cancel)
{
    int r = 0;

    SCOPE_OF(inner, &r, CALLERS)
    {
        weir_task tasks[CALLERS];

        CHECK_OK(crowd_of(CALLERS, call_some, inner, tasks));
        for (unsigned i = 0; with_cancel && i < 2; i++) {
            CHECK_OK(weir_sleep(weir_sim_choose(80)));
            (void)weir_task_cancel(tasks[i], "the test cancels it");
        }
    }
    CHECK_OK(r);
}

static int guarded_whole(bool with_cancel)
{
    int r = 0;

    letters = NULL;
    SCOPE_OF(scope, &r, 1)
    {
        open_parts(scope);
        open_guard(scope, say_something);
        run_callers(with_cancel);
        check_parts();
        CHECK_INT(seen.fallbacks, ==, seen.partial);
        CHECK_INT(seen.failed, ==, 0);
    }
    return r;
}

SIM_TEST(sim_guard_holds_all_its_parts_in_their_order, .runs_max = 3000, .begin = forget,
         .invariants = {{.name = "no more are inside than the limit", .holds = is_within_limit}})
{
    return guarded_whole(false);
}

SIM_TEST(sim_guard_gives_everything_back_when_callers_are_cancelled, .runs_max = 3000,
         .begin = forget, .config = &policy_two_workers,
         .invariants = {{.name = "no more are inside than the limit", .holds = is_within_limit}})
{
    return guarded_whole(true);
}

/* ---- Dead letters ---- */

static void find_letter(const weir_letter *letter, const void *item, void *keep_arg)
{
    unsigned number;

    (void)keep_arg;
    CHECK_INT(letter->item_bytes, ==, sizeof number);
    memcpy(&number, item, sizeof number);
    CHECK_STR(letter->source, "whole");
    CHECK_INT(number, <, CALLERS * CALLS);
    CHECK_INT(++works[number].found, ==, 1);
    CHECK_INT(letter->attempt_count, ==, works[number].attempts);
    for (unsigned i = 0; i < letter->attempt_count; i++) {
        CHECK_INT(letter->attempts[i].error, ==, works[number].errors[i]);
        CHECK_INT(letter->attempts[i].number, ==, i + 1);
    }
    CHECK_INT(letter->last_ns, >=, letter->first_ns);
}

static int take_letters(void *arg)
{
    static weir_letter letter;

    (void)arg;
    for (unsigned i = 0; i < 8; i++) {
        unsigned number;
        if (weir_dead_letters_take(letters, 0, &letter, &number, sizeof number) > 0) {
            find_letter(&letter, &number, NULL);
        }
        CHECK_OK(weir_sleep(weir_sim_choose(60)));
    }
    return 0;
}

/* Every call that has failed for good is found once: taken, or dropped, or left at the end. */
static void look_at_letters(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < CALLERS * CALLS; i++) CHECK_INT(works[i].found, ==, works[i].buried);
}

static int letters_are_handed_over(void)
{
    int r = 0;

    SCOPE_OF(scope, &r, 3)
    {
        weir_dead_letters_figures figures;

        CHECK_OK(weir_dead_letters_open(scope,
                                        &(weir_dead_letters_spec){.name = "letters",
                                                                  .capacity = 2,
                                                                  .item_bytes_max = 16,
                                                                  .overflow = WEIR_DROP_OLDEST,
                                                                  .on_lost = find_letter},
                                        &letters));
        open_parts(scope);
        open_guard(scope, NULL);
        CHECK_OK(crowd_of(2, take_letters, scope, NULL));
        run_callers(true);
        check_parts();
        weir_dead_letters_figures_of(letters, &figures);
        CHECK_INT(figures.put, ==, seen.buried);
        CHECK_INT(figures.put, ==, figures.depth + figures.taken + figures.lost);
        CHECK_INT(figures.depth_max, <=, 2);
    }
    return r;
}

SIM_TEST(sim_dead_letters_are_found_once_with_all_attempts, .runs_max = 3000, .begin = forget,
         .end = look_at_letters)
{
    return letters_are_handed_over();
}

SIM_TEST(sim_dead_letters_on_two_workers_are_found_once, .runs_max = 2000, .begin = forget,
         .end = look_at_letters, .config = &policy_two_workers)
{
    return letters_are_handed_over();
}

/* guard_test.h - what the tests of guards share: a function that does what its argument says, and
 * short ways to open the parts.
 */
#ifndef WEIR_TESTS_GUARD_TEST_H
#define WEIR_TESTS_GUARD_TEST_H

#include <errno.h>
#include <string.h>

#include "base/atomic.h"
#include "unit/flow/flow_test.h"

enum { STEPS_MAX = 8 };

/* What the calls of a function do, one after the other; the last one goes for all that follow. */
struct step {
    int64_t sleep_ms;
    int result;
};

/* What is shared by all attempts of a call, or of many. */
struct script {
    const struct step *steps;
    ATOM(int) step_count;
    ATOM(int) begun, ended, interrupted;
    ATOM(int) running, running_max;
};

struct work {
    struct script *script;
    int value;  /* 1 before; each attempt adds 10 times its number in the script */
    int number; /* of the attempt that has written it */
};

static inline int play(void *arg)
{
    struct work *work = arg;
    struct script *script = work->script;
    int number = atom_add(&script->begun, 1);
    int count = atom_load(&script->step_count);
    const struct step *step = &script->steps[number < count ? number : count - 1];
    int running = atom_add(&script->running, 1) + 1;
    int r = 0;

    CHECK_INT(work->value, ==, 1); /* a fresh copy */
    if (running > atom_load(&script->running_max)) atom_store(&script->running_max, running);
    work->value += 10 * (number + 1);
    work->number = number + 1;
    if (step->sleep_ms > 0) r = weir_sleep(step->sleep_ms);
    if (r < 0) (void)atom_add(&script->interrupted, 1);
    (void)atom_sub(&script->running, 1);
    (void)atom_add(&script->ended, 1);
    return r < 0 ? r : step->result;
}

#define SCRIPT(...)                                               \
    ((struct script){.steps = (const struct step[]){__VA_ARGS__}, \
                     .step_count =                                \
                         sizeof((const struct step[]){__VA_ARGS__}) / sizeof(struct step)})

static inline weir_retry_spec thrice_spec(weir_retry_budget *budget)
{
    return (weir_retry_spec){.attempts = 3,
                             .backoff_ms = 10,
                             .backoff_ms_max = 20,
                             .errors = {-EAGAIN, WEIR_ETIMEDOUT},
                             .on_exhausted = WEIR_EXHAUSTED_FAIL,
                             .keep_budget = budget};
}

/* Three attempts of 100 ms and at most 30 ms between them. */
static inline weir_guard_spec guard_spec(void)
{
    return (weir_guard_spec){.name = "guard",
                             .timeout_ms = 1000,
                             .attempt_timeout_ms = 100,
                             .idempotent = true,
                             .retry = thrice_spec(NULL)};
}

static inline weir_breaker_spec breaker_spec(void)
{
    return (weir_breaker_spec){.name = "breaker",
                               .window_calls = 10,
                               .calls_min = 2,
                               .failure_percent = 50,
                               .open_ms = 100,
                               .probes_max = 1};
}

static inline weir_retry_budget *open_budget(weir_scope *scope, unsigned burst)
{
    weir_retry_budget *budget;
    CHECK_OK(weir_retry_budget_open(
        scope, &(weir_retry_budget_spec){.name = "budget", .ratio_percent = 10, .burst = burst},
        &budget));
    return budget;
}

static inline weir_breaker *open_breaker(weir_scope *scope)
{
    weir_breaker_spec spec = breaker_spec();
    weir_breaker *breaker;
    CHECK_OK(weir_breaker_open(scope, &spec, &breaker));
    return breaker;
}

static inline weir_guard *open_guard(weir_scope *scope, const weir_guard_spec *spec)
{
    weir_guard *guard;
    CHECK_OK(weir_guard_open(scope, spec, &guard));
    return guard;
}

static inline int call_script(weir_guard *guard, struct script *script, struct work *ret_work,
                              weir_guard_outcome *ret_outcome)
{
    struct work work = {.script = script, .value = 1};
    int r = weir_guard_call(guard, play, &work, sizeof work, ret_outcome);

    if (ret_work) *ret_work = work;
    CHECK_INT(atom_load(&script->running), ==, 0); /* nothing is left running */
    return r;
}

#endif

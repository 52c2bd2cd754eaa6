/* flow_fan.c - fan-out in simulation: each input once, at most so many at a time. */
#include <errno.h>

#include "sim/flow_program.h"

enum { INPUTS = 5, IN_FLIGHT = 2 };

struct fan {
    int in_flight, begun[INPUTS], told[INPUTS];
    int results[INPUTS], errors[INPUTS];
    int fails;    /* this input does; -1: none */
    int succeeds; /* only this one does; -1: not so */
    int ends_at;  /* on_done says no to this one; -1: none */
};

/* An input that is cancelled while it is worked on has failed. */
static int work_on(size_t index, const void *input, void *result, void *arg)
{
    struct fan *fan = arg;
    int r;

    CHECK_INT(*(const int *)input, ==, (int)index + 100);
    CHECK_INT(++fan->in_flight, <=, IN_FLIGHT);
    CHECK_INT(++fan->begun[index], ==, 1);
    r = weir_yield();
    CHECK(r == 0 || r == WEIR_ECANCELED);
    fan->in_flight--;
    if (r < 0) return r;
    if ((int)index == fan->fails) return -5;
    if (fan->succeeds >= 0 && (int)index != fan->succeeds) return -6;
    *(int *)result = (int)index + 1;
    return 0;
}

static int note_done(size_t index, int error, void *result, void *arg)
{
    struct fan *fan = arg;

    CHECK_INT(fan->begun[index], ==, 1);
    CHECK_INT(++fan->told[index], ==, 1);
    CHECK_INT(error, ==, fan->errors[index]);
    CHECK_INT(*(int *)result, ==, error < 0 ? 0 : (int)index + 1);
    return (int)index == fan->ends_at ? -7 : 0;
}

static void check_tally(const struct fan *fan, const weir_fan_tally *tally, bool all_told)
{
    size_t finished = 0, failed = 0, told = 0;

    for (int i = 0; i < INPUTS; i++) {
        finished += fan->errors[i] == 0;
        failed += fan->errors[i] < 0;
        told += (size_t)fan->told[i];
        CHECK_INT(fan->begun[i], ==, fan->errors[i] != WEIR_FAN_NOT_STARTED);
        CHECK_INT(fan->results[i], ==, fan->errors[i] == 0 ? i + 1 : 0);
    }
    CHECK_INT(tally->finished, ==, finished);
    CHECK_INT(tally->failed, ==, failed);
    CHECK_INT(tally->finished + tally->failed + tally->not_started, ==, INPUTS);
    CHECK_INT(tally->in_flight, <=, IN_FLIGHT);
    CHECK_INT(tally->winner == WEIR_FAN_NOBODY, ==, finished == 0);
    CHECK_INT(tally->first_failed == WEIR_FAN_NOBODY, ==, failed == 0);
    if (finished > 0) CHECK_INT(fan->errors[tally->winner], ==, 0);
    if (failed > 0) CHECK_INT(fan->errors[tally->first_failed], <, 0);
    if (all_told) CHECK_INT(told, ==, finished + failed);
    CHECK_INT(fan->in_flight, ==, 0);
}

static int fan_out(struct fan *fan, enum weir_fan_policy policy, bool as_completed,
                   weir_fan_tally *ret_tally)
{
    static const int inputs[INPUTS] = {100, 101, 102, 103, 104};
    weir_fan_spec spec = {.name = "fan",
                          .in_flight_max = IN_FLIGHT,
                          .policy = policy,
                          .fn = work_on,
                          .keep_arg = fan,
                          .count = INPUTS,
                          .inputs = inputs,
                          .input_bytes = sizeof inputs[0],
                          .results = fan->results,
                          .result_bytes = sizeof fan->results[0],
                          .errors = fan->errors,
                          .on_done = as_completed ? note_done : NULL};
    int r = weir_fan_out(&spec, ret_tally);

    check_tally(fan, ret_tally, as_completed && fan->ends_at < 0);
    return r;
}

int flow_fan_collect(bool as_completed)
{
    struct fan fan = {.fails = 1, .succeeds = -1, .ends_at = -1};
    weir_fan_tally tally;
    int r = fan_out(&fan, WEIR_FAN_COLLECT, as_completed, &tally);

    CHECK(r == -5 || r == WEIR_ECANCELED);
    return (int)tally.finished;
}

SIM_TEST(fan_out_puts_each_result_in_its_place, .runs_max = 8000, .config = FLOW_HOST)
{
    CHECK_INT(flow_fan_collect(false), ==, INPUTS - 1);
    return 0;
}

SIM_TEST(fan_out_tells_of_each_input_as_it_ends, .runs_max = 6000, .config = FLOW_HOST)
{
    CHECK_INT(flow_fan_collect(true), ==, INPUTS - 1);
    return 0;
}

SIM_TEST(fan_out_says_what_a_cancel_has_left, .runs_max = 8000, .config = FLOW_HOST,
         FLOW_CANCELS_ONCE)
{
    return flow_fan_collect(false);
}

SIM_TEST(fan_out_that_tells_says_what_a_cancel_has_left, .runs_max = 6000, .config = FLOW_HOST,
         FLOW_CANCELS_ONCE)
{
    return flow_fan_collect(true);
}

SIM_TEST(fan_out_that_fails_fast_ends_with_the_first_failure, .runs_max = 6000, .config = FLOW_HOST)
{
    struct fan fan = {.fails = 1, .succeeds = -1, .ends_at = -1};
    weir_fan_tally tally;

    CHECK_INT(fan_out(&fan, WEIR_FAN_FAIL_FAST, weir_sim_choose(2) == 1, &tally), ==, -5);
    CHECK_INT(tally.first_failed, ==, 1);
    return 0;
}

SIM_TEST(fan_out_ends_with_the_first_success, .runs_max = 6000, .config = FLOW_HOST)
{
    struct fan fan = {.fails = -1, .succeeds = 2, .ends_at = -1};
    weir_fan_tally tally;

    CHECK_OK(fan_out(&fan, WEIR_FAN_FIRST_SUCCESS, weir_sim_choose(2) == 1, &tally));
    CHECK_INT(tally.winner, ==, 2);
    CHECK_INT(tally.finished, ==, 1);
    return 0;
}

SIM_TEST(fan_out_without_success_has_failed, .runs_max = 6000, .config = FLOW_HOST)
{
    struct fan fan = {.fails = -1, .succeeds = INPUTS, .ends_at = -1};
    weir_fan_tally tally;

    CHECK_INT(fan_out(&fan, WEIR_FAN_FIRST_SUCCESS, weir_sim_choose(2) == 1, &tally), ==, -6);
    CHECK_INT(tally.failed, ==, INPUTS);
    return 0;
}

SIM_TEST(fan_out_ends_when_its_caller_has_enough, .runs_max = 6000, .config = FLOW_HOST)
{
    struct fan fan = {.fails = -1, .succeeds = -1, .ends_at = 1};
    weir_fan_tally tally;

    CHECK_INT(fan_out(&fan, WEIR_FAN_COLLECT, true, &tally), ==, -7);
    return 0;
}

SIM_TEST(fan_out_makes_do_with_the_memory_there_is, .runs_max = 6000, .config = FLOW_HOST,
         .any_result = true, .faults = {.no_memory = 4, .faults_max = 3})
{
    struct fan fan = {.fails = -1, .succeeds = -1, .ends_at = -1};
    weir_fan_tally tally;
    int r = fan_out(&fan, WEIR_FAN_COLLECT, weir_sim_choose(2) == 1, &tally);

    CHECK(r == 0 || r == -ENOMEM || r == WEIR_EOVERLOAD);
    if (r == 0) CHECK_INT(tally.finished, ==, INPUTS);
    return r;
}

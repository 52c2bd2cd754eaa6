/* fan_test.c - fan-out: bounds, order, policies, every input accounted for. */
#include <errno.h>
#include <string.h>

#include "base/atomic.h"
#include "unit/flow/flow_test.h"

enum { COUNT = 40 };

static ATOM(int) running, running_max, begun;

static void enter(void)
{
    int now = atom_add(&running, 1) + 1;
    int most = atom_load(&running_max);
    (void)atom_add(&begun, 1);
    while (now > most && !atom_cas(&running_max, &most, now)) {}
}

static int square(size_t index, const void *input, void *result, void *keep_arg)
{
    const int *number = input;
    int r;

    (void)keep_arg;
    CHECK_INT(*number, ==, (int)index + 1);
    enter();
    r = weir_yield();
    if (r == 0) r = weir_yield();
    if (r == 0) *(int *)result = *number * *number;
    (void)atom_sub(&running, 1);
    return r;
}

static void reset(void)
{
    atom_store(&running, 0);
    atom_store(&running_max, 0);
    atom_store(&begun, 0);
}

FLOW_TEST(fan_out_gathers_in_order_with_at_most_so_many_in_flight)
{
    static const size_t bounds[] = {1, 3, 7, COUNT, 3 * COUNT};
    int inputs[COUNT], results[COUNT], errors[COUNT];

    for (int i = 0; i < COUNT; i++) inputs[i] = i + 1;
    for (size_t k = 0; k < sizeof bounds / sizeof bounds[0]; k++) {
        weir_fan_tally tally;
        reset();
        memset(results, 0, sizeof results);
        CHECK_OK(weir_fan_out(&(weir_fan_spec){.name = "squares",
                                               .in_flight_max = bounds[k],
                                               .policy = WEIR_FAN_FAIL_FAST,
                                               .fn = square,
                                               .count = COUNT,
                                               .inputs = inputs,
                                               .input_bytes = sizeof inputs[0],
                                               .results = results,
                                               .result_bytes = sizeof results[0],
                                               .errors = errors,
                                               .place = WEIR_PLACE_HERE},
                              &tally));
        for (int i = 0; i < COUNT; i++) {
            CHECK_INT(results[i], ==, (i + 1) * (i + 1));
            CHECK_INT(errors[i], ==, 0);
        }
        CHECK_INT(tally.finished, ==, COUNT);
        CHECK_INT(tally.failed + tally.not_started, ==, 0);
        CHECK_INT(tally.in_flight, ==, bounds[k] < COUNT ? bounds[k] : COUNT);
        CHECK_INT(atom_load(&running_max), ==, (int)tally.in_flight);
    }
    return 0;
}

/* ---- Policies, as a table ---- */

/* Outcome of each input: 0 or an error; they end in the order of their indexes. */
static int scripted(size_t index, const void *input, void *result, void *keep_arg)
{
    int r = 0;
    (void)result, (void)keep_arg;
    enter();
    for (size_t i = 0; r == 0 && i < index; i++) r = weir_yield();
    (void)atom_sub(&running, 1);
    return r < 0 ? r : *(const int *)input;
}

struct policy_row {
    const char *label;
    enum weir_fan_policy policy;
    size_t in_flight_max;
    int outcomes[6];
    int expected;
    size_t finished, failed, not_started;
    size_t winner, first_failed;
};

static const struct policy_row policy_rows[] = {
    {"fast, all well", WEIR_FAN_FAIL_FAST, 1, {0}, 0, 6, 0, 0, 0, WEIR_FAN_NOBODY},
    {"fast, the third fails", WEIR_FAN_FAIL_FAST, 1, {0, 0, -EIO}, -EIO, 2, 1, 3, 0, 2},
    {"fast, at once", WEIR_FAN_FAIL_FAST, 6, {-EIO}, -EIO, 0, 1, 5, WEIR_FAN_NOBODY, 0},
    {"fast, others are cancelled", WEIR_FAN_FAIL_FAST, 6, {0, -EIO}, -EIO, 1, 5, 0, 0, 1},
    {"collect", WEIR_FAN_COLLECT, 1, {0, -EIO, 0, -EPERM}, -EIO, 4, 2, 0, 0, 1},
    {"collect at once", WEIR_FAN_COLLECT, 6, {0, -EIO, 0, -EPERM}, -EIO, 4, 2, 0, 0, 1},
    {"first success", WEIR_FAN_FIRST_SUCCESS, 1, {-EIO, -EPERM, 0, 0}, 0, 1, 2, 3, 2, 0},
    {"first success at once", WEIR_FAN_FIRST_SUCCESS, 6, {-EIO, 0, -EIO}, 0, 1, 5, 0, 1, 0},
    {"no success",
     WEIR_FAN_FIRST_SUCCESS,
     2,
     {-EIO, -EIO, -EIO, -EIO, -EIO, -EPERM},
     -EIO,
     0,
     6,
     0,
     WEIR_FAN_NOBODY,
     0},
};

struct done_note {
    int count;
    size_t order[6];
    int errors[6];
};

static int note_done(size_t index, int error, void *result, void *keep_arg)
{
    struct done_note *note = keep_arg;
    (void)result;
    CHECK_INT(note->count, <, 6);
    note->order[note->count] = index;
    note->errors[note->count++] = error;
    return 0;
}

static void check_policy(const struct policy_row *row, bool reports)
{
    struct done_note note = {0};
    weir_fan_tally tally;
    int errors[6];
    size_t seen[3] = {0};
    int r;

    test_note("%s%s", row->label, reports ? ", reported" : "");
    r = weir_fan_out(&(weir_fan_spec){.name = "policy",
                                      .in_flight_max = row->in_flight_max,
                                      .policy = row->policy,
                                      .fn = scripted,
                                      .keep_arg = &note,
                                      .count = 6,
                                      .inputs = row->outcomes,
                                      .input_bytes = sizeof(int),
                                      .errors = errors,
                                      .on_done = reports ? note_done : NULL,
                                      .place = WEIR_PLACE_HERE},
                     &tally);
    CHECK_INT(r, ==, row->expected);
    CHECK_INT(tally.finished, ==, row->finished);
    CHECK_INT(tally.failed, ==, row->failed);
    CHECK_INT(tally.not_started, ==, row->not_started);
    CHECK_INT(tally.winner, ==, row->winner);
    CHECK_INT(tally.first_failed, ==, row->first_failed);
    for (int i = 0; i < 6; i++) seen[errors[i] == 0 ? 0 : errors[i] < 0 ? 1 : 2]++;
    CHECK_INT(seen[0], ==, row->finished);
    CHECK_INT(seen[1], ==, row->failed);
    CHECK_INT(seen[2], ==, row->not_started);
    if (!reports) return;
    CHECK_INT(note.count, ==, (int)(row->finished + row->failed));
    for (int i = 0; i < note.count; i++) CHECK_INT(note.errors[i], ==, errors[note.order[i]]);
}

FLOW_TEST(fan_out_policies_are_what_their_names_say)
{
    for (size_t i = 0; i < sizeof policy_rows / sizeof policy_rows[0]; i++) {
        check_policy(&policy_rows[i], false);
        check_policy(&policy_rows[i], true);
    }
    return 0;
}

FLOW_TEST(fan_out_spec_names_what_is_missing_or_contradicts)
{
    static const weir_fan_spec good = {
        .name = "f", .in_flight_max = 1, .policy = WEIR_FAN_FAIL_FAST, .fn = scripted, .count = 2};
    static const char *const why[] = {"name",   "in_flight_max", "policy",  "fn",
                                      "errors", "input_bytes",   "results", "at most"};
    weir_fan_spec specs[8];
    weir_fan_tally tally;

    for (int i = 0; i < 8; i++) specs[i] = good;
    specs[0].name = "";
    specs[1].in_flight_max = 0;
    specs[2].policy = WEIR_FAN_UNSET;
    specs[3].fn = NULL;
    specs[4].policy = WEIR_FAN_COLLECT;
    specs[5].inputs = &good;
    specs[6].result_bytes = 4;
    specs[7].in_flight_max = WEIR_FAN_IN_FLIGHT_MAX + 1;
    for (int i = 0; i < 8; i++) {
        CHECK_INT(weir_fan_out(&specs[i], &tally), ==, WEIR_EREFUSED);
        CHECK_CONTAINS(weir_why(), why[i]);
        CHECK_INT(tally.not_started, ==, 2);
    }
    return 0;
}

/* ---- As completed ---- */

static int late_first(size_t index, const void *input, void *result, void *keep_arg)
{
    int r = 0;
    (void)input, (void)keep_arg;
    for (size_t i = index; r == 0 && i < 4; i++) r = weir_yield();
    *(size_t *)result = index * 10;
    return r;
}

static int note_result(size_t index, int error, void *result, void *keep_arg)
{
    struct done_note *note = keep_arg;
    CHECK_INT(error, ==, 0);
    CHECK_INT(*(size_t *)result, ==, index * 10);
    note->order[note->count++] = index;
    return weir_yield();
}

FLOW_TEST(fan_out_reports_what_is_done_first_first_in_the_callers_task)
{
    struct done_note note = {0};
    size_t results[4];

    CHECK_OK(weir_fan_out(&(weir_fan_spec){.name = "late",
                                           .in_flight_max = 4,
                                           .policy = WEIR_FAN_FAIL_FAST,
                                           .fn = late_first,
                                           .keep_arg = &note,
                                           .count = 4,
                                           .results = results,
                                           .result_bytes = sizeof results[0],
                                           .on_done = note_result,
                                           .place = WEIR_PLACE_HERE},
                          NULL));
    CHECK_INT(note.count, ==, 4);
    for (int i = 0; i < 4; i++) CHECK_INT(note.order[i], ==, 3 - i);
    return 0;
}

static int refuse_third(size_t index, int error, void *result, void *keep_arg)
{
    int *count = keep_arg;
    (void)index, (void)error, (void)result;
    return ++*count == 3 ? -ENOSPC : 0;
}

static int quick(size_t index, const void *input, void *result, void *keep_arg)
{
    (void)index, (void)input, (void)result, (void)keep_arg;
    return 0;
}

FLOW_TEST(fan_out_ends_when_the_callback_says_so_and_waits_for_a_slow_one)
{
    weir_fan_tally tally;
    int count = 0;

    CHECK_INT(weir_fan_out(&(weir_fan_spec){.name = "refused",
                                            .in_flight_max = 2,
                                            .policy = WEIR_FAN_FAIL_FAST,
                                            .fn = quick,
                                            .keep_arg = &count,
                                            .count = 1000,
                                            .on_done = refuse_third},
                           &tally),
              ==, -ENOSPC);
    CHECK_INT(count, ==, 3);
    CHECK_INT(tally.finished, >=, 3);
    CHECK_INT(tally.finished, <=, 3 + 2 + 2); /* the channel, and one in each task's hands */
    CHECK_INT(tally.finished + tally.not_started, ==, 1000);
    return 0;
}

/* ---- Deadlines and cancelling ---- */

static int wait_for_ever(size_t index, const void *input, void *result, void *keep_arg)
{
    (void)index, (void)input, (void)result, (void)keep_arg;
    return weir_sleep(60000);
}

FLOW_TEST_CLOCK(fan_out_ends_at_the_deadline_in_force)
{
    weir_fan_tally tally;
    int errors[5];
    int r = 0;

    WEIR_DEADLINE(10) {
        r = weir_fan_out(&(weir_fan_spec){.name = "late",
                                          .in_flight_max = 2,
                                          .policy = WEIR_FAN_COLLECT,
                                          .fn = wait_for_ever,
                                          .count = 5,
                                          .errors = errors},
                         &tally);
    }
    CHECK(r == WEIR_ETIMEDOUT || r == WEIR_ECANCELED);
    CHECK_INT(tally.failed, ==, 2);
    CHECK_INT(tally.not_started, ==, 3);
    CHECK_INT(errors[1], ==, WEIR_ECANCELED);
    CHECK_INT(errors[2], ==, WEIR_FAN_NOT_STARTED);
    return 0;
}

struct swept {
    enum weir_fan_policy policy;
    bool reports;
};

static int count_done(size_t index, int error, void *result, void *keep_arg)
{
    (void)index, (void)error, (void)result;
    ++*(int *)keep_arg;
    return 0;
}

static int swept_square(size_t index, const void *input, void *result, void *keep_arg)
{
    (void)keep_arg;
    int r = square(index, input, result, NULL);
    return r == 0 && index == 4 ? -EIO : r;
}

static int swept_task(void *arg)
{
    struct swept *swept = arg;
    int inputs[6], results[6], errors[6], count = 0;
    weir_fan_tally tally;
    int r, seen[3] = {0};

    for (int i = 0; i < 6; i++) inputs[i] = i + 1;
    reset();
    r = weir_fan_out(&(weir_fan_spec){.name = "swept",
                                      .in_flight_max = 2,
                                      .policy = swept->policy,
                                      .fn = swept_square,
                                      .keep_arg = &count,
                                      .count = 6,
                                      .inputs = inputs,
                                      .input_bytes = sizeof inputs[0],
                                      .results = results,
                                      .result_bytes = sizeof results[0],
                                      .errors = errors,
                                      .on_done = swept->reports ? count_done : NULL},
                     &tally);
    CHECK_INT(atom_load(&running), ==, 0);
    CHECK_INT(tally.finished + tally.failed + tally.not_started, ==, 6);
    CHECK_INT(atom_load(&begun), ==, (int)(tally.finished + tally.failed));
    if (swept->reports) CHECK_INT(count, ==, atom_load(&begun));
    for (int i = 0; i < 6; i++) {
        seen[errors[i] == 0 ? 0 : errors[i] < 0 ? 1 : 2]++;
        if (errors[i] == 0) CHECK_INT(results[i], ==, (i + 1) * (i + 1));
    }
    CHECK_INT(seen[0], ==, (int)tally.finished);
    CHECK_INT(seen[1], ==, (int)tally.failed);
    return r == -EIO ? 0 : r;
}

static int swept_scenario(void *arg)
{
    return weir_run(&(weir_config){.workers = test_workers(), .log_level = WEIR_LOG_OFF},
                    swept_task, (struct swept *)arg);
}

static void sweep(bool cancel)
{
    for (int policy = WEIR_FAN_FAIL_FAST; policy <= WEIR_FAN_FIRST_SUCCESS; policy++) {
        for (int reports = 0; reports < 2; reports++) {
            struct swept swept = {(enum weir_fan_policy)policy, reports};
            test_note("policy %d, reports %d", policy, reports);
            if (cancel) {
                CHECK_INT(test_sweep_cancel(swept_scenario, &swept), >, 4);
            } else {
                CHECK_INT(test_sweep_alloc(swept_scenario, &swept), >, 3);
            }
        }
    }
}

TEST(fan_out_accounts_for_every_input_wherever_it_is_cancelled)
{
    sweep(true);
}

TEST(fan_out_accounts_for_every_input_whatever_allocation_fails)
{
    sweep(false);
}

/* ---- Many at once ---- */

static int inner(size_t index, const void *input, void *result, void *keep_arg)
{
    (void)input, (void)keep_arg;
    *(long *)result = (long)index;
    return index % 3 == 0 ? weir_yield() : 0;
}

static int outer_task(void *arg)
{
    enum { EACH = 50 };
    long results[EACH], sum = 0;
    weir_fan_tally tally;
    int r = weir_fan_out(&(weir_fan_spec){.name = "inner",
                                          .in_flight_max = 4,
                                          .policy = WEIR_FAN_FAIL_FAST,
                                          .fn = inner,
                                          .count = EACH,
                                          .results = results,
                                          .result_bytes = sizeof results[0]},
                         &tally);
    if (r < 0) return r;
    for (int i = 0; i < EACH; i++) sum += results[i];
    CHECK_INT(sum, ==, EACH * (EACH - 1) / 2);
    (void)atom_add(*(ATOM(int) **)arg, (int)tally.finished);
    return 0;
}

FLOW_TEST(fan_out_by_many_callers_at_once)
{
    static ATOM(int) finished;
    ATOM(int) *counter = &finished;
    int result;

    atom_store(&finished, 0);
    FLOW_SCOPE_ANYWHERE(scope, &result)
    {
        for (int i = 0; i < 100; i++) {
            CHECK_OK(weir_spawn(scope, outer_task, &counter, sizeof counter));
        }
    }
    CHECK_INT(atom_load(&finished), ==, 5000);
    return result;
}

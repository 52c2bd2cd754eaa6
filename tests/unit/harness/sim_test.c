/* sim_test.c - tests that are programs in simulation fail as they should, and say how to see the
 * run again. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <weir/weir.h>

#include "harness/test.h"
#include "unit/harness/run_self.h"

/* ---- The tests that are looked at ---- */

SIM_TEST(simulated_test_passes, .runs_max = 10)
{
    CHECK(weir_sim_running());
    CHECK(arg == NULL);
    return weir_sleep(60000);
}

static int fail_a_check(void *arg)
{
    int r = weir_sleep(60000);

    if (r < 0) return r;
    CHECK_INT(*(int *)arg, ==, 4);
    return 0;
}

TEST_WITH(hidden_sim_fails_a_check, .hidden = true)
{
    int apples = 3;

    test_sim(&(weir_sim_spec){.name = "apples", .runs_max = 10}, fail_a_check, &apples);
}

static int skip_the_test(void *arg)
{
    (void)arg;
    TEST_SKIP("the moon is not full");
}

TEST_WITH(hidden_sim_skips_in_a_run, .hidden = true)
{
    test_sim(&(weir_sim_spec){.name = "skips", .runs_max = 10}, skip_the_test, NULL);
}

TEST_WITH(hidden_sim_is_refused, .hidden = true)
{
    test_sim(&(weir_sim_spec){.name = "no budget"}, fail_a_check, NULL);
}

/* ---- What is said of them ---- */

/* What is between "WEIR_SIM='" and the next "'" of the output. */
static const char *replay_words(void)
{
    static char words[WEIR_SIM_REPLAY_BYTES];
    const char *begin = strstr(output, "WEIR_SIM='");

    CHECK(begin != NULL);
    CHECK_INT(sscanf(begin, "WEIR_SIM='%1000[^']'", words), ==, 1);
    return words;
}

TEST(harness_fails_a_simulated_run_by_its_check)
{
    test_skip_without_sim();
    CHECK_INT(RUN("hidden_sim_fails_a_check"), ==, 1);
    CHECK_CONTAINS(output, "sim_test.c:");
    CHECK_CONTAINS(output, "CHECK_INT(*(int *)arg == 4) does not hold");
    CHECK_CONTAINS(output, "--run hidden_sim_fails_a_check");
    CHECK_CONTAINS(output, "\n0 passed, 1 failed\n");
    CHECK_INT(RUN("hidden_sim_skips_in_a_run"), ==, 1);
    CHECK_CONTAINS(output, "a run cannot be skipped (the moon is not full)");
}

TEST(harness_replays_a_simulated_run)
{
    test_skip_without_sim();
    CHECK_INT(RUN("hidden_sim_fails_a_check"), ==, 1);
    CHECK_INT(setenv("WEIR_SIM", replay_words(), 1), ==, 0);
    CHECK_INT(RUN("--run", "hidden_sim_fails_a_check"), ==, 1);
    CHECK_CONTAINS(output, "CHECK_INT(*(int *)arg == 4) does not hold");
    CHECK_INT(RUN("hidden_sim_fails_a_check"), ==, 1);
    CHECK_INT(RUN("hidden_sim_fails_a_check", "hidden_passes"), ==, 2);
    CHECK_CONTAINS(output, "name the one test (or --run it) of the run WEIR_SIM is");
}

TEST(harness_fails_a_simulation_that_is_refused)
{
    test_skip_without_sim();
    CHECK_INT(RUN("hidden_sim_is_refused"), ==, 1);
    CHECK_CONTAINS(output, "weir_sim_run('no budget') gives ");
}

/* harness_test.c - the runner reports what goes wrong, and nothing else. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "harness/test.h"
#include "rt/mem.h"
#include "unit/harness/run_self.h"

static void check_fails(const char *name, const char *reason, const char *words)
{
    CHECK_INT(RUN("-j", "1", name), ==, 1);
    CHECK_CONTAINS(output, "FAILED unit/harness/hidden/");
    CHECK_CONTAINS(output, reason);
    CHECK_CONTAINS(output, words);
    CHECK_CONTAINS(output, "\n0 passed, 1 failed\n");
}

TEST(harness_passes_a_test_that_passes)
{
    CHECK_INT(RUN("hidden_passes"), ==, 0);
    CHECK_STR(output, "1 passed, 0 failed\n");
}

TEST(harness_shows_the_failed_expression_and_both_values)
{
    check_fails("hidden_fails_a_check", "hidden_fails_a_check: failed",
                "CHECK(apples == 4) does not hold");
    CHECK_CONTAINS(output, "hidden.c:");
    check_fails("hidden_fails_an_integer", "failed", "CHECK_INT(apples + 0 == 17)");
    CHECK_CONTAINS(output, "actual   -4097 (WEIR_ECANCELED)");
    CHECK_CONTAINS(output, "expected 17");
    check_fails("hidden_fails_a_string", "failed", "actual   \"left\"");
    CHECK_CONTAINS(output, "expected \"right\"");
    check_fails("hidden_fails_against_null", "failed", "actual   NULL");
}

TEST(harness_fails_a_test_whose_thread_fails)
{
    check_fails("hidden_fails_on_a_thread", "failed", "CHECK_INT(1 == 2)");
}

TEST(harness_kills_a_hung_test_and_says_where_it_is)
{
    check_fails("hidden_hangs", "timeout after", "some output before the hang");
    CHECK_CONTAINS(output, "hung during waiting for nothing");
    check_fails("hidden_hangs_silently", "timeout after", "the thread that got the signal is at");
    CHECK_CONTAINS(output, "on_hung");
#if defined(__GLIBC__) /* musl's own functions have no unwind tables */
    CHECK_CONTAINS(output, "poll");
#endif
}

TEST(harness_ends_what_a_test_has_started)
{
    int pid;

    check_fails("hidden_leaves_a_hanging_process", "failed", "left behind: ");
    pid = (int)strtol(strstr(output, "left behind: ") + strlen("left behind: "), NULL, 10);
    CHECK_INT(pid, >, 0);
    /* Killed, and so gone or about to be reaped by whoever inherited it. */
    while (kill(pid, 0) == 0 && !test_late()) {
        char path[64], state[256] = "";
        FILE *file;

        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        file = fopen(path, "re");
        if (file == NULL) break;
        if (fgets(state, sizeof state, file) == NULL) state[0] = '\0';
        fclose(file);
        if (strstr(state, ") Z ") != NULL) return;
        (void)poll(NULL, 0, 1);
    }
    CHECK_INT(kill(pid, 0), ==, -1);
}

TEST(harness_catches_leaked_memory_and_says_who_made_it)
{
    check_fails("hidden_leaks_memory", "failed", "leak: memory: 1 blocks with 123 bytes");
    CHECK_CONTAINS(output, "123 bytes, allocation number 1");
    CHECK_CONTAINS(output, "leak_here");
}

#if TEST_SANITIZED
TEST(harness_keeps_leak_and_race_detection_of_the_sanitizers)
{
    if (WEIR_ASAN) check_fails("hidden_leaks_memory_of_libc", "exit status", "321 byte");
    if (WEIR_TSAN) check_fails("hidden_races_around_allocations", "FAILED", "data race");
}
#endif

TEST(harness_catches_descriptors_opened_and_closed)
{
    check_fails("hidden_leaks_a_descriptor", "failed", "is open: /dev/zero");
    check_fails("hidden_closes_what_it_does_not_own", "failed",
                "descriptor 0 was open before, and somebody closed it");
}

TEST(harness_catches_a_descriptor_that_is_closed_twice)
{
    check_fails("hidden_closes_twice", "failed", "closed twice: 1 closes of descriptors");
    check_fails("hidden_closes_somebody_elses", "failed", "closed twice: 1 closes of descriptors");
}

TEST(harness_catches_a_check_that_fails_in_a_forked_process)
{
    check_fails("hidden_fails_in_a_forked_process", "failed",
                "a check failed in a process that the test has forked");
    CHECK_CONTAINS(output, "CHECK_INT(3 == 4)");
}

TEST_WITH(harness_catches_a_leaked_thread, .timeout_ms = 30000)
{
    check_fails("hidden_leaks_a_thread", "failed", "threads, and there were");
}

TEST(harness_catches_a_double_free)
{
    CHECK_INT(RUN("-j", "1", "hidden_frees_twice"), ==, 1);
    CHECK_CONTAINS(output, "\n0 passed, 1 failed\n");
}

TEST(harness_reports_death_and_early_exit)
{
    check_fails("hidden_aborts", "killed by signal 6", "");
    check_fails("hidden_exits_early", "the process ended before the test did", "");
}

TEST(harness_counts_skipped_tests_apart)
{
    CHECK_INT(RUN("hidden_skips", "hidden_passes"), ==, 0);
    CHECK_CONTAINS(output, "skipped unit/harness/hidden/hidden_skips: the moon is not full\n");
    CHECK_CONTAINS(output, "\n1 passed, 0 failed, 1 skipped\n");
}

TEST(harness_shows_the_end_of_long_output)
{
    check_fails("hidden_prints_much", "failed", "line 1000.\n");
    CHECK_CONTAINS(output, "are left out");
    CHECK(strstr(output, "line 100.\n") == NULL);
    CHECK_CONTAINS(output, "line 850.\n");
}

TEST(harness_refuses_what_it_does_not_understand)
{
    CHECK_INT(RUN("no_such_test"), ==, 2);
    CHECK_CONTAINS(output, "no test matches");
    CHECK_INT(RUN("--frobnicate"), ==, 2);
    CHECK_CONTAINS(output, "unknown argument '--frobnicate'");
    CHECK_INT(RUN("-j", "none"), ==, 2);
    CHECK_INT(RUN("--repeat"), ==, 2);
    CHECK_INT(RUN("--run", "no_such_test"), ==, 2);
}

TEST(harness_keeps_hidden_tests_out_of_lists_and_patterns)
{
    CHECK_INT(RUN("--list"), ==, 0);
    CHECK_CONTAINS(output, "unit/harness/harness_test/"
                           "harness_keeps_hidden_tests_out_of_lists_and_patterns\n");
    CHECK(strstr(output, "hidden_passes") == NULL);
    CHECK_INT(RUN("hidden_*"), ==, 2);
    CHECK_INT(RUN("--list", "unit/harness/harness_test"), ==, 0);
    CHECK_CONTAINS(output, "harness_test");
    CHECK(strstr(output, "kernel_test") == NULL);
    CHECK_INT(RUN("--list", "*_opened_and_closed"), ==, 0);
    CHECK_STR(output, "unit/harness/harness_test/harness_catches_descriptors_opened_and_closed\n");
}

TEST(harness_leaves_out_what_it_is_told_to_skip)
{
    CHECK_INT(
        RUN("--list", "unit/harness", "--skip", "unit/harness/harness_test", "--skip", "*run*"), ==,
        0);
    CHECK_CONTAINS(output, "unit/harness/");
    CHECK(strstr(output, "harness_test/") == NULL);
    CHECK(strstr(output, "run") == NULL);
    CHECK_INT(RUN("--list", "unit/harness", "--skip", "unit/harness"), ==, 2);
    CHECK_INT(RUN("--skip"), ==, 2);
}

TEST(harness_runs_one_test_unforked)
{
    CHECK_INT(RUN("--run", "hidden_passes"), ==, 0);
    CHECK_STR(output, "");
    CHECK_INT(RUN("--run", "hidden_fails_a_check"), ==, 1);
    CHECK_CONTAINS(output, "CHECK(apples == 4) does not hold");
    CHECK_INT(RUN("--run", "hidden_skips"), ==, 77);
}

TEST(harness_repeats_tests_and_sets_workers)
{
    CHECK_INT(RUN("--repeat", "7", "-j2", "hidden_passes"), ==, 0);
    CHECK_CONTAINS(output, "7 passed, 0 failed\n");
    check_fails("hidden_says_how_many_workers", "failed", "workers: 2\n");
    CHECK_INT(RUN("--workers", "5", "hidden_says_how_many_workers"), ==, 1);
    CHECK_CONTAINS(output, "workers: 5\n");
}

TEST_WITH(harness_gives_a_test_its_own_number_of_workers, .workers = 3)
{
    CHECK_INT(test_workers(), ==, 3);
}

TEST(harness_sweeps_find_leaks_and_scenarios_that_never_work)
{
    check_fails("hidden_sweep_finds_a_leak", "failed", "during   allocation 1");
    CHECK_CONTAINS(output, "leak: memory: 1 blocks with 10 bytes");
    check_fails("hidden_sweep_finds_a_scenario_that_never_works", "failed",
                "a run in which no allocation went wrong");
}

TEST(harness_names_a_call_that_does_not_exist)
{
    check_fails("hidden_fault_of_an_unknown_call", "failed", "'frobnicate' is no call");
}

/* ---- Other processes ---- */

static void say_and_abort(void *arg)
{
    fprintf(stderr, "a sentence about %s\n", (const char *)arg);
    abort();
}

TEST(harness_checks_that_a_function_aborts)
{
    char thing[] = "apples";

    CHECK_ABORTS(say_and_abort, thing, "a sentence about apples");
}

static void nothing(void *arg)
{
    (void)arg;
}

TEST(harness_runs_functions_and_programs_in_processes_of_their_own)
{
    char small[4] = "???";

    CHECK_INT(test_child(nothing, NULL, output, sizeof output), ==, 0);
    CHECK_STR(output, "");
    CHECK_INT(test_exec((const char *const[]){"/bin/echo", "hello", NULL}, small, sizeof small), ==,
              0);
    CHECK_STR(small, "hel");
    CHECK_INT(
        WEXITSTATUS(test_exec((const char *const[]){"/nonexistent", NULL}, output, sizeof output)),
        ==, 127);
}

/* test.h - what weir's own tests use: the harness of <weir/test.h>, which says how tests are
 * written, under short names; and what only tests of the library's inside need.
 *
 *     TEST(ring_keeps_what_was_put_last)
 *     {
 *         CHECK(ring_put(&ring, 7));
 *         CHECK_INT(ring_count(&ring), ==, 1);
 *     }
 *
 *     test_sweep_alloc(scenario, arg);      weir_test_sweep_alloc, and so on
 *     test_mask_features("guard");          as on an older kernel
 *     test_choose(choose, arg);             what the scheduler chooses
 *     test_child(fn, arg, output, bytes);   a process of the test's own
 */
#ifndef WEIR_HARNESS_TEST_H
#define WEIR_HARNESS_TEST_H

#include <weir/test.h>

#include "rt/sanitize.h"
#include "testing/inside.h"

/* ---- Short names ---- */

#define TEST WEIR_TEST
#define TEST_WITH WEIR_TEST_WITH
#define SIM_TEST WEIR_SIM_TEST
#define TEST_FAIL WEIR_TEST_FAIL
#define TEST_SKIP WEIR_TEST_SKIP
#define TEST_TIMEOUT_MS_DEFAULT WEIR_TEST_TIMEOUT_MS_DEFAULT
#define TEST_CLOCK_START_NS WEIR_TEST_CLOCK_START_NS
#define CHECK WEIR_CHECK
#define CHECK_INT WEIR_CHECK_INT
#define CHECK_STR WEIR_CHECK_STR
#define CHECK_CONTAINS WEIR_CHECK_CONTAINS
#define CHECK_OK WEIR_CHECK_OK

#define test_note weir_test_note
#define test_sim weir_test_sim
#define test_workers weir_test_workers
#define test_slower weir_test_slower
#define test_skip weir_test_skip
#define test_fail weir_test_fail
#define test_checks_expected weir_test_checks_expected
#define test_checks weir_test_checks
#define test_check_text weir_test_check_text
#define test_fail_alloc_at weir_test_fail_alloc_at
#define test_alloc_failed weir_test_alloc_failed
#define test_alloc_count weir_test_alloc_count
#define test_live_blocks weir_test_live_blocks
#define test_live_bytes weir_test_live_bytes
#define test_fail_call_at weir_test_fail_call_at
#define test_call_failed weir_test_call_failed
#define test_call_failed_name weir_test_call_failed_name
#define test_fault weir_test_fault
#define test_calls weir_test_calls
#define test_short_io weir_test_short_io
#define test_scenario weir_test_scenario
#define test_sweep_alloc weir_test_sweep_alloc
#define test_sweep_calls weir_test_sweep_calls
#define test_sweep_cancel weir_test_sweep_cancel
#define test_clock_manual weir_test_clock_manual
#define test_clock_auto weir_test_clock_auto
#define test_clock_advance_ms weir_test_clock_advance_ms
#define test_clock_advance_ns weir_test_clock_advance_ns
#define test_clock_now_ns weir_test_clock_now_ns

/* ---- Slow programs ---- */

#define TEST_SANITIZED (WEIR_ASAN || WEIR_TSAN)
/* Whatever makes a program many times slower: a sanitizer, or valgrind (at run time). */
#define TEST_SLOW (TEST_SANITIZED || sanitize_on_valgrind())

#define TEST_SKIP_ON_VALGRIND(reason)                                       \
    do {                                                                    \
        if (sanitize_on_valgrind()) weir_test_skip("on valgrind: " reason); \
    } while (0)

/* ---- Other processes ---- */

/* What this program does instead of testing when its first argument is `name_`: for tests
 * that need a program of their own, which they start as TEST_PROGRAM_PATH. Its result is
 * the exit code.
 *
 *     TEST_PROGRAM(exits_with) { return argc > 2 ? atoi(argv[2]) : 0; }
 */
#define TEST_PROGRAM_PATH "/proc/self/exe"
struct test_program {
    const char *name;
    int (*fn)(int argc, char **argv);
    struct test_program *next;
};

void test_program_register(struct test_program *keep_program);

#define TEST_PROGRAM_NAMED(id_, name_)                                                    \
    static int test_program_fn_##id_(int argc, char **argv);                              \
    static struct test_program test_program_##id_ = {name_, test_program_fn_##id_, NULL}; \
    __attribute__((constructor)) static void test_program_register_##id_(void)            \
    {                                                                                     \
        test_program_register(&test_program_##id_);                                       \
    }                                                                                     \
    static int test_program_fn_##id_(__attribute__((unused)) int argc,                    \
                                     __attribute__((unused)) char **argv)

#define TEST_PROGRAM(name_) TEST_PROGRAM_NAMED(name_, #name_)

/* Run fn(arg) in a forked process that ends after it; what it printed goes to
 * `output`, terminated and cut to fit. Returns the status as waitpid gives it. */
int test_child(void (*fn)(void *arg), void *arg, char *output, size_t output_bytes);

/* The same for a program: argv[0] is its path, and NULL ends the arguments. */
int test_exec(const char *const argv[], char *output, size_t output_bytes);

/* Become a program; returns only if that fails. One that was built with this one is
 * executed by the emulator that the environment's WEIR_TEST_EMULATOR names (a path and
 * arguments, with spaces between), if it does. */
void test_become(const char *const argv[]);

/* Whether WEIR_TEST_EMULATOR is set: system calls are answered by an emulator. */
bool test_emulated(void);

/* fn(arg), run in a process of its own, aborts and prints `sentence`. */
#define CHECK_ABORTS(fn, arg, sentence) \
    test_check_aborts(__FILE__, __LINE__, #fn, (fn), (arg), (sentence))
void test_check_aborts(const char *file, int line, const char *name, void (*fn)(void *arg),
                       void *arg, const char *sentence);

#endif

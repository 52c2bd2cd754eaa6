/* test.h - tests that register themselves.
 *
 *     TEST(ring_keeps_what_was_put_last)
 *     {
 *         CHECK(ring_put(&ring, 7));
 *         CHECK_INT(ring_count(&ring), ==, 1);
 *     }
 *
 *     TEST_WITH(million_tasks_fit, .long_only = true, .timeout_ms = 120000) { ... }
 *
 * Each test runs in a process of its own, with a hard timeout. A test that hangs
 * is asked for its task dump, then killed. What a test that passed has left behind
 * (memory of the library, descriptors, threads, runtimes) fails it, and so does a close of
 * a descriptor that was not open, and a check that failed in a process that it forked.
 *
 * Making things fail:
 *     test_fail_alloc_at(3);                the third allocation from here on fails
 *     test_fail_call_at(5, -ENOMEM);        the fifth system call of the library fails
 *     test_fault("read", -EINTR, 2);        the next two reads are interrupted
 *     test_short_io(1);                     reads and writes move one byte at most
 *     test_mask_features("guard");          as on an older kernel
 *     test_sweep_alloc(scenario, arg);      run it with each allocation failing in turn
 *     test_sweep_calls(scenario, arg, e);   ... each system call
 *     test_sweep_cancel(scenario, arg);     ... cancelled at each suspension point
 * Time:
 *     test_clock_manual();                  it stands still,
 *     test_clock_advance_ms(50);            until it is told to move;
 *     test_clock_auto();                    or it jumps whenever the worker would wait
 *
 * All of these can be combined. They go through a table of rt/kernel.h that the
 * next runtime uses, so they are called before the runtime is opened; what they
 * set can be changed while it runs. Nothing needs to be undone at the end.
 *
 * Threads: CHECK may fail on any thread and in any task. The set-up calls belong
 * to the thread that runs the test, or to a task of its runtime.
 */
#ifndef WEIR_HARNESS_TEST_H
#define WEIR_HARNESS_TEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "rt/sanitize.h"

/* ---- Tests ---- */

#define TEST_TIMEOUT_MS_DEFAULT 20000
#define TEST_SANITIZED (WEIR_ASAN || WEIR_TSAN)
/* Whatever makes a program many times slower: a sanitizer, or valgrind (at run time). */
#define TEST_SLOW (TEST_SANITIZED || sanitize_on_valgrind())
#define TEST_SLOWER 5 /* what timeouts are multiplied by then */

/* How much slower than usual the program is: with sanitizers, and what the environment's
 * WEIR_TEST_SLOW says on top of that (an emulator, a busy machine). 1 or more. */
int test_slower(void);

struct test_options {
    int64_t timeout_ms; /* default TEST_TIMEOUT_MS_DEFAULT; times test_slower() */
    int workers;        /* what test_workers() says; default: what the run says */
    bool long_only;     /* run with --long and --only-long only */
    bool hidden;        /* run only when named in full: the harness tests itself */
};

struct test {
    const char *name;
    const char *file;
    int line;
    void (*fn)(void);
    struct test_options options;
    struct test *next;
};

void test_register(struct test *keep_test);

#define TEST_WITH(name_, ...)                                            \
    static void test_fn_##name_(void);                                   \
    static struct test test_case_##name_ = {.name = #name_,              \
                                            .file = __FILE__,            \
                                            .line = __LINE__,            \
                                            .fn = test_fn_##name_,       \
                                            .options = {__VA_ARGS__}};   \
    __attribute__((constructor)) static void test_register_##name_(void) \
    {                                                                    \
        test_register(&test_case_##name_);                               \
    }                                                                    \
    static void test_fn_##name_(void)

#define TEST(name_) TEST_WITH(name_, .timeout_ms = TEST_TIMEOUT_MS_DEFAULT)

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

/* How many workers a test's runtime should have: the test's own option, --workers,
 * WEIR_TEST_WORKERS, or 2. */
int test_workers(void);

/* ---- Checks: print where, what and both values, and end the test ---- */

#define CHECK(expression)                                                                         \
    do {                                                                                          \
        if (!(expression)) test_fail(__FILE__, __LINE__, "CHECK(%s) does not hold", #expression); \
    } while (0)

/* CHECK_INT(actual, ==, expected), with any comparison and any integer types. */
#define CHECK_INT(actual, op, expected)                                                    \
    do {                                                                                   \
        intmax_t test_actual_ = (intmax_t)(actual);                                        \
        intmax_t test_expected_ = (intmax_t)(expected);                                    \
        if (!(test_actual_ op test_expected_))                                             \
            test_fail_int(__FILE__, __LINE__, #actual " " #op " " #expected, test_actual_, \
                          test_expected_);                                                 \
    } while (0)

/* Equal strings; NULL is equal to NULL only. */
#define CHECK_STR(actual, expected) \
    test_check_string(__FILE__, __LINE__, #actual, (actual), (expected))

/* The text contains the part. */
#define CHECK_CONTAINS(text, part) test_check_contains(__FILE__, __LINE__, #text, (text), (part))

/* A call that returns 0 or more. Shows weir_why() when it does not. */
#define CHECK_OK(call) test_check_ok(__FILE__, __LINE__, #call, (intmax_t)(call))

/* End the test: as failed, with a sentence; or as skipped, with the reason. */
#define TEST_FAIL(...) test_fail(__FILE__, __LINE__, __VA_ARGS__)
#define TEST_SKIP(reason) test_skip(reason)
#define TEST_SKIP_ON_VALGRIND(reason)                                  \
    do {                                                               \
        if (sanitize_on_valgrind()) test_skip("on valgrind: " reason); \
    } while (0)

_Noreturn void test_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
_Noreturn void test_fail_int(const char *file, int line, const char *expression, intmax_t actual,
                             intmax_t expected);
_Noreturn void test_skip(const char *reason);
void test_check_string(const char *file, int line, const char *expression, const char *actual,
                       const char *expected);
void test_check_contains(const char *file, int line, const char *expression, const char *text,
                         const char *part);
void test_check_ok(const char *file, int line, const char *expression, intmax_t result);

/* Say what the test is doing, for the report of a failure or a hang. Any thread. */
void test_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- Other processes ---- */

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

/* ---- Allocations of the library ---- */

/* The n-th allocation from now on fails, once (n = 1: the next one). 0: none. */
void test_fail_alloc_at(uint64_t n);
/* Whether the one that was asked for has failed. */
bool test_alloc_failed(void);
/* Allocations so far, the failed ones included; and what is allocated now. */
uint64_t test_alloc_count(void);
size_t test_live_blocks(void);
size_t test_live_bytes(void);

/* ---- System calls of the library ---- */

/* Put the table that does all of the below between the library and the kernel.
 * The calls below do it themselves. */
void test_kernel_install(void);

/* The n-th call of any kind from now on gives `error` (negative), once. 0: none.
 * Calls are those of rt/kernel.h that can fail; waiting for events is none. */
void test_fail_call_at(uint64_t n, int error);
/* Whether the one that was asked for has failed; which kind of call it was, or "". */
bool test_call_failed(void);
const char *test_call_failed_name(void);

/* The next `times` calls of this kind ("read", "accept", "queue_open") give `error`
 * instead of being made; "close" gives it after closing (but never -EINTR, which it
 * may not give), "queue_wait" returns at once with no event, "map" gives no memory.
 * -EAGAIN for a descriptor that is ready is a wait for an event that will not come. */
void test_fault(const char *call, int error, int times);
/* How often calls of this kind were made. */
uint64_t test_calls(const char *call);

/* The next `times` closes of the C library close and then say EINTR, as a signal makes
 * them; below the table of rt/kernel.h, whose close never gives it. */
void test_interrupt_close(int times);

/* Reads and writes move at most `bytes_max` bytes; 0: no limit. Datagrams stay
 * whole. Before the runtime starts. */
void test_short_io(size_t bytes_max);

/* Behave like an older kernel. "guard": no MADV_GUARD_INSTALL, no epoll_pwait2
 * (Linux 5.10). The environment's WEIR_TEST_MASK does it for every test. */
void test_mask_features(const char *features);

/* Decide what the scheduler chooses: `choose` gets a kind (enum choice) and n, and
 * returns less than n. NULL: the fair default. */
void test_choose(unsigned (*choose)(void *arg, int kind, unsigned n), void *arg);

/* ---- Scenarios, with something going wrong at every point in turn ---- */

/* Opens a runtime itself (weir_run), and returns 0 or an error. It is run many
 * times, and must free everything each time. The run in which nothing went wrong
 * must return 0 or more. */
typedef int (*test_scenario)(void *arg);

/* Run `scenario` with the 1st, 2nd, ... allocation failing, until a run ends before
 * that. Leaks are looked for after each run. Returns the number of points. */
int test_sweep_alloc(test_scenario scenario, void *arg);
/* The same with system calls, which give `error`. */
int test_sweep_calls(test_scenario scenario, void *arg, int error);
/* The same with a cancel at the 1st, 2nd, ... suspension point: of the scope that
 * the scenario gave to runtime_cancel_target(), or else of the root scope. */
int test_sweep_cancel(test_scenario scenario, void *arg);

/* ---- Time ---- */

#define TEST_CLOCK_START_NS INT64_C(1000000000)

/* From TEST_CLOCK_START_NS on, time moves only by test_clock_advance_*. */
void test_clock_manual(void);
/* The same, and whenever the worker would wait with nothing ready, time jumps to
 * the end of its wait. One worker, and nothing outside that it waits for. */
void test_clock_auto(void);
void test_clock_advance_ms(int64_t ms);
void test_clock_advance_ns(int64_t ns);
int64_t test_clock_now_ns(void);

#endif

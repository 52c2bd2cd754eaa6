/* test.h - tests of weir programs, which register themselves: the harness that weir tests itself
 * with.
 *
 *     #include <weir/test.h>
 *
 *     WEIR_TEST(ring_keeps_what_was_put_last)
 *     {
 *         WEIR_CHECK(ring_put(&ring, 7));
 *         WEIR_CHECK_INT(ring_count(&ring), ==, 1);
 *     }
 *
 *     WEIR_TEST_WITH(million_tasks_fit, .long_only = true, .timeout_ms = 120000) { ... }
 *
 *     WEIR_SIM_TEST(money_is_kept, .runs_max = 20000,
 *                   .invariants = {{.name = "sum", .holds = sum_is_right}})
 *     {
 *         return transfers();     a program, run in simulation: weir/sim.h
 *     }
 *
 * A file of tests, or several, is a program: the library libweir-test (pkg-config: weir-test)
 * brings its main. It is linked statically, and libweir with it. --help says what the program
 * takes: names and patterns of tests, --list, --run NAME for a debugger, -j, --repeat, --workers.
 * It closes with `N passed, N failed` and exits with 0, 1 (some failed) or 2 (wrong usage, no such
 * test).
 *
 * Each test runs in a process of its own, with a hard timeout. A test that hangs is asked for its
 * task dump, then killed. What a test that passed has left behind (memory of the library,
 * descriptors, threads, runtimes) fails it, and so does a close of a descriptor that was not open,
 * a report of the checks of weir/check.h, which are on, and a check that failed in a process that
 * it forked.
 *
 * All that is set for a test (faults, clocks) can be combined. It goes through what lies between
 * the library and the kernel, which the next runtime uses: set it up before the runtime is opened;
 * it can be changed while that runs. Nothing needs to be undone at the end.
 *
 * In the environment: WEIR_TEST_WORKERS (as --workers), WEIR_TEST_SLOW (what timeouts are
 * multiplied by), WEIR_TEST_BACKEND (epoll or io_uring), WEIR_SIM (the run of one simulated test).
 *
 * Owner: the test's process. Lifetime: the test. Errors: what does not hold ends the test.
 * Threads: checks, notes and counts: any thread and any task. What sets something up: the thread
 * that runs the test, or a task of its runtime. None of the calls suspends.
 */
#ifndef WEIR_TEST_H
#define WEIR_TEST_H

#include <weir/defs.h>
#include <weir/sim.h>

WEIR_BEGIN

/* ---- Tests ---- */

#define WEIR_TEST_TIMEOUT_MS_DEFAULT 20000

/* What can be said of a test. */
typedef struct weir_test_options {
    int64_t timeout_ms; /* default WEIR_TEST_TIMEOUT_MS_DEFAULT; times weir_test_slower() */
    int workers;        /* what weir_test_workers() says; default: what the run says */
    bool long_only;     /* run with --long and --only-long, or when named in full */
    bool hidden;        /* run only when named in full: for tests of tests */
} weir_test_options;

/* A test, as WEIR_TEST makes it. */
typedef struct weir_test_case {
    const char *name;
    const char *file;
    int line;
    void (*fn)(void);
    weir_test_options options;
    const weir_sim_spec *sim; /* of WEIR_SIM_TEST: its seconds_max come on top of the timeout */
    struct weir_test_case *next;
} weir_test_case;

/* weir_test_register - one more test, before main begins; WEIR_TEST does it. */
WEIR_API void weir_test_register(weir_test_case *keep_test);

#define WEIR_TEST_CASE_(name_, sim_, ...)                                             \
    static void weir_test_fn_##name_(void);                                           \
    static weir_test_case weir_test_case_##name_ = {                                  \
        #name_, __FILE__, __LINE__, weir_test_fn_##name_, {__VA_ARGS__}, sim_, NULL}; \
    __attribute__((constructor)) static void weir_test_register_##name_(void)         \
    {                                                                                 \
        weir_test_register(&weir_test_case_##name_);                                  \
    }

/* WEIR_TEST(name) { … } - a test. Its name is what it claims; no other test has it. */
#define WEIR_TEST(name_)                                                        \
    WEIR_TEST_CASE_(name_, NULL, WEIR_TEST_TIMEOUT_MS_DEFAULT, 0, false, false) \
    static void weir_test_fn_##name_(void)

/* WEIR_TEST_WITH(name, .timeout_ms = …) { … } - the same with members of weir_test_options. */
#define WEIR_TEST_WITH(name_, ...)            \
    WEIR_TEST_CASE_(name_, NULL, __VA_ARGS__) \
    static void weir_test_fn_##name_(void)

/* weir_test_main - what the library's main does with its arguments; returns how the program should
 * exit. For a program with a main of its own, which takes the place of the library's. Called once,
 * with no other thread. */
WEIR_API int weir_test_main(int argc, char **argv);

/* weir_test_workers - how many workers a test's runtime should have: the test's own option,
 * --workers, WEIR_TEST_WORKERS, or 2. */
WEIR_API int weir_test_workers(void);

/* weir_test_slower - how many times slower than usual the program is: with sanitizers or valgrind,
 * and what WEIR_TEST_SLOW says on top of that (an emulator, a busy machine). 1 or more. */
WEIR_API int weir_test_slower(void);

/* weir_test_note - say what the test is doing, for the report of a failure or a hang. */
WEIR_API void weir_test_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- Checks: print where, what and both values, and end the test ---- */

/* WEIR_CHECK(expression) - it is true. */
#define WEIR_CHECK(expression)                                                          \
    do {                                                                                \
        if (!(expression))                                                              \
            weir_test_fail(__FILE__, __LINE__, "CHECK(%s) does not hold", #expression); \
    } while (0)

/* WEIR_CHECK_INT(actual, ==, expected) - with any comparison and any integer types. Errors are
 * shown by name. */
#define WEIR_CHECK_INT(actual, op, expected)                                                    \
    do {                                                                                        \
        intmax_t weir_actual_ = (intmax_t)(actual);                                             \
        intmax_t weir_expected_ = (intmax_t)(expected);                                         \
        if (!(weir_actual_ op weir_expected_))                                                  \
            weir_test_fail_int(__FILE__, __LINE__, #actual " " #op " " #expected, weir_actual_, \
                               weir_expected_);                                                 \
    } while (0)

/* WEIR_CHECK_STR(actual, expected) - equal strings; NULL is equal to NULL only. */
#define WEIR_CHECK_STR(actual, expected) \
    weir_test_check_string(__FILE__, __LINE__, #actual, (actual), (expected))

/* WEIR_CHECK_CONTAINS(text, part) - the text contains the part. */
#define WEIR_CHECK_CONTAINS(text, part) \
    weir_test_check_contains(__FILE__, __LINE__, #text, (text), (part))

/* WEIR_CHECK_OK(call) - a call that returns 0 or more. Shows weir_why() when it does not. */
#define WEIR_CHECK_OK(call) weir_test_check_ok(__FILE__, __LINE__, #call, (intmax_t)(call))

/* WEIR_TEST_FAIL(format, …) - end the test as failed, with a sentence. */
#define WEIR_TEST_FAIL(...) weir_test_fail(__FILE__, __LINE__, __VA_ARGS__)

/* WEIR_TEST_SKIP(reason) - end the test as skipped: not passed, and no failure. */
#define WEIR_TEST_SKIP(reason) weir_test_skip(reason)

/* weir_test_fail, weir_test_fail_int, weir_test_skip, weir_test_check_string,
 * weir_test_check_contains, weir_test_check_ok - what the checks call. */
WEIR_API void weir_test_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4), noreturn));
WEIR_API void weir_test_fail_int(const char *file, int line, const char *expression,
                                 intmax_t actual, intmax_t expected) __attribute__((noreturn));
WEIR_API void weir_test_skip(const char *reason) __attribute__((noreturn));
WEIR_API void weir_test_check_string(const char *file, int line, const char *expression,
                                     const char *actual, const char *expected);
WEIR_API void weir_test_check_contains(const char *file, int line, const char *expression,
                                       const char *text, const char *part);
WEIR_API void weir_test_check_ok(const char *file, int line, const char *expression,
                                 intmax_t result);

/* ---- Simulation (weir/sim.h) ----
 *
 * In a simulated run a check that does not hold fails the run, with weir_sim_fail, and the test
 * when the runs have ended: so the run that failed is made shorter, and named. What the harness
 * sets up by the calls below is not there in a simulated run, which has faults and a clock of its
 * own. */

#define WEIR_TEST_SIM_TIMEOUT_MS 120000

/* WEIR_SIM_TEST(name, .runs_max = …) { … } - a test that is a program, simulated. What is said are
 * members of weir_sim_spec after its name, which is the test's; the body is a task, int
 * body(void *arg), of which each run makes one, with NULL. A run that fails fails the test, which
 * prints what to set to see that run again:
 *
 *     WEIR_SIM=pct:3:7 ./program --run name
 *
 * The timeout is WEIR_TEST_SIM_TIMEOUT_MS, and seconds_max. Where programs are slow (sanitizers,
 * valgrind, WEIR_TEST_SLOW) one in 20 of the runs is made, at worker level one in 10;
 * WEIR_SIM_TIMES multiplies them, and the timeout. WEIR_SIM_COUNTS names a file to which each
 * simulation adds a line with the number of its runs, how many of them were different, and its
 * name. */
#define WEIR_SIM_TEST(name_, ...)                                                             \
    static int weir_sim_fn_##name_(void *arg);                                                \
    static const weir_sim_spec weir_sim_spec_##name_ = {.name = #name_, __VA_ARGS__};         \
    WEIR_TEST_CASE_(name_, &weir_sim_spec_##name_, WEIR_TEST_SIM_TIMEOUT_MS, 0, false, false) \
    static void weir_test_fn_##name_(void)                                                    \
    {                                                                                         \
        weir_test_sim(&weir_sim_spec_##name_, weir_sim_fn_##name_, NULL);                     \
    }                                                                                         \
    static int weir_sim_fn_##name_(__attribute__((unused)) void *arg)

/* weir_test_sim - weir_sim_run in a test, which fails if a run does or if it is refused: for a
 * program with an argument, and for tests with options. */
WEIR_API void weir_test_sim_sized(size_t spec_bytes, const weir_sim_spec *spec, weir_task_fn fn,
                                  void *keep_arg);
#define weir_test_sim(...) weir_test_sim_sized(sizeof(weir_sim_spec), __VA_ARGS__)

/* ---- What the checks of weir/check.h have found ----
 *
 * They are on in every test's runtime, unless its weir_config says otherwise, and a report fails
 * the test. */

/* weir_test_checks_expected - from now on reports are expected: they are kept, and the test looks
 * at them. */
WEIR_API void weir_test_checks_expected(void);

/* weir_test_checks - how many there were of a kind (enum weir_check_kind); 0: of any. */
WEIR_API int weir_test_checks(int kind);

/* weir_test_check_text - the text of the last one of a kind, or "". */
WEIR_API const char *weir_test_check_text(int kind);

/* ---- Allocations of the library ---- */

/* weir_test_fail_alloc_at - the n-th allocation from now on fails, once (n = 1: the next one). 0:
 * none. */
WEIR_API void weir_test_fail_alloc_at(uint64_t n);

/* weir_test_alloc_failed - whether the one that was asked for has failed. */
WEIR_API bool weir_test_alloc_failed(void);

/* weir_test_alloc_count - allocations so far, the failed ones included.
 * weir_test_live_blocks, weir_test_live_bytes - what is allocated now. */
WEIR_API uint64_t weir_test_alloc_count(void);
WEIR_API size_t weir_test_live_blocks(void);
WEIR_API size_t weir_test_live_bytes(void);

/* ---- System calls of the library ---- */

/* weir_test_fail_call_at - the n-th call of any kind from now on gives `error` (negative), once. 0:
 * none. Waiting for events is no such call. */
WEIR_API void weir_test_fail_call_at(uint64_t n, int error);

/* weir_test_call_failed - whether the one that was asked for has failed.
 * weir_test_call_failed_name - which kind of call it was, or "". */
WEIR_API bool weir_test_call_failed(void);
WEIR_API const char *weir_test_call_failed_name(void);

/* weir_test_fault - the next `times` calls of this kind ("read", "accept", "connect", "open",
 * "fsync", …; a wrong one fails the test with the list) give `error` instead of being made;
 * "close" gives it after closing (but never -EINTR, which it may not give), "queue_wait" returns
 * at once with no event, "map" gives no memory. -EAGAIN for a descriptor that is ready is a wait
 * for an event that will not come. */
WEIR_API void weir_test_fault(const char *call, int error, int times);

/* weir_test_calls - how often calls of this kind were made. The first use begins to count. */
WEIR_API uint64_t weir_test_calls(const char *call);

/* weir_test_short_io - reads and writes move at most `bytes_max` bytes; 0: no limit. Datagrams stay
 * whole. Before the runtime starts. */
WEIR_API void weir_test_short_io(size_t bytes_max);

/* ---- Scenarios, with something going wrong at every point in turn ---- */

/* Opens a runtime itself (weir_run), and returns 0 or an error. It is run many times, and must free
 * everything each time. The run in which nothing went wrong must return 0 or more. */
typedef int (*weir_test_scenario)(void *arg);

/* weir_test_sweep_alloc - run `scenario` with the 1st, 2nd, … allocation failing, until a run ends
 * before that. Leaks are looked for after each run. Returns the number of points. */
WEIR_API int weir_test_sweep_alloc(weir_test_scenario scenario, void *arg);

/* weir_test_sweep_calls - the same with system calls, which give `error` (negative). */
WEIR_API int weir_test_sweep_calls(weir_test_scenario scenario, void *arg, int error);

/* weir_test_sweep_cancel - the same with a cancel at the 1st, 2nd, … suspension point: of the scope
 * that the scenario gave to weir_test_cancel_target, or else of the root scope. */
WEIR_API int weir_test_sweep_cancel(weir_test_scenario scenario, void *arg);

/* weir_test_cancel_target - the scope that weir_test_sweep_cancel cancels in the calling task's
 * runtime from now on. In a task. */
WEIR_API void weir_test_cancel_target(weir_scope *keep_scope);

/* ---- Time ---- */

#define WEIR_TEST_CLOCK_START_NS INT64_C(1000000000)

/* weir_test_clock_manual - from WEIR_TEST_CLOCK_START_NS on, time moves only by
 * weir_test_clock_advance_ms and weir_test_clock_advance_ns. */
WEIR_API void weir_test_clock_manual(void);

/* weir_test_clock_auto - the same, and whenever the worker would wait with nothing ready, time
 * jumps to the end of its wait. For one worker, and nothing outside that it waits for. */
WEIR_API void weir_test_clock_auto(void);

/* weir_test_clock_advance_ms, weir_test_clock_advance_ns - move it, and wake who has waited for
 * that time. */
WEIR_API void weir_test_clock_advance_ms(int64_t ms);
WEIR_API void weir_test_clock_advance_ns(int64_t ns);

/* weir_test_clock_now_ns - what it shows. */
WEIR_API int64_t weir_test_clock_now_ns(void);

WEIR_END

#endif

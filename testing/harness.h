/* harness.h - what the parts of the harness share; users' tests use <weir/test.h>.
 *
 *   main.c      the main of a program without one
 *   command.c   the command line
 *   registry.c  the list of tests, and which of them a pattern means
 *   runner.c    one process per test, timeouts, the report
 *   process.c   the inside of a test's process: set-up, verdict, signals
 *   checks.c    the functions of the WEIR_CHECK macros
 *   memory.c    the counting allocator
 *   leaks.c     what a test has left behind
 *   closes.c    every close of the program, the library's included
 *   decorate.c  the table of rt/kernel.h between library and kernel
 *   faults.c    which of its calls fail
 *   clock.c     the manual clock
 *   sweep.c     scenarios with a fault at every point
 *   frames.c    backtraces in words
 *   reports.c   what the library's checks have found
 *
 *   sim.c       tests in simulation
 *   inside.h    for tests of the library's own inside
 */
#ifndef WEIR_TESTING_HARNESS_H
#define WEIR_TESTING_HARNESS_H

#include <stdio.h>
#include <weir/test.h>

#include "testing/inside.h"

enum {
    EXIT_PASSED = 0,
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
    EXIT_SKIPPED = 77,
};

/* ---- registry.c ---- */

/* Sort the tests by place and check that names are unique; returns the first. */
weir_test_case *registry_sorted(void);
/* The file's path, without its suffix; from below tests/ on, if it is there. */
void registry_group(const weir_test_case *test, char *group, size_t group_bytes);
/* Whether a pattern of the command line means the test. */
bool registry_matches(const weir_test_case *test, const char *pattern);

/* ---- runner.c ---- */

struct run_plan {
    weir_test_case **tests;
    int count;
    int jobs;
    int repeat;
    bool verbose;
};
/* Run them all; returns how the program should exit. */
int runner_run(const struct run_plan *plan);

/* ---- process.c ---- */

enum test_state { TEST_STARTED, TEST_PASSED, TEST_FAILED, TEST_SKIPPED };

/* What a test's process tells its runner, in shared memory. */
struct test_report {
    int state;         /* enum test_state */
    char message[240]; /* why it failed or was skipped */
    char forked[240];  /* why a process that it forked failed, or "" */
};

/* The defaults that --workers and the environment set. */
extern int process_workers_default;

/* Real time, whatever clock the test has; and when the test is taken for hung. */
int64_t process_now_ms(void);
int64_t process_timeout_ms(const weir_test_case *test);
/* What WEIR_SIM_TIMES says: so many times the runs, and the time for them. */
uint64_t process_sim_times(void);

/* Run one test in this process, and exit. */
_Noreturn void process_run(const weir_test_case *test, struct test_report *keep_report);
/* End this process with a verdict; the first one counts. */
_Noreturn void process_end(enum test_state state, const char *message);
/* This is a process that the test has started and whose end it looks at: a check that
 * fails here is the test's to judge. In any other that it forks it fails the test. */
void process_is_judged(void);
/* The name of the test that runs here. */
const char *process_test_name(void);
/* What weir_test_note said last, or "". */
const char *process_note(void);

/* ---- memory.c ---- */

struct memory_mark {
    uint64_t serial;
    size_t blocks;
    size_t bytes;
};
void memory_install(void);
void memory_mark(struct memory_mark *ret_mark);
/* Report blocks made after the mark that are still there; true if there are none. */
bool memory_check(const struct memory_mark *mark);

/* ---- closes.c ---- */

/* Closes of descriptors that were not open, so far: each might have closed what somebody
 * else has just opened. The last one's number. */
int closes_bad(int *ret_last_fd);

/* ---- leaks.c ---- */

enum { LEAK_FDS_MAX = 512 };

struct leak_mark {
    struct memory_mark memory;
    int64_t mapped_bytes;
    int runtimes;
    int threads;
    int bad_closes;
    int fd_count;
    int fds[LEAK_FDS_MAX];
};
void leaks_mark(struct leak_mark *ret_mark);
/* Report on standard error what is there now and was not then; true if nothing. */
bool leaks_check(const struct leak_mark *mark);

/* ---- decorate.c, faults.c, clock.c ---- */

struct kernel;
struct kernel_queue;

/* The kinds of call that can fail: a row each in faults.c. */
/* clang-format off */
#define FAULT_CALLS(X)                                                                            \
    X(queue_open) X(queue_watch) X(queue_wait) X(queue_arm)                                       \
    X(thread_start) X(map) X(advise) X(protect)                                                   \
    X(socket) X(socketpair) X(pipe) X(bind) X(listen) X(accept) X(connect)                        \
    X(getsockopt) X(setsockopt) X(getsockname) X(getpeername) X(set_nonblocking)                  \
    X(read) X(readv) X(write) X(writev) X(recv) X(send) X(recvmsg) X(sendmsg)                     \
    X(shutdown) X(readable) X(close) X(getaddrinfo)                                               \
    X(open) X(pread) X(pwrite) X(fsync) X(fstat) X(stat) X(rename) X(unlink) X(mkdir)             \
    X(list_directory) X(truncate) X(pread_cached)                                                 \
    X(process_start) X(process_signal) X(process_reap) X(duplicate)                               \
    X(thread_cpu_ns) X(thread_look) X(thread_signal) X(read_memory)

enum fault_call {
#define FAULT_ENUMERATOR(name) CALL_##name,
    FAULT_CALLS(FAULT_ENUMERATOR)
#undef FAULT_ENUMERATOR
    CALL_COUNT,
};
/* clang-format on */

/* Count a call; the error it has to give, or 0. */
int fault_take(enum fault_call call);
/* How many bytes one transfer may move. */
size_t fault_bytes_max(size_t bytes);
/* Whether "guard" is masked. */
bool fault_guard_masked(void);
/* The scheduler's choice, and the cancel of a sweep. */
unsigned fault_choose(const struct kernel *kernel, int kind, unsigned n);
/* Cancel at this suspension point from now on (0: none); points passed since. */
void fault_cancel_at(uint64_t n);
uint64_t fault_suspensions(void);

/* The backend that WEIR_TEST_BACKEND names, or NULL: the library's choice. */
const struct kernel *test_backend(void);
/* Whether the scheduler asks us: only while somebody has an answer. */
void decorate_choose(bool on);
/* Bytes mapped through the table and not unmapped. */
int64_t decorate_mapped_bytes(void);
/* Make every open queue's wait return. */
void decorate_wake_all(void);
/* Reads are made shorter than the kernel would, or are its own again. */
void decorate_short_reads(bool are_short);

enum clock_mode { CLOCK_MODE_REAL, CLOCK_MODE_MANUAL, CLOCK_MODE_AUTO };
enum clock_mode clock_mode(void);
int64_t clock_now_ns(void);
void clock_add_ns(int64_t ns);
int64_t clock_wall_ahead_ns(void); /* of the steady clock; 0: it is not the test's */
int64_t decorate_now_ns(void);

/* ---- reports.c ---- */

/* Turn the checks on. */
void reports_install(void);
/* What was found and not expected, or NULL. */
const char *reports_unexpected(void);

/* ---- frames.c ---- */

/* Make the calls below safe from anywhere: the unwinder's first use may allocate. */
void frames_prepare(void);
/* The return addresses of the caller and those above it; how many there are. */
int frames_take(void **frames, int frames_max);
/* Print frames with function, file and line, one a line. Not in signal handlers. */
void frames_print(void *const *frames, int count);
/* The same with function and offset, from the symbols. One thread at a time. */
void frames_print_plain(void *const *frames, int count);

#endif

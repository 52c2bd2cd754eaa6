/* process.c - the inside of a test's process.
 *
 * Ways out: the test returns and has left nothing behind (passed), a check fails,
 * the test skips itself, or it dies. The verdict is left in shared memory, so that
 * a test which calls exit(0) half way does not look as if it had passed.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rt/runtime.h"
#include "rt/sanitize.h"
#include "testing/harness.h"

enum {
    HANDLER_STACK_BYTES = 256 * 1024,
    HANDLER_FRAMES_MAX = 64,
    SLOW_MAX = 100,
    SIM_TIMES_MAX = 1000000,
    SLOWER = 5, /* what timeouts are multiplied by with sanitizers or valgrind */
};

int process_workers_default = 2;

static struct test_report *report;
static pid_t process_id; /* of the test: a process that it forked has no verdict */
static bool judged;      /* by the test, which has started this process */
static const weir_test_case *running;
static int64_t began_ms;
static char note[160];

int weir_test_workers(void)
{
    if (running != NULL && running->options.workers > 0) return running->options.workers;
    return process_workers_default;
}

int weir_test_slower(void)
{
    const char *text = getenv("WEIR_TEST_SLOW");
    long factor = text != NULL ? strtol(text, NULL, 10) : 1;

    if (factor < 1) factor = 1;
    if (factor > SLOW_MAX) factor = SLOW_MAX;
    return (int)factor * (WEIR_ASAN || WEIR_TSAN || sanitize_on_valgrind() ? SLOWER : 1);
}

int64_t process_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

uint64_t process_sim_times(void)
{
    const char *text = getenv("WEIR_SIM_TIMES");
    uint64_t times = text != NULL ? strtoull(text, NULL, 10) : 1;

    return times > 0 && times <= SIM_TIMES_MAX ? times : 1;
}

int64_t process_timeout_ms(const weir_test_case *test)
{
    int64_t ms = test->options.timeout_ms;

    if (ms <= 0) ms = WEIR_TEST_TIMEOUT_MS_DEFAULT;
    ms *= weir_test_slower();
    if (test->sim != NULL) ms = ms * (int64_t)process_sim_times() + test->sim->seconds_max * 1000;
    return ms;
}

bool test_late(void)
{
    return running != NULL && process_now_ms() - began_ms > process_timeout_ms(running) / 2;
}

void weir_test_note(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(note, sizeof note, format, arguments);
    va_end(arguments);
}

const char *process_test_name(void)
{
    return running != NULL ? running->name : "";
}

const char *process_note(void)
{
    return note;
}

static void say(const char *sentence)
{
    /* A failed write to our own capture file has nobody to be reported to. */
    if (write(STDERR_FILENO, sentence, strlen(sentence)) < 0) return;
}

void process_is_judged(void)
{
    judged = true;
}

void process_end(enum test_state state, const char *message)
{
    if (getpid() != process_id) {
        if (state == TEST_FAILED && !judged)
            snprintf(report->forked, sizeof report->forked, "%s", message);
    } else if (report->state == TEST_STARTED) {
        snprintf(report->message, sizeof report->message, "%s", message);
        report->state = state;
    }
    fflush(stdout);
    say(state == TEST_SKIPPED ? "skipped: " : "");
    say(message);
    if (note[0] != '\0') {
        say("\n    during   ");
        say(note);
    }
    say("\n");
    /* Not exit: other threads are still running. */
    _exit(state == TEST_SKIPPED ? EXIT_SKIPPED : EXIT_FAILED);
}

/* The runner asks a hung test what it is doing: first for the dump of its tasks,
 * and if nothing came of it, for the backtrace of the main thread. */
static void on_hung(int signal)
{
    static volatile sig_atomic_t asked;
    void *frames[HANDLER_FRAMES_MAX];
    int saved_errno = errno;

    (void)signal;
    if (asked++ == 0) {
        if (note[0] != '\0') {
            say("hung during ");
            say(note);
            say("\n");
        }
        runtime_request_dump(STDERR_FILENO);
    } else {
        say("the thread that got the signal is at\n");
        frames_print_plain(frames, frames_take(frames, HANDLER_FRAMES_MAX));
    }
    errno = saved_errno;
}

static void install_handler(void)
{
    static char stack[HANDLER_STACK_BYTES];
    struct sigaction action = {.sa_handler = on_hung, .sa_flags = SA_ONSTACK | SA_RESTART};
    stack_t current;

    /* A task's stack may be too small for a backtrace. */
    if (sigaltstack(NULL, &current) == 0 && (current.ss_flags & SS_DISABLE))
        sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
    sigemptyset(&action.sa_mask);
    sigaction(SIGUSR1, &action, NULL);
    (void)signal(SIGHUP, SIG_DFL); /* who runs the tests by nohup ignores it */
}

static void *thread_nothing(void *arg)
{
    return arg;
}

/* What libraries keep from their first use on is not the test's leak. */
static void use_once(void)
{
    pthread_t thread;

    frames_prepare();
    /* ThreadSanitizer starts a thread of its own with the first one. */
    if (WEIR_TSAN && pthread_create(&thread, NULL, thread_nothing, NULL) == 0)
        pthread_join(thread, NULL);
}

void process_run(const weir_test_case *test, struct test_report *keep_report)
{
    const char *mask = getenv("WEIR_TEST_MASK");
    static struct leak_mark mark;

    report = keep_report;
    process_id = getpid();
    running = test;
    began_ms = process_now_ms();
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    install_handler();
    use_once();
    memory_install();
    kernel_override(test_backend());
    reports_install();
    if (mask != NULL && mask[0] != '\0') test_mask_features(mask);
    leaks_mark(&mark);

    test->fn();

    weir_test_note("%s", "");
    weir_test_fail_alloc_at(0);
    if (report->forked[0] != '\0')
        process_end(TEST_FAILED, "a check failed in a process that the test has forked");
    if (reports_unexpected()) process_end(TEST_FAILED, reports_unexpected());
    if (!leaks_check(&mark)) process_end(TEST_FAILED, "the test has left something behind");
    report->state = TEST_PASSED;
    /* With the exit handlers: LeakSanitizer and coverage are among them. */
    exit(EXIT_PASSED);
}

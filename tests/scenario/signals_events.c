/* signals_events.c - masks, dispositions and other processes: what a program that runs
 * weir finds as it left it; and watches where something goes wrong at every point. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rt/kernel.h"
#include "rt/runtime.h"
#include "rt/sanitize.h"
#include "unit/io/io_test.h"
#include "unit/rt/support.h"

enum {
    SIGNALS = 64,
    RESTORER = 0x04000000, /* the C library sets it on the way to the kernel, and shows it */
};

static bool same_mask(const sigset_t *a, const sigset_t *b)
{
    for (int i = 1; i <= SIGNALS; i++) {
        if (sigismember(a, i) != sigismember(b, i)) return false;
    }
    return true;
}

static weir_signal_watch *watch_one(weir_scope *scope, int signal)
{
    weir_signal_watch *watch = NULL;
    CHECK_OK(weir_signal_open(
        scope, &(weir_signal_spec){.name = "one", .signals = &signal, .signals_count = 1}, &watch));
    return watch;
}

/* ---- Dispositions ---- */

struct dispositions {
    struct sigaction actions[SIGNALS + 1];
    bool known[SIGNALS + 1];
};

static void read_dispositions(struct dispositions *all)
{
    memset(all, 0, sizeof *all);
    for (int i = 1; i <= SIGNALS; i++) {
        all->known[i] = sanitize_sigaction(i, NULL, &all->actions[i]) == 0;
    }
}

/* True for the ones in `but`, which ends with 0. */
static bool is_in(int signal, const int *but)
{
    for (; but && *but; but++) {
        if (*but == signal) return true;
    }
    return false;
}

static void check_dispositions(const struct dispositions *before, const int *but)
{
    struct dispositions now;

    read_dispositions(&now);
    for (int i = 1; i <= SIGNALS; i++) {
        const struct sigaction *was = &before->actions[i], *is = &now.actions[i];
        bool same = before->known[i] == now.known[i] && was->sa_handler == is->sa_handler;

        same = same && (was->sa_flags | RESTORER) == (is->sa_flags | RESTORER) &&
               same_mask(&was->sa_mask, &is->sa_mask);
        test_note("signal %d", i);
        CHECK(same != is_in(i, but));
    }
}

/* Everything that could be thought to need a signal. */
static int use_the_runtime(void *arg)
{
    const struct dispositions *before = arg;
    weir_conn *a, *b;
    struct stat found;
    char byte;

    WEIR_DEADLINE(IO_TEST_MS) {
        CHECK_OK(weir_pipe(&a, &b));
        CHECK_INT(weir_conn_write(b, "x", 1), ==, 1);
        CHECK_INT(weir_conn_read(a, &byte, 1), ==, 1);
        weir_conn_close(a);
        CHECK_INT(weir_conn_write(b, "x", 1), ==, -EPIPE);
        weir_conn_close(b);
        CHECK_OK(weir_path_stat("/", &found));
        CHECK_OK(weir_sleep(1));
        check_dispositions(before, NULL);
    }
    return 0;
}

TEST(no_disposition_is_changed_that_the_program_did_not_ask_for)
{
    struct dispositions before;
    weir_runtime *runtime;

    read_dispositions(&before);
    CHECK_OK(weir_run(&(weir_config){.workers = test_workers(), .signals = WEIR_SIGNALS_NONE},
                      use_the_runtime, &before));
    check_dispositions(&before, NULL);
    CHECK_OK(weir_runtime_open(NULL, &runtime));
    check_dispositions(&before, NULL);
    CHECK_OK(weir_runtime_close(runtime));
    check_dispositions(&before, NULL);
}

static int watch_two(void *arg)
{
    const int signals[] = {SIGHUP, SIGRTMAX, 0};
    const struct dispositions *before = arg;
    weir_signal_watch *watch;
    int r;

    IO_SCOPE(scope, &r)
    {
        CHECK_OK(weir_signal_open(
            scope, &(weir_signal_spec){.name = "two", .signals = signals, .signals_count = 2},
            &watch));
        check_dispositions(before, signals);
    }
    check_dispositions(before, NULL);
    return r;
}

TEST(a_watch_changes_the_disposition_of_its_signals_and_of_no_other)
{
    struct dispositions before;

    read_dispositions(&before);
    CHECK_OK(weir_run(&(weir_config){.workers = test_workers()}, watch_two, &before));
}

/* ---- Masks ---- */

/* The mask of an executor's thread, seen by a system call that it makes. */
static struct kernel looking_kernel;
static sigset_t executor_mask;
static pthread_t executor_thread;

static int looking_stat(const struct kernel *kernel, const char *path, struct stat *ret_stat)
{
    executor_thread = pthread_self();
    (void)pthread_sigmask(SIG_SETMASK, NULL, &executor_mask);
    return kernel_epoll.stat(kernel, path, ret_stat);
}

static int check_mask_here(void *arg)
{
    const sigset_t *expected = *(const sigset_t **)arg;
    sigset_t mask;

    (void)pthread_sigmask(SIG_SETMASK, NULL, &mask);
    CHECK(same_mask(&mask, expected));
    return 0;
}

static int check_masks(void *arg)
{
    const sigset_t *expected = arg;
    struct stat found;
    int r = 0;

    WEIR_DEADLINE(IO_TEST_MS) {
        IO_SCOPE(scope, &r)
        {
            (void)watch_one(scope, SIGHUP);
            for (int i = 0; i < weir_worker_count(); i++) {
                (void)spawn_at(scope, i, "mask", check_mask_here, &expected, sizeof expected);
            }
            CHECK_OK(weir_path_stat("/", &found));
            CHECK(!pthread_equal(executor_thread, pthread_self()));
            CHECK(same_mask(&executor_mask, expected));
        }
    }
    return r;
}

/* What a program blocks before it starts the runtime is blocked in all its threads. */
TEST(workers_and_executors_have_the_mask_of_the_thread_that_started_the_runtime)
{
    sigset_t blocked;

    looking_kernel = kernel_epoll;
    looking_kernel.stat = looking_stat;
    kernel_override(&looking_kernel);
    (void)pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    CHECK_OK(weir_run(&(weir_config){.workers = test_workers()}, check_masks, &blocked));
    (void)sigaddset(&blocked, SIGUSR2);
    (void)sigaddset(&blocked, SIGRTMIN + 3);
    CHECK_INT(pthread_sigmask(SIG_SETMASK, &blocked, NULL), ==, 0);
    CHECK_OK(weir_run(&(weir_config){.workers = test_workers()}, check_masks, &blocked));
    CHECK_OK(check_mask_here(&(const sigset_t *){&blocked}));
    kernel_override(NULL);
}

/* A thread of the program's own, for the signals that it keeps from the runtime. */
static ATOM(int) taken_count;

static void *take_by_sigwait(void *arg)
{
    int signal;

    for (int i = 0; i < 5; i++) {
        CHECK_INT(sigwait(arg, &signal), ==, 0);
        CHECK_INT(signal, ==, SIGUSR2);
        (void)atom_add(&taken_count, 1);
    }
    return NULL;
}

static int send_five(void *arg)
{
    struct stat found;

    (void)arg;
    WEIR_DEADLINE(IO_TEST_MS) {
        CHECK_OK(weir_path_stat("/", &found)); /* so that an executor has a thread */
        for (int i = 0; i < 5; i++) {
            CHECK_INT(kill(getpid(), SIGUSR2), ==, 0);
            while (atom_load(&taken_count) == i) CHECK_OK(weir_yield());
        }
    }
    return 0;
}

TEST(a_signal_that_is_blocked_before_the_start_reaches_the_programs_own_thread)
{
    pthread_t thread;
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGUSR2);
    CHECK_INT(pthread_sigmask(SIG_BLOCK, &set, NULL), ==, 0);
    CHECK_INT(pthread_create(&thread, NULL, take_by_sigwait, &set), ==, 0);
    CHECK_OK(weir_run(&(weir_config){.workers = test_workers()}, send_five, NULL));
    CHECK_INT(pthread_join(thread, NULL), ==, 0);
    CHECK_INT(atom_load(&taken_count), ==, 5);
}

/* ---- Other processes ---- */

static void read_line(FILE *from, const char *label, char *line, size_t line_bytes)
{
    do CHECK(fgets(line, (int)line_bytes, from) != NULL);
    while (strncmp(line, label, strlen(label)) != 0);
}

/* What a program that was started by a task sees of itself. */
static void check_started_program(const char *blocked_before)
{
    /* NOLINTNEXTLINE(cert-env33-c): a shell is what is asked for, and the command a constant */
    FILE *started = popen("exec cat /proc/self/status", "r");
    char line[128];

    CHECK(started != NULL);
    read_line(started, "SigBlk:", line, sizeof line);
    CHECK_STR(line, blocked_before);
    read_line(started, "SigCgt:", line, sizeof line);
    CHECK_STR(line, "SigCgt:\t0000000000000000\n");
    while (fgets(line, sizeof line, started)) {}
    CHECK_INT(pclose(started), ==, 0);
}

static int start_program(void *arg)
{
    check_started_program(*(const char **)arg);
    return 0;
}

static int start_programs(void *arg)
{
    const int signals[] = {SIGHUP, SIGCHLD, SIGUSR2};
    weir_signal_watch *watch;
    int r;

    IO_SCOPE(scope, &r)
    {
        CHECK_OK(weir_signal_open(
            scope, &(weir_signal_spec){.name = "three", .signals = signals, .signals_count = 3},
            &watch));
        for (int i = 0; i < weir_worker_count(); i++) {
            (void)spawn_at(scope, i, "start", start_program, &arg, sizeof arg);
        }
    }
    return r;
}

TEST(a_program_that_a_task_starts_has_the_mask_and_no_handler_of_ours)
{
    FILE *self = fopen("/proc/thread-self/status", "r");
    char blocked[128];

    CHECK(self != NULL);
    read_line(self, "SigBlk:", blocked, sizeof blocked);
    CHECK_INT(fclose(self), ==, 0);
    CHECK_OK(weir_run(&(weir_config){.workers = test_workers()}, start_programs, blocked));
}

static void check_forked(void *arg)
{
    check_dispositions(arg, NULL);
}

static int fork_with_a_watch(void *arg)
{
    weir_signal_watch *watch;
    weir_signal_event event;
    char output[256];
    int r = 0;

    WEIR_DEADLINE(IO_TEST_MS) {
        IO_SCOPE(scope, &r)
        {
            watch = watch_one(scope, SIGHUP);
            CHECK_INT(test_child(check_forked, arg, output, sizeof output), ==, 0);
            CHECK_INT(kill(getpid(), SIGHUP), ==, 0);
            CHECK_OK(weir_signal_wait(watch, &event));
        }
    }
    return r;
}

TEST(a_forked_process_has_the_dispositions_that_were_there_before)
{
    struct dispositions before;

    read_dispositions(&before);
    CHECK_OK(weir_run(&(weir_config){.workers = test_workers()}, fork_with_a_watch, &before));
}

/* ---- Two runtimes, one of them embedded ---- */

static int wait_for_hup(void *arg)
{
    ATOM(int) *told = *(ATOM(int) **)arg;
    weir_signal_watch *watch;
    weir_signal_event event;
    int r = 0;

    WEIR_DEADLINE(IO_TEST_MS) {
        IO_SCOPE(scope, &r)
        {
            watch = watch_one(scope, SIGHUP);
            (void)atom_add(told, 1);
            CHECK_OK(weir_signal_wait(watch, &event));
            CHECK_INT(event.signal, ==, SIGHUP);
            (void)atom_add(told, 100);
        }
    }
    return r;
}

static void *run_beside(void *arg)
{
    CHECK_OK(weir_run(&(weir_config){.workers = test_workers()}, wait_for_hup, &arg));
    return NULL;
}

TEST(every_runtime_gets_a_signal_also_an_embedded_one)
{
    static ATOM(int) told;
    ATOM(int) *at = &told;
    weir_runtime *runtime;
    pthread_t thread;

    CHECK_OK(weir_runtime_open(NULL, &runtime));
    CHECK_OK(weir_spawn(weir_runtime_scope(runtime), wait_for_hup, &at, sizeof at));
    CHECK_INT(pthread_create(&thread, NULL, run_beside, &told), ==, 0);
    while (atom_load(&told) < 2) CHECK_INT(weir_turn(runtime), >=, 0);
    CHECK_INT(kill(getpid(), SIGHUP), ==, 0);
    while (weir_turn(runtime) > 0) {
        struct pollfd poll_for = {.fd = weir_runtime_fd(runtime), .events = POLLIN};
        CHECK_INT(poll(&poll_for, 1, IO_TEST_MS), >=, 0);
    }
    CHECK_INT(pthread_join(thread, NULL), ==, 0);
    CHECK_INT(atom_load(&told), ==, 202);
    CHECK_OK(weir_runtime_close(runtime));
}

/* ---- Something goes wrong at every point ---- */

static int one_event(void *arg)
{
    weir_signal_watch *watch = *(weir_signal_watch **)arg;
    weir_signal_event event;
    return weir_signal_wait(watch, &event);
}

static int watch_twice(void *arg)
{
    const int signals[] = {SIGHUP, SIGUSR2};
    weir_signal_watch *first, *second;
    int r = 0, opened;

    (void)arg;
    WEIR_DEADLINE(IO_TEST_MS) {
        WEIR_SCOPE(scope, &r, .name = "sweep", .on_failure = WEIR_FAIL_FAST, .max_tasks = 9,
                   .overflow = WEIR_REJECT) {
            weir_signal_spec spec = {.name = "both", .signals = signals, .signals_count = 2};

            opened = weir_signal_open(scope, &spec, &first);
            if (opened < 0) return opened;
            opened = weir_signal_open(scope, &spec, &second);
            if (opened < 0) return opened;
            opened = weir_spawn(scope, one_event, &first, sizeof first);
            if (opened == 0) opened = weir_spawn(scope, one_event, &second, sizeof second);
            if (opened == 0) opened = weir_yield();
            CHECK_INT(kill(getpid(), SIGUSR2), ==, 0);
            if (opened == 0) opened = weir_scope_join(scope);
            if (opened == 0) weir_signal_close(first);
        }
    }
    return r;
}

static int sweep_scenario(void *arg)
{
    struct sigaction now;
    int r = run_on(test_workers(), watch_twice, arg);

    CHECK_INT(sanitize_sigaction(SIGUSR2, NULL, &now), ==, 0);
    CHECK(now.sa_handler == SIG_DFL);
    return r;
}

TEST(a_watch_without_memory_leaves_nothing_behind)
{
    CHECK_INT(test_sweep_alloc(sweep_scenario, NULL), >, 3);
}

TEST(a_watch_cancelled_anywhere_leaves_nothing_behind)
{
    CHECK_INT(test_sweep_cancel(sweep_scenario, NULL), >, 3);
}

/* ---- A storm ---- */

struct storm {
    ATOM(bool) over;
    ATOM(uint64_t) sent;
};

static void *send_storm(void *arg)
{
    struct storm *storm = arg;

    while (!atom_load(&storm->over)) {
        if (sigqueue(getpid(), SIGRTMIN + 2, (union sigval){0}) == 0) {
            (void)atom_add(&storm->sent, 1);
        }
    }
    return NULL;
}

/* Every signal is accounted for, and other tasks have their share meanwhile. */
static int count_storm(void *arg)
{
    struct storm *storm = arg;
    weir_signal_watch *watch;
    weir_signal_event event;
    pthread_t thread;
    uint64_t count = 0;
    int r = 0;

    WEIR_DEADLINE(IO_TEST_MS) {
        IO_SCOPE(scope, &r)
        {
            watch = watch_one(scope, SIGRTMIN + 2);
            CHECK_INT(pthread_create(&thread, NULL, send_storm, storm), ==, 0);
            for (int i = 0; i < 200; i++) {
                CHECK_OK(weir_signal_wait(watch, &event));
                count += event.count;
            }
            CHECK_OK(weir_sleep(1));
            atom_store(&storm->over, true);
            CHECK_INT(pthread_join(thread, NULL), ==, 0);
            while (count < atom_load(&storm->sent)) {
                CHECK_OK(weir_signal_wait(watch, &event));
                count += event.count;
            }
        }
    }
    CHECK_INT(count, ==, atom_load(&storm->sent));
    return r;
}

TEST(a_storm_of_signals_is_counted_in_full)
{
    struct storm storm = {0};

    CHECK_OK(weir_run(&(weir_config){.workers = test_workers()}, count_storm, &storm));
}

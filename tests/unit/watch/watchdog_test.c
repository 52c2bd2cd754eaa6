/* watchdog_test.c - who keeps a worker is named, and nobody else is.
 *
 * Tasks that hog do so until they have been reported (or counted), so nothing here depends
 * on how fast the machine is; a hog that is not found is a test that times out. Tasks that
 * must not be reported go on until the watchdog has looked often enough.
 */
#include "watch/watchdog.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <weir/weir.h>

#include "harness/test.h"
#include "rt/sanitize.h"

enum { REPORTS_MAX = 64, LOOKS = 40 };

#define PLAIN_SCOPE .on_failure = WEIR_FAIL_FAST, .max_tasks = 16, .overflow = WEIR_WAIT

/* What the hook was given. `count` is written last. */
struct kept {
    char task[64];
    char scope[128];
    char backtrace[4096];
    char no_backtrace[128];
    int worker;
    int64_t held_ns, cpu_ns;
    bool blocked;
};
static struct kept kept[REPORTS_MAX];
static ATOM(int) count;
static ATOM(int) write_to = -1; /* a byte, when something is reported */
static ATOM(int) sink;
static int result;

static void keep(void *arg, const weir_watchdog_report *report)
{
    int index = atom_load(&count);
    struct kept *to = &kept[index < REPORTS_MAX ? index : REPORTS_MAX - 1];
    int fd = atom_exchange(&write_to, -1);

    CHECK(arg == &count);
    (void)snprintf(to->task, sizeof to->task, "%s", report->task);
    (void)snprintf(to->scope, sizeof to->scope, "%s", report->scope);
    (void)snprintf(to->backtrace, sizeof to->backtrace, "%s", report->backtrace);
    (void)snprintf(to->no_backtrace, sizeof to->no_backtrace, "%s", report->no_backtrace);
    to->worker = report->worker;
    to->held_ns = report->held_ns;
    to->cpu_ns = report->cpu_ns;
    to->blocked = report->blocked;
    atom_store_total(&count, index + 1);
    if (fd >= 0) CHECK_INT(write(fd, "x", 1), ==, 1);
}

static weir_config watched(int workers)
{
    return (weir_config){
        .workers = workers,
        .log_level = WEIR_LOG_ERROR,
        .watchdog_signal = SIGURG,
        .on_watchdog = keep,
        .on_watchdog_arg = &count,
    };
}

static void run_watched(int workers, weir_task_fn fn)
{
    weir_config config = watched(workers);
    CHECK_OK(weir_run(&config, fn, NULL));
}

/* For what must not be reported. An emulator, or valgrind, lets a thread wait for its own locks,
 * which nobody can tell from a call that blocks: there the bound is higher. */
static void run_watched_gently(weir_task_fn fn)
{
    weir_config config = watched(test_workers());

    if (test_emulated() || sanitize_on_valgrind()) config.watchdog_ms = 200;
    CHECK_OK(weir_run(&config, fn, NULL));
}

static struct watchdog *own_watchdog(void)
{
    struct watchdog *watchdog = atom_load(&worker_self()->runtime->watchdog);
    CHECK(watchdog != NULL);
    return watchdog;
}

static int64_t clock_ns(clockid_t clock)
{
    struct timespec time;
    CHECK_INT(clock_gettime(clock, &time), ==, 0);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static __attribute__((noinline)) void compute_ns(int64_t ns)
{
    int64_t until_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) + ns;
    while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < until_ns) {}
}

/* ---- Chains of functions that the compiler must not fold ---- */

static __attribute__((noinline)) void watchdog_test_spins(int reports)
{
    while (atom_load_acquire(&count) < reports) atom_store(&sink, atom_load(&sink) + 1);
    (void)atom_add(&sink, 1);
}

static __attribute__((noinline)) void watchdog_test_calls(int reports)
{
    watchdog_test_spins(reports);
    (void)atom_add(&sink, 1);
}

static int hog(void *arg)
{
    watchdog_test_calls(*(int *)arg);
    (void)atom_add(&sink, 1);
    return 0;
}

static __attribute__((noinline)) void watchdog_test_sleeps(int reports)
{
    while (atom_load_acquire(&count) < reports) (void)poll(NULL, 0, 100);
    (void)atom_add(&sink, 1);
}

static int sleeper(void *arg)
{
    watchdog_test_sleeps(*(int *)arg);
    (void)atom_add(&sink, 1);
    return 0;
}

/* The names in the backtrace, in this order. */
static void check_backtrace(const struct kept *report, const char *const *names)
{
    const char *at = report->backtrace;

    CHECK_STR(report->no_backtrace, "");
#if !defined(__GLIBC__) /* a C library without unwind tables: a call of it is all that is seen */
    if (*at && !strchr(strchr(at, '\n') + 1, '\n')) return;
#endif
    for (; *names; names++) {
        const char *found = strstr(at, *names);
        if (!found) TEST_FAIL("no '%s' there:\n%s", *names, report->backtrace);
        at = found + strlen(*names);
    }
    if (strstr(report->backtrace, "task_main")) TEST_FAIL("too far:\n%s", report->backtrace);
}
#define CHECK_BACKTRACE(report, ...) \
    check_backtrace((report), (const char *const[]){__VA_ARGS__, NULL})

/* ---- Found ---- */

static int spinning_main(void *arg)
{
    int reports = 1;

    (void)arg;
    WEIR_SCOPE(scope, &result, .name = "serve", PLAIN_SCOPE) {
        CHECK_OK(weir_spawn(scope, hog, &reports, sizeof reports));
    }
    return result;
}

TEST(a_task_that_computes_for_long_is_named_while_it_does)
{
    run_watched(test_workers(), spinning_main);
    CHECK_INT(atom_load(&count), ==, 1);
    CHECK_STR(kept[0].task, "hog");
    CHECK_STR(kept[0].scope, "root/serve");
    CHECK_INT(kept[0].held_ns, >=, 10000000);
    CHECK_BACKTRACE(&kept[0], "watchdog_test_spins+0x", "watchdog_test_calls+0x", "hog+0x");
}

static int sleeping_main(void *arg)
{
    int reports = 1;

    (void)arg;
    WEIR_SCOPE(scope, &result, .name = "serve", PLAIN_SCOPE) {
        CHECK_OK(weir_spawn(scope, sleeper, &reports, sizeof reports));
    }
    return result;
}

TEST(a_task_that_is_blocked_in_a_call_is_named_while_it_is)
{
    run_watched(test_workers(), sleeping_main);
    CHECK_STR(kept[0].task, "sleeper");
    CHECK_STR(kept[0].scope, "root/serve");
    CHECK(kept[0].blocked);
    CHECK_INT(kept[0].held_ns, >=, 10000000);
    CHECK_INT(kept[0].cpu_ns, <, kept[0].held_ns);
    CHECK_BACKTRACE(&kept[0], "poll", "watchdog_test_sleeps+0x", "sleeper+0x");
}

/* A kernel that does not say how long a thread could have run and did not. */
static struct kernel poor;

static int poor_look(const struct kernel *kernel, pid_t thread, struct kernel_thread *ret_look)
{
    int r = kernel_epoll.thread_look(kernel, thread, ret_look);
    ret_look->waited_ns = -1;
    return r;
}

static void use_poor_kernel(void)
{
    poor = *kernel_select(NULL);
    poor.thread_look = poor_look;
    kernel_override(&poor);
}

TEST(on_a_kernel_that_says_less_a_blocked_task_is_found_by_looking_twice)
{
    use_poor_kernel();
    run_watched(1, sleeping_main);
    CHECK_STR(kept[0].task, "sleeper");
    CHECK(kept[0].blocked);
}

static int two_main(void *arg)
{
    int reports = 2;

    (void)arg;
    WEIR_SCOPE(scope, &result, .name = "both", PLAIN_SCOPE) {
        for (int i = 0; i < 2; i++) {
            CHECK_OK(weir_task_spawn(scope,
                                     &(weir_task_spec){.fn = hog,
                                                       .arg = &reports,
                                                       .arg_bytes = sizeof reports,
                                                       .name = i == 0 ? "first" : "second",
                                                       .place = WEIR_PLACE_WORKER,
                                                       .worker = i},
                                     NULL));
        }
    }
    return result;
}

TEST_WITH(two_workers_are_kept_at_once_and_both_tasks_are_named, .workers = 2)
{
    run_watched(2, two_main);
    /* One of them may be reported twice before the other is. */
    for (int i = 0; i < 2; i++) {
        const char *name = i == 0 ? "first" : "second";
        bool found = false;

        for (int k = 0; k < atom_load(&count); k++) {
            if (kept[k].worker != i) continue;
            CHECK_STR(kept[k].task, name);
            found = true;
        }
        CHECK(found || kept[0].held_ns >= 100000000 || kept[1].held_ns >= 100000000);
    }
}

static int main_hogs(void *arg)
{
    int fds[2];
    char byte;

    (void)arg;
    CHECK_INT(pipe(fds), ==, 0);
    atom_store_total(&write_to, fds[1]);
    /* The signal has come in between, and the read went on. */
    CHECK_INT(read(fds[0], &byte, 1), ==, 1);
    CHECK_INT(close(fds[0]), ==, 0);
    CHECK_INT(close(fds[1]), ==, 0);
    CHECK_INT(atom_load(&count), >=, 0);
    return 0;
}

TEST(a_read_that_blocks_is_reported_and_goes_on_after_the_signal)
{
    run_watched(1, main_hogs);
    CHECK_INT(atom_load(&count), ==, 1);
    CHECK_STR(kept[0].task, "main");
    CHECK_STR(kept[0].scope, "root");
    CHECK_BACKTRACE(&kept[0], "read", "main_hogs+0x");
}

/* ---- Not blamed ---- */

static void wait_for_looks(void (*step)(void))
{
    struct watchdog *watchdog = own_watchdog();
    uint64_t until = atom_load(&watchdog->looks) + LOOKS;

    while (atom_load(&watchdog->looks) < until) {
        step();
        CHECK_OK(weir_yield());
    }
    CHECK_INT(atom_load(&watchdog->hits), ==, 0);
}

static void compute_a_little(void)
{
    compute_ns(500000);
}

static int fine(void *arg)
{
    (void)arg;
    wait_for_looks(compute_a_little);
    return 0;
}

TEST(a_task_that_lets_others_run_is_not_reported)
{
    run_watched_gently(fine);
    CHECK_INT(atom_load(&count), ==, 0);
}

/* A worker that shares its processor with busy threads, and nothing else: whoever waits for
 * a lock of a sanitizer is blocked. */
static ATOM(bool) stop_busy;

static void *busy(void *arg)
{
    volatile unsigned turns = 0;

    (void)arg;
    while (!atom_load(&stop_busy)) {
        for (int i = 0; i < 100000; i++) turns = turns + 1;
    }
    return NULL;
}

static int preempted(void *arg)
{
    struct watchdog *watchdog = own_watchdog();
    int late = 0;

    (void)arg;
    for (int i = 0; i < 1000 && late < 5; i++) {
        int64_t before_ns = clock_ns(CLOCK_MONOTONIC);
        compute_ns(4000000);
        if (clock_ns(CLOCK_MONOTONIC) - before_ns > 15000000) late++;
        CHECK_OK(weir_yield());
    }
    /* By the wall clock it had kept the worker for too long, again and again. */
    CHECK_INT(late, ==, 5);
    CHECK_INT(atom_load(&watchdog->hits), ==, 0);
    return 0;
}

static void check_not_blamed(void)
{
    enum { THREADS = 6 };
    pthread_t threads[THREADS];
    cpu_set_t here;

    TEST_SKIP_ON_VALGRIND("threads take turns there anyway");
    if (test_emulated()) TEST_SKIP("the emulator's own time is not told apart");
    CPU_ZERO(&here);
    CPU_SET(sched_getcpu(), &here);
    if (sched_setaffinity(0, sizeof here, &here) < 0) TEST_SKIP("processors cannot be chosen");
    for (int i = 0; i < THREADS; i++) {
        CHECK_INT(pthread_create(&threads[i], NULL, busy, NULL), ==, 0);
    }
    run_watched(1, preempted);
    atom_store(&stop_busy, true);
    for (int i = 0; i < THREADS; i++) CHECK_INT(pthread_join(threads[i], NULL), ==, 0);
    CHECK_INT(atom_load(&count), ==, 0);
}

TEST_WITH(a_worker_that_the_system_does_not_let_run_is_not_blamed, .workers = 1)
{
    check_not_blamed();
}

TEST_WITH(nor_on_a_kernel_that_says_less, .workers = 1)
{
    use_poor_kernel();
    check_not_blamed();
}

static int job(void *arg)
{
    struct watchdog *watchdog = *(struct watchdog **)arg;
    uint64_t until = atom_load(&watchdog->looks) + LOOKS;

    while (atom_load(&watchdog->looks) < until) (void)atom_add(&sink, 1);
    return 0;
}

/* The workers would sleep, and the watchdog with them. */
static int keeps_awake(void *arg)
{
    ATOM(bool) *over = *(ATOM(bool) **)arg;
    while (!atom_load(over)) CHECK_OK(weir_yield());
    return 0;
}

static int pool_main(void *arg)
{
    struct watchdog *watchdog = own_watchdog();
    ATOM(bool) over = false;
    ATOM(bool) *keep_over = &over;
    const weir_pool_class class = {.name = "only", .queue_max = 1, .weight = 1};
    weir_pool *pool;

    (void)arg;
    WEIR_SCOPE(scope, &result, .name = "work", PLAIN_SCOPE) {
        CHECK_OK(weir_pool_open(scope,
                                &(weir_pool_spec){.name = "cpu",
                                                  .threads_max = 1,
                                                  .classes = &class,
                                                  .class_count = 1,
                                                  .overflow = WEIR_WAIT,
                                                  .on_close = WEIR_DRAIN},
                                &pool));
        CHECK_OK(weir_spawn(scope, keeps_awake, &keep_over, sizeof keep_over));
        WEIR_DEADLINE(60000) { CHECK_OK(weir_pool_run(pool, 0, job, &watchdog, sizeof watchdog)); }
        atom_store(&over, true);
    }
    CHECK_INT(atom_load(&watchdog->hits), ==, 0);
    return result;
}

TEST(work_in_a_pool_keeps_no_worker_and_is_not_reported)
{
    run_watched_gently(pool_main);
    CHECK_INT(atom_load(&count), ==, 0);
}

static int blocked_twice(void *arg)
{
    struct watchdog *watchdog = own_watchdog();
    uint64_t until = atom_load(&watchdog->looks) + LOOKS;

    (void)arg;
    while (atom_load(&watchdog->looks) < until) (void)poll(NULL, 0, 50);
    CHECK_INT(atom_load(&watchdog->hits), ==, 0);
    watchdog_test_spins(1);
    return 0;
}

TEST(by_the_clock_of_the_processor_only_computing_counts)
{
    weir_config config = watched(1);

    config.watchdog_clock = WEIR_WATCHDOG_CPU;
    CHECK_OK(weir_run(&config, blocked_twice, NULL));
    CHECK_INT(atom_load(&count), ==, 1);
    CHECK(!kept[0].blocked);
}

/* ---- Counted, limited ---- */

static int many_hogs(void *arg)
{
    struct watchdog *watchdog = own_watchdog();
    int64_t began_ns = clock_ns(CLOCK_MONOTONIC);
    char *text = arg;
    uint64_t hits = 0;
    int reports, seconds, fds[2];

    for (; hits < WEIR_WATCHDOG_BURST + 5; hits++) {
        while (atom_load(&watchdog->hits) == hits) (void)atom_add(&sink, 1);
        CHECK_OK(weir_yield());
    }
    seconds = (int)((clock_ns(CLOCK_MONOTONIC) - began_ns) / 1000000000);
    reports = atom_load(&count);
    CHECK_INT(atom_load(&watchdog->hits), ==, hits);
    CHECK_INT(reports, <=, WEIR_WATCHDOG_BURST + seconds + 1);
    CHECK_INT(reports + (int)atom_load(&watchdog->suppressed), >=, hits - 1);
    if (seconds == 0) CHECK_INT(atom_load(&watchdog->suppressed), >=, 4);
    CHECK_INT(pipe(fds), ==, 0);
    CHECK_OK(weir_metrics_write(fds[1], WEIR_METRICS_PROMETHEUS));
    CHECK_INT(read(fds[0], text, 65535), >, 0);
    CHECK_INT(close(fds[0]), ==, 0);
    CHECK_INT(close(fds[1]), ==, 0);
    return 0;
}

TEST(hits_are_counted_and_reports_are_limited)
{
    static char text[65536];
    char line[64];
    weir_config config = watched(1);

    CHECK_OK(weir_run(&config, many_hogs, text));
    (void)snprintf(line, sizeof line, "\nweir_watchdog_hits_total %d\n", WEIR_WATCHDOG_BURST + 5);
    CHECK_CONTAINS(text, line);
    CHECK_CONTAINS(text, "\nweir_watchdog_suppressed_total ");
}

static struct {
    pthread_mutex_t mutex;
    char text[8192];
} logged = {PTHREAD_MUTEX_INITIALIZER, ""};

static void log_line(void *arg, const weir_log_record *record)
{
    size_t used;

    (void)arg;
    CHECK_INT(record->level, ==, WEIR_LOG_WARNING);
    (void)pthread_mutex_lock(&logged.mutex);
    used = strlen(logged.text);
    (void)snprintf(logged.text + used, sizeof logged.text - used, "%s|%s|%s\n", record->task,
                   record->scope, record->message);
    (void)pthread_mutex_unlock(&logged.mutex);
}

TEST(a_report_is_logged_as_a_warning_with_a_line_for_each_frame)
{
    weir_config config = watched(1);

    config.log = log_line;
    config.log_level = WEIR_LOG_WARNING;
    CHECK_OK(weir_run(&config, spinning_main, NULL));
    CHECK_CONTAINS(logged.text, "hog|root/serve|#");
    CHECK_CONTAINS(logged.text, " has kept worker 0 for ");
    CHECK_CONTAINS(logged.text, "hog|root/serve|    at watchdog_test_spins+0x");
    CHECK_CONTAINS(logged.text, "hog|root/serve|    at watchdog_test_calls+0x");
}

/* A hog that goes on is reported again when it has taken ten times as long. */
static int long_hog(void *arg)
{
    (void)arg;
    watchdog_test_spins(2);
    CHECK_INT(atom_load(&own_watchdog()->hits), ==, 1);
    return 0;
}

TEST(a_task_that_goes_on_is_reported_again_but_is_one_hit)
{
    run_watched(1, long_hog);
    CHECK_INT(atom_load(&count), ==, 2);
    CHECK_INT(kept[1].held_ns, >=, 100000000);
}

/* ---- At rest ---- */

static int idle_main(void *arg)
{
    struct watchdog *watchdog = own_watchdog();
    uint64_t before, looks;

    (void)arg;
    do { /* on a busy machine a worker may take some time until it is idle */
        before = atom_load(&watchdog->looks);
        CHECK_OK(weir_sleep(1000));
        looks = atom_load(&watchdog->looks) - before;
        test_note("%llu looks", (unsigned long long)looks);
    } while (looks > 20 && !test_late());
    CHECK_INT(looks, <=, 20); /* 400, if it did not rest */
    watchdog_test_spins(1);   /* and it is there again */
    return 0;
}

TEST(the_watchdog_of_an_idle_program_rests)
{
    run_watched(test_workers(), idle_main);
    CHECK_INT(atom_load(&count), ==, 1);
}

/* ---- The signal ---- */

static int masks(void *arg)
{
    sigset_t set;

    (void)arg;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGUSR2);
    CHECK_INT(pthread_sigmask(SIG_BLOCK, &set, NULL), ==, 0);
    watchdog_test_spins(1);
    return 0;
}

TEST(a_signal_that_a_task_has_blocked_is_missed_and_does_no_harm_later)
{
    weir_config config = watched(1);
    sigset_t set;

    /* One that would end the process. */
    config.watchdog_signal = SIGUSR2;
    CHECK_OK(weir_run(&config, masks, NULL));
    CHECK_STR(kept[0].task, "main");
    CHECK_STR(kept[0].no_backtrace, "the thread did not take the signal");
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGUSR2);
    CHECK_INT(pthread_sigmask(SIG_UNBLOCK, &set, NULL), ==, 0);
}

static int forks(void *arg)
{
    pid_t child;
    int status;

    (void)arg;
    child = fork();
    CHECK_INT(child, >=, 0);
    if (child == 0) {
        struct sigaction now;
        _exit(sanitize_sigaction(SIGURG, NULL, &now) == 0 && now.sa_handler == SIG_DFL ? 0 : 1);
    }
    CHECK_INT(waitpid(child, &status, 0), ==, child);
    CHECK_INT(status, ==, 0);
    CHECK_INT(kill(getpid(), SIGURG), ==, 0); /* whoever sends it asks for nothing */
    return 0;
}

TEST(a_forked_child_and_the_time_after_have_the_signal_as_it_was)
{
    struct sigaction now;

    run_watched(test_workers(), forks);
    CHECK_INT(sanitize_sigaction(SIGURG, NULL, &now), ==, 0);
    CHECK(now.sa_handler == SIG_DFL);
}

static int nothing(void *arg)
{
    (void)arg;
    return 0;
}

static void check_refused(const weir_config *config, const char *sentence)
{
    CHECK_INT(weir_run(config, nothing, NULL), ==, WEIR_EREFUSED);
    CHECK_STR(weir_why(), sentence);
}

static void ignore_it(int signal)
{
    (void)signal;
}

static int open_second(void *arg)
{
    weir_signal_watch *watch;
    const int urgent = SIGURG;
    int r = 0;

    (void)arg;
    WEIR_SCOPE(scope, &result, .name = "s", PLAIN_SCOPE) {
        r = weir_signal_open(
            scope, &(weir_signal_spec){.name = "urgent", .signals = &urgent, .signals_count = 1},
            &watch);
        CHECK_INT(r, ==, WEIR_EREFUSED);
    }
    CHECK_STR(weir_why(),
              "signal watch 'urgent': SIGURG is taken by watchdog_signal of a runtime of "
              "this process");
    return result;
}

TEST(a_watchdog_is_refused_with_the_reason)
{
    sigset_t set;
    struct sigaction action = {.sa_handler = ignore_it};

    check_refused(&(weir_config){.watchdog_ms = 5}, "runtime 'root': watchdog_ms is set but "
                                                    "watchdog_signal is not: SIGURG would do");
    check_refused(&(weir_config){.on_watchdog = keep}, "runtime 'root': on_watchdog is set but "
                                                       "watchdog_signal is not: SIGURG would do");
    check_refused(
        &(weir_config){.watchdog_clock = WEIR_WATCHDOG_CPU},
        "runtime 'root': watchdog_clock is set but watchdog_signal is not: SIGURG would do");
    check_refused(&(weir_config){.watchdog_signal = SIGURG, .watchdog_ms = -1},
                  "runtime 'root': watchdog_ms is -1, must be 1 to 3600000, or 0 for 10");
    check_refused(&(weir_config){.watchdog_signal = SIGURG, .watchdog_clock = 7},
                  "runtime 'root': watchdog_clock is not one of enum weir_watchdog_clock");
    check_refused(&(weir_config){.watchdog_signal = -3},
                  "runtime 'root': watchdog_signal is signal -3, which is no signal");
    check_refused(&(weir_config){.watchdog_signal = SIGKILL},
                  "runtime 'root': watchdog_signal is SIGKILL, which cannot be caught");
    check_refused(&(weir_config){.watchdog_signal = SIGSEGV},
                  "runtime 'root': watchdog_signal is SIGSEGV, a fault, which ends the program");
    check_refused(&(weir_config){.watchdog_signal = SIGUSR1, .signals = WEIR_SIGNAL_DUMP},
                  "runtime 'root': watchdog_signal is SIGUSR1, which is taken by another member or "
                  "runtime");
    (void)sigemptyset(&action.sa_mask);
    CHECK_INT(sigaction(SIGUSR2, &action, NULL), ==, 0);
    check_refused(
        &(weir_config){.watchdog_signal = SIGUSR2},
        "runtime 'root': watchdog_signal is SIGUSR2, which is handled by the program already");
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGURG);
    CHECK_INT(pthread_sigmask(SIG_BLOCK, &set, NULL), ==, 0);
    check_refused(
        &(weir_config){.watchdog_signal = SIGURG},
        "runtime 'root': watchdog_signal is SIGURG, which the calling thread has blocked");
    CHECK_INT(pthread_sigmask(SIG_UNBLOCK, &set, NULL), ==, 0);
    run_watched(1, open_second);
}

/* ---- Embedded, on another clock, with faults ---- */

TEST(the_time_between_two_turns_is_the_programs_own)
{
    weir_config config = watched(1);
    weir_runtime *runtime;
    struct watchdog *watchdog;
    int reports = 1;

    CHECK_OK(weir_runtime_open(&config, &runtime));
    watchdog = atom_load(&runtime->watchdog);
    CHECK_OK(weir_turn(runtime));
    compute_ns(100000000);
    CHECK_INT(atom_load(&watchdog->hits), ==, 0);
    CHECK_OK(weir_spawn(weir_runtime_scope(runtime), hog, &reports, sizeof reports));
    while (weir_turn(runtime) > 0) {}
    CHECK_INT(atom_load(&watchdog->hits), ==, 1);
    CHECK_OK(weir_runtime_close(runtime));
    CHECK_STR(kept[0].task, "hog");
}

static int no_watchdog(void *arg)
{
    (void)arg;
    CHECK(atom_load(&worker_self()->runtime->watchdog) == NULL);
    return 0;
}

TEST(a_run_on_another_clock_has_no_watchdog)
{
    weir_config config = watched(1);

    test_clock_manual();
    CHECK_OK(weir_run(&config, no_watchdog, NULL));
}

TEST(what_the_watchdog_cannot_find_out_it_says)
{
    weir_config config = watched(1);

    test_fault("thread_signal", -EPERM, 1000);
    test_fault("read_memory", -EFAULT, 1000);
    CHECK_OK(weir_run(&config, spinning_main, NULL));
    CHECK_STR(kept[0].task, "?");
    CHECK_STR(kept[0].scope, "?");
    CHECK_STR(kept[0].backtrace, "");
    CHECK_STR(kept[0].no_backtrace, "the signal could not be sent");
}

static int scenario(void *arg)
{
    weir_config config = watched(1);
    (void)arg;
    return weir_run(&config, nothing, NULL);
}

TEST(no_memory_anywhere_is_no_watchdog_and_nothing_left)
{
    CHECK_INT(test_sweep_alloc(scenario, NULL), >, 2);
}

static int check_all_watched(void *arg)
{
    const weir_runtime *runtime = worker_self()->runtime;

    (void)arg;
    for (unsigned i = 0; i < runtime->worker_count; i++) CHECK(runtime->workers[i].signal_stack);
    return 0;
}

static int scenario_of_two(void *arg)
{
    weir_config config = watched(2);
    (void)arg;
    return weir_run(&config, check_all_watched, NULL);
}

/* Without a stack for its signals a worker could not be asked. */
TEST_WITH(no_memory_to_watch_a_worker_is_no_runtime, .workers = 2)
{
    CHECK_INT(test_sweep_alloc(scenario_of_two, NULL), >, 2);
}

TEST(no_thread_is_no_runtime_with_a_watchdog)
{
    struct sigaction now;

    test_fault("thread_start", -EAGAIN, 1);
    CHECK_INT(scenario(NULL), ==, -EAGAIN);
    CHECK_INT(sanitize_sigaction(SIGURG, NULL, &now), ==, 0);
    CHECK(now.sa_handler == SIG_DFL);
    CHECK_OK(scenario(NULL));
}

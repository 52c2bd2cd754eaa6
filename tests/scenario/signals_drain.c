/* signals_drain.c - the signals that a program lets its runtime take. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rt/sanitize.h"
#include "unit/rt/support.h"

/* What ends by itself takes a few milliseconds, also on a busy machine less than this. */
#define DRAIN_MS (INT64_C(500) * test_slower())

/* ---- Draining ---- */

struct service {
    int signal;
    bool stubborn;      /* one of its tasks does not end by itself */
    ATOM(int) refused;  /* accepts that were told to stop */
    ATOM(int) finished; /* requests that were under way and got done */
    ATOM(int) cut_off;
    ATOM(int) waiting;
};

static int serve(void *arg)
{
    struct service *service = *(struct service **)arg;
    weir_listener *listener;
    weir_conn *conn;
    int r = 0;

    CHECK_OK(weir_listen(&(weir_listen_spec){.address = "tcp:127.0.0.1:0"}, &listener));
    (void)atom_add(&service->waiting, 1);
    WEIR_NO_DEADLINE("until the service stops") r = weir_accept(listener, &conn);
    weir_listener_close(listener);
    if (r == WEIR_ESTOPPING) (void)atom_add(&service->refused, 1);
    return r == WEIR_ESTOPPING ? 0 : r;
}

static int handle_request(void *arg)
{
    struct service *service = *(struct service **)arg;
    int r;

    (void)atom_add(&service->waiting, 1);
    while (atom_load(&service->refused) == 0) { /* until the stop is seen to have come */
        r = weir_sleep(1);
        if (r < 0) return r;
    }
    r = weir_sleep(5);
    if (r == 0) (void)atom_add(&service->finished, 1);
    return r;
}

static int hold_on(void *arg)
{
    struct service *service = *(struct service **)arg;
    int r;

    (void)atom_add(&service->waiting, 1);
    r = sleep_until_cancelled(NULL);
    CHECK_INT(r, ==, WEIR_ECANCELED);
    CHECK_INT(weir_cause(NULL), ==, WEIR_CAUSE_STOP);
    (void)atom_add(&service->cut_off, 1);
    return r;
}

static int run_service(void *arg)
{
    struct service *service = arg;
    int r = 0, expected = 2 + service->stubborn;

    WEIR_SCOPE(scope, &r, .name = "service", .on_failure = WEIR_FAIL_FAST, .max_tasks = 9,
               .overflow = WEIR_REJECT) {
        CHECK_OK(weir_spawn(scope, serve, &service, sizeof service));
        CHECK_OK(weir_spawn(scope, handle_request, &service, sizeof service));
        if (service->stubborn) CHECK_OK(weir_spawn(scope, hold_on, &service, sizeof service));
        while (atom_load(&service->waiting) < expected) CHECK_OK(weir_yield());
        CHECK_INT(kill(getpid(), service->signal), ==, 0);
    }
    return r;
}

static int drain(int workers, struct service *service, struct capture *capture)
{
    *capture = (struct capture){.mutex = PTHREAD_MUTEX_INITIALIZER};
    return weir_run(&(weir_config){.workers = workers,
                                   .signals = WEIR_SIGNAL_DRAIN,
                                   .drain_ms = service->stubborn ? DRAIN_MS : 60000,
                                   .log_level = WEIR_LOG_INFO,
                                   .log = capture_record,
                                   .log_arg = capture},
                    run_service, service);
}

TEST(drain_signal_refuses_new_work_and_lets_the_rest_finish)
{
    static const int signals[] = {SIGTERM, SIGINT};
    static struct capture capture;

    for (int workers = 1; workers <= 2; workers++)
        for (int i = 0; i < 2; i++) {
            struct service service = {.signal = signals[i]};
            char announced[64];

            CHECK_OK(drain(workers, &service, &capture));
            CHECK_INT(atom_load(&service.refused), ==, 1);
            CHECK_INT(atom_load(&service.finished), ==, 1);
            snprintf(announced, sizeof announced, "signal %d: stopping, 60000 ms to drain",
                     signals[i]);
            CHECK_INT(capture_count(&capture, WEIR_LOG_INFO, NULL, announced), ==, 1);
            CHECK_INT(capture_count(&capture, WEIR_LOG_WARNING, NULL, ""), ==, 0);
        }
}

TEST(drain_cuts_off_what_does_not_end_in_time_and_names_it)
{
    static struct capture capture;

    for (int workers = 1; workers <= 2; workers++) {
        struct service service;
        int64_t start_ns;

        do { /* it is only counted if the other worker does not stand still soon enough */
            service = (struct service){.signal = SIGTERM, .stubborn = true};
            start_ns = weir_now_ns();
            CHECK_INT(drain(workers, &service, &capture), ==, WEIR_ECANCELED);
            CHECK_INT(weir_now_ns() - start_ns, >=, DRAIN_MS * 1000000);
        } while (capture_count(&capture, WEIR_LOG_WARNING, NULL, "more tasks") > 0 && !test_late());
        CHECK_INT(atom_load(&service.finished), ==, 1);
        CHECK_INT(atom_load(&service.cut_off), ==, 1);
        CHECK_INT(capture_count(&capture, WEIR_LOG_WARNING, "hold_on", "was cut off"), ==, 1);
        CHECK_INT(capture_count(&capture, WEIR_LOG_WARNING, "handle_request", ""), ==, 0);
        CHECK_INT(capture_count(&capture, WEIR_LOG_WARNING, "serve", ""), ==, 0);
    }
}

/* ---- The second signal ---- */

static ATOM(bool) stop_announced;

static void note_stop(void *arg, const weir_log_record *record)
{
    (void)arg;
    if (strstr(record->message, ": stopping, ")) atom_store(&stop_announced, true);
}

static int ignore_the_first(void *arg)
{
    int signal = *(int *)arg;

    WEIR_SHIELD(60000) {
        CHECK_INT(kill(getpid(), signal), ==, 0);
        while (!atom_load(&stop_announced)) CHECK_OK(weir_sleep(1)); /* it has come */
        CHECK_INT(kill(getpid(), signal == SIGTERM ? SIGINT : SIGTERM), ==, 0);
        CHECK_OK(weir_sleep(30000));
    }
    return 0;
}

static void be_killed_twice(void *arg)
{
    CHECK_OK(weir_run(&(weir_config){.workers = 2,
                                     .signals = WEIR_SIGNAL_DRAIN,
                                     .log = note_stop,
                                     .log_level = WEIR_LOG_INFO},
                      ignore_the_first, arg));
}

TEST(second_drain_signal_ends_the_process_at_once)
{
    char output[512];
    int first = SIGTERM;
    int status = test_child(be_killed_twice, &first, output, sizeof output);

    CHECK(WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), ==, 128 + SIGINT);
    CHECK_CONTAINS(output, "second signal: ending at once");
    first = SIGINT;
    status = test_child(be_killed_twice, &first, output, sizeof output);
    CHECK_INT(WEXITSTATUS(status), ==, 128 + SIGTERM);
}

static int drain_once(void *arg)
{
    (void)arg;
    CHECK_INT(kill(getpid(), SIGTERM), ==, 0);
    while (weir_sleep(1) == 0)
        ;
    return 0;
}

TEST(count_of_signals_begins_anew_with_each_runtime)
{
    for (int i = 0; i < 3; i++)
        CHECK_OK(weir_run(
            &(weir_config){
                .workers = 1, .signals = WEIR_SIGNAL_DRAIN, .drain_ms = 1, .log = ignore_record},
            drain_once, NULL));
}

/* ---- Handlers and masks ---- */

static const int all_signals[] = {SIGTERM, SIGINT, SIGUSR1, SIGSEGV, SIGBUS, SIGALRM, SIGPIPE};
enum { ALL_SIGNALS = sizeof all_signals / sizeof all_signals[0] };
/* libc adds one of its own to what it is given. */
enum { FLAGS_SEEN = SA_SIGINFO | SA_ONSTACK | SA_RESTART | SA_NODEFER };

static void own_handler(int signal)
{
    (void)signal;
}

static void look_at_handlers(struct sigaction actions[ALL_SIGNALS])
{
    memset(actions, 0, ALL_SIGNALS * sizeof actions[0]);
    for (int i = 0; i < ALL_SIGNALS; i++) {
        bool fault = all_signals[i] == SIGSEGV || all_signals[i] == SIGBUS;

        /* ThreadSanitizer knows of the handler for faults. */
        CHECK_INT((fault ? sigaction : sanitize_sigaction)(all_signals[i], NULL, &actions[i]), ==,
                  0);
    }
}

/* Bit by bit: what lies behind the kernel's bits is not defined. */
static bool same_mask(const sigset_t *a, const sigset_t *b)
{
    for (int i = 1; i < 32; i++)
        if (sigismember(a, i) != sigismember(b, i)) return false;
    return true;
}

static int count_changed(const struct sigaction before[ALL_SIGNALS])
{
    struct sigaction now[ALL_SIGNALS];
    int changed = 0;

    look_at_handlers(now);
    for (int i = 0; i < ALL_SIGNALS; i++) {
        bool same = now[i].sa_handler == before[i].sa_handler &&
                    ((now[i].sa_flags ^ before[i].sa_flags) & FLAGS_SEEN) == 0 &&
                    same_mask(&now[i].sa_mask, &before[i].sa_mask);

        changed += !same;
    }
    return changed;
}

struct handlers {
    struct sigaction before[ALL_SIGNALS];
    int changed;
    sigset_t mask;
};

static int compare_masks(void *arg)
{
    const struct handlers *handlers = *(struct handlers **)arg;
    sigset_t mask;

    CHECK_INT(pthread_sigmask(SIG_SETMASK, NULL, &mask), ==, 0);
    CHECK(same_mask(&mask, &handlers->mask));
    return 0;
}

static int look_inside(void *arg)
{
    struct handlers *handlers = arg;
    int r = 0;

    CHECK_INT(count_changed(handlers->before), ==, handlers->changed);
    WEIR_SCOPE(scope, &r, .name = "masks", .on_failure = WEIR_FAIL_FAST, .max_tasks = 9,
               .overflow = WEIR_REJECT) {
        for (int i = 0; i < weir_worker_count(); i++)
            spawn_at(scope, i, "mask", compare_masks, &handlers, sizeof handlers);
    }
    return r;
}

TEST(handlers_are_taken_only_when_asked_for_and_given_back)
{
    static const struct {
        unsigned signals;
        int taken;
    } rows[] = {
        {WEIR_SIGNALS_NONE, 0},
        {WEIR_SIGNAL_DRAIN, 2},
        {WEIR_SIGNAL_DUMP, 1},
        {WEIR_SIGNAL_OVERFLOW, 2},
        {WEIR_SIGNAL_DRAIN | WEIR_SIGNAL_DUMP | WEIR_SIGNAL_OVERFLOW, 5},
    };
    struct handlers handlers;
    struct sigaction own = {.sa_handler = own_handler, .sa_flags = SA_NODEFER};
    struct sigaction kept;

    CHECK_INT(sigaction(SIGUSR1, NULL, &kept), ==, 0); /* the harness's own */
    sigemptyset(&own.sa_mask);
    sigaddset(&own.sa_mask, SIGHUP);
    CHECK_INT(sigaction(SIGTERM, &own, NULL), ==, 0);
    CHECK_INT(sigaction(SIGUSR1, &own, NULL), ==, 0);
    sigemptyset(&handlers.mask);
    sigaddset(&handlers.mask, SIGHUP);
    sigaddset(&handlers.mask, SIGWINCH);
    CHECK_INT(pthread_sigmask(SIG_SETMASK, &handlers.mask, NULL), ==, 0);
    CHECK_INT(pthread_sigmask(SIG_SETMASK, NULL, &handlers.mask), ==, 0);
    look_at_handlers(handlers.before);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        test_note("row %zu", i);
        handlers.changed = rows[i].taken;
        CHECK_OK(weir_run(&(weir_config){.workers = 2, .signals = rows[i].signals}, look_inside,
                          &handlers));
        CHECK_INT(count_changed(handlers.before), ==, 0);
    }
    CHECK_INT(sigaction(SIGUSR1, &kept, NULL), ==, 0);
}

/* ---- Two that want them ---- */

struct second {
    int result;
    char why[160];
};

static int not_reached(void *arg)
{
    (void)arg;
    TEST_FAIL("a runtime was opened that should have been refused");
}

static void *want_signals_too(void *arg)
{
    struct second *second = arg;

    second->result =
        weir_run(&(weir_config){.workers = 1, .signals = WEIR_SIGNAL_DUMP}, not_reached, NULL);
    snprintf(second->why, sizeof second->why, "%s", weir_why());
    return NULL;
}

static int have_signals(void *arg)
{
    struct second second;
    pthread_t thread;

    (void)arg;
    CHECK_INT(pthread_create(&thread, NULL, want_signals_too, &second), ==, 0);
    CHECK_INT(pthread_join(thread, NULL), ==, 0);
    CHECK_INT(second.result, ==, WEIR_EREFUSED);
    CHECK_CONTAINS(second.why, "signals are taken by another runtime of this process");
    return 0;
}

TEST(second_runtime_that_wants_signals_is_refused)
{
    CHECK_OK(
        weir_run(&(weir_config){.workers = 1, .signals = WEIR_SIGNAL_DRAIN}, have_signals, NULL));
    /* And the next one gets them again. */
    CHECK_OK(
        weir_run(&(weir_config){.workers = 1, .signals = WEIR_SIGNAL_DRAIN}, have_signals, NULL));
}

/* ---- USR1 ---- */

/* Until all of it is on standard error, which is a file here; the test's timeout bounds it. */
static void await_dump(void)
{
    static char text[65536];
    ssize_t length;

    do {
        CHECK_OK(weir_sleep(1));
        length = pread(STDERR_FILENO, text, sizeof text - 1, 0);
        CHECK_INT(length, >=, 0);
        text[length] = '\0';
    } while (!strstr(text, "task 'parked-one'"));
}

static int ask_for_a_dump(void *arg)
{
    int r = 0;

    (void)arg;
    WEIR_SCOPE(scope, &r, .name = "shown", .on_failure = WEIR_FAIL_FAST, .max_tasks = 9,
               .overflow = WEIR_REJECT) {
        spawn_at(scope, weir_worker_count() - 1, "parked-one", sleep_until_cancelled, NULL, 0);
        CHECK_INT(kill(getpid(), SIGUSR1), ==, 0);
        await_dump(); /* it is taken at a safe point in here */
        weir_scope_cancel(scope, 0, "shown");
    }
    return r;
}

static void show_dump(void *arg)
{
    CHECK_OK(weir_run(&(weir_config){.workers = *(int *)arg, .signals = WEIR_SIGNAL_DUMP},
                      ask_for_a_dump, NULL));
}

TEST(dump_signal_prints_the_tree_of_tasks)
{
    static char output[65536];

    for (int workers = 1; workers <= 2; workers++) {
        CHECK_INT(test_child(show_dump, &workers, output, sizeof output), ==, 0);
        CHECK_CONTAINS(output, "runtime 'root'");
        CHECK_CONTAINS(output, "scope 'shown'");
        CHECK_CONTAINS(output, "task 'parked-one'");
    }
}

/* signal_test.c - signals as events. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "rt/sanitize.h"
#include "unit/io/io_test.h"

static const int usr2_only[] = {SIGUSR2};
static const int usr2_and_hup[] = {SIGUSR2, SIGHUP};

static weir_signal_watch *watch_of(weir_scope *scope, const int *signals, int count)
{
    weir_signal_watch *watch = NULL;
    CHECK_OK(weir_signal_open(
        scope, &(weir_signal_spec){.name = "test", .signals = signals, .signals_count = count},
        &watch));
    return watch;
}

/* To the process, as another one would send it. */
static void send_signal(int signal)
{
    CHECK_INT(kill(getpid(), signal), ==, 0);
}

static bool is_default(int signal)
{
    struct sigaction now;
    CHECK_INT(sanitize_sigaction(signal, NULL, &now), ==, 0);
    return !(now.sa_flags & SA_SIGINFO) && now.sa_handler == SIG_DFL;
}

/* ---- Events ---- */

static int wait_for_one(void *arg)
{
    weir_signal_watch *watch = *(weir_signal_watch **)arg;
    weir_signal_event event;

    CHECK_OK(weir_signal_wait(watch, &event));
    CHECK_INT(event.signal, ==, SIGUSR2);
    CHECK_INT(event.count, ==, 1);
    CHECK_INT(event.sender, ==, getpid());
    return 0;
}

IO_TEST(a_signal_is_an_event_of_every_watch_that_has_it)
{
    int r;

    IO_SCOPE(scope, &r)
    {
        weir_signal_watch *watches[3] = {watch_of(scope, usr2_only, 1),
                                         watch_of(scope, usr2_and_hup, 2),
                                         watch_of(scope, usr2_only, 1)};

        /* Two wait already, anywhere; the third looks later. */
        for (int i = 0; i < 2; i++) {
            CHECK_OK(weir_task_spawn(scope,
                                     &(weir_task_spec){.fn = wait_for_one,
                                                       .arg = &watches[i],
                                                       .arg_bytes = sizeof watches[i],
                                                       .place = WEIR_ANYWHERE},
                                     NULL));
        }
        CHECK_OK(weir_yield());
        send_signal(SIGUSR2);
        CHECK_OK(weir_scope_join(scope));
        CHECK_OK(wait_for_one(&watches[2]));
    }
    CHECK_OK(r);
    CHECK(is_default(SIGUSR2));
    CHECK(is_default(SIGHUP));
    return 0;
}

/* ---- While a watch is opened ---- */

enum { OPENINGS = 10000 };

static ATOM(int) by_handler;
static ATOM(int) openings; /* that have begun */
static ATOM(int) sent;
static ATOM(bool) no_more; /* openings */

static void count_it(int signal)
{
    (void)signal;
    (void)atom_add(&by_handler, 1);
}

/* One to the worker's thread for each opening. */
static void *send_at_openings(void *worker)
{
    for (int i = 1; i <= OPENINGS; i++) {
        while (atom_load_total(&openings) < i) {
            if (atom_load_total(&no_more)) return NULL;
            (void)sched_yield();
        }
        CHECK_INT(pthread_kill(*(pthread_t *)worker, SIGRTMIN + 1), ==, 0);
        atom_store_total(&sent, i);
    }
    return NULL;
}

/* It was the handler's that was there before, or is an event of the watch: one of the two. */
IO_TEST(a_signal_that_comes_while_a_watch_is_opened_is_not_lost)
{
    const int signals[] = {SIGRTMIN + 1};
    struct sigaction action = {.sa_handler = count_it};
    pthread_t self = pthread_self();
    int64_t until_ns = weir_now_ns() + IO_TEST_MS / 2 * INT64_C(1000000);
    pthread_t sender;
    int r = 0;

    if (WEIR_TSAN) TEST_SKIP("ThreadSanitizer holds signals of the program's back");
    TEST_SKIP_ON_VALGRIND("it hands signals on when it pleases");
    CHECK_INT(sigaction(SIGRTMIN + 1, &action, NULL), ==, 0);
    CHECK_INT(pthread_create(&sender, NULL, send_at_openings, &self), ==, 0);
    /* A busy machine, where the two threads wait for a processor each time, does fewer. */
    for (int i = 1; i <= OPENINGS && r == 0 && weir_now_ns() < until_ns; i++) {
        int before = atom_load(&by_handler);

        IO_SCOPE(scope, &r)
        {
            weir_signal_watch *watch;
            weir_signal_event event;

            atom_store_total(&openings, i);
            for (int k = 0; k < i % 256; k++) atom_pause(); /* a little later each time */
            CHECK_OK(weir_signal_open(scope,
                                      &(weir_signal_spec){.name = "test",
                                                          .signals = signals,
                                                          .signals_count = 1,
                                                          .previous = WEIR_PREVIOUS_REPLACE},
                                      &watch));
            while (atom_load_total(&sent) < i) (void)sched_yield();
            if (atom_load(&by_handler) == before) CHECK_OK(weir_signal_wait(watch, &event));
            weir_signal_close(watch);
        }
    }
    atom_store_total(&no_more, true);
    CHECK_INT(pthread_join(sender, NULL), ==, 0);
    return r;
}

/* Realtime signals are queued, so that the kernel merges none of them. */
IO_TEST(signals_are_counted_and_none_is_lost)
{
    enum { TIMES = 20 };
    const int signals[] = {SIGRTMIN + 1};
    uint64_t count = 0;
    int r;

    IO_SCOPE(scope, &r)
    {
        weir_signal_watch *watch = watch_of(scope, signals, 1);
        weir_signal_event event;

        for (int i = 0; i < TIMES; i++) send_signal(signals[0]);
        while (count < TIMES) {
            CHECK_OK(weir_signal_wait(watch, &event));
            CHECK_INT(event.signal, ==, signals[0]);
            count += event.count;
        }
        CHECK_INT(count, ==, TIMES);
        WEIR_DEADLINE(2) { CHECK_INT(weir_signal_wait(watch, &event), ==, WEIR_ETIMEDOUT); }
        weir_signal_close(watch);
    }
    return r;
}

/* As often as one of them comes, the other has its turn. */
IO_TEST(signals_that_have_come_take_turns)
{
    int r;

    IO_SCOPE(scope, &r)
    {
        weir_signal_watch *watch = watch_of(scope, usr2_and_hup, 2);
        weir_signal_event event;
        int last = 0;

        for (int i = 0; i < 10; i++) {
            send_signal(SIGHUP);
            send_signal(SIGUSR2);
            CHECK_OK(weir_signal_wait(watch, &event));
            if (last != 0) CHECK_INT(event.signal, !=, last);
            last = event.signal;
            CHECK_OK(weir_checkpoint());
        }
    }
    return r;
}

IO_TEST(a_watch_has_one_waiter_at_a_time)
{
    int r;

    IO_SCOPE(scope, &r)
    {
        weir_signal_watch *watch = watch_of(scope, usr2_only, 1);
        weir_signal_event event;

        CHECK_OK(weir_spawn(scope, wait_for_one, &watch, sizeof watch));
        CHECK_OK(weir_yield());
        CHECK_INT(weir_signal_wait(watch, &event), ==, WEIR_EINUSE);
        send_signal(SIGUSR2);
    }
    return r;
}

/* ---- The end of a watch ---- */

static int wait_until_closed(void *arg)
{
    weir_signal_event event;
    CHECK_INT(weir_signal_wait(*(weir_signal_watch **)arg, &event), ==, WEIR_ECLOSED);
    return 0;
}

IO_TEST(the_end_of_its_scope_ends_a_watch_and_who_waits_on_it)
{
    int outer_result, r;

    IO_SCOPE(outer, &outer_result)
    {
        IO_SCOPE(scope, &r)
        {
            weir_signal_watch *watch = watch_of(scope, usr2_only, 1);
            CHECK_OK(weir_spawn(outer, wait_until_closed, &watch, sizeof watch));
            CHECK_OK(weir_yield());
        }
        CHECK_OK(r);
        CHECK(is_default(SIGUSR2));
    }
    return outer_result;
}

static int close_watch(void *arg)
{
    weir_signal_close(*(weir_signal_watch **)arg);
    return 0;
}

IO_TEST(a_watch_may_be_closed_on_any_worker)
{
    int r, last = weir_worker_count() - 1;

    for (int i = 0; i < 50; i++) {
        IO_SCOPE(scope, &r)
        {
            weir_signal_watch *watch = watch_of(scope, usr2_only, 1);
            weir_task_spec spec = {.fn = close_watch,
                                   .arg = &watch,
                                   .arg_bytes = sizeof watch,
                                   .place = WEIR_PLACE_WORKER,
                                   .worker = last};
            CHECK_OK(weir_task_spawn(scope, &spec, NULL));
            if (i % 2) CHECK_OK(weir_scope_join(scope));
        }
        CHECK_OK(r);
        CHECK(is_default(SIGUSR2));
    }
    return 0;
}

static int close_under_a_waiter(void *arg)
{
    int r;

    (void)arg;
    IO_SCOPE(scope, &r)
    {
        weir_signal_watch *watch = watch_of(scope, usr2_only, 1);
        CHECK_OK(weir_spawn(scope, wait_for_one, &watch, sizeof watch));
        CHECK_OK(weir_yield());
        weir_signal_close(watch);
    }
    return r;
}

static int wait_on_a_closed_one(void *arg)
{
    int r;

    (void)arg;
    IO_SCOPE(scope, &r)
    {
        weir_signal_watch *watch = watch_of(scope, usr2_only, 1);
        weir_signal_watch *another;

        weir_signal_close(watch);
        another = watch_of(scope, usr2_only, 1);
        CHECK(another != watch);
        return wait_for_one(&watch);
    }
    return r;
}

static void misuse_in_a_task(void *arg)
{
    (void)io_test_run(*(weir_task_fn *)arg);
}

TEST(a_watch_that_is_used_wrongly_is_told)
{
    weir_task_fn body = close_under_a_waiter;
    CHECK_ABORTS(misuse_in_a_task, &body, "'wait_for_one' is waiting on the signal watch 'test'");
    body = wait_on_a_closed_one;
    CHECK_ABORTS(misuse_in_a_task, &body, "weir_signal_wait: the signal watch is closed");
}

/* ---- Refusals ---- */

static const int kill_only[] = {SIGKILL};
static const int stop_only[] = {SIGSTOP};
static const int segv_only[] = {SIGSEGV};
static const int abrt_only[] = {SIGABRT};
static const int zero_only[] = {0};
static const int beyond[] = {65};
static const int internal[] = {32};
static const int twice[] = {SIGUSR2, SIGHUP, SIGUSR2};

static const struct refusal {
    weir_signal_spec spec;
    const char *why;
} refusals[] = {
    {{.signals = usr2_only, .signals_count = 1}, "signal watch: name is not set"},
    {{.name = "n", .signals_count = 1}, "signal watch 'n': signals is not set"},
    {{.name = "n", .signals = usr2_only}, "signal watch 'n': signals_count is 0, must be 1 to 64"},
    {{.name = "n", .signals = usr2_only, .signals_count = 65}, "signals_count is 65"},
    {{.name = "n", .signals = usr2_only, .signals_count = 1, .previous = 9},
     "signal watch 'n': previous is not of enum weir_signal_previous"},
    {{.name = "n", .signals = kill_only, .signals_count = 1},
     "has SIGKILL, which cannot be caught"},
    {{.name = "n", .signals = stop_only, .signals_count = 1},
     "has SIGSTOP, which cannot be caught"},
    {{.name = "n", .signals = internal, .signals_count = 1}, "has signal 32, which cannot be"},
    {{.name = "n", .signals = segv_only, .signals_count = 1}, "signals has SIGSEGV, a fault"},
    {{.name = "n", .signals = abrt_only, .signals_count = 1}, "signals has SIGABRT, a fault"},
    {{.name = "n", .signals = zero_only, .signals_count = 1}, "signals has 0, which is no signal"},
    {{.name = "n", .signals = beyond, .signals_count = 1}, "signals has 65, which is no signal"},
    {{.name = "n", .signals = twice, .signals_count = 3}, "signal watch 'n': signals has 12 twice"},
};

IO_TEST(a_signal_watch_is_refused_with_the_reason)
{
    const int with_a_bad_one[] = {SIGHUP, SIGUSR2, SIGKILL};
    int r;

    IO_SCOPE(scope, &r)
    {
        weir_signal_watch *watch;

        for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
            test_note("refusal %zu", i);
            CHECK_INT(weir_signal_open(scope, &refusals[i].spec, &watch), ==, WEIR_EREFUSED);
            CHECK_CONTAINS(weir_why(), refusals[i].why);
        }
        /* All or none of them are taken. */
        CHECK_INT(weir_signal_open(scope,
                                   &(weir_signal_spec){
                                       .name = "n", .signals = with_a_bad_one, .signals_count = 3},
                                   &watch),
                  ==, WEIR_EREFUSED);
        CHECK(is_default(SIGHUP));
        CHECK(is_default(SIGUSR2));
        weir_scope_cancel(scope, 0, "no more");
        CHECK_INT(weir_signal_open(
                      scope,
                      &(weir_signal_spec){.name = "n", .signals = usr2_only, .signals_count = 1},
                      &watch),
                  ==, WEIR_ECANCELED);
        CHECK(is_default(SIGUSR2));
    }
    return r;
}

/* ---- Beside weir_config.signals ---- */

static int watch_what_the_runtime_has(void *arg)
{
    static const int signals[][1] = {{SIGTERM}, {SIGINT}, {SIGUSR1}};
    static const char *const takers[] = {"WEIR_SIGNAL_DRAIN", "WEIR_SIGNAL_DRAIN",
                                         "WEIR_SIGNAL_DUMP"};
    int r;

    (void)arg;
    IO_SCOPE(scope, &r)
    {
        for (int i = 0; i < 3; i++) {
            weir_signal_watch *watch;
            CHECK_INT(
                weir_signal_open(
                    scope,
                    &(weir_signal_spec){.name = "mine", .signals = signals[i], .signals_count = 1},
                    &watch),
                ==, WEIR_EREFUSED);
            CHECK_CONTAINS(weir_why(), "signal watch 'mine': SIG");
            CHECK_CONTAINS(weir_why(), takers[i]);
            CHECK_CONTAINS(weir_why(), "of a runtime of this process");
        }
        (void)watch_of(scope, usr2_only, 1);
    }
    return r;
}

static void *run_with_drain(void *arg)
{
    int r = weir_run(&(weir_config){.workers = 1, .signals = WEIR_SIGNAL_DRAIN, .name = "late"},
                     io_test_task, arg);

    CHECK_INT(r, ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "runtime 'late': signals has WEIR_SIGNAL_DRAIN, but SIGINT is "
                               "watched by weir_signal_open");
    CHECK(is_default(SIGTERM));
    return NULL;
}

static int run_another_with_drain(void *arg)
{
    const int signals[] = {SIGINT};
    pthread_t thread;
    int r;

    IO_SCOPE(scope, &r)
    {
        (void)watch_of(scope, signals, 1);
        CHECK_INT(pthread_create(&thread, NULL, run_with_drain, arg), ==, 0);
        CHECK_INT(pthread_join(thread, NULL), ==, 0);
    }
    return r;
}

TEST(a_signal_has_one_use_in_a_process)
{
    weir_task_fn body = watch_what_the_runtime_has;
    weir_config config = {.workers = test_workers(),
                          .signals = WEIR_SIGNAL_DRAIN | WEIR_SIGNAL_DUMP};

    CHECK_OK(weir_run(&config, io_test_task, &body));
    CHECK_OK(io_test_run(run_another_with_drain));
    /* Nothing has stayed reserved. */
    CHECK_OK(weir_run(&config, io_test_task, &body));
}

/* ---- Handlers that were there before ---- */

static ATOM(int) plain_calls, info_calls;

static void on_plain(int signal)
{
    if (signal == SIGUSR2) (void)atom_add(&plain_calls, 1);
}

static void on_info(int signal, siginfo_t *info, void *context)
{
    if (signal == info->si_signo && context) (void)atom_add(&info_calls, 1);
}

static int open_with(weir_scope *scope, enum weir_signal_previous previous,
                     weir_signal_watch **ret_watch)
{
    return weir_signal_open(
        scope,
        &(weir_signal_spec){
            .name = "test", .signals = usr2_only, .signals_count = 1, .previous = previous},
        ret_watch);
}

/* Send one, and wait until the watch has told of it: then its handler has run. */
static void one_event(weir_signal_watch *watch)
{
    weir_signal_event event;
    send_signal(SIGUSR2);
    CHECK_OK(weir_signal_wait(watch, &event));
}

static void with_handlers(weir_scope *scope)
{
    weir_signal_watch *watch, *another;

    CHECK_INT(open_with(scope, WEIR_PREVIOUS_UNSET, &watch), ==, WEIR_EREFUSED);
    CHECK_STR(weir_why(),
              "signal watch 'test': SIGUSR2 has a handler already and previous is not set");
    CHECK_OK(open_with(scope, WEIR_PREVIOUS_REPLACE, &watch));
    CHECK_INT(open_with(scope, WEIR_PREVIOUS_CALL, &another), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "previous is not what another watch of SIGUSR2 has said");
    one_event(watch);
    CHECK_INT(atom_load(&plain_calls) + atom_load(&info_calls), ==, 0);
    weir_signal_close(watch);
    CHECK_OK(open_with(scope, WEIR_PREVIOUS_CALL, &watch));
    CHECK_OK(open_with(scope, WEIR_PREVIOUS_CALL, &another));
    one_event(watch);
    weir_signal_close(watch);
    one_event(another);
    while (atom_load(&plain_calls) + atom_load(&info_calls) < 2) CHECK_OK(weir_yield());
    weir_signal_close(another);
}

IO_TEST(a_handler_that_was_there_is_replaced_or_called_as_said)
{
    struct sigaction action = {.sa_handler = on_plain, .sa_flags = SA_NODEFER}, now;
    int r;

    (void)sigaddset(&action.sa_mask, SIGALRM);
    CHECK_INT(sigaction(SIGUSR2, &action, NULL), ==, 0);
    IO_SCOPE(scope, &r)
    {
        with_handlers(scope);
    }
    CHECK_OK(r);
    CHECK_INT(atom_load(&plain_calls), ==, 2);
    CHECK_INT(sigaction(SIGUSR2, NULL, &now), ==, 0);
    CHECK(now.sa_handler == on_plain && now.sa_flags & SA_NODEFER);
    CHECK_INT(sigismember(&now.sa_mask, SIGALRM), ==, 1);

    atom_store(&plain_calls, 0);
    action = (struct sigaction){.sa_sigaction = on_info, .sa_flags = SA_SIGINFO};
    CHECK_INT(sigaction(SIGUSR2, &action, NULL), ==, 0);
    IO_SCOPE(scope, &r)
    {
        with_handlers(scope);
    }
    CHECK_OK(r);
    CHECK_INT(atom_load(&info_calls), ==, 2);
    CHECK_INT(sigaction(SIGUSR2, NULL, &now), ==, 0);
    CHECK(now.sa_sigaction == on_info);
    return 0;
}

IO_TEST(what_the_program_set_meanwhile_is_left_alone)
{
    struct sigaction now;
    int r;

    CHECK(signal(SIGUSR2, SIG_IGN) != SIG_ERR);
    IO_SCOPE(scope, &r)
    {
        weir_signal_close(watch_of(scope, usr2_only, 1));
    }
    CHECK_OK(r);
    CHECK_INT(sigaction(SIGUSR2, NULL, &now), ==, 0);
    CHECK(now.sa_handler == SIG_IGN);
    IO_SCOPE(scope, &r)
    {
        (void)watch_of(scope, usr2_only, 1);
        CHECK(signal(SIGUSR2, on_plain) != SIG_ERR);
    }
    CHECK_OK(r);
    CHECK_INT(sigaction(SIGUSR2, NULL, &now), ==, 0);
    CHECK(now.sa_handler == on_plain);
    return 0;
}

/* A watch tells that a child has ended, and leaves it to whoever waits for it. */
IO_TEST(a_child_that_ended_is_an_event_and_is_still_there)
{
    const int signals[] = {SIGCHLD};
    int r, status;

    IO_SCOPE(scope, &r)
    {
        weir_signal_watch *watches[2] = {watch_of(scope, signals, 1), watch_of(scope, signals, 1)};
        pid_t child = fork();

        if (child == 0) _exit(7);
        CHECK_INT(child, >, 0);
        for (int i = 0; i < 2; i++) {
            weir_signal_event event;
            CHECK_OK(weir_signal_wait(watches[i], &event));
            CHECK_INT(event.signal, ==, SIGCHLD);
            CHECK_INT(event.sender, ==, child);
        }
        CHECK_INT(waitpid(child, &status, WNOHANG), ==, child);
        CHECK_INT(WEXITSTATUS(status), ==, 7);
    }
    return r;
}

/* Who ignores SIGCHLD has no zombies, and has none while it is watched. */
IO_TEST(children_that_are_ignored_stay_ignored)
{
    const int signals[] = {SIGCHLD};
    int r;

    if (test_emulated()) TEST_SKIP("the emulator does not hand SA_NOCLDWAIT on");
    CHECK(signal(SIGCHLD, SIG_IGN) != SIG_ERR);
    IO_SCOPE(scope, &r)
    {
        weir_signal_watch *watch = watch_of(scope, signals, 1);
        weir_signal_event event;
        pid_t child = fork();

        if (child == 0) _exit(0);
        CHECK_OK(weir_signal_wait(watch, &event));
        CHECK_INT(waitpid(child, NULL, 0), ==, -1);
        CHECK_INT(errno, ==, ECHILD);
    }
    CHECK(signal(SIGCHLD, SIG_DFL) != SIG_ERR);
    return r;
}

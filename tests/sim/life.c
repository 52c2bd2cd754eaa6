/* life.c - the simulator's own edges: where simulations may begin, hosts that are killed at any
 * moment, invariants that are late or wrong, memory that is missing everywhere. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim/rt.h"

static int do_nothing(void *arg)
{
    (void)arg;
    return 0;
}

static weir_scope *open_scope(const char *name)
{
    weir_scope *scope;

    CHECK_OK(weir_scope_open(
        &(weir_scope_spec){
            .name = name, .on_failure = WEIR_COLLECT, .max_tasks = 8, .overflow = WEIR_WAIT},
        &scope));
    return scope;
}

/* ---- Where one may begin ---- */

static void begin_another(void *arg)
{
    (void)arg;
    if (weir_sim_run(&(weir_sim_spec){.name = "inner", .runs_max = 1}, do_nothing, NULL) !=
            WEIR_EREFUSED ||
        strcmp(weir_why(), "simulation 'inner': it begins inside of a simulated run") != 0) {
        abort();
    }
}

static int begin_another_in_a_task(void *arg)
{
    begin_another(arg);
    return 0;
}

TEST(simulation_inside_a_run_is_refused)
{
    test_sim(
        &(weir_sim_spec){
            .name = "outer", .runs_max = 3, .begin = begin_another, .end = begin_another},
        begin_another_in_a_task, NULL);
}

static int fail_at_once(void *arg)
{
    (void)arg;
    return -EIO;
}

/* In a process of its own: what the failed run has left is not freed. */
TEST(simulation_after_a_failed_replay_is_refused)
{
    weir_sim_spec spec = {.name = "once", .runs_max = 1};
    pid_t child;
    int status;

    test_skip_without_sim();
    child = fork();
    CHECK_INT(child, >=, 0);
    if (child == 0) {
        bool silent = freopen("/dev/null", "w", stderr) != NULL;
        (void)setenv("WEIR_SIM", "random:1", 1);
        if (!silent || weir_sim_run(&spec, fail_at_once, NULL) != WEIR_EFOUND) _exit(1);
        _exit(weir_sim_run(&spec, do_nothing, NULL) == WEIR_EREFUSED ? 0 : 2);
    }
    CHECK_INT(waitpid(child, &status, 0), ==, child);
    CHECK_INT(status, ==, 0);
}

/* ---- Invariants ---- */

static bool came_true;

static void not_yet(void *arg)
{
    (void)arg;
    came_true = false;
}

static bool has_come_true(void *arg)
{
    (void)arg;
    return came_true;
}

static int come_true_after(void *arg)
{
    int r = weir_sleep(*(int *)arg);

    came_true = true;
    return r; /* its last step: no call behind it looks */
}

static int come_true_and_go_on(void *arg)
{
    weir_scope *scope = open_scope("later");

    CHECK_OK(weir_spawn(scope, come_true_after, arg, sizeof(int)));
    CHECK_OK(weir_scope_close(scope));
    return weir_sleep(1000);
}

static int run_eventually(int after_ms, weir_sim_result *result)
{
    return weir_sim_run(
        &(weir_sim_spec){
            .name = "eventually",
            .runs_max = 20,
            .begin = not_yet,
            .invariants = {{.name = "it comes", .holds = has_come_true, .within_ms = 50}},
            .quiet = true,
            .ret_result = result},
        come_true_and_go_on, &after_ms);
}

TEST(what_comes_true_in_time_holds_and_what_comes_late_does_not)
{
    static weir_sim_result result;

    test_skip_without_sim();
    CHECK_OK(run_eventually(50, &result));
    CHECK_INT(run_eventually(51, &result), ==, WEIR_EFOUND);
    CHECK_STR(result.failure, "'it comes' has not come true within 50 ms");
}

static bool sleeps(void *arg)
{
    (void)arg;
    return weir_sleep(1) == 0;
}

TEST(invariant_that_suspends_is_named)
{
    static weir_sim_result result;

    test_skip_without_sim();
    CHECK_INT(weir_sim_run(&(weir_sim_spec){.name = "sleepy",
                                            .runs_max = 1,
                                            .invariants = {{.name = "dozes", .holds = sleeps}},
                                            .quiet = true,
                                            .ret_result = &result},
                           come_true_after, &(int){1}),
              ==, WEIR_EFOUND);
    CHECK_STR(result.failure, "invariant 'dozes' makes a call that may suspend");
}

TEST(times_that_do_not_fit_are_refused)
{
    weir_sim_spec spec = {.name = "long", .runs_max = 1, .run_ms_max = INT64_MAX};

    CHECK_INT(weir_sim_run(&spec, do_nothing, NULL), ==, WEIR_EREFUSED);
    CHECK_STR(weir_why(), "simulation 'long': run_ms_max is too large");
}

/* ---- The target of cancellation ---- */

static int nap(void *arg)
{
    int r = 0;

    (void)arg;
    for (int i = 0; i < 4 && r == 0; i++) r = weir_sleep(1);
    return r;
}

/* Its memory is another scope's by then, which nobody has named. */
SIM_TEST(closed_scope_is_no_target_of_cancellation, .runs_max = 2000, .any_result = true,
         .faults = {.cancel = 16, .faults_max = 1})
{
    weir_scope *scope = open_scope("target");
    int r;

    weir_sim_cancel_target(scope);
    if (weir_scope_close(scope) < 0) return 0; /* it was cancelled: there is no second fault */
    scope = open_scope("another");
    if (weir_spawn(scope, nap, NULL, 0) < 0) return weir_scope_close(scope);
    r = weir_scope_close(scope);
    CHECK_OK(r); /* it has the memory of the target, which is not one any more */
    return 0;
}

/* ---- Polling ---- */

static bool polled_for;

static int poll_for_it(void *arg)
{
    int r = 0;

    (void)arg;
    while (!polled_for && r == 0) r = weir_yield();
    return r;
}

static int bring_it(void *arg)
{
    (void)arg;
    polled_for = true;
    return 0;
}

SIM_TEST(who_polls_by_yielding_lets_others_go_on, .runs_max = 2000, .config = &rt_two_workers)
{
    weir_scope *scope = open_scope("polls");
    weir_task_spec spec = {.fn = bring_it, .place = WEIR_PLACE_WORKER, .worker = 1};
    weir_sim_host *host;

    polled_for = false;
    CHECK_OK(weir_task_spawn(scope, &spec, NULL));
    CHECK_OK(poll_for_it(NULL));
    CHECK_OK(weir_scope_close(scope));
    polled_for = false;
    CHECK_OK(weir_sim_host_start(&(weir_sim_host_spec){.name = "other", .fn = bring_it}, &host));
    return poll_for_it(NULL);
}

/* ---- Hosts that are killed at any moment ---- */

static weir_once at_first;

static int take_long(void *arg)
{
    (void)arg;
    return weir_sleep(3);
}

static int wait_for_the_first(void *arg)
{
    (void)arg;
    return weir_once_run(&at_first, take_long, NULL);
}

static int compute(void *data)
{
    (void)data;
    return 0;
}

static int have_it_computed(weir_scope *scope)
{
    static const weir_pool_class plain = {.name = "plain", .weight = 1, .queue_max = 4};
    weir_pool *pool;
    int data = 0, r;

    r = weir_pool_open(scope,
                       &(weir_pool_spec){.name = "pool",
                                         .threads_max = 2,
                                         .overflow = WEIR_WAIT,
                                         .on_close = WEIR_DRAIN,
                                         .classes = &plain,
                                         .class_count = 1},
                       &pool);
    return r < 0 ? r : weir_pool_run(pool, 0, compute, &data, sizeof data);
}

static int live_a_little(void *arg)
{
    weir_scope *scope = open_scope("life");

    (void)arg;
    for (int i = 0; i < 3; i++) CHECK_OK(weir_spawn(scope, wait_for_the_first, NULL, 0));
    CHECK_OK(have_it_computed(scope));
    return weir_scope_close(scope);
}

/* Tasks that waited in queues of the process are not there in the next run. */
SIM_TEST(host_can_be_killed_and_started_at_any_moment, .runs_max = 2000)
{
    weir_sim_host *host;

    memset(&at_first, 0, sizeof at_first);
    CHECK_OK(weir_sim_host_start(
        &(weir_sim_host_spec){.name = "other", .fn = live_a_little, .config = &rt_two_workers},
        &host));
    for (int i = 0; i < 3; i++) {
        for (unsigned n = weir_sim_choose(8); n > 0; n--) CHECK_OK(weir_yield());
        CHECK_OK(weir_sleep((int64_t)weir_sim_choose(6)));
        weir_sim_host_kill(host);
        weir_sim_host_kill(host);
        CHECK(!weir_sim_host_running(host));
        memset(&at_first, 0, sizeof at_first);
        CHECK_OK(weir_sim_host_restart(host));
        CHECK_INT(weir_sim_host_restart(host), ==, WEIR_EREFUSED);
        if (weir_sim_choose(2)) weir_sim_host_stop(host, 1);
    }
    return weir_sleep((int64_t)weir_sim_choose(8));
}

/* What the lives before have mapped is used again: a process has 65,530 mappings. */
SIM_TEST(host_can_be_killed_a_thousand_times_in_one_run, .runs_max = 2)
{
    weir_sim_host *host;

    memset(&at_first, 0, sizeof at_first);
    CHECK_OK(weir_sim_host_start(
        &(weir_sim_host_spec){.name = "other", .fn = live_a_little, .config = &rt_two_workers},
        &host));
    for (int i = 0; i < 1000; i++) {
        CHECK_OK(weir_sleep(2));
        weir_sim_host_kill(host);
        CHECK(!weir_sim_host_running(host));
        memset(&at_first, 0, sizeof at_first);
        CHECK_OK(weir_sim_host_restart(host));
    }
    return weir_sleep(2);
}

SIM_TEST(there_are_sixteen_hosts_at_most, .runs_max = 10)
{
    weir_sim_host_spec spec = {.fn = do_nothing};
    weir_sim_host *host = NULL;
    char name[64] = "host ?";

    for (int i = 1; i < WEIR_SIM_HOSTS_MAX; i++) {
        name[5] = (char)('a' + i);
        spec.name = name;
        CHECK_OK(weir_sim_host_start(&spec, &host));
    }
    spec.name = "one too many";
    CHECK_INT(weir_sim_host_start(&spec, &host), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "more than 16 hosts");
    spec.name = "a name that is longer than a name can be";
    CHECK_INT(weir_sim_host_start(&spec, &host), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "the name is longer than");
    CHECK_OK(weir_sleep(1));
    CHECK(!weir_sim_host_running(host));
    CHECK_INT(weir_sim_host_result(host), ==, 0);
    return weir_sim_host_restart(host); /* after a normal end */
}

/* ---- Without memory ---- */

typedef WEIR_TX(int) numbers_tx;
typedef WEIR_RX(int) numbers_rx;

static int send_some(void *arg)
{
    numbers_tx tx = *(numbers_tx *)arg;
    int r = 0;

    for (int i = 0; i < 3 && r == 0; i++) r = weir_send(tx, &i);
    weir_tx_drop(tx.end);
    return r;
}

static int talk_by_channel(weir_scope *scope)
{
    numbers_tx tx;
    numbers_rx rx;
    int number, r;

    r = weir_chan_open(
        scope,
        &(weir_chan_spec){
            .name = "numbers", .capacity = 1, .overflow = WEIR_WAIT, .on_close = WEIR_DRAIN},
        &tx, &rx);
    if (r < 0) return r;
    r = weir_spawn(scope, send_some, &tx, sizeof tx);
    if (r < 0)
        weir_tx_drop(tx.end);
    else
        while ((r = weir_recv(rx, &number)) == 0) continue;
    weir_rx_drop(rx.end);
    return r == WEIR_ECLOSED ? 0 : r;
}

static int greet(void *arg)
{
    weir_conn *conn;
    char hello = 'h';
    int r = weir_connect("tcp:127.0.0.1:7000", &conn);

    (void)arg;
    if (r < 0) return r;
    r = (int)weir_conn_write(conn, &hello, 1);
    weir_conn_close(conn);
    return r;
}

static int be_greeted(weir_scope *scope)
{
    weir_listener *listener;
    weir_conn *conn;
    char hello;
    int r = weir_listen(&(weir_listen_spec){.address = "tcp:0.0.0.0:7000"}, &listener);

    if (r < 0) return r;
    r = weir_spawn(scope, greet, NULL, 0);
    if (r == 0) {
        WEIR_DEADLINE(100) {
            r = weir_accept(listener, &conn);
            if (r == 0) {
                r = (int)weir_conn_read(conn, &hello, 1);
                weir_conn_close(conn);
            }
        }
    }
    weir_listener_close(listener);
    return r;
}

static int write_it_down(void)
{
    weir_file *file;
    int closed, r = weir_file_open("/notes", O_RDWR | O_CREAT, 0600, &file);

    if (r < 0) return r;
    r = (int)weir_file_write(file, "note", 4, 0);
    if (r >= 0) r = weir_file_sync(file, false);
    closed = weir_file_close(file);
    return r < 0 ? r : closed;
}

static int do_all(void *arg)
{
    weir_scope *scope;
    int r;

    (void)arg;
    r = weir_scope_open(
        &(weir_scope_spec){
            .name = "all", .on_failure = WEIR_COLLECT, .max_tasks = 8, .overflow = WEIR_WAIT},
        &scope);
    if (r < 0) return r;
    (void)talk_by_channel(scope);
    (void)have_it_computed(scope);
    (void)be_greeted(scope);
    (void)write_it_down();
    return weir_scope_close(scope);
}

/* Whatever cannot be had is an error that is given back: nothing crashes, waits or leaks. */
SIM_TEST(program_without_memory_ends, .runs_max = 20000, .any_result = true,
         .config = &rt_two_workers, .faults = {.no_memory = 3})
{
    return do_all(arg);
}

SIM_TEST(program_with_little_memory_ends, .runs_max = 10000, .any_result = true,
         .config = &rt_two_workers, .faults = {.no_memory = 40})
{
    weir_sim_host *host;

    if (weir_sim_host_start(&(weir_sim_host_spec){.name = "other", .fn = do_all}, &host) < 0) {
        return 0;
    }
    return do_all(arg);
}

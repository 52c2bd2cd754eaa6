/* reason_test.c - the dump says in one line why a task does not run. */
#include "watch/reason.h"

#include <sched.h>
#include <stdio.h>

#include "unit/watch/dump_support.h"

static weir_mutex *state;
static weir_tx *tx;
static weir_rx *rx;

static void open_channel(weir_scope *scope, size_t capacity)
{
    CHECK_OK(weir_chan_open_sized(
        scope, sizeof(weir_chan_spec),
        &(weir_chan_spec){
            .name = "orders", .capacity = capacity, .overflow = WEIR_WAIT, .on_close = WEIR_DRAIN},
        sizeof(int), &tx, &rx));
}

static int writer(void *arg)
{
    int item, r;

    (void)arg;
    CHECK_OK(weir_mutex_lock(state));
    r = weir_rx_recv(rx, &item);
    weir_mutex_unlock(state);
    return r == WEIR_ECANCELED ? r : -1;
}

static int reader(void *arg)
{
    int r = weir_mutex_lock(state);

    (void)arg;
    if (r == 0) weir_mutex_unlock(state);
    return r;
}

static int sender(void *arg)
{
    int r = 0;

    (void)arg;
    for (int i = 0; r == 0; i++) r = weir_tx_send(tx, &i);
    return r;
}

static int rests(void *arg)
{
    (void)arg;
    return weir_sleep(long_ms);
}

static int opener(void *arg)
{
    int r = 0;

    (void)arg;
    WEIR_SCOPE(scope, &r, .name = "inner", PLAIN_SCOPE) {
        for (int i = 0; i < 2; i++) CHECK_OK(weir_spawn(scope, rests, NULL, 0));
    }
    return r;
}

static int joiner(void *arg)
{
    return weir_task_join(*(weir_task *)arg, NULL);
}

static void yield_some(void)
{
    for (int i = 0; i < 5; i++) CHECK_OK(weir_yield());
}

/* The line after that of the task, without what is in front of it. */
static const char *why(const char *task)
{
    static char line[600];
    char begin[64];
    const char *at;

    (void)snprintf(begin, sizeof begin, "  task '%s' #", task);
    at = strstr(text, begin);
    if (!at) TEST_FAIL("there is no task '%s':\n%s", task, text);
    at = strchr(at, '\n') + 1;
    at += strspn(at, " ");
    (void)snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
    return line;
}

TEST_TASK(dump_says_who_holds_a_lock_and_why_that_one_waits, 1, test_clock_manual)
{
    WEIR_SCOPE(scope, &result, .name = "serve", PLAIN_SCOPE) {
        open_channel(scope, 4);
        CHECK_OK(weir_mutex_open(scope, "state", &state));
        weir_mutex_may_suspend(state, "somebody has to wait for it");
        CHECK_OK(weir_spawn(scope, writer, NULL, 0));
        CHECK_OK(weir_spawn(scope, reader, NULL, 0));
        yield_some();
        take_dump();
        weir_scope_cancel(scope, 0, "enough");
    }
    CHECK_CONTAINS(why("reader"), "waits for mutex 'state', held by task 'writer' #2");
    CHECK_CONTAINS(why("reader"), ", which waits for an item of channel 'orders'");
    CHECK_CONTAINS(why("writer"), "waits for an item of channel 'orders'");
    return 0;
}

TEST_TASK(dump_says_what_else_keeps_a_task_from_running, 1, test_clock_manual)
{
    weir_task handle;

    WEIR_SCOPE(scope, &result, .name = "serve", PLAIN_SCOPE) {
        open_channel(scope, 4);
        CHECK_OK(weir_spawn(scope, sender, NULL, 0));
        CHECK_OK(weir_spawn(scope, opener, NULL, 0));
        CHECK_OK(weir_task_spawn(scope, &(weir_task_spec){.fn = rests, .name = "slow"}, &handle));
        CHECK_OK(weir_spawn(scope, joiner, &handle, sizeof handle));
        yield_some();
        CHECK_OK(weir_task_spawn(scope, &(weir_task_spec){.fn = rests, .name = "new"}, NULL));
        take_dump();
        weir_scope_cancel(scope, 0, "enough");
    }
    CHECK_STR(why("sender"), "waits for room in channel 'orders' (4 of 4 items, 1 sending and 1 "
                             "receiving end)");
    CHECK_STR(why("opener"), "waits for the end of 2 tasks of scope 'inner'");
    CHECK_STR(why("slow"), "sleeps: 60000 ms left");
    CHECK_STR(why("joiner"), "waits for the end of task 'slow' #4, which sleeps: 60000 ms left");
    CHECK_STR(why("new"), "not started: worker 0 runs task 'main' #1");
    CHECK_CONTAINS(why("main"), "at weir_dump"); /* it runs: its backtrace follows at once */
    return 0;
}

static int selector(void *arg)
{
    size_t count = *(size_t *)arg;
    int items[2], r;
    weir_case cases[2] = {weir_case_recv(rx, &items[0]), weir_case_recv(rx, &items[1])};
    r = weir_select(cases, count, WEIR_FAIR);
    return r < 0 ? r : 0;
}

/* Also of the only worker, which waits for channels alone by a way of its own. */
TEST_TASK(dump_says_for_what_a_select_waits, test_workers(), test_clock_manual)
{
    WEIR_SCOPE(scope, &result, .name = "serve", PLAIN_SCOPE) {
        open_channel(scope, 4);
        for (size_t count = 1; count <= 2; count++) {
            CHECK_OK(weir_task_spawn(scope,
                                     &(weir_task_spec){.fn = selector,
                                                       .arg = &count,
                                                       .arg_bytes = sizeof count,
                                                       .name = count == 1 ? "one" : "both",
                                                       .place = WEIR_PLACE_HERE},
                                     NULL));
        }
        yield_some();
        take_dump();
        weir_scope_cancel(scope, 0, "enough");
    }
    CHECK_STR(why("one"), "waits for one of channel 'orders'");
    CHECK_STR(why("both"), "waits for one of 2 cases");
    return 0;
}

static int yielder(void *arg)
{
    while (!atom_load(&sink)) CHECK_OK(weir_yield());
    (void)arg;
    return 0;
}

TEST_TASK(dump_says_that_a_ready_task_waits_for_its_turn, 1, real_clock)
{
    WEIR_SCOPE(scope, &result, .name = "serve", PLAIN_SCOPE) {
        CHECK_OK(weir_spawn(scope, yielder, NULL, 0));
        yield_some();
        take_dump();
        atom_store(&sink, 1);
    }
    CHECK_STR(why("yielder"), "is ready and waits for its turn among 1 on worker 0");
    return result;
}

/* Two that wait for each other: the line ends where it began. */
static weir_mutex *first, *second;

static int takes_both(void *arg)
{
    bool turned = *(bool *)arg;
    int r;

    CHECK_OK(weir_mutex_lock(turned ? second : first));
    yield_some();
    r = weir_mutex_lock(turned ? first : second);
    weir_mutex_unlock(turned ? second : first);
    return r;
}

TEST_TASK(dump_says_that_a_chain_of_waits_comes_back, 1, test_clock_manual)
{
    test_checks_expected(); /* it is a deadlock, told by the dump before the checks look */
    WEIR_SCOPE(scope, &result, .name = "serve", PLAIN_SCOPE) {
        CHECK_OK(weir_mutex_open(scope, "first", &first));
        CHECK_OK(weir_mutex_open(scope, "second", &second));
        for (int i = 0; i < 2; i++) {
            bool turned = i == 1;
            CHECK_OK(weir_task_spawn(scope,
                                     &(weir_task_spec){.fn = takes_both,
                                                       .arg = &turned,
                                                       .arg_bytes = sizeof turned,
                                                       .name = i == 0 ? "one" : "two"},
                                     NULL));
        }
        yield_some();
        yield_some();
        take_dump();
        weir_scope_cancel(scope, 0, "enough");
    }
    CHECK_CONTAINS(why("one"), "waits for mutex 'second', held by task 'two' #3");
    CHECK_CONTAINS(why("one"), ", which waits for mutex 'first', held by task 'one' #2");
    CHECK_CONTAINS(why("one"), ": that is this task itself");
    return 0;
}

/* ---- A worker that does not stand still ---- */

static int spin(void *arg)
{
    ATOM(int) *over = *(ATOM(int) **)arg;
    for (atom_store_total(over, 1); atom_load_total(over) == 1;) (void)sched_yield();
    return 0;
}

TEST_TASK(dump_says_which_busy_worker_keeps_a_task_from_starting, 2, real_clock)
{
    ATOM(int) over = 0;
    ATOM(int) *keep = &over;
    int other = weir_worker_index() == 0 ? 1 : 0;
    char wanted[64];

    WEIR_SCOPE(scope, &result, .name = "serve", PLAIN_SCOPE) {
        CHECK_OK(weir_mutex_open(scope, "state", &state));
        weir_mutex_may_suspend(state, "somebody has to wait for it");
        CHECK_OK(weir_mutex_lock(state));
        CHECK_OK(weir_task_spawn(
            scope, &(weir_task_spec){.fn = reader, .name = "reader", .place = WEIR_PLACE_HERE},
            NULL));
        yield_some();
        spawn_on(other, scope, spin, &keep, sizeof keep);
        while (atom_load_total(&over) == 0) CHECK_OK(weir_yield());
        CHECK_OK(weir_task_spawn(
            scope,
            &(weir_task_spec){
                .fn = rests, .name = "late", .place = WEIR_PLACE_WORKER, .worker = other},
            NULL));
        take_dump();
        atom_store_total(&over, 2);
        weir_mutex_unlock(state);
        weir_scope_cancel(scope, 0, "enough");
    }
    (void)snprintf(wanted, sizeof wanted, "not started: worker %d is busy with task 'placed' #",
                   other);
    CHECK_CONTAINS(why("late"), wanted);
    CHECK_CONTAINS(why("late"), " ms");
    /* Who holds it is not looked at while somebody runs. */
    CHECK_STR(why("reader"), "waits in mutex: 'state'");
    return 0;
}

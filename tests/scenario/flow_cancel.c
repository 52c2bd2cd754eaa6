/* flow_cancel.c - cancelled at every suspension point: broadcast, watch, waiting until all is
 * done, and a select with a case of every kind.
 *
 * Each scenario is made so that its tasks do wait. What they share belongs to a scope around the
 * one that is cancelled, so that it can be looked at afterwards: it works as if nobody had been
 * there, and nothing that was accepted is missing.
 */
#include <errno.h>
#include <string.h>

#include "base/atomic.h"
#include "rt/runtime.h"
#include "unit/flow/flow_test.h"

/* An error that a run with something going wrong may end with. */
static int tolerated(int r)
{
    CHECK(r >= 0 || r == WEIR_ECANCELED || r == WEIR_ECLOSED || r == -ENOMEM);
    return r;
}

struct shared;

struct scene {
    const char *name;
    int (*open)(weir_scope *scope, struct shared *shared);
    int (*play)(weir_scope *target, struct shared *shared);
    void (*check)(struct shared *shared); /* after it was cancelled, or went well */
};

struct shared {
    const struct scene *scene;
    int workers;
    weir_scope *scope;
    /* broadcast, watch */
    weir_broadcast *broadcast;
    weir_subscriber *subscribers[2];
    ATOM(int) next_reader;
    int published, seen[2];
    weir_watch *watch;
    int set;
    /* channels, select */
    int_tx tx, out_tx;
    int_rx rx, out_rx;
    weir_event *event;
    weir_conn *reader, *writer;
    ATOM(int) made, unmade;
};

#define SHARED(arg) (*(struct shared **)(arg))

static int spawn(weir_scope *scope, weir_task_fn fn, struct shared *shared)
{
    return weir_spawn(scope, fn, &shared, sizeof shared);
}

/* ---- Broadcast: publishers wait for their subscribers ---- */

enum { VALUES = 5 };

static int open_broadcast(weir_scope *scope, struct shared *shared)
{
    int r = weir_broadcast_open(
        scope,
        &(weir_broadcast_spec){
            .name = "news", .value_bytes = sizeof(int), .history = 1, .subscribers_max = 2},
        &shared->broadcast);

    for (int i = 0; i < 2 && r == 0; i++) {
        r = weir_broadcast_subscribe(shared->broadcast, WEIR_LAG_WAIT, false,
                                     &shared->subscribers[i]);
    }
    return r;
}

static int publish(void *arg)
{
    struct shared *shared = SHARED(arg);
    int r = 0;

    for (int i = 0; i < VALUES && r == 0; i++) {
        r = weir_broadcast_publish(shared->broadcast, &i);
        if (r == 0) shared->published++;
    }
    return tolerated(r);
}

static int see(struct shared *shared, int me)
{
    int value = -1, r = weir_subscriber_next(shared->subscribers[me], &value);

    if (r == 0) CHECK_INT(value, ==, shared->seen[me]++);
    return r;
}

static int subscribe(void *arg)
{
    struct shared *shared = SHARED(arg);
    int me = atom_add(&shared->next_reader, 1), r = 0;

    for (int i = 0; i < VALUES && r == 0; i++) {
        r = see(shared, me);
        if (r == 0) r = weir_yield();
    }
    return tolerated(r);
}

static int play_broadcast(weir_scope *target, struct shared *shared)
{
    int r = spawn(target, publish, shared);
    if (r == 0) r = spawn(target, subscribe, shared);
    if (r == 0) r = spawn(target, subscribe, shared);
    return r;
}

/* Each has seen, or can still see, all that was published, in order; and no more. */
static void check_broadcast(struct shared *shared)
{
    weir_broadcast_close(shared->broadcast);
    for (int i = 0; i < 2; i++) {
        while (see(shared, i) == 0) {}
        CHECK_INT(shared->seen[i], ==, shared->published);
    }
}

/* ---- Watch ---- */

static int open_watch(weir_scope *scope, struct shared *shared)
{
    return weir_watch_open(scope, "latest", &shared->set, sizeof shared->set, &shared->watch);
}

static int set_values(void *arg)
{
    struct shared *shared = SHARED(arg);
    int r = 0;

    for (int i = 1; i <= VALUES && r == 0; i++) {
        r = weir_yield();
        if (r < 0) break;
        shared->set = i;
        weir_watch_set(shared->watch, &i);
    }
    return tolerated(r);
}

static int watch_values(void *arg)
{
    struct shared *shared = SHARED(arg);
    uint64_t version = 0;
    int value = 0, before, r = 0;

    while (r == 0 && value < VALUES) {
        before = value;
        r = weir_watch_changed(shared->watch, &version, &value);
        if (r == 0) CHECK_INT(value, >=, before);
    }
    return tolerated(r);
}

static int play_watch(weir_scope *target, struct shared *shared)
{
    int r = spawn(target, watch_values, shared);
    if (r == 0) r = spawn(target, watch_values, shared);
    if (r == 0) r = spawn(target, set_values, shared);
    return r;
}

static void check_watch(struct shared *shared)
{
    int value = -1, again = 77;
    uint64_t version = weir_watch_get(shared->watch, &value);

    CHECK_INT(value, ==, shared->set);
    CHECK_INT(version, ==, (uint64_t)shared->set + 1);
    weir_watch_set(shared->watch, &again);
    CHECK_OK(weir_watch_changed(shared->watch, &version, &value));
    CHECK_INT(value, ==, again);
}

/* ---- Waiting until all is done ---- */

static void unmake(void *item, enum weir_drop why, void *arg)
{
    (void)item, (void)why;
    (void)atom_add(&((struct shared *)arg)->unmade, 1);
}

static int open_done(weir_scope *scope, struct shared *shared)
{
    return weir_chan_open(scope,
                          &(weir_chan_spec){.name = "work",
                                            .capacity = 2,
                                            .overflow = WEIR_WAIT,
                                            .on_close = WEIR_DRAIN,
                                            .counts_done = true,
                                            .on_drop = unmake,
                                            .keep_arg = shared},
                          &shared->tx, &shared->rx);
}

static int send_and_wait(void *arg)
{
    struct shared *shared = SHARED(arg);
    int r = 0;

    for (int i = 0; i < VALUES && r == 0; i++) {
        r = weir_send(shared->tx, &i);
        if (r == 0) (void)atom_add(&shared->made, 1);
    }
    if (r == 0) {
        r = weir_tx_wait_done(shared->tx.end);
        if (r == 0) CHECK_INT(atom_load(&shared->unmade), ==, VALUES);
    }
    if (r == 0) weir_tx_close(shared->tx.end);
    return tolerated(r);
}

static int work_slowly(void *arg)
{
    struct shared *shared = SHARED(arg);
    int item, r;

    while ((r = weir_recv(shared->rx, &item)) == 0) {
        r = weir_yield();
        (void)atom_add(&shared->unmade, 1);
        weir_rx_done(shared->rx.end, 1);
        if (r < 0) break;
    }
    return tolerated(r) == WEIR_ECLOSED ? 0 : r;
}

static int play_done(weir_scope *target, struct shared *shared)
{
    int r = spawn(target, send_and_wait, shared);
    if (r == 0) r = spawn(target, work_slowly, shared);
    return r;
}

/* What is left is worked off, and then everything is done. */
static void check_done(struct shared *shared)
{
    weir_chan_figures figures;
    int item;

    while (weir_try_recv(shared->rx, &item) == 1) {
        (void)atom_add(&shared->unmade, 1);
        weir_rx_done(shared->rx.end, 1);
    }
    CHECK_OK(weir_tx_wait_done(shared->tx.end));
    CHECK_INT(shared->made, ==, shared->unmade);
    weir_tx_figures(shared->tx.end, &figures);
    CHECK_INT(figures.unfinished, ==, 0);
    CHECK_INT(figures.senders_waiting + figures.receivers_waiting, ==, 0);
}

/* ---- Select, with a case of every kind ---- */

static int open_select(weir_scope *scope, struct shared *shared)
{
    weir_chan_spec spec = {.name = "select",
                           .capacity = 1,
                           .overflow = WEIR_WAIT,
                           .on_close = WEIR_DRAIN,
                           .on_drop = unmake,
                           .keep_arg = shared};
    int item = 1, r = weir_chan_open(scope, &spec, &shared->tx, &shared->rx);

    if (r == 0) r = weir_chan_open(scope, &spec, &shared->out_tx, &shared->out_rx);
    if (r == 0) r = weir_event_open(scope, "event", &shared->event);
    if (r == 0) r = weir_pipe(&shared->reader, &shared->writer);
    if (r < 0) return r;
    CHECK_OK(weir_try_send(shared->out_tx, &item));
    (void)atom_add(&shared->made, 1);
    return 0;
}

static int yield_twice(void *arg)
{
    int r = weir_yield();
    (void)arg;
    if (r == 0) r = weir_yield();
    return r;
}

/* Waits for everything, as often as there are kinds that happen. */
static int select_all(void *arg)
{
    struct shared *shared = SHARED(arg);
    weir_task task;
    int item = 0, mine = 1, r, done = 0;
    char byte;

    r = weir_task_spawn(shared->scope, &(weir_task_spec){.fn = yield_twice}, &task);
    if (r < 0) return tolerated(r);
    while (done != 31) {
        weir_case cases[] = {WEIR_CASE_RECV(shared->rx, &item),
                             WEIR_CASE_SEND(shared->out_tx, &mine),
                             WEIR_CASE_JOIN(task),
                             WEIR_CASE_EVENT(shared->event),
                             WEIR_CASE_READABLE(shared->reader),
                             WEIR_CASE_TIMER(60000)};
        if (done & 1 << 2) cases[2] = WEIR_CASE_TIMER(60000); /* a handle is used up by a join */
        r = weir_select(cases, 6, WEIR_FAIR);
        if (r < 0) return tolerated(r);
        CHECK_INT(r, <, 5);
        if (r == 0 && cases[0].result == 0) (void)atom_add(&shared->unmade, 1);
        if (r == 1 && cases[1].result == 0) (void)atom_add(&shared->made, 1);
        if (r == 3) weir_event_reset(shared->event);
        if (r == 4) {
            r = (int)weir_conn_read(shared->reader, &byte, 1);
            if (r < 0) return tolerated(r);
            r = 4;
        }
        done |= 1 << r;
    }
    return 0;
}

/* Makes each happen, once; some while the other waits. */
static int feed_select(void *arg)
{
    struct shared *shared = SHARED(arg);
    int item = 0, r;

    r = weir_yield();
    if (r == 0) r = (int)weir_conn_write(shared->writer, "x", 1);
    if (r == 1) r = weir_send(shared->tx, &item);
    if (r == 0) (void)atom_add(&shared->made, 1);
    if (r == 0) weir_event_set(shared->event);
    if (r == 0) r = weir_recv(shared->out_rx, &item);
    if (r == 0) (void)atom_add(&shared->unmade, 1);
    return tolerated(r);
}

static int play_select(weir_scope *target, struct shared *shared)
{
    int r;
    shared->scope = target;
    r = spawn(target, select_all, shared);
    if (r == 0) r = spawn(target, feed_select, shared);
    return r;
}

static void check_select(struct shared *shared)
{
    weir_chan_figures figures;
    char byte;

    weir_tx_figures(shared->tx.end, &figures);
    CHECK_INT(figures.receivers_waiting, ==, 0);
    weir_tx_figures(shared->out_tx.end, &figures);
    CHECK_INT(figures.senders_waiting, ==, 0);
    weir_rx_drop(shared->rx.end); /* what is left goes to the hook */
    weir_rx_drop(shared->out_rx.end);
    CHECK_INT(shared->made, ==, shared->unmade);
    weir_event_close(shared->event);
    CHECK_INT(weir_conn_write(shared->writer, "y", 1), ==, 1);
    CHECK_OK(weir_conn_read(shared->reader, &byte, 1)); /* nobody else reads it */
}

/* ---- All of them ---- */

static const struct scene scenes[] = {
    {"broadcast", open_broadcast, play_broadcast, check_broadcast},
    {"watch", open_watch, play_watch, check_watch},
    {"done", open_done, play_done, check_done},
    {"select", open_select, play_select, check_select},
};

static int run_scene(void *arg)
{
    struct shared *shared = SHARED(arg);
    int result = 0, inner = 0, r = 0;

    WEIR_SCOPE(scope, &result, .name = "outer", .on_failure = WEIR_FAIL_FAST, .max_tasks = 16,
               .overflow = WEIR_REJECT, .deadline_ms = 20000) {
        r = shared->scene->open(scope, shared);
        if (r == 0) {
            WEIR_SCOPE(target, &inner, .name = "target", .on_failure = WEIR_FAIL_FAST,
                       .max_tasks = 16, .overflow = WEIR_REJECT) {
                runtime_cancel_target(target);
                r = shared->scene->play(target, shared);
                if (r < 0) weir_scope_cancel(target, 0, "it did not come about");
            }
            shared->scene->check(shared);
        }
        weir_conn_close(shared->reader);
        weir_conn_close(shared->writer);
    }
    if (r == 0) r = result < 0 ? result : inner;
    return tolerated(r);
}

static int scenario(void *arg)
{
    const struct shared *plan = arg;
    struct shared shared = *plan, *pointer = &shared;

    return weir_run(&(weir_config){.workers = plan->workers, .log_level = WEIR_LOG_OFF}, run_scene,
                    &pointer);
}

static void sweep_scenes(int (*sweep)(test_scenario scenario, void *arg), int workers, int points)
{
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
        struct shared plan = {.scene = &scenes[i], .workers = workers};
        test_note("%s", scenes[i].name);
        CHECK_INT(sweep(scenario, &plan), >=, points);
    }
}

TEST_WITH(flow_scenes_cancelled_anywhere_leave_what_is_shared_whole, .timeout_ms = 60000)
{
    test_clock_auto();
    sweep_scenes(test_sweep_cancel, 1, 8);
}

TEST_WITH(flow_scenes_cancelled_anywhere_on_two_workers_leave_what_is_shared_whole,
          .timeout_ms = 60000)
{
    sweep_scenes(test_sweep_cancel, 2, 8);
}

TEST_WITH(flow_scenes_without_memory_leave_what_is_shared_whole, .timeout_ms = 60000)
{
    test_clock_auto();
    sweep_scenes(test_sweep_alloc, 1, 3);
}

/* flow_conserve.c - nothing is lost and nothing is doubled, whatever goes wrong and wherever.
 *
 * Items are counted when they are made and when they are unmade: by who received them, by the
 * hook, or by the sender whose call failed. Each scenario is cancelled at every suspension
 * point in turn, and run with each allocation failing in turn.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "base/atomic.h"
#include "rt/runtime.h"
#include "unit/flow/flow_test.h"

static ATOM(long) made, unmade;

static int item_make(void)
{
    return (int)atom_add(&made, 1);
}

static void item_unmake(void *item, enum weir_drop why, void *arg)
{
    (void)item, (void)why, (void)arg;
    (void)atom_add(&unmade, 1);
}

/* An error that a run with something going wrong may end with. */
static int tolerated(int r)
{
    CHECK(r >= 0 || r == WEIR_ECANCELED || r == WEIR_ECLOSED || r == -ENOMEM ||
          r == WEIR_EOVERLOAD);
    return r;
}

/* ---- Channels ---- */

struct line {
    int_tx tx;
    int_rx rx;
    int count;
};

static int produce(void *arg)
{
    struct line *line = arg;
    int r = 0;

    for (int i = 0; i < line->count && r == 0; i++) {
        int item = item_make();
        r = tolerated(weir_send(line->tx, &item));
        if (r < 0) (void)atom_add(&unmade, 1);
    }
    weir_tx_drop(line->tx.end);
    return r == WEIR_ECLOSED || r == WEIR_EOVERLOAD ? 0 : r;
}

static int produce_many(void *arg)
{
    struct line *line = arg;
    int items[8];
    size_t sent = 0;
    int r;

    for (int i = 0; i < line->count; i++) items[i] = item_make();
    r = tolerated(weir_send_many(line->tx, items, (size_t)line->count, &sent));
    (void)atom_add(&unmade, line->count - (long)sent);
    weir_tx_drop(line->tx.end);
    return r == WEIR_ECLOSED || r == WEIR_EOVERLOAD ? 0 : r;
}

static int consume(void *arg)
{
    struct line *line = arg;
    int item, r;

    while ((r = tolerated(weir_recv(line->rx, &item))) == 0) (void)atom_add(&unmade, 1);
    weir_rx_drop(line->rx.end);
    return r == WEIR_ECLOSED ? 0 : r;
}

static int consume_many(void *arg)
{
    struct line *line = arg;
    int items[3], r;

    while ((r = tolerated(weir_recv_many(line->rx, items, 3))) > 0) (void)atom_add(&unmade, r);
    weir_rx_drop(line->rx.end);
    return r == WEIR_ECLOSED ? 0 : r;
}

static int consume_by_select(void *arg)
{
    struct line *line = arg;
    int item, r;

    for (;;) {
        weir_case cases[] = {WEIR_CASE_RECV(line->rx, &item), WEIR_CASE_TIMER(10000)};
        r = tolerated(weir_select(cases, 2, WEIR_FAIR));
        if (r != 0 || cases[0].result < 0) break;
        (void)atom_add(&unmade, 1);
    }
    weir_rx_drop(line->rx.end);
    return r < 0 ? r : 0;
}

static int produce_by_select(void *arg)
{
    struct line *line = arg;
    int r = 0;

    for (int i = 0; i < line->count && r == 0; i++) {
        int item = item_make();
        weir_case cases[] = {WEIR_CASE_SEND(line->tx, &item)};
        r = tolerated(weir_select(cases, 1, WEIR_IN_ORDER));
        if (r == 0) r = cases[0].result;
        if (r < 0) (void)atom_add(&unmade, 1);
    }
    weir_tx_drop(line->tx.end);
    return r == WEIR_ECLOSED || r == WEIR_EOVERLOAD ? 0 : r;
}

struct plan {
    weir_chan_spec spec;
    weir_task_fn produce, consume;
    int workers;
};

/* Two producers and two consumers with an end each. */
static int play_line(weir_scope *scope, const struct plan *plan)
{
    struct line line = {.count = 5}, ends[2];
    int r = weir_chan_open(scope, &plan->spec, &line.tx, &line.rx);

    if (r < 0) return r;
    ends[0] = ends[1] = line;
    r = weir_tx_copy(line.tx.end, &ends[1].tx.end);
    if (r == 0) r = weir_rx_copy(line.rx.end, &ends[1].rx.end);
    if (r < 0) return r; /* the ends go with the scope */
    for (int i = 0; i < 2 && r == 0; i++) {
        r = weir_spawn(scope, plan->produce, &ends[i], sizeof ends[i]);
        if (r == 0) r = weir_spawn(scope, plan->consume, &ends[i], sizeof ends[i]);
    }
    return r;
}

static int run_plan(void *arg)
{
    const struct plan *plan = *(const struct plan **)arg;
    int result = 0, r = 0;

    WEIR_SCOPE(scope, &result, .name = "line", .on_failure = WEIR_FAIL_FAST, .max_tasks = 16,
               .overflow = WEIR_REJECT) {
        runtime_cancel_target(scope);
        r = play_line(scope, plan);
        if (r < 0) weir_scope_cancel(scope, 0, "it did not come about");
    }
    (void)tolerated(result);
    CHECK_INT(made, ==, unmade);
    return r < 0 ? r : result;
}

static int scenario(void *arg)
{
    const struct plan *plan = arg;
    atom_store(&made, 0);
    atom_store(&unmade, 0);
    return weir_run(&(weir_config){.workers = plan->workers, .log_level = WEIR_LOG_OFF}, run_plan,
                    &plan);
}

static const struct {
    enum weir_overflow overflow;
    size_t capacity;
    enum weir_on_close on_close;
} policies[] = {
    {WEIR_WAIT, WEIR_RENDEZVOUS, WEIR_DRAIN},
    {WEIR_WAIT, 1, WEIR_DRAIN},
    {WEIR_WAIT, 3, WEIR_DISCARD},
    {WEIR_REJECT, 2, WEIR_DRAIN},
    {WEIR_DROP_NEWEST, 2, WEIR_DRAIN},
    {WEIR_DROP_OLDEST, 2, WEIR_DRAIN},
    {WEIR_DROP_NEWEST, WEIR_RENDEZVOUS, WEIR_DRAIN},
};

static const struct {
    weir_task_fn produce, consume;
} ways[] = {
    {produce, consume},
    {produce_many, consume_many},
    {produce, consume_by_select},
    {produce_by_select, consume},
};

typedef int (*sweep_fn)(test_scenario scenario, void *arg);

static int sweep_all(sweep_fn sweep, int workers)
{
    int points = 0;

    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            struct plan plan = {.spec = {.name = "line",
                                         .capacity = policies[p].capacity,
                                         .overflow = policies[p].overflow,
                                         .on_close = policies[p].on_close,
                                         .on_drop = item_unmake},
                                .produce = ways[w].produce,
                                .consume = ways[w].consume,
                                .workers = workers};
            if (ways[w].produce == produce_by_select && policies[p].overflow > WEIR_REJECT)
                continue;
            test_note("policy %zu, way %zu", p, w);
            points += sweep(scenario, &plan);
        }
    }
    return points;
}

TEST_WITH(flow_items_are_conserved_when_cancelled_anywhere, .timeout_ms = 60000)
{
    test_clock_auto();
    CHECK_INT(sweep_all(test_sweep_cancel, 1), >, 200);
}

TEST_WITH(flow_items_are_conserved_when_cancelled_anywhere_on_two_workers, .timeout_ms = 60000)
{
    CHECK_INT(sweep_all(test_sweep_cancel, 2), >, 200);
}

TEST_WITH(flow_items_are_conserved_when_memory_is_short, .timeout_ms = 60000)
{
    test_clock_auto();
    CHECK_INT(sweep_all(test_sweep_alloc, 1), >, 50);
}

/* ---- What is held is given back ---- */

struct held {
    weir_mutex *mutex;
    weir_semaphore *semaphore;
    weir_rwlock *rwlock;
    weir_event *event;
    weir_broadcast *broadcast;
    weir_watch *watch;
    weir_once once;
    int inside;
    ATOM(int) turn;
};

static int succeed(void *arg)
{
    (void)arg;
    return weir_yield();
}

static int hold_each(void *arg)
{
    struct held *held = *(struct held **)arg;
    int turn = atom_add(&held->turn, 1), value = turn, r;
    weir_subscriber *subscriber = NULL;
    uint64_t version = 0;

    r = weir_mutex_lock(held->mutex);
    if (r == 0) {
        CHECK_INT(++held->inside, ==, 1);
        r = weir_yield();
        held->inside--;
        weir_mutex_unlock(held->mutex);
    }
    if (r == 0) r = weir_semaphore_acquire(held->semaphore, 2);
    if (r == 0) {
        r = weir_yield();
        weir_semaphore_release(held->semaphore, 2);
    }
    if (r == 0) r = turn % 2 ? weir_rwlock_write(held->rwlock) : weir_rwlock_read(held->rwlock);
    if (r == 0) {
        r = weir_yield();
        weir_rwlock_unlock(held->rwlock);
    }
    if (r == 0) r = weir_once_run(&held->once, succeed, NULL);
    if (r == 0) { r = weir_broadcast_subscribe(held->broadcast, WEIR_LAG_SKIP, true, &subscriber); }
    if (r == 0) r = weir_broadcast_publish(held->broadcast, &value);
    if (r == 0) r = weir_subscriber_next(subscriber, &value);
    weir_subscriber_close(subscriber);
    if (r >= 0) weir_watch_set(held->watch, &value);
    if (r >= 0) r = weir_watch_changed(held->watch, &version, &value);
    if (turn == 2) weir_event_set(held->event);
    if (r == 0) r = weir_event_wait(held->event);
    return tolerated(r);
}

static int run_held(void *arg)
{
    struct held held = {.turn = 0}, *pointer = &held;
    int result = 0, inner = 0, r = 0, zero = 0;

    (void)arg;
    WEIR_SCOPE(scope, &result, .name = "outer", .on_failure = WEIR_FAIL_FAST, .max_tasks = 16,
               .overflow = WEIR_REJECT) {
        r = weir_mutex_open(scope, "mutex", &held.mutex);
        if (r == 0) weir_mutex_may_suspend(held.mutex, "it is cancelled there");
        if (r == 0) {
            r = weir_semaphore_open(
                scope,
                &(weir_semaphore_spec){
                    .name = "semaphore", .permits = 3, .overflow = WEIR_WAIT, .waiters_max = 8},
                &held.semaphore);
        }
        if (r == 0) r = weir_rwlock_open(scope, "rwlock", &held.rwlock);
        if (r == 0) weir_rwlock_may_suspend(held.rwlock, "it is cancelled there");
        if (r == 0) r = weir_event_open(scope, "event", &held.event);
        if (r == 0) {
            r = weir_broadcast_open(scope,
                                    &(weir_broadcast_spec){.name = "broadcast",
                                                           .value_bytes = sizeof(int),
                                                           .history = 2,
                                                           .subscribers_max = 4},
                                    &held.broadcast);
        }
        if (r == 0) r = weir_watch_open(scope, "watch", &zero, sizeof zero, &held.watch);
        if (r == 0) {
            WEIR_SCOPE(target, &inner, .name = "target", .on_failure = WEIR_FAIL_FAST,
                       .max_tasks = 16, .overflow = WEIR_REJECT) {
                runtime_cancel_target(target);
                for (int i = 0; i < 3 && r == 0; i++) {
                    r = weir_spawn(target, hold_each, &pointer, sizeof pointer);
                }
                if (r < 0) weir_scope_cancel(target, 0, "it did not come about");
            }
            /* Whoever was cancelled has given back what it had, and is in no queue. */
            CHECK_OK(weir_mutex_lock(held.mutex));
            weir_mutex_unlock(held.mutex);
            CHECK_OK(weir_semaphore_try_acquire(held.semaphore, 3));
            CHECK_OK(weir_rwlock_write(held.rwlock));
            weir_rwlock_unlock(held.rwlock);
        }
    }
    if (r == 0) r = inner;
    return tolerated(r);
}

static int held_scenario(void *arg)
{
    weir_config config = {.workers = *(int *)arg, .log_level = WEIR_LOG_OFF};
    int r;

    config.lock_checks = WEIR_CHECKS_ON;
    r = weir_run(&config, run_held, NULL);
    if (r < 0) return r;
    config.lock_checks = WEIR_CHECKS_OFF;
    return weir_run(&config, run_held, NULL);
}

TEST_WITH(flow_locks_are_given_back_when_cancelled_anywhere, .timeout_ms = 60000)
{
    int workers = 1;
    test_clock_auto();
    CHECK_INT(test_sweep_cancel(held_scenario, &workers), >, 20);
    CHECK_INT(test_sweep_alloc(held_scenario, &workers), >, 10);
}

TEST_WITH(flow_locks_are_given_back_when_cancelled_anywhere_on_two_workers, .timeout_ms = 60000)
{
    int workers = 2;
    CHECK_INT(test_sweep_cancel(held_scenario, &workers), >, 20);
}

/* ---- A scope that ends while foreign threads drop, send and close ---- */

enum { ENDINGS = TEST_SANITIZED ? 200 : 3000, FOREIGN = 3 };

struct ending {
    weir_tx *tx;
    weir_rx *rx;
    ATOM(int) * gate;
};

static void *use_and_drop(void *arg)
{
    struct ending *ending = arg;

    while (!atom_load_acquire(ending->gate)) (void)sched_yield();
    if (ending->tx) {
        int item = item_make(), r = weir_tx_try_send(ending->tx, &item);
        if (r < 0) (void)atom_add(&unmade, 1);
        weir_tx_drop(ending->tx);
    } else {
        weir_rx_drop(ending->rx);
    }
    return NULL;
}

static void end_once(int round)
{
    weir_chan_spec spec = {.name = "ending",
                           .capacity = 1 + (size_t)round % 2,
                           .overflow = round % 3 == 0 ? WEIR_DROP_OLDEST : WEIR_WAIT,
                           .on_close = round % 5 == 0 ? WEIR_DISCARD : WEIR_DRAIN,
                           .any_thread = true,
                           .counts_done = round % 7 == 0,
                           .on_drop = item_unmake};
    ATOM(int) gate = 0;
    struct ending endings[FOREIGN];
    pthread_t threads[FOREIGN];
    int result;

    atom_store(&made, 0);
    atom_store(&unmade, 0);
    FLOW_SCOPE(scope, &result)
    {
        int_tx tx;
        int_rx rx;
        CHECK_OK(weir_chan_open(scope, &spec, &tx, &rx));
        endings[0] = (struct ending){.tx = tx.end, .gate = &gate};
        endings[1] = (struct ending){.rx = rx.end, .gate = &gate};
        endings[2] = (struct ending){.gate = &gate};
        CHECK_OK(weir_tx_copy(tx.end, &endings[2].tx));
        for (int i = 0; i < FOREIGN; i++) {
            CHECK_INT(pthread_create(&threads[i], NULL, use_and_drop, &endings[i]), ==, 0);
        }
        atom_store_release(&gate, 1);
        if (round % 2) (void)sched_yield();
    }
    CHECK_OK(result);
    for (int i = 0; i < FOREIGN; i++) CHECK_INT(pthread_join(threads[i], NULL), ==, 0);
    CHECK_INT(made, ==, unmade);
}

FLOW_TEST(flow_scope_ends_while_foreign_threads_use_its_channel)
{
    for (int round = 0; round < ENDINGS && !test_late(); round++) end_once(round);
    return 0;
}

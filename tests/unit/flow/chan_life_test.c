/* chan_life_test.c - ends: in every order, on foreign threads, misused. */
#include <pthread.h>
#include <string.h>

#include "base/atomic.h"
#include "unit/flow/flow_test.h"

static const weir_chan_spec plain = {
    .name = "plain", .capacity = 2, .overflow = WEIR_WAIT, .on_close = WEIR_DRAIN};

/* ---- Every order of a small script ----
 *
 * Two ends of each side, two sends, two receives and a close, in all 9! orders (the default test
 * plays some of them, spread over all). Whatever the order, an item that was accepted is received,
 * or handed to the hook, once. */

enum step { SEND_A, SEND_B, RECV_A, RECV_B, CLOSE, DROP_TX_A, DROP_TX_B, DROP_RX_A, DROP_RX_B };
enum { STEPS = 9 };

struct script {
    weir_tx *tx[2];
    weir_rx *rx[2];
    int accepted, received, hooked;
};

static void count_hook(void *item, enum weir_drop why, void *arg)
{
    struct script *script = arg;
    CHECK(why == WEIR_DROPPED_CLOSE || why == WEIR_DROPPED_SCOPE || why == WEIR_DROPPED_OVERFLOW);
    CHECK_INT(*(int *)item, >, 0);
    script->hooked++;
}

static void script_send(struct script *script, int who, bool closed)
{
    int item = 1 + who, r;

    if (!script->tx[who]) return;
    r = weir_tx_try_send(script->tx[who], &item);
    if (closed || (!script->rx[0] && !script->rx[1])) CHECK_INT(r, ==, WEIR_ECLOSED);
    if (r == 0) {
        script->accepted++;
    } else {
        CHECK(r == WEIR_ECLOSED || r == WEIR_EOVERLOAD);
    }
}

static void script_recv(struct script *script, int who, bool closed)
{
    int item = 0, r;

    if (!script->rx[who]) return;
    r = weir_rx_try_recv(script->rx[who], &item);
    if (r == 1) {
        script->received++;
        CHECK_INT(item, >, 0);
    } else {
        bool over = closed || (!script->tx[0] && !script->tx[1]);
        CHECK_INT(r, ==, over ? WEIR_ECLOSED : 0);
    }
}

static void script_step(struct script *script, enum step step, bool *closed)
{
    switch (step) {
    case SEND_A:
    case SEND_B: script_send(script, step - SEND_A, *closed); break;
    case RECV_A:
    case RECV_B: script_recv(script, step - RECV_A, *closed); break;
    case CLOSE:
        if (script->tx[0] || script->tx[1]) {
            weir_tx_close(script->tx[0] ? script->tx[0] : script->tx[1]);
            *closed = true;
        }
        break;
    case DROP_TX_A:
    case DROP_TX_B:
        weir_tx_drop(script->tx[step - DROP_TX_A]);
        script->tx[step - DROP_TX_A] = NULL;
        break;
    case DROP_RX_A:
    case DROP_RX_B:
        weir_rx_drop(script->rx[step - DROP_RX_A]);
        script->rx[step - DROP_RX_A] = NULL;
        break;
    }
}

static void play(const enum step *order, const weir_chan_spec *base)
{
    struct script script = {.accepted = 0};
    weir_chan_spec spec = *base;
    weir_chan_figures figures = {.depth = 0};
    bool closed = false;
    int result;

    spec.on_drop = count_hook;
    spec.keep_arg = &script;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_chan_open_sized(scope, sizeof spec, &spec, sizeof(int), &script.tx[0],
                                      &script.rx[0]));
        CHECK_OK(weir_tx_copy(script.tx[0], &script.tx[1]));
        CHECK_OK(weir_rx_copy(script.rx[0], &script.rx[1]));
        for (int i = 0; i < STEPS; i++) {
            script_step(&script, order[i], &closed);
            if (script.tx[0]) weir_tx_figures(script.tx[0], &figures);
            CHECK_INT(figures.depth, <=, 2);
        }
    }
    CHECK_OK(result);
    CHECK_INT(script.accepted, ==, script.received + script.hooked);
}

/* All permutations, by Heap's method; `skip` of them between two that are played. */
static int play_all(const weir_chan_spec *spec, int skip)
{
    enum step order[STEPS] = {SEND_A,    SEND_B,    RECV_A,    RECV_B,   CLOSE,
                              DROP_TX_A, DROP_TX_B, DROP_RX_A, DROP_RX_B};
    int counts[STEPS] = {0}, i = 1, played = 0, seen = 0;

    play(order, spec);
    while (i < STEPS) {
        if (counts[i] < i) {
            int with = i % 2 == 0 ? 0 : counts[i];
            enum step held = order[with];
            order[with] = order[i];
            order[i] = held;
            if (seen++ % skip == 0 && !(skip > 1 && test_late())) {
                test_note("order %d", seen);
                play(order, spec);
                played++;
            }
            counts[i]++;
            i = 1;
        } else {
            counts[i++] = 0;
        }
    }
    return played;
}

static int play_policies(int skip)
{
    static const enum weir_overflow overflows[] = {WEIR_WAIT, WEIR_DROP_NEWEST, WEIR_DROP_OLDEST};
    int played = 0;

    for (size_t i = 0; i < sizeof overflows / sizeof *overflows; i++) {
        for (int discards = 0; discards < 2; discards++) {
            weir_chan_spec spec = plain;
            spec.capacity = discards ? 1 : 2;
            spec.overflow = overflows[i];
            spec.on_close = discards ? WEIR_DISCARD : WEIR_DRAIN;
            played += play_all(&spec, skip);
        }
    }
    return played;
}

FLOW_TEST(chan_ends_closed_and_dropped_in_many_orders_lose_nothing)
{
    int played = play_policies(TEST_SLOW ? 401 : 101);

    if (!test_late()) CHECK_INT(played, >, 6 * 500);
    return 0;
}

static int play_every_order(void *arg)
{
    (void)arg;
    CHECK_INT(play_policies(1), ==, 6 * (9 * 8 * 7 * 6 * 5 * 4 * 3 * 2 - 1));
    return 0;
}

TEST_WITH(chan_ends_closed_and_dropped_in_every_order_lose_nothing, .long_only = true,
          .timeout_ms = 240000)
{
    if (TEST_SLOW) TEST_SKIP("2 million orders: with everything at its full speed");
    CHECK_OK(weir_run(&(weir_config){.workers = test_workers(), .log_level = WEIR_LOG_OFF},
                      play_every_order, NULL));
}

/* ---- Policies as a table ---- */

FLOW_TEST(chan_overflow_table)
{
    static const struct {
        enum weir_overflow overflow;
        size_t capacity;
        int sends;                       /* try_send of 1, 2, 3, ... */
        int accepted, rejected, dropped; /* by then */
        int first;                       /* what a receive gets then; 0: nothing */
    } rows[] = {
        {WEIR_WAIT, 2, 2, 2, 0, 0, 1},
        {WEIR_WAIT, 2, 3, 2, 1, 0, 1},
        {WEIR_REJECT, 2, 3, 2, 1, 0, 1},
        {WEIR_REJECT, 1, 5, 1, 4, 0, 1},
        {WEIR_DROP_NEWEST, 2, 3, 3, 0, 1, 1},
        {WEIR_DROP_NEWEST, 1, 5, 5, 0, 4, 1},
        {WEIR_DROP_OLDEST, 2, 3, 3, 0, 1, 2},
        {WEIR_DROP_OLDEST, 1, 5, 5, 0, 4, 5},
        {WEIR_WAIT, WEIR_RENDEZVOUS, 2, 0, 2, 0, 0},
        {WEIR_REJECT, WEIR_RENDEZVOUS, 2, 0, 2, 0, 0},
        {WEIR_DROP_NEWEST, WEIR_RENDEZVOUS, 2, 2, 0, 2, 0},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        weir_chan_spec spec = plain;
        weir_chan_figures figures;
        int_tx tx;
        int_rx rx;
        int result, item;

        test_note("row %zu", i);
        spec.overflow = rows[i].overflow;
        spec.capacity = rows[i].capacity;
        FLOW_SCOPE(scope, &result)
        {
            CHECK_OK(weir_chan_open(scope, &spec, &tx, &rx));
            for (int k = 1; k <= rows[i].sends; k++) {
                int r = weir_try_send(tx, &k);
                CHECK(r == 0 || r == WEIR_EOVERLOAD);
            }
            weir_tx_figures(tx.end, &figures);
            CHECK_INT(figures.accepted, ==, rows[i].accepted);
            CHECK_INT(figures.rejected, ==, rows[i].rejected);
            CHECK_INT(figures.dropped, ==, rows[i].dropped);
            item = 0;
            CHECK_INT(weir_try_recv(rx, &item), ==, rows[i].first > 0);
            CHECK_INT(item, ==, rows[i].first);
        }
        CHECK_OK(result);
    }
    return 0;
}

/* ---- Foreign threads ---- */

static weir_chan_spec any_thread(void)
{
    weir_chan_spec spec = plain;
    spec.any_thread = true;
    return spec;
}

static void *drop_rx(void *arg)
{
    weir_rx_drop(arg);
    return NULL;
}

static void *drop_tx(void *arg)
{
    weir_tx_drop(arg);
    return NULL;
}

static void *close_tx(void *arg)
{
    weir_tx_close(arg);
    return NULL;
}

static void on_thread(void *(*fn)(void *), void *arg)
{
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, fn, arg), ==, 0);
    CHECK_INT(pthread_join(thread, NULL), ==, 0);
}

static int send_until_closed(void *arg)
{
    weir_tx *tx = *(weir_tx **)arg;
    int item = 1, r;

    while ((r = weir_tx_send(tx, &item)) == 0) {}
    CHECK_INT(r, ==, WEIR_ECLOSED);
    return 0;
}

FLOW_TEST(chan_senders_learn_that_a_foreign_thread_dropped_the_last_receiver)
{
    weir_chan_spec spec = any_thread();
    int_tx tx;
    int_rx rx;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_chan_open(scope, &spec, &tx, &rx));
        CHECK_OK(weir_spawn(scope, send_until_closed, &tx.end, sizeof tx.end));
        CHECK_OK(weir_yield());
        on_thread(drop_rx, rx.end);
        CHECK_OK(weir_scope_join(scope));
        weir_tx_drop(tx.end);
    }
    return result;
}

static int receive_until_closed(void *arg)
{
    weir_rx *rx = *(weir_rx **)arg;
    int item;
    int r = weir_rx_recv(rx, &item);

    CHECK_INT(r, ==, WEIR_ECLOSED);
    return 0;
}

FLOW_TEST(chan_receivers_learn_that_a_foreign_thread_closed_it)
{
    void *(*const ways[])(void *) = {close_tx, drop_tx};

    for (int i = 0; i < 2; i++) {
        weir_chan_spec spec = any_thread();
        int_tx tx;
        int_rx rx;
        int result;

        FLOW_SCOPE(scope, &result)
        {
            CHECK_OK(weir_chan_open(scope, &spec, &tx, &rx));
            CHECK_OK(weir_spawn(scope, receive_until_closed, &rx.end, sizeof rx.end));
            CHECK_OK(weir_yield());
            on_thread(ways[i], tx.end);
            CHECK_OK(weir_scope_join(scope));
            if (i == 0) weir_tx_drop(tx.end);
            weir_rx_drop(rx.end);
        }
        CHECK_OK(result);
    }
    return 0;
}

static int wait_done(void *arg)
{
    return weir_tx_wait_done(*(weir_tx **)arg);
}

FLOW_TEST(chan_items_that_a_foreign_thread_drops_are_finished)
{
    weir_chan_spec spec = any_thread();
    int_tx tx;
    int_rx rx;
    int result, item = 1;

    spec.counts_done = true;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_chan_open(scope, &spec, &tx, &rx));
        CHECK_OK(weir_send(tx, &item));
        CHECK_OK(weir_spawn(scope, wait_done, &tx.end, sizeof tx.end));
        CHECK_OK(weir_yield());
        on_thread(drop_rx, rx.end);
        CHECK_OK(weir_scope_join(scope));
        weir_tx_drop(tx.end);
    }
    return result;
}

struct waiting {
    weir_rx *rx;
    int *got;
};

static int receive_one(void *arg)
{
    struct waiting *waiting = arg;
    return weir_rx_recv(waiting->rx, waiting->got);
}

static void *send_seven(void *arg)
{
    int item = 7;
    CHECK_OK(weir_tx_try_send(arg, &item));
    return NULL;
}

/* The item of a foreign thread is stored, and its home worker will hand it to who waits; a task
 * that comes before that does not pass them. */
FLOW_TEST(chan_item_of_a_foreign_thread_is_for_who_waits_already)
{
    weir_chan_spec spec = any_thread();
    int_tx tx;
    int_rx rx;
    int result, got = 0, mine = 0;

    FLOW_SCOPE(scope, &result)
    {
        struct waiting waiting = {.got = &got};
        CHECK_OK(weir_chan_open(scope, &spec, &tx, &rx));
        CHECK_OK(weir_rx_copy(rx.end, &waiting.rx));
        CHECK_OK(weir_spawn(scope, receive_one, &waiting, sizeof waiting));
        CHECK_OK(weir_yield());
        on_thread(send_seven, tx.end);
        CHECK_INT(weir_try_recv(rx, &mine), ==, 0);
        CHECK_OK(weir_scope_join(scope));
        CHECK_INT(got, ==, 7);
        weir_tx_drop(tx.end);
        weir_rx_drop(rx.end);
        weir_rx_drop(waiting.rx);
    }
    return result;
}

static int_tx kept_tx;
static int_rx kept_rx;

static int open_and_leave(void *arg)
{
    weir_chan_spec spec = any_thread();
    int result;

    (void)arg;
    FLOW_SCOPE(scope, &result)
    {
        int item = 1;
        CHECK_OK(weir_chan_open(scope, &spec, &kept_tx, &kept_rx));
        CHECK_OK(weir_send(kept_tx, &item));
    }
    return result;
}

TEST(chan_of_any_thread_answers_after_its_runtime_until_its_ends_are_dropped)
{
    int item = 1;

    CHECK_OK(flow_test_run(open_and_leave));
    CHECK_INT(weir_try_send(kept_tx, &item), ==, WEIR_ECLOSED);
    weir_tx_drop(kept_tx.end);
    weir_rx_drop(kept_rx.end);
}

/* ---- Finishing ---- */

FLOW_TEST(chan_that_drops_the_oldest_does_not_seem_finished_in_between)
{
    weir_chan_spec spec = plain;
    int_tx tx;
    int_rx rx;
    int result, item = 1;
    bool waits = true;

    spec.counts_done = true;
    spec.capacity = 1;
    spec.overflow = WEIR_DROP_OLDEST;
    FLOW_SCOPE(scope, &result)
    {
        weir_task task;
        CHECK_OK(weir_chan_open(scope, &spec, &tx, &rx));
        CHECK_OK(weir_send(tx, &item));
        CHECK_OK(weir_task_spawn(
            scope, &(weir_task_spec){.fn = wait_done, .arg = &tx.end, .arg_bytes = sizeof tx.end},
            &task));
        CHECK_OK(weir_yield());
        CHECK_OK(weir_send(tx, &item)); /* the first is dropped, the second is unfinished */
        CHECK_OK(weir_yield());
        WEIR_DEADLINE(1) { waits = weir_task_join(task, &item) == WEIR_ETIMEDOUT; }
        CHECK(waits);
        CHECK_OK(weir_recv(rx, &item));
        weir_rx_done(rx.end, 1);
    }
    return result;
}

/* ---- Misuse ---- */

struct misuse {
    const char *sentence;
    void (*fn)(weir_scope *scope, weir_tx *tx, weir_rx *rx);
};

static void drop_twice(weir_scope *scope, weir_tx *tx, weir_rx *rx)
{
    (void)scope, (void)rx;
    weir_tx_drop(tx);
    weir_tx_drop(tx);
}

static void recv_dropped(weir_scope *scope, weir_tx *tx, weir_rx *rx)
{
    int item;
    (void)scope, (void)tx;
    weir_rx_drop(rx);
    CHECK_OK(weir_rx_recv(rx, &item));
}

static void send_null(weir_scope *scope, weir_tx *tx, weir_rx *rx)
{
    int item = 1;
    (void)scope, (void)tx, (void)rx;
    CHECK_OK(weir_tx_send(NULL, &item));
}

static void wrong_side(weir_scope *scope, weir_tx *tx, weir_rx *rx)
{
    int item = 1;
    (void)scope, (void)tx;
    CHECK_OK(weir_tx_send((weir_tx *)(void *)rx, &item));
}

static void done_too_often(weir_scope *scope, weir_tx *tx, weir_rx *rx)
{
    (void)scope, (void)tx;
    weir_rx_done(rx, 1);
}

static void drop_on_a_thread(weir_scope *scope, weir_tx *tx, weir_rx *rx)
{
    (void)scope, (void)rx;
    on_thread(drop_tx, tx);
}

static void close_on_a_thread(weir_scope *scope, weir_tx *tx, weir_rx *rx)
{
    (void)scope, (void)rx;
    on_thread(close_tx, tx);
}

static void *done_fn(void *arg)
{
    weir_rx_done(arg, 0);
    return NULL;
}

static void done_on_a_thread(weir_scope *scope, weir_tx *tx, weir_rx *rx)
{
    (void)scope, (void)tx;
    on_thread(done_fn, rx);
}

static void *look_at_figures(void *arg)
{
    weir_chan_figures figures;
    weir_rx_figures(arg, &figures);
    return NULL;
}

static void look_on_a_thread(weir_scope *scope, weir_tx *tx, weir_rx *rx)
{
    (void)scope, (void)tx;
    on_thread(look_at_figures, rx);
}

static const struct misuse misuses[] = {
    {"weir_tx_drop: the sending end is closed, or was given up, or its scope has ended",
     drop_twice},
    {"weir_rx_recv: the receiving end is closed, or was given up", recv_dropped},
    {"weir_tx_send: the sending end is NULL", send_null},
    {"weir_tx_send: the sending end is closed, or was given up", wrong_side},
    {"weir_rx_done: channel 'plain': 1 items, and only 0 were received and not marked",
     done_too_often},
    {"weir_tx_drop: called on a thread that is not the runtime's, and channel 'plain' does not",
     drop_on_a_thread},
    {"weir_tx_close: called on a thread that is not the runtime's", close_on_a_thread},
    {"weir_rx_done: called on a thread that is not the runtime's", done_on_a_thread},
    {"weir_rx_figures: called on a thread that is not the runtime's", look_on_a_thread},
};

static const struct misuse *misused;

static int misuse_body(void *arg)
{
    int result;

    (void)arg;
    FLOW_SCOPE(scope, &result)
    {
        int_tx tx;
        int_rx rx;
        CHECK_OK(weir_chan_open(scope, &plain, &tx, &rx));
        misused->fn(scope, tx.end, rx.end);
    }
    return result;
}

static void misuse_child(void *arg)
{
    misused = arg;
    (void)flow_test_run(misuse_body);
}

TEST(chan_misuse_aborts_with_a_sentence)
{
    for (size_t i = 0; i < sizeof misuses / sizeof *misuses; i++) {
        CHECK_ABORTS(misuse_child, (void *)(uintptr_t)&misuses[i], misuses[i].sentence);
    }
}

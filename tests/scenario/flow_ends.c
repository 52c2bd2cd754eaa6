/* flow_ends.c - a channel with somebody waiting at it, and its ends closed and dropped in every
 * order.
 *
 * Whatever the order: an item that was made is received, handed to the hook, or still its
 * sender's; and once all ends of the other side are gone, nobody waits any more.
 */
#include <string.h>

#include "base/atomic.h"
#include "unit/flow/flow_test.h"

/* Who waits when the ends begin to go. Each has an end of its own. */
enum waiting {
    NOBODY, /* items are stored */
    SENDERS,
    SENDERS_OF_MANY,
    SENDERS_BY_SELECT,
    SENDERS_TO_NOBODY, /* a rendezvous */
    RECEIVERS,
    RECEIVERS_OF_MANY,
    RECEIVERS_BY_SELECT,
    FOR_ALL_DONE,
    WAITINGS,
};

enum step { SEND, RECV, CLOSE, DROP_TX_A, DROP_TX_B, DROP_RX_A, DROP_RX_B, STEPS };

struct ends {
    int_tx tx[2];
    int_rx rx[2];
    ATOM(int) made, unmade;
    ATOM(int) ended; /* of those who waited */
};

static void unmake(void *item, enum weir_drop why, void *arg)
{
    struct ends *ends = arg;
    CHECK_INT(*(int *)item, ==, 1);
    CHECK(why == WEIR_DROPPED_CLOSE || why == WEIR_DROPPED_SCOPE);
    (void)atom_add(&ends->unmade, 1);
}

/* ---- Those who wait ---- */

struct waiter_arg {
    struct ends *ends;
    int_tx tx;
    int_rx rx;
};

static int wait_to_send(void *arg)
{
    struct waiter_arg *self = arg;
    int item = 1, r;

    (void)atom_add(&self->ends->made, 1);
    r = weir_send(self->tx, &item);
    if (r < 0) (void)atom_add(&self->ends->unmade, 1);
    weir_tx_drop(self->tx.end);
    (void)atom_add(&self->ends->ended, 1);
    return r == WEIR_ECLOSED ? 0 : r;
}

static int wait_to_send_many(void *arg)
{
    struct waiter_arg *self = arg;
    int items[3] = {1, 1, 1}, r;
    size_t sent = 0;

    (void)atom_add(&self->ends->made, 3);
    r = weir_send_many(self->tx, items, 3, &sent);
    (void)atom_add(&self->ends->unmade, 3 - (int)sent);
    weir_tx_drop(self->tx.end);
    (void)atom_add(&self->ends->ended, 1);
    return r == WEIR_ECLOSED ? 0 : r;
}

static int select_to_send(void *arg)
{
    struct waiter_arg *self = arg;
    int item = 1, r;
    weir_case cases[] = {WEIR_CASE_TIMER(60000), WEIR_CASE_SEND(self->tx, &item)};

    (void)atom_add(&self->ends->made, 1);
    r = weir_select(cases, 2, WEIR_FAIR);
    CHECK_INT(r, ==, 1);
    if (cases[1].result < 0) (void)atom_add(&self->ends->unmade, 1);
    weir_tx_drop(self->tx.end);
    (void)atom_add(&self->ends->ended, 1);
    return cases[1].result == WEIR_ECLOSED ? 0 : cases[1].result;
}

static int wait_to_receive(void *arg)
{
    struct waiter_arg *self = arg;
    int item = 0, r;

    while ((r = weir_recv(self->rx, &item)) == 0) (void)atom_add(&self->ends->unmade, item);
    weir_rx_drop(self->rx.end);
    (void)atom_add(&self->ends->ended, 1);
    return r == WEIR_ECLOSED ? 0 : r;
}

static int wait_to_receive_many(void *arg)
{
    struct waiter_arg *self = arg;
    int items[3], r;

    while ((r = weir_recv_many(self->rx, items, 3)) > 0) (void)atom_add(&self->ends->unmade, r);
    weir_rx_drop(self->rx.end);
    (void)atom_add(&self->ends->ended, 1);
    return r == WEIR_ECLOSED ? 0 : r;
}

static int select_to_receive(void *arg)
{
    struct waiter_arg *self = arg;
    int item = 0, r;

    for (;;) {
        weir_case cases[] = {WEIR_CASE_RECV(self->rx, &item), WEIR_CASE_TIMER(60000)};
        r = weir_select(cases, 2, WEIR_FAIR);
        if (r != 0 || cases[0].result < 0) break;
        (void)atom_add(&self->ends->unmade, item);
    }
    weir_rx_drop(self->rx.end);
    (void)atom_add(&self->ends->ended, 1);
    return r < 0 ? r : 0;
}

static int wait_for_all_done(void *arg)
{
    struct waiter_arg *self = arg;
    int r = weir_tx_wait_done(self->tx.end);

    weir_tx_drop(self->tx.end);
    (void)atom_add(&self->ends->ended, 1);
    return r == WEIR_ECLOSED ? 0 : r;
}

static const struct {
    const char *name;
    weir_task_fn fn;
    size_t capacity;
    int stored; /* before anybody waits */
} table[WAITINGS] = {
    [NOBODY] = {"nobody", NULL, 2, 2},
    [SENDERS] = {"senders", wait_to_send, 1, 1},
    [SENDERS_OF_MANY] = {"senders of many", wait_to_send_many, 2, 1},
    [SENDERS_BY_SELECT] = {"senders by select", select_to_send, 1, 1},
    [SENDERS_TO_NOBODY] = {"senders to nobody", wait_to_send, WEIR_RENDEZVOUS, 0},
    [RECEIVERS] = {"receivers", wait_to_receive, 1, 0},
    [RECEIVERS_OF_MANY] = {"receivers of many", wait_to_receive_many, 2, 0},
    [RECEIVERS_BY_SELECT] = {"receivers by select", select_to_receive, 1, 0},
    [FOR_ALL_DONE] = {"for all done", wait_for_all_done, 2, 1},
};

enum { WAITERS = 2 };

static void begin_to_wait(weir_scope *scope, struct ends *ends, enum waiting waiting)
{
    for (int i = 0; i < WAITERS && table[waiting].fn; i++) {
        struct waiter_arg arg = {.ends = ends, .tx = {NULL}, .rx = {NULL}};
        if (waiting >= RECEIVERS && waiting <= RECEIVERS_BY_SELECT) {
            CHECK_OK(weir_rx_copy(ends->rx[0].end, &arg.rx.end));
        } else {
            CHECK_OK(weir_tx_copy(ends->tx[0].end, &arg.tx.end));
        }
        CHECK_OK(weir_spawn(scope, table[waiting].fn, &arg, sizeof arg));
    }
    CHECK_OK(weir_yield()); /* they wait */
    CHECK_INT(atom_load(&ends->ended), ==, 0);
}

/* ---- The ends go ---- */

static void take(struct ends *ends, int_rx rx, bool counts_done)
{
    int item = 0, r = weir_try_recv(rx, &item);

    CHECK(r == 1 || r == 0 || r == WEIR_ECLOSED);
    if (r != 1) return;
    CHECK_INT(item, ==, 1);
    (void)atom_add(&ends->unmade, 1);
    if (counts_done) weir_rx_done(rx.end, 1);
}

static void do_step(struct ends *ends, enum step step, bool counts_done)
{
    int item = 1, which;

    switch (step) {
    case SEND:
        which = ends->tx[0].end ? 0 : 1;
        if (!ends->tx[which].end) break;
        if (weir_try_send(ends->tx[which], &item) == 0) (void)atom_add(&ends->made, 1);
        break;
    case RECV:
        which = ends->rx[0].end ? 0 : 1;
        if (ends->rx[which].end) take(ends, ends->rx[which], counts_done);
        break;
    case CLOSE:
        which = ends->tx[0].end ? 0 : 1;
        if (!ends->tx[which].end) break;
        weir_tx_close(ends->tx[which].end);
        CHECK_INT(weir_try_send(ends->tx[which], &item), ==, WEIR_ECLOSED);
        weir_tx_close(ends->tx[which].end);
        break;
    case DROP_TX_A:
    case DROP_TX_B:
        weir_tx_drop(ends->tx[step - DROP_TX_A].end);
        ends->tx[step - DROP_TX_A].end = NULL;
        break;
    case DROP_RX_A:
    case DROP_RX_B:
        weir_rx_drop(ends->rx[step - DROP_RX_A].end);
        ends->rx[step - DROP_RX_A].end = NULL;
        break;
    case STEPS: break;
    }
}

static void play(const enum step *order, enum waiting waiting, enum weir_on_close on_close,
                 bool lets_run)
{
    struct ends ends = {.made = 0};
    weir_chan_spec spec = {.name = "ends",
                           .capacity = table[waiting].capacity,
                           .overflow = WEIR_WAIT,
                           .on_close = on_close,
                           .counts_done = waiting == FOR_ALL_DONE,
                           .on_drop = unmake,
                           .keep_arg = &ends};
    int result, item = 1;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_chan_open(scope, &spec, &ends.tx[0], &ends.rx[0]));
        CHECK_OK(weir_tx_copy(ends.tx[0].end, &ends.tx[1].end));
        CHECK_OK(weir_rx_copy(ends.rx[0].end, &ends.rx[1].end));
        for (int i = 0; i < table[waiting].stored; i++) {
            CHECK_OK(weir_send(ends.tx[0], &item));
            (void)atom_add(&ends.made, 1);
        }
        begin_to_wait(scope, &ends, waiting);
        for (int i = 0; i < STEPS; i++) {
            do_step(&ends, order[i], spec.counts_done);
            if (lets_run) CHECK_OK(weir_yield());
        }
        CHECK_OK(weir_scope_join(scope)); /* all ends are gone: nobody waits */
        CHECK_INT(atom_load(&ends.ended), ==, table[waiting].fn ? WAITERS : 0);
    }
    CHECK_OK(result);
    CHECK_INT(atom_load(&ends.made), ==, atom_load(&ends.unmade));
}

/* All orders, by Heap's method; `stride` from one that is played to the next. */
static int play_orders(enum waiting waiting, enum weir_on_close on_close, int stride)
{
    enum step order[STEPS] = {SEND, RECV, CLOSE, DROP_TX_A, DROP_TX_B, DROP_RX_A, DROP_RX_B};
    int counts[STEPS] = {0}, i = 1, seen = 0, played = 1;

    play(order, waiting, on_close, true);
    while (i < STEPS) {
        if (counts[i] < i) {
            int with = i % 2 == 0 ? 0 : counts[i];
            enum step held = order[with];
            order[with] = order[i];
            order[i] = held;
            if (++seen % stride == 0 && !(stride > 1 && test_late())) {
                test_note("%s wait, %s, order %d", table[waiting].name,
                          on_close == WEIR_DRAIN ? "drain" : "discard", seen);
                play(order, waiting, on_close, false);
                play(order, waiting, on_close, true);
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

static int play_all(int stride)
{
    int played = 0;

    for (int waiting = NOBODY; waiting < WAITINGS; waiting++) {
        played += play_orders((enum waiting)waiting, WEIR_DRAIN, stride);
        played += play_orders((enum waiting)waiting, WEIR_DISCARD, stride);
    }
    return played;
}

FLOW_TEST(chan_ends_go_in_any_order_while_somebody_waits)
{
    int played = play_all(TEST_SLOW ? 301 : 11);

    if (!test_late()) CHECK_INT(played, >, 280);
    return 0;
}

static int play_really_all(void *arg)
{
    (void)arg;
    CHECK_INT(play_all(1), ==, 2 * WAITINGS * 5040);
    return 0;
}

TEST_WITH(chan_ends_go_in_every_order_while_somebody_waits, .long_only = true, .timeout_ms = 60000)
{
    if (TEST_SLOW) TEST_SKIP("90,000 orders: with everything at its full speed");
    CHECK_OK(weir_run(&(weir_config){.workers = test_workers(), .log_level = WEIR_LOG_OFF},
                      play_really_all, NULL));
}

/* flow_select.c - select in simulation: one case is done, the others have not happened. */
#include "sim/flow_program.h"

static bool open_chan(weir_scope *scope, size_t capacity, weir_tx **ret_tx, weir_rx **ret_rx)
{
    weir_chan_spec spec = {
        .name = "items", .capacity = capacity, .overflow = WEIR_WAIT, .on_close = WEIR_DRAIN};
    int r = weir_chan_open_sized(scope, sizeof spec, &spec, sizeof(int), ret_tx, ret_rx);

    CHECK(r == 0 || r == WEIR_ECANCELED);
    return r == 0;
}

static int cancel_task(void *arg)
{
    weir_task task = *(weir_task *)arg;

    (void)weir_task_cancel(task, "the program says so");
    return 0;
}

/* ---- Sending or receiving ---- */

enum { ROUNDS = 2 };

struct exchange {
    weir_tx *tx[2];
    weir_rx *rx[2];
    weir_event *over; /* one of the two has left */
    int sent[2], received[2];
    int done;
};

struct partner {
    struct exchange *exchange;
    int side; /* sends into this channel, receives from the other */
};

static int exchange_items(void *arg)
{
    const struct partner *partner = arg;
    struct exchange *exchange = partner->exchange;
    int side = partner->side, out, in, round, r = 0;

    for (round = 0; round < ROUNDS; round++) {
        /* In the order of the channels for one, and the other way round for the other. */
        weir_case cases[3] = {weir_case_send(exchange->tx[side], &out),
                              weir_case_recv(exchange->rx[1 - side], &in),
                              weir_case_event(exchange->over)};

        out = 100 * side + round;
        in = -1;
        r = weir_select(cases, 3, WEIR_FAIR);
        if (r < 0 || r == 2) break;
        CHECK_INT(cases[r].result, ==, 0);
        if (r == 0) exchange->sent[side]++;
        if (r == 1) exchange->received[1 - side]++;
        CHECK_INT(in, ==, r == 0 ? -1 : 100 * (1 - side) + round);
    }
    CHECK(r >= 0 || r == WEIR_ECANCELED);
    if (round == ROUNDS) exchange->done++;
    weir_event_set(exchange->over);
    return 0;
}

int flow_exchange(bool cancels)
{
    struct exchange exchange = {.done = 0};
    weir_scope *outer = flow_scope_open(), *scope = NULL;
    weir_task second = {NULL, 0};

    if (!outer) return 0;
    if (open_chan(outer, WEIR_RENDEZVOUS, &exchange.tx[0], &exchange.rx[0]) &&
        open_chan(outer, WEIR_RENDEZVOUS, &exchange.tx[1], &exchange.rx[1]) &&
        weir_event_open(outer, "over", &exchange.over) == 0) {
        scope = flow_scope_open();
    }
    if (scope) {
        for (int i = 0; i < 2; i++) {
            struct partner partner = {&exchange, i};
            (void)flow_spawn(scope, i, exchange_items, &partner, sizeof partner,
                             i == 1 ? &second : NULL);
        }
        if (cancels && second.ref) {
            (void)flow_spawn(scope, 0, cancel_task, &second, sizeof second, NULL);
        }
        flow_scope_close(scope);
    }
    for (int i = 0; i < 2; i++) CHECK_INT(exchange.sent[i], ==, exchange.received[i]);
    flow_scope_close(outer);
    return exchange.done;
}

SIM_TEST(partners_agree_on_which_of_two_cases_was_done, .runs_max = 10000, .config = FLOW_HOST)
{
    CHECK_INT(flow_exchange(false), ==, 2);
    return 0;
}

SIM_TEST(select_that_is_cancelled_has_done_no_case, .runs_max = 10000, .config = FLOW_HOST)
{
    CHECK_INT(flow_exchange(true), <=, 2);
    return 0;
}

SIM_TEST(selects_survive_a_cancel_of_all, .runs_max = 10000, .config = FLOW_HOST, FLOW_CANCELS_ONCE)
{
    return flow_exchange(false);
}

SIM_TEST(selects_of_one_worker_agree, .runs_max = 10000, FLOW_CANCELS_ONCE)
{
    return flow_exchange(true);
}

/* ---- Receiving from several ---- */

enum { ITEMS = 3 };

struct merge {
    weir_tx *tx[2];
    weir_rx *rx[2];
    int accepted[2][ITEMS], received[2][ITEMS];
    int ended;
};

struct merger {
    struct merge *merge;
    int index;
};

static int produce(void *arg)
{
    const struct merger *self = arg;
    struct merge *merge = self->merge;
    int r = 0;

    for (int i = 0; i < ITEMS && r == 0; i++) {
        r = weir_tx_send(merge->tx[self->index], &i);
        if (r == 0) merge->accepted[self->index][i]++;
    }
    CHECK(r == 0 || flow_is_end(r));
    weir_tx_close(merge->tx[self->index]);
    return 0;
}

static int consume(void *arg)
{
    struct merge *merge = ((struct merger *)arg)->merge;
    bool over[2] = {false, false};

    while (!over[0] || !over[1]) {
        weir_case cases[2];
        int items[2] = {-1, -1}, of[2], count = 0, r;

        for (int i = 0; i < 2; i++) {
            if (over[i]) continue;
            of[count] = i;
            cases[count++] = weir_case_recv(merge->rx[i], &items[i]);
        }
        r = weir_select(cases, (size_t)count, WEIR_FAIR);
        if (r < 0) {
            CHECK_INT(r, ==, WEIR_ECANCELED);
            CHECK_INT(items[0] + items[1], ==, -2);
            return 0;
        }
        CHECK_INT(items[1 - of[r]], ==, -1);
        if (cases[r].result == WEIR_ECLOSED) {
            over[of[r]] = true;
        } else {
            CHECK(items[of[r]] >= 0 && items[of[r]] < ITEMS);
            merge->received[of[r]][items[of[r]]]++;
        }
    }
    merge->ended++;
    return 0;
}

int flow_merge(void)
{
    struct merge merge = {.ended = 0};
    weir_scope *outer = flow_scope_open(), *scope = NULL;

    if (!outer) return 0;
    if (open_chan(outer, 1, &merge.tx[0], &merge.rx[0]) &&
        open_chan(outer, 1, &merge.tx[1], &merge.rx[1])) {
        scope = flow_scope_open();
    }
    if (scope) {
        for (int i = 0; i < 2; i++) {
            struct merger merger = {&merge, i};
            (void)flow_spawn(scope, i, consume, &merger, sizeof merger, NULL);
            (void)flow_spawn(scope, i, produce, &merger, sizeof merger, NULL);
        }
        flow_scope_close(scope);
    }
    for (int i = 0; i < 2 * ITEMS; i++) {
        int accepted = merge.accepted[i / ITEMS][i % ITEMS];
        int received = merge.received[i / ITEMS][i % ITEMS];
        CHECK_INT(received, <=, accepted);
        if (merge.ended == 2) CHECK_INT(received, ==, accepted);
    }
    flow_scope_close(outer);
    return merge.ended;
}

SIM_TEST(selects_of_two_consumers_get_each_item_once, .runs_max = 8000, .config = FLOW_HOST)
{
    CHECK_INT(flow_merge(), ==, 2);
    return 0;
}

SIM_TEST(selects_of_consumers_end_with_a_cancel_of_all, .runs_max = 8000, .config = FLOW_HOST,
         FLOW_CANCELS_ONCE)
{
    return flow_merge();
}

/* ---- Everything at once ---- */

enum { DO_RECV, DO_SEND, DO_EVENT, DO_JOIN, DO_TIMER, DO_COUNT };

struct all {
    weir_tx *in_tx, *out_tx;
    weir_rx *in_rx, *out_rx;
    weir_event *event;
    weir_task task;
    int out_received, ended;
};

/* So that things come true in any order, at three moments. */
static void sleep_some(void)
{
    int r = weir_sleep(weir_sim_choose(3));

    CHECK(r == 0 || r == WEIR_ECANCELED);
}

static int end_with_42(void *arg)
{
    (void)arg;
    sleep_some();
    return 42;
}

static int set_later(void *arg)
{
    struct all *all = *(struct all **)arg;

    sleep_some();
    weir_event_set(all->event);
    return 0;
}

/* The other end of both channels. */
static int move_later(void *arg)
{
    struct all *all = *(struct all **)arg;
    int item = 7, r;

    sleep_some();
    r = weir_tx_send(all->in_tx, &item);
    CHECK(r == 0 || r == WEIR_ECANCELED);
    r = weir_rx_recv(all->out_rx, &item);
    CHECK(r == 0 || r == WEIR_ECANCELED);
    if (r == 0) CHECK_INT(item, ==, 9);
    if (r == 0) all->out_received++;
    return 0;
}

static weir_case case_of(struct all *all, int what, int *in, const int *out)
{
    switch (what) {
    case DO_RECV: return weir_case_recv(all->in_rx, in);
    case DO_SEND: return weir_case_send(all->out_tx, out);
    case DO_EVENT: return weir_case_event(all->event);
    case DO_JOIN: return weir_case_join(all->task);
    default: return weir_case_timer(1);
    }
}

/* Until all but the timer was done; what was done is not waited for again. */
static void do_all(struct all *all, int *done)
{
    for (int rounds = 0; done[DO_RECV] + done[DO_SEND] + done[DO_EVENT] + done[DO_JOIN] < 4;
         rounds++) {
        weir_case cases[DO_COUNT];
        int what[DO_COUNT], count = 0, in = -1, out = 9, r;

        CHECK_INT(rounds, <, 12);
        for (int i = 0; i < DO_COUNT; i++) {
            if (i != DO_TIMER && done[i]) continue;
            what[count] = i;
            cases[count++] = case_of(all, i, &in, &out);
        }
        r = weir_select(cases, (size_t)count, WEIR_FAIR);
        CHECK(r >= 0 || r == WEIR_ECANCELED);
        if (r < 0) return;
        CHECK_INT(cases[r].result, ==, 0);
        done[what[r]]++;
        CHECK_INT(in, ==, what[r] == DO_RECV ? 7 : -1);
        if (what[r] == DO_JOIN) {
            CHECK(cases[r].task_result == 42 || cases[r].task_result == WEIR_ECANCELED);
        }
        if (what[r] == DO_EVENT) CHECK(weir_event_is_set(all->event));
    }
    all->ended++;
}

int flow_do_all(void)
{
    struct all all = {.ended = 0}, *keep = &all;
    int done[DO_COUNT] = {0};
    weir_scope *outer = flow_scope_open(), *scope = NULL;

    if (!outer) return 0;
    if (open_chan(outer, 1, &all.in_tx, &all.in_rx) &&
        open_chan(outer, WEIR_RENDEZVOUS, &all.out_tx, &all.out_rx) &&
        weir_event_open(outer, "event", &all.event) == 0) {
        scope = flow_scope_open();
    }
    if (scope) {
        if (flow_spawn(scope, 1, end_with_42, NULL, 0, &all.task)) {
            (void)flow_spawn(scope, 1, set_later, &keep, sizeof keep, NULL);
            (void)flow_spawn(scope, 0, move_later, &keep, sizeof keep, NULL);
            do_all(&all, done);
        }
        flow_scope_close(scope);
        CHECK_INT(all.out_received, ==, done[DO_SEND]);
    }
    flow_scope_close(outer);
    return all.ended;
}

SIM_TEST(select_does_each_of_several_things_once, .runs_max = 8000, .config = FLOW_HOST)
{
    CHECK_INT(flow_do_all(), ==, 1);
    return 0;
}

SIM_TEST(select_of_several_things_can_be_cancelled, .runs_max = 8000, .config = FLOW_HOST,
         FLOW_CANCELS_ONCE)
{
    return flow_do_all();
}

/* ---- The calls of flow_move.c by select ---- */

SIM_TEST(select_of_one_case_moves_each_item_once, .runs_max = 8000, .config = FLOW_HOST)
{
    return flow_move(&(struct flow_plan){.capacity = 1,
                                         .overflow = WEIR_WAIT,
                                         .on_close = WEIR_DRAIN,
                                         .senders = 2,
                                         .receivers = 2,
                                         .items = 3,
                                         .moves = FLOW_SELECTS});
}

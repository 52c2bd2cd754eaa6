/* flow_move.c - items through a channel, and an account of each of them: see flow_program.h. */
#include "sim/flow_program.h"

weir_scope *flow_scope_open(void)
{
    weir_scope *scope = NULL;
    int r = weir_scope_open(&(weir_scope_spec){.name = "program",
                                               .on_failure = WEIR_COLLECT,
                                               .max_tasks = 16,
                                               .overflow = WEIR_REJECT},
                            &scope);

    CHECK(r == 0 || r == WEIR_ECANCELED);
    return scope;
}

void flow_scope_close(weir_scope *scope)
{
    int r = weir_scope_close(scope);

    CHECK(r == 0 || r == WEIR_ECANCELED);
}

bool flow_spawn(weir_scope *scope, int worker, weir_task_fn fn, const void *arg, size_t arg_bytes,
                weir_task *ret_task)
{
    int r = weir_task_spawn(scope,
                            &(weir_task_spec){.fn = fn,
                                              .arg = arg,
                                              .arg_bytes = arg_bytes,
                                              .place = WEIR_PLACE_WORKER,
                                              .worker = worker % (int)weir_worker_count()},
                            ret_task);

    CHECK(r == 0 || r == WEIR_ECANCELED);
    return r == 0;
}

bool flow_is_end(int r)
{
    return r == WEIR_ECLOSED || r == WEIR_ECANCELED;
}

void flow_linger(void)
{
    int r = weir_yield();

    CHECK(r == 0 || r == WEIR_ECANCELED);
}

/* ---- Accounts ---- */

/* The first word is all there is of narrow items. */
struct item {
    uint32_t sender, number;
    uint64_t rest[2];
};

struct account {
    int accepted, received, dropped;
};

struct moves {
    const struct flow_plan *plan;
    struct account accounts[FLOW_SENDERS_MAX][FLOW_ITEMS_MAX];
    int accepted; /* sends that returned 0, which is before their task runs on */
    int finished; /* marked as done, or dropped */
    int last[FLOW_RECEIVERS_MAX][FLOW_SENDERS_MAX]; /* that a receiver got of a sender; -1: none */
    weir_scope *scope;
    weir_task first_receiver;
};

struct part {
    struct moves *moves;
    int index;
    weir_tx *tx;
    weir_rx *rx;
};

static struct item item_of(int sender, int number)
{
    return (struct item){(uint32_t)sender, (uint32_t)number, {(uint64_t)sender, 77}};
}

static struct account *account_of(struct moves *moves, const struct item *item)
{
    /* Without the values: of memory that nobody has written they differ from run to run. */
    CHECK(item->sender < FLOW_SENDERS_MAX && item->number < FLOW_ITEMS_MAX);
    if (moves->plan->wide) {
        CHECK_INT(item->rest[0], ==, item->sender);
        CHECK_INT(item->rest[1], ==, 77);
    }
    return &moves->accounts[item->sender][item->number];
}

static void on_drop(void *item, enum weir_drop why, void *arg)
{
    struct moves *moves = arg;

    (void)why;
    CHECK_INT(++account_of(moves, item)->dropped, ==, 1);
    moves->finished++;
}

/* ---- Senders ---- */

static int send_one(const struct part *part, const struct item *item)
{
    weir_case cases[1];
    int r;

    switch (part->moves->plan->moves) {
    case FLOW_TRIES: return weir_tx_try_send(part->tx, item);
    case FLOW_SELECTS:
        cases[0] = weir_case_send(part->tx, item);
        r = weir_select(cases, 1, WEIR_FAIR);
        return r == 0 ? cases[0].result : r;
    default: return weir_tx_send(part->tx, item);
    }
}

static void note_accepted(struct moves *moves, int sender, int number)
{
    moves->accounts[sender][number].accepted++;
    moves->accepted++;
}

static int send_batch(const struct part *part)
{
    const struct flow_plan *plan = part->moves->plan;
    struct item wide[FLOW_ITEMS_MAX];
    uint64_t narrow[FLOW_ITEMS_MAX];
    size_t sent = 99;
    int r;

    for (int i = 0; i < plan->items; i++) {
        wide[i] = item_of(part->index, i);
        memcpy(&narrow[i], &wide[i], sizeof narrow[i]);
    }
    r = weir_tx_send_many(part->tx, plan->wide ? (const void *)wide : (const void *)narrow,
                          (size_t)plan->items, &sent);
    CHECK(r == 0 ? sent == (size_t)plan->items : sent < (size_t)plan->items);
    for (size_t i = 0; i < sent; i++) note_accepted(part->moves, part->index, (int)i);
    return r;
}

static int sender(void *arg)
{
    const struct part *part = arg;
    const struct flow_plan *plan = part->moves->plan;
    int r = 0;

    if (plan->moves == FLOW_BATCHES) {
        r = send_batch(part);
        CHECK(r == 0 || flow_is_end(r) || (r == WEIR_EOVERLOAD && plan->overflow == WEIR_REJECT));
    }
    for (int i = 0; i < plan->items && plan->moves != FLOW_BATCHES; i++) {
        struct item item = item_of(part->index, i);
        r = send_one(part, &item);
        if (r == 0) note_accepted(part->moves, part->index, i);
        if (r == WEIR_EOVERLOAD && plan->moves == FLOW_TRIES) r = weir_sleep(1) < 0 ? -1 : 0;
        if (r == WEIR_EOVERLOAD) CHECK_INT(plan->overflow, ==, WEIR_REJECT);
        if (r < 0 && r != WEIR_EOVERLOAD) break;
    }
    weir_tx_drop(part->tx);
    return 0;
}

/* ---- Receivers ---- */

static void note_received(const struct part *part, const struct item *item)
{
    struct moves *moves = part->moves;
    int *last = &moves->last[part->index][item->sender];

    CHECK_INT(++account_of(moves, item)->received, ==, 1);
    CHECK_INT(*last, <, (int)item->number);
    *last = (int)item->number;
    if (!moves->plan->counts_done) return;
    /* Finished before it is marked: whoever learns of the mark learns of this. */
    moves->finished++;
    weir_rx_done(part->rx, 1);
}

/* How many, or an error; 0: none just now. */
static int receive_some(const struct part *part, struct item items[FLOW_ITEMS_MAX])
{
    bool wide = part->moves->plan->wide;
    uint64_t narrow[FLOW_ITEMS_MAX] = {0};
    void *to = wide ? (void *)items : (void *)narrow;
    weir_case cases[1];
    int r;

    switch (part->moves->plan->moves) {
    case FLOW_BATCHES: r = weir_rx_recv_many(part->rx, to, 2); break;
    case FLOW_TRIES: r = weir_rx_try_recv(part->rx, to); break;
    case FLOW_SELECTS:
        cases[0] = weir_case_recv(part->rx, to);
        r = weir_select(cases, 1, WEIR_FAIR);
        if (r == 0) r = cases[0].result;
        if (r == 0) r = 1;
        break;
    default:
        r = weir_rx_recv(part->rx, to);
        if (r == 0) r = 1;
    }
    for (int i = 0; i < r && !wide; i++) memcpy(&items[i], &narrow[i], sizeof narrow[i]);
    return r;
}

static int receiver(void *arg)
{
    const struct part *part = arg;
    const struct flow_plan *plan = part->moves->plan;
    struct item items[FLOW_ITEMS_MAX];
    int count = 0, r;

    for (;;) {
        r = receive_some(part, items);
        for (int i = 0; i < r; i++) note_received(part, &items[i]);
        if (r < 0) break;
        count += r;
        if (plan->receivers_leave && count >= 2) break;
        if (r == 0 && weir_sleep(1) < 0) break;
    }
    CHECK(r >= 0 || flow_is_end(r));
    weir_rx_drop(part->rx);
    return 0;
}

/* ---- Others ---- */

static int canceller(void *arg)
{
    const struct part *part = arg;

    if (weir_yield() < 0) return 0;
    (void)weir_task_cancel(part->moves->first_receiver, "the program says so");
    return 0;
}

static int closer(void *arg)
{
    const struct part *part = arg;

    if (weir_yield() == 0) weir_tx_close(part->tx);
    weir_tx_drop(part->tx);
    return 0;
}

static int resizer(void *arg)
{
    const struct part *part = arg;
    static const size_t sizes[] = {1, 3, 2};

    for (unsigned i = 0; i < 3 && weir_yield() == 0; i++) {
        CHECK_OK(weir_chan_resize(part->tx, sizes[i]));
    }
    weir_tx_drop(part->tx);
    return 0;
}

/* Waits until all that was accepted before is done. */
static int finisher(void *arg)
{
    const struct part *part = arg;
    struct moves *moves = part->moves;
    int accepted = moves->accepted;
    int r = weir_tx_wait_done(part->tx);

    CHECK(r == 0 || flow_is_end(r));
    if (r == 0) CHECK_INT(moves->finished, >=, accepted);
    weir_tx_drop(part->tx);
    return 0;
}

/* ---- The program ---- */

static void spawn_with_tx(struct moves *moves, int index, weir_task_fn fn, weir_tx *tx)
{
    struct part part = {.moves = moves, .index = index};

    CHECK_OK(weir_tx_copy(tx, &part.tx));
    if (!flow_spawn(moves->scope, index, fn, &part, sizeof part, NULL)) weir_tx_drop(part.tx);
}

static void spawn_receiver(struct moves *moves, int index, weir_rx *rx)
{
    struct part part = {.moves = moves, .index = index};
    weir_task task;

    CHECK_OK(weir_rx_copy(rx, &part.rx));
    if (!flow_spawn(moves->scope, index + 1, receiver, &part, sizeof part, &task)) {
        weir_rx_drop(part.rx);
    } else if (index == 0) {
        moves->first_receiver = task;
    }
}

static void spawn_all(struct moves *moves, weir_tx *tx, weir_rx *rx)
{
    const struct flow_plan *plan = moves->plan;
    struct part part = {.moves = moves};

    for (int i = 0; i < plan->receivers; i++) spawn_receiver(moves, i, rx);
    for (int i = 0; i < plan->senders; i++) spawn_with_tx(moves, i, sender, tx);
    if (plan->closes) spawn_with_tx(moves, 1, closer, tx);
    if (plan->resizes) spawn_with_tx(moves, 0, resizer, tx);
    if (plan->counts_done) spawn_with_tx(moves, 1, finisher, tx);
    if (plan->cancels_one && moves->first_receiver.ref) {
        (void)flow_spawn(moves->scope, 0, canceller, &part, sizeof part, NULL);
    }
}

static void settle_accounts(struct moves *moves)
{
    for (int s = 0; s < FLOW_SENDERS_MAX; s++) {
        for (int i = 0; i < FLOW_ITEMS_MAX; i++) {
            const struct account *account = &moves->accounts[s][i];
            CHECK_INT(account->received + account->dropped, ==, account->accepted);
        }
    }
}

/* What the channel says of itself when its tasks have ended. */
static void check_figures(const struct moves *moves, weir_tx *tx)
{
    weir_chan_figures figures;
    int received = 0, accepted = 0;

    weir_tx_figures(tx, &figures);
    for (int s = 0; s < FLOW_SENDERS_MAX; s++) {
        for (int i = 0; i < FLOW_ITEMS_MAX; i++) {
            received += moves->accounts[s][i].received;
            accepted += moves->accounts[s][i].accepted;
        }
    }
    CHECK_INT(figures.received, ==, received);
    CHECK_INT(figures.accepted, ==, accepted);
    CHECK_INT(figures.senders_waiting + figures.receivers_waiting, ==, 0);
}

int flow_move(const struct flow_plan *plan)
{
    struct moves moves = {.plan = plan};
    weir_scope *outer = flow_scope_open();
    weir_chan_spec spec = {
        .name = "items",
        .capacity = plan->capacity,
        .overflow = plan->overflow,
        .on_close = plan->on_close,
        .capacity_max = plan->resizes ? 3 : 0,
        .counts_done = plan->counts_done,
        .on_drop = on_drop,
        .keep_arg = &moves,
    };
    weir_tx *tx = NULL, *look = NULL;
    weir_rx *rx = NULL;
    int r;

    if (!outer) return 0;
    memset(moves.last, -1, sizeof moves.last);
    r = weir_chan_open_sized(outer, sizeof spec, &spec,
                             plan->wide ? sizeof(struct item) : sizeof(uint64_t), &tx, &rx);
    CHECK(r == 0 || r == WEIR_ECANCELED);
    moves.scope = r == 0 ? flow_scope_open() : NULL;
    if (moves.scope) {
        spawn_all(&moves, tx, rx);
        weir_rx_drop(rx);
        if (plan->closes) CHECK_OK(weir_tx_copy(tx, &look));
        weir_tx_drop(tx);
        flow_scope_close(moves.scope);
        if (look) check_figures(&moves, look);
    }
    flow_scope_close(outer);
    settle_accounts(&moves);
    return 0;
}

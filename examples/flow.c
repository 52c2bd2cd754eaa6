/* flow.c - the pieces of code of docs/guide/flow.md, as one program that runs them.
 *
 *     flow
 *
 * Each stop is a function; it says what happened, and the program ends with status 1 if that is
 * not what the guide promises. A test checks that the guide shows this code.
 */
#include <errno.h>
#include <pthread.h>
#include <unistd.h>
#include <weir/weir.h>

#include "options.h"

/* ---- Channels ---- */

struct order {
    int id, amount;
};

typedef WEIR_TX(struct order) order_tx;
typedef WEIR_RX(struct order) order_rx;

static int take_orders(order_tx tx, int count)
{
    int r = 0;

    for (int i = 1; i <= count && r == 0; i++) {
        r = weir_send(tx, &(struct order){.id = i, .amount = 10 * i}); /* waits while it is full */
    }
    weir_tx_drop(tx.end); /* the last sender is gone: receivers drain, then learn it */
    return r;
}

struct cashier {
    order_rx orders;
    int *total;
};

static int handle_orders(void *arg)
{
    struct cashier *self = arg;
    struct order order;
    int r;

    while ((r = weir_recv(self->orders, &order)) == 0) *self->total += order.amount;
    return r == WEIR_ECLOSED ? 0 : r; /* all of them were received */
}

static int sell(int *ret_total)
{
    struct cashier cashier = {.total = ret_total};
    order_tx tx;
    int result;

    WEIR_SCOPE(shop, &result, .name = "shop", .on_failure = WEIR_FAIL_FAST, .max_tasks = 1,
               .overflow = WEIR_REJECT, .deadline_ms = 5000) {
        int r = weir_chan_open(shop,
                               &(weir_chan_spec){.name = "orders",
                                                 .capacity = 2,
                                                 .overflow = WEIR_WAIT,
                                                 .on_close = WEIR_DRAIN,
                                                 .latency_ms = 100},
                               &tx, &cashier.orders);
        if (r == 0) r = weir_spawn(shop, handle_orders, &cashier, sizeof cashier);
        if (r == 0) r = take_orders(tx, 10);
        if (r < 0) weir_scope_cancel(shop, r, "orders could not be taken");
    }
    return result;
}

/* What nobody received is given back here, whatever the reason. */
static void forget_order(void *item, enum weir_drop why, void *keep_arg)
{
    const struct order *order = item;
    int *dropped = keep_arg;

    if (why == WEIR_DROPPED_OVERFLOW) *dropped += order->id;
}

/* The newest figures count: the oldest is dropped when nobody keeps up. */
static int keep_the_newest(int *ret_first, int *ret_dropped)
{
    struct order order = {0, 0};
    order_tx tx;
    order_rx rx;
    int result;

    WEIR_SCOPE(scope, &result, .name = "newest", .on_failure = WEIR_FAIL_FAST, .max_tasks = 1,
               .overflow = WEIR_REJECT, .deadline_ms = 5000) {
        int r = weir_chan_open(scope,
                               &(weir_chan_spec){.name = "newest",
                                                 .capacity = 2,
                                                 .overflow = WEIR_DROP_OLDEST,
                                                 .on_close = WEIR_DISCARD,
                                                 .on_drop = forget_order,
                                                 .keep_arg = ret_dropped},
                               &tx, &rx);
        for (int id = 1; id <= 4 && r == 0; id++) r = weir_send(tx, &(struct order){.id = id});
        if (r == 0) r = weir_recv(rx, &order);
        if (r < 0) weir_scope_cancel(scope, r, "nothing came");
    }
    *ret_first = order.id;
    return result;
}

/* A thread that is not a worker: it never waits, it is told that there is no room. */
static void *foreign_thread(void *arg)
{
    weir_tx *tx = arg;
    struct order order = {.id = 7, .amount = 70};
    int r = weir_tx_try_send(tx, &order);

    weir_tx_drop(tx);
    return r == 0 ? NULL : arg;
}

static int send_from_a_thread(int *ret_id)
{
    struct order order = {0, 0};
    pthread_t thread;
    order_tx tx;
    order_rx rx;
    int result;

    WEIR_SCOPE(scope, &result, .name = "foreign", .on_failure = WEIR_FAIL_FAST, .max_tasks = 1,
               .overflow = WEIR_REJECT, .deadline_ms = 5000) {
        int r = weir_chan_open(scope,
                               &(weir_chan_spec){.name = "foreign",
                                                 .capacity = 4,
                                                 .overflow = WEIR_REJECT,
                                                 .on_close = WEIR_DRAIN,
                                                 .any_thread = true},
                               &tx, &rx);
        if (r == 0 && pthread_create(&thread, NULL, foreign_thread, tx.end) != 0) r = -EAGAIN;
        if (r == 0) {
            r = weir_recv(rx, &order);
            (void)pthread_join(thread, NULL); /* it has sent: it ends at once */
            weir_rx_drop(rx.end);
        }
        if (r < 0) weir_scope_cancel(scope, r, "nothing came");
    }
    *ret_id = order.id;
    return result;
}

/* ---- Select ---- */

struct desk {
    order_rx orders;
    weir_event *closing;
    int handled, ticks;
};

/* Orders, until it is time to go; and something to do now and then. A cancel and the deadline in
 * force end it, too: they are always among the cases. */
static int serve(struct desk *desk)
{
    struct order order;

    for (;;) {
        weir_case cases[] = {
            WEIR_CASE_RECV(desk->orders, &order),
            WEIR_CASE_EVENT(desk->closing),
            WEIR_CASE_TIMER(10),
        };
        int r = weir_select(cases, 3, WEIR_FAIR);

        if (r < 0) return r;                             /* no case was done */
        if (cases[r].result < 0) return cases[r].result; /* that channel is over */
        if (r == 0) desk->handled++;
        if (r == 1) return 0;
        if (r == 2) desk->ticks++;
    }
}

static int close_later(void *arg)
{
    int r = weir_sleep(50);
    weir_event_set(*(weir_event **)arg);
    return r;
}

static int select_one_of_several(int *ret_handled, int *ret_ticks)
{
    struct desk desk = {.handled = 0};
    order_tx tx;
    int result;

    WEIR_SCOPE(scope, &result, .name = "desk", .on_failure = WEIR_FAIL_FAST, .max_tasks = 1,
               .overflow = WEIR_REJECT, .deadline_ms = 5000) {
        weir_chan_spec spec = {
            .name = "desk", .capacity = 4, .overflow = WEIR_WAIT, .on_close = WEIR_DRAIN};
        int r = weir_chan_open(scope, &spec, &tx, &desk.orders);
        if (r == 0) r = weir_event_open(scope, "closing", &desk.closing);
        for (int i = 0; i < 3 && r == 0; i++) r = weir_send(tx, &(struct order){.id = i});
        if (r == 0) r = weir_spawn(scope, close_later, &desk.closing, sizeof desk.closing);
        if (r == 0) r = serve(&desk);
        if (r < 0) weir_scope_cancel(scope, r, "the desk could not be served");
    }
    *ret_handled = desk.handled;
    *ret_ticks = desk.ticks;
    return result;
}

/* ---- One value to many ---- */

struct settings {
    int limit;
};

static int follow_settings(void *arg)
{
    weir_watch *watch = *(weir_watch **)arg;
    struct settings settings = {0};
    uint64_t version = 0; /* none seen yet: the first call returns at once */
    int r = 0;

    while (r == 0 && settings.limit < 3) r = weir_watch_changed(watch, &version, &settings);
    return r;
}

static int change_settings(void)
{
    struct settings settings = {.limit = 1};
    weir_watch *watch;
    int result;

    WEIR_SCOPE(scope, &result, .name = "settings", .on_failure = WEIR_FAIL_FAST, .max_tasks = 4,
               .overflow = WEIR_REJECT, .deadline_ms = 5000) {
        int r = weir_watch_open(scope, "settings", &settings, sizeof settings, &watch);
        for (int i = 0; i < 4 && r == 0; i++) {
            r = weir_spawn(scope, follow_settings, &watch, sizeof watch);
        }
        while (r == 0 && settings.limit < 3) {
            settings.limit++;
            weir_watch_set(watch, &settings); /* each gets a copy of its own */
        }
        if (r < 0) weir_scope_cancel(scope, r, "nobody follows");
    }
    return result;
}

static int tell_subscribers(int *ret_missed)
{
    static const weir_broadcast_spec news = {
        .name = "news", .value_bytes = sizeof(int), .history = 4, .subscribers_max = 2};
    weir_subscriber *slow;
    weir_broadcast *broadcast;
    int result, value = 0;

    WEIR_SCOPE(scope, &result, .name = "news", .on_failure = WEIR_FAIL_FAST, .max_tasks = 1,
               .overflow = WEIR_REJECT, .deadline_ms = 5000) {
        int r = weir_broadcast_open(scope, &news, &broadcast);
        if (r == 0) r = weir_broadcast_subscribe(broadcast, WEIR_LAG_SKIP, false, &slow);
        for (int i = 0; i < 6 && r == 0; i++) r = weir_broadcast_publish(broadcast, &i);
        if (r == 0) r = weir_subscriber_next(slow, &value);
        if (r < 0) weir_scope_cancel(scope, r, "no news");
        *ret_missed = r; /* the history has four values: two were lost, and it is told so */
    }
    return result;
}

/* ---- Versions ---- */

struct routes {
    int count;
    int ports[8];
};

static int add_route(void *value, void *arg)
{
    struct routes *routes = value; /* a copy of the latest: nobody sees it yet */
    const int *port = arg;

    if (routes->count == 8) return -ENOSPC;
    routes->ports[routes->count++] = *port;
    return 0;
}

static int change_routes(int *ret_held, int *ret_latest)
{
    struct routes none = {.count = 0};
    weir_snapshot *snapshot;
    int result, port = 8080;

    WEIR_SCOPE(scope, &result, .name = "routes", .on_failure = WEIR_FAIL_FAST, .max_tasks = 1,
               .overflow = WEIR_REJECT, .deadline_ms = 5000) {
        int r = weir_snapshot_open(scope,
                                   &(weir_snapshot_spec){.name = "routes",
                                                         .value_bytes = sizeof(struct routes),
                                                         .versions_max = 4},
                                   &none, &snapshot);
        if (r == 0) {
            const struct routes *held = weir_snapshot_take(snapshot), *latest;

            r = weir_snapshot_update(snapshot, add_route, &port);
            latest = weir_snapshot_take(snapshot);
            *ret_held = held->count; /* what was taken stays as it is */
            *ret_latest = latest->count;
            weir_snapshot_give_back(held);
            weir_snapshot_give_back(latest);
        }
        if (r < 0) weir_scope_cancel(scope, r, "no routes");
    }
    return result;
}

/* ---- Elsewhere ---- */

enum { USERS, BULK };

static int checksum(void *data)
{
    unsigned *sum = data;
    for (int i = 0; i < 1000 && !weir_pool_told(); i++) *sum = *sum * 31 + (unsigned)i;
    return 0;
}

static int compute_elsewhere(unsigned *ret_sum)
{
    static const weir_pool_class classes[] = {
        [USERS] = {.name = "users", .weight = 9, .queue_max = 16, .latency_ms = 50},
        [BULK] = {.name = "bulk", .weight = 1, .queue_max = 64, .running_max = 1},
    };
    weir_pool *pool;
    int result;

    WEIR_SCOPE(scope, &result, .name = "elsewhere", .on_failure = WEIR_FAIL_FAST, .max_tasks = 1,
               .overflow = WEIR_REJECT, .deadline_ms = 5000) {
        int r = weir_pool_open(scope,
                               &(weir_pool_spec){.name = "compute",
                                                 .threads_max = 2,
                                                 .overflow = WEIR_REJECT,
                                                 .on_close = WEIR_DRAIN,
                                                 .classes = classes,
                                                 .class_count = 2},
                               &pool);
        if (r == 0) r = weir_pool_run(pool, USERS, checksum, ret_sum, sizeof *ret_sum);
        if (r < 0) weir_scope_cancel(scope, r, "nothing was computed");
    }
    return result;
}

/* ---- Many inputs ---- */

static int measure(size_t index, const void *input, void *result, void *keep_arg)
{
    const char *const *word = input;
    int *length = result;

    (void)index, (void)keep_arg;
    *length = (int)strlen(*word);
    return *length > 0 ? 0 : -EINVAL;
}

static int measure_all(int *lengths, int *errors, weir_fan_tally *ret_tally)
{
    static const char *const words[4] = {"weir", "", "of", "water"};

    return weir_fan_out(&(weir_fan_spec){.name = "measure",
                                         .in_flight_max = 2,
                                         .policy = WEIR_FAN_COLLECT,
                                         .fn = measure,
                                         .count = 4,
                                         .inputs = words,
                                         .input_bytes = sizeof words[0],
                                         .results = lengths,
                                         .result_bytes = sizeof lengths[0],
                                         .errors = errors},
                        ret_tally);
}

/* ---- Actors ---- */

struct account {
    int balance;
};

/* Its state is touched by nobody else. An answer that says no is an answer; only a negative result
 * is a failure, after which it is started again. */
static int account_handle(void *state, const void *message, void *reply, void *keep_arg)
{
    struct account *account = state;
    const int *amount = message;
    int *balance = reply;

    (void)keep_arg;
    if (*amount == 0) return -EINVAL;
    account->balance += *amount;
    if (balance) *balance = account->balance; /* somebody waits for it */
    return 0;
}

static int keep_an_account(int *ret_balance, int *ret_crashed)
{
    int ten = 10, nothing = 0, five = 5;
    weir_actor *account;
    int result;

    WEIR_SCOPE(scope, &result, .name = "bank", .on_failure = WEIR_FAIL_FAST, .max_tasks = 1,
               .overflow = WEIR_REJECT, .deadline_ms = 5000) {
        int r = weir_actor_open(
            scope,
            &(weir_actor_spec){.name = "account",
                               .mailbox_max = 8,
                               .overflow = WEIR_WAIT,
                               .on_restart = WEIR_RESTART_KEEP,
                               .restart = {.max_restarts = 3, .window_ms = 10000, .backoff_ms = 1},
                               .on_message = account_handle,
                               .message_bytes = sizeof(int),
                               .reply_bytes = sizeof(int),
                               .state_bytes = sizeof(struct account)},
            &account);
        if (r == 0) r = weir_actor_cast(account, &ten);
        if (r == 0) *ret_crashed = weir_actor_call(account, &nothing, ret_balance);
        if (r == 0) r = weir_actor_call(account, &five, ret_balance);
        if (r < 0) weir_scope_cancel(scope, r, "the account is gone");
    }
    return result;
}

/* ---- All of it ---- */

static int wrong;

static void expect(const char *what, int64_t actual, int64_t expected)
{
    printf("%-32s %lld%s%s\n", what, (long long)actual, expected < 0 ? " " : "",
           expected < 0 ? weir_error_name((int)actual) : "");
    if (actual == expected) return;
    wrong++;
    printf("    expected %lld\n", (long long)expected);
}

static int tour(void *arg)
{
    int total = 0, first = 0, dropped = 0, id = 0, handled = 0, ticks = 0, missed = 0;
    int held = -1, latest = -1;
    int lengths[4] = {0}, errors[4] = {0}, balance = 0, crashed = 0;
    weir_fan_tally tally;
    unsigned sum = 1;

    (void)arg;
    expect("sell", sell(&total), 0);
    expect("    the total", total, 550);
    expect("keep_the_newest", keep_the_newest(&first, &dropped), 0);
    expect("    the oldest that is left", first, 3);
    expect("    what was dropped, added up", dropped, 3);
    expect("send_from_a_thread", send_from_a_thread(&id), 0);
    expect("    the order", id, 7);
    expect("select_one_of_several", select_one_of_several(&handled, &ticks), 0);
    expect("    orders", handled, 3);
    expect("    it has ticked", ticks > 0, 1);
    expect("change_settings", change_settings(), 0);
    expect("tell_subscribers", tell_subscribers(&missed), 0);
    expect("    values it missed", missed, 2);
    expect("change_routes", change_routes(&held, &latest), 0);
    expect("    routes that were taken", held, 0);
    expect("    routes of the latest", latest, 1);
    expect("compute_elsewhere", compute_elsewhere(&sum), 0);
    expect("measure_all", measure_all(lengths, errors, &tally), -EINVAL);
    expect("    finished", (int64_t)tally.finished, 3);
    expect("    failed", (int64_t)tally.failed, 1);
    expect("    the last length", lengths[3], 5);
    expect("keep_an_account", keep_an_account(&balance, &crashed), 0);
    expect("    the message that crashed it", crashed, WEIR_ECRASHED);
    expect("    the balance", balance, 15);
    return 0;
}

int main(int argc, char **argv)
{
    const struct option_number options[] = {{0}};
    int at = options_read(argc, argv, "flow", options);
    int r;

    if (at < argc) return fprintf(stderr, "flow: unexpected argument '%s'\n", argv[at]), 2;
    r = weir_run(&(weir_config){.name = "flow", .workers = 2, .log_level = WEIR_LOG_OFF}, tour,
                 NULL);
    if (r < 0) fprintf(stderr, "flow: %s\n", weir_strerror(r));
    return r < 0 || wrong > 0;
}

/* orders.c - a dependency bundle: what several tasks share travels in one struct.
 *
 *     orders [--orders N] [--no-prices] [--map] [--metrics]
 *
 * Orders go through a channel to workers, which price each of them on a pool and add it up. What
 * the workers need is one struct, handed over by reference; the price service in it is optional:
 * without it orders are still taken, and say that they are not priced. --map prints every boundary
 * of the program to standard error while it runs, --metrics its figures. Exit status: 0 all orders
 * were handled, 1 not, 2 wrong usage.
 */
#include <unistd.h>
#include <weir/weir.h>

#include "options.h"

enum { WORKERS = 4, QUEUE_MAX = 16, PRICING_MS_MAX = 1000 };

struct order {
    int number;
    int amount;
};

typedef WEIR_TX(struct order) order_tx;
typedef WEIR_RX(struct order) order_rx;

/* What handling orders needs, and nothing else. Made once, by whoever owns the scope in which all
 * of it lives; handed to tasks by reference, which outlive none of it. */
struct order_deps {
    order_rx orders;
    weir_mutex *ledger_lock;
    struct ledger *ledger;
    weir_pool *pricing; /* optional: NULL means that orders are taken without a price */
};

struct ledger {
    int orders, unpriced;
    int64_t total;
};

static int price_of(void *data)
{
    int *amount = data;
    *amount *= 3; /* stands for work that keeps a processor busy */
    return 0;
}

/* The one place that knows what is done without the service. */
static int price(const struct order_deps *deps, const struct order *order, int *ret_price)
{
    int r = WEIR_ECANCELED;

    *ret_price = order->amount;
    if (!deps->pricing) return WEIR_ECLOSED;
    WEIR_DEADLINE(PRICING_MS_MAX)
        r = weir_pool_run(deps->pricing, 0, price_of, ret_price, sizeof *ret_price);
    return r;
}

static int handle(const struct order_deps *deps, const struct order *order)
{
    int amount;
    int priced = price(deps, order, &amount);
    int r = weir_mutex_lock(deps->ledger_lock);

    if (r < 0) return r;
    deps->ledger->orders++;
    if (priced == 0) deps->ledger->total += amount;
    if (priced < 0) deps->ledger->unpriced++;
    weir_mutex_unlock(deps->ledger_lock);
    return priced == WEIR_ECANCELED ? priced : 0;
}

static int worker(void *arg)
{
    const struct order_deps *deps = *(struct order_deps **)arg;
    struct order order;
    int r = 0;

    WEIR_NO_DEADLINE("until the last order was taken") {
        while (r == 0) {
            r = weir_recv(deps->orders, &order);
            if (r == 0) r = handle(deps, &order);
        }
    }
    return r == WEIR_ECLOSED ? 0 : r;
}

struct program {
    int orders, no_prices, map, metrics;
    struct ledger ledger;
};

static int open_pricing(weir_scope *scope, weir_pool **ret_pool)
{
    static const weir_pool_class classes[] = {
        {.name = "orders", .weight = 1, .queue_max = QUEUE_MAX, .latency_ms = 50}};

    return weir_pool_open(scope,
                          &(weir_pool_spec){.name = "pricing",
                                            .threads_max = 2,
                                            .overflow = WEIR_WAIT,
                                            .on_close = WEIR_DRAIN,
                                            .classes = classes,
                                            .class_count = 1},
                          ret_pool);
}

/* Everything that orders need, in the scope that owns it. */
static int open_deps(weir_scope *scope, struct program *program, struct order_deps *deps,
                     order_tx *ret_tx)
{
    static const weir_chan_spec spec = {.name = "orders",
                                        .capacity = QUEUE_MAX,
                                        .overflow = WEIR_WAIT,
                                        .on_close = WEIR_DRAIN,
                                        .latency_ms = 100};
    int r = weir_chan_open(scope, &spec, ret_tx, &deps->orders);

    if (r < 0) return r;
    deps->ledger = &program->ledger;
    r = weir_mutex_open(scope, "ledger", &deps->ledger_lock);
    if (r < 0 || program->no_prices) return r;
    r = open_pricing(scope, &deps->pricing);
    if (r < 0) fprintf(stderr, "orders: no prices: %s\n", weir_strerror(r)); /* goes on without */
    return 0;
}

static int take_orders(weir_scope *scope, struct program *program, struct order_deps *deps,
                       order_tx tx)
{
    int r = 0;

    for (int i = 0; i < WORKERS && r == 0; i++) r = weir_spawn(scope, worker, &deps, sizeof deps);
    for (int i = 0; i < program->orders && r == 0; i++) {
        struct order order = {.number = i, .amount = i % 10};
        r = weir_send(tx, &order);
    }
    if (r == 0 && program->map) r = weir_map(STDERR_FILENO, WEIR_MAP_TEXT);
    weir_tx_close(tx.end);
    return r;
}

static int run(void *arg)
{
    struct program *program = arg;
    struct order_deps deps = {.pricing = NULL};
    order_tx tx;
    int result, opened, worked;

    WEIR_SCOPE(shop, &result, .name = "shop", .on_failure = WEIR_FAIL_FAST, .max_tasks = 1,
               .overflow = WEIR_REJECT) {
        opened = open_deps(shop, program, &deps, &tx);
        WEIR_SCOPE(workers, &worked, .name = "workers", .on_failure = WEIR_FAIL_FAST,
                   .max_tasks = WORKERS, .overflow = WEIR_REJECT) {
            int r = opened < 0 ? opened : take_orders(workers, program, &deps, tx);
            if (r < 0) weir_scope_cancel(workers, r, "orders could not be taken");
        } /* the workers have ended: nobody holds the bundle any more */
        if (worked < 0) weir_scope_cancel(shop, worked, "workers failed");
    }
    if (result == 0 && program->metrics) {
        result = weir_metrics_write(STDERR_FILENO, WEIR_METRICS_PROMETHEUS);
    }
    return result;
}

int main(int argc, char **argv)
{
    static struct program program;
    const struct option_number options[] = {
        {"--orders", &program.orders, 1000, 1, 1000000, "orders to handle"},
        {"--no-prices", &program.no_prices, 0, 0, 0, "without the price service"},
        {"--map", &program.map, 0, 0, 0, "print the boundaries"},
        {"--metrics", &program.metrics, 0, 0, 0, "print the figures"},
        {0},
    };
    int first = options_read(argc, argv, "orders [OPTION]...", options);
    int r;

    if (first < argc) return fprintf(stderr, "orders: unexpected argument '%s'\n", argv[first]), 2;
    r = weir_run(&(weir_config){.name = "orders"}, run, &program);
    if (r < 0) return fprintf(stderr, "orders: %s\n", weir_strerror(r)), 1;
    printf("%d orders, %d of them without a price, total %lld\n", program.ledger.orders,
           program.ledger.unpriced, (long long)program.ledger.total);
    return program.ledger.orders == program.orders ? 0 : 1;
}

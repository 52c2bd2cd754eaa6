/* chan_sides_test.c - channels whose senders and receivers are on different workers. */
#include <string.h>

#include "base/atomic.h"
#include "unit/flow/flow_test.h"

static void spawn_on(weir_scope *scope, int worker, weir_task_fn fn, const void *arg, size_t bytes)
{
    CHECK_OK(weir_task_spawn(scope,
                             &(weir_task_spec){.fn = fn,
                                               .arg = arg,
                                               .arg_bytes = bytes,
                                               .place = WEIR_PLACE_WORKER,
                                               .worker = worker % test_workers()},
                             NULL));
}

/* ---- Order ---- */

enum { BIG_BYTES = 24 }; /* no word, and not a size that is copied in one go */

struct crossing {
    weir_tx *tx;
    weir_rx *rx;
    size_t item_bytes;
    int count;
    int yield_every; /* 0: never */
};

static int send_in_order(void *arg)
{
    struct crossing *crossing = arg;
    unsigned char item[BIG_BYTES] = {0};

    for (int i = 0; i < crossing->count; i++) {
        int r;
        if (crossing->item_bytes > sizeof i) item[crossing->item_bytes - 1] = (unsigned char)i;
        memcpy(item, &i, sizeof i);
        r = weir_tx_send(crossing->tx, item);
        if (r < 0) return r;
        if (crossing->yield_every && i % crossing->yield_every == 0) r = weir_yield();
        if (r < 0) return r;
    }
    return 0;
}

static int receive_in_order(void *arg)
{
    struct crossing *crossing = arg;
    unsigned char item[BIG_BYTES] = {0};

    for (int i = 0; i < crossing->count; i++) {
        int number, r = weir_rx_recv(crossing->rx, item);
        if (r < 0) return r;
        memcpy(&number, item, sizeof number);
        CHECK_INT(number, ==, i);
        if (crossing->item_bytes > sizeof number) {
            CHECK_INT(item[crossing->item_bytes - 1], ==, (unsigned char)i);
        }
        if (crossing->yield_every && i % (crossing->yield_every + 6) == 0) r = weir_yield();
        if (r < 0) return r;
    }
    return 0;
}

static int cross(size_t capacity, size_t item_bytes, int yield_every)
{
    weir_chan_spec spec = {.name = "crossing",
                           .capacity = capacity,
                           .overflow = WEIR_WAIT,
                           .on_close = WEIR_DRAIN,
                           .item_bytes = item_bytes};
    struct crossing crossing = {
        .item_bytes = item_bytes, .count = 3000, .yield_every = yield_every};
    weir_chan_figures figures;
    int result;

    test_note("capacity %zu, %zu bytes", capacity, item_bytes);
    FLOW_SCOPE(outer, &result)
    {
        CHECK_OK(weir_chan_open_sized(outer, sizeof spec, &spec, 0, &crossing.tx, &crossing.rx));
        WEIR_SCOPE(scope, &result, .name = "ends", .on_failure = WEIR_FAIL_FAST, .max_tasks = 2,
                   .overflow = WEIR_REJECT) {
            spawn_on(scope, 0, send_in_order, &crossing, sizeof crossing);
            spawn_on(scope, 1, receive_in_order, &crossing, sizeof crossing);
        }
        CHECK_OK(result);
        weir_tx_figures(crossing.tx, &figures);
        CHECK_INT(figures.accepted, ==, 3000);
        CHECK_INT(figures.received, ==, 3000);
        CHECK_INT(figures.depth, ==, 0);
        CHECK_INT(figures.depth_max, >=, 1);
        CHECK_INT(figures.depth_max, <=, capacity);
    }
    return result;
}

FLOW_TEST(chan_between_workers_keeps_order_at_every_capacity)
{
    static const size_t capacities[] = {1, 2, 3, 63, 64, 65, 128, 1000};

    for (size_t i = 0; i < sizeof capacities / sizeof *capacities; i++) {
        CHECK_OK(cross(capacities[i], sizeof(uint64_t), 0));
        CHECK_OK(cross(capacities[i], sizeof(uint32_t), 7));
        CHECK_OK(cross(capacities[i], BIG_BYTES, 100));
    }
    return 0;
}

/* ---- Conservation ---- */

struct storm {
    int_tx tx, other_tx;
    int_rx rx, other_rx;
    int from, count;
    bool selects;
};

static ATOM(long) storm_sum, storm_count;

/* A send that was interrupted has moved nothing: it is made again. */
static int send_despite_timeouts(void *arg)
{
    struct storm *storm = arg;

    for (int i = storm->from; i < storm->from + storm->count; i++) {
        int r;
        do {
            r = WEIR_ETIMEDOUT;
            WEIR_DEADLINE(1) {
                if (storm->selects) {
                    weir_case cases[] = {WEIR_CASE_SEND(storm->tx, &i),
                                         WEIR_CASE_SEND(storm->other_tx, &i)};
                    r = weir_select(cases, 2, WEIR_FAIR);
                } else {
                    r = weir_send(storm->tx, &i);
                }
            }
        } while (r == WEIR_ETIMEDOUT);
        if (r < 0) return r;
        /* Long enough that receivers are interrupted as well. */
        if (i % 50 == 0) r = weir_sleep(2);
        if (r < 0) return r;
    }
    return 0;
}

static int receive_despite_timeouts(void *arg)
{
    struct storm *storm = arg;

    while (atom_load(&storm_count) > 0) {
        int item = 0, r = WEIR_ETIMEDOUT;
        WEIR_DEADLINE(1) {
            if (storm->selects) {
                weir_case cases[] = {WEIR_CASE_RECV(storm->rx, &item),
                                     WEIR_CASE_RECV(storm->other_rx, &item)};
                r = weir_select(cases, 2, WEIR_FAIR);
            } else {
                r = weir_recv(storm->rx, &item);
            }
        }
        if (r == WEIR_ETIMEDOUT) continue;
        if (r < 0) return r;
        (void)atom_add(&storm_sum, item);
        (void)atom_sub(&storm_count, 1);
    }
    return 0;
}

/* What others see of it adds up at any time. */
static int watch_figures(void *arg)
{
    struct storm *storm = arg;

    while (atom_load(&storm_count) > 0) {
        weir_chan_figures f;
        int r;
        weir_tx_figures(storm->tx.end, &f);
        CHECK_INT(f.accepted, ==, f.received + f.depth);
        CHECK_INT(f.depth, <=, f.depth_max);
        CHECK_INT(f.depth_max, <=, 8);
        r = weir_yield();
        if (r < 0) return r;
    }
    return 0;
}

static int resize_often(void *arg)
{
    struct storm *storm = arg;

    for (size_t capacity = 1; atom_load(&storm_count) > 0; capacity = capacity % 8 + 1) {
        int r = weir_chan_resize(storm->tx.end, capacity);
        if (r == 0) r = weir_sleep(1);
        if (r < 0) return r;
    }
    return 0;
}

FLOW_TEST(chan_between_workers_loses_nothing_to_interruptions_selects_and_resizes)
{
    enum { SENDERS = 4, RECEIVERS = 4, EACH = 400, ALL = SENDERS * EACH };
    weir_chan_spec spec = {.name = "storm",
                           .capacity = 4,
                           .capacity_max = 8,
                           .overflow = WEIR_WAIT,
                           .on_close = WEIR_DRAIN};
    struct storm storm = {.count = EACH};
    int result;

    atom_store(&storm_sum, 0);
    atom_store(&storm_count, ALL);
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_chan_open(scope, &spec, &storm.tx, &storm.rx));
        CHECK_OK(weir_chan_open(scope, &spec, &storm.other_tx, &storm.other_rx));
        spawn_on(scope, 0, watch_figures, &storm, sizeof storm);
        spawn_on(scope, 1, resize_often, &storm, sizeof storm);
        for (int i = 0; i < SENDERS; i++) {
            storm.from = i * EACH;
            storm.selects = i == 0;
            spawn_on(scope, i / 2, send_despite_timeouts, &storm, sizeof storm);
        }
        for (int i = 0; i < RECEIVERS; i++) {
            /* One of each kind on each worker: what is sent to the other is received too. */
            storm.selects = i % 2 == 0;
            spawn_on(scope, i / 2, receive_despite_timeouts, &storm, sizeof storm);
        }
    }
    CHECK_OK(result);
    CHECK_INT(atom_load(&storm_count), ==, 0);
    CHECK_INT(atom_load(&storm_sum), ==, (long)ALL * (ALL - 1) / 2);
    return 0;
}

/* flow_bound.c - bounds and shares over time: memory stays flat, nobody is left out. */
#include <string.h>

#include "base/atomic.h"
#include "unit/flow/flow_test.h"

/* ---- Producers that outrun their consumer ---- */

enum { PRODUCERS = 8, BOUND = 32 };

struct flood {
    int_tx tx;
    int_rx rx;
    ATOM(int) begun; /* producers */
    ATOM(bool) over;
    ATOM(long) sent, rejected, dropped;
    long received;
};

static void count_dropped(void *item, enum weir_drop why, void *arg)
{
    struct flood *flood = arg;
    (void)item, (void)why;
    (void)atom_add(&flood->dropped, 1);
}

static int pour(void *arg)
{
    struct flood *flood = *(struct flood **)arg;
    int item = 1, r = 0;

    (void)atom_add(&flood->begun, 1);
    while (r == 0 && !atom_load(&flood->over)) {
        r = weir_send(flood->tx, &item);
        if (r == WEIR_EOVERLOAD) {
            (void)atom_add(&flood->rejected, 1);
            r = weir_yield();
        } else if (r == 0) {
            (void)atom_add(&flood->sent, 1);
        }
    }
    return r;
}

/* Slower than they are, by a yield for each item. */
static int sip(void *arg)
{
    struct flood *flood = *(struct flood **)arg;
    int item, r;

    while ((r = weir_recv(flood->rx, &item)) == 0) {
        flood->received++;
        r = weir_yield();
        if (r < 0) return r;
    }
    return r == WEIR_ECLOSED ? 0 : r;
}

static void flood_for(enum weir_overflow overflow, int64_t ms)
{
    struct flood flood = {.sent = 0}, *shared = &flood;
    weir_chan_spec spec = {.name = "flood",
                           .capacity = BOUND,
                           .overflow = overflow,
                           .on_close = WEIR_DRAIN,
                           .on_drop = count_dropped,
                           .keep_arg = &flood};
    weir_chan_figures figures;
    int result, inner;

    FLOW_SCOPE(scope, &result)
    {
        size_t before = 0, most = 0;
        weir_task consumer;

        CHECK_OK(weir_chan_open(scope, &spec, &flood.tx, &flood.rx));
        CHECK_OK(weir_task_spawn(
            scope, &(weir_task_spec){.fn = sip, .arg = &shared, .arg_bytes = sizeof shared},
            &consumer));
        FLOW_SCOPE_ANYWHERE(producers, &inner)
        {
            for (int i = 0; i < PRODUCERS; i++) {
                CHECK_OK(weir_spawn(producers, pour, &shared, sizeof shared));
            }
            do { /* until stacks and caches have been made */
                CHECK_OK(weir_sleep(ms / 4));
                weir_tx_figures(flood.tx.end, &figures);
            } while (atom_load(&flood.begun) < PRODUCERS || figures.depth_max < BOUND);
            before = test_live_bytes();
            for (int i = 0; i < 15; i++) {
                CHECK_OK(weir_sleep(ms / 20));
                if (test_live_bytes() > most) most = test_live_bytes();
            }
            atom_store(&flood.over, true);
        }
        CHECK_OK(inner);
        CHECK_INT(most, <=, before + FLOW_TEST_FIGURES_BYTES(1));
        weir_tx_figures(flood.tx.end, &figures);
        CHECK_INT(figures.depth_max, ==, BOUND);
        weir_tx_close(flood.tx.end);
        CHECK_OK(weir_task_join(consumer, &inner));
        CHECK_OK(inner);
        weir_tx_figures(flood.tx.end, &figures);
        CHECK_INT(figures.accepted, ==, flood.sent);
        CHECK_INT(figures.rejected, ==, flood.rejected);
        CHECK_INT(flood.sent, ==, flood.received + flood.dropped);
        CHECK_INT(flood.received, >, 0);
        CHECK_INT(flood.sent + flood.rejected, >=, flood.received);
    }
    CHECK_OK(result);
}

static int flood_all(int64_t ms)
{
    flood_for(WEIR_WAIT, ms);
    flood_for(WEIR_REJECT, ms);
    flood_for(WEIR_DROP_NEWEST, ms);
    flood_for(WEIR_DROP_OLDEST, ms);
    return 0;
}

static int flood_shortly(void *arg)
{
    (void)arg;
    return flood_all(100);
}

static int flood_long(void *arg)
{
    (void)arg;
    for (int overflow = WEIR_WAIT; overflow <= WEIR_DROP_OLDEST; overflow++) {
        test_note("overflow %d", overflow);
        flood_for((enum weir_overflow)overflow, 10000);
    }
    return 0;
}

static int without_deadline(weir_task_fn body)
{
    return weir_run(&(weir_config){.workers = test_workers(), .log_level = WEIR_LOG_OFF}, body,
                    NULL);
}

TEST(flow_producers_that_outrun_a_slow_consumer_meet_the_bound)
{
    CHECK_OK(without_deadline(flood_shortly));
}

TEST_WITH(flow_producers_outrun_consumers_for_ten_seconds, .long_only = true, .timeout_ms = 120000)
{
    CHECK_OK(without_deadline(flood_long));
}

/* ---- Shares ---- */

enum { RIVALS = 16, TURNS = 200 };

struct race {
    weir_mutex *mutex;
    weir_semaphore *semaphore;
    int_tx tx;
    int_rx rx;
    long share[RIVALS];
    long left;
    ATOM(int) next;
};

/* The most and the least that anybody got: first come, first served makes them alike. */
static void check_shares(const long *share, int count, double most_to_least)
{
    long least = share[0], most = share[0];

    for (int i = 1; i < count; i++) {
        if (share[i] < least) least = share[i];
        if (share[i] > most) most = share[i];
    }
    test_note("shares from %ld to %ld", least, most);
    CHECK_INT(least, >, 0);
    CHECK((double)most <= most_to_least * (double)least);
}

static int want_mutex(void *arg)
{
    struct race *race = *(struct race **)arg;
    int me = atom_add(&race->next, 1), r = 0;

    while (r == 0) {
        bool over;
        r = weir_mutex_lock(race->mutex);
        if (r < 0) break;
        over = race->left <= 0;
        if (!over) {
            race->left--;
            race->share[me]++;
        }
        r = weir_yield();
        weir_mutex_unlock(race->mutex);
        if (over) break;
    }
    return r;
}

static int want_items(void *arg)
{
    struct race *race = *(struct race **)arg;
    int me = atom_add(&race->next, 1), item, r;

    while ((r = weir_recv(race->rx, &item)) == 0) race->share[me]++;
    return r == WEIR_ECLOSED ? 0 : r;
}

FLOW_TEST_LOCKS(flow_waiters_get_equal_shares)
{
    struct race race = {.left = (long)RIVALS * TURNS}, *shared = &race;
    weir_chan_spec spec = {.name = "items",
                           .capacity = WEIR_RENDEZVOUS,
                           .overflow = WEIR_WAIT,
                           .on_close = WEIR_DRAIN};
    int result, inner;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_mutex_open(scope, "mutex", &race.mutex));
        weir_mutex_may_suspend(race.mutex, "rivals must come while it is held");
        FLOW_SCOPE(rivals, &inner)
        {
            for (int i = 0; i < RIVALS; i++) {
                CHECK_OK(weir_spawn(rivals, want_mutex, &shared, sizeof shared));
            }
        }
        CHECK_OK(inner);
        check_shares(race.share, RIVALS, 1.05);

        memset(race.share, 0, sizeof race.share);
        atom_store(&race.next, 0);
        CHECK_OK(weir_chan_open(scope, &spec, &race.tx, &race.rx));
        FLOW_SCOPE(rivals, &inner)
        {
            for (int i = 0; i < RIVALS; i++) {
                CHECK_OK(weir_spawn(rivals, want_items, &shared, sizeof shared));
            }
            for (int i = 0; i < RIVALS * TURNS; i++) {
                CHECK_OK(weir_yield()); /* all of them wait again */
                CHECK_OK(weir_send(race.tx, &i));
            }
            weir_tx_close(race.tx.end);
        }
        CHECK_OK(inner);
        check_shares(race.share, RIVALS, 1.05);
    }
    return result;
}

FLOW_TEST(flow_select_gives_ready_cases_equal_shares)
{
    enum { CASES = 4, ROUNDS = 40000 };
    weir_chan_spec spec = {
        .name = "ready", .capacity = 8, .overflow = WEIR_WAIT, .on_close = WEIR_DRAIN};
    weir_case cases[CASES];
    long share[CASES] = {0};
    int_tx tx[CASES];
    int_rx rx[CASES];
    int result, item = 1;

    FLOW_SCOPE(scope, &result)
    {
        for (int i = 0; i < CASES; i++) {
            CHECK_OK(weir_chan_open(scope, &spec, &tx[i], &rx[i]));
            for (int k = 0; k < 4; k++) CHECK_OK(weir_send(tx[i], &item));
            cases[i] = WEIR_CASE_RECV(rx[i], &item);
        }
        for (int i = 0; i < ROUNDS; i++) {
            int chosen = weir_select(cases, CASES, WEIR_FAIR);
            CHECK_OK(chosen);
            CHECK_OK(cases[chosen].result);
            share[chosen]++;
            CHECK_OK(weir_send(tx[chosen], &item));
        }
    }
    check_shares(share, CASES, 1.1);
    return result;
}

/* chan_test.c - channels: order, bounds, policies, ends, closing. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/atomic.h"
#include "unit/flow/flow_test.h"

static const weir_chan_spec plain = {
    .name = "plain", .capacity = 4, .overflow = WEIR_WAIT, .on_close = WEIR_DRAIN};

static void fill(int_tx tx, int from, int count)
{
    for (int i = from; i < from + count; i++) CHECK_OK(weir_send(tx, &i));
}

static void expect(int_rx rx, int from, int count)
{
    for (int i = from; i < from + count; i++) {
        int item = -1;
        CHECK_OK(weir_recv(rx, &item));
        CHECK_INT(item, ==, i);
    }
}

/* ---- Refusals ---- */

FLOW_TEST(chan_spec_names_what_is_missing_or_contradicts)
{
    static const struct {
        weir_chan_spec spec;
        const char *why;
    } rows[] = {
        {{.capacity = 1, .overflow = WEIR_WAIT, .on_close = WEIR_DRAIN}, "name is not set"},
        {{.name = "c", .overflow = WEIR_WAIT, .on_close = WEIR_DRAIN}, "capacity is not set"},
        {{.name = "c", .capacity = 1, .on_close = WEIR_DRAIN}, "overflow is not set"},
        {{.name = "c", .capacity = 1, .overflow = WEIR_WAIT}, "on_close is not set"},
        {{.name = "c",
          .capacity = 5,
          .capacity_max = 4,
          .overflow = WEIR_WAIT,
          .on_close = WEIR_DRAIN},
         "capacity_max is less"},
        {{.name = "c",
          .capacity = WEIR_CHAN_CAPACITY_MAX + 1,
          .overflow = WEIR_WAIT,
          .on_close = WEIR_DRAIN},
         "capacity is more"},
        {{.name = "c",
          .capacity = WEIR_RENDEZVOUS,
          .overflow = WEIR_DROP_OLDEST,
          .on_close = WEIR_DRAIN},
         "stores nothing"},
        {{.name = "c",
          .capacity = WEIR_RENDEZVOUS,
          .overflow = WEIR_WAIT,
          .on_close = WEIR_DRAIN,
          .any_thread = true},
         "foreign thread"},
        {{.name = "c",
          .capacity = 1,
          .overflow = WEIR_WAIT,
          .on_close = WEIR_DRAIN,
          .item_bytes = WEIR_ITEM_BYTES_MAX + 1},
         "item_bytes"},
        {{.name = "c",
          .capacity = 1,
          .overflow = WEIR_WAIT,
          .on_close = WEIR_DRAIN,
          .latency_ms = -1},
         "latency_ms"},
        {{.name = "c",
          .capacity = 1,
          .overflow = WEIR_WAIT,
          .on_close = WEIR_DRAIN,
          .item_bytes = 2 * sizeof(int)},
         "items of its ends' type have 4"},
    };
    int result;

    FLOW_SCOPE(scope, &result)
    {
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            int_tx tx;
            int_rx rx;
            test_note("row %zu", i);
            CHECK_INT(weir_chan_open(scope, &rows[i].spec, &tx, &rx), ==, WEIR_EREFUSED);
            CHECK(strstr(weir_why(), rows[i].why) != NULL);
        }
    }
    return result;
}

/* ---- Order and bounds ---- */

FLOW_TEST(chan_keeps_order_and_wraps_around)
{
    int_tx tx;
    int_rx rx;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_chan_open(scope, &plain, &tx, &rx));
        for (int round = 0; round < 10; round++) {
            fill(tx, round * 3, 3);
            expect(rx, round * 3, 3);
        }
    }
    return result;
}

struct many {
    int_tx tx;
    int_rx rx;
    int from, count;
    ATOM(long) * sum;
};

static int send_some(void *arg)
{
    struct many *job = arg;
    for (int i = job->from; i < job->from + job->count; i++) {
        int r = weir_send(job->tx, &i);
        if (r < 0) return r;
    }
    weir_tx_drop(job->tx.end);
    return 0;
}

static int receive_all(void *arg)
{
    struct many *job = arg;
    int item, r;
    while ((r = weir_recv(job->rx, &item)) == 0) (void)atom_add(job->sum, item);
    weir_rx_drop(job->rx.end);
    return r == WEIR_ECLOSED ? 0 : r;
}

static int through_capacity(size_t capacity)
{
    enum { SENDERS = 7, RECEIVERS = 5, EACH = 300 };
    weir_chan_spec spec = plain;
    static ATOM(long) sum;
    int_tx tx;
    int_rx rx;
    int result;

    atom_store(&sum, 0);
    spec.capacity = capacity;
    FLOW_SCOPE_ANYWHERE(scope, &result)
    {
        CHECK_OK(weir_chan_open(scope, &spec, &tx, &rx));
        for (int i = 0; i < SENDERS; i++) {
            struct many job = {.from = i * EACH, .count = EACH};
            CHECK_OK(weir_tx_copy(tx.end, &job.tx.end));
            CHECK_OK(weir_spawn(scope, send_some, &job, sizeof job));
        }
        for (int i = 0; i < RECEIVERS; i++) {
            struct many job = {.sum = &sum};
            CHECK_OK(weir_rx_copy(rx.end, &job.rx.end));
            CHECK_OK(weir_spawn(scope, receive_all, &job, sizeof job));
        }
        weir_tx_drop(tx.end); /* the last sender that ends closes the channel */
        weir_rx_drop(rx.end);
    }
    CHECK_OK(result);
    CHECK_INT(atom_load(&sum), ==, (long)SENDERS * EACH * (SENDERS * EACH - 1) / 2);
    return 0;
}

FLOW_TEST(chan_loses_nothing_between_many_senders_and_receivers)
{
    CHECK_OK(through_capacity(1));
    CHECK_OK(through_capacity(16));
    return through_capacity(WEIR_RENDEZVOUS);
}

static int send_one(void *arg)
{
    struct many *job = arg;
    return weir_send(job->tx, &job->from);
}

FLOW_TEST(chan_serves_those_who_wait_in_order)
{
    int_tx tx;
    int_rx rx;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_chan_open(scope, &plain, &tx, &rx));
        fill(tx, 0, 4);
        for (int i = 4; i < 12; i++) {
            struct many job = {.tx = tx, .from = i};
            CHECK_OK(weir_spawn(scope, send_one, &job, sizeof job));
        }
        CHECK_OK(weir_yield());
        expect(rx, 0, 12);
    }
    return result;
}

FLOW_TEST(chan_rendezvous_holds_the_sender_until_somebody_receives)
{
    weir_chan_spec spec = plain;
    weir_chan_figures figures;
    int_tx tx;
    int_rx rx;
    int result, item = 0;

    spec.capacity = WEIR_RENDEZVOUS;
    FLOW_SCOPE(scope, &result)
    {
        struct many job = {.from = 7};
        CHECK_OK(weir_chan_open(scope, &spec, &tx, &rx));
        CHECK_INT(weir_try_send(tx, &item), ==, WEIR_EOVERLOAD);
        job.tx = tx;
        CHECK_OK(weir_spawn(scope, send_one, &job, sizeof job));
        CHECK_OK(weir_yield());
        weir_tx_figures(tx.end, &figures);
        CHECK_INT(figures.senders_waiting, ==, 1);
        CHECK_INT(figures.depth, ==, 0);
        CHECK_OK(weir_recv(rx, &item));
        CHECK_INT(item, ==, 7);
    }
    return result;
}

/* ---- Overflow ---- */

struct dropped {
    int items[16];
    int count;
    enum weir_drop why;
};

static void note_drop(void *item, enum weir_drop why, void *arg)
{
    struct dropped *dropped = arg;
    CHECK_INT(dropped->count, <, 16);
    dropped->items[dropped->count++] = *(int *)item;
    dropped->why = why;
}

FLOW_TEST(chan_overflow_policies_do_what_they_say)
{
    static const struct {
        enum weir_overflow overflow;
        int fifth; /* what the fifth send of a full channel of 4 returns */
        int first; /* the first item that is received then */
        int dropped;
    } rows[] = {
        {WEIR_REJECT, WEIR_EOVERLOAD, 0, -1},
        {WEIR_DROP_NEWEST, 0, 0, 4},
        {WEIR_DROP_OLDEST, 0, 1, 0},
    };
    int result;

    FLOW_SCOPE(scope, &result)
    {
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            struct dropped dropped = {.count = 0};
            weir_chan_spec spec = plain;
            weir_chan_figures figures;
            int_tx tx;
            int_rx rx;
            int item = 4;

            test_note("policy %d", (int)rows[i].overflow);
            spec.overflow = rows[i].overflow;
            spec.on_drop = note_drop;
            spec.keep_arg = &dropped;
            CHECK_OK(weir_chan_open(scope, &spec, &tx, &rx));
            fill(tx, 0, 4);
            CHECK_INT(weir_send(tx, &item), ==, rows[i].fifth);
            CHECK_INT(dropped.count, ==, rows[i].dropped < 0 ? 0 : 1);
            if (dropped.count) {
                CHECK_INT(dropped.items[0], ==, rows[i].dropped);
                CHECK_INT(dropped.why, ==, WEIR_DROPPED_OVERFLOW);
            }
            expect(rx, rows[i].first, 4);
            weir_tx_figures(tx.end, &figures);
            CHECK_INT(figures.depth_max, ==, 4);
            CHECK_INT(figures.rejected, ==, rows[i].fifth < 0 ? 1 : 0);
            CHECK_INT(figures.accepted, ==, figures.received + figures.dropped);
            weir_rx_drop(rx.end);
        }
    }
    return result;
}

/* ---- Closing ---- */

FLOW_TEST(chan_close_lets_receivers_drain_and_refuses_sends)
{
    int_tx tx;
    int_rx rx;
    int result, item = 9;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_chan_open(scope, &plain, &tx, &rx));
        fill(tx, 0, 3);
        weir_tx_close(tx.end);
        weir_tx_close(tx.end);
        CHECK_INT(weir_send(tx, &item), ==, WEIR_ECLOSED);
        expect(rx, 0, 3);
        CHECK_INT(weir_recv(rx, &item), ==, WEIR_ECLOSED);
        CHECK_INT(weir_try_recv(rx, &item), ==, WEIR_ECLOSED);
    }
    return result;
}

FLOW_TEST(chan_discards_to_the_hook_when_its_spec_says_so)
{
    struct dropped dropped = {.count = 0};
    weir_chan_spec spec = plain;
    int_tx tx;
    int_rx rx;
    int result, item;

    spec.on_close = WEIR_DISCARD;
    spec.on_drop = note_drop;
    spec.keep_arg = &dropped;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_chan_open(scope, &spec, &tx, &rx));
        fill(tx, 0, 3);
        weir_tx_drop(tx.end);
        CHECK_INT(dropped.count, ==, 3);
        CHECK_INT(dropped.why, ==, WEIR_DROPPED_CLOSE);
        CHECK_INT(weir_recv(rx, &item), ==, WEIR_ECLOSED);
    }
    return result;
}

FLOW_TEST(chan_without_receivers_gives_items_to_the_hook_and_fails_sends)
{
    struct dropped dropped = {.count = 0};
    weir_chan_spec spec = plain;
    int_tx tx;
    int_rx rx;
    int result, item = 0;

    spec.on_drop = note_drop;
    spec.keep_arg = &dropped;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_chan_open(scope, &spec, &tx, &rx));
        fill(tx, 0, 2);
        weir_rx_drop(rx.end);
        CHECK_INT(dropped.count, ==, 2);
        CHECK_INT(weir_send(tx, &item), ==, WEIR_ECLOSED);
    }
    return result;
}

FLOW_TEST(chan_of_a_scope_that_ends_hands_over_what_is_left)
{
    struct dropped dropped = {.count = 0};
    weir_chan_spec spec = plain;
    int_tx tx;
    int_rx rx;
    int result;

    spec.on_drop = note_drop;
    spec.keep_arg = &dropped;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_chan_open(scope, &spec, &tx, &rx));
        fill(tx, 0, 4);
    }
    CHECK_INT(dropped.count, ==, 4);
    CHECK_INT(dropped.why, ==, WEIR_DROPPED_SCOPE);
    return result;
}

static int receive_closed(void *arg)
{
    int_rx rx = *(int_rx *)arg;
    int item;
    return weir_recv(rx, &item) == WEIR_ECLOSED ? 0 : -1;
}

FLOW_TEST(chan_close_wakes_everybody_who_waits)
{
    int_tx tx;
    int_rx rx;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_chan_open(scope, &plain, &tx, &rx));
        for (int i = 0; i < 5; i++) CHECK_OK(weir_spawn(scope, receive_closed, &rx, sizeof rx));
        CHECK_OK(weir_yield());
        weir_tx_close(tx.end);
    }
    return result;
}

/* ---- Batches ---- */

static int send_batch(void *arg)
{
    struct many *job = arg;
    int items[20];
    size_t sent;

    for (int i = 0; i < 20; i++) items[i] = i;
    CHECK_OK(weir_send_many(job->tx, items, 20, &sent));
    CHECK_INT(sent, ==, 20);
    return 0;
}

FLOW_TEST(chan_moves_batches_in_order)
{
    int_tx tx;
    int_rx rx;
    int result, got = 0;

    FLOW_SCOPE(scope, &result)
    {
        struct many job;
        CHECK_OK(weir_chan_open(scope, &plain, &tx, &rx));
        job.tx = tx;
        CHECK_OK(weir_spawn(scope, send_batch, &job, sizeof job));
        while (got < 20) {
            int items[7];
            int n = weir_recv_many(rx, items, 7);
            CHECK_INT(n, >=, 1);
            for (int i = 0; i < n; i++) CHECK_INT(items[i], ==, got + i);
            got += n;
        }
    }
    return result;
}

FLOW_TEST_CLOCK(chan_batch_says_how_far_it_came)
{
    int items[9] = {0};
    int_tx tx;
    int_rx rx;
    size_t sent = 99;
    int result, r = 0;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_chan_open(scope, &plain, &tx, &rx));
        WEIR_DEADLINE(1) { r = weir_send_many(tx, items, 9, &sent); }
        CHECK_INT(r, ==, WEIR_ETIMEDOUT);
        CHECK_INT(sent, ==, 4);
    }
    return result;
}

/* ---- Done ---- */

static int finish_slowly(void *arg)
{
    int_rx rx = *(int_rx *)arg;
    int item, r;
    while ((r = weir_recv(rx, &item)) == 0) {
        CHECK_OK(weir_yield());
        weir_rx_done(rx.end, 1);
    }
    return r == WEIR_ECLOSED ? 0 : r;
}

FLOW_TEST(chan_wait_done_returns_when_everything_is_finished)
{
    weir_chan_spec spec = plain;
    weir_chan_figures figures;
    int_tx tx;
    int_rx rx;
    int result;

    spec.counts_done = true;
    FLOW_SCOPE_ANYWHERE(scope, &result)
    {
        CHECK_OK(weir_chan_open(scope, &spec, &tx, &rx));
        CHECK_OK(weir_tx_wait_done(tx.end));
        CHECK_OK(weir_spawn(scope, finish_slowly, &rx, sizeof rx));
        CHECK_OK(weir_spawn(scope, finish_slowly, &rx, sizeof rx));
        fill(tx, 0, 50);
        CHECK_OK(weir_tx_wait_done(tx.end));
        weir_tx_figures(tx.end, &figures);
        CHECK_INT(figures.unfinished, ==, 0);
        CHECK_INT(figures.received, ==, 50);
        weir_tx_close(tx.end);
    }
    return result;
}

FLOW_TEST(chan_wait_done_fails_when_nobody_is_left_to_finish)
{
    weir_chan_spec spec = plain;
    int_tx tx;
    int_rx rx;
    int result, item;

    spec.counts_done = true;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_chan_open(scope, &spec, &tx, &rx));
        fill(tx, 0, 1);
        CHECK_OK(weir_recv(rx, &item));
        weir_rx_drop(rx.end);
        CHECK_INT(weir_tx_wait_done(tx.end), ==, WEIR_ECLOSED);
    }
    return result;
}

/* ---- Resizing ---- */

FLOW_TEST(chan_resize_admits_those_who_wait)
{
    weir_chan_spec spec = plain;
    weir_chan_figures figures;
    int_tx tx;
    int_rx rx;
    int result, item = 0;

    spec.capacity_max = 8;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_chan_open(scope, &spec, &tx, &rx));
        fill(tx, 0, 4);
        for (int i = 4; i < 7; i++) {
            struct many job = {.tx = tx, .from = i};
            CHECK_OK(weir_spawn(scope, send_one, &job, sizeof job));
        }
        CHECK_OK(weir_yield());
        CHECK_OK(weir_chan_resize(tx.end, 6));
        weir_tx_figures(tx.end, &figures);
        CHECK_INT(figures.depth, ==, 6);
        CHECK_INT(figures.senders_waiting, ==, 1);
        CHECK_OK(weir_chan_resize(tx.end, 2));
        expect(rx, 0, 5);
        CHECK_INT(weir_try_send(tx, &item), ==, WEIR_EOVERLOAD);
        CHECK_INT(weir_chan_resize(tx.end, 9), ==, WEIR_EREFUSED);
        CHECK_INT(weir_chan_resize(tx.end, 0), ==, WEIR_EREFUSED);
        expect(rx, 5, 2);
    }
    return result;
}

/* ---- Cancelling ---- */

FLOW_TEST(chan_send_that_times_out_has_moved_nothing)
{
    int_tx tx;
    int_rx rx;
    int result, r = 0, item = 99;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_chan_open(scope, &plain, &tx, &rx));
        fill(tx, 0, 4);
        WEIR_DEADLINE(1) { r = weir_send(tx, &item); }
        CHECK_INT(r, ==, WEIR_ETIMEDOUT);
        expect(rx, 0, 4);
        CHECK_INT(weir_try_recv(rx, &item), ==, 0);
        WEIR_DEADLINE(1) { r = weir_recv(rx, &item); }
        CHECK_INT(r, ==, WEIR_ETIMEDOUT);
        fill(tx, 4, 1);
        expect(rx, 4, 1);
    }
    return result;
}

static int receive_until_stopped(void *arg)
{
    int_rx rx = *(int_rx *)arg;
    int item, got = 0, r;
    while ((r = weir_recv(rx, &item)) == 0) got++;
    return r == WEIR_ESTOPPING && got == 3 ? 0 : -1;
}

FLOW_TEST(chan_that_takes_work_ends_receives_at_a_stop_once_it_is_empty)
{
    weir_chan_spec spec = plain;
    int_tx tx;
    int_rx rx;
    int result;

    spec.takes_work = true;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_chan_open(scope, &spec, &tx, &rx));
        fill(tx, 0, 3);
        CHECK_OK(weir_spawn(scope, receive_until_stopped, &rx, sizeof rx));
        CHECK_OK(weir_yield());
        weir_scope_stop(scope, 1000);
    }
    return result;
}

/* ---- Foreign threads ---- */

struct foreign {
    int_tx tx;
    int count;
    int rejected;
};

static void *send_from_thread(void *arg)
{
    struct foreign *foreign = arg;
    for (int i = 0; i < foreign->count; i++) {
        int r;
        while ((r = weir_try_send(foreign->tx, &i)) == WEIR_EOVERLOAD) foreign->rejected++;
        CHECK_OK(r);
    }
    weir_tx_drop(foreign->tx.end);
    return NULL;
}

FLOW_TEST(chan_takes_items_from_foreign_threads)
{
    enum { THREADS = 3, EACH = 500 };
    struct foreign foreign[THREADS];
    pthread_t threads[THREADS];
    weir_chan_spec spec = plain;
    int_tx tx;
    int_rx rx;
    int result, got = 0, item, r;
    long sum = 0;

    spec.any_thread = true;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_chan_open(scope, &spec, &tx, &rx));
        for (int i = 0; i < THREADS; i++) {
            foreign[i] = (struct foreign){.count = EACH};
            CHECK_OK(weir_tx_copy(tx.end, &foreign[i].tx.end));
            CHECK_INT(pthread_create(&threads[i], NULL, send_from_thread, &foreign[i]), ==, 0);
        }
        weir_tx_drop(tx.end);
        while ((r = weir_recv(rx, &item)) == 0) {
            got++;
            sum += item;
        }
        CHECK_INT(r, ==, WEIR_ECLOSED);
        weir_rx_drop(rx.end);
        for (int i = 0; i < THREADS; i++) CHECK_INT(pthread_join(threads[i], NULL), ==, 0);
    }
    CHECK_INT(got, ==, THREADS * EACH);
    CHECK_INT(sum, ==, (long)THREADS * EACH * (EACH - 1) / 2);
    return result;
}

FLOW_TEST(chan_of_any_thread_answers_after_its_scope_until_its_ends_are_dropped)
{
    weir_chan_spec spec = plain;
    int_tx tx, more;
    int_rx rx;
    int result, item = 1;

    spec.any_thread = true;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_chan_open(scope, &spec, &tx, &rx));
    }
    CHECK_INT(weir_try_send(tx, &item), ==, WEIR_ECLOSED);
    CHECK_INT(weir_tx_copy(tx.end, &more.end), ==, WEIR_ECLOSED);
    weir_tx_drop(tx.end);
    weir_rx_drop(rx.end);
    return result;
}

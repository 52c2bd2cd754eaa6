/* flow_stress.c - many callers at each construct of the flow layer at once.
 *
 * What they share is not atomic wherever the construct promises order or exclusion, so that
 * ThreadSanitizer sees whether the promise is kept. Everything is counted.
 */
#include <string.h>

#include "base/atomic.h"
#include "unit/flow/flow_test.h"

enum { CALLERS = TEST_SANITIZED ? 100 : 1000, EACH = 100 };

/* Spawn `count` tasks of `fn` with the same argument, and wait for all. */
static void crowd(int count, weir_task_fn fn, void *shared)
{
    int result;

    FLOW_SCOPE_ANYWHERE(scope, &result)
    {
        for (int i = 0; i < count; i++) CHECK_OK(weir_spawn(scope, fn, &shared, sizeof shared));
    }
    CHECK_OK(result);
}

#define SHARED(type, arg) (*(type **)(arg))

/* ---- Channels ---- */

struct parcel {
    long number;
    long *content; /* the sender writes it before, the receiver reads it after */
    long check;
};

typedef WEIR_TX(struct parcel) parcel_tx;
typedef WEIR_RX(struct parcel) parcel_rx;

struct exchange {
    parcel_tx tx;
    parcel_rx rx;
    ATOM(long) sent, received, sum;
    ATOM(int) senders; /* that have not finished */
    ATOM(int) left;    /* that have not begun */
    ATOM(int) turn;
};

static long contents[CALLERS / 2][EACH];

static int exchange_send(struct exchange *exchange)
{
    int me = atom_sub(&exchange->left, 1) - 1;
    int r = 0;

    for (long i = 0; i < EACH && r == 0; i++) {
        struct parcel parcel = {.number = i, .content = &contents[me][i], .check = ~i};
        contents[me][i] = i;
        r = weir_send(exchange->tx, &parcel);
        (void)atom_add(&exchange->sent, 1);
    }
    if (atom_sub(&exchange->senders, 1) == 1) weir_tx_close(exchange->tx.end);
    return r;
}

static int exchange_receive(struct exchange *exchange)
{
    struct parcel parcel;
    int r;

    while ((r = weir_recv(exchange->rx, &parcel)) == 0) {
        CHECK_INT(parcel.check, ==, ~parcel.number);
        CHECK_INT(*parcel.content, ==, parcel.number);
        (void)atom_add(&exchange->sum, parcel.number);
        (void)atom_add(&exchange->received, 1);
    }
    return r == WEIR_ECLOSED ? 0 : r;
}

static int exchange_any(void *arg)
{
    struct exchange *exchange = SHARED(struct exchange, arg);
    return atom_add(&exchange->turn, 1) % 2 ? exchange_send(exchange) : exchange_receive(exchange);
}

FLOW_TEST(flow_stress_channels)
{
    static const size_t capacities[] = {WEIR_RENDEZVOUS, 1, 16};
    int result;

    for (int i = 0; i < 3; i++) {
        test_note("capacity %zu", capacities[i]);
        FLOW_SCOPE(scope, &result)
        {
            struct exchange exchange = {.senders = CALLERS / 2, .left = CALLERS / 2};
            CHECK_OK(weir_chan_open(scope,
                                    &(weir_chan_spec){.name = "parcels",
                                                      .capacity = capacities[i],
                                                      .overflow = WEIR_WAIT,
                                                      .on_close = WEIR_DRAIN},
                                    &exchange.tx, &exchange.rx));
            crowd(CALLERS, exchange_any, &exchange);
            CHECK_INT(exchange.received, ==, (long)CALLERS / 2 * EACH);
            CHECK_INT(exchange.sum, ==, (long)CALLERS / 2 * EACH * (EACH - 1) / 2);
        }
        CHECK_OK(result);
    }
    return 0;
}

/* ---- Select: everybody sends on one channel of four and receives from all ---- */

struct market {
    int_tx tx[4];
    int_rx rx[4];
    ATOM(int) turn;
    ATOM(long) sent, received;
    ATOM(int) busy;
};

static int trade(void *arg)
{
    struct market *market = SHARED(struct market, arg);
    int mine = atom_add(&market->turn, 1) % 4, left = EACH, item;

    while (left > 0 || atom_load(&market->received) < atom_load(&market->sent) ||
           atom_load(&market->busy) > 0) {
        weir_case cases[6];
        int count = 0, chosen;
        for (int i = 0; i < 4; i++) cases[count++] = WEIR_CASE_RECV(market->rx[i], &item);
        cases[count++] = WEIR_CASE_TIMER(1);
        if (left > 0) cases[count++] = WEIR_CASE_SEND(market->tx[mine], &left);
        chosen = weir_select(cases, (size_t)count, WEIR_FAIR);
        if (chosen < 0) return chosen;
        CHECK_OK(cases[chosen].result);
        if (chosen < 4) (void)atom_add(&market->received, 1);
        if (chosen == 5) {
            (void)atom_add(&market->sent, 1);
            if (--left == 0) (void)atom_sub(&market->busy, 1);
        }
    }
    return 0;
}

FLOW_TEST(flow_stress_select)
{
    enum { TRADERS = CALLERS / 4 };
    static const size_t capacities[] = {WEIR_RENDEZVOUS, 2};
    int result;

    for (int k = 0; k < 2; k++) {
        FLOW_SCOPE(scope, &result)
        {
            struct market market = {.busy = TRADERS};
            for (int i = 0; i < 4; i++) {
                CHECK_OK(weir_chan_open(scope,
                                        &(weir_chan_spec){.name = "stall",
                                                          .capacity = capacities[k],
                                                          .overflow = WEIR_WAIT,
                                                          .on_close = WEIR_DRAIN},
                                        &market.tx[i], &market.rx[i]));
            }
            crowd(TRADERS, trade, &market);
            CHECK_INT(market.sent, ==, (long)TRADERS * EACH);
            CHECK_INT(market.received, ==, (long)TRADERS * EACH);
        }
        CHECK_OK(result);
    }
    return 0;
}

/* ---- Mutex, read-write lock, semaphore, once ---- */

struct guarded {
    weir_mutex *mutex;
    weir_rwlock *rwlock;
    weir_semaphore *semaphore;
    weir_once once[EACH];
    long plain;       /* of the mutex */
    long left, right; /* of the read-write lock: always equal */
    long done[EACH];
    ATOM(int) inside;
    ATOM(int) turn;
};

static int use_mutex(void *arg)
{
    struct guarded *guarded = SHARED(struct guarded, arg);
    int r = 0;

    for (int i = 0; i < EACH && r == 0; i++) {
        r = weir_mutex_lock(guarded->mutex);
        if (r < 0) return r;
        guarded->plain++;
        if (i % 16 == 0) r = weir_yield();
        weir_mutex_unlock(guarded->mutex);
    }
    return r;
}

static int use_rwlock(void *arg)
{
    struct guarded *guarded = SHARED(struct guarded, arg);
    bool writes = atom_add(&guarded->turn, 1) % 8 == 0;
    int r = 0;

    for (int i = 0; i < EACH && r == 0; i++) {
        r = writes ? weir_rwlock_write(guarded->rwlock) : weir_rwlock_read(guarded->rwlock);
        if (r < 0) return r;
        if (writes) guarded->left++;
        if (i % 16 == 0) r = weir_yield();
        if (writes) guarded->right++;
        CHECK_INT(guarded->left, ==, guarded->right);
        weir_rwlock_unlock(guarded->rwlock);
    }
    return r;
}

static int use_semaphore(void *arg)
{
    struct guarded *guarded = SHARED(struct guarded, arg);
    size_t wanted = 1 + (size_t)atom_add(&guarded->turn, 1) % 3;
    int r = 0;

    for (int i = 0; i < EACH && r == 0; i++) {
        r = weir_semaphore_acquire(guarded->semaphore, wanted);
        if (r < 0) return r;
        CHECK_INT(atom_add(&guarded->inside, (int)wanted) + (int)wanted, <=, 4);
        if (i % 16 == 0) r = weir_yield();
        (void)atom_sub(&guarded->inside, (int)wanted);
        weir_semaphore_release(guarded->semaphore, wanted);
    }
    return r;
}

static int fail_then_do(void *arg)
{
    long *done = arg;
    int r = weir_yield();

    if (r < 0) return r;
    return ++*done < 3 ? -1 : 0; /* the third attempt succeeds */
}

static int use_once(void *arg)
{
    struct guarded *guarded = SHARED(struct guarded, arg);

    for (int i = 0; i < EACH; i++) {
        int r;
        while ((r = weir_once_run(&guarded->once[i], fail_then_do, &guarded->done[i])) == -1) {}
        if (r < 0) return r;
        CHECK_INT(guarded->done[i], ==, 3);
    }
    return 0;
}

FLOW_TEST_LOCKS(flow_stress_locks)
{
    static struct guarded guarded;
    int result;

    memset(&guarded, 0, sizeof guarded);
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_mutex_open(scope, "mutex", &guarded.mutex));
        CHECK_OK(weir_rwlock_open(scope, "rwlock", &guarded.rwlock));
        weir_mutex_may_suspend(guarded.mutex, "others must come while it is held");
        weir_rwlock_may_suspend(guarded.rwlock, "others must come while it is held");
        CHECK_OK(weir_semaphore_open(
            scope,
            &(weir_semaphore_spec){
                .name = "semaphore", .permits = 4, .overflow = WEIR_WAIT, .waiters_max = CALLERS},
            &guarded.semaphore));
        crowd(CALLERS, use_mutex, &guarded);
        CHECK_INT(guarded.plain, ==, (long)CALLERS * EACH);
        crowd(CALLERS, use_rwlock, &guarded);
        CHECK_INT(guarded.left, ==, (long)(CALLERS + 7) / 8 * EACH);
        atom_store(&guarded.turn, 0);
        crowd(CALLERS, use_semaphore, &guarded);
        CHECK_INT(guarded.inside, ==, 0);
        crowd(CALLERS, use_once, &guarded);
        for (int i = 0; i < EACH; i++) CHECK_INT(guarded.done[i], ==, 3);
    }
    return result;
}

/* ---- Event: rounds, each opened by one task for all others ---- */

struct rounds {
    weir_event *events[EACH];
    long written[EACH];
    ATOM(int) there;
    ATOM(long) seen;
};

static int follow_rounds(void *arg)
{
    struct rounds *rounds = SHARED(struct rounds, arg);

    for (int i = 0; i < EACH; i++) {
        int r;
        if (i % 2) {
            weir_case cases[] = {WEIR_CASE_EVENT(rounds->events[i]), WEIR_CASE_TIMER(20000)};
            r = weir_select(cases, 2, WEIR_FAIR);
        } else {
            r = weir_event_wait(rounds->events[i]);
        }
        if (r != 0) return r < 0 ? r : -1;
        CHECK_INT(rounds->written[i], ==, i + 1);
        (void)atom_add(&rounds->seen, 1);
    }
    return 0;
}

static int lead_rounds(void *arg)
{
    struct rounds *rounds = SHARED(struct rounds, arg);
    int r = 0;

    for (int i = 0; i < EACH && r == 0; i++) {
        rounds->written[i] = i + 1;
        weir_event_set(rounds->events[i]);
        r = weir_yield();
    }
    return r;
}

FLOW_TEST(flow_stress_events)
{
    static struct rounds rounds;
    int result, inner;

    FLOW_SCOPE(scope, &result)
    {
        struct rounds *shared = &rounds;
        for (int i = 0; i < EACH; i++) CHECK_OK(weir_event_open(scope, "round", &rounds.events[i]));
        FLOW_SCOPE_ANYWHERE(crowd_scope, &inner)
        {
            for (int i = 0; i < CALLERS; i++) {
                CHECK_OK(weir_spawn(crowd_scope, follow_rounds, &shared, sizeof shared));
            }
            CHECK_OK(weir_spawn(crowd_scope, lead_rounds, &shared, sizeof shared));
        }
        CHECK_OK(inner);
        CHECK_INT(rounds.seen, ==, (long)CALLERS * EACH);
    }
    return result;
}

/* ---- Broadcast and watch ---- */

struct news {
    weir_broadcast *broadcast;
    weir_watch *watch;
    ATOM(int) subscribed;
    ATOM(long) seen;
    ATOM(int) turn;
};

struct headline {
    long number;
    long text[7];
};

static int read_news(struct news *news)
{
    weir_subscriber *subscriber;
    struct headline headline;
    long expected = 0;
    int r;

    CHECK_OK(weir_broadcast_subscribe(news->broadcast, WEIR_LAG_WAIT, true, &subscriber));
    (void)atom_add(&news->subscribed, 1);
    while ((r = weir_subscriber_next(subscriber, &headline)) == 0) {
        CHECK_INT(headline.number, ==, expected);
        for (int i = 0; i < 7; i++) CHECK_INT(headline.text[i], ==, expected);
        expected++;
        (void)atom_add(&news->seen, 1);
    }
    weir_subscriber_close(subscriber);
    CHECK_INT(expected, ==, EACH);
    return r == WEIR_ECLOSED ? 0 : r;
}

static int write_news(struct news *news, int readers)
{
    int r = 0;

    while (r == 0 && atom_load(&news->subscribed) < readers) r = weir_sleep(1);
    for (long i = 0; i < EACH && r == 0; i++) {
        struct headline headline = {.number = i, .text = {i, i, i, i, i, i, i}};
        r = weir_broadcast_publish(news->broadcast, &headline);
    }
    weir_broadcast_close(news->broadcast);
    return r;
}

static int watch_news(struct news *news)
{
    uint64_t version = 0;
    struct headline headline = {.number = 0};
    int r = 0;

    while (r == 0 && headline.number < EACH) {
        long before = headline.number;
        r = weir_watch_changed(news->watch, &version, &headline);
        CHECK_INT(headline.number, >=, before);
        for (int i = 0; i < 7; i++) CHECK_INT(headline.text[i], ==, headline.number);
    }
    return r;
}

static int set_news(struct news *news)
{
    int r = 0;

    for (long i = 1; i <= EACH && r == 0; i++) {
        struct headline headline = {.number = i, .text = {i, i, i, i, i, i, i}};
        weir_watch_set(news->watch, &headline);
        r = weir_yield();
    }
    return r;
}

static int take_part(void *arg)
{
    struct news *news = SHARED(struct news, arg);
    int turn = atom_add(&news->turn, 1);

    if (turn == 0) return write_news(news, CALLERS / 2 - 1);
    if (turn == 1) return set_news(news);
    return turn % 2 ? watch_news(news) : read_news(news);
}

FLOW_TEST(flow_stress_broadcast_and_watch)
{
    struct headline none = {.number = 0};
    int result;

    FLOW_SCOPE(scope, &result)
    {
        struct news news = {.turn = 0};
        CHECK_OK(weir_broadcast_open(scope,
                                     &(weir_broadcast_spec){.name = "news",
                                                            .value_bytes = sizeof none,
                                                            .history = 8,
                                                            .subscribers_max = CALLERS},
                                     &news.broadcast));
        CHECK_OK(weir_watch_open(scope, "latest", &none, sizeof none, &news.watch));
        crowd(CALLERS, take_part, &news);
        CHECK_INT(news.seen, ==, (long)(CALLERS / 2 - 1) * EACH);
    }
    return result;
}

/* ---- Pools ---- */

struct workshop {
    weir_pool *pool;
    ATOM(long) done;
};

static int square(void *data)
{
    long *number = data;
    *number *= *number;
    return (int)(*number % 7);
}

static int use_pool(void *arg)
{
    struct workshop *workshop = SHARED(struct workshop, arg);

    for (long i = 0; i < EACH; i++) {
        long number = i;
        int r = weir_pool_run(workshop->pool, (unsigned)i % 2, square, &number, sizeof number);
        if (r < 0) return r;
        CHECK_INT(number, ==, i * i);
        CHECK_INT(r, ==, i * i % 7);
        (void)atom_add(&workshop->done, 1);
    }
    return 0;
}

FLOW_TEST(flow_stress_pools)
{
    static const weir_pool_class classes[] = {
        {.name = "one", .weight = 3, .queue_max = 4},
        {.name = "two", .weight = 1, .queue_max = 1},
    };
    int result;

    FLOW_SCOPE(scope, &result)
    {
        struct workshop workshop = {.done = 0};
        CHECK_OK(weir_pool_open(scope,
                                &(weir_pool_spec){.name = "workshop",
                                                  .threads_max = 4,
                                                  .overflow = WEIR_WAIT,
                                                  .on_close = WEIR_DRAIN,
                                                  .classes = classes,
                                                  .class_count = 2,
                                                  .idle_ms = 1},
                                &workshop.pool));
        crowd(CALLERS, use_pool, &workshop);
        CHECK_INT(workshop.done, ==, (long)CALLERS * EACH);
    }
    return result;
}

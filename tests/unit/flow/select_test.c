/* select_test.c - one of several things: each kind, fairness, interruption, conservation. */
#include <string.h>

#include "base/atomic.h"
#include "rt/handle.h"
#include "unit/flow/flow_test.h"

static const weir_chan_spec plain = {
    .name = "plain", .capacity = 4, .overflow = WEIR_WAIT, .on_close = WEIR_DRAIN};

FLOW_TEST(select_refuses_what_is_not_said)
{
    weir_case nothing[1] = {{.kind = WEIR_CASE_UNSET_}};
    weir_case timer[1] = {WEIR_CASE_TIMER(1)};

    CHECK_INT(weir_select(timer, 0, WEIR_FAIR), ==, WEIR_EREFUSED);
    CHECK_INT(weir_select(timer, WEIR_SELECT_MAX + 1, WEIR_FAIR), ==, WEIR_EREFUSED);
    CHECK_INT(weir_select(timer, 1, WEIR_SELECT_ORDER_UNSET), ==, WEIR_EREFUSED);
    CHECK(strstr(weir_why(), "order") != NULL);
    CHECK_INT(weir_select(nothing, 1, WEIR_FAIR), ==, WEIR_EREFUSED);
    return 0;
}

static int return_seven(void *arg)
{
    (void)arg;
    int r = weir_yield();
    return r < 0 ? r : 7;
}

static int set_event(void *arg)
{
    weir_event_set(*(weir_event **)arg);
    return 0;
}

FLOW_TEST(select_does_each_kind_of_case)
{
    int_tx tx, full_tx;
    int_rx rx, full_rx;
    weir_event *event;
    weir_conn *reader, *writer;
    weir_task task;
    int result, item = 0, out = 5;

    CHECK_OK(weir_pipe(&reader, &writer));
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_chan_open(scope, &plain, &tx, &rx));
        CHECK_OK(weir_chan_open(scope, &plain, &full_tx, &full_rx));
        CHECK_OK(weir_event_open(scope, "event", &event));
        {
            weir_case cases[] = {WEIR_CASE_RECV(rx, &item), WEIR_CASE_SEND(full_tx, &out)};
            CHECK_INT(weir_select(cases, 2, WEIR_FAIR), ==, 1);
            CHECK_OK(cases[1].result);
        }
        {
            weir_case cases[] = {WEIR_CASE_RECV(rx, &item), WEIR_CASE_RECV(full_rx, &item)};
            CHECK_INT(weir_select(cases, 2, WEIR_FAIR), ==, 1);
            CHECK_INT(item, ==, 5);
        }
        {
            weir_case cases[] = {WEIR_CASE_RECV(rx, &item), WEIR_CASE_TIMER(1)};
            CHECK_INT(weir_select(cases, 2, WEIR_FAIR), ==, 1);
        }
        {
            weir_case cases[] = {WEIR_CASE_RECV(rx, &item), WEIR_CASE_EVENT(event)};
            CHECK_OK(weir_spawn(scope, set_event, &event, sizeof event));
            CHECK_INT(weir_select(cases, 2, WEIR_FAIR), ==, 1);
            CHECK_INT(weir_select(cases, 2, WEIR_FAIR), ==, 1);
        }
        {
            weir_task_spec spec = {.fn = return_seven};
            CHECK_OK(weir_task_spawn(scope, &spec, &task));
            weir_case cases[] = {WEIR_CASE_RECV(rx, &item), WEIR_CASE_JOIN(task)};
            CHECK_INT(weir_select(cases, 2, WEIR_FAIR), ==, 1);
            CHECK_OK(cases[1].result);
            CHECK_INT(cases[1].task_result, ==, 7);
            CHECK_INT(weir_select(cases, 2, WEIR_FAIR), ==, 1);
            CHECK_INT(cases[1].result, ==, WEIR_ECLOSED);
        }
        {
            weir_case cases[] = {WEIR_CASE_RECV(rx, &item), WEIR_CASE_READABLE(reader)};
            char byte;
            CHECK_INT(weir_conn_write(writer, "x", 1), ==, 1);
            CHECK_INT(weir_select(cases, 2, WEIR_FAIR), ==, 1);
            CHECK_INT(weir_conn_read(reader, &byte, 1), ==, 1);
        }
        {
            weir_case cases[] = {WEIR_CASE_RECV(rx, &item), WEIR_CASE_TIMER(10000)};
            weir_tx_close(tx.end);
            CHECK_INT(weir_select(cases, 2, WEIR_FAIR), ==, 0);
            CHECK_INT(cases[0].result, ==, WEIR_ECLOSED);
        }
    }
    weir_conn_close(reader);
    weir_conn_close(writer);
    return result;
}

static int watch_conn(void *arg)
{
    weir_case cases[] = {WEIR_CASE_READABLE(*(weir_conn **)arg)};
    return weir_select(cases, 1, WEIR_FAIR);
}

static int close_watched(void *arg)
{
    weir_conn *reader, *writer;
    int result;

    (void)arg;
    CHECK_OK(weir_pipe(&reader, &writer));
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_spawn(scope, watch_conn, &reader, sizeof reader));
        CHECK_OK(weir_yield());
        weir_conn_close(reader);
    }
    return result;
}

static void close_watched_child(void *arg)
{
    (void)arg;
    (void)flow_test_run(close_watched);
}

TEST(closing_a_connection_that_a_select_watches_aborts_with_a_sentence)
{
    CHECK_ABORTS(close_watched_child, NULL, "weir_conn_close: a task waits for the connection");
}

FLOW_TEST(select_is_fair_between_ready_cases_and_in_order_when_told)
{
    enum { CASES = 4, ROUNDS = 4000 };
    int_tx tx[CASES];
    int_rx rx[CASES];
    int taken[CASES] = {0};
    int result, item = 0;

    FLOW_SCOPE(scope, &result)
    {
        for (int i = 0; i < CASES; i++) {
            CHECK_OK(weir_chan_open(scope, &plain, &tx[i], &rx[i]));
            CHECK_OK(weir_send(tx[i], &item));
        }
        weir_case cases[CASES] = {WEIR_CASE_RECV(rx[0], &item), WEIR_CASE_RECV(rx[1], &item),
                                  WEIR_CASE_RECV(rx[2], &item), WEIR_CASE_RECV(rx[3], &item)};
        for (int round = 0; round < ROUNDS; round++) {
            int chosen = weir_select(cases, CASES, WEIR_FAIR);
            CHECK_INT(chosen, >=, 0);
            taken[chosen]++;
            CHECK_OK(weir_send(tx[chosen], &item));
        }
        for (int i = 0; i < CASES; i++) {
            CHECK_INT(taken[i], >, ROUNDS / CASES * 8 / 10);
            CHECK_INT(taken[i], <, ROUNDS / CASES * 12 / 10);
        }
        CHECK_INT(weir_select(cases, CASES, WEIR_IN_ORDER), ==, 0);
        CHECK_INT(weir_select(cases, CASES, WEIR_IN_ORDER), ==, 1);
    }
    return result;
}

/* Whichever of the cases are ready, neighbours or far apart: each of them is taken alike often,
 * also if the first that is tried is not ready. */
static void check_ready_set(unsigned ready, int count, bool with_event, weir_event *event,
                            int_tx *tx, int_rx *rx)
{
    enum { ROUNDS = TEST_SANITIZED ? 600 : 6000 };
    weir_case cases[WEIR_SELECT_MAX];
    int taken[WEIR_SELECT_MAX] = {0}, item = 0, ready_count = 0;

    for (int i = 0; i < count; i++) {
        cases[i] = WEIR_CASE_RECV(rx[i], &item);
        if (!(ready >> i & 1)) continue;
        ready_count++;
        if (with_event && ready_count == 1) {
            cases[i] = WEIR_CASE_EVENT(event);
        } else {
            CHECK_OK(weir_send(tx[i], &item));
        }
    }
    for (int round = 0; round < ROUNDS; round++) {
        int chosen = weir_select(cases, (size_t)count, WEIR_FAIR);
        CHECK_OK(chosen);
        CHECK_OK(cases[chosen].result);
        taken[chosen]++;
        if (cases[chosen].kind == WEIR_CASE_RECV_) CHECK_OK(weir_send(tx[chosen], &item));
    }
    for (int i = 0; i < count; i++) {
        int share = ready >> i & 1 ? ROUNDS / ready_count : 0;
        test_note("ready %#x of %d: case %d was taken %d times", ready, count, i, taken[i]);
        CHECK_INT(taken[i], >=, share * (TEST_SANITIZED ? 7 : 8) / 10);
        CHECK_INT(taken[i], <=, share * (TEST_SANITIZED ? 13 : 12) / 10);
        while (weir_try_recv(rx[i], &item) == 1) {}
    }
}

FLOW_TEST(select_is_fair_whichever_cases_are_ready)
{
    enum { CASES = 12 };
    weir_event *event;
    int_tx tx[CASES];
    int_rx rx[CASES];
    int result;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_event_open(scope, "set", &event));
        weir_event_set(event);
        for (int i = 0; i < CASES; i++) CHECK_OK(weir_chan_open(scope, &plain, &tx[i], &rx[i]));
        for (int with_event = 0; with_event < 2; with_event++) {
            for (unsigned ready = 1; ready < 16; ready++) {
                check_ready_set(ready, 4, with_event, event, tx, rx);
            }
            check_ready_set(0x3, 2, with_event, event, tx, rx);
            check_ready_set(0x6, 3, with_event, event, tx, rx);
            check_ready_set(0x003, CASES, with_event, event, tx, rx);
            check_ready_set(0x823, CASES, with_event, event, tx, rx);
        }
    }
    return result;
}

/* Of whatever kind it is, a descriptor that has something to read is ready at once. */
static void check_readable(weir_conn *reader, weir_conn *writer, weir_event *set)
{
    weir_case cases[] = {WEIR_CASE_READABLE(reader), WEIR_CASE_EVENT(set)};
    int taken[2] = {0, 0};
    char byte;

    CHECK_INT(weir_select(cases, 2, WEIR_IN_ORDER), ==, 1);
    CHECK_INT(weir_conn_write(writer, "x", 1), ==, 1);
    CHECK_INT(weir_select(cases, 2, WEIR_IN_ORDER), ==, 0);
    for (int i = 0; i < 1000; i++) {
        int chosen = weir_select(cases, 2, WEIR_FAIR);
        CHECK_OK(chosen);
        taken[chosen]++;
    }
    CHECK_INT(taken[0], >, 400);
    CHECK_INT(taken[1], >, 400);
    CHECK_INT(weir_conn_read(reader, &byte, 1), ==, 1);
    CHECK_INT(weir_select(cases, 2, WEIR_IN_ORDER), ==, 1);
    {
        /* What was read is not there any more, also if it was reported before. */
        weir_case waiting[] = {WEIR_CASE_READABLE(reader), WEIR_CASE_TIMER(1)};
        CHECK_INT(weir_select(waiting, 2, WEIR_IN_ORDER), ==, 1);
    }
    weir_conn_close(writer);
    CHECK_INT(weir_select(cases, 2, WEIR_IN_ORDER), ==, 0); /* its end */
    CHECK_INT(weir_conn_read(reader, &byte, 1), ==, 0);
    weir_conn_close(reader);
}

FLOW_TEST(select_looks_into_descriptors_of_every_kind)
{
    weir_conn *a, *b;
    weir_event *set;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_event_open(scope, "set", &set));
        weir_event_set(set);
        CHECK_OK(weir_pipe(&a, &b));
        check_readable(a, b, set);
        CHECK_OK(weir_socketpair(&a, &b));
        check_readable(a, b, set);
    }
    return result;
}

FLOW_TEST(select_that_times_out_has_moved_nothing)
{
    int_tx tx, full;
    int_rx rx, full_rx;
    int result, item = 0, r = 0;

    FLOW_SCOPE(scope, &result)
    {
        weir_chan_figures figures;
        CHECK_OK(weir_chan_open(scope, &plain, &tx, &rx));
        CHECK_OK(weir_chan_open(scope, &plain, &full, &full_rx));
        for (int i = 0; i < 4; i++) CHECK_OK(weir_send(full, &i));
        weir_case cases[] = {WEIR_CASE_RECV(rx, &item), WEIR_CASE_SEND(full, &item)};
        WEIR_DEADLINE(1) { r = weir_select(cases, 2, WEIR_FAIR); }
        CHECK_INT(r, ==, WEIR_ETIMEDOUT);
        weir_tx_figures(full.end, &figures);
        CHECK_INT(figures.depth, ==, 4);
        CHECK_INT(figures.senders_waiting, ==, 0);
        weir_tx_figures(tx.end, &figures);
        CHECK_INT(figures.receivers_waiting, ==, 0);
    }
    return result;
}

/* Tasks that select on both sides of two rendezvous: every item arrives once. */
struct traffic {
    int_tx tx[2];
    int_rx rx[2];
    int count;
    ATOM(long) * sum;
};

static int select_sender(void *arg)
{
    struct traffic *traffic = arg;
    for (int i = 1; i <= traffic->count; i++) {
        weir_case cases[] = {WEIR_CASE_SEND(traffic->tx[0], &i),
                             WEIR_CASE_SEND(traffic->tx[1], &i)};
        int r = weir_select(cases, 2, WEIR_FAIR);
        if (r < 0) return r;
        if (cases[r].result < 0) return cases[r].result;
    }
    weir_tx_drop(traffic->tx[0].end);
    weir_tx_drop(traffic->tx[1].end);
    return 0;
}

static int select_receiver(void *arg)
{
    struct traffic *traffic = arg;
    int open = 3;

    while (open) {
        int item;
        weir_case cases[] = {WEIR_CASE_RECV(traffic->rx[0], &item),
                             WEIR_CASE_RECV(traffic->rx[1], &item)};
        int r = open == 3   ? weir_select(cases, 2, WEIR_FAIR)
                : open == 1 ? weir_select(cases, 1, WEIR_FAIR)
                            : weir_select(cases + 1, 1, WEIR_FAIR);
        if (r < 0) return r;
        if (open == 2) r = 1;
        if (cases[r].result == WEIR_ECLOSED) {
            open &= ~(1 << r);
        } else {
            (void)atom_add(traffic->sum, item);
        }
    }
    return 0;
}

FLOW_TEST(select_on_both_sides_loses_and_doubles_nothing)
{
    enum { SENDERS = 6, RECEIVERS = 4, EACH = 200 };
    weir_chan_spec spec = plain;
    struct traffic all = {.count = EACH};
    static ATOM(long) sum;
    int result;

    atom_store(&sum, 0);
    spec.capacity = WEIR_RENDEZVOUS;
    FLOW_SCOPE_ANYWHERE(scope, &result)
    {
        for (int i = 0; i < 2; i++) CHECK_OK(weir_chan_open(scope, &spec, &all.tx[i], &all.rx[i]));
        all.sum = &sum;
        for (int i = 0; i < SENDERS; i++) {
            struct traffic job = all;
            CHECK_OK(weir_tx_copy(all.tx[0].end, &job.tx[0].end));
            CHECK_OK(weir_tx_copy(all.tx[1].end, &job.tx[1].end));
            CHECK_OK(weir_spawn(scope, select_sender, &job, sizeof job));
        }
        for (int i = 0; i < RECEIVERS; i++)
            CHECK_OK(weir_spawn(scope, select_receiver, &all, sizeof all));
        weir_tx_drop(all.tx[0].end);
        weir_tx_drop(all.tx[1].end);
    }
    CHECK_OK(result);
    CHECK_INT(atom_load(&sum), ==, (long)SENDERS * EACH * (EACH + 1) / 2);
    return 0;
}

static int receive_from_two(void *arg)
{
    struct traffic *traffic = arg;
    int item = 0;
    weir_case cases[] = {WEIR_CASE_RECV(traffic->rx[0], &item),
                         WEIR_CASE_RECV(traffic->rx[1], &item)};
    int r = weir_select(cases, 2, WEIR_FAIR);

    return r < 0 ? r : item;
}

/* The receiver was promised another item before it could leave the queue of this channel. */
FLOW_TEST(select_waits_for_nobody_who_has_got_something_else)
{
    weir_chan_spec rejects = plain, waits = plain;
    struct traffic all = {.count = 0};
    weir_task receiver;
    int result, got = 0, item = 7;

    rejects.capacity = waits.capacity = WEIR_RENDEZVOUS;
    rejects.overflow = WEIR_REJECT;
    FLOW_SCOPE(scope, &result)
    {
        weir_case cases[2];
        CHECK_OK(weir_chan_open(scope, &waits, &all.tx[0], &all.rx[0]));
        CHECK_OK(weir_chan_open(scope, &rejects, &all.tx[1], &all.rx[1]));
        CHECK_OK(weir_task_spawn(scope,
                                 &(weir_task_spec){.fn = receive_from_two,
                                                   .arg = &all,
                                                   .arg_bytes = sizeof all,
                                                   .place = WEIR_PLACE_WORKER,
                                                   .worker = 0},
                                 &receiver));
        CHECK_OK(weir_yield()); /* so that it waits */
        CHECK_OK(weir_send(all.tx[0], &item));
        cases[0] = WEIR_CASE_RECV(all.rx[0], &got);
        cases[1] = WEIR_CASE_SEND(all.tx[1], &item);
        CHECK_INT(weir_select(cases, 2, WEIR_IN_ORDER), ==, 1);
        CHECK_INT(cases[1].result, ==, WEIR_EOVERLOAD);
        CHECK_OK(weir_task_join(receiver, &got));
        CHECK_INT(got, ==, 7);
    }
    CHECK_OK(result);
    return 0;
}

struct far_job {
    int_tx tx;
    int_rx rx;
    weir_mutex *mutex;
};

static int far_sender(void *arg)
{
    struct far_job *job = arg;
    int r = 0;

    for (int i = 0; i < 10 && r == 0; i++) {
        weir_case cases[] = {WEIR_CASE_SEND(job->tx, &i)};
        r = weir_mutex_lock(job->mutex);
        if (r < 0) return r;
        weir_mutex_unlock(job->mutex);
        r = i % 2 ? weir_select(cases, 1, WEIR_FAIR) : weir_send(job->tx, &i);
    }
    return r;
}

/* Calls find most handles in an array; those of more objects than that has room for, elsewhere. */
FLOW_TEST(what_is_opened_after_very_many_others_works_as_they_do)
{
    static void *others[HANDLES_NEAR];
    weir_chan_spec spec = plain;
    struct far_job job;
    int result, object, item = -1;

    for (int i = 0; i < HANDLES_NEAR; i++) CHECK_OK(handle_open(HANDLE_UDP, &object, &others[i]));
    spec.capacity = WEIR_RENDEZVOUS;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_chan_open(scope, &spec, &job.tx, &job.rx));
        CHECK_OK(weir_mutex_open(scope, "far", &job.mutex));
        CHECK(handle_object_near(job.mutex, HANDLE_MUTEX) == NULL);
        CHECK_OK(weir_spawn(scope, far_sender, &job, sizeof job));
        for (int i = 0; i < 10; i++) {
            weir_case cases[] = {WEIR_CASE_RECV(job.rx, &item)};
            CHECK_OK(i % 3 ? weir_select(cases, 1, WEIR_FAIR) : weir_recv(job.rx, &item));
            CHECK_INT(item, ==, i);
        }
    }
    CHECK_OK(result);
    for (int i = 0; i < HANDLES_NEAR; i++) handle_close(others[i]);
    return 0;
}

/* udp_test.c - datagrams arrive whole, with their sender, or are cut and say so. */
#include <string.h>

#include "unit/io/io_test.h"

static void open_two(weir_udp *udps[2], weir_address addresses[2], const char *where)
{
    for (int i = 0; i < 2; i++) {
        CHECK_OK(weir_udp_open(where, &udps[i]));
        CHECK_OK(weir_udp_local(udps[i], &addresses[i]));
        CHECK_INT(addresses[i].transport, ==, WEIR_UDP);
    }
}

IO_TEST(datagrams_keep_their_borders_and_tell_their_sender)
{
    weir_udp *udps[2];
    weir_address addresses[2], from;
    char data[8] = "";

    open_two(udps, addresses, "udp:127.0.0.1:0");
    CHECK_INT(weir_udp_send(udps[0], &addresses[1], "abc", 3), ==, 3);
    CHECK_INT(weir_udp_send(udps[0], &addresses[1], "", 0), ==, 0);
    CHECK_INT(weir_udp_send(udps[0], &addresses[1], "0123456789", 10), ==, 10);
    CHECK_INT(weir_udp_recv(udps[1], data, sizeof data, &from), ==, 3);
    CHECK_STR(data, "abc");
    CHECK_INT(from.transport, ==, WEIR_UDP);
    CHECK(memcmp(&from, &addresses[0], sizeof from) == 0);
    CHECK_INT(weir_udp_recv(udps[1], data, sizeof data, NULL), ==, 0);
    CHECK_INT(weir_udp_recv(udps[1], data, 4, &from), ==, 10);
    CHECK(memcmp(data, "0123", 4) == 0);
    WEIR_DEADLINE(1) { CHECK_INT(weir_udp_recv(udps[1], data, 4, &from), ==, WEIR_ETIMEDOUT); }
    weir_udp_close(udps[0]);
    weir_udp_close(udps[1]);
    weir_udp_close(NULL);
    return 0;
}

static int receive_one(void *arg)
{
    weir_udp *udp = *(weir_udp **)arg;
    char data[8];
    ssize_t n = weir_udp_recv(udp, data, sizeof data, NULL);
    return n < 0 ? (int)n : 0;
}

IO_TEST(a_waiting_receiver_is_woken_and_is_the_only_one)
{
    weir_udp *udps[2];
    weir_address addresses[2];
    char data[8];
    int r;

    open_two(udps, addresses, "udp:[::1]:0");
    IO_SCOPE(scope, &r)
    {
        CHECK_OK(weir_spawn(scope, receive_one, &udps[1], sizeof udps[1]));
        CHECK_OK(weir_yield());
        CHECK_INT(weir_udp_recv(udps[1], data, sizeof data, NULL), ==, WEIR_EINUSE);
        CHECK_INT(weir_udp_send(udps[0], &addresses[1], "x", 1), ==, 1);
    }
    CHECK_OK(r);
    weir_udp_close(udps[0]);
    weir_udp_close(udps[1]);
    return 0;
}

IO_TEST(wrong_addresses_and_sizes_are_told)
{
    static char large[70000];
    weir_udp *udp;
    weir_address to;

    CHECK_INT(weir_udp_open("tcp:127.0.0.1:0", &udp), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "not udp:");
    CHECK_INT(weir_udp_open("udp:nowhere", &udp), ==, WEIR_EREFUSED);
    CHECK_INT(weir_udp_open("udp:203.0.113.1:0", &udp), ==, -EADDRNOTAVAIL);
    CHECK_OK(weir_udp_open("udp:127.0.0.1:0", &udp));
    CHECK_OK(weir_address_parse("tcp:127.0.0.1:9", &to));
    CHECK_INT(weir_udp_send(udp, &to, "x", 1), ==, WEIR_EREFUSED);
    CHECK_INT(weir_udp_send(udp, NULL, "x", 1), ==, WEIR_EREFUSED);
    CHECK_OK(weir_udp_local(udp, &to));
    CHECK_INT(weir_udp_send(udp, &to, large, sizeof large), ==, -EMSGSIZE);
    weir_udp_close(udp);
    return 0;
}

static int send_many(void *arg)
{
    const struct {
        weir_udp *udp;
        weir_address to;
    } *use = arg;
    for (int i = 0; i < 50; i++) {
        ssize_t n = weir_udp_send(use->udp, &use->to, &i, sizeof i);
        if (n < 0) return (int)n;
    }
    return 0;
}

IO_TEST(many_tasks_may_send_on_one_socket)
{
    weir_udp *udps[2];
    weir_address addresses[2];
    int r, value;

    open_two(udps, addresses, "udp:127.0.0.1:0");
    WEIR_SCOPE(scope, &r, .name = "senders", .on_failure = WEIR_FAIL_FAST, .max_tasks = 8,
               .overflow = WEIR_REJECT) {
        struct {
            weir_udp *udp;
            weir_address to;
        } use = {udps[0], addresses[1]};
        for (int i = 0; i < 4; i++) CHECK_OK(weir_spawn(scope, send_many, &use, sizeof use));
    }
    CHECK_OK(r);
    for (int i = 0; i < 200; i++) {
        CHECK_INT(weir_udp_recv(udps[1], &value, sizeof value, NULL), ==, sizeof value);
    }
    weir_udp_close(udps[0]);
    weir_udp_close(udps[1]);
    return 0;
}

static int close_under(bool woken)
{
    weir_udp *udps[2];
    weir_address addresses[2];
    int r;

    open_two(udps, addresses, "udp:127.0.0.1:0");
    IO_SCOPE(scope, &r)
    {
        CHECK_OK(weir_spawn(scope, receive_one, &udps[1], sizeof udps[1]));
        CHECK_OK(weir_yield());
        /* Woken, and behind this task in the queue: it waits no more, and has not left. */
        if (woken) weir_scope_cancel(scope, 0, "wake it");
        weir_udp_close(udps[1]);
    }
    return r;
}

static int close_under_a_receiver(void *arg)
{
    (void)arg;
    return close_under(false);
}

static int close_under_a_woken_receiver(void *arg)
{
    (void)arg;
    return close_under(true);
}

static void misuse_in_a_task(void *arg)
{
    (void)io_test_run(*(weir_task_fn *)arg);
}

TEST(closing_under_a_receiver_aborts)
{
    weir_task_fn waiting = close_under_a_receiver, woken = close_under_a_woken_receiver;

    CHECK_ABORTS(misuse_in_a_task, &waiting, "weir_udp_close: a task is sending or receiving");
    CHECK_ABORTS(misuse_in_a_task, &woken, "weir_udp_close: a task is sending or receiving");
}

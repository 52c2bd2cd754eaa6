/* net_datagram_test.c - datagrams between simulated hosts: lost, doubled, overtaken; never cut. */
#include "unit/sim/net_test.h"

enum { COUNT = 20, BYTES = 100, LIMIT_MS = 60 * 1000 };

/* Number i, in BYTES - i bytes. */
static void make(char *data, unsigned i)
{
    memset(data, (int)i, BYTES);
}

static int receive_all(weir_udp *udp, struct seen *seen)
{
    unsigned times[COUNT] = {0};
    unsigned newest = 0;
    char data[BYTES + 1], expected[BYTES];
    weir_address from;

    for (;;) {
        ssize_t n = 0;
        unsigned i;

        WEIR_DEADLINE(2000) { n = weir_udp_recv(udp, data, sizeof data, &from); }
        if (n < 0) break;
        i = (unsigned char)data[0];
        HOLDS(i < COUNT);
        make(expected, i);
        IS(n, BYTES - i);
        HOLDS(memcmp(data, expected, (size_t)n) == 0);
        if (times[i]++ == 1) seen->doubled++;
        HOLDS(times[i] <= 2);
        if (i < newest) seen->overtaken++;
        if (i > newest) newest = i;
    }
    for (unsigned i = 0; i < COUNT; i++) {
        if (times[i] == 0) seen->lost++;
        if (times[i] > 0) seen->whole++;
    }
    return 0;
}

static int datagram_server(void *arg)
{
    struct seen *seen = *(struct seen **)arg;
    weir_udp *udp;

    WEIR_DEADLINE(LIMIT_MS) {
        IS(weir_udp_open("udp:0.0.0.0:7000", &udp), 0);
        IS(receive_all(udp, seen), 0);
        weir_udp_close(udp);
    }
    return 0;
}

static int datagram_client(void *arg)
{
    struct seen *seen = arg;
    weir_sim_host *server = net_server(datagram_server, seen);
    weir_address to;
    weir_udp *udp;
    char data[BYTES];

    seen->runs++;
    WEIR_DEADLINE(LIMIT_MS) {
        IS(weir_address_parse("udp:10.0.0.2:7000", &to), 0);
        IS(weir_udp_open("udp:10.0.0.1:0", &udp), 0);
        IS(weir_sleep(100), 0); /* the other one is open by now */
        for (unsigned i = 0; i < COUNT; i++) {
            make(data, i);
            IS(weir_udp_send(udp, &to, data, BYTES - i), BYTES - i);
            IS(weir_sleep(1), 0);
        }
        while (weir_sim_host_running(server)) IS(weir_sleep(100), 0);
        weir_udp_close(udp);
    }
    return 0;
}

TEST(datagrams_arrive_whole_once_and_in_order)
{
    struct seen *seen = seen_open();

    NET_RUNS("datagrams", datagram_client, seen, 20);
    CHECK_INT(seen->whole, ==, COUNT * seen->runs);
    CHECK_INT(seen->lost + seen->doubled + seen->overtaken, ==, 0);
    seen_close(seen);
}

TEST(datagrams_are_lost_by_chance)
{
    struct seen *seen = seen_open();

    NET_RUNS("loss", datagram_client, seen, 40, .faults = {.datagram_loss = 8});
    CHECK_INT(seen->lost, >, 0);
    CHECK_INT(seen->whole, >, seen->lost);
    CHECK_INT(seen->doubled + seen->overtaken, ==, 0);
    seen_close(seen);
}

TEST(datagrams_come_twice_by_chance)
{
    struct seen *seen = seen_open();

    NET_RUNS("twice", datagram_client, seen, 40, .faults = {.datagram_twice = 8});
    CHECK_INT(seen->doubled, >, 0);
    CHECK_INT(seen->doubled, <, seen->whole / 2);
    CHECK_INT(seen->lost + seen->overtaken, ==, 0);
    seen_close(seen);
}

TEST(datagrams_are_overtaken_by_chance)
{
    struct seen *seen = seen_open();

    NET_RUNS("order", datagram_client, seen, 40, .faults = {.datagram_order = 8});
    CHECK_INT(seen->overtaken, >, 0);
    CHECK_INT(seen->overtaken, <, seen->whole / 2);
    CHECK_INT(seen->lost + seen->doubled, ==, 0);
    seen_close(seen);
}

TEST(faults_of_datagrams_have_their_bound)
{
    struct seen *seen = seen_open();

    NET_RUNS("bounded", datagram_client, seen, 40,
             .faults = {.datagram_loss = 2, .datagram_twice = 2, .faults_max = 3});
    CHECK_INT(seen->lost + seen->doubled, >, 0);
    CHECK_INT(seen->lost + seen->doubled, <=, 3 * seen->runs);
    seen_close(seen);
}

/* ---- Bounds ---- */

static int full_queue(void *arg)
{
    struct seen *seen = arg;
    weir_udp *a, *b;
    weir_address to;
    char byte = 'x';
    ssize_t n = 1;

    WEIR_DEADLINE(LIMIT_MS) {
        IS(weir_udp_open("udp:127.0.0.1:0", &a), 0);
        IS(weir_udp_open("udp:127.0.0.1:0", &b), 0);
        IS(weir_udp_local(b, &to), 0);
        for (int i = 0; i < 100; i++) IS(weir_udp_send(a, &to, &byte, 1), 1);
        while (n == 1) {
            WEIR_DEADLINE(1) { n = weir_udp_recv(b, &byte, 1, NULL); }
            if (n == 1) seen->whole++;
        }
        IS(n, WEIR_ETIMEDOUT);
        weir_udp_close(a);
        weir_udp_close(b);
    }
    seen->runs++;
    return 0;
}

TEST(a_queue_of_datagrams_is_bounded)
{
    struct seen *seen = seen_open();

    NET_RUNS("full", full_queue, seen, 5);
    CHECK_INT(seen->whole, ==, 64 * seen->runs);
    seen_close(seen);
}

static int cut_off_client(void *arg)
{
    struct seen *seen = arg;
    weir_sim_host *server = net_server(datagram_server, seen);
    weir_address to;
    weir_udp *udp;
    char data[BYTES];

    WEIR_DEADLINE(LIMIT_MS) {
        IS(weir_address_parse("udp:10.0.0.2:7000", &to), 0);
        IS(weir_udp_open("udp:0.0.0.0:0", &udp), 0);
        IS(weir_sleep(100), 0);
        weir_sim_partition(weir_sim_host_self(), server);
        make(data, 1);
        IS(weir_udp_send(udp, &to, data, BYTES - 1), BYTES - 1);
        IS(weir_sleep(100), 0);
        weir_sim_heal(weir_sim_host_self(), server);
        make(data, 2);
        IS(weir_udp_send(udp, &to, data, BYTES - 2), BYTES - 2);
        while (weir_sim_host_running(server)) IS(weir_sleep(100), 0);
        weir_udp_close(udp);
    }
    seen->runs++;
    return 0;
}

TEST(datagrams_do_not_wait_for_a_partition_to_heal)
{
    struct seen *seen = seen_open();

    NET_RUNS("cut off", cut_off_client, seen, 10);
    CHECK_INT(seen->whole, ==, seen->runs);
    seen_close(seen);
}

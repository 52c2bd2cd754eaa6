/* scenarios.c - the situations that every service meets, by name: small programs of two hosts, with
 * what must hold in each of them. What a server knows here is gone when it is killed; where it
 * matters a comment says what a durable store adds. */
#include "sim/policy.h"

enum { CLIENTS = 3, REQUESTS = 4, PATIENCE_MS = 60 * 1000, SESSION_MS = 100 };

/* ---- A ledger that answers datagrams: each request has its own number, and is done once ---- */

enum operation { ADD = 1, GET, SWAP, LOGIN };

struct message {
    uint32_t request; /* client * REQUESTS + its number: repeated until it is answered */
    uint32_t operation;
    uint32_t expected, value; /* SWAP: only from this to that */
    uint32_t session;
    int32_t result;
};

static struct {
    uint32_t value, applied, sessions, served_expired;
    unsigned done[CLIENTS * REQUESTS * 64];
    struct message answers[CLIENTS * REQUESTS * 64];
    int64_t session_ends_ns[256];
} ledger;

static struct {
    uint32_t added, swapped, logins;
} clients;

static void forget(void *arg)
{
    (void)arg;
    memset(&ledger, 0, sizeof ledger);
    memset(&clients, 0, sizeof clients);
}

static int32_t ledger_do(struct message *message)
{
    if (message->operation == LOGIN) {
        message->session = ++ledger.sessions;
        CHECK_INT(message->session, <, 256);
        ledger.session_ends_ns[message->session] = weir_now_ns() + SESSION_MS * MS_NS;
        return 0;
    }
    if (message->session && ledger.session_ends_ns[message->session] <= weir_now_ns()) {
        return -EKEYEXPIRED;
    }
    if (message->operation == SWAP && message->expected != ledger.value) {
        message->value = ledger.value;
        return -EAGAIN;
    }
    if (message->operation == ADD) ledger.value++;
    if (message->operation == SWAP) ledger.value = message->value;
    if (message->operation != GET) ledger.applied++;
    message->value = ledger.value;
    return 0;
}

/* The answers are kept, and given again: a store keeps them beyond a restart. */
static int ledger_server(void *arg)
{
    (void)arg;
    WEIR_DEADLINE(PATIENCE_MS * 2) {
        struct message message;
        weir_address from;
        weir_udp *udp;

        CHECK_OK(weir_udp_open("udp:0.0.0.0:7000", &udp));
        while (weir_udp_recv(udp, &message, sizeof message, &from) == sizeof message) {
            uint32_t request = message.request;
            ssize_t n;

            if (ledger.done[request]++ == 0) {
                message.result = ledger_do(&message);
                ledger.answers[request] = message;
            }
            n = weir_udp_send(udp, &from, &ledger.answers[request], sizeof message);
            CHECK(n == sizeof message || n == -ECONNREFUSED);
        }
        weir_udp_close(udp);
    }
    return 0;
}

/* Ask until the answer to this very request comes. */
static int32_t ask(weir_udp *udp, struct message *message)
{
    uint32_t request = message->request;
    weir_address to;

    CHECK_INT(weir_resolve("ledger", 7000, WEIR_UDP, &to, 1), ==, 1);
    for (;;) {
        struct message answer;
        ssize_t n = weir_udp_send(udp, &to, message, sizeof *message);

        CHECK(n == sizeof *message || n == -ECONNREFUSED);
        WEIR_DEADLINE(50) {
            while ((n = weir_udp_recv(udp, &answer, sizeof answer, NULL)) > 0) {
                if (answer.request != request) continue; /* of an earlier one: late, or twice */
                *message = answer;
                return message->result;
            }
        }
        if (n == -ECONNREFUSED) CHECK_OK(weir_sleep(5));
    }
}

static int add_some(void *arg)
{
    uint32_t client = *(unsigned *)arg, last = 0;
    weir_udp *udp;

    CHECK_OK(weir_udp_open("udp:0.0.0.0:0", &udp));
    for (uint32_t i = 0; i < REQUESTS; i++) {
        struct message message = {.request = client * REQUESTS + i, .operation = ADD};

        CHECK_INT(ask(udp, &message), ==, 0);
        CHECK_INT(message.value, >, last); /* answers are not mixed up, and do not go back */
        last = message.value;
        clients.added++;
    }
    weir_udp_close(udp);
    return 0;
}

static int ledger_of_adds(void)
{
    (void)host_start("ledger", ledger_server);
    CHECK_OK(crowd(CLIENTS, add_some));
    CHECK_INT(clients.added, ==, CLIENTS * REQUESTS);
    CHECK_INT(ledger.value, ==, CLIENTS * REQUESTS);
    return 0;
}

SIM_TEST(scenario_duplicate_execution, .runs_max = 300, .begin = forget,
         .faults = {.datagram_loss = 5, .datagram_twice = 3, .late = 4})
{
    return ledger_of_adds();
}

SIM_TEST(scenario_duplicates, .runs_max = 300, .begin = forget, .faults = {.datagram_twice = 2})
{
    return ledger_of_adds();
}

SIM_TEST(scenario_reordering, .runs_max = 300, .begin = forget,
         .faults = {.datagram_order = 2, .datagram_twice = 4})
{
    return ledger_of_adds();
}

SIM_TEST(scenario_drops, .runs_max = 300, .begin = forget, .faults = {.datagram_loss = 3})
{
    return ledger_of_adds();
}

/* ---- Data that changes between the look and the write ---- */

static int swap_some(void *arg)
{
    uint32_t next = *(unsigned *)arg * REQUESTS * 64;
    weir_udp *udp;

    CHECK_OK(weir_udp_open("udp:0.0.0.0:0", &udp));
    for (uint32_t i = 0; i < REQUESTS; i++) {
        struct message look = {.request = next++, .operation = GET};

        CHECK_INT(ask(udp, &look), ==, 0);
        for (;;) {
            struct message swap = {.request = next++,
                                   .operation = SWAP,
                                   .expected = look.value,
                                   .value = look.value + 1};
            int32_t r = ask(udp, &swap);

            if (r == 0) break;
            CHECK_INT(r, ==, -EAGAIN);
            look.value = swap.value; /* as it is now */
        }
        clients.swapped++;
    }
    weir_udp_close(udp);
    return 0;
}

static int ledger_of_swaps(void)
{
    (void)host_start("ledger", ledger_server);
    CHECK_OK(crowd(CLIENTS, swap_some));
    CHECK_INT(ledger.value, ==, CLIENTS * REQUESTS); /* no change was overwritten */
    CHECK_INT(ledger.applied, ==, clients.swapped);
    return 0;
}

SIM_TEST(scenario_contention, .runs_max = 300, .begin = forget)
{
    return ledger_of_swaps();
}

SIM_TEST(scenario_missing_or_changing_data, .runs_max = 300, .begin = forget,
         .faults = {.datagram_loss = 6, .late = 4})
{
    return ledger_of_swaps();
}

/* ---- Sessions that end ---- */

static int work_in_sessions(void *arg)
{
    uint32_t next = *(unsigned *)arg * REQUESTS * 64, session = 0;
    weir_udp *udp;

    CHECK_OK(weir_udp_open("udp:0.0.0.0:0", &udp));
    for (uint32_t i = 0; i < REQUESTS;) {
        struct message message = {.request = next++, .operation = session ? ADD : LOGIN};
        int32_t r;

        message.session = session;
        r = ask(udp, &message);
        CHECK(r == 0 || r == -EKEYEXPIRED);
        if (message.operation == LOGIN) {
            clients.logins++;
            session = message.session;
        } else if (r == 0) {
            i++;
            clients.added++;
        } else {
            session = 0; /* what was asked is not done: it is asked again in the next one */
        }
        CHECK_OK(weir_sleep(weir_sim_choose(SESSION_MS)));
    }
    weir_udp_close(udp);
    return 0;
}

SIM_TEST(scenario_expired_sessions, .runs_max = 300, .begin = forget,
         .faults = {.late = 4, .datagram_loss = 8})
{
    (void)host_start("ledger", ledger_server);
    CHECK_OK(crowd(CLIENTS, work_in_sessions));
    CHECK_INT(ledger.value, ==, CLIENTS * REQUESTS);
    CHECK_INT(ledger.sessions, ==, clients.logins);
    return 0;
}

/* service_test.c - a service as a whole: its spec, its listeners, many connections, and everything
 * that can go wrong on the way. */
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "server/access.h"
#include "server/addresses.h"
#include "unit/server/server_test.h"

#define HELLO "GET /hello HTTP/1.1\r\nhost: x\r\n\r\n"

/* ---- Specs ---- */

IO_TEST(a_service_says_what_is_wrong_with_its_spec)
{
    const struct service_listener none = {0}, good = {.address = "tcp:127.0.0.1:0"},
                                  tls = {.address = "tcp:127.0.0.1:0", .tls = true};
    struct service_spec spec = {.name = "x",
                                .routes = server_test_routes,
                                .listeners = &good,
                                .listener_count = 1,
                                .limits = SERVICE_LIMITS_DEFAULT};
    struct service_spec wrong;
    struct service *service;
    int r;

    IO_SCOPE(scope, &r)
    {
        wrong = spec, wrong.name = NULL;
        CHECK_INT(service_open(scope, &wrong, &service), ==, WEIR_EREFUSED);
        CHECK_CONTAINS(weir_why(), "name");
        wrong = spec, wrong.listener_count = 0;
        CHECK_INT(service_open(scope, &wrong, &service), ==, WEIR_EREFUSED);
        CHECK_CONTAINS(weir_why(), "listeners");
        wrong = spec, wrong.listeners = &none;
        CHECK_INT(service_open(scope, &wrong, &service), ==, WEIR_EREFUSED);
        CHECK_CONTAINS(weir_why(), "address");
        wrong = spec, wrong.listeners = &tls;
        CHECK_INT(service_open(scope, &wrong, &service), ==, WEIR_EREFUSED);
        CHECK_CONTAINS(weir_why(), "keep_tls");
        wrong = spec, wrong.routes.count = 0;
        CHECK_INT(service_open(scope, &wrong, &service), ==, WEIR_EREFUSED);
        CHECK_CONTAINS(weir_why(), "routes");
        wrong = spec, wrong.limits.head_ms = 0;
        CHECK_INT(service_open(scope, &wrong, &service), ==, WEIR_EREFUSED);
        CHECK_CONTAINS(weir_why(), "limits.head_ms");
    }
    return r;
}

/* ---- Listeners ---- */

static void ask_once(const char *address)
{
    struct server_answer *answer = server_answer_room();
    struct server_client *client = server_connect_to(address);

    server_ask(client, HELLO, answer);
    CHECK_INT(answer->status, ==, 200);
    server_disconnect(client);
}

IO_TEST(a_service_listens_at_several_places_also_at_inherited_ones)
{
    char path[WEIR_ADDRESS_TEXT_MAX], tcp[WEIR_ADDRESS_TEXT_MAX];
    struct service_listener listeners[3] = {{.address = "tcp:127.0.0.1:0"}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct server server;
    weir_address address;
    int r;

    CHECK(fd > 0);
    CHECK_INT(listen(fd, 16), ==, 0);
    listeners[1].address = io_test_name("http", path);
    listeners[2].fd = fd;
    IO_SCOPE(scope, &r)
    {
        server_open(&server, scope,
                    &(struct service_spec){.listeners = listeners, .listener_count = 3});
        ask_once(server.address);
        ask_once(path);
        CHECK_OK(service_address(server.service, 2, &address));
        weir_address_format(&address, tcp, sizeof tcp);
        CHECK(strncmp(tcp, "tcp:0.0.0.0:", 12) == 0);
        memmove(tcp + 13, tcp + 11, strlen(tcp + 11) + 1);
        memcpy(tcp, "tcp:127.0.0.1", 13);
        ask_once(tcp);
        CHECK_INT(service_address(server.service, 3, &address), ==, WEIR_EREFUSED);
        CHECK_OK(service_close(server.service));
    }
    return r;
}

/* It need not be closed: its scope ends it. */
IO_TEST(a_service_ends_with_its_scope)
{
    struct server_client *client = NULL;
    struct server server;
    int r;

    IO_SCOPE(scope, &r)
    {
        server_open(&server, scope, &(struct service_spec){0});
        client = server_connect(&server);
    }
    CHECK(server_is_closed(client));
    server_disconnect(client);
    return r;
}

static int stop_service(void *arg)
{
    return service_stop(*(struct service **)arg);
}

/* Who has it stopped can be asked about it, before and after its end, until it is closed. */
IO_TEST(a_service_that_was_stopped_is_there_until_it_is_closed)
{
    struct service_figures figures;
    struct server_client *client;
    struct server server;
    int r;

    IO_SCOPE(scope, &r)
    {
        server_open(&server, scope, &(struct service_spec){0});
        client = server_connect(&server);
        server_ask(client, HELLO, server_answer_room());
        CHECK_OK(weir_spawn(scope, stop_service, &server.service, sizeof server.service));
        CHECK(server_is_closed(client));
        CHECK_OK(service_stop(server.service)); /* also by two */
        service_figures_of(server.service, &figures);
        CHECK_INT(figures.connections, ==, 0);
        CHECK_INT(figures.served, ==, 1);
        CHECK_OK(service_stop(server.service));
        CHECK_OK(service_close(server.service));
        server_disconnect(client);
    }
    return r;
}

/* No descriptor is left for a moment: who waits is served when there is one. */
SERVER_TEST(a_service_goes_on_when_descriptors_are_there_again, {0})
{
    test_fault("accept", -EMFILE, 2);
    ask_once(server->address);
    ask_once(server->address);
}

/* ---- Many ---- */

SERVER_TEST(a_thousand_connections_are_served, {0})
{
    enum { CLIENTS = 1000 };
    static struct server_client *clients[CLIENTS];
    struct server_answer *answer = server_answer_room();
    struct service_connection rows[10];
    struct service_figures figures;
    struct rlimit files;

    CHECK_INT(getrlimit(RLIMIT_NOFILE, &files), ==, 0);
    files.rlim_cur = files.rlim_max;
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &files), ==, 0);
    if (files.rlim_cur < 2 * CLIENTS + 64) TEST_SKIP("too few descriptors");
    for (int i = 0; i < CLIENTS; i++) clients[i] = server_connect(server);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < CLIENTS; i++) server_send(clients[i], HELLO);
        for (int i = 0; i < CLIENTS; i++) {
            server_read(clients[i], false, answer);
            CHECK_INT(answer->status, ==, 200);
        }
    }
    /* An answer is counted behind its sending: the last one may be here before that. */
    do {
        CHECK_OK(weir_sleep(1));
        service_figures_of(server->service, &figures);
    } while (figures.served < 2 * CLIENTS);
    CHECK_INT(figures.connections, ==, CLIENTS);
    CHECK_INT(figures.served, ==, 2 * CLIENTS);
    CHECK_INT(service_connections(server->service, 0, rows, 10), ==, 10);
    for (int i = 0; i < 10; i++) {
        CHECK_INT(rows[i].id, ==, i + 1);
        CHECK_INT(rows[i].requests, ==, 2);
        CHECK(strncmp(rows[i].peer, "tcp:127.0.0.1:", 14) == 0);
    }
    CHECK_INT(service_connections(server->service, CLIENTS - 3, rows, 10), ==, 3);
    for (int i = 0; i < CLIENTS; i++) server_disconnect(clients[i]);
}

/* ---- Everything goes wrong in turn ---- */

static int talk(weir_conn *conn)
{
    static const char request[] = "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc"
                                  "GET /big/2000 HTTP/1.1\r\nhost: x\r\naccept-encoding: gzip\r\n"
                                  "connection: close\r\n\r\n";
    char text[4096];
    ssize_t n;
    int r = weir_conn_send_all(conn, request, sizeof request - 1, NULL);

    if (r < 0) return r;
    do {
        n = weir_conn_read(conn, text, sizeof text);
    } while (n > 0);
    return (int)n;
}

static int scenario_task(void *arg)
{
    const struct service_listener listener = {.address = "tcp:127.0.0.1:0"};
    struct service_limits limits = server_test_limits();
    int r = 0;

    (void)arg;
    /* A connection that is accepted late, or never, must not keep the client for long. */
    limits.connections_max = 8;
    WEIR_DEADLINE(2000) {
        WEIR_SCOPE(scope, &r, .name = "test", .on_failure = WEIR_COLLECT, .max_tasks = 16,
                   .overflow = WEIR_REJECT) {
            char address[WEIR_ADDRESS_TEXT_MAX];
            struct service *service;
            weir_address bound;
            weir_conn *conn;
            int closed;

            r = service_open(scope,
                             &(struct service_spec){.name = "test",
                                                    .routes = server_test_routes,
                                                    .listeners = &listener,
                                                    .listener_count = 1,
                                                    .limits = limits},
                             &service);
            if (r < 0) break;
            CHECK_OK(service_address(service, 0, &bound));
            weir_address_format(&bound, address, sizeof address);
            r = weir_connect(address, &conn);
            if (r == 0) {
                r = talk(conn);
                weir_conn_close(conn);
            }
            if (r == -ECONNRESET || r == -EPIPE) r = 0;
            closed = service_close(service);
            if (r == 0) r = closed;
        }
    }
    return r;
}

static int scenario(void *arg)
{
    (void)arg;
    return weir_run(&(weir_config){.workers = 1, .log_level = WEIR_LOG_OFF}, scenario_task, NULL);
}

TEST_WITH(a_service_survives_every_allocation_that_fails, .timeout_ms = 60000)
{
    CHECK_INT(test_sweep_alloc(scenario, NULL), >, 10);
}

TEST_WITH(a_service_survives_every_call_that_fails, .timeout_ms = 60000)
{
    CHECK_INT(test_sweep_calls(scenario, NULL, -EIO), >, 10);
}

TEST_WITH(a_service_survives_a_cancel_at_every_point, .timeout_ms = 60000)
{
    CHECK_INT(test_sweep_cancel(scenario, NULL), >, 5);
}

/* ---- Small parts ---- */

TEST(addresses_are_counted_however_they_meet)
{
    enum { KEYS = 500, ROUNDS = 20000 };
    static unsigned expected[KEYS];
    struct addresses addresses;
    unsigned total = 0;
    uint32_t random = 1;

    CHECK_OK(addresses_init(&addresses, KEYS, 12345));
    for (int i = 0; i < ROUNDS; i++) {
        unsigned key = (random = random * 1664525 + 1013904223) >> 8;
        bool enter = (key / KEYS & 1) == 0;

        key %= KEYS;
        if (enter && total < KEYS) {
            CHECK_INT(addresses_enter(&addresses, key * UINT64_C(0x100000000), 3), ==,
                      expected[key] < 3);
            if (expected[key] < 3) expected[key]++, total++;
        } else if (!enter && expected[key] > 0) {
            addresses_leave(&addresses, key * UINT64_C(0x100000000));
            expected[key]--, total--;
        }
    }
    for (unsigned key = 0; key < KEYS; key++) {
        while (expected[key] > 0) {
            addresses_leave(&addresses, key * UINT64_C(0x100000000));
            expected[key]--;
        }
    }
    for (size_t i = 0; i < addresses.row_count; i++) CHECK_INT(addresses.rows[i].count, ==, 0);
    addresses_deinit(&addresses);
}

TEST(networks_of_ipv6_and_mapped_addresses_are_one_address)
{
    static const struct {
        const char *one, *other;
        bool same;
    } rows[] = {
        {"tcp:10.0.0.1:80", "tcp:10.0.0.1:99", true},
        {"tcp:10.0.0.1:80", "tcp:10.0.0.2:80", false},
        {"tcp:[2001:db8::1]:80", "tcp:[2001:db8::ffff:1]:80", true},
        {"tcp:[2001:db8::1]:80", "tcp:[2001:db8:0:1::1]:80", false},
        {"tcp:[::ffff:10.0.0.1]:80", "tcp:10.0.0.1:80", true},
        {"tcp:[::1]:80", "tcp:10.0.0.1:80", false},
    };
    weir_address address;
    uint64_t one, other;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CHECK_OK(weir_address_parse(rows[i].one, &address));
        CHECK(address_key(&address, &one));
        CHECK_OK(weir_address_parse(rows[i].other, &address));
        CHECK(address_key(&address, &other));
        test_note("%s %s", rows[i].one, rows[i].other);
        CHECK_INT(one == other, ==, rows[i].same);
    }
    CHECK_OK(weir_address_parse("unix:@x", &address));
    CHECK(!address_key(&address, &one));
}

TEST(a_line_of_the_log_has_nothing_of_a_client_but_letters)
{
    char text[32];

    (void)access_escape(BYTES("a\r\n\"b\\\x1b[31m\xc3"), text, sizeof text);
    CHECK_STR(text, "a\\x0d\\x0a\\x22b\\x5c\\x1b[31m\\xc3");
    CHECK_INT(access_escape(BYTES("abc"), text, 3), ==, 2);
    CHECK_STR(text, "ab");
}

/* limits_test.c - each limit of a service: what is answered beyond it, and what becomes of the
 * connection. */
#include <stdlib.h>

#include "server/service_inside.h"
#include "unit/server/server_test.h"

#define GET(path) "GET " path " HTTP/1.1\r\nhost: x\r\n\r\n"

static char big[512 * 1024];

static const char *times(const char *before, char c, size_t count, const char *behind)
{
    size_t used = strlen(before);

    memcpy(big, before, used);
    memset(big + used, c, count);
    (void)snprintf(big + used + count, sizeof big - used - count, "%s", behind);
    return big;
}

static const char *fields(unsigned count)
{
    size_t used = (size_t)snprintf(big, sizeof big, "GET /hello HTTP/1.1\r\nhost: x\r\n");

    for (unsigned i = 0; i < count; i++) {
        used += (size_t)snprintf(big + used, sizeof big - used, "f%u: 1\r\n", i);
    }
    (void)snprintf(big + used, sizeof big - used, "\r\n");
    return big;
}

/* The answer has this status, and the connection goes on or ends. */
static void expect(struct server *server, const char *what, const char *request, unsigned status,
                   bool keeps)
{
    struct server_answer *answer = server_answer_room();
    struct server_client *client = server_connect(server);

    test_note("%s", what);
    server_ask(client, request, answer);
    CHECK_INT(answer->status, ==, status);
    CHECK_INT(answer->keep_alive, ==, keeps);
    if (status >= 400) CHECK_CONTAINS(answer->body, "\"type\":\"urn:weir:problem:");
    if (keeps) {
        server_ask(client, GET("/hello"), answer);
        CHECK_INT(answer->status, ==, 200);
    } else {
        CHECK(server_is_closed(client));
    }
    server_disconnect(client);
}

SERVER_TEST(what_is_beyond_a_limit_has_its_status, {0})
{
    expect(server, "a target that is nearly too long",
           times("GET /hello?q=", 'a', 8000, " HTTP/1.1\r\nhost: x\r\n\r\n"), 200, true);
    expect(server, "a target that is too long",
           times("GET /", 'a', 9000, " HTTP/1.1\r\nhost: x\r\n\r\n"), 414, false);
    expect(server, "a field that is too long",
           times("GET /hello HTTP/1.1\r\nhost: x\r\nf: ", 'a', 17000, "\r\n\r\n"), 431, false);
    expect(server, "as many fields as there may be", fields(99), 200, true);
    expect(server, "too many fields", fields(101), 431, false);
    expect(server, "a body that the service does not take",
           "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999\r\n\r\n", 413, false);
    expect(server, "a body that the route does not take, and that is not read",
           "PUT /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 200000\r\n\r\n", 413, false);
    expect(server, "one that is small enough to be passed over",
           "PUT /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 17\r\n\r\n12345678901234567", 413,
           true);
    expect(server, "one in chunks that is too long",
           "PUT /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
           "8\r\n12345678\r\n9\r\n123456789\r\n0\r\n\r\n",
           413, false);
    expect(server, "a body for a route without one",
           "GET /hello HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\na", 413, true);
    expect(server, "an empty one, in chunks",
           "GET /hello HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 200,
           true);
    expect(
        server, "one in chunks for a route without one",
        "GET /hello HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        413, false);
    expect(server, "a line of a body that is too long",
           times("POST /lines HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n", 'a', 100, ""),
           413, false);
    expect(server, "a chunk with a long line",
           times("POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1;a=", 'a',
                 300, "\r\n"),
           400, false);
    expect(server, "trailers that are too long",
           times("POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\nt: ",
                 'a', 5000, "\r\n\r\n"),
           431, false);
    expect(server, "a method that is not known", "BREW /hello HTTP/1.1\r\nhost: x\r\n\r\n", 501,
           false);
    expect(server, "another expectation",
           "GET /hello HTTP/1.1\r\nhost: x\r\nexpect: miracles\r\n\r\n", 417, false);
    expect(server, "another version", "GET /hello HTTP/2.0\r\nhost: x\r\n\r\n", 505, false);
    expect(server, "the end that a client asks for",
           "GET /hello HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", 200, false);
    expect(server, "an older version", "GET /hello HTTP/1.0\r\n\r\n", 200, false);
    expect(server, "an older version that goes on",
           "GET /hello HTTP/1.0\r\nconnection: keep-alive\r\n\r\n", 200, true);
}

static struct service_limits limits_with(unsigned connections, unsigned per_address,
                                         unsigned requests, unsigned per_connection)
{
    struct service_limits limits = server_test_limits();

    limits.connections_max = connections;
    limits.connections_per_address_max = per_address;
    limits.requests_max = requests;
    limits.requests_per_connection_max = per_connection;
    return limits;
}

SERVER_TEST(a_connection_ends_after_its_last_request, {.limits = limits_with(64, 64, 64, 2)})
{
    struct server_answer *answer = server_answer_room();
    struct server_client *client = server_connect(server);

    server_ask(client, GET("/hello"), answer);
    CHECK(answer->keep_alive);
    server_ask(client, GET("/hello"), answer);
    CHECK(!answer->keep_alive);
    CHECK(server_is_closed(client));
    server_disconnect(client);
}

/* One more is turned away; when one has gone there is room again. */
static void check_connections(struct server *server, unsigned max, bool by_address)
{
    struct server_answer *answer = server_answer_room();
    struct server_client *clients[8], *late;
    struct service_figures figures;

    for (unsigned i = 0; i < max; i++) {
        clients[i] = server_connect(server);
        server_ask(clients[i], GET("/hello"), answer);
        CHECK_INT(answer->status, ==, 200);
    }
    late = server_connect(server);
    server_read(late, false, answer);
    CHECK_INT(answer->status, ==, 503);
    CHECK(server_is_closed(late));
    server_disconnect(late);
    service_figures_of(server->service, &figures);
    CHECK_INT(figures.connections, ==, max);
    CHECK_INT(figures.refused_total, ==, by_address ? 0 : 1);
    CHECK_INT(figures.refused_address, ==, by_address ? 1 : 0);
    CHECK_INT(figures.accepted, ==, max + 1);
    server_send(clients[0], "GET /hello HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    server_read(clients[0], false, answer);
    CHECK(server_is_closed(clients[0]));
    do { /* what is closed here is known there a little later */
        late = server_connect(server);
        /* Of one that is turned away the request may find nobody. */
        (void)!weir_conn_send_all(late->conn, GET("/hello"), sizeof GET("/hello") - 1, NULL);
        server_read(late, false, answer);
        server_disconnect(late);
    } while (answer->status == 503 || answer->status == 0);
    CHECK_INT(answer->status, ==, 200);
    for (unsigned i = 0; i < max; i++) server_disconnect(clients[i]);
}

SERVER_TEST(more_connections_than_there_may_be_are_turned_away,
            {.limits = limits_with(3, 64, 64, 0)})
{
    check_connections(server, 3, false);
}

SERVER_TEST(more_connections_of_an_address_are_turned_away, {.limits = limits_with(64, 2, 64, 0)})
{
    check_connections(server, 2, true);
}

static struct service_limits shedding(void)
{
    struct service_limits limits = limits_with(64, 64, 1, 0);

    limits.shed_target_ms = 50;
    limits.shed_interval_ms = 1000; /* longer than a busy machine takes from a head to its turn */
    return limits;
}

SERVER_TEST(requests_that_wait_too_long_for_their_turn_are_shed, {.limits = shedding()})
{
    struct server_answer *answer = server_answer_room();
    struct server_client *holder = server_connect(server), *other = server_connect(server);
    struct service_figures figures;
    char text[32];

    server_send(holder, GET("/hold"));
    server_test_held(1);
    server_ask(other, GET("/hello"), answer);
    CHECK_INT(answer->status, ==, 503);
    CHECK_CONTAINS(answer->body, "\"code\":\"overloaded\"");
    CHECK_STR(server_field(answer, "retry-after", text, sizeof text), "1");
    CHECK_INT(server_test_calls(), ==, 0);
    /* It goes on, and what everybody may ask is never shed. */
    CHECK(answer->keep_alive);
    server_ask(other, GET("/livez"), answer);
    CHECK_INT(answer->status, ==, 200);
    service_figures_of(server->service, &figures);
    CHECK_INT(figures.shed, ==, 1);
    CHECK_INT(figures.requests, ==, 1);
    server_test_let_go();
    server_read(holder, false, answer);
    CHECK_STR(answer->body, "held");
    server_ask(other, GET("/hello"), answer);
    CHECK_INT(answer->status, ==, 200);
    server_disconnect(holder);
    server_disconnect(other);
}

/* A body that has not come, whole or by lines, is waited for without a turn. */
SERVER_TEST(who_sends_its_body_slowly_keeps_nobody_waiting, {.limits = shedding()})
{
    struct server_answer *answer = server_answer_room();
    struct server_client *whole = server_connect(server), *lines = server_connect(server);
    struct server_client *other = server_connect(server);
    struct service_figures figures;

    server_send(whole, "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nabc");
    server_send(lines, "POST /lines HTTP/1.1\r\nhost: x\r\ncontent-length: 8\r\n\r\nabc\n");
    do {
        CHECK_OK(weir_yield());
        service_figures_of(server->service, &figures);
    } while (figures.requests < 2);
    for (int i = 0; i < 3; i++) {
        server_ask(other, GET("/hello"), answer);
        CHECK_INT(answer->status, ==, 200);
    }
    server_send(whole, "defghi");
    server_read(whole, false, answer);
    CHECK_STR(answer->body, "abcdefghi");
    server_send(lines, "def\n");
    server_read(lines, false, answer);
    CHECK_INT(answer->status, ==, 200);
    server_disconnect(whole);
    server_disconnect(lines);
    server_disconnect(other);
}

static struct service_limits few_bodies(void)
{
    struct service_limits limits = server_test_limits();

    limits.bodies_bytes_max = 256 * 1024; /* one of those below, not two */
    return limits;
}

enum { LONG_BODY = 200000, LONG_PART = 150000 };

/* The head, and so much of the body. */
static struct server_client *send_long(struct server *server, bool chunked, size_t bytes)
{
    static char body[LONG_BODY];
    struct server_client *client = server_connect(server);

    memset(body, 'a', sizeof body);
    server_send(client, chunked
                            ? "POST /echo HTTP/1.1\r\nhost: x\r\n"
                              "transfer-encoding: chunked\r\n\r\n30d40\r\n"
                            : "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 200000\r\n\r\n");
    server_send_bytes(client, body, bytes);
    return client;
}

static void await_bodies(struct server *server, bool held)
{
    uint64_t bytes;

    do {
        CHECK_OK(weir_yield());
        bytes = atom_load(&server->service->bodies_bytes);
    } while (held ? bytes < LONG_PART : bytes > 0);
}

SERVER_TEST(large_bodies_that_come_slowly_are_bounded_together, {.limits = few_bodies()})
{
    struct server_answer *answer = server_answer_room();
    struct server_client *slow, *late;
    struct service_figures figures;
    char text[32];

    for (int i = 0; i < 2; i++) {
        slow = send_long(server, i == 1, LONG_PART);
        await_bodies(server, true);
        for (int k = 0; k < 2; k++) {
            late = send_long(server, k == 1, LONG_PART);
            server_read(late, false, answer);
            CHECK_INT(answer->status, ==, 503);
            CHECK_CONTAINS(answer->body, "\"code\":\"overloaded\"");
            CHECK_STR(server_field(answer, "retry-after", text, sizeof text), "1");
            CHECK(server_is_closed(late));
            server_disconnect(late);
        }
        /* Small ones go on. */
        expect(server, "a small one",
               "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\na", 200, true);
        if (i == 0) { /* its client hangs up, or goes on */
            server_disconnect(slow);
            await_bodies(server, false);
            continue;
        }
        server_send(slow, times("", 'a', LONG_BODY - LONG_PART, "\r\n0\r\n\r\n"));
        server_read(slow, false, answer);
        CHECK_INT(answer->status, ==, 200);
        CHECK_INT(answer->body_bytes, ==, LONG_BODY);
        CHECK_INT(atom_load(&server->service->bodies_bytes), ==, 0);
        server_disconnect(slow);
    }
    late = send_long(server, false, LONG_BODY);
    server_read(late, false, answer);
    CHECK_INT(answer->status, ==, 200);
    CHECK_INT(atom_load(&server->service->bodies_bytes), ==, 0);
    server_disconnect(late);
    service_figures_of(server->service, &figures);
    CHECK_INT(figures.shed, ==, 4);
}

static const char *const hosts[] = {"jobs.example", "::1"};

SERVER_TEST(requests_for_other_hosts_are_refused, {.hosts = hosts, .host_count = 2})
{
    static const struct {
        const char *request;
        unsigned status;
    } rows[] = {
        {"GET /hello HTTP/1.1\r\nhost: JOBS.example:80\r\n\r\n", 200},
        {"GET /hello HTTP/1.1\r\nhost: [::1]:80\r\n\r\n", 200},
        {"GET http://jobs.example/hello HTTP/1.1\r\nhost: jobs.example\r\n\r\n", 200},
        {"GET /hello HTTP/1.1\r\nhost: evil.example\r\n\r\n", 421},
        {"GET /hello HTTP/1.1\r\nhost: jobs.example.evil\r\n\r\n", 421},
    };
    struct server_answer *answer = server_answer_room();
    struct server_client *client = server_connect(server);

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        test_note("%s", rows[i].request);
        server_ask(client, rows[i].request, answer);
        CHECK_INT(answer->status, ==, rows[i].status);
    }
    server_disconnect(client);
}

static struct service_limits small_answers(void)
{
    struct service_limits limits = server_test_limits();

    limits.answer_bytes_max = 4096;
    return limits;
}

SERVER_TEST(an_answer_that_is_too_large_is_a_problem, {.limits = small_answers()})
{
    expect(server, "too large", GET("/big/5000"), 500, true);
    expect(server, "large enough", GET("/big/4000"), 200, true);
}

/* ---- Compression ---- */

SERVER_TEST(large_json_is_compressed_for_who_wants_that, {0})
{
    static const struct {
        const char *path, *accept;
        bool packed, varies;
    } rows[] = {
        {"/big/5000", "gzip", true, true},      {"/big/5000", "br, gzip;q=0.5", true, true},
        {"/big/5000", "gzip;q=0", false, true}, {"/big/5000", "br", false, true},
        {"/big/500", "gzip", false, false},
    };
    struct server_answer *answer = server_answer_room();
    struct server_client *client = server_connect(server);
    char request[256], text[64];

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        (void)snprintf(request, sizeof request,
                       "GET %s HTTP/1.1\r\nhost: x\r\naccept-encoding: %s\r\n\r\n", rows[i].path,
                       rows[i].accept);
        test_note("%s", request);
        server_ask(client, request, answer);
        CHECK_INT(answer->status, ==, 200);
        CHECK_STR(server_field(answer, "content-encoding", text, sizeof text),
                  rows[i].packed ? "gzip" : "");
        CHECK_STR(server_field(answer, "vary", text, sizeof text),
                  rows[i].varies ? "accept-encoding" : "");
        if (rows[i].packed) {
            CHECK_INT(answer->body_bytes, <, 1000);
            server_unpack(answer);
            CHECK_INT(answer->body_bytes, ==, 5001);
        }
        CHECK_CONTAINS(answer->body, "[\"1234567\",\"1234567\"");
    }
    server_ask(client, GET("/big/5000"), answer);
    CHECK_STR(server_field(answer, "content-encoding", text, sizeof text), "");
    server_disconnect(client);
}

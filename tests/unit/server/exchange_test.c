/* exchange_test.c - what a handler asks of a request, and the hooks around it. */
#include "server/exchange.h"

#include "base/atomic.h"
#include "server/access.h"
#include "unit/server/server_test.h"

static int serve_query(struct exchange *x)
{
    static const char *const names[] = {"text", "number", "time", NULL};
    const char *text = "none";
    int64_t number = -1, ms = -1;
    int r = exchange_query_only(x, names);

    if (r >= 0) r = exchange_query(x, "text", &text);
    if (r >= 0) r = exchange_query_int(x, "number", -5, 100, &number);
    if (r >= 0) r = exchange_query_duration(x, "time", 10, 60000, &ms);
    if (r < 0) return r;
    buffer_put_string(exchange_text(x, 200, "text/plain"), text);
    buffer_put_char(&x->out, ' ');
    buffer_put_int(&x->out, number);
    buffer_put_char(&x->out, ' ');
    buffer_put_int(&x->out, ms);
    exchange_set(x, "x-agent", exchange_field(x, "user-agent").at ? "there" : "none");
    return 0;
}

/* A value that would end its line: the answer is not sent as it is. */
static int serve_split(struct exchange *x)
{
    (void)exchange_bytes(x, 200, "text/plain", BYTES("split"));
    exchange_set(x, "x-name", "a\r\nset-cookie: b");
    return 0;
}

static int child(void *arg)
{
    (void)atom_add(*(ATOM(unsigned) **)arg, 1);
    return 0;
}

/* What it spawns has ended before it is answered. */
static int serve_children(struct exchange *x)
{
    static ATOM(unsigned) count;
    ATOM(unsigned) *counter = &count;

    atom_store(&count, 0);
    for (int i = 0; i < 3; i++) {
        int r = weir_spawn(x->scope, child, &counter, sizeof counter);
        if (r < 0) return r;
    }
    if (weir_scope_join(x->scope) < 0) return WEIR_ECANCELED;
    buffer_put_uint(exchange_text(x, 200, "text/plain"), atom_load(&count));
    return 0;
}

static const struct route routes[] = {
    {.method = METHOD_GET,
     .path = "/query",
     .verb = VERB_READ,
     .serve = serve_query,
     .deadline_ms = 5000},
    {.method = METHOD_GET,
     .path = "/split",
     .verb = VERB_READ,
     .serve = serve_split,
     .deadline_ms = 5000},
    {.method = METHOD_GET,
     .path = "/children",
     .verb = VERB_ADMIN,
     .serve = serve_children,
     .deadline_ms = 5000},
};

static char last_line[LOG_LINE_BYTES];
static uint64_t last_sent;

static int admit(struct exchange *x)
{
    struct bytes token = exchange_field(x, "authorization");

    if (x->route->verb != VERB_ADMIN) return 0;
    if (!token.at) return exchange_problem(x, PROBLEM_UNAUTHORIZED, "no token");
    x->who = "some\nbody";
    return 0;
}

static void done(struct exchange *x, uint64_t sent_bytes, int error)
{
    struct access access;
    size_t bytes;

    last_sent = sent_bytes;
    access_fields(x, sent_bytes, error, x->who, &access);
    bytes = log_format(last_line, false, 0, WEIR_LOG_INFO, "request", access.fields, access.count);
    last_line[bytes - 1] = '\0';
    server_test_let_go();
}

#define WITH_ROUTES                                                                        \
    {                                                                                      \
        .routes = {routes, sizeof routes / sizeof routes[0]}, .admit = admit, .done = done \
    }

static void ask(struct server *server, const char *path, struct server_answer *answer)
{
    struct server_client *client = server_connect(server);
    char request[512];

    test_note("%s", path);
    (void)snprintf(request, sizeof request,
                   "GET %s HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", path);
    server_ask(client, request, answer);
    CHECK(server_is_closed(client));
    server_disconnect(client);
}

SERVER_TEST(queries_are_checked, WITH_ROUTES)
{
    static const struct {
        const char *path;
        unsigned status;
        const char *part;
    } rows[] = {
        {"/query", 200, "none -1 -1"},
        {"/query?text=a+b%26c&number=-5&time=1m", 200, "a b&c -5 60000"},
        {"/query?number=101", 400, "'number' must be a number from -5 to 100"},
        {"/query?number=1x", 400, "must be a number"},
        {"/query?number=99999999999999999999", 400, "must be a number"},
        {"/query?number=", 400, "must be a number"},
        {"/query?time=5ms", 400, "must be a duration from 10ms to 1m"},
        {"/query?time=x", 400, "must be a duration"},
        {"/query?text=a&text=b", 400, "'text' is there more than once"},
        {"/query?txet=a", 400, "'txet' is not known here"},
        {"/query?a%22b=1", 400, "'a\\\"b' is not known here"},
    };
    struct server_answer *answer = server_answer_room();

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ask(server, rows[i].path, answer);
        server_test_wait();
        CHECK_INT(answer->status, ==, rows[i].status);
        CHECK_CONTAINS(answer->body, rows[i].part);
        if (answer->status == 400) CHECK_CONTAINS(answer->body, "\"code\":\"bad-query\"");
    }
}

SERVER_TEST(who_asks_is_found_out_before_and_told_after, WITH_ROUTES)
{
    struct server_answer *answer = server_answer_room();
    struct server_client *client;
    char text[64];

    ask(server, "/children", answer);
    server_test_wait();
    CHECK_INT(answer->status, ==, 401);
    CHECK_STR(server_field(answer, "www-authenticate", text, sizeof text), "Bearer");
    CHECK_CONTAINS(last_line, "msg=request method=GET route=/children status=401 bytes=");
    client = server_connect(server);
    server_ask(client,
               "GET /children HTTP/1.1\r\nhost: x\r\nauthorization: Bearer a\r\n"
               "connection: close\r\n\r\n",
               answer);
    CHECK_STR(answer->body, "3");
    CHECK(server_is_closed(client));
    server_disconnect(client);
    server_test_wait();
    CHECK_CONTAINS(last_line, "method=GET route=/children status=200 ");
    CHECK_CONTAINS(last_line, "who=\"some\\\\x0abody\"");
    CHECK(!strchr(last_line, '\n'));
    CHECK_INT(last_sent, >, 100);
    ask(server, "/nowhere?a=%0a", answer);
    server_test_wait();
    CHECK_CONTAINS(last_line, "method=GET route=- status=404 ");
}

SERVER_TEST(a_field_cannot_be_split, WITH_ROUTES)
{
    struct server_answer *answer = server_answer_room();
    char text[64];

    ask(server, "/split", answer);
    CHECK_STR(server_field(answer, "set-cookie", text, sizeof text), "");
    CHECK_INT(answer->status, ==, 500);
}

/* ---- What is shown ---- */

static int check_metrics(const char *text, size_t bytes, void *arg)
{
    (void)bytes, (void)arg;
    CHECK_CONTAINS(text,
                   "weir_http_requests_total{route=\"GET /items/{a}/of/{b}\",status=\"2xx\"} 2");
    CHECK_CONTAINS(text, "weir_http_requests_total{route=\"none\",status=\"4xx\"} 1");
    CHECK_CONTAINS(text, "weir_http_request_seconds_count{route=\"GET /items/{a}/of/{b}\"} 2");
    CHECK_CONTAINS(text, "weir_http_accepted_total{listener=\"tcp:127.0.0.1:");
    CHECK_CONTAINS(text, "state=\"idle\"}");
    CHECK(!strstr(text, "secret"));
    return 0;
}

SERVER_TEST(figures_are_by_pattern_and_the_service_is_on_the_map, {0})
{
    struct server_answer *answer = server_answer_room();
    static char text[64 * 1024];
    FILE *file = tmpfile();

    ask(server, "/items/1/of/2", answer);
    ask(server, "/items/3/of/4", answer);
    ask(server, "/secret", answer);
    CHECK_OK(weir_metrics_read(WEIR_METRICS_PROMETHEUS, check_metrics, NULL));
    CHECK(file != NULL);
    CHECK_OK(weir_map(fileno(file), WEIR_MAP_TEXT));
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    CHECK_INT(fclose(file), ==, 0);
    CHECK_CONTAINS(text, "4096 connections, 1024 of an address, 1024 requests");
}

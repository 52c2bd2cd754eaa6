/* server_test.c - routes for tests, and a client that reads answers. */
#include "unit/server/server_test.h"

#include <stdlib.h>
#include <zlib.h>

#include "base/atomic.h"

/* ---- Routes ---- */

static ATOM(unsigned) calls, held;
static ATOM(const char *) last;
static weir_event *held_event, *gate;

unsigned server_test_calls(void)
{
    return atom_load(&calls);
}

const char *server_test_last(void)
{
    const char *path = atom_load(&last);
    return path ? path : "";
}

static void note_call(const struct exchange *x)
{
    atom_store(&last, x->route->path);
    (void)atom_add(&calls, 1);
}

void server_test_reset(weir_scope *scope)
{
    atom_store(&last, NULL);
    atom_store(&calls, 0);
    atom_store(&held, 0);
    CHECK_OK(weir_event_open(scope, "held", &held_event));
    CHECK_OK(weir_event_open(scope, "gate", &gate));
}

void server_test_held(unsigned count)
{
    while (atom_load(&held) < count) {
        CHECK_OK(weir_event_wait(held_event));
        weir_event_reset(held_event);
    }
}

void server_test_let_go(void)
{
    weir_event_set(gate);
}

void server_test_wait(void)
{
    CHECK_OK(weir_event_wait(gate));
    weir_event_reset(gate);
}

static int serve_hello(struct exchange *x)
{
    struct json_writer *json = exchange_json(x, 200);

    note_call(x);
    json_open_object(json);
    json_key(json, "hello");
    json_put_string(json, "world");
    json_close(json);
    return 0;
}

static int serve_item(struct exchange *x)
{
    const char *value = "";
    int r = exchange_query(x, "q", &value);

    note_call(x);
    if (r < 0) return r;
    buffer_put_string(exchange_text(x, 200, "text/plain"), exchange_parameter(x, 0));
    buffer_put_char(&x->out, '|');
    buffer_put_string(&x->out, exchange_parameter(x, 1));
    buffer_put_char(&x->out, '|');
    buffer_put_string(&x->out, value);
    return 0;
}

static int serve_echo(struct exchange *x)
{
    struct bytes body;
    int r = exchange_body(x, &body);

    note_call(x);
    if (r < 0) return r;
    return exchange_bytes(x, 200, "application/octet-stream", body);
}

/* One line of the answer for each of the request, as it comes. */
static int serve_lines(struct exchange *x)
{
    struct bytes line;
    int r = exchange_line(x, 64, &line);

    note_call(x);
    if (r < 0) return r;
    buffer_put_string(exchange_text(x, 200, "text/plain"), "");
    while (r == 1) {
        buffer_put_bytes(&x->out, line);
        buffer_put_char(&x->out, ';');
        r = exchange_line(x, 64, &line);
    }
    return r;
}

static int serve_stream(struct exchange *x)
{
    int r = exchange_stream(x, 200, "text/plain");

    note_call(x);
    if (r == 0) r = exchange_stream_put(x, BYTES("one,"));
    if (r == 0) r = exchange_stream_put(x, BYTES("two"));
    return r;
}

/* Each line of the body, while the others still come. */
static int serve_both(struct exchange *x)
{
    struct bytes line;
    int r = exchange_stream(x, 200, "text/plain");

    while (r >= 0 && (r = exchange_line(x, 64, &line)) == 1) {
        r = exchange_stream_put(x, line);
        if (r >= 0) r = exchange_stream_put(x, BYTES(";"));
    }
    return r;
}

static int serve_broken(struct exchange *x)
{
    int r = exchange_stream(x, 200, "text/plain");

    if (r == 0) r = exchange_stream_put(x, BYTES("one,"));
    return r < 0 ? r : exchange_problem(x, PROBLEM_INTERNAL, "too late");
}

/* As many bytes of JSON as the path says. */
static int serve_big(struct exchange *x)
{
    struct json_writer *json = exchange_json(x, 200);
    long bytes = strtol(exchange_parameter(x, 0), NULL, 10);

    json_open_array(json);
    for (long i = 0; i < bytes / 10; i++) json_put_string(json, "1234567");
    json_close(json);
    return 0;
}

static int serve_hold(struct exchange *x)
{
    int r;

    (void)atom_add(&held, 1);
    weir_event_set(held_event);
    r = weir_event_wait(gate);
    if (r < 0) return exchange_fail(x, r, "hold");
    return exchange_bytes(x, 200, "text/plain", BYTES("held"));
}

static int serve_fail(struct exchange *x)
{
    return exchange_fail(x, -(int)strtol(exchange_parameter(x, 0), NULL, 10), "thing");
}

static int serve_nothing(struct exchange *x)
{
    (void)x;
    return 0;
}

static const struct route routes[] = {
    {.method = METHOD_GET,
     .path = "/",
     .verb = VERB_READ,
     .serve = serve_hello,
     .deadline_ms = 5000},
    {.method = METHOD_GET,
     .path = "/hello",
     .verb = VERB_READ,
     .serve = serve_hello,
     .deadline_ms = 5000},
    {.method = METHOD_GET,
     .path = "/livez",
     .verb = VERB_PUBLIC,
     .serve = serve_hello,
     .deadline_ms = 5000},
    {.method = METHOD_GET,
     .path = "/items/{a}/of/{b}",
     .verb = VERB_READ,
     .serve = serve_item,
     .deadline_ms = 5000},
    {.method = METHOD_POST,
     .path = "/echo",
     .verb = VERB_READ,
     .serve = serve_echo,
     .deadline_ms = 60000,
     .body_bytes_max = 256 * 1024},
    {.method = METHOD_PUT,
     .path = "/echo",
     .verb = VERB_READ,
     .serve = serve_echo,
     .deadline_ms = 60000,
     .body_bytes_max = 16},
    {.method = METHOD_POST,
     .path = "/lines",
     .verb = VERB_READ,
     .serve = serve_lines,
     .deadline_ms = 60000,
     .body_bytes_max = 256 * 1024,
     .body_streams = true},
    {.method = METHOD_POST,
     .path = "/both",
     .verb = VERB_READ,
     .serve = serve_both,
     .deadline_ms = 60000,
     .body_bytes_max = 256 * 1024,
     .body_streams = true},
    {.method = METHOD_GET,
     .path = "/stream",
     .verb = VERB_READ,
     .serve = serve_stream,
     .deadline_ms = 5000},
    {.method = METHOD_GET,
     .path = "/broken",
     .verb = VERB_READ,
     .serve = serve_broken,
     .deadline_ms = 5000},
    {.method = METHOD_GET,
     .path = "/big/{bytes}",
     .verb = VERB_READ,
     .serve = serve_big,
     .deadline_ms = 5000},
    {.method = METHOD_GET,
     .path = "/hold",
     .verb = VERB_READ,
     .serve = serve_hold,
     .deadline_ms = 60000},
    {.method = METHOD_POST,
     .path = "/hold",
     .verb = VERB_READ,
     .serve = serve_hold,
     .deadline_ms = 1000},
    {.method = METHOD_GET,
     .path = "/fail/{error}",
     .verb = VERB_READ,
     .serve = serve_fail,
     .deadline_ms = 5000},
    {.method = METHOD_POST,
     .path = "/fail/{error}",
     .verb = VERB_READ,
     .serve = serve_fail,
     .deadline_ms = 5000},
    {.method = METHOD_GET,
     .path = "/nothing",
     .verb = VERB_READ,
     .serve = serve_nothing,
     .deadline_ms = 5000},
};

const struct routes server_test_routes = {routes, sizeof routes / sizeof routes[0]};

struct service_limits server_test_limits(void)
{
    struct service_limits limits = SERVICE_LIMITS_DEFAULT;

    limits.http.body_bytes_max = 256 * 1024;
    return limits;
}

/* ---- The service ---- */

void server_open(struct server *server, weir_scope *scope, const struct service_spec *spec)
{
    const struct service_listener listener = {.address = "tcp:127.0.0.1:0"};
    struct service_spec whole = *spec;
    weir_address address;

    if (!whole.name) whole.name = "test";
    if (whole.routes.count == 0) whole.routes = server_test_routes;
    if (whole.limits.connections_max == 0) whole.limits = server_test_limits();
    if (whole.listener_count == 0) {
        whole.listeners = &listener;
        whole.listener_count = 1;
    }
    server_test_reset(scope);
    CHECK_OK(service_open(scope, &whole, &server->service));
    CHECK_OK(service_address(server->service, 0, &address));
    weir_address_format(&address, server->address, sizeof server->address);
}

int server_test_run(const struct service_spec *spec, server_body body)
{
    int r = 0;

    WEIR_SCOPE(scope, &r, .name = "test", .on_failure = WEIR_COLLECT, .max_tasks = 2048,
               .overflow = WEIR_REJECT) {
        struct server server;

        server_open(&server, scope, spec);
        body(&server, scope);
        CHECK_OK(service_close(server.service));
    }
    return r;
}

/* ---- The client ---- */

static const struct http_limits client_limits = {.line_bytes_max = 1024,
                                                 .head_bytes_max = 8192,
                                                 .field_count_max = ANSWER_FIELDS,
                                                 .body_bytes_max = ANSWER_BYTES,
                                                 .chunk_line_bytes_max = 128,
                                                 .trailer_bytes_max = 1024};

struct server_client *server_connect_to(const char *address)
{
    struct server_client *client = calloc(1, sizeof *client);

    CHECK(client);
    CHECK_OK(weir_connect(address, &client->conn));
    http_parser_init(&client->parser, HTTP_KIND_ANSWER, &client_limits, client->block,
                     client->fields);
    return client;
}

struct server_client *server_connect(const struct server *server)
{
    return server_connect_to(server->address);
}

void server_disconnect(struct server_client *take_client)
{
    weir_conn_close(take_client->conn);
    free(take_client);
}

void server_send_bytes(struct server_client *client, const void *bytes, size_t count)
{
    CHECK_OK(weir_conn_send_all(client->conn, bytes, count, NULL));
}

void server_send(struct server_client *client, const char *text)
{
    server_send_bytes(client, text, strlen(text));
}

struct server_answer *server_answer_room(void)
{
    static struct server_answer room;
    return &room;
}

static void keep_head(const struct http_parser *parser, struct server_answer *answer)
{
    size_t used = 0;

    answer->status = parser->message.status;
    answer->keep_alive = parser->message.keep_alive;
    for (unsigned i = 0; i < parser->message.fields.count; i++) {
        const struct http_field *field = &parser->message.fields.at[i];
        used += (size_t)snprintf(answer->head + used, sizeof answer->head - used, "%.*s: %.*s\n",
                                 (int)field->name.count, field->name.at, (int)field->value.count,
                                 field->value.at);
    }
}

/* False: no more of this answer. */
static bool take_event(struct server_client *client, struct server_answer *answer)
{
    struct bytes body;
    size_t used;
    ssize_t n;

    switch (http_parse(&client->parser, client->in + client->at, client->used - client->at, &used,
                       &body)) {
    case PARSE_HEAD:
        client->at += used;
        keep_head(&client->parser, answer);
        if (answer->status >= 200) return true;
        return true;
    case PARSE_BODY:
        client->at += used;
        CHECK(answer->body_bytes + body.count < ANSWER_BYTES);
        memcpy(answer->body + answer->body_bytes, body.at, body.count);
        answer->body_bytes += body.count;
        return true;
    case PARSE_END:
        client->at += used;
        http_parser_next(&client->parser);
        return false;
    case PARSE_FAILED: TEST_FAIL("the answer is no HTTP: %s", client->parser.why);
    case PARSE_MORE: break;
    }
    client->at = 0;
    n = weir_conn_read(client->conn, client->in, sizeof client->in);
    client->used = n > 0 ? (size_t)n : 0;
    if (n > 0) return true;
    answer->closed = true;
    if (http_parse_close(&client->parser) == PARSE_FAILED) answer->status = 0;
    return false;
}

void server_read(struct server_client *client, bool head, struct server_answer *ret_answer)
{
    ret_answer->status = 0;
    ret_answer->closed = ret_answer->keep_alive = false;
    ret_answer->body_bytes = 0;
    ret_answer->head[0] = '\0';
    if (head) http_parser_answers_head(&client->parser);
    while (take_event(client, ret_answer)) {}
    ret_answer->body[ret_answer->body_bytes] = '\0';
}

void server_ask(struct server_client *client, const char *text, struct server_answer *ret_answer)
{
    server_send(client, text);
    server_read(client, strncmp(text, "HEAD", 4) == 0, ret_answer);
}

bool server_is_closed(struct server_client *client)
{
    char byte;
    ssize_t n;

    if (client->at < client->used) return false;
    n = weir_conn_read(client->conn, &byte, 1);
    return n == 0 || n == -ECONNRESET;
}

const char *server_field(const struct server_answer *answer, const char *name, char *text,
                         size_t bytes)
{
    size_t count = strlen(name);
    const char *at = answer->head;

    text[0] = '\0';
    for (; *at; at = strchr(at, '\n') + 1) {
        if (strncmp(at, name, count) != 0 || at[count] != ':') continue;
        (void)snprintf(text, bytes, "%.*s", (int)strcspn(at + count + 2, "\n"), at + count + 2);
        break;
    }
    return text;
}

void server_unpack(struct server_answer *answer)
{
    static char text[ANSWER_BYTES];
    z_stream stream = {.next_in = (unsigned char *)answer->body,
                       .avail_in = (unsigned)answer->body_bytes,
                       .next_out = (unsigned char *)text,
                       .avail_out = sizeof text - 1};

    CHECK_INT(inflateInit2(&stream, 15 + 16), ==, Z_OK);
    CHECK_INT(inflate(&stream, Z_FINISH), ==, Z_STREAM_END);
    answer->body_bytes = stream.total_out;
    CHECK_INT(inflateEnd(&stream), ==, Z_OK);
    memcpy(answer->body, text, answer->body_bytes);
    answer->body[answer->body_bytes] = '\0';
}

/* client.c - one request, its answer, the connection between. */
#include "cli/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "proto/http_write.h"
#include "rt/mem.h"

enum {
    PIECE_BYTES = 64 * 1024,
    REQUEST_BYTES_MAX = 256 * 1024 * 1024,
    ADDRESSES_MAX = 8,
    LAST_MS = 2000,
};

static const struct http_limits limits = {
    .line_bytes_max = 8 * 1024,
    .head_bytes_max = 64 * 1024,
    .field_count_max = 128,
    .body_bytes_max = CLIENT_ANSWER_BYTES_MAX,
    .chunk_line_bytes_max = 4 * 1024,
    .trailer_bytes_max = 16 * 1024,
};

void *client_resize(void *arg, void *block, size_t bytes_before, size_t bytes)
{
    (void)arg, (void)bytes_before;
    if (bytes > 0) return mem_resize(block, bytes);
    mem_free(block);
    return NULL;
}

/* ---- The address ---- */

static int refuse(char *why, size_t bytes, const char *server)
{
    (void)snprintf(why, bytes,
                   "'%.120s' is no address of a server: write http://HOST:PORT, "
                   "https://HOST:PORT or unix:PATH",
                   server);
    return WEIR_EREFUSED;
}

static int parse_host(struct client *client, struct bytes text)
{
    size_t end = 0, port_at;

    if (text.count > 0 && text.at[text.count - 1] == '/') text.count--;
    if (text.count == 0 || text.count >= CLIENT_TEXT_BYTES || !http_authority_valid(text))
        return -1;
    (void)snprintf(client->host, sizeof client->host, "%.*s", (int)text.count, text.at);
    if (text.at[0] == '[') {
        while (end < text.count && text.at[end] != ']') end++;
        if (end == text.count) return -1;
        (void)snprintf(client->name, sizeof client->name, "%.*s", (int)end - 1, text.at + 1);
        end++;
    } else {
        while (end < text.count && text.at[end] != ':') end++;
        (void)snprintf(client->name, sizeof client->name, "%.*s", (int)end, text.at);
    }
    client->port = client->secure ? 443 : 80;
    if (end == text.count) return 0;
    port_at = end + 1;
    if (text.at[end] != ':' || port_at == text.count) return -1;
    client->port = (uint16_t)strtoul(client->host + port_at, NULL, 10);
    return client->port ? 0 : -1;
}

static int parse_server(struct client *client, const char *server)
{
    struct bytes text = bytes_of(server);

    if (bytes_begin(text, BYTES("unix:"))) {
        if (text.count >= sizeof client->unix_path) return -1;
        (void)snprintf(client->unix_path, sizeof client->unix_path, "%s", server);
        (void)snprintf(client->host, sizeof client->host, "localhost");
        return 0;
    }
    client->secure = bytes_begin(text, BYTES("https://"));
    if (client->secure) return parse_host(client, bytes_after(text, 8));
    if (bytes_begin(text, BYTES("http://"))) return parse_host(client, bytes_after(text, 7));
    return -1;
}

int client_init(struct client *client, const struct client_spec *spec, char *ret_why, size_t bytes)
{
    memset(client, 0, sizeof *client);
    client->spec = *spec;
    if (parse_server(client, spec->server) < 0) return refuse(ret_why, bytes, spec->server);
    if (spec->token) {
        if (strlen(spec->token) + 8 > sizeof client->authorization ||
            !http_value_valid(bytes_of(spec->token))) {
            (void)snprintf(ret_why, bytes,
                           "the token is not one that this server makes: it is too "
                           "long, or has control characters");
            return WEIR_EREFUSED;
        }
        (void)snprintf(client->authorization, sizeof client->authorization, "Bearer %.500s",
                       spec->token);
    }
    buffer_init(&client->out, REQUEST_BYTES_MAX, client_resize, NULL);
    buffer_init(&client->in, CLIENT_ANSWER_BYTES_MAX, client_resize, NULL);
    client->block = mem_alloc(http_limits_block(&limits));
    client->fields = mem_alloc(sizeof *client->fields * http_limits_fields(&limits));
    client->piece = mem_alloc(PIECE_BYTES);
    if (client->block && client->fields && client->piece) return 0;
    client_deinit(client);
    (void)snprintf(ret_why, bytes, "no memory");
    return -ENOMEM;
}

static void disconnect(struct client *client)
{
    client_tls_close(client->tls);
    client->tls = NULL;
    weir_conn_close(client->conn);
    client->conn = NULL;
}

void client_deinit(struct client *client)
{
    disconnect(client);
    buffer_deinit(&client->out);
    buffer_deinit(&client->in);
    mem_free(client->block);
    mem_free(client->fields);
    mem_free(client->piece);
}

/* ---- The connection ---- */

static int connect_host(struct client *client)
{
    weir_address addresses[ADDRESSES_MAX];
    int count = weir_resolve(client->name, client->port, WEIR_TCP, addresses, ADDRESSES_MAX),
        r = count;

    for (int i = 0; i < count; i++) {
        r = weir_connect_to(&addresses[i], &client->conn);
        if (r == 0 || r == WEIR_ETIMEDOUT || r == WEIR_ECANCELED) break;
    }
    return r;
}

static int connect_server(struct client *client)
{
    int r = client->unix_path[0] ? weir_connect(client->unix_path, &client->conn)
                                 : connect_host(client);

    if (r == 0) {
        http_parser_init(&client->parser, HTTP_KIND_ANSWER, &limits, client->block, client->fields);
        if (client->secure) r = client_tls_open(client, client->conn, &client->tls);
        if (r < 0) disconnect(client);
    }
    return r;
}

static int send_out(struct client *client)
{
    struct bytes bytes = buffer_bytes(&client->out);

    if (client->tls) return client_tls_send(client->tls, bytes);
    return weir_conn_send_all(client->conn, bytes.at, bytes.count, NULL);
}

static ssize_t read_piece(struct client *client)
{
    if (client->tls) return client_tls_read(client->tls, client->piece, PIECE_BYTES);
    return weir_conn_read(client->conn, client->piece, PIECE_BYTES);
}

/* ---- A request ---- */

static int write_request(struct client *client, const struct client_request *request)
{
    struct http_writer writer;
    bool has_body = request->body.at != NULL;

    buffer_clear(&client->out);
    http_write_request(&writer, &client->out, request->method, bytes_of(request->target),
                       bytes_of(client->host), true);
    http_write_field(&writer, BYTES("user-agent"), BYTES("weir/" WEIR_VERSION));
    http_write_field(&writer, BYTES("accept"),
                     BYTES("application/json, application/problem+json, "
                           "*/*;q=0.5"));
    if (client->authorization[0])
        http_write_field(&writer, BYTES("authorization"), bytes_of(client->authorization));
    if (has_body)
        http_write_field(&writer, BYTES("content-type"),
                         request->type ? bytes_of(request->type) : BYTES("application/json"));
    for (unsigned i = 0; i < request->field_count; i++)
        http_write_field(&writer, request->fields[i].name, request->fields[i].value);
    if (has_body) {
        http_write_length(&writer, request->body.count);
        http_write_body(&writer, request->body);
    } else if (request->method == METHOD_GET || request->method == METHOD_DELETE) {
        http_write_no_body(&writer);
    } else {
        http_write_length(&writer, 0);
    }
    return http_write_end(&writer);
}

static void note_head(struct client *client, struct client_answer *answer)
{
    struct http_fields fields = client->parser.message.fields;
    const struct http_field *retry = http_field_first(fields, BYTES("retry-after"));
    const struct http_field *type = http_field_first(fields, BYTES("content-type"));

    answer->status = client->parser.message.status;
    answer->retry_after_s = 0;
    answer->type[0] = '\0';
    if (retry && retry->value.count < 10)
        for (size_t i = 0; i < retry->value.count && is_digit(retry->value.at[i]); i++)
            answer->retry_after_s = answer->retry_after_s * 10 + (retry->value.at[i] - '0');
    if (type)
        (void)snprintf(answer->type, sizeof answer->type, "%.*s",
                       (int)(type->value.count < 63 ? type->value.count : 63), type->value.at);
}

/* Takes in a piece: 1 when the answer is whole. */
static int take_piece(struct client *client, const char *piece, size_t count,
                      struct client_answer *answer)
{
    size_t at = 0;

    for (;;) {
        struct bytes body;
        size_t used;
        enum http_event event = http_parse(&client->parser, piece + at, count - at, &used, &body);

        at += used;
        switch (event) {
        case PARSE_FAILED: return WEIR_EPROTOCOL;
        case PARSE_MORE: return 0;
        case PARSE_HEAD: note_head(client, answer); break;
        case PARSE_BODY: buffer_put_bytes(&client->in, body); break;
        case PARSE_END:
            if (answer->status >= 100 && answer->status < 200) {
                http_parser_next(&client->parser);
                break;
            }
            return at < count ? WEIR_EPROTOCOL : 1;
        }
    }
}

/* How many bytes came tells whether the request was looked at. Who calls it again goes on where it
 * was cancelled. */
static int read_answer(struct client *client, struct client_answer *answer, size_t *came)
{
    bool keep_alive;
    int r = 0;

    while (r == 0) {
        ssize_t n = read_piece(client);

        if (n < 0) return (int)n;
        if (n == 0) {
            if (http_parse_close(&client->parser) != PARSE_END) return WEIR_ECLOSED;
            break;
        }
        if (*came == 0) answer->came_ns = weir_now_ns();
        *came += (size_t)n;
        r = take_piece(client, client->piece, (size_t)n, answer);
    }
    if (r < 0) return r;
    if (buffer_error(&client->in)) return buffer_error(&client->in);
    answer->body = buffer_bytes(&client->in);
    keep_alive = r == 1 && client->parser.message.keep_alive;
    if (keep_alive)
        http_parser_next(&client->parser);
    else
        disconnect(client);
    return 0;
}

/* The answer may have been on its way when the caller was cancelled. The server learns that nobody
 * waits any longer, so it has nothing to wait for, either. */
static int read_last(struct client *client, struct client_answer *answer, size_t *came)
{
    int r = weir_conn_shutdown(client->conn, SHUT_WR);

    if (r < 0) return WEIR_ECANCELED;
    r = WEIR_ETIMEDOUT;
    WEIR_SHIELD(LAST_MS) r = read_answer(client, answer, came);
    disconnect(client);
    return r < 0 ? WEIR_ECANCELED : 0;
}

static int ask_once(struct client *client, bool last, struct client_answer *answer,
                    bool *ret_unseen)
{
    bool reused = client->conn != NULL;
    size_t came = 0;
    int r = reused ? 0 : connect_server(client);

    *ret_unseen = false;
    buffer_clear(&client->in);
    if (r == 0) r = send_out(client);
    if (r == 0 || r == -EPIPE || r == -ECONNRESET) {
        /* A refusal may have come before all was sent. */
        int answered = client->conn ? read_answer(client, answer, &came) : r;

        if (answered == WEIR_ECANCELED && last) answered = read_last(client, answer, &came);
        if (r == 0 || answered == 0) r = answered;
    }
    if (r < 0) {
        *ret_unseen = reused && came == 0 && (r == WEIR_ECLOSED || r == -EPIPE || r == -ECONNRESET);
        disconnect(client);
    }
    return r;
}

int client_ask(struct client *client, const struct client_request *request,
               struct client_answer *ret_answer)
{
    int64_t timeout_ms = request->timeout_ms ? request->timeout_ms : client->spec.timeout_ms;
    bool again = request->again || request->method == METHOD_GET, unseen;
    int r = write_request(client, request);

    if (r < 0) return r;
    r = WEIR_ETIMEDOUT;
    WEIR_DEADLINE(timeout_ms) {
        r = ask_once(client, request->last, ret_answer, &unseen);
        if (r < 0 && unseen && again) r = ask_once(client, request->last, ret_answer, &unseen);
    }
    return r;
}

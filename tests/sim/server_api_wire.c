/* server_api_wire.c - a client's connection: see server_api.h. */
#include <stdlib.h>

#include "sim/server_api.h"

/* Made by `weir token create`, for this file alone. */
const char wire_token[] = "weir_amqfq5wc_FToOs2ccQu7LpCdW9JiYbNal1xAhZ1pLriMrNiDb62Y";
const char wire_wrong_token[] = "weir_amqfq5wc_FToOs2ccQu7LpCdW9JiYbNal1xAhZ1pLriMrNiDb63Y";
const char wire_token_file[] =
    "{\"version\":1,\"tokens\":[{\"id\":\"amqfq5wc\",\"name\":\"sim\",\"sha256\":"
    "\"90db9d6761f2fcf0baf281d1e2054d8853657e5194d8638b40304baa0724dc87\","
    "\"created_ms\":1,\"expires_ms\":0,\"scopes\":[\"all\"]}]}";

enum { ASK_MS = 3000 };

static const struct http_limits limits = {.line_bytes_max = 512,
                                          .head_bytes_max = 2048,
                                          .field_count_max = WIRE_FIELDS,
                                          .body_bytes_max = WIRE_BODY_BYTES,
                                          .chunk_line_bytes_max = 64,
                                          .trailer_bytes_max = 64};

static int wire_open(struct wire *wire)
{
    weir_address address;

    CHECK_INT(weir_resolve("server", SERVER_PORT, WEIR_TCP, &address, 1), ==, 1);
    wire->at = wire->used = 0;
    http_parser_init(&wire->parser, HTTP_KIND_ANSWER, &limits, wire->block, wire->fields);
    return weir_connect_to(&address, &wire->conn);
}

void wire_close(struct wire *wire)
{
    if (wire->conn) weir_conn_close(wire->conn);
    wire->conn = NULL;
}

static int send_request(struct wire *wire, const char *method, const char *path, const char *fields,
                        const char *body)
{
    char text[4096];
    int used = snprintf(text, sizeof text,
                        "%s %s HTTP/1.1\r\nhost: server\r\ncontent-type: application/json\r\n"
                        "content-length: %zu\r\n%s\r\n%s",
                        method, path, strlen(body), fields, body);
    int r;

    CHECK(used > 0 && used < (int)sizeof text);
    r = weir_conn_send_all(wire->conn, text, (size_t)used, NULL);
    if (r == 0 && wire->shut) r = weir_conn_shutdown(wire->conn, SHUT_WR);
    return r < 0 ? r : 0;
}

static int read_answer(struct wire *wire)
{
    wire->body_bytes = 0;
    wire->status = 0;
    for (;;) {
        struct bytes body;
        size_t used;
        ssize_t n;
        enum http_event event =
            http_parse(&wire->parser, wire->in + wire->at, wire->used - wire->at, &used, &body);

        wire->at += used;
        CHECK(event != PARSE_FAILED);
        if (event == PARSE_HEAD) wire->status = wire->parser.message.status;
        if (event == PARSE_BODY) {
            CHECK(wire->body_bytes + body.count < sizeof wire->body);
            memcpy(wire->body + wire->body_bytes, body.at, body.count);
            wire->body_bytes += body.count;
        }
        if (event == PARSE_END) break;
        if (event != PARSE_MORE) continue;
        n = weir_conn_read(wire->conn, wire->in, sizeof wire->in);
        if (n <= 0) return n == 0 ? WEIR_ECLOSED : (int)n;
        wire->at = 0;
        wire->used = (size_t)n;
    }
    wire->body[wire->body_bytes] = '\0';
    http_parser_next(&wire->parser);
    return 0;
}

static int ask(struct wire *wire, const char *method, const char *path, const char *token,
               const char *fields, const char *body)
{
    char all[256];
    int r = 0;

    (void)snprintf(all, sizeof all, "authorization: Bearer %s\r\n%s", token, fields);
    WEIR_DEADLINE(ASK_MS) {
        if (!wire->conn) r = wire_open(wire);
        if (r == 0) r = send_request(wire, method, path, all, body);
        if (r == 0) r = read_answer(wire);
    }
    if (r < 0 || wire->shut) wire_close(wire);
    wire->shut = false;
    return r;
}

int wire_ask(struct wire *wire, const char *method, const char *path, const char *fields,
             const char *body)
{
    int r = ask(wire, method, path, wire_token, fields, body);

    if (r < 0) return r;
    /* Of these nobody knows either. */
    return wire->status >= 500 || wire->status == 408 || wire->status == 429 ? -EAGAIN : 0;
}

int wire_ask_as(struct wire *wire, const char *token, const char *path, const char *body)
{
    return ask(wire, "POST", path, token, "", body);
}

uint64_t wire_number(const char *at, const char *name)
{
    char wanted[64];

    (void)snprintf(wanted, sizeof wanted, "\"%s\":", name);
    at = strstr(at, wanted);
    if (!at) return 0;
    at += strlen(wanted);
    return strtoull(at + (*at == '"'), NULL, 10);
}

bool wire_says(const struct wire *wire, const char *part)
{
    return strstr(wire->body, part) != NULL;
}

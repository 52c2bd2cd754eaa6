/* server_http.c - weir's HTTP API: enqueue, lease and acknowledge, each a POST with a JSON body.
 *
 * Also what a peer of the small GETs is asked with, before wrk drives it. */
#include <strings.h>

#include "load/server.h"

#define QUEUE "bench"
#define POST "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"

/* ---- HTTP ---- */

static const char *body_of(const char *data, size_t bytes)
{
    const char *end = memmem(data, bytes, "\r\n\r\n", 4);

    return end ? end + 4 : NULL;
}

/* The value of a field of the head; 0: it has none. */
static size_t content_length(const char *head, const char *head_end)
{
    static const char name[] = "content-length:";
    const char *line = head;

    while (line < head_end) {
        if ((size_t)(head_end - line) > sizeof name &&
            strncasecmp(line, name, sizeof name - 1) == 0)
            return strtoull(line + sizeof name - 1, NULL, 10);
        line = memchr(line, '\n', (size_t)(head_end - line));
        if (!line) break;
        line++;
    }
    return 0;
}

static size_t whole(const char *data, size_t bytes)
{
    const char *body = body_of(data, bytes);
    size_t all;

    if (!body) return 0;
    all = (size_t)(body - data) + content_length(data, body);
    return all <= bytes ? all : 0;
}

static bool is_success(const char *data, size_t bytes)
{
    return bytes > 12 && memcmp(data, "HTTP/1.1 2", 10) == 0;
}

static size_t post(char *ret_request, const char *path, const char *body, size_t body_bytes)
{
    size_t bytes =
        (size_t)sprintf(ret_request, POST "Content-Length: %zu\r\n\r\n", path, body_bytes);

    memcpy(ret_request + bytes, body, body_bytes);
    return bytes + body_bytes;
}

/* ---- JSON ----
 *
 * The server's answers have each of these names once, and no text in them is escaped. */

static const char *value_of(const char *body, const char *end, const char *name)
{
    char quoted[64];
    int bytes = snprintf(quoted, sizeof quoted, "\"%s\":", name);
    const char *found = memmem(body, (size_t)(end - body), quoted, (size_t)bytes);

    if (!found) stop(1, "the answer has no '%s': %.*s", name, (int)(end - body), body);
    found += bytes;
    while (found < end && *found == ' ') found++;
    return found;
}

/* As it is written, without quotation marks. */
static size_t copy_value(const char *body, const char *end, const char *name, char *ret_text,
                         size_t bytes_max)
{
    const char *from = value_of(body, end, name), *to = from;

    if (from < end && *from == '"') {
        to = ++from;
        while (to < end && *to != '"') to++;
    } else {
        while (to < end && *to != ',' && *to != '}') to++;
    }
    if ((size_t)(to - from) >= bytes_max) stop(1, "'%s' is too long", name);
    memcpy(ret_text, from, (size_t)(to - from));
    ret_text[to - from] = '\0';
    return (size_t)(to - from);
}

/* ---- The steps ---- */

static bool ready(void)
{
    static const char request[] = "GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    char answer[1024];

    return exchange(request, sizeof request - 1, answer, sizeof answer) &&
           is_success(answer, strlen(answer));
}

/* How safe a job is to be before the answer; the server has a default. */
static char durability[64];

static void prepare(void)
{
    const char *asked = getenv("BENCH_DURABILITY");

    /* A queue is there when it is first named. */
    if (asked) snprintf(durability, sizeof durability, "\"durability\":\"%.16s\",", asked);
}

static size_t ask(struct connection *connection, char *ret_request)
{
    char payload[PAYLOAD_BYTES], body[512], path[128];
    int bytes;

    switch (connection->step) {
    case STEP_ENQUEUE:
        payload_write(connection->number, payload);
        bytes = sprintf(body, "{\"kind\":\"bench\",\"idempotent\":true,%s\"payload\":\"%.*s\"}",
                        durability, PAYLOAD_BYTES, payload);
        return post(ret_request, "/v1/queues/" QUEUE "/jobs", body, (size_t)bytes);
    case STEP_LEASE:
        bytes =
            sprintf(body, "{\"worker\":\"c%03u\",\"count\":1,\"lease_ms\":30000,\"wait_ms\":5000}",
                    connection->index);
        return post(ret_request, "/v1/queues/" QUEUE "/lease", body, (size_t)bytes);
    default:
        bytes = sprintf(body, "{\"token\":\"%s\"}", connection->token);
        snprintf(path, sizeof path, "/v1/jobs/%s/ack", connection->id);
        return post(ret_request, path, body, (size_t)bytes);
    }
}

static void take(struct connection *connection, const char *data, size_t bytes)
{
    const char *body = body_of(data, bytes), *end = data + bytes;
    char payload[2 * PAYLOAD_BYTES];

    if (!is_success(data, bytes)) stop(1, "weir answers '%.*s'", (int)bytes, data);
    if (durability[0] && !memmem(body, (size_t)(end - body), durability, strlen(durability) - 1))
        stop(1, "weir has not done it as safely as was asked: '%.*s'", (int)bytes, data);
    if (connection->step != STEP_LEASE) return;
    copy_value(body, end, "id", connection->id, sizeof connection->id);
    copy_value(body, end, "token", connection->token, sizeof connection->token);
    payload_take(payload, copy_value(body, end, "payload", payload, sizeof payload));
}

static struct counts count(void)
{
    static const char request[] = "GET /v1/queues/" QUEUE " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    char answer[4096], text[32];
    struct counts counts;
    const char *body, *end;

    if (!exchange(request, sizeof request - 1, answer, sizeof answer) ||
        !is_success(answer, strlen(answer)))
        stop(1, "weir answers '%s'", answer);
    body = body_of(answer, strlen(answer));
    end = answer + strlen(answer);
    copy_value(body, end, "ready", text, sizeof text);
    counts.ready = strtoull(text, NULL, 10);
    copy_value(body, end, "leased", text, sizeof text);
    counts.leased = strtoull(text, NULL, 10);
    return counts;
}

const struct protocol protocol_http = {
    .name = "http",
    .answers = {[STEP_ENQUEUE] = 1, [STEP_LEASE] = 1, [STEP_ACK] = 1},
    .ready = ready,
    .prepare = prepare,
    .ask = ask,
    .whole = whole,
    .take = take,
    .count = count,
};

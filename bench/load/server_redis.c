/* server_redis.c - Redis Streams: one stream, one consumer group.
 *
 * A job is an entry with one field. It is enqueued by XADD, leased by XREADGROUP COUNT 1 (each
 * connection is a consumer), and acknowledged by XACK and XDEL, sent at once: without XDEL the
 * stream would keep the entry for ever. */
#include "load/server.h"

#define STREAM "q"
#define GROUP "g"

/* A number behind the kind of a reply, and what comes after its line; NULL: not there yet. */
static const char *line_end(const char *from, const char *end, int64_t *ret_number)
{
    const char *stop_at = memchr(from, '\n', (size_t)(end - from));

    if (!stop_at) return NULL;
    *ret_number = strtoll(from + 1, NULL, 10);
    return stop_at + 1;
}

/* What comes after the reply; NULL: not there yet. Strings on the way are told to `visit`. */
static const char *reply_end(const char *from, const char *end,
                             void (*visit)(void *context, const char *text, size_t bytes),
                             void *context)
{
    int64_t left = 1; /* replies: an array adds its members */

    while (left > 0) {
        int64_t number;
        char kind;

        if (from >= end) return NULL;
        kind = *from;
        from = line_end(from, end, &number);
        if (!from) return NULL;
        left--;
        if (kind == '*' && number > 0) left += number;
        if (kind != '$' || number < 0) continue;
        if (end - from < number + 2) return NULL;
        if (visit) visit(context, from, (size_t)number);
        from += number + 2;
    }
    return from;
}

static size_t whole(const char *data, size_t bytes)
{
    const char *end = reply_end(data, data + bytes, NULL, NULL);

    return end ? (size_t)(end - data) : 0;
}

static void ask_once(const char *request, char *ret_answer, size_t answer_bytes_max)
{
    if (!exchange(request, strlen(request), ret_answer, answer_bytes_max) || ret_answer[0] == '-')
        stop(1, "redis answers '%s' to '%s'", ret_answer, request);
}

static bool ready(void)
{
    char answer[256];

    return exchange("PING\r\n", 6, answer, sizeof answer) && strcmp(answer, "+PONG\r\n") == 0;
}

static void prepare(void)
{
    char answer[256];

    ask_once("XGROUP CREATE " STREAM " " GROUP " 0 MKSTREAM\r\n", answer, sizeof answer);
}

static size_t ask(struct connection *connection, char *ret_request)
{
    char payload[PAYLOAD_BYTES];
    size_t id_bytes = strlen(connection->id);

    switch (connection->step) {
    case STEP_ENQUEUE:
        payload_write(connection->number, payload);
        return (size_t)sprintf(ret_request,
                               "*5\r\n$4\r\nXADD\r\n$1\r\n" STREAM "\r\n$1\r\n*\r\n$1\r\np\r\n"
                               "$%d\r\n%.*s\r\n",
                               PAYLOAD_BYTES, PAYLOAD_BYTES, payload);
    case STEP_LEASE:
        return (size_t)sprintf(ret_request,
                               "*9\r\n$10\r\nXREADGROUP\r\n$5\r\nGROUP\r\n$1\r\n" GROUP
                               "\r\n$4\r\nc%03u\r\n$5\r\nCOUNT\r\n$1\r\n1\r\n$7\r\nSTREAMS\r\n"
                               "$1\r\n" STREAM "\r\n$1\r\n>\r\n",
                               connection->index);
    default:
        return (size_t)sprintf(ret_request,
                               "*4\r\n$4\r\nXACK\r\n$1\r\n" STREAM "\r\n$1\r\n" GROUP
                               "\r\n$%zu\r\n%s\r\n*3\r\n$4\r\nXDEL\r\n$1\r\n" STREAM
                               "\r\n$%zu\r\n%s\r\n",
                               id_bytes, connection->id, id_bytes, connection->id);
    }
}

struct strings {
    struct connection *connection;
    unsigned count;
};

/* Of a delivery: the stream's name, the id, the field's name, the payload. */
static void visit_delivery(void *context, const char *text, size_t bytes)
{
    struct strings *strings = context;
    struct connection *connection = strings->connection;

    strings->count++;
    if (strings->count == 2) {
        if (bytes >= sizeof connection->id) stop(1, "redis has an id of %zu bytes", bytes);
        memcpy(connection->id, text, bytes);
        connection->id[bytes] = '\0';
    }
    if (strings->count == 4) payload_take(text, bytes);
}

static void take(struct connection *connection, const char *data, size_t bytes)
{
    struct strings strings = {.connection = connection};
    bool right = false;

    switch (connection->step) {
    case STEP_ENQUEUE: right = data[0] == '$' && data[1] != '-'; break;
    case STEP_LEASE:
        (void)reply_end(data, data + bytes, visit_delivery, &strings);
        right = data[0] == '*' && strings.count == 4;
        break;
    default: right = bytes == 4 && memcmp(data, ":1\r\n", 4) == 0;
    }
    if (!right) stop(1, "redis answers '%.*s'", (int)bytes, data);
}

static struct counts count(void)
{
    char answer[4096];
    struct counts counts;

    ask_once("XLEN " STREAM "\r\n", answer, sizeof answer);
    counts.ready = strtoull(answer + 1, NULL, 10);
    /* An array whose first member counts what is delivered and not acknowledged. */
    ask_once("XPENDING " STREAM " " GROUP "\r\n", answer, sizeof answer);
    if (strncmp(answer, "*4\r\n:", 5) != 0) stop(1, "redis answers '%s' to XPENDING", answer);
    counts.leased = strtoull(answer + 5, NULL, 10);
    counts.ready -= counts.leased;
    return counts;
}

const struct protocol protocol_redis = {
    .name = "redis",
    .answers = {[STEP_ENQUEUE] = 1, [STEP_LEASE] = 1, [STEP_ACK] = 2},
    .ready = ready,
    .prepare = prepare,
    .ask = ask,
    .whole = whole,
    .take = take,
    .count = count,
};

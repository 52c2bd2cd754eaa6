/* server_beanstalkd.c - beanstalkd: put, reserve-with-timeout, delete in its default tube. */
#include "load/server.h"

/* "RESERVED <id> <bytes>" and "OK <bytes>" are lines that a body of so many bytes follows. */
static size_t body_bytes(const char *line, const char *line_end)
{
    const char *number = line_end;

    if (strncmp(line, "RESERVED ", 9) != 0 && strncmp(line, "OK ", 3) != 0) return 0;
    while (number[-1] != ' ') number--;
    return strtoull(number, NULL, 10) + 2;
}

static size_t whole(const char *data, size_t bytes)
{
    const char *end = bytes >= 3 ? memchr(data, '\r', bytes - 1) : NULL;
    size_t all;

    if (!end || end == data) return 0;
    all = (size_t)(end - data) + 2 + body_bytes(data, end);
    return all <= bytes ? all : 0;
}

static bool ready(void)
{
    char answer[8192];

    return exchange("stats\r\n", 7, answer, sizeof answer);
}

static void prepare(void)
{
    /* The default tube is there. */
}

static size_t ask(struct connection *connection, char *ret_request)
{
    char payload[PAYLOAD_BYTES];

    switch (connection->step) {
    case STEP_ENQUEUE:
        payload_write(connection->number, payload);
        return (size_t)sprintf(ret_request, "put 1024 0 30 %d\r\n%.*s\r\n", PAYLOAD_BYTES,
                               PAYLOAD_BYTES, payload);
    case STEP_LEASE: return (size_t)sprintf(ret_request, "reserve-with-timeout 5\r\n");
    default: return (size_t)sprintf(ret_request, "delete %s\r\n", connection->id);
    }
}

static void take_job(struct connection *connection, const char *data, size_t bytes)
{
    const char *body = memchr(data, '\n', bytes);
    size_t id_bytes = strcspn(data + 9, " \r");

    if (id_bytes >= sizeof connection->id) stop(1, "beanstalkd answers '%.*s'", (int)bytes, data);
    memcpy(connection->id, data + 9, id_bytes);
    connection->id[id_bytes] = '\0';
    payload_take(body + 1, (size_t)(data + bytes - 2 - (body + 1)));
}

static void take(struct connection *connection, const char *data, size_t bytes)
{
    static const char *const words[STEPS] = {
        [STEP_ENQUEUE] = "INSERTED ", [STEP_LEASE] = "RESERVED ", [STEP_ACK] = "DELETED\r"};
    const char *word = words[connection->step];

    if (strncmp(data, word, strlen(word)) != 0)
        stop(1, "beanstalkd answers '%.*s'", (int)bytes, data);
    if (connection->step == STEP_LEASE) take_job(connection, data, bytes);
}

static uint64_t figure(const char *text, const char *name)
{
    const char *found = strstr(text, name);

    if (!found) stop(1, "beanstalkd has no figure '%s'", name);
    return strtoull(found + strlen(name), NULL, 10);
}

static struct counts count(void)
{
    char answer[8192];

    if (!exchange("stats\r\n", 7, answer, sizeof answer)) stop(1, "beanstalkd has no figures");
    return (struct counts){.ready = figure(answer, "\ncurrent-jobs-ready: "),
                           .leased = figure(answer, "\ncurrent-jobs-reserved: ")};
}

const struct protocol protocol_beanstalkd = {
    .name = "beanstalkd",
    .answers = {[STEP_ENQUEUE] = 1, [STEP_LEASE] = 1, [STEP_ACK] = 1},
    .ready = ready,
    .prepare = prepare,
    .ask = ask,
    .whole = whole,
    .take = take,
    .count = count,
};

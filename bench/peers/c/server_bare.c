/* server_bare.c - `bench server`: the least that a durable job server over HTTP does.
 *
 *     server-bare PORT FOLDER
 *
 * One thread and epoll, edge-triggered; a head is looked at for its path, its length and nothing
 * else. What all connections asked for in one turn is one write and one fdatasync, into space that
 * was written before; then all are answered. Jobs lie in a table that is read from its beginning.
 * There is no deadline, limit, retry, priority, lease that ends, recovery or figure, and the log
 * begins anew at its end: nobody could use it. It shows how much of a request is the protocol, the
 * kernel, the disk and the client on the same cores. */
#include <stdbool.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "bench_socket.h"

#include <fcntl.h>

enum {
    EVENTS_MAX = 512,
    FD_MAX = 1024,
    REQUEST_BYTES_MAX = 4096,
    ANSWER_BYTES_MAX = 1024,
    PAYLOAD_BYTES_MAX = 128,
    JOBS_MAX = 4 << 20, /* of one run; a power of two */
    RECORD_BYTES_MAX = PAYLOAD_BYTES_MAX + 32,
    LOG_BYTES = 64 << 20,
};

static const struct bench bench = {.program = "server-bare"};

struct record {
    uint32_t crc; /* of what follows */
    uint16_t payload_bytes;
    uint8_t kind;
    uint8_t unused;
    uint64_t id;
    uint64_t token;
};

enum kind { KIND_ENQUEUE = 1, KIND_LEASE, KIND_ACK };

struct job {
    uint64_t token; /* 0: it is ready */
    uint8_t payload_bytes;
    char payload[PAYLOAD_BYTES_MAX];
};

static struct {
    struct job jobs[JOBS_MAX]; /* by id; those that are leased are the first */
    uint64_t last_id;          /* enqueued */
    uint64_t last_leased;
    uint64_t acknowledged;

    int log_fd;
    off_t log_end;
    bool sync_wanted;
    size_t group_bytes;
    char group[EVENTS_MAX * RECORD_BYTES_MAX];

    size_t answer_count;
    struct answer {
        int fd;
        size_t bytes;
        char text[ANSWER_BYTES_MAX];
    } answers[EVENTS_MAX];

    /* What has come of a request, by descriptor. */
    struct {
        size_t bytes;
        char text[REQUEST_BYTES_MAX];
    } requests[FD_MAX];
} server;

_Noreturn static void fail(const char *what)
{
    bench_fail(&bench, what, strerror(errno));
}

/* ---- The log ---- */

static void log_open(const char *folder)
{
    static char zeroes[1 << 20];
    char path[4096];

    snprintf(path, sizeof path, "%s/log", folder);
    server.log_fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (server.log_fd < 0) fail(path);
    for (off_t at = 0; at < LOG_BYTES; at += (off_t)sizeof zeroes)
        if (pwrite(server.log_fd, zeroes, sizeof zeroes, at) != (ssize_t)sizeof zeroes) fail(path);
    if (fsync(server.log_fd) < 0) fail(path);
}

static void log_append(enum kind kind, uint64_t id, uint64_t token, const char *payload,
                       size_t bytes)
{
    struct record record = {
        .payload_bytes = (uint16_t)bytes, .kind = (uint8_t)kind, .id = id, .token = token};
    char *to = server.group + server.group_bytes;
    size_t from = sizeof record.crc;

    memcpy(to, &record, sizeof record);
    if (bytes > 0) memcpy(to + sizeof record, payload, bytes);
    record.crc = crc32c(0, to + from, sizeof record - from + bytes);
    memcpy(to, &record.crc, sizeof record.crc);
    server.group_bytes += sizeof record + bytes;
}

static void log_commit(void)
{
    if (server.group_bytes == 0) return;
    if (server.log_end + (off_t)server.group_bytes > LOG_BYTES) server.log_end = 0;
    if (pwrite(server.log_fd, server.group, server.group_bytes, server.log_end) !=
        (ssize_t)server.group_bytes)
        fail("pwrite");
    if (server.sync_wanted && fdatasync(server.log_fd) < 0) fail("fdatasync");
    server.log_end += (off_t)server.group_bytes;
    server.group_bytes = 0;
    server.sync_wanted = false;
}

/* ---- Jobs ---- */

/* Behind the name, in a body that is as the load writes it. */
static const char *value(const char *body, const char *end, const char *name)
{
    const char *found = memmem(body, (size_t)(end - body), name, strlen(name));

    if (!found) bench_fail(&bench, "a request", "has not what it should have");
    return found + strlen(name);
}

static void answer(int fd, const char *head, const char *body, int body_bytes)
{
    struct answer *answer = &server.answers[server.answer_count++];

    answer->fd = fd;
    answer->bytes = (size_t)snprintf(answer->text, sizeof answer->text,
                                     "HTTP/1.1 %s\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\n"
                                     "content-type: application/json\r\ncontent-length: "
                                     "%d\r\n\r\n%.*s",
                                     head, body_bytes, body_bytes, body);
}

static void enqueue(int fd, const char *body, const char *end)
{
    bool relaxed = memmem(body, (size_t)(end - body), "\"written\"", 9) != NULL;
    const char *payload = value(body, end, "\"payload\":\"");
    const char *payload_end = memchr(payload, '"', (size_t)(end - payload));
    uint64_t id = ++server.last_id;
    struct job *job = &server.jobs[id % JOBS_MAX];
    char text[128];
    int bytes;

    if (!payload_end || payload_end - payload > PAYLOAD_BYTES_MAX || id >= JOBS_MAX)
        bench_fail(&bench, "a job", "is larger, or one more, than was planned");
    job->payload_bytes = (uint8_t)(payload_end - payload);
    memcpy(job->payload, payload, job->payload_bytes);
    log_append(KIND_ENQUEUE, id, 0, payload, job->payload_bytes);
    if (!relaxed) server.sync_wanted = true;
    bytes =
        snprintf(text, sizeof text, "{\"id\":\"%llu\",\"duplicate\":false,\"durability\":\"%s\"}",
                 (unsigned long long)id, relaxed ? "written" : "synced");
    answer(fd, "201 Created", text, bytes);
}

static void lease(int fd)
{
    uint64_t id = ++server.last_leased;
    struct job *job = &server.jobs[id % JOBS_MAX];
    char text[512];
    int bytes;

    if (id > server.last_id) bench_fail(&bench, "a lease", "finds no job");
    job->token = id;
    log_append(KIND_LEASE, id, id, NULL, 0);
    server.sync_wanted = true;
    bytes =
        snprintf(text, sizeof text,
                 "{\"jobs\":[{\"id\":\"%llu\",\"token\":\"%llu\",\"queue\":\"bench\","
                 "\"kind\":\"bench\",\"payload\":\"%.*s\"}],\"durability\":\"synced\"}",
                 (unsigned long long)id, (unsigned long long)id, job->payload_bytes, job->payload);
    answer(fd, "200 OK", text, bytes);
}

static void acknowledge(int fd, const char *path, const char *body, const char *end)
{
    static const char done[] = "{\"state\":\"done\",\"durability\":\"synced\"}";
    uint64_t id = strtoull(path + sizeof "/v1/jobs/" - 1, NULL, 10);
    uint64_t token = strtoull(value(body, end, "\"token\":\""), NULL, 10);

    if (id == 0 || id > server.last_leased || server.jobs[id % JOBS_MAX].token != token)
        bench_fail(&bench, "an acknowledgement", "is of no lease");
    server.jobs[id % JOBS_MAX].token = 0;
    server.acknowledged++;
    log_append(KIND_ACK, id, token, NULL, 0);
    server.sync_wanted = true;
    answer(fd, "200 OK", done, sizeof done - 1);
}

static void count(int fd)
{
    char text[128];
    int bytes = snprintf(text, sizeof text, "{\"ready\":%llu,\"leased\":%llu}",
                         (unsigned long long)(server.last_id - server.last_leased),
                         (unsigned long long)(server.last_leased - server.acknowledged));

    answer(fd, "200 OK", text, bytes);
}

static bool begins(const char *path, const char *with)
{
    return strncmp(path, with, strlen(with)) == 0;
}

static void serve(int fd, const char *head, const char *body, const char *end)
{
    bool is_post = begins(head, "POST ");
    const char *path = head + (is_post ? sizeof "POST " - 1 : sizeof "GET " - 1);

    if (!is_post && begins(path, "/livez"))
        answer(fd, "200 OK", "ok\n", 3);
    else if (!is_post)
        count(fd);
    else if (begins(path, "/v1/jobs/"))
        acknowledge(fd, path, body, end);
    else if (begins(path, "/v1/queues/bench/lease"))
        lease(fd);
    else
        enqueue(fd, body, end);
}

/* ---- Connections ---- */

/* The request at the beginning of what has come: served, and its length; 0: it is not whole. */
static size_t serve_first(int fd, const char *text, size_t bytes)
{
    static const char length_name[] = "Content-Length: ";
    const char *head_end = memmem(text, bytes, "\r\n\r\n", 4), *length;
    size_t all;

    if (!head_end) return 0;
    head_end += 4;
    length = memmem(text, (size_t)(head_end - text), length_name, sizeof length_name - 1);
    all = (size_t)(head_end - text);
    if (length) all += strtoull(length + sizeof length_name - 1, NULL, 10);
    if (all > bytes) return 0;
    serve(fd, text, head_end, text + all);
    return all;
}

/* One request at a time is under way on a connection, so a turn has one answer for each. */
static void take(int epoll_fd, int fd, bool peer_is_done)
{
    char *text = server.requests[fd].text;
    size_t bytes = server.requests[fd].bytes, served;
    ssize_t n = recv(fd, text + bytes, REQUEST_BYTES_MAX - 1 - bytes, 0);

    if (n < 0 && errno == EAGAIN && !peer_is_done) return;
    if (n <= 0) {
        (void)epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, NULL);
        close(fd);
        return;
    }
    bytes += (size_t)n;
    text[bytes] = '\0';
    served = serve_first(fd, text, bytes);
    if (served == 0 && bytes == REQUEST_BYTES_MAX - 1)
        bench_fail(&bench, "a request", "is too long");
    memmove(text, text + served, bytes - served);
    server.requests[fd].bytes = bytes - served;
}

static void send_answers(void)
{
    for (size_t i = 0; i < server.answer_count; i++) {
        const struct answer *answer = &server.answers[i];
        /* One small answer is on its way to a client at most: its buffer has room. A client that
         * is gone has taken its leave by now. */
        ssize_t n = send(answer->fd, answer->text, answer->bytes, MSG_NOSIGNAL);

        if (n != (ssize_t)answer->bytes && errno != EPIPE && errno != ECONNRESET) fail("send");
    }
    server.answer_count = 0;
}

static void accept_all(int epoll_fd, int listener)
{
    int fd;

    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.fd = fd};

        if (fd >= FD_MAX) bench_fail(&bench, "accept4", "more connections than were planned");
        bench_set_nodelay(&bench, fd);
        server.requests[fd].bytes = 0;
        if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0) fail("epoll_ctl");
    }
    if (errno != EAGAIN) fail("accept4");
}

static int listen_on(const char *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)strtoul(port, NULL, 10)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0 ||
        bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, BENCH_BACKLOG) < 0)
        fail("listen");
    return fd;
}

int main(int argc, char **argv)
{
    static struct epoll_event events[EVENTS_MAX];
    struct epoll_event event = {.events = EPOLLIN};
    int listener, epoll_fd;

    if (argc != 3) {
        fprintf(stderr, "usage: server-bare PORT FOLDER\n");
        return 2;
    }
    log_open(argv[2]);
    listener = listen_on(argv[1]);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    event.data.fd = listener;
    if (epoll_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &event) < 0) fail("epoll");
    for (;;) {
        int n = epoll_wait(epoll_fd, events, EVENTS_MAX, -1);

        if (n < 0 && errno != EINTR) fail("epoll_wait");
        for (int i = 0; i < n; i++) {
            if (events[i].data.fd == listener)
                accept_all(epoll_fd, listener);
            else
                take(epoll_fd, events[i].data.fd, (events[i].events & ~(uint32_t)EPOLLIN) != 0);
        }
        log_commit();
        send_answers();
    }
}

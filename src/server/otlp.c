/* otlp.c - one POST for each batch, with a deadline on everything. */
#include "server/otlp.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/http_parse.h"
#include "proto/http_write.h"
#include "rt/kernel.h"
#include "rt/mem.h"
#include "watch/text.h"
#include "watch/trace.h"

enum { HEAD_BYTES = 8 * 1024, FIELDS = 64, PIECE_BYTES = 4096, BODY_BYTES_MAX = 64 * 1024 * 1024 };

static const struct http_limits limits = {
    .line_bytes_max = 1024,
    .head_bytes_max = HEAD_BYTES,
    .field_count_max = FIELDS,
    .body_bytes_max = 1 << 20,
    .chunk_line_bytes_max = 1024,
    .trailer_bytes_max = 1024,
};

static int64_t now_ms(void)
{
    const struct kernel *kernel = kernel_current();

    return kernel->now_ns(kernel) / 1000000;
}

static int wait_for(int fd, short events, int64_t until_ms)
{
    for (;;) {
        struct pollfd poll_fd = {.fd = fd, .events = events};
        int64_t left = until_ms - now_ms();
        int r;

        if (left <= 0) return WEIR_ETIMEDOUT;
        r = poll(&poll_fd, 1, (int)left);
        if (r > 0) return 0;
        if (r < 0 && errno != EINTR) return -errno;
    }
}

static void disconnect(struct otlp *otlp)
{
    if (otlp->fd >= 0) (void)close(otlp->fd);
    otlp->fd = -1;
}

static int connect_once(struct otlp *otlp, int64_t until_ms)
{
    int error = 0, r;
    socklen_t bytes = sizeof error;

    otlp->fd =
        socket(otlp->address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (otlp->fd < 0) return -errno;
    if (connect(otlp->fd, (struct sockaddr *)&otlp->address.storage, otlp->address.bytes) == 0)
        return 0;
    if (errno != EINPROGRESS) return -errno;
    r = wait_for(otlp->fd, POLLOUT, until_ms);
    if (r == 0 && getsockopt(otlp->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) < 0) r = -errno;
    return r < 0 ? r : -error;
}

static int send_all(int fd, struct bytes bytes, int64_t until_ms)
{
    while (bytes.count > 0) {
        ssize_t n = send(fd, bytes.at, bytes.count, MSG_NOSIGNAL);
        int r = 0;

        if (n > 0) bytes = bytes_after(bytes, (size_t)n);
        if (n < 0 && errno == EAGAIN)
            r = wait_for(fd, POLLOUT, until_ms);
        else if (n < 0 && errno != EINTR)
            r = -errno;
        if (r < 0) return r;
    }
    return 0;
}

/* The status of the answer, or an error; whether the connection can be used again. */
static int read_answer(int fd, int64_t until_ms, bool *ret_again)
{
    char block[HEAD_BYTES + 1024], piece[PIECE_BYTES];
    struct http_field fields[FIELDS * 2];
    struct http_parser parser;

    http_parser_init(&parser, HTTP_KIND_ANSWER, &limits, block, fields);
    for (;;) {
        int r = wait_for(fd, POLLIN, until_ms);
        ssize_t n;
        size_t at = 0;

        if (r < 0) return r;
        n = recv(fd, piece, sizeof piece, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (n < 0) return -errno;
        if (n == 0)
            return http_parse_close(&parser) == PARSE_END ? (int)parser.message.status
                                                          : -ECONNRESET;
        for (;;) {
            struct bytes body;
            size_t used;
            enum http_event event = http_parse(&parser, piece + at, (size_t)n - at, &used, &body);

            at += used;
            if (event == PARSE_FAILED) return -EBADMSG;
            if (event == PARSE_MORE) break;
            if (event != PARSE_END) continue;
            *ret_again = parser.message.keep_alive;
            return (int)parser.message.status;
        }
    }
}

static void *resize(void *arg, void *block, size_t bytes_before, size_t bytes)
{
    (void)arg, (void)bytes_before;
    if (bytes > 0) return mem_resize(block, bytes);
    mem_free(block);
    return NULL;
}

static int post(struct otlp *otlp, struct bytes json, int64_t until_ms)
{
    struct http_writer writer;
    struct buffer head;
    bool again = false;
    int r;

    buffer_init(&head, BODY_BYTES_MAX, resize, NULL);
    http_write_request(&writer, &head, METHOD_POST, bytes_of(otlp->path), bytes_of(otlp->host),
                       true);
    http_write_field(&writer, BYTES("content-type"), BYTES("application/json"));
    http_write_field(&writer, BYTES("user-agent"), BYTES("weir/" WEIR_VERSION));
    http_write_length(&writer, json.count);
    http_write_body(&writer, json);
    r = http_write_end(&writer);
    if (r == 0 && otlp->fd < 0) r = connect_once(otlp, until_ms);
    if (r == 0) r = send_all(otlp->fd, buffer_bytes(&head), until_ms);
    if (r == 0) r = read_answer(otlp->fd, until_ms, &again);
    if (!again) disconnect(otlp);
    buffer_deinit(&head);
    return r;
}

static int export_batch(void *keep_state, const weir_trace_batch *batch)
{
    struct otlp *otlp = keep_state;
    int64_t until_ms = now_ms() + otlp->timeout_ms;
    bool reused = otlp->fd >= 0;
    struct text text;
    int r;

    text_init(&text);
    trace_request_json(&text, batch);
    r = text.error;
    if (r == 0) r = post(otlp, (struct bytes){text.data, text.used}, until_ms);
    /* The collector may have closed a connection that was idle: spans are the same twice. */
    if (reused && (r == -ECONNRESET || r == -EPIPE))
        r = post(otlp, (struct bytes){text.data, text.used}, until_ms);
    text_deinit(&text);
    if (r >= 200 && r < 300) {
        atom_add(&otlp->sent, (uint64_t)batch->count);
        return 0;
    }
    atom_add(&otlp->lost, (uint64_t)batch->count);
    return r < 0 ? r : -EREMOTEIO;
}

static int refuse_url(char *ret_why, size_t bytes, const char *url)
{
    (void)snprintf(ret_why, bytes,
                   "'%.120s' is no address of a collector: write http://127.0.0.1:4318/v1/traces "
                   "(the host as a number)",
                   url);
    return WEIR_EREFUSED;
}

int otlp_init(struct otlp *otlp, const char *url, int64_t timeout_ms, char *ret_why, size_t bytes)
{
    static const char scheme[] = "http://";
    const char *host = url + sizeof scheme - 1, *slash;
    char address[OTLP_TEXT_BYTES];

    memset(otlp, 0, sizeof *otlp);
    otlp->fd = -1;
    otlp->timeout_ms = timeout_ms;
    otlp->exporter =
        (weir_trace_exporter){.name = "otlp over HTTP", .write = export_batch, .keep_state = otlp};
    if (strncmp(url, scheme, sizeof scheme - 1) != 0 || strlen(url) >= OTLP_TEXT_BYTES)
        return refuse_url(ret_why, bytes, url);
    slash = strchr(host, '/');
    (void)snprintf(otlp->host, sizeof otlp->host, "%.*s",
                   (int)(slash ? (size_t)(slash - host) : strlen(host)), host);
    (void)snprintf(otlp->path, sizeof otlp->path, "%s", slash ? slash : "/v1/traces");
    (void)snprintf(address, sizeof address, "tcp:%.240s", otlp->host);
    if (!http_authority_valid(bytes_of(otlp->host)) ||
        weir_address_parse(address, &otlp->address) < 0)
        return refuse_url(ret_why, bytes, url);
    return 0;
}

void otlp_deinit(struct otlp *otlp)
{
    disconnect(otlp);
}

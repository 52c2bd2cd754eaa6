/* client.h - requests to a server, for the commands: HTTP/1.1 on a connection that is kept.
 *
 * Owner: a command. Lifetime: client_init to client_deinit. Backpressure: one request at a time, an
 * answer has at most CLIENT_ANSWER_BYTES_MAX. Failure: an error says whether the server cannot be
 * reached (-ECONNREFUSED and others), is too slow (WEIR_ETIMEDOUT) or says something that is no
 * HTTP (WEIR_EPROTOCOL); what the server itself refuses is an answer.
 *
 * A connection that the server has closed while it was idle is made anew, once, for a request that
 * may be sent twice (`again`); others fail: nobody knows whether it has come.
 *
 * Threads: one task at a time.
 */
#ifndef WEIR_CLI_CLIENT_H
#define WEIR_CLI_CLIENT_H

#include <weir/weir.h>

#include "proto/buffer.h"
#include "proto/http_parse.h"

enum {
    CLIENT_FIELDS_MAX = 6,
    CLIENT_TEXT_BYTES = 512,
    CLIENT_ANSWER_BYTES_MAX = 256 * 1024 * 1024,
};

struct client_spec {
    const char *server; /* "http://HOST:PORT", "https://HOST:PORT", "unix:PATH" */
    const char *token;  /* NULL: none */
    const char *ca_file;
    int64_t timeout_ms;
};

struct client_request {
    enum http_method method;
    const char *target; /* "/v1/queues", percent-encoded */
    const char *type;   /* of the body; NULL: application/json */
    struct bytes body;
    struct http_field fields[CLIENT_FIELDS_MAX];
    unsigned field_count;
    bool again;         /* it may be sent twice; of GET always */
    bool last;          /* when the caller is cancelled, an answer on its way is still taken */
    int64_t timeout_ms; /* 0: as the client's spec says */
};

struct client_answer {
    unsigned status;
    struct bytes body; /* until the next request */
    int64_t came_ns;   /* its first bytes, by our clock: whatever it promises began before */
    int64_t retry_after_s;
    char type[64];
};

struct client_tls;

struct client {
    struct client_spec spec;
    char host[CLIENT_TEXT_BYTES];      /* as in the field Host */
    char name[CLIENT_TEXT_BYTES];      /* of the host, without the port */
    char unix_path[CLIENT_TEXT_BYTES]; /* "unix:PATH"; or "" */
    char authorization[CLIENT_TEXT_BYTES];
    uint16_t port;
    bool secure;
    weir_conn *conn;
    struct client_tls *tls;
    struct http_parser parser;
    char *block, *piece;
    struct http_field *fields;
    struct buffer out, in;
};

/* 0, -ENOMEM, or WEIR_EREFUSED with a sentence. */
int client_init(struct client *client, const struct client_spec *spec, char *ret_why, size_t bytes);
void client_deinit(struct client *client);

WEIR_SUSPENDS int client_ask(struct client *client, const struct client_request *request,
                             struct client_answer *ret_answer);

/* Bytes that a buffer grows by the library's allocator. */
void *client_resize(void *arg, void *block, size_t bytes_before, size_t bytes);

/* ---- TLS, client_tls.c ---- */

WEIR_SUSPENDS int client_tls_open(const struct client *client, weir_conn *conn,
                                  struct client_tls **ret_tls);
void client_tls_close(struct client_tls *tls);
WEIR_SUSPENDS int client_tls_send(struct client_tls *tls, struct bytes bytes);
WEIR_SUSPENDS ssize_t client_tls_read(struct client_tls *tls, void *data, size_t bytes);
/* Why the last handshake has failed. */
const char *client_tls_why(void);

#endif

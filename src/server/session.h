/* session.h - one connection and the requests on it.
 *
 *                   ┌────────────── idle, no task ─────────────┐
 *                   ▼                                          │
 *     new ──► IDLE ──► READING ──► SERVING ──► WRITING ──► IDLE ┘
 *               │         │           │            │
 *               └─────────┴───────────┴────────────┴──► CLOSED
 *
 * A request has a task from its first byte on. After the answer the task stays with the connection
 * for a moment (WARM_MS, and WARM_MAX of them on a worker): a client that is busy is then served by
 * two system calls a request. When nothing comes the task ends, and what is left is this struct and
 * an idle wait (weir_conn_idle).
 *
 * Invariants: requests are answered in their order, one at a time. A session that is idle without a
 * task has no work (struct work): no buffer, no parser. What was read beyond a request stays in the
 * buffer for the next one; after a request that was refused for its form nothing that follows is
 * looked at. State is set by session_set_state only.
 * Threads: its task, and the callback of its idle wait, on one worker; others look at what is
 * atomic, under the ward's lock.
 */
#ifndef WEIR_SERVER_SESSION_H
#define WEIR_SERVER_SESSION_H

#include "base/atomic.h"
#include "base/list.h"
#include "proto/http_write.h"
#include "proto/lines.h"
#include "server/exchange.h"

struct service;
struct tls_stream;
struct ward;

enum {
    WARM_MS = 1000,
    WARM_MAX = 256,
    PEER_BYTES = 64,           /* the longest text of an address of TCP, and a terminator */
    INPUT_BYTES = 16 * 1024,   /* read at a time */
    TEXTS_BYTES = 4 * 1024,    /* of fields of an answer, beside what a target can have */
    HEAD_BYTES_MAX = 32 << 10, /* of an answer */
    KEPT_BYTES = 8 << 10, /* of a buffer that is kept for the next request: most need no more */
    UNCOUNTED_BODY_BYTES = 64 << 10,
    DRAIN_BYTES_MAX = 64 << 10,
    LINGER_BYTES_MAX = 256 << 10,
    LINGER_MS = 1000,
    RATE_AFTER_MS = 5000,
};

enum session_state {
    SESSION_NEW,
    SESSION_IDLE,
    SESSION_READING,
    SESSION_SERVING,
    SESSION_WRITING,
    SESSION_CLOSED,
    SESSION_STATES,
};

struct session {
    struct list node; /* of its ward */
    struct service *service;
    struct ward *ward; /* of the worker it is on; NULL until its task has begun */
    weir_conn *conn;
    int fd;
    unsigned listener;
    struct tls_stream *tls; /* NULL: plain */
    struct work *work;      /* while it has a task */
    uint64_t id;
    uint64_t address; /* if address_counted */
    int64_t since_ns;
    ATOM(uint64_t) requests;
    ATOM(const struct route *) route; /* of the request under way */
    ATOM(uint8_t) state;              /* enum session_state */
    bool address_counted;
    bool secure;
    bool handshake_done;
    bool readable; /* its task was made because something has come */
    char peer[PEER_BYTES];
};

/* What a request needs, from a list of the ward. */
struct work {
    struct work *next;
    struct exchange exchange;
    struct http_parser parser;
    struct http_target target;
    struct http_writer writer; /* of an answer that streams */
    struct buffer head;        /* of the answer */
    struct buffer packed;      /* the answer's body, compressed */
    size_t in_at, in_used;     /* of `in`: what was read and not looked at yet */
    struct lines lines;        /* of exchange_line */
    struct bytes piece;
    struct bytes whole; /* of exchange_body */
    bool lines_open, body_read, body_whole, continue_owed;
    bool unread; /* there may be input that nobody has looked at: close with care */
    uint64_t body_bytes;
    size_t held_bytes; /* of bodies_bytes_max: as much as the body's memory has, if it is large */
    int64_t body_began_ns;
    int64_t now_ns; /* as of the last look at the clock */
    uint64_t sent_bytes;
    int send_error;
    struct http_field *fields;
    char *parser_block, *target_block, *texts_block;
    char in[INPUT_BYTES];
};

/* ---- session.c ---- */

/* Takes the connection; its first task is spawned. Negative: nothing was taken. */
int session_open(struct service *service, unsigned listener, weir_conn *take_conn,
                 const weir_address *peer, uint64_t address, bool address_counted);
const char *session_doing(const struct session *session);
/* The service stops: if it waits for a request, it ends. The ward's lock is held. */
void session_end_if_idle(struct session *session);
void session_set_state(struct session *session, enum session_state state);

/* ---- request.c: from the head to the answer ---- */

/* The head is whole, or refused (then `status` says how): it is answered, and the hook is told.
 * True: another request may follow on this connection. */
WEIR_SUSPENDS bool session_request(struct session *session);
/* The same for a head that is none. Suspends. */
void session_refuse(struct session *session, enum problem_code code, const char *why);

/* ---- exchange.c ---- */

/* For a request whose head was read, or for one that has none. */
void exchange_begin(struct exchange *x, struct session *session);
/* Of the request: copies of parameters, with their terminators. */
int exchange_match(struct exchange *x, const struct route_match *match);
/* "100 Continue": the client waits for it before it sends its body. Not after the answer began. */
WEIR_SUSPENDS int exchange_continue(struct exchange *x);
/* Read and drop the rest of the body, up to `bytes_max`. True: nothing of it is left. */
WEIR_SUSPENDS bool exchange_drain(struct exchange *x, uint64_t bytes_max);

/* ---- answer.c ---- */

/* Sends what was answered, or the end of what streams. 0 or an error. */
WEIR_SUSPENDS int exchange_send(struct exchange *x);
/* Whether the connection goes on after this answer. */
bool exchange_keeps(const struct exchange *x);
/* The handler has returned an error and has answered nothing. */
void exchange_fail_silent(struct exchange *x, int error);

/* ---- stream.c: bytes in and out, plain or by TLS ---- */

WEIR_SUSPENDS ssize_t stream_read(struct session *session, void *data, size_t bytes);
/* All of it, with write_ms for each step that moves nothing. */
WEIR_SUSPENDS int stream_write(struct session *session, struct iovec *parts, int count);
/* The same without TLS: for what OpenSSL has made of it. */
WEIR_SUSPENDS int stream_write_plain(struct session *session, struct iovec *parts, int count);
/* No more is sent; what comes in is dropped for a moment, so that the other side can read what was
 * sent last. Suspends. */
void stream_linger(struct session *session);

/* ---- work.c ---- */

struct work *work_take(struct ward *ward);
void work_give_back(struct ward *ward, struct work *take_work);
void work_free(struct work *take_work);
/* The memory of the body has grown: it is counted among those of the service. False: they have as
 * much as they may, and this one's is gone. */
bool work_hold_body(struct service *service, struct work *work);
/* What was counted is given back, with the memory. */
void work_drop_body(struct service *service, struct work *work);
/* A hook for buffers (proto/buffer.h). */
void *work_resize(void *arg, void *block, size_t bytes_before, size_t bytes);

#endif

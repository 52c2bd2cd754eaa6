/* exchange.h - one request and its answer, as a handler sees them.
 *
 *     static int queue_pause(struct exchange *x)
 *     {
 *         struct api *api = x->deps;
 *         int r = weir_queue_pause(api->store, exchange_parameter(x, 0));
 *         if (r < 0) return exchange_fail(x, r, "queue");
 *         json = exchange_json(x, 200);
 *         ...
 *         return 0;
 *     }
 *
 * The session (session.h) reads the head, finds the route, asks who it is, and calls the handler in
 * the request's own scope, in which the route's deadline is in force. What the handler has answered
 * is sent when it returns, unless it streams.
 *
 * Invariants: an answer is begun once; beginning a problem drops what was prepared, unless a part
 * was sent: then the connection ends. All texts of the request live until the handler returns.
 * Threads: the task of the request.
 */
#ifndef WEIR_SERVER_EXCHANGE_H
#define WEIR_SERVER_EXCHANGE_H

#include <weir/weir.h>

#include "proto/buffer.h"
#include "proto/http_parse.h"
#include "proto/json_write.h"
#include "server/problem.h"
#include "server/route.h"

struct session;

enum { EXCHANGE_FIELDS_MAX = 16, EXCHANGE_PEER_BYTES = WEIR_ADDRESS_TEXT_MAX };

struct exchange {
    /* What the handler reads. */
    void *deps; /* of the service's spec */
    const struct route *route;
    const struct http_message *message;
    const struct http_target *target;
    struct bytes parameters[ROUTE_PARAMETERS_MAX];
    const void *who;   /* what `admit` has found out about the caller; NULL: nobody in particular */
    const char *peer;  /* its address, as text */
    bool secure;       /* by TLS or a unix socket */
    weir_scope *scope; /* the request's: what the handler spawns ends with it */
    int64_t came_ns;   /* when its first byte was read */
    uint64_t number; /* of the request, in this process: for the log, and `instance` of problems */

    /* The session's own: exchange.c, session.c. */
    struct session *session;
    struct buffer body; /* of the request, once it was read as a whole */
    struct buffer out;  /* of the answer */
    struct json_writer json;
    unsigned status; /* 0: nothing was answered yet */
    const char *type;
    struct http_field fields[EXCHANGE_FIELDS_MAX];
    unsigned field_count;
    struct buffer texts;  /* what fields point to */
    weir_limit_pass turn; /* one of requests_max; none: it waits for others, or for its body */
    bool streams;         /* the head was sent */
    bool close;           /* no other request on this connection */
};

/* ---- The request ---- */

/* The n-th `{...}` of the route's path as a C string. It has no NUL inside: http_target.h. */
const char *exchange_parameter(const struct exchange *x, unsigned index);
/* A field's value, or one with `at` NULL: it is not there. More than one: the first. */
struct bytes exchange_field(const struct exchange *x, const char *name);
/* A member of the query as a C string. 1: it is there; 0; negative: a problem (it is twice). */
int exchange_query(struct exchange *x, const char *name, const char **ret_value);
/* The same for numbers and durations ("30s"), within bounds; without one nothing is set. */
int exchange_query_int(struct exchange *x, const char *name, int64_t min, int64_t max,
                       int64_t *ret_value);
int exchange_query_duration(struct exchange *x, const char *name, int64_t min_ms, int64_t max_ms,
                            int64_t *ret_ms);
/* Queries that are none of these names (ended by NULL) are a problem: no typing error is silent. */
int exchange_query_only(struct exchange *x, const char *const *names);

/* The whole body, at most the route's body_bytes_max. Sends "100 Continue" if that is expected. */
WEIR_SUSPENDS int exchange_body(struct exchange *x, struct bytes *ret_body);
/* With body_streams: the next line of the body, without its end, valid until the next call. 1: it
 * is there; 0: no more; negative: a problem (too long, cut off, too slow). */
WEIR_SUSPENDS int exchange_line(struct exchange *x, size_t line_bytes_max, struct bytes *ret_line);

/* ---- Its turn ---- */

/* The turn goes to another: what follows waits for what others have to do. Never suspends. */
void exchange_leave_turn(struct exchange *x);
/* It is this one's turn again. It has begun, so it is not shed for having waited. 0 or an error. */
WEIR_SUSPENDS int exchange_resume_turn(struct exchange *x);

/* ---- The answer ---- */

/* Begins a JSON answer; the session ends it. */
struct json_writer *exchange_json(struct exchange *x, unsigned status);
/* An answer of bytes, which are copied. `type` is a constant. */
int exchange_bytes(struct exchange *x, unsigned status, const char *type, struct bytes body);
/* Begins an answer of text that is put into the buffer: x->out. */
struct buffer *exchange_text(struct exchange *x, unsigned status, const char *type);
/* One without a body: 204, 304. */
int exchange_empty(struct exchange *x, unsigned status);
/* One more field of the answer, before it streams; name is a constant, the value is copied. */
void exchange_set(struct exchange *x, const char *name, const char *value);

/* Sends the head now and each piece as it comes, in chunks. Negative: the client is gone or too
 * slow; the handler returns that. */
WEIR_SUSPENDS int exchange_stream(struct exchange *x, unsigned status, const char *type);
WEIR_SUSPENDS int exchange_stream_put(struct exchange *x, struct bytes piece);

/* The answer is a problem (problem.h). Always negative, so that a handler returns it. */
__attribute__((format(printf, 3, 4))) int exchange_problem(struct exchange *x,
                                                           enum problem_code code,
                                                           const char *format, ...);
/* A problem with one more member: "offset": 17, or "actual_count": 12. */
__attribute__((format(printf, 5, 6))) int exchange_problem_with(struct exchange *x,
                                                                enum problem_code code,
                                                                const char *member, int64_t value,
                                                                const char *format, ...);
/* The problem that a library call's error is, with weir_why() where it has a sentence. `what` is
 * what was asked for: "queue", "job". */
int exchange_fail(struct exchange *x, int error, const char *what);
/* Nothing is changed by it, so it can be asked for again. */
bool exchange_is_read(const struct exchange *x);

#endif

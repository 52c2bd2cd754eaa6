/* service.h - listeners and their connections: HTTP/1.1 for a table of routes.
 *
 *     r = service_open(scope, &(struct service_spec){.name = "api", .routes = ...,
 *                      .listeners = ..., .limits = SERVICE_LIMITS_DEFAULT, .keep_deps = api,
 *                      .admit = api_admit}, &service);
 *
 * Owner: a scope. Lifetime: until service_close or the end of its scope. Backpressure: connections
 * in all and by address, requests at a time, waiting time before a request is shed (429, 503 with
 * Retry-After), bounded buffers. Failure: a connection's failure is its own; an accept that fails
 * (no descriptors, no memory) is logged and tried again after a pause; the service goes on.
 *
 * A connection that is idle between two requests holds a struct and no stack. A stop of the scope
 * ends it: no accept, "Connection: close" on what is under way, and then the grace period.
 *
 * Threads: tasks of the runtime, on any worker.
 */
#ifndef WEIR_SERVER_SERVICE_H
#define WEIR_SERVER_SERVICE_H

#include <weir/weir.h>

#include "proto/http_parse.h"
#include "server/route.h"

struct exchange;
struct service;
struct tls; /* tls.h: certificate and key, that can be exchanged while connections go on */

enum { SERVICE_LISTENERS_MAX = 8 };

/* All have to be said; SERVICE_LIMITS_DEFAULT says them (docs/limits in docs/guide/server.md). */
struct service_limits {
    struct http_limits http;
    unsigned connections_max;
    unsigned connections_per_address_max; /* of TCP: unix sockets have one address */
    unsigned requests_max;                /* that are served at a time */
    unsigned requests_per_connection_max; /* then it is closed; 0: no limit */
    int64_t head_ms;                      /* from the first byte of a request to its head's end */
    int64_t body_ms;                      /* of a body without a pause longer than that, */
    uint64_t body_bytes_per_s_min;        /* ... and at least so fast after the first 5 seconds */
    int64_t idle_ms;                      /* between two requests */
    int64_t write_ms;                     /* a client takes nothing for so long: it is closed */
    int64_t tls_ms;                       /* of a handshake */
    size_t answer_bytes_max;              /* of an answer that does not stream */
    uint64_t bodies_bytes_max;            /* of all bodies at a time that do not stream: work.c */
    int64_t shed_target_ms, shed_interval_ms; /* waiting for a turn: weir/shed.h */
};
extern const struct service_limits SERVICE_LIMITS_DEFAULT;

struct service_listener {
    const char *address; /* "tcp:127.0.0.1:7411", "unix:/run/weir.sock" */
    int fd;              /* one that was inherited (socket activation), instead; 0: none */
    bool tls;
};

struct service_spec {
    const char *name;
    struct routes routes;
    const struct service_listener *listeners;
    size_t listener_count;
    struct service_limits limits;
    struct tls *keep_tls; /* needed if a listener has it */
    /* Names that a request may be for (without ports); none: any. Others get 421. */
    const char *const *hosts;
    size_t host_count;
    void *keep_deps;
    /* After the route is found and before the body is read: who is it, and may they? Sets x->who.
     * 0, or a problem. NULL: everybody may all. */
    int (*admit)(struct exchange *x);
    /* After the answer was sent, or could not be: for logs, figures and traces. May be NULL. */
    void (*done)(struct exchange *x, uint64_t sent_bytes, int error);
    size_t stack_bytes; /* of a request's task; default: the scope's */
};

WEIR_SUSPENDS int service_open(weir_scope *scope, const struct service_spec *spec,
                               struct service **ret_service);
/* The address that it really listens at: for port 0. */
int service_address(struct service *service, size_t listener, weir_address *ret_address);
/* No more connections; those there are end with their requests. Suspends until all have. */
WEIR_SUSPENDS int service_close(struct service *take_service);
/* The same, but it is still there: it can be asked by others until it is closed, too. */
WEIR_SUSPENDS int service_stop(struct service *service);

struct service_figures {
    unsigned connections, connections_idle, requests;
    uint64_t accepted, refused_total, refused_address; /* total: also for want of resources */
    uint64_t served;    /* requests that were answered, whatever the answer was */
    uint64_t shed;      /* of those: before their handler was called */
    uint64_t failed;    /* of those: with a status from 500 on */
    uint64_t timed_out; /* heads, bodies, answers and handshakes that were too slow */
};
void service_figures_of(struct service *service, struct service_figures *ret_figures);

/* One connection, for who asks what there is. */
struct service_connection {
    uint64_t id;
    char peer[WEIR_ADDRESS_TEXT_MAX];
    bool tls;
    int64_t since_ms;  /* how long it is there */
    uint64_t requests; /* that it has made */
    const char *doing; /* "idle", "reading", "serving", "writing" */
    char route[64];    /* of the request under way; "": none */
};
/* Up to `max`, from the one after `after` on; how many. */
size_t service_connections(struct service *service, uint64_t after,
                           struct service_connection *ret_connections, size_t max);

#endif

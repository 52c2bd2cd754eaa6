/* route.h - which handler serves a request: one table, by method and path.
 *
 *     {.method = METHOD_POST, .path = "/v1/queues/{queue}/pause", .verb = VERB_MANAGE,
 *      .serve = queue_pause, .deadline_ms = ROUTE_DEADLINE_MS, .summary = "..."}
 *
 * A path is made of segments; `{name}` takes any one segment, decoded. The table is the truth: what
 * is answered, what the OpenAPI document lists, which right a token needs, and the tests of all
 * routes are made from it.
 *
 * Invariants: a request matches at most one route: a segment that is said wins over `{name}`. A
 * path that is known with other methods only gets 405 with Allow, any other 404.
 * Threads: any; routes and their index are constant.
 */
#ifndef WEIR_SERVER_ROUTE_H
#define WEIR_SERVER_ROUTE_H

#include "proto/http.h"
#include "proto/http_target.h"

struct exchange;

enum { ROUTE_PARAMETERS_MAX = 4, ROUTE_DEADLINE_MS = 30000, ROUTE_BODY_BYTES_MAX = 1 << 20 };

/* What a token must allow; by queue where the path or the body names one. */
enum verb {
    VERB_UNSET,
    VERB_PUBLIC,  /* no token needed: /livez, /readyz */
    VERB_ENQUEUE, /* put jobs in */
    VERB_WORK,    /* lease and settle them */
    VERB_READ,    /* look at jobs, queues, figures */
    VERB_MANAGE,  /* change jobs, queues, schedules of others */
    VERB_ADMIN,   /* tokens, configuration, tasks, audit log */
    VERBS,
};

/* For the OpenAPI document: members of the query, of the body and of the answer. */
struct route_doc {
    const char *query;  /* JSON: an array of OpenAPI parameters; NULL: none */
    const char *body;   /* JSON: a schema, or {"$ref": ...}; NULL: none */
    const char *answer; /* likewise, of the answer with `status` */
    unsigned status;
};

struct route {
    enum http_method method;
    const char *path;
    enum verb verb;
    /* 0: exchange.answer is there. Negative: a problem is (exchange_problem), or the error is. */
    int (*serve)(struct exchange *exchange);
    int64_t deadline_ms; /* of the whole exchange; a long poll says its own, and its bound here */
    uint64_t body_bytes_max; /* 413 beyond it, before the body is read; 0: it takes none */
    bool body_streams;       /* `serve` reads the body by lines or pieces itself */
    /* A long poll: while it waits it uses nothing that others need, so it is not counted among the
     * requests that are served at a time, and is not shed. Connections bound how many there are. */
    bool waits;
    const char *summary;
    const struct route_doc *doc;
};

struct route_path; /* route.c */

struct routes {
    const struct route *at;
    size_t count;
};

struct route_match {
    const struct route *route;                     /* NULL: none */
    struct bytes parameters[ROUTE_PARAMETERS_MAX]; /* of `{...}`, in their order, decoded */
    unsigned parameter_count;
    unsigned allowed; /* if there is none: bits of methods that this path has; 0: 404 */
};

/* The table as it is looked at for each request: paths cut into segments, by how many they have. */
struct route_index {
    struct route_path *paths;
    size_t path_count;
    size_t begin[HTTP_SEGMENTS_MAX + 2]; /* of the paths with so many segments; and their end */
};

/* 0 or -ENOMEM. The routes outlive it. */
int route_index_init(struct route_index *index, struct routes keep_routes);
void route_index_deinit(struct route_index *index);

void route_find(const struct route_index *index, enum http_method method,
                const struct http_target *target, struct route_match *ret_match);

#endif

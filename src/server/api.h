/* api.h - the HTTP API of a job store: what its handlers depend on, and who may call them.
 *
 *     r = tokens_open(scope, "/srv/weir/tokens.json", &tokens);
 *     r = audit_open(scope, "/srv/weir/audit.log", &audit);
 *     struct api api = {.store = store, .tokens = tokens, .audit = audit, ...};
 *     r = service_open(scope, &(struct service_spec){.routes = api_routes(), .keep_deps = &api,
 *                      .admit = api_admit, .done = api_done, ...}, &api.service);
 *
 * docs/guide/server-api.md says what is asked and answered; the table (api_routes.c) which handler
 * does it and which right it needs.
 *
 * Invariants: each handler that is not public asks api_allow() before it tells or changes anything:
 * a test goes through all routes with every right. Every answer to a write has "durability".
 * Threads: tasks of requests, on any worker. The bundle is constant while a service uses it, but
 * for what is atomic.
 */
#ifndef WEIR_SERVER_API_H
#define WEIR_SERVER_API_H

#include <weir/weir.h>

#include "base/atomic.h"
#include "server/audit.h"
#include "server/exchange.h"
#include "server/service.h"
#include "server/tokens.h"

/* Of one request: less than the library takes, since a request has memory for all of them. */
enum { API_LEASE_MAX = 64, API_ENQUEUE_MAX = 256, API_SETTLE_MAX = 64 };

/* store and durability must be said. */
struct api {
    weir_store *store;
    enum weir_durability durability; /* the store's, as in its spec */
    struct tokens *tokens;           /* NULL: none are configured, and everybody may do all */
    bool tokens_later;               /* so it is too until there is a first one */
    struct audit *audit;             /* NULL: none is kept */
    struct service *service;         /* whose connections are shown; NULL: none are */
    const char *name;                /* of this server; NULL: "weir" */
    ATOM(const char *) config;       /* in force, as text without secrets; NULL: not shown */
    const char *backups;             /* the folder in which they are made; NULL: none are */
    int64_t started_ms;              /* since 1970 */
    ATOM(bool) draining;             /* /readyz says no */
    struct log_sink *log;            /* for a line about each request; NULL: none */
    ATOM(bool) log_requests;         /* whether there is one */
};

/* All routes of the API, /livez, /readyz, /metrics and /openapi.json included. */
struct routes api_routes(void);

/* The hooks of a service. */
int api_admit(struct exchange *x);
void api_done(struct exchange *x, uint64_t sent_bytes, int error);

/* The OpenAPI document of these routes, into the buffer: openapi.c. */
void openapi_write(struct routes routes, const char *version, struct buffer *out);

/* ---- For handlers ---- */

static inline struct api *api_of(const struct exchange *x)
{
    return x->deps;
}

/* May the caller do this to the queue? `queue` NULL: to all of them. 0, or a problem is
 * answered. */
int api_allow(struct exchange *x, enum verb verb, const char *queue);
/* The same for all queues whose names begin so; and without an answer. */
int api_allow_prefix(struct exchange *x, enum verb verb, const char *prefix);
bool api_may(const struct exchange *x, enum verb verb, const char *queue);
/* The same for the queue of a job, which has to be there. */
WEIR_SUSPENDS int api_allow_job(struct exchange *x, enum verb verb, uint64_t id);

/* Whether tokens are asked for: from the first one on, for good. */
bool api_needs_token(const struct api *api);

/* For one of many: 1: it may; 0: it may not, or there is no such job, which are not told apart. */
WEIR_SUSPENDS int api_may_job(struct exchange *x, enum verb verb, uint64_t id);

/* As exchange_fail, with the store's own sentence where it has one. */
int api_fail(struct exchange *x, int error, const char *what);
/* For what is not harmless when it is repeated, and is not one new job: an Idempotency-Key would
 * promise what is not so. 0, or a problem. */
int api_no_key(struct exchange *x);
/* The n-th parameter of the path as an id. 0, or a problem. */
int api_id(struct exchange *x, unsigned index, uint64_t *ret_id);
/* An id or token as text: decimal digits. */
bool api_id_of(struct bytes text, uint64_t *ret_id);
void api_put_id(struct json_writer *json, const char *key, uint64_t id);

/* "synced", ... Unset: the store's. */
const char *api_durability_name(enum weir_durability durability);
/* 0, or a problem: it is none. An empty text is unset. */
int api_durability_of(struct exchange *x, struct bytes text, enum weir_durability *ret_durability);
/* Of ?durability=. */
int api_durability_asked(struct exchange *x, enum weir_durability *ret_durability);
/* What was decided is made as safe as was asked for, where that is more than the store's; what it
 * has got then. 0, or a problem. */
WEIR_SUSPENDS int api_settle_durability(struct exchange *x, enum weir_durability asked,
                                        enum weir_durability *ret_got);
/* Begins the answer to a write: an object with "durability", left open. */
WEIR_SUSPENDS int api_wrote(struct exchange *x, unsigned status, enum weir_durability asked,
                            struct json_writer **ret_json);
/* The same for what has waited as was asked for itself. Never suspends. */
struct json_writer *api_wrote_as(struct exchange *x, unsigned status, enum weir_durability asked);
/* Nothing else is in it. */
WEIR_SUSPENDS int api_wrote_only(struct exchange *x, enum weir_durability asked);

/* Bytes as they came: JSON as it stands, others as base64 under `base64_key`. */
void api_put_bytes(struct json_writer *json, const char *key, const char *base64_key,
                   struct bytes bytes);
/* Whether the bytes are one JSON value. */
bool api_is_json(struct bytes bytes);
int64_t api_now_ms(void); /* since 1970 */
/* The client has closed its side: nobody reads what is answered. Never suspends. */
bool api_gone(const struct exchange *x);
/* What a request may have to wait for: 0 or more, or an error. It is called again when the wait
 * has given nothing, so it must leave nothing behind then. */
struct api_wait {
    int (*fn)(struct exchange *x, void *arg);
    void *arg;
};
/* Up to `ms`, and no longer than the client is there. WEIR_ETIMEDOUT: nothing came. */
WEIR_SUSPENDS int api_wait(struct exchange *x, int64_t ms, const struct api_wait *wait);

#endif

/* request.c - a request whose head is whole: its route, its turn, its handler, its answer. */
#include <errno.h>
#include <stdio.h>

#include "flow/limit.h"
#include "proto/http_guard.h"
#include "server/http_meters.h"
#include "server/service_inside.h"

enum { REQUEST_TASKS_MAX = 64, ALLOW_BYTES = 64 };

/* ---- Who and what is asked for ---- */

/* Without a port, and without the brackets of IPv6. */
static struct bytes host_of(struct bytes authority)
{
    const char *end;

    if (authority.count > 0 && authority.at[0] == '[') {
        end = memchr(authority.at, ']', authority.count);
        return end ? (struct bytes){authority.at + 1, (size_t)(end - authority.at) - 1} : authority;
    }
    end = authority.count > 0 ? memchr(authority.at, ':', authority.count) : NULL;
    if (end) authority.count = (size_t)(end - authority.at);
    return authority;
}

/* One of ours has no port, and may be an address of IPv6 with or without brackets. */
static bool is_host(const char *ours, struct bytes host)
{
    struct bytes name = bytes_of(ours);

    return bytes_are_like(host, name.count > 0 && name.at[0] == '[' ? host_of(name) : name);
}

static bool host_is_ours(const struct service_spec *spec, struct bytes authority)
{
    struct bytes host = host_of(authority);

    if (spec->host_count == 0) return true;
    for (size_t i = 0; i < spec->host_count; i++) {
        if (is_host(spec->hosts[i], host)) return true;
    }
    return false;
}

/* The target wins (RFC 9112), but who stands before us may not know that. */
static bool names_two_hosts(const struct http_message *message)
{
    struct bytes target = guard_target_authority(message->target);
    const struct http_field *host = http_field_first(message->fields, BYTES("host"));

    return target.at && host && !bytes_are_like(target, host->value);
}

static void set_allow(struct exchange *x, unsigned allowed)
{
    char text[ALLOW_BYTES] = "OPTIONS";
    size_t used = strlen(text);

    for (enum http_method method = METHOD_GET; method < METHOD_OPTIONS; method++) {
        if (!(allowed & 1u << method)) continue;
        used += (size_t)snprintf(text + used, sizeof text - used, ", %s", http_method_name(method));
    }
    exchange_set(x, "allow", text);
}

/* No handler is asked: what the path has instead. */
static int answer_options(struct exchange *x, unsigned allowed)
{
    (void)exchange_empty(x, 204);
    set_allow(x, allowed);
    return 0;
}

/* 1: a route is there. 0: it is answered already. Negative: a problem is. */
static int find_route(struct exchange *x)
{
    const struct service *service = x->session->service;
    struct work *work = x->session->work;
    struct route_match match;
    const char *why = "";
    int r;

    r = http_target_parse(x->message->target, work->target_block, &work->target, &why);
    if (r < 0) return exchange_problem(x, PROBLEM_BAD_REQUEST, "%s", why);
    if (names_two_hosts(x->message)) {
        x->close = true;
        return exchange_problem(x, PROBLEM_BAD_REQUEST, "the target and Host name different hosts");
    }
    if (!host_is_ours(&service->spec, x->message->authority)) {
        return exchange_problem(x, PROBLEM_WRONG_HOST, "this server has another name");
    }
    if (work->target.asterisk) {
        if (x->message->method == METHOD_OPTIONS) return answer_options(x, ~0u);
        return exchange_problem(x, PROBLEM_BAD_REQUEST, "the target is for OPTIONS only");
    }
    route_find(&service->routes, x->message->method, &work->target, &match);
    if (match.route) return exchange_match(x, &match);
    if (match.allowed == 0) {
        return exchange_problem(x, PROBLEM_NOT_FOUND, "there is nothing at this path");
    }
    if (x->message->method == METHOD_OPTIONS) return answer_options(x, match.allowed);
    r = exchange_problem(x, PROBLEM_WRONG_METHOD, "%s is not for this path",
                         http_method_name(x->message->method));
    set_allow(x, match.allowed);
    return r;
}

/* ---- Its turn ---- */

static bool is_shed_never(const struct route *route)
{
    return route->verb == VERB_PUBLIC || route->waits;
}

/* So many are served at a time; who has waited too long for its turn is let go. Only the wait for
 * the turn counts: a client that is slow with its head, or a machine that stood still, is no
 * queue. */
static int take_turn(struct exchange *x, weir_limit_pass *ret_pass)
{
    struct service *service = x->session->service;
    int64_t began_ns = weir_now_ns();
    int r = 0;

    if (is_shed_never(x->route)) return 0;
    WEIR_DEADLINE(service->spec.limits.shed_interval_ms) {
        r = limit_enter(service->limit, ret_pass, began_ns);
    }
    if (r >= 0) {
        r = weir_shed_enter(service->shed, r == LINE_WAITED ? weir_now_ns() - began_ns : 0);
        if (r < 0) weir_limit_leave(service->limit, ret_pass, r);
    }
    if (r == 0) return 0;
    if (r != WEIR_EOVERLOAD && r != WEIR_ETIMEDOUT) {
        return exchange_problem(x, PROBLEM_DRAINING, "the server is stopping");
    }
    ward_count(x->session->ward, FIGURE_SHED);
    return exchange_problem(x, PROBLEM_OVERLOADED, "too many requests wait for their turn");
}

void exchange_leave_turn(struct exchange *x)
{
    if (x->turn.limit) weir_limit_leave(x->session->service->limit, &x->turn, 0);
    x->turn = (weir_limit_pass){0};
}

int exchange_resume_turn(struct exchange *x)
{
    return weir_limit_enter(x->session->service->limit, &x->turn);
}

/* ---- Its handler ---- */

static bool is_packed(const struct exchange *x)
{
    struct bytes encoding = exchange_field(x, "content-encoding");

    return encoding.at && !bytes_are_like(encoding, BYTES("identity"));
}

/* A body is what it is: nothing is unpacked, so that what is small on its way stays small; and it
 * is not kept as if it had not been packed. A route without one: what comes must be empty. */
static int check_body(struct exchange *x)
{
    const struct http_message *message = x->message;
    struct bytes body;

    if ((message->chunked || (message->has_length && message->length > 0)) && is_packed(x)) {
        return exchange_problem(x, PROBLEM_WRONG_TYPE,
                                "bodies are taken as they are, without Content-Encoding");
    }
    if (message->has_length && message->length > x->route->body_bytes_max) {
        return exchange_problem(x, PROBLEM_TOO_LARGE, "the body has %llu bytes; %llu are taken",
                                (unsigned long long)message->length,
                                (unsigned long long)x->route->body_bytes_max);
    }
    if (message->chunked && x->route->body_bytes_max == 0) return exchange_body(x, &body);
    return 0;
}

/* A body that does not stream is there before it is the request's turn: who sends it slowly has
 * none meanwhile. */
static int await_body(struct exchange *x)
{
    struct bytes body;

    if (x->route->body_bytes_max == 0 || x->route->body_streams) return 0;
    return exchange_body(x, &body);
}

static int admit_and_serve(struct exchange *x)
{
    const struct service_spec *spec = &x->session->service->spec;
    int r = spec->admit ? spec->admit(x) : 0;

    if (r >= 0) r = check_body(x);
    if (r >= 0) r = await_body(x);
    if (r >= 0) r = take_turn(x, &x->turn);
    if (r >= 0) r = x->route->serve(x);
    /* In the request's scope: here it is known why it was cut short. */
    if (r < 0 && x->status < 400) exchange_fail_silent(x, r);
    return r;
}

/* What the client works in, if it says so as the W3C wants it. */
static const weir_trace_context *client_context(struct exchange *x, weir_trace_context *context)
{
    struct bytes field = exchange_field(x, "traceparent");
    char text[WEIR_TRACEPARENT_BYTES * 2];

    if (!field.at || field.count >= sizeof text) return NULL;
    memcpy(text, field.at, field.count);
    text[field.count] = '\0';
    return weir_trace_parse(text, NULL, context) < 0 ? NULL : context;
}

/* A span for each request; without .trace of weir_config that is a look at the runtime. */
static int call_handler(struct exchange *x)
{
    weir_trace_context context;
    int r = 0;

    WEIR_SPAN_SPEC(&((weir_span_spec){
        .name = x->route->path, .kind = WEIR_SPAN_SERVER, .parent = client_context(x, &context)})) {
        r = admit_and_serve(x);
        weir_span_string("http.request.method", http_method_name(x->route->method));
        weir_span_string("http.route", x->route->path);
        weir_span_int("http.response.status_code", x->status);
        if (x->status >= 500) weir_span_result(r < 0 ? r : -EIO);
    }
    return r;
}

static int run_route(struct exchange *x)
{
    int r = 0;

    WEIR_SCOPE(scope, &r, .name = "request", .on_failure = WEIR_FAIL_FAST,
               .max_tasks = REQUEST_TASKS_MAX, .overflow = WEIR_REJECT,
               .deadline_ms = x->route->deadline_ms) {
        x->scope = scope;
        r = call_handler(x);
        x->scope = NULL;
    }
    return r;
}

static void serve(struct exchange *x)
{
    struct session *session = x->session;
    int r;

    session_set_state(session, SESSION_SERVING);
    atom_store(&session->route, x->route);
    (void)atom_add(&session->ward->requests, 1);
    r = run_route(x);
    (void)atom_sub(&session->ward->requests, 1);
    atom_store(&session->route, NULL);
    exchange_leave_turn(x);
    /* No scope: no memory, or the service is cancelled. */
    if (r < 0 && x->status == 0) exchange_fail_silent(x, r);
}

/* ---- Its answer ---- */

static bool answer(struct exchange *x)
{
    struct session *session = x->session;
    struct service *service = session->service;
    struct work *work = session->work;
    bool keeps;
    int r;

    session_set_state(session, SESSION_WRITING);
    r = exchange_send(x);
    if (x->status >= 500) ward_count(session->ward, FIGURE_FAILED);
    ward_count(session->ward, FIGURE_SERVED);
    work->now_ns = weir_now_ns();
    http_meters_answered(service, x->route, x->status, work->now_ns - x->came_ns);
    if (service->spec.done) service->spec.done(x, work->sent_bytes, r);
    if (r < 0) return false;
    keeps = exchange_keeps(x) && exchange_drain(x, DRAIN_BYTES_MAX);
    if (!keeps && !(work->body_whole && work->in_at == work->in_used)) work->unread = true;
    return keeps;
}

bool session_request(struct session *session)
{
    struct exchange *x = &session->work->exchange;

    exchange_begin(x, session);
    atom_store(&session->requests, atom_load(&session->requests) + 1);
    if (find_route(x) == 1) serve(x);
    return answer(x);
}

void session_refuse(struct session *session, enum problem_code code, const char *why)
{
    struct exchange *x = &session->work->exchange;

    x->came_ns = session->work->now_ns;
    exchange_begin(x, session);
    x->close = true;
    session->work->unread = true;
    (void)exchange_problem(x, code, "%s", why);
    (void)answer(x);
}

/* session.c - a connection from its first byte to its close: states, waiting, reading heads. */
#include "server/session.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

#include "rt/mem.h"
#include "server/service_inside.h"
#include "server/tls.h"

/* ---- States ---- */

#define BIT(state) (1u << (state))

static const unsigned moves[SESSION_STATES] = {
    [SESSION_NEW] = BIT(SESSION_IDLE) | BIT(SESSION_CLOSED),
    [SESSION_IDLE] = BIT(SESSION_READING) | BIT(SESSION_CLOSED),
    [SESSION_READING] = BIT(SESSION_SERVING) | BIT(SESSION_WRITING) | BIT(SESSION_CLOSED),
    [SESSION_SERVING] = BIT(SESSION_WRITING) | BIT(SESSION_CLOSED),
    [SESSION_WRITING] = BIT(SESSION_IDLE) | BIT(SESSION_READING) | BIT(SESSION_CLOSED),
};

static const char *const names[SESSION_STATES] = {
    [SESSION_NEW] = "idle",        [SESSION_IDLE] = "idle",       [SESSION_READING] = "reading",
    [SESSION_SERVING] = "serving", [SESSION_WRITING] = "writing", [SESSION_CLOSED] = "closed",
};

void session_set_state(struct session *session, enum session_state state)
{
    assert(moves[atom_load(&session->state)] & BIT(state));
    atom_store(&session->state, (uint8_t)state);
}

const char *session_doing(const struct session *session)
{
    return names[atom_load(&session->state)];
}

/* ---- Life ---- */

static int session_main(void *arg);

static int session_spawn(struct session *session, enum weir_place place)
{
    struct service *service = session->service;
    bool tls = service->sockets[session->listener].spec.tls;
    size_t stack_bytes = service->spec.stack_bytes;
    const weir_task_spec spec = {
        .fn = session_main,
        .arg = &session,
        .arg_bytes = sizeof session,
        .name = "http",
        .place = place,
        .stack_bytes = tls && stack_bytes < TLS_STACK_BYTES ? TLS_STACK_BYTES : stack_bytes};

    return weir_task_spawn(service->inner, &spec, NULL);
}

int session_open(struct service *service, unsigned listener, weir_conn *take_conn,
                 const weir_address *peer, uint64_t address, bool address_counted)
{
    const struct service_socket *socket = &service->sockets[listener];
    struct session *session = mem_alloc_zeroed(sizeof *session);
    int r;

    if (!session) return -ENOMEM;
    session->service = service;
    session->listener = listener;
    session->conn = take_conn;
    session->fd = weir_conn_fd(take_conn);
    session->since_ns = weir_now_ns();
    session->address = address;
    session->address_counted = address_counted;
    session->secure = socket->spec.tls || peer->transport == WEIR_UNIX;
    if (socket->spec.tls) {
        r = tls_stream_new(service->spec.keep_tls, &session->tls);
        if (r < 0) {
            mem_free(session);
            return r;
        }
    }
    (void)weir_address_format(peer, session->peer, sizeof session->peer);
    service_lock(service);
    session->id = ++service->next_id;
    service_unlock(service);
    /* A listener that all workers share gives others the chance to take it; after its first task
     * has begun it stays there. */
    r = session_spawn(session, socket->per_worker ? WEIR_PLACE_HERE : WEIR_ANYWHERE);
    if (r < 0) {
        tls_stream_free(session->tls);
        mem_free(session);
    }
    return r;
}

/* On its worker: by its task, which ends then, or by the callback of its idle wait. */
static void session_close(struct session *session)
{
    struct service *service = session->service;
    struct ward *ward = session->ward;

    session_set_state(session, SESSION_CLOSED);
    ward_lock(ward);
    list_remove(&session->node); /* from here on nobody else touches the connection */
    ward_unlock(ward);
    work_give_back(ward, session->work);
    if (session->handshake_done) tls_say_end(session);
    tls_stream_free(session->tls);
    weir_conn_close(session->conn);
    accept_leave(service, session->address, session->address_counted);
    mem_free(session);
}

void session_end_if_idle(struct session *session)
{
    /* It reads the end; what has come before that is still answered. */
    if (atom_load(&session->state) == SESSION_IDLE) {
        (void)weir_conn_shutdown(session->conn, SHUT_RD);
    }
}

/* ---- Idle, without a task ---- */

static void session_ready(weir_conn *conn, int status, void *arg)
{
    struct session *session = arg;

    (void)conn;
    session->readable = true;
    if (status == 0) status = session_spawn(session, WEIR_PLACE_HERE);
    if (status < 0) session_close(session);
}

/* The task gives it away, and ends. */
static void session_rest(struct session *session)
{
    struct service *service = session->service;
    int64_t ms = service->spec.limits.idle_ms - WARM_MS;
    int r;

    work_give_back(session->ward, session->work);
    session->work = NULL;
    r = weir_conn_idle(service->inner, session->conn,
                       &(weir_idle_spec){.on_ready = session_ready,
                                         .keep_arg = session,
                                         .idle_ms = ms > 0 ? ms : 1});
    if (r < 0) session_close(session);
}

/* ---- Reading a head ---- */

enum next { NEXT_REQUEST, NEXT_REST, NEXT_CLOSE };

/* The next bytes, behind those that are there. */
static ssize_t read_more(struct session *session, int64_t ms)
{
    struct work *work = session->work;
    ssize_t n = WEIR_ETIMEDOUT;

    if (work->in_at == work->in_used) work->in_at = work->in_used = 0;
    WEIR_DEADLINE(ms) {
        n = stream_read(session, work->in + work->in_used, sizeof work->in - work->in_used);
    }
    if (n > 0) work->in_used += (size_t)n;
    return n;
}

/* Whether there is something to read already: then it does not have to wait for it, and must not
 * rest, as it would be called again at once and for nothing. */
static bool has_input(struct session *session)
{
    bool readable = session->readable;

    session->readable = false;
    return readable || (session->tls && tls_has_input(session->tls));
}

/* Until the first byte of a request is there, or it is time to rest. */
static enum next wait_for_request(struct session *session)
{
    struct service *service = session->service;
    struct ward *ward = session->ward;
    int64_t idle_ms = service->spec.limits.idle_ms;
    ssize_t n;

    if (weir_stopping()) return NEXT_CLOSE;
    if (!has_input(session) && ward->warm >= WARM_MAX) return NEXT_REST;
    ward->warm++;
    n = read_more(session, idle_ms < WARM_MS ? idle_ms : WARM_MS);
    ward->warm--;
    if (n > 0) return NEXT_REQUEST;
    return n == WEIR_ETIMEDOUT && idle_ms > WARM_MS ? NEXT_REST : NEXT_CLOSE;
}

/* What came, or did not, instead of the rest of a head. */
static enum next refuse_head(struct session *session, ssize_t n)
{
    struct work *work = session->work;

    if (n == WEIR_ETIMEDOUT) {
        ward_count(session->ward, FIGURE_TIMED_OUT);
        session_refuse(session, PROBLEM_TIMEOUT, "the head of the request came too slowly");
    } else if (n == 0 && http_parse_close(&work->parser) == PARSE_FAILED) {
        session_refuse(session, PROBLEM_BAD_REQUEST, work->parser.why);
    }
    return NEXT_CLOSE;
}

/* From the first byte on: until the head is whole. */
static enum next read_head(struct session *session)
{
    const struct service_limits *limits = &session->service->spec.limits;
    struct work *work = session->work;
    int64_t began_ns = work->now_ns = weir_now_ns();

    for (;;) {
        struct bytes none;
        enum http_event event;
        int64_t left_ms;
        size_t used;
        ssize_t n;

        event = http_parse(&work->parser, work->in + work->in_at, work->in_used - work->in_at,
                           &used, &none);
        work->in_at += used;
        if (event == PARSE_HEAD) {
            work->exchange.came_ns = began_ns;
            return NEXT_REQUEST;
        }
        if (event == PARSE_FAILED) {
            session_refuse(session, problem_of_status(work->parser.status), work->parser.why);
            return NEXT_CLOSE;
        }
        assert(event == PARSE_MORE);
        left_ms = limits->head_ms - (weir_now_ns() - began_ns) / 1000000;
        n = left_ms > 0 ? read_more(session, left_ms) : WEIR_ETIMEDOUT;
        if (n <= 0) return refuse_head(session, n);
    }
}

/* ---- Its task ---- */

static enum next serve_next(struct session *session)
{
    struct work *work = session->work;
    enum next next = NEXT_REQUEST;

    if (work->in_at == work->in_used) {
        if (atom_load(&session->state) != SESSION_IDLE) session_set_state(session, SESSION_IDLE);
        next = wait_for_request(session);
        if (next != NEXT_REQUEST) return next;
    }
    session_set_state(session, SESSION_READING);
    next = read_head(session);
    if (next != NEXT_REQUEST) return next;
    if (!session_request(session)) return NEXT_CLOSE;
    http_parser_next(&work->parser);
    return NEXT_REQUEST;
}

/* Its first task begins: from now on it stays on this worker. */
static void settle(struct session *session)
{
    struct ward *ward = ward_here(session->service);

    session->ward = ward;
    ward_lock(ward);
    list_add_tail(&ward->sessions, &session->node);
    ward_unlock(ward);
}

/* With a deadline of its own: who only connects is gone after it. */
static int shake_hands(struct session *session)
{
    int r = 0;

    if (!session->tls || session->handshake_done) return 0;
    WEIR_DEADLINE(session->service->spec.limits.tls_ms) { r = tls_handshake(session); }
    if (r == WEIR_ETIMEDOUT) ward_count(session->ward, FIGURE_TIMED_OUT);
    session->handshake_done = r == 0;
    return r;
}

static int session_main(void *arg)
{
    struct session *session = *(struct session **)arg;
    enum next next = NEXT_REQUEST;

    if (!session->ward) settle(session);
    session->work = work_take(session->ward);
    if (!session->work) {
        session_close(session);
        return 0;
    }
    if (shake_hands(session) < 0) next = NEXT_CLOSE;
    while (next == NEXT_REQUEST) next = serve_next(session);
    if (next == NEXT_REST && session->tls && tls_has_input(session->tls)) next = NEXT_CLOSE;
    if (next == NEXT_REST) {
        session_rest(session);
        return 0;
    }
    if (session->work->unread) stream_linger(session);
    session_close(session);
    return 0;
}

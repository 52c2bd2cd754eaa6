/* net_connect.c - attempts to connect in a simulated run.
 *
 * An attempt on TCP is one event after the other: the SYN arrives; the answer arrives. A SYN that
 * does not pass, or finds a full backlog, is sent again after 1, 3, 7, ... seconds, and given up
 * after 127, as Linux does; when a partition heals, at once. Within a host all of that
 * happens inside connect, which says EINPROGRESS all the same.
 */
#include <errno.h>
#include <string.h>

#include "sim/net.h"

enum { CONNECT_TRIES_MAX = 7 };
#define CONNECT_UNREACHABLE_NS (3 * NET_SECOND_NS) /* until nobody has answered who has it */

/* ---- How it ends ---- */

void connect_made(struct sim *sim, struct sim_socket *socket)
{
    sim_event_stop(&socket->attempt.event);
    socket->state = SOCKET_CONNECTED;
    socket->attempt.untold = true;
    sim_file_ready(sim, &socket->file, READY_OUT);
}

void connect_failed(struct sim *sim, struct sim_socket *socket, int error)
{
    sim_event_stop(&socket->attempt.event);
    if (socket->link != NULL) link_leave(sim, socket);
    socket->state = SOCKET_FRESH;
    socket->error = error;
    socket->attempt.untold = true;
    sim_file_ready(sim, &socket->file, READY_IN | READY_OUT | READY_BEYOND);
}

static void try_again_later(struct sim *sim, struct sim_socket *socket)
{
    struct attempt *attempt = &socket->attempt;

    attempt->waits = true;
    attempt->tries++;
    sim_event_start(sim, &attempt->event,
                    attempt->began_ns + ((INT64_C(1) << attempt->tries) - 1) * NET_SECOND_NS);
}

/* The other side has answered. */
static void answer(struct sim *sim, struct sim_socket *socket, const struct sim_host *from,
                   int error)
{
    if (from != socket->file.host) {
        socket->attempt.answered = true;
        socket->attempt.error = error;
        sim_event_start(sim, &socket->attempt.event, sim_now_ns(sim) + NET_LATENCY_NS);
    } else if (error == 0) {
        connect_made(sim, socket);
    } else {
        connect_failed(sim, socket, error);
    }
}

/* ---- At the other side ---- */

/* A socket for the connection, in the backlog of the one that listens. */
static int add_to_backlog(struct sim *sim, struct sim_socket *listener, struct sim_socket *client)
{
    struct sim_socket *child =
        socket_new(sim, listener->file.host, listener->domain, listener->type);
    int r;

    if (child == NULL) return -ENOMEM;
    r = link_open(sim, client, child);
    if (r < 0) {
        socket_free(sim, child);
        return r;
    }
    child->state = SOCKET_CONNECTED;
    child->no_delay = listener->no_delay;
    child->keep_alive = listener->keep_alive;
    list_add_tail(&listener->backlog, &child->in_backlog);
    listener->backlog_count++;
    sim_file_ready(sim, &listener->file, READY_IN);
    if (listener->domain == AF_UNIX) {
        child->name = listener->name;
        child->remote_name = client->name;
    } else {
        child->local = client->remote;
        child->remote = client->local;
    }
    return 0;
}

static bool is_full(const struct sim_socket *listener)
{
    return listener->backlog_count > listener->backlog_max;
}

static void syn_arrives(struct sim *sim, struct sim_socket *socket, struct sim_host *at)
{
    struct sim_socket *listener = socket_at(sim_host_net(at), SOCK_STREAM, &socket->remote);

    if (listener == NULL || listener->state != SOCKET_LISTENING) {
        answer(sim, socket, at, ECONNREFUSED);
    } else if (is_full(listener) || add_to_backlog(sim, listener, socket) < 0) {
        try_again_later(sim, socket);
    } else {
        answer(sim, socket, at, 0);
    }
}

static void attempt_goes_on(struct sim *sim, struct sim_event *event)
{
    struct sim_socket *socket = container_of(event, struct sim_socket, attempt.event);
    struct attempt *attempt = &socket->attempt;
    struct sim_host *to;

    if (attempt->answered) {
        if (attempt->error == 0) {
            connect_made(sim, socket);
        } else {
            connect_failed(sim, socket, attempt->error);
        }
        return;
    }
    to = place_host(sim, socket->file.host, &socket->remote);
    if (attempt->tries >= CONNECT_TRIES_MAX) {
        connect_failed(sim, socket, ETIMEDOUT);
    } else if (!net_passes(socket->file.host, to)) {
        try_again_later(sim, socket);
    } else {
        attempt->waits = false;
        syn_arrives(sim, socket, to);
    }
}

void connect_go_on(struct sim *sim, struct sim_socket *socket)
{
    struct attempt *attempt = &socket->attempt;

    if (socket->state != SOCKET_CONNECTING || !attempt->waits) return;
    if (!net_passes(socket->file.host, place_host(sim, socket->file.host, &socket->remote))) return;
    attempt->waits = false;
    sim_event_start(sim, &attempt->event, sim_now_ns(sim) + NET_LATENCY_NS);
}

void connect_init(struct sim_socket *socket)
{
    sim_event_init(&socket->attempt.event, attempt_goes_on);
}

/* ---- The calls ---- */

/* What connect answers if it is not a new attempt: 1 if it is one. */
static int state_of(struct sim_socket *socket)
{
    int r;

    switch (socket->state) {
    case SOCKET_LISTENING: return -EISCONN;
    case SOCKET_CONNECTING: return -EALREADY;
    case SOCKET_CONNECTED:
        if (!socket->attempt.untold) return -EISCONN;
        socket->attempt.untold = false;
        return 0;
    case SOCKET_FRESH: break;
    }
    if (!socket->attempt.untold) return 1;
    socket->attempt.untold = false;
    r = socket_take_error(socket);
    return r < 0 ? r : -ECONNABORTED; /* somebody has asked for the error already */
}

int connect_internet(struct sim *sim, struct sim_socket *socket, const struct net_place *to)
{
    struct sim_host *from = socket->file.host;
    struct sim_host *host = place_host(sim, from, to);
    bool is_here = to->ip[12] == 10 && to->ip[13] == 0 && to->ip[14] == 0;
    int r = state_of(socket);

    if (r <= 0) return r;
    if (socket->domain == AF_INET6 && socket->ipv6_only && place_is_ipv4(to)) return -ENETUNREACH;
    if (host == NULL && (!place_is_ipv4(to) || !is_here)) return -ENETUNREACH;
    r = socket_bind_implicitly(socket, to);
    if (r < 0) return r;
    socket->remote = *to;
    if (place_is_any(to)) { /* which means this host */
        memcpy(socket->remote.ip, socket->local.ip, sizeof to->ip);
    }
    socket->state = SOCKET_CONNECTING;
    socket->attempt.began_ns = sim_now_ns(sim);
    socket->attempt.tries = 0;
    socket->attempt.waits = false;
    socket->attempt.answered = host == NULL;
    socket->attempt.error = EHOSTUNREACH;
    if (host == NULL) {
        sim_event_start(sim, &socket->attempt.event, sim_now_ns(sim) + CONNECT_UNREACHABLE_NS);
    } else if (sim_fault(sim, SIM_FAULT_REFUSE, "connect")) {
        answer(sim, socket, host, ECONNREFUSED);
    } else if (host != from) {
        sim_event_start(sim, &socket->attempt.event, net_arrival_ns(sim, "connect"));
    } else {
        syn_arrives(sim, socket, host);
    }
    return -EINPROGRESS;
}

/* Who has that name on this host. */
static int find_name(struct sim *sim, struct sim_net *net, const struct net_name *to,
                     struct sim_socket **ret_socket)
{
    int64_t file = 0;

    if (to->bytes[0] != '\0') {
        file = sim_disk_socket_find(sim, sim_host_disk(net->host), to->bytes);
        if (file < 0) return (int)file;
    }
    list_for_each(node, &net->sockets) {
        struct sim_socket *socket = container_of(node, struct sim_socket, node);

        if (socket->domain != AF_UNIX || !socket->bound || socket->name.file != file) continue;
        if (file == 0 && (socket->name.length != to->length ||
                          memcmp(socket->name.bytes, to->bytes, to->length) != 0))
            continue;
        *ret_socket = socket;
        return 0;
    }
    return -ECONNREFUSED;
}

int connect_unix(struct sim *sim, struct sim_socket *socket, const struct net_name *to)
{
    struct sim_socket *listener = NULL;
    int r = find_name(sim, socket->net, to, &listener);

    if (r < 0) return r;
    if (!listener || listener->state != SOCKET_LISTENING) return -ECONNREFUSED;
    if (is_full(listener)) return -EAGAIN;
    if (socket->state == SOCKET_CONNECTED) return -EISCONN;
    if (socket->state == SOCKET_LISTENING) return -EINVAL;
    r = add_to_backlog(sim, listener, socket);
    if (r < 0) return r;
    socket->state = SOCKET_CONNECTED;
    socket->remote_name = listener->name;
    sim_file_ready(sim, &socket->file, READY_OUT);
    return 0;
}

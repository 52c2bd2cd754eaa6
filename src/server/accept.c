/* accept.c - tasks that accept, and who is refused. */
#include <errno.h>

#include "server/service_inside.h"

enum { PAUSE_MS = 100 };

/* ---- Who gets in ---- */

enum admission { ADMITTED, REFUSED_TOTAL, REFUSED_ADDRESS };

static enum admission admit(struct service *service, uint64_t address, bool counted)
{
    const struct service_limits *limits = &service->spec.limits;
    enum admission admission = ADMITTED;

    service_lock(service);
    if (service->connections >= limits->connections_max) {
        admission = REFUSED_TOTAL;
    } else if (counted && !addresses_enter(&service->addresses, address,
                                           limits->connections_per_address_max)) {
        admission = REFUSED_ADDRESS;
    } else {
        service->connections++;
    }
    service_unlock(service);
    return admission;
}

void accept_leave(struct service *service, uint64_t address, bool address_counted)
{
    service_lock(service);
    service->connections--;
    if (address_counted) addresses_leave(&service->addresses, address);
    service_unlock(service);
}

/* A word why, if it can be said at once, and the end. */
static void turn_away(const struct service_socket *socket, weir_conn *take_conn)
{
    static const char text[] = "HTTP/1.1 503 Service Unavailable\r\n"
                               "connection: close\r\ncontent-length: 0\r\nretry-after: 1\r\n\r\n";
    const struct kernel *kernel = worker_self()->kernel;

    if (!socket->spec.tls) {
        (void)kernel->send(kernel, weir_conn_fd(take_conn), text, sizeof text - 1, MSG_DONTWAIT);
        (void)weir_conn_shutdown(take_conn, SHUT_WR);
    }
    weir_conn_close(take_conn);
}

static void count(ATOM(uint64_t) * counter)
{
    (void)atom_add(counter, 1);
}

static void take(struct service *service, unsigned listener, weir_conn *take_conn)
{
    struct service_socket *socket = &service->sockets[listener];
    weir_address peer = {0};
    uint64_t address = 0;
    enum admission admission;
    bool counted;

    if (weir_conn_peer(take_conn, &peer) < 0) { /* it is gone already */
        weir_conn_close(take_conn);
        return;
    }
    counted = address_key(&peer, &address);
    count(&socket->accepted);
    admission = admit(service, address, counted);
    if (admission == ADMITTED) {
        if (session_open(service, listener, take_conn, &peer, address, counted) == 0) return;
        accept_leave(service, address, counted);
        count(&socket->refused_other);
    } else {
        count(admission == REFUSED_TOTAL ? &socket->refused_total : &socket->refused_address);
    }
    turn_away(socket, take_conn);
}

/* ---- The task ---- */

/* The service is over, or its scope. */
static bool is_over(int error)
{
    return error == WEIR_ESTOPPING || error == WEIR_ECANCELED || error == WEIR_ETIMEDOUT;
}

/* What accept could not do now it can do later: descriptors and memory come back. */
static int pause_after(struct service *service, const struct service_socket *socket, int error,
                       int *logged)
{
    if (*logged != error) {
        log_write(worker_self()->runtime, WEIR_LOG_ERROR, task_self(),
                  "service '%s': accept at %s fails with %s, and is tried again",
                  service->object.name, socket->address, weir_error_name(error));
        *logged = error;
    }
    return weir_sleep(PAUSE_MS);
}

/* The last one closes: nobody is to be left in the backlog of a service that stops. */
static void leave(struct service_socket *socket)
{
    sanitize_release(socket);
    if (atom_sub(&socket->acceptors, 1) > 1) return;
    sanitize_acquire(socket);
    weir_listener_close(socket->listener);
    socket->listener = NULL;
}

int accept_main(void *arg)
{
    const struct accept_arg *own = arg;
    struct service *service = own->service;
    struct service_socket *socket = &service->sockets[own->listener];
    int logged = 0;
    int r = 0;

    while (!is_over(r)) {
        weir_conn *conn = NULL;

        WEIR_NO_DEADLINE("clients come when they want to") {
            r = weir_accept(socket->listener, &conn);
        }
        if (r == 0) {
            logged = 0;
            take(service, own->listener, conn);
        } else if (!is_over(r)) {
            r = pause_after(service, socket, r, &logged);
        }
    }
    leave(socket);
    return 0;
}

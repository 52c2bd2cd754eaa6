/* net.c - the simulated network: hosts, sockets, ports, and the calls of the table. */
#include <assert.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>

#include "sim/net.h"

enum { PORT_FIRST = 32768, PORT_LAST = 60999, PORT_COUNT = PORT_LAST - PORT_FIRST + 1 };

/* ---- A host's part ---- */

int sim_net_open(struct sim *sim, struct sim_host *host, struct sim_net **ret_net)
{
    struct sim_net *net = sim_alloc(sim, sizeof *net);

    if (net == NULL) return -ENOMEM;
    net->host = host;
    net->port_next = PORT_FIRST;
    list_init(&net->sockets);
    list_init(&net->lanes);
    list_init(&net->datagrams);
    *ret_net = net;
    return 0;
}

/* The run is over: sockets and links that a failed one has left go with the rest of its memory. */
void sim_net_close(struct sim *sim, struct sim_net *take_net)
{
    if (take_net == NULL) return;
    sim_free(sim, take_net->fds.files);
    sim_free(sim, take_net);
}

void sim_net_cut(struct sim *sim, struct sim_host *host)
{
    struct sim_net *net = sim_host_net(host);
    struct list *node = net->sockets.next;

    net->down = true;
    while (node != &net->sockets) {
        struct sim_socket *socket = container_of(node, struct sim_socket, node);

        if (socket->type == SOCK_STREAM) stream_cut(sim, socket);
        node = node->next; /* now: its backlog is gone */
    }
}

void sim_net_healed(struct sim *sim)
{
    struct sim_host *host;

    for (unsigned i = 0; (host = sim_host_at(sim, i)) != NULL; i++) {
        struct sim_net *net = sim_host_net(host);

        if (net == NULL) continue; /* it was never started */
        list_for_each(node, &net->lanes) lane_go_on(sim, container_of(node, struct lane, node));
        list_for_each(node, &net->sockets)
            connect_go_on(sim, container_of(node, struct sim_socket, node));
    }
}

void net_up(struct sim *sim, struct sim_net *net)
{
    struct sim_host *host;

    if (!net->down) return;
    net->down = false;
    /* Data that waited is sent again; attempts to connect have a clock of their own. */
    for (unsigned i = 0; (host = sim_host_at(sim, i)) != NULL; i++) {
        struct sim_net *other = sim_host_net(host);

        if (other == NULL) continue;
        list_for_each(node, &other->lanes) lane_go_on(sim, container_of(node, struct lane, node));
    }
}

bool net_passes(const struct sim_host *from, const struct sim_host *to)
{
    const struct sim_net *net = sim_host_net(to);

    return net != NULL && !net->down && sim_host_reaches(from, to);
}

int64_t net_arrival_ns(struct sim *sim, const char *about)
{
    int64_t at_ns = sim_now_ns(sim) + NET_LATENCY_NS;

    if (sim_fault(sim, SIM_FAULT_LATE, about)) {
        uint64_t most_ms = (uint64_t)sim_late_ms_max(sim);
        at_ns += (int64_t)sim_amount(sim, most_ms, "late") * 1000000;
    }
    return at_ns;
}

size_t net_moved(struct sim *sim, size_t bytes, const char *about)
{
    if (bytes < 2 || !sim_fault(sim, SIM_FAULT_SHORT_IO, about)) return bytes;
    return bytes - (size_t)sim_amount(sim, bytes - 1, "bytes fewer");
}

/* ---- Sockets ---- */

struct sim_socket *socket_new(struct sim *sim, struct sim_host *host, int domain, int type)
{
    struct sim_socket *socket = sim_alloc(sim, sizeof *socket);

    if (socket == NULL) return NULL;
    sim_file_init(&socket->file, type == SOCK_STREAM ? &stream_kind : &datagram_kind, host);
    socket->net = sim_host_net(host);
    socket->domain = domain;
    socket->type = type;
    list_init(&socket->backlog);
    list_init(&socket->in_backlog);
    list_init(&socket->received);
    connect_init(socket);
    list_add_tail(&socket->net->sockets, &socket->node);
    return socket;
}

void socket_free(struct sim *sim, struct sim_socket *take_socket)
{
    sim_event_stop(&take_socket->attempt.event);
    list_remove(&take_socket->node);
    sim_free(sim, take_socket);
}

struct sim_socket *socket_of(struct sim *sim, int fd, int *ret_error)
{
    struct sim_file *file = sim_fd_file(sim, fd);

    *ret_error = file == NULL ? -EBADF : -ENOTSOCK;
    if (file == NULL || (file->kind != &stream_kind && file->kind != &datagram_kind)) return NULL;
    return (struct sim_socket *)(void *)file;
}

bool socket_is_internet(const struct sim_socket *socket)
{
    return socket->domain != AF_UNIX;
}

int socket_take_error(struct sim_socket *socket)
{
    int error = socket->error;

    socket->error = 0;
    return -error;
}

/* ---- Ports ---- */

/* Whether the two places overlap for sockets of these kinds. */
static bool overlap(const struct sim_socket *a, const struct sim_socket *b)
{
    bool any_a = place_is_any(&a->local);
    bool any_b = place_is_any(&b->local);

    if (a->local.port != b->local.port) return false;
    if (!any_a && !any_b) return memcmp(a->local.ip, b->local.ip, sizeof a->local.ip) == 0;
    if (a->domain == b->domain) return true;
    /* [::] is also every address of IPv4, unless it says otherwise. */
    if (a->domain == AF_INET6) return any_a && !a->ipv6_only;
    return any_b && !b->ipv6_only;
}

static bool in_each_others_way(const struct sim_socket *socket, const struct sim_socket *other)
{
    if (other == socket || !other->bound || !socket_is_internet(other) ||
        other->type != socket->type || !overlap(socket, other))
        return false;
    if (socket->reuse_port && other->reuse_port) return false;
    if (socket->reuse_address && other->reuse_address)
        return socket->type == SOCK_STREAM && other->state == SOCKET_LISTENING;
    return true;
}

static bool is_taken(const struct sim_socket *socket)
{
    list_for_each(node, &socket->net->sockets) {
        if (in_each_others_way(socket, container_of(node, struct sim_socket, node))) return true;
    }
    return false;
}

uint16_t socket_free_port(struct sim_net *net, int type)
{
    for (unsigned i = 0; i < PORT_COUNT; i++) {
        uint16_t port = net->port_next;
        bool taken = false;

        net->port_next = port == PORT_LAST ? PORT_FIRST : (uint16_t)(port + 1);
        list_for_each(node, &net->sockets) {
            const struct sim_socket *other = container_of(node, struct sim_socket, node);

            taken |= socket_is_internet(other) && other->type == type && other->local.port == port;
        }
        if (!taken) return port;
    }
    return 0;
}

int socket_bind_implicitly(struct sim_socket *socket, const struct net_place *towards)
{
    if (socket->local.port == 0) {
        static const struct net_place any_ipv4 = {.ip = {[10] = 0xff, [11] = 0xff}};
        uint16_t port = socket_free_port(socket->net, socket->type);

        if (port == 0) return -EADDRNOTAVAIL;
        if (socket->domain == AF_INET) socket->local = any_ipv4;
        socket->local.port = port;
        socket->bound = socket->type == SOCK_DGRAM || towards == NULL;
    }
    if (towards != NULL && place_is_any(&socket->local) && socket->type == SOCK_STREAM) {
        struct net_place own;

        place_of_host(socket->file.host, &own);
        if (place_is_loopback(towards)) {
            own = *towards;
        } else if (place_is_any(towards)) {
            static const struct net_place loopback4 = {
                .ip = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}};
            static const struct net_place loopback6 = {.ip = {[15] = 1}};

            own = place_is_ipv4(towards) ? loopback4 : loopback6;
        }
        memcpy(socket->local.ip, own.ip, sizeof own.ip);
    }
    return 0;
}

/* Whether what is sent to `place` is for this socket. */
static bool is_for(const struct sim_socket *socket, const struct net_place *place)
{
    if (socket->local.port != place->port) return false;
    if (!place_is_any(&socket->local))
        return memcmp(socket->local.ip, place->ip, sizeof place->ip) == 0;
    if (socket->domain == AF_INET) return place_is_ipv4(place);
    return !place_is_ipv4(place) || !socket->ipv6_only;
}

struct sim_socket *socket_at(struct sim_net *net, int type, const struct net_place *place)
{
    struct sim_socket *found = NULL;
    unsigned count = 0;

    /* Those that share a port take turns. */
    for (unsigned round = 0; round < 2; round++) {
        unsigned turn = count > 1 ? net->spread++ % count : 0;

        list_for_each(node, &net->sockets) {
            struct sim_socket *socket = container_of(node, struct sim_socket, node);

            if (!socket->bound || !socket_is_internet(socket) || socket->type != type) continue;
            if (type == SOCK_STREAM && socket->state != SOCKET_LISTENING) continue;
            if (!is_for(socket, place)) continue;
            if (round == 0) count++;
            if (round == 1 && turn-- == 0) found = socket;
        }
        if (count == 0) return NULL;
    }
    return found;
}

/* ---- The calls: making ---- */

static int net_socket(const struct kernel *kernel, int domain, int type, int protocol)
{
    struct sim *sim = sim_now_running();
    struct sim_socket *socket;
    int fd;

    (void)kernel;
    type &= ~(SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (domain != AF_INET && domain != AF_INET6 && domain != AF_UNIX) return -EAFNOSUPPORT;
    if (type != SOCK_STREAM && (type != SOCK_DGRAM || domain == AF_UNIX)) return -ESOCKTNOSUPPORT;
    if (protocol != 0 && protocol != (type == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP))
        return -EPROTONOSUPPORT;
    socket = socket_new(sim, sim_host_running(sim), domain, type);
    if (socket == NULL) return -ENOMEM;
    fd = sim_fd_install(sim, &socket->file);
    if (fd < 0) socket_free(sim, socket);
    return fd;
}

static int net_socketpair(const struct kernel *kernel, int domain, int type, int ret_fds[2])
{
    (void)kernel;
    if (domain != AF_UNIX) return -EOPNOTSUPP;
    if ((type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) != SOCK_STREAM) return -ESOCKTNOSUPPORT;
    return stream_pair(sim_now_running(), ret_fds);
}

static int bind_name(struct sim *sim, struct sim_socket *socket, const struct sockaddr *address,
                     socklen_t bytes)
{
    struct net_name name;
    int r = name_from(address, bytes, &name);

    if (r < 0) return r;
    if (name.bytes[0] != '\0') {
        name.file = sim_disk_socket_make(sim, sim_host_disk(socket->file.host), name.bytes);
        if (name.file < 0) return (int)name.file;
    } else {
        list_for_each(node, &socket->net->sockets) {
            const struct sim_socket *other = container_of(node, struct sim_socket, node);

            if (other->bound && other->domain == AF_UNIX && other->name.file == 0 &&
                other->name.length == name.length &&
                memcmp(other->name.bytes, name.bytes, name.length) == 0)
                return -EADDRINUSE;
        }
    }
    socket->name = name;
    socket->bound = true;
    return 0;
}

static int bind_place(struct sim *sim, struct sim_socket *socket, const struct sockaddr *address,
                      socklen_t bytes)
{
    struct net_place place;
    int r = place_from(socket->domain, address, bytes, &place);

    if (r < 0) return r;
    if (place_host(sim, socket->file.host, &place) != socket->file.host) return -EADDRNOTAVAIL;
    if (place.port == 0) {
        place.port = socket_free_port(socket->net, socket->type);
        if (place.port == 0) return -EADDRINUSE;
    }
    socket->local = place;
    if (is_taken(socket)) {
        memset(&socket->local, 0, sizeof socket->local);
        return -EADDRINUSE;
    }
    socket->bound = true;
    return 0;
}

static int net_bind(const struct kernel *kernel, int fd, const struct sockaddr *address,
                    socklen_t bytes)
{
    struct sim *sim = sim_now_running();
    int r;
    struct sim_socket *socket = socket_of(sim, fd, &r);

    (void)kernel;
    if (socket == NULL) return r;
    if (socket->bound || socket->local.port != 0 || socket->link != NULL) return -EINVAL;
    return socket_is_internet(socket) ? bind_place(sim, socket, address, bytes)
                                      : bind_name(sim, socket, address, bytes);
}

static int net_listen(const struct kernel *kernel, int fd, int backlog)
{
    struct sim *sim = sim_now_running();
    int r;
    struct sim_socket *socket = socket_of(sim, fd, &r);

    (void)kernel;
    if (socket == NULL) return r;
    return socket->type == SOCK_STREAM ? stream_listen(sim, socket, backlog) : -EOPNOTSUPP;
}

static int net_accept(const struct kernel *kernel, int fd)
{
    struct sim *sim = sim_now_running();
    int r;
    struct sim_socket *socket = socket_of(sim, fd, &r);

    (void)kernel;
    if (socket == NULL) return r;
    return socket->type == SOCK_STREAM ? stream_accept(sim, socket) : -EOPNOTSUPP;
}

static int net_connect(const struct kernel *kernel, int fd, const struct sockaddr *address,
                       socklen_t bytes)
{
    struct sim *sim = sim_now_running();
    struct net_place place;
    struct net_name name;
    int r;
    struct sim_socket *socket = socket_of(sim, fd, &r);

    (void)kernel;
    if (socket == NULL) return r;
    if (socket->type != SOCK_STREAM) return -EOPNOTSUPP; /* datagrams say where they go */
    if (socket->domain == AF_UNIX) {
        r = name_from(address, bytes, &name);
        return r < 0 ? r : connect_unix(sim, socket, &name);
    }
    r = place_from(socket->domain, address, bytes, &place);
    return r < 0 ? r : connect_internet(sim, socket, &place);
}

static int net_shutdown(const struct kernel *kernel, int fd, int how)
{
    struct sim *sim = sim_now_running();
    int r;
    struct sim_socket *socket = socket_of(sim, fd, &r);

    (void)kernel;
    if (socket == NULL) return r;
    return socket->type == SOCK_STREAM ? stream_shutdown(sim, socket, how) : -ENOTCONN;
}

static int net_getsockname(const struct kernel *kernel, int fd, struct sockaddr *address,
                           socklen_t *bytes)
{
    static const struct net_place any4 = {.ip = {[10] = 0xff, [11] = 0xff}};
    int r;
    struct sim_socket *socket = socket_of(sim_now_running(), fd, &r);

    (void)kernel;
    if (socket == NULL) return r;
    if (socket->domain == AF_UNIX) {
        name_to(&socket->name, address, bytes);
    } else {
        bool is_set = socket->local.port != 0 || socket->domain == AF_INET6;
        place_to(socket->domain, is_set ? &socket->local : &any4, address, bytes);
    }
    return 0;
}

static int net_getpeername(const struct kernel *kernel, int fd, struct sockaddr *address,
                           socklen_t *bytes)
{
    int r;
    struct sim_socket *socket = socket_of(sim_now_running(), fd, &r);

    (void)kernel;
    if (socket == NULL) return r;
    if (socket->state != SOCKET_CONNECTED || socket->reset) return -ENOTCONN;
    if (socket->domain == AF_UNIX) {
        name_to(&socket->remote_name, address, bytes);
    } else {
        place_to(socket->domain, &socket->remote, address, bytes);
    }
    return 0;
}

/* ---- The calls: moving ---- */

static ssize_t move(bool reads, int fd, const struct iovec *parts, int count,
                    struct msghdr *message, int flags)
{
    struct sim *sim = sim_now_running();
    int r;
    struct sim_socket *socket = socket_of(sim, fd, &r);

    if (socket == NULL) return r;
    return reads ? socket->file.kind->read(sim, &socket->file, parts, count, message, flags)
                 : socket->file.kind->write(sim, &socket->file, parts, count, message, flags);
}

static ssize_t net_recv(const struct kernel *kernel, int fd, void *data, size_t bytes, int flags)
{
    const struct iovec part = {data, bytes};

    (void)kernel;
    return move(true, fd, &part, 1, NULL, flags);
}

static ssize_t net_send(const struct kernel *kernel, int fd, const void *data, size_t bytes,
                        int flags)
{
    const struct iovec part = {(void *)(uintptr_t)data, bytes};

    (void)kernel;
    return move(false, fd, &part, 1, NULL, flags);
}

static ssize_t net_recvmsg(const struct kernel *kernel, int fd, struct msghdr *message, int flags)
{
    (void)kernel;
    return move(true, fd, message->msg_iov, (int)message->msg_iovlen, message, flags);
}

static ssize_t net_sendmsg(const struct kernel *kernel, int fd, const struct msghdr *message,
                           int flags)
{
    (void)kernel;
    return move(false, fd, message->msg_iov, (int)message->msg_iovlen,
                (struct msghdr *)(uintptr_t)message, flags);
}

/* ---- The calls: options ---- */

/* The flag that an option sets; NULL: it has none. */
static bool *option_flag(struct sim_socket *socket, int level, int name)
{
    if (level == SOL_SOCKET && name == SO_REUSEADDR) return &socket->reuse_address;
    if (level == SOL_SOCKET && name == SO_REUSEPORT) return &socket->reuse_port;
    if (level == SOL_SOCKET && name == SO_KEEPALIVE) return &socket->keep_alive;
    if (level == IPPROTO_TCP && name == TCP_NODELAY && socket->type == SOCK_STREAM &&
        socket_is_internet(socket))
        return &socket->no_delay;
    if (level == IPPROTO_IPV6 && name == IPV6_V6ONLY && socket->domain == AF_INET6)
        return &socket->ipv6_only;
    return NULL;
}

static int net_setsockopt(const struct kernel *kernel, int fd, int level, int name,
                          const void *value, socklen_t bytes)
{
    int r;
    struct sim_socket *socket = socket_of(sim_now_running(), fd, &r);
    bool *flag;
    int given;

    (void)kernel;
    if (socket == NULL) return r;
    if (bytes < sizeof given) return -EINVAL;
    memcpy(&given, value, sizeof given);
    flag = option_flag(socket, level, name);
    /* Buffers have their size here, and the rest of what a socket has makes no difference. */
    if (flag == NULL)
        return level == SOL_SOCKET || (level == IPPROTO_TCP && socket_is_internet(socket))
                   ? 0
                   : -ENOPROTOOPT;
    *flag = given != 0;
    return 0;
}

static int net_getsockopt(const struct kernel *kernel, int fd, int level, int name, void *value,
                          socklen_t *bytes)
{
    int r;
    struct sim_socket *socket = socket_of(sim_now_running(), fd, &r);
    const bool *flag;
    int answer;

    (void)kernel;
    if (socket == NULL) return r;
    flag = option_flag(socket, level, name);
    if (flag != NULL) {
        answer = *flag;
    } else if (level == SOL_SOCKET) {
        switch (name) {
        case SO_TYPE: answer = socket->type; break;
        case SO_DOMAIN: answer = socket->domain; break;
        case SO_ERROR: answer = -socket_take_error(socket); break;
        case SO_ACCEPTCONN: answer = socket->state == SOCKET_LISTENING; break;
        case SO_SNDBUF:
        case SO_RCVBUF: answer = LANE_BYTES_MAX; break;
        default: return -ENOPROTOOPT;
        }
    } else {
        return -ENOPROTOOPT;
    }
    if (*bytes > sizeof answer) *bytes = sizeof answer;
    memcpy(value, &answer, *bytes);
    return 0;
}

void sim_net_fill_table(struct kernel *table)
{
    table->short_recv_drains = false; /* a read may be cut short */
    table->socket = net_socket;
    table->socketpair = net_socketpair;
    table->bind = net_bind;
    table->listen = net_listen;
    table->accept = net_accept;
    table->connect = net_connect;
    table->getsockopt = net_getsockopt;
    table->setsockopt = net_setsockopt;
    table->getsockname = net_getsockname;
    table->getpeername = net_getpeername;
    table->recv = net_recv;
    table->send = net_send;
    table->recvmsg = net_recvmsg;
    table->sendmsg = net_sendmsg;
    table->shutdown = net_shutdown;
    names_fill_table(table);
}

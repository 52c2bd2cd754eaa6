/* net_stream.c - stream sockets of a simulated run: TCP, unix, pairs.
 *
 *     FRESH ──listen──▶ LISTENING
 *       │ ▲
 *       │ └──── failed ────┐
 *       └──connect──▶ CONNECTING ──▶ CONNECTED ◀── accept, socketpair
 *
 * What errors come when is Linux's: data that has arrived is read before an error; a reset is told
 * once, by whoever reads or writes first; after that reads find the end and writes EPIPE.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "sim/net.h"

static struct sim_socket *of_file(const struct sim_file *file)
{
    return (struct sim_socket *)(uintptr_t)file;
}

unsigned stream_ready_bits(const struct sim_socket *socket)
{
    const unsigned all = READY_IN | READY_OUT | READY_BEYOND;
    unsigned ready = 0;
    bool read_over = socket->read_shut || socket->fin_seen;

    switch (socket->state) {
    case SOCKET_FRESH: return all;
    case SOCKET_LISTENING: return socket->backlog_count > 0 ? READY_IN : 0;
    case SOCKET_CONNECTING: return 0;
    case SOCKET_CONNECTED: break;
    }
    if (socket->error != 0 || (read_over && socket->write_shut)) return all;
    if (read_over) ready |= READY_IN | READY_BEYOND;
    if (lane_in(socket)->arrived > 0) ready |= READY_IN;
    /* Like the kernel, which wakes writers for a third of the buffer, not for each byte. */
    if (socket->write_shut || 3 * lane_room(lane_out(socket)) >= LANE_BYTES_MAX) ready |= READY_OUT;
    return ready;
}

static unsigned stream_ready(struct sim *sim, const struct sim_file *file)
{
    (void)sim;
    return stream_ready_bits(of_file(file));
}

/* ---- Moving bytes ---- */

/* By the fault: the connection is gone for both. */
static bool breaks(struct sim *sim, struct sim_socket *socket, const char *about)
{
    if (socket->link->is_unix || socket->reset || !sim_fault(sim, SIM_FAULT_RESET, about))
        return false;
    lane_say(sim, lane_out(socket), SEGMENT_RESET);
    socket->reset = true;
    socket->read_shut = true;
    socket->write_shut = true;
    ring_drop(&lane_in(socket)->ring, lane_in(socket)->arrived);
    lane_in(socket)->arrived = 0;
    sim_file_ready(sim, &socket->file, READY_IN | READY_OUT | READY_BEYOND);
    return true;
}

/* There is nothing to read. */
static ssize_t read_nothing(struct sim_socket *socket)
{
    int r;

    if (socket->fin_seen) return 0;
    r = socket_take_error(socket);
    if (r < 0) return r;
    return socket->read_shut ? 0 : -EAGAIN;
}

static ssize_t stream_read(struct sim *sim, struct sim_file *file, const struct iovec *parts,
                           int count, struct msghdr *message, int flags)
{
    struct sim_socket *socket = of_file(file);
    size_t bytes = parts_bytes(parts, count);
    struct lane *lane;

    if (message != NULL) {
        message->msg_namelen = 0;
        message->msg_controllen = 0;
        message->msg_flags = 0;
    }
    if (socket->state == SOCKET_CONNECTING) return -EAGAIN;
    if (socket->state != SOCKET_CONNECTED) {
        int r = socket_take_error(socket);
        if (r < 0) return r;
        return socket->domain == AF_UNIX ? -EINVAL : -ENOTCONN;
    }
    if (bytes == 0) return 0;
    if (breaks(sim, socket, "read")) return -ECONNRESET;
    lane = lane_in(socket);
    if (lane->arrived == 0) return read_nothing(socket);
    if (bytes > lane->arrived) bytes = lane->arrived;
    if (!(flags & MSG_PEEK)) bytes = net_moved(sim, bytes, "read");
    ring_look(&lane->ring, parts, count, bytes);
    if (!(flags & MSG_PEEK)) lane_taken(sim, lane, bytes);
    return (ssize_t)bytes;
}

/* Why nothing can be sent now; 0: it can. */
static int check_writable(struct sim_socket *socket)
{
    bool is_unix = socket->domain == AF_UNIX;
    int r;

    if (socket->state == SOCKET_CONNECTING) return -EAGAIN;
    if (socket->state != SOCKET_CONNECTED) {
        r = is_unix ? 0 : socket_take_error(socket);
        if (r < 0) return r;
        return is_unix ? -ENOTCONN : -EPIPE;
    }
    if (is_unix && socket->write_shut) return -EPIPE;
    r = socket_take_error(socket);
    if (r < 0) return r;
    return socket->write_shut ? -EPIPE : 0;
}

static ssize_t stream_write(struct sim *sim, struct sim_file *file, const struct iovec *parts,
                            int count, const struct msghdr *message, int flags)
{
    struct sim_socket *socket = of_file(file);
    size_t bytes = parts_bytes(parts, count);
    size_t room;
    int r = check_writable(socket);

    (void)flags;
    if (r < 0) return r;
    if (message != NULL && message->msg_controllen > 0) return -EOPNOTSUPP;
    if (bytes == 0) return 0;
    if (breaks(sim, socket, "write")) return -ECONNRESET;
    room = lane_room(lane_out(socket));
    if (bytes > room) {
        socket->wants_room = true;
        bytes = room;
    }
    if (bytes == 0) return -EAGAIN;
    bytes = net_moved(sim, bytes, "write");
    r = lane_send(sim, lane_out(socket), parts, count, bytes);
    return r < 0 ? r : (ssize_t)bytes;
}

/* ---- Ending ---- */

static struct sim_socket *peer_of(const struct sim_socket *socket)
{
    return socket->link->ends[!socket->side];
}

/* A unix socket tells the other one at once. */
static void unix_shut(struct sim *sim, struct sim_socket *socket, bool reads, bool writes)
{
    struct sim_socket *peer = peer_of(socket);

    socket->read_shut |= reads;
    socket->write_shut |= writes;
    sim_file_ready(sim, &socket->file, READY_IN | READY_OUT | READY_BEYOND);
    if (peer == NULL) return;
    peer->write_shut |= reads;
    peer->read_shut |= writes;
    sim_file_ready(sim, &peer->file, READY_IN | READY_OUT | READY_BEYOND);
}

int stream_shutdown(struct sim *sim, struct sim_socket *socket, int how)
{
    bool reads = how == SHUT_RD || how == SHUT_RDWR;
    bool writes = how == SHUT_WR || how == SHUT_RDWR;

    if (!reads && !writes) return -EINVAL;
    if (socket->state != SOCKET_CONNECTED) return -ENOTCONN;
    if (socket->link->is_unix) {
        unix_shut(sim, socket, reads, writes);
        return 0;
    }
    if (socket->reset) return -ENOTCONN;
    if (reads) socket->read_shut = true;
    if (writes && !socket->write_shut) {
        socket->write_shut = true;
        lane_say(sim, lane_out(socket), SEGMENT_END);
    }
    sim_file_ready(sim, &socket->file, READY_IN | READY_OUT | READY_BEYOND);
    return 0;
}

/* The end of a connection is closed: by a reset if something is left unread, as Linux does. */
static void hang_up(struct sim *sim, struct sim_socket *socket, bool abort)
{
    bool unread = lane_in(socket)->arrived > 0;

    if (socket->link->is_unix) {
        struct sim_socket *peer = peer_of(socket);

        if (peer != NULL && (unread || abort)) peer->error = ECONNRESET;
        unix_shut(sim, socket, true, true);
    } else if (!socket->reset) {
        lane_say(sim, lane_out(socket), unread || abort ? SEGMENT_RESET : SEGMENT_END);
    }
    link_leave(sim, socket);
}

static void backlog_clear(struct sim *sim, struct sim_socket *socket, bool silently)
{
    struct list *node;

    while ((node = list_pop(&socket->backlog)) != NULL) {
        struct sim_socket *child = container_of(node, struct sim_socket, in_backlog);

        if (child->link != NULL && silently) link_leave(sim, child);
        if (child->link != NULL) hang_up(sim, child, true);
        socket_free(sim, child);
    }
    socket->backlog_count = 0;
}

static void stream_release(struct sim *sim, struct sim_file *take_file)
{
    struct sim_socket *socket = of_file(take_file);

    backlog_clear(sim, socket, false);
    if (socket->link != NULL) hang_up(sim, socket, false);
    socket_free(sim, socket);
}

void stream_cut(struct sim *sim, struct sim_socket *socket)
{
    backlog_clear(sim, socket, true);
    sim_event_stop(&socket->attempt.event);
    if (socket->link != NULL) {
        /* What waits on this side was in the memory that is lost. */
        if (lane_out(socket)->waits) lane_drop(sim, lane_out(socket));
        link_leave(sim, socket);
    }
    socket->state = SOCKET_FRESH;
    socket->bound = false;
}

const struct sim_file_kind stream_kind = {
    .name = "socket",
    .ready = stream_ready,
    .read = stream_read,
    .write = stream_write,
    .release = stream_release,
    .watchable = true,
};

/* ---- Listening ---- */

/* Two sockets may have bound a port that is to be used again, but only one can listen. */
static bool somebody_listens(const struct sim_socket *socket)
{
    list_for_each(node, &socket->net->sockets) {
        const struct sim_socket *other = container_of(node, struct sim_socket, node);

        if (other == socket || other->state != SOCKET_LISTENING || other->type != socket->type ||
            !socket_is_internet(other) || other->local.port != socket->local.port)
            continue;
        if (other->reuse_port && socket->reuse_port) continue;
        if (place_is_any(&other->local) || place_is_any(&socket->local) ||
            memcmp(other->local.ip, socket->local.ip, sizeof other->local.ip) == 0)
            return true;
    }
    return false;
}

int stream_listen(struct sim *sim, struct sim_socket *socket, int backlog)
{
    (void)sim;
    if (socket->state != SOCKET_FRESH && socket->state != SOCKET_LISTENING) return -EINVAL;
    if (socket->domain == AF_UNIX && !socket->bound) return -EINVAL;
    if (socket_is_internet(socket)) {
        int r = socket_bind_implicitly(socket, NULL);
        if (r < 0) return r;
        if (somebody_listens(socket)) return -EADDRINUSE;
    }
    socket->backlog_max = backlog < 0 || backlog > BACKLOG_MAX ? BACKLOG_MAX : (unsigned)backlog;
    socket->state = SOCKET_LISTENING;
    return 0;
}

int stream_accept(struct sim *sim, struct sim_socket *socket)
{
    struct list *node;
    struct sim_socket *child;
    int fd;

    if (socket->state != SOCKET_LISTENING) return -EINVAL;
    node = list_first(&socket->backlog);
    if (node == NULL) return -EAGAIN;
    child = container_of(node, struct sim_socket, in_backlog);
    fd = sim_fd_install(sim, &child->file);
    if (fd < 0) return fd;
    list_remove(&child->in_backlog);
    socket->backlog_count--;
    return fd;
}

/* ---- Pairs ---- */

int stream_pair(struct sim *sim, int ret_fds[2])
{
    struct sim_host *host = sim_host_running(sim);
    const struct kernel *kernel = kernel_current();
    struct sim_socket *a = socket_new(sim, host, AF_UNIX, SOCK_STREAM);
    struct sim_socket *b = socket_new(sim, host, AF_UNIX, SOCK_STREAM);
    int r = -ENOMEM;

    if (a == NULL || b == NULL) goto fail;
    ret_fds[0] = sim_fd_install(sim, &a->file);
    if (ret_fds[0] < 0) {
        r = ret_fds[0];
        goto fail;
    }
    ret_fds[1] = sim_fd_install(sim, &b->file);
    r = ret_fds[1] < 0 ? ret_fds[1] : link_open(sim, a, b);
    if (r < 0) {
        if (ret_fds[1] >= 0) {
            (void)kernel->close(kernel, ret_fds[1]);
            b = NULL;
        }
        (void)kernel->close(kernel, ret_fds[0]);
        a = NULL;
        goto fail;
    }
    a->state = SOCKET_CONNECTED;
    b->state = SOCKET_CONNECTED;
    return 0;

fail:
    if (a != NULL) socket_free(sim, a);
    if (b != NULL) socket_free(sim, b);
    return r;
}

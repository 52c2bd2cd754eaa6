/* net_datagram.c - UDP of a simulated run: each datagram is on its way by itself, and is lost,
 * doubled or overtaken by chance. Nothing passes a partition, and nothing waits for its end. */
#include <errno.h>
#include <string.h>

#include "sim/net.h"

struct datagram {
    struct list node; /* of its sender's net, then of its receiver's socket */
    struct sim_event event;
    struct sim_socket *sender; /* NULL: closed, or it has arrived */
    struct sim_net *from;
    struct sim_host *to;
    struct net_place from_place, to_place;
    size_t bytes;
    char data[];
};

static struct sim_socket *of_file(const struct sim_file *file)
{
    return (struct sim_socket *)(uintptr_t)file;
}

static bool has_room(const struct sim_socket *socket)
{
    return 2 * socket->flight_bytes <= DATAGRAM_FLIGHT_MAX;
}

static unsigned datagram_ready(struct sim *sim, const struct sim_file *file)
{
    const struct sim_socket *socket = of_file(file);

    (void)sim;
    return (socket->received_count > 0 ? READY_IN : 0U) | (has_room(socket) ? READY_OUT : 0U);
}

/* ---- On the way ---- */

static void leaves_the_way(struct sim *sim, struct datagram *datagram)
{
    struct sim_socket *sender = datagram->sender;
    bool had_room;

    list_remove(&datagram->node);
    datagram->sender = NULL;
    if (sender == NULL) return;
    had_room = has_room(sender);
    sender->flight_bytes -= datagram->bytes;
    if (!had_room && has_room(sender)) sim_file_ready(sim, &sender->file, READY_OUT);
}

static void datagram_arrives(struct sim *sim, struct datagram *datagram)
{
    struct sim_socket *socket = NULL;

    leaves_the_way(sim, datagram);
    if (net_passes(datagram->from->host, datagram->to))
        socket = socket_at(sim_host_net(datagram->to), SOCK_DGRAM, &datagram->to_place);
    if (socket == NULL || socket->received_count >= DATAGRAMS_MAX) {
        sim_free(sim, datagram);
        return;
    }
    list_add_tail(&socket->received, &datagram->node);
    socket->received_count++;
    sim_file_ready(sim, &socket->file, READY_IN);
}

static void datagram_fire(struct sim *sim, struct sim_event *event)
{
    datagram_arrives(sim, container_of(event, struct datagram, event));
}

/* One copy sets out; at_ns: when it arrives, or now. */
static int set_out(struct sim *sim, struct sim_socket *socket, const struct datagram *like,
                   const struct iovec *parts, int count, int64_t at_ns)
{
    struct datagram *datagram = sim_alloc(sim, sizeof *datagram + like->bytes);

    if (datagram == NULL) return -ENOBUFS;
    datagram->from = like->from;
    datagram->to = like->to;
    datagram->from_place = like->from_place;
    datagram->to_place = like->to_place;
    datagram->bytes = like->bytes;
    datagram->sender = socket;
    socket->flight_bytes += like->bytes;
    sim_event_init(&datagram->event, datagram_fire);
    parts_gather(parts, count, 0, datagram->data, like->bytes);
    list_add_tail(&socket->net->datagrams, &datagram->node);
    if (at_ns > sim_now_ns(sim)) {
        sim_event_start(sim, &datagram->event, at_ns);
    } else {
        datagram_arrives(sim, datagram);
    }
    return 0;
}

/* Those that are sent later, within the time that chance gives them, come first. */
static int64_t overtaken_ns(struct sim *sim)
{
    if (!sim_fault(sim, SIM_FAULT_DATAGRAM_ORDER, "datagram")) return 0;
    return (int64_t)sim_amount(sim, (uint64_t)sim_late_ms_max(sim), "late") * 1000000;
}

static ssize_t send_to(struct sim *sim, struct sim_socket *socket, const struct datagram *like,
                       const struct iovec *parts, int count)
{
    bool is_far = like->to != socket->file.host;
    int64_t at_ns = sim_now_ns(sim);
    int r = 0;

    if (sim_fault(sim, SIM_FAULT_DATAGRAM_LOSS, "datagram")) return (ssize_t)like->bytes;
    if (is_far) at_ns = net_arrival_ns(sim, "datagram");
    if (sim_fault(sim, SIM_FAULT_DATAGRAM_TWICE, "datagram"))
        r = set_out(sim, socket, like, parts, count, at_ns + overtaken_ns(sim));
    if (r == 0) r = set_out(sim, socket, like, parts, count, at_ns + overtaken_ns(sim));
    return r < 0 ? r : (ssize_t)like->bytes;
}

static ssize_t datagram_write(struct sim *sim, struct sim_file *file, const struct iovec *parts,
                              int count, const struct msghdr *message, int flags)
{
    struct sim_socket *socket = of_file(file);
    struct datagram like = {.from = socket->net, .bytes = parts_bytes(parts, count)};
    int r;

    (void)flags;
    if (message == NULL || message->msg_name == NULL) return -EDESTADDRREQ;
    r = place_from(socket->domain, message->msg_name, message->msg_namelen, &like.to_place);
    if (r < 0) return r;
    if (like.to_place.port == 0) return -EINVAL;
    if (like.bytes > DATAGRAM_BYTES_MAX) return -EMSGSIZE;
    like.to = place_host(sim, file->host, &like.to_place);
    r = socket_bind_implicitly(socket, &like.to_place);
    if (r < 0) return r;
    if (like.to == NULL) {
        const uint8_t *ip = like.to_place.ip;
        bool is_here = place_is_ipv4(&like.to_place) && ip[12] == 10 && ip[13] == 0 && ip[14] == 0;

        return is_here ? (ssize_t)like.bytes : -ENETUNREACH; /* nobody has it: it is lost */
    }
    if (socket->flight_bytes + like.bytes > DATAGRAM_FLIGHT_MAX) return -EAGAIN;
    /* From where: its own address, or the one that is used to go there. */
    like.from_place = socket->local;
    if (place_is_any(&like.to_place)) {
        memset(like.to_place.ip + 12, 0, 3);
        like.to_place.ip[15] = 1;
        if (place_is_ipv4(&like.to_place)) like.to_place.ip[12] = 127;
    }
    if (place_is_any(&socket->local)) {
        if (like.to == file->host) {
            memcpy(like.from_place.ip, like.to_place.ip, sizeof like.from_place.ip);
        } else {
            place_of_host(file->host, &like.from_place);
        }
        like.from_place.port = socket->local.port;
    }
    return send_to(sim, socket, &like, parts, count);
}

/* ---- Receiving ---- */

static ssize_t datagram_read(struct sim *sim, struct sim_file *file, const struct iovec *parts,
                             int count, struct msghdr *message, int flags)
{
    struct sim_socket *socket = of_file(file);
    struct list *node = list_first(&socket->received);
    size_t room = parts_bytes(parts, count);
    struct datagram *datagram;
    size_t bytes, copied;

    if (node == NULL) return -EAGAIN;
    datagram = container_of(node, struct datagram, node);
    bytes = datagram->bytes;
    copied = bytes < room ? bytes : room;
    parts_scatter(parts, count, 0, datagram->data, copied);
    if (message != NULL) {
        if (message->msg_name != NULL) {
            place_to(socket->domain, &datagram->from_place, message->msg_name,
                     &message->msg_namelen);
        }
        message->msg_controllen = 0;
        message->msg_flags = copied < bytes ? MSG_TRUNC : 0;
    }
    if (!(flags & MSG_PEEK)) {
        list_remove(&datagram->node);
        socket->received_count--;
        sim_free(sim, datagram);
    }
    return (ssize_t)(flags & MSG_TRUNC ? bytes : copied);
}

static void datagram_release(struct sim *sim, struct sim_file *take_file)
{
    struct sim_socket *socket = of_file(take_file);
    struct list *node;

    while ((node = list_pop(&socket->received)) != NULL)
        sim_free(sim, container_of(node, struct datagram, node));
    list_for_each(way, &socket->net->datagrams) {
        struct datagram *datagram = container_of(way, struct datagram, node);
        if (datagram->sender == socket) datagram->sender = NULL;
    }
    socket_free(sim, socket);
}

const struct sim_file_kind datagram_kind = {
    .name = "socket",
    .ready = datagram_ready,
    .read = datagram_read,
    .write = datagram_write,
    .release = datagram_release,
    .watchable = true,
};

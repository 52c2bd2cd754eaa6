/* link.c - a connection: two lanes of bytes between two sockets, which may be on two hosts. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "sim/net.h"

enum { RING_BYTES_MIN = 1024 };

/* ---- Bytes ---- */

size_t parts_bytes(const struct iovec *parts, int count)
{
    size_t bytes = 0;

    for (int i = 0; i < count; i++) bytes += parts[i].iov_len;
    return bytes;
}

void parts_scatter(const struct iovec *parts, int count, size_t offset, const void *data,
                   size_t bytes)
{
    const char *from = data;

    for (int i = 0; i < count && bytes > 0; i++) {
        size_t room = parts[i].iov_len;
        size_t n;

        if (offset >= room) {
            offset -= room;
            continue;
        }
        n = bytes < room - offset ? bytes : room - offset;
        memcpy((char *)parts[i].iov_base + offset, from, n);
        from += n;
        bytes -= n;
        offset = 0;
    }
}

void parts_gather(const struct iovec *parts, int count, size_t offset, void *data, size_t bytes)
{
    char *to = data;

    for (int i = 0; i < count && bytes > 0; i++) {
        size_t there = parts[i].iov_len;
        size_t n;

        if (offset >= there) {
            offset -= there;
            continue;
        }
        n = bytes < there - offset ? bytes : there - offset;
        memcpy(to, (const char *)parts[i].iov_base + offset, n);
        to += n;
        bytes -= n;
        offset = 0;
    }
}

int ring_reserve(struct sim *sim, struct ring *ring, size_t more)
{
    size_t capacity = ring->capacity > 0 ? ring->capacity : RING_BYTES_MIN;
    size_t first;
    char *data;

    while (capacity < ring->count + more) capacity *= 2;
    if (capacity == ring->capacity) return 0;
    data = sim_alloc(sim, capacity);
    if (data == NULL) return -ENOMEM;
    first = ring->capacity - ring->at;
    if (first > ring->count) first = ring->count;
    if (ring->count > 0) {
        memcpy(data, ring->data + ring->at, first);
        memcpy(data + first, ring->data, ring->count - first);
    }
    sim_free(sim, ring->data);
    ring->data = data;
    ring->capacity = capacity;
    ring->at = 0;
    return 0;
}

void ring_put(struct ring *ring, const struct iovec *parts, int count, size_t bytes)
{
    size_t end = (ring->at + ring->count) & (ring->capacity - 1);
    size_t first = ring->capacity - end;

    assert(ring->count + bytes <= ring->capacity);
    if (first > bytes) first = bytes;
    parts_gather(parts, count, 0, ring->data + end, first);
    parts_gather(parts, count, first, ring->data, bytes - first);
    ring->count += bytes;
}

void ring_look(const struct ring *ring, const struct iovec *parts, int count, size_t bytes)
{
    size_t first = ring->capacity - ring->at;

    assert(bytes <= ring->count);
    if (first > bytes) first = bytes;
    parts_scatter(parts, count, 0, ring->data + ring->at, first);
    parts_scatter(parts, count, first, ring->data, bytes - first);
}

void ring_drop(struct ring *ring, size_t bytes)
{
    assert(bytes <= ring->count);
    ring->count -= bytes;
    ring->at = ring->count > 0 ? (ring->at + bytes) & (ring->capacity - 1) : 0;
}

void ring_deinit(struct sim *sim, struct ring *ring)
{
    sim_free(sim, ring->data);
    ring->data = NULL;
    ring->capacity = 0;
}

/* ---- The ends ---- */

void socket_reset(struct sim *sim, struct sim_socket *socket)
{
    if (socket->reset) return;
    socket->reset = true;
    socket->read_shut = true;
    socket->write_shut = true;
    /* Who has seen the end of the other direction already learns at its next write. */
    socket->error = socket->fin_seen ? EPIPE : ECONNRESET;
    lane_drop(sim, lane_out(socket));
    lane_out(socket)->ended = true;
    sim_file_ready(sim, &socket->file, READY_IN | READY_OUT | READY_BEYOND);
}

static void link_free_if_done(struct sim *sim, struct link *link)
{
    if (link->busy || link->ends[0] != NULL || link->ends[1] != NULL) return;
    for (unsigned i = 0; i < 2; i++) {
        if (!list_empty(&link->lanes[i].segments)) return;
    }
    for (unsigned i = 0; i < 2; i++) {
        list_remove(&link->lanes[i].node);
        ring_deinit(sim, &link->lanes[i].ring);
    }
    sim_free(sim, link);
}

void link_leave(struct sim *sim, struct sim_socket *socket)
{
    struct link *link = socket->link;
    struct lane *in = lane_in(socket);

    link->ends[socket->side] = NULL;
    ring_drop(&in->ring, in->arrived);
    in->arrived = 0;
    socket->link = NULL;
    link_free_if_done(sim, link);
}

/* ---- The way ---- */

static bool is_far(const struct lane *lane)
{
    return lane->link->hosts[0] != lane->link->hosts[1];
}

static bool lane_passes(const struct lane *lane)
{
    return net_passes(lane->link->hosts[lane->from], lane->link->hosts[!lane->from]);
}

static void data_arrives(struct sim *sim, struct lane *lane, size_t bytes)
{
    struct sim_socket *to = lane->link->ends[!lane->from];

    if (to != NULL && !to->reset) {
        lane->arrived += bytes;
        sim_file_ready(sim, &to->file, READY_IN);
        return;
    }
    /* It came after an end of its reader, in front of it is nothing. */
    assert(lane->arrived == 0 || to != NULL);
    if (to == NULL) {
        ring_drop(&lane->ring, bytes);
        lane_say(sim, &lane->link->lanes[!lane->from], SEGMENT_RESET);
    }
}

static void segment_arrives(struct sim *sim, struct lane *lane, const struct segment *segment)
{
    struct sim_socket *to = lane->link->ends[!lane->from];

    if (to != NULL && to->state == SOCKET_CONNECTING) {
        /* It overtakes the answer to the attempt: so there is one. */
        if (segment->what == SEGMENT_RESET) {
            connect_failed(sim, to, ECONNREFUSED);
            return;
        }
        connect_made(sim, to);
    }
    switch (segment->what) {
    case SEGMENT_DATA: data_arrives(sim, lane, segment->bytes); break;
    case SEGMENT_END:
        if (to == NULL || to->reset) break;
        to->fin_seen = true;
        sim_file_ready(sim, &to->file, READY_IN | READY_BEYOND);
        break;
    case SEGMENT_RESET:
        if (to != NULL) socket_reset(sim, to);
        break;
    }
}

/* All that is due, as far as it passes. */
static void lane_deliver(struct sim *sim, struct lane *lane)
{
    struct list *node;

    while ((node = list_first(&lane->segments)) != NULL) {
        struct segment *segment = container_of(node, struct segment, node);

        if (segment->at_ns > sim_now_ns(sim)) {
            sim_event_start(sim, &lane->arrival, segment->at_ns);
            return;
        }
        if (!lane_passes(lane)) {
            lane->waits = true;
            return;
        }
        list_remove(&segment->node);
        segment_arrives(sim, lane, segment);
        sim_free(sim, segment);
    }
}

static void lane_arrival(struct sim *sim, struct sim_event *event)
{
    struct lane *lane = container_of(event, struct lane, arrival);
    struct link *link = lane->link;

    link->busy = true;
    lane_deliver(sim, lane);
    link->busy = false;
    link_free_if_done(sim, link);
}

/* Something was taken out of what the socket has sent. */
static void give_room(struct sim *sim, struct sim_socket *from)
{
    if (from == NULL || !from->wants_room || !(stream_ready_bits(from) & READY_OUT)) return;
    from->wants_room = false;
    sim_file_ready(sim, &from->file, READY_OUT);
}

void lane_go_on(struct sim *sim, struct lane *lane)
{
    struct sim_socket *from = lane->link->ends[lane->from];

    if (!lane_passes(lane)) return;
    if (lane->unacknowledged > 0) {
        lane->unacknowledged = 0;
        give_room(sim, from);
    }
    if (!lane->waits) return;
    lane->waits = false;
    sim_event_start(sim, &lane->arrival, sim_now_ns(sim) + NET_LATENCY_NS);
}

void lane_drop(struct sim *sim, struct lane *lane)
{
    struct list *node;

    sim_event_stop(&lane->arrival);
    lane->waits = false;
    while ((node = list_pop(&lane->segments)) != NULL)
        sim_free(sim, container_of(node, struct segment, node));
    lane->ring.count = lane->arrived; /* the rest was on its way */
}

/* On its way in `lane`; what is there in the same moment goes as one. */
static int lane_send_segment(struct sim *sim, struct lane *lane, enum segment_what what,
                             size_t bytes)
{
    bool first = list_empty(&lane->segments);
    struct segment *last = container_of(lane->segments.prev, struct segment, node);
    int64_t at_ns = sim_now_ns(sim) + NET_LATENCY_NS;
    struct segment *segment;

    if (what == SEGMENT_DATA) at_ns = net_arrival_ns(sim, "data");
    if (!first && last->at_ns > at_ns) at_ns = last->at_ns;
    if (!first && last->at_ns == at_ns && last->what == what && what == SEGMENT_DATA) {
        last->bytes += bytes;
        return 0;
    }
    segment = sim_alloc(sim, sizeof *segment);
    if (segment == NULL) return -ENOMEM;
    segment->what = what;
    segment->bytes = bytes;
    segment->at_ns = at_ns;
    list_add_tail(&lane->segments, &segment->node);
    if (first) sim_event_start(sim, &lane->arrival, at_ns);
    return 0;
}

size_t lane_room(const struct lane *lane)
{
    return LANE_BYTES_MAX - lane->ring.count - lane->unacknowledged;
}

int lane_send(struct sim *sim, struct lane *lane, const struct iovec *parts, int count,
              size_t bytes)
{
    int r = ring_reserve(sim, &lane->ring, bytes);

    if (r == 0 && is_far(lane)) r = lane_send_segment(sim, lane, SEGMENT_DATA, bytes);
    if (r < 0) return r;
    ring_put(&lane->ring, parts, count, bytes);
    if (!is_far(lane)) data_arrives(sim, lane, bytes);
    return 0;
}

void lane_say(struct sim *sim, struct lane *lane, enum segment_what what)
{
    const struct segment segment = {.what = what};

    if (lane->ended && what == SEGMENT_END) return;
    lane->ended = true;
    if (!is_far(lane)) {
        segment_arrives(sim, lane, &segment);
    } else if (lane_send_segment(sim, lane, what, 0) < 0) {
        sim_fail(sim, "no memory for the simulated network");
    }
}

void lane_taken(struct sim *sim, struct lane *lane, size_t bytes)
{
    struct sim_socket *from = lane->link->ends[lane->from];

    ring_drop(&lane->ring, bytes);
    lane->arrived -= bytes;
    if (is_far(lane) && !lane_passes(lane)) {
        lane->unacknowledged += bytes;
        return;
    }
    give_room(sim, from);
}

int link_open(struct sim *sim, struct sim_socket *a, struct sim_socket *b)
{
    struct sim_socket *ends[2] = {a, b};
    struct link *link = sim_alloc(sim, sizeof *link);

    if (link == NULL) return -ENOMEM;
    link->is_unix = a->domain == AF_UNIX;
    for (unsigned i = 0; i < 2; i++) {
        struct lane *lane = &link->lanes[i];

        link->ends[i] = ends[i];
        link->hosts[i] = ends[i]->file.host;
        lane->link = link;
        lane->from = i;
        list_init(&lane->segments);
        sim_event_init(&lane->arrival, lane_arrival);
        list_add_tail(&ends[i]->net->lanes, &lane->node);
        ends[i]->link = link;
        ends[i]->side = i;
    }
    return 0;
}

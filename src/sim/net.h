/* net.h - what the files of the simulated network share.
 *
 * A host has one `struct sim_net`: its descriptors, its sockets, and what it has sent that is on
 * its way. A connection is a `struct link` with two ends and two lanes; lane `s` carries what
 * end `s` sends. A lane is one buffer of at most LANE_BYTES_MAX: first what has arrived and was
 * not read yet, then what is on its way, in segments that arrive in their order. An end that is
 * closed leaves the link; the link stays until its lanes have nothing on the way.
 *
 * Invariants: within a host everything arrives at once, so only lanes between hosts have
 * segments; lane->arrived <= lane->count; a socket without a link is not connected.
 * Threads: as sim.h.
 */
#ifndef WEIR_SIM_NET_H
#define WEIR_SIM_NET_H

#include <netinet/in.h>
#include <sys/un.h>

#include "sim/sim.h"

#define NET_LATENCY_NS INT64_C(50000) /* from host to host, one way */
#define NET_SECOND_NS INT64_C(1000000000)

enum {
    LANE_BYTES_MAX = 64 * 1024,
    DATAGRAMS_MAX = 64,               /* that wait in a socket; more are dropped */
    DATAGRAM_BYTES_MAX = 65507,       /* what fits into a packet of IPv4 */
    DATAGRAM_FLIGHT_MAX = 256 * 1024, /* bytes of one socket on their way */
    BACKLOG_MAX = 4096,               /* as net.core.somaxconn */
};

/* ---- A host's part ---- */

struct sim_fds {
    struct sim_file **files; /* NULL until the first descriptor */
    unsigned capacity;
    unsigned lowest; /* no number below it is free */
    unsigned open;
};

struct sim_net {
    struct sim_host *host;
    struct sim_fds fds;
    struct list sockets;   /* all, by sim_socket.node */
    struct list lanes;     /* what its sockets send, by lane.node */
    struct list datagrams; /* on their way from here */
    uint16_t port_next;    /* to be tried for a socket that did not ask for one */
    unsigned spread;       /* connections to ports that several sockets share: whose turn it is */
    bool down;             /* the power is off: what comes is not answered */
};

/* The host has power (again). */
void net_up(struct sim *sim, struct sim_net *net);

/* ---- Addresses ---- */

/* IPv4 addresses are kept as IPv6 has them (::ffff:a.b.c.d). */
struct net_place {
    uint8_t ip[16];
    uint16_t port;
};

struct net_name {
    char bytes[sizeof(((struct sockaddr_un *)0)->sun_path) + 1]; /* terminated */
    unsigned length; /* 0: none. An abstract one begins with a zero byte */
    int64_t file;    /* number of the socket's file on the disk; 0: abstract */
};

int place_from(int domain, const struct sockaddr *address, socklen_t bytes,
               struct net_place *ret_place);
void place_to(int domain, const struct net_place *place, struct sockaddr *address,
              socklen_t *bytes);
bool place_is_any(const struct net_place *place);
bool place_is_loopback(const struct net_place *place);
bool place_is_ipv4(const struct net_place *place);
/* The host it is on, seen from `from`; NULL: none. */
struct sim_host *place_host(struct sim *sim, struct sim_host *from, const struct net_place *place);
void place_of_host(const struct sim_host *host, struct net_place *ret_place); /* port 0 */
int name_from(const struct sockaddr *address, socklen_t bytes, struct net_name *ret_name);
void name_to(const struct net_name *name, struct sockaddr *address, socklen_t *bytes);

/* ---- Sockets ---- */

enum socket_state {
    SOCKET_FRESH,      /* not connected, or not any more */
    SOCKET_LISTENING,  /* has a backlog */
    SOCKET_CONNECTING, /* `attempt` is under way */
    SOCKET_CONNECTED,  /* has a link, until it is closed; also when it was reset */
};

/* An attempt to connect. */
struct attempt {
    struct sim_event event; /* the SYN arrives, or is sent again, or the answer arrives */
    int64_t began_ns;
    unsigned tries;
    bool waits;    /* nothing passes: to be sent again when something does */
    bool answered; /* the answer is on its way: `error`, or 0 */
    int error;
    bool untold; /* it is over, and connect has not been asked about it */
};

struct sim_socket {
    struct sim_file file; /* first */
    struct sim_net *net;
    struct list node;
    int domain;
    int type;
    enum socket_state state;
    int error; /* as a positive number; SO_ERROR, the next read or write take it */
    bool bound, reuse_address, reuse_port, ipv6_only, no_delay, keep_alive;
    struct net_place local, remote;
    struct net_name name, remote_name;

    /* Connected. */
    struct link *link;
    unsigned side;
    bool fin_seen;   /* TCP: the peer has ended its direction, and that has arrived */
    bool read_shut;  /* nothing more is to be read than what is there */
    bool write_shut; /* nothing more can be sent */
    bool reset;      /* the connection is gone */
    bool wants_room; /* a write found too little */
    struct attempt attempt;

    /* Listening; or in such a backlog. */
    struct list backlog;
    unsigned backlog_count, backlog_max;
    struct list in_backlog;

    /* Datagrams. */
    struct list received;
    unsigned received_count;
    size_t flight_bytes;
};

extern const struct sim_file_kind stream_kind;
extern const struct sim_file_kind datagram_kind;

struct sim_socket *socket_new(struct sim *sim, struct sim_host *host, int domain, int type);
void socket_free(struct sim *sim, struct sim_socket *take_socket); /* out of every list */
/* NULL, and -EBADF or -ENOTSOCK. */
struct sim_socket *socket_of(struct sim *sim, int fd, int *ret_error);
bool socket_is_internet(const struct sim_socket *socket);
int socket_take_error(struct sim_socket *socket); /* -errno, or 0 */
/* A port that no socket of this type has; 0: there is none. */
uint16_t socket_free_port(struct sim_net *net, int type);
/* Before something is sent: an address of its own, and a port. */
int socket_bind_implicitly(struct sim_socket *socket, const struct net_place *towards);
/* Who has (or listens at) the place on that host; NULL: nobody. */
struct sim_socket *socket_at(struct sim_net *net, int type, const struct net_place *place);

/* ---- What is on its way ---- */

/* When what is sent now between the two arrives, by chance later. */
int64_t net_arrival_ns(struct sim *sim, const char *about);
/* Whether what is sent from one arrives at the other now. */
bool net_passes(const struct sim_host *from, const struct sim_host *to);
/* How many bytes a read or write moves that could move `bytes`; at least 1. */
size_t net_moved(struct sim *sim, size_t bytes, const char *about);

size_t parts_bytes(const struct iovec *parts, int count);
/* The `bytes` at `offset` of the parts, out of or into `data`. */
void parts_scatter(const struct iovec *parts, int count, size_t offset, const void *data,
                   size_t bytes);
void parts_gather(const struct iovec *parts, int count, size_t offset, void *data, size_t bytes);

/* ---- Rings of bytes: of lanes and pipes ---- */

struct ring {
    char *data;
    size_t capacity; /* power of 2, or 0; grows with what is put in */
    size_t at;
    size_t count;
};

int ring_reserve(struct sim *sim, struct ring *ring, size_t more);
void ring_put(struct ring *ring, const struct iovec *parts, int count, size_t bytes);
/* Copy the first `bytes` out; then drop them, or not. */
void ring_look(const struct ring *ring, const struct iovec *parts, int count, size_t bytes);
void ring_drop(struct ring *ring, size_t bytes);
void ring_deinit(struct sim *sim, struct ring *ring);

/* ---- Connections: link.c ---- */

enum segment_what { SEGMENT_DATA, SEGMENT_END, SEGMENT_RESET };

struct segment {
    struct list node;
    enum segment_what what;
    size_t bytes;
    int64_t at_ns;
};

struct lane {
    struct link *link;
    unsigned from;
    struct list node; /* in its sender's net */
    struct ring ring;
    size_t arrived;
    size_t unacknowledged; /* read, but the sender cannot hear of it */
    struct list segments;
    struct sim_event arrival; /* of the first */
    bool waits;               /* nothing passes */
    bool ended;               /* the end or a reset was sent */
};

struct link {
    struct lane lanes[2];
    struct sim_socket *ends[2]; /* NULL: closed */
    struct sim_host *hosts[2];
    bool is_unix;
    bool busy; /* something arrives: it is not freed before that is done */
};

/* Connect the two; they are in no link. */
int link_open(struct sim *sim, struct sim_socket *a, struct sim_socket *b);
/* The end leaves, silently; frees the link if nothing is left of it. */
void link_leave(struct sim *sim, struct sim_socket *socket);
size_t lane_room(const struct lane *lane);
/* Say something else than data. */
void lane_say(struct sim *sim, struct lane *lane, enum segment_what what);
/* `bytes` of the parts; there is room for them. */
int lane_send(struct sim *sim, struct lane *lane, const struct iovec *parts, int count,
              size_t bytes);
/* So much of what has arrived was read. */
void lane_taken(struct sim *sim, struct lane *lane, size_t bytes);
void lane_go_on(struct sim *sim, struct lane *lane); /* if it waits, and something passes */
void lane_drop(struct sim *sim, struct lane *lane);  /* what is on its way never arrives */
static inline struct lane *lane_in(const struct sim_socket *socket)
{
    return &socket->link->lanes[!socket->side];
}
static inline struct lane *lane_out(const struct sim_socket *socket)
{
    return &socket->link->lanes[socket->side];
}
/* The connection is gone for this end. */
void socket_reset(struct sim *sim, struct sim_socket *socket);

/* ---- Streams: net_stream.c; attempts to connect: net_connect.c ---- */

void stream_cut(struct sim *sim, struct sim_socket *socket); /* the host is gone */
int stream_shutdown(struct sim *sim, struct sim_socket *socket, int how);
int stream_listen(struct sim *sim, struct sim_socket *socket, int backlog);
int stream_accept(struct sim *sim, struct sim_socket *socket);
int stream_pair(struct sim *sim, int ret_fds[2]);
unsigned stream_ready_bits(const struct sim_socket *socket);

int connect_internet(struct sim *sim, struct sim_socket *socket, const struct net_place *to);
int connect_unix(struct sim *sim, struct sim_socket *socket, const struct net_name *to);
void connect_made(struct sim *sim, struct sim_socket *socket); /* of an attempt: it succeeded */
void connect_failed(struct sim *sim, struct sim_socket *socket, int error);
void connect_go_on(struct sim *sim, struct sim_socket *socket); /* if it waits, and it passes */
void connect_init(struct sim_socket *socket);

/* ---- Names: net_names.c ---- */

void names_fill_table(struct kernel *table);

/* ---- Queues and pipes: queue.c, pipe.c ---- */

void queue_fill_table(struct kernel *table);
/* No queue watches that descriptor of the file any more. */
void queue_forget(struct sim *sim, struct sim_file *file, int fd);
int pipe_open(struct sim *sim, int ret_fds[2]);

#endif

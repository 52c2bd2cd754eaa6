/* net.h - TCP, unix and datagram sockets, and pipes.
 *
 * Every call that can wait honours the deadline in force and cancellation, and
 * is refused (WEIR_ENODEADLINE) when no deadline is in force and the task is not
 * inside WEIR_NO_DEADLINE. Each call is tried first and parks only when the
 * kernel says "not yet".
 *
 * Addresses are text: "tcp:127.0.0.1:8080", "tcp:[::1]:0", "unix:/run/x.sock",
 * "unix:@abstract", "udp:127.0.0.1:53". Hosts are numeric (a zone of IPv6 too:
 * "tcp:[fe80::1%2]:80"); names are looked up with weir_resolve.
 *
 * TCP connections have TCP_NODELAY set: what is written is sent, so small pieces
 * are better gathered (weir_conn_writev). Descriptors passed over a unix socket
 * are not received, and are closed by the kernel.
 *
 * Invariants: at most one task reads and one writes a connection at a time (a
 * second gets WEIR_EINUSE); after WEIR_ECANCELED or WEIR_ETIMEDOUT the connection
 * is as it was before the call, and still usable.
 * Threads: any task of the runtime, on any worker. A connection, a listener or a
 * datagram socket is closed by one owner, on a worker of its runtime, when no call on
 * it is in progress. Anything else is misuse and aborts with a sentence, and so does any
 * call on one that is closed, whatever was opened after it: the pointers are handles,
 * which are looked up and never followed.
 */
#ifndef WEIR_NET_H
#define WEIR_NET_H

#include <sys/socket.h>
#include <sys/uio.h>
#include <weir/defs.h>
#include <weir/error.h>

WEIR_BEGIN

/* ---- Addresses ---- */

#define WEIR_ADDRESS_TEXT_MAX 128

/* How bytes travel to an address. */
enum weir_transport {
    WEIR_TRANSPORT_NONE = 0,
    WEIR_TCP,
    WEIR_UDP,
    WEIR_UNIX,
};

/* A parsed address: what the kernel takes, and which kind of socket it is for. */
typedef struct weir_address {
    enum weir_transport transport;
    socklen_t bytes;
    struct sockaddr_storage storage;
} weir_address;

/* weir_address_parse - text to address. Errors: WEIR_EREFUSED with a sentence in
 * weir_why. Never suspends. Any thread. */
WEIR_API WEIR_MUST_USE int weir_address_parse(const char *text, weir_address *ret_address);

/* weir_address_format - address to text, cut to fit, always terminated; returns the
 * length of what was written. WEIR_ADDRESS_TEXT_MAX is enough for any. A unix socket
 * without a name is "unix:"; control characters in a name are shown as '?'. */
WEIR_API size_t weir_address_format(const weir_address *address, char *text, size_t text_bytes);

/* weir_resolve - look `host` up (getaddrinfo, in the bounded name executor) and
 * give up to `count_max` addresses (never more than 64) with `port`, for WEIR_TCP or
 * WEIR_UDP. Returns how many, at least one. A numeric host is not looked up.
 * Cancel: nothing moved; a look-up that is running becomes an orphan.
 * Errors: WEIR_ENONAME, WEIR_ENAMESERVER, WEIR_EOVERLOAD (queue full), -ENOMEM. */
WEIR_SUSPENDS int weir_resolve(const char *host, uint16_t port, enum weir_transport transport,
                               weir_address *addresses, int count_max);

/* ---- Connections: TCP, unix, pipes ---- */

typedef struct weir_conn weir_conn;

/* weir_connect - a connection to `address` (text). Cancel: outcome unknown: the
 * peer may have accepted; here the attempt is closed and nothing is left.
 * Errors: the kernel's (-ECONNREFUSED, -EMFILE), WEIR_EREFUSED (address). */
WEIR_SUSPENDS int weir_connect(const char *address, weir_conn **ret_conn);

/* weir_connect_to - the same for a parsed address. Cancel and errors as
 * weir_connect. */
WEIR_SUSPENDS int weir_connect_to(const weir_address *address, weir_conn **ret_conn);

/* weir_conn_from_fd - adopt a socket, pipe or other pollable descriptor; it is
 * made non-blocking. Errors: -EPERM for descriptors that cannot be polled (regular
 * files), -EEXIST for one that a connection of this worker has already. Never
 * suspends. */
WEIR_API WEIR_MUST_USE int weir_conn_from_fd(int take_fd, weir_conn **ret_conn);

/* weir_pipe - a pipe; the ends are connections. weir_socketpair - two connected
 * unix sockets. Errors: -EMFILE, -ENFILE, -ENOMEM. Never suspend. */
WEIR_API WEIR_MUST_USE int weir_pipe(weir_conn **ret_reader, weir_conn **ret_writer);
WEIR_API WEIR_MUST_USE int weir_socketpair(weir_conn **ret_a, weir_conn **ret_b);

/* weir_conn_read - at least one byte, at most `bytes`; 0 at the end of the stream
 * (or if `bytes` is 0). weir_conn_readv - into several parts, at most IOV_MAX.
 * Cancel: nothing moved. Errors: the kernel's (-ECONNRESET), WEIR_EINUSE. */
WEIR_SUSPENDS ssize_t weir_conn_read(weir_conn *conn, void *data, size_t bytes);
WEIR_SUSPENDS ssize_t weir_conn_readv(weir_conn *conn, const struct iovec *parts, int parts_count);

/* weir_conn_write - at least one byte, at most `bytes` (0 if `bytes` is 0).
 * weir_conn_writev - from several parts, at most IOV_MAX.
 * Cancel: nothing moved. Errors: the kernel's (-EPIPE, -ECONNRESET; no signal),
 * WEIR_EINUSE. */
WEIR_SUSPENDS ssize_t weir_conn_write(weir_conn *conn, const void *data, size_t bytes);
WEIR_SUSPENDS ssize_t weir_conn_writev(weir_conn *conn, const struct iovec *parts, int parts_count);

/* weir_conn_send_all - all bytes, or an error. Cancel: progress returned:
 * `ret_sent` (may be NULL) is always written and says how many bytes the kernel
 * took, also on error. Returns 0 or an error. */
WEIR_SUSPENDS int weir_conn_send_all(weir_conn *conn, const void *data, size_t bytes,
                                     size_t *ret_sent);

/* weir_conn_read_exact - exactly `bytes`. Cancel: progress returned in
 * `ret_received` (may be NULL). Returns 0, WEIR_ECLOSED if the stream ended before
 * that, or an error. */
WEIR_SUSPENDS int weir_conn_read_exact(weir_conn *conn, void *data, size_t bytes,
                                       size_t *ret_received);

/* weir_conn_shutdown - `how` as in shutdown(2): SHUT_WR tells the peer there is no
 * more. For the writing end of a pipe use close. Errors: -ENOTSOCK (a pipe), -ENOTCONN.
 * Never suspends. */
WEIR_API int weir_conn_shutdown(weir_conn *conn, int how);

/* weir_conn_close - close and free. Takes NULL. Never suspends. A call that is in
 * progress on it in another task is misuse and aborts with a sentence. What was written
 * and not yet taken by the peer stays with the system, which goes on sending it, for
 * minutes if the peer takes nothing: the option TCP_USER_TIMEOUT (weir_conn_fd) bounds that. */
WEIR_API void weir_conn_close(weir_conn *conn);

/* weir_conn_fd - the descriptor, still owned by the connection. */
WEIR_API int weir_conn_fd(const weir_conn *conn);

/* weir_conn_local / weir_conn_peer - addresses of the two sides. Errors: -ENOTSOCK
 * (a pipe), -ENOTCONN, -EAFNOSUPPORT. Never suspend. */
WEIR_API int weir_conn_local(const weir_conn *conn, weir_address *ret_address);
WEIR_API int weir_conn_peer(const weir_conn *conn, weir_address *ret_address);

/* ---- Waiting without a task ----
 *
 * An idle connection costs a struct, not a stack: the scope owns the wait, and
 * `on_ready` is called exactly once, on a worker, with 0 (readable),
 * WEIR_ETIMEDOUT (idle_ms passed), WEIR_ECANCELED (the scope is cancelled, or is
 * closed and all its tasks have ended), WEIR_ESTOPPING, or the kernel's error if the
 * connection cannot be watched any more. It must not suspend; usually it spawns a
 * task that takes the connection, or closes it. Until then nobody may read or close
 * the connection; it may be written. */
typedef void (*weir_idle_fn)(weir_conn *conn, int status, void *keep_arg);

typedef struct weir_idle_spec {
    weir_idle_fn on_ready; /* must be said */
    void *keep_arg;
    int64_t idle_ms;         /* must be said; WEIR_FOREVER needs no_deadline */
    const char *no_deadline; /* the reason why it may wait for ever */
} weir_idle_spec;

/* weir_idle_spec_init - set every member to "not said". */
static inline void weir_idle_spec_init(weir_idle_spec *spec)
{
    memset(spec, 0, sizeof *spec);
}

/* weir_conn_idle(scope, conn, &spec) - hand the connection's reading side to the
 * wait until `on_ready` is called, on the calling worker. Errors (then `on_ready` is
 * not called): WEIR_EREFUSED, WEIR_EINUSE (a task is reading, or a task of another
 * worker waits to write), WEIR_ECANCELED, WEIR_ESTOPPING, -ENOMEM. Never suspends. */
WEIR_API WEIR_MUST_USE int weir_conn_idle_sized(weir_scope *scope, weir_conn *conn,
                                                size_t spec_bytes, const weir_idle_spec *spec);
#define weir_conn_idle(scope, conn, ...) \
    weir_conn_idle_sized((scope), (conn), sizeof(weir_idle_spec), __VA_ARGS__)

/* ---- Listeners ---- */

typedef struct weir_listener weir_listener;

#define WEIR_BACKLOG_DEFAULT 1024

typedef struct weir_listen_spec {
    const char *address; /* must be said: "tcp:…" or "unix:…" */
    int backlog;         /* WEIR_BACKLOG_DEFAULT */
    bool per_worker;     /* TCP: one socket per worker (SO_REUSEPORT); weir_accept uses the
                            one of the worker it runs on, so every worker needs a task that
                            accepts */
} weir_listen_spec;

/* weir_listen_spec_init - set every member to "not said". */
static inline void weir_listen_spec_init(weir_listen_spec *spec)
{
    memset(spec, 0, sizeof *spec);
}

/* weir_listen(&spec, &listener) - bind and listen. A stale unix socket file (nobody
 * listens behind it) is replaced; any other file is left alone. While a unix listener
 * with a file is open it holds a lock on "<path>.lock" beside it, which another one on
 * the same path cannot get: -EADDRINUSE, also before the first one listens. A killed
 * process leaves that file behind, unlocked, which does no harm. (A server that is not
 * a weir_listen takes no such lock: its socket must not be bound and left without
 * listening.) Errors: the kernel's (-EADDRINUSE, -EACCES), WEIR_EREFUSED. Never
 * suspends. */
WEIR_API WEIR_MUST_USE int weir_listen_sized(size_t spec_bytes, const weir_listen_spec *spec,
                                             weir_listener **ret_listener);
#define weir_listen(...) weir_listen_sized(sizeof(weir_listen_spec), __VA_ARGS__)

/* weir_listener_from_fd - adopt a socket that listens already: one that was inherited (socket
 * activation). It is made non-blocking, and TCP_NODELAY is set on TCP; the file of a unix
 * socket stays when it is closed. One socket for all workers. Errors: WEIR_EREFUSED (it is no
 * stream socket of TCP or unix, or does not listen), the kernel's (-EBADF). Never suspends. */
WEIR_API WEIR_MUST_USE int weir_listener_from_fd(int take_fd, weir_listener **ret_listener);

/* weir_accept - the next connection. Takes on new work: WEIR_ESTOPPING once the
 * scope is stopping. Cancel: nothing moved. Errors: -EMFILE, -ENFILE, -ENOBUFS,
 * -ENOMEM (the connection stays in the backlog, so pause before trying again),
 * WEIR_EINUSE. */
WEIR_SUSPENDS int weir_accept(weir_listener *listener, weir_conn **ret_conn);

/* weir_listener_address - where it listens (the real port for port 0). Returns 0 or the
 * kernel's error. Never suspends. */
WEIR_API int weir_listener_address(const weir_listener *listener, weir_address *ret_address);

/* weir_listener_close - stop listening and free; a unix socket's file is removed, if
 * it is still the one that was made. Takes NULL. Never suspends. A task that accepts
 * on it is misuse and aborts with a sentence. */
WEIR_API void weir_listener_close(weir_listener *listener);

/* ---- Datagrams ---- */

typedef struct weir_udp weir_udp;

/* weir_udp_open - bound to `address` (text, "udp:0.0.0.0:0" for any). Errors: the
 * kernel's (-EADDRINUSE, -EMFILE), WEIR_EREFUSED (address). Never suspends. */
WEIR_API WEIR_MUST_USE int weir_udp_open(const char *address, weir_udp **ret_udp);

/* weir_udp_send - one datagram to `to`. Any number of tasks may send and receive,
 * but only one may have to wait in each direction: a second gets WEIR_EINUSE.
 * Cancel: nothing moved. Errors: the kernel's (-EMSGSIZE), WEIR_EREFUSED. */
WEIR_SUSPENDS ssize_t weir_udp_send(weir_udp *udp, const weir_address *to, const void *data,
                                    size_t bytes);

/* weir_udp_recv - one datagram; `ret_from` may be NULL. A datagram longer than
 * `bytes` is cut and its true length returned. Cancel: nothing moved.
 * Errors: the kernel's (-ECONNREFUSED: nobody took what was sent before), WEIR_EINUSE. */
WEIR_SUSPENDS ssize_t weir_udp_recv(weir_udp *udp, void *data, size_t bytes,
                                    weir_address *ret_from);

/* weir_udp_local - the address it is bound to. Returns 0 or the kernel's error. Never
 * suspends. */
WEIR_API int weir_udp_local(const weir_udp *udp, weir_address *ret_address);

/* weir_udp_close - close and free. Takes NULL. Never suspends. A call that is in
 * progress on it in another task is misuse and aborts with a sentence. */
WEIR_API void weir_udp_close(weir_udp *udp);

WEIR_END

#endif

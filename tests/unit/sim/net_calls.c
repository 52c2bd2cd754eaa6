/* net_calls.c - lists of calls on sockets and pipes, for any kernel's table. */
#include "unit/sim/net_calls.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "harness/test.h"

enum { BUFFER_BYTES = 64 * 1024, WAIT_EVENTS = 8 };

__attribute__((format(printf, 2, 3))) static void say(struct net_calls *calls, const char *format,
                                                      ...)
{
    size_t room = sizeof calls->said - calls->length;
    va_list arguments;
    int n;

    va_start(arguments, format);
    n = vsnprintf(calls->said + calls->length, room, format, arguments);
    va_end(arguments);
    CHECK(n >= 0 && (size_t)n < room);
    calls->length += (size_t)n;
}

/* What a call answered, with the call itself. */
#define SAY(expression) say(calls, "%s = %lld\n", #expression, (long long)(expression))

/* ---- Short forms of the calls ---- */

static int tcp(struct net_calls *calls)
{
    return calls->kernel->socket(calls->kernel, AF_INET, SOCK_STREAM, 0);
}

static int unix_stream(struct net_calls *calls)
{
    return calls->kernel->socket(calls->kernel, AF_UNIX, SOCK_STREAM, 0);
}

static struct sockaddr_in loopback(uint16_t port)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};

    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return in;
}

static int bind_to(struct net_calls *calls, int fd, uint16_t port)
{
    struct sockaddr_in in = loopback(port);
    return calls->kernel->bind(calls->kernel, fd, (struct sockaddr *)&in, sizeof in);
}

static int connect_to(struct net_calls *calls, int fd, uint16_t port)
{
    struct sockaddr_in in = loopback(port);
    return calls->kernel->connect(calls->kernel, fd, (struct sockaddr *)&in, sizeof in);
}

static uint16_t port_of(struct net_calls *calls, int fd)
{
    struct sockaddr_in in = {0};
    socklen_t bytes = sizeof in;

    CHECK_OK(calls->kernel->getsockname(calls->kernel, fd, (struct sockaddr *)&in, &bytes));
    return ntohs(in.sin_port);
}

static socklen_t abstract_name(struct sockaddr_un *un, const char *name)
{
    memset(un, 0, sizeof *un);
    un->sun_family = AF_UNIX;
    (void)snprintf(un->sun_path + 1, sizeof un->sun_path - 1, "%s", name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

static int bind_name(struct net_calls *calls, int fd, const char *name)
{
    struct sockaddr_un un;
    socklen_t bytes = abstract_name(&un, name);
    return calls->kernel->bind(calls->kernel, fd, (struct sockaddr *)&un, bytes);
}

static int connect_name(struct net_calls *calls, int fd, const char *name)
{
    struct sockaddr_un un;
    socklen_t bytes = abstract_name(&un, name);
    return calls->kernel->connect(calls->kernel, fd, (struct sockaddr *)&un, bytes);
}

static int listen_on(struct net_calls *calls, int fd, int backlog)
{
    return calls->kernel->listen(calls->kernel, fd, backlog);
}

static int accept_from(struct net_calls *calls, int fd)
{
    return calls->kernel->accept(calls->kernel, fd);
}

static ssize_t recv_some(struct net_calls *calls, int fd, size_t bytes, int flags)
{
    static char data[4 * BUFFER_BYTES];
    return calls->kernel->recv(calls->kernel, fd, data, bytes, flags);
}

static ssize_t send_some(struct net_calls *calls, int fd, size_t bytes)
{
    static const char data[4 * BUFFER_BYTES];
    return calls->kernel->send(calls->kernel, fd, data, bytes, 0);
}

static int shut(struct net_calls *calls, int fd, int how)
{
    return calls->kernel->shutdown(calls->kernel, fd, how);
}

static int close_fd(struct net_calls *calls, int fd)
{
    return calls->kernel->close(calls->kernel, fd);
}

static int so_error(struct net_calls *calls, int fd)
{
    int error = -1;
    socklen_t bytes = sizeof error;

    CHECK_OK(calls->kernel->getsockopt(calls->kernel, fd, SOL_SOCKET, SO_ERROR, &error, &bytes));
    return error;
}

static int set_flag(struct net_calls *calls, int fd, int level, int name)
{
    const int on = 1;
    return calls->kernel->setsockopt(calls->kernel, fd, level, name, &on, sizeof on);
}

static int readable(struct net_calls *calls, int fd)
{
    return calls->kernel->readable(calls->kernel, fd);
}

static int ended(struct net_calls *calls, int fd)
{
    return calls->kernel->ended(calls->kernel, fd);
}

/* Watch it, and what it is ready for now; a wait for what takes the system a moment. */
static unsigned ready_of(struct net_calls *calls, int fd, int64_t wait_ms)
{
    struct kernel_event events[WAIT_EVENTS];
    unsigned ready = 0;
    int count;

    CHECK_OK(calls->kernel->queue_watch(calls->queue, fd, (uint64_t)fd));
    count = calls->kernel->queue_wait(calls->queue, wait_ms * 1000000, events, WAIT_EVENTS);
    for (int i = 0; i < count; i++) {
        if (events[i].tag == (uint64_t)fd) ready |= events[i].ready;
    }
    calls->kernel->queue_unwatch(calls->queue, fd);
    return ready;
}

enum { WHILE_MS = 2000 }; /* a wait that ends as soon as something is there */

/* A listener, and a connection through it. */
static void tcp_pair(struct net_calls *calls, int *ret_client, int *ret_server)
{
    int listener = tcp(calls);

    CHECK_OK(bind_to(calls, listener, 0));
    CHECK_OK(listen_on(calls, listener, 8));
    *ret_client = tcp(calls);
    CHECK_INT(connect_to(calls, *ret_client, port_of(calls, listener)), ==, -EINPROGRESS);
    CHECK_INT(ready_of(calls, listener, WHILE_MS), ==, READY_IN);
    CHECK_INT(ready_of(calls, *ret_client, WHILE_MS), ==, READY_OUT);
    *ret_server = accept_from(calls, listener);
    CHECK_INT(*ret_server, >=, 0);
    CHECK_OK(close_fd(calls, listener));
}

static void unix_pair(struct net_calls *calls, int *ret_a, int *ret_b)
{
    int fds[2];

    CHECK_OK(calls->kernel->socketpair(calls->kernel, AF_UNIX, SOCK_STREAM, fds));
    *ret_a = fds[0];
    *ret_b = fds[1];
}

/* ---- The lists ---- */

static void run_connect(struct net_calls *calls)
{
    int listener = tcp(calls), client = tcp(calls), other = tcp(calls), server;

    SAY(bind_to(calls, listener, 0));
    SAY(bind_to(calls, listener, 0));
    SAY(accept_from(calls, listener));
    SAY(listen_on(calls, listener, 8));
    SAY(accept_from(calls, listener));
    SAY(ready_of(calls, listener, 0));
    SAY(connect_to(calls, client, port_of(calls, listener)));
    SAY(ready_of(calls, client, WHILE_MS));
    SAY(so_error(calls, client));
    SAY(connect_to(calls, client, port_of(calls, listener)));
    SAY(connect_to(calls, client, port_of(calls, listener)));
    SAY(ready_of(calls, listener, WHILE_MS));
    server = accept_from(calls, listener);
    SAY(server >= 0);
    SAY(accept_from(calls, listener));
    SAY(port_of(calls, server) == port_of(calls, listener));
    SAY(recv_some(calls, server, 10, 0));
    SAY(set_flag(calls, server, IPPROTO_TCP, TCP_NODELAY));
    SAY(set_flag(calls, server, SOL_SOCKET, SO_KEEPALIVE));
    SAY(bind_to(calls, other, port_of(calls, listener)));
    SAY(set_flag(calls, other, SOL_SOCKET, SO_REUSEADDR));
    SAY(bind_to(calls, other, port_of(calls, listener)));
    SAY(recv_some(calls, other, 10, 0));
    SAY(send_some(calls, other, 10));
    SAY(shut(calls, other, SHUT_WR));
    SAY(close_fd(calls, listener));
    SAY(close_fd(calls, client));
    SAY(close_fd(calls, server));
    SAY(close_fd(calls, other));
}

static void run_refused(struct net_calls *calls)
{
    int gone = tcp(calls), client = tcp(calls);
    uint16_t port;

    SAY(bind_to(calls, gone, 0));
    port = port_of(calls, gone);
    SAY(close_fd(calls, gone));
    SAY(connect_to(calls, client, port));
    SAY(ready_of(calls, client, WHILE_MS));
    SAY(connect_to(calls, client, port));
    SAY(connect_to(calls, client, port));
    SAY(ready_of(calls, client, WHILE_MS));
    SAY(so_error(calls, client));
    SAY(so_error(calls, client));
    SAY(close_fd(calls, client));
}

static void run_half_close(struct net_calls *calls)
{
    int client, server;

    tcp_pair(calls, &client, &server);
    SAY(send_some(calls, client, 100));
    SAY(ended(calls, server)); /* there is something to read, and it is not the end */
    SAY(shut(calls, client, SHUT_WR));
    SAY(ended(calls, client));
    SAY(send_some(calls, client, 1));
    SAY(ready_of(calls, server, WHILE_MS));
    SAY(ended(calls, server)); /* what is to be read first does not hide it */
    SAY(recv_some(calls, server, 30, 0));
    SAY(recv_some(calls, server, 300, MSG_PEEK));
    SAY(recv_some(calls, server, 300, 0));
    SAY(recv_some(calls, server, 300, 0));
    SAY(recv_some(calls, server, 300, 0));
    SAY(send_some(calls, server, 50));
    SAY(ready_of(calls, client, WHILE_MS));
    SAY(recv_some(calls, client, 500, 0));
    SAY(recv_some(calls, client, 500, 0));
    SAY(close_fd(calls, server));
    SAY(ready_of(calls, client, WHILE_MS));
    SAY(recv_some(calls, client, 500, 0));
    SAY(close_fd(calls, client));
}

static void run_close_then_write(struct net_calls *calls)
{
    int client, server;

    tcp_pair(calls, &client, &server);
    SAY(close_fd(calls, server));
    SAY(ready_of(calls, client, WHILE_MS));
    SAY(send_some(calls, client, 1)); /* is answered by a reset */
    SAY(send_some(calls, client, 1));
    SAY(send_some(calls, client, 1));
    SAY(recv_some(calls, client, 1, 0));
    SAY(ready_of(calls, client, WHILE_MS));
    SAY(close_fd(calls, client));
}

static void run_close_unread(struct net_calls *calls)
{
    int client, server;

    tcp_pair(calls, &client, &server);
    SAY(send_some(calls, server, 7));
    SAY(send_some(calls, client, 5));
    SAY(readable(calls, server));
    SAY(ended(calls, client));
    SAY(close_fd(calls, server)); /* with something unread: a reset */
    SAY(ready_of(calls, client, WHILE_MS));
    SAY(ended(calls, client));
    SAY(recv_some(calls, client, 3, 0));
    SAY(recv_some(calls, client, 100, 0));
    SAY(recv_some(calls, client, 100, 0));
    SAY(recv_some(calls, client, 100, 0));
    SAY(send_some(calls, client, 1));
    SAY(shut(calls, client, SHUT_WR));
    SAY(close_fd(calls, client));
    tcp_pair(calls, &client, &server);
    SAY(send_some(calls, client, 5));
    SAY(close_fd(calls, server));
    SAY(send_some(calls, client, 1));
    SAY(send_some(calls, client, 1));
    SAY(recv_some(calls, client, 1, 0));
    SAY(close_fd(calls, client));
}

static void run_listener_closes(struct net_calls *calls)
{
    int listener = tcp(calls), client = tcp(calls);

    SAY(bind_to(calls, listener, 0));
    SAY(listen_on(calls, listener, 8));
    SAY(connect_to(calls, client, port_of(calls, listener)));
    SAY(ready_of(calls, client, WHILE_MS));
    SAY(connect_to(calls, client, port_of(calls, listener)));
    SAY(close_fd(calls, listener)); /* with the connection in its backlog */
    SAY(ready_of(calls, client, WHILE_MS));
    SAY(recv_some(calls, client, 1, 0));
    SAY(recv_some(calls, client, 1, 0));
    SAY(send_some(calls, client, 1));
    SAY(close_fd(calls, client));
}

static void run_backlog(struct net_calls *calls)
{
    int listener = tcp(calls), clients[3];

    SAY(bind_to(calls, listener, 0));
    SAY(listen_on(calls, listener, 1));
    for (int i = 0; i < 3; i++) {
        clients[i] = tcp(calls);
        SAY(connect_to(calls, clients[i], port_of(calls, listener)));
        SAY(ready_of(calls, clients[i], i < 2 ? WHILE_MS : 0));
    }
    for (int i = 0; i < 3; i++) SAY(close_fd(calls, clients[i]));
    SAY(close_fd(calls, listener));
}

static void run_unix(struct net_calls *calls)
{
    int listener = unix_stream(calls), client = unix_stream(calls), other = unix_stream(calls);
    int server;

    SAY(connect_name(calls, client, "weir-sim-none"));
    SAY(bind_name(calls, listener, "weir-sim-name"));
    SAY(bind_name(calls, other, "weir-sim-name"));
    SAY(connect_name(calls, client, "weir-sim-name"));
    SAY(listen_on(calls, listener, 0));
    SAY(connect_name(calls, client, "weir-sim-name"));
    SAY(connect_name(calls, client, "weir-sim-name"));
    SAY(connect_name(calls, other, "weir-sim-name"));
    SAY(ready_of(calls, listener, WHILE_MS));
    SAY(send_some(calls, client, 9));
    server = accept_from(calls, listener);
    SAY(server >= 0);
    SAY(accept_from(calls, listener));
    SAY(recv_some(calls, server, 4, 0));
    SAY(recv_some(calls, server, 40, 0));
    SAY(recv_some(calls, server, 40, 0));
    SAY(recv_some(calls, other, 40, 0));
    SAY(send_some(calls, other, 40));
    SAY(connect_name(calls, other, "weir-sim-name"));
    SAY(close_fd(calls, listener));
    SAY(recv_some(calls, other, 40, 0));
    SAY(recv_some(calls, other, 40, 0));
    SAY(send_some(calls, other, 40));
    SAY(close_fd(calls, client));
    SAY(close_fd(calls, server));
    SAY(close_fd(calls, other));
}

static void run_pair(struct net_calls *calls)
{
    int a, b;

    unix_pair(calls, &a, &b);
    SAY(ready_of(calls, a, 0));
    SAY(send_some(calls, a, 10));
    SAY(ready_of(calls, b, 0));
    SAY(close_fd(calls, a));
    SAY(ready_of(calls, b, 0));
    SAY(recv_some(calls, b, 4, 0));
    SAY(recv_some(calls, b, 40, 0));
    SAY(recv_some(calls, b, 40, 0));
    SAY(send_some(calls, b, 1));
    SAY(close_fd(calls, b));
    unix_pair(calls, &a, &b);
    SAY(send_some(calls, a, 10));
    SAY(send_some(calls, b, 10));
    SAY(close_fd(calls, a)); /* with something unread */
    SAY(ready_of(calls, b, 0));
    SAY(send_some(calls, b, 1));
    SAY(recv_some(calls, b, 40, 0));
    SAY(recv_some(calls, b, 40, 0));
    SAY(recv_some(calls, b, 40, 0));
    SAY(close_fd(calls, b));
    unix_pair(calls, &a, &b);
    SAY(shut(calls, a, SHUT_WR));
    SAY(ready_of(calls, b, 0));
    SAY(recv_some(calls, b, 40, 0));
    SAY(send_some(calls, b, 3));
    SAY(shut(calls, a, SHUT_RD));
    SAY(send_some(calls, b, 3));
    SAY(recv_some(calls, a, 40, 0));
    SAY(recv_some(calls, a, 40, 0));
    SAY(close_fd(calls, a));
    SAY(close_fd(calls, b));
}

static ssize_t write_some(struct net_calls *calls, int fd, size_t bytes)
{
    static const char data[4 * BUFFER_BYTES];
    return calls->kernel->write(calls->kernel, fd, data, bytes);
}

static ssize_t read_some(struct net_calls *calls, int fd, size_t bytes)
{
    static char data[4 * BUFFER_BYTES];
    return calls->kernel->read(calls->kernel, fd, data, bytes);
}

static void run_pipe(struct net_calls *calls)
{
    int fds[2], copy;

    CHECK_OK(calls->kernel->pipe(calls->kernel, fds));
    SAY(ready_of(calls, fds[0], 0));
    SAY(ready_of(calls, fds[1], 0));
    SAY(read_some(calls, fds[0], 10));
    SAY(write_some(calls, fds[0], 10));
    SAY(read_some(calls, fds[1], 10));
    SAY(send_some(calls, fds[1], 10));
    SAY(shut(calls, fds[1], SHUT_WR));
    SAY(write_some(calls, fds[1], 10));
    SAY(readable(calls, fds[0]));
    SAY(read_some(calls, fds[0], 4));
    SAY(read_some(calls, fds[0], 40));
    SAY(write_some(calls, fds[1], 3 * BUFFER_BYTES));
    SAY(write_some(calls, fds[1], 1));
    SAY(ready_of(calls, fds[1], 0));
    SAY(read_some(calls, fds[0], 4096));
    SAY(ready_of(calls, fds[1], 0));
    SAY(read_some(calls, fds[0], 3 * BUFFER_BYTES));
    copy = calls->kernel->duplicate(calls->kernel, fds[1]);
    SAY(copy != fds[1] && copy >= 0);
    SAY(close_fd(calls, fds[1]));
    SAY(write_some(calls, copy, 5));
    SAY(read_some(calls, fds[0], 10));
    SAY(close_fd(calls, copy));
    SAY(ready_of(calls, fds[0], 0) & READY_IN);
    SAY(read_some(calls, fds[0], 10));
    SAY(close_fd(calls, fds[0]));
    CHECK_OK(calls->kernel->pipe(calls->kernel, fds));
    SAY(close_fd(calls, fds[0]));
    SAY(write_some(calls, fds[1], 10));
    SAY(ready_of(calls, fds[1], 0) & READY_OUT);
    SAY(close_fd(calls, fds[1]));
}

/* Edges: each readiness that arises is told once. */
static void run_edges(struct net_calls *calls)
{
    const struct kernel *kernel = calls->kernel;
    struct kernel_event event = {0};
    int a, b;

    unix_pair(calls, &a, &b);
    SAY(kernel->queue_watch(calls->queue, a, 5));
    SAY(kernel->queue_watch(calls->queue, a, 5));
    SAY(kernel->queue_wait(calls->queue, 0, &event, 1));
    SAY(event.ready);
    SAY(kernel->queue_wait(calls->queue, 0, &event, 1));
    SAY(send_some(calls, b, 1));
    SAY(send_some(calls, b, 1));
    SAY(kernel->queue_wait(calls->queue, 0, &event, 1));
    SAY(event.ready);
    SAY(kernel->queue_wait(calls->queue, 0, &event, 1));
    SAY(recv_some(calls, a, 1, 0));
    SAY(kernel->queue_wait(calls->queue, 0, &event, 1));
    SAY(send_some(calls, b, 1));
    SAY(kernel->queue_wait(calls->queue, 0, &event, 1));
    SAY(event.ready);
    SAY(close_fd(calls, b));
    SAY(kernel->queue_wait(calls->queue, 0, &event, 1));
    SAY(event.ready);
    kernel->queue_unwatch(calls->queue, a);
    SAY(kernel->queue_wait(calls->queue, 0, &event, 1));
    SAY(close_fd(calls, a));
    SAY(kernel->queue_watch(calls->queue, a, 5));
    kernel->queue_wake(calls->queue);
    SAY(kernel->queue_wait(calls->queue, INT64_C(5000000000), &event, 1));
}

static void run_udp(struct net_calls *calls)
{
    const struct kernel *kernel = calls->kernel;
    int a = kernel->socket(kernel, AF_INET, SOCK_DGRAM, 0);
    int b = kernel->socket(kernel, AF_INET, SOCK_DGRAM, 0);
    char data[100] = "abc";
    struct sockaddr_in from, to;
    struct iovec part = {data, 10};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_name = &to};

    SAY(bind_to(calls, a, 0));
    SAY(bind_to(calls, b, port_of(calls, a)));
    SAY(ready_of(calls, a, 0));
    to = loopback(port_of(calls, a));
    message.msg_namelen = sizeof to;
    SAY(kernel->sendmsg(kernel, b, &message, 0));
    SAY(ready_of(calls, a, WHILE_MS));
    message.msg_name = &from;
    message.msg_namelen = sizeof from;
    part.iov_len = 4;
    SAY(kernel->recvmsg(kernel, a, &message, MSG_TRUNC));
    SAY(message.msg_flags & MSG_TRUNC);
    SAY(from.sin_port == htons(port_of(calls, b)));
    SAY(from.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    SAY(kernel->recvmsg(kernel, a, &message, MSG_TRUNC));
    message.msg_name = NULL;
    message.msg_namelen = 0;
    SAY(kernel->sendmsg(kernel, b, &message, 0));
    message.msg_name = &to;
    message.msg_namelen = sizeof to;
    part.iov_len = 0;
    SAY(kernel->sendmsg(kernel, b, &message, 0));
    SAY(recv_some(calls, a, 10, 0));
    SAY(recv_some(calls, a, 10, 0));
    SAY(listen_on(calls, a, 1));
    SAY(accept_from(calls, a));
    SAY(shut(calls, a, SHUT_WR));
    SAY(close_fd(calls, a));
    SAY(close_fd(calls, b));
}

const struct net_scenario_row net_scenarios[] = {
    {"connect", run_connect},
    {"refused", run_refused},
    {"half close", run_half_close},
    {"close, then write", run_close_then_write},
    {"close unread", run_close_unread},
    {"listener closes", run_listener_closes},
    {"backlog", run_backlog},
    {"unix", run_unix},
    {"pair", run_pair},
    {"pipe", run_pipe},
    {"edges", run_edges},
    {"udp", run_udp},
};
const unsigned net_scenario_count = sizeof net_scenarios / sizeof net_scenarios[0];

void net_scenario_run(struct net_calls *calls, const struct kernel *kernel,
                      const struct net_scenario_row *row)
{
    calls->kernel = kernel;
    calls->length = 0;
    calls->said[0] = '\0';
    CHECK_OK(kernel->queue_open(kernel, &calls->queue));
    row->run(calls);
    kernel->queue_close(calls->queue);
}

/* connect.c - connections to somewhere else. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <weir/task.h>

#include "io/conn.h"

/* A unix listener with a full backlog answers -EAGAIN and no event tells when there
 * is room again, so the attempt is made anew after a growing pause. */
enum { CONNECT_PAUSE_MS_MIN = 1, CONNECT_PAUSE_MS_MAX = 10 };

static const struct wait_kind wait_connect = {
    .name = "connect",
    .abort = pollable_abort,
    .describe = pollable_describe,
    .what = WAIT_FOR_DESCRIPTOR,
};

/* Calling connect again tells how an attempt stands, also after a wake-up that
 * meant nothing: under way, made, or failed, and why. */
static int attempt(struct task *self, weir_conn *conn, const weir_address *address)
{
    const struct kernel *kernel = worker_self()->kernel;
    const struct sockaddr *name = (const struct sockaddr *)&address->storage;
    int64_t pause_ms = CONNECT_PAUSE_MS_MIN;

    for (;;) {
        int r = kernel->connect(kernel, conn->fd, name, address->bytes);
        if (r == 0 || r == -EISCONN) return 0;
        if (r == -EINTR) continue;
        if (r == -EAGAIN && address->transport == WEIR_UNIX) {
            r = weir_sleep(pause_ms);
            pause_ms = pause_ms * 2 < CONNECT_PAUSE_MS_MAX ? pause_ms * 2 : CONNECT_PAUSE_MS_MAX;
        } else if (r == -EINPROGRESS || r == -EALREADY) {
            r = io_wait(self, conn->pollable, READY_OUT, &wait_connect);
        }
        if (r < 0) return r;
    }
}

/* A socket in `conn`, ready to be connected. */
static int open_socket(weir_conn *conn, const weir_address *address)
{
    const struct kernel *kernel = worker_self()->kernel;
    const int on = 1;
    int fd = kernel->socket(kernel, address->storage.ss_family, SOCK_STREAM, 0);
    int r;

    if (fd < 0) return fd;
    if (address->transport == WEIR_TCP) {
        r = kernel->setsockopt(kernel, fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (r < 0) {
            (void)kernel->close(kernel, fd);
            return r;
        }
    }
    conn_adopt(conn, fd, true, address->transport);
    return 0;
}

static int connect_to(struct task *self, const weir_address *address, weir_conn **ret_conn)
{
    weir_conn *conn;
    int r;

    if (address->transport != WEIR_TCP && address->transport != WEIR_UNIX) {
        return refuse("connect: the address must be tcp: or unix: (datagrams are for "
                      "weir_udp_open)");
    }
    r = task_enter(self, ENTER_IO);
    if (r < 0) return r;
    r = conn_prepare(&conn);
    if (r < 0) return r;
    r = open_socket(conn, address);
    if (r < 0) {
        conn_abandon(conn);
        return r;
    }
    r = attempt(self, conn, address);
    if (r < 0) {
        weir_conn_close(conn->head.handle);
        return r;
    }
    *ret_conn = conn->head.handle;
    return 0;
}

int weir_connect_to(const weir_address *address, weir_conn **ret_conn)
{
    struct task *self = task_self();
    if (!self) return refuse_no_task("weir_connect_to");
    return connect_to(self, address, ret_conn);
}

int weir_connect(const char *address, weir_conn **ret_conn)
{
    struct task *self = task_self();
    weir_address parsed;
    int r;

    if (!self) return refuse_no_task("weir_connect");
    r = weir_address_parse(address, &parsed);
    if (r < 0) return r;
    return connect_to(self, &parsed, ret_conn);
}

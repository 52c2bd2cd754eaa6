/* conn.c - connections: made, read, written, closed. */
#include "io/conn.h"

#include <errno.h>
#include <limits.h>

#include "base/planted.h"
#include "rt/mem.h"

const char conn_idle_reader[] = "an idle wait";

static const struct wait_kind wait_read = {
    .name = "read",
    .abort = pollable_abort,
    .describe = pollable_describe,
    .what = WAIT_FOR_DESCRIPTOR,
};

static const struct wait_kind wait_write = {
    .name = "write",
    .abort = pollable_abort,
    .describe = pollable_describe,
    .what = WAIT_FOR_DESCRIPTOR,
};

/* ---- Making ---- */

int conn_prepare(weir_conn **ret_conn)
{
    weir_conn *conn = mem_alloc_zeroed(sizeof *conn);
    int r;

    if (!conn) return -ENOMEM;
    r = pollable_new(-1, &conn->pollable);
    if (r < 0) goto fail_free;
    r = io_head_init(&conn->head, HANDLE_CONN);
    if (r < 0) goto fail_pollable;
    conn->fd = -1;
    *ret_conn = conn;
    return 0;

fail_pollable:
    pollable_free(conn->pollable, "");
fail_free:
    mem_free(conn);
    return r;
}

void conn_adopt(weir_conn *conn, int take_fd, bool is_socket, enum weir_transport transport)
{
    conn->fd = take_fd;
    /* Not registered yet, so nobody else looks at it. */
    conn->pollable->fd = take_fd;
    conn->is_socket = is_socket;
    conn->transport = transport;
    /* Not for unix sockets, where a read also stops at a message with descriptors. */
    conn->short_read_drains =
        transport == WEIR_TCP && conn->pollable->runtime->kernel->short_recv_drains;
}

void conn_abandon(weir_conn *conn)
{
    io_head_deinit(&conn->head);
    pollable_free(conn->pollable, "");
    mem_free(conn);
}

/* Two connections with a descriptor each, or none: the ends of a pipe or of a pair of
 * sockets. */
static int open_pair(const char *call, bool is_socket, weir_conn **ret_a, weir_conn **ret_b)
{
    struct worker *worker = worker_self();
    const struct kernel *kernel;
    weir_conn *a, *b;
    int fds[2];
    int r;

    if (!worker) return refuse_no_task(call);
    kernel = worker->kernel;
    r = conn_prepare(&a);
    if (r < 0) return r;
    r = conn_prepare(&b);
    if (r < 0) goto fail_a;
    r = is_socket ? kernel->socketpair(kernel, AF_UNIX, SOCK_STREAM, fds)
                  : kernel->pipe(kernel, fds);
    if (r < 0) goto fail_b;
    conn_adopt(a, fds[0], is_socket, is_socket ? WEIR_UNIX : WEIR_TRANSPORT_NONE);
    conn_adopt(b, fds[1], is_socket, is_socket ? WEIR_UNIX : WEIR_TRANSPORT_NONE);
    *ret_a = a->head.handle;
    *ret_b = b->head.handle;
    return 0;

fail_b:
    conn_abandon(b);
fail_a:
    conn_abandon(a);
    return r;
}

int weir_pipe(weir_conn **ret_reader, weir_conn **ret_writer)
{
    return open_pair("weir_pipe", false, ret_reader, ret_writer);
}

int weir_socketpair(weir_conn **ret_a, weir_conn **ret_b)
{
    return open_pair("weir_socketpair", true, ret_a, ret_b);
}

/* What kind of descriptor it is; other families of sockets are read and written as
 * well, they only have no address that we could tell. */
static int find_out(const struct kernel *kernel, int fd, bool *ret_is_socket,
                    enum weir_transport *ret_transport)
{
    int type = 0;
    socklen_t bytes = sizeof type;
    int r = kernel->getsockopt(kernel, fd, SOL_SOCKET, SO_TYPE, &type, &bytes);

    if (r < 0 && r != -ENOTSOCK) return r;
    *ret_is_socket = r == 0;
    *ret_transport = WEIR_TRANSPORT_NONE;
    if (r == 0) *ret_transport = type == SOCK_DGRAM ? WEIR_UDP : WEIR_TCP;
    return 0;
}

/* Whether it can be waited on shows only when it is registered. */
static int check_pollable(struct worker *worker, int fd, const weir_conn *conn)
{
    int r = worker->kernel->queue_watch(worker->queue, fd, (uint64_t)(uintptr_t)conn);
    if (r < 0) return r;
    worker->kernel->queue_unwatch(worker->queue, fd);
    return 0;
}

int weir_conn_from_fd(int take_fd, weir_conn **ret_conn)
{
    struct worker *worker = worker_self();
    enum weir_transport transport;
    bool is_socket;
    weir_conn *conn;
    int r;

    if (!worker) return refuse_no_task("weir_conn_from_fd");
    r = find_out(worker->kernel, take_fd, &is_socket, &transport);
    if (r < 0) return r;
    r = conn_prepare(&conn);
    if (r < 0) return r;
    r = check_pollable(worker, take_fd, conn);
    if (r < 0) goto fail;
    r = worker->kernel->set_nonblocking(worker->kernel, take_fd);
    if (r < 0) goto fail;
    conn_adopt(conn, take_fd, is_socket, transport);
    conn->short_read_drains = false; /* whatever has been done to it before */
    *ret_conn = conn->head.handle;
    return 0;

fail:
    conn_abandon(conn);
    return r;
}

/* ---- Closing and asking ---- */

static void check_unclaimed(const weir_conn *conn, io_claim *claim, const char *doing)
{
    const void *owner = atom_load_acquire(claim);

    if (!owner) return;
    if (owner == conn_idle_reader) {
        misuse("weir_conn_close: the connection (descriptor %d) is in an idle wait, which ends "
               "with its callback",
               conn->fd);
    }
    if (owner == conn_select_reader) {
        misuse("weir_conn_close: a task waits for the connection (descriptor %d) in a select",
               conn->fd);
    }
    misuse("weir_conn_close: task '%s' is %s the connection (descriptor %d)",
           ((const struct task *)owner)->name, doing, conn->fd);
}

void weir_conn_close(weir_conn *handle)
{
    const struct kernel *kernel;
    weir_conn *conn;

    if (!handle) return;
    conn = io_check(handle, HANDLE_CONN, "weir_conn_close");
    kernel = conn->pollable->runtime->kernel;
    check_unclaimed(conn, &conn->reader, "reading");
    check_unclaimed(conn, &conn->writer, "writing");
    io_head_deinit(&conn->head);
    pollable_free(conn->pollable, "weir_conn_close");
    (void)kernel->close(kernel, conn->fd);
    mem_free(conn);
}

int weir_conn_shutdown(weir_conn *handle, int how)
{
    const weir_conn *conn = io_check_open(handle, HANDLE_CONN, "weir_conn_shutdown");
    const struct kernel *kernel = conn->head.runtime->kernel;

    return kernel->shutdown(kernel, conn->fd, how);
}

int weir_conn_fd(const weir_conn *handle)
{
    const weir_conn *conn = io_check_open(handle, HANDLE_CONN, "weir_conn_fd");
    return conn->fd;
}

int weir_conn_local(const weir_conn *handle, weir_address *ret_address)
{
    const weir_conn *conn = io_check_open(handle, HANDLE_CONN, "weir_conn_local");
    return address_of_socket(conn->pollable->runtime->kernel, conn->fd, false, conn->transport,
                             ret_address);
}

int weir_conn_peer(const weir_conn *handle, weir_address *ret_address)
{
    const weir_conn *conn = io_check_open(handle, HANDLE_CONN, "weir_conn_peer");
    return address_of_socket(conn->pollable->runtime->kernel, conn->fd, true, conn->transport,
                             ret_address);
}

bool conn_readable_now(weir_conn *conn)
{
    const struct kernel *kernel = conn->pollable->runtime->kernel;
    ssize_t n;
    char byte;

    if (!conn->is_socket) {
        do {
            n = kernel->readable(kernel, conn->fd);
        } while (n == -EINTR);
        return n != 0; /* of what cannot be looked into the read will tell */
    }
    do {
        n = kernel->recv(kernel, conn->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    } while (n == -EINTR);
    /* The look has used the error up: without this the next read would find a clean end. */
    if (n < 0 && n != -EAGAIN) conn->pending_error = (int)n;
    return n != -EAGAIN;
}

/* ---- Moving bytes ----
 *
 * What a read or a write of one piece goes through is inline down to the system call and to
 * the wait: `direction` and `count` are constants there, and nothing is left of the vector.
 * With many connections each frame that a task leaves on its stack while it waits is one more
 * line of the cache to come from far when it goes on. */

#define INLINE static inline __attribute__((always_inline))

INLINE ssize_t try_read(const weir_conn *conn, const struct iovec *parts, int count)
{
    const struct kernel *kernel = worker_self()->kernel;

    if (count == 1) {
        void *data = parts->iov_base;
        if (conn->is_socket) return kernel->recv(kernel, conn->fd, data, parts->iov_len, 0);
        return kernel->read(kernel, conn->fd, data, parts->iov_len);
    }
    if (conn->is_socket) {
        struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)parts,
                                 .msg_iovlen = (size_t)count};
        return kernel->recvmsg(kernel, conn->fd, &message, 0);
    }
    return kernel->readv(kernel, conn->fd, parts, count);
}

INLINE ssize_t try_write(const weir_conn *conn, const struct iovec *parts, int count)
{
    const struct kernel *kernel = worker_self()->kernel;

    if (count == 1) {
        const void *data = parts->iov_base;
        if (conn->is_socket) return kernel->send(kernel, conn->fd, data, parts->iov_len, 0);
        return kernel->write(kernel, conn->fd, data, parts->iov_len);
    }
    if (conn->is_socket) {
        struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)parts,
                                 .msg_iovlen = (size_t)count};
        return kernel->sendmsg(kernel, conn->fd, &message, 0);
    }
    return kernel->writev(kernel, conn->fd, parts, count);
}

/* Does a read of `n` bytes prove that nothing is left? Then what comes later makes an
 * edge, and the next read need not ask the kernel to be told "not yet". */
INLINE bool shows_drained(const weir_conn *conn, ssize_t n, const struct iovec *parts, int count)
{
    size_t asked = 0;

    if (PLANTED(READ_FORGETS_READINESS) && count == 1) return n > 0 && (size_t)n < parts->iov_len;
    if (!conn->short_read_drains || !conn->watched || n <= 0) return false;
    if (pollable_beyond(conn->pollable)) return false;
    for (int i = 0; i < count; i++) asked += parts[i].iov_len;
    return (size_t)n < asked;
}

/* The caller has the claim and has called task_enter. A result that is there is
 * returned even if a cancel came at the same time: the next call sees that. */
INLINE ssize_t read_some(struct task *self, weir_conn *conn, const struct iovec *parts, int count)
{
    if (__builtin_expect(conn->pending_error != 0, 0)) {
        int error = conn->pending_error;
        conn->pending_error = 0;
        return error;
    }
    for (;;) {
        int r;

        if (!conn->drained) {
            ssize_t n;

            /* Looked at next; with many connections it comes from far while the kernel reads. */
            __builtin_prefetch(conn->pollable, 1);
            n = try_read(conn, parts, count);
            if (n == -EINTR) continue;
            if (n != -EAGAIN) {
                conn->drained = shows_drained(conn, n, parts, count);
                return n;
            }
        }
        r = io_wait(self, conn->pollable, READY_IN, &wait_read);
        if (r < 0) return r;
        conn->watched = true;
        conn->drained = false;
    }
}

INLINE ssize_t write_some(struct task *self, weir_conn *conn, const struct iovec *parts, int count)
{
    for (;;) {
        ssize_t n = try_write(conn, parts, count);
        int r;
        if (n == -EINTR) continue;
        if (n != -EAGAIN) return n;
        r = io_wait(self, conn->pollable, READY_OUT, &wait_write);
        if (r < 0) return r;
    }
}

INLINE ssize_t move_some(unsigned direction, struct task *self, weir_conn *conn,
                         const struct iovec *parts, int count)
{
    return direction == READY_IN ? read_some(self, conn, parts, count)
                                 : write_some(self, conn, parts, count);
}

INLINE bool is_empty(const struct iovec *parts, int count)
{
    for (int i = 0; i < count; i++) {
        if (parts[i].iov_len > 0) return false;
    }
    return true;
}

INLINE io_claim *claim_for(weir_conn *conn, unsigned direction)
{
    return direction == READY_IN ? &conn->reader : &conn->writer;
}

/* One call that moves what it can. */
INLINE ssize_t move_once(const char *call, weir_conn *handle, unsigned direction,
                         const struct iovec *parts, int count)
{
    struct task *self = task_self();
    weir_conn *conn;
    io_claim *claim;
    ssize_t n;
    int r;

    if (!self) return refuse_no_task(call);
    r = task_enter(self, ENTER_IO);
    if (r < 0) return r;
    conn = io_check(handle, HANDLE_CONN, call); /* after the yield, see io.h */
    claim = claim_for(conn, direction);
    if (count < 0 || count > IOV_MAX) return -EINVAL;
    if (is_empty(parts, count)) return 0;
    if (!io_claim_take(claim, worker_self()->shared, self)) return WEIR_EINUSE;
    n = move_some(direction, self, conn, parts, count);
    io_claim_give_back(claim);
    return n;
}

/* Until all is moved: 0, or the error, or WEIR_ECLOSED at the end of the stream.
 * Cancellation and the budget are looked at before each step. */
INLINE int move_all(const char *call, weir_conn *handle, unsigned direction, void *data,
                    size_t bytes, size_t *ret_moved)
{
    struct task *self = task_self();
    weir_conn *conn;
    io_claim *claim;
    size_t moved = 0;
    int r;

    if (ret_moved) *ret_moved = 0;
    if (!self) return refuse_no_task(call);
    conn = io_check(handle, HANDLE_CONN, call);
    claim = claim_for(conn, direction);
    if (!io_claim_take(claim, worker_self()->shared, self)) return WEIR_EINUSE;
    do {
        struct iovec rest = {bytes > 0 ? (char *)data + moved : data, bytes - moved};
        ssize_t n;

        r = task_enter(self, ENTER_IO);
        if (r < 0 || rest.iov_len == 0) break;
        n = move_some(direction, self, conn, &rest, 1);
        if (n > 0) {
            moved += (size_t)n;
        } else {
            r = n < 0 ? (int)n : WEIR_ECLOSED;
        }
    } while (r == 0 && moved < bytes);
    io_claim_give_back(claim);
    if (ret_moved) *ret_moved = moved;
    return r;
}

ssize_t weir_conn_read(weir_conn *conn, void *data, size_t bytes)
{
    struct iovec part = {data, bytes};
    return move_once("weir_conn_read", conn, READY_IN, &part, 1);
}

ssize_t weir_conn_readv(weir_conn *conn, const struct iovec *parts, int parts_count)
{
    return move_once("weir_conn_readv", conn, READY_IN, parts, parts_count);
}

ssize_t weir_conn_write(weir_conn *conn, const void *data, size_t bytes)
{
    struct iovec part = {(void *)(uintptr_t)data, bytes};
    return move_once("weir_conn_write", conn, READY_OUT, &part, 1);
}

ssize_t weir_conn_writev(weir_conn *conn, const struct iovec *parts, int parts_count)
{
    return move_once("weir_conn_writev", conn, READY_OUT, parts, parts_count);
}

int weir_conn_send_all(weir_conn *conn, const void *data, size_t bytes, size_t *ret_sent)
{
    return move_all("weir_conn_send_all", conn, READY_OUT, (void *)(uintptr_t)data, bytes,
                    ret_sent);
}

int weir_conn_read_exact(weir_conn *conn, void *data, size_t bytes, size_t *ret_received)
{
    return move_all("weir_conn_read_exact", conn, READY_IN, data, bytes, ret_received);
}

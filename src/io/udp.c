/* udp.c - datagrams: each moves as a whole, so calls need no claim. */
#include <errno.h>
#include <string.h>

#include "io/io.h"
#include "rt/mem.h"

struct weir_udp {
    struct io_head head;
    struct pollable *pollable;
    int fd;
    ATOM(unsigned) calls; /* in progress, also of a task that is woken and has not run yet */
};

static const struct wait_kind wait_recv = {
    .name = "recv",
    .abort = pollable_abort,
    .describe = pollable_describe,
    .what = WAIT_FOR_DESCRIPTOR,
};

static const struct wait_kind wait_send = {
    .name = "send",
    .abort = pollable_abort,
    .describe = pollable_describe,
    .what = WAIT_FOR_DESCRIPTOR,
};

int weir_udp_open(const char *address, weir_udp **ret_udp)
{
    struct worker *worker = worker_self();
    const struct kernel *kernel;
    weir_address parsed;
    weir_udp *udp;
    int r;

    if (!worker) return refuse_no_task("weir_udp_open");
    kernel = worker->kernel;
    r = weir_address_parse(address, &parsed);
    if (r < 0) return r;
    if (parsed.transport != WEIR_UDP) {
        return refuse("weir_udp_open: address '%.*s' is not udp:", WEIR_ADDRESS_TEXT_MAX, address);
    }
    udp = mem_alloc_zeroed(sizeof *udp);
    if (!udp) return -ENOMEM;
    udp->fd = kernel->socket(kernel, parsed.storage.ss_family, SOCK_DGRAM, 0);
    if (udp->fd < 0) {
        r = udp->fd;
        goto fail_free;
    }
    r = kernel->bind(kernel, udp->fd, (const struct sockaddr *)&parsed.storage, parsed.bytes);
    if (r < 0) goto fail_close;
    r = pollable_new(udp->fd, &udp->pollable);
    if (r < 0) goto fail_close;
    r = io_head_init(&udp->head, HANDLE_UDP);
    if (r < 0) goto fail_pollable;
    *ret_udp = udp->head.handle;
    return 0;

fail_pollable:
    pollable_free(udp->pollable, "weir_udp_open");
fail_close:
    (void)kernel->close(kernel, udp->fd);
fail_free:
    mem_free(udp);
    return r;
}

void weir_udp_close(weir_udp *handle)
{
    const struct kernel *kernel;
    weir_udp *udp;

    if (!handle) return;
    udp = io_check(handle, HANDLE_UDP, "weir_udp_close");
    kernel = udp->pollable->runtime->kernel;
    if (atom_load_acquire(&udp->calls) > 0) {
        misuse("weir_udp_close: a task is sending or receiving on it (descriptor %d)", udp->fd);
    }
    io_head_deinit(&udp->head);
    pollable_free(udp->pollable, "weir_udp_close");
    (void)kernel->close(kernel, udp->fd);
    mem_free(udp);
}

int weir_udp_local(const weir_udp *handle, weir_address *ret_address)
{
    const weir_udp *udp = io_check_open(handle, HANDLE_UDP, "weir_udp_local");
    return address_of_socket(udp->pollable->runtime->kernel, udp->fd, false, WEIR_UDP, ret_address);
}

static ssize_t send_one(struct task *self, weir_udp *udp, const struct msghdr *message)
{
    for (;;) {
        const struct kernel *kernel = worker_self()->kernel;
        ssize_t n = kernel->sendmsg(kernel, udp->fd, message, 0);
        int r;

        if (n == -EINTR) continue;
        if (n != -EAGAIN) return n;
        r = io_wait(self, udp->pollable, READY_OUT, &wait_send);
        if (r < 0) return r;
    }
}

ssize_t weir_udp_send(weir_udp *handle, const weir_address *to, const void *data, size_t bytes)
{
    struct task *self = task_self();
    weir_udp *udp;
    struct iovec part = {(void *)(uintptr_t)data, bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t n;

    if (!self) return refuse_no_task("weir_udp_send");
    udp = io_check(handle, HANDLE_UDP, "weir_udp_send");
    if (!to || to->transport != WEIR_UDP) {
        return refuse("weir_udp_send: the address to send to is not udp:");
    }
    message.msg_name = (void *)(uintptr_t)&to->storage;
    message.msg_namelen = to->bytes;
    (void)atom_add(&udp->calls, 1);
    n = task_enter(self, ENTER_IO);
    if (n == 0) n = send_one(self, udp, &message);
    (void)atom_sub(&udp->calls, 1);
    return n;
}

static ssize_t receive_one(struct task *self, weir_udp *udp, struct iovec *part,
                           weir_address *ret_from)
{
    struct sockaddr_storage from;

    for (;;) {
        const struct kernel *kernel = worker_self()->kernel;
        struct msghdr message = {
            .msg_iov = part, .msg_iovlen = 1, .msg_name = &from, .msg_namelen = sizeof from};
        /* With MSG_TRUNC the result is the datagram's own length. */
        ssize_t n = kernel->recvmsg(kernel, udp->fd, &message, MSG_TRUNC);
        int r;

        if (n == -EINTR) continue;
        if (n >= 0 && ret_from) {
            r = address_from_kernel(&from, message.msg_namelen, WEIR_UDP, ret_from);
            if (r < 0) memset(ret_from, 0, sizeof *ret_from);
        }
        if (n != -EAGAIN) return n;
        r = io_wait(self, udp->pollable, READY_IN, &wait_recv);
        if (r < 0) return r;
    }
}

ssize_t weir_udp_recv(weir_udp *handle, void *data, size_t bytes, weir_address *ret_from)
{
    struct task *self = task_self();
    weir_udp *udp;
    struct iovec part = {data, bytes};
    ssize_t n;

    if (!self) return refuse_no_task("weir_udp_recv");
    udp = io_check(handle, HANDLE_UDP, "weir_udp_recv");
    (void)atom_add(&udp->calls, 1);
    n = task_enter(self, ENTER_IO);
    if (n == 0) n = receive_one(self, udp, &part, ret_from);
    (void)atom_sub(&udp->calls, 1);
    return n;
}

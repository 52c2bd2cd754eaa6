/* listener.c - listening, and accepting what comes.
 *
 * A TCP listener may have one socket per worker, bound to the same port: the kernel
 * then spreads the connections, and no worker touches another's socket.
 *
 * A unix listener leaves a file behind when its process is killed. Such a file is
 * recognised by a connect that is refused, and replaced; nothing else is ever
 * removed, and at close the file is removed only if it is still the one that was
 * made here (its inode cannot be given to another file while the socket is open).
 *
 * A socket that is bound and does not listen yet refuses connections, too. So that a
 * server that is starting does not lose its path to another one, each holds a lock on
 * "<path>.lock" for its whole life, and only who has that looks at what is there. The
 * lock file is removed while it is locked; who has opened it before, and locks it
 * then, sees that its name is gone or another file's, and begins again.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "base/planted.h"
#include "io/conn.h"
#include "rt/mem.h"

/* A file, wherever its name goes. */
struct file_identity {
    dev_t device;
    ino_t inode;
};

/* One listening socket. */
struct slot {
    struct pollable *pollable;
    int fd;
    io_claim acceptor;
};

struct weir_listener {
    struct io_head head;
    weir_address address; /* as bound: with the real port */
    bool has_file;
    struct file_identity file;
    int lock_fd; /* of a unix socket with a file; or -1 */
    unsigned count;
    struct slot slots[]; /* one, or one for each worker */
};

static const struct wait_kind wait_accept = {
    .name = "accept",
    .takes_work = true,
    .abort = pollable_abort,
    .describe = pollable_describe,
    .what = WAIT_FOR_DESCRIPTOR,
};

/* ---- The file of a unix socket ---- */

static const char *file_path(const weir_address *address)
{
    const struct sockaddr_un *un = (const struct sockaddr_un *)(const void *)&address->storage;
    bool is_file = address->transport == WEIR_UNIX && un->sun_path[0] != '\0';
    return is_file ? un->sun_path : NULL;
}

/* Which socket file the path names: -ENOTSOCK if it is anything else, a symbolic
 * link included. */
static int identify(const struct kernel *kernel, const char *path, struct file_identity *ret_file)
{
    struct stat found;
    int fd;
    int r;

    do fd = kernel->open(kernel, path, O_PATH | O_NOFOLLOW, 0);
    while (fd == -EINTR);
    if (fd < 0) return fd;
    do r = kernel->fstat(kernel, fd, &found);
    while (r == -EINTR);
    (void)kernel->close(kernel, fd);
    if (r < 0) return r;
    if (!S_ISSOCK(found.st_mode)) return -ENOTSOCK;
    *ret_file = (struct file_identity){found.st_dev, found.st_ino};
    return 0;
}

static bool is_same_file(const struct kernel *kernel, const char *path,
                         const struct file_identity *file)
{
    struct file_identity now;
    return identify(kernel, path, &now) == 0 && now.device == file->device &&
           now.inode == file->inode;
}

static void remove_file(const struct kernel *kernel, const char *path)
{
    while (kernel->unlink(kernel, path) == -EINTR) {}
}

/* Does nobody listen behind it? Only a refusal proves that. */
static bool is_stale(const struct kernel *kernel, const weir_address *address)
{
    int fd = kernel->socket(kernel, AF_UNIX, SOCK_STREAM, 0);
    int r;

    if (fd < 0) return false;
    do {
        r = kernel->connect(kernel, fd, (const struct sockaddr *)&address->storage, address->bytes);
    } while (r == -EINTR);
    (void)kernel->close(kernel, fd);
    return r == -ECONNREFUSED;
}

/* The path is taken: bind after all if what is there is stale. With the lock. */
static int replace_stale(const struct kernel *kernel, int fd, const weir_address *address)
{
    const char *path = file_path(address);
    struct file_identity file;

    if (!path || identify(kernel, path, &file) < 0 || !is_stale(kernel, address) ||
        !is_same_file(kernel, path, &file)) {
        return -EADDRINUSE;
    }
    remove_file(kernel, path);
    return kernel->bind(kernel, fd, (const struct sockaddr *)&address->storage, address->bytes);
}

/* ---- The lock of its path ---- */

enum { LOCK_PATH_BYTES = sizeof(((struct sockaddr_un *)0)->sun_path) + sizeof ".lock" };

/* Others may take and remove it between our open and our lock, but hardly often. */
enum { LOCK_ATTEMPTS = 16 };

static void lock_path(const weir_address *address, char path[LOCK_PATH_BYTES])
{
    (void)snprintf(path, LOCK_PATH_BYTES, "%s.lock", file_path(address));
}

/* 0: `fd` is locked and still what the path names. -EAGAIN: it is not any more. */
static int lock_opened(const struct kernel *kernel, int fd, const char *path)
{
    struct stat opened, named;
    int r;

    do r = kernel->lock_file(kernel, fd, true);
    while (r == -EINTR);
    if (r < 0) return r == -EAGAIN ? -EADDRINUSE : r;
    do r = kernel->fstat(kernel, fd, &opened);
    while (r == -EINTR);
    if (r < 0) return r;
    do r = kernel->stat(kernel, path, &named);
    while (r == -EINTR);
    if (r == -ENOENT) return -EAGAIN;
    if (r < 0) return r;
    return opened.st_dev == named.st_dev && opened.st_ino == named.st_ino ? 0 : -EAGAIN;
}

static int take_lock(weir_listener *listener)
{
    const struct kernel *kernel = listener->head.runtime->kernel;
    char path[LOCK_PATH_BYTES];

    lock_path(&listener->address, path);
    for (int attempt = 0; attempt < LOCK_ATTEMPTS; attempt++) {
        int fd = kernel->open(kernel, path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0600);
        int r;

        if (fd == -EINTR) continue;
        if (fd < 0) return fd;
        r = lock_opened(kernel, fd, path);
        if (r == 0) {
            listener->lock_fd = fd;
            return 0;
        }
        (void)kernel->close(kernel, fd);
        if (r != -EAGAIN) return r;
    }
    return -EADDRINUSE;
}

static void give_lock_back(weir_listener *listener)
{
    const struct kernel *kernel = listener->head.runtime->kernel;
    char path[LOCK_PATH_BYTES];

    if (listener->lock_fd < 0) return;
    lock_path(&listener->address, path);
    remove_file(kernel, path);
    /* Said, not left to the close: a forked process may have the descriptor, too. */
    while (kernel->lock_file(kernel, listener->lock_fd, false) == -EINTR) {}
    (void)kernel->close(kernel, listener->lock_fd);
}

/* ---- Opening ---- */

static int set_option(const struct kernel *kernel, int fd, int level, int name)
{
    const int on = 1;
    return kernel->setsockopt(kernel, fd, level, name, &on, sizeof on);
}

/* Accepted sockets inherit TCP_NODELAY from the one that listens. */
static int set_tcp_options(const struct kernel *kernel, int fd, bool share_port)
{
    int r = set_option(kernel, fd, SOL_SOCKET, SO_REUSEADDR);
    if (r == 0) r = set_option(kernel, fd, IPPROTO_TCP, TCP_NODELAY);
    if (r == 0 && share_port) r = set_option(kernel, fd, SOL_SOCKET, SO_REUSEPORT);
    return r;
}

static int bind_socket(weir_listener *listener, int fd)
{
    const struct kernel *kernel = listener->head.runtime->kernel;
    weir_address *address = &listener->address;
    const char *path = file_path(address);
    int r = path ? take_lock(listener) : 0;

    if (r < 0) return r;
    r = kernel->bind(kernel, fd, (const struct sockaddr *)&address->storage, address->bytes);
    if (r == -EADDRINUSE) r = replace_stale(kernel, fd, address);
    if (r < 0) return r;
    if (path) {
        r = identify(kernel, path, &listener->file);
        if (r < 0) {
            remove_file(kernel, path);
            return r;
        }
        listener->has_file = true;
    }
    return 0;
}

/* Open socket number `count`; the first one finds the port that the others share. */
static int add_slot(weir_listener *listener, int backlog, bool share_port)
{
    const struct kernel *kernel = listener->head.runtime->kernel;
    struct slot *slot = &listener->slots[listener->count];
    enum weir_transport transport = listener->address.transport;
    int r;

    slot->fd = kernel->socket(kernel, listener->address.storage.ss_family, SOCK_STREAM, 0);
    if (slot->fd < 0) return slot->fd;
    r = transport == WEIR_TCP ? set_tcp_options(kernel, slot->fd, share_port) : 0;
    if (r < 0) goto fail_close;
    r = pollable_new(slot->fd, &slot->pollable);
    if (r < 0) goto fail_close;
    r = bind_socket(listener, slot->fd);
    if (r == 0) r = kernel->listen(kernel, slot->fd, backlog);
    if (r == 0 && listener->count == 0) {
        r = address_of_socket(kernel, slot->fd, false, transport, &listener->address);
    }
    if (r < 0) goto fail_pollable;
    listener->count++;
    return 0;

fail_pollable:
    pollable_free(slot->pollable, "weir_listen");
fail_close:
    (void)kernel->close(kernel, slot->fd);
    return r;
}

static int check_spec(const weir_listen_spec *spec, weir_address *ret_address)
{
    int r;

    if (!spec->address) return refuse("listen: address is not set");
    r = weir_address_parse(spec->address, ret_address);
    if (r < 0) return r;
    if (ret_address->transport == WEIR_UDP) {
        return refuse("listen '%.*s': address must be tcp: or unix: (datagrams are for "
                      "weir_udp_open)",
                      WEIR_ADDRESS_TEXT_MAX, spec->address);
    }
    if (spec->backlog < 0) {
        return refuse("listen '%.*s': backlog is negative", WEIR_ADDRESS_TEXT_MAX, spec->address);
    }
    if (spec->per_worker && ret_address->transport != WEIR_TCP) {
        return refuse("listen '%.*s': per_worker is for tcp: only", WEIR_ADDRESS_TEXT_MAX,
                      spec->address);
    }
    return 0;
}

int weir_listen_sized(size_t spec_bytes, const weir_listen_spec *given,
                      weir_listener **ret_listener)
{
    struct worker *worker = worker_self();
    weir_listen_spec spec;
    weir_address address;
    weir_listener *listener;
    unsigned count;
    int r;

    if (!worker) return refuse_no_task("weir_listen");
    spec_copy(&spec, sizeof spec, given, spec_bytes);
    r = check_spec(&spec, &address);
    if (r < 0) return r;
    if (spec.backlog == 0) spec.backlog = WEIR_BACKLOG_DEFAULT;
    count = spec.per_worker ? worker->runtime->worker_count : 1;
    listener = mem_alloc_zeroed(sizeof *listener + count * sizeof listener->slots[0]);
    if (!listener) return -ENOMEM;
    r = io_head_init(&listener->head, HANDLE_LISTENER);
    if (r < 0) {
        mem_free(listener);
        return r;
    }
    listener->address = address;
    listener->lock_fd = -1;
    while (listener->count < count) {
        r = add_slot(listener, spec.backlog, count > 1);
        if (r < 0) {
            weir_listener_close(listener->head.handle);
            return r;
        }
    }
    *ret_listener = listener->head.handle;
    return 0;
}

/* ---- Adopting ---- */

static int ask_option(const struct kernel *kernel, int fd, int name, int *ret_value)
{
    socklen_t bytes = sizeof *ret_value;
    return kernel->getsockopt(kernel, fd, SOL_SOCKET, name, ret_value, &bytes);
}

/* What it is bound to, if it is a socket that we can accept on. */
static int check_listening(const struct kernel *kernel, int fd, weir_address *ret_address)
{
    int type = 0, listens = 0;
    int r = ask_option(kernel, fd, SO_TYPE, &type);

    if (r == -ENOTSOCK) return refuse("listen on descriptor %d: it is no socket", fd);
    if (r == 0) r = ask_option(kernel, fd, SO_ACCEPTCONN, &listens);
    if (r < 0) return r;
    if (type != SOCK_STREAM || !listens) {
        return refuse("listen on descriptor %d: the socket does not listen for streams", fd);
    }
    r = address_of_socket(kernel, fd, false, WEIR_TCP, ret_address);
    if (r == -EAFNOSUPPORT) {
        return refuse("listen on descriptor %d: the socket is neither TCP nor unix", fd);
    }
    return r;
}

static int adopt_slot(weir_listener *listener, int fd)
{
    const struct kernel *kernel = listener->head.runtime->kernel;
    struct slot *slot = &listener->slots[0];
    int r = kernel->set_nonblocking(kernel, fd);

    if (r == 0 && listener->address.transport == WEIR_TCP) {
        r = set_option(kernel, fd, IPPROTO_TCP, TCP_NODELAY);
    }
    if (r == 0) r = pollable_new(fd, &slot->pollable);
    if (r < 0) return r;
    slot->fd = fd;
    listener->count = 1;
    return 0;
}

int weir_listener_from_fd(int take_fd, weir_listener **ret_listener)
{
    struct worker *worker = worker_self();
    weir_listener *listener;
    weir_address address;
    int r;

    if (!worker) return refuse_no_task("weir_listener_from_fd");
    r = check_listening(worker->kernel, take_fd, &address);
    if (r < 0) return r;
    listener = mem_alloc_zeroed(sizeof *listener + sizeof listener->slots[0]);
    if (!listener) return -ENOMEM;
    r = io_head_init(&listener->head, HANDLE_LISTENER);
    if (r < 0) {
        mem_free(listener);
        return r;
    }
    listener->address = address;
    listener->lock_fd = -1;
    r = adopt_slot(listener, take_fd);
    if (r < 0) {
        weir_listener_close(listener->head.handle); /* which has no socket */
        return r;
    }
    *ret_listener = listener->head.handle;
    return 0;
}

/* ---- Closing and asking ---- */

void weir_listener_close(weir_listener *handle)
{
    const struct kernel *kernel;
    weir_listener *listener;

    if (!handle) return;
    listener = io_check(handle, HANDLE_LISTENER, "weir_listener_close");
    kernel = listener->head.runtime->kernel;
    for (unsigned i = 0; i < listener->count; i++) {
        const struct task *acceptor = atom_load_acquire(&listener->slots[i].acceptor);
        if (acceptor) {
            misuse("weir_listener_close: task '%s' is accepting on it (descriptor %d)",
                   acceptor->name, listener->slots[i].fd);
        }
    }
    io_head_deinit(&listener->head);
    /* The file first: see the top. */
    if (listener->has_file) {
        const char *path = file_path(&listener->address);
        if (is_same_file(kernel, path, &listener->file)) remove_file(kernel, path);
    }
    give_lock_back(listener);
    for (unsigned i = 0; i < listener->count; i++) {
        pollable_free(listener->slots[i].pollable, "weir_listener_close");
        (void)kernel->close(kernel, listener->slots[i].fd);
    }
    mem_free(listener);
}

int weir_listener_address(const weir_listener *handle, weir_address *ret_address)
{
    const weir_listener *listener = io_check_open(handle, HANDLE_LISTENER, "weir_listener_address");
    *ret_address = listener->address;
    return 0;
}

/* ---- Accepting ---- */

/* The connection that was next is gone or broken, and the one after it may be good:
 * accept(2) lists these. */
static bool concerns_one_connection(int error)
{
    switch (error) {
    case -ECONNABORTED:
    case -EPROTO:
    case -ENETDOWN:
    case -ENOPROTOOPT:
    case -EHOSTDOWN:
    case -ENONET:
    case -EHOSTUNREACH:
    case -EOPNOTSUPP:
    case -ENETUNREACH: return true;
    default: return false;
    }
}

/* Always tried first: a connection that was left in the backlog for want of
 * descriptors makes no new edge. */
static int accept_fd(struct task *self, struct slot *slot)
{
    bool waited = false;

    for (;;) {
        const struct kernel *kernel = worker_self()->kernel;
        int r =
            PLANTED(ACCEPT_ONE_PER_EDGE) && !waited ? -EAGAIN : kernel->accept(kernel, slot->fd);
        if (r == -EINTR) continue;
        if (r == -EAGAIN) {
            r = io_wait(self, slot->pollable, READY_IN, &wait_accept);
            if (PLANTED(ACCEPT_ONE_PER_EDGE)) waited = true;
        } else if (concerns_one_connection(r)) {
            r = task_enter(self, ENTER_TAKE_WORK); /* a flood of these must not hold the worker */
        } else {
            return r;
        }
        if (r < 0) return r;
    }
}

int weir_accept(weir_listener *handle, weir_conn **ret_conn)
{
    struct task *self = task_self();
    weir_listener *listener;
    struct slot *slot;
    weir_conn *conn;
    int r;

    if (!self) return refuse_no_task("weir_accept");
    r = task_enter(self, ENTER_TAKE_WORK);
    if (r < 0) return r;
    listener = io_check(handle, HANDLE_LISTENER, "weir_accept"); /* after the yield, see io.h */
    slot = &listener->slots[listener->count > 1 ? worker_self()->index : 0];
    if (!io_claim_take(&slot->acceptor, listener->head.runtime->shared, self)) return WEIR_EINUSE;
    r = conn_prepare(&conn);
    if (r < 0) goto out;
    r = accept_fd(self, slot);
    if (r < 0) {
        conn_abandon(conn);
        goto out;
    }
    conn_adopt(conn, r, true, listener->address.transport);
    *ret_conn = conn->head.handle;
    r = 0;
out:
    io_claim_give_back(&slot->acceptor);
    return r;
}

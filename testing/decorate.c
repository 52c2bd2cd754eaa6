/* decorate.c - the table of rt/kernel.h between the library and the kernel.
 *
 * One table does everything that a test can ask for: calls that fail (faults.c),
 * short transfers, masked features, choices, and time (clock.c). What it does not
 * change it passes on to the backend that would have been used without it.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "rt/kernel.h"
#include "testing/harness.h"

enum {
    QUEUES_MAX = 1024,
    ADVICE_GUARD_INSTALL = 102, /* MADV_GUARD_INSTALL, which libc's headers may lack */
    ADVICE_GUARD_REMOVE = 103,
    MANUAL_WAIT_NS = 1000000000, /* real time, until somebody moves the clock */
};

/* An open queue, and whether it was woken since its last wait. Rows change hands
 * under the mutex; who uses a queue that is open finds its row without it, since
 * a wake-up may come from a signal handler. */
struct decorated_queue {
    ATOM(struct kernel_queue *) queue;
    ATOM(bool) woken;
};

static const struct kernel *base;
static struct kernel table;
static ATOM(int64_t) mapped_bytes;
static pthread_mutex_t queues_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct decorated_queue queues[QUEUES_MAX];

/* A call that fails when it is told to, and is passed on otherwise. */
#define PASS_ON(type, name, parameters, ...)                       \
    static type decorated_##name parameters                        \
    {                                                              \
        int error = fault_take(CALL_##name);                       \
        (void)kernel;                                              \
        return error != 0 ? error : base->name(base, __VA_ARGS__); \
    }
#define KERNEL const struct kernel *kernel

PASS_ON(int, thread_start, (KERNEL, pthread_t *ret_thread, void *(*fn)(void *), void *arg),
        ret_thread, fn, arg)
PASS_ON(int, thread_look, (KERNEL, pid_t thread, struct kernel_thread *ret_look), thread, ret_look)
PASS_ON(int, thread_signal, (KERNEL, pid_t thread, int signo), thread, signo)
PASS_ON(int, read_memory, (KERNEL, const void *address, void *data, size_t bytes), address, data,
        bytes)
PASS_ON(int, protect, (KERNEL, void *memory, size_t bytes, int protection), memory, bytes,
        protection)
PASS_ON(int, socket, (KERNEL, int domain, int type, int protocol), domain, type, protocol)
PASS_ON(int, socketpair, (KERNEL, int domain, int type, int ret_fds[2]), domain, type, ret_fds)
PASS_ON(int, pipe, (KERNEL, int ret_fds[2]), ret_fds)
PASS_ON(int, bind, (KERNEL, int fd, const struct sockaddr *address, socklen_t bytes), fd, address,
        bytes)
PASS_ON(int, readable, (KERNEL, int fd), fd)
PASS_ON(int, listen, (KERNEL, int fd, int backlog), fd, backlog)
PASS_ON(int, accept, (KERNEL, int fd), fd)
PASS_ON(int, connect, (KERNEL, int fd, const struct sockaddr *address, socklen_t bytes), fd,
        address, bytes)
PASS_ON(int, getsockopt, (KERNEL, int fd, int level, int name, void *value, socklen_t *bytes), fd,
        level, name, value, bytes)
PASS_ON(int, setsockopt, (KERNEL, int fd, int level, int name, const void *value, socklen_t bytes),
        fd, level, name, value, bytes)
PASS_ON(int, getsockname, (KERNEL, int fd, struct sockaddr *address, socklen_t *bytes), fd, address,
        bytes)
PASS_ON(int, getpeername, (KERNEL, int fd, struct sockaddr *address, socklen_t *bytes), fd, address,
        bytes)
PASS_ON(int, set_nonblocking, (KERNEL, int fd), fd)
PASS_ON(int, shutdown, (KERNEL, int fd, int how), fd, how)
PASS_ON(int, getaddrinfo,
        (KERNEL, const char *host, const char *service, const struct addrinfo *hints,
         struct addrinfo **ret_list),
        host, service, hints, ret_list)
PASS_ON(int, open, (KERNEL, const char *path, int flags, mode_t mode), path, flags, mode)
PASS_ON(int, fsync, (KERNEL, int fd, bool data_only), fd, data_only)
PASS_ON(int, truncate, (KERNEL, int fd, int64_t bytes), fd, bytes)
PASS_ON(int, fstat, (KERNEL, int fd, struct stat *ret_stat), fd, ret_stat)
PASS_ON(int, stat, (KERNEL, const char *path, struct stat *ret_stat), path, ret_stat)
PASS_ON(int, rename, (KERNEL, const char *from, const char *to), from, to)
PASS_ON(int, unlink, (KERNEL, const char *path), path)
PASS_ON(int, mkdir, (KERNEL, const char *path, mode_t mode), path, mode)
PASS_ON(int, list_directory,
        (KERNEL, const char *path, int (*entry)(void *arg, const char *name), void *arg), path,
        entry, arg)
PASS_ON(int, process_start,
        (KERNEL, const struct process_plan *plan, struct process_made *ret_made), plan, ret_made)
PASS_ON(int, process_signal, (KERNEL, int pidfd, pid_t group, int signo), pidfd, group, signo)
PASS_ON(int, process_reap, (KERNEL, int pidfd, pid_t group, bool wait, struct process_end *ret_end),
        pidfd, group, wait, ret_end)
PASS_ON(int, duplicate, (KERNEL, int fd), fd)
PASS_ON(ssize_t, pread, (KERNEL, int fd, void *data, size_t bytes, int64_t offset), fd, data,
        fault_bytes_max(bytes), offset)
PASS_ON(ssize_t, pread_cached, (KERNEL, int fd, void *data, size_t bytes, int64_t offset), fd, data,
        fault_bytes_max(bytes), offset)
PASS_ON(ssize_t, pwrite, (KERNEL, int fd, const void *data, size_t bytes, int64_t offset), fd, data,
        fault_bytes_max(bytes), offset)

static int decorated_close(KERNEL, int fd)
{
    int error = fault_take(CALL_close);
    int r = base->close(base, fd);

    (void)kernel;
    /* Whoever closed again after it would close somebody else's: it is never given. */
    return error != 0 && error != -EINTR ? error : r;
}

/* ---- Transfers: shortened on streams ---- */

static bool is_datagram(int fd)
{
    int type = 0;
    socklen_t bytes = sizeof type;

    return base->getsockopt(base, fd, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0 &&
           type != SOCK_STREAM;
}

static size_t transfer_max(int fd, size_t bytes)
{
    size_t bytes_max = fault_bytes_max(bytes);

    return bytes_max == bytes || is_datagram(fd) ? bytes : bytes_max;
}

/* Shorten a vector to what its first part with data may move; false to leave it. */
static bool transfer_first(int fd, const struct iovec *parts, size_t count, struct iovec *ret_part)
{
    size_t i = 0;

    if (fault_bytes_max(SIZE_MAX) == SIZE_MAX || is_datagram(fd)) return false;
    while (i < count && parts[i].iov_len == 0) i++;
    if (i == count) return false;
    *ret_part = (struct iovec){parts[i].iov_base, fault_bytes_max(parts[i].iov_len)};
    return true;
}

PASS_ON(ssize_t, read, (KERNEL, int fd, void *data, size_t bytes), fd, data,
        transfer_max(fd, bytes))
PASS_ON(ssize_t, write, (KERNEL, int fd, const void *data, size_t bytes), fd, data,
        transfer_max(fd, bytes))
PASS_ON(ssize_t, recv, (KERNEL, int fd, void *data, size_t bytes, int flags), fd, data,
        transfer_max(fd, bytes), flags)
PASS_ON(ssize_t, send, (KERNEL, int fd, const void *data, size_t bytes, int flags), fd, data,
        transfer_max(fd, bytes), flags)

static ssize_t decorated_readv(KERNEL, int fd, const struct iovec *parts, int count)
{
    int error = fault_take(CALL_readv);
    struct iovec first;

    (void)kernel;
    if (error != 0) return error;
    if (!transfer_first(fd, parts, (size_t)count, &first))
        return base->readv(base, fd, parts, count);
    return base->readv(base, fd, &first, 1);
}

static ssize_t decorated_writev(KERNEL, int fd, const struct iovec *parts, int count)
{
    int error = fault_take(CALL_writev);
    struct iovec first;

    (void)kernel;
    if (error != 0) return error;
    if (!transfer_first(fd, parts, (size_t)count, &first))
        return base->writev(base, fd, parts, count);
    return base->writev(base, fd, &first, 1);
}

static ssize_t decorated_recvmsg(KERNEL, int fd, struct msghdr *message, int flags)
{
    int error = fault_take(CALL_recvmsg);
    struct msghdr shorter = *message;
    struct iovec first;
    ssize_t r;

    (void)kernel;
    if (error != 0) return error;
    if (!transfer_first(fd, message->msg_iov, message->msg_iovlen, &first))
        return base->recvmsg(base, fd, message, flags);
    shorter.msg_iov = &first;
    shorter.msg_iovlen = 1;
    r = base->recvmsg(base, fd, &shorter, flags);
    message->msg_namelen = shorter.msg_namelen;
    message->msg_controllen = shorter.msg_controllen;
    message->msg_flags = shorter.msg_flags;
    return r;
}

static ssize_t decorated_sendmsg(KERNEL, int fd, const struct msghdr *message, int flags)
{
    int error = fault_take(CALL_sendmsg);
    struct msghdr shorter = *message;
    struct iovec first;

    (void)kernel;
    if (error != 0) return error;
    if (!transfer_first(fd, message->msg_iov, message->msg_iovlen, &first))
        return base->sendmsg(base, fd, message, flags);
    shorter.msg_iov = &first;
    shorter.msg_iovlen = 1;
    return base->sendmsg(base, fd, &shorter, flags);
}

/* ---- Mappings: counted, and without the newest kernel's features if asked ---- */

static void *decorated_map(KERNEL, size_t bytes)
{
    void *memory;

    (void)kernel;
    if (fault_take(CALL_map) != 0) return NULL;
    memory = base->map(base, bytes);
    if (memory != NULL) atom_add(&mapped_bytes, (int64_t)bytes);
    return memory;
}

static void decorated_unmap(KERNEL, void *memory, size_t bytes)
{
    (void)kernel;
    atom_sub(&mapped_bytes, (int64_t)bytes);
    base->unmap(base, memory, bytes);
}

static int decorated_advise(KERNEL, void *memory, size_t bytes, int advice)
{
    int error = fault_take(CALL_advise);
    bool guard = advice == ADVICE_GUARD_INSTALL || advice == ADVICE_GUARD_REMOVE;

    (void)kernel;
    if (error != 0) return error;
    if (guard && fault_guard_masked()) return -EINVAL;
    return base->advise(base, memory, bytes, advice);
}

void decorate_short_reads(bool are_short)
{
    table.short_recv_drains = base->short_recv_drains && !are_short;
}

int64_t decorate_mapped_bytes(void)
{
    return atom_load(&mapped_bytes);
}

/* ---- Queues and time ---- */

static int64_t decorated_now_ns(KERNEL)
{
    (void)kernel;
    return clock_mode() == CLOCK_MODE_REAL ? base->now_ns(base) : clock_now_ns();
}

int64_t decorate_now_ns(void)
{
    return decorated_now_ns(base);
}

static int64_t decorated_wall_ns(KERNEL)
{
    int64_t ahead_ns = clock_wall_ahead_ns();

    return ahead_ns == 0 ? base->wall_ns(base) : decorated_now_ns(kernel) + ahead_ns;
}

static int64_t decorated_thread_cpu_ns(KERNEL, clockid_t clock)
{
    int error = fault_take(CALL_thread_cpu_ns);

    (void)kernel;
    if (error != 0) return error;
    return clock_mode() == CLOCK_MODE_REAL ? base->thread_cpu_ns(base, clock) : -ENOSYS;
}

/* The row of a queue, or a free one for NULL. */
static struct decorated_queue *queue_row(const struct kernel_queue *queue)
{
    for (int i = 0; i < QUEUES_MAX; i++)
        if (atom_load_acquire(&queues[i].queue) == queue) return &queues[i];
    WEIR_TEST_FAIL("more than %d queues are open", QUEUES_MAX);
}

static int decorated_queue_open(KERNEL, struct kernel_queue **ret_queue)
{
    int error = fault_take(CALL_queue_open);
    int r = error != 0 ? error : base->queue_open(base, ret_queue);
    struct decorated_queue *row;

    (void)kernel;
    if (r < 0) return r;
    pthread_mutex_lock(&queues_mutex);
    row = queue_row(NULL);
    atom_store(&row->woken, false);
    atom_store_release(&row->queue, *ret_queue);
    pthread_mutex_unlock(&queues_mutex);
    return r;
}

static void decorated_queue_close(struct kernel_queue *queue)
{
    pthread_mutex_lock(&queues_mutex);
    if (queue != NULL) atom_store_release(&queue_row(queue)->queue, NULL);
    pthread_mutex_unlock(&queues_mutex);
    base->queue_close(queue);
}

static int decorated_queue_watch(struct kernel_queue *queue, int fd, uint64_t tag)
{
    int error = fault_take(CALL_queue_watch);

    return error != 0 ? error : base->queue_watch(queue, fd, tag);
}

static bool queue_take_woken(const struct kernel_queue *queue)
{
    return atom_exchange(&queue_row(queue)->woken, false);
}

static int decorated_queue_wait(struct kernel_queue *queue, int64_t timeout_ns,
                                struct kernel_event *events, int events_max)
{
    int n;

    if (fault_take(CALL_queue_wait) != 0) return 0;
    switch (clock_mode()) {
    case CLOCK_MODE_REAL: break;
    case CLOCK_MODE_MANUAL:
        /* The end of the wait comes by test_clock_advance_*, which wakes us. */
        if (timeout_ns > 0) timeout_ns = MANUAL_WAIT_NS;
        break;
    case CLOCK_MODE_AUTO:
        n = base->queue_wait(queue, 0, events, events_max);
        /* Somebody who wakes the worker has something for it to do now. */
        if (n == 0 && timeout_ns > 0 && !queue_take_woken(queue)) clock_add_ns(timeout_ns);
        return n;
    }
    return base->queue_wait(queue, timeout_ns, events, events_max);
}

static void decorated_queue_wake(struct kernel_queue *queue)
{
    atom_store(&queue_row(queue)->woken, true);
    base->queue_wake(queue);
}

void decorate_wake_all(void)
{
    pthread_mutex_lock(&queues_mutex);
    for (int i = 0; i < QUEUES_MAX; i++) {
        struct kernel_queue *queue = atom_load_acquire(&queues[i].queue);

        if (queue == NULL) continue;
        atom_store(&queues[i].woken, true);
        base->queue_wake(queue);
    }
    pthread_mutex_unlock(&queues_mutex);
}

/* The kernel's timers know real time only: a manual time has come or never comes
 * by itself. When it is moved, the wake-up makes the descriptor readable. */
static int decorated_queue_arm(struct kernel_queue *queue, int64_t at_ns)
{
    int error = fault_take(CALL_queue_arm);

    if (error != 0) return error;
    if (clock_mode() != CLOCK_MODE_REAL) at_ns = at_ns <= clock_now_ns() ? 0 : INT64_MAX;
    return base->queue_arm(queue, at_ns);
}

static unsigned decorated_choose(KERNEL, enum choice kind, unsigned n)
{
    return fault_choose(kernel, (int)kind, n);
}

void decorate_choose(bool on)
{
    table.choose = on ? decorated_choose : base->choose;
}

/* ---- File calls by completion: they fail as the calls that they stand for ---- */

static const enum fault_call file_calls[KERNEL_FILE_KINDS] = {
    [KERNEL_FILE_OPEN] = CALL_open,     [KERNEL_FILE_READ] = CALL_pread,
    [KERNEL_FILE_WRITE] = CALL_pwrite,  [KERNEL_FILE_SYNC] = CALL_fsync,
    [KERNEL_FILE_STAT] = CALL_fstat,    [KERNEL_PATH_STAT] = CALL_stat,
    [KERNEL_PATH_RENAME] = CALL_rename, [KERNEL_PATH_UNLINK] = CALL_unlink,
    [KERNEL_PATH_MKDIR] = CALL_mkdir,
};

static int decorated_queue_submit(struct kernel_queue *queue, struct kernel_file_op *op)
{
    int error;

    /* A thread would try an interrupted call again: so does the kernel. */
    do error = fault_take(file_calls[op->kind]);
    while (error == -EINTR);
    if (error != 0) {
        op->result = error;
        return 1;
    }
    op->bytes = fault_bytes_max(op->bytes);
    return base->queue_submit(queue, op);
}

/* ---- The table ---- */

const struct kernel *test_backend(void)
{
    const char *name = getenv("WEIR_TEST_BACKEND");
    const struct kernel *kernel;

    if (name == NULL || name[0] == '\0') return NULL;
    kernel = kernel_select(name);
    if (kernel == NULL) WEIR_TEST_FAIL("there is no backend '%s'", name);
    return kernel;
}

void test_kernel_install(void)
{
    if (base != NULL) return;
    base = test_backend();
    if (base == NULL) base = kernel_select(NULL);
    table = *base;
    table.name = "decorated";
    table.now_ns = decorated_now_ns;
    table.wall_ns = decorated_wall_ns;
    table.coarse_now_ns = NULL; /* one clock only */
    table.advise_many = NULL;   /* every advice can fail by itself */
    table.unmap = decorated_unmap;
    table.queue_close = decorated_queue_close;
    table.queue_wake = decorated_queue_wake;
    if (base->queue_submit != NULL) table.queue_submit = decorated_queue_submit;
#define DECORATE(name_) table.name_ = decorated_##name_;
    FAULT_CALLS(DECORATE)
#undef DECORATE
    kernel_override(&table);
}

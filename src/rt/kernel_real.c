/* kernel_real.c - the system calls behind rt/kernel.h that do not belong to a queue,
 * and the choice of the backend. */
#include "rt/kernel_real.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>
#include <weir/error.h>

#include "base/atomic.h"

/* ---- Which table ---- */

static ATOM(const struct kernel *) kernel_overriding;

const struct kernel *kernel_select(const char *backend)
{
    const struct kernel *overriding = atom_load_acquire(&kernel_overriding);

    if (overriding != NULL) return overriding;
    if (backend == NULL) return kernel_uring != NULL ? kernel_uring : &kernel_epoll;
    if (strcmp(backend, kernel_epoll.name) == 0) return &kernel_epoll;
    if (kernel_uring != NULL && strcmp(backend, kernel_uring->name) == 0) return kernel_uring;
    return NULL;
}

const struct kernel *kernel_instead(const struct kernel *kernel, int error)
{
    /* What both need alike is missing for both. */
    if (kernel != kernel_uring || error == -EMFILE || error == -ENFILE) return NULL;
    return &kernel_epoll;
}

const char *kernel_why(const struct kernel *kernel, int error)
{
    if (kernel == kernel_uring && kernel_uring != NULL) {
        switch (error) {
        case -EPERM:
        case -EACCES: return "a sandbox or kernel.io_uring_disabled forbids io_uring_setup";
        case -ENOSYS: return "this kernel has no io_uring";
        case -ENOMEM: return "no memory for its rings (older kernels: see RLIMIT_MEMLOCK)";
        case -EINVAL: return "this kernel's io_uring is too old (it needs Linux 5.13)";
        default: break;
        }
    }
    return weir_strerror(error);
}

#if !defined(WEIR_HAVE_URING)
const struct kernel *const kernel_uring = NULL;
#endif

struct kernel_uring_limits kernel_uring_limits;

void kernel_uring_limit(const struct kernel_uring_limits *limits)
{
    kernel_uring_limits = *limits;
}

void kernel_override(const struct kernel *keep_kernel)
{
    atom_store_release(&kernel_overriding, keep_kernel);
}

const struct kernel *kernel_current(void)
{
    const struct kernel *overriding = atom_load_acquire(&kernel_overriding);

    /* The backends differ in their queues only. */
    return overriding != NULL ? overriding : &kernel_epoll;
}

/* ---- Results: what the system call gave, or -errno ---- */

static inline int result(int r)
{
    return r < 0 ? -errno : r;
}

static inline ssize_t result_bytes(ssize_t r)
{
    return r < 0 ? -errno : r;
}

/* ---- Time and chance ---- */

int64_t real_now_ns(const struct kernel *kernel)
{
    struct timespec now;

    (void)kernel;
    /* Cannot fail: the clock exists and the pointer is good. */
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t real_coarse_now_ns(const struct kernel *kernel)
{
    struct timespec now;

    (void)kernel;
    /* Cannot fail: the clock exists and the pointer is good. */
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t real_wall_ns(const struct kernel *kernel)
{
    struct timespec now;

    (void)kernel;
    /* Cannot fail: the clock exists and the pointer is good. */
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void real_random(const struct kernel *kernel, void *data, size_t bytes)
{
    char *at = data;

    (void)kernel;
    while (bytes > 0) {
        ssize_t n = getrandom(at, bytes, 0);

        if (n < 0) {
            /* Every other error means that the call is not there at all. */
            assert(errno == EINTR);
            continue;
        }
        at += n;
        bytes -= (size_t)n;
    }
}

int real_timer_set(int timer_fd, int64_t at_ns)
{
    struct itimerspec at = {{0, 0}, {0, 0}};

    if (at_ns != INT64_MAX) {
        /* Zero would disarm it, and less is refused: both mean "now". */
        int64_t positive_ns = at_ns > 0 ? at_ns : 1;

        at.it_value.tv_sec = positive_ns / 1000000000;
        at.it_value.tv_nsec = positive_ns % 1000000000;
    }
    return result(timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &at, NULL));
}

/* ---- Threads ---- */

int real_thread_start(const struct kernel *kernel, pthread_t *ret_thread, void *(*fn)(void *),
                      void *arg)
{
    (void)kernel;
    return -pthread_create(ret_thread, NULL, fn, arg);
}

int real_thread_join(const struct kernel *kernel, pthread_t thread)
{
    (void)kernel;
    return -pthread_join(thread, NULL);
}

/* Of <linux/futex.h>, which musl does not bring. */
enum { BELL_WAIT = 0 | 128, BELL_WAKE = 1 | 128 }; /* within this process */

/* By futex, not by a condition of the C library: glibc's wakes a waiter once more for each group
 * of them that ends, and a signal may wait for such a group, each a system call or two.
 *
 * No ring is lost: what is waited for is changed under the mutex, before the ring. Who has not
 * seen the change has counted itself and read `rings` before it let go of the mutex, so that
 * the ring finds it counted, and wakes it or has changed `rings` before it sleeps. */
int real_thread_wait(const struct kernel *kernel, struct kernel_bell *bell, pthread_mutex_t *mutex,
                     int64_t timeout_ns)
{
    struct timespec timeout = {.tv_sec = timeout_ns / 1000000000,
                               .tv_nsec = timeout_ns % 1000000000};
    uint32_t seen = atom_load(&bell->rings);
    long r;

    (void)kernel;
    atom_store(&bell->waiting, atom_load(&bell->waiting) + 1);
    (void)pthread_mutex_unlock(mutex);
    r = syscall(SYS_futex, &bell->rings, BELL_WAIT, seen, timeout_ns < 0 ? NULL : &timeout, NULL,
                0);
    if (r < 0) r = -errno;
    (void)pthread_mutex_lock(mutex);
    atom_store(&bell->waiting, atom_load(&bell->waiting) - 1);
    return r == -ETIMEDOUT ? -ETIMEDOUT : 0;
}

void real_thread_notify(const struct kernel *kernel, struct kernel_bell *bell, bool all)
{
    (void)kernel;
    (void)atom_add(&bell->rings, 1);
    if (atom_load(&bell->waiting) == 0) return;
    (void)syscall(SYS_futex, &bell->rings, BELL_WAKE, all ? INT_MAX : 1, NULL, NULL, 0);
}

void real_thread_yield(const struct kernel *kernel)
{
    (void)kernel;
    (void)sched_yield();
}

/* ---- Memory for stacks ---- */

void *real_map(const struct kernel *kernel, size_t bytes)
{
    void *memory;

    (void)kernel;
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void real_unmap(const struct kernel *kernel, void *memory, size_t bytes)
{
    int r = munmap(memory, bytes);

    (void)kernel;
    /* Unmapping the middle of a mapping could need one more of them, but stacks
     * go back in whole mappings: a failure is a wrong address of ours. */
    assert(r == 0);
    (void)r;
}

int real_advise(const struct kernel *kernel, void *memory, size_t bytes, int advice)
{
    (void)kernel;
    return result(madvise(memory, bytes, advice));
}

/* By process_madvise on ourselves: one system call instead of one for each range. Older
 * kernels and sandboxes refuse it, and the caller goes the long way. */
int real_advise_many(const struct kernel *kernel, const struct iovec *ranges, int count, int advice)
{
    ssize_t wanted = 0;
    ssize_t done;
    int self;
    int r = 0;

    (void)kernel;
    for (int i = 0; i < count; i++) wanted += (ssize_t)ranges[i].iov_len;
    self = (int)syscall(SYS_pidfd_open, getpid(), 0); /* close-on-exec by itself */
    if (self < 0) return -errno;
    done = syscall(SYS_process_madvise, self, ranges, (size_t)count, advice, 0);
    if (done != wanted) r = done < 0 ? -errno : -EINVAL;
    (void)close(self);
    return r;
}

int real_protect(const struct kernel *kernel, void *memory, size_t bytes, int protection)
{
    (void)kernel;
    return result(mprotect(memory, bytes, protection));
}

/* ---- Sockets and pipes ---- */

int real_socket(const struct kernel *kernel, int domain, int type, int protocol)
{
    (void)kernel;
    return result(socket(domain, type | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol));
}

int real_socketpair(const struct kernel *kernel, int domain, int type, int ret_fds[2])
{
    (void)kernel;
    return result(socketpair(domain, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ret_fds));
}

int real_pipe(const struct kernel *kernel, int ret_fds[2])
{
    (void)kernel;
    return result(pipe2(ret_fds, O_NONBLOCK | O_CLOEXEC));
}

int real_bind(const struct kernel *kernel, int fd, const struct sockaddr *address, socklen_t bytes)
{
    (void)kernel;
    return result(bind(fd, address, bytes));
}

int real_listen(const struct kernel *kernel, int fd, int backlog)
{
    (void)kernel;
    return result(listen(fd, backlog));
}

int real_accept(const struct kernel *kernel, int fd)
{
    (void)kernel;
    return result(accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

int real_connect(const struct kernel *kernel, int fd, const struct sockaddr *address,
                 socklen_t bytes)
{
    (void)kernel;
    return result(connect(fd, address, bytes));
}

int real_getsockopt(const struct kernel *kernel, int fd, int level, int name, void *value,
                    socklen_t *bytes)
{
    (void)kernel;
    return result(getsockopt(fd, level, name, value, bytes));
}

int real_setsockopt(const struct kernel *kernel, int fd, int level, int name, const void *value,
                    socklen_t bytes)
{
    (void)kernel;
    return result(setsockopt(fd, level, name, value, bytes));
}

int real_getsockname(const struct kernel *kernel, int fd, struct sockaddr *address,
                     socklen_t *bytes)
{
    (void)kernel;
    return result(getsockname(fd, address, bytes));
}

int real_getpeername(const struct kernel *kernel, int fd, struct sockaddr *address,
                     socklen_t *bytes)
{
    (void)kernel;
    return result(getpeername(fd, address, bytes));
}

int real_set_nonblocking(const struct kernel *kernel, int fd)
{
    int flags = fcntl(fd, F_GETFL);

    (void)kernel;
    if (flags < 0) return -errno;
    if (flags & O_NONBLOCK) return 0;
    return result(fcntl(fd, F_SETFL, flags | O_NONBLOCK));
}

ssize_t real_read(const struct kernel *kernel, int fd, void *data, size_t bytes)
{
    (void)kernel;
    return result_bytes(read(fd, data, bytes));
}

ssize_t real_readv(const struct kernel *kernel, int fd, const struct iovec *parts, int count)
{
    (void)kernel;
    return result_bytes(readv(fd, parts, count));
}

/* Writing to a pipe that nobody reads raises SIGPIPE, and a library may not change
 * what the process does with it. So it is held back on this thread for the call,
 * and taken away if the call raised it.
 *
 * It was raised by the call only if it could not have been pending before: it
 * could, if the thread had it blocked already. Then it is left for whoever
 * blocked it. */
struct pipe_signal {
    sigset_t set;   /* SIGPIPE alone */
    sigset_t saved; /* the thread's mask */
    bool pending;   /* before the call */
};

static void pipe_signal_hold(struct pipe_signal *hold)
{
    sigset_t pending;

    sigemptyset(&hold->set);
    sigaddset(&hold->set, SIGPIPE);
    hold->pending = false;
    pthread_sigmask(SIG_BLOCK, &hold->set, &hold->saved);
    if (sigismember(&hold->saved, SIGPIPE) == 1 && sigpending(&pending) == 0)
        hold->pending = sigismember(&pending, SIGPIPE) == 1;
}

static void pipe_signal_release(struct pipe_signal *hold, ssize_t r)
{
    const struct timespec at_once = {0, 0};

    if (r == -EPIPE && !hold->pending)
        while (sigtimedwait(&hold->set, NULL, &at_once) < 0 && errno == EINTR)
            ;
    if (sigismember(&hold->saved, SIGPIPE) != 1) pthread_sigmask(SIG_SETMASK, &hold->saved, NULL);
}

static ssize_t write_held(int fd, const struct iovec *parts, int count)
{
    struct pipe_signal hold;
    ssize_t r;

    pipe_signal_hold(&hold);
    r = result_bytes(count == 1 ? write(fd, parts->iov_base, parts->iov_len)
                                : writev(fd, parts, count));
    pipe_signal_release(&hold, r);
    return r;
}

ssize_t real_write(const struct kernel *kernel, int fd, const void *data, size_t bytes)
{
    const struct iovec part = {(void *)(uintptr_t)data, bytes};

    (void)kernel;
    return write_held(fd, &part, 1);
}

ssize_t real_writev(const struct kernel *kernel, int fd, const struct iovec *parts, int count)
{
    (void)kernel;
    return write_held(fd, parts, count);
}

ssize_t real_recv(const struct kernel *kernel, int fd, void *data, size_t bytes, int flags)
{
    (void)kernel;
    return result_bytes(recv(fd, data, bytes, flags));
}

ssize_t real_send(const struct kernel *kernel, int fd, const void *data, size_t bytes, int flags)
{
    (void)kernel;
    return result_bytes(send(fd, data, bytes, flags | MSG_NOSIGNAL));
}

ssize_t real_recvmsg(const struct kernel *kernel, int fd, struct msghdr *message, int flags)
{
    (void)kernel;
    return result_bytes(recvmsg(fd, message, flags | MSG_CMSG_CLOEXEC));
}

ssize_t real_sendmsg(const struct kernel *kernel, int fd, const struct msghdr *message, int flags)
{
    (void)kernel;
    return result_bytes(sendmsg(fd, message, flags | MSG_NOSIGNAL));
}

int real_shutdown(const struct kernel *kernel, int fd, int how)
{
    (void)kernel;
    return result(shutdown(fd, how));
}

int real_readable(const struct kernel *kernel, int fd)
{
    struct pollfd wanted = {.fd = fd, .events = POLLIN | POLLRDHUP};
    int r = poll(&wanted, 1, 0);

    (void)kernel;
    return r < 0 ? -errno : r;
}

int real_ended(const struct kernel *kernel, int fd)
{
    struct pollfd wanted = {.fd = fd, .events = POLLRDHUP};
    int r = poll(&wanted, 1, 0);

    (void)kernel;
    if (r < 0) return -errno;
    return wanted.revents & (POLLRDHUP | POLLHUP | POLLERR) ? 1 : 0;
}

int real_close(const struct kernel *kernel, int fd)
{
    (void)kernel;
    if (close(fd) == 0) return 0;
    /* Linux has released the descriptor when a signal cuts close short: a caller
     * that tried again would close somebody else's. */
    return errno == EINTR ? 0 : -errno;
}

/* ---- Blocking calls ---- */

int real_getaddrinfo(const struct kernel *kernel, const char *host, const char *service,
                     const struct addrinfo *hints, struct addrinfo **ret_list)
{
    int r = getaddrinfo(host, service, hints, ret_list);

    (void)kernel;
    if (r == 0) return 0;
    if (r == EAI_SYSTEM) return errno != 0 ? -errno : -EIO;
    return r < 0 ? -r : r;
}

void real_freeaddrinfo(const struct kernel *kernel, struct addrinfo *list)
{
    (void)kernel;
    if (list != NULL) freeaddrinfo(list);
}

int real_open(const struct kernel *kernel, const char *path, int flags, mode_t mode)
{
    (void)kernel;
    return result(open(path, flags | O_CLOEXEC, mode));
}

ssize_t real_pread(const struct kernel *kernel, int fd, void *data, size_t bytes, int64_t offset)
{
    (void)kernel;
    return result_bytes(pread(fd, data, bytes, offset));
}

ssize_t real_pread_cached(const struct kernel *kernel, int fd, void *data, size_t bytes,
                          int64_t offset)
{
    enum { NOWAIT = 8 }; /* RWF_NOWAIT; musl has neither the name nor the call */
    struct iovec part = {data, bytes};

    (void)kernel;
    return result_bytes(syscall(SYS_preadv2, fd, &part, 1L, (long)offset, 0L, NOWAIT));
}

ssize_t real_pwrite(const struct kernel *kernel, int fd, const void *data, size_t bytes,
                    int64_t offset)
{
    (void)kernel;
    return result_bytes(pwrite(fd, data, bytes, offset));
}

int real_fsync(const struct kernel *kernel, int fd, bool data_only)
{
    (void)kernel;
    return result(data_only ? fdatasync(fd) : fsync(fd));
}

int real_truncate(const struct kernel *kernel, int fd, int64_t bytes)
{
    (void)kernel;
    return result(ftruncate(fd, bytes));
}

int real_lock_file(const struct kernel *kernel, int fd, bool lock)
{
    (void)kernel;
    return result(flock(fd, lock ? LOCK_EX | LOCK_NB : LOCK_UN));
}

int real_fstat(const struct kernel *kernel, int fd, struct stat *ret_stat)
{
    (void)kernel;
    return result(fstat(fd, ret_stat));
}

int real_stat(const struct kernel *kernel, const char *path, struct stat *ret_stat)
{
    (void)kernel;
    return result(stat(path, ret_stat));
}

int real_rename(const struct kernel *kernel, const char *from, const char *to)
{
    (void)kernel;
    return result(rename(from, to));
}

int real_unlink(const struct kernel *kernel, const char *path)
{
    (void)kernel;
    return result(unlink(path));
}

int real_mkdir(const struct kernel *kernel, const char *path, mode_t mode)
{
    (void)kernel;
    return result(mkdir(path, mode));
}

int real_list_directory(const struct kernel *kernel, const char *path,
                        int (*entry)(void *arg, const char *name), void *arg)
{
    DIR *directory = opendir(path);
    int r;

    (void)kernel;
    if (directory == NULL) return -errno;
    for (;;) {
        const struct dirent *found;

        errno = 0; /* the end and an error differ only by it */
        found = readdir(directory);
        if (found == NULL) {
            r = -errno;
            break;
        }
        if (strcmp(found->d_name, ".") == 0 || strcmp(found->d_name, "..") == 0) continue;
        r = entry(arg, found->d_name);
        if (r < 0) break;
    }
    closedir(directory);
    return r;
}

/* kernel_real.h - the calls that every backend on a real kernel shares.
 *
 * Everything in the table but the readiness queue: a backend is
 * KERNEL_REAL_CALLS plus its own queue_* members. Contracts are in rt/kernel.h.
 * Threads: any.
 */
#ifndef WEIR_RT_KERNEL_REAL_H
#define WEIR_RT_KERNEL_REAL_H

#include "rt/kernel.h"

int64_t real_now_ns(const struct kernel *kernel);
int64_t real_coarse_now_ns(const struct kernel *kernel);
int64_t real_wall_ns(const struct kernel *kernel);
void real_random(const struct kernel *kernel, void *data, size_t bytes);

int real_thread_start(const struct kernel *kernel, pthread_t *ret_thread, void *(*fn)(void *),
                      void *arg);
int real_thread_join(const struct kernel *kernel, pthread_t thread);
int real_thread_wait(const struct kernel *kernel, struct kernel_bell *bell, pthread_mutex_t *mutex,
                     int64_t timeout_ns);
void real_thread_notify(const struct kernel *kernel, struct kernel_bell *bell, bool all);
void real_thread_yield(const struct kernel *kernel);

void *real_map(const struct kernel *kernel, size_t bytes);
void real_unmap(const struct kernel *kernel, void *memory, size_t bytes);
int real_advise_many(const struct kernel *kernel, const struct iovec *ranges, int count,
                     int advice);
int real_advise(const struct kernel *kernel, void *memory, size_t bytes, int advice);
int real_protect(const struct kernel *kernel, void *memory, size_t bytes, int protection);

int real_socket(const struct kernel *kernel, int domain, int type, int protocol);
int real_socketpair(const struct kernel *kernel, int domain, int type, int ret_fds[2]);
int real_pipe(const struct kernel *kernel, int ret_fds[2]);
int real_bind(const struct kernel *kernel, int fd, const struct sockaddr *address, socklen_t bytes);
int real_listen(const struct kernel *kernel, int fd, int backlog);
int real_accept(const struct kernel *kernel, int fd);
int real_connect(const struct kernel *kernel, int fd, const struct sockaddr *address,
                 socklen_t bytes);
int real_getsockopt(const struct kernel *kernel, int fd, int level, int name, void *value,
                    socklen_t *bytes);
int real_setsockopt(const struct kernel *kernel, int fd, int level, int name, const void *value,
                    socklen_t bytes);
int real_getsockname(const struct kernel *kernel, int fd, struct sockaddr *address,
                     socklen_t *bytes);
int real_getpeername(const struct kernel *kernel, int fd, struct sockaddr *address,
                     socklen_t *bytes);
int real_set_nonblocking(const struct kernel *kernel, int fd);
ssize_t real_read(const struct kernel *kernel, int fd, void *data, size_t bytes);
ssize_t real_readv(const struct kernel *kernel, int fd, const struct iovec *parts, int count);
ssize_t real_write(const struct kernel *kernel, int fd, const void *data, size_t bytes);
ssize_t real_writev(const struct kernel *kernel, int fd, const struct iovec *parts, int count);
ssize_t real_recv(const struct kernel *kernel, int fd, void *data, size_t bytes, int flags);
ssize_t real_send(const struct kernel *kernel, int fd, const void *data, size_t bytes, int flags);
ssize_t real_recvmsg(const struct kernel *kernel, int fd, struct msghdr *message, int flags);
ssize_t real_sendmsg(const struct kernel *kernel, int fd, const struct msghdr *message, int flags);
int real_shutdown(const struct kernel *kernel, int fd, int how);
int real_readable(const struct kernel *kernel, int fd);
int real_ended(const struct kernel *kernel, int fd);
int real_close(const struct kernel *kernel, int fd);

int real_getaddrinfo(const struct kernel *kernel, const char *host, const char *service,
                     const struct addrinfo *hints, struct addrinfo **ret_list);
void real_freeaddrinfo(const struct kernel *kernel, struct addrinfo *list);
int real_open(const struct kernel *kernel, const char *path, int flags, mode_t mode);
ssize_t real_pread(const struct kernel *kernel, int fd, void *data, size_t bytes, int64_t offset);
ssize_t real_pread_cached(const struct kernel *kernel, int fd, void *data, size_t bytes,
                          int64_t offset);
ssize_t real_pwrite(const struct kernel *kernel, int fd, const void *data, size_t bytes,
                    int64_t offset);
int real_fsync(const struct kernel *kernel, int fd, bool data_only);
int real_truncate(const struct kernel *kernel, int fd, int64_t bytes);
int real_lock_file(const struct kernel *kernel, int fd, bool lock);
int real_fstat(const struct kernel *kernel, int fd, struct stat *ret_stat);
int real_stat(const struct kernel *kernel, const char *path, struct stat *ret_stat);
int real_rename(const struct kernel *kernel, const char *from, const char *to);
int real_unlink(const struct kernel *kernel, const char *path);
int real_mkdir(const struct kernel *kernel, const char *path, mode_t mode);
int real_list_directory(const struct kernel *kernel, const char *path,
                        int (*entry)(void *arg, const char *name), void *arg);

/* ---- kernel_thread.c ---- */

int64_t real_thread_cpu_ns(const struct kernel *kernel, clockid_t clock);
int real_thread_look(const struct kernel *kernel, pid_t thread, struct kernel_thread *ret_look);
int real_thread_signal(const struct kernel *kernel, pid_t thread, int signo);
int real_read_memory(const struct kernel *kernel, const void *address, void *data, size_t bytes);

/* ---- kernel_process.c ---- */

int real_process_start(const struct kernel *kernel, const struct process_plan *plan,
                       struct process_made *ret_made);
int real_process_signal(const struct kernel *kernel, int pidfd, pid_t group, int signo);
int real_process_reap(const struct kernel *kernel, int pidfd, pid_t group, bool wait,
                      struct process_end *ret_end);
int real_duplicate(const struct kernel *kernel, int fd);

/* The members of a table that come from here. */
#define KERNEL_REAL_CALLS                                                                         \
    .short_recv_drains = true, .now_ns = real_now_ns, .coarse_now_ns = real_coarse_now_ns,        \
    .wall_ns = real_wall_ns, .truncate = real_truncate, .random = real_random,                    \
    .thread_start = real_thread_start, .thread_join = real_thread_join,                           \
    .thread_wait = real_thread_wait, .thread_notify = real_thread_notify,                         \
    .thread_yield = real_thread_yield, .thread_now_ns = real_now_ns,                              \
    .thread_cpu_ns = real_thread_cpu_ns, .thread_look = real_thread_look,                         \
    .thread_signal = real_thread_signal, .read_memory = real_read_memory, .map = real_map,        \
    .unmap = real_unmap, .advise = real_advise, .advise_many = real_advise_many,                  \
    .protect = real_protect, .socket = real_socket, .socketpair = real_socketpair,                \
    .pipe = real_pipe, .bind = real_bind, .listen = real_listen, .accept = real_accept,           \
    .connect = real_connect, .getsockopt = real_getsockopt, .setsockopt = real_setsockopt,        \
    .getsockname = real_getsockname, .getpeername = real_getpeername,                             \
    .set_nonblocking = real_set_nonblocking, .read = real_read, .readv = real_readv,              \
    .write = real_write, .writev = real_writev, .recv = real_recv, .send = real_send,             \
    .recvmsg = real_recvmsg, .sendmsg = real_sendmsg, .shutdown = real_shutdown,                  \
    .readable = real_readable, .ended = real_ended, .close = real_close,                          \
    .getaddrinfo = real_getaddrinfo, .freeaddrinfo = real_freeaddrinfo, .open = real_open,        \
    .pread = real_pread, .pwrite = real_pwrite, .fsync = real_fsync, .lock_file = real_lock_file, \
    .fstat = real_fstat, .stat = real_stat, .rename = real_rename, .unlink = real_unlink,         \
    .mkdir = real_mkdir, .list_directory = real_list_directory,                                   \
    .process_start = real_process_start, .process_signal = real_process_signal,                   \
    .process_reap = real_process_reap, .duplicate = real_duplicate,                               \
    .pread_cached = real_pread_cached

/* Set a timerfd to an absolute time (INT64_MAX: never; the past: now). */
int real_timer_set(int timer_fd, int64_t at_ns);

/* The io_uring backend, or NULL if the library was built without it. */
extern const struct kernel *const kernel_uring;

/* What an older or stricter kernel would do, for tests: zero is "nothing". Takes effect
 * for queues that are opened from now on. */
struct kernel_uring_limits {
    int setup_error;          /* what io_uring_setup says */
    unsigned flags_refused;   /* IORING_SETUP_* that get EINVAL */
    unsigned ops_missing;     /* opcodes that are not there, as bits of 1 << kernel_file_kind */
    bool multishot_missing;   /* before Linux 5.13 */
    bool threads_missing;     /* file calls end before they begin: it cannot make its threads */
    unsigned submissions_max; /* sizes of the rings */
    unsigned completions_max;
};
void kernel_uring_limit(const struct kernel_uring_limits *limits);
extern struct kernel_uring_limits kernel_uring_limits;

/* Make epoll queues wait as on a kernel without epoll_pwait2 (before Linux 5.11):
 * timeouts are then rounded up to milliseconds. For tests. */
void kernel_epoll_mask_pwait2(bool mask);

#endif

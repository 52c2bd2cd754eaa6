/* kernel.h - the only door to the outside.
 *
 * Everything the library gets from the operating system goes through one table:
 * readiness, time, chance, the scheduler's choices, threads, memory mappings,
 * sockets, files. A backend is one table; the tests' manual clock and fault
 * injection, and the simulator, are others.
 *
 * Calls return 0 or a count, or -errno; they never set errno for the caller.
 * -EINTR is passed on where the system call gives it: callers retry.
 * Threads: a queue belongs to one worker; only queue_wake, queue_watch and
 * queue_unwatch may be called from others. All other calls: any thread.
 */
#ifndef WEIR_RT_KERNEL_H
#define WEIR_RT_KERNEL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#include "base/atomic.h"
#include "base/list.h"

struct addrinfo;

/* What the scheduler decides, each through kernel->choose(kind, n). */
enum choice {
    CHOOSE_TASK,   /* which of n ready tasks runs next; 0 is the one that waits longest */
    CHOOSE_STEAL,  /* which of n other workers to look at first */
    CHOOSE_PLACE,  /* which of n sleeping workers to wake for new work */
    CHOOSE_CASE,   /* which of n ready cases of a select is taken */
    CHOOSE_CANCEL, /* n is 2: at this suspension point, 1 cancels the run's target scope */
    CHOOSE_YIELD,  /* n is 2: at this suspension point, 1 lets another task go first */
    CHOOSE_KINDS,
};

/* Readiness of a descriptor, as bits. */
enum {
    READY_IN = 1,
    READY_OUT = 2,
    READY_BEYOND = 4, /* there is more than data: the end, an error, or urgent data */
};

struct kernel_event {
    uint64_t tag;   /* as given to queue_watch; never 0 */
    uint32_t ready; /* READY_* */
};

struct kernel_queue; /* each backend's own */

/* File calls that a queue may make by completion. */
enum kernel_file_kind {
    KERNEL_FILE_OPEN,
    KERNEL_FILE_READ,
    KERNEL_FILE_WRITE,
    KERNEL_FILE_SYNC,
    KERNEL_FILE_STAT, /* of fd */
    KERNEL_PATH_STAT,
    KERNEL_PATH_RENAME,
    KERNEL_PATH_UNLINK,
    KERNEL_PATH_MKDIR,
    KERNEL_FILE_KINDS,
};

/* One of them. It and what it points at stay where they are until it is done; `data`
 * is poisoned under AddressSanitizer until then. */
struct kernel_file_op {
    /* Said by the caller; what the kind does not need is not looked at. */
    enum kernel_file_kind kind;
    bool data_only;
    int fd;
    int flags;
    mode_t mode;
    const char *path;
    const char *to;
    void *data;
    size_t bytes;
    int64_t offset; /* not negative */
    void *arg;
    void (*done)(struct kernel_file_op *op); /* on the queue's thread, inside queue_wait */

    /* What came of it: as the call of the same name below would return. */
    ssize_t result;
    struct stat stat;
    bool positioned; /* of open: it has offsets, and blocks like a file on a disk */

    /* The queue's own. */
    struct list node;
    bool submitted;
    bool cancelled;
    _Alignas(8) char status[256]; /* struct statx, which not every libc declares */
};

/* ---- Processes ---- */

enum {
    PROCESS_FDS_MAX = 11,
    PROCESS_LIMITS_MAX = 5,
    PROCESS_FD_INHERIT = -1, /* the parent's of the same number */
    PROCESS_FD_NULL = -2,    /* /dev/null */
};

/* What a new process is made of; the memory is the caller's, for the call. */
struct process_plan {
    const char *const *paths; /* tried in turn, as execvp does; NULL ends them */
    const char *const *arguments;
    const char *const *environment;
    const char *directory;    /* NULL: the parent's */
    int fds[PROCESS_FDS_MAX]; /* what becomes 0, 1, 2, ...; all others are closed */
    int fd_count;
    unsigned blocking; /* bits of fds that lose O_NONBLOCK: the two ends have nothing in common */
    struct process_limit {
        int which; /* RLIMIT_* */
        uint64_t value;
    } limits[PROCESS_LIMITS_MAX];
    int limit_count;
    bool own_group;
    int parent_death_signal; /* 0: none */
};

/* At what the child failed, when it did. */
enum process_step { STEP_NONE, STEP_PARENT, STEP_DIRECTORY, STEP_FD, STEP_LIMIT, STEP_PROGRAM };

struct process_made {
    pid_t pid;
    int pidfd;              /* close-on-exec */
    enum process_step step; /* written on failure, too */
};

struct process_end {
    int status; /* as wait gives it */
    int64_t user_us;
    int64_t system_us;
    int64_t rss_bytes_max;
};

/* What the system says about one of our threads. */
struct kernel_thread {
    bool blocked;      /* it waits in a call: neither runs nor could */
    int64_t waited_ns; /* how long it could have run and did not, so far; -1: not known */
};

/* What threads wait on; zero at first. A table of simulated threads needs its address only. */
struct kernel_bell {
    ATOM(uint32_t) rings;   /* so far: who waits for the next one says which it has seen */
    ATOM(uint32_t) waiting; /* threads, changed by those that hold the lock */
};

struct kernel {
    const char *name;
    void *state; /* the table's own */
    /* A recv on a TCP socket that stops short has taken all there was. False in a table
     * that makes reads shorter than the kernel would. */
    bool short_recv_drains;
    /* Threads take turns on one: who spins lets others go on (thread_yield), and time stands still
     * meanwhile. */
    bool simulated;

    /* Time and chance. `choose` may be NULL: always 0, the fair default. */
    int64_t (*now_ns)(const struct kernel *kernel);
    /* The same clock, a tick of the system (1 to 10 ms) behind at most, for a fraction of
     * the price; NULL: there is none. */
    int64_t (*coarse_now_ns)(const struct kernel *kernel);
    /* Unix time: for what others read, never to measure by. */
    int64_t (*wall_ns)(const struct kernel *kernel);
    void (*random)(const struct kernel *kernel, void *data, size_t bytes);
    unsigned (*choose)(const struct kernel *kernel, enum choice kind, unsigned n);

    /* Readiness, edge-triggered: an event says that readiness has newly arisen. */
    int (*queue_open)(const struct kernel *kernel, struct kernel_queue **ret_queue);
    void (*queue_close)(struct kernel_queue *queue);
    /* -EPERM for descriptors that are always ready (regular files), -EEXIST for one
     * that is watched already. Tag 0 is the backend's own. */
    int (*queue_watch)(struct kernel_queue *queue, int fd, uint64_t tag);
    /* Unwatched by its own worker, the descriptor can be closed at once; by another one,
     * what it stands for may stay open until the queue's worker has taken notice (it is
     * woken for that). */
    void (*queue_unwatch)(struct kernel_queue *queue, int fd);
    /* Wait at most timeout_ns (0: only look; never negative), return the number of
     * events: 0 also after a wake-up or a signal. A peer that has closed its
     * direction is READY_IN; an error or hang-up is both. */
    int (*queue_wait)(struct kernel_queue *queue, int64_t timeout_ns, struct kernel_event *events,
                      int events_max);
    void (*queue_wake)(struct kernel_queue *queue); /* make a queue_wait return; any thread */
    /* For embedding: a descriptor that is readable when queue_wait(0) would find
     * something or `at_ns` (INT64_MAX: never) has come; or -errno. A time that has come
     * is reported once: arm it again while there is something left to do. */
    int (*queue_fd)(struct kernel_queue *queue);
    int (*queue_arm)(struct kernel_queue *queue, int64_t at_ns);

    /* File calls by completion; all three NULL: there are none. On the queue's worker.
     * queue_submit: 0, and `done` will be called; 1: it is done already and `done` is
     * not called; -ENOSYS: this call is for a thread. queue_withdraw: true if the kernel
     * has not seen it yet; then it never happens. queue_cancel_all: make what runs end
     * early, if the kernel can; `done` is called all the same. A result of -ENOSYS: nothing
     * was done, it is for a thread after all. */
    int (*queue_submit)(struct kernel_queue *queue, struct kernel_file_op *keep_op);
    bool (*queue_withdraw)(struct kernel_queue *queue, struct kernel_file_op *op);
    void (*queue_cancel_all)(struct kernel_queue *queue);

    /* Threads. */
    int (*thread_start)(const struct kernel *kernel, pthread_t *ret_thread, void *(*fn)(void *),
                        void *arg);
    int (*thread_join)(const struct kernel *kernel, pthread_t thread);
    /* One thread waits for another: see rt/bell.h, by which the library calls these. The mutex
     * is held, and let go of while it waits; 0, or -ETIMEDOUT; 0 may come for no reason.
     * timeout_ns < 0: for ever. */
    int (*thread_wait)(const struct kernel *kernel, struct kernel_bell *bell,
                       pthread_mutex_t *mutex, int64_t timeout_ns);
    void (*thread_notify)(const struct kernel *kernel, struct kernel_bell *bell, bool all);
    void (*thread_yield)(const struct kernel *kernel); /* others may go on first */
    /* The clock that thread_wait waits by: real, also where now_ns is moved by a test, since
     * threads really wait; that of now_ns where threads are simulated, too. */
    int64_t (*thread_now_ns)(const struct kernel *kernel);
    /* Of a thread of this process, for the watchdog: how long it has computed, by its clock
     * (pthread_getcpuclockid), or -ENOSYS in a table whose time is not the real one; how it
     * is; a signal to it alone. */
    int64_t (*thread_cpu_ns)(const struct kernel *kernel, clockid_t clock);
    int (*thread_look)(const struct kernel *kernel, pid_t thread, struct kernel_thread *ret_look);
    int (*thread_signal)(const struct kernel *kernel, pid_t thread, int signo);
    /* Copy memory of this process that may be gone: 0, or -EFAULT. */
    int (*read_memory)(const struct kernel *kernel, const void *address, void *data, size_t bytes);

    /* Memory for stacks. */
    void *(*map)(const struct kernel *kernel, size_t bytes); /* NULL: no memory */
    void (*unmap)(const struct kernel *kernel, void *memory, size_t bytes);
    int (*advise)(const struct kernel *kernel, void *memory, size_t bytes, int advice);
    /* The same for several ranges at once, all or an error; NULL: there is no such call. */
    int (*advise_many)(const struct kernel *kernel, const struct iovec *ranges, int count,
                       int advice);
    int (*protect)(const struct kernel *kernel, void *memory, size_t bytes, int protection);

    /* Sockets and pipes; all non-blocking and close-on-exec. Sockets are written with
     * send and sendmsg, everything else with write and writev: none raises SIGPIPE. */
    int (*socket)(const struct kernel *kernel, int domain, int type, int protocol);
    int (*socketpair)(const struct kernel *kernel, int domain, int type, int ret_fds[2]);
    int (*pipe)(const struct kernel *kernel, int ret_fds[2]);
    int (*bind)(const struct kernel *kernel, int fd, const struct sockaddr *address,
                socklen_t bytes);
    int (*listen)(const struct kernel *kernel, int fd, int backlog);
    int (*accept)(const struct kernel *kernel, int fd);
    int (*connect)(const struct kernel *kernel, int fd, const struct sockaddr *address,
                   socklen_t bytes);
    int (*getsockopt)(const struct kernel *kernel, int fd, int level, int name, void *value,
                      socklen_t *bytes);
    int (*setsockopt)(const struct kernel *kernel, int fd, int level, int name, const void *value,
                      socklen_t bytes);
    int (*getsockname)(const struct kernel *kernel, int fd, struct sockaddr *address,
                       socklen_t *bytes);
    int (*getpeername)(const struct kernel *kernel, int fd, struct sockaddr *address,
                       socklen_t *bytes);
    int (*set_nonblocking)(const struct kernel *kernel, int fd);
    ssize_t (*read)(const struct kernel *kernel, int fd, void *data, size_t bytes);
    ssize_t (*readv)(const struct kernel *kernel, int fd, const struct iovec *parts, int count);
    ssize_t (*write)(const struct kernel *kernel, int fd, const void *data, size_t bytes);
    ssize_t (*writev)(const struct kernel *kernel, int fd, const struct iovec *parts, int count);
    ssize_t (*recv)(const struct kernel *kernel, int fd, void *data, size_t bytes, int flags);
    ssize_t (*send)(const struct kernel *kernel, int fd, const void *data, size_t bytes, int flags);
    ssize_t (*recvmsg)(const struct kernel *kernel, int fd, struct msghdr *message, int flags);
    ssize_t (*sendmsg)(const struct kernel *kernel, int fd, const struct msghdr *message,
                       int flags);
    int (*shutdown)(const struct kernel *kernel, int fd, int how);
    /* 1: a read would not wait (there is something, or the end, or an error), 0: it would. */
    int (*readable)(const struct kernel *kernel, int fd);
    /* 1: the other side of the connection sends no more, or it has failed; 0: neither. */
    int (*ended)(const struct kernel *kernel, int fd);
    /* The descriptor is gone whatever it returns; never -EINTR. */
    int (*close)(const struct kernel *kernel, int fd);

    /* Blocking calls: only on the threads of an executor (rt/blocking.h).
     * getaddrinfo returns 0, -errno, or one of EAI_* as a positive number. */
    int (*getaddrinfo)(const struct kernel *kernel, const char *host, const char *service,
                       const struct addrinfo *hints, struct addrinfo **ret_list);
    void (*freeaddrinfo)(const struct kernel *kernel, struct addrinfo *list);
    int (*open)(const struct kernel *kernel, const char *path, int flags, mode_t mode);
    ssize_t (*pread)(const struct kernel *kernel, int fd, void *data, size_t bytes, int64_t offset);
    ssize_t (*pwrite)(const struct kernel *kernel, int fd, const void *data, size_t bytes,
                      int64_t offset);
    /* As pread, but only what is in memory: -EAGAIN if it had to wait for a disk, and less than
     * asked for if a part would. Never blocks, so workers may call it. Any error: try pread. NULL:
     * there is no such call. */
    ssize_t (*pread_cached)(const struct kernel *kernel, int fd, void *data, size_t bytes,
                            int64_t offset);
    int (*fsync)(const struct kernel *kernel, int fd, bool data_only);
    int (*truncate)(const struct kernel *kernel, int fd, int64_t bytes);
    /* flock, exclusive and without waiting: -EAGAIN if somebody else has it; or give it back. */
    int (*lock_file)(const struct kernel *kernel, int fd, bool lock);
    int (*fstat)(const struct kernel *kernel, int fd, struct stat *ret_stat);
    int (*stat)(const struct kernel *kernel, const char *path, struct stat *ret_stat);
    int (*rename)(const struct kernel *kernel, const char *from, const char *to);
    int (*unlink)(const struct kernel *kernel, const char *path);
    int (*mkdir)(const struct kernel *kernel, const char *path, mode_t mode);
    /* Calls `entry` for each name but "." and ".."; stops when it returns < 0. */
    int (*list_directory)(const struct kernel *kernel, const char *path,
                          int (*entry)(void *arg, const char *name), void *arg);

    /* Processes. process_start blocks until the child has become its program, or has
     * failed to: then the child is gone again. -ENOSYS: this kernel has no pidfd. */
    int (*process_start)(const struct kernel *kernel, const struct process_plan *plan,
                         struct process_made *ret_made);
    /* To the process, or to its whole group if it has one of its own (group > 0). */
    int (*process_signal)(const struct kernel *kernel, int pidfd, pid_t group, int signo);
    /* 1: it has ended, what was left of its group was killed, and it is reaped; 0: not yet
     * (never if `wait`, which blocks); -ECHILD: somebody else has reaped it. */
    int (*process_reap)(const struct kernel *kernel, int pidfd, pid_t group, bool wait,
                        struct process_end *ret_end);
    /* The same open file under another number, close-on-exec. */
    int (*duplicate)(const struct kernel *kernel, int fd);
};

/* The real kernel with the epoll queue. Other tables start as a copy of it. */
extern const struct kernel kernel_epoll;

/* The table that the next runtime uses: the named backend ("epoll", "io_uring"), or the
 * one to try first for NULL; NULL if this library has no such backend. An override
 * (kernel_override) wins over both. */
const struct kernel *kernel_select(const char *backend);

/* A queue of `kernel` could not be opened, with `error`: the table to use instead if the
 * program did not insist, or NULL if that would not help. */
const struct kernel *kernel_instead(const struct kernel *kernel, int error);
/* Why such a queue could not be opened, in words. */
const char *kernel_why(const struct kernel *kernel, int error);

/* Make every runtime opened from now on use `keep_kernel` (NULL: none). For tests
 * and the simulator; not while a runtime is open. */
void kernel_override(const struct kernel *keep_kernel);

/* The kernel of the running process, for calls made outside a runtime. */
const struct kernel *kernel_current(void);

static inline unsigned kernel_choose(const struct kernel *kernel, enum choice kind, unsigned n)
{
    if (__builtin_expect(!kernel->choose, 1)) return 0;
    return kernel->choose(kernel, kind, n);
}

#endif

/* kernel_process.c - the calls of rt/kernel.h that make, signal and reap processes.
 *
 * The child shares our memory until it has become its program (CLONE_VM), and the thread
 * that makes it stands still meanwhile (CLONE_VFORK). That costs no copy of the memory, is
 * safe with threads that hold locks, and lets the child say what it failed at. In return
 * the child makes system calls only, by number: no function of libc that has state, nor
 * one that a sanitizer has put itself in front of.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rt/kernel_real.h"
#include "rt/sanitize.h"

#ifndef CLONE_PIDFD
#define CLONE_PIDFD 0x00001000
#endif
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424 /* the same on both processors */
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

enum {
    WAIT_BY_PIDFD = 3, /* P_PIDFD, which libc's headers may lack */
    CHILD_STACK_BYTES = 32 * 1024,
    SIGNAL_SET_BYTES = 8, /* the kernel's, not libc's */
    SIGNALS = 64,
    EXIT_NO_PROGRAM = 127, /* as a shell says it; nobody sees it */
};

#if WEIR_TSAN
/* The one that ThreadSanitizer has not replaced: its own takes the child for a fork, and
 * lets go of locks that are the parent's. */
int __clone(int (*fn)(void *), void *stack, int flags, void *arg, ...);
#define clone_child __clone
#else
#define clone_child clone
#endif

/* No instrumentation in what the child runs: it never returns from it, and what is noted
 * about its frames would be noted about the parent's thread. */
#if defined(__clang__)
#define CHILD_SIDE static __attribute__((disable_sanitizer_instrumentation))
#else
#define CHILD_SIDE static __attribute__((no_sanitize("address", "thread", "undefined")))
#endif

struct child {
    const struct process_plan *plan;
    pid_t parent;
    /* Written by the child, read by the parent when it goes on. */
    volatile enum process_step step;
    volatile int error;
};

/* ---- The child's side ---- */

CHILD_SIDE int child_failed(struct child *child, enum process_step step, int error)
{
    child->step = step;
    child->error = error;
    return -1;
}

/* Signals as a new program expects them: workers and their threads may block some, and
 * what the parent ignores would stay ignored (SIGPIPE, usually). */
CHILD_SIDE void child_reset_signals(void)
{
    uint64_t by_default[4] = {0}; /* struct sigaction of the kernel's: SIG_DFL, no flags */
    uint64_t none = 0;

    for (int signo = 1; signo <= SIGNALS; signo++) {
        if (signo == SIGKILL || signo == SIGSTOP) continue;
        (void)syscall(SYS_rt_sigaction, signo, by_default, NULL, SIGNAL_SET_BYTES);
    }
    (void)syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, SIGNAL_SET_BYTES);
}

/* A descriptor to copy from, with a number that no copy is made to. */
CHILD_SIDE long child_source(int fd, int fd_count)
{
    long found;
    long moved;

    if (fd >= fd_count) return fd;
    if (fd != PROCESS_FD_NULL) return syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, fd_count);
    found = syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC, 0);
    if (found < 0 || found >= fd_count) return found;
    moved = syscall(SYS_fcntl, found, F_DUPFD_CLOEXEC, fd_count);
    /* It holds a number that is copied to or that nobody asked for. */
    (void)syscall(SYS_close, found);
    return moved;
}

CHILD_SIDE void child_close_from(unsigned first)
{
    struct rlimit limit = {0};

    if (syscall(SYS_close_range, first, ~0U, 0) == 0) return;
    /* Before Linux 5.9. */
    if (syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &limit) != 0) limit.rlim_cur = 65536;
    if (limit.rlim_cur > 1048576) limit.rlim_cur = 1048576;
    for (unsigned fd = first; fd < limit.rlim_cur; fd++) (void)syscall(SYS_close, fd);
}

CHILD_SIDE int child_set_fds(const struct process_plan *plan)
{
    long sources[PROCESS_FDS_MAX];

    /* All sources first: a copy may take the number of a later source. */
    for (int i = 0; i < plan->fd_count; i++) {
        sources[i] = PROCESS_FD_INHERIT;
        if (plan->fds[i] == PROCESS_FD_INHERIT) continue;
        sources[i] = child_source(plan->fds[i], plan->fd_count);
        if (sources[i] < 0) return -1;
    }
    for (int i = 0; i < plan->fd_count; i++) {
        if (sources[i] == PROCESS_FD_INHERIT) {
            (void)syscall(SYS_fcntl, i, F_SETFD, 0); /* it may be closed: then it stays so */
            continue;
        }
        if (syscall(SYS_dup3, sources[i], i, 0) < 0) return -1;
        if (plan->blocking & (1u << i)) {
            long flags = syscall(SYS_fcntl, i, F_GETFL);
            if (flags >= 0) (void)syscall(SYS_fcntl, i, F_SETFL, flags & ~(long)O_NONBLOCK);
        }
    }
    child_close_from((unsigned)plan->fd_count);
    return 0;
}

CHILD_SIDE int child_set_limits(const struct process_plan *plan)
{
    for (int i = 0; i < plan->limit_count; i++) {
        uint64_t both[2] = {plan->limits[i].value, plan->limits[i].value};
        if (syscall(SYS_prlimit64, 0, plan->limits[i].which, both, NULL) < 0) return -1;
    }
    return 0;
}

/* Returns the error: a program that could have been run but may not be says more than one
 * that is not there. */
CHILD_SIDE int child_become(const struct process_plan *plan)
{
    int error = ENOENT;

    for (const char *const *path = plan->paths; *path; path++) {
        (void)syscall(SYS_execve, *path, plan->arguments, plan->environment);
        if (errno == EACCES) error = EACCES;
        if (errno != EACCES && errno != ENOENT && errno != ENOTDIR) return errno;
    }
    return error;
}

CHILD_SIDE int child_prepare(struct child *child)
{
    const struct process_plan *plan = child->plan;

    if (plan->own_group && syscall(SYS_setpgid, 0, 0) < 0) {
        return child_failed(child, STEP_PARENT, errno);
    }
    if (plan->parent_death_signal) {
        if (syscall(SYS_prctl, PR_SET_PDEATHSIG, plan->parent_death_signal, 0, 0, 0) < 0) {
            return child_failed(child, STEP_PARENT, errno);
        }
        /* It may have died before: then nobody sends the signal. */
        if (syscall(SYS_getppid) != child->parent) return child_failed(child, STEP_PARENT, ESRCH);
    }
    if (plan->directory && syscall(SYS_chdir, plan->directory) < 0) {
        return child_failed(child, STEP_DIRECTORY, errno);
    }
    if (child_set_fds(plan) < 0) return child_failed(child, STEP_FD, errno);
    /* Last: a limit may forbid what came before. */
    if (child_set_limits(plan) < 0) return child_failed(child, STEP_LIMIT, errno);
    return 0;
}

CHILD_SIDE int child_main(void *arg)
{
    struct child *child = arg;

    child_reset_signals();
    if (child_prepare(child) == 0) {
        (void)child_failed(child, STEP_PROGRAM, child_become(child->plan));
    }
    (void)syscall(SYS_exit_group, EXIT_NO_PROGRAM);
    return EXIT_NO_PROGRAM;
}

/* ---- The parent's side ---- */

static int wait_for(int pidfd, siginfo_t *info, int options, struct rusage *usage)
{
    info->si_pid = 0;
    return syscall(SYS_waitid, WAIT_BY_PIDFD, pidfd, info, options, usage) < 0 ? -errno : 0;
}

static pid_t clone_on_stack(struct child *child, int *ret_pidfd)
{
    char stack[CHILD_STACK_BYTES] __attribute__((aligned(16)));
    int r = clone_child(child_main, stack + sizeof stack,
                        CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, child, ret_pidfd);
    return r < 0 ? -errno : r;
}

int real_process_start(const struct kernel *kernel, const struct process_plan *plan,
                       struct process_made *ret_made)
{
    struct child child = {.plan = plan, .parent = getpid(), .step = STEP_NONE};
    uint64_t all = ~(uint64_t)0;
    uint64_t before = 0;
    siginfo_t info;
    int pidfd = -1;
    pid_t pid;

    (void)kernel;
    ret_made->step = STEP_NONE;
    /* Of a descriptor that is not open: what waits by them says -EBADF, and Linux before
     * 5.4 that it knows no such way. */
    if (wait_for(INT_MAX, &info, WEXITED | WNOHANG, NULL) == -EINVAL) return -ENOSYS;
    /* No handler of the program's may run in the child: it would change our memory. */
    (void)syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, SIGNAL_SET_BYTES);
    pid = clone_on_stack(&child, &pidfd);
    (void)syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, SIGNAL_SET_BYTES);
    if (pid < 0) return pid == -EINVAL ? -ENOSYS : pid;
    if (child.error != 0) {
        /* It is on its way out: there is nothing to wait for but that. */
        while (wait_for(pidfd, &info, WEXITED, NULL) == -EINTR) {}
        (void)close(pidfd);
        ret_made->step = child.step;
        return -child.error;
    }
    ret_made->pid = pid;
    ret_made->pidfd = pidfd;
    return 0;
}

int real_process_signal(const struct kernel *kernel, int pidfd, pid_t group, int signo)
{
    (void)kernel;
    if (group <= 0) return syscall(SYS_pidfd_send_signal, pidfd, signo, NULL, 0) < 0 ? -errno : 0;
    /* As long as the process is not reaped, the number of its group is its own. Somebody
     * else may have reaped it (SIGCHLD is ignored): then the number may be anybody's. */
    if (syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0) < 0 && errno == ESRCH) return -ESRCH;
    return kill(-group, signo) < 0 ? -errno : 0;
}

/* How it ended, in the form of wait(2). */
static int status_of(const siginfo_t *info)
{
    if (info->si_code == CLD_EXITED) return (info->si_status & 0xff) << 8;
    return info->si_status | (info->si_code == CLD_DUMPED ? 0x80 : 0);
}

static int64_t microseconds(struct timeval time)
{
    return (int64_t)time.tv_sec * 1000000 + time.tv_usec;
}

int real_process_reap(const struct kernel *kernel, int pidfd, pid_t group, bool wait,
                      struct process_end *ret_end)
{
    struct rusage usage = {0};
    siginfo_t info;
    int r;

    (void)kernel;
    do r = wait_for(pidfd, &info, WEXITED | WNOWAIT | (wait ? 0 : WNOHANG), NULL);
    while (r == -EINTR);
    if (r < 0) return r;
    if (info.si_pid == 0) return 0;
    /* While it is a zombie, nobody else can have the number of its group. */
    if (group > 0) (void)kill(-group, SIGKILL);
    r = wait_for(pidfd, &info, WEXITED | WNOHANG, &usage);
    if (r < 0) return r;
    *ret_end = (struct process_end){
        .status = status_of(&info),
        .user_us = microseconds(usage.ru_utime),
        .system_us = microseconds(usage.ru_stime),
        .rss_bytes_max = (int64_t)usage.ru_maxrss * 1024,
    };
    return 1;
}

int real_duplicate(const struct kernel *kernel, int fd)
{
    int r = fcntl(fd, F_DUPFD_CLOEXEC, 3);

    (void)kernel;
    return r < 0 ? -errno : r;
}

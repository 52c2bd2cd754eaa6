/* kernel_thread.c - what the watchdog asks about threads of this process. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "rt/kernel_real.h"

int64_t real_thread_cpu_ns(const struct kernel *kernel, clockid_t clock)
{
    struct timespec time;

    (void)kernel;
    if (clock_gettime(clock, &time) < 0) return -errno;
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* The beginning of a file of /proc about a thread, terminated. */
static int read_about(pid_t thread, const char *file, char *text, size_t bytes)
{
    char path[64];
    ssize_t got;
    int fd;
    int r;

    (void)snprintf(path, sizeof path, "/proc/self/task/%d/%s", (int)thread, file);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -errno;
    got = read(fd, text, bytes - 1);
    r = got < 0 ? -errno : 0;
    (void)close(fd);
    text[got < 0 ? 0 : got] = '\0';
    return r;
}

/* The state is behind the name, which may itself have parentheses and spaces (proc(5)). */
static int read_state(pid_t thread, char *ret_state)
{
    char text[256];
    const char *name_end;
    int r = read_about(thread, "stat", text, sizeof text);

    if (r < 0) return r;
    name_end = strrchr(text, ')');
    if (!name_end || name_end[1] != ' ') return -EINVAL;
    *ret_state = name_end[2];
    return 0;
}

int real_thread_look(const struct kernel *kernel, pid_t thread, struct kernel_thread *ret_look)
{
    char text[96];
    char state;
    char *at;
    int r = read_state(thread, &state);

    (void)kernel;
    if (r < 0) return r;
    ret_look->blocked = state == 'S' || state == 'D';
    ret_look->waited_ns = -1;
    /* "computed waited times"; a kernel without it is no error. */
    if (read_about(thread, "schedstat", text, sizeof text) < 0) return 0;
    (void)strtoll(text, &at, 10);
    if (at != text && *at == ' ') ret_look->waited_ns = (int64_t)strtoll(at, NULL, 10);
    return 0;
}

int real_thread_signal(const struct kernel *kernel, pid_t thread, int signo)
{
    (void)kernel;
    return syscall(SYS_tgkill, getpid(), thread, signo) < 0 ? -errno : 0;
}

/* Where process_vm_readv is missing or forbidden (emulators, sandboxes), a pipe does it: a
 * write from memory that is gone fails instead of faulting. */
static int read_by_pipe(const void *address, void *data, size_t bytes)
{
    int fds[2];
    int r = 0;

    if (bytes > 4096) return -EINVAL; /* what every pipe takes at once */
    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0) return -errno;
    if (syscall(SYS_write, fds[1], address, bytes) != (long)bytes ||
        syscall(SYS_read, fds[0], data, bytes) != (long)bytes) {
        r = -EFAULT;
    }
    (void)close(fds[0]);
    (void)close(fds[1]);
    return r;
}

/* By the bare system call: a sanitizer would look at the memory before it. */
int real_read_memory(const struct kernel *kernel, const void *address, void *data, size_t bytes)
{
    struct iovec local = {data, bytes};
    struct iovec remote = {(void *)(uintptr_t)address, bytes};
    long got;

    (void)kernel;
    got = syscall(SYS_process_vm_readv, getpid(), &local, 1L, &remote, 1L, 0L);
    if (got == (long)bytes) return 0;
    if (got < 0 && (errno == ENOSYS || errno == EPERM)) return read_by_pipe(address, data, bytes);
    return -EFAULT;
}

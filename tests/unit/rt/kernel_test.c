/* kernel_test.c - the table of rt/kernel.h on a real kernel, but for the queues (queue_test.c). */
#include "rt/kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "harness/test.h"
#include "rt/kernel_real.h"

#define MS INT64_C(1000000)
#define SECOND (1000 * MS)

static const struct kernel *const k = &kernel_epoll;

static void close_pair(const int fds[2])
{
    CHECK_INT(k->close(k, fds[0]), ==, 0);
    CHECK_INT(k->close(k, fds[1]), ==, 0);
}

/* ---- Which table ---- */

TEST(kernel_select_knows_its_backends_and_an_override_wins)
{
    struct kernel other = kernel_epoll;

    kernel_override(NULL);
    CHECK(kernel_select(NULL) == (kernel_uring != NULL ? kernel_uring : &kernel_epoll));
    CHECK(kernel_select("epoll") == &kernel_epoll);
    CHECK(kernel_select("io_uring") == kernel_uring);
    CHECK(kernel_select("kqueue") == NULL);
    CHECK(kernel_current() == &kernel_epoll);
    kernel_override(&other);
    CHECK(kernel_select(NULL) == &other);
    CHECK(kernel_select("epoll") == &other);
    CHECK(kernel_select("kqueue") == &other);
    CHECK(kernel_current() == &other);
    kernel_override(NULL);
    CHECK(kernel_current() == &kernel_epoll);
}

static bool may_be_missing(const struct kernel *kernel, const void *member)
{
    const void *optional[] = {&kernel->choose, &kernel->queue_submit, &kernel->queue_withdraw,
                              &kernel->queue_cancel_all};

    for (size_t i = 0; i < sizeof optional / sizeof *optional; i++)
        if (member == optional[i]) return i == 0 || kernel == &kernel_epoll;
    return false;
}

static void check_complete(const struct kernel *kernel, const char *name)
{
    void (*const *members)(void) = (void (*const *)(void))(const void *)&kernel->now_ns;
    size_t count = (sizeof *kernel - offsetof(struct kernel, now_ns)) / sizeof *members;

    CHECK_STR(kernel->name, name);
    for (size_t i = 0; i < count; i++)
        CHECK(members[i] != NULL || may_be_missing(kernel, &members[i]));
}

TEST(kernel_tables_are_complete)
{
    check_complete(&kernel_epoll, "epoll");
    if (kernel_uring != NULL) check_complete(kernel_uring, "io_uring");
}

/* ---- Time and chance ---- */

TEST(kernel_clock_never_goes_back)
{
    int64_t last_ns = k->now_ns(k);

    CHECK_INT(last_ns, >, 0);
    for (int i = 0; i < 10000; i++) {
        int64_t now_ns = k->now_ns(k);

        CHECK_INT(now_ns, >=, last_ns);
        last_ns = now_ns;
    }
}

TEST(kernel_random_fills_everything)
{
    unsigned char data[1000];
    int seen[1000] = {0};
    int missing = 0;

    /* A byte that is never written stays 0 in all rounds. */
    for (int round = 0; round < 8; round++) {
        memset(data, 0, sizeof data);
        k->random(k, data, sizeof data);
        for (size_t i = 0; i < sizeof data; i++) seen[i] |= data[i];
    }
    for (size_t i = 0; i < sizeof data; i++) missing += seen[i] == 0;
    CHECK_INT(missing, ==, 0);
}

/* ---- Pipes and sockets ---- */

TEST(pipe_without_a_reader_gives_epipe_and_no_signal)
{
    struct iovec part = {.iov_base = (char[]){"x"}, .iov_len = 1};
    sigset_t pending, mask;
    int fds[2];

    CHECK_INT(k->pipe(k, fds), ==, 0);
    CHECK_INT(k->close(k, fds[0]), ==, 0);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(k->write(k, fds[1], "x", 1), ==, -EPIPE);
        CHECK_INT(k->writev(k, fds[1], &part, 1), ==, -EPIPE);
    }
    CHECK_INT(sigpending(&pending), ==, 0);
    CHECK_INT(sigismember(&pending, SIGPIPE), ==, 0);
    CHECK_INT(pthread_sigmask(SIG_SETMASK, NULL, &mask), ==, 0);
    CHECK_INT(sigismember(&mask, SIGPIPE), ==, 0);
    CHECK_INT(k->close(k, fds[1]), ==, 0);
}

TEST(pipe_write_leaves_a_blocked_signal_as_it_was)
{
    const struct timespec at_once = {0, 0};
    sigset_t set, pending;
    int fds[2];

    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    CHECK_INT(pthread_sigmask(SIG_BLOCK, &set, NULL), ==, 0);
    CHECK_INT(k->pipe(k, fds), ==, 0);
    CHECK_INT(k->close(k, fds[0]), ==, 0);
    /* Not pending before: not pending after. */
    CHECK_INT(k->write(k, fds[1], "x", 1), ==, -EPIPE);
    CHECK_INT(sigpending(&pending), ==, 0);
    CHECK_INT(sigismember(&pending, SIGPIPE), ==, 0);
    /* Somebody else's stays. */
    CHECK_INT(pthread_kill(pthread_self(), SIGPIPE), ==, 0);
    CHECK_INT(k->write(k, fds[1], "x", 1), ==, -EPIPE);
    CHECK_INT(sigtimedwait(&set, NULL, &at_once), ==, SIGPIPE);
    CHECK_INT(k->close(k, fds[1]), ==, 0);
}

TEST(socket_without_a_peer_gives_epipe_and_no_signal)
{
    struct iovec part = {.iov_base = (char[]){"x"}, .iov_len = 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    int fds[2];

    CHECK_INT(k->socketpair(k, AF_UNIX, SOCK_STREAM, fds), ==, 0);
    CHECK_INT(k->close(k, fds[0]), ==, 0);
    CHECK_INT(k->send(k, fds[1], "x", 1, 0), ==, -EPIPE);
    CHECK_INT(k->sendmsg(k, fds[1], &message, 0), ==, -EPIPE);
    CHECK_INT(k->close(k, fds[1]), ==, 0);
}

static void check_flags(int fd)
{
    CHECK_INT(fcntl(fd, F_GETFD) & FD_CLOEXEC, ==, FD_CLOEXEC);
    CHECK_INT(fcntl(fd, F_GETFL) & O_NONBLOCK, ==, O_NONBLOCK);
}

TEST(sockets_and_pipes_are_non_blocking_and_close_on_exec)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    struct sockaddr *generic = (struct sockaddr *)&address;
    struct pollfd poller = {.events = POLLIN};
    int listener, client, server, r;
    int fds[2];

    listener = k->socket(k, AF_INET, SOCK_STREAM, 0);
    check_flags(listener);
    CHECK_INT(k->accept(k, listener), ==, -EINVAL);
    CHECK_INT(k->bind(k, listener, generic, bytes), ==, 0);
    CHECK_INT(k->listen(k, listener, 8), ==, 0);
    CHECK_INT(k->getsockname(k, listener, generic, &bytes), ==, 0);
    CHECK_INT(k->accept(k, listener), ==, -EAGAIN);
    client = k->socket(k, AF_INET, SOCK_STREAM, 0);
    r = k->connect(k, client, generic, bytes);
    CHECK(r == 0 || r == -EINPROGRESS);
    poller.fd = listener;
    CHECK_INT(poll(&poller, 1, 10000), ==, 1);
    server = k->accept(k, listener);
    check_flags(server);
    close_pair((int[2]){client, server});
    CHECK_INT(k->close(k, listener), ==, 0);
    CHECK_INT(k->pipe(k, fds), ==, 0);
    check_flags(fds[0]);
    check_flags(fds[1]);
    close_pair(fds);
    CHECK_INT(k->socketpair(k, AF_UNIX, SOCK_DGRAM, fds), ==, 0);
    check_flags(fds[0]);
    check_flags(fds[1]);
    close_pair(fds);
}

TEST(set_nonblocking_changes_nothing_else)
{
    int fds[2];

    CHECK_INT(pipe(fds), ==, 0);
    CHECK_INT(k->set_nonblocking(k, fds[0]), ==, 0);
    CHECK_INT(k->set_nonblocking(k, fds[0]), ==, 0);
    CHECK_INT(fcntl(fds[0], F_GETFL), ==, O_RDONLY | O_NONBLOCK);
    CHECK_INT(fcntl(fds[0], F_GETFD), ==, 0);
    close_pair(fds);
    CHECK_INT(k->set_nonblocking(k, fds[0]), ==, -EBADF);
}

/* Linux has closed the descriptor when it says EINTR: to close it again would be to close
 * what another thread has just opened. */
TEST(a_close_that_a_signal_interrupts_has_closed)
{
    int fds[2];

    CHECK_INT(k->pipe(k, fds), ==, 0);
    test_interrupt_close(2);
    CHECK_INT(k->close(k, fds[0]), ==, 0);
    CHECK_INT(k->close(k, fds[1]), ==, 0);
    CHECK_INT(fcntl(fds[0], F_GETFD), ==, -1);
    CHECK_INT(fcntl(fds[1], F_GETFD), ==, -1);
}

TEST(errors_are_returned_not_left_in_errno)
{
    char byte;

    CHECK_INT(k->read(k, -1, &byte, 1), ==, -EBADF);
    CHECK_INT(k->write(k, -1, &byte, 1), ==, -EBADF);
    CHECK_INT(k->close(k, -1), ==, -EBADF);
    CHECK_INT(k->open(k, "/nonexistent/file", O_RDONLY, 0), ==, -ENOENT);
    CHECK_INT(k->shutdown(k, -1, SHUT_WR), ==, -EBADF);
    CHECK(k->map(k, SIZE_MAX / 2) == NULL);
}

/* ---- Mappings and threads ---- */

TEST(mappings_are_zeroed_and_protectable)
{
    const size_t bytes = 1 << 20;
    char *memory = k->map(k, bytes);
    int fds[2];

    CHECK(memory != NULL);
    CHECK_INT(memory[0] | memory[bytes - 1], ==, 0);
    memory[0] = 'x';
    CHECK_INT(k->protect(k, memory, 4096, PROT_NONE), ==, 0);
    CHECK_INT(k->pipe(k, fds), ==, 0);
    CHECK_INT(k->write(k, fds[1], memory, 1), ==, -EFAULT);
    CHECK_INT(k->protect(k, memory, 4096, PROT_READ | PROT_WRITE), ==, 0);
    CHECK_INT(k->advise(k, memory, bytes, MADV_DONTNEED), ==, 0);
    CHECK_INT(memory[0], ==, 0);
    /* An emulator may not pass it on: stack.c does not believe a 0. */
    if (!test_emulated()) CHECK_INT(k->advise(k, memory, bytes, 9999), ==, -EINVAL);
    close_pair(fds);
    k->unmap(k, memory, bytes);
}

static void *thread_mask(void *arg)
{
    CHECK_INT(pthread_sigmask(SIG_SETMASK, NULL, arg), ==, 0);
    return NULL;
}

TEST(threads_start_with_the_signal_mask_of_their_maker)
{
    sigset_t set, seen;
    pthread_t thread;

    sigemptyset(&set);
    sigaddset(&set, SIGWINCH);
    CHECK_INT(pthread_sigmask(SIG_SETMASK, &set, NULL), ==, 0);
    sigemptyset(&seen);
    CHECK_INT(k->thread_start(k, &thread, thread_mask, &seen), ==, 0);
    CHECK_INT(k->thread_join(k, thread), ==, 0);
    CHECK_INT(sigismember(&seen, SIGWINCH), ==, 1);
    CHECK_INT(sigismember(&seen, SIGTERM), ==, 0);
    CHECK_INT(sigismember(&seen, SIGPIPE), ==, 0);
}

/* ---- Files and names ---- */

struct names {
    int count;
    int stop_at;
    char seen[8][32];
};

static int keep_name(void *arg, const char *name)
{
    struct names *names = arg;

    CHECK_INT(names->count, <, 8);
    snprintf(names->seen[names->count++], sizeof names->seen[0], "%s", name);
    return names->count == names->stop_at ? -ECANCELED : names->count;
}

TEST(files_can_be_written_read_listed_and_removed)
{
    char directory[] = "/tmp/weir-kernel-XXXXXX";
    char path[64], other[64], inner[64];
    char data[8] = "";
    struct names names = {0};
    struct stat status;
    int fd;

    CHECK(mkdtemp(directory) != NULL);
    snprintf(path, sizeof path, "%s/a", directory);
    snprintf(other, sizeof other, "%s/b", directory);
    snprintf(inner, sizeof inner, "%s/c", directory);
    fd = k->open(k, path, O_RDWR | O_CREAT, 0600);
    CHECK_INT(fcntl(fd, F_GETFD), ==, FD_CLOEXEC);
    CHECK_INT(k->pwrite(k, fd, "hello", 5, 3), ==, 5);
    CHECK_INT(k->pread(k, fd, data, sizeof data, 3), ==, 5);
    CHECK_STR(data, "hello");
    CHECK_INT(k->fsync(k, fd, true), ==, 0);
    CHECK_INT(k->fsync(k, fd, false), ==, 0);
    CHECK_INT(k->fstat(k, fd, &status), ==, 0);
    CHECK_INT(status.st_size, ==, 8);
    CHECK_INT(k->close(k, fd), ==, 0);
    CHECK_INT(k->rename(k, path, other), ==, 0);
    CHECK_INT(k->stat(k, path, &status), ==, -ENOENT);
    CHECK_INT(k->stat(k, other, &status), ==, 0);
    CHECK_INT(k->mkdir(k, inner, 0700), ==, 0);
    CHECK_INT(k->mkdir(k, inner, 0700), ==, -EEXIST);
    CHECK_INT(k->list_directory(k, directory, keep_name, &names), ==, 0);
    CHECK_INT(names.count, ==, 2);
    names = (struct names){.stop_at = 1};
    CHECK_INT(k->list_directory(k, directory, keep_name, &names), ==, -ECANCELED);
    CHECK_INT(names.count, ==, 1);
    CHECK_INT(k->list_directory(k, other, keep_name, &names), ==, -ENOTDIR);
    CHECK_INT(k->unlink(k, other), ==, 0);
    CHECK_INT(rmdir(inner), ==, 0);
    CHECK_INT(rmdir(directory), ==, 0);
}

TEST(name_look_up_gives_addresses_or_a_positive_reason)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;

    CHECK_INT(k->getaddrinfo(k, "127.0.0.1", "80", &hints, &list), ==, 0);
    CHECK_INT(list->ai_family, ==, AF_INET);
    k->freeaddrinfo(k, list);
    k->freeaddrinfo(k, NULL);
    CHECK_INT(k->getaddrinfo(k, "no number", "80", &hints, &list), ==, -EAI_NONAME);
    CHECK_INT(-EAI_NONAME, >, 0);
}

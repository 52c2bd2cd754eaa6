/* queue_test.c - the readiness queue of each backend on a real kernel. */
#include "rt/kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"
#include "harness/test.h"
#include "rt/kernel_real.h"

#define MS INT64_C(1000000)
#define SECOND (1000 * MS)

static const struct kernel *k = &kernel_epoll;

/* The same test with the queue of each backend that works here. */
static void on_each_backend(void (*fn)(void))
{
    struct kernel_queue *queue;

    k = &kernel_epoll;
    test_note("on epoll");
    fn();
    if (sanitize_on_valgrind()) return; /* it does not see what the kernel writes into a ring */
    if (kernel_uring == NULL || kernel_uring->queue_open(kernel_uring, &queue) < 0) return;
    k = kernel_uring;
    test_note("on io_uring");
    fn();
    k = &kernel_epoll;
    /* Not before: the end of a ring may cut a wait of its thread short. */
    kernel_uring->queue_close(queue);
}

#define QUEUE_TEST(name_)              \
    static void name_##_on_k(void);    \
    TEST(name_)                        \
    {                                  \
        on_each_backend(name_##_on_k); \
    }                                  \
    static void name_##_on_k(void)

static struct kernel_queue *open_queue(void)
{
    struct kernel_queue *queue;

    CHECK_INT(k->queue_open(k, &queue), ==, 0);
    return queue;
}

/* Wait for one event of `tag`, and return its readiness. */
static uint32_t wait_one(struct kernel_queue *queue, uint64_t tag)
{
    struct kernel_event events[8];

    CHECK_INT(k->queue_wait(queue, 5 * SECOND, events, 8), ==, 1);
    CHECK_INT(events[0].tag, ==, tag);
    return events[0].ready;
}

static int look(struct kernel_queue *queue)
{
    struct kernel_event events[8];

    return k->queue_wait(queue, 0, events, 8);
}

static bool readable(int fd, int timeout_ms)
{
    struct pollfd poller = {.fd = fd, .events = POLLIN};

    return poll(&poller, 1, timeout_ms) == 1;
}

static void close_pair(const int fds[2])
{
    CHECK_INT(k->close(k, fds[0]), ==, 0);
    CHECK_INT(k->close(k, fds[1]), ==, 0);
}

/* ---- The queue ---- */

QUEUE_TEST(queue_reports_readiness_as_it_arises_and_only_then)
{
    struct kernel_queue *queue = open_queue();
    int fds[2];

    CHECK_INT(k->socketpair(k, AF_UNIX, SOCK_STREAM, fds), ==, 0);
    CHECK_INT(k->queue_watch(queue, fds[0], 7), ==, 0);
    CHECK_INT(wait_one(queue, 7), ==, READY_OUT);
    CHECK_INT(look(queue), ==, 0);
    CHECK_INT(k->send(k, fds[1], "a", 1, 0), ==, 1);
    CHECK_INT(wait_one(queue, 7) & READY_IN, ==, READY_IN);
    /* Nothing was read, but nothing is new either. */
    CHECK_INT(look(queue), ==, 0);
    CHECK_INT(k->send(k, fds[1], "b", 1, 0), ==, 1);
    CHECK_INT(wait_one(queue, 7) & READY_IN, ==, READY_IN);
    close_pair(fds);
    k->queue_close(queue);
}

QUEUE_TEST(queue_reports_room_after_a_full_socket_was_drained)
{
    struct kernel_queue *queue = open_queue();
    static char data[65536];
    ssize_t n;
    int fds[2];

    CHECK_INT(k->socketpair(k, AF_UNIX, SOCK_STREAM, fds), ==, 0);
    CHECK_INT(k->queue_watch(queue, fds[0], 1), ==, 0);
    CHECK_INT(wait_one(queue, 1), ==, READY_OUT);
    do n = k->send(k, fds[0], data, sizeof data, 0);
    while (n > 0);
    CHECK_INT(n, ==, -EAGAIN);
    CHECK_INT(look(queue), ==, 0);
    do n = k->recv(k, fds[1], data, sizeof data, 0);
    while (n > 0);
    CHECK_INT(n, ==, -EAGAIN);
    CHECK_INT(wait_one(queue, 1), ==, READY_OUT);
    close_pair(fds);
    k->queue_close(queue);
}

QUEUE_TEST(queue_reports_a_half_close_as_input_and_a_hang_up_as_both)
{
    struct kernel_queue *queue = open_queue();
    char byte;
    int fds[2];

    CHECK_INT(k->socketpair(k, AF_UNIX, SOCK_STREAM, fds), ==, 0);
    CHECK_INT(k->queue_watch(queue, fds[0], 1), ==, 0);
    CHECK_INT(wait_one(queue, 1), ==, READY_OUT);
    CHECK_INT(k->shutdown(k, fds[1], SHUT_WR), ==, 0);
    CHECK_INT(wait_one(queue, 1) & READY_IN, ==, READY_IN);
    CHECK_INT(k->recv(k, fds[0], &byte, 1, 0), ==, 0);
    CHECK_INT(k->close(k, fds[1]), ==, 0);
    CHECK_INT(wait_one(queue, 1), ==, READY_IN | READY_OUT | READY_BEYOND);
    CHECK_INT(k->close(k, fds[0]), ==, 0);
    k->queue_close(queue);
}

QUEUE_TEST(queue_reports_the_lost_reader_of_a_pipe_as_output)
{
    struct kernel_queue *queue = open_queue();
    int fds[2];

    CHECK_INT(k->pipe(k, fds), ==, 0);
    CHECK_INT(k->queue_watch(queue, fds[1], 3), ==, 0);
    CHECK_INT(wait_one(queue, 3), ==, READY_OUT);
    CHECK_INT(k->close(k, fds[0]), ==, 0);
    CHECK_INT(wait_one(queue, 3) & READY_OUT, ==, READY_OUT);
    CHECK_INT(k->close(k, fds[1]), ==, 0);
    k->queue_close(queue);
}

QUEUE_TEST(queue_says_nothing_after_unwatch)
{
    struct kernel_queue *queue = open_queue();
    int fds[2];

    CHECK_INT(k->socketpair(k, AF_UNIX, SOCK_STREAM, fds), ==, 0);
    CHECK_INT(k->queue_watch(queue, fds[0], 1), ==, 0);
    CHECK_INT(k->queue_watch(queue, fds[0], 1), ==, -EEXIST);
    k->queue_unwatch(queue, fds[0]);
    k->queue_unwatch(queue, fds[0]); /* harmless */
    CHECK_INT(k->send(k, fds[1], "a", 1, 0), ==, 1);
    CHECK_INT(look(queue), ==, 0);
    close_pair(fds);
    k->queue_close(queue);
}

/* A ring holds on to the files that it polls, most of all when it is just about to
 * report something of them. */
QUEUE_TEST(queue_lets_go_of_a_descriptor_that_is_not_watched_any_more)
{
    struct kernel_queue *queue = open_queue();
    char byte;

    for (int round = 0; round < 100; round++) {
        int fds[2];

        CHECK_INT(k->socketpair(k, AF_UNIX, SOCK_STREAM, fds), ==, 0);
        CHECK_INT(k->queue_watch(queue, fds[0], 1), ==, 0);
        CHECK_INT(wait_one(queue, 1), ==, READY_OUT);
        if (round % 2 == 0) { CHECK_INT(k->shutdown(k, fds[1], SHUT_WR), ==, 0); }
        k->queue_unwatch(queue, fds[0]);
        CHECK_INT(k->close(k, fds[0]), ==, 0);
        CHECK_INT(k->recv(k, fds[1], &byte, 1, 0), ==, 0);
        CHECK_INT(k->close(k, fds[1]), ==, 0);
    }
    CHECK_INT(look(queue), ==, 0);
    k->queue_close(queue);
}

QUEUE_TEST(queue_reports_nothing_of_a_former_watch)
{
    struct kernel_queue *queue = open_queue();
    int fds[2];

    CHECK_INT(k->socketpair(k, AF_UNIX, SOCK_STREAM, fds), ==, 0);
    for (uint64_t tag = 1; tag <= 100; tag++) {
        CHECK_INT(k->queue_watch(queue, fds[0], tag), ==, 0);
        if (tag % 3 == 0) CHECK_INT(wait_one(queue, tag) & READY_OUT, ==, READY_OUT);
        CHECK_INT(k->send(k, fds[1], "a", 1, 0), ==, 1);
        k->queue_unwatch(queue, fds[0]);
    }
    CHECK_INT(k->queue_watch(queue, fds[0], 1000), ==, 0);
    CHECK_INT(wait_one(queue, 1000), ==, READY_IN | READY_OUT);
    CHECK_INT(look(queue), ==, 0);
    close_pair(fds);
    k->queue_close(queue);
}

struct elsewhere {
    struct kernel_queue *queue;
    int fd;
    bool watch;
};

static void *change_elsewhere(void *arg)
{
    struct elsewhere *change = arg;

    if (change->watch) {
        CHECK_INT(k->queue_watch(change->queue, change->fd, 5), ==, 0);
        CHECK_INT(k->queue_watch(change->queue, change->fd, 5), ==, -EEXIST);
    } else {
        k->queue_unwatch(change->queue, change->fd);
    }
    return NULL;
}

QUEUE_TEST(queue_takes_changes_from_other_threads)
{
    struct kernel_queue *queue = open_queue();
    struct elsewhere change = {.queue = queue, .watch = true};
    struct kernel_event event;
    pthread_t thread;
    char byte;
    int fds[2];

    CHECK_INT(look(queue), ==, 0); /* it is this thread's from now on */
    CHECK_INT(k->socketpair(k, AF_UNIX, SOCK_STREAM, fds), ==, 0);
    change.fd = fds[0];
    CHECK_INT(k->thread_start(k, &thread, change_elsewhere, &change), ==, 0);
    /* A wait that is ended for the change alone reports nothing. */
    while (k->queue_wait(queue, 10 * SECOND, &event, 1) == 0) continue;
    CHECK_INT(event.tag, ==, 5);
    CHECK_INT(event.ready, ==, READY_OUT);
    CHECK_INT(k->thread_join(k, thread), ==, 0);
    change.watch = false;
    CHECK_INT(k->thread_start(k, &thread, change_elsewhere, &change), ==, 0);
    CHECK_INT(k->thread_join(k, thread), ==, 0);
    CHECK_INT(k->close(k, fds[0]), ==, 0);
    /* Now its worker takes notice; it was woken for that. */
    CHECK_INT(k->queue_wait(queue, 10 * SECOND * (k != &kernel_epoll), &event, 1), ==, 0);
    CHECK_INT(k->recv(k, fds[1], &byte, 1, 0), ==, 0);
    CHECK_INT(k->close(k, fds[1]), ==, 0);
    k->queue_close(queue);
}

static void tcp_pair(int fds[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    struct sockaddr *generic = (struct sockaddr *)&address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK_INT(bind(listener, generic, bytes), ==, 0);
    CHECK_INT(listen(listener, 1), ==, 0);
    CHECK_INT(getsockname(listener, generic, &bytes), ==, 0);
    fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_INT(connect(fds[0], generic, bytes), ==, 0);
    fds[1] = accept(listener, NULL, NULL);
    CHECK_INT(fds[1], >=, 0);
    CHECK_INT(close(listener), ==, 0);
}

/* Plain data is nothing special: else every read would have to be tried twice. */
QUEUE_TEST(queue_tells_data_from_urgent_data_and_the_end)
{
    struct kernel_queue *queue = open_queue();
    char data[8];
    int fds[2];

    for (int urgent = 0; urgent < 2; urgent++) {
        tcp_pair(fds);
        CHECK_INT(k->queue_watch(queue, fds[0], 1), ==, 0);
        CHECK_INT(wait_one(queue, 1), ==, READY_OUT);
        for (int i = 0; i < 20; i++) {
            CHECK_INT(k->send(k, fds[1], "abc", 3, 0), ==, 3);
            CHECK_INT(wait_one(queue, 1) & ~(unsigned)READY_OUT, ==, READY_IN);
            CHECK_INT(k->recv(k, fds[0], data, sizeof data, 0), ==, 3);
        }
        if (urgent) {
            CHECK_INT(k->send(k, fds[1], "u", 1, MSG_OOB), ==, 1);
        } else {
            CHECK_INT(k->shutdown(k, fds[1], SHUT_WR), ==, 0);
        }
        CHECK_INT(wait_one(queue, 1) & READY_BEYOND, ==, READY_BEYOND);
        k->queue_unwatch(queue, fds[0]);
        close_pair(fds);
    }
    k->queue_close(queue);
}

QUEUE_TEST(queue_cannot_watch_a_regular_file)
{
    struct kernel_queue *queue = open_queue();
    char path[] = "/tmp/weir-kernel-XXXXXX";
    int fd = mkostemp(path, O_CLOEXEC);

    CHECK_INT(fd, >=, 0);
    CHECK_INT(k->queue_watch(queue, fd, 1), ==, -EPERM);
    CHECK_INT(k->queue_watch(queue, -1, 1), ==, -EBADF);
    CHECK_INT(k->unlink(k, path), ==, 0);
    CHECK_INT(k->close(k, fd), ==, 0);
    fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    CHECK_INT(k->queue_watch(queue, fd, 1), ==, -EPERM);
    CHECK_INT(k->close(k, fd), ==, 0);
    fd = eventfd(1, EFD_CLOEXEC);
    CHECK_INT(k->queue_watch(queue, fd, 2), ==, 0);
    CHECK_INT(wait_one(queue, 2), ==, READY_IN | READY_OUT);
    CHECK_INT(k->close(k, fd), ==, 0);
    k->queue_close(queue);
}

QUEUE_TEST(queue_gives_no_more_events_than_asked_for_and_keeps_the_rest)
{
    enum { PAIRS = 300 };
    struct kernel_queue *queue = open_queue();
    struct kernel_event events[PAIRS];
    static int fds[PAIRS][2];
    bool seen[PAIRS] = {false};
    int count = 0;

    for (int i = 0; i < PAIRS; i++) {
        CHECK_INT(k->pipe(k, fds[i]), ==, 0);
        CHECK_INT(k->queue_watch(queue, fds[i][1], (uint64_t)i + 1), ==, 0);
    }
    CHECK_INT(k->queue_wait(queue, 0, events, 1), ==, 1);
    seen[events[0].tag - 1] = true;
    for (int n; (n = k->queue_wait(queue, 0, events, PAIRS)) > 0;)
        for (int i = 0; i < n; i++) seen[events[i].tag - 1] = true;
    for (int i = 0; i < PAIRS; i++) {
        count += seen[i];
        close_pair(fds[i]);
    }
    CHECK_INT(count, ==, PAIRS);
    k->queue_close(queue);
}

/* One wait may end early by what the queue has to do for itself; one that is rounded down
 * would be short every time. */
static void check_wait_is_not_short(int64_t timeout_ns)
{
    struct kernel_queue *queue = open_queue();
    int64_t longest_ns = 0;

    for (int i = 0; i < 5 && longest_ns < timeout_ns; i++) {
        int64_t began_ns = k->now_ns(k), took_ns;
        struct kernel_event event;

        CHECK_INT(k->queue_wait(queue, timeout_ns, &event, 1), ==, 0);
        took_ns = k->now_ns(k) - began_ns;
        if (took_ns > longest_ns) longest_ns = took_ns;
    }
    CHECK_INT(longest_ns, >=, timeout_ns);
    k->queue_close(queue);
}

QUEUE_TEST(queue_waits_as_long_as_told)
{
    check_wait_is_not_short(300 * 1000); /* less than a millisecond */
    check_wait_is_not_short(5 * MS);
}

TEST(queue_waits_as_long_as_told_on_an_older_kernel)
{
    kernel_epoll_mask_pwait2(true);
    check_wait_is_not_short(300 * 1000);
    check_wait_is_not_short(5 * MS);
}

/* As some sandboxes do with calls that are newer than they are. */
static bool forbid_pwait2(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_epoll_pwait2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void wait_in_a_sandbox(void *arg)
{
    (void)arg;
    if (!forbid_pwait2()) {
        printf("no filter\n");
        return;
    }
    check_wait_is_not_short(300 * 1000);
    check_wait_is_not_short(5 * MS);
}

TEST(queue_waits_as_long_as_told_where_the_newer_call_is_forbidden)
{
    char output[512];
    int status = test_child(wait_in_a_sandbox, NULL, output, sizeof output);

    if (strcmp(output, "no filter\n") == 0) TEST_SKIP("seccomp filters cannot be used here");
    if (status != 0) TEST_FAIL("%s", output);
}

QUEUE_TEST(queue_wake_ends_the_next_wait_once)
{
    struct kernel_queue *queue = open_queue();
    struct kernel_event event;
    int64_t began_ns = k->now_ns(k);

    for (int round = 0; round < 3; round++) {
        k->queue_wake(queue);
        k->queue_wake(queue);
        CHECK_INT(k->queue_wait(queue, 10 * SECOND, &event, 1), ==, 0);
        CHECK(!readable(k->queue_fd(queue), 0));
    }
    CHECK_INT(k->now_ns(k) - began_ns, <, 10 * SECOND);
    k->queue_close(queue);
}

struct waker {
    struct kernel_queue *queue;
    ATOM(int) rounds;
};

static void *wake_on_every_round(void *arg)
{
    struct waker *waker = arg;

    for (int i = 1; i <= 1000; i++) {
        while (atom_load_acquire(&waker->rounds) < i) atom_pause();
        k->queue_wake(waker->queue);
    }
    return NULL;
}

QUEUE_TEST(queue_wake_from_another_thread_is_never_lost)
{
    struct waker waker = {.queue = open_queue()};
    struct kernel_event event;
    int64_t began_ns = k->now_ns(k);
    pthread_t thread;

    CHECK_INT(k->thread_start(k, &thread, wake_on_every_round, &waker), ==, 0);
    for (int i = 1; i <= 1000 && (i == 1 || !test_late()); i++) {
        atom_store_release(&waker.rounds, i);
        /* A lost one would show as a wait of a whole minute. */
        CHECK_INT(k->queue_wait(waker.queue, 60 * SECOND, &event, 1), ==, 0);
    }
    CHECK_INT(k->now_ns(k) - began_ns, <, 60 * SECOND);
    atom_store_release(&waker.rounds, 1000);
    CHECK_INT(k->thread_join(k, thread), ==, 0);
    k->queue_close(waker.queue);
}

static void on_signal(int signal)
{
    (void)signal;
}

struct interrupter {
    pthread_t target;
    ATOM(bool) done;
};

static void *interrupt_until_done(void *arg)
{
    struct interrupter *interrupter = arg;

    /* One signal could come just before the wait: go on until it has ended. */
    while (!atom_load_acquire(&interrupter->done)) {
        pthread_kill(interrupter->target, SIGUSR2);
        (void)poll(NULL, 0, 1);
    }
    return NULL;
}

QUEUE_TEST(queue_wait_cut_short_by_a_signal_reports_nothing)
{
    struct interrupter interrupter = {.target = pthread_self()};
    struct sigaction action = {.sa_handler = on_signal};
    struct kernel_queue *queue = open_queue();
    struct kernel_event event;
    int64_t began_ns = k->now_ns(k);
    pthread_t thread;

    CHECK_INT(sigaction(SIGUSR2, &action, NULL), ==, 0);
    CHECK_INT(k->thread_start(k, &thread, interrupt_until_done, &interrupter), ==, 0);
    CHECK_INT(k->queue_wait(queue, 60 * SECOND, &event, 1), ==, 0);
    atom_store_release(&interrupter.done, true);
    CHECK_INT(k->now_ns(k) - began_ns, <, 60 * SECOND);
    CHECK_INT(k->thread_join(k, thread), ==, 0);
    k->queue_close(queue);
}

QUEUE_TEST(queue_that_cannot_be_opened_leaves_nothing_open)
{
    struct rlimit limit;
    struct kernel_queue *queue;
    int lowest = open("/dev/null", O_RDONLY | O_CLOEXEC);

    CHECK_INT(lowest, >=, 0);
    CHECK_INT(close(lowest), ==, 0);
    CHECK_INT(getrlimit(RLIMIT_NOFILE, &limit), ==, 0);
    /* Room for no descriptor, then for the first of two. */
    for (int room = 0; room < 2; room++) {
        struct rlimit tight = {(rlim_t)(lowest + room), limit.rlim_max};

        CHECK_INT(setrlimit(RLIMIT_NOFILE, &tight), ==, 0);
        CHECK_INT(k->queue_open(k, &queue), ==, -EMFILE);
        CHECK_INT(setrlimit(RLIMIT_NOFILE, &limit), ==, 0);
    }
    test_fail_alloc_at(1);
    CHECK_INT(k->queue_open(k, &queue), ==, -ENOMEM);
}

/* ---- Embedding ---- */

QUEUE_TEST(queue_descriptor_is_readable_when_there_is_an_event)
{
    struct kernel_queue *queue = open_queue();
    int fds[2];

    CHECK(!readable(k->queue_fd(queue), 0));
    CHECK_INT(k->pipe(k, fds), ==, 0);
    CHECK_INT(k->queue_watch(queue, fds[0], 1), ==, 0);
    CHECK(!readable(k->queue_fd(queue), 0));
    CHECK_INT(k->write(k, fds[1], "a", 1), ==, 1);
    CHECK(readable(k->queue_fd(queue), 0));
    CHECK_INT(wait_one(queue, 1), ==, READY_IN);
    CHECK(!readable(k->queue_fd(queue), 0));
    close_pair(fds);
    k->queue_close(queue);
}

QUEUE_TEST(queue_descriptor_is_readable_when_the_time_has_come)
{
    struct kernel_queue *queue = open_queue();
    int fd = k->queue_fd(queue);
    int64_t at_ns = k->now_ns(k) + 20 * MS;

    CHECK_INT(k->queue_arm(queue, INT64_MAX), ==, 0);
    CHECK(!readable(fd, 0));
    CHECK_INT(k->queue_arm(queue, at_ns), ==, 0);
    CHECK_INT(k->queue_arm(queue, at_ns), ==, 0);
    CHECK(readable(fd, 10000));
    CHECK_INT(k->now_ns(k), >=, at_ns);
    CHECK_INT(look(queue), ==, 0);
    CHECK(!readable(fd, 0));
    /* The same time again: it has passed, and there is still something to do. */
    for (int round = 0; round < 3; round++) {
        CHECK_INT(k->queue_arm(queue, at_ns), ==, 0);
        CHECK(readable(fd, 10000));
        CHECK_INT(look(queue), ==, 0);
        CHECK(!readable(fd, 0));
    }
    k->queue_close(queue);
}

QUEUE_TEST(queue_timer_in_the_past_fires_and_is_taken_back)
{
    struct kernel_queue *queue = open_queue();
    int fd = k->queue_fd(queue);
    const int64_t past_ns[] = {INT64_MIN, -1, 0, 1};

    for (size_t i = 0; i < sizeof past_ns / sizeof *past_ns; i++) {
        CHECK_INT(k->queue_arm(queue, past_ns[i]), ==, 0);
        CHECK(readable(fd, 10000));
        CHECK_INT(k->queue_arm(queue, INT64_MAX), ==, 0);
        CHECK(!readable(fd, 0));
    }
    k->queue_close(queue);
}

QUEUE_TEST(queue_wake_does_not_lose_the_timer)
{
    struct kernel_queue *queue = open_queue();
    int fd = k->queue_fd(queue);
    int64_t at_ns = k->now_ns(k) + 50 * MS;

    CHECK_INT(k->queue_arm(queue, at_ns), ==, 0);
    k->queue_wake(queue);
    CHECK(readable(fd, 0));
    CHECK_INT(look(queue), ==, 0);
    CHECK_INT(k->queue_arm(queue, at_ns), ==, 0);
    CHECK(readable(fd, 10000));
    CHECK_INT(k->now_ns(k), >=, at_ns);
    /* And after another wake-up, a timer that is taken back stays away. */
    CHECK_INT(k->queue_arm(queue, k->now_ns(k) + 3600 * SECOND), ==, 0);
    k->queue_wake(queue);
    CHECK_INT(look(queue), ==, 0);
    CHECK_INT(k->queue_arm(queue, INT64_MAX), ==, 0);
    CHECK(!readable(fd, 0));
    k->queue_close(queue);
}

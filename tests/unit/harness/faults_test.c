/* faults_test.c - injected faults, choices and time do what test.h says. */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/atomic.h"
#include "harness/test.h"
#include "rt/kernel.h"
#include "rt/mem.h"

#define MS INT64_C(1000000)

/* ---- Allocations ---- */

TEST(allocations_are_counted_and_the_nth_fails_once)
{
    uint64_t count = test_alloc_count();
    void *first, *third;

    test_fail_alloc_at(2);
    first = mem_alloc(100);
    CHECK(first != NULL);
    CHECK(!test_alloc_failed());
    CHECK(mem_alloc(100) == NULL);
    CHECK(test_alloc_failed());
    third = mem_alloc_zeroed(50);
    CHECK(third != NULL);
    CHECK_INT(test_alloc_count() - count, ==, 3);
    CHECK_INT(test_live_blocks(), ==, 2);
    CHECK_INT(test_live_bytes(), ==, 150);
    mem_free(first);
    mem_free(third);
    CHECK_INT(test_live_bytes(), ==, 0);
    test_fail_alloc_at(0);
    CHECK(!test_alloc_failed());
}

TEST(resized_memory_keeps_its_content_and_a_failed_resize_too)
{
    char *memory = mem_alloc(6);
    char *larger;

    memcpy(memory, "hello", 6);
    test_fail_alloc_at(1);
    CHECK(mem_resize(memory, 100) == NULL);
    CHECK_STR(memory, "hello");
    larger = mem_resize(memory, 100);
    CHECK_STR(larger, "hello");
    CHECK_INT(test_live_bytes(), ==, 100);
    mem_free(larger);
}

static int allocate_three(void *arg)
{
    int *runs = arg;
    void *memory[3];
    int r = 0;

    ++*runs;
    for (int i = 0; i < 3; i++) {
        memory[i] = mem_alloc(10);
        if (memory[i] == NULL) r = -ENOMEM;
    }
    for (int i = 0; i < 3; i++) mem_free(memory[i]);
    return r;
}

TEST(alloc_sweep_visits_every_allocation)
{
    int runs = 0;

    CHECK_INT(test_sweep_alloc(allocate_three, &runs), ==, 3);
    CHECK_INT(runs, ==, 4);
}

/* ---- System calls ---- */

enum { SEEN_BYTES = 256 };

/* Note down what went wrong in a run, to see that a sweep leaves nothing out. */
static void seen_add(char *seen, const char *word)
{
    size_t length = strlen(seen);

    snprintf(seen + length, SEEN_BYTES - length, "%s ", word);
}

static int use_a_pipe(void *arg)
{
    const struct kernel *k = kernel_current();
    char *seen = arg;
    char byte;
    int fds[2];
    ssize_t r;

    r = k->pipe(k, fds);
    if (r < 0) goto out;
    r = k->write(k, fds[1], "x", 1);
    if (r >= 0) r = k->read(k, fds[0], &byte, 1);
    (void)k->close(k, fds[0]);
    (void)k->close(k, fds[1]);
out:
    seen_add(seen, test_call_failed_name());
    return (int)r;
}

TEST(call_sweep_visits_every_call)
{
    char seen[SEEN_BYTES] = "";

    CHECK_INT(test_sweep_calls(use_a_pipe, seen, -EIO), ==, 5);
    CHECK_STR(seen, "pipe write read close close  ");
}

TEST(named_calls_fail_as_often_as_asked)
{
    const struct kernel *k;
    char byte;
    int fds[2];

    test_fault("read", -EINTR, 2);
    test_fault("map", -ENOMEM, 1);
    k = kernel_current();
    CHECK(k != &kernel_epoll);
    CHECK_INT(k->pipe(k, fds), ==, 0);
    CHECK_INT(k->write(k, fds[1], "x", 1), ==, 1);
    CHECK_INT(k->read(k, fds[0], &byte, 1), ==, -EINTR);
    CHECK_INT(k->read(k, fds[0], &byte, 1), ==, -EINTR);
    CHECK_INT(k->read(k, fds[0], &byte, 1), ==, 1);
    CHECK_INT(test_calls("read"), ==, 3);
    CHECK_INT(test_calls("write"), ==, 1);
    CHECK(k->map(k, 4096) == NULL);
    /* The descriptor is gone all the same. */
    test_fault("close", -EIO, 1);
    CHECK_INT(k->close(k, fds[0]), ==, -EIO);
    CHECK_INT(fcntl(fds[0], F_GETFD), ==, -1); /* closed all the same */
    CHECK_INT(k->close(k, fds[1]), ==, 0);
    test_fault("getaddrinfo", -EAI_AGAIN, 1);
    CHECK_INT(k->getaddrinfo(k, "localhost", NULL, NULL, NULL), ==, -EAI_AGAIN);
}

TEST(short_transfers_move_a_part_and_leave_datagrams_whole)
{
    char data[8] = "";
    struct iovec parts[3] = {{data, 0}, {data, 3}, {data + 3, 3}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
    const struct kernel *k;
    int fds[2];

    test_short_io(2);
    k = kernel_current();
    CHECK_INT(k->socketpair(k, AF_UNIX, SOCK_STREAM, fds), ==, 0);
    CHECK_INT(k->send(k, fds[0], "abcdef", 6, 0), ==, 2);
    CHECK_INT(k->write(k, fds[0], "cdef", 4), ==, 2);
    CHECK_INT(k->recv(k, fds[1], data, 6, 0), ==, 2);
    CHECK_INT(k->read(k, fds[1], data, 6), ==, 2);
    CHECK_INT(k->sendmsg(k, fds[0], &message, 0), ==, 2);
    CHECK_INT(k->writev(k, fds[0], parts, 3), ==, 2);
    CHECK_INT(k->recvmsg(k, fds[1], &message, 0), ==, 2);
    CHECK_INT(k->readv(k, fds[1], parts, 3), ==, 2);
    CHECK_STR(data, "cd");
    CHECK_INT(k->close(k, fds[0]), ==, 0);
    CHECK_INT(k->close(k, fds[1]), ==, 0);
    CHECK_INT(k->socketpair(k, AF_UNIX, SOCK_DGRAM, fds), ==, 0);
    CHECK_INT(k->send(k, fds[0], "abcdef", 6, 0), ==, 6);
    CHECK_INT(k->recv(k, fds[1], data, 6, 0), ==, 6);
    CHECK_INT(k->close(k, fds[0]), ==, 0);
    CHECK_INT(k->close(k, fds[1]), ==, 0);
}

TEST(masked_features_are_not_there)
{
    const struct kernel *k;
    void *memory;

    test_mask_features("guard");
    k = kernel_current();
    memory = k->map(k, 65536);
    CHECK(memory != NULL);
    CHECK_INT(k->advise(k, memory, 4096, 102), ==, -EINVAL);
    CHECK_INT(k->advise(k, memory, 4096, 4), ==, 0);
    k->unmap(k, memory, 65536);
}

/* ---- Choices ---- */

static unsigned choose_last(void *arg, int kind, unsigned n)
{
    ++*(int *)arg;
    return kind == CHOOSE_CANCEL || kind == CHOOSE_YIELD ? 0 : n - 1;
}

TEST(choices_are_the_tests)
{
    const struct kernel *k;
    int asked = 0;

    test_choose(choose_last, &asked);
    k = kernel_current();
    CHECK_INT(kernel_choose(k, CHOOSE_TASK, 5), ==, 4);
    CHECK_INT(kernel_choose(k, CHOOSE_CANCEL, 2), ==, 0);
    CHECK_INT(asked, ==, 2);
    test_choose(NULL, NULL);
    CHECK(k->choose == NULL);
}

static int suspend_three_times(void *arg)
{
    char *seen = arg;

    for (int i = 0; i < 3; i++) {
        CHECK_INT(kernel_choose(kernel_current(), CHOOSE_TASK, 9), ==, 0);
        if (kernel_choose(kernel_current(), CHOOSE_CANCEL, 2) == 0) continue;
        seen_add(seen, (char[]){(char)('1' + i), '\0'});
        return -ECANCELED;
    }
    return 0;
}

TEST(cancel_sweep_visits_every_suspension)
{
    char seen[SEEN_BYTES] = "";

    CHECK_INT(test_sweep_cancel(suspend_three_times, seen), ==, 3);
    CHECK_STR(seen, "1 2 3 ");
    CHECK(kernel_current()->choose == NULL);
}

/* ---- Time ---- */

TEST(manual_clock_moves_only_when_told)
{
    const struct kernel *k;
    struct kernel_queue *queue;

    test_clock_manual();
    k = kernel_current();
    CHECK_INT(k->now_ns(k), ==, TEST_CLOCK_START_NS);
    CHECK_INT(k->queue_open(k, &queue), ==, 0);
    test_clock_advance_ms(5);
    CHECK_INT(k->now_ns(k), ==, TEST_CLOCK_START_NS + 5 * MS);
    test_clock_advance_ns(1);
    CHECK_INT(test_clock_now_ns(), ==, TEST_CLOCK_START_NS + 5 * MS + 1);
    k->queue_close(queue);
}

static void *advance_a_second(void *arg)
{
    test_clock_advance_ms(1000);
    return arg;
}

TEST(manual_clock_ends_the_waits_of_others)
{
    const struct kernel *k;
    struct kernel_queue *queue;
    struct kernel_event event;
    pthread_t thread;

    test_clock_manual();
    k = kernel_current();
    CHECK_INT(k->queue_open(k, &queue), ==, 0);
    CHECK_INT(pthread_create(&thread, NULL, advance_a_second, NULL), ==, 0);
    while (k->now_ns(k) == TEST_CLOCK_START_NS)
        CHECK_INT(k->queue_wait(queue, 1, &event, 1), ==, 0);
    pthread_join(thread, NULL);
    CHECK_INT(k->now_ns(k), ==, TEST_CLOCK_START_NS + 1000 * MS);
    k->queue_close(queue);
}

TEST(manual_clock_rules_the_embedding_timer)
{
    const struct kernel *k;
    struct kernel_queue *queue;
    struct kernel_event event;
    struct pollfd poller = {.events = POLLIN};

    test_clock_manual();
    k = kernel_current();
    CHECK_INT(k->queue_open(k, &queue), ==, 0);
    poller.fd = k->queue_fd(queue);
    CHECK_INT(k->queue_arm(queue, TEST_CLOCK_START_NS + 1), ==, 0);
    CHECK_INT(poll(&poller, 1, 0), ==, 0);
    test_clock_advance_ns(1);
    CHECK_INT(poll(&poller, 1, 10000), ==, 1);
    CHECK_INT(k->queue_wait(queue, 0, &event, 1), ==, 0);
    CHECK_INT(poll(&poller, 1, 0), ==, 0);
    CHECK_INT(k->queue_arm(queue, TEST_CLOCK_START_NS + 1), ==, 0);
    CHECK_INT(poll(&poller, 1, 10000), ==, 1);
    k->queue_close(queue);
}

TEST(auto_clock_jumps_to_the_end_of_a_wait_with_nothing_to_do)
{
    const struct kernel *k;
    struct kernel_queue *queue;
    struct kernel_event event;
    int fds[2];

    test_clock_auto();
    k = kernel_current();
    CHECK_INT(k->queue_open(k, &queue), ==, 0);
    CHECK_INT(k->queue_wait(queue, 3600 * 1000 * MS, &event, 1), ==, 0);
    CHECK_INT(k->now_ns(k), ==, TEST_CLOCK_START_NS + 3600 * 1000 * MS);
    /* Looking takes no time, nor does a wait that finds something, or is woken. */
    CHECK_INT(k->queue_wait(queue, 0, &event, 1), ==, 0);
    CHECK_INT(k->pipe(k, fds), ==, 0);
    CHECK_INT(k->queue_watch(queue, fds[1], 1), ==, 0);
    CHECK_INT(k->queue_wait(queue, 1000, &event, 1), ==, 1);
    k->queue_wake(queue);
    CHECK_INT(k->queue_wait(queue, 1000, &event, 1), ==, 0);
    CHECK_INT(k->now_ns(k), ==, TEST_CLOCK_START_NS + 3600 * 1000 * MS);
    CHECK_INT(k->queue_wait(queue, INT64_MAX, &event, 1), ==, 0);
    CHECK_INT(k->now_ns(k), ==, INT64_MAX);
    CHECK_INT(k->close(k, fds[0]), ==, 0);
    CHECK_INT(k->close(k, fds[1]), ==, 0);
    k->queue_close(queue);
}

static int wait_with_faults(void *arg)
{
    const struct kernel *k = kernel_current();
    struct kernel_queue *queue;
    struct kernel_event event;
    int64_t began_ns = k->now_ns(k);
    int r = k->queue_open(k, &queue);

    (void)arg;
    if (r < 0) return r;
    CHECK_INT(k->queue_wait(queue, 10 * MS, &event, 1), ==, 0);
    CHECK_INT(k->now_ns(k) - began_ns, ==, 10 * MS);
    k->queue_close(queue);
    return 0;
}

TEST(faults_and_clock_work_together)
{
    test_clock_auto();
    test_mask_features("guard");
    test_short_io(1);
    CHECK_INT(test_sweep_alloc(wait_with_faults, NULL), ==, 1);
    CHECK_INT(test_sweep_calls(wait_with_faults, NULL, -EMFILE), ==, 1);
}

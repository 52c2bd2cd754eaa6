/* kernel_epoll.c - the readiness queue on epoll.
 *
 * A queue is an epoll descriptor that holds an eventfd for wake-ups and, once the
 * queue is embedded, a timerfd. Both are edge-triggered and never read: each
 * write to the eventfd and each expiry is a new edge, so a wake-up costs the
 * waker one system call and the worker none.
 *
 * Invariant: armed_ns is the time that the timerfd will still report, or has
 * reported to the kernel's ready list but not to us; INT64_MAX when there is no
 * such time. That is what lets queue_arm skip the system call.
 */
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/atomic.h"
#include "rt/kernel_real.h"
#include "rt/mem.h"
#include "rt/sanitize.h"

enum {
    QUEUE_EVENTS_MAX = 256, /* reported by one wait; more stay in the kernel for the next */
};

#define NS_PER_S INT64_C(1000000000)
#define NS_PER_MS INT64_C(1000000)

/* What epoll says beside each event. Tags of callers are never 0. */
#define TAG_INTERNAL UINT64_C(0)

struct kernel_queue {
    int epoll_fd;
    int wake_fd;
    int timer_fd; /* -1 until queue_arm is first called */
    int64_t armed_ns;
    struct epoll_event events[QUEUE_EVENTS_MAX];
};

/* Whether epoll_pwait2 is there: found out by the first call. Relaxed is enough,
 * since the worst that a late reader does is to find out again. */
static ATOM(bool) pwait2_missing = WEIR_TSAN; /* which holds signals back in calls unknown to it */
static ATOM(bool) pwait2_masked;

void kernel_epoll_mask_pwait2(bool mask)
{
    atom_store(&pwait2_masked, mask);
}

static int queue_add(struct kernel_queue *queue, int fd, uint32_t interest, uint64_t tag)
{
    struct epoll_event event = {.events = interest | EPOLLET, .data.u64 = tag};

    return epoll_ctl(queue->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

static int epoll_queue_open(const struct kernel *kernel, struct kernel_queue **ret_queue)
{
    struct kernel_queue *queue = mem_alloc(sizeof *queue);
    int r;

    (void)kernel;
    if (queue == NULL) return -ENOMEM;
    queue->timer_fd = -1;
    queue->armed_ns = INT64_MAX;
    queue->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (queue->epoll_fd < 0) {
        r = -errno;
        goto fail_free;
    }
    queue->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (queue->wake_fd < 0) {
        r = -errno;
        goto fail_close_epoll;
    }
    r = queue_add(queue, queue->wake_fd, EPOLLIN, TAG_INTERNAL);
    if (r < 0) goto fail_close_wake;
    *ret_queue = queue;
    return 0;

fail_close_wake:
    close(queue->wake_fd);
fail_close_epoll:
    close(queue->epoll_fd);
fail_free:
    mem_free(queue);
    return r;
}

static void epoll_queue_close(struct kernel_queue *queue)
{
    if (queue == NULL) return;
    if (queue->timer_fd >= 0) close(queue->timer_fd);
    close(queue->wake_fd);
    close(queue->epoll_fd);
    mem_free(queue);
}

static int epoll_queue_watch(struct kernel_queue *queue, int fd, uint64_t tag)
{
    assert(tag != TAG_INTERNAL);
    return queue_add(queue, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI, tag);
}

static void epoll_queue_unwatch(struct kernel_queue *queue, int fd)
{
    /* It fails only if the descriptor is not watched, which is what is wanted. */
    (void)epoll_ctl(queue->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

/* musl has no function for it. Its time has 64 bits on the processors that weir runs on,
 * as the kernel wants it. */
#if !defined(__GLIBC__)
static int epoll_pwait2(int epoll_fd, struct epoll_event *events, int events_max,
                        const struct timespec *timeout, const sigset_t *mask)
{
    return (int)syscall(SYS_epoll_pwait2, epoll_fd, events, events_max, timeout, mask, _NSIG / 8);
}
#endif

/* epoll_wait with nanoseconds where the kernel has it; errors as -errno. */
static int wait_events(struct kernel_queue *queue, int64_t timeout_ns, int events_max)
{
    int n;

    /* Looking needs no precision. */
    if (timeout_ns > 0 && !atom_load(&pwait2_missing) && !atom_load(&pwait2_masked)) {
        const struct timespec timeout = {timeout_ns / NS_PER_S, timeout_ns % NS_PER_S};

        n = epoll_pwait2(queue->epoll_fd, queue->events, events_max, &timeout, NULL);
        /* EPERM: a sandbox that does not know the call. */
        if (n >= 0 || (errno != ENOSYS && errno != EPERM)) return n < 0 ? -errno : n;
        atom_store(&pwait2_missing, true);
    }
    /* Rounded up: a worker that wakes early finds nothing due and waits again. */
    n = epoll_wait(queue->epoll_fd, queue->events, events_max,
                   (int)((timeout_ns + NS_PER_MS - 1) / NS_PER_MS));
    return n < 0 ? -errno : n;
}

/* Errors and hang-ups are found by the next read or write, so they make the
 * descriptor ready for whoever waits. A peer that has only ended its own
 * direction says nothing about ours. */
static uint32_t ready_of(uint32_t events)
{
    uint32_t ready = 0;

    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) ready |= READY_IN;
    if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) ready |= READY_OUT;
    if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR | EPOLLPRI)) ready |= READY_BEYOND;
    return ready;
}

/* An internal event was a wake-up or the timer: the clock says which. */
static void timer_spent(struct kernel_queue *queue)
{
    if (queue->armed_ns != INT64_MAX && queue->armed_ns <= real_now_ns(&kernel_epoll))
        queue->armed_ns = INT64_MAX;
}

static int epoll_queue_wait(struct kernel_queue *queue, int64_t timeout_ns,
                            struct kernel_event *events, int events_max)
{
    int n, count = 0;

    assert(timeout_ns >= 0);
    assert(events_max > 0);
    if (timeout_ns > SANITIZE_SLEEP_NS_MAX) timeout_ns = SANITIZE_SLEEP_NS_MAX;
    if (events_max > QUEUE_EVENTS_MAX) events_max = QUEUE_EVENTS_MAX;
    n = wait_events(queue, timeout_ns, events_max);
    if (n < 0) {
        /* Anything else would be a wrong descriptor or pointer of ours. */
        assert(n == -EINTR);
        return 0;
    }
    for (int i = 0; i < n; i++) {
        uint64_t tag = queue->events[i].data.u64;

        if (tag == TAG_INTERNAL) {
            timer_spent(queue);
            continue;
        }
        events[count].tag = tag;
        events[count].ready = ready_of(queue->events[i].events);
        count++;
    }
    return count;
}

SANITIZE_HANDLER static void epoll_queue_wake(struct kernel_queue *queue)
{
    const uint64_t one = 1;
    ssize_t n;

    /* The counter is never read back; at one a nanosecond it lasts 500 years. */
    do n = sanitize_handler_write(queue->wake_fd, &one, sizeof one);
    while (n < 0 && errno == EINTR);
    assert(n == sizeof one);
}

static int epoll_queue_fd(struct kernel_queue *queue)
{
    return queue->epoll_fd;
}

/* The timer's descriptor, made when the first runtime is embedded. */
static int timer_open(struct kernel_queue *queue)
{
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    int r;

    if (fd < 0) return -errno;
    r = queue_add(queue, fd, EPOLLIN, TAG_INTERNAL);
    if (r < 0) {
        close(fd);
        return r;
    }
    queue->timer_fd = fd;
    return 0;
}

static int epoll_queue_arm(struct kernel_queue *queue, int64_t at_ns)
{
    int r;

    if (at_ns == queue->armed_ns) return 0;
    if (queue->timer_fd < 0) {
        r = timer_open(queue);
        if (r < 0) return r;
    }
    r = real_timer_set(queue->timer_fd, at_ns);
    if (r < 0) return r;
    queue->armed_ns = at_ns;
    return 0;
}

const struct kernel kernel_epoll = {
    .name = "epoll",
    KERNEL_REAL_CALLS,
    .queue_open = epoll_queue_open,
    .queue_close = epoll_queue_close,
    .queue_watch = epoll_queue_watch,
    .queue_unwatch = epoll_queue_unwatch,
    .queue_wait = epoll_queue_wait,
    .queue_wake = epoll_queue_wake,
    .queue_fd = epoll_queue_fd,
    .queue_arm = epoll_queue_arm,
};

/* kernel_uring.c - the readiness queue on io_uring.
 *
 * Each watched descriptor has one multishot poll in the ring, which reports every
 * wake-up of the descriptor: an edge. What a queue is asked for and what the ring does
 * are kept apart, so that any thread may ask and only the owner enters the ring:
 *
 *     watch, unwatch ──▶ wanted ──flush (owner)──▶ armed ──a poll ends by itself──▶ 0
 *
 * A watch whose `armed` is not its `wanted` stands in the list of changes; flush takes
 * the old poll away and makes the new one, and both go to the kernel with the wait.
 * Generations are never used twice, so a late completion of a former watch finds that
 * nobody wants it.
 *
 * A poll holds a reference to its file: a socket that is closed while the ring polls it
 * stays open. Hence an unwatch on the owner's thread goes to the kernel at once.
 *
 * A poll ends by itself when the completion ring is full (or after an error): it is made
 * again, and reports what is ready then, so that nothing is lost in between.
 */
#include "rt/kernel_uring.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "rt/mem.h"
#include "rt/sanitize.h"

enum {
    SUBMISSIONS = 256,
    COMPLETIONS = 4096,
    WATCHES_MIN = 64,
    WATCH_LAST = -1,     /* the end of the list of changes */
    WATCH_UNLISTED = -2, /* not in it */
    SETTLE_ROUNDS = 64,  /* the kernel works off 20 pieces or more in each */
};

/* RDBAND is never ready by itself. Together with PRI it shows that a completion carries
 * what the waker announced (every reader of a socket is told IN, PRI and RDBAND) and not
 * what is there, so that its PRI means nothing. Real urgent data comes with two wake-ups
 * (tcp_urg and the data's own): then the kernel looks, or reports a second edge. */
#define POLL_INTEREST (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI | EPOLLRDBAND)

#define NS_PER_S INT64_C(1000000000)
#define NS_PER_MS INT64_C(1000000)

/* Best first; a kernel that refuses one with EINVAL is asked for the next. */
static const unsigned flag_sets[] = {
    /* Linux 6.1: completions are made in our own calls and never interrupt a task. */
    IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG |
        IORING_SETUP_R_DISABLED,
    /* Linux 5.19: in any system call. */
    IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
    0,
};

/* ---- The ring ---- */

static void ring_close(struct io_uring *ring)
{
    /* The ring's memory is mapped and unmapped where ThreadSanitizer does not see it. */
    sanitize_memory_gone(ring->sq.sqes, ring->sq.ring_entries * sizeof *ring->sq.sqes);
    sanitize_memory_gone(ring->sq.ring_ptr, ring->sq.ring_sz);
    if (ring->cq.ring_ptr != ring->sq.ring_ptr) {
        sanitize_memory_gone(ring->cq.ring_ptr, ring->cq.ring_sz);
    }
    io_uring_queue_exit(ring);
}

static int ring_setup(struct io_uring *ring, unsigned flags)
{
    const struct kernel_uring_limits *limits = &kernel_uring_limits;
    unsigned submissions = limits->submissions_max ? limits->submissions_max : SUBMISSIONS;
    struct io_uring_params params = {
        .flags = flags | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP,
        .cq_entries = limits->completions_max ? limits->completions_max : COMPLETIONS,
    };
    int r;

    if (limits->setup_error != 0) return limits->setup_error;
    if (flags & limits->flags_refused) return -EINVAL;
    r = io_uring_queue_init_params(submissions, ring, &params);
    if (r < 0) return r;
    /* Waits with a bound, and completions that are never dropped: Linux 5.11. */
    if (~params.features & (IORING_FEAT_EXT_ARG | IORING_FEAT_NODROP)) r = -EINVAL;
    /* A child of a fork must not be able to write into it. */
    if (r == 0) r = io_uring_ring_dontfork(ring);
    if (r < 0) ring_close(ring);
    return r < 0 ? r : 0;
}

static int ring_open(struct io_uring *ring, unsigned *ret_flags)
{
    int r = -EINVAL;

    for (size_t i = 0; r == -EINVAL && i < sizeof flag_sets / sizeof *flag_sets; i++) {
        *ret_flags = flag_sets[i];
        r = ring_setup(ring, flag_sets[i]);
    }
    return r;
}

/* From now on it belongs to the calling thread. (liburing 2.3 declares a call for it but
 * does not export that.) */
static int ring_enable(struct io_uring *ring)
{
    long r = syscall(SYS_io_uring_register, ring->ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0);

    return r < 0 ? -errno : 0;
}

/* What this kernel can do, found out by the first queue: bits of 1 << kernel_file_kind,
 * and PROBED. Relaxed is enough: who does not see it finds out again. */
#define PROBED (1u << KERNEL_FILE_KINDS)
static ATOM(unsigned) probed_kinds;

/* Whether polls stay armed: make one on `fd`, which is readable. */
static int probe_multishot(struct io_uring *ring, int fd)
{
    struct io_uring_sqe *submission = io_uring_get_sqe(ring);
    struct io_uring_cqe *completion;
    int r;

    io_uring_prep_poll_multishot(submission, fd, EPOLLIN);
    r = io_uring_submit_and_wait(ring, 1);
    if (r < 0) return r;
    r = io_uring_peek_cqe(ring, &completion);
    if (r < 0) return r;
    if (completion->res < 0) return completion->res;
    return completion->flags & IORING_CQE_F_MORE ? 0 : -EINVAL;
}

static int probe(void)
{
    struct io_uring ring = {.ring_fd = -1};
    unsigned flags, kinds;
    int fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    int r;

    if (fd < 0) return -errno;
    r = ring_open(&ring, &flags);
    if (r < 0) goto out;
    if (flags & IORING_SETUP_R_DISABLED) r = ring_enable(&ring);
    if (r == 0) r = probe_multishot(&ring, fd);
    kinds = uring_file_kinds(&ring);
    ring_close(&ring);
    if (r == 0) atom_store(&probed_kinds, PROBED | kinds);
out:
    close(fd);
    return r;
}

static int queue_probe(struct kernel_queue *queue)
{
    int r = 0;

    if (kernel_uring_limits.multishot_missing) return -EINVAL;
    if (!(atom_load(&probed_kinds) & PROBED)) r = probe();
    queue->kinds = atom_load(&probed_kinds) & ~(PROBED | kernel_uring_limits.ops_missing);
    queue->threads_missing = kernel_uring_limits.threads_missing;
    /* Without these, a completion may be seen before the kernel has let go of the file:
     * closed and executed at once it would be "text file busy". */
    if (!(queue->flags & IORING_SETUP_DEFER_TASKRUN)) queue->kinds = 0;
    return r;
}

static int uring_queue_open(const struct kernel *kernel, struct kernel_queue **ret_queue)
{
    struct kernel_queue *queue = mem_alloc_zeroed(sizeof *queue);
    int r;

    (void)kernel;
    if (queue == NULL) return -ENOMEM;
    queue->outer_fd = queue->signal_fd = queue->timer_fd = -1;
    queue->armed_ns = INT64_MAX;
    queue->changes = WATCH_LAST;
    list_init(&queue->unsubmitted);
    list_init(&queue->running);
    queue->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (queue->wake_fd < 0) {
        r = -errno;
        goto fail_free;
    }
    r = ring_open(&queue->ring, &queue->flags);
    if (r < 0) goto fail_close;
    r = queue_probe(queue);
    if (r < 0) goto fail_exit;
    lock_init(&queue->lock);
    *ret_queue = queue;
    return 0;

fail_exit:
    ring_close(&queue->ring);
fail_close:
    close(queue->wake_fd);
fail_free:
    mem_free(queue);
    return r;
}

static bool owned_here(struct kernel_queue *queue)
{
    return atom_load(&queue->owner) == (uintptr_t)pthread_self();
}

/* The first thread that waits is the one that the ring belongs to. */
static void own(struct kernel_queue *queue)
{
    if (__builtin_expect(atom_load(&queue->owner) != 0, 1)) return;
    if (queue->flags & IORING_SETUP_R_DISABLED) {
        int r = ring_enable(&queue->ring);
        assert(r == 0); /* it was possible when the kernel was probed */
    }
    atom_store(&queue->owner, (uintptr_t)pthread_self());
}

bool uring_room(struct kernel_queue *queue, unsigned count)
{
    if (io_uring_sq_space_left(&queue->ring) >= count) return true;
    (void)io_uring_submit(&queue->ring);
    return io_uring_sq_space_left(&queue->ring) >= count;
}

/* ---- Watches ---- */

static uint64_t poll_data(int fd, uint32_t generation)
{
    return (uint64_t)generation << 32 | (uint64_t)(unsigned)fd * DATA_KINDS | DATA_POLL;
}

/* The lock is held. */
static void list_change(struct kernel_queue *queue, int fd)
{
    struct watch *watch = &queue->watches[fd];

    if (watch->next != WATCH_UNLISTED) return;
    watch->next = WATCH_LAST;
    if (queue->changes == WATCH_LAST) {
        queue->changes = fd;
    } else {
        queue->watches[queue->last_change].next = fd;
    }
    queue->last_change = fd;
    atom_store_release(&queue->changed, true);
}

/* Bring the ring's polls in line with what is wanted; the owner, or nobody waits yet. */
static void flush_changes(struct kernel_queue *queue)
{
    lock_acquire(&queue->lock);
    while (queue->changes != WATCH_LAST && uring_room(queue, 2)) {
        int fd = queue->changes;
        struct watch *watch = &queue->watches[fd];
        struct io_uring_sqe *submission;

        queue->changes = watch->next;
        watch->next = WATCH_UNLISTED;
        if (watch->armed == watch->wanted) continue;
        if (watch->armed != 0) {
            submission = io_uring_get_sqe(&queue->ring);
            /* Not a removal, which does nothing to a poll that is just being completed. */
            io_uring_prep_cancel64(submission, poll_data(fd, watch->armed), 0);
            submission->user_data = DATA_NOTHING;
        }
        if (watch->wanted != 0) {
            submission = io_uring_get_sqe(&queue->ring);
            io_uring_prep_poll_multishot(submission, fd, POLL_INTEREST);
            submission->user_data = poll_data(fd, watch->wanted);
        }
        watch->armed = watch->wanted;
    }
    atom_store_release(&queue->changed, queue->changes != WATCH_LAST);
    lock_release(&queue->lock);
}

static void flush(struct kernel_queue *queue)
{
    if (!queue->wake_armed && queue->outer_fd < 0 && uring_room(queue, 1)) {
        struct io_uring_sqe *submission = io_uring_get_sqe(&queue->ring);

        io_uring_prep_poll_multishot(submission, queue->wake_fd, EPOLLIN);
        submission->user_data = DATA_WAKE;
        queue->wake_armed = true;
    }
    if (atom_load_acquire(&queue->changed)) flush_changes(queue);
    if (!list_empty(&queue->unsubmitted)) uring_file_flush(queue);
}

/* The kernel has something for us that only a call brings in. */
static bool must_enter(struct kernel_queue *queue)
{
    return IO_URING_READ_ONCE(*queue->ring.sq.kflags) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW);
}

/* Make the changes now. Completions stay in the ring for the next wait. */
static void settle(struct kernel_queue *queue)
{
    flush(queue);
    (void)io_uring_submit_and_get_events(&queue->ring);
    for (int i = 0; i < SETTLE_ROUNDS; i++) {
        if (!(IO_URING_READ_ONCE(*queue->ring.sq.kflags) & IORING_SQ_TASKRUN)) break;
        (void)io_uring_get_events(&queue->ring);
    }
}

/* The end of a ring is the kernel's to make, at its leisure; until then its polls hold
 * their files open. So they are taken away first, by their own thread; one that has ended
 * took them along. */
static void unwatch_all(struct kernel_queue *queue)
{
    if (!owned_here(queue)) return;
    lock_acquire(&queue->lock);
    for (int fd = 0; fd < queue->watch_count; fd++) {
        queue->watches[fd].wanted = 0;
        if (queue->watches[fd].armed != 0) list_change(queue, fd);
    }
    lock_release(&queue->lock);
    while (atom_load(&queue->changed) && uring_room(queue, 2)) settle(queue);
}

static void uring_queue_close(struct kernel_queue *queue)
{
    if (queue == NULL) return;
    assert(list_empty(&queue->running)); /* the kernel would write into freed memory */
    unwatch_all(queue);
    ring_close(&queue->ring);
    if (queue->timer_fd >= 0) close(queue->timer_fd);
    if (queue->signal_fd >= 0) close(queue->signal_fd);
    if (queue->outer_fd >= 0) close(queue->outer_fd);
    close(queue->wake_fd);
    lock_deinit(&queue->lock);
    mem_free(queue->watches);
    mem_free(queue);
}

/* After a change of the watches by any thread. Embedded, nobody may be about to wait:
 * the descriptor must show it. */
static void take_notice(struct kernel_queue *queue, bool at_once)
{
    if (atom_load(&queue->owner) == 0) return; /* the first wait will see it */
    if (!owned_here(queue)) {
        kernel_uring->queue_wake(queue);
    } else if (at_once || queue->outer_fd >= 0) {
        settle(queue);
    }
}

static int check_by_epoll(int fd)
{
    struct epoll_event event = {.events = EPOLLET};
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    int r;

    if (epoll_fd < 0) return -errno;
    sanitize_unseen_begin();
    r = epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
    sanitize_unseen_end();
    close(epoll_fd);
    return r;
}

/* epoll refuses what is always ready; a ring would report it for ever. */
static int check_pollable(int fd)
{
    struct stat status;
    int r;

    /* A look of the library's own: it is no use of the descriptor by the task. */
    sanitize_unseen_begin();
    r = fstat(fd, &status) < 0 ? -errno : 0;
    sanitize_unseen_end();
    if (r < 0) return r;
    if (S_ISSOCK(status.st_mode) || S_ISFIFO(status.st_mode)) return 0;
    if (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode)) return -EPERM;
    return check_by_epoll(fd);
}

/* The lock is held. */
static int watches_grow(struct kernel_queue *queue, int fd)
{
    int count = queue->watch_count > 0 ? queue->watch_count : WATCHES_MIN;
    struct watch *watches;

    if (fd < queue->watch_count) return 0;
    while (count <= fd) count *= 2; /* descriptors end far below INT_MAX / 2 */
    watches = mem_resize(queue->watches, (size_t)count * sizeof *watches);
    if (watches == NULL) return -ENOMEM;
    for (int i = queue->watch_count; i < count; i++) {
        watches[i] = (struct watch){.next = WATCH_UNLISTED};
    }
    queue->watches = watches;
    queue->watch_count = count;
    return 0;
}

static int uring_queue_watch(struct kernel_queue *queue, int fd, uint64_t tag)
{
    int r = check_pollable(fd);

    assert(tag != 0);
    if (r < 0) return r;
    lock_acquire(&queue->lock);
    r = watches_grow(queue, fd);
    if (r == 0 && queue->watches[fd].wanted != 0) r = -EEXIST;
    if (r == 0) {
        if (++queue->generation == 0) queue->generation = 1;
        queue->watches[fd].wanted = queue->generation;
        queue->watches[fd].tag = tag;
        list_change(queue, fd);
    }
    lock_release(&queue->lock);
    if (r == 0) take_notice(queue, false);
    return r;
}

static void uring_queue_unwatch(struct kernel_queue *queue, int fd)
{
    bool armed = false;

    lock_acquire(&queue->lock);
    if (fd >= 0 && fd < queue->watch_count && queue->watches[fd].wanted != 0) {
        armed = queue->watches[fd].armed != 0;
        queue->watches[fd].wanted = 0;
        if (armed) list_change(queue, fd);
    }
    lock_release(&queue->lock);
    if (armed) take_notice(queue, true);
}

/* ---- Completions ---- */

/* As in kernel_epoll.c. */
static uint32_t ready_of(uint32_t events)
{
    uint32_t ready = 0;

    if ((events & (EPOLLPRI | EPOLLRDBAND)) == (EPOLLPRI | EPOLLRDBAND)) events &= ~EPOLLPRI;
    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) ready |= READY_IN;
    if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) ready |= READY_OUT;
    if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR | EPOLLPRI)) ready |= READY_BEYOND;
    return ready;
}

/* Where events go, and how many there are. */
struct event_list {
    struct kernel_event *events;
    int count;
    int count_max;
};

/* One event for each descriptor and wait. False: no room, it stays in the ring. */
static bool report(struct kernel_queue *queue, struct watch *watch, uint32_t ready,
                   struct event_list *list)
{
    if (watch->reported == queue->wait_number && list->events[watch->event].tag == watch->tag) {
        list->events[watch->event].ready |= ready;
        return true;
    }
    if (list->count == list->count_max) return false;
    watch->reported = queue->wait_number;
    watch->event = list->count;
    list->events[list->count++] = (struct kernel_event){watch->tag, ready};
    return true;
}

/* The lock is held. False: no room. */
static bool take_poll(struct kernel_queue *queue, const struct io_uring_cqe *completion,
                      struct event_list *list)
{
    int fd = (int)((uint32_t)completion->user_data / DATA_KINDS);
    uint32_t generation = (uint32_t)(completion->user_data >> 32);
    struct watch *watch = &queue->watches[fd];
    /* A poll that failed: whoever waits finds out by trying. */
    uint32_t ready = completion->res < 0 ? READY_IN | READY_OUT | READY_BEYOND
                                         : ready_of((uint32_t)completion->res);

    if (watch->wanted == generation && ready != 0 && !report(queue, watch, ready, list)) {
        return false;
    }
    if (!(completion->flags & IORING_CQE_F_MORE) && watch->armed == generation) {
        watch->armed = 0;
        /* Closed without an unwatch: its number may be another descriptor's by now. */
        if (completion->res != -EBADF) list_change(queue, fd);
    }
    return true;
}

/* Take what is in the completion ring, without a system call. */
static void reap(struct kernel_queue *queue, struct event_list *list)
{
    struct io_uring_cqe *completion;
    struct list finished;
    struct list *node;
    unsigned head, count = 0;
    bool room = true;

    if (io_uring_cq_ready(&queue->ring) == 0) return;
    list_init(&finished);
    lock_acquire(&queue->lock);
    io_uring_for_each_cqe(&queue->ring, head, completion)
    {
        struct kernel_file_op *op;

        switch (completion->user_data % DATA_KINDS) {
        case DATA_POLL: room = take_poll(queue, completion, list); break;
        case DATA_WAKE:
            queue->stirred = true;
            if (!(completion->flags & IORING_CQE_F_MORE)) queue->wake_armed = false;
            break;
        case DATA_OP:
            op = (struct kernel_file_op *)(uintptr_t)completion->user_data;
            op->result = completion->res;
            list_remove(&op->node);
            list_add_tail(&finished, &op->node);
            break;
        default: break;
        }
        if (!room) break;
        count++;
    }
    lock_release(&queue->lock);
    io_uring_cq_advance(&queue->ring, count);
    while ((node = list_pop(&finished))) {
        queue->stirred = true;
        uring_file_done(queue, container_of(node, struct kernel_file_op, node));
    }
}

/* ---- Embedding ---- */

static void signal_outside(struct kernel_queue *queue)
{
    const uint64_t one = 1;
    ssize_t n = write(queue->signal_fd, &one, sizeof one);

    assert(n == sizeof one || errno == EAGAIN); /* full: it is readable */
}

static int outer_add(struct kernel_queue *queue, int fd)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = fd};

    return epoll_ctl(queue->outer_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

/* The descriptor is not readable any more, unless there is something left. */
static void settle_outside(struct kernel_queue *queue, int timeout_ms)
{
    struct epoll_event events[3];
    int n = epoll_wait(queue->outer_fd, events, 3, timeout_ms);

    for (int i = 0; i < n; i++) {
        if (events[i].data.fd == queue->timer_fd) queue->armed_ns = INT64_MAX;
    }
}

/* Whether the next wait would find more than the leavings of what was taken away. */
static bool anything_to_tell(struct kernel_queue *queue)
{
    struct io_uring_cqe *completion;
    unsigned head;

    io_uring_for_each_cqe(&queue->ring, head, completion)
    {
        unsigned kind = completion->user_data % DATA_KINDS;

        if (kind != DATA_NOTHING && completion->res != -ECANCELED) return true;
    }
    return must_enter(queue);
}

/* From now on wake-ups are the outer epoll's: a wake-up is a write to an eventfd, inside
 * which the kernel makes another one readable too late. What the eventfd holds from former
 * wake-ups is no news; one that the ring's poll was about to report may be cancelled with
 * it, and is told by its number. */
static int embed_wake_ups(struct kernel_queue *queue)
{
    struct io_uring_sqe *submission;
    int r = outer_add(queue, queue->wake_fd);

    if (r < 0 || !queue->wake_armed) return r;
    if (!uring_room(queue, 1)) return -EAGAIN;
    settle_outside(queue, 0);
    submission = io_uring_get_sqe(&queue->ring);
    io_uring_prep_cancel64(submission, DATA_WAKE, 0);
    submission->user_data = DATA_NOTHING;
    if (atom_load_total(&queue->wakes) != queue->wakes_seen) signal_outside(queue);
    return 0;
}

/* The ring's descriptor tells an epoll around it nothing while completions are deferred,
 * but an eventfd can be told. */
static int embed(struct kernel_queue *queue)
{
    int r;

    if (queue->outer_fd >= 0) return 0;
    queue->outer_fd = epoll_create1(EPOLL_CLOEXEC);
    if (queue->outer_fd < 0) return -errno;
    queue->signal_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (queue->signal_fd < 0) {
        r = -errno;
        goto fail_outer;
    }
    r = outer_add(queue, queue->signal_fd);
    if (r == 0) r = embed_wake_ups(queue);
    if (r < 0) goto fail_signal;
    own(queue);
    settle(queue); /* before it is registered: what this leaves behind is no news */
    r = io_uring_register_eventfd(&queue->ring, queue->signal_fd);
    if (r < 0) goto fail_signal;
    if (anything_to_tell(queue)) signal_outside(queue);
    return 0;

fail_signal:
    close(queue->signal_fd);
    queue->signal_fd = -1;
fail_outer:
    close(queue->outer_fd);
    queue->outer_fd = -1;
    return r;
}

static int uring_queue_fd(struct kernel_queue *queue)
{
    int r = embed(queue);

    return r < 0 ? r : queue->outer_fd;
}

static int uring_queue_arm(struct kernel_queue *queue, int64_t at_ns)
{
    int r = embed(queue);

    if (r < 0) return r;
    if (at_ns == queue->armed_ns) return 0;
    if (queue->timer_fd < 0) {
        int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);

        if (fd < 0) return -errno;
        r = outer_add(queue, fd);
        if (r < 0) {
            close(fd);
            return r;
        }
        queue->timer_fd = fd;
    }
    r = real_timer_set(queue->timer_fd, at_ns);
    if (r < 0) return r;
    queue->armed_ns = at_ns;
    return 0;
}

/* ---- Waiting ---- */

static void enter(struct kernel_queue *queue, int64_t timeout_ns)
{
    struct __kernel_timespec timeout = {timeout_ns / NS_PER_S, timeout_ns % NS_PER_S};
    struct io_uring_cqe *completion;
    int r;

    if (timeout_ns > 0) {
        r = io_uring_submit_and_wait_timeout(&queue->ring, &completion, 1, &timeout, NULL);
    } else {
        r = io_uring_submit_and_get_events(&queue->ring);
    }
    /* EBUSY, EAGAIN: no memory for more, or completions first; the next call tries again.
     * Anything else would be a wrong descriptor or pointer of ours. */
    assert(r >= 0 || r == -ETIME || r == -EINTR || r == -EBUSY || r == -EAGAIN);
}

static void wait_outside(struct kernel_queue *queue, int64_t timeout_ns)
{
    enter(queue, 0);
    if (anything_to_tell(queue)) return;
    settle_outside(queue, (int)((timeout_ns + NS_PER_MS - 1) / NS_PER_MS));
    enter(queue, 0);
}

static int uring_queue_wait(struct kernel_queue *queue, int64_t timeout_ns,
                            struct kernel_event *events, int events_max)
{
    struct event_list list = {events, 0, events_max};

    assert(timeout_ns >= 0);
    assert(events_max > 0);
    own(queue);
    /* ThreadSanitizer holds signals back in calls that it does not know: wait in epoll. */
    if (WEIR_TSAN) (void)embed(queue);
    queue->wait_number++;
    queue->stirred = false;
    reap(queue, &list);
    flush(queue);
    /* Changes that the ring had no room for are made by the next wait: soon. */
    if (list.count > 0 || queue->stirred || atom_load(&queue->changed)) timeout_ns = 0;
    if (timeout_ns > SANITIZE_SLEEP_NS_MAX) timeout_ns = SANITIZE_SLEEP_NS_MAX;
    if (timeout_ns > 0 && queue->outer_fd >= 0) {
        /* The wait ends also when the armed time has come. */
        wait_outside(queue, timeout_ns);
        reap(queue, &list);
    } else if (timeout_ns > 0 || io_uring_sq_ready(&queue->ring) > 0 || must_enter(queue)) {
        enter(queue, timeout_ns);
        reap(queue, &list);
    }
    if (queue->outer_fd >= 0) {
        settle_outside(queue, 0);
        if (anything_to_tell(queue)) signal_outside(queue);
    }
    queue->wakes_seen = atom_load_total(&queue->wakes);
    return list.count;
}

SANITIZE_HANDLER static void uring_queue_wake(struct kernel_queue *queue)
{
    const uint64_t one = 1;
    ssize_t n;

    /* The counter is never read back; at one a nanosecond it lasts 500 years. */
    (void)atom_add(&queue->wakes, 1);
    do n = sanitize_handler_write(queue->wake_fd, &one, sizeof one);
    while (n < 0 && errno == EINTR);
    assert(n == sizeof one);
}

static const struct kernel table = {
    .name = "io_uring",
    KERNEL_REAL_CALLS,
    .queue_open = uring_queue_open,
    .queue_close = uring_queue_close,
    .queue_watch = uring_queue_watch,
    .queue_unwatch = uring_queue_unwatch,
    .queue_wait = uring_queue_wait,
    .queue_wake = uring_queue_wake,
    .queue_fd = uring_queue_fd,
    .queue_arm = uring_queue_arm,
    .queue_submit = uring_queue_submit,
    .queue_withdraw = uring_queue_withdraw,
    .queue_cancel_all = uring_queue_cancel_all,
};

const struct kernel *const kernel_uring = &table;

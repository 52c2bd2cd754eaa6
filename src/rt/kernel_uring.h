/* kernel_uring.h - the inside of a queue on io_uring: kernel_uring.c polls and waits,
 * kernel_uring_file.c makes file calls.
 *
 * Invariants: only the owner (the thread of the first queue_wait) enters the ring; the
 * lock covers the watches, which other threads change, and nothing else.
 */
#ifndef WEIR_RT_KERNEL_URING_H
#define WEIR_RT_KERNEL_URING_H

#include <liburing.h>

#include "base/atomic.h"
#include "rt/kernel_real.h"
#include "rt/lock.h"

/* What a completion is about: the low bits of its user data. An operation is its
 * address, which is aligned; a poll is its generation and its descriptor. */
enum {
    DATA_OP = 0,
    DATA_POLL = 1,
    DATA_NOTHING = 2, /* of a removal or a cancellation: what it was about tells more */
    DATA_WAKE = 3,
    DATA_KINDS = 4,
};

/* A descriptor, watched or not; see kernel_uring.c. */
struct watch {
    uint64_t tag;
    uint32_t wanted;   /* the generation that is watched; 0: none */
    uint32_t armed;    /* the generation that the ring polls; 0: none */
    int next;          /* in the list of changes, a descriptor or one of WATCH_* */
    int event;         /* where the wait `reported` has put it */
    uint64_t reported; /* the last wait that did */
};

struct kernel_queue {
    struct io_uring ring;
    unsigned flags;        /* IORING_SETUP_* that the kernel took */
    unsigned kinds;        /* of file calls, as bits of 1 << kernel_file_kind */
    bool threads_missing;  /* for tests: file calls end before they begin */
    ATOM(uintptr_t) owner; /* 0: nobody has waited yet */
    int wake_fd;
    bool wake_armed;
    ATOM(uint64_t) wakes; /* calls of queue_wake, counted before they take effect */
    uint64_t wakes_seen;  /* of them before the last wait returned */
    bool stirred;         /* there was something that is not an event: do not sleep */
    uint64_t wait_number;

    /* Embedding; -1 before. */
    int outer_fd; /* an epoll around the two below and wake_fd */
    int signal_fd;
    int timer_fd;
    int64_t armed_ns;

    struct lock lock;
    struct watch *watches; /* by descriptor */
    int watch_count;
    int changes;     /* the first watch whose `armed` is not what is wanted */
    int last_change; /* if there is a first */
    uint32_t generation;
    ATOM(bool) changed;

    struct list unsubmitted; /* of kernel_file_op */
    struct list running;
};

/* Room for `count` submissions; false if the kernel takes none now. */
bool uring_room(struct kernel_queue *queue, unsigned count);

/* ---- kernel_uring_file.c ---- */

/* The kinds of file calls whose opcodes a ring has. */
unsigned uring_file_kinds(struct io_uring *ring);
/* Hand what was submitted to the kernel with its next call. */
void uring_file_flush(struct kernel_queue *queue);
/* A completion has come: `op` goes through here once. */
void uring_file_done(struct kernel_queue *queue, struct kernel_file_op *op);

int uring_queue_submit(struct kernel_queue *queue, struct kernel_file_op *keep_op);
bool uring_queue_withdraw(struct kernel_queue *queue, struct kernel_file_op *op);
void uring_queue_cancel_all(struct kernel_queue *queue);

#endif

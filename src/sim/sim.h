/* sim.h - one simulated run: hosts, threads, time, and every choice.
 *
 * All threads of all simulated programs run on one thread of the system, one at a time: a
 * sim_thread is a stack of its own that is switched to (rt/switch.h). It is left only where it
 * waits (queue_wait, thread_wait, thread_join, thread_yield) and, at worker level, at atomics and
 * locks (base/atomic.h). Time stands still while any thread can go on; then it jumps to the
 * next event.
 *
 * Everything that could be otherwise is asked of sim_choose; 0 is always the plain answer: the
 * scheduler's own order, no fault, all bytes, no delay. A run is therefore its seed (for
 * kernel->random) and the list of its answers that are not 0.
 *
 * Invariants: nothing here asks the real clock, or depends on addresses. A call of the table
 * never waits unless its contract in rt/kernel.h says so.
 * Threads: one. `struct sim` is found by sim_now_running().
 */
#ifndef WEIR_SIM_SIM_H
#define WEIR_SIM_SIM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>
#include <weir/sim.h>

#include "base/list.h"
#include "rt/kernel.h"
#include "rt/sanitize.h"
#include "rt/switch.h"

struct sim;
struct sim_host;
struct sim_thread;

/* ---- Choices ---- */

/* After the kinds of rt/kernel.h. choice.c has a row for each: its words, and what it is. */
enum sim_choice {
    SIM_THREAD = CHOOSE_KINDS, /* which of n threads goes on; 0: who waits longest */
    SIM_SWITCH,                /* worker level, n is 2: 1 lets another thread go on here */
    SIM_NOTIFY,                /* which of n threads that wait on a condition is woken */
    SIM_EVENT,                 /* which of n events due at the same time comes first */
    SIM_FAULT,                 /* n is 2: 1, it happens; `detail` is an enum sim_fault */
    SIM_AMOUNT,                /* how much less, how much later: after a fault, or at a crash */
    SIM_USER,                  /* weir_sim_choose */
    SIM_KINDS,
};

/* What an answer other than 0 is. */
enum choice_class {
    CLASS_ORDER,  /* who goes on: random walk, PCT, exhaustive search */
    CLASS_FAULT,  /* by the lot of weir_sim_faults */
    CLASS_AMOUNT, /* by lot, of equal weight */
};

/* In the order of the members of weir_sim_faults. */
enum sim_fault {
    SIM_FAULT_SHORT_IO,
    SIM_FAULT_LATE,
    SIM_FAULT_RESET,
    SIM_FAULT_REFUSE,
    SIM_FAULT_DATAGRAM_LOSS,
    SIM_FAULT_DATAGRAM_TWICE,
    SIM_FAULT_DATAGRAM_ORDER,
    SIM_FAULT_DISK_ERROR,
    SIM_FAULT_DISK_FULL,
    SIM_FAULT_SYNC_ERROR,
    SIM_FAULT_NO_MEMORY,
    SIM_FAULT_CANCEL,
    SIM_FAULT_KILL,
    SIM_FAULTS,
};

/* One answer: less than n. n is 1 or more; nothing is recorded for 1. `about` says what it is
 * about, in a word or two that stay ("read", a task's name): for the decisions in words. */
unsigned sim_choose(struct sim *sim, unsigned kind, unsigned n, const char *about);

/* Whether this fault happens here and now, by its lot and its bound. */
bool sim_fault(struct sim *sim, enum sim_fault fault, const char *about);

/* After a fault that is a matter of degree: 1 ... most (most is 1 or more; 1 is likeliest to
 * be kept when a run is made shorter). */
uint64_t sim_amount(struct sim *sim, uint64_t most, const char *about);

/* How late something may come by a fault, in ms: late_ms_max of the run, or its default. */
int64_t sim_late_ms_max(const struct sim *sim);

/* Data for kernel->random: from the seed alone. */
uint64_t sim_random(struct sim *sim);

/* ---- Time ---- */

int64_t sim_now_ns(const struct sim *sim);

/* Something that happens at a time: the network's and the world's own. Embedded in what it is
 * about; stopped before that is freed. `fire` runs between two steps of threads and waits
 * nowhere. */
struct sim_event {
    struct list node; /* in the world's events, by time; in none: not pending */
    int64_t at_ns;
    void (*fire)(struct sim *sim, struct sim_event *event);
};

void sim_event_init(struct sim_event *event, void (*fire)(struct sim *, struct sim_event *));
void sim_event_start(struct sim *sim, struct sim_event *event, int64_t at_ns); /* or move it */
void sim_event_stop(struct sim_event *event);

/* ---- Hosts ---- */

/* The host whose thread runs; NULL: none does. */
struct sim_host *sim_host_running(const struct sim *sim);
/* 0, 1, ...: its address is 10.0.0.(index + 1). NULL if there is none. */
struct sim_host *sim_host_at(const struct sim *sim, unsigned index);
struct sim_host *sim_host_named(const struct sim *sim, const char *name);
unsigned sim_host_index(const struct sim_host *host);
const char *sim_host_name(const struct sim_host *host);
/* Whether anything passes between the two now. A host always reaches itself. */
bool sim_host_reaches(const struct sim_host *a, const struct sim_host *b);
/* What net.c and disk.c keep for a host. */
struct sim_net;
struct sim_disk;
struct sim_net *sim_host_net(const struct sim_host *host);
struct sim_disk *sim_host_disk(const struct sim_host *host);

/* ---- Descriptors: fd.c ---- */

struct sim_file;

/* What an open file can do; a call that is NULL here gives -EINVAL (-ENOTSOCK: sockets' calls). */
struct sim_file_kind {
    const char *name;
    unsigned (*ready)(struct sim *sim, const struct sim_file *file); /* READY_* as it is now */
    ssize_t (*read)(struct sim *sim, struct sim_file *file, const struct iovec *parts, int count,
                    struct msghdr *message,
                    int flags); /* read, recv; message: recvmsg's, or NULL */
    ssize_t (*write)(struct sim *sim, struct sim_file *file, const struct iovec *parts, int count,
                     const struct msghdr *message, int flags);
    void (*release)(struct sim *sim, struct sim_file *take_file); /* the last descriptor is gone */
    bool watchable; /* else queue_watch gives -EPERM, as for files on a disk */
};

/* An open file: the first member of a socket, a pipe's end, a file on a disk. */
struct sim_file {
    const struct sim_file_kind *kind;
    struct sim_host *host;
    unsigned holders;    /* descriptors */
    struct list watches; /* of its descriptors, in queues */
};

void sim_file_init(struct sim_file *file, const struct sim_file_kind *kind, struct sim_host *host);
/* A descriptor of the running host for `take_file`: the lowest free number from SIM_FD_FIRST on.
 * -EMFILE. Real descriptors are below: a program's own prints still work. */
enum { SIM_FD_FIRST = 1000, SIM_FDS_MAX = 4096 };
int sim_fd_install(struct sim *sim, struct sim_file *take_file);
/* What a descriptor of the running host is; NULL: it is none (-EBADF). */
struct sim_file *sim_fd_file(struct sim *sim, int fd);
/* It has newly become ready, READY_*: tell the queues that watch it. */
void sim_file_ready(struct sim *sim, struct sim_file *file, unsigned ready);
/* Close all of a host's descriptors, when its program is killed or has ended; how many there
 * were. */
unsigned sim_fds_close_all(struct sim *sim, struct sim_host *host);
/* The same for its calls in the table: watches, queues, close, duplicate, read, write, ... */
void sim_fd_fill_table(struct kernel *table);

/* ---- The network: net.c, net_stream.c, net_datagram.c ---- */

int sim_net_open(struct sim *sim, struct sim_host *host, struct sim_net **ret_net);
void sim_net_close(struct sim *sim, struct sim_net *take_net);
/* The host is gone at once: peers get resets when they next hear of it. After this all of its
 * descriptors are closed without a word. */
void sim_net_cut(struct sim *sim, struct sim_host *host);
/* A partition was healed: what waited for it goes on. */
void sim_net_healed(struct sim *sim);
void sim_net_fill_table(struct kernel *table); /* socket ... shutdown, getaddrinfo */

/* ---- Disks: disk.c ---- */

int sim_disk_open(struct sim *sim, struct sim_host *host, size_t bytes_max,
                  struct sim_disk **ret_disk);
void sim_disk_close(struct sim *sim, struct sim_disk *take_disk);
/* The host lost power: of what was not synced any part is lost, sector by sector. */
void sim_disk_crash(struct sim *sim, struct sim_disk *disk);
/* The file of a unix socket. Make one, as bind does: its number (above 0), -EADDRINUSE if the
 * name is taken, or what open with O_CREAT gives. Find it, as connect does: -ECONNREFUSED if it
 * is something else. */
int64_t sim_disk_socket_make(struct sim *sim, struct sim_disk *disk, const char *path);
int64_t sim_disk_socket_find(struct sim *sim, struct sim_disk *disk, const char *path);
void sim_disk_fill_table(struct kernel *table); /* open ... list_directory */

/* ---- Memory: memory.c ---- */

/* Memory of the simulator itself: never fails by a fault, not looked at for leaks; freed with
 * the run if it was not before. NULL: there is really none. */
void *sim_alloc(struct sim *sim, size_t bytes); /* zeroed */
void sim_free(struct sim *sim, void *memory);   /* takes NULL */

/* ---- Threads: thread.c ---- */

/* The caller waits until somebody wakes it (sim_thread_wake), or until_ns (INT64_MAX: never) has
 * come. `idle`: nothing happens at until_ns that would help anybody, it is a look around only.
 * True: it was woken. A scheduling point. */
bool sim_thread_sleep(struct sim *sim, int64_t until_ns, bool idle, const char *what);
void sim_thread_wake(struct sim *sim, struct sim_thread *thread); /* nothing if it does not sleep */
/* Others may go on before the caller does. */
void sim_thread_yield(struct sim *sim);
struct sim_thread *sim_thread_running(const struct sim *sim);

/* ---- The run ---- */

struct sim *sim_now_running(void); /* NULL: none */

/* The run has failed, and ends here: never returns to the caller. */
_Noreturn void sim_fail(struct sim *sim, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif

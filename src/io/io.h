/* io.h - what every file of this layer shares: waiting, handles, claims, addresses.
 *
 * A call of this layer tries its system call first, and waits with io_wait only
 * after the kernel said "not yet". A claim is held for the whole of a call that
 * must not be interleaved with another of its kind; it is a word, not a lock:
 * whoever finds it taken gets WEIR_EINUSE and never waits for it.
 */
#ifndef WEIR_IO_IO_H
#define WEIR_IO_IO_H

#include <weir/net.h>

#include "base/atomic.h"
#include "rt/handle.h"
#include "rt/pollable.h"
#include "rt/runtime.h"
#include "rt/task.h"

/* Wait for `direction`. 0: try again. Signals that came while the task was on its
 * way back from an earlier wait have interrupted nothing, so they are looked at
 * here: parking now would be parking for good. Suspends. */
static inline int io_wait(struct task *self, struct pollable *pollable, unsigned direction,
                          const struct wait_kind *kind)
{
    int r = task_interruption(self, kind->takes_work);
    if (r < 0) return r;
    return pollable_wait(pollable, direction, kind);
}

/* ---- Handles ----
 *
 * A program's weir_conn, weir_listener, weir_udp and weir_file pointers are handles
 * (rt/handle.h), never addresses. Here a parameter named `handle` is what the program
 * has; what io_check made of it is the object, which begins with a struct io_head.
 * task_enter may give way to others, who may close the handle: look it up after that, or
 * hold something of it meanwhile that a close finds. */

struct io_head {
    weir_runtime *runtime;
    void *handle; /* what the program knows it by */
};

/* Which of the rules it is that `call` breaks. */
_Noreturn void io_misused(const void *handle, enum handle_kind kind, const char *call);

/* What a call that any thread may make begins with: the object. */
static inline void *io_check_open(const void *handle, enum handle_kind kind, const char *call)
{
    void *object = handle_object(handle, kind);
    if (__builtin_expect(!object, 0)) io_misused(handle, kind, call);
    return object;
}

/* What every other call begins with: on a worker of the handle's own runtime. */
static inline void *io_check(const void *handle, enum handle_kind kind, const char *call)
{
    struct io_head *head = io_check_open(handle, kind, call);
    const struct worker *worker = worker_self();

    if (__builtin_expect(!worker || worker->runtime != head->runtime, 0)) {
        io_misused(handle, kind, call);
    }
    return head;
}

/* The head of an object that is being made, on a worker. -ENOMEM, -ENFILE. */
int io_head_init(struct io_head *head, enum handle_kind kind);
/* From here on the handle names nothing; before the object is freed. */
void io_head_deinit(struct io_head *head);

/* Who is doing something, or NULL. */
typedef ATOM(const void *) io_claim;

/* False: somebody else has it. With one worker no exchange is needed. */
static inline bool io_claim_take(io_claim *claim, bool shared, const void *owner)
{
    const void *nobody = NULL;
    if (shared) return atom_cas(claim, &nobody, owner);
    if (atom_load_acquire(claim)) return false;
    atom_store(claim, owner);
    return true;
}

static inline void io_claim_give_back(io_claim *claim)
{
    atom_store_release(claim, NULL);
}

/* ---- address.c ---- */

/* A name of the kernel's, of a socket of the given transport (for sockets of the
 * internet; others are told by their family). -EAFNOSUPPORT. */
int address_from_kernel(const struct sockaddr_storage *storage, socklen_t bytes,
                        enum weir_transport transport, weir_address *ret_address);

/* The name of a socket's own side, or of its peer's. */
int address_of_socket(const struct kernel *kernel, int fd, bool peer, enum weir_transport transport,
                      weir_address *ret_address);

/* A numeric host; false if it is none. The transport is for the caller to set. */
bool address_from_numbers(const char *host, uint16_t port, weir_address *ret_address);

#endif

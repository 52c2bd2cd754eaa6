/* process.h - a child process inside, and what a pool of them needs beyond the public calls.
 *
 *     STARTING ─▶ RUNNING ──SIGTERM─▶ ENDING ──SIGKILL─▶ KILLED
 *         │          └──────────────────┴──────────────────┴──▶ ENDED
 *         └── there is no child ──────────────────────────────────▲
 *
 * A process is a belonging of its scope and lives on the worker that started it: its
 * descriptor, its timers, its scope's mail and the mail of those who dismiss it all come
 * there, so no two of them meet. Its memory goes when it is ENDED and was dismissed: by
 * close, by its pool, or by the end of its scope.
 *
 * Invariants: it is reaped under the runtime's process_lock, and signals are sent under it,
 * so that none goes to a number that is somebody else's by now; every waiter is woken
 * exactly once, by whoever takes it out of `waiters`.
 */
#ifndef WEIR_IO_PROCESS_H
#define WEIR_IO_PROCESS_H

#include <weir/process.h>

#include "io/io.h"
#include "rt/blocking.h"
#include "rt/scope.h"

enum { PROCESS_NAME_BYTES = 32 };

enum process_state {
    PROCESS_STARTING,
    PROCESS_RUNNING,
    PROCESS_ENDING,
    PROCESS_KILLED,
    PROCESS_ENDED,
    PROCESS_STATES,
};

/* How it ended, and whose it was: a copy, since the handle may be gone. */
struct process_result {
    weir_process_status status;
    bool lost; /* somebody else has reaped it */
    enum weir_exit_policy policy;
    pid_t pid;
    char name[PROCESS_NAME_BYTES];
};

/* For the owner of many: called once when it has ended, on its worker's own stack, before
 * its memory goes; not if it was never started. May not suspend. */
typedef void (*process_ended_fn)(weir_process *process, const struct process_result *result,
                                 void *arg);
struct process_hook {
    process_ended_fn on_ended;
    void *arg;
    unsigned fds_blocking; /* bits of spec.fds that lose O_NONBLOCK in the child */
};

struct weir_process {
    struct io_head head;
    struct belonging belonging;
    struct process_hook hook;
    struct pollable *pollable; /* NULL once it has ended */
    int pidfd;
    pid_t group; /* 0: none of its own */
    int64_t grace_ms;
    int64_t since_ns; /* of the state */
    struct timer kill_timer;
    struct timer look_timer;
    struct mail mail; /* it was dismissed */
    ATOM(bool) mail_posted;
    bool cancelled; /* its scope was, while it was being started */
    bool reported;  /* that it does not die */

    /* ---- covered by the runtime's process_lock ---- */
    enum process_state state;
    bool dismissed;
    bool at_once;
    struct list waiters; /* struct process_wait */
    struct process_result result;
};

static inline void processes_lock(weir_runtime *runtime)
    LOCK_ACQUIRES(runtime->process_lock, weir_no_park) LOCK_UNCHECKED
{
    lock_acquire_if(&runtime->process_lock, runtime->shared);
}

static inline void processes_unlock(weir_runtime *runtime)
    LOCK_RELEASES(runtime->process_lock, weir_no_park) LOCK_UNCHECKED
{
    lock_release_if(&runtime->process_lock, runtime->shared);
}

/* Give the handle up, from any worker: the process is ended, at once with SIGKILL or with
 * its grace, and its memory goes when it has. Never suspends. */
void process_dismiss(weir_process *process, bool at_once);

/* "exit code 3", "signal 11 (SIGSEGV), core dumped". */
void process_describe_end(const struct process_result *result, char *text, size_t bytes);

/* On its worker: for process_start.c. */
extern const struct belonging_kind process_kind;
void process_set_state(weir_process *process, enum process_state state);
/* Have its end told; `r` is what the last look gave. What cannot be waited for is looked at
 * from time to time: no failure here may leave a zombie. */
void process_watch(struct worker *worker, weir_process *process, int r);
/* Leave the scope and free, if it has ended and was dismissed. */
void process_let_go(weir_process *process);
void process_kill_due(struct worker *worker, struct timer *timer);
void process_look_again(struct worker *worker, struct timer *timer);
void process_deliver(struct worker *worker, struct mail *mail);

/* ---- process_start.c ---- */

/* weir_process_start with a checked spec; `hook` may be NULL. */
int process_start(weir_scope *scope, const weir_process_spec *spec, const struct process_hook *hook,
                  weir_process **ret_process);

/* ---- process_plan.c ---- */

/* A process being made: a call of the executor, and all that the child is made of. */
struct start_call {
    struct blocking_call call;
    weir_runtime *runtime;
    bool counted; /* in the runtime's process_count */
    bool started; /* there is a child, and it is the call's */
    int result;
    struct process_plan plan; /* its descriptors (>= 0) are the call's own */
    struct process_made made;
    size_t memory_bytes;
    char memory[]; /* strings and arrays of the plan */
};

int process_check_spec(const weir_process_spec *spec);

/* The call for a checked spec, without descriptors yet. -ENOMEM, -EAGAIN (the environment
 * was changed meanwhile). */
int start_call_new(const weir_process_spec *spec, struct start_call **ret_call);

#endif

/* capture.h - where a worker's thread is at this moment, by a signal to it.
 *
 *     FREE ──asked──▶ ASKED ──handler begins──▶ TAKING ──handler is done──▶ TAKEN
 *      ▲                │ given up                                           │
 *      └────────────────┴───────────── read, or given up ────────────────────┘
 *
 * One question at a time. The handler copies registers and stack if the worker still runs
 * the task that was asked about, and does nothing else; it takes no lock, calls nothing
 * and reads only the task's own stack. Who asks waits for a bounded time; an answer that
 * comes after that is thrown away.
 *
 * Threads: capture_ask and capture_done on the watchdog's thread; the handler on any.
 */
#ifndef WEIR_WATCH_CAPTURE_H
#define WEIR_WATCH_CAPTURE_H

#include <signal.h>

#include "rt/runtime.h"
#include "watch/unwind.h"

enum { CAPTURE_BYTES = 32 * 1024 }; /* of the stack, from the red zone on */

enum capture_state { CAPTURE_FREE, CAPTURE_ASKED, CAPTURE_TAKING, CAPTURE_TAKEN };

/* What a worker does: another task, or the same one again, makes another value. */
struct work {
    struct task *task; /* NULL: none */
    unsigned head;
    uint64_t started;
    uint64_t turns;
};

struct capture {
    ATOM(int) state; /* enum capture_state */
    unsigned worker;
    struct work work;
    bool gone;      /* it does something else by now */
    bool elsewhere; /* its stack pointer is not in the task's stack */
    struct unwind_start start;
    uintptr_t copy[CAPTURE_BYTES / sizeof(uintptr_t)];
};

struct work work_of(struct worker *worker);
bool work_same(const struct work *a, const struct work *b);

/* Install the handler, or take it away and let go of signals that are still on their way.
 * The signal was reserved. */
int capture_install(int signal, struct sigaction *ret_old);
void capture_remove(int signal, const struct sigaction *old);
void capture_forget_in_child(void);

/* Ask: 0, and the answer will come in `capture->state`; or an error. */
int capture_ask(struct capture *capture, struct worker *worker, const struct work *work,
                int signal);
/* The answer was read, or is not waited for any longer. False: it comes just now, and the
 * capture cannot be used until it has. */
bool capture_done(struct capture *capture);

#endif

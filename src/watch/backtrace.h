/* backtrace.h - where a task is: the calls that led there, innermost first.
 *
 * A parked task's stack is read by the unwinder that also handles C++ exceptions,
 * led there by switch_call_as_if_from(); nothing is written to it and the task
 * does not notice. Functions without unwind tables end a backtrace early.
 *
 * Invariants: no allocation; a frame that claims to lie outside the task's stack
 * ends the backtrace, so that wrong unwind tables do not lead astray.
 * Threads: the task does not run while its stack is read. Not for signal handlers:
 * the unwinder may take a lock of the dynamic linker. Some 3 KiB of stack.
 */
#ifndef WEIR_WATCH_BACKTRACE_H
#define WEIR_WATCH_BACKTRACE_H

#include <stdbool.h>
#include <stdint.h>

enum { BACKTRACE_FRAMES_MAX = 32 };

struct switch_context;
struct symbol_table;

struct backtrace {
    unsigned count;
    bool cut; /* there are more frames than fit */
    /* Inside the calls, as symbol_find() wants them: return addresses - 1. */
    uintptr_t frames[BACKTRACE_FRAMES_MAX];
};

/* The frames of a parked context (rt/switch.h) on the stack [low, top): from the function
 * that switched away to the one that task_main() called. */
void backtrace_parked(const struct switch_context *context, const void *low, const void *top,
                      struct backtrace *ret_backtrace);

/* The same for the caller, from its own frame on. */
void backtrace_here(struct backtrace *ret_backtrace);

/* The first frame that means something to the library's user: the public call, if
 * one is near the top. Else 0. */
unsigned backtrace_first(const struct backtrace *backtrace, struct symbol_table *symbols);

#endif

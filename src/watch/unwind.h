/* unwind.h - the calls that led to where a thread was interrupted, from a copy of its stack.
 *
 * A signal handler can copy registers and stack, but may neither call the unwinder of
 * libgcc nor trust what it would read: in the middle of a function nothing is sure. So the
 * copy is unwound afterwards, on another thread, by the unwind tables (.eh_frame) of the
 * loaded modules.
 *
 * Invariants: of the stack only the copy is read, and of a module only what lies in its
 * segments, while the dynamic linker keeps it loaded; whatever does not fit (no table, a rule that
 * is not known, a frame that is not further out than the one before) ends the backtrace.
 * No allocation, but up to 16 KiB of stack: not for tasks.
 * Threads: any; not for signal handlers.
 */
#ifndef WEIR_WATCH_UNWIND_H
#define WEIR_WATCH_UNWIND_H

#include <stddef.h>
#include <stdint.h>

#include "watch/backtrace.h"

/* By the numbers that DWARF gives them on this processor; the stack pointer among them. */
#if defined(__x86_64__)
enum { UNWIND_REGISTERS = 17, UNWIND_SP = 7 };
#else
enum { UNWIND_REGISTERS = 35, UNWIND_SP = 31 };
#endif

struct unwind_start {
    uintptr_t pc;
    uintptr_t registers[UNWIND_REGISTERS];
    uintptr_t low;             /* the address that stack[0] was copied from */
    const unsigned char *copy; /* of [low, low + bytes) */
    size_t bytes;
    uintptr_t outermost; /* the function at which to end: its address, or 0 */
};

/* At least the frame of `pc` itself. */
void unwind_copied(const struct unwind_start *start, struct backtrace *ret_backtrace);

#endif

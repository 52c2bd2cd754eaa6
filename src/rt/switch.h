/* switch.h - leave one stack, go on with another.
 *
 * A context is the stack pointer of a stack that was left; the registers that a
 * call must preserve are on that stack, in the order switch_*.S documents. The
 * floating-point control words are not saved: a task that changes them must put
 * them back before it suspends.
 *
 * The frames are described by .cfi directives, so a debugger and the unwinder
 * see through a switch; a task's backtrace ends at switch_entry.
 */
#ifndef WEIR_RT_SWITCH_H
#define WEIR_RT_SWITCH_H

/* Save the calling context to *ret_context and go on with `context`. */
void switch_to(void **ret_context, void *context);

/* Lay out a new stack so that switching to the result calls entry(arg), which
 * must not return. `top` is 16-byte aligned. */
void *switch_prepare(void *top, void (*entry)(void *arg), void *arg);

/* Call fn(arg) on the calling stack, with an unwinder led to believe that it was
 * called from the parked `context`: a backtrace taken in `fn` continues there.
 * The context's stack is read, not touched. */
void switch_call_as_if_from(void *context, void (*fn)(void *arg), void *arg);

#endif

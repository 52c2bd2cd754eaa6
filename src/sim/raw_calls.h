/* raw_calls.h - a call of the system that blocks the thread behind weir's back is caught and named.
 *
 * In a simulated run one thread is all there is: a program that sleeps, waits for a lock of pthread
 * or reads from a real socket stops the world, and makes the run depend on what is outside of it.
 * The kernel hands each system call of the program to a handler (Linux 5.11, x86-64:
 * PR_SET_SYSCALL_USER_DISPATCH), which makes the harmless ones and names the others.
 *
 * Seen: what waits, starts threads or processes, or asks the kernel for chance; not: time and
 * whatever else is read without a call. Reading is harmless from regular files only. The rest is
 * let through.
 *
 * Elsewhere, and with ThreadSanitizer, whose own library makes such calls, there is no such
 * thing; then only the explorer's watch over runs without a step is left.
 * Threads: one, the one that raw_calls_enable was called on. Not inherited by fork.
 */
#ifndef WEIR_SIM_RAW_CALLS_H
#define WEIR_SIM_RAW_CALLS_H

#include <stdbool.h>

/* Where the kernel looks at each call: 0 lets it pass, 1 hands it to the handler. */
extern volatile char raw_calls_selector;

/* From now on between raw_calls_on and raw_calls_off `caught` is called for what blocks: the
 * call's name, and where it was made. It need not return; if it does, the call is made. 0, or
 * -ENOTSUP: there is no such thing here. Cheap when it is on already. */
int raw_calls_enable(void (*caught)(const char *call, const char *places));
void raw_calls_disable(void);
/* Whether it can be enabled here. */
bool raw_calls_possible(void);

/* Around program code. */
static inline void raw_calls_on(void)
{
    raw_calls_selector = 1;
}

static inline void raw_calls_off(void)
{
    raw_calls_selector = 0;
}

#endif

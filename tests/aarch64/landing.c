/* landing.c - the task switch, as a library whose indirect jumps must hit landing pads.
 *
 * tools/aarch64-check links it with src/rt/switch* and nothing else into a shared library
 * with BTI forced on: the start-up code and libgcc of Debian 12 have no landing pads, so a
 * whole program cannot have it. landing_main.c is the program.
 */
#include "rt/switch.h"

int landing_back_and_forth(int rounds);
int landing_beside_a_pad(void);

static struct switch_context here, there;
static int visits;

static void entry(void *arg)
{
    int *count = arg;

    for (;;) {
        ++*count;
        switch_to(&there, &here);
    }
}

static void seen(void *arg)
{
    ++*(int *)arg;
}

/* How often the other side was visited, and one for the borrowed call. */
int landing_back_and_forth(int rounds)
{
    static char stack[16384] __attribute__((aligned(16)));

    visits = 0;
    switch_prepare(&there, stack + sizeof stack, entry, &visits);
    for (int i = 0; i < rounds; i++) switch_to(&here, &there);
    switch_call_as_if_from(&there, seen, &visits);
    return visits;
}

/* The control: a jump to an instruction that is no landing pad must not be survived. */
int landing_beside_a_pad(void)
{
    int survived;

    __asm__ volatile("mov     %w0, #0\n\t"
                     "adr     x16, 1f\n\t"
                     "br      x16\n"
                     "1:\n\t"
                     "mov     %w0, #1\n\t"
                     : "=r"(survived)
                     :
                     : "x16", "memory");
    return survived;
}

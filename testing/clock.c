/* clock.c - the manual clock. decorate.c asks it for the time and how to wait. */
#include "base/atomic.h"
#include "testing/harness.h"

static ATOM(int) mode = CLOCK_MODE_REAL;
static ATOM(int64_t) now_ns = WEIR_TEST_CLOCK_START_NS;
/* What the wall clock shows beyond the steady one; 0: it is the machine's. */
static ATOM(int64_t) wall_ahead_ns;

enum clock_mode clock_mode(void)
{
    return (enum clock_mode)atom_load(&mode);
}

int64_t clock_now_ns(void)
{
    return atom_load(&now_ns);
}

void clock_add_ns(int64_t ns)
{
    int64_t then_ns = atom_load(&now_ns);
    int64_t sum_ns;

    /* A worker with no timer waits for the end of time. */
    do
        if (__builtin_add_overflow(then_ns, ns, &sum_ns)) sum_ns = INT64_MAX;
    while (!atom_cas(&now_ns, &then_ns, sum_ns));
}

static void clock_set_mode(enum clock_mode wanted)
{
    test_kernel_install();
    atom_store(&mode, wanted);
}

void weir_test_clock_manual(void)
{
    clock_set_mode(CLOCK_MODE_MANUAL);
}

void weir_test_clock_auto(void)
{
    clock_set_mode(CLOCK_MODE_AUTO);
}

void weir_test_clock_advance_ns(int64_t ns)
{
    if (clock_mode() == CLOCK_MODE_REAL) WEIR_TEST_FAIL("the clock is not manual");
    if (ns < 0) WEIR_TEST_FAIL("time does not go back");
    clock_add_ns(ns);
    /* Workers computed how long to wait from the old time. */
    decorate_wake_all();
}

void weir_test_clock_advance_ms(int64_t ms)
{
    weir_test_clock_advance_ns(ms * 1000000);
}

int64_t weir_test_clock_now_ns(void)
{
    return clock_now_ns();
}

int64_t clock_wall_ahead_ns(void)
{
    return atom_load(&wall_ahead_ns);
}

void test_wall(int64_t wall_ns)
{
    test_kernel_install();
    atom_store(&wall_ahead_ns, wall_ns - decorate_now_ns());
}

/* rt.h - what the simulated programs of the runtime layer share.
 *
 * Variables of a program are plain: in simulation one thread runs everything, and between two
 * calls of the library nobody else does.
 */
#ifndef WEIR_TESTS_SIM_RT_H
#define WEIR_TESTS_SIM_RT_H

#include <errno.h>
#include <weir/sim.h>
#include <weir/weir.h>

#include "harness/test.h"

/* Two workers: at worker level each atomic of one is a point at which the other may go on. */
static const weir_config rt_two_workers = {.workers = 2};
static const weir_config rt_three_workers = {.workers = 3};

/* When the run's program began. Time is virtual: what takes none takes exactly none. */
static int64_t rt_began_ns;

static inline void rt_begin(void)
{
    rt_began_ns = weir_now_ns();
}

static inline int64_t rt_ms(void)
{
    int64_t ns = weir_now_ns() - rt_began_ns;

    CHECK_INT(ns % 1000000, ==, 0);
    return ns / 1000000;
}

/* Until somebody cancels it. */
static inline int rt_sleep_forever(void)
{
    int r = 0;

    WEIR_NO_DEADLINE("a cancel ends it") r = weir_sleep(WEIR_FOREVER);
    return r;
}

/* Not used by every file. */
__attribute__((unused)) static const void *const rt_used[] = {&rt_two_workers, &rt_three_workers};

#endif

/* inside.h - what only tests of the library's inside ask of the harness. */
#ifndef WEIR_TESTING_INSIDE_H
#define WEIR_TESTING_INSIDE_H

#include <stdbool.h>
#include <stdint.h>

/* Put the table that makes calls fail, and time stand still, between the library and the kernel.
 * The calls that need it do it themselves. */
void test_kernel_install(void);

/* Behave like an older kernel. "guard": no MADV_GUARD_INSTALL, no epoll_pwait2
 * (Linux 5.10). The environment's WEIR_TEST_MASK does it for every test. */
void test_mask_features(const char *features);

/* Decide what the scheduler chooses: `choose` gets a kind (enum choice) and n, and
 * returns less than n. NULL: the fair default. */
void test_choose(unsigned (*choose)(void *arg, int kind, unsigned n), void *arg);

/* The next `times` closes of the C library close and then say EINTR, as a signal makes
 * them; below the table of rt/kernel.h, whose close never gives it. */
void test_interrupt_close(int times);

/* Half of the time that the test has is over. Rounds of which each one is a whole check, and many
 * are for certainty, end then: on a busy machine a hand-over between threads takes a thousand times
 * as long as usual. */
bool test_late(void);

/* The wall clock shows this now, in nanoseconds since 1970, and goes on with the steady clock, be
 * it manual or not. May be called again, also with less. */
void test_wall(int64_t wall_ns);

/* Skip the test where programs cannot be simulated. */
void test_skip_without_sim(void);

#endif

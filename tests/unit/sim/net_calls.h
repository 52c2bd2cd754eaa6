/* net_calls.h - calls of the kernel's table, made one after the other, and what they answered.
 *
 * The same list of calls on a real kernel and on a simulated one has the same answers: that is what
 * net_same_test.c compares. Each is small enough to be over before anything has to wait but for
 * readiness.
 */
#ifndef WEIR_TESTS_SIM_NET_CALLS_H
#define WEIR_TESTS_SIM_NET_CALLS_H

#include "rt/kernel.h"

struct net_calls {
    const struct kernel *kernel;
    struct kernel_queue *queue;
    char said[8192];
    size_t length;
};

typedef void net_scenario(struct net_calls *calls);

struct net_scenario_row {
    const char *name;
    net_scenario *run;
};

extern const struct net_scenario_row net_scenarios[];
extern const unsigned net_scenario_count;

/* Run one; `calls->said` is what it said. */
void net_scenario_run(struct net_calls *calls, const struct kernel *kernel,
                      const struct net_scenario_row *row);

#endif

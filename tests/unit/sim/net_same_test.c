/* net_same_test.c - the same calls get the same answers from a real kernel and a simulated one. */
#include <stdlib.h>

#include "rt/runtime.h"
#include "unit/sim/net_calls.h"
#include "unit/sim/net_test.h"

struct comparison {
    const struct net_scenario_row *row;
    struct net_calls real;
    struct net_calls simulated;
};

static int compare(void *arg)
{
    struct comparison *comparison = arg;
    const char *real = comparison->real.said;
    const char *simulated = comparison->simulated.said;

    net_scenario_run(&comparison->simulated, worker_self()->kernel, comparison->row);
    while (*real != '\0') {
        size_t length = strcspn(real, "\n");

        if (strncmp(real, simulated, length + 1) != 0) {
            weir_sim_fail("%s: the kernel says '%.*s', the simulated one '%.*s'",
                          comparison->row->name, (int)length, real, (int)strcspn(simulated, "\n"),
                          simulated);
        }
        real += length + 1;
        simulated += length + 1;
    }
    return 0;
}

TEST(a_simulated_kernel_answers_as_the_real_one)
{
    struct comparison *comparison = calloc(1, sizeof *comparison);

    CHECK(comparison != NULL);
    for (unsigned i = 0; i < net_scenario_count; i++) {
        comparison->row = &net_scenarios[i];
        net_scenario_run(&comparison->real, &kernel_epoll, comparison->row);
        NET_RUNS("calls", compare, comparison, 20);
    }
    free(comparison);
}

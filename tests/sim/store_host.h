/* store_host.h - a host with a store that loses power again and again, until all is done.
 *
 * Its program is started anew each time. When it says that all is done, power is cut for the last
 * time, and the next start only looks at what is there. The life outlives the host's programs: it
 * belongs to the test, which zeroes it before each run. */
#ifndef WEIR_TESTS_SIM_STORE_HOST_H
#define WEIR_TESTS_SIM_STORE_HOST_H

#include <weir/sim.h>
#include <weir/weir.h>

struct host_life {
    int starts;
    bool is_done;    /* said by the program: there is nothing left to do */
    bool looks_only; /* told to it: look at what is there, and change nothing */
    bool is_over;    /* said by the program: it has looked */
};

/* At each start of the program. After too many it only looks: a run with more tells nothing new. */
void host_begins(struct host_life *life);
/* Until it is over. 0, or an error; no end fails the run. */
int host_live(struct host_life *life, weir_task_fn program, const weir_config *config);

#endif

/* run.h - one run, from its begin to its end or failure.
 *
 * Owner: the explorer (explore.h), in a process of its own. A run that has failed leaves stacks and
 * memory of the program behind: the process makes no other run after it.
 */
#ifndef WEIR_SIM_RUN_H
#define WEIR_SIM_RUN_H

#include <stdbool.h>
#include <weir/sim.h>

struct strategy;
struct trace;

struct sim_setup {
    const weir_sim_spec *spec; /* complete: defaults are filled in */
    weir_task_fn fn;
    void *arg;
};

struct run_outcome {
    bool failed;
    char failure[256];
};

/* Make one run: `strategy` (begun) answers, `trace` (empty) is written. When it fails and
 * report_fd is not negative, the dumps of all hosts are written there. */
void sim_run_once(const struct sim_setup *setup, struct strategy *strategy, struct trace *trace,
                  int report_fd, struct run_outcome *ret_outcome);

/* Whether a run of this process has failed. */
bool sim_process_spoilt(void);

#endif

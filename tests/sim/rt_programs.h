/* rt_programs.h - simulated programs of the runtime layer: each is a test of its own (rt_*.c), and
 * the one that finds some of the planted bugs (planted_rt.c). All are for two workers.
 */
#ifndef WEIR_TESTS_SIM_RT_PROGRAMS_H
#define WEIR_TESTS_SIM_RT_PROGRAMS_H

#include "sim/rt.h"

int rt_program_cancel(void *arg);        /* a canceller on another worker */
int rt_program_cancel_one(void *arg);    /* one task among others */
int rt_program_join_given_up(void *arg); /* while the task ends */
int rt_program_opener(void *arg);        /* it is cancelled inside its own scope */
int rt_program_deadlines(void *arg);     /* nested blocks, exact times */
int rt_program_stop(void *arg);          /* a stop with grace by another worker */
int rt_program_supervise_stop(void *arg);
int rt_program_timers(void *arg);      /* started and stopped at random, by a model */
int rt_program_timer_close(void *arg); /* a scope is closed while others' timers are due */
int rt_program_far(void *arg);         /* tasks on the other worker, joined */
int rt_program_steal(void *arg);       /* tasks that any worker may take */
int rt_program_turns(void *arg);       /* new tasks among busy ones */
int rt_program_slots(void *arg);       /* spawners wait for room */
int rt_program_slots_cancelled(void *arg);
int rt_program_locals(void *arg);
int rt_program_files(void *arg);  /* by the threads of the executor */
int rt_program_credit(void *arg); /* spawns that fail for lack of memory; for rt_few_tasks */

extern const weir_config rt_few_tasks;

#endif

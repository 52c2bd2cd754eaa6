/* locals.h - the library's thread locals, of one simulated thread.
 *
 * All sim_threads are one thread of the system: what the library keeps for each thread is
 * exchanged when another goes on. Zeroed, it is that of a thread which has just begun.
 *
 * Invariant: every _Thread_local of the library is here.
 */
#ifndef WEIR_SIM_LOCALS_H
#define WEIR_SIM_LOCALS_H

#include "rt/runtime.h"

struct pool_job;
struct trace_node;

struct sim_locals {
    struct thread_locals rt;
    struct pool_job *job;
    struct trace_node *trace;
};

/* Exchange the current values with those in `locals`. */
void sim_locals_swap(struct sim_locals *locals);

#endif

/* locals.c - exchanging the thread locals of all layers. */
#include "sim/locals.h"

#include "flow/pool.h"
#include "watch/trace.h"

void sim_locals_swap(struct sim_locals *locals)
{
    thread_locals_swap(&locals->rt);
    locals->job = pool_thread_swap(locals->job);
    locals->trace = trace_thread_swap(locals->trace);
}

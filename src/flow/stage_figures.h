/* stage_figures.h - what stages and pipelines measure: every item, every attempt.
 *
 * This is the one place where times are recorded, so that more than a count, a sum and a
 * maximum can be kept of them without touching the stages.
 * Threads: the pipeline's lock is held.
 */
#ifndef WEIR_FLOW_STAGE_FIGURES_H
#define WEIR_FLOW_STAGE_FIGURES_H

#include <weir/pipeline.h>

struct stage_figures {
    uint64_t entered, finished, skipped, failed, removed, rejected, timeouts;
    weir_times waited, ran;
};

struct pipeline_figures {
    uint64_t accepted, finished, partial, lost, removed;
    weir_times end_to_end;
};

static inline void times_add(weir_times *times, int64_t ns)
{
    if (ns < 0) ns = 0;
    times->count++;
    times->total_ns += ns;
    if (ns > times->max_ns) times->max_ns = ns;
}

static inline void stage_figures_waited(struct stage_figures *figures, int64_t ns)
{
    times_add(&figures->waited, ns);
}

static inline void stage_figures_ran(struct stage_figures *figures, int64_t ns, bool timed_out)
{
    times_add(&figures->ran, ns);
    if (timed_out) figures->timeouts++;
}

static inline void pipeline_figures_finished(struct pipeline_figures *figures, int64_t ns,
                                             bool partial)
{
    figures->finished++;
    if (partial) figures->partial++;
    times_add(&figures->end_to_end, ns);
}

#endif

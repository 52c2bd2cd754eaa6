/* trace.h - what was chosen in a run: its hash, its departures, its last decisions.
 *
 * A departure is an answer other than 0. The path of a run is the list of them.
 *
 * Invariants: bounded: the hash and the counts are of all choices, departures are kept up to
 * TRACE_DEPARTURES_MAX (beyond that a run has no path and is named by its seed), decisions up to
 * the last TRACE_LAST. No allocation: it is in the explorer's shared memory, so that it outlives
 * a crash.
 */
#ifndef WEIR_SIM_TRACE_H
#define WEIR_SIM_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TRACE_DEPARTURES_MAX = 16384, TRACE_LAST = 64, TRACE_ABOUT_BYTES = 24 };

struct departure {
    uint64_t number; /* of the choice in its run, from 0 */
    uint32_t kind;
    uint32_t answer;
};

struct decision {
    int64_t at_ns;
    uint64_t number;
    uint32_t kind;
    uint32_t n;
    uint32_t answer;
    char host[16];
    char task[24];
    char about[TRACE_ABOUT_BYTES];
};

struct trace {
    bool detailed; /* `last` is written: for the run that is printed, exploring goes without */
    uint64_t hash;
    uint64_t choices;
    uint64_t faults;
    uint64_t departures; /* in all, faults among them; kept: the first TRACE_DEPARTURES_MAX */
    struct departure path[TRACE_DEPARTURES_MAX];
    struct decision last[TRACE_LAST]; /* the choice number i is at i % TRACE_LAST */
};

void trace_clear(struct trace *trace); /* `detailed` stays as it is */
/* One choice. host, task and about are copied and cut. Hot: called for each choice of each run. */
void trace_add(struct trace *trace, int64_t at_ns, unsigned kind, unsigned n, unsigned answer,
               const char *host, const char *task, const char *about);
/* The words of decision `i` of the last ones, oldest first; how many there are. */
unsigned trace_last_count(const struct trace *trace);
void trace_words(const struct trace *trace, unsigned i, char *words, size_t bytes);

#endif

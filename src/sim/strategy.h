/* strategy.h - how the choices of a run are made.
 *
 * A strategy answers each question of a run. It sees the question (kind, n, who the candidates
 * are), never the program. Made for one run, from a seed, or for the next run of a search.
 *
 * Invariants: the same strategy with the same seed gives the same answers to the same questions;
 * an answer is below n; 0 is the plain one. No allocation after strategy_begin.
 */
#ifndef WEIR_SIM_STRATEGY_H
#define WEIR_SIM_STRATEGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/sim.h>

#include "sim/sim.h"

/* A question. */
struct question {
    unsigned kind; /* enum choice, enum sim_choice */
    enum choice_class class;
    unsigned n;
    unsigned one_in;     /* CLASS_FAULT: its lot */
    const uint64_t *ids; /* CLASS_ORDER: who the n candidates are (tasks, threads); or NULL */
    uint64_t running;    /* CHOOSE_YIELD, SIM_SWITCH: who runs now; `ids` has the others and
                                id_count says how many: n is 2 there */
    unsigned id_count;
};

struct departure;
struct strategy; /* strategy.c */

/* From the words in WEIR_SIM: "random:7" (seed); "pct:3:7:90" (depth, seed, how many choices of
 * order a run is expected to have; without it PCT_STEPS_UNKNOWN); "path:7:12=1,40=2" (seed; the
 * answers that are not 0, by their number). Or refuse (weir_why). */
int strategy_parse(const char *words, struct strategy **ret_strategy);
/* The same for a path: `count` departures, in the order of their numbers; copied. -ENOMEM. */
int strategy_new_path(uint64_t seed, const struct departure *path, size_t count,
                      struct strategy **ret_strategy);
/* For spec, which is complete: strategies in turn, seeds counting up; exhaustive search
 * remembers where it is. -ENOMEM. */
int strategy_new(const weir_sim_spec *spec, struct strategy **ret_strategy);
void strategy_free(struct strategy *take_strategy);
/* Before each run. False: a search has seen everything. */
bool strategy_begin(struct strategy *strategy);
/* Before the run that was begun last is made a second time. */
void strategy_again(struct strategy *strategy);
/* n is 2 or more: a choice of one is none, and is not counted. */
unsigned strategy_answer(struct strategy *strategy, const struct question *question);
/* After each run that did not fail. */
void strategy_end(struct strategy *strategy);
/* The words that make the run that was begun last again, cut to size; gives back the whole
 * length, as snprintf does. */
size_t strategy_words(const struct strategy *strategy, char *words, size_t bytes);
/* How that run's choices are made: "random", "pct", "exhaustive", "path". */
const char *strategy_name(const struct strategy *strategy);
/* The seed for kernel->random of that run. */
uint64_t strategy_seed(const struct strategy *strategy);
/* Why the strategy cannot go on with what it saw in this run, in a sentence; or NULL. */
const char *strategy_trouble(const struct strategy *strategy);

/* "path:7:12=1,40=2", as strategy_words. */
size_t strategy_path_words(uint64_t seed, const struct departure *path, size_t count, char *words,
                           size_t bytes);

#endif

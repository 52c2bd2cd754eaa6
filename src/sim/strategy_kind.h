/* strategy_kind.h - what strategies have in common, and the state of each.
 *
 * Invariants: all of a run's answers follow from what `again` puts back, and the questions.
 */
#ifndef WEIR_SIM_STRATEGY_KIND_H
#define WEIR_SIM_STRATEGY_KIND_H

#include "sim/chance.h"
#include "sim/strategy.h"
#include "sim/trace.h"

struct strategy_kind {
    const char *name;
    bool (*begin)(struct strategy *strategy); /* the next run; false: there is none */
    void (*again)(struct strategy *strategy); /* the same run, from its begin */
    unsigned (*answer)(struct strategy *strategy, const struct question *question);
    void (*end)(struct strategy *strategy);
    size_t (*words)(const struct strategy *strategy, char *words, size_t bytes);
    const char *(*trouble)(const struct strategy *strategy);
};

extern const struct strategy_kind strategy_random, strategy_pct, strategy_exhaustive, strategy_path;

enum { STRATEGY_TURNS_MAX = 2 };

struct strategy {
    const struct strategy_kind *turns[STRATEGY_TURNS_MAX]; /* run i is made by turn i % count */
    unsigned turn_count;
    const struct strategy_kind *now;
    uint64_t first_seed;
    uint64_t begun;    /* runs, so far */
    uint64_t seed;     /* of this run */
    uint64_t question; /* of this run: the number of the next one */
    struct chance chance;
    uint32_t switch_one_in; /* of a random walk: how often a task is interrupted that could go on */
    struct pct *pct;        /* each NULL unless it is used */
    struct search *search;
    struct path *path;
};

/* Whether the question is if the running one is interrupted. */
static inline bool question_is_switch(const struct question *question)
{
    return question->kind == CHOOSE_YIELD || question->kind == SIM_SWITCH;
}

/* What all but paths and searches do with what is no matter of order. */
unsigned strategy_random_answer(struct strategy *strategy, const struct question *question);

/* ---- strategy_pct.c ---- */

enum {
    PCT_STEPS_UNKNOWN = 64,     /* expected choices of order, before there was a run */
    PCT_IDS_MAX = 1 << 12,      /* tasks and threads with a priority of their own in one run */
    PCT_ROW_TASKS_MAX = 64,     /* picked so often in a row, a task goes behind all others, ... */
    PCT_ROW_THREADS_MAX = 1024, /* ... and a thread, which has many more choices at worker level */
};

int pct_new(int depth, uint64_t steps, struct pct **ret_pct);
void pct_free(struct pct *take_pct);

/* ---- strategy_exhaustive.c ---- */

enum { SEARCH_CHOICES_MAX = 1 << 16 }; /* of order and the program's own, in one run */

int search_new(int departures_max, struct search **ret_search);
void search_free(struct search *take_search);

/* ---- strategy_path.c ---- */

int path_new(const struct departure *departures, size_t count, struct path **ret_path);
/* "12=1,40=2", or refuse. `words` is what the refusal shows. */
int path_parse(const char *list, const char *words, struct path **ret_path);
void path_free(struct path *take_path);

#endif

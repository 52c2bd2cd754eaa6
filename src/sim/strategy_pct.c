/* strategy_pct.c - priorities by lot, which change at a few moments.
 *
 * After Burckhardt, Kothari, Musuvathi and Nagarakatte, "A Randomized Scheduler with Probabilistic
 * Guarantees of Finding Bugs" (2010): everyone gets a priority by lot, the highest that can go on
 * does, and at depth - 1 moments by lot the running one falls behind all others. Of n that take
 * k steps in all, a fault that needs `depth` orderings is found by one run with a probability of
 * at least 1 / (n * k^(depth - 1)).
 *
 * Two things are ours. k is what earlier runs had, on average. And who was picked very often
 * in a row while others could go on falls behind them, else a task that polls in a loop would
 * wait for ever for those it holds up.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "rt/mem.h"
#include "sim/strategy_kind.h"

/* Priorities given at first sight have this bit; those of the fallen count down below it. */
#define PRIORITY_UPPER (UINT64_C(1) << 63)

struct pct_id {
    uint64_t id;
    uint64_t run; /* the entry is of this run, else free */
    uint64_t priority;
};

/* Who was picked last, and how often in a row. */
struct pct_row {
    uint64_t id;
    uint32_t times;
};

struct pct {
    int depth;
    uint64_t steps_average; /* of earlier runs */
    uint64_t steps_expected;
    uint64_t steps; /* so far in this run */
    uint64_t changes[WEIR_SIM_DEPTH_MAX];
    int change_count;
    uint64_t fallen; /* the lowest priority so far */
    uint64_t run;
    unsigned id_count;
    struct pct_row rows[2]; /* tasks, threads */
    struct pct_id ids[PCT_IDS_MAX];
};

int pct_new(int depth, uint64_t steps, struct pct **ret_pct)
{
    struct pct *pct = mem_alloc_zeroed(sizeof *pct);

    if (!pct) return -ENOMEM;
    pct->depth = depth;
    pct->steps_average = steps > 0 ? steps : PCT_STEPS_UNKNOWN;
    *ret_pct = pct;
    return 0;
}

void pct_free(struct pct *take_pct)
{
    mem_free(take_pct);
}

static void pct_again(struct strategy *strategy)
{
    struct pct *pct = strategy->pct;
    uint32_t range = pct->steps_expected < UINT32_MAX ? (uint32_t)pct->steps_expected : UINT32_MAX;

    chance_init(&strategy->chance, strategy->seed);
    pct->run++;
    pct->id_count = 0;
    pct->steps = 0;
    pct->fallen = PRIORITY_UPPER;
    pct->rows[0] = pct->rows[1] = (struct pct_row){0, 0};
    pct->change_count = pct->depth - 1;
    for (int i = 0; i < pct->change_count; i++) {
        pct->changes[i] = chance_below(&strategy->chance, range);
    }
}

static bool pct_begin(struct strategy *strategy)
{
    strategy->pct->steps_expected = strategy->pct->steps_average;
    pct_again(strategy);
    return true;
}

static void pct_end(struct strategy *strategy)
{
    struct pct *pct = strategy->pct;

    pct->steps_average = (3 * pct->steps_average + pct->steps + 3) / 4;
    if (pct->steps_average == 0) pct->steps_average = 1;
}

/* The place of an id; it gets a priority when it is new. NULL: there are more than PCT_IDS_MAX / 2,
 * which would make looking slow; those have the lowest of all. */
static struct pct_id *find(struct strategy *strategy, uint64_t id)
{
    struct pct *pct = strategy->pct;
    size_t at = chance_mix(id) % PCT_IDS_MAX;

    while (pct->ids[at].run == pct->run) {
        if (pct->ids[at].id == id) return &pct->ids[at];
        at = (at + 1) % PCT_IDS_MAX;
    }
    if (pct->id_count == PCT_IDS_MAX / 2) return NULL;
    pct->id_count++;
    pct->ids[at] = (struct pct_id){id, pct->run, chance_next(&strategy->chance) | PRIORITY_UPPER};
    return &pct->ids[at];
}

static uint64_t priority(struct strategy *strategy, uint64_t id)
{
    const struct pct_id *place = find(strategy, id);

    return place ? place->priority : 0;
}

static void fall(struct strategy *strategy, uint64_t id)
{
    struct pct_id *place = find(strategy, id);

    if (place) place->priority = --strategy->pct->fallen;
}

/* Tasks and threads have ids of their own, which may be the same numbers. */
static bool of_threads(const struct question *question)
{
    return question->kind == SIM_THREAD || question->kind == SIM_SWITCH;
}

static uint64_t own_id(const struct question *question, uint64_t id)
{
    return of_threads(question) ? ~id : id;
}

static unsigned highest(struct strategy *strategy, const struct question *question, unsigned count,
                        uint64_t *ret_priority)
{
    uint64_t most = 0;
    unsigned best = 0;

    for (unsigned i = 0; i < count; i++) {
        uint64_t now = priority(strategy, own_id(question, question->ids[i]));

        if (now > most) {
            most = now;
            best = i;
        }
    }
    *ret_priority = most;
    return best;
}

static bool change_now(struct pct *pct)
{
    uint64_t step = pct->steps++;
    bool change = false;

    for (int i = 0; i < pct->change_count; i++) change |= pct->changes[i] == step;
    return change;
}

/* Count who is about to go on; true: it has had its share. */
static bool too_often(struct pct *pct, const struct question *question, uint64_t id)
{
    bool threads = of_threads(question);
    struct pct_row *row = &pct->rows[threads];

    if (row->id != id) *row = (struct pct_row){id, 0};
    if (++row->times <= (threads ? PCT_ROW_THREADS_MAX : PCT_ROW_TASKS_MAX)) return false;
    row->times = 0;
    return true;
}

static unsigned answer_pick(struct strategy *strategy, const struct question *question)
{
    uint64_t most, id;
    unsigned best = highest(strategy, question, question->n, &most);
    bool change = change_now(strategy->pct);

    id = own_id(question, question->ids[best]);
    if (too_often(strategy->pct, question, id) || change) {
        fall(strategy, id);
        best = highest(strategy, question, question->n, &most);
    }
    return best;
}

static unsigned answer_switch(struct strategy *strategy, const struct question *question)
{
    uint64_t most, id = own_id(question, question->running);
    bool change = change_now(strategy->pct);

    (void)highest(strategy, question, question->id_count, &most);
    if (most > priority(strategy, id)) return 1;
    if (!too_often(strategy->pct, question, id) && !change) return 0;
    fall(strategy, id);
    return question->id_count > 0;
}

static unsigned pct_answer(struct strategy *strategy, const struct question *question)
{
    bool pick = question->kind == CHOOSE_TASK || question->kind == SIM_THREAD;

    if (question->ids && pick) return answer_pick(strategy, question);
    if (question->ids && question_is_switch(question)) return answer_switch(strategy, question);
    return strategy_random_answer(strategy, question);
}

static size_t pct_words(const struct strategy *strategy, char *words, size_t bytes)
{
    return (size_t)snprintf(words, bytes, "pct:%d:%" PRIu64 ":%" PRIu64, strategy->pct->depth,
                            strategy->seed, strategy->pct->steps_expected);
}

const struct strategy_kind strategy_pct = {
    .name = "pct",
    .begin = pct_begin,
    .again = pct_again,
    .answer = pct_answer,
    .end = pct_end,
    .words = pct_words,
};

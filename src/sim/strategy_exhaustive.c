/* strategy_exhaustive.c - all runs with at most so many departures, depth first.
 *
 * The stack has the choices of the last run. The next run repeats all but its end, where
 * the last choice that has an answer left takes it; behind that all answers are 0 again.
 * Explored are choices of order and the program's own; there are no faults and no amounts.
 */
#include <errno.h>
#include <stdio.h>

#include "rt/mem.h"
#include "sim/strategy_kind.h"

struct search_choice {
    uint32_t number; /* among all choices of the run */
    uint32_t n;
    uint32_t answer;
};

struct search {
    int departures_max; /* 0: no bound */
    bool done;          /* there is no further run */
    bool too_long;      /* the run had more choices than fit */
    bool otherwise;     /* it had another choice where the run before had one */
    uint32_t at;        /* the next choice of this run */
    uint32_t count;
    struct search_choice choices[SEARCH_CHOICES_MAX];
};

int search_new(int departures_max, struct search **ret_search)
{
    struct search *search = mem_alloc_zeroed(sizeof *search);

    if (!search) return -ENOMEM;
    search->departures_max = departures_max;
    *ret_search = search;
    return 0;
}

void search_free(struct search *take_search)
{
    mem_free(take_search);
}

/* Make the stack that of the next run; false: there is none. */
static bool advance(struct search *search)
{
    int64_t departures = 0;

    for (uint32_t i = 0; i < search->count; i++) departures += search->choices[i].answer != 0;
    while (search->count > 0) {
        struct search_choice *last = &search->choices[search->count - 1];

        departures -= last->answer != 0;
        if (last->answer + 1 < last->n &&
            (search->departures_max == 0 || departures < search->departures_max)) {
            last->answer++;
            return true;
        }
        search->count--;
    }
    return false;
}

static void search_again(struct strategy *strategy)
{
    strategy->search->at = 0;
}

static bool search_begin(struct strategy *strategy)
{
    struct search *search = strategy->search;

    /* All runs have the same seed: they differ in their choices only. */
    strategy->seed = strategy->first_seed;
    if (search->done) return false;
    search->at = 0;
    return true;
}

static void search_end(struct strategy *strategy)
{
    strategy->search->done = !advance(strategy->search);
}

static unsigned search_answer(struct strategy *strategy, const struct question *question)
{
    struct search *search = strategy->search;
    struct search_choice *choice;

    if (question->class != CLASS_ORDER && question->kind != SIM_USER) return 0;
    if (search->at == SEARCH_CHOICES_MAX) {
        search->too_long = true;
        return 0;
    }
    choice = &search->choices[search->at++];
    if (search->at <= search->count) {
        if (choice->n == question->n && choice->number == strategy->question) return choice->answer;
        search->otherwise = true;
        search->count = search->at - 1; /* what follows is of another run */
    }
    search->count++;
    *choice = (struct search_choice){(uint32_t)strategy->question, question->n, 0};
    return 0;
}

static size_t search_words(const struct strategy *strategy, char *words, size_t bytes)
{
    const struct search *search = strategy->search;
    size_t length = strategy_path_words(strategy->seed, NULL, 0, words, bytes);
    const char *before = "";

    for (uint32_t i = 0; i < search->count; i++) {
        const struct search_choice *choice = &search->choices[i];
        size_t left = length < bytes ? bytes - length : 0;

        if (choice->answer == 0) continue;
        length += (size_t)snprintf(left ? words + length : NULL, left, "%s%u=%u", before,
                                   choice->number, choice->answer);
        before = ",";
    }
    return length;
}

static const char *search_trouble(const struct strategy *strategy)
{
    if (strategy->search->too_long) {
        return "exhaustive search is for small programs: a run had more than 65536 choices";
    }
    /* Also if it has ended before it came to all of them. */
    if (strategy->search->otherwise || strategy->search->at < strategy->search->count) {
        return "the run went another way than the one before it, with the same choices: the "
               "program asks something outside the simulation, or a run leaves something to the "
               "next";
    }
    return NULL;
}

_Static_assert(SEARCH_CHOICES_MAX == 65536, "the sentence above says so");

const struct strategy_kind strategy_exhaustive = {
    .name = "exhaustive",
    .begin = search_begin,
    .again = search_again,
    .answer = search_answer,
    .end = search_end,
    .words = search_words,
    .trouble = search_trouble,
};

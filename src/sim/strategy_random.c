/* strategy_random.c - a random walk: each choice by lot. */
#include <inttypes.h>
#include <stdio.h>

#include "sim/strategy_kind.h"

static void random_again(struct strategy *strategy)
{
    /* Some faults need a task that goes on for long, some one that is interrupted everywhere:
     * runs differ in how often that is. */
    static const uint32_t switch_one_in[] = {2, 4, 16, 4};

    chance_init(&strategy->chance, strategy->seed);
    strategy->switch_one_in = switch_one_in[chance_below(&strategy->chance, 4)];
}

static bool random_begin(struct strategy *strategy)
{
    random_again(strategy);
    return true;
}

unsigned strategy_random_answer(struct strategy *strategy, const struct question *question)
{
    if (question->class == CLASS_FAULT) {
        if (question->one_in == 0 || chance_below(&strategy->chance, question->one_in) != 0)
            return 0;
        return question->n == 2 ? 1 : 1 + chance_below(&strategy->chance, question->n - 1);
    }
    return chance_below(&strategy->chance, question->n);
}

static unsigned random_answer(struct strategy *strategy, const struct question *question)
{
    if (question_is_switch(question)) {
        return chance_below(&strategy->chance, strategy->switch_one_in) == 0;
    }
    return strategy_random_answer(strategy, question);
}

static size_t random_words(const struct strategy *strategy, char *words, size_t bytes)
{
    return (size_t)snprintf(words, bytes, "random:%" PRIu64, strategy->seed);
}

const struct strategy_kind strategy_random = {
    .name = "random",
    .begin = random_begin,
    .again = random_again,
    .answer = random_answer,
    .words = random_words,
};

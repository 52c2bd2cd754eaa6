/* strategy.c - strategies in turn, and from words. */
#include "sim/strategy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rt/mem.h"
#include "rt/runtime.h"
#include "sim/strategy_kind.h"

void strategy_free(struct strategy *take_strategy)
{
    if (!take_strategy) return;
    pct_free(take_strategy->pct);
    search_free(take_strategy->search);
    path_free(take_strategy->path);
    mem_free(take_strategy);
}

static struct strategy *strategy_alloc(uint64_t seed)
{
    struct strategy *strategy = mem_alloc_zeroed(sizeof *strategy);

    if (strategy) strategy->first_seed = strategy->seed = seed;
    return strategy;
}

static void add_turn(struct strategy *strategy, const struct strategy_kind *kind)
{
    strategy->turns[strategy->turn_count++] = kind;
    strategy->now = strategy->turns[0];
}

int strategy_new(const weir_sim_spec *spec, struct strategy **ret_strategy)
{
    struct strategy *strategy = strategy_alloc(spec->seed);
    int r = 0;

    if (!strategy) return -ENOMEM;
    if (spec->strategies & WEIR_SIM_EXHAUSTIVE) {
        r = search_new(spec->departures_max, &strategy->search);
        add_turn(strategy, &strategy_exhaustive);
    } else {
        if (spec->strategies & WEIR_SIM_RANDOM) add_turn(strategy, &strategy_random);
        if (spec->strategies & WEIR_SIM_PCT) {
            r = pct_new(spec->depth, PCT_STEPS_UNKNOWN, &strategy->pct);
            add_turn(strategy, &strategy_pct);
        }
    }
    if (r < 0) goto fail;
    *ret_strategy = strategy;
    return 0;

fail:
    strategy_free(strategy);
    return r;
}

int strategy_new_path(uint64_t seed, const struct departure *path, size_t count,
                      struct strategy **ret_strategy)
{
    struct strategy *strategy = strategy_alloc(seed);

    if (!strategy) return -ENOMEM;
    if (path_new(path, count, &strategy->path) < 0) {
        strategy_free(strategy);
        return -ENOMEM;
    }
    add_turn(strategy, &strategy_path);
    *ret_strategy = strategy;
    return 0;
}

/* ---- From words ---- */

/* The number at *at, up to a colon or the end; *at goes behind both. False: there is none. */
static bool take_number(const char **at, uint64_t *ret_number)
{
    unsigned long long number;
    char *end;

    if (**at < '0' || **at > '9') return false;
    errno = 0;
    number = strtoull(*at, &end, 10);
    if (errno != 0 || (*end != '\0' && *end != ':')) return false;
    *at = *end == ':' ? end + 1 : end;
    *ret_number = number;
    return true;
}

static bool take_word(const char **at, const char *word)
{
    size_t length = strlen(word);

    if (strncmp(*at, word, length) != 0 || (*at)[length] != ':') return false;
    *at += length + 1;
    return true;
}

static int parse_random(struct strategy *strategy, const char *at, const char *words)
{
    if (!take_number(&at, &strategy->first_seed) || *at) {
        return refuse("WEIR_SIM=%s: a random walk is \"random:SEED\"", words);
    }
    add_turn(strategy, &strategy_random);
    return 0;
}

static int parse_pct(struct strategy *strategy, const char *at, const char *words)
{
    uint64_t depth, steps = PCT_STEPS_UNKNOWN;

    if (!take_number(&at, &depth) || !take_number(&at, &strategy->first_seed) ||
        (*at && !take_number(&at, &steps)) || *at || steps == 0) {
        return refuse("WEIR_SIM=%s: PCT is \"pct:DEPTH:SEED:STEPS\"", words);
    }
    if (depth < 2 || depth > WEIR_SIM_DEPTH_MAX) {
        return refuse("WEIR_SIM=%s: a depth is 2 to %d", words, WEIR_SIM_DEPTH_MAX);
    }
    add_turn(strategy, &strategy_pct);
    return pct_new((int)depth, steps, &strategy->pct);
}

static int parse_path(struct strategy *strategy, const char *at, const char *words)
{
    if (!take_number(&at, &strategy->first_seed)) {
        return refuse("WEIR_SIM=%s: a path is \"path:SEED:NUMBER=ANSWER,...\"", words);
    }
    add_turn(strategy, &strategy_path);
    return path_parse(at, words, &strategy->path);
}

int strategy_parse(const char *words, struct strategy **ret_strategy)
{
    struct strategy *strategy = strategy_alloc(0);
    const char *at = words;
    int r;

    if (!strategy) return -ENOMEM;
    if (take_word(&at, "random")) {
        r = parse_random(strategy, at, words);
    } else if (take_word(&at, "pct")) {
        r = parse_pct(strategy, at, words);
    } else if (take_word(&at, "path")) {
        r = parse_path(strategy, at, words);
    } else {
        r = refuse("WEIR_SIM=%s: it begins with none of random:, pct:, path:", words);
    }
    if (r < 0) goto fail;
    strategy->seed = strategy->first_seed;
    *ret_strategy = strategy;
    return 0;

fail:
    strategy_free(strategy);
    return r;
}

/* ---- Runs ---- */

bool strategy_begin(struct strategy *strategy)
{
    strategy->now = strategy->turns[strategy->begun % strategy->turn_count];
    strategy->seed = strategy->first_seed + strategy->begun;
    strategy->question = 0;
    if (!strategy->now->begin(strategy)) return false;
    strategy->begun++;
    return true;
}

void strategy_again(struct strategy *strategy)
{
    strategy->question = 0;
    strategy->now->again(strategy);
}

unsigned strategy_answer(struct strategy *strategy, const struct question *question)
{
    unsigned answer;

    if (question->n < 2) return 0;
    answer = strategy->now->answer(strategy, question);
    strategy->question++;
    return answer;
}

void strategy_end(struct strategy *strategy)
{
    if (strategy->now->end) strategy->now->end(strategy);
}

size_t strategy_words(const struct strategy *strategy, char *words, size_t bytes)
{
    return strategy->now->words(strategy, words, bytes);
}

const char *strategy_name(const struct strategy *strategy)
{
    return strategy->now->name;
}

uint64_t strategy_seed(const struct strategy *strategy)
{
    return strategy->seed;
}

const char *strategy_trouble(const struct strategy *strategy)
{
    return strategy->now->trouble ? strategy->now->trouble(strategy) : NULL;
}

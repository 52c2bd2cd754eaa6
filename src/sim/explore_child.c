/* explore_child.c - one run after the other, in the explorer's child. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rt/mem.h"
#include "sim/explore.h"
#include "sim/strategy.h"

enum { DISTINCT_SLOTS_FIRST = 1 << 12 };

/* Hashes of traces; 0 is an empty slot, so the hash 0 counts as 1. */
struct distinct {
    uint64_t *slots;
    size_t slot_count;
    size_t used;
};

/* True: it was not there. */
static bool distinct_put(struct distinct *distinct, uint64_t hash)
{
    size_t at;

    if (hash == 0) hash = 1;
    for (at = hash & (distinct->slot_count - 1); distinct->slots[at] != 0;
         at = (at + 1) & (distinct->slot_count - 1)) {
        if (distinct->slots[at] == hash) return false;
    }
    distinct->slots[at] = hash;
    distinct->used++;
    return true;
}

/* Room for one more; false: there is none, and never will be. */
static bool distinct_grow(struct distinct *distinct)
{
    struct distinct larger = {.slot_count = distinct->slot_count * 2};

    if (distinct->used < distinct->slot_count / 4 * 3) return true;
    if (larger.slot_count == 0) larger.slot_count = DISTINCT_SLOTS_FIRST;
    if (larger.slot_count > EXPLORE_DISTINCT_SLOTS_MAX) return false;
    larger.slots = mem_alloc_zeroed(larger.slot_count * sizeof *larger.slots);
    if (!larger.slots) return false;
    for (size_t i = 0; i < distinct->slot_count; i++) {
        if (distinct->slots[i] != 0) (void)distinct_put(&larger, distinct->slots[i]);
    }
    mem_free(distinct->slots);
    *distinct = larger;
    return true;
}

static void count_distinct(struct explore_shared *shared, struct distinct *distinct)
{
    if (shared->distinct_full) return;
    if (!distinct_grow(distinct)) {
        shared->distinct_full = true;
        return;
    }
    if (distinct_put(distinct, shared->trace.hash)) shared->distinct++;
}

static void fail(struct explore_shared *shared, const char *failure)
{
    (void)snprintf(shared->failure, sizeof shared->failure, "%s", failure);
    shared->failed = true;
}

/* What names the run if it crashes. A search has a path only, and that is in the trace. */
static void publish(struct explorer *explorer)
{
    struct explore_shared *shared = explorer->shared;

    shared->strategy = strategy_name(explorer->strategy);
    shared->seed = strategy_seed(explorer->strategy);
    shared->words[0] = '\0';
    if (!(explorer->setup->spec->strategies & WEIR_SIM_EXHAUSTIVE)) {
        (void)strategy_words(explorer->strategy, shared->words, sizeof shared->words);
    }
}

/* The same run again: it must go the same way. */
static bool repeat(struct explorer *explorer)
{
    struct explore_shared *shared = explorer->shared;
    struct run_outcome outcome = {.failed = false};
    char failure[256];

    strategy_again(explorer->strategy);
    trace_clear(&shared->again);
    explorer->run(explorer->setup, explorer->strategy, &shared->again, -1, &outcome);
    shared->steps += shared->again.choices;
    if (!outcome.failed && shared->again.hash == shared->trace.hash) {
        shared->repeated++;
        return true;
    }
    (void)snprintf(failure, sizeof failure,
                   "the run went another way when it was repeated: %" PRIu64
                   " choices, then %" PRIu64 "%s%.100s",
                   shared->trace.choices, shared->again.choices,
                   outcome.failed ? ", and then " : "", outcome.failed ? outcome.failure : "");
    fail(shared, failure);
    shared->not_again = true;
    return false;
}

/* True: the run passed. */
static bool one_run(struct explorer *explorer)
{
    struct explore_shared *shared = explorer->shared;
    struct run_outcome outcome = {.failed = false};
    const char *trouble;

    publish(explorer);
    trace_clear(&shared->trace);
    explorer->run(explorer->setup, explorer->strategy, &shared->trace, -1, &outcome);
    if (outcome.failed) {
        fail(shared, outcome.failure);
        return false;
    }
    trouble = strategy_trouble(explorer->strategy);
    if (trouble) {
        fail(shared, trouble);
        shared->not_again = true;
        return false;
    }
    return true;
}

void explore_child(struct explorer *explorer, void *unused)
{
    const weir_sim_spec *spec = explorer->setup->spec;
    struct explore_shared *shared = explorer->shared;
    struct distinct distinct = {NULL, 0, 0};
    int64_t until_ns = INT64_MAX;

    (void)unused;
    if (spec->seconds_max > 0 && spec->seconds_max < INT64_MAX / 1000000000 / 2) {
        until_ns = explorer->begun_ns + spec->seconds_max * 1000000000;
    }
    while (spec->runs_max == 0 || shared->runs < spec->runs_max) {
        if (until_ns != INT64_MAX && explore_now_ns() >= until_ns) break;
        if (!strategy_begin(explorer->strategy)) {
            shared->complete = true;
            break;
        }
        if (!one_run(explorer)) return;
        if (shared->runs % WEIR_SIM_REPEAT_EVERY == 0 && !repeat(explorer)) return;
        strategy_end(explorer->strategy);
        shared->runs++;
        shared->steps += shared->trace.choices;
        count_distinct(shared, &distinct);
    }
    mem_free(distinct.slots);
}

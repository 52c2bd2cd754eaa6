/* agenda_test.c - the agenda in front of a wheel: together they equal a naive model. */
#include "base/agenda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "harness/test.h"

#define SECOND_NS INT64_C(1000000000)
#define YEAR_NS (365 * 24 * 3600 * SECOND_NS)

static uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static int64_t random_below(uint64_t *state, int64_t bound)
{
    return (int64_t)(random_next(state) % (uint64_t)bound);
}

/* Timers as a runtime has them: in the wheel when near, in the agenda when far. */
enum where { NOWHERE, NEAR, FAR };

struct timer {
    struct wheel_timer near;
    uint32_t cell;
    enum where where;
    int64_t at_ns;
    uint64_t sequence; /* of its start, to tell the order among equal times */
    bool due;
};

struct timers {
    struct agenda agenda;
    struct wheel wheel;
    int64_t now_ns;
    uint64_t sequence;
    uint64_t seed;
    size_t far_count;
    size_t handed_over;
    bool poor; /* gets no block */
};

static void timers_init(struct timers *timers, int64_t now_ns)
{
    *timers = (struct timers){.now_ns = now_ns, .seed = 1};
    wheel_init(&timers->wheel, now_ns);
    agenda_advance(&timers->agenda, now_ns, NULL, NULL);
}

static void timers_deinit(struct timers *timers)
{
    for (unsigned i = 0; i < timers->agenda.block_count; i++) free(timers->agenda.blocks[i]);
}

static void timer_stop(struct timers *timers, struct timer *timer)
{
    if (timer->where == FAR) {
        agenda_drop(&timers->agenda, &timer->cell);
        timers->far_count--;
    } else if (timer->where == NEAR) {
        wheel_remove(&timers->wheel, &timer->near);
    }
    timer->where = NOWHERE;
    timer->due = false;
}

static bool add_far(struct timers *timers, struct timer *timer, int64_t at_ns)
{
    size_t bytes;

    if (agenda_add(&timers->agenda, &timer->cell, at_ns)) return true;
    bytes = agenda_block_bytes(&timers->agenda);
    if (timers->poor || agenda_is_near(&timers->agenda, at_ns) || bytes == 0) return false;
    agenda_give_block(&timers->agenda, malloc(bytes));
    return agenda_add(&timers->agenda, &timer->cell, at_ns);
}

static void timer_start(struct timers *timers, struct timer *timer, int64_t at_ns)
{
    timer_stop(timers, timer);
    timer->at_ns = at_ns;
    timer->sequence = timers->sequence++;
    if (at_ns != WHEEL_NEVER_NS && add_far(timers, timer, at_ns)) {
        timer->where = FAR;
        timers->far_count++;
        CHECK_INT(agenda_at_ns(&timers->agenda, &timer->cell), ==, at_ns);
    } else {
        timer->where = NEAR;
        wheel_add(&timers->wheel, &timer->near, at_ns);
    }
}

static void hand_over(void *arg, uint32_t *cell, int64_t at_ns)
{
    struct timers *timers = arg;
    struct timer *timer = (struct timer *)(void *)((char *)cell - offsetof(struct timer, cell));

    CHECK(timer->where == FAR);
    CHECK_INT(at_ns, ==, timer->at_ns);
    timers->far_count--;
    timers->handed_over++;
    *cell = 0;
    timer->where = NEAR;
    wheel_add(&timers->wheel, &timer->near, at_ns);
}

static void timers_advance(struct timers *timers, int64_t now_ns)
{
    agenda_advance(&timers->agenda, now_ns, hand_over, timers);
    wheel_advance(&timers->wheel, now_ns);
    if (now_ns > timers->now_ns) timers->now_ns = now_ns;
}

static struct timer *timers_pop(struct timers *timers)
{
    struct wheel_timer *near = wheel_pop_due(&timers->wheel);
    struct timer *timer = (struct timer *)(void *)near; /* its first member */

    if (timer) timer->where = NOWHERE;
    return timer;
}

static int64_t timers_next_ns(const struct timers *timers)
{
    int64_t near_ns = wheel_next_ns(&timers->wheel);
    int64_t far_ns = agenda_next_ns(&timers->agenda);

    return near_ns < far_ns ? near_ns : far_ns;
}

/* What sweeping promises, and that the lists are what the counts say. */
static void check_bounds(const struct agenda *agenda)
{
    size_t slots = 0, chunks = 0, live = 0;

    for (unsigned i = 0; i < AGENDA_SLOTS; i++) {
        const struct agenda_slot *slot = &agenda->slots[i];
        unsigned number = AGENDA_SLOT_MIN + i;
        bool occupied =
            agenda->occupied[number / WHEEL_LEVEL_SLOTS] >> (number % WHEEL_LEVEL_SLOTS) & 1;

        CHECK(occupied == (slot->first != NULL));
        if (occupied) slots++;
        for (const struct agenda_chunk *chunk = slot->first; chunk; chunk = chunk->next) {
            uint32_t used =
                chunk == slot->last ? (uint32_t)(slot->next - chunk->entries) : chunk->used;
            CHECK_INT(used, <=, AGENDA_CHUNK_ENTRIES);
            CHECK_INT(used, >, 0);
            chunks++;
            for (uint32_t k = 0; k < used; k++) {
                const struct agenda_entry *entry = &chunk->entries[k];
                if (*entry->cell != chunk->number * AGENDA_CHUNK_POSITIONS + k) continue;
                live++;
                CHECK_INT(entry->at_ns, >=, slot->min_ns);
            }
        }
    }
    CHECK_INT(live, ==, agenda_count(agenda));
    CHECK_INT(chunks, ==, agenda->chunk_count);
    CHECK_INT(chunks - slots, ==, agenda->full_count);
}

TEST(agenda_turns_away_what_is_near_and_hands_over_before_it_is_due)
{
    struct timers *timers = malloc(sizeof *timers);
    struct timer timer = {0};

    CHECK(timers != NULL);
    for (int64_t delay_ns = 1; delay_ns < 100 * YEAR_NS; delay_ns = delay_ns * 3 / 2 + 1) {
        timers_init(timers, 12345 * SECOND_NS);
        timer_start(timers, &timer, timers->now_ns + delay_ns);
        /* Every other one is at the very beginning of its slot. */
        if (delay_ns % 2 && timer.where == FAR)
            timer_start(timers, &timer, timer.at_ns & -(INT64_C(1) << 28));
        if (delay_ns >= INT64_C(1) << 29) CHECK(timer.where == FAR);
        if (delay_ns < 1 << WHEEL_TICK_BITS) CHECK(timer.where == NEAR);
        CHECK_INT(timers_next_ns(timers), ==, timer.at_ns);
        timers_advance(timers, timer.at_ns - 1);
        CHECK(timers_pop(timers) == NULL);
        CHECK_INT(timers_next_ns(timers), ==, timer.at_ns);
        timers_advance(timers, timer.at_ns);
        CHECK(timers_pop(timers) == &timer);
        CHECK_INT(timers_next_ns(timers), ==, INT64_MAX);
        timers_deinit(timers);
    }
    free(timers);
}

TEST(agenda_without_chunks_turns_everything_away)
{
    struct timers *timers = malloc(sizeof *timers);
    struct timer timer = {0};

    CHECK(timers != NULL);
    timers_init(timers, 0);
    timers->poor = true;
    timer_start(timers, &timer, YEAR_NS);
    CHECK(timer.where == NEAR);
    CHECK_INT(agenda_count(&timers->agenda), ==, 0);
    timers_advance(timers, YEAR_NS);
    CHECK(timers_pop(timers) == &timer);
    free(timers);
}

TEST(agenda_with_nothing_live_wakes_nobody_and_keeps_nothing)
{
    enum { COUNT = 5000 };
    struct timers *timers = malloc(sizeof *timers);
    struct timer *timer = calloc(COUNT, sizeof *timer);

    CHECK(timers != NULL && timer != NULL);
    timers_init(timers, 0);
    for (int i = 0; i < COUNT; i++) timer_start(timers, &timer[i], SECOND_NS + i * SECOND_NS);
    for (int i = 0; i < COUNT; i++) timer_stop(timers, &timer[i]);
    CHECK_INT(timers_next_ns(timers), ==, INT64_MAX);
    CHECK_INT(timers->agenda.chunk_count, >, 0);
    timers_advance(timers, 1);
    CHECK_INT(timers->agenda.chunk_count, ==, 0);
    check_bounds(&timers->agenda);
    timers_deinit(timers);
    free(timer);
    free(timers);
}

/* Each is set anew a hundred times, always later: what is left behind must not pile up. */
TEST(agenda_stays_small_however_often_timers_are_set_anew)
{
    enum { COUNT = 3000, ROUNDS = 100 };
    struct timers *timers = malloc(sizeof *timers);
    struct timer *timer = calloc(COUNT, sizeof *timer);
    size_t most = 0;

    CHECK(timers != NULL && timer != NULL);
    timers_init(timers, 0);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < COUNT; i++) {
            timer_start(timers, &timer[i], timers->now_ns + 60 * SECOND_NS);
            if (timers->agenda.chunk_count > most) most = timers->agenda.chunk_count;
        }
        timers_advance(timers, timers->now_ns + SECOND_NS / 100);
        CHECK_INT(agenda_count(&timers->agenda), ==, COUNT);
        check_bounds(&timers->agenda);
    }
    CHECK_INT(most, <=, 3 * COUNT / AGENDA_CHUNK_ENTRIES + 2 * AGENDA_SWEEP_SLACK);
    CHECK(timers_pop(timers) == NULL);
    timers_deinit(timers);
    free(timer);
    free(timers);
}

TEST(agenda_of_many_hands_over_exactly_what_is_live)
{
    enum { COUNT = TEST_SANITIZED ? 50000 : 250000 };
    struct timers *timers = malloc(sizeof *timers);
    struct timer *timer = calloc(COUNT, sizeof *timer);
    struct timer *due;
    int64_t last_ns = 0;
    size_t fired = 0;

    CHECK(timers != NULL && timer != NULL);
    timers_init(timers, 0);
    for (int i = 0; i < COUNT; i++)
        timer_start(timers, &timer[i],
                    60 * SECOND_NS + random_below(&timers->seed, 540 * SECOND_NS));
    for (int i = 0; i < 2 * COUNT; i++) {
        struct timer *victim = &timer[random_below(&timers->seed, COUNT)];
        timer_start(timers, victim, 60 * SECOND_NS + random_below(&timers->seed, 540 * SECOND_NS));
    }
    for (int i = 0; i < COUNT; i += 2) timer_stop(timers, &timer[i]);
    check_bounds(&timers->agenda);
    for (int64_t now_ns = 0; now_ns <= 600 * SECOND_NS; now_ns += SECOND_NS) {
        timers_advance(timers, now_ns);
        while ((due = timers_pop(timers)) != NULL) {
            CHECK((due - timer) % 2 == 1);
            CHECK_INT(due->at_ns, >=, last_ns);
            CHECK_INT(due->at_ns, <=, now_ns);
            last_ns = due->at_ns;
            fired++;
        }
    }
    CHECK_INT(fired, ==, COUNT / 2);
    CHECK_INT(timers->agenda.chunk_count, ==, 0);
    timers_deinit(timers);
    free(timer);
    free(timers);
}

/* ---- The model: a flat array, searched in full ---- */

enum { MODEL_TIMERS = 600 };

struct model {
    struct timers timers;
    bool dense; /* all times within some minutes, so that chunks fill and are swept */
    struct timer timer[MODEL_TIMERS];
    struct timer *expected[MODEL_TIMERS];
};

static int model_order(const void *left, const void *right)
{
    const struct timer *a = *(struct timer *const *)left;
    const struct timer *b = *(struct timer *const *)right;

    if (a->at_ns != b->at_ns) return a->at_ns < b->at_ns ? -1 : 1;
    return a->sequence < b->sequence ? -1 : 1;
}

static int64_t model_pick_time(struct model *model)
{
    struct timers *timers = &model->timers;
    int64_t delay_ns = random_below(&timers->seed, INT64_C(1) << random_below(&timers->seed, 56));

    if (model->dense) delay_ns = random_below(&timers->seed, 120 * SECOND_NS);
    switch (random_below(&timers->seed, 16)) {
    case 0: return timers->now_ns - delay_ns;
    case 1: return WHEEL_NEVER_NS;
    case 2: return (timers->now_ns + delay_ns) & -(INT64_C(1) << 28);
    case 3: return ((timers->now_ns + delay_ns) & -(INT64_C(1) << 34)) - 1;
    case 4: return timers->now_ns + random_below(&timers->seed, SECOND_NS);
    case 5:
    case 6: return model->timer[random_below(&timers->seed, MODEL_TIMERS)].at_ns;
    default: return timers->now_ns + delay_ns;
    }
}

static void model_touch(struct model *model)
{
    struct timers *timers = &model->timers;
    struct timer *timer = &model->timer[random_below(&timers->seed, MODEL_TIMERS)];

    if (random_below(&timers->seed, 4) == 0)
        timer_stop(timers, timer);
    else
        timer_start(timers, timer, model_pick_time(model));
}

static int64_t model_pick_now(struct model *model)
{
    struct timers *timers = &model->timers;
    int64_t next_ns = timers_next_ns(timers);

    switch (random_below(&timers->seed, 16)) {
    case 0: return timers->now_ns;
    case 1: return timers->now_ns - random_below(&timers->seed, 3600 * SECOND_NS);
    case 2: return next_ns == INT64_MAX ? timers->now_ns : next_ns - 1;
    case 3: return next_ns == INT64_MAX ? timers->now_ns : next_ns;
    case 4: /* hours, days, a year */
        if (model->dense) return timers->now_ns + random_below(&timers->seed, 60 * SECOND_NS);
        return timers->now_ns +
               random_below(&timers->seed, INT64_C(1) << (42 + random_below(&timers->seed, 14)));
    default:
        return timers->now_ns +
               random_below(&timers->seed, INT64_C(1) << random_below(&timers->seed, 34));
    }
}

/* Pops everything; in between timers are started and stopped, as callbacks do. */
static void model_pop_all(struct model *model, size_t expected_count)
{
    struct timer *timer;
    size_t i = 0;

    while ((timer = timers_pop(&model->timers)) != NULL) {
        while (i < expected_count && !model->expected[i]->due) i++;
        CHECK_INT(i, <, expected_count);
        CHECK(timer == model->expected[i]);
        timer->due = false;
        if (random_below(&model->timers.seed, 4) == 0) model_touch(model);
    }
    for (; i < expected_count; i++) CHECK(!model->expected[i]->due);
}

static void model_advance(struct model *model)
{
    struct timers *timers = &model->timers;
    int64_t earliest_ns = INT64_MAX;
    size_t expected_count = 0;

    timers_advance(timers, model_pick_now(model));
    for (size_t i = 0; i < MODEL_TIMERS; i++) {
        struct timer *timer = &model->timer[i];
        if (timer->where == NOWHERE || timer->at_ns == WHEEL_NEVER_NS) continue;
        if (timer->at_ns <= timers->now_ns) {
            timer->due = true;
            model->expected[expected_count++] = timer;
        } else if (timer->at_ns < earliest_ns) {
            earliest_ns = timer->at_ns;
        }
    }
    CHECK_INT(timers_next_ns(timers), <=, earliest_ns);
    if (expected_count == 0) {
        CHECK_INT(timers_next_ns(timers), >, timers->now_ns);
        CHECK((timers_next_ns(timers) == INT64_MAX) == (earliest_ns == INT64_MAX));
    }
    qsort(model->expected, expected_count, sizeof *model->expected, model_order);
    model_pop_all(model, expected_count);
    CHECK_INT(agenda_count(&timers->agenda), ==, timers->far_count);
}

static void model_run(uint64_t seed, int rounds, bool dense)
{
    static struct model model;
    struct timers *timers = &model.timers;

    memset(&model, 0, sizeof model);
    timers_init(timers, 0);
    timers->seed = seed;
    model.dense = dense;
    timers_advance(timers, random_below(&timers->seed, YEAR_NS));
    for (int i = 0; i < rounds; i++) {
        int64_t touches = random_below(&timers->seed, dense && i % 8 == 0 ? 8000 : 120);
        for (; touches > 0; touches--) model_touch(&model);
        model_advance(&model);
        if (i % 64 == 0) check_bounds(&timers->agenda);
        /* Stay clear of the end of time, where the sums above would overflow. */
        if (timers->now_ns > INT64_MAX / 2) break;
    }
    CHECK_INT(timers->handed_over, >, 0);
    timers_deinit(timers);
}

TEST(agenda_and_wheel_equal_a_naive_model_for_fixed_seeds)
{
    for (uint64_t seed = 1; seed <= 8; seed++) {
        model_run(seed, 2000, false);
        model_run(seed, 400, true);
    }
}

TEST(agenda_and_wheel_equal_a_naive_model_for_a_fresh_seed)
{
    const char *given = getenv("WEIR_TEST_SEED");
    uint64_t seed;

    if (given != NULL)
        seed = strtoull(given, NULL, 0);
    else
        CHECK_INT(getrandom(&seed, sizeof seed, 0), ==, sizeof seed);
    fprintf(stderr, "WEIR_TEST_SEED=%#llx\n", (unsigned long long)seed);
    model_run(seed, 3000, false);
    model_run(seed, 600, true);
}

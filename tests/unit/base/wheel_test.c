/* wheel_test.c - the timing wheel: exact, ordered, bounded, and equal to a naive model. */
#include "base/wheel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "harness/test.h"

#define TICK_NS (INT64_C(1) << WHEEL_TICK_BITS)
#define HOUR_NS (INT64_C(3600) * 1000000000)
#define YEAR_NS (365 * 24 * HOUR_NS)

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

TEST(wheel_empty_has_nothing_due_and_no_next)
{
    struct wheel wheel;

    wheel_init(&wheel, 5);
    CHECK_INT(wheel_next_ns(&wheel), ==, INT64_MAX);
    wheel_advance(&wheel, INT64_MAX);
    CHECK(wheel_pop_due(&wheel) == NULL);
    CHECK_INT(wheel_count(&wheel), ==, 0);
}

TEST(wheel_fires_at_the_exact_nanosecond)
{
    static const int64_t starts[] = {-YEAR_NS, -1, 0, 1, TICK_NS - 1, 7 * HOUR_NS + 12345};
    static const int64_t delays[] = {
        1,       2,           TICK_NS - 1,  TICK_NS, TICK_NS + 1, 1000000, 64 * TICK_NS,
        HOUR_NS, YEAR_NS + 7, 100 * YEAR_NS};

    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        for (size_t j = 0; j < sizeof delays / sizeof *delays; j++) {
            struct wheel wheel;
            struct wheel_timer timer = {0};
            int64_t at_ns = starts[i] + delays[j];

            wheel_init(&wheel, starts[i]);
            wheel_add(&wheel, &timer, at_ns);
            CHECK_INT(wheel_next_ns(&wheel), ==, at_ns);
            wheel_advance(&wheel, at_ns - 1);
            CHECK(wheel_pop_due(&wheel) == NULL);
            CHECK_INT(wheel_next_ns(&wheel), ==, at_ns);
            wheel_advance(&wheel, at_ns);
            CHECK(wheel_pop_due(&wheel) == &timer);
            CHECK(!wheel_timer_armed(&timer));
            CHECK_INT(wheel_count(&wheel), ==, 0);
        }
    }
}

TEST(wheel_timer_that_adds_itself_in_the_past_cannot_keep_the_loop_busy)
{
    struct wheel wheel;
    struct wheel_timer timer;
    struct wheel_timer *due;
    int fired = 0;

    wheel_init(&wheel, 1000);
    wheel_timer_init(&timer);
    wheel_add(&wheel, &timer, 1000);
    for (int turn = 1; turn <= 3; turn++) {
        /* The clock stands still: even then each advance delivers it once. */
        wheel_advance(&wheel, 1000);
        while ((due = wheel_pop_due(&wheel)) != NULL) {
            fired++;
            wheel_add(&wheel, due, 10);
        }
        CHECK_INT(fired, ==, turn);
        CHECK_INT(wheel_next_ns(&wheel), ==, 10);
    }
}

TEST(wheel_due_timer_can_still_be_removed)
{
    struct wheel wheel;
    struct wheel_timer timers[3] = {0};

    wheel_init(&wheel, 0);
    for (int i = 0; i < 3; i++) wheel_add(&wheel, &timers[i], 100 + i);
    wheel_advance(&wheel, 200);
    CHECK(wheel_timer_armed(&timers[1]));
    CHECK_INT(wheel_count(&wheel), ==, 3);
    CHECK(wheel_pop_due(&wheel) == &timers[0]);
    wheel_remove(&wheel, &timers[1]);
    CHECK(!wheel_timer_armed(&timers[1]));
    CHECK(wheel_pop_due(&wheel) == &timers[2]);
    CHECK(wheel_pop_due(&wheel) == NULL);
    CHECK_INT(wheel_count(&wheel), ==, 0);
    wheel_remove(&wheel, &timers[2]);
    CHECK_INT(wheel_count(&wheel), ==, 0);
}

TEST(wheel_never_is_armed_removable_and_never_due)
{
    struct wheel wheel;
    struct wheel_timer never = {0};
    struct wheel_timer last = {0};

    wheel_init(&wheel, 0);
    wheel_add(&wheel, &never, WHEEL_NEVER_NS);
    CHECK(wheel_timer_armed(&never));
    CHECK_INT(wheel_count(&wheel), ==, 1);
    CHECK_INT(wheel_next_ns(&wheel), ==, INT64_MAX);
    wheel_add(&wheel, &last, INT64_MAX - 1);
    wheel_advance(&wheel, INT64_MAX);
    CHECK(wheel_pop_due(&wheel) == &last);
    CHECK(wheel_pop_due(&wheel) == NULL);
    wheel_remove(&wheel, &never);
    CHECK(!wheel_timer_armed(&never));
    CHECK_INT(wheel_count(&wheel), ==, 0);
}

TEST(wheel_clock_that_goes_back_counts_as_standing_still)
{
    struct wheel wheel;
    struct wheel_timer late = {0};
    struct wheel_timer past = {0};

    wheel_init(&wheel, HOUR_NS);
    wheel_add(&wheel, &late, HOUR_NS + 1);
    wheel_add(&wheel, &past, 3);
    wheel_advance(&wheel, 5);
    CHECK(wheel_pop_due(&wheel) == &past);
    CHECK(wheel_pop_due(&wheel) == NULL);
    wheel_advance(&wheel, HOUR_NS + 1);
    CHECK(wheel_pop_due(&wheel) == &late);
}

/* The same moment, armed from ever nearer: each is seen from another level. */
TEST(wheel_equal_times_fire_in_the_order_they_were_added)
{
    enum { COUNT = 400 };
    struct wheel wheel;
    struct wheel_timer timers[COUNT] = {0};
    int64_t at_ns = YEAR_NS + 123;
    int64_t distance_ns = YEAR_NS;

    wheel_init(&wheel, 0);
    for (int i = 0; i < COUNT; i++) {
        wheel_advance(&wheel, at_ns - distance_ns);
        wheel_add(&wheel, &timers[i], at_ns);
        distance_ns = distance_ns * 9 / 10 + 1;
    }
    CHECK(wheel_pop_due(&wheel) == NULL);
    wheel_advance(&wheel, at_ns);
    for (int i = 0; i < COUNT; i++) CHECK(wheel_pop_due(&wheel) == &timers[i]);
}

TEST(wheel_timers_of_one_tick_fire_in_order_of_time)
{
    enum { COUNT = 1000 };
    struct wheel wheel;
    static struct wheel_timer timers[COUNT];
    struct wheel_timer *due;
    struct wheel_timer *before = NULL;
    uint64_t seed = 7;
    int fired = 0;

    wheel_init(&wheel, 0);
    for (int i = 0; i < COUNT; i++)
        wheel_add(&wheel, &timers[i], 10 * TICK_NS + random_below(&seed, TICK_NS / 256));
    wheel_advance(&wheel, 11 * TICK_NS);
    while ((due = wheel_pop_due(&wheel)) != NULL) {
        if (before != NULL)
            CHECK(due->at_ns > before->at_ns || (due->at_ns == before->at_ns && due > before));
        before = due;
        fired++;
    }
    CHECK_INT(fired, ==, COUNT);
}

/* Sleeping until wheel_next_ns() must lead to the earliest timer in few steps,
 * also after earlier timers in many slots were removed. */
TEST(wheel_next_converges_after_removals)
{
    enum { COUNT = 2000 };
    struct wheel wheel;
    static struct wheel_timer timers[COUNT];
    struct wheel_timer last = {0};
    struct wheel_timer *due = NULL;
    uint64_t seed = 11;
    int wakeups = 0;

    wheel_init(&wheel, 0);
    wheel_add(&wheel, &last, HOUR_NS);
    for (int i = 0; i < COUNT; i++) wheel_add(&wheel, &timers[i], 1 + random_below(&seed, HOUR_NS));
    for (int i = 0; i < COUNT; i++) wheel_remove(&wheel, &timers[i]);
    while (due == NULL) {
        int64_t next_ns = wheel_next_ns(&wheel);
        CHECK_INT(next_ns, <=, HOUR_NS);
        CHECK_INT(next_ns, >, wheel.now_ns);
        wheel_advance(&wheel, next_ns);
        due = wheel_pop_due(&wheel);
        wakeups++;
    }
    CHECK(due == &last);
    CHECK_INT(wakeups, <=, WHEEL_LEVELS);
}

/* The model: a flat array, searched in full. */
enum { MODEL_TIMERS = 600 };

struct model_timer {
    struct wheel_timer timer;
    uint64_t sequence; /* of its add, to tell the order among equal times */
    bool armed;
    bool due;
};

struct model {
    struct wheel wheel;
    int64_t now_ns;
    uint64_t sequence;
    uint64_t seed;
    size_t armed_count;
    struct model_timer timers[MODEL_TIMERS];
    struct model_timer *expected[MODEL_TIMERS];
};

static int model_order(const void *left, const void *right)
{
    const struct model_timer *a = *(struct model_timer *const *)left;
    const struct model_timer *b = *(struct model_timer *const *)right;

    if (a->timer.at_ns != b->timer.at_ns) return a->timer.at_ns < b->timer.at_ns ? -1 : 1;
    return a->sequence < b->sequence ? -1 : 1;
}

/* Delays of every magnitude, the past, equal times and the edges of slots. */
static int64_t model_pick_time(struct model *model)
{
    int64_t delay_ns = random_below(&model->seed, INT64_C(1) << random_below(&model->seed, 56));

    switch (random_below(&model->seed, 16)) {
    case 0: return model->now_ns - delay_ns;
    case 1: return WHEEL_NEVER_NS;
    case 2: return model->now_ns + (delay_ns & -TICK_NS);
    case 3: return (model->now_ns + delay_ns) & -TICK_NS;
    case 4: return ((model->now_ns + delay_ns) & -(64 * TICK_NS)) - 1;
    case 5: return model->now_ns + random_below(&model->seed, 4);
    case 6: return model->timers[random_below(&model->seed, MODEL_TIMERS)].timer.at_ns;
    default: return model->now_ns + delay_ns;
    }
}

static void model_toggle(struct model *model)
{
    struct model_timer *timer = &model->timers[random_below(&model->seed, MODEL_TIMERS)];

    CHECK(wheel_timer_armed(&timer->timer) == timer->armed);
    if (timer->armed) {
        wheel_remove(&model->wheel, &timer->timer);
        model->armed_count--;
        timer->armed = false;
        timer->due = false;
    } else {
        wheel_add(&model->wheel, &timer->timer, model_pick_time(model));
        model->armed_count++;
        timer->armed = true;
        timer->sequence = model->sequence++;
    }
}

static int64_t model_pick_now(struct model *model)
{
    int64_t next_ns = wheel_next_ns(&model->wheel);

    switch (random_below(&model->seed, 16)) {
    case 0: return model->now_ns;
    case 1: return model->now_ns - random_below(&model->seed, HOUR_NS);
    case 2: return next_ns == INT64_MAX ? model->now_ns : next_ns - 1;
    case 3: return next_ns == INT64_MAX ? model->now_ns : next_ns;
    case 4: /* hours, days, a year */
        return model->now_ns +
               random_below(&model->seed, INT64_C(1) << (42 + random_below(&model->seed, 14)));
    default:
        return model->now_ns +
               random_below(&model->seed, INT64_C(1) << random_below(&model->seed, 36));
    }
}

/* Pops everything; in between it adds and removes, which must not change what
 * else this advance delivers, except that a removed timer does not come. */
static void model_pop_all(struct model *model, size_t expected_count)
{
    struct wheel_timer *timer;
    size_t i = 0;

    while ((timer = wheel_pop_due(&model->wheel)) != NULL) {
        while (i < expected_count && !model->expected[i]->due) i++;
        CHECK_INT(i, <, expected_count);
        CHECK(timer == &model->expected[i]->timer);
        model->expected[i]->armed = false;
        model->expected[i]->due = false;
        model->armed_count--;
        if (random_below(&model->seed, 4) == 0) model_toggle(model);
    }
    for (; i < expected_count; i++) CHECK(!model->expected[i]->due);
}

static void model_advance(struct model *model)
{
    int64_t now_ns = model_pick_now(model);
    int64_t earliest_ns = INT64_MAX;
    size_t expected_count = 0;

    wheel_advance(&model->wheel, now_ns);
    if (now_ns > model->now_ns) model->now_ns = now_ns;
    for (size_t i = 0; i < MODEL_TIMERS; i++) {
        struct model_timer *timer = &model->timers[i];
        if (!timer->armed || timer->timer.at_ns == WHEEL_NEVER_NS) continue;
        if (timer->timer.at_ns <= model->now_ns) {
            timer->due = true;
            model->expected[expected_count++] = timer;
        } else if (timer->timer.at_ns < earliest_ns) {
            earliest_ns = timer->timer.at_ns;
        }
    }
    if (expected_count == 0) {
        CHECK_INT(wheel_next_ns(&model->wheel), <=, earliest_ns);
        CHECK_INT(wheel_next_ns(&model->wheel), >, model->now_ns);
        CHECK((wheel_next_ns(&model->wheel) == INT64_MAX) == (earliest_ns == INT64_MAX));
    } else {
        CHECK_INT(wheel_next_ns(&model->wheel), <=, model->now_ns);
    }
    qsort(model->expected, expected_count, sizeof *model->expected, model_order);
    model_pop_all(model, expected_count);
    CHECK_INT(wheel_count(&model->wheel), ==, model->armed_count);
}

static void model_run(uint64_t seed, int rounds)
{
    static struct model model;

    memset(&model, 0, sizeof model);
    model.seed = seed;
    model.now_ns = random_below(&model.seed, YEAR_NS) - YEAR_NS / 2;
    wheel_init(&model.wheel, model.now_ns);
    for (int i = 0; i < rounds; i++) {
        for (int64_t n = random_below(&model.seed, 120); n > 0; n--) model_toggle(&model);
        model_advance(&model);
        /* Stay clear of the end of time, where the sums above would overflow. */
        if (model.now_ns > INT64_MAX / 2) break;
    }
}

TEST_WITH(wheel_equals_a_naive_model_for_fixed_seeds, .timeout_ms = 60000)
{
    for (uint64_t seed = 1; seed <= 16; seed++) model_run(seed, 4000);
}

TEST(wheel_equals_a_naive_model_for_a_fresh_seed)
{
    const char *given = getenv("WEIR_TEST_SEED");
    uint64_t seed;

    if (given != NULL)
        seed = strtoull(given, NULL, 0);
    else
        CHECK_INT(getrandom(&seed, sizeof seed, 0), ==, sizeof seed);
    fprintf(stderr, "WEIR_TEST_SEED=%#llx\n", (unsigned long long)seed);
    model_run(seed, 8000);
}

TEST(wheel_jump_over_years_costs_by_timers_not_by_time)
{
    enum { COUNT = 100000 };
    struct wheel *wheel = malloc(sizeof *wheel);
    struct wheel_timer *timers = calloc(COUNT, sizeof *timers);
    struct wheel_timer *due;
    int64_t last_ns = 0;
    uint64_t seed = 3;
    int fired = 0;

    CHECK(wheel != NULL && timers != NULL);
    wheel_init(wheel, 0);
    for (int i = 0; i < COUNT; i++)
        wheel_add(wheel, &timers[i], random_below(&seed, 200 * YEAR_NS));
    wheel_advance(wheel, 200 * YEAR_NS);
    while ((due = wheel_pop_due(wheel)) != NULL) {
        CHECK_INT(due->at_ns, >=, last_ns);
        last_ns = due->at_ns;
        fired++;
    }
    CHECK_INT(fired, ==, COUNT);
    free(timers);
    free(wheel);
}

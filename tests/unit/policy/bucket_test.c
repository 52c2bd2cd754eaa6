/* bucket_test.c - tokens: exact over any time, and as a naive model has them. */
#include "policy/bucket.h"

#include "unit/policy/chance.h"

#define SECOND INT64_C(1000000000)

static struct bucket make(uint64_t rate, int64_t period_ns, uint64_t burst)
{
    struct bucket_rules rules = {.rate = rate, .period_ns = period_ns, .burst = burst};
    struct bucket bucket;

    CHECK(bucket_fits(&rules));
    bucket_init(&bucket, &rules);
    return bucket;
}

TEST(bucket_gives_its_burst_at_once_and_then_its_rate)
{
    struct bucket bucket = make(10, SECOND, 5);
    int64_t now_ns = 7 * SECOND;

    for (int i = 0; i < 5; i++) CHECK(bucket_take(&bucket, 1, now_ns));
    CHECK(!bucket_take(&bucket, 1, now_ns));
    CHECK_INT(bucket_ready_ns(&bucket, 1, now_ns), ==, now_ns + SECOND / 10);
    CHECK_INT(bucket_ready_ns(&bucket, 5, now_ns), ==, now_ns + SECOND / 2);
    CHECK_INT(bucket_ready_ns(&bucket, 6, now_ns), ==, INT64_MAX);
    CHECK(!bucket_take(&bucket, 1, now_ns + SECOND / 10 - 1));
    CHECK(bucket_take(&bucket, 1, now_ns + SECOND / 10));
    CHECK(!bucket_take(&bucket, 1, now_ns + SECOND / 10));
    /* What is not taken is kept up to the burst, however long. */
    CHECK(bucket_take(&bucket, 5, INT64_MAX));
    CHECK(!bucket_take(&bucket, 1, INT64_MAX));
}

TEST(bucket_does_not_drift_in_a_million_steps)
{
    /* 7 in 3 seconds is no whole number of nanoseconds for a token. */
    struct bucket bucket = make(7, 3 * SECOND, 2);
    int64_t began_ns = 12345, now_ns = began_ns;
    uint64_t taken = 0;

    CHECK(bucket_take(&bucket, 2, now_ns));
    while (taken < 1000000) {
        now_ns = bucket_ready_ns(&bucket, 1, now_ns);
        CHECK(!bucket_take(&bucket, 1, now_ns - 1));
        CHECK(bucket_take(&bucket, 1, now_ns));
        taken++;
    }
    /* Each is taken at the first nanosecond at which it is there: never a token less. What is
     * left over of that nanosecond is kept. */
    CHECK_INT(now_ns - began_ns, ==, (INT64_C(1000000) * 3 * SECOND + 6) / 7);
}

TEST(bucket_resized_keeps_what_has_come)
{
    struct bucket bucket = make(10, SECOND, 10);

    CHECK(bucket_take(&bucket, 10, SECOND));
    bucket_resize(&bucket, 100, 20, SECOND + SECOND / 2); /* 5 have come */
    CHECK_INT(bucket_tokens(&bucket), ==, 5);
    bucket_refill(&bucket, SECOND + SECOND / 2 + SECOND / 10);
    CHECK_INT(bucket_tokens(&bucket), ==, 15);
    bucket_resize(&bucket, 1, 3, SECOND + SECOND);
    CHECK_INT(bucket_tokens(&bucket), ==, 3);
    CHECK(!bucket_holds(&bucket, 4));
}

TEST(bucket_refuses_rules_it_cannot_count_with)
{
    CHECK(bucket_fits(&(struct bucket_rules){.rate = 1, .period_ns = 1, .burst = 1}));
    CHECK(!bucket_fits(&(struct bucket_rules){.rate = 0, .period_ns = 1, .burst = 1}));
    CHECK(!bucket_fits(&(struct bucket_rules){.rate = 1, .period_ns = 0, .burst = 1}));
    CHECK(!bucket_fits(&(struct bucket_rules){.rate = 1, .period_ns = 1, .burst = 0}));
    CHECK(!bucket_fits(&(struct bucket_rules){.rate = 1, .period_ns = INT64_MAX / 2, .burst = 3}));
}

/* The same with nothing clever: parts of a token in 128 bits, from the very beginning. */
struct model {
    unsigned __int128 level, full;
    uint64_t rate, period;
    int64_t at_ns;
};

static void model_to(struct model *model, int64_t now_ns)
{
    if (now_ns <= model->at_ns) return;
    model->level += (unsigned __int128)((__int128)now_ns - model->at_ns) * model->rate;
    if (model->level > model->full) model->level = model->full;
    model->at_ns = now_ns;
}

static bool model_take(struct model *model, uint64_t tokens, int64_t now_ns)
{
    unsigned __int128 parts = (unsigned __int128)tokens * model->period;

    model_to(model, now_ns);
    if (parts > model->level) return false;
    model->level -= parts;
    return true;
}

static int64_t random_time(uint64_t *seed, int64_t now_ns)
{
    switch (chance_below(seed, 8)) {
    case 0: return now_ns;                                             /* at the same time */
    case 1: return now_ns - (int64_t)chance_below(seed, 1000);         /* a little out of order */
    case 2: return now_ns + (int64_t)(chance_next(seed) >> 12) / 1000; /* much later */
    default: return now_ns + (int64_t)chance_below(seed, SECOND / 50);
    }
}

TEST(bucket_equals_its_model)
{
    uint64_t seed = chance_seed();

    for (int round = 0; round < 200; round++) {
        uint64_t rate = 1 + chance_below(&seed, round % 2 ? 1000 : UINT32_MAX);
        int64_t period_ns = 1 + (int64_t)chance_below(&seed, 100 * SECOND);
        uint64_t burst = 1 + chance_below(&seed, 1000);
        struct bucket bucket = make(rate, period_ns, burst);
        struct model model = {.rate = rate, .period = (uint64_t)period_ns, .at_ns = INT64_MIN};
        int64_t now_ns = (int64_t)chance_below(&seed, SECOND);

        model.full = model.level = (unsigned __int128)burst * model.period;
        for (int step = 0; step < 1000; step++) {
            uint64_t tokens = 1 + chance_below(&seed, burst + 1);
            int64_t ready_ns;

            now_ns = random_time(&seed, now_ns);
            if (chance_below(&seed, 50) == 0) {
                rate = 1 + chance_below(&seed, 1000), burst = 1 + chance_below(&seed, 1000);
                model_to(&model, now_ns);
                model.rate = rate, model.full = (unsigned __int128)burst * model.period;
                if (model.level > model.full) model.level = model.full;
                bucket_resize(&bucket, rate, burst, now_ns);
            }
            CHECK_INT(bucket_take(&bucket, tokens, now_ns), ==, model_take(&model, tokens, now_ns));
            CHECK(bucket.level == model.level);
            if (chance_below(&seed, 20) == 0) {
                model.level += (unsigned __int128)tokens * model.period;
                if (model.level > model.full) model.level = model.full;
                bucket_give_back(&bucket, tokens);
                CHECK(bucket.level == model.level);
            }
            /* When it says that they are there, they are; and not a moment before. */
            tokens = 1 + chance_below(&seed, burst);
            ready_ns = bucket_ready_ns(&bucket, tokens, now_ns);
            if (ready_ns > now_ns && ready_ns < INT64_MAX / 2) {
                struct model later = model;
                struct model before = model;
                CHECK(model_take(&later, tokens, ready_ns));
                CHECK(!model_take(&before, tokens, ready_ns - 1));
            }
        }
    }
}

/* history_test.c - jobs that have ended: forgotten by time and by count, whatever order they came
 * in. */
#include "unit/engine/helper.h"
#include "unit/policy/chance.h"

enum { JOBS = 4000, CHECK_EVERY = 97 };

/* As if it was logged. */
static void logged(struct engine *engine)
{
    static uint64_t position = 1;
    engine_logged(engine, position++);
}

/* Jobs that end at random, many at one time, in two queues; cancelled ones too. When each ends. */
static int64_t end_at_random(struct engine *engine, uint64_t *seed, int64_t ended_ms[])
{
    const char *const queues[] = {"a", "b"};
    int64_t now_ms = T0;

    for (int i = 0; i < JOBS; i++) {
        struct engine_job_spec spec = job_spec(queues[i % 2]);
        uint64_t id = put(engine, now_ms, &spec);
        CHECK_INT(id, ==, i + 1);
        logged(engine);
    }
    for (int left = JOBS; left > 0; left--) {
        uint64_t id = 1 + chance_below(seed, JOBS);
        while (ended_ms[id]) id = id % JOBS + 1;
        if (chance_below(seed, 20) == 0) now_ms++;
        CHECK_OK(engine_cancel(engine, now_ms, id));
        ended_ms[id] = now_ms;
        logged(engine);
        if (left % CHECK_EVERY == 0) check_engine(engine);
    }
    return now_ms;
}

/* By time, then by id. */
static uint64_t first_of(const int64_t ended_ms[])
{
    uint64_t first = 0;
    for (uint64_t id = 1; id <= JOBS; id++) {
        if (ended_ms[id] && (!first || ended_ms[id] < ended_ms[first])) first = id;
    }
    return first;
}

static void check_forgotten(struct engine *engine, int64_t ended_ms[], int64_t now_ms)
{
    uint64_t first;
    int r = 1;

    while (r > 0) {
        r = engine_tick(engine, now_ms, 1 << 20);
        CHECK_OK(r);
        logged(engine);
    }
    while ((first = first_of(ended_ms)) != 0 &&
           ended_ms[first] + helper_config.history_ms <= now_ms) {
        CHECK_INT(state_of(engine, first), ==, ENGINE_NO_JOB);
        ended_ms[first] = 0;
    }
    if (first) {
        CHECK_INT(state_of(engine, first), ==, ENGINE_CANCELLED);
        CHECK_INT(engine_next_ms(engine), ==, ended_ms[first] + helper_config.history_ms);
    } else {
        CHECK_INT(engine_next_ms(engine), ==, INT64_MAX);
        CHECK_INT(engine_job_count(engine), ==, 0);
    }
    check_engine(engine);
}

/* All that has ended, kept as long as it is to be. */
static struct engine *open_with_all_kept(void)
{
    struct engine_config config = helper_config;
    struct engine *engine = NULL;

    config.history_count_max = JOBS;
    CHECK_OK(engine_open(&config, &engine));
    return engine;
}

TEST(history_is_forgotten_in_the_order_of_its_ends)
{
    static int64_t ended_ms[JOBS + 1];
    struct engine *engine = open_with_all_kept();
    uint64_t seed = 11;
    int64_t now_ms;

    now_ms = end_at_random(engine, &seed, ended_ms) + helper_config.history_ms;
    for (int64_t at = T0 + helper_config.history_ms; at < now_ms; at += 7) {
        check_forgotten(engine, ended_ms, at);
    }
    check_forgotten(engine, ended_ms, now_ms);
    CHECK_INT(first_of(ended_ms), ==, 0);
    engine_close(engine);
}

/* A snapshot has its jobs by row, not by their ends. */
TEST(history_of_a_snapshot_is_forgotten_in_the_same_order)
{
    static int64_t ended_ms[JOBS + 1];
    struct engine *engine = open_with_all_kept(), *again = open_with_all_kept();
    struct engine_cursor cursor = {0};
    uint64_t seed = 13;
    const void *bytes;
    size_t count;
    int64_t now_ms;
    int r = 1;

    now_ms = end_at_random(engine, &seed, ended_ms) + helper_config.history_ms;
    for (uint64_t position = 1; r > 0; position++) {
        r = engine_snapshot(engine, &cursor, 1 << 12, &bytes, &count);
        CHECK_OK(r);
        CHECK_OK(engine_apply(again, bytes, count, position));
        if (position % 7 == 0) check_engine(again);
    }
    engine_close(engine);
    check_engine(again);
    for (int64_t at = T0 + helper_config.history_ms; at < now_ms; at += 11) {
        check_forgotten(again, ended_ms, at);
    }
    check_forgotten(again, ended_ms, now_ms);
    engine_close(again);
}

/* The first to have ended goes first, of its queue. */
TEST(history_keeps_as_many_of_a_queue_as_are_to_be_kept)
{
    struct engine *engine = helper_open();
    uint32_t kept = helper_config.history_count_max;
    struct engine_job_spec spec = job_spec("a");

    for (uint64_t i = 0; i < 3 * kept; i++) {
        uint64_t id = put(engine, T0, &spec);
        CHECK_OK(engine_cancel(engine, T0 + (int64_t)i / 10, id));
        logged(engine);
        CHECK_INT(engine_job_count(engine), ==, i < kept ? i + 1 : kept);
        if (i >= kept) CHECK_INT(state_of(engine, id - kept), ==, ENGINE_NO_JOB);
        if (i % CHECK_EVERY == 0) check_engine(engine);
    }
    engine_close(engine);
}

/* bound_test.c - how long a record can become: of one command, and of one tick. */
#include <stdio.h>

#include "unit/engine/helper.h"

static struct engine_slice long_name(char *room, const char *what, int i)
{
    memset(room, 'n', ENGINE_NAME_BYTES_MAX);
    memcpy(room, what, strlen(what));
    snprintf(room + 20, 12, "%011d", i);
    room[31] = '-';
    return (struct engine_slice){room, ENGINE_NAME_BYTES_MAX};
}

/* A member of a batch, which expires and has a successor; so has the job that gathers it. */
static void put_aside_later(struct engine *engine, int i)
{
    char queue[ENGINE_NAME_BYTES_MAX], order[ENGINE_NAME_BYTES_MAX], other[ENGINE_NAME_BYTES_MAX];
    struct engine_job_spec spec = job_spec("q");
    uint64_t batch;

    spec.queue = long_name(queue, "queue", 0);
    spec.priority = ENGINE_PRIORITY_MAX;
    spec.order_key = long_name(order, "gathers", i);
    spec.gathers = ENGINE_WHEN_DONE;
    batch = put(engine, T0, &spec);
    spec.gathers = ENGINE_GATHERS_NOTHING;
    spec.order_key = long_name(other, "member", i);
    spec.batch = batch;
    spec.expires_ms = T0 + 5;
    put(engine, T0, &spec);
    spec.batch = 0;
    spec.expires_ms = 0;
    spec.priority = 0;
    put(engine, T0, &spec);
    CHECK_INT(engine_batch_seal(engine, T0, batch), ==, ENGINE_HELD);
}

TEST(the_longest_claim_fits_into_the_bound_of_a_command)
{
    char names[ENGINE_LIMIT_KEYS_MAX][ENGINE_NAME_BYTES_MAX], name[ENGINE_NAME_BYTES_MAX];
    struct engine *engine = helper_open();
    struct engine_rate rate = {ENGINE_RATE_MAX, ENGINE_PERIOD_MS_MAX, ENGINE_RATE_MAX};
    struct engine_queue_spec queue = {.name = long_name(name, "queue", 0),
                                      .overflow = ENGINE_REJECT,
                                      .depth_max = UINT32_MAX,
                                      .concurrency = UINT32_MAX,
                                      .latency_target_ms = UINT32_MAX,
                                      .rate = rate};
    struct engine_claim_spec claim = {
        .queue = queue.name, .count = ENGINE_CLAIM_MAX, .lease_ms = ENGINE_SPAN_MS_MAX};
    struct engine_claimed claimed[ENGINE_CLAIM_MAX];
    struct engine_job_spec spec = job_spec("q");
    const void *bytes;
    size_t count;

    CHECK_OK(engine_queue_set(engine, T0, &queue));
    for (int i = 0; i < ENGINE_LIMIT_KEYS_MAX; i++) {
        struct engine_key_spec key = {.name = long_name(names[i], "key", i),
                                      .concurrency = UINT32_MAX,
                                      .rate = rate,
                                      .weight = ENGINE_RATE_MAX};
        CHECK_OK(engine_key_set(engine, T0, &key));
        spec.limit_keys[spec.limit_key_count++] = key.name;
    }
    spec.queue = queue.name;
    for (int i = 0; i < ENGINE_SKIP_MAX - 1; i++) put_aside_later(engine, i);
    spec.priority = 1;
    for (int i = 0; i < ENGINE_CLAIM_MAX; i++) put(engine, T0, &spec);
    engine_logged(engine, 1);
    CHECK_INT(engine_claim(engine, T0 + 5, &claim, claimed), ==, ENGINE_CLAIM_MAX);
    engine_record(engine, &bytes, &count);
    test_note("%zu bytes", count);
    CHECK_INT(count, <=, ENGINE_COMMAND_BYTES_MAX);
    CHECK_INT(count, >, ENGINE_COMMAND_BYTES_MAX / 3);
    engine_close(engine);
}

TEST(a_claim_moves_no_more_others_than_one_command_may)
{
    enum { GROUPS = 8, ROOM = 10, BLOCKED = GROUPS * ENGINE_LIMIT_KEYS_MAX * ROOM };
    struct engine *engine = helper_open();
    struct engine_claim_spec claim = {.queue = slice("q"), .count = 1, .lease_ms = 100};
    struct engine_claimed claimed;
    struct engine_figures before, after;
    char names[ENGINE_LIMIT_KEYS_MAX][32];

    /* Who expires has four keys, and for each of them another one waits. */
    for (int group = 0; group < GROUPS; group++) {
        struct engine_job_spec spec = job_spec("q");
        spec.expires_ms = T0 + 5;
        spec.priority = 1;
        for (int i = 0; i < ENGINE_LIMIT_KEYS_MAX; i++) {
            struct engine_key_spec key = {.concurrency = ROOM};
            snprintf(names[i], sizeof names[i], "key-%d-%d", group, i);
            key.name = slice(names[i]);
            CHECK_OK(engine_key_set(engine, T0, &key));
            spec.limit_keys[spec.limit_key_count++] = key.name;
        }
        for (int i = 0; i < ROOM; i++) put(engine, T0, &spec);
        for (int i = 0; i < ENGINE_LIMIT_KEYS_MAX * ROOM; i++) {
            spec = job_spec("q");
            spec.limit_keys[spec.limit_key_count++] = slice(names[i % ENGINE_LIMIT_KEYS_MAX]);
            put(engine, T0, &spec);
        }
    }
    CHECK_OK(engine_figures(engine, slice("q"), &before));
    CHECK_INT(before.by_state[ENGINE_BLOCKED], ==, BLOCKED);
    CHECK_INT(engine_claim(engine, T0 + 5, &claim, &claimed), ==, 0);
    CHECK_OK(engine_figures(engine, slice("q"), &after));
    CHECK_INT(after.by_state[ENGINE_EXPIRED], ==, ENGINE_SKIP_MAX);
    CHECK_INT(before.by_state[ENGINE_BLOCKED] - after.by_state[ENGINE_BLOCKED], ==,
              ENGINE_MOVES_MAX);
    check_engine(engine);
    while (engine_tick(engine, T0 + 5, SIZE_MAX) == 1) {}
    CHECK_OK(engine_figures(engine, slice("q"), &after));
    CHECK_INT(after.by_state[ENGINE_BLOCKED], ==, 0);
    check_engine(engine);
    engine_close(engine);
}

TEST(a_tick_ends_before_its_record_is_too_long_and_goes_on_with_the_rest)
{
    enum { JOBS = 200, BYTES = 1000 };
    struct engine *engine = helper_open();
    struct engine *other = helper_open();
    struct engine_filter filter = {.queue = slice("q"), .states = ENGINE_LIVE_STATES};
    struct engine_job_spec spec = job_spec("q");
    struct engine_figures figures;
    unsigned ticks = 0;
    size_t count;
    uint64_t id;
    int more;

    for (int i = 0; i < JOBS; i++) {
        spec.run_at_ms = T0 + 5;
        put(engine, T0, &spec);
    }
    CHECK_INT(engine_bulk_begin(engine, T0, &filter, ENGINE_ACTION_CANCEL, &id), ==, JOBS);
    CHECK_INT(engine_tick(engine, T0 + 5, BYTES), ==, 1); /* the record is full already */
    CHECK_OK(engine_figures(engine, slice("q"), &figures));
    CHECK_INT(figures.by_state[ENGINE_SCHEDULED], ==, JOBS);
    pass_on(engine, other, 1);
    do {
        more = engine_tick(engine, T0 + 5, BYTES);
        CHECK_OK(more);
        count = pass_on(engine, other, 2 + ticks++);
        CHECK_INT(count, <, BYTES + 200);
    } while (more);
    CHECK_INT(ticks, >, 4);
    CHECK_OK(engine_figures(other, slice("q"), &figures));
    CHECK_INT(figures.by_state[ENGINE_CANCELLED], ==, JOBS);
    CHECK(state_sum(engine) == state_sum(other));
    engine_close(engine);
    engine_close(other);
}

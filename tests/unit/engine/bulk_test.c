/* bulk_test.c - work on many jobs by a filter: frozen, in chunks, going on after a restart. */
#include "unit/engine/helper.h"

static void put_dead(struct engine *engine, int count, const char *class)
{
    struct engine_job_spec spec = job_spec("q");
    for (int i = 0; i < count; i++) {
        struct engine_claimed claimed;
        put(engine, T0, &spec);
        claimed = take(engine, T0, "q");
        CHECK_INT(fail(engine, T0, &claimed, class), ==, ENGINE_DEAD);
    }
}

static struct engine_filter dead_of_class(const char *class)
{
    return (struct engine_filter){
        .queue = slice("q"), .states = ENGINE_STATE_BIT(ENGINE_DEAD), .error_class = slice(class)};
}

TEST(dead_letters_of_a_class_are_replayed_in_chunks_also_after_a_restart)
{
    struct engine *engine = helper_open();
    struct engine *other = helper_open();
    struct engine_filter filter = dead_of_class("net");
    struct engine_bulk bulk;
    struct engine_figures figures;
    uint64_t id;

    put_dead(engine, 100, "net");
    put_dead(engine, 5, "bad");
    CHECK_INT(engine_filter_count(engine, &filter), ==, 100);
    CHECK_INT(engine_bulk_begin(engine, T0, &filter, ENGINE_ACTION_REPLAY, &id), ==, 100);
    /* What dies later is not in the set; what is gone by then has failed. */
    put_dead(engine, 1, "net");
    CHECK_OK(engine_purge(engine, T0, 100));
    CHECK_INT(engine_next_ms(engine), ==, 0);
    CHECK_INT(engine_tick(engine, T0, SIZE_MAX), ==, 1);
    pass_on(engine, other, 1);
    CHECK(state_sum(engine) == state_sum(other));
    CHECK_INT(engine_bulk_list(other, &bulk, 1), ==, 1);
    CHECK_INT(bulk.done, ==, ENGINE_BULK_CHUNK);
    CHECK_INT(engine_tick(other, T0, SIZE_MAX), ==, 0);
    CHECK_INT(engine_bulk_list(other, &bulk, 1), ==, 1);
    CHECK(bulk.id == id && bulk.done == 100 && bulk.count == 100 && bulk.failed == 1);
    CHECK_OK(engine_figures(other, slice("q"), &figures));
    CHECK_INT(figures.by_state[ENGINE_READY], ==, 99);
    CHECK_INT(figures.by_state[ENGINE_DEAD], ==, 6);
    CHECK_OK(engine_bulk_drop(other, T0, id));
    CHECK_INT(engine_bulk_drop(other, T0, id), ==, -ENOENT);
    CHECK_INT(engine_bulk_list(other, &bulk, 1), ==, 0);
    engine_close(engine);
    engine_close(other);
}

TEST(jobs_with_tags_are_cancelled_and_purged_by_filter)
{
    struct engine *engine = helper_open();
    struct engine_job_spec spec = job_spec("q");
    struct engine_filter filter = {
        .queue = slice("q"), .states = ENGINE_LIVE_STATES, .tags = slice("red")};
    struct engine *restored = helper_open();
    struct engine_cursor cursor = {0};
    const void *bytes;
    size_t count;
    uint64_t id;
    int more;

    for (int i = 0; i < 6; i++) {
        spec.tags = slice(i % 2 ? "red" : "blue");
        put(engine, T0, &spec);
    }
    CHECK_INT(engine_bulk_begin(engine, T0, &filter, ENGINE_ACTION_UNSET, &id), ==, -EINVAL);
    CHECK_INT(engine_bulk_begin(engine, T0, &filter, ENGINE_ACTION_CANCEL, &id), ==, 3);
    engine_logged(engine, 1);
    /* A snapshot has the set too. */
    do {
        more = engine_snapshot(engine, &cursor, 0, &bytes, &count);
        CHECK_OK(more);
        CHECK_OK(engine_apply(restored, bytes, count, 1));
    } while (more);
    CHECK(state_sum(engine) == state_sum(restored));
    CHECK_INT(engine_tick(restored, T0, SIZE_MAX), ==, 0);
    CHECK_INT(state_of(restored, 2), ==, ENGINE_CANCELLED);
    CHECK_INT(state_of(restored, 1), ==, ENGINE_READY);
    filter.states = ENGINE_STATE_BIT(ENGINE_CANCELLED);
    CHECK_INT(engine_bulk_begin(restored, T0, &filter, ENGINE_ACTION_PURGE, &id), ==, 3);
    CHECK_INT(engine_tick(restored, T0, SIZE_MAX), ==, 0);
    CHECK_INT(state_of(restored, 2), ==, ENGINE_NO_JOB);
    engine_close(engine);
    engine_close(restored);
}

/* What is done is a line without its ids, and few of these lines are kept. */
TEST(sets_that_are_done_take_no_memory_and_the_oldest_go)
{
    enum { JOBS = 1000, SETS = ENGINE_BULKS_DONE_MAX + 3 };
    struct engine *engine = helper_open(), *other = helper_open(), *restored = helper_open();
    struct engine_filter filter = dead_of_class("net"), none = dead_of_class("none");
    struct engine_bulk bulks[SETS + 1];
    struct engine_cursor cursor = {0};
    const void *bytes;
    size_t before, count;
    uint64_t id, first = 0;
    int more;

    put_dead(engine, JOBS, "net");
    CHECK_INT(engine_bulk_begin(engine, T0, &filter, ENGINE_ACTION_REPLAY, &first), ==, JOBS);
    pass_on(engine, other, 1);
    before = engine_memory_used(engine);
    while (engine_next_ms(engine) == 0) {
        CHECK_OK(engine_tick(engine, T0, SIZE_MAX));
        pass_on(engine, other, 1);
    }
    CHECK_INT(engine_memory_used(engine) + JOBS * sizeof(uint64_t) / 2, <=, before);
    for (int i = 1; i < SETS; i++) {
        CHECK_INT(engine_bulk_list(engine, bulks, SETS), ==,
                  i < ENGINE_BULKS_DONE_MAX ? i : ENGINE_BULKS_DONE_MAX);
        CHECK_INT(engine_bulk_begin(engine, T0, &none, ENGINE_ACTION_PURGE, &id), ==, 0);
    }
    CHECK_INT(engine_bulk_list(engine, bulks, SETS), ==, ENGINE_BULKS_DONE_MAX);
    CHECK_INT(bulks[0].id, ==, id);
    for (int i = 0; i < ENGINE_BULKS_DONE_MAX; i++) CHECK(bulks[i].id > first);
    /* One that is not done stays, however many are. */
    put_dead(engine, 1, "net");
    CHECK_INT(engine_bulk_begin(engine, T0, &filter, ENGINE_ACTION_REPLAY, &first), ==, 1);
    for (int i = 0; i < SETS; i++) {
        CHECK_INT(engine_bulk_begin(engine, T0, &none, ENGINE_ACTION_PURGE, &id), ==, 0);
    }
    CHECK_INT(engine_bulk_list(engine, bulks, SETS), ==, ENGINE_BULKS_DONE_MAX + 1);
    CHECK_INT(bulks[ENGINE_BULKS_DONE_MAX].id, ==, first);
    CHECK_INT(engine_tick(engine, T0, SIZE_MAX), ==, 0);
    CHECK_INT(engine_bulk_list(engine, bulks, SETS), ==, ENGINE_BULKS_DONE_MAX);
    CHECK_INT(bulks[ENGINE_BULKS_DONE_MAX - 1].id, >, first);
    pass_on(engine, other, 1);
    CHECK(state_sum(engine) == state_sum(other));
    do {
        more = engine_snapshot(engine, &cursor, 0, &bytes, &count);
        CHECK_OK(more);
        CHECK_OK(engine_apply(restored, bytes, count, 1));
    } while (more);
    CHECK(state_sum(engine) == state_sum(restored));
    engine_close(engine);
    engine_close(other);
    engine_close(restored);
}

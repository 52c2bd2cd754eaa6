/* schedule_test.c - schedules that enqueue, and batches that are gathered. */
#include "unit/engine/helper.h"
#include "unit/engine/zones.h"

#define MINUTE INT64_C(60000)
#define DAY (24 * 60 * MINUTE)

static struct engine_schedule_spec every_minute(void)
{
    return (struct engine_schedule_spec){.name = slice("report"),
                                         .cron = slice("* * * * *"),
                                         .overlap = ENGINE_OVERLAP_ALLOW,
                                         .catch_up = ENGINE_CATCH_UP_ONE,
                                         .job = job_spec("q")};
}

static uint64_t ready(struct engine *engine)
{
    struct engine_figures figures;
    if (engine_figures(engine, slice("q"), &figures) < 0) return 0;
    return figures.by_state[ENGINE_READY];
}

TEST(a_schedule_enqueues_its_job_each_time_and_once_for_what_was_missed)
{
    struct engine *engine = helper_open();
    struct engine *other = helper_open();
    struct engine_schedule_spec spec = every_minute();
    struct engine_schedule schedule;
    struct engine_job job;

    spec.job.idempotent = true;
    spec.job.retry.attempts_max = 7;
    CHECK_OK(engine_schedule_set(engine, 10 * MINUTE + 1, &spec));
    CHECK_INT(engine_next_ms(engine), ==, 11 * MINUTE);
    CHECK_INT(engine_tick(engine, 11 * MINUTE - 1, SIZE_MAX), ==, 0);
    CHECK_INT(ready(engine), ==, 0);
    CHECK_INT(engine_tick(engine, 11 * MINUTE, SIZE_MAX), ==, 0);
    CHECK_INT(ready(engine), ==, 1);
    CHECK_INT(engine_tick(engine, 15 * MINUTE + 5, SIZE_MAX), ==, 0);
    CHECK_INT(ready(engine), ==, 2);
    CHECK_OK(engine_schedule_get(engine, slice("report"), &schedule));
    CHECK_INT(schedule.next_ms, ==, 16 * MINUTE);
    CHECK_INT(schedule.last_id, ==, 2);
    CHECK_OK(engine_job_get(engine, 2, &job));
    CHECK_INT(job.attempts_max, ==, 7);
    CHECK_INT(job.payload_bytes, ==, 5);
    pass_on(engine, other, 1);
    CHECK(state_sum(engine) == state_sum(other));
    CHECK_INT(engine_next_ms(other), ==, 16 * MINUTE);
    CHECK_OK(engine_schedule_drop(engine, 15 * MINUTE, slice("report")));
    CHECK_INT(engine_schedule_drop(engine, 15 * MINUTE, slice("report")), ==, -ENOENT);
    CHECK_INT(engine_next_ms(engine), ==, INT64_MAX);
    engine_close(engine);
    engine_close(other);
}

TEST(what_was_missed_comes_all_once_or_not_at_all)
{
    static const struct {
        enum engine_catch_up catch_up;
        uint64_t jobs;
    } rows[] = {{ENGINE_CATCH_UP_ALL, 5}, {ENGINE_CATCH_UP_ONE, 1}, {ENGINE_CATCH_UP_NONE, 0}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct engine *engine = helper_open();
        struct engine_schedule_spec spec = every_minute();
        spec.catch_up = rows[i].catch_up;
        CHECK_OK(engine_schedule_set(engine, 10 * MINUTE, &spec));
        CHECK_INT(engine_tick(engine, 15 * MINUTE, SIZE_MAX), ==, 0);
        CHECK_INT(ready(engine), ==, rows[i].jobs);
        engine_close(engine);
    }
}

TEST(a_schedule_whose_job_still_runs_is_skipped_if_it_says_so)
{
    struct engine *engine = helper_open();
    struct engine_schedule_spec spec = every_minute();
    struct engine_schedule schedule;
    struct engine_claimed claimed;

    spec.overlap = ENGINE_OVERLAP_SKIP;
    CHECK_OK(engine_schedule_set(engine, MINUTE, &spec));
    engine_tick(engine, 2 * MINUTE, SIZE_MAX);
    engine_tick(engine, 3 * MINUTE, SIZE_MAX);
    CHECK_OK(engine_schedule_get(engine, slice("report"), &schedule));
    CHECK_INT(schedule.skipped, ==, 1);
    claimed = take(engine, 3 * MINUTE, "q");
    CHECK_OK(ack(engine, 3 * MINUTE, &claimed));
    engine_tick(engine, 4 * MINUTE, SIZE_MAX);
    CHECK_INT(ready(engine), ==, 1);
    engine_close(engine);
}

TEST(a_schedule_waits_for_its_zone_and_is_not_lost)
{
    struct engine *engine = helper_open();
    struct engine_schedule_spec spec = every_minute();
    struct engine_schedule schedule;
    const int64_t day = 20000 * DAY; /* in October 2024: two hours east */
    unsigned char bytes[ZONES_FILE_BYTES];
    struct engine_slice tzif = {bytes, zones_write(&zones[BERLIN], 2, bytes)};

    spec.cron = slice("0 12 * * *");
    spec.zone = slice("Europe/Somewhere");
    CHECK_OK(engine_schedule_set(engine, day, &spec));
    CHECK_OK(engine_schedule_get(engine, slice("report"), &schedule));
    CHECK(schedule.zone_missing);
    CHECK_INT(schedule.next_ms, ==, 0);
    CHECK_INT(engine_zone_set(engine, spec.zone, slice("no zone")), ==, -EINVAL);
    CHECK_OK(engine_zone_set(engine, spec.zone, tzif));
    CHECK_INT(engine_tick(engine, day, SIZE_MAX), ==, 0);
    CHECK_OK(engine_schedule_get(engine, slice("report"), &schedule));
    CHECK(!schedule.zone_missing);
    CHECK_INT(schedule.next_ms, ==, day + 10 * 60 * MINUTE);
    engine_close(engine);
}

TEST(a_schedule_that_contradicts_itself_is_refused)
{
    struct engine *engine = helper_open();
    struct engine_schedule_spec spec = every_minute();

    spec.cron = slice("61 * * * *");
    CHECK_INT(engine_schedule_set(engine, T0, &spec), ==, -EINVAL);
    CHECK_CONTAINS(engine_why(engine), "minute, character 1");
    spec = every_minute();
    spec.overlap = 0;
    CHECK_INT(engine_schedule_set(engine, T0, &spec), ==, -EINVAL);
    spec = every_minute();
    spec.job.run_at_ms = T0;
    CHECK_INT(engine_schedule_set(engine, T0, &spec), ==, -EINVAL);
    spec = every_minute();
    spec.job.kind = slice("");
    CHECK_INT(engine_schedule_set(engine, T0, &spec), ==, -EINVAL);
    CHECK_CONTAINS(engine_why(engine), "kind");
    CHECK_INT(pass_on(engine, NULL, 1), ==, 0);
    engine_close(engine);
}

/* ---- Batches ---- */

static uint64_t put_gathering(struct engine *engine, enum engine_gathers gathers, const char *order)
{
    struct engine_job_spec spec = job_spec("after");
    spec.gathers = gathers;
    spec.order_key = slice(order);
    return put(engine, T0, &spec);
}

TEST(a_job_that_gathers_runs_when_all_members_have_ended)
{
    struct engine *engine = helper_open();
    uint64_t batch = put_gathering(engine, ENGINE_WHEN_ENDED, "");
    struct engine_job_spec spec = job_spec("q");
    struct engine_enqueued enqueued;
    struct engine_claimed claimed;
    struct engine_job job;

    spec.batch = batch;
    put(engine, T0, &spec);
    put(engine, T0, &spec);
    claimed = take(engine, T0, "q");
    CHECK_INT(fail(engine, T0, &claimed, "net"), ==, ENGINE_DEAD);
    CHECK_INT(engine_batch_seal(engine, T0, batch), ==, ENGINE_HELD);
    CHECK_INT(engine_enqueue(engine, T0, &spec, &enqueued), ==, -ENOENT);
    CHECK_OK(engine_job_get(engine, batch, &job));
    CHECK_INT(job.members, ==, 2);
    CHECK_INT(job.members_left, ==, 1);
    CHECK_INT(job.members_not_done, ==, 1);
    /* A member that is replayed is not counted again. */
    CHECK_INT(engine_dead_replay(engine, T0, claimed.id, NULL, slice("")), ==, ENGINE_READY);
    CHECK_INT(engine_cancel(engine, T0, claimed.id), ==, ENGINE_CANCELLED);
    CHECK_INT(state_of(engine, batch), ==, ENGINE_HELD);
    claimed = take(engine, T0, "q");
    CHECK_OK(ack(engine, T0, &claimed));
    CHECK_INT(take(engine, T0, "after").id, ==, batch);
    engine_close(engine);
}

TEST(a_job_that_wants_all_done_dies_with_a_member)
{
    struct engine *engine = helper_open();
    uint64_t batch = put_gathering(engine, ENGINE_WHEN_DONE, "");
    struct engine_job_spec spec = job_spec("q");
    struct engine_claimed claimed;

    spec.batch = batch;
    put(engine, T0, &spec);
    CHECK_INT(engine_batch_seal(engine, T0, batch), ==, ENGINE_HELD);
    claimed = take(engine, T0, "q");
    CHECK_INT(fail(engine, T0, &claimed, "net"), ==, ENGINE_DEAD);
    CHECK_INT(state_of(engine, batch), ==, ENGINE_DEAD);
    CHECK_INT(engine_dead_replay(engine, T0, batch, NULL, slice("")), ==, ENGINE_READY);
    engine_close(engine);
}

TEST(members_with_the_order_key_of_who_gathers_them_do_not_wait_for_it)
{
    struct engine *engine = helper_open();
    uint64_t batch;
    struct engine_job_spec spec = job_spec("after");
    struct engine_claimed claimed;

    batch = put_gathering(engine, ENGINE_WHEN_DONE, "o");
    spec.order_key = slice("o");
    spec.batch = batch;
    put(engine, T0, &spec);
    put(engine, T0, &spec);
    CHECK_INT(engine_batch_seal(engine, T0, batch), ==, ENGINE_HELD);
    for (int i = 0; i < 2; i++) {
        claimed = take(engine, T0, "after");
        CHECK_INT(claimed.id, >, batch);
        CHECK_OK(ack(engine, T0, &claimed));
    }
    CHECK_INT(take(engine, T0, "after").id, ==, batch);
    check_engine(engine);
    engine_close(engine);
}

TEST(an_empty_batch_is_gathered_when_it_is_sealed)
{
    struct engine *engine = helper_open();
    uint64_t batch = put_gathering(engine, ENGINE_WHEN_DONE, "");

    CHECK_INT(engine_batch_seal(engine, T0, batch), ==, ENGINE_READY);
    CHECK_INT(engine_batch_seal(engine, T0, batch), ==, -ENOENT);
    engine_close(engine);
}

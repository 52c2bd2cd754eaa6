/* list_test.c - what there is, row by row: queues, keys, schedules, jobs by filter; and room. */
#include <stdio.h>

#include "unit/engine/helper.h"

static bool equals(struct engine_slice one, const char *text)
{
    return one.count == strlen(text) && memcmp(one.at, text, one.count) == 0;
}

TEST(queues_and_keys_are_listed_as_they_were_set)
{
    struct engine *engine = helper_open();
    struct engine_queue_spec queue = {.name = slice("set"),
                                      .depth_max = 5,
                                      .overflow = ENGINE_WAIT,
                                      .concurrency = 3,
                                      .rate = {4, 100, 2},
                                      .latency_target_ms = 70,
                                      .paused = true,
                                      .draining = true};
    struct engine_key_spec key = {
        .name = slice("key"), .concurrency = 2, .rate = {1, 50, 1}, .weight = 9};
    struct engine_job_spec spec = job_spec("plain");
    struct engine_queue_info info;
    struct engine_key_info key_info;
    uint32_t cursor = 0;

    CHECK_INT(engine_queue_next(engine, &cursor, &info), ==, 0);
    CHECK_OK(engine_queue_set(engine, T0, &queue));
    CHECK_OK(engine_key_set(engine, T0, &key));
    spec.fairness_key = slice("tenant");
    put(engine, T0, &spec);
    CHECK_INT(engine_queue_next(engine, &cursor, &info), ==, 1);
    CHECK(equals(info.spec.name, "set") && info.configured);
    CHECK(info.spec.depth_max == 5 && info.spec.overflow == ENGINE_WAIT);
    CHECK(info.spec.concurrency == 3 && info.spec.latency_target_ms == 70);
    CHECK(info.spec.rate.count == 4 && info.spec.rate.burst == 2);
    CHECK(info.spec.paused && info.spec.draining);
    CHECK_OK(engine_queue_set(engine, T0, &info.spec)); /* it can be given back */
    CHECK_INT(engine_queue_next(engine, &cursor, &info), ==, 1);
    CHECK(equals(info.spec.name, "plain") && !info.configured);
    CHECK_INT(info.spec.overflow, ==, ENGINE_REJECT);
    CHECK_INT(engine_queue_next(engine, &cursor, &info), ==, 0);
    CHECK_OK(engine_queue_get(engine, slice("set"), &info));
    CHECK_INT(info.spec.depth_max, ==, 5);
    CHECK_INT(engine_queue_get(engine, slice("other"), &info), ==, -ENOENT);
    cursor = 0;
    CHECK_INT(engine_key_next(engine, &cursor, &key_info), ==, 1);
    CHECK(equals(key_info.spec.name, "key") && key_info.configured && key_info.spec.weight == 9);
    CHECK(key_info.spec.concurrency == 2 && key_info.spec.rate.period_ms == 50);
    CHECK_INT(engine_key_next(engine, &cursor, &key_info), ==, 1);
    CHECK(equals(key_info.spec.name, "tenant") && !key_info.configured);
    CHECK_INT(engine_key_next(engine, &cursor, &key_info), ==, 0);
    engine_close(engine);
}

TEST(schedules_are_listed_with_what_they_enqueue)
{
    struct engine *engine = helper_open();
    struct engine_schedule_spec spec = {.name = slice("nightly"),
                                        .cron = slice("0 3 * * *"),
                                        .zone = slice("Nowhere/Else"),
                                        .overlap = ENGINE_OVERLAP_SKIP,
                                        .catch_up = ENGINE_CATCH_UP_ONE,
                                        .paused = true,
                                        .job = job_spec("reports")};
    struct engine_schedule_info info;
    uint32_t cursor = 0;

    CHECK_OK(engine_schedule_set(engine, T0, &spec));
    spec.name = slice("dropped");
    CHECK_OK(engine_schedule_set(engine, T0, &spec));
    CHECK_OK(engine_schedule_drop(engine, T0, spec.name));
    CHECK_INT(engine_schedule_next(engine, &cursor, &info), ==, 1);
    CHECK(equals(info.name, "nightly") && equals(info.cron, "0 3 * * *"));
    CHECK(equals(info.zone, "Nowhere/Else") && equals(info.queue, "reports"));
    CHECK(equals(info.kind, "mail") && info.overlap == ENGINE_OVERLAP_SKIP);
    CHECK(info.catch_up == ENGINE_CATCH_UP_ONE && info.state.paused && info.state.zone_missing);
    CHECK_INT(info.state.next_ms, ==, 0);
    CHECK_INT(engine_schedule_next(engine, &cursor, &info), ==, 0);
    engine_close(engine);
}

TEST(jobs_are_listed_by_filter_a_few_rows_at_a_time)
{
    enum { JOBS = 100 };
    struct engine *engine = helper_open();
    struct engine_filter filter = {.states = ENGINE_LIVE_STATES, .tags = slice("red")};
    uint64_t ids[8], sum = 0, id;
    uint32_t cursor = 0, scanned, calls = 0;
    int found = 0, count;

    for (int i = 0; i < JOBS; i++) {
        struct engine_job_spec spec = job_spec(i % 2 ? "q" : "r");
        spec.tags = slice(i % 5 ? "blue" : "red");
        put(engine, T0, &spec);
    }
    CHECK_INT(engine_filter_count(engine, &filter), ==, JOBS / 5);
    do {
        count = engine_list(engine, &filter, &cursor, 7, ids, 8, &scanned);
        CHECK_OK(count);
        CHECK_INT(scanned, <=, 7);
        for (int i = 0; i < count; i++) sum += ids[i];
        found += count;
        calls++;
    } while (cursor);
    CHECK_INT(found, ==, JOBS / 5);
    CHECK_INT(sum, ==, 20 * 1 + 5 * (19 * 20 / 2));
    CHECK_INT(calls, ==, (JOBS + 6) / 7);
    /* No more than there is room for. */
    CHECK_INT(engine_list(engine, &filter, &cursor, 1000, ids, 3, &scanned), ==, 3);
    CHECK(cursor != 0 && scanned < JOBS);
    cursor = 0;
    filter.queue = slice("q");
    CHECK_INT(engine_list(engine, &filter, &cursor, 1000, ids, 8, &scanned), ==, 8);
    CHECK_INT(engine_list(engine, &filter, &cursor, 1000, ids, 8, &scanned), ==, 2);
    CHECK_INT(cursor, ==, 0);
    filter.queue = slice("nowhere");
    CHECK_INT(engine_list(engine, &filter, &cursor, 1000, ids, 8, &scanned), ==, 0);
    CHECK_INT(cursor, ==, 0);
    CHECK_INT(engine_list(engine, &filter, &cursor, 0, ids, 8, &scanned), ==, -EINVAL);
    /* A set over all queues. */
    filter.queue = slice("");
    CHECK_INT(engine_bulk_begin(engine, T0, &filter, ENGINE_ACTION_CANCEL, &id), ==, JOBS / 5);
    CHECK_OK(engine_tick(engine, T0, SIZE_MAX));
    CHECK_INT(engine_filter_count(engine, &filter), ==, 0);
    filter.states = 0;
    CHECK_INT(engine_bulk_begin(engine, T0, &filter, ENGINE_ACTION_CANCEL, &id), ==, -EINVAL);
    engine_close(engine);
}

/* ---- Room ---- */

TEST(a_full_queue_says_whether_who_enqueues_is_to_wait)
{
    struct engine_config config = helper_config;
    struct engine_queue_spec queue = {
        .name = slice("q"), .depth_max = 1, .overflow = ENGINE_REJECT};
    struct engine_job_spec spec = job_spec("q");
    struct engine_queue_info info;
    struct engine_enqueued enqueued;
    struct engine *engine;
    struct engine *other;

    config.overflow = ENGINE_WAIT;
    config.depth_max = 2;
    CHECK_OK(engine_open(&config, &engine));
    CHECK_OK(engine_open(&config, &other));
    CHECK(engine_has_room(engine, slice("q")));
    put(engine, T0, &spec);
    CHECK(engine_has_room(engine, slice("q")));
    put(engine, T0, &spec);
    CHECK(!engine_has_room(engine, slice("q")));
    CHECK_INT(engine_enqueue(engine, T0, &spec, &enqueued), ==, WEIR_EOVERLOAD);
    CHECK_OK(engine_queue_get(engine, slice("q"), &info));
    CHECK_INT(info.spec.overflow, ==, ENGINE_WAIT); /* the engine's */
    CHECK_OK(engine_queue_set(engine, T0, &queue));
    CHECK_OK(engine_queue_get(engine, slice("q"), &info));
    CHECK_INT(info.spec.overflow, ==, ENGINE_REJECT);
    queue.overflow = ENGINE_WAIT;
    CHECK_OK(engine_queue_set(engine, T0, &queue));
    CHECK_INT(engine_cancel(engine, T0, 1), ==, ENGINE_CANCELLED);
    CHECK(!engine_has_room(engine, slice("q")));
    CHECK_INT(engine_enqueue(engine, T0, &spec, &enqueued), ==, WEIR_EOVERLOAD);
    CHECK_INT(engine_cancel(engine, T0, 2), ==, ENGINE_CANCELLED);
    CHECK(engine_has_room(engine, slice("q")));
    pass_on(engine, other, 1);
    CHECK_OK(engine_queue_get(other, slice("q"), &info));
    CHECK_INT(info.spec.overflow, ==, ENGINE_WAIT);
    queue.overflow = ENGINE_OVERFLOW_UNSET;
    CHECK_INT(engine_queue_set(engine, T0, &queue), ==, -EINVAL);
    engine_close(engine);
    engine_close(other);
}

TEST(a_queue_whose_record_says_nothing_of_waiting_rejects)
{
    static const unsigned char record[] = {0x02, 0x05, 0x80, 0x89, 0x7a, 0x00, 0x00, 0x05, 0x01,
                                           'q',  0x01, 0x09, 0x08, 0x46, 0x00, 0x00, 0x00, 0x00};
    struct engine *engine = helper_open();
    struct engine_queue_info info;

    CHECK_OK(engine_apply(engine, record, sizeof record, 1));
    CHECK_OK(engine_queue_get(engine, slice("q"), &info));
    CHECK(info.spec.overflow == ENGINE_REJECT && info.spec.depth_max == 9);
    engine_close(engine);
}

TEST(a_duplicate_is_answered_also_at_the_memory_bound)
{
    struct engine_config config = helper_config;
    struct engine_job_spec spec = job_spec("q");
    struct engine_enqueued enqueued = {0};
    struct engine *engine;
    uint64_t first, second;
    int r;

    config.memory_bytes_max = 1 << 18;
    CHECK_OK(engine_open(&config, &engine));
    spec.idempotency_key = slice("order-1");
    spec.idempotency_ms = 1000;
    first = put(engine, T0, &spec);
    spec.idempotency_key = slice("");
    spec.idempotency_ms = 0;
    spec.unique_key = slice("u");
    second = put(engine, T0, &spec);
    spec.unique_key = slice("");
    while ((r = engine_enqueue(engine, T0, &spec, &enqueued)) == 0) engine_logged(engine, 1);
    CHECK_INT(r, ==, -ENOBUFS);
    spec.unique_key = slice("u");
    CHECK_OK(engine_enqueue(engine, T0, &spec, &enqueued));
    CHECK(enqueued.duplicate && enqueued.id == second);
    spec.unique_key = slice("");
    spec.idempotency_key = slice("order-1");
    spec.idempotency_ms = 1000;
    CHECK_OK(engine_enqueue(engine, T0, &spec, &enqueued));
    CHECK(enqueued.duplicate && enqueued.id == first);
    engine_close(engine);
}

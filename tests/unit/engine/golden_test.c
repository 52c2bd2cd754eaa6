/* golden_test.c - records of version 1, byte by byte: a change of the format is seen here, and
 * needs a new version (docs/formats/engine.md). */
#include <stdio.h>

#include "unit/engine/helper.h"

static const char *record_hex(struct engine *engine)
{
    static char hex[2000];
    const unsigned char *at;
    const void *bytes;
    size_t count;

    engine_record(engine, &bytes, &count);
    CHECK_INT(count, <, sizeof hex / 2);
    at = bytes;
    for (size_t i = 0; i < count; i++) snprintf(hex + 2 * i, 3, "%02x", at[i]);
    engine_logged(engine, 1);
    return hex;
}

TEST(records_of_version_1_stay_as_they_are)
{
    struct engine *engine = helper_open();
    struct engine_key_spec key = {
        .name = slice("api"), .concurrency = 2, .rate = {3, 100, 5}, .weight = 4};
    struct engine_queue_spec queue = {.name = slice("q"),
                                      .depth_max = 9,
                                      .overflow = ENGINE_REJECT,
                                      .concurrency = 8,
                                      .latency_target_ms = 70};
    struct engine_job_spec spec = job_spec("q");
    struct engine_failure failure = {
        .class = slice("net"), .message = slice("no route"), .delay_ms = 5};
    struct engine_slice edited = slice("edited");
    struct engine_claimed claimed;

    CHECK_OK(engine_key_set(engine, T0, &key));
    CHECK_STR(record_hex(engine), "01c0843d00000000060361706901020403640500");
    CHECK_OK(engine_queue_set(engine, T0, &queue));
    CHECK_STR(record_hex(engine), "01c0843d000000000501710109084600000000");
    spec.trace = slice("t");
    spec.tags = slice("tag");
    spec.priority = 3;
    spec.expires_ms = T0 + 1000;
    spec.timeout_ms = 60;
    spec.idempotent = true;
    spec.retry = (struct engine_retry){.attempts_max = 2,
                                       .backoff_ms = 10,
                                       .backoff_ms_max = 20,
                                       .jitter = true,
                                       .never = {slice("bad")},
                                       .never_count = 1};
    spec.unique_key = slice("u");
    spec.unique_ms = 30;
    spec.idempotency_key = slice("i");
    spec.idempotency_ms = 40;
    spec.limit_keys[0] = slice("api");
    spec.limit_key_count = 1;
    spec.fairness_key = slice("f");
    spec.order_key = slice("o");
    put(engine, T0, &spec);
    CHECK_STR(record_hex(engine),
              "01c0843d010001010101030000000001c0843d00000201010171046d61696c0103c0843da88c3d0e"
              "020a1401013c1e3e28010362616403746167017501690166016f000103617069010568656c6c6f01"
              "74");
    claimed = take(engine, T0 + 1, "q");
    CHECK_STR(record_hex(engine),
              "01c1843d010101020201050000010101fd843dc1843d00010201000603617069010204036405a78e"
              "b701");
    CHECK_INT(engine_fail(engine, T0 + 2, claimed.id, claimed.token, &failure), ==,
              ENGINE_SCHEDULED);
    CHECK_STR(record_hex(engine),
              "01c2843d01010102040101c2843d036e6574086e6f20726f7574650201010000010100c7843dc184"
              "3d0000");
    engine_tick(engine, T0 + 7);
    claimed = take(engine, T0 + 7, "q");
    failure.dead = true;
    CHECK_INT(engine_fail(engine, T0 + 8, claimed.id, claimed.token, &failure), ==, ENGINE_DEAD);
    record_hex(engine);
    CHECK_INT(engine_dead_replay(engine, T0 + 9, claimed.id, &edited), ==, ENGINE_READY);
    CHECK_STR(record_hex(engine),
              "01c9843d01020305070106656469746564000201030000020003c9843dc7843d00020501");
    claimed = take(engine, T0 + 9, "q");
    record_hex(engine);
    CHECK_OK(engine_ack(engine, T0 + 10, claimed.id, claimed.token, slice("fine")));
    CHECK_STR(record_hex(engine), "01ca843d010303060201060000030100dad23dc9843d04040466696e65");
    CHECK_OK(engine_purge(engine, T0 + 10, claimed.id));
    CHECK_STR(record_hex(engine), "01ca843d010303060301");
    engine_close(engine);
}

TEST(records_of_schedules_and_sets_stay_as_they_are)
{
    struct engine *engine = helper_open();
    struct engine_schedule_spec schedule = {.name = slice("s"),
                                            .cron = slice("* * * * *"),
                                            .zone = slice("UTC"),
                                            .overlap = ENGINE_OVERLAP_SKIP,
                                            .catch_up = ENGINE_CATCH_UP_ALL,
                                            .job = job_spec("q")};
    struct engine_filter filter = {.queue = slice("q"), .states = ENGINE_LIVE_STATES};
    uint64_t id;

    CHECK_OK(engine_schedule_set(engine, T0, &schedule));
    CHECK_STR(record_hex(engine),
              "01c0843d00000000080173092a202a202a202a202a03555443020300e0a03e003001020000000000"
              "000000000171046d61696c010000000a010000000000003e000000000000000000010568656c6c6f"
              "00");
    CHECK_INT(engine_tick(engine, T0 + 60000), ==, 0);
    CHECK_STR(record_hex(engine),
              "01a0d940010001010101030000000001a0d94000000201010171046d61696c0100a0d940000a0100"
              "00000000003e000000000000000000010568656c6c6f00090173c0f54101");
    CHECK_INT(engine_bulk_begin(engine, T0, &filter, ENGINE_ACTION_CANCEL, &id), ==, 1);
    CHECK_STR(record_hex(engine), "01a0d940020001010b02030000010101");
    CHECK_INT(engine_tick(engine, T0), ==, 0);
    CHECK_STR(record_hex(engine), "01a0d940020001010201080000000000b0a7410000000c020100");
    CHECK_OK(engine_bulk_drop(engine, T0, id));
    CHECK_OK(engine_schedule_drop(engine, T0, slice("s")));
    CHECK_STR(record_hex(engine), "01a0d940020001010d020a0173");
    engine_close(engine);
}

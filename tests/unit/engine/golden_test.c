/* golden_test.c - records of version 2, byte by byte: a change of the format is seen here, and
 * needs a new version (docs/formats/engine.md). There are none of version 1: it was never
 * released, and is refused. */
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

TEST(records_of_version_2_stay_as_they_are)
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
    CHECK_STR(record_hex(engine), "020580897a0000060361706901020403640500");
    CHECK_OK(engine_queue_set(engine, T0, &queue));
    CHECK_STR(record_hex(engine), "020580897a00000501710109084600000000");
    queue.name = slice("w");
    queue.overflow = ENGINE_WAIT;
    CHECK_OK(engine_queue_set(engine, T0, &queue));
    CHECK_STR(record_hex(engine), "020580897a00000501770909084600000000");
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
              "02a680897a00000000310224020102f70b230171046d61696c01d10f0cdf020a143c1e2801036261"
              "640374616701750169036170690166016f0568656c6c6f0174");
    claimed = take(engine, T0 + 1, "q");
    CHECK_STR(record_hex(engine), "028982897a01010057000279020603617069010204036405a78eb701");
    CHECK_INT(engine_fail(engine, T0 + 2, claimed.id, claimed.token, &failure), ==,
              ENGINE_SCHEDULED);
    CHECK_STR(record_hex(engine), "020584897a010004000101036e6574086e6f20726f757465120001020b");
    engine_tick(engine, T0 + 7, SIZE_MAX);
    claimed = take(engine, T0 + 7, "q");
    failure.dead = true;
    CHECK_INT(engine_fail(engine, T0 + 8, claimed.id, claimed.token, &failure), ==, ENGINE_DEAD);
    record_hex(engine);
    CHECK_INT(engine_dead_replay(engine, T0 + 9, claimed.id, &edited, slice("t")), ==,
              ENGINE_READY);
    CHECK_STR(record_hex(engine),
              "02a592897a010202067100020204bf9a0cf70f230171046d61696c0112bf0f0cdf020a143c1e2801"
              "036261640374616701750169036170690166016f0665646974656401740400010e036e6574086e6f"
              "20726f75746504000202036e6574086e6f20726f757465320027020004020102");
    claimed = take(engine, T0 + 9, "q");
    record_hex(engine);
    CHECK_OK(engine_ack(engine, T0 + 10, claimed.id, claimed.token, slice("fine")));
    CHECK_STR(record_hex(engine), "020594897a0104620083030102a19c010966696e65");
    CHECK_OK(engine_purge(engine, T0 + 10, claimed.id));
    CHECK_STR(record_hex(engine), "020594897a01040300");
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
              "020580897a0000080173092a202a202a202a202a03555443020300c1b80200162102000011000171"
              "046d61696c0101000568656c6c6f");
    CHECK_INT(engine_tick(engine, T0 + 60000, SIZE_MAX), ==, 0);
    CHECK_STR(record_hex(engine),
              "02a6c0b281010000000031022402010211000171046d61696c0101000568656c6c6f090173c1b802"
              "02");
    CHECK_INT(engine_bulk_begin(engine, T0, &filter, ENGINE_ACTION_CANCEL, &id), ==, 1);
    CHECK_STR(record_hex(engine), "0206c0b2810101010b02030000010101");
    CHECK_INT(engine_tick(engine, T0, SIZE_MAX), ==, 0);
    CHECK_STR(record_hex(engine), "0205c0b2810102038701a19c010c000100");
    CHECK_OK(engine_bulk_drop(engine, T0, id));
    CHECK_OK(engine_schedule_drop(engine, T0, slice("s")));
    CHECK_STR(record_hex(engine), "0205c0b2810102030d000a0173");
    engine_close(engine);
}

/* The example of docs/formats/engine.md. */
TEST(the_records_in_the_document_are_those_of_a_jobs_life)
{
    const int64_t now_ms = INT64_C(1800000000000);
    struct engine *engine = helper_open();
    struct engine_claim_spec claim = {.queue = slice("work"), .count = 1, .lease_ms = 30000};
    struct engine_job_spec spec = {
        .queue = slice("work"),
        .kind = slice("mail"),
        .payload = slice("hi"),
        .idempotent = true,
        .retry = {.attempts_max = 5, .backoff_ms = 1000, .backoff_ms_max = 60000},
        .priority = 3,
        .unique_key = slice("u1"),
        .limit_keys = {slice("acme")},
        .limit_key_count = 1,
        .fairness_key = slice("acme")};
    struct engine_claimed claimed;

    engine_skip(engine, 300000);
    CHECK_INT(put(engine, now_ms, &spec), ==, 300001);
    CHECK_STR(record_hex(engine), "02a680c0e285e368e0a71200bfcf24bfcf24"
                                  "3102240201020b2304776f726b046d61696c"
                                  "070605e807e0d403027531"
                                  "0461636d65026869");
    CHECK_INT(engine_claim(engine, now_ms + 5, &claim, &claimed), ==, 1);
    CHECK_STR(record_hex(engine), "02898ac0e285e368e1a71201bfcf24570002e1d40302");
    CHECK_OK(engine_ack(engine, now_ms + 9, claimed.id, claimed.token, slice("ok")));
    CHECK_STR(record_hex(engine), "020592c0e285e368e1a7120062008108a19c01056f6b");
    engine_close(engine);
}

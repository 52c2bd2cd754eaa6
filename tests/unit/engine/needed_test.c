/* needed_test.c - which jobs still need a record, and what names in slices say. */
#include <stdio.h>
#include <stdlib.h>

#include "unit/engine/helper.h"

struct copy {
    void *bytes;
    size_t count;
};

static struct copy log_at(struct engine *engine, uint64_t position)
{
    struct copy copy;
    const void *bytes;

    engine_record(engine, &bytes, &copy.count);
    copy.bytes = malloc(copy.count);
    CHECK(copy.count > 0 && copy.bytes != NULL);
    memcpy(copy.bytes, bytes, copy.count);
    engine_logged(engine, position);
    return copy;
}

static int needed_count(struct engine *engine, struct copy copy, uint64_t position)
{
    struct engine_needed_cursor cursor = {0};
    struct engine_needed needed;
    int count = 0;
    while (engine_record_needed(engine, copy.bytes, copy.count, position, &cursor, &needed) == 1) {
        count++;
    }
    return count;
}

static bool equals(struct engine_slice one, const char *text)
{
    return one.count == strlen(text) && memcmp(one.at, text, one.count) == 0;
}

TEST(a_record_is_needed_by_the_jobs_whose_payload_or_result_is_only_there)
{
    struct engine *engine = helper_open();
    struct engine *other = helper_open();
    struct engine_job_spec spec = job_spec("q");
    struct engine_needed_cursor cursor = {0};
    struct engine_needed needed;
    struct engine_claimed claimed;
    struct copy first, second, third;

    spec.trace = slice("trace");
    for (int i = 0; i < 4; i++) put(engine, T0, &spec);
    first = log_at(engine, 1);
    CHECK_INT(needed_count(engine, first, 1), ==, 4);
    CHECK_INT(needed_count(engine, first, 2), ==, 0);
    for (int i = 0; i < 2; i++) {
        claimed = take(engine, T0, "q");
        CHECK_OK(engine_ack(engine, T0, claimed.id, claimed.token, slice("fine")));
    }
    second = log_at(engine, 2);
    CHECK_OK(engine_purge(engine, T0, 1));
    engine_logged(engine, 3);
    CHECK_INT(needed_count(engine, first, 1), ==, 3);
    /* Who cleans from the middle finds the result alone. */
    CHECK_INT(needed_count(engine, second, 2), ==, 1);
    CHECK_INT(engine_record_needed(engine, second.bytes, second.count, 2, &cursor, &needed), ==, 1);
    CHECK(needed.id == 2 && needed.payload.at == NULL && needed.payload_position == 1);
    CHECK(needed.result_position == 2 && needed.result_bytes == 4);
    /* The rest goes into one record, which is enough. */
    memset(&cursor, 0, sizeof cursor);
    while (engine_record_needed(engine, first.bytes, first.count, 1, &cursor, &needed) == 1) {
        CHECK(equals(needed.payload, "hello") && equals(needed.trace, "trace"));
        CHECK_INT(needed.result_bytes, ==, needed.id == 2 ? 4 : 0);
        CHECK_OK(engine_relog(engine, T0, needed.id, needed.payload, needed.trace,
                              slice(needed.id == 2 ? "fine" : "")));
    }
    third = log_at(engine, 4);
    CHECK_INT(needed_count(engine, first, 1), ==, 0);
    CHECK_INT(needed_count(engine, second, 2), ==, 0);
    CHECK_INT(needed_count(engine, third, 4), ==, 3);
    CHECK_OK(engine_apply(other, third.bytes, third.count, 4));
    CHECK(state_sum(engine) == state_sum(other));
    memset(&cursor, 0, sizeof cursor);
    CHECK_INT(engine_record_needed(engine, first.bytes, first.count - 1, 1, &cursor, &needed), ==,
              -EBADMSG);
    free(first.bytes);
    free(second.bytes);
    free(third.bytes);
    engine_close(engine);
    engine_close(other);
}

TEST(of_two_payloads_of_a_job_in_one_record_the_last_is_needed)
{
    struct engine *engine = helper_open();
    struct engine *other = helper_open();
    struct engine_job_spec spec = job_spec("q");
    struct engine_slice edited = slice("HELLO");
    struct engine_needed_cursor cursor = {0};
    struct engine_needed needed;
    struct engine_claimed claimed;
    struct engine_found found;
    struct copy record;

    put(engine, T0, &spec);
    claimed = take(engine, T0, "q");
    CHECK_INT(fail(engine, T0, &claimed, "bad"), ==, ENGINE_DEAD);
    CHECK_INT(engine_dead_replay(engine, T0, 1, &edited, slice("its trace")), ==, ENGINE_READY);
    record = log_at(engine, 1);
    CHECK_INT(needed_count(engine, record, 1), ==, 1);
    CHECK_INT(engine_record_needed(engine, record.bytes, record.count, 1, &cursor, &needed), ==, 1);
    CHECK(equals(needed.payload, "HELLO") && equals(needed.trace, "its trace"));
    CHECK_OK(engine_record_find(record.bytes, record.count, 1, &found));
    CHECK(equals(found.payload, "HELLO") && equals(found.trace, "its trace"));
    CHECK_OK(engine_apply(other, record.bytes, record.count, 1));
    CHECK(state_sum(engine) == state_sum(other));
    free(record.bytes);
    engine_close(engine);
    engine_close(other);
}

TEST(the_record_of_an_edited_dead_letter_is_enough_without_the_older_ones)
{
    struct engine *engine = helper_open();
    struct engine *other = helper_open();
    struct engine_job_spec spec = job_spec("q");
    struct engine_slice edited = slice("edited");
    struct engine_error errors[ENGINE_ERRORS_KEPT];
    struct engine_claimed claimed;

    spec.unique_key = slice("u");
    put(engine, T0, &spec);
    claimed = take(engine, T0, "q");
    CHECK_INT(fail(engine, T0, &claimed, "bad"), ==, ENGINE_DEAD);
    engine_logged(engine, 1);
    CHECK_INT(engine_dead_replay(engine, T0, 1, &edited, slice("")), ==, ENGINE_READY);
    pass_on(engine, other, 2);
    CHECK(state_sum(engine) == state_sum(other));
    CHECK_INT(engine_job_errors(other, 1, errors), ==, 1);
    check_engine(engine);
    check_engine(other);
    engine_close(engine);
    engine_close(other);
}

TEST(names_come_in_slices_of_a_few_rows)
{
    enum { NAMES = 50, BYTES = 200 };
    struct engine *engine = helper_open();
    struct engine *other = helper_open();
    struct engine_names_cursor cursor = {0};
    struct engine_filter filter = {.queue = slice("queue-3"), .states = ENGINE_LIVE_STATES};
    struct engine_cursor snapshot = {0};
    struct engine_job_spec spec = job_spec("queue-3");
    struct engine_queue_info queue_info;
    struct engine_key_info key_info;
    struct engine_schedule_info schedule_info;
    uint32_t queues = 0, keys = 0, schedules = 0;
    struct engine_bulk bulks[4];
    const void *bytes;
    unsigned slices = 0;
    size_t count;
    char name[32];
    uint64_t id;
    int more;

    for (int i = 0; i < NAMES; i++) {
        struct engine_queue_spec queue = {.overflow = ENGINE_REJECT, .depth_max = 7};
        struct engine_key_spec key = {.weight = 3};
        struct engine_schedule_spec schedule = {.cron = slice("* * * * *"),
                                                .overlap = ENGINE_OVERLAP_SKIP,
                                                .catch_up = ENGINE_CATCH_UP_ONE,
                                                .job = job_spec("q")};
        snprintf(name, sizeof name, "queue-%d", i);
        queue.name = key.name = schedule.name = slice(name);
        CHECK_OK(engine_queue_set(engine, T0, &queue));
        CHECK_OK(engine_key_set(engine, T0, &key));
        CHECK_OK(engine_schedule_set(engine, T0, &schedule));
    }
    put(engine, T0, &spec);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(engine_bulk_begin(engine, T0, &filter, ENGINE_ACTION_CANCEL, &id), ==, 1);
    }
    CHECK_INT(engine_names(engine, &cursor, BYTES, &bytes, &count), ==, -EBUSY);
    CHECK_INT(engine_cancel(engine, T0, 1), ==, ENGINE_CANCELLED);
    CHECK_OK(engine_purge(engine, T0, 1));
    engine_logged(engine, 1);
    do {
        more = engine_names(engine, &cursor, BYTES, &bytes, &count);
        CHECK_OK(more);
        CHECK_INT(count, <, BYTES + 200);
        CHECK_OK(engine_apply(other, bytes, count, 2));
        slices++;
    } while (more);
    CHECK_INT(slices, >, 3 * NAMES * 20 / BYTES);
    CHECK(state_sum(engine) == state_sum(other));
    CHECK_INT(engine_bulk_list(other, bulks, 4), ==, 3);
    while (engine_queue_next(other, &queues, &queue_info)) CHECK(queue_info.configured);
    while (engine_key_next(other, &keys, &key_info)) CHECK(key_info.configured);
    while (engine_schedule_next(other, &schedules, &schedule_info)) {}
    CHECK(queues == NAMES && keys == NAMES && schedules == NAMES);
    /* A snapshot has the same slices. */
    CHECK_INT(engine_snapshot(engine, &snapshot, BYTES, &bytes, &count), ==, 1);
    CHECK_INT(count, <, BYTES + 200);
    engine_close(engine);
    engine_close(other);
}

/* ---- Memory that runs out ---- */

/* Does it again when there was no memory: nothing has changed then. */
#define INSIST(call_)             \
    do {                          \
        r = (call_);              \
        if (r == -ENOMEM) {       \
            check_engine(engine); \
            r = (call_);          \
        }                         \
        if (r < 0) goto out;      \
    } while (0)

static int names_through(struct engine *engine, struct engine *other)
{
    struct engine_names_cursor cursor = {0};
    const void *bytes;
    size_t count;
    int r;

    do {
        INSIST(engine_names(engine, &cursor, 0, &bytes, &count));
        if (engine_apply(other, bytes, count, 3) < 0) return -ENOMEM; /* it is closed */
    } while (r == 1);
out:
    return r;
}

static int log_again(void *arg)
{
    struct engine *engine = NULL, *other = NULL;
    struct engine_key_spec key = {.name = slice("k"), .concurrency = 1};
    struct engine_job_spec spec = job_spec("q");
    struct engine_claim_spec claim = {.queue = slice("q"), .count = 1, .lease_ms = 100};
    struct engine_filter filter = {.states = ENGINE_LIVE_STATES};
    struct engine_enqueued enqueued;
    struct engine_claimed claimed;
    struct helper_sum one = {0}, two = {0};
    const void *bytes;
    size_t count;
    uint64_t id;
    int r;

    (void)arg;
    r = engine_open(&helper_config, &engine);
    if (r == 0) r = engine_open(&helper_config, &other);
    if (r < 0) goto out;
    INSIST(engine_key_set(engine, T0, &key));
    spec.limit_keys[spec.limit_key_count++] = slice("k");
    spec.order_key = slice("o");
    for (int i = 0; i < 3; i++) INSIST(engine_enqueue(engine, T0, &spec, &enqueued));
    INSIST(engine_claim(engine, T0, &claim, &claimed));
    INSIST(engine_ack(engine, T0, 1, claimed.token, slice("fine")));
    INSIST(engine_bulk_begin(engine, T0, &filter, ENGINE_ACTION_CANCEL, &id));
    engine_logged(engine, 1);
    INSIST(engine_enqueue(engine, T0, &spec, &enqueued));
    INSIST(engine_take_back(engine, T0, enqueued.id));
    for (uint64_t job = 1; job <= 3; job++) {
        INSIST(
            engine_relog(engine, T0, job, spec.payload, slice(""), slice(job == 1 ? "fine" : "")));
    }
    engine_record(engine, &bytes, &count);
    r = engine_apply(other, bytes, count, 2);
    if (r < 0) goto out;
    engine_logged(engine, 2);
    r = names_through(engine, other);
    if (r == 0) r = engine_rows(engine, helper_add_row, &one);
    if (r == 0) r = engine_rows(other, helper_add_row, &two);
    if (r < 0) goto out;
    CHECK_INT(one.count, ==, 5);
    CHECK(one.sum == two.sum && one.count == two.count);
out:
    engine_close(engine);
    engine_close(other);
    return r;
}

TEST(memory_that_runs_out_leaves_what_is_logged_again_whole)
{
    CHECK_INT(log_again(NULL), ==, 0);
    CHECK_INT(test_sweep_alloc(log_again, NULL), >, 20);
}

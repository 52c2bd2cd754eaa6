/* life_test.c - a job's life, feature by feature. */
#include "unit/engine/helper.h"

static struct engine_job_spec retried(const char *queue, uint16_t attempts_max)
{
    struct engine_job_spec spec = job_spec(queue);
    spec.idempotent = true;
    spec.retry =
        (struct engine_retry){.attempts_max = attempts_max, .backoff_ms = 10, .backoff_ms_max = 30};
    return spec;
}

TEST(a_job_is_claimed_once_and_ends_with_its_result)
{
    struct engine *engine = helper_open();
    struct engine_job_spec spec = job_spec("q");
    uint64_t id = put(engine, T0, &spec);
    struct engine_claimed claimed = take(engine, T0 + 1, "q");
    struct engine_job job;

    CHECK_INT(claimed.id, ==, id);
    CHECK_INT(claimed.attempt, ==, 1);
    CHECK_INT(claimed.lease_until_ms, ==, T0 + 101);
    CHECK_INT(take(engine, T0 + 1, "q").id, ==, 0);
    CHECK_OK(engine_ack(engine, T0 + 2, id, claimed.token, slice("fine")));
    engine_logged(engine, 44);
    CHECK_OK(engine_job_get(engine, id, &job));
    CHECK_INT(job.state, ==, ENGINE_DONE);
    CHECK_INT(job.result_bytes, ==, 4);
    CHECK_INT(job.result_position, ==, 44);
    CHECK_INT(job.position, ==, 44);
    CHECK_INT(ack(engine, T0 + 3, &claimed), ==, -ESTALE);
    CHECK_INT(engine_ack(engine, T0 + 3, 99, 1, slice("")), ==, -ENOENT);
    engine_close(engine);
}

TEST(higher_priority_comes_first_then_who_came_first)
{
    struct engine *engine = helper_open();
    struct engine_job_spec spec = job_spec("q");
    uint64_t ids[4];

    for (int i = 0; i < 4; i++) {
        spec.priority = (uint8_t)(i % 2);
        ids[i] = put(engine, T0, &spec);
    }
    CHECK_INT(take(engine, T0, "q").id, ==, ids[1]);
    CHECK_INT(take(engine, T0, "q").id, ==, ids[3]);
    CHECK_INT(take(engine, T0, "q").id, ==, ids[0]);
    CHECK_INT(take(engine, T0, "q").id, ==, ids[2]);
    engine_close(engine);
}

TEST(a_failed_job_waits_twice_as_long_each_time_and_dies_after_its_attempts)
{
    static const int waits_ms[] = {10, 20, 30};
    struct engine *engine = helper_open();
    struct engine_job_spec spec = retried("q", 4);
    uint64_t id = put(engine, T0, &spec);
    struct engine_error errors[ENGINE_ERRORS_KEPT];
    int64_t now_ms = T0;

    for (int i = 0; i < 3; i++) {
        struct engine_claimed claimed = take(engine, now_ms, "q");
        CHECK_INT(claimed.attempt, ==, i + 1);
        CHECK_INT(fail(engine, now_ms, &claimed, "net"), ==, ENGINE_SCHEDULED);
        CHECK_INT(engine_next_ms(engine), ==, now_ms + waits_ms[i]);
        now_ms += waits_ms[i];
        CHECK_INT(engine_tick(engine, now_ms - 1, SIZE_MAX), ==, 0);
        CHECK_INT(take(engine, now_ms - 1, "q").id, ==, 0);
        CHECK_INT(engine_tick(engine, now_ms, SIZE_MAX), ==, 0);
    }
    {
        struct engine_claimed claimed = take(engine, now_ms, "q");
        CHECK_INT(fail(engine, now_ms, &claimed, "net"), ==, ENGINE_DEAD);
    }
    CHECK_INT(engine_job_errors(engine, id, errors), ==, 4);
    CHECK_INT(errors[3].run, ==, 4);
    CHECK(memcmp(errors[3].class.at, "net", 3) == 0);
    engine_close(engine);
}

TEST(an_error_of_a_class_that_is_never_retried_is_the_end)
{
    struct engine *engine = helper_open();
    struct engine_job_spec spec = retried("q", 9);
    struct engine_claimed claimed;

    spec.retry.never[0] = slice("bad");
    spec.retry.never_count = 1;
    put(engine, T0, &spec);
    claimed = take(engine, T0, "q");
    CHECK_INT(fail(engine, T0, &claimed, "bad"), ==, ENGINE_DEAD);
    engine_close(engine);
}

TEST(a_lost_lease_is_an_attempt_and_its_token_is_stale_for_ever)
{
    struct engine *engine = helper_open();
    struct engine_job_spec spec = retried("q", 2);
    uint64_t id = put(engine, T0, &spec);
    struct engine_claimed first = take(engine, T0, "q");
    struct engine_claimed second;
    struct engine_renewed renewed;

    CHECK_OK(engine_renew(engine, T0 + 90, id, first.token, 100, &renewed));
    CHECK_INT(renewed.lease_until_ms, ==, T0 + 190);
    engine_tick(engine, T0 + 189, SIZE_MAX);
    CHECK_INT(state_of(engine, id), ==, ENGINE_LEASED);
    engine_tick(engine, T0 + 190, SIZE_MAX);
    engine_tick(engine, T0 + 200, SIZE_MAX);
    second = take(engine, T0 + 200, "q");
    CHECK_INT(second.id, ==, id);
    CHECK_INT(second.attempt, ==, 2);
    CHECK_INT(second.token, >, first.token);
    CHECK_INT(ack(engine, T0 + 201, &first), ==, -ESTALE);
    CHECK_INT(engine_renew(engine, T0 + 201, id, first.token, 100, &renewed), ==, -ESTALE);
    engine_tick(engine, T0 + 300, SIZE_MAX);
    CHECK_INT(state_of(engine, id), ==, ENGINE_DEAD); /* it killed two workers */
    engine_close(engine);
}

TEST(a_job_that_is_not_idempotent_is_never_begun_twice)
{
    struct engine *engine = helper_open();
    struct engine_job_spec spec = job_spec("q");
    struct engine_enqueued enqueued;
    uint64_t id = put(engine, T0, &spec);

    take(engine, T0, "q");
    engine_tick(engine, T0 + 100, SIZE_MAX);
    CHECK_INT(state_of(engine, id), ==, ENGINE_DEAD);
    spec.retry.attempts_max = 2;
    CHECK_INT(engine_enqueue(engine, T0, &spec, &enqueued), ==, -EINVAL);
    CHECK_CONTAINS(engine_why(engine), "idempotent");
    engine_close(engine);
}

TEST(a_timeout_bounds_an_attempt_however_often_it_is_renewed)
{
    struct engine *engine = helper_open();
    struct engine_job_spec spec = retried("q", 1);
    struct engine_error errors[ENGINE_ERRORS_KEPT];
    struct engine_renewed renewed;
    struct engine_claimed claimed;
    uint64_t id;

    spec.timeout_ms = 150;
    id = put(engine, T0, &spec);
    claimed = take(engine, T0, "q");
    CHECK_OK(engine_renew(engine, T0 + 90, id, claimed.token, 100, &renewed));
    CHECK_INT(renewed.lease_until_ms, ==, T0 + 150);
    engine_tick(engine, T0 + 150, SIZE_MAX);
    CHECK_INT(engine_job_errors(engine, id, errors), ==, 1);
    CHECK(memcmp(errors[0].class.at, "timeout", 7) == 0);
    engine_close(engine);
}

TEST(release_gives_the_attempt_back_and_snooze_waits)
{
    struct engine *engine = helper_open();
    struct engine_job_spec spec = job_spec("q");
    uint64_t id = put(engine, T0, &spec);
    struct engine_claimed claimed = take(engine, T0, "q");

    CHECK_OK(engine_release(engine, T0, id, claimed.token, 0));
    claimed = take(engine, T0, "q");
    CHECK_INT(claimed.attempt, ==, 1);
    CHECK_INT(claimed.run, ==, 2);
    CHECK_OK(engine_release(engine, T0, id, claimed.token, 50));
    CHECK_INT(state_of(engine, id), ==, ENGINE_SCHEDULED);
    engine_tick(engine, T0 + 50, SIZE_MAX);
    CHECK_INT(take(engine, T0 + 50, "q").attempt, ==, 1);
    engine_close(engine);
}

TEST(cancel_ends_what_waits_and_tells_who_works)
{
    struct engine *engine = helper_open();
    struct engine_job_spec spec = retried("q", 5);
    uint64_t waiting, working;
    struct engine_claimed claimed;
    struct engine_renewed renewed;

    working = put(engine, T0, &spec);
    claimed = take(engine, T0, "q");
    waiting = put(engine, T0, &spec);
    CHECK_INT(engine_cancel(engine, T0, waiting), ==, ENGINE_CANCELLED);
    CHECK_INT(take(engine, T0, "q").id, ==, 0);
    CHECK_INT(engine_cancel(engine, T0, working), ==, ENGINE_LEASED);
    CHECK_OK(engine_renew(engine, T0, working, claimed.token, 100, &renewed));
    CHECK_INT(renewed.orders, ==, ENGINE_GO_CANCELLED);
    CHECK_INT(fail(engine, T0, &claimed, "stopped"), ==, ENGINE_CANCELLED);
    CHECK_INT(engine_cancel(engine, T0, working), ==, -EBUSY);
    engine_close(engine);
}

TEST(a_job_that_is_not_begun_in_time_expires)
{
    struct engine *engine = helper_open();
    struct engine_job_spec spec = job_spec("q");
    uint64_t id;

    spec.expires_ms = T0 + 10;
    id = put(engine, T0, &spec);
    engine_tick(engine, T0 + 9, SIZE_MAX);
    CHECK_INT(state_of(engine, id), ==, ENGINE_READY);
    engine_tick(engine, T0 + 10, SIZE_MAX);
    CHECK_INT(state_of(engine, id), ==, ENGINE_EXPIRED);
    engine_close(engine);
}

TEST(what_has_ended_is_kept_by_age_and_by_count)
{
    struct engine_config config = helper_config;
    struct engine *engine;
    struct engine_job_spec spec = job_spec("q");
    struct engine_figures figures;

    config.history_count_max = 3;
    CHECK_OK(engine_open(&config, &engine));
    for (int i = 0; i < 5; i++) {
        struct engine_claimed claimed;
        put(engine, T0 + i, &spec);
        claimed = take(engine, T0 + i, "q");
        CHECK_OK(ack(engine, T0 + i, &claimed));
    }
    CHECK_INT(state_of(engine, 2), ==, ENGINE_NO_JOB);
    CHECK_INT(state_of(engine, 3), ==, ENGINE_DONE);
    engine_tick(engine, T0 + 3 + config.history_ms, SIZE_MAX);
    CHECK_OK(engine_figures(engine, slice("q"), &figures));
    CHECK_INT(figures.by_state[ENGINE_DONE], ==, 1);
    CHECK_INT(figures.done, ==, 5);
    engine_close(engine);
}

TEST(time_given_back_does_not_turn_the_engine_back)
{
    struct engine *engine = helper_open();
    struct engine *other = helper_open();
    struct engine_job_spec spec = job_spec("q");
    struct engine_job job;
    uint64_t id;

    put(engine, T0 + 500, &spec);
    id = put(engine, T0, &spec);
    CHECK_OK(engine_job_get(engine, id, &job));
    CHECK_INT(job.created_ms, ==, T0 + 500);
    pass_on(engine, other, 1);
    CHECK_INT(engine_now_ms(other), ==, T0 + 500);
    CHECK_INT(take(other, T0, "q").lease_until_ms, ==, T0 + 600);
    engine_close(engine);
    engine_close(other);
}

TEST(tokens_and_ids_rise_across_a_restart)
{
    struct engine *engine = helper_open();
    struct engine *other = helper_open();
    struct engine_job_spec spec = job_spec("q");
    struct engine_claimed claimed;
    uint64_t id = put(engine, T0, &spec);

    claimed = take(engine, T0, "q");
    CHECK_OK(ack(engine, T0, &claimed));
    CHECK_OK(engine_purge(engine, T0, id));
    pass_on(engine, other, 1);
    CHECK_INT(put(other, T0, &spec), ==, id + 1);
    CHECK_INT(take(other, T0, "q").token, ==, claimed.token + 1);
    engine_close(engine);
    engine_close(other);
}

TEST(a_dead_letter_is_listed_edited_replayed_and_purged)
{
    struct engine *engine = helper_open();
    struct engine_job_spec spec = job_spec("q");
    struct engine_slice edited = slice("better");
    struct engine_claimed claimed;
    struct engine_job job;
    uint64_t ids[4];

    put(engine, T0, &spec);
    put(engine, T0, &spec);
    for (int i = 0; i < 2; i++) {
        claimed = take(engine, T0, "q");
        CHECK_INT(fail(engine, T0, &claimed, "net"), ==, ENGINE_DEAD);
    }
    CHECK_INT(engine_dead_list(engine, slice("q"), 0, ids, 4), ==, 2);
    CHECK_INT(engine_dead_list(engine, slice("q"), ids[0], ids + 2, 2), ==, 1);
    CHECK_INT(ids[2], ==, ids[1]);
    CHECK_INT(engine_dead_replay(engine, T0, ids[0], &edited, slice("")), ==, ENGINE_READY);
    engine_logged(engine, 5);
    CHECK_OK(engine_job_get(engine, ids[0], &job));
    CHECK_INT(job.payload_bytes, ==, 6);
    CHECK_INT(job.position, ==, 5);
    CHECK_INT(job.attempt, ==, 0);
    CHECK_OK(engine_purge(engine, T0, ids[1]));
    CHECK_INT(engine_purge(engine, T0, ids[0]), ==, -EBUSY);
    CHECK_INT(engine_dead_list(engine, slice("q"), 0, ids, 4), ==, 0);
    engine_close(engine);
}

TEST(a_unique_key_keeps_others_out_and_a_replay_too)
{
    struct engine *engine = helper_open();
    struct engine_job_spec spec = job_spec("q");
    struct engine_enqueued enqueued;
    struct engine_claimed claimed;
    uint64_t first;

    spec.unique_key = slice("user-7");
    first = put(engine, T0, &spec);
    CHECK_OK(engine_enqueue(engine, T0, &spec, &enqueued));
    CHECK(enqueued.duplicate && enqueued.id == first);
    claimed = take(engine, T0, "q");
    CHECK_INT(fail(engine, T0, &claimed, "net"), ==, ENGINE_DEAD);
    CHECK_OK(engine_enqueue(engine, T0, &spec, &enqueued));
    CHECK(!enqueued.duplicate);
    CHECK_INT(engine_dead_replay(engine, T0, first, NULL, slice("")), ==, -EEXIST);
    CHECK_INT(engine_cancel(engine, T0, enqueued.id), ==, ENGINE_CANCELLED);
    CHECK_INT(engine_dead_replay(engine, T0, first, NULL, slice("")), ==, ENGINE_READY);
    engine_close(engine);
}

TEST(an_idempotency_key_answers_with_the_first_job_as_long_as_its_window)
{
    struct engine *engine = helper_open();
    struct engine_job_spec spec = job_spec("q");
    struct engine_enqueued enqueued;
    struct engine_claimed claimed;
    uint64_t first;

    spec.idempotency_key = slice("order-1");
    spec.idempotency_ms = helper_config.history_ms * 2;
    first = put(engine, T0, &spec);
    claimed = take(engine, T0, "q");
    CHECK_OK(ack(engine, T0, &claimed));
    /* It is kept longer than other history, so that it can answer. */
    engine_tick(engine, T0 + spec.idempotency_ms - 1, SIZE_MAX);
    CHECK_OK(engine_enqueue(engine, T0 + spec.idempotency_ms - 1, &spec, &enqueued));
    CHECK(enqueued.duplicate && enqueued.id == first);
    CHECK_OK(engine_enqueue(engine, T0 + spec.idempotency_ms, &spec, &enqueued));
    CHECK(!enqueued.duplicate);
    engine_close(engine);
}

TEST(a_payload_is_found_in_the_record_that_holds_it_and_moves_with_a_relog)
{
    struct engine *engine = helper_open();
    struct engine *other = helper_open();
    struct engine_job_spec spec = retried("q", 3);
    struct engine_claimed claimed;
    struct engine_found found;
    struct engine_job job;
    const void *bytes;
    size_t count;
    uint64_t id;

    spec.trace = slice("00-trace");
    id = put(engine, T0, &spec);
    engine_record(engine, &bytes, &count);
    CHECK_OK(engine_record_find(bytes, count, id, &found));
    CHECK(found.payload.count == 5 && memcmp(found.payload.at, "hello", 5) == 0);
    CHECK(found.trace.count == 8 && memcmp(found.trace.at, "00-trace", 8) == 0);
    CHECK_INT(engine_record_find(bytes, count, id + 1, &found), ==, -ENOENT);
    engine_logged(engine, 3);
    claimed = take(engine, T0, "q");
    fail(engine, T0, &claimed, "net");
    engine_logged(engine, 4);
    CHECK_INT(engine_relog(engine, T0, id, slice("hell"), spec.trace, slice("")), ==, -EINVAL);
    CHECK_OK(engine_relog(engine, T0, id, spec.payload, spec.trace, slice("")));
    /* The record alone is enough: the old ones can go. */
    CHECK_INT(pass_on(engine, other, 9), >, 0);
    CHECK_OK(engine_job_get(engine, id, &job));
    CHECK_INT(job.position, ==, 9);
    CHECK(state_sum(engine) == state_sum(other));
    check_engine(engine);
    engine_close(engine);
    engine_close(other);
}

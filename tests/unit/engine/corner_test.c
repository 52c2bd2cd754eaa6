/* corner_test.c - what random runs hardly ever meet: ends that follow from ends, the log behind a
 * snapshot, records that nobody wrote, wakes that nobody asks for twice. */
#include <stdlib.h>

#include "engine/codec.h"
#include "unit/engine/helper.h"

/* ---- Ends that follow from ends ---- */

TEST(a_member_that_ends_its_batch_lets_its_successor_go_on_without_history)
{
    struct engine_config config = helper_config;
    struct engine_job_spec spec = job_spec("q");
    struct engine *engine;
    uint64_t batch, member, next;

    config.history_count_max = 0;
    CHECK_OK(engine_open(&config, &engine));
    spec.gathers = ENGINE_WHEN_DONE;
    batch = put(engine, T0, &spec);
    spec.gathers = ENGINE_GATHERS_NOTHING;
    spec.batch = batch;
    spec.order_key = slice("account");
    member = put(engine, T0, &spec);
    spec.batch = 0;
    next = put(engine, T0, &spec);
    CHECK_INT(state_of(engine, next), ==, ENGINE_HELD);
    CHECK_OK(engine_batch_seal(engine, T0, batch));
    /* The member's end is the batch's: with it the queue's history is trimmed. */
    CHECK_INT(engine_cancel(engine, T0, member), ==, ENGINE_CANCELLED);
    CHECK_INT(state_of(engine, member), ==, ENGINE_NO_JOB);
    CHECK_INT(state_of(engine, batch), ==, ENGINE_DEAD);
    CHECK_INT(state_of(engine, next), ==, ENGINE_READY);
    check_engine(engine);
    engine_close(engine);
}

/* ---- The log behind a snapshot ---- */

TEST(a_snapshot_without_a_bound_is_one_slice)
{
    struct engine *engine = helper_open();
    struct engine *other = helper_open();
    struct engine_job_spec spec = job_spec("q");
    struct engine_cursor cursor = {0};
    const void *bytes;
    size_t count;

    for (int i = 0; i < 100; i++) put(engine, T0, &spec);
    pass_on(engine, NULL, 1);
    CHECK_INT(engine_snapshot(engine, &cursor, SIZE_MAX, &bytes, &count), ==, 0);
    CHECK_OK(engine_apply(other, bytes, count, 1));
    CHECK(state_sum(engine) == state_sum(other));
    engine_close(engine);
    engine_close(other);
}

enum { KEPT_MAX = 16 };
struct kept {
    void *bytes[KEPT_MAX];
    size_t counts[KEPT_MAX];
    unsigned count;
};

static void keep(struct engine *engine, struct kept *kept)
{
    const void *bytes;
    size_t count;

    engine_record(engine, &bytes, &count);
    CHECK(count > 0 && kept->count < KEPT_MAX);
    kept->bytes[kept->count] = malloc(count);
    CHECK(kept->bytes[kept->count] != NULL);
    memcpy(kept->bytes[kept->count], bytes, count);
    kept->counts[kept->count++] = count;
    engine_logged(engine, 10 + kept->count);
}

/* Another engine from a snapshot that is taken now, and the records kept since before it. */
static struct engine *restore(struct engine *engine, struct kept *kept)
{
    struct engine *other = helper_open();
    struct engine_cursor cursor = {0};
    const void *bytes;
    size_t count;
    int more;

    do {
        more = engine_snapshot(engine, &cursor, SIZE_MAX, &bytes, &count);
        CHECK_OK(more);
        CHECK_OK(engine_apply(other, bytes, count, 1));
    } while (more);
    for (unsigned i = 0; i < kept->count; i++) {
        CHECK_OK(engine_apply(other, kept->bytes[i], kept->counts[i], 11 + i));
        free(kept->bytes[i]);
    }
    return other;
}

TEST(a_unique_key_is_not_given_twice_after_a_snapshot_and_its_log)
{
    struct engine *engine = helper_open();
    struct engine_job_spec spec = job_spec("q");
    struct engine_enqueued enqueued;
    struct engine_renewed renewed;
    struct engine_claimed claimed;
    struct engine *other;
    struct kept kept = {0};
    uint64_t first, second;

    spec.unique_key = slice("u");
    first = put(engine, T0, &spec);
    claimed = take(engine, T0, "q");
    CHECK_INT(fail(engine, T0, &claimed, "bad"), ==, ENGINE_DEAD);
    second = put(engine, T0, &spec);
    claimed = take(engine, T0, "q");
    CHECK_INT(claimed.id, ==, second);
    pass_on(engine, NULL, 1);
    /* From here on the log is kept: the second holds the key, ends, and the first has it again. */
    CHECK_OK(engine_renew(engine, T0 + 1, second, claimed.token, 200, &renewed));
    keep(engine, &kept);
    CHECK_OK(ack(engine, T0 + 2, &claimed));
    keep(engine, &kept);
    CHECK_INT(engine_dead_replay(engine, T0 + 3, first, NULL, slice("")), ==, ENGINE_READY);
    keep(engine, &kept);
    other = restore(engine, &kept);
    CHECK(state_sum(engine) == state_sum(other));
    check_engine(other);
    CHECK_OK(engine_enqueue(other, T0 + 4, &spec, &enqueued));
    CHECK(enqueued.duplicate);
    CHECK_INT(enqueued.id, ==, first);
    engine_close(engine);
    engine_close(other);
}

TEST(a_turn_that_was_taken_stays_taken_after_a_snapshot_and_its_log)
{
    struct engine_config config = helper_config;
    struct engine_job_spec spec = job_spec("q");
    struct engine_claimed claimed;
    struct engine *engine, *other;
    struct kept kept = {0};

    config.history_count_max = 0;
    CHECK_OK(engine_open(&config, &engine));
    spec.fairness_key = slice("tenant");
    put(engine, T0, &spec);
    put(engine, T0, &spec);
    pass_on(engine, NULL, 1);
    put(engine, T0, &spec);
    keep(engine, &kept);
    claimed = take(engine, T0, "q");
    keep(engine, &kept);
    CHECK_OK(ack(engine, T0, &claimed));
    keep(engine, &kept);
    CHECK_INT(state_of(engine, claimed.id), ==, ENGINE_NO_JOB);
    /* The job that took the turn is gone by now, and its operation says nothing any more. */
    other = restore(engine, &kept);
    CHECK(state_sum(engine) == state_sum(other));
    engine_close(engine);
    engine_close(other);
}

/* ---- Wakes ---- */

static unsigned wakes(struct engine *engine)
{
    struct engine_slice queue;
    unsigned count = 0;
    while (engine_next_wake(engine, &queue)) count++;
    return count;
}

TEST(a_queue_with_a_rate_is_woken_when_its_next_token_comes)
{
    struct engine *engine = helper_open();
    struct engine_job_spec spec = job_spec("q");
    struct engine_queue_spec queue = {
        .name = slice("q"), .overflow = ENGINE_REJECT, .rate = {1, 50, 1}};
    struct engine_claimed claimed;

    CHECK_OK(engine_queue_set(engine, T0, &queue));
    put(engine, T0, &spec);
    put(engine, T0, &spec);
    claimed = take(engine, T0, "q");
    CHECK_OK(ack(engine, T0, &claimed));
    wakes(engine);
    CHECK_INT(take(engine, T0 + 1, "q").id, ==, 0);
    CHECK_INT(engine_next_ms(engine), ==, T0 + 50);
    CHECK_INT(engine_tick(engine, T0 + 49, SIZE_MAX), ==, 0);
    CHECK_INT(wakes(engine), ==, 0);
    CHECK_INT(engine_tick(engine, T0 + 50, SIZE_MAX), ==, 0);
    CHECK_INT(wakes(engine), ==, 1);
    CHECK_INT(take(engine, T0 + 50, "q").id, ==, 2);
    CHECK_INT(wakes(engine), ==, 0);
    engine_close(engine);
}

/* ---- Memory ---- */

TEST(a_large_payload_that_was_logged_takes_no_memory_from_the_bound)
{
    struct engine_config config = helper_config;
    struct engine_job_spec spec = job_spec("q");
    struct engine_enqueued enqueued;
    struct engine *engine;
    char *payload = calloc(1, 4 << 20);

    CHECK(payload != NULL);
    config.payload_bytes_max = 4 << 20;
    config.memory_bytes_max = 2 << 20;
    CHECK_OK(engine_open(&config, &engine));
    spec.payload = (struct engine_slice){payload, 4 << 20};
    CHECK_OK(engine_enqueue(engine, T0, &spec, &enqueued));
    engine_logged(engine, 1);
    spec.payload = slice("small");
    CHECK_OK(engine_enqueue(engine, T0, &spec, &enqueued));
    engine_close(engine);
    free(payload);
}

TEST(a_lease_that_is_lost_is_counted_once_whatever_memory_there_is)
{
    struct engine *engine = helper_open();
    struct engine_job_spec spec = job_spec("q");
    struct engine_figures figures;
    int r;

    put(engine, T0, &spec);
    CHECK_INT(take(engine, T0, "q").id, ==, 1);
    test_fail_alloc_at(1);
    r = engine_tick(engine, T0 + 100, SIZE_MAX);
    test_fail_alloc_at(0);
    CHECK_INT(r, ==, -ENOMEM);
    CHECK_OK(engine_tick(engine, T0 + 100, SIZE_MAX));
    CHECK_OK(engine_figures(engine, slice("q"), &figures));
    CHECK_INT(figures.lost, ==, 1);
    engine_close(engine);
}

/* ---- Records that nobody wrote ---- */

TEST(a_record_with_an_id_or_a_token_that_is_still_to_come_is_refused)
{
    static const struct {
        uint64_t id, token;
        uint8_t state;
        int answer;
    } cases[] = {
        {5, 7, ENGINE_LEASED, 0},
        {6, 7, ENGINE_LEASED, -EBADMSG},
        {5, 8, ENGINE_LEASED, -EBADMSG},
        {5, 8, ENGINE_READY, 0}, /* no token there, but a place in its lane */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static const unsigned char policy[] = {0};
        unsigned char bytes[1000];
        struct writer writer = {bytes, 0, sizeof bytes};
        struct record_head head = {.now_ms = T0, .last_id = 5, .last_token = 7, .last_mark = 9};
        struct op op = {.type = OP_JOB};
        struct engine *engine = helper_open();

        op.job = (struct op_job){.set = {.id = cases[i].id,
                                         .state = cases[i].state,
                                         .mark = cases[i].token,
                                         .when_ms = T0},
                                 .queue = slice("q"),
                                 .kind = slice("k"),
                                 .policy = {policy, sizeof policy},
                                 .position = 1};
        head_write(&writer, &head);
        op_write(&writer, &op);
        CHECK_INT(engine_apply(engine, bytes, writer.count, 1), ==, cases[i].answer);
        engine_close(engine);
    }
}

TEST(a_batch_inside_a_batch_does_not_end_in_a_chain)
{
    enum { DEPTH = 5000 };
    static const unsigned char policy[] = {0};
    struct engine *engine = helper_open();
    unsigned char bytes[1000];

    for (uint64_t id = 1; id <= DEPTH; id++) {
        struct writer writer = {bytes, 0, sizeof bytes};
        struct record_head head = {.now_ms = T0, .last_id = DEPTH};
        struct op op = {.type = OP_JOB};

        op.job = (struct op_job){
            .set = {.id = id, .state = ENGINE_HELD, .flags = 2 | 8, .mark = 1, .when_ms = T0},
            .queue = slice("q"),
            .kind = slice("k"),
            .policy = {policy, sizeof policy},
            .batch = id + 1,
            .position = 1};
        head_write(&writer, &head);
        op_write(&writer, &op);
        CHECK_OK(engine_apply(engine, bytes, writer.count, 1));
    }
    CHECK_INT(engine_cancel(engine, T0, 1), ==, ENGINE_CANCELLED);
    check_engine(engine);
    engine_close(engine);
}

/* ---- Late ticks ---- */

TEST(a_job_that_has_expired_is_not_begun_though_no_tick_came)
{
    struct engine_config config = helper_config;
    struct engine_job_spec spec = job_spec("q");
    struct engine_figures figures;
    struct engine *engine;

    config.history_count_max = 0;
    CHECK_OK(engine_open(&config, &engine));
    spec.expires_ms = T0 + 10;
    put(engine, T0, &spec);
    put(engine, T0, &spec);
    CHECK_INT(take(engine, T0 + 9, "q").id, ==, 1);
    CHECK_INT(take(engine, T0 + 10, "q").id, ==, 0);
    CHECK_OK(engine_figures(engine, slice("q"), &figures));
    CHECK_INT(figures.expired, ==, 1);
    CHECK_INT(figures.by_state[ENGINE_LEASED], ==, 1);
    /* The queue goes with its last job. */
    spec.queue = slice("other");
    spec.expires_ms = T0 + 20;
    put(engine, T0 + 10, &spec);
    wakes(engine);
    CHECK_INT(take(engine, T0 + 20, "other").id, ==, 0);
    CHECK_INT(engine_figures(engine, slice("other"), &figures), ==, -ENOENT);
    check_engine(engine);
    engine_close(engine);
}

TEST(a_claim_without_memory_says_so)
{
    struct engine *engine = helper_open();
    struct engine_job_spec spec = job_spec("q");
    struct engine_claim_spec claim = {.queue = slice("q"), .count = 1, .lease_ms = 100};
    struct engine_claimed claimed;

    for (int i = 0; i < 3000; i++) {
        put(engine, T0, &spec);
        engine_logged(engine, 1);
    }
    for (int i = 0; i < 3000; i++) {
        int r;
        test_fail_alloc_at(1);
        r = engine_claim(engine, T0, &claim, &claimed);
        test_fail_alloc_at(0);
        if (r == -ENOMEM) r = engine_claim(engine, T0, &claim, &claimed);
        CHECK_INT(r, ==, 1);
    }
    engine_close(engine);
}

TEST(a_dead_letter_that_would_expire_at_once_stays_one)
{
    struct engine *engine = helper_open();
    struct engine_job_spec spec = job_spec("q");
    struct engine_claimed claimed;

    spec.expires_ms = T0 + 10;
    put(engine, T0, &spec);
    claimed = take(engine, T0, "q");
    CHECK_INT(fail(engine, T0, &claimed, "bad"), ==, ENGINE_DEAD);
    CHECK_INT(engine_dead_replay(engine, T0 + 10, 1, NULL, slice("")), ==, -EINVAL);
    CHECK_OK(engine_tick(engine, T0 + 10, SIZE_MAX));
    CHECK_INT(state_of(engine, 1), ==, ENGINE_DEAD);
    engine_close(engine);
}

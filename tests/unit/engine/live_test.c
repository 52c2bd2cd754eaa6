/* live_test.c - what rows need of the log, told as it changes: by position, and nothing is left
 * over when all is forgotten. */
#include "unit/engine/helper.h"

enum { POSITIONS = 64, ENDED_MAX = 16 };

struct told {
    int64_t live[POSITIONS];
    uint64_t ended[ENDED_MAX];
    enum engine_state states[ENDED_MAX];
    int ended_count;
};

static void on_live(void *arg, uint64_t position, int64_t bytes)
{
    struct told *told = arg;
    CHECK_INT(position, <, POSITIONS);
    told->live[position] += bytes;
    CHECK_INT(told->live[position], >=, 0);
}

static void on_ended(void *arg, uint64_t id, enum engine_state state)
{
    struct told *told = arg;
    CHECK_INT(told->ended_count, <, ENDED_MAX);
    told->states[told->ended_count] = state;
    told->ended[told->ended_count++] = id;
}

static struct engine *open_told(struct told *told)
{
    struct engine *engine = helper_open();
    engine_hooks_set(engine, &(struct engine_hooks){told, on_live, on_ended});
    return engine;
}

static int64_t total(const struct told *told)
{
    int64_t sum = 0;
    for (int i = 0; i < POSITIONS; i++) sum += told->live[i];
    return sum;
}

/* The record is logged, and everything counted anew. */
static void log_at(struct engine *engine, uint64_t position)
{
    engine_logged(engine, position);
    check_engine(engine);
}

TEST(a_record_is_live_while_a_row_has_its_payload_or_its_result_there)
{
    struct told told = {0};
    struct engine *engine = open_told(&told);
    struct engine_job_spec spec = job_spec("q");
    struct engine_claimed claimed;
    uint64_t id;

    spec.unique_key = slice("u");
    id = put(engine, T0, &spec);
    CHECK_INT(total(&told), ==, 0);
    log_at(engine, 1);
    CHECK_INT(told.live[1], >=, (int64_t)spec.payload.count);
    claimed = take(engine, T0, "q");
    log_at(engine, 2);
    CHECK_INT(told.live[2], ==, 0);
    CHECK_OK(engine_ack(engine, T0, id, claimed.token, slice("fine")));
    CHECK_INT(told.live[3], ==, 0);
    log_at(engine, 3);
    CHECK_INT(told.live[3], ==, 4);
    CHECK_INT(told.ended_count, ==, 1);
    CHECK(told.ended[0] == id && told.states[0] == ENGINE_DONE);
    CHECK_OK(engine_relog(engine, T0, id, spec.payload, slice(""), slice("fine")));
    CHECK_INT(total(&told), ==, 0);
    log_at(engine, 4);
    CHECK(told.live[1] == 0 && told.live[3] == 0 && told.live[4] > 0);
    CHECK_OK(engine_purge(engine, T0, id));
    CHECK_INT(total(&told), ==, 0);
    log_at(engine, 5);
    CHECK_INT(total(&told), ==, 0);
    engine_close(engine);
}

TEST(an_edited_dead_letter_needs_the_new_record_and_not_the_old_one)
{
    struct told told = {0};
    struct engine *engine = open_told(&told);
    struct engine_job_spec spec = job_spec("q");
    struct engine_slice edited = slice("a longer payload");
    struct engine_claimed claimed;
    int64_t before;

    put(engine, T0, &spec);
    log_at(engine, 1);
    before = told.live[1];
    claimed = take(engine, T0, "q");
    CHECK_INT(fail(engine, T0, &claimed, "bad"), ==, ENGINE_DEAD);
    log_at(engine, 2);
    CHECK_INT(engine_dead_replay(engine, T0, claimed.id, &edited, slice("")), ==, ENGINE_READY);
    CHECK_INT(told.live[1], ==, 0);
    log_at(engine, 3);
    CHECK_INT(told.live[3], ==, before + 11 + 16 + 3); /* and its error, which is there again */
    CHECK_INT(engine_cancel(engine, T0, claimed.id), ==, ENGINE_CANCELLED);
    CHECK(told.ended_count == 2 && told.states[1] == ENGINE_CANCELLED);
    log_at(engine, 4);
    while (engine_tick(engine, T0 + helper_config.history_ms, SIZE_MAX) == 1) {}
    log_at(engine, 5);
    CHECK_INT(total(&told), ==, 0);
    engine_close(engine);
}

TEST(errors_are_live_where_they_were_logged_again_with_their_job)
{
    struct told told = {0}, told_other = {0};
    struct engine *engine = open_told(&told);
    struct engine *other = open_told(&told_other);
    struct engine_job_spec spec = job_spec("q");
    int64_t now_ms = T0, without;

    spec.retry = (struct engine_retry){
        .attempts_max = ENGINE_ERRORS_KEPT + 3, .backoff_ms = 1, .backoff_ms_max = 1};
    spec.idempotent = true;
    put(engine, T0, &spec);
    pass_on(engine, other, 1);
    without = told.live[1];
    for (uint64_t i = 0; i < ENGINE_ERRORS_KEPT + 3; i++) {
        struct engine_claimed claimed;

        while (engine_tick(engine, now_ms, SIZE_MAX) == 1) {}
        claimed = take(engine, now_ms++, "q");
        CHECK_INT(fail(engine, now_ms++, &claimed, "four"), >=, 0);
        pass_on(engine, other, 2);
        if (i == 9) { /* with ten of them, of which the first three are to go */
            CHECK_INT(told.live[1], ==, without);
            CHECK_OK(engine_relog(engine, now_ms, claimed.id, spec.payload, slice(""), slice("")));
            pass_on(engine, other, 3);
            CHECK_INT(told.live[3], ==, without + 10 * (16 + 4));
        }
        CHECK(memcmp(told.live, told_other.live, sizeof told.live) == 0);
    }
    CHECK_INT(told.live[1], ==, 0);
    CHECK_INT(told.live[2], ==, 0);
    CHECK_INT(told.live[3], ==, without + 7 * (16 + 4));
    check_engine(other);
    CHECK_OK(engine_purge(engine, now_ms, 1));
    CHECK_INT(total(&told), ==, 0);
    engine_close(engine);
    engine_close(other);
}

TEST(a_patch_brings_the_errors_along_and_they_are_live_with_it)
{
    struct told told = {0}, told_other = {0};
    struct engine *engine = open_told(&told);
    struct engine *other = open_told(&told_other);
    struct engine_patch patch = {.has_priority = true, .priority = 7};
    struct engine_job_spec spec = job_spec("q");
    struct engine_claimed claimed;
    int64_t without;

    spec.retry = (struct engine_retry){.attempts_max = 2, .backoff_ms = 1, .backoff_ms_max = 1};
    spec.idempotent = true;
    put(engine, T0, &spec);
    pass_on(engine, other, 1);
    without = told.live[1];
    claimed = take(engine, T0, "q");
    CHECK_INT(fail(engine, T0, &claimed, "four"), ==, ENGINE_SCHEDULED);
    pass_on(engine, other, 2);
    CHECK_INT(engine_patch(engine, T0, claimed.id, &patch, spec.payload, slice("")), >=, 0);
    pass_on(engine, other, 3);
    CHECK_INT(told.live[1], ==, 0);
    CHECK_INT(told.live[3], ==, without + 16 + 4);
    CHECK(memcmp(told.live, told_other.live, sizeof told.live) == 0);
    check_engine(other);
    engine_close(engine);
    engine_close(other);
}

TEST(what_is_forgotten_before_it_is_logged_was_never_live)
{
    struct engine_config config = helper_config;
    struct told told = {0};
    struct engine_job_spec spec = job_spec("q");
    struct engine_claimed claimed;
    struct engine *engine;

    config.history_count_max = 0;
    CHECK_OK(engine_open(&config, &engine));
    engine_hooks_set(engine, &(struct engine_hooks){&told, on_live, on_ended});
    put(engine, T0, &spec);
    claimed = take(engine, T0, "q");
    CHECK_OK(engine_ack(engine, T0, claimed.id, claimed.token, slice("fine")));
    CHECK_INT(state_of(engine, claimed.id), ==, ENGINE_NO_JOB);
    log_at(engine, 1);
    for (int i = 0; i < POSITIONS; i++) CHECK_INT(told.live[i], ==, 0);
    CHECK_INT(told.ended_count, ==, 1);
    engine_close(engine);
}

TEST(who_follows_the_log_or_asks_late_is_told_the_same)
{
    struct told told = {0}, told_other = {0}, late = {0};
    struct engine *engine = open_told(&told);
    struct engine *other = open_told(&told_other);
    struct engine_job_spec spec = job_spec("q");
    struct engine_claimed claimed;

    for (uint64_t i = 0; i < 6; i++) {
        put(engine, T0, &spec);
        pass_on(engine, other, 1 + i);
    }
    for (uint64_t i = 0; i < 3; i++) {
        claimed = take(engine, T0, "q");
        CHECK_OK(engine_ack(engine, T0, claimed.id, claimed.token, slice("some result")));
        pass_on(engine, other, 10 + i);
    }
    CHECK_OK(engine_purge(engine, T0, 1));
    CHECK_OK(engine_relog(engine, T0, 2, spec.payload, slice(""), slice("some result")));
    CHECK_OK(engine_relog(engine, T0, 5, spec.payload, slice(""), slice("")));
    pass_on(engine, other, 20);
    CHECK(memcmp(told.live, told_other.live, sizeof told.live) == 0);
    CHECK_INT(told_other.ended_count, ==, 0);
    engine_hooks_set(engine, &(struct engine_hooks){.arg = &late, .live = on_live});
    CHECK(memcmp(told.live, late.live, sizeof told.live) == 0);
    check_engine(other);
    engine_close(engine);
    engine_close(other);
}

/* take_back_test.c - what was enqueued by a command that is refused after all was never there; and
 * ids that were lost in a crash are never given again. */
#include <stdio.h>

#include "unit/engine/helper.h"
#include "unit/policy/chance.h"

TEST(a_job_that_is_taken_back_was_never_there)
{
    struct engine *engine = helper_open();
    struct engine *other = helper_open();
    struct engine_job_spec spec = job_spec("q");
    struct engine_figures figures;
    struct engine_claimed claimed;
    uint64_t id;

    put(engine, T0, &spec);
    pass_on(engine, other, 1);
    CHECK_INT(engine_take_back(engine, T0, 1), ==, -EBUSY);
    CHECK_INT(engine_take_back(engine, T0, 2), ==, -ENOENT);
    spec.unique_key = slice("u");
    id = put(engine, T0, &spec);
    CHECK_OK(engine_take_back(engine, T0, id));
    CHECK_INT(state_of(engine, id), ==, ENGINE_NO_JOB);
    CHECK_OK(engine_figures(engine, slice("q"), &figures));
    CHECK_INT(figures.enqueued, ==, 1);
    CHECK_INT(put(engine, T0, &spec), ==, id + 1); /* no duplicate, and a new id */
    claimed = take(engine, T0, "q");
    CHECK_OK(engine_ack(engine, T0, claimed.id, claimed.token, slice("")));
    claimed = take(engine, T0, "q");
    CHECK_INT(claimed.id, ==, id + 1);
    CHECK_INT(engine_take_back(engine, T0, id + 1), ==, -EBUSY);
    pass_on(engine, other, 2);
    CHECK(state_sum(engine) == state_sum(other));
    check_engine(engine);
    engine_close(engine);
    engine_close(other);
}

TEST(a_member_that_is_taken_back_leaves_its_batch_and_the_batch_follows)
{
    struct engine *engine = helper_open();
    struct engine_job_spec spec = job_spec("q");
    struct engine_job seen;
    uint64_t batch, member;

    spec.gathers = ENGINE_WHEN_DONE;
    batch = put(engine, T0, &spec);
    spec.gathers = ENGINE_GATHERS_NOTHING;
    spec.batch = batch;
    member = put(engine, T0, &spec);
    CHECK_INT(engine_take_back(engine, T0, batch), ==, -EBUSY);
    CHECK_CONTAINS(engine_why(engine), "joined");
    CHECK_OK(engine_take_back(engine, T0, member));
    CHECK_OK(engine_job_get(engine, batch, &seen));
    CHECK(seen.members == 0 && seen.members_left == 0);
    member = put(engine, T0, &spec);
    CHECK_INT(engine_batch_seal(engine, T0, batch), ==, ENGINE_HELD);
    CHECK_OK(engine_take_back(engine, T0, member));
    CHECK_INT(state_of(engine, batch), ==, ENGINE_READY); /* sealed, and nobody is missing */
    CHECK_OK(engine_take_back(engine, T0, batch));
    CHECK_INT(take(engine, T0, "q").id, ==, 0);
    engine_close(engine);
}

TEST(who_waits_behind_a_job_that_is_taken_back_goes_on)
{
    struct engine *engine = helper_open();
    struct engine_key_spec key = {.name = slice("k"), .concurrency = 1};
    struct engine_job_spec spec = job_spec("q");
    uint64_t first, second, blocked;

    CHECK_OK(engine_key_set(engine, T0, &key));
    spec.order_key = slice("o");
    spec.limit_keys[0] = slice("k");
    spec.limit_key_count = 1;
    first = put(engine, T0, &spec);
    second = put(engine, T0, &spec);
    spec.order_key = slice("");
    blocked = put(engine, T0, &spec);
    CHECK_INT(state_of(engine, second), ==, ENGINE_HELD);
    CHECK_INT(state_of(engine, blocked), ==, ENGINE_BLOCKED);
    CHECK_OK(engine_take_back(engine, T0, first));
    check_engine(engine);
    CHECK_INT(state_of(engine, second), !=, ENGINE_HELD);
    CHECK_OK(engine_take_back(engine, T0, second));
    CHECK_INT(state_of(engine, blocked), ==, ENGINE_READY);
    check_engine(engine);
    engine_close(engine);
}

/* ---- Any jobs ---- */

static struct engine_slice maybe(uint64_t *chance, const char *what, char *room)
{
    if (chance_below(chance, 2) == 0) return (struct engine_slice){0};
    snprintf(room, 16, "%s%u", what, (unsigned)chance_below(chance, 3));
    return slice(room);
}

static int put_any(struct engine *engine, uint64_t *chance, int64_t now_ms, uint64_t *batch,
                   struct engine_enqueued *ret_enqueued)
{
    struct engine_job_spec spec = job_spec(chance_below(chance, 2) ? "q" : "r");
    char fair[16], order[16], unique[16], limit[16];
    int r;

    spec.fairness_key = maybe(chance, "f", fair);
    spec.order_key = maybe(chance, "o", order);
    spec.unique_key = maybe(chance, "u", unique);
    spec.limit_keys[0] = maybe(chance, "k", limit);
    spec.limit_key_count = spec.limit_keys[0].count > 0;
    if (chance_below(chance, 4) == 0) spec.run_at_ms = now_ms + 20;
    if (chance_below(chance, 6) == 0) {
        spec.gathers = ENGINE_WHEN_ENDED;
    } else if (*batch && chance_below(chance, 2)) {
        spec.batch = *batch;
    }
    r = engine_enqueue(engine, now_ms, &spec, ret_enqueued);
    if (r == 0 && spec.gathers && !ret_enqueued->duplicate) *batch = ret_enqueued->id;
    return r;
}

static void work_a_little(struct engine *engine, uint64_t *chance, int64_t now_ms)
{
    struct engine_claimed claimed = take(engine, now_ms, chance_below(chance, 2) ? "q" : "r");

    if (!claimed.id) return;
    if (chance_below(chance, 4)) {
        CHECK_OK(ack(engine, now_ms, &claimed));
    } else {
        CHECK_OK(fail(engine, now_ms, &claimed, "bad"));
    }
}

TEST(whatever_is_taken_back_leaves_the_state_of_before)
{
    struct engine *engine = helper_open();
    struct engine *other = helper_open();
    uint64_t chance = 1, batch = 0, position = 0;
    unsigned taken_back = 0;
    int64_t now_ms = T0;

    for (int i = 0; i < 3; i++) {
        char name[16];
        struct engine_key_spec key = {.concurrency = 1 + (uint32_t)i, .weight = 1 + (uint32_t)i};
        snprintf(name, sizeof name, "k%d", i);
        key.name = slice(name);
        CHECK_OK(engine_key_set(engine, T0, &key));
    }
    for (int i = 0; i < 400; i++) {
        struct engine_enqueued enqueued[4];
        uint64_t before, batch_before;
        int count = 1 + (int)chance_below(&chance, 4);

        now_ms += (int64_t)chance_below(&chance, 10);
        for (int k = 0; k < 2; k++) put_any(engine, &chance, now_ms, &batch, &enqueued[k]);
        for (int k = 0; k < 3; k++) work_a_little(engine, &chance, now_ms);
        if (batch && i % 7 == 0) engine_batch_seal(engine, now_ms, batch);
        while (engine_tick(engine, now_ms, SIZE_MAX) == 1) {}
        pass_on(engine, other, ++position);
        before = state_sum(engine);
        batch_before = batch;
        for (int k = 0; k < count; k++) {
            if (put_any(engine, &chance, now_ms, &batch, &enqueued[k]) < 0) count = k;
        }
        for (int k = count; k > 0; k--) {
            if (enqueued[k - 1].duplicate) continue;
            CHECK_OK(engine_take_back(engine, now_ms, enqueued[k - 1].id));
            taken_back++;
        }
        batch = batch_before;
        CHECK(state_sum(engine) == before);
        check_engine(engine);
        pass_on(engine, other, ++position);
        CHECK(state_sum(other) == before);
    }
    CHECK_INT(taken_back, >, 250);
    engine_close(engine);
    engine_close(other);
}

/* ---- Without memory ---- */

static uint64_t allocations_left;

/* From one allocation on there is none any more, until it is said otherwise. */
static void *resize_until(void *arg, void *block, size_t bytes_before, size_t bytes)
{
    if (bytes > 0 && allocations_left == 0) return NULL;
    if (bytes > 0) allocations_left--;
    return helper_resize(arg, block, bytes_before, bytes);
}

static struct engine *open_with_keys(void)
{
    struct engine_config config = helper_config;
    struct engine *engine = NULL;

    allocations_left = UINT64_MAX;
    config.resize = resize_until;
    CHECK_OK(engine_open(&config, &engine));
    for (int i = 0; i < 3; i++) {
        char name[16];
        struct engine_key_spec key = {.concurrency = 1 + (uint32_t)i};

        snprintf(name, sizeof name, "k%d", i);
        key.name = slice(name);
        CHECK_OK(engine_key_set(engine, T0, &key));
    }
    return engine;
}

/* Memory runs out with the n-th allocation; what was enqueued until then is taken back without any.
 * Returns whether it ran out. */
static bool enqueue_and_take_back(uint64_t n)
{
    enum { GROUP = 120 };
    struct engine *engine = open_with_keys();
    struct engine *other = helper_open();
    struct engine_enqueued enqueued[GROUP];
    struct engine_figures figures;
    uint64_t chance = 11, batch = 0, before, queued;
    int r = 0, count = 0;

    for (int i = 0; i < 20; i++) put_any(engine, &chance, T0, &batch, &enqueued[i]);
    for (int i = 0; i < 5; i++) work_a_little(engine, &chance, T0);
    pass_on(engine, other, 1);
    before = state_sum(engine);
    CHECK_OK(engine_figures(engine, slice("q"), &figures));
    queued = figures.enqueued;
    allocations_left = n;
    while (r >= 0 && count < GROUP) {
        r = put_any(engine, &chance, T0 + 1, &batch, &enqueued[count]);
        if (r == 0) count++;
    }
    if (r < 0) CHECK_INT(r, ==, -ENOMEM);
    allocations_left = 0;
    while (count-- > 0)
        if (!enqueued[count].duplicate)
            CHECK_OK(engine_take_back(engine, T0 + 1, enqueued[count].id));
    allocations_left = UINT64_MAX;
    check_engine(engine);
    CHECK(state_sum(engine) == before);
    CHECK_OK(engine_figures(engine, slice("q"), &figures));
    CHECK_INT(figures.enqueued, ==, queued);
    pass_on(engine, other, 2); /* and its record says the same */
    CHECK(state_sum(other) == before);
    engine_close(engine);
    engine_close(other);
    return r < 0;
}

TEST(what_was_enqueued_is_taken_back_though_there_is_no_memory_at_all)
{
    uint64_t n = 0;

    while (enqueue_and_take_back(n)) n++;
    CHECK_INT(n, >, 50);
}

/* Not the last one first: who waits behind it would go on, and nothing was kept for that. */
TEST(who_is_taken_back_before_others_behind_it_may_find_no_memory)
{
    struct engine *engine = open_with_keys();
    struct engine_job_spec spec = job_spec("q");
    uint64_t first, second, before;
    char name[16];
    int r;

    spec.order_key = slice("o");
    first = put(engine, T0, &spec);
    second = put(engine, T0, &spec);
    spec.order_key = slice("");
    for (int i = 0; i < 300; i++) { /* until there are no lanes left that were made beforehand */
        snprintf(name, sizeof name, "f%d", i);
        spec.fairness_key = slice(name);
        put(engine, T0, &spec);
        before = state_sum(engine);
        allocations_left = 0;
        r = engine_take_back(engine, T0, first);
        allocations_left = UINT64_MAX;
        check_engine(engine);
        if (r == -ENOMEM) break;
        CHECK_OK(r);
        CHECK_INT(state_of(engine, second), ==, ENGINE_READY);
        spec.fairness_key = slice("");
        spec.order_key = slice("o"); /* again: one that runs, and one behind it */
        first = second;
        second = put(engine, T0, &spec);
        spec.order_key = slice("");
    }
    CHECK_INT(r, ==, -ENOMEM);
    CHECK(state_sum(engine) == before);
    CHECK_INT(state_of(engine, second), ==, ENGINE_HELD);
    CHECK_OK(engine_take_back(engine, T0, first));
    CHECK_INT(state_of(engine, second), ==, ENGINE_READY);
    engine_close(engine);
}

/* Ends them together, with the n-th allocation being the last before the first of them ends, and
 * without any after that. Returns whether there was enough. */
static bool end_together(struct engine *engine, const struct engine_claimed *claimed, uint64_t n)
{
    struct engine_settle settles[ENGINE_SETTLE_MAX];
    struct engine_failure failure = {.class = slice("c"), .message = slice("text"), .delay_ms = -1};
    uint64_t before = state_sum(engine);
    int r;

    for (uint32_t i = 0; i < ENGINE_SETTLE_MAX; i++) {
        settles[i] = (struct engine_settle){.id = claimed[i].id,
                                            .fails = i % 2,
                                            .class = failure.class,
                                            .message = failure.message};
    }
    allocations_left = n;
    r = engine_settle_begin(engine, settles, ENGINE_SETTLE_MAX);
    allocations_left = r < 0 ? UINT64_MAX : 0;
    for (uint32_t i = 0; r == 0 && i < ENGINE_SETTLE_MAX; i++) {
        CHECK_OK(i % 2 ? engine_fail(engine, T0, claimed[i].id, claimed[i].token, &failure)
                       : ack(engine, T0, &claimed[i]));
    }
    allocations_left = UINT64_MAX;
    check_engine(engine);
    if (r == 0) {
        engine_settle_end(engine);
    } else {
        CHECK_INT(r, ==, -ENOMEM);
        CHECK(state_sum(engine) == before);
    }
    return r == 0;
}

TEST(leases_that_end_together_need_no_memory_once_the_first_has_ended)
{
    enum { BLOCKED = 3 * ENGINE_MOVES_MAX };
    struct engine *engine = open_with_keys();
    struct engine_key_spec key = {.name = slice("k"), .concurrency = ENGINE_SETTLE_MAX};
    struct engine_job_spec spec = job_spec("q");
    struct engine_claimed claimed[ENGINE_SETTLE_MAX];
    struct engine_figures figures;
    uint64_t n = 0;

    CHECK_OK(engine_key_set(engine, T0, &key));
    spec.limit_keys[spec.limit_key_count++] = slice("k");
    for (int i = 0; i < ENGINE_SETTLE_MAX + BLOCKED; i++) {
        char name[16];

        snprintf(name, sizeof name, "f%d", i); /* each one goes on to a lane of its own */
        spec.fairness_key = slice(name);
        put(engine, T0, &spec);
    }
    for (int i = 0; i < ENGINE_SETTLE_MAX; i++) claimed[i] = take(engine, T0, "q");
    while (!end_together(engine, claimed, n)) n++;
    CHECK_INT(n, >, ENGINE_SETTLE_MAX / 2);
    CHECK_OK(engine_figures(engine, slice("q"), &figures));
    CHECK_INT(figures.by_state[ENGINE_DONE], ==, ENGINE_SETTLE_MAX / 2);
    CHECK_INT(figures.by_state[ENGINE_DEAD], ==, ENGINE_SETTLE_MAX / 2);
    while (engine_tick(engine, T0, SIZE_MAX) == 1) {}
    CHECK_OK(engine_figures(engine, slice("q"), &figures));
    CHECK_INT(figures.by_state[ENGINE_READY], ==, ENGINE_SETTLE_MAX);
    engine_close(engine);
}

/* ---- Lost ids ---- */

TEST(ids_and_tokens_that_are_skipped_are_never_given)
{
    struct engine *engine = helper_open();
    struct engine *other = helper_open();
    struct engine_job_spec spec = job_spec("q");

    put(engine, T0, &spec);
    engine_skip(engine, 1000);
    CHECK_INT(put(engine, T0, &spec), ==, 1002);
    CHECK_INT(take(engine, T0, "q").token, ==, 1001);
    pass_on(engine, other, 1);
    CHECK_INT(put(other, T0, &spec), ==, 1003);
    engine_skip(engine, UINT64_MAX);
    engine_skip(engine, UINT64_MAX);
    put(engine, T0, &spec);
    engine_logged(other, 2);
    CHECK_INT(pass_on(engine, other, 3), >, 0); /* still a number that a record can have */
    engine_close(engine);
    engine_close(other);
}

TEST(a_lease_is_checked_as_an_acknowledgement_would)
{
    struct engine *engine = helper_open();
    struct engine_job_spec spec = job_spec("q");
    struct engine_claimed claimed;

    put(engine, T0, &spec);
    CHECK_INT(engine_lease_check(engine, 1, 1), ==, -ESTALE);
    CHECK_INT(engine_lease_check(engine, 9, 1), ==, -ENOENT);
    claimed = take(engine, T0, "q");
    CHECK_OK(engine_lease_check(engine, claimed.id, claimed.token));
    CHECK_INT(engine_lease_check(engine, claimed.id, claimed.token + 1), ==, -ESTALE);
    CHECK_OK(ack(engine, T0, &claimed));
    CHECK_INT(engine_lease_check(engine, claimed.id, claimed.token), ==, -ESTALE);
    engine_close(engine);
}

/* ---- Sets of ids that are far apart ---- */

TEST(a_set_of_ids_far_apart_is_as_large_as_its_record_may_be)
{
    enum { JOBS = 45000 };
    struct engine *engine = helper_open();
    struct engine *other = helper_open();
    struct engine_filter filter = {.queue = slice("q"), .states = ENGINE_LIVE_STATES};
    struct engine_job_spec spec = job_spec("q");
    struct engine_bulk bulk;
    uint64_t id;
    size_t count;
    int frozen;

    for (int i = 0; i < JOBS; i++) {
        put(engine, T0, &spec);
        pass_on(engine, other, 1);
        engine_skip(engine, UINT64_C(1) << 28);
    }
    frozen = engine_bulk_begin(engine, T0, &filter, ENGINE_ACTION_CANCEL, &id);
    CHECK_INT(frozen, >, ENGINE_BULK_BYTES_MAX / 5 - 10);
    CHECK_INT(frozen, <, JOBS);
    count = pass_on(engine, other, 2);
    CHECK_INT(count, <=, ENGINE_COMMAND_BYTES_MAX);
    CHECK_INT(engine_bulk_list(other, &bulk, 1), ==, 1);
    CHECK_INT(bulk.count, ==, frozen);
    engine_close(engine);
    engine_close(other);
}

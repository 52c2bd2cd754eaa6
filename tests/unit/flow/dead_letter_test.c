/* dead_letter_test.c - a sink of dead letters: what is put in comes out once, however it leaves. */
#include "unit/flow/guard_test.h"

enum { SINK_CAPACITY = 3 };

struct losses {
    ATOM(int) lost, kept;
    ATOM(uint64_t) last_id;
    ATOM(int) last_value;
};

static void note_lost(const weir_letter *letter, const void *item, void *keep_arg)
{
    struct losses *losses = keep_arg;
    (void)atom_add(&losses->lost, 1);
    atom_store(&losses->last_id, letter->id);
    atom_store(&losses->last_value, ((const struct work *)item)->value);
}

static void note_kept(const weir_letter *letter, const void *item, void *keep_arg)
{
    struct losses *losses = keep_arg;
    CHECK(item != NULL);
    CHECK(letter->id > 0);
    (void)atom_add(&losses->kept, 1);
}

static weir_dead_letters_spec sink_spec(struct losses *losses, enum weir_overflow overflow)
{
    return (weir_dead_letters_spec){.name = "dead",
                                    .capacity = SINK_CAPACITY,
                                    .item_bytes_max = sizeof(struct work),
                                    .overflow = overflow,
                                    .on_lost = note_lost,
                                    .on_letter = note_kept,
                                    .keep_arg = losses};
}

static weir_dead_letters *open_sink(weir_scope *scope, const weir_dead_letters_spec *spec)
{
    weir_dead_letters *sink;
    CHECK_OK(weir_dead_letters_open(scope, spec, &sink));
    return sink;
}

static int put(weir_dead_letters *sink, int value)
{
    struct work work = {.value = value};
    return weir_dead_letters_put(
        sink, &(weir_letter){.source = "test", .reason = WEIR_LETTER_PROGRAM, .error = -value},
        &work, sizeof work);
}

static void check_sums(weir_dead_letters *sink)
{
    weir_dead_letters_figures f;
    weir_dead_letters_figures_of(sink, &f);
    CHECK_INT(f.put, ==, f.depth + f.taken + f.purged + f.lost);
    CHECK_INT(f.depth, ==, weir_dead_letters_count(sink));
    CHECK_INT(f.depth_max, <=, f.capacity);
}

FLOW_TEST(dead_letters_spec_names_what_is_missing)
{
    struct losses losses = {0};
    weir_dead_letters_spec good = sink_spec(&losses, WEIR_REJECT), specs[7];
    static const char *const why[] = {
        "dead letters: name is not set",
        "dead letters 'dead': capacity is 0, must be 1 to 1048576",
        "dead letters 'dead': item_bytes_max is 0, must be 1 to 65536",
        "dead letters 'dead': item_bytes_max is 65537, must be 1 to 65536",
        "dead letters 'dead': overflow is not set",
        "dead letters 'dead': nobody waits for a sink",
        "dead letters 'dead': on_lost is not set",
    };
    weir_dead_letters *sink;
    int result;

    for (size_t i = 0; i < 7; i++) specs[i] = good;
    specs[0].name = "";
    specs[1].capacity = 0;
    specs[2].item_bytes_max = 0;
    specs[3].item_bytes_max = 65537;
    specs[4].overflow = WEIR_OVERFLOW_UNSET;
    specs[5].overflow = WEIR_WAIT;
    specs[6].on_lost = NULL;
    FLOW_SCOPE(scope, &result)
    {
        for (size_t i = 0; i < 7; i++) {
            CHECK_INT(weir_dead_letters_open(scope, &specs[i], &sink), ==, WEIR_EREFUSED);
            CHECK_CONTAINS(weir_why(), why[i]);
        }
        sink = open_sink(scope, &good);
        CHECK_INT(weir_dead_letters_put(sink, &(weir_letter){.reason = WEIR_LETTER_FATAL}, NULL, 0),
                  ==, WEIR_EREFUSED);
        CHECK_CONTAINS(weir_why(), "source of the letter is not set");
        CHECK_INT(weir_dead_letters_put(sink, &(weir_letter){.source = "s"}, NULL, 0), ==,
                  WEIR_EREFUSED);
        CHECK_CONTAINS(weir_why(), "reason of the letter is not set");
    }
    return result;
}

FLOW_TEST(dead_letters_are_looked_at_taken_and_purged)
{
    struct losses losses = {0};
    weir_dead_letters_spec spec = sink_spec(&losses, WEIR_REJECT);
    weir_letter letter;
    struct work work;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        weir_dead_letters *sink = open_sink(scope, &spec);
        uint64_t id = 0;
        int seen = 0;
        CHECK_INT(weir_dead_letters_take(sink, 0, &letter, &work, sizeof work), ==, 0);
        for (int i = 1; i <= 3; i++) CHECK_OK(put(sink, i));
        CHECK_INT(put(sink, 4), ==, WEIR_EOVERLOAD);
        CHECK_INT(atom_load(&losses.kept), ==, 3);
        /* A walk, beside which the letter that was just seen may be taken. */
        while (weir_dead_letters_next(sink, id, &letter, &work, sizeof work) > 0) {
            CHECK_INT(work.value, ==, ++seen);
            CHECK_INT(letter.error, ==, -seen);
            CHECK_STR(letter.source, "test");
            CHECK_INT(letter.kept_bytes, ==, sizeof work);
            CHECK(letter.id > id);
            id = letter.id;
            if (seen == 2) { CHECK_INT(weir_dead_letters_take(sink, id, &letter, NULL, 0), ==, 1); }
        }
        CHECK_INT(seen, ==, 3);
        CHECK_INT(weir_dead_letters_take(sink, id - 1, &letter, &work, sizeof work), ==, 0);
        CHECK_INT(weir_dead_letters_count(sink), ==, 2);
        CHECK_INT(weir_dead_letters_take(sink, 0, &letter, &work, sizeof work), ==, 1);
        CHECK_INT(work.value, ==, 1); /* the oldest */
        CHECK_OK(put(sink, 5));
        check_sums(sink);
        CHECK_INT(weir_dead_letters_purge(sink), ==, 2);
        CHECK_INT(weir_dead_letters_count(sink), ==, 0);
        check_sums(sink);
        CHECK_INT(atom_load(&losses.lost), ==, 0);
        CHECK_OK(put(sink, 6));
        weir_dead_letters_close(sink);
        CHECK_INT(atom_load(&losses.lost), ==, 1); /* nobody has taken it */
        CHECK_INT(atom_load(&losses.last_value), ==, 6);
    }
    return result;
}

FLOW_TEST(dead_letters_overflow_is_what_the_spec_says)
{
    static const struct {
        enum weir_overflow overflow;
        int fourth;   /* what the fourth put returns */
        int lost;     /* then */
        int last;     /* which of them was */
        int expected; /* the sum of what is left */
    } rows[] = {{WEIR_REJECT, WEIR_EOVERLOAD, 0, 0, 1 + 2 + 3},
                {WEIR_DROP_NEWEST, 0, 1, 4, 1 + 2 + 3},
                {WEIR_DROP_OLDEST, 0, 1, 1, 2 + 3 + 4}};
    int result;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct losses losses = {0};
        weir_dead_letters_spec spec = sink_spec(&losses, rows[i].overflow);
        test_note("row %zu", i);
        FLOW_SCOPE(scope, &result)
        {
            weir_dead_letters *sink = open_sink(scope, &spec);
            weir_letter letter;
            struct work work;
            int sum = 0;
            for (int k = 1; k <= 3; k++) CHECK_OK(put(sink, k));
            CHECK_INT(put(sink, 4), ==, rows[i].fourth);
            CHECK_INT(atom_load(&losses.lost), ==, rows[i].lost);
            CHECK_INT(atom_load(&losses.last_value), ==, rows[i].last);
            check_sums(sink);
            while (weir_dead_letters_take(sink, 0, &letter, &work, sizeof work) > 0) {
                sum += work.value;
            }
            CHECK_INT(sum, ==, rows[i].expected);
            CHECK_OK(put(sink, 7)); /* left at the end */
        }
        CHECK_INT(atom_load(&losses.lost), ==, rows[i].lost + 1);
    }
    return result;
}

/* ---- From a guard ---- */

/* An attempt that is hedged runs in a scope, where its time looks like a cancellation. */
FLOW_TEST_CLOCK(guard_letter_tells_timeouts_of_hedged_attempts_from_cancellations)
{
    struct losses losses = {0};
    weir_dead_letters_spec sink_of = sink_spec(&losses, WEIR_REJECT);
    weir_guard_spec spec = guard_spec();
    weir_letter letter;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        struct script script = SCRIPT({200, 0}, {5, -EIO}, {200, 0}, {200, 0}, {7, -EIO});
        weir_guard *guard;
        spec.hedge_after_ms = 20;
        spec.retry.keep_budget = open_budget(scope, 10);
        spec.retry.on_exhausted = WEIR_EXHAUSTED_DEAD_LETTER;
        spec.retry.keep_dead_letters = open_sink(scope, &sink_of);
        guard = open_guard(scope, &spec);
        CHECK_INT(call_script(guard, &script, NULL, NULL), ==, -EIO);
        CHECK_INT(weir_dead_letters_take(spec.retry.keep_dead_letters, 0, &letter, NULL, 0), ==, 1);
        CHECK_INT(letter.attempt_count, ==, 5);
        for (unsigned i = 0; i < 5; i++) {
            static const int errors[] = {-EIO, WEIR_ETIMEDOUT, WEIR_ETIMEDOUT, WEIR_ETIMEDOUT,
                                         -EIO};
            static const int numbers[] = {1, 1, 2, 2, 3};
            CHECK_INT(letter.attempts[i].number, ==, numbers[i]);
            CHECK_INT(letter.attempts[i].error, ==, errors[i]);
        }
    }
    return result;
}

FLOW_TEST_CLOCK(guard_hands_over_what_failed_with_its_whole_history)
{
    struct losses losses = {0};
    weir_dead_letters_spec sink_of = sink_spec(&losses, WEIR_REJECT);
    weir_guard_spec spec = guard_spec();
    weir_guard_outcome outcome;
    weir_letter letter;
    struct work work;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        struct script script = SCRIPT({5, -EAGAIN}, {200, 0}, {7, -EIO}), well;
        int64_t began_ns = weir_now_ns();
        weir_guard *guard;
        spec.retry.on_exhausted = WEIR_EXHAUSTED_DEAD_LETTER;
        spec.retry.keep_dead_letters = open_sink(scope, &sink_of);
        guard = open_guard(scope, &spec);
        CHECK_INT(call_script(guard, &script, NULL, &outcome), ==, -EIO);
        CHECK(outcome.is_dead_letter);
        CHECK_INT(
            weir_dead_letters_take(spec.retry.keep_dead_letters, 0, &letter, &work, sizeof work),
            ==, 1);
        CHECK_STR(letter.source, "guard");
        CHECK_INT(letter.error, ==, -EIO);
        CHECK_INT(letter.reason, ==, WEIR_LETTER_FATAL);
        CHECK_INT(letter.first_ns, ==, began_ns);
        CHECK_INT(letter.last_ns, ==, weir_now_ns());
        CHECK_INT(work.value, ==, 1); /* as it was before */
        CHECK_INT(letter.attempt_count, ==, 3);
        for (unsigned i = 0; i < 3; i++) {
            static const int errors[] = {-EAGAIN, WEIR_ETIMEDOUT, -EIO}, ran_ms[] = {5, 100, 7};
            CHECK_INT(letter.attempts[i].number, ==, i + 1);
            CHECK_INT(letter.attempts[i].error, ==, errors[i]);
            CHECK_INT(letter.attempts[i].run_ns / 1000000, ==, ran_ms[i]);
            CHECK(!letter.attempts[i].is_hedge);
            CHECK(i == 0 || letter.attempts[i].began_ns >=
                                letter.attempts[i - 1].began_ns + letter.attempts[i - 1].run_ns);
        }
        /* Done again, by whoever has taken it. */
        well = SCRIPT({0, 0});
        work.script = &well;
        CHECK_OK(weir_guard_call(guard, play, &work, sizeof work, &outcome));
        CHECK(!outcome.is_dead_letter);
    }
    return result;
}

FLOW_TEST_CLOCK(guard_buries_neither_the_cancelled_nor_the_refused)
{
    struct losses losses = {0};
    weir_dead_letters_spec sink_of = sink_spec(&losses, WEIR_REJECT);
    weir_guard_spec spec = guard_spec();
    weir_guard_outcome outcome;
    int result, r = 0;

    FLOW_SCOPE(scope, &result)
    {
        struct script slow = SCRIPT({80, 0}), failing = SCRIPT({0, -EIO});
        weir_dead_letters *sink = open_sink(scope, &sink_of);
        weir_guard *guard;
        spec.keep_breaker = open_breaker(scope);
        spec.retry.on_exhausted = WEIR_EXHAUSTED_DEAD_LETTER;
        spec.retry.keep_dead_letters = sink;
        guard = open_guard(scope, &spec);
        WEIR_DEADLINE(10) r = call_script(guard, &slow, NULL, &outcome);
        CHECK_INT(r, ==, WEIR_ETIMEDOUT);
        CHECK_INT(weir_dead_letters_count(sink), ==, 0);
        weir_breaker_trip(spec.keep_breaker);
        CHECK_INT(call_script(guard, &slow, NULL, &outcome), ==, WEIR_EBREAKER);
        CHECK_INT(weir_dead_letters_count(sink), ==, 0);
        weir_breaker_reset(spec.keep_breaker);
        for (int i = 0; i < 4; i++) {
            weir_breaker_reset(spec.keep_breaker);
            CHECK_INT(call_script(guard, &failing, NULL, &outcome), ==, -EIO);
            CHECK_INT(outcome.is_dead_letter, ==, i < 3); /* it is full, and rejects */
        }
        weir_dead_letters_close(sink);
        CHECK_INT(atom_load(&losses.lost), ==, 3);
        weir_breaker_reset(spec.keep_breaker);
        CHECK_INT(call_script(guard, &failing, NULL, &outcome), ==, -EIO); /* and without it */
        CHECK(!outcome.is_dead_letter);
    }
    return result;
}

/* ---- Many at once ---- */

struct crowd {
    weir_dead_letters *sink;
    int id;
};

enum { PUTTERS = 40, PUTS = 50 };

static int put_many(void *arg)
{
    struct crowd *crowd = arg;
    for (int i = 0; i < PUTS; i++) {
        int r = put(crowd->sink, 1);
        CHECK(r == 0 || r == WEIR_EOVERLOAD);
        if (i % 8 == 0) CHECK_OK(weir_yield());
    }
    return 0;
}

static int take_some(void *arg)
{
    struct crowd *crowd = arg;
    for (int i = 0; i < PUTS; i++) {
        weir_letter letter;
        struct work work = {0};
        if (weir_dead_letters_take(crowd->sink, 0, &letter, &work, sizeof work) > 0) {
            CHECK_INT(work.value, ==, 1);
        }
        CHECK_OK(weir_yield());
    }
    return 0;
}

FLOW_TEST(dead_letters_are_conserved_under_many)
{
    static const enum weir_overflow overflows[] = {WEIR_REJECT, WEIR_DROP_OLDEST, WEIR_DROP_NEWEST};
    int result = 0;

    for (int k = 0; k < 3; k++) {
        struct losses losses = {0};
        weir_dead_letters_spec spec = sink_spec(&losses, overflows[k]);
        weir_dead_letters_figures f;
        test_note("overflow %d", k);
        FLOW_SCOPE_ANYWHERE(scope, &result)
        {
            struct crowd crowd = {.sink = open_sink(scope, &spec)};
            for (int i = 0; i < PUTTERS; i++) {
                CHECK_OK(weir_spawn(scope, i % 4 ? put_many : take_some, &crowd, sizeof crowd));
            }
            CHECK_OK(weir_scope_join(scope));
            check_sums(crowd.sink);
            weir_dead_letters_figures_of(crowd.sink, &f);
            CHECK_INT(f.put + f.rejected, ==, PUTTERS / 4 * 3 * PUTS);
            CHECK_INT(f.lost, ==, (uint64_t)atom_load(&losses.lost));
        }
        CHECK_INT(atom_load(&losses.lost), ==, (int)(f.lost + f.depth));
    }
    return result;
}

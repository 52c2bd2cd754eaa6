/* breaker_test.c - the breaker's moves on injected time: a table, the windows, and a naive model
 * that keeps every call and counts them anew each time. */
#include "policy/breaker.h"

#include <stdlib.h>
#include <string.h>

#include "unit/policy/chance.h"

static const struct breaker_rules by_count = {.window_calls = 10,
                                              .calls_min = 4,
                                              .failure_percent = 50,
                                              .open_ns = 1000,
                                              .probes_max = 2,
                                              .probes_needed = 3,
                                              .lost_ns = 500};

static struct breaker_pass let_in(struct breaker *breaker, int64_t now_ns)
{
    struct breaker_pass pass = {0};
    CHECK(breaker_enter(breaker, now_ns, &pass));
    return pass;
}

static void refused(struct breaker *breaker, int64_t now_ns)
{
    struct breaker_pass pass = {0};
    CHECK(!breaker_enter(breaker, now_ns, &pass));
}

static void call(struct breaker *breaker, int64_t now_ns, enum breaker_report report)
{
    struct breaker_pass pass = let_in(breaker, now_ns);
    breaker_leave(breaker, &pass, report, 1, now_ns);
}

static void calls(struct breaker *breaker, int64_t now_ns, int well, int failed)
{
    for (int i = 0; i < well; i++) call(breaker, now_ns, BREAKER_WENT_WELL);
    for (int i = 0; i < failed; i++) call(breaker, now_ns, BREAKER_HAS_FAILED);
}

/* ---- Every state times every thing that can happen ---- */

enum happening { WELL, FAILED, SILENT, STALE, EARLY, LATE, TRIP, RESET, HAPPENINGS };

/* A breaker in this state, at time 0, with one call let in where that can be. */
static struct breaker_pass breaker_in(struct breaker *breaker, enum breaker_state state)
{
    struct breaker_rules rules = by_count;
    struct breaker_pass pass = {0};

    rules.calls_min = 1;
    rules.probes_needed = 1;
    breaker_init(breaker, &rules);
    if (state == BREAKER_CLOSED) return let_in(breaker, 0);
    breaker_trip(breaker, state == BREAKER_OPEN ? 0 : -1000);
    if (state == BREAKER_HALF_OPEN) pass = let_in(breaker, 0);
    CHECK_INT(breaker->state, ==, state);
    return pass;
}

static void happen(struct breaker *breaker, const struct breaker_pass *pass, enum happening what)
{
    struct breaker_pass stale = {.epoch = pass->epoch - 1}, other;

    switch (what) {
    case WELL: breaker_leave(breaker, pass, BREAKER_WENT_WELL, 1, 10); break;
    case FAILED: breaker_leave(breaker, pass, BREAKER_HAS_FAILED, 1, 10); break;
    case SILENT: breaker_leave(breaker, pass, BREAKER_SAYS_NOTHING, 1, 10); break;
    case STALE: breaker_leave(breaker, &stale, BREAKER_HAS_FAILED, 1, 10); break;
    case EARLY: (void)breaker_enter(breaker, 999, &other); break;
    case LATE: (void)breaker_enter(breaker, 1000, &other); break;
    case TRIP: breaker_trip(breaker, 10); break;
    case RESET: breaker_reset(breaker, 10); break;
    case HAPPENINGS: break;
    }
}

TEST(breaker_goes_only_from_state_to_state_as_drawn)
{
    enum { C = BREAKER_CLOSED, O = BREAKER_OPEN, H = BREAKER_HALF_OPEN };
    static const int table[BREAKER_STATES][HAPPENINGS] = {
        /*      WELL FAILED SILENT STALE EARLY LATE TRIP RESET */
        [C] = {C, O, C, C, C, C, O, C},
        [O] = {O, O, O, O, O, H, O, C}, /* nobody was let in: what is said is stale */
        [H] = {C, O, H, H, H, H, O, C},
    };

    for (int state = 0; state < BREAKER_STATES; state++) {
        for (int what = 0; what < HAPPENINGS; what++) {
            struct breaker breaker;
            struct breaker_pass pass = breaker_in(&breaker, (enum breaker_state)state);
            if (state == BREAKER_OPEN) pass.epoch = breaker.epoch - 1;
            test_note("state %d, happening %d", state, what);
            happen(&breaker, &pass, (enum happening)what);
            CHECK_INT(breaker.state, ==, table[state][what]);
        }
    }
}

/* ---- The window ---- */

TEST(breaker_opens_at_the_ratio_and_not_below_the_minimum)
{
    struct breaker breaker;

    breaker_init(&breaker, &by_count);
    calls(&breaker, 0, 0, 3); /* all of them, but less than calls_min */
    CHECK_INT(breaker.state, ==, BREAKER_CLOSED);
    calls(&breaker, 0, 1, 0);
    CHECK_INT(breaker.state, ==, BREAKER_OPEN); /* 3 of 4: also when the last one went well */
    refused(&breaker, 999);

    breaker_init(&breaker, &by_count);
    calls(&breaker, 0, 6, 4);
    CHECK_INT(breaker.state, ==, BREAKER_CLOSED); /* 4 of 10 */
    calls(&breaker, 0, 0, 1);
    CHECK_INT(breaker.state, ==, BREAKER_OPEN); /* the oldest, which went well, is out: 5 of 10 */
}

TEST(breaker_forgets_what_fell_out_of_its_window)
{
    struct breaker_rules rules = by_count;
    struct breaker breaker;

    rules.window_calls = 0;
    rules.window_ns = 16000;
    breaker_init(&breaker, &rules);
    calls(&breaker, 0, 0, 3);
    calls(&breaker, 15999, 0, 0);
    CHECK_INT(breaker.sums.calls, ==, 3);
    calls(&breaker, 16000, 2, 1); /* the first slice is out */
    CHECK_INT(breaker.sums.calls, ==, 3);
    CHECK_INT(breaker.state, ==, BREAKER_CLOSED);
    calls(&breaker, 16000, 0, 1);
    CHECK_INT(breaker.state, ==, BREAKER_OPEN);
}

TEST(breaker_opens_when_too_many_are_slow)
{
    struct breaker_rules rules = by_count;
    struct breaker breaker;
    struct breaker_pass pass;

    rules.slow_percent = 100;
    rules.slow_ns = 50;
    breaker_init(&breaker, &rules);
    for (int i = 0; i < 4; i++) {
        CHECK_INT(breaker.state, ==, BREAKER_CLOSED);
        pass = let_in(&breaker, 0);
        breaker_leave(&breaker, &pass, BREAKER_WENT_WELL, 50, 0);
    }
    CHECK_INT(breaker.state, ==, BREAKER_OPEN);
    pass = let_in(&breaker, 1000);
    breaker_leave(&breaker, &pass, BREAKER_WENT_WELL, 50, 1001); /* a slow probe has failed, too */
    CHECK_INT(breaker.state, ==, BREAKER_OPEN);
    CHECK_INT(breaker.since_ns, ==, 1001);
}

/* ---- Probes ---- */

TEST(breaker_lets_in_its_probes_and_no_more)
{
    struct breaker breaker;
    struct breaker_pass one, two;

    breaker_init(&breaker, &by_count);
    calls(&breaker, 0, 0, 4);
    refused(&breaker, 999);
    one = let_in(&breaker, 1000);
    two = let_in(&breaker, 1000);
    refused(&breaker, 1001);
    breaker_leave(&breaker, &one, BREAKER_WENT_WELL, 1, 1002);
    one = let_in(&breaker, 1002); /* its place is free, and two more have to go well */
    refused(&breaker, 1002);
    breaker_leave(&breaker, &one, BREAKER_WENT_WELL, 1, 1003);
    CHECK_INT(breaker.state, ==, BREAKER_HALF_OPEN);
    breaker_leave(&breaker, &two, BREAKER_WENT_WELL, 1, 1003);
    CHECK_INT(breaker.state, ==, BREAKER_CLOSED);
    CHECK_INT(breaker.sums.calls, ==, 0);
}

TEST(breaker_probe_that_says_nothing_gives_its_place_back)
{
    struct breaker breaker;
    struct breaker_pass one, two;

    breaker_init(&breaker, &by_count);
    calls(&breaker, 0, 0, 4);
    one = let_in(&breaker, 1000);
    two = let_in(&breaker, 1000);
    refused(&breaker, 1000);
    breaker_leave(&breaker, &one, BREAKER_SAYS_NOTHING, 1, 1100); /* cancelled */
    one = let_in(&breaker, 1100);
    refused(&breaker, 1599);
    (void)let_in(&breaker, 1600); /* neither has reported for lost_ns: their places are free */
    (void)let_in(&breaker, 1600);
    refused(&breaker, 1600);
    breaker_leave(&breaker, &one, BREAKER_HAS_FAILED, 1, 1601); /* and nobody listens any more */
    breaker_leave(&breaker, &two, BREAKER_HAS_FAILED, 1, 1601);
    CHECK_INT(breaker.state, ==, BREAKER_HALF_OPEN);
    CHECK_INT(breaker.probes, ==, 2);
}

TEST(breaker_does_not_count_who_came_before_the_outage)
{
    struct breaker breaker;
    struct breaker_pass old;

    breaker_init(&breaker, &by_count);
    old = let_in(&breaker, 0);
    calls(&breaker, 0, 0, 4);
    (void)let_in(&breaker, 1000);
    breaker_leave(&breaker, &old, BREAKER_HAS_FAILED, 1, 1001);
    CHECK_INT(breaker.state, ==, BREAKER_HALF_OPEN);
    breaker_reset(&breaker, 1002);
    breaker_leave(&breaker, &old, BREAKER_HAS_FAILED, 1, 1003);
    CHECK_INT(breaker.sums.calls, ==, 0);
}

/* ---- Against a naive model ---- */

enum { MODEL_CALLS = 20000, MODEL_PENDING = 8 };

/* Every call that was ever counted, with its time; an epoch forgets by moving `from`. */
struct model {
    const struct breaker_rules *rules;
    int state;
    int64_t since_ns, probe_ns;
    int epoch, probes, probes_ok;
    int count, from;
    struct breaker_sums sums; /* of the window, when it was last looked at */
    struct {
        int64_t at_ns;
        bool failed, slow;
    } calls[MODEL_CALLS];
};

static void model_move(struct model *model, int state, int64_t now_ns)
{
    model->state = state;
    model->since_ns = now_ns;
    model->epoch++;
    model->from = model->count;
    model->sums = (struct breaker_sums){0};
    model->probes = model->probes_ok = 0;
}

static int model_enter(struct model *model, int64_t now_ns)
{
    if (model->state == BREAKER_OPEN) {
        if (now_ns < model->since_ns + model->rules->open_ns) return -1;
        model_move(model, BREAKER_HALF_OPEN, now_ns);
    }
    if (model->state == BREAKER_HALF_OPEN) {
        if (model->probes == (int)model->rules->probes_max) {
            if (now_ns < model->probe_ns + model->rules->lost_ns) return -1;
            model->epoch++;
            model->probes = 0;
        }
        model->probes++;
        model->probe_ns = now_ns;
    }
    return model->epoch;
}

/* Looks at all calls: is it in the window, and what of them? */
static bool model_is_too_bad(struct model *model, int64_t now_ns)
{
    const struct breaker_rules *rules = model->rules;
    int64_t width = rules->window_ns / BREAKER_SLICES;
    uint32_t calls = 0, failed = 0, slow = 0;

    for (int i = model->from; i < model->count; i++) {
        bool inside = rules->window_calls > 0
                          ? i >= model->count - (int)rules->window_calls
                          : model->calls[i].at_ns / width > now_ns / width - BREAKER_SLICES;
        if (!inside) continue;
        calls++;
        failed += model->calls[i].failed;
        slow += model->calls[i].slow;
    }
    model->sums = (struct breaker_sums){calls, failed, slow};
    if (calls < rules->calls_min) return false;
    return failed * 100 >= calls * rules->failure_percent ||
           (rules->slow_percent > 0 && slow * 100 >= calls * rules->slow_percent);
}

static void model_leave(struct model *model, int epoch, enum breaker_report report, int64_t run_ns,
                        int64_t now_ns)
{
    bool slow = model->rules->slow_percent > 0 && run_ns >= model->rules->slow_ns;

    if (epoch != model->epoch) return;
    if (model->state == BREAKER_HALF_OPEN) {
        model->probes--;
        if (report == BREAKER_SAYS_NOTHING) return;
        if (report == BREAKER_HAS_FAILED || slow) {
            model_move(model, BREAKER_OPEN, now_ns);
        } else if (++model->probes_ok == (int)model->rules->probes_needed) {
            model_move(model, BREAKER_CLOSED, now_ns);
        }
        return;
    }
    if (report == BREAKER_SAYS_NOTHING) return;
    model->calls[model->count].at_ns = now_ns;
    model->calls[model->count].failed = report == BREAKER_HAS_FAILED;
    model->calls[model->count++].slow = slow;
    if (model_is_too_bad(model, now_ns)) model_move(model, BREAKER_OPEN, now_ns);
}

struct pending {
    bool is_there;
    struct breaker_pass pass;
    int epoch;
};

static void random_rules(uint64_t *chance, struct breaker_rules *rules)
{
    bool counts = chance_below(chance, 2);

    *rules =
        (struct breaker_rules){.window_calls = counts ? (uint32_t)chance_below(chance, 70) + 1 : 0,
                               .window_ns = counts ? 0 : (int64_t)chance_below(chance, 4000) + 16,
                               .failure_percent = (uint32_t)chance_below(chance, 100) + 1,
                               .slow_percent = (uint32_t)chance_below(chance, 101),
                               .slow_ns = 60,
                               .open_ns = (int64_t)chance_below(chance, 300) + 1,
                               .probes_max = (uint32_t)chance_below(chance, 4) + 1,
                               .probes_needed = (uint32_t)chance_below(chance, 5) + 1,
                               .lost_ns = (int64_t)chance_below(chance, 300) + 1};
    rules->calls_min = (uint32_t)chance_below(chance, counts ? rules->window_calls : 20) + 1;
}

static void compare_step(struct breaker *breaker, struct model *model, struct pending *pending,
                         uint64_t *chance, int64_t now_ns)
{
    struct pending *one = &pending[chance_below(chance, MODEL_PENDING)];
    enum breaker_report report = (enum breaker_report)chance_below(chance, 3);
    int64_t run_ns = (int64_t)chance_below(chance, 100);

    if (one->is_there && chance_below(chance, 50) > 0) {
        breaker_leave(breaker, &one->pass, report, run_ns, now_ns);
        model_leave(model, one->epoch, report, run_ns, now_ns);
        one->is_there = false;
    } else { /* the one that was there never reports */
        one->is_there = breaker_enter(breaker, now_ns, &one->pass);
        one->epoch = model_enter(model, now_ns);
        CHECK_INT(one->is_there, ==, one->epoch >= 0);
    }
    CHECK_INT(breaker->state, ==, model->state);
    CHECK_INT(breaker->probes, ==, model->probes);
    CHECK_INT(breaker->sums.calls, ==, model->sums.calls);
    CHECK_INT(breaker->sums.failed, ==, model->sums.failed);
    CHECK_INT(breaker->sums.slow, ==, model->sums.slow);
}

TEST(breaker_does_what_a_naive_model_does)
{
    uint64_t chance = chance_seed();
    struct model *model = malloc(sizeof *model);
    int moves = 0;

    CHECK(model != NULL);
    for (int round = 0; round < 60; round++) {
        struct pending pending[MODEL_PENDING] = {0};
        struct breaker_rules rules;
        struct breaker breaker;
        int64_t now_ns = (int64_t)chance_below(&chance, 1000000);

        random_rules(&chance, &rules);
        breaker_init(&breaker, &rules);
        memset(model, 0, sizeof *model);
        model->rules = &rules;
        for (int i = 0; i < 2000; i++) {
            now_ns += (int64_t)chance_below(&chance, chance_below(&chance, 20) ? 20 : 500);
            compare_step(&breaker, model, pending, &chance, now_ns);
        }
        moves += model->epoch;
    }
    CHECK_INT(moves, >, 1000); /* it did open and close */
    free(model);
}

/* policy_breaker.c - a breaker that tasks share keeps to its table, whatever their order. */
#include "sim/policy.h"

enum { EPOCHS_MAX = 256, CALLERS = 4, CALLS = 6, PROBES_MAX = 2, OPEN_MS = 20 };

static weir_breaker *breaker;

/* ---- Who is inside, by the state that let them in ----
 *
 * Each change of state begins another epoch, which a pass names: so what is seen needs no look at
 * the breaker in the same moment, and holds at worker level, too. */

static struct {
    enum weir_breaker_state states[EPOCHS_MAX]; /* of each epoch */
    unsigned inside[EPOCHS_MAX], inside_max[EPOCHS_MAX];
    int64_t began_ns[EPOCHS_MAX], first_ns[EPOCHS_MAX];
    uint64_t changes, let_in;
} seen;

static void forget_seen(void *arg)
{
    (void)arg;
    memset(&seen, 0, sizeof seen);
}

static void note_change(const weir_breaker_change *change, void *keep_arg)
{
    (void)keep_arg;
    CHECK_INT(change->number, <, EPOCHS_MAX);
    CHECK_INT(change->from, !=, change->to);
    seen.states[change->number] = change->to;
    seen.began_ns[change->number] = change->at_ns;
    seen.changes++;
}

static void note_enter(const weir_breaker_pass *pass)
{
    CHECK_INT(pass->epoch, <, EPOCHS_MAX);
    if (seen.first_ns[pass->epoch] == 0) seen.first_ns[pass->epoch] = weir_now_ns();
    if (++seen.inside[pass->epoch] > seen.inside_max[pass->epoch]) {
        seen.inside_max[pass->epoch] = seen.inside[pass->epoch];
    }
    seen.let_in++;
}

static void look_at_epochs(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i <= seen.changes; i++) {
        enum weir_breaker_state state = seen.states[i];

        CHECK_INT(seen.inside[i], ==, 0);
        if (state == WEIR_BREAKER_OPEN) CHECK_INT(seen.inside_max[i], ==, 0);
        if (state != WEIR_BREAKER_HALF_OPEN) continue;
        CHECK_INT(seen.inside_max[i], <=, PROBES_MAX);
        CHECK_INT(seen.states[i - 1], ==, WEIR_BREAKER_OPEN);
        CHECK_INT(seen.began_ns[i] - seen.began_ns[i - 1], >=, OPEN_MS * MS_NS);
    }
}

static int call_by_lot(void *arg)
{
    static const int results[] = {0, -EIO, 0, WEIR_ECANCELED};

    (void)arg;
    for (unsigned i = 0; i < CALLS; i++) {
        weir_breaker_pass pass;
        int r = weir_breaker_enter(breaker, &pass);

        if (r == WEIR_EBREAKER) {
            CHECK_OK(weir_sleep(5 + weir_sim_choose(OPEN_MS)));
            continue;
        }
        CHECK_OK(r);
        note_enter(&pass);
        CHECK_OK(weir_sim_choose(2) ? weir_sleep(weir_sim_choose(10)) : weir_yield());
        seen.inside[pass.epoch]--;
        weir_breaker_leave(breaker, &pass, results[weir_sim_choose(4)]);
    }
    return 0;
}

static int breaker_shared(void)
{
    weir_breaker_figures figures;
    int r = 0;

    SCOPE_OF(scope, &r, CALLERS)
    {
        CHECK_OK(weir_breaker_open(scope,
                                   &(weir_breaker_spec){.name = "shared",
                                                        .window_calls = 4,
                                                        .calls_min = 2,
                                                        .failure_percent = 50,
                                                        .open_ms = OPEN_MS,
                                                        .probes_max = PROBES_MAX,
                                                        .probe_lost_ms = CROWD_MS,
                                                        .on_change = note_change},
                                   &breaker));
        CHECK_OK(crowd(CALLERS, call_by_lot));
        weir_breaker_figures_of(breaker, &figures);
        CHECK_INT(figures.let_in, ==, seen.let_in);
        CHECK_INT(figures.let_in, ==, figures.went_well + figures.failed + figures.silent);
        CHECK_INT(figures.opened + figures.half_opened + figures.closed, ==, seen.changes);
    }
    return r;
}

SIM_TEST(sim_breaker_lets_in_no_more_probes_than_its_limit_and_nobody_while_open, .runs_max = 8000,
         .begin = forget_seen, .end = look_at_epochs)
{
    return breaker_shared();
}

SIM_TEST(sim_breaker_holds_its_limits_on_two_workers, .runs_max = 4000, .begin = forget_seen,
         .end = look_at_epochs, .config = &policy_two_workers)
{
    return breaker_shared();
}

/* ---- By its table: a model that is told the same, one step at a time ---- */

enum { WINDOW = 4, NEEDED = 2 };

static struct {
    enum weir_breaker_state state;
    unsigned epoch;
    bool failed[WINDOW]; /* the newest last */
    unsigned calls, probes, probes_ok;
    int64_t since_ns;
} model;

static void forget_model(void *arg)
{
    (void)arg;
    memset(&model, 0, sizeof model);
}

static void model_move(enum weir_breaker_state state)
{
    unsigned epoch = model.epoch + 1;

    memset(&model, 0, sizeof model);
    model.state = state;
    model.epoch = epoch;
    model.since_ns = weir_now_ns();
}

static bool model_enter(void)
{
    if (model.state == WEIR_BREAKER_OPEN) {
        if (weir_now_ns() - model.since_ns < OPEN_MS * MS_NS) return false;
        model_move(WEIR_BREAKER_HALF_OPEN);
    }
    if (model.state == WEIR_BREAKER_HALF_OPEN && model.probes++ == PROBES_MAX) {
        model.probes--;
        return false;
    }
    return true;
}

static void model_hear_closed(bool failed)
{
    unsigned bad = 0;

    memmove(model.failed, model.failed + 1, (WINDOW - 1) * sizeof model.failed[0]);
    model.failed[WINDOW - 1] = failed;
    if (model.calls < WINDOW) model.calls++;
    for (unsigned i = WINDOW - model.calls; i < WINDOW; i++) bad += model.failed[i];
    if (model.calls >= 2 && bad * 2 >= model.calls) model_move(WEIR_BREAKER_OPEN);
}

static void model_leave(unsigned epoch, int result)
{
    if (epoch != model.epoch) return;
    if (model.state == WEIR_BREAKER_HALF_OPEN) model.probes--;
    if (result == WEIR_ECANCELED) return;
    if (model.state == WEIR_BREAKER_CLOSED) {
        model_hear_closed(result < 0);
    } else if (result < 0) {
        model_move(WEIR_BREAKER_OPEN);
    } else if (++model.probes_ok == NEEDED) {
        model_move(WEIR_BREAKER_CLOSED);
    }
}

static void compare(void)
{
    weir_breaker_figures figures;

    weir_breaker_figures_of(breaker, &figures);
    CHECK_INT(figures.state, ==, model.state);
    if (model.state == WEIR_BREAKER_CLOSED) CHECK_INT(figures.window_calls, ==, model.calls);
}

static int call_beside_model(void *arg)
{
    static const int results[] = {0, -EIO, 0, WEIR_ECANCELED};

    (void)arg;
    for (unsigned i = 0; i < CALLS; i++) {
        weir_breaker_pass pass = {0};
        int result, r = weir_breaker_enter(breaker, &pass);

        CHECK_INT(r, ==, model_enter() ? 0 : WEIR_EBREAKER);
        compare();
        CHECK_OK(weir_sleep(1 + weir_sim_choose(r ? OPEN_MS + 2 : 8)));
        if (r < 0) continue;
        result = results[weir_sim_choose(4)];
        weir_breaker_leave(breaker, &pass, result);
        model_leave(pass.epoch, result);
        compare();
    }
    return 0;
}

SIM_TEST(sim_breaker_opens_and_closes_by_its_table, .runs_max = 8000, .begin = forget_model)
{
    int r = 0;

    SCOPE_OF(scope, &r, CALLERS)
    {
        CHECK_OK(weir_breaker_open(scope,
                                   &(weir_breaker_spec){.name = "beside a model",
                                                        .window_calls = WINDOW,
                                                        .calls_min = 2,
                                                        .failure_percent = 50,
                                                        .open_ms = OPEN_MS,
                                                        .probes_max = PROBES_MAX,
                                                        .probes_needed = NEEDED,
                                                        .probe_lost_ms = CROWD_MS},
                                   &breaker));
        CHECK_OK(crowd(CALLERS, call_beside_model));
    }
    return r;
}

/* ---- A probe that is cancelled ---- */

static weir_guard *guard;

static int take_long(void *arg)
{
    (void)arg;
    return weir_sleep(50);
}

static int probe(void *arg)
{
    weir_guard_outcome outcome;
    int r = weir_guard_call(guard, take_long, NULL, 0, &outcome);

    (void)arg;
    CHECK(r == 0 || r == WEIR_ECANCELED);
    return r;
}

SIM_TEST(sim_cancelled_probe_gives_its_place_back, .runs_max = 3000, .config = &policy_two_workers)
{
    weir_breaker_figures figures;
    weir_task task;
    int r = 0, result;

    SCOPE_OF(scope, &r, 2)
    {
        CHECK_OK(weir_breaker_open(scope,
                                   &(weir_breaker_spec){.name = "one probe",
                                                        .window_calls = 4,
                                                        .calls_min = 4,
                                                        .failure_percent = 100,
                                                        .open_ms = OPEN_MS,
                                                        .probes_max = 1,
                                                        .probe_lost_ms = CROWD_MS},
                                   &breaker));
        CHECK_OK(weir_guard_open(
            scope,
            &(weir_guard_spec){.name = "probed", .timeout_ms = 1000, .keep_breaker = breaker},
            &guard));
        weir_breaker_trip(breaker);
        CHECK_OK(weir_sleep(OPEN_MS));
        CHECK_OK(weir_task_spawn(scope, &(weir_task_spec){.fn = probe}, &task));
        CHECK_OK(weir_sleep(weir_sim_choose(60)));
        (void)weir_task_cancel(task, "the test cancels it"); /* or it has ended */
        CHECK_OK(weir_task_join(task, &result));
        /* Its place is free, or it has closed the breaker; either way somebody else gets in. */
        CHECK_OK(weir_guard_call(guard, take_long, NULL, 0, NULL));
        weir_breaker_figures_of(breaker, &figures);
        CHECK_INT(figures.state, ==, WEIR_BREAKER_CLOSED);
        CHECK_INT(figures.let_in, ==, figures.went_well + figures.silent);
    }
    return r;
}

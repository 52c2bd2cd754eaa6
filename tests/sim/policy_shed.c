/* policy_shed.c - shedding beside a model of its rule, by itself and in a guard: a burst is served,
 * a queue that stays is cut, and whoever is admitted has not waited longer than was said. */
#include "sim/policy.h"

enum { CALLERS = 6, CALLS = 4, TARGET_MS = 5, INTERVAL_MS = 30, WAIT_MS_MAX = 60 };

static weir_shed *shed;
static weir_limit *limit;
static weir_guard *guard;

/* Up to the first time that it sheds by the rule of the interval; from there on only bounds are
 * looked at, until a wait is under the target again. */
static struct {
    bool above, shedding;
    int64_t above_ns; /* the first wait that was too long, of those without a short one between */
    unsigned admitted, shed, began;
} model;

static void forget(void *arg)
{
    (void)arg;
    memset(&model, 0, sizeof model);
}

/* In the moment of the decision. */
static void check_decision(int64_t waited_ns, bool sheds)
{
    model.admitted += !sheds;
    model.shed += sheds;
    if (waited_ns > WAIT_MS_MAX * MS_NS) CHECK(sheds);
    if (waited_ns < TARGET_MS * MS_NS) {
        CHECK(!sheds);
        model.above = model.shedding = false;
        return;
    }
    if (model.shedding) return;
    if (!model.above) {
        model.above = true;
        model.above_ns = weir_now_ns();
        CHECK_INT(sheds, ==, waited_ns > WAIT_MS_MAX * MS_NS);
    } else if (weir_now_ns() - model.above_ns < INTERVAL_MS * MS_NS) {
        CHECK_INT(sheds, ==, waited_ns > WAIT_MS_MAX * MS_NS);
    } else {
        CHECK(sheds);
        model.shedding = true;
        model.began++;
    }
}

static void open_shed(weir_scope *scope)
{
    CHECK_OK(weir_shed_open(scope,
                            &(weir_shed_spec){.name = "shed",
                                              .target_ms = TARGET_MS,
                                              .interval_ms = INTERVAL_MS,
                                              .wait_max_ms = WAIT_MS_MAX},
                            &shed));
}

static int enter_after_waits(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < CALLS; i++) {
        int64_t waited_ns = weir_sim_choose(4) ? (int64_t)weir_sim_choose(80) * MS_NS : 0;
        int r = weir_shed_enter(shed, waited_ns);

        CHECK(r == 0 || r == WEIR_EOVERLOAD);
        check_decision(waited_ns, r < 0);
        CHECK_OK(weir_sleep(weir_sim_choose(20)));
    }
    return 0;
}

SIM_TEST(sim_shed_keeps_to_its_rule, .runs_max = 5000, .begin = forget)
{
    weir_shed_figures figures;
    int r = 0;

    SCOPE_OF(scope, &r, 1)
    {
        open_shed(scope);
        CHECK_OK(crowd(CALLERS, enter_after_waits));
        weir_shed_figures_of(shed, &figures);
        CHECK_INT(figures.admitted, ==, model.admitted);
        CHECK_INT(figures.shed, ==, model.shed);
        CHECK_INT(figures.admitted + figures.shed, ==, CALLERS * CALLS);
    }
    return r;
}

/* ---- In a guard, behind a limit: the wait is the time in its line ---- */

struct work {
    int64_t called_ns;
    int64_t takes_ms;
};

static int serve(void *arg)
{
    const struct work *work = arg;

    check_decision(weir_now_ns() - work->called_ns, false);
    return weir_sleep(work->takes_ms);
}

static int call_some(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < CALLS; i++) {
        struct work work = {.called_ns = weir_now_ns(), .takes_ms = 5 + weir_sim_choose(20)};
        weir_guard_outcome outcome;
        int r = weir_guard_call(guard, serve, &work, sizeof work, &outcome);

        if (outcome.end == WEIR_GUARD_SHED) {
            CHECK_INT(r, ==, WEIR_EOVERLOAD);
            check_decision(weir_now_ns() - work.called_ns, true);
        } else {
            CHECK_OK(r);
            CHECK_INT(outcome.waited_ns, <=, WAIT_MS_MAX * MS_NS);
        }
        CHECK_OK(weir_sleep(weir_sim_choose(10)));
    }
    return 0;
}

int shed_in_a_guard(void *arg);

/* Also the program of a planted bug. */
int shed_in_a_guard(void *arg)
{
    int r = 0;

    forget(arg);
    SCOPE_OF(scope, &r, 1)
    {
        open_shed(scope);
        CHECK_OK(weir_limit_open(scope,
                                 &(weir_limit_spec){.name = "one",
                                                    .kind = WEIR_LIMIT_FIXED,
                                                    .concurrency = 1,
                                                    .overflow = WEIR_WAIT,
                                                    .waiters_max = CALLERS},
                                 &limit));
        CHECK_OK(weir_guard_open(
            scope,
            &(weir_guard_spec){
                .name = "sheds", .timeout_ms = 1000, .keep_shed = shed, .keep_limit = limit},
            &guard));
        CHECK_OK(crowd(CALLERS, call_some));
        CHECK_INT(model.admitted + model.shed, ==, CALLERS * CALLS);
    }
    return r;
}

SIM_TEST(sim_shedding_guard_serves_bursts_and_cuts_queues_that_stay, .runs_max = 3000,
         .begin = forget)
{
    return shed_in_a_guard(arg);
}

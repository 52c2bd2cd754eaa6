/* guard_limits_test.c - guards with rate, limit and shedding: the whole composition, in order. */
#include "unit/flow/guard_test.h"
#include "unit/flow/pipeline_test.h"

struct parts {
    weir_shed *shed;
    weir_rate *rate;
    weir_limit *limit;
    weir_breaker *breaker;
    weir_retry_budget *budget;
};

/* Ten tokens a second and ten at once, two at a time, waits over 20 ms for 40 ms are shed. */
static void open_parts(weir_scope *scope, enum weir_overflow overflow, struct parts *parts)
{
    size_t waiters_max = overflow == WEIR_WAIT ? 10 : 0;

    CHECK_OK(weir_shed_open(
        scope,
        &(weir_shed_spec){.name = "shed", .target_ms = 20, .interval_ms = 40, .wait_max_ms = 200},
        &parts->shed));
    CHECK_OK(weir_rate_open(scope,
                            &(weir_rate_spec){.name = "rate",
                                              .rate = 10,
                                              .burst = 10,
                                              .overflow = overflow,
                                              .waiters_max = waiters_max},
                            &parts->rate));
    CHECK_OK(weir_limit_open(scope,
                             &(weir_limit_spec){.name = "limit",
                                                .kind = WEIR_LIMIT_FIXED,
                                                .concurrency = 2,
                                                .overflow = overflow,
                                                .waiters_max = waiters_max},
                             &parts->limit));
    parts->breaker = open_breaker(scope);
    parts->budget = open_budget(scope, 10);
}

static weir_guard *open_all(weir_scope *scope, const struct parts *parts)
{
    weir_guard_spec spec = guard_spec();

    spec.keep_shed = parts->shed;
    spec.keep_rate = parts->rate;
    spec.keep_limit = parts->limit;
    spec.keep_breaker = parts->breaker;
    spec.retry.keep_budget = parts->budget;
    return open_guard(scope, &spec);
}

static void check_empty(const struct parts *parts)
{
    weir_limit_figures l;
    weir_breaker_figures b;
    weir_limit_figures_of(parts->limit, &l);
    CHECK_INT(l.in_flight, ==, 0);
    weir_breaker_figures_of(parts->breaker, &b);
    CHECK_INT(b.let_in, ==, b.went_well + b.failed + b.silent);
}

/* ---- The order, seen from what each part has counted when one refuses ---- */

struct seen {
    uint64_t shed, rate, limit, breaker, begun;
};

static void look(const struct parts *parts, struct seen *ret_seen)
{
    weir_shed_figures s;
    weir_rate_figures r;
    weir_limit_figures l;
    weir_breaker_figures b;

    weir_shed_figures_of(parts->shed, &s);
    weir_rate_figures_of(parts->rate, &r);
    weir_limit_figures_of(parts->limit, &l);
    weir_breaker_figures_of(parts->breaker, &b);
    *ret_seen = (struct seen){s.admitted, r.admitted, l.admitted, b.let_in, 0};
}

/* Calls until the part refuses; what those after it have seen of that call. */
static void refuse_at(const struct parts *parts, weir_guard *guard, struct script *script,
                      enum weir_guard_end end, int error, const struct seen *grows)
{
    struct seen before, after;
    weir_guard_outcome outcome;
    int begun = atom_load(&script->begun);

    look(parts, &before);
    CHECK_INT(call_script(guard, script, NULL, &outcome), ==, error);
    CHECK_INT(outcome.end, ==, end);
    CHECK_INT(outcome.attempts, ==, 0);
    CHECK_INT(atom_load(&script->begun), ==, begun);
    look(parts, &after);
    CHECK_INT(after.rate - before.rate, ==, grows->rate);
    CHECK_INT(after.limit - before.limit, ==, grows->limit);
    CHECK_INT(after.shed - before.shed, ==, grows->shed);
    CHECK_INT(after.breaker - before.breaker, ==, grows->breaker);
    check_empty(parts);
}

FLOW_TEST_CLOCK(guard_refuses_in_the_order_of_its_parts)
{
    struct script well = SCRIPT({0, 0});
    struct parts parts;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        weir_limit_pass passes[2];
        weir_guard *guard;
        open_parts(scope, WEIR_REJECT, &parts);
        guard = open_all(scope, &parts);
        CHECK_OK(call_script(guard, &well, NULL, NULL));
        weir_breaker_trip(parts.breaker);
        refuse_at(&parts, guard, &well, WEIR_GUARD_BREAKER, WEIR_EBREAKER,
                  &(struct seen){.rate = 1, .limit = 1, .shed = 1});
        weir_breaker_reset(parts.breaker);
        for (int i = 0; i < 2; i++) CHECK_OK(weir_limit_enter(parts.limit, &passes[i]));
        {
            /* The limit refuses: the rate has seen the call, shed and breaker have not. */
            struct seen before, after;
            weir_guard_outcome outcome;
            look(&parts, &before);
            CHECK_INT(call_script(guard, &well, NULL, &outcome), ==, WEIR_EOVERLOAD);
            CHECK_INT(outcome.end, ==, WEIR_GUARD_LIMIT);
            look(&parts, &after);
            CHECK_INT(after.rate - before.rate, ==, 1);
            CHECK_INT(after.limit - before.limit, ==, 0);
            CHECK_INT(after.shed - before.shed, ==, 0);
            CHECK_INT(after.breaker - before.breaker, ==, 0);
        }
        for (int i = 0; i < 2; i++) weir_limit_leave(parts.limit, &passes[i], 0);
        while (weir_rate_take(parts.rate, 1) == 0) {}
        refuse_at(&parts, guard, &well, WEIR_GUARD_RATE, WEIR_EOVERLOAD, &(struct seen){0});
    }
    return result;
}

/* ---- One permit and one token for a call, however many attempts ---- */

FLOW_TEST_CLOCK(guard_holds_one_permit_and_one_token_for_all_attempts)
{
    struct script script = SCRIPT({10, -EAGAIN}, {10, -EAGAIN}, {10, 0});
    struct seen before, after;
    struct parts parts;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        weir_guard *guard;
        open_parts(scope, WEIR_REJECT, &parts);
        guard = open_all(scope, &parts);
        look(&parts, &before);
        CHECK_OK(call_script(guard, &script, NULL, NULL));
        look(&parts, &after);
        CHECK_INT(after.rate - before.rate, ==, 1);
        CHECK_INT(after.limit - before.limit, ==, 1);
        CHECK_INT(after.shed - before.shed, ==, 1);
        CHECK_INT(after.breaker - before.breaker, ==, 1);
        check_empty(&parts);
    }
    return result;
}

/* ---- What an adaptive limit learns ---- */

static size_t limit_of(weir_limit *limit)
{
    weir_limit_figures l;
    weir_limit_figures_of(limit, &l);
    return l.limit;
}

FLOW_TEST_CLOCK(guard_does_not_take_the_waits_between_attempts_for_load)
{
    weir_guard_spec spec = guard_spec();
    int result;

    FLOW_SCOPE(scope, &result)
    {
        struct script script = SCRIPT({1, 0});
        weir_guard *guard;
        CHECK_OK(weir_limit_open(scope,
                                 &(weir_limit_spec){.name = "adaptive",
                                                    .kind = WEIR_LIMIT_ADAPTIVE,
                                                    .concurrency = 32,
                                                    .concurrency_max = 32,
                                                    .probe_ms = 1000000,
                                                    .overflow = WEIR_REJECT},
                                 &spec.keep_limit));
        guard = open_guard(scope, &spec);
        for (int i = 0; limit_of(spec.keep_limit) < 32; i++) { /* until it knows its base */
            CHECK_INT(i, <, 5000);
            CHECK_OK(call_script(guard, &script, NULL, NULL));
        }
        for (int i = 0; i < 150; i++) {
            struct script again = SCRIPT({1, -EAGAIN}, {1, -EAGAIN}, {1, 0});
            CHECK_OK(call_script(guard, &again, NULL, NULL));
        }
        CHECK_INT(limit_of(spec.keep_limit), ==, 32);
    }
    return result;
}

/* ---- Waiting for the limit, and shedding by that wait ---- */

struct caller {
    weir_guard *guard;
    struct script *script;
    ATOM(int) * overloaded, *ok;
};

static int call_guard(void *arg)
{
    struct caller *caller = arg;
    struct work work = {.script = caller->script, .value = 1};
    weir_guard_outcome outcome;
    int r = weir_guard_call(caller->guard, play, &work, sizeof work, &outcome);

    CHECK(r == 0 || r == WEIR_EOVERLOAD);
    if (r == 0) (void)atom_add(caller->ok, 1);
    if (r < 0) {
        CHECK_INT(outcome.end, ==, WEIR_GUARD_SHED);
        CHECK_INT(outcome.attempts, ==, 0);
        (void)atom_add(caller->overloaded, 1);
    }
    return 0;
}

FLOW_TEST_CLOCK(guard_sheds_what_has_waited_too_long_for_its_limit)
{
    struct script script = SCRIPT({50, 0});
    ATOM(int) overloaded = 0, ok = 0;
    weir_guard_figures f;
    struct parts parts;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        struct caller caller = {.script = &script, .overloaded = &overloaded, .ok = &ok};
        open_parts(scope, WEIR_WAIT, &parts);
        caller.guard = open_all(scope, &parts);
        for (int i = 0; i < 10; i++) {
            CHECK_OK(weir_spawn(scope, call_guard, &caller, sizeof caller));
        }
        CHECK_OK(weir_scope_join(scope));
        CHECK_INT(atom_load(&ok) + atom_load(&overloaded), ==, 10);
        CHECK_INT(atom_load(&overloaded), >, 0);
        CHECK_INT(atom_load(&ok), >, 2);
        CHECK_INT(atom_load(&script.running_max), ==, 2);
        CHECK_INT(atom_load(&script.begun), ==, atom_load(&ok));
        weir_guard_figures_of(caller.guard, &f);
        CHECK_INT(f.refused, ==, (uint64_t)atom_load(&overloaded));
        check_empty(&parts);
    }
    return result;
}

FLOW_TEST_CLOCK(guard_timeout_counts_from_before_its_waits)
{
    struct script script = SCRIPT({0, 0});
    weir_guard_outcome outcome;
    struct parts parts;
    int result, r = 0;

    FLOW_SCOPE(scope, &result)
    {
        weir_limit_pass passes[2];
        weir_guard *guard;
        open_parts(scope, WEIR_WAIT, &parts);
        for (int i = 0; i < 2; i++) CHECK_OK(weir_limit_enter(parts.limit, &passes[i]));
        guard = open_guard(scope, &(weir_guard_spec){.name = "waits",
                                                     .timeout_ms = 60,
                                                     .keep_limit = parts.limit,
                                                     .keep_breaker = parts.breaker});
        CHECK_INT(call_script(guard, &script, NULL, &outcome), ==, WEIR_ETIMEDOUT);
        CHECK_INT(outcome.end, ==, WEIR_GUARD_LIMIT);
        CHECK_INT(outcome.took_ns / 1000000, ==, 60);
        WEIR_DEADLINE(30) r = call_script(guard, &script, NULL, &outcome);
        CHECK_INT(r, ==, WEIR_ETIMEDOUT); /* the caller's own */
        CHECK_INT(outcome.end, ==, WEIR_GUARD_CANCELED);
        for (int i = 0; i < 2; i++) weir_limit_leave(parts.limit, &passes[i], 0);
        CHECK_OK(call_script(guard, &script, NULL, &outcome));
        check_empty(&parts);
    }
    return result;
}

/* ---- In a stage ---- */

static int slow_stage(void *data, void *keep_arg)
{
    struct item *item = data;
    ATOM(int) *running = keep_arg;
    int r;

    CHECK_INT(atom_add(running, 1), <, 2); /* the limit, not the stage's concurrency */
    r = weir_sleep(30);
    (void)atom_sub(running, 1);
    item->trail = item->trail * 10 + 1;
    return r;
}

static int call_pipeline(void *arg)
{
    weir_pipeline *pipeline = *(weir_pipeline **)arg;
    struct item item = {0};
    int r = weir_pipeline_call(pipeline, &item, NULL);

    CHECK(r == 0 || r == WEIR_EOVERLOAD);
    return 0;
}

FLOW_TEST_CLOCK(stage_with_a_guard_is_limited_and_sheds_by_its_queue)
{
    ATOM(int) running = 0;
    struct parts parts;
    weir_stage_figures s;
    weir_shed_figures shed;
    int result;

    reset();
    FLOW_SCOPE(scope, &result)
    {
        weir_stage_spec stages[1] = {stage(0)};
        weir_pipeline_spec spec = {.name = "pipe",
                                   .item_bytes = sizeof(struct item),
                                   .budget_ms = 15000,
                                   .stages = stages,
                                   .stage_count = 1,
                                   .on_lost = note_lost};
        weir_pipeline *pipeline;
        weir_guard *guard;
        open_parts(scope, WEIR_WAIT, &parts);
        guard = open_guard(scope, &(weir_guard_spec){.name = "stage",
                                                     .timeout_ms = 1000,
                                                     .keep_shed = parts.shed,
                                                     .keep_limit = parts.limit,
                                                     .keep_breaker = parts.breaker});
        stages[0].fn = slow_stage;
        stages[0].keep_arg = &running;
        stages[0].concurrency = 4;
        stages[0].queue_max = 30;
        stages[0].keep_policy = weir_guard_stage_policy(guard);
        CHECK_OK(weir_pipeline_open(scope, &spec, &pipeline));
        for (int i = 0; i < 20; i++) {
            CHECK_OK(weir_spawn(scope, call_pipeline, &pipeline, sizeof pipeline));
        }
        CHECK_OK(weir_scope_join(scope));
        CHECK_OK(weir_pipeline_stage_figures(pipeline, 0, &s));
        weir_shed_figures_of(parts.shed, &shed);
        CHECK_INT(shed.admitted + shed.shed, ==, 20);
        CHECK_INT(shed.shed, >, 0);
        CHECK_INT(s.rejected, ==, shed.shed);
        CHECK_INT(s.finished, ==, 20 - shed.shed);
        check_empty(&parts);
        check_conserved(pipeline, 1);
    }
    return result;
}

/* ---- A thousand callers through everything ---- */

enum { CALLERS = 1000, CALLS = 3 };

struct crowd {
    weir_guard *guard;
    ATOM(int) turn, running, running_max;
    ATOM(uint64_t) ok, failed, refused;
};

static int work_a_little(void *arg)
{
    struct crowd *crowd = *(struct crowd **)arg;
    int running = atom_add(&crowd->running, 1) + 1, turn = atom_add(&crowd->turn, 1);
    int r = weir_yield();

    if (running > atom_load(&crowd->running_max)) atom_store(&crowd->running_max, running);
    (void)atom_sub(&crowd->running, 1);
    return r < 0 ? r : turn % 5 == 0 ? -EAGAIN : 0;
}

static int call_often(void *arg)
{
    struct crowd *crowd = *(struct crowd **)arg;

    for (int i = 0; i < CALLS; i++) {
        struct crowd *pointer = crowd;
        int r = weir_guard_call(crowd->guard, work_a_little, &pointer, sizeof pointer, NULL);
        CHECK(r == 0 || r == -EAGAIN || r == WEIR_EOVERLOAD || r == WEIR_EBREAKER);
        (void)atom_add(r == 0 ? &crowd->ok : r == -EAGAIN ? &crowd->failed : &crowd->refused, 1);
    }
    return 0;
}

FLOW_TEST(guard_with_every_part_keeps_its_sums_under_a_thousand_callers)
{
    static struct crowd crowd;
    struct crowd *pointer = &crowd;
    struct parts parts;
    int result;

    memset(&crowd, 0, sizeof crowd);
    FLOW_SCOPE_ANYWHERE(scope, &result)
    {
        weir_guard_spec spec = guard_spec();
        weir_guard_figures f;
        open_parts(scope, WEIR_WAIT, &parts);
        weir_limit_close(parts.limit);
        weir_rate_close(parts.rate);
        CHECK_OK(weir_rate_open(scope,
                                &(weir_rate_spec){.name = "rate",
                                                  .rate = 1000000,
                                                  .burst = 500,
                                                  .overflow = WEIR_WAIT,
                                                  .waiters_max = CALLERS},
                                &parts.rate));
        CHECK_OK(weir_limit_open(scope,
                                 &(weir_limit_spec){.name = "limit",
                                                    .kind = WEIR_LIMIT_ADAPTIVE,
                                                    .concurrency = 8,
                                                    .concurrency_max = 16,
                                                    .overflow = WEIR_WAIT,
                                                    .waiters_max = CALLERS / 2},
                                 &parts.limit));
        spec.timeout_ms = 20000 * test_slower();
        spec.attempt_timeout_ms = 5000 * test_slower();
        spec.keep_shed = parts.shed;
        spec.keep_rate = parts.rate;
        spec.keep_limit = parts.limit;
        spec.keep_breaker = parts.breaker;
        spec.retry.backoff_ms = spec.retry.backoff_ms_max = 1;
        spec.retry.keep_budget = parts.budget;
        crowd.guard = open_guard(scope, &spec);
        for (int i = 0; i < CALLERS; i++) {
            CHECK_OK(weir_spawn(scope, call_often, &pointer, sizeof pointer));
        }
        CHECK_OK(weir_scope_join(scope));
        weir_guard_figures_of(crowd.guard, &f);
        CHECK_INT(f.went_well, ==, atom_load(&crowd.ok));
        CHECK_INT(f.failed, ==, atom_load(&crowd.failed));
        CHECK_INT(f.refused, ==, atom_load(&crowd.refused));
        CHECK_INT(f.went_well + f.failed + f.refused, ==, CALLERS * CALLS);
        CHECK_INT(atom_load(&crowd.running_max), <=, 16);
        CHECK_INT(atom_load(&crowd.running), ==, 0);
        check_empty(&parts);
    }
    return result;
}

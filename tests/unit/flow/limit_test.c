/* limit_test.c - so many at a time: fixed, resized, learnt; and what a pass is good for. */
#include <string.h>

#include "base/atomic.h"
#include "flow/limit.h"
#include "unit/flow/flow_test.h"
#include "watch/registry.h"

static weir_limit_spec fixed(size_t concurrency, size_t waiters_max)
{
    return (weir_limit_spec){.name = "upstream",
                             .kind = WEIR_LIMIT_FIXED,
                             .concurrency = concurrency,
                             .overflow = waiters_max ? WEIR_WAIT : WEIR_REJECT,
                             .waiters_max = waiters_max};
}

static weir_limit_figures figures(weir_limit *limit)
{
    weir_limit_figures figures;
    weir_limit_figures_of(limit, &figures);
    return figures;
}

struct shared {
    weir_limit *limit;
    weir_event *go;
    ATOM(int) inside, inside_max, arrived, results[4];
    ATOM(int) order[16];
};

struct visit {
    struct shared *shared;
    int number;
};

FLOW_TEST(limit_lets_in_as_many_as_it_says_and_rejects_more_at_once)
{
    weir_limit_spec spec = fixed(2, 0);
    weir_limit_pass passes[3];
    weir_limit *limit;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_limit_open(scope, &spec, &limit));
        CHECK_OK(weir_limit_enter(limit, &passes[0]));
        CHECK_OK(weir_limit_enter(limit, &passes[1]));
        CHECK_INT(weir_limit_enter(limit, &passes[2]), ==, WEIR_EOVERLOAD);
        weir_limit_leave(limit, &passes[0], 0);
        CHECK_OK(weir_limit_enter(limit, &passes[2]));
        CHECK_INT(figures(limit).in_flight, ==, 2);
        CHECK_INT(figures(limit).in_flight_max, ==, 2);
        CHECK_INT(figures(limit).admitted, ==, 3);
        CHECK_INT(figures(limit).rejected, ==, 1);
        CHECK_INT(figures(limit).waited, ==, 0);
        weir_limit_leave(limit, &passes[1], 0);
        weir_limit_leave(limit, &passes[2], 0);
        weir_limit_close(limit);
    }
    return result;
}

FLOW_TEST(a_pass_is_left_once_whatever_is_done_with_it)
{
    weir_limit_spec spec = fixed(2, 0);
    weir_limit_pass pass, other, none = {0};
    weir_limit *limit, *next;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_limit_open(scope, &spec, &limit));
        CHECK_OK(weir_limit_enter(limit, &pass));
        CHECK_OK(weir_limit_enter(limit, &other));
        weir_limit_leave(limit, &none, 0);
        weir_limit_leave(limit, &pass, 0);
        weir_limit_leave(limit, &pass, 0);
        CHECK_INT(figures(limit).in_flight, ==, 1);
        weir_limit_close(limit);
        /* The next one may have the memory of that, and is not touched. */
        CHECK_OK(weir_limit_open(scope, &spec, &next));
        CHECK_OK(weir_limit_enter(next, &pass));
        weir_limit_leave(limit, &other, 0);
        weir_limit_leave(limit, &other, 0);
        CHECK_INT(figures(next).in_flight, ==, 1);
        weir_limit_leave(next, &pass, 0);
    }
    return result;
}

static int visit(void *arg)
{
    struct visit *visit = arg;
    struct shared *shared = visit->shared;
    weir_limit_pass pass;
    int r = weir_limit_enter(shared->limit, &pass);

    if (r < 0) return r;
    atom_store(&shared->order[atom_add(&shared->arrived, 1)], visit->number);
    weir_limit_leave(shared->limit, &pass, 0);
    return 0;
}

FLOW_TEST(limit_serves_those_who_wait_in_order_and_bounds_them)
{
    weir_limit_spec spec = fixed(1, 8);
    struct shared shared = {.arrived = 0};
    weir_limit_pass pass;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_limit_open(scope, &spec, &shared.limit));
        CHECK_OK(weir_limit_enter(shared.limit, &pass));
        for (int i = 0; i < 8; i++) {
            struct visit who = {&shared, i};
            CHECK_OK(weir_spawn(scope, visit, &who, sizeof who));
        }
        CHECK_OK(weir_yield());
        CHECK_INT(figures(shared.limit).waiting, ==, 8);
        CHECK_INT(weir_limit_enter(shared.limit, &pass), ==, WEIR_EOVERLOAD);
        CHECK_INT(atom_load(&shared.arrived), ==, 0);
        weir_limit_leave(shared.limit, &pass, 0);
    }
    CHECK_OK(result);
    for (int i = 0; i < 8; i++) CHECK_INT(atom_load(&shared.order[i]), ==, i);
    return 0;
}

FLOW_TEST_CLOCK(limit_forgets_who_gave_up_waiting)
{
    weir_limit_spec spec = fixed(1, 2);
    weir_limit_pass pass, other;
    weir_limit *limit;
    int result, r = 0;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_limit_open(scope, &spec, &limit));
        CHECK_OK(weir_limit_enter(limit, &pass));
        WEIR_DEADLINE(5) { r = weir_limit_enter(limit, &other); }
        CHECK_INT(r, ==, WEIR_ETIMEDOUT);
        CHECK_INT(figures(limit).waiting, ==, 0);
        CHECK_INT(figures(limit).in_flight, ==, 1);
        weir_limit_leave(limit, &pass, 0);
        CHECK_INT(figures(limit).in_flight, ==, 0);
        CHECK_INT(figures(limit).waited, ==, 1);
    }
    return result;
}

static int hold(void *arg)
{
    struct visit *visit = arg;
    struct shared *shared = visit->shared;
    weir_limit_pass pass;
    int r = weir_limit_enter(shared->limit, &pass), now;

    if (r == WEIR_ECLOSED) {
        (void)atom_add(&shared->results[0], 1);
        return 0;
    }
    if (r < 0) return r;
    now = atom_add(&shared->inside, 1) + 1;
    if (now > atom_load(&shared->inside_max)) atom_store(&shared->inside_max, now);
    r = weir_event_wait(shared->go);
    (void)atom_sub(&shared->inside, 1);
    weir_limit_leave(shared->limit, &pass, r);
    return r;
}

FLOW_TEST(limit_changes_while_tasks_wait_and_its_end_is_told_to_them)
{
    weir_limit_spec spec = fixed(2, 10);
    struct shared shared = {.arrived = 0};
    int result;

    spec.concurrency_max = 5;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_event_open(scope, "go", &shared.go));
        CHECK_OK(weir_limit_open(scope, &spec, &shared.limit));
        for (int i = 0; i < 10; i++) {
            struct visit who = {&shared, i};
            CHECK_OK(weir_spawn(scope, hold, &who, sizeof who));
        }
        CHECK_OK(weir_yield());
        CHECK_INT(atom_load(&shared.inside), ==, 2);
        CHECK_INT(weir_limit_resize(shared.limit, 0), ==, WEIR_EREFUSED);
        CHECK_INT(weir_limit_resize(shared.limit, 6), ==, WEIR_EREFUSED);
        CHECK_CONTAINS(weir_why(), "limit 'upstream': concurrency 6 is not within 1 and 5");
        CHECK_OK(weir_limit_resize(shared.limit, 5));
        CHECK_OK(weir_yield());
        CHECK_INT(atom_load(&shared.inside), ==, 5);
        CHECK_INT(figures(shared.limit).limit, ==, 5);
        CHECK_OK(weir_limit_resize(shared.limit, 1));
        CHECK_INT(figures(shared.limit).in_flight, ==, 5);
        weir_limit_close(shared.limit);
        CHECK_OK(weir_yield());
        CHECK_INT(atom_load(&shared.results[0]), ==, 5);
        weir_event_set(shared.go); /* they leave a limit that is gone */
    }
    CHECK_INT(atom_load(&shared.inside_max), ==, 5);
    return result;
}

FLOW_TEST(limit_spec_names_what_is_missing)
{
    static const struct {
        weir_limit_spec spec;
        const char *why;
    } rows[] = {
        {{.kind = WEIR_LIMIT_FIXED, .concurrency = 1, .overflow = WEIR_REJECT}, "name"},
        {{.name = "l", .concurrency = 1, .overflow = WEIR_REJECT}, "kind is not set"},
        {{.name = "l", .kind = 9, .concurrency = 1, .overflow = WEIR_REJECT}, "kind must be"},
        {{.name = "l", .kind = WEIR_LIMIT_FIXED, .overflow = WEIR_REJECT}, "concurrency is not"},
        {{.name = "l", .kind = WEIR_LIMIT_FIXED, .concurrency = 1}, "overflow is not set"},
        {{.name = "l", .kind = WEIR_LIMIT_FIXED, .concurrency = 1, .overflow = WEIR_WAIT},
         "waiters_max is not set"},
        {{.name = "l",
          .kind = WEIR_LIMIT_FIXED,
          .concurrency = 1,
          .overflow = WEIR_REJECT,
          .waiters_max = 1},
         "nobody waits"},
        {{.name = "l", .kind = WEIR_LIMIT_FIXED, .concurrency = 1, .overflow = WEIR_DROP_OLDEST},
         "must be WEIR_WAIT or WEIR_REJECT"},
        {{.name = "l",
          .kind = WEIR_LIMIT_FIXED,
          .concurrency = 3,
          .concurrency_max = 2,
          .overflow = WEIR_REJECT},
         "concurrency_max is less"},
        {{.name = "l",
          .kind = WEIR_LIMIT_FIXED,
          .concurrency = WEIR_LIMIT_CONCURRENCY_MAX + 1,
          .overflow = WEIR_REJECT},
         "is more than"},
        {{.name = "l",
          .kind = WEIR_LIMIT_FIXED,
          .concurrency = 3,
          .probe_ms = 2,
          .overflow = WEIR_REJECT},
         "for WEIR_LIMIT_ADAPTIVE"},
        {{.name = "l",
          .kind = WEIR_LIMIT_FIXED,
          .concurrency = 3,
          .latency_ms = -1,
          .overflow = WEIR_REJECT},
         "latency_ms is negative"},
        {{.name = "l", .kind = WEIR_LIMIT_ADAPTIVE, .concurrency = 3, .overflow = WEIR_REJECT},
         "concurrency_max is not set"},
        {{.name = "l",
          .kind = WEIR_LIMIT_ADAPTIVE,
          .concurrency = 3,
          .concurrency_max = 4,
          .concurrency_min = 4,
          .overflow = WEIR_REJECT},
         "concurrency_min is more"},
        {{.name = "l",
          .kind = WEIR_LIMIT_ADAPTIVE,
          .concurrency = 3,
          .concurrency_max = 4,
          .window_ms = -1,
          .overflow = WEIR_REJECT},
         "window_ms"},
        {{.name = "l",
          .kind = WEIR_LIMIT_ADAPTIVE,
          .concurrency = 3,
          .concurrency_max = 4,
          .probe_ms = INT64_MAX,
          .overflow = WEIR_REJECT},
         "probe_ms"},
        {{.name = "l",
          .kind = WEIR_LIMIT_ADAPTIVE,
          .concurrency = 3,
          .concurrency_max = 4,
          .tolerance_pct = 2000,
          .overflow = WEIR_REJECT},
         "tolerance_pct"},
    };
    int result;

    FLOW_SCOPE(scope, &result)
    {
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            weir_limit *limit;
            test_note("row %zu", i);
            CHECK_INT(weir_limit_open(scope, &rows[i].spec, &limit), ==, WEIR_EREFUSED);
            CHECK_CONTAINS(weir_why(), rows[i].why);
        }
    }
    return result;
}

/* ---- Adaptive, in front of a server with so many slots ---- */

struct backend {
    weir_limit *limit;
    weir_semaphore *slots;
    ATOM(bool) over;
    ATOM(int) served;
};

static int call_backend(void *arg)
{
    struct backend *backend = *(struct backend **)arg;
    int r = 0;

    while (r >= 0 && !atom_load(&backend->over)) {
        weir_limit_pass pass;
        r = weir_limit_enter(backend->limit, &pass);
        if (r < 0) break;
        r = weir_semaphore_acquire(backend->slots, 1);
        if (r == 0) {
            r = weir_sleep(10);
            weir_semaphore_release(backend->slots, 1);
        }
        weir_limit_leave(backend->limit, &pass, r);
        (void)atom_add(&backend->served, 1);
    }
    return r;
}

/* The mean limit over so long; the clock moves by itself. */
static size_t mean_limit(struct backend *backend, int64_t ms)
{
    size_t sum = 0;

    CHECK_OK(weir_sleep(ms / 2));
    for (int i = 0; i < 100; i++) {
        sum += figures(backend->limit).limit;
        CHECK_OK(weir_sleep(ms / 200));
    }
    return sum / 100;
}

static int adaptive_body(void *arg)
{
    struct backend backend = {.served = 0}, *pointer = &backend;
    int result;

    (void)arg;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_semaphore_open(scope,
                                     &(weir_semaphore_spec){.name = "slots",
                                                            .permits = 8,
                                                            .permits_max = 32,
                                                            .overflow = WEIR_WAIT,
                                                            .waiters_max = 1000},
                                     &backend.slots));
        CHECK_OK(weir_limit_open(scope,
                                 &(weir_limit_spec){.name = "backend",
                                                    .kind = WEIR_LIMIT_ADAPTIVE,
                                                    .concurrency = 50,
                                                    .concurrency_max = 200,
                                                    .overflow = WEIR_WAIT,
                                                    .waiters_max = 200},
                                 &backend.limit));
        for (int i = 0; i < 200; i++)
            CHECK_OK(weir_spawn(scope, call_backend, &pointer, sizeof pointer));
        CHECK_INT(mean_limit(&backend, 10000), <=, 18);
        CHECK_INT(mean_limit(&backend, 10000), >=, 8);
        CHECK_OK(weir_semaphore_resize(backend.slots, 32));
        CHECK_INT(mean_limit(&backend, 10000), >=, 29);
        CHECK_INT(mean_limit(&backend, 10000), <=, 66);
        CHECK_OK(weir_semaphore_resize(backend.slots, 8));
        CHECK_INT(mean_limit(&backend, 10000), <=, 18);
        atom_store(&backend.over, true);
    }
    CHECK_OK(result);
    /* 10 seconds at 8 slots, 20 at 32, 10 at 8 and more: nearly all of it was used. */
    CHECK_INT(atom_load(&backend.served), >=, 9 * (3000 * 8 + 2000 * 32) / 10);
    return 0;
}

TEST_WITH(adaptive_limit_follows_what_is_behind_it, .workers = 1, .timeout_ms = 60000)
{
    test_clock_auto();
    CHECK_OK(
        weir_run(&(weir_config){.workers = 1, .log_level = WEIR_LOG_OFF}, adaptive_body, NULL));
}

static int overloaded_body(void *arg)
{
    weir_limit_pass pass;
    weir_limit *limit;
    int result;

    (void)arg;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_limit_open(scope,
                                 &(weir_limit_spec){.name = "backend",
                                                    .kind = WEIR_LIMIT_ADAPTIVE,
                                                    .concurrency = 64,
                                                    .concurrency_max = 200,
                                                    .concurrency_min = 4,
                                                    .overflow = WEIR_REJECT},
                                 &limit));
        CHECK_INT(weir_limit_resize(limit, 3), ==, WEIR_EREFUSED);
        for (int i = 0; i < 3000; i++) {
            CHECK_OK(weir_limit_enter(limit, &pass));
            CHECK_OK(weir_sleep(2));
            weir_limit_leave(limit, &pass, i % 2 ? WEIR_ETIMEDOUT : WEIR_EOVERLOAD);
        }
        CHECK_INT(figures(limit).limit, ==, 4);
        CHECK_INT(figures(limit).in_flight, ==, 0);
    }
    return result;
}

TEST_WITH(adaptive_limit_falls_to_its_least_when_nothing_gets_through, .workers = 1)
{
    test_clock_auto();
    CHECK_OK(
        weir_run(&(weir_config){.workers = 1, .log_level = WEIR_LOG_OFF}, overloaded_body, NULL));
}

/* ---- Figures ---- */

FLOW_TEST_CLOCK(limit_counts_and_measures_its_waits)
{
    weir_limit_spec spec = fixed(1, 1);
    struct shared shared = {.arrived = 0};
    uint64_t values[METER_VALUES_MAX];
    static struct histogram waits;
    weir_limit_pass pass;
    struct meter *meter = NULL;
    int result, r = 0;

    spec.latency_ms = 30;
    FLOW_SCOPE(scope, &result)
    {
        struct visit who = {&shared, 0};
        CHECK_OK(weir_limit_open(scope, &spec, &shared.limit));
        meter = meter_get(&limit_meter_kind, "upstream", NULL);
        CHECK_OK(weir_limit_enter(shared.limit, &pass));
        CHECK_OK(weir_spawn(scope, visit, &who, sizeof who));
        CHECK_OK(weir_sleep(20));
        CHECK_INT(weir_limit_enter(shared.limit, &(weir_limit_pass){0}), ==, WEIR_EOVERLOAD);
        meter_values(meter, values);
        CHECK_INT(values[LIMIT_LIMIT], ==, 1);
        CHECK_INT(values[LIMIT_IN_FLIGHT], ==, 1);
        CHECK_INT(values[LIMIT_WAITING], ==, 1);
        CHECK_INT(values[LIMIT_REJECTED], ==, 1);
        CHECK_INT(values[LIMIT_LATENCY_TARGET], ==, 30);
        weir_limit_leave(shared.limit, &pass, 0);
        CHECK_OK(weir_yield());
        CHECK_OK(weir_limit_enter(shared.limit, &pass));
        WEIR_DEADLINE(5) { r = weir_limit_enter(shared.limit, &(weir_limit_pass){0}); }
        CHECK_INT(r, ==, WEIR_ETIMEDOUT);
    }
    meter_values(meter, values); /* what was counted stays */
    CHECK_INT(values[LIMIT_ADMITTED], ==, 3);
    CHECK_INT(values[LIMIT_WAITED], ==, 2);
    CHECK_INT(values[LIMIT_REJECTED], ==, 1);
    CHECK_INT(values[LIMIT_TIMEOUTS], ==, 1);
    CHECK_INT(values[LIMIT_LIMIT], ==, 0);
    meter_read(meter, LIMIT_WAIT, &waits);
    CHECK_INT(waits.count, ==, 1);
    CHECK_INT(waits.sum, ==, 20000000);
    return result;
}

/* ---- Misuse ---- */

static void leave_another(weir_scope *scope)
{
    weir_limit_spec spec = fixed(1, 0);
    weir_limit_pass pass;
    weir_limit *limit, *other;
    CHECK_OK(weir_limit_open(scope, &spec, &limit));
    CHECK_OK(weir_limit_open(scope, &spec, &other));
    CHECK_OK(weir_limit_enter(limit, &pass));
    weir_limit_leave(other, &pass, 0);
}

static void enter_closed(weir_scope *scope)
{
    weir_limit_spec spec = fixed(1, 0);
    weir_limit_pass pass;
    weir_limit *limit;
    CHECK_OK(weir_limit_open(scope, &spec, &limit));
    weir_limit_close(limit);
    CHECK_OK(weir_limit_enter(limit, &pass));
}

static void (*misused)(weir_scope *scope);

static int misuse_body(void *arg)
{
    int result;

    (void)arg;
    FLOW_SCOPE(scope, &result)
    {
        misused(scope);
    }
    return result;
}

static void misuse_child(void *arg)
{
    misused = arg ? leave_another : enter_closed;
    (void)flow_test_run(misuse_body);
}

TEST(limit_misuse_aborts_with_a_sentence)
{
    CHECK_ABORTS(misuse_child, &misused, "weir_limit_leave: the pass is of another limit");
    CHECK_ABORTS(misuse_child, NULL, "weir_limit_enter: the limit is closed");
}

/* ---- For who hands the time on ---- */

FLOW_TEST_CLOCK(limits_say_when_the_time_that_they_were_given_is_old)
{
    weir_limit_spec spec = fixed(1, 0);
    weir_limit_pass pass;
    weir_limit *limit;
    weir_rate *rate;
    int result, r;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_limit_open(scope, &spec, &limit));
        CHECK_OK(weir_rate_open(
            scope,
            &(weir_rate_spec){
                .name = "rate", .rate = 1000, .burst = 1, .overflow = WEIR_WAIT, .waiters_max = 1},
            &rate));
        CHECK_OK(weir_yield()); /* the budget is as large as it gets */
        CHECK_INT(rate_take(rate, 1, weir_now_ns()), ==, 0);
        CHECK_INT(rate_take(rate, 1, weir_now_ns()), ==, LINE_WAITED);
        CHECK_OK(weir_yield());
        for (int i = 0; i < TASK_BUDGET; i++) {
            CHECK_INT(limit_enter(limit, &pass, weir_now_ns()), ==, 0);
            limit_leave(limit, &pass, 0, weir_now_ns());
        }
        r = limit_enter(limit, &pass, weir_now_ns()); /* it has yielded */
        CHECK_INT(r, ==, LINE_WAITED);
        limit_leave(limit, &pass, 0, 0);
    }
    return result;
}

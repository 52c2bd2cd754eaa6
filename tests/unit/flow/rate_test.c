/* rate_test.c - so many in a time: bursts, waiting in order, resizing. */
#include <string.h>

#include "base/atomic.h"
#include "flow/limit.h"
#include "unit/flow/flow_test.h"
#include "watch/registry.h"

#define MS INT64_C(1000000)

static weir_rate_spec rejecting(size_t rate, size_t burst)
{
    return (weir_rate_spec){.name = "mail", .rate = rate, .burst = burst, .overflow = WEIR_REJECT};
}

static weir_rate_spec waiting(size_t rate, size_t burst, size_t waiters_max)
{
    weir_rate_spec spec = rejecting(rate, burst);
    spec.overflow = WEIR_WAIT;
    spec.waiters_max = waiters_max;
    return spec;
}

static weir_rate_figures figures(weir_rate *rate)
{
    weir_rate_figures figures;
    weir_rate_figures_of(rate, &figures);
    return figures;
}

static int reject_body(void *arg)
{
    weir_rate_spec spec = rejecting(10, 3);
    weir_rate *rate;
    int result;

    (void)arg;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_rate_open(scope, &spec, &rate));
        CHECK_OK(weir_rate_take(rate, 2));
        CHECK_INT(weir_rate_take(rate, 2), ==, WEIR_EOVERLOAD); /* all of them or none */
        CHECK_OK(weir_rate_take(rate, 1));
        CHECK_INT(weir_rate_take(rate, 1), ==, WEIR_EOVERLOAD);
        test_clock_advance_ns(100 * MS - 1);
        CHECK_INT(weir_rate_take(rate, 1), ==, WEIR_EOVERLOAD);
        test_clock_advance_ns(1);
        CHECK_OK(weir_rate_take(rate, 1));
        test_clock_advance_ms(10000);
        CHECK_INT(figures(rate).tokens, ==, 3);
        CHECK_INT(weir_rate_take(rate, 4), ==, WEIR_EREFUSED);
        CHECK_CONTAINS(weir_why(), "rate 'mail': 4 tokens can never be had, there are 1 to 3");
        CHECK_INT(weir_rate_take(rate, 0), ==, WEIR_EREFUSED);
        CHECK_INT(figures(rate).admitted, ==, 3);
        CHECK_INT(figures(rate).taken, ==, 4);
        CHECK_INT(figures(rate).rejected, ==, 3);
    }
    return result;
}

TEST_WITH(rate_gives_its_burst_and_then_its_rate_and_rejects_more_at_once, .workers = 1)
{
    test_clock_manual();
    CHECK_OK(weir_run(&(weir_config){.workers = 1, .log_level = WEIR_LOG_OFF}, reject_body, NULL));
}

struct taker {
    weir_rate *rate;
    unsigned tokens;
    int64_t *ret_after_ns;
    int *ret_result;
    int64_t began_ns;
};

static int take(void *arg)
{
    struct taker *taker = arg;

    *taker->ret_result = weir_rate_take(taker->rate, taker->tokens);
    *taker->ret_after_ns = weir_now_ns() - taker->began_ns;
    return 0;
}

static void spawn_taker(weir_scope *scope, weir_rate *rate, unsigned tokens, int64_t *ret_after_ns,
                        int *ret_result)
{
    struct taker taker = {rate, tokens, ret_after_ns, ret_result, weir_now_ns()};
    CHECK_OK(weir_spawn(scope, take, &taker, sizeof taker));
}

FLOW_TEST_CLOCK(rate_serves_those_who_wait_in_order_to_the_nanosecond)
{
    static const unsigned wanted[6] = {1, 3, 1, 2, 1, 4};
    weir_rate_spec spec = waiting(100, 4, 6);
    int64_t after_ns[6];
    int results[6], result;
    unsigned sum = 0;
    weir_rate *rate;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_rate_open(scope, &spec, &rate));
        CHECK_OK(weir_rate_take(rate, 4));
        for (int i = 0; i < 6; i++) spawn_taker(scope, rate, wanted[i], &after_ns[i], &results[i]);
        CHECK_OK(weir_yield());
        CHECK_INT(weir_rate_take(rate, 1), ==, WEIR_EOVERLOAD); /* six wait already */
        CHECK_INT(figures(rate).waiting, ==, 6);
    }
    CHECK_OK(result);
    for (int i = 0; i < 6; i++) {
        sum += wanted[i];
        CHECK_INT(results[i], ==, 0);
        CHECK_INT(after_ns[i], ==, 10 * MS * sum);
    }
    return 0;
}

FLOW_TEST_CLOCK(rate_whose_first_in_line_gives_up_serves_the_next_sooner)
{
    weir_rate_spec spec = waiting(10, 5, 6);
    int64_t after_ns;
    int second, result, r = 0;
    weir_rate *rate;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_rate_open(scope, &spec, &rate));
        CHECK_OK(weir_rate_take(rate, 5));
        spawn_taker(scope, rate, 1, &after_ns, &second); /* behind the one below */
        WEIR_DEADLINE(150) { r = weir_rate_take(rate, 5); }
        CHECK_INT(r, ==, WEIR_ETIMEDOUT);
    }
    CHECK_OK(result);
    CHECK_OK(second);
    CHECK_INT(after_ns, ==, 150 * MS); /* the one that had come by then */
    return 0;
}

FLOW_TEST_CLOCK(rate_changes_for_those_who_wait)
{
    weir_rate_spec spec = waiting(1, 5, 6);
    int64_t after_ns[3];
    int results[3], result;
    weir_rate *rate;

    spec.rate_max = 100;
    spec.burst_max = 6;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_rate_open(scope, &spec, &rate));
        CHECK_INT(weir_rate_resize(rate, 101, 0), ==, WEIR_EREFUSED);
        CHECK_CONTAINS(weir_why(), "rate_max");
        CHECK_INT(weir_rate_resize(rate, 0, 7), ==, WEIR_EREFUSED);
        CHECK_CONTAINS(weir_why(), "burst_max");
        CHECK_OK(weir_rate_take(rate, 5));
        spawn_taker(scope, rate, 4, &after_ns[0], &results[0]);
        spawn_taker(scope, rate, 2, &after_ns[1], &results[1]);
        spawn_taker(scope, rate, 3, &after_ns[2], &results[2]);
        CHECK_OK(weir_sleep(1000)); /* one has come */
        CHECK_OK(weir_rate_resize(rate, 10, 3));
    }
    CHECK_OK(result);
    CHECK_INT(results[0], ==, WEIR_EOVERLOAD); /* that many do not fit any more */
    CHECK_INT(after_ns[0], ==, 1000 * MS);
    CHECK_INT(results[1], ==, 0);
    CHECK_INT(after_ns[1], ==, 1100 * MS);
    CHECK_INT(results[2], ==, 0);
    CHECK_INT(after_ns[2], ==, 1400 * MS);
    return 0;
}

FLOW_TEST(rate_that_ends_tells_those_who_wait)
{
    weir_rate_spec spec = waiting(1, 1, 6);
    int64_t after_ns[3];
    int results[3], result;
    weir_rate *rate;

    spec.per_ms = 1000000;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_rate_open(scope, &spec, &rate));
        CHECK_OK(weir_rate_take(rate, 1));
        for (int i = 0; i < 3; i++) spawn_taker(scope, rate, 1, &after_ns[i], &results[i]);
        CHECK_OK(weir_yield());
        weir_rate_close(rate);
    }
    CHECK_OK(result);
    for (int i = 0; i < 3; i++) CHECK_INT(results[i], ==, WEIR_ECLOSED);
    return 0;
}

FLOW_TEST(rate_spec_names_what_is_missing)
{
    static const struct {
        weir_rate_spec spec;
        const char *why;
    } rows[] = {
        {{.rate = 1, .burst = 1, .overflow = WEIR_REJECT}, "name"},
        {{.name = "r", .burst = 1, .overflow = WEIR_REJECT}, "rate is not set"},
        {{.name = "r", .rate = 1, .overflow = WEIR_REJECT}, "burst is not set"},
        {{.name = "r", .rate = 1, .burst = 1}, "overflow is not set"},
        {{.name = "r", .rate = 1, .burst = 1, .overflow = WEIR_WAIT}, "waiters_max is not set"},
        {{.name = "r", .rate = 1, .burst = 1, .overflow = WEIR_REJECT, .waiters_max = 1},
         "nobody waits"},
        {{.name = "r", .rate = 1, .burst = 1, .overflow = WEIR_DROP_NEWEST}, "must be WEIR_WAIT"},
        {{.name = "r", .rate = 2, .burst = 1, .overflow = WEIR_REJECT, .rate_max = 1}, "rate_max"},
        {{.name = "r", .rate = 1, .burst = 2, .overflow = WEIR_REJECT, .burst_max = 1},
         "burst_max"},
        {{.name = "r", .rate = 1, .burst = 1, .overflow = WEIR_REJECT, .per_ms = -1}, "per_ms"},
        {{.name = "r", .rate = 1, .burst = 1, .overflow = WEIR_REJECT, .latency_ms = -1},
         "latency_ms"},
        {{.name = "r", .rate = 1, .burst = SIZE_MAX, .overflow = WEIR_REJECT},
         "more than can be counted"},
        {{.name = "r", .rate = 1, .burst = 1, .overflow = WEIR_REJECT, .per_ms = INT64_MAX},
         "more than can be counted"},
    };
    int result;

    FLOW_SCOPE(scope, &result)
    {
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            weir_rate *rate;
            test_note("row %zu", i);
            CHECK_INT(weir_rate_open(scope, &rows[i].spec, &rate), ==, WEIR_EREFUSED);
            CHECK_CONTAINS(weir_why(), rows[i].why);
        }
    }
    return result;
}

FLOW_TEST_CLOCK(rate_counts_and_measures_its_waits)
{
    weir_rate_spec spec = waiting(10, 1, 1);
    uint64_t values[METER_VALUES_MAX];
    static struct histogram waits;
    struct meter *meter = NULL;
    weir_rate *rate;
    int result, r = 0;

    spec.latency_ms = 30;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_rate_open(scope, &spec, &rate));
        meter = meter_get(&rate_meter_kind, "mail", NULL);
        CHECK_OK(weir_rate_take(rate, 1));
        CHECK_OK(weir_rate_take(rate, 1));
        WEIR_DEADLINE(5) { r = weir_rate_take(rate, 1); }
        CHECK_INT(r, ==, WEIR_ETIMEDOUT);
        meter_values(meter, values);
        CHECK_INT(values[RATE_RATE], ==, 10000); /* shown with three digits */
        CHECK_INT(values[RATE_BURST], ==, 1);
        CHECK_INT(values[RATE_LATENCY_TARGET], ==, 30);
    }
    meter_values(meter, values);
    CHECK_INT(values[RATE_ADMITTED], ==, 2);
    CHECK_INT(values[RATE_TAKEN], ==, 2);
    CHECK_INT(values[RATE_WAITED], ==, 2);
    CHECK_INT(values[RATE_TIMEOUTS], ==, 1);
    meter_read(meter, RATE_WAIT, &waits);
    CHECK_INT(waits.count, ==, 1);
    CHECK_INT(waits.sum, ==, 100 * MS);
    return result;
}

/* ---- On all workers: whoever waits is served by the worker that the rate lives on ---- */

struct crowd {
    weir_rate *rate;
    ATOM(long) taken, rejected;
};

static int take_often(void *arg)
{
    struct crowd *crowd = *(struct crowd **)arg;

    for (int i = 0; i < 20; i++) {
        int r = weir_rate_take(crowd->rate, 1 + (unsigned)i % 3);
        if (r == WEIR_EOVERLOAD) {
            (void)atom_add(&crowd->rejected, 1);
            r = weir_yield();
        } else if (r == 0) {
            (void)atom_add(&crowd->taken, 1 + i % 3);
        }
        if (r < 0) return r;
    }
    return 0;
}

FLOW_TEST(rate_gives_no_more_than_it_says_to_tasks_on_all_workers)
{
    weir_rate_spec spec = waiting(20000, 10, 30);
    struct crowd crowd = {.taken = 0}, *pointer = &crowd;
    int64_t began_ns, passed_ns = 0;
    int result;

    FLOW_SCOPE_ANYWHERE(scope, &result)
    {
        began_ns = weir_now_ns();
        CHECK_OK(weir_rate_open(scope, &spec, &crowd.rate));
        for (int i = 0; i < 40; i++)
            CHECK_OK(weir_spawn(scope, take_often, &pointer, sizeof pointer));
        CHECK_OK(weir_scope_join(scope));
        passed_ns = weir_now_ns() - began_ns;
        CHECK_INT(figures(crowd.rate).taken, ==, atom_load(&crowd.taken));
        CHECK_INT(figures(crowd.rate).rejected, ==, atom_load(&crowd.rejected));
        CHECK_INT(figures(crowd.rate).waiting, ==, 0);
    }
    CHECK_OK(result);
    CHECK_INT(atom_load(&crowd.taken), <=, 10 + passed_ns / (50 * 1000) + 1);
    CHECK_INT(atom_load(&crowd.taken), >, 0);
    return 0;
}

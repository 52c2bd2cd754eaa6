/* shed_test.c - shedding by how long things have waited. */
#include <string.h>

#include "flow/limit.h"
#include "unit/flow/flow_test.h"
#include "watch/registry.h"

#define MS INT64_C(1000000)

static const weir_shed_spec spec = {.name = "requests", .target_ms = 5, .interval_ms = 100};

static int shed_body(void *arg)
{
    uint64_t values[METER_VALUES_MAX];
    weir_shed_figures figures;
    weir_shed *shed;
    int result;

    (void)arg;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_shed_open(scope, &spec, &shed));
        CHECK_OK(weir_shed_enter(shed, -1));
        CHECK_OK(weir_shed_enter(shed, 4 * MS));
        CHECK_OK(weir_shed_enter(shed, 50 * MS)); /* a burst, for an interval */
        test_clock_advance_ms(99);
        CHECK_OK(weir_shed_enter(shed, 50 * MS));
        CHECK(!weir_shed_is_shedding(shed));
        test_clock_advance_ms(1);
        CHECK_INT(weir_shed_enter(shed, 50 * MS), ==, WEIR_EOVERLOAD);
        CHECK(weir_shed_is_shedding(shed));
        CHECK_OK(weir_shed_enter(shed, 50 * MS));
        test_clock_advance_ms(100);
        CHECK_INT(weir_shed_enter(shed, 50 * MS), ==, WEIR_EOVERLOAD);
        CHECK_OK(weir_shed_enter(shed, 0));
        CHECK(!weir_shed_is_shedding(shed));
        CHECK_INT(weir_shed_enter(shed, 101 * MS), ==,
                  WEIR_EOVERLOAD); /* by default: an interval */
        weir_shed_figures_of(shed, &figures);
        CHECK_INT(figures.admitted, ==, 6);
        CHECK_INT(figures.shed, ==, 3);
        CHECK_INT(figures.too_late, ==, 1);
        CHECK(!figures.shedding);
        weir_shed_close(shed);
        meter_values(meter_get(&shed_meter_kind, "requests", NULL), values);
        CHECK_INT(values[SHED_ADMITTED], ==, 6);
        CHECK_INT(values[SHED_SHED], ==, 3);
        CHECK_INT(values[SHED_TOO_LATE], ==, 1);
        CHECK_INT(values[SHED_TARGET], ==, 5 * MS);
    }
    return result;
}

TEST_WITH(shed_lets_a_burst_pass_and_sheds_what_lasts, .workers = 1)
{
    test_clock_manual();
    CHECK_OK(weir_run(&(weir_config){.workers = 1, .log_level = WEIR_LOG_OFF}, shed_body, NULL));
}

FLOW_TEST(shed_spec_names_what_is_missing)
{
    static const struct {
        weir_shed_spec spec;
        const char *why;
    } rows[] = {
        {{.target_ms = 1, .interval_ms = 2}, "name"},
        {{.name = "s", .interval_ms = 2}, "target_ms is not set"},
        {{.name = "s", .target_ms = 2}, "interval_ms is not set"},
        {{.name = "s", .target_ms = -2, .interval_ms = 2}, "target_ms must not be negative"},
        {{.name = "s", .target_ms = 3, .interval_ms = 2}, "interval_ms is less than target_ms"},
        {{.name = "s", .target_ms = 3, .interval_ms = INT64_MAX}, "interval_ms is too long"},
        {{.name = "s", .target_ms = 3, .interval_ms = 4, .wait_max_ms = 2}, "wait_max_ms is less"},
    };
    int result;

    FLOW_SCOPE(scope, &result)
    {
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            weir_shed *shed;
            test_note("row %zu", i);
            CHECK_INT(weir_shed_open(scope, &rows[i].spec, &shed), ==, WEIR_EREFUSED);
            CHECK_CONTAINS(weir_why(), rows[i].why);
        }
    }
    return result;
}

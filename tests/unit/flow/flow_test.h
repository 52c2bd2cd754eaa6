/* flow_test.h - what the tests of the flow layer share.
 *
 *     FLOW_TEST(name) { ... return 0; }
 *
 * is a test whose body is the first task of a runtime with test_workers() workers.
 */
#ifndef WEIR_TESTS_FLOW_TEST_H
#define WEIR_TESTS_FLOW_TEST_H

#include <weir/weir.h>

#include "base/histogram.h"
#include "harness/test.h"

typedef WEIR_TX(int) int_tx;
typedef WEIR_RX(int) int_rx;

static inline int flow_test_task(void *arg)
{
    weir_task_fn *body = arg;
    WEIR_DEADLINE((int64_t)20000 * test_slower()) { return (*body)(NULL); }
    return WEIR_EREFUSED;
}

static inline int flow_test_run(weir_task_fn body)
{
    return weir_run(&(weir_config){.workers = test_workers(), .log_level = WEIR_LOG_OFF},
                    flow_test_task, &body);
}

#define FLOW_TEST(name_)                            \
    static int flow_body_##name_(void *arg);        \
    TEST(name_)                                     \
    {                                               \
        CHECK_OK(flow_test_run(flow_body_##name_)); \
    }                                               \
    static int flow_body_##name_(__attribute__((unused)) void *arg)

/* The same with locks that are checked, and again with locks that are not, which go another
 * way. */
static inline void flow_test_both(weir_task_fn body)
{
    weir_config config = {.workers = test_workers(), .log_level = WEIR_LOG_OFF};

    config.lock_checks = WEIR_CHECKS_ON;
    CHECK_OK(weir_run(&config, flow_test_task, &body));
    config.lock_checks = WEIR_CHECKS_OFF;
    CHECK_OK(weir_run(&config, flow_test_task, &body));
}

#define FLOW_TEST_LOCKS(name_)                                           \
    static int flow_body_##name_(void *arg);                             \
    TEST_WITH(name_, .timeout_ms = (int64_t)2 * TEST_TIMEOUT_MS_DEFAULT) \
    {                                                                    \
        flow_test_both(flow_body_##name_);                               \
    }                                                                    \
    static int flow_body_##name_(__attribute__((unused)) void *arg)

/* The same on one worker, with a clock that moves only while nothing can run: no deadline
 * passes before its time, however busy the machine is. */
#define FLOW_TEST_CLOCK(name_)                      \
    static int flow_body_##name_(void *arg);        \
    TEST_WITH(name_, .workers = 1)                  \
    {                                               \
        test_clock_auto();                          \
        CHECK_OK(flow_test_run(flow_body_##name_)); \
    }                                               \
    static int flow_body_##name_(__attribute__((unused)) void *arg)

/* What so many histograms may still grow by: on each worker they have a band for every order
 * of magnitude that was seen, and a busy machine shows many. */
#define FLOW_TEST_FIGURES_BYTES(histograms) \
    ((size_t)(histograms) * ((size_t)test_workers() + 1) * HISTOGRAM_BUCKETS * sizeof(uint64_t))

/* The same with nothing measured, to count memory: a histogram takes some when it first sees
 * a value of some size. */
#define FLOW_TEST_UNMEASURED(name_)                                                     \
    static int flow_body_##name_(void *arg);                                            \
    TEST(name_)                                                                         \
    {                                                                                   \
        weir_task_fn body = flow_body_##name_;                                          \
        weir_config config = {                                                          \
            .workers = test_workers(), .metrics_off = true, .log_level = WEIR_LOG_OFF}; \
        CHECK_OK(weir_run(&config, flow_test_task, &body));                             \
    }                                                                                   \
    static int flow_body_##name_(__attribute__((unused)) void *arg)

/* A scope of the test: its tasks stay on the worker of the one who spawns them, so that
 * one yield lets each of them run until it waits. */
#define FLOW_SCOPE(scope_, ret_result, ...)                                      \
    WEIR_SCOPE(scope_, ret_result, .name = "test", .on_failure = WEIR_FAIL_FAST, \
               .max_tasks = 2048, .overflow = WEIR_REJECT, .place = WEIR_PLACE_HERE, __VA_ARGS__)

/* The same with tasks on any worker. */
#define FLOW_SCOPE_ANYWHERE(scope_, ret_result)                                  \
    WEIR_SCOPE(scope_, ret_result, .name = "test", .on_failure = WEIR_FAIL_FAST, \
               .max_tasks = 2048, .overflow = WEIR_REJECT)

#endif

/* metrics_test.c - meters: counting on all threads, sharing, bounds; and what is written. */
#include "watch/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit/flow/flow_test.h"
#include "unit/watch/formats.h"
#include "watch/expose.h"
#include "watch/registry.h"

static char text[1024 * 1024];

static int keep_text(const char *data, size_t bytes, void *keep_arg)
{
    (void)keep_arg;
    CHECK_INT(bytes, <, sizeof text);
    CHECK_INT(strlen(data), ==, bytes);
    memcpy(text, data, bytes + 1);
    return 0;
}

static void scrape(enum weir_metrics_format format)
{
    CHECK_OK(weir_metrics_read(format, keep_text, NULL));
    if (format == WEIR_METRICS_JSON) {
        check_json(text);
    } else {
        check_prometheus(text);
    }
}

/* ---- Text ---- */

TEST(text_escapes_what_a_reader_would_take_for_syntax)
{
    struct text out;

    text_init(&out);
    text_json(&out, "a\"b\\c\nd\x01\x7f\xc3\xa4");
    CHECK_STR(out.data, "\"a\\\"b\\\\c\\u000ad\\u0001\\u007f\xc3\xa4\"");
    out.used = 0;
    text_label(&out, "a\"b\\c\nd\xf0\x9f\x98\x80");
    CHECK_STR(out.data, "\"a\\\"b\\\\c\\nd\xf0\x9f\x98\x80\"");
    out.used = 0;
    text_plain(&out, "a\nb\tc");
    CHECK_STR(out.data, "a?b?c");
    text_deinit(&out);
}

TEST(text_has_no_broken_utf8)
{
    /* Cut off, overlong, a surrogate, above U+10FFFF, a lone continuation. */
    static const char *const broken[] = {"\xc3",         "\xc0\x80",         "\xe0\x80\x80",
                                         "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf5",
                                         "\x80",         "\xe2\x82"};
    struct text out;

    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        test_note("row %zu", i);
        text_init(&out);
        text_label(&out, broken[i]);
        CHECK(strncmp(out.data, "\"\xef\xbf\xbd", 4) == 0);
        CHECK(strpbrk(out.data, "\xc3\xc0\xe0\xed\xf4\xf5\xe2") == NULL);
        text_deinit(&out);
    }
}

TEST(text_decimals_are_exact)
{
    static const struct {
        uint64_t value;
        unsigned digits;
        const char *shown;
    } rows[] = {{0, 9, "0"},       {1, 9, "0.000000001"},
                {1500, 3, "1.5"},  {1000000000, 9, "1"},
                {42, 0, "42"},     {UINT64_MAX, 0, "18446744073709551615"},
                {1002, 3, "1.002"}};
    struct text out;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        text_init(&out);
        text_decimal(&out, rows[i].value, rows[i].digits);
        CHECK_STR(out.data, rows[i].shown);
        text_deinit(&out);
    }
}

/* ---- Meters ---- */

enum { COUNT, LARGEST, NOW };

static const struct meter_value values[] = {
    [COUNT] = {"weir_test_things_total", "Things.", METER_COUNTER},
    [LARGEST] = {"weir_test_largest", "The largest.", METER_GAUGE_MAX},
    [NOW] = {"weir_test_now", "Now.", METER_GAUGE},
};
static const struct meter_histogram histograms[] = {{"weir_test_wait_seconds", "Waits."}};

struct thing {
    struct metered metered;
    uint64_t count, largest, now;
};

static void collect_thing(struct metered *object, uint64_t *ret_values)
{
    const struct thing *thing = container_of(object, struct thing, metered);
    ret_values[COUNT] = thing->count;
    ret_values[LARGEST] = thing->largest;
    ret_values[NOW] = thing->now;
}

static const struct meter_kind test_kind = {
    .labels = {"thing", "class"},
    .values = values,
    .value_count = 3,
    .histograms = histograms,
    .histogram_count = 1,
    .collect = collect_thing,
};

#define THIRTY "123456789 123456789 123456789 "

FLOW_TEST(meters_are_shared_by_kind_and_name)
{
    struct meter *meter = meter_get(&test_kind, "a", NULL);

    CHECK(meter != NULL);
    CHECK(meter_get(&test_kind, "a", NULL) == meter);
    CHECK(meter_get(&test_kind, "a", "") == meter);
    CHECK(meter_get(&test_kind, "b", NULL) != meter);
    CHECK(meter_get(&test_kind, "a", "b") != meter);
    /* What does not fit into a name is not looked at either. */
    CHECK(meter_get(&test_kind, THIRTY THIRTY "123", NULL) ==
          meter_get(&test_kind, THIRTY THIRTY "123456", NULL));
    CHECK(meter_get(&test_kind, THIRTY THIRTY "123", NULL) !=
          meter_get(&test_kind, THIRTY THIRTY "124", NULL));
    return 0;
}

/* A name is cut after 63 bytes, which may be inside a character. */
FLOW_TEST(names_that_are_shown_alike_are_one_series)
{
    static const char *const names[] = {"broken \xff", "broken \xfe", "broken ?",
                                        THIRTY THIRTY "12\xc3\xa4", THIRTY THIRTY "12\xd0\xb9"};
    struct meter *meters[5];

    for (int i = 0; i < 5; i++) meters[i] = meter_get(&test_kind, names[i], NULL);
    CHECK(meters[0] && meters[0] == meters[1] && meters[1] == meters[2]);
    CHECK(meters[3] && meters[3] == meters[4] && meters[3] != meters[0]);
    return 0;
}

FLOW_TEST(meters_keep_the_counters_of_objects_that_have_ended)
{
    struct meter *meter = meter_get(&test_kind, "a", "b");
    struct thing first = {.count = 3, .largest = 9, .now = 2};
    struct thing second = {.count = 4, .largest = 5, .now = 1};
    uint64_t seen[METER_VALUES_MAX];

    meter_enter(&first.metered, meter);
    meter_enter(&second.metered, meter);
    meter_count(meter, COUNT, 10);
    meter_values(meter, seen);
    CHECK_INT(seen[COUNT], ==, 17);
    CHECK_INT(seen[LARGEST], ==, 9);
    CHECK_INT(seen[NOW], ==, 3);
    meter_leave(&first.metered);
    meter_values(meter, seen);
    CHECK_INT(seen[COUNT], ==, 17);
    CHECK_INT(seen[LARGEST], ==, 9);
    CHECK_INT(seen[NOW], ==, 1);
    meter_leave(&second.metered);
    meter_leave(&second.metered); /* changes nothing */
    meter_values(meter, seen);
    CHECK_INT(seen[COUNT], ==, 17);
    CHECK_INT(seen[NOW], ==, 0);
    return 0;
}

enum { COUNTERS = 16, TIMES = 2000 };

static int count_some(void *arg)
{
    struct meter *meter = *(struct meter **)arg;
    for (int i = 0; i < TIMES; i++) {
        meter_count(meter, COUNT, 1);
        meter_count(meter, LARGEST, (uint64_t)i);
        meter_observe(meter, 0, i);
        if (i % 100 == 0) CHECK_OK(weir_yield());
    }
    return 0;
}

static void *count_from_outside(void *arg)
{
    for (int i = 0; i < TIMES; i++) {
        meter_count(arg, COUNT, 1);
        meter_observe(arg, 0, i);
    }
    return NULL;
}

FLOW_TEST(meters_count_exactly_on_all_workers_and_other_threads)
{
    struct meter *meter = meter_get(&test_kind, "a", "b");
    static struct histogram seen, expected;
    uint64_t now[METER_VALUES_MAX];
    pthread_t threads[2];
    int result;

    for (int i = 0; i < 2; i++) {
        CHECK_INT(pthread_create(&threads[i], NULL, count_from_outside, meter), ==, 0);
    }
    FLOW_SCOPE_ANYWHERE(scope, &result)
    {
        for (int i = 0; i < COUNTERS; i++) {
            CHECK_OK(weir_spawn(scope, count_some, &meter, sizeof meter));
        }
        while (weir_scope_task_count(scope) > 0) { /* somebody looks meanwhile */
            meter_values(meter, now);
            CHECK_INT(now[COUNT], <=, (COUNTERS + 2) * TIMES);
            CHECK_OK(weir_yield());
        }
    }
    for (int i = 0; i < 2; i++) CHECK_INT(pthread_join(threads[i], NULL), ==, 0);
    histogram_init(&expected);
    for (int i = 0; i < (COUNTERS + 2) * TIMES; i++)
        histogram_add(&expected, (uint64_t)(i % TIMES));
    meter_values(meter, now);
    meter_read(meter, 0, &seen);
    CHECK_INT(now[COUNT], ==, (COUNTERS + 2) * TIMES);
    CHECK_INT(now[LARGEST], ==, TIMES - 1);
    CHECK(memcmp(&seen, &expected, sizeof seen) == 0);
    return result;
}

FLOW_TEST(too_many_series_are_counted_and_not_measured)
{
    char name[METER_NAME_BYTES];
    int measured = 0;

    for (int i = 0; i < WEIR_METRICS_SERIES_MAX + 10; i++) {
        (void)snprintf(name, sizeof name, "n%d", i);
        measured += meter_get(&test_kind, name, NULL) != NULL;
    }
    CHECK_INT(measured, ==, WEIR_METRICS_SERIES_MAX);
    CHECK(meter_get(&test_kind, "n7", NULL) != NULL);
    CHECK_OK(weir_metrics_read(WEIR_METRICS_JSON, keep_text, NULL));
    CHECK_CONTAINS(text, "\"name\":\"weir_metrics_series\",\"type\":\"gauge\"");
    CHECK_CONTAINS(text, "{\"labels\":{},\"value\":1024}");
    CHECK_CONTAINS(text, "\"name\":\"weir_metrics_refused_total\"");
    CHECK_CONTAINS(text, "{\"labels\":{},\"value\":10}");
    return 0;
}

FLOW_TEST(without_memory_a_figure_is_lost_and_counted)
{
    struct meter *meter = meter_get(&test_kind, "a", "b");
    static struct histogram seen;

    test_fail_alloc_at(1); /* the shard */
    meter_observe(meter, 0, 1);
    test_fail_alloc_at(2); /* the band */
    meter_observe(meter, 0, 1);
    meter_observe(meter, 0, 2);
    meter_read(meter, 0, &seen);
    CHECK_INT(seen.count, ==, 1);
    CHECK_INT(seen.max, ==, 2);
    scrape(WEIR_METRICS_PROMETHEUS);
    CHECK_CONTAINS(text, "\nweir_metrics_lost_total 2\n");
    return 0;
}

static int nothing_is_measured(void *arg)
{
    (void)arg;
    CHECK(meter_get(&test_kind, "a", NULL) == NULL);
    meter_count(NULL, COUNT, 1);
    meter_observe(NULL, 0, 1);
    scrape(WEIR_METRICS_PROMETHEUS);
    CHECK_CONTAINS(text, "\nweir_metrics_series 0\n");
    return 0;
}

TEST(metrics_can_be_off)
{
    CHECK_OK(
        weir_run(&(weir_config){.workers = 1, .metrics_off = true}, nothing_is_measured, NULL));
}

/* ---- What is written ---- */

static int_tx tx;
static int_rx rx;

static void open_channel(weir_scope *scope, const char *name)
{
    const weir_chan_spec spec = {.name = name,
                                 .capacity = 4,
                                 .overflow = WEIR_REJECT,
                                 .on_close = WEIR_DRAIN,
                                 .latency_ms = 1500};
    CHECK_OK(weir_chan_open(scope, &spec, &tx, &rx));
}

FLOW_TEST(prometheus_text_is_strict_and_says_what_happened)
{
    int result, item = 1;

    FLOW_SCOPE(scope, &result)
    {
        open_channel(scope, "orders \"new\"\\");
        for (int i = 0; i < 5; i++) {
            CHECK_INT(weir_try_send(tx, &item), ==, i < 4 ? 0 : WEIR_EOVERLOAD);
        }
        CHECK_INT(weir_try_recv(rx, &item), ==, 1);
        scrape(WEIR_METRICS_PROMETHEUS);
    }
    CHECK_CONTAINS(text, "# HELP weir_channel_depth Items that are stored now.\n"
                         "# TYPE weir_channel_depth gauge\n"
                         "weir_channel_depth{channel=\"orders \\\"new\\\"\\\\\"} 3\n");
    CHECK_CONTAINS(text, "weir_channel_depth_max{channel=\"orders \\\"new\\\"\\\\\"} 4\n");
    CHECK_CONTAINS(text, "weir_channel_rejected_total{channel=\"orders \\\"new\\\"\\\\\"} 1\n");
    CHECK_CONTAINS(text, "weir_channel_accepted_total{channel=\"orders \\\"new\\\"\\\\\"} 4\n");
    CHECK_CONTAINS(text,
                   "weir_channel_latency_target_seconds{channel=\"orders \\\"new\\\"\\\\\"} 1.5\n");
    CHECK_CONTAINS(text, "\nweir_build_info{version=\"0.1.0\",backend=\"");
    CHECK_CONTAINS(text, "\nweir_tasks{state=\"running\"} 1\n");
    CHECK_CONTAINS(text, "\nprocess_resident_memory_bytes ");
    CHECK_CONTAINS(text, "\nprocess_start_time_seconds ");
    CHECK_CONTAINS(text, "\nprocess_open_fds ");
    CHECK_CONTAINS(text, "\nprocess_cpu_seconds_total ");
    scrape(WEIR_METRICS_PROMETHEUS);
    CHECK_CONTAINS(text, "weir_channel_open{channel=\"orders \\\"new\\\"\\\\\"} 0\n");
    CHECK_CONTAINS(text, "weir_channel_depth{channel=\"orders \\\"new\\\"\\\\\"} 0\n");
    CHECK_CONTAINS(text, "weir_channel_accepted_total{channel=\"orders \\\"new\\\"\\\\\"} 4\n");
    return result;
}

FLOW_TEST(metrics_as_json_have_quantiles)
{
    struct meter *meter = meter_get(&test_kind, "a", "b\n");

    for (int i = 1; i <= 100; i++) meter_observe(meter, 0, i * INT64_C(1000000));
    scrape(WEIR_METRICS_JSON);
    CHECK_CONTAINS(text, "{\"name\":\"weir_test_wait_seconds\",\"type\":\"histogram\",\"help\":"
                         "\"Waits.\",\"samples\":[{\"labels\":{\"thing\":\"a\",\"class\":"
                         "\"b\\u000a\"},\"count\":100,\"sum\":5.05,\"p50\":0.0");
    CHECK_CONTAINS(text, "\"max\":0.1}");
    return 0;
}

FLOW_TEST(histograms_have_cumulative_buckets)
{
    struct meter *meter = meter_get(&test_kind, "a", NULL);

    meter_observe(meter, 0, 800);
    meter_observe(meter, 0, 40000);
    meter_observe(meter, 0, INT64_C(3000000000));
    scrape(WEIR_METRICS_PROMETHEUS);
    CHECK_CONTAINS(text,
                   "weir_test_wait_seconds_bucket{thing=\"a\",class=\"\",le=\"0.000001\"} 1\n");
    CHECK_CONTAINS(text, "le=\"0.000025\"} 1\n");
    CHECK_CONTAINS(text, "le=\"0.00005\"} 2\n");
    CHECK_CONTAINS(text, "le=\"2.5\"} 2\n");
    CHECK_CONTAINS(text, "le=\"5\"} 3\n");
    CHECK_CONTAINS(text, "le=\"+Inf\"} 3\n");
    CHECK_CONTAINS(text, "weir_test_wait_seconds_sum{thing=\"a\",class=\"\"} 3.0000408\n");
    CHECK_CONTAINS(text, "weir_test_wait_seconds_count{thing=\"a\",class=\"\"} 3\n");
    return 0;
}

TEST(metrics_need_a_format_and_a_runtime)
{
    CHECK_INT(weir_metrics_write(1, WEIR_METRICS_JSON), ==, WEIR_ENOTASK);
    CHECK_INT(weir_metrics_read(WEIR_METRICS_JSON, NULL, NULL), ==, WEIR_EREFUSED);
}

FLOW_TEST(metrics_refuse_an_unset_format_and_pass_errors_on)
{
    CHECK_INT(weir_metrics_write(1, WEIR_METRICS_FORMAT_UNSET), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "format is not set");
    CHECK_INT(weir_metrics_write(-1, WEIR_METRICS_JSON), ==, -EBADF);
    return 0;
}

static int look_at_figures(void *arg)
{
    static const weir_chan_spec spec = {
        .name = "orders", .capacity = 4, .overflow = WEIR_REJECT, .on_close = WEIR_DRAIN};
    int result, r = 0;

    (void)arg;
    FLOW_SCOPE(scope, &result)
    {
        r = weir_chan_open(scope, &spec, &tx, &rx);
        if (r == 0) r = weir_metrics_read(WEIR_METRICS_PROMETHEUS, keep_text, NULL);
        if (r == 0) check_prometheus(text);
    }
    return result < 0 ? result : r;
}

static int run_look(void *arg)
{
    return weir_run(&(weir_config){.workers = 1, .log_level = WEIR_LOG_OFF}, look_at_figures, arg);
}

TEST(metrics_survive_a_lack_of_memory_anywhere)
{
    CHECK_INT(test_sweep_alloc(run_look, NULL), >, 5);
}

TEST(metrics_leave_out_what_the_system_does_not_tell)
{
    CHECK_INT(test_sweep_calls(run_look, NULL, -EIO), >, 5);
}

/* ---- promtool ---- */

static int write_figures(void *arg)
{
    int result, item = 1;

    FLOW_SCOPE(scope, &result)
    {
        open_channel(scope, "orders");
        for (int i = 0; i < 100; i++) {
            CHECK_OK(weir_try_send(tx, &item));
            CHECK_INT(weir_try_recv(rx, &item), ==, 1);
        }
        CHECK_OK(weir_metrics_write(*(int *)arg, WEIR_METRICS_PROMETHEUS));
    }
    return result;
}

static bool find_promtool(char *path, size_t bytes)
{
    const char *at = getenv("PATH");

    while (at && *at) {
        int folder = (int)strcspn(at, ":");
        (void)snprintf(path, bytes, "%.*s/promtool", folder, at);
        if (access(path, X_OK) == 0) return true;
        at += folder + (at[folder] == ':');
    }
    return false;
}

struct promtool {
    char path[256];
    int fd;
};

static void check_with_promtool(void *arg)
{
    const struct promtool *promtool = arg;

    CHECK_INT(lseek(promtool->fd, 0, SEEK_SET), ==, 0);
    CHECK_INT(dup2(promtool->fd, 0), ==, 0);
    test_become((const char *const[]){promtool->path, "check", "metrics", NULL});
    TEST_FAIL("promtool cannot be run");
}

TEST(promtool_finds_nothing_wrong_with_the_metrics)
{
    struct promtool promtool;
    int status;

    if (!find_promtool(promtool.path, sizeof promtool.path)) {
        TEST_SKIP("there is no promtool (package prometheus)");
    }
    promtool.fd = memfd_create("metrics", MFD_CLOEXEC);
    CHECK_OK(weir_run(&(weir_config){.workers = 1}, write_figures, &promtool.fd));
    status = test_child(check_with_promtool, &promtool, text, sizeof text);
    CHECK_INT(close(promtool.fd), ==, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || text[0]) {
        TEST_FAIL("promtool says: %s", text);
    }
}

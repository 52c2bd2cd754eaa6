/* broadcast_test.c - every value to each, or the latest to all. */
#include <string.h>

#include "unit/flow/flow_test.h"

static const weir_broadcast_spec four = {
    .name = "news", .value_bytes = sizeof(int), .history = 4, .subscribers_max = 8};

static void publish(weir_broadcast *broadcast, int from, int count)
{
    for (int i = from; i < from + count; i++) CHECK_OK(weir_broadcast_publish(broadcast, &i));
}

FLOW_TEST(broadcast_gives_every_value_to_each_subscriber_in_order)
{
    weir_broadcast *broadcast;
    weir_subscriber *a, *b;
    int result, value;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_broadcast_open(scope, &four, &broadcast));
        CHECK_OK(weir_broadcast_subscribe(broadcast, WEIR_LAG_SKIP, false, &a));
        publish(broadcast, 0, 2);
        CHECK_OK(weir_broadcast_subscribe(broadcast, WEIR_LAG_SKIP, true, &b));
        publish(broadcast, 2, 1);
        for (int i = 0; i < 3; i++) {
            CHECK_INT(weir_subscriber_next(a, &value), ==, 0);
            CHECK_INT(value, ==, i);
            CHECK_INT(weir_subscriber_next(b, &value), ==, 0);
            CHECK_INT(value, ==, i);
        }
        publish(broadcast, 3, 1);
        weir_broadcast_close(broadcast);
        CHECK_INT(weir_broadcast_publish(broadcast, &value), ==, WEIR_ECLOSED);
        CHECK_INT(weir_subscriber_next(a, &value), ==, 0);
        CHECK_INT(weir_subscriber_next(a, &value), ==, WEIR_ECLOSED);
        weir_subscriber_close(a);
    }
    return result;
}

FLOW_TEST(broadcast_lag_policies_do_what_they_say)
{
    weir_broadcast *broadcast;
    weir_subscriber *skips, *closes, *waits;
    int result, value, r = 0;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_broadcast_open(scope, &four, &broadcast));
        CHECK_INT(weir_broadcast_subscribe(broadcast, WEIR_LAG_UNSET, false, &skips), ==,
                  WEIR_EREFUSED);
        CHECK_OK(weir_broadcast_subscribe(broadcast, WEIR_LAG_SKIP, false, &skips));
        CHECK_OK(weir_broadcast_subscribe(broadcast, WEIR_LAG_CLOSE, false, &closes));
        publish(broadcast, 0, 7);
        CHECK_INT(weir_subscriber_next(skips, &value), ==, 3);
        CHECK_INT(value, ==, 3);
        CHECK_INT(weir_subscriber_next(closes, &value), ==, WEIR_EOVERLOAD);
        CHECK_INT(weir_subscriber_next(closes, &value), ==, WEIR_ECLOSED);
        CHECK_OK(weir_broadcast_subscribe(broadcast, WEIR_LAG_WAIT, false, &waits));
        publish(broadcast, 7, 4);
        WEIR_DEADLINE(1) { r = weir_broadcast_publish(broadcast, &value); }
        CHECK_INT(r, ==, WEIR_ETIMEDOUT);
        CHECK_INT(weir_subscriber_next(waits, &value), ==, 0);
        CHECK_INT(value, ==, 7);
        publish(broadcast, 11, 1);
        weir_subscriber_close(waits);
        publish(broadcast, 12, 9);
    }
    return result;
}

FLOW_TEST(broadcast_bounds_its_subscribers_and_names_what_is_missing)
{
    static const struct {
        weir_broadcast_spec spec;
        const char *why;
    } rows[] = {
        {{.value_bytes = 4, .history = 1, .subscribers_max = 1}, "name"},
        {{.name = "b", .history = 1, .subscribers_max = 1}, "value_bytes"},
        {{.name = "b", .value_bytes = 4, .subscribers_max = 1}, "history"},
        {{.name = "b", .value_bytes = 4, .history = 1}, "subscribers_max"},
    };
    weir_subscriber *subscribers[9];
    weir_broadcast *broadcast;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            CHECK_INT(weir_broadcast_open(scope, &rows[i].spec, &broadcast), ==, WEIR_EREFUSED);
            CHECK(strstr(weir_why(), rows[i].why) != NULL);
        }
        CHECK_OK(weir_broadcast_open(scope, &four, &broadcast));
        for (int i = 0; i < 8; i++)
            CHECK_OK(weir_broadcast_subscribe(broadcast, WEIR_LAG_SKIP, false, &subscribers[i]));
        CHECK_INT(weir_broadcast_subscribe(broadcast, WEIR_LAG_SKIP, false, &subscribers[8]), ==,
                  WEIR_EOVERLOAD);
    }
    return result;
}

struct reader {
    weir_broadcast *broadcast;
    weir_subscriber *subscriber;
    int count;
};

static int read_all(void *arg)
{
    struct reader *reader = arg;
    for (int i = 0; i < reader->count; i++) {
        int value = -1;
        int r = weir_subscriber_next(reader->subscriber, &value);
        if (r < 0) return r;
        CHECK_INT(value, ==, i);
    }
    weir_subscriber_close(reader->subscriber);
    return 0;
}

static int publish_all(void *arg)
{
    struct reader *reader = arg;
    publish(reader->broadcast, 0, reader->count);
    return 0;
}

FLOW_TEST(broadcast_with_waiting_publishers_loses_nothing)
{
    struct reader reader = {.count = 500};
    int result;

    FLOW_SCOPE_ANYWHERE(scope, &result)
    {
        CHECK_OK(weir_broadcast_open(scope, &four, &reader.broadcast));
        for (int i = 0; i < 8; i++) {
            CHECK_OK(weir_broadcast_subscribe(reader.broadcast, WEIR_LAG_WAIT, false,
                                              &reader.subscriber));
            CHECK_OK(weir_spawn(scope, read_all, &reader, sizeof reader));
        }
        CHECK_OK(weir_spawn(scope, publish_all, &reader, sizeof reader));
    }
    return result;
}

/* ---- Watch ---- */

static int wait_for_ten(void *arg)
{
    weir_watch *watch = *(weir_watch **)arg;
    uint64_t version = 0;
    int value = 0;
    while (value < 10) {
        int r = weir_watch_changed(watch, &version, &value);
        if (r < 0) return r;
    }
    return 0;
}

FLOW_TEST(watch_shows_the_latest_value_and_wakes_who_waits_for_a_change)
{
    weir_watch *watch;
    int result, value = 1, r = 0;
    uint64_t version;

    FLOW_SCOPE_ANYWHERE(scope, &result)
    {
        CHECK_OK(weir_watch_open(scope, "setting", &value, sizeof value, &watch));
        version = weir_watch_get(watch, &value);
        CHECK_INT(version, ==, 1);
        WEIR_DEADLINE(1) { r = weir_watch_changed(watch, &version, &value); }
        CHECK_INT(r, ==, WEIR_ETIMEDOUT);
        for (int i = 0; i < 4; i++) CHECK_OK(weir_spawn(scope, wait_for_ten, &watch, sizeof watch));
        for (value = 2; value <= 10; value++) {
            weir_watch_set(watch, &value);
            CHECK_OK(weir_yield());
        }
        CHECK_OK(weir_watch_changed(watch, &version, &value));
        CHECK_INT(value, ==, 10);
        CHECK_INT(version, ==, 10);
        CHECK_OK(weir_scope_join(scope));
        weir_watch_close(watch);
    }
    return result;
}

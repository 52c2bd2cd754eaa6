/* planted_flow_more.c - bugs that are planted in what waits for several things, has one value for
 * many, or does work elsewhere. */
#include "sim/flow_program.h"
#include "sim/planted.h"

static int exchange(void *arg)
{
    (void)arg;
    CHECK_INT(flow_exchange(false), ==, 2);
    return 0;
}

static int do_all(void *arg)
{
    (void)arg;
    CHECK_INT(flow_do_all(), ==, 1);
    return 0;
}

static int publish_to_skippers(void *arg)
{
    (void)arg;
    CHECK_INT(flow_publish(WEIR_LAG_SKIP, WEIR_LAG_SKIP), ==, 2);
    return 0;
}

static int publish_and_leave(void *arg)
{
    (void)arg;
    CHECK_INT(flow_publish_and_leave(), ==, 2);
    return 0;
}

static int watch(void *arg)
{
    (void)arg;
    CHECK_INT(flow_watch(), ==, 2);
    return 0;
}

static int update_snapshot(void *arg)
{
    (void)arg;
    return flow_update_snapshot();
}

static int call_actor(void *arg)
{
    (void)arg;
    CHECK_INT(flow_call_actor(true), >=, 2);
    return 0;
}

static int use_pool(void *arg)
{
    (void)arg;
    CHECK_INT(flow_use_pool(false, 0), ==, 8);
    return 0;
}

static int use_pool_and_cancel(void *arg)
{
    (void)arg;
    CHECK_INT(flow_use_pool(true, 1000), >=, 6);
    return 0;
}

static int fan_out(void *arg)
{
    (void)arg;
    CHECK_INT(flow_fan_collect(false), ==, 4);
    return 0;
}

static int fan_out_as_completed(void *arg)
{
    (void)arg;
    CHECK_INT(flow_fan_collect(true), ==, 4);
    return 0;
}

static int call_pipeline(void *arg)
{
    (void)arg;
    CHECK_INT(flow_call_pipeline(true), >=, 4);
    return 0;
}

static int receive_and_cancel(void *arg)
{
    (void)arg;
    CHECK_INT(flow_stream(true), >=, 1);
    return 0;
}

#define ON_TWO .config = FLOW_HOST

PLANTED_CASE(SELECT_LOCKS_UNSORTED, exchange, .runs_max = 1500, ON_TWO)
PLANTED_CASE(SELECT_LEAVES_WAITER, do_all, .runs_max = 50, ON_TWO)
PLANTED_CASE(BROADCAST_SKIP_TORN, publish_to_skippers, .runs_max = 20, ON_TWO)
PLANTED_CASE(LAGGARD_LEAVES_UNTOLD, publish_and_leave, .runs_max = 50, ON_TWO)
PLANTED_CASE(WATCH_LAST_MISSED, watch, .runs_max = 300, ON_TWO)
PLANTED_CASE(UPDATE_LOST, update_snapshot, .runs_max = 200, ON_TWO)
PLANTED_CASE(ACTOR_ANSWERS_WHO_LEFT, call_actor, .runs_max = 1000, ON_TWO)
PLANTED_CASE(ACTOR_ROOM_UNTOLD, call_actor, .runs_max = 500, ON_TWO)
PLANTED_CASE(POOL_SLEEPERS_COUNTED, use_pool, .runs_max = 50, ON_TWO)
PLANTED_CASE(POOL_LEAVES_DONE, use_pool_and_cancel, .runs_max = 100, ON_TWO)
PLANTED_CASE(FAN_INPUT_TWICE, fan_out, .runs_max = 200, ON_TWO)
PLANTED_CASE(FAN_LAST_TORN, fan_out_as_completed, .runs_max = 1500, ON_TWO)
PLANTED_CASE(RESULT_NOT_PASSED_ON, receive_and_cancel, .runs_max = 300, ON_TWO)
PLANTED_CASE(PIPELINE_ANSWERS_WHO_LEFT, call_pipeline, .runs_max = 100, ON_TWO)

/* planted_flow.c - bugs that are planted in what moves values between tasks. */
#include "sim/flow_program.h"
#include "sim/planted.h"

static const struct flow_plan two_by_two = {.capacity = 2,
                                            .overflow = WEIR_WAIT,
                                            .on_close = WEIR_DRAIN,
                                            .senders = 2,
                                            .receivers = 2,
                                            .items = 3};

static int move_items(void *arg)
{
    (void)arg;
    return flow_move(&two_by_two);
}

static int move_through_one(void *arg)
{
    struct flow_plan plan = two_by_two;

    (void)arg;
    plan.capacity = 1;
    return flow_move(&plan);
}

static int drop_oldest(void *arg)
{
    struct flow_plan plan = two_by_two;

    (void)arg;
    plan.overflow = WEIR_DROP_OLDEST;
    return flow_move(&plan);
}

static int cancel_receiver(void *arg)
{
    struct flow_plan plan = two_by_two;

    (void)arg;
    plan.cancels_one = true;
    plan.items = 2;
    return flow_move(&plan);
}

static int lock_mutex(void *arg)
{
    (void)arg;
    CHECK_INT(flow_contend(false), ==, 3);
    return 0;
}

static int lock_and_cancel(void *arg)
{
    (void)arg;
    return flow_contend(true);
}

static int read_and_write(void *arg)
{
    (void)arg;
    return flow_read_and_write(false);
}

static int set_event(void *arg)
{
    (void)arg;
    return flow_wait_and_set();
}

static int run_once(void *arg)
{
    (void)arg;
    return flow_run_once();
}

static int take_permits_and_cancel(void *arg)
{
    (void)arg;
    return flow_take_permits(true);
}

static int leave_the_line(void *arg)
{
    (void)arg;
    return flow_give_way();
}

#define ON_TWO .config = FLOW_HOST

PLANTED_CASE(RECV_CANCEL_LOSES, cancel_receiver, .runs_max = 4000, ON_TWO)
PLANTED_CASE(SENDER_WOKEN_TWICE, move_through_one, .runs_max = 500, ON_TWO)
PLANTED_CASE(DROP_OLDEST_UNTOLD, drop_oldest, .runs_max = 500, ON_TWO)
PLANTED_CASE(SIDES_JOIN_HALF, move_items, .runs_max = 4000, ON_TWO)
PLANTED_CASE(MUTEX_UNLOCK_TORN, lock_mutex, .runs_max = 4000, ON_TWO)
PLANTED_CASE(MUTEX_FORGETS, lock_mutex, .runs_max = 1000, ON_TWO)
PLANTED_CASE(MUTEX_TO_CANCELLED, lock_and_cancel, .runs_max = 4000, ON_TWO)
PLANTED_CASE(RWLOCK_BESIDE, read_and_write, .runs_max = 500, ON_TWO)
PLANTED_CASE(EVENT_SET_BETWEEN, set_event, .runs_max = 4000, ON_TWO)
PLANTED_CASE(ONCE_TWICE, run_once, .runs_max = 4000, ON_TWO)
PLANTED_CASE(PERMIT_LEAK, take_permits_and_cancel, .runs_max = 4000, ON_TWO)
PLANTED_CASE(LINE_NOT_SERVED, leave_the_line, .runs_max = 1000, ON_TWO)

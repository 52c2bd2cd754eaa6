/* flow_chan.c - channels in simulation: whatever happens when, every item is accounted for. */
#include "sim/flow_program.h"

static const struct flow_plan two_by_two = {
    .capacity = 2,
    .overflow = WEIR_WAIT,
    .on_close = WEIR_DRAIN,
    .senders = 2,
    .receivers = 2,
    .items = 3,
};

/* ---- Capacities ---- */

SIM_TEST(rendezvous_moves_each_item_once, .runs_max = 12000, .config = FLOW_HOST)
{
    struct flow_plan plan = two_by_two;
    plan.capacity = WEIR_RENDEZVOUS;
    return flow_move(&plan);
}

SIM_TEST(channel_of_one_moves_each_item_once, .runs_max = 12000, .config = FLOW_HOST)
{
    struct flow_plan plan = two_by_two;
    plan.capacity = 1;
    return flow_move(&plan);
}

SIM_TEST(channel_of_two_moves_each_item_once, .runs_max = 12000, .config = FLOW_HOST)
{
    return flow_move(&two_by_two);
}

SIM_TEST(channel_of_three_moves_wide_items_once, .runs_max = 12000, .config = FLOW_HOST)
{
    struct flow_plan plan = two_by_two;
    plan.capacity = 3;
    plan.wide = true;
    return flow_move(&plan);
}

SIM_TEST(three_senders_and_three_receivers_lose_nothing, .runs_max = 8000, .config = FLOW_HOST)
{
    struct flow_plan plan = two_by_two;
    plan.senders = plan.receivers = 3;
    return flow_move(&plan);
}

SIM_TEST(channel_of_one_worker_moves_each_item_once, .runs_max = 12000)
{
    return flow_move(&two_by_two);
}

/* Small enough for all runs there are, with a bound on departures. */
static int meet(void *arg)
{
    struct flow_plan plan = two_by_two;

    (void)arg;
    plan.capacity = WEIR_RENDEZVOUS;
    plan.items = 1;
    return flow_move(&plan);
}

TEST_WITH(rendezvous_of_two_and_two_is_explored_completely, .timeout_ms = 120000)
{
    static weir_sim_result result;
    weir_sim_spec spec = {
        .name = "rendezvous",
        .runs_max = 100000,
        .strategies = WEIR_SIM_EXHAUSTIVE,
        .departures_max = 3,
        .ret_result = &result,
    };

    weir_test_sim(&spec, meet, NULL);
    CHECK(result.complete);
    CHECK_INT(result.runs, >, 100);
    test_note("%llu runs", (unsigned long long)result.runs);
}

/* ---- Overflow ---- */

SIM_TEST(channel_that_rejects_accounts_for_each_item, .runs_max = 10000, .config = FLOW_HOST)
{
    struct flow_plan plan = two_by_two;
    plan.overflow = WEIR_REJECT;
    plan.capacity = 1;
    return flow_move(&plan);
}

SIM_TEST(channel_that_drops_the_newest_accounts_for_each_item, .runs_max = 10000,
         .config = FLOW_HOST)
{
    struct flow_plan plan = two_by_two;
    plan.overflow = WEIR_DROP_NEWEST;
    plan.capacity = 1;
    return flow_move(&plan);
}

SIM_TEST(channel_that_drops_the_oldest_accounts_for_each_item, .runs_max = 10000,
         .config = FLOW_HOST)
{
    struct flow_plan plan = two_by_two;
    plan.overflow = WEIR_DROP_OLDEST;
    plan.items = 4;
    return flow_move(&plan);
}

/* ---- Closing ---- */

SIM_TEST(close_that_drains_leaves_nothing, .runs_max = 10000, .config = FLOW_HOST)
{
    struct flow_plan plan = two_by_two;
    plan.closes = true;
    return flow_move(&plan);
}

SIM_TEST(close_that_discards_hands_every_item_to_the_hook, .runs_max = 10000, .config = FLOW_HOST)
{
    struct flow_plan plan = two_by_two;
    plan.on_close = WEIR_DISCARD;
    plan.capacity = 3;
    plan.closes = true;
    return flow_move(&plan);
}

SIM_TEST(items_that_receivers_leave_go_to_the_hook, .runs_max = 10000, .config = FLOW_HOST)
{
    struct flow_plan plan = two_by_two;
    plan.items = 4;
    plan.receivers_leave = true;
    return flow_move(&plan);
}

/* ---- Other calls ---- */

SIM_TEST(batches_move_each_item_once, .runs_max = 10000, .config = FLOW_HOST)
{
    struct flow_plan plan = two_by_two;
    plan.moves = FLOW_BATCHES;
    plan.items = 4;
    return flow_move(&plan);
}

SIM_TEST(batches_that_are_cancelled_say_how_far_they_got, .runs_max = 10000, .config = FLOW_HOST,
         FLOW_CANCELS_ONCE)
{
    struct flow_plan plan = two_by_two;
    plan.moves = FLOW_BATCHES;
    plan.items = 4;
    return flow_move(&plan);
}

SIM_TEST(batches_into_a_channel_that_drops_are_accounted_for, .runs_max = 8000, .config = FLOW_HOST,
         FLOW_CANCELS_ONCE)
{
    struct flow_plan plan = two_by_two;
    plan.moves = FLOW_BATCHES;
    plan.overflow = WEIR_DROP_OLDEST;
    plan.items = 4;
    return flow_move(&plan);
}

SIM_TEST(calls_that_never_suspend_move_each_item_once, .runs_max = 8000, .config = FLOW_HOST)
{
    struct flow_plan plan = two_by_two;
    plan.moves = FLOW_TRIES;
    return flow_move(&plan);
}

SIM_TEST(resizing_loses_nothing, .runs_max = 10000, .config = FLOW_HOST)
{
    struct flow_plan plan = two_by_two;
    plan.resizes = true;
    return flow_move(&plan);
}

SIM_TEST(all_done_means_that_all_before_is_finished, .runs_max = 10000, .config = FLOW_HOST)
{
    struct flow_plan plan = two_by_two;
    plan.counts_done = true;
    return flow_move(&plan);
}

SIM_TEST(all_done_counts_what_is_dropped, .runs_max = 10000, .config = FLOW_HOST, FLOW_CANCELS_ONCE)
{
    struct flow_plan plan = two_by_two;
    plan.counts_done = true;
    plan.capacity = 1;
    plan.overflow = WEIR_DROP_OLDEST;
    return flow_move(&plan);
}

/* ---- Cancelling ---- */

SIM_TEST(cancelled_send_or_receive_has_moved_nothing, .runs_max = 15000, .config = FLOW_HOST,
         FLOW_CANCELS_ONCE)
{
    return flow_move(&two_by_two);
}

SIM_TEST(cancelled_rendezvous_has_moved_nothing, .runs_max = 15000, .config = FLOW_HOST,
         FLOW_CANCELS_ONCE)
{
    struct flow_plan plan = two_by_two;
    plan.capacity = WEIR_RENDEZVOUS;
    plan.wide = true;
    return flow_move(&plan);
}

SIM_TEST(one_receiver_that_is_cancelled_takes_no_item_with_it, .runs_max = 12000,
         .config = FLOW_HOST)
{
    struct flow_plan plan = two_by_two;
    plan.capacity = 1;
    plan.cancels_one = true;
    return flow_move(&plan);
}

SIM_TEST(close_resize_and_cancel_at_once_lose_nothing, .runs_max = 8000, .config = FLOW_HOST,
         FLOW_CANCELS_ONCE)
{
    struct flow_plan plan = two_by_two;
    plan.closes = plan.resizes = plan.cancels_one = true;
    return flow_move(&plan);
}

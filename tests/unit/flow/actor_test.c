/* actor_test.c - actors: calls and casts, bounds, restarts, ending, every message accounted
 * for. */
#include <errno.h>
#include <string.h>

#include "base/atomic.h"
#include "unit/flow/flow_test.h"

enum verb { ADD = 1, GET, FAIL, WAIT_GATE, CAST_SELF, CALL_SELF };

struct message {
    enum verb verb;
    int amount;
    weir_event *gate;
    weir_actor *self;
};

struct counter {
    int total;
};

static ATOM(int) inits, deinits, undelivered, undelivered_why;

static int counter_init(void *state, void *keep_arg)
{
    (void)keep_arg;
    CHECK_INT(((struct counter *)state)->total, ==, 0);
    ((struct counter *)state)->total = 1000;
    (void)atom_add(&inits, 1);
    return 0;
}

static void counter_deinit(void *state, void *keep_arg)
{
    (void)state, (void)keep_arg;
    (void)atom_add(&deinits, 1);
}

static int counter_handle(void *state, const void *message, void *reply, void *keep_arg)
{
    struct counter *counter = state;
    const struct message *order = message;
    int r = 0;

    (void)keep_arg;
    switch (order->verb) {
    case ADD: counter->total += order->amount; break;
    case GET: break;
    case FAIL: counter->total += order->amount; return -EIO;
    case WAIT_GATE: r = weir_event_wait(order->gate); break;
    case CAST_SELF: {
        struct message more = {.verb = ADD, .amount = 1};
        while ((r = weir_actor_cast(order->self, &more)) == 0) {}
        CHECK_INT(r, ==, WEIR_EOVERLOAD);
        return 0;
    }
    case CALL_SELF: {
        struct message more = {.verb = GET};
        int ignored;
        CHECK_INT(weir_actor_call(order->self, &more, &ignored), ==, WEIR_EREFUSED);
        CHECK_INT(weir_actor_wait(order->self), ==, WEIR_EREFUSED);
        return 7;
    }
    }
    if (reply) {
        CHECK_INT(*(int *)reply, ==, 0);
        *(int *)reply = counter->total;
    }
    return r;
}

static void count_undelivered(void *message, int why, void *keep_arg)
{
    (void)keep_arg;
    CHECK_INT(((struct message *)message)->verb, ==, ADD);
    (void)atom_add(&undelivered, 1);
    atom_store(&undelivered_why, why);
}

static const weir_actor_spec counting = {
    .name = "counter",
    .mailbox_max = 4,
    .overflow = WEIR_WAIT,
    .on_restart = WEIR_RESTART_KEEP,
    .restart = {.max_restarts = 3, .window_ms = 60000, .backoff_ms = 1},
    .on_message = counter_handle,
    .message_bytes = sizeof(struct message),
    .reply_bytes = sizeof(int),
    .state_bytes = sizeof(struct counter),
    .init = counter_init,
    .deinit = counter_deinit,
    .on_undelivered = count_undelivered,
};

static void reset(void)
{
    atom_store(&inits, 0);
    atom_store(&deinits, 0);
    atom_store(&undelivered, 0);
}

static void check_conserved(weir_actor *actor)
{
    weir_actor_figures f;
    weir_actor_figures_of(actor, &f);
    CHECK_INT(f.accepted, ==,
              f.depth + f.at_hand + f.handled + f.crashed + f.removed + f.undelivered);
    CHECK_INT(f.depth_max, <=, f.mailbox_max);
}

static int add(weir_actor *actor, int amount)
{
    return weir_actor_cast(actor, &(struct message){.verb = ADD, .amount = amount});
}

static int ask(weir_actor *actor, enum verb verb, int amount)
{
    int reply = -1;
    int r = weir_actor_call(actor, &(struct message){.verb = verb, .amount = amount, .self = actor},
                            &reply);
    return r < 0 ? r : reply;
}

FLOW_TEST(actor_handles_casts_and_calls_in_order_and_ends_with_its_scope)
{
    weir_actor *actor;
    int result;

    reset();
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_actor_open(scope, &counting, &actor));
        CHECK_OK(add(actor, 5));
        CHECK_OK(add(actor, 7));
        CHECK_INT(ask(actor, GET, 0), ==, 1012);
        CHECK_INT(
            weir_actor_call(actor, &(struct message){.verb = CALL_SELF, .self = actor}, &(int){0}),
            ==, 7);
        CHECK_OK(add(actor, 1));
        check_conserved(actor);
        CHECK_OK(weir_scope_join(scope)); /* does not wait for the actor */
    }                                     /* but this does, and for what it has */
    CHECK_OK(result);
    CHECK_INT(atom_load(&inits), ==, 1);
    CHECK_INT(atom_load(&deinits), ==, 1);
    CHECK_INT(atom_load(&undelivered), ==, 0);
    return 0;
}

FLOW_TEST(actor_spec_names_what_is_missing_or_contradicts)
{
    static const char *const why[] = {
        "name",          "mailbox_max",  "overflow",      "on_restart", "on_message",
        "message_bytes", "max_restarts", "WEIR_RESTART_", "window_ms",  "limit",
        "reply_bytes",   "latency",      "state_bytes"};
    weir_actor_spec specs[13];
    int result;

    for (int i = 0; i < 13; i++) specs[i] = counting;
    specs[0].name = NULL;
    specs[1].mailbox_max = 0;
    specs[2].overflow = WEIR_OVERFLOW_UNSET;
    specs[3].on_restart = WEIR_ON_RESTART_UNSET;
    specs[4].on_message = NULL;
    specs[5].message_bytes = WEIR_ITEM_BYTES_MAX + 1;
    specs[6].restart.max_restarts = 0;
    specs[7].on_restart = WEIR_RESTART_NEVER;
    specs[8].restart.window_ms = 0;
    specs[9].mailbox_limit = 2;
    specs[10].reply_bytes = WEIR_ITEM_BYTES_MAX + 1;
    specs[11].latency_ms = -1;
    specs[12].state_bytes = SIZE_MAX - 4096; /* with the rest this is little */
    FLOW_SCOPE(scope, &result)
    {
        for (int i = 0; i < 13; i++) {
            weir_actor *actor;
            test_note("row %d", i);
            CHECK_INT(weir_actor_open(scope, &specs[i], &actor), ==, WEIR_EREFUSED);
            CHECK_CONTAINS(weir_why(), why[i]);
        }
    }
    return result;
}

/* ---- Restarts ---- */

struct restart_row {
    enum weir_on_restart on_restart;
    int after_failure; /* what GET says then, or an error */
    int inits;
};

FLOW_TEST(actor_restart_keeps_or_resets_its_state_as_said)
{
    static const struct restart_row rows[] = {
        {WEIR_RESTART_KEEP, 1000 + 5 + 3, 1},
        {WEIR_RESTART_RESET, 1000, 2},
        {WEIR_RESTART_NEVER, WEIR_ECLOSED, 1},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        weir_actor_spec spec = counting;
        weir_actor *actor;
        int result;

        reset();
        test_note("row %zu", i);
        spec.on_restart = rows[i].on_restart;
        if (spec.on_restart == WEIR_RESTART_NEVER) memset(&spec.restart, 0, sizeof spec.restart);
        WEIR_SCOPE(scope, &result, .name = "owner", .on_failure = WEIR_COLLECT, .max_tasks = 4,
                   .overflow = WEIR_REJECT) {
            CHECK_OK(weir_actor_open(scope, &spec, &actor));
            CHECK_OK(add(actor, 5));
            CHECK_INT(ask(actor, FAIL, 3), ==, WEIR_ECRASHED);
            CHECK_INT(ask(actor, GET, 0), ==, rows[i].after_failure);
            check_conserved(actor);
        }
        CHECK_INT(result, ==, rows[i].on_restart == WEIR_RESTART_NEVER ? -EIO : 0);
        CHECK_INT(atom_load(&inits), ==, rows[i].inits);
        CHECK_INT(atom_load(&deinits), ==, rows[i].inits);
    }
    return 0;
}

FLOW_TEST(actor_beyond_its_restart_intensity_ends_and_fails_its_scope_only)
{
    weir_actor_figures figures;
    weir_actor *actor, *healthy;
    int result, inner;

    reset();
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_actor_open(scope, &counting, &healthy));
        WEIR_SCOPE(owner, &inner, .name = "owner", .on_failure = WEIR_COLLECT, .max_tasks = 4,
                   .overflow = WEIR_REJECT) {
            CHECK_OK(weir_actor_open(owner, &counting, &actor));
            for (int i = 0; i < 3; i++) CHECK_INT(ask(actor, FAIL, 1), ==, WEIR_ECRASHED);
            CHECK_INT(ask(actor, GET, 0), ==, 1003);
            CHECK_INT(ask(actor, FAIL, 1), ==, WEIR_ECRASHED);
            CHECK_INT(weir_actor_wait(actor), ==, -EIO);
            CHECK_INT(ask(actor, GET, 0), ==, WEIR_ECLOSED);
            weir_actor_figures_of(actor, &figures);
            CHECK_INT(figures.restarts, ==, 3);
            CHECK_INT(figures.crashed, ==, 4);
            CHECK(figures.ended);
        }
        CHECK_INT(inner, ==, -EIO);
        CHECK_INT(ask(healthy, GET, 0), ==, 1000);
    }
    return result;
}

static int failing_init(void *state, void *keep_arg)
{
    (void)state;
    return ++*(int *)keep_arg < 3 ? -EAGAIN : 0;
}

FLOW_TEST(actor_whose_init_fails_is_started_again_and_keeps_its_mail)
{
    weir_actor_spec spec = counting;
    weir_actor *actor;
    int result, tries = 0;

    spec.init = failing_init;
    spec.deinit = NULL;
    spec.keep_arg = &tries;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_actor_open(scope, &spec, &actor));
        CHECK_OK(add(actor, 4));
        CHECK_INT(ask(actor, GET, 0), ==, 4);
        CHECK_INT(tries, ==, 3);
    }
    return result;
}

/* ---- The bound ---- */

struct blocked {
    weir_actor *actor;
    weir_event *gate;
    enum verb verb;
    int expected;
};

static int call_blocked(void *arg)
{
    struct blocked *blocked = arg;
    int reply;
    CHECK_INT(weir_actor_call(blocked->actor,
                              &(struct message){.verb = blocked->verb, .gate = blocked->gate},
                              &reply),
              ==, blocked->expected);
    return 0;
}

struct overflow_row {
    enum weir_overflow overflow;
    int cast, call;  /* what one more gets */
    int undelivered; /* casts given to the hook by then */
    int total;       /* of the amounts of those that were handled in the end */
    int oldest;      /* what the call that waits longest gets */
};

FLOW_TEST(actor_overflow_is_what_its_spec_says)
{
    static const struct overflow_row rows[] = {
        {WEIR_REJECT, WEIR_EOVERLOAD, WEIR_EOVERLOAD, 0, 1 + 2, 0},
        {WEIR_DROP_NEWEST, 0, WEIR_EOVERLOAD, 1, 1 + 2, 0},
        {WEIR_DROP_OLDEST, 0, 0, 1, 2 + 4, WEIR_EOVERLOAD},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        weir_actor_spec spec = counting;
        weir_event *gate;
        weir_actor *actor;
        weir_actor_figures f;
        int result;

        reset();
        test_note("row %zu", i);
        spec.overflow = rows[i].overflow;
        spec.mailbox_max = 3;
        FLOW_SCOPE(scope, &result)
        {
            struct blocked blocked = {.verb = WAIT_GATE};
            CHECK_OK(weir_event_open(scope, "gate", &gate));
            CHECK_OK(weir_actor_open(scope, &spec, &actor));
            blocked.actor = actor;
            blocked.gate = gate;
            CHECK_OK(weir_spawn(scope, call_blocked, &blocked, sizeof blocked));
            CHECK_OK(weir_yield());
            CHECK_OK(weir_yield());
            /* At hand: that one. In the mailbox: a call, and two casts. */
            blocked.verb = GET;
            blocked.expected = rows[i].oldest;
            CHECK_OK(weir_spawn(scope, call_blocked, &blocked, sizeof blocked));
            CHECK_OK(weir_yield());
            CHECK_OK(add(actor, 1));
            CHECK_OK(add(actor, 2));
            weir_actor_figures_of(actor, &f);
            CHECK_INT(f.depth, ==, 3);
            /* One more cast drops the call, if the oldest goes; the next, the first cast. */
            CHECK_INT(add(actor, 4), ==, rows[i].cast);
            blocked.expected = rows[i].call;
            CHECK_OK(weir_spawn(scope, call_blocked, &blocked, sizeof blocked));
            CHECK_OK(weir_yield());
            CHECK_INT(atom_load(&undelivered), ==, rows[i].undelivered);
            if (rows[i].undelivered) CHECK_INT(atom_load(&undelivered_why), ==, WEIR_EOVERLOAD);
            check_conserved(actor);
            weir_event_set(gate);
            CHECK_OK(weir_scope_join(scope));
            CHECK_INT(ask(actor, GET, 0), ==, 1000 + rows[i].total);
            check_conserved(actor);
        }
        CHECK_OK(result);
    }
    return 0;
}

FLOW_TEST(actor_full_mailbox_makes_senders_wait_but_not_itself)
{
    weir_event *gate;
    weir_actor *actor;
    weir_actor_figures f;
    int result, r = 0;

    reset();
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_event_open(scope, "gate", &gate));
        CHECK_OK(weir_actor_open(scope, &counting, &actor));
        CHECK_OK(weir_actor_cast(actor, &(struct message){.verb = WAIT_GATE, .gate = gate}));
        CHECK_OK(weir_yield());
        for (int i = 0; i < 4; i++) CHECK_OK(add(actor, 1));
        WEIR_DEADLINE(5) { r = add(actor, 100); }
        CHECK_INT(r, ==, WEIR_ETIMEDOUT); /* nothing moved */
        WEIR_DEADLINE(5) { r = ask(actor, GET, 0); }
        CHECK_INT(r, ==, WEIR_ETIMEDOUT);
        weir_actor_figures_of(actor, &f);
        CHECK_INT(f.accepted, ==, 5);
        CHECK_INT(f.depth, ==, 4);
        CHECK_INT(weir_actor_resize(actor, 5), ==, WEIR_EREFUSED);
        weir_event_set(gate);
        CHECK_INT(ask(actor, GET, 0), ==, 1004);
        CHECK_OK(weir_actor_cast(actor, &(struct message){.verb = CAST_SELF, .self = actor}));
        CHECK_OK(weir_yield());
        CHECK_INT(ask(actor, GET, 0), ==, 1008);
        check_conserved(actor);
    }
    return result;
}

FLOW_TEST(actor_mailbox_can_be_resized_while_it_runs)
{
    weir_actor_spec spec = counting;
    weir_event *gate;
    weir_actor *actor;
    int result;

    reset();
    spec.overflow = WEIR_REJECT;
    spec.mailbox_max = 1;
    spec.mailbox_limit = 3;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_event_open(scope, "gate", &gate));
        CHECK_OK(weir_actor_open(scope, &spec, &actor));
        CHECK_OK(weir_actor_cast(actor, &(struct message){.verb = WAIT_GATE, .gate = gate}));
        CHECK_OK(weir_yield());
        CHECK_OK(add(actor, 1));
        CHECK_INT(add(actor, 1), ==, WEIR_EOVERLOAD);
        CHECK_OK(weir_actor_resize(actor, 3));
        CHECK_OK(add(actor, 1));
        CHECK_OK(add(actor, 1));
        CHECK_INT(add(actor, 1), ==, WEIR_EOVERLOAD);
        CHECK_OK(weir_actor_resize(actor, 1));
        weir_event_set(gate);
    }
    return result;
}

/* ---- Cancelled callers ---- */

static int call_cancelled(void *arg)
{
    struct blocked *blocked = arg;
    int reply = -1;
    int r = weir_actor_call(
        blocked->actor,
        &(struct message){.verb = blocked->verb, .gate = blocked->gate, .amount = 50}, &reply);
    CHECK_INT(r, ==, WEIR_ECANCELED);
    CHECK_INT(reply, ==, -1);
    return r;
}

static void cancel_call(weir_scope *scope, struct blocked blocked)
{
    weir_task task;
    CHECK_OK(weir_task_spawn(
        scope,
        &(weir_task_spec){.fn = call_cancelled, .arg = &blocked, .arg_bytes = sizeof blocked},
        &task));
    for (int i = 0; i < 5; i++) CHECK_OK(weir_yield());
    CHECK_OK(weir_task_cancel(task, "enough"));
    CHECK_OK(weir_task_join(task, NULL));
}

FLOW_TEST(actor_call_that_is_cancelled_is_removed_or_abandoned)
{
    weir_actor_figures f;
    weir_event *gate;
    weir_actor *actor;
    int result;

    reset();
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_event_open(scope, "gate", &gate));
        CHECK_OK(weir_actor_open(scope, &counting, &actor));
        /* Being handled: that goes on, and nobody gets the reply. Queued: it never happens. */
        cancel_call(scope, (struct blocked){actor, gate, WAIT_GATE, 0});
        cancel_call(scope, (struct blocked){actor, gate, ADD, 0});
        weir_actor_figures_of(actor, &f);
        CHECK_INT(f.abandoned, ==, 1);
        CHECK_INT(f.removed, ==, 1);
        CHECK(f.at_hand);
        CHECK_INT(f.depth, ==, 0);
        weir_event_set(gate);
        CHECK_INT(ask(actor, GET, 0), ==, 1000);
        check_conserved(actor);
    }
    return result;
}

FLOW_TEST(actor_room_that_a_cancelled_call_leaves_goes_to_who_waits)
{
    weir_actor_spec spec = counting;
    weir_actor_figures f;
    weir_event *gate;
    weir_actor *actor;
    int result;

    reset();
    spec.mailbox_max = 1;
    FLOW_SCOPE(scope, &result)
    {
        struct blocked blocked = {.verb = WAIT_GATE};
        weir_task task;
        CHECK_OK(weir_event_open(scope, "gate", &gate));
        CHECK_OK(weir_actor_open(scope, &spec, &actor));
        blocked.actor = actor;
        blocked.gate = gate;
        CHECK_OK(weir_spawn(scope, call_blocked, &blocked, sizeof blocked));
        for (int i = 0; i < 5; i++) CHECK_OK(weir_yield());
        CHECK_OK(weir_task_spawn(
            scope,
            &(weir_task_spec){.fn = call_cancelled, .arg = &blocked, .arg_bytes = sizeof blocked},
            &task));
        for (int i = 0; i < 5; i++) CHECK_OK(weir_yield());
        CHECK_OK(weir_spawn(scope, call_blocked, &blocked, sizeof blocked));
        for (int i = 0; i < 5; i++) CHECK_OK(weir_yield());
        CHECK_OK(weir_task_cancel(task, "enough"));
        for (int i = 0; i < 5; i++) CHECK_OK(weir_yield());
        weir_actor_figures_of(actor, &f);
        CHECK_INT(f.removed, ==, 1);
        CHECK_INT(f.accepted, ==, 3);
        CHECK_INT(f.senders_waiting, ==, 0);
        weir_event_set(gate);
    }
    return result;
}

/* ---- Ending ---- */

FLOW_TEST(actor_stop_drains_or_discards)
{
    for (int how = WEIR_DRAIN; how <= WEIR_DISCARD; how++) {
        weir_actor_figures f;
        weir_event *gate;
        weir_actor *actor;
        int result;

        reset();
        FLOW_SCOPE(scope, &result)
        {
            struct blocked blocked = {.verb = WAIT_GATE};
            CHECK_OK(weir_event_open(scope, "gate", &gate));
            CHECK_OK(weir_actor_open(scope, &counting, &actor));
            blocked.actor = actor;
            blocked.gate = gate;
            blocked.expected = how == WEIR_DRAIN ? 0 : WEIR_ECRASHED;
            CHECK_OK(weir_spawn(scope, call_blocked, &blocked, sizeof blocked));
            CHECK_OK(weir_yield());
            blocked.verb = GET;
            blocked.expected = how == WEIR_DRAIN ? 0 : WEIR_ECLOSED;
            CHECK_OK(weir_spawn(scope, call_blocked, &blocked, sizeof blocked));
            CHECK_OK(weir_yield());
            CHECK_OK(weir_yield());
            CHECK_OK(add(actor, 1));
            CHECK_OK(add(actor, 1));
            weir_actor_stop(actor, (enum weir_on_close)how);
            CHECK_INT(add(actor, 1), ==, WEIR_ECLOSED);
            if (how == WEIR_DRAIN) weir_event_set(gate);
            CHECK_INT(weir_actor_wait(actor), ==, how == WEIR_DRAIN ? 0 : WEIR_ECANCELED);
            weir_actor_figures_of(actor, &f);
            CHECK_INT(f.handled, ==, how == WEIR_DRAIN ? 4 : 0);
            CHECK_INT(f.undelivered, ==, how == WEIR_DRAIN ? 0 : 3);
            CHECK_INT(atom_load(&undelivered), ==, how == WEIR_DRAIN ? 0 : 2);
            check_conserved(actor);
        }
        CHECK_OK(result);
        CHECK_INT(atom_load(&deinits), ==, 1);
    }
    return 0;
}

static void use_closed(void *arg)
{
    CHECK_OK(weir_run(&(weir_config){.workers = 1, .log_level = WEIR_LOG_OFF}, arg, NULL));
}

static int use_closed_task(void *arg)
{
    weir_actor *actor;
    int result;
    (void)arg;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_actor_open(scope, &counting, &actor));
        weir_actor_close(actor);
        CHECK_OK(add(actor, 1));
    }
    return result;
}

FLOW_TEST_UNMEASURED(actor_that_is_closed_is_freed_before_its_scope_ends)
{
    size_t before = 0;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        for (int i = 0; i < 50; i++) {
            weir_actor *actor;
            CHECK_OK(weir_actor_open(scope, &counting, &actor));
            if (i % 2) CHECK_INT(ask(actor, GET, 0), ==, 1000);
            if (i % 3 == 0) {
                weir_actor_stop(actor, WEIR_DRAIN);
                CHECK_OK(weir_actor_wait(actor));
            }
            weir_actor_close(actor);
            while (weir_scope_task_count(scope) > 0) CHECK_OK(weir_yield());
            for (int k = 0; k < 3; k++) CHECK_OK(weir_sleep(0));
            if (i == 10) before = test_live_blocks();
            if (i > 10) CHECK_INT(test_live_blocks(), <=, before + 1);
        }
        weir_actor_close(NULL);
    }
    CHECK_ABORTS(use_closed, (void *)use_closed_task, "the actor is closed");
    return result;
}

/* The newest goes first, and may still use the older one while it does. */
static int forward(void *state, const void *message, void *reply, void *keep_arg)
{
    (void)state, (void)reply;
    return add(*(weir_actor **)keep_arg, ((const struct message *)message)->amount);
}

FLOW_TEST(actors_are_dismissed_by_the_close_of_their_scope_newest_first)
{
    weir_actor_spec front = counting;
    weir_actor *back, *forwarder;
    int result;

    reset();
    front.on_message = forward;
    front.keep_arg = &back;
    front.name = "front";
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_actor_open(scope, &counting, &back));
        CHECK_OK(weir_actor_open(scope, &front, &forwarder));
        for (int i = 0; i < 20; i++) CHECK_OK(add(forwarder, 1));
    }
    CHECK_OK(result);
    CHECK_INT(atom_load(&undelivered), ==, 0);
    return 0;
}

FLOW_TEST(actor_in_a_cancelled_scope_ends_and_tells_its_callers)
{
    weir_event *gate;
    weir_actor *actor;
    int result, inner;

    reset();
    FLOW_SCOPE(scope, &result)
    {
        FLOW_SCOPE(owner, &inner)
        {
            struct blocked blocked = {.verb = WAIT_GATE, .expected = WEIR_ECRASHED};
            CHECK_OK(weir_event_open(scope, "gate", &gate));
            CHECK_OK(weir_actor_open(owner, &counting, &actor));
            blocked.actor = actor;
            blocked.gate = gate;
            CHECK_OK(weir_spawn(scope, call_blocked, &blocked, sizeof blocked));
            CHECK_OK(weir_yield());
            blocked.expected = WEIR_ECLOSED;
            for (int i = 0; i < 6; i++) {
                CHECK_OK(weir_spawn(scope, call_blocked, &blocked, sizeof blocked));
            }
            CHECK_OK(weir_yield());
            CHECK_OK(weir_yield());
            weir_scope_cancel(owner, 0, "enough");
        }
        CHECK_OK(inner);
    }
    return result;
}

/* ---- With something going wrong everywhere ---- */

static int swept_task(void *arg)
{
    weir_actor *actor = NULL;
    int result, r;

    (void)arg;
    reset();
    WEIR_SCOPE(scope, &result, .name = "swept", .on_failure = WEIR_FAIL_FAST, .max_tasks = 4,
               .overflow = WEIR_WAIT) {
        r = weir_actor_open(scope, &counting, &actor);
        for (int i = 0; r == 0 && i < 3; i++) { r = add(actor, 1); }
        if (r == 0) {
            r = ask(actor, GET, 0);
            if (r > 0) r = 0;
        }
        if (r == 0) {
            r = ask(actor, FAIL, 0);
            r = r == WEIR_ECRASHED ? 0 : r;
        }
        if (r == 0) r = ask(actor, GET, 0) > 0 ? 0 : WEIR_ECANCELED;
        if (r == 0) {
            weir_actor_stop(actor, WEIR_DRAIN);
            r = weir_actor_wait(actor);
        }
        if (actor) check_conserved(actor);
        result = r;
    }
    CHECK_INT(atom_load(&inits), ==, atom_load(&deinits));
    return result;
}

static int swept_scenario(void *arg)
{
    return weir_run(&(weir_config){.workers = test_workers(), .log_level = WEIR_LOG_OFF},
                    swept_task, arg);
}

TEST(actor_cancelled_anywhere_leaves_nothing_behind)
{
    CHECK_INT(test_sweep_cancel(swept_scenario, NULL), >, 6);
}

TEST(actor_without_memory_leaves_nothing_behind)
{
    CHECK_INT(test_sweep_alloc(swept_scenario, NULL), >, 3);
}

/* ---- Many callers ---- */

struct load {
    weir_actor *actor;
    ATOM(int) * answered;
    bool short_of_time;
};

static int load_actor(void *arg)
{
    struct load *load = arg;
    for (int i = 0; i < 100; i++) {
        int r = 0;
        if (load->short_of_time && i % 7 == 0) {
            WEIR_DEADLINE(1) { r = ask(load->actor, ADD, 1); }
            if (r == WEIR_ETIMEDOUT) continue;
        } else {
            r = ask(load->actor, ADD, 1);
        }
        if (r < 0) return r;
        (void)atom_add(load->answered, 1);
    }
    return 0;
}

FLOW_TEST(actor_serves_many_callers_on_all_workers_and_counts_them_right)
{
    static ATOM(int) answered;
    int callers = TEST_SLOW ? 100 : 300;
    weir_actor_figures f;
    weir_actor *actor;
    int result;

    reset();
    atom_store(&answered, 0);
    FLOW_SCOPE_ANYWHERE(scope, &result)
    {
        CHECK_OK(weir_actor_open(scope, &counting, &actor));
        for (int i = 0; i < callers; i++) {
            struct load load = {actor, &answered, i % 3 == 0};
            CHECK_OK(weir_spawn(scope, load_actor, &load, sizeof load));
        }
        CHECK_OK(weir_scope_join(scope));
        weir_actor_figures_of(actor, &f);
        CHECK_INT(f.handled, ==, atom_load(&answered) + f.abandoned);
        CHECK_INT(ask(actor, GET, 0), ==, 1000 + f.handled);
        CHECK_INT(f.depth_max, ==, 4);
        check_conserved(actor);
    }
    return result;
}

FLOW_TEST(actor_that_crashes_in_a_loop_does_not_slow_its_neighbours)
{
    weir_actor_spec spec = counting;
    weir_actor *bad, *good;
    int result, inner, crashes = 0;

    reset();
    spec.restart.max_restarts = 200;
    spec.restart.backoff_ms = 0;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_actor_open(scope, &counting, &good));
        WEIR_SCOPE(owner, &inner, .name = "bad", .on_failure = WEIR_COLLECT, .max_tasks = 2,
                   .overflow = WEIR_REJECT) {
            CHECK_OK(weir_actor_open(owner, &spec, &bad));
            for (;;) {
                int r = ask(bad, FAIL, 1);
                if (r == WEIR_ECLOSED) break;
                CHECK_INT(r, ==, WEIR_ECRASHED);
                crashes++;
                CHECK_OK(ask(good, ADD, 1));
            }
        }
        CHECK_INT(inner, ==, -EIO);
        CHECK_INT(crashes, ==, 201);
        CHECK_INT(ask(good, GET, 0), ==, 1000 + crashes);
    }
    return result;
}

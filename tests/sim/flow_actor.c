/* flow_actor.c - actors in simulation: each message once, each caller its own reply. */
#include "sim/flow_program.h"

enum { CALLERS = 3, CALLS = 2, CASTS = 2, MESSAGES = CALLERS * CALLS + CASTS };

struct message {
    int number;
    bool fails;  /* the actor fails at it */
    int work_ms; /* 0: it lets others go on */
};

struct reply {
    int number;
};

/* What the actor owns: the messages it has handled since its state was made. */
struct state {
    int handled;
    bool made;
};

struct stage {
    weir_actor *actor;
    int handled[MESSAGES]; /* begun to be, that is */
    int inside, answered, casts_accepted, crashed, undelivered;
    int made, dropped;      /* states */
    int handled_with_state; /* by the last state */
    int callers_done;
};

struct caller {
    struct stage *stage;
    int index;
};

static int handle(void *state, const void *message, void *reply, void *arg)
{
    const struct message *asked = message;
    struct state *own = state;
    struct stage *stage = arg;
    int r = 0;

    CHECK_INT(++stage->inside, ==, 1);
    CHECK(own->made);
    CHECK(asked->number >= 0 && asked->number < MESSAGES);
    CHECK_INT(++stage->handled[asked->number], ==, 1);
    if (asked->work_ms > 0) r = weir_sleep(asked->work_ms);
    if (asked->work_ms == 0) r = weir_yield();
    stage->inside--;
    CHECK(r == 0 || r == WEIR_ECANCELED);
    if (r < 0 || asked->fails) {
        stage->crashed++;
        return r < 0 ? r : -5;
    }
    stage->handled_with_state = ++own->handled;
    if (reply) ((struct reply *)reply)->number = asked->number;
    return asked->number;
}

static int make_state(void *state, void *arg)
{
    ((struct state *)state)->made = true;
    ((struct stage *)arg)->made++;
    return 0;
}

static void drop_state(void *state, void *arg)
{
    ((struct state *)state)->made = false;
    ((struct stage *)arg)->dropped++;
}

static void note_undelivered(void *message, int why, void *arg)
{
    const struct message *asked = message;
    struct stage *stage = arg;

    CHECK_INT(why, ==, WEIR_ECLOSED);
    CHECK_INT(stage->handled[asked->number], ==, 0);
    stage->undelivered++;
}

static bool open_actor(weir_scope *scope, struct stage *stage, size_t mailbox_max,
                       enum weir_on_restart on_restart)
{
    weir_actor_spec spec = {
        .name = "clerk",
        .mailbox_max = mailbox_max,
        .overflow = WEIR_WAIT,
        .on_restart = on_restart,
        .on_message = handle,
        .message_bytes = sizeof(struct message),
        .reply_bytes = sizeof(struct reply),
        .state_bytes = sizeof(struct state),
        .init = make_state,
        .deinit = drop_state,
        .on_undelivered = note_undelivered,
        .keep_arg = stage,
        .place = WEIR_ANYWHERE,
    };
    int r;

    if (on_restart != WEIR_RESTART_NEVER) {
        spec.restart = (weir_restart){.max_restarts = 8, .window_ms = 10000, .backoff_ms = 1};
    }
    r = weir_actor_open(scope, &spec, &stage->actor);
    CHECK(r == 0 || r == WEIR_ECANCELED);
    return r == 0;
}

/* A caller that is told of an end has no reply. */
static int call_twice(void *arg)
{
    const struct caller *caller = arg;
    struct stage *stage = caller->stage;

    for (int i = 0; i < CALLS; i++) {
        struct message message = {.number = caller->index * CALLS + i};
        struct reply reply = {-1};
        int r = weir_actor_call(stage->actor, &message, &reply);
        CHECK(r >= 0 || r == WEIR_ECANCELED || r == WEIR_ECLOSED || r == WEIR_ECRASHED);
        if (r < 0) {
            flow_linger(); /* nobody writes to the reply of one that has left */
            CHECK_INT(reply.number, ==, -1);
            return 0;
        }
        CHECK_INT(r, ==, message.number);
        CHECK_INT(reply.number, ==, message.number);
        stage->answered++;
    }
    stage->callers_done++;
    return 0;
}

static int cast_twice(void *arg)
{
    struct stage *stage = ((struct caller *)arg)->stage;

    for (int i = 0; i < CASTS; i++) {
        struct message message = {.number = CALLERS * CALLS + i};
        int r = weir_actor_cast(stage->actor, &message);
        CHECK(r == 0 || flow_is_end(r));
        if (r < 0) return 0;
        stage->casts_accepted++;
    }
    return 0;
}

static int cancel_task(void *arg)
{
    weir_task task = *(weir_task *)arg;

    (void)weir_task_cancel(task, "the program says so");
    return 0;
}

/* The actor has ended, or nobody sends to it any more and it was drained. */
static void check_figures(const struct stage *stage)
{
    weir_actor_figures figures;

    weir_actor_figures_of(stage->actor, &figures);
    CHECK(figures.ended);
    CHECK_INT(figures.depth, ==, 0);
    CHECK(!figures.at_hand);
    CHECK_INT(figures.accepted, ==,
              figures.handled + figures.crashed + figures.removed + figures.undelivered);
    CHECK_INT(figures.depth_max, <=, figures.mailbox_max);
    CHECK_INT(figures.crashed, ==, (uint64_t)stage->crashed);
    CHECK_INT(figures.handled, >=, (uint64_t)stage->answered);
}

static void spawn_callers(weir_scope *scope, struct stage *stage, bool cancels)
{
    weir_task first = {NULL, 0};

    for (int i = 0; i < CALLERS; i++) {
        struct caller caller = {stage, i};
        (void)flow_spawn(scope, i, call_twice, &caller, sizeof caller, i == 1 ? &first : NULL);
    }
    (void)flow_spawn(scope, 1, cast_twice, &(struct caller){stage, 0}, sizeof(struct caller), NULL);
    if (cancels && first.ref) {
        (void)flow_spawn(scope, 0, cancel_task, &first, sizeof first, NULL);
    }
}

int flow_call_actor(bool cancels)
{
    struct stage stage = {.inside = 0};
    weir_scope *outer = flow_scope_open(), *scope = NULL;

    if (!outer) return 0;
    if (open_actor(outer, &stage, 1, WEIR_RESTART_NEVER)) scope = flow_scope_open();
    if (scope) {
        spawn_callers(scope, &stage, cancels);
        flow_scope_close(scope);
        weir_actor_stop(stage.actor, WEIR_DRAIN);
        if (weir_actor_wait(stage.actor) == 0) {
            int handled = 0;
            check_figures(&stage);
            for (int i = CALLERS * CALLS; i < MESSAGES; i++) handled += stage.handled[i];
            CHECK_INT(handled, ==, stage.casts_accepted);
        }
    }
    flow_scope_close(outer);
    CHECK_INT(stage.inside, ==, 0);
    CHECK_INT(stage.made, ==, stage.dropped);
    return stage.callers_done;
}

SIM_TEST(actor_answers_each_caller_with_its_own_reply, .runs_max = 6000, .config = FLOW_HOST)
{
    CHECK_INT(flow_call_actor(false), ==, CALLERS);
    return 0;
}

SIM_TEST(actor_goes_on_when_a_caller_has_left, .runs_max = 6000, .config = FLOW_HOST)
{
    CHECK_INT(flow_call_actor(true), >=, CALLERS - 1);
    return 0;
}

SIM_TEST(actor_and_callers_end_with_a_cancel_of_all, .runs_max = 6000, .config = FLOW_HOST,
         FLOW_CANCELS_ONCE)
{
    return flow_call_actor(false);
}

/* ---- Ends ---- */

static int discard(void *arg)
{
    weir_actor_stop((*(struct stage **)arg)->actor, WEIR_DISCARD);
    return 0;
}

SIM_TEST(actor_that_discards_accounts_for_every_message, .runs_max = 6000, .config = FLOW_HOST)
{
    struct stage stage = {.inside = 0}, *keep = &stage;
    weir_scope *outer = flow_scope_open(), *scope;
    int handled = 0, r;

    CHECK(open_actor(outer, &stage, 2, WEIR_RESTART_NEVER));
    scope = flow_scope_open();
    spawn_callers(scope, &stage, false);
    (void)flow_spawn(scope, 1, discard, &keep, sizeof keep, NULL);
    flow_scope_close(scope);
    r = weir_actor_wait(stage.actor);
    CHECK(r == 0 || r == WEIR_ECANCELED); /* 0: it had nothing left to discard */
    if (r == 0) CHECK_INT(stage.undelivered + stage.crashed, ==, 0);
    check_figures(&stage);
    for (int i = CALLERS * CALLS; i < MESSAGES; i++) handled += stage.handled[i];
    CHECK_INT(handled + stage.undelivered, ==, stage.casts_accepted);
    flow_scope_close(outer);
    CHECK_INT(stage.made, ==, stage.dropped);
    return 0;
}

/* ---- A call with a deadline ---- */

static int call_in_haste(void *arg)
{
    const struct caller *caller = arg;
    struct message message = {.number = caller->index, .work_ms = 3};
    struct reply reply = {-1};
    int r = WEIR_ETIMEDOUT;

    WEIR_DEADLINE(4) r = weir_actor_call(caller->stage->actor, &message, &reply);
    CHECK(r == message.number || r == WEIR_ETIMEDOUT);
    CHECK_OK(weir_sleep(20)); /* until the actor is done with what it has */
    CHECK_INT(reply.number, ==, r < 0 ? -1 : message.number);
    if (r >= 0) caller->stage->answered++;
    return 0;
}

SIM_TEST(call_with_a_deadline_leaves_in_time_and_alone, .runs_max = 6000, .config = FLOW_HOST)
{
    struct stage stage = {.inside = 0};
    weir_scope *outer = flow_scope_open(), *scope;
    weir_actor_figures figures;

    CHECK(open_actor(outer, &stage, 1, WEIR_RESTART_NEVER));
    scope = flow_scope_open();
    for (int i = 0; i < 3; i++) {
        struct caller caller = {&stage, i};
        (void)flow_spawn(scope, i, call_in_haste, &caller, sizeof caller, NULL);
    }
    flow_scope_close(scope);
    weir_actor_figures_of(stage.actor, &figures);
    CHECK_INT(stage.answered, ==, 1); /* one takes 3 ms of the 4 */
    CHECK_INT(figures.handled, ==, 1 + figures.abandoned);
    CHECK_INT(figures.accepted, ==, figures.handled + figures.removed);
    flow_scope_close(outer);
    return 0;
}

/* ---- Failing, and starting again ---- */

static int call_and_fail(void *arg)
{
    const struct caller *caller = arg;

    for (int i = 0; i < CALLS; i++) {
        struct message message = {.number = caller->index * CALLS + i, .fails = i == 0};
        struct reply reply = {-1};
        int r = weir_actor_call(caller->stage->actor, &message, &reply);
        CHECK_INT(r, ==, i == 0 ? WEIR_ECRASHED : message.number);
        CHECK_INT(reply.number, ==, i == 0 ? -1 : message.number);
        if (i > 0) caller->stage->answered++;
    }
    return 0;
}

/* Two callers, each of which lets it fail once and then calls again. */
static void fail_twice(struct stage *stage, enum weir_on_restart on_restart)
{
    weir_scope *outer = flow_scope_open(), *scope;

    CHECK(open_actor(outer, stage, 2, on_restart));
    scope = flow_scope_open();
    for (int i = 0; i < 2; i++) {
        struct caller caller = {stage, i};
        (void)flow_spawn(scope, i, call_and_fail, &caller, sizeof caller, NULL);
    }
    flow_scope_close(scope);
    weir_actor_stop(stage->actor, WEIR_DRAIN);
    CHECK_OK(weir_actor_wait(stage->actor));
    check_figures(stage);
    flow_scope_close(outer);
    CHECK_INT(stage->answered, ==, 2);
    CHECK_INT(stage->crashed, ==, 2);
    CHECK_INT(stage->made, ==, stage->dropped);
}

SIM_TEST(actor_that_keeps_its_state_goes_on_with_it, .runs_max = 6000, .config = FLOW_HOST)
{
    struct stage stage = {.inside = 0};

    fail_twice(&stage, WEIR_RESTART_KEEP);
    CHECK_INT(stage.made, ==, 1);
    CHECK_INT(stage.handled_with_state, ==, 2);
    return 0;
}

SIM_TEST(actor_that_resets_its_state_has_a_new_one, .runs_max = 6000, .config = FLOW_HOST)
{
    struct stage stage = {.inside = 0};

    fail_twice(&stage, WEIR_RESTART_RESET);
    CHECK_INT(stage.made, ==, 3);
    CHECK_INT(stage.handled_with_state, <=, 2);
    return 0;
}

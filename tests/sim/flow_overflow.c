/* flow_overflow.c - what has no room, or no memory, in actors, pipelines, pools and fan-outs. */
#include "sim/flow_program.h"

enum { SENDERS = 2, MESSAGES = 3 };

/* What has become of each message. */
struct account {
    int accepted[SENDERS][MESSAGES];
    int handled[SENDERS][MESSAGES], lost[SENDERS][MESSAGES];
    int last[SENDERS]; /* that was handled of each sender */
    weir_actor *actor;
    weir_pipeline *pipeline;
    weir_pool *pool;
    bool calls;
};

struct message {
    int sender, number;
    struct account *account;
};

struct sender {
    struct account *account;
    int index;
};

static void begin_account(struct account *account)
{
    memset(account, 0, sizeof *account);
    for (int i = 0; i < SENDERS; i++) account->last[i] = -1;
}

/* Those of one sender in order. */
static void note_handled(const struct message *message)
{
    struct account *account = message->account;

    CHECK_INT(++account->handled[message->sender][message->number], ==, 1);
    CHECK_INT(message->number, >, account->last[message->sender]);
    account->last[message->sender] = message->number;
}

static void note_lost(const struct message *message, int why)
{
    struct account *account = message->account;

    CHECK(why == WEIR_EOVERLOAD || why == WEIR_ECLOSED || why == WEIR_ECANCELED);
    CHECK_INT(++account->lost[message->sender][message->number], ==, 1);
    CHECK_INT(account->handled[message->sender][message->number], ==, 0);
}

/* Each message that was accepted was handled or is known to be lost, and no other one. */
static void settle_account(const struct account *account)
{
    for (int i = 0; i < SENDERS * MESSAGES; i++) {
        int sender = i / MESSAGES, number = i % MESSAGES;
        CHECK_INT(account->handled[sender][number] + account->lost[sender][number], ==,
                  account->accepted[sender][number]);
    }
}

/* ---- Actors ---- */

static int handle(void *state, const void *message, void *reply, void *arg)
{
    (void)state;
    (void)reply;
    (void)arg;
    note_handled(message);
    flow_linger();
    return 0;
}

static void undelivered(void *message, int why, void *arg)
{
    (void)arg;
    note_lost(message, why);
}

static int send_messages(void *arg)
{
    const struct sender *sender = arg;
    struct account *account = sender->account;

    for (int i = 0; i < MESSAGES; i++) {
        struct message message = {sender->index, i, account};
        bool calls = account->calls && i % 2;
        int r = calls ? weir_actor_call(account->actor, &message, NULL)
                      : weir_actor_cast(account->actor, &message);
        CHECK(r == 0 || r == WEIR_EOVERLOAD || flow_is_end(r));
        /* A call that was dropped later on is told so, and was accepted and lost in one. */
        if (r == 0) account->accepted[sender->index][i]++;
    }
    return 0;
}

static int cast_to_actor(enum weir_overflow overflow, bool calls)
{
    struct account account;
    weir_actor_spec spec = {.name = "clerk",
                            .mailbox_max = 1,
                            .overflow = overflow,
                            .on_restart = WEIR_RESTART_NEVER,
                            .on_message = handle,
                            .message_bytes = sizeof(struct message),
                            .on_undelivered = undelivered};
    weir_scope *outer = flow_scope_open(), *scope = NULL;

    begin_account(&account);
    account.calls = calls;
    if (!outer) return 0;
    if (weir_actor_open(outer, &spec, &account.actor) == 0) scope = flow_scope_open();
    if (scope) {
        for (int i = 0; i < SENDERS; i++) {
            struct sender sender = {&account, i};
            (void)flow_spawn(scope, i, send_messages, &sender, sizeof sender, NULL);
        }
        flow_scope_close(scope);
    }
    flow_scope_close(outer);
    /* Of a call that was at hand when all was cancelled the caller does not know. */
    if (weir_checkpoint() == 0 || !calls) settle_account(&account);
    return 0;
}

SIM_TEST(actor_that_drops_the_oldest_tells_of_it, .runs_max = 6000, .config = FLOW_HOST)
{
    return cast_to_actor(WEIR_DROP_OLDEST, weir_sim_choose(2) == 1);
}

SIM_TEST(actor_that_drops_the_newest_tells_of_it, .runs_max = 6000, .config = FLOW_HOST)
{
    return cast_to_actor(WEIR_DROP_NEWEST, weir_sim_choose(2) == 1);
}

SIM_TEST(actor_that_drops_accounts_for_all_after_a_cancel, .runs_max = 6000, .config = FLOW_HOST,
         FLOW_CANCELS_ONCE)
{
    return cast_to_actor(WEIR_DROP_OLDEST, weir_sim_choose(2) == 1);
}

/* ---- Pipelines, of which the second stage works in a pool ---- */

static int pass(void *item, void *arg)
{
    (void)item;
    (void)arg;
    return weir_yield();
}

static int finish_in_pool(void *item, void *arg)
{
    struct account *account = arg;
    const struct message *message = item;

    CHECK(message->account == account);
    (void)weir_pool_told(); /* others may go on here */
    return 0;
}

static int finish(void *item, void *arg)
{
    (void)arg;
    note_handled(item);
    return 0;
}

static void lost(void *item, const weir_lost *lost, void *arg)
{
    (void)arg;
    note_lost(item, lost->error);
}

static int send_items(void *arg)
{
    const struct sender *sender = arg;
    struct account *account = sender->account;

    for (int i = 0; i < MESSAGES; i++) {
        struct message message = {sender->index, i, account};
        int r = weir_pipeline_send(account->pipeline, &message);
        CHECK(r == 0 || r == WEIR_EOVERLOAD || flow_is_end(r));
        if (r == 0) account->accepted[sender->index][i]++;
    }
    return 0;
}

static bool open_line(weir_scope *scope, struct account *account, enum weir_overflow first,
                      enum weir_overflow second)
{
    static const weir_pool_class classes[] = {{.name = "only", .weight = 1, .queue_max = 2}};
    weir_pool_spec pool_spec = {.name = "crew",
                                .threads_max = 2,
                                .overflow = WEIR_WAIT,
                                .on_close = WEIR_DRAIN,
                                .classes = classes,
                                .class_count = 1};
    weir_stage_spec stages[3] = {{.name = "pass", .fn = pass, .overflow = first},
                                 {.name = "pool", .fn = finish_in_pool, .overflow = second},
                                 {.name = "last", .fn = finish, .overflow = WEIR_WAIT}};
    weir_pipeline_spec spec = {.name = "line",
                               .item_bytes = sizeof(struct message),
                               .budget_ms = 1000,
                               .stages = stages,
                               .stage_count = 3,
                               .on_lost = lost};

    for (int i = 0; i < 3; i++) {
        stages[i].concurrency = 1;
        stages[i].queue_max = 1;
        stages[i].timeout_ms = 100;
        stages[i].on_failure = WEIR_STAGE_FAIL;
        stages[i].keep_arg = account;
    }
    if (weir_pool_open(scope, &pool_spec, &account->pool) < 0) return false;
    stages[1].pool = account->pool;
    return weir_pipeline_open(scope, &spec, &account->pipeline) == 0;
}

static int send_through(enum weir_overflow first, enum weir_overflow second)
{
    struct account account;
    weir_scope *outer = flow_scope_open(), *scope = NULL;

    begin_account(&account);
    if (!outer) return 0;
    if (open_line(outer, &account, first, second)) scope = flow_scope_open();
    if (scope) {
        for (int i = 0; i < SENDERS; i++) {
            struct sender sender = {&account, i};
            (void)flow_spawn(scope, i, send_items, &sender, sizeof sender, NULL);
        }
        flow_scope_close(scope);
    }
    flow_scope_close(outer);
    settle_account(&account);
    return 0;
}

SIM_TEST(pipeline_that_waits_through_a_pool_loses_nothing, .runs_max = 4000, .config = FLOW_HOST)
{
    return send_through(WEIR_WAIT, WEIR_WAIT);
}

SIM_TEST(pipeline_that_drops_the_oldest_tells_of_it, .runs_max = 4000, .config = FLOW_HOST)
{
    return send_through(WEIR_DROP_OLDEST, WEIR_DROP_OLDEST);
}

SIM_TEST(pipeline_that_drops_the_newest_tells_of_it, .runs_max = 4000, .config = FLOW_HOST)
{
    return send_through(WEIR_DROP_NEWEST, WEIR_REJECT);
}

SIM_TEST(pipeline_through_a_pool_accounts_for_all_after_a_cancel, .runs_max = 4000,
         .config = FLOW_HOST, FLOW_CANCELS_ONCE)
{
    return send_through(WEIR_WAIT, WEIR_DROP_OLDEST);
}

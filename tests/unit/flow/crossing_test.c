/* crossing_test.c - a call that crosses the end of what it uses.
 *
 * A call that finds its task's budget used up yields before it does anything. What it was
 * called with may be closed meanwhile: it is then as if it had waited.
 */
#include "flow/pipeline.h"
#include "unit/flow/pipeline_test.h"

enum { BUDGET = 128 }; /* calls that need not wait, between two yields (rt/task.h) */

struct crossing {
    const char *name;
    int (*open)(weir_scope *scope);
    int (*call)(void);
    void (*close)(void);
    int expected;
};

static const struct crossing *crossing;
static ATOM(bool) inside, closed;
static weir_event *event;
static weir_mutex *mutex;
static weir_rwlock *rwlock;
static weir_semaphore *semaphore;
static weir_limit *limit;
static weir_rate *rate;
static weir_watch *watch;
static weir_broadcast *broadcast;
static weir_subscriber *subscriber;
static weir_pool *pool;
static weir_actor *actor;
static weir_pipeline *pipeline;

static int open_event(weir_scope *scope)
{
    return weir_event_open(scope, "e", &event);
}
static int wait_event(void)
{
    return weir_event_wait(event);
}
static void close_event(void)
{
    weir_event_close(event);
}

static int open_mutex(weir_scope *scope)
{
    return weir_mutex_open(scope, "m", &mutex);
}
static int lock_mutex(void)
{
    return weir_mutex_lock(mutex);
}
static void close_mutex(void)
{
    weir_mutex_close(mutex);
}

static int open_rwlock(weir_scope *scope)
{
    return weir_rwlock_open(scope, "l", &rwlock);
}
static int read_rwlock(void)
{
    return weir_rwlock_read(rwlock);
}
static void close_rwlock(void)
{
    weir_rwlock_close(rwlock);
}

static int open_semaphore(weir_scope *scope)
{
    weir_semaphore_spec spec = {.name = "s", .permits = 1, .waiters_max = 1, .overflow = WEIR_WAIT};
    return weir_semaphore_open(scope, &spec, &semaphore);
}
static int acquire(void)
{
    return weir_semaphore_acquire(semaphore, 1);
}
static void close_semaphore(void)
{
    weir_semaphore_close(semaphore);
}

static int open_limit(weir_scope *scope)
{
    weir_limit_spec spec = {.name = "l",
                            .kind = WEIR_LIMIT_FIXED,
                            .concurrency = 1,
                            .waiters_max = 1,
                            .overflow = WEIR_WAIT};
    return weir_limit_open(scope, &spec, &limit);
}
static int enter_limit(void)
{
    weir_limit_pass pass;
    return weir_limit_enter(limit, &pass);
}
static void close_limit(void)
{
    weir_limit_close(limit);
}

static int open_rate(weir_scope *scope)
{
    weir_rate_spec spec = {
        .name = "r", .rate = 1, .burst = 1, .waiters_max = 1, .overflow = WEIR_WAIT};
    return weir_rate_open(scope, &spec, &rate);
}
static int take_rate(void)
{
    return weir_rate_take(rate, 1);
}
static void close_rate(void)
{
    weir_rate_close(rate);
}

static int open_watch(weir_scope *scope)
{
    int value = 1;
    return weir_watch_open(scope, "w", &value, sizeof value, &watch);
}
static int await_change(void)
{
    uint64_t version = 1;
    int value;
    return weir_watch_changed(watch, &version, &value);
}
static void close_watch(void)
{
    weir_watch_close(watch);
}

static int open_subscriber(weir_scope *scope)
{
    weir_broadcast_spec spec = {
        .name = "b", .value_bytes = sizeof(int), .history = 4, .subscribers_max = 1};
    int r = weir_broadcast_open(scope, &spec, &broadcast);
    return r < 0 ? r : weir_broadcast_subscribe(broadcast, WEIR_LAG_SKIP, false, &subscriber);
}
static int next_value(void)
{
    int value;
    return weir_subscriber_next(subscriber, &value);
}
static void close_subscriber(void)
{
    weir_subscriber_close(subscriber);
}

static int open_pool(weir_scope *scope)
{
    static const weir_pool_class classes[] = {{.name = "c", .weight = 1, .queue_max = 1}};
    weir_pool_spec spec = {.name = "p",
                           .threads_max = 1,
                           .overflow = WEIR_WAIT,
                           .on_close = WEIR_DISCARD,
                           .classes = classes,
                           .class_count = 1};
    return weir_pool_open(scope, &spec, &pool);
}
static int do_nothing(void *data)
{
    (void)data;
    return 0;
}
static int run_in_pool(void)
{
    return weir_pool_run(pool, 0, do_nothing, NULL, 0);
}
static void close_pool(void)
{
    weir_pool_close(pool);
}

static int on_message(void *state, const void *message, void *reply, void *keep_arg)
{
    (void)state, (void)message, (void)reply, (void)keep_arg;
    return 0;
}
static int open_actor(weir_scope *scope)
{
    weir_actor_spec spec = {.name = "a",
                            .mailbox_max = 1,
                            .overflow = WEIR_WAIT,
                            .on_restart = WEIR_RESTART_NEVER,
                            .on_message = on_message,
                            .message_bytes = sizeof(int)};
    return weir_actor_open(scope, &spec, &actor);
}
static int call_actor(void)
{
    return weir_actor_call(actor, &(int){1}, NULL);
}
static int cast_actor(void)
{
    return weir_actor_cast(actor, &(int){1});
}
static int wait_actor(void)
{
    return weir_actor_wait(actor);
}
static void close_actor(void)
{
    weir_actor_close(actor);
}

static int open_pipeline(weir_scope *scope)
{
    weir_stage_spec stages[3];
    weir_pipeline_spec spec = three(stages);
    reset();
    spec.results_max = 1;
    return weir_pipeline_open(scope, &spec, &pipeline);
}
static int call_pipeline(void)
{
    return weir_pipeline_call(pipeline, &(struct item){0}, NULL);
}
static int send_pipeline(void)
{
    return weir_pipeline_send(pipeline, &(struct item){0});
}
static int recv_pipeline(void)
{
    struct item item;
    return weir_pipeline_recv(pipeline, &item, NULL);
}
static int wait_pipeline(void)
{
    return weir_pipeline_wait(pipeline);
}
static void close_pipeline(void)
{
    weir_pipeline_close(pipeline);
}

static const struct crossing crossings[] = {
    {"event", open_event, wait_event, close_event, WEIR_ECLOSED},
    {"mutex", open_mutex, lock_mutex, close_mutex, WEIR_ECLOSED},
    {"rwlock", open_rwlock, read_rwlock, close_rwlock, WEIR_ECLOSED},
    {"semaphore", open_semaphore, acquire, close_semaphore, WEIR_ECLOSED},
    {"limit", open_limit, enter_limit, close_limit, WEIR_ECLOSED},
    {"rate", open_rate, take_rate, close_rate, WEIR_ECLOSED},
    {"watch", open_watch, await_change, close_watch, WEIR_ECLOSED},
    {"subscriber", open_subscriber, next_value, close_subscriber, WEIR_ECLOSED},
    {"pool", open_pool, run_in_pool, close_pool, WEIR_ECLOSED},
    {"actor call", open_actor, call_actor, close_actor, WEIR_ECLOSED},
    {"actor cast", open_actor, cast_actor, close_actor, WEIR_ECLOSED},
    {"actor wait", open_actor, wait_actor, close_actor, WEIR_ECLOSED},
    {"pipeline call", open_pipeline, call_pipeline, close_pipeline, WEIR_ECLOSED},
    {"pipeline send", open_pipeline, send_pipeline, close_pipeline, WEIR_ECLOSED},
    {"pipeline recv", open_pipeline, recv_pipeline, close_pipeline, WEIR_ECLOSED},
    {"pipeline wait", open_pipeline, wait_pipeline, close_pipeline, WEIR_ECLOSED},
};

static int cross(void *arg)
{
    int *result = *(int **)arg;

    CHECK_OK(weir_yield());
    for (int i = 0; i < BUDGET; i++) CHECK_OK(weir_checkpoint());
    atom_store_release(&inside, true);
    *result = crossing->call();
    return 0;
}

static int close_meanwhile(void *arg)
{
    (void)arg;
    while (!atom_load_acquire(&inside)) CHECK_OK(weir_yield());
    crossing->close();
    atom_store_release(&closed, true);
    return 0;
}

/* Something else takes the memory. */
static void take_memory(weir_scope *scope)
{
    int_tx tx;
    int_rx rx;
    weir_chan_spec spec = {
        .name = "other", .capacity = 1, .overflow = WEIR_WAIT, .on_close = WEIR_DRAIN};
    for (int i = 0; i < 3; i++) CHECK_OK(weir_chan_open(scope, &spec, &tx, &rx));
}

FLOW_TEST(a_call_that_yields_first_is_told_that_it_was_closed_meanwhile)
{
    for (size_t i = 0; i < sizeof crossings / sizeof *crossings; i++) {
        int got = 1, *pointer = &got, result;
        crossing = &crossings[i];
        test_note("%s", crossing->name);
        atom_store(&inside, false);
        atom_store(&closed, false);
        FLOW_SCOPE(scope, &result)
        {
            CHECK_OK(crossing->open(scope));
            CHECK_OK(weir_spawn(scope, cross, &pointer, sizeof pointer));
            CHECK_OK(weir_spawn(scope, close_meanwhile, NULL, 0));
            while (!atom_load_acquire(&closed)) CHECK_OK(weir_yield());
            take_memory(scope);
        }
        CHECK_OK(result);
        CHECK_INT(got, ==, crossing->expected);
    }
    return 0;
}

/* ---- An end whose scope ends ---- */

static int_tx sender;
static int_rx taker;
static ATOM(int) crossed; /* what the call said, or NOT_YET, TOO_LATE */

static int call_send(void)
{
    return weir_send(sender, &(int){1});
}
static int call_send_many(void)
{
    return weir_tx_send_many(sender.end, (int[]){1, 2}, 2, NULL);
}
static int call_wait_done(void)
{
    return weir_tx_wait_done(sender.end);
}
static int call_recv(void)
{
    int item;
    return weir_recv(taker, &item);
}
static int call_recv_many(void)
{
    int items[2];
    return weir_rx_recv_many(taker.end, items, 2);
}

static int call_select_send(void)
{
    weir_case cases[] = {WEIR_CASE_SEND(sender, &(int){1})};
    int r = weir_select(cases, 1, WEIR_IN_ORDER);
    return r < 0 ? r : cases[0].result;
}
static int call_select_recv(void)
{
    int item;
    weir_case cases[] = {WEIR_CASE_RECV(taker, &item)};
    int r = weir_select(cases, 1, WEIR_IN_ORDER);
    return r < 0 ? r : cases[0].result;
}

static const struct end_call {
    const char *name;
    int (*call)(void);
    bool counts_done;
    enum weir_overflow overflow;
} end_calls[] = {
    {"send", call_send, false, WEIR_WAIT},
    {"send to one that drops", call_send, false, WEIR_DROP_OLDEST},
    {"send many", call_send_many, false, WEIR_WAIT},
    {"wait done", call_wait_done, true, WEIR_WAIT},
    {"receive", call_recv, false, WEIR_WAIT},
    {"receive many", call_recv_many, false, WEIR_WAIT},
    {"select to send", call_select_send, false, WEIR_WAIT},
    {"select to receive", call_select_recv, false, WEIR_WAIT},
};

enum { NOT_YET = 1, TOO_LATE };

static ATOM(bool) closing;
static weir_scope *outer_scope;
static const struct end_call *end_call;
static int_tx next_tx;

/* The yield of the call ends the worker's turn, which has been long: then mail is delivered, and
 * with it the scope's end. */
static int cross_end(void *arg)
{
    int64_t until_ns;

    (void)arg;
    while (!atom_load_acquire(&closing)) CHECK_OK(weir_yield());
    for (int i = 0; i < BUDGET; i++) CHECK_OK(weir_checkpoint());
    until_ns = weir_now_ns() + 300000;
    while (weir_now_ns() < until_ns) {}
    /* On a slow machine a turn has ended before: then its end is gone already. */
    atom_store_release(&crossed,
                       handle_object(sender.end, HANDLE_TX) ? end_call->call() : TOO_LATE);
    return 0;
}

static weir_chan_spec end_spec(void)
{
    return (weir_chan_spec){.name = "end",
                            .capacity = 4,
                            .overflow = end_call->overflow,
                            .on_close = WEIR_DRAIN,
                            .counts_done = end_call->counts_done};
}

/* As soon as the channel is gone another gets its memory. */
static int take_its_memory(void *arg)
{
    weir_chan_spec spec = end_spec();
    int_rx rx;

    (void)arg;
    while (handle_object(sender.end, HANDLE_TX)) CHECK_OK(weir_yield());
    CHECK(atom_load(&crossed) == NOT_YET || atom_load(&crossed) == TOO_LATE);
    CHECK_OK(weir_chan_open(outer_scope, &spec, &next_tx, &rx));
    CHECK_OK(weir_send(next_tx, &(int){7}));
    return 0;
}

/* False: it was too late. */
static bool cross_with_end(void)
{
    weir_chan_spec spec = end_spec();
    weir_chan_figures figures;
    int result;

    atom_store(&closing, false);
    atom_store(&crossed, NOT_YET);
    WEIR_SCOPE(scope, &result, .name = "channel's", .on_failure = WEIR_FAIL_FAST, .max_tasks = 1,
               .overflow = WEIR_REJECT) {
        CHECK_OK(weir_chan_open(scope, &spec, &sender, &taker));
        CHECK_OK(weir_spawn(outer_scope, cross_end, NULL, 0));
        CHECK_OK(weir_spawn(outer_scope, take_its_memory, NULL, 0));
        CHECK_OK(weir_yield());
        atom_store_release(&closing, true);
    }
    CHECK_OK(result);
    while (atom_load_acquire(&crossed) == NOT_YET) CHECK_OK(weir_yield());
    if (atom_load(&crossed) == TOO_LATE) return false;
    CHECK_INT(atom_load(&crossed), ==, WEIR_ECLOSED);
    weir_tx_figures(next_tx.end, &figures);
    CHECK_INT(figures.accepted, ==, 1);
    CHECK_INT(figures.depth, ==, 1);
    return true;
}

FLOW_TEST(a_call_of_an_end_that_yields_first_is_told_that_its_scope_has_ended)
{
    int result;

    for (size_t i = 0; i < sizeof end_calls / sizeof *end_calls; i++) {
        bool in_time = false;

        end_call = &end_calls[i];
        test_note("%s", end_call->name);
        for (int tries = 0; tries < 20 && !in_time; tries++) {
            FLOW_SCOPE(outer, &result)
            {
                outer_scope = outer;
                in_time = cross_with_end();
            }
            CHECK_OK(result);
        }
        if (!TEST_SLOW) CHECK(in_time);
    }
    return 0;
}

/* ---- Receivers of a pipeline ---- */

struct receiver {
    ATOM(int) result;
};

static int receive_one(void *arg)
{
    struct receiver *receiver = *(struct receiver **)arg;
    struct item item;
    atom_store(&receiver->result, weir_pipeline_recv(pipeline, &item, NULL));
    return 0;
}

static weir_task spawn_receiver(weir_scope *scope, struct receiver *receiver)
{
    weir_task_spec spec = {.fn = receive_one, .arg = &receiver, .arg_bytes = sizeof receiver};
    weir_task task;
    CHECK_OK(weir_task_spawn(scope, &spec, &task));
    return task;
}

FLOW_TEST(a_result_whose_receiver_is_cancelled_on_its_way_goes_to_the_next)
{
    struct receiver first = {1}, second = {1};
    weir_task task;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(open_pipeline(scope));
        task = spawn_receiver(scope, &first);
        settle();
        (void)spawn_receiver(scope, &second);
        settle();
        CHECK_OK(weir_pipeline_send(pipeline, &(struct item){0}));
        while (atom_load(&places[2].left) == 0) CHECK_OK(weir_yield());
        /* The first has been woken and has not run yet. */
        CHECK_INT(atom_load(&first.result), ==, 1);
        CHECK_OK(weir_task_cancel(task, "on its way"));
        settle();
        CHECK_INT(atom_load(&first.result), ==, WEIR_ECANCELED);
        CHECK_INT(atom_load(&second.result), ==, 0);
    }
    return result;
}

/* As many wait for a result: on whichever worker, they are inside their calls. */
static void await_receivers(size_t count)
{
    struct pipeline *object = handle_object(pipeline, HANDLE_PIPELINE);
    size_t waiting;

    do {
        waiting = 0;
        CHECK_OK(weir_yield());
        flow_lock(&object->object);
        list_for_each(node, &object->stages[object->stage_count].servers) waiting++;
        flow_unlock(&object->object);
    } while (waiting < count);
}

FLOW_TEST(a_receiver_is_told_that_its_pipeline_was_closed)
{
    int result;

    for (int i = 0; i < 20; i++) {
        struct receiver receivers[3] = {{1}, {1}, {1}};
        FLOW_SCOPE_ANYWHERE(scope, &result)
        {
            CHECK_OK(open_pipeline(scope));
            for (int k = 0; k < 3; k++) (void)spawn_receiver(scope, &receivers[k]);
            await_receivers(3);
            weir_pipeline_close(pipeline);
        }
        CHECK_OK(result);
        for (int k = 0; k < 3; k++) CHECK_INT(atom_load(&receivers[k].result), ==, WEIR_ECLOSED);
    }
    return 0;
}

/* ---- An actor that fails while it is closed ---- */

static ATOM(int) ending, given_up;

static int fail_at_once(void *state, const void *message, void *reply, void *keep_arg)
{
    (void)state, (void)message, (void)reply, (void)keep_arg;
    return -EIO;
}

/* It has failed; another worker closes it before it has ended, and the cancellation that goes
 * with that does not reach its task any more. */
static void end_slowly(void *state, void *keep_arg)
{
    (void)state, (void)keep_arg;
    atom_store_release(&ending, 1);
    while (!atom_load_acquire(&given_up)) {}
}

static int close_at_its_end(void *arg)
{
    (void)arg;
    while (!atom_load_acquire(&ending)) CHECK_OK(weir_yield());
    weir_actor_close(actor);
    atom_store_release(&given_up, 1);
    return 0;
}

static void fail_and_close(weir_scope *outer, enum weir_failure_policy policy)
{
    weir_actor_spec spec = {.name = "a",
                            .mailbox_max = 1,
                            .overflow = WEIR_WAIT,
                            .on_restart = WEIR_RESTART_NEVER,
                            .on_message = fail_at_once,
                            .message_bytes = sizeof(int),
                            .deinit = end_slowly,
                            .place = WEIR_PLACE_HERE};
    weir_scope_spec scope_spec = {
        .name = "owner", .on_failure = policy, .max_tasks = 2, .overflow = WEIR_REJECT};
    weir_task_spec task_spec = {
        .fn = close_at_its_end, .place = WEIR_PLACE_WORKER, .worker = 1, .name = "closer"};
    weir_scope *scope;
    weir_task task;

    if (policy == WEIR_SUPERVISE) {
        scope_spec.restart = (weir_restart){.max_restarts = 3, .window_ms = 60000};
    }
    atom_store(&ending, 0);
    atom_store(&given_up, 0);
    CHECK_OK(weir_scope_open(&scope_spec, &scope));
    CHECK_OK(weir_actor_open(scope, &spec, &actor));
    CHECK_OK(weir_task_spawn(outer, &task_spec, &task));
    CHECK_OK(weir_actor_cast(actor, &(int){1}));
    CHECK_OK(weir_task_join(task, NULL));
    while (weir_scope_task_count(scope) > 0) CHECK_OK(weir_yield());
    CHECK_INT(weir_scope_failures(scope, NULL, 0), ==, 0);
    CHECK_OK(weir_scope_close(scope));
}

FLOW_TEST(an_actor_that_fails_while_it_is_closed_is_not_started_again)
{
    int result;

    if (test_workers() < 2) return 0; /* its task and who closes it run at the same time */
    FLOW_SCOPE_ANYWHERE(outer, &result)
    {
        fail_and_close(outer, WEIR_COLLECT);
        fail_and_close(outer, WEIR_FAIL_FAST);
        fail_and_close(outer, WEIR_SUPERVISE);
    }
    return result;
}

/* The same without a place to wait at: whichever comes first. */
static int fail_soon(void *state, const void *message, void *reply, void *keep_arg)
{
    (void)state, (void)reply, (void)keep_arg;
    atom_store_release(&ending, 1);
    while (test_workers() > 1 && !atom_load_acquire(&given_up)) {}
    for (volatile int i = *(const int *)message; i > 0; i--) {}
    return -EIO;
}

static int close_soon(void *arg)
{
    while (!atom_load_acquire(&ending)) {
        if (test_workers() == 1) CHECK_OK(weir_yield());
    }
    atom_store_release(&given_up, 1);
    for (volatile int i = *(int *)arg; i > 0; i--) {}
    weir_actor_close(actor);
    return 0;
}

FLOW_TEST(an_actor_that_is_closed_at_any_moment_ends_as_cancelled_or_with_its_own_failure)
{
    weir_actor_spec spec = {.name = "a",
                            .mailbox_max = 1,
                            .overflow = WEIR_WAIT,
                            .on_restart = WEIR_RESTART_NEVER,
                            .on_message = fail_soon,
                            .message_bytes = sizeof(int),
                            .place = WEIR_PLACE_HERE};
    int result;

    FLOW_SCOPE_ANYWHERE(outer, &result)
    {
        for (int i = 0; i < 500 && !test_late(); i++) {
            int spins = 80 * i, inner;
            weir_task_spec task_spec = {.fn = close_soon,
                                        .arg = &spins,
                                        .arg_bytes = sizeof spins,
                                        .place = WEIR_PLACE_WORKER,
                                        .worker = test_workers() > 1 ? 1 : 0};
            weir_failure failure = {.error = -EIO};
            weir_task task;
            atom_store(&ending, 0);
            atom_store(&given_up, 0);
            WEIR_SCOPE(scope, &inner, .name = "owner", .on_failure = WEIR_COLLECT, .max_tasks = 2,
                       .overflow = WEIR_REJECT) {
                CHECK_OK(weir_actor_open(scope, &spec, &actor));
                CHECK_OK(weir_task_spawn(outer, &task_spec, &task));
                CHECK_OK(weir_actor_cast(actor, &(int){20000}));
                CHECK_OK(weir_task_join(task, NULL));
                while (weir_scope_task_count(scope) > 0) CHECK_OK(weir_yield());
                (void)weir_scope_failures(scope, &failure, 1);
                CHECK_INT(failure.error, ==, -EIO);
            }
        }
    }
    return result;
}

/* ---- An actor that is stopped before it starts again ---- */

static int fail_if_told(void *state, const void *message, void *reply, void *keep_arg)
{
    (void)state, (void)reply, (void)keep_arg;
    return *(const int *)message;
}

FLOW_TEST(actor_that_is_stopped_does_not_wait_for_its_restart)
{
    weir_actor_spec spec = {.name = "a",
                            .mailbox_max = 1,
                            .overflow = WEIR_WAIT,
                            .on_restart = WEIR_RESTART_KEEP,
                            .restart = {.max_restarts = 3, .window_ms = 60000, .backoff_ms = 15000},
                            .on_message = fail_if_told,
                            .message_bytes = sizeof(int)};
    int64_t begun_ns = weir_now_ns();
    weir_actor_figures figures;
    weir_actor *first, *second;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_actor_open(scope, &spec, &first));
        CHECK_OK(weir_actor_open(scope, &spec, &second));
        CHECK_INT(weir_actor_call(first, &(int){-EIO}, NULL), ==, WEIR_ECRASHED);
        CHECK_INT(weir_actor_call(second, &(int){-EIO}, NULL), ==, WEIR_ECRASHED);
        CHECK_OK(weir_actor_cast(first, &(int){0}));
        weir_actor_stop(first, WEIR_DRAIN);
        CHECK_OK(weir_actor_wait(first));
        weir_actor_figures_of(first, &figures);
        CHECK_INT(figures.handled, ==, 1);
    } /* which dismisses the second */
    CHECK_INT(weir_now_ns() - begun_ns, <, INT64_C(10000000000));
    return result;
}

/* map_test.c - every boundary is on the map, with what it declares and does. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rt/scope.h"
#include "unit/flow/flow_test.h"
#include "unit/watch/formats.h"
#include "watch/map.h"

static char text[4 * 1024 * 1024];

static void take_map(enum weir_map_format format)
{
    int fd = memfd_create("map", MFD_CLOEXEC);
    ssize_t bytes;

    CHECK_OK(weir_map(fd, format));
    bytes = pread(fd, text, sizeof text - 1, 0);
    CHECK_INT(bytes, >, 0);
    CHECK_INT(bytes, <, sizeof text - 1);
    text[bytes] = '\0';
    CHECK_INT(close(fd), ==, 0);
    if (format == WEIR_MAP_JSON) check_json(text);
}

/* The line of JSON about a boundary. */
static const char *row(const char *kind, const char *name)
{
    static char line[2048];
    char begin[256];
    const char *at;

    (void)snprintf(begin, sizeof begin, "{\"kind\":\"%s\",\"name\":\"%s", kind, name);
    at = strstr(text, begin);
    if (!at) TEST_FAIL("there is no %s '%s':\n%s", kind, name, text);
    (void)snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
    return line;
}

#define SERVE(scope_, ret_result)                                                 \
    WEIR_SCOPE(scope_, ret_result, .name = "serve", .on_failure = WEIR_FAIL_FAST, \
               .max_tasks = 2048, .overflow = WEIR_REJECT, .place = WEIR_PLACE_HERE)

/* ---- One of each ---- */

static void on_fire(weir_timer *fired, void *keep_arg)
{
    (void)fired, (void)keep_arg;
}

static void on_ready(weir_conn *conn, int status, void *arg)
{
    (void)conn, (void)status, (void)arg;
}

static const weir_pool_class classes[] = {
    {.name = "user", .weight = 4, .queue_max = 64, .latency_ms = 250},
    {.name = "bulk", .weight = 1, .queue_max = 16}};

static void open_flow(weir_scope *scope)
{
    static const weir_chan_spec chan = {.name = "orders",
                                        .capacity = 64,
                                        .capacity_max = 128,
                                        .overflow = WEIR_DROP_OLDEST,
                                        .on_close = WEIR_DRAIN,
                                        .latency_ms = 20};
    static const weir_pool_spec pool = {.name = "crunch",
                                        .threads_max = 2,
                                        .overflow = WEIR_REJECT,
                                        .on_close = WEIR_DISCARD,
                                        .classes = classes,
                                        .class_count = 2};
    static const weir_semaphore_spec semaphore = {
        .name = "slots", .permits = 3, .overflow = WEIR_WAIT, .waiters_max = 5};
    static const weir_broadcast_spec broadcast = {
        .name = "news", .value_bytes = 4, .history = 16, .subscribers_max = 7};
    static const weir_limit_spec limit = {.name = "upstream",
                                          .kind = WEIR_LIMIT_ADAPTIVE,
                                          .concurrency = 8,
                                          .concurrency_max = 50,
                                          .overflow = WEIR_WAIT,
                                          .waiters_max = 4,
                                          .latency_ms = 12};
    static const weir_rate_spec rate = {
        .name = "mail", .rate = 10, .burst = 5, .rate_max = 20, .overflow = WEIR_REJECT};
    static const weir_shed_spec shed = {.name = "late", .target_ms = 5, .interval_ms = 100};
    int value = 1;
    int_tx tx;
    int_rx rx;
    weir_pool *opened_pool;
    weir_event *event;
    weir_semaphore *opened_semaphore;
    weir_mutex *mutex;
    weir_rwlock *rwlock;
    weir_broadcast *opened_broadcast;
    weir_watch *watch;
    weir_limit *opened_limit;
    weir_rate *opened_rate;
    weir_shed *opened_shed;

    CHECK_OK(weir_chan_open(scope, &chan, &tx, &rx));
    for (int i = 0; i < 65; i++) CHECK_OK(weir_try_send(tx, &i));
    CHECK_OK(weir_pool_open(scope, &pool, &opened_pool));
    CHECK_OK(weir_event_open(scope, "ready", &event));
    CHECK_OK(weir_semaphore_open(scope, &semaphore, &opened_semaphore));
    CHECK_OK(weir_limit_open(scope, &limit, &opened_limit));
    CHECK_OK(weir_rate_open(scope, &rate, &opened_rate));
    CHECK_OK(weir_rate_take(opened_rate, 2));
    CHECK_OK(weir_shed_open(scope, &shed, &opened_shed));
    CHECK_OK(weir_mutex_open(scope, "guard", &mutex));
    CHECK_OK(weir_rwlock_open(scope, "table", &rwlock));
    CHECK_OK(weir_broadcast_open(scope, &broadcast, &opened_broadcast));
    CHECK_OK(weir_watch_open(scope, "config", &value, sizeof value, &watch));
}

static int pass(void *item, void *keep_arg)
{
    (void)item, (void)keep_arg;
    return 0;
}

static int handle(void *state, const void *message, void *reply, void *keep_arg)
{
    (void)state, (void)message, (void)reply, (void)keep_arg;
    return 0;
}

static void lose(void *item, const weir_lost *lost, void *keep_arg)
{
    (void)item, (void)lost, (void)keep_arg;
}

/* What has tasks of its own. */
static void open_served(weir_scope *scope)
{
    static const weir_stage_spec stages[] = {{.name = "parse",
                                              .fn = pass,
                                              .concurrency = 2,
                                              .queue_max = 6,
                                              .overflow = WEIR_REJECT,
                                              .timeout_ms = 100,
                                              .on_failure = WEIR_STAGE_FAIL,
                                              .latency_ms = 15}};
    weir_pipeline *pipeline;
    weir_actor *actor;
    int message = 1;

    CHECK_OK(weir_actor_open(
        scope,
        &(weir_actor_spec){.name = "account",
                           .mailbox_max = 12,
                           .overflow = WEIR_DROP_NEWEST,
                           .on_restart = WEIR_RESTART_KEEP,
                           .restart = {.max_restarts = 3, .window_ms = 1000, .backoff_ms = 10},
                           .on_message = handle,
                           .message_bytes = sizeof(int),
                           .latency_ms = 30},
        &actor));
    CHECK_OK(weir_actor_call(actor, &message, NULL));
    CHECK_OK(weir_pipeline_open(scope,
                                &(weir_pipeline_spec){.name = "pages",
                                                      .item_bytes = sizeof(int),
                                                      .budget_ms = 1000,
                                                      .stages = stages,
                                                      .stage_count = 1,
                                                      .on_lost = lose,
                                                      .latency_ms = 200},
                                &pipeline));
}

static weir_postbox *box;
static weir_timer *timer;
static weir_signal_watch *signals;

static void open_rest(weir_scope *scope, weir_conn *conn)
{
    static const int usr2[] = {SIGUSR2};

    CHECK_OK(weir_postbox_open(
        scope, &(weir_postbox_spec){.name = "inbox", .capacity = 9, .overflow = WEIR_REJECT},
        &box));
    CHECK_OK(
        weir_timer_open(scope, &(weir_timer_spec){.name = "tick", .on_fire = on_fire}, &timer));
    CHECK_OK(weir_signal_open(
        scope, &(weir_signal_spec){.name = "reload", .signals = usr2, .signals_count = 1},
        &signals));
    CHECK_OK(
        weir_conn_idle(scope, conn, &(weir_idle_spec){.on_ready = on_ready, .idle_ms = 60000}));
}

static void open_processes(weir_scope *scope)
{
    static const char *const arguments[] = {"60", NULL};
    static const weir_process_spec spec = {.name = "child",
                                           .program = "/bin/sleep",
                                           .arguments = arguments,
                                           .on_exit = WEIR_EXIT_ANY,
                                           .grace_ms = 100};
    static const weir_process_pool_spec pool = {.name = "render",
                                                .program = "/bin/true",
                                                .helpers_max = 2,
                                                .in_bytes_max = 8,
                                                .out_bytes_max = 8,
                                                .queue_max = 5,
                                                .overflow = WEIR_REJECT,
                                                .job_ms = 1000,
                                                .max_restarts = 3,
                                                .window_ms = 1000,
                                                .on_close = WEIR_DRAIN};
    weir_process_pool *opened_pool;
    weir_process *process;

    CHECK_OK(weir_process_start(scope, &spec, &process));
    CHECK_OK(weir_process_pool_open(scope, &pool, &opened_pool));
}

static const struct {
    const char *kind, *name, *part;
} expected[] = {
    {"executor", "files", "\"owner\":\"runtime\""},
    {"executor", "names", "\"overflow\":\"reject\""},
    {"executor", "processes", "\"overflow\":\"reject\""},
    {"process", "child", "\"alive\":1"},
    {"process pool", "render", "\"bound\":\"2 helpers, 5 queued\",\"overflow\":\"reject\""},
    {"scope", "root", "\"lifetime\":\"the runtime's\""},
    {"scope", "serve", "\"owner\":\"root/main\""},
    {"channel", "orders", "\"bound\":\"64 items (at most 128)\",\"overflow\":\"drop oldest\""},
    {"channel", "orders", "\"latency_target_ms\":20,\"wait\":{\"count\":"},
    {"channel", "orders", "\"depth\":64,\"depth_max\":64,\"accepted\":65,\"received\":0,"},
    {"channel", "orders", "\"owner\":\"root/main/serve\""},
    {"pool", "crunch", "\"bound\":\"0 to 2 threads (at most 2), 2 classes\""},
    {"pool class", "crunch/user", "\"latency_target_ms\":250"},
    {"pool class", "crunch/bulk", "\"bound\":\"16 queued, 2 running, weight 1\""},
    {"event", "ready", "\"set\":0"},
    {"semaphore", "slots", "\"bound\":\"3 permits (at most 3), 5 may wait\""},
    {"limit", "upstream", "\"bound\":\"4 at a time (adaptive, 1 to 50), 4 may wait\""},
    {"limit", "upstream", "\"overflow\":\"wait, then reject\""},
    {"limit", "upstream", "\"latency_target_ms\":12,\"wait\":{\"count\":0"},
    {"rate", "mail", "\"bound\":\"10 in 1000 ms (at most 20), burst 5 (at most 5), 0 may wait\""},
    {"rate", "mail", "\"admitted\":1,\"taken\":2,\"returned\":0,\"waited\":0,\"rejected\":0"},
    {"shed", "late", "\"bound\":\"waits of 5 ms, more for 100 ms, never more than 100 ms\""},
    {"mutex", "guard", "\"held\":0"},
    {"read-write lock", "table", "\"readers\":0"},
    {"broadcast", "news", "\"bound\":\"16 values, 7 subscribers\""},
    {"actor", "account", "\"bound\":\"12 messages\",\"overflow\":\"drop newest\""},
    {"actor", "account", "\"failure\":\"supervised: at most 3 restarts in 1000 ms\""},
    {"actor", "account", "\"latency_target_ms\":30,\"wait\":{\"count\":1,"},
    {"pipeline", "pages", "\"latency_target_ms\":200"},
    {"stage", "pages/parse", "\"latency_target_ms\":15"},
    {"watch", "config", "\"version\":"},
    {"postbox", "inbox", "\"bound\":\"9 functions queued\",\"overflow\":\"reject\""},
    {"timer", "tick", "\"armed\":0"},
    {"signal watch", "reload", "\"bound\":\"1 signals, counted\""},
    {"idle wait", "descriptor ", "\"lifetime\":\"until readable"},
    {"no deadline", "until it is stopped", "\"owner\":\"root/main/serve/waiter\""},
};
enum { EXPECTED = sizeof expected / sizeof expected[0] };

static int waiter(void *arg)
{
    weir_event *never;
    int r = 0;

    WEIR_SCOPE(scope, &r, .name = "inner", .on_failure = WEIR_SUPERVISE, .max_tasks = 3,
               .overflow = WEIR_REJECT, .restart = {.max_restarts = 5, .window_ms = 1000}) {
        CHECK_OK(weir_event_open(scope, "deep", &never));
        WEIR_NO_DEADLINE("until it is stopped") { r = weir_event_wait(never); }
        (void)arg;
    }
    return r;
}

static void check_text(void)
{
    take_map(WEIR_MAP_TEXT);
    CHECK_CONTAINS(text,
                   "channel 'orders' of root/main/serve\n"
                   "    lifetime: until closed, or its last end is dropped, or the scope ends\n"
                   "    bound: 64 items (at most 128); overflow: drop oldest\n"
                   "    failure: drain at close; what nobody gets is forgotten\n"
                   "    latency: target 20 ms");
    CHECK_CONTAINS(text, "    figures: depth 64, depth_max 64, accepted 65, ");
    CHECK_CONTAINS(text, "scope 'inner' of root/main/serve/waiter (");
    CHECK_CONTAINS(text, "failure: supervise: at most 5 restarts in 1000 ms\n");
}

FLOW_TEST(map_has_one_of_each_with_its_four_properties)
{
    weir_conn *near, *far;
    int result;

    if (test_emulated()) TEST_SKIP("the emulator makes no process with a pidfd");

    CHECK_OK(weir_socketpair(&near, &far));
    SERVE(scope, &result)
    {
        open_flow(scope);
        open_served(scope);
        open_rest(scope, near);
        open_processes(scope);
        CHECK_OK(weir_spawn(scope, waiter, NULL, 0));
        CHECK_OK(weir_yield());
        take_map(WEIR_MAP_JSON);
        for (int i = 0; i < EXPECTED; i++) {
            const char *line = row(expected[i].kind, expected[i].name);
            test_note("row %d", i);
            CHECK_CONTAINS(line, expected[i].part);
        }
        /* Nobody leaves one of the four out. */
        CHECK(strstr(text, "\"lifetime\":null") == NULL);
        CHECK(strstr(text, "\"bound\":null") == NULL);
        CHECK(strstr(text, "\"overflow\":null") == NULL);
        CHECK(strstr(text, "\"failure\":null") == NULL);
        CHECK(strstr(text, "\"inspected\":false") == NULL);
        CHECK_CONTAINS(text, "\"omitted\":0}");
        check_text();
        weir_scope_cancel(scope, 0, "seen");
    }
    weir_postbox_unref(box);
    weir_conn_close(near);
    weir_conn_close(far);
    return 0;
}

/* ---- A kind without a boundary ---- */

static void let_go(struct worker *worker, struct belonging *belonging)
{
    (void)worker;
    (void)scope_forget(belonging);
}

static const struct belonging_kind nameless_kind = {.name = "nameless", .release = let_go};

static int own_nameless(void *arg)
{
    static struct belonging belonging;
    int result;

    (void)arg;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(scope_own(scope, worker_self(), &belonging, &nameless_kind));
    }
    return result;
}

static void run_nameless(void *arg)
{
    CHECK_OK(weir_run(&(weir_config){.workers = 1}, own_nameless, arg));
}

TEST(a_kind_that_is_not_on_the_map_cannot_be_owned)
{
    CHECK_ABORTS(run_nameless, NULL, "kind->boundary");
}

/* ---- Bounds and errors ---- */

static int hold_scope(void *arg)
{
    weir_event *stop = *(weir_event **)arg;
    int r;
    WEIR_SCOPE(scope, &r, .name = "request", .on_failure = WEIR_COLLECT, .max_tasks = 1,
               .overflow = WEIR_REJECT) {
        r = weir_event_wait(stop);
    }
    return r;
}

FLOW_TEST(map_finds_the_scopes_of_a_thousand_tasks)
{
    weir_event *stop;
    size_t count = 0;
    int result;

    SERVE(scope, &result)
    {
        CHECK_OK(weir_event_open(scope, "stop", &stop));
        for (int i = 0; i < 1000; i++) CHECK_OK(weir_spawn(scope, hold_scope, &stop, sizeof stop));
        CHECK_OK(weir_yield());
        take_map(WEIR_MAP_JSON);
        for (const char *at = text; (at = strstr(at, "\"name\":\"request\"")); at++) count++;
        CHECK_INT(count, ==, 1000);
        CHECK_CONTAINS(row("event", "stop"), "\"waiting\":1000");
        weir_event_set(stop);
    }
    return result;
}

FLOW_TEST(map_shows_at_most_so_many_rows_and_counts_the_others)
{
    static weir_timer *timers[WEIR_MAP_ROWS_MAX];
    static const char row[] = "{\"kind\"";
    size_t count = 0;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        for (int i = 0; i < WEIR_MAP_ROWS_MAX; i++) {
            CHECK_OK(weir_timer_open(scope, &(weir_timer_spec){.name = "tick", .on_fire = on_fire},
                                     &timers[i]));
        }
        take_map(WEIR_MAP_JSON);
        /* Not by strstr, of which AddressSanitizer reads all that is left each time. */
        for (const char *at = text; *at; at++) {
            if (*at == '{' && strncmp(at, row, sizeof row - 1) == 0) count++;
        }
        CHECK_INT(count, ==, WEIR_MAP_ROWS_MAX);
        CHECK_CONTAINS(text, "\"omitted\":5}"); /* three executors and two scopes came first */
    }
    return result;
}

static int wait_without_deadline(void *arg)
{
    weir_event *stop = *(weir_event **)arg;
    int r = WEIR_EREFUSED;

    WEIR_NO_DEADLINE("one") {
        WEIR_NO_DEADLINE("two") {
            WEIR_NO_DEADLINE("three") {
                WEIR_NO_DEADLINE("four") {
                    WEIR_NO_DEADLINE("five") { r = weir_event_wait(stop); }
                }
            }
        }
    }
    return r;
}

/* With a million tasks, too: what is not shown takes no memory. */
FLOW_TEST(map_keeps_nothing_of_what_it_leaves_out)
{
    static struct map map;
    weir_event *stop;
    size_t each;
    int result;

    SERVE(scope, &result)
    {
        CHECK_OK(weir_event_open(scope, "stop", &stop));
        for (int i = 0; i < 2040; i++) {
            CHECK_OK(weir_spawn(scope, wait_without_deadline, &stop, sizeof stop));
        }
        CHECK_OK(weir_yield());
        CHECK_OK(map_walk(&map));
        CHECK_INT(map.row_count, ==, WEIR_MAP_ROWS_MAX);
        CHECK_INT(map.omitted, >, 200);
        each = strlen(map.owners.data + map.rows[map.row_count - 1].owner) + 1;
        CHECK_INT(map.owners.used, <=, map.row_count * each);
        map_deinit(&map);
        weir_event_set(stop);
    }
    return result;
}

TEST(map_needs_a_runtime)
{
    CHECK_INT(weir_map(1, WEIR_MAP_JSON), ==, WEIR_ENOTASK);
}

FLOW_TEST(map_refuses_an_unset_format_and_passes_errors_on)
{
    CHECK_INT(weir_map(1, WEIR_MAP_FORMAT_UNSET), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "format is not set");
    CHECK_INT(weir_map(-1, WEIR_MAP_TEXT), ==, -EBADF);
    return 0;
}

static int look_at_map(void *arg)
{
    int fd = memfd_create("map", MFD_CLOEXEC);
    int r = weir_map(fd, WEIR_MAP_JSON);
    (void)arg;
    CHECK_INT(close(fd), ==, 0);
    return r;
}

static int run_look(void *arg)
{
    return weir_run(&(weir_config){.workers = 1, .log_level = WEIR_LOG_OFF}, look_at_map, arg);
}

TEST(map_survives_a_lack_of_memory_anywhere)
{
    CHECK_INT(test_sweep_alloc(run_look, NULL), >, 3);
}

/* ---- While others work ---- */

static int pass_items(void *arg)
{
    int_tx tx = *(int_tx *)arg;
    for (int i = 0; i < 20000; i++) CHECK_OK(weir_send(tx, &i));
    return 0;
}

static int check_figures(const char *data, size_t bytes, void *keep_arg)
{
    (void)bytes, (void)keep_arg;
    check_json(data);
    return 0;
}

FLOW_TEST(map_and_metrics_are_taken_beside_traffic)
{
    static const weir_chan_spec spec = {
        .name = "busy", .capacity = 16, .overflow = WEIR_WAIT, .on_close = WEIR_DRAIN};
    int result, item, received = 0;
    int_tx tx;
    int_rx rx;

    FLOW_SCOPE_ANYWHERE(scope, &result)
    {
        CHECK_OK(weir_chan_open(scope, &spec, &tx, &rx));
        CHECK_OK(weir_spawn(scope, pass_items, &tx, sizeof tx));
        for (; received < 20000; received++) {
            CHECK_OK(weir_recv(rx, &item));
            if (received % 1000 == 0) {
                take_map(WEIR_MAP_JSON);
                CHECK_CONTAINS(row("channel", "busy"), "\"bound\":\"16 items");
                CHECK_OK(weir_metrics_read(WEIR_METRICS_JSON, check_figures, NULL));
            }
        }
    }
    return result;
}

/* alerts_test.c - a program that has one of everything that is measured, for tests/alerts/run. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit/flow/flow_test.h"
#include "unit/store/log_test.h"
#include "unit/watch/trace_test.h"

static int handle(void *state, const void *message, void *reply, void *arg)
{
    (void)state, (void)message, (void)reply, (void)arg;
    return 0;
}

static int work(void *item, void *arg)
{
    (void)item, (void)arg;
    return 0;
}

static void lost(void *item, const weir_lost *why, void *arg)
{
    (void)item, (void)why, (void)arg;
}

static void letter_lost(const weir_letter *letter, const void *item, void *arg)
{
    (void)letter, (void)item, (void)arg;
}

static void open_resilience(weir_scope *scope)
{
    weir_breaker *breaker;
    weir_dead_letters *sink;

    CHECK_OK(weir_breaker_open(scope,
                               &(weir_breaker_spec){.name = "bank",
                                                    .window_calls = 8,
                                                    .calls_min = 4,
                                                    .failure_percent = 50,
                                                    .open_ms = 100,
                                                    .probes_max = 1},
                               &breaker));
    weir_breaker_trip(breaker);
    CHECK_OK(weir_dead_letters_open(scope,
                                    &(weir_dead_letters_spec){.name = "failed",
                                                              .capacity = 16,
                                                              .item_bytes_max = 64,
                                                              .overflow = WEIR_REJECT,
                                                              .on_lost = letter_lost},
                                    &sink));
}

static void open_flow(weir_scope *scope)
{
    const weir_pool_class classes[] = {
        {.name = "all", .weight = 1, .queue_max = 8, .latency_ms = 10}};
    const weir_stage_spec stages[] = {{.name = "rank",
                                       .fn = work,
                                       .concurrency = 1,
                                       .queue_max = 4,
                                       .overflow = WEIR_WAIT,
                                       .timeout_ms = 10,
                                       .on_failure = WEIR_STAGE_FAIL,
                                       .latency_ms = 10}};
    weir_pipeline *pipeline;
    weir_actor *actor;
    weir_pool *pool;
    int_tx tx;
    int_rx rx;

    CHECK_OK(weir_chan_open(scope,
                            &(weir_chan_spec){.name = "orders",
                                              .capacity = 4,
                                              .overflow = WEIR_REJECT,
                                              .on_close = WEIR_DISCARD,
                                              .latency_ms = 10},
                            &tx, &rx));
    CHECK_OK(weir_actor_open(scope,
                             &(weir_actor_spec){.name = "cart",
                                                .mailbox_max = 4,
                                                .overflow = WEIR_REJECT,
                                                .on_restart = WEIR_RESTART_NEVER,
                                                .on_message = handle,
                                                .message_bytes = sizeof(int),
                                                .latency_ms = 10},
                             &actor));
    CHECK_OK(weir_pool_open(scope,
                            &(weir_pool_spec){.name = "work",
                                              .threads_max = 1,
                                              .overflow = WEIR_REJECT,
                                              .on_close = WEIR_DRAIN,
                                              .classes = classes,
                                              .class_count = 1},
                            &pool));
    CHECK_OK(weir_pipeline_open(scope,
                                &(weir_pipeline_spec){.name = "search",
                                                      .item_bytes = sizeof(int),
                                                      .budget_ms = 100,
                                                      .stages = stages,
                                                      .stage_count = 1,
                                                      .on_lost = lost,
                                                      .latency_ms = 10},
                                &pipeline));
}

static void open_store(weir_scope *scope, const char *folder, weir_store **ret_store)
{
    weir_enqueued enqueued;

    CHECK_OK(weir_store_open(scope,
                             &(weir_store_spec){.name = "work",
                                                .path = folder,
                                                .create = true,
                                                .durability = WEIR_MEMORY,
                                                .memory_bytes_max = 1 << 20,
                                                .segment_bytes = WEIR_STORE_SEGMENT_BYTES_MIN,
                                                .queue_depth_max = 100,
                                                .queue_overflow = WEIR_REJECT},
                             ret_store));
    CHECK_OK(weir_queue_set(*ret_store, &(weir_queue_spec){.name = "mail",
                                                           .depth_max = 50,
                                                           .overflow = WEIR_REJECT,
                                                           .latency_target_ms = 2000}));
    CHECK_OK(weir_job_enqueue(
        *ret_store, &(weir_job_spec){.queue = "mail", .kind = "welcome", .idempotent = WEIR_YES},
        &enqueued));
}

static int has_queue(const char *text, size_t bytes, void *arg)
{
    (void)bytes;
    *(bool *)arg = strstr(text, "weir_queue_depth_max{") != NULL;
    return 0;
}

/* The store's own task shows a new queue. */
static void wait_for_queue(void)
{
    bool shown = false;

    while (!shown) {
        CHECK_OK(weir_metrics_read(WEIR_METRICS_PROMETHEUS, has_queue, &shown));
        CHECK_OK(weir_yield());
    }
}

static int scrape(void *arg)
{
    char folder[] = "/tmp/weir-test-XXXXXX";
    int r = 0;

    (void)arg;
    CHECK(mkdtemp(folder) != NULL);
    FLOW_SCOPE(scope, &r)
    {
        WEIR_DEADLINE(60000) {
            weir_store *store = NULL;

            open_flow(scope);
            open_resilience(scope);
            open_store(scope, folder, &store);
            wait_for_queue();
            r = weir_metrics_write(STDOUT_FILENO, WEIR_METRICS_PROMETHEUS);
            if (r == 0) r = weir_store_close(store);
        }
    }
    folder_remove_all(folder);
    return r;
}

TEST_PROGRAM(scrape_one_of_everything)
{
    return weir_run(&(weir_config){.workers = test_workers(),
                                   .log_level = WEIR_LOG_OFF,
                                   .trace = TRACE_SINK(),
                                   .watchdog_signal = SIGURG},
                    scrape, NULL) < 0;
}

/* The bounds that the alerts compare depths with. */
TEST(every_queue_shows_its_bound_and_its_target)
{
    static char text[1 << 18];
    static const char *const lines[] = {
        "\nweir_channel_capacity{channel=\"orders\"} 4\n",
        "\nweir_actor_capacity{actor=\"cart\"} 4\n",
        "\nweir_pool_capacity{pool=\"work\",class=\"all\"} 8\n",
        "\nweir_stage_capacity{stage=\"rank\"} 4\n",
        "\nweir_channel_latency_target_seconds{channel=\"orders\"} 0.01\n",
        "\nweir_actor_latency_target_seconds{actor=\"cart\"} 0.01\n",
        "\nweir_pool_latency_target_seconds{pool=\"work\",class=\"all\"} 0.01\n",
        "\nweir_stage_latency_target_seconds{stage=\"rank\"} 0.01\n",
        "\nweir_pipeline_latency_target_seconds{pipeline=\"search\"} 0.01\n",
        "\nweir_dead_letters_capacity{sink=\"failed\"} 16\n",
        "\nweir_breaker_state{breaker=\"bank\",state=\"closed\"} 0\n",
        "\nweir_watchdog_hits_total ", /* a busy machine may have had a hit */
        "\nweir_queue_depth{queue=\"mail\",state=\"ready\"} 1\n",
        "\nweir_queue_depth_max{queue=\"mail\"} 50\n",
        "\nweir_queue_latency_target_seconds{queue=\"mail\"} 2\n",
        "\nweir_jobs_enqueued_total{queue=\"mail\"} 1\n",
        "\nweir_jobs_finished_total{queue=\"mail\",outcome=\"dead\"} 0\n",
        "\nweir_jobs_lost_total{queue=\"mail\"} 0\n",
        "\nweir_jobs_rejected_total{queue=\"mail\"} 0\n",
        "\nweir_store_memory_bytes_max{store=\"work\"} 1048576\n",
        "\nweir_store_stopped{store=\"work\"} 0\n",
        "\nweir_store_without_room{store=\"work\"} 0\n",
        "\nweir_store_clock_ahead_seconds{store=\"work\"} 0\n",
    };
    const char *const argv[] = {TEST_PROGRAM_PATH, "scrape_one_of_everything", NULL};

    TEST_SKIP_ON_VALGRIND("it does not follow a program that runs itself anew");
    CHECK_INT(test_exec(argv, text, sizeof text), ==, 0);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) CHECK_CONTAINS(text, lines[i]);
}

/* promtool check metrics, on one of everything. */
TEST(promtool_finds_nothing_wrong_with_one_of_everything)
{
    static char text[1 << 16];
    const char *const argv[] = {"/bin/sh", "-c",
                                "command -v promtool >/dev/null || exit 77; "
                                "\"$0\" scrape_one_of_everything | promtool check metrics 2>&1",
                                "", NULL};
    char program[512];
    const char *arguments[6];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    int status;

    TEST_SKIP_ON_VALGRIND("it does not follow a program that runs itself anew");
    if (test_emulated()) TEST_SKIP("the shell does not know of the emulator");
    CHECK_INT(n, >, 0);
    program[n] = '\0';
    memcpy(arguments, argv, sizeof argv);
    arguments[3] = program;
    status = test_exec(arguments, text, sizeof text);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) TEST_SKIP("there is no promtool");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) TEST_FAIL("promtool says: %s", text);
}

/* tracer_test.c - from the end of a span to the exporter: when, how many, and what if it fails
 * or hangs. */
#include "watch/trace.h"

#include <semaphore.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"
#include "unit/watch/formats.h"
#include "unit/watch/trace_test.h"

static void spans(int count)
{
    for (int i = 0; i < count; i++)
        WEIR_SPAN("span") {}
}

/* ---- When ---- */

static size_t sink_count(void)
{
    size_t count;
    (void)pthread_mutex_lock(&test_sink.mutex);
    count = test_sink.count;
    (void)pthread_mutex_unlock(&test_sink.mutex);
    return count;
}

/* Until the exporter has so many; the test's timeout bounds it. */
static void await_exported(size_t count)
{
    while (sink_count() < count) CHECK_OK(weir_sleep(1));
}

static int wait_for_the_timer(void *arg)
{
    (void)arg;
    spans(3);
    await_exported(3);
    spans(2);
    await_exported(5);
    return 0;
}

TEST(spans_are_exported_when_they_have_waited_long_enough)
{
    CHECK_OK(trace_test_run(wait_for_the_timer, TRACE_SINK(.flush_ms = 20)));
    CHECK_INT(test_sink.count, ==, 5);
}

static int wait_for_half(void *arg)
{
    (void)arg;
    spans(5);
    await_exported(5);
    return 0;
}

TEST(spans_are_exported_when_the_buffer_is_half_full)
{
    CHECK_OK(trace_test_run(wait_for_half, TRACE_SINK(.flush_ms = 3600000, .buffer_max = 10)));
}

static int leave_at_once(void *arg)
{
    (void)arg;
    spans(100);
    return 0;
}

TEST(what_is_left_is_exported_at_the_end)
{
    CHECK_OK(trace_test_run(leave_at_once, TRACE_SINK(.flush_ms = 3600000)));
    CHECK_INT(test_sink.count, ==, 100);
    CHECK_INT(test_sink.batches, ==, 2);
}

/* ---- An exporter that does not return ---- */

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool inside, go;
    int calls;
} gate = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static int gate_write(void *state, const weir_trace_batch *batch)
{
    (void)state, (void)batch;
    (void)pthread_mutex_lock(&gate.mutex);
    gate.inside = true;
    gate.calls++;
    (void)pthread_cond_broadcast(&gate.changed);
    while (!gate.go) (void)pthread_cond_wait(&gate.changed, &gate.mutex);
    (void)pthread_mutex_unlock(&gate.mutex);
    return 0;
}

static const weir_trace_exporter gate_exporter = {.name = "gate", .write = gate_write};

static void gate_await_inside(void)
{
    (void)pthread_mutex_lock(&gate.mutex);
    while (!gate.inside) (void)pthread_cond_wait(&gate.changed, &gate.mutex);
    (void)pthread_mutex_unlock(&gate.mutex);
}

static void gate_open(void)
{
    (void)pthread_mutex_lock(&gate.mutex);
    gate.go = true;
    (void)pthread_cond_broadcast(&gate.changed);
    (void)pthread_mutex_unlock(&gate.mutex);
}

#define TRACE_GATE(...)                                                                     \
    WEIR_TRACE(.service = "test", .sampling = WEIR_TRACE_ALL, .overflow = WEIR_DROP_NEWEST, \
               .keep_exporter = &gate_exporter, __VA_ARGS__)

static int keep_text(const char *text, size_t bytes, void *arg)
{
    char **copy = arg;
    (void)bytes;
    *copy = strdup(text);
    return *copy ? 0 : -12;
}

static int fill_the_buffer(void *arg)
{
    struct tracer *tracer = worker_self()->runtime->tracer;
    struct tracer_figures figures;
    char *text = NULL;
    size_t live;

    (void)arg;
    spans(4); /* half of it: the thread takes them, and hangs */
    gate_await_inside();
    spans(4);
    tracer_figures(tracer, &figures);
    CHECK_INT(figures.buffered, ==, 8); /* what it has taken counts too */
    live = test_live_bytes();
    spans(1000);
    CHECK_INT(test_live_bytes(), ==, live);
    tracer_figures(tracer, &figures);
    CHECK_INT(figures.buffered, ==, 8);
    CHECK_INT(figures.ended, ==, 1008);
    CHECK_INT(figures.dropped_full, ==, 1000);
    CHECK_OK(weir_metrics_read(WEIR_METRICS_PROMETHEUS, keep_text, &text));
    CHECK_CONTAINS(text, "\nweir_trace_spans_dropped_total{reason=\"full\"} 1000\n");
    CHECK_CONTAINS(text, "\nweir_trace_spans_buffered 8\n");
    CHECK_CONTAINS(text, "\nweir_trace_spans_ended_total 1008\n");
    check_prometheus(text);
    free(text);
    gate_open();
    return 0;
}

TEST_WITH(spans_that_find_no_room_are_dropped_and_counted_and_nobody_waits, .workers = 1)
{
    CHECK_OK(trace_test_run(fill_the_buffer, TRACE_GATE(.flush_ms = 3600000, .buffer_max = 8)));
    CHECK_INT(gate.calls, ==, 2);
}

static void print_log(void *arg, const weir_log_record *record)
{
    (void)arg;
    printf("log %d: %s\n", (int)record->level, record->message);
    (void)fflush(stdout);
}

/* In a process of its own: the thread and the runtime's memory stay. */
static void hang_at_the_end(void *arg)
{
    weir_task_fn body = leave_at_once;

    (void)arg;
    CHECK_OK(weir_run(&(weir_config){.workers = test_workers(),
                                     .log = print_log,
                                     .trace = TRACE_GATE(.close_ms = 20)},
                      trace_test_task, &body));
    gate_await_inside();
    printf("returned\n");
    (void)fflush(stdout);
    _exit(0);
}

TEST(an_exporter_that_hangs_is_left_behind_when_the_runtime_ends)
{
    char output[4096];

    CHECK_INT(test_child(hang_at_the_end, NULL, output, sizeof output), ==, 0);
    CHECK_CONTAINS(output, "log 2: trace: exporter 'gate' does not return within 20 ms");
    CHECK_CONTAINS(output, "returned");
}

static ATOM(bool) log_begun, log_returned;
static sem_t run_returned;

static void log_slowly(void *arg, const weir_log_record *record)
{
    struct timespec until;

    (void)arg;
    if (!strstr(record->message, "fails, spans are lost: ")) return;
    atom_store_total(&log_begun, true);
    CHECK_INT(clock_gettime(CLOCK_REALTIME, &until), ==, 0);
    until.tv_sec += 1; /* longer than close_ms */
    CHECK_INT(sem_timedwait(&run_returned, &until), ==, -1);
    atom_store_total(&log_returned, true);
}

static int fail_write(void *state, const weir_trace_batch *batch)
{
    (void)state, (void)batch;
    return -28;
}

/* In a process of its own: it may be left behind after that. */
static void log_at_the_end(void *arg)
{
    static const weir_trace_exporter failing = {.name = "failing", .write = fail_write};
    weir_task_fn body = leave_at_once;

    (void)arg;
    CHECK_INT(sem_init(&run_returned, 0, 0), ==, 0);
    CHECK_OK(
        weir_run(&(weir_config){.workers = test_workers(),
                                .log = log_slowly,
                                .trace = WEIR_TRACE(.service = "test", .sampling = WEIR_TRACE_ALL,
                                                    .overflow = WEIR_DROP_NEWEST,
                                                    .keep_exporter = &failing, .close_ms = 10)},
                 trace_test_task, &body));
    CHECK_INT(sem_post(&run_returned), ==, 0);
    /* On a busy machine it may not have come to that within close_ms. */
    CHECK_INT(atom_load_total(&log_returned), ==, atom_load_total(&log_begun));
    /* Not _exit(): the exporter's thread may be left behind, as it should be, and is a leak for
     * ThreadSanitizer. */
    (void)syscall(SYS_exit_group, 0);
}

TEST(the_programs_log_is_not_written_to_when_the_runtime_has_ended)
{
    char output[4096];
    int status = test_child(log_at_the_end, NULL, output, sizeof output);

    test_note("%s", output);
    CHECK_INT(status, ==, 0);
}

/* ---- An exporter that fails ---- */

static struct {
    ATOM(int) failures, recoveries;
} said;

static void count_log(void *arg, const weir_log_record *record)
{
    (void)arg;
    if (strstr(record->message, "fails, spans are lost: ")) (void)atom_add(&said.failures, 1);
    if (strstr(record->message, "works again; 6 spans")) (void)atom_add(&said.recoveries, 1);
}

/* In one batch or in several: the thread may come between two spans. */
static void await_lost(uint64_t lost)
{
    struct tracer_figures figures;
    do {
        CHECK_OK(weir_sleep(1));
        tracer_figures(worker_self()->runtime->tracer, &figures);
    } while (figures.lost < lost);
    CHECK_INT(figures.lost, ==, lost);
    CHECK_INT(figures.failures, >=, lost / 2);
    CHECK_INT(figures.exported, ==, 0);
}

static int fail_for_a_while(void *arg)
{
    (void)arg;
    test_sink.result = -28;
    for (uint64_t i = 1; i <= 3; i++) {
        spans(2);
        await_lost(2 * i);
    }
    CHECK_INT(atom_load(&said.failures), ==, 1);
    (void)pthread_mutex_lock(&test_sink.mutex);
    test_sink.result = 0;
    (void)pthread_mutex_unlock(&test_sink.mutex);
    spans(2);
    await_exported(2);
    return 0;
}

TEST_WITH(an_export_that_fails_loses_its_batch_and_is_said_once, .workers = 1)
{
    weir_task_fn body = fail_for_a_while;

    CHECK_OK(weir_run(&(weir_config){.workers = 1,
                                     .log = count_log,
                                     .trace = TRACE_SINK(.buffer_max = 4, .flush_ms = 1)},
                      trace_test_task, &body));
    CHECK_INT(atom_load(&said.failures), ==, 1);
    CHECK_INT(atom_load(&said.recoveries), ==, 1);
    CHECK_INT(test_sink.count, ==, 2);
}

/* ---- On the map ---- */

static int look_at_the_map(void *arg)
{
    static char text[65536];
    int fd = memfd_create("map", MFD_CLOEXEC);

    (void)arg;
    spans(1);
    CHECK_OK(weir_map(fd, WEIR_MAP_JSON));
    CHECK_INT(pread(fd, text, sizeof text - 1, 0), >, 0);
    CHECK_INT(close(fd), ==, 0);
    check_json(text);
    CHECK_CONTAINS(text, "\"kind\":\"trace\"");
    CHECK_CONTAINS(text, "2048 spans of each worker");
    CHECK_CONTAINS(text, "drop newest");
    return 0;
}

TEST(the_map_shows_where_spans_go)
{
    CHECK_OK(trace_test_run(look_at_the_map, TRACE_SINK()));
}

/* ---- Time is the seam's ---- */

static int let_time_pass(void *arg)
{
    (void)arg;
    WEIR_SPAN("long") CHECK_OK(weir_sleep(10000));
    return 0;
}

TEST_WITH(times_are_those_of_the_runtimes_clock, .workers = 1)
{
    test_clock_auto();
    CHECK_OK(trace_test_run(let_time_pass, TRACE_SINK()));
    CHECK_INT(seen_named("long")->end_ns - seen_named("long")->start_ns, >=, INT64_C(10000000000));
}

/* ---- Embedded ---- */

static int spans_of_a_task(void *arg)
{
    (void)arg;
    spans(3);
    return 0;
}

TEST(an_embedded_runtime_exports_too)
{
    weir_runtime *runtime;

    CHECK_OK(weir_runtime_open(&(weir_config){.log_level = WEIR_LOG_OFF, .trace = TRACE_SINK()},
                               &runtime));
    CHECK_OK(weir_spawn(weir_runtime_scope(runtime), spans_of_a_task, NULL, 0));
    while (weir_turn(runtime) > 0) {}
    CHECK_OK(weir_runtime_close(runtime));
    CHECK_INT(test_sink.count, ==, 3);
    CHECK(test_sink.ended);
}

TEST(a_runtime_without_a_thread_for_its_exporter_does_not_open)
{
    test_fault("thread_start", -11, 1);
    CHECK_INT(weir_run(&(weir_config){.workers = 1, .trace = TRACE_SINK()}, spans_of_a_task, NULL),
              ==, -11);
    CHECK_INT(test_sink.count, ==, 0);
}

/* runtime_test.c - opening, running, embedding and ending runtimes; log and allocator. */
#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <stdlib.h>
#include <unistd.h>

#include "rt/kernel.h"
#include "unit/rt/support.h"

/* ---- Configurations ---- */

static int return_seven(void *arg)
{
    return *(int *)arg;
}

TEST(run_returns_what_its_function_returned)
{
    int seven = 7, failure = -EIO;

    CHECK_INT(weir_run(NULL, return_seven, &seven), ==, 7);
    CHECK_INT(run_on(1, return_seven, &seven), ==, 7);
    CHECK_INT(run_on(3, return_seven, &failure), ==, -EIO);
}

TEST(config_is_refused_with_a_sentence_that_names_the_member)
{
    static const struct {
        weir_config config;
        const char *why;
    } rows[] = {
        {{.workers = -1},
         "runtime: workers is -1, must be 1 to 256, or 0 for the cores that are usable"},
        {{.workers = 257},
         "runtime: workers is 257, must be 1 to 256, or 0 for the cores that are usable"},
        {{.stack_bytes = WEIR_STACK_BYTES_MAX + 1},
         "runtime: stack_bytes is 8388609, at most 8388608"},
        {{.drain_ms = -1}, "runtime: drain_ms is negative"},
        {{.signals = 8}, "runtime: signals has bits that are not of enum weir_signals"},
        {{.blocking_threads_max = -1},
         "runtime: blocking_threads_max is -1, must be 1 to 64, or 0 for 8"},
        {{.blocking_threads_max = 65},
         "runtime: blocking_threads_max is 65, must be 1 to 64, or 0 for 8"},
        {{.backend = "kqueue"}, "runtime: there is no backend 'kqueue'"},
    };
    weir_runtime *runtime = NULL;
    int seven = 7;

    kernel_override(NULL); /* which would serve for any backend */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CHECK_INT(weir_run(&rows[i].config, return_seven, &seven), ==, WEIR_EREFUSED);
        CHECK_STR(weir_why(), rows[i].why);
    }
    CHECK_INT(weir_run(NULL, NULL, NULL), ==, WEIR_EREFUSED);
    CHECK_INT(weir_runtime_open(&(weir_config){.workers = 2}, &runtime), ==, WEIR_EREFUSED);
    CHECK_STR(weir_why(), "weir_runtime_open: workers is 2, an embedded runtime has one");
    CHECK(runtime == NULL);
}

static int run_inside(void *arg)
{
    weir_runtime *runtime;

    CHECK_INT(weir_run(NULL, return_seven, arg), ==, WEIR_EREFUSED);
    CHECK_STR(weir_why(), "weir_run: this thread already runs a weir runtime");
    CHECK_INT(weir_runtime_open(NULL, &runtime), ==, WEIR_EREFUSED);
    return 0;
}

TEST(runtime_inside_a_runtime_is_refused)
{
    int seven = 7;

    CHECK_OK(run_on(1, run_inside, &seven));
}

static void *resize_counted(void *arg, void *memory, size_t bytes)
{
    if (memory == NULL) ++*(int *)arg;
    if (bytes > 0) return realloc(memory, bytes);
    free(memory);
    return NULL;
}

static int set_allocator_inside(void *arg)
{
    (void)arg;
    CHECK_INT(weir_set_allocator(NULL), ==, -EBUSY);
    return 0;
}

TEST(allocator_serves_all_and_changes_only_without_a_runtime)
{
    int count = 0, first;

    CHECK_OK(run_on(1, set_allocator_inside, NULL));
    CHECK_OK(weir_set_allocator(&(weir_allocator){resize_counted, &count}));
    CHECK_OK(run_on(1, set_allocator_inside, NULL));
    CHECK_INT(count, >, 0);
    first = count;
    CHECK_OK(weir_set_allocator(NULL));
    CHECK_OK(run_on(1, set_allocator_inside, NULL));
    CHECK_INT(count, ==, first);
}

static int keep_postbox(void *arg)
{
    weir_scope *scope = open_scope("box", WEIR_FAIL_FAST);

    CHECK_OK(weir_postbox_open(
        scope, &(weir_postbox_spec){.name = "box", .capacity = 1, .overflow = WEIR_REJECT}, arg));
    return weir_scope_close(scope);
}

TEST(allocator_stays_while_a_postbox_is_held)
{
    weir_postbox *box = NULL;
    int count = 0;

    CHECK_OK(run_on(1, keep_postbox, &box));
    CHECK_INT(weir_set_allocator(&(weir_allocator){resize_counted, &count}), ==, -EBUSY);
    weir_postbox_unref(box);
    CHECK_OK(weir_set_allocator(&(weir_allocator){resize_counted, &count}));
    CHECK_OK(weir_set_allocator(NULL));
}

/* ---- Embedding ---- */

static weir_runtime *open_embedded(void)
{
    weir_runtime *runtime = NULL;

    CHECK_OK(weir_runtime_open(&(weir_config){.log = ignore_record}, &runtime));
    return runtime;
}

static bool readable(weir_runtime *runtime, int timeout_ms)
{
    struct pollfd poller = {.fd = weir_runtime_fd(runtime), .events = POLLIN};
    int r = poll(&poller, 1, timeout_ms);

    CHECK_INT(r, >=, 0);
    return r == 1;
}

/* Turn while the descriptor says so, and return how many tasks are left. */
static int turn_while_readable(weir_runtime *runtime)
{
    int alive = -1;

    while (readable(runtime, 0)) {
        alive = weir_turn(runtime);
        CHECK_INT(alive, >=, 0);
    }
    return alive;
}

static int count_up(void *arg)
{
    ++**(int **)arg;
    return 0;
}

static int yield_often(void *arg)
{
    int *turns = *(int **)arg;

    for (int i = 0; i < 10000; i++) {
        CHECK_OK(weir_yield());
        ++*turns;
    }
    return 0;
}

TEST(embedded_runtime_is_readable_while_there_is_work_and_only_then)
{
    weir_runtime *runtime = open_embedded();
    int ran = 0, turns = 0;
    int *pointer = &ran;

    CHECK_INT(turn_while_readable(runtime), <=, 0);
    CHECK(!readable(runtime, 0));
    CHECK_OK(weir_spawn(weir_runtime_scope(runtime), count_up, &pointer, sizeof pointer));
    CHECK(readable(runtime, 1000)); /* spawned from outside a turn */
    CHECK_INT(turn_while_readable(runtime), ==, 0);
    CHECK_INT(ran, ==, 1);
    CHECK(!readable(runtime, 0));
    /* A turn is bounded: what is left over keeps it readable. */
    pointer = &turns;
    CHECK_OK(weir_spawn(weir_runtime_scope(runtime), yield_often, &pointer, sizeof pointer));
    CHECK_INT(weir_turn(runtime), ==, 1);
    CHECK_INT(turns, <, 10000);
    CHECK(readable(runtime, 0));
    CHECK_INT(turn_while_readable(runtime), ==, 0);
    CHECK_INT(turns, ==, 10000);
    CHECK(!readable(runtime, 0));
    CHECK_OK(weir_runtime_close(runtime));
    CHECK_OK(weir_runtime_close(NULL));
}

struct sleeping {
    int ran;
    int ms;
};

static int sleep_and_count(void *arg)
{
    struct sleeping *sleeping = *(struct sleeping **)arg;

    CHECK_OK(weir_sleep(sleeping->ms));
    sleeping->ran++;
    return 0;
}

TEST(embedded_runtime_becomes_readable_by_its_timers)
{
    weir_runtime *runtime = open_embedded();
    struct sleeping sleeping = {.ms = 10};
    struct sleeping *pointer = &sleeping;
    int alive;

    do { /* longer than a turn takes, also on a busy machine */
        sleeping.ms *= 2;
        CHECK_OK(
            weir_spawn(weir_runtime_scope(runtime), sleep_and_count, &pointer, sizeof pointer));
        alive = turn_while_readable(runtime);
    } while (alive == 0 && sleeping.ms < 10000);
    CHECK_INT(alive, ==, 1);
    sleeping.ran = 0;
    while (sleeping.ran == 0) {
        CHECK(readable(runtime, 30000));
        CHECK_INT(weir_turn(runtime), >=, 0);
    }
    CHECK_INT(turn_while_readable(runtime), <=, 0);
    CHECK(!readable(runtime, 0));
    CHECK_OK(weir_runtime_close(runtime));
}

static void set_int(weir_timer *timer, void *arg)
{
    (void)timer;
    *(int *)arg = 1;
}

TEST(embedder_may_start_a_timer_between_turns)
{
    weir_runtime *runtime = open_embedded();
    weir_timer *timer;
    int fired = 0;

    CHECK_OK(weir_timer_open(
        weir_runtime_scope(runtime),
        &(weir_timer_spec){.name = "t", .on_fire = set_int, .keep_arg = &fired}, &timer));
    CHECK_INT(turn_while_readable(runtime), <=, 0);
    weir_timer_start(timer, 10);
    while (!fired) {
        CHECK(readable(runtime, 10000));
        CHECK_INT(weir_turn(runtime), >=, 0);
    }
    CHECK_OK(weir_runtime_close(runtime));
}

static int note_cancel(void *arg)
{
    int *seen = *(int **)arg;

    *seen = sleep_until_cancelled(NULL);
    return *seen;
}

TEST(embedder_may_cancel_between_turns)
{
    weir_runtime *runtime = open_embedded();
    int seen = 0;
    int *pointer = &seen;
    weir_task task = {NULL, 0};

    CHECK_OK(weir_task_spawn(
        weir_runtime_scope(runtime),
        &(weir_task_spec){.fn = note_cancel, .arg = &pointer, .arg_bytes = sizeof pointer}, &task));
    CHECK_INT(turn_while_readable(runtime), ==, 1);
    CHECK_OK(weir_task_cancel(task, "from the loop outside"));
    CHECK(readable(runtime, 1000));
    CHECK_INT(turn_while_readable(runtime), ==, 0);
    CHECK_INT(seen, ==, WEIR_ECANCELED);
    CHECK_OK(weir_runtime_close(runtime));
}

struct poster {
    weir_postbox *box;
    int *ran;
};

static void *post_one(void *arg)
{
    struct poster *poster = arg;

    CHECK_OK(weir_post(poster->box, count_up, &poster->ran, sizeof poster->ran));
    return NULL;
}

TEST(embedded_runtime_becomes_readable_by_posts)
{
    weir_runtime *runtime = open_embedded();
    int ran = 0;
    struct poster poster = {.ran = &ran};

    CHECK_OK(weir_postbox_open(
        weir_runtime_scope(runtime),
        &(weir_postbox_spec){.name = "box", .capacity = 4, .overflow = WEIR_REJECT}, &poster.box));
    CHECK_INT(turn_while_readable(runtime), <=, 0);
    for (int i = 1; i <= 20; i++) {
        pthread_t thread;

        CHECK(!readable(runtime, 0));
        CHECK_INT(pthread_create(&thread, NULL, post_one, &poster), ==, 0);
        CHECK(readable(runtime, 10000));
        CHECK_INT(pthread_join(thread, NULL), ==, 0);
        CHECK_INT(turn_while_readable(runtime), ==, 0);
        CHECK_INT(ran, ==, i);
    }
    CHECK_OK(weir_runtime_close(runtime));
    CHECK_INT(weir_post(poster.box, count_up, &poster.ran, sizeof poster.ran), ==, WEIR_ECLOSED);
    weir_postbox_unref(poster.box);
}

static int cleanup_and_count(void *arg)
{
    int r = sleep_until_cancelled(NULL);

    WEIR_SHIELD(60000) CHECK_OK(weir_sleep(1));
    ++**(ATOM(int) **)arg;
    return r;
}

TEST(closing_an_embedded_runtime_cancels_and_runs_its_tasks_to_their_end)
{
    weir_runtime *runtime = open_embedded();
    ATOM(int) cleaned = 0;
    ATOM(int) *pointer = &cleaned;

    for (int i = 0; i < 50; i++)
        CHECK_OK(
            weir_spawn(weir_runtime_scope(runtime), cleanup_and_count, &pointer, sizeof pointer));
    CHECK_INT(turn_while_readable(runtime), ==, 50);
    /* One that has not started yet. */
    CHECK_OK(weir_spawn(weir_runtime_scope(runtime), cleanup_and_count, &pointer, sizeof pointer));
    CHECK_OK(weir_runtime_close(runtime));
    CHECK_INT(cleaned, ==, 51);
}

static int fail_io(void *arg)
{
    (void)arg;
    return -EIO;
}

TEST(closing_an_embedded_runtime_returns_its_first_failure)
{
    weir_runtime *runtime = open_embedded();

    CHECK_OK(weir_spawn(weir_runtime_scope(runtime), fail_io, NULL, 0));
    CHECK_INT(turn_while_readable(runtime), ==, 0);
    CHECK_INT(weir_runtime_close(runtime), ==, -EIO);
}

static weir_runtime *misused;

static int turn_inside(void *arg)
{
    (void)arg;
    return weir_turn(misused);
}

static void turn_inside_a_task(void *arg)
{
    (void)arg;
    misused = open_embedded();
    CHECK_OK(weir_spawn(weir_runtime_scope(misused), turn_inside, NULL, 0));
    CHECK_OK(weir_turn(misused));
}

static void *turn_on_thread(void *arg)
{
    CHECK_OK(weir_turn(misused));
    return arg;
}

static void turn_on_another_thread(void *arg)
{
    pthread_t thread;

    (void)arg;
    misused = open_embedded();
    CHECK_INT(pthread_create(&thread, NULL, turn_on_thread, NULL), ==, 0);
    pthread_join(thread, NULL);
}

static void *close_on_thread(void *arg)
{
    CHECK_OK(weir_runtime_close(misused));
    return arg;
}

static void close_on_another_thread(void *arg)
{
    pthread_t thread;

    (void)arg;
    misused = open_embedded();
    CHECK_INT(pthread_create(&thread, NULL, close_on_thread, NULL), ==, 0);
    pthread_join(thread, NULL);
}

TEST(turn_on_the_wrong_thread_or_inside_a_task_aborts)
{
    CHECK_ABORTS(turn_inside_a_task, NULL, "weir_turn: called from inside a task");
    CHECK_ABORTS(turn_on_another_thread, NULL,
                 "weir_turn: called on another thread than the one that opened the runtime");
    CHECK_ABORTS(close_on_another_thread, NULL,
                 "weir_runtime_close: called on another thread than the one that opened");
}

static void turn_in_callback(weir_timer *timer, void *arg)
{
    (void)timer, (void)arg;
    CHECK_OK(weir_turn(misused));
}

static void close_in_callback(weir_timer *timer, void *arg)
{
    (void)timer, (void)arg;
    CHECK_OK(weir_runtime_close(misused));
}

/* Without a task that could be told. */
static void misuse_in_callback(weir_timer_fn on_fire)
{
    weir_timer *timer;

    misused = open_embedded();
    CHECK_OK(weir_timer_open(weir_runtime_scope(misused),
                             &(weir_timer_spec){.name = "t", .on_fire = on_fire}, &timer));
    weir_timer_start(timer, 0);
    for (;;) {
        CHECK(readable(misused, 10000));
        CHECK_OK(weir_turn(misused));
    }
}

static void turn_inside_a_callback(void *arg)
{
    (void)arg;
    misuse_in_callback(turn_in_callback);
}

static void close_inside_a_callback(void *arg)
{
    (void)arg;
    misuse_in_callback(close_in_callback);
}

TEST(turn_or_close_from_a_callback_of_the_same_runtime_aborts)
{
    CHECK_ABORTS(turn_inside_a_callback, NULL,
                 "weir_turn: called from a callback of the same runtime");
    CHECK_ABORTS(close_inside_a_callback, NULL,
                 "weir_runtime_close: called from a callback of the same runtime");
}

/* ---- Two runtimes ---- */

static struct {
    weir_scope *scope;
    weir_task task;
    sem_t there;
} foreign;

static int lend_scope(void *arg)
{
    (void)arg;
    foreign.scope = open_scope("of-another", WEIR_FAIL_FAST);
    foreign.task = spawn_task(foreign.scope, "sleeper", sleep_until_cancelled, NULL, 0);
    CHECK_INT(sem_post(&foreign.there), ==, 0);
    return weir_scope_close(foreign.scope); /* never: the process is aborted */
}

static void *run_lender(void *arg)
{
    CHECK_OK(run_on(1, lend_scope, arg));
    return NULL;
}

static int spawn_into_foreign(void *arg)
{
    return weir_spawn(foreign.scope, return_seven, arg, 0);
}

static int cancel_foreign_scope(void *arg)
{
    (void)arg;
    weir_scope_cancel(foreign.scope, 0, "not mine");
    return 0;
}

static int join_foreign_task(void *arg)
{
    (void)arg;
    return weir_task_join(foreign.task, NULL);
}

static int cancel_foreign_task(void *arg)
{
    (void)arg;
    return weir_task_cancel(foreign.task, "not mine");
}

static void use_foreign(void *arg)
{
    pthread_t thread;

    CHECK_INT(sem_init(&foreign.there, 0, 0), ==, 0);
    CHECK_INT(pthread_create(&thread, NULL, run_lender, NULL), ==, 0);
    while (sem_wait(&foreign.there) != 0) CHECK_INT(errno, ==, EINTR);
    (void)!run_on(1, (weir_task_fn)(uintptr_t)arg, NULL);
}

TEST(scope_or_task_of_another_runtime_aborts)
{
    CHECK_ABORTS(use_foreign, (void *)(uintptr_t)spawn_into_foreign,
                 "weir_spawn: scope 'of-another', opened at");
    CHECK_ABORTS(use_foreign, (void *)(uintptr_t)cancel_foreign_scope,
                 "belongs to another runtime");
    CHECK_ABORTS(use_foreign, (void *)(uintptr_t)join_foreign_task,
                 "a task handle of another runtime");
    CHECK_ABORTS(use_foreign, (void *)(uintptr_t)cancel_foreign_task,
                 "a task handle of another runtime");
}

/* ---- Log ---- */

static int failing_main(void *arg)
{
    weir_scope *scope = open_scope("work", WEIR_COLLECT);

    (void)arg;
    spawn_task(scope, "good", return_argument, &(int){3}, sizeof(int));
    spawn_task(scope, "bad\n", return_argument, &(int){-EPIPE}, sizeof(int));
    spawn_task(scope, "unjoined", return_argument, &(int){WEIR_ECLOSED}, sizeof(int));
    CHECK_INT(weir_scope_close(scope), ==, -EPIPE);
    return 0;
}

TEST(log_has_start_and_end_at_debug_and_failures_at_error)
{
    struct capture capture;

    CHECK_OK(run_logged(1, WEIR_LOG_DEBUG, &capture, failing_main, NULL));
    CHECK_INT(capture_count(&capture, WEIR_LOG_DEBUG, "main", "started"), ==, 1);
    CHECK_INT(capture_count(&capture, WEIR_LOG_DEBUG, "main", "ended: 0"), ==, 1);
    CHECK_INT(capture_count(&capture, WEIR_LOG_DEBUG, "good", "started"), ==, 1);
    CHECK_INT(capture_count(&capture, WEIR_LOG_DEBUG, "good", "ended: 3"), ==, 1);
    CHECK_INT(capture_count(&capture, WEIR_LOG_ERROR, "unjoined", "failed: closed (WEIR_ECLOSED)"),
              ==, 1);
    CHECK_INT(capture_count(&capture, WEIR_LOG_ERROR, NULL, "failed: "), ==, 2);
    for (int i = 0; i < capture.count; i++) {
        const struct captured *record = &capture.records[i];

        CHECK_INT(record->worker, ==, 0);
        CHECK_INT(record->time_ns, >, 0);
        CHECK(strchr(record->message, '\n') == NULL);
        CHECK(strchr(record->task, '\n') == NULL);
        if (strcmp(record->task, "good") == 0) CHECK_STR(record->scope, "root/work");
    }
}

TEST(log_level_leaves_out_what_is_below_it)
{
    struct capture capture;

    CHECK_OK(run_logged(1, WEIR_LOG_ERROR, &capture, failing_main, NULL));
    CHECK_INT(capture.count, ==, 2);
    CHECK_OK(run_logged(1, WEIR_LOG_OFF, &capture, failing_main, NULL));
    CHECK_INT(capture.count, ==, 0);
    CHECK_INT(setenv("WEIR_LOG", "debug", 1), ==, 0);
    CHECK_OK(run_logged(1, WEIR_LOG_UNSET, &capture, failing_main, NULL));
    CHECK_INT(capture.count, >, 6);
    CHECK_INT(setenv("WEIR_LOG", "nonsense", 1), ==, 0);
    CHECK_OK(run_logged(1, WEIR_LOG_UNSET, &capture, failing_main, NULL));
    CHECK_INT(capture.count, ==, 2);
}

static void run_to_stderr(void *arg)
{
    (void)arg;
    CHECK_OK(weir_run(&(weir_config){.workers = 1, .name = "app"}, failing_main, NULL));
}

TEST(log_goes_to_standard_error_by_default)
{
    char output[1024];

    CHECK_INT(test_child(run_to_stderr, NULL, output, sizeof output), ==, 0);
    CHECK_CONTAINS(output,
                   "weir: error: task 'unjoined' (app/work) failed: closed (WEIR_ECLOSED)\n");
}

/* ---- Several runtimes, and a fork ---- */

static void *run_thread(void *arg)
{
    int depth = 0;

    (void)arg;
    for (int i = 0; i < 20; i++) CHECK_OK(run_on(1 + i % 2, return_seven, &depth));
    return NULL;
}

TEST(runtimes_on_several_threads_do_not_disturb_each_other)
{
    pthread_t threads[4];

    for (int i = 0; i < 4; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, run_thread, NULL), ==, 0);
    for (int i = 0; i < 4; i++) CHECK_INT(pthread_join(threads[i], NULL), ==, 0);
}

static void use_in_child(void *arg)
{
    (void)arg;
    CHECK_INT(weir_yield(), ==, WEIR_ENOTASK);
    CHECK_CONTAINS(weir_why(), "this process was forked from one that runs weir");
    CHECK_INT(weir_worker_index(), ==, -1);
    printf("told\n");
}

static int fork_inside(void *arg)
{
    char output[256];

    (void)arg;
    CHECK_INT(test_child(use_in_child, NULL, output, sizeof output), ==, 0);
    CHECK_CONTAINS(output, "told");
    CHECK_OK(weir_yield());
    return 0;
}

TEST(forked_child_is_told_that_it_has_no_runtime)
{
    CHECK_OK(run_on(2, fork_inside, NULL));
}

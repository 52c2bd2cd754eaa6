/* stop_grace.c - stop is not cancel: grace, then cancel, then a report. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "rt/task.h"
#include "unit/rt/support.h"

#define MS INT64_C(1000000)

/* Stands for a call that takes on work (accept): the runtime's part of it. */
static int take_work(void)
{
    return task_enter(weir_task_self().ref, ENTER_TAKE_WORK);
}

static bool never_abort(struct task *task, void *object)
{
    (void)task, (void)object;
    return true;
}

static const struct wait_kind wait_work = {
    .name = "work", .takes_work = true, .abort = never_abort};

struct worker_note {
    int took;  /* what the work-taking wait returned */
    int other; /* what a sleep of 50 ms returned after it */
    int after; /* what a sleep without end returned */
    enum weir_cause cause;
    int64_t cut_off_ns;
};

static int serve(void *arg)
{
    struct worker_note *note = *(struct worker_note **)arg;
    weir_cause_info info;

    WEIR_NO_DEADLINE("a server") {
        CHECK_OK(take_work());
        note->took = task_park(weir_task_self().ref, &wait_work, NULL);
        CHECK_INT(take_work(), ==, WEIR_ESTOPPING);
        CHECK_INT(weir_cause(&info), ==, WEIR_CAUSE_NONE); /* not cancelled */
        note->other = weir_sleep(50);
        CHECK_OK(weir_yield());
        note->after = weir_sleep(WEIR_FOREVER);
    }
    note->cause = weir_cause(&info);
    note->cut_off_ns = weir_now_ns();
    return note->after;
}

static int stop_and_cut_off(void *arg)
{
    int64_t start_ns = weir_now_ns();
    struct worker_note note = {0};
    struct worker_note *pointer = &note;
    weir_scope *scope = open_scope("served", WEIR_FAIL_FAST);

    (void)arg;
    spawn_task(scope, "server", serve, &pointer, sizeof pointer);
    CHECK_OK(weir_sleep(10));
    weir_scope_stop(scope, 200);
    CHECK_OK(weir_checkpoint()); /* the opener goes on as well */
    CHECK_INT(weir_scope_close(scope), ==, WEIR_ECANCELED);
    CHECK_INT(note.took, ==, WEIR_ESTOPPING);
    CHECK_INT(note.other, ==, 0);
    CHECK_INT(note.after, ==, WEIR_ECANCELED);
    CHECK_INT(note.cause, ==, WEIR_CAUSE_STOP);
    CHECK_INT(note.cut_off_ns - start_ns, ==, 210 * MS);
    return 0;
}

TEST(stop_refuses_new_work_only_then_cancels_and_reports_what_was_cut_off)
{
    struct capture capture;

    test_clock_auto();
    CHECK_OK(run_logged(1, WEIR_LOG_WARNING, &capture, stop_and_cut_off, NULL));
    CHECK_INT(capture_count(&capture, WEIR_LOG_WARNING, "server", "was cut off"), ==, 1);
    CHECK_INT(capture.count, ==, 1);
    CHECK_INT(capture.records[0].time_ns - TEST_CLOCK_START_NS, ==, 210 * MS);
}

static int finish_work(void *arg)
{
    (void)arg;
    return weir_sleep(100);
}

static int stop_and_drain(void *arg)
{
    weir_scope *scope = open_scope("drained", WEIR_FAIL_FAST);

    (void)arg;
    for (int i = 0; i < 5; i++) CHECK_OK(weir_spawn(scope, finish_work, NULL, 0));
    weir_scope_stop(scope, 1000);
    CHECK_OK(weir_spawn(scope, finish_work, NULL, 0)); /* what they have may need a task */
    CHECK_OK(weir_scope_close(scope));
    CHECK_INT(weir_now_ns() - TEST_CLOCK_START_NS, ==, 100 * MS);
    CHECK_OK(weir_sleep(5000)); /* the grace timer of a closed scope is gone */
    return 0;
}

TEST(work_that_ends_within_the_grace_period_is_not_cut_off)
{
    struct capture capture;

    test_clock_auto();
    CHECK_OK(run_logged(1, WEIR_LOG_WARNING, &capture, stop_and_drain, NULL));
    CHECK_INT(capture.count, ==, 0);
}

static int note_end(void *arg)
{
    int r = sleep_until_cancelled(NULL);

    **(int64_t **)arg = weir_now_ns();
    return r;
}

static int stop_twice(void *arg)
{
    static const struct {
        int64_t first_ms, second_ms, end_ms;
    } rows[] = {
        {1000, 100, 110}, /* the second is sooner */
        {100, 1000, 100}, /* later: changes nothing */
        {500, 0, 10},     /* now */
        {500, -5, 10},
    };

    (void)arg;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int64_t start_ns = weir_now_ns();
        int64_t ended_ns = 0;
        int64_t *pointer = &ended_ns;
        weir_scope *scope = open_scope("twice", WEIR_FAIL_FAST);

        CHECK_OK(weir_spawn(scope, note_end, &pointer, sizeof pointer));
        weir_scope_stop(scope, rows[i].first_ms);
        CHECK_OK(weir_sleep(10));
        weir_scope_stop(scope, rows[i].second_ms);
        CHECK_INT(weir_scope_close(scope), ==, WEIR_ECANCELED);
        CHECK_INT(ended_ns - start_ns, ==, rows[i].end_ms * MS);
    }
    return 0;
}

TEST(second_stop_can_shorten_the_grace_period_only)
{
    test_clock_auto();
    CHECK_OK(run_on(1, stop_twice, NULL));
}

/* Goes on for two seconds after it was cancelled. */
static int does_not_end(void *arg)
{
    (void)arg;
    CHECK_INT(sleep_until_cancelled(NULL), ==, WEIR_ECANCELED);
    WEIR_SHIELD(10000) CHECK_OK(weir_sleep(2500));
    return WEIR_ECANCELED;
}

static int stop_the_stubborn(void *arg)
{
    weir_scope *scope = open_scope("stubborn", WEIR_FAIL_FAST);

    (void)arg;
    spawn_task(scope, "stubborn", does_not_end, NULL, 0);
    weir_scope_stop(scope, 100);
    CHECK_INT(weir_scope_close(scope), ==, WEIR_ECANCELED);
    return 0;
}

TEST(task_that_does_not_end_after_the_cut_off_is_reported_again)
{
    struct capture capture;

    test_clock_auto();
    CHECK_OK(run_logged(1, WEIR_LOG_WARNING, &capture, stop_the_stubborn, NULL));
    CHECK_INT(capture_count(&capture, WEIR_LOG_WARNING, "stubborn", "was cut off"), ==, 1);
    CHECK_INT(capture_count(&capture, WEIR_LOG_WARNING, "stubborn", "has not ended"), ==, 2);
}

/* The report is written while all workers stand still, and a sink may want a dump of
 * its own then. */
struct dumper {
    int fd;
    ATOM(int) dumped;
};

static void dump_for_record(void *arg, const weir_log_record *record)
{
    struct dumper *dumper = arg;

    if (strstr(record->message, "was cut off") == NULL) return;
    CHECK_OK(weir_dump(dumper->fd));
    atom_store_release(&dumper->dumped, 1);
}

static int wait_for_dump(void *arg)
{
    struct dumper *dumper = *(struct dumper **)arg;

    WEIR_SHIELD(60000) {
        while (!atom_load_acquire(&dumper->dumped)) CHECK_OK(weir_sleep(1));
    }
    return 0;
}

static int stop_with_dump(void *arg)
{
    struct dumper *dumper = arg;
    weir_scope *scope = open_scope("dumped", WEIR_FAIL_FAST);

    spawn_at(scope, weir_worker_count() - 1, "waiting", wait_for_dump, &dumper, sizeof dumper);
    weir_scope_stop(scope, 1);
    return weir_scope_close(scope);
}

TEST(dump_from_the_sink_of_a_report_does_not_hang)
{
    for (int workers = 1; workers <= 2; workers++) {
        struct dumper dumper = {.fd = open("/dev/null", O_WRONLY | O_CLOEXEC)};

        CHECK(dumper.fd >= 0);
        CHECK_OK(
            weir_run(&(weir_config){.workers = workers, .log = dump_for_record, .log_arg = &dumper},
                     stop_with_dump, &dumper));
        CHECK_INT(atom_load(&dumper.dumped), ==, 1);
        CHECK_INT(close(dumper.fd), ==, 0);
    }
}

static int stop_many(void *arg)
{
    weir_scope *scope = open_scope("many", WEIR_FAIL_FAST);

    (void)arg;
    for (int i = 0; i < 100; i++) CHECK_OK(weir_spawn(scope, sleep_until_cancelled, NULL, 0));
    weir_scope_stop(scope, 10);
    CHECK_INT(weir_scope_close(scope), ==, WEIR_ECANCELED);
    return 0;
}

TEST(report_of_many_is_bounded_and_says_how_many_more)
{
    struct capture capture;
    char more[32];
    int named;

    test_clock_auto();
    CHECK_OK(run_logged(1, WEIR_LOG_WARNING, &capture, stop_many, NULL));
    named = capture_count(&capture, WEIR_LOG_WARNING, "sleep_until_cancelled", "was cut off");
    CHECK_INT(named, >, 0);
    CHECK_INT(named, <, 50);
    CHECK_INT(capture.count, ==, named + 1);
    snprintf(more, sizeof more, "%d more", 100 - named);
    CHECK_INT(capture_count(&capture, WEIR_LOG_WARNING, "", more), ==, 1);
}

/* ---- Stop of the whole runtime, and from another worker ---- */

static int nested_server(void *arg)
{
    struct worker_note *note = *(struct worker_note **)arg;
    weir_scope *scope = open_scope("inner", WEIR_FAIL_FAST);

    spawn_task(scope, "server", serve, &note, sizeof note);
    return weir_scope_close(scope);
}

static int stop_all(void *arg)
{
    struct worker_note note = {0};
    struct worker_note *pointer = &note;
    weir_scope *scope = open_scope("outer", WEIR_FAIL_FAST);

    (void)arg;
    CHECK_OK(weir_spawn(scope, nested_server, &pointer, sizeof pointer));
    CHECK_OK(weir_sleep(10));
    CHECK_OK(weir_stop(100));
    CHECK_OK(weir_sleep(20));
    CHECK_INT(weir_scope_close(scope), ==, WEIR_ECANCELED);
    CHECK_INT(note.took, ==, WEIR_ESTOPPING);
    CHECK_INT(note.cause, ==, WEIR_CAUSE_STOP);
    return WEIR_ECANCELED;
}

TEST(stop_of_the_runtime_reaches_every_level)
{
    test_clock_auto();
    CHECK_INT(run_on(1, stop_all, NULL), ==, WEIR_ECANCELED);
}

/* Has a timer of its own, and does not end before it is cancelled, however late that comes. */
static int work_on(void *arg)
{
    (void)arg;
    return weir_sleep(600000);
}

static int stop_given(void *arg)
{
    weir_scope *scope = *(weir_scope **)arg;

    weir_scope_stop(scope, 5000);
    CHECK_OK(weir_yield());
    weir_scope_stop(scope, 1);
    return 0;
}

static int stop_from_afar(void *arg)
{
    int rounds = *(int *)arg;

    for (int i = 0; i < rounds && (i == 0 || !test_late()); i++) {
        weir_scope *outer = open_scope("outer", WEIR_FAIL_FAST);
        weir_scope *scope = open_scope("stopped", WEIR_FAIL_FAST);

        for (int n = 0; n < 4; n++)
            spawn_at(scope, n % 2, "s", i % 2 ? sleep_until_cancelled : work_on, NULL, 0);
        spawn_at(outer, 1, "stopper", stop_given, &scope, sizeof scope);
        CHECK_INT(weir_scope_close(scope), ==, WEIR_ECANCELED);
        CHECK_OK(weir_scope_close(outer));
    }
    return 0;
}

TEST(stop_from_another_worker_arms_the_grace_period_at_home)
{
    int rounds = TEST_SLOW ? 20 : 50;

    CHECK_OK(run_on(2, stop_from_afar, &rounds));
}

/* A stop that comes while the scope is being closed with nothing left to do. */
static int stop_while_closing(void *arg)
{
    struct {
        weir_scope *scope;
        ATOM(int) * going;
    } *given = arg;

    atom_store(given->going, 1);
    for (int i = 0; i < 20; i++) {
        weir_scope_stop(given->scope, 1000 - i);
        CHECK_OK(weir_yield());
    }
    return 0;
}

static int close_under_stops(void *arg)
{
    int rounds = *(int *)arg;

    for (int i = 0; i < rounds && (i == 0 || !test_late()); i++) {
        ATOM(int) going = 0;
        weir_scope *scope = open_scope("closing", WEIR_FAIL_FAST);
        struct {
            weir_scope *scope;
            ATOM(int) * going;
        } given = {scope, &going};

        spawn_at(scope, 1, "stopper", stop_while_closing, &given, sizeof given);
        CHECK_OK(weir_scope_close(scope));
    }
    return 0;
}

TEST(scope_can_be_closed_while_another_worker_stops_it)
{
    int rounds = TEST_SLOW ? 50 : 500;

    CHECK_OK(run_on(2, close_under_stops, &rounds));
}

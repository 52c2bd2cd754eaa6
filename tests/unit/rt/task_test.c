/* task_test.c - spawning, joining, cancelling and naming tasks. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rt/task.h"
#include "unit/rt/support.h"

/* ---- Arguments and names ---- */

static int check_pattern(void *arg)
{
    const unsigned char *data = arg;
    size_t bytes;

    memcpy(&bytes, data, sizeof bytes);
    for (size_t i = sizeof bytes; i < bytes; i++) CHECK_INT(data[i], ==, (i * 7) & 0xff);
    return 0;
}

static int spawn_patterns(void *arg)
{
    static const size_t sizes[] = {sizeof(size_t), 31, 32, 33, 4096, WEIR_ARG_BYTES_MAX};
    unsigned char *data = malloc(WEIR_ARG_BYTES_MAX);
    weir_scope *scope = open_scope("patterns", WEIR_FAIL_FAST);

    (void)arg;
    for (size_t n = 0; n < sizeof sizes / sizeof sizes[0]; n++) {
        for (size_t i = 0; i < sizes[n]; i++) data[i] = (unsigned char)(i * 7);
        memcpy(data, &sizes[n], sizeof sizes[n]);
        CHECK_OK(weir_spawn(scope, check_pattern, data, sizes[n]));
        spawn_task(scope, "named", check_pattern, data, sizes[n]);
        memset(data, 0xee, WEIR_ARG_BYTES_MAX); /* theirs is a copy */
    }
    free(data);
    CHECK_OK(weir_scope_close(scope));
    return 0;
}

TEST(spawn_copies_its_argument_whatever_its_size)
{
    CHECK_OK(run_on(1, spawn_patterns, NULL));
    CHECK_OK(run_on(2, spawn_patterns, NULL));
}

static int do_nothing(void *arg)
{
    (void)arg;
    return 0;
}

static int refuse_specs(void *arg)
{
    static const char data[1];
    const struct {
        weir_task_spec spec;
        const char *why;
    } rows[] = {
        {{.arg = data}, "task 'task' in scope 'refused': fn is not set"},
        {{.name = "big", .fn = do_nothing, .arg = data, .arg_bytes = WEIR_ARG_BYTES_MAX + 1},
         "task 'big' in scope 'refused': arg_bytes is 65537, at most 65536"},
        {{.fn = do_nothing, .arg_bytes = 1},
         "task 'task' in scope 'refused': arg_bytes is 1 but arg is NULL"},
        {{.fn = do_nothing, .place = (enum weir_place)9},
         "task 'task' in scope 'refused': place is not one of enum weir_place"},
        {{.fn = do_nothing, .place = WEIR_PLACE_WORKER, .worker = 1},
         "task 'task' in scope 'refused': worker is 1, the runtime has 1"},
        {{.fn = do_nothing, .place = WEIR_PLACE_WORKER, .worker = -1},
         "task 'task' in scope 'refused': worker is -1, the runtime has 1"},
        {{.fn = do_nothing, .stack_bytes = WEIR_STACK_BYTES_MAX + 1},
         "task 'task' in scope 'refused': stack_bytes is 8388609, at most 8388608"},
    };
    weir_scope *scope = open_scope("refused", WEIR_FAIL_FAST);

    (void)arg;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        weir_task task = {NULL, 77};

        CHECK_INT(weir_task_spawn(scope, &rows[i].spec, &task), ==, WEIR_EREFUSED);
        CHECK_STR(weir_why(), rows[i].why);
        CHECK_INT(task.id, ==, 77); /* written on success only */
    }
    CHECK_INT(weir_spawn_named(scope, "x", do_nothing, NULL, 8), ==, WEIR_EREFUSED);
    CHECK_STR(weir_why(), "task 'x' in scope 'refused': arg_bytes is 8 but arg is NULL");
    CHECK_INT(weir_scope_task_count(scope), ==, 0);
    return weir_scope_close(scope);
}

TEST(spawn_refuses_a_spec_with_a_sentence_that_names_the_member)
{
    CHECK_OK(run_on(1, refuse_specs, NULL));
}

static int set_flag(void *arg)
{
    atom_store_release(*(ATOM(int) **)arg, 1);
    return 0;
}

static int spawn_here(void *arg)
{
    ATOM(int) ran = 0;
    ATOM(int) *pointer = &ran;
    weir_scope *scope = open_scope("later", WEIR_FAIL_FAST);

    (void)arg;
    CHECK_OK(weir_task_spawn(
        scope,
        &(weir_task_spec){
            .fn = set_flag, .arg = &pointer, .arg_bytes = sizeof pointer, .place = WEIR_PLACE_HERE},
        NULL));
    CHECK_INT(atom_load(&ran), ==, 0);
    CHECK_OK(weir_yield());
    CHECK_INT(atom_load(&ran), ==, 1);
    return weir_scope_close(scope);
}

TEST(spawn_never_runs_the_child_at_once)
{
    CHECK_OK(run_on(1, spawn_here, NULL));
    CHECK_OK(run_on(2, spawn_here, NULL));
}

static int check_name(void *arg)
{
    CHECK_STR(weir_task_name(), *(const char **)arg);
    return 0;
}

static int spawn_named_tasks(void *arg)
{
    const char *wanted = "check_name";
    char text[64] = "a name of more than thirty-one bytes";
    weir_scope *scope = open_scope("names", WEIR_FAIL_FAST);

    (void)arg;
    CHECK_STR(weir_task_name(), "main");
    CHECK_OK(weir_spawn(scope, check_name, &wanted, sizeof wanted));
    wanted = "a name of more than thirty-one ";
    spawn_task(scope, text, check_name, &wanted, sizeof wanted);
    memset(text, 'x', sizeof text - 1); /* theirs is a copy */
    wanted = "task";
    spawn_task(scope, NULL, check_name, &wanted, sizeof wanted);
    return weir_scope_close(scope);
}

TEST(task_names_are_the_functions_text_or_a_copy_cut_to_31_bytes)
{
    CHECK_STR(weir_task_name(), "");
    CHECK_OK(run_on(1, spawn_named_tasks, NULL));
}

/* ---- Where tasks run ---- */

static int check_worker(void *arg)
{
    CHECK_INT(weir_worker_index(), ==, *(int *)arg);
    return 0;
}

static int place_tasks(void *arg)
{
    weir_scope *scope = open_scope("placed", WEIR_FAIL_FAST);
    int self = weir_worker_index();

    (void)arg;
    CHECK_INT(weir_worker_count(), ==, 2);
    for (int i = 0; i < 100; i++) {
        int worker = i % 2;

        CHECK_OK(weir_task_spawn(scope,
                                 &(weir_task_spec){.fn = check_worker,
                                                   .arg = &self,
                                                   .arg_bytes = sizeof self,
                                                   .place = WEIR_PLACE_HERE},
                                 NULL));
        spawn_at(scope, worker, "there", check_worker, &worker, sizeof worker);
    }
    return weir_scope_close(scope);
}

TEST(place_here_and_place_worker_are_kept)
{
    CHECK_INT(weir_worker_index(), ==, -1);
    CHECK_INT(weir_worker_count(), ==, 0);
    CHECK_OK(run_on(2, place_tasks, NULL));
}

static int note_worker(void *arg)
{
    struct {
        ATOM(int) * flag;
        int busy_worker;
    } *given = arg;

    CHECK_INT(weir_worker_index(), !=, given->busy_worker);
    (void)atom_add(given->flag, 1);
    return 0;
}

/* Does not suspend until its children have run: only another worker can do that. */
static int hog_until_stolen(void *arg)
{
    ATOM(int) ran = 0;
    struct {
        ATOM(int) * flag;
        int busy_worker;
    } given = {&ran, weir_worker_index()};
    weir_scope *scope = open_scope("stolen", WEIR_FAIL_FAST);

    (void)arg;
    for (int i = 0; i < 50; i++) CHECK_OK(weir_spawn(scope, note_worker, &given, sizeof given));
    while (atom_load_acquire(&ran) < 50) sched_yield();
    return weir_scope_close(scope);
}

TEST_WITH(idle_worker_takes_the_unstarted_tasks_of_a_busy_one, .workers = 2)
{
    for (int i = 0; i < 20; i++) CHECK_OK(run_on(2, hog_until_stolen, NULL));
}

static int stay_on_thread(void *arg)
{
    long thread = syscall(SYS_gettid);

    (void)arg;
    for (int i = 0; i < 20; i++) {
        CHECK_OK(weir_yield());
        CHECK_INT(syscall(SYS_gettid), ==, thread);
        CHECK_OK(weir_sleep(i % 3));
        CHECK_INT(syscall(SYS_gettid), ==, thread);
    }
    return 0;
}

static int many_stay(void *arg)
{
    weir_scope *scope = open_scope("stay", WEIR_FAIL_FAST);

    (void)arg;
    for (int i = 0; i < 200; i++) CHECK_OK(weir_spawn(scope, stay_on_thread, NULL, 0));
    return weir_scope_close(scope);
}

TEST(started_task_never_changes_its_thread)
{
    CHECK_OK(run_on(2, many_stay, NULL));
    CHECK_OK(run_on(4, many_stay, NULL));
}

/* ---- Joining ---- */

static int join_results(void *arg)
{
    weir_scope *scope = open_scope("joined", WEIR_COLLECT);
    weir_task early, late, failed;
    int results[3] = {42, 43, -EIO};
    int result = 0;

    (void)arg;
    early = spawn_task(scope, "early", return_argument, &results[0], sizeof(int));
    late = spawn_task(scope, "late", return_argument, &results[1], sizeof(int));
    failed = spawn_task(scope, "failed", return_argument, &results[2], sizeof(int));
    CHECK_OK(weir_task_join(early, &result)); /* not run yet */
    CHECK_INT(result, ==, 42);
    CHECK_OK(weir_scope_join(scope) == -EIO ? 0 : -1);
    CHECK_OK(weir_task_join(late, &result)); /* ended long ago */
    CHECK_INT(result, ==, 43);
    CHECK_OK(weir_task_join(failed, &result));
    CHECK_INT(result, ==, -EIO);
    CHECK_INT(weir_task_join(early, &result), ==, WEIR_ECLOSED);
    CHECK_INT(weir_task_join(late, NULL), ==, WEIR_ECLOSED);
    CHECK_INT(weir_task_cancel(late, "too late"), ==, WEIR_ECLOSED);
    CHECK_INT(weir_task_join((weir_task){NULL, 0}, NULL), ==, WEIR_ECLOSED);
    /* Joined or not, a failure is the scope's. */
    CHECK_INT(weir_scope_failures(scope, NULL, 0), ==, 1);
    CHECK_INT(weir_scope_close(scope), ==, -EIO);
    return 0;
}

TEST(join_gives_the_result_once)
{
    CHECK_OK(run_on(1, join_results, NULL));
    CHECK_OK(run_on(2, join_results, NULL));
}

static int join_stale_as_the_same_task(void *arg)
{
    const weir_task *stale = arg;

    /* The memory of a task that one of them named may be ours now. */
    for (int i = 0; i < 2; i++) {
        CHECK_INT(weir_task_join(stale[i], NULL), ==, WEIR_ECLOSED);
        CHECK_INT(weir_task_cancel(stale[i], "stale"), ==, WEIR_ECLOSED);
    }
    CHECK_OK(weir_checkpoint());
    return 0;
}

static int use_stale_handles(void *arg)
{
    weir_scope *scope = open_scope("first", WEIR_FAIL_FAST);
    int result = 1;
    weir_task kept = spawn_task(scope, "kept", return_argument, &result, sizeof result);
    weir_task joined = spawn_task(scope, "joined", return_argument, &result, sizeof result);
    size_t alive;
    int r;

    (void)arg;
    CHECK_OK(weir_task_join(joined, NULL));
    alive = weir_scope_task_count(scope);
    r = weir_task_cancel(kept, "ended");
    if (alive == 0 || r < 0) CHECK_INT(r, ==, WEIR_ECLOSED);
    CHECK_OK(weir_scope_close(scope));
    CHECK_INT(weir_task_join(kept, NULL), ==, WEIR_ECLOSED);
    CHECK_INT(weir_task_cancel(kept, "gone"), ==, WEIR_ECLOSED);
    scope = open_scope("second", WEIR_FAIL_FAST);
    for (int i = 0; i < 100; i++) {
        weir_task both[2] = {joined, kept};

        CHECK_OK(weir_spawn(scope, join_stale_as_the_same_task, both, sizeof both));
    }
    return weir_scope_close(scope);
}

TEST(stale_handle_is_closed_also_for_the_task_that_has_its_memory_now)
{
    CHECK_OK(run_on(1, use_stale_handles, NULL));
    CHECK_OK(run_on(2, use_stale_handles, NULL));
}

static int join_given(void *arg)
{
    int result = 0;

    CHECK_OK(weir_task_join(*(weir_task *)arg, &result));
    CHECK_INT(result, ==, 7);
    return 0;
}

static int wait_then_seven(void *arg)
{
    await_flag(*(ATOM(int) **)arg);
    return 7;
}

static int two_joiners(void *arg)
{
    ATOM(int) go = 0;
    ATOM(int) *pointer = &go;
    weir_scope *scope = open_scope("two", WEIR_FAIL_FAST);
    weir_task task = spawn_task(scope, "seven", wait_then_seven, &pointer, sizeof pointer);
    int result = 0;

    (void)arg;
    CHECK_OK(weir_task_spawn(
        scope,
        &(weir_task_spec){
            .fn = join_given, .arg = &task, .arg_bytes = sizeof task, .place = WEIR_PLACE_HERE},
        NULL));
    CHECK_OK(weir_yield());
    CHECK_INT(weir_task_join(task, &result), ==, WEIR_EINUSE);
    atom_store(&go, 1);
    CHECK_OK(weir_scope_join(scope));
    CHECK_INT(weir_task_join(task, &result), ==, WEIR_ECLOSED);
    return weir_scope_close(scope);
}

TEST(second_joiner_is_told_that_there_is_one)
{
    CHECK_OK(run_on(1, two_joiners, NULL));
    CHECK_OK(run_on(2, two_joiners, NULL));
}

static int join_self(void *arg)
{
    (void)arg;
    CHECK_INT(weir_task_join(weir_task_self(), NULL), ==, WEIR_EREFUSED);
    CHECK_STR(weir_why(), "task 'self': a task cannot join itself");
    return 0;
}

static int give_self(void *arg)
{
    *(*(weir_task **)arg) = weir_task_self();
    CHECK_INT(sleep_until_cancelled(NULL), ==, WEIR_ECANCELED);
    return WEIR_ECANCELED;
}

static int join_oddly(void *arg)
{
    weir_scope *scope = open_scope("odd", WEIR_FAIL_FAST);
    weir_task task = {NULL, 0};
    weir_task *pointer = &task;

    (void)arg;
    spawn_task(scope, "self", join_self, NULL, 0);
    CHECK_OK(weir_scope_join(scope));
    CHECK_OK(weir_spawn(scope, give_self, &pointer, sizeof pointer));
    while (task.ref == NULL) CHECK_OK(weir_yield());
    CHECK_INT(weir_task_join(task, NULL), ==, WEIR_EREFUSED);
    CHECK_STR(weir_why(), "task 'give_self': was spawned without a handle; its scope joins it");
    CHECK_OK(weir_task_cancel(task, "a handle from inside can cancel"));
    return weir_scope_close(scope);
}

TEST(join_refuses_the_task_itself_and_tasks_without_a_handle)
{
    CHECK_OK(run_on(1, join_oddly, NULL));
}

static int join_under_deadline(void *arg)
{
    ATOM(int) go = 0;
    ATOM(int) *pointer = &go;
    weir_scope *scope = open_scope("slow", WEIR_FAIL_FAST);
    weir_task task = spawn_task(scope, "seven", wait_then_seven, &pointer, sizeof pointer);
    int result = 0;

    (void)arg;
    for (int i = 0; i < 3; i++)
        WEIR_DEADLINE(1) CHECK_INT(weir_task_join(task, &result), ==, WEIR_ETIMEDOUT);
    CHECK_INT(result, ==, 0);
    atom_store(&go, 1);
    CHECK_OK(weir_task_join(task, &result));
    CHECK_INT(result, ==, 7);
    return weir_scope_close(scope);
}

TEST(join_cut_short_leaves_the_handle_usable)
{
    CHECK_OK(run_on(1, join_under_deadline, NULL));
    CHECK_OK(run_on(2, join_under_deadline, NULL));
}

/* Both join the same ended task at the same moment, each on its worker. */
struct join_race {
    weir_task task;
    ATOM(int) arrived;
    ATOM(int) joined;
    ATOM(int) closed;
};

static int race_to_join(void *arg)
{
    struct join_race *race = *(struct join_race **)arg;
    int result = 0, r;

    (void)atom_add(&race->arrived, 1);
    while (atom_load_acquire(&race->arrived) < 2) sched_yield();
    r = weir_task_join(race->task, &result);
    if (r == 0) {
        CHECK_INT(result, ==, 5);
        (void)atom_add(&race->joined, 1);
    } else {
        CHECK_INT(r, ==, WEIR_ECLOSED);
        (void)atom_add(&race->closed, 1);
    }
    return 0;
}

static int races_to_join(void *arg)
{
    int rounds = *(int *)arg;
    int five = 5;

    for (int i = 0; i < rounds && (i == 0 || !test_late()); i++) {
        struct join_race race = {0};
        struct join_race *pointer = &race;
        weir_scope *ended = open_scope("ended", WEIR_FAIL_FAST);
        weir_scope *scope;

        race.task = spawn_at(ended, i % 2, "five", return_argument, &five, sizeof five);
        CHECK_OK(weir_scope_join(ended));
        scope = open_scope("race", WEIR_FAIL_FAST);
        spawn_at(scope, 0, "a", race_to_join, &pointer, sizeof pointer);
        spawn_at(scope, 1, "b", race_to_join, &pointer, sizeof pointer);
        CHECK_OK(weir_scope_close(scope));
        CHECK_INT(atom_load(&race.joined), ==, 1);
        CHECK_INT(atom_load(&race.closed), ==, 1);
        CHECK_OK(weir_scope_close(ended));
    }
    return 0;
}

TEST(ended_task_is_joined_by_exactly_one_of_two_workers)
{
    int rounds = TEST_SLOW ? 200 : 1000;

    CHECK_OK(run_on(2, races_to_join, &rounds));
}

/* The handle's scope is closed by its owner while another worker joins. */
static int join_while_closing(void *arg)
{
    struct join_race *race = *(struct join_race **)arg;
    int result = 0, r;

    (void)atom_add(&race->arrived, 1);
    while (atom_load_acquire(&race->arrived) < 2) sched_yield();
    r = weir_task_join(race->task, &result);
    CHECK(r == WEIR_ECLOSED || (r == 0 && result == 5));
    return 0;
}

static int close_while_joining(void *arg)
{
    int rounds = *(int *)arg;
    int five = 5;

    for (int i = 0; i < rounds && (i == 0 || !test_late()); i++) {
        struct join_race race = {0};
        struct join_race *pointer = &race;
        weir_scope *outer = open_scope("outer", WEIR_FAIL_FAST);
        weir_scope *ended = open_scope("ended", WEIR_FAIL_FAST);

        race.task = spawn_at(ended, i % 2, "five", return_argument, &five, sizeof five);
        CHECK_OK(weir_scope_join(ended));
        spawn_at(outer, 1, "joiner", join_while_closing, &pointer, sizeof pointer);
        (void)atom_add(&race.arrived, 1);
        while (atom_load_acquire(&race.arrived) < 2) sched_yield();
        CHECK_OK(weir_scope_close(ended));
        CHECK_OK(weir_scope_close(outer));
    }
    return 0;
}

TEST(join_and_close_of_the_scope_on_two_workers_do_not_harm_each_other)
{
    int rounds = TEST_SLOW ? 200 : 1000;

    CHECK_OK(run_on(2, close_while_joining, &rounds));
}

/* ---- Cancelling one task ---- */

static int wait_and_tell_cause(void *arg)
{
    weir_cause_info info;

    (void)arg;
    CHECK_INT(sleep_until_cancelled(NULL), ==, WEIR_ECANCELED);
    CHECK_INT(weir_cause(&info), ==, WEIR_CAUSE_CANCEL);
    CHECK_STR(info.why, "enough");
    CHECK_STR(info.scope, "victim");
    CHECK_INT(info.error, ==, WEIR_ECANCELED);
    CHECK_INT(weir_yield(), ==, WEIR_ECANCELED);
    return WEIR_ECANCELED;
}

static int count_to_three(void *arg)
{
    (void)arg;
    for (int i = 0; i < 3; i++) CHECK_OK(weir_sleep(1));
    return 3;
}

static int cancel_one(void *arg)
{
    weir_scope *scope = open_scope("one", WEIR_FAIL_FAST);
    weir_task victim = spawn_task(scope, "victim", wait_and_tell_cause, NULL, 0);
    weir_task sibling = spawn_task(scope, "sibling", count_to_three, NULL, 0);
    int result = 0, r;

    (void)arg;
    CHECK_OK(weir_yield());
    CHECK_OK(weir_task_cancel(victim, "enough"));
    r = weir_task_cancel(victim, "the first one counts");
    CHECK(r == 0 || (weir_worker_count() > 1 && r == WEIR_ECLOSED)); /* it may have ended */
    CHECK_OK(weir_task_join(victim, &result));
    CHECK_INT(result, ==, WEIR_ECANCELED);
    CHECK_OK(weir_task_join(sibling, &result));
    CHECK_INT(result, ==, 3);
    CHECK_INT(weir_scope_failures(scope, NULL, 0), ==, 0);
    return weir_scope_close(scope);
}

TEST(cancel_of_one_task_leaves_its_siblings_alone_and_is_no_failure)
{
    CHECK_OK(run_on(1, cancel_one, NULL));
    CHECK_OK(run_on(2, cancel_one, NULL));
}

static int expect_cancelled_from_the_start(void *arg)
{
    (void)arg;
    CHECK_INT(weir_checkpoint(), ==, WEIR_ECANCELED);
    CHECK_INT(weir_sleep(1), ==, WEIR_ECANCELED);
    return WEIR_ECANCELED;
}

static int cancel_unstarted(void *arg)
{
    weir_scope *scope = open_scope("unstarted", WEIR_FAIL_FAST);
    weir_task task;

    (void)arg;
    CHECK_OK(weir_task_spawn(
        scope, &(weir_task_spec){.fn = expect_cancelled_from_the_start, .place = WEIR_PLACE_HERE},
        &task));
    CHECK_OK(weir_task_cancel(task, "before it began"));
    return weir_scope_close(scope);
}

TEST(cancelled_before_it_starts_a_task_still_runs_and_its_first_call_fails)
{
    CHECK_OK(run_on(1, cancel_unstarted, NULL));
    CHECK_OK(run_on(2, cancel_unstarted, NULL));
}

static int fail_in_cleanup(void *arg)
{
    (void)arg;
    CHECK_INT(sleep_until_cancelled(NULL), ==, WEIR_ECANCELED);
    return -EIO;
}

static int cancel_then_fail(void *arg)
{
    weir_scope *scope = open_scope("cleanup", WEIR_COLLECT);
    weir_task task = spawn_task(scope, "bad", fail_in_cleanup, NULL, 0);

    (void)arg;
    CHECK_OK(weir_yield());
    CHECK_OK(weir_task_cancel(task, "end"));
    CHECK_INT(weir_scope_close(scope), ==, -EIO);
    return 0;
}

TEST(cancelled_task_that_ends_with_another_error_has_failed)
{
    CHECK_OK(run_on(1, cancel_then_fail, NULL));
}

static int cancel_self(void *arg)
{
    (void)arg;
    CHECK_OK(weir_task_cancel(weir_task_self(), "myself"));
    CHECK_INT(weir_checkpoint(), ==, WEIR_ECANCELED);
    return WEIR_ECANCELED;
}

static int spawn_cancel_self(void *arg)
{
    weir_scope *scope = open_scope("self", WEIR_FAIL_FAST);

    (void)arg;
    CHECK_OK(weir_spawn(scope, cancel_self, NULL, 0));
    return weir_scope_close(scope);
}

TEST(task_can_cancel_itself)
{
    CHECK_OK(run_on(1, spawn_cancel_self, NULL));
}

/* ---- Outside a task, and sentences ---- */

TEST(calls_outside_a_task_say_so)
{
    weir_scope *scope;
    weir_task self = weir_task_self();

    CHECK(self.ref == NULL);
    CHECK_INT(self.id, ==, 0);
    CHECK_INT(weir_yield(), ==, WEIR_ENOTASK);
    CHECK_STR(weir_why(), "weir_yield: called outside a task");
    CHECK_INT(weir_checkpoint(), ==, WEIR_ENOTASK);
    CHECK_INT(weir_sleep(1), ==, WEIR_ENOTASK);
    CHECK_STR(weir_why(), "weir_sleep: called outside a task");
    CHECK_INT(weir_task_join(self, NULL), ==, WEIR_ENOTASK);
    CHECK_INT(weir_task_cancel(self, ""), ==, WEIR_ENOTASK);
    CHECK_INT(weir_scope_open(&(weir_scope_spec){.name = "x"}, &scope), ==, WEIR_ENOTASK);
    CHECK_STR(weir_why(), "weir_scope_open: called outside a task");
    CHECK_INT(weir_stop(1), ==, WEIR_ENOTASK);
    CHECK_INT(weir_deadline_ns(), ==, WEIR_FOREVER);
    CHECK_INT(weir_cause(NULL), ==, WEIR_CAUSE_NONE);
}

static int expect_no_sentence(void *arg)
{
    (void)arg;
    CHECK_STR(weir_why(), "");
    return 0;
}

static int have_a_sentence(void *arg)
{
    weir_scope *scope = open_scope("why", WEIR_FAIL_FAST);
    weir_scope *refused;

    CHECK_STR(weir_why(), arg);
    CHECK_INT(weir_scope_open(&(weir_scope_spec){.name = ""}, &refused), ==, WEIR_EREFUSED);
    CHECK_STR(weir_why(), "scope: name is not set");
    CHECK_OK(weir_spawn(scope, expect_no_sentence, NULL, 0));
    CHECK_OK(weir_scope_close(scope));
    CHECK_STR(weir_why(), "scope: name is not set");
    return 0;
}

TEST(why_is_the_tasks_own_sentence_and_empty_before_the_first)
{
    char nothing[] = "";

    CHECK_INT(weir_yield(), ==, WEIR_ENOTASK); /* a sentence of the thread's */
    CHECK_OK(run_on(1, have_a_sentence, nothing));
}

/* ---- States ---- */

struct move {
    enum task_state from, to;
};

static void move(void *arg)
{
    struct move *move = arg;
    struct task task = {.state = (uint8_t)move->from};
    task_set_state(&task, move->to);
}

TEST(task_goes_only_from_state_to_state_as_drawn)
{
    /* Spawned; begun; interrupted and woken; restarted; ended. */
    static const char *drawn[TASK_STATES] = {
        [TASK_FREE] = "N",   [TASK_NEW] = "RF",     [TASK_READY] = "R", [TASK_RUNNING] = "rPBE",
        [TASK_PARKED] = "r", [TASK_BACKOFF] = "NE", [TASK_ENDED] = "F",
    };
    static const char letters[] = "FNrRPBE";

    for (struct move m = {0, 0}; m.from < TASK_STATES; m.from++) {
        for (m.to = 0; m.to < TASK_STATES; m.to++) {
            if (strchr(drawn[m.from], letters[m.to])) {
                move(&m);
            } else if (m.from == m.to) { /* one of each row is enough: each takes a process */
                CHECK_ABORTS(move, &m, "task_moves");
            } else {
                CHECK(!(task_moves[m.from] & (1u << m.to)));
            }
        }
    }
}

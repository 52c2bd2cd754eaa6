/* scope_test.c - specs, bounds, closing, cancelling, causes, and misuse of scopes. */
#include <errno.h>

#include "unit/rt/support.h"

/* ---- Specs ---- */

#define GOOD .name = "s", .on_failure = WEIR_COLLECT, .max_tasks = 1, .overflow = WEIR_WAIT
#define SUPERVISED .name = "s", .on_failure = WEIR_SUPERVISE, .max_tasks = 1, .overflow = WEIR_WAIT

static int refuse_specs(void *arg)
{
    const struct {
        weir_scope_spec spec;
        const char *why;
    } rows[] = {
        {{.on_failure = WEIR_COLLECT}, "scope: name is not set"},
        {{.name = ""}, "scope: name is not set"},
        {{.name = "s", .max_tasks = 1, .overflow = WEIR_WAIT}, "scope 's': on_failure is not set"},
        {{.name = "s", .on_failure = (enum weir_failure_policy)7},
         "scope 's': on_failure is not one of enum weir_failure_policy"},
        {{.name = "s", .on_failure = WEIR_COLLECT, .overflow = WEIR_WAIT},
         "scope 's': max_tasks is not set"},
        {{.name = "s", .on_failure = WEIR_COLLECT, .max_tasks = 1},
         "scope 's': overflow is not set"},
        {{.name = "s", .on_failure = WEIR_COLLECT, .max_tasks = 1, .overflow = WEIR_DROP_OLDEST},
         "scope 's': overflow must be WEIR_WAIT or WEIR_REJECT, tasks are not dropped"},
        {{GOOD, .deadline_ms = -1}, "scope 's': deadline_ms is negative"},
        {{GOOD, .place = WEIR_PLACE_WORKER},
         "scope 's': place must be WEIR_ANYWHERE or WEIR_PLACE_HERE; a worker is named for each "
         "task"},
        {{GOOD, .place = (enum weir_place)12},
         "scope 's': place must be WEIR_ANYWHERE or WEIR_PLACE_HERE; a worker is named for each "
         "task"},
        {{GOOD, .stack_bytes = WEIR_STACK_BYTES_MAX + 1},
         "scope 's': stack_bytes is 8388609, at most 8388608"},
        {{GOOD, .failures_kept = 65537}, "scope 's': failures_kept is 65537, at most 65536"},
        {{GOOD, .restart = {.max_restarts = 1}},
         "scope 's': restart is set but on_failure is not WEIR_SUPERVISE"},
        {{GOOD, .restart = {.backoff_ms_max = 1}},
         "scope 's': restart is set but on_failure is not WEIR_SUPERVISE"},
        {{SUPERVISED, .restart = {.window_ms = 10}},
         "scope 's': restart.max_restarts is 0, must be 1 to 1000"},
        {{SUPERVISED, .restart = {.max_restarts = 1001, .window_ms = 10}},
         "scope 's': restart.max_restarts is 1001, must be 1 to 1000"},
        {{SUPERVISED, .restart = {.max_restarts = 1}}, "scope 's': restart.window_ms is not set"},
        {{SUPERVISED, .restart = {.max_restarts = 1, .window_ms = 10, .backoff_ms = -1}},
         "scope 's': restart.backoff_ms is negative"},
        {{SUPERVISED,
          .restart = {.max_restarts = 1, .window_ms = 10, .backoff_ms = 9, .backoff_ms_max = 8}},
         "scope 's': restart.backoff_ms_max is smaller than backoff_ms"},
    };
    weir_scope *scope = NULL;

    (void)arg;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        test_note("row %zu", i);
        CHECK_INT(weir_scope_open(&rows[i].spec, &scope), ==, WEIR_EREFUSED);
        CHECK_STR(weir_why(), rows[i].why);
        CHECK(scope == NULL);
    }
    CHECK_INT(weir_scope_open(NULL, &scope), ==, WEIR_EREFUSED);
    CHECK_OK(weir_checkpoint());
    return 0;
}

TEST(scope_refuses_every_bad_member_with_its_sentence)
{
    CHECK_OK(run_on(1, refuse_specs, NULL));
}

static int old_caller(void *arg)
{
    /* A program that was built when the spec ended after deadline_ms. */
    weir_scope_spec spec = {GOOD, .failures_kept = SIZE_MAX, .stack_bytes = SIZE_MAX};
    weir_scope *scope;

    (void)arg;
    CHECK_OK(weir_scope_open_at("old.c:1", offsetof(weir_scope_spec, restart), &spec, &scope));
    CHECK_STR(weir_scope_name(scope), "s");
    return weir_scope_close(scope);
}

TEST(spec_members_that_a_caller_does_not_know_are_not_read)
{
    CHECK_OK(run_on(1, old_caller, NULL));
}

static int long_name(void *arg)
{
    char name[100];
    weir_scope *scope;

    (void)arg;
    memset(name, 'n', sizeof name);
    name[99] = '\0';
    scope = open_scope(name, WEIR_COLLECT);
    CHECK_INT(strlen(weir_scope_name(scope)), ==, 63);
    memset(name, 'x', 63);
    CHECK_INT(weir_scope_name(scope)[0], ==, 'n');
    return weir_scope_close(scope);
}

TEST(scope_name_is_a_copy_of_at_most_63_bytes)
{
    CHECK_OK(run_on(1, long_name, NULL));
}

/* ---- Bounds ---- */

static int reject_when_full(void *arg)
{
    weir_scope *scope = open_bounded("full", WEIR_FAIL_FAST, 3, WEIR_REJECT);
    int value = 0;

    (void)arg;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 3; i++)
            CHECK_OK(weir_spawn(scope, return_argument, &value, sizeof value));
        CHECK_INT(weir_spawn(scope, return_argument, &value, sizeof value), ==, WEIR_EOVERLOAD);
        CHECK_INT(weir_scope_task_count(scope), ==, 3);
        CHECK_OK(weir_scope_join(scope));
        CHECK_INT(weir_scope_task_count(scope), ==, 0);
    }
    return weir_scope_close(scope);
}

TEST(full_scope_rejects_and_has_room_again_when_tasks_have_ended)
{
    CHECK_OK(run_on(1, reject_when_full, NULL));
}

struct fifo {
    weir_scope *bounded;
    ATOM(int) go;
    int admitted[8];
    int count;
};

static int hold_slot(void *arg)
{
    struct fifo *fifo = *(struct fifo **)arg;

    await_flag(&fifo->go);
    return 0;
}

struct fifo_spawner {
    struct fifo *fifo;
    int id;
};

static int note_admission(void *arg)
{
    struct fifo_spawner *spawner = arg;

    spawner->fifo->admitted[spawner->fifo->count++] = spawner->id;
    return 0;
}

static int wait_to_spawn(void *arg)
{
    struct fifo_spawner *spawner = arg;

    CHECK_OK(weir_spawn(spawner->fifo->bounded, note_admission, spawner, sizeof *spawner));
    return 0;
}

static int spawn_first_come_first_served(void *arg)
{
    struct fifo fifo = {0};
    struct fifo *pointer = &fifo;
    weir_scope *spawners;

    (void)arg;
    fifo.bounded = open_bounded("bounded", WEIR_FAIL_FAST, 1, WEIR_WAIT);
    CHECK_OK(weir_spawn(fifo.bounded, hold_slot, &pointer, sizeof pointer));
    spawners = open_scope("spawners", WEIR_FAIL_FAST);
    for (int i = 0; i < 8; i++) {
        struct fifo_spawner spawner = {&fifo, i};

        CHECK_OK(weir_spawn(spawners, wait_to_spawn, &spawner, sizeof spawner));
    }
    CHECK_OK(weir_yield());
    CHECK_INT(weir_scope_task_count(spawners), ==, 8);
    CHECK_INT(weir_scope_task_count(fifo.bounded), ==, 1);
    atom_store(&fifo.go, 1);
    CHECK_OK(weir_scope_close(spawners));
    CHECK_OK(weir_scope_close(fifo.bounded));
    CHECK_INT(fifo.count, ==, 8);
    for (int i = 0; i < 8; i++) CHECK_INT(fifo.admitted[i], ==, i);
    return 0;
}

TEST(spawners_of_a_full_scope_are_served_in_the_order_they_came)
{
    CHECK_OK(run_on(1, spawn_first_come_first_served, NULL));
}

struct bound_check {
    ATOM(int) alive;
    ATOM(int) most;
    ATOM(int) ran;
};

static int be_alive(void *arg)
{
    struct bound_check *check = *(struct bound_check **)arg;
    int alive = atom_add(&check->alive, 1) + 1;
    int most = atom_load(&check->most);

    while (alive > most && !atom_cas(&check->most, &most, alive)) {}
    CHECK_OK(weir_yield());
    (void)atom_sub(&check->alive, 1);
    (void)atom_add(&check->ran, 1);
    return 0;
}

static int spawn_many_of_them(void *arg)
{
    struct {
        weir_scope *scope;
        struct bound_check *check;
    } *given = arg;

    for (int i = 0; i < 100; i++)
        CHECK_OK(weir_spawn(given->scope, be_alive, &given->check, sizeof given->check));
    return 0;
}

static int keep_the_bound(void *arg)
{
    struct bound_check check = {0};
    weir_scope *bounded = open_bounded("bounded", WEIR_FAIL_FAST, 5, WEIR_WAIT);
    weir_scope *spawners = open_scope("spawners", WEIR_FAIL_FAST);
    struct {
        weir_scope *scope;
        struct bound_check *check;
    } given = {bounded, &check};

    (void)arg;
    for (int i = 0; i < 20; i++)
        CHECK_OK(weir_spawn(spawners, spawn_many_of_them, &given, sizeof given));
    CHECK_OK(weir_scope_close(spawners));
    CHECK_OK(weir_scope_close(bounded));
    CHECK_INT(atom_load(&check.ran), ==, 2000);
    CHECK_INT(atom_load(&check.most), <=, 5);
    return 0;
}

TEST(max_tasks_holds_under_many_spawners_and_all_get_through)
{
    CHECK_OK(run_on(1, keep_the_bound, NULL));
    CHECK_OK(run_on(2, keep_the_bound, NULL));
}

static int spawn_into(void *arg)
{
    weir_scope *scope = *(weir_scope **)arg;
    int r = weir_spawn(scope, sleep_until_cancelled, NULL, 0);

    CHECK_INT(r, ==, WEIR_ECANCELED);
    return r;
}

/* Of the three waiting spawners one is cancelled itself; then the full scope is. */
static int cancel_waiting_spawners(void *arg)
{
    weir_scope *full = open_bounded("full", WEIR_FAIL_FAST, 1, WEIR_WAIT);
    weir_scope *spawners = open_scope("spawners", WEIR_COLLECT);
    weir_task tasks[3];
    int result = 0;

    (void)arg;
    CHECK_OK(weir_spawn(full, sleep_until_cancelled, NULL, 0));
    for (int i = 0; i < 3; i++)
        tasks[i] = spawn_task(spawners, "s", spawn_into, &full, sizeof full);
    for (int i = 0; i < 3; i++) CHECK_OK(weir_yield());
    CHECK_OK(weir_task_cancel(tasks[1], "this one first"));
    CHECK_OK(weir_task_join(tasks[1], &result));
    CHECK_INT(result, ==, WEIR_ECANCELED);
    WEIR_DEADLINE(1) {
        CHECK_INT(weir_spawn(full, sleep_until_cancelled, NULL, 0), ==, WEIR_ETIMEDOUT);
    }
    CHECK_INT(weir_scope_task_count(full), ==, 1);
    weir_scope_cancel(full, 0, "nobody gets in");
    CHECK_INT(weir_spawn(full, sleep_until_cancelled, NULL, 0), ==, WEIR_ECANCELED);
    /* Their own scope is not cancelled, so WEIR_ECANCELED is a failure like any. */
    CHECK_INT(weir_scope_close(spawners), ==, WEIR_ECANCELED);
    return weir_scope_close(full);
}

TEST(waiting_spawner_is_freed_by_its_own_cancel_and_by_the_scopes)
{
    CHECK_OK(run_on(1, cancel_waiting_spawners, NULL));
    CHECK_OK(run_on(2, cancel_waiting_spawners, NULL));
}

/* ---- Closing ---- */

static int sleep_and_return(void *arg)
{
    struct {
        int ms;
        int result;
    } *given = arg;
    int r = weir_sleep(given->ms);

    return r < 0 ? r : given->result;
}

static void spawn_later(weir_scope *scope, const char *name, int ms, int result)
{
    struct {
        int ms;
        int result;
    } given = {ms, result};

    CHECK_OK(weir_task_spawn(
        scope,
        &(weir_task_spec){
            .fn = sleep_and_return, .arg = &given, .arg_bytes = sizeof given, .name = name},
        NULL));
}

static int list_failures(void *arg)
{
    weir_failure failures[8];
    weir_scope *scope;

    (void)arg;
    CHECK_OK(weir_scope_open(&(weir_scope_spec){.name = "kept",
                                                .on_failure = WEIR_COLLECT,
                                                .max_tasks = 10,
                                                .overflow = WEIR_WAIT,
                                                .failures_kept = 2},
                             &scope));
    spawn_later(scope, "third", 30, -ENOENT);
    spawn_later(scope, "first", 10, -EIO);
    spawn_later(scope, "second", 20, -EPERM);
    spawn_later(scope, "fine", 25, 1);
    CHECK_INT(weir_scope_failures(scope, failures, 8), ==, 0);
    CHECK_INT(weir_scope_join(scope), ==, -EIO);
    memset(failures, 0, sizeof failures);
    CHECK_INT(weir_scope_failures(scope, failures, 1), ==, 3);
    CHECK_STR(failures[0].task, "first");
    CHECK_INT(failures[1].error, ==, 0);
    CHECK_INT(weir_scope_failures(scope, failures, 8), ==, 3);
    CHECK_INT(failures[0].error, ==, -EIO);
    CHECK_STR(failures[1].task, "second");
    CHECK_INT(failures[1].error, ==, -EPERM);
    CHECK_INT(failures[1].restarts, ==, 0);
    CHECK(failures[0].task_id != failures[1].task_id);
    CHECK_INT(failures[2].error, ==, 0); /* beyond failures_kept */
    CHECK_INT(weir_scope_close(scope), ==, -EIO);
    return 0;
}

TEST(close_returns_the_first_failure_in_time_and_all_are_listed)
{
    test_clock_auto();
    CHECK_OK(run_on(1, list_failures, NULL));
}

static int join_twice(void *arg)
{
    weir_scope *scope = open_scope("again", WEIR_COLLECT);
    int value = -EIO;

    (void)arg;
    CHECK_OK(weir_scope_join(scope));
    CHECK_OK(weir_spawn(scope, return_argument, &value, sizeof value));
    CHECK_INT(weir_scope_join(scope), ==, -EIO);
    value = 0;
    CHECK_OK(weir_spawn(scope, return_argument, &value, sizeof value)); /* it is still open */
    CHECK_INT(weir_scope_join(scope), ==, -EIO);
    CHECK_INT(weir_scope_close(scope), ==, -EIO);
    return 0;
}

TEST(join_waits_and_leaves_the_scope_open)
{
    CHECK_OK(run_on(1, join_twice, NULL));
    CHECK_OK(run_on(2, join_twice, NULL));
}

static int spawn_sibling(void *arg)
{
    struct {
        weir_scope *scope;
        int depth;
        ATOM(int) * ran;
    } *given = arg;

    (void)atom_add(given->ran, 1);
    CHECK_OK(weir_yield());
    if (--given->depth == 0) return 0;
    return weir_spawn(given->scope, spawn_sibling, given, sizeof *given);
}

static int spawn_while_closing(void *arg)
{
    ATOM(int) ran = 0;
    weir_scope *scope = open_scope("closing", WEIR_FAIL_FAST);
    struct {
        weir_scope *scope;
        int depth;
        ATOM(int) * ran;
    } given = {scope, 50, &ran};

    (void)arg;
    CHECK_OK(weir_spawn(scope, spawn_sibling, &given, sizeof given));
    CHECK_OK(weir_scope_close(scope));
    CHECK_INT(atom_load(&ran), ==, 50);
    return 0;
}

TEST(close_waits_for_tasks_that_tasks_of_the_scope_spawn_meanwhile)
{
    CHECK_OK(run_on(1, spawn_while_closing, NULL));
    CHECK_OK(run_on(2, spawn_while_closing, NULL));
}

static int open_and_close(void *arg)
{
    weir_scope *scopes[40];

    (void)arg;
    for (int i = 0; i < 40; i++) {
        scopes[i] = open_scope("nested", WEIR_FAIL_FAST);
        CHECK_OK(weir_spawn(scopes[i], return_argument, &(int){0}, sizeof(int)));
    }
    for (int i = 39; i >= 0; i--) CHECK_OK(weir_scope_close(scopes[i]));
    return 0;
}

TEST(scopes_nest_deeper_than_one_slab_of_them)
{
    CHECK_OK(run_on(1, open_and_close, NULL));
    CHECK_OK(run_on(2, open_and_close, NULL));
}

/* ---- Cancelling ---- */

struct seen_cause {
    ATOM(int) waits;
    int error;
    enum weir_cause cause;
    weir_cause_info info;
    char scope[64];
    char why[64];
};

static int see_cause(void *arg)
{
    struct seen_cause *seen = *(struct seen_cause **)arg;

    atom_store_release(&seen->waits, 1);
    seen->error = sleep_until_cancelled(NULL);
    seen->cause = weir_cause(&seen->info);
    snprintf(seen->scope, sizeof seen->scope, "%s", seen->info.scope);
    snprintf(seen->why, sizeof seen->why, "%s", seen->info.why);
    return seen->error;
}

static void spawn_seer(weir_scope *scope, struct seen_cause *seen)
{
    CHECK_OK(weir_spawn(scope, see_cause, &seen, sizeof seen));
    CHECK_OK(weir_yield());
}

static int cancel_with(void *arg)
{
    static const struct {
        int error;
        int returned;
    } rows[] = {{0, 0}, {-EIO, -EIO}, {WEIR_ECLOSED, WEIR_ECLOSED}, {5, 0}};

    (void)arg;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        weir_scope *scope = open_scope("row", WEIR_FAIL_FAST);
        struct seen_cause seen = {0};

        spawn_seer(scope, &seen);
        weir_scope_cancel(scope, rows[i].error, "first");
        weir_scope_cancel(scope, -ENOENT, "second");
        CHECK_INT(weir_checkpoint(), ==, WEIR_ECANCELED); /* the opener is inside as well */
        CHECK_INT(weir_scope_close(scope), ==, rows[i].returned);
        CHECK_OK(weir_checkpoint());
        CHECK_INT(seen.error, ==, WEIR_ECANCELED);
        CHECK_INT(seen.cause, ==, WEIR_CAUSE_CANCEL);
        CHECK_INT(seen.info.error, ==, rows[i].returned);
        CHECK_STR(seen.why, "first");
        CHECK_STR(seen.scope, "row");
    }
    return 0;
}

TEST(cancel_gives_close_its_error_and_the_first_cancel_wins)
{
    CHECK_OK(run_on(1, cancel_with, NULL));
    CHECK_OK(run_on(2, cancel_with, NULL));
}

static int cancel_empty(void *arg)
{
    weir_scope *scope = open_scope("empty", WEIR_FAIL_FAST);

    (void)arg;
    weir_scope_cancel(scope, -EIO, "nobody there");
    CHECK_INT(weir_scope_join(scope), ==, -EIO);
    CHECK_INT(weir_spawn(scope, sleep_until_cancelled, NULL, 0), ==, WEIR_ECANCELED);
    CHECK_INT(weir_scope_close(scope), ==, -EIO);
    return 0;
}

TEST(cancel_of_an_empty_scope_is_its_result_too)
{
    CHECK_OK(run_on(1, cancel_empty, NULL));
}

static int cancel_after_deadline(void *arg)
{
    weir_scope *scope;
    struct seen_cause seen = {0};

    (void)arg;
    for (int error = 0; error >= -1; error--) {
        CHECK_OK(weir_scope_open(&(weir_scope_spec){.name = "late",
                                                    .on_failure = WEIR_FAIL_FAST,
                                                    .max_tasks = 10,
                                                    .overflow = WEIR_WAIT,
                                                    .deadline_ms = 10},
                                 &scope));
        spawn_seer(scope, &seen);
        CHECK_INT(weir_sleep(20), ==, WEIR_ETIMEDOUT);
        weir_scope_cancel(scope, error, "after the deadline");
        CHECK_INT(weir_scope_close(scope), ==, WEIR_ETIMEDOUT);
        CHECK_INT(seen.cause, ==, WEIR_CAUSE_DEADLINE);
    }
    return 0;
}

TEST(cancel_after_the_scopes_deadline_changes_nothing)
{
    test_clock_auto();
    CHECK_OK(run_on(1, cancel_after_deadline, NULL));
}

static int see_from_below(void *arg)
{
    struct seen_cause *seen = *(struct seen_cause **)arg;
    weir_scope *inner = open_scope("inner", WEIR_FAIL_FAST);

    CHECK_OK(weir_spawn(inner, see_cause, &seen, sizeof seen));
    CHECK_INT(weir_scope_close(inner), ==, WEIR_ECANCELED);
    CHECK_INT(weir_checkpoint(), ==, WEIR_ECANCELED);
    return WEIR_ECANCELED;
}

/* When there is somebody below. */
static int fail_later(void *arg)
{
    await_flag(&(*(struct seen_cause **)arg)->waits);
    return -EPIPE;
}

static int cancel_from_far(void *arg)
{
    struct seen_cause seen = {0};
    struct seen_cause *pointer = &seen;
    weir_scope *scope = open_scope("outer", WEIR_FAIL_FAST);

    (void)arg;
    CHECK_OK(weir_spawn(scope, see_from_below, &pointer, sizeof pointer));
    CHECK_OK(weir_spawn(scope, fail_later, &pointer, sizeof pointer));
    CHECK_INT(weir_scope_close(scope), ==, -EPIPE);
    CHECK_INT(seen.cause, ==, WEIR_CAUSE_FAILURE);
    CHECK_INT(seen.info.error, ==, -EPIPE);
    CHECK_STR(seen.scope, "outer");
    return 0;
}

TEST(failure_cancels_siblings_and_what_is_below_them_with_its_cause)
{
    CHECK_OK(run_on(1, cancel_from_far, NULL));
    CHECK_OK(run_on(2, cancel_from_far, NULL));
}

static int no_cause(void *arg)
{
    weir_cause_info info = {.cause = WEIR_CAUSE_STOP};

    (void)arg;
    CHECK_INT(weir_cause(&info), ==, WEIR_CAUSE_NONE);
    CHECK_INT(info.cause, ==, WEIR_CAUSE_NONE);
    CHECK_STR(info.why, "");
    CHECK_STR(info.scope, "");
    return 0;
}

TEST(cause_is_none_while_nothing_is_cancelled)
{
    CHECK_OK(run_on(1, no_cause, NULL));
}

/* Cancel from another worker, while the tasks are being spawned. */
static int cancel_given(void *arg)
{
    weir_scope_cancel(*(weir_scope **)arg, 0, "from another worker");
    return 0;
}

static int cancel_during_spawns(void *arg)
{
    int rounds = *(int *)arg;

    for (int i = 0; i < rounds && (i == 0 || !test_late()); i++) {
        weir_scope *outer = open_scope("outer", WEIR_FAIL_FAST);
        weir_scope *scope = open_scope("victim", WEIR_FAIL_FAST);
        int r;

        spawn_at(outer, 1, "canceller", cancel_given, &scope, sizeof scope);
        do r = weir_spawn(scope, sleep_until_cancelled, NULL, 0);
        while (r == 0 && weir_scope_task_count(scope) < 200);
        CHECK(r == 0 || r == WEIR_ECANCELED);
        CHECK_OK(weir_scope_close(scope));
        CHECK_OK(weir_scope_close(outer));
    }
    return 0;
}

TEST(cancel_from_another_worker_reaches_started_unstarted_and_new_tasks)
{
    int rounds = TEST_SLOW ? 30 : 300;

    CHECK_OK(run_on(2, cancel_during_spawns, &rounds));
}

/* ---- Misuse: each aborts with a sentence that names both places ---- */

static int close_given(void *arg)
{
    return weir_scope_close(*(weir_scope **)arg);
}

static int closed_by_another_task(void *arg)
{
    weir_scope *scope = open_scope("mine", WEIR_FAIL_FAST);

    (void)arg;
    spawn_task(scope, "thief", close_given, &scope, sizeof scope);
    return weir_scope_close(scope);
}

static int closed_out_of_order(void *arg)
{
    weir_scope *outer = open_scope("outer", WEIR_FAIL_FAST);
    weir_scope *inner = open_scope("inner", WEIR_FAIL_FAST);

    (void)arg;
    CHECK_OK(weir_scope_close(outer));
    return weir_scope_close(inner);
}

static int closed_inside_a_block(void *arg)
{
    weir_scope *scope = open_scope("outer", WEIR_FAIL_FAST);

    (void)arg;
    WEIR_DEADLINE(60000) CHECK_OK(weir_scope_close(scope));
    return 0;
}

static int leak_scope(void *arg)
{
    (void)arg;
    open_scope("leaked", WEIR_FAIL_FAST);
    return 0;
}

static int closed_twice(void *arg)
{
    weir_scope *scope = open_scope("twice", WEIR_FAIL_FAST);

    (void)arg;
    CHECK_OK(weir_scope_close(scope));
    return weir_scope_close(scope);
}

static int spawned_into_closed(void *arg)
{
    weir_scope *scope = open_scope("gone", WEIR_FAIL_FAST);

    (void)arg;
    CHECK_OK(weir_scope_close(scope));
    return weir_spawn(scope, leak_scope, NULL, 0);
}

static int joined_by_another(void *arg)
{
    return weir_scope_join(*(weir_scope **)arg);
}

static int join_from_child(void *arg)
{
    weir_scope *scope = open_scope("mine", WEIR_FAIL_FAST);

    (void)arg;
    CHECK_OK(weir_spawn(scope, joined_by_another, &scope, sizeof scope));
    return weir_scope_close(scope);
}

static int cancel_closed(void *arg)
{
    weir_scope *scope = open_scope("gone", WEIR_FAIL_FAST);

    (void)arg;
    CHECK_OK(weir_scope_close(scope));
    weir_scope_cancel(scope, 0, "too late");
    return 0;
}

static int use_null(void *arg)
{
    (void)arg;
    return weir_spawn(NULL, leak_scope, NULL, 0);
}

static void run_misuse(void *arg)
{
    weir_task_fn fn = (weir_task_fn)(uintptr_t)arg;

    (void)run_on(1, fn, NULL);
}

#define CHECK_MISUSE(fn, sentence) CHECK_ABORTS(run_misuse, (void *)(uintptr_t)(fn), sentence)

TEST(misused_scope_aborts_with_a_sentence_that_names_both_places)
{
    CHECK_MISUSE(closed_by_another_task, "scope 'mine' was opened by task 'main' at ");
    CHECK_MISUSE(closed_by_another_task,
                 " and is closed by task 'thief' at tests/unit/rt/scope_test");
    CHECK_MISUSE(closed_out_of_order, "scope 'outer' opened at ");
    CHECK_MISUSE(closed_out_of_order, ", but scope 'inner' opened at ");
    CHECK_MISUSE(closed_inside_a_block, ", but WEIR_DEADLINE at tests/unit/rt/scope_test.c:");
    CHECK_MISUSE(leak_scope, "task 'main' returned 0 with scope 'leaked' opened at ");
    CHECK_MISUSE(closed_twice, "weir_scope_close: the scope is closed (it was 'twice', opened at ");
    CHECK_MISUSE(spawned_into_closed, "weir_spawn: the scope is closed (it was 'gone', opened at ");
    CHECK_MISUSE(join_from_child, "weir_scope_join: scope 'mine' was opened by another task at ");
    CHECK_MISUSE(cancel_closed, "weir_scope_cancel: the scope is closed (it was 'gone'");
    CHECK_MISUSE(use_null, "weir_spawn: scope is NULL");
}

/* races_close.c - what another worker does to a scope at the moment when it is closed or
 * cancelled: its callbacks spawn and let go, its timers are due, its tasks are told by
 * what they call and not by mail.
 */
#include <errno.h>
#include <sched.h>

#include "unit/rt/support.h"

enum { ROUNDS = TEST_SANITIZED ? 500 : 20000 };

/* Both sides leave together; as closely as two threads can: the one who waits spins, and
 * lets go of its core only when the other does not come. */
static void pass(ATOM(int) * gate)
{
    (void)atom_add(gate, 1);
    for (unsigned spins = 1; atom_load(gate) % 2 != 0; spins++)
        if (spins % 16384 == 0) (void)sched_yield();
}

/* A few instructions of either side, so that all orders of their locks come up. */
static void dawdle(unsigned count)
{
    for (unsigned i = 0; i < count; i++) __asm__ volatile("" ::: "memory");
}

/* ---- A callback that spawns and lets go while its scope is closed ---- */

struct leaver {
    weir_scope *scope;
    ATOM(int) gate;
    ATOM(int) spawned;
    ATOM(int) ended;
    unsigned dawdles;
};

static int end_late(void *arg)
{
    struct leaver *leaver = *(struct leaver **)arg;
    int r = weir_sleep(0);

    for (int i = 0; i < 3 && r == 0; i++) r = weir_yield();
    (void)atom_add(&leaver->ended, 1);
    return r;
}

static void spawn_and_leave(weir_timer *timer, void *arg)
{
    struct leaver *leaver = arg;

    pass(&leaver->gate);
    dawdle(leaver->dawdles);
    CHECK_OK(weir_spawn(leaver->scope, end_late, &leaver, sizeof leaver));
    (void)atom_add(&leaver->spawned, 1);
    weir_timer_close(timer);
}

static int start_leaver(void *arg)
{
    struct leaver *leaver = *(struct leaver **)arg;
    weir_timer *timer;

    CHECK_OK(weir_timer_open(
        leaver->scope,
        &(weir_timer_spec){.name = "leaver", .on_fire = spawn_and_leave, .keep_arg = leaver},
        &timer));
    weir_timer_start(timer, 0);
    return 0;
}

static int close_under_leavers(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < ROUNDS && (i == 0 || !test_late()); i++) {
        struct leaver leaver = {.dawdles = i % 64};
        struct leaver *pointer = &leaver;

        CHECK_OK(weir_scope_open(&(weir_scope_spec){.name = "left",
                                                    .on_failure = WEIR_FAIL_FAST,
                                                    .max_tasks = 8,
                                                    .overflow = WEIR_WAIT,
                                                    .place = WEIR_PLACE_HERE},
                                 &leaver.scope));
        spawn_at(leaver.scope, 1, "starter", start_leaver, &pointer, sizeof pointer);
        CHECK_OK(weir_scope_join(leaver.scope));
        /* No task is alive, and the callback is about to change that. */
        pass(&leaver.gate);
        dawdle(i / 64 % 256);
        CHECK_OK(weir_scope_close(leaver.scope));
        CHECK_INT(atom_load(&leaver.spawned), ==, 1);
        CHECK_INT(atom_load(&leaver.ended), ==, 1);
    }
    return 0;
}

TEST_WITH(close_waits_for_what_a_callback_spawns_before_it_lets_go, .timeout_ms = 60000)
{
    CHECK_OK(run_on(2, close_under_leavers, NULL));
}

/* ---- Timers that are due while their scope is cancelled ---- */

struct due_pair {
    weir_scope *scope;
    ATOM(int) firing;
    ATOM(int) cancelled;
    ATOM(int) late;
};

/* The first of two that are due keeps its worker until the scope is cancelled. */
static void fire_across_cancel(weir_timer *timer, void *arg)
{
    struct due_pair *pair = arg;

    (void)timer;
    if (atom_load(&pair->cancelled)) (void)atom_add(&pair->late, 1);
    atom_store_release(&pair->firing, 1);
    while (!atom_load_acquire(&pair->cancelled)) (void)sched_yield();
}

static int start_two_timers(void *arg)
{
    struct due_pair *pair = *(struct due_pair **)arg;

    for (int i = 0; i < 2; i++) {
        weir_timer *timer;

        CHECK_OK(weir_timer_open(
            pair->scope,
            &(weir_timer_spec){.name = "due", .on_fire = fire_across_cancel, .keep_arg = pair},
            &timer));
        weir_timer_start(timer, 0);
    }
    return 0;
}

static int cancel_while_due(void *arg)
{
    struct due_pair pair = {.scope = open_scope("due", WEIR_FAIL_FAST)};
    struct due_pair *pointer = &pair;

    (void)arg;
    spawn_at(pair.scope, 1, "starter", start_two_timers, &pointer, sizeof pointer);
    await_flag(&pair.firing);
    weir_scope_cancel(pair.scope, 0, "one of two has fired");
    atom_store_release(&pair.cancelled, 1);
    CHECK_OK(weir_scope_close(pair.scope));
    CHECK_INT(atom_load(&pair.late), ==, 0);
    return 0;
}

TEST(due_timer_of_another_worker_does_not_fire_after_the_cancel)
{
    CHECK_OK(run_on(2, cancel_while_due, NULL));
}

/* ---- A task that learns of the cancel by what it calls ---- */

struct told {
    weir_scope *scope;
    ATOM(int) started;
    ATOM(int) cancelled;
    int result;
};

/* It keeps its worker, so that the mail about the cancel is not delivered before. */
static int spawn_into_cancelled(void *arg)
{
    struct told *told = *(struct told **)arg;

    atom_store_release(&told->started, 1);
    while (!atom_load_acquire(&told->cancelled)) (void)sched_yield();
    told->result = weir_spawn(told->scope, return_argument, &(int){0}, sizeof(int));
    return told->result;
}

static int cancel_before_mail(void *arg)
{
    weir_failure failures[1];

    (void)arg;
    for (int i = 0; i < 20; i++) {
        struct told told = {.scope = open_scope("told", WEIR_FAIL_FAST)};
        struct told *pointer = &told;

        spawn_at(told.scope, 1, "spawner", spawn_into_cancelled, &pointer, sizeof pointer);
        await_flag(&told.started);
        weir_scope_cancel(told.scope, 0, "the answer is there");
        atom_store_release(&told.cancelled, 1);
        CHECK_OK(weir_scope_join(told.scope));
        CHECK_INT(told.result, ==, WEIR_ECANCELED);
        CHECK_INT(weir_scope_failures(told.scope, failures, 1), ==, 0);
        CHECK_OK(weir_scope_close(told.scope));
    }
    return 0;
}

TEST(task_told_of_the_cancel_by_a_spawn_has_not_failed)
{
    struct capture capture;

    CHECK_OK(run_logged(2, WEIR_LOG_WARNING, &capture, cancel_before_mail, NULL));
    CHECK_INT(capture.count, ==, 0);
}

/* ---- A join that is refused while the task ends ---- */

struct ending {
    weir_task task;
    ATOM(int) started;
    ATOM(int) gate;
};

static int give_handle_and_end(void *arg)
{
    struct ending *ending = *(struct ending **)arg;

    ending->task = weir_task_self();
    atom_store_release(&ending->started, 1);
    pass(&ending->gate);
    return 0;
}

/* The refusal names the task, whose name is freed when it ends (AddressSanitizer sees
 * it). */
static int join_without_a_handle(void *arg)
{
    int refused = 0;

    (void)arg;
    for (unsigned i = 0; i < ROUNDS / 4 && (i == 0 || !test_late()); i++) {
        struct ending ending = {0};
        struct ending *pointer = &ending;
        weir_scope *scope = open_scope("ending", WEIR_FAIL_FAST);
        char name[32], sentence[128];
        int r;

        snprintf(name, sizeof name, "a-name-of-its-own-%u", i);
        snprintf(sentence, sizeof sentence,
                 "task '%s': was spawned without a handle; its scope joins it", name);
        CHECK_OK(weir_task_spawn(scope,
                                 &(weir_task_spec){.fn = give_handle_and_end,
                                                   .arg = &pointer,
                                                   .arg_bytes = sizeof pointer,
                                                   .name = name,
                                                   .place = WEIR_PLACE_WORKER,
                                                   .worker = 1},
                                 NULL));
        await_flag(&ending.started);
        pass(&ending.gate);
        dawdle(i % 256);
        r = weir_task_join(ending.task, NULL);
        CHECK(r == WEIR_EREFUSED || r == WEIR_ECLOSED);
        if (r == WEIR_EREFUSED) CHECK_STR(weir_why(), sentence);
        refused += r == WEIR_EREFUSED;
        CHECK_OK(weir_scope_close(scope));
    }
    test_note("%d of %d refused", refused, ROUNDS / 4);
    return 0;
}

TEST_WITH(refused_join_and_end_at_the_same_moment, .timeout_ms = 60000)
{
    CHECK_OK(run_on(2, join_without_a_handle, NULL));
}

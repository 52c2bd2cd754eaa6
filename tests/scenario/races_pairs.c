/* races_pairs.c - two things that happen to one object at the same moment, on two
 * workers, many times over. Whoever comes first, the outcome is one of those allowed.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>

#include "unit/rt/support.h"

enum { ROUNDS = TEST_SANITIZED ? 100 : 2000 };

/* Both sides leave together; as closely as two threads can. */
struct gate {
    ATOM(int) here;
};

static void pass(struct gate *gate)
{
    (void)atom_add(&gate->here, 1);
    while (atom_load(&gate->here) % 2 != 0) (void)sched_yield();
}

/* Run `mine` here and `theirs` on the other worker, ROUNDS times. */
struct pair {
    struct gate gate;
    weir_scope *scope;
    weir_task task;
    int result[2];
};

static void both(weir_scope *scope, weir_task_fn mine, weir_task_fn theirs, struct pair *pair)
{
    weir_task other = spawn_at(scope, 1 - weir_worker_index(), "other", theirs, &pair, sizeof pair);

    CHECK_OK(mine(&pair));
    CHECK_OK(weir_task_join(other, NULL));
}

#define PAIR(arg) (*(struct pair **)(arg))

/* ---- Join, cancel and end of one task ---- */

static int end_at_once(void *arg)
{
    pass(&PAIR(arg)->gate);
    return 5;
}

static int join_and_end(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS && (i == 0 || !test_late()); i++) {
        struct pair pair = {0};
        struct pair *pointer = &pair;
        weir_scope *scope = open_scope("join", WEIR_FAIL_FAST);
        weir_task task = spawn_at(scope, 1, "ending", end_at_once, &pointer, sizeof pointer);
        int result = 0;

        pass(&pair.gate);
        CHECK_OK(weir_task_join(task, &result));
        CHECK_INT(result, ==, 5);
        CHECK_OK(weir_scope_close(scope));
    }
    return 0;
}

TEST(join_and_end_at_the_same_moment)
{
    CHECK_OK(run_on(2, join_and_end, NULL));
}

static int sleep_a_little(void *arg)
{
    pass(&PAIR(arg)->gate);
    int r = weir_sleep(0);
    return r < 0 ? r : 5;
}

static int cancel_and_end(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS && (i == 0 || !test_late()); i++) {
        struct pair pair = {0};
        struct pair *pointer = &pair;
        weir_scope *scope = open_scope("cancel", WEIR_FAIL_FAST);
        weir_task task = spawn_at(scope, 1, "ending", sleep_a_little, &pointer, sizeof pointer);
        int result = 0, r;

        pass(&pair.gate);
        r = weir_task_cancel(task, "at the same moment");
        CHECK(r == 0 || r == WEIR_ECLOSED);
        CHECK_OK(weir_task_join(task, &result));
        CHECK(result == 5 || (result == WEIR_ECANCELED && r == 0));
        CHECK_OK(weir_scope_close(scope));
    }
    return 0;
}

TEST(cancel_and_end_at_the_same_moment)
{
    CHECK_OK(run_on(2, cancel_and_end, NULL));
}

static int join_it(void *arg)
{
    struct pair *pair = PAIR(arg);
    int side = weir_worker_index();
    int result = 0;

    pass(&pair->gate);
    pair->result[side] = weir_task_join(pair->task, &result);
    if (pair->result[side] == 0) CHECK_INT(result, ==, 9);
    return 0;
}

static int two_joiners(void *arg)
{
    int nine = 9;

    (void)arg;
    for (int i = 0; i < ROUNDS && (i == 0 || !test_late()); i++) {
        struct pair pair = {0};
        weir_scope *scope = open_scope("joiners", WEIR_FAIL_FAST);

        pair.task = spawn_task(scope, "nine", return_argument, &nine, sizeof nine);
        both(scope, join_it, join_it, &pair);
        /* Exactly one has it; the other is told that, or that it is gone. */
        CHECK_INT((pair.result[0] == 0) + (pair.result[1] == 0), ==, 1);
        for (int n = 0; n < 2; n++)
            CHECK(pair.result[n] == 0 || pair.result[n] == WEIR_EINUSE ||
                  pair.result[n] == WEIR_ECLOSED);
        CHECK_OK(weir_scope_close(scope));
    }
    return 0;
}

TEST(of_two_joiners_at_the_same_moment_one_gets_the_result)
{
    CHECK_OK(run_on(2, two_joiners, NULL));
}

/* ---- A full scope ---- */

static int spawn_waiting(void *arg)
{
    struct pair *pair = PAIR(arg);

    pass(&pair->gate);
    pair->result[0] = weir_spawn(pair->scope, sleep_until_cancelled, NULL, 0);
    return 0;
}

static int cancel_spawner_or_make_room(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS && (i == 0 || !test_late()); i++) {
        struct pair pair = {0};
        struct pair *pointer = &pair;
        weir_scope *scope = open_scope("outer", WEIR_FAIL_FAST);
        weir_scope *full = open_bounded("full", WEIR_FAIL_FAST, 1, WEIR_WAIT);
        weir_task occupant = spawn_at(full, i % 2, "occupant", sleep_until_cancelled, NULL, 0);
        weir_task spawner;

        pair.scope = full;
        spawner = spawn_at(scope, 1, "spawner", spawn_waiting, &pointer, sizeof pointer);
        pass(&pair.gate);
        /* Both: room is made and the one who waits for it is cancelled. */
        CHECK_OK(weir_task_cancel(occupant, "make room"));
        CHECK(weir_task_cancel(spawner, "and go") <= 0);
        CHECK_OK(weir_task_join(spawner, NULL));
        CHECK(pair.result[0] == 0 || pair.result[0] == WEIR_ECANCELED);
        CHECK_OK(weir_task_join(occupant, NULL));
        /* No slot is lost: it holds what it holds, and one more fits when it is gone. */
        CHECK_INT(weir_scope_task_count(full), ==, pair.result[0] == 0);
        if (pair.result[0] < 0) CHECK_OK(weir_spawn(full, sleep_until_cancelled, NULL, 0));
        CHECK_INT(weir_scope_task_count(full), ==, 1);
        weir_scope_cancel(full, 0, "done");
        CHECK_OK(weir_scope_close(full));
        CHECK_OK(weir_scope_close(scope));
    }
    return 0;
}

TEST_WITH(no_slot_is_lost_when_a_waiting_spawner_is_cancelled, .timeout_ms = 60000)
{
    CHECK_OK(run_on(2, cancel_spawner_or_make_room, NULL));
}

/* ---- Cancels against each other ---- */

static int cancel_with_own_error(void *arg)
{
    struct pair *pair = PAIR(arg);

    pass(&pair->gate);
    weir_scope_cancel(pair->scope, weir_worker_index() == 0 ? -EIO : -EPIPE, "mine");
    return 0;
}

static int read_cause(void *arg)
{
    weir_cause_info info;
    int r = sleep_until_cancelled(NULL);

    CHECK_INT(r, ==, WEIR_ECANCELED);
    CHECK_INT(weir_cause(&info), ==, WEIR_CAUSE_CANCEL);
    PAIR(arg)->result[weir_worker_index()] = info.error;
    return r;
}

static int two_cancels(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS && (i == 0 || !test_late()); i++) {
        struct pair pair = {0};
        struct pair *pointer = &pair;
        weir_scope *scope = open_scope("outer", WEIR_FAIL_FAST);
        weir_scope *doomed = open_scope("doomed", WEIR_FAIL_FAST);
        int r;

        pair.scope = doomed;
        for (int n = 0; n < 2; n++)
            spawn_at(doomed, n, "reader", read_cause, &pointer, sizeof pointer);
        WEIR_SHIELD(60000) both(scope, cancel_with_own_error, cancel_with_own_error, &pair);
        r = weir_scope_close(doomed);
        CHECK(r == -EIO || r == -EPIPE);
        CHECK_INT(pair.result[0], ==, r); /* everybody was told the same */
        CHECK_INT(pair.result[1], ==, r);
        CHECK_OK(weir_scope_close(scope));
    }
    return 0;
}

TEST(of_two_cancels_at_the_same_moment_one_wins_for_all)
{
    CHECK_OK(run_on(2, two_cancels, NULL));
}

static int cancel_from_elsewhere(void *arg)
{
    struct pair *pair = PAIR(arg);

    weir_scope_cancel(pair->scope, 0, "from another worker");
    pass(&pair->gate);
    return 0;
}

/* Mail about the other's cancel is under way, and not delivered as long as this task
 * does not let go of its worker: its own cancel must hold all the same. */
static int cancel_with_mail_under_way(void *arg)
{
    struct pair pair = {0};
    struct pair *pointer = &pair;
    weir_scope *outer = open_scope("outer", WEIR_FAIL_FAST);
    weir_scope *inner;

    (void)arg;
    pair.scope = open_scope("middle", WEIR_FAIL_FAST);
    spawn_at(outer, 1, "other", cancel_from_elsewhere, &pointer, sizeof pointer);
    inner = open_scope("inner", WEIR_FAIL_FAST);
    pass(&pair.gate);
    weir_scope_cancel(inner, 0, "mine");
    CHECK_INT(weir_checkpoint(), ==, WEIR_ECANCELED);
    CHECK_OK(weir_scope_close(inner));
    CHECK_OK(weir_scope_close(pair.scope));
    return weir_scope_close(outer);
}

TEST(own_cancel_holds_at_once_whatever_mail_is_under_way)
{
    CHECK_OK(run_on(2, cancel_with_mail_under_way, NULL));
}

/* ---- Deadline against completion ---- */

static int finish_in_a_millisecond(void *arg)
{
    int r = weir_sleep(1);

    (void)arg;
    return r < 0 ? r : 5;
}

static int deadline_and_end(void *arg)
{
    int timed_out = 0, ended = 0, rounds = ROUNDS / 10;

    (void)arg;
    for (int i = 0; i < rounds; i++) {
        weir_scope *scope = open_scope("deadline", WEIR_FAIL_FAST);
        weir_task task =
            spawn_at(scope, i % weir_worker_count(), "short", finish_in_a_millisecond, NULL, 0);
        int result = 0, r = 0;

        WEIR_DEADLINE(1) r = weir_task_join(task, &result);
        CHECK(r == 0 || r == WEIR_ETIMEDOUT);
        timed_out += r < 0;
        ended += r == 0;
        if (r < 0) CHECK_OK(weir_task_join(task, &result)); /* the handle stayed usable */
        CHECK_INT(result, ==, 5);
        CHECK_OK(weir_scope_close(scope));
    }
    test_note("%d timed out, %d ended", timed_out, ended);
    CHECK_INT(timed_out + ended, ==, rounds);
    return 0;
}

TEST(deadline_and_end_at_the_same_moment)
{
    CHECK_OK(run_on(1, deadline_and_end, NULL));
    CHECK_OK(run_on(2, deadline_and_end, NULL));
}

/* ---- Posting against the end of the scope ---- */

struct posting {
    weir_postbox *box;
    struct gate gate;
    ATOM(int) ran;
    int accepted;
};

static int count_run(void *arg)
{
    (void)atom_add(*(ATOM(int) **)arg, 1);
    return 0;
}

static void *post_until_closed(void *arg)
{
    struct posting *posting = arg;
    ATOM(int) *pointer = &posting->ran;
    int r;

    pass(&posting->gate);
    do {
        r = weir_post(posting->box, count_run, &pointer, sizeof pointer);
        CHECK(r == 0 || r == WEIR_EOVERLOAD || r == WEIR_ECLOSED);
        posting->accepted += r == 0;
    } while (r != WEIR_ECLOSED);
    weir_postbox_unref(posting->box);
    return NULL;
}

static int post_and_close(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS / 20 && (i == 0 || !test_late()); i++) {
        struct posting posting = {0};
        weir_scope *scope = open_scope("posts", WEIR_FAIL_FAST);
        pthread_t thread;

        CHECK_OK(weir_postbox_open(
            scope, &(weir_postbox_spec){.name = "b", .capacity = 8, .overflow = WEIR_REJECT},
            &posting.box));
        CHECK_INT(pthread_create(&thread, NULL, post_until_closed, &posting), ==, 0);
        pass(&posting.gate);
        if (i % 2) CHECK_OK(weir_yield());
        CHECK_OK(weir_scope_close(scope));
        CHECK_INT(pthread_join(thread, NULL), ==, 0);
        CHECK_INT(atom_load(&posting.ran), ==, posting.accepted);
    }
    return 0;
}

TEST(what_a_closing_scope_accepted_is_run)
{
    CHECK_OK(run_on(1, post_and_close, NULL));
    CHECK_OK(run_on(2, post_and_close, NULL));
}

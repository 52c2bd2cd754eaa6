/* deadlock_crowd_test.c - many tasks that wait for each other, among many that do not. */
#include <weir/weir.h>

#include "harness/test.h"
#include "rt/runtime.h"

/* Many pairs, more than one search has room for; while others wait in a long queue, each for
 * the one before it, whose first has only to wait for somebody who goes on. */
enum { PAIRS = 7, QUEUE = 150, STEP_MS = 500, STEPS_MAX = 2000000 };

struct crowd {
    weir_event *met;
    ATOM(int) there;
    weir_mutex *locks[PAIRS][2];
    weir_rwlock *queue;
};

struct one_of_crowd {
    struct crowd *crowd;
    int pair, first;
};

static int cross(void *arg)
{
    struct one_of_crowd *one = arg;
    struct crowd *crowd = one->crowd;
    weir_mutex **locks = crowd->locks[one->pair];
    int r = weir_mutex_lock(locks[one->first]);

    if (r < 0) return r;
    if (atom_add(&crowd->there, 1) + 1 == 2 * PAIRS) weir_event_set(crowd->met);
    r = weir_event_wait(crowd->met);
    if (r == 0) r = weir_mutex_lock(locks[1 - one->first]);
    if (r == 0) weir_mutex_unlock(locks[1 - one->first]);
    weir_mutex_unlock(locks[one->first]);
    return r == WEIR_ECANCELED ? 0 : r;
}

static int queue_up(void *arg)
{
    struct crowd *crowd = ((struct one_of_crowd *)arg)->crowd;
    int r = weir_rwlock_write(crowd->queue);
    if (r == 0) weir_rwlock_unlock(crowd->queue);
    return r == WEIR_ECANCELED ? 0 : r;
}

static int watch_crowd(void *arg)
{
    struct crowd crowd = {.there = 0};
    int result, steps = 0;

    (void)arg;
    WEIR_SCOPE(scope, &result, .name = "crowd", .on_failure = WEIR_FAIL_FAST,
               .max_tasks = 2 * PAIRS + QUEUE, .overflow = WEIR_REJECT) {
        CHECK_OK(weir_event_open(scope, "met", &crowd.met));
        CHECK_OK(weir_rwlock_open(scope, "queue", &crowd.queue));
        weir_rwlock_may_suspend(crowd.queue, "it is what the test is about");
        CHECK_OK(weir_rwlock_write(crowd.queue));
        for (int i = 0; i < 2 * PAIRS; i++) {
            struct one_of_crowd one = {&crowd, i / 2, i % 2};
            weir_mutex **lock = &crowd.locks[i / 2][i % 2];
            CHECK_OK(weir_mutex_open(scope, "m", lock));
            weir_mutex_may_suspend(*lock, "it is what the test is about");
            if (i % 2 == 0) continue;
            CHECK_OK(weir_spawn(scope, cross, &one, sizeof one));
            one.first = 0;
            CHECK_OK(weir_spawn(scope, cross, &one, sizeof one));
        }
        for (int i = 0; i < QUEUE; i++) {
            struct one_of_crowd one = {.crowd = &crowd};
            CHECK_OK(weir_spawn(scope, queue_up, &one, sizeof one));
        }
        /* Time runs off while each is written. */
        while (test_checks(WEIR_CHECK_DEADLOCK) < PAIRS && steps++ < STEPS_MAX)
            CHECK_OK(weir_sleep(STEP_MS));
        CHECK_INT(test_checks(WEIR_CHECK_DEADLOCK), ==, PAIRS);
        for (int i = 0; i < 4; i++) CHECK_OK(weir_sleep(STEP_MS));
        weir_scope_cancel(scope, 0, "the test is over");
        weir_rwlock_unlock(crowd.queue);
    }
    return result;
}

TEST(many_deadlocks_are_all_said_once_whoever_else_waits)
{
    weir_config config = {.workers = test_workers(), .log_level = WEIR_LOG_OFF};
    int r;

    test_clock_auto();
    test_checks_expected();
    r = weir_run(&config, watch_crowd, NULL);
    if (r != WEIR_ECANCELED) CHECK_OK(r);
    CHECK_INT(test_checks(WEIR_CHECK_DEADLOCK), ==, PAIRS);
}

/* stress_calls.c - a thousand tasks that make every kind of call, with the results of
 * each checked and everything accounted for at the end.
 *
 * WEIR_TEST_SEED replays a run, as far as the scheduling of two workers allows.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "unit/rt/support.h"

enum {
    CALLERS = 1000,
    ITERATIONS = 100,
    ITERATIONS_SHORT = TEST_SANITIZED ? 8 : ITERATIONS,
    FOREVER_MS = 600000, /* longer than the test, however busy the machine is */
};

struct tally {
    int rounds;        /* of each caller */
    ATOM(int) started; /* tasks, as the spawners and as the tasks themselves see it */
    ATOM(int) ran;
    ATOM(int) posted;
    ATOM(int) posts_ran;
    ATOM(int) iterations;
    weir_postbox *box;
};

struct caller {
    struct tally *tally;
    uint64_t state; /* of its own random numbers */
};

/* xorshift64*: enough to choose calls by. */
static unsigned choose(struct caller *caller, unsigned n)
{
    caller->state ^= caller->state >> 12;
    caller->state ^= caller->state << 25;
    caller->state ^= caller->state >> 27;
    return (unsigned)((caller->state * UINT64_C(0x2545f4914f6cdd1d)) >> 33) % n;
}

/* ---- What children do ---- */

struct child {
    struct tally *tally;
    int value;
    int sleep_ms; /* negative: yields only */
};

static int be_child(void *arg)
{
    struct child *child = arg;
    int r;

    (void)atom_add(&child->tally->ran, 1);
    r = child->sleep_ms < 0 ? weir_yield() : weir_sleep(child->sleep_ms);
    return r < 0 ? r : child->value;
}

static void spawn_child(struct caller *caller, weir_scope *scope, struct child child,
                        weir_task *ret_task)
{
    child.tally = caller->tally;
    (void)atom_add(&caller->tally->started, 1);
    CHECK_OK(weir_task_spawn(
        scope, &(weir_task_spec){.fn = be_child, .arg = &child, .arg_bytes = sizeof child},
        ret_task));
}

/* ---- The calls ---- */

static void call_join(struct caller *caller, weir_scope *scope)
{
    int value = (int)choose(caller, 1000);
    int result = -1;
    weir_task task;

    spawn_child(caller, scope, (struct child){.value = value, .sleep_ms = -1}, &task);
    CHECK_OK(weir_task_join(task, &result));
    CHECK_INT(result, ==, value);
    CHECK_INT(weir_task_join(task, &result), ==, WEIR_ECLOSED);
}

static void call_cancel(struct caller *caller, weir_scope *scope)
{
    int result = -1, r;
    weir_task task;

    spawn_child(caller, scope, (struct child){.value = 3, .sleep_ms = FOREVER_MS}, &task);
    if (choose(caller, 2)) CHECK_OK(weir_yield());
    CHECK_OK(weir_task_cancel(task, "not wanted any more"));
    r = weir_task_join(task, &result);
    CHECK_OK(r);
    CHECK_INT(result, ==, WEIR_ECANCELED);
}

static void call_scope(struct caller *caller, weir_scope *scope)
{
    weir_task kept = {NULL, 0};
    int r = -1, count = 1 + (int)choose(caller, 2);

    (void)scope;
    WEIR_SCOPE(inner, &r, .name = "inner", .on_failure = WEIR_FAIL_FAST, .max_tasks = 2,
               .overflow = WEIR_WAIT) {
        for (int i = 0; i < count; i++)
            spawn_child(caller, inner, (struct child){.value = i, .sleep_ms = -1},
                        i == 0 ? &kept : NULL);
    }
    CHECK_OK(r);
    CHECK_INT(weir_task_join(kept, NULL), ==, WEIR_ECLOSED); /* its scope is gone */
    CHECK_INT(weir_task_cancel(kept, "too late"), ==, WEIR_ECLOSED);
}

static void call_failing_scope(struct caller *caller, weir_scope *scope)
{
    int r = 0;

    (void)scope;
    WEIR_SCOPE(inner, &r, .name = "failing", .on_failure = WEIR_FAIL_FAST, .max_tasks = 2,
               .overflow = WEIR_REJECT) {
        spawn_child(caller, inner, (struct child){.value = 0, .sleep_ms = FOREVER_MS}, NULL);
        spawn_child(caller, inner, (struct child){.value = -EIO, .sleep_ms = -1}, NULL);
    }
    CHECK_INT(r, ==, -EIO);
}

static void call_deadline(struct caller *caller, weir_scope *scope)
{
    (void)caller, (void)scope;
    WEIR_DEADLINE(1) {
        CHECK_INT(weir_sleep(FOREVER_MS), ==, WEIR_ETIMEDOUT);
        CHECK_INT(weir_checkpoint(), ==, WEIR_ETIMEDOUT); /* it stays so */
    }
    CHECK_OK(weir_checkpoint());
    WEIR_DEADLINE(FOREVER_MS) CHECK_OK(weir_yield());
}

static void call_shield(struct caller *caller, weir_scope *scope)
{
    int r = 0;

    (void)scope;
    WEIR_SCOPE(inner, &r, .name = "shielded", .on_failure = WEIR_COLLECT, .max_tasks = 2,
               .overflow = WEIR_REJECT) {
        spawn_child(caller, inner, (struct child){.value = 0, .sleep_ms = FOREVER_MS}, NULL);
        weir_scope_cancel(inner, -ECONNRESET, "the peer is gone");
        CHECK_INT(weir_yield(), ==, WEIR_ECANCELED);
        WEIR_SHIELD(FOREVER_MS) CHECK_OK(weir_sleep(0));
        CHECK_INT(weir_checkpoint(), ==, WEIR_ECANCELED);
        CHECK_INT(weir_cause(NULL), ==, WEIR_CAUSE_CANCEL);
    }
    CHECK_INT(r, ==, -ECONNRESET);
}

static int be_posted(void *arg)
{
    (void)atom_add(&(*(struct tally **)arg)->posts_ran, 1);
    return 0;
}

static void call_post(struct caller *caller, weir_scope *scope)
{
    int r = weir_post(caller->tally->box, be_posted, &caller->tally, sizeof caller->tally);

    (void)scope;
    if (r == 0) (void)atom_add(&caller->tally->posted, 1);
    if (r != WEIR_EOVERLOAD) CHECK_OK(r);
}

static void count_fire(weir_timer *timer, void *arg)
{
    (void)timer;
    ++*(int *)arg;
}

static void call_timer(struct caller *caller, weir_scope *scope)
{
    int fired = 0;
    weir_timer *timer;

    CHECK_OK(weir_timer_open(
        scope, &(weir_timer_spec){.name = "t", .on_fire = count_fire, .keep_arg = &fired}, &timer));
    weir_timer_start(timer, choose(caller, 3));
    CHECK_OK(weir_sleep(choose(caller, 3)));
    if (weir_timer_stop(timer)) CHECK_INT(fired, ==, 0);
    CHECK_INT(fired, <=, 1);
    weir_timer_close(timer);
}

static const weir_local_key key = {"stress"};

static int read_local(void *arg)
{
    const int *value = weir_local_get(&key);
    int other = -7;

    CHECK(value != NULL);
    CHECK_INT(*value, ==, *(int *)arg);
    CHECK_OK(weir_local_set(&key, &other, sizeof other)); /* its own from here on */
    return 0;
}

static void call_local(struct caller *caller, weir_scope *scope)
{
    int value = (int)choose(caller, 1000);
    weir_task task;

    CHECK_OK(weir_local_set(&key, &value, sizeof value));
    CHECK_OK(weir_task_spawn(
        scope, &(weir_task_spec){.fn = read_local, .arg = &value, .arg_bytes = sizeof value},
        &task));
    CHECK_OK(weir_task_join(task, NULL));
    CHECK_INT(*(const int *)weir_local_get(&key), ==, value);
}

static void (*const calls[])(struct caller *caller, weir_scope *scope) = {
    call_join,   call_cancel, call_scope, call_failing_scope, call_deadline,
    call_shield, call_post,   call_timer, call_local,
};

/* ---- All together ---- */

static int call_often(void *arg)
{
    struct caller *caller = arg;
    int r = 0;

    WEIR_SCOPE(scope, &r, .name = "caller", .on_failure = WEIR_COLLECT, .max_tasks = 2,
               .overflow = WEIR_REJECT) {
        for (int i = 0; i < caller->tally->rounds; i++) {
            calls[choose(caller, sizeof calls / sizeof calls[0])](caller, scope);
            CHECK_INT(weir_scope_task_count(scope), ==, 0);
            (void)atom_add(&caller->tally->iterations, 1);
        }
    }
    return r == WEIR_ECANCELED ? 0 : r;
}

struct stress {
    uint64_t seed;
    int rounds;
};

static int stress(void *arg)
{
    const struct stress *given = arg;
    struct tally tally = {.rounds = given->rounds};
    int r = 0;

    WEIR_SCOPE(scope, &r, .name = "stress", .on_failure = WEIR_FAIL_FAST, .max_tasks = 2 * CALLERS,
               .overflow = WEIR_WAIT) {
        CHECK_OK(weir_postbox_open(
            scope, &(weir_postbox_spec){.name = "posts", .capacity = 64, .overflow = WEIR_REJECT},
            &tally.box));
        for (int i = 0; i < CALLERS; i++) {
            struct caller caller = {&tally,
                                    given->seed + (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15) + 1};

            CHECK_OK(weir_spawn(scope, call_often, &caller, sizeof caller));
        }
        CHECK_OK(weir_scope_join(scope));
        weir_postbox_unref(tally.box);
    }
    CHECK_OK(r);
    CHECK_INT(atom_load(&tally.iterations), ==, CALLERS * given->rounds);
    CHECK_INT(atom_load(&tally.posts_ran), ==, atom_load(&tally.posted));
    /* A task that was cancelled before it started still runs, up to its first wait. */
    CHECK_INT(atom_load(&tally.ran), ==, atom_load(&tally.started));
    return 0;
}

static uint64_t seed_of_run(void)
{
    const char *given = getenv("WEIR_TEST_SEED");
    struct timespec now;
    uint64_t seed;

    CHECK_INT(clock_gettime(CLOCK_REALTIME, &now), ==, 0);
    seed = given ? strtoull(given, NULL, 0)
                 : (uint64_t)now.tv_sec * 1000000007 + (uint64_t)now.tv_nsec;
    test_note("WEIR_TEST_SEED=%llu", (unsigned long long)seed);
    return seed;
}

TEST_WITH(thousand_callers_of_every_call_are_all_accounted_for, .timeout_ms = 60000)
{
    struct stress given = {seed_of_run(), ITERATIONS_SHORT};

    CHECK_OK(run_on(2, stress, &given));
}

/* With a sanitizer the default run is a short one; this is the whole. */
TEST_WITH(thousand_callers_of_every_call_are_all_accounted_for_a_hundred_times, .long_only = true,
          .timeout_ms = 120000)
{
    struct stress given = {seed_of_run(), ITERATIONS};

    CHECK_OK(run_on(2, stress, &given));
}

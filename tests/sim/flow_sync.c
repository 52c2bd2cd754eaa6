/* flow_sync.c - event, semaphore, mutex, read-write lock and once in simulation. */
#include "sim/flow_program.h"

/* ---- Mutex ---- */

struct mutex_world {
    weir_mutex *mutex;
    int inside, entered, done;
};

static int lock_twice(void *arg)
{
    struct mutex_world *world = *(struct mutex_world **)arg;

    for (int i = 0; i < 2; i++) {
        int r = weir_mutex_lock(world->mutex);
        if (r != 0) {
            CHECK_INT(r, ==, WEIR_ECANCELED);
            return 0;
        }
        CHECK_INT(++world->inside, ==, 1);
        flow_linger(); /* cancelled or not, it holds the mutex */
        CHECK_INT(world->inside--, ==, 1);
        world->entered++;
        weir_mutex_unlock(world->mutex);
    }
    world->done++;
    return 0;
}

static int cancel_task(void *arg)
{
    weir_task task = *(weir_task *)arg;

    (void)weir_task_cancel(task, "the program says so");
    return 0;
}

int flow_contend(bool cancels)
{
    struct mutex_world world = {.inside = 0}, *keep = &world;
    weir_scope *scope = flow_scope_open();
    weir_task second = {NULL, 0};
    int r;

    if (!scope) return 0;
    r = weir_mutex_open(scope, "one", &world.mutex);
    if (r == 0) {
        weir_mutex_may_suspend(world.mutex, "to let others try");
        for (int i = 0; i < 3; i++) {
            (void)flow_spawn(scope, i, lock_twice, &keep, sizeof keep, i == 1 ? &second : NULL);
        }
        if (cancels && second.ref) {
            (void)flow_spawn(scope, 0, cancel_task, &second, sizeof second, NULL);
        }
    }
    flow_scope_close(scope);
    CHECK_INT(world.inside, ==, 0);
    CHECK_INT(world.entered, >=, world.done * 2);
    return world.done;
}

SIM_TEST(mutex_lets_one_in_and_everybody_gets_it, .runs_max = 12000, .config = FLOW_HOST)
{
    CHECK_INT(flow_contend(false), ==, 3);
    return 0;
}

SIM_TEST(mutex_passes_by_one_that_is_cancelled, .runs_max = 12000, .config = FLOW_HOST)
{
    CHECK_INT(flow_contend(true), >=, 2);
    return 0;
}

SIM_TEST(mutex_is_free_after_a_cancel_of_all, .runs_max = 12000, .config = FLOW_HOST,
         FLOW_CANCELS_ONCE)
{
    return flow_contend(false);
}

SIM_TEST(mutex_of_one_worker_lets_one_in, .runs_max = 12000, FLOW_CANCELS_ONCE)
{
    return flow_contend(true);
}

/* ---- Read-write lock ---- */

struct rwlock_world {
    weir_rwlock *lock;
    int readers, writers, value, done;
};

static int read_some(void *arg)
{
    struct rwlock_world *world = *(struct rwlock_world **)arg;

    for (int i = 0; i < 2; i++) {
        int value;
        if (weir_rwlock_read(world->lock) != 0) return 0;
        world->readers++;
        CHECK_INT(world->writers, ==, 0);
        value = world->value;
        flow_linger();
        CHECK_INT(world->value, ==, value);
        CHECK_INT(world->writers, ==, 0);
        world->readers--;
        weir_rwlock_unlock(world->lock);
    }
    world->done++;
    return 0;
}

static int write_some(void *arg)
{
    struct rwlock_world *world = *(struct rwlock_world **)arg;

    for (int i = 0; i < 2; i++) {
        if (weir_rwlock_write(world->lock) != 0) return 0;
        CHECK_INT(++world->writers, ==, 1);
        CHECK_INT(world->readers, ==, 0);
        world->value++;
        flow_linger();
        CHECK_INT(world->readers, ==, 0);
        CHECK_INT(world->writers--, ==, 1);
        weir_rwlock_unlock(world->lock);
    }
    world->done++;
    return 0;
}

int flow_read_and_write(bool cancels)
{
    struct rwlock_world world = {.readers = 0}, *keep = &world;
    weir_scope *scope = flow_scope_open();
    weir_task first = {NULL, 0};

    if (!scope) return 0;
    if (weir_rwlock_open(scope, "shelf", &world.lock) == 0) {
        weir_rwlock_may_suspend(world.lock, "to let others try");
        (void)flow_spawn(scope, 0, write_some, &keep, sizeof keep, &first);
        (void)flow_spawn(scope, 1, read_some, &keep, sizeof keep, NULL);
        (void)flow_spawn(scope, 0, read_some, &keep, sizeof keep, NULL);
        (void)flow_spawn(scope, 1, write_some, &keep, sizeof keep, NULL);
        if (cancels && first.ref) {
            (void)flow_spawn(scope, 1, cancel_task, &first, sizeof first, NULL);
        }
    }
    flow_scope_close(scope);
    CHECK_INT(world.readers + world.writers, ==, 0);
    return world.done;
}

SIM_TEST(rwlock_keeps_writers_alone_and_all_get_in, .runs_max = 12000, .config = FLOW_HOST)
{
    CHECK_INT(flow_read_and_write(false), ==, 4);
    return 0;
}

SIM_TEST(rwlock_lets_readers_in_behind_a_cancelled_writer, .runs_max = 12000, .config = FLOW_HOST)
{
    CHECK_INT(flow_read_and_write(true), >=, 3);
    return 0;
}

SIM_TEST(rwlock_is_free_after_a_cancel_of_all, .runs_max = 10000, .config = FLOW_HOST,
         FLOW_CANCELS_ONCE)
{
    return flow_read_and_write(false);
}

/* Readers come again and again; the writer gets in all the same, after those who were there. */
static int read_until_written(void *arg)
{
    struct rwlock_world *world = *(struct rwlock_world **)arg;

    for (int i = 0; world->value == 0; i++) {
        CHECK_INT(i, <, 20);
        CHECK_OK(weir_rwlock_read(world->lock));
        CHECK_OK(weir_sleep(1));
        weir_rwlock_unlock(world->lock);
    }
    return 0;
}

static int write_one(void *arg)
{
    struct rwlock_world *world = *(struct rwlock_world **)arg;

    CHECK_OK(weir_rwlock_write(world->lock));
    world->value++;
    weir_rwlock_unlock(world->lock);
    return 0;
}

SIM_TEST(writer_is_not_starved_by_readers, .runs_max = 10000, .config = FLOW_HOST)
{
    struct rwlock_world world = {.readers = 0}, *keep = &world;
    weir_scope *scope = flow_scope_open();

    CHECK_OK(weir_rwlock_open(scope, "shelf", &world.lock));
    weir_rwlock_may_suspend(world.lock, "so that readers overlap");
    (void)flow_spawn(scope, 0, read_until_written, &keep, sizeof keep, NULL);
    (void)flow_spawn(scope, 1, read_until_written, &keep, sizeof keep, NULL);
    (void)flow_spawn(scope, 1, write_one, &keep, sizeof keep, NULL);
    flow_scope_close(scope);
    return 0;
}

/* ---- Semaphore ---- */

enum { PERMITS = 3 };

struct permit_world {
    weir_semaphore *semaphore;
    int taken, done, served;
};

struct taker {
    struct permit_world *world;
    int count;
};

static int take_permits(void *arg)
{
    const struct taker *taker = arg;
    struct permit_world *world = taker->world;

    for (int i = 0; i < 2; i++) {
        int r = weir_semaphore_acquire(world->semaphore, (size_t)taker->count);
        if (r != 0) {
            CHECK_INT(r, ==, WEIR_ECANCELED);
            return 0;
        }
        world->taken += taker->count;
        CHECK_INT(world->taken, <=, PERMITS);
        flow_linger();
        world->taken -= taker->count;
        weir_semaphore_release(world->semaphore, (size_t)taker->count);
    }
    world->done++;
    return 0;
}

/* All permits are there again. */
static void check_permits(struct permit_world *world)
{
    CHECK_INT(world->taken, ==, 0);
    CHECK_OK(weir_semaphore_try_acquire(world->semaphore, PERMITS));
    CHECK_INT(weir_semaphore_try_acquire(world->semaphore, 1), ==, WEIR_EOVERLOAD);
    weir_semaphore_release(world->semaphore, PERMITS);
}

int flow_take_permits(bool cancels)
{
    struct permit_world world = {.taken = 0};
    weir_scope *outer = flow_scope_open(), *scope;
    weir_task greedy = {NULL, 0};
    static const int counts[] = {1, PERMITS, 2, 1};
    weir_semaphore_spec spec = {.name = "permits",
                                .permits = PERMITS,
                                .waiters_max = 8,
                                .overflow = WEIR_WAIT,
                                .taker_releases = true};

    if (!outer) return 0;
    if (weir_semaphore_open(outer, &spec, &world.semaphore) == 0 && (scope = flow_scope_open())) {
        for (int i = 0; i < 4; i++) {
            struct taker taker = {&world, counts[i]};
            (void)flow_spawn(scope, i, take_permits, &taker, sizeof taker, i == 1 ? &greedy : NULL);
        }
        if (cancels && greedy.ref) {
            (void)flow_spawn(scope, 0, cancel_task, &greedy, sizeof greedy, NULL);
        }
        flow_scope_close(scope);
        check_permits(&world);
    }
    flow_scope_close(outer);
    return world.done;
}

SIM_TEST(permits_are_conserved_and_all_get_theirs, .runs_max = 12000, .config = FLOW_HOST)
{
    CHECK_INT(flow_take_permits(false), ==, 4);
    return 0;
}

SIM_TEST(cancelled_taker_gives_way_and_takes_nothing, .runs_max = 12000, .config = FLOW_HOST)
{
    CHECK_INT(flow_take_permits(true), >=, 3);
    return 0;
}

SIM_TEST(permits_are_conserved_by_a_cancel_of_all, .runs_max = 12000, .config = FLOW_HOST,
         FLOW_CANCELS_ONCE)
{
    return flow_take_permits(false);
}

int flow_give_way(void)
{
    struct permit_world world = {.taken = 1};
    weir_semaphore_spec spec = {
        .name = "permits", .permits = PERMITS, .waiters_max = 8, .overflow = WEIR_WAIT};
    struct taker greedy = {&world, PERMITS}, modest = {&world, 2};
    weir_scope *outer = flow_scope_open(), *scope;
    weir_task first = {NULL, 0};

    CHECK_OK(weir_semaphore_open(outer, &spec, &world.semaphore));
    CHECK_OK(weir_semaphore_acquire(world.semaphore, 1));
    scope = flow_scope_open();
    (void)flow_spawn(scope, 0, take_permits, &greedy, sizeof greedy, &first);
    (void)flow_spawn(scope, 1, take_permits, &modest, sizeof modest, NULL);
    (void)flow_spawn(scope, 0, cancel_task, &first, sizeof first, NULL);
    flow_scope_close(scope);
    world.taken--;
    weir_semaphore_release(world.semaphore, 1);
    check_permits(&world);
    flow_scope_close(outer);
    return world.done;
}

SIM_TEST(who_leaves_the_line_lets_the_next_one_go, .runs_max = 10000, .config = FLOW_HOST)
{
    CHECK_INT(flow_give_way(), ==, 1);
    return 0;
}

/* One begins to wait in each millisecond. */
static int take_in_turn(void *arg)
{
    const struct taker *taker = arg;
    struct permit_world *world = taker->world;

    CHECK_OK(weir_sleep(taker->count));
    CHECK_OK(weir_semaphore_acquire(world->semaphore, 1));
    CHECK_INT(++world->served, ==, taker->count);
    weir_semaphore_release(world->semaphore, 1);
    return 0;
}

SIM_TEST(semaphore_serves_in_the_order_of_arrival, .runs_max = 10000, .config = FLOW_HOST)
{
    struct permit_world world = {.taken = 0};
    weir_semaphore_spec spec = {
        .name = "one", .permits = 1, .waiters_max = 8, .overflow = WEIR_WAIT};
    weir_scope *outer = flow_scope_open(), *scope;

    CHECK_OK(weir_semaphore_open(outer, &spec, &world.semaphore));
    CHECK_OK(weir_semaphore_acquire(world.semaphore, 1));
    scope = flow_scope_open();
    for (int i = 1; i <= 4; i++) {
        struct taker taker = {&world, i};
        (void)flow_spawn(scope, i, take_in_turn, &taker, sizeof taker, NULL);
    }
    CHECK_OK(weir_sleep(10));
    CHECK_INT(world.served, ==, 0);
    weir_semaphore_release(world.semaphore, 1);
    flow_scope_close(scope);
    CHECK_INT(world.served, ==, 4);
    flow_scope_close(outer);
    return 0;
}

/* ---- Event ---- */

struct event_world {
    weir_event *event;
    int value, seen;
};

static int wait_for_event(void *arg)
{
    struct event_world *world = *(struct event_world **)arg;
    int r = weir_event_wait(world->event);

    CHECK(r == 0 || r == WEIR_ECANCELED);
    if (r != 0) return 0;
    CHECK_INT(world->value, ==, 7);
    CHECK(weir_event_is_set(world->event));
    world->seen++;
    return 0;
}

static int set_event(void *arg)
{
    struct event_world *world = *(struct event_world **)arg;

    if (weir_yield() < 0) return 0;
    CHECK_INT(world->seen, ==, 0);
    world->value = 7;
    weir_event_set(world->event);
    return 0;
}

int flow_wait_and_set(void)
{
    struct event_world world = {.value = 0}, *keep = &world;
    weir_scope *scope = flow_scope_open();

    if (!scope) return 0;
    if (weir_event_open(scope, "ready", &world.event) == 0) {
        for (int i = 0; i < 3; i++) {
            (void)flow_spawn(scope, i, wait_for_event, &keep, sizeof keep, NULL);
        }
        (void)flow_spawn(scope, 1, set_event, &keep, sizeof keep, NULL);
    }
    flow_scope_close(scope);
    return world.seen;
}

SIM_TEST(event_lets_everybody_go_on_after_it_is_set, .runs_max = 12000, .config = FLOW_HOST)
{
    CHECK_INT(flow_wait_and_set(), ==, 3);
    return 0;
}

SIM_TEST(event_that_is_waited_for_can_be_cancelled, .runs_max = 12000, .config = FLOW_HOST,
         FLOW_CANCELS_ONCE)
{
    return flow_wait_and_set();
}

/* ---- Once ---- */

struct once_world {
    weir_once once;
    int inside, runs, failures_left, done;
};

static int make_it(void *arg)
{
    struct once_world *world = arg;

    CHECK_INT(++world->inside, ==, 1);
    world->runs++;
    flow_linger();
    world->inside--;
    if (world->failures_left == 0) return 0;
    world->failures_left--;
    return -5;
}

static int run_once(void *arg)
{
    struct once_world *world = *(struct once_world **)arg;
    int r = weir_once_run(&world->once, make_it, world);

    CHECK(r == 0 || r == -5 || r == WEIR_ECANCELED);
    if (r != 0) return 0;
    CHECK_INT(world->inside, ==, 0);
    CHECK_INT(world->runs, >, 0);
    world->done++;
    return 0;
}

static void run_by_three(struct once_world *world)
{
    weir_scope *scope = flow_scope_open();

    if (!scope) return;
    for (int i = 0; i < 3; i++) (void)flow_spawn(scope, i, run_once, &world, sizeof world, NULL);
    flow_scope_close(scope);
    CHECK_INT(world->inside, ==, 0);
}

int flow_run_once(void)
{
    struct once_world world = {.runs = 0};

    run_by_three(&world);
    CHECK_INT(world.runs, ==, 1);
    return world.done;
}

SIM_TEST(once_runs_once_and_everybody_waits_for_it, .runs_max = 10000, .config = FLOW_HOST)
{
    CHECK_INT(flow_run_once(), ==, 3);
    return 0;
}

SIM_TEST(once_that_fails_is_tried_by_the_next, .runs_max = 10000, .config = FLOW_HOST)
{
    struct once_world world = {.failures_left = 1};

    run_by_three(&world);
    CHECK_INT(world.runs, ==, 2);
    CHECK_INT(world.done, ==, 2);
    return 0;
}

SIM_TEST(once_survives_a_cancel_of_all, .runs_max = 10000, .config = FLOW_HOST, FLOW_CANCELS_ONCE)
{
    struct once_world world = {.failures_left = 1};

    run_by_three(&world);
    CHECK_INT(world.runs, <=, 2);
    return 0;
}

/* timer_test.c - timers of programs, and many sleeps. */
#include <stdlib.h>

#include "rt/runtime.h"
#include "unit/rt/support.h"

#define MS INT64_C(1000000)

struct firing {
    int count;
    int64_t at_ns[16];
    int limit; /* the callback starts its timer again until then */
    int64_t again_ms;
    bool close;        /* the callback closes its timer */
    weir_timer *other; /* the callback stops it */
    int suspended;     /* what a suspending call said in the callback */
};

static void fire(weir_timer *timer, void *arg)
{
    struct firing *firing = arg;

    if (firing->count < 16) firing->at_ns[firing->count] = weir_now_ns();
    firing->count++;
    firing->suspended = weir_sleep(1);
    if (firing->other) weir_timer_stop(firing->other);
    if (firing->count < firing->limit) weir_timer_start(timer, firing->again_ms);
    if (firing->close) weir_timer_close(timer);
}

static weir_timer *open_timer(weir_scope *scope, struct firing *firing)
{
    weir_timer *timer = NULL;

    CHECK_OK(weir_timer_open(
        scope, &(weir_timer_spec){.name = "t", .on_fire = fire, .keep_arg = firing}, &timer));
    return timer;
}

static int use_timers(void *arg)
{
    weir_scope *scope = open_scope("timers", WEIR_FAIL_FAST);
    struct firing once = {0}, again = {.limit = 4, .again_ms = 7}, closing = {.close = true};
    weir_timer *timer = open_timer(scope, &once);
    int64_t start_ns = weir_now_ns();

    (void)arg;
    CHECK(!weir_timer_stop(timer));
    weir_timer_start(timer, 10);
    weir_timer_start(timer, 20); /* set anew */
    CHECK_OK(weir_sleep(15));
    CHECK_INT(once.count, ==, 0);
    CHECK_OK(weir_sleep(100));
    CHECK_INT(once.count, ==, 1);
    CHECK_INT(once.at_ns[0] - start_ns, ==, 20 * MS);
    CHECK_INT(once.suspended, ==, WEIR_ENOTASK);
    CHECK(!weir_timer_stop(timer));
    weir_timer_start(timer, 10);
    CHECK(weir_timer_stop(timer));
    CHECK_OK(weir_sleep(50));
    CHECK_INT(once.count, ==, 1);
    weir_timer_start(timer, 0);
    CHECK_OK(weir_sleep(0));
    CHECK_OK(weir_sleep(1));
    CHECK_INT(once.count, ==, 2);
    weir_timer_start(timer, 5);
    weir_timer_close(timer);
    weir_timer_close(NULL);

    timer = open_timer(scope, &again);
    start_ns = weir_now_ns();
    weir_timer_start(timer, 7);
    weir_timer_start(open_timer(scope, &closing), 3);
    CHECK_OK(weir_sleep(1000));
    CHECK_INT(again.count, ==, 4);
    for (int i = 0; i < 4; i++) CHECK_INT(again.at_ns[i] - start_ns, ==, 7 * (i + 1) * MS);
    CHECK_INT(closing.count, ==, 1);
    CHECK_INT(once.count, ==, 2);
    return weir_scope_close(scope);
}

TEST(timer_fires_once_exactly_and_can_be_restarted_stopped_and_closed)
{
    test_clock_auto();
    CHECK_OK(run_on(1, use_timers, NULL));
}

static int refuse_timers(void *arg)
{
    weir_scope *scope = open_scope("refused", WEIR_FAIL_FAST);
    weir_timer *timer = NULL;

    (void)arg;
    CHECK_INT(weir_timer_open(scope, &(weir_timer_spec){.on_fire = fire}, &timer), ==,
              WEIR_EREFUSED);
    CHECK_STR(weir_why(), "timer: name is not set");
    CHECK_INT(weir_timer_open(scope, &(weir_timer_spec){.name = "", .on_fire = fire}, &timer), ==,
              WEIR_EREFUSED);
    CHECK_STR(weir_why(), "timer: name is not set");
    CHECK_INT(weir_timer_open(scope, &(weir_timer_spec){.name = "t"}, &timer), ==, WEIR_EREFUSED);
    CHECK_STR(weir_why(), "timer 't': on_fire is not set");
    CHECK(timer == NULL);
    weir_scope_cancel(scope, 0, "no more timers");
    CHECK_INT(weir_timer_open(scope, &(weir_timer_spec){.name = "t", .on_fire = fire}, &timer), ==,
              WEIR_ECANCELED);
    return weir_scope_close(scope);
}

TEST(timer_refuses_a_spec_without_name_or_callback)
{
    CHECK_OK(run_on(1, refuse_timers, NULL));
}

struct ordered {
    int *order;
    int *count;
    int id;
};

static void note_order(weir_timer *timer, void *arg)
{
    struct ordered *ordered = arg;

    (void)timer;
    ordered->order[(*ordered->count)++] = ordered->id;
}

static int fire_in_order(void *arg)
{
    static const int after_ms[] = {50, 10, 10, 3600000, 1, 10, 70, 64, 65, 4096, 1};
    static const int wanted[] = {4, 10, 1, 2, 5, 0, 7, 8, 6, 9, 3};
    enum { COUNT = sizeof after_ms / sizeof after_ms[0] };
    struct ordered ordered[COUNT];
    int order[COUNT], count = 0;
    weir_scope *scope = open_scope("order", WEIR_FAIL_FAST);

    (void)arg;
    for (int i = 0; i < COUNT; i++) {
        weir_timer *timer;

        ordered[i] = (struct ordered){order, &count, i};
        CHECK_OK(weir_timer_open(
            scope, &(weir_timer_spec){.name = "o", .on_fire = note_order, .keep_arg = &ordered[i]},
            &timer));
        weir_timer_start(timer, after_ms[i]);
    }
    CHECK_OK(weir_sleep(4000000));
    CHECK_INT(count, ==, COUNT);
    for (int i = 0; i < COUNT; i++) CHECK_INT(order[i], ==, wanted[i]);
    return weir_scope_close(scope);
}

TEST(timers_fire_by_time_and_for_one_time_in_the_order_they_were_started)
{
    test_clock_auto();
    CHECK_OK(run_on(1, fire_in_order, NULL));
}

/* Two timers that are due in the same turn: the first one's callback stops the other. */
static int stop_a_due_one(void *arg)
{
    weir_scope *scope = open_scope("due", WEIR_FAIL_FAST);
    struct firing first = {0}, second = {0};
    weir_timer *timer = open_timer(scope, &first);
    weir_timer *victim = open_timer(scope, &second);

    (void)arg;
    first.other = victim;
    weir_timer_start(timer, 10);
    weir_timer_start(victim, 10);
    CHECK_OK(weir_sleep(20));
    CHECK_INT(first.count, ==, 1);
    CHECK_INT(second.count, ==, 0);
    return weir_scope_close(scope);
}

TEST(timer_that_is_due_can_still_be_stopped_by_another_callback)
{
    test_clock_auto();
    CHECK_OK(run_on(1, stop_a_due_one, NULL));
}

static int cancel_disarms(void *arg)
{
    weir_scope *outer = open_scope("outer", WEIR_FAIL_FAST);
    weir_scope *scope = open_scope("inner", WEIR_FAIL_FAST);
    struct firing firing = {0};
    weir_timer *timer = open_timer(scope, &firing);

    (void)arg;
    weir_timer_start(timer, 10);
    weir_scope_cancel(outer, 0, "timers too");
    WEIR_SHIELD(1000) CHECK_OK(weir_sleep(20));
    weir_timer_start(timer, 1); /* has no effect any more */
    WEIR_SHIELD(1000) CHECK_OK(weir_sleep(20));
    CHECK_INT(firing.count, ==, 0);
    CHECK(!weir_timer_stop(timer));
    CHECK_OK(weir_scope_close(scope));
    return weir_scope_close(outer);
}

TEST(cancelled_scope_disarms_its_timers)
{
    test_clock_auto();
    CHECK_OK(run_on(1, cancel_disarms, NULL));
}

static int spawned_by_timer(void *arg)
{
    ++**(ATOM(int) **)arg;
    return 0;
}

struct spawning {
    weir_scope *scope;
    ATOM(int) * ran;
    int result;
};

static void fire_and_spawn(weir_timer *timer, void *arg)
{
    struct spawning *spawning = arg;

    (void)timer;
    spawning->result =
        weir_spawn(spawning->scope, spawned_by_timer, &spawning->ran, sizeof spawning->ran);
}

static int spawn_from_callback(void *arg)
{
    ATOM(int) ran = 0;
    weir_scope *scope = open_bounded("spawn", WEIR_FAIL_FAST, 1, WEIR_WAIT);
    struct spawning spawning = {scope, &ran, 1};
    weir_timer *timer;

    (void)arg;
    CHECK_OK(weir_timer_open(
        scope, &(weir_timer_spec){.name = "s", .on_fire = fire_and_spawn, .keep_arg = &spawning},
        &timer));
    weir_timer_start(timer, 1);
    CHECK_OK(weir_sleep(5));
    CHECK_INT(spawning.result, ==, 0);
    CHECK_INT(ran, ==, 1);
    /* A callback cannot wait for room. */
    CHECK_OK(weir_spawn(scope, sleep_until_cancelled, NULL, 0));
    weir_timer_start(timer, 1);
    CHECK_OK(weir_sleep(5));
    CHECK_INT(spawning.result, ==, WEIR_EOVERLOAD);
    weir_scope_cancel(scope, 0, "done");
    return weir_scope_close(scope);
}

TEST(timer_callback_may_spawn_but_never_waits)
{
    test_clock_auto();
    CHECK_OK(run_on(1, spawn_from_callback, NULL));
}

/* The scope is closed on one worker while its timers run on the other. */
struct remote {
    weir_scope *scope;
    ATOM(int) started;
    ATOM(int) fired;
    ATOM(int) go_on;
};

static void count_remote(weir_timer *timer, void *arg)
{
    struct remote *remote = arg;

    (void)atom_add(&remote->fired, 1);
    weir_timer_start(timer, 0);
}

static int start_remote_timers(void *arg)
{
    struct remote *remote = *(struct remote **)arg;

    for (int i = 0; i < 20; i++) {
        weir_timer *timer;

        CHECK_OK(weir_timer_open(
            remote->scope,
            &(weir_timer_spec){.name = "r", .on_fire = count_remote, .keep_arg = remote}, &timer));
        weir_timer_start(timer, 0);
    }
    return 0;
}

static int close_with_remote_timers(void *arg)
{
    int rounds = *(int *)arg;

    for (int i = 0; i < rounds && (i == 0 || !test_late()); i++) {
        struct remote remote = {0};
        struct remote *pointer = &remote;
        int fired;

        remote.scope = open_scope("remote", WEIR_FAIL_FAST);
        spawn_at(remote.scope, 1, "starter", start_remote_timers, &pointer, sizeof pointer);
        while (atom_load(&remote.fired) < 50) CHECK_OK(weir_yield());
        if (i % 2) weir_scope_cancel(remote.scope, 0, "every other time");
        CHECK_OK(weir_scope_close(remote.scope));
        fired = atom_load(&remote.fired);
        CHECK_OK(weir_sleep(1));
        CHECK_INT(atom_load(&remote.fired), ==, fired);
    }
    return 0;
}

TEST(close_lets_go_of_timers_that_run_on_another_worker)
{
    int rounds = TEST_SLOW ? 20 : 100;

    CHECK_OK(run_on(2, close_with_remote_timers, &rounds));
}

/* ---- Many: more than the wheel takes by itself, so that the agenda has those that are far ---- */

enum { FAR_COUNT = 2000 };

struct far {
    struct far_world *world;
    weir_timer *timer;
    int64_t at_ns; /* when it must fire; 0: not at all */
    uint64_t sequence;
};

struct far_world {
    weir_scope *scope;
    struct far all[FAR_COUNT];
    uint64_t random;
    uint64_t sequence;
    int64_t last_ns;        /* of the timers that have fired: the latest time and ... */
    uint64_t last_sequence; /* ... the last one for it */
    size_t running;
    size_t fired;
};

static uint64_t far_random(struct far_world *world, uint64_t bound)
{
    uint64_t x = world->random;

    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    world->random = x;
    return x % bound;
}

static void far_fired(weir_timer *timer, void *arg);

static void far_open(struct far *far)
{
    CHECK_OK(weir_timer_open(
        far->world->scope, &(weir_timer_spec){.name = "far", .on_fire = far_fired, .keep_arg = far},
        &far->timer));
}

static void far_start(struct far *far)
{
    struct far_world *world = far->world;
    /* Near, far, and much further; few different times, so that many are equal. */
    int64_t after_ms = 1 + 100 * (int64_t)far_random(world, 3000);

    if (far_random(world, 8) == 0) after_ms = (int64_t)far_random(world, 500);
    if (far_random(world, 100) == 0) after_ms *= 100000;
    if (far->at_ns == 0) world->running++;
    weir_timer_start(far->timer, after_ms);
    far->at_ns = weir_now_ns() + after_ms * MS;
    far->sequence = world->sequence++;
}

static void far_stop(struct far *far)
{
    CHECK(weir_timer_stop(far->timer) == (far->at_ns != 0));
    if (far->at_ns != 0) far->world->running--;
    far->at_ns = 0;
}

static void far_touch(struct far_world *world)
{
    struct far *far = &world->all[far_random(world, FAR_COUNT)];

    switch (far_random(world, 8)) {
    case 0: far_stop(far); break;
    case 1: /* its memory is used again, and what it has left in the agenda is not it */
        if (far->at_ns != 0) world->running--;
        far->at_ns = 0;
        weir_timer_close(far->timer);
        far_open(far);
        break;
    default: far_start(far); break;
    }
}

static void far_fired(weir_timer *timer, void *arg)
{
    struct far *far = arg;
    struct far_world *world = far->world;

    CHECK(timer == far->timer);
    CHECK(!weir_timer_stop(timer));
    CHECK_INT(far->at_ns, ==, weir_now_ns());
    CHECK(far->at_ns > world->last_ns || far->sequence > world->last_sequence);
    world->last_ns = far->at_ns;
    world->last_sequence = far->sequence;
    far->at_ns = 0;
    world->running--;
    world->fired++;
    for (int i = 0; i < 3; i++) far_touch(world);
}

static int touch_far_timers(void *arg)
{
    struct far_world *world = calloc(1, sizeof *world);
    int64_t end_ns;

    (void)arg;
    CHECK(world != NULL);
    world->random = 88172645463325252;
    world->scope = open_scope("far", WEIR_FAIL_FAST);
    for (int i = 0; i < FAR_COUNT; i++) {
        world->all[i].world = world;
        far_open(&world->all[i]);
    }
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < 2000; i++) far_touch(world);
        CHECK_OK(weir_sleep((int64_t)far_random(world, 10000)));
        CHECK_INT(worker_timers_count(worker_self()), ==, world->running);
    }
    CHECK_INT(world->fired, >, 1000);
    CHECK_INT(agenda_count(&worker_self()->agenda), >, 100);
    /* The rest must all come, at their time (see far_fired), without new ones. */
    for (int i = 0; i < FAR_COUNT; i++) {
        if (world->all[i].at_ns > weir_now_ns() + 100000 * MS) far_stop(&world->all[i]);
    }
    end_ns = weir_now_ns() + 100000 * MS;
    while (weir_now_ns() <= end_ns) CHECK_OK(weir_sleep(1000));
    for (int i = 0; i < FAR_COUNT; i++) {
        if (world->all[i].at_ns != 0) CHECK_INT(world->all[i].at_ns, >, end_ns);
    }
    /* Half are cancelled while running, the scope takes the rest. */
    weir_scope_cancel(world->scope, 0, "all of them");
    WEIR_SHIELD(INT64_C(1000000000)) CHECK_OK(weir_sleep(400000000));
    CHECK_INT(worker_timers_count(worker_self()), ==, 0);
    for (int i = 0; i < FAR_COUNT; i++) {
        CHECK(!weir_timer_stop(world->all[i].timer));
        weir_timer_start(world->all[i].timer, 1000000);
        CHECK(!weir_timer_stop(world->all[i].timer));
        if (i % 2) weir_timer_close(world->all[i].timer);
    }
    CHECK_OK(weir_scope_close(world->scope));
    free(world);
    return 0;
}

TEST(many_timers_set_anew_at_random_fire_exactly_and_in_order)
{
    test_clock_auto();
    CHECK_OK(run_on(1, touch_far_timers, NULL));
}

static int million_timers(void *arg)
{
    int count = *(int *)arg;
    weir_scope *scope = open_scope("many", WEIR_FAIL_FAST);
    struct firing firing = {0};
    weir_timer **timers;
    int fired = 0;

    timers = malloc((size_t)count * sizeof(weir_timer *));
    for (int i = 0; i < count; i++) {
        timers[i] = open_timer(scope, &firing);
        weir_timer_start(timers[i], 1 + (int64_t)i * 7919 % 1000000);
    }
    CHECK_OK(weir_sleep(500000));
    fired = firing.count;
    CHECK_INT(fired, >, count / 3);
    CHECK_INT(fired, <, count * 2 / 3);
    for (int i = 0; i < count; i += 2) weir_timer_close(timers[i]);
    CHECK_OK(weir_sleep(600000));
    CHECK_INT(firing.count, >=, count / 2);
    CHECK_INT(firing.count, <, count);
    free(timers);
    return weir_scope_close(scope);
}

TEST_WITH(million_timers_pend_fire_and_are_closed, .timeout_ms = 60000)
{
    int count = TEST_SLOW ? 20000 : 1000000;

    test_clock_auto();
    CHECK_OK(run_on(1, million_timers, &count));
}

static int sleep_long(void *arg)
{
    return weir_sleep(*(int *)arg);
}

static int many_sleepers(void *arg)
{
    int count = *(int *)arg;
    weir_scope *scope = open_scope("sleepers", WEIR_FAIL_FAST);

    for (int i = 0; i < count; i++) {
        int ms = 1 + i % 1000;

        CHECK_OK(weir_spawn(scope, sleep_long, &ms, sizeof ms));
    }
    CHECK_OK(weir_sleep(500));
    CHECK_INT(weir_scope_task_count(scope), <=, count * 501 / 1000 + 1);
    CHECK_INT(weir_scope_task_count(scope), >=, count * 499 / 1000 - 1);
    weir_scope_cancel(scope, 0, "the other half");
    return weir_scope_close(scope);
}

TEST(many_sleepers_end_by_time_or_by_cancel)
{
    int count = TEST_SLOW ? 2000 : 20000;

    test_clock_auto();
    CHECK_OK(run_on(1, many_sleepers, &count));
}

/* ---- Misuse ---- */

static int start_closed_timer(void *arg)
{
    weir_scope *scope = open_scope("s", WEIR_FAIL_FAST);
    struct firing firing = {0};
    weir_timer *timer = open_timer(scope, &firing);

    (void)arg;
    weir_timer_close(timer);
    weir_timer_start(timer, 1);
    return weir_scope_close(scope);
}

static int close_timer_twice(void *arg)
{
    weir_scope *scope = open_scope("s", WEIR_FAIL_FAST);
    struct firing firing = {0};
    weir_timer *timer = open_timer(scope, &firing);

    (void)arg;
    weir_timer_close(timer);
    weir_timer_close(timer);
    return weir_scope_close(scope);
}

static int stop_timer_of_closed_scope(void *arg)
{
    weir_scope *scope = open_scope("s", WEIR_FAIL_FAST);
    struct firing firing = {0};
    weir_timer *timer = open_timer(scope, &firing);

    (void)arg;
    CHECK_OK(weir_scope_close(scope));
    weir_timer_stop(timer);
    return 0;
}

static int start_foreign_timer(void *arg)
{
    weir_timer_start(*(weir_timer **)arg, 1);
    return 0;
}

static int start_on_another_worker(void *arg)
{
    weir_scope *scope = open_scope("s", WEIR_FAIL_FAST);
    struct firing firing = {0};
    weir_timer *timer = open_timer(scope, &firing);

    (void)arg;
    spawn_at(scope, 1, "foreign", start_foreign_timer, &timer, sizeof timer);
    return weir_scope_close(scope);
}

static void run_misuse(void *arg)
{
    weir_task_fn fn = (weir_task_fn)(uintptr_t)arg;

    (void)run_on(2, fn, NULL);
}

#define CHECK_MISUSE(fn, sentence) CHECK_ABORTS(run_misuse, (void *)(uintptr_t)(fn), sentence)

TEST(misused_timer_aborts_with_a_sentence)
{
    CHECK_MISUSE(start_closed_timer, "weir_timer_start: timer 't' is closed");
    CHECK_MISUSE(close_timer_twice, "weir_timer_close: timer 't' is closed");
    CHECK_MISUSE(stop_timer_of_closed_scope, "weir_timer_stop: timer 't' is closed");
    CHECK_MISUSE(start_on_another_worker, "weir_timer_start: timer 't' belongs to worker 0");
}

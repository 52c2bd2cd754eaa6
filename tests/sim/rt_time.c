/* rt_time.c - time in simulation: deadlines, stops, sleeps and timers are exact. */
#include "sim/rt_programs.h"

/* ---- Deadlines ---- */

/* Which of three nested deadlines and a sleep comes first, and what that gives. */
static int race(void *arg)
{
    int64_t began_ms = rt_ms();
    int64_t outer = 1 + weir_sim_choose(4), inner = 1 + weir_sim_choose(4);
    int64_t wait = 1 + weir_sim_choose(4);
    int64_t first = outer < inner ? outer : inner;
    int r = 0;

    (void)arg;
    WEIR_DEADLINE(outer) {
        WEIR_DEADLINE(inner) {
            CHECK_INT(weir_deadline_ns() - weir_now_ns(), ==, first * 1000000);
            r = weir_sleep(wait);
            if (wait < first) {
                CHECK_INT(r, ==, 0);
            } else if (wait > first) {
                CHECK_INT(r, ==, inner < outer ? WEIR_ETIMEDOUT : WEIR_ECANCELED);
                CHECK_INT(weir_yield(), ==, r);
            }
            CHECK_INT(rt_ms() - began_ms, ==, wait < first ? wait : first);
        }
        /* The inner one is over, whatever came of it. */
        r = weir_yield();
        CHECK(r == 0 || (first == outer && r == WEIR_ETIMEDOUT));
        if (wait > first && inner < outer) CHECK_INT(r, ==, 0);
    }
    /* Nothing of either is left. */
    CHECK_OK(weir_sleep(10));
    return 0;
}

int rt_program_deadlines(void *arg)
{
    int r = 0;

    (void)arg;
    rt_begin();
    WEIR_SCOPE(scope, &r, .name = "races", .on_failure = WEIR_FAIL_FAST, .max_tasks = 4,
               .overflow = WEIR_REJECT) {
        for (int i = 0; i < 3; i++) CHECK_OK(weir_spawn(scope, race, NULL, 0));
    }
    CHECK_INT(rt_ms(), >=, 11);
    CHECK_INT(rt_ms(), <=, 14);
    return r;
}

SIM_TEST(rt_deadlines_end_waits_exactly, .runs_max = 15000, .config = &rt_two_workers)
{
    return rt_program_deadlines(arg);
}

static int outlast(void *arg)
{
    int64_t until_ms = *(int64_t *)arg;
    int r = rt_sleep_forever();

    CHECK_INT(r, ==, WEIR_ECANCELED);
    CHECK_INT(weir_cause(NULL), ==, WEIR_CAUSE_DEADLINE);
    CHECK_INT(rt_ms(), ==, until_ms);
    return r;
}

SIM_TEST(rt_deadline_of_a_scope_cuts_its_tasks_short, .runs_max = 10000, .config = &rt_two_workers)
{
    int64_t outer_ms = 1 + weir_sim_choose(3), inner_ms = 1 + weir_sim_choose(3);
    int64_t until_ms = outer_ms < inner_ms ? outer_ms : inner_ms;
    int r = 0, inside = 0;

    rt_begin();
    WEIR_DEADLINE(outer_ms) {
        WEIR_SCOPE(scope, &r, .name = "short", .on_failure = WEIR_FAIL_FAST, .max_tasks = 4,
                   .overflow = WEIR_REJECT, .deadline_ms = inner_ms) {
            for (int i = 0; i < 3; i++) {
                CHECK_OK(weir_spawn(scope, outlast, &until_ms, sizeof until_ms));
            }
        }
        inside = weir_yield();
        CHECK_INT(rt_ms(), ==, until_ms);
    }
    CHECK_INT(r, ==, inner_ms < outer_ms ? WEIR_ETIMEDOUT : WEIR_ECANCELED);
    CHECK_INT(inside, ==, inner_ms < outer_ms ? 0 : WEIR_ETIMEDOUT);
    CHECK_OK(weir_yield());
    return 0;
}

/* ---- Stops ---- */

static struct {
    int64_t stopped_ms, grace_ms;
    int obliging, stubborn;
} stop;

static int end_when_asked(void *arg)
{
    (void)arg;
    while (!weir_stopping()) CHECK_OK(weir_sleep(1));
    CHECK_INT(rt_ms(), >=, stop.stopped_ms);
    CHECK_INT(rt_ms(), <=, stop.stopped_ms + 1);
    CHECK_OK(weir_yield());
    stop.obliging++;
    return 0;
}

static int end_when_cut_off(void *arg)
{
    int r = rt_sleep_forever();

    (void)arg;
    CHECK_INT(r, ==, WEIR_ECANCELED);
    CHECK_INT(weir_cause(NULL), ==, WEIR_CAUSE_STOP);
    CHECK_INT(rt_ms(), ==, stop.stopped_ms + stop.grace_ms);
    stop.stubborn++;
    return r;
}

static int stop_the_others(void *arg)
{
    weir_scope *scope = *(weir_scope **)arg;

    stop.stopped_ms = weir_sim_choose(2) * 3;
    CHECK_OK(weir_sleep(stop.stopped_ms));
    weir_scope_stop(scope, stop.grace_ms);
    return 0;
}

static weir_scope *open_stopped(const char *name)
{
    weir_scope *scope;

    CHECK_OK(weir_scope_open(
        &(weir_scope_spec){
            .name = name, .on_failure = WEIR_FAIL_FAST, .max_tasks = 4, .overflow = WEIR_REJECT},
        &scope));
    return scope;
}

int rt_program_stop(void *arg)
{
    weir_scope *beside, *scope, *next;
    bool stubborn = weir_sim_choose(2);

    (void)arg;
    rt_begin();
    memset(&stop, 0, sizeof stop);
    stop.grace_ms = 2 + weir_sim_choose(2);
    beside = open_stopped("beside");
    scope = open_stopped("stopped");
    CHECK_OK(weir_task_spawn(beside,
                             &(weir_task_spec){.fn = stop_the_others,
                                               .arg = &scope,
                                               .arg_bytes = sizeof scope,
                                               .place = WEIR_PLACE_WORKER,
                                               .worker = 1},
                             NULL));
    CHECK_OK(weir_spawn(scope, end_when_asked, NULL, 0));
    if (stubborn) CHECK_OK(weir_spawn(scope, end_when_cut_off, NULL, 0));
    CHECK_INT(weir_scope_close(scope), ==, stubborn ? WEIR_ECANCELED : 0);
    CHECK_INT(stop.obliging, ==, 1);
    CHECK_INT(stop.stubborn, ==, stubborn);
    if (stubborn) CHECK_INT(rt_ms(), ==, stop.stopped_ms + stop.grace_ms);
    /* The next one in its place is not stopped, now or when that grace is over. */
    next = open_stopped("next");
    CHECK_OK(weir_sleep(20));
    CHECK_OK(weir_scope_close(next));
    CHECK_OK(weir_scope_close(beside));
    return 0;
}

SIM_TEST(rt_stop_gives_its_grace_and_no_more, .runs_max = 15000, .config = &rt_two_workers)
{
    return rt_program_stop(arg);
}

/* ---- Timers ---- */

enum { TIMERS = 3, MOVES = 8 };

/* The model: when each is to fire, or never. */
static struct {
    int64_t at_ms[TIMERS];
    weir_timer *timers[TIMERS];
    int fired, expected;
    bool closed;
} clocks;

static void fire(weir_timer *timer, void *arg)
{
    int64_t *at_ms = arg;
    size_t index = (size_t)(at_ms - clocks.at_ms);

    CHECK(!clocks.closed);
    CHECK(timer == clocks.timers[index]);
    CHECK_INT(rt_ms(), ==, *at_ms);
    *at_ms = -1;
    clocks.fired++;
    /* What is due at the same time may be stopped from here. */
    if (weir_sim_choose(2)) {
        size_t other = (index + 1) % TIMERS;
        if (clocks.timers[other]) {
            CHECK_INT(weir_timer_stop(clocks.timers[other]), ==, clocks.at_ms[other] >= 0);
            clocks.at_ms[other] = -1;
        }
    }
}

static void move_one(void)
{
    size_t i = weir_sim_choose(TIMERS);
    int64_t after_ms = weir_sim_choose(3);

    if (weir_sim_choose(3) == 0) {
        CHECK_INT(weir_timer_stop(clocks.timers[i]), ==, clocks.at_ms[i] >= 0);
        clocks.at_ms[i] = -1;
    } else {
        weir_timer_start(clocks.timers[i], after_ms);
        clocks.at_ms[i] = rt_ms() + after_ms;
    }
}

static int set_clocks(void *arg)
{
    (void)arg;
    for (int i = 0; i < MOVES / 2; i++) {
        move_one();
        CHECK_OK(weir_sleep(weir_sim_choose(2)));
    }
    return 0;
}

static bool no_timer_is_late(void *arg)
{
    int64_t now_ms = (weir_now_ns() - rt_began_ns) / 1000000;

    (void)arg;
    for (size_t i = 0; i < TIMERS; i++) {
        if (clocks.at_ms[i] >= 0 && clocks.at_ms[i] < now_ms) return false;
    }
    return true;
}

int rt_program_timers(void *arg)
{
    int r = 0;

    (void)arg;
    rt_begin();
    memset(&clocks, 0, sizeof clocks);
    WEIR_SCOPE(scope, &r, .name = "clocks", .on_failure = WEIR_FAIL_FAST, .max_tasks = 4,
               .overflow = WEIR_REJECT, .place = WEIR_PLACE_HERE) {
        for (size_t i = 0; i < TIMERS; i++) {
            clocks.at_ms[i] = -1;
            CHECK_OK(weir_timer_open(
                scope,
                &(weir_timer_spec){.name = "clock", .on_fire = fire, .keep_arg = &clocks.at_ms[i]},
                &clocks.timers[i]));
        }
        for (int i = 0; i < 2; i++) CHECK_OK(weir_spawn(scope, set_clocks, NULL, 0));
        CHECK_OK(weir_scope_join(scope));
        CHECK_OK(weir_sleep(3));
        for (size_t i = 0; i < TIMERS; i++) CHECK_INT(clocks.at_ms[i], ==, -1);
        /* One is closed, the others end with the scope, though they run. */
        for (size_t i = 0; i < TIMERS; i++) weir_timer_start(clocks.timers[i], 1);
        weir_timer_close(clocks.timers[0]);
        clocks.closed = true;
        for (size_t i = 0; i < TIMERS; i++) clocks.at_ms[i] = -1;
        clocks.timers[0] = NULL;
    }
    CHECK_OK(weir_sleep(5));
    return r;
}

SIM_TEST(rt_timer_fires_once_and_never_after_a_stop, .runs_max = 15000, .config = &rt_two_workers,
         .invariants = {{.name = "no timer is late", .holds = no_timer_is_late}})
{
    return rt_program_timers(arg);
}

/* ---- Timers of several workers in one scope that ends ---- */

static struct {
    weir_scope *scope;
    bool closed;
    int fired, spawned, ran;
} ending;

static int run_late(void *arg)
{
    (void)arg;
    CHECK(!ending.closed);
    ending.ran++;
    return 0;
}

static void spawn_when_due(weir_timer *timer, void *arg)
{
    (void)timer, (void)arg;
    CHECK(!ending.closed);
    ending.fired++;
    if (weir_spawn(ending.scope, run_late, NULL, 0) == 0) ending.spawned++;
}

static int start_a_timer(void *arg)
{
    weir_timer *timer;
    int64_t after_ms = *(int64_t *)arg;

    CHECK_OK(weir_timer_open(ending.scope,
                             &(weir_timer_spec){.name = "due", .on_fire = spawn_when_due}, &timer));
    weir_timer_start(timer, after_ms);
    return 0;
}

int rt_program_timer_close(void *arg)
{
    weir_task task;

    (void)arg;
    rt_begin();
    memset(&ending, 0, sizeof ending);
    CHECK_OK(weir_scope_open(&(weir_scope_spec){.name = "ending",
                                                .on_failure = WEIR_FAIL_FAST,
                                                .max_tasks = 4,
                                                .overflow = WEIR_REJECT},
                             &ending.scope));
    for (int worker = 0; worker < 2; worker++) {
        int64_t after_ms = worker * 2;
        CHECK_OK(weir_task_spawn(ending.scope,
                                 &(weir_task_spec){.fn = start_a_timer,
                                                   .arg = &after_ms,
                                                   .arg_bytes = sizeof after_ms,
                                                   .place = WEIR_PLACE_WORKER,
                                                   .worker = worker},
                                 &task));
        CHECK_OK(weir_task_join(task, NULL));
    }
    CHECK_OK(weir_sleep(weir_sim_choose(3)));
    CHECK_OK(weir_scope_close(ending.scope));
    ending.closed = true;
    CHECK_INT(ending.ran, ==, ending.spawned);
    CHECK_OK(weir_sleep(5));
    return 0;
}

SIM_TEST(rt_timers_end_with_their_scope, .runs_max = 15000, .config = &rt_two_workers)
{
    return rt_program_timer_close(arg);
}

/* rt_work.c - who runs what, in simulation: other workers, stealing, turns, room, memory. */
#include <fcntl.h>

#include "sim/rt_programs.h"

static weir_task_spec on_worker(int worker, weir_task_fn fn, const void *arg, size_t bytes)
{
    return (weir_task_spec){
        .fn = fn, .arg = arg, .arg_bytes = bytes, .place = WEIR_PLACE_WORKER, .worker = worker};
}

static weir_scope *open_scope(size_t max_tasks, enum weir_overflow overflow)
{
    weir_scope *scope;

    CHECK_OK(weir_scope_open(&(weir_scope_spec){.name = "work",
                                                .on_failure = WEIR_FAIL_FAST,
                                                .max_tasks = max_tasks,
                                                .overflow = overflow},
                             &scope));
    return scope;
}

/* ---- There and back: no wake-up is lost, for nothing takes time ---- */

static int far_ran;

static int be_where_told(void *arg)
{
    int worker = *(int *)arg;

    CHECK_INT(weir_worker_index(), ==, worker);
    CHECK_OK(weir_yield());
    CHECK_INT(weir_worker_index(), ==, worker);
    return ++far_ran;
}

int rt_program_far(void *arg)
{
    weir_scope *scope;
    int results = 0;

    (void)arg;
    rt_begin();
    far_ran = 0;
    scope = open_scope(4, WEIR_REJECT);
    for (int round = 0; round < 3; round++) {
        int workers[2] = {1, round % 2};
        weir_task tasks[2];
        int sum = 0;

        for (int i = 0; i < 2; i++) {
            weir_task_spec spec = on_worker(workers[i], be_where_told, &workers[i], sizeof(int));
            CHECK_OK(weir_task_spawn(scope, &spec, &tasks[i]));
        }
        for (int i = 0; i < 2; i++) {
            int result = 0;
            CHECK_OK(weir_task_join(tasks[i], &result));
            sum += result;
        }
        results += sum;
        CHECK_INT(rt_ms(), ==, 0);
    }
    CHECK_OK(weir_scope_close(scope));
    CHECK_INT(far_ran, ==, 6);
    CHECK_INT(results, ==, 1 + 2 + 3 + 4 + 5 + 6);
    CHECK_INT(rt_ms(), ==, 0);
    return 0;
}

SIM_TEST(rt_tasks_of_other_workers_are_woken_and_joined, .runs_max = 20000,
         .config = &rt_two_workers)
{
    return rt_program_far(arg);
}

SIM_TEST(rt_three_workers_wake_each_other, .runs_max = 10000, .config = &rt_three_workers)
{
    return rt_program_far(arg);
}

/* ---- Stealing ---- */

enum { STOLEN = 6 };
static int taken[STOLEN], taken_alive;

static int be_taken_once(void *arg)
{
    int index = *(int *)arg;
    int worker = weir_worker_index();

    CHECK_INT(++taken[index], ==, 1);
    taken_alive++;
    CHECK_OK(weir_yield());
    CHECK_INT(weir_worker_index(), ==, worker);
    taken_alive--;
    return 0;
}

int rt_program_steal(void *arg)
{
    weir_scope *scope;

    (void)arg;
    rt_begin();
    memset(taken, 0, sizeof taken);
    taken_alive = 0;
    scope = open_scope(STOLEN, WEIR_WAIT);
    for (int i = 0; i < STOLEN; i++) {
        CHECK_OK(weir_spawn(scope, be_taken_once, &i, sizeof i));
        if (i == STOLEN / 2) CHECK_OK(weir_yield());
    }
    CHECK_OK(weir_scope_close(scope));
    for (int i = 0; i < STOLEN; i++) CHECK_INT(taken[i], ==, 1);
    CHECK_INT(taken_alive, ==, 0);
    CHECK_INT(rt_ms(), ==, 0);
    return 0;
}

SIM_TEST(rt_stolen_tasks_run_once, .runs_max = 20000, .config = &rt_two_workers)
{
    return rt_program_steal(arg);
}

SIM_TEST(rt_three_workers_steal, .runs_max = 10000, .config = &rt_three_workers)
{
    return rt_program_steal(arg);
}

/* ---- Turns ---- */

static bool had_its_turn;

static int keep_busy(void *arg)
{
    (void)arg;
    while (!had_its_turn) CHECK_OK(weir_yield());
    return 0;
}

static int take_a_turn(void *arg)
{
    (void)arg;
    had_its_turn = true;
    return 0;
}

int rt_program_turns(void *arg)
{
    weir_scope *scope;

    (void)arg;
    rt_begin();
    had_its_turn = false;
    scope = open_scope(4, WEIR_REJECT);
    for (int worker = 0; worker < 2; worker++) {
        weir_task_spec spec = on_worker(worker, keep_busy, NULL, 0);
        CHECK_OK(weir_task_spawn(scope, &spec, NULL));
    }
    CHECK_OK(weir_spawn(scope, take_a_turn, NULL, 0));
    CHECK_OK(weir_scope_close(scope));
    return 0;
}

SIM_TEST(rt_new_tasks_get_their_turn_among_busy_ones, .runs_max = 5000, .steps_max = 20000,
         .config = &rt_two_workers)
{
    return rt_program_turns(arg);
}

/* ---- Room ---- */

static struct {
    weir_scope *scope;
    int alive, alive_max, ran, spawned, refused;
} room;

static bool room_is_kept(void *arg)
{
    (void)arg;
    return room.alive <= room.alive_max && room.ran <= room.spawned + 2;
}

static int take_room(void *arg)
{
    (void)arg;
    CHECK_INT(++room.alive, <=, room.alive_max);
    CHECK_OK(weir_yield());
    room.alive--;
    room.ran++;
    return 0;
}

static int fill(void *arg)
{
    int count = *(int *)arg;

    for (int i = 0; i < count; i++) {
        int r = weir_spawn(room.scope, take_room, NULL, 0);

        if (r == WEIR_EOVERLOAD)
            room.refused++;
        else
            CHECK_OK(r);
        if (r == 0) room.spawned++;
    }
    return 0;
}

static int fill_from_both(enum weir_overflow overflow)
{
    weir_scope *spawners;
    int count = 3;

    rt_begin();
    memset(&room, 0, sizeof room);
    room.alive_max = 1 + (int)weir_sim_choose(2);
    room.scope = open_scope((size_t)room.alive_max, overflow);
    spawners = open_scope(2, WEIR_REJECT);
    for (int worker = 0; worker < 2; worker++) {
        weir_task_spec spec = on_worker(worker, fill, &count, sizeof count);
        CHECK_OK(weir_task_spawn(spawners, &spec, NULL));
    }
    CHECK_OK(weir_scope_close(spawners));
    CHECK_OK(weir_scope_close(room.scope));
    CHECK_INT(room.alive, ==, 0);
    CHECK_INT(room.ran, ==, room.spawned);
    CHECK_INT(room.spawned + room.refused, ==, 2 * count);
    CHECK_INT(rt_ms(), ==, 0);
    return 0;
}

int rt_program_slots(void *arg)
{
    (void)arg;
    (void)fill_from_both(WEIR_WAIT);
    CHECK_INT(room.refused, ==, 0);
    return 0;
}

SIM_TEST(rt_spawners_wait_for_room, .runs_max = 20000, .config = &rt_two_workers,
         .invariants = {{.name = "room is kept", .holds = room_is_kept}})
{
    return rt_program_slots(arg);
}

SIM_TEST(rt_full_scope_rejects, .runs_max = 20000, .config = &rt_two_workers,
         .invariants = {{.name = "room is kept", .holds = room_is_kept}})
{
    return fill_from_both(WEIR_REJECT);
}

/* Room that was granted to a spawner in the moment of a cancel is given back. */
static int take_room_or_give_way(void *arg)
{
    int r;

    (void)arg;
    room.alive++;
    r = weir_yield();
    room.alive--;
    room.ran++;
    return r;
}

static int fill_until_cancelled(void *arg)
{
    int r = 0;

    (void)arg;
    for (int i = 0; i < 3 && r == 0; i++) {
        r = weir_spawn(room.scope, take_room_or_give_way, NULL, 0);
        if (r == 0) room.spawned++;
    }
    CHECK(r == 0 || r == WEIR_ECANCELED);
    return r;
}

int rt_program_slots_cancelled(void *arg)
{
    weir_task_spec spec = on_worker(1, fill_until_cancelled, NULL, 0);
    weir_scope *spawners;
    int r;

    (void)arg;
    rt_begin();
    memset(&room, 0, sizeof room);
    room.alive_max = 1;
    room.scope = open_scope(1, WEIR_WAIT);
    spawners = open_scope(2, WEIR_REJECT);
    CHECK_OK(weir_task_spawn(spawners, &spec, NULL));
    for (unsigned n = weir_sim_choose(4); n > 0; n--) CHECK_OK(weir_yield());
    weir_scope_cancel(room.scope, 0, "no more");
    r = weir_scope_close(spawners);
    CHECK(r == 0 || r == WEIR_ECANCELED);
    CHECK_INT(weir_scope_close(room.scope), ==, 0);
    CHECK_INT(room.ran, ==, room.spawned);
    CHECK_INT(rt_ms(), ==, 0);
    return 0;
}

SIM_TEST(rt_room_is_given_back_at_a_cancel, .runs_max = 20000, .config = &rt_two_workers,
         .invariants = {{.name = "room is kept", .holds = room_is_kept}})
{
    return rt_program_slots_cancelled(arg);
}

/* ---- No memory ---- */

const weir_config rt_few_tasks = {.workers = 1, .max_tasks = 2};

static int do_nothing(void *arg)
{
    (void)arg;
    return 0;
}

/* A spawn that failed has taken nothing: the last task that there is room for can still be made. */
int rt_program_credit(void *arg)
{
    weir_scope *scope = NULL;
    int r;

    (void)arg;
    do {
        r = weir_scope_open(
            &(weir_scope_spec){
                .name = "few", .on_failure = WEIR_FAIL_FAST, .max_tasks = 1, .overflow = WEIR_WAIT},
            &scope);
        CHECK(r == 0 || r == -ENOMEM);
    } while (r < 0);
    for (int i = 0; i < 3; i++) {
        do {
            r = weir_spawn(scope, do_nothing, NULL, 0);
            CHECK(r == 0 || r == -ENOMEM);
        } while (r < 0);
        CHECK_OK(weir_scope_join(scope));
    }
    CHECK_OK(weir_scope_close(scope));
    return 0;
}

/* ---- Locals ---- */

static const weir_local_key request = {"request"};

static int inherit(void *arg)
{
    int depth = *(int *)arg;
    const int *value = weir_local_get(&request);
    int own = 100 + depth, r = 0;

    CHECK(value != NULL);
    CHECK_INT(*value, ==, 101 + depth);
    CHECK_OK(weir_local_set(&request, &own, sizeof own));
    WEIR_SCOPE(scope, &r, .name = "below", .on_failure = WEIR_FAIL_FAST, .max_tasks = 2,
               .overflow = WEIR_REJECT) {
        int below = depth - 1;
        for (int i = 0; i < 2 && depth > 0; i++) {
            CHECK_OK(weir_spawn(scope, inherit, &below, sizeof below));
        }
    }
    value = weir_local_get(&request);
    CHECK_INT(*value, ==, own);
    return r;
}

int rt_program_locals(void *arg)
{
    int depth = 2, value = 103;

    (void)arg;
    CHECK_OK(weir_local_set(&request, &value, sizeof value));
    return inherit(&depth);
}

SIM_TEST(rt_locals_are_inherited_and_released, .runs_max = 10000, .config = &rt_two_workers)
{
    return rt_program_locals(arg);
}

/* ---- Exhaustive ---- */

static int order[3], order_count;

static int step(void *arg)
{
    order[order_count++] = *(int *)arg;
    CHECK_OK(weir_yield());
    return 0;
}

static int three_in_any_order(void *arg)
{
    weir_scope *scope = open_scope(3, WEIR_REJECT);

    (void)arg;
    order_count = 0;
    for (int i = 1; i <= 3; i++) CHECK_OK(weir_spawn(scope, step, &i, sizeof i));
    CHECK_OK(weir_scope_close(scope));
    CHECK_INT(order_count, ==, 3);
    CHECK_INT(order[0] + order[1] + order[2], ==, 6);
    CHECK_INT(order[0] * order[1] * order[2], ==, 6);
    return 0;
}

TEST_WITH(rt_all_orders_of_three_tasks_are_seen, .timeout_ms = 60000)
{
    weir_sim_result result;

    test_sim(&(weir_sim_spec){.name = "all orders",
                              .runs_max = 2000000,
                              .strategies = WEIR_SIM_EXHAUSTIVE,
                              .departures_max = 3,
                              .ret_result = &result},
             three_in_any_order, NULL);
    CHECK(result.complete);
    CHECK_INT(result.distinct, ==, result.runs);
    CHECK_INT(result.runs, >=, 6);
}

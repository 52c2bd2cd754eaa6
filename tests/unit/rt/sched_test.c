/* sched_test.c - whom a worker runs: nobody who is ready starves, whatever the load.
 *
 * Turns are counted, not time: while the hungry one gets its N turns, the hogs may
 * have no more than a bounded multiple of that.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "rt/pollable.h"
#include "rt/runtime.h"
#include "unit/rt/support.h"

enum {
    HOGS = 8,
    MEALS = 200,         /* turns of the hungry one */
    TURNS_PER_MEAL = 600 /* of all hogs together: two full turns of a worker */
};

struct table {
    weir_scope *scope;
    ATOM(int) hog_turns;
    ATOM(int) done;
};

static int hog(void *arg)
{
    struct table *table = *(struct table **)arg;

    while (!atom_load(&table->done)) {
        CHECK_OK(weir_yield());
        (void)atom_add(&table->hog_turns, 1);
    }
    return 0;
}

/* They are at it: another worker may have taken them, and be slow to begin. */
static void await_hogs(struct table *table)
{
    while (atom_load(&table->hog_turns) == 0) CHECK_OK(weir_yield());
}

static void start_hogs(struct table *table)
{
    for (int i = 0; i < HOGS; i++) CHECK_OK(weir_spawn(table->scope, hog, &table, sizeof table));
    await_hogs(table);
}

/* With a second worker the hogs there run on while the kernel does not let our thread
 * run, so turns are compared on one worker only; on two, to get through is the test. */
static void check_fed(struct table *table, int turns_before, int turns_per_meal)
{
    CHECK_INT(atom_load(&table->hog_turns), >, 0);
    if (weir_worker_count() > 1) return;
    CHECK_INT(atom_load(&table->hog_turns) - turns_before, <=, MEALS * turns_per_meal);
}

static int finish(struct table *table)
{
    atom_store(&table->done, 1);
    return weir_scope_close(table->scope);
}

/* ---- Sleepers and timers against ready tasks ---- */

static int sleep_hungrily(void *arg)
{
    struct table *table = *(struct table **)arg;
    int before = atom_load(&table->hog_turns);

    for (int i = 0; i < MEALS; i++) CHECK_OK(weir_sleep(0));
    check_fed(table, before, TURNS_PER_MEAL);
    atom_store(&table->done, 1);
    return 0;
}

static int timers_among_hogs(void *arg)
{
    struct table table = {.scope = open_scope("table", WEIR_FAIL_FAST)};
    struct table *pointer = &table;

    (void)arg;
    start_hogs(&table);
    CHECK_OK(weir_task_spawn(table.scope,
                             &(weir_task_spec){.fn = sleep_hungrily,
                                               .arg = &pointer,
                                               .arg_bytes = sizeof pointer,
                                               .place = WEIR_PLACE_HERE},
                             NULL));
    return weir_scope_close(table.scope);
}

TEST(ready_tasks_do_not_starve_timers)
{
    CHECK_OK(run_on(1, timers_among_hogs, NULL));
    CHECK_OK(run_on(2, timers_among_hogs, NULL));
}

struct storm {
    ATOM(int) fired;
    ATOM(int) done;
};

static void fire_again(weir_timer *timer, void *arg)
{
    struct storm *storm = arg;

    (void)atom_add(&storm->fired, 1);
    if (!atom_load(&storm->done)) weir_timer_start(timer, 0);
}

/* Each timer fires once at most between two turns of the task. */
static void yield_in_a_storm(weir_scope *scope, struct storm *storm, weir_timer_fn on_fire,
                             int timers, int yields)
{
    for (int i = 0; i < timers; i++) {
        weir_timer *timer;

        CHECK_OK(weir_timer_open(
            scope, &(weir_timer_spec){.name = "s", .on_fire = on_fire, .keep_arg = storm}, &timer));
        weir_timer_start(timer, 0);
    }
    for (int i = 0; i < yields; i++) {
        int before = atom_load(&storm->fired);

        CHECK_OK(weir_yield());
        CHECK_INT(atom_load(&storm->fired) - before, <=, timers);
    }
}

static int task_in_a_storm(void *arg)
{
    enum { TIMERS = 5000 };
    struct storm storm = {0};
    weir_scope *scope = open_scope("storm", WEIR_FAIL_FAST);

    (void)arg;
    yield_in_a_storm(scope, &storm, fire_again, TIMERS, MEALS);
    CHECK_OK(weir_sleep(0)); /* a timer among the timers */
    CHECK_INT(atom_load(&storm.fired), >, 0);
    atom_store(&storm.done, 1);
    return weir_scope_close(scope);
}

TEST(timers_that_always_fire_do_not_starve_tasks)
{
    CHECK_OK(run_on(1, task_in_a_storm, NULL));
}

/* The same when one turn's timers take longer than a whole turn should. */
static void fire_slowly(weir_timer *timer, void *arg)
{
    test_clock_advance_ns(10000);
    fire_again(timer, arg);
}

static int task_among_slow_timers(void *arg)
{
    enum { TIMERS = 2000, YIELDS = 400 }; /* for some turns: the first has 256 tasks, the next 64 */
    struct storm storm = {0};
    weir_scope *scope = open_scope("storm", WEIR_FAIL_FAST);

    (void)arg;
    yield_in_a_storm(scope, &storm, fire_slowly, TIMERS, YIELDS);
    atom_store(&storm.done, 1);
    return weir_scope_close(scope);
}

TEST(timers_that_take_longer_than_a_turn_do_not_starve_tasks)
{
    test_clock_manual();
    CHECK_OK(run_on(1, task_among_slow_timers, NULL));
}

/* ---- Unstarted tasks against ready ones ---- */

static int spawn_successor(void *arg)
{
    struct {
        struct table *table;
        int spawned;
    } *given = arg;

    (void)atom_add(&given->table->hog_turns, 1);
    if (atom_load(&given->table->done)) return 0;
    return weir_spawn(given->table->scope, spawn_successor, given, sizeof *given);
}

/* Each ends at once and leaves a fresh one behind: the fresh queue is never empty. */
static int yield_among_fresh(void *arg)
{
    struct table table = {.scope = open_scope("table", WEIR_FAIL_FAST)};
    struct {
        struct table *table;
        int spawned;
    } given = {&table, 0};
    int before;

    (void)arg;
    for (int i = 0; i < HOGS; i++)
        CHECK_OK(weir_spawn(table.scope, spawn_successor, &given, sizeof given));
    await_hogs(&table);
    before = atom_load(&table.hog_turns);
    for (int i = 0; i < MEALS; i++) CHECK_OK(weir_yield());
    check_fed(&table, before, TURNS_PER_MEAL);
    return finish(&table);
}

TEST(fresh_tasks_do_not_starve_ready_ones)
{
    CHECK_OK(run_on(1, yield_among_fresh, NULL));
    CHECK_OK(run_on(2, yield_among_fresh, NULL));
}

static int do_nothing(void *arg)
{
    (void)arg;
    return 0;
}

static int join_among_hogs(void *arg)
{
    struct table table = {.scope = open_scope("table", WEIR_FAIL_FAST)};
    int before;

    (void)arg;
    start_hogs(&table);
    before = atom_load(&table.hog_turns);
    for (int i = 0; i < MEALS; i++) {
        weir_task task = spawn_task(table.scope, "fresh", do_nothing, NULL, 0);

        CHECK_OK(weir_task_join(task, NULL));
    }
    check_fed(&table, before, TURNS_PER_MEAL);
    return finish(&table);
}

TEST(ready_tasks_do_not_starve_fresh_ones)
{
    CHECK_OK(run_on(1, join_among_hogs, NULL));
    CHECK_OK(run_on(2, join_among_hogs, NULL));
}

/* ---- Mail against ready tasks ---- */

static int eat(void *arg)
{
    (void)atom_add(*(ATOM(int) **)arg, 1);
    return 0;
}

struct foreign {
    weir_postbox *box;
    int posted;
    ATOM(int) eaten;
    ATOM(int) over;
};

/* One post after the other, each only when the one before has run. */
static void *post_one_by_one(void *arg)
{
    struct foreign *foreign = arg;
    ATOM(int) *pointer = &foreign->eaten;

    while (foreign->posted < MEALS && (foreign->posted == 0 || !test_late())) {
        CHECK_OK(weir_post(foreign->box, eat, &pointer, sizeof pointer));
        foreign->posted++;
        while (atom_load_acquire(&foreign->eaten) < foreign->posted) sched_yield();
    }
    atom_store(&foreign->over, 1);
    return NULL;
}

static int posts_among_hogs(void *arg)
{
    struct table table = {.scope = open_scope("table", WEIR_FAIL_FAST)};
    struct foreign foreign = {0};
    pthread_t thread;

    (void)arg;
    CHECK_OK(weir_postbox_open(
        table.scope, &(weir_postbox_spec){.name = "box", .capacity = 4, .overflow = WEIR_REJECT},
        &foreign.box));
    start_hogs(&table);
    CHECK_INT(pthread_create(&thread, NULL, post_one_by_one, &foreign), ==, 0);
    await_flag(&foreign.over); /* the test's timeout is the bound: the thread has its own pace */
    CHECK_INT(pthread_join(thread, NULL), ==, 0);
    CHECK_INT(atom_load(&foreign.eaten), ==, foreign.posted);
    weir_postbox_unref(foreign.box);
    return finish(&table);
}

TEST(ready_tasks_do_not_starve_posts)
{
    CHECK_OK(run_on(1, posts_among_hogs, NULL));
    CHECK_OK(run_on(2, posts_among_hogs, NULL));
}

/* ---- Descriptors against ready tasks ---- */

static const struct wait_kind wait_pipe = {
    .name = "pipe",
    .abort = pollable_abort,
    .describe = pollable_describe,
};

struct pipes {
    struct table *table;
    int in;
    int out;
    bool serves;
};

/* Throw one byte to and fro; each catch is a wait for the descriptor. */
static int play_ping_pong(void *arg)
{
    struct pipes *pipes = arg;
    struct pollable *pollable;
    int before = atom_load(&pipes->table->hog_turns);
    char byte = 'x';

    CHECK_OK(pollable_new(pipes->in, &pollable));
    for (int i = 0; i < MEALS; i++) {
        if (pipes->serves) CHECK_INT(write(pipes->out, &byte, 1), ==, 1);
        while (read(pipes->in, &byte, 1) != 1) {
            CHECK_INT(errno, ==, EAGAIN);
            CHECK_OK(pollable_wait(pollable, READY_IN, &wait_pipe));
        }
        if (!pipes->serves) CHECK_INT(write(pipes->out, &byte, 1), ==, 1);
    }
    pollable_free(pollable, "the test");
    if (pipes->serves) {
        check_fed(pipes->table, before, 2 * TURNS_PER_MEAL); /* there and back */
        atom_store(&pipes->table->done, 1);
    }
    return 0;
}

static int descriptors_among_hogs(void *arg)
{
    struct table table = {.scope = open_scope("table", WEIR_FAIL_FAST)};
    const struct kernel *kernel = kernel_current();
    int there[2], back[2];

    (void)arg;
    CHECK_OK(kernel->pipe(kernel, there));
    CHECK_OK(kernel->pipe(kernel, back));
    start_hogs(&table);
    CHECK_OK(weir_spawn(table.scope, play_ping_pong,
                        (&(struct pipes){&table, back[0], there[1], true}), sizeof(struct pipes)));
    CHECK_OK(weir_spawn(table.scope, play_ping_pong,
                        (&(struct pipes){&table, there[0], back[1], false}), sizeof(struct pipes)));
    CHECK_OK(weir_scope_close(table.scope));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(kernel->close(kernel, there[i]));
        CHECK_OK(kernel->close(kernel, back[i]));
    }
    return 0;
}

TEST(ready_tasks_do_not_starve_descriptors)
{
    CHECK_OK(run_on(1, descriptors_among_hogs, NULL));
    CHECK_OK(run_on(2, descriptors_among_hogs, NULL));
}

/* ---- A blocked worker ---- */

static int block_worker(void *arg)
{
    struct table *table = *(struct table **)arg;

    while (!atom_load_acquire(&table->done)) sched_yield(); /* never suspends */
    return 0;
}

static int count_down(void *arg)
{
    struct {
        struct table *table;
        ATOM(int) * left;
    } *given = arg;

    if (atom_sub(given->left, 1) == 1) atom_store(&given->table->done, 1);
    return 0;
}

/* The blocked worker ends only when tasks that were spawned there have all run. */
static int spawn_and_block(void *arg)
{
    struct table table = {.scope = open_scope("table", WEIR_FAIL_FAST)};
    struct table *pointer = &table;
    ATOM(int) left = 500;
    struct {
        struct table *table;
        ATOM(int) * left;
    } given = {&table, &left};

    (void)arg;
    for (int i = 0; i < 500; i++)
        CHECK_OK(weir_spawn(table.scope, count_down, &given, sizeof given));
    block_worker(&pointer);
    CHECK_OK(weir_scope_close(table.scope));
    CHECK_INT(atom_load(&left), ==, 0);
    return 0;
}

TEST(blocked_workers_unstarted_tasks_run_elsewhere)
{
    for (int i = 0; i < 20; i++) CHECK_OK(run_on(2, spawn_and_block, NULL));
    CHECK_OK(run_on(4, spawn_and_block, NULL));
}

/* ---- Many ---- */

static int fan_out(void *arg)
{
    int depth = *(int *)arg - 1;
    int r = 0;

    if (depth < 0) return 0;
    WEIR_SCOPE(scope, &r, .name = "fan", .on_failure = WEIR_FAIL_FAST, .max_tasks = 10,
               .overflow = WEIR_WAIT) {
        for (int i = 0; i < 10; i++) CHECK_OK(weir_spawn(scope, fan_out, &depth, sizeof depth));
    }
    return r;
}

TEST_WITH(tree_of_tasks_runs_on_any_number_of_workers, .timeout_ms = 60000)
{
    int depth = TEST_SLOW ? 3 : 4;

    for (int workers = 1; workers <= 4; workers++) CHECK_OK(run_on(workers, fan_out, &depth));
}

/* ---- Suspending ---- */

static int take_turns(void *arg)
{
    struct {
        ATOM(int) * order;
        int id;
    } *given = arg;

    for (int i = 0; i < 10; i++) {
        /* Round robin: everybody has had as many turns as we. */
        CHECK_INT(given->order[0]++ % 4, ==, given->id);
        CHECK_OK(weir_yield());
    }
    return 0;
}

static int yield_round(void *arg)
{
    ATOM(int) turns = 0;
    weir_scope *scope = open_scope("round", WEIR_FAIL_FAST);

    (void)arg;
    for (int i = 0; i < 4; i++) {
        struct {
            ATOM(int) * order;
            int id;
        } given = {&turns, i};

        CHECK_OK(weir_spawn(scope, take_turns, &given, sizeof given));
    }
    CHECK_OK(weir_scope_close(scope));
    CHECK_INT(turns, ==, 40);
    return 0;
}

TEST(yield_lets_every_other_ready_task_run_once)
{
    CHECK_OK(run_on(1, yield_round, NULL));
}

static int count_turns(void *arg)
{
    ATOM(int) *turns = *(ATOM(int) **)arg;

    for (;;) {
        int r = weir_yield();

        if (r < 0) return r;
        ++*turns;
    }
}

static int checkpoint_in_a_loop(void *arg)
{
    ATOM(int) turns = 0;
    ATOM(int) *pointer = &turns;
    weir_scope *scope = open_scope("budget", WEIR_FAIL_FAST);

    (void)arg;
    CHECK_OK(weir_spawn(scope, count_turns, &pointer, sizeof pointer));
    CHECK_OK(weir_yield());
    for (int round = 0; round < 5; round++) {
        int before = turns;
        int calls = 0;

        while (turns == before) {
            CHECK_OK(weir_checkpoint());
            CHECK_INT(++calls, <=, TASK_BUDGET + 1);
        }
    }
    /* It is a budget, not a yield at each call. */
    CHECK_OK(weir_yield());
    {
        int before = turns;

        for (int i = 0; i < TASK_BUDGET / 2; i++) CHECK_OK(weir_checkpoint());
        CHECK_INT(turns, ==, before);
    }
    weir_scope_cancel(scope, 0, "seen enough");
    return weir_scope_close(scope);
}

TEST(task_that_never_waits_lets_its_neighbour_run_within_its_budget)
{
    CHECK_OK(run_on(1, checkpoint_in_a_loop, NULL));
}

/* The neighbour must get on although a cancelled task goes on and on. */
static int ignore_cancel(void *arg)
{
    ATOM(int) *neighbour = *(ATOM(int) **)arg;
    int calls = 0;

    while (*neighbour < 100 || calls < 5000) {
        CHECK_INT(weir_checkpoint(), ==, WEIR_ECANCELED);
        calls++;
    }
    return WEIR_ECANCELED;
}

static int count_shielded(void *arg)
{
    ATOM(int) *turns = *(ATOM(int) **)arg;

    WEIR_SHIELD(10000) {
        while (*turns < 100) {
            CHECK_OK(weir_yield());
            ++*turns;
        }
    }
    return 0;
}

static int with_an_ignorer(void *arg)
{
    ATOM(int) turns = 0;
    ATOM(int) *pointer = &turns;
    weir_scope *scope = open_scope("ignored", WEIR_FAIL_FAST);

    (void)arg;
    spawn_task(scope, "deaf", ignore_cancel, &pointer, sizeof pointer);
    spawn_task(scope, "neighbour", count_shielded, &pointer, sizeof pointer);
    weir_scope_cancel(scope, 0, "not heard");
    return weir_scope_close(scope);
}

TEST(task_that_ignores_its_cancellation_is_reported_once_and_starves_nobody)
{
    struct capture capture;

    CHECK_OK(run_logged(1, WEIR_LOG_WARNING, &capture, with_an_ignorer, NULL));
    CHECK_INT(capture_count(&capture, WEIR_LOG_WARNING, "deaf", "since it was cancelled"), ==, 1);
    CHECK_INT(capture.count, ==, 1);
}

/* ---- Time that passes inside of tasks ---- */

/* Stands for a long computation: the task keeps the worker, and time passes. */
static void compute(void)
{
    test_clock_advance_ms(1);
}

static void set_flag(weir_timer *timer, void *arg)
{
    (void)timer;
    *(int *)arg = 1;
}

static int compute_between_checkpoints(void *arg)
{
    weir_scope *scope = open_scope("computing", WEIR_FAIL_FAST);
    int fired = 0, calls = 0, r = 0;
    weir_timer *timer;

    (void)arg;
    CHECK_OK(weir_timer_open(
        scope, &(weir_timer_spec){.name = "t", .on_fire = set_flag, .keep_arg = &fired}, &timer));
    weir_timer_start(timer, 20);
    while (!fired) {
        compute();
        CHECK_OK(weir_checkpoint());
        CHECK_INT(++calls, <=, 2 * TASK_BUDGET);
    }
    WEIR_DEADLINE(20) {
        for (calls = 0; (r = weir_checkpoint()) == 0; calls++) {
            compute();
            CHECK_INT(calls, <=, 2 * TASK_BUDGET);
        }
    }
    CHECK_INT(r, ==, WEIR_ETIMEDOUT);
    return weir_scope_close(scope);
}

TEST(computing_between_checkpoints_starves_neither_timers_nor_deadlines)
{
    test_clock_manual();
    CHECK_OK(run_on(1, compute_between_checkpoints, NULL));
}

struct punctual {
    int64_t due_ns;
    int64_t latest_ns;
    int fired;
};

static void note_lateness(weir_timer *timer, void *arg)
{
    struct punctual *punctual = arg;
    int64_t late_ns = test_clock_now_ns() - punctual->due_ns;

    /* By the first time the worker has learned how slow its tasks are. */
    if (punctual->fired++ > 0 && late_ns > punctual->latest_ns) punctual->latest_ns = late_ns;
    punctual->due_ns = test_clock_now_ns() + 5 * 1000000;
    weir_timer_start(timer, 5);
}

static int compute_and_yield(void *arg)
{
    const struct punctual *punctual = *(struct punctual **)arg;

    while (punctual->fired < 20) {
        compute();
        CHECK_OK(weir_yield());
    }
    return 0;
}

static int timer_among_slow_tasks(void *arg)
{
    struct punctual punctual = {0};
    struct punctual *pointer = &punctual;
    weir_scope *scope = open_scope("slow", WEIR_FAIL_FAST);
    weir_timer *timer;

    (void)arg;
    CHECK_OK(weir_timer_open(
        scope, &(weir_timer_spec){.name = "t", .on_fire = note_lateness, .keep_arg = &punctual},
        &timer));
    weir_timer_start(timer, 5);
    for (int i = 0; i < 200; i++)
        CHECK_OK(weir_spawn(scope, compute_and_yield, &pointer, sizeof pointer));
    CHECK_OK(weir_scope_close(scope));
    CHECK_INT(punctual.latest_ns, <=, 3 * 1000000); /* three tasks, of 200 */
    return 0;
}

TEST(slow_tasks_do_not_starve_timers)
{
    test_clock_manual();
    CHECK_OK(run_on(1, timer_among_slow_tasks, NULL));
}

struct checkpointer {
    ATOM(int) started;
    ATOM(int) cancelled;
};

static int count_checkpoints_after_cancel(void *arg)
{
    struct checkpointer *checkpointer = *(struct checkpointer **)arg;
    int calls = 0, r;

    atom_store_release(&checkpointer->started, 1);
    while ((r = weir_checkpoint()) == 0)
        if (atom_load_acquire(&checkpointer->cancelled)) calls++;
    /* One turn of its worker is over after a few budgets. */
    CHECK_INT(calls, <=, 8 * TASK_BUDGET);
    return r;
}

static int cancel_checkpointers(void *arg)
{
    (void)arg;
    for (int i = 0; i < 50 && (i == 0 || !test_late()); i++) {
        struct checkpointer checkpointer = {0};
        struct checkpointer *pointer = &checkpointer;
        weir_scope *scope = open_scope("checkpoints", WEIR_FAIL_FAST);

        spawn_at(scope, 1, "busy", count_checkpoints_after_cancel, &pointer, sizeof pointer);
        await_flag(&checkpointer.started);
        weir_scope_cancel(scope, 0, "enough");
        atom_store_release(&checkpointer.cancelled, 1);
        CHECK_OK(weir_scope_close(scope));
    }
    return 0;
}

TEST(cancel_from_another_worker_reaches_a_busy_task_within_a_few_budgets)
{
    CHECK_OK(run_on(2, cancel_checkpointers, NULL));
}

/* ---- Sleep ---- */

static int sleep_for_ever(void *arg)
{
    (void)arg;
    CHECK_INT(weir_sleep(WEIR_FOREVER), ==, WEIR_ENODEADLINE);
    CHECK_CONTAINS(weir_why(), "task 'main': this wait has no deadline");
    WEIR_DEADLINE(5) CHECK_INT(weir_sleep(WEIR_FOREVER), ==, WEIR_ETIMEDOUT);
    WEIR_NO_DEADLINE("the deadline inside ends it")
        WEIR_DEADLINE(5) CHECK_INT(weir_sleep(WEIR_FOREVER), ==, WEIR_ETIMEDOUT);
    CHECK_OK(weir_sleep(-5));
    CHECK_OK(weir_sleep(0));
    WEIR_DEADLINE(1) CHECK_INT(weir_sleep(WEIR_FOREVER - 1), ==, WEIR_ETIMEDOUT);
    return 0;
}

TEST(sleep_for_ever_needs_a_deadline_or_a_reason)
{
    test_clock_auto();
    CHECK_OK(run_on(1, sleep_for_ever, NULL));
}

static int sleeps_in_order(void *arg)
{
    int64_t start_ns = weir_now_ns();

    (void)arg;
    CHECK_OK(weir_sleep(250));
    CHECK_INT(weir_now_ns() - start_ns, ==, 250 * 1000000);
    CHECK_OK(weir_sleep(3600 * 1000));
    CHECK_INT(weir_now_ns() - start_ns, ==, INT64_C(3600250) * 1000000);
    return 0;
}

TEST(sleep_is_exact_by_the_runtimes_clock)
{
    test_clock_auto();
    CHECK_OK(run_on(1, sleeps_in_order, NULL));
}

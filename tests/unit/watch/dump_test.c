/* dump_test.c - what the dump says about tasks and scopes. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "rt/pollable.h"
#include "rt/runtime.h"
#include "rt/scope.h"
#include "unit/watch/dump_support.h"

/* ---- Backtraces and stacks ---- */

TEST_TASK(dump_shows_where_a_task_sleeps, 1, test_clock_manual)
{
    WEIR_SCOPE(scope, &result, .name = "bed", PLAIN_SCOPE) {
        CHECK_OK(weir_spawn(scope, sleeper, NULL, 0));
        CHECK_OK(weir_yield());
        test_clock_advance_ms(1500);
        take_dump();
        weir_scope_cancel(scope, 0, "seen");
    }
    CHECK_ORDER(
        "weir 0.1.0: runtime 'root', 1 worker, kernel ", ", clock 2.500 s\n",
        "worker 0: running task 'main' (this one); 0 ready, 0 not started, 1 timers",
        "executors: files idle; names idle; processes idle\n",
        "scope 'root': fail fast, 1 task (max unlimited, wait)\n",
        "  task 'main' #1 on worker 0: running (this one); stack ", "      at weir_dump+0x",
        "      at take_dump", "      at dump_shows_where_a_task_sleeps_main",
        "    scope 'bed' opened at ", "dump_test.c:", ": collect, 1 task (max 100, wait)\n",
        "      task 'sleeper' #2 on worker 0: parked 1500 ms in sleep: 58500 ms left; stack ",
        " KiB of ", " KiB (touched ", "          at weir_sleep+0x",
        "          at dump_test_inner+0x", "          at dump_test_outer+0x",
        "          at sleeper+0x");
    check_absent("task_main");
    check_absent("task_park");
    CHECK_INT(text[strlen(text) - 1], ==, '\n');
    return result;
}

/* ---- What tasks wait for ---- */

static const struct wait_kind wait_read = {
    .name = "read",
    .abort = pollable_abort,
    .describe = pollable_describe,
};

static int reader(void *arg)
{
    struct pollable *pollable;
    int fd = *(int *)arg;
    int r;

    CHECK_OK(pollable_new(fd, &pollable));
    r = pollable_wait(pollable, READY_IN, &wait_read);
    pollable_free(pollable, "reader");
    return r;
}

static int joiner(void *arg)
{
    int r = weir_task_join(*(weir_task *)arg, NULL);
    (void)atom_add(&sink, 1);
    return r;
}

static int spawner(void *arg)
{
    int r = weir_spawn(*(weir_scope **)arg, sleeper, NULL, 0);
    (void)atom_add(&sink, 1);
    return r;
}

static int yielder(void *arg)
{
    int r = 0;
    (void)arg;
    while (r == 0) r = weir_yield();
    return r;
}

TEST_TASK(dump_names_every_kind_of_wait, 1, test_clock_manual)
{
    weir_task task;
    int fds[2];
    char part[64];

    CHECK_INT(pipe2(fds, O_CLOEXEC | O_NONBLOCK), ==, 0);
    WEIR_SCOPE(scope, &result, .name = "waits", PLAIN_SCOPE) {
        int full_result;
        WEIR_SCOPE(full, &full_result, .name = "full", .on_failure = WEIR_FAIL_FAST, .max_tasks = 1,
                   .overflow = WEIR_WAIT) {
            CHECK_OK(weir_spawn(full, sleeper, NULL, 0));
            CHECK_OK(
                weir_task_spawn(scope, &(weir_task_spec){.fn = sleeper, .name = "target"}, &task));
            CHECK_OK(weir_spawn(scope, joiner, &task, sizeof task));
            CHECK_OK(weir_spawn(scope, spawner, &full, sizeof full));
            CHECK_OK(weir_spawn(scope, closer, NULL, 0));
            CHECK_OK(weir_spawn(scope, reader, &fds[0], sizeof fds[0]));
            CHECK_OK(weir_spawn(scope, yielder, NULL, 0));
            for (int i = 0; i < 3; i++) CHECK_OK(weir_yield());
            CHECK_OK(weir_spawn(scope, sleeper, NULL, 0));
            take_dump();
            weir_scope_cancel(full, 0, "seen");
            weir_scope_cancel(scope, 0, "seen");
        }
    }
    (void)snprintf(part, sizeof part, "in read: descriptor %d", fds[0]);
    CHECK_ORDER("task 'target' #", "parked 0 ms in sleep: 60000 ms left", "task 'joiner' #",
                "in join: task 'target'", "at weir_task_join+0x", "task 'spawner' #",
                "in spawn: room in scope 'full' (max_tasks 1)", "at weir_spawn_named+0x",
                "at spawner", "task 'closer' #", "in close: scope 'inside', 1 task alive",
                "at weir_scope_close_at+0x", "scope 'inside' opened at ", "task 'reader' #", part,
                "at reader", "task 'yielder' #", ": ready", "at weir_yield+0x", "at yielder+0x",
                "task 'sleeper' #", ": not started\n", "scope 'full' opened at ",
                "1 task (max 1, wait), 1 waiting to spawn");
    CHECK_INT(close(fds[0]) | close(fds[1]), ==, 0);
    return result;
}

/* ---- Blocks ---- */

static int in_blocks(void *arg)
{
    int r = 0;
    (void)arg;
    WEIR_DEADLINE(4000) {
        WEIR_NO_DEADLINE("waits for the tide") {
            WEIR_SHIELD(900) { r = weir_sleep(WEIR_FOREVER); }
        }
    }
    return r;
}

static int timed_out(void *arg)
{
    (void)arg;
    WEIR_DEADLINE(50) {
        WEIR_SHIELD(10000) { (void)!weir_sleep(WEIR_FOREVER); }
    }
    return 0;
}

TEST_TASK(dump_shows_deadlines_shields_and_reasons, 1, test_clock_manual)
{
    WEIR_SCOPE(scope, &result, .name = "blocks", .deadline_ms = 20000, PLAIN_SCOPE) {
        CHECK_OK(weir_spawn(scope, in_blocks, NULL, 0));
        CHECK_OK(weir_spawn(scope, timed_out, NULL, 0));
        CHECK_OK(weir_yield());
        test_clock_advance_ms(150);
        CHECK_OK(weir_sleep(0)); /* a turn, in which the timers fire */
        take_dump();
        test_clock_advance_ms(30000);
    }
    CHECK_ORDER("scope 'blocks' opened at ", "; deadline in 19.8 s\n", "task 'in_blocks'",
                "in sleep", "; deadline in 750 ms", "at weir_sleep", "at in_blocks",
                "          deadline: 3850 ms left (",
                "dump_test.c:", "          no deadline: \"waits for the tide\" (",
                "dump_test.c:", "          shield: 750 ms left (",
                "dump_test.c:", "task 'timed_out'", "          deadline: passed 100 ms ago (",
                "          shield: 9850 ms left (");
    CHECK_INT(result, ==, WEIR_ETIMEDOUT);
    return 0;
}

/* ---- Signals and causes ---- */

static int shielded(void *arg)
{
    (void)arg;
    WEIR_SHIELD(1000) { (void)!weir_sleep(500); }
    return 0;
}

static int ignores(void *arg)
{
    ATOM(bool) *go_on = *(ATOM(bool) **)arg;
    while (*go_on) (void)!weir_yield();
    return WEIR_ECANCELED;
}

static int fails(void *arg)
{
    (void)arg;
    return -EIO;
}

TEST_TASK(dump_shows_cancellation_with_its_cause, 1, test_clock_auto)
{
    ATOM(bool) go_on = true;
    ATOM(bool) *keep = &go_on;

    WEIR_SCOPE(scope, &result, .name = "fragile", .on_failure = WEIR_FAIL_FAST, .max_tasks = 10,
               .overflow = WEIR_REJECT) {
        CHECK_OK(weir_spawn(scope, ignores, &keep, sizeof keep));
        CHECK_OK(weir_spawn(scope, shielded, NULL, 0));
        CHECK_OK(weir_spawn(scope, fails, NULL, 0));
        for (int i = 0; i < 3; i++) (void)!weir_yield();
        take_dump();
        go_on = false;
    }
    CHECK_ORDER("task 'main' #1 on worker 0: running (this one); cancelled by scope 'fragile' ",
                ": task 'fails' failed with EIO", "scope 'fragile' opened at ",
                ": fail fast, 2 tasks (max 10, reject), 1 failure (first EIO), cancelled: task "
                "'fails' failed with EIO\n",
                "task 'ignores' #", ": ready; cancelled by scope 'fragile' opened at ",
                ": task 'fails' failed with EIO (", " failed since)", "task 'shielded' #",
                "parked 0 ms in sleep", "shield: ");
    CHECK(strstr(strstr(text, "task 'shielded'"), "; cancelled") == NULL);
    CHECK_INT(result, ==, -EIO);
    return 0;
}

TEST_TASK(dump_shows_stopping, 1, test_clock_manual)
{
    ATOM(bool) go_on = true;
    ATOM(bool) *keep = &go_on;
    weir_task task;

    WEIR_SCOPE(outer, &result, .name = "outer", PLAIN_SCOPE) {
        int inner_result;
        WEIR_SCOPE(scope, &inner_result, .name = "stopped", PLAIN_SCOPE) {
            CHECK_OK(weir_spawn(scope, sleeper, NULL, 0));
            CHECK_OK(weir_task_spawn(
                scope,
                &(weir_task_spec){
                    .fn = ignores, .arg = &keep, .arg_bytes = sizeof keep, .name = "single"},
                &task));
            CHECK_OK(weir_yield());
            weir_scope_stop(outer, 700);
            CHECK_OK(weir_task_cancel(task, "not needed any more"));
            test_clock_advance_ms(600);
            CHECK_OK(weir_yield());
            take_dump();
            go_on = false;
            weir_scope_cancel(scope, 0, "seen");
        }
    }
    CHECK_ORDER(
        "scope 'outer' opened at ", ", stopping (100 ms of grace left)\n",
        "scope 'stopped' opened at ", ", stopping with its opener\n", "task 'sleeper' #",
        "; stopping; stack", "task 'single' #",
        "; cancelled with task 'single': not needed any more (1 call failed since); stopping");
    return result;
}

/* ---- Supervision ---- */

TEST_TASK(dump_shows_restarts, 1, test_clock_manual)
{
    weir_task ended;

    WEIR_SCOPE(scope, &result, .name = "watched", .on_failure = WEIR_SUPERVISE, .max_tasks = 10,
               .overflow = WEIR_REJECT,
               .restart = {.max_restarts = 3, .window_ms = 5000, .backoff_ms = 250}) {
        CHECK_OK(weir_task_spawn(scope, &(weir_task_spec){.fn = fails, .name = "flaky"}, NULL));
        CHECK_OK(weir_task_spawn(scope, &(weir_task_spec){.fn = closer, .name = "sound"}, &ended));
        CHECK_OK(weir_yield());
        take_dump();
        weir_scope_cancel(scope, 0, "seen");
    }
    CHECK_ORDER(
        "scope 'watched' opened at ",
        ": supervise (max 3 restarts in 5000 ms), 2 tasks (max 10, reject)\n", "task 'flaky' #",
        ": waiting for a restart in 250 ms, failed with EIO; restarted 1 time", "task 'sound' #");
    return result;
}

static int returns(void *arg)
{
    (void)arg;
    return 0;
}

static void on_fire(weir_timer *timer, void *arg)
{
    (void)timer;
    (void)arg;
}

TEST_TASK(dump_shows_timers_and_ended_tasks, 1, test_clock_manual)
{
    weir_timer *timer;
    weir_task task;

    WEIR_SCOPE(scope, &result, .name = "owner", PLAIN_SCOPE) {
        CHECK_OK(
            weir_timer_open(scope, &(weir_timer_spec){.name = "tick", .on_fire = on_fire}, &timer));
        weir_timer_start(timer, 120);
        CHECK_OK(
            weir_task_spawn(scope, &(weir_task_spec){.fn = returns, .name = "done\nfake"}, &task));
        for (int i = 0; i < 60; i++) {
            weir_timer *other;
            CHECK_OK(weir_timer_open(scope, &(weir_timer_spec){.name = "other", .on_fire = on_fire},
                                     &other));
        }
        take_dump();
        CHECK_ORDER("scope 'owner' opened at ", "      timer 'tick', fires in 120 ms\n",
                    "      timer 'other', stopped\n", "      and 11 more", "task 'done?fake' #",
                    ": not started\n");
        CHECK_OK(weir_yield());
        take_dump();
    }
    CHECK_ORDER("scope 'owner' opened at ", "0 tasks (max 100, wait), 1 ended and not joined");
    return result;
}

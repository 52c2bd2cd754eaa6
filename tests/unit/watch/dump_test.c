/* dump_test.c - what the dump says about a running program. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <weir/weir.h>

#include "base/atomic.h"
#include "harness/test.h"
#include "rt/blocking.h"
#include "rt/pollable.h"
#include "rt/runtime.h"
#include "rt/scope.h"

static ATOM(int) sink;
static volatile int64_t long_ms = 60000; /* not a constant to the compiler */

/* ---- Help ---- */

static char text[1024 * 1024]; /* the last dump */
static int result;             /* of a test's scope */

static int open_memory(void)
{
    int fd = memfd_create("dump", MFD_CLOEXEC);
    CHECK_INT(fd, >=, 0);
    return fd;
}

static void read_and_close(int fd)
{
    ssize_t bytes = pread(fd, text, sizeof text - 1, 0);
    CHECK_INT(bytes, >=, 0);
    CHECK_INT(bytes, <, sizeof text - 1);
    text[bytes] = '\0';
    CHECK_INT(close(fd), ==, 0);
}

static __attribute__((noinline)) void take_dump(void)
{
    int fd = open_memory();
    CHECK_OK(weir_dump(fd));
    read_and_close(fd);
}

static void check_absent(const char *part)
{
    if (strstr(text, part)) TEST_FAIL("the dump has '%s':\n%s", part, text);
}

/* The parts are in the text, in this order. */
static void check_order(const char *const *parts)
{
    const char *at = text;

    for (; *parts; parts++) {
        const char *found = strstr(at, *parts);
        if (!found) TEST_FAIL("the dump does not have '%s' there:\n%s", *parts, text);
        at = found + strlen(*parts);
    }
}
#define CHECK_ORDER(...) check_order((const char *const[]){__VA_ARGS__, NULL})

static size_t count_parts(const char *part)
{
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part)) count++;
    return count;
}

static void run_on(int workers, weir_task_fn fn)
{
    CHECK_OK(weir_run(&(weir_config){.workers = workers, .log_level = WEIR_LOG_ERROR}, fn, NULL));
}

/* A test whose body is the first task: it returns 0. */
#define TEST_TASK(name_, workers_, clock_) \
    static int name_##_main(void *arg);    \
    TEST(name_)                            \
    {                                      \
        clock_();                          \
        run_on((workers_), name_##_main);  \
    }                                      \
    static int name_##_main(void *arg __attribute__((unused)))
#define real_clock() (void)0

static void spawn_on(int worker, weir_scope *scope, weir_task_fn fn, const void *arg, size_t bytes)
{
    CHECK_OK(weir_task_spawn(scope,
                             &(weir_task_spec){.fn = fn,
                                               .arg = arg,
                                               .arg_bytes = bytes,
                                               .name = "placed",
                                               .place = WEIR_PLACE_WORKER,
                                               .worker = worker},
                             NULL));
}

#define PLAIN_SCOPE .on_failure = WEIR_COLLECT, .max_tasks = 100, .overflow = WEIR_WAIT

/* ---- Backtraces and stacks ---- */

static __attribute__((noinline)) int dump_test_inner(int64_t ms)
{
    int r = weir_sleep(ms);
    (void)atom_add(&sink, 1);
    return r;
}

static __attribute__((noinline)) int dump_test_outer(int64_t ms)
{
    int r = dump_test_inner(ms);
    (void)atom_add(&sink, 1);
    return r;
}

static int sleeper(void *arg)
{
    int r = dump_test_outer(long_ms);
    (void)arg;
    (void)atom_add(&sink, 1);
    return r;
}

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
        "executors: files idle; names idle\n",
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

static int closer(void *arg)
{
    int r;

    (void)arg;
    WEIR_SCOPE(scope, &r, .name = "inside", PLAIN_SCOPE) {
        CHECK_OK(weir_spawn(scope, sleeper, NULL, 0));
    }
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

/* ---- Orphans ---- */

struct stuck_call {
    struct blocking_call call;
    ATOM(int) * state; /* 1: it runs, 2: it may end, 3: it was discarded */
};

static void stuck_run(struct blocking_call *call)
{
    ATOM(int) *state = container_of(call, struct stuck_call, call)->state;
    atom_store_total(state, 1);
    while (atom_load_total(state) != 2) (void)sched_yield();
}

static void stuck_discard(struct blocking_call *call)
{
    struct stuck_call *stuck = container_of(call, struct stuck_call, call);
    ATOM(int) *state = stuck->state;
    free(stuck);
    atom_store_total(state, 3);
}

static int call_stuck(void *arg)
{
    struct stuck_call *stuck = calloc(1, sizeof *stuck);
    int r;

    CHECK(stuck != NULL);
    stuck->state = *(ATOM(int) **)arg;
    stuck->call.name = "fsync";
    stuck->call.run = stuck_run;
    stuck->call.discard = stuck_discard;
    (void)snprintf(stuck->call.detail, sizeof stuck->call.detail, "fd 7");
    r = blocking_run(&worker_self()->runtime->files, &stuck->call, false);
    CHECK_INT(r, ==, WEIR_ECANCELED);
    return r;
}

TEST_TASK(dump_shows_orphans, 1, real_clock)
{
    ATOM(int) state = 0;
    ATOM(int) *keep = &state;

    WEIR_SCOPE(scope, &result, .name = "calls", PLAIN_SCOPE) {
        CHECK_OK(weir_spawn(scope, call_stuck, &keep, sizeof keep));
        while (atom_load_total(&state) != 1) CHECK_OK(weir_yield());
        take_dump();
        weir_scope_cancel(scope, 0, "enough");
    }
    CHECK_ORDER("executors: files 1/8 threads busy, 0 queued; names idle\n", "task 'call_stuck' #",
                "in blocking call: fsync fd 7");
    take_dump();
    CHECK_ORDER("executors: files 1/8 threads busy, 0 queued, 1 orphan (fsync fd 7, ",
                " ms); names idle\n");
    atom_store_total(&state, 2);
    while (atom_load_total(&state) != 3) CHECK_OK(weir_yield());
    take_dump();
    CHECK_CONTAINS(text, "executors: files idle; names idle\n");
    return result;
}

/* ---- Several workers ---- */

static int spin(void *arg)
{
    ATOM(int) *state = *(ATOM(int) **)arg;
    for (atom_store_total(state, 1); atom_load_total(state) == 1;) atom_pause();
    return 0;
}

TEST_TASK(dump_names_a_busy_worker_and_does_not_look_into_it, 2, real_clock)
{
    ATOM(int) state = 0;
    ATOM(int) *keep = &state;

    WEIR_SCOPE(scope, &result, .name = "mixed", .place = WEIR_PLACE_HERE, PLAIN_SCOPE) {
        CHECK_OK(weir_spawn(scope, sleeper, NULL, 0));
        CHECK_OK(weir_yield());
        spawn_on(1, scope, spin, &keep, sizeof keep);
        while (atom_load_total(&state) != 1) CHECK_OK(weir_yield());
        take_dump();
        atom_store_total(&state, 2);
        weir_scope_cancel(scope, 0, "seen");
    }
    CHECK_ORDER("2 workers", "worker 0: running task 'main' (this one)",
                "worker 1: busy: runs task 'placed' #", " ms, not inspected\n",
                "scope 'mixed' opened at ", ": collect, 2 tasks", "task 'placed' #",
                " on worker 1: not inspected (busy)\n", "task 'sleeper' #", " on worker 0: parked ",
                "at weir_sleep", "at dump_test_inner");
    return result;
}

struct lock_holder {
    ATOM(int) * state;
    weir_scope *scope;
};

static int spin_with_lock(void *arg)
{
    const struct lock_holder *holder = arg;
    (void)pthread_mutex_lock(&holder->scope->lock.mutex);
    (void)spin(&(ATOM(int) *){holder->state});
    (void)pthread_mutex_unlock(&holder->scope->lock.mutex);
    return 0;
}

TEST_TASK(dump_does_not_wait_for_a_lock, 2, real_clock)
{
    ATOM(int) state = 0;

    WEIR_SCOPE(scope, &result, .name = "locked", PLAIN_SCOPE) {
        struct lock_holder holder = {.state = &state, .scope = scope};
        spawn_on(1, scope, spin_with_lock, &holder, sizeof holder);
        while (atom_load_total(&state) != 1) CHECK_OK(weir_yield());
        take_dump();
        atom_store_total(&state, 2);
    }
    CHECK_ORDER("scope 'locked' opened at ", ": collect, not inspected (its lock is held)\n");
    return result;
}

static int sleeps_on_other(void *arg)
{
    int r;
    atom_store_total(*(ATOM(int) **)arg, 1);
    r = dump_test_outer(long_ms);
    (void)atom_add(&sink, 1);
    return r;
}

TEST_TASK(dump_looks_into_tasks_of_other_workers, 2, real_clock)
{
    ATOM(int) state = 0;
    ATOM(int) *keep = &state;

    WEIR_SCOPE(scope, &result, .name = "far", PLAIN_SCOPE) {
        spawn_on(1, scope, sleeps_on_other, &keep, sizeof keep);
        while (atom_load_total(&state) != 1) CHECK_OK(weir_yield());
        take_dump(); /* stands still between two tasks, so it is parked by then */
        weir_scope_cancel(scope, 0, "seen");
    }
    CHECK_ORDER("worker 1: idle; 0 ready, 0 not started, 1 timers", "task 'placed' #",
                " on worker 1: parked ", "at weir_sleep", "at dump_test_inner",
                "at dump_test_outer", "at sleeps_on_other");
    return result;
}

static int dumps_too(void *arg)
{
    int fd = *(int *)arg;
    for (int i = 0; i < 20; i++) {
        CHECK_OK(weir_dump(fd));
        CHECK_OK(weir_yield());
    }
    return 0;
}

static int short_lived(void *arg)
{
    int left = *(int *)arg;
    int r;

    if (left == 0) return weir_yield();
    left--;
    WEIR_SCOPE(scope, &r, .name = "short", PLAIN_SCOPE) {
        for (int i = 0; i < 3; i++) CHECK_OK(weir_spawn(scope, short_lived, &left, sizeof left));
        WEIR_DEADLINE(5000) { CHECK_OK(weir_yield()); }
    }
    return r;
}

/* Two tasks dump at a time while others come and go on both workers. */
TEST_TASK(dump_while_tasks_come_and_go, 2, real_clock)
{
    int depth = 6;
    int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);

    CHECK_INT(fd, >=, 0);
    WEIR_SCOPE(scope, &result, .name = "storm", PLAIN_SCOPE) {
        for (int i = 0; i < 2; i++) {
            CHECK_OK(weir_spawn(scope, short_lived, &depth, sizeof depth));
            spawn_on(i, scope, dumps_too, &fd, sizeof fd);
        }
    }
    CHECK_INT(close(fd), ==, 0);
    return result;
}

/* ---- Bounds ---- */

TEST_TASK(dump_counts_what_is_too_much, 1, real_clock)
{
    /* ThreadSanitizer has no room for as many tasks. */
    int count = TEST_SANITIZED ? 1000 : 10000;
    char part[96];

    WEIR_SCOPE(scope, &result, .name = "crowd", .on_failure = WEIR_COLLECT, .max_tasks = 20000,
               .overflow = WEIR_WAIT) {
        for (int i = 0; i < count - 1; i++) CHECK_OK(weir_spawn(scope, sleeper, NULL, 0));
        CHECK_OK(weir_spawn(scope, closer, NULL, 0));
        CHECK_OK(weir_yield());
        CHECK_OK(weir_spawn(scope, sleeper, NULL, 0));
        take_dump();
        weir_scope_cancel(scope, 0, "seen");
    }
    CHECK_INT(count_parts("      task 'sleeper' #"), ==, 200);
    (void)snprintf(part, sizeof part,
                   "\n      and %d more (%d parked in sleep, 1 parked in close, 1 not started)\n",
                   count - 199, count - 201);
    CHECK_CONTAINS(text, part);
    return result;
}

static int nest(void *arg)
{
    int level = *(int *)arg;
    char name[32];
    int r;

    if (level == 0) {
        take_dump();
        CHECK_ORDER("scope 'level 70' opened", "scope 'level 8' opened", "scope 'level 7' opened",
                    ", not inspected (nested too deeply)\n");
        check_absent("scope 'level 6'");
        return 0;
    }
    (void)snprintf(name, sizeof name, "level %d", level);
    level--;
    WEIR_SCOPE(scope, &r, .name = name, PLAIN_SCOPE) {
        CHECK_OK(weir_spawn(scope, nest, &level, sizeof level));
    }
    return r;
}

TEST_TASK(dump_of_deeply_nested_scopes_ends, 1, real_clock)
{
    int levels = 70;
    return nest(&levels);
}

static int many_blocks(void *arg)
{
    int left = *(int *)arg - 1;
    int r = 0;
    if (left < 0) return weir_sleep(long_ms);
    WEIR_DEADLINE(100000) {
        r = many_blocks(&left);
        (void)atom_add(&sink, 1);
    }
    return r;
}

TEST_TASK(dump_of_many_blocks_ends, 1, real_clock)
{
    WEIR_SCOPE(scope, &result, .name = "deep", .stack_bytes = 1024 * 1024, PLAIN_SCOPE) {
        CHECK_OK(weir_spawn(scope, many_blocks, &(int){1200}, sizeof(int)));
        CHECK_OK(weir_yield());
        take_dump();
        weir_scope_cancel(scope, 0, "seen");
    }
    CHECK_INT(count_parts(" deadline: "), ==, 1000);
    CHECK_CONTAINS(text, "and more blocks, not shown\n");
    CHECK_CONTAINS(text, "at ... (more than 32 frames)\n");
    return result;
}

static int dump_here(void *arg)
{
    int r = weir_dump(*(int *)arg);
    (void)atom_add(&sink, 1);
    return r;
}

TEST_TASK(dump_fits_on_the_smallest_stack, 1, real_clock)
{
    int fd = open_memory();

    WEIR_SCOPE(scope, &result, .name = "small", .stack_bytes = WEIR_STACK_BYTES_MIN, PLAIN_SCOPE) {
        CHECK_OK(weir_spawn(scope, sleeper, NULL, 0));
        CHECK_OK(weir_spawn(scope, dump_here, &fd, sizeof fd));
        CHECK_OK(weir_yield());
        weir_scope_cancel(scope, 0, "seen");
    }
    read_and_close(fd);
    CHECK_ORDER("scope 'small'", "task 'dump_here' #", "running (this one)", "at weir_dump",
                "at dump_here");
    return result;
}

/* ---- Errors ---- */

TEST(dump_outside_a_runtime_is_refused)
{
    CHECK_INT(weir_dump(STDERR_FILENO), ==, WEIR_ENOTASK);
    CHECK_CONTAINS(weir_why(), "weir_dump: called outside a task");
}

TEST_TASK(dump_returns_the_error_of_writing, 1, real_clock)
{
    int fds[2];

    CHECK_INT(weir_dump(-1), ==, -EBADF);
    CHECK_INT(pipe2(fds, O_CLOEXEC), ==, 0);
    CHECK_INT(close(fds[0]), ==, 0);
    CHECK_INT(weir_dump(fds[1]), ==, -EPIPE); /* and no SIGPIPE */
    CHECK_INT(close(fds[1]), ==, 0);
    return 0;
}

/* Without memory it is written piece by piece from a buffer that is always there. */
TEST_TASK(dump_survives_a_lack_of_memory, 1, real_clock)
{
    WEIR_SCOPE(scope, &result, .name = "poor", PLAIN_SCOPE) {
        for (int i = 0; i < 50; i++) CHECK_OK(weir_spawn(scope, sleeper, NULL, 0));
        CHECK_OK(weir_yield());
        for (uint64_t n = 1; n <= 3; n++) {
            test_fail_alloc_at(n);
            take_dump();
            CHECK(test_alloc_failed());
            test_fail_alloc_at(0);
            CHECK_ORDER("weir 0.1.0: runtime 'root'", "scope 'poor'", "at dump_test_inner");
            CHECK_INT(count_parts("task 'sleeper' #"), ==, 50);
            CHECK_INT(count_parts("at weir_sleep+0x"), ==, 50);
        }
        weir_scope_cancel(scope, 0, "seen");
    }
    return result;
}

static int leave_open(void *arg)
{
    weir_scope *scope;
    CHECK_OK(weir_scope_open(&(weir_scope_spec){.name = "leaked", PLAIN_SCOPE}, &scope));
    if (*(bool *)arg) weir_scope_stop(NULL, 0);
    return 7;
}

static void leave_open_in_child(void *arg)
{
    (void)!weir_run(&(weir_config){.workers = 1}, leave_open, arg);
}

TEST(dump_comes_with_a_misuse)
{
    bool stop = true;

    CHECK_ABORTS(leave_open_in_child, &stop, "weir_scope_stop: scope is NULL");
    CHECK_ABORTS(leave_open_in_child, &stop, "scope 'leaked' opened at ");
    CHECK_ABORTS(leave_open_in_child, &stop, "at leave_open+0x");
    stop = false;
    CHECK_ABORTS(leave_open_in_child, &stop, "task 'main' returned 7 with scope 'leaked' opened");
    CHECK_ABORTS(leave_open_in_child, &stop, "running (its function has returned 7)");
    CHECK_ABORTS(leave_open_in_child, &stop, "\n    scope 'leaked' opened at ");
}

TEST_TASK(dump_on_request_is_taken_at_a_safe_point, 1, real_clock)
{
    int fd = open_memory();

    runtime_request_dump(fd);
    CHECK_OK(weir_sleep(0));
    read_and_close(fd);
    CHECK_ORDER("worker 0: ", "task 'main' #1 on worker 0: ", "at dump_on_request");
    return 0;
}

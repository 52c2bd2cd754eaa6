/* dump_workers_test.c - the dump of what goes on meanwhile: orphans, other workers. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "rt/blocking.h"
#include "rt/runtime.h"
#include "rt/scope.h"
#include "unit/watch/dump_support.h"

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
    CHECK_ORDER("executors: files 1/8 threads busy, 0 queued; names idle; processes idle\n",
                "task 'call_stuck' #", "in blocking call: fsync fd 7");
    take_dump();
    CHECK_ORDER("executors: files 1/8 threads busy, 0 queued, 1 orphan (fsync fd 7, ",
                " ms); names idle; processes idle\n");
    atom_store_total(&state, 2);
    while (atom_load_total(&state) != 3) CHECK_OK(weir_yield());
    take_dump();
    CHECK_CONTAINS(text, "executors: files idle; names idle; processes idle\n");
    return result;
}

/* ---- Several workers ---- */

static int spin(void *arg)
{
    ATOM(int) *state = *(ATOM(int) **)arg;
    for (atom_store_total(state, 1); atom_load_total(state) == 1;) (void)sched_yield();
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
        WEIR_DEADLINE(600000) { CHECK_OK(weir_yield()); }
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

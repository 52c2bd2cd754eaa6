/* valgrind_test.c - for tests/valgrind/run: valgrind knows the stacks of tasks, and finds what is
 * wrong on them. All of it is hidden: run by name, under valgrind only. */
#include <stdlib.h>

#include "unit/rt/support.h"

enum { TASKS = 3, ROUNDS = 10, FRAME_BYTES = 4000 };

/* Through here, so that no compiler sees what is done to it. */
static char *volatile memory;
static volatile int seen;

static void need_valgrind(void)
{
    if (!sanitize_on_valgrind())
        TEST_SKIP("valgrind does not run this program, or its header was not there");
}

/* ---- Nothing to report: frames of different depth on stacks side by side ---- */

static int fill_and_yield(int depth)
{
    volatile char frame[FRAME_BYTES];
    int r;

    for (int i = 0; i < FRAME_BYTES; i++) frame[i] = (char)(depth + i);
    r = depth > 0 ? fill_and_yield(depth - 1) : weir_yield();
    for (int i = 0; i < FRAME_BYTES; i++) CHECK_INT(frame[i], ==, (char)(depth + i));
    return r;
}

static int yielding(void *arg)
{
    int r = 0;
    for (int i = 0; i < ROUNDS && r == 0; i++) r = fill_and_yield((i + *(int *)arg) % 4);
    return r;
}

static int crowd(void *arg)
{
    int result;

    (void)arg;
    WEIR_SCOPE(scope, &result, .name = "crowd", .on_failure = WEIR_FAIL_FAST, .max_tasks = TASKS,
               .overflow = WEIR_REJECT) {
        for (int i = 0; i < TASKS; i++) CHECK_OK(weir_spawn(scope, yielding, &i, sizeof i));
    }
    return result;
}

TEST_WITH(valgrind_knows_the_stacks, .hidden = true)
{
    need_valgrind();
    CHECK_OK(weir_run(&(weir_config){.workers = test_workers()}, crowd, NULL));
}

/* ---- Controls: each of these must be reported ---- */

static int read_freed(void *arg)
{
    (void)arg;
    memory = calloc(1, 1);
    free(memory);
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): on purpose */
    seen = memory[0] == 'x';
    return 0;
}

static int branch_on_unset(void *arg)
{
    (void)arg;
    memory = malloc(1);
    if (memory[0] == 'x') seen = 1;
    free(memory);
    return 0;
}

static int lose(void *arg)
{
    int r;
    (void)arg;
    memory = malloc(321);
    r = weir_yield();
    memory = NULL;
    return r;
}

static void run_task(weir_task_fn fn)
{
    need_valgrind();
    CHECK_OK(weir_run(&(weir_config){.workers = 1}, fn, NULL));
}

TEST_WITH(valgrind_finds_a_read_of_freed_memory, .hidden = true)
{
    run_task(read_freed);
}

TEST_WITH(valgrind_finds_a_decision_by_what_was_never_set, .hidden = true)
{
    run_task(branch_on_unset);
}

TEST_WITH(valgrind_finds_lost_memory, .hidden = true)
{
    run_task(lose);
}

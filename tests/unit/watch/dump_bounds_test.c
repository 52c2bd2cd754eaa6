/* dump_bounds_test.c - the dump of too much, with too little, and when it is asked for. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "rt/runtime.h"
#include "rt/scope.h"
#include "unit/watch/dump_support.h"

/* ---- Bounds ---- */

TEST_TASK(dump_counts_what_is_too_much, 1, real_clock)
{
    /* ThreadSanitizer has no room for as many tasks. */
    int count = TEST_SLOW ? 1000 : 10000;
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

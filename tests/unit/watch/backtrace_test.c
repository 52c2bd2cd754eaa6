/* backtrace_test.c - the frames of parked and of running tasks. */
#include "watch/backtrace.h"

#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

#include "base/atomic.h"
#include "harness/test.h"
#include "rt/runtime.h"
#include "rt/scope.h"
#include "watch/symbol.h"

static ATOM(int) sink;
static volatile int64_t long_ms = 60000; /* not a constant to the compiler */

/* ---- Chains of functions that the compiler must not fold ---- */

static __attribute__((noinline)) int backtrace_test_sleeps(int64_t ms)
{
    int r = weir_sleep(ms);
    (void)atom_add(&sink, 1);
    return r;
}

static __attribute__((noinline)) int backtrace_test_calls(int64_t ms)
{
    int r = backtrace_test_sleeps(ms);
    (void)atom_add(&sink, 1);
    return r;
}

static int sleeper(void *arg)
{
    int r = backtrace_test_calls(long_ms);
    (void)arg;
    (void)atom_add(&sink, 1);
    return r;
}

static __attribute__((noinline)) int backtrace_test_recurses(int depth)
{
    int r = depth > 0 ? backtrace_test_recurses(depth - 1) : weir_sleep(long_ms);
    (void)atom_add(&sink, depth);
    return r;
}

static int deep_sleeper(void *arg)
{
    int r = backtrace_test_recurses(*(int *)arg);
    (void)atom_add(&sink, 1);
    return r;
}

/* ---- Help ---- */

struct frames {
    struct symbol_table table;
    struct backtrace backtrace;
};

static const char *name_at(struct frames *frames, unsigned index)
{
    struct symbol symbol;

    CHECK_INT(index, <, frames->backtrace.count);
    if (symbol_find(&frames->table, frames->backtrace.frames[index], &symbol) < 0) return "";
    return symbol.name ? symbol.name : "";
}

static bool has_name(struct frames *frames, const char *name)
{
    for (unsigned i = 0; i < frames->backtrace.count; i++) {
        if (strcmp(name_at(frames, i), name) == 0) return true;
    }
    return false;
}

static struct frames *frames_new(void)
{
    struct frames *frames = malloc(sizeof *frames);
    CHECK(frames != NULL);
    symbol_table_init(&frames->table);
    return frames;
}

static void frames_free(struct frames *frames)
{
    symbol_table_deinit(&frames->table);
    free(frames);
}

static void take(struct frames *frames, weir_task handle)
{
    struct task *task = handle.ref;

    CHECK(task->state == TASK_PARKED);
    backtrace_parked(&task->context, task->stack->low, stack_top(task->stack), &frames->backtrace);
}

/* Spawn it, let it park, and hand its frames to `check`. */
struct parked_test {
    weir_task_fn fn;
    int arg;
    size_t stack_bytes;
    void (*check)(struct frames *frames);
};

static int run_parked(void *arg)
{
    const struct parked_test *test = arg;
    struct frames *frames = frames_new();
    int result;

    WEIR_SCOPE(scope, &result, .name = "parked", .on_failure = WEIR_FAIL_FAST, .max_tasks = 1,
               .overflow = WEIR_WAIT) {
        weir_task task;
        CHECK_OK(weir_task_spawn(scope,
                                 &(weir_task_spec){.fn = test->fn,
                                                   .arg = &test->arg,
                                                   .arg_bytes = sizeof test->arg,
                                                   .stack_bytes = test->stack_bytes,
                                                   .place = WEIR_PLACE_HERE},
                                 &task));
        CHECK_OK(weir_yield());
        for (int i = 0; i < 2; i++) { /* looking changes nothing */
            take(frames, task);
            test->check(frames);
        }
        weir_scope_cancel(scope, 0, "seen");
    }
    frames_free(frames);
    return result;
}

static void check_parked(struct parked_test test)
{
    CHECK_OK(weir_run(&(weir_config){.workers = 1}, run_parked, &test));
}

/* ---- Parked tasks ---- */

static void check_names(struct frames *frames)
{
    unsigned first = backtrace_first(&frames->backtrace, &frames->table);

    CHECK_INT(frames->backtrace.count, ==, first + 4);
    CHECK_STR(name_at(frames, first), "weir_sleep");
    CHECK_STR(name_at(frames, first + 1), "backtrace_test_sleeps");
    CHECK_STR(name_at(frames, first + 2), "backtrace_test_calls");
    CHECK_STR(name_at(frames, first + 3), "sleeper");
    CHECK(!has_name(frames, "task_main"));
    CHECK(!has_name(frames, "switch_entry"));
    CHECK(!has_name(frames, "switch_call_as_if_from"));
    CHECK(!frames->backtrace.cut);
}

TEST(backtrace_of_a_parked_task_names_static_functions)
{
    check_parked((struct parked_test){.fn = sleeper, .check = check_names});
}

static void check_cut(struct frames *frames)
{
    CHECK_INT(frames->backtrace.count, ==, BACKTRACE_FRAMES_MAX);
    CHECK(frames->backtrace.cut);
    CHECK_STR(name_at(frames, BACKTRACE_FRAMES_MAX - 1), "backtrace_test_recurses");
}

TEST(backtrace_is_cut_at_its_bound)
{
    check_parked((struct parked_test){.fn = deep_sleeper, .arg = 100, .check = check_cut});
}

static void check_not_cut(struct frames *frames)
{
    CHECK(!frames->backtrace.cut);
    CHECK_STR(name_at(frames, frames->backtrace.count - 1), "deep_sleeper");
}

TEST(backtrace_below_its_bound_is_whole)
{
    check_parked((struct parked_test){.fn = deep_sleeper, .arg = 20, .check = check_not_cut});
}

static void check_bounds(struct frames *frames)
{
    /* As if the stack ended right above the task's innermost frame. */
    struct task *self = task_self();
    struct list *first = list_first(&((weir_scope *)self->top)->children);
    struct task *task = container_of(first, struct task, sibling);
    char *sp = task->context.sp;

    backtrace_parked(&task->context, sp - 64, sp + 1, &frames->backtrace);
    CHECK_INT(frames->backtrace.count, <=, 1);
}

TEST(backtrace_ends_where_the_stack_does)
{
    check_parked((struct parked_test){.fn = sleeper, .check = check_bounds});
}

/* ---- The calling task ---- */

static __attribute__((noinline)) void backtrace_test_looks(struct frames *frames)
{
    backtrace_here(&frames->backtrace);
    (void)atom_add(&sink, 1);
}

static int look_at_self(void *arg)
{
    struct frames *frames = arg;

    backtrace_test_looks(frames);
    (void)atom_add(&sink, 1);
    return 0;
}

TEST(backtrace_of_the_caller_begins_with_it)
{
    struct frames *frames = frames_new();

    CHECK_OK(weir_run(&(weir_config){.workers = 1}, look_at_self, frames));
    CHECK_STR(name_at(frames, 0), "backtrace_test_looks");
    CHECK_STR(name_at(frames, 1), "look_at_self");
    CHECK(!has_name(frames, "task_main"));
    CHECK_INT(backtrace_first(&frames->backtrace, &frames->table), ==, 0);
    frames_free(frames);
}

TEST(backtrace_outside_a_runtime_works_too)
{
    struct frames *frames = frames_new();

    backtrace_test_looks(frames);
    CHECK_STR(name_at(frames, 0), "backtrace_test_looks");
    CHECK_INT(frames->backtrace.count, >=, 2);
    frames_free(frames);
}

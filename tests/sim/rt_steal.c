/* rt_steal.c - tasks that any worker may start: one of them does, however eager both are. */
#include "sim/flow_program.h"

enum { TASKS = 4 };

struct starters {
    weir_pool *pool;
    int started;
};

static int work(void *data)
{
    (void)data;
    return 0;
}

/* While it waits for the pool's thread, its worker has nothing to do and looks for tasks. */
static int count_start(void *arg)
{
    struct starters *starters = *(struct starters **)arg;

    starters->started++;
    return weir_pool_run(starters->pool, 0, work, NULL, 0);
}

/* A run that goes on and on has two workers that take a task from each other, and do not start
 * it. All that there is to do takes some thousand steps. */
SIM_TEST(task_that_was_stolen_is_started, .runs_max = 10000, .steps_max = 50000,
         .config = FLOW_HOST)
{
    static const weir_pool_class classes[] = {{.name = "only", .weight = 1, .queue_max = 4}};
    weir_pool_spec spec = {.name = "crew",
                           .threads_max = 2,
                           .overflow = WEIR_WAIT,
                           .on_close = WEIR_DRAIN,
                           .classes = classes,
                           .class_count = 1};
    struct starters starters = {.started = 0}, *keep = &starters;
    weir_scope *outer = flow_scope_open(), *scope;

    CHECK_OK(weir_pool_open(outer, &spec, &starters.pool));
    scope = flow_scope_open();
    for (int i = 0; i < TASKS; i++) {
        CHECK_OK(weir_spawn_named(scope, "starter", count_start, &keep, sizeof keep));
    }
    flow_scope_close(scope);
    CHECK_INT(starters.started, ==, TASKS);
    flow_scope_close(outer);
    return 0;
}

/* c_program - every macro of the public headers, expanded in strict C17: blocks,
 * a scope block, spawn with and without a spec. Also what `meson install` is
 * checked with. */
#include <weir/weir.h>

#include <stdio.h>

static int add(void *arg)
{
    int *const *total = arg;
    int r = weir_sleep(1);
    if (r < 0) return r;
    **total += 21;
    return 0;
}

static int first_task(void *arg)
{
    int *total = arg;
    int result = 0;

    WEIR_SCOPE(scope, &result, .name = "sum", .on_failure = WEIR_FAIL_FAST, .max_tasks = 4,
               .overflow = WEIR_WAIT, .deadline_ms = 10000) {
        int r = weir_spawn(scope, add, &total, sizeof total);
        if (r < 0) return r;
        weir_task task;
        r = weir_task_spawn(scope,
                            &(weir_task_spec){.fn = add,
                                              .arg = &total,
                                              .arg_bytes = sizeof total,
                                              .name = "second",
                                              .place = WEIR_PLACE_HERE},
                            &task);
        if (r < 0) return r;
        WEIR_DEADLINE(5000) {
            r = weir_task_join(task, NULL);
            if (r < 0) return r;
        }
        WEIR_SHIELD(1000) {
            r = weir_yield();
            if (r < 0) return r;
        }
        WEIR_NO_DEADLINE("the block is only compiled and left again") { break; }
    }
    return result;
}

int main(void)
{
    int total = 0;
    weir_config config = {.name = "c", .workers = 1};
    int r = weir_run(&config, first_task, &total);
    if (r < 0) {
        fprintf(stderr, "weir_run: %s: %s\n", weir_strerror(r), weir_why());
        return 1;
    }
    if (total != 42) {
        fprintf(stderr, "the tasks added up to %d instead of 42\n", total);
        return 1;
    }
    return 0;
}

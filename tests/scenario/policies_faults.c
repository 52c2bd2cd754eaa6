/* policies_faults.c - without memory, without descriptors: every allocation and every
 * call of the kernel fails in turn, and the scenario ends with an error that says so,
 * leaving nothing behind. */
#include <errno.h>
#include <poll.h>

#include "rt/kernel.h"
#include "unit/rt/support.h"

static const weir_local_key key = {"key"};

static int fail_twice(void *arg)
{
    ATOM(int) *starts = *(ATOM(int) **)arg;
    int value = 3;
    int r = weir_local_set(&key, &value, sizeof value);

    if (r < 0) return r;
    r = weir_yield();
    if (r < 0) return r;
    return atom_add(starts, 1) < 2 ? -EPIPE : 0;
}

static int large_argument(void *arg)
{
    char *data = arg;

    CHECK_INT(data[999], ==, 'z');
    return 9;
}

static void fire(weir_timer *timer, void *arg)
{
    ++*(int *)arg;
    weir_timer_close(timer);
}

static int post_one(void *arg)
{
    ++**(ATOM(int) **)arg;
    return 0;
}

/* One of everything; stops at the first error but always cleans up. */
static int use_handles(weir_scope *scope)
{
    char data[1000];
    weir_task task;
    int result = 0, r;

    memset(data, 'z', sizeof data);
    r = weir_task_spawn(scope,
                        &(weir_task_spec){.fn = large_argument,
                                          .arg = data,
                                          .arg_bytes = sizeof data,
                                          .name = "large",
                                          .stack_bytes = 256 * 1024},
                        &task);
    if (r < 0) return r;
    r = weir_task_join(task, &result);
    if (r < 0) return r;
    CHECK_INT(result, ==, 9);
    return 0;
}

static int use_belongings(weir_scope *scope)
{
    static ATOM(int) ran; /* outlives us: what was posted runs although we stop waiting */
    ATOM(int) *pointer = &ran;
    weir_postbox *box;
    weir_timer *timer;
    int fired = 0, r;

    atom_store(&ran, 0);
    r = weir_timer_open(scope, &(weir_timer_spec){.name = "t", .on_fire = fire, .keep_arg = &fired},
                        &timer);
    if (r < 0) return r;
    weir_timer_start(timer, 1);
    r = weir_postbox_open(
        scope, &(weir_postbox_spec){.name = "b", .capacity = 2, .overflow = WEIR_REJECT}, &box);
    if (r == 0) {
        while (r == 0 && fired == 0) r = weir_sleep(1);
        if (r == 0) r = weir_post(box, post_one, &pointer, sizeof pointer);
        while (r == 0 && atom_load(&ran) == 0) r = weir_sleep(1);
        weir_postbox_unref(box);
    }
    if (fired == 0) weir_timer_close(timer);
    return r;
}

static int use_all(void *arg)
{
    ATOM(int) starts = 0;
    ATOM(int) *pointer = &starts;
    weir_scope *scope, *supervised;
    int r, closed;

    (void)arg;
    r = weir_scope_open(&(weir_scope_spec){.name = "all",
                                           .on_failure = WEIR_FAIL_FAST,
                                           .max_tasks = 8,
                                           .overflow = WEIR_WAIT,
                                           .deadline_ms = 100000},
                        &scope);
    if (r < 0) return r;
    r = weir_scope_open(&(weir_scope_spec){.name = "supervised",
                                           .on_failure = WEIR_SUPERVISE,
                                           .max_tasks = 4,
                                           .overflow = WEIR_WAIT,
                                           .restart = {.max_restarts = 3, .window_ms = 1000}},
                        &supervised);
    if (r == 0) {
        r = weir_spawn(supervised, fail_twice, &pointer, sizeof pointer);
        closed = weir_scope_close(supervised);
        if (r == 0) r = closed;
    }
    for (int i = 0; r == 0 && i < 6; i++) {
        int failure = i == 3 ? -EXDEV : 0;
        weir_scope *collect;

        r = weir_scope_open(&(weir_scope_spec){.name = "collect",
                                               .on_failure = WEIR_COLLECT,
                                               .max_tasks = 4,
                                               .overflow = WEIR_REJECT},
                            &collect);
        if (r < 0) break;
        r = weir_spawn(collect, return_argument, &failure, sizeof failure);
        closed = weir_scope_close(collect);
        if (r == 0) CHECK_INT(closed, ==, failure); /* also without memory to list it */
    }
    if (r == 0) r = use_handles(scope);
    if (r == 0) r = use_belongings(scope);
    closed = weir_scope_close(scope);
    return r < 0 ? r : closed;
}

struct faulty {
    int workers;
    int error; /* the one that the scenario may return */
};

static int scenario(void *arg)
{
    const struct faulty *faulty = arg;
    int r = run_on(faulty->workers, use_all, NULL);

    /* A mapping that fails has no error of its own: it is a lack of memory. */
    if (r < 0 && r != faulty->error && strcmp(test_call_failed_name(), "map") != 0)
        TEST_FAIL("returned %s, and %s failed with %s", weir_error_name(r),
                  test_call_failed() ? test_call_failed_name() : "an allocation",
                  weir_error_name(faulty->error));
    return r;
}

TEST_WITH(out_of_memory_at_every_allocation, .timeout_ms = 60000)
{
    for (int workers = 1; workers <= 2; workers++)
        CHECK_INT(test_sweep_alloc(scenario, &(struct faulty){workers, -ENOMEM}), >=, 15);
}

TEST_WITH(every_kernel_call_fails_in_turn, .timeout_ms = 60000)
{
    static const int errors[] = {-ENOMEM, -EMFILE, -EAGAIN};

    for (int workers = 1; workers <= 2; workers++)
        for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
            struct faulty faulty = {workers, errors[i]};

            CHECK_INT(test_sweep_calls(scenario, &faulty, errors[i]), >=, 10);
        }
}

/* An interrupted call is tried again or counts as a lack of memory; it is never the
 * scenario's error, and never fatal. */
static int interrupted(void *arg)
{
    int r = run_on(*(int *)arg, use_all, NULL);

    if (r < 0 && r != -ENOMEM && r != -EINTR)
        TEST_FAIL("%s was interrupted: %s", test_call_failed_name(), weir_error_name(r));
    return r;
}

TEST_WITH(every_kernel_call_is_interrupted_in_turn, .timeout_ms = 60000)
{
    for (int workers = 1; workers <= 2; workers++)
        CHECK_INT(test_sweep_calls(interrupted, &workers, -EINTR), >=, 10);
}

/* The same with guards by mprotect, as on an older kernel. */
TEST_WITH(every_kernel_call_fails_in_turn_on_an_older_kernel, .timeout_ms = 60000)
{
    struct faulty faulty = {1, -ENOMEM};

    test_mask_features("guard");
    CHECK_INT(test_sweep_calls(scenario, &faulty, -ENOMEM), >=, 50);
}

/* ---- Embedded ---- */

static int embedded(void *arg)
{
    weir_runtime *runtime;
    int r = weir_runtime_open(&(weir_config){.log = ignore_record}, &runtime);
    int closed, alive = 1;

    (void)arg;
    if (r < 0) return r;
    r = weir_spawn(weir_runtime_scope(runtime), use_all, NULL, 0);
    while (r == 0 && alive > 0) {
        struct pollfd poller = {.fd = weir_runtime_fd(runtime), .events = POLLIN};

        /* Turns that find nothing would only be more points of the sweep. */
        (void)poll(&poller, 1, 1000);
        alive = weir_turn(runtime);
        if (alive < 0) r = alive;
    }
    closed = weir_runtime_close(runtime);
    return r < 0 ? r : closed;
}

TEST_WITH(embedded_runtime_survives_every_fault, .timeout_ms = 60000)
{
    CHECK_INT(test_sweep_alloc(embedded, NULL), >=, 10);
    CHECK_INT(test_sweep_calls(embedded, NULL, -ENOMEM), >=, 10);
    CHECK_INT(test_sweep_calls(embedded, NULL, -EMFILE), >=, 10);
}

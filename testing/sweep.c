/* sweep.c - run a scenario with something going wrong at every point in turn. */
#include <errno.h>

#include "rt/kernel.h"
#include "rt/runtime.h"
#include "testing/harness.h"

enum { SWEEP_POINTS_MAX = 100000 };

/* What goes wrong: `arm` makes it happen at point n, `hit` says that it did. */
struct sweep {
    const char *what;
    void (*arm)(uint64_t n, int error);
    bool (*hit)(uint64_t n);
    int error;
};

static int sweep_run(const struct sweep *sweep, weir_test_scenario scenario, void *arg)
{
    static struct leak_mark mark;

    for (uint64_t n = 1; n <= SWEEP_POINTS_MAX; n++) {
        bool hit;
        int r;

        weir_test_note("%s %llu", sweep->what, (unsigned long long)n);
        leaks_mark(&mark);
        sweep->arm(n, sweep->error);
        r = scenario(arg);
        hit = sweep->hit(n);
        sweep->arm(0, 0);
        if (!leaks_check(&mark)) WEIR_TEST_FAIL("the scenario, which returned %d, leaks", r);
        if (hit) continue;
        weir_test_note("a run in which no %s went wrong", sweep->what);
        WEIR_CHECK_INT(r, >=, 0);
        weir_test_note("%s", "");
        return (int)(n - 1);
    }
    WEIR_TEST_FAIL("still going on after %d points", SWEEP_POINTS_MAX);
}

static void arm_alloc(uint64_t n, int error)
{
    (void)error;
    weir_test_fail_alloc_at(n);
}

static bool hit_alloc(uint64_t n)
{
    (void)n;
    return weir_test_alloc_failed();
}

int weir_test_sweep_alloc(weir_test_scenario scenario, void *arg)
{
    const struct sweep sweep = {"allocation", arm_alloc, hit_alloc, -ENOMEM};

    test_kernel_install();
    return sweep_run(&sweep, scenario, arg);
}

static bool hit_call(uint64_t n)
{
    (void)n;
    return weir_test_call_failed();
}

int weir_test_sweep_calls(weir_test_scenario scenario, void *arg, int error)
{
    const struct sweep sweep = {"system call", weir_test_fail_call_at, hit_call, error};

    return sweep_run(&sweep, scenario, arg);
}

static void arm_cancel(uint64_t n, int error)
{
    (void)error;
    fault_cancel_at(n);
}

static bool hit_cancel(uint64_t n)
{
    return fault_suspensions() >= n;
}

int weir_test_sweep_cancel(weir_test_scenario scenario, void *arg)
{
    const struct sweep sweep = {"suspension", arm_cancel, hit_cancel, 0};

    return sweep_run(&sweep, scenario, arg);
}

void weir_test_cancel_target(weir_scope *keep_scope)
{
    runtime_cancel_target(keep_scope);
}

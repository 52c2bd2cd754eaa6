/* policy.h - what the simulations of policies, of input and output and of whole scenarios share.
 *
 * Variables of a program are plain: a simulated run is one thread of the system. They are put back
 * by the `begin` of its spec.
 */
#ifndef WEIR_TESTS_SIM_POLICY_H
#define WEIR_TESTS_SIM_POLICY_H

#include <errno.h>
#include <string.h>
#include <weir/sim.h>
#include <weir/weir.h>

#include "harness/test.h"

#define MS_NS INT64_C(1000000)

/* Longer than anything takes that comes to an end. */
enum { CROWD_MS = 600 * 1000 };

static const weir_config policy_two_workers = {.workers = 2};

static inline int64_t now_ms(void)
{
    return weir_now_ns() / MS_NS;
}

/* `count` tasks that run fn(&index), and the end of all of them: the first failure. With
 * `ret_tasks` so many handles. */
static inline int crowd_of(unsigned count, weir_task_fn fn, weir_scope *scope, weir_task *ret_tasks)
{
    int r = 0;

    for (unsigned i = 0; i < count && r == 0; i++) {
        r = weir_task_spawn(scope, &(weir_task_spec){.fn = fn, .arg = &i, .arg_bytes = sizeof i},
                            ret_tasks ? &ret_tasks[i] : NULL);
    }
    return r;
}

static inline int crowd(unsigned count, weir_task_fn fn)
{
    int r = 0;

    WEIR_SCOPE(scope, &r, .name = "crowd", .on_failure = WEIR_FAIL_FAST, .max_tasks = count,
               .overflow = WEIR_REJECT, .deadline_ms = CROWD_MS) {
        r = crowd_of(count, fn, scope, NULL);
    }
    return r;
}

/* A host of the run with a program of its own. */
static inline weir_sim_host *host_start(const char *name, weir_task_fn fn)
{
    weir_sim_host *host = NULL;

    CHECK_OK(weir_sim_host_start(&(weir_sim_host_spec){.name = name, .fn = fn}, &host));
    return host;
}

/* A scope of `max_tasks` in which a failure is its task's own. */
#define SCOPE_OF(scope_, ret_result_, max_tasks_)                                        \
    WEIR_SCOPE(scope_, (ret_result_), .name = "of the test", .on_failure = WEIR_COLLECT, \
               .max_tasks = (max_tasks_), .overflow = WEIR_REJECT, .deadline_ms = CROWD_MS)

#endif

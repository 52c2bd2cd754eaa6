/* planted.h - bugs that are planted (base/planted.h), and the programs that show them.
 *
 *     static int two_waiters(void *arg) { ... a weir program with CHECKs, or invariants ... }
 *
 *     PLANTED_CASE(LOST_WAKE, two_waiters, .runs_max = 2000)
 *
 * The members after the program are those of weir_sim_spec; runs_max is the number of runs in which
 * the bug is found, by random walk and PCT in turn, whatever the first seed is. The test makes as
 * many runs of the program without the bug, which must not fail; then with it, which must; and then
 * the run that was found twice more, which must fail in the same way both times.
 */
#ifndef WEIR_TESTS_SIM_PLANTED_H
#define WEIR_TESTS_SIM_PLANTED_H

#include <weir/sim.h>
#include <weir/weir.h>

#include "base/planted.h"
#include "harness/test.h"

#if WEIR_SIM_WORKERS

struct planted_case {
    enum planted bug;
    const char *name;
    weir_task_fn program;
    weir_sim_spec spec;
    struct planted_case *next;
};

void planted_register(struct planted_case *keep_case);
void planted_run(const struct planted_case *planted);

#define PLANTED_CASE(bug_, program_, ...)                                               \
    static struct planted_case planted_##bug_ = {.bug = PLANTED_##bug_,                 \
                                                 .name = #bug_,                         \
                                                 .program = program_,                   \
                                                 .spec = {.name = #bug_, __VA_ARGS__}}; \
    __attribute__((constructor)) static void planted_register_##bug_(void)              \
    {                                                                                   \
        planted_register(&planted_##bug_);                                              \
    }                                                                                   \
    TEST_WITH(planted_##bug_##_is_found, .timeout_ms = 300000)                          \
    {                                                                                   \
        planted_run(&planted_##bug_);                                                   \
    }

#else

#define PLANTED_CASE(bug_, program_, ...) \
    __attribute__((unused)) static const weir_task_fn planted_##bug_ = program_;

#endif

#endif

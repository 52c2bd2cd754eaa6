/* sim.c - tests that are programs in simulation. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/error.h>

#include "rt/sanitize.h"
#include "testing/harness.h"
#include "testing/inside.h"

enum {
    MESSAGE_BYTES = 4096,
    SIM_SLOW_PART = 20,
    SIM_WORKER_LEVEL_PART = 10,
    SIM_TSAN_RUNS_MAX = 64
};

/* The run, and how to see it again. */
static _Noreturn void fail_found(const weir_sim_result *result)
{
    static char message[MESSAGE_BYTES];

    snprintf(message, sizeof message, "run %llu fails: %s\n    again:   WEIR_SIM='%s' %s --run %s",
             (unsigned long long)result->runs, result->failure, result->replay,
             program_invocation_name, process_test_name());
    process_end(TEST_FAILED, message);
}

/* How many runs are made of those that were asked for: the same number everywhere would take hours
 * where programs are slow. */
static uint64_t runs_here(const weir_sim_spec *spec)
{
    uint64_t runs = spec->runs_max;

    if (runs == 0) return 0;
    if (weir_sim_worker_level()) runs = runs / SIM_WORKER_LEVEL_PART + 1;
    if (weir_test_slower() > 1) runs = runs / SIM_SLOW_PART + 1;
    /* All of a run is one thread, so that ThreadSanitizer learns little from many: and a fiber
     * costs it several system calls. Who wants to see all runs there are, wants that. */
    if (WEIR_TSAN && spec->strategies != WEIR_SIM_EXHAUSTIVE && runs > SIM_TSAN_RUNS_MAX) {
        runs = SIM_TSAN_RUNS_MAX;
    }
    return runs * process_sim_times();
}

/* A line for each simulation, "runs distinct name", to the file that WEIR_SIM_COUNTS names. */
static void count(const weir_sim_spec *spec)
{
    const weir_sim_result *result = spec->ret_result;
    const char *path = getenv("WEIR_SIM_COUNTS");
    FILE *file = path ? fopen(path, "a") : NULL;

    if (!file) return;
    (void)fprintf(file, "%llu %llu %s\n", (unsigned long long)result->runs,
                  (unsigned long long)result->distinct, spec->name);
    (void)fclose(file);
}

void test_skip_without_sim(void)
{
#if WEIR_TSAN && WEIR_TSAN_STRICT
    weir_test_skip(
        "in strict mode ThreadSanitizer takes what hosts share in a simulation for races");
#endif
}

void weir_test_sim_sized(size_t spec_bytes, const weir_sim_spec *spec, weir_task_fn fn,
                         void *keep_arg)
{
    static weir_sim_result result; /* too large for the stack of a task */
    weir_sim_spec asked;
    char name[48];
    int r;

    test_skip_without_sim();
    weir_sim_spec_init(&asked);
    memcpy(&asked, spec, spec_bytes < sizeof asked ? spec_bytes : sizeof asked);
    if (asked.ret_result == NULL) asked.ret_result = &result;
    asked.runs_max = runs_here(&asked);
    r = weir_sim_run(&asked, fn, keep_arg);
    count(&asked);
    if (r == 0) return;
    if (asked.ret_result->failure[0] != '\0') fail_found(asked.ret_result);
    snprintf(name, sizeof name, "%s", weir_error_name(r));
    WEIR_TEST_FAIL("weir_sim_run('%s') gives %d (%s): %s", asked.name, r, name, weir_why());
}

/* search_naive.c - that the invariants of search_stand.h can fail: the search service with each of
 * its three mistakes (examples/search-service/naive.h) is found out in simulation, and the run that
 * was found fails again in the same way. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/test.h"
#include "sim/raw_calls.h"
#include "sim/search_stand.h"

enum { RUNS_MAX = 20, OUTPUT_BYTES = 1 << 18 };

static int play(void *arg)
{
    return stand_play(arg);
}

static int explore(struct scene *scene, weir_sim_result *result)
{
    test_skip_without_sim();
    return weir_sim_run(&(weir_sim_spec){.name = "a mistake",
                                         .runs_max = RUNS_MAX,
                                         .begin = stand_begin,
                                         .invariants = {STAND_INVARIANTS},
                                         .quiet = true,
                                         .ret_result = result},
                        play, scene);
}

/* In a process of its own: a run that fails is left as it is. */
static void replay(void *arg)
{
    static weir_sim_result again;

    (void)explore(arg, &again);
    (void)printf("replayed: %s\n", again.failure);
    (void)fflush(stdout);
}

/* The same load does no harm to the service without the mistake. */
static void find(struct scene *scene, enum naive mistake, const char *failure)
{
    static weir_sim_result result;
    static char output[OUTPUT_BYTES];

    if (explore(scene, &result) != 0) TEST_FAIL("without a mistake: %s", result.failure);
    scene->naive = mistake;
    CHECK_INT(explore(scene, &result), ==, WEIR_EFOUND);
    CHECK_CONTAINS(result.failure, failure);
    CHECK_INT(setenv("WEIR_SIM", result.replay, 1), ==, 0);
    (void)test_child(replay, scene, output, sizeof output);
    CHECK_CONTAINS(output, "replayed: ");
    CHECK_CONTAINS(strstr(output, "replayed: "), result.failure);
    CHECK_INT(unsetenv("WEIR_SIM"), ==, 0);
}

static void kill_upstream(const struct phase *phase)
{
    if (strcmp(phase->name, "outage") != 0) return;
    stand.upstream_down = true;
    weir_sim_host_kill(stand.upstream);
}

TEST_WITH(search_service_with_an_unbounded_queue_is_found_out, .timeout_ms = 60000)
{
    static struct scene scene = {.phases = {{.name = "5x", .rate = 500, .seconds = 0.6}},
                                 .connections = 3,
                                 .rank_us = 10000};

    find(&scene, NAIVE_UNBOUNDED_QUEUE, "queues keep to their bounds");
}

TEST_WITH(search_service_with_retries_without_a_budget_is_found_out, .timeout_ms = 60000)
{
    static struct scene scene = {.phases = {{.name = "calm", .rate = 60, .seconds = 0.2},
                                            {.name = "outage", .rate = 80, .seconds = 0.8}},
                                 .connections = 2,
                                 .rank_us = 4000,
                                 .on_phase = kill_upstream};

    find(&scene, NAIVE_RETRY_WITHOUT_BUDGET, "retries keep to their budget");
}

TEST_WITH(search_service_with_a_thread_per_request_is_found_out, .timeout_ms = 60000)
{
    static struct scene scene = {.phases = {{.name = "calm", .rate = 60, .seconds = 0.1}},
                                 .connections = 1,
                                 .rank_us = 4000};

    if (!raw_calls_possible()) TEST_SKIP("calls behind weir's back are not seen here");
    find(&scene, NAIVE_THREAD_PER_REQUEST, "clone");
}

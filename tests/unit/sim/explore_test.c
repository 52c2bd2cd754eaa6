/* explore_test.c - exploring, shortening and reporting, with runs that are made up here. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weir/error.h>

#include "harness/test.h"
#include "sim/choice.h"
#include "sim/explore.h"
#include "sim/strategy.h"

/* ---- The program: two tasks that each read a balance and write it back ---- */

enum fake_end { FAKE_FAILS, FAKE_CRASHES, FAKE_EXITS, FAKE_LOOPS };

struct fake {
    enum fake_end at_the_race; /* what happens when money is lost */
    bool safe;                 /* a step is both, read and write */
    bool remembers;            /* a run leaves something behind: fails from the third on */
    bool wavers;               /* each run has one choice more than the one before */
    unsigned asks;             /* choices of the program's own, before and between */
    unsigned fault_one_in;     /* a fault beside each of them that changes nothing */
    bool needs_fault;          /* money is lost after a fault only */
    unsigned needs_departures; /* ... or by so many departures, whoever comes first */
};

static int runs_of_process;

struct fake_run {
    struct strategy *strategy;
    struct trace *trace;
    int64_t now_ns;
    bool fault;
};

static unsigned choose(struct fake_run *run, struct question question, const char *task)
{
    unsigned answer;

    question.class = choice_row(question.kind)->class;
    answer = strategy_answer(run->strategy, &question);
    run->now_ns += 500000;
    trace_add(run->trace, run->now_ns, question.kind, question.n, answer, "main", task, NULL);
    return answer;
}

static void ask(struct fake_run *run, const struct fake *fake)
{
    for (unsigned i = 0; i < fake->asks; i++) {
        (void)choose(run, (struct question){.kind = SIM_USER, .n = 3}, NULL);
        if (fake->fault_one_in == 0) continue;
        if (choose(run, (struct question){.kind = SIM_FAULT, .n = 2, .one_in = fake->fault_one_in},
                   NULL)) {
            run->fault = true;
        }
    }
}

static int race(struct fake_run *run, const struct fake *fake)
{
    static const uint64_t ids[] = {1, 2};
    int steps = fake->safe ? 1 : 2;
    int done[2] = {0}, seen[2] = {0}, balance = 0;

    while (done[0] < steps || done[1] < steps) {
        unsigned who = done[0] < steps ? 0 : 1;

        if (done[0] < steps && done[1] < steps) {
            who = choose(run,
                         (struct question){.kind = CHOOSE_TASK, .n = 2, .ids = ids, .id_count = 2},
                         "bank");
        }
        if (done[who] == 0) seen[who] = balance;
        if (done[who] == steps - 1) balance = seen[who] + 10;
        done[who]++;
        ask(run, fake);
    }
    return balance;
}

static void fake_run(const struct sim_setup *setup, struct strategy *strategy, struct trace *trace,
                     int report_fd, struct run_outcome *ret_outcome)
{
    const struct fake *fake = setup->arg;
    struct fake_run run = {.strategy = strategy, .trace = trace};
    int balance;

    runs_of_process++;
    ret_outcome->failed = false;
    ask(&run, fake);
    for (int i = 0; fake->wavers && i < runs_of_process; i++)
        (void)choose(&run, (struct question){.kind = SIM_USER, .n = 2}, NULL);
    balance = race(&run, fake);
    if (fake->remembers) balance = runs_of_process < 3 ? 20 : 10;
    if (fake->needs_departures) balance = trace->departures < fake->needs_departures ? 20 : 10;
    if (balance == 20 || (fake->needs_fault && !run.fault)) return;
    if (fake->at_the_race == FAKE_CRASHES) abort();
    if (fake->at_the_race == FAKE_EXITS) _exit(3);
    while (*(const volatile enum fake_end *)&fake->at_the_race == FAKE_LOOPS) continue;
    ret_outcome->failed = true;
    snprintf(ret_outcome->failure, sizeof ret_outcome->failure,
             "money is lost: %d are left after %d choices, %d departures", balance,
             (int)trace->choices, (int)trace->departures);
    if (report_fd >= 0) CHECK(dprintf(report_fd, "[the dump of main]\n") > 0);
}

static int program(void *arg)
{
    (void)arg;
    return 0;
}

static int explored(struct fake *fake, weir_sim_spec spec, weir_sim_result *ret_result)
{
    spec.name = "bank";
    if (spec.runs_max == 0) spec.runs_max = 1000;
    spec.ret_result = ret_result;
    return explore(sizeof spec, &spec, program, fake, fake_run);
}

/* ---- Exploring ---- */

TEST(exploring_finds_a_race_and_makes_it_short)
{
    struct fake fake = {.asks = 10, .fault_one_in = 5};
    weir_sim_result result;

    CHECK_INT(explored(&fake, (weir_sim_spec){.quiet = true}, &result), ==, WEIR_EFOUND);
    CHECK_CONTAINS(result.failure, "money is lost: 10 are left");
    CHECK(result.shortened_from > 10);
    CHECK_INT(result.shortened_to, ==, 1); /* the other task at the second step */
    CHECK_CONTAINS(result.replay, "path:");
    CHECK(strstr(result.replay, ",") == NULL);
    CHECK(result.runs >= 1);
    CHECK(result.steps > 0);
}

TEST(fault_that_a_failure_needs_is_kept)
{
    struct fake fake = {.asks = 5, .fault_one_in = 3, .needs_fault = true};
    weir_sim_result result;

    CHECK_INT(explored(&fake, (weir_sim_spec){.quiet = true}, &result), ==, WEIR_EFOUND);
    CHECK_INT(result.shortened_to, ==, 2);
}

TEST(exploring_counts_runs_and_tells_them_apart)
{
    struct fake fake = {.safe = true, .asks = 1};
    weir_sim_result result;

    CHECK_OK(explored(&fake, (weir_sim_spec){.runs_max = 3000}, &result));
    CHECK_INT(result.runs, ==, 3000);
    CHECK_INT(result.repeated, ==, 3); /* the runs 0, 1024 and 2048 */
    CHECK_INT(result.distinct, ==, 2 * 27);
    CHECK_INT(result.steps, ==, 3003 * 4);
    CHECK_STR(result.failure, "");
    CHECK_STR(result.replay, "");
    CHECK(!result.complete);
}

TEST(exhaustive_exploring_is_complete)
{
    struct fake fake = {.safe = true, .asks = 1};
    weir_sim_result result;
    weir_sim_spec spec = {.strategies = WEIR_SIM_EXHAUSTIVE, .runs_max = 1000};

    CHECK_OK(explored(&fake, spec, &result));
    CHECK_INT(result.runs, ==, 2 * 27);
    CHECK_INT(result.distinct, ==, 2 * 27);
    CHECK(result.complete);
    fake.safe = false;
    spec.quiet = true;
    CHECK_INT(explored(&fake, spec, &result), ==, WEIR_EFOUND);
    CHECK(!result.complete);
    CHECK_INT(result.shortened_to, ==, 1);
}

TEST(exploring_ends_when_its_time_is_up)
{
    struct fake fake = {.safe = true};
    weir_sim_result result;
    weir_sim_spec spec = {.name = "bank", .seconds_max = 1, .ret_result = &result};

    CHECK_OK(explore(sizeof spec, &spec, program, &fake, fake_run));
    CHECK(result.seconds >= 1);
    CHECK(result.runs > 1000);
}

TEST(crash_is_a_failed_run)
{
    struct fake fake = {.at_the_race = FAKE_CRASHES, .asks = 2};
    weir_sim_result result;

    CHECK_INT(explored(&fake, (weir_sim_spec){.quiet = true}, &result), ==, WEIR_EFOUND);
    CHECK_STR(result.failure, "crashed: SIGABRT");
    CHECK_INT(result.shortened_to, ==, 1);
}

TEST(exit_is_a_failed_run)
{
    struct fake fake = {.at_the_race = FAKE_EXITS, .asks = 2};
    weir_sim_result result;

    CHECK_INT(explored(&fake, (weir_sim_spec){.quiet = true}, &result), ==, WEIR_EFOUND);
    CHECK_STR(result.failure, "exited with 3");
    CHECK_INT(result.shortened_to, ==, 1);
}

TEST(run_that_makes_no_step_is_ended_and_says_where_it_was)
{
    struct fake fake = {.at_the_race = FAKE_LOOPS};
    weir_sim_spec spec = {.name = "bank"};
    struct sim_setup setup = {&spec, program, &fake};
    struct explorer explorer = {.setup = &setup, .run = fake_run};
    struct strategy *strategy;
    struct explore_end end;

    explorer.shared = mmap(NULL, sizeof *explorer.shared, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(explorer.shared != MAP_FAILED);
    CHECK_OK(strategy_parse("path:7:1=1", &strategy));
    CHECK_OK(explore_attempt(&explorer, strategy, false, -1, 300, &end));
    CHECK(end.failed);
    CHECK(end.hung);
    CHECK_CONTAINS(end.failure, "no step for ");
    CHECK_CONTAINS(end.failure, "an endless loop or a call that blocks");
    /* ThreadSanitizer holds signals back until a thread calls something. */
    if (!WEIR_TSAN) CHECK_CONTAINS(explorer.shared->places, "fake_run");
    strategy_free(strategy);
    CHECK_INT(munmap(explorer.shared, sizeof *explorer.shared), ==, 0);
}

TEST(failure_that_does_not_come_again_is_said_to_be_so)
{
    struct fake fake = {.remembers = true, .asks = 2};
    weir_sim_result result;

    CHECK_INT(explored(&fake, (weir_sim_spec){.quiet = true}, &result), ==, WEIR_EFOUND);
    /* The first run is made twice, so the second is the third of the process. */
    CHECK_INT(result.runs, ==, 2);
    CHECK_CONTAINS(result.failure, "failed once, and not when it was made again: money is lost");
    CHECK_INT(result.shortened_to, ==, result.shortened_from);
}

TEST(run_that_goes_another_way_when_repeated_has_failed)
{
    struct fake fake = {.safe = true, .wavers = true};
    weir_sim_result result;

    CHECK_INT(explored(&fake, (weir_sim_spec){.quiet = true}, &result), ==, WEIR_EFOUND);
    CHECK_STR(result.failure, "the run went another way when it was repeated: 2 choices, then 3");
    CHECK_INT(result.runs, ==, 1);
    CHECK_STR(result.replay, "random:0");
}

/* ---- What is printed ---- */

static void explore_loudly(void *arg)
{
    weir_sim_result result;
    weir_sim_spec spec = {.seed = 7, .ret_result = &result};

    CHECK_INT(explored(arg, spec, &result), ==, WEIR_EFOUND);
}

TEST(failed_run_is_printed_with_its_replay_its_decisions_and_the_dump)
{
    struct fake fake = {.asks = 1};
    char output[8192];

    CHECK_INT(test_child(explore_loudly, &fake, output, sizeof output), ==, 0);
    CHECK_CONTAINS(output, "weir_sim: 'bank': money is lost: 10 are left after ");
    CHECK_CONTAINS(output, "  replay:  WEIR_SIM=path:");
    CHECK_CONTAINS(output, "found in run ");
    CHECK_CONTAINS(output, "  the last decisions of ");
    CHECK_CONTAINS(output, "    at 0.5 ms, host main: the program's own choice, of 3: 0\n");
    CHECK_CONTAINS(output, ", host main, task 'bank': which of 2 ready tasks runs next: the 2nd\n");
    CHECK_CONTAINS(output, "  the dump:\n[the dump of main]\n");
}

static void explore_quietly(void *arg)
{
    weir_sim_result result;

    CHECK_INT(explored(arg, (weir_sim_spec){.quiet = true}, &result), ==, WEIR_EFOUND);
}

static void explore_for_a_while(void *arg)
{
    weir_sim_spec spec = {.name = "bank", .seconds_max = 2};

    CHECK_INT(setenv("WEIR_SIM_PROGRESS", "1", 1), ==, 0);
    CHECK_OK(explore(sizeof spec, &spec, program, arg, fake_run));
}

TEST(quiet_exploring_prints_nothing)
{
    struct fake fake = {.asks = 1};
    char output[1024];

    CHECK_INT(test_child(explore_quietly, &fake, output, sizeof output), ==, 0);
    CHECK_STR(output, "");
}

TEST(progress_is_shown_when_it_is_asked_for)
{
    struct fake fake = {.safe = true};
    char output[1024];

    CHECK_INT(test_child(explore_for_a_while, &fake, output, sizeof output), ==, 0);
    CHECK_CONTAINS(output, "bank: ");
    CHECK_CONTAINS(output, " distinct, random+pct\n");
}

TEST(numbers_are_written_in_groups)
{
    char text[32];

    CHECK_STR(explore_number(0, text), "0");
    CHECK_STR(explore_number(999, text), "999");
    CHECK_STR(explore_number(1000, text), "1,000");
    CHECK_STR(explore_number(812344, text), "812,344");
    CHECK_STR(explore_number(UINT64_MAX, text), "18,446,744,073,709,551,615");
}

/* ---- Replay ---- */

static void replay_loudly(void *arg)
{
    weir_sim_result result;

    CHECK_INT(explored(arg, (weir_sim_spec){.seed = 7}, &result), ==, WEIR_EFOUND);
    CHECK_INT(runs_of_process, ==, 1); /* in this very process */
    CHECK_INT(result.runs, ==, 1);
    CHECK_CONTAINS(result.failure, "money is lost");
}

TEST(replay_is_one_run_in_this_process)
{
    struct fake fake = {.asks = 1};
    weir_sim_result result;
    char output[8192];

    CHECK_INT(explored(&fake, (weir_sim_spec){.quiet = true}, &result), ==, WEIR_EFOUND);
    CHECK_INT(runs_of_process, ==, 0);
    CHECK_INT(setenv("WEIR_SIM", result.replay, 1), ==, 0);
    CHECK_INT(test_child(replay_loudly, &fake, output, sizeof output), ==, 0);
    CHECK_CONTAINS(output, "weir_sim: 'bank': money is lost");
    CHECK_CONTAINS(output, "[the dump of main]");
    CHECK_CONTAINS(output, "the last decisions");
    CHECK_INT(setenv("WEIR_SIM", "path:0:", 1), ==, 0); /* passes: nobody departs from anything */
    CHECK_OK(explored(&fake, (weir_sim_spec){.quiet = true}, &result));
    CHECK_INT(runs_of_process, ==, 1);
    CHECK_INT(setenv("WEIR_SIM", "path:0", 1), ==, 0);
    CHECK_OK(explored(&fake, (weir_sim_spec){.quiet = true}, &result));
    CHECK_INT(setenv("WEIR_SIM", "nonsense", 1), ==, 0);
    CHECK_INT(explored(&fake, (weir_sim_spec){.quiet = true}, &result), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "nonsense");
}

/* What is said of a failure is said of the run that the line makes again: also where the shorter
 * path is too long for a line, and the run is named by its seed. */
TEST(failure_is_that_of_the_run_that_the_line_names)
{
    struct fake fake = {.asks = 400, .needs_departures = 600};
    weir_sim_result result, again;

    CHECK_INT(explored(&fake, (weir_sim_spec){.quiet = true}, &result), ==, WEIR_EFOUND);
    CHECK(strstr(result.replay, "path:") == NULL);
    CHECK_INT(result.shortened_to, ==, result.shortened_from);
    CHECK_INT(setenv("WEIR_SIM", result.replay, 1), ==, 0);
    CHECK_INT(explored(&fake, (weir_sim_spec){.quiet = true}, &again), ==, WEIR_EFOUND);
    CHECK_STR(result.failure, again.failure);
}

TEST(replay_with_a_name_is_for_the_simulation_of_that_name)
{
    struct fake fake = {.safe = true};
    weir_sim_result result;

    CHECK_INT(setenv("WEIR_SIM", "random:3@shop", 1), ==, 0);
    CHECK_OK(explored(&fake, (weir_sim_spec){.runs_max = 10}, &result));
    CHECK_INT(result.runs, ==, 10);
    CHECK_INT(setenv("WEIR_SIM", "random:3@bank", 1), ==, 0);
    CHECK_OK(explored(&fake, (weir_sim_spec){.runs_max = 10}, &result));
    CHECK_INT(result.runs, ==, 1);
}

/* ---- Refusals ---- */

static bool holds(void *arg)
{
    (void)arg;
    return true;
}

TEST(spec_that_leaves_something_out_is_refused)
{
    struct fake fake = {.safe = true};
    const struct {
        weir_sim_spec spec;
        const char *why;
    } bad[] = {
        {{.runs_max = 1}, "name is not set"},
        {{.name = "bank"}, "neither runs_max nor seconds_max is set"},
        {{.name = "bank", .seconds_max = -1}, "seconds_max is negative"},
        {{.name = "bank", .runs_max = 1, .run_ms_max = -1}, "run_ms_max is negative"},
        {{.name = "bank", .runs_max = 1, .faults = {.late_ms_max = -1}}, "late_ms_max is negative"},
        {{.name = "bank", .runs_max = 1, .strategies = 8}, "unknown bits"},
        {{.name = "bank", .runs_max = 1, .strategies = WEIR_SIM_EXHAUSTIVE | WEIR_SIM_PCT},
         "goes with no other strategy"},
        {{.name = "bank", .runs_max = 1, .depth = 1}, "depth is 2 to 8, not 1"},
        {{.name = "bank", .runs_max = 1, .depth = 9}, "depth is 2 to 8, not 9"},
        {{.name = "bank", .runs_max = 1, .departures_max = -1}, "departures_max is negative"},
        {{.name = "bank", .runs_max = 1, .departures_max = 3}, "is for exhaustive search"},
        {{.name = "bank",
          .runs_max = 1,
          .strategies = WEIR_SIM_EXHAUSTIVE,
          .faults = {.reset = 10}},
         "makes no faults"},
        {{.name = "bank", .runs_max = 1, .invariants = {{.name = "kept"}}},
         "'kept' has no function"},
        {{.name = "bank",
          .runs_max = 1,
          .invariants = {{.name = "kept", .holds = holds, .within_ms = -1}}},
         "within_ms of invariant 'kept' is negative"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        test_note("%s", bad[i].why);
        CHECK_INT(explore(sizeof bad[i].spec, &bad[i].spec, program, &fake, fake_run), ==,
                  WEIR_EREFUSED);
        CHECK_CONTAINS(weir_why(), bad[i].why);
    }
    CHECK_INT(explore(sizeof bad[0].spec, &(weir_sim_spec){.name = "bank", .runs_max = 1}, NULL,
                      NULL, fake_run),
              ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "there is no program");
}

TEST(exploring_survives_any_allocation_that_fails)
{
    struct fake fake = {.asks = 1};

    for (uint64_t n = 1;; n++) {
        weir_sim_result result;
        int r;

        test_fail_alloc_at(n);
        r = explored(&fake, (weir_sim_spec){.quiet = true}, &result);
        if (!test_alloc_failed()) break;
        CHECK(r == -ENOMEM || r == WEIR_EFOUND);
    }
    test_fail_alloc_at(0);
}

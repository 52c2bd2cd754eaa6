/* planted.c - that planted bugs are found, and how soon: see planted.h. */
#include "sim/planted.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rt/signal_table.h"

#if WEIR_SIM_WORKERS

static struct planted_case *cases;
static unsigned case_count;

void planted_register(struct planted_case *keep_case)
{
    keep_case->next = cases;
    cases = keep_case;
    case_count++;
}

static int explore(const struct planted_case *planted, enum planted bug, weir_sim_result *result)
{
    weir_sim_spec spec = planted->spec;
    int r;

    spec.ret_result = result;
    spec.quiet = true;
    planted_now = bug;
    r = weir_sim_run(&spec, planted->program, NULL);
    planted_now = PLANTED_NONE;
    return r;
}

/* Make the run that was found once more. In a process of its own: a run that is replayed is
 * made in the process that asks for it, which it may end, and in which it leaves what it has. */
static void replay(const struct planted_case *planted, const weir_sim_result *found)
{
    weir_sim_result *again =
        mmap(NULL, sizeof *again, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child;
    int status;

    CHECK(again != MAP_FAILED);
    child = fork();
    CHECK_INT(child, >=, 0);
    if (child == 0) {
        bool silent = freopen("/dev/null", "w", stderr) != NULL;
        (void)setenv("WEIR_SIM", found->replay, 1);
        _exit(silent && explore(planted, planted->bug, again) == WEIR_EFOUND ? 0 : 1);
    }
    CHECK_INT(waitpid(child, &status, 0), ==, child);
    if (WIFSIGNALED(status)) {
        char name[SIGNAL_NAME_BYTES], crashed[SIGNAL_NAME_BYTES + 16];

        signal_name(WTERMSIG(status), name);
        (void)snprintf(crashed, sizeof crashed, "crashed: %s", name);
        CHECK_STR(crashed, found->failure);
    } else {
        CHECK_INT(status, ==, 0);
        CHECK_STR(again->failure, found->failure);
    }
    CHECK_INT(munmap(again, sizeof *again), ==, 0);
}

void planted_run(const struct planted_case *planted)
{
    static weir_sim_result result;
    int r;

    test_skip_without_sim();
    r = explore(planted, PLANTED_NONE, &result);
    if (r < 0) {
        TEST_FAIL("without the bug: %s (%s); WEIR_SIM=%s", weir_strerror(r),
                  r == WEIR_EREFUSED ? weir_why() : result.failure, result.replay);
    }
    r = explore(planted, planted->bug, &result);
    if (r != WEIR_EFOUND) {
        TEST_FAIL("%s (%s) is not found in %llu runs: %s", planted->name,
                  planted_words(planted->bug), (unsigned long long)result.runs, weir_strerror(r));
    }
    test_note("found in run %llu: %s; WEIR_SIM=%s", (unsigned long long)result.runs, result.failure,
              result.replay);
    for (int i = 0; i < 2; i++) replay(planted, &result);
}

TEST(catalogue_of_planted_bugs_is_complete)
{
    static int seen[PLANTED_COUNT];

    for (const struct planted_case *planted = cases; planted; planted = planted->next) {
        CHECK_INT(seen[planted->bug]++, ==, 0);
    }
    for (int bug = PLANTED_NONE + 1; bug < PLANTED_COUNT; bug++) {
        if (!seen[bug]) TEST_FAIL("nobody looks for: %s", planted_words((enum planted)bug));
    }
    CHECK_INT(case_count, >=, 30);
}

/* For `./do bench sim`: a line for each bug and strategy, with the runs it took from different
 * first seeds: their median and the largest. An argument: only of bugs whose names begin so. */
enum { TRIES = 9 };

static int compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

    return (left > right) - (left < right);
}

static void measure(const struct planted_case *planted, unsigned strategy, const char *name)
{
    struct planted_case tried = *planted;
    uint64_t runs[TRIES];
    unsigned missed = 0;

    tried.spec.strategies = strategy;
    for (unsigned i = 0; i < TRIES; i++) {
        weir_sim_result result = {0};
        tried.spec.seed = 1000003 * (i + 1);
        if (explore(&tried, tried.bug, &result) != WEIR_EFOUND) missed++;
        runs[i] = result.runs;
    }
    qsort(runs, TRIES, sizeof runs[0], compare);
    printf("%-28s %-7s median %8llu  largest %8llu  bound %8llu  missed %u of %d  %s\n",
           planted->name, name, (unsigned long long)runs[TRIES / 2],
           (unsigned long long)runs[TRIES - 1], (unsigned long long)planted->spec.runs_max, missed,
           TRIES, planted_words(planted->bug));
    (void)fflush(stdout);
}

TEST_PROGRAM_NAMED(planted_runs, "planted-runs")
{
    for (const struct planted_case *planted = cases; planted; planted = planted->next) {
        if (argc > 2 && strncmp(planted->name, argv[2], strlen(argv[2])) != 0) continue;
        measure(planted, WEIR_SIM_RANDOM, "random");
        measure(planted, WEIR_SIM_PCT, "pct");
    }
    return 0;
}

#else

TEST(catalogue_of_planted_bugs_is_left_out)
{
    TEST_SKIP("planted bugs are in the library that is built with -Dsim_workers=true only");
}

#endif

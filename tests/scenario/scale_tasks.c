/* scale_tasks.c - very many tasks at one time, and what they cost. */
#include <errno.h>
#include <stdlib.h>

#include "rt/runtime.h"
#include "unit/rt/support.h"

enum {
    CROWD = TEST_SANITIZED ? 2000 : 100000,
    RARE = 1000, /* one task in so many fails */
    MILLION = 1000000,
    BYTES_PER_TASK_MAX = 4800,
    CAP_PROTECTED = 32000, /* stacks, when each guard costs a mapping of its own */
};

/* ---- A crowd under each failure policy ---- */

struct crowd {
    enum weir_failure_policy policy;
    int count;
    ATOM(uint8_t) * runs; /* of each task */
    ATOM(int) cancelled;
    ATOM(int) ended;
};

struct member {
    struct crowd *crowd;
    int id;
};

/* Guards that cost a mapping each allow fewer tasks. */
static size_t stacks_allowed(void)
{
    return worker_self()->runtime->stacks.count_max;
}

/* All of them are asleep at the same time; the clock decides when they go on. */
static int be_one_of_many(void *arg)
{
    struct member *member = arg;
    struct crowd *crowd = member->crowd;
    int run = atom_add(&crowd->runs[member->id], 1) + 1;
    bool rare = member->id % RARE == RARE / 2;
    int r =
        weir_sleep(crowd->policy == WEIR_FAIL_FAST && member->id == crowd->count / 2 ? 500 : 1000);

    if (r == WEIR_ECANCELED) (void)atom_add(&crowd->cancelled, 1);
    if (r < 0) return r;
    if (crowd->policy == WEIR_FAIL_FAST) return member->id == crowd->count / 2 ? -EIO : 0;
    if (rare && (crowd->policy == WEIR_COLLECT || run == 1)) return -EIO;
    (void)atom_add(&crowd->ended, 1);
    return 0;
}

static weir_scope *open_crowd(struct crowd *crowd)
{
    weir_scope_spec spec = {.name = "crowd",
                            .on_failure = crowd->policy,
                            .max_tasks = (size_t)crowd->count,
                            .overflow = WEIR_REJECT,
                            .failures_kept = CROWD / RARE + 1};
    weir_scope *scope = NULL;

    if (crowd->policy == WEIR_SUPERVISE)
        spec.restart = (weir_restart){.max_restarts = crowd->count / RARE, .window_ms = 3600000};
    CHECK_OK(weir_scope_open(&spec, &scope));
    return scope;
}

static void await_runs(struct crowd *crowd, int wanted)
{
    for (;;) {
        int runs = 0;

        for (int i = 0; i < crowd->count; i++) runs += atom_load(&crowd->runs[i]);
        if (runs == wanted) return;
        CHECK_INT(runs, <, wanted);
        CHECK_OK(weir_yield());
    }
}

static void check_failures(const struct crowd *crowd, weir_scope *scope)
{
    static weir_failure failures[CROWD / RARE + 1];
    size_t count = weir_scope_failures(scope, failures, CROWD / RARE + 1);

    CHECK_INT(count, ==, crowd->count / RARE);
    for (size_t i = 0; i < count; i++) {
        CHECK_INT(failures[i].error, ==, -EIO);
        for (size_t n = 0; n < i; n++) CHECK(failures[n].task_id != failures[i].task_id);
    }
}

static int manage_crowd(void *arg)
{
    struct crowd *crowd = arg;
    weir_scope *scope;

    crowd->count = stacks_allowed() > CROWD ? CROWD : (int)(stacks_allowed() / 2 / RARE * RARE);
    scope = open_crowd(crowd);
    for (int i = 0; i < crowd->count; i++) {
        struct member member = {crowd, i};

        CHECK_OK(weir_spawn(scope, be_one_of_many, &member, sizeof member));
    }
    CHECK_INT(weir_scope_task_count(scope), ==, crowd->count);
    CHECK_INT(weir_spawn(scope, sleep_until_cancelled, NULL, 0), ==, WEIR_EOVERLOAD);
    await_runs(crowd, crowd->count);
    test_clock_advance_ms(crowd->policy == WEIR_FAIL_FAST ? 500 : 1000);
    switch (crowd->policy) {
    case WEIR_FAIL_FAST:
        CHECK_INT(weir_scope_close(scope), ==, -EIO);
        CHECK_INT(atom_load(&crowd->cancelled), ==, crowd->count - 1);
        break;
    case WEIR_COLLECT:
        CHECK_INT(weir_scope_join(scope), ==, -EIO);
        check_failures(crowd, scope);
        CHECK_INT(weir_scope_close(scope), ==, -EIO);
        CHECK_INT(atom_load(&crowd->ended), ==, crowd->count - crowd->count / RARE);
        break;
    default:
        await_runs(crowd, crowd->count + crowd->count / RARE); /* the failed ones sleep again */
        test_clock_advance_ms(1000);
        CHECK_OK(weir_scope_close(scope));
        CHECK_INT(atom_load(&crowd->ended), ==, crowd->count);
        break;
    }
    return 0;
}

static void check_runs(const struct crowd *crowd)
{
    for (int i = 0; i < crowd->count; i++) {
        bool again = crowd->policy == WEIR_SUPERVISE && i % RARE == RARE / 2;

        CHECK_INT(atom_load(&crowd->runs[i]), ==, 1 + again);
    }
}

static void play_crowd(enum weir_failure_policy policy)
{
    test_clock_manual();
    for (int workers = 1; workers <= 2; workers++) {
        struct crowd crowd = {.policy = policy, .runs = calloc(CROWD, sizeof *crowd.runs)};

        test_note("%d workers", workers);
        CHECK(crowd.runs != NULL);
        CHECK_OK(run_on(workers, manage_crowd, &crowd));
        check_runs(&crowd);
        free((void *)(uintptr_t)crowd.runs);
    }
}

TEST_WITH(one_failure_cancels_a_crowd, .timeout_ms = 60000)
{
    play_crowd(WEIR_FAIL_FAST);
}

TEST_WITH(failures_of_a_crowd_are_collected, .timeout_ms = 60000)
{
    play_crowd(WEIR_COLLECT);
}

TEST_WITH(crowd_is_supervised_and_only_what_failed_runs_again, .timeout_ms = 60000)
{
    play_crowd(WEIR_SUPERVISE);
}

/* ---- A million ---- */

/* A figure of /proc in KiB. */
static int64_t proc_kib(const char *path, const char *name)
{
    char line[256];
    int64_t kib = -1;
    FILE *file = fopen(path, "re");

    CHECK(file != NULL);
    while (kib < 0 && fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0) kib = strtoll(line + strlen(name), NULL, 10);
    CHECK_INT(fclose(file), ==, 0);
    CHECK_INT(kib, >=, 0);
    return kib;
}

static int64_t memory_bytes(void)
{
    return 1024 *
           (proc_kib("/proc/self/status", "VmRSS:") + proc_kib("/proc/self/status", "VmPTE:"));
}

static int park(void *arg)
{
    (void)atom_add(*(ATOM(int) **)arg, 1);
    return sleep_until_cancelled(NULL);
}

/* Returns the bytes of memory that each one takes. */
static int park_many(void *arg)
{
    int count = *(int *)arg;
    ATOM(int) parked = 0;
    ATOM(int) *pointer = &parked;
    weir_scope *scope = open_bounded("parked", WEIR_FAIL_FAST, (size_t)count, WEIR_REJECT);
    int64_t before = memory_bytes();
    int64_t each;

    if (stacks_allowed() < (size_t)count) TEST_SKIP("needs guards that cost no mapping");
    for (int i = 0; i < count; i++) CHECK_OK(weir_spawn(scope, park, &pointer, sizeof pointer));
    while (atom_load(&parked) < count) CHECK_OK(weir_yield());
    each = (memory_bytes() - before) / count;
    CHECK_INT(weir_scope_task_count(scope), ==, count);
    weir_scope_cancel(scope, 0, "seen");
    CHECK_OK(weir_scope_close(scope));
    return (int)each;
}

TEST_WITH(million_parked_tasks_fit_in_their_memory, .long_only = true, .timeout_ms = 120000)
{
    int count = MILLION;

    if (TEST_SANITIZED) TEST_SKIP("a sanitizer takes many times the memory");
    if (proc_kib("/proc/meminfo", "MemAvailable:") < 8 * 1024 * 1024)
        TEST_SKIP("needs 8 GiB of memory");
    for (int workers = 1; workers <= 2; workers++) {
        int each = run_on(workers, park_many, &count);

        printf("%d workers: %d bytes for each of %d parked tasks\n", workers, each, count);
        CHECK_INT(each, >, 0);
        CHECK_INT(each, <=, BYTES_PER_TASK_MAX);
    }
}

/* ---- The cap of an older kernel ---- */

static int reach_the_cap(void *arg)
{
    weir_scope *scope = open_scope("cap", WEIR_FAIL_FAST);
    int count = 0, r = 0;

    (void)arg;
    for (int round = 0; round < 2; round++) {
        ATOM(int) parked = 0;
        ATOM(int) *pointer = &parked;

        for (count = 0; count <= CAP_PROTECTED; count++) {
            r = weir_spawn(scope, park, &pointer, sizeof pointer);
            if (r < 0) break;
        }
        CHECK_INT(r, ==, WEIR_EOVERLOAD);
        while (atom_load(&parked) < count) CHECK_OK(weir_yield()); /* each really gets a stack */
        weir_scope_cancel(scope, 0, "enough");
        CHECK_OK(weir_scope_close(scope));
        scope = open_scope("again", WEIR_FAIL_FAST);
    }
    CHECK_OK(weir_scope_close(scope));
    return count;
}

TEST_WITH(cap_of_protected_stacks_is_kept_and_reached, .timeout_ms = 60000)
{
    if (TEST_SANITIZED) TEST_SKIP("a sanitizer cannot hold so many tasks");
    test_mask_features("guard");
    CHECK_INT(run_on(1, reach_the_cap, NULL), ==, CAP_PROTECTED - 1); /* main has one */
    /* With two, each may keep a few for itself. */
    CHECK_INT(run_on(2, reach_the_cap, NULL), >=, CAP_PROTECTED - 200);
}

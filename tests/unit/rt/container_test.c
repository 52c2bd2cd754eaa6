/* container_test.c - what a runtime does with the limits of its container: its workers,
 * whether they spin, and how many tasks there may be. */
#include <weir/weir.h>

#include "rt/runtime.h"
#include "rt/scope.h"
#include "rt/stable.h"
#include "unit/rt/fake_cgroup.h"

enum { AFFINITY = 4 };

/* What a runtime with this configuration has made of the faked limits. */
struct seen {
    unsigned workers;
    bool spin;
    size_t count_max;
    size_t charge_bytes; /* of a task with the default stack */
    size_t budget_bytes;
};

static int look(void *arg)
{
    const weir_runtime *runtime = worker_self()->runtime;
    const struct stack_pool *stacks = &runtime->stacks;

    *(struct seen *)arg = (struct seen){
        .workers = runtime->worker_count,
        .spin = runtime->spin,
        .count_max = stacks->count_max,
        .charge_bytes = stack_class_bytes(stacks, runtime->default_class) / STACK_CHARGE_PART,
        .budget_bytes = stacks->budget_bytes,
    };
    return 0;
}

static struct seen run_in(const struct fake *fake, const weir_config *config, weir_task_fn fn)
{
    struct seen seen;

    cores_override(&fake->source);
    CHECK_OK(weir_run(config, fn, &seen));
    cores_override(NULL);
    return seen;
}

/* ---- Processors ---- */

static struct seen run_with_quota(const char *cpu_max, int workers)
{
    struct fake fake;
    struct seen seen;

    fake_init(&fake, AFFINITY, "0::/a\n");
    fake_file(&fake, "sys/a/cpu.max", cpu_max);
    seen = run_in(&fake, &(weir_config){.workers = workers}, look);
    fake_deinit(&fake);
    return seen;
}

TEST(quota_sets_the_workers_and_below_one_core_nobody_spins)
{
    static const struct {
        const char *cpu_max;
        int workers; /* asked for */
        unsigned workers_seen;
        bool spin;
    } rows[] = {
        {"max 100000\n", 0, AFFINITY, true}, {"50000 100000\n", 0, 1, false},
        {"99999 100000\n", 1, 1, false},     {"100000 100000\n", 1, 1, true},
        {"50000 100000\n", 2, 2, false},     {"150000 100000\n", 0, 2, true},
        {"150000 100000\n", 3, 3, false},    {"max 100000\n", 2, 2, true},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct seen seen = run_with_quota(rows[i].cpu_max, rows[i].workers);
        CHECK_INT(seen.workers, ==, rows[i].workers_seen);
        CHECK_INT(seen.spin, ==, rows[i].spin);
    }
}

/* Locks are looked at through glibc's own member: there is no call that tells. */
static bool spins_first(const struct lock *lock)
{
#if defined(__GLIBC__)
    return (lock->mutex.__data.__kind & 127) == PTHREAD_MUTEX_ADAPTIVE_NP;
#else
    (void)lock;
    return worker_self()->runtime->spin;
#endif
}

static int look_at_locks(void *arg)
{
    const weir_runtime *runtime = worker_self()->runtime;
    struct stable *stable = stable_alloc(worker_self()->runtime, sizeof(struct stable));

    CHECK(stable != NULL);
    CHECK_INT(spins_first(&stable->lock), ==, runtime->spin);
    CHECK_INT(spins_first(&runtime->root->lock), ==, runtime->spin);
    CHECK_INT(spins_first(&runtime->memory_lock), ==, runtime->spin);
    CHECK_INT(spins_first(&worker_self()->fresh_lock), ==, runtime->spin);
    stable_free(stable);
    return look(arg);
}

TEST(below_one_core_no_lock_is_spun_for)
{
    static const char *const cpu_max[] = {"50000 100000\n", "max 100000\n"};

    for (size_t i = 0; i < sizeof cpu_max / sizeof *cpu_max; i++) {
        struct fake fake;

        fake_init(&fake, AFFINITY, "0::/a\n");
        fake_file(&fake, "sys/a/cpu.max", cpu_max[i]);
        CHECK_INT(run_in(&fake, &(weir_config){.workers = 2}, look_at_locks).spin, ==, i == 1);
        fake_deinit(&fake);
    }
}

/* ---- Memory ---- */

TEST(memory_limit_sets_the_stack_budget)
{
    const int64_t limit_bytes = INT64_C(512) << 20;
    struct fake fake;
    struct seen seen;

    fake_init(&fake, AFFINITY, "0::/outer/inner\n");
    fake_file(&fake, "sys/outer/memory.max", "536870912\n");
    fake_file(&fake, "sys/outer/inner/memory.max", "max\n");
    seen = run_in(&fake, NULL, look);
    CHECK_INT(seen.budget_bytes, ==, limit_bytes / WEIR_STACK_BUDGET_PART);
    CHECK_INT(seen.count_max, ==, seen.budget_bytes / seen.charge_bytes);
    /* Whoever says how many tasks there may be has said it. */
    seen = run_in(&fake, &(weir_config){.max_tasks = 20000}, look);
    CHECK_INT(seen.budget_bytes, ==, 0);
    CHECK_INT(seen.count_max, ==, 20000);
    /* Larger stacks, fewer tasks. */
    seen = run_in(&fake, &(weir_config){.stack_bytes = WEIR_STACK_BYTES_MAX / 8}, look);
    CHECK_INT(seen.count_max, ==, seen.budget_bytes / seen.charge_bytes);
    CHECK_INT(seen.charge_bytes, >=, WEIR_STACK_BYTES_MAX / 8 / STACK_CHARGE_PART);
    fake_deinit(&fake);

    fake_init(&fake, AFFINITY, "9:memory:/m\n");
    fake_file(&fake, "sys/memory/m/memory.limit_in_bytes", "536870912\n");
    seen = run_in(&fake, NULL, look);
    CHECK_INT(seen.budget_bytes, ==, limit_bytes / WEIR_STACK_BUDGET_PART);
    fake_deinit(&fake);

    fake_init(&fake, AFFINITY, "0::/a\n");
    fake_file(&fake, "sys/a/memory.max", "max\n");
    seen = run_in(&fake, NULL, look);
    CHECK_INT(seen.budget_bytes, ==, 0);
    CHECK_INT(seen.count_max, >=, STACK_COUNT_MAX_PROTECTED);
    fake_file(&fake, "sys/a/memory.max", "1\n"); /* not enough for anything, and yet it starts */
    seen = run_in(&fake, NULL, look);
    CHECK_INT(seen.count_max, ==, STACK_COUNT_MAX_LEAST);
    fake_deinit(&fake);
}

static int sleep_until_cancelled(void *arg)
{
    (void)arg;
    return weir_sleep(60000);
}

static int spawn_until_refused(void *arg)
{
    const struct stack_pool *stacks = &worker_self()->runtime->stacks;
    size_t count = 1; /* this one */
    int r = 0;

    (void)look(arg);
    WEIR_SCOPE(scope, &r, .name = "many", .on_failure = WEIR_FAIL_FAST, .max_tasks = SIZE_MAX,
               .overflow = WEIR_WAIT) {
        int spawned;

        while ((spawned = weir_spawn(scope, sleep_until_cancelled, NULL, 0)) == 0) count++;
        CHECK_INT(spawned, ==, WEIR_EOVERLOAD);
        CHECK_INT(count, ==, stacks->count_max);
        CHECK_STR(weir_why(),
                  "scope 'many': no stack for another task: the budget of 4096 KiB, which the "
                  "container's memory limit of 8192 KiB has set, is used up (max_tasks of "
                  "weir_config sets another bound)");
        weir_scope_cancel(scope, 0, "seen");
    }
    /* What has ended makes room again. */
    WEIR_SCOPE(scope, &r, .name = "again", .on_failure = WEIR_FAIL_FAST, .max_tasks = SIZE_MAX,
               .overflow = WEIR_WAIT) {
        CHECK_OK(weir_spawn(scope, sleep_until_cancelled, NULL, 0));
        weir_scope_cancel(scope, 0, "seen");
    }
    return r;
}

/* A large stack counts for what it is, although the task has a credit for a small one. */
static int spawn_large_until_refused(void *arg)
{
    const struct stack_pool *stacks = &worker_self()->runtime->stacks;
    size_t count = 0;
    int r = 0;

    (void)look(arg);
    WEIR_SCOPE(scope, &r, .name = "large", .on_failure = WEIR_FAIL_FAST, .max_tasks = SIZE_MAX,
               .overflow = WEIR_WAIT, .stack_bytes = 1 << 20) {
        int spawned;

        while ((spawned = weir_spawn(scope, sleep_until_cancelled, NULL, 0)) == 0) count++;
        CHECK_INT(spawned, ==, WEIR_EOVERLOAD);
        CHECK_CONTAINS(weir_why(), "scope 'large': no stack for another task: the budget of ");
        CHECK_INT(count, >, 0);
        CHECK_INT(count, <=, stacks->budget_bytes / ((1 << 20) / STACK_CHARGE_PART));
        weir_scope_cancel(scope, 0, "seen");
    }
    return r;
}

TEST(spawn_is_refused_with_a_sentence_when_the_stack_budget_is_used_up)
{
    struct fake fake;

    fake_init(&fake, 1, "0::/a\n");
    fake_file(&fake, "sys/a/memory.max", "8388608\n");
    (void)run_in(&fake, &(weir_config){.stack_bytes = WEIR_STACK_BYTES_MIN}, spawn_until_refused);
    (void)run_in(&fake, &(weir_config){.stack_bytes = WEIR_STACK_BYTES_MIN},
                 spawn_large_until_refused);
    fake_deinit(&fake);
}

static int refuse_beyond_max_tasks(void *arg)
{
    int r = 0;

    (void)look(arg);
    WEIR_SCOPE(scope, &r, .name = "few", .on_failure = WEIR_FAIL_FAST, .max_tasks = 10,
               .overflow = WEIR_WAIT) {
        CHECK_OK(weir_spawn(scope, sleep_until_cancelled, NULL, 0));
        CHECK_INT(weir_spawn(scope, sleep_until_cancelled, NULL, 0), ==, WEIR_EOVERLOAD);
        CHECK_STR(weir_why(), "scope 'few': no stack for another task: the runtime has room for 2");
        weir_scope_cancel(scope, 0, "seen");
    }
    return r;
}

TEST(spawn_beyond_max_tasks_of_the_runtime_says_so)
{
    struct fake fake;

    fake_init(&fake, 1, "0::/\n");
    (void)run_in(&fake, &(weir_config){.max_tasks = 2}, refuse_beyond_max_tasks);
    fake_deinit(&fake);
}

/* ---- The dump ---- */

static int dump_into_pipe(void *arg)
{
    char text[4096];
    ssize_t length;
    int fds[2];

    (void)look(arg);
    CHECK_INT(pipe2(fds, O_CLOEXEC), ==, 0);
    CHECK_OK(weir_dump(fds[1]));
    length = read(fds[0], text, sizeof text - 1);
    CHECK_INT(length, >, 0);
    text[length] = '\0';
    CHECK_CONTAINS(text, "\nlimits: 1 core, quota 0.500, memory 8.0 MiB; stacks for ");
    CHECK_CONTAINS(text, " MiB of a budget of 4.0 MiB\n");
    CHECK_INT(close(fds[0]) | close(fds[1]), ==, 0);
    return 0;
}

TEST(dump_shows_quota_memory_limit_and_stack_budget)
{
    struct fake fake;

    fake_init(&fake, AFFINITY, "0::/a\n");
    fake_file(&fake, "sys/a/cpu.max", "50000 100000\n");
    fake_file(&fake, "sys/a/memory.max", "8388608\n");
    (void)run_in(&fake, &(weir_config){.stack_bytes = WEIR_STACK_BYTES_MIN}, dump_into_pipe);
    fake_deinit(&fake);
}

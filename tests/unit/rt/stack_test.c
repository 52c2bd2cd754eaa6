/* stack_test.c - stacks: classes, credits, reuse, guards, giving memory back. */
#include "rt/stack.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rt/runtime.h"
#include "unit/rt/support.h"

/* ---- The pool ---- */

static struct stack_pool pool;
static struct stack_cache cache;

static void pool_open(size_t count_max, size_t caches)
{
    test_kernel_install();
    memset(&cache, 0, sizeof cache);
    CHECK_OK(stack_pool_init(&pool, kernel_current(), count_max, caches));
}

static void pool_close(void)
{
    stack_cache_flush(&pool, &cache);
    stack_pool_deinit(&pool);
}

TEST(stack_classes_are_powers_of_two_and_the_whole_size_is_usable)
{
    size_t factor = TEST_SANITIZED ? 4 : 1; /* instrumented frames are larger */

    pool_open(0, 1);
    CHECK_INT(stack_class_for(1), >=, 0);
    for (size_t bytes = WEIR_STACK_BYTES_MIN; bytes <= WEIR_STACK_BYTES_MAX; bytes *= 2) {
        int class = stack_class_for(bytes);
        struct stack *stack;

        CHECK_INT(class, >=, 0);
        CHECK_INT(stack_class_bytes(&pool, (unsigned)class), ==,
                  bytes * factor > pool.page_bytes ? bytes * factor : pool.page_bytes);
        CHECK_INT(stack_class_for(bytes - 1), ==, class);
        if (bytes < WEIR_STACK_BYTES_MAX) CHECK_INT(stack_class_for(bytes + 1), ==, class + 1);
        CHECK_OK(stack_credit_take(&pool, (unsigned)class, 1));
        stack = stack_take(&pool, &cache, (unsigned)class);
        CHECK_INT((uintptr_t)stack_top(stack) % 16, ==, 0);
        CHECK_INT((uintptr_t)stack->low % pool.page_bytes, ==, 0);
        CHECK_INT(stack_bytes(stack), >=, bytes * factor);
        stack->low[0] = 1; /* the lowest byte is ours, the one below is not */
        CHECK(!stack_guard_contains(&pool, stack, stack->low));
        CHECK(stack_guard_contains(&pool, stack, stack->low - 1));
        stack_return(&pool, &cache, stack, stack->size_class);
        stack_credit_return(&pool, (unsigned)class, 1);
    }
    CHECK_INT(stack_class_for(WEIR_STACK_BYTES_MAX * 32ul), ==, -1);
    pool_close();
}

/* Else the tops of all stacks would share a few sets of the cache. */
TEST(neighbouring_stacks_begin_at_different_lines_of_their_pages)
{
    enum { NEIGHBOURS = 8 };
    struct stack *stacks[NEIGHBOURS];

    pool_open(0, 1);
    CHECK_OK(stack_credit_take(&pool, 0, NEIGHBOURS));
    for (int i = 0; i < NEIGHBOURS; i++) {
        stacks[i] = stack_take(&pool, &cache, 0);
        for (int j = 0; j < i; j++) {
            CHECK_INT((uintptr_t)stack_top(stacks[i]) % pool.page_bytes / 64, !=,
                      (uintptr_t)stack_top(stacks[j]) % pool.page_bytes / 64);
        }
    }
    for (int i = 0; i < NEIGHBOURS; i++) stack_return(&pool, &cache, stacks[i], 0);
    stack_credit_return(&pool, 0, NEIGHBOURS);
    pool_close();
}

TEST(credits_are_exact_at_the_cap_whatever_the_class)
{
    pool_open(100, 2);
    CHECK_OK(stack_credit_take(&pool, 0, 60));
    CHECK_OK(stack_credit_take(&pool, 3, 40));
    CHECK_INT(stack_credit_take(&pool, 0, 1), ==, WEIR_EOVERLOAD);
    CHECK_INT(stack_credit_take(&pool, 3, 1), ==, WEIR_EOVERLOAD);
    stack_credit_return(&pool, 3, 1);
    CHECK_INT(stack_credit_take(&pool, 0, 2), ==, WEIR_EOVERLOAD);
    CHECK_OK(stack_credit_take(&pool, 0, 1));
    stack_credit_return(&pool, 0, 61);
    stack_credit_return(&pool, 3, 39);
    CHECK_OK(stack_credit_take(&pool, 1, 100));
    stack_credit_return(&pool, 1, 100);
    pool_close();
}

/* Whoever holds a credit gets a stack, although another worker's cache is full and
 * that worker is just leaving one more. */
TEST(credit_is_good_for_a_stack_also_when_other_workers_keep_theirs)
{
    static struct stack_cache other;
    struct stack *stacks[2 * STACK_SLAB_COUNT + 1];
    struct stack *leaving;

    pool_open(0, 2);
    memset(&other, 0, sizeof other);
    CHECK_OK(stack_credit_take(&pool, 0, STACK_CACHE_MAX + 1));
    for (int i = 0; i < STACK_CACHE_MAX; i++) stacks[i] = stack_take(&pool, &other, 0);
    leaving = stack_take(&pool, &other, 0); /* its task has ended, it is in no cache yet */
    for (int i = 0; i < STACK_CACHE_MAX; i++)
        stack_return(&pool, &other, stacks[i], stacks[i]->size_class);
    stack_credit_return(&pool, 0, STACK_CACHE_MAX + 1);
    CHECK_OK(stack_credit_take(&pool, 0, 2 * STACK_SLAB_COUNT));
    for (int i = 0; i < 2 * STACK_SLAB_COUNT; i++) {
        stacks[i] = stack_take(&pool, &cache, 0);
        CHECK(stacks[i] != NULL);
    }
    for (int i = 0; i < 2 * STACK_SLAB_COUNT; i++)
        stack_return(&pool, &cache, stacks[i], stacks[i]->size_class);
    stack_return(&pool, &other, leaving, leaving->size_class);
    stack_credit_return(&pool, 0, 2 * STACK_SLAB_COUNT);
    stack_cache_flush(&pool, &other);
    pool_close();
}

TEST(hot_stack_is_used_again_first)
{
    struct stack *first, *second;

    pool_open(0, 1);
    CHECK_OK(stack_credit_take(&pool, 0, 2));
    first = stack_take(&pool, &cache, 0);
    second = stack_take(&pool, &cache, 0);
    CHECK(first != second);
    stack_return(&pool, &cache, first, first->size_class);
    CHECK(stack_take(&pool, &cache, 0) == first);
    stack_return(&pool, &cache, first, first->size_class);
    stack_return(&pool, &cache, second, second->size_class);
    CHECK(stack_take(&pool, &cache, 0) == second);
    stack_return(&pool, &cache, second, second->size_class);
    stack_credit_return(&pool, 0, 2);
    pool_close();
}

static void touch(struct stack *stack)
{
    for (size_t i = 0; i < stack_bytes(stack); i += 512) stack->low[i] = 1;
}

TEST(trim_gives_the_memory_of_free_stacks_back_and_they_are_usable_again)
{
    enum { COUNT = 100 };
    struct stack *stacks[COUNT];
    char *lows[COUNT];
    unsigned char resident[4096];
    size_t bytes, pages = 0;

    pool_open(0, 1);
    bytes = stack_class_bytes(&pool, 0) + pool.page_bytes; /* one for the colour */
    CHECK_OK(stack_credit_take(&pool, 0, COUNT));
    for (int i = 0; i < COUNT; i++) {
        stacks[i] = stack_take(&pool, &cache, 0);
        CHECK_INT(stack_touched_bytes(&pool, stacks[i]), <=, pool.page_bytes);
        touch(stacks[i]);
        CHECK_INT(stack_touched_bytes(&pool, stacks[i]), ==, bytes);
        lows[i] = stacks[i]->low;
    }
    for (int i = 0; i < COUNT; i++) stack_return(&pool, &cache, stacks[i], stacks[i]->size_class);
    CHECK_INT(stack_pool_trim(&pool, COUNT), <, COUNT); /* those in the cache stay */
    stack_cache_flush(&pool, &cache);
    CHECK_INT(stack_pool_trim(&pool, 5), ==, 5);
    while (stack_pool_trim(&pool, 10) > 0) {}
    for (int i = 0; i < COUNT; i++) {
        CHECK_INT(mincore(lows[i], bytes, resident), ==, 0);
        for (size_t p = 0; p < bytes / pool.page_bytes; p++) pages += resident[p] & 1;
    }
    CHECK_INT(pages, ==, 0);
    for (int i = 0; i < COUNT; i++) {
        stacks[i] = stack_take(&pool, &cache, 0);
        touch(stacks[i]);
        for (int j = 0; j < i; j++) CHECK(stacks[j]->low != stacks[i]->low);
    }
    for (int i = 0; i < COUNT; i++) stack_return(&pool, &cache, stacks[i], stacks[i]->size_class);
    stack_credit_return(&pool, 0, COUNT);
    pool_close();
}

static void touch_guard(void *arg)
{
    struct stack *stack;

    if (arg) test_mask_features("guard");
    pool_open(0, 1);
    CHECK(pool.guard_by_advice != (arg != NULL));
    CHECK_OK(stack_credit_take(&pool, 0, 1));
    stack = stack_take(&pool, &cache, 0);
    signal(SIGSEGV, SIG_DFL);
    *(volatile char *)(stack->low - 1) = 1;
    printf("the guard does not hold\n");
}

TEST(guard_holds_by_advice_and_by_protection)
{
    char output[256];
    int status;

    if (WEIR_ASAN) TEST_SKIP("AddressSanitizer takes the fault");
    pool_open(0, 1);
    if (pool.guard_by_advice) {
        pool_close();
        status = test_child(touch_guard, NULL, output, sizeof output);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    } else {
        pool_close();
    }
    status = test_child(touch_guard, &pool, output, sizeof output);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

TEST(without_guard_advice_the_cap_is_what_the_mappings_allow)
{
    test_mask_features("guard");
    pool_open(0, 1);
    CHECK(!pool.guard_by_advice);
    CHECK_INT(pool.count_max, ==, STACK_COUNT_MAX_PROTECTED);
    pool_close();
    pool_open(5, 1);
    CHECK_INT(pool.count_max, ==, 5);
    pool_close();
    pool_open(1000000, 1);
    CHECK_INT(pool.count_max, ==, STACK_COUNT_MAX_PROTECTED);
    pool_close();
}

TEST(a_budget_counts_each_credit_with_a_quarter_of_its_stack)
{
    const size_t small = WEIR_STACK_BYTES_MIN / STACK_CHARGE_PART;
    const size_t budget = (STACK_COUNT_MAX_LEAST + 36) * small;

    pool_open(0, 1);
    if (pool.page_bytes > WEIR_STACK_BYTES_MIN) {
        pool_close();
        TEST_SKIP("the small classes are all a page here");
    }
    stack_pool_set_budget(&pool, budget, 0);
    CHECK_INT(pool.count_max, ==, STACK_COUNT_MAX_LEAST + 36);
    CHECK_OK(stack_credit_take(&pool, 0, pool.count_max - 8));
    CHECK_INT(stack_credit_take(&pool, 2, 3), ==, WEIR_EOVERLOAD); /* each counts as four */
    CHECK_OK(stack_credit_take(&pool, 2, 1));
    CHECK_OK(stack_credit_lend(&pool, 2));
    CHECK_INT(stack_credit_lend(&pool, 0), ==, WEIR_EOVERLOAD);
    CHECK_INT(stack_credit_take(&pool, 0, 1), ==, WEIR_EOVERLOAD);
    CHECK_INT(pool.charged_bytes, ==, pool.budget_bytes);
    stack_credit_unlend(&pool, 2);
    CHECK_OK(stack_credit_take(&pool, 0, 4));
    stack_credit_return(&pool, 2, 1);
    stack_credit_return(&pool, 0, pool.count_max - 4);
    CHECK_INT(pool.charged_bytes, ==, 0);
    pool_close();
}

TEST(failing_kernel_calls_are_an_error_of_the_credit_and_leak_nothing)
{
    static const struct {
        const char *call;
        int error;
    } rows[] = {{"map", -ENOMEM}, {"advise", -ENOMEM}, {"advise", -EINTR}};

    pool_open(0, 1);
    if (!pool.guard_by_advice) TEST_SKIP("needs MADV_GUARD_INSTALL");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        test_fault(rows[i].call, rows[i].error, 1);
        CHECK_INT(stack_credit_take(&pool, 1, 1), ==, -ENOMEM);
    }
    test_fail_alloc_at(1);
    CHECK_INT(stack_credit_take(&pool, 1, 1), ==, -ENOMEM);
    test_fail_alloc_at(0);
    CHECK_OK(stack_credit_take(&pool, 1, 1));
    stack_credit_return(&pool, 1, 1);
    pool_close();
}

/* ---- As programs see it ---- */

struct cap {
    int placed; /* -1: here */
    int free;   /* tasks that fit beside main */
    size_t stack_bytes;
};

static int wait_for_go(void *arg)
{
    await_flag(*(ATOM(int) **)arg);
    return 0;
}

static int reach_the_cap(void *arg)
{
    const struct cap *cap = arg;
    weir_scope *scope = open_scope("cap", WEIR_FAIL_FAST);

    for (int round = 0; round < 3; round++) {
        ATOM(int) go = 0;
        ATOM(int) *pointer = &go;
        int count = 0, r = 0;

        for (; r == 0 && count <= cap->free; count += r == 0)
            r = weir_task_spawn(
                scope,
                &(weir_task_spec){.fn = wait_for_go,
                                  .arg = &pointer,
                                  .arg_bytes = sizeof pointer,
                                  .stack_bytes = cap->stack_bytes,
                                  .place = cap->placed < 0 ? WEIR_PLACE_HERE : WEIR_PLACE_WORKER,
                                  .worker = cap->placed < 0 ? 0 : cap->placed},
                NULL);
        CHECK_INT(r, ==, WEIR_EOVERLOAD);
        CHECK_INT(count, ==, cap->free);
        atom_store(&go, 1);
        CHECK_OK(weir_scope_join(scope)); /* and there is room again */
    }
    return weir_scope_close(scope);
}

TEST(runtimes_max_tasks_is_exact_and_recovers)
{
    static const struct {
        int workers;
        int max_tasks;
        struct cap cap;
    } rows[] = {
        {1, 10, {-1, 9, 0}},
        {1, 1, {-1, 0, 0}},
        {1, 700, {-1, 699, 0}},
        {2, 10, {-1, 9, 0}},
        /* These end on the other worker. */
        {2, 10, {1, 9, 0}},
        {2, 700, {1, 699, 0}},
        /* These have stacks of another class than the default. */
        {1, 10, {-1, 9, 256 * 1024}},
        {2, 10, {1, 9, 256 * 1024}},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct cap cap = rows[i].cap;

        test_note("row %zu", i);
        CHECK_OK(weir_run(
            &(weir_config){.workers = rows[i].workers, .max_tasks = (size_t)rows[i].max_tasks},
            reach_the_cap, &cap));
    }
}

/* One task has a stack of another class; `others` have the default one. It ends when
 * nothing can be mapped or allocated any more. */
static int end_without_memory(void *arg)
{
    int others = *(int *)arg;
    ATOM(int) one = 0, all = 0;
    ATOM(int) * pointers[2] = {&one, &all};
    weir_scope *scope = open_scope("ending", WEIR_FAIL_FAST);
    weir_task task = {NULL, 0};

    CHECK_OK(weir_task_spawn(scope,
                             &(weir_task_spec){.fn = wait_for_go,
                                               .arg = &pointers[0],
                                               .arg_bytes = sizeof pointers[0],
                                               .stack_bytes = 256 * 1024},
                             &task));
    for (int i = 0; i < others; i++)
        CHECK_OK(weir_spawn(scope, wait_for_go, &pointers[1], sizeof pointers[1]));
    test_fault("map", -ENOMEM, 1000);
    test_fail_alloc_at(1);
    atom_store(&one, 1);
    CHECK_OK(weir_task_join(task, NULL));
    test_fault("map", -ENOMEM, 0);
    test_fail_alloc_at(0);
    atom_store(&all, 1);
    return weir_scope_close(scope);
}

TEST_WITH(task_with_a_stack_of_another_class_ends_without_memory, .timeout_ms = 60000)
{
    test_kernel_install();
    for (int others = 1; others <= 140; others++) {
        test_note("%d others", others);
        CHECK_OK(
            weir_run(&(weir_config){.workers = 1, .max_tasks = 500}, end_without_memory, &others));
    }
}

/* Uses about `bytes` of stack. */
static __attribute__((noinline)) int use_stack(int bytes)
{
    volatile char frame[1024];
    int below = 0;

    memset((char *)(uintptr_t)frame, bytes, sizeof frame);
    if (bytes > (int)sizeof frame) below = use_stack(bytes - (int)sizeof frame);
    return below + frame[bytes % 1024]; /* the frame is needed after the call */
}

static int use_given_stack(void *arg)
{
    use_stack(*(int *)arg);
    return 0;
}

static int stacks_of_all_sizes(void *arg)
{
    weir_scope *scope = open_scope("sizes", WEIR_FAIL_FAST);

    (void)arg;
    for (int bytes = 16 * 1024; bytes <= 4 * 1024 * 1024; bytes *= 2) {
        int usable = bytes * 3 / 4;

        for (int i = 0; i < 5; i++)
            CHECK_OK(weir_task_spawn(scope,
                                     &(weir_task_spec){.fn = use_given_stack,
                                                       .arg = &usable,
                                                       .arg_bytes = sizeof usable,
                                                       .stack_bytes = (size_t)bytes},
                                     NULL));
    }
    return weir_scope_close(scope);
}

TEST(task_gets_the_stack_it_asks_for)
{
    CHECK_OK(run_on(1, stacks_of_all_sizes, NULL));
    CHECK_OK(run_on(2, stacks_of_all_sizes, NULL));
}

static int overflow_stack(void *arg)
{
    (void)arg;
    return use_stack(64 * 1024 * 1024);
}

static int spawn_overflow(void *arg)
{
    weir_scope *scope = open_scope("deep", WEIR_FAIL_FAST);

    CHECK_OK(weir_task_spawn(scope,
                             &(weir_task_spec){.fn = overflow_stack,
                                               .name = "recursive",
                                               .place = WEIR_PLACE_WORKER,
                                               .worker = *(int *)arg},
                             NULL));
    return weir_scope_close(scope);
}

static void run_overflow(void *arg)
{
    int worker = *(int *)arg;

    if (worker == 0) test_mask_features("guard");
    CHECK_OK(weir_run(&(weir_config){.workers = worker + 1, .signals = WEIR_SIGNAL_OVERFLOW},
                      spawn_overflow, &worker));
}

TEST(overflow_names_the_task)
{
    if (TEST_SANITIZED) TEST_SKIP("the sanitizer takes the fault");
    for (int worker = 0; worker < 2; worker++) {
        char output[512];
        int status = test_child(run_overflow, &worker, output, sizeof output);

        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
        CHECK_CONTAINS(output, "weir: task 'recursive' in scope 'deep' overflowed its stack of ");
    }
}

static int raise_fault(void *arg)
{
    (void)arg;
    CHECK_INT(raise(SIGSEGV), ==, 0);
    printf("still there\n");
    return 0;
}

static void run_raise(void *arg)
{
    (void)arg;
    CHECK_OK(
        weir_run(&(weir_config){.workers = 1, .signals = WEIR_SIGNAL_OVERFLOW}, raise_fault, NULL));
}

/* A fault comes again when its handler returns; what somebody sent does not. */
TEST(fault_signal_that_was_sent_ends_the_process)
{
    char output[512];
    int status;

    if (TEST_SANITIZED) TEST_SKIP("the sanitizer takes the signal");
    status = test_child(run_raise, NULL, output, sizeof output);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    /* Nothing by the library; qemu-user itself says a line. */
    if (strncmp(output, "qemu: uncaught target signal 11 ", 32) != 0) CHECK_STR(output, "");
}

static int many_then_none(void *arg)
{
    ATOM(int) go = 0;
    ATOM(int) *pointer = &go;
    weir_scope *scope = open_scope("many", WEIR_FAIL_FAST);
    uint64_t advised;

    (void)arg;
    for (int i = 0; i < 1000; i++)
        CHECK_OK(weir_spawn(scope, wait_for_go, &pointer, sizeof pointer));
    CHECK_OK(weir_yield());
    atom_store(&go, 1);
    CHECK_OK(weir_scope_close(scope));
    advised = test_calls("advise");
    CHECK_OK(weir_sleep(1000));
    CHECK_INT(test_calls("advise") - advised, >=, 900);
    return 0;
}

TEST(idle_runtime_gives_cold_stacks_back)
{
    test_clock_auto();
    CHECK_OK(run_on(1, many_then_none, NULL));
}

/* How many stacks were given back after `count` tasks of this size had ended. */
static uint64_t given_back_after(size_t stack_bytes, int count)
{
    ATOM(int) go = 0;
    ATOM(int) *pointer = &go;
    weir_scope *scope = NULL;
    uint64_t advised;

    CHECK_OK(weir_scope_open(&(weir_scope_spec){.name = "used",
                                                .on_failure = WEIR_FAIL_FAST,
                                                .max_tasks = 1000,
                                                .overflow = WEIR_REJECT,
                                                .stack_bytes = stack_bytes},
                             &scope));
    for (int i = 0; i < count; i++)
        CHECK_OK(weir_spawn(scope, wait_for_go, &pointer, sizeof pointer));
    CHECK_OK(weir_yield());
    atom_store(&go, 1);
    CHECK_OK(weir_scope_close(scope));
    advised = test_calls("advise");
    CHECK_OK(weir_sleep(1000));
    return test_calls("advise") - advised;
}

/* Also those of a class that is not the default, and those in the worker's cache. */
static int use_stacks_of_two_classes(void *arg)
{
    (void)arg;
    CHECK_INT(given_back_after(512 * 1024, STACK_CACHE_MAX + 50), >=, STACK_CACHE_MAX + 50);
    CHECK_INT(given_back_after(0, STACK_CACHE_MAX / 2), >=, STACK_CACHE_MAX / 2);
    return 0;
}

TEST(idle_runtime_gives_back_stacks_of_every_class_and_its_cache)
{
    test_clock_auto();
    CHECK_OK(run_on(1, use_stacks_of_two_classes, NULL));
}

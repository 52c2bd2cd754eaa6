/* hidden.c - tests that go wrong, for harness_test.c to run in processes of their own. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "harness/test.h"
#include "rt/kernel.h"
#include "rt/mem.h"

#define HIDDEN_TEST(name_) TEST_WITH(name_, .hidden = true)

HIDDEN_TEST(hidden_passes)
{
    CHECK(true);
    CHECK_INT(2, <, 3);
    CHECK_STR("same", "same");
    CHECK_CONTAINS("haystack", "stack");
    CHECK_OK(0);
}

HIDDEN_TEST(hidden_fails_a_check)
{
    int apples = 3;

    CHECK(apples == 4);
}

HIDDEN_TEST(hidden_fails_an_integer)
{
    int apples = -4097;

    CHECK_INT(apples + 0, ==, 17);
}

HIDDEN_TEST(hidden_fails_a_string)
{
    const char *name = "left";

    CHECK_STR(name, "right");
}

HIDDEN_TEST(hidden_fails_against_null)
{
    CHECK_STR(NULL, "right");
}

static void *fail_on_thread(void *arg)
{
    (void)arg;
    CHECK_INT(1, ==, 2);
    return NULL;
}

HIDDEN_TEST(hidden_fails_on_a_thread)
{
    pthread_t thread;

    CHECK_INT(pthread_create(&thread, NULL, fail_on_thread, NULL), ==, 0);
    pthread_join(thread, NULL);
}

TEST_WITH(hidden_hangs, .hidden = true, .timeout_ms = 500)
{
    test_note("waiting for %s", "nothing");
    puts("some output before the hang");
    for (;;) (void)poll(NULL, 0, -1);
}

TEST_WITH(hidden_hangs_silently, .hidden = true, .timeout_ms = 500)
{
    for (;;) (void)poll(NULL, 0, -1);
}

HIDDEN_TEST(hidden_leaves_a_hanging_process)
{
    pid_t pid = fork();

    CHECK_INT(pid, >=, 0);
    if (pid == 0)
        for (;;) (void)poll(NULL, 0, -1);
    printf("left behind: %d\n", (int)pid);
    TEST_FAIL("to show the output");
}

/* Nobody looks at how the process ended. */
HIDDEN_TEST(hidden_fails_in_a_forked_process)
{
    pid_t pid = fork();

    CHECK_INT(pid, >=, 0);
    if (pid == 0) CHECK_INT(3, ==, 4);
    CHECK_INT(waitpid(pid, NULL, 0), ==, pid);
}

HIDDEN_TEST(hidden_closes_twice)
{
    const struct kernel *kernel = kernel_current();
    int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);

    CHECK(fd >= 0);
    (void)kernel->close(kernel, fd);
    (void)kernel->close(kernel, fd);
}

/* The number was given to somebody else in between, whose close is then one too many. */
HIDDEN_TEST(hidden_closes_somebody_elses)
{
    const struct kernel *kernel = kernel_current();
    int mine = open("/dev/zero", O_RDONLY | O_CLOEXEC), others;

    (void)kernel->close(kernel, mine);
    others = open("/dev/null", O_RDONLY | O_CLOEXEC);
    CHECK_INT(others, ==, mine);
    (void)kernel->close(kernel, mine);
    (void)kernel->close(kernel, others);
}

static __attribute__((noinline)) void *leak_here(void)
{
    void *volatile memory = mem_alloc(123); /* no tail call: this frame is to be seen */

    return memory;
}

HIDDEN_TEST(hidden_leaks_memory)
{
    CHECK(leak_here() != NULL);
}

/* AddressSanitizer's to catch: the library does not allocate this way. */
HIDDEN_TEST(hidden_leaks_memory_of_libc)
{
    static void *volatile memory;

    memory = malloc(321);
    CHECK(memory != NULL);
    memory = NULL;
}

static int raced;
static ATOM(bool) race_written;

static void *race_writer(void *arg)
{
    raced = 1;
    mem_free(mem_alloc(10));
    atom_store(&race_written, true);
    return arg;
}

/* ThreadSanitizer's to catch, although both threads have allocated in between. */
HIDDEN_TEST(hidden_races_around_allocations)
{
    pthread_t thread;

    CHECK_INT(pthread_create(&thread, NULL, race_writer, NULL), ==, 0);
    while (!atom_load(&race_written)) atom_pause();
    mem_free(mem_alloc(10));
    CHECK_INT(raced, ==, 1);
    pthread_join(thread, NULL);
}

HIDDEN_TEST(hidden_leaks_a_descriptor)
{
    CHECK_INT(open("/dev/zero", O_RDONLY), >=, 0);
}

HIDDEN_TEST(hidden_closes_what_it_does_not_own)
{
    CHECK_INT(close(STDIN_FILENO), ==, 0);
}

static void *wait_for_ever(void *arg)
{
    for (;;) (void)poll(NULL, 0, -1);
    return arg;
}

TEST_WITH(hidden_leaks_a_thread, .hidden = true, .timeout_ms = 15000)
{
    pthread_t thread;

    CHECK_INT(pthread_create(&thread, NULL, wait_for_ever, NULL), ==, 0);
}

HIDDEN_TEST(hidden_frees_twice)
{
    void *memory = mem_alloc(10);
    void *volatile again = memory;

    mem_free(memory);
    mem_free(again);
}

HIDDEN_TEST(hidden_aborts)
{
    abort();
}

HIDDEN_TEST(hidden_exits_early)
{
    exit(0);
}

HIDDEN_TEST(hidden_skips)
{
    TEST_SKIP("the moon is not full");
}

HIDDEN_TEST(hidden_prints_much)
{
    for (int i = 1; i <= 1000; i++) printf("line %d.\n", i);
    TEST_FAIL("to show the output");
}

HIDDEN_TEST(hidden_says_how_many_workers)
{
    printf("workers: %d\n", test_workers());
    TEST_FAIL("to show the output");
}

/* ---- Scenarios that do not survive a fault ---- */

static int leak_when_the_second_fails(void *arg)
{
    void *first = mem_alloc(10);
    void *second = mem_alloc(10);

    (void)arg;
    if (first == NULL || second == NULL) return -1;
    mem_free(first);
    mem_free(second);
    return 0;
}

HIDDEN_TEST(hidden_sweep_finds_a_leak)
{
    (void)test_sweep_alloc(leak_when_the_second_fails, NULL);
}

static int always_fails(void *arg)
{
    (void)arg;
    return -5;
}

HIDDEN_TEST(hidden_sweep_finds_a_scenario_that_never_works)
{
    (void)test_sweep_alloc(always_fails, NULL);
}

HIDDEN_TEST(hidden_fault_of_an_unknown_call)
{
    test_fault("frobnicate", -1, 1);
}

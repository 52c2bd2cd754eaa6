/* unwind_test.c - backtraces of a task that was interrupted anywhere.
 *
 * A thread asks again and again where a task is that sorts, formats, allocates and recurses,
 * in this program and in the C library. Every answer that was taken in one of them must lead
 * to the task's own function.
 */
#include "watch/unwind.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

#include "harness/test.h"
#include "watch/symbol.h"
#include "watch/watchdog.h"

enum { ANSWERS = 1500, ANSWERS_LEAST = 20, NUMBERS = 64 };
#define ENOUGH_NS INT64_C(2000000000) /* on a busy machine answers are slow */

static ATOM(bool) begun, over;
static ATOM(int) sink;

static int compare(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    (void)atom_add(&sink, 1);
    return (x > y) - (x < y);
}

static __attribute__((noinline)) int recurse(int depth)
{
    char text[32];
    int r = depth > 0 ? recurse(depth - 1) : snprintf(text, sizeof text, "%d %f", depth, 1.5);
    (void)atom_add(&sink, r);
    return r;
}

static __attribute__((noinline)) void unwind_test_works(void)
{
    int numbers[NUMBERS];
    char *memory;

    for (int i = 0; i < NUMBERS; i++) numbers[i] = (i * 7919) % 101;
    qsort(numbers, NUMBERS, sizeof numbers[0], compare);
    memory = malloc((size_t)numbers[1] * 100 + 1);
    CHECK(memory != NULL);
    memset(memory, 1, (size_t)numbers[1] * 100 + 1);
    free(memory);
    (void)recurse(10);
    (void)atom_add(&sink, numbers[3]);
}

static int worker_of_all_trades(void *arg)
{
    (void)arg;
    atom_store_total(&begun, true);
    while (!atom_load(&over)) unwind_test_works();
    (void)atom_add(&sink, 1);
    return 0;
}

/* ---- Asking ---- */

struct asking {
    struct watchdog *watchdog;
    struct worker *worker;
    struct symbol_table symbols;
    struct backtrace backtrace;
    int whole, in_library, deep;
};

static bool has(struct asking *asking, const char *name)
{
    struct symbol symbol;

    for (unsigned i = 0; i < asking->backtrace.count; i++) {
        if (symbol_find(&asking->symbols, asking->backtrace.frames[i], &symbol) == 0 &&
            symbol.name && strcmp(symbol.name, name) == 0) {
            return true;
        }
    }
    return false;
}

static bool begins_elsewhere(struct asking *asking)
{
    struct symbol symbol, own;

    if (symbol_find(&asking->symbols, asking->backtrace.frames[0], &symbol) < 0) return true;
    CHECK_OK(symbol_find(&asking->symbols, (uintptr_t)unwind_test_works, &own));
    return strcmp(symbol.module, own.module) != 0;
}

static void show(struct asking *asking, char *text, size_t bytes)
{
    size_t used = 0;

    for (unsigned i = 0; i < asking->backtrace.count && used + 2 < bytes; i++) {
        int n = symbol_format(&asking->symbols, asking->backtrace.frames[i], text + used,
                              bytes - used - 1);
        used += (size_t)n < bytes - used - 1 ? (size_t)n : bytes - used - 2;
        text[used++] = '\n';
        text[used] = '\0';
    }
}

static void look_at_answer(struct asking *asking)
{
    struct capture *capture = &asking->watchdog->capture;
    char text[4096];

    if (capture->gone || capture->elsewhere) return;
    capture->start.outermost = (uintptr_t)task_main;
    unwind_copied(&capture->start, &asking->backtrace);
    CHECK_INT(asking->backtrace.count, >=, 1);
#if !defined(__GLIBC__) /* a C library without unwind tables ends it */
    if (!has(asking, "worker_of_all_trades")) {
        asking->in_library++;
        return;
    }
#endif
    if (!has(asking, "worker_of_all_trades")) {
        show(asking, text, sizeof text);
        TEST_FAIL("the task's function is not there:\n%s", text);
    }
    asking->whole++;
    if (begins_elsewhere(asking)) asking->in_library++;
    if (asking->backtrace.count > 8) asking->deep++;
}

static void *ask(void *arg)
{
    struct asking *asking = arg;
    struct capture *capture = &asking->watchdog->capture;
    int64_t until_ns = weir_now_ns() + ENOUGH_NS;

    symbol_table_init(&asking->symbols);
    while (!atom_load_total(&begun)) (void)sched_yield();
    while (asking->whole < ANSWERS && (asking->whole < ANSWERS_LEAST || weir_now_ns() < until_ns)) {
        struct work work = work_of(asking->worker);

        if (!work.task || capture_ask(capture, asking->worker, &work, SIGURG) < 0) {
            (void)sched_yield();
            continue;
        }
        while (atom_load_acquire(&capture->state) != CAPTURE_TAKEN) (void)sched_yield();
        look_at_answer(asking);
        CHECK(capture_done(capture));
    }
    symbol_table_deinit(&asking->symbols);
    atom_store(&over, true);
    return NULL;
}

static int unwinding_main(void *arg)
{
    struct asking *asking = arg;
    int result = 0;
    pthread_t thread;

    asking->worker = worker_self();
    asking->watchdog = atom_load(&worker_self()->runtime->watchdog);
    CHECK_INT(pthread_create(&thread, NULL, ask, asking), ==, 0);
    WEIR_SCOPE(scope, &result, .name = "all", .on_failure = WEIR_FAIL_FAST, .max_tasks = 1,
               .overflow = WEIR_WAIT) {
        CHECK_OK(weir_task_spawn(
            scope,
            &(weir_task_spec){.fn = worker_of_all_trades, .name = "all", .place = WEIR_PLACE_HERE},
            NULL));
    }
    CHECK_INT(pthread_join(thread, NULL), ==, 0);
    return result;
}

TEST_WITH(a_task_that_was_interrupted_anywhere_is_unwound_to_its_own_function, .timeout_ms = 60000)
{
    static struct asking asking;

    /* Its own thread never asks. */
    CHECK_OK(weir_run(&(weir_config){.workers = 1,
                                     .watchdog_signal = SIGURG,
                                     .watchdog_ms = WEIR_WATCHDOG_MS_MAX},
                      unwinding_main, &asking));
    test_note("%d whole, %d from another module, %d deep", asking.whole, asking.in_library,
              asking.deep);
    CHECK_INT(asking.whole, >=, ANSWERS_LEAST);
    if (asking.whole < ANSWERS / 4) return; /* too few to have seen everything */
    CHECK_INT(asking.deep, >, 0);
    if (!WEIR_ASAN) CHECK_INT(asking.in_library, >, 0);
}

/* ---- What does not fit ends it ---- */

TEST(an_unwinding_that_makes_no_sense_ends_at_once)
{
    static unsigned char stack[256];
    struct unwind_start start = {
        .pc = (uintptr_t)compare,
        .low = (uintptr_t)stack,
        .copy = stack,
        .bytes = sizeof stack,
    };
    struct backtrace backtrace;

    /* The stack pointer is not in the copy. */
    unwind_copied(&start, &backtrace);
    CHECK_INT(backtrace.count, ==, 1);
    CHECK_INT(backtrace.frames[0], ==, (uintptr_t)compare);
    /* It is, but leads nowhere: a return address of 0. */
    start.registers[UNWIND_SP] = (uintptr_t)stack + 16;
    unwind_copied(&start, &backtrace);
    CHECK_INT(backtrace.count, ==, 1);
    /* No module. */
    start.pc = 16;
    unwind_copied(&start, &backtrace);
    CHECK_INT(backtrace.count, ==, 1);
    /* A chain of calls that never ends is cut by the stack's end. */
    for (size_t i = 0; i < sizeof stack / sizeof(uintptr_t); i++) {
        uintptr_t address = (uintptr_t)compare + 1;
        memcpy(stack + i * sizeof address, &address, sizeof address);
    }
    start.pc = (uintptr_t)compare;
    unwind_copied(&start, &backtrace);
    CHECK_INT(backtrace.count, <=, BACKTRACE_FRAMES_MAX);
}

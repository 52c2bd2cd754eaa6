/* dump_support.h - what the tests of the dump share: taking one, and looking into it.
 *
 * Everything is static, so that a file may use a part of it.
 */
#ifndef WEIR_TESTS_WATCH_DUMP_SUPPORT_H
#define WEIR_TESTS_WATCH_DUMP_SUPPORT_H

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <weir/weir.h>

#include "base/atomic.h"
#include "harness/test.h"

static __attribute__((unused)) ATOM(int) sink;
static __attribute__((unused)) volatile int64_t long_ms = 60000; /* no constant to the compiler */
static char text[1024 * 1024];                                   /* the last dump */
static __attribute__((unused)) int result;                       /* of a test's scope */

static inline int open_memory(void)
{
    int fd = memfd_create("dump", MFD_CLOEXEC);
    CHECK_INT(fd, >=, 0);
    return fd;
}

static inline void read_and_close(int fd)
{
    ssize_t bytes = pread(fd, text, sizeof text - 1, 0);
    CHECK_INT(bytes, >=, 0);
    CHECK_INT(bytes, <, sizeof text - 1);
    text[bytes] = '\0';
    CHECK_INT(close(fd), ==, 0);
}

static __attribute__((noinline, unused)) void take_dump(void)
{
    int fd = open_memory();
    CHECK_OK(weir_dump(fd));
    read_and_close(fd);
}

static inline void check_absent(const char *part)
{
    if (strstr(text, part)) TEST_FAIL("the dump has '%s':\n%s", part, text);
}

/* The parts are in the text, in this order. */
static inline void check_order(const char *const *parts)
{
    const char *at = text;

    for (; *parts; parts++) {
        const char *found = strstr(at, *parts);
        if (!found) TEST_FAIL("the dump does not have '%s' there:\n%s", *parts, text);
        at = found + strlen(*parts);
    }
}
#define CHECK_ORDER(...) check_order((const char *const[]){__VA_ARGS__, NULL})

static inline size_t count_parts(const char *part)
{
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part)) count++;
    return count;
}

static inline void run_on(int workers, weir_task_fn fn)
{
    CHECK_OK(weir_run(&(weir_config){.workers = workers, .log_level = WEIR_LOG_ERROR}, fn, NULL));
}

/* A test whose body is the first task: it returns 0. */
#define TEST_TASK(name_, workers_, clock_) \
    static int name_##_main(void *arg);    \
    TEST(name_)                            \
    {                                      \
        clock_();                          \
        run_on((workers_), name_##_main);  \
    }                                      \
    static int name_##_main(void *arg __attribute__((unused)))
#define real_clock() (void)0

static inline void spawn_on(int worker, weir_scope *scope, weir_task_fn fn, const void *arg,
                            size_t bytes)
{
    CHECK_OK(weir_task_spawn(scope,
                             &(weir_task_spec){.fn = fn,
                                               .arg = arg,
                                               .arg_bytes = bytes,
                                               .name = "placed",
                                               .place = WEIR_PLACE_WORKER,
                                               .worker = worker},
                             NULL));
}

#define PLAIN_SCOPE .on_failure = WEIR_COLLECT, .max_tasks = 100, .overflow = WEIR_WAIT

/* A task that sleeps, two functions deep: they are named in its backtrace. */
static __attribute__((noinline, unused)) int dump_test_inner(int64_t ms)
{
    int r = weir_sleep(ms);
    (void)atom_add(&sink, 1);
    return r;
}

static __attribute__((noinline, unused)) int dump_test_outer(int64_t ms)
{
    int r = dump_test_inner(ms);
    (void)atom_add(&sink, 1);
    return r;
}

static inline int sleeper(void *arg)
{
    int r = dump_test_outer(long_ms);
    (void)arg;
    (void)atom_add(&sink, 1);
    return r;
}

/* A task that waits for the close of a scope. */
static inline int closer(void *arg)
{
    int r;

    (void)arg;
    WEIR_SCOPE(scope, &r, .name = "inside", PLAIN_SCOPE) {
        CHECK_OK(weir_spawn(scope, sleeper, NULL, 0));
    }
    return r;
}

#endif

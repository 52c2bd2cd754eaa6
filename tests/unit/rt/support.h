/* support.h - what the tests of the runtime share: short ways to open scopes and to
 * run something, and a log sink that remembers.
 *
 * Everything is static inline, so that a file may use a part of it.
 */
#ifndef WEIR_TESTS_RT_SUPPORT_H
#define WEIR_TESTS_RT_SUPPORT_H

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

#include "base/atomic.h"
#include "harness/test.h"

enum { CAPTURE_MAX = 256 };

/* The records a runtime has written. Workers write at once, hence the mutex. */
struct capture {
    pthread_mutex_t mutex;
    int count;
    struct captured {
        enum weir_log_level level;
        int64_t time_ns;
        int worker;
        char task[32];
        char scope[128];
        char message[160];
    } records[CAPTURE_MAX];
};

static inline void capture_record(void *arg, const weir_log_record *record)
{
    struct capture *capture = arg;

    pthread_mutex_lock(&capture->mutex);
    if (capture->count < CAPTURE_MAX) {
        struct captured *kept = &capture->records[capture->count++];

        kept->level = record->level;
        kept->time_ns = record->time_ns;
        kept->worker = record->worker;
        snprintf(kept->task, sizeof kept->task, "%s", record->task);
        snprintf(kept->scope, sizeof kept->scope, "%s", record->scope);
        snprintf(kept->message, sizeof kept->message, "%s", record->message);
    }
    pthread_mutex_unlock(&capture->mutex);
}

/* How many records of this level have `part` in their message; `task` may be NULL:
 * any. */
static inline int capture_count(struct capture *capture, enum weir_log_level level,
                                const char *task, const char *part)
{
    int count = 0;

    pthread_mutex_lock(&capture->mutex);
    for (int i = 0; i < capture->count; i++) {
        const struct captured *kept = &capture->records[i];

        if (kept->level != level || strstr(kept->message, part) == NULL) continue;
        if (task == NULL || strcmp(kept->task, task) == 0) count++;
    }
    pthread_mutex_unlock(&capture->mutex);
    return count;
}

static inline void ignore_record(void *arg, const weir_log_record *record)
{
    (void)arg, (void)record;
}

/* Run `fn` in a runtime that keeps quiet about failures that a test wants. */
static inline int run_on(int workers, weir_task_fn fn, void *arg)
{
    return weir_run(&(weir_config){.workers = workers, .log = ignore_record}, fn, arg);
}

static inline int run_logged(int workers, enum weir_log_level level, struct capture *capture,
                             weir_task_fn fn, void *arg)
{
    *capture = (struct capture){.mutex = PTHREAD_MUTEX_INITIALIZER};
    return weir_run(
        &(weir_config){
            .workers = workers, .log = capture_record, .log_arg = capture, .log_level = level},
        fn, arg);
}

static inline weir_scope *open_bounded(const char *name, enum weir_failure_policy on_failure,
                                       size_t max_tasks, enum weir_overflow overflow)
{
    weir_scope *scope = NULL;

    CHECK_OK(weir_scope_open(
        &(weir_scope_spec){
            .name = name, .on_failure = on_failure, .max_tasks = max_tasks, .overflow = overflow},
        &scope));
    return scope;
}

static inline weir_scope *open_scope(const char *name, enum weir_failure_policy on_failure)
{
    return open_bounded(name, on_failure, 1000000, WEIR_WAIT);
}

/* Spawn with a handle. */
static inline weir_task spawn_task(weir_scope *scope, const char *name, weir_task_fn fn,
                                   const void *arg, size_t arg_bytes)
{
    weir_task task = {NULL, 0};

    CHECK_OK(weir_task_spawn(
        scope, &(weir_task_spec){.fn = fn, .arg = arg, .arg_bytes = arg_bytes, .name = name},
        &task));
    return task;
}

/* Spawn on a worker. */
static inline weir_task spawn_at(weir_scope *scope, int worker, const char *name, weir_task_fn fn,
                                 const void *arg, size_t arg_bytes)
{
    weir_task task = {NULL, 0};

    CHECK_OK(weir_task_spawn(scope,
                             &(weir_task_spec){.fn = fn,
                                               .arg = arg,
                                               .arg_bytes = arg_bytes,
                                               .name = name,
                                               .place = WEIR_PLACE_WORKER,
                                               .worker = worker},
                             &task));
    return task;
}

/* Wait in a task for another task or thread to set the flag. */
static inline void await_flag(ATOM(int) * flag)
{
    while (!atom_load_acquire(flag)) CHECK_OK(weir_yield());
}

/* Wait for ever; the end comes by cancellation. Returns its error. */
static inline int sleep_until_cancelled(void *arg)
{
    int r = 0;

    (void)arg;
    WEIR_NO_DEADLINE("a test's task waits for its cancellation") r = weir_sleep(WEIR_FOREVER);
    return r;
}

/* A task whose result is its argument, an int. */
static inline int return_argument(void *arg)
{
    return *(int *)arg;
}

#endif

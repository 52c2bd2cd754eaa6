/* process_pool_open.c - a pool's spec, checked and copied. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "io/process_pool.h"
#include "rt/mem.h"

#define OWN_PROGRAM "/proc/self/exe"

static int check_bounds(const weir_process_pool_spec *spec)
{
    const char *name = spec->name;

    if (spec->helpers_max < 1 || spec->helpers_max > WEIR_PROCESS_POOL_HELPERS_MAX) {
        return refuse("process pool '%s': helpers_max is %d, must be 1 to %d", name,
                      spec->helpers_max, WEIR_PROCESS_POOL_HELPERS_MAX);
    }
    if (spec->helpers_min < 0 || spec->helpers_min > spec->helpers_max) {
        return refuse("process pool '%s': helpers_min is %d, must be 0 to helpers_max", name,
                      spec->helpers_min);
    }
    if (spec->in_bytes_max == 0 || spec->in_bytes_max > WEIR_PROCESS_POOL_JOB_BYTES_MAX) {
        return refuse("process pool '%s': in_bytes_max is %zu, must be 1 to %d", name,
                      spec->in_bytes_max, WEIR_PROCESS_POOL_JOB_BYTES_MAX);
    }
    if (spec->out_bytes_max == 0 || spec->out_bytes_max > WEIR_PROCESS_POOL_JOB_BYTES_MAX) {
        return refuse("process pool '%s': out_bytes_max is %zu, must be 1 to %d", name,
                      spec->out_bytes_max, WEIR_PROCESS_POOL_JOB_BYTES_MAX);
    }
    if (spec->overflow != WEIR_REJECT && spec->overflow != WEIR_WAIT) {
        return refuse("process pool '%s': overflow must be WEIR_REJECT or WEIR_WAIT", name);
    }
    if (spec->overflow == WEIR_REJECT && spec->queue_max == 0) {
        return refuse("process pool '%s': overflow is WEIR_REJECT but queue_max is not set", name);
    }
    if (spec->overflow == WEIR_WAIT && spec->queue_max != 0) {
        return refuse("process pool '%s': queue_max is set but overflow is WEIR_WAIT", name);
    }
    return 0;
}

static int check_times(const weir_process_pool_spec *spec)
{
    const char *name = spec->name;

    if (spec->job_ms <= 0) return refuse("process pool '%s': job_ms is not set", name);
    if (spec->max_restarts < 1 || spec->max_restarts > WEIR_PROCESS_POOL_RESTARTS_MAX) {
        return refuse("process pool '%s': max_restarts is %d, must be 1 to %d", name,
                      spec->max_restarts, WEIR_PROCESS_POOL_RESTARTS_MAX);
    }
    if (spec->window_ms <= 0) return refuse("process pool '%s': window_ms is not set", name);
    if (spec->on_close != WEIR_DRAIN && spec->on_close != WEIR_DISCARD) {
        return refuse("process pool '%s': on_close must be WEIR_DRAIN or WEIR_DISCARD", name);
    }
    if (spec->idle_ms < 0 || spec->start_ms < 0) {
        return refuse("process pool '%s': idle_ms or start_ms is negative", name);
    }
    if (spec->grace_ms < 0 && spec->grace_ms != WEIR_KILL_AT_ONCE) {
        return refuse("process pool '%s': grace_ms is negative", name);
    }
    return 0;
}

static void set_defaults(weir_process_pool_spec *spec)
{
    if (spec->idle_ms == 0) spec->idle_ms = WEIR_PROCESS_POOL_IDLE_MS_DEFAULT;
    if (spec->start_ms == 0) spec->start_ms = WEIR_PROCESS_POOL_START_MS_DEFAULT;
    if (spec->grace_ms == 0) spec->grace_ms = WEIR_PROCESS_POOL_GRACE_MS_DEFAULT;
}

/* The arguments outlive the call: copy them, as an array and its strings in one block. */
static int copy_strings(weir_process_pool *pool, const weir_process_pool_spec *given)
{
    const char *program = given->program ? given->program : OWN_PROGRAM;
    const char *first = given->program ? NULL : WEIR_PROCESS_POOL_HELPER;
    size_t count = first ? 1 : 0;
    size_t bytes = strlen(program) + 1;
    const char **arguments;
    char *at;

    if (first) bytes += strlen(first) + 1;
    for (size_t i = 0; given->arguments && given->arguments[i]; i++) {
        bytes += strlen(given->arguments[i]) + 1;
        count++;
    }
    pool->strings = mem_alloc_zeroed((count + 1) * sizeof *arguments + bytes);
    if (!pool->strings) return -ENOMEM;
    arguments = (const char **)(void *)pool->strings;
    at = pool->strings + (count + 1) * sizeof *arguments;
    pool->spec.program = at;
    at = stpcpy(at, program) + 1;
    for (size_t i = 0; i < count; i++) {
        arguments[i] = at;
        at = stpcpy(at, first && i == 0 ? first : given->arguments[first ? i - 1 : i]) + 1;
    }
    pool->spec.arguments = arguments;
    pool->spec.name = pool->name;
    return 0;
}

int pool_new(weir_scope *scope, const weir_process_pool_spec *spec, weir_process_pool **ret_pool)
{
    size_t ring_bytes = (size_t)spec->max_restarts * sizeof(int64_t);
    weir_process_pool *pool = mem_alloc_zeroed(sizeof *pool + ring_bytes);
    int r;

    if (!pool) return -ENOMEM;
    pool->spec = *spec;
    set_defaults(&pool->spec);
    (void)snprintf(pool->name, sizeof pool->name, "%s", spec->name);
    r = copy_strings(pool, spec);
    if (r < 0) {
        mem_free(pool);
        return r;
    }
    r = io_head_init(&pool->head, HANDLE_PROCESS_POOL);
    if (r < 0) {
        mem_free(pool->strings);
        mem_free(pool);
        return r;
    }
    pool->scope = scope;
    lock_init(&pool->lock);
    list_init(&pool->helpers);
    list_init(&pool->idle);
    list_init(&pool->queue);
    *ret_pool = pool;
    return 0;
}

int pool_check_spec(const weir_process_pool_spec *spec)
{
    int r;

    if (!spec->name || !*spec->name) return refuse("process pool: name is not set");
    r = check_bounds(spec);
    return r < 0 ? r : check_times(spec);
}

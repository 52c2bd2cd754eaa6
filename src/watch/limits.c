/* limits.c - what a runtime may use of its machine, in words for the dump. */
#include "watch/limits.h"

#include <stdio.h>

#include "rt/boundary.h"
#include "rt/runtime.h"

/* In whole numbers: printing floating point takes a few KiB of a task's stack. */
static size_t whole_mib(size_t bytes)
{
    return bytes >> 20;
}

static size_t tenths_mib(size_t bytes)
{
    return (bytes & ((1 << 20) - 1)) * 10 >> 20;
}

static void describe_stacks(const struct stack_pool *stacks, char *text, size_t bytes)
{
    int length =
        snprintf(text, bytes, "stacks for %zu of %zu tasks", stacks->credits, stacks->count_max);

    if (stacks->budget_bytes == 0 || length < 0 || (size_t)length >= bytes) return;
    (void)snprintf(text + length, bytes - (size_t)length,
                   ", %zu.%zu MiB of a budget of %zu.%zu MiB", whole_mib(stacks->charged_bytes),
                   tenths_mib(stacks->charged_bytes), whole_mib(stacks->budget_bytes),
                   tenths_mib(stacks->budget_bytes));
}

void limits_describe(weir_runtime *runtime, char *text, size_t bytes)
{
    char quota[48] = "no quota";
    char memory[48] = "unlimited";
    char stacks[128] = "stacks in use";

    if (runtime->quota_milli >= 0) {
        (void)snprintf(quota, sizeof quota, "quota %lld.%03lld",
                       (long long)(runtime->quota_milli / 1000),
                       (long long)(runtime->quota_milli % 1000));
    }
    if (runtime->memory_max_bytes >= 0) {
        size_t limit_bytes = (size_t)runtime->memory_max_bytes;
        (void)snprintf(memory, sizeof memory, "%zu.%zu MiB", whole_mib(limit_bytes),
                       tenths_mib(limit_bytes));
    }
    if (boundary_hold(&runtime->stacks.lock, true)) {
        describe_stacks(&runtime->stacks, stacks, sizeof stacks);
        boundary_let_go(&runtime->stacks.lock, true);
    }
    (void)snprintf(text, bytes, "%d core%s, %s, memory %s; %s", runtime->cores,
                   runtime->cores == 1 ? "" : "s", quota, memory, stacks);
}

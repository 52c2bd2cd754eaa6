/* report.c - walk the tree below a scope and name what is in it. */
#include "rt/report.h"

#include "rt/runtime.h"
#include "rt/scope.h"

enum { NAMED_MAX = 32, DEPTH_MAX = 32 };
#define PAUSE_NS INT64_C(100000000)

struct report {
    weir_runtime *runtime;
    const char *what;
    size_t named;
    size_t unnamed;
};

static void report_scope(struct report *report, weir_scope *scope, int depth);

/* The scopes that the task has open, outermost first. Its blocks may be read only
 * while its worker stands still. */
static void report_open_scopes(struct report *report, struct task *task, int depth)
{
    struct worker *home = atom_load(&task->home);
    struct block *block = &task->base;

    if (task->open_scopes == 0 || !home || !worker_stands_still(home)) return;
    while (block != task->top) {
        block = block->inner;
        if (block->kind == BLOCK_SCOPE) {
            report_scope(report, container_of(block, weir_scope, block), depth + 1);
        }
    }
}

static void report_scope(struct report *report, weir_scope *scope, int depth)
{
    if (depth > DEPTH_MAX) {
        report->unnamed += scope->live;
        return;
    }
    list_for_each(node, &scope->children) {
        struct task *task = container_of(node, struct task, sibling);
        if (report->named < NAMED_MAX) {
            report->named++;
            log_write(report->runtime, WEIR_LOG_WARNING, task, "%s", report->what);
        } else {
            report->unnamed++;
        }
        report_open_scopes(report, task, depth);
    }
}

void report_alive(struct worker *worker, weir_scope *scope, const char *what)
{
    weir_runtime *runtime = worker->runtime;
    struct report report = {.runtime = runtime, .what = what};
    unsigned others = runtime->worker_count - 1;

    if (!log_wanted(runtime, WEIR_LOG_WARNING)) return;
    if (runtime_pause(runtime, PAUSE_NS) == others) {
        report_scope(&report, scope, 0);
    } else {
        /* Somebody may be changing the tree: only what the scope's lock covers. */
        scope_lock(scope);
        report.unnamed = scope->live;
        scope_unlock(scope);
    }
    runtime_resume(runtime);
    if (report.unnamed > 0) {
        log_write(runtime, WEIR_LOG_WARNING, NULL, "scope '%s': %zu more tasks: %s", scope->name,
                  report.unnamed, what);
    }
}

/* supervise.c - starting failed tasks again, within the scope's restart intensity. */
#include "rt/supervise.h"

#include <errno.h>
#include <string.h>

#include "base/planted.h"
#include "rt/mem.h"
#include "rt/runtime.h"
#include "rt/scope.h"

int supervise_prepare(struct task *task)
{
    struct restart_record *record = mem_alloc_zeroed(sizeof *record + task->arg_bytes);
    if (!record) return -ENOMEM;
    record->task = task;
    if (task->arg_bytes > 0) memcpy(record->pristine, task->arg, task->arg_bytes);
    task->restart = record;
    task->has_extras = true;
    return 0;
}

static void restart_now(struct worker *worker, struct timer *timer)
{
    struct restart_record *record = container_of(timer, struct restart_record, timer);
    struct task *task = record->task;

    sanitize_acquire(task);
    if (task->arg_bytes > 0) memcpy(task->arg, record->pristine, task->arg_bytes);
    sanitize_release(task);
    task->ignored = 0;
    task_set_state(task, TASK_NEW);
    worker_requeue(worker, task);
}

/* Whether one more restart stays within the scope's intensity; if so it is counted. */
static bool restart_allowed(weir_scope *scope, int64_t now_ns)
{
    unsigned max = (unsigned)scope->restart.max_restarts;
    int64_t since_ns = time_after_ms(now_ns, -scope->restart.window_ms);

    while (scope->restart_count > 0 && scope->restart_times[scope->restart_head] <= since_ns) {
        scope->restart_head = (scope->restart_head + 1) % max;
        scope->restart_count--;
    }
    if (scope->restart_count == max) return false;
    scope->restart_times[(scope->restart_head + scope->restart_count) % max] = now_ns;
    scope->restart_count++;
    return true;
}

static int64_t restart_backoff_ms(const weir_scope *scope, struct restart_record *record,
                                  int64_t now_ns)
{
    int64_t max_ms =
        scope->restart.backoff_ms_max ? scope->restart.backoff_ms_max : scope->restart.backoff_ms;
    int64_t ms = scope->restart.backoff_ms;

    if (record->total > 0 && time_after_ms(record->last_ns, scope->restart.window_ms) < now_ns) {
        record->count = 0;
    }
    for (int i = 0; i < record->count && ms < max_ms; i++) ms = ms > max_ms / 2 ? max_ms : ms * 2;
    return ms < max_ms ? ms : max_ms;
}

bool supervise_restart(struct worker *worker, weir_scope *scope, struct task *task)
{
    struct restart_record *record = task->restart;
    int64_t now_ns = worker->kernel->now_ns(worker->kernel);
    int64_t backoff_ms;

    if (scope->on_failure != WEIR_SUPERVISE || (task->base.effective & SIGNAL_CANCELLED) ||
        (atom_load(&scope->children_signals) &
         (PLANTED(RESTARTS_WHILE_STOPPING) ? SIGNAL_CANCELLED
                                           : SIGNAL_CANCELLED | SIGNAL_STOPPING))) {
        return false;
    }
    if (!restart_allowed(scope, now_ns)) {
        log_write(worker->runtime, WEIR_LOG_ERROR, task,
                  "is not started again: more than %d restarts within %lld ms in scope '%s'",
                  scope->restart.max_restarts, (long long)scope->restart.window_ms, scope->name);
        return false;
    }
    backoff_ms = restart_backoff_ms(scope, record, now_ns);
    record->count++;
    record->total++;
    record->last_ns = now_ns;
    timer_init(&record->timer, restart_now);
    task_set_state(task, TASK_BACKOFF);
    timer_arm(worker, &record->timer, time_after_ms(now_ns, backoff_ms));
    return true;
}

/* reason.c - why a task does not run. */
#include "watch/reason.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <weir/error.h>

#include "rt/scope.h"
#include "rt/task.h"
#include "watch/symbol.h"

enum { WORKERS_NAMED_MAX = 4 };

__attribute__((format(printf, 2, 3))) static void say(struct reason *reason, const char *format,
                                                      ...)
{
    size_t room = sizeof reason->text - reason->used;
    va_list arguments;
    int n;

    va_start(arguments, format);
    n = vsnprintf(reason->text + reason->used, room, format, arguments);
    va_end(arguments);
    if (n > 0) reason->used += (size_t)n < room ? (size_t)n : room - 1;
}

static void say_ms(struct reason *reason, int64_t ns)
{
    say(reason, "%lld ms", (long long)(ns < 0 ? 0 : ns / 1000000));
}

static void say_task(struct reason *reason, const struct task *task)
{
    say(reason, "task '%s' #%llu", task->name, (unsigned long long)atom_load(&task->id));
}

/* ---- Workers ---- */

/* The task that a busy worker runs: its scope's lock keeps it from being released; before
 * that, the memory of tasks and scopes is at least type-stable. */
static bool say_busy_task(struct reason *reason, const char *before, struct task *task)
{
    uint64_t id = atom_load_acquire(&task->id);
    weir_scope *scope = task->scope;
    bool lock = scope != reason->held;
    bool alive;

    if (id == 0 || !scope || !boundary_hold(&scope->lock, lock)) return false;
    alive = atom_load(&task->id) == id && task->scope == scope && !task->ended;
    if (alive) {
        say(reason, "%s", before);
        say_task(reason, task);
    }
    boundary_let_go(&scope->lock, lock);
    return alive;
}

bool reason_busy_task(struct reason *reason, struct task *task)
{
    reason->used = 0;
    reason->text[0] = '\0';
    return say_busy_task(reason, "", task);
}

static void say_worker(struct reason *reason, struct worker *worker)
{
    struct task *current = atom_load_acquire(&worker->current);

    say(reason, "worker %u ", worker->index);
    if (!reason->still[worker->index]) {
        say(reason, "is busy");
        if (current) (void)say_busy_task(reason, " with ", current);
        say(reason, " for ");
        say_ms(reason, reason->now_ns - atom_load(&worker->turn_began_ns));
    } else if (current) {
        say(reason, "runs ");
        say_task(reason, current);
    } else {
        say(reason, "has %u ready tasks", worker->ready.count);
    }
}

static void say_not_started(struct reason *reason, const struct task *task)
{
    weir_runtime *runtime = reason->runtime;

    say(reason, "not started: ");
    if (task->place == WEIR_PLACE_WORKER) {
        say_worker(reason, &runtime->workers[task->target_worker]);
        return;
    }
    for (unsigned i = 0; i < runtime->worker_count && i < WORKERS_NAMED_MAX; i++) {
        if (i > 0) say(reason, ", ");
        say_worker(reason, &runtime->workers[i]);
    }
    if (runtime->worker_count > WORKERS_NAMED_MAX) say(reason, ", ...");
}

/* ---- Waits ---- */

static const char *describe(struct reason *reason, const struct task *task)
{
    const struct wait_kind *kind = task->wait.kind;

    reason->part[0] = '\0';
    if (kind->describe) kind->describe(task->wait.object, reason->part, sizeof reason->part);
    return reason->part;
}

/* By its call and what that says itself: "waits in read: descriptor 9". */
static void say_call(struct reason *reason, const struct task *task)
{
    const char *detail = describe(reason, task);
    say(reason, "waits in %s%s%s", reason->waits.call, *detail ? ": " : "", detail);
}

static void say_object(struct reason *reason, const struct task *task)
{
    const struct waiting *waiting = &reason->waits.waiting;
    const char *detail;

    /* While a worker does not stand still, nobody says what it is. */
    if (!waiting->kind[0] && !waiting->name[0]) {
        say_call(reason, task);
        return;
    }
    waits_sentence(&reason->waits, reason->symbols, reason->part, sizeof reason->part);
    say(reason, "waits for %s", reason->part);
    if (waiting->what != WAIT_FOR_ROOM && waiting->what != WAIT_FOR_ITEM) return;
    /* Behind the name: how full it is. */
    detail = strstr(describe(reason, task), "', ");
    if (detail) say(reason, " (%s)", detail + strlen("', "));
}

/* What it waits for; true: reason->waits says who could end it. */
static bool say_wait(struct reason *reason, const struct task *task)
{
    if (!waits_of(task, reason->all_still, &reason->waits)) {
        say(reason, "is about to go on: a wake-up is on its way");
        return false;
    }
    switch (reason->waits.waiting.what) {
    case WAIT_FOR_TIME: say(reason, "sleeps: %s", describe(reason, task)); return false;
    case WAIT_FOR_CANCEL: say(reason, "sleeps until it is cancelled"); return false;
    case WAIT_FOR_SOMETHING:
    case WAIT_FOR_DESCRIPTOR:
    case WAIT_FOR_THREAD:
    case WAIT_FOR_PROCESS:
    case WAIT_FOR_SIGNAL: say_call(reason, task); return true;
    default: say_object(reason, task); return true;
    }
}

static void say_state(struct reason *reason, const struct task *task)
{
    const struct worker *home = atom_load(&task->home);

    switch (task->state) {
    case TASK_NEW: say_not_started(reason, task); break;
    case TASK_READY:
        say(reason, "is ready and waits for its turn among %u on worker %u",
            home ? home->ready.count : 0, home ? home->index : 0);
        break;
    case TASK_RUNNING: say(reason, "runs"); break;
    case TASK_BACKOFF:
        say(reason, "waits for its restart in ");
        say_ms(reason, task->restart->timer.wheel.at_ns - reason->now_ns);
        say(reason, ": it failed with %s", weir_error_name(task->result));
        break;
    default: say(reason, "has ended"); break;
    }
}

/* The one that could end the wait, if it can be looked into. */
static const struct task *only_one(const struct reason *reason)
{
    const struct waiting *waiting = &reason->waits.waiting;
    const struct worker *home;

    if (waiting->by_count != 1 || waiting->by_cut || waiting->scope) return NULL;
    home = atom_load_acquire(&waiting->by[0].task->home);
    return (home ? reason->still[home->index] : reason->all_still) ? waiting->by[0].task : NULL;
}

void reason_not_started(struct reason *reason, const struct task *task)
{
    reason->used = 0;
    reason->text[0] = '\0';
    reason->parked = false;
    say_not_started(reason, task);
}

void reason_find(struct reason *reason, const struct task *task)
{
    const struct task *first = task;
    struct waits own;

    reason->used = 0;
    reason->text[0] = '\0';
    reason->parked = task->state == TASK_PARKED;
    if (task->state == TASK_RUNNING || task->state == TASK_ENDED || task->state == TASK_FREE) {
        return;
    }
    if (!reason->parked) {
        say_state(reason, task);
        return;
    }
    if (!say_wait(reason, task)) {
        reason->parked = false;
        return;
    }
    own = reason->waits;
    for (int i = 0; i < REASON_STEPS_MAX && (task = only_one(reason)); i++) {
        if (task == first) {
            say(reason, ": that is this task itself");
            break;
        }
        say(reason, ", which ");
        if (task->state != TASK_PARKED) {
            say_state(reason, task);
            break;
        }
        if (!say_wait(reason, task)) break;
    }
    reason->waits = own;
}

/* dump.c - the tree of scopes and tasks as text.
 *
 * The other workers stand still while the text is made, and go on before it is
 * written: a slow reader holds up the caller only. A worker that does not stand
 * still is shown as busy and its tasks are only named; as long as there is one, lists
 * are read under their scopes' locks. Locks are only tried: the dump may be called
 * with some held. The walk is a loop with its memory on the heap: the stack may be a
 * small task's.
 */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <weir/error.h>
#include <weir/runtime.h>

#include "rt/mem.h"
#include "rt/runtime.h"
#include "rt/scope.h"
#include "watch/backtrace.h"
#include "watch/limits.h"
#include "watch/output.h"
#include "watch/reason.h"
#include "watch/symbol.h"
#include "watch/watchdog.h"

enum {
    LEVELS_MAX = 64,           /* scopes inside scopes */
    TASKS_SHOWN_MAX = 200,     /* of one scope; the others are counted by state */
    BLOCKS_SHOWN_MAX = 1000,   /* of one task */
    BELONGINGS_SHOWN_MAX = 50, /* of one scope */
    ORPHANS_SHOWN_MAX = 8,     /* of one executor */
    TALLIES_MAX = 16,
    TEXT_BYTES_FIRST = 4096,
    TEXT_BYTES_MAX = 16 * 1024 * 1024,
    WRITABLE_MS_MAX = 1000,
};
#define PAUSE_NS INT64_C(1000000000)

/* Tasks that are not shown one by one, as "9800 parked in sleep". */
struct tally {
    const char *state;
    const char *in;
    size_t count;
};

/* A scope whose tasks are being shown. */
struct level {
    unsigned count;
    unsigned next;       /* the task to show after the current one */
    struct task *task;   /* the current one ... */
    struct block *block; /* ... and the innermost of its blocks that was shown */
    unsigned blocks_shown;
    char more[256]; /* the sentence about the tasks that are not shown */
    struct task *tasks[TASKS_SHOWN_MAX];
};

struct dump {
    weir_runtime *runtime;
    int64_t now_ns;
    unsigned depth; /* of the innermost level */
    bool all_still;
    bool still[WEIR_WORKERS_MAX];

    int fd;
    int error;  /* of the first write that failed */
    char *text; /* first_text, or allocated */
    size_t text_bytes;
    size_t used;

    char scratch[256];
    struct reason reason;
    struct backtrace here; /* of the calling task */
    struct backtrace parked;
    struct symbol_table symbols;
    struct tally tallies[TALLIES_MAX];
    unsigned tally_count;
    struct level levels[LEVELS_MAX];
    char first_text[TEXT_BYTES_FIRST];
};

/* For when there is no memory: one dump at a time is made here. */
static struct dump spare;
static ATOM(bool) spare_taken;

/* In strict mode the tasks of one worker race with each other as far as the
 * sanitizer knows, and the dump looks at them all. Reads only: it owns what it
 * writes. */
#if !WEIR_TSAN
#define AnnotateIgnoreReadsBegin(file, line) (void)0
#define AnnotateIgnoreReadsEnd(file, line) (void)0
#endif

/* ---- Text ---- */

static void flush(struct dump *dump)
{
    if (dump->error == 0) {
        dump->error = output_write(dump->fd, dump->text, dump->used, WRITABLE_MS_MAX);
    }
    dump->used = 0;
}

static void make_room(struct dump *dump, size_t bytes)
{
    size_t want = dump->text_bytes * 2;
    bool first = dump->text == dump->first_text;
    char *text = NULL;

    while (want - dump->used < bytes) want *= 2;
    if (want <= TEXT_BYTES_MAX) text = mem_resize(first ? NULL : dump->text, want);
    if (!text) {
        flush(dump);
        return;
    }
    if (first) memcpy(text, dump->first_text, dump->used);
    dump->text = text;
    dump->text_bytes = want;
}

/* Control characters in names and reasons must not look like lines of ours. */
__attribute__((format(printf, 2, 3))) static void say(struct dump *dump, const char *format, ...)
{
    va_list arguments;
    size_t room = 0;
    int n = 0;

    for (int attempt = 0; attempt < 2; attempt++) {
        room = dump->text_bytes - dump->used;
        va_start(arguments, format);
        n = vsnprintf(dump->text + dump->used, room, format, arguments);
        va_end(arguments);
        if (n < 0 || (size_t)n < room) break;
        if (attempt == 0) make_room(dump, (size_t)n + 1);
    }
    for (int i = 0; i < n && (size_t)i + 1 < room; i++) {
        char *at = &dump->text[dump->used++];
        if ((unsigned char)*at < 0x20 || *at == 0x7f) *at = '?';
    }
}

static void end_line(struct dump *dump)
{
    if (dump->text_bytes - dump->used < 2) make_room(dump, 2);
    dump->text[dump->used++] = '\n';
}

/* Begin a line below the scope of the innermost level: tasks 2 columns further in,
 * details of tasks 6. */
static void begin_line(struct dump *dump, unsigned columns)
{
    say(dump, "%*s", (int)((dump->depth - 1) * 4 + columns), "");
}

/* A whole line of that kind. */
#define LINE(dump, columns, ...) \
    (begin_line((dump), (columns)), say((dump), __VA_ARGS__), end_line(dump))

/* A time span, used as span(ns).text inside one call. */
struct span {
    char text[32];
};

static struct span span(int64_t ns)
{
    struct span span;
    long long ms = ns < 0 ? 0 : ns / 1000000;

    if (ms < 10000) {
        (void)snprintf(span.text, sizeof span.text, "%lld ms", ms);
    } else {
        (void)snprintf(span.text, sizeof span.text, "%lld.%lld s", ms / 1000, ms / 100 % 10);
    }
    return span;
}

static const char *plural(size_t count)
{
    return count == 1 ? "" : "s";
}

static void say_deadline(struct dump *dump, int64_t at_ns)
{
    int64_t left_ns = at_ns - dump->now_ns;

    if (at_ns == INT64_MAX) return;
    if (left_ns > 0) say(dump, "; deadline in %s", span(left_ns).text);
    if (left_ns <= 0) say(dump, "; deadline passed %s ago", span(-left_ns).text);
}

/* ---- Locks: only by trying, and only as long as somebody may be at it ---- */

static bool scope_hold(const struct dump *dump, weir_scope *scope)
{
    return boundary_hold(&scope->lock, !dump->all_still);
}

static void scope_let_go(const struct dump *dump, weir_scope *scope)
{
    boundary_let_go(&scope->lock, !dump->all_still);
}

/* ---- Workers and executors ---- */

static void show_worker(struct dump *dump, struct worker *worker)
{
    struct task *current = atom_load_acquire(&worker->current);
    size_t ready;

    say(dump, "worker %u: ", worker->index);
    if (!dump->still[worker->index]) {
        say(dump, "busy");
        if (current && reason_busy_task(&dump->reason, current)) {
            say(dump, ": runs %s", dump->reason.text);
        }
        /* A turn begins with a look at the clock and is short unless a task is not. */
        say(dump, " for %s, not inspected",
            span(dump->now_ns - atom_load(&worker->turn_began_ns)).text);
        end_line(dump);
        return;
    }
    ready = worker->ready.count;
    if (current) {
        say(dump, "running task '%s'%s", current->name,
            current == task_self() ? " (this one)" : "");
    } else {
        say(dump, ready + atom_load(&worker->fresh_count) > 0 ? "between two tasks" : "idle");
    }
    say(dump, "; %zu ready, %u not started, %zu timers, %zu descriptors", ready,
        atom_load(&worker->fresh_count), worker_timers_count(worker), atom_load(&worker->watched));
    end_line(dump);
}

static size_t list_count(const struct list *list)
{
    size_t count = 0;
    list_for_each(node, list) count++;
    return count;
}

static void say_executor(struct dump *dump, struct blocking *executor)
{
    size_t running;
    size_t shown = 0;

    if (!boundary_hold(&executor->lock, true)) {
        say(dump, "%s in use", executor->name);
        return;
    }
    running = list_count(&executor->running) + executor->orphan_count - executor->completion_count;
    if (running + executor->completion_count == 0 && executor->queue_count == 0) {
        say(dump, "%s idle", executor->name);
    } else {
        say(dump, "%s %zu/%d threads busy, %zu queued", executor->name, running,
            executor->threads_max, executor->queue_count);
        if (executor->completion_count > 0) {
            say(dump, ", %zu in the kernel", executor->completion_count);
        }
    }
    if (executor->orphan_count > 0) {
        say(dump, ", %zu orphan%s (", executor->orphan_count, plural(executor->orphan_count));
        list_for_each(node, &executor->orphans) {
            const struct blocking_call *call = container_of(node, struct blocking_call, node);
            if (shown++ == ORPHANS_SHOWN_MAX) {
                say(dump, ", ...");
                break;
            }
            say(dump, "%s%s %s, %s", shown > 1 ? "; " : "", call->name, call->detail,
                span(dump->now_ns - call->since_ns).text);
        }
        say(dump, ")");
    }
    boundary_let_go(&executor->lock, true);
}

static void show_watchdog(struct dump *dump)
{
    const struct watchdog *watchdog = atom_load(&dump->runtime->watchdog);

    if (!watchdog) return;
    say(dump, "watchdog: %s, %llu hits, %llu reports suppressed", span(watchdog->threshold_ns).text,
        (unsigned long long)atom_load(&watchdog->hits),
        (unsigned long long)atom_load(&watchdog->suppressed));
    end_line(dump);
}

static void show_runtime(struct dump *dump)
{
    weir_runtime *runtime = dump->runtime;
    char limits[LIMITS_TEXT_MAX];

    say(dump, "weir %d.%d.%d: runtime '%s', %u worker%s, kernel %s, clock %lld.%03lld s",
        WEIR_VERSION_MAJOR, WEIR_VERSION_MINOR, WEIR_VERSION_PATCH, runtime->root->name,
        runtime->worker_count, plural(runtime->worker_count), runtime->kernel->name,
        (long long)(dump->now_ns / 1000000000), (long long)(dump->now_ns / 1000000 % 1000));
    end_line(dump);
    limits_describe(runtime, limits, sizeof limits);
    say(dump, "limits: %s", limits);
    end_line(dump);
    show_watchdog(dump);
    for (unsigned i = 0; i < runtime->worker_count; i++) show_worker(dump, &runtime->workers[i]);
    say(dump, "executors: ");
    say_executor(dump, &runtime->files);
    say(dump, "; ");
    say_executor(dump, &runtime->names);
    say(dump, "; ");
    say_executor(dump, &runtime->spawns);
    end_line(dump);
}

/* ---- Signals and their causes ---- */

static void say_scope_cause(struct dump *dump, const weir_scope *scope)
{
    if (scope->cause == WEIR_CAUSE_FAILURE) {
        say(dump, ": task '%s' failed with %s", scope->cancel_name,
            weir_error_name(scope->cancel_error));
    } else {
        say(dump, ": %s", scope->cancel_why);
    }
}

/* As weir_cause() does for the calling task: the outermost cancellation that no
 * shield keeps away. All tasks outwards of one that is shown are inspected too. */
static void say_cause(struct dump *dump, const struct task *task)
{
    const struct block *found = NULL;
    const struct task *found_in = NULL;

    for (const struct block *block = task->top; block;) {
        uint8_t own = atom_load_acquire(&block->own);
        if (own & SIGNAL_INTERRUPTS) {
            found = block;
            found_in = task;
        }
        if (block->kind == BLOCK_SHIELD && !(own & SIGNAL_EXPIRED)) break;
        if (block->kind == BLOCK_TASK) {
            block = &task->scope->block;
            task = task->scope->opener;
        } else {
            block = block->outer; /* NULL: it is the root scope's */
        }
    }
    if (!found) return;
    if (found->kind == BLOCK_TASK) {
        say(dump, " with task '%s': %s", found_in->name, found_in->cancel_why);
        return;
    }
    block_describe(found, dump->scratch, sizeof dump->scratch);
    say(dump, " by %s", dump->scratch);
    if (found->kind == BLOCK_SCOPE) say_scope_cause(dump, (const weir_scope *)found);
}

static void say_task_signals(struct dump *dump, const struct task *task)
{
    uint8_t signals = task->attention;

    if (signals & SIGNAL_INTERRUPTS) {
        say(dump, signals & SIGNAL_CANCELLED ? "; cancelled" : "; timed out");
        say_cause(dump, task);
        if (task->ignored > 0) {
            say(dump, " (%d call%s failed since)", task->ignored, plural((size_t)task->ignored));
        }
    }
    if (signals & SIGNAL_STOPPING) say(dump, "; stopping");
}

static void say_scope_signals(struct dump *dump, const weir_scope *scope)
{
    uint8_t own = atom_load_acquire(&scope->block.own);
    uint8_t signals = atom_load(&scope->children_signals);

    if (own & SIGNAL_STOPPING) {
        say(dump, ", stopping (%s of grace left)", span(scope->stop_at_ns - dump->now_ns).text);
    } else if (signals & SIGNAL_STOPPING) {
        say(dump, ", stopping with its opener");
    }
    if (own & SIGNAL_INTERRUPTS) {
        say(dump, ", cancelled");
        say_scope_cause(dump, scope);
    } else if (signals & SIGNAL_CANCELLED) {
        say(dump, ", cancelled with its opener");
    }
}

/* ---- One task ---- */

static void show_backtrace(struct dump *dump, const struct backtrace *backtrace)
{
    for (unsigned i = backtrace_first(backtrace, &dump->symbols); i < backtrace->count; i++) {
        (void)symbol_format(&dump->symbols, backtrace->frames[i], dump->scratch,
                            sizeof dump->scratch);
        LINE(dump, 6, "at %s", dump->scratch);
    }
    if (backtrace->cut) LINE(dump, 6, "at ... (more than %d frames)", BACKTRACE_FRAMES_MAX);
}

/* Whether its registers are on its stack. */
static bool has_left(const struct task *task)
{
    return task->state == TASK_PARKED || (task->state == TASK_READY && task->stack);
}

/* With a block open, which is misuse and the reason for this dump. */
static bool has_returned(const struct task *task)
{
    return task->state == TASK_RUNNING && !task->stack;
}

static void say_parked(struct dump *dump, const struct task *task)
{
    const struct wait_kind *kind = task->wait.kind;

    say(dump, "parked %s in %s", span(dump->now_ns - task->wait.since_ns).text, kind->name);
    if (!kind->describe) return;
    dump->scratch[0] = '\0';
    kind->describe(task->wait.object, dump->scratch, sizeof dump->scratch);
    if (dump->scratch[0]) say(dump, ": %s", dump->scratch);
}

static const char *const state_names[TASK_STATES] = {
    [TASK_FREE] = "ending",       [TASK_NEW] = "not started",
    [TASK_READY] = "ready",       [TASK_RUNNING] = "running",
    [TASK_PARKED] = "parked in ", [TASK_BACKOFF] = "waiting for a restart",
    [TASK_ENDED] = "ending",
};

static void say_state(struct dump *dump, const struct task *task)
{
    if (task->state == TASK_PARKED) {
        say_parked(dump, task);
    } else {
        say(dump, "%s", state_names[task->state]);
    }
    if (task == task_self()) say(dump, " (this one)");
    if (has_returned(task)) say(dump, " (its function has returned %d)", task->result);
    if (task->state == TASK_BACKOFF) {
        say(dump, " in %s, failed with %s",
            span(task->restart->timer.wheel.at_ns - dump->now_ns).text,
            weir_error_name(task->result));
    }
    if (task->restart && task->restart->total > 0) {
        say(dump, "; restarted %d time%s", task->restart->total,
            plural((size_t)task->restart->total));
    }
}

static void say_stack(struct dump *dump, const struct task *task)
{
    const char *pointer = NULL;
    size_t touched, tenths;

    if (has_left(task)) pointer = task->context.sp;
    if (task == task_self()) pointer = __builtin_frame_address(0);
    if (!pointer || !task->stack) return;
    touched = stack_touched_bytes(&dump->runtime->stacks, task->stack);
    tenths = (size_t)(stack_top(task->stack) - pointer) * 10 / 1024;
    say(dump, "; stack %zu.%zu KiB of %zu KiB", tenths / 10, tenths % 10,
        stack_class_bytes(&dump->runtime->stacks, task->stack->size_class) / 1024);
    if (touched > 0) say(dump, " (touched %zu KiB)", touched / 1024);
}

static void say_task(struct dump *dump, const struct task *task)
{
    const struct worker *home = atom_load(&task->home);

    begin_line(dump, 2);
    say(dump, "task '%s' #%llu", task->name, (unsigned long long)atom_load(&task->id));
    if (home) say(dump, " on worker %u", home->index);
    say(dump, ": ");
}

static void show_task(struct dump *dump, struct task *task)
{
    say_task(dump, task);
    say_state(dump, task);
    say_task_signals(dump, task);
    say_deadline(dump, task->top->deadline_ns);
    say_stack(dump, task);
    end_line(dump);
    reason_find(&dump->reason, task);
    if (dump->reason.text[0]) LINE(dump, 6, "%s", dump->reason.text);
    if (task == task_self()) {
        show_backtrace(dump, &dump->here);
    } else if (has_left(task)) {
        backtrace_parked(&task->context, task->stack->low, stack_top(task->stack), &dump->parked);
        show_backtrace(dump, &dump->parked);
    }
}

/* ---- The tasks of a scope ---- */

/* A task that has not started can be started by a busy worker at any time. */
static bool inspectable(const struct dump *dump, const struct task *task)
{
    const struct worker *home = atom_load_acquire(&task->home);
    return home ? dump->still[home->index] : dump->all_still;
}

static void tally(struct dump *dump, const struct task *task, bool inspected)
{
    const char *state = inspected ? state_names[task->state] : "not inspected";
    const char *in = inspected && task->state == TASK_PARKED ? task->wait.kind->name : "";
    unsigned i;

    for (i = 0; i < dump->tally_count; i++) {
        if (dump->tallies[i].state == state && dump->tallies[i].in == in) break;
    }
    if (i == TALLIES_MAX) return; /* the sum still counts it */
    if (i == dump->tally_count) dump->tallies[dump->tally_count++] = (struct tally){state, in, 0};
    dump->tallies[i].count++;
}

static void write_tallies(const struct dump *dump, size_t count, char *text, size_t bytes)
{
    size_t used;

    text[0] = '\0';
    if (count == 0) return;
    used = (size_t)snprintf(text, bytes, "and %zu more (", count);
    for (unsigned i = 0; i < dump->tally_count && used < bytes; i++) {
        const struct tally *one = &dump->tallies[i];
        used += (size_t)snprintf(text + used, bytes - used, "%s%zu %s%s", i > 0 ? ", " : "",
                                 one->count, one->state, one->in);
    }
    if (used < bytes) (void)snprintf(text + used, bytes - used, ")");
}

/* Its scope's lock is held. */
static void show_not_started(struct dump *dump, const weir_scope *scope, const struct task *task)
{
    dump->reason.held = scope;
    reason_not_started(&dump->reason, task);
    dump->reason.held = NULL;
    LINE(dump, 6, "%s", dump->reason.text);
}

/* Under the lock: remember the tasks that can be looked into, which stay where they
 * are, name the others, which may not, and count what is too much. */
static void gather_tasks(struct dump *dump, const weir_scope *scope, struct level *level)
{
    size_t more = 0;
    unsigned named = 0;

    dump->tally_count = 0;
    level->count = 0;
    list_for_each(node, &scope->children) {
        struct task *task = container_of(node, struct task, sibling);
        bool inspected = inspectable(dump, task);
        if (inspected && level->count < TASKS_SHOWN_MAX) {
            level->tasks[level->count++] = task;
        } else if (!inspected && named < TASKS_SHOWN_MAX) {
            named++;
            say_task(dump, task);
            say(dump, "not inspected (%s)", atom_load(&task->home) ? "busy" : "not started");
            end_line(dump);
            if (!atom_load(&task->home)) show_not_started(dump, scope, task);
        } else {
            tally(dump, task, inspected);
            more++;
        }
    }
    write_tallies(dump, more, level->more, sizeof level->more);
}

static void show_belongings(struct dump *dump, const weir_scope *scope)
{
    size_t shown = 0;

    list_for_each(node, &scope->belongings) {
        const struct belonging *belonging = container_of(node, struct belonging, node);
        if (shown++ == BELONGINGS_SHOWN_MAX) {
            LINE(dump, 2, "and %zu more timers and the like",
                 list_count(&scope->belongings) - BELONGINGS_SHOWN_MAX);
            return;
        }
        begin_line(dump, 2);
        say(dump, "%s", belonging->kind->name);
        if (!dump->still[belonging->worker->index]) {
            say(dump, " of worker %u, not inspected (busy)", belonging->worker->index);
        } else if (belonging->kind->describe) {
            dump->scratch[0] = '\0';
            belonging->kind->describe(belonging, dump->scratch, sizeof dump->scratch);
            say(dump, " %s", dump->scratch);
        }
        end_line(dump);
    }
}

/* ---- Scopes ---- */

/* What never changes while the scope is open: needs no lock. */
static void say_scope(struct dump *dump, const weir_scope *scope)
{
    static const char *const policies[] = {
        [WEIR_FAIL_FAST] = "fail fast", [WEIR_COLLECT] = "collect", [WEIR_SUPERVISE] = "supervise"};

    say(dump, "%*sscope '%s'", (int)dump->depth * 4, "", scope->name);
    if (scope->opener) say(dump, " opened at %s", scope->where);
    say(dump, ": %s", policies[scope->on_failure]);
    if (scope->on_failure == WEIR_SUPERVISE) {
        say(dump, " (max %d restarts in %lld ms)", scope->restart.max_restarts,
            (long long)scope->restart.window_ms);
    }
}

static void say_scope_state(struct dump *dump, const weir_scope *scope)
{
    size_t ended = list_count(&scope->ended);
    size_t spawners = list_count(&scope->spawners);

    say(dump, ", %zu task%s (max ", scope->live, plural(scope->live));
    if (scope->max_tasks == SIZE_MAX) {
        say(dump, "unlimited");
    } else {
        say(dump, "%zu", scope->max_tasks);
    }
    say(dump, ", %s)", scope->overflow == WEIR_REJECT ? "reject" : "wait");
    if (spawners > 0) say(dump, ", %zu waiting to spawn", spawners);
    if (ended > 0) say(dump, ", %zu ended and not joined", ended);
    if (scope->failures_total > 0) {
        say(dump, ", %zu failure%s (first %s)", scope->failures_total,
            plural(scope->failures_total), weir_error_name(scope->first_error));
    }
    if (atom_load(&scope->state) == SCOPE_CLOSING) say(dump, ", closing");
    say_scope_signals(dump, scope);
    if (scope->own_deadline) say_deadline(dump, scope->block.deadline_ns);
}

static void enter_scope(struct dump *dump, weir_scope *scope)
{
    struct level *level = &dump->levels[dump->depth];

    say_scope(dump, scope);
    if (!scope_hold(dump, scope)) {
        say(dump, ", not inspected (its lock is held)");
        end_line(dump);
        return;
    }
    say_scope_state(dump, scope);
    if (dump->depth == LEVELS_MAX) say(dump, ", not inspected (nested too deeply)");
    end_line(dump);
    if (dump->depth < LEVELS_MAX) {
        dump->depth++;
        level->next = 0;
        level->task = NULL;
        show_belongings(dump, scope);
        gather_tasks(dump, scope, level);
    }
    scope_let_go(dump, scope);
}

static void show_timed_block(struct dump *dump, const struct timed_block *timed)
{
    const char *what = timed->block.kind == BLOCK_SHIELD ? "shield" : "deadline";
    int64_t at_ns = timed->block.deadline_ns;

    if (timed->block.kind == BLOCK_NO_DEADLINE) {
        LINE(dump, 6, "no deadline: \"%s\" (%s)", timed->reason, timed->where);
    } else if (at_ns == INT64_MAX) {
        LINE(dump, 6, "%s: never (%s)", what, timed->where);
    } else if (at_ns > dump->now_ns) {
        LINE(dump, 6, "%s: %s left (%s)", what, span(at_ns - dump->now_ns).text, timed->where);
    } else {
        LINE(dump, 6, "%s: passed %s ago (%s)", what, span(dump->now_ns - at_ns).text,
             timed->where);
    }
}

/* The next block inwards. The chain leads outwards only; with the bound on blocks
 * that are shown the search stays short. */
static struct block *next_block(const struct level *level)
{
    struct block *block = level->task->top;

    if (block == level->block) return NULL;
    while (block->outer != level->block) block = block->outer;
    return block;
}

/* Show the next block of the current task. False: there is none. */
static bool show_block(struct dump *dump, struct level *level)
{
    struct block *block;

    if (!level->task) return false;
    block = next_block(level);
    if (!block) return false;
    if (level->blocks_shown++ == BLOCKS_SHOWN_MAX) {
        LINE(dump, 6, "and more blocks, not shown");
        return false;
    }
    level->block = block;
    if (block->kind == BLOCK_SCOPE) {
        enter_scope(dump, (weir_scope *)block);
    } else {
        show_timed_block(dump, (const struct timed_block *)block);
    }
    return true;
}

/* The outer blocks of a task that has returned may have been on the part of its stack
 * that is gone. */
static void only_innermost_block(struct level *level)
{
    if (level->task->top != &level->task->base) level->block = level->task->top->outer;
}

static void show_tree(struct dump *dump)
{
    enter_scope(dump, dump->runtime->root);
    while (dump->depth > 0) {
        struct level *level = &dump->levels[dump->depth - 1];
        if (show_block(dump, level)) continue;
        if (level->next == level->count) {
            if (level->more[0]) LINE(dump, 2, "%s", level->more);
            dump->depth--;
            continue;
        }
        level->task = level->tasks[level->next++];
        level->block = &level->task->base;
        level->blocks_shown = 0;
        show_task(dump, level->task);
        if (has_returned(level->task)) only_innermost_block(level);
    }
}

/* ---- The dump ---- */

static struct dump *dump_new(void)
{
    struct dump *dump = mem_alloc(sizeof *dump);
    if (dump) return dump;
    return atom_exchange(&spare_taken, true) ? NULL : &spare;
}

static void dump_free(struct dump *dump)
{
    if (dump->text != dump->first_text) mem_free(dump->text);
    if (dump != &spare) mem_free(dump);
    if (dump == &spare) atom_store_release(&spare_taken, false);
}

/* Who stands still is looked at once: one that does so later counts as busy. */
static void pause_workers(struct dump *dump)
{
    weir_runtime *runtime = dump->runtime;

    (void)runtime_pause(runtime, PAUSE_NS);
    dump->all_still = true;
    for (unsigned i = 0; i < runtime->worker_count; i++) {
        dump->still[i] = worker_stands_still(&runtime->workers[i]);
        dump->all_still = dump->all_still && dump->still[i];
    }
}

int dump_runtime(weir_runtime *runtime, int fd)
{
    struct dump *dump = dump_new();
    int r;

    if (!dump) return -ENOMEM;
    memset(dump, 0, offsetof(struct dump, scratch));
    dump->runtime = runtime;
    dump->fd = fd;
    dump->text = dump->first_text;
    dump->text_bytes = sizeof dump->first_text;
    symbol_table_init(&dump->symbols);
    backtrace_here(&dump->here);
    pause_workers(dump);
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    dump->now_ns = runtime->kernel->now_ns(runtime->kernel);
    dump->reason.runtime = runtime;
    dump->reason.now_ns = dump->now_ns;
    dump->reason.all_still = dump->all_still;
    dump->reason.still = dump->still;
    dump->reason.symbols = &dump->symbols;
    dump->reason.held = NULL;
    show_runtime(dump);
    show_tree(dump);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    runtime_resume(runtime);
    symbol_table_deinit(&dump->symbols);
    flush(dump);
    r = dump->error;
    dump_free(dump);
    return r;
}

int weir_dump(int fd)
{
    struct worker *worker = worker_self();
    int r = worker ? dump_runtime(worker->runtime, fd) : refuse_no_task("weir_dump");
    __asm__ volatile("" ::: "memory"); /* no tail call: the caller's backtrace begins here */
    return r;
}

/* watchdog_report.c - who it is, where it is, and telling it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <weir/error.h>

#include "rt/scope.h"
#include "rt/task.h"
#include "watch/text.h"
#include "watch/watchdog.h"

enum { REPORT_AGAIN = 10 }; /* when it has taken so many times as long */

#define NS_PER_MS INT64_C(1000000)
/* A thread that is not let run answers when it is. */
#define ANSWER_NS_MAX (100 * NS_PER_MS)
#define ANSWER_LOOK_NS (NS_PER_MS / 5)

/* ---- Names: of memory that may be gone ---- */

static bool peek(const struct kernel *kernel, const void *address, void *to, size_t bytes)
{
    return kernel->read_memory(kernel, address, to, bytes) == 0;
}

/* Up to its end, in parts that do not cross a page: the next one may not be there. */
static bool peek_string(const struct kernel *kernel, const char *string, char *to, size_t bytes)
{
    enum { PAGE = 4096 }; /* the smallest there is */
    size_t used = 0;

    while (used < bytes - 1) {
        size_t part = PAGE - (uintptr_t)(string + used) % PAGE;

        if (part > bytes - 1 - used) part = bytes - 1 - used;
        if (!peek(kernel, string + used, to + used, part)) return false;
        if (memchr(to + used, '\0', part)) return true;
        used += part;
    }
    to[used] = '\0';
    return true;
}

static void only_printable(char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f) *text = '?';
    }
}

/* The path as scope_path() writes it, from the inside out: each scope's name is put in
 * front of those that are there. */
static bool peek_path(const struct kernel *kernel, const weir_scope *scope, char *path)
{
    char name[SCOPE_NAME_BYTES];
    size_t begin = WATCHED_PATH_BYTES - 1;

    path[begin] = '\0';
    for (int level = 0; scope; level++) {
        const struct task *opener;
        size_t bytes;

        if (!peek(kernel, scope->name, name, sizeof name) ||
            !peek(kernel, &scope->opener, &opener, sizeof opener)) {
            return false;
        }
        name[sizeof name - 1] = '\0';
        bytes = strlen(name);
        if (level == WATCHED_LEVELS || begin < bytes + 1 + strlen("…/")) {
            begin -= strlen("…/");
            memcpy(path + begin, "…/", strlen("…/"));
            break;
        }
        if (level > 0) path[--begin] = '/';
        begin -= bytes;
        memcpy(path + begin, name, bytes);
        scope = NULL;
        if (opener && !peek(kernel, &opener->scope, (void *)&scope, sizeof scope)) return false;
    }
    memmove(path, path + begin, WATCHED_PATH_BYTES - begin);
    return true;
}

bool watchdog_name(struct watchdog *watchdog, struct worker *worker, struct slice *slice)
{
    const struct kernel *kernel = watchdog->runtime->kernel;
    const struct task *task = slice->work.task;
    const char *name;
    const weir_scope *scope;
    struct work now;

    if (!peek(kernel, &task->name, (void *)&name, sizeof name) ||
        !peek(kernel, &task->id, &slice->id, sizeof slice->id) ||
        !peek(kernel, &task->scope, (void *)&scope, sizeof scope) ||
        !peek_string(kernel, name, slice->name, sizeof slice->name) ||
        !peek_path(kernel, scope, slice->path)) {
        return false;
    }
    only_printable(slice->name);
    only_printable(slice->path);
    now = work_of(worker);
    return work_same(&now, &slice->work);
}

/* ---- Where it is ---- */

/* Fills watchdog->backtrace; NULL, or why there is none. */
static const char *find_place(struct watchdog *watchdog, struct worker *worker,
                              const struct slice *slice)
{
    struct capture *capture = &watchdog->capture;
    const char *why = NULL;
    int r;

    watchdog->backtrace.count = 0;
    r = capture_ask(capture, worker, &slice->work, watchdog->signal);
    if (r == -EBUSY) {
        /* The answer that nobody waited for: if it is there, it can be thrown away. */
        (void)capture_done(capture);
        return "the last answer is still awaited";
    }
    if (r < 0) return "the signal could not be sent";
    for (int64_t waited_ns = 0;
         atom_load_acquire(&capture->state) != CAPTURE_TAKEN && waited_ns < ANSWER_NS_MAX;
         waited_ns += ANSWER_LOOK_NS) {
        if (!watchdog_pause(watchdog, ANSWER_LOOK_NS)) break;
    }
    if (atom_load_acquire(&capture->state) != CAPTURE_TAKEN) {
        why = "the thread did not take the signal";
    } else if (capture->gone) {
        why = "it has just gone on";
    } else {
        capture->start.outermost = (uintptr_t)task_main;
        unwind_copied(&capture->start, &watchdog->backtrace);
        if (capture->elsewhere) why = "it is not on the task's stack";
    }
    (void)capture_done(capture);
    return why;
}

/* One line for each frame into watchdog->text. */
static void write_frames(struct watchdog *watchdog)
{
    const struct backtrace *backtrace = &watchdog->backtrace;
    size_t used = 0;

    watchdog->text[0] = '\0';
    symbol_table_init(&watchdog->symbols);
    for (unsigned i = backtrace_first(backtrace, &watchdog->symbols); i < backtrace->count; i++) {
        size_t room = sizeof watchdog->text - used;
        char *line = watchdog->text + used;
        int n;

        if (room < 2) break;
        n = symbol_format(&watchdog->symbols, backtrace->frames[i], line, room - 1);
        if (n < 0 || (size_t)n >= room - 1) {
            *line = '\0'; /* no half lines */
            break;
        }
        only_printable(line);
        line[n] = '\n';
        line[n + 1] = '\0';
        used += (size_t)n + 1;
    }
    symbol_table_deinit(&watchdog->symbols);
}

/* ---- Telling it ---- */

/* Whether a report may be made now. */
static bool take_token(struct watchdog *watchdog)
{
    const struct kernel *kernel = watchdog->runtime->kernel;
    const int64_t each_ns = WEIR_WATCHDOG_REPORT_MS * NS_PER_MS;
    int64_t now_ns = kernel->now_ns(kernel);

    if (watchdog->tokens_at_ns == 0) {
        watchdog->tokens_ns = WEIR_WATCHDOG_BURST * each_ns;
    } else {
        watchdog->tokens_ns += now_ns - watchdog->tokens_at_ns;
    }
    watchdog->tokens_at_ns = now_ns;
    if (watchdog->tokens_ns > WEIR_WATCHDOG_BURST * each_ns) {
        watchdog->tokens_ns = WEIR_WATCHDOG_BURST * each_ns;
    }
    if (watchdog->tokens_ns < each_ns) return false;
    watchdog->tokens_ns -= each_ns;
    return true;
}

static void write_log(struct watchdog *watchdog, const weir_watchdog_report *report)
{
    weir_runtime *runtime = watchdog->runtime;
    const char *line = report->backtrace;

    log_write_about(runtime, WEIR_LOG_WARNING, report->task, report->scope,
                    "#%llu has kept worker %d for %lld ms, %lld of them computing%s%s%s",
                    (unsigned long long)report->task_id, report->worker,
                    (long long)(report->held_ns / NS_PER_MS),
                    (long long)(report->cpu_ns / NS_PER_MS),
                    report->blocked ? "; it is blocked in a call" : "",
                    *report->no_backtrace ? "; no backtrace: " : "", report->no_backtrace);
    while (*line) {
        const char *end = strchr(line, '\n');
        log_write_about(runtime, WEIR_LOG_WARNING, report->task, report->scope, "    at %.*s",
                        (int)(end - line), line);
        line = end + 1;
    }
}

void watchdog_report(struct watchdog *watchdog, struct worker *worker, struct slice *slice,
                     int64_t held_ns, int64_t cpu_ns)
{
    const char *no_backtrace;
    weir_watchdog_report report;

    if (slice->report_ns == watchdog->threshold_ns) (void)atom_add(&watchdog->hits, 1);
    while (slice->report_ns <= held_ns) slice->report_ns *= REPORT_AGAIN;
    if (!take_token(watchdog)) {
        (void)atom_add(&watchdog->suppressed, 1);
        return;
    }
    no_backtrace = find_place(watchdog, worker, slice);
    write_frames(watchdog);
    report = (weir_watchdog_report){
        .task = slice->named ? slice->name : "?",
        .task_id = slice->named ? slice->id : 0,
        .scope = slice->named ? slice->path : "?",
        .worker = (int)worker->index,
        .held_ns = held_ns,
        .cpu_ns = cpu_ns,
        .blocked = slice->blocked,
        .backtrace = watchdog->text,
        .no_backtrace = no_backtrace ? no_backtrace : "",
        .hits = atom_load(&watchdog->hits),
        .suppressed = atom_load(&watchdog->suppressed),
    };
    write_log(watchdog, &report);
    if (watchdog->report) watchdog->report(watchdog->report_arg, &report);
}

bool watchdog_describe(weir_runtime *runtime, char *text, size_t bytes)
{
    const struct watchdog *watchdog = atom_load(&runtime->watchdog);

    if (!watchdog) return false;
    (void)snprintf(text, bytes, "%lld ms, %llu hits, %llu reports suppressed",
                   (long long)(watchdog->threshold_ns / NS_PER_MS),
                   (unsigned long long)atom_load(&watchdog->hits),
                   (unsigned long long)atom_load(&watchdog->suppressed));
    return true;
}

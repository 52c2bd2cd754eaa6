/* log.c - records to the sink. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weir/log.h>

#include "rt/log.h"
#include "rt/runtime.h"
#include "rt/scope.h"

static const char *const level_names[] = {
    [WEIR_LOG_UNSET] = "?",         [WEIR_LOG_OFF] = "off",   [WEIR_LOG_ERROR] = "error",
    [WEIR_LOG_WARNING] = "warning", [WEIR_LOG_INFO] = "info", [WEIR_LOG_DEBUG] = "debug",
};

enum weir_log_level log_level_from_environment(void)
{
    const char *text = getenv("WEIR_LOG");
    for (int i = WEIR_LOG_OFF; text && i <= WEIR_LOG_DEBUG; i++) {
        if (strcmp(text, level_names[i]) == 0) return (enum weir_log_level)i;
    }
    return WEIR_LOG_LEVEL_DEFAULT;
}

void log_to_stderr(void *keep_arg, const weir_log_record *record)
{
    char line[768];
    int length;
    (void)keep_arg;
    if (record->task[0]) {
        length = snprintf(line, sizeof line, "weir: %s: task '%s' (%s) %s\n",
                          level_names[record->level], record->task, record->scope, record->message);
    } else {
        length = snprintf(line, sizeof line, "weir: %s: %s\n", level_names[record->level],
                          record->message);
    }
    if (length >= (int)sizeof line) {
        length = sizeof line - 1;
        line[length - 1] = '\n';
    }
    /* One write, so that lines of several workers do not mix; if it fails there is
     * nobody to tell. */
    if (length > 0 && write(STDERR_FILENO, line, (size_t)length) < 0) return;
}

static void escape_controls(char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f) *text = '?';
    }
}

static void write_record(weir_runtime *runtime, enum weir_log_level level, const char *name,
                         const char *path, const char *format, va_list arguments)
    __attribute__((format(printf, 5, 0)));
static void write_record(weir_runtime *runtime, enum weir_log_level level, const char *name,
                         const char *path, const char *format, va_list arguments)
{
    char message[384];
    struct worker *worker = worker_self();
    weir_log_record record;

    (void)vsnprintf(message, sizeof message, format, arguments);
    escape_controls(message);
    record = (weir_log_record){
        .level = level,
        .worker = worker ? (int)worker->index : -1,
        .time_ns = runtime->kernel->now_ns(runtime->kernel),
        .task = name,
        .scope = path,
        .message = message,
    };
    runtime->log(runtime->log_arg, &record);
}

void log_write(weir_runtime *runtime, enum weir_log_level level, const struct task *task,
               const char *format, ...)
{
    char path[256] = "";
    char name[64] = "";
    va_list arguments;

    if (!log_wanted(runtime, level)) return;
    if (task) {
        sanitize_unseen_begin(); /* the names may be another task's */
        scope_path(task->scope, path, sizeof path);
        (void)snprintf(name, sizeof name, "%s", task->name);
        sanitize_unseen_end();
        escape_controls(path);
        escape_controls(name);
    }
    va_start(arguments, format);
    write_record(runtime, level, name, path, format, arguments);
    va_end(arguments);
}

void log_write_about(weir_runtime *runtime, enum weir_log_level level, const char *task,
                     const char *scope, const char *format, ...)
{
    va_list arguments;

    if (!log_wanted(runtime, level)) return;
    va_start(arguments, format);
    write_record(runtime, level, task, scope, format, arguments);
    va_end(arguments);
}

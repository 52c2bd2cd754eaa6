/* log.h - where the library's own messages go.
 *
 * Debug: a task starts, a task ends. Info: stop, drain. Warning: what was cut
 * off, what is ignored. Error: a task failed. The sink is given in weir_config;
 * the default writes one line per record to standard error.
 */
#ifndef WEIR_LOG_H
#define WEIR_LOG_H

#include <weir/defs.h>

WEIR_BEGIN

enum weir_log_level {
    WEIR_LOG_UNSET = 0, /* WEIR_LOG_LEVEL_DEFAULT, or what the environment's WEIR_LOG says */
    WEIR_LOG_OFF,
    WEIR_LOG_ERROR,
    WEIR_LOG_WARNING,
    WEIR_LOG_INFO,
    WEIR_LOG_DEBUG,
};
#define WEIR_LOG_LEVEL_DEFAULT WEIR_LOG_WARNING

typedef struct weir_log_record {
    enum weir_log_level level;
    int worker;          /* index of the worker, -1 for other threads */
    int64_t time_ns;     /* the runtime's clock (monotonic) */
    const char *task;    /* name of the task concerned, or "" */
    const char *scope;   /* path of its scope ("root/serve/request"), or "" */
    const char *message; /* one line, no newline, control characters escaped */
} weir_log_record;

/* A sink is called on the thread that has something to say, possibly on several
 * threads at once; it must not call back into weir. The record and its strings
 * are valid for the call only. */
typedef void (*weir_log_fn)(void *keep_arg, const weir_log_record *record);

WEIR_END

#endif

/* why.c - the sentences of refusals, and the end of a program that misuses us. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weir/error.h>

#include "rt/mem.h"
#include "rt/runtime.h"

/* For threads that run no task. */
static _Thread_local char thread_why[WHY_BYTES];

static __attribute__((format(printf, 1, 0))) void record(const char *format, va_list arguments)
{
    struct task *self = task_self();
    char *text = thread_why;

    if (self) {
        if (!self->why) self->why = mem_alloc(WHY_BYTES);
        self->has_extras = true;
        text = self->why;
    }
    if (!text) return; /* no memory for a sentence; the code itself is returned */
    (void)vsnprintf(text, WHY_BYTES, format, arguments);
}

void thread_locals_swap(struct thread_locals *own)
{
    struct worker *worker = worker_current;
    struct task *task = task_current;
    char why[WHY_BYTES];

    worker_current = own->worker;
    task_current = own->task;
    own->worker = worker;
    own->task = task;
    if (!own->why[0] && !thread_why[0]) return; /* nearly always */
    memcpy(why, thread_why, WHY_BYTES);
    memcpy(thread_why, own->why, WHY_BYTES);
    memcpy(own->why, why, WHY_BYTES);
}

const char *weir_why(void)
{
    struct task *self = task_self();
    if (!self) return thread_why;
    return self->why ? self->why : "";
}

int refuse(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    record(format, arguments);
    va_end(arguments);
    return WEIR_EREFUSED;
}

int refuse_as(int error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    record(format, arguments);
    va_end(arguments);
    return error;
}

void misuse(const char *format, ...)
{
    char sentence[512];
    struct worker *worker = worker_self();
    va_list arguments;
    int length;

    va_start(arguments, format);
    (void)vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    length = dprintf(STDERR_FILENO, "weir: %s\n", sentence);
    (void)length;
    if (worker) (void)dump_runtime(worker->runtime, STDERR_FILENO);
    abort();
}

void spec_copy(void *spec, size_t bytes, const void *given, size_t given_bytes)
{
    memset(spec, 0, bytes);
    if (given) memcpy(spec, given, given_bytes < bytes ? given_bytes : bytes);
}

/* io.c - handles, and what is said about one that is used wrongly. */
#include "io/io.h"

int io_head_init(struct io_head *head, enum handle_kind kind)
{
    head->runtime = worker_self()->runtime;
    return handle_open(kind, head, &head->handle);
}

void io_head_deinit(struct io_head *head)
{
    handle_close(head->handle);
}

static const char *name_of(enum handle_kind kind)
{
    switch (kind) {
    case HANDLE_CONN: return "connection";
    case HANDLE_LISTENER: return "listener";
    case HANDLE_UDP: return "socket";
    case HANDLE_FILE: return "file";
    case HANDLE_SIGNALS: return "signal watch";
    case HANDLE_PROCESS: return "process";
    case HANDLE_PROCESS_POOL: return "process pool";
    default: return "handle"; /* other layers' */
    }
}

void io_misused(const void *handle, enum handle_kind kind, const char *call)
{
    const char *name = name_of(kind);

    if (!handle) misuse("%s: the %s is NULL", call, name);
    if (!handle_object(handle, kind)) misuse("%s: the %s is closed", call, name);
    if (!worker_self()) misuse("%s: called on a thread that is not the runtime's", call);
    misuse("%s: the %s belongs to another runtime", call, name);
}

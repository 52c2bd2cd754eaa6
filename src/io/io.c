/* io.c - what is said about a handle that is used wrongly. */
#include "io/io.h"

static const char *name_of(enum io_kind kind)
{
    switch (kind) {
    case IO_CONN: return "connection";
    case IO_LISTENER: return "listener";
    case IO_UDP: return "socket";
    case IO_FILE: return "file";
    case IO_CLOSED: break;
    }
    return "handle";
}

void io_misused(const void *handle, enum io_kind kind, const char *call)
{
    const struct io_head *head = handle;
    const char *name = name_of(kind);

    if (!head) misuse("%s: the %s is NULL", call, name);
    if (head->kind != kind) misuse("%s: the %s is closed", call, name);
    if (!worker_self()) misuse("%s: called on a thread that is not the runtime's", call);
    misuse("%s: the %s belongs to another runtime", call, name);
}

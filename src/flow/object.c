/* object.c - making and unmaking objects; misuse of their handles. */
#include "flow/object.h"

#include <stdio.h>

void flow_name(char to[FLOW_NAME_BYTES], const char *name)
{
    sanitize_unseen_begin(); /* whoever meets the object may print it */
    (void)snprintf(to, FLOW_NAME_BYTES, "%s", name);
    sanitize_unseen_end();
}

static void *begin(struct flow_object *object, const char *name)
{
    if (!object) return NULL;
    flow_name(object->name, name);
    sanitize_forget(object);
    return object;
}

void *flow_alloc(size_t bytes, const char *name)
{
    return begin(stable_alloc(worker_self()->runtime, bytes), name);
}

void *flow_alloc_kept(size_t bytes, size_t kept_from, const char *name)
{
    return begin(stable_alloc_kept(worker_self()->runtime, bytes, kept_from), name);
}

void flow_free(struct flow_object *take_object)
{
    if (take_object) stable_free(&take_object->stable);
}

void flow_misused(const void *handle, const char *what, const char *call)
{
    if (!handle) misuse("%s: the %s is NULL", call, what);
    misuse("%s: the %s is closed, or was given up, or its scope has ended", call, what);
}

void flow_check_worker(const char *call)
{
    if (!worker_self()) misuse("%s: called on a thread that is not the runtime's", call);
}

int flow_check_name(const char *what, const char *name)
{
    if (!name || !*name) return refuse("%s: name is not set", what);
    return 0;
}

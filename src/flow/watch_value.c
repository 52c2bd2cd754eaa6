/* watch_value.c - the latest value, and who waits for the next. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <weir/broadcast.h>

#include "base/planted.h"
#include "flow/sync.h"
#include "rt/mem.h"

struct weir_watch {
    struct sync sync;
    uint64_t version;
    size_t value_bytes;
    unsigned char *value;
};

static const struct wait_kind wait_change = {
    .name = "change",
    .abort = waiter_abort,
    .describe = waiter_describe,
    .what = WAIT_FOR_EVENT,
    .ends = ENDS_WITH_TASKS,
    .facts = waiter_facts,
};

/* The memory of the object is the runtime's; the value's is its own. */
static void watch_release(struct worker *worker, struct belonging *belonging)
{
    weir_watch *watch = container_of(belonging, struct weir_watch, sync.object.belonging);
    unsigned char *value = watch->value;

    if (sync_let_go(worker, &watch->sync)) mem_free(value);
}

static bool watch_boundary(struct belonging *belonging, unsigned row, struct boundary *ret_boundary)
{
    struct weir_watch *watch = container_of(belonging, struct weir_watch, sync.object.belonging);

    if (row > 0) return false;
    (void)snprintf(ret_boundary->bound, sizeof ret_boundary->bound,
                   "1 value; as many may wait as there are tasks");
    ret_boundary->overflow = "the latest value replaces the one before";
    if (sync_boundary(&watch->sync, ret_boundary)) {
        boundary_figure(ret_boundary, "version", watch->version);
        sync_boundary_end(&watch->sync);
    }
    return true;
}

static const struct sync_kind watch_kind = {
    .belonging = {.name = "watch",
                  .signalled = sync_signalled,
                  .release = watch_release,
                  .describe = sync_describe,
                  .boundary = watch_boundary,
                  .is_passive = belonging_is_passive},
    .handle = HANDLE_WATCH,
    .what = "watch",
};

static weir_watch *look_up(const weir_watch *handle, const char *call)
{
    return flow_look_up(handle, HANDLE_WATCH, "watch", call);
}

int weir_watch_open(weir_scope *scope, const char *name, const void *value, size_t value_bytes,
                    weir_watch **ret_watch)
{
    unsigned char *copy;
    weir_watch *watch;
    struct sync *sync;
    int r;

    if (!worker_self()) return refuse_no_task("weir_watch_open");
    if (!value || value_bytes == 0 || value_bytes > WEIR_BROADCAST_VALUE_BYTES_MAX) {
        return refuse("watch '%s': a first value of 1 to %d bytes must be given", name ? name : "",
                      WEIR_BROADCAST_VALUE_BYTES_MAX);
    }
    copy = mem_alloc(value_bytes);
    if (!copy) return -ENOMEM;
    r = sync_open(scope, &watch_kind, sizeof *watch, name, "weir_watch_open", &sync);
    if (r < 0) {
        mem_free(copy);
        return r;
    }
    memcpy(copy, value, value_bytes);
    watch = container_of(sync, struct weir_watch, sync);
    watch->value = copy;
    watch->value_bytes = value_bytes;
    watch->version = 1;
    *ret_watch = sync->handle;
    return 0;
}

void weir_watch_set(weir_watch *handle, const void *value)
{
    weir_watch *watch = look_up(handle, "weir_watch_set");
    struct worker *worker = worker_self();

    flow_check_worker("weir_watch_set");
    sanitize_release(watch);
    sync_lock(&watch->sync);
    sanitize_unseen_begin();
    memcpy(watch->value, value, watch->value_bytes);
    sanitize_unseen_end();
    watch->version++;
    waiter_wake_all(&watch->sync.waiters, 0);
    sync_unlock(&watch->sync);
    worker_touched(worker);
}

/* The lock is held. */
static uint64_t look(const weir_watch *watch, void *ret_value)
{
    sanitize_unseen_begin();
    if (ret_value) memcpy(ret_value, watch->value, watch->value_bytes);
    sanitize_unseen_end();
    return watch->version;
}

uint64_t weir_watch_get(weir_watch *handle, void *ret_value)
{
    weir_watch *watch = look_up(handle, "weir_watch_get");
    uint64_t version;

    flow_check_worker("weir_watch_get");
    sync_lock(&watch->sync);
    version = look(watch, ret_value);
    sync_unlock(&watch->sync);
    sanitize_acquire(watch);
    return version;
}

int weir_watch_changed(weir_watch *handle, uint64_t *version, void *ret_value)
{
    weir_watch *watch = look_up(handle, "weir_watch_changed");
    struct task *self = task_self();
    int r;

    if (!self) return refuse_no_task("weir_watch_changed");
    r = task_enter(self, ENTER_PLAIN);
    if (r < 0) return r;
    sync_lock(&watch->sync);
    if (!flow_names(handle, HANDLE_WATCH, watch)) {
        sync_unlock(&watch->sync);
        return WEIR_ECLOSED;
    }
    if (watch->version <= *version) {
        struct waiter waiter = {.item = NULL};
        if (PLANTED(WATCH_LAST_MISSED)) {
            sync_unlock(&watch->sync);
            sync_lock(&watch->sync);
        }
        r = sync_wait(&watch->sync, self, &waiter, &wait_change);
        if (r < 0) return r;
        /* Woken by a change; the watch may have been closed since: it is while its handle
         * is open and the lock is held that it stays. */
        sync_lock(&watch->sync);
        if (!flow_names(handle, HANDLE_WATCH, watch)) {
            sync_unlock(&watch->sync);
            return WEIR_ECLOSED;
        }
    }
    *version = look(watch, ret_value);
    sync_unlock(&watch->sync);
    sanitize_acquire(watch);
    return 0;
}

void weir_watch_close(weir_watch *take_watch)
{
    if (take_watch) sync_close(take_watch, &watch_kind, "weir_watch_close");
}

/* event.c - set or not set; those who wait go on together. */
#include "flow/event.h"

#include <stdio.h>

#include "base/planted.h"

static bool event_boundary(struct belonging *belonging, unsigned row, struct boundary *ret_boundary)
{
    struct weir_event *event = container_of(belonging, struct weir_event, sync.object.belonging);

    if (row > 0) return false;
    (void)snprintf(ret_boundary->bound, sizeof ret_boundary->bound,
                   "1 flag; as many may wait as there are tasks");
    ret_boundary->overflow = "setting it again changes nothing";
    if (sync_boundary(&event->sync, ret_boundary)) {
        boundary_figure(ret_boundary, "set", event->is_set);
        sync_boundary_end(&event->sync);
    }
    return true;
}

static const struct sync_kind event_kind = {
    .belonging = {.name = "event",
                  .signalled = sync_signalled,
                  .release = sync_release,
                  .describe = sync_describe,
                  .boundary = event_boundary,
                  .is_passive = belonging_is_passive},
    .handle = HANDLE_EVENT,
    .what = "event",
};

static const struct wait_kind wait_event = {
    .name = "event",
    .abort = waiter_abort,
    .describe = waiter_describe,
    .what = WAIT_FOR_EVENT,
    .ends = ENDS_WITH_TASKS,
    .facts = waiter_facts,
};

static weir_event *look_up(const weir_event *handle, const char *call)
{
    return flow_look_up(handle, HANDLE_EVENT, "event", call);
}

int weir_event_open(weir_scope *scope, const char *name, weir_event **ret_event)
{
    struct sync *sync;
    int r =
        sync_open(scope, &event_kind, sizeof(struct weir_event), name, "weir_event_open", &sync);
    if (r == 0) *ret_event = sync->handle;
    return r;
}

int weir_event_wait(weir_event *handle)
{
    weir_event *event = look_up(handle, "weir_event_wait");
    struct task *self = task_self();
    struct waiter waiter = {.item = NULL};
    int r;

    if (!self) return refuse_no_task("weir_event_wait");
    r = task_enter(self, ENTER_PLAIN);
    if (r < 0) return r;
    sync_lock(&event->sync);
    if (!flow_names(handle, HANDLE_EVENT, event)) {
        sync_unlock(&event->sync);
        r = WEIR_ECLOSED;
    } else if (event->is_set) {
        sync_unlock(&event->sync);
    } else {
        if (PLANTED(EVENT_SET_BETWEEN)) sync_unlock(&event->sync), sync_lock(&event->sync);
        r = sync_wait(&event->sync, self, &waiter, &wait_event);
    }
    sanitize_acquire(event);
    return r;
}

void weir_event_set(weir_event *handle)
{
    weir_event *event = look_up(handle, "weir_event_set");
    flow_check_worker("weir_event_set");
    sanitize_release(event);
    sync_lock(&event->sync);
    event->is_set = true;
    waiter_wake_all(&event->sync.waiters, 0);
    sync_unlock(&event->sync);
    worker_touched(worker_self());
}

void weir_event_reset(weir_event *handle)
{
    weir_event *event = look_up(handle, "weir_event_reset");
    flow_check_worker("weir_event_reset");
    sync_lock(&event->sync);
    event->is_set = false;
    sync_unlock(&event->sync);
}

bool weir_event_is_set(weir_event *handle)
{
    weir_event *event = look_up(handle, "weir_event_is_set");
    bool is_set;
    flow_check_worker("weir_event_is_set");
    sync_lock(&event->sync);
    is_set = event->is_set;
    sync_unlock(&event->sync);
    if (is_set) sanitize_acquire(event);
    return is_set;
}

void weir_event_close(weir_event *take_event)
{
    if (take_event) sync_close(take_event, &event_kind, "weir_event_close");
}

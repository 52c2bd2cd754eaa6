/* broadcast.c - every value to each subscriber, within a history.
 *
 * Values are numbered from 0. The history holds [first, next); a subscriber's place is the
 * number of the value it wants next, and lies within [first, next] while it keeps up.
 *
 * Invariants, under the lock: a subscriber waits only at `next`; a publisher waits only
 * while the history is full and one with WEIR_LAG_WAIT is at `first`.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <weir/broadcast.h>

#include "base/planted.h"
#include "flow/sync.h"
#include "rt/mem.h"

struct weir_broadcast {
    struct sync sync; /* its queue: publishers that wait */
    unsigned char *values;
    size_t value_bytes;
    size_t history;
    size_t subscribers_max;
    size_t subscriber_count;
    uint64_t first;
    uint64_t next;
    bool closed;
    struct list subscribers;
    struct list readers; /* waiters of subscribers that have everything */
};

struct weir_subscriber {
    struct list node;
    weir_broadcast *broadcast;
    void *handle;
    uint64_t place;
    enum weir_lag lag;
    bool overrun; /* WEIR_LAG_CLOSE, and it was too slow */
    bool told;    /* of that */
    bool waiting; /* a task is in weir_subscriber_next */
};

static const struct wait_kind wait_publish = {
    .name = "publish",
    .abort = waiter_abort,
    .describe = waiter_describe,
    .what = WAIT_FOR_ROOM,
    .ends = ENDS_WITH_TASKS,
    .facts = waiter_facts,
};
static const struct wait_kind wait_value = {
    .name = "next value",
    .abort = waiter_abort,
    .describe = waiter_describe,
    .what = WAIT_FOR_ITEM,
    .ends = ENDS_WITH_TASKS,
    .facts = waiter_facts,
};

/* ---- Lifetime ---- */

static void free_subscribers(weir_broadcast *broadcast)
{
    struct list *node;
    while ((node = list_pop(&broadcast->subscribers))) {
        weir_subscriber *subscriber = container_of(node, struct weir_subscriber, node);
        handle_close(subscriber->handle);
        mem_free(subscriber);
    }
}

static void broadcast_release(struct worker *worker, struct belonging *belonging)
{
    weir_broadcast *broadcast =
        container_of(belonging, struct weir_broadcast, sync.object.belonging);
    unsigned char *values = broadcast->values;

    sync_lock(&broadcast->sync);
    waiter_wake_all(&broadcast->readers, WEIR_ECLOSED);
    free_subscribers(broadcast);
    sync_unlock(&broadcast->sync);
    if (sync_let_go(worker, &broadcast->sync)) mem_free(values);
}

static bool broadcast_boundary(struct belonging *belonging, unsigned row,
                               struct boundary *ret_boundary)
{
    struct weir_broadcast *broadcast =
        container_of(belonging, struct weir_broadcast, sync.object.belonging);

    if (row > 0) return false;
    (void)snprintf(ret_boundary->bound, sizeof ret_boundary->bound, "%zu values, %zu subscribers",
                   broadcast->history, broadcast->subscribers_max);
    ret_boundary->overflow = "each subscriber says: skip, close, or wait";
    if (sync_boundary(&broadcast->sync, ret_boundary)) {
        boundary_figure(ret_boundary, "depth", broadcast->next - broadcast->first);
        boundary_figure(ret_boundary, "published", broadcast->next);
        boundary_figure(ret_boundary, "subscribers", broadcast->subscriber_count);
        sync_boundary_end(&broadcast->sync);
    }
    return true;
}

static const struct sync_kind broadcast_kind = {
    .belonging = {.name = "broadcast",
                  .signalled = sync_signalled,
                  .release = broadcast_release,
                  .describe = sync_describe,
                  .boundary = broadcast_boundary,
                  .is_passive = belonging_is_passive},
    .handle = HANDLE_BROADCAST,
    .what = "broadcast",
};

static weir_broadcast *look_up(const weir_broadcast *handle, const char *call)
{
    return flow_look_up(handle, HANDLE_BROADCAST, "broadcast", call);
}

static int check_spec(const weir_broadcast_spec *spec)
{
    int r = flow_check_name("broadcast", spec->name);
    if (r < 0) return r;
    if (spec->value_bytes == 0 || spec->value_bytes > WEIR_BROADCAST_VALUE_BYTES_MAX) {
        return refuse("broadcast '%s': value_bytes is %zu, must be 1 to %d", spec->name,
                      spec->value_bytes, WEIR_BROADCAST_VALUE_BYTES_MAX);
    }
    if (spec->history == 0 || spec->history > WEIR_BROADCAST_HISTORY_MAX) {
        return refuse("broadcast '%s': history is %zu, must be 1 to %d", spec->name, spec->history,
                      WEIR_BROADCAST_HISTORY_MAX);
    }
    if (spec->subscribers_max == 0) {
        return refuse("broadcast '%s': subscribers_max is not set", spec->name);
    }
    return 0;
}

int weir_broadcast_open_sized(weir_scope *scope, size_t spec_bytes,
                              const weir_broadcast_spec *given, weir_broadcast **ret_broadcast)
{
    weir_broadcast_spec spec;
    weir_broadcast *broadcast;
    unsigned char *values;
    struct sync *sync;
    int r;

    if (!worker_self()) return refuse_no_task("weir_broadcast_open");
    spec_copy(&spec, sizeof spec, given, spec_bytes);
    r = check_spec(&spec);
    if (r < 0) return r;
    values = mem_alloc(spec.history * spec.value_bytes);
    if (!values) return -ENOMEM;
    r = sync_open(scope, &broadcast_kind, sizeof *broadcast, spec.name, "weir_broadcast_open",
                  &sync);
    if (r < 0) {
        mem_free(values);
        return r;
    }
    broadcast = container_of(sync, struct weir_broadcast, sync);
    broadcast->values = values;
    broadcast->value_bytes = spec.value_bytes;
    broadcast->history = spec.history;
    broadcast->subscribers_max = spec.subscribers_max;
    list_init(&broadcast->subscribers);
    list_init(&broadcast->readers);
    *ret_broadcast = sync->handle;
    return 0;
}

void weir_broadcast_close(weir_broadcast *take_broadcast)
{
    weir_broadcast *broadcast;

    if (!take_broadcast) return;
    broadcast = look_up(take_broadcast, "weir_broadcast_close");
    flow_check_worker("weir_broadcast_close");
    sync_lock(&broadcast->sync);
    broadcast->closed = true;
    waiter_wake_all(&broadcast->sync.waiters, WEIR_ECLOSED);
    waiter_wake_all(&broadcast->readers, WEIR_ECLOSED);
    sync_unlock(&broadcast->sync);
    worker_touched(worker_self());
}

/* ---- Publishing ---- */

static void *value_at(const weir_broadcast *broadcast, uint64_t number)
{
    return broadcast->values + number % broadcast->history * broadcast->value_bytes;
}

/* Is a subscriber in the way of the next value? The lock is held. */
static bool held_back(const weir_broadcast *broadcast)
{
    if (broadcast->next - broadcast->first < broadcast->history) return false;
    list_for_each(node, &broadcast->subscribers) {
        const weir_subscriber *subscriber = container_of(node, struct weir_subscriber, node);
        if (subscriber->lag == WEIR_LAG_WAIT && subscriber->place == broadcast->first) return true;
    }
    return false;
}

/* The lock is held; nobody is in the way. */
static void publish(weir_broadcast *broadcast, const void *value)
{
    if (broadcast->next - broadcast->first == broadcast->history) {
        broadcast->first++;
        list_for_each(node, &broadcast->subscribers) {
            weir_subscriber *subscriber = container_of(node, struct weir_subscriber, node);
            if (subscriber->lag == WEIR_LAG_CLOSE && subscriber->place < broadcast->first) {
                subscriber->overrun = true;
            }
        }
    }
    sanitize_unseen_begin();
    memcpy(value_at(broadcast, broadcast->next), value, broadcast->value_bytes);
    sanitize_unseen_end();
    broadcast->next++;
    waiter_wake_all(&broadcast->readers, 0);
}

/* A subscriber has moved on: publishers that wait put their values. The lock is held. */
static void admit(weir_broadcast *broadcast)
{
    while (!list_empty(&broadcast->sync.waiters) && !held_back(broadcast)) {
        struct waiter *publisher = waiter_pop(&broadcast->sync.waiters);
        if (!publisher) return;
        publish(broadcast, publisher->item);
        waiter_wake(publisher, 0);
    }
}

int weir_broadcast_publish(weir_broadcast *handle, const void *value)
{
    weir_broadcast *broadcast = look_up(handle, "weir_broadcast_publish");
    struct task *self = task_self();
    int r;

    if (!self) return refuse_no_task("weir_broadcast_publish");
    r = task_enter(self, ENTER_PLAIN);
    if (r < 0) return r;
    sanitize_release(broadcast);
    sync_lock(&broadcast->sync);
    if (!flow_names(handle, HANDLE_BROADCAST, broadcast) || broadcast->closed) {
        sync_unlock(&broadcast->sync);
        return WEIR_ECLOSED;
    }
    if (!list_empty(&broadcast->sync.waiters) || held_back(broadcast)) {
        struct waiter waiter = {.item = (void *)(uintptr_t)value};
        return sync_wait(&broadcast->sync, self, &waiter, &wait_publish);
    }
    publish(broadcast, value);
    sync_unlock(&broadcast->sync);
    return 0;
}

/* ---- Subscribing ---- */

int weir_broadcast_subscribe(weir_broadcast *handle, enum weir_lag lag, bool replay,
                             weir_subscriber **ret_subscriber)
{
    weir_broadcast *broadcast = look_up(handle, "weir_broadcast_subscribe");
    weir_subscriber *subscriber;
    void *opened;
    int r;

    if (!worker_self()) return refuse_no_task("weir_broadcast_subscribe");
    if (lag < WEIR_LAG_SKIP || lag > WEIR_LAG_WAIT) {
        return refuse("broadcast '%s': lag of the subscriber is not set",
                      broadcast->sync.object.name);
    }
    subscriber = mem_alloc_zeroed(sizeof *subscriber);
    if (!subscriber) return -ENOMEM;
    subscriber->broadcast = broadcast;
    subscriber->lag = lag;
    r = handle_open(HANDLE_SUBSCRIBER, subscriber, &subscriber->handle);
    if (r < 0) {
        mem_free(subscriber);
        return r;
    }
    opened = subscriber->handle;
    sync_lock(&broadcast->sync);
    if (broadcast->subscriber_count == broadcast->subscribers_max) {
        r = WEIR_EOVERLOAD;
    } else {
        subscriber->place = replay ? broadcast->first : broadcast->next;
        broadcast->subscriber_count++;
        list_add_tail(&broadcast->subscribers, &subscriber->node);
    }
    sync_unlock(&broadcast->sync);
    if (r < 0) {
        handle_close(opened);
        mem_free(subscriber);
        return r;
    }
    *ret_subscriber = opened;
    return 0;
}

void weir_subscriber_close(weir_subscriber *take_subscriber)
{
    weir_subscriber *subscriber;
    weir_broadcast *broadcast;

    if (!take_subscriber) return;
    subscriber =
        flow_look_up(take_subscriber, HANDLE_SUBSCRIBER, "subscriber", "weir_subscriber_close");
    flow_check_worker("weir_subscriber_close");
    broadcast = subscriber->broadcast;
    sync_lock(&broadcast->sync);
    handle_close(take_subscriber);
    if (subscriber->waiting) {
        misuse("weir_subscriber_close: a task waits for the next value of broadcast '%s'",
               broadcast->sync.object.name);
    }
    list_remove(&subscriber->node);
    broadcast->subscriber_count--;
    if (!PLANTED(LAGGARD_LEAVES_UNTOLD)) admit(broadcast);
    sync_unlock(&broadcast->sync);
    mem_free(subscriber);
    worker_touched(worker_self());
}

/* The lock is held. 1: there is none yet. */
static int take(weir_broadcast *broadcast, weir_subscriber *subscriber, void *ret_value,
                uint64_t *ret_lost)
{
    if (subscriber->overrun) {
        if (subscriber->told) return WEIR_ECLOSED;
        subscriber->told = true;
        return WEIR_EOVERLOAD;
    }
    *ret_lost = 0;
    if (subscriber->place < broadcast->first &&
        !(PLANTED(BROADCAST_SKIP_TORN) && broadcast->first % broadcast->history == 0)) {
        *ret_lost = broadcast->first - subscriber->place;
        subscriber->place = broadcast->first;
    }
    if (subscriber->place == broadcast->next) return broadcast->closed ? WEIR_ECLOSED : 1;
    sanitize_unseen_begin();
    memcpy(ret_value, value_at(broadcast, subscriber->place), broadcast->value_bytes);
    sanitize_unseen_end();
    subscriber->place++;
    if (subscriber->lag == WEIR_LAG_WAIT) admit(broadcast);
    return 0;
}

/* The lock is held, and let go: wait for one more value. */
static int wait_for_value(weir_broadcast *broadcast, weir_subscriber *subscriber, struct task *self)
    LOCK_RELEASES(broadcast->sync.object.stable.lock, weir_no_park) LOCK_UNCHECKED
{
    struct waiter waiter = {.task = self, .object = &broadcast->sync.object};

    subscriber->waiting = true;
    list_add_tail(&broadcast->readers, &waiter.node);
    sync_unlock(&broadcast->sync);
    return waiter_park(self, &waiter, &wait_value);
}

int weir_subscriber_next(weir_subscriber *handle, void *ret_value)
{
    weir_subscriber *subscriber =
        flow_look_up(handle, HANDLE_SUBSCRIBER, "subscriber", "weir_subscriber_next");
    struct task *self = task_self();
    weir_broadcast *broadcast = subscriber->broadcast;
    uint64_t lost = 0;
    int r;

    if (!self) return refuse_no_task("weir_subscriber_next");
    r = task_enter(self, ENTER_PLAIN);
    if (r < 0) return r;
    for (;;) {
        sync_lock(&broadcast->sync);
        if (!flow_names(handle, HANDLE_SUBSCRIBER, subscriber)) {
            sync_unlock(&broadcast->sync);
            return WEIR_ECLOSED;
        }
        if (subscriber->waiting) {
            sync_unlock(&broadcast->sync);
            return WEIR_EINUSE;
        }
        r = take(broadcast, subscriber, ret_value, &lost);
        if (r != 1) break;
        r = wait_for_value(broadcast, subscriber, self);
        /* The scope may have ended meanwhile, and the subscriber with it, under the lock. */
        sync_lock(&broadcast->sync);
        if (!handle_object(handle, HANDLE_SUBSCRIBER)) {
            sync_unlock(&broadcast->sync);
            return r < 0 ? r : WEIR_ECLOSED;
        }
        subscriber->waiting = false;
        sync_unlock(&broadcast->sync);
        if (r < 0 && r != WEIR_ECLOSED) return r;
        /* Another may have been faster: a cancel is seen before the next wait. */
        r = task_interruption(self, false);
        if (r < 0) return r;
    }
    sync_unlock(&broadcast->sync);
    sanitize_acquire(broadcast);
    if (r < 0) return r;
    return lost > INT32_MAX ? INT32_MAX : (int)lost;
}

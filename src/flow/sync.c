/* sync.c - objects with a queue of waiters: how they are made, and how they end. */
#include "flow/sync.h"

#include <errno.h>
#include <stdio.h>

int sync_open(weir_scope *scope, const struct sync_kind *kind, size_t bytes, const char *name,
              const char *call, struct sync **ret_sync)
{
    struct worker *worker = worker_self();
    struct sync *sync;
    int r;

    if (!worker) return refuse_no_task(call);
    scope_check(scope, call);
    r = flow_check_name(kind->what, name);
    if (r < 0) return r;
    sync = flow_alloc(bytes, name);
    if (!sync) return -ENOMEM;
    sync->kind = kind;
    list_init(&sync->waiters);
    r = handle_open(kind->handle, sync, &sync->handle);
    if (r < 0) goto fail_free;
    r = scope_own(scope, worker, &sync->object.belonging, &kind->belonging);
    if (r < 0) goto fail_handle;
    *ret_sync = sync;
    return 0;

fail_handle:
    handle_close(sync->handle);
fail_free:
    flow_free(&sync->object);
    return r;
}

/* Nobody finds it any more, and who waits is told. */
void sync_end(struct sync *sync)
{
    if (sync->object.ended) return;
    if (sync->kind->check_end) sync->kind->check_end(&sync->object);
    handle_close(sync->handle);
    sync_lock(sync);
    sync->object.ended = true;
    waiter_wake_all(&sync->waiters, WEIR_ECLOSED);
    sync_unlock(sync);
}

bool sync_forget(struct sync *sync)
{
    struct belonging *belonging = &sync->object.belonging;

    sync_end(sync);
    /* The bit keeps others from posting mail; if some is under way, it comes back here. */
    if (atom_or(&belonging->mail_bits, BELONGING_RELEASE) != 0) return false;
    (void)scope_forget(belonging);
    return true;
}

bool sync_let_go(struct worker *worker, struct sync *sync)
{
    (void)worker;
    if (!sync_forget(sync)) return false;
    flow_free(&sync->object);
    return true;
}

void sync_release(struct worker *worker, struct belonging *belonging)
{
    (void)sync_let_go(worker, container_of(belonging, struct sync, object.belonging));
}

void sync_signalled(struct worker *worker, struct belonging *belonging, uint8_t signals)
{
    (void)worker, (void)belonging, (void)signals; /* who waits is told by its own scope */
}

void sync_describe(const struct belonging *belonging, char *text, size_t bytes)
{
    const struct sync *sync =
        (const struct sync *)(const void *)((const char *)belonging -
                                            offsetof(struct sync, object.belonging));
    (void)snprintf(text, bytes, "'%s'%s", sync->object.name,
                   list_empty(&sync->waiters) ? "" : ", tasks wait");
}

bool sync_boundary(struct sync *sync, struct boundary *ret_boundary)
{
    size_t waiting = 0;

    (void)snprintf(ret_boundary->name, sizeof ret_boundary->name, "%s", sync->object.name);
    ret_boundary->lifetime = "until closed, or the scope ends";
    (void)snprintf(ret_boundary->failure, sizeof ret_boundary->failure,
                   "none of its own; who waits at its end gets WEIR_ECLOSED");
    if (!boundary_hold(&sync->object.stable.lock, sync->object.stable.shared)) return false;
    list_for_each(node, &sync->waiters) waiting++;
    boundary_figure(ret_boundary, "waiting", waiting);
    return true;
}

void sync_boundary_end(struct sync *sync)
{
    boundary_let_go(&sync->object.stable.lock, sync->object.stable.shared);
}

void sync_close(const void *handle, const struct sync_kind *kind, const char *call)
{
    struct sync *sync = flow_look_up(handle, kind->handle, kind->what, call);
    struct worker *worker = worker_self();
    weir_scope *scope = sync->object.belonging.scope;

    flow_check_worker(call);
    if (sync->object.belonging.worker == worker) {
        kind->belonging.release(worker, &sync->object.belonging);
        mail_deliver_local(worker);
        return;
    }
    /* It lets go on its own worker; until then it is closed already. */
    sync_end(sync);
    scope_lock(scope);
    belonging_mail(&sync->object.belonging, BELONGING_RELEASE);
    scope_unlock(scope);
}

int sync_wait(struct sync *sync, struct task *self, struct waiter *waiter,
              const struct wait_kind *kind) LOCK_UNCHECKED
{
    waiter->task = self;
    waiter->object = &sync->object;
    list_add_tail(&sync->waiters, &waiter->node);
    sync_unlock(sync);
    return waiter_park(self, waiter, kind);
}

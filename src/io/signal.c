/* signal.c - signals as events: a watch compares counts, and parks its task.
 *
 * Nothing here runs in a handler: that counts and wakes the runtime (rt/signal_table.c),
 * and a worker's safe point calls watch_look.
 *
 * A watch is open until somebody ends it under the runtime's signal_lock: its close,
 * on any worker, or its scope, on the worker it was opened on. Its memory is always
 * given back there, since the scope's mail comes there. See the table of locks in
 * rt/README.md.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "io/io.h"
#include "rt/mem.h"
#include "rt/scope.h"
#include "rt/signal_table.h"
#include "rt/signals.h"

enum { WATCH_NAME_BYTES = 32 };

/* One of the signals, and its count when the watch last told of it. */
struct watched {
    int signal;
    uint64_t told;
};

struct weir_signal_watch {
    struct io_head head;
    struct belonging belonging;
    struct signal_watcher watcher;
    char name[WATCH_NAME_BYTES];
    bool ended;
    struct task *waiter;
    int next; /* where the search for the next event begins, so that they take turns */
    int count;
    struct watched signals[];
};

/* ---- Waiting: everything here under signal_lock ---- */

/* The next event, if there is one. */
static bool watch_take(weir_signal_watch *watch, weir_signal_event *ret_event)
{
    for (int i = 0; i < watch->count; i++) {
        struct watched *watched = &watch->signals[(watch->next + i) % watch->count];
        uint64_t count = signal_count(watched->signal);

        if (count == watched->told) continue;
        *ret_event = (weir_signal_event){.signal = watched->signal,
                                         .count = count - watched->told,
                                         .sender = signal_sender(watched->signal)};
        watched->told = count;
        watch->next = (watch->next + i + 1) % watch->count;
        return true;
    }
    return false;
}

static bool watch_has_event(const weir_signal_watch *watch)
{
    for (int i = 0; i < watch->count; i++) {
        if (signal_count(watch->signals[i].signal) != watch->signals[i].told) return true;
    }
    return false;
}

static void watch_wake(weir_signal_watch *watch, int result)
{
    struct task *waiter = watch->waiter;

    if (!waiter) return;
    watch->waiter = NULL;
    task_wake(waiter, result);
}

static void watch_look(struct signal_watcher *watcher)
{
    weir_signal_watch *watch = container_of(watcher, weir_signal_watch, watcher);
    if (watch_has_event(watch)) watch_wake(watch, 0);
}

/* On the stack of the task that waits: the watch may be gone before the task has run. */
struct signal_wait {
    weir_signal_watch *handle;
    char name[WATCH_NAME_BYTES];
};

/* False: it was woken already. */
static bool watch_abort(struct task *task, void *object)
{
    weir_runtime *runtime = atom_load(&task->home)->runtime;
    const struct signal_wait *wait = object;
    weir_signal_watch *watch;
    bool waiting;

    lock_acquire(&runtime->signal_lock);
    watch = handle_object(wait->handle, HANDLE_SIGNALS);
    waiting = watch && watch->waiter == task;
    if (waiting) watch->waiter = NULL;
    lock_release(&runtime->signal_lock);
    return waiting;
}

static void watch_describe(const void *object, char *text, size_t bytes)
{
    const struct signal_wait *wait = object;
    (void)snprintf(text, bytes, "'%s'", wait->name);
}

static const struct wait_kind wait_signal = {
    .name = "signal",
    .takes_work = true,
    .abort = watch_abort,
    .describe = watch_describe,
    .what = WAIT_FOR_SIGNAL,
};

/* 1: `ret_event` is there. 0: the task is registered and must park. */
static int take_or_register(struct task *self, struct signal_wait *wait,
                            weir_signal_event *ret_event)
{
    weir_runtime *runtime = worker_self()->runtime;
    weir_signal_watch *watch;
    int r;

    lock_acquire(&runtime->signal_lock);
    watch = handle_object(wait->handle, HANDLE_SIGNALS); /* its scope may have ended */
    if (!watch) {
        r = WEIR_ECLOSED;
    } else if (watch->waiter) {
        r = WEIR_EINUSE;
    } else if (watch_take(watch, ret_event)) {
        r = 1;
    } else {
        /* Again after a wake-up whose event another task has taken: see io_wait. */
        r = task_interruption(self, true);
        if (r == 0) watch->waiter = self;
        memcpy(wait->name, watch->name, sizeof wait->name);
    }
    lock_release(&runtime->signal_lock);
    return r;
}

int weir_signal_wait(weir_signal_watch *handle, weir_signal_event *ret_event)
{
    struct task *self = task_self();
    struct signal_wait wait = {.handle = handle};
    int r;

    if (!self) return refuse_no_task("weir_signal_wait");
    (void)io_check(handle, HANDLE_SIGNALS, "weir_signal_wait");
    r = task_enter(self, ENTER_TAKE_WORK);
    while (r == 0) {
        r = take_or_register(self, &wait, ret_event);
        if (r == 0) r = task_park(self, &wait_signal, &wait);
    }
    return r < 0 ? r : 0;
}

/* ---- The end ---- */

/* Under signal_lock. From here on it has no waiter, no handle and no signals. */
static void watch_end(weir_signal_watch *watch)
{
    weir_runtime *runtime = watch->head.runtime;

    watch->ended = true;
    list_remove(&watch->watcher.node);
    (void)atom_sub(&runtime->signal_watches, 1);
    io_head_deinit(&watch->head);
    for (int i = 0; i < watch->count; i++) signal_unwatch(watch->signals[i].signal);
    watch_wake(watch, WEIR_ECLOSED);
}

static void watch_release(struct worker *worker, struct belonging *belonging)
{
    weir_signal_watch *watch = container_of(belonging, weir_signal_watch, belonging);

    lock_acquire(&worker->runtime->signal_lock);
    if (!watch->ended) watch_end(watch);
    lock_release(&worker->runtime->signal_lock);
    if (scope_forget(belonging)) mem_free(watch);
}

/* Have it released on its worker. Under signal_lock, without which it may be gone. */
static void mail_release(weir_signal_watch *watch)
{
    weir_scope *scope = watch->belonging.scope;

    scope_lock(scope);
    belonging_mail(&watch->belonging, BELONGING_RELEASE);
    scope_unlock(scope);
}

void weir_signal_close(weir_signal_watch *handle)
{
    struct worker *worker = worker_self();
    weir_signal_watch *watch;
    bool here;

    if (!handle) return;
    (void)io_check(handle, HANDLE_SIGNALS, "weir_signal_close");
    lock_acquire(&worker->runtime->signal_lock);
    watch = io_check_open(handle, HANDLE_SIGNALS, "weir_signal_close");
    if (watch->waiter) {
        misuse("weir_signal_close: task '%s' is waiting on the signal watch '%s'",
               watch->waiter->name, watch->name);
    }
    watch_end(watch);
    here = watch->belonging.worker == worker;
    if (!here) mail_release(watch);
    lock_release(&worker->runtime->signal_lock);
    if (here) watch_release(worker, &watch->belonging);
}

static void watch_signalled(struct worker *worker, struct belonging *belonging, uint8_t signals)
{
    /* Tasks that wait on it are cancelled by themselves. */
    (void)worker, (void)belonging, (void)signals;
}

static void belonging_describe(const struct belonging *belonging, char *text, size_t bytes)
{
    const weir_signal_watch *watch =
        (const weir_signal_watch *)(const void *)((const char *)belonging -
                                                  offsetof(weir_signal_watch, belonging));
    int used = snprintf(text, bytes, "'%s':", watch->name);

    for (int i = 0; i < watch->count && used > 0 && (size_t)used < bytes; i++) {
        char name[SIGNAL_NAME_BYTES];
        signal_name(watch->signals[i].signal, name);
        used += snprintf(text + used, bytes - (size_t)used, " %s", name);
    }
}

static bool watch_boundary(struct belonging *belonging, unsigned row, struct boundary *ret_boundary)
{
    const weir_signal_watch *watch = container_of(belonging, weir_signal_watch, belonging);

    if (row > 0) return false;
    (void)snprintf(ret_boundary->name, sizeof ret_boundary->name, "%s", watch->name);
    ret_boundary->lifetime = "until closed, or the scope ends";
    boundary_bound(ret_boundary, (uint64_t)watch->count, "signals, counted");
    ret_boundary->overflow = "signals of one kind are added up";
    (void)snprintf(ret_boundary->failure, sizeof ret_boundary->failure,
                   "none of its own; the handlers of before come back at its end");
    return true;
}

static const struct belonging_kind watch_kind = {
    .name = "signal watch",
    .signalled = watch_signalled,
    .release = watch_release,
    .describe = belonging_describe,
    .boundary = watch_boundary,
};

/* ---- Opening ---- */

static int check_spec(const weir_signal_spec *spec)
{
    if (!spec->name || !*spec->name) return refuse("signal watch: name is not set");
    if (!spec->signals) return refuse("signal watch '%s': signals is not set", spec->name);
    if (spec->signals_count <= 0 || spec->signals_count > SIGNALS_MAX) {
        return refuse("signal watch '%s': signals_count is %d, must be 1 to %d", spec->name,
                      spec->signals_count, SIGNALS_MAX);
    }
    if (spec->previous < WEIR_PREVIOUS_UNSET || spec->previous > WEIR_PREVIOUS_CALL) {
        return refuse("signal watch '%s': previous is not of enum weir_signal_previous",
                      spec->name);
    }
    for (int i = 0; i < spec->signals_count; i++) {
        for (int k = 0; k < i; k++) {
            if (spec->signals[i] != spec->signals[k]) continue;
            return refuse("signal watch '%s': signals has %d twice", spec->name, spec->signals[i]);
        }
    }
    return 0;
}

/* All of them, or none. What comes after this is an event. */
static int watch_signals(weir_signal_watch *watch, const weir_signal_spec *spec)
{
    while (watch->count < spec->signals_count) {
        struct watched *watched = &watch->signals[watch->count];
        int r;

        watched->signal = spec->signals[watch->count];
        r = signal_watch(watched->signal, spec->previous, watch->name, &watched->told);
        if (r < 0) {
            while (watch->count > 0) signal_unwatch(watch->signals[--watch->count].signal);
            return r;
        }
        watch->count++;
    }
    return 0;
}

int weir_signal_open_sized(weir_scope *scope, size_t spec_bytes, const weir_signal_spec *given,
                           weir_signal_watch **ret_watch)
{
    struct worker *worker = worker_self();
    weir_signal_spec spec;
    weir_signal_watch *watch;
    void *handle;
    int r;

    if (!worker) return refuse_no_task("weir_signal_open");
    scope_check(scope, "weir_signal_open");
    spec_copy(&spec, sizeof spec, given, spec_bytes);
    r = check_spec(&spec);
    if (r < 0) return r;
    watch = mem_alloc_zeroed(sizeof *watch + (size_t)spec.signals_count * sizeof watch->signals[0]);
    if (!watch) return -ENOMEM;
    (void)snprintf(watch->name, sizeof watch->name, "%s", spec.name);
    watch->watcher.look = watch_look;
    r = io_head_init(&watch->head, HANDLE_SIGNALS);
    if (r < 0) goto fail_free;
    handle = watch->head.handle;
    /* Counted before the signals are taken: a handler tells only who is counted. */
    lock_acquire(&worker->runtime->signal_lock);
    list_add_tail(&worker->runtime->signal_watchers, &watch->watcher.node);
    (void)atom_add(&worker->runtime->signal_watches, 1);
    r = watch_signals(watch, &spec);
    if (r == 0) r = scope_own(scope, worker, &watch->belonging, &watch_kind);
    if (r < 0) watch_end(watch);
    lock_release(&worker->runtime->signal_lock);
    if (r < 0) goto fail_free;
    *ret_watch = handle;
    return 0;

fail_free:
    mem_free(watch);
    return r;
}

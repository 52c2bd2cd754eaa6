/* log_wait.c - tasks that wait for the log, and how its threads tell them. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/planted.h"
#include "store/log_live.h"

/* ---- Telling ---- */

/* On the worker of all of them. */
static void deliver(struct worker *worker, struct mail *mail)
{
    struct log_waiter *waiter = container_of(mail, struct log_waiter, mail);

    (void)worker;
    while (waiter) {
        struct log_waiter *next = waiter->next; /* its memory may be gone once it is woken */

        sanitize_acquire(waiter->log);
        task_wake(waiter->task, waiter->result);
        waiter = next;
    }
}

void log_told_add(struct log_told *told, struct log_waiter *waiter, int result)
{
    list_remove(&waiter->node);
    waiter->result = result;
    waiter->next = NULL;
    sanitize_release(waiter->log);
    for (int i = 0; i < LOG_TOLD_WORKERS; i++) {
        if (told->first[i] && told->first[i]->worker != waiter->worker) continue;
        waiter->next = told->first[i];
        told->first[i] = waiter;
        return;
    }
    mail_post(waiter->worker, &waiter->mail);
}

void log_told_all(struct log_told *told, struct list *waiters, int result)
{
    struct list *node;

    while ((node = list_last(waiters)))
        log_told_add(told, container_of(node, struct log_waiter, node), result);
}

void log_told_post(struct log_told *told)
{
    for (int i = 0; i < LOG_TOLD_WORKERS && told->first[i]; i++)
        mail_post(told->first[i]->worker, &told->first[i]->mail);
    *told = (struct log_told){0};
}

/* Whether a position has reached what is wanted of it. */
static bool reached(const struct log *log, uint64_t end, enum log_durability durability)
{
    return end <= (durability == LOG_SYNCED ? log->synced : log->written);
}

void log_tell_reached(struct log *log, struct log_told *told)
{
    struct list *node = list_last(&log->waiters);

    /* From the last to the first, since each is put before those of its worker. */
    while (node && node != &log->waiters) {
        struct log_waiter *waiter = container_of(node, struct log_waiter, node);

        node = node->prev;
        if (reached(log, waiter->end, waiter->durability)) log_told_add(told, waiter, 0);
    }
}

void log_stop(struct log *log, int error, const struct log_why *why, struct log_told *told)
{
    assert(error < 0);
    if (log->error == 0) {
        log->error = error;
        log->why = *why;
    }
    if (log->state == LOG_OPEN) log->state = LOG_STOPPED;
    log_told_all(told, &log->waiters, log->error);
    log_told_all(told, &log->starved, 0); /* they look again, and see it */
    bell_ring_all(&log->work);
    bell_ring_all(&log->keep);
}

void log_wake_committer(struct log *log)
{
    if (!log->committer_waits) return;
    log->committer_waits = false; /* once is enough */
    bell_ring(&log->work);
}

/* ---- Waiting ---- */

static bool abort_wait(struct task *task, void *object)
{
    struct log_waiter *waiter = object;
    struct log *log = waiter->log;
    bool waiting;

    (void)task;
    lock_acquire(&log->lock);
    waiting = !list_empty(&waiter->node);
    if (waiting) list_remove(&waiter->node);
    lock_release(&log->lock);
    return waiting;
}

/* The thread that recovers is asked to stop; it tells the opener when it has. */
static bool abort_open(struct task *task, void *object)
{
    struct log_waiter *waiter = object;
    struct log *log = waiter->log;

    (void)task;
    lock_acquire(&log->lock);
    if (!list_empty(&waiter->node)) atom_store(&log->stop, true);
    lock_release(&log->lock);
    return false;
}

/* The path of the spec: that of the folder is written while the opener waits. */
static void describe(const void *object, char *text, size_t bytes)
{
    const struct log_waiter *waiter = object;
    (void)snprintf(text, bytes, "store '%s', position %" PRIu64, waiter->log->spec.path,
                   waiter->end);
}

const struct wait_kind log_wait_commit = {
    .name = "commit", .abort = abort_wait, .describe = describe, .what = WAIT_FOR_THREAD};
const struct wait_kind log_wait_room = {
    .name = "room in the log", .abort = abort_wait, .describe = describe, .what = WAIT_FOR_THREAD};
const struct wait_kind log_wait_open = {
    .name = "recovery", .abort = abort_open, .describe = describe, .what = WAIT_FOR_THREAD};
const struct wait_kind log_wait_end = {
    .name = "end of the log", .describe = describe, .what = WAIT_FOR_THREAD};

int log_park(struct log *log, struct list *list, struct log_waiter *waiter,
             const struct wait_kind *kind)
{
    struct task *self = task_self();

    waiter->log = log;
    waiter->task = self;
    waiter->worker = worker_self();
    waiter->next = NULL;
    waiter->mail.deliver = deliver;
    list_add_tail(list, &waiter->node);
    lock_release(&log->lock);
    return task_park(self, kind, waiter);
}

int log_wait(struct log *log, uint64_t end, enum log_durability durability)
{
    struct log_waiter waiter = {.end = end, .durability = durability};
    struct task *self = task_self();
    int r;

    if (!self) return refuse_no_task("log_wait");
    if (durability == LOG_DURABILITY_UNSET) return refuse("log_wait: durability is not set");
    r = task_enter(self, ENTER_IO);
    if (r < 0) return r;
    lock_acquire(&log->lock);
    if (end > log->end) {
        lock_release(&log->lock);
        return refuse("log_wait: position %" PRIu64 " was never given out", end);
    }
    if (durability == LOG_MEMORY || !reached(log, end, durability)) {
        if (log->error < 0) {
            r = log->error;
            lock_release(&log->lock);
            return r;
        }
        if (durability == LOG_SYNCED && end > log->sync_wanted) log->sync_wanted = end;
        log->write_wanted = true;
        log_wake_committer(log);
        if (durability != LOG_MEMORY)
            return log_park(log, &log->waiters, &waiter, &log_wait_commit);
    }
    lock_release(&log->lock);
    return 0;
}

/* log_wait.c - tasks that wait for the log, and how its threads tell them. */
#include <assert.h>
#include <errno.h>
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

void log_take_due(struct log *log, enum log_wait_for what, struct list *ret_told)
{
    struct log_queue *due = &log->due[what];

    list_init(ret_told);
    list_move_all(ret_told, &due->list);
    log->told_count += due->count;
    due->count = 0;
}

void log_tell_taken(struct list *taken)
{
    struct log_told told = {0};

    /* From the last to the first, since each is put before those of its worker. */
    log_told_all(&told, taken, 0);
    log_told_post(&told);
}

void log_take_batch(struct log *log)
{
    log->batch_end = log->end;
    for (int what = LOG_WAIT_WRITTEN; what <= LOG_WAIT_SYNCED; what++) {
        list_move_all(&log->due[what].list, &log->later[what].list);
        log->due[what].count += log->later[what].count;
        log->later[what].count = 0;
    }
}

static struct log_queue *queue_of(struct log *log, uint64_t end, enum log_durability durability)
{
    int what = durability == LOG_SYNCED ? LOG_WAIT_SYNCED : LOG_WAIT_WRITTEN;

    return end <= log->batch_end ? &log->due[what] : &log->later[what];
}

void log_stop(struct log *log, int error, const struct log_why *why, struct log_told *told)
{
    assert(error < 0);
    /* Of calls these say that nothing was done, and of leases that they are lost; but this may be
     * done, and does not pass. */
    if (log->state == LOG_OPEN &&
        (error == -ENOSPC || error == -EDQUOT || error == -ENOMEM || error == -ESTALE))
        error = -EIO;
    if (log->error == 0) {
        log->error = error;
        log->why = *why;
    }
    if (log->state == LOG_OPEN) log->state = LOG_STOPPED;
    atom_store(&log->room_sure, 0);
    for (int what = LOG_WAIT_WRITTEN; what <= LOG_WAIT_SYNCED; what++) {
        log_told_all(told, &log->due[what].list, log->error);
        log_told_all(told, &log->later[what].list, log->error);
        log->due[what].count = log->later[what].count = 0;
    }
    log_told_all(told, &log->starved, 0); /* they look again, and see it */
    log_told_all(told, &log->held, 0);
    bell_ring_all(&log->work);
    bell_ring_all(&log->keep);
}

/* Whether the committer is to be rung for: once is enough. Rung under the lock it would run into
 * it, and have to be woken again. */
static bool take_wake(struct log *log)
{
    bool waits = log->committer_waits;

    log->committer_waits = false;
    return waits;
}

void log_wake_committer(struct log *log)
{
    if (take_wake(log)) bell_ring(&log->work);
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

/* Who waits for a position that was reached is being told, without the lock. */
static bool abort_commit(struct task *task, void *object)
{
    struct log_waiter *waiter = object;
    struct log *log = waiter->log;
    bool waiting;

    (void)task;
    lock_acquire(&log->lock);
    waiting = !reached(log, waiter->end, waiter->durability) && !list_empty(&waiter->node);
    if (waiting) {
        queue_of(log, waiter->end, waiter->durability)->count--;
        list_remove(&waiter->node);
    }
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
    .name = "commit", .abort = abort_commit, .describe = describe, .what = WAIT_FOR_THREAD};
const struct wait_kind log_wait_room = {
    .name = "room in the log", .abort = abort_wait, .describe = describe, .what = WAIT_FOR_THREAD};
const struct wait_kind log_wait_open = {
    .name = "recovery", .abort = abort_open, .describe = describe, .what = WAIT_FOR_THREAD};
const struct wait_kind log_wait_end = {
    .name = "end of the log", .describe = describe, .what = WAIT_FOR_THREAD};

/* The lock is let go of; the caller parks next. */
static void enlist(struct log *log, struct list *list, struct log_waiter *waiter) LOCK_UNCHECKED;
static void enlist(struct log *log, struct list *list, struct log_waiter *waiter)
{
    waiter->log = log;
    waiter->task = task_self();
    waiter->worker = worker_self();
    waiter->next = NULL;
    waiter->mail.deliver = deliver;
    list_add_tail(list, &waiter->node);
    lock_release(&log->lock);
}

int log_park(struct log *log, struct list *list, struct log_waiter *waiter,
             const struct wait_kind *kind)
{
    enlist(log, list, waiter);
    return task_park(waiter->task, kind, waiter);
}

/* Somebody waits, or will. True: the committer is to be rung for, without the lock; not while it
 * gathers and more are to come. */
static bool want(struct log *log, uint64_t end, enum log_durability durability)
{
    if (durability == LOG_SYNCED && end > log->sync_wanted) log->sync_wanted = end;
    log->write_wanted = true;
    if (log->gathering && log->came_count < log->told_count) return false;
    return take_wake(log);
}

/* Nobody waits. The committer is woken once for all that come in the next moments: what is not in
 * the filling buffer any more is being written. True: it is to be rung for. */
static bool want_later(struct log *log, uint64_t end)
{
    if (log->write_later || end <= log->batch_end) return false;
    log->write_later = true;
    return !log->gathering && take_wake(log);
}

void log_ask(struct log *log, uint64_t end, enum log_durability durability)
{
    bool rings = false;

    lock_acquire(&log->lock);
    if (durability != LOG_MEMORY && log->error == 0 && !reached(log, end, durability))
        rings = want(log, end, durability);
    lock_release(&log->lock);
    if (rings) bell_ring(&log->work);
}

int log_wait(struct log *log, uint64_t end, enum log_durability durability)
{
    struct log_waiter waiter = {.end = end, .durability = durability};
    struct task *self = task_self();
    bool rings = false;
    int r;

    if (!self) return refuse_no_task("log_wait");
    if (durability == LOG_DURABILITY_UNSET) return refuse("log_wait: durability is not set");
    r = task_enter(self, ENTER_IO);
    if (r < 0) return r;
    lock_acquire(&log->lock);
    if (end > log->end) {
        r = log->error;
        lock_release(&log->lock);
        return r < 0 ? r : refuse("log_wait: position %" PRIu64 " was never given out", end);
    }
    if (durability == LOG_MEMORY || !reached(log, end, durability)) {
        if (log->error < 0) {
            r = log->error;
            lock_release(&log->lock);
            return r;
        }
        if (durability != LOG_MEMORY) {
            struct log_queue *queue = queue_of(log, end, durability);

            if (end > log->batch_end) log->came_count++; /* for the batch that is next */
            rings = want(log, end, durability);
            queue->count++;
            enlist(log, &queue->list, &waiter);
            if (rings) bell_ring(&log->work);
            return task_park(self, &log_wait_commit, &waiter);
        }
        rings = want_later(log, end);
    }
    lock_release(&log->lock);
    if (rings) bell_ring(&log->work);
    return 0;
}

/* once.c - the first caller does it, the others wait.
 *
 *     NEW ──first caller──▶ RUNNING ──succeeded──▶ DONE
 *      ▲                       │ failed
 *      └───────────────────────┘ (the one that waits longest tries next)
 *
 * A once has no owner to clean up after it, so it holds no memory: those who wait are in
 * one of a few queues of the process, found by its address.
 */
#include "flow/once.h"

#include <weir/sync.h>

#include "base/planted.h"
#include "flow/wait.h"

enum once_state { ONCE_NEW, ONCE_RUNNING, ONCE_DONE };
enum { ONCE_QUEUES = 16 };

struct once {
    ATOM(uintptr_t) state;      /* enum once_state; changed under its queue's lock */
    ATOM(struct task *) runner; /* while RUNNING */
};
_Static_assert(sizeof(struct once) == sizeof(weir_once), "weir_once is what it stands for");

/* The waiters' objects have nothing but a lock and a name. */
static struct once_queue {
    struct flow_object object;
    struct list waiters;
} queues[ONCE_QUEUES];
static pthread_once_t queues_once = PTHREAD_ONCE_INIT;

static void queues_init(void)
{
    for (unsigned i = 0; i < ONCE_QUEUES; i++) {
        lock_init(&queues[i].object.stable.lock);
        queues[i].object.stable.shared = true;
        queues[i].object.name[0] = '\0';
        list_init(&queues[i].waiters);
    }
}

static struct once_queue *queue_of(const struct once *once)
{
    return &queues[((uintptr_t)once >> 4) % ONCE_QUEUES];
}

static void once_facts(const void *object, struct waiting *ret_waiting)
{
    const struct waiter *waiter = object;
    const struct once *once = waiter->item;
    waiting_name(ret_waiting, "once", "");
    waiting_by(ret_waiting, atom_load(&once->runner), 0);
    if (ret_waiting->by_count == 0) ret_waiting->ends = ENDS_OUTSIDE; /* it has just ended */
}

static const struct wait_kind wait_once = {
    .name = "once",
    .abort = waiter_abort,
    .describe = waiter_describe,
    .what = WAIT_FOR_EVENT,
    .ends = ENDS_WITH_ALL,
    .facts = once_facts,
};

/* Wake those who wait for this one: all, or only the one that has waited longest. */
static void wake(struct once_queue *queue, const struct once *once, bool all)
{
    struct list *node = queue->waiters.next;
    while (node != &queue->waiters) {
        struct waiter *waiter = container_of(node, struct waiter, node);
        node = node->next;
        if (waiter->item != once) continue;
        list_remove(&waiter->node);
        waiter_wake(waiter, 0);
        if (!all) return;
    }
}

void once_forget(const weir_runtime *runtime)
{
    for (unsigned i = 0; i < ONCE_QUEUES; i++) {
        struct list *node = queues[i].waiters.next;

        while (node && node != &queues[i].waiters) { /* NULL: there was none yet */
            struct waiter *waiter = container_of(node, struct waiter, node);
            node = node->next;
            if (atom_load(&waiter->task->home)->runtime == runtime) list_remove(&waiter->node);
        }
    }
}

/* True: the caller has to do it. */
static int begin(struct once *once, struct task *self, bool *ret_run)
{
    struct once_queue *queue = queue_of(once);
    struct waiter waiter = {.task = self, .object = &queue->object, .item = once};
    int r;

    *ret_run = false;
    flow_lock(&queue->object);
    switch ((enum once_state)atom_load(&once->state)) {
    case ONCE_DONE: flow_unlock(&queue->object); return 0;
    case ONCE_NEW:
        if (PLANTED(ONCE_TWICE)) flow_unlock(&queue->object), flow_lock(&queue->object);
        atom_store(&once->state, ONCE_RUNNING);
        atom_store(&once->runner, self);
        flow_unlock(&queue->object);
        *ret_run = true;
        return 0;
    case ONCE_RUNNING: break;
    }
    if (atom_load(&once->runner) == self) {
        flow_unlock(&queue->object);
        return refuse("once: task '%s' is inside it already", self->name);
    }
    /* Also who has waited before, and was cancelled on its way here. */
    r = task_interruption(self, false);
    if (r < 0) {
        flow_unlock(&queue->object);
        return r;
    }
    list_add_tail(&queue->waiters, &waiter.node);
    flow_unlock(&queue->object);
    return waiter_park(self, &waiter, &wait_once);
}

static void end(struct once *once, bool succeeded)
{
    struct once_queue *queue = queue_of(once);

    sanitize_release(once);
    flow_lock(&queue->object);
    atom_store(&once->runner, NULL);
    atom_store_release(&once->state, succeeded ? ONCE_DONE : ONCE_NEW);
    wake(queue, once, succeeded);
    flow_unlock(&queue->object);
}

int weir_once_run(weir_once *given, weir_task_fn fn, void *arg)
{
    struct once *once = (struct once *)(void *)given;
    struct task *self = task_self();
    int r;

    if (!self) return refuse_no_task("weir_once_run");
    r = task_enter(self, ENTER_PLAIN);
    while (r == 0) {
        bool run;

        if (atom_load_acquire(&once->state) == ONCE_DONE) break;
        (void)pthread_once(&queues_once, queues_init);
        r = begin(once, self, &run);
        if (run) {
            sanitize_acquire(once); /* after one that has failed */
            r = fn(arg);
            end(once, r >= 0);
            return r < 0 ? r : 0;
        }
    }
    sanitize_acquire(once);
    return r;
}

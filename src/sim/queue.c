/* queue.c - readiness in a simulated run: struct kernel_queue of the simulator.
 *
 * As epoll does it, edge-triggered: what newly became ready puts a watch into its queue's list
 * (once), and a wait asks the file how it is then. A watch whose file is not ready any more
 * is no event.
 */
#include <assert.h>
#include <errno.h>

#include "rt/runtime.h"
#include "sim/net.h"

struct kernel_queue {
    struct sim *sim;
    struct sim_thread *waiter; /* that sleeps in queue_wait */
    bool woken;
    struct list watches;
    struct list pending; /* of them, in the order in which they became ready */
};

struct watch {
    struct list in_file;
    struct list in_queue;
    struct list pending; /* in none: nothing new */
    struct kernel_queue *queue;
    struct sim_file *file;
    uint64_t tag;
    int fd;
};

static void queue_rouse(struct kernel_queue *queue)
{
    if (queue->waiter != NULL) sim_thread_wake(queue->sim, queue->waiter);
}

static void watch_arises(struct watch *watch)
{
    if (!list_empty(&watch->pending)) return;
    list_add_tail(&watch->queue->pending, &watch->pending);
    queue_rouse(watch->queue);
}

static void watch_free(struct watch *take_watch)
{
    list_remove(&take_watch->in_file);
    list_remove(&take_watch->in_queue);
    list_remove(&take_watch->pending);
    sim_free(take_watch->queue->sim, take_watch);
}

static struct watch *watch_find(const struct kernel_queue *queue, struct sim_file *file, int fd)
{
    list_for_each(node, &file->watches) {
        struct watch *watch = container_of(node, struct watch, in_file);
        if (watch->queue == queue && watch->fd == fd) return watch;
    }
    return NULL;
}

void sim_file_ready(struct sim *sim, struct sim_file *file, unsigned ready)
{
    (void)sim;
    if (ready == 0) return;
    list_for_each(node, &file->watches) watch_arises(container_of(node, struct watch, in_file));
}

void queue_forget(struct sim *sim, struct sim_file *file, int fd)
{
    struct list *node = file->watches.next;

    (void)sim;
    while (node != &file->watches) {
        struct watch *watch = container_of(node, struct watch, in_file);
        node = node->next;
        if (watch->fd == fd) watch_free(watch);
    }
}

/* ---- The calls ---- */

static int sim_queue_open(const struct kernel *kernel, struct kernel_queue **ret_queue)
{
    struct sim *sim = sim_now_running();
    struct kernel_queue *queue = sim_alloc(sim, sizeof *queue);

    (void)kernel;
    if (queue == NULL) return -ENOMEM;
    queue->sim = sim;
    list_init(&queue->watches);
    list_init(&queue->pending);
    /* A runtime opens its queues first of all: so its host has power. */
    net_up(sim, sim_host_net(sim_host_running(sim)));
    *ret_queue = queue;
    return 0;
}

static void sim_queue_close(struct kernel_queue *queue)
{
    struct list *node;

    if (queue == NULL) return;
    while ((node = list_first(&queue->watches)) != NULL)
        watch_free(container_of(node, struct watch, in_queue));
    sim_free(queue->sim, queue);
}

static int sim_queue_watch(struct kernel_queue *queue, int fd, uint64_t tag)
{
    struct sim *sim = queue->sim;
    struct sim_file *file = sim_fd_file(sim, fd);
    struct watch *watch;

    assert(tag != 0);
    if (file == NULL) return -EBADF;
    if (!file->kind->watchable) return -EPERM;
    if (watch_find(queue, file, fd) != NULL) return -EEXIST;
    watch = sim_alloc(sim, sizeof *watch);
    if (watch == NULL) return -ENOMEM;
    watch->queue = queue;
    watch->file = file;
    watch->tag = tag;
    watch->fd = fd;
    list_init(&watch->pending);
    list_add_tail(&file->watches, &watch->in_file);
    list_add_tail(&queue->watches, &watch->in_queue);
    if (file->kind->ready(sim, file) != 0) watch_arises(watch);
    return 0;
}

static void sim_queue_unwatch(struct kernel_queue *queue, int fd)
{
    struct sim_file *file = sim_fd_file(queue->sim, fd);
    struct watch *watch = file != NULL ? watch_find(queue, file, fd) : NULL;

    if (watch != NULL) watch_free(watch);
}

static int queue_collect(struct kernel_queue *queue, struct kernel_event *events, int events_max)
{
    int count = 0;

    while (count < events_max) {
        struct list *node = list_pop(&queue->pending);
        struct watch *watch;
        unsigned ready;

        if (node == NULL) break;
        watch = container_of(node, struct watch, pending);
        ready = watch->file->kind->ready(queue->sim, watch->file);
        if (ready == 0) continue;
        events[count].tag = watch->tag;
        events[count].ready = ready;
        count++;
    }
    return count;
}

/* Nothing that the thread waits for itself comes at the wait's end: a worker without timers only
 * looks around then. */
static bool is_idle(void)
{
    const struct worker *worker = worker_self();
    return worker != NULL && worker_timers_count(worker) == 0;
}

static int sim_queue_wait(struct kernel_queue *queue, int64_t timeout_ns,
                          struct kernel_event *events, int events_max)
{
    struct sim *sim = queue->sim;
    int count;

    assert(timeout_ns >= 0);
    assert(events_max > 0);
    if (timeout_ns == 0 || queue->woken || !list_empty(&queue->pending)) {
        sim_thread_yield(sim);
        count = queue_collect(queue, events, events_max);
        if (timeout_ns == 0 || queue->woken || count > 0) {
            queue->woken = false;
            return count;
        }
    }
    {
        int64_t now_ns = sim_now_ns(sim);
        int64_t until_ns = timeout_ns < INT64_MAX - now_ns ? now_ns + timeout_ns : INT64_MAX;

        queue->waiter = sim_thread_running(sim);
        (void)sim_thread_sleep(sim, until_ns, is_idle(), "queue_wait");
        queue->waiter = NULL;
    }
    queue->woken = false;
    return queue_collect(queue, events, events_max);
}

static void sim_queue_wake(struct kernel_queue *queue)
{
    queue->woken = true;
    queue_rouse(queue);
}

static int sim_queue_fd(struct kernel_queue *queue)
{
    (void)queue;
    return -ENOSYS;
}

static int sim_queue_arm(struct kernel_queue *queue, int64_t at_ns)
{
    (void)queue;
    (void)at_ns;
    return -ENOSYS;
}

void queue_fill_table(struct kernel *table)
{
    table->queue_open = sim_queue_open;
    table->queue_close = sim_queue_close;
    table->queue_watch = sim_queue_watch;
    table->queue_unwatch = sim_queue_unwatch;
    table->queue_wait = sim_queue_wait;
    table->queue_wake = sim_queue_wake;
    table->queue_fd = sim_queue_fd;
    table->queue_arm = sim_queue_arm;
    table->queue_submit = NULL;
    table->queue_withdraw = NULL;
    table->queue_cancel_all = NULL;
}

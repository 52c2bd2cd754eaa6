/* ready.c - taking a ready task out of turn. */
#include "rt/ready.h"

/* To the front, those before it one place back. */
static void bring_forward(struct ready_queue *queue, unsigned index)
{
    unsigned head = atom_load(&queue->head);
    unsigned place = head + index;
    struct task *task = queue->tasks[place % READY_RING];

    for (; place != head; place--) {
        unsigned before = (place - 1) % READY_RING;
        ready_put(queue, place, queue->tasks[before], queue->stacks[before]);
    }
    ready_put(queue, place, task, task->context.sp);
}

static struct task *list_take(struct run_queue *list, unsigned index)
{
    struct task *before = list->head;
    struct task *task;

    if (index == 0) return run_queue_pop(list);
    while (--index > 0) before = before->run_next;
    task = before->run_next;
    before->run_next = task->run_next;
    if (list->tail == task) list->tail = before;
    return task;
}

struct task *ready_take(struct ready_queue *queue, unsigned index)
{
    if (index < READY_RING) {
        bring_forward(queue, index);
        return ready_pop(queue);
    }
    queue->count--;
    return list_take(&queue->list, index - READY_RING);
}

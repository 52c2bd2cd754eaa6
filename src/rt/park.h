/* park.h - parking without a call, for the waits that are measured in instructions.
 *
 * A function that switches keeps all registers on its stack, since the task that goes on
 * has its own in them. If the call that waits switches itself that is done once, and not
 * again by task_park; and what it returns with is at hand.
 *
 * Invariant: task_park_here does what task_park does. It has the common case only: one worker,
 * and the next task is ready; all else is left to task_park.
 */
#ifndef WEIR_RT_PARK_H
#define WEIR_RT_PARK_H

#include "rt/runtime.h"

/* On the stack that was switched to. Always inline, see sanitize.h. */
static inline __attribute__((always_inline)) void task_arrived(struct worker *worker,
                                                               struct task *self)
{
    sanitize_arrived(&self->sanitize, &worker->sanitize);
    sanitize_acquire(self);
    sanitize_acquire(&worker->events);
    sanitize_task_end(&worker->left_sanitize);
}

/* For SWITCH_RETURNS functions that do nothing else. `worker` is the task's. */
static inline __attribute__((always_inline)) int task_park_here(struct worker *worker,
                                                                struct task *self,
                                                                const struct wait_kind *kind,
                                                                void *object)
{
    struct ready_queue *queue = &worker->ready;
    unsigned place = atom_load(&queue->head);
    unsigned count = queue->count;
    struct task *next = queue->tasks[place % READY_RING];
    struct task *guess = self->run_next;
    struct task *guessed = guess;

    /* The compiler is not to know that it is the same. */
    __asm__("" : "+r"(guessed));
    self->wait.object = object; /* apart from the other two, or they go by vector registers */
    if (__builtin_expect(count - 1 >= READY_RING || place == worker->look_at || !worker->plain,
                         0) ||
        __builtin_expect(next->state != TASK_READY, 0)) {
        return task_park(self, kind, object);
    }
    /* Which task is next was written a moment ago, by way of a waiter, and before that the channel,
     * which the last task has looked up: a chain of loads, each of which waits for a store, and at
     * whose end the next task begins the next one. Mostly it is the task that was next the last
     * time. So that one is switched to, which the processor knows at once, and the
     * chain's end is only compared with it, which it does not wait for. */
    if (__builtin_expect(next == guess, 1)) {
        next = guessed;
    } else {
        self->run_next = next;
    }
    self->wait.kind = kind;
    self->wait.since_ns = worker->now_ns;
    task_step_state(self, TASK_RUNNING, TASK_PARKED);
    next->state = TASK_RUNNING; /* from TASK_READY, see above */
    if (count > READY_AHEAD) ready_fetch_ahead(queue, place, READY_LINES_DEEP);
    atom_store(&queue->head, place + 1);
    queue->count = count - 1;
    task_renew_budget(next);
    worker_set_current(worker, next);
    sanitize_release(worker);
    sanitize_switch(&self->sanitize, &next->sanitize, 0);
    switch_to(&self->context, &next->context);
    task_arrived(worker_self(), self);
    return self->wake_result;
}

#endif

/* ready_test.c - the queue of ready tasks: first in, first out, in the ring and beyond it.
 *
 * The queue is compared with the simplest one there is, an array that is shifted.
 */
#include "rt/ready.h"

#include <stdlib.h>

#include "rt/runtime.h"
#include "unit/rt/support.h"

enum { TASKS = 3 * READY_RING, STEPS = 20000 };

static struct ready_queue queue;
static struct task *tasks; /* TASKS */
static struct task *model[TASKS];
static unsigned model_count;
static unsigned next_task;

static void queue_open(unsigned head)
{
    queue = (struct ready_queue){.head = head};
    tasks = aligned_alloc(_Alignof(struct task), TASKS * sizeof *tasks);
    CHECK(tasks != NULL);
    memset(tasks, 0, TASKS * sizeof *tasks);
    model_count = 0;
    next_task = 0;
}

static void queue_close(void)
{
    free(tasks);
}

/* Each task stands in it once at most: there are more of them than places. */
static void push(void)
{
    struct task *task = &tasks[next_task++ % TASKS];
    ready_push(&queue, task);
    model[model_count++] = task;
}

static void take(unsigned index)
{
    struct task *expected = model[index];

    memmove(&model[index], &model[index + 1], (--model_count - index) * sizeof model[0]);
    CHECK(ready_take(&queue, index) == expected);
}

static void pop(void)
{
    struct task *task = ready_pop(&queue);

    if (model_count == 0) {
        CHECK(task == NULL);
        return;
    }
    CHECK(task == model[0]);
    memmove(&model[0], &model[1], --model_count * sizeof model[0]);
}

static void drain(void)
{
    CHECK_INT(queue.count, ==, model_count);
    while (model_count > 0) pop();
    CHECK_INT(queue.count, ==, 0);
    CHECK(queue.list.head == NULL);
    CHECK(queue.list.tail == NULL);
    pop();
}

TEST(ready_tasks_beyond_the_ring_keep_their_order)
{
    /* The counts around which something changes, also where `head` wraps round. */
    static const unsigned counts[] = {1, 2, READY_RING - 1, READY_RING, READY_RING + 1, TASKS - 1};

    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        queue_open(i % 2 ? UINT32_MAX - 10 : 0);
        for (unsigned n = 0; n < counts[i]; n++) push();
        drain();
        /* And again with pushes while it is full: they go behind the list. */
        for (unsigned n = 0; n < counts[i]; n++) push();
        for (unsigned n = 0; n < READY_RING; n++) {
            pop();
            push();
        }
        drain();
        queue_close();
    }
}

TEST(ready_tasks_can_be_taken_from_any_place)
{
    static const unsigned places[] = {0,
                                      1,
                                      2,
                                      500,
                                      READY_RING - 1,
                                      READY_RING,
                                      READY_RING + 1,
                                      READY_RING + 77,
                                      2 * READY_RING - 1};

    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        queue_open(UINT32_MAX - 700);
        for (unsigned n = 0; n < 2 * READY_RING; n++) push();
        take(places[i]);
        push(); /* behind the last one, also if that was taken */
        take(places[i]);
        take(model_count - 1);
        push();
        drain();
        queue_close();
    }
}

TEST(ready_queue_does_what_a_plain_array_does)
{
    uint32_t random = 20261115;

    queue_open(UINT32_MAX - 5000);
    for (int i = 0; i < STEPS; i++) {
        unsigned what;
        random = random * 1664525u + 1013904223u;
        what = random >> 28;
        /* In waves, so that it is often empty and often beyond the ring. */
        if (what < ((i / 2500) % 2 ? 3u : 11u) && model_count < TASKS - 1) {
            push();
        } else if (what == 15 && model_count > 0) {
            take((random >> 8) % model_count);
        } else {
            pop();
        }
        CHECK_INT(queue.count, ==, model_count);
    }
    drain();
    queue_close();
}

/* ---- In a runtime ---- */

enum { CROWD = READY_RING + 300, ROUNDS = 3 };

static struct {
    ATOM(int) order[CROWD * (ROUNDS + 1)];
    ATOM(int) count;
    ATOM(bool) complete; /* all are there: before, a spawner that has made many gives way */
    ATOM(int) parked;
    ATOM(int) cancelled;
} crowd;

/* Every third one ends after its first round, among neighbours that are queued. */
static int walk_rounds(void *arg)
{
    int number = *(int *)arg;

    while (!atom_load(&crowd.complete)) CHECK_OK(weir_yield());
    for (int i = 0; i < (number % 3 ? ROUNDS : 1); i++) {
        atom_store(&crowd.order[atom_add(&crowd.count, 1)], number);
        CHECK_OK(weir_yield());
    }
    return 0;
}

static int crowd_of_yielders(void *arg)
{
    int at = 0;

    (void)arg;
    atom_store(&crowd.count, 0);
    atom_store(&crowd.complete, false);
    WEIR_SCOPE(scope, NULL, .name = "crowd", .on_failure = WEIR_FAIL_FAST, .max_tasks = CROWD,
               .overflow = WEIR_REJECT) {
        for (int i = 0; i < CROWD; i++) CHECK_OK(weir_spawn(scope, walk_rounds, &i, sizeof i));
        atom_store(&crowd.complete, true);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < CROWD; i++) {
            if (round > 0 && i % 3 == 0) continue;
            CHECK_INT(atom_load(&crowd.order[at]), ==, i);
            at++;
        }
    }
    CHECK_INT(atom_load(&crowd.count), ==, at);
    return 0;
}

TEST(more_yielding_tasks_than_the_ring_holds_take_turns_in_order)
{
    CHECK_OK(weir_run(&(weir_config){.workers = 1}, crowd_of_yielders, NULL));
}

static int park(void *arg)
{
    int r = 0;

    (void)arg;
    WEIR_NO_DEADLINE("waits to be cancelled") {
        (void)atom_add(&crowd.parked, 1);
        r = weir_sleep(WEIR_FOREVER);
    }
    if (r == WEIR_ECANCELED) (void)atom_add(&crowd.cancelled, 1);
    return r;
}

/* Wake-ups from another worker, more of them at once than the ring holds. */
static int crowd_elsewhere(void *arg)
{
    weir_scope *scope;
    int elsewhere = 1 - weir_worker_index();

    (void)arg;
    atom_store(&crowd.parked, 0);
    atom_store(&crowd.cancelled, 0);
    CHECK_OK(weir_scope_open(&(weir_scope_spec){.name = "crowd",
                                                .on_failure = WEIR_FAIL_FAST,
                                                .max_tasks = CROWD,
                                                .overflow = WEIR_REJECT},
                             &scope));
    for (int i = 0; i < CROWD; i++) {
        CHECK_OK(weir_task_spawn(
            scope, &(weir_task_spec){.fn = park, .place = WEIR_PLACE_WORKER, .worker = elsewhere},
            NULL));
    }
    while (atom_load(&crowd.parked) < CROWD) CHECK_OK(weir_yield());
    weir_scope_cancel(scope, 0, "all at once");
    CHECK_OK(weir_scope_close(scope));
    CHECK_INT(atom_load(&crowd.cancelled), ==, CROWD);
    return 0;
}

TEST(more_tasks_than_the_ring_holds_are_woken_from_another_worker)
{
    CHECK_OK(weir_run(&(weir_config){.workers = 2}, crowd_elsewhere, NULL));
}

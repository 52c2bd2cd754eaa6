/* pipeline.h - what a pipeline is inside.
 *
 * An item inside is a passage: in the queue of a stage, or in the hands of one of the stage's
 * tasks. There are as many as all queues and all tasks can hold, made when it is opened. The
 * results that wait to be received are the queue of one more stage behind the last, which
 * has no tasks: its items are taken by weir_pipeline_recv. An entry is what a sender has on
 * its stack: a program's, or a stage's task that hands its passage on.
 *
 *     of an entry:  WAITING ──room──▶ INSIDE (a call's) ──its result is there──▶ DONE
 *                      │ ──room, nobody waits for more──────────────────────────▶
 *                      └── cancelled: nothing moved
 *     of a pipeline:  OPEN ──stop──▶ CLOSED ──the last task has left──▶ ENDED
 *
 * A stage's tasks leave when its queue is empty and nobody is left to fill it: of the first
 * stage, when the pipeline is closed; of another, when the tasks before it have left.
 *
 * Invariants, under the lock: a passage is in one queue, or free, or with a task; who waits
 * for room does so only while the queue is full; a passage's caller is one that waits for it;
 * while a stage has items and tasks that wait for some, one of its tasks is on its way to them
 * (`called`, or between two items): it takes one, and calls the next if there is more.
 * Locks: one for the whole pipeline, held for a few lines; hooks, functions and policies are
 * called without it.
 * Time: the clock is read once for each stage of an item, when its function has returned. That
 * is the end of its run, the begin of its wait in the next queue, and the begin of the next
 * item's run in this task; of those who have waited in between it is read anew.
 */
#ifndef WEIR_FLOW_PIPELINE_H
#define WEIR_FLOW_PIPELINE_H

#include <weir/pipeline.h>
#include <weir/task.h>

#include "flow/meters.h"
#include "flow/stage_figures.h"
#include "flow/wait.h"

enum entry_state { ENTRY_WAITING, ENTRY_INSIDE, ENTRY_DONE };
enum pipeline_state { PIPELINE_OPEN, PIPELINE_CLOSED, PIPELINE_ENDED };

struct entry;
struct pipeline;

struct passage {
    struct list node;
    struct entry *caller; /* who waits for it, or NULL */
    bool is_call;
    bool queued;  /* in a queue; else with a task */
    bool entered; /* `stage`, which has not counted it as done yet */
    unsigned stage;
    uint32_t skipped;
    int skip_error;
    int64_t accepted_ns, deadline_ns, queued_ns;
    struct trace_node *trace; /* in which it was sent; its own */
    unsigned char *item;      /* a task swaps it for its own when it has worked on a copy */
};

struct entry {
    struct waiter waiter; /* in a stage's `senders` while WAITING */
    enum entry_state state;
    bool is_call;
    struct passage *passage; /* of a stage's task; of a call once it is inside */
    void *item;              /* of a program: comes from here, and goes back */
    weir_outcome *outcome;   /* of a call */
    int64_t accepted_ns, deadline_ns;
    struct trace_node *trace; /* for its passage, of a program's */
};

struct stage {
    struct pipeline *pipeline;
    unsigned index;
    char name[FLOW_NAME_BYTES];
    weir_stage_spec spec;
    struct list queue;
    struct list senders; /* wait for room in it */
    struct list servers; /* its tasks, or who receives, wait for an item */
    size_t depth, depth_max, queue_max;
    int concurrency, running, running_max;
    bool called; /* one of its tasks was woken for an item and has not looked yet */
    unsigned tasks_left;
    struct stage_figures figures;
    struct stage_meter meter;
};

struct pipeline {
    struct flow_object object;
    void *handle; /* NULL once it was given up */
    weir_pipeline_spec spec;
    enum pipeline_state state;
    bool aborts;    /* it was told to drop what it has */
    bool dismissed; /* nobody is left to receive results for which there is no room */
    bool given_up;  /* weir_pipeline_close: free it when its last task has left */
    bool drops;     /* its first stage does: then a sender needs a place for that */
    int result;
    unsigned stage_count;
    struct stage *stages; /* stage_count, and the results */
    unsigned task_count;
    unsigned tasks_left;
    weir_task *tasks;       /* those that have begun */
    unsigned char *scratch; /* for each task, scratch_bytes */
    size_t scratch_bytes;
    void *memory;
    struct list free_passages;
    size_t inside;
    struct list finishers; /* wait for its end */
    struct pipeline_figures figures;
    struct pipeline_meter meter;
};

/* An item for the hook, copied. */
struct lost_item {
    unsigned char item[WEIR_ITEM_BYTES_MAX] __attribute__((aligned(16)));
    weir_lost lost;
};

/* A task's own copy of an item; all that a pool gets, so that nothing else is touched. */
struct pool_call {
    weir_stage_fn fn;
    void *keep_arg;
    unsigned char item[] __attribute__((aligned(16)));
};

/* What a task of a stage is told. */
struct stage_task {
    struct pipeline *pipeline;
    unsigned stage;
    unsigned number; /* of all tasks */
};

/* ---- stage.c: queues ---- */

enum { ENTER_MUST_WAIT = 1, ENTER_LOST = 2 };
/* What a task that waits for an item is woken with, if it was for one. */
enum { SERVER_CALLED = 1 };

/* Put an entry into a stage. The lock is held. 0; ENTER_MUST_WAIT: it is linked, park; an
 * error; ENTER_LOST: it is done, and `lost` (not NULL if the stage drops) is for the hook. */
int stage_enter(struct stage *stage, struct entry *entry, struct lost_item *lost, int64_t now_ns);
/* What comes now need not wait for others. The lock is held. */
static inline bool stage_has_room(const struct stage *stage)
{
    return stage->depth < stage->queue_max && list_empty(&stage->senders);
}
/* There is room. The lock is held. */
void stage_put(struct stage *stage, struct passage *passage, int64_t now_ns);
/* Items of those who wait go where there is room now. The lock is held. */
void stage_refill(struct stage *stage, int64_t now_ns);
/* Take the oldest out of the queue, or NULL. The lock is held. */
struct passage *stage_pop(struct stage *stage);
/* Wake one of its tasks if there is work and none is on its way to it. The lock is held. */
void stage_wake(struct stage *stage);
/* Nobody puts anything in any more. The lock is held. */
bool stage_is_dry(const struct stage *stage);
/* Interrupts a sender; for struct wait_kind, whose object is the entry. */
bool entry_abort(struct task *task, void *object);
void entry_describe(const void *object, char *text, size_t bytes);
void entry_facts(const void *object, struct waiting *ret_waiting);

/* The passage is free again. The lock is held. */
void passage_free(struct pipeline *pipeline, struct passage *passage);
/* It does not come out: its caller gets it back, or (true) it is for the hook, copied. */
bool passage_lose(struct pipeline *pipeline, struct passage *passage, int error,
                  struct lost_item *lost);
/* It has come out, to its caller, or to `item` of one who receives, or nowhere. */
void passage_finish(struct pipeline *pipeline, struct passage *passage, int64_t now_ns, void *item,
                    weir_outcome *ret_outcome);
/* Not under the lock. */
void pipeline_call_hook(struct pipeline *pipeline, struct lost_item *lost);

/* ---- stage_task.c ---- */

int stage_main(void *arg);

/* ---- pipeline_life.c ---- */

void pipeline_stop(struct pipeline *pipeline, enum weir_on_close how);
/* The last task has left. True: it was given up, and the caller frees it. */
bool pipeline_end(struct pipeline *pipeline);

#endif

/* stage.c - the queue of a stage: who gets in, who waits, what is lost. */
#include <assert.h>
#include <stdio.h>
#include <weir/runtime.h>

#include "base/planted.h"
#include "flow/pipeline.h"

/* ---- Passages. The lock is held. ---- */

void passage_free(struct pipeline *pipeline, struct passage *passage)
{
    passage->caller = NULL;
    if (__builtin_expect(passage->trace != NULL, 0)) {
        trace_unref(passage->trace);
        passage->trace = NULL;
    }
    list_add_head(&pipeline->free_passages, &passage->node);
    pipeline->inside--;
}

static struct passage *passage_new(struct pipeline *pipeline, struct entry *entry)
{
    struct list *node = list_pop(&pipeline->free_passages);
    struct passage *passage;

    assert(node); /* there is room in the queue, so there is a passage for it */
    passage = container_of(node, struct passage, node);
    flow_copy(passage->item, entry->item, pipeline->spec.item_bytes);
    passage->is_call = entry->is_call;
    passage->caller = entry->is_call ? entry : NULL;
    passage->skipped = 0;
    passage->skip_error = 0;
    passage->accepted_ns = entry->accepted_ns;
    passage->deadline_ns = entry->deadline_ns;
    passage->trace = entry->trace;
    entry->trace = NULL;
    pipeline->inside++;
    pipeline->figures.accepted++;
    return passage;
}

static void fill_outcome(const struct passage *passage, int64_t now_ns, weir_outcome *ret_outcome)
{
    if (!ret_outcome) return;
    *ret_outcome = (weir_outcome){
        .skipped = passage->skipped,
        .skip_error = passage->skip_error,
        .failed_stage = passage->stage,
        .latency_ns = now_ns - passage->accepted_ns,
    };
}

/* The caller gets its item, as it is now, and goes on. */
static void give_back(struct pipeline *pipeline, struct passage *passage, int64_t now_ns,
                      int result)
{
    struct entry *caller = passage->caller;

    flow_copy(caller->item, passage->item, pipeline->spec.item_bytes);
    fill_outcome(passage, now_ns, caller->outcome);
    caller->state = ENTRY_DONE;
    waiter_wake(&caller->waiter, result);
}

static void describe_loss(struct stage *stage, int error, weir_lost *ret_lost)
{
    *ret_lost = (weir_lost){.stage = stage->name, .stage_index = stage->index, .error = error};
}

bool passage_lose(struct pipeline *pipeline, struct passage *passage, int error,
                  struct lost_item *lost)
{
    struct stage *stage = &pipeline->stages[passage->stage];
    bool for_hook = !passage->caller;

    pipeline->figures.lost++;
    meter_count(pipeline->meter.metered.meter, PIPELINE_FAILED, 1);
    if (error == WEIR_ETIMEDOUT) meter_count(pipeline->meter.metered.meter, PIPELINE_TIMEOUTS, 1);
    if (passage->entered) {
        stage->figures.failed++;
        meter_count(stage->meter.metered.meter, STAGE_FAILED, 1);
    }
    if (for_hook) {
        flow_copy(lost->item, passage->item, pipeline->spec.item_bytes);
        describe_loss(stage, error, &lost->lost);
    } else {
        give_back(pipeline, passage, weir_now_ns(), error);
    }
    passage_free(pipeline, passage);
    return for_hook;
}

/* Mostly on the worker on which it was opened, whose shard is known. */
static void observe_latency(struct pipeline *pipeline, int64_t ns)
{
    struct metered *metered = &pipeline->meter.metered;

    if (metered->shard && worker_self() == pipeline->object.belonging.worker) {
        meter_observe_here(metered->meter, metered->shard, PIPELINE_LATENCY, ns);
    } else {
        meter_observe(metered->meter, PIPELINE_LATENCY, ns);
    }
}

void passage_finish(struct pipeline *pipeline, struct passage *passage, int64_t now_ns, void *item,
                    weir_outcome *ret_outcome)
{
    bool partial = passage->skipped != 0;
    int64_t ns = now_ns - passage->accepted_ns;

    pipeline_figures_finished(&pipeline->figures, ns, partial);
    observe_latency(pipeline, ns);
    if (passage->caller) {
        give_back(pipeline, passage, now_ns, partial ? WEIR_PARTIAL : 0);
    } else if (item) {
        flow_copy(item, passage->item, pipeline->spec.item_bytes);
        fill_outcome(passage, now_ns, ret_outcome);
    }
    passage_free(pipeline, passage);
}

void pipeline_call_hook(struct pipeline *pipeline, struct lost_item *lost)
{
    sanitize_acquire(pipeline);
    pipeline->spec.on_lost(lost->item, &lost->lost, pipeline->spec.keep_arg);
}

/* ---- The queue. The lock is held. ---- */

void stage_wake(struct stage *stage)
{
    struct waiter *server;

    if (stage->called || stage->depth == 0 || stage->running >= stage->concurrency) return;
    server = waiter_pop(&stage->servers);
    if (!server) return;
    /* Who receives takes one result and calls nobody. */
    stage->called = stage->index < stage->pipeline->stage_count;
    waiter_wake(server, SERVER_CALLED);
}

bool stage_is_dry(const struct stage *stage)
{
    const struct pipeline *pipeline = stage->pipeline;
    if (stage->index == 0) return pipeline->state != PIPELINE_OPEN;
    return pipeline->stages[stage->index - 1].tasks_left == 0;
}

struct passage *stage_pop(struct stage *stage)
{
    struct list *node = list_pop(&stage->queue);
    struct passage *passage;

    if (!node) return NULL;
    stage->depth--;
    passage = container_of(node, struct passage, node);
    passage->queued = false;
    return passage;
}

void stage_put(struct stage *stage, struct passage *passage, int64_t now_ns)
{
    passage->stage = stage->index;
    passage->queued = true;
    passage->entered = true;
    passage->queued_ns = now_ns;
    list_add_tail(&stage->queue, &passage->node);
    if (++stage->depth > stage->depth_max) stage->depth_max = stage->depth;
    stage->figures.entered++;
    stage_wake(stage);
}

static void put(struct stage *stage, struct entry *entry, int64_t now_ns)
{
    if (!entry->passage) entry->passage = passage_new(stage->pipeline, entry);
    entry->state = entry->is_call ? ENTRY_INSIDE : ENTRY_DONE;
    stage_put(stage, entry->passage, now_ns);
}

void stage_refill(struct stage *stage, int64_t now_ns)
{
    while (stage->depth < stage->queue_max && !list_empty(&stage->senders)) {
        struct waiter *waiter = waiter_pop(&stage->senders);
        struct entry *entry;
        if (!waiter) return;
        entry = container_of(waiter, struct entry, waiter);
        put(stage, entry, now_ns);
        if (!entry->is_call) waiter_wake(waiter, 0);
    }
}

/* What comes now has no room. A stage's task loses its passage itself. */
static int drop_newest(struct stage *stage, struct entry *entry, struct lost_item *lost)
{
    struct pipeline *pipeline = stage->pipeline;

    if (entry->is_call || entry->passage) return WEIR_EOVERLOAD;
    pipeline->figures.accepted++;
    pipeline->figures.lost++;
    meter_count(pipeline->meter.metered.meter, PIPELINE_FAILED, 1);
    flow_copy(lost->item, entry->item, pipeline->spec.item_bytes);
    describe_loss(stage, WEIR_EOVERLOAD, &lost->lost);
    return ENTER_LOST;
}

static int overflow(struct stage *stage, struct entry *entry, struct lost_item *lost,
                    int64_t now_ns)
{
    bool is_results = stage->index == stage->pipeline->stage_count;

    if (is_results && stage->pipeline->dismissed) return WEIR_ECLOSED;
    if (stage->spec.overflow == WEIR_WAIT) {
        entry->state = ENTRY_WAITING;
        list_add_tail(&stage->senders, &entry->waiter.node);
        return ENTER_MUST_WAIT;
    }
    stage->figures.rejected++;
    stage_item_rejected(&stage->meter, STAGE_REJECTED_FULL);
    if (stage->spec.overflow == WEIR_DROP_NEWEST) return drop_newest(stage, entry, lost);
    if (stage->spec.overflow == WEIR_DROP_OLDEST) {
        struct passage *oldest = stage_pop(stage);
        bool for_hook;
        assert(oldest);
        for_hook = passage_lose(stage->pipeline, oldest, WEIR_EOVERLOAD, lost);
        put(stage, entry, now_ns);
        return for_hook ? ENTER_LOST : 0;
    }
    return WEIR_EOVERLOAD;
}

int stage_enter(struct stage *stage, struct entry *entry, struct lost_item *lost, int64_t now_ns)
{
    if (!stage_has_room(stage)) return overflow(stage, entry, lost, now_ns);
    put(stage, entry, now_ns);
    return 0;
}

/* ---- A sender is interrupted ---- */

/* Of a call whose item is inside: nothing has happened to it in the first queue. Elsewhere
 * it is left to the stage's task, which finds that nobody waits for it. */
static void leave_inside(struct pipeline *pipeline, struct passage *passage)
{
    struct stage *first = &pipeline->stages[0];

    if (!passage->queued || passage->stage != 0) {
        if (!PLANTED(PIPELINE_ANSWERS_WHO_LEFT)) passage->caller = NULL;
        return;
    }
    list_remove(&passage->node);
    first->depth--;
    first->figures.removed++;
    pipeline->figures.removed++;
    passage_free(pipeline, passage);
    stage_refill(first, weir_now_ns());
}

bool entry_abort(struct task *task, void *object)
{
    struct entry *entry = object;
    struct pipeline *pipeline = container_of(entry->waiter.object, struct pipeline, object);
    bool leaves = true;

    (void)task;
    flow_lock(&pipeline->object); /* type-stable: there is a lock also if it has ended */
    switch (entry->state) {
    case ENTRY_WAITING: list_remove(&entry->waiter.node); break;
    case ENTRY_INSIDE: leave_inside(pipeline, entry->passage); break;
    case ENTRY_DONE: leaves = false; break;
    }
    flow_unlock(&pipeline->object);
    return leaves;
}

void entry_facts(const void *object, struct waiting *ret_waiting)
{
    const struct entry *entry = object;
    waiter_facts_of(entry->waiter.object, ret_waiting);
    if (entry->state != ENTRY_WAITING) ret_waiting->what = WAIT_FOR_ANSWER;
}

void entry_describe(const void *object, char *text, size_t bytes)
{
    const struct entry *entry = object;
    (void)snprintf(text, bytes, "'%s'%s", entry->waiter.object->name,
                   entry->state == ENTRY_WAITING ? ", for room" : "");
}

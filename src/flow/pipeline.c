/* pipeline.c - calling, sending, receiving; changing and looking. */
#include "flow/pipeline.h"

#include <string.h>
#include <weir/runtime.h>

#include "base/planted.h"
#include "watch/trace.h"

static struct pipeline *look_up(const weir_pipeline *handle, const char *call)
{
    return flow_look_up(handle, HANDLE_PIPELINE, "pipeline", call);
}

static const struct wait_kind wait_pipeline = {
    .name = "pipeline",
    .abort = entry_abort,
    .describe = entry_describe,
    .what = WAIT_FOR_ROOM,
    .ends = ENDS_WITH_TASKS,
    .facts = entry_facts,
};

/* ---- Putting in ---- */

static bool is_open(const weir_pipeline *handle, const struct pipeline *pipeline)
{
    return flow_names(handle, HANDLE_PIPELINE, pipeline);
}

static int enter(const weir_pipeline *handle, struct pipeline *pipeline, struct entry *entry,
                 struct lost_item *lost)
{
    int r = WEIR_ECLOSED;

    flow_lock(&pipeline->object);
    if (is_open(handle, pipeline) && pipeline->state == PIPELINE_OPEN) {
        r = stage_enter(&pipeline->stages[0], entry, lost, entry->accepted_ns);
    }
    flow_unlock(&pipeline->object);
    return r;
}

/* A first stage that drops needs a place for what it drops. */
static __attribute__((noinline)) int enter_dropping(const weir_pipeline *handle,
                                                    struct pipeline *pipeline, struct entry *entry)
{
    struct lost_item lost;
    int r = enter(handle, pipeline, entry, &lost);

    if (r != ENTER_LOST) return r;
    pipeline_call_hook(pipeline, &lost);
    return 0;
}

/* 0, ENTER_MUST_WAIT, or an error. The caller has called task_enter. */
static int submit(const weir_pipeline *handle, struct pipeline *pipeline, struct entry *entry)
{
    entry->accepted_ns = weir_now_ns();
    entry->deadline_ns = time_after_ms(entry->accepted_ns, pipeline->spec.budget_ms);
    /* What nobody waits for any more is not worked on. */
    if (entry->is_call && weir_deadline_ns() < entry->deadline_ns) {
        entry->deadline_ns = weir_deadline_ns();
    }
    sanitize_release(pipeline);
    if (pipeline->drops) return enter_dropping(handle, pipeline, entry);
    return enter(handle, pipeline, entry, NULL);
}

static __attribute__((noinline)) int call(weir_pipeline *handle, struct pipeline *pipeline,
                                          struct task *self, void *item, weir_outcome *ret_outcome)
{
    struct entry entry = {.waiter = {.task = self, .object = &pipeline->object},
                          .is_call = true,
                          .item = item,
                          .outcome = ret_outcome,
                          .trace = trace_ref(trace_of(self))};
    int r;

    r = task_enter(self, ENTER_PLAIN);
    if (r == 0 && !is_open(handle, pipeline)) r = WEIR_ECLOSED; /* it has yielded */
    if (r == 0) {
        WEIR_DEADLINE(pipeline->spec.budget_ms) {
            r = submit(handle, pipeline, &entry);
            if (r >= 0) r = task_park(self, &wait_pipeline, &entry);
        }
    }
    trace_unref(entry.trace); /* unless its passage has it */
    /* Inside our block the deadline of the caller's own looks like a cancellation. */
    if (r == WEIR_ECANCELED && task_interruption(self, false) < 0) {
        r = task_interruption(self, false);
    }
    return r;
}

/* A span of its caller, from submitting to the result. */
static __attribute__((noinline)) int call_traced(weir_pipeline *handle, struct pipeline *pipeline,
                                                 struct task *self, void *item,
                                                 weir_outcome *ret_outcome)
{
    weir_span span;
    int r;

    span_begin(&span, "pipeline", pipeline->object.name, WEIR_SPAN_INTERNAL);
    r = call(handle, pipeline, self, item, ret_outcome);
    if (r == WEIR_PARTIAL) weir_span_bool("weir.partial", true);
    if (r < 0) weir_span_result(r);
    weir_span_leave(&span);
    return r;
}

int weir_pipeline_call(weir_pipeline *handle, void *item, weir_outcome *ret_outcome)
{
    struct pipeline *pipeline = look_up(handle, "weir_pipeline_call");
    struct task *self = task_self();
    int r;

    if (!self) return refuse_no_task("weir_pipeline_call");
    if (trace_is_on()) {
        r = call_traced(handle, pipeline, self, item, ret_outcome);
    } else {
        r = call(handle, pipeline, self, item, ret_outcome);
    }
    /* Not a tail call: a task that is parked in here is shown to be in weir_pipeline_call. */
    __asm__ volatile("");
    return r;
}

/* The context that goes with an item: the sender's, or the begin of a trace. */
static struct trace_node *item_trace(const struct task *self)
{
    struct trace_node *node = trace_of(self);

    if (node || !trace_is_on()) return trace_ref(node);
    return trace_begin();
}

int weir_pipeline_send(weir_pipeline *handle, const void *item)
{
    struct pipeline *pipeline = look_up(handle, "weir_pipeline_send");
    struct task *self = task_self();
    struct entry entry = {.waiter = {.task = self, .object = &pipeline->object},
                          .item = (void *)(uintptr_t)item};
    int r;

    if (!self) return refuse_no_task("weir_pipeline_send");
    r = task_enter(self, ENTER_PLAIN);
    if (r < 0) return r;
    entry.trace = item_trace(self);
    r = submit(handle, pipeline, &entry);
    if (r == ENTER_MUST_WAIT) r = task_park(self, &wait_pipeline, &entry);
    trace_unref(entry.trace); /* unless its passage has it */
    return r;
}

/* ---- Receiving ---- */

static const struct wait_kind wait_result = {
    .name = "result",
    .abort = waiter_abort,
    .describe = waiter_describe,
    .what = WAIT_FOR_ITEM,
    .ends = ENDS_WITH_TASKS,
    .facts = waiter_facts,
};

/* 1: there is none now. The lock is held. */
static int take_result(struct pipeline *pipeline, int64_t now_ns, void *ret_item,
                       weir_outcome *ret_outcome)
{
    struct stage *results = &pipeline->stages[pipeline->stage_count];
    struct passage *passage = stage_pop(results);
    bool partial;

    if (!passage) return stage_is_dry(results) ? WEIR_ECLOSED : 1;
    partial = passage->skipped != 0;
    results->figures.finished++;
    passage_finish(pipeline, passage, now_ns, ret_item, ret_outcome);
    stage_refill(results, now_ns);
    return partial ? -1 : 0;
}

/* One that was woken for a result does not take it: another that waits may. */
static void pass_on(const weir_pipeline *handle, struct pipeline *pipeline)
{
    flow_lock(&pipeline->object);
    if (is_open(handle, pipeline)) stage_wake(&pipeline->stages[pipeline->stage_count]);
    flow_unlock(&pipeline->object);
}

int weir_pipeline_recv(weir_pipeline *handle, void *ret_item, weir_outcome *ret_outcome)
{
    struct pipeline *pipeline = look_up(handle, "weir_pipeline_recv");
    struct task *self = task_self();
    bool woken = false;

    if (!self) return refuse_no_task("weir_pipeline_recv");
    if (pipeline->spec.results_max == 0) {
        return refuse("pipeline '%s': results_max is not set, so there is nothing to receive",
                      pipeline->object.name);
    }
    for (;;) {
        struct waiter waiter = {.task = self, .object = &pipeline->object};
        int r = task_enter(self, ENTER_PLAIN);
        int64_t now_ns;

        if (r < 0) {
            if (woken && !PLANTED(RESULT_NOT_PASSED_ON)) pass_on(handle, pipeline);
            return r;
        }
        now_ns = weir_now_ns();
        flow_lock(&pipeline->object);
        if (!is_open(handle, pipeline)) {
            flow_unlock(&pipeline->object);
            return WEIR_ECLOSED;
        }
        r = take_result(pipeline, now_ns, ret_item, ret_outcome);
        if (r != 1) {
            flow_unlock(&pipeline->object);
            sanitize_acquire(pipeline);
            return r == -1 ? WEIR_PARTIAL : r;
        }
        list_add_tail(&pipeline->stages[pipeline->stage_count].servers, &waiter.node);
        flow_unlock(&pipeline->object);
        r = waiter_park(self, &waiter, &wait_result);
        if (r < 0) return r;
        woken = true;
    }
}

/* ---- Stopping ---- */

void weir_pipeline_stop(weir_pipeline *handle, enum weir_on_close how)
{
    struct pipeline *pipeline = look_up(handle, "weir_pipeline_stop");
    struct worker *worker = worker_self();

    if (!worker) misuse("weir_pipeline_stop: called on a thread that is not the runtime's");
    if (how != WEIR_DRAIN && how != WEIR_DISCARD) {
        misuse("weir_pipeline_stop: pipeline '%s': neither WEIR_DRAIN nor WEIR_DISCARD",
               pipeline->object.name);
    }
    pipeline_stop(pipeline, how);
    worker_touched(worker);
}

static const struct wait_kind wait_end = {
    .name = "pipeline's end",
    .abort = waiter_abort,
    .describe = waiter_describe,
    .what = WAIT_FOR_END,
    .ends = ENDS_WITH_TASKS,
    .facts = waiter_facts,
};

int weir_pipeline_wait(weir_pipeline *handle)
{
    struct pipeline *pipeline = look_up(handle, "weir_pipeline_wait");
    struct task *self = task_self();
    int r, result = 0; /* written by who wakes us: the pipeline may be gone then */
    struct waiter waiter = {.task = self, .object = &pipeline->object, .item = &result};

    if (!self) return refuse_no_task("weir_pipeline_wait");
    r = task_enter(self, ENTER_PLAIN);
    if (r < 0) return r;
    flow_lock(&pipeline->object);
    if (!is_open(handle, pipeline)) {
        result = WEIR_ECLOSED;
        flow_unlock(&pipeline->object);
    } else if (pipeline->state != PIPELINE_ENDED) {
        list_add_tail(&pipeline->finishers, &waiter.node);
        flow_unlock(&pipeline->object);
        r = waiter_park(self, &waiter, &wait_end);
        if (r < 0) return r;
    } else {
        result = pipeline->result;
        flow_unlock(&pipeline->object);
    }
    sanitize_acquire(pipeline);
    return result;
}

/* ---- Changing and looking ---- */

int weir_pipeline_resize(weir_pipeline *handle, unsigned stage_index, int concurrency,
                         size_t queue_max)
{
    struct pipeline *pipeline = look_up(handle, "weir_pipeline_resize");
    const char *name = pipeline->object.name;
    struct stage *stage;

    if (!worker_self()) return refuse_no_task("weir_pipeline_resize");
    if (stage_index >= pipeline->stage_count) {
        return refuse("pipeline '%s': there is no stage %u", name, stage_index);
    }
    stage = &pipeline->stages[stage_index];
    if (concurrency < 0 || concurrency > stage->spec.concurrency_max) {
        return refuse("pipeline '%s': concurrency %d of stage '%s' is not within 1 and "
                      "concurrency_max, %d",
                      name, concurrency, stage->name, stage->spec.concurrency_max);
    }
    if (queue_max > stage->spec.queue_limit) {
        return refuse("pipeline '%s': queue_max %zu of stage '%s' is not within 1 and "
                      "queue_limit, %zu",
                      name, queue_max, stage->name, stage->spec.queue_limit);
    }
    flow_lock(&pipeline->object);
    if (concurrency > 0) stage->concurrency = concurrency;
    if (queue_max > 0) stage->queue_max = queue_max;
    stage_refill(stage, weir_now_ns());
    stage_wake(stage);
    flow_unlock(&pipeline->object);
    return 0;
}

int weir_pipeline_stage_figures(weir_pipeline *handle, unsigned stage_index,
                                weir_stage_figures *ret_figures)
{
    struct pipeline *pipeline = look_up(handle, "weir_pipeline_stage_figures");
    const struct stage *stage;

    flow_check_worker("weir_pipeline_stage_figures");
    if (stage_index >= pipeline->stage_count) {
        return refuse("pipeline '%s': there is no stage %u", pipeline->object.name, stage_index);
    }
    stage = &pipeline->stages[stage_index];
    flow_lock(&pipeline->object);
    *ret_figures = (weir_stage_figures){
        .depth = stage->depth,
        .depth_max = stage->depth_max,
        .queue_max = stage->queue_max,
        .running = stage->running,
        .running_max = stage->running_max,
        .concurrency = stage->concurrency,
        .entered = stage->figures.entered,
        .finished = stage->figures.finished,
        .skipped = stage->figures.skipped,
        .failed = stage->figures.failed,
        .removed = stage->figures.removed,
        .rejected = stage->figures.rejected,
        .timeouts = stage->figures.timeouts,
        .waited = stage->figures.waited,
        .ran = stage->figures.ran,
        .latency_ms = stage->spec.latency_ms,
    };
    flow_unlock(&pipeline->object);
    return 0;
}

void weir_pipeline_figures_of(weir_pipeline *handle, weir_pipeline_figures *ret_figures)
{
    struct pipeline *pipeline = look_up(handle, "weir_pipeline_figures_of");

    flow_check_worker("weir_pipeline_figures_of");
    flow_lock(&pipeline->object);
    *ret_figures = (weir_pipeline_figures){
        .inside = pipeline->inside,
        .accepted = pipeline->figures.accepted,
        .finished = pipeline->figures.finished,
        .partial = pipeline->figures.partial,
        .lost = pipeline->figures.lost,
        .removed = pipeline->figures.removed,
        .end_to_end = pipeline->figures.end_to_end,
        .latency_ms = pipeline->spec.latency_ms,
        .ended = pipeline->state == PIPELINE_ENDED,
    };
    flow_unlock(&pipeline->object);
}

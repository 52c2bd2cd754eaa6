/* stage_task.c - a task of a stage: takes items, works on them, hands them on. */
#include <assert.h>
#include <weir/runtime.h>

#include "flow/pipeline.h"

/* One item in the hands of the task. */
struct work {
    struct stage *stage;
    struct passage *passage;
    struct pool_call *scratch;
    int64_t waited_ns;
};

static int run_in_pool(void *data)
{
    struct pool_call *call = data;
    return call->fn(call->item, call->keep_arg);
}

/* ---- Losing ---- */

static __attribute__((noinline)) void lose(struct pipeline *pipeline, struct passage *passage,
                                           int error)
{
    struct lost_item lost;
    bool for_hook;

    sanitize_release(pipeline);
    flow_lock(&pipeline->object);
    for_hook = passage_lose(pipeline, passage, error, &lost);
    flow_unlock(&pipeline->object);
    if (for_hook) pipeline_call_hook(pipeline, &lost);
}

/* ---- Working ---- */

static int64_t ms_until(int64_t deadline_ns)
{
    int64_t ns = deadline_ns - weir_now_ns();
    return ns <= 0 ? 0 : ns / 1000000 + (ns % 1000000 != 0);
}

/* One attempt, on a fresh copy of the item. */
static int attempt_once(const struct work *work)
{
    const weir_stage_spec *spec = &work->stage->spec;
    size_t bytes = work->stage->pipeline->spec.item_bytes;
    int r = 0;

    flow_copy(work->scratch->item, work->passage->item, bytes);
    WEIR_DEADLINE(spec->timeout_ms) {
        if (spec->pool) {
            work->scratch->fn = spec->fn;
            work->scratch->keep_arg = spec->keep_arg;
            r = weir_pool_run(spec->pool, spec->pool_class, run_in_pool, work->scratch,
                              sizeof(struct pool_call) + bytes);
        } else {
            r = spec->fn(work->scratch->item, spec->keep_arg);
        }
    }
    return r;
}

static int attempt_measured(const struct work *work, int64_t *ret_run_ns)
{
    struct stage *stage = work->stage;
    int64_t began_ns = weir_now_ns();
    int r = attempt_once(work);

    *ret_run_ns = weir_now_ns() - began_ns;
    flow_lock(&stage->pipeline->object);
    stage_figures_ran(&stage->figures, *ret_run_ns, r == WEIR_ETIMEDOUT);
    meter_observe(stage->meter.metered.meter, STAGE_RUN, *ret_run_ns);
    if (r == WEIR_ETIMEDOUT) meter_count(stage->meter.metered.meter, STAGE_TIMEOUTS, 1);
    flow_unlock(&stage->pipeline->object);
    return r;
}

static int ask_policy(const struct work *work, const weir_stage_attempt *attempt)
{
    const weir_stage_policy *policy = work->stage->spec.keep_policy;
    struct stage *stage = work->stage;
    int r = policy && policy->before ? policy->before(policy->keep_state, attempt) : 0;

    if (r >= 0) return 0;
    flow_lock(&stage->pipeline->object);
    stage->figures.rejected++;
    stage_item_rejected(&stage->meter, STAGE_REJECTED_POLICY);
    flow_unlock(&stage->pipeline->object);
    return r;
}

/* All attempts that the policy wants; the last result. */
static int attempt_all(const struct work *work)
{
    const weir_stage_policy *policy = work->stage->spec.keep_policy;
    weir_stage_attempt attempt = {.pipeline = work->stage->pipeline->object.name,
                                  .stage = work->stage->name,
                                  .waited_ns = work->waited_ns,
                                  .deadline_ns = work->passage->deadline_ns};

    for (;;) {
        int64_t again_ms = WEIR_STAGE_DONE, run_ns;
        int r;

        attempt.number++;
        r = ask_policy(work, &attempt);
        if (r < 0) return r;
        r = attempt_measured(work, &run_ns);
        if (policy && policy->after) {
            again_ms = policy->after(policy->keep_state, &attempt, r, run_ns);
        }
        if (r >= 0 || again_ms < 0 || attempt.number >= policy->attempts_max) return r;
        if (weir_sleep(again_ms) < 0) return r;
    }
}

static void note_expired(struct stage *stage)
{
    flow_lock(&stage->pipeline->object);
    stage->figures.timeouts++;
    meter_count(stage->meter.metered.meter, STAGE_TIMEOUTS, 1);
    flow_unlock(&stage->pipeline->object);
}

/* The stage has failed for this item: 0, it goes on without; or the error that it fails with. */
static int do_without(const struct work *work, int error)
{
    const weir_stage_spec *spec = &work->stage->spec;
    size_t bytes = work->stage->pipeline->spec.item_bytes;
    struct passage *passage = work->passage;
    int r;

    if (spec->on_failure == WEIR_STAGE_FAIL) return error;
    if (spec->on_failure == WEIR_STAGE_FALLBACK) {
        flow_copy(work->scratch->item, passage->item, bytes);
        r = spec->fallback(work->scratch->item, spec->keep_arg);
        if (r < 0) return r;
        flow_copy(passage->item, work->scratch->item, bytes);
    }
    if (passage->skipped == 0) passage->skip_error = error;
    passage->skipped |= UINT32_C(1) << work->stage->index;
    return 0;
}

/* 0: the stage is done with it; or the error with which the item fails here. */
static int work_on(const struct work *work, struct task *self, bool *ret_skipped)
{
    struct passage *passage = work->passage;
    int64_t left_ms = ms_until(passage->deadline_ns);
    int r = WEIR_ETIMEDOUT;

    if (left_ms == 0) {
        note_expired(work->stage);
        return r; /* nobody wants it any more: no time is spent on it */
    }
    WEIR_DEADLINE(left_ms) { r = attempt_all(work); }
    if (r >= 0) {
        flow_copy(passage->item, work->scratch->item, work->stage->pipeline->spec.item_bytes);
        return 0;
    }
    if (task_interruption(self, false) < 0) return WEIR_ECLOSED; /* the pipeline itself ends */
    if (ms_until(passage->deadline_ns) == 0) {
        /* Inside it looked as if something outside was at its end: that was the budget. */
        if (r != WEIR_ECANCELED) return r;
        note_expired(work->stage);
        return WEIR_ETIMEDOUT;
    }
    r = do_without(work, r);
    *ret_skipped = r == 0;
    return r;
}

/* ---- Handing on ---- */

static const struct wait_kind wait_next = {
    .name = "next stage", .abort = entry_abort, .describe = entry_describe};

/* A stage that drops what is there already needs a place for that. */
static __attribute__((noinline)) int enter_dropping(struct stage *stage, struct entry *entry)
{
    struct lost_item lost;
    int r;

    flow_lock(&stage->pipeline->object);
    r = stage_enter(stage, entry, &lost);
    flow_unlock(&stage->pipeline->object);
    if (r != ENTER_LOST) return r;
    pipeline_call_hook(stage->pipeline, &lost);
    return 0;
}

static void enter_next(struct stage *next, struct passage *passage, struct task *self)
{
    struct pipeline *pipeline = next->pipeline;
    struct entry entry = {.waiter = {.task = self, .object = &pipeline->object},
                          .passage = passage};
    int r;

    sanitize_release(pipeline);
    passage->stage = next->index; /* where it is lost, if there is no room */
    if (task_interruption(self, false) < 0) {
        r = WEIR_ECLOSED; /* the pipeline itself ends */
    } else if (next->spec.overflow == WEIR_DROP_OLDEST) {
        r = enter_dropping(next, &entry);
    } else {
        flow_lock(&pipeline->object);
        r = stage_enter(next, &entry, NULL);
        flow_unlock(&pipeline->object);
    }
    if (r == ENTER_MUST_WAIT) r = task_park(self, &wait_next, &entry) < 0 ? WEIR_ECLOSED : 0;
    if (r < 0) lose(pipeline, passage, r);
}

/* The stage has done what it can; `passage` is not ours after this. */
static void hand_on(struct stage *stage, struct passage *passage, bool skipped, struct task *self)
{
    struct pipeline *pipeline = stage->pipeline;
    bool is_last = stage->index + 1 == pipeline->stage_count;
    bool abandoned, finishes;

    flow_lock(&pipeline->object);
    if (skipped) {
        stage->figures.skipped++;
    } else {
        stage->figures.finished++;
        meter_count(stage->meter.metered.meter, STAGE_FINISHED, 1);
    }
    passage->entered = false;
    abandoned = passage->is_call && !passage->caller;
    finishes = is_last && !abandoned && (passage->is_call || pipeline->spec.results_max == 0);
    if (finishes) {
        sanitize_release(pipeline);
        passage_finish(pipeline, passage, NULL, NULL);
    }
    flow_unlock(&pipeline->object);
    if (finishes) return;
    if (abandoned) {
        lose(pipeline, passage, WEIR_ECANCELED);
    } else {
        enter_next(&pipeline->stages[stage->index + 1], passage, self);
    }
}

/* ---- The task ---- */

static const struct wait_kind wait_item = {
    .name = "item", .abort = waiter_abort, .describe = waiter_describe};

/* 0: an item; 1: there will be none any more; or it is cancelled. */
static int take(struct stage *stage, struct task *self, struct passage **ret_passage)
{
    struct pipeline *pipeline = stage->pipeline;

    for (;;) {
        struct waiter server = {.task = self, .object = &pipeline->object};
        int r = task_enter(self, ENTER_PLAIN);
        bool over;

        if (r < 0) return r;
        flow_lock(&pipeline->object);
        over = pipeline->aborts || (stage->depth == 0 && stage_is_dry(stage));
        if (over) {
            waiter_wake_all(&stage->servers, 0); /* it is over for those too */
            flow_unlock(&pipeline->object);
            return 1;
        }
        if (stage->depth > 0 && stage->running < stage->concurrency) {
            *ret_passage = stage_pop(stage);
            if (++stage->running > stage->running_max) stage->running_max = stage->running;
            stage_refill(stage);
            flow_unlock(&pipeline->object);
            sanitize_acquire(pipeline);
            return 0;
        }
        list_add_tail(&stage->servers, &server.node);
        flow_unlock(&pipeline->object);
        r = waiter_park(self, &server, &wait_item);
        if (r < 0) return r;
    }
}

static void process(struct work *work, struct task *self)
{
    struct stage *stage = work->stage;
    struct pipeline *pipeline = stage->pipeline;
    bool skipped = false, abandoned;
    int r;

    work->waited_ns = weir_now_ns() - work->passage->queued_ns;
    flow_lock(&pipeline->object);
    stage_figures_waited(&stage->figures, work->waited_ns);
    meter_observe(stage->meter.metered.meter, STAGE_WAIT, work->waited_ns);
    abandoned = work->passage->is_call && !work->passage->caller;
    flow_unlock(&pipeline->object);
    r = abandoned ? WEIR_ECANCELED : work_on(work, self, &skipped);
    if (r < 0) {
        lose(pipeline, work->passage, r);
    } else {
        hand_on(stage, work->passage, skipped, self);
    }
    flow_lock(&pipeline->object);
    stage->running--;
    flow_unlock(&pipeline->object);
}

static void begin(struct pipeline *pipeline, unsigned number)
{
    flow_lock(&pipeline->object);
    pipeline->tasks[number] = weir_task_self();
    flow_unlock(&pipeline->object);
}

/* True: it was the last one of all. */
static bool leave(struct stage *stage, int result)
{
    struct pipeline *pipeline = stage->pipeline;
    bool last;

    flow_lock(&pipeline->object);
    if (result < 0) pipeline->result = WEIR_ECANCELED;
    if (--stage->tasks_left == 0) waiter_wake_all(&stage[1].servers, 0);
    last = --pipeline->tasks_left == 0;
    flow_unlock(&pipeline->object);
    return last;
}

int stage_main(void *arg)
{
    const struct stage_task *task = arg;
    struct pipeline *pipeline = task->pipeline;
    struct belonging *belonging = &pipeline->object.belonging;
    weir_scope *scope = belonging->scope;
    struct work work = {.stage = &pipeline->stages[task->stage],
                        .scratch =
                            (void *)(pipeline->scratch + task->number * pipeline->scratch_bytes)};
    struct task *self = task_self();
    int r;

    assert(self);
    scope_attend(belonging);
    begin(pipeline, task->number);
    while ((r = take(work.stage, self, &work.passage)) == 0) process(&work, self);
    scope_attend_end(belonging);
    if (leave(work.stage, r) && pipeline_end(pipeline)) {
        scope_lock(scope);
        belonging_mail(belonging, BELONGING_RELEASE);
        scope_unlock(scope);
    }
    return r < 0 ? r : 0;
}

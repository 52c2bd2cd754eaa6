/* stage_task.c - a task of a stage: takes items, works on them, hands them on. */
#include <assert.h>
#include <weir/runtime.h>

#include "flow/pipeline.h"
#include "watch/trace.h"

enum { LIMIT_ITEM, LIMIT_ATTEMPT, LIMITS };

/* How long a task may work on an item: two blocks, the item's budget and inside it the
 * attempt's timeout, and one timer for both. Most items are done long before, so the timer is
 * not moved for each of them: it is armed at the time of some earlier item, and when it fires
 * it moves on to what is due by then. A task that goes from one item straight to the next stays
 * in its blocks, which get other times. Before it waits for anything else than its work it has
 * left them, and the timer is not armed. */
struct limits {
    struct timer timer;
    struct task *task;
    int64_t armed_ns; /* INT64_MAX: it is not */
    unsigned open;    /* how many of them the task is in */
    struct timed_block blocks[LIMITS];
};

/* One item in the hands of the task. */
struct work {
    struct stage *stage;
    struct passage *passage;
    struct pool_call *scratch;
    unsigned char *copy; /* what an attempt works on; of a pool's stage it is in `scratch` */
    bool abandoned;      /* nobody waited for it any more when it was taken */
    bool now_known;      /* now_ns is the time now: nothing has suspended or run since */
    int64_t now_ns;
    int64_t waited_ns, run_ns;
    int attempts, error;       /* of the item; with which it was skipped, or replaced */
    struct meter_shard *shard; /* of the stage's meter, on our worker */
    struct limits limits;
};

static int64_t work_now(struct work *work)
{
    if (!work->now_known) work->now_ns = weir_now_ns();
    work->now_known = true;
    return work->now_ns;
}

static int run_in_pool(void *data)
{
    struct pool_call *call = data;
    return call->fn(call->item, call->keep_arg);
}

/* ---- Time limits ---- */

/* A block without a time of its own has its outer one's. */
static bool is_own(const struct block *block)
{
    return block->deadline_ns < block->outer->deadline_ns;
}

static void limit_passed(struct worker *worker, struct timer *timer)
{
    struct limits *limits = container_of(timer, struct limits, timer);
    bool passed = false;

    limits->armed_ns = INT64_MAX;
    for (unsigned i = 0; i < limits->open; i++) {
        struct block *block = &limits->blocks[i].block;
        if (!is_own(block)) continue;
        if (block->deadline_ns <= worker->now_ns) {
            (void)atom_or(&block->own, SIGNAL_EXPIRED);
            passed = true;
        } else if (block->deadline_ns < limits->armed_ns) {
            limits->armed_ns = block->deadline_ns;
        }
    }
    if (limits->armed_ns != INT64_MAX) timer_arm(worker, timer, limits->armed_ns);
    if (!passed) return;
    block_refresh(worker, limits->task);
    mail_deliver_local(worker);
}

static void limits_init(struct limits *limits, struct task *self)
{
    static const char *const where[] = {"budget_ms of the pipeline", "timeout_ms of the stage"};

    timer_init(&limits->timer, limit_passed);
    limits->task = self;
    limits->armed_ns = INT64_MAX;
    limits->open = 0;
    for (unsigned i = 0; i < LIMITS; i++) {
        struct timed_block *timed = &limits->blocks[i];
        timed->block.kind = BLOCK_DEADLINE;
        timer_init(&timed->timer, limit_passed); /* never armed */
        timed->task = self;
        timed->where = where[i];
        timed->reason = NULL;
    }
}

/* What the task does now ends at at_ns: it enters the block, or is in it from the item before,
 * in which nothing has passed. */
static void limit_begin(struct limits *limits, unsigned limit, int64_t at_ns)
{
    struct block *block = &limits->blocks[limit].block;

    if (limits->open == limit) {
        block->no_deadline = limits->task->top->no_deadline;
        atom_store(&block->own, 0);
        block_push(limits->task, block);
        limits->open++;
    }
    block->deadline_ns = at_ns < block->outer->deadline_ns ? at_ns : block->outer->deadline_ns;
    if (at_ns < limits->armed_ns && is_own(block)) {
        limits->armed_ns = at_ns;
        timer_arm(worker_self(), &limits->timer, at_ns);
    }
}

/* The program's function has returned. */
static void limit_check(struct limits *limits)
{
    struct timed_block *timed = &limits->blocks[limits->open - 1];
    /* What it has opened in the block is open still: it is told what. */
    if (limits->task->top != &timed->block) weir_block_leave((weir_block *)(void *)timed);
}

/* Leave this block, and what is inside it. */
static void limit_end(struct limits *limits, unsigned limit)
{
    while (limits->open > limit) block_pop(limits->task, &limits->blocks[--limits->open].block);
}

/* Before the task waits for something else than its work: no timer fires for nothing. */
static void limits_rest(struct limits *limits)
{
    timer_disarm(worker_self(), &limits->timer);
    limits->armed_ns = INT64_MAX;
}

/* ---- Losing ---- */

/* What we work on, which has failed in our stage; or what that is done with. */
static __attribute__((noinline)) void lose(struct pipeline *pipeline, struct passage *passage,
                                           int error)
{
    struct lost_item lost;
    bool for_hook;

    sanitize_release(pipeline);
    flow_lock(&pipeline->object);
    if (passage->entered) pipeline->stages[passage->stage].running--; /* it is one that failed */
    for_hook = passage_lose(pipeline, passage, error, &lost);
    flow_unlock(&pipeline->object);
    if (for_hook) pipeline_call_hook(pipeline, &lost);
}

/* ---- Working ---- */

/* One attempt, on a fresh copy of the item. */
static int attempt_once(struct work *work)
{
    const weir_stage_spec *spec = &work->stage->spec;
    size_t bytes = work->stage->pipeline->spec.item_bytes;
    int64_t began_ns = work_now(work);
    int r;

    work->attempts++;
    flow_copy(work->copy, work->passage->item, bytes);
    limit_begin(&work->limits, LIMIT_ATTEMPT, time_after_ms(began_ns, spec->timeout_ms));
    if (spec->pool) {
        work->scratch->fn = spec->fn;
        work->scratch->keep_arg = spec->keep_arg;
        r = weir_pool_run(spec->pool, spec->pool_class, run_in_pool, work->scratch,
                          sizeof(struct pool_call) + bytes);
    } else {
        r = spec->fn(work->copy, spec->keep_arg);
    }
    limit_check(&work->limits);
    work->now_known = false;
    work->run_ns = work_now(work) - began_ns;
    return r;
}

/* The lock is held. */
static void note_attempt(const struct work *work, bool timed_out)
{
    struct stage *stage = work->stage;
    stage_figures_ran(&stage->figures, work->run_ns, timed_out);
    meter_observe_here(stage->meter.metered.meter, work->shard, STAGE_RUN, work->run_ns);
    if (timed_out) meter_count(stage->meter.metered.meter, STAGE_TIMEOUTS, 1);
}

/* One that succeeds is noted when the item is handed on. */
static int attempt_measured(struct work *work)
{
    struct pipeline *pipeline = work->stage->pipeline;
    int r = attempt_once(work);

    if (r >= 0) return r;
    flow_lock(&pipeline->object);
    note_attempt(work, r == WEIR_ETIMEDOUT);
    flow_unlock(&pipeline->object);
    return r;
}

static enum stage_reason refusal_reason(enum weir_stage_refusal refusal)
{
    switch (refusal) {
    case WEIR_REFUSED_SHED: return STAGE_REJECTED_SHED;
    case WEIR_REFUSED_LIMIT: return STAGE_REJECTED_LIMIT;
    case WEIR_REFUSED_BREAKER: return STAGE_REJECTED_BREAKER;
    default: return STAGE_REJECTED_POLICY;
    }
}

static int ask_policy(struct work *work, const weir_stage_attempt *attempt)
{
    const weir_stage_policy *policy = work->stage->spec.keep_policy;
    struct stage *stage = work->stage;
    int r;

    if (!policy->before) return 0;
    *attempt->ret_refusal = WEIR_REFUSED_POLICY;
    r = policy->before(policy->keep_state, attempt);
    work->now_known = false;
    if (r >= 0) return 0;
    flow_lock(&stage->pipeline->object);
    stage->figures.rejected++;
    stage_item_rejected(&stage->meter, refusal_reason(*attempt->ret_refusal));
    flow_unlock(&stage->pipeline->object);
    return r;
}

static int attempt_again(struct work *work, weir_stage_attempt *attempt)
{
    const weir_stage_policy *policy = work->stage->spec.keep_policy;

    for (;;) {
        int64_t again_ms = WEIR_STAGE_DONE;
        int r;

        attempt->number++;
        r = ask_policy(work, attempt);
        if (r < 0) return r;
        r = attempt_measured(work);
        limit_end(&work->limits, LIMIT_ATTEMPT); /* the policy is not bound by the timeout */
        if (policy->after) {
            again_ms = policy->after(policy->keep_state, attempt, r, work->run_ns);
            work->now_known = false;
        }
        if (r >= 0 || again_ms < 0 || attempt->number >= policy->attempts_max) return r;
        work->now_known = false;
        if (weir_sleep(again_ms) < 0) return r;
    }
}

/* All attempts that the policy wants; the last result. */
static __attribute__((noinline)) int attempt_all(struct work *work)
{
    const weir_stage_policy *policy = work->stage->spec.keep_policy;
    unsigned char keep[WEIR_STAGE_KEEP_BYTES] WEIR_UNINITIALIZED_ __attribute__((aligned(16)));
    enum weir_stage_refusal refusal = WEIR_REFUSED_POLICY;
    weir_stage_attempt attempt = {.pipeline = work->stage->pipeline->object.name,
                                  .stage = work->stage->name,
                                  .waited_ns = work->waited_ns,
                                  .deadline_ns = work->passage->deadline_ns,
                                  .item = work->passage->item,
                                  .item_bytes = work->stage->pipeline->spec.item_bytes,
                                  .keep = keep,
                                  .ret_refusal = &refusal};
    int r = attempt_again(work, &attempt);

    if (policy->ended) {
        policy->ended(policy->keep_state, &attempt, r);
        work->now_known = false;
    }
    return r;
}

static void note_expired(struct stage *stage)
{
    flow_lock(&stage->pipeline->object);
    stage->figures.timeouts++;
    meter_count(stage->meter.metered.meter, STAGE_TIMEOUTS, 1);
    flow_unlock(&stage->pipeline->object);
}

/* The copy becomes the item. A pool's is copied back: it belongs to what the pool was given. */
static void keep_copy(struct work *work)
{
    struct passage *passage = work->passage;
    unsigned char *item = passage->item;

    if (work->stage->spec.pool) {
        flow_copy(item, work->copy, work->stage->pipeline->spec.item_bytes);
    } else {
        passage->item = work->copy;
        work->copy = item;
    }
}

/* The stage has failed for this item: 0, it goes on without; or the error that it fails with. */
static int do_without(struct work *work, int error)
{
    const weir_stage_spec *spec = &work->stage->spec;
    size_t bytes = work->stage->pipeline->spec.item_bytes;
    struct passage *passage = work->passage;
    int r;

    if (spec->on_failure == WEIR_STAGE_FAIL) return error;
    if (spec->on_failure == WEIR_STAGE_FALLBACK) {
        flow_copy(work->copy, passage->item, bytes);
        r = spec->fallback(work->copy, spec->keep_arg);
        work->now_known = false;
        if (r < 0) return r;
        keep_copy(work);
    }
    if (passage->skipped == 0) passage->skip_error = error;
    work->error = error;
    passage->skipped |= UINT32_C(1) << work->stage->index;
    return 0;
}

/* 0: the stage is done with it; or the error with which the item fails here. */
static int work_on(struct work *work, struct task *self, bool *ret_skipped)
{
    struct passage *passage = work->passage;
    int r;

    if (passage->deadline_ns <= work_now(work)) {
        note_expired(work->stage);
        return WEIR_ETIMEDOUT; /* nobody wants it any more: no time is spent on it */
    }
    limit_begin(&work->limits, LIMIT_ITEM, passage->deadline_ns);
    r = work->stage->spec.keep_policy ? attempt_all(work) : attempt_measured(work);
    /* Nothing has passed: it can stay in them for the next item. */
    if (r < 0 || self->attention != 0) limit_end(&work->limits, LIMIT_ITEM);
    if (r >= 0) {
        keep_copy(work);
        return 0;
    }
    if (task_interruption(self, false) < 0) return WEIR_ECLOSED; /* the pipeline itself ends */
    if (passage->deadline_ns <= weir_now_ns()) {
        /* Inside it looked as if something outside was at its end: that was the budget. */
        if (r != WEIR_ECANCELED) return r;
        note_expired(work->stage);
        return WEIR_ETIMEDOUT;
    }
    r = do_without(work, r);
    *ret_skipped = r == 0;
    return r;
}

/* The same as a span of ours, in the context of who has sent the item. */
static __attribute__((noinline)) int work_on_traced(struct work *work, struct task *self,
                                                    bool *ret_skipped)
{
    struct trace_node *before = trace_swap(self, trace_ref(work->passage->trace));
    weir_span span;
    int r;

    work->attempts = 0;
    span_begin(&span, "stage", work->stage->name, WEIR_SPAN_INTERNAL);
    weir_span_string("weir.pipeline", work->stage->pipeline->object.name);
    weir_span_int("weir.queue_wait_ns", work->waited_ns);
    r = work_on(work, self, ret_skipped);
    weir_span_int("weir.attempts", work->attempts);
    if (*ret_skipped) weir_span_bool("weir.skipped", true);
    if (r < 0 || *ret_skipped) weir_span_result(r < 0 ? r : work->error);
    weir_span_leave(&span);
    trace_unref(trace_swap(self, before));
    return r;
}

static int work_on_any(struct work *work, struct task *self, bool *ret_skipped)
{
    if (__builtin_expect(work->passage->trace != NULL, 0)) {
        return work_on_traced(work, self, ret_skipped);
    }
    return work_on(work, self, ret_skipped);
}

/* ---- Handing on ---- */

static const struct wait_kind wait_next = {
    .name = "next stage",
    .abort = entry_abort,
    .describe = entry_describe,
    .what = WAIT_FOR_ROOM,
    .ends = ENDS_WITH_TASKS,
    .facts = entry_facts,
};

/* A stage that drops what is there already needs a place for that. */
static __attribute__((noinline)) int enter_dropping(struct stage *stage, struct entry *entry,
                                                    int64_t now_ns)
{
    struct lost_item lost;
    int r;

    flow_lock(&stage->pipeline->object);
    r = stage_enter(stage, entry, &lost, now_ns);
    flow_unlock(&stage->pipeline->object);
    if (r != ENTER_LOST) return r;
    pipeline_call_hook(stage->pipeline, &lost);
    return 0;
}

/* There was no room, or the pipeline ends. */
static __attribute__((noinline)) void enter_next(struct stage *next, struct work *work,
                                                 struct task *self)
{
    struct pipeline *pipeline = next->pipeline;
    struct passage *passage = work->passage;
    struct entry entry = {.waiter = {.task = self, .object = &pipeline->object},
                          .passage = passage};
    int r;

    passage->stage = next->index; /* where it is lost, if there is no room */
    if (task_interruption(self, false) < 0) {
        r = WEIR_ECLOSED; /* the pipeline itself ends */
    } else if (next->spec.overflow == WEIR_DROP_OLDEST) {
        r = enter_dropping(next, &entry, work_now(work));
    } else {
        flow_lock(&pipeline->object);
        r = stage_enter(next, &entry, NULL, work_now(work));
        flow_unlock(&pipeline->object);
    }
    if (r == ENTER_MUST_WAIT) {
        limits_rest(&work->limits);
        r = task_park(self, &wait_next, &entry) < 0 ? WEIR_ECLOSED : 0;
    }
    if (r < 0) lose(pipeline, passage, r);
}

enum handed { HANDED_ON, HANDED_NOT_YET, HANDED_ABANDONED };

/* The stage has done what it can; `passage` is not ours after HANDED_ON. The lock is held. */
static enum handed hand_on(struct work *work, bool skipped, const struct task *self)
{
    struct stage *stage = work->stage;
    struct pipeline *pipeline = stage->pipeline;
    struct passage *passage = work->passage;
    struct stage *next = stage + 1;
    bool is_last = next->index == pipeline->stage_count;

    if (!skipped) note_attempt(work, false);
    passage->entered = false;
    sanitize_release(pipeline);
    if (passage->is_call && !passage->caller) return HANDED_ABANDONED;
    if (is_last && (passage->is_call || pipeline->spec.results_max == 0)) {
        passage_finish(pipeline, passage, work->now_ns, NULL, NULL);
        return HANDED_ON;
    }
    if (self->attention & SIGNAL_INTERRUPTS || !stage_has_room(next)) return HANDED_NOT_YET;
    stage_put(next, passage, work->now_ns);
    return HANDED_ON;
}

/* ---- The task ---- */

static const struct wait_kind wait_item = {
    .name = "item",
    .abort = waiter_abort,
    .describe = waiter_describe,
    .what = WAIT_FOR_WORK,
    .ends = ENDS_AT_CLOSE,
    .facts = waiter_facts,
};

/* Take an item if there is one for us. The lock is held, and the time is known. */
static bool take_now(struct work *work)
{
    struct stage *stage = work->stage;
    struct passage *passage;

    if (stage->depth == 0 || stage->running >= stage->concurrency) return false;
    passage = stage_pop(stage);
    if (++stage->running > stage->running_max) stage->running_max = stage->running;
    if (!list_empty(&stage->senders)) stage_refill(stage, work->now_ns);
    stage_wake(stage); /* the one that was on its way was us */
    /* On another worker it may have been queued after we looked at the clock. */
    if (work->now_ns < passage->queued_ns) work->now_ns = passage->queued_ns;
    work->waited_ns = work->now_ns - passage->queued_ns;
    stage_figures_waited(&stage->figures, work->waited_ns);
    if (!work->shard) work->shard = meter_shard_here(stage->meter.metered.meter);
    meter_observe_here(stage->meter.metered.meter, work->shard, STAGE_WAIT, work->waited_ns);
    work->abandoned = passage->is_call && !passage->caller;
    work->passage = passage;
    return true;
}

/* It was called to an item and does not come. */
static void decline(struct stage *stage)
{
    flow_lock(&stage->pipeline->object);
    stage->called = false;
    stage_wake(stage);
    flow_unlock(&stage->pipeline->object);
}

/* 0: an item; 1: there will be none any more; or it is cancelled. */
static int take(struct work *work, struct task *self)
{
    struct stage *stage = work->stage;
    struct pipeline *pipeline = stage->pipeline;
    bool called = false;

    for (;;) {
        struct waiter server = {.task = self, .object = &pipeline->object};
        int r;

        if (self->budget <= 0) work->now_known = false; /* it may yield */
        r = task_enter(self, ENTER_PLAIN);
        if (r < 0) {
            if (called) decline(stage);
            return r;
        }
        (void)work_now(work);
        flow_lock(&pipeline->object);
        if (called) stage->called = false;
        if (pipeline->aborts || (stage->depth == 0 && stage_is_dry(stage))) {
            waiter_wake_all(&stage->servers, 0); /* it is over for those too */
            flow_unlock(&pipeline->object);
            return 1;
        }
        if (take_now(work)) {
            flow_unlock(&pipeline->object);
            sanitize_acquire(pipeline);
            return 0;
        }
        list_add_tail(&stage->servers, &server.node);
        flow_unlock(&pipeline->object);
        limits_rest(&work->limits);
        r = waiter_park(self, &server, &wait_item);
        work->now_known = false;
        if (r < 0) return r;
        called = r == SERVER_CALLED;
    }
}

/* The item is not in our hands any more: the stage is done with it. The lock is held. */
static void end_run(struct stage *stage, bool skipped)
{
    stage->running--;
    if (skipped) {
        stage->figures.skipped++;
    } else {
        stage->figures.finished++;
    }
}

/* Hand the item on, and take the next one at the same time if it is there and our turn is not
 * over. True: it did. */
static bool hand_on_and_take(struct work *work, bool skipped, struct task *self)
{
    struct stage *stage = work->stage;
    struct pipeline *pipeline = stage->pipeline;
    enum handed handed;
    bool took = false;

    (void)work_now(work);
    flow_lock(&pipeline->object);
    handed = hand_on(work, skipped, self);
    if (handed == HANDED_ON) {
        end_run(stage, skipped);
        if (self->budget > 0 && !pipeline->aborts) took = take_now(work);
    }
    flow_unlock(&pipeline->object);
    if (took) {
        self->budget--; /* as task_enter does */
        sanitize_acquire(pipeline);
        return true;
    }
    limit_end(&work->limits, LIMIT_ITEM);
    if (handed == HANDED_ON) return false;
    work->now_known = false;
    if (handed == HANDED_ABANDONED) {
        lose(pipeline, work->passage, WEIR_ECANCELED);
    } else {
        enter_next(stage + 1, work, self);
    }
    flow_lock(&pipeline->object);
    end_run(stage, skipped);
    flow_unlock(&pipeline->object);
    return false;
}

/* All that is to be done with the item; 0 if there is a next one, else what take says. */
static int process(struct work *work, struct task *self)
{
    bool skipped = false;
    int r = work->abandoned ? WEIR_ECANCELED : work_on_any(work, self, &skipped);

    if (r >= 0) {
        if (hand_on_and_take(work, skipped, self)) return 0;
    } else {
        limit_end(&work->limits, LIMIT_ITEM); /* that of the item before may be open */
        lose(work->stage->pipeline, work->passage, r);
        work->now_known = false;
    }
    return take(work, self);
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
    work.copy = work.scratch->item;
    /* It does not work for who has opened the pipeline. */
    if (trace_of(self)) trace_unref(trace_swap(self, NULL));
    limits_init(&work.limits, self);
    scope_attend(belonging);
    begin(pipeline, task->number);
    r = take(&work, self);
    while (r == 0) r = process(&work, self);
    limits_rest(&work.limits);
    scope_attend_end(belonging);
    if (leave(work.stage, r) && pipeline_end(pipeline)) {
        scope_lock(scope);
        belonging_mail(belonging, BELONGING_RELEASE);
        scope_unlock(scope);
    }
    return r < 0 ? r : 0;
}

/* pipeline_life.c - opening a pipeline, the check of its budget, how it ends. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "flow/pipeline.h"
#include "rt/mem.h"

/* ---- The end ---- */

/* Who waits to put something in is told that nobody takes it. The lock is held. */
static void turn_away(struct stage *stage)
{
    struct waiter *waiter;
    while ((waiter = waiter_pop(&stage->senders))) {
        container_of(waiter, struct entry, waiter)->state = ENTRY_DONE;
        waiter_wake(waiter, WEIR_ECLOSED);
    }
}

static __attribute__((noinline)) void empty_queue(struct stage *stage)
{
    struct pipeline *pipeline = stage->pipeline;
    struct lost_item lost;

    for (;;) {
        struct passage *passage;
        bool for_hook = false;
        flow_lock(&pipeline->object);
        passage = stage_pop(stage);
        if (passage) for_hook = passage_lose(pipeline, passage, WEIR_ECLOSED, &lost);
        flow_unlock(&pipeline->object);
        if (!passage) return;
        if (for_hook) pipeline_call_hook(pipeline, &lost);
    }
}

bool pipeline_end(struct pipeline *pipeline)
{
    bool given_up;

    flow_lock(&pipeline->object);
    if (pipeline->state == PIPELINE_OPEN) pipeline->state = PIPELINE_CLOSED;
    turn_away(&pipeline->stages[0]);
    flow_unlock(&pipeline->object);
    for (unsigned i = 0; i < pipeline->stage_count; i++) empty_queue(&pipeline->stages[i]);
    sanitize_release(pipeline);
    flow_lock(&pipeline->object);
    pipeline->state = PIPELINE_ENDED;
    if (pipeline->aborts) pipeline->result = WEIR_ECANCELED;
    waiter_tell_all(&pipeline->finishers, pipeline->result);
    given_up = pipeline->given_up;
    flow_unlock(&pipeline->object);
    return given_up;
}

static void cancel_tasks(struct pipeline *pipeline)
{
    for (unsigned i = 0; i < pipeline->task_count; i++) {
        weir_task task;
        flow_lock(&pipeline->object);
        task = pipeline->tasks[i];
        flow_unlock(&pipeline->object);
        if (task.ref) (void)weir_task_cancel(task, "the pipeline was stopped");
    }
}

void pipeline_stop(struct pipeline *pipeline, enum weir_on_close how)
{
    bool aborts;

    flow_lock(&pipeline->object);
    if (pipeline->state == PIPELINE_OPEN) {
        pipeline->state = PIPELINE_CLOSED;
        turn_away(&pipeline->stages[0]);
        waiter_wake_all(&pipeline->stages[0].servers, 0);
    }
    aborts = how == WEIR_DISCARD && pipeline->state == PIPELINE_CLOSED && !pipeline->aborts;
    if (aborts) pipeline->aborts = true; /* a task that has not begun finds this */
    flow_unlock(&pipeline->object);
    if (aborts) cancel_tasks(pipeline);
}

/* ---- Belonging to a scope ---- */

static void pipeline_free(struct pipeline *pipeline)
{
    mem_free(pipeline->memory);
    mem_free(pipeline->stages);
    flow_free(&pipeline->object);
}

static void open_meters(struct pipeline *pipeline)
{
    pipeline_meter_open_counted(&pipeline->meter, pipeline);
    for (unsigned i = 0; i < pipeline->stage_count; i++) {
        struct stage *stage = &pipeline->stages[i];
        stage_meter_open_counted(&stage->meter, stage);
    }
}

static void close_meters(struct pipeline *pipeline)
{
    pipeline_meter_close(&pipeline->meter);
    for (unsigned i = 0; i < pipeline->stage_count; i++) {
        stage_meter_close(&pipeline->stages[i].meter);
    }
}

/* Its tasks have left, or never were. On its worker. */
static void let_go(struct pipeline *pipeline)
{
    empty_queue(&pipeline->stages[pipeline->stage_count]);
    /* The bit keeps others from posting mail; if some is under way, it comes back here. */
    if (atom_or(&pipeline->object.belonging.mail_bits, BELONGING_RELEASE) != 0) return;
    close_meters(pipeline);
    (void)scope_forget(&pipeline->object.belonging);
    pipeline_free(pipeline);
}

static void pipeline_release(struct worker *worker, struct belonging *belonging)
{
    struct pipeline *pipeline = container_of(belonging, struct pipeline, object.belonging);

    (void)worker;
    if (pipeline->handle) handle_close(pipeline->handle);
    pipeline->handle = NULL;
    flow_lock(&pipeline->object);
    waiter_wake_all(&pipeline->stages[pipeline->stage_count].servers, WEIR_ECLOSED);
    flow_unlock(&pipeline->object);
    let_go(pipeline);
}

static void pipeline_signalled(struct worker *worker, struct belonging *belonging, uint8_t signals)
{
    (void)worker, (void)belonging, (void)signals; /* its tasks are told by their scope */
}

static void pipeline_dismissed(struct worker *worker, struct belonging *belonging)
{
    struct pipeline *pipeline = container_of(belonging, struct pipeline, object.belonging);

    (void)worker;
    flow_lock(&pipeline->object);
    pipeline->dismissed = true;
    turn_away(&pipeline->stages[pipeline->stage_count]);
    flow_unlock(&pipeline->object);
    pipeline_stop(pipeline, WEIR_DRAIN);
}

static void pipeline_describe(const struct belonging *belonging, char *text, size_t bytes)
{
    const struct pipeline *pipeline =
        (const struct pipeline *)(const void *)((const char *)belonging -
                                                offsetof(struct pipeline, object.belonging));
    (void)snprintf(text, bytes, "'%s', %u stages, %zu items inside%s", pipeline->object.name,
                   pipeline->stage_count, pipeline->inside,
                   pipeline->state == PIPELINE_ENDED ? ", ended" : "");
}

static void stage_boundary(const struct stage *stage, bool held, struct boundary *ret)
{
    static const char *const failures[] = {[WEIR_STAGE_FAIL] = "the item fails",
                                           [WEIR_STAGE_SKIP] = "skipped: the result is partial",
                                           [WEIR_STAGE_FALLBACK] = "fallback: partial"};

    ret->kind = "stage";
    (void)snprintf(ret->name, sizeof ret->name, "%s/%s", stage->pipeline->object.name, stage->name);
    (void)snprintf(ret->bound, sizeof ret->bound, "%zu queued, %d at a time (at most %d)",
                   stage->queue_max, stage->concurrency, stage->spec.concurrency_max);
    ret->overflow = boundary_overflow((int)stage->spec.overflow);
    (void)snprintf(ret->failure, sizeof ret->failure, "%s; timeout %lld ms",
                   failures[stage->spec.on_failure], (long long)stage->spec.timeout_ms);
    ret->latency_target_ms = stage->spec.latency_ms;
    ret->meter = stage->meter.metered.meter;
    ret->wait_histogram = STAGE_WAIT;
    ret->run_histogram = STAGE_RUN;
    if (!held) return;
    boundary_figure(ret, "depth", stage->depth);
    boundary_figure(ret, "depth_max", stage->depth_max);
    boundary_figure(ret, "running", (uint64_t)stage->running);
    boundary_figure(ret, "finished", stage->figures.finished);
    boundary_figure(ret, "failed", stage->figures.failed);
    boundary_figure(ret, "skipped", stage->figures.skipped);
    boundary_figure(ret, "rejected", stage->figures.rejected);
    boundary_figure(ret, "timeouts", stage->figures.timeouts);
}

/* The first row is the pipeline, the others are its stages. */
static bool pipeline_boundary(struct belonging *belonging, unsigned row,
                              struct boundary *ret_boundary)
{
    struct pipeline *pipeline = container_of(belonging, struct pipeline, object.belonging);
    struct lock *lock = &pipeline->object.stable.lock;
    bool shared = pipeline->object.stable.shared;
    bool held;

    if (row > pipeline->stage_count) return false;
    ret_boundary->lifetime = "until closed, or the scope ends";
    held = boundary_hold(lock, shared);
    if (row > 0) {
        stage_boundary(&pipeline->stages[row - 1], held, ret_boundary);
    } else {
        (void)snprintf(ret_boundary->name, sizeof ret_boundary->name, "%s", pipeline->object.name);
        (void)snprintf(ret_boundary->bound, sizeof ret_boundary->bound,
                       "%u stages, %lld ms end to end", pipeline->stage_count,
                       (long long)pipeline->spec.budget_ms);
        ret_boundary->overflow = "that of its first stage";
        (void)snprintf(ret_boundary->failure, sizeof ret_boundary->failure,
                       "by stage; the error to the caller, or the item to on_lost");
        ret_boundary->latency_target_ms = pipeline->spec.latency_ms;
        ret_boundary->meter = pipeline->meter.metered.meter;
        ret_boundary->run_histogram = PIPELINE_LATENCY;
    }
    if (!held) return true;
    if (row == 0) {
        boundary_figure(ret_boundary, "inside", pipeline->inside);
        boundary_figure(ret_boundary, "accepted", pipeline->figures.accepted);
        boundary_figure(ret_boundary, "finished", pipeline->figures.finished);
        boundary_figure(ret_boundary, "partial", pipeline->figures.partial);
        boundary_figure(ret_boundary, "lost", pipeline->figures.lost);
    }
    boundary_let_go(lock, shared);
    return true;
}

static const struct belonging_kind pipeline_kind = {
    .name = "pipeline",
    .signalled = pipeline_signalled,
    .release = pipeline_release,
    .describe = pipeline_describe,
    .boundary = pipeline_boundary,
    .is_passive = belonging_is_passive,
    .dismissed = pipeline_dismissed,
};

void weir_pipeline_close(weir_pipeline *take_pipeline)
{
    struct pipeline *pipeline;
    weir_scope *scope;
    bool ended;

    if (!take_pipeline) return;
    pipeline = flow_look_up(take_pipeline, HANDLE_PIPELINE, "pipeline", "weir_pipeline_close");
    if (!worker_self()) misuse("weir_pipeline_close: called on a thread that is not the runtime's");
    scope = pipeline->object.belonging.scope;
    handle_close(take_pipeline);
    pipeline->handle = NULL;
    pipeline_stop(pipeline, WEIR_DISCARD);
    flow_lock(&pipeline->object);
    pipeline->given_up = true;
    ended = pipeline->state == PIPELINE_ENDED;
    flow_unlock(&pipeline->object);
    if (!ended) return;
    scope_lock(scope);
    belonging_mail(&pipeline->object.belonging, BELONGING_RELEASE);
    scope_unlock(scope);
}

/* ---- Checking ---- */

static int check_stage_bounds(const char *name, const weir_stage_spec *stage)
{
    if (stage->concurrency < 1 || stage->concurrency > WEIR_STAGE_CONCURRENCY_MAX) {
        return refuse("pipeline '%s': concurrency of stage '%s' is %d, must be 1 to %d", name,
                      stage->name, stage->concurrency, WEIR_STAGE_CONCURRENCY_MAX);
    }
    if (stage->concurrency_max && (stage->concurrency_max < stage->concurrency ||
                                   stage->concurrency_max > WEIR_STAGE_CONCURRENCY_MAX)) {
        return refuse("pipeline '%s': concurrency_max of stage '%s' is less than concurrency, or "
                      "more than %d",
                      name, stage->name, WEIR_STAGE_CONCURRENCY_MAX);
    }
    if (stage->queue_max == 0 || stage->queue_max > WEIR_STAGE_QUEUE_MAX) {
        return refuse("pipeline '%s': queue_max of stage '%s' is %zu, must be 1 to %d", name,
                      stage->name, stage->queue_max, WEIR_STAGE_QUEUE_MAX);
    }
    if (stage->queue_limit &&
        (stage->queue_limit < stage->queue_max || stage->queue_limit > WEIR_STAGE_QUEUE_MAX)) {
        return refuse("pipeline '%s': queue_limit of stage '%s' is less than queue_max, or more "
                      "than %d",
                      name, stage->name, WEIR_STAGE_QUEUE_MAX);
    }
    if (stage->overflow == WEIR_OVERFLOW_UNSET || stage->overflow > WEIR_DROP_OLDEST) {
        return refuse("pipeline '%s': overflow of stage '%s' is not set", name, stage->name);
    }
    return 0;
}

static int check_stage_failure(const char *name, const weir_stage_spec *stage)
{
    const weir_stage_policy *policy = stage->keep_policy;

    if (stage->timeout_ms <= 0) {
        return refuse("pipeline '%s': timeout_ms of stage '%s' is not set", name, stage->name);
    }
    if (stage->on_failure == WEIR_STAGE_UNSET || stage->on_failure > WEIR_STAGE_FALLBACK) {
        return refuse("pipeline '%s': on_failure of stage '%s' is not set", name, stage->name);
    }
    if ((stage->on_failure == WEIR_STAGE_FALLBACK) != (stage->fallback != NULL)) {
        return refuse("pipeline '%s': fallback of stage '%s' is set if and only if on_failure is "
                      "WEIR_STAGE_FALLBACK",
                      name, stage->name);
    }
    if (!policy) return 0;
    if (!policy->worst_case_ms || policy->attempts_max < 1) {
        return refuse("pipeline '%s': the policy of stage '%s' does not say its worst_case_ms and "
                      "attempts_max",
                      name, stage->name);
    }
    if (policy->attempts_max > 1 && !stage->idempotent) {
        return refuse("pipeline '%s': stage '%s' is not declared idempotent, so it cannot be tried "
                      "%d times",
                      name, stage->name, policy->attempts_max);
    }
    return 0;
}

/* A handle that names no pool aborts, as everywhere. */
static int check_stage_pool(const char *name, const weir_stage_spec *stage)
{
    weir_pool_figures figures;

    if (!stage->pool || weir_pool_figures_of(stage->pool, stage->pool_class, &figures) == 0) {
        return 0;
    }
    return refuse("pipeline '%s': pool_class of stage '%s' is %u, which its pool does not have",
                  name, stage->name, stage->pool_class);
}

static int check_stage(const char *name, const weir_stage_spec *stage, size_t index)
{
    int r;

    if (!stage->name || !*stage->name) {
        return refuse("pipeline '%s': name of stage %zu is not set", name, index);
    }
    if (!stage->fn) return refuse("pipeline '%s': fn of stage '%s' is not set", name, stage->name);
    if (stage->latency_ms < 0) {
        return refuse("pipeline '%s': latency_ms of stage '%s' is negative", name, stage->name);
    }
    r = check_stage_bounds(name, stage);
    if (r == 0) r = check_stage_pool(name, stage);
    return r < 0 ? r : check_stage_failure(name, stage);
}

static int64_t worst_case_ms(const weir_stage_spec *stage)
{
    const weir_stage_policy *policy = stage->keep_policy;
    if (!policy) return stage->timeout_ms;
    return policy->worst_case_ms(policy->keep_state, stage->timeout_ms);
}

/* What all stages can take must fit into the budget: else some item is bound to be late. */
static int check_budget(const weir_pipeline_spec *spec, const struct stage *stages)
{
    char sum[256] = "";
    size_t used = 0;
    int64_t total = 0;

    for (size_t i = 0; i < spec->stage_count; i++) {
        int64_t ms = worst_case_ms(&stages[i].spec);
        int n = snprintf(sum + used, sizeof sum - used, "%s'%s' %lld", i ? " + " : "",
                         stages[i].name, (long long)ms);
        if (ms < stages[i].spec.timeout_ms) {
            return refuse("pipeline '%s': the policy of stage '%s' says that it takes %lld ms at "
                          "most, less than its timeout_ms, %lld",
                          spec->name, stages[i].name, (long long)ms,
                          (long long)stages[i].spec.timeout_ms);
        }
        if (n > 0) used += (size_t)n;
        if (used >= sizeof sum) used = sizeof sum - 1;
        total = ms > INT64_MAX - total ? INT64_MAX : total + ms;
    }
    if (total <= spec->budget_ms) return 0;
    return refuse("pipeline '%s': its stages take %lld ms at worst (%s), more than budget_ms, %lld",
                  spec->name, (long long)total, sum, (long long)spec->budget_ms);
}

static int check_spec(const weir_pipeline_spec *spec)
{
    const char *name = spec->name;
    int r = flow_check_name("pipeline", name);

    if (r < 0) return r;
    if (spec->item_bytes == 0 || spec->item_bytes > WEIR_ITEM_BYTES_MAX) {
        return refuse("pipeline '%s': item_bytes is %zu, must be 1 to %d (send a pointer instead)",
                      name, spec->item_bytes, WEIR_ITEM_BYTES_MAX);
    }
    if (spec->budget_ms <= 0) return refuse("pipeline '%s': budget_ms is not set", name);
    if (!spec->on_lost) return refuse("pipeline '%s': on_lost is not set", name);
    if (!spec->stages || spec->stage_count == 0) {
        return refuse("pipeline '%s': stages is not set", name);
    }
    if (spec->stage_count > WEIR_STAGES_MAX) {
        return refuse("pipeline '%s': %zu stages, at most %d", name, spec->stage_count,
                      WEIR_STAGES_MAX);
    }
    if (spec->results_max > WEIR_STAGE_QUEUE_MAX) {
        return refuse("pipeline '%s': results_max is more than %d", name, WEIR_STAGE_QUEUE_MAX);
    }
    if (spec->latency_ms < 0) return refuse("pipeline '%s': latency_ms is negative", name);
    return 0;
}

/* ---- Opening ---- */

static void stage_init(struct pipeline *pipeline, unsigned index, const weir_stage_spec *spec)
{
    struct stage *stage = &pipeline->stages[index];

    memset(stage, 0, sizeof *stage);
    stage->pipeline = pipeline;
    stage->index = index;
    stage->spec = *spec;
    flow_name(stage->name, spec->name);
    stage->spec.name = stage->name;
    if (stage->spec.concurrency_max == 0) stage->spec.concurrency_max = spec->concurrency;
    if (stage->spec.queue_limit == 0) stage->spec.queue_limit = spec->queue_max;
    stage->queue_max = spec->queue_max;
    stage->concurrency = spec->concurrency;
    stage->tasks_left = (unsigned)stage->spec.concurrency_max;
    list_init(&stage->queue);
    list_init(&stage->senders);
    list_init(&stage->servers);
}

static size_t rounded(size_t bytes)
{
    return (bytes + 15) & ~(size_t)15;
}

/* Copies and checks the stages into memory of their own. */
static int make_stages(struct pipeline *pipeline, size_t stage_spec_bytes)
{
    const weir_pipeline_spec *spec = &pipeline->spec;
    const weir_stage_spec results = {
        .name = "", .concurrency = INT_MAX, .queue_max = spec->results_max, .overflow = WEIR_WAIT};
    const unsigned char *given = (const void *)spec->stages;

    pipeline->stages = mem_alloc((spec->stage_count + 1) * sizeof *pipeline->stages);
    if (!pipeline->stages) return -ENOMEM;
    for (unsigned i = 0; i < spec->stage_count; i++, given += stage_spec_bytes) {
        weir_stage_spec stage;
        int r;
        spec_copy(&stage, sizeof stage, given, stage_spec_bytes);
        r = check_stage(spec->name, &stage, i);
        if (r < 0) return r;
        stage_init(pipeline, i, &stage);
        pipeline->task_count += pipeline->stages[i].tasks_left;
    }
    pipeline->stage_count = (unsigned)spec->stage_count;
    stage_init(pipeline, pipeline->stage_count, &results);
    pipeline->stages[pipeline->stage_count].tasks_left = 0;
    return check_budget(spec, pipeline->stages);
}

/* One allocation: handles of tasks, their scratch, passages with their items. */
static int make_room(struct pipeline *pipeline)
{
    const weir_pipeline_spec *spec = &pipeline->spec;
    size_t item = rounded(spec->item_bytes);
    size_t tasks = rounded(pipeline->task_count * sizeof(weir_task));
    size_t passages = pipeline->task_count + spec->results_max;
    size_t each = rounded(sizeof(struct passage)) + item;
    unsigned char *at;

    for (unsigned i = 0; i < pipeline->stage_count; i++) {
        passages += pipeline->stages[i].spec.queue_limit;
    }
    pipeline->scratch_bytes = sizeof(struct pool_call) + item;
    at = mem_alloc(tasks + pipeline->task_count * pipeline->scratch_bytes + passages * each);
    if (!at) return -ENOMEM;
    pipeline->memory = at;
    memset(at, 0, tasks);
    pipeline->tasks = (void *)at;
    pipeline->scratch = at + tasks;
    at = pipeline->scratch + pipeline->task_count * pipeline->scratch_bytes;
    for (size_t i = 0; i < passages; i++, at += each) {
        struct passage *passage = (void *)at;
        memset(passage, 0, sizeof *passage);
        passage->item = at + rounded(sizeof *passage);
        list_add_tail(&pipeline->free_passages, &passage->node);
    }
    return 0;
}

static int pipeline_new(const weir_pipeline_spec *spec, size_t stage_spec_bytes,
                        struct pipeline **ret_pipeline)
{
    struct pipeline *pipeline = flow_alloc(sizeof *pipeline, spec->name);
    int r;

    if (!pipeline) return -ENOMEM;
    pipeline->spec = *spec;
    list_init(&pipeline->free_passages);
    list_init(&pipeline->finishers);
    r = make_stages(pipeline, stage_spec_bytes);
    if (r == 0) r = make_room(pipeline);
    if (r < 0) {
        pipeline_free(pipeline);
        return r;
    }
    pipeline->spec.name = pipeline->object.name;
    pipeline->spec.stages = NULL; /* the caller's */
    pipeline->tasks_left = pipeline->task_count;
    pipeline->drops = pipeline->stages[0].spec.overflow >= WEIR_DROP_NEWEST;
    *ret_pipeline = pipeline;
    return 0;
}

static int spawn_tasks(struct pipeline *pipeline, weir_scope *scope, unsigned *ret_count)
{
    unsigned number = 0;

    for (unsigned i = 0; i < pipeline->stage_count; i++) {
        const struct stage *stage = &pipeline->stages[i];
        unsigned count = (unsigned)stage->spec.concurrency_max;
        for (unsigned k = 0; k < count; k++) {
            struct stage_task arg = {pipeline, i, number};
            weir_task_spec task = {.fn = stage_main,
                                   .arg = &arg,
                                   .arg_bytes = sizeof arg,
                                   .name = stage->name,
                                   .stack_bytes = stage->spec.stack_bytes};
            int r = weir_task_spawn(scope, &task, NULL);
            if (r < 0) {
                *ret_count = number;
                return r;
            }
            number++;
        }
    }
    *ret_count = number;
    return 0;
}

/* Not all tasks could be had: those that could leave at once, and the last frees it. */
static void undo(struct pipeline *pipeline, unsigned spawned)
{
    bool none_left;

    handle_close(pipeline->handle);
    pipeline->handle = NULL;
    flow_lock(&pipeline->object);
    pipeline->state = PIPELINE_CLOSED;
    pipeline->aborts = true;
    pipeline->given_up = true;
    pipeline->tasks_left -= pipeline->task_count - spawned;
    none_left = pipeline->tasks_left == 0;
    for (unsigned i = 0; i < pipeline->stage_count; i++) {
        waiter_wake_all(&pipeline->stages[i].servers, 0);
    }
    flow_unlock(&pipeline->object);
    if (none_left) pipeline_release(worker_self(), &pipeline->object.belonging);
}

int weir_pipeline_open_sized(weir_scope *scope, size_t spec_bytes, size_t stage_spec_bytes,
                             const weir_pipeline_spec *given, weir_pipeline **ret_pipeline)
{
    struct worker *worker = worker_self();
    struct pipeline *pipeline;
    weir_pipeline_spec spec;
    unsigned spawned;
    void *handle;
    int r;

    if (!task_self()) return refuse_no_task("weir_pipeline_open");
    scope_check(scope, "weir_pipeline_open");
    spec_copy(&spec, sizeof spec, given, spec_bytes);
    r = check_spec(&spec);
    if (r < 0) return r;
    r = pipeline_new(&spec, stage_spec_bytes, &pipeline);
    if (r < 0) return r;
    if (pipeline->task_count > scope->max_tasks && scope->overflow == WEIR_WAIT) {
        r = refuse("pipeline '%s': its stages need %u tasks, and max_tasks of scope '%s' is %zu",
                   spec.name, pipeline->task_count, scope->name, scope->max_tasks);
        goto fail_free;
    }
    r = handle_open(HANDLE_PIPELINE, pipeline, &pipeline->handle);
    if (r < 0) goto fail_free;
    r = scope_own(scope, worker, &pipeline->object.belonging, &pipeline_kind);
    if (r < 0) goto fail_handle;
    open_meters(pipeline); /* before its tasks run on other workers */
    handle = pipeline->handle;
    r = spawn_tasks(pipeline, scope, &spawned);
    if (r < 0) {
        undo(pipeline, spawned);
    } else {
        *ret_pipeline = handle;
    }
    return r;

fail_handle:
    handle_close(pipeline->handle);
fail_free:
    pipeline_free(pipeline);
    return r;
}

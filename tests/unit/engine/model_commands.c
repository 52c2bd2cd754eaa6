/* model_commands.c - the commands of the engine, naively. */
#include <errno.h>
#include <stdlib.h>

#include "unit/engine/model_rules.h"

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void fill_limits(const struct engine_job_spec *spec, struct model_job *job)
{
    struct model_name names[ENGINE_LIMIT_KEYS_MAX];
    for (uint32_t i = 0; i < spec->limit_key_count; i++)
        names[i] = model_name_of(spec->limit_keys[i]);
    qsort(names, spec->limit_key_count, sizeof *names, by_name);
    for (uint32_t i = 0; i < spec->limit_key_count; i++) {
        if (i == 0 || !model_same(&names[i], &names[i - 1]))
            job->limits[job->limit_count++] = names[i];
    }
}

static struct model_job job_of(const struct model *model, const struct engine_job_spec *spec)
{
    struct model_job job = {.state = ENGINE_HELD,
                            .created_ms = model->now_ms,
                            .expires_ms = spec->expires_ms,
                            .payload_bytes = (uint32_t)spec->payload.count,
                            .version = spec->version,
                            .timeout_ms = spec->timeout_ms,
                            .priority = spec->priority,
                            .idempotent = spec->idempotent,
                            .queue = model_name_of(spec->queue),
                            .kind = model_name_of(spec->kind),
                            .unique = model_name_of(spec->unique_key),
                            .idempotency = model_name_of(spec->idempotency_key),
                            .fair = model_name_of(spec->fairness_key),
                            .order = model_name_of(spec->order_key),
                            .unique_ms = spec->unique_ms,
                            .idempotency_ms = spec->idempotency_ms,
                            .unique_states = spec->unique_states,
                            .attempts_max = spec->retry.attempts_max,
                            .backoff_ms = spec->retry.backoff_ms,
                            .backoff_ms_max = spec->retry.backoff_ms_max,
                            .jitter = spec->retry.jitter};
    job.batch = spec->batch;
    job.gathers = job.batch_open = spec->gathers != 0;
    job.all_done = spec->gathers == ENGINE_WHEN_DONE;
    if (job.unique_states == 0) job.unique_states = ENGINE_LIVE_STATES;
    if (job.attempts_max == 0) job.attempts_max = 1;
    if (spec->retry.never_count > 0) job.never = model_name_of(spec->retry.never[0]);
    fill_limits(spec, &job);
    return job;
}

static struct model_job *open_batch(struct model *model, uint64_t batch)
{
    struct model_job *job = model_find(model, batch);
    return job && job->state == ENGINE_HELD && job->gathers && job->batch_open ? job : NULL;
}

int model_batch_seal(struct model *model, int64_t now_ms, uint64_t batch)
{
    struct model_job *job;

    model_begin(model, now_ms);
    job = open_batch(model, batch);
    if (!job) return -ENOENT;
    job->batch_open = false;
    model_set_timers(model, job);
    model_gathered(model, job);
    job = model_find(model, batch);
    return job ? job->state : ENGINE_DEAD;
}

int model_enqueue(struct model *model, int64_t now_ms, const struct engine_job_spec *spec,
                  struct engine_enqueued *ret_enqueued)
{
    struct model_name name = model_name_of(spec->queue);
    struct model_limit *queue = model_limit_of(model->queues, &name);
    struct model_job *twin, *free_place = NULL;
    struct model_job to;
    uint32_t depth_max = queue->depth_max ? queue->depth_max : model->config.depth_max;
    int64_t run_at_ms;

    model_begin(model, now_ms);
    if (spec->retry.attempts_max > 1 && !spec->idempotent) return -EINVAL;
    if (spec->expires_ms && spec->expires_ms <= model->now_ms) return -EINVAL;
    to = job_of(model, spec);
    twin = model_idempotent_twin(model, &name, &to.idempotency);
    if (!twin) twin = model_unique_holder(model, &name, &to.unique);
    if (twin) {
        *ret_enqueued = (struct engine_enqueued){twin->id, true};
        return 0;
    }
    if (queue->draining) return WEIR_ESTOPPING;
    if (model_count(model, &name, ENGINE_LIVE_STATES & ~ENGINE_STATE_BIT(ENGINE_LEASED)) >=
        depth_max) {
        if (!queue->waits) queue->counted.rejected++;
        return WEIR_EOVERLOAD;
    }
    if (spec->batch && !open_batch(model, spec->batch)) return -ENOENT;
    to.id = ++model->last_id;
    run_at_ms = spec->run_at_ms > model->now_ms ? spec->run_at_ms : model->now_ms;
    if (spec->gathers || (!model_empty(&to.order) && model_order_is_taken(model, &to, true))) {
        to.when_ms = run_at_ms;
    } else {
        model_onward(model, &to, run_at_ms);
    }
    for (int i = 0; i < MODEL_JOBS && !free_place; i++) {
        if (!model->jobs[i].state) free_place = &model->jobs[i];
    }
    if (!free_place) abort();
    memset(free_place, 0, sizeof *free_place);
    model_move(model, free_place, to);
    if (spec->batch) {
        open_batch(model, spec->batch)->members++;
        open_batch(model, spec->batch)->members_left++;
        model_set_timers(model, open_batch(model, spec->batch));
    }
    queue->counted.enqueued++;
    *ret_enqueued = (struct engine_enqueued){to.id, false};
    return 0;
}

static bool knows(const struct engine_claim_spec *spec, const struct model_job *job)
{
    if (spec->kind_count == 0) return true;
    for (uint32_t i = 0; i < spec->kind_count; i++) {
        struct model_name kind = model_name_of(spec->kinds[i].name);
        if (model_same(&kind, &job->kind) && job->version >= spec->kinds[i].version_min &&
            job->version <= spec->kinds[i].version_max)
            return true;
    }
    return false;
}

static struct model_job *candidate(struct model *model, const struct model_name *queue,
                                   const struct engine_claim_spec *spec)
{
    struct model_job *best = NULL;
    for (int i = 0; i < MODEL_JOBS; i++) {
        struct model_job *job = &model->jobs[i];
        if (job->state != ENGINE_READY || !model_same(&job->queue, queue) || !knows(spec, job))
            continue;
        if (!best || model_sooner(model, job, best)) best = job;
    }
    return best;
}

static void take_token(struct model *model, struct model_limit *limit, bool is_key)
{
    int64_t now = model->now_ms * limit->rate.count;
    if (limit->rate.count == 0) return;
    limit->tat = (limit->tat > now ? limit->tat : now) + limit->rate.period_ms;
    if (is_key) model_set_timer(model, limit);
}

static bool is_open(const struct model *model, struct model_limit *queue)
{
    if (queue->paused) return false;
    if (queue->concurrency &&
        model_count(model, &queue->name, ENGINE_STATE_BIT(ENGINE_LEASED)) >= queue->concurrency)
        return false;
    if (model_tokens(&queue->rate, queue->tat, model->now_ms) > 0) return true;
    if (model_count(model, &queue->name, ENGINE_STATE_BIT(ENGINE_READY)) > 0) {
        queue->opens_ms = model->now_ms + 1;
        while (model_tokens(&queue->rate, queue->tat, queue->opens_ms) == 0) queue->opens_ms++;
    }
    return false;
}

static void lease(struct model *model, struct model_job *job, int64_t lease_ms,
                  struct engine_claimed *claimed)
{
    struct model_limit *queue = model_queue_of(model, job);
    struct model_job to = *job;

    queue->counted.started++;
    queue->counted.wait_ms += (uint64_t)(model->now_ms - job->when_ms);
    model_give(model, model_group_of(model, job, ENGINE_READY, 0));
    to.state = ENGINE_LEASED;
    to.runs++;
    to.attempts++;
    to.mark = ++model->last_token;
    if (to.timeout_ms && to.timeout_ms < lease_ms) lease_ms = to.timeout_ms;
    to.when_ms = model->now_ms + lease_ms;
    to.started_ms = model->now_ms;
    model_move(model, job, to);
    for (unsigned i = 0; i < to.limit_count; i++)
        take_token(model, model_key_of(model, &to, i), true);
    take_token(model, queue, false);
    *claimed = (struct engine_claimed){.id = to.id,
                                       .token = to.mark,
                                       .payload_bytes = to.payload_bytes,
                                       .version = to.version,
                                       .kind = {job->kind.text, strlen(job->kind.text)},
                                       .run = (uint16_t)to.runs,
                                       .attempt = (uint16_t)to.attempts,
                                       .attempts_max = (uint16_t)to.attempts_max,
                                       .priority = (uint8_t)to.priority,
                                       .created_ms = to.created_ms,
                                       .lease_until_ms = to.when_ms};
}

int model_claim(struct model *model, int64_t now_ms, const struct engine_claim_spec *spec,
                struct engine_claimed *ret_claimed)
{
    struct model_name name = model_name_of(spec->queue);
    struct model_limit *queue = model_limit_of(model->queues, &name);
    int found = 0;
    int skips = ENGINE_SKIP_MAX;

    model_begin(model, now_ms);
    while (found < (int)spec->count && is_open(model, queue)) {
        struct model_job *job = candidate(model, &name, spec);
        unsigned closed = 0;
        if (!job) break;
        if (job->expires_ms && job->expires_ms <= model->now_ms) {
            model_queue_of(model, job)->counted.expired++;
            model_end(model, job, ENGINE_EXPIRED, 0);
            if (--skips == 0) break;
            continue;
        }
        while (closed < job->limit_count && model_room(model, model_key_of(model, job, closed)) > 0)
            closed++;
        if (closed < job->limit_count) {
            struct model_job to = *job;
            to.state = ENGINE_BLOCKED;
            to.blocked_on = closed;
            model_move(model, job, to);
            model_topups(model, &to);
            if (--skips == 0) break;
            continue;
        }
        lease(model, job, spec->lease_ms, &ret_claimed[found++]);
    }
    return found;
}

static struct model_job *leased(struct model *model, uint64_t id, uint64_t token, int *ret_error)
{
    struct model_job *job = model_find(model, id);
    *ret_error = job ? -ESTALE : -ENOENT;
    return job && job->state == ENGINE_LEASED && job->mark == token ? job : NULL;
}

int model_renew(struct model *model, int64_t now_ms, uint64_t id, uint64_t token, int64_t lease_ms,
                struct engine_renewed *ret_renewed)
{
    struct model_job *job;
    int64_t until_ms;
    int r;

    model_begin(model, now_ms);
    job = leased(model, id, token, &r);
    if (!job) return r;
    until_ms = model->now_ms + lease_ms;
    if (job->timeout_ms && until_ms > job->started_ms + job->timeout_ms) {
        until_ms = job->started_ms + job->timeout_ms;
    }
    if (until_ms != job->when_ms) model_set_timers(model, job);
    job->when_ms = until_ms;
    ret_renewed->lease_until_ms = job->when_ms;
    ret_renewed->orders = job->cancel ? ENGINE_GO_CANCELLED : 0u;
    return 0;
}

int model_progress(struct model *model, int64_t now_ms, uint64_t id, uint64_t token,
                   uint32_t progress)
{
    struct model_job *job;
    int r;

    model_begin(model, now_ms);
    job = leased(model, id, token, &r);
    if (!job) return r;
    job->note = progress;
    model_set_timers(model, job);
    return 0;
}

int model_ack(struct model *model, int64_t now_ms, uint64_t id, uint64_t token,
              struct engine_slice result)
{
    struct model_job *job;
    int r;

    model_begin(model, now_ms);
    job = leased(model, id, token, &r);
    if (!job) return r;
    model_queue_of(model, job)->counted.done++;
    model_queue_of(model, job)->counted.run_ms += (uint64_t)(model->now_ms - job->started_ms);
    model_end(model, job, ENGINE_DONE, result.count);
    return 0;
}

/* ---- Failing ---- */

static void leave_lease(struct model *model, struct model_job *job, int64_t run_at_ms,
                        unsigned attempts)
{
    struct model_job to = *job;
    to.attempts = attempts;
    model_onward(model, &to, run_at_ms);
    model_move(model, job, to);
    model_topups(model, &to);
}

static int64_t backoff(const struct model *model, const struct model_job *job)
{
    uint64_t wait_ms = job->backoff_ms;
    for (unsigned i = 1; i < job->attempts; i++) {
        if (wait_ms < job->backoff_ms_max) wait_ms *= 2;
    }
    if (wait_ms > job->backoff_ms_max) wait_ms = job->backoff_ms_max;
    if (!job->jitter || wait_ms == 0) return (int64_t)wait_ms;
    return (int64_t)((hash_number(hash_number(model->config.seed ^ job->id) + job->runs) >> 32) *
                         (wait_ms + 1) >>
                     32);
}

static int failed(struct model *model, struct model_job *job, const struct engine_failure *failure)
{
    struct model_limit *queue = model_queue_of(model, job);
    struct model_name class = model_name_of(failure->class);
    struct model_error *error = &job->errors[job->error_count++];
    enum engine_state state = ENGINE_SCHEDULED;
    uint64_t id = job->id;

    *error = (struct model_error){job->runs, model->now_ms, class, model_name_of(failure->message)};
    if (job->error_count > ENGINE_ERRORS_KEPT) {
        job->error_count--;
        memmove(job->errors, job->errors + 1, sizeof job->errors - sizeof *job->errors);
    }
    queue->counted.failed++;
    if (job->cancel) {
        state = ENGINE_CANCELLED;
        queue->counted.cancelled++;
    } else if (failure->dead || job->attempts >= job->attempts_max ||
               (!model_empty(&job->never) && model_same(&job->never, &class))) {
        state = ENGINE_DEAD;
        queue->counted.died++;
    } else if (job->expires_ms && job->expires_ms <= model->now_ms) {
        state = ENGINE_EXPIRED;
        queue->counted.expired++;
    }
    if (state == ENGINE_SCHEDULED) {
        int64_t delay_ms = failure->delay_ms >= 0 ? failure->delay_ms : backoff(model, job);
        leave_lease(model, job, model->now_ms + delay_ms, job->attempts);
    } else {
        model_end(model, job, state, 0);
    }
    job = model_find(model, id);
    return job ? (int)job->state : (int)state;
}

int model_fail(struct model *model, int64_t now_ms, uint64_t id, uint64_t token,
               const struct engine_failure *failure)
{
    struct model_job *job;
    int r;

    model_begin(model, now_ms);
    job = leased(model, id, token, &r);
    return job ? failed(model, job, failure) : r;
}

int model_release(struct model *model, int64_t now_ms, uint64_t id, uint64_t token,
                  int64_t delay_ms)
{
    struct model_job *job;
    int r;

    model_begin(model, now_ms);
    job = leased(model, id, token, &r);
    if (!job) return r;
    if (job->cancel) {
        model_queue_of(model, job)->counted.cancelled++;
        model_end(model, job, ENGINE_CANCELLED, 0);
    } else {
        leave_lease(model, job, model->now_ms + delay_ms, job->attempts - 1);
    }
    return 0;
}

int model_cancel(struct model *model, int64_t now_ms, uint64_t id)
{
    struct model_job *job = model_find(model, id);

    model_begin(model, now_ms);
    if (!job) return -ENOENT;
    if (job->state >= ENGINE_DONE) return -EBUSY;
    if (job->state == ENGINE_LEASED) {
        if (!job->cancel) model_set_timers(model, job);
        job->cancel = true;
        return ENGINE_LEASED;
    }
    model_queue_of(model, job)->counted.cancelled++;
    model_end(model, job, ENGINE_CANCELLED, 0);
    return ENGINE_CANCELLED;
}

/* ---- Queues, keys, dead letters ---- */

static struct engine_rate rate_of(const struct engine_rate *rate)
{
    struct engine_rate said = *rate;
    if (said.count == 0) return (struct engine_rate){0};
    if (said.burst == 0) said.burst = 1;
    return said;
}

static void set_rate(struct model_limit *limit, const struct engine_rate *rate)
{
    struct engine_rate said = rate_of(rate);
    if (memcmp(&said, &limit->rate, sizeof said) == 0) return;
    limit->rate = said;
    limit->tat = 0;
}

int model_queue_set(struct model *model, int64_t now_ms, const struct engine_queue_spec *spec)
{
    struct model_name name = model_name_of(spec->name);
    struct model_limit *queue = model_limit_of(model->queues, &name);

    model_begin(model, now_ms);
    queue->concurrency = spec->concurrency;
    queue->depth_max = spec->depth_max;
    queue->paused = spec->paused;
    queue->draining = spec->draining;
    queue->waits = spec->overflow == ENGINE_WAIT;
    set_rate(queue, &spec->rate);
    return 0;
}

int model_key_set(struct model *model, int64_t now_ms, const struct engine_key_spec *spec)
{
    struct model_name name = model_name_of(spec->name);
    struct model_limit *key = model_limit_of(model->keys, &name);

    model_begin(model, now_ms);
    key->concurrency = spec->concurrency;
    key->weight = spec->weight;
    set_rate(key, &spec->rate);
    model_set_timer(model, key);
    model_topup(model, &name);
    return 0;
}

int model_dead_list(const struct model *model, struct engine_slice queue, uint64_t after,
                    uint64_t *ret_ids, int ids_max)
{
    struct model_name name = model_name_of(queue);
    int found = 0;

    while (found < ids_max) {
        uint64_t next = UINT64_MAX;
        for (int i = 0; i < MODEL_JOBS; i++) {
            const struct model_job *job = &model->jobs[i];
            if (job->state == ENGINE_DEAD && model_same(&job->queue, &name) && job->id > after &&
                job->id < next)
                next = job->id;
        }
        if (next == UINT64_MAX) break;
        ret_ids[found++] = after = next;
    }
    return found;
}

int model_dead_replay(struct model *model, int64_t now_ms, uint64_t id,
                      const struct engine_slice *payload)
{
    struct model_job *job = model_find(model, id);
    struct model_job *other;
    struct model_job to;

    model_begin(model, now_ms);
    if (!job) return -ENOENT;
    if (job->state != ENGINE_DEAD) return -EBUSY;
    other = model_unique_holder(model, &job->queue, &job->unique);
    if (other && other != job) return -EEXIST;
    if (job->expires_ms && job->expires_ms <= model->now_ms) return -EINVAL;
    to = *job;
    if (payload) to.payload_bytes = (uint32_t)payload->count;
    to.attempts = 0;
    if (!model_empty(&to.order) && model_order_is_taken(model, &to, true)) {
        to.state = ENGINE_HELD;
        to.mark = 0;
        to.when_ms = model->now_ms;
    } else {
        model_onward(model, &to, model->now_ms);
    }
    model_move(model, job, to);
    return to.state;
}

int model_purge(struct model *model, int64_t now_ms, uint64_t id)
{
    struct model_job *job = model_find(model, id);

    model_begin(model, now_ms);
    if (!job) return -ENOENT;
    if (job->state < ENGINE_DONE) return -EBUSY;
    model_forget(model, job);
    return 0;
}

/* ---- Time ---- */

static int64_t timer_of(const struct model_job *job)
{
    int64_t expires_ms = job->expires_ms ? job->expires_ms : INT64_MAX;
    if (job->state == ENGINE_LEASED || job->state >= ENGINE_DONE) return job->when_ms;
    if (job->state == ENGINE_SCHEDULED && job->when_ms < expires_ms) return job->when_ms;
    return expires_ms;
}

static void ring(struct model *model, struct model_job *job)
{
    struct model_job to = *job;

    if (job->state >= ENGINE_DONE) {
        model_forget(model, job);
    } else if (job->state == ENGINE_LEASED) {
        bool overtime = job->timeout_ms && job->when_ms >= job->started_ms + job->timeout_ms;
        const char *class = overtime ? "timeout" : "lost";
        struct engine_failure failure = {
            .class = {class, strlen(class)}, .delay_ms = -1, .dead = !job->idempotent};
        model_queue_of(model, job)->counted.lost++;
        failed(model, job, &failure);
    } else if (job->expires_ms && job->expires_ms <= model->now_ms) {
        model_queue_of(model, job)->counted.expired++;
        model_end(model, job, ENGINE_EXPIRED, 0);
    } else {
        model_onward(model, &to, to.when_ms);
        model_move(model, job, to);
    }
}

static struct model_job *first_timer(struct model *model)
{
    struct model_job *first = NULL;
    for (int i = 0; i < MODEL_JOBS; i++) {
        struct model_job *job = &model->jobs[i];
        if (!job->state || timer_of(job) == INT64_MAX) continue;
        if (!first || timer_of(job) < timer_of(first) ||
            (timer_of(job) == timer_of(first) && job->id < first->id))
            first = job;
    }
    return first;
}

static struct model_limit *first_key(struct model *model)
{
    struct model_limit *first = NULL;
    for (int i = 0; i < MODEL_NAMES; i++) {
        struct model_limit *key = &model->keys[i];
        if (!key->opens_ms) continue;
        if (!first || key->opens_ms < first->opens_ms ||
            (key->opens_ms == first->opens_ms && strcmp(key->name.text, first->name.text) < 0))
            first = key;
    }
    return first;
}

/* 1: there is more of it than steps. */
static int tick_jobs(struct model *model, int *steps_left)
{
    struct model_job *job;
    struct model_limit *key;

    while ((job = first_timer(model)) != NULL && timer_of(job) <= model->now_ms) {
        if ((*steps_left)-- == 0) return 1;
        model_begin(model, 0);
        ring(model, job);
    }
    while ((key = first_key(model)) != NULL && key->opens_ms <= model->now_ms) {
        if ((*steps_left)-- == 0) return 1;
        model_begin(model, 0);
        key->opens_ms = 0;
        model_topup(model, &key->name);
        model_set_timer(model, key);
    }
    for (int i = 0; i < MODEL_NAMES; i++) {
        struct model_limit *queue = &model->queues[i];
        if (queue->opens_ms == 0 || queue->opens_ms > model->now_ms) continue;
        if ((*steps_left)-- == 0) return 1;
        queue->opens_ms = 0;
    }
    return 0;
}

int model_tick(struct model *model, int64_t now_ms)
{
    struct model_schedule *schedule;
    int steps_left = ENGINE_TICK_STEPS;

    model_begin(model, now_ms);
    if (tick_jobs(model, &steps_left)) return 1;
    while ((schedule = model_first_schedule(model)) && schedule->next_ms <= model->now_ms) {
        if (steps_left-- == 0) return 1;
        model_begin(model, 0);
        model_schedule_fire(model, schedule);
    }
    for (int i = 0; i < ENGINE_BULK_CHUNK && model_bulk_is_due(model); i++) {
        if (steps_left-- == 0) return 1;
        model_begin(model, 0);
        model_bulk_go_on(model);
    }
    return model_bulk_is_due(model);
}

int64_t model_next_ms(struct model *model)
{
    const struct model_job *job = first_timer(model);
    const struct model_limit *key = first_key(model);
    const struct model_schedule *schedule = model_first_schedule(model);
    int64_t next_ms = job ? timer_of(job) : INT64_MAX;

    if (model_bulk_is_due(model)) return 0;
    if (key && key->opens_ms < next_ms) next_ms = key->opens_ms;
    if (schedule && schedule->next_ms < next_ms) next_ms = schedule->next_ms;
    for (int i = 0; i < MODEL_NAMES; i++) {
        int64_t opens_ms = model->queues[i].opens_ms;
        if (opens_ms && opens_ms < next_ms) next_ms = opens_ms;
    }
    return next_ms;
}

void model_figures(struct model *model, struct engine_slice queue,
                   struct engine_figures *ret_figures)
{
    struct model_name name = model_name_of(queue);

    *ret_figures = model_limit_of(model->queues, &name)->counted;
    for (int state = 1; state < ENGINE_STATES; state++) {
        ret_figures->by_state[state] = model_count(model, &name, 1u << state);
    }
}

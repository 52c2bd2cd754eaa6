/* admin.c - what is said of queues and keys, and what is done with dead letters. */
#include <errno.h>

#include "engine/state.h"

/* ---- Queues and keys ---- */

struct op_key key_says(const struct key *key)
{
    return (struct op_key){
        .name = atom_text(&key->atom),
        .configured = key->configured,
        .concurrency = key->concurrency,
        .weight = key->weight,
        .rate = key->rate,
        .tat = key->tat,
    };
}

struct op_queue queue_says(const struct queue *queue)
{
    return (struct op_queue){
        .name = atom_text(&queue->atom),
        .configured = queue->configured,
        .paused = queue->paused,
        .draining = queue->draining,
        .waits = queue->waits,
        .depth_max = queue->depth_max,
        .concurrency = queue->concurrency,
        .latency_target_ms = queue->latency_target_ms,
        .rate = queue->rate,
        .tat = queue->tat,
    };
}

enum engine_overflow queue_overflow(const struct engine *engine, const struct queue *queue)
{
    if (queue->configured) return queue->waits ? ENGINE_WAIT : ENGINE_REJECT;
    return engine->config.overflow == ENGINE_WAIT ? ENGINE_WAIT : ENGINE_REJECT;
}

void decide_key_tat(struct engine *engine, uint32_t key, int64_t tat)
{
    struct op op = {.type = OP_KEY, .key = key_says(key_at(engine, key))};
    op.key.tat = tat;
    command_op(engine, &op);
}

void decide_queue_tat(struct engine *engine, uint32_t queue, int64_t tat)
{
    struct op op = {.type = OP_QUEUE, .queue = queue_says(queue_at(engine, queue))};
    op.queue.tat = tat;
    command_op(engine, &op);
}

static struct engine_rate rate_of(const struct engine_rate *rate)
{
    if (rate->count == 0) return (struct engine_rate){0};
    return (struct engine_rate){rate->count, rate->period_ms, rate->burst ? rate->burst : 1};
}

static bool rates_equal(const struct engine_rate *a, const struct engine_rate *b)
{
    return a->count == b->count && a->period_ms == b->period_ms && a->burst == b->burst;
}

int engine_queue_set(struct engine *engine, int64_t now_ms, const struct engine_queue_spec *spec)
{
    struct op op = {.type = OP_QUEUE};
    uint32_t number;
    int r;

    if (spec->name.count == 0 || spec->name.count > ENGINE_NAME_BYTES_MAX) {
        return engine_refuse(engine, -EINVAL, "queue: name is not set or too long");
    }
    if (spec->overflow != ENGINE_REJECT && spec->overflow != ENGINE_WAIT) {
        return engine_refuse(engine, -EINVAL, "queue '%.*s': overflow is not set",
                             (int)spec->name.count, (const char *)spec->name.at);
    }
    if (!rate_valid(&spec->rate)) {
        return engine_refuse(engine, -EINVAL, "queue '%.*s': rate is out of range",
                             (int)spec->name.count, (const char *)spec->name.at);
    }
    r = command_begin(engine, now_ms, 400);
    if (r < 0) return r;
    op.queue = (struct op_queue){
        .name = spec->name,
        .configured = true,
        .paused = spec->paused,
        .draining = spec->draining,
        .waits = spec->overflow == ENGINE_WAIT,
        .depth_max = spec->depth_max,
        .concurrency = spec->concurrency,
        .latency_target_ms = spec->latency_target_ms,
        .rate = rate_of(&spec->rate),
    };
    number = atom_find(engine, ATOM_QUEUE, 0, 0, spec->name);
    /* A rate that has changed begins with a full bucket. */
    if (number && rates_equal(&op.queue.rate, &queue_at(engine, number)->rate)) {
        op.queue.tat = queue_at(engine, number)->tat;
    }
    r = command_op(engine, &op);
    if (r == 0) wake_queue(engine, atom_find(engine, ATOM_QUEUE, 0, 0, spec->name));
    return r;
}

int engine_key_set(struct engine *engine, int64_t now_ms, const struct engine_key_spec *spec)
{
    struct op op = {.type = OP_KEY};
    uint32_t number;
    int r;

    if (spec->name.count == 0 || spec->name.count > ENGINE_NAME_BYTES_MAX) {
        return engine_refuse(engine, -EINVAL, "key: name is not set or too long");
    }
    if (!rate_valid(&spec->rate) || spec->weight > ENGINE_RATE_MAX) {
        return engine_refuse(engine, -EINVAL, "key '%.*s': rate or weight is out of range",
                             (int)spec->name.count, (const char *)spec->name.at);
    }
    r = command_begin(engine, now_ms, 400);
    if (r < 0) return r;
    op.key = (struct op_key){
        .name = spec->name,
        .configured = spec->concurrency || spec->rate.count || spec->weight,
        .concurrency = spec->concurrency,
        .weight = spec->weight,
        .rate = rate_of(&spec->rate),
    };
    number = atom_find(engine, ATOM_KEY, 0, 0, spec->name);
    if (number && rates_equal(&op.key.rate, &key_at(engine, number)->rate)) {
        op.key.tat = key_at(engine, number)->tat;
    }
    r = command_op(engine, &op);
    if (r < 0) return r;
    number = atom_find(engine, ATOM_KEY, 0, 0, spec->name);
    if (number) decide_topup(engine, number);
    return 0;
}

/* ---- Dead letters ---- */

int engine_dead_list(const struct engine *engine, struct engine_slice queue, uint64_t after,
                     uint64_t *ret_ids, int ids_max)
{
    uint32_t number = atom_find(engine, ATOM_QUEUE, 0, 0, queue);
    int count = 0;

    while (number && count < ids_max) {
        uint32_t job = queue_next_dead(engine, queue_at(engine, number), after);
        if (!job) break;
        after = job_at(engine, job)->id;
        ret_ids[count++] = after;
    }
    return count;
}

static int check_replay(struct engine *engine, const struct job *job,
                        const struct engine_slice *payload, struct engine_slice trace)
{
    struct engine_slice key = job_unique_key(job);
    uint32_t other;

    if (job->state != ENGINE_DEAD) {
        return engine_refuse(engine, -EBUSY, "job %llu: is %s, no dead letter",
                             (unsigned long long)job->id, engine_state_names[job->state]);
    }
    if (payload && payload->count > engine->config.payload_bytes_max) {
        return engine_refuse(engine, -EINVAL, "replay: payload has %zu bytes, more than %u",
                             payload->count, engine->config.payload_bytes_max);
    }
    if (payload && trace.count > ENGINE_NAME_BYTES_MAX) {
        return engine_refuse(engine, -EINVAL, "replay: trace has %zu bytes, more than %d",
                             trace.count, ENGINE_NAME_BYTES_MAX);
    }
    other = key.count == 0
                ? 0
                : hold_find(engine, HOLD_UNIQUE, stage_at(engine, job->stage)->atom.scope, key);
    if (other && job_at(engine, other) != job && unique_held(engine, job_at(engine, other))) {
        return engine_refuse(engine, -EEXIST, "job %llu: job %llu has its unique key now",
                             (unsigned long long)job->id,
                             (unsigned long long)job_at(engine, other)->id);
    }
    if (job->expires_ms && job->expires_ms <= engine->now_ms) {
        return engine_refuse(engine, -EINVAL, "job %llu: its expires_ms has passed",
                             (unsigned long long)job->id);
    }
    return 0;
}

int engine_dead_replay(struct engine *engine, int64_t now_ms, uint64_t id,
                       const struct engine_slice *payload, struct engine_slice trace)
{
    int r = command_begin(engine, now_ms, payload ? payload->count + trace.count : 0);
    uint32_t number = r < 0 ? 0 : job_find(engine, id);
    const struct job *job;
    struct op_set set;

    if (r < 0) return r;
    if (!number)
        return engine_refuse(engine, -ENOENT, "job %llu: there is none", (unsigned long long)id);
    job = job_at(engine, number);
    r = check_replay(engine, job, payload, trace);
    if (r == 0 && payload)
        r = write_again(engine, number, *payload, trace, (struct engine_slice){0});
    if (r < 0) return r;
    set_from(job, &set);
    set.attempts = 0;
    if (job_chain(job) &&
        (chain_at(engine, job_chain(job))->active > 0 || chain_at(engine, job_chain(job))->held)) {
        /* It waits for who is at work; then it is the first, being the oldest. */
        set.state = ENGINE_HELD;
        set.mark = 0;
        set.when_ms = engine->now_ms;
    } else {
        fill_onward(engine, job, engine->now_ms, &set);
    }
    decide_set(engine, number, &set);
    return set.state;
}

int engine_purge(struct engine *engine, int64_t now_ms, uint64_t id)
{
    struct op op = {.type = OP_FORGET, .forget = id};
    int r = command_begin(engine, now_ms, 100);
    uint32_t number = r < 0 ? 0 : job_find(engine, id);

    if (r < 0) return r;
    if (!number)
        return engine_refuse(engine, -ENOENT, "job %llu: there is none", (unsigned long long)id);
    if (job_at(engine, number)->state < ENGINE_DONE) {
        return engine_refuse(engine, -EBUSY, "job %llu: has not ended", (unsigned long long)id);
    }
    return command_op(engine, &op);
}

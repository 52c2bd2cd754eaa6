/* enqueue.c - a new job: what it says is checked, then whether it may come in, then where it waits
 * first. */
#include <errno.h>

#include "engine/state.h"

static bool name_fits(struct engine_slice name)
{
    return name.count <= ENGINE_NAME_BYTES_MAX && (name.count == 0 || name.at);
}

static int check_name(struct engine *engine, const char *name, struct engine_slice text)
{
    if (name_fits(text)) return 0;
    return engine_refuse(engine, -EINVAL, "job: %s has %zu bytes, more than %d", name, text.count,
                         ENGINE_NAME_BYTES_MAX);
}

static int check_names(struct engine *engine, const struct engine_job_spec *spec)
{
    int r;

    if (spec->queue.count == 0) return engine_refuse(engine, -EINVAL, "job: queue is not set");
    if ((r = check_name(engine, "queue", spec->queue)) < 0) return r;
    if (spec->kind.count == 0) return engine_refuse(engine, -EINVAL, "job: kind is not set");
    if ((r = check_name(engine, "kind", spec->kind)) < 0) return r;
    if ((r = check_name(engine, "tags", spec->tags)) < 0) return r;
    if ((r = check_name(engine, "unique_key", spec->unique_key)) < 0) return r;
    if ((r = check_name(engine, "idempotency_key", spec->idempotency_key)) < 0) return r;
    if ((r = check_name(engine, "fairness_key", spec->fairness_key)) < 0) return r;
    if ((r = check_name(engine, "order_key", spec->order_key)) < 0) return r;
    if (spec->limit_key_count > ENGINE_LIMIT_KEYS_MAX) {
        return engine_refuse(engine, -EINVAL, "job: %u limit_keys, more than %d",
                             spec->limit_key_count, ENGINE_LIMIT_KEYS_MAX);
    }
    for (uint32_t i = 0; i < spec->limit_key_count; i++) {
        if (spec->limit_keys[i].count == 0 || !name_fits(spec->limit_keys[i])) {
            return engine_refuse(engine, -EINVAL, "job: limit_keys[%u] is empty or too long", i);
        }
    }
    return 0;
}

static int check_retry(struct engine *engine, const struct engine_job_spec *spec)
{
    const struct engine_retry *retry = &spec->retry;

    if (retry->attempts_max > 1 && !spec->idempotent) {
        return engine_refuse(engine, -EINVAL,
                             "job: retry.attempts_max is %u, but it is not declared idempotent",
                             retry->attempts_max);
    }
    if (retry->backoff_ms_max < retry->backoff_ms) {
        return engine_refuse(engine, -EINVAL, "job: retry.backoff_ms_max is less than backoff_ms");
    }
    if (retry->never_count > ENGINE_CLASSES_MAX) {
        return engine_refuse(engine, -EINVAL, "job: %u classes in retry.never, more than %d",
                             retry->never_count, ENGINE_CLASSES_MAX);
    }
    for (uint32_t i = 0; i < retry->never_count; i++) {
        if (retry->never[i].count == 0 || !name_fits(retry->never[i])) {
            return engine_refuse(engine, -EINVAL, "job: retry.never[%u] is empty or too long", i);
        }
    }
    return 0;
}

int check_spec(struct engine *engine, const struct engine_job_spec *spec)
{
    int r = check_names(engine, spec);

    if (r == 0) r = check_retry(engine, spec);
    if (r < 0) return r;
    if (spec->payload.count > engine->config.payload_bytes_max) {
        return engine_refuse(engine, -EINVAL, "job: payload has %zu bytes, more than %u",
                             spec->payload.count, engine->config.payload_bytes_max);
    }
    if (spec->trace.count > ENGINE_NAME_BYTES_MAX) {
        return engine_refuse(engine, -EINVAL, "job: trace has %zu bytes, more than %d",
                             spec->trace.count, ENGINE_NAME_BYTES_MAX);
    }
    if (spec->gathers > ENGINE_WHEN_DONE || (spec->gathers && spec->batch)) {
        return engine_refuse(engine, -EINVAL,
                             "job: gathers is unknown, or the job is in a batch itself");
    }
    if (spec->priority > ENGINE_PRIORITY_MAX) {
        return engine_refuse(engine, -EINVAL, "job: priority is %u, more than %d", spec->priority,
                             ENGINE_PRIORITY_MAX);
    }
    if (spec->run_at_ms < 0 || spec->run_at_ms > ENGINE_TIME_MS_MAX || spec->expires_ms < 0 ||
        spec->expires_ms > ENGINE_TIME_MS_MAX) {
        return engine_refuse(engine, -EINVAL, "job: run_at_ms or expires_ms is no time");
    }
    if (spec->expires_ms && spec->expires_ms <= engine->now_ms) {
        return engine_refuse(engine, -EINVAL, "job: expires_ms has passed");
    }
    if (spec->unique_ms < 0 || spec->unique_ms > ENGINE_SPAN_MS_MAX || spec->idempotency_ms < 0 ||
        spec->idempotency_ms > ENGINE_SPAN_MS_MAX ||
        (spec->idempotency_key.count > 0 && spec->idempotency_ms == 0)) {
        return engine_refuse(engine, -EINVAL,
                             "job: the window of a key is missing or out of range");
    }
    /* A job that holds its key only now and then could meet another one that does. */
    if (spec->unique_states >= ENGINE_STATE_BIT(ENGINE_STATES) ||
        (spec->unique_states && ENGINE_LIVE_STATES & ~spec->unique_states)) {
        return engine_refuse(engine, -EINVAL,
                             "job: unique_states leaves out a state of a job that has not ended");
    }
    return 0;
}

/* Who came first with one of the keys, in its window; 0: nobody. */
static uint32_t find_duplicate(const struct engine *engine, uint32_t queue,
                               const struct engine_job_spec *spec, struct hold_looked *looked)
{
    uint32_t number;

    if (spec->idempotency_key.count > 0 &&
        (number = hold_look(engine, HOLD_IDEMPOTENCY, queue, spec->idempotency_key,
                            &looked[HOLD_IDEMPOTENCY])) != 0) {
        const struct job *job = job_at(engine, number);
        const struct policy_text *says = &policy_at(engine, job->policy)->says;
        if (engine->now_ms < job->created_ms + says->idempotency_ms) return number;
    }
    if (spec->unique_key.count > 0 &&
        (number = hold_look(engine, HOLD_UNIQUE, queue, spec->unique_key, &looked[HOLD_UNIQUE])) !=
            0 &&
        unique_held(engine, job_at(engine, number)))
        return number;
    return 0;
}

bool unique_held(const struct engine *engine, const struct job *job)
{
    const struct policy_text *says = &policy_at(engine, job->policy)->says;
    if (!hold_by_state(engine, HOLD_UNIQUE, job)) return false;
    return says->unique_ms == 0 || engine->now_ms < job->created_ms + says->unique_ms;
}

uint32_t queue_depth(const struct queue *queue)
{
    return queue->by_state[ENGINE_SCHEDULED] + queue->by_state[ENGINE_HELD] +
           queue->by_state[ENGINE_READY] + queue->by_state[ENGINE_BLOCKED];
}

uint32_t queue_depth_max(const struct engine *engine, const struct queue *queue)
{
    return queue->depth_max ? queue->depth_max : engine->config.depth_max;
}

bool engine_has_room(const struct engine *engine, struct engine_slice name)
{
    uint32_t number = atom_find(engine, ATOM_QUEUE, 0, 0, name);
    const struct queue *queue = number ? queue_at(engine, number) : NULL;
    return !queue || queue->draining || queue_depth(queue) < queue_depth_max(engine, queue);
}

bool engine_queue_waits(const struct engine *engine, struct engine_slice name)
{
    struct engine_queue_info info;

    if (engine_queue_get(engine, name, &info) < 0) return engine->config.overflow == ENGINE_WAIT;
    return info.spec.overflow == ENGINE_WAIT;
}

static int check_room(struct engine *engine, uint32_t number)
{
    struct queue *queue = queue_at(engine, number);
    uint32_t depth_max = queue_depth_max(engine, queue);

    if (queue->draining) {
        return engine_refuse(engine, WEIR_ESTOPPING, "queue '%.*s': is draining",
                             (int)queue->atom.bytes, queue->atom.text);
    }
    if (queue_depth(queue) < depth_max) return 0;
    /* Who waits is not refused. */
    if (queue_overflow(engine, queue) != ENGINE_WAIT) queue->counted.rejected++;
    return engine_refuse(engine, WEIR_EOVERLOAD, "queue '%.*s': %u jobs wait, its depth_max",
                         (int)queue->atom.bytes, queue->atom.text, depth_max);
}

static bool slice_before(struct engine_slice a, struct engine_slice b)
{
    size_t common = a.count < b.count ? a.count : b.count;
    int order = common ? memcmp(a.at, b.at, common) : 0;
    return order != 0 ? order < 0 : a.count < b.count;
}

/* By name, each once: every job asks for its keys in the same order. */
static void sort_limits(const struct engine_job_spec *spec, struct op_job *job)
{
    for (uint32_t i = 0; i < spec->limit_key_count; i++) {
        struct engine_slice key = spec->limit_keys[i];
        uint32_t at = job->limit_key_count;
        while (at > 0 && slice_before(key, job->limit_keys[at - 1])) at--;
        if (at > 0 && !slice_before(job->limit_keys[at - 1], key)) continue;
        memmove(job->limit_keys + at + 1, job->limit_keys + at,
                (job->limit_key_count - at) * sizeof key);
        job->limit_keys[at] = key;
        job->limit_key_count++;
    }
}

void fill_policy(const struct engine_job_spec *spec, struct writer *writer)
{
    struct policy_text policy = {
        .attempts_max = spec->retry.attempts_max ? spec->retry.attempts_max : 1,
        .backoff_ms = spec->retry.backoff_ms,
        .backoff_ms_max = spec->retry.backoff_ms_max,
        .jitter = spec->retry.jitter,
        .idempotent = spec->idempotent,
        .timeout_ms = spec->timeout_ms,
        .unique_ms = spec->unique_ms,
        .unique_states = spec->unique_states ? spec->unique_states : ENGINE_LIVE_STATES,
        .idempotency_ms = spec->idempotency_ms,
        .never_count = spec->retry.never_count,
    };
    for (uint32_t i = 0; i < policy.never_count; i++) policy.never[i] = spec->retry.never[i];
    policy_write(writer, &policy);
}

void fill_job(struct engine *engine, const struct engine_job_spec *spec, struct op_job *job)
{
    job->queue = spec->queue;
    job->kind = spec->kind;
    job->version = spec->version;
    job->priority = spec->priority;
    job->created_ms = engine->now_ms;
    job->expires_ms = spec->expires_ms;
    job->tags = spec->tags;
    job->unique_key = spec->unique_key;
    job->idempotency_key = spec->idempotency_key;
    job->fairness_key = spec->fairness_key;
    job->order_key = spec->order_key;
    job->batch = spec->batch;
    job->has_payload = true;
    job->payload = spec->payload;
    job->payload_bytes = (uint32_t)spec->payload.count;
    job->trace = spec->trace;
    sort_limits(spec, job);
}

/* The row that will be, as far as its place depends on it: the names are found or made first. */
struct probe {
    struct job job;
    uint32_t queue;
    uint32_t chain;
    struct hold_looked looked[HOLDS];
    union {
        uint32_t room[sizeof(struct extra) / sizeof(uint32_t) + ENGINE_LIMIT_KEYS_MAX];
        struct extra extra;
    };
};

static void probe_end(struct engine *engine, struct probe *probe)
{
    for (uint32_t i = 0; i < probe->extra.limit_count; i++) {
        atom_unref(engine, ATOM_KEY, probe->extra.words[i]);
    }
    if (probe->chain) atom_unref(engine, ATOM_CHAIN, probe->chain);
    if (probe->job.fair) atom_unref(engine, ATOM_KEY, probe->job.fair);
    if (probe->job.stage) atom_unref(engine, ATOM_STAGE, probe->job.stage);
    atom_unref(engine, ATOM_QUEUE, probe->queue);
}

static int probe_begin(struct engine *engine, const struct op_job *op, struct probe *probe)
{
    probe->job.priority = op->priority;
    probe->job.extra = &probe->extra;
    probe->job.stage = atom_get(engine, ATOM_STAGE, probe->queue, op->version, op->kind);
    if (!probe->job.stage) return -ENOMEM;
    if (op->fairness_key.count &&
        !(probe->job.fair = atom_get(engine, ATOM_KEY, 0, 0, op->fairness_key)))
        return -ENOMEM;
    if (op->order_key.count &&
        !(probe->chain = atom_get(engine, ATOM_CHAIN, probe->queue, 0, op->order_key)))
        return -ENOMEM;
    for (uint32_t i = 0; i < op->limit_key_count; i++) {
        uint32_t key = atom_get(engine, ATOM_KEY, 0, 0, op->limit_keys[i]);
        if (!key) return -ENOMEM;
        probe->extra.words[probe->extra.limit_count++] = key;
    }
    return 0;
}

static void probe_names(const struct probe *probe, struct job_names *names)
{
    names->stage = probe->job.stage;
    names->fair = probe->job.fair;
    names->chain = probe->chain;
    memcpy(names->looked, probe->looked, sizeof names->looked);
    for (uint32_t i = 0; i < probe->extra.limit_count; i++) {
        names->limits[i] = probe->extra.words[i];
    }
}

static void fill_first_state(struct engine *engine, const struct probe *probe,
                             const struct engine_job_spec *spec, struct op_set *set)
{
    int64_t run_at_ms = spec->run_at_ms > engine->now_ms ? spec->run_at_ms : engine->now_ms;

    if (spec->gathers) {
        set->state = ENGINE_HELD;
        set->when_ms = run_at_ms;
        set->flags = JOB_GATHERS | JOB_OPEN_BATCH;
        if (spec->gathers == ENGINE_WHEN_DONE) set->flags |= JOB_ALL_DONE;
        return;
    }
    if (probe->chain) {
        const struct chain *chain = chain_at(engine, probe->chain);
        if (chain->active > 0 || chain->held) {
            set->state = ENGINE_HELD;
            set->when_ms = run_at_ms;
            return;
        }
    }
    fill_onward(engine, &probe->job, run_at_ms, set);
}

/* What it takes to take a job back: that it is forgotten, and what its batch says then. The command
 * that enqueues it has kept much more for itself than it takes, so these are there at its end. */
enum { TAKE_BACK_BYTES = OP_SET_BYTES_MAX + 20 };

static int enqueue_in(struct engine *engine, const struct engine_job_spec *spec,
                      struct probe *probe, struct engine_enqueued *ret_enqueued)
{
    unsigned char policy_bytes[POLICY_BYTES_MAX] WEIR_UNINITIALIZED_;
    struct writer policy = {policy_bytes, 0, sizeof policy_bytes};
    struct op op = {.type = OP_JOB};
    struct job_names names = {0};
    uint64_t last_mark = engine->last_mark;
    uint64_t last_turn = engine->last_turn;
    int r;

    r = check_room(engine, probe->queue);
    if (r < 0) return r;
    if (spec->batch && !batch_find_open(engine, spec->batch)) {
        return engine_refuse(engine, -ENOENT, "job: batch %llu is not there, or sealed",
                             (unsigned long long)spec->batch);
    }
    fill_job(engine, spec, &op.job);
    r = command_give(engine, op_bytes_max(&op) + sizeof policy_bytes);
    if (r < 0) return r;
    if (probe_begin(engine, &op.job, probe) < 0) {
        return engine_refuse(engine, -ENOMEM, "there is no memory for the job's names");
    }
    fill_policy(spec, &policy);
    op.job.policy = (struct engine_slice){policy_bytes, policy.count};
    op.job.set.id = engine->last_id + 1;
    fill_first_state(engine, probe, spec, &op.job.set);
    probe_names(probe, &names);
    engine->found = &names;
    r = command_op(engine, &op);
    engine->found = NULL;
    if (r < 0) {
        engine->last_mark = last_mark;
        engine->last_turn = last_turn;
        return r;
    }
    engine->last_id++;
    if (spec->batch) batch_join(engine, spec->batch);
    engine->take_back_bytes += TAKE_BACK_BYTES;
    queue_at(engine, probe->queue)->counted.enqueued++;
    if (op.job.set.state == ENGINE_READY) wake_queue(engine, probe->queue);
    *ret_enqueued = (struct engine_enqueued){engine->last_id, false};
    return 0;
}

int engine_enqueue(struct engine *engine, int64_t now_ms, const struct engine_job_spec *spec,
                   struct engine_enqueued *ret_enqueued)
{
    struct probe probe = {0};
    int r = command_begin(engine, now_ms, 0);
    uint32_t queue, duplicate;

    if (r == 0) r = check_spec(engine, spec);
    if (r < 0) return r;
    /* Before anything else is asked: it takes no room, and no memory. */
    queue = spec->unique_key.count || spec->idempotency_key.count
                ? atom_find(engine, ATOM_QUEUE, 0, 0, spec->queue)
                : 0;
    duplicate = queue ? find_duplicate(engine, queue, spec, probe.looked) : 0;
    if (duplicate) {
        *ret_enqueued = (struct engine_enqueued){job_at(engine, duplicate)->id, true};
        return 0;
    }
    if (engine->memory.used >= engine->config.memory_bytes_max) {
        return engine_refuse(engine, -ENOBUFS, "jobs take %zu bytes of memory, of %zu",
                             engine->memory.used, engine->config.memory_bytes_max);
    }
    probe.queue = atom_get(engine, ATOM_QUEUE, 0, 0, spec->queue);
    if (!probe.queue) return engine_refuse(engine, -ENOMEM, "there is no memory for the queue");
    r = enqueue_in(engine, spec, &probe, ret_enqueued);
    probe_end(engine, &probe);
    return r;
}

/* ---- Taking back ---- */

static int check_take_back(struct engine *engine, const struct job *job)
{
    bool gathers = job->state == ENGINE_HELD && job->flags & JOB_GATHERS;

    if (job->id <= engine->logged_id || job->runs > 0 || job->state >= ENGINE_LEASED) {
        return engine_refuse(engine, -EBUSY, "job %llu: is logged, was begun or has ended",
                             (unsigned long long)job->id);
    }
    if (gathers && job->mark >> 32 > 0) {
        return engine_refuse(engine, -EBUSY, "job %llu: others have joined its batch",
                             (unsigned long long)job->id);
    }
    return 0;
}

/* Whether others go on when it is gone, which takes places for them. Not if the last one is taken
 * back first: then nobody is behind it, and its batch is still open. */
static bool lets_others_go_on(const struct engine *engine, const struct job *job)
{
    uint32_t chain = job_chain(job);

    if (job_batch(job) && !batch_find_open(engine, job_batch(job))) return true;
    return chain && job->state != ENGINE_HELD && chain_at(engine, chain)->held;
}

/* Who is blocked at its limit keys gets its place, which is one at each; what else could go on
 * there, or all if there is no memory for places, is left for the next tick. */
static void take_back(struct engine *engine, const struct job *job, bool has_memory)
{
    struct op op = {.type = OP_FORGET, .forget = job->id};
    uint32_t chain = job_chain(job), key_count = job_limit_count(job);
    uint64_t batch = job_batch(job);
    uint32_t keys[ENGINE_LIMIT_KEYS_MAX];

    /* They go with the job, if it is their last. */
    if (chain) atom_ref(engine, ATOM_CHAIN, chain);
    for (uint32_t i = 0; i < key_count; i++) {
        keys[i] = job_limit(job, i);
        atom_ref(engine, ATOM_KEY, keys[i]);
    }
    engine->moves_left = has_memory ? key_count : 0;
    queue_of(engine, job)->counted.enqueued--;
    command_op(engine, &op);
    if (batch) batch_unjoin(engine, batch);
    decide_successor(engine, chain);
    for (uint32_t i = 0; i < key_count; i++) {
        decide_topup(engine, keys[i]);
        atom_unref(engine, ATOM_KEY, keys[i]);
    }
    if (chain) atom_unref(engine, ATOM_CHAIN, chain);
}

int engine_take_back(struct engine *engine, int64_t now_ms, uint64_t id)
{
    bool has_memory = command_begin(engine, now_ms, 0) == 0;
    uint32_t number = job_find(engine, id);
    int r;

    if (!number)
        return engine_refuse(engine, -ENOENT, "job %llu: there is none", (unsigned long long)id);
    r = check_take_back(engine, job_at(engine, number));
    if (r < 0) return r;
    if (!has_memory && lets_others_go_on(engine, job_at(engine, number))) return -ENOMEM;
    assert(engine->take_back_bytes >= TAKE_BACK_BYTES);
    engine->take_back_bytes -= TAKE_BACK_BYTES;
    take_back(engine, job_at(engine, number), has_memory);
    return 0;
}

/* apply.c - what operations do to the rows: the same for a decision just made and for one that is
 * read from the log. Nothing is decided here.
 *
 * Any operation can come at any time: a snapshot is taken while commands go on, so the log behind
 * it may speak of jobs that are newer already, or gone. */
#include <errno.h>

#include "engine/state.h"

const char *const engine_state_names[ENGINE_STATES] = {
    "none",   "scheduled", "held", "ready",     "blocked",
    "leased", "done",      "dead", "cancelled", "expired",
};

#define BIT ENGINE_STATE_BIT
/* Row r, bit s: a job may go from state r to state s. README.md has the picture. */
static const uint16_t state_moves[ENGINE_STATES] = {
    [ENGINE_NO_JOB] =
        BIT(ENGINE_SCHEDULED) | BIT(ENGINE_HELD) | BIT(ENGINE_READY) | BIT(ENGINE_BLOCKED),
    [ENGINE_SCHEDULED] =
        BIT(ENGINE_READY) | BIT(ENGINE_BLOCKED) | BIT(ENGINE_CANCELLED) | BIT(ENGINE_EXPIRED),
    [ENGINE_HELD] = BIT(ENGINE_SCHEDULED) | BIT(ENGINE_READY) | BIT(ENGINE_BLOCKED) |
                    BIT(ENGINE_CANCELLED) | BIT(ENGINE_EXPIRED) | BIT(ENGINE_HELD) |
                    BIT(ENGINE_DEAD),
    [ENGINE_READY] =
        BIT(ENGINE_LEASED) | BIT(ENGINE_BLOCKED) | BIT(ENGINE_CANCELLED) | BIT(ENGINE_EXPIRED),
    [ENGINE_BLOCKED] =
        BIT(ENGINE_READY) | BIT(ENGINE_BLOCKED) | BIT(ENGINE_CANCELLED) | BIT(ENGINE_EXPIRED),
    [ENGINE_LEASED] = BIT(ENGINE_LEASED) | BIT(ENGINE_SCHEDULED) | BIT(ENGINE_READY) |
                      BIT(ENGINE_BLOCKED) | BIT(ENGINE_DONE) | BIT(ENGINE_DEAD) |
                      BIT(ENGINE_CANCELLED) | BIT(ENGINE_EXPIRED),
    [ENGINE_DEAD] = BIT(ENGINE_HELD) | BIT(ENGINE_READY) | BIT(ENGINE_BLOCKED),
};

bool state_may_become(enum engine_state from, enum engine_state to)
{
    return state_moves[from] & BIT(to);
}

static bool state_ended(enum engine_state state)
{
    return state >= ENGINE_DONE;
}

/* ---- Finding ---- */

static uint64_t job_hash(const void *engine, uint32_t job)
{
    return hash_in_order(job_at(engine, job)->id);
}

void job_see(const struct engine *engine, uint64_t id, uint32_t job)
{
    struct engine *seeing = (struct engine *)(uintptr_t)engine;
    seeing->seen_id = id;
    seeing->seen_job = job;
}

uint32_t job_find(const struct engine *engine, uint64_t id)
{
    uint64_t hash;
    uint32_t at = TABLE_BEGIN;
    uint32_t found;

    if (id == engine->seen_id) return engine->seen_job;
    if (id > engine->highest_id) return 0;
    hash = hash_in_order(id);
    while ((found = table_next(&engine->job_table, hash, &at)) != 0) {
        step(engine);
        if (job_at(engine, found)->id != id) continue;
        job_see(engine, id, found);
        return found;
    }
    return 0;
}

/* ---- Trees ---- */

int64_t job_timer_ms(const struct job *job)
{
    int64_t expires_ms = job->expires_ms ? job->expires_ms : INT64_MAX;
    switch (job->state) {
    case ENGINE_SCHEDULED: return job->when_ms < expires_ms ? job->when_ms : expires_ms;
    case ENGINE_HELD:
    case ENGINE_READY:
    case ENGINE_BLOCKED: return expires_ms;
    default: return job->when_ms;
    }
}

static struct tree_links *timer_links(const void *engine, uint32_t job)
{
    step(engine);
    return &job_at(engine, job)->timer;
}

static bool rings_before(const void *engine, uint32_t a, uint32_t b)
{
    const struct job *one = job_at(engine, a);
    const struct job *two = job_at(engine, b);
    int64_t one_ms = job_timer_ms(one);
    int64_t two_ms = job_timer_ms(two);
    return one_ms != two_ms ? one_ms < two_ms : one->id < two->id;
}

/* The same for jobs that are leased: their time is that of the lease. */
static bool lease_before(const void *engine, uint32_t a, uint32_t b)
{
    const struct job *one = job_at(engine, a);
    const struct job *two = job_at(engine, b);
    return one->when_ms != two->when_ms ? one->when_ms < two->when_ms : one->id < two->id;
}

/* A job that is leased is in no lane, nor is it held or dead: there is room for whose child it is
 * among the leases. */
static uint32_t *lease_parent(const void *engine, uint32_t job)
{
    return &job_at(engine, job)->place.left;
}

static uint32_t first_to_ring(const struct engine *engine, uint32_t a, uint32_t b)
{
    if (!a || !b) return a ? a : b;
    return rings_before(engine, a, b) ? a : b;
}

uint32_t job_first_timer(const struct engine *engine)
{
    uint32_t job = tree_first(engine->job_timers, timer_links, engine);

    job = first_to_ring(engine, job, engine->leases.first);
    return first_to_ring(engine, job, history_first_timer(engine));
}

/* Leases end mostly in the order in which they began. */
static void add_timer(struct engine *engine, uint32_t number)
{
    const struct job *job = job_at(engine, number);

    if (job->state == ENGINE_LEASED) {
        tree_ends_add(&engine->leases, number, timer_links, lease_parent, lease_before, engine);
    } else if (job_timer_ms(job) != INT64_MAX) {
        tree_add(&engine->job_timers, number, timer_links, rings_before, engine);
    }
}

static void remove_timer(struct engine *engine, uint32_t number)
{
    const struct job *job = job_at(engine, number);

    if (job->state == ENGINE_LEASED) {
        tree_ends_remove(&engine->leases, number, timer_links, lease_parent, engine);
    } else if (job_timer_ms(job) != INT64_MAX) {
        tree_remove(&engine->job_timers, number, timer_links, rings_before, engine);
    }
}

static struct tree_links *place_links(const void *engine, uint32_t job)
{
    step(engine);
    return &job_at(engine, job)->place;
}

static bool id_before(const void *engine, uint32_t a, uint32_t b)
{
    return job_at(engine, a)->id < job_at(engine, b)->id;
}

uint32_t chain_first_held(const struct engine *engine, const struct chain *chain)
{
    return tree_first(chain->held, place_links, engine);
}

uint32_t queue_next_dead(const struct engine *engine, const struct queue *queue, uint64_t after)
{
    uint32_t root = queue->dead;
    uint32_t found = 0;
    while (root) {
        if (job_at(engine, root)->id > after) {
            found = root;
            root = job_at(engine, root)->place.left;
        } else {
            root = job_at(engine, root)->place.right;
        }
    }
    return found;
}

bool job_is_history(const struct engine *engine, const struct job *job)
{
    if (!state_ended(job->state) || job->state == ENGINE_DEAD) return false;
    if (job_has_idempotency_key(job)) return false;
    return !job_has_unique_key(job) || !hold_by_state(engine, HOLD_UNIQUE, job);
}

/* ---- Where a job belongs, by its state ---- */

static bool waits_in_chain(const struct job *job)
{
    return job->state == ENGINE_HELD && job_chain(job) && !(job->flags & JOB_GATHERS);
}

static bool is_active(const struct job *job)
{
    return job_chain(job) && job->state != ENGINE_HELD && !state_ended(job->state);
}

static void count_running(struct engine *engine, const struct job *job, int by)
{
    for (uint32_t i = 0; i < job_limit_count(job); i++) {
        key_at(engine, job_limit(job, i))->running += (uint32_t)by;
    }
}

static void set_key_timers(struct engine *engine, const struct job *job)
{
    for (uint32_t i = 0; i < job_limit_count(job); i++) {
        const struct key *key = key_at(engine, job_limit(job, i));
        if (key->rate.count || key->opens_ms) key_set_timer(engine, job_limit(job, i));
    }
}

static void job_link(struct engine *engine, uint32_t number, const struct op_turn *turn)
{
    struct job *job = job_at(engine, number);
    struct queue *queue = queue_of(engine, job);

    queue->by_state[job->state]++;
    if (job_is_history(engine, job)) {
        history_add(engine, stage_at(engine, job->stage)->atom.scope, number);
        return;
    }
    add_timer(engine, number);
    if (job->state == ENGINE_READY || job->state == ENGINE_BLOCKED) {
        place_link(engine, number, turn);
    } else if (job->state == ENGINE_LEASED) {
        count_running(engine, job, 1);
    } else if (job->state == ENGINE_DEAD) {
        tree_add(&queue->dead, number, place_links, id_before, engine);
    }
    if (waits_in_chain(job)) {
        tree_add(&chain_at(engine, job_chain(job))->held, number, place_links, id_before, engine);
    }
    if (is_active(job)) chain_at(engine, job_chain(job))->active++;
    set_key_timers(engine, job);
}

static void job_unlink(struct engine *engine, uint32_t number)
{
    struct job *job = job_at(engine, number);
    struct queue *queue = queue_of(engine, job);

    queue->by_state[job->state]--;
    if (job_is_history(engine, job)) {
        history_remove(engine, stage_at(engine, job->stage)->atom.scope, number);
        return;
    }
    remove_timer(engine, number);
    if (job->state == ENGINE_READY || job->state == ENGINE_BLOCKED) {
        place_unlink(engine, number);
    } else if (job->state == ENGINE_LEASED) {
        count_running(engine, job, -1);
    } else if (job->state == ENGINE_DEAD) {
        tree_remove(&queue->dead, number, place_links, id_before, engine);
    }
    if (waits_in_chain(job)) {
        tree_remove(&chain_at(engine, job_chain(job))->held, number, place_links, id_before,
                    engine);
    }
    if (is_active(job)) chain_at(engine, job_chain(job))->active--;
    set_key_timers(engine, job);
}

/* ---- Operations ---- */

static void note_pending(struct engine *engine, uint32_t number)
{
    assert(engine->pending_count < engine->pending_room);
    engine->pending[engine->pending_count++] = number;
}

/* The said members of a job, as a decision has them. */
static void job_assign(struct engine *engine, uint32_t number, const struct op_set *set,
                       uint64_t position)
{
    struct job *job = job_at(engine, number);

    live_result(engine, job, -1);
    job->state = set->state;
    job->flags = set->flags;
    job->blocked_on = set->blocked_on;
    job->runs = set->runs;
    job->attempts = set->attempts;
    job->mark = set->mark;
    job->when_ms = set->when_ms;
    job->started_ms = set->started_ms;
    job->note = set->note;
    if (set->has_result) {
        job->mark = position;
        if (position == POSITION_PENDING) note_pending(engine, number);
    }
    /* Only records that nobody wrote say this: batches in batches would end one in another, and
     * no command has room for that. */
    if (job_batch(job)) job->flags &= (uint8_t)~JOB_GATHERS;
    if (job->state == ENGINE_BLOCKED && job->blocked_on >= job_limit_count(job)) {
        job->state = ENGINE_HELD;
    }
    live_result(engine, job, 1);
}

/* The group that gave the job away, wherever the job is by now. */
static void set_group_left(struct engine *engine, const struct job *job, const struct op_set *set)
{
    uint32_t group = 0;

    if (place_is(job, set->from_gate)) {
        place_set_turn_left(engine, job, &set->from);
        return;
    }
    if (set->from_gate == 0) {
        group = place_group(engine, job, ENGINE_READY, 0);
    } else if (set->from_gate <= job_limit_count(job)) {
        group = place_group(engine, job, ENGINE_BLOCKED, set->from_gate - 1u);
    }
    if (group) group_set_turn(engine, group, &set->from);
}

void apply_set(struct engine *engine, uint32_t number, const struct op_set *set, uint64_t position)
{
    bool ended;

    /* Before it leaves: the group may go with it. */
    if (set->from.turn) set_group_left(engine, job_at(engine, number), set);
    ended = state_ended(job_at(engine, number)->state);
    job_unlink(engine, number);
    job_assign(engine, number, set, position);
    job_link(engine, number, &set->to);
    /* A job that has not ended holds its keys; by ending none comes to hold any. But behind a
     * snapshot the log says again who held a key before, and that one may have taken it. */
    if (ended || engine->follows) hold_update(engine, number);
}

void apply_patch(struct engine *engine, uint32_t number, const struct op_job *op)
{
    struct job *job = job_at(engine, number);

    job_unlink(engine, number);
    job->priority = op->priority;
    job->expires_ms = op->expires_ms;
    job_assign(engine, number, &op->set, POSITION_PENDING);
    job_link(engine, number, &op->set.to);
}

static void job_drop(struct engine *engine, uint32_t number)
{
    struct job *job = job_at(engine, number);

    if (engine->seen_job == number) job_see(engine, 0, 0);
    live_job(engine, job, -1);
    live_result(engine, job, -1);
    job_unlink(engine, number);
    hold_leave(engine, number);
    table_remove(&engine->job_table, job_hash(engine, number), number, job_hash, engine);
    for (uint32_t i = 0; i < job_limit_count(job); i++) {
        atom_unref(engine, ATOM_KEY, job_limit(job, i));
    }
    if (job_chain(job)) atom_unref(engine, ATOM_CHAIN, job_chain(job));
    if (job->fair) atom_unref(engine, ATOM_KEY, job->fair);
    atom_unref(engine, ATOM_POLICY, job->policy);
    atom_unref(engine, ATOM_STAGE, job->stage);
    extra_free(engine, job->extra);
    memset(job, 0, sizeof *job);
    slab_give(&engine->jobs, number);
}

static void names_put(struct engine *engine, const struct job_names *names)
{
    for (uint32_t i = 0; i < ENGINE_LIMIT_KEYS_MAX; i++) {
        if (names->limits[i]) atom_unref(engine, ATOM_KEY, names->limits[i]);
    }
    if (names->chain) atom_unref(engine, ATOM_CHAIN, names->chain);
    if (names->fair) atom_unref(engine, ATOM_KEY, names->fair);
    if (names->policy) atom_unref(engine, ATOM_POLICY, names->policy);
    if (names->stage) atom_unref(engine, ATOM_STAGE, names->stage);
}

/* Those that the decision has found already. */
static int names_take(struct engine *engine, const struct op_job *op, struct job_names *names)
{
    uint32_t policy = atom_get(engine, ATOM_POLICY, 0, 0, op->policy);

    if (!policy) return -ENOMEM;
    *names = *engine->found;
    names->policy = policy;
    if (extra_new(engine, op, names->limits, names->chain, &names->extra) < 0) {
        atom_unref(engine, ATOM_POLICY, policy);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < op->limit_key_count; i++) {
        atom_ref(engine, ATOM_KEY, names->limits[i]);
    }
    if (names->chain) atom_ref(engine, ATOM_CHAIN, names->chain);
    if (names->fair) atom_ref(engine, ATOM_KEY, names->fair);
    atom_ref(engine, ATOM_STAGE, names->stage);
    return 0;
}

static int names_get(struct engine *engine, const struct op_job *op, struct job_names *names)
{
    uint32_t queue;
    bool ok;

    if (engine->found) return names_take(engine, op, names);
    queue = atom_get(engine, ATOM_QUEUE, 0, 0, op->queue);

    if (!queue) return -ENOMEM;
    names->stage = atom_get(engine, ATOM_STAGE, queue, op->version, op->kind);
    names->policy = atom_get(engine, ATOM_POLICY, 0, 0, op->policy);
    ok = names->stage && names->policy;
    if (ok && op->fairness_key.count) {
        ok = (names->fair = atom_get(engine, ATOM_KEY, 0, 0, op->fairness_key)) != 0;
    }
    if (ok && op->order_key.count) {
        ok = (names->chain = atom_get(engine, ATOM_CHAIN, queue, 0, op->order_key)) != 0;
    }
    for (uint32_t i = 0; ok && i < op->limit_key_count; i++) {
        ok = (names->limits[i] = atom_get(engine, ATOM_KEY, 0, 0, op->limit_keys[i])) != 0;
    }
    ok = ok && extra_new(engine, op, names->limits, names->chain, &names->extra) == 0;
    atom_unref(engine, ATOM_QUEUE, queue); /* the stage has it */
    if (ok) return 0;
    names_put(engine, names);
    return -ENOMEM;
}

static int apply_job(struct engine *engine, const struct op_job *op, uint64_t position)
{
    struct job_names names = {0};
    uint32_t number;
    struct job *job;

    if (slab_ensure(&engine->jobs, &engine->memory, 1) < 0) return -ENOMEM;
    if (table_ensure(&engine->job_table, &engine->memory, 1, job_hash, engine) < 0) return -ENOMEM;
    if (hold_reserve(engine) < 0) return -ENOMEM;
    if (names_get(engine, op, &names) < 0) return -ENOMEM;
    number = job_find(engine, op->set.id);
    if (number) job_drop(engine, number);
    number = slab_take(&engine->jobs);
    job = job_at(engine, number);
    *job = (struct job){
        .id = op->set.id,
        .position = op->has_payload ? position : op->position,
        .expires_ms = op->expires_ms,
        .created_ms = op->created_ms,
        .payload_bytes = op->payload_bytes,
        .stage = names.stage,
        .policy = names.policy,
        .fair = names.fair,
        .extra = names.extra,
        .priority = op->priority,
    };
    if (op->has_payload && position == POSITION_PENDING) note_pending(engine, number);
    table_insert(&engine->job_table, job_hash(engine, number), number);
    if (op->set.id > engine->highest_id) engine->highest_id = op->set.id;
    job_see(engine, op->set.id, number);
    job_assign(engine, number, &op->set, position);
    job_link(engine, number, &op->set.to);
    hold_join(engine, number);
    live_job(engine, job, 1);
    return 0;
}

static int apply_queue(struct engine *engine, const struct op_queue *op)
{
    uint32_t number = atom_get(engine, ATOM_QUEUE, 0, 0, op->name);
    struct queue *queue;

    if (!number) return -ENOMEM;
    queue = queue_at(engine, number);
    /* What is configured stays: the configuration refers to it. */
    if (op->configured && !queue->configured) queue->atom.refs++;
    if (!op->configured && queue->configured) {
        queue_set_timer_at(engine, number, 0);
        queue->atom.refs--;
    }
    queue->configured = op->configured;
    queue->paused = op->paused;
    queue->draining = op->draining;
    queue->waits = op->waits;
    queue->depth_max = op->depth_max;
    queue->concurrency = op->concurrency;
    queue->latency_target_ms = op->latency_target_ms;
    queue->rate = op->rate;
    queue->tat = op->tat;
    atom_unref(engine, ATOM_QUEUE, number);
    return 0;
}

static int apply_key(struct engine *engine, const struct op_key *op)
{
    uint32_t number = atom_get(engine, ATOM_KEY, 0, 0, op->name);
    struct key *key;

    if (!number) return -ENOMEM;
    key = key_at(engine, number);
    if (op->configured && !key->configured) key->atom.refs++;
    if (!op->configured && key->configured) key->atom.refs--;
    key->configured = op->configured;
    key->concurrency = op->concurrency;
    key->weight = op->weight;
    key->rate = op->rate;
    key->tat = op->tat;
    key_set_timer(engine, number);
    atom_unref(engine, ATOM_KEY, number);
    return 0;
}

static int apply_error(struct engine *engine, const struct op_error *op, uint64_t position)
{
    uint32_t number = job_find(engine, op->id);
    if (!number) return 0;
    return failure_set(engine, job_at(engine, number), op, position);
}

int apply_op(struct engine *engine, const struct op *op, uint64_t position)
{
    uint32_t number;

    switch (op->type) {
    case OP_JOB: return apply_job(engine, &op->job, position);
    case OP_SET:
        number = job_find(engine, op->set.id);
        if (number) apply_set(engine, number, &op->set, position);
        return 0;
    case OP_FORGET:
        number = job_find(engine, op->forget);
        if (number) job_drop(engine, number);
        return 0;
    case OP_ERROR: return apply_error(engine, &op->error, position);
    case OP_QUEUE: return apply_queue(engine, &op->queue);
    case OP_KEY: return apply_key(engine, &op->key);
    case OP_SCHEDULE: return apply_schedule(engine, &op->schedule);
    case OP_SCHEDULED: apply_scheduled(engine, &op->schedule); return 0;
    case OP_UNSCHEDULE: apply_unschedule(engine, op->schedule.name); return 0;
    case OP_BULK: return apply_bulk(engine, &op->bulk);
    case OP_BULK_AT: apply_bulk_at(engine, &op->bulk); return 0;
    case OP_BULK_DROP: apply_bulk_drop(engine, op->bulk.id); return 0;
    case OP_TYPES: break;
    }
    return -EBADMSG;
}

/* claim.c - the next jobs for a worker.
 *
 * A job in a lane of a stage is a candidate: each of its limit keys had room when it came there.
 * There are never more candidates with a key in a stage than that key has room for, so those that
 * turn out to be blocked after all (another queue was faster) are few, and a claim never looks
 * past jobs that are blocked. */
#include <errno.h>

#include "engine/state.h"

static bool knows(const struct engine_claim_spec *spec, const struct stage *stage)
{
    if (spec->kind_count == 0) return true;
    for (uint32_t i = 0; i < spec->kind_count; i++) {
        const struct engine_kind *kind = &spec->kinds[i];
        if (kind->name.count == stage->atom.bytes &&
            memcmp(kind->name.at, stage->atom.text, stage->atom.bytes) == 0 &&
            stage->atom.number >= kind->version_min && stage->atom.number <= kind->version_max)
            return true;
    }
    return false;
}

/* The best of two lanes of different stages: as in one stage, then who came first. */
static bool better(const struct engine *engine, uint32_t a, uint32_t b)
{
    const struct group *one = group_at(engine, lane_at(engine, a)->group);
    const struct group *two = group_at(engine, lane_at(engine, b)->group);
    if (one->priority != two->priority) return one->priority > two->priority;
    if (one->turn != two->turn) return one->turn < two->turn;
    return job_at(engine, job_first_of_lane(engine, a))->mark <
           job_at(engine, job_first_of_lane(engine, b))->mark;
}

static uint32_t find_candidate(struct engine *engine, const struct queue *queue,
                               const struct engine_claim_spec *spec)
{
    uint32_t best = 0;

    for (uint32_t at = queue->stages; at; at = stage_at(engine, at)->next) {
        struct stage *stage = stage_at(engine, at);
        uint32_t lane;
        step(engine);
        if (!knows(spec, stage)) continue;
        stage->known = true;
        lane = stage_first_lane(stage);
        if (lane && (!best || better(engine, lane, best))) best = lane;
    }
    return best ? job_first_of_lane(engine, best) : 0;
}

/* Which of the job's keys has no room; -1: none. */
static int closed_key(const struct engine *engine, const struct job *job)
{
    for (uint32_t i = 0; i < job_limit_count(job); i++) {
        if (key_free(engine, key_at(engine, job_limit(job, i))) == 0) return (int)i;
    }
    return -1;
}

static void move_to_gate(struct engine *engine, uint32_t number, int blocked_on)
{
    const struct job *job = job_at(engine, number);
    struct op_set set;

    set_from(job, &set);
    set.state = ENGINE_BLOCKED;
    set.blocked_on = (uint8_t)blocked_on;
    set.to = turn_after_take(engine, job, ENGINE_BLOCKED, set.blocked_on);
    decide_set(engine, number, &set);
    decide_topups(engine, job);
}

static void take_tokens(struct engine *engine, const struct job *job)
{
    struct queue *queue = queue_of(engine, job);

    for (uint32_t i = 0; i < job_limit_count(job); i++) {
        const struct key *key = key_at(engine, job_limit(job, i));
        if (key->rate.count == 0) continue;
        decide_key_tat(engine, job_limit(job, i), rate_after(&key->rate, key->tat, engine->now_ms));
    }
    if (queue->rate.count) {
        decide_queue_tat(engine, stage_at(engine, job->stage)->atom.scope,
                         rate_after(&queue->rate, queue->tat, engine->now_ms));
    }
}

static void lease(struct engine *engine, uint32_t number, int64_t lease_ms)
{
    const struct job *job = job_at(engine, number);
    uint32_t timeout_ms = policy_at(engine, job->policy)->says.timeout_ms;
    struct queue *queue = queue_of(engine, job);
    struct op_set set;

    if (timeout_ms && timeout_ms < lease_ms) lease_ms = timeout_ms;
    queue->counted.started++;
    queue->counted.wait_ms += (uint64_t)(engine->now_ms - job->when_ms);
    set_from(job, &set);
    set.from = turn_after_give(engine, lane_at(engine, job->lane)->group);
    set.state = ENGINE_LEASED;
    if (set.runs < UINT16_MAX) set.runs++;
    if (set.attempts < UINT16_MAX) set.attempts++;
    set.mark = ++engine->last_token;
    set.when_ms = engine->now_ms + lease_ms;
    set.started_ms = engine->now_ms;
    decide_set(engine, number, &set);
    take_tokens(engine, job);
}

static void show(const struct engine *engine, const struct job *job, int64_t wait_ms,
                 struct engine_claimed *claimed)
{
    const struct stage *stage = stage_at(engine, job->stage);
    *claimed = (struct engine_claimed){
        .id = job->id,
        .token = job->mark,
        .position = job->position,
        .payload_bytes = job->payload_bytes,
        .version = stage->atom.number,
        .kind = atom_text(&stage->atom),
        .run = job->runs,
        .attempt = job->attempts,
        .attempts_max = (uint16_t)policy_at(engine, job->policy)->says.attempts_max,
        .priority = job->priority,
        .created_ms = job->created_ms,
        .wait_ms = wait_ms,
        .idempotent = policy_at(engine, job->policy)->says.idempotent,
        .lease_until_ms = job->when_ms,
        .timeout_ms = policy_at(engine, job->policy)->says.timeout_ms,
    };
}

static bool queue_open(struct engine *engine, uint32_t number)
{
    const struct queue *queue = queue_at(engine, number);

    if (queue->paused) return false;
    if (queue->concurrency && queue->by_state[ENGINE_LEASED] >= queue->concurrency) return false;
    if (rate_free(&queue->rate, queue->tat, engine->now_ms) > 0) return true;
    /* Only time opens it again: nobody else wakes who waits. A queue with a timer must stay, as a
     * configured one does. */
    if (queue->configured && queue->by_state[ENGINE_READY] > 0) {
        queue_set_timer_at(engine, number, rate_next_ms(&queue->rate, queue->tat, engine->now_ms));
    }
    return false;
}

static int check_claim(struct engine *engine, const struct engine_claim_spec *spec)
{
    if (spec->count == 0 || spec->count > ENGINE_CLAIM_MAX) {
        return engine_refuse(engine, -EINVAL, "claim: count is %u, not 1 to %d", spec->count,
                             ENGINE_CLAIM_MAX);
    }
    if (spec->lease_ms <= 0 || spec->lease_ms > ENGINE_SPAN_MS_MAX) {
        return engine_refuse(engine, -EINVAL, "claim: lease_ms is not set or too long");
    }
    return 0;
}

/* Puts a candidate that cannot be begun where it belongs; false: it can be. */
static bool put_aside(struct engine *engine, uint32_t number)
{
    const struct job *job = job_at(engine, number);
    int blocked_on;

    if (job->expires_ms && job->expires_ms <= engine->now_ms) {
        /* A tick would have ended it, but none came yet. */
        queue_of(engine, job)->counted.expired++;
        decide_end(engine, number, ENGINE_EXPIRED, (struct engine_slice){0});
        return true;
    }
    blocked_on = closed_key(engine, job);
    if (blocked_on < 0) return false;
    move_to_gate(engine, number, blocked_on);
    return true;
}

static int claim_from(struct engine *engine, uint32_t queue, const struct engine_claim_spec *spec,
                      struct engine_claimed *ret_claimed)
{
    unsigned skips = ENGINE_SKIP_MAX;
    int64_t wait_ms;
    int count = 0, r;

    while (count < (int)spec->count && queue_open(engine, queue)) {
        uint32_t job = find_candidate(engine, queue_at(engine, queue), spec);

        if (!job) break;
        /* The rest is for the next claim; what was decided stays, so it has not failed. */
        r = command_reserve(engine, (ENGINE_LIMIT_KEYS_MAX + 1) * 400);
        if (r < 0 && count == 0 && skips == ENGINE_SKIP_MAX) return r;
        if (r < 0) {
            wake_queue(engine, queue);
            break;
        }
        if (put_aside(engine, job)) {
            if (--skips > 0) continue;
            wake_queue(engine, queue);
            break;
        }
        wait_ms = engine->now_ms - job_at(engine, job)->when_ms;
        lease(engine, job, spec->lease_ms);
        show(engine, job_at(engine, job), wait_ms, &ret_claimed[count++]);
    }
    return count;
}

int engine_claim(struct engine *engine, int64_t now_ms, const struct engine_claim_spec *spec,
                 struct engine_claimed *ret_claimed)
{
    int r = check_claim(engine, spec);
    uint32_t queue = r < 0 ? 0 : atom_find(engine, ATOM_QUEUE, 0, 0, spec->queue);

    if (r < 0) return r;
    r = command_begin(engine, now_ms, 0);
    if (r < 0 || !queue) return r;
    /* The queue goes with its last job. */
    atom_ref(engine, ATOM_QUEUE, queue);
    r = claim_from(engine, queue, spec, ret_claimed);
    atom_unref(engine, ATOM_QUEUE, queue);
    return r;
}

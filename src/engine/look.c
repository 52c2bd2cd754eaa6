/* look.c - what can be seen of jobs and queues, and whether what is kept equals what is there. */
#include <errno.h>

#include "engine/state.h"

int engine_job_get(const struct engine *engine, uint64_t id, struct engine_job *ret_job)
{
    uint32_t number = job_find(engine, id);
    const struct job *job;
    struct op_job says;

    if (!number) return -ENOENT;
    job = job_at(engine, number);
    job_says(engine, job, &says);
    *ret_job = (struct engine_job){
        .id = id,
        .state = job->state,
        .queue = says.queue,
        .kind = says.kind,
        .version = says.version,
        .priority = job->priority,
        .run = job->runs,
        .attempt = job->attempts,
        .attempts_max = (uint16_t)policy_at(engine, job->policy)->says.attempts_max,
        .token = job->state == ENGINE_LEASED ? job->mark : 0,
        .position = job->position,
        .payload_bytes = job->payload_bytes,
        .created_ms = job->created_ms,
        .started_ms = job->started_ms,
        .when_ms = job->when_ms,
        .expires_ms = job->expires_ms,
        .cancel_asked = job->flags & JOB_CANCEL,
        .batch = says.batch,
        .tags = says.tags,
        .unique_key = says.unique_key,
        .idempotency_key = says.idempotency_key,
        .fairness_key = says.fairness_key,
        .order_key = says.order_key,
        .limit_key_count = says.limit_key_count,
    };
    for (uint32_t i = 0; i < says.limit_key_count; i++) ret_job->limit_keys[i] = says.limit_keys[i];
    if (job->state == ENGINE_BLOCKED) ret_job->blocked_on = says.limit_keys[job->blocked_on];
    if (job->state == ENGINE_LEASED) ret_job->progress = job->note;
    if (job->state == ENGINE_HELD && job->flags & JOB_GATHERS) {
        ret_job->members = (uint32_t)(job->mark >> 32);
        ret_job->members_left = (uint32_t)job->mark;
        ret_job->members_not_done = job->note;
    }
    if (job->state == ENGINE_DONE && job->note > 0) {
        ret_job->result_position = job->mark;
        ret_job->result_bytes = job->note;
    }
    return 0;
}

uint64_t engine_job_count(const struct engine *engine)
{
    return engine->jobs.taken;
}

uint32_t engine_ready(const struct engine *engine, struct engine_slice queue)
{
    uint32_t number = atom_find(engine, ATOM_QUEUE, 0, 0, queue);

    return number ? queue_at(engine, number)->by_state[ENGINE_READY] : 0;
}

/* The first in time of the first jobs of all lanes below a root: a walk over the lanes. */
static int64_t oldest_below(const struct engine *engine, uint32_t lane)
{
    int64_t oldest_ms = INT64_MAX;
    const struct tree_links *links;
    int64_t other_ms;

    /* The tree is as deep as its size's logarithm. */
    if (!lane) return INT64_MAX;
    links = &lane_at(engine, lane)->links;
    oldest_ms = job_at(engine, job_first_of_lane(engine, lane))->when_ms;
    other_ms = oldest_below(engine, links->left);
    if (other_ms < oldest_ms) oldest_ms = other_ms;
    other_ms = oldest_below(engine, links->right);
    return other_ms < oldest_ms ? other_ms : oldest_ms;
}

int engine_figures(const struct engine *engine, struct engine_slice name,
                   struct engine_figures *ret_figures)
{
    uint32_t number = atom_find(engine, ATOM_QUEUE, 0, 0, name);
    const struct queue *queue;
    int64_t oldest_ms = INT64_MAX;

    if (!number) return -ENOENT;
    queue = queue_at(engine, number);
    *ret_figures = queue->counted;
    for (int state = 0; state < ENGINE_STATES; state++) {
        ret_figures->by_state[state] = queue->by_state[state];
    }
    for (uint32_t at = queue->stages; at; at = stage_at(engine, at)->next) {
        const struct stage *stage = stage_at(engine, at);
        for (uint32_t left = stage->priorities; left; left &= left - 1) {
            int64_t lanes_ms = oldest_below(engine, stage->lanes[__builtin_ctz(left)].root);
            if (lanes_ms < oldest_ms) oldest_ms = lanes_ms;
        }
        if (!stage->known) ret_figures->unknown += stage->ready;
    }
    ret_figures->oldest_ms = oldest_ms == INT64_MAX ? 0 : oldest_ms;
    ret_figures->latency_target_ms = queue->latency_target_ms;
    return 0;
}

/* ---- Queues and keys ---- */

static void show_queue(const struct engine *engine, const struct queue *queue,
                       struct engine_queue_info *info)
{
    *info = (struct engine_queue_info){
        .spec = {.name = atom_text(&queue->atom),
                 .depth_max = queue->depth_max,
                 .overflow = queue_overflow(engine, queue),
                 .concurrency = queue->concurrency,
                 .rate = queue->rate,
                 .latency_target_ms = queue->latency_target_ms,
                 .paused = queue->paused,
                 .draining = queue->draining},
        .depth_max = queue_depth_max(engine, queue),
        .configured = queue->configured,
    };
}

/* The next row that is somebody's; 0: there is none. */
static uint32_t next_atom(const struct engine *engine, enum atom_type type, uint32_t *cursor)
{
    while (*cursor < engine->atoms[type].last) {
        if (atom_at(engine, type, ++*cursor)->refs > 0) return *cursor;
    }
    return 0;
}

int engine_queue_next(const struct engine *engine, uint32_t *cursor,
                      struct engine_queue_info *ret_info)
{
    uint32_t number = next_atom(engine, ATOM_QUEUE, cursor);
    if (number) show_queue(engine, queue_at(engine, number), ret_info);
    return number != 0;
}

int engine_queue_get(const struct engine *engine, struct engine_slice name,
                     struct engine_queue_info *ret_info)
{
    uint32_t number = atom_find(engine, ATOM_QUEUE, 0, 0, name);
    if (!number) return -ENOENT;
    show_queue(engine, queue_at(engine, number), ret_info);
    return 0;
}

int engine_key_next(const struct engine *engine, uint32_t *cursor, struct engine_key_info *ret_info)
{
    uint32_t number = next_atom(engine, ATOM_KEY, cursor);
    const struct key *key;

    if (!number) return 0;
    key = key_at(engine, number);
    *ret_info = (struct engine_key_info){.spec = {.name = atom_text(&key->atom),
                                                  .concurrency = key->concurrency,
                                                  .rate = key->rate,
                                                  .weight = key->weight},
                                         .configured = key->configured};
    return 1;
}

int engine_schedule_next(const struct engine *engine, uint32_t *cursor,
                         struct engine_schedule_info *ret_info)
{
    uint32_t number = next_atom(engine, ATOM_SCHEDULE, cursor);
    struct op_schedule says;
    struct op_job job;

    if (!number) return 0;
    says = schedule_says(schedule_at(engine, number));
    job_read(says.job, &job);
    *ret_info = (struct engine_schedule_info){
        .name = says.name,
        .cron = says.text,
        .zone = says.zone,
        .queue = job.queue,
        .kind = job.kind,
        .overlap = (enum engine_overlap)says.overlap,
        .catch_up = (enum engine_catch_up)says.catch_up,
    };
    engine_schedule_get(engine, says.name, &ret_info->state);
    return 1;
}

/* ---- Counting anew ---- */

struct recount {
    uint32_t by_state[ENGINE_STATES];
    uint32_t timers;
    uint32_t history;
    uint32_t lanes;
    uint32_t running;
    uint32_t blocked;
    int64_t live_bytes;
};

/* The lane has not forgotten who came last. */
static bool is_behind_last(const struct engine *engine, const struct job *job)
{
    uint32_t number = lane_at(engine, job->lane)->last;
    const struct job *last = number ? job_at(engine, number) : NULL;

    if (!last || last->lane != job->lane) return true;
    return job->mark != last->mark ? job->mark > last->mark : job->id > last->id;
}

static const char *check_job(const struct engine *engine, uint32_t number, struct recount *counts)
{
    const struct job *job = job_at(engine, number);
    const struct chain *chain = job_chain(job) ? chain_at(engine, job_chain(job)) : NULL;
    struct engine_slice key = job_unique_key(job);

    counts->by_state[job->state]++;
    if (job_is_history(engine, job)) {
        counts->history++;
    } else {
        counts->timers += job_timer_ms(job) != INT64_MAX;
    }
    if (job_find(engine, job->id) != number) return "a job is not found by its id";
    if ((job->lane != 0) != (job->state == ENGINE_READY || job->state == ENGINE_BLOCKED)) {
        return "a job is in a lane and should not be, or the other way round";
    }
    if (job->lane && is_behind_last(engine, job)) return "the last job of a lane is another";
    if (chain && chain->active > 1) return "two jobs with one order key are at work";
    if (chain && chain->active == 0 && chain->held) return "nobody goes on with an order key";
    if (key.count > 0 && hold_by_state(engine, HOLD_UNIQUE, job) && unique_held(engine, job) &&
        hold_find(engine, HOLD_UNIQUE, stage_at(engine, job->stage)->atom.scope, key) != number) {
        return "two jobs hold a unique key";
    }
    counts->running += job->state == ENGINE_LEASED ? job_limit_count(job) : 0;
    counts->blocked += job->state == ENGINE_BLOCKED;
    counts->live_bytes += live_bytes_of(engine, job);
    return NULL;
}

static uint32_t count_tree(const struct engine *engine, uint32_t job)
{
    const struct tree_links *links;
    if (!job) return 0;
    links = &job_at(engine, job)->timer;
    return 1 + count_tree(engine, links->left) + count_tree(engine, links->right);
}

/* Who is at the left and the right end below a row. */
static bool knows_ends(const struct engine *engine, const struct tree_ends *ends,
                       struct tree_links *(*links)(const struct engine *engine, uint32_t row))
{
    uint32_t first = ends->root;
    uint32_t last = first;

    while (first && links(engine, first)->left) first = links(engine, first)->left;
    while (last && links(engine, last)->right) last = links(engine, last)->right;
    return ends->first == first && ends->last == last;
}

static struct tree_links *lane_links(const struct engine *engine, uint32_t lane)
{
    return &lane_at(engine, lane)->links;
}

static struct tree_links *timer_links(const struct engine *engine, uint32_t job)
{
    return &job_at(engine, job)->timer;
}

static const char *check_stages(const struct engine *engine, const struct queue *queue)
{
    for (uint32_t at = queue->stages; at; at = stage_at(engine, at)->next) {
        const struct stage *stage = stage_at(engine, at);
        for (unsigned priority = 0; priority <= ENGINE_PRIORITY_MAX; priority++) {
            const struct tree_ends *lanes = &stage->lanes[priority];
            if ((stage->priorities >> priority & 1) != (lanes->root != 0)) {
                return "a stage has lanes of a priority that it does not know, or none";
            }
            if (!knows_ends(engine, lanes, lane_links)) {
                return "the first or the last lane of a stage is another";
            }
        }
    }
    return NULL;
}

static const char *check_keys(const struct engine *engine, const struct recount *counts)
{
    const struct table *keys = &engine->atom_tables[ATOM_KEY];
    uint32_t running = 0;
    uint32_t blocked = 0;

    for (uint32_t i = 0; i < keys->room; i++) {
        const struct key *key;
        if (!keys->slots[i]) continue;
        key = key_at(engine, keys->slots[i]);
        running += key->running;
        blocked += key->blocked;
        for (uint32_t at = key->gates; at; at = gate_at(engine, at)->next) {
            const struct gate *gate = gate_at(engine, at);
            if (gate->blocked == 0 && gate->ready == 0) return "a gate is there for nobody";
            if (!knows_ends(engine, &gate->lanes, lane_links)) {
                return "the first or the last lane of a gate is another";
            }
            if (gate->blocked > 0 && gate->ready < key_free(engine, key) && !key->opens_ms &&
                !engine->follows) {
                return "a job waits for a key that has room";
            }
        }
    }
    if (running != counts->running) return "jobs with limit keys are not counted right";
    if (blocked != counts->blocked) return "blocked jobs are not counted right";
    return NULL;
}

const char *engine_check(const struct engine *engine)
{
    const struct table *queues = &engine->atom_tables[ATOM_QUEUE];
    struct recount counts = {0};
    uint32_t by_state[ENGINE_STATES] = {0};
    uint32_t history = 0;

    for (uint32_t at = 1; at <= engine->jobs.last; at++) {
        const char *wrong;
        if (job_at(engine, at)->state == ENGINE_NO_JOB) continue;
        wrong = check_job(engine, at, &counts);
        if (wrong) return wrong;
    }
    for (uint32_t i = 0; i < queues->room; i++) {
        const struct queue *queue;
        const char *wrong;
        if (!queues->slots[i]) continue;
        queue = queue_at(engine, queues->slots[i]);
        for (int state = 0; state < ENGINE_STATES; state++) {
            by_state[state] += queue->by_state[state];
        }
        wrong = history_check(engine, queue);
        if (!wrong) wrong = check_stages(engine, queue);
        if (wrong) return wrong;
        history += queue->history.count;
    }
    if (history != counts.history) return "a job that has ended is in no history, or in two";
    if (memcmp(by_state, counts.by_state, sizeof by_state) != 0) {
        return "jobs are not counted right by state";
    }
    if (counts.live_bytes != engine->live_bytes) return "live bytes are not counted right";
    if (count_tree(engine, engine->job_timers) + count_tree(engine, engine->leases.root) !=
        counts.timers)
        return "a timer is missing";
    if (count_tree(engine, engine->leases.root) != counts.by_state[ENGINE_LEASED] ||
        !knows_ends(engine, &engine->leases, timer_links)) {
        return "a lease is missing, or the first or the last one is another";
    }
    return check_keys(engine, &counts);
}

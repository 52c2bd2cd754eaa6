/* model.c - the rules of the engine, naively. */
#include <stdlib.h>

#include "unit/engine/model_rules.h"

/* ---- Names ---- */

struct model_name model_name_of(struct engine_slice slice)
{
    struct model_name name = {{0}};
    if (slice.count > MODEL_NAME_MAX) abort();
    if (slice.count > 0) memcpy(name.text, slice.at, slice.count);
    return name;
}

bool model_same(const struct model_name *a, const struct model_name *b)
{
    return strcmp(a->text, b->text) == 0;
}

bool model_empty(const struct model_name *name)
{
    return name->text[0] == '\0';
}

struct model_limit *model_limit_of(struct model_limit *limits, const struct model_name *name)
{
    for (int i = 0; i < MODEL_NAMES; i++) {
        if (model_empty(&limits[i].name)) limits[i].name = *name;
        if (model_same(&limits[i].name, name)) return &limits[i];
    }
    abort();
}

struct model_limit *model_queue_of(struct model *model, const struct model_job *job)
{
    return model_limit_of(model->queues, &job->queue);
}

struct model_limit *model_key_of(struct model *model, const struct model_job *job, unsigned i)
{
    return model_limit_of(model->keys, &job->limits[i]);
}

struct model_job *model_find(struct model *model, uint64_t id)
{
    for (int i = 0; i < MODEL_JOBS; i++) {
        if (model->jobs[i].state && model->jobs[i].id == id) return &model->jobs[i];
    }
    return NULL;
}

static bool has_key(const struct model_job *job, const struct model_name *key)
{
    for (unsigned i = 0; i < job->limit_count; i++) {
        if (model_same(&job->limits[i], key)) return true;
    }
    return false;
}

static bool same_stage(const struct model_job *a, const struct model_job *b)
{
    return model_same(&a->queue, &b->queue) && model_same(&a->kind, &b->kind) &&
           a->version == b->version;
}

uint32_t model_count(const struct model *model, const struct model_name *queue, unsigned states)
{
    uint32_t found = 0;
    for (int i = 0; i < MODEL_JOBS; i++) {
        const struct model_job *job = &model->jobs[i];
        found += (1u << job->state & states & ~1u) && model_same(&job->queue, queue);
    }
    return found;
}

/* ---- Limits ---- */

uint32_t model_tokens(const struct engine_rate *rate, int64_t tat, int64_t now_ms)
{
    uint32_t free_count = 0;
    if (rate->count == 0) return UINT32_MAX;
    /* One by one, as long as taking one more would not be too early. */
    while (free_count < rate->burst) {
        __int128 now = (__int128)now_ms * rate->count;
        __int128 after = (tat > now ? tat : now) + (__int128)(free_count + 1) * rate->period_ms;
        if (after > now + (__int128)rate->burst * rate->period_ms) break;
        free_count++;
    }
    return free_count;
}

static uint32_t running(const struct model *model, const struct model_name *key)
{
    uint32_t found = 0;
    for (int i = 0; i < MODEL_JOBS; i++) {
        found += model->jobs[i].state == ENGINE_LEASED && has_key(&model->jobs[i], key);
    }
    return found;
}

static bool is_blocked_by(const struct model_job *job, const struct model_name *key)
{
    return job->state == ENGINE_BLOCKED && model_same(&job->limits[job->blocked_on], key);
}

static uint32_t blocked(const struct model *model, const struct model_name *key)
{
    uint32_t found = 0;
    for (int i = 0; i < MODEL_JOBS; i++) found += is_blocked_by(&model->jobs[i], key);
    return found;
}

uint32_t model_room(const struct model *model, const struct model_limit *key)
{
    uint32_t by_rate = model_tokens(&key->rate, key->tat, model->now_ms);
    uint32_t by_count = UINT32_MAX;
    uint32_t busy = running(model, &key->name);
    if (key->concurrency) by_count = busy < key->concurrency ? key->concurrency - busy : 0;
    return by_rate < by_count ? by_rate : by_count;
}

static uint32_t candidates(const struct model *model, const struct model_job *like,
                           const struct model_name *key)
{
    uint32_t found = 0;
    for (int i = 0; i < MODEL_JOBS; i++) {
        const struct model_job *job = &model->jobs[i];
        found += job->state == ENGINE_READY && same_stage(job, like) && has_key(job, key);
    }
    return found;
}

/* When a token comes for somebody who waits for one. */
void model_set_timer(struct model *model, struct model_limit *key)
{
    uint32_t now_free = model_tokens(&key->rate, key->tat, model->now_ms);
    int64_t at_ms;

    /* What is due stays due until a tick has looked. */
    if (key->opens_ms && key->opens_ms <= model->now_ms && blocked(model, &key->name) > 0) return;
    key->opens_ms = 0;
    if (blocked(model, &key->name) == 0 || key->rate.count == 0 || now_free >= key->rate.burst) {
        return;
    }
    if (key->concurrency && running(model, &key->name) + now_free >= key->concurrency) return;
    at_ms = (key->tat - ((int64_t)key->rate.burst - now_free - 1) * key->rate.period_ms) /
                key->rate.count -
            2;
    while (model_tokens(&key->rate, key->tat, at_ms) <= now_free) at_ms++;
    key->opens_ms = at_ms;
}

void model_set_timers(struct model *model, const struct model_job *job)
{
    for (unsigned i = 0; i < job->limit_count; i++) {
        struct model_limit *key = model_key_of(model, job, i);
        if (key->rate.count || key->opens_ms) model_set_timer(model, key);
    }
}

/* ---- Turns ---- */

static bool in_group(const struct model_group *group, const struct model_job *job,
                     enum engine_state state, unsigned blocked_on)
{
    if (!model_same(&group->queue, &job->queue) || group->priority != job->priority) return false;
    if (!model_same(&group->fair, &job->fair)) return false;
    if (state == ENGINE_READY) return model_empty(&group->key);
    return state == ENGINE_BLOCKED && model_same(&group->key, &job->limits[blocked_on]) &&
           model_same(&group->kind, &job->kind) && group->version == job->version;
}

struct model_group *model_group_of(struct model *model, const struct model_job *job,
                                   enum engine_state state, unsigned blocked_on)
{
    for (int i = 0; i < MODEL_GROUPS; i++) {
        struct model_group *group = &model->groups[i];
        if (group->used && in_group(group, job, state, blocked_on)) return group;
    }
    return NULL;
}

static void forget_empty_groups(struct model *model)
{
    for (int g = 0; g < MODEL_GROUPS; g++) {
        struct model_group *group = &model->groups[g];
        bool any = false;
        if (!group->used) continue;
        for (int i = 0; i < MODEL_JOBS && !any; i++) {
            const struct model_job *job = &model->jobs[i];
            any = job->state && in_group(group, job, job->state, job->blocked_on);
        }
        group->used = any;
    }
}

static uint32_t weight(struct model *model, const struct model_name *fair)
{
    uint32_t said = model_empty(fair) ? 1 : model_limit_of(model->keys, fair)->weight;
    return said ? said : 1;
}

/* A group gives one job away. */
void model_give(struct model *model, struct model_group *group)
{
    if (--group->deficit > 0) return;
    group->turn = ++model->last_turn;
    group->deficit = weight(model, &group->fair);
}

static void enter_group(struct model *model, const struct model_job *job)
{
    for (int i = 0; i < MODEL_GROUPS; i++) {
        struct model_group *group = &model->groups[i];
        if (group->used) continue;
        *group = (struct model_group){.used = true, .queue = job->queue, .fair = job->fair};
        group->priority = job->priority;
        if (job->state == ENGINE_BLOCKED) {
            group->key = job->limits[job->blocked_on];
            group->kind = job->kind;
            group->version = job->version;
        }
        group->turn = ++model->last_turn;
        group->deficit = weight(model, &job->fair);
        return;
    }
    abort();
}

/* ---- Moves ---- */

/* Into another state; a new group, if it needs one, comes into being first, as its turn is taken
 * before the old one goes. */
void model_move(struct model *model, struct model_job *job, struct model_job to)
{
    struct model_job away = *job;
    bool placed = to.state == ENGINE_READY || to.state == ENGINE_BLOCKED;

    if (placed && !model_group_of(model, &to, to.state, to.blocked_on)) enter_group(model, &to);
    away.state = ENGINE_NO_JOB;
    *job = away;
    model_set_timers(model, &away);
    *job = to;
    forget_empty_groups(model);
    model_set_timers(model, job);
}

void model_place(struct model *model, struct model_job *to)
{
    to->state = ENGINE_READY;
    to->blocked_on = 0;
    for (unsigned i = 0; i < to->limit_count; i++) {
        if (candidates(model, to, &to->limits[i]) < model_room(model, model_key_of(model, to, i)))
            continue;
        to->state = ENGINE_BLOCKED;
        to->blocked_on = i;
        return;
    }
}

void model_onward(struct model *model, struct model_job *to, int64_t run_at_ms)
{
    to->note = 0;
    to->when_ms = run_at_ms;
    to->mark = 0;
    to->blocked_on = 0;
    to->cancel = false;
    to->state = ENGINE_SCHEDULED;
    if (run_at_ms > model->now_ms) return;
    to->mark = ++model->last_mark;
    model_place(model, to);
}

bool model_sooner(struct model *model, const struct model_job *a, const struct model_job *b)
{
    uint64_t turn_a = model_group_of(model, a, a->state, a->blocked_on)->turn;
    uint64_t turn_b = model_group_of(model, b, b->state, b->blocked_on)->turn;
    if (a->priority != b->priority) return a->priority > b->priority;
    return turn_a != turn_b ? turn_a < turn_b : a->mark < b->mark;
}

/* The first of the jobs blocked by a key in the stage of `like`. */
static struct model_job *first_blocked(struct model *model, const struct model_name *key,
                                       const struct model_job *like)
{
    struct model_job *best = NULL;
    for (int i = 0; i < MODEL_JOBS; i++) {
        struct model_job *job = &model->jobs[i];
        if (!is_blocked_by(job, key) || !same_stage(job, like)) continue;
        if (!best || model_sooner(model, job, best)) best = job;
    }
    return best;
}

void model_topup(struct model *model, const struct model_name *name)
{
    struct model_limit *key = model_limit_of(model->keys, name);

    for (;;) {
        struct model_job *best = NULL;
        struct model_job to;
        for (int i = 0; i < MODEL_JOBS; i++) {
            struct model_job *job = &model->jobs[i];
            if (!is_blocked_by(job, name)) continue;
            if (candidates(model, job, name) >= model_room(model, key)) continue;
            job = first_blocked(model, name, job);
            if (!best || job->mark < best->mark) best = job;
        }
        if (!best) return;
        if (model->moves_left == 0) {
            key->opens_ms = 1;
            return;
        }
        model->moves_left--;
        model_give(model, model_group_of(model, best, ENGINE_BLOCKED, best->blocked_on));
        to = *best;
        model_place(model, &to);
        model_move(model, best, to);
    }
}

void model_topups(struct model *model, const struct model_job *job)
{
    struct model_job copy = *job;
    for (unsigned i = 0; i < copy.limit_count; i++) model_topup(model, &copy.limits[i]);
}

/* ---- Keys that keep others out ---- */

static bool holds(const struct model *model, const struct model_job *job)
{
    return job->unique_states >> job->state & 1 &&
           (job->unique_ms == 0 || model->now_ms < job->created_ms + job->unique_ms);
}

struct model_job *model_unique_holder(struct model *model, const struct model_name *queue,
                                      const struct model_name *key)
{
    for (int i = 0; i < MODEL_JOBS && !model_empty(key); i++) {
        struct model_job *job = &model->jobs[i];
        if (job->state && model_same(&job->queue, queue) && model_same(&job->unique, key) &&
            holds(model, job))
            return job;
    }
    return NULL;
}

struct model_job *model_idempotent_twin(struct model *model, const struct model_name *queue,
                                        const struct model_name *key)
{
    for (int i = 0; i < MODEL_JOBS && !model_empty(key); i++) {
        struct model_job *job = &model->jobs[i];
        if (job->state && model_same(&job->queue, queue) && model_same(&job->idempotency, key) &&
            model->now_ms < job->created_ms + job->idempotency_ms)
            return job;
    }
    return NULL;
}

static bool is_history(const struct model_job *job)
{
    if (job->state < ENGINE_DONE || job->state == ENGINE_DEAD) return false;
    if (!model_empty(&job->idempotency)) return false;
    return model_empty(&job->unique) || !(job->unique_states >> job->state & 1);
}

/* ---- Ends ---- */

bool model_order_is_taken(const struct model *model, const struct model_job *like, bool held_too)
{
    for (int i = 0; i < MODEL_JOBS; i++) {
        const struct model_job *job = &model->jobs[i];
        if (!job->state || job->state >= ENGINE_DONE || job->id == like->id) continue;
        if (job->gathers) continue;
        if (!model_same(&job->queue, &like->queue) || !model_same(&job->order, &like->order))
            continue;
        if (held_too || job->state != ENGINE_HELD) return true;
    }
    return false;
}

static void successor(struct model *model, const struct model_job *of)
{
    struct model_job *next = NULL;
    struct model_job to;

    if (model_empty(&of->order)) return;
    for (int i = 0; i < MODEL_JOBS; i++) {
        struct model_job *job = &model->jobs[i];
        if (!job->state || !model_same(&job->queue, &of->queue) ||
            !model_same(&job->order, &of->order)) {
            continue;
        }
        if (job->gathers) continue;
        if (job->state == ENGINE_HELD && (!next || job->id < next->id)) next = job;
        if (job->state < ENGINE_DONE && job->state != ENGINE_HELD) return;
    }
    if (!next) return;
    to = *next;
    model_onward(model, &to, to.when_ms);
    model_move(model, next, to);
}

void model_forget(struct model *model, struct model_job *job)
{
    job->state = ENGINE_NO_JOB;
    model_set_timers(model, job);
}

static void trim(struct model *model, const struct model_name *queue)
{
    for (;;) {
        struct model_job *first = NULL;
        uint32_t ended = 0;
        for (int i = 0; i < MODEL_JOBS; i++) {
            struct model_job *job = &model->jobs[i];
            if (!model_same(&job->queue, queue) || !is_history(job)) continue;
            ended++;
            if (!first || job->when_ms < first->when_ms ||
                (job->when_ms == first->when_ms && job->id < first->id))
                first = job;
        }
        if (ended <= model->config.history_count_max || model->moves_left == 0) return;
        model->moves_left--;
        model_forget(model, first);
    }
}

void model_gathered(struct model *model, struct model_job *job)
{
    struct model_job to = *job;

    if (job->members_left > 0 || job->batch_open) return;
    if (job->all_done && job->members_not_done > 0) {
        model_queue_of(model, job)->counted.died++;
        model_end(model, job, ENGINE_DEAD, 0);
        return;
    }
    to.gathers = false;
    if (model_empty(&to.order) || !model_order_is_taken(model, &to, true)) {
        model_onward(model, &to, to.when_ms);
    }
    model_move(model, job, to);
}

static void leave_batch(struct model *model, uint64_t batch, enum engine_state state)
{
    struct model_job *job = model_find(model, batch);

    if (!job || job->state != ENGINE_HELD || !job->gathers || job->members_left == 0) return;
    job->members_left--;
    job->members_not_done += state != ENGINE_DONE;
    model_set_timers(model, job);
    model_gathered(model, job);
}

void model_end(struct model *model, struct model_job *job, enum engine_state state,
               size_t result_bytes)
{
    struct model_job to = *job;
    bool counted = job->counted;
    int64_t keep_ms = state == ENGINE_DEAD ? model->config.dead_ms : model->config.history_ms;

    to.state = state;
    to.cancel = false;
    to.gathers = false;
    to.counted = to.batch != 0;
    to.mark = 0;
    to.blocked_on = 0;
    to.note = (uint32_t)result_bytes;
    to.when_ms = model->now_ms + keep_ms;
    if (!model_empty(&to.idempotency) && to.created_ms + to.idempotency_ms > to.when_ms) {
        to.when_ms = to.created_ms + to.idempotency_ms;
    }
    if (!model_empty(&to.unique) && to.unique_states >> state & 1 &&
        to.created_ms + to.unique_ms > to.when_ms) {
        to.when_ms = to.created_ms + to.unique_ms;
    }
    model_move(model, job, to);
    if (to.batch && !counted) leave_batch(model, to.batch, state);
    successor(model, &to);
    model_topups(model, &to);
    trim(model, &to.queue);
}

void model_begin(struct model *model, int64_t now_ms)
{
    if (now_ms > model->now_ms) model->now_ms = now_ms;
    model->moves_left = ENGINE_MOVES_MAX;
}

/* hold.c - unique and idempotency keys: for each key of a queue one job stands for it.
 *
 * A job holds its key while its state is one of those it names (for idempotency keys: any). Of
 * several jobs with a key, at most one does, and that one is in the table: so one look answers.
 * Windows in time are looked at by who asks. */
#include "engine/state.h"

static struct engine_slice key_of(const struct job *job, enum hold which)
{
    return which == HOLD_UNIQUE ? job_unique_key(job) : job_idempotency_key(job);
}

static uint64_t hash_of(const struct engine *engine, uint32_t queue, struct engine_slice key)
{
    return hash_bytes(engine->config.seed + queue, key.at, key.count);
}

static uint64_t hash_of_job(const struct engine *engine, const struct job *job, enum hold which)
{
    return hash_of(engine, stage_at(engine, job->stage)->atom.scope, key_of(job, which));
}

static uint64_t unique_hash(const void *engine, uint32_t job)
{
    return hash_of_job(engine, job_at(engine, job), HOLD_UNIQUE);
}

static uint64_t idempotency_hash(const void *engine, uint32_t job)
{
    return hash_of_job(engine, job_at(engine, job), HOLD_IDEMPOTENCY);
}

static const table_hash_fn hold_hash[] = {unique_hash, idempotency_hash};

int hold_reserve(struct engine *engine)
{
    for (int which = HOLD_UNIQUE; which <= HOLD_IDEMPOTENCY; which++) {
        struct table *table = &engine->holders[which];
        int r = table_ensure(table, &engine->memory, engine->keyed[which] + 1 - table->count,
                             hold_hash[which], engine);
        if (r < 0) return r;
    }
    return 0;
}

static uint32_t find(const struct engine *engine, enum hold which, uint32_t queue,
                     struct engine_slice key, uint64_t hash)
{
    uint32_t at = TABLE_BEGIN;
    uint32_t found;

    assert(key.count > 0);
    while ((found = table_next(&engine->holders[which], hash, &at)) != 0) {
        const struct job *job = job_at(engine, found);
        struct engine_slice held = key_of(job, which);
        step(engine);
        if (stage_at(engine, job->stage)->atom.scope == queue && held.count == key.count &&
            memcmp(held.at, key.at, key.count) == 0)
            return found;
    }
    return 0;
}

uint32_t hold_find(const struct engine *engine, enum hold which, uint32_t queue,
                   struct engine_slice key)
{
    return find(engine, which, queue, key, hash_of(engine, queue, key));
}

uint32_t hold_look(const struct engine *engine, enum hold which, uint32_t queue,
                   struct engine_slice key, struct hold_looked *ret_looked)
{
    uint32_t holder;

    ret_looked->hash = hash_of(engine, queue, key);
    holder = find(engine, which, queue, key, ret_looked->hash);
    ret_looked->free = !holder;
    return holder;
}

static void foresee(const struct engine *engine, enum hold which, uint32_t queue,
                    struct engine_slice key)
{
    if (key.count > 0) table_foresee(&engine->holders[which], hash_of(engine, queue, key));
}

void hold_foresee(const struct engine *engine, const struct job *job)
{
    uint32_t queue = stage_at(engine, job->stage)->atom.scope;

    foresee(engine, HOLD_UNIQUE, queue, job_unique_key(job));
    foresee(engine, HOLD_IDEMPOTENCY, queue, job_idempotency_key(job));
}

void engine_foresee(const struct engine *engine, const struct engine_job_spec *spec)
{
    uint32_t queue = spec->unique_key.count || spec->idempotency_key.count
                         ? atom_find(engine, ATOM_QUEUE, 0, 0, spec->queue)
                         : 0;

    if (!queue) return;
    foresee(engine, HOLD_UNIQUE, queue, spec->unique_key);
    foresee(engine, HOLD_IDEMPOTENCY, queue, spec->idempotency_key);
}

bool hold_by_state(const struct engine *engine, enum hold which, const struct job *job)
{
    if (which == HOLD_IDEMPOTENCY) return true;
    return policy_at(engine, job->policy)->says.unique_states & ENGINE_STATE_BIT(job->state);
}

static void update(struct engine *engine, uint32_t number, enum hold which)
{
    const struct job *job = job_at(engine, number);
    struct table *table = &engine->holders[which];
    struct engine_slice key = key_of(job, which);
    uint32_t queue = stage_at(engine, job->stage)->atom.scope;
    uint32_t holder;
    uint64_t hash;

    if (key.count == 0) return;
    hash = hash_of(engine, queue, key);
    holder = find(engine, which, queue, key, hash);
    if (holder == number) return;
    if (holder) {
        const struct job *other = job_at(engine, holder);
        bool mine = which == HOLD_IDEMPOTENCY || unique_held(engine, job);
        bool theirs = which == HOLD_IDEMPOTENCY || unique_held(engine, other);
        if (mine != theirs ? theirs : other->id > job->id) return;
        table_remove(table, hash, holder, hold_hash[which], engine);
    }
    table_insert(table, hash, number);
}

void hold_update(struct engine *engine, uint32_t job)
{
    if (!job_at(engine, job)->extra) return;
    update(engine, job, HOLD_UNIQUE);
    update(engine, job, HOLD_IDEMPOTENCY);
}

/* Who decides has looked already, and nobody has come since. */
void hold_join(struct engine *engine, uint32_t job)
{
    const struct job_names *found = engine->found;

    if (!job_at(engine, job)->extra) return;
    for (enum hold which = HOLD_UNIQUE; which <= HOLD_IDEMPOTENCY; which++) {
        if (key_of(job_at(engine, job), which).count == 0) continue;
        engine->keyed[which]++;
        if (found && found->looked[which].free)
            table_insert(&engine->holders[which], found->looked[which].hash, job);
        else
            update(engine, job, which);
    }
}

void hold_leave(struct engine *engine, uint32_t number)
{
    const struct job *job = job_at(engine, number);

    for (int which = HOLD_UNIQUE; which <= HOLD_IDEMPOTENCY; which++) {
        struct engine_slice key = key_of(job, which);
        uint32_t queue = stage_at(engine, job->stage)->atom.scope;
        uint64_t hash;

        if (key.count == 0) continue;
        engine->keyed[which]--;
        hash = hash_of(engine, queue, key);
        /* Another job may stand for it. */
        (void)table_remove(&engine->holders[which], hash, number, hold_hash[which], engine);
    }
}

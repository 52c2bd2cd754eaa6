/* batch.c - a job that runs when others have ended.
 *
 * The batch is the job that gathers it: while it is held it counts its members in its own row. It
 * joins its order key only when it goes on: members with the same key would wait for it, and it for
 * them. The end of a member is counted once, also if it is a dead letter that is replayed later. */
#include <errno.h>

#include "engine/state.h"

static uint32_t find_gathering(const struct engine *engine, uint64_t batch)
{
    uint32_t number = job_find(engine, batch);
    const struct job *job = number ? job_at(engine, number) : NULL;
    return job && job->state == ENGINE_HELD && job->flags & JOB_GATHERS ? number : 0;
}

uint32_t batch_find_open(const struct engine *engine, uint64_t batch)
{
    uint32_t number = find_gathering(engine, batch);
    return number && job_at(engine, number)->flags & JOB_OPEN_BATCH ? number : 0;
}

void batch_join(struct engine *engine, uint64_t batch)
{
    uint32_t number = find_gathering(engine, batch);
    struct op_set set;

    set_from(job_at(engine, number), &set);
    set.mark += (UINT64_C(1) << 32) + 1;
    decide_set(engine, number, &set);
}

/* Goes on, or dies, when nobody is missing any more. */
static void gathered(struct engine *engine, uint32_t number)
{
    const struct job *job = job_at(engine, number);
    struct op_set set;

    if ((uint32_t)job->mark > 0 || job->flags & JOB_OPEN_BATCH) return;
    if (job->flags & JOB_ALL_DONE && job->note > 0) {
        queue_of(engine, job)->counted.died++;
        decide_end_kept(engine, number, ENGINE_DEAD, (struct engine_slice){0});
        return;
    }
    set_from(job, &set);
    if (job_chain(job) &&
        (chain_at(engine, job_chain(job))->active > 0 || chain_at(engine, job_chain(job))->held)) {
        set.flags = 0;
        set.mark = 0;
        set.note = 0;
    } else {
        fill_onward(engine, job, set.when_ms, &set);
    }
    decide_set(engine, number, &set);
}

void batch_leave(struct engine *engine, uint64_t batch, enum engine_state state)
{
    uint32_t number = find_gathering(engine, batch);
    struct op_set set;

    if (!number || (uint32_t)job_at(engine, number)->mark == 0) return;
    set_from(job_at(engine, number), &set);
    set.mark--;
    if (state != ENGINE_DONE) set.note++;
    decide_set(engine, number, &set);
    gathered(engine, number);
}

void batch_unjoin(struct engine *engine, uint64_t batch)
{
    uint32_t number = find_gathering(engine, batch);
    struct op_set set;

    if (!number || (uint32_t)job_at(engine, number)->mark == 0) return;
    set_from(job_at(engine, number), &set);
    set.mark -= (UINT64_C(1) << 32) + 1;
    decide_set(engine, number, &set);
    gathered(engine, number);
}

int engine_batch_seal(struct engine *engine, int64_t now_ms, uint64_t batch)
{
    int r = command_begin(engine, now_ms, 0);
    uint32_t number = r < 0 ? 0 : batch_find_open(engine, batch);
    struct op_set set;

    if (r < 0) return r;
    if (!number) {
        return engine_refuse(engine, -ENOENT, "batch %llu: is not there, or sealed",
                             (unsigned long long)batch);
    }
    set_from(job_at(engine, number), &set);
    set.flags &= (uint8_t)~JOB_OPEN_BATCH;
    decide_set(engine, number, &set);
    gathered(engine, number);
    number = job_find(engine, batch);
    return number ? job_at(engine, number)->state : ENGINE_DEAD;
}

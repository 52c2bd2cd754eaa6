/* patch.c - what is said of a job that waits is changed: priority, its time, when it expires. */
#include <errno.h>

#include "engine/state.h"

static int check_patch(struct engine *engine, const struct job *job,
                       const struct engine_patch *patch, struct engine_slice payload)
{
    unsigned long long id = job->id;

    if (job->state != ENGINE_SCHEDULED && job->state != ENGINE_READY &&
        job->state != ENGINE_BLOCKED) {
        return engine_refuse(engine, -EBUSY, "job %llu: is %s, it can be changed while it waits",
                             id, engine_state_names[job->state]);
    }
    if (payload.count != job->payload_bytes) {
        return engine_refuse(engine, -EINVAL, "job %llu: the payload is not its own", id);
    }
    if (patch->has_priority && patch->priority > ENGINE_PRIORITY_MAX) {
        return engine_refuse(engine, -EINVAL, "job %llu: priority is more than %d", id,
                             ENGINE_PRIORITY_MAX);
    }
    if (patch->has_run_at && (patch->run_at_ms < 0 || patch->run_at_ms > ENGINE_TIME_MS_MAX)) {
        return engine_refuse(engine, -EINVAL, "job %llu: run_at_ms is out of range", id);
    }
    if (patch->has_expires && (patch->expires_ms < 0 || patch->expires_ms > ENGINE_TIME_MS_MAX ||
                               (patch->expires_ms && patch->expires_ms <= engine->now_ms))) {
        return engine_refuse(engine, -EINVAL, "job %llu: expires_ms is out of range or has passed",
                             id);
    }
    return 0;
}

/* What the job says from now on. It goes to the end of its lane. */
static void fill_patched(struct engine *engine, const struct job *job,
                         const struct engine_patch *patch, struct op_job *ret_op)
{
    struct job probe = *job; /* as it will be, for who asks where it belongs */
    int64_t run_at_ms = patch->has_run_at                ? patch->run_at_ms
                        : job->state == ENGINE_SCHEDULED ? job->when_ms
                                                         : engine->now_ms;

    job_says(engine, job, ret_op);
    if (patch->has_priority) ret_op->priority = probe.priority = patch->priority;
    if (patch->has_expires) ret_op->expires_ms = patch->expires_ms;
    ret_op->set.to = (struct op_turn){0};
    fill_onward(engine, &probe, run_at_ms > 0 ? run_at_ms : engine->now_ms, &ret_op->set);
}

/* The job and its errors into the record, or nothing. */
static int write_patched(struct engine *engine, const struct op *op)
{
    size_t before = engine->record.count;
    int r = write_op(engine, &engine->record, op);

    if (r == 0) r = write_errors(engine, &engine->record, op->job.set.id);
    command_check(engine);
    if (r == 0) r = command_reserve(engine, 0);
    if (r == 0) return 0;
    engine->record.count = before;
    return engine_refuse(engine, r, "there is no memory to log the job again");
}

int engine_patch(struct engine *engine, int64_t now_ms, uint64_t id,
                 const struct engine_patch *patch, struct engine_slice payload,
                 struct engine_slice trace)
{
    int r = command_begin(engine, now_ms, payload.count + trace.count);
    uint32_t number = r < 0 ? 0 : job_find(engine, id);
    uint64_t last_mark = engine->last_mark, last_turn = engine->last_turn;
    struct op op = {.type = OP_JOB};
    struct job *job;

    if (r < 0) return r;
    if (!number)
        return engine_refuse(engine, -ENOENT, "job %llu: there is none", (unsigned long long)id);
    job = job_at(engine, number);
    r = check_patch(engine, job, patch, payload);
    if (r < 0) return r;
    fill_patched(engine, job, patch, &op.job);
    op.job.has_payload = true;
    op.job.payload = payload;
    op.job.trace = trace;
    r = write_patched(engine, &op);
    if (r < 0) {
        engine->last_mark = last_mark;
        engine->last_turn = last_turn;
        return r;
    }
    live_job(engine, job, -1);
    job->position = POSITION_PENDING;
    failures_join_payload(engine, job);
    engine->pending[engine->pending_count++] = number;
    apply_patch(engine, number, &op.job);
    if (op.job.set.state == ENGINE_READY)
        wake_queue(engine, stage_at(engine, job->stage)->atom.scope);
    decide_topups(engine, job); /* the keys have room again that it does not take */
    return job->state;
}

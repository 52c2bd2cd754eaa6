/* lease.c - what the holder of a lease can do, how attempts fail, and how jobs are cancelled. */
#include <errno.h>

#include "engine/state.h"

int engine_lease_check(struct engine *engine, uint64_t id, uint64_t token)
{
    uint32_t number = job_find(engine, id);
    const struct job *job = number ? job_at(engine, number) : NULL;

    if (!job)
        return engine_refuse(engine, -ENOENT, "job %llu: there is none", (unsigned long long)id);
    if (job->state == ENGINE_LEASED && job->mark == token) return 0;
    return engine_refuse(engine, -ESTALE, "job %llu: token %llu has no lease",
                         (unsigned long long)id, (unsigned long long)token);
}

/* The job whose lease has this token; 0, and why, if there is none. */
static uint32_t find_leased(struct engine *engine, uint64_t id, uint64_t token, int *ret_error)
{
    int r = engine_lease_check(engine, id, token);

    if (r == 0) return job_find(engine, id);
    *ret_error = r;
    return 0;
}

int engine_renew(struct engine *engine, int64_t now_ms, uint64_t id, uint64_t token,
                 int64_t lease_ms, struct engine_renewed *ret_renewed)
{
    int r = command_begin(engine, now_ms, 0);
    uint32_t number = r < 0 ? 0 : find_leased(engine, id, token, &r);
    const struct job *job;
    uint32_t timeout_ms;
    struct op_set set;

    if (!number) return r;
    if (lease_ms <= 0 || lease_ms > ENGINE_SPAN_MS_MAX) {
        return engine_refuse(engine, -EINVAL, "renew: lease_ms is not set or too long");
    }
    job = job_at(engine, number);
    set_from(job, &set);
    set.when_ms = engine->now_ms + lease_ms;
    timeout_ms = policy_at(engine, job->policy)->says.timeout_ms;
    if (timeout_ms && set.when_ms > job->started_ms + timeout_ms) {
        set.when_ms = job->started_ms + timeout_ms;
    }
    if (set.when_ms != job->when_ms) decide_set(engine, number, &set);
    *ret_renewed = (struct engine_renewed){
        .lease_until_ms = set.when_ms,
        .orders = job->flags & JOB_CANCEL ? ENGINE_GO_CANCELLED : 0u,
    };
    return 0;
}

int engine_progress(struct engine *engine, int64_t now_ms, uint64_t id, uint64_t token,
                    uint32_t progress)
{
    int r = command_begin(engine, now_ms, 0);
    uint32_t number = r < 0 ? 0 : find_leased(engine, id, token, &r);
    struct op_set set;

    if (!number) return r;
    set_from(job_at(engine, number), &set);
    set.note = progress;
    decide_set(engine, number, &set);
    return 0;
}

static void leave_queue_lane(struct engine *engine, uint32_t queue)
{
    /* Its concurrency may have been what held others back. */
    if (queue_at(engine, queue)->concurrency) wake_queue(engine, queue);
}

int engine_ack(struct engine *engine, int64_t now_ms, uint64_t id, uint64_t token,
               struct engine_slice result)
{
    int r = command_begin(engine, now_ms, result.count);
    uint32_t number = r < 0 ? 0 : find_leased(engine, id, token, &r);
    uint32_t queue;

    if (!number) return r;
    if (result.count > engine->config.result_bytes_max) {
        return engine_refuse(engine, -EINVAL, "ack: result has %zu bytes, more than %u",
                             result.count, engine->config.result_bytes_max);
    }
    queue = stage_at(engine, job_at(engine, number)->stage)->atom.scope;
    atom_ref(engine, ATOM_QUEUE, queue);
    queue_at(engine, queue)->counted.done++;
    queue_at(engine, queue)->counted.run_ms +=
        (uint64_t)(engine->now_ms - job_at(engine, number)->started_ms);
    decide_end(engine, number, ENGINE_DONE, result);
    leave_queue_lane(engine, queue);
    atom_unref(engine, ATOM_QUEUE, queue);
    return 0;
}

/* ---- Failing ---- */

static bool never_retried(const struct policy_text *says, struct engine_slice class)
{
    for (uint32_t i = 0; i < says->never_count; i++) {
        if (says->never[i].count == class.count &&
            memcmp(says->never[i].at, class.at, class.count) == 0)
            return true;
    }
    return false;
}

static int64_t backoff_ms(const struct engine *engine, const struct job *job)
{
    const struct policy_text *says = &policy_at(engine, job->policy)->says;
    uint64_t wait_ms = says->backoff_ms;

    for (uint32_t i = 1; i < job->attempts && wait_ms < says->backoff_ms_max; i++) wait_ms *= 2;
    if (wait_ms > says->backoff_ms_max) wait_ms = says->backoff_ms_max;
    if (says->jitter && wait_ms > 0) {
        uint32_t bound = wait_ms < UINT32_MAX ? (uint32_t)wait_ms + 1 : UINT32_MAX;
        return jitter_below(engine, job, bound);
    }
    return (int64_t)wait_ms;
}

static enum engine_state after_failure(const struct engine *engine, const struct job *job,
                                       const struct engine_failure *failure)
{
    const struct policy_text *says = &policy_at(engine, job->policy)->says;

    if (job->flags & JOB_CANCEL) return ENGINE_CANCELLED;
    if (failure->dead || job->attempts >= says->attempts_max || never_retried(says, failure->class))
        return ENGINE_DEAD;
    if (job->expires_ms && job->expires_ms <= engine->now_ms) return ENGINE_EXPIRED;
    return ENGINE_SCHEDULED;
}

static void leave_lease(struct engine *engine, uint32_t number, int64_t run_at_ms,
                        uint16_t attempts)
{
    const struct job *job = job_at(engine, number);
    struct op_set set;

    set_from(job, &set);
    set.attempts = attempts;
    fill_onward(engine, job, run_at_ms, &set);
    decide_set(engine, number, &set);
    decide_topups(engine, job);
}

static void count_end(struct queue *queue, enum engine_state state)
{
    queue->counted.died += state == ENGINE_DEAD;
    queue->counted.expired += state == ENGINE_EXPIRED;
    queue->counted.cancelled += state == ENGINE_CANCELLED;
}

int decide_failure(struct engine *engine, uint32_t number, const struct engine_failure *failure)
{
    const struct job *job = job_at(engine, number);
    uint32_t queue = stage_at(engine, job->stage)->atom.scope;
    enum engine_state state = after_failure(engine, job, failure);
    struct op op = {.type = OP_ERROR};
    int r;

    op.error =
        (struct op_error){job->id, job->runs, engine->now_ms, failure->class, failure->message};
    if (op.error.message.count > engine->config.message_bytes_max) {
        op.error.message.count = engine->config.message_bytes_max;
    }
    r = command_op(engine, &op);
    if (r < 0) return r;
    atom_ref(engine, ATOM_QUEUE, queue);
    queue_at(engine, queue)->counted.failed++;
    if (state == ENGINE_SCHEDULED) {
        int64_t delay_ms = failure->delay_ms >= 0 ? failure->delay_ms : backoff_ms(engine, job);
        leave_lease(engine, number, engine->now_ms + delay_ms, job->attempts);
    } else {
        count_end(queue_at(engine, queue), state);
        decide_end(engine, number, state, (struct engine_slice){0});
    }
    leave_queue_lane(engine, queue);
    atom_unref(engine, ATOM_QUEUE, queue);
    number = job_find(engine, op.error.id);
    return number ? job_at(engine, number)->state : (int)state;
}

int engine_fail(struct engine *engine, int64_t now_ms, uint64_t id, uint64_t token,
                const struct engine_failure *failure)
{
    int r = command_begin(engine, now_ms, failure->class.count + failure->message.count + 100);
    uint32_t number = r < 0 ? 0 : find_leased(engine, id, token, &r);

    if (!number) return r;
    if (failure->class.count > ENGINE_NAME_BYTES_MAX) {
        return engine_refuse(engine, -EINVAL, "fail: class has %zu bytes, more than %d",
                             failure->class.count, ENGINE_NAME_BYTES_MAX);
    }
    if (failure->delay_ms > ENGINE_SPAN_MS_MAX) {
        return engine_refuse(engine, -EINVAL, "fail: delay_ms is too long");
    }
    return decide_failure(engine, number, failure);
}

int engine_release(struct engine *engine, int64_t now_ms, uint64_t id, uint64_t token,
                   int64_t delay_ms)
{
    int r = command_begin(engine, now_ms, 0);
    uint32_t number = r < 0 ? 0 : find_leased(engine, id, token, &r);
    const struct job *job;
    uint32_t queue;

    if (!number) return r;
    if (delay_ms < 0 || delay_ms > ENGINE_SPAN_MS_MAX) {
        return engine_refuse(engine, -EINVAL, "release: delay_ms is negative or too long");
    }
    job = job_at(engine, number);
    queue = stage_at(engine, job->stage)->atom.scope;
    atom_ref(engine, ATOM_QUEUE, queue);
    if (job->flags & JOB_CANCEL) {
        count_end(queue_at(engine, queue), ENGINE_CANCELLED);
        decide_end(engine, number, ENGINE_CANCELLED, (struct engine_slice){0});
    } else {
        leave_lease(engine, number, engine->now_ms + delay_ms,
                    (uint16_t)(job->attempts > 0 ? job->attempts - 1 : 0));
    }
    leave_queue_lane(engine, queue);
    atom_unref(engine, ATOM_QUEUE, queue);
    return 0;
}

int engine_cancel(struct engine *engine, int64_t now_ms, uint64_t id)
{
    int r = command_begin(engine, now_ms, 0);
    uint32_t number = r < 0 ? 0 : job_find(engine, id);
    struct op_set set;
    struct job *job;

    if (r < 0) return r;
    if (!number)
        return engine_refuse(engine, -ENOENT, "job %llu: there is none", (unsigned long long)id);
    job = job_at(engine, number);
    if (job->state >= ENGINE_DONE) {
        return engine_refuse(engine, -EBUSY, "job %llu: is %s already", (unsigned long long)id,
                             engine_state_names[job->state]);
    }
    if (job->state == ENGINE_LEASED) {
        if (job->flags & JOB_CANCEL) return ENGINE_LEASED;
        set_from(job, &set);
        set.flags |= JOB_CANCEL;
        decide_set(engine, number, &set);
        return ENGINE_LEASED;
    }
    count_end(queue_of(engine, job), ENGINE_CANCELLED);
    decide_end(engine, number, ENGINE_CANCELLED, (struct engine_slice){0});
    return ENGINE_CANCELLED;
}

/* live.c - which bytes of the log rows still need, and who has ended: told to whoever asked.
 *
 * A row needs the record with its payload, and that with its result. What a job counts for in the
 * first one depends on nothing that changes while it refers to it, but for the errors that are in
 * that record: a job that is logged again brings all of them along. Those in other records count
 * for nothing: these are let go of after the payload's, which is older. */
#include "engine/state.h"

enum { JOB_LIVE_BYTES = 64, FAILURE_LIVE_BYTES = 16 };

static int64_t failure_bytes(const struct failure *failure)
{
    if (!failure->beside_payload) return 0;
    return (int64_t)FAILURE_LIVE_BYTES + failure->class_bytes + failure->message_bytes;
}

/* A record has them in full, whoever else has the same. */
static uint32_t names_bytes(const struct engine *engine, const struct job *job)
{
    const struct stage *stage = stage_at(engine, job->stage);
    uint32_t bytes = stage->atom.bytes + queue_at(engine, stage->atom.scope)->atom.bytes +
                     policy_at(engine, job->policy)->atom.bytes;
    uint32_t chain = job_chain(job);

    if (job->fair) bytes += key_at(engine, job->fair)->atom.bytes;
    if (chain) bytes += chain_at(engine, chain)->atom.bytes;
    for (uint32_t i = 0; i < job_limit_count(job); i++) {
        bytes += key_at(engine, job_limit(job, i))->atom.bytes;
    }
    return bytes;
}

static int64_t job_bytes(const struct engine *engine, const struct job *job)
{
    int64_t bytes =
        (int64_t)(JOB_LIVE_BYTES + job->payload_bytes + names_bytes(engine, job) +
                  job_tags(job).count + job_unique_key(job).count + job_idempotency_key(job).count);

    for (uint32_t at = job_failures(job); at; at = failure_at(engine, at)->next) {
        bytes += failure_bytes(failure_at(engine, at));
    }
    return bytes;
}

static bool has_result(const struct job *job)
{
    return job->state == ENGINE_DONE && job->note > 0;
}

static void tell(struct engine *engine, uint64_t position, int64_t bytes)
{
    if (position == POSITION_PENDING) return;
    engine->live_bytes += bytes;
    if (engine->hooks.live) engine->hooks.live(engine->hooks.arg, position, bytes);
}

void live_job(struct engine *engine, const struct job *job, int sign)
{
    if (job->position == POSITION_PENDING) return;
    tell(engine, job->position, sign * job_bytes(engine, job));
}

void live_failure(struct engine *engine, const struct job *job, const struct failure *failure,
                  int sign)
{
    int64_t bytes = failure_bytes(failure);

    if (bytes > 0) tell(engine, job->position, sign * bytes);
}

void live_result(struct engine *engine, const struct job *job, int sign)
{
    if (has_result(job)) tell(engine, job->mark, sign * (int64_t)job->note);
}

void tell_ended(struct engine *engine, uint64_t id, enum engine_state state)
{
    if (engine->hooks.ended) engine->hooks.ended(engine->hooks.arg, id, state);
}

int64_t live_bytes_of(const struct engine *engine, const struct job *job)
{
    int64_t bytes = job->position == POSITION_PENDING ? 0 : job_bytes(engine, job);
    if (has_result(job) && job->mark != POSITION_PENDING) bytes += job->note;
    return bytes;
}

void engine_hooks_set(struct engine *engine, const struct engine_hooks *hooks)
{
    engine->hooks = *hooks;
    engine->live_bytes = 0;
    for (uint32_t at = 1; at <= engine->jobs.last; at++) {
        const struct job *job = job_at(engine, at);
        if (job->state == ENGINE_NO_JOB) continue;
        live_job(engine, job, 1);
        live_result(engine, job, 1);
    }
}

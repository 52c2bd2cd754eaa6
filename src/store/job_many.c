/* job_many.c - what belongs together in one record or one wait: commits, heartbeats of a worker;
 * and changes to a job that waits. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "rt/mem.h"
#include "store/store.h"

/* ---- Commits ---- */

/* What the record may have for one settlement beside what it was given: others that go on. */
enum { SETTLE_BYTES = 20000 };

struct commit {
    struct store *store;
    const weir_commit_spec *spec;
    struct engine_job_spec *jobs;
    char (*traces)[JOB_TRACE_BYTES];
    weir_enqueued *enqueued;
    uint64_t *ids; /* of the jobs that are no duplicates */
};

static int commit_check(const weir_commit_spec *spec)
{
    if (spec->job_count == 0 && spec->settlement_count == 0)
        return refuse("weir_commit: there is nothing in it");
    if (spec->job_count > WEIR_JOB_ENQUEUE_MAX || (spec->job_count > 0 && !spec->jobs))
        return refuse("weir_commit: %zu jobs, at most %d", spec->job_count, WEIR_JOB_ENQUEUE_MAX);
    if (spec->settlement_count > WEIR_COMMIT_SETTLE_MAX ||
        (spec->settlement_count > 0 && !spec->settlements))
        return refuse("weir_commit: %zu settlements, at most %d", spec->settlement_count,
                      WEIR_COMMIT_SETTLE_MAX);
    if (spec->durability > WEIR_SYNCED) return refuse("weir_commit: durability is none");
    for (size_t i = 0; i < spec->settlement_count; i++) {
        const weir_settlement *one = &spec->settlements[i];

        if (one->then_count > 0)
            return refuse("weir_commit: settlement of job %llu has jobs of its own",
                          (unsigned long long)one->id);
        if (one->durability != WEIR_DURABILITY_UNSET)
            return refuse("weir_commit: settlement of job %llu has a durability of its own",
                          (unsigned long long)one->id);
        if (one->delay_ms > ENGINE_SPAN_MS_MAX)
            return refuse("settlement of job %llu: delay_ms is more than three years",
                          (unsigned long long)one->id);
        for (size_t k = 0; k < i; k++)
            if (spec->settlements[k].id == one->id)
                return refuse("weir_commit: job %llu is settled twice",
                              (unsigned long long)one->id);
    }
    return 0;
}

/* In the engine's words, and how many bytes they take. */
static int commit_convert(struct commit *commit, struct store_intent *intent)
{
    const weir_commit_spec *spec = commit->spec;
    int r = 0;

    for (size_t i = 0; r == 0 && i < spec->job_count; i++) {
        r = job_spec_convert(commit->store, &spec->jobs[i], commit->traces[i], &commit->jobs[i]);
        if (r == 0) intent->bytes += job_one_of_many_bytes(&commit->jobs[i]);
    }
    for (size_t i = 0; r == 0 && i < spec->settlement_count; i++) {
        weir_settlement *one = &spec->settlements[i];

        r = one->ret_error = job_settle_check(commit->store, one);
        intent->bytes += one->result_bytes + STORE_MESSAGE_BYTES_MAX + SETTLE_BYTES;
    }
    return r;
}

_Static_assert(WEIR_COMMIT_SETTLE_MAX <= ENGINE_SETTLE_MAX, "the engine keeps memory for them");

/* They have been checked, and there is memory for all: none of them fails. */
static int settle_all(struct store *store, int64_t now_ms, const weir_commit_spec *spec)
{
    struct engine_settle needs[WEIR_COMMIT_SETTLE_MAX];
    int r;

    for (size_t i = 0; i < spec->settlement_count; i++) {
        const weir_settlement *one = &spec->settlements[i];

        needs[i] = (struct engine_settle){.id = one->id,
                                          .result_bytes = one->result_bytes,
                                          .fails = one->how == WEIR_SETTLE_FAIL ||
                                                   one->how == WEIR_SETTLE_DEAD,
                                          .class = slice_of(one->error_class),
                                          .message = slice_of(one->error_message)};
    }
    r = engine_settle_begin(store->engine, needs, (uint32_t)spec->settlement_count);
    if (r < 0) return store_refuse(store, r);
    for (size_t i = 0; i < spec->settlement_count; i++) {
        r = job_settle_now(store, now_ms, &spec->settlements[i]);
        assert(r >= 0);
        spec->settlements[i].ret_state = (enum weir_job_state)r;
    }
    engine_settle_end(store->engine);
    return 0;
}

/* All of it, under one lock: what can refuse comes before what cannot be undone. */
static int commit_now(struct commit *commit)
{
    const weir_commit_spec *spec = commit->spec;
    struct store *store = commit->store;
    int64_t now_ms = store_now_ms(store);
    int r = 0;

    for (size_t i = 0; r == 0 && i < spec->settlement_count; i++) {
        weir_settlement *one = &spec->settlements[i];

        r = one->ret_error = engine_lease_check(store->engine, one->id, one->token);
        if (r < 0) return store_refuse(store, r);
    }
    for (size_t i = 0; i < spec->job_count; i++) {
        struct engine_enqueued one = {0};

        if (spec->jobs[i].delay_ms > 0) commit->jobs[i].run_at_ms = now_ms + spec->jobs[i].delay_ms;
        r = engine_enqueue(store->engine, now_ms, &commit->jobs[i], &one);
        if (r < 0) {
            r = store_refuse(store, r);
            job_take_back(store, now_ms, commit->ids, i);
            return r;
        }
        commit->enqueued[i] = (weir_enqueued){one.id, one.duplicate, WEIR_DURABILITY_UNSET};
        commit->ids[i] = one.duplicate ? 0 : one.id;
    }
    if (spec->settlement_count == 0) return 0;
    r = settle_all(store, now_ms, spec);
    if (r < 0) job_take_back(store, now_ms, commit->ids, spec->job_count);
    for (size_t i = 0; r < 0 && i < spec->settlement_count; i++) {
        spec->settlements[i].ret_error = r;
        spec->settlements[i].ret_state = WEIR_JOB_NONE;
    }
    return r;
}

static int commit_go(weir_store *handle, struct commit *commit)
{
    const weir_commit_spec *spec = commit->spec;
    struct store_intent intent = {
        .call = "weir_commit", .use = spec->settlement_count > 0 ? LOG_FOR_EXISTING : LOG_FOR_NEW};
    enum weir_durability durability = store_durability(commit->store, spec->durability);
    int r = commit_convert(commit, &intent);

    if (r == 0) r = store_enter(handle, &intent, &commit->store);
    if (r < 0) return r;
    r = commit_now(commit);
    store_commit(commit->store, intent.use);
    r = store_leave(commit->store, durability, r);
    for (size_t i = 0; r == 0 && spec->ret_enqueued && i < spec->job_count; i++) {
        spec->ret_enqueued[i] = commit->enqueued[i];
        spec->ret_enqueued[i].durability = durability;
    }
    return r;
}

int weir_commit_sized(weir_store *handle, size_t spec_bytes, const weir_commit_spec *given)
{
    struct commit commit = {.store = store_look_up(handle, "weir_commit")};
    weir_commit_spec spec;
    void *memory;
    int r;

    spec_copy(&spec, sizeof spec, given, spec_bytes);
    r = commit_check(&spec);
    if (r < 0) return r;
    commit.spec = &spec;
    memory = mem_alloc((spec.job_count + 1) * (sizeof *commit.jobs + sizeof *commit.enqueued +
                                               sizeof *commit.ids + sizeof *commit.traces));
    if (!memory) return -ENOMEM;
    commit.jobs = memory;
    commit.enqueued = (weir_enqueued *)(void *)(commit.jobs + spec.job_count);
    commit.ids = (uint64_t *)(void *)(commit.enqueued + spec.job_count);
    commit.traces = (char(*)[JOB_TRACE_BYTES])(void *)(commit.ids + spec.job_count);
    r = commit_go(handle, &commit);
    mem_free(memory);
    return r;
}

/* ---- Patches ---- */

/* The bytes are read without the lock: a job that was logged again meanwhile is read again. */
enum { PATCH_TRIES = 8 };

static int patch_try(struct store *store, uint64_t id, const struct engine_patch *patch,
                     bool *ret_again)
{
    struct store_intent intent = {.call = "weir_job_patch_set", .use = LOG_FOR_EXISTING};
    struct store_bytes record = {0};
    struct engine_found found = {0};
    struct engine_job before, now;
    int r;

    *ret_again = false;
    r = engine_job_get(store->engine, id, &before);
    store_unlock_entered(store);
    if (r < 0)
        r = refuse_as(r, "store '%s': there is no job %llu", store->object.name,
                      (unsigned long long)id);
    if (r == 0) r = store_read_job(store, id, before.position, false, &record, &found);
    intent.bytes = found.payload.count + found.trace.count + STORE_MESSAGE_BYTES_MAX;
    if (r == 0) r = store_enter_again(store, &intent);
    if (r < 0) {
        mem_free(record.memory);
        store_exit(store);
        return r;
    }
    r = engine_job_get(store->engine, id, &now);
    *ret_again = r == 0 && now.position != before.position;
    if (!*ret_again) {
        r = engine_patch(store->engine, store_now_ms(store), id, patch, found.payload, found.trace);
        if (r < 0)
            r = store_refuse(store, r);
        else
            store_commit(store, LOG_FOR_EXISTING);
        r = store_leave(store, WEIR_DURABILITY_UNSET, r);
    }
    mem_free(record.memory);
    return r;
}

int weir_job_patch_set(weir_store *handle, uint64_t id, const weir_job_patch *given)
{
    const struct store_intent intent = {.call = "weir_job_patch_set"};
    const struct engine_patch patch = {
        .has_priority = given->has_priority,
        .has_run_at = given->has_run_at,
        .has_expires = given->has_expires,
        .priority = given->priority,
        .run_at_ms = given->run_at_ms,
        .expires_ms = given->expires_ms,
    };
    struct store *store;
    bool again = true;
    int r = store_enter(handle, &intent, &store);

    if (r < 0) return r;
    for (int i = 0; again && i < PATCH_TRIES; i++) r = patch_try(store, id, &patch, &again);
    if (!again) return r;
    store_unlock_entered(store);
    store_exit(store);
    return refuse_as(-EBUSY, "store '%s': job %llu is being moved", store->object.name,
                     (unsigned long long)id);
}

/* store_jobs_look.c - the store is held to what was told: see store_jobs.h. */
#include <errno.h>
#include <string.h>

#include "sim/store_jobs.h"

static int state_of(weir_store *store, uint64_t id)
{
    weir_job_info info;
    int r = weir_job_get(store, id, &info);

    if (r < 0) return r;
    r = (int)info.state;
    weir_job_info_free(&info);
    return r;
}

/* ---- After a start ---- */

static int look_at_job(weir_store *store, struct job *job)
{
    unsigned long long id = job->id;
    int r = state_of(store, job->id);

    if (r < 0 && r != -ENOENT) return r;
    if (r == -ENOENT) {
        if (job->kept && !world_may_be_gone(job)) weir_sim_fail("job %llu is lost", id);
        if (!world_may_be_gone(job)) job->lost = true;
        return 0;
    }
    if (job->lost) weir_sim_fail("job %llu was lost, and is back", id);
    if (job->purged) weir_sim_fail("job %llu was purged, and is back", id);
    if (job->told != 0 && !job->changed && r != (int)job->told)
        weir_sim_fail("job %llu was told to be %s, and is %s", id, weir_job_state_name(job->told),
                      weir_job_state_name((enum weir_job_state)r));
    if (job->over && !job->changed && r < WEIR_JOB_DONE)
        weir_sim_fail("job %llu had ended, and is %s", id,
                      weir_job_state_name((enum weir_job_state)r));
    job->kept = true; /* recovery has found it, and made sure of it */
    return 0;
}

static int look_at_settings(weir_store *store, int queue)
{
    weir_queue_figures figures;
    uint32_t found = 0;
    int r = weir_queue_get(store, queue_names[queue], &figures);

    if (r < 0 && r != -ENOENT) return r;
    if (r == 0) found = figures.spec.latency_target_ms;
    if (found != world.setting_told[queue] && found != world.setting_asked[queue])
        weir_sim_fail("queue '%s' has settings %u, and should have %u or %u", queue_names[queue],
                      found, world.setting_told[queue], world.setting_asked[queue]);
    world.setting_told[queue] = world.setting_asked[queue] = found;
    return 0;
}

int look_at_all(weir_store *store)
{
    int r = 0;

    for (int i = 0; i < world.job_count && r == 0; i++) r = look_at_job(store, &world.jobs[i]);
    for (int i = 0; i < QUEUES && r == 0; i++) r = look_at_settings(store, i);
    return r;
}

/* ---- Keys ---- */

int look_at_order(weir_store *store, const struct job *job)
{
    const struct wanted *wanted = world_wanted(job);

    if (!wanted || wanted->order == NO_KEY || job->changed) return 0;
    for (int i = 0; i < world.job_count; i++) {
        const struct job *other = &world.jobs[i];
        const struct wanted *before = world_wanted(other);
        int r;

        if (!before || before->order != wanted->order || before->queue != wanted->queue ||
            other->id >= job->id || other->lost || other->changed || other->told != 0)
            continue;
        r = state_of(store, other->id);
        if (r < 0 && r != -ENOENT) return r;
        if (r >= 0 && r < WEIR_JOB_DONE && !other->changed)
            weir_sim_fail("job %llu runs, and %llu before it in order is %s",
                          (unsigned long long)job->id, (unsigned long long)other->id,
                          weir_job_state_name((enum weir_job_state)r));
    }
    return 0;
}

int look_at_unique(weir_store *store, const struct job *job)
{
    const struct wanted *wanted = world_wanted(job);

    if (!wanted || wanted->unique == NO_KEY) return 0;
    for (int i = 0; i < world.job_count; i++) {
        const struct job *other = &world.jobs[i];
        const struct wanted *first = world_wanted(other);
        int r;

        if (!first || first->unique != wanted->unique || other->id >= job->id || other->lost ||
            other->changed)
            continue;
        r = state_of(store, other->id);
        if (r < 0 && r != -ENOENT) return r;
        if (r >= 0 && r < WEIR_JOB_DONE && !other->changed)
            weir_sim_fail("jobs %llu and %llu have one unique key", (unsigned long long)other->id,
                          (unsigned long long)job->id);
    }
    return 0;
}

/* ---- Batches ---- */

int look_at_batch(weir_store *store, const struct job *job)
{
    const struct wanted *wanted = world_wanted(job);
    uint64_t token = job->token;

    if (!wanted || wanted->gathers == WEIR_GATHERS_NOTHING || job->changed) return 0;
    world.gathered++;
    for (int i = 0; i < world.wanted_count; i++) {
        const struct wanted *member = &world.wanted[i];
        int r;

        if (member->batch != world_number(wanted) || member->id == 0) continue;
        if (world_job(member->id)->lost || world_job(member->id)->changed) continue;
        r = state_of(store, member->id);
        if (r < 0 && r != -ENOENT) return r;
        if (r < 0 || world_job(member->id)->changed || job->token != token) continue;
        if (r < WEIR_JOB_DONE || (wanted->gathers == WEIR_WHEN_DONE && r != WEIR_JOB_DONE))
            weir_sim_fail("job %llu runs, and %llu of its batch is %s", (unsigned long long)job->id,
                          (unsigned long long)member->id,
                          weir_job_state_name((enum weir_job_state)r));
    }
    return 0;
}

/* ---- Figures ---- */

static int count_listed(weir_store *store, const char *queue, unsigned state, uint64_t *ret_count)
{
    const weir_job_filter filter = {.queue = queue, .states = WEIR_JOB_STATE_BIT(state)};
    uint64_t ids[JOBS_MAX];
    uint32_t cursor = 0, scanned;

    *ret_count = 0;
    do {
        int r = weir_job_list(store, &filter, &cursor, 1000, ids, JOBS_MAX, &scanned);

        if (r < 0) return r;
        *ret_count += (uint64_t)r;
        for (int i = 0; i < r; i++) {
            int found = state_of(store, ids[i]);

            if (found < 0 && found != -ENOENT) return found;
            if (world_job(ids[i])->lost) weir_sim_fail("a job that was lost is listed");
        }
    } while (cursor != 0);
    return 0;
}

static int look_at_queue(weir_store *store, const char *name)
{
    enum { STATES = WEIR_JOB_EXPIRED + 1, TRIES = 20 };
    weir_queue_figures before, after;
    uint64_t counts[STATES] = {0};

    for (int tries = 0; tries < TRIES; tries++) {
        int r = weir_queue_get(store, name, &before);

        if (r == -ENOENT) return 0;
        for (unsigned state = WEIR_JOB_SCHEDULED; state < STATES && r == 0; state++)
            r = count_listed(store, name, state, &counts[state]);
        if (r == 0) r = weir_queue_get(store, name, &after);
        if (r < 0) return r;
        /* Time passes: something may have become due. */
        if (memcmp(before.by_state, after.by_state, sizeof before.by_state) != 0) continue;
        for (unsigned state = WEIR_JOB_SCHEDULED; state < STATES; state++)
            if (counts[state] != after.by_state[state])
                weir_sim_fail("queue '%s' counts %llu jobs that are %s, and %llu are listed", name,
                              (unsigned long long)after.by_state[state],
                              weir_job_state_name((enum weir_job_state)state),
                              (unsigned long long)counts[state]);
        return 0;
    }
    return 0;
}

int look_at_figures(weir_store *store)
{
    int r = 0;

    for (int i = 0; i < QUEUES && r == 0; i++) r = look_at_queue(store, queue_names[i]);
    return r;
}

/* ---- The end ---- */

int look_for_ends(weir_store *store, uint64_t *ret_id, enum weir_job_state *ret_state)
{
    for (int i = 0; i < world.job_count; i++) {
        int r;

        if (world.jobs[i].lost || world.jobs[i].wanted == BY_SCHEDULE) continue;
        r = state_of(store, world.jobs[i].id);
        if (r == -ENOENT) continue;
        if (r < 0) return r;
        if (r >= WEIR_JOB_DONE) continue;
        *ret_id = world.jobs[i].id;
        *ret_state = (enum weir_job_state)r;
        return 0;
    }
    return 1;
}

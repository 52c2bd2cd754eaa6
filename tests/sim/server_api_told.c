/* server_api_told.c - what clients of the API asked and were told: see server_api.h. */
#include "sim/server_api.h"

struct told told;
static bool found[TOLD_JOBS_MAX], done[TOLD_JOBS_MAX];

void told_begin(void)
{
    memset(&told, 0, sizeof told);
}

int told_want(void)
{
    struct told_job *job = &told.jobs[told.job_count];

    if (told.job_count == TOLD_JOBS_MAX) return -1;
    job->asked = true;
    job->source = -1;
    return (int)told.job_count++;
}

unsigned told_ask(void)
{
    return ++told.number;
}

static struct told_job *job_of(int key)
{
    CHECK(key >= 0 && key < (int)told.job_count);
    return &told.jobs[key];
}

/* The job with this id is the one of the key, and of no other. */
static struct told_job *belongs(int key, uint64_t id)
{
    struct told_job *job = job_of(key);

    if (job->kept && job->id != id)
        weir_sim_fail("key %d gives jobs %" PRIu64 " and %" PRIu64, key, job->id, id);
    for (unsigned i = 0; i < told.job_count; i++)
        if ((int)i != key && told.jobs[i].kept && told.jobs[i].id == id)
            weir_sim_fail("id %" PRIu64 " was given twice: for keys %u and %d", id, i, key);
    return job;
}

static void keep(struct told_job *job, uint64_t id)
{
    job->kept = true;
    job->id = id;
}

void told_enqueued(int key, uint64_t id, bool synced)
{
    struct told_job *job = belongs(key, id);

    if (!synced) weir_sim_fail("a job was told of with less than was asked for");
    keep(job, id);
    job->in_doubt = false;
}

/* ---- Leases ---- */

static struct told_lease *lease_of(struct told_job *job, uint64_t token)
{
    for (unsigned i = 0; i < job->lease_count; i++)
        if (job->leases[i].token == token) return &job->leases[i];
    return NULL;
}

static void check_alone(int key, const struct told_job *job)
{
    for (unsigned i = 0; i < job->lease_count; i++) {
        const struct told_lease *one = &job->leases[i];

        for (unsigned k = 0; k < job->lease_count; k++) {
            const struct told_lease *two = &job->leases[k];

            if (two->token <= one->token || (one->given_up && one->given_up < two->told)) continue;
            if (two->claimed_ms < one->until_ms)
                weir_sim_fail("job of key %d has two valid leases: token %" PRIu64 " until %" PRId64
                              ", token %" PRIu64 " from %" PRId64 " on",
                              key, one->token, one->until_ms, two->token, two->claimed_ms);
        }
    }
}

static void check_newest(int key, uint64_t token, unsigned asked, const char *what)
{
    const struct told_job *job = job_of(key);

    for (unsigned i = 0; i < job->lease_count; i++)
        if (job->leases[i].token > token && job->leases[i].told < asked)
            weir_sim_fail("job of key %d was %s with an old token", key, what);
}

void told_leased(int key, uint64_t id, uint64_t token, int64_t until_ms, int64_t lease_ms,
                 unsigned asked)
{
    struct told_job *job = belongs(key, id);

    for (unsigned i = 0; i < told.token_count; i++)
        if (told.tokens[i] == token) weir_sim_fail("token %" PRIu64 " was given twice", token);
    told.tokens[told.token_count++] = token;
    for (unsigned i = 0; i < job->lease_count; i++)
        if (job->leases[i].told < asked && job->leases[i].token > token)
            weir_sim_fail("tokens of key %d fall", key);
    if (job->ended && token > job->end_token)
        weir_sim_fail("job of key %d has ended, and is leased", key);
    keep(job, id);
    if (job->lease_count == TOLD_LEASES_MAX) weir_sim_fail("too many leases of key %d", key);
    job->leases[job->lease_count++] = (struct told_lease){.token = token,
                                                          .told = ++told.number,
                                                          .claimed_ms = until_ms - lease_ms,
                                                          .until_ms = until_ms};
    check_alone(key, job);
}

void told_extended(int key, uint64_t token, int64_t until_ms, unsigned asked)
{
    struct told_job *job = job_of(key);
    struct told_lease *lease = lease_of(job, token);

    check_newest(key, token, asked, "extended");
    if (!lease) return;
    lease->until_ms = until_ms;
    check_alone(key, job);
}

/* ---- Ends ---- */

void told_settle_asked(int key, uint64_t token, bool ends)
{
    struct told_job *job = job_of(key);
    struct told_lease *lease = lease_of(job, token);

    if (ends) job->end_asks++;
    if (!lease) return;
    lease->settle_asks++;
    if (!lease->given_up) lease->given_up = ++told.number;
}

void told_settled(int key, uint64_t token, bool ends, unsigned asked)
{
    struct told_job *job = job_of(key);

    check_newest(key, token, asked, "settled");
    if (!ends) return;
    /* An end may have been seen while its answer was still on its way. */
    if (job->ended && job->end_token != token &&
        !(job->end_token == UINT64_MAX && asked < job->end_seen))
        weir_sim_fail("job of key %d has ended twice", key);
    for (unsigned i = 0; i < job->lease_count; i++)
        if (job->leases[i].token > token)
            weir_sim_fail("job of key %d was settled with an old token", key);
    job->ended = true;
    job->end_token = token;
}

void told_refused(int key, uint64_t token, bool ends)
{
    struct told_job *job = job_of(key);
    struct told_lease *lease = lease_of(job, token);

    if (ends) job->end_asks--;
    if (lease && --lease->settle_asks == 0) lease->given_up = 0;
}

bool told_all_ended(void)
{
    for (unsigned i = 0; i < told.job_count; i++)
        if (told.jobs[i].kept && !told.jobs[i].ended && !told.jobs[i].seen_done) return false;
    return true;
}

/* ---- After a start ---- */

void told_look_begin(void)
{
    memset(found, 0, sizeof found);
    memset(done, 0, sizeof done);
}

void told_found(int key, uint64_t id, bool is_done)
{
    struct told_job *job;

    if (key < 0 || key >= (int)told.job_count) weir_sim_fail("a job is there that nobody wants");
    if (found[key]) weir_sim_fail("key %d has two jobs", key);
    job = belongs(key, id);
    if (job->unwelcome) weir_sim_fail("key %d is of a commit that was refused", key);
    if (job->ended && !is_done) weir_sim_fail("the end of key %d is lost", key);
    if (is_done && job->end_asks == 0) weir_sim_fail("nobody has ended key %d", key);
    found[key] = true;
    done[key] = is_done;
}

static void look_at_commit(int key, const struct told_job *job)
{
    const struct told_job *source = &told.jobs[job->source];

    if (found[key] && !done[job->source])
        weir_sim_fail("key %d is there, and what its commit acknowledges has not ended", key);
    /* Unless nobody was told by whom, which an earlier look has found. */
    if (found[key] && source->ended && source->end_token != UINT64_MAX &&
        source->end_token != job->source_token)
        weir_sim_fail("key %d is there, and another has ended what its commit acknowledges", key);
    if (!found[key] && done[job->source] && source->end_asks == 1)
        weir_sim_fail("a commit has ended its job, and key %d is not there", key);
}

void told_look_end(void)
{
    for (unsigned i = 0; i < told.job_count; i++) {
        struct told_job *job = &told.jobs[i];

        if (job->kept && !found[i]) weir_sim_fail("the job of key %u is lost", i);
        if (job->in_doubt) look_at_commit((int)i, job);
    }
    for (unsigned i = 0; i < told.job_count; i++) {
        struct told_job *job = &told.jobs[i];

        if (done[i] && !job->ended) { /* by somebody who was not told */
            job->ended = true;
            job->end_token = UINT64_MAX;
            job->end_seen = ++told.number;
        }
    }
}

void told_result(int key, const char *result)
{
    const struct told_job *job = job_of(key);
    char expected[32];

    (void)snprintf(expected, sizeof expected, "\"%" PRIu64 "\"", job->end_token);
    if (job->ended && job->end_token != UINT64_MAX && strcmp(result, expected) != 0)
        weir_sim_fail("key %d has result %s, and was told %s", key, result, expected);
}

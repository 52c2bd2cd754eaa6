/* store_jobs_world.c - what was wanted and told: see store_jobs.h. */
#include <string.h>

#include "sim/store_jobs.h"

struct world world;
size_t payload_bytes;
bool forgets;
const char *const queue_names[QUEUES] = {"plain", "keyed", "paced", "gathering"};

static const char *const unique_names[KEYS] = {"unique 0", "unique 1"};
static const char *const same_names[KEYS] = {"same 0", "same 1"};
static const char *const order_names[KEYS] = {"order 0", "order 1"};
static const char *const limit_names[KEYS] = {"limit 0", "limit 1"};
static const char *const tenants[2] = {"big", "small"};

#define YEAR_MS (365 * 24 * 3600 * INT64_C(1000))

void world_begin(void)
{
    memset(&world, 0, sizeof world);
}

/* ---- Wanting ---- */

static int key_by_choice(void)
{
    int key = (int)weir_sim_choose(2 * KEYS + 1) - 1;

    return key < KEYS ? key : NO_KEY;
}

struct wanted *world_want_in(int queue)
{
    struct wanted *wanted = &world.wanted[world.wanted_count];

    if (world.wanted_count == WANTED_MAX) return NULL;
    world.wanted_count++;
    *wanted = (struct wanted){.queue = queue,
                              .unique = NO_KEY,
                              .idempotency = NO_KEY,
                              .order = NO_KEY,
                              .limit = NO_KEY,
                              .batch = NO_KEY};
    wanted->once = weir_sim_choose(8) == 1;
    if (weir_sim_choose(6) == 1) wanted->timeout_ms = TIMEOUT_MS;
    if (queue != KEYED) return wanted;
    wanted->unique = key_by_choice();
    if (wanted->unique == NO_KEY) wanted->idempotency = key_by_choice();
    wanted->order = key_by_choice();
    wanted->limit = key_by_choice();
    return wanted;
}

int world_number(const struct wanted *wanted)
{
    return (int)(wanted - world.wanted);
}

struct wanted *world_want(void)
{
    return world_want_in((int)weir_sim_choose(GATHERING));
}

static size_t payload_make(uint32_t number, unsigned char *payload)
{
    size_t bytes = sizeof number + (payload_bytes / 2 + number * 37 % (payload_bytes / 2));

    memcpy(payload, &number, sizeof number);
    memset(payload + sizeof number, (int)(number * 31 + 7), bytes - sizeof number);
    return bytes;
}

void world_spec(const struct wanted *wanted, unsigned char *payload, weir_job_spec *ret_spec)
{
    uint32_t number = (uint32_t)(wanted - world.wanted);

    *ret_spec = (weir_job_spec){
        .queue = queue_names[wanted->queue],
        .kind = "work",
        .version = 1,
        .payload = payload,
        .payload_bytes = payload_make(number, payload),
        .idempotent = wanted->once ? WEIR_NO : WEIR_YES,
        .priority = (uint8_t)(number % 3),
        .fairness_key = tenants[number % 2],
        .timeout_ms = wanted->timeout_ms,
        .expires_ms = wanted->expires_ms,
        .gathers = wanted->gathers,
        .batch = wanted->batch == NO_KEY ? 0 : world.wanted[wanted->batch].id,
    };
    if (!wanted->once)
        ret_spec->retry =
            (weir_job_retry){.attempts_max = 3, .backoff_ms = 20, .backoff_ms_max = 100};
    if (wanted->unique != NO_KEY) ret_spec->unique_key = unique_names[wanted->unique];
    if (wanted->order != NO_KEY) ret_spec->order_key = order_names[wanted->order];
    if (wanted->limit != NO_KEY) ret_spec->limit_keys[0] = limit_names[wanted->limit];
    if (wanted->idempotency != NO_KEY) {
        ret_spec->idempotency_key = same_names[wanted->idempotency];
        ret_spec->idempotency_ms = YEAR_MS;
    }
}

/* ---- Jobs ---- */

struct job *world_job(uint64_t id)
{
    struct job *job;

    for (int i = 0; i < world.job_count; i++)
        if (world.jobs[i].id == id) return &world.jobs[i];
    if (world.job_count == JOBS_MAX) weir_sim_fail("more than %d jobs", JOBS_MAX);
    job = &world.jobs[world.job_count++];
    *job = (struct job){.id = id,
                        .wanted = WANTED_UNKNOWN,
                        .changed = world.changing != 0,
                        .maybe_purged = world.purged_below > 0};
    return job;
}

const struct wanted *world_wanted(const struct job *job)
{
    return job->wanted >= 0 ? &world.wanted[job->wanted] : NULL;
}

/* It may come to its end without anybody's doing, and be forgotten then. */
static bool may_have_expired(const struct job *job)
{
    const struct wanted *wanted = world_wanted(job);

    return job->wanted == WANTED_UNKNOWN || (wanted && wanted->expires_ms != 0);
}

bool world_may_be_gone(const struct job *job)
{
    return job->purge_asked || job->maybe_purged || (forgets && may_have_expired(job));
}

/* The job is that of `wanted`. */
static void belongs(struct job *job, struct wanted *wanted)
{
    int number = (int)(wanted - world.wanted);

    if (job->wanted != WANTED_UNKNOWN && job->wanted != number)
        weir_sim_fail("id %llu was given twice", (unsigned long long)job->id);
    if (job->lost)
        weir_sim_fail("id %llu, of a job that was lost, is given again",
                      (unsigned long long)job->id);
    job->wanted = number;
    if (wanted->id != 0 && wanted->id != job->id && !world_job(wanted->id)->lost)
        weir_sim_fail("job %d has ids %llu and %llu", number, (unsigned long long)wanted->id,
                      (unsigned long long)job->id);
    wanted->id = job->id;
    if (number < world.changed_below) job->changed = true;
    if (number < world.purged_below) job->purge_asked = true;
    job->maybe_purged = false; /* it is known now */
}

/* What it is a duplicate of has one of its keys. */
static void check_duplicate(const struct wanted *wanted, const struct job *job)
{
    const struct wanted *first = world_wanted(job);

    if (job->wanted == BY_SCHEDULE) weir_sim_fail("a duplicate of a schedule's job was told of");
    if (!first || first == wanted) return;
    if (wanted->unique != NO_KEY && wanted->unique == first->unique) return;
    if (wanted->idempotency != NO_KEY && wanted->idempotency == first->idempotency) return;
    weir_sim_fail("job %llu is told as a duplicate, and has another key",
                  (unsigned long long)job->id);
}

void world_enqueued(struct wanted *wanted, const weir_enqueued *told)
{
    struct job *job = world_job(told->id);
    bool synced = told->durability == WEIR_SYNCED;

    if (told->duplicate)
        check_duplicate(wanted, job);
    else
        belongs(job, wanted);
    if (job->lost) weir_sim_fail("a lost job is told of");
    if (synced) job->kept = true;
    if (wanted->idempotency != NO_KEY && !world_may_be_gone(job)) {
        uint64_t *same = &world.same_id[wanted->idempotency];

        if (*same != 0 && *same != job->id && !world_may_be_gone(world_job(*same)))
            weir_sim_fail("an idempotency key gives jobs %llu and %llu", (unsigned long long)*same,
                          (unsigned long long)job->id);
        if (synced) *same = job->id;
    }
}

void world_ended(struct job *job, enum weir_job_state state)
{
    if (job->changed) return;
    if (job->told != 0 && job->told != state)
        weir_sim_fail("job %llu is %s, and was told to be %s", (unsigned long long)job->id,
                      weir_job_state_name(state), weir_job_state_name(job->told));
    job->told = state;
    job->kept = true;
}

/* ---- Leases ---- */

static void check_token(uint64_t token)
{
    for (int i = 0; i < world.token_count; i++)
        if (world.tokens[i] == token)
            weir_sim_fail("token %llu was given twice", (unsigned long long)token);
    if (world.token_count == TOKENS_MAX) weir_sim_fail("more than %d leases", TOKENS_MAX);
    world.tokens[world.token_count++] = token;
}

/* Whether a lease that nobody has begun to settle was there at that time. */
static bool was_held(const struct job *job, int64_t at_ms)
{
    return job->held && job->synced && job->claimed_ms <= at_ms && at_ms < job->until_ms;
}

static void check_limits(const struct job *leased, int64_t at_ms)
{
    const struct wanted *wanted = world_wanted(leased);
    int with_key = 0, in_queue = 0;

    if (!wanted || wanted->queue != KEYED) return;
    for (int i = 0; i < world.job_count; i++) {
        const struct job *job = &world.jobs[i];
        const struct wanted *other = world_wanted(job);

        if (!other || job == leased || !was_held(job, at_ms)) continue;
        if (other->queue == wanted->queue) in_queue++;
        if (other->limit != NO_KEY && other->limit == wanted->limit) with_key++;
    }
    if (with_key > 0)
        weir_sim_fail("job %llu was leased beside another with its limit key",
                      (unsigned long long)leased->id);
    if (in_queue >= QUEUE_CONCURRENCY)
        weir_sim_fail("job %llu was leased beside %d others of its queue",
                      (unsigned long long)leased->id, in_queue);
}

/* Whose job it is, by its payload, which must be as it was given. */
static void check_payload(struct job *job, const weir_job *leased)
{
    static unsigned char expected[PAYLOAD_BYTES_MAX];
    uint32_t number;

    if (leased->payload_bytes == 4 && memcmp(leased->payload, "tick", 4) == 0) {
        if (job->wanted != BY_SCHEDULE && job->wanted != WANTED_UNKNOWN)
            weir_sim_fail("id %llu was given twice", (unsigned long long)job->id);
        job->wanted = BY_SCHEDULE;
        if (world.changed_below > 0) job->changed = true;
        if (world.purged_below > 0) job->purge_asked = true;
        job->maybe_purged = false;
        return;
    }
    if (leased->payload_bytes < sizeof number) weir_sim_fail("a payload is too short");
    memcpy(&number, leased->payload, sizeof number);
    if (number >= (uint32_t)world.wanted_count ||
        leased->payload_bytes != payload_make(number, expected) ||
        memcmp(expected, leased->payload, leased->payload_bytes) != 0)
        weir_sim_fail("the payload of job %llu is not as it was given",
                      (unsigned long long)leased->id);
    belongs(job, &world.wanted[number]);
}

/* From any of these to the newest there were no more than the burst, and what came meanwhile. */
static void check_rate(struct pace *pace, const char *whose, uint64_t id, int64_t at_ms)
{
    pace->begun_ms[pace->count++] = at_ms;
    for (int i = 0; i < pace->count; i++) {
        int64_t from_ms = pace->begun_ms[i];
        int begun = 0;

        if (from_ms > at_ms) continue;
        for (int k = 0; k < pace->count; k++)
            begun += pace->begun_ms[k] >= from_ms && pace->begun_ms[k] <= at_ms;
        if (begun > RATE_BURST + (at_ms - from_ms) * RATE_COUNT / RATE_PERIOD_MS)
            weir_sim_fail("job %llu is the %dth of its %s that was begun in %lld ms",
                          (unsigned long long)id, begun, whose, (long long)(at_ms - from_ms));
    }
}

static void check_begun(struct job *job, bool synced, int64_t at_ms)
{
    const struct wanted *wanted = world_wanted(job);

    if (!wanted) return;
    if (synced && wanted->queue == PACED) check_rate(&world.paces[0], "queue", job->id, at_ms);
    if (synced && wanted->limit == RATED_KEY) check_rate(&world.paces[1], "key", job->id, at_ms);
    if (wanted->expires_ms != 0 && at_ms >= wanted->expires_ms)
        weir_sim_fail("job %llu was begun after it had expired", (unsigned long long)job->id);
    if (wanted->once && job->begun && !job->given_back && !job->changed)
        weir_sim_fail("job %llu is not idempotent, and was begun twice",
                      (unsigned long long)job->id);
    if (!synced) return; /* a power cut may undo it */
    job->begun = true;
    job->given_back = false;
}

/* How long the lease is that was asked for. */
static int64_t lease_of(const struct job *job, int64_t lease_ms)
{
    const struct wanted *wanted = world_wanted(job);

    if (!wanted || wanted->timeout_ms == 0 || wanted->timeout_ms > lease_ms) return lease_ms;
    return wanted->timeout_ms;
}

struct job *world_leased(const weir_job *leased, int64_t lease_ms, bool synced, int64_t now_ms)
{
    struct job *job = world_job(leased->id);
    int64_t claimed_ms;

    check_token(leased->token);
    check_payload(job, leased);
    claimed_ms = leased->lease_until_ms - lease_of(job, lease_ms);
    if (job->lost) weir_sim_fail("a lost job is leased");
    if (job->told != 0 && !job->changed) {
        /* It ran out while its bytes were read, and the job came to its end then. */
        if (leased->lease_until_ms <= now_ms) return job;
        weir_sim_fail("job %llu, which is %s, is leased", (unsigned long long)job->id,
                      weir_job_state_name(job->told));
    }
    if (synced) job->kept = true;
    if (leased->token < job->token) return job; /* it was told too late */
    if (was_held(job, claimed_ms))
        weir_sim_fail("job %llu was leased while another lease of it was valid",
                      (unsigned long long)job->id);
    check_limits(job, claimed_ms);
    check_begun(job, synced, claimed_ms);
    job->token = leased->token;
    job->claimed_ms = claimed_ms;
    job->until_ms = leased->lease_until_ms;
    job->held = true;
    job->synced = synced;
    return job;
}

void world_renewed(struct job *job, uint64_t token, bool was_newest, const weir_renewed *renewed)
{
    const struct wanted *wanted = world_wanted(job);

    if (!was_newest) weir_sim_fail("a lease was renewed with an old token");
    if (job->token != token) return;
    job->until_ms = renewed->lease_until_ms;
    if (wanted && wanted->timeout_ms != 0 && job->until_ms > job->claimed_ms + wanted->timeout_ms)
        weir_sim_fail("job %llu has a lease beyond the time of its attempt",
                      (unsigned long long)job->id);
}

void world_release_asked(struct job *job, uint64_t token)
{
    if (job->token == token) job->given_back = true;
}

void world_end_asked(struct job *job)
{
    if (forgets) job->purge_asked = true;
}

static void note_change(enum weir_bulk_action action)
{
    bool purges = action == WEIR_BULK_PURGE || (forgets && action == WEIR_BULK_CANCEL);

    for (int i = 0; i < world.job_count; i++) {
        world.jobs[i].changed = true;
        if (purges) world.jobs[i].purge_asked = true;
    }
    world.changed_below = world.wanted_count;
    if (purges) world.purged_below = world.wanted_count;
}

void world_change_asked(enum weir_bulk_action action)
{
    world.changing = action;
    note_change(action);
}

void world_change_told(void)
{
    if (world.changing != 0) note_change(world.changing);
    world.changing = WEIR_BULK_UNSET;
}

bool world_settle_asked(struct job *job, uint64_t token)
{
    world_end_asked(job);
    if (job->token != token) return false;
    job->held = false;
    return true;
}

void world_settled(struct job *job, uint64_t token, int how, bool was_newest, int r)
{
    if (r < 0) return;
    world.settled++;
    if (!was_newest || (how == WEIR_SETTLE_ACK && job->token != token))
        weir_sim_fail("job %llu was settled with an old token", (unsigned long long)job->id);
    job->kept = true;
    if (how == WEIR_SETTLE_ACK) world_ended(job, WEIR_JOB_DONE);
    if (r == WEIR_JOB_DEAD || r == WEIR_JOB_CANCELLED) world_ended(job, (enum weir_job_state)r);
}

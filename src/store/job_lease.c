/* job_lease.c - leases: claim, read what was claimed, renew; and orders for workers. */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/planted.h"
#include "rt/mem.h"
#include "store/store.h"

/* ---- The memory of jobs ---- */

/* What several small jobs of a lease point to: it goes with the last of them, which may be another
 * thread's. So a job that stays holds no more than TEXTS_BYTES of what others had. */
struct texts {
    ATOM(unsigned) shares;
    _Alignas(max_align_t) char at[]; /* as a payload of its own is: programs cast it */
};
enum { TEXTS_BYTES = 8192, TEXTS_JOB_BYTES_MAX = TEXTS_BYTES / 8 };

static void texts_give_back(struct texts *texts)
{
    if (!texts) return;
    sanitize_release(texts);
    if (atom_sub(&texts->shares, 1) > 1) return;
    sanitize_acquire(texts); /* others have read from it */
    mem_free(texts);
}

void weir_job_free(weir_job *job)
{
    if (!job) return;
    texts_give_back(job->memory_);
    *job = (weir_job){0};
}

/* ---- The spec ---- */

static int check_spec(const weir_lease_spec *spec)
{
    if (!spec->queue || !spec->queue[0]) return refuse("lease: queue is not set");
    if (strlen(spec->queue) > WEIR_JOB_NAME_BYTES_MAX)
        return refuse("lease: queue has more than %d bytes", WEIR_JOB_NAME_BYTES_MAX);
    if (!spec->worker || !spec->worker[0])
        return refuse("lease from queue '%s': worker is not set", spec->queue);
    if (spec->count == 0 || spec->count > WEIR_JOB_LEASE_MAX)
        return refuse("lease from queue '%s': count is %zu, must be 1 to %d", spec->queue,
                      spec->count, WEIR_JOB_LEASE_MAX);
    if (spec->lease_ms <= 0 || spec->lease_ms > WEIR_JOB_LEASE_MS_MAX)
        return refuse("lease from queue '%s': lease_ms is %lld, must be 1 to %lld", spec->queue,
                      (long long)spec->lease_ms, WEIR_JOB_LEASE_MS_MAX);
    if (spec->kind_count > 0 && !spec->kinds)
        return refuse("lease from queue '%s': kinds is NULL", spec->queue);
    if (spec->durability > WEIR_SYNCED)
        return refuse("lease from queue '%s': durability is none", spec->queue);
    for (size_t i = 0; i < spec->kind_count; i++)
        if (!spec->kinds[i].name || !spec->kinds[i].name[0])
            return refuse("lease from queue '%s': a kind has no name", spec->queue);
    return 0;
}

/* The claim and room for what it gives, in one block. */
struct lease {
    struct engine_claim_spec claim;
    struct lease_wait wait;
    enum weir_durability durability;
    size_t queue_bytes;
    const char *queue;
    uint16_t *places; /* of jobs by their id */
    unsigned places_mask;
};

static struct lease *lease_new(const weir_lease_spec *spec)
{
    size_t jobs_bytes = spec->count * sizeof(struct claimed_job);
    size_t kinds_bytes = spec->kind_count * sizeof(struct engine_kind);
    unsigned places = 2;
    struct engine_kind *kinds;
    struct lease *lease;

    while (places < 2 * spec->count) places *= 2;
    lease = mem_alloc(sizeof *lease + jobs_bytes + kinds_bytes + places * sizeof(uint16_t));
    if (!lease) return NULL;
    memset(lease, 0, sizeof *lease);
    lease->wait.jobs = (struct claimed_job *)(void *)(lease + 1);
    kinds = (struct engine_kind *)(void *)(lease->wait.jobs + spec->count);
    for (size_t i = 0; i < spec->kind_count; i++) {
        const weir_job_kind *kind = &spec->kinds[i];

        kinds[i] = (struct engine_kind){
            .name = slice_of(kind->name),
            .version_min = kind->version_min,
            .version_max = kind->version_max ? kind->version_max : kind->version_min,
        };
    }
    lease->places = (uint16_t *)(void *)(kinds + spec->kind_count);
    lease->places_mask = places - 1;
    lease->queue = spec->queue;
    lease->queue_bytes = strlen(spec->queue);
    lease->claim = (struct engine_claim_spec){
        .queue = slice_of(spec->queue),
        .kinds = kinds,
        .kind_count = (uint32_t)spec->kind_count,
        .count = (uint32_t)spec->count,
        .lease_ms = spec->lease_ms,
    };
    lease->wait.claim = &lease->claim;
    lease->wait.worker = spec->worker;
    lease->wait.worker_bytes = strlen(spec->worker);
    return lease;
}

/* ---- What was claimed, and is not delivered ---- */

static const struct store_intent back_intent = {.call = "weir_job_lease", .use = LOG_FOR_EXISTING};

/* Who leased them is interrupted: others get them at once, not when the lease runs out. The caller
 * is inside, without the lock. It waits for room, if there is none, but not for long and not at the
 * gate. */
enum { GIVE_BACK_MS = 1000 };
static void give_back(struct store *store, const struct lease_wait *wait)
{
    WEIR_SHIELD(GIVE_BACK_MS) {
        for (int i = 0; i < wait->count; i++) {
            const struct engine_claimed *job = &wait->jobs[i].job;

            if (store_enter_again(store, &back_intent) < 0) break;
            if (engine_release(store->engine, store_now_ms(store), job->id, job->token, 0) >= 0)
                store_commit(store, LOG_FOR_EXISTING);
            store_unlock_entered(store);
        }
    }
}

/* A job whose bytes cannot be read: it fails, and is seen. */
static void fail_unreadable(struct store *store, const struct engine_claimed *job, int error)
{
    struct engine_failure failure = {
        .class = slice_of("unreadable"),
        .message = slice_of(weir_why()),
        .delay_ms = -1,
        .dead = error == -EBADMSG,
    };

    log_write(store->object.stable.runtime, WEIR_LOG_ERROR, task_self(),
              "store '%s': job %llu cannot be read: %s", store->object.name,
              (unsigned long long)job->id, weir_why());
    if (store_enter_again(store, &back_intent) < 0) return;
    if (engine_fail(store->engine, store_now_ms(store), job->id, job->token, &failure) >= 0)
        store_commit(store, LOG_FOR_EXISTING);
    store_unlock_entered(store);
}

/* ---- Delivering ---- */

static char *put_text(char **at, const void *text, size_t bytes)
{
    char *begin = *at;

    if (bytes > 0) memcpy(begin, text, bytes);
    begin[bytes] = '\0';
    *at = begin + bytes + 1;
    return begin;
}

/* Several jobs of one record are read, and looked for in it, once. */
struct reading {
    const struct lease *lease;
    weir_job *jobs; /* where each of them goes */
    uint64_t position;
    int error;
    struct texts *texts; /* a share, while there is room for more; NULL: none */
    size_t texts_left;
    size_t texts_used;
};

static struct texts *texts_new(size_t bytes, unsigned shares)
{
    struct texts *texts = mem_alloc(sizeof *texts + bytes);

    if (texts) atom_store(&texts->shares, shares);
    return texts;
}

/* Room for what a job points to: its share of the texts, or texts of its own. */
static char *reading_room(struct reading *reading, size_t bytes, struct texts **ret_texts)
{
    size_t aligned = (bytes + _Alignof(max_align_t) - 1) & ~(_Alignof(max_align_t) - 1);
    int count = reading->lease->wait.count;
    size_t all = aligned * (size_t)count;

    if (count == 1 || bytes > TEXTS_JOB_BYTES_MAX) {
        *ret_texts = texts_new(bytes, 1);
        return *ret_texts ? (*ret_texts)->at : NULL;
    }
    if (!reading->texts || reading->texts_left < aligned) {
        texts_give_back(reading->texts);
        reading->texts_used = 0;
        reading->texts_left = all < TEXTS_BYTES ? all : TEXTS_BYTES;
        reading->texts = texts_new(reading->texts_left, 1);
        if (!reading->texts) return NULL;
    }
    (void)atom_add(&reading->texts->shares, 1);
    *ret_texts = reading->texts;
    reading->texts_left -= aligned;
    reading->texts_used += aligned;
    return reading->texts->at + reading->texts_used - aligned;
}

static int deliver(struct reading *reading, const struct claimed_job *claimed,
                   const struct engine_found *found, weir_job *ret_job)
{
    const struct lease *lease = reading->lease;
    const struct engine_claimed *job = &claimed->job;
    size_t kind_bytes = strlen(claimed->kind);
    struct texts *texts = NULL;
    char *at = reading_room(
        reading, found->payload.count + found->trace.count + kind_bytes + lease->queue_bytes + 4,
        &texts);

    if (!at) return -ENOMEM;
    *ret_job = (weir_job){
        .id = job->id,
        .token = job->token,
        .version = job->version,
        .payload_bytes = found->payload.count,
        .run = job->run,
        .attempt = job->attempt,
        .attempts_max = job->attempts_max,
        .priority = job->priority,
        .idempotent = job->idempotent,
        .created_ms = job->created_ms,
        .lease_until_ms = job->lease_until_ms,
        .timeout_ms = job->timeout_ms,
        .memory_ = texts,
    };
    ret_job->payload = put_text(&at, found->payload.at, found->payload.count);
    ret_job->queue = put_text(&at, lease->queue, lease->queue_bytes);
    ret_job->kind = put_text(&at, claimed->kind, kind_bytes);
    ret_job->trace = put_text(&at, found->trace.at, found->trace.count);
    return 0;
}

/* By id: an open table of places in wait->jobs, of which each holds one more; 0: free. */
static unsigned place_of(uint64_t id, unsigned mask)
{
    return (unsigned)((id * UINT64_C(0x9e3779b97f4a7c15)) >> 40) & mask;
}

static void places_fill(const struct lease *lease)
{
    memset(lease->places, 0, (lease->places_mask + 1) * sizeof *lease->places);
    for (int i = 0; i < lease->wait.count; i++) {
        unsigned at = place_of(lease->wait.jobs[i].job.id, lease->places_mask);

        while (lease->places[at] != 0) at = (at + 1) & lease->places_mask;
        lease->places[at] = (uint16_t)(i + 1);
    }
}

/* For the engine: a record has this payload. What it has of jobs that are not leased, or that are
 * elsewhere by now, is nobody's. */
static void take_payload(void *arg, uint64_t id, const struct engine_found *found)
{
    struct reading *reading = arg;
    const struct lease *lease = reading->lease;
    unsigned at = place_of(id, lease->places_mask);

    for (; lease->places[at] != 0; at = (at + 1) & lease->places_mask) {
        unsigned i = lease->places[at] - 1u;
        const struct claimed_job *claimed = &lease->wait.jobs[i];

        if (claimed->job.id != id || claimed->job.position != reading->position) continue;
        weir_job_free(&reading->jobs[i]); /* the last one counts */
        if (reading->error == 0)
            reading->error = deliver(reading, claimed, found, &reading->jobs[i]);
        return;
    }
}

/* The job, and all others of its record. */
static int deliver_record(struct store *store, struct reading *reading,
                          const struct engine_claimed *job)
{
    struct store_bytes bytes = {0};
    int r = store_read_record(store, job->position, STORE_GUESS_BYTES, &bytes);

    if (r < 0) return r;
    reading->position = job->position;
    reading->error = 0;
    r = engine_record_payloads(bytes.memory, bytes.count, take_payload, reading);
    mem_free(bytes.memory);
    return reading->error < 0 ? reading->error : r;
}

/* One that was not where it should be: compaction may have moved it. */
static int deliver_alone(struct store *store, struct reading *reading,
                         const struct claimed_job *claimed, weir_job *ret_job)
{
    struct store_bytes bytes = {0};
    struct engine_found found;
    int r = store_read_job(store, claimed->job.id, claimed->job.position, false, &bytes, &found);

    if (r == 0) r = deliver(reading, claimed, &found, ret_job);
    mem_free(bytes.memory);
    return r;
}

static int deliver_one(struct store *store, struct reading *reading, int i)
{
    const struct lease *lease = reading->lease;
    const struct claimed_job *claimed = &lease->wait.jobs[i];
    int r = 0;

    if (reading->jobs[i].memory_) return 0; /* it was in the record of an earlier one */
    if (lease->wait.count > 1) {
        r = deliver_record(store, reading, &claimed->job);
        if (r == -ENOMEM || reading->jobs[i].memory_) return r;
    }
    r = deliver_alone(store, reading, claimed, &reading->jobs[i]);
    if (r == -EBADMSG || r == -EIO) fail_unreadable(store, &claimed->job, r);
    /* -ENOENT: cancelled or expired, and forgotten, since then. */
    return r == -EBADMSG || r == -EIO || r == -ENOENT ? 0 : r;
}

/* Returns how many are delivered, or an error: then none is. */
static int deliver_all(struct store *store, const struct lease *lease, weir_job *ret_jobs)
{
    struct reading reading = {.lease = lease, .jobs = ret_jobs};
    int claimed = lease->wait.count, count = 0;
    int r = 0;

    memset(ret_jobs, 0, (size_t)claimed * sizeof *ret_jobs);
    if (claimed > 1) places_fill(lease);
    for (int i = 0; i < claimed && r >= 0; i++) r = deliver_one(store, &reading, i);
    texts_give_back(reading.texts);
    for (int i = 0; i < claimed; i++) {
        if (r < 0) weir_job_free(&ret_jobs[i]);
        if (!ret_jobs[i].memory_) continue;
        if (count < i) {
            ret_jobs[count] = ret_jobs[i];
            ret_jobs[i].memory_ = NULL;
        }
        count++;
    }
    return r < 0 ? r : count;
}

static void measure(const struct lease *lease)
{
    struct meter *meter = meter_get(&store_queue_meter_kind, lease->queue, NULL);

    for (int i = 0; i < lease->wait.count; i++)
        meter_observe(meter, JOB_WAIT_HISTOGRAM, lease->wait.jobs[i].job.wait_ms * 1000000);
}

/* Claimed: now it is read, and put on disk. Many are read while the disk is at work already. The
 * caller is inside, without the lock. */
enum { ASK_AT = 8 };
static int hand_over(struct store *store, const struct lease *lease, weir_job *ret_jobs)
{
    int count, r;

    if (lease->wait.count >= ASK_AT) store_ask(store, lease->wait.seen, lease->durability);
    count = deliver_all(store, lease, ret_jobs);
    r = count < 0 ? count : store_gate(store, lease->wait.seen, lease->durability);
    if (r >= 0) {
        measure(lease);
        return count;
    }
    give_back(store, &lease->wait);
    while (count > 0) weir_job_free(&ret_jobs[--count]);
    return r;
}

/* ---- Leasing ---- */

/* The rest of a long lease: as many as a record holds at a time, and others come in between. It
 * ends with what there is, and where it would have to wait for room. The lock is held, and is
 * again. */
static void claim_more(struct store *store, struct lease_wait *wait) LOCK_UNCHECKED;
static void claim_more(struct store *store, struct lease_wait *wait)
{
    while (wait->count < (int)wait->claim->count) {
        int r;

        store_unlock(store);
        store_lock(store);
        if (store->state != STORE_OPEN || store->stopped < 0) return;
        if (log_room_now(store->log, ENGINE_COMMAND_BYTES_MAX, LOG_FOR_EXISTING) < 0) return;
        r = store_claim(store, wait);
        if (r >= 0) store_commit(store, LOG_FOR_EXISTING);
        if (r <= 0) return;
    }
}

/* The lock is held, and let go of. 0: served, or nothing is there. */
static int claim_or_wait(struct store *store, struct lease *lease, bool at_once) LOCK_UNCHECKED;
static int claim_or_wait(struct store *store, struct lease *lease, bool at_once)
{
    struct lease_wait *wait = &lease->wait;
    struct engine_slice worker = {wait->worker, wait->worker_bytes};
    int r;

    if (store_orders_of(store, worker) != 0) {
        store_unlock(store);
        return WEIR_ESTOPPING;
    }
    r = store_claim(store, wait);
    if (r != 0 || at_once) {
        if (r < 0) r = store_refuse(store, r);
        if (r >= 0) store_commit(store, LOG_FOR_EXISTING);
        if (r > 0) claim_more(store, wait);
        wait->seen = store->end;
        store_unlock(store);
        return r < 0 ? r : 0;
    }
    /* A claim that has put many aside stops before it has seen all. */
    if (engine_ready(store->engine, wait->claim->queue) > 0 &&
        engine_record_bytes(store->engine) > 0) {
        store->serve_again = true;
        store_ring(store);
    }
    store_commit(store, LOG_FOR_EXISTING);
    if (PLANTED(STORE_WAITER_FORGOTTEN)) {
        store_unlock(store);
        r = weir_yield();
        store_lock(store);
    }
    return store_wait_job(store, wait);
}

int weir_job_lease_sized(weir_store *handle, size_t spec_bytes, const weir_lease_spec *given,
                         weir_job *ret_jobs)
{
    const struct store_intent intent = {
        .call = "weir_job_lease", .use = LOG_FOR_EXISTING, .entry = ENTER_TAKE_WORK};
    weir_lease_spec spec;
    struct lease *lease;
    struct store *store;
    int r;

    spec_copy(&spec, sizeof spec, given, spec_bytes);
    r = check_spec(&spec);
    if (r < 0) return r;
    lease = lease_new(&spec);
    if (!lease) return -ENOMEM;
    r = store_enter(handle, &intent, &store);
    if (r < 0) {
        mem_free(lease);
        return r;
    }
    lease->durability = store_durability(store, spec.durability);
    r = claim_or_wait(store, lease, spec.at_once);
    sanitize_acquire(&lease->wait);
    if (r == 0) r = hand_over(store, lease, ret_jobs);
    store_exit(store);
    mem_free(lease);
    return r;
}

/* ---- Heartbeats ---- */

/* What a renewal says in a record. */
enum { RENEWAL_BYTES_MAX = 256 };

static int check_lease_ms(const char *call, int64_t lease_ms)
{
    if (lease_ms > 0 && lease_ms <= WEIR_JOB_LEASE_MS_MAX) return 0;
    return refuse("%s: lease_ms is %lld, must be 1 to %lld", call, (long long)lease_ms,
                  WEIR_JOB_LEASE_MS_MAX);
}

/* Returns how many were renewed. The lock is held. */
static int renew_now(struct store *store, weir_renewal *renewals, size_t count, unsigned orders,
                     int64_t lease_ms)
{
    int64_t now_ms = store_now_ms(store);
    int renewed_count = 0;

    for (size_t i = 0; i < count; i++) {
        weir_renewal *one = &renewals[i];
        struct engine_renewed renewed = {0};

        one->ret_error =
            engine_renew(store->engine, now_ms, one->id, one->token, lease_ms, &renewed);
        if (one->ret_error < 0) (void)store_refuse(store, one->ret_error);
        renewed_count += one->ret_error == 0;
        one->ret_renewed = (weir_renewed){renewed.lease_until_ms, renewed.orders | orders};
    }
    return renewed_count;
}

static int renew_some(weir_store *handle, const char *call, weir_renewal *renewals, size_t count,
                      const char *worker, int64_t lease_ms)
{
    const struct store_intent intent = {
        .call = call, .use = LOG_FOR_EXISTING, .bytes = count * RENEWAL_BYTES_MAX};
    struct store *store = NULL;
    int r = check_lease_ms(call, lease_ms);

    if (r == 0) r = store_enter(handle, &intent, &store);
    if (r < 0 || !store) return r;
    r = renew_now(store, renewals, count, store_orders_of(store, slice_of(worker)), lease_ms);
    store_commit(store, LOG_FOR_EXISTING);
    return store_leave(store, WEIR_DURABILITY_UNSET, r);
}

int weir_job_renew_all_sized(weir_store *handle, size_t renewal_bytes, weir_renewal *renewals,
                             size_t count, const char *worker, int64_t lease_ms)
{
    if (renewal_bytes != sizeof *renewals)
        return refuse("weir_job_renew_all: renewals of %zu bytes; this version has %zu",
                      renewal_bytes, sizeof *renewals);
    if (count > WEIR_JOB_RENEW_MAX)
        return refuse("weir_job_renew_all: %zu renewals, at most %d", count, WEIR_JOB_RENEW_MAX);
    return renew_some(handle, "weir_job_renew_all", renewals, count, worker, lease_ms);
}

int weir_job_renew(weir_store *handle, uint64_t id, uint64_t token, const char *worker,
                   int64_t lease_ms, weir_renewed *ret_renewed)
{
    weir_renewal one = {.id = id, .token = token};
    int r = renew_some(handle, "weir_job_renew", &one, 1, worker, lease_ms);

    if (r < 0) return r;
    if (one.ret_error == 0) *ret_renewed = one.ret_renewed;
    return one.ret_error;
}

int weir_job_progress(weir_store *handle, uint64_t id, uint64_t token, uint32_t progress)
{
    const struct store_intent intent = {.call = "weir_job_progress", .use = LOG_FOR_EXISTING};
    struct store *store;
    int r = store_enter(handle, &intent, &store);

    if (r < 0) return r;
    r = engine_progress(store->engine, store_now_ms(store), id, token, progress);
    if (r < 0)
        r = store_refuse(store, r);
    else
        store_commit(store, LOG_FOR_EXISTING);
    return store_leave(store, WEIR_DURABILITY_UNSET, r);
}

int weir_worker_order(weir_store *handle, const char *worker, unsigned orders)
{
    const struct store_intent intent = {.call = "weir_worker_order"};
    struct store *store;
    int r;

    if (!worker || !worker[0]) return refuse("weir_worker_order: worker is not set");
    if (strlen(worker) > WEIR_JOB_NAME_BYTES_MAX)
        return refuse("weir_worker_order: worker has more than %d bytes", WEIR_JOB_NAME_BYTES_MAX);
    if (orders & ~(unsigned)(WEIR_GO_QUIET | WEIR_GO_END))
        return refuse("weir_worker_order: only WEIR_GO_QUIET and WEIR_GO_END can be ordered");
    r = store_enter(handle, &intent, &store);
    if (r < 0) return r;
    r = store_order(store, slice_of(worker), orders);
    store_unlock_entered(store);
    store_exit(store);
    return r;
}

unsigned weir_worker_orders(weir_store *handle, const char *worker)
{
    struct store *store = store_look_up(handle, "weir_worker_orders");
    unsigned orders = 0;

    flow_check_worker("weir_worker_orders");
    store_lock(store);
    if (flow_names(handle, HANDLE_STORE, store)) orders = store_orders_of(store, slice_of(worker));
    store_unlock(store);
    return orders;
}

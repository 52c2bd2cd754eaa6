/* job_settle.c - what becomes of leased jobs, with the jobs that follow from it. */
#include <errno.h>
#include <string.h>

#include "rt/mem.h"
#include "store/store.h"

int job_settle_check(const struct store *store, const weir_settlement *one)
{
    if (one->how == WEIR_SETTLE_UNSET || one->how > WEIR_SETTLE_RELEASE)
        return refuse("settlement of job %llu: how is not set", (unsigned long long)one->id);
    if (one->result_bytes > 0 && !one->result)
        return refuse("settlement of job %llu: result is NULL", (unsigned long long)one->id);
    if (one->result_bytes > store->spec.result_bytes_max)
        return refuse_as(-EMSGSIZE, "settlement of job %llu: %zu bytes of result, at most %u",
                         (unsigned long long)one->id, one->result_bytes,
                         store->spec.result_bytes_max);
    if (one->error_class && strlen(one->error_class) > WEIR_JOB_NAME_BYTES_MAX)
        return refuse("settlement of job %llu: error_class has more than %d bytes",
                      (unsigned long long)one->id, WEIR_JOB_NAME_BYTES_MAX);
    if (one->then_count > WEIR_JOB_THEN_MAX || (one->then_count > 0 && !one->then))
        return refuse("settlement of job %llu: %zu jobs follow, at most %d",
                      (unsigned long long)one->id, one->then_count, WEIR_JOB_THEN_MAX);
    if (one->durability > WEIR_SYNCED)
        return refuse("settlement of job %llu: durability is none", (unsigned long long)one->id);
    return 0;
}

/* They wait once: so the safest that one of them asks for. One that is refused counts as well,
 * since its refusal may tell of what others have decided. */
static enum weir_durability safest(const struct store *store, const weir_settlement *settlements,
                                   size_t count)
{
    enum weir_durability most = count == 0 ? store->spec.durability : WEIR_MEMORY;

    for (size_t i = 0; i < count; i++) {
        enum weir_durability one = store_durability(store, settlements[i].durability);

        if (one > most) most = one;
    }
    return most > WEIR_SYNCED ? WEIR_SYNCED : most; /* one that is none was refused */
}

static size_t bytes_of(const weir_settlement *one)
{
    size_t bytes = one->result_bytes + STORE_MESSAGE_BYTES_MAX;

    if (!one->then || one->then_count > WEIR_JOB_THEN_MAX) return bytes; /* it will be refused */
    for (size_t i = 0; i < one->then_count; i++) bytes += job_spec_bytes(&one->then[i]);
    return bytes;
}

int job_settle_now(struct store *store, int64_t now_ms, const weir_settlement *one)
{
    struct engine_failure failure = {
        .class = slice_of(one->error_class),
        .message = slice_of(one->error_message),
        .delay_ms = one->delay_ms,
        .dead = one->how == WEIR_SETTLE_DEAD,
    };
    struct engine_slice result = {one->result, one->result_bytes};
    struct engine_job job;
    int r;

    switch (one->how) {
    case WEIR_SETTLE_ACK:
        r = engine_ack(store->engine, now_ms, one->id, one->token, result);
        return r < 0 ? r : ENGINE_DONE;
    case WEIR_SETTLE_RELEASE:
        r = engine_release(store->engine, now_ms, one->id, one->token,
                           one->delay_ms > 0 ? one->delay_ms : 0);
        if (r < 0) return r;
        return engine_job_get(store->engine, one->id, &job) == 0 ? (int)job.state : ENGINE_NO_JOB;
    default: return engine_fail(store->engine, now_ms, one->id, one->token, &failure);
    }
}

/* The jobs that follow: how many there are, or why one was refused. */
static int enqueue_then(struct store *store, int64_t now_ms, const weir_settlement *one,
                        uint64_t *ids)
{
    for (size_t i = 0; i < one->then_count; i++) {
        struct engine_enqueued enqueued = {0};
        struct engine_job_spec job;
        char trace[JOB_TRACE_BYTES];
        int r = job_spec_convert(store, &one->then[i], trace, &job);

        if (r == 0) {
            if (one->then[i].delay_ms > 0) job.run_at_ms = now_ms + one->then[i].delay_ms;
            r = engine_enqueue(store->engine, now_ms, &job, &enqueued);
            if (r < 0) r = store_refuse(store, r);
        }
        if (r < 0) {
            job_take_back(store, now_ms, ids, i);
            return r;
        }
        ids[i] = enqueued.duplicate ? 0 : enqueued.id;
        if (one->ret_then_ids) one->ret_then_ids[i] = enqueued.id;
    }
    return 0;
}

/* One settlement with all that follows from it, or nothing of it; in one record. */
static int settle_now(struct store *store, int64_t now_ms, const weir_settlement *one)
{
    uint64_t ids[WEIR_JOB_THEN_MAX];
    int r = engine_lease_check(store->engine, one->id, one->token);

    if (r < 0) return store_refuse(store, r);
    r = enqueue_then(store, now_ms, one, ids);
    if (r < 0) return r;
    r = job_settle_now(store, now_ms, one);
    if (r >= 0) return r;
    r = store_refuse(store, r);
    job_take_back(store, now_ms, ids, one->then_count);
    return r;
}

/* So many of them are in one record at most, since others wait for the lock meanwhile; and as long
 * as the longest of commands would still fit into what is kept for it. */
enum { SETTLE_AT_ONCE = 64, SETTLE_BYTES = 64 * 1024 };

static void settle_in_turn(struct store *store, int64_t now_ms, weir_settlement *one)
{
    int r = job_settle_check(store, one);

    if (r == 0) r = settle_now(store, now_ms, one);
    one->ret_error = r < 0 ? r : 0;
    one->ret_state = r < 0 ? WEIR_JOB_NONE : (enum weir_job_state)r;
}

/* The first of them, and those behind it that go into the same record. Returns how many it has
 * looked at, or an error of the store. The caller is inside, without the lock. */
static int settle_some(struct store *store, weir_settlement *settlements, size_t count)
{
    /* What follows is new work; but to refuse it is to refuse the end of work that there is. */
    struct store_intent intent = {
        .call = "weir_job_settle", .use = LOG_FOR_EXISTING, .bytes = bytes_of(&settlements[0])};
    size_t spare = store->record_bytes_max - ENGINE_COMMAND_BYTES_MAX;
    int64_t now_ms;
    int done = 0;
    int r = job_settle_check(store, &settlements[0]);

    if (r == 0) {
        if (spare > SETTLE_BYTES) spare = SETTLE_BYTES;
        if (count > 1 && intent.bytes < spare) intent.bytes = spare;
        r = store_enter_again(store, &intent);
        if (r < 0 && r != -EMSGSIZE) return r;
    }
    if (r < 0) {
        settlements[0].ret_error = r;
        settlements[0].ret_state = WEIR_JOB_NONE;
        return 1;
    }
    now_ms = store_now_ms(store);
    do {
        settle_in_turn(store, now_ms, &settlements[done++]);
    } while (done < SETTLE_AT_ONCE && (size_t)done < count &&
             engine_record_bytes(store->engine) + bytes_of(&settlements[done]) <= intent.bytes);
    store_commit(store, LOG_FOR_EXISTING);
    store_unlock_entered(store);
    return done;
}

int weir_job_settle_sized(weir_store *handle, size_t settlement_bytes, weir_settlement *settlements,
                          size_t count)
{
    const struct store_intent intent = {.call = "weir_job_settle"};
    struct store *store;
    int settled = 0;
    uint64_t seen;
    int r;

    if (settlement_bytes != sizeof *settlements)
        return refuse("weir_job_settle: settlements of %zu bytes; this version has %zu",
                      settlement_bytes, sizeof *settlements);
    if (count > WEIR_JOB_SETTLE_MAX)
        return refuse("weir_job_settle: %zu settlements, at most %d", count, WEIR_JOB_SETTLE_MAX);
    r = store_enter(handle, &intent, &store);
    if (r < 0) return r;
    store_unlock_entered(store);
    for (size_t i = 0; i < count && r >= 0; i += (size_t)r) {
        r = settle_some(store, settlements + i, count - i);
        for (size_t k = i; r > 0 && k < i + (size_t)r; k++)
            if (settlements[k].ret_error == 0) settled++;
        for (size_t k = i; r < 0 && k < count; k++) settlements[k].ret_error = r;
        if (r < 0) break;
    }
    store_lock(store);
    seen = store->end;
    store_unlock(store);
    /* Those that were settled are; the others say why they were not. */
    if (r >= 0 || settled > 0) r = store_gate(store, seen, safest(store, settlements, count));
    store_exit(store);
    return r < 0 ? r : settled;
}

/* ---- One at a time ---- */

static int settle_single(weir_store *handle, weir_settlement *one)
{
    int r = weir_job_settle(handle, one, 1);

    if (r < 0) return r;
    return one->ret_error < 0 ? one->ret_error : (int)one->ret_state;
}

int weir_job_ack(weir_store *handle, uint64_t id, uint64_t token, const void *result,
                 size_t result_bytes)
{
    weir_settlement one = {.id = id,
                           .token = token,
                           .how = WEIR_SETTLE_ACK,
                           .result = result,
                           .result_bytes = result_bytes};
    int r = settle_single(handle, &one);

    return r < 0 ? r : 0;
}

int weir_job_fail(weir_store *handle, uint64_t id, uint64_t token, const char *error_class,
                  const char *error_message, int64_t delay_ms)
{
    weir_settlement one = {.id = id,
                           .token = token,
                           .how = WEIR_SETTLE_FAIL,
                           .error_class = error_class,
                           .error_message = error_message,
                           .delay_ms = delay_ms};

    return settle_single(handle, &one);
}

int weir_job_release(weir_store *handle, uint64_t id, uint64_t token, int64_t delay_ms)
{
    weir_settlement one = {
        .id = id, .token = token, .how = WEIR_SETTLE_RELEASE, .delay_ms = delay_ms};
    int r = settle_single(handle, &one);

    return r < 0 ? r : 0;
}

int weir_job_cancel(weir_store *handle, uint64_t id)
{
    const struct store_intent intent = {.call = "weir_job_cancel", .use = LOG_FOR_EXISTING};
    struct store *store;
    int r = store_enter(handle, &intent, &store);

    if (r < 0) return r;
    r = engine_cancel(store->engine, store_now_ms(store), id);
    if (r < 0)
        r = store_refuse(store, r);
    else
        store_commit(store, LOG_FOR_EXISTING);
    return store_leave(store, WEIR_DURABILITY_UNSET, r);
}

int weir_batch_seal(weir_store *handle, uint64_t id)
{
    const struct store_intent intent = {.call = "weir_batch_seal", .use = LOG_FOR_EXISTING};
    struct store *store;
    int r = store_enter(handle, &intent, &store);

    if (r < 0) return r;
    r = engine_batch_seal(store->engine, store_now_ms(store), id);
    if (r < 0)
        r = store_refuse(store, r);
    else
        store_commit(store, LOG_FOR_EXISTING);
    return store_leave(store, WEIR_DURABILITY_UNSET, r);
}

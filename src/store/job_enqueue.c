/* job_enqueue.c - new jobs: one, or many at once. */
#include <assert.h>
#include <errno.h>
#include <weir/trace.h>

#include "base/planted.h"
#include "rt/mem.h"
#include "store/bounded.h"
#include "store/store.h"
#include "watch/trace.h"

/* ---- What the program says, in the engine's words ---- */

/* Each text is gone through once. */
static int name_of(const char *what, const char *text, struct engine_slice *ret_name)
{
    *ret_name = slice_of(text);
    if (ret_name->count <= WEIR_JOB_NAME_BYTES_MAX) return 0;
    return refuse("job: %s has %zu bytes, at most %d", what, ret_name->count,
                  WEIR_JOB_NAME_BYTES_MAX);
}

/* What is left out of a list takes no place. */
static int convert_names(const weir_job_spec *from, struct engine_job_spec *to)
{
    int r = name_of("queue", from->queue, &to->queue);

    if (r == 0) r = name_of("kind", from->kind, &to->kind);
    if (r == 0) r = name_of("unique_key", from->unique_key, &to->unique_key);
    if (r == 0) r = name_of("idempotency_key", from->idempotency_key, &to->idempotency_key);
    if (r == 0) r = name_of("fairness_key", from->fairness_key, &to->fairness_key);
    if (r == 0) r = name_of("order_key", from->order_key, &to->order_key);
    if (r == 0) r = name_of("tags", from->tags, &to->tags);
    for (int i = 0; r == 0 && i < WEIR_JOB_LIMIT_KEYS_MAX; i++)
        if (from->limit_keys[i])
            r = name_of("a limit key", from->limit_keys[i], &to->limit_keys[to->limit_key_count++]);
    for (int i = 0; r == 0 && i < WEIR_JOB_NEVER_MAX; i++)
        if (from->retry.never[i])
            r = name_of("a class of errors", from->retry.never[i],
                        &to->retry.never[to->retry.never_count++]);
    return r;
}

static int check_spec(const struct store *store, const weir_job_spec *spec)
{
    if (!spec->queue || !spec->queue[0]) return refuse("job: queue is not set");
    if (!spec->kind || !spec->kind[0])
        return refuse("job for queue '%s': kind is not set", spec->queue);
    if (spec->idempotent != WEIR_YES && spec->idempotent != WEIR_NO)
        return refuse("job '%s' for queue '%s': idempotent is not set: may it be begun twice?",
                      spec->kind, spec->queue);
    if (spec->run_at_ms != 0 && spec->delay_ms != 0)
        return refuse("job '%s' for queue '%s': run_at_ms and delay_ms are both set", spec->kind,
                      spec->queue);
    if (spec->run_at_ms < 0)
        return refuse_as(-EINVAL, "job '%s' for queue '%s': run_at_ms is negative", spec->kind,
                         spec->queue);
    if (spec->delay_ms < 0 || spec->delay_ms > ENGINE_SPAN_MS_MAX)
        return refuse("job '%s' for queue '%s': delay_ms is negative, or more than three years",
                      spec->kind, spec->queue);
    if (spec->payload_bytes > store->spec.payload_bytes_max)
        return refuse_as(-EMSGSIZE, "job '%s' for queue '%s': %zu bytes of payload, at most %u",
                         spec->kind, spec->queue, spec->payload_bytes,
                         store->spec.payload_bytes_max);
    if (spec->payload_bytes > 0 && !spec->payload)
        return refuse("job '%s' for queue '%s': payload is NULL", spec->kind, spec->queue);
    if (spec->durability > WEIR_SYNCED)
        return refuse("job '%s' for queue '%s': durability is none", spec->kind, spec->queue);
    /* Rows do not say how long it is, so it has to be within what each counts for: see live.c. */
    if (spec->trace && strlen(spec->trace) >= JOB_TRACE_BYTES)
        return refuse("job '%s' for queue '%s': trace has %zu bytes, at most %d", spec->kind,
                      spec->queue, strlen(spec->trace), JOB_TRACE_BYTES - 1);
    return 0;
}

/* By itself: a context is larger than all the rest, and most programs have none. */
static __attribute__((noinline)) struct engine_slice trace_of_task(char trace[JOB_TRACE_BYTES])
{
    weir_trace_context context;

    if (!weir_trace_current(&context)) return (struct engine_slice){0};
    weir_trace_format(&context, trace);
    return slice_of(trace);
}

static struct engine_slice job_trace(const weir_job_spec *spec, char trace[JOB_TRACE_BYTES])
{
    if (spec->trace) return slice_of(spec->trace);
    return trace_here() ? trace_of_task(trace) : (struct engine_slice){0};
}

int job_spec_convert(struct store *store, const weir_job_spec *spec, char trace[JOB_TRACE_BYTES],
                     struct engine_job_spec *ret_spec)
{
    int r = check_spec(store, spec);

    if (r < 0) return r;
    *ret_spec = (struct engine_job_spec){
        .version = spec->version,
        .payload = {spec->payload, spec->payload_bytes},
        .trace = job_trace(spec, trace),
        .priority = spec->priority,
        .run_at_ms = spec->run_at_ms,
        .expires_ms = spec->expires_ms,
        .timeout_ms = spec->timeout_ms,
        .idempotent = spec->idempotent == WEIR_YES,
        .retry = {.attempts_max = spec->retry.attempts_max,
                  .backoff_ms = spec->retry.backoff_ms,
                  .backoff_ms_max = spec->retry.backoff_ms_max,
                  .jitter = !spec->retry.no_jitter && spec->retry.backoff_ms > 0},
        .unique_ms = spec->unique_ms,
        .unique_states = spec->unique_states,
        .idempotency_ms = spec->idempotency_ms,
        .batch = spec->batch,
        .gathers = (enum engine_gathers)spec->gathers,
    };
    return convert_names(spec, ret_spec);
}

size_t job_spec_bytes(const weir_job_spec *spec)
{
    return spec->payload_bytes + (spec->trace ? strlen(spec->trace) : JOB_TRACE_BYTES) + 4096;
}

/* ---- One ---- */

static int enqueue_now(struct store *store, const weir_job_spec *spec, struct engine_job_spec *job,
                       struct engine_enqueued *ret_enqueued)
{
    int64_t now_ms = store_now_ms(store);

    if (spec->delay_ms > 0) job->run_at_ms = now_ms + spec->delay_ms;
    return engine_enqueue(store->engine, now_ms, job, ret_enqueued);
}

/* Who comes later does not pass those who wait. */
static int enqueue_in_turn(struct store *store, const weir_job_spec *spec,
                           struct engine_job_spec *job, bool in_turn,
                           struct engine_enqueued *ret_enqueued)
{
    if (!in_turn && store_room_is_awaited(store, job->queue) &&
        engine_queue_waits(store->engine, job->queue))
        return WEIR_EOVERLOAD;
    return enqueue_now(store, spec, job, ret_enqueued);
}

/* An error of the engine in the words of jobs.h. */
static int refused(struct store *store, int error)
{
    return store_refuse(store, error);
}

static int refused_room(struct store *store, struct engine_slice queue)
{
    return refuse_as(WEIR_EOVERLOAD,
                     "store '%s': queue '%.*s': is full, and no room was made in it",
                     store->object.name, (int)queue.count, (const char *)queue.at);
}

/* Until `until_ns`, 0: as long as it may. Without the lock after it. */
static int wait_room(struct store *store, struct engine_slice queue, bool first, int64_t until_ns)
{
    int64_t left_ms = until_ns ? (until_ns - weir_now_ns()) / 1000000 : 0;
    int r = WEIR_ETIMEDOUT;

    if (until_ns == 0) return store_wait_room(store, queue, first);
    WEIR_DEADLINE(left_ms > 0 ? left_ms : 1) { r = store_wait_room(store, queue, first); }
    return r == WEIR_ETIMEDOUT ? refused_room(store, queue) : r;
}

int job_enqueue_within(weir_store *handle, const weir_job_spec *spec, int64_t room_ms,
                       weir_enqueued *ret_enqueued)
{
    struct store *store = store_look_up(handle, "weir_job_enqueue");
    struct store_intent intent = {.call = "weir_job_enqueue", .use = LOG_FOR_NEW};
    struct engine_enqueued enqueued;
    struct engine_job_spec job WEIR_UNINITIALIZED_;
    char trace[JOB_TRACE_BYTES] WEIR_UNINITIALIZED_;
    enum weir_durability durability;
    int64_t until_ns = room_ms > 0 ? weir_now_ns() + room_ms * 1000000 : 0;
    bool in_turn = false;
    int r = job_spec_convert(store, spec, trace, &job);

    if (r < 0) return r;
    intent.bytes = job_spec_bytes(spec);
    durability = store_durability(store, spec->durability);
    r = store_enter(handle, &intent, &store);
    if (r < 0) return r;
    while ((r = enqueue_in_turn(store, spec, &job, in_turn, &enqueued)) == WEIR_EOVERLOAD &&
           engine_queue_waits(store->engine, job.queue) && room_ms >= 0) {
        r = wait_room(store, job.queue, in_turn, until_ns);
        in_turn = r == 0;
        if (r == 0) r = store_enter_again(store, &intent);
        if (r < 0) {
            if (in_turn) store_pass_room(store);
            store_exit(store);
            return r;
        }
    }
    if (r == WEIR_EOVERLOAD && engine_queue_waits(store->engine, job.queue))
        /* The engine may not have been asked. */
        r = room_ms < 0 ? -EAGAIN : refused_room(store, job.queue);
    else if (r < 0)
        r = refused(store, r);
    store_commit(store, LOG_FOR_NEW); /* also if it was refused: then the next one gets its room */
    if (PLANTED(STORE_DUPLICATE_UNGATED) && r == 0 && enqueued.duplicate)
        r = store_leave(store, WEIR_MEMORY, r);
    else
        r = store_leave(store, durability, r);
    if (r < 0) return r;
    *ret_enqueued = (weir_enqueued){enqueued.id, enqueued.duplicate, durability};
    return 0;
}

int weir_job_enqueue_sized(weir_store *handle, size_t spec_bytes, const weir_job_spec *given,
                           weir_enqueued *ret_enqueued)
{
    weir_job_spec spec WEIR_UNINITIALIZED_;

    if (given && spec_bytes == sizeof spec)
        return job_enqueue_within(handle, given, 0, ret_enqueued);
    spec_copy(&spec, sizeof spec, given, spec_bytes);
    return job_enqueue_within(handle, &spec, 0, ret_enqueued);
}

/* ---- Many ---- */

struct many {
    struct engine_job_spec *jobs;
    uint64_t *ids; /* of those that are no duplicates */
    char (*traces)[JOB_TRACE_BYTES];
};

void job_take_back(struct store *store, int64_t now_ms, const uint64_t *ids, size_t count)
{
    while (count-- > 0) {
        int r = ids[count] == 0 ? 0 : engine_take_back(store->engine, now_ms, ids[count]);

        assert(r == 0);
    }
}

/* What one of many takes: what it says, and room for what is said of it, of its batch, of who
 * follows it and of who is let go on at its limit keys when it is taken back. It is counted
 * closely, as many must fit into one record. */
enum { JOB_BYTES = 320, MOVE_BYTES = 128 };
size_t job_one_of_many_bytes(const struct engine_job_spec *job)
{
    size_t moves = (job->batch != 0 ? 2 : 0) + (job->order_key.count > 0) + job->limit_key_count;
    size_t bytes = JOB_BYTES + moves * MOVE_BYTES + job->payload.count + job->trace.count +
                   job->tags.count + job->queue.count + job->kind.count + job->unique_key.count +
                   job->idempotency_key.count + job->fairness_key.count + job->order_key.count;

    for (uint32_t i = 0; i < job->limit_key_count; i++) bytes += job->limit_keys[i].count;
    for (uint32_t i = 0; i < job->retry.never_count; i++) bytes += job->retry.never[i].count;
    return bytes;
}

static int convert_all(struct store *store, size_t spec_bytes, const weir_job_spec *given,
                       size_t count, struct many *many, struct store_intent *intent)
{
    for (size_t i = 0; i < count; i++) {
        weir_job_spec copy WEIR_UNINITIALIZED_;
        const weir_job_spec *spec = &given[i];
        int r;

        if (spec_bytes != sizeof copy) {
            spec_copy(&copy, sizeof copy, (const char *)given + i * spec_bytes, spec_bytes);
            spec = &copy;
        }
        r = job_spec_convert(store, spec, many->traces[i], &many->jobs[i]);
        if (r < 0) return r;
        if (spec->delay_ms > 0) many->jobs[i].run_at_ms = -spec->delay_ms; /* from now, see below */
        intent->bytes += job_one_of_many_bytes(&many->jobs[i]);
    }
    return 0;
}

enum { FORESEEN = 4 }; /* as long as memory takes */

/* All of them, or none: what was enqueued is taken back when one is refused. */
static int enqueue_all_now(struct store *store, const struct many *many, size_t count,
                           weir_enqueued *ret_enqueued)
{
    int64_t now_ms = store_now_ms(store);
    int r = 0;

    for (size_t i = 0; i < count; i++) {
        struct engine_job_spec *job = &many->jobs[i];
        struct engine_enqueued one;

        if (i + FORESEEN < count) engine_foresee(store->engine, &many->jobs[i + FORESEEN]);
        if (job->run_at_ms < 0) job->run_at_ms = now_ms - job->run_at_ms;
        r = engine_enqueue(store->engine, now_ms, job, &one);
        if (r < 0) {
            r = refused(store, r);
            job_take_back(store, now_ms, many->ids, i);
            return r;
        }
        many->ids[i] = one.duplicate ? 0 : one.id;
        ret_enqueued[i] = (weir_enqueued){one.id, one.duplicate, WEIR_DURABILITY_UNSET};
    }
    return r;
}

int weir_job_enqueue_all_sized(weir_store *handle, size_t spec_bytes, const weir_job_spec *specs,
                               size_t count, weir_enqueued *ret_enqueued)
{
    struct store *store = store_look_up(handle, "weir_job_enqueue_all");
    struct store_intent intent = {.call = "weir_job_enqueue_all", .use = LOG_FOR_NEW};
    struct many many;
    enum weir_durability durability;
    int r;

    if (count == 0) return 0;
    if (count > WEIR_JOB_ENQUEUE_MAX)
        return refuse("weir_job_enqueue_all: %zu jobs, at most %d", count, WEIR_JOB_ENQUEUE_MAX);
    many.jobs = mem_alloc(count * (sizeof *many.jobs + sizeof *many.ids + sizeof *many.traces));
    if (!many.jobs) return -ENOMEM;
    many.ids = (uint64_t *)(void *)(many.jobs + count);
    many.traces = (char(*)[JOB_TRACE_BYTES])(void *)(many.ids + count);
    durability = store_durability(store, specs[0].durability);
    r = convert_all(store, spec_bytes, specs, count, &many, &intent);
    if (r == 0) r = store_enter(handle, &intent, &store);
    if (r < 0) {
        mem_free(many.jobs);
        return r;
    }
    r = enqueue_all_now(store, &many, count, ret_enqueued);
    store_commit(store, LOG_FOR_NEW);
    mem_free(many.jobs);
    r = store_leave(store, durability, r);
    for (size_t i = 0; r == 0 && i < count; i++) ret_enqueued[i].durability = durability;
    return r;
}

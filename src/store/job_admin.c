/* job_admin.c - queues, keys, schedules, and acting on jobs that have ended. */
#include <errno.h>
#include <string.h>

#include "rt/mem.h"
#include "store/bounded.h"
#include "store/store.h"

static int check_name(const char *call, const char *name)
{
    if (!name || !name[0]) return refuse("%s: name is not set", call);
    if (strlen(name) > WEIR_JOB_NAME_BYTES_MAX)
        return refuse("%s: name has more than %d bytes", call, WEIR_JOB_NAME_BYTES_MAX);
    return 0;
}

static struct engine_rate rate_of(const weir_job_rate *rate)
{
    return (struct engine_rate){rate->count, rate->period_ms, rate->burst};
}

/* The end of a call that has decided something, or was refused. The lock is held. */
static int decided(struct store *store, int r) LOCK_UNCHECKED;
static int decided(struct store *store, int r)
{
    if (r < 0)
        r = store_refuse(store, r);
    else
        store_commit(store, LOG_FOR_EXISTING);
    return store_leave(store, WEIR_DURABILITY_UNSET, r);
}

/* ---- Queues ---- */

/* What is not kept has to be said. */
static int check_queue(const weir_queue_spec *spec, unsigned kept)
{
    int r = check_name("queue", spec->name);

    if (r < 0) return r;
    if (spec->depth_max == 0 && !(kept & QUEUE_KEEPS_DEPTH))
        return refuse("queue '%s': depth_max is not set", spec->name);
    if (spec->overflow != WEIR_REJECT && spec->overflow != WEIR_WAIT &&
        !(kept & QUEUE_KEEPS_OVERFLOW))
        return refuse("queue '%s': overflow must be WEIR_REJECT or WEIR_WAIT: nothing that was "
                      "acknowledged is dropped for room",
                      spec->name);
    return 0;
}

static void keep_queue(struct engine_queue_spec *queue, const struct engine_queue_spec *before,
                       unsigned kept)
{
    if (kept & QUEUE_KEEPS_PAUSED) queue->paused = before->paused;
    if (kept & QUEUE_KEEPS_DRAINING) queue->draining = before->draining;
    if (kept & QUEUE_KEEPS_DEPTH) queue->depth_max = before->depth_max;
    if (kept & QUEUE_KEEPS_OVERFLOW) queue->overflow = before->overflow;
    if (kept & QUEUE_KEEPS_CONCURRENCY) queue->concurrency = before->concurrency;
    if (kept & QUEUE_KEEPS_RATE_COUNT) queue->rate.count = before->rate.count;
    if (kept & QUEUE_KEEPS_RATE_PERIOD) queue->rate.period_ms = before->rate.period_ms;
    if (kept & QUEUE_KEEPS_RATE_BURST) queue->rate.burst = before->rate.burst;
    if (kept & QUEUE_KEEPS_LATENCY) queue->latency_target_ms = before->latency_target_ms;
}

int queue_set_keeping(weir_store *handle, const weir_queue_spec *spec, unsigned kept)
{
    const struct store_intent intent = {.call = "weir_queue_set", .use = LOG_FOR_EXISTING};
    struct engine_queue_info info;
    struct engine_queue_spec queue;
    struct store *store;
    int r = check_queue(spec, kept);

    if (r < 0) return r;
    queue = (struct engine_queue_spec){
        .name = slice_of(spec->name),
        .depth_max = spec->depth_max,
        .overflow = spec->overflow == WEIR_WAIT ? ENGINE_WAIT : ENGINE_REJECT,
        .concurrency = spec->concurrency,
        .rate = rate_of(&spec->rate),
        .latency_target_ms = spec->latency_target_ms,
        .paused = spec->paused,
        .draining = spec->draining,
    };
    r = store_enter(handle, &intent, &store);
    if (r < 0) return r;
    if (engine_queue_get(store->engine, queue.name, &info) < 0)
        info.spec = (struct engine_queue_spec){
            .overflow =
                engine_queue_waits(store->engine, queue.name) ? ENGINE_WAIT : ENGINE_REJECT};
    keep_queue(&queue, &info.spec, kept);
    if (kept & QUEUE_KEEPS_RATE_COUNT && queue.rate.count == 0 && spec->rate.burst > 0)
        return store_leave(store, WEIR_DURABILITY_UNSET,
                           refuse("queue '%s': a burst needs a rate", spec->name));
    return decided(store, engine_queue_set(store->engine, store_now_ms(store), &queue));
}

int weir_queue_set_sized(weir_store *handle, size_t spec_bytes, const weir_queue_spec *given)
{
    weir_queue_spec spec;

    spec_copy(&spec, sizeof spec, given, spec_bytes);
    return queue_set_keeping(handle, &spec, 0);
}

enum queue_change { QUEUE_PAUSE, QUEUE_RESUME, QUEUE_DRAIN };

static int change_queue(weir_store *handle, const char *call, const char *name,
                        enum queue_change change)
{
    const struct store_intent intent = {.call = call, .use = LOG_FOR_EXISTING};
    struct engine_queue_info info;
    struct engine_queue_spec spec;
    struct store *store;
    int r = check_name(call, name);

    if (r < 0) return r;
    r = store_enter(handle, &intent, &store);
    if (r < 0) return r;
    r = engine_queue_get(store->engine, slice_of(name), &info);
    if (r < 0) return decided(store, r);
    spec = info.spec;
    spec.name = slice_of(name);
    if (change == QUEUE_PAUSE) spec.paused = true;
    if (change == QUEUE_DRAIN) spec.draining = true;
    if (change == QUEUE_RESUME) spec.paused = spec.draining = false;
    return decided(store, engine_queue_set(store->engine, store_now_ms(store), &spec));
}

int weir_queue_pause(weir_store *store, const char *name)
{
    return change_queue(store, "weir_queue_pause", name, QUEUE_PAUSE);
}

int weir_queue_resume(weir_store *store, const char *name)
{
    return change_queue(store, "weir_queue_resume", name, QUEUE_RESUME);
}

int weir_queue_drain(weir_store *store, const char *name)
{
    return change_queue(store, "weir_queue_drain", name, QUEUE_DRAIN);
}

static void fill_figures(struct store *store, const struct engine_queue_info *info,
                         weir_queue_figures *ret)
{
    struct engine_figures figures = {0};

    (void)engine_figures(store->engine, info->spec.name, &figures);
    *ret = (weir_queue_figures){
        .spec = {.depth_max = info->depth_max,
                 .overflow = info->spec.overflow == ENGINE_WAIT ? WEIR_WAIT : WEIR_REJECT,
                 .concurrency = info->spec.concurrency,
                 .rate = {info->spec.rate.count, info->spec.rate.period_ms, info->spec.rate.burst},
                 .latency_target_ms = info->spec.latency_target_ms,
                 .paused = info->spec.paused,
                 .draining = info->spec.draining},
        .unknown = figures.unknown,
        .oldest_ms = figures.oldest_ms ? store_now_ms(store) - figures.oldest_ms : 0,
        .enqueued = figures.enqueued,
        .started = figures.started,
        .done = figures.done,
        .failed = figures.failed,
        .died = figures.died,
        .expired = figures.expired,
        .cancelled = figures.cancelled,
        .rejected = figures.rejected,
        .lost = figures.lost,
    };
    memcpy(ret->name, info->spec.name.at, info->spec.name.count);
    ret->spec.name = ret->name;
    for (int i = 0; i < ENGINE_STATES; i++) ret->by_state[i] = figures.by_state[i];
}

int weir_queue_get(weir_store *handle, const char *name, weir_queue_figures *ret_figures)
{
    const struct store_intent intent = {.call = "weir_queue_get"};
    struct engine_queue_info info;
    struct store *store;
    int r = check_name("weir_queue_get", name);

    if (r < 0) return r;
    r = store_enter(handle, &intent, &store);
    if (r < 0) return r;
    r = engine_queue_get(store->engine, slice_of(name), &info);
    if (r < 0)
        r = refuse_as(-ENOENT, "store '%s': there is no queue '%s'", store->object.name, name);
    else
        fill_figures(store, &info, ret_figures);
    return store_leave(store, WEIR_DURABILITY_UNSET, r);
}

int weir_queue_next(weir_store *handle, uint32_t *cursor, weir_queue_figures *ret_figures)
{
    const struct store_intent intent = {.call = "weir_queue_next"};
    struct engine_queue_info info;
    struct store *store;
    int r = store_enter(handle, &intent, &store);

    if (r < 0) return r;
    r = engine_queue_next(store->engine, cursor, &info);
    if (r == 1) fill_figures(store, &info, ret_figures);
    return store_leave(store, WEIR_DURABILITY_UNSET, r);
}

int weir_key_set_sized(weir_store *handle, size_t spec_bytes, const weir_key_spec *given)
{
    const struct store_intent intent = {.call = "weir_key_set", .use = LOG_FOR_EXISTING};
    struct engine_key_spec key;
    weir_key_spec spec;
    struct store *store;
    int r;

    spec_copy(&spec, sizeof spec, given, spec_bytes);
    r = check_name("key", spec.name);
    if (r < 0) return r;
    key = (struct engine_key_spec){
        .name = slice_of(spec.name),
        .concurrency = spec.concurrency,
        .rate = rate_of(&spec.rate),
        .weight = spec.weight,
    };
    r = store_enter(handle, &intent, &store);
    if (r < 0) return r;
    return decided(store, engine_key_set(store->engine, store_now_ms(store), &key));
}

/* ---- Schedules ---- */

static int check_schedule(const weir_schedule_spec *spec)
{
    int r = check_name("schedule", spec->name);

    if (r < 0) return r;
    if (!spec->cron || !spec->cron[0]) return refuse("schedule '%s': cron is not set", spec->name);
    if (spec->overlap == WEIR_OVERLAP_UNSET || spec->overlap > WEIR_OVERLAP_SKIP)
        return refuse("schedule '%s': overlap is not set", spec->name);
    if (spec->catch_up == WEIR_CATCH_UP_UNSET || spec->catch_up > WEIR_CATCH_UP_ALL)
        return refuse("schedule '%s': catch_up is not set", spec->name);
    if (spec->job.run_at_ms || spec->job.delay_ms)
        return refuse("schedule '%s': its job has a time of its own", spec->name);
    return 0;
}

int weir_schedule_set_sized(weir_store *handle, size_t spec_bytes, const weir_schedule_spec *given)
{
    struct store_intent look = {.call = "weir_schedule_set"};
    struct store_intent intent = {.call = "weir_schedule_set", .use = LOG_FOR_EXISTING};
    struct store *store = store_look_up(handle, "weir_schedule_set");
    struct engine_schedule_spec schedule;
    char trace[JOB_TRACE_BYTES];
    weir_schedule_spec spec;
    int r;

    spec_copy(&spec, sizeof spec, given, spec_bytes);
    r = check_schedule(&spec);
    if (r == 0 && !spec.job.trace) spec.job.trace = ""; /* each of its jobs begins a trace */
    if (r == 0) r = job_spec_convert(store, &spec.job, trace, &schedule.job);
    if (r < 0) return r;
    schedule.name = slice_of(spec.name);
    schedule.cron = slice_of(spec.cron);
    schedule.zone = slice_of(spec.zone);
    schedule.overlap = (enum engine_overlap)spec.overlap;
    schedule.catch_up = (enum engine_catch_up)spec.catch_up;
    schedule.paused = spec.paused;
    r = store_enter(handle, &look, &store);
    if (r < 0) return r;
    store_unlock_entered(store);
    if (spec.zone && spec.zone[0] && strcmp(spec.zone, "UTC") != 0)
        r = store_load_zone(store, spec.zone);
    else
        schedule.zone = (struct engine_slice){0};
    intent.bytes = job_spec_bytes(&spec.job);
    if (r == 0) r = store_enter_again(store, &intent);
    if (r < 0) {
        store_exit(store);
        return r;
    }
    return decided(store, engine_schedule_set(store->engine, store_now_ms(store), &schedule));
}

int weir_schedule_drop(weir_store *handle, const char *name)
{
    const struct store_intent intent = {.call = "weir_schedule_drop", .use = LOG_FOR_EXISTING};
    struct store *store;
    int r = check_name("weir_schedule_drop", name);

    if (r < 0) return r;
    r = store_enter(handle, &intent, &store);
    if (r < 0) return r;
    return decided(store, engine_schedule_drop(store->engine, store_now_ms(store), slice_of(name)));
}

static void copy_name(char to[WEIR_JOB_NAME_BYTES_MAX + 1], struct engine_slice from)
{
    size_t bytes = from.count < WEIR_JOB_NAME_BYTES_MAX ? from.count : WEIR_JOB_NAME_BYTES_MAX;

    if (bytes > 0) memcpy(to, from.at, bytes);
    to[bytes] = '\0';
}

int weir_schedule_next(weir_store *handle, uint32_t *cursor, weir_schedule_info *ret_info)
{
    const struct store_intent intent = {.call = "weir_schedule_next"};
    struct engine_schedule_info info;
    struct store *store;
    int r = store_enter(handle, &intent, &store);

    if (r < 0) return r;
    r = engine_schedule_next(store->engine, cursor, &info);
    if (r == 1) {
        copy_name(ret_info->name, info.name);
        copy_name(ret_info->cron, info.cron);
        copy_name(ret_info->zone, info.zone);
        copy_name(ret_info->queue, info.queue);
        copy_name(ret_info->kind, info.kind);
        ret_info->overlap = (enum weir_overlap)info.overlap;
        ret_info->catch_up = (enum weir_catch_up)info.catch_up;
        ret_info->next_ms = info.state.next_ms;
        ret_info->last_id = info.state.last_id;
        ret_info->paused = info.state.paused;
        ret_info->zone_missing = info.state.zone_missing;
        ret_info->skipped = info.state.skipped;
    }
    return store_leave(store, WEIR_DURABILITY_UNSET, r);
}

/* ---- Dead letters ---- */

/* The trace goes on with the job; its payload is replaced. */
static int replay_edited(struct store *store, uint64_t id, const void *payload,
                         size_t payload_bytes)
{
    struct store_intent intent = {.call = "weir_dead_replay",
                                  .use = LOG_FOR_EXISTING,
                                  .bytes = payload_bytes + STORE_MESSAGE_BYTES_MAX};
    struct engine_slice edited = {payload ? payload : "", payload_bytes};
    struct store_bytes record = {0};
    struct engine_found found = {0};
    int r = store_read_job(store, id, 0, false, &record, &found);

    if (r == 0) r = store_enter_again(store, &intent);
    if (r < 0) {
        store_exit(store);
    } else {
        r = decided(store, engine_dead_replay(store->engine, store_now_ms(store), id, &edited,
                                              found.trace));
    }
    mem_free(record.memory);
    return r;
}

int weir_dead_replay(weir_store *handle, uint64_t id, const void *payload, size_t payload_bytes)
{
    struct store_intent intent = {.call = "weir_dead_replay", .use = LOG_FOR_EXISTING};
    struct store *store;
    int r = store_enter(handle, &intent, &store);

    if (r < 0) return r;
    if (payload_bytes > store->spec.payload_bytes_max) {
        store_unlock_entered(store);
        store_exit(store);
        return refuse_as(-EMSGSIZE, "weir_dead_replay: %zu bytes of payload, at most %u",
                         payload_bytes, store->spec.payload_bytes_max);
    }
    if (!payload)
        return decided(store, engine_dead_replay(store->engine, store_now_ms(store), id, NULL,
                                                 (struct engine_slice){0}));
    store_unlock_entered(store);
    return replay_edited(store, id, payload, payload_bytes);
}

int weir_job_purge(weir_store *handle, uint64_t id)
{
    const struct store_intent intent = {.call = "weir_job_purge", .use = LOG_FOR_EXISTING};
    struct store *store;
    int r = store_enter(handle, &intent, &store);

    if (r < 0) return r;
    return decided(store, engine_purge(store->engine, store_now_ms(store), id));
}

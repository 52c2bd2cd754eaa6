/* store_open.c - opening a store, closing it, and how it belongs to its scope. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/planted.h"
#include "rt/mem.h"
#include "store/store.h"

/* ---- The spec ---- */

static int check_bounds(const weir_store_spec *spec)
{
    const char *name = spec->name;

    if (spec->memory_bytes_max == 0) return refuse("store '%s': memory_bytes_max is not set", name);
    if (spec->queue_depth_max == 0) return refuse("store '%s': queue_depth_max is not set", name);
    if (spec->queue_overflow != WEIR_REJECT && spec->queue_overflow != WEIR_WAIT)
        return refuse("store '%s': queue_overflow must be WEIR_REJECT or WEIR_WAIT: nothing that "
                      "was acknowledged is dropped for room",
                      name);
    if (spec->payload_bytes_max > WEIR_STORE_PAYLOAD_BYTES_MAX ||
        spec->result_bytes_max > WEIR_STORE_PAYLOAD_BYTES_MAX)
        return refuse("store '%s': payload_bytes_max or result_bytes_max is more than %d", name,
                      WEIR_STORE_PAYLOAD_BYTES_MAX);
    if (spec->history_ms < 0 || spec->dead_ms < 0 || spec->history_ms > ENGINE_SPAN_MS_MAX ||
        spec->dead_ms > ENGINE_SPAN_MS_MAX)
        return refuse("store '%s': history_ms or dead_ms is negative, or more than three years",
                      name);
    if (spec->segment_bytes != 0 && spec->segment_bytes < WEIR_STORE_SEGMENT_BYTES_MIN)
        return refuse("store '%s': segment_bytes is %llu, less than %d", name,
                      (unsigned long long)spec->segment_bytes, WEIR_STORE_SEGMENT_BYTES_MIN);
    return 0;
}

static int check_spec(const weir_store_spec *spec)
{
    int r = flow_check_name("store", spec->name);

    if (r < 0) return r;
    if (!spec->path || !spec->path[0]) return refuse("store '%s': path is not set", spec->name);
    if (spec->durability == WEIR_DURABILITY_UNSET || spec->durability > WEIR_SYNCED)
        return refuse("store '%s': durability is not set", spec->name);
    return check_bounds(spec);
}

static void set_defaults(weir_store_spec *spec)
{
    if (spec->payload_bytes_max == 0) spec->payload_bytes_max = WEIR_STORE_PAYLOAD_BYTES_DEFAULT;
    if (spec->result_bytes_max == 0) spec->result_bytes_max = WEIR_STORE_PAYLOAD_BYTES_DEFAULT;
    if (spec->history_ms == 0) spec->history_ms = WEIR_STORE_HISTORY_MS_DEFAULT;
    if (spec->history_count_max == 0) spec->history_count_max = WEIR_STORE_HISTORY_COUNT_DEFAULT;
    if (spec->dead_ms == 0) spec->dead_ms = WEIR_STORE_DEAD_MS_DEFAULT;
    if (!spec->zones) spec->zones = WEIR_STORE_ZONES_DEFAULT;
}

static int copy_strings(struct store *store, const weir_store_spec *spec)
{
    size_t path_bytes = strlen(spec->path) + 1;
    size_t zones_bytes = strlen(spec->zones) + 1;

    store->strings = mem_alloc(path_bytes + zones_bytes);
    if (!store->strings) return -ENOMEM;
    memcpy(store->strings, spec->path, path_bytes);
    memcpy(store->strings + path_bytes, spec->zones, zones_bytes);
    store->spec.name = store->object.name;
    store->spec.path = store->strings;
    store->spec.zones = store->strings + path_bytes;
    return 0;
}

/* ---- What is in the folder ---- */

static void *resize(void *arg, void *block, size_t bytes_before, size_t bytes)
{
    (void)arg, (void)bytes_before;
    if (bytes > 0) return mem_resize(block, bytes);
    mem_free(block);
    return NULL;
}

static void replay_names(struct store *store, const struct log_record *record)
{
    bool first = record->tag == STORE_TAG_NAMES || record->tag == STORE_TAG_NAMES_ALL;
    bool last = record->tag == STORE_TAG_NAMES_LAST || record->tag == STORE_TAG_NAMES_ALL;

    if (first) {
        store->names_candidate = record->position;
        store->names_candidate_bytes = 0;
    }
    store->names_candidate_bytes += (int64_t)record->bytes;
    if (!last || store->names_candidate == 0) return;
    store->names_position = store->names_candidate;
    store->names_bytes = store->names_candidate_bytes;
}

/* For the log, on a thread of its own. */
static int replay(void *arg, const struct log_record *record)
{
    struct store *store = arg;
    bool crashed = store->replayed && !store->closed_well;
    int r;

    store->closed_well = record->tag == STORE_TAG_CLOSED;
    store->replayed = true;
    switch (record->tag) {
    case STORE_TAG_CLOSED: return 0;
    case STORE_TAG_OPENED: /* who opened it then has skipped them, too */
        if (crashed) engine_skip(store->engine, STORE_LOST_IDS_MAX);
        return 0;
    case STORE_TAG_ENGINE:
    case STORE_TAG_NAMES:
    case STORE_TAG_NAMES_MORE:
    case STORE_TAG_NAMES_LAST:
    case STORE_TAG_NAMES_ALL:
        r = engine_apply(store->engine, record->data, record->bytes, record->position);
        break;
    default: r = -EPROTONOSUPPORT; break;
    }
    if (record->tag != STORE_TAG_ENGINE && r == 0) replay_names(store, record);
    if (r < 0) {
        store->bad_position = record->position;
        store->bad_tag = record->tag;
    }
    return r;
}

static int say_what_is_bad(struct store *store, int error)
{
    if (store->bad_position == 0) return error;
    if (error == -EPROTONOSUPPORT)
        return refuse_as(
            error,
            "store '%s': %s, position %llu: a record of kind %u, which a newer version "
            "has written",
            store->object.name, store->spec.path, (unsigned long long)store->bad_position,
            store->bad_tag);
    return refuse_as(error, "store '%s': %s, position %llu: %s", store->object.name,
                     store->spec.path, (unsigned long long)store->bad_position,
                     engine_why(store->engine));
}

static void live(void *arg, uint64_t position, int64_t bytes)
{
    store_live(arg, position, bytes);
}

static int open_engine(struct store *store)
{
    const weir_store_spec *spec = &store->spec;
    const struct kernel *kernel = store->object.stable.runtime->kernel;
    struct engine_config config = {
        .resize = resize,
        .memory_bytes_max = spec->memory_bytes_max,
        .payload_bytes_max = spec->payload_bytes_max,
        .result_bytes_max = spec->result_bytes_max,
        .message_bytes_max = STORE_MESSAGE_BYTES_MAX,
        .depth_max = spec->queue_depth_max,
        .overflow = spec->queue_overflow == WEIR_WAIT ? ENGINE_WAIT : ENGINE_REJECT,
        .history_ms = spec->history_ms,
        .dead_ms = spec->dead_ms,
        .history_count_max = spec->history_count_max,
    };

    kernel->random(kernel, &config.seed, sizeof config.seed);
    return engine_open(&config, &store->engine);
}

/* For the log, on its committer's thread. */
static void note_sync(void *arg, int64_t ns)
{
    struct store *store = arg;

    meter_observe(store->sync_meter, STORE_SYNC_HISTOGRAM, ns);
}

static int open_log(struct store *store, const struct store_sizes *sizes)
{
    const struct kernel *kernel = store->object.stable.runtime->kernel;
    struct log_spec spec = {
        .path = store->spec.path,
        .create = store->spec.create,
        .segment_bytes =
            store->spec.segment_bytes ? store->spec.segment_bytes : sizes->segment_bytes,
        .buffer_bytes = sizes->buffer_bytes,
        .recent_bytes = STORE_RECENT_BYTES,
        .record_bytes_max = sizes->record_bytes_max,
        .held_segments = sizes->held_segments,
        .replay = replay,
        .synced = note_sync,
        .arg = store,
    };
    struct engine_hooks hooks = {.arg = store, .live = live, .ended = store_job_ended};
    struct log_figures figures;
    int r;

    store->sync_meter = meter_get(&store_meter_kind, store->object.name, NULL);
    sanitize_release(store);
    r = log_open(&spec, &store->log);
    sanitize_acquire(store);
    if (r < 0) return say_what_is_bad(store, r);
    log_figures(store->log, &figures);
    store->end = store->looked_end = figures.end;
    store->segment_bytes = figures.segment_bytes;
    engine_hooks_set(store->engine, &hooks);
    store_live(store, store->names_position, store->names_bytes);
    store_clock_begin(&store->clock, engine_now_ms(store->engine), kernel->wall_ns(kernel),
                      weir_now_ns());
    /* Somebody may have been told of ids and tokens that are not on disk (note_opened). */
    if (store->replayed && !store->closed_well && !PLANTED(STORE_IDS_AGAIN))
        engine_skip(store->engine, STORE_LOST_IDS_MAX);
    return 0;
}

/* ---- Belonging to a scope ---- */

void store_drop_handle(struct store *store)
{
    if (store->handle) handle_close(store->handle);
    store->handle = NULL;
}

static void store_free(struct store *store)
{
    store_waits_deinit(store);
    mem_free(store->tables);
    mem_free(store->strings);
    flow_free(&store->object);
}

/* Upkeep has ended, or never was. On its worker. */
static void store_release(struct worker *worker, struct belonging *belonging)
{
    struct store *store = container_of(belonging, struct store, object.belonging);

    (void)worker;
    store_drop_handle(store);
    /* The bit keeps others from posting mail; if some is under way, it comes back here. */
    if (atom_or(&belonging->mail_bits, BELONGING_RELEASE) != 0) return;
    (void)scope_forget(belonging);
    store_free(store);
}

static void store_signalled(struct worker *worker, struct belonging *belonging, uint8_t signals)
{
    (void)worker, (void)belonging, (void)signals; /* upkeep is told by its scope */
}

static void store_dismissed(struct worker *worker, struct belonging *belonging)
{
    (void)worker;
    store_shut(container_of(belonging, struct store, object.belonging));
}

static void store_describe(const struct belonging *belonging, char *text, size_t bytes)
{
    const struct store *store =
        (const struct store *)(const void *)((const char *)belonging -
                                             offsetof(struct store, object.belonging));
    (void)snprintf(text, bytes, "'%s', %s", store->object.name, store->spec.path);
}

static const struct belonging_kind store_kind = {
    .name = "store",
    .signalled = store_signalled,
    .release = store_release,
    .describe = store_describe,
    .boundary = store_boundary,
    .dismissed = store_dismissed,
};

/* ---- Opening ---- */

static struct store *store_new(const weir_store_spec *spec)
{
    struct store *store = flow_alloc(sizeof *store, spec->name);

    if (!store) return NULL;
    store->tables = mem_alloc(sizeof *store->tables);
    if (!store->tables) {
        flow_free(&store->object);
        return NULL;
    }
    store->spec = *spec;
    set_defaults(&store->spec);
    for (unsigned i = 0; i < STORE_BUCKETS; i++) {
        list_init(&store->tables->waits[i]);
        list_init(&store->tables->enders[i]);
        list_init(&store->tables->orders[i]);
    }
    list_init(&store->full);
    list_init(&store->upkeeper);
    list_init(&store->finishers);
    list_init(&store->closer);
    store->planned_ms = INT64_MIN;
    return store;
}

/* Nothing was appended: whether that failed is nobody's matter. */
static void close_log(struct store *store)
{
    struct log *log = store->log;
    int r;

    store_lock(store); /* its scope may show it meanwhile */
    store->log = NULL;
    store_unlock(store);
    r = log_close(log);
    (void)r;
}

/* That it is open is on disk before anybody is told of an id: if nothing else is when the power is
 * cut, the next who opens it knows that ids may have been told, and skips them. */
static int note_opened(struct store *store)
{
    const struct log_options options = {.use = LOG_FOR_COMPACTION, .tag = STORE_TAG_OPENED};
    struct log_place place;
    int r = log_append(store->log, NULL, 0, &options, &place);

    if (PLANTED(STORE_OPEN_UNNOTED)) return r;
    if (r == 0) r = log_wait(store->log, place.end, LOG_SYNCED);
    if (r < 0) return r > WEIR_ECANCELED ? store_stopped(store, r) : r;
    store->end = place.end;
    return 0;
}

/* The folder, and what is in it. */
static int open_all(struct store *store, const struct store_sizes *sizes)
{
    int64_t began_ns = weir_now_ns();
    int r = copy_strings(store, &store->spec);

    if (r == 0) r = open_engine(store);
    if (r < 0) return r;
    r = open_log(store, sizes);
    if (r < 0) goto fail_engine;
    r = store_load_zones(store);
    if (r == 0) r = note_opened(store);
    if (r < 0) goto fail_log;
    store->open_ms = (weir_now_ns() - began_ns) / 1000000;
    return 0;

fail_log:
    close_log(store);
fail_engine:
    engine_close(store->engine);
    return r;
}

static void close_all(struct store *store)
{
    struct engine *engine = store->engine;

    close_log(store);
    store_lock(store);
    store->engine = NULL;
    store_unlock(store);
    engine_close(engine);
}

int store_open(weir_scope *scope, const weir_store_spec *spec, const struct store_sizes *sizes,
               weir_store **ret_store)
{
    struct worker *worker = worker_self();
    weir_task_spec task;
    struct store *store;
    weir_store *handle;
    int r;

    if (!task_self()) return refuse_no_task("weir_store_open");
    scope_check(scope, "weir_store_open");
    r = check_spec(spec);
    if (r < 0) return r;
    store = store_new(spec);
    if (!store) return -ENOMEM;
    store->record_bytes_max = sizes->record_bytes_max;
    r = open_all(store, sizes);
    if (r < 0) goto fail_free;
    r = handle_open(HANDLE_STORE, store, &store->handle);
    if (r < 0) goto fail_close;
    r = scope_own(scope, worker, &store->object.belonging, &store_kind);
    if (r < 0) goto fail_handle;
    meter_enter(&store->metered, meter_get(&store_meter_kind, store->object.name, NULL));
    handle = store->handle;
    task = (weir_task_spec){.fn = store_upkeep_main,
                            .arg = &store,
                            .arg_bytes = sizeof store,
                            .name = store->object.name,
                            .place = WEIR_PLACE_HERE};
    r = weir_task_spawn(scope, &task, NULL);
    if (r == 0) {
        *ret_store = handle;
        return 0;
    }
    meter_leave(&store->metered); /* its last figures are asked for: so while there are some */
    close_all(store);
    store_release(worker, &store->object.belonging);
    return r;

fail_handle:
    handle_close(store->handle);
fail_close:
    close_all(store);
fail_free:
    store_free(store);
    return r;
}

int weir_store_open_sized(weir_scope *scope, size_t spec_bytes, const weir_store_spec *given,
                          weir_store **ret_store)
{
    const struct store_sizes sizes = {
        .segment_bytes = LOG_SEGMENT_BYTES_DEFAULT,
        .buffer_bytes = STORE_BUFFER_BYTES,
        .record_bytes_max = STORE_RECORD_BYTES_MAX,
    };
    weir_store_spec spec;

    spec_copy(&spec, sizeof spec, given, spec_bytes);
    return store_open(scope, &spec, &sizes, ret_store);
}

/* ---- Closing ---- */

static const struct wait_kind wait_closed = {
    .name = "end of a store",
    .describe = waiter_describe,
    .what = WAIT_FOR_ANSWER,
    .ends = ENDS_OUTSIDE,
};

int weir_store_close(weir_store *take_store)
{
    struct store *store;
    struct task *self = task_self();
    weir_scope *scope;
    int result = 0;
    struct waiter waiter = {.task = self, .item = &result};

    if (!take_store) return 0;
    store = store_look_up(take_store, "weir_store_close");
    if (!self) return refuse_no_task("weir_store_close");
    waiter.object = &store->object;
    store_lock(store);
    if (!flow_names(take_store, HANDLE_STORE, store) || store->given_up) {
        store_unlock(store);
        return WEIR_ECLOSED; /* by another, or with its scope, at this moment */
    }
    scope = store->object.belonging.scope;
    if (store->state != STORE_ENDED) {
        /* At once: a store that has ended before it is given up tells its scope how. The handle
         * goes with its end: until then, others who call it are told that it is closed. */
        store_shut_locked(store);
        store->given_up = true;
        list_add_tail(&store->finishers, &waiter.node);
        store_unlock(store);
        (void)task_park(self, &wait_closed, &waiter);
        return result; /* its memory goes by itself */
    }
    store_drop_handle(store);
    result = store->result;
    store_unlock(store);
    scope_lock(scope);
    belonging_mail(&store->object.belonging, BELONGING_RELEASE);
    scope_unlock(scope);
    return result;
}

/* ---- As a whole ---- */

int weir_store_sync(weir_store *handle)
{
    const struct store_intent intent = {.call = "weir_store_sync"};
    struct store *store;
    int r = store_enter(handle, &intent, &store);

    return r < 0 ? r : store_leave(store, WEIR_SYNCED, 0);
}

int weir_store_copy(weir_store *handle, const char *folder)
{
    const struct store_intent intent = {.call = "weir_store_copy"};
    struct store *store;
    uint64_t seen;
    int r;

    if (!folder || !folder[0]) return refuse("weir_store_copy: folder is not set");
    r = store_enter(handle, &intent, &store);
    if (r < 0) return r;
    seen = store->end;
    store_unlock_entered(store);
    r = store_gate(store, seen, WEIR_SYNCED);
    if (r == 0) r = log_copy(store->log, folder);
    store_exit(store);
    return r;
}

void weir_store_figures_of(weir_store *handle, weir_store_figures *ret_figures)
{
    struct store *store = store_look_up(handle, "weir_store_figures_of");
    struct log_figures figures;

    flow_check_worker("weir_store_figures_of");
    *ret_figures = (weir_store_figures){0};
    store_lock(store);
    if (!flow_names(handle, HANDLE_STORE, store) || !store->log || !store->engine) {
        ret_figures->error = store->result < 0 ? store->result : WEIR_ECLOSED;
        store_unlock(store);
        return;
    }
    store_live_told(store);
    log_figures(store->log, &figures);
    (void)store_now_ms(store);
    *ret_figures = (weir_store_figures){
        .jobs = engine_job_count(store->engine),
        .memory_bytes = engine_memory_used(store->engine),
        .memory_bytes_max = store->spec.memory_bytes_max,
        .disk_bytes = (figures.segment_count + figures.spare_count) * figures.segment_bytes,
        .live_bytes = figures.live_bytes > 0 ? (uint64_t)figures.live_bytes : 0,
        .appended_bytes = store->appended_bytes,
        .compacted_bytes = figures.compacted_bytes,
        .held_back = figures.held_back,
        .commits = figures.commits,
        .records = store->records,
        .records_replayed = figures.records_replayed,
        .torn_bytes = figures.torn_bytes,
        .open_ms = store->open_ms,
        .clock_ahead_ms = store->clock.ahead_ns / 1000000,
        .waiting = store->leaser_count,
        .waiting_room = store->room_count,
        .room_error = figures.room_error < 0                   ? figures.room_error
                      : store_disk_is_used_up(store, &figures) ? -ENOSPC
                                                               : 0,
        .error = figures.error,
    };
    store_unlock(store);
}

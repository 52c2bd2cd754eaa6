/* store_meters.c - the figures of a store and of its queues, and its rows on the map. */
#include <stdio.h>
#include <string.h>

#include "rt/mem.h"
#include "store/store.h"

enum { QUEUE_METERS_MAX = 512, MAP_QUEUES_MAX = 256 };

/* ---- Queues ---- */

enum {
    QUEUE_ENQUEUED,
    QUEUE_STARTED,
    QUEUE_DONE,
    QUEUE_DIED,
    QUEUE_CANCELLED,
    QUEUE_EXPIRED,
    QUEUE_FAILED,
    QUEUE_LOST,
    QUEUE_REJECTED,
    QUEUE_SCHEDULED_NOW,
    QUEUE_HELD_NOW,
    QUEUE_READY_NOW,
    QUEUE_BLOCKED_NOW,
    QUEUE_LEASED_NOW,
    QUEUE_DEAD_NOW,
    QUEUE_UNKNOWN,
    QUEUE_OLDEST,
    QUEUE_LATENCY_TARGET,
    QUEUE_DEPTH_MAX,
    QUEUE_VALUES,
};

static void collect_queue(struct metered *object, uint64_t *values)
{
    const struct queue_meter *meter = container_of(object, struct queue_meter, metered);
    struct store *store = meter->store;
    struct engine_slice name = {meter->name, meter->name_bytes};
    struct engine_queue_info info;
    struct engine_figures figures;

    store_lock(store);
    if (store->engine && engine_queue_get(store->engine, name, &info) == 0)
        values[QUEUE_DEPTH_MAX] = info.depth_max;
    if (store->engine && engine_figures(store->engine, name, &figures) == 0) {
        values[QUEUE_ENQUEUED] = figures.enqueued;
        values[QUEUE_STARTED] = figures.started;
        values[QUEUE_DONE] = figures.done;
        values[QUEUE_DIED] = figures.died;
        values[QUEUE_CANCELLED] = figures.cancelled;
        values[QUEUE_EXPIRED] = figures.expired;
        values[QUEUE_FAILED] = figures.failed;
        values[QUEUE_LOST] = figures.lost;
        values[QUEUE_REJECTED] = figures.rejected;
        values[QUEUE_SCHEDULED_NOW] = figures.by_state[ENGINE_SCHEDULED];
        values[QUEUE_HELD_NOW] = figures.by_state[ENGINE_HELD];
        values[QUEUE_READY_NOW] = figures.by_state[ENGINE_READY];
        values[QUEUE_BLOCKED_NOW] = figures.by_state[ENGINE_BLOCKED];
        values[QUEUE_LEASED_NOW] = figures.by_state[ENGINE_LEASED];
        values[QUEUE_DEAD_NOW] = figures.by_state[ENGINE_DEAD];
        values[QUEUE_UNKNOWN] = figures.unknown;
        if (figures.oldest_ms > 0)
            values[QUEUE_OLDEST] = (uint64_t)(store_now_ms(store) - figures.oldest_ms);
        values[QUEUE_LATENCY_TARGET] = figures.latency_target_ms;
    }
    store_unlock(store);
}

#define DEPTH "weir_queue_depth", "Jobs by state.", METER_GAUGE, 0, false, "state"
#define FINISHED \
    "weir_jobs_finished_total", "Jobs that have ended.", METER_COUNTER, 0, false, "outcome"

static const struct meter_value queue_values[QUEUE_VALUES] = {
    [QUEUE_ENQUEUED] = {"weir_jobs_enqueued_total", "Jobs that were accepted.", METER_COUNTER},
    [QUEUE_STARTED] = {"weir_jobs_started_total", "Leases that were given.", METER_COUNTER},
    [QUEUE_DONE] = {FINISHED, "done"},
    [QUEUE_DIED] = {FINISHED, "dead"},
    [QUEUE_CANCELLED] = {FINISHED, "cancelled"},
    [QUEUE_EXPIRED] = {FINISHED, "expired"},
    [QUEUE_FAILED] = {"weir_jobs_failed_total", "Attempts that have failed.", METER_COUNTER},
    [QUEUE_LOST] = {"weir_jobs_lost_total", "Leases that ran out.", METER_COUNTER},
    [QUEUE_REJECTED] = {"weir_jobs_rejected_total", "Jobs that were refused: it was full.",
                        METER_COUNTER},
    [QUEUE_SCHEDULED_NOW] = {DEPTH, "scheduled"},
    [QUEUE_HELD_NOW] = {DEPTH, "held"},
    [QUEUE_READY_NOW] = {DEPTH, "ready"},
    [QUEUE_BLOCKED_NOW] = {DEPTH, "blocked"},
    [QUEUE_LEASED_NOW] = {DEPTH, "leased"},
    [QUEUE_DEAD_NOW] = {DEPTH, "dead"},
    [QUEUE_UNKNOWN] = {"weir_queue_unknown_kind", "Ready jobs of kinds that no worker asks for.",
                       METER_GAUGE},
    [QUEUE_OLDEST] = {"weir_queue_oldest_seconds", "How long the oldest ready job has waited.",
                      METER_GAUGE, 3},
    [QUEUE_LATENCY_TARGET] = {"weir_queue_latency_target_seconds",
                              "How long a job should wait at most.", METER_GAUGE, 3, true},
    [QUEUE_DEPTH_MAX] = {"weir_queue_depth_max", "So many jobs may wait.", METER_GAUGE},
};

static const struct meter_histogram queue_histograms[] = {
    [JOB_WAIT_HISTOGRAM] = {"weir_job_wait_seconds",
                            "From when a job could be begun until it was leased."},
};

const struct meter_kind store_queue_meter_kind = {
    .labels = {"queue"},
    .values = queue_values,
    .value_count = QUEUE_VALUES,
    .histograms = queue_histograms,
    .histogram_count = 1,
    .collect = collect_queue,
};

static bool has_meter(const struct store *store, struct engine_slice name)
{
    for (const struct queue_meter *at = store->meters; at; at = at->next)
        if (at->name_bytes == name.count && memcmp(at->name, name.at, name.count) == 0) return true;
    return false;
}

static struct queue_meter *queue_meter_new(struct store *store, struct engine_slice name)
{
    struct queue_meter *meter = mem_alloc(sizeof *meter + name.count + 1);

    if (!meter) return NULL;
    *meter = (struct queue_meter){.store = store, .name_bytes = name.count};
    memcpy(meter->name, name.at, name.count);
    meter->name[name.count] = '\0';
    return meter;
}

/* The next queue that has none yet, or NULL. */
static struct queue_meter *find_new(struct store *store, uint32_t *cursor)
{
    struct queue_meter *meter = NULL;
    struct engine_queue_info info;

    store_lock(store);
    while (!meter && engine_queue_next(store->engine, cursor, &info) == 1)
        if (!has_meter(store, info.spec.name)) meter = queue_meter_new(store, info.spec.name);
    store_unlock(store);
    return meter;
}

void store_meters_update(struct store *store)
{
    struct queue_meter *meter;
    uint32_t cursor = 0;

    while (store->meter_count < QUEUE_METERS_MAX && (meter = find_new(store, &cursor))) {
        meter_enter(&meter->metered, meter_get(&store_queue_meter_kind, meter->name, NULL));
        store_lock(store);
        meter->next = store->meters;
        store->meters = meter;
        store->meter_count++;
        store_unlock(store);
    }
}

void store_meters_leave(struct store *store)
{
    struct queue_meter *meter;

    while ((meter = store->meters)) {
        store->meters = meter->next;
        meter_leave(&meter->metered);
        mem_free(meter);
    }
    meter_leave(&store->metered);
}

/* ---- The store ---- */

enum {
    STORE_MEMORY,
    STORE_MEMORY_MAX,
    STORE_DISK,
    STORE_LIVE,
    STORE_APPENDED,
    STORE_COMPACTED,
    STORE_HELD_BACK,
    STORE_COMMITS,
    STORE_RECORDS,
    STORE_CLOCK_AHEAD,
    STORE_WAITING,
    STORE_STOPPED,
    STORE_WITHOUT_ROOM,
    STORE_VALUES,
};

static void collect_store(struct metered *object, uint64_t *values)
{
    struct store *store = container_of(object, struct store, metered);
    struct log_figures figures;

    store_lock(store);
    if (store->log && store->engine) {
        store_live_told(store);
        log_figures(store->log, &figures);
        values[STORE_MEMORY] = engine_memory_used(store->engine);
        values[STORE_MEMORY_MAX] = store->spec.memory_bytes_max;
        values[STORE_DISK] = (figures.segment_count + figures.spare_count) * figures.segment_bytes;
        values[STORE_LIVE] = figures.live_bytes > 0 ? (uint64_t)figures.live_bytes : 0;
        values[STORE_APPENDED] = store->appended_bytes;
        values[STORE_COMPACTED] = figures.compacted_bytes;
        values[STORE_HELD_BACK] = figures.held_back;
        values[STORE_COMMITS] = figures.commits;
        values[STORE_RECORDS] = store->records;
        values[STORE_CLOCK_AHEAD] = (uint64_t)(store->clock.ahead_ns / 1000000);
        values[STORE_WAITING] = store->leaser_count;
        values[STORE_STOPPED] = figures.error < 0;
        values[STORE_WITHOUT_ROOM] =
            figures.room_error < 0 || store_disk_is_used_up(store, &figures);
    }
    store_unlock(store);
}

static const struct meter_value store_values[STORE_VALUES] = {
    [STORE_MEMORY] = {"weir_store_memory_bytes", "Memory of the index.", METER_GAUGE},
    [STORE_MEMORY_MAX] = {"weir_store_memory_bytes_max", "From here on new work is refused.",
                          METER_GAUGE},
    [STORE_DISK] = {"weir_store_disk_bytes", "Segments and spares.", METER_GAUGE},
    [STORE_LIVE] = {"weir_store_live_bytes", "Of these are needed.", METER_GAUGE},
    [STORE_APPENDED] = {"weir_store_appended_bytes_total", "Records, copies included.",
                        METER_COUNTER},
    [STORE_COMPACTED] = {"weir_store_compacted_bytes_total", "Appended again by compaction.",
                         METER_COUNTER},
    [STORE_HELD_BACK] = {"weir_store_held_back_total",
                         "Waits of calls for compaction, which was behind.", METER_COUNTER},
    [STORE_COMMITS] = {"weir_store_commits_total", "Syncs of the log.", METER_COUNTER},
    [STORE_RECORDS] = {"weir_store_records_total", "Records that were appended.", METER_COUNTER},
    [STORE_CLOCK_AHEAD] = {"weir_store_clock_ahead_seconds", "Of the wall clock.", METER_GAUGE, 3},
    [STORE_WAITING] = {"weir_store_waiting", "Tasks that wait for a job.", METER_GAUGE},
    [STORE_STOPPED] = {"weir_store_stopped", "1: a write or sync has failed.", METER_GAUGE},
    [STORE_WITHOUT_ROOM] = {"weir_store_without_room", "1: the disk is full.", METER_GAUGE},
};

static const struct meter_histogram store_histograms[] = {
    [STORE_SYNC_HISTOGRAM] = {"weir_log_sync_seconds", "How long a sync of the log takes."},
};

const struct meter_kind store_meter_kind = {
    .labels = {"store"},
    .values = store_values,
    .value_count = STORE_VALUES,
    .histograms = store_histograms,
    .histogram_count = 1,
    .collect = collect_store,
};

/* ---- The map ---- */

static void store_row(struct store *store, struct boundary *ret)
{
    struct lock *lock = &store->object.stable.lock;
    bool shared = store->object.stable.shared;

    (void)snprintf(ret->name, sizeof ret->name, "%s", store->object.name);
    ret->lifetime = "until closed, or the scope ends";
    (void)snprintf(ret->bound, sizeof ret->bound, "%zu bytes of memory, %llu of disk",
                   store->spec.memory_bytes_max, (unsigned long long)store->spec.disk_bytes_max);
    if (store->spec.disk_bytes_max == 0)
        (void)snprintf(ret->bound, sizeof ret->bound, "%zu bytes of memory, and the disk",
                       store->spec.memory_bytes_max);
    ret->overflow = "new work is refused, existing work goes on";
    (void)snprintf(ret->failure, sizeof ret->failure, "a failed write or sync stops it");
    ret->meter = store->metered.meter;
    ret->wait_histogram = -1;
    ret->run_histogram = STORE_SYNC_HISTOGRAM;
    if (!boundary_hold(lock, shared)) return;
    if (store->log && store->engine) {
        struct log_figures figures;

        log_figures(store->log, &figures);
        boundary_figure(ret, "memory_bytes", engine_memory_used(store->engine));
        boundary_figure(ret, "live_bytes", (uint64_t)figures.live_bytes);
        boundary_figure(ret, "records", store->records);
        boundary_figure(ret, "commits", figures.commits);
        boundary_figure(ret, "waiting", store->leaser_count);
        boundary_figure(ret, "stopped", figures.error < 0);
    }
    boundary_let_go(lock, shared);
}

static bool find_queue(struct store *store, unsigned row, struct engine_queue_info *ret_info)
{
    uint32_t cursor = 0;

    for (unsigned i = 0; i <= row; i++)
        if (engine_queue_next(store->engine, &cursor, ret_info) != 1) return false;
    return true;
}

/* A queue is a boundary of its own. */
static bool queue_row(struct store *store, unsigned row, struct boundary *ret)
{
    struct lock *lock = &store->object.stable.lock;
    bool shared = store->object.stable.shared;
    struct engine_queue_info info;
    struct engine_figures figures;
    bool found;

    if (row >= MAP_QUEUES_MAX || !boundary_hold(lock, shared)) return false;
    found = store->engine && find_queue(store, row, &info);
    if (found) {
        ret->kind = "job queue";
        (void)snprintf(ret->name, sizeof ret->name, "%s/%.*s", store->object.name,
                       (int)info.spec.name.count, (const char *)info.spec.name.at);
        ret->lifetime = "as long as it has jobs or settings";
        boundary_bound(ret, info.depth_max, "jobs that wait");
        ret->overflow =
            boundary_overflow(info.spec.overflow == ENGINE_WAIT ? WEIR_WAIT : WEIR_REJECT);
        (void)snprintf(ret->failure, sizeof ret->failure,
                       "retry policy of each job, lease expiry, then dead letters");
        ret->latency_target_ms = info.spec.latency_target_ms;
        (void)engine_figures(store->engine, info.spec.name, &figures);
        boundary_figure(ret, "ready", figures.by_state[ENGINE_READY]);
        boundary_figure(ret, "scheduled", figures.by_state[ENGINE_SCHEDULED]);
        boundary_figure(ret, "blocked", figures.by_state[ENGINE_BLOCKED]);
        boundary_figure(ret, "leased", figures.by_state[ENGINE_LEASED]);
        boundary_figure(ret, "dead", figures.by_state[ENGINE_DEAD]);
        boundary_figure(ret, "enqueued", figures.enqueued);
        boundary_figure(ret, "done", figures.done);
        boundary_figure(ret, "rejected", figures.rejected);
        boundary_figure(ret, "lost", figures.lost);
    }
    boundary_let_go(lock, shared);
    return found;
}

bool store_boundary(struct belonging *belonging, unsigned row, struct boundary *ret_boundary)
{
    struct store *store = container_of(belonging, struct store, object.belonging);

    if (row > 0) return queue_row(store, row - 1, ret_boundary);
    store_row(store, ret_boundary);
    return true;
}

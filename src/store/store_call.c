/* store_call.c - how every call goes: enter, decide, append, serve, gate, leave. */
#include "store/store.h"

#include <assert.h>
#include <errno.h>

#include "base/planted.h"

int64_t store_now_ms(struct store *store)
{
    const struct kernel *kernel = store->object.stable.runtime->kernel;
    int64_t wall_ns = kernel->wall_ns(kernel), ms;

    if (store_clock_by_wall(&store->clock, wall_ns, worker_self()->now_ns, &ms)) return ms;
    return store_clock_ms(&store->clock, wall_ns, weir_now_ns());
}

enum weir_durability store_durability(const struct store *store, enum weir_durability asked)
{
    return asked == WEIR_DURABILITY_UNSET ? store->spec.durability : asked;
}

int store_refuse(struct store *store, int error)
{
    return refuse_as(error, "store '%s': %s", store->object.name, engine_why(store->engine));
}

int store_stopped(struct store *store, int error)
{
    struct log_why why;

    log_why(store->log, &why);
    if (!why.text[0]) return error;
    return refuse_as(error, "%s", why.text);
}

/* ---- In and out ---- */

/* The disk may be larger than what the spec allows. */
static int check_disk(struct store *store, enum log_use use)
{
    struct log_figures figures;

    if (use != LOG_FOR_NEW || store->spec.disk_bytes_max == 0) return 0;
    log_figures(store->log, &figures);
    if (!store_disk_is_used_up(store, &figures)) return 0;
    store_ring(store);
    return refuse_as(-ENOSPC, "store '%s': disk_bytes_max of %llu bytes is used up",
                     store->object.name, (unsigned long long)store->spec.disk_bytes_max);
}

/* A log may stop while nothing is to be synced (its META cannot be written): then who asks for room
 * is the first to see it, and those who wait are told by upkeep. */
static void tell_upkeep_if_stopped(struct store *store)
{
    struct log_figures figures;

    log_figures(store->log, &figures);
    if (figures.error < 0) store_ring(store);
}

/* The lock is held; it is let go of while there is no room, and at an error. */
static int find_room(struct store *store, const struct store_intent *intent) LOCK_UNCHECKED;
static int find_room(struct store *store, const struct store_intent *intent)
{
    size_t bytes = intent->bytes + ENGINE_COMMAND_BYTES_MAX;
    int r = 0;

    while (intent->use != LOG_USE_UNSET) {
        r = check_disk(store, intent->use);
        if (r == 0) r = log_room_now(store->log, bytes, intent->use);
        if (r != WEIR_EOVERLOAD) break;
        /* Who is held back waits for upkeep, which may be at rest. */
        if (log_compaction_is_due(store->log)) store_ring(store);
        store_unlock(store);
        r = log_room(store->log, bytes, intent->use);
        store_lock(store);
        if (r == 0 && store->state != STORE_OPEN) r = WEIR_ECLOSED;
        if (r < 0) break;
    }
    if (r == 0) return 0;
    tell_upkeep_if_stopped(store);
    store_unlock(store);
    if (r == -EMSGSIZE)
        return refuse_as(r, "store '%s': %s: more bytes than one record holds", store->object.name,
                         intent->call);
    return store_stopped(store, r);
}

int store_enter_again(struct store *store, const struct store_intent *intent)
{
    store_lock(store);
    if (store->state != STORE_OPEN) {
        store_unlock(store);
        return WEIR_ECLOSED;
    }
    if (store->stopped < 0) {
        store_unlock(store);
        return store_stopped(store, store->stopped);
    }
    return find_room(store, intent);
}

int store_enter(weir_store *handle, const struct store_intent *intent, struct store **ret_store)
{
    struct store *store = store_look_up(handle, intent->call);
    struct task *self = task_self();
    int r;

    if (!self) return refuse_no_task(intent->call);
    if (worker_self()->runtime != store->object.stable.runtime)
        return refuse("store '%s': %s: the calling task is of another runtime", store->object.name,
                      intent->call);
    r = task_enter(self, intent->entry == ENTER_PLAIN ? ENTER_IO : intent->entry);
    if (r < 0) return r;
    store_lock(store);
    if (!flow_names(handle, HANDLE_STORE, store) || store->state != STORE_OPEN) {
        store_unlock(store);
        return WEIR_ECLOSED;
    }
    store->users++;
    if (store->stopped < 0) {
        store_unlock(store);
        r = store_stopped(store, store->stopped);
    } else {
        r = find_room(store, intent);
    }
    if (r < 0) {
        store_exit(store);
        return r;
    }
    *ret_store = store;
    return 0;
}

void store_exit(struct store *store)
{
    store_lock(store);
    assert(store->users > 0);
    if (--store->users == 0) waiter_wake_all(&store->closer, 0);
    store_unlock(store);
}

static const enum log_durability wanted[] = {
    [WEIR_MEMORY] = LOG_MEMORY, [WEIR_WRITTEN] = LOG_WRITTEN, [WEIR_SYNCED] = LOG_SYNCED};

void store_ask(struct store *store, uint64_t seen, enum weir_durability durability)
{
    log_ask(store->log, seen, wanted[durability]);
}

int store_gate(struct store *store, uint64_t seen, enum weir_durability durability)
{
    int r;

    if (PLANTED(STORE_REPLY_UNGATED)) return 0;
    r = log_wait(store->log, seen, wanted[durability]);
    return r < 0 && r > WEIR_ECANCELED ? store_stopped(store, r) : r;
}

/* Whether an error tells of something that was decided: it, too, may not be taken back. */
static bool tells_of_state(int error)
{
    return error == -ENOENT || error == -ESTALE || error == -EBUSY || error == -EEXIST;
}

int store_leave(struct store *store, enum weir_durability durability, int r)
{
    uint64_t seen = store->end;

    store_unlock(store);
    if (r >= 0 || tells_of_state(r)) {
        int gate = store_gate(store, seen, store_durability(store, durability));
        if (gate < 0) r = gate;
    }
    store_exit(store);
    return r;
}

/* ---- What was decided ---- */

void store_live_told(struct store *store)
{
    if (store->live_count > 0) log_live(store->log, store->live, store->live_count);
    store->live_count = 0;
}

void store_live(struct store *store, uint64_t position, int64_t bytes)
{
    if (store->live_count == STORE_LIVE_MAX) store_live_told(store);
    store->live[store->live_count++] = (struct log_live){position, bytes};
}

uint64_t store_append(struct store *store, enum log_use use, uint16_t tag, const void *bytes,
                      size_t count)
{
    struct iovec part = {(void *)(uintptr_t)bytes, count};
    struct log_options options = {.use = use,
                                  .tag = tag,
                                  .room_is_kept = true,
                                  .live = store->live,
                                  .live_count = store->live_count};
    struct log_place place;
    int r = log_append_now(store->log, &part, 1, &options, &place);

    store->live_count = 0;
    assert(r != WEIR_EOVERLOAD && r != -EMSGSIZE);
    /* The log has stopped. Nobody is told of what was decided, since nobody passes the gate: also
     * not if all that was appended before is on disk. */
    if (r < 0) place = (struct log_place){.position = 0, .end = STORE_END_LOST};
    if (tag == STORE_TAG_ENGINE) engine_logged(store->engine, place.position);
    store->end = place.end;
    if (r < 0) {
        store->stopped = r;
        store_ring(store);
        return 0;
    }
    store->records++;
    store->appended_bytes += log_frame_size(count);
    if (use == LOG_FOR_COMPACTION) store->copied_bytes += log_frame_size(count);
    if (store->unsynced_ns == 0) {
        store->unsynced_ns = weir_now_ns();
        store_ring(store);
    }
    if (store->end - store->looked_end >= store->segment_bytes) {
        store->looked_end = store->end;
        store_ring(store); /* there may be something to let go of */
    }
    return place.position;
}

static void append_decided(struct store *store, enum log_use use)
{
    const void *bytes;
    size_t count;

    engine_record(store->engine, &bytes, &count);
    if (count > 0) store_append(store, use, STORE_TAG_ENGINE, bytes, count);
}

void store_ring(struct store *store)
{
    store->rung = true;
    waiter_wake_all(&store->upkeeper, 0);
}

void store_commit(struct store *store, enum log_use use)
{
    append_decided(store, use);
    store_serve(store);
    if (store->planned_ms == INT64_MIN) return; /* upkeep is awake */
    if (engine_next_ms(store->engine) < store->planned_ms ||
        store->clock.now_ns / 1000000 >= store->planned_ms)
        store_ring(store);
}

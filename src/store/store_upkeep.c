/* store_upkeep.c - the store's own task: time passes, what nobody waits for is synced, old segments
 * are let go; and how the store ends. */
#include <assert.h>
#include <errno.h>

#include "base/planted.h"
#include "rt/mem.h"
#include "store/store.h"

enum {
    LOOKS_EACH_SEGMENT = 4,     /* while it is filled, whether compaction is due */
    REST_MS_WITHOUT_ROOM = 200, /* the disk is full: look again */
    COMPACT_AGAIN_MS = 1000,    /* it has failed, or made nothing smaller */
    REST_MS_MAX = 60000,        /* if anything is to come at all */
    NAMES_RECORD_BYTES_MAX = 32 * 1024 + WEIR_STORE_PAYLOAD_BYTES_MAX,
};
#define FOR_EVER_MS INT64_MAX

/* Of a record of one's own making: with small buffers there is less of everything. */
static size_t bytes_at_most(const struct store *store, size_t bytes)
{
    size_t room = store->record_bytes_max - ENGINE_COMMAND_BYTES_MAX;

    return bytes < room ? bytes : room;
}

/* ---- Time ---- */

/* Whether there is something to do for the engine now. */
static bool is_due(struct store *store)
{
    bool due;

    store_lock(store);
    due = store->serve_again || engine_next_ms(store->engine) <= store_now_ms(store);
    store_unlock(store);
    return due;
}

/* All that is due by now. */
static int let_time_pass(struct store *store)
{
    const struct store_intent intent = {
        .call = "upkeep",
        .use = LOG_FOR_EXISTING,
        .bytes = bytes_at_most(store, STORE_TICK_BYTES + WEIR_STORE_PAYLOAD_BYTES_MAX),
    };
    int r = 0;

    while (r == 0 && is_due(store)) {
        r = store_enter_again(store, &intent);
        if (r < 0) return r;
        r = engine_tick(store->engine, store_now_ms(store), STORE_TICK_BYTES);
        store_commit(store, LOG_FOR_EXISTING);
        if (store->serve_again) store_serve_all(store);
        store_unlock_entered(store);
        if (r >= 0) r = weir_yield();
    }
    return r;
}

/* ---- Letting go of old segments ---- */

/* All names again, behind all that was decided before. */
static int log_names(struct store *store)
{
    const struct store_intent intent = {
        .call = "compaction",
        .use = LOG_FOR_COMPACTION,
        .bytes = bytes_at_most(store, NAMES_RECORD_BYTES_MAX),
    };
    struct engine_names_cursor cursor = {0};
    uint64_t first = 0;
    int64_t total = 0;
    int more = 1;

    while (more == 1) {
        const void *bytes;
        size_t count;
        uint16_t tag;
        uint64_t position;
        int r = store_enter_again(store, &intent);

        if (r < 0) return r;
        more = engine_names(store->engine, &cursor, STORE_NAMES_BYTES, &bytes, &count);
        if (more < 0) {
            store_unlock_entered(store);
            return more;
        }
        tag = first == 0 ? (more ? STORE_TAG_NAMES : STORE_TAG_NAMES_ALL)
                         : (more ? STORE_TAG_NAMES_MORE : STORE_TAG_NAMES_LAST);
        position = store_append(store, LOG_FOR_COMPACTION, tag, bytes, count);
        if (first == 0) first = position;
        total += (int64_t)count;
        store_unlock_entered(store);
    }
    store_lock(store);
    store_live(store, store->names_position, -store->names_bytes);
    store->names_position = first;
    store->names_bytes = total;
    store_live(store, first, total);
    store_unlock(store);
    return 0;
}

/* What a job needs, wherever it is. */
struct moved {
    struct engine_slice payload, trace, result;
    struct store_bytes elsewhere; /* the record with what was not at hand */
};

static int gather(struct store *store, const struct engine_needed *needed,
                  const struct log_record *record, struct moved *moved)
{
    bool result_here = needed->result_position == record->position;
    struct engine_found found = {0};
    int r;

    *moved = (struct moved){.payload = needed->payload, .trace = needed->trace};
    if (result_here && needed->result_bytes > 0) {
        r = engine_record_find(record->data, record->bytes, needed->id, &found);
        if (r < 0) return r;
        moved->result = found.result;
    }
    if (needed->payload.at && (result_here || needed->result_bytes == 0)) return 0;
    r = store_read_record(store,
                          needed->payload.at ? needed->result_position : needed->payload_position,
                          4096, &moved->elsewhere);
    if (r < 0) return r;
    r = engine_record_find(moved->elsewhere.memory, moved->elsewhere.count, needed->id, &found);
    if (r < 0) return r;
    if (needed->payload.at) {
        moved->result = found.result;
    } else {
        moved->payload = found.payload;
        moved->trace = found.trace;
    }
    return 0;
}

/* Whether its bytes are others since it was looked at, be they as many: an edit of a dead letter,
 * or a result. Those are on their own record, and to log the old ones again would undo them. The
 * lock is held. */
static bool has_changed(struct store *store, const struct engine_needed *needed)
{
    struct engine_job job;

    if (engine_job_get(store->engine, needed->id, &job) < 0) return true;
    if (job.position != needed->payload_position) return true;
    return job.result_bytes != needed->result_bytes ||
           (job.result_bytes > 0 && job.result_position != needed->result_position);
}

static int move_job(struct store *store, const struct engine_needed *needed,
                    const struct log_record *record)
{
    struct store_intent intent = {.call = "compaction", .use = LOG_FOR_COMPACTION};
    struct moved moved;
    int r = gather(store, needed, record, &moved);

    if (r == 0) {
        intent.bytes = moved.payload.count + moved.trace.count + moved.result.count;
        r = store_enter_again(store, &intent);
        if (r == 0) {
            r = has_changed(store, needed)
                    ? -EINVAL
                    : engine_relog(store->engine, store_now_ms(store), needed->id, moved.payload,
                                   moved.trace, moved.result);
            if (r == 0) store_commit(store, LOG_FOR_COMPACTION);
            if (r < 0 && r != -ENOENT && r != -EINVAL) (void)store_refuse(store, r);
            store_unlock_entered(store);
            /* It has gone or changed meanwhile: whoever looks again finds what it needs. */
            if (r == -ENOENT || r == -EINVAL) r = 1;
        }
    } else if (r == -ENOENT) {
        r = 1; /* moved or forgotten meanwhile */
    }
    mem_free(moved.elsewhere.memory);
    return r;
}

/* For the log: what is still needed of a record of the oldest segment. */
static int move(void *arg, const struct log_record *record)
{
    struct store *store = arg;
    struct engine_needed_cursor cursor = {0};
    uint64_t tried = 0;
    int tries = 0;
    int r;

    if (record->tag != STORE_TAG_ENGINE) return 0; /* names are behind it already */
    for (;;) {
        struct engine_needed_cursor before = cursor;
        struct engine_needed needed;

        store_lock(store);
        r = engine_record_needed(store->engine, record->data, record->bytes, record->position,
                                 &cursor, &needed);
        store_unlock(store);
        if (r <= 0) break;
        r = move_job(store, &needed, record);
        if (r < 0) return r;
        if (PLANTED(STORE_MOVES_ONE)) return 0;
        tries = r == 1 && needed.id == tried ? tries + 1 : 0;
        tried = needed.id;
        /* It is never passed by: its segment is let go of after this. */
        if (tries == STORE_READ_TRIES)
            return refuse_as(-EAGAIN, "job %llu changes whenever it is moved",
                             (unsigned long long)needed.id);
        if (r == 1) cursor = before;
        if (is_due(store)) r = let_time_pass(store);
        if (r == WEIR_ECANCELED) return r;
    }
    return r;
}

/* More is used than is worth it, or there is no room and something to be had. */
static bool compaction_is_due(struct store *store)
{
    struct log_figures figures;
    uint64_t used;

    store_lock(store);
    store_live_told(store);
    store_unlock(store);
    if (log_compaction_is_due(store->log)) return true;
    log_figures(store->log, &figures);
    used = figures.segment_count * figures.segment_bytes;
    if (used <
        (uint64_t)(figures.live_bytes > 0 ? figures.live_bytes : 0) + 3 * figures.segment_bytes)
        return false;
    if (figures.room_error < 0) return true;
    return store->spec.disk_bytes_max > 0 &&
           used + figures.spare_count * figures.segment_bytes > store->spec.disk_bytes_max;
}

/* Whether a whole round over the log has not made it smaller, though nobody else has filled it:
 * then what is lost at the ends of segments is more than what there is to be had, and to copy on
 * would be for ever. It stays so for a while, or until others have filled half a segment. */
static bool is_in_vain(struct store *store, int64_t now_ns)
{
    struct log_figures figures;
    bool was_in_vain = store->in_vain_until_ns > 0, in_vain, little_work;
    uint64_t work, count;

    log_figures(store->log, &figures);
    if (!was_in_vain && store->round_end > 0 && figures.first <= store->round_end) return false;
    store_lock(store);
    work = store->appended_bytes - store->copied_bytes;
    store_unlock(store);
    count = figures.segment_count - figures.leaving_count;
    little_work = work - store->round_work < figures.segment_bytes / 2;
    if (was_in_vain && little_work && now_ns < store->in_vain_until_ns) return true;
    in_vain = !was_in_vain && store->round_end > 0 && count >= store->round_segments && little_work;
    store->in_vain_until_ns = in_vain ? time_after_ms(now_ns, COMPACT_AGAIN_MS) : 0;
    store->round_work = work;
    store->round_end = figures.end;
    store->round_segments = count;
    return in_vain;
}

static int compact(struct store *store)
{
    const struct log_mover mover = {.move = move, .arg = store};
    uint64_t oldest_end = log_oldest_end(store->log);
    int r = 0;

    if (oldest_end == 0) return 0;
    if (store->names_position < oldest_end && !PLANTED(STORE_NAMES_DROPPED)) r = log_names(store);
    return r < 0 ? r : log_compact(store->log, &mover);
}

/* ---- Rest ---- */

static bool rest_abort(struct task *task, void *object)
{
    struct waiter *waiter = object;
    struct store *store = container_of(waiter->object, struct store, object);
    bool leaves;

    (void)task;
    store_lock(store);
    leaves = !list_empty(&waiter->node);
    if (leaves) list_remove(&waiter->node);
    store_unlock(store);
    return leaves;
}

static const struct wait_kind wait_rest = {
    .name = "upkeep",
    .abort = rest_abort,
    .describe = waiter_describe,
    .what = WAIT_FOR_WORK,
    .ends = ENDS_OUTSIDE,
};

static const struct wait_kind wait_users = {
    .name = "calls to end",
    .describe = waiter_describe,
    .what = WAIT_FOR_ANSWER,
    .ends = ENDS_OUTSIDE,
};

/* Until it is rung, or something is due; not longer than `ms_max`. `stuck`: what is due cannot be
 * done now, so only that time counts. */
static int rest(struct store *store, struct task *self, int64_t ms_max, bool stuck)
{
    struct waiter waiter = {.task = self, .object = &store->object};
    int64_t now_ms, next_ms;
    int r = 0;

    store_lock(store);
    now_ms = store_now_ms(store);
    next_ms = stuck ? FOR_EVER_MS : engine_next_ms(store->engine);
    if (ms_max != FOR_EVER_MS && next_ms > now_ms + ms_max) next_ms = now_ms + ms_max;
    /* The wall clock may be set forward meanwhile. */
    if (next_ms != FOR_EVER_MS && next_ms > now_ms + REST_MS_MAX) next_ms = now_ms + REST_MS_MAX;
    if (store->rung || store->state != STORE_OPEN || next_ms <= now_ms) {
        store->rung = false;
        store_unlock(store);
        return 0;
    }
    store->planned_ms = next_ms;
    /* Who appends so much rings. */
    store->looked_end =
        store->end - store->segment_bytes + store->segment_bytes / LOOKS_EACH_SEGMENT;
    list_add_tail(&store->upkeeper, &waiter.node);
    store_unlock(store);
    if (next_ms == FOR_EVER_MS) {
        r = task_park(self, &wait_rest, &waiter);
    } else {
        WEIR_DEADLINE(next_ms - now_ms) { r = task_park(self, &wait_rest, &waiter); }
    }
    store_lock(store);
    store->rung = false;
    store->planned_ms = INT64_MIN; /* awake: nobody need ring */
    store_unlock(store);
    return r == WEIR_ETIMEDOUT ? 0 : r;
}

/* ---- The task ---- */

static bool is_open(struct store *store)
{
    bool open;

    store_lock(store);
    open = store->state == STORE_OPEN;
    store_unlock(store);
    return open;
}

/* What was appended at least WEIR_STORE_SYNC_MS ago, or is by now, is put on disk. Returns after
 * how long to look again. */
static int sync_in_time(struct store *store, int64_t *ret_ms)
{
    int64_t now_ns = weir_now_ns();
    uint64_t end;
    bool due;

    *ret_ms = FOR_EVER_MS;
    store_lock(store);
    if (store->unsynced_ns == 0) {
        store_unlock(store);
        return 0;
    }
    due = now_ns - store->unsynced_ns >= WEIR_STORE_SYNC_MS * INT64_C(1000000);
    if (!due)
        *ret_ms = WEIR_STORE_SYNC_MS - (now_ns - store->unsynced_ns) / 1000000;
    else
        store->unsynced_ns = 0;
    end = store->end;
    store_unlock(store);
    return due ? log_wait(store->log, end, LOG_SYNCED) : 0;
}

/* The log has stopped: all who wait are told, and nothing is left to do but to end. */
static int stop(struct store *store, struct task *self)
{
    struct log_figures figures;
    struct log_why why;
    int r = 0;

    log_figures(store->log, &figures);
    if (figures.error == 0) return 0;
    log_why(store->log, &why);
    log_write(store->object.stable.runtime, WEIR_LOG_ERROR, self,
              "store '%s' has stopped, and acknowledges nothing any more: %s", store->object.name,
              why.text);
    store_lock(store);
    store_wake_all(store, figures.error);
    store->stopped = figures.error;
    store_unlock(store);
    while (r == 0) {
        struct waiter waiter = {.task = self, .object = &store->object};
        bool open;

        store_lock(store);
        open = store->state == STORE_OPEN;
        if (open) list_add_tail(&store->upkeeper, &waiter.node);
        store_unlock(store);
        if (!open) return 1;
        r = task_park(self, &wait_rest, &waiter);
    }
    return r;
}

/* One step of compaction, if it is due: 1, and there may be more; 0; or an error. Sets when to look
 * again, if that is not by itself. */
static int compact_if_due(struct store *store, struct task *self, int64_t *ms)
{
    int64_t now_ns = weir_now_ns();
    int64_t after_ns;
    int r;

    if (!compaction_is_due(store)) {
        store->round_end = 0;
        store->in_vain_until_ns = 0;
        log_hold_back(store->log, LOG_HOLDS_WHILE_LET_GO);
        return 0;
    }
    store_lock(store);
    after_ns = store->compact_after_ns;
    store_unlock(store);
    if (now_ns >= after_ns && !is_in_vain(store, now_ns)) {
        log_hold_back(store->log, LOG_HOLDS_WHILE_COMPACTED);
        r = compact(store);
        if (r == 0) log_hold_back(store->log, LOG_HOLDS_WHILE_LET_GO); /* all is trimmed */
        if (r >= 0 || r == WEIR_ECANCELED) return r;
        if (r == WEIR_ECLOSED) return 1;
        log_write(store->object.stable.runtime, WEIR_LOG_WARNING, self,
                  "store '%s': compaction: %s (%s)", store->object.name, weir_strerror(r),
                  weir_why());
    }
    log_hold_back(store->log, LOG_HOLDS_NOBODY); /* nobody waits for what does not get on */
    store_lock(store);
    if (now_ns >= store->compact_after_ns && store->in_vain_until_ns == 0)
        store->compact_after_ns = time_after_ms(now_ns, COMPACT_AGAIN_MS);
    store_unlock(store);
    if (*ms > COMPACT_AGAIN_MS) *ms = COMPACT_AGAIN_MS;
    return 0;
}

static int look_after(struct store *store, struct task *self)
{
    int64_t ms;
    int r = let_time_pass(store);
    bool stuck = r < 0; /* no room, or no memory: what is due waits */

    if (r == WEIR_ECANCELED) return r;
    r = sync_in_time(store, &ms);
    if (r == WEIR_ECANCELED) return r;
    r = stop(store, self);
    if (r != 0) return r;
    store_meters_update(store);
    r = compact_if_due(store, self, &ms);
    if (r != 0) return r < 0 ? r : 0;
    if (stuck && ms > REST_MS_WITHOUT_ROOM) ms = REST_MS_WITHOUT_ROOM;
    return rest(store, self, ms, stuck);
}

void store_shut_locked(struct store *store)
{
    if (store->state != STORE_OPEN) return;
    store->state = STORE_CLOSING;
    store_wake_all(store, WEIR_ECLOSED);
    log_hold_back(store->log, LOG_HOLDS_NOBODY);
    /* That nothing was lost is the last that is written. */
    if (log_room_now(store->log, 0, LOG_FOR_EXISTING) == 0)
        (void)store_append(store, LOG_FOR_EXISTING, STORE_TAG_CLOSED, NULL, 0);
    log_shut(store->log);
    store_ring(store);
}

void store_shut(struct store *store)
{
    store_lock(store);
    store_shut_locked(store);
    store_unlock(store);
}

/* Who is inside goes first. Not cut short. */
static int close_log(struct store *store, struct task *self)
{
    struct waiter waiter = {.task = self, .object = &store->object};
    struct log *log;

    store_lock(store);
    while (store->users > 0) {
        list_add_tail(&store->closer, &waiter.node);
        store_unlock(store);
        (void)task_park(self, &wait_users, &waiter);
        store_lock(store);
    }
    log = store->log;
    store->log = NULL;
    store_unlock(store);
    return log_close(log);
}

/* True: the program has given it up, so its memory goes now. */
static bool end(struct store *store, int result)
{
    struct engine *engine = store->engine;
    bool given_up;

    store_meters_leave(store);
    store_lock(store); /* the map may be drawn on another thread, with its queues */
    store->engine = NULL;
    store_unlock(store);
    engine_close(engine);
    store_lock(store);
    store->state = STORE_ENDED;
    store->result = result;
    given_up = store->given_up;
    if (given_up) store_drop_handle(store);
    waiter_tell_all(&store->finishers, result);
    store_unlock(store);
    return given_up;
}

int store_upkeep_main(void *arg)
{
    struct store *store = *(struct store **)arg;
    struct belonging *belonging = &store->object.belonging;
    weir_scope *scope = belonging->scope;
    struct task *self = task_self();
    int r = 0;

    if (store->state == STORE_ENDED) return store->result; /* its scope supervises, in vain */
    scope_attend(belonging);
    WEIR_NO_DEADLINE("the upkeep of a store") {
        while (r == 0 && is_open(store)) r = look_after(store, self);
    }
    store_shut(store);
    r = close_log(store, self);
    scope_attend_end(belonging);
    if (end(store, r)) {
        scope_lock(scope);
        belonging_mail(belonging, BELONGING_RELEASE);
        scope_unlock(scope);
        return 0; /* who closed it has the error */
    }
    return r;
}

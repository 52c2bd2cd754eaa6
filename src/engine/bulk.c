/* bulk.c - work on many jobs: a frozen set of ids, worked off in chunks by ticks. Each job's own
 * decision and how far the set is are one record, so a restart goes on with the next one. A set
 * that is done needs its ids no more: it is a line that tells how it went, and the last
 * ENGINE_BULKS_DONE_MAX of these are kept. */
#include <errno.h>

#include "engine/state.h"

/* ---- Rows ---- */

static size_t bulk_bytes(uint32_t count)
{
    return sizeof(struct bulk) + count * sizeof(uint64_t);
}

static struct bulk **bulk_find(struct engine *engine, uint64_t id)
{
    struct bulk **at = &engine->bulks;
    while (*at && (*at)->id > id) at = &(*at)->below;
    return at;
}

static bool bulk_is(const struct bulk *bulk, uint64_t id)
{
    return bulk && bulk->id == id;
}

/* Said of rows and of operations alike, so that a row is the same by whichever it came. */
static bool is_done(uint32_t next, uint32_t count)
{
    return next >= count;
}

void apply_bulk_drop(struct engine *engine, uint64_t id)
{
    struct bulk **at = bulk_find(engine, id);
    struct bulk *bulk = *at;

    if (!bulk_is(bulk, id)) return;
    *at = bulk->below;
    memory_resize(&engine->memory, bulk, bulk_bytes(bulk->kept), 0);
}

int apply_bulk(struct engine *engine, const struct op_bulk *op)
{
    uint32_t kept = is_done(op->next, op->count) ? 0 : op->count;
    struct bulk *bulk = memory_resize(&engine->memory, NULL, 0, bulk_bytes(kept));
    struct reader reader = {.at = op->ids.at};
    struct bulk **at;
    uint64_t id = 0;

    if (!bulk) return -ENOMEM;
    reader.end = reader.at + op->ids.count;
    apply_bulk_drop(engine, op->id);
    at = bulk_find(engine, op->id);
    *bulk = (struct bulk){.below = *at,
                          .id = op->id,
                          .action = op->action,
                          .next = op->next,
                          .failed = op->failed,
                          .count = op->count,
                          .kept = kept};
    for (uint32_t i = 0; i < kept; i++) {
        id += get_number(&reader, UINT64_MAX);
        bulk->ids[i] = id;
    }
    *at = bulk;
    return 0;
}

void apply_bulk_at(struct engine *engine, const struct op_bulk *op)
{
    struct bulk **at = bulk_find(engine, op->id);
    struct bulk *bulk = *at, *line;

    if (!bulk_is(bulk, op->id)) return;
    if (bulk->kept == 0) return; /* it is done: what is said of it was before that */
    bulk->next = op->next < bulk->count ? op->next : bulk->count;
    bulk->failed = op->failed;
    if (!is_done(bulk->next, bulk->count)) return;
    line = memory_resize(&engine->memory, bulk, bulk_bytes(bulk->kept), bulk_bytes(0));
    if (!line) return; /* then it stays as large as it is */
    line->kept = 0;
    *at = line;
}

void bulks_deinit(struct engine *engine)
{
    while (engine->bulks) apply_bulk_drop(engine, engine->bulks->id);
}

/* As many as ENGINE_BULK_BYTES_MAX allows: how many. Of one that is done the ids are zeros. */
static uint32_t put_ids(struct writer *writer, const struct bulk *bulk)
{
    uint32_t count = bulk->count;
    bool done = is_done(bulk->next, count);
    uint64_t before = 0;
    for (uint32_t i = 0; i < count; i++) {
        size_t end = writer->count;
        put_number(writer, done ? 0 : bulk->ids[i] - before);
        before = done ? 0 : bulk->ids[i];
        if (writer->count <= ENGINE_BULK_BYTES_MAX) continue;
        writer->count = end;
        return i;
    }
    return count;
}

/* The row as an operation, its ids written into `ids`, which the caller frees. */
static int bulk_says(struct engine *engine, const struct bulk *bulk, struct writer *ids,
                     struct op *ret_op)
{
    int r = writer_reserve(engine, ids, (size_t)bulk->count * 10 + 10);
    uint32_t count;

    if (r < 0) return r;
    count = put_ids(ids, bulk);
    *ret_op = (struct op){.type = OP_BULK};
    ret_op->bulk = (struct op_bulk){.id = bulk->id,
                                    .action = bulk->action,
                                    .next = bulk->next,
                                    .failed = bulk->failed,
                                    .count = count,
                                    .ids = {ids->bytes, ids->count}};
    return 0;
}

static void writer_free(struct engine *engine, struct writer *writer)
{
    if (writer->bytes) memory_resize(&engine->memory, writer->bytes, writer->room, 0);
}

int64_t bulk_write_next(struct engine *engine, struct writer *writer, uint64_t after)
{
    const struct bulk *next = NULL;
    struct writer ids = {0};
    struct op op;
    int r;

    for (const struct bulk *bulk = engine->bulks; bulk && bulk->id > after; bulk = bulk->below) {
        next = bulk;
    }
    if (!next) return 0;
    r = bulk_says(engine, next, &ids, &op);
    if (r == 0) r = writer_reserve(engine, writer, op_bytes_max(&op) + 10);
    if (r == 0) op_write(writer, &op);
    writer_free(engine, &ids);
    return r < 0 ? r : (int64_t)next->id;
}

/* ---- Filters ---- */

static bool equal(struct engine_slice a, struct engine_slice b)
{
    return a.count == b.count && (a.count == 0 || memcmp(a.at, b.at, a.count) == 0);
}

static bool begins(struct engine_slice text, struct engine_slice with)
{
    return text.count >= with.count && memcmp(text.at, with.at, with.count) == 0;
}

static bool matches(struct engine_slice text, struct engine_slice wanted, bool prefix)
{
    return prefix ? begins(text, wanted) : equal(text, wanted);
}

static bool parts_tags(char c)
{
    return c == ' ' || c == ',';
}

static bool has_tag(struct engine_slice tags, struct engine_slice wanted)
{
    const char *at = tags.at;
    size_t begin = 0;

    if (tags.count == 0) return false;
    for (size_t i = 0; i <= tags.count; i++) {
        if (i < tags.count && !parts_tags(at[i])) continue;
        if (equal((struct engine_slice){at + begin, i - begin}, wanted)) return true;
        begin = i + 1;
    }
    return false;
}

static bool has_key(const struct engine *engine, const struct job *job, struct engine_slice wanted)
{
    if (equal(job_unique_key(job), wanted) || equal(job_idempotency_key(job), wanted)) return true;
    if (job->fair && equal(atom_text(&key_at(engine, job->fair)->atom), wanted)) return true;
    if (job_chain(job) && equal(atom_text(&chain_at(engine, job_chain(job))->atom), wanted)) {
        return true;
    }
    for (uint32_t i = 0; i < job_limit_count(job); i++) {
        if (equal(atom_text(&key_at(engine, job_limit(job, i))->atom), wanted)) return true;
    }
    return false;
}

/* What the row itself says. */
static bool row_passes(const struct engine_filter *filter, const struct job *job)
{
    if (filter->id && job->id != filter->id) return false;
    if (filter->created_from_ms && job->created_ms < filter->created_from_ms) return false;
    if (filter->created_before_ms && job->created_ms >= filter->created_before_ms) return false;
    if (job->priority < filter->priority_min) return false;
    if (filter->priority_below && job->priority >= filter->priority_below) return false;
    if (job->attempts < filter->attempts_min) return false;
    if (filter->attempts_below && job->attempts >= filter->attempts_below) return false;
    return !filter->batch || job_batch(job) == filter->batch;
}

/* Which queue it names, 0 for all; false: one that is not there. */
static bool find_queue(const struct engine *engine, const struct engine_filter *filter,
                       uint32_t *ret_queue)
{
    *ret_queue = 0;
    if (filter->queue.count == 0 || filter->queue_prefix) return true;
    *ret_queue = atom_find(engine, ATOM_QUEUE, 0, 0, filter->queue);
    return *ret_queue != 0;
}

static bool passes(const struct engine *engine, const struct engine_filter *filter, uint32_t queue,
                   const struct job *job)
{
    const struct stage *stage;
    struct engine_error errors[ENGINE_ERRORS_KEPT] WEIR_UNINITIALIZED_;
    int count;

    if (!(filter->states & ENGINE_STATE_BIT(job->state)) || job->state == ENGINE_NO_JOB) {
        return false;
    }
    stage = stage_at(engine, job->stage);
    if (queue && stage->atom.scope != queue) return false;
    if (filter->queue_prefix &&
        !begins(atom_text(&queue_at(engine, stage->atom.scope)->atom), filter->queue)) {
        return false;
    }
    if (filter->kind.count &&
        !matches(atom_text(&stage->atom), filter->kind, filter->kind_prefix)) {
        return false;
    }
    if (!row_passes(filter, job)) return false;
    if (filter->tag.count && !has_tag(job_tags(job), filter->tag)) return false;
    if (filter->key.count && !has_key(engine, job, filter->key)) return false;
    if (filter->tags.count && !equal(filter->tags, job_tags(job))) return false;
    if (filter->error_class.count == 0) return true;
    count = engine_job_errors(engine, job->id, errors);
    return count > 0 && equal(filter->error_class, errors[count - 1].class);
}

int64_t engine_filter_count(const struct engine *engine, const struct engine_filter *filter)
{
    int64_t count = 0;
    uint32_t queue;

    if (!find_queue(engine, filter, &queue)) return 0;
    for (uint32_t at = 1; at <= engine->jobs.last; at++) {
        count += passes(engine, filter, queue, job_at(engine, at));
    }
    return count;
}

int engine_list(const struct engine *engine, const struct engine_filter *filter, uint32_t *cursor,
                uint32_t scan_max, uint64_t *ret_ids, int ids_max, uint32_t *ret_scanned)
{
    uint32_t at = *cursor;
    uint32_t scanned = 0;
    uint32_t queue;
    int count = 0;

    if (scan_max == 0 || ids_max <= 0 || filter->states == 0) return -EINVAL;
    if (!find_queue(engine, filter, &queue)) at = engine->jobs.last;
    while (scanned < scan_max && count < ids_max && at < engine->jobs.last) {
        const struct job *job = job_at(engine, ++at);
        scanned++;
        if (passes(engine, filter, queue, job)) ret_ids[count++] = job->id;
    }
    *cursor = at < engine->jobs.last ? at : 0;
    *ret_scanned = scanned;
    return count;
}

/* Up to `count` ids that pass, the lowest, as a heap with the highest on top; then sorted. */
static void sift_down(uint64_t *ids, uint32_t at, uint32_t count)
{
    for (uint32_t child = 2 * at + 1; child < count; at = child, child = 2 * at + 1) {
        uint64_t swapped = ids[at];
        if (child + 1 < count && ids[child + 1] > ids[child]) child++;
        if (swapped >= ids[child]) return;
        ids[at] = ids[child];
        ids[child] = swapped;
    }
}

static void sort_ids(uint64_t *ids, uint32_t count)
{
    for (uint32_t left = count; left > 1; left--) {
        uint64_t last = ids[left - 1];
        ids[left - 1] = ids[0];
        ids[0] = last;
        sift_down(ids, 0, left - 1);
    }
}

static void find_ids(const struct engine *engine, const struct engine_filter *filter,
                     struct bulk *bulk, uint32_t room)
{
    uint32_t queue;

    if (!find_queue(engine, filter, &queue)) return;
    for (uint32_t at = 1; at <= engine->jobs.last; at++) {
        const struct job *job = job_at(engine, at);
        if (!passes(engine, filter, queue, job)) continue;
        if (bulk->count < room) {
            bulk->ids[bulk->count++] = job->id;
            if (bulk->count < room) continue;
            for (uint32_t i = room / 2; i > 0; i--) sift_down(bulk->ids, i - 1, room);
        } else if (job->id < bulk->ids[0]) {
            bulk->ids[0] = job->id;
            sift_down(bulk->ids, 0, room);
        }
    }
    for (uint32_t i = bulk->count / 2; i > 0; i--) sift_down(bulk->ids, i - 1, bulk->count);
    sort_ids(bulk->ids, bulk->count);
}

/* ---- Commands ---- */

/* The oldest of those that are done goes, if there are more than are kept. */
static int drop_oldest(struct engine *engine)
{
    struct op op = {.type = OP_BULK_DROP};
    uint32_t done = 0;

    for (const struct bulk *bulk = engine->bulks; bulk; bulk = bulk->below) {
        if (!is_done(bulk->next, bulk->count)) continue;
        op.bulk.id = bulk->id;
        done++;
    }
    return done > ENGINE_BULKS_DONE_MAX ? command_op(engine, &op) : 0;
}

/* The set, whose ids are there. */
static int decide_bulk(struct engine *engine, const struct bulk *bulk)
{
    struct writer ids = {0};
    struct op op;
    int r;

    r = bulk_says(engine, bulk, &ids, &op);
    if (r < 0) {
        r = engine_refuse(engine, r, "there is no memory for the set");
    } else {
        r = command_reserve(engine, op_bytes_max(&op) + 50);
        if (r == 0) r = command_op(engine, &op);
        if (r == 0) engine->last_id++;
        if (r == 0) r = drop_oldest(engine); /* one of no jobs is done at once */
        if (r == 0) r = (int)op.bulk.count;
    }
    writer_free(engine, &ids);
    return r;
}

static struct bulk *bulk_new(struct engine *engine, enum engine_action action, uint32_t room)
{
    struct bulk *bulk = memory_resize(&engine->memory, NULL, 0, bulk_bytes(room));

    if (bulk)
        *bulk = (struct bulk){.id = engine->last_id + 1, .action = (uint8_t)action, .kept = room};
    return bulk;
}

static int check_action(struct engine *engine, enum engine_action action)
{
    if (action > ENGINE_ACTION_UNSET && action <= ENGINE_ACTION_CANCEL) return 0;
    return engine_refuse(engine, -EINVAL, "bulk: action is not set");
}

int engine_bulk_begin(struct engine *engine, int64_t now_ms, const struct engine_filter *filter,
                      enum engine_action action, uint64_t *ret_id)
{
    int64_t found = engine_filter_count(engine, filter);
    uint32_t room = found > ENGINE_BULK_MAX ? ENGINE_BULK_MAX : (uint32_t)found;
    struct bulk *bulk;
    int r = command_begin(engine, now_ms, 0);

    if (r < 0) return r;
    if (filter->states == 0) return engine_refuse(engine, -EINVAL, "filter: states is not set");
    r = check_action(engine, action);
    if (r < 0) return r;
    bulk = bulk_new(engine, action, room);
    if (!bulk) return engine_refuse(engine, -ENOMEM, "there is no memory for the set");
    find_ids(engine, filter, bulk, room);
    r = decide_bulk(engine, bulk);
    memory_resize(&engine->memory, bulk, bulk_bytes(room), 0);
    if (r >= 0) *ret_id = engine->last_id;
    return r;
}

int engine_bulk_begin_ids(struct engine *engine, int64_t now_ms, const uint64_t *ids,
                          uint32_t count, enum engine_action action, uint64_t *ret_id)
{
    int r = command_begin(engine, now_ms, 0);
    struct bulk *bulk;

    if (r == 0) r = check_action(engine, action);
    if (r < 0) return r;
    if (count > ENGINE_BULK_MAX) {
        return engine_refuse(engine, -E2BIG, "bulk: %u ids, at most %d", count, ENGINE_BULK_MAX);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (ids[i] > (i ? ids[i - 1] : 0)) continue;
        return engine_refuse(engine, -EINVAL, "bulk: ids do not rise");
    }
    bulk = bulk_new(engine, action, count);
    if (!bulk) return engine_refuse(engine, -ENOMEM, "there is no memory for the set");
    for (uint32_t i = 0; i < count; i++) bulk->ids[i] = ids[i];
    bulk->count = count;
    r = decide_bulk(engine, bulk);
    memory_resize(&engine->memory, bulk, bulk_bytes(count), 0);
    if (r >= 0) *ret_id = engine->last_id;
    return r;
}

int engine_bulk_list(const struct engine *engine, struct engine_bulk *ret_bulks, int bulks_max)
{
    int count = 0;
    for (const struct bulk *bulk = engine->bulks; bulk && count < bulks_max; bulk = bulk->below) {
        ret_bulks[count++] = (struct engine_bulk){bulk->id, (enum engine_action)bulk->action,
                                                  bulk->count, bulk->next, bulk->failed};
    }
    return count;
}

int engine_bulk_drop(struct engine *engine, int64_t now_ms, uint64_t id)
{
    struct op op = {.type = OP_BULK_DROP};
    int r = command_begin(engine, now_ms, 100);

    if (r < 0) return r;
    if (!bulk_is(*bulk_find(engine, id), id)) {
        return engine_refuse(engine, -ENOENT, "bulk %llu: there is none", (unsigned long long)id);
    }
    op.bulk.id = id;
    return command_op(engine, &op);
}

/* ---- Working it off ---- */

static struct bulk *first_due(const struct engine *engine)
{
    struct bulk *due = NULL;
    for (struct bulk *bulk = engine->bulks; bulk; bulk = bulk->below) {
        if (bulk->next < bulk->count) due = bulk;
    }
    return due;
}

bool bulk_is_due(const struct engine *engine)
{
    return engine->bulks && first_due(engine);
}

static int act(struct engine *engine, const struct bulk *bulk)
{
    uint64_t id = bulk->ids[bulk->next];
    switch ((enum engine_action)bulk->action) {
    case ENGINE_ACTION_REPLAY:
        return engine_dead_replay(engine, 0, id, NULL, (struct engine_slice){0});
    case ENGINE_ACTION_PURGE: return engine_purge(engine, 0, id);
    default: return engine_cancel(engine, 0, id);
    }
}

int bulk_go_on(struct engine *engine)
{
    struct bulk *bulk = first_due(engine);
    struct op op = {.type = OP_BULK_AT};
    int r = command_begin(engine, 0, 500);
    bool done;

    assert(bulk); /* bulk_is_due() */
    if (r == 0) r = act(engine, bulk);
    if (r == -ENOMEM) return r;
    op.bulk.id = bulk->id;
    op.bulk.next = bulk->next + 1;
    op.bulk.failed = bulk->failed + (r < 0);
    done = is_done(op.bulk.next, bulk->count);
    r = command_op(engine, &op);
    return r == 0 && done ? drop_oldest(engine) : r;
}

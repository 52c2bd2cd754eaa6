/* bulk.c - work on many jobs: a frozen set of ids, worked off in chunks by ticks. Each job's own
 * decision and how far the set is are one record, so a restart goes on with the next one. */
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

void apply_bulk_drop(struct engine *engine, uint64_t id)
{
    struct bulk **at = bulk_find(engine, id);
    struct bulk *bulk = *at;

    if (!bulk_is(bulk, id)) return;
    *at = bulk->below;
    memory_resize(&engine->memory, bulk, bulk_bytes(bulk->count), 0);
}

int apply_bulk(struct engine *engine, const struct op_bulk *op)
{
    struct bulk *bulk = memory_resize(&engine->memory, NULL, 0, bulk_bytes(op->count));
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
                          .count = op->count};
    for (uint32_t i = 0; i < op->count; i++) {
        id += get_number(&reader, UINT64_MAX);
        bulk->ids[i] = id;
    }
    *at = bulk;
    return 0;
}

void apply_bulk_at(struct engine *engine, const struct op_bulk *op)
{
    struct bulk *bulk = *bulk_find(engine, op->id);

    if (!bulk_is(bulk, op->id)) return;
    bulk->next = op->next < bulk->count ? op->next : bulk->count;
    bulk->failed = op->failed;
}

void bulks_deinit(struct engine *engine)
{
    while (engine->bulks) apply_bulk_drop(engine, engine->bulks->id);
}

static void put_ids(struct writer *writer, const uint64_t *ids, uint32_t count)
{
    uint64_t before = 0;
    for (uint32_t i = 0; i < count; i++) {
        put_number(writer, ids[i] - before);
        before = ids[i];
    }
}

/* The row as an operation, its ids written into `ids`, which the caller frees. */
static int bulk_says(struct engine *engine, const struct bulk *bulk, struct writer *ids,
                     struct op *ret_op)
{
    int r = writer_reserve(engine, ids, (size_t)bulk->count * 10 + 10);
    if (r < 0) return r;
    put_ids(ids, bulk->ids, bulk->count);
    *ret_op = (struct op){.type = OP_BULK};
    ret_op->bulk = (struct op_bulk){.id = bulk->id,
                                    .action = bulk->action,
                                    .next = bulk->next,
                                    .failed = bulk->failed,
                                    .count = bulk->count,
                                    .ids = {ids->bytes, ids->count}};
    return 0;
}

static void writer_free(struct engine *engine, struct writer *writer)
{
    if (writer->bytes) memory_resize(&engine->memory, writer->bytes, writer->room, 0);
}

int bulks_write(struct engine *engine, struct writer *writer)
{
    int r = 0;

    for (const struct bulk *bulk = engine->bulks; r == 0 && bulk; bulk = bulk->below) {
        struct writer ids = {0};
        struct op op;
        r = bulk_says(engine, bulk, &ids, &op);
        if (r == 0) r = writer_reserve(engine, writer, op_bytes_max(&op) + 10);
        if (r == 0) op_write(writer, &op);
        writer_free(engine, &ids);
    }
    return r;
}

/* ---- Filters ---- */

static bool equal(struct engine_slice a, struct engine_slice b)
{
    return a.count == b.count && (a.count == 0 || memcmp(a.at, b.at, a.count) == 0);
}

static bool passes(const struct engine *engine, const struct engine_filter *filter, uint32_t queue,
                   const struct job *job)
{
    const struct stage *stage;
    struct engine_error errors[ENGINE_ERRORS_KEPT];
    int count;

    if (!(filter->states & ENGINE_STATE_BIT(job->state)) || job->state == ENGINE_NO_JOB) {
        return false;
    }
    stage = stage_at(engine, job->stage);
    if (stage->atom.scope != queue) return false;
    if (filter->kind.count && !equal(filter->kind, atom_text(&stage->atom))) return false;
    if (filter->tags.count && !equal(filter->tags, job_tags(job))) return false;
    if (filter->error_class.count == 0) return true;
    count = engine_job_errors(engine, job->id, errors);
    return count > 0 && equal(filter->error_class, errors[count - 1].class);
}

int64_t engine_filter_count(const struct engine *engine, const struct engine_filter *filter)
{
    uint32_t queue = atom_find(engine, ATOM_QUEUE, 0, 0, filter->queue);
    int64_t count = 0;

    for (uint32_t at = 1; queue && at < engine->jobs.fresh; at++) {
        count += passes(engine, filter, queue, job_at(engine, at));
    }
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
    uint32_t queue = atom_find(engine, ATOM_QUEUE, 0, 0, filter->queue);

    for (uint32_t at = 1; queue && at < engine->jobs.fresh; at++) {
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

static int decide_bulk(struct engine *engine, const struct engine_filter *filter,
                       enum engine_action action, struct bulk *bulk, uint32_t room)
{
    struct writer ids = {0};
    struct op op;
    int r;

    *bulk = (struct bulk){.id = engine->last_id + 1, .action = (uint8_t)action};
    find_ids(engine, filter, bulk, room);
    r = bulk_says(engine, bulk, &ids, &op);
    if (r < 0) {
        r = engine_refuse(engine, r, "there is no memory for the set");
    } else {
        r = command_begin(engine, 0, op_bytes_max(&op));
        if (r == 0) r = command_op(engine, &op);
        if (r == 0) engine->last_id++;
    }
    writer_free(engine, &ids);
    return r;
}

int engine_bulk_begin(struct engine *engine, int64_t now_ms, const struct engine_filter *filter,
                      enum engine_action action, uint64_t *ret_id)
{
    int64_t found = engine_filter_count(engine, filter);
    uint32_t room = found > ENGINE_BULK_MAX ? ENGINE_BULK_MAX : (uint32_t)found;
    struct bulk *bulk;
    int r = command_begin(engine, now_ms, 0);

    if (r < 0) return r;
    if (filter->queue.count == 0 || filter->states == 0) {
        return engine_refuse(engine, -EINVAL, "filter: queue or states is not set");
    }
    if (action <= ENGINE_ACTION_UNSET || action > ENGINE_ACTION_CANCEL) {
        return engine_refuse(engine, -EINVAL, "bulk: action is not set");
    }
    bulk = memory_resize(&engine->memory, NULL, 0, bulk_bytes(room));
    if (!bulk) return engine_refuse(engine, -ENOMEM, "there is no memory for the set");
    r = decide_bulk(engine, filter, action, bulk, room);
    memory_resize(&engine->memory, bulk, bulk_bytes(room), 0);
    if (r < 0) return r;
    *ret_id = engine->last_id;
    return (int)room;
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
    case ENGINE_ACTION_REPLAY: return engine_dead_replay(engine, 0, id, NULL);
    case ENGINE_ACTION_PURGE: return engine_purge(engine, 0, id);
    default: return engine_cancel(engine, 0, id);
    }
}

int bulk_go_on(struct engine *engine)
{
    struct bulk *bulk = first_due(engine);

    if (!bulk) return 0;
    for (int i = 0; i < ENGINE_BULK_CHUNK && bulk->next < bulk->count; i++) {
        struct op op = {.type = OP_BULK_AT};
        int r = command_begin(engine, 0, 500);
        if (r == 0) r = act(engine, bulk);
        if (r == -ENOMEM) return r;
        op.bulk.id = bulk->id;
        op.bulk.next = bulk->next + 1;
        op.bulk.failed = bulk->failed + (r < 0);
        command_op(engine, &op);
    }
    return 0;
}

/* record.c - records out of the engine and into it: decisions, snapshots, jobs logged again. */
#include <errno.h>

#include "engine/state.h"

enum { RECORD_ROOM_KEPT = 1 << 18 };

/* ---- Records of decisions ---- */

static struct record_head head_of(const struct engine *engine)
{
    return (struct record_head){
        .now_ms = engine->now_ms,
        .last_id = engine->last_id,
        .last_token = engine->last_token,
        .last_mark = engine->last_mark,
        .last_turn = engine->last_turn,
    };
}

/* The head, as long as it is, right before the operations. Returns where it begins. */
static size_t put_head(const struct engine *engine, struct writer *writer)
{
    unsigned char bytes[RECORD_HEAD_BYTES_MAX];
    struct writer head = {bytes, 0, sizeof bytes};
    struct record_head values = head_of(engine);

    head_write(&head, &values);
    memcpy(writer->bytes + RECORD_HEAD_BYTES_MAX - head.count, bytes, head.count);
    return RECORD_HEAD_BYTES_MAX - head.count;
}

void engine_record(struct engine *engine, const void **ret_bytes, size_t *ret_count)
{
    size_t begin;

    *ret_bytes = NULL;
    *ret_count = 0;
    if (engine->record.count == RECORD_HEAD_BYTES_MAX) return;
    begin = put_head(engine, &engine->record);
    *ret_bytes = engine->record.bytes + begin;
    *ret_count = engine->record.count - begin;
}

/* What a large payload has taken is given back: it would count against new work for ever. */
static void record_shrink(struct engine *engine)
{
    struct writer *record = &engine->record;
    unsigned char *smaller;

    if (record->room <= RECORD_ROOM_KEPT) return;
    smaller = memory_resize(&engine->memory, record->bytes, record->room, RECORD_ROOM_KEPT);
    if (!smaller) return;
    record->bytes = smaller;
    record->room = RECORD_ROOM_KEPT;
}

void engine_logged(struct engine *engine, uint64_t position)
{
    for (uint32_t i = 0; i < engine->pending_count; i++) {
        struct job *job = job_at(engine, engine->pending[i]);
        if (job->state == ENGINE_NO_JOB) continue;
        if (job->position == POSITION_PENDING) job->position = position;
        if (job->state == ENGINE_DONE && job->mark == POSITION_PENDING) job->mark = position;
    }
    engine->pending_count = 0;
    engine->record.count = RECORD_HEAD_BYTES_MAX;
    record_shrink(engine);
}

/* The head counts all that is in the record: what comes later never meets it. */
static bool head_covers(const struct record_head *head, const struct op *op)
{
    const struct op_set *set = op->type == OP_JOB ? &op->job.set : &op->set;

    if (op->type == OP_BULK) return op->bulk.id <= head->last_id;
    if (op->type != OP_JOB && op->type != OP_SET) return true;
    return set->id <= head->last_id &&
           (set->state != ENGINE_LEASED || set->mark <= head->last_token);
}

static int check_record(struct engine *engine, struct reader reader)
{
    const unsigned char *begin = reader.at;
    struct record_head head;
    struct op op;

    if (!head_read(&reader, &head)) {
        return engine_refuse(engine, -EBADMSG, "record: its head is no head of version %d",
                             RECORD_VERSION);
    }
    while (op_read(&reader, &op)) {
        if (head_covers(&head, &op)) continue;
        return engine_refuse(engine, -EBADMSG, "record: an id or a token is beyond its head");
    }
    if (reader.bad) {
        return engine_refuse(engine, -EBADMSG, "record: no operation ends at byte %zu",
                             (size_t)(reader.at - begin));
    }
    return 0;
}

static uint64_t max_number(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

int engine_apply(struct engine *engine, const void *bytes, size_t count, uint64_t position)
{
    struct reader reader = {.at = bytes, .end = (const unsigned char *)bytes + count};
    struct record_head head;
    struct op op;
    int r;

    if (engine->record.count != RECORD_HEAD_BYTES_MAX) {
        return engine_refuse(engine, -EBUSY, "record: decisions of this engine are not logged yet");
    }
    if (position == POSITION_PENDING) return engine_refuse(engine, -EINVAL, "record: no position");
    r = check_record(engine, reader);
    if (r < 0) return r;
    engine->follows = true;
    head_read(&reader, &head);
    if (head.now_ms > engine->now_ms) engine->now_ms = head.now_ms;
    engine->last_id = max_number(engine->last_id, head.last_id);
    engine->last_token = max_number(engine->last_token, head.last_token);
    engine->last_mark = max_number(engine->last_mark, head.last_mark);
    engine->last_turn = max_number(engine->last_turn, head.last_turn);
    while (op_read(&reader, &op)) {
        r = place_reserve(engine);
        if (r == 0) r = apply_op(engine, &op, position);
        if (r < 0) return engine_refuse(engine, r, "record: there is no memory for it");
    }
    return 0;
}

int engine_record_find(const void *bytes, size_t count, uint64_t id, struct engine_found *ret_found)
{
    struct reader reader = {.at = bytes, .end = (const unsigned char *)bytes + count};
    struct engine_found found = {0};
    struct record_head head;
    bool any = false;
    struct op op;

    if (!head_read(&reader, &head)) return -EBADMSG;
    while (op_read(&reader, &op)) {
        if (op.type == OP_JOB && op.job.set.id == id && op.job.has_payload) {
            found.payload = op.job.payload;
            found.trace = op.job.trace;
            any = true;
        }
        if (op.type == OP_PAYLOAD && op.payload.id == id) {
            found.payload = op.payload.bytes;
            found.trace = op.payload.trace;
            any = true;
        }
        if (op.type == OP_JOB && op.job.set.id == id && op.job.set.has_result) {
            found.result = op.job.set.result;
            any = true;
        }
        if (op.type == OP_SET && op.set.id == id && op.set.has_result) {
            found.result = op.set.result;
            any = true;
        }
    }
    if (reader.bad) return -EBADMSG;
    if (!any) return -ENOENT;
    *ret_found = found;
    return 0;
}

/* ---- Rows as operations ---- */

void job_says(const struct engine *engine, const struct job *job, struct op_job *ret_op)
{
    const struct stage *stage = stage_at(engine, job->stage);

    *ret_op = (struct op_job){
        .queue = atom_text(&queue_at(engine, stage->atom.scope)->atom),
        .kind = atom_text(&stage->atom),
        .version = stage->atom.number,
        .priority = job->priority,
        .created_ms = job->created_ms,
        .expires_ms = job->expires_ms,
        .policy = atom_text(&policy_at(engine, job->policy)->atom),
        .tags = job_tags(job),
        .unique_key = job_unique_key(job),
        .idempotency_key = job_idempotency_key(job),
        .batch = job_batch(job),
        .limit_key_count = job_limit_count(job),
        .position = job->position,
        .payload_bytes = job->payload_bytes,
    };
    if (job->fair) ret_op->fairness_key = atom_text(&key_at(engine, job->fair)->atom);
    if (job_chain(job)) ret_op->order_key = atom_text(&chain_at(engine, job_chain(job))->atom);
    for (uint32_t i = 0; i < job_limit_count(job); i++) {
        ret_op->limit_keys[i] = atom_text(&key_at(engine, job_limit(job, i))->atom);
    }
    set_from(job, &ret_op->set);
    if (job->lane) {
        const struct group *group = group_at(engine, lane_at(engine, job->lane)->group);
        ret_op->set.to = (struct op_turn){group->turn, group->deficit};
    }
}

static int write_op(struct engine *engine, struct writer *writer, const struct op *op)
{
    int r = writer_reserve(engine, writer, op_bytes_max(op) + 10);
    if (r == 0) op_write(writer, op);
    return r;
}

static int write_errors(struct engine *engine, struct writer *writer, uint64_t id)
{
    struct engine_error errors[ENGINE_ERRORS_KEPT];
    int count = engine_job_errors(engine, id, errors);
    int r = 0;

    for (int i = 0; r == 0 && i < count; i++) {
        struct op op = {.type = OP_ERROR};
        op.error = (struct op_error){id, errors[i].run, errors[i].at_ms, errors[i].class,
                                     errors[i].message};
        r = write_op(engine, writer, &op);
    }
    return r;
}

static int write_names(struct engine *engine, struct writer *writer)
{
    const struct table *queues = &engine->atom_tables[ATOM_QUEUE];
    const struct table *keys = &engine->atom_tables[ATOM_KEY];
    const struct table *schedules = &engine->atom_tables[ATOM_SCHEDULE];
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < queues->room; i++) {
        if (queues->slots[i] && queue_at(engine, queues->slots[i])->configured) {
            struct op op = {.type = OP_QUEUE,
                            .queue = queue_says(queue_at(engine, queues->slots[i]))};
            r = write_op(engine, writer, &op);
        }
    }
    for (uint32_t i = 0; r == 0 && i < keys->room; i++) {
        if (keys->slots[i] && key_at(engine, keys->slots[i])->configured) {
            struct op op = {.type = OP_KEY, .key = key_says(key_at(engine, keys->slots[i]))};
            r = write_op(engine, writer, &op);
        }
    }
    for (uint32_t i = 0; r == 0 && i < schedules->room; i++) {
        if (schedules->slots[i]) {
            struct op op = {.type = OP_SCHEDULE,
                            .schedule = schedule_says(schedule_at(engine, schedules->slots[i]))};
            r = write_op(engine, writer, &op);
        }
    }
    return r < 0 ? r : bulks_write(engine, writer);
}

static int write_job(struct engine *engine, struct writer *writer, const struct job *job)
{
    struct op op = {.type = OP_JOB};
    int r;

    job_says(engine, job, &op.job);
    r = write_op(engine, writer, &op);
    return r < 0 ? r : write_errors(engine, writer, job->id);
}

int engine_snapshot(struct engine *engine, struct engine_cursor *cursor, size_t bytes_max,
                    const void **ret_bytes, size_t *ret_count)
{
    struct writer *slice = &engine->slice;
    struct engine_cursor at = *cursor; /* a slice that fails is asked for again */
    size_t begin, before;
    int r;

    if (engine->record.count != RECORD_HEAD_BYTES_MAX) {
        return engine_refuse(engine, -EBUSY,
                             "snapshot: decisions of this engine are not logged yet");
    }
    slice->count = RECORD_HEAD_BYTES_MAX;
    r = writer_reserve(engine, slice, 0);
    if (r == 0 && !cursor->begun) r = write_names(engine, slice);
    before = slice->count;
    /* At least one job each time, however small the slices: so it comes to an end. */
    while (r == 0 && slice->count - before <= bytes_max && at.after + 1 < engine->jobs.fresh) {
        const struct job *job = job_at(engine, ++at.after);
        if (job->state != ENGINE_NO_JOB) r = write_job(engine, slice, job);
    }
    if (r < 0) return engine_refuse(engine, r, "snapshot: there is no memory for a slice");
    at.begun = true;
    *cursor = at;
    begin = put_head(engine, slice);
    *ret_bytes = slice->bytes + begin;
    *ret_count = slice->count - begin;
    return at.after + 1 < engine->jobs.fresh;
}

int engine_relog(struct engine *engine, int64_t now_ms, uint64_t id, struct engine_slice payload,
                 struct engine_slice trace, struct engine_slice result)
{
    size_t before = engine->record.count;
    int r = command_begin(engine, now_ms, payload.count + trace.count + result.count);
    uint32_t number = r < 0 ? 0 : job_find(engine, id);
    struct op op = {.type = OP_JOB};
    struct job *job;

    if (r < 0) return r;
    if (!number)
        return engine_refuse(engine, -ENOENT, "job %llu: there is none", (unsigned long long)id);
    job = job_at(engine, number);
    if (payload.count != job->payload_bytes ||
        result.count != (job->state == ENGINE_DONE ? job->note : 0)) {
        return engine_refuse(engine, -EINVAL, "job %llu: payload or result are not its own",
                             (unsigned long long)id);
    }
    job_says(engine, job, &op.job);
    op.job.has_payload = true;
    op.job.payload = payload;
    op.job.trace = trace;
    op.job.set.has_result = result.count > 0;
    op.job.set.result = result;
    if (op.job.set.has_result) op.job.set.mark = 0;
    r = write_op(engine, &engine->record, &op);
    if (r == 0) r = write_errors(engine, &engine->record, id);
    if (r < 0) {
        engine->record.count = before;
        return engine_refuse(engine, r, "there is no memory to log the job again");
    }
    /* The row stays as it is, but for where its bytes are. */
    job->position = POSITION_PENDING;
    if (op.job.set.has_result) job->mark = POSITION_PENDING;
    engine->pending[engine->pending_count++] = number;
    return 0;
}

/* ---- The whole state ---- */

struct rows {
    engine_row_fn row;
    void *arg;
};

static int give_rows(struct engine *engine, const struct rows *rows, int r)
{
    struct writer *slice = &engine->slice;
    struct reader reader = {.at = slice->bytes + RECORD_HEAD_BYTES_MAX,
                            .end = slice->bytes + slice->count};
    const unsigned char *begin = reader.at;
    struct op op;

    if (r < 0) return r;
    while (op_read(&reader, &op)) {
        rows->row(rows->arg, begin, (size_t)(reader.at - begin));
        begin = reader.at;
    }
    assert(!reader.bad);
    slice->count = RECORD_HEAD_BYTES_MAX;
    return 0;
}

int engine_rows(struct engine *engine, engine_row_fn row, void *arg)
{
    struct rows rows = {row, arg};
    int r;

    engine->slice.count = RECORD_HEAD_BYTES_MAX;
    r = writer_reserve(engine, &engine->slice, 0);
    if (r == 0) r = give_rows(engine, &rows, write_names(engine, &engine->slice));
    for (uint32_t at = 1; r == 0 && at < engine->jobs.fresh; at++) {
        const struct job *job = job_at(engine, at);
        if (job->state == ENGINE_NO_JOB) continue;
        r = give_rows(engine, &rows, write_job(engine, &engine->slice, job));
    }
    return r;
}

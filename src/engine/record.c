/* record.c - records out of the engine and into it: decisions, and jobs logged again. */
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

void writer_begin(const struct engine *engine, struct writer *writer, bool says_all)
{
    writer->base = head_of(engine);
    writer->says_marks = says_all;
    writer->says_turns = says_all;
}

size_t put_head(const struct engine *engine, struct writer *writer)
{
    unsigned char bytes[RECORD_HEAD_BYTES_MAX];
    struct record_head values = head_of(engine);
    struct writer head = *writer;

    head.bytes = bytes;
    head.count = 0;
    head.room = sizeof bytes;
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

size_t engine_record_bytes(const struct engine *engine)
{
    return engine->record.count - RECORD_HEAD_BYTES_MAX;
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
        if (job->position == POSITION_PENDING) {
            job->position = position;
            live_job(engine, job, 1);
        }
        if (job->state == ENGINE_DONE && job->mark == POSITION_PENDING) {
            job->mark = position;
            live_result(engine, job, 1);
        }
    }
    engine->pending_count = 0;
    engine->logged_id = engine->last_id;
    engine->record.count = RECORD_HEAD_BYTES_MAX;
    engine->take_back_bytes = 0;
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

    if (reader.at < reader.end && *reader.at != RECORD_VERSION) {
        return engine_refuse(engine, -EBADMSG,
                             "record: it is of version %u, and only version %d is known",
                             *reader.at, RECORD_VERSION);
    }
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
    reader.checked = true;
    engine->follows = true;
    head_read(&reader, &head);
    if (head.now_ms > engine->now_ms) engine->now_ms = head.now_ms;
    engine->last_id = max_number(engine->last_id, head.last_id);
    engine->last_token = max_number(engine->last_token, head.last_token);
    engine->last_mark = max_number(engine->last_mark, head.last_mark);
    engine->last_turn = max_number(engine->last_turn, head.last_turn);
    engine->logged_id = engine->last_id;
    while (op_read(&reader, &op)) {
        r = place_reserve(engine, 1);
        if (r == 0) r = apply_op(engine, &op, position);
        if (r < 0) return engine_refuse(engine, r, "record: there is no memory for it");
    }
    return 0;
}

int engine_record_find(const void *bytes, size_t count, uint64_t id, struct engine_found *ret_found)
{
    struct reader reader = {
        .at = bytes, .end = (const unsigned char *)bytes + count, .checked = true};
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

int engine_record_payloads(const void *bytes, size_t count, engine_payload_fn fn, void *arg)
{
    struct reader reader = {
        .at = bytes, .end = (const unsigned char *)bytes + count, .checked = true};
    struct record_head head;
    struct op op;

    if (!head_read(&reader, &head)) return -EBADMSG;
    while (op_read(&reader, &op)) {
        struct engine_found found = {.payload = op.job.payload, .trace = op.job.trace};

        if (op.type == OP_JOB && op.job.has_payload) fn(arg, op.job.set.id, &found);
    }
    return reader.bad ? -EBADMSG : 0;
}

/* ---- Records that are still needed ---- */

static bool has_later_payload(struct reader reader, uint64_t id)
{
    struct op op;

    while (op_read(&reader, &op)) {
        if (op.type == OP_JOB && op.job.has_payload && op.job.set.id == id) return true;
    }
    return false;
}

static const struct job *find_row(const struct engine *engine, uint64_t id)
{
    uint32_t number = job_find(engine, id);
    return number ? job_at(engine, number) : NULL;
}

static void fill_needed(const struct job *job, struct engine_needed *needed)
{
    needed->id = job->id;
    needed->payload_position = job->position;
    if (job->state != ENGINE_DONE || job->note == 0) return;
    needed->result_position = job->mark;
    needed->result_bytes = job->note;
}

/* Whether a row needs the record for what this operation has there. */
static bool op_needed(const struct engine *engine, const struct op *op, uint64_t position,
                      struct engine_needed *ret_needed)
{
    const struct op_set *set = op->type == OP_JOB ? &op->job.set : &op->set;
    const struct job *job;

    if (op->type != OP_JOB && op->type != OP_SET) return false;
    job = find_row(engine, set->id);
    if (!job) return false;
    *ret_needed = (struct engine_needed){0};
    fill_needed(job, ret_needed);
    if (job->position == position) {
        if (op->type != OP_JOB || !op->job.has_payload) return false;
        ret_needed->payload = op->job.payload;
        ret_needed->trace = op->job.trace;
        return true;
    }
    return set->has_result && ret_needed->result_bytes > 0 &&
           ret_needed->result_position == position;
}

/* Once over the whole record: where its operations begin, and what is in it. */
static int needed_begin(const struct reader *reader, struct engine_needed_cursor *cursor,
                        const void *begin)
{
    struct reader rest = *reader;
    struct op op;

    cursor->at = (size_t)(reader->at - (const unsigned char *)begin);
    /* Only dead letters are logged with other bytes than before. */
    while (op_read(&rest, &op)) {
        cursor->has_edits |= op.type == OP_JOB && op.job.set.state == ENGINE_DEAD;
    }
    return rest.bad ? -EBADMSG : 0;
}

int engine_record_needed(const struct engine *engine, const void *bytes, size_t count,
                         uint64_t position, struct engine_needed_cursor *cursor,
                         struct engine_needed *ret_needed)
{
    struct reader reader = {
        .at = bytes, .end = (const unsigned char *)bytes + count, .checked = true};
    struct engine_needed_cursor at = *cursor;
    struct engine_needed needed;
    struct record_head head;
    bool found = false;
    struct op op;

    if (!head_read(&reader, &head)) return -EBADMSG;
    if (at.at == 0) {
        int r = needed_begin(&reader, &at, bytes);
        if (r < 0) return r;
    }
    reader.at = (const unsigned char *)bytes + at.at;
    while (!found && op_read(&reader, &op)) {
        found = op_needed(engine, &op, position, &needed);
        if (found && at.has_edits && needed.payload.at) {
            found = !has_later_payload(reader, needed.id);
        }
    }
    if (reader.bad) return -EBADMSG;
    at.at = (size_t)(reader.at - (const unsigned char *)bytes);
    *cursor = at;
    if (found) *ret_needed = needed;
    return found;
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

int write_op(struct engine *engine, struct writer *writer, const struct op *op)
{
    int r = writer_reserve(engine, writer, op_bytes_max(op) + 10);
    if (r == 0) op_write(writer, op);
    return r;
}

int write_errors(struct engine *engine, struct writer *writer, uint64_t id)
{
    struct engine_error errors[ENGINE_ERRORS_KEPT] WEIR_UNINITIALIZED_;
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

int write_again(struct engine *engine, uint32_t number, struct engine_slice payload,
                struct engine_slice trace, struct engine_slice result)
{
    struct job *job = job_at(engine, number);
    size_t before = engine->record.count;
    struct op op = {.type = OP_JOB};
    int r;

    job_says(engine, job, &op.job);
    op.job.has_payload = true;
    op.job.payload = payload;
    op.job.trace = trace;
    op.job.set.has_result = result.count > 0;
    op.job.set.result = result;
    if (op.job.set.has_result) op.job.set.mark = 0;
    r = write_op(engine, &engine->record, &op);
    if (r == 0) r = write_errors(engine, &engine->record, job->id);
    command_check(engine);
    if (r == 0) r = command_reserve(engine, 0);
    if (r < 0) {
        engine->record.count = before;
        return engine_refuse(engine, r, "there is no memory to log the job again");
    }
    /* The row stays as it is, but for its bytes and where they are. */
    live_job(engine, job, -1);
    live_result(engine, job, -1);
    job->payload_bytes = (uint32_t)payload.count;
    job->position = POSITION_PENDING;
    failures_join_payload(engine, job);
    if (op.job.set.has_result) job->mark = POSITION_PENDING;
    engine->pending[engine->pending_count++] = number;
    return 0;
}

int engine_relog(struct engine *engine, int64_t now_ms, uint64_t id, struct engine_slice payload,
                 struct engine_slice trace, struct engine_slice result)
{
    int r = command_begin(engine, now_ms, payload.count + trace.count + result.count);
    uint32_t number = r < 0 ? 0 : job_find(engine, id);
    const struct job *job;

    if (r < 0) return r;
    if (!number)
        return engine_refuse(engine, -ENOENT, "job %llu: there is none", (unsigned long long)id);
    job = job_at(engine, number);
    if (payload.count != job->payload_bytes ||
        result.count != (job->state == ENGINE_DONE ? job->note : 0)) {
        return engine_refuse(engine, -EINVAL, "job %llu: payload or result are not its own",
                             (unsigned long long)id);
    }
    return write_again(engine, number, payload, trace, result);
}

/* codec.c - operations to bytes and back. One function each way for a row's members, side by
 * side, so that a member is never written without being read. */
#include "engine/codec.h"

/* ---- Numbers and bytes ---- */

void put_number(struct writer *writer, uint64_t value)
{
    assert(writer->count + 10 <= writer->room);
    while (value >= 0x80) {
        writer->bytes[writer->count++] = (unsigned char)(value | 0x80);
        value >>= 7;
    }
    writer->bytes[writer->count++] = (unsigned char)value;
}

uint64_t get_number(struct reader *reader, uint64_t max)
{
    uint64_t value = 0;
    for (int shift = 0; reader->at < reader->end && shift < 70; shift += 7) {
        unsigned char byte = *reader->at++;
        if (shift == 63 && byte > 1) break;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte & 0x80) continue;
        /* One way to write each number: no zeros at its end. */
        if (value > max || (byte == 0 && shift > 0)) break;
        return value;
    }
    reader->bad = true;
    return 0;
}

void put_slice(struct writer *writer, struct engine_slice slice)
{
    put_number(writer, slice.count);
    assert(writer->count + slice.count <= writer->room);
    if (slice.count > 0) memcpy(writer->bytes + writer->count, slice.at, slice.count);
    writer->count += slice.count;
}

struct engine_slice get_slice(struct reader *reader, size_t count_max)
{
    struct engine_slice slice = {0};
    size_t count = get_number(reader, count_max);
    if (reader->bad || count > (size_t)(reader->end - reader->at)) {
        reader->bad = true;
        return slice;
    }
    slice.at = reader->at;
    slice.count = count;
    reader->at += count;
    return slice;
}

static struct engine_slice get_name(struct reader *reader)
{
    struct engine_slice name = get_slice(reader, ENGINE_NAME_BYTES_MAX);
    if (name.count == 0) reader->bad = true;
    return name;
}

static struct engine_slice get_key(struct reader *reader)
{
    return get_slice(reader, ENGINE_NAME_BYTES_MAX);
}

static uint32_t get_u32(struct reader *reader)
{
    return (uint32_t)get_number(reader, UINT32_MAX);
}

static uint16_t get_u16(struct reader *reader)
{
    return (uint16_t)get_number(reader, UINT16_MAX);
}

static int64_t get_time(struct reader *reader)
{
    return (int64_t)get_number(reader, (uint64_t)TIME_READ_MAX);
}

static bool get_bool(struct reader *reader)
{
    return get_number(reader, 1) != 0;
}

/* ---- Policies ---- */

void policy_write(struct writer *writer, const struct policy_text *policy)
{
    put_number(writer, policy->attempts_max);
    put_number(writer, policy->backoff_ms);
    put_number(writer, policy->backoff_ms_max);
    put_number(writer, policy->jitter);
    put_number(writer, policy->idempotent);
    put_number(writer, policy->timeout_ms);
    put_number(writer, (uint64_t)policy->unique_ms);
    put_number(writer, policy->unique_states);
    put_number(writer, (uint64_t)policy->idempotency_ms);
    put_number(writer, policy->never_count);
    for (uint32_t i = 0; i < policy->never_count; i++) put_slice(writer, policy->never[i]);
}

bool policy_read(struct engine_slice text, struct policy_text *ret_policy)
{
    struct reader reader = {.at = text.at, .end = (const unsigned char *)text.at + text.count};
    struct policy_text policy = {0};

    if (text.count == 0) return false;
    policy.attempts_max = (uint32_t)get_number(&reader, UINT16_MAX);
    if (policy.attempts_max == 0) reader.bad = true;
    policy.backoff_ms = get_u32(&reader);
    policy.backoff_ms_max = get_u32(&reader);
    policy.jitter = get_bool(&reader);
    policy.idempotent = get_bool(&reader);
    policy.timeout_ms = get_u32(&reader);
    policy.unique_ms = (int64_t)get_number(&reader, (uint64_t)ENGINE_SPAN_MS_MAX);
    policy.unique_states = (uint32_t)get_number(&reader, ENGINE_STATE_BIT(ENGINE_STATES) - 1);
    /* A job that has not ended holds its key: hold.c. */
    if (ENGINE_LIVE_STATES & ~policy.unique_states) reader.bad = true;
    policy.idempotency_ms = (int64_t)get_number(&reader, (uint64_t)ENGINE_SPAN_MS_MAX);
    policy.never_count = (uint32_t)get_number(&reader, ENGINE_CLASSES_MAX);
    for (uint32_t i = 0; i < policy.never_count; i++) policy.never[i] = get_name(&reader);
    if (reader.bad || reader.at != reader.end) return false;
    *ret_policy = policy;
    return true;
}

/* ---- Members ---- */

enum { SET_FROM = 1, SET_TO = 2, SET_RESULT = 4 };

static void put_turn(struct writer *writer, const struct op_turn *turn)
{
    if (turn->turn == 0) return;
    put_number(writer, turn->turn);
    put_number(writer, turn->deficit);
}

static void get_turn(struct reader *reader, struct op_turn *turn)
{
    turn->turn = get_number(reader, UINT64_MAX - 1);
    turn->deficit = get_u32(reader);
    if (turn->turn == 0) reader->bad = true;
}

static void put_set(struct writer *writer, const struct op_set *set)
{
    put_number(writer, set->id);
    put_number(writer, set->state);
    put_number(writer, set->flags);
    put_number(writer, set->blocked_on);
    put_number(writer, set->runs);
    put_number(writer, set->attempts);
    put_number(writer, set->mark);
    put_number(writer, (uint64_t)set->when_ms);
    put_number(writer, (uint64_t)set->started_ms);
    put_number(writer, set->note);
    put_number(writer, (set->from.turn ? SET_FROM : 0u) | (set->to.turn ? SET_TO : 0u) |
                           (set->has_result ? SET_RESULT : 0u));
    put_turn(writer, &set->from);
    if (set->from.turn) put_number(writer, set->from_gate);
    put_turn(writer, &set->to);
    if (set->has_result) put_slice(writer, set->result);
}

static void get_set(struct reader *reader, struct op_set *set)
{
    uint64_t parts;
    set->id = get_number(reader, UINT64_MAX - 1);
    set->state = (uint8_t)get_number(reader, ENGINE_STATES - 1);
    if (set->state == ENGINE_NO_JOB || set->id == 0) reader->bad = true;
    set->flags = (uint8_t)get_number(reader, 31);
    set->blocked_on = (uint8_t)get_number(reader, ENGINE_LIMIT_KEYS_MAX - 1);
    set->runs = get_u16(reader);
    set->attempts = get_u16(reader);
    set->mark = get_number(reader, UINT64_MAX);
    set->when_ms = get_time(reader);
    set->started_ms = get_time(reader);
    set->note = get_u32(reader);
    parts = get_number(reader, SET_FROM | SET_TO | SET_RESULT);
    if (parts & SET_FROM) {
        get_turn(reader, &set->from);
        set->from_gate = (uint8_t)get_number(reader, ENGINE_LIMIT_KEYS_MAX);
    }
    if (parts & SET_TO) get_turn(reader, &set->to);
    set->has_result = (parts & SET_RESULT) != 0;
    if (!set->has_result) return;
    set->result = get_slice(reader, UINT32_MAX);
    if (set->result.count != set->note || set->state != ENGINE_DONE) reader->bad = true;
}

static void put_job(struct writer *writer, const struct op_job *job)
{
    put_set(writer, &job->set);
    put_slice(writer, job->queue);
    put_slice(writer, job->kind);
    put_number(writer, job->version);
    put_number(writer, job->priority);
    put_number(writer, (uint64_t)job->created_ms);
    put_number(writer, (uint64_t)job->expires_ms);
    put_slice(writer, job->policy);
    put_slice(writer, job->tags);
    put_slice(writer, job->unique_key);
    put_slice(writer, job->idempotency_key);
    put_slice(writer, job->fairness_key);
    put_slice(writer, job->order_key);
    put_number(writer, job->batch);
    put_number(writer, job->limit_key_count);
    for (uint32_t i = 0; i < job->limit_key_count; i++) put_slice(writer, job->limit_keys[i]);
    put_number(writer, job->has_payload);
    if (job->has_payload) {
        put_slice(writer, job->payload);
        put_slice(writer, job->trace);
    } else {
        put_number(writer, job->position);
        put_number(writer, job->payload_bytes);
    }
}

static void get_job(struct reader *reader, struct op_job *job)
{
    struct policy_text policy;

    get_set(reader, &job->set);
    job->queue = get_name(reader);
    job->kind = get_name(reader);
    job->version = get_u32(reader);
    job->priority = (uint8_t)get_number(reader, ENGINE_PRIORITY_MAX);
    job->created_ms = get_time(reader);
    job->expires_ms = get_time(reader);
    job->policy = get_slice(reader, POLICY_BYTES_MAX);
    if (reader->bad || !policy_read(job->policy, &policy)) {
        reader->bad = true;
        return;
    }
    job->tags = get_key(reader);
    job->unique_key = get_key(reader);
    job->idempotency_key = get_key(reader);
    job->fairness_key = get_key(reader);
    job->order_key = get_key(reader);
    job->batch = get_number(reader, UINT64_MAX);
    job->limit_key_count = (uint32_t)get_number(reader, ENGINE_LIMIT_KEYS_MAX);
    for (uint32_t i = 0; i < job->limit_key_count; i++) job->limit_keys[i] = get_name(reader);
    job->has_payload = get_bool(reader);
    if (job->has_payload) {
        job->payload = get_slice(reader, UINT32_MAX);
        job->trace = get_slice(reader, UINT32_MAX);
        job->payload_bytes = (uint32_t)job->payload.count;
    } else {
        job->position = get_number(reader, UINT64_MAX);
        job->payload_bytes = get_u32(reader);
    }
}

static void put_rate(struct writer *writer, const struct engine_rate *rate)
{
    put_number(writer, rate->count);
    put_number(writer, rate->period_ms);
    put_number(writer, rate->burst);
}

static void get_rate(struct reader *reader, struct engine_rate *rate)
{
    rate->count = (uint32_t)get_number(reader, ENGINE_RATE_MAX);
    rate->period_ms = (uint32_t)get_number(reader, ENGINE_PERIOD_MS_MAX);
    rate->burst = (uint32_t)get_number(reader, ENGINE_RATE_MAX);
    if (rate->count > 0 && (rate->period_ms == 0 || rate->burst == 0)) reader->bad = true;
}

static void put_queue(struct writer *writer, const struct op_queue *queue)
{
    put_slice(writer, queue->name);
    put_number(writer, (queue->configured ? 1u : 0u) | (queue->paused ? 2u : 0u) |
                           (queue->draining ? 4u : 0u));
    put_number(writer, queue->depth_max);
    put_number(writer, queue->concurrency);
    put_number(writer, queue->latency_target_ms);
    put_rate(writer, &queue->rate);
    put_number(writer, (uint64_t)queue->tat);
}

static void get_queue(struct reader *reader, struct op_queue *queue)
{
    uint64_t flags;
    queue->name = get_name(reader);
    flags = get_number(reader, 7);
    queue->configured = flags & 1;
    queue->paused = flags & 2;
    queue->draining = flags & 4;
    queue->depth_max = get_u32(reader);
    queue->concurrency = get_u32(reader);
    queue->latency_target_ms = get_u32(reader);
    get_rate(reader, &queue->rate);
    queue->tat = (int64_t)get_number(reader, (uint64_t)TAT_MAX);
}

static void put_key(struct writer *writer, const struct op_key *key)
{
    put_slice(writer, key->name);
    put_number(writer, key->configured);
    put_number(writer, key->concurrency);
    put_number(writer, key->weight);
    put_rate(writer, &key->rate);
    put_number(writer, (uint64_t)key->tat);
}

static void get_key_row(struct reader *reader, struct op_key *key)
{
    key->name = get_name(reader);
    key->configured = get_bool(reader);
    key->concurrency = get_u32(reader);
    key->weight = get_u32(reader);
    get_rate(reader, &key->rate);
    key->tat = (int64_t)get_number(reader, (uint64_t)TAT_MAX);
}

void job_write(struct writer *writer, const struct op_job *job)
{
    put_job(writer, job);
}

bool job_read(struct engine_slice bytes, struct op_job *ret_job)
{
    struct reader reader = {.at = bytes.at, .end = (const unsigned char *)bytes.at + bytes.count};

    memset(ret_job, 0, sizeof *ret_job);
    get_job(&reader, ret_job);
    return !reader.bad && reader.at == reader.end && ret_job->has_payload;
}

static void put_schedule(struct writer *writer, const struct op_schedule *schedule)
{
    put_slice(writer, schedule->name);
    put_slice(writer, schedule->text);
    put_slice(writer, schedule->zone);
    put_number(writer, schedule->overlap);
    put_number(writer, schedule->catch_up);
    put_number(writer, schedule->paused);
    put_number(writer, (uint64_t)schedule->next_ms);
    put_number(writer, schedule->last_id);
    put_slice(writer, schedule->job);
}

static void get_schedule(struct reader *reader, struct op_schedule *schedule)
{
    struct op_job job;

    schedule->name = get_name(reader);
    schedule->text = get_name(reader);
    schedule->zone = get_key(reader);
    schedule->overlap = (uint8_t)get_number(reader, ENGINE_OVERLAP_SKIP);
    schedule->catch_up = (uint8_t)get_number(reader, ENGINE_CATCH_UP_ALL);
    schedule->paused = get_bool(reader);
    schedule->next_ms = get_time(reader);
    schedule->last_id = get_number(reader, UINT64_MAX);
    schedule->job = get_slice(reader, UINT32_MAX);
    if (!reader->bad && !job_read(schedule->job, &job)) reader->bad = true;
}

static void put_bulk(struct writer *writer, const struct op_bulk *bulk)
{
    put_number(writer, bulk->id);
    put_number(writer, bulk->action);
    put_number(writer, bulk->next);
    put_number(writer, bulk->failed);
    put_number(writer, bulk->count);
    put_slice(writer, bulk->ids);
}

static void get_bulk(struct reader *reader, struct op_bulk *bulk)
{
    struct reader ids = {0};

    bulk->id = get_number(reader, UINT64_MAX - 1);
    bulk->action = (uint8_t)get_number(reader, ENGINE_ACTION_CANCEL);
    bulk->next = get_u32(reader);
    bulk->failed = get_u32(reader);
    bulk->count = (uint32_t)get_number(reader, ENGINE_BULK_MAX);
    bulk->ids = get_slice(reader, UINT32_MAX);
    if (reader->bad || bulk->action == 0 || bulk->next > bulk->count) {
        reader->bad = true;
        return;
    }
    ids.at = bulk->ids.at;
    ids.end = ids.at + bulk->ids.count;
    for (uint32_t i = 0; i < bulk->count && !ids.bad; i++) get_number(&ids, UINT64_MAX / 4);
    if (ids.bad || ids.at != ids.end) reader->bad = true;
}

/* ---- Operations ---- */

static size_t job_bytes_max(const struct op_job *job)
{
    size_t bytes = OP_SET_BYTES_MAX + 12 * 10 + job->set.result.count;
    bytes += job->queue.count + job->kind.count + job->policy.count + job->tags.count;
    bytes += job->unique_key.count + job->idempotency_key.count + job->fairness_key.count;
    bytes += job->order_key.count + job->payload.count + job->trace.count + 10 * 10;
    for (uint32_t i = 0; i < job->limit_key_count; i++) bytes += job->limit_keys[i].count + 10;
    return bytes;
}

size_t op_bytes_max(const struct op *op)
{
    switch (op->type) {
    case OP_JOB: return job_bytes_max(&op->job);
    case OP_SET: return OP_SET_BYTES_MAX + op->set.result.count + 10;
    case OP_FORGET: return 20;
    case OP_ERROR: return 60 + op->error.class.count + op->error.message.count;
    case OP_QUEUE: return 100 + op->queue.name.count;
    case OP_KEY: return 90 + op->key.name.count;
    case OP_PAYLOAD: return 40 + op->payload.bytes.count + op->payload.trace.count;
    case OP_SCHEDULE:
        return 100 + op->schedule.name.count + op->schedule.text.count + op->schedule.zone.count +
               op->schedule.job.count;
    case OP_SCHEDULED:
    case OP_UNSCHEDULE: return 50 + op->schedule.name.count;
    case OP_BULK: return 80 + op->bulk.ids.count;
    case OP_BULK_AT:
    case OP_BULK_DROP: return 50;
    case OP_TYPES: break;
    }
    return 0;
}

void op_write(struct writer *writer, const struct op *op)
{
    put_number(writer, op->type);
    switch (op->type) {
    case OP_JOB: put_job(writer, &op->job); break;
    case OP_SET: put_set(writer, &op->set); break;
    case OP_FORGET: put_number(writer, op->forget); break;
    case OP_ERROR:
        put_number(writer, op->error.id);
        put_number(writer, op->error.run);
        put_number(writer, (uint64_t)op->error.at_ms);
        put_slice(writer, op->error.class);
        put_slice(writer, op->error.message);
        break;
    case OP_QUEUE: put_queue(writer, &op->queue); break;
    case OP_KEY: put_key(writer, &op->key); break;
    case OP_PAYLOAD:
        put_number(writer, op->payload.id);
        put_slice(writer, op->payload.bytes);
        put_slice(writer, op->payload.trace);
        break;
    case OP_SCHEDULE: put_schedule(writer, &op->schedule); break;
    case OP_SCHEDULED:
        put_slice(writer, op->schedule.name);
        put_number(writer, (uint64_t)op->schedule.next_ms);
        put_number(writer, op->schedule.last_id);
        break;
    case OP_UNSCHEDULE: put_slice(writer, op->schedule.name); break;
    case OP_BULK: put_bulk(writer, &op->bulk); break;
    case OP_BULK_AT:
        put_number(writer, op->bulk.id);
        put_number(writer, op->bulk.next);
        put_number(writer, op->bulk.failed);
        break;
    case OP_BULK_DROP: put_number(writer, op->bulk.id); break;
    case OP_TYPES: break;
    }
}

bool op_read(struct reader *reader, struct op *ret_op)
{
    if (reader->bad || reader->at == reader->end) return false;
    memset(ret_op, 0, sizeof *ret_op);
    ret_op->type = (enum op_type)get_number(reader, OP_TYPES - 1);
    switch (ret_op->type) {
    case OP_JOB: get_job(reader, &ret_op->job); break;
    case OP_SET: get_set(reader, &ret_op->set); break;
    case OP_FORGET: ret_op->forget = get_number(reader, UINT64_MAX - 1); break;
    case OP_ERROR:
        ret_op->error.id = get_number(reader, UINT64_MAX - 1);
        ret_op->error.run = get_u16(reader);
        ret_op->error.at_ms = get_time(reader);
        ret_op->error.class = get_key(reader);
        ret_op->error.message = get_slice(reader, UINT16_MAX);
        break;
    case OP_QUEUE: get_queue(reader, &ret_op->queue); break;
    case OP_KEY: get_key_row(reader, &ret_op->key); break;
    case OP_PAYLOAD:
        ret_op->payload.id = get_number(reader, UINT64_MAX - 1);
        ret_op->payload.bytes = get_slice(reader, UINT32_MAX);
        ret_op->payload.trace = get_slice(reader, UINT32_MAX);
        break;
    case OP_SCHEDULE: get_schedule(reader, &ret_op->schedule); break;
    case OP_SCHEDULED:
        ret_op->schedule.name = get_name(reader);
        ret_op->schedule.next_ms = get_time(reader);
        ret_op->schedule.last_id = get_number(reader, UINT64_MAX);
        break;
    case OP_UNSCHEDULE: ret_op->schedule.name = get_name(reader); break;
    case OP_BULK: get_bulk(reader, &ret_op->bulk); break;
    case OP_BULK_AT:
        ret_op->bulk.id = get_number(reader, UINT64_MAX - 1);
        ret_op->bulk.next = get_u32(reader);
        ret_op->bulk.failed = get_u32(reader);
        break;
    case OP_BULK_DROP: ret_op->bulk.id = get_number(reader, UINT64_MAX - 1); break;
    default: reader->bad = true; break;
    }
    return !reader->bad;
}

void head_write(struct writer *writer, const struct record_head *head)
{
    put_number(writer, RECORD_VERSION);
    put_number(writer, (uint64_t)head->now_ms);
    put_number(writer, head->last_id);
    put_number(writer, head->last_token);
    put_number(writer, head->last_mark);
    put_number(writer, head->last_turn);
}

bool head_read(struct reader *reader, struct record_head *ret_head)
{
    if (get_number(reader, UINT64_MAX) != RECORD_VERSION) reader->bad = true;
    ret_head->now_ms = (int64_t)get_number(reader, (uint64_t)ENGINE_TIME_MS_MAX);
    /* Far from the end, so that counting on never wraps. */
    ret_head->last_id = get_number(reader, UINT64_MAX / 2);
    ret_head->last_token = get_number(reader, UINT64_MAX / 2);
    ret_head->last_mark = get_number(reader, UINT64_MAX / 2);
    ret_head->last_turn = get_number(reader, UINT64_MAX / 2);
    return !reader->bad;
}

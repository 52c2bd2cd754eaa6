/* codec.c - operations and heads to bytes and back. One function each way for a row's members, side
 * by side, so that a member is never written without being read. */
#include "engine/codec_parts.h"

/* ---- Numbers ---- */

void put_long_number(struct writer *writer, uint64_t value)
{
    while (value >= 0x80) {
        put_byte(writer, (unsigned)(value & 0x7f) | 0x80);
        value >>= 7;
    }
    put_byte(writer, (unsigned)value);
}

uint64_t get_long_number(struct reader *reader, uint64_t max)
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

/* ---- Other rows ---- */

/* The state of a job or set is in the byte with the type. */
enum { TYPE_USUAL_SET = 7, TYPE_BITS = 4, TYPE_MASK = (1 << TYPE_BITS) - 1 };
_Static_assert((int)OP_TYPES <= 16 && (int)ENGINE_STATES <= 16, "they share a byte");

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
                           (queue->draining ? 4u : 0u) | (queue->waits ? 8u : 0u));
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
    flags = get_number(reader, 15);
    queue->configured = flags & 1;
    queue->paused = flags & 2;
    queue->draining = flags & 4;
    queue->waits = flags & 8;
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

static size_t job_bytes_max(const struct op_job *job)
{
    /* Counts and numbers of all that it can have. */
    size_t bytes = OP_SET_BYTES_MAX + job->set.result.count + 100;
    bytes += job->queue.count + job->kind.count + job->policy.count + job->tags.count;
    bytes += job->unique_key.count + job->idempotency_key.count + job->fairness_key.count;
    bytes += job->order_key.count + job->payload.count + job->trace.count;
    for (uint32_t i = 0; i < job->limit_key_count; i++) bytes += job->limit_keys[i].count;
    return bytes;
}

static void put_type(struct writer *writer, unsigned type, uint8_t state)
{
    put_byte(writer, type | (unsigned)state << TYPE_BITS);
}

void job_write(struct writer *writer, const struct op_job *job)
{
    assert(writer->base.now_ms == 0 && writer->base.last_id == 0);
    assert(writer->room - writer->count >= job_bytes_max(job));
    put_type(writer, OP_JOB, job->set.state);
    put_job(writer, job);
}

bool job_read(struct engine_slice bytes, struct op_job *ret_job)
{
    struct reader reader = {.at = bytes.at, .end = (const unsigned char *)bytes.at + bytes.count};
    unsigned byte = get_byte(&reader);

    memset(ret_job, 0, sizeof *ret_job);
    if ((byte & TYPE_MASK) != OP_JOB) return false;
    get_job(&reader, byte >> TYPE_BITS, ret_job);
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
    put_time(writer, schedule->next_ms);
    put_near(writer, schedule->last_id, writer->base.last_id);
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
    schedule->last_id = get_near(reader, reader->base.last_id);
    schedule->job = get_slice(reader, UINT32_MAX);
    if (!reader->bad && !job_read(schedule->job, &job)) reader->bad = true;
}

static void put_bulk(struct writer *writer, const struct op_bulk *bulk)
{
    put_near(writer, bulk->id, writer->base.last_id);
    put_number(writer, bulk->action);
    put_number(writer, bulk->next);
    put_number(writer, bulk->failed);
    put_number(writer, bulk->count);
    put_slice(writer, bulk->ids);
}

static void get_bulk(struct reader *reader, struct op_bulk *bulk)
{
    struct reader ids = {0};

    bulk->id = get_inside(reader, get_near(reader, reader->base.last_id));
    bulk->action = (uint8_t)get_number(reader, ENGINE_ACTION_CANCEL);
    bulk->next = get_u32(reader);
    bulk->failed = get_u32(reader);
    bulk->count = (uint32_t)get_number(reader, ENGINE_BULK_MAX);
    bulk->ids = get_slice(reader, ENGINE_BULK_BYTES_MAX);
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

size_t op_bytes_max(const struct op *op)
{
    switch (op->type) {
    case OP_JOB: return job_bytes_max(&op->job);
    case OP_SET: return OP_SET_BYTES_MAX + op->set.result.count;
    case OP_FORGET: return 20;
    case OP_ERROR: return 60 + op->error.class.count + op->error.message.count;
    case OP_QUEUE: return 100 + op->queue.name.count;
    case OP_KEY: return 90 + op->key.name.count;
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

static void put_error(struct writer *writer, const struct op_error *error)
{
    put_old_id(writer, error->id);
    put_number(writer, error->run);
    put_time(writer, error->at_ms);
    put_slice(writer, error->class);
    put_slice(writer, error->message);
}

static void get_error(struct reader *reader, struct op_error *error)
{
    error->id = get_old_id(reader);
    error->run = get_u16(reader);
    error->at_ms = get_time(reader);
    error->class = get_key(reader);
    error->message = get_slice(reader, ENGINE_MESSAGE_BYTES_MAX);
}

void set_write(struct writer *writer, const struct op_set *set)
{
    bool usual = set_is_usual(&writer->base, set);

    assert(writer->room - writer->count >= OP_SET_BYTES_MAX + set->result.count);
    put_type(writer, usual ? TYPE_USUAL_SET : OP_SET, set->state);
    put_old_id(writer, set->id);
    put_set(writer, set, usual);
}

static void get_whole_set(struct reader *reader, bool usual, unsigned state, struct op_set *set)
{
    set->id = get_old_id(reader);
    get_set(reader, state, usual, set);
    /* A usual one has no other form. */
    if (!reader->bad && usual != set_is_usual(&reader->base, set)) reader->bad = true;
}

void op_write(struct writer *writer, const struct op *op)
{
    assert(writer->room - writer->count >= op_bytes_max(op));
    if (op->type == OP_SET) {
        set_write(writer, &op->set);
        return;
    }
    put_type(writer, op->type, op->type == OP_JOB ? op->job.set.state : 0);
    switch (op->type) {
    case OP_JOB: put_job(writer, &op->job); break;
    case OP_FORGET: put_old_id(writer, op->forget); break;
    case OP_ERROR: put_error(writer, &op->error); break;
    case OP_QUEUE: put_queue(writer, &op->queue); break;
    case OP_KEY: put_key(writer, &op->key); break;
    case OP_SCHEDULE: put_schedule(writer, &op->schedule); break;
    case OP_SCHEDULED:
        put_slice(writer, op->schedule.name);
        put_time(writer, op->schedule.next_ms);
        put_near(writer, op->schedule.last_id, writer->base.last_id);
        break;
    case OP_UNSCHEDULE: put_slice(writer, op->schedule.name); break;
    case OP_BULK: put_bulk(writer, &op->bulk); break;
    case OP_BULK_AT:
        put_old_id(writer, op->bulk.id);
        put_number(writer, op->bulk.next);
        put_number(writer, op->bulk.failed);
        break;
    case OP_BULK_DROP: put_old_id(writer, op->bulk.id); break;
    case OP_SET:
    case OP_TYPES: break;
    }
}

bool op_read(struct reader *reader, struct op *ret_op)
{
    unsigned byte, type, state;

    if (reader->bad || reader->at == reader->end) return false;
    memset(ret_op, 0, sizeof *ret_op);
    byte = get_byte(reader);
    type = byte & TYPE_MASK;
    state = byte >> TYPE_BITS;
    ret_op->type = type == TYPE_USUAL_SET ? OP_SET : (enum op_type)type;
    if (state > 0 && ret_op->type != OP_JOB && ret_op->type != OP_SET) reader->bad = true;
    switch (ret_op->type) {
    case OP_JOB: get_job(reader, state, &ret_op->job); break;
    case OP_SET: get_whole_set(reader, type == TYPE_USUAL_SET, state, &ret_op->set); break;
    case OP_FORGET: ret_op->forget = get_old_id(reader); break;
    case OP_ERROR: get_error(reader, &ret_op->error); break;
    case OP_QUEUE: get_queue(reader, &ret_op->queue); break;
    case OP_KEY: get_key_row(reader, &ret_op->key); break;
    case OP_SCHEDULE: get_schedule(reader, &ret_op->schedule); break;
    case OP_SCHEDULED:
        ret_op->schedule.name = get_name(reader);
        ret_op->schedule.next_ms = get_time(reader);
        ret_op->schedule.last_id = get_near(reader, reader->base.last_id);
        break;
    case OP_UNSCHEDULE: ret_op->schedule.name = get_name(reader); break;
    case OP_BULK: get_bulk(reader, &ret_op->bulk); break;
    case OP_BULK_AT:
        ret_op->bulk.id = get_old_id(reader);
        ret_op->bulk.next = get_u32(reader);
        ret_op->bulk.failed = get_u32(reader);
        break;
    case OP_BULK_DROP: ret_op->bulk.id = get_old_id(reader); break;
    default: reader->bad = true; break;
    }
    return !reader->bad;
}

/* ---- Heads ---- */

/* How far a counter went on in the record: two bits of a byte for each. */
enum { STEP_UNSAID, STEP_NONE, STEP_ONE, STEP_MORE, STEP_BITS = 2 };

/* Far from the end, so that counting on never wraps. */
#define COUNTER_MAX (UINT64_MAX / 2)

static unsigned step_of(uint64_t begin, uint64_t end, bool said)
{
    assert(end >= begin);
    if (end == begin) return said ? STEP_NONE : STEP_UNSAID;
    return end - begin == 1 ? STEP_ONE : STEP_MORE;
}

static void put_counter(struct writer *writer, unsigned step, uint64_t number, uint64_t difference)
{
    if (step == STEP_UNSAID) return;
    put_number(writer, number);
    if (step == STEP_MORE) put_number(writer, difference);
}

/* Where it is after the record. */
static uint64_t get_step(struct reader *reader, unsigned step, uint64_t begin)
{
    uint64_t more = step == STEP_ONE ? 1 : 0;

    if (begin > COUNTER_MAX) {
        reader->bad = true;
        return 0;
    }
    if (step == STEP_MORE) {
        more = get_number(reader, COUNTER_MAX);
        if (more < 2) reader->bad = true;
    }
    if (more > COUNTER_MAX - begin) reader->bad = true;
    return begin + more;
}

/* One that is as large as the last id, about. */
static uint64_t get_counter(struct reader *reader, unsigned step, uint64_t *base)
{
    if (step == STEP_UNSAID) return 0;
    *base = get_near(reader, reader->base.last_id);
    return get_step(reader, step, *base);
}

void head_write(struct writer *writer, const struct record_head *head)
{
    const struct record_head *base = &writer->base;
    unsigned id = step_of(base->last_id, head->last_id, true);
    unsigned token = step_of(base->last_token, head->last_token, true);
    unsigned mark = step_of(base->last_mark, head->last_mark, writer->says_marks);
    unsigned turn = step_of(base->last_turn, head->last_turn, writer->says_turns);
    uint64_t went_on_ms = (uint64_t)(head->now_ms - base->now_ms);

    assert(writer->room - writer->count >= RECORD_HEAD_BYTES_MAX);
    assert(head->now_ms >= base->now_ms);
    put_byte(writer, RECORD_VERSION);
    put_byte(writer, id | token << STEP_BITS | mark << 2 * STEP_BITS | turn << 3 * STEP_BITS);
    put_number(writer, (uint64_t)base->now_ms << 1 | (went_on_ms > 0));
    if (went_on_ms > 0) put_number(writer, went_on_ms);
    put_counter(writer, id, base->last_id, head->last_id - base->last_id);
    put_counter(writer, token, zigzag(base->last_token - base->last_id),
                head->last_token - base->last_token);
    put_counter(writer, mark, zigzag(base->last_mark - base->last_id),
                head->last_mark - base->last_mark);
    put_counter(writer, turn, zigzag(base->last_turn - base->last_id),
                head->last_turn - base->last_turn);
}

static void get_now(struct reader *reader, struct record_head *head)
{
    uint64_t number = get_number(reader, (uint64_t)ENGINE_TIME_MS_MAX << 1 | 1);
    uint64_t went_on_ms = number & 1 ? get_number(reader, (uint64_t)ENGINE_TIME_MS_MAX) : 0;

    reader->base.now_ms = (int64_t)(number >> 1);
    head->now_ms = reader->base.now_ms + (int64_t)went_on_ms;
    if ((number & 1) != (went_on_ms > 0) || head->now_ms > ENGINE_TIME_MS_MAX) reader->bad = true;
}

bool head_read(struct reader *reader, struct record_head *ret_head)
{
    enum { STEP_MASK = (1 << STEP_BITS) - 1 };
    struct record_head head = {0};
    unsigned steps;

    if (get_byte(reader) != RECORD_VERSION) reader->bad = true;
    steps = get_byte(reader);
    if ((steps & STEP_MASK) == STEP_UNSAID || (steps >> STEP_BITS & STEP_MASK) == STEP_UNSAID) {
        reader->bad = true;
    }
    get_now(reader, &head);
    reader->base.last_id = get_number(reader, COUNTER_MAX);
    head.last_id = get_step(reader, steps & STEP_MASK, reader->base.last_id);
    head.last_token = get_counter(reader, steps >> STEP_BITS & STEP_MASK, &reader->base.last_token);
    head.last_mark =
        get_counter(reader, steps >> 2 * STEP_BITS & STEP_MASK, &reader->base.last_mark);
    head.last_turn = get_counter(reader, steps >> 3 * STEP_BITS, &reader->base.last_turn);
    *ret_head = head;
    return !reader->bad;
}

/* codec_job.c - jobs, what changes of them, and their policies, to bytes and back.
 *
 * What a row has only now and then is behind a bit that says that it is there. Which bits that are
 * is computed from the row, also after reading: bits that say otherwise are refused, and so there
 * is one way to write each row. */
#include "engine/codec_parts.h"

/* ---- Policies ---- */

enum {
    POLICY_JITTER = 1,
    POLICY_IDEMPOTENT = 2,
    POLICY_RETRY = 4, /* from here on: it is said, since it is not what it is without */
    POLICY_TIMEOUT = 8,
    POLICY_UNIQUE_MS = 16,
    POLICY_UNIQUE_STATES = 32,
    POLICY_IDEMPOTENCY_MS = 64,
    POLICY_NEVER = 128,
};

static unsigned policy_parts(const struct policy_text *policy)
{
    bool retry =
        policy->attempts_max != 1 || policy->backoff_ms != 0 || policy->backoff_ms_max != 0;

    return (policy->jitter ? POLICY_JITTER : 0u) | (policy->idempotent ? POLICY_IDEMPOTENT : 0u) |
           (retry ? POLICY_RETRY : 0u) | (policy->timeout_ms ? POLICY_TIMEOUT : 0u) |
           (policy->unique_ms ? POLICY_UNIQUE_MS : 0u) |
           (policy->unique_states != ENGINE_LIVE_STATES ? POLICY_UNIQUE_STATES : 0u) |
           (policy->idempotency_ms ? POLICY_IDEMPOTENCY_MS : 0u) |
           (policy->never_count ? POLICY_NEVER : 0u);
}

void policy_write(struct writer *writer, const struct policy_text *policy)
{
    unsigned parts = policy_parts(policy);

    assert(writer->room - writer->count >= POLICY_BYTES_MAX);
    put_byte(writer, parts);
    if (parts & POLICY_RETRY) {
        put_number(writer, policy->attempts_max);
        put_number(writer, policy->backoff_ms);
        put_number(writer, policy->backoff_ms_max);
    }
    if (parts & POLICY_TIMEOUT) put_number(writer, policy->timeout_ms);
    if (parts & POLICY_UNIQUE_MS) put_number(writer, (uint64_t)policy->unique_ms);
    if (parts & POLICY_UNIQUE_STATES) put_number(writer, policy->unique_states);
    if (parts & POLICY_IDEMPOTENCY_MS) put_number(writer, (uint64_t)policy->idempotency_ms);
    if (parts & POLICY_NEVER) put_number(writer, policy->never_count);
    for (uint32_t i = 0; i < policy->never_count; i++) put_slice(writer, policy->never[i]);
}

bool policy_read(struct engine_slice text, struct policy_text *ret_policy)
{
    struct reader reader = {.at = text.at, .end = (const unsigned char *)text.at + text.count};
    struct policy_text policy = {.attempts_max = 1, .unique_states = ENGINE_LIVE_STATES};
    unsigned parts = get_byte(&reader);

    policy.jitter = parts & POLICY_JITTER;
    policy.idempotent = parts & POLICY_IDEMPOTENT;
    if (parts & POLICY_RETRY) {
        policy.attempts_max = get_u16(&reader);
        policy.backoff_ms = get_u32(&reader);
        policy.backoff_ms_max = get_u32(&reader);
        if (policy.attempts_max == 0) reader.bad = true;
    }
    if (parts & POLICY_TIMEOUT) policy.timeout_ms = get_u32(&reader);
    if (parts & POLICY_UNIQUE_MS) {
        policy.unique_ms = (int64_t)get_number(&reader, (uint64_t)ENGINE_SPAN_MS_MAX);
    }
    if (parts & POLICY_UNIQUE_STATES) {
        policy.unique_states = (uint32_t)get_number(&reader, ENGINE_STATE_BIT(ENGINE_STATES) - 1);
        /* A job that has not ended holds its key: hold.c. */
        if (ENGINE_LIVE_STATES & ~policy.unique_states) reader.bad = true;
    }
    if (parts & POLICY_IDEMPOTENCY_MS) {
        policy.idempotency_ms = (int64_t)get_number(&reader, (uint64_t)ENGINE_SPAN_MS_MAX);
    }
    if (parts & POLICY_NEVER) {
        policy.never_count = (uint32_t)get_number(&reader, ENGINE_CLASSES_MAX);
    }
    for (uint32_t i = 0; i < policy.never_count; i++) policy.never[i] = get_name(&reader);
    if (reader.bad || reader.at != reader.end || parts != policy_parts(&policy)) return false;
    *ret_policy = policy;
    return true;
}

/* ---- Sets ---- */

enum {
    SET_RUNS = 3, /* which of these it is */
    SET_RUNS_NONE = 0,
    SET_RUNS_ONE = 1,  /* and one attempt */
    SET_RUNS_SAME = 2, /* as many attempts */
    SET_RUNS_BOTH = 3,
    SET_MARK = 4,
    SET_FLAGS = 8,
    SET_FROM = 16,
    SET_TO = 32,
    SET_WEIGHTS = 64, /* of from and to: gate and deficit, not 0 and 1 */
    SET_NOTE = 128,
};
enum { SET_FLAG_BITS = 5, SET_GATES = ENGINE_LIMIT_KEYS_MAX + 1 };

static const unsigned usual_parts[ENGINE_STATES] = {
    [ENGINE_READY] = SET_MARK | SET_TO,
    [ENGINE_BLOCKED] = SET_MARK | SET_TO,
    [ENGINE_LEASED] = SET_RUNS_ONE | SET_MARK | SET_FROM,
    [ENGINE_DONE] = SET_RUNS_ONE,
};

static unsigned set_runs(const struct op_set *set)
{
    if (set->runs == 0) return SET_RUNS_NONE;
    if (set->attempts != set->runs) return SET_RUNS_BOTH;
    return set->runs == 1 ? SET_RUNS_ONE : SET_RUNS_SAME;
}

static unsigned set_parts(const struct op_set *set)
{
    bool weights = (set->from.turn && (set->from.deficit != 1 || set->from_gate != 0)) ||
                   (set->to.turn && set->to.deficit != 1);

    return set_runs(set) | (set->mark ? SET_MARK : 0u) |
           (set->flags || set->blocked_on ? SET_FLAGS : 0u) | (set->from.turn ? SET_FROM : 0u) |
           (set->to.turn ? SET_TO : 0u) | (weights ? SET_WEIGHTS : 0u) |
           (set->note || set->has_result ? SET_NOTE : 0u);
}

static bool has_place(uint8_t state)
{
    return state == ENGINE_READY || state == ENGINE_BLOCKED;
}

/* What its mark is near to. */
static uint64_t mark_base(const struct record_head *base, uint8_t state)
{
    if (has_place(state)) return base->last_mark;
    return state == ENGINE_LEASED ? base->last_token : 0;
}

/* A lease that begins. */
static bool starts_now(bool usual, uint8_t state)
{
    return usual && state == ENGINE_LEASED;
}

bool set_is_usual(const struct record_head *base, const struct op_set *set)
{
    if (set_parts(set) != usual_parts[set->state]) return false;
    return set->state != ENGINE_LEASED || set->started_ms == base->now_ms;
}

static void put_runs(struct writer *writer, const struct op_set *set, bool usual)
{
    unsigned runs = set_runs(set);

    /* What has not run has not been begun. */
    assert(set->runs > 0 || (set->attempts == 0 && set->started_ms == 0));
    if (runs == SET_RUNS_NONE) return;
    if (runs != SET_RUNS_ONE) put_number(writer, set->runs);
    if (runs == SET_RUNS_BOTH) put_number(writer, set->attempts);
    if (!starts_now(usual, set->state)) put_time(writer, set->started_ms);
}

static void get_runs(struct reader *reader, unsigned runs, bool usual, struct op_set *set)
{
    if (runs == SET_RUNS_NONE) return;
    set->runs = runs == SET_RUNS_ONE ? 1 : get_u16(reader);
    set->attempts = runs == SET_RUNS_BOTH ? get_u16(reader) : set->runs;
    set->started_ms = starts_now(usual, set->state) ? reader->base.now_ms : get_time(reader);
}

static void put_turns(struct writer *writer, unsigned parts, const struct op_set *set)
{
    uint64_t last_turn = writer->base.last_turn;

    if (parts & SET_FROM) put_near(writer, set->from.turn, last_turn);
    if (parts & SET_FROM && parts & SET_WEIGHTS) {
        put_number(writer, (uint64_t)set->from.deficit * SET_GATES + set->from_gate);
    }
    if (parts & SET_TO) put_near(writer, set->to.turn, last_turn);
    if (parts & SET_TO && parts & SET_WEIGHTS) put_number(writer, set->to.deficit);
}

static void get_turns(struct reader *reader, unsigned parts, struct op_set *set)
{
    uint64_t last_turn = reader->base.last_turn;
    uint64_t from = SET_GATES;

    if (parts & SET_FROM) {
        set->from.turn = get_inside(reader, get_near(reader, last_turn));
        if (parts & SET_WEIGHTS) {
            from = get_number(reader, (uint64_t)UINT32_MAX * SET_GATES + SET_GATES - 1);
        }
        set->from.deficit = (uint32_t)(from / SET_GATES);
        set->from_gate = (uint8_t)(from % SET_GATES);
    }
    if (parts & SET_TO) {
        set->to.turn = get_inside(reader, get_near(reader, last_turn));
        set->to.deficit = parts & SET_WEIGHTS ? get_u32(reader) : 1;
    }
}

/* The result of a job that is done has the note as its count, and may be here. */
static void put_note(struct writer *writer, const struct op_set *set)
{
    assert(!set->has_result || (set->state == ENGINE_DONE && set->note == set->result.count));
    if (set->state != ENGINE_DONE) {
        put_number(writer, set->note);
        return;
    }
    put_number(writer, (uint64_t)set->note << 1 | set->has_result);
    if (set->has_result) put_bytes(writer, set->result);
}

static void get_note(struct reader *reader, struct op_set *set)
{
    uint64_t number;

    if (set->state != ENGINE_DONE) {
        set->note = get_u32(reader);
        return;
    }
    number = get_number(reader, (uint64_t)UINT32_MAX << 1 | 1);
    set->note = (uint32_t)(number >> 1);
    set->has_result = number & 1;
    if (set->has_result) set->result = get_bytes(reader, set->note);
}

void put_set(struct writer *writer, const struct op_set *set, bool usual)
{
    unsigned parts = set_parts(set);

    if (parts & SET_MARK && has_place(set->state)) writer->says_marks = true;
    if (parts & (SET_FROM | SET_TO)) writer->says_turns = true;
    if (!usual) put_byte(writer, parts);
    put_runs(writer, set, usual);
    if (parts & SET_MARK) put_near(writer, set->mark, mark_base(&writer->base, set->state));
    put_time(writer, set->when_ms);
    if (parts & SET_FLAGS) {
        put_byte(writer, set->flags | (unsigned)set->blocked_on << SET_FLAG_BITS);
    }
    put_turns(writer, parts, set);
    if (parts & SET_NOTE) put_note(writer, set);
}

void get_set(struct reader *reader, unsigned state, bool usual, struct op_set *set)
{
    unsigned parts;

    if (state == ENGINE_NO_JOB || state >= ENGINE_STATES) {
        reader->bad = true;
        return;
    }
    set->state = (uint8_t)state;
    parts = usual ? usual_parts[state] : get_byte(reader);
    get_runs(reader, parts & SET_RUNS, usual, set);
    if (parts & SET_MARK) set->mark = get_near(reader, mark_base(&reader->base, set->state));
    set->when_ms = get_time(reader);
    if (parts & SET_FLAGS) {
        unsigned flags = get_byte(reader);
        set->flags = flags & ((1u << SET_FLAG_BITS) - 1);
        set->blocked_on = (uint8_t)(flags >> SET_FLAG_BITS);
        if (set->blocked_on >= ENGINE_LIMIT_KEYS_MAX) reader->bad = true;
    }
    get_turns(reader, parts, set);
    if (parts & SET_NOTE) get_note(reader, set);
    /* What is said is not what it is without. */
    if (parts != set_parts(set)) reader->bad = true;
}

/* ---- Jobs ---- */

enum {
    JOB_SAYS_PAYLOAD = 1,
    JOB_SAYS_UNIQUE = 2,
    JOB_SAYS_FAIRNESS = 4,
    JOB_SAYS_LIMIT_AS_FAIRNESS = 8, /* its fairness key is its first limit key */
    JOB_SAYS_VERSION = 16,
    JOB_SAYS_TRACE = 32,
    JOB_SAYS_ORDER = 64, /* the others are rare: with them it takes two bytes */
    JOB_SAYS_TAGS = 128,
    JOB_SAYS_IDEMPOTENCY = 256,
    JOB_SAYS_CREATED = 512, /* not when the record began */
    JOB_SAYS_EXPIRES = 1024,
    JOB_SAYS_BATCH = 2048,
    JOB_SAYS_ALL = 4095,
};
enum { PRIORITY_BITS = 5 };
_Static_assert(ENGINE_PRIORITY_MAX == (1 << PRIORITY_BITS) - 1, "it shares a byte");

static bool is_first_limit(const struct op_job *job, struct engine_slice key)
{
    return job->limit_key_count > 0 && job->limit_keys[0].count == key.count &&
           memcmp(job->limit_keys[0].at, key.at, key.count) == 0;
}

static unsigned job_parts(const struct op_job *job, int64_t base_ms)
{
    unsigned fairness = 0;

    if (job->fairness_key.count) {
        fairness =
            is_first_limit(job, job->fairness_key) ? JOB_SAYS_LIMIT_AS_FAIRNESS : JOB_SAYS_FAIRNESS;
    }
    return fairness | (job->has_payload ? JOB_SAYS_PAYLOAD : 0u) |
           (job->unique_key.count ? JOB_SAYS_UNIQUE : 0u) | (job->version ? JOB_SAYS_VERSION : 0u) |
           (job->trace.count ? JOB_SAYS_TRACE : 0u) | (job->order_key.count ? JOB_SAYS_ORDER : 0u) |
           (job->tags.count ? JOB_SAYS_TAGS : 0u) |
           (job->idempotency_key.count ? JOB_SAYS_IDEMPOTENCY : 0u) |
           (job->created_ms != base_ms ? JOB_SAYS_CREATED : 0u) |
           (job->expires_ms ? JOB_SAYS_EXPIRES : 0u) | (job->batch ? JOB_SAYS_BATCH : 0u);
}

static void put_payload(struct writer *writer, unsigned parts, const struct op_job *job)
{
    if (parts & JOB_SAYS_PAYLOAD) {
        put_slice(writer, job->payload);
        if (parts & JOB_SAYS_TRACE) put_slice(writer, job->trace);
    } else {
        put_number(writer, job->position);
        put_number(writer, job->payload_bytes);
    }
}

static void get_payload(struct reader *reader, unsigned parts, struct op_job *job)
{
    job->has_payload = (parts & JOB_SAYS_PAYLOAD) != 0;
    if (job->has_payload) {
        job->payload = get_slice(reader, UINT32_MAX);
        job->payload_bytes = (uint32_t)job->payload.count;
        if (parts & JOB_SAYS_TRACE) job->trace = get_slice(reader, UINT32_MAX);
    } else {
        job->position = get_number(reader, UINT64_MAX);
        job->payload_bytes = get_u32(reader);
    }
}

void put_job(struct writer *writer, const struct op_job *job)
{
    unsigned parts = job_parts(job, writer->base.now_ms);

    put_near(writer, job->set.id, writer->base.last_id);
    put_set(writer, &job->set, false);
    put_number(writer, parts);
    put_byte(writer, job->priority | job->limit_key_count << PRIORITY_BITS);
    put_slice(writer, job->queue);
    put_slice(writer, job->kind);
    if (parts & JOB_SAYS_VERSION) put_number(writer, job->version);
    if (parts & JOB_SAYS_CREATED) put_time(writer, job->created_ms);
    if (parts & JOB_SAYS_EXPIRES) put_time(writer, job->expires_ms);
    put_slice(writer, job->policy);
    if (parts & JOB_SAYS_TAGS) put_slice(writer, job->tags);
    if (parts & JOB_SAYS_UNIQUE) put_slice(writer, job->unique_key);
    if (parts & JOB_SAYS_IDEMPOTENCY) put_slice(writer, job->idempotency_key);
    for (uint32_t i = 0; i < job->limit_key_count; i++) put_slice(writer, job->limit_keys[i]);
    if (parts & JOB_SAYS_FAIRNESS) put_slice(writer, job->fairness_key);
    if (parts & JOB_SAYS_ORDER) put_slice(writer, job->order_key);
    if (parts & JOB_SAYS_BATCH) put_near(writer, job->batch, writer->base.last_id);
    put_payload(writer, parts, job);
}

void get_job(struct reader *reader, unsigned state, struct op_job *job)
{
    struct policy_text policy;
    unsigned parts, byte;

    job->set.id = get_inside(reader, get_near(reader, reader->base.last_id));
    get_set(reader, state, false, &job->set);
    parts = (unsigned)get_number(reader, JOB_SAYS_ALL);
    byte = get_byte(reader);
    job->priority = byte & ENGINE_PRIORITY_MAX;
    job->limit_key_count = byte >> PRIORITY_BITS;
    if (job->limit_key_count > ENGINE_LIMIT_KEYS_MAX) {
        job->limit_key_count = 0;
        reader->bad = true;
    }
    job->queue = get_name(reader);
    job->kind = get_name(reader);
    if (parts & JOB_SAYS_VERSION) job->version = get_u32(reader);
    job->created_ms = parts & JOB_SAYS_CREATED ? get_time(reader) : reader->base.now_ms;
    if (parts & JOB_SAYS_EXPIRES) job->expires_ms = get_time(reader);
    job->policy = get_slice(reader, POLICY_BYTES_MAX);
    if (parts & JOB_SAYS_TAGS) job->tags = get_key(reader);
    if (parts & JOB_SAYS_UNIQUE) job->unique_key = get_key(reader);
    if (parts & JOB_SAYS_IDEMPOTENCY) job->idempotency_key = get_key(reader);
    for (uint32_t i = 0; i < job->limit_key_count; i++) job->limit_keys[i] = get_name(reader);
    if (parts & JOB_SAYS_FAIRNESS) job->fairness_key = get_key(reader);
    if (parts & JOB_SAYS_LIMIT_AS_FAIRNESS) job->fairness_key = job->limit_keys[0];
    if (parts & JOB_SAYS_ORDER) job->order_key = get_key(reader);
    if (parts & JOB_SAYS_BATCH) job->batch = get_near(reader, reader->base.last_id);
    get_payload(reader, parts, job);
    if (reader->bad) return;
    if (parts != job_parts(job, reader->base.now_ms)) reader->bad = true;
    if (!reader->checked && !policy_read(job->policy, &policy)) reader->bad = true;
}

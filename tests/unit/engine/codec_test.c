/* codec_test.c - operations and heads as bytes: every value comes back, there is one way to write
 * it, and none is longer than it may be. */
#include <stdio.h>

#include "engine/codec.h"
#include "unit/engine/helper.h"

enum { ROUNDS = 20000, ROOM = 1 << 14 };

/* ---- Values: those at edges, and any ---- */

struct dice {
    uint64_t rolled;
    struct record_head base;
    char text[ENGINE_NAME_BYTES_MAX];
};

static uint64_t roll(struct dice *dice, uint64_t below)
{
    return hash_number(++dice->rolled) % below;
}

/* 0 to max, near to a value or anywhere, with few bits or many. */
static uint64_t any_number(struct dice *dice, uint64_t near, uint64_t max)
{
    uint64_t value;

    switch (roll(dice, 6)) {
    case 0: return 0;
    case 1: return max;
    case 2: value = near + roll(dice, 5) - 2; break;
    case 3: value = near + roll(dice, 600) - 300; break;
    default: value = hash_number(++dice->rolled) >> roll(dice, 64); break;
    }
    return value <= max ? value : max;
}

static int64_t any_time(struct dice *dice)
{
    return (int64_t)any_number(dice, (uint64_t)dice->base.now_ms, (uint64_t)TIME_READ_MAX);
}

static uint64_t any_id(struct dice *dice)
{
    uint64_t id = any_number(dice, dice->base.last_id, UINT64_MAX - 1);
    return id ? id : 1;
}

static struct engine_slice any_text(struct dice *dice, size_t count_min)
{
    static const size_t counts[] = {0, 1, 2, 127, 128, ENGINE_NAME_BYTES_MAX};
    size_t count = counts[roll(dice, sizeof counts / sizeof *counts)];
    return (struct engine_slice){dice->text, count < count_min ? count_min : count};
}

static struct record_head any_base(struct dice *dice)
{
    uint64_t max = UINT64_MAX / 2;
    struct record_head base = {
        .now_ms = (int64_t)any_number(dice, T0, (uint64_t)ENGINE_TIME_MS_MAX),
        .last_id = any_number(dice, 100000, max),
    };
    base.last_token = any_number(dice, base.last_id, max);
    base.last_mark = any_number(dice, base.last_id, max);
    base.last_turn = any_number(dice, base.last_id, max);
    return base;
}

static struct op_set any_set(struct dice *dice)
{
    struct op_set set = {
        .id = any_id(dice),
        .state = (uint8_t)(1 + roll(dice, ENGINE_STATES - 1)),
        .runs = (uint16_t)any_number(dice, 1, UINT16_MAX),
        .when_ms = any_time(dice),
        .note = (uint32_t)any_number(dice, 0, UINT32_MAX),
    };
    uint64_t near = set.state == ENGINE_LEASED ? dice->base.last_token : dice->base.last_mark;

    if (roll(dice, 2)) set.flags = (uint8_t)roll(dice, 32);
    if (roll(dice, 2)) set.blocked_on = (uint8_t)roll(dice, ENGINE_LIMIT_KEYS_MAX);
    if (set.runs > 0) {
        set.attempts = roll(dice, 2) ? set.runs : (uint16_t)any_number(dice, 1, UINT16_MAX);
        set.started_ms = roll(dice, 2) ? dice->base.now_ms : any_time(dice);
    }
    set.mark = any_number(dice, near, UINT64_MAX);
    if (roll(dice, 2)) {
        set.from.turn = any_number(dice, dice->base.last_turn, UINT64_MAX - 1);
        set.from.deficit = set.from.turn ? (uint32_t)any_number(dice, 1, UINT32_MAX) : 0;
        set.from_gate = set.from.turn ? (uint8_t)roll(dice, ENGINE_LIMIT_KEYS_MAX + 1) : 0;
    }
    if (roll(dice, 2)) {
        set.to.turn = any_number(dice, dice->base.last_turn, UINT64_MAX - 1);
        set.to.deficit = set.to.turn ? (uint32_t)any_number(dice, 1, UINT32_MAX) : 0;
    }
    if (set.state == ENGINE_DONE && roll(dice, 2)) {
        set.has_result = true;
        set.result = any_text(dice, 0);
        set.note = (uint32_t)set.result.count;
    }
    return set;
}

/* As claims and ends of first attempts are. */
static struct op_set any_usual_set(struct dice *dice)
{
    struct op_set set = any_set(dice);

    set.state = roll(dice, 2) ? ENGINE_LEASED : ENGINE_DONE;
    set.runs = set.attempts = 1;
    set.flags = set.blocked_on = set.from_gate = 0;
    set.note = 0;
    set.has_result = false;
    set.result = (struct engine_slice){0};
    set.to = (struct op_turn){0};
    set.from = (struct op_turn){0};
    set.started_ms = roll(dice, 4) ? dice->base.now_ms : any_time(dice);
    if (set.state == ENGINE_LEASED) set.from = (struct op_turn){any_id(dice), 1};
    set.mark = set.state == ENGINE_LEASED ? any_id(dice) : 0;
    return set;
}

static void any_policy(struct dice *dice, unsigned char room[POLICY_BYTES_MAX],
                       struct engine_slice *ret_policy)
{
    struct writer writer = {room, 0, POLICY_BYTES_MAX};
    struct policy_text policy = {
        .attempts_max = 1 + (uint32_t)any_number(dice, 0, UINT16_MAX - 1),
        .backoff_ms = (uint32_t)any_number(dice, 0, UINT32_MAX),
        .backoff_ms_max = (uint32_t)any_number(dice, 0, UINT32_MAX),
        .jitter = roll(dice, 2),
        .idempotent = roll(dice, 2),
        .timeout_ms = (uint32_t)any_number(dice, 0, UINT32_MAX),
        .unique_ms = (int64_t)any_number(dice, 0, (uint64_t)ENGINE_SPAN_MS_MAX),
        .unique_states = ENGINE_LIVE_STATES,
        .idempotency_ms = (int64_t)any_number(dice, 0, (uint64_t)ENGINE_SPAN_MS_MAX),
        .never_count = (uint32_t)roll(dice, ENGINE_CLASSES_MAX + 1),
    };
    struct policy_text read = {0};

    if (roll(dice, 2)) policy.unique_states |= ENGINE_STATE_BIT(ENGINE_DONE);
    for (uint32_t i = 0; i < policy.never_count; i++) policy.never[i] = any_text(dice, 1);
    policy_write(&writer, &policy);
    *ret_policy = (struct engine_slice){room, writer.count};
    CHECK(policy_read(*ret_policy, &read));
    CHECK(read.attempts_max == policy.attempts_max && read.backoff_ms == policy.backoff_ms);
    CHECK(read.backoff_ms_max == policy.backoff_ms_max && read.jitter == policy.jitter);
    CHECK(read.idempotent == policy.idempotent && read.timeout_ms == policy.timeout_ms);
    CHECK(read.unique_ms == policy.unique_ms && read.unique_states == policy.unique_states);
    CHECK(read.idempotency_ms == policy.idempotency_ms && read.never_count == policy.never_count);
}

static void any_job(struct dice *dice, unsigned char policy[POLICY_BYTES_MAX], struct op_job *job)
{
    *job = (struct op_job){
        .set = any_set(dice),
        .queue = any_text(dice, 1),
        .kind = any_text(dice, 1),
        .version = (uint32_t)any_number(dice, 0, UINT32_MAX),
        .priority = (uint8_t)roll(dice, ENGINE_PRIORITY_MAX + 1),
        .created_ms = roll(dice, 2) ? dice->base.now_ms : any_time(dice),
        .expires_ms = any_time(dice),
        .tags = any_text(dice, 0),
        .unique_key = any_text(dice, 0),
        .idempotency_key = any_text(dice, 0),
        .fairness_key = any_text(dice, 0),
        .order_key = any_text(dice, 0),
        .batch = any_number(dice, dice->base.last_id, UINT64_MAX),
        .limit_key_count = (uint32_t)roll(dice, ENGINE_LIMIT_KEYS_MAX + 1),
        .has_payload = roll(dice, 2),
    };
    for (uint32_t i = 0; i < job->limit_key_count; i++) job->limit_keys[i] = any_text(dice, 1);
    any_policy(dice, policy, &job->policy);
    if (job->has_payload) {
        job->payload = any_text(dice, 0);
        job->trace = any_text(dice, 0);
        job->payload_bytes = (uint32_t)job->payload.count;
    } else {
        job->position = any_number(dice, 0, UINT64_MAX);
        job->payload_bytes = (uint32_t)any_number(dice, 0, UINT32_MAX);
    }
}

static void any_small_op(struct dice *dice, enum op_type type, struct op *op)
{
    if (type == OP_FORGET) op->forget = any_id(dice);
    if (type == OP_ERROR) {
        op->error = (struct op_error){any_id(dice), (uint16_t)any_number(dice, 1, UINT16_MAX),
                                      any_time(dice), any_text(dice, 0), any_text(dice, 0)};
    }
    if (type == OP_SCHEDULED) {
        op->schedule =
            (struct op_schedule){.name = any_text(dice, 1),
                                 .next_ms = any_time(dice),
                                 .last_id = any_number(dice, dice->base.last_id, UINT64_MAX)};
    }
    if (type == OP_BULK_AT || type == OP_BULK_DROP) op->bulk.id = any_id(dice);
    if (type == OP_BULK_AT) {
        op->bulk.next = (uint32_t)any_number(dice, 0, UINT32_MAX);
        op->bulk.failed = (uint32_t)any_number(dice, 0, UINT32_MAX);
    }
}

static void any_op(struct dice *dice, unsigned char policy[POLICY_BYTES_MAX], struct op *op)
{
    static const enum op_type types[] = {OP_JOB,   OP_SET,       OP_SET,     OP_FORGET,
                                         OP_ERROR, OP_SCHEDULED, OP_BULK_AT, OP_BULK_DROP};

    memset(op, 0, sizeof *op);
    op->type = types[roll(dice, sizeof types / sizeof *types)];
    if (op->type == OP_JOB) any_job(dice, policy, &op->job);
    if (op->type == OP_SET) op->set = roll(dice, 2) ? any_set(dice) : any_usual_set(dice);
    any_small_op(dice, op->type, op);
}

/* ---- The same again ---- */

static bool same_text(struct engine_slice one, struct engine_slice two)
{
    return one.count == two.count && (one.count == 0 || memcmp(one.at, two.at, one.count) == 0);
}

static void check_set(const struct op_set *one, const struct op_set *two)
{
    CHECK(one->id == two->id && one->state == two->state);
    CHECK(one->flags == two->flags && one->blocked_on == two->blocked_on);
    CHECK(one->runs == two->runs && one->attempts == two->attempts);
    CHECK(one->mark == two->mark && one->when_ms == two->when_ms);
    CHECK(one->started_ms == two->started_ms && one->note == two->note);
    CHECK(one->from.turn == two->from.turn && one->from.deficit == two->from.deficit);
    CHECK(one->from_gate == two->from_gate);
    CHECK(one->to.turn == two->to.turn && one->to.deficit == two->to.deficit);
    CHECK(one->has_result == two->has_result && same_text(one->result, two->result));
}

static void check_job(const struct op_job *one, const struct op_job *two)
{
    check_set(&one->set, &two->set);
    CHECK(same_text(one->queue, two->queue) && same_text(one->kind, two->kind));
    CHECK(one->version == two->version && one->priority == two->priority);
    CHECK(one->created_ms == two->created_ms && one->expires_ms == two->expires_ms);
    CHECK(same_text(one->policy, two->policy) && same_text(one->tags, two->tags));
    CHECK(same_text(one->unique_key, two->unique_key));
    CHECK(same_text(one->idempotency_key, two->idempotency_key));
    CHECK(same_text(one->fairness_key, two->fairness_key));
    CHECK(same_text(one->order_key, two->order_key) && one->batch == two->batch);
    CHECK_INT(one->limit_key_count, ==, two->limit_key_count);
    for (uint32_t i = 0; i < one->limit_key_count; i++) {
        CHECK(same_text(one->limit_keys[i], two->limit_keys[i]));
    }
    CHECK(one->has_payload == two->has_payload && same_text(one->payload, two->payload));
    CHECK(same_text(one->trace, two->trace) && one->position == two->position);
    CHECK(one->payload_bytes == two->payload_bytes);
}

static void check_op(const struct op *one, const struct op *two)
{
    CHECK_INT(one->type, ==, two->type);
    if (one->type == OP_JOB) check_job(&one->job, &two->job);
    if (one->type == OP_SET) check_set(&one->set, &two->set);
    if (one->type == OP_FORGET) CHECK(one->forget == two->forget);
    if (one->type == OP_ERROR) {
        CHECK(one->error.id == two->error.id && one->error.run == two->error.run);
        CHECK(one->error.at_ms == two->error.at_ms);
        CHECK(same_text(one->error.class, two->error.class));
        CHECK(same_text(one->error.message, two->error.message));
    }
    if (one->type == OP_SCHEDULED) {
        CHECK(same_text(one->schedule.name, two->schedule.name));
        CHECK(one->schedule.next_ms == two->schedule.next_ms);
        CHECK(one->schedule.last_id == two->schedule.last_id);
    }
    if (one->type == OP_BULK_AT || one->type == OP_BULK_DROP) {
        CHECK(one->bulk.id == two->bulk.id && one->bulk.next == two->bulk.next);
        CHECK(one->bulk.failed == two->bulk.failed);
    }
}

TEST(every_operation_comes_back_from_its_bytes_whatever_the_base_is)
{
    static unsigned char bytes[ROOM];
    unsigned char policy[POLICY_BYTES_MAX];
    struct dice dice = {.rolled = 1};
    struct op op, read;

    memset(dice.text, 'x', sizeof dice.text);
    for (int i = 0; i < ROUNDS; i++) {
        struct writer writer = {bytes, 0, ROOM};
        struct reader reader = {.at = bytes};

        if (i % 16 == 0) dice.base = any_base(&dice);
        any_op(&dice, policy, &op);
        writer.base = reader.base = dice.base;
        op_write(&writer, &op);
        CHECK_INT(writer.count, <=, op_bytes_max(&op));
        reader.end = bytes + writer.count;
        CHECK(op_read(&reader, &read));
        CHECK(reader.at == reader.end);
        check_op(&op, &read);
    }
}

/* Bytes of an operation, a few of them changed: most are none any more. */
TEST(what_is_read_as_an_operation_is_written_as_the_same_bytes)
{
    static unsigned char bytes[ROOM], again[ROOM];
    unsigned char policy[POLICY_BYTES_MAX];
    struct dice dice = {.rolled = 2};
    int accepted = 0;
    struct op op;

    memset(dice.text, 'x', sizeof dice.text);
    for (int i = 0; i < 10 * ROUNDS; i++) {
        struct writer first = {bytes, 0, ROOM}, second = {again, 0, ROOM};
        struct reader reader = {.at = bytes};
        size_t early;

        if (i % 16 == 0) dice.base = any_base(&dice);
        any_op(&dice, policy, &op);
        first.base = second.base = reader.base = dice.base;
        op_write(&first, &op);
        early = first.count < 24 ? first.count : 24;
        for (uint64_t changes = 1 + roll(&dice, 3); changes > 0; changes--) {
            bytes[roll(&dice, early)] = (unsigned char)roll(&dice, roll(&dice, 2) ? 256 : 3);
        }
        reader.end = bytes + first.count;
        if (!op_read(&reader, &op)) continue;
        accepted++;
        op_write(&second, &op);
        CHECK_INT(second.count, ==, reader.at - bytes);
        CHECK(memcmp(bytes, again, second.count) == 0);
    }
    test_note("%d of %d were operations", accepted, 10 * ROUNDS);
    CHECK_INT(accepted, >, ROUNDS);
}

TEST(the_longest_set_is_as_long_as_bounds_count_it)
{
    unsigned char bytes[OP_SET_BYTES_MAX];
    struct writer writer = {bytes, 0, sizeof bytes};
    /* Each difference is the largest there is. */
    struct op op = {.type = OP_SET,
                    .set = {.id = 1,
                            .state = ENGINE_LEASED,
                            .flags = 31,
                            .blocked_on = ENGINE_LIMIT_KEYS_MAX - 1,
                            .runs = UINT16_MAX,
                            .attempts = UINT16_MAX - 1,
                            .mark = UINT64_MAX / 2 + 1,
                            .when_ms = TIME_READ_MAX,
                            .started_ms = TIME_READ_MAX,
                            .note = UINT32_MAX,
                            .from = {UINT64_MAX / 2 + 1, UINT32_MAX},
                            .from_gate = ENGINE_LIMIT_KEYS_MAX,
                            .to = {UINT64_MAX / 2 + 1, UINT32_MAX}}};

    writer.base.last_id = 0; /* an id beyond the last one: it goes around */
    op_write(&writer, &op);
    CHECK_INT(writer.count, ==, OP_SET_BYTES_MAX);
}

/* ---- Heads ---- */

static uint64_t more_than(struct dice *dice, uint64_t base, uint64_t max)
{
    uint64_t more = any_number(dice, 1, UINT64_MAX);
    return more <= max - base ? base + more : base;
}

TEST(a_head_says_what_was_before_and_is_after_its_record)
{
    unsigned char bytes[RECORD_HEAD_BYTES_MAX];
    struct dice dice = {.rolled = 3};

    for (int i = 0; i < ROUNDS; i++) {
        struct writer writer = {bytes, 0, sizeof bytes};
        struct reader reader = {.at = bytes};
        struct record_head head, read;

        writer.base = any_base(&dice);
        writer.says_marks = roll(&dice, 2);
        writer.says_turns = roll(&dice, 2);
        head = (struct record_head){
            .now_ms = (int64_t)more_than(&dice, (uint64_t)writer.base.now_ms,
                                         (uint64_t)ENGINE_TIME_MS_MAX),
            .last_id = more_than(&dice, writer.base.last_id, UINT64_MAX / 2),
            .last_token = more_than(&dice, writer.base.last_token, UINT64_MAX / 2),
            .last_mark = more_than(&dice, writer.base.last_mark, UINT64_MAX / 2),
            .last_turn = more_than(&dice, writer.base.last_turn, UINT64_MAX / 2),
        };
        head_write(&writer, &head);
        reader.end = bytes + writer.count;
        CHECK(head_read(&reader, &read));
        CHECK(reader.at == reader.end);
        /* What no operation refers to and what has not changed is not there. */
        if (!writer.says_marks && head.last_mark == writer.base.last_mark) {
            head.last_mark = writer.base.last_mark = 0;
        }
        if (!writer.says_turns && head.last_turn == writer.base.last_turn) {
            head.last_turn = writer.base.last_turn = 0;
        }
        CHECK(read.now_ms == head.now_ms && read.last_id == head.last_id);
        CHECK(read.last_token == head.last_token && read.last_mark == head.last_mark);
        CHECK(read.last_turn == head.last_turn);
        CHECK(reader.base.now_ms == writer.base.now_ms);
        CHECK(reader.base.last_id == writer.base.last_id);
        CHECK(reader.base.last_token == writer.base.last_token);
        CHECK(reader.base.last_mark == writer.base.last_mark);
        CHECK(reader.base.last_turn == writer.base.last_turn);
    }
}

TEST(a_head_that_is_said_in_another_way_is_refused)
{
    static const struct {
        unsigned char bytes[16];
        unsigned count;
        bool accepted;
    } cases[] = {
        {{2, 5, 0, 0, 0}, 5, true},
        {{1, 5, 0, 0, 0}, 5, false},    /* version */
        {{2, 4, 0, 0, 0}, 5, false},    /* no id */
        {{2, 1, 0, 0, 0}, 5, false},    /* no token */
        {{2, 5, 1, 0, 0, 0}, 6, false}, /* time went on by nothing */
        {{2, 5, 1, 1, 0, 0}, 6, true},
        {{2, 7, 0, 0, 1, 0}, 6, false}, /* one more, but as a number */
        {{2, 7, 0, 0, 2, 0}, 6, true},
        {{2, 5, 0, 0, 1}, 5, false}, /* a token below 0 */
        {{2, 5, 0, 0, 2}, 5, true},
        {{2, 0x15, 0, 5, 0, 9}, 6, true},
        {{2, 0x15, 0, 5, 0, 11}, 6, false}, /* a mark below 0 */
        {{2, 5, 0, 0}, 4, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct reader reader = {.at = cases[i].bytes, .end = cases[i].bytes + cases[i].count};
        struct record_head head;
        if (head_read(&reader, &head) != cases[i].accepted) TEST_FAIL("case %zu", i);
    }
}

/* ---- Records ---- */

static size_t log_next(struct engine *engine)
{
    const void *bytes;
    size_t count;
    engine_record(engine, &bytes, &count);
    engine_logged(engine, 1);
    return count;
}

TEST(the_life_of_a_small_job_is_a_few_bytes_beside_its_names_and_payload)
{
    enum { BEFORE = 300000, NAMES_AND_PAYLOAD = 4 + 5 + 16 + 9 + 100 };
    const int64_t now_ms = INT64_C(1800000000000);
    struct engine *engine = helper_open();
    struct engine_claim_spec claim = {.queue = slice("work"), .count = 1, .lease_ms = 30000};
    struct engine_job_spec spec = {.queue = slice("work"),
                                   .kind = slice("bench"),
                                   .idempotent = true,
                                   .retry = {5, 1000, 60000},
                                   .unique_key = slice("0123456789abcdef"),
                                   .limit_keys = {slice("tenant-07")},
                                   .limit_key_count = 1,
                                   .fairness_key = slice("tenant-07")};
    struct engine_claimed claimed;
    char payload[100] = {0};

    spec.payload = (struct engine_slice){payload, sizeof payload};
    engine_skip(engine, BEFORE);
    put(engine, now_ms, &spec);
    CHECK_INT(log_next(engine), <=, NAMES_AND_PAYLOAD + 40);
    CHECK_INT(engine_claim(engine, now_ms + 3, &claim, &claimed), ==, 1);
    CHECK_INT(log_next(engine), <=, 24);
    CHECK_OK(ack(engine, now_ms + 6, &claimed));
    CHECK_INT(log_next(engine), <=, 20);
    engine_close(engine);
}

static struct record_head head_of(const void *bytes, size_t count)
{
    struct reader reader = {.at = bytes, .end = (const unsigned char *)bytes + count};
    struct record_head head = {0};
    CHECK(head_read(&reader, &head));
    return head;
}

/* The end of a job refers to no mark and no turn. Once all older records are gone, the names that
 * were said since have to tell of them. */
TEST(a_slice_of_the_state_has_counters_that_other_records_leave_out)
{
    struct engine *engine = helper_open();
    struct engine_names_cursor cursor = {0};
    struct engine_job_spec spec = job_spec("q");
    struct engine_claimed claimed;
    struct record_head head;
    const void *bytes;
    size_t count;

    put(engine, T0, &spec);
    claimed = take(engine, T0, "q");
    engine_record(engine, &bytes, &count);
    head = head_of(bytes, count);
    CHECK(head.last_mark == 1 && head.last_turn == 2);
    engine_logged(engine, 1);
    CHECK_OK(ack(engine, T0, &claimed));
    engine_record(engine, &bytes, &count);
    head = head_of(bytes, count);
    CHECK(head.last_id == 1 && head.last_token == 1 && head.last_mark == 0 && head.last_turn == 0);
    engine_logged(engine, 2);
    CHECK_INT(engine_names(engine, &cursor, SIZE_MAX, &bytes, &count), ==, 0);
    head = head_of(bytes, count);
    CHECK(head.last_id == 1 && head.last_token == 1 && head.last_mark == 1 && head.last_turn == 2);
    engine_close(engine);
}

TEST(a_record_of_version_1_is_refused_with_its_version)
{
    static const unsigned char record[] = {0x01, 0xca, 0x84, 0x3d, 0x01,
                                           0x03, 0x03, 0x06, 0x03, 0x01};
    struct engine *engine = helper_open();

    CHECK_INT(engine_apply(engine, record, sizeof record, 1), ==, -EBADMSG);
    CHECK_CONTAINS(engine_why(engine), "version 1, and only version 2 is known");
    CHECK_INT(engine_now_ms(engine), ==, 0);
    engine_close(engine);
}

/* codec.h - operations as bytes: docs/formats/engine.md.
 *
 * A record is a head (version, time, counters) and operations. Numbers are little-endian varints,
 * signed ones zigzag; bytes have their count before them. Each operation says what a row is from
 * then on, never what changed: so to apply one again, or to a row that is newer, does no harm.
 *
 * Times, ids, tokens, marks and turns are written as differences to the base: what time and
 * counters were when the record began. The head has it, so each record can be read alone.
 *
 * Invariant: what op_read() accepts, op_write() with the same base writes as the same bytes.
 */
#ifndef WEIR_ENGINE_CODEC_H
#define WEIR_ENGINE_CODEC_H

#include "engine/engine.h"

enum { RECORD_VERSION = 2 };

struct record_head {
    int64_t now_ms;
    uint64_t last_id;
    uint64_t last_token;
    uint64_t last_mark;
    uint64_t last_turn;
};

struct writer {
    unsigned char *bytes;
    size_t count;
    size_t room;
    struct record_head base; /* zeros: without one, as the job of a schedule is written */
    bool says_marks;         /* operations refer to base.last_mark, to base.last_turn: */
    bool says_turns;         /* only then the head has to have them */
};

struct reader {
    const unsigned char *at;
    const unsigned char *end;
    bool bad;
    bool checked; /* it was read before, or is our own: policies are taken as they are */
    struct record_head base;
};

enum op_type {
    OP_JOB = 1, /* a whole job */
    OP_SET,     /* what changes of a job in its life */
    OP_FORGET,  /* there is no such job any more */
    OP_ERROR,   /* an error of one of its runs */
    OP_QUEUE,
    OP_KEY,
    OP_SCHEDULE = 8, /* a whole schedule */
    OP_SCHEDULED,    /* when it comes next */
    OP_UNSCHEDULE,
    OP_BULK,    /* work on many jobs: which */
    OP_BULK_AT, /* how far it is */
    OP_BULK_DROP,
    OP_TYPES,
};

struct op_turn {
    uint64_t turn; /* 0: not said */
    uint32_t deficit;
};

struct op_set {
    uint64_t id;
    uint8_t state;
    uint8_t flags;
    uint8_t blocked_on;
    uint16_t runs;
    uint16_t attempts;
    uint64_t mark;
    int64_t when_ms;
    int64_t started_ms;
    uint32_t note;
    struct op_turn from; /* of the group that it leaves, which is ... */
    uint8_t from_gate;   /* ... that of its queue (0), or of a gate: which limit key, plus 1 */
    struct op_turn to;   /* of the group that it enters */
    bool has_result;     /* the result is in this record */
    struct engine_slice result;
};

struct op_job {
    struct op_set set; /* its beginning */
    struct engine_slice queue;
    struct engine_slice kind;
    uint32_t version;
    uint8_t priority;
    int64_t created_ms;
    int64_t expires_ms;
    struct engine_slice policy;
    struct engine_slice tags;
    struct engine_slice unique_key;
    struct engine_slice idempotency_key;
    struct engine_slice fairness_key;
    struct engine_slice order_key;
    uint64_t batch;
    uint32_t limit_key_count;
    struct engine_slice limit_keys[ENGINE_LIMIT_KEYS_MAX];
    bool has_payload; /* in this record, or ... */
    struct engine_slice payload;
    struct engine_slice trace;
    uint64_t position; /* ... in another one */
    uint32_t payload_bytes;
};

struct op_error {
    uint64_t id;
    uint16_t run;
    int64_t at_ms;
    struct engine_slice class;
    struct engine_slice message;
};

struct op_queue {
    struct engine_slice name;
    bool configured, paused, draining, waits;
    uint32_t depth_max;
    uint32_t concurrency;
    uint32_t latency_target_ms;
    struct engine_rate rate;
    int64_t tat;
};

struct op_key {
    struct engine_slice name;
    bool configured;
    uint32_t concurrency;
    uint32_t weight;
    struct engine_rate rate;
    int64_t tat;
};

struct op_schedule {
    struct engine_slice name;
    struct engine_slice text;
    struct engine_slice zone;
    uint8_t overlap;
    uint8_t catch_up;
    bool paused;
    int64_t next_ms; /* 0: it does not come, or its zone is not known */
    uint64_t last_id;
    struct engine_slice job; /* an OP_JOB with a base of zeros: what is enqueued */
};

struct op_bulk {
    uint64_t id;
    uint8_t action;
    uint32_t next;
    uint32_t failed;
    uint32_t count;
    struct engine_slice ids; /* numbers: the first id, then how much more each next one is */
};

struct op {
    enum op_type type;
    union {
        struct op_job job;
        struct op_set set;
        uint64_t forget;
        struct op_error error;
        struct op_queue queue;
        struct op_key key;
        struct op_bulk bulk;         /* of OP_BULK_AT and OP_BULK_DROP a part */
        struct op_schedule schedule; /* of OP_SCHEDULED and OP_UNSCHEDULE a part */
    };
};

/* Times in rows are 0 to TIME_READ_MAX. */
#define TIME_READ_MAX (2 * ENGINE_TIME_MS_MAX)
#define TAT_MAX INT64_C(9000000000000000000)

/* Numbers. Room must be there, up to NUMBER_BYTES_MAX: op_bytes_max() says it of an operation. Most
 * numbers are small. */
enum { NUMBER_BYTES_MAX = 10 };
void put_long_number(struct writer *writer, uint64_t value);
uint64_t get_long_number(struct reader *reader, uint64_t max);

static inline void put_number(struct writer *writer, uint64_t value)
{
    if (value < 0x80) {
        writer->bytes[writer->count++] = (unsigned char)value;
    } else {
        put_long_number(writer, value);
    }
}

static inline uint64_t get_number(struct reader *reader, uint64_t max)
{
    if (reader->at < reader->end && *reader->at < 0x80 && *reader->at <= max) return *reader->at++;
    return get_long_number(reader, max);
}

enum {
    /* Version and steps, then time and counters with how far they went on. */
    RECORD_HEAD_BYTES_MAX = 1 + 1 + 2 * 5 * NUMBER_BYTES_MAX,
    /* Type and state, parts, flags; id, runs, attempts, started; mark, when, note; from, to. */
    OP_SET_BYTES_MAX = 3 + (10 + 3 + 3 + 7) + (10 + 7 + 5) + (10 + 5) + (10 + 5),
};
/* What many jobs say alike, as bytes and back; false: these are none. */
struct policy_text {
    uint32_t attempts_max;
    uint32_t backoff_ms;
    uint32_t backoff_ms_max;
    bool jitter;
    bool idempotent;
    uint32_t timeout_ms;
    int64_t unique_ms;
    uint32_t unique_states;
    int64_t idempotency_ms;
    uint32_t never_count;
    struct engine_slice never[ENGINE_CLASSES_MAX];
};
enum { POLICY_BYTES_MAX = 80 + ENGINE_CLASSES_MAX * (ENGINE_NAME_BYTES_MAX + 2) };
void policy_write(struct writer *writer, const struct policy_text *policy);
bool policy_read(struct engine_slice text, struct policy_text *ret_policy);

/* A job alone, as schedules keep it: the base of the writer is zeros. */
void job_write(struct writer *writer, const struct op_job *job);
bool job_read(struct engine_slice bytes, struct op_job *ret_job);
size_t op_bytes_max(const struct op *op);
void op_write(struct writer *writer, const struct op *op);
void set_write(struct writer *writer, const struct op_set *set); /* as OP_SET */
/* False: the reader is at its end, or bad. */
bool op_read(struct reader *reader, struct op *ret_op);
/* The head is what is so after the record, which is never less than the writer's base. */
void head_write(struct writer *writer, const struct record_head *head);
/* The reader has the base from then on. */
bool head_read(struct reader *reader, struct record_head *ret_head);

#endif

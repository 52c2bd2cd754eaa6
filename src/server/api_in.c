/* api_in.c - bodies of requests: reading, and jobs and settlements out of them. */
#include "server/api_in.h"

#include <errno.h>
#include <string.h>

#include "proto/base64.h"
#include "proto/http_value.h"
#include "rt/mem.h"

/* ---- Bodies ---- */

enum { KEYS_MIN = 32, KEYS_MAX = 65536 };

int body_of(struct exchange *x, struct bytes bytes, struct body *ret_body)
{
    size_t keys = bytes.count / 4 + KEYS_MIN;
    struct json_limits limits = {.depth_max = JSON_DEPTH_MAX};

    limits.key_room = (unsigned)(keys < KEYS_MAX ? keys : KEYS_MAX);
    *ret_body = (struct body){.x = x, .bytes = bytes};
    /* Names first: they are aligned. Texts get no longer than the JSON, with a NUL for two quotes;
     * decoded base64 is shorter, and may be aligned on the way. */
    ret_body->memory = mem_alloc(limits.key_room * sizeof *limits.keys + bytes.count + 64);
    if (!ret_body->memory) return exchange_fail(x, -ENOMEM, "request");
    limits.keys = ret_body->memory;
    ret_body->texts =
        (struct json_texts){.at = (char *)ret_body->memory + limits.key_room * sizeof *limits.keys,
                            .room = bytes.count + 64};
    json_reader_init(&ret_body->reader, bytes, &limits);
    return 0;
}

int body_open(struct exchange *x, struct body *ret_body)
{
    struct bytes type = exchange_field(x, "content-type"), bytes;
    int r;

    *ret_body = (struct body){0};
    if (type.at && !http_media_is(type, BYTES("application/json")))
        return exchange_problem(x, PROBLEM_WRONG_TYPE, "the body has to be application/json");
    r = exchange_body(x, &bytes);
    if (r < 0) return r;
    if (bytes.count > 0 && !type.at)
        return exchange_problem(x, PROBLEM_WRONG_TYPE,
                                "Content-Type is missing: it has to be application/json");
    return body_of(x, bytes.count > 0 ? bytes : BYTES("{}"), ret_body);
}

int body_refuse(struct body *body)
{
    return exchange_problem_with(body->x, PROBLEM_BAD_JSON, "offset",
                                 (int64_t)body->reader.failed_at, "%s", body->reader.why);
}

int body_read(struct body *body, const struct json_member *members, void *into)
{
    if (json_document(&body->reader, &body->texts, members, into) == 0) return 0;
    return body_refuse(body);
}

void body_close(struct body *body)
{
    mem_free(body->memory);
    body->memory = NULL;
}

/* ---- Values ---- */

int in_read_names(struct json_reader *reader, struct json_texts *texts, struct json_token first,
                  void *into)
{
    struct in_names *names = into;

    if (first.kind != JSON_ARRAY) return json_refuse(reader, &first, "an array was expected");
    for (;;) {
        struct json_token token = json_next(reader);

        if (token.kind == JSON_ARRAY_END) return 0;
        if (token.kind == JSON_FAILED) return WEIR_EREFUSED;
        if (token.kind != JSON_STRING || names->count == IN_NAMES_MAX)
            return json_refuse(reader, &token, "up to %d texts were expected", IN_NAMES_MAX);
        if (json_take_text(reader, texts, &token, &names->at[names->count]) < 0)
            return WEIR_EREFUSED;
        names->count++;
    }
}

int in_read_id(struct json_reader *reader, struct json_texts *texts, struct json_token first,
               void *into)
{
    (void)texts;
    if ((first.kind == JSON_STRING || first.kind == JSON_NUMBER) && api_id_of(first.text, into))
        return 0;
    return json_refuse(reader, &first, "an id was expected: a whole number, or one as text");
}

int in_read_base64(struct json_reader *reader, struct json_texts *texts, struct json_token first,
                   void *into)
{
    struct bytes *bytes = into;
    char *out = texts->at + texts->used;
    size_t count;

    if (first.kind != JSON_STRING || first.escaped)
        return json_refuse(reader, &first, "a text of base64 was expected");
    if (texts->room - texts->used < base64_bytes_max(first.text.count) ||
        base64_decode(first.text, out, &count) < 0)
        return json_refuse(reader, &first, "this is no base64");
    texts->used += count;
    *bytes = (struct bytes){out, count};
    return 0;
}

#define TEXT(name_, max_)                                                             \
    {                                                                                 \
        .name = #name_, .type = JSON_TYPE_TEXT, .offset = offsetof(struct OF, name_), \
        .max = (max_)                                                                 \
    }
#define INT(name_, max_)                                                                           \
    {                                                                                              \
        .name = #name_, .type = JSON_TYPE_INT, .offset = offsetof(struct OF, name_), .max = (max_) \
    }
#define NAMES(name_)                                                                \
    {                                                                               \
        .name = #name_, .type = JSON_TYPE_BY, .offset = offsetof(struct OF, name_), \
        .read = in_read_names                                                       \
    }
#define ID(name_)                                                                   \
    {                                                                               \
        .name = #name_, .type = JSON_TYPE_BY, .offset = offsetof(struct OF, name_), \
        .read = in_read_id                                                          \
    }
#define TIME_MAX INT64_C(8000000000000)

#define OF in_retry
static const struct json_member retry_members[] = {
    INT(attempts_max, UINT16_MAX),
    INT(backoff_ms, UINT32_MAX),
    INT(backoff_ms_max, UINT32_MAX),
    {.name = "jitter",
     .type = JSON_TYPE_BOOL,
     .offset = offsetof(struct in_retry, jitter),
     .present_offset = offsetof(struct in_retry, has_jitter)},
    NAMES(never),
    {0},
};
#undef OF

#define OF in_job
const struct json_member in_job_members[] = {
    TEXT(queue, WEIR_JOB_NAME_BYTES_MAX),
    TEXT(kind, WEIR_JOB_NAME_BYTES_MAX),
    INT(version, UINT32_MAX),
    {.name = "payload", .type = JSON_TYPE_RAW, .offset = offsetof(struct in_job, payload)},
    {.name = "payload_base64",
     .type = JSON_TYPE_BY,
     .offset = offsetof(struct in_job, payload_base64),
     .read = in_read_base64,
     .present_offset = offsetof(struct in_job, has_base64)},
    {.name = "idempotent",
     .type = JSON_TYPE_BOOL,
     .offset = offsetof(struct in_job, idempotent),
     .present_offset = offsetof(struct in_job, has_idempotent)},
    {.name = "retry",
     .type = JSON_TYPE_OBJECT,
     .offset = offsetof(struct in_job, retry),
     .members = retry_members},
    INT(priority, WEIR_JOB_PRIORITY_MAX),
    INT(run_at_ms, TIME_MAX),
    INT(delay_ms, TIME_MAX),
    {.name = "delay",
     .type = JSON_TYPE_DURATION,
     .offset = offsetof(struct in_job, delay),
     .max = TIME_MAX},
    INT(expires_ms, TIME_MAX),
    INT(timeout_ms, UINT32_MAX),
    TEXT(unique_key, WEIR_JOB_NAME_BYTES_MAX),
    INT(unique_ms, TIME_MAX),
    NAMES(unique_states),
    TEXT(idempotency_key, WEIR_JOB_NAME_BYTES_MAX),
    INT(idempotency_ms, TIME_MAX),
    NAMES(limit_keys),
    TEXT(fairness_key, WEIR_JOB_NAME_BYTES_MAX),
    TEXT(order_key, WEIR_JOB_NAME_BYTES_MAX),
    NAMES(tags),
    TEXT(trace, 64),
    ID(batch),
    TEXT(gathers, 16),
    TEXT(durability, 16),
    {0},
};
#undef OF

/* ---- Jobs ---- */

static int fill_retry(struct exchange *x, const struct in_retry *in, weir_job_retry *ret)
{
    if (in->never.count > WEIR_JOB_NEVER_MAX)
        return exchange_problem(x, PROBLEM_INVALID, "retry.never has at most %d classes",
                                WEIR_JOB_NEVER_MAX);
    *ret = (weir_job_retry){.attempts_max = (uint16_t)in->attempts_max,
                            .backoff_ms = (uint32_t)in->backoff_ms,
                            .backoff_ms_max = (uint32_t)in->backoff_ms_max,
                            .no_jitter = in->has_jitter && !in->jitter};
    for (unsigned i = 0; i < in->never.count; i++) ret->never[i] = in->never.at[i].at;
    return 0;
}

/* One text with blanks between. */
static int fill_tags(struct exchange *x, struct in_job *in, weir_job_spec *spec)
{
    size_t used = 0;

    for (unsigned i = 0; i < in->tags.count; i++) {
        struct bytes tag = in->tags.at[i];

        if (tag.count == 0 || memchr(tag.at, ' ', tag.count) || memchr(tag.at, ',', tag.count))
            return exchange_problem(x, PROBLEM_INVALID,
                                    "a tag is not empty and has no blanks and commas");
        if (used + tag.count + 1 > WEIR_JOB_NAME_BYTES_MAX + 1)
            return exchange_problem(x, PROBLEM_INVALID, "tags have at most %d bytes in all",
                                    WEIR_JOB_NAME_BYTES_MAX);
        memcpy(in->tag_text + used, tag.at, tag.count);
        used += tag.count;
        in->tag_text[used++] = ' ';
    }
    if (used == 0) return 0;
    in->tag_text[used - 1] = '\0';
    spec->tags = in->tag_text;
    return 0;
}

static int fill_keys(struct exchange *x, const struct in_job *in, weir_job_spec *spec)
{
    if (in->limit_keys.count > WEIR_JOB_LIMIT_KEYS_MAX)
        return exchange_problem(x, PROBLEM_INVALID, "limit_keys has at most %d",
                                WEIR_JOB_LIMIT_KEYS_MAX);
    for (unsigned i = 0; i < in->limit_keys.count; i++)
        spec->limit_keys[i] = in->limit_keys.at[i].at;
    for (unsigned i = 0; i < in->unique_states.count; i++) {
        uint32_t bit = 0;

        for (int state = WEIR_JOB_SCHEDULED; state <= WEIR_JOB_EXPIRED; state++)
            if (bytes_are(in->unique_states.at[i],
                          bytes_of(weir_job_state_name((enum weir_job_state)state))))
                bit = WEIR_JOB_STATE_BIT(state);
        if (!bit) return exchange_problem(x, PROBLEM_INVALID, "unique_states has no state");
        spec->unique_states |= bit;
    }
    return 0;
}

static int fill_gathers(struct exchange *x, struct bytes text, enum weir_gathers *ret)
{
    if (text.count == 0) return 0;
    if (bytes_are(text, BYTES("ended")))
        *ret = WEIR_WHEN_ENDED;
    else if (bytes_are(text, BYTES("done")))
        *ret = WEIR_WHEN_DONE;
    else
        return exchange_problem(x, PROBLEM_INVALID, "gathers is ended or done");
    return 0;
}

/* The header's, if the job says nothing itself. What is none is as if it were not there (W3C). */
static const char *trace_of(const struct exchange *x, struct bytes own, char text[64])
{
    struct bytes field = own.at ? own : exchange_field(x, "traceparent");
    weir_trace_context context;

    if (!field.at || field.count == 0 || field.count >= 64) return NULL;
    memcpy(text, field.at, field.count);
    text[field.count] = '\0';
    return weir_trace_parse(text, NULL, &context) == 0 ? text : NULL;
}

int in_job_spec(struct exchange *x, struct in_job *in, const char *queue, weir_job_spec *ret_spec)
{
    int r;

    if (queue && in->queue.at && strcmp(queue, in->queue.at) != 0)
        return exchange_problem(x, PROBLEM_INVALID, "queue is another one than that of the path");
    if (in->payload.at && in->has_base64)
        return exchange_problem(x, PROBLEM_INVALID, "payload and payload_base64 are both said");
    if (in->delay_ms && in->delay)
        return exchange_problem(x, PROBLEM_INVALID, "delay and delay_ms are both said");
    *ret_spec = (weir_job_spec){
        .queue = queue ? queue : in->queue.at,
        .kind = in->kind.at,
        .version = (uint32_t)in->version,
        .payload = in->has_base64 ? in->payload_base64.at : in->payload.at,
        .payload_bytes = in->has_base64 ? in->payload_base64.count : in->payload.count,
        .idempotent = !in->has_idempotent ? WEIR_ANSWER_UNSET
                      : in->idempotent    ? WEIR_YES
                                          : WEIR_NO,
        .priority = (uint8_t)in->priority,
        .run_at_ms = in->run_at_ms,
        .delay_ms = in->delay_ms ? in->delay_ms : in->delay,
        .expires_ms = in->expires_ms,
        .timeout_ms = (uint32_t)in->timeout_ms,
        .unique_key = in->unique_key.at,
        .unique_ms = in->unique_ms,
        .idempotency_key = in->idempotency_key.at,
        .idempotency_ms = in->idempotency_ms,
        .fairness_key = in->fairness_key.at,
        .order_key = in->order_key.at,
        .batch = in->batch,
    };
    ret_spec->trace = trace_of(x, in->trace, in->trace_text);
    r = fill_retry(x, &in->retry, &ret_spec->retry);
    if (r == 0) r = fill_tags(x, in, ret_spec);
    if (r == 0) r = fill_keys(x, in, ret_spec);
    if (r == 0) r = fill_gathers(x, in->gathers, &ret_spec->gathers);
    if (r == 0) r = api_durability_of(x, in->durability, &ret_spec->durability);
    /* Who joins a batch holds up the job that gathers it: that is one of its queue. */
    if (r == 0 && in->batch != 0) r = api_allow_job(x, VERB_ENQUEUE, in->batch);
    return r;
}

/* ---- Settlements ---- */

#define OF in_settle
const struct json_member in_settle_members[] = {
    ID(id),
    ID(token),
    TEXT(how, 16),
    {.name = "result", .type = JSON_TYPE_RAW, .offset = offsetof(struct in_settle, result)},
    {.name = "result_base64",
     .type = JSON_TYPE_BY,
     .offset = offsetof(struct in_settle, result_base64),
     .read = in_read_base64,
     .present_offset = offsetof(struct in_settle, has_base64)},
    TEXT(error_class, WEIR_JOB_NAME_BYTES_MAX),
    TEXT(error_message, 0),
    {.name = "delay_ms",
     .type = JSON_TYPE_INT,
     .offset = offsetof(struct in_settle, delay_ms),
     .max = TIME_MAX,
     .present_offset = offsetof(struct in_settle, has_delay)},
    TEXT(durability, 16),
    {0},
};
#undef OF

enum weir_settle in_settle_how(struct bytes text)
{
    static const char *const names[] = {[WEIR_SETTLE_ACK] = "ack",
                                        [WEIR_SETTLE_FAIL] = "fail",
                                        [WEIR_SETTLE_DEAD] = "dead",
                                        [WEIR_SETTLE_RELEASE] = "release"};

    for (int i = WEIR_SETTLE_ACK; i <= WEIR_SETTLE_RELEASE; i++)
        if (bytes_are(text, bytes_of(names[i]))) return (enum weir_settle)i;
    return WEIR_SETTLE_UNSET;
}

int in_settlement(struct exchange *x, const struct in_settle *in, enum weir_settle how,
                  weir_settlement *ret_settlement)
{
    if (in->id == 0 || in->token == 0)
        return exchange_problem(x, PROBLEM_INVALID, "id and token of the lease have to be said");
    if (how == WEIR_SETTLE_UNSET)
        return exchange_problem(x, PROBLEM_INVALID, "how is ack, fail, dead or release");
    if (in->result.at && in->has_base64)
        return exchange_problem(x, PROBLEM_INVALID, "result and result_base64 are both said");
    if ((in->result.at || in->has_base64) && how != WEIR_SETTLE_ACK)
        return exchange_problem(x, PROBLEM_INVALID, "only an ack has a result");
    *ret_settlement = (weir_settlement){
        .id = in->id,
        .token = in->token,
        .how = how,
        .result = in->has_base64 ? in->result_base64.at : in->result.at,
        .result_bytes = in->has_base64 ? in->result_base64.count : in->result.count,
        .error_class = in->error_class.at,
        .error_message = in->error_message.at,
        .delay_ms = in->has_delay                ? in->delay_ms
                    : how == WEIR_SETTLE_RELEASE ? 0
                                                 : -1,
    };
    return 0;
}

/* api_in.h - bodies of requests as structs: jobs, settlements, patches.
 *
 *     r = body_open(x, &body);                        the body, and memory to read it with
 *     if (r == 0) r = body_read(&body, members, &in); or a problem with its offset
 *     ...
 *     body_close(&body);
 *
 * Invariants: what was read points into the body or into its memory, and is valid until body_close.
 * JSON under "payload" and "result" is kept as the bytes that came.
 * Threads: the task of the request.
 */
#ifndef WEIR_SERVER_API_IN_H
#define WEIR_SERVER_API_IN_H

#include <stddef.h>

#include "server/api.h"

struct body {
    struct exchange *x;
    struct bytes bytes;
    struct json_reader reader;
    struct json_texts texts;
    void *memory;
};

/* Reads the request's body, which must be JSON; an empty one is {}. 0, or a problem. */
WEIR_SUSPENDS int body_open(struct exchange *x, struct body *ret_body);
/* The same for bytes that are there: a line. */
int body_of(struct exchange *x, struct bytes bytes, struct body *ret_body);
int body_read(struct body *body, const struct json_member *members, void *into);
/* The problem that reader.why tells. */
int body_refuse(struct body *body);
void body_close(struct body *body);

/* Up to IN_NAMES_MAX texts. */
enum { IN_NAMES_MAX = 16 };
struct in_names {
    unsigned count;
    struct bytes at[IN_NAMES_MAX];
};
/* For JSON_TYPE_BY: in_names; and ids (uint64_t), as text or number. */
int in_read_names(struct json_reader *reader, struct json_texts *texts, struct json_token first,
                  void *into);
int in_read_id(struct json_reader *reader, struct json_texts *texts, struct json_token first,
               void *into);
/* Bytes of a base64 text, into the memory of the texts. 0 or json_refuse(). */
int in_read_base64(struct json_reader *reader, struct json_texts *texts, struct json_token first,
                   void *into);

static inline const char *in_text(struct bytes text)
{
    return text.at;
}

struct in_retry {
    bool none; /* offsets of "is there" begin behind it */
    bool jitter, has_jitter;
    int64_t attempts_max, backoff_ms, backoff_ms_max;
    struct in_names never;
};

struct in_job {
    bool none;
    bool idempotent, has_idempotent, has_base64;
    struct bytes queue, kind, payload, payload_base64;
    struct bytes unique_key, idempotency_key, fairness_key, order_key, trace, gathers, durability;
    int64_t version, priority, run_at_ms, delay_ms, delay, expires_ms, timeout_ms, unique_ms,
        idempotency_ms;
    struct in_retry retry;
    struct in_names limit_keys, tags, unique_states;
    uint64_t batch;
    char tag_text[WEIR_JOB_NAME_BYTES_MAX + 2];
    char trace_text[64];
    char key_text[WEIR_JOB_NAME_BYTES_MAX + 1]; /* of the header Idempotency-Key */
};
extern const struct json_member in_job_members[];

/* The spec that it says; `queue` is the path's, if that names one. 0, or a problem. */
int in_job_spec(struct exchange *x, struct in_job *in, const char *queue, weir_job_spec *ret_spec);

struct in_settle {
    bool none;
    bool has_base64, has_delay;
    uint64_t id, token;
    struct bytes how, result, result_base64, error_class, error_message, durability;
    int64_t delay_ms;
};
extern const struct json_member in_settle_members[];
/* `how` of the path or the member; the settlement without what follows. 0, or a problem. */
int in_settlement(struct exchange *x, const struct in_settle *in, enum weir_settle how,
                  weir_settlement *ret_settlement);
/* "ack", "fail", "dead", "release"; WEIR_SETTLE_UNSET: none of them. */
enum weir_settle in_settle_how(struct bytes text);

#endif

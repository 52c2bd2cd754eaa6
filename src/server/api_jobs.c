/* api_jobs.c - one job: look at it, wait for its end, change it, try it again, end it. */
#include <errno.h>
#include <string.h>

#include "rt/mem.h"
#include "server/api_handlers.h"
#include "server/api_in.h"
#include "server/api_out.h"
#include "store/bounded.h"

enum { WAIT_MS_MAX = 60000 };

/* ---- Looking ---- */

static int job_ends(struct exchange *x, void *arg)
{
    return job_wait_until_stop(api_of(x)->store, *(const uint64_t *)arg);
}

static int wait_for_end(struct exchange *x, uint64_t id, int64_t wait_ms)
{
    int r = api_wait(x, wait_ms, &(struct api_wait){job_ends, &id});

    /* A server that stops does not wait for jobs: it is told as it is. */
    return r == WEIR_ETIMEDOUT || r == WEIR_ESTOPPING || r >= 0 ? 0 : api_fail(x, r, "job");
}

int job_show(struct exchange *x)
{
    static const char *const names[] = {"wait", NULL};
    weir_job_info info;
    int64_t wait_ms = 0;
    uint64_t id;
    int r = exchange_query_only(x, names);

    if (r >= 0) r = exchange_query_duration(x, "wait", 0, WAIT_MS_MAX, &wait_ms);
    if (r >= 0) r = api_id(x, 0, &id);
    if (r >= 0) r = api_allow_job(x, VERB_READ, id);
    if (r >= 0 && wait_ms > 0) r = wait_for_end(x, id, wait_ms);
    if (r < 0) return r;
    r = weir_job_get(api_of(x)->store, id, &info);
    if (r < 0) return api_fail(x, r, "job");
    out_job(exchange_json(x, 200), &info);
    weir_job_info_free(&info);
    return 0;
}

/* Payload or result: as many bytes as there are, however they grow in between. */
static int show_bytes(struct exchange *x,
                      int (*read)(weir_store *store, uint64_t id, void *bytes, size_t bytes_max))
{
    static const char *const names[] = {NULL};
    size_t room = 4096;
    char *bytes = NULL;
    uint64_t id;
    int r = exchange_query_only(x, names);

    if (r >= 0) r = api_id(x, 0, &id);
    if (r >= 0) r = api_allow_job(x, VERB_READ, id);
    if (r < 0) return r;
    for (;;) {
        bytes = mem_alloc(room);
        if (!bytes) return api_fail(x, -ENOMEM, "bytes");
        r = read(api_of(x)->store, id, bytes, room);
        if (r < 0 || (size_t)r <= room) break;
        room = (size_t)r;
        mem_free(bytes);
    }
    if (r >= 0) {
        struct bytes all = {bytes, (size_t)r};

        /* They are whatever somebody has enqueued: no browser is to make a page of them. */
        exchange_set(x, "x-content-type-options", "nosniff");
        exchange_set(x, "content-security-policy", "sandbox; default-src 'none'");
        r = exchange_bytes(x, 200,
                           api_is_json(all) ? "application/json" : "application/octet-stream", all);
    } else {
        r = api_fail(x, r, "job");
    }
    mem_free(bytes);
    return r;
}

int job_payload(struct exchange *x)
{
    return show_bytes(x, weir_job_payload);
}

int job_result(struct exchange *x)
{
    return show_bytes(x, weir_job_result_read);
}

/* ---- Changing ---- */

struct in_patch {
    bool none;
    bool has_priority, has_run_at, has_expires, has_delay;
    int64_t priority, run_at_ms, expires_ms, delay_ms;
    struct bytes durability;
};

#define TIME_MAX INT64_C(8000000000000)
static const struct json_member patch_members[] = {
    {.name = "priority",
     .type = JSON_TYPE_INT,
     .offset = offsetof(struct in_patch, priority),
     .max = WEIR_JOB_PRIORITY_MAX,
     .present_offset = offsetof(struct in_patch, has_priority)},
    {.name = "run_at_ms",
     .type = JSON_TYPE_INT,
     .offset = offsetof(struct in_patch, run_at_ms),
     .max = TIME_MAX,
     .present_offset = offsetof(struct in_patch, has_run_at)},
    {.name = "delay_ms",
     .type = JSON_TYPE_INT,
     .offset = offsetof(struct in_patch, delay_ms),
     .max = TIME_MAX / 2,
     .present_offset = offsetof(struct in_patch, has_delay)},
    {.name = "expires_ms",
     .type = JSON_TYPE_INT,
     .offset = offsetof(struct in_patch, expires_ms),
     .max = TIME_MAX,
     .present_offset = offsetof(struct in_patch, has_expires)},
    {.name = "durability",
     .type = JSON_TYPE_TEXT,
     .offset = offsetof(struct in_patch, durability),
     .max = 16},
    {0},
};

/* {"id": ..., "state": ..., "durability": ...} */
static int answer_state(struct exchange *x, uint64_t id, int state, enum weir_durability asked)
{
    struct json_writer *json;
    int r = api_wrote(x, 200, asked, &json);

    if (r < 0) return r;
    api_put_id(json, "id", id);
    out_text(json, "state", weir_job_state_name((enum weir_job_state)state));
    json_close(json);
    return 0;
}

static int patch(struct exchange *x, uint64_t id, const struct in_patch *in)
{
    weir_job_patch change = {
        .has_priority = in->has_priority,
        .has_run_at = in->has_run_at || in->has_delay,
        .has_expires = in->has_expires,
        .priority = (uint8_t)in->priority,
        .run_at_ms = in->has_delay ? api_now_ms() + in->delay_ms : in->run_at_ms,
        .expires_ms = in->expires_ms,
    };
    enum weir_durability asked;
    int r = api_durability_of(x, in->durability, &asked);

    if (r < 0) return r;
    if (in->has_run_at && in->has_delay)
        return exchange_problem(x, PROBLEM_INVALID, "run_at_ms and delay_ms are both said");
    if (!change.has_priority && !change.has_run_at && !change.has_expires)
        return exchange_problem(x, PROBLEM_INVALID,
                                "nothing is said: priority, run_at_ms, delay_ms or expires_ms");
    r = weir_job_patch_set(api_of(x)->store, id, &change);
    return r < 0 ? api_fail(x, r, "job") : answer_state(x, id, r, asked);
}

int job_patch(struct exchange *x)
{
    struct in_patch in = {0};
    struct body body = {0};
    uint64_t id;
    int r = api_id(x, 0, &id);

    if (r == 0) r = api_allow_job(x, VERB_MANAGE, id);
    if (r == 0) r = body_open(x, &body);
    if (r == 0) r = body_read(&body, patch_members, &in);
    if (r == 0) r = patch(x, id, &in);
    body_close(&body);
    return r;
}

/* ---- Retry, cancel, discard ---- */

struct in_retry_job {
    bool none;
    bool has_base64;
    struct bytes payload, payload_base64, durability;
};

static const struct json_member retry_members[] = {
    {.name = "payload", .type = JSON_TYPE_RAW, .offset = offsetof(struct in_retry_job, payload)},
    {.name = "payload_base64",
     .type = JSON_TYPE_BY,
     .offset = offsetof(struct in_retry_job, payload_base64),
     .read = in_read_base64,
     .present_offset = offsetof(struct in_retry_job, has_base64)},
    {.name = "durability",
     .type = JSON_TYPE_TEXT,
     .offset = offsetof(struct in_retry_job, durability),
     .max = 16},
    {0},
};

static int retry(struct exchange *x, uint64_t id, const struct in_retry_job *in)
{
    struct bytes payload = in->has_base64 ? in->payload_base64 : in->payload;
    enum weir_durability asked;
    int r = api_durability_of(x, in->durability, &asked);

    if (r < 0) return r;
    if (in->payload.at && in->has_base64)
        return exchange_problem(x, PROBLEM_INVALID, "payload and payload_base64 are both said");
    r = weir_dead_replay(api_of(x)->store, id, payload.at, payload.count);
    return r < 0 ? api_fail(x, r, "job") : answer_state(x, id, r, asked);
}

int job_retry(struct exchange *x)
{
    struct in_retry_job in = {0};
    struct body body = {0};
    uint64_t id;
    int r = api_id(x, 0, &id);

    if (r == 0) r = api_allow_job(x, VERB_MANAGE, id);
    if (r == 0) r = api_no_key(x);
    if (r == 0) r = body_open(x, &body);
    if (r == 0) r = body_read(&body, retry_members, &in);
    if (r == 0) r = retry(x, id, &in);
    body_close(&body);
    return r;
}

static int begin_act(struct exchange *x, uint64_t *ret_id, enum weir_durability *ret_asked)
{
    static const char *const names[] = {"durability", NULL};
    int r = exchange_query_only(x, names);

    *ret_asked = WEIR_DURABILITY_UNSET;
    if (r >= 0) r = api_durability_asked(x, ret_asked);
    if (r >= 0) r = api_id(x, 0, ret_id);
    return r < 0 ? r : api_allow_job(x, VERB_MANAGE, *ret_id);
}

int job_cancel(struct exchange *x)
{
    enum weir_durability asked;
    uint64_t id;
    int r = begin_act(x, &id, &asked);

    if (r < 0) return r;
    r = weir_job_cancel(api_of(x)->store, id);
    return r < 0 ? api_fail(x, r, "job") : answer_state(x, id, r, asked);
}

int job_discard(struct exchange *x)
{
    enum weir_durability asked;
    uint64_t id;
    int r = begin_act(x, &id, &asked);

    if (r < 0) return r;
    r = weir_job_purge(api_of(x)->store, id);
    return r < 0 ? api_fail(x, r, "job") : api_wrote_only(x, asked);
}

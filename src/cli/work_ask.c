/* work_ask.c - what weir work asks of the server: lease, extend, settle. */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/look.h"
#include "cli/paths.h"
#include "cli/work.h"
#include "proto/base64.h"
#include "proto/json_write.h"
#include "rt/mem.h"

enum { BODY_BYTES = 8192, TARGET_BYTES = 1024, MARGIN_MS = 10000 };

/* 0, or the status that is no success, or an error. */
static int ask(struct client *client, const char *target, struct bytes body, int64_t timeout_ms,
               bool again, struct client_answer *answer)
{
    /* What must not be sent twice may have been done when we are cancelled: a lease above all. */
    int r = client_ask(client,
                       &(struct client_request){.method = METHOD_POST,
                                                .target = target,
                                                .body = body,
                                                .timeout_ms = timeout_ms,
                                                .again = again,
                                                .last = !again},
                       answer);

    if (r < 0) return r;
    return answer->status >= 200 && answer->status < 300 ? 0 : (int)answer->status;
}

static void put_text(struct json_writer *json, const char *key, const char *text)
{
    json_key(json, key);
    json_put_string(json, text);
}

static void put_int(struct json_writer *json, const char *key, int64_t value)
{
    json_key(json, key);
    json_put_int(json, value);
}

/* ---- Lease ---- */

static void put_kinds(struct json_writer *json, const char *kinds)
{
    struct bytes rest = bytes_of(kinds), part;

    json_key(json, "kinds");
    json_open_array(json);
    while (bytes_split(&rest, ',', &part)) {
        if (part.count == 0) continue;
        json_open_object(json);
        json_key(json, "name");
        json_put_text(json, part);
        put_int(json, "version_min", 0);
        put_int(json, "version_max", UINT32_MAX);
        json_close(json);
    }
    json_close(json);
}

/* Bytes as they were enqueued: JSON as it stands, others from base64. */
static int take_payload(struct bytes from, struct work_job *job)
{
    struct bytes raw = look(from, "payload"), coded;
    size_t count;
    char *text;

    if (raw.at) {
        job->payload = mem_alloc(raw.count + 1);
        if (!job->payload) return -1;
        memcpy(job->payload, raw.at, raw.count);
        job->payload_bytes = raw.count;
        return 0;
    }
    text = look_copy(from, "payload_base64", &count);
    if (!text) return 0; /* it is empty */
    coded = (struct bytes){text, count};
    job->payload = mem_alloc(base64_bytes_max(count) + 1);
    if (!job->payload || base64_decode(coded, job->payload, &job->payload_bytes) < 0) {
        mem_free(job->payload);
        mem_free(text);
        job->payload = NULL;
        return -1;
    }
    mem_free(text);
    return 0;
}

static unsigned read_orders(struct bytes from)
{
    struct look_items items;
    struct bytes order;
    unsigned orders = 0;

    look_begin(&items, look(from, "orders"));
    while (look_next(&items, &order)) {
        if (look_is(order, "", "cancelled")) orders |= WORK_CANCELLED;
        if (look_is(order, "", "quiet")) orders |= WORK_QUIET;
        if (look_is(order, "", "end")) orders |= WORK_END;
    }
    return orders;
}

static int take_job(struct bytes from, struct work_job *job)
{
    look_text(from, "id", job->id, sizeof job->id);
    look_text(from, "token", job->token, sizeof job->token);
    look_text(from, "queue", job->queue, sizeof job->queue);
    look_text(from, "kind", job->kind, sizeof job->kind);
    look_text(from, "traceparent", job->trace, sizeof job->trace);
    job->attempt = look_int(from, "attempt", 0);
    job->attempts_max = look_int(from, "attempts_max", 0);
    job->timeout_ms = look_int(from, "timeout_ms", 0);
    if (!job->id[0] || !job->token[0]) return WEIR_EPROTOCOL;
    return take_payload(from, job) < 0 ? WEIR_EPROTOCOL : 0;
}

int work_lease(struct work *work, struct client *client, int64_t wait_ms, struct work_job *ret_job,
               bool *ret_found)
{
    char text[BODY_BYTES], path[TARGET_BYTES];
    struct client_answer answer;
    struct look_items items;
    struct buffer body, target;
    struct json_writer json;
    struct bytes jobs, job;
    unsigned orders;
    int r;

    buffer_init_fixed(&body, text, sizeof text);
    buffer_init_fixed(&target, path, sizeof path);
    json_writer_init(&json, &body);
    json_open_object(&json);
    put_text(&json, "worker", work->worker);
    put_int(&json, "count", 1);
    put_int(&json, "lease_ms", work->lease_ms);
    put_int(&json, "wait_ms", wait_ms);
    if (work->kinds) put_kinds(&json, work->kinds);
    json_close(&json);
    buffer_put_string(&target, PATH_QUEUES "/");
    put_encoded(&target, work->queue);
    buffer_put_string(&target, "/lease");
    buffer_put_char(&target, '\0');
    *ret_found = false;
    r = ask(client, path, buffer_bytes(&body), wait_ms + MARGIN_MS, false, &answer);
    if (r != 0) return r;
    orders = read_orders(answer.body);
    if (orders & WORK_QUIET) work->quiet = true;
    if (orders & WORK_END) work->draining = true;
    jobs = look(answer.body, "jobs");
    if (!jobs.at || jobs.at[0] != '[') return WEIR_EPROTOCOL; /* not the same as no job */
    look_begin(&items, jobs);
    if (!look_next(&items, &job)) return 0;
    ret_job->leased_ns = answer.came_ns;
    r = take_job(job, ret_job);
    *ret_found = r == 0;
    return r;
}

/* ---- Extend, settle ---- */

int work_renew(struct work *work, struct client *client, const struct work_job *job,
               unsigned *ret_orders)
{
    char text[BODY_BYTES], target[128];
    struct client_answer answer;
    struct json_writer json;
    struct buffer body;
    int r;

    buffer_init_fixed(&body, text, sizeof text);
    json_writer_init(&json, &body);
    json_open_object(&json);
    put_text(&json, "token", job->token);
    put_text(&json, "worker", work->worker);
    put_int(&json, "lease_ms", work->lease_ms);
    json_close(&json);
    (void)snprintf(target, sizeof target, PATH_JOBS "/%s/extend", job->id);
    r = ask(client, target, buffer_bytes(&body), work->lease_ms / 3, true, &answer);
    *ret_orders = r == 0 ? read_orders(answer.body) : 0;
    return r;
}

static void put_outcome(struct json_writer *json, const struct work_job *job,
                        const struct work_outcome *outcome)
{
    static const char *const names[] = {
        [WORK_ACK] = "ack", [WORK_FAIL] = "fail", [WORK_DEAD] = "dead", [WORK_RELEASE] = "release"};

    json_open_object(json);
    put_text(json, "id", job->id);
    put_text(json, "token", job->token);
    put_text(json, "how", names[outcome->verdict]);
    if (outcome->verdict == WORK_ACK && outcome->result.count > 0) {
        json_key(json, "result_base64");
        json_put_base64(json, outcome->result);
    } else if (outcome->verdict == WORK_RELEASE) {
        put_int(json, "delay_ms", outcome->delay_ms);
    } else if (outcome->verdict != WORK_ACK) {
        put_text(json, "error_class", outcome->class);
        put_text(json, "error_message", outcome->message);
    }
    json_close(json);
}

/* The status that a row of its own would have had. Those that are not here pass. */
static int status_of_row(struct bytes row)
{
    static const struct {
        const char *error;
        int status;
    } statuses[] = {
        {"stale-lease", 409}, {"no-such", 404}, {"not-found", 404},       {"forbidden", 403},
        {"too-large", 413},   {"invalid", 422}, {"outcome-unknown", 504},
    };

    if (!look(row, "error").at) return 0;
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++)
        if (look_is(row, "error", statuses[i].error)) return statuses[i].status;
    return 503;
}

int work_settle(struct work *work, struct client *client, const struct work_job *job,
                const struct work_outcome *outcome)
{
    struct client_answer answer;
    struct look_items items;
    struct json_writer json;
    struct buffer body;
    struct bytes one;
    int r;

    buffer_init(&body, work->result_bytes_max * 2 + BODY_BYTES, client_resize, NULL);
    json_writer_init(&json, &body);
    json_open_object(&json);
    json_key(&json, "settle");
    json_open_array(&json);
    put_outcome(&json, job, outcome);
    json_close(&json);
    json_close(&json);
    /* Twice is the same: the second finds the lease settled, which is "stale". */
    r = buffer_error(&body);
    if (r == 0)
        r = ask(client, PATH_SETTLE, buffer_bytes(&body), work->lease_ms / 3 + MARGIN_MS, false,
                &answer);
    buffer_deinit(&body);
    if (r != 0) return r;
    look_begin(&items, look(answer.body, "settled"));
    if (!look_next(&items, &one)) return WEIR_EPROTOCOL;
    return status_of_row(one);
}

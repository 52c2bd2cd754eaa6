/* api_out.c - what the store says, as JSON. */
#include "server/api_out.h"

#include <string.h>

void out_int(struct json_writer *json, const char *key, int64_t value)
{
    json_key(json, key);
    json_put_int(json, value);
}

void out_bool(struct json_writer *json, const char *key, bool value)
{
    json_key(json, key);
    json_put_bool(json, value);
}

void out_text(struct json_writer *json, const char *key, const char *value)
{
    json_key(json, key);
    json_put_string(json, value);
}

void out_int_if(struct json_writer *json, const char *key, int64_t value)
{
    if (value != 0) out_int(json, key, value);
}

void out_text_if(struct json_writer *json, const char *key, const char *value)
{
    if (value && value[0]) out_text(json, key, value);
}

/* ---- Jobs ---- */

static void put_tags(struct json_writer *json, const char *tags)
{
    struct bytes rest = bytes_of(tags);

    if (rest.count == 0) return;
    json_key(json, "tags");
    json_open_array(json);
    while (rest.count > 0) {
        size_t count = strcspn(rest.at, " ,");

        if (count > 0) json_put_text(json, (struct bytes){rest.at, count});
        rest = bytes_after(rest, count < rest.count ? count + 1 : count);
    }
    json_close(json);
}

static void put_errors(struct json_writer *json, const weir_job_info *info)
{
    if (info->error_count == 0) return;
    json_key(json, "errors");
    json_open_array(json);
    for (size_t i = 0; i < info->error_count; i++) {
        json_open_object(json);
        out_int(json, "run", info->errors[i].run);
        out_int(json, "at_ms", info->errors[i].at_ms);
        out_text(json, "class", info->errors[i].error_class);
        out_text(json, "message", info->errors[i].message);
        json_close(json);
    }
    json_close(json);
}

static void put_keys(struct json_writer *json, const weir_job_info *info)
{
    out_text_if(json, "unique_key", info->unique_key);
    out_text_if(json, "idempotency_key", info->idempotency_key);
    out_text_if(json, "fairness_key", info->fairness_key);
    out_text_if(json, "order_key", info->order_key);
    if (info->limit_keys[0] && info->limit_keys[0][0]) {
        json_key(json, "limit_keys");
        json_open_array(json);
        for (int i = 0; i < WEIR_JOB_LIMIT_KEYS_MAX && info->limit_keys[i][0]; i++)
            json_put_string(json, info->limit_keys[i]);
        json_close(json);
    }
    out_text_if(json, "blocked_on", info->blocked_on);
}

/* What when_ms means depends on the state. */
static const char *when_key(enum weir_job_state state)
{
    if (state == WEIR_JOB_LEASED) return "lease_until_ms";
    return state >= WEIR_JOB_DONE ? "kept_until_ms" : "run_at_ms";
}

void out_job(struct json_writer *json, const weir_job_info *info)
{
    json_open_object(json);
    api_put_id(json, "id", info->id);
    out_text(json, "state", weir_job_state_name(info->state));
    out_text(json, "queue", info->queue);
    out_text(json, "kind", info->kind);
    out_int(json, "version", info->version);
    out_int(json, "priority", info->priority);
    out_int(json, "run", info->run);
    out_int(json, "attempt", info->attempt);
    out_int(json, "attempts_max", info->attempts_max);
    out_int(json, "payload_bytes", (int64_t)info->payload_bytes);
    out_int(json, "result_bytes", (int64_t)info->result_bytes);
    out_int_if(json, "progress", info->progress);
    out_int(json, "created_ms", info->created_ms);
    out_int_if(json, "started_ms", info->started_ms);
    out_int_if(json, when_key(info->state), info->when_ms);
    out_int_if(json, "expires_ms", info->expires_ms);
    if (info->cancel_asked) out_bool(json, "cancel_asked", true);
    if (info->batch) api_put_id(json, "batch", info->batch);
    if (info->members || info->members_left) {
        json_key(json, "gathers");
        json_open_object(json);
        out_int(json, "members", info->members);
        out_int(json, "left", info->members_left);
        out_int(json, "not_done", info->members_not_done);
        json_close(json);
    }
    put_tags(json, info->tags);
    put_keys(json, info);
    put_errors(json, info);
    json_close(json);
}

void out_leased(struct json_writer *json, const weir_job *job)
{
    json_open_object(json);
    api_put_id(json, "id", job->id);
    api_put_id(json, "token", job->token);
    out_text(json, "queue", job->queue);
    out_text(json, "kind", job->kind);
    out_int(json, "version", job->version);
    out_int(json, "run", job->run);
    out_int(json, "attempt", job->attempt);
    out_int(json, "attempts_max", job->attempts_max);
    out_int(json, "priority", job->priority);
    out_bool(json, "idempotent", job->idempotent);
    out_int(json, "created_ms", job->created_ms);
    out_int(json, "lease_until_ms", job->lease_until_ms);
    if (job->timeout_ms) out_int(json, "timeout_ms", job->timeout_ms);
    out_text_if(json, "traceparent", job->trace);
    if (job->payload_bytes > 0)
        api_put_bytes(json, "payload", "payload_base64",
                      (struct bytes){job->payload, job->payload_bytes});
    json_close(json);
}

void out_enqueued(struct json_writer *json, const weir_enqueued *enqueued)
{
    api_put_id(json, "id", enqueued->id);
    out_bool(json, "duplicate", enqueued->duplicate);
    out_text(json, "durability", api_durability_name(enqueued->durability));
}

void out_orders(struct json_writer *json, unsigned orders)
{
    json_key(json, "orders");
    json_open_array(json);
    if (orders & WEIR_GO_QUIET) json_put_string(json, "quiet");
    if (orders & WEIR_GO_END) json_put_string(json, "end");
    if (orders & WEIR_GO_CANCELLED) json_put_string(json, "cancelled");
    json_close(json);
}

/* ---- Queues ---- */

void out_queue(struct json_writer *json, const weir_queue_figures *figures)
{
    const weir_queue_spec *spec = &figures->spec;

    json_open_object(json);
    out_text(json, "name", figures->name);
    out_int(json, "depth_max", spec->depth_max);
    out_text(json, "overflow", spec->overflow == WEIR_WAIT ? "wait" : "reject");
    out_int(json, "concurrency", spec->concurrency);
    json_key(json, "rate");
    json_open_object(json);
    out_int(json, "count", spec->rate.count);
    out_int(json, "period_ms", spec->rate.period_ms);
    out_int(json, "burst", spec->rate.burst);
    json_close(json);
    out_int(json, "latency_target_ms", spec->latency_target_ms);
    out_bool(json, "paused", spec->paused);
    out_bool(json, "draining", spec->draining);
    json_key(json, "jobs");
    json_open_object(json);
    for (int state = WEIR_JOB_SCHEDULED; state <= WEIR_JOB_EXPIRED; state++)
        out_int(json, weir_job_state_name((enum weir_job_state)state),
                (int64_t)figures->by_state[state]);
    json_close(json);
    out_int(json, "unknown_kind", (int64_t)figures->unknown);
    out_int(json, "oldest_ms", figures->oldest_ms);
    json_key(json, "since_open");
    json_open_object(json);
    out_int(json, "enqueued", (int64_t)figures->enqueued);
    out_int(json, "started", (int64_t)figures->started);
    out_int(json, "done", (int64_t)figures->done);
    out_int(json, "failed", (int64_t)figures->failed);
    out_int(json, "died", (int64_t)figures->died);
    out_int(json, "expired", (int64_t)figures->expired);
    out_int(json, "cancelled", (int64_t)figures->cancelled);
    out_int(json, "rejected", (int64_t)figures->rejected);
    out_int(json, "lost", (int64_t)figures->lost);
    json_close(json);
    json_close(json);
}

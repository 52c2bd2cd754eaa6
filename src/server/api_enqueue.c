/* api_enqueue.c - new jobs: one, many by lines, or a body as the payload. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/http_value.h"
#include "rt/mem.h"
#include "server/api_handlers.h"
#include "server/api_in.h"
#include "server/api_out.h"
#include "server/planted.h"
#include "store/bounded.h"

#define KEY_MS_DEFAULT (24 * INT64_C(3600000)) /* how long an Idempotency-Key is remembered */

enum { ROOM_MS = 5000 }; /* in a queue that is full and whose overflow is "wait" */

/* ---- Keys ---- */

/* The header stands for the member. 0, or a problem. */
static int take_key(struct exchange *x, struct in_job *in, weir_job_spec *spec)
{
    struct bytes key = exchange_field(x, "idempotency-key");

    if (SERVER_PLANTED(KEY_IGNORED)) return 0;
    if (key.at) {
        if (key.count == 0 || key.count > WEIR_JOB_NAME_BYTES_MAX)
            return exchange_problem(x, PROBLEM_INVALID, "Idempotency-Key has 1 to %d bytes",
                                    WEIR_JOB_NAME_BYTES_MAX);
        if (in->idempotency_key.at && !bytes_are(in->idempotency_key, key))
            return exchange_problem(x, PROBLEM_INVALID,
                                    "idempotency_key is another one than Idempotency-Key");
        memcpy(in->key_text, key.at, key.count);
        in->key_text[key.count] = '\0';
        spec->idempotency_key = in->key_text;
    }
    if (spec->idempotency_key && spec->idempotency_ms == 0) spec->idempotency_ms = KEY_MS_DEFAULT;
    return 0;
}

/* Whether the job that has the key is the one that was asked for now. 1: it is; 0; negative. */
static int is_same(struct exchange *x, const weir_job_spec *spec, const weir_job_info *info)
{
    char *bytes;
    int r;

    if (!spec->idempotency_key || strcmp(info->idempotency_key, spec->idempotency_key) != 0)
        return 1; /* it was the unique key: another job, which is what that is for */
    if (strcmp(info->kind, spec->kind) != 0 || info->version != spec->version) return 0;
    if (info->payload_bytes != spec->payload_bytes) return 0;
    if (spec->payload_bytes == 0) return 1;
    bytes = mem_alloc(spec->payload_bytes);
    if (!bytes) return -ENOMEM;
    r = weir_job_payload(api_of(x)->store, info->id, bytes, spec->payload_bytes);
    if (r >= 0)
        r = (size_t)r == spec->payload_bytes && memcmp(bytes, spec->payload, (size_t)r) == 0;
    mem_free(bytes);
    return r;
}

static int check_reuse(struct exchange *x, const weir_job_spec *spec, const weir_enqueued *enqueued)
{
    weir_job_info info;
    int r;

    if (!enqueued->duplicate || !spec->idempotency_key) return 0;
    r = weir_job_get(api_of(x)->store, enqueued->id, &info);
    if (r == -ENOENT) return 0; /* forgotten since then */
    if (r < 0) return api_fail(x, r, "job");
    r = is_same(x, spec, &info);
    weir_job_info_free(&info);
    if (r < 0) return api_fail(x, r, "job");
    if (r == 1) return 0;
    return exchange_problem(x, PROBLEM_KEY_REUSED,
                            "job %" PRIu64 " has this key, with another kind, version or payload",
                            enqueued->id);
}

/* ---- One ---- */

static int check_queue(struct exchange *x, const weir_job_spec *spec)
{
    if (!spec->queue || !spec->queue[0])
        return exchange_problem(x, PROBLEM_INVALID, "queue is not set");
    return api_allow(x, VERB_ENQUEUE, spec->queue);
}

static int answer_enqueued(struct exchange *x, const weir_enqueued *enqueued)
{
    struct json_writer *json = exchange_json(x, enqueued->duplicate ? 200 : 201);
    char text[64];
    struct buffer location;

    buffer_init_fixed(&location, text, sizeof text);
    buffer_put_string(&location, "/v1/jobs/");
    buffer_put_uint(&location, enqueued->id);
    buffer_put_char(&location, '\0');
    exchange_set(x, "location", text);
    json_open_object(json);
    out_enqueued(json, enqueued);
    json_close(json);
    return 0;
}

/* Who waits for room waits for others, who need their turns to make it; and not so long that a
 * drain would have to cut it off. When nothing came of it that is known: nothing was decided. */
static int enqueue_waiting(struct exchange *x, const weir_job_spec *spec,
                           weir_enqueued *ret_enqueued)
{
    weir_store *store = api_of(x)->store;
    int r = job_enqueue_within(store, spec, -1, ret_enqueued);

    if (r != -EAGAIN) return r;
    exchange_leave_turn(x);
    return job_enqueue_within(store, spec, ROOM_MS, ret_enqueued);
}

static int enqueue(struct exchange *x, struct in_job *in, weir_job_spec *spec)
{
    weir_enqueued enqueued;
    int r = take_key(x, in, spec);

    if (r == 0 && spec->durability == WEIR_DURABILITY_UNSET)
        r = api_durability_asked(x, &spec->durability);
    if (r < 0) return r;
    if (SERVER_PLANTED(ANSWERED_EARLY)) spec->durability = WEIR_MEMORY;
    r = enqueue_waiting(x, spec, &enqueued);
    if (r < 0) return api_fail(x, r, "job");
    if (SERVER_PLANTED(ANSWERED_EARLY)) enqueued.durability = WEIR_SYNCED;
    r = check_reuse(x, spec, &enqueued);
    return r < 0 ? r : answer_enqueued(x, &enqueued);
}

static int enqueue_json(struct exchange *x, const char *queue)
{
    static const char *const names[] = {"durability", NULL};
    struct in_job in = {0};
    weir_job_spec spec;
    struct body body;
    int r = exchange_query_only(x, names);

    if (r < 0) return r;
    r = body_open(x, &body);
    if (r == 0) r = body_read(&body, in_job_members, &in);
    if (r == 0) r = in_job_spec(x, &in, queue, &spec);
    if (r == 0) r = check_queue(x, &spec);
    if (r == 0) r = enqueue(x, &in, &spec);
    body_close(&body);
    return r;
}

int job_enqueue(struct exchange *x)
{
    return enqueue_json(x, NULL);
}

/* ---- A body as it is ---- */

static int query_bool(struct exchange *x, const char *name, enum weir_answer *ret_answer)
{
    const char *text;
    int r = exchange_query(x, name, &text);

    if (r <= 0) return r;
    if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
        return exchange_problem(x, PROBLEM_BAD_QUERY, "%s is true or false", name);
    *ret_answer = text[0] == 't' ? WEIR_YES : WEIR_NO;
    return 0;
}

/* What can be said without JSON. */
static int query_job(struct exchange *x, struct in_job *in, weir_job_spec *spec)
{
    static const char *const names[] = {"kind",    "version",      "idempotent", "priority",
                                        "delay",   "attempts_max", "backoff",    "backoff_max",
                                        "timeout", "durability",   NULL};
    int64_t version = 0, priority = 0, attempts = 0, backoff = 0, backoff_max = 0, timeout = 0;
    int r = exchange_query_only(x, names);

    if (r >= 0) r = exchange_query(x, "kind", &spec->kind);
    if (r >= 0) r = query_bool(x, "idempotent", &spec->idempotent);
    if (r >= 0) r = exchange_query_int(x, "version", 0, UINT32_MAX, &version);
    if (r >= 0) r = exchange_query_int(x, "priority", 0, WEIR_JOB_PRIORITY_MAX, &priority);
    if (r >= 0) r = exchange_query_int(x, "attempts_max", 0, UINT16_MAX, &attempts);
    if (r >= 0) r = exchange_query_duration(x, "delay", 0, INT64_C(94608000000), &spec->delay_ms);
    if (r >= 0) r = exchange_query_duration(x, "backoff", 0, UINT32_MAX, &backoff);
    if (r >= 0) r = exchange_query_duration(x, "backoff_max", 0, UINT32_MAX, &backoff_max);
    if (r >= 0) r = exchange_query_duration(x, "timeout", 0, UINT32_MAX, &timeout);
    if (r < 0) return r;
    spec->version = (uint32_t)version;
    spec->priority = (uint8_t)priority;
    spec->timeout_ms = (uint32_t)timeout;
    spec->retry.attempts_max = (uint16_t)attempts;
    spec->retry.backoff_ms = (uint32_t)backoff;
    spec->retry.backoff_ms_max = (uint32_t)(backoff_max ? backoff_max : backoff);
    (void)in;
    return 0;
}

int job_enqueue_queue(struct exchange *x)
{
    struct bytes type = exchange_field(x, "content-type"), bytes = {NULL, 0};
    const char *queue = exchange_parameter(x, 0);
    struct in_job in = {0};
    weir_job_spec spec;
    int r = api_allow(x, VERB_ENQUEUE, queue);

    if (r < 0) return r;
    if (type.at && http_media_is(type, BYTES("application/json")) && x->target->pair_count == 0)
        return enqueue_json(x, queue);
    r = in_job_spec(x, &in, queue, &spec);
    if (r == 0) r = query_job(x, &in, &spec);
    if (r == 0) r = exchange_body(x, &bytes);
    if (r < 0) return r;
    spec.payload = bytes.at;
    spec.payload_bytes = bytes.count;
    return enqueue(x, &in, &spec);
}

/* ---- Many, by lines ---- */

enum {
    MANY_LINES_MAX = 100000,
    MANY_LINE_BYTES_MAX = 1 << 20,
    MANY_CHUNK_BYTES = 256 << 10, /* of lines that are enqueued at once */
};

struct many_line {
    uint64_t number; /* of lines with something in them, from 1 */
    char *text;
    struct body body;
    struct in_job in;
};

struct many {
    struct exchange *x;
    struct many_line *lines[API_ENQUEUE_MAX];
    weir_job_spec specs[API_ENQUEUE_MAX];
    weir_enqueued enqueued[API_ENQUEUE_MAX];
    size_t count, bytes;
    uint64_t number; /* of the last line that was read */
    uint64_t failed; /* the line that a problem is about; 0: none */
    enum weir_durability durability;
    uint64_t *ids; /* of all that are in */
    size_t id_count, id_room, duplicates;
};

static void line_free(struct many_line *line)
{
    body_close(&line->body);
    mem_free(line->text);
    mem_free(line);
}

static void chunk_drop(struct many *many)
{
    for (size_t i = 0; i < many->count; i++) line_free(many->lines[i]);
    many->count = 0;
    many->bytes = 0;
}

static int ids_reserve(struct many *many, size_t count)
{
    size_t room = many->id_room ? many->id_room : 256;
    uint64_t *grown;

    if (many->id_count + count <= many->id_room) return 0;
    while (room < many->id_count + count) room *= 2;
    grown = mem_resize(many->ids, room * sizeof *grown);
    if (!grown) return -ENOMEM;
    many->ids = grown;
    many->id_room = room;
    return 0;
}

static void note_in(struct many *many, const weir_enqueued *enqueued)
{
    many->ids[many->id_count++] = enqueued->id;
    many->duplicates += enqueued->duplicate;
}

/* All of the chunk is refused together: so one by one, up to the one that is meant. */
static int chunk_singly(struct many *many)
{
    for (size_t i = 0; i < many->count; i++) {
        weir_enqueued one;
        int r = weir_job_enqueue_all(api_of(many->x)->store, &many->specs[i], 1, &one);

        if (r < 0) {
            many->failed = many->lines[i]->number;
            return api_fail(many->x, r, "job");
        }
        note_in(many, &one);
    }
    return 0;
}

static int chunk_enqueue(struct many *many)
{
    int r = ids_reserve(many, many->count);

    if (many->count == 0) return 0;
    if (r == 0)
        r = weir_job_enqueue_all(api_of(many->x)->store, many->specs, many->count, many->enqueued);
    if (r == 0) {
        for (size_t i = 0; i < many->count; i++) note_in(many, &many->enqueued[i]);
    } else if (r == WEIR_ETIMEDOUT || r == WEIR_ECANCELED || r == -ENOMEM) {
        many->failed = many->lines[0]->number; /* not known, or it would be no better */
        r = api_fail(many->x, r, "job");
    } else {
        r = chunk_singly(many);
    }
    chunk_drop(many);
    return r;
}

/* A line becomes one more of the chunk. 0, or a problem. */
static int line_take(struct many *many, struct bytes text)
{
    struct exchange *x = many->x;
    struct many_line *line = mem_alloc_zeroed(sizeof *line);
    weir_job_spec *spec = &many->specs[many->count];
    int r;

    if (!line) return api_fail(x, -ENOMEM, "line");
    line->number = many->number;
    line->text = mem_alloc(text.count + 1);
    r = line->text ? 0 : api_fail(x, -ENOMEM, "line");
    if (line->text) {
        if (text.count > 0) memcpy(line->text, text.at, text.count);
        r = body_of(x, (struct bytes){line->text, text.count}, &line->body);
    }
    if (r == 0) r = body_read(&line->body, in_job_members, &line->in);
    if (r == 0) r = in_job_spec(x, &line->in, NULL, spec);
    if (r == 0) r = check_queue(x, spec);
    if (r < 0) {
        line_free(line);
        return r;
    }
    if (spec->idempotency_key && spec->idempotency_ms == 0) spec->idempotency_ms = KEY_MS_DEFAULT;
    spec->durability = many->durability;
    many->lines[many->count++] = line;
    many->bytes += text.count;
    return 0;
}

/* A line that is wrong: those before it go in, and then nothing more. The problem is said anew, as
 * it is dropped by what comes between. */
static int line_refused(struct many *many, struct bytes text)
{
    int r = chunk_enqueue(many);

    if (r < 0) return r;
    many->failed = many->number;
    r = line_take(many, text);
    return r < 0 ? r : exchange_problem(many->x, PROBLEM_INTERNAL, "a line is right after all");
}

static int read_lines(struct many *many)
{
    struct bytes line;
    int r, broken;

    while ((r = exchange_line(many->x, MANY_LINE_BYTES_MAX, &line)) > 0) {
        if (++many->number > MANY_LINES_MAX) {
            r = chunk_enqueue(many);
            if (r < 0) return r;
            many->failed = many->number;
            return exchange_problem(many->x, PROBLEM_TOO_LARGE, "at most %d lines", MANY_LINES_MAX);
        }
        r = line_take(many, line);
        if (r < 0) return line_refused(many, line);
        if (many->count == API_ENQUEUE_MAX || many->bytes >= MANY_CHUNK_BYTES)
            r = chunk_enqueue(many);
        if (r < 0) return r;
    }
    broken = r;
    r = chunk_enqueue(many);
    if (r < 0 || broken == 0) return r;
    /* The body broke off: what came whole is in, as it would be had it come a moment earlier. The
     * problem is there already, and to take jobs in does not touch it. */
    many->failed = many->number + 1;
    return broken;
}

/* "accepted", "ids" and the others as members of the object that is the answer, or the problem. */
static void put_outcome(struct many *many, struct buffer *out)
{
    buffer_put_string(out, "\"accepted\":");
    buffer_put_uint(out, many->id_count);
    buffer_put_string(out, ",\"duplicates\":");
    buffer_put_uint(out, many->duplicates);
    buffer_put_string(out, ",\"durability\":\"");
    buffer_put_string(out, api_durability_name(many->durability));
    buffer_put_string(out, "\",\"ids\":[");
    for (size_t i = 0; i < many->id_count; i++) {
        buffer_put_string(out, i ? ",\"" : "\"");
        buffer_put_uint(out, many->ids[i]);
        buffer_put_char(out, '"');
    }
    buffer_put_char(out, ']');
}

static int answer_many(struct many *many, int r)
{
    struct exchange *x = many->x;
    struct buffer *out = &x->out;

    if (r < 0) {
        /* The problem is a whole object: these are its last members. */
        if (out->used < 2 || out->at[out->used - 1] != '}') return r;
        out->used--;
        buffer_put_string(out, ",\"line\":");
        buffer_put_uint(out, many->failed);
        buffer_put_char(out, ',');
        put_outcome(many, out);
        buffer_put_char(out, '}');
        return r;
    }
    out = exchange_text(x, 200, "application/json");
    buffer_put_char(out, '{');
    put_outcome(many, out);
    buffer_put_char(out, '}');
    return 0;
}

int job_enqueue_many(struct exchange *x)
{
    static const char *const names[] = {"durability", NULL};
    struct bytes type = exchange_field(x, "content-type");
    struct many *many;
    int r = exchange_query_only(x, names);

    if (r >= 0) r = api_no_key(x);
    if (r < 0) return r;
    if (!type.at || !http_media_is(type, BYTES("application/x-ndjson")))
        return exchange_problem(x, PROBLEM_WRONG_TYPE, "the body has to be application/x-ndjson");
    many = mem_alloc_zeroed(sizeof *many);
    if (!many) return api_fail(x, -ENOMEM, "request");
    many->x = x;
    r = api_durability_asked(x, &many->durability);
    if (many->durability == WEIR_DURABILITY_UNSET) many->durability = api_of(x)->durability;
    if (r == 0) r = answer_many(many, read_lines(many));
    chunk_drop(many);
    mem_free(many->ids);
    mem_free(many);
    return r;
}

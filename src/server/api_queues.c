/* api_queues.c - queues: figures, settings, pause, resume, drain; and limit keys. */
#include <string.h>

#include "proto/cursor.h"
#include "server/api_handlers.h"
#include "server/api_in.h"
#include "server/api_out.h"
#include "store/bounded.h"

enum { CURSOR_QUEUES = 2, QUEUES_DEFAULT = 100, QUEUES_MAX = 1000, QUEUES_LOOKED_AT = 10000 };

/* ---- Looking ---- */

static int query_row(struct exchange *x, uint32_t *ret_row)
{
    char bytes[CURSOR_POSITION_MAX];
    const char *text;
    size_t count;
    int r = exchange_query(x, "cursor", &text);

    *ret_row = 0;
    if (r <= 0) return r;
    if (cursor_parse(CURSOR_QUEUES, bytes_of(text), bytes, &count) < 0 || count != sizeof *ret_row)
        return exchange_problem(x, PROBLEM_BAD_QUERY, "cursor is none of this listing");
    memcpy(ret_row, bytes, sizeof *ret_row);
    return 0;
}

/* Queues that the caller may see, up to the limit. 1: there may be more; 0; negative. */
static int put_queues(struct exchange *x, struct json_writer *json, uint32_t *row, int64_t limit)
{
    weir_queue_figures figures;
    int64_t count = 0;

    for (int looked = 0; count < limit && looked < QUEUES_LOOKED_AT; looked++) {
        int r = weir_queue_next(api_of(x)->store, row, &figures);

        if (r <= 0) return r;
        if (!api_may(x, VERB_READ, figures.name)) continue;
        out_queue(json, &figures);
        count++;
    }
    return 1;
}

int queues_list(struct exchange *x)
{
    static const char *const names[] = {"cursor", "limit", NULL};
    int64_t limit = QUEUES_DEFAULT;
    struct json_writer *json;
    uint32_t row;
    int r = exchange_query_only(x, names);

    if (r >= 0) r = exchange_query_int(x, "limit", 1, QUEUES_MAX, &limit);
    if (r >= 0) r = query_row(x, &row);
    if (r < 0) return r;
    json = exchange_json(x, 200);
    json_open_object(json);
    json_key(json, "queues");
    json_open_array(json);
    r = put_queues(x, json, &row, limit);
    if (r < 0) return api_fail(x, r, "queues");
    json_close(json);
    if (r > 0) {
        char text[CURSOR_TEXT_BYTES];

        (void)cursor_format(CURSOR_QUEUES, (struct bytes){(const char *)&row, sizeof row}, text);
        out_text(json, "next", text);
    }
    json_close(json);
    return 0;
}

int queue_show(struct exchange *x)
{
    const char *name = exchange_parameter(x, 0);
    weir_queue_figures figures;
    int r = api_allow(x, VERB_READ, name);

    if (r < 0) return r;
    r = weir_queue_get(api_of(x)->store, name, &figures);
    if (r < 0) return api_fail(x, r, "queue");
    out_queue(exchange_json(x, 200), &figures);
    return 0;
}

/* ---- Settings ---- */

struct in_rate {
    int64_t count, period_ms, burst;
    bool has_count, has_period, has_burst;
};

struct in_queue {
    bool none;
    bool paused, has_paused, draining, has_draining;
    bool has_depth, has_overflow, has_concurrency, has_latency;
    struct bytes overflow, durability;
    int64_t depth_max, concurrency, latency_target_ms, weight;
    struct in_rate rate;
};

static const struct json_member rate_members[] = {
    {.name = "count",
     .type = JSON_TYPE_INT,
     .offset = offsetof(struct in_rate, count),
     .max = UINT32_MAX,
     .present_offset = offsetof(struct in_rate, has_count)},
    {.name = "period_ms",
     .type = JSON_TYPE_INT,
     .offset = offsetof(struct in_rate, period_ms),
     .max = UINT32_MAX,
     .present_offset = offsetof(struct in_rate, has_period)},
    {.name = "burst",
     .type = JSON_TYPE_INT,
     .offset = offsetof(struct in_rate, burst),
     .max = UINT32_MAX,
     .present_offset = offsetof(struct in_rate, has_burst)},
    {0},
};

#define CONCURRENCY                                                          \
    {                                                                        \
        .name = "concurrency", .type = JSON_TYPE_INT,                        \
        .offset = offsetof(struct in_queue, concurrency), .max = UINT32_MAX, \
        .present_offset = offsetof(struct in_queue, has_concurrency)         \
    }
#define RATE                                                                                 \
    {                                                                                        \
        .name = "rate", .type = JSON_TYPE_OBJECT, .offset = offsetof(struct in_queue, rate), \
        .members = rate_members                                                              \
    }
#define DURABILITY                                                 \
    {                                                              \
        .name = "durability", .type = JSON_TYPE_TEXT,              \
        .offset = offsetof(struct in_queue, durability), .max = 16 \
    }

/* All that holds for a queue; or only some of it. */
#define QUEUE_MEMBERS(all_)                                              \
    {                                                                    \
        {.name = "depth_max",                                            \
         .type = JSON_TYPE_INT,                                          \
         .offset = offsetof(struct in_queue, depth_max),                 \
         .required = (all_),                                             \
         .min = 1,                                                       \
         .max = UINT32_MAX,                                              \
         .present_offset = offsetof(struct in_queue, has_depth)},        \
            {.name = "overflow",                                         \
             .type = JSON_TYPE_TEXT,                                     \
             .offset = offsetof(struct in_queue, overflow),              \
             .required = (all_),                                         \
             .max = 16,                                                  \
             .present_offset = offsetof(struct in_queue, has_overflow)}, \
            CONCURRENCY, RATE,                                           \
            {.name = "latency_target_ms",                                \
             .type = JSON_TYPE_INT,                                      \
             .offset = offsetof(struct in_queue, latency_target_ms),     \
             .max = UINT32_MAX,                                          \
             .present_offset = offsetof(struct in_queue, has_latency)},  \
            {.name = "paused",                                           \
             .type = JSON_TYPE_BOOL,                                     \
             .offset = offsetof(struct in_queue, paused),                \
             .present_offset = offsetof(struct in_queue, has_paused)},   \
            {.name = "draining",                                         \
             .type = JSON_TYPE_BOOL,                                     \
             .offset = offsetof(struct in_queue, draining),              \
             .present_offset = offsetof(struct in_queue, has_draining)}, \
            DURABILITY,                                                  \
        {                                                                \
            0                                                            \
        }                                                                \
    }

static const struct json_member queue_members[] = QUEUE_MEMBERS(true);
static const struct json_member queue_changes[] = QUEUE_MEMBERS(false);

static const struct json_member key_members[] = {
    CONCURRENCY,
    RATE,
    {.name = "weight",
     .type = JSON_TYPE_INT,
     .offset = offsetof(struct in_queue, weight),
     .max = UINT32_MAX},
    DURABILITY,
    {0},
};

static weir_job_rate rate_of(const struct in_rate *in)
{
    return (weir_job_rate){(uint32_t)in->count, (uint32_t)in->period_ms, (uint32_t)in->burst};
}

/* Whether it is paused or drained stays, unless it is said. */
static unsigned kept_when_set(const struct in_queue *in)
{
    return (in->has_paused ? 0u : QUEUE_KEEPS_PAUSED) |
           (in->has_draining ? 0u : QUEUE_KEEPS_DRAINING);
}

/* So does all the rest. */
static unsigned kept_when_changed(const struct in_queue *in)
{
    return kept_when_set(in) | (in->has_depth ? 0u : QUEUE_KEEPS_DEPTH) |
           (in->has_overflow ? 0u : QUEUE_KEEPS_OVERFLOW) |
           (in->has_concurrency ? 0u : QUEUE_KEEPS_CONCURRENCY) |
           (in->rate.has_count ? 0u : QUEUE_KEEPS_RATE_COUNT) |
           (in->rate.has_period ? 0u : QUEUE_KEEPS_RATE_PERIOD) |
           (in->rate.has_burst ? 0u : QUEUE_KEEPS_RATE_BURST) |
           (in->has_latency ? 0u : QUEUE_KEEPS_LATENCY);
}

/* What does nothing is a mistake, and would make a queue that is not there. */
static bool says_nothing(const struct in_queue *in)
{
    return kept_when_changed(in) == kept_when_changed(&(struct in_queue){0});
}

static int set_queue(struct exchange *x, const struct in_queue *in, unsigned kept)
{
    weir_queue_spec spec = {.name = exchange_parameter(x, 0),
                            .depth_max = (uint32_t)in->depth_max,
                            .concurrency = (uint32_t)in->concurrency,
                            .rate = rate_of(&in->rate),
                            .latency_target_ms = (uint32_t)in->latency_target_ms,
                            .paused = in->paused,
                            .draining = in->draining};
    enum weir_durability asked;
    int r = api_durability_of(x, in->durability, &asked);

    if (r < 0) return r;
    if (says_nothing(in)) return exchange_problem(x, PROBLEM_INVALID, "it says nothing to change");
    if (bytes_are(in->overflow, BYTES("wait")))
        spec.overflow = WEIR_WAIT;
    else if (bytes_are(in->overflow, BYTES("reject")))
        spec.overflow = WEIR_REJECT;
    else if (in->has_overflow)
        return exchange_problem(x, PROBLEM_INVALID, "overflow is reject or wait");
    r = queue_set_keeping(api_of(x)->store, &spec, kept);
    return r < 0 ? api_fail(x, r, "queue") : api_wrote_only(x, asked);
}

static int read_and_set(struct exchange *x, const struct json_member *members,
                        unsigned (*kept_of)(const struct in_queue *in))
{
    struct in_queue in = {0};
    struct body body = {0};
    int r = api_allow(x, VERB_MANAGE, exchange_parameter(x, 0));

    if (r == 0) r = body_open(x, &body);
    if (r == 0) r = body_read(&body, members, &in);
    if (r == 0) r = set_queue(x, &in, kept_of(&in));
    body_close(&body);
    return r;
}

int queue_set(struct exchange *x)
{
    return read_and_set(x, queue_members, kept_when_set);
}

int queue_change(struct exchange *x)
{
    return read_and_set(x, queue_changes, kept_when_changed);
}

static int change(struct exchange *x, int (*fn)(weir_store *store, const char *name))
{
    static const char *const names[] = {"durability", NULL};
    enum weir_durability asked = WEIR_DURABILITY_UNSET;
    const char *name = exchange_parameter(x, 0);
    int r = exchange_query_only(x, names);

    if (r >= 0) r = api_durability_asked(x, &asked);
    if (r >= 0) r = api_allow(x, VERB_MANAGE, name);
    if (r < 0) return r;
    r = fn(api_of(x)->store, name);
    return r < 0 ? api_fail(x, r, "queue") : api_wrote_only(x, asked);
}

int queue_pause(struct exchange *x)
{
    return change(x, weir_queue_pause);
}

int queue_resume(struct exchange *x)
{
    return change(x, weir_queue_resume);
}

int queue_drain(struct exchange *x)
{
    return change(x, weir_queue_drain);
}

/* ---- Keys ---- */

static int set_key(struct exchange *x, const struct in_queue *in)
{
    weir_key_spec spec = {.name = exchange_parameter(x, 0),
                          .concurrency = (uint32_t)in->concurrency,
                          .rate = rate_of(&in->rate),
                          .weight = (uint32_t)in->weight};
    enum weir_durability asked;
    int r = api_durability_of(x, in->durability, &asked);

    if (r < 0) return r;
    r = weir_key_set(api_of(x)->store, &spec);
    return r < 0 ? api_fail(x, r, "key") : api_wrote_only(x, asked);
}

int key_set(struct exchange *x)
{
    struct in_queue in = {0};
    struct body body = {0};
    int r = api_allow(x, VERB_MANAGE, NULL); /* it holds in all queues */

    if (r == 0) r = body_open(x, &body);
    if (r == 0) r = body_read(&body, key_members, &in);
    if (r == 0) r = set_key(x, &in);
    body_close(&body);
    return r;
}

/* api_schedules.c - schedules, and batches. */
#include <errno.h>
#include <string.h>

#include "server/api_handlers.h"
#include "server/api_in.h"
#include "server/api_out.h"

enum { SCHEDULES_MAX = 10000 };

/* ---- Looking ---- */

static const char *const overlap_names[] = {"", "allow", "skip"};
static const char *const catch_up_names[] = {"", "none", "one", "all"};

static void put_schedule(struct json_writer *json, const weir_schedule_info *info)
{
    json_open_object(json);
    out_text(json, "name", info->name);
    out_text(json, "cron", info->cron);
    out_text(json, "zone", info->zone[0] ? info->zone : "UTC");
    out_text(json, "queue", info->queue);
    out_text(json, "kind", info->kind);
    out_text(json, "overlap", overlap_names[info->overlap]);
    out_text(json, "catch_up", catch_up_names[info->catch_up]);
    out_bool(json, "paused", info->paused);
    out_int_if(json, "next_ms", info->next_ms);
    if (info->last_id) api_put_id(json, "last_id", info->last_id);
    if (info->zone_missing) out_bool(json, "zone_missing", true);
    out_int(json, "skipped", (int64_t)info->skipped);
    json_close(json);
}

int schedules_list(struct exchange *x)
{
    static const char *const names[] = {NULL};
    struct json_writer *json;
    weir_schedule_info info;
    uint32_t row = 0;
    int r = exchange_query_only(x, names);

    if (r < 0) return r;
    json = exchange_json(x, 200);
    json_open_object(json);
    json_key(json, "schedules");
    json_open_array(json);
    for (int i = 0; i < SCHEDULES_MAX; i++) {
        r = weir_schedule_next(api_of(x)->store, &row, &info);
        if (r < 0) return api_fail(x, r, "schedules");
        if (r == 0) break;
        if (api_may(x, VERB_READ, info.queue)) put_schedule(json, &info);
    }
    json_close(json);
    json_close(json);
    return 0;
}

/* 1: there is one; 0; negative: a problem. */
static int find(struct exchange *x, const char *name, weir_schedule_info *ret_info)
{
    uint32_t row = 0;

    for (;;) {
        int r = weir_schedule_next(api_of(x)->store, &row, ret_info);

        if (r < 0) return api_fail(x, r, "schedule");
        if (r == 0) return 0;
        if (strcmp(ret_info->name, name) == 0) return 1;
    }
}

/* The schedule of the path, which the caller may act on. 0, or a problem. */
static int find_allowed(struct exchange *x, enum verb verb, weir_schedule_info *ret_info)
{
    int r = find(x, exchange_parameter(x, 0), ret_info);

    if (r < 0) return r;
    if (r > 0) return api_allow(x, verb, ret_info->queue);
    r = api_allow(x, verb, NULL);
    return r < 0 ? r : exchange_problem(x, PROBLEM_NO_SUCH, "there is no such schedule");
}

int schedule_show(struct exchange *x)
{
    weir_schedule_info info;
    int r = find_allowed(x, VERB_READ, &info);

    if (r == 0) put_schedule(exchange_json(x, 200), &info);
    return r;
}

/* ---- Changing ---- */

struct in_schedule {
    bool none;
    bool paused;
    struct bytes cron, zone, overlap, catch_up, durability;
    struct in_job job;
};

#define TEXT(name_, required_)                                                                 \
    {                                                                                          \
        .name = #name_, .type = JSON_TYPE_TEXT, .offset = offsetof(struct in_schedule, name_), \
        .required = (required_), .max = WEIR_JOB_NAME_BYTES_MAX                                \
    }
static const struct json_member schedule_members[] = {
    TEXT(cron, true),
    TEXT(zone, false),
    TEXT(overlap, true),
    TEXT(catch_up, true),
    {.name = "paused", .type = JSON_TYPE_BOOL, .offset = offsetof(struct in_schedule, paused)},
    {.name = "job",
     .type = JSON_TYPE_OBJECT,
     .offset = offsetof(struct in_schedule, job),
     .required = true,
     .members = in_job_members},
    TEXT(durability, false),
    {0},
};

static unsigned index_of(struct bytes text, const char *const *names, unsigned count)
{
    for (unsigned i = 1; i < count; i++)
        if (bytes_are(text, bytes_of(names[i]))) return i;
    return 0;
}

static int set(struct exchange *x, struct in_schedule *in)
{
    weir_schedule_spec spec = {
        .name = exchange_parameter(x, 0),
        .cron = in->cron.at,
        .zone = in->zone.at,
        .overlap = (enum weir_overlap)index_of(in->overlap, overlap_names, 3),
        .catch_up = (enum weir_catch_up)index_of(in->catch_up, catch_up_names, 4),
        .paused = in->paused,
    };
    enum weir_durability asked;
    weir_schedule_info before;
    int r = api_durability_of(x, in->durability, &asked);

    if (r == 0) r = in_job_spec(x, &in->job, NULL, &spec.job);
    if (r < 0) return r;
    if (!spec.job.queue) return exchange_problem(x, PROBLEM_INVALID, "job.queue is not set");
    if (!in->job.trace.at) spec.job.trace = NULL; /* the header is about this request */
    r = api_allow(x, VERB_MANAGE, spec.job.queue);
    if (r < 0) return r;
    /* Who replaces one has to have a right to that as well. */
    r = find(x, spec.name, &before);
    if (r > 0) r = api_allow(x, VERB_MANAGE, before.queue);
    if (r < 0) return r;
    r = weir_schedule_set(api_of(x)->store, &spec);
    if (r == -ENOENT) return exchange_problem(x, PROBLEM_INVALID, "there is no such zone");
    return r < 0 ? api_fail(x, r, "schedule") : api_wrote_only(x, asked);
}

int schedule_set(struct exchange *x)
{
    struct in_schedule in = {0};
    struct body body = {0};
    int r = body_open(x, &body);

    if (r == 0) r = body_read(&body, schedule_members, &in);
    if (r == 0) r = set(x, &in);
    body_close(&body);
    return r;
}

int schedule_drop(struct exchange *x)
{
    weir_schedule_info info;
    int r = find_allowed(x, VERB_MANAGE, &info);

    if (r < 0) return r;
    r = weir_schedule_drop(api_of(x)->store, info.name);
    return r < 0 ? api_fail(x, r, "schedule") : api_wrote_only(x, WEIR_DURABILITY_UNSET);
}

/* ---- Batches ---- */

int batch_show(struct exchange *x)
{
    struct json_writer *json;
    weir_job_info info;
    uint64_t id;
    int r = api_id(x, 0, &id);

    if (r == 0) r = api_allow_job(x, VERB_READ, id);
    if (r < 0) return r;
    r = weir_job_get(api_of(x)->store, id, &info);
    if (r < 0) return api_fail(x, r, "batch");
    json = exchange_json(x, 200);
    json_open_object(json);
    api_put_id(json, "id", info.id);
    out_text(json, "state", weir_job_state_name(info.state));
    out_text(json, "queue", info.queue);
    out_int(json, "members", info.members);
    out_int(json, "left", info.members_left);
    out_int(json, "not_done", info.members_not_done);
    json_close(json);
    weir_job_info_free(&info);
    return 0;
}

int batch_seal(struct exchange *x)
{
    static const char *const names[] = {"durability", NULL};
    enum weir_durability asked = WEIR_DURABILITY_UNSET;
    struct json_writer *json;
    uint64_t id;
    int r = exchange_query_only(x, names), state;

    if (r >= 0) r = api_durability_asked(x, &asked);
    if (r >= 0) r = api_id(x, 0, &id);
    if (r >= 0) r = api_allow_job(x, VERB_ENQUEUE, id);
    if (r < 0) return r;
    state = weir_batch_seal(api_of(x)->store, id);
    if (state < 0) return api_fail(x, state, "batch");
    r = api_wrote(x, 200, asked, &json);
    if (r < 0) return r;
    api_put_id(json, "id", id);
    out_text(json, "state", weir_job_state_name((enum weir_job_state)state));
    json_close(json);
    return 0;
}

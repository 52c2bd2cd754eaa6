/* api_list.c - many jobs: listing by a filter, and acting on all that one finds. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "proto/cursor.h"
#include "rt/mem.h"
#include "server/api_handlers.h"
#include "server/api_in.h"
#include "server/api_out.h"
#include "server/filter.h"

enum {
    LIST_LIMIT_DEFAULT = 100,
    LIST_LIMIT_MAX = 1000,
    LIST_SCAN_DEFAULT = 100000, /* rows that are looked at */
    LIST_SCAN_MAX = 1000000,
    LIST_PAYLOADS_DEFAULT = 1000, /* payloads that are read for one page */
    LIST_PAYLOADS_MAX = 100000,
    LIST_CHUNK = 64,
    LIST_KEYS = 4096,          /* names that a payload may have open at a time, to be looked into */
    LIST_ROWS_AT_ONCE = 10000, /* under the store's lock */
    /* Of a job at most: all its errors, with messages of 1 KiB, each character an escape of six. */
    LIST_JOB_BYTES = WEIR_JOB_ERRORS_KEPT * (6 * (1024 + 200) + 80) + 16 * 1024,
};
enum { CURSOR_JOBS = 1 };

/* ---- Looking for them ---- */

/* Jobs that a filter finds, one after the other. */
struct finder {
    struct exchange *x;
    struct filter filter;
    uint32_t row;      /* where the engine goes on */
    int64_t now_ms;    /* ages count from here, on all pages */
    uint32_t scanned;  /* rows */
    uint32_t payloads; /* that were read */
    uint32_t scan_max, payloads_max;
    bool ended; /* there are no more */
    char *payload;
    size_t payload_room;
    struct json_key *keys;
};

static int parse_filter(struct exchange *x, struct bytes text, struct filter *filter)
{
    struct filter_refusal refusal;

    if (filter_parse(text, filter, &refusal) == 0) return 0;
    return exchange_problem_with(x, PROBLEM_BAD_FILTER, "offset", (int64_t)refusal.offset,
                                 "filter: %s", refusal.why);
}

/* Who has a right to some queues says which they want. */
static int allow_filter(struct exchange *x, enum verb verb, const struct filter *filter)
{
    const char *queue = filter->jobs.queue;

    if (filter->jobs.queue_prefix) return api_allow_prefix(x, verb, queue);
    if (queue || api_may(x, verb, NULL)) return api_allow(x, verb, queue);
    return exchange_problem(x, PROBLEM_FORBIDDEN,
                            "the token is for some queues only: say queue:NAME in the filter");
}

static int finder_begin(struct finder *finder)
{
    if (finder->filter.field_count == 0) return 0;
    finder->keys = mem_alloc(LIST_KEYS * sizeof *finder->keys);
    finder->payload_room = WEIR_STORE_PAYLOAD_BYTES_DEFAULT;
    finder->payload = mem_alloc(finder->payload_room);
    return finder->keys && finder->payload ? 0 : -ENOMEM;
}

static void finder_end(struct finder *finder)
{
    mem_free(finder->keys);
    mem_free(finder->payload);
}

static int read_payload(struct finder *finder, uint64_t id)
{
    weir_store *store = api_of(finder->x)->store;
    int r = weir_job_payload(store, id, finder->payload, finder->payload_room);

    while (r > 0 && (size_t)r > finder->payload_room) {
        char *grown = mem_resize(finder->payload, (size_t)r);

        if (!grown) return -ENOMEM;
        finder->payload = grown;
        finder->payload_room = (size_t)r;
        r = weir_job_payload(store, id, finder->payload, finder->payload_room);
    }
    return r;
}

/* 1: its payload is as it should be; 0; negative. */
static int passes(struct finder *finder, uint64_t id)
{
    const struct json_limits limits = {
        .depth_max = JSON_DEPTH_MAX, .keys = finder->keys, .key_room = LIST_KEYS};
    int r;

    if (finder->filter.field_count == 0) return 1;
    finder->payloads++;
    r = read_payload(finder, id);
    if (r == -ENOENT) return 0; /* forgotten since then */
    if (r < 0) return r;
    return filter_payload_passes(&finder->filter, (struct bytes){finder->payload, (size_t)r},
                                 &limits);
}

static bool has_budget(const struct finder *finder)
{
    return !finder->ended && finder->scanned < finder->scan_max &&
           (finder->filter.field_count == 0 || finder->payloads < finder->payloads_max);
}

/* The next ones, at most `max`: how many. 0 with a budget left: look again, or it has ended. */
static int finder_next(struct finder *finder, uint64_t *ret_ids, size_t max)
{
    uint32_t rows = finder->scan_max - finder->scanned, scanned = 0;
    uint64_t ids[LIST_CHUNK];
    size_t room = max < LIST_CHUNK ? max : LIST_CHUNK;
    int count, kept = 0;

    if (rows > LIST_ROWS_AT_ONCE) rows = LIST_ROWS_AT_ONCE;
    if (finder->filter.field_count > 0 && room > finder->payloads_max - finder->payloads)
        room = finder->payloads_max - finder->payloads;
    count = weir_job_list(api_of(finder->x)->store, &finder->filter.jobs, &finder->row, rows, ids,
                          room, &scanned);
    if (count < 0) return count;
    finder->scanned += scanned;
    finder->ended = finder->row == 0;
    for (int i = 0; i < count; i++) {
        int r = passes(finder, ids[i]);

        if (r < 0) return r;
        if (r > 0) ret_ids[kept++] = ids[i];
    }
    return kept;
}

/* ---- Listing ---- */

struct position {
    uint32_t row, filter_crc;
    int64_t now_ms;
};

static int query_cursor(struct finder *finder, struct bytes filter)
{
    struct position position = {.now_ms = api_now_ms(),
                                .filter_crc = crc32c(0, filter.at, filter.count)};
    char bytes[CURSOR_POSITION_MAX];
    uint32_t crc = position.filter_crc;
    const char *text;
    size_t count;
    int r = exchange_query(finder->x, "cursor", &text);

    if (r < 0) return r;
    if (r > 0) {
        if (cursor_parse(CURSOR_JOBS, bytes_of(text), bytes, &count) < 0 ||
            count != sizeof position)
            return exchange_problem(finder->x, PROBLEM_BAD_QUERY, "cursor is none of this listing");
        memcpy(&position, bytes, sizeof position);
        if (position.filter_crc != crc)
            return exchange_problem(finder->x, PROBLEM_BAD_QUERY,
                                    "cursor is that of another filter");
    }
    finder->row = position.row;
    finder->now_ms = position.now_ms;
    return 0;
}

static void put_next(struct json_writer *json, const struct finder *finder, struct bytes filter)
{
    struct position position = {.row = finder->row,
                                .now_ms = finder->now_ms,
                                .filter_crc = crc32c(0, filter.at, filter.count)};
    char text[CURSOR_TEXT_BYTES];

    (void)cursor_format(CURSOR_JOBS, (struct bytes){(const char *)&position, sizeof position},
                        text);
    out_text(json, "next", text);
}

/* How many jobs are looked for next, so that the answer holds those that are found; at least one
 * until it is half full. 0: the page ends here, and the next one goes on. */
static size_t page_room(const struct buffer *out, size_t limit, size_t matched)
{
    size_t fits = (out->bytes_max - out->used) / LIST_JOB_BYTES;

    if (fits == 0 && (matched == 0 || out->used < out->bytes_max / 2)) fits = 1;
    return fits < limit - matched ? fits : limit - matched;
}

/* The jobs themselves; how many there were. */
static int put_jobs(struct finder *finder, struct json_writer *json, size_t limit)
{
    uint64_t ids[LIST_CHUNK];
    size_t matched = 0, room;

    while ((room = page_room(json->out, limit, matched)) > 0 && has_budget(finder)) {
        int count = finder_next(finder, ids, room);

        if (count < 0) return count;
        for (int i = 0; i < count; i++) {
            weir_job_info info;
            int r = weir_job_get(api_of(finder->x)->store, ids[i], &info);

            if (r == -ENOENT) continue; /* forgotten since then */
            if (r < 0) return r;
            out_job(json, &info);
            weir_job_info_free(&info);
            matched++;
        }
    }
    return (int)matched;
}

static int list(struct finder *finder, struct bytes filter, size_t limit)
{
    struct exchange *x = finder->x;
    struct json_writer *json;
    int r = finder_begin(finder);

    if (r < 0) return api_fail(x, r, "list");
    filter_at(&finder->filter, finder->now_ms);
    json = exchange_json(x, 200);
    json_open_object(json);
    json_key(json, "jobs");
    json_open_array(json);
    r = put_jobs(finder, json, limit);
    if (r < 0) return api_fail(x, r, "list");
    json_close(json);
    out_int(json, "matched", r);
    out_int(json, "scanned", finder->scanned);
    if (finder->filter.field_count > 0) out_int(json, "payloads_read", finder->payloads);
    if (!finder->ended) put_next(json, finder, filter);
    json_close(json);
    return 0;
}

int jobs_list(struct exchange *x)
{
    static const char *const names[] = {"filter",   "limit",        "cursor",
                                        "scan_max", "payloads_max", NULL};
    struct finder finder = {.x = x};
    int64_t limit = LIST_LIMIT_DEFAULT, scan = LIST_SCAN_DEFAULT, payloads = LIST_PAYLOADS_DEFAULT;
    const char *filter = "";
    int r = exchange_query_only(x, names);

    if (r >= 0) r = exchange_query(x, "filter", &filter);
    if (r >= 0) r = exchange_query_int(x, "limit", 1, LIST_LIMIT_MAX, &limit);
    if (r >= 0) r = exchange_query_int(x, "scan_max", 1, LIST_SCAN_MAX, &scan);
    if (r >= 0) r = exchange_query_int(x, "payloads_max", 1, LIST_PAYLOADS_MAX, &payloads);
    if (r >= 0) r = parse_filter(x, bytes_of(filter), &finder.filter);
    if (r >= 0) r = allow_filter(x, VERB_READ, &finder.filter);
    if (r >= 0) r = query_cursor(&finder, bytes_of(filter));
    if (r < 0) return r;
    finder.scan_max = (uint32_t)scan;
    finder.payloads_max = (uint32_t)payloads;
    r = list(&finder, bytes_of(filter), (size_t)limit);
    finder_end(&finder);
    return r;
}

/* ---- Acting on all of them ---- */

struct in_bulk {
    bool none;
    bool has_expected, dry_run, has_filter;
    struct bytes filter, action, durability;
    enum weir_durability asked;
    int64_t expected_count;
};

static const struct json_member bulk_members[] = {
    {.name = "filter",
     .type = JSON_TYPE_TEXT,
     .offset = offsetof(struct in_bulk, filter),
     .required = true,
     .max = FILTER_BYTES_MAX},
    {.name = "action",
     .type = JSON_TYPE_TEXT,
     .offset = offsetof(struct in_bulk, action),
     .required = true,
     .max = 16},
    {.name = "expected_count",
     .type = JSON_TYPE_INT,
     .offset = offsetof(struct in_bulk, expected_count),
     .max = INT64_MAX,
     .present_offset = offsetof(struct in_bulk, has_expected)},
    {.name = "dry_run", .type = JSON_TYPE_BOOL, .offset = offsetof(struct in_bulk, dry_run)},
    {.name = "durability",
     .type = JSON_TYPE_TEXT,
     .offset = offsetof(struct in_bulk, durability),
     .max = 16},
    {0},
};

static const char *const action_names[] = {
    [WEIR_BULK_REPLAY] = "retry", [WEIR_BULK_PURGE] = "discard", [WEIR_BULK_CANCEL] = "cancel"};

static enum weir_bulk_action action_of(struct bytes text)
{
    for (int i = WEIR_BULK_REPLAY; i <= WEIR_BULK_CANCEL; i++)
        if (bytes_are(text, bytes_of(action_names[i]))) return (enum weir_bulk_action)i;
    return WEIR_BULK_UNSET;
}

static int count_differs(struct exchange *x, int64_t actual, int64_t expected)
{
    return exchange_problem_with(x, PROBLEM_COUNT_DIFFERS, "actual_count", actual,
                                 "%lld jobs are found, and %lld were expected", (long long)actual,
                                 (long long)expected);
}

static int compare_ids(const void *a, const void *b)
{
    uint64_t one = *(const uint64_t *)a, two = *(const uint64_t *)b;

    return one < two ? -1 : one > two;
}

/* Ids of all that pass, by their payloads too, rising: how many, or a problem. */
static int gather_ids(struct finder *finder, uint64_t **ret_ids)
{
    struct exchange *x = finder->x;
    size_t count = 0, kept = 0;
    int r = finder_begin(finder);
    uint64_t *ids = r == 0 ? mem_alloc((WEIR_BULK_MAX + LIST_CHUNK) * sizeof *ids) : NULL;

    if (!ids) return api_fail(x, -ENOMEM, "bulk");
    *ret_ids = ids;
    while (r >= 0 && has_budget(finder) && count <= WEIR_BULK_MAX) {
        r = finder_next(finder, ids + count, LIST_CHUNK);
        if (r > 0) count += (size_t)r;
    }
    if (r < 0) return api_fail(x, r, "bulk");
    if (count > WEIR_BULK_MAX)
        return exchange_problem(x, PROBLEM_INVALID, "more than %d jobs are found", WEIR_BULK_MAX);
    if (!finder->ended)
        return exchange_problem_with(x, PROBLEM_INVALID, "scanned", finder->payloads,
                                     "more than %d payloads would have to be read: narrow it down",
                                     LIST_PAYLOADS_MAX);
    qsort(ids, count, sizeof *ids, compare_ids);
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || ids[kept - 1] != ids[i]) ids[kept++] = ids[i];
    return (int)kept;
}

static int answer_bulk(struct exchange *x, const struct in_bulk *in, uint64_t id, int64_t count)
{
    struct json_writer *json = NULL;
    char location[64];
    int r = api_wrote(x, 202, in->asked, &json);

    if (r < 0 || !json) return r;
    (void)snprintf(location, sizeof location, "/v1/bulk/%llu", (unsigned long long)id);
    exchange_set(x, "location", location);
    api_put_id(json, "id", id);
    out_text(json, "action", action_names[action_of(in->action)]);
    out_int(json, "count", count);
    json_close(json);
    return 0;
}

static int answer_dry_run(struct exchange *x, int64_t count)
{
    struct json_writer *json = exchange_json(x, 200);

    json_open_object(json);
    out_bool(json, "dry_run", true);
    out_int(json, "count", count);
    json_close(json);
    return 0;
}

/* Payloads decide: their ids are found here, and frozen as they are. */
static int bulk_by_ids(struct finder *finder, const struct in_bulk *in)
{
    struct exchange *x = finder->x;
    uint64_t *ids = NULL, id = 0;
    int count, r;

    finder->scan_max = UINT32_MAX;
    finder->payloads_max = LIST_PAYLOADS_MAX;
    r = count = gather_ids(finder, &ids);
    if (r >= 0 && in->has_expected && in->expected_count != count) {
        r = count_differs(x, count, in->expected_count);
    } else if (r >= 0 && in->dry_run) {
        r = answer_dry_run(x, count);
    } else if (r >= 0) {
        r = weir_bulk_begin_ids(api_of(x)->store, ids, (size_t)count, action_of(in->action), &id);
        r = r < 0 ? api_fail(x, r, "bulk") : answer_bulk(x, in, id, r);
    }
    mem_free(ids);
    return r;
}

static int bulk_by_filter(struct finder *finder, const struct in_bulk *in)
{
    struct exchange *x = finder->x;
    weir_store *store = api_of(x)->store;
    uint64_t id;
    int64_t count;
    int r;

    if (in->dry_run) {
        count = weir_job_count(store, &finder->filter.jobs);
        if (count < 0) return api_fail(x, (int)count, "bulk");
        if (in->has_expected && count != in->expected_count)
            return count_differs(x, count, in->expected_count);
        return answer_dry_run(x, count);
    }
    r = weir_bulk_begin(store, &finder->filter.jobs, action_of(in->action),
                        in->has_expected ? (uint64_t)in->expected_count : WEIR_BULK_ANY, &id);
    if (r == -EEXIST) {
        count = weir_job_count(store, &finder->filter.jobs);
        if (count < 0) return api_fail(x, (int)count, "bulk");
        return count_differs(x, count, in->expected_count);
    }
    return r < 0 ? api_fail(x, r, "bulk") : answer_bulk(x, in, id, r);
}

static int bulk(struct exchange *x, struct in_bulk *in)
{
    struct finder finder = {.x = x};
    int r;

    if (action_of(in->action) == WEIR_BULK_UNSET)
        return exchange_problem(x, PROBLEM_INVALID, "action is retry, cancel or discard");
    if (!in->has_expected && !in->dry_run)
        return exchange_problem(x, PROBLEM_INVALID,
                                "expected_count is not set: \"dry_run\": true says how many");
    /* All that can be wrong with it is found before anything is begun. */
    r = api_durability_of(x, in->durability, &in->asked);
    if (r == 0) r = parse_filter(x, in->filter, &finder.filter);
    if (r == 0) r = allow_filter(x, VERB_MANAGE, &finder.filter);
    if (r < 0) return r;
    filter_at(&finder.filter, api_now_ms());
    r = finder.filter.field_count > 0 ? bulk_by_ids(&finder, in) : bulk_by_filter(&finder, in);
    finder_end(&finder);
    return r;
}

int bulk_begin(struct exchange *x)
{
    struct in_bulk in = {0};
    struct body body = {0};
    int r = api_no_key(x);

    if (r == 0) r = body_open(x, &body);
    if (r == 0) r = body_read(&body, bulk_members, &in);
    if (r == 0) r = bulk(x, &in);
    body_close(&body);
    return r;
}

/* ---- How far they are ---- */

enum { BULKS_MAX = 64 };

static void put_bulk(struct json_writer *json, const weir_bulk_info *info)
{
    json_open_object(json);
    api_put_id(json, "id", info->id);
    out_text(json, "action",
             (unsigned)info->action <= WEIR_BULK_CANCEL && info->action > WEIR_BULK_UNSET
                 ? action_names[info->action]
                 : "unknown");
    out_int(json, "count", info->count);
    out_int(json, "done", info->done);
    out_int(json, "failed", info->failed);
    out_bool(json, "finished", info->done == info->count);
    json_close(json);
}

int bulk_list(struct exchange *x)
{
    static const char *const names[] = {NULL};
    weir_bulk_info infos[BULKS_MAX];
    struct json_writer *json;
    int r = exchange_query_only(x, names);

    if (r >= 0) r = api_allow(x, VERB_READ, NULL);
    if (r < 0) return r;
    r = weir_bulk_list(api_of(x)->store, infos, BULKS_MAX);
    if (r < 0) return api_fail(x, r, "bulk");
    json = exchange_json(x, 200);
    json_open_object(json);
    json_key(json, "bulk");
    json_open_array(json);
    for (int i = 0; i < r; i++) put_bulk(json, &infos[i]);
    json_close(json);
    json_close(json);
    return 0;
}

int bulk_show(struct exchange *x)
{
    weir_bulk_info infos[BULKS_MAX];
    uint64_t id;
    int r = api_id(x, 0, &id);

    if (r == 0) r = api_allow(x, VERB_READ, NULL);
    if (r < 0) return r;
    r = weir_bulk_list(api_of(x)->store, infos, BULKS_MAX);
    if (r < 0) return api_fail(x, r, "bulk");
    for (int i = 0; i < r; i++) {
        if (infos[i].id != id) continue;
        put_bulk(exchange_json(x, 200), &infos[i]);
        return 0;
    }
    return exchange_problem(x, PROBLEM_NO_SUCH, "there is no such work on many jobs");
}

int bulk_drop(struct exchange *x)
{
    uint64_t id;
    int r = api_id(x, 0, &id);

    if (r == 0) r = api_allow(x, VERB_MANAGE, NULL);
    if (r < 0) return r;
    r = weir_bulk_drop(api_of(x)->store, id);
    return r < 0 ? api_fail(x, r, "bulk") : api_wrote_only(x, WEIR_DURABILITY_UNSET);
}

/* api_commit.c - several at once: a list of settlements, each for itself; and a commit, of jobs and
 * settlements, all or nothing. */
#include <errno.h>
#include <string.h>

#include "rt/mem.h"
#include "server/api_handlers.h"
#include "server/api_in.h"
#include "server/api_out.h"
#include "server/planted.h"

/* What both bodies have. Each job is some hundred bytes: on the heap, as many as there are. */
struct in_many {
    bool none;
    struct bytes durability;
    struct in_settle *settles;
    unsigned settle_count;
    struct in_job *jobs;
    unsigned job_count;
};

/* Room for one more, doubled as it fills up. NULL: there are too many, or there is no memory. */
static void *one_more(void **rows, unsigned count, unsigned max, size_t row_bytes)
{
    void *grown = *rows;

    if (count == max) return NULL;
    if ((count & (count - 1)) == 0) {
        grown = mem_resize(*rows, (count ? 2 * (size_t)count : 1) * row_bytes);
        if (!grown) return NULL;
        *rows = grown;
    }
    memset((char *)grown + count * row_bytes, 0, row_bytes);
    return (char *)grown + count * row_bytes;
}

static int read_rows(struct json_reader *reader, struct json_texts *texts, struct json_token first,
                     void **rows, unsigned *count, unsigned max, size_t row_bytes,
                     const struct json_member *members)
{
    if (first.kind != JSON_ARRAY) return json_refuse(reader, &first, "an array was expected");
    for (;;) {
        struct json_token token = json_next(reader);
        void *row;

        if (token.kind == JSON_ARRAY_END) return 0;
        if (token.kind == JSON_FAILED) return WEIR_EREFUSED;
        if (token.kind != JSON_OBJECT) return json_refuse(reader, &token, "an object was expected");
        row = one_more(rows, *count, max, row_bytes);
        if (!row) return json_refuse(reader, &token, "at most %u are taken at once", max);
        if (json_object(reader, texts, members, row) < 0) return WEIR_EREFUSED;
        ++*count;
    }
}

static int read_settles(struct json_reader *reader, struct json_texts *texts,
                        struct json_token first, void *into)
{
    struct in_many *in = (struct in_many *)((char *)into - offsetof(struct in_many, settles));

    return read_rows(reader, texts, first, (void **)&in->settles, &in->settle_count, API_SETTLE_MAX,
                     sizeof *in->settles, in_settle_members);
}

static int read_jobs(struct json_reader *reader, struct json_texts *texts, struct json_token first,
                     void *into)
{
    struct in_many *in = (struct in_many *)((char *)into - offsetof(struct in_many, jobs));

    return read_rows(reader, texts, first, (void **)&in->jobs, &in->job_count, API_ENQUEUE_MAX,
                     sizeof *in->jobs, in_job_members);
}

#define SETTLES                                                                              \
    {                                                                                        \
        .name = "settle", .type = JSON_TYPE_BY, .offset = offsetof(struct in_many, settles), \
        .read = read_settles                                                                 \
    }
#define DURABILITY                                                \
    {                                                             \
        .name = "durability", .type = JSON_TYPE_TEXT,             \
        .offset = offsetof(struct in_many, durability), .max = 16 \
    }

static const struct json_member settle_members[] = {SETTLES, DURABILITY, {0}};
static const struct json_member commit_members[] = {
    SETTLES,
    {.name = "enqueue",
     .type = JSON_TYPE_BY,
     .offset = offsetof(struct in_many, jobs),
     .read = read_jobs},
    DURABILITY,
    {0},
};

static void in_many_free(struct in_many *in)
{
    mem_free(in->settles);
    mem_free(in->jobs);
}

/* ---- What they say, in the words of the library ---- */

/* Alone: one that may not be settled, or is not there, is no matter of the others: it is asked for
 * as the job without a number, which is never there. */
static int fill_settlements(struct exchange *x, const struct in_many *in, bool alone,
                            weir_settlement *ones)
{
    int r = 0;

    for (unsigned i = 0; r == 0 && in->settles && i < in->settle_count; i++) {
        const struct in_settle *one = &in->settles[i];

        if (one->durability.at)
            return exchange_problem(x, PROBLEM_INVALID, "durability is said once, for all");
        r = in_settlement(x, one, in_settle_how(one->how), &ones[i]);
        if (r < 0) return r;
        if (!alone) {
            r = api_allow_job(x, VERB_WORK, ones[i].id);
            continue;
        }
        r = api_may_job(x, VERB_WORK, ones[i].id);
        if (r < 0) return api_fail(x, r, "settle");
        if (r == 0) ones[i].id = 0;
        r = 0;
    }
    return r;
}

static int fill_jobs(struct exchange *x, struct in_many *in, weir_job_spec *specs)
{
    int r = 0;

    for (unsigned i = 0; r == 0 && in->jobs && i < in->job_count; i++) {
        r = in_job_spec(x, &in->jobs[i], NULL, &specs[i]);
        if (r == 0 && !specs[i].queue) r = exchange_problem(x, PROBLEM_INVALID, "queue is not set");
        if (r == 0) r = api_allow(x, VERB_ENQUEUE, specs[i].queue);
        if (r == 0 && specs[i].idempotency_key && specs[i].idempotency_ms == 0)
            specs[i].idempotency_ms = 24 * INT64_C(3600000);
    }
    return r;
}

static void put_settled(struct json_writer *json, const struct in_many *in,
                        const weir_settlement *ones)
{
    json_key(json, "settled");
    json_open_array(json);
    for (unsigned i = 0; i < in->settle_count; i++) {
        json_open_object(json);
        api_put_id(json, "id", in->settles[i].id);
        if (ones[i].ret_error < 0)
            out_text(json, "error", problem_kind_of(problem_of_error(ones[i].ret_error))->code);
        else
            out_text(json, "state", weir_job_state_name(ones[i].ret_state));
        json_close(json);
    }
    json_close(json);
}

/* ---- Each for itself ---- */

static int settle_all(struct exchange *x, const struct in_many *in, weir_settlement *ones)
{
    enum weir_durability asked;
    struct json_writer *json;
    int r = api_durability_of(x, in->durability, &asked);

    if (r == 0 && in->settle_count == 0) r = api_allow(x, VERB_WORK, NULL);
    if (r == 0) r = fill_settlements(x, in, true, ones);
    if (r < 0) return r;
    for (unsigned i = 0; i < in->settle_count; i++) ones[i].durability = asked;
    r = weir_job_settle(api_of(x)->store, ones, in->settle_count);
    if (r < 0) return api_fail(x, r, "settle");
    json = api_wrote_as(x, 200, asked);
    put_settled(json, in, ones);
    json_close(json);
    return 0;
}

int jobs_settle(struct exchange *x)
{
    weir_settlement *ones = mem_alloc_zeroed(API_SETTLE_MAX * sizeof *ones);
    struct in_many in = {0};
    struct body body = {0};
    int r;

    if (!ones) return api_fail(x, -ENOMEM, "settle");
    r = body_open(x, &body);
    if (r == 0) r = body_read(&body, settle_members, &in);
    if (r == 0) r = settle_all(x, &in, ones);
    in_many_free(&in);
    body_close(&body);
    mem_free(ones);
    return r;
}

/* ---- All or nothing ---- */

struct commit_rows {
    weir_settlement ones[API_SETTLE_MAX];
    weir_job_spec specs[API_ENQUEUE_MAX];
    weir_enqueued enqueued[API_ENQUEUE_MAX];
};

static void answer_commit(struct exchange *x, const struct in_many *in,
                          const struct commit_rows *rows, enum weir_durability durability)
{
    struct json_writer *json = exchange_json(x, 200);

    json_open_object(json);
    out_text(json, "durability", api_durability_name(durability));
    json_key(json, "enqueued");
    json_open_array(json);
    for (unsigned i = 0; i < in->job_count; i++) {
        json_open_object(json);
        api_put_id(json, "id", rows->enqueued[i].id);
        out_bool(json, "duplicate", rows->enqueued[i].duplicate);
        json_close(json);
    }
    json_close(json);
    put_settled(json, in, rows->ones);
    json_close(json);
}

static int commit(struct exchange *x, struct in_many *in, struct commit_rows *rows)
{
    weir_commit_spec spec = {.jobs = rows->specs,
                             .job_count = in->job_count,
                             .settlements = rows->ones,
                             .settlement_count = in->settle_count,
                             .ret_enqueued = rows->enqueued};
    int r = api_durability_of(x, in->durability, &spec.durability);

    if (r == 0 && in->job_count + in->settle_count == 0) {
        r = api_allow(x, VERB_WORK, NULL);
        if (r == 0) r = exchange_problem(x, PROBLEM_INVALID, "there is nothing in it");
    }
    if (r == 0) r = fill_settlements(x, in, false, rows->ones);
    if (r == 0) r = fill_jobs(x, in, rows->specs);
    if (r < 0) return r;
    if (SERVER_PLANTED(COMMIT_IN_PARTS)) {
        r = weir_job_enqueue_all(api_of(x)->store, spec.jobs, spec.job_count, spec.ret_enqueued);
        spec.job_count = 0;
    }
    r = weir_commit(api_of(x)->store, &spec);
    if (r < 0) return api_fail(x, r, "commit");
    answer_commit(x, in, rows,
                  spec.durability == WEIR_DURABILITY_UNSET ? api_of(x)->durability
                                                           : spec.durability);
    return 0;
}

int jobs_commit(struct exchange *x)
{
    struct commit_rows *rows = mem_alloc_zeroed(sizeof *rows);
    struct in_many in = {0};
    struct body body = {0};
    int r;

    if (!rows) return api_fail(x, -ENOMEM, "commit");
    r = api_no_key(x);
    if (r == 0) r = body_open(x, &body);
    if (r == 0) r = body_read(&body, commit_members, &in);
    if (r == 0) r = commit(x, &in, rows);
    in_many_free(&in);
    body_close(&body);
    mem_free(rows);
    return r;
}

/* api_lease.c - what workers do: lease, extend, settle, many at once; and what they are told. */
#include <errno.h>
#include <string.h>

#include "rt/mem.h"
#include "server/api_handlers.h"
#include "server/api_in.h"
#include "server/api_out.h"
#include "server/planted.h"

enum {
    LEASE_WAIT_MS_MAX = 60000,
    LEASE_MS_DEFAULT = 30000,
    KINDS_MAX = 64,
};

/* ---- Leasing ---- */

struct in_kind {
    struct bytes name;
    int64_t version_min, version_max;
};

struct in_lease {
    bool none;
    struct bytes worker, durability;
    int64_t count, lease_ms, wait_ms;
    weir_job_kind kinds[KINDS_MAX];
    unsigned kind_count;
};

static const struct json_member kind_members[] = {
    {.name = "name",
     .type = JSON_TYPE_TEXT,
     .offset = offsetof(struct in_kind, name),
     .required = true,
     .max = WEIR_JOB_NAME_BYTES_MAX},
    {.name = "version_min",
     .type = JSON_TYPE_INT,
     .offset = offsetof(struct in_kind, version_min),
     .max = UINT32_MAX},
    {.name = "version_max",
     .type = JSON_TYPE_INT,
     .offset = offsetof(struct in_kind, version_max),
     .max = UINT32_MAX},
    {0},
};

static int read_kinds(struct json_reader *reader, struct json_texts *texts, struct json_token first,
                      void *into)
{
    struct in_lease *in = (struct in_lease *)((char *)into - offsetof(struct in_lease, kinds));

    if (first.kind != JSON_ARRAY) return json_refuse(reader, &first, "an array was expected");
    for (;;) {
        struct json_token token = json_next(reader);
        struct in_kind kind = {0};

        if (token.kind == JSON_ARRAY_END) return 0;
        if (token.kind == JSON_FAILED) return WEIR_EREFUSED;
        if (token.kind != JSON_OBJECT || in->kind_count == KINDS_MAX)
            return json_refuse(reader, &token, "up to %d kinds were expected", KINDS_MAX);
        if (json_object(reader, texts, kind_members, &kind) < 0) return WEIR_EREFUSED;
        in->kinds[in->kind_count++] =
            (weir_job_kind){kind.name.at, (uint32_t)kind.version_min, (uint32_t)kind.version_max};
    }
}

static const struct json_member lease_members[] = {
    {.name = "worker",
     .type = JSON_TYPE_TEXT,
     .offset = offsetof(struct in_lease, worker),
     .required = true,
     .max = WEIR_JOB_NAME_BYTES_MAX},
    {.name = "kinds",
     .type = JSON_TYPE_BY,
     .offset = offsetof(struct in_lease, kinds),
     .read = read_kinds},
    {.name = "count",
     .type = JSON_TYPE_INT,
     .offset = offsetof(struct in_lease, count),
     .min = 1,
     .max = API_LEASE_MAX},
    {.name = "lease_ms",
     .type = JSON_TYPE_INT,
     .offset = offsetof(struct in_lease, lease_ms),
     .min = 1,
     .max = WEIR_JOB_LEASE_MS_MAX},
    {.name = "wait_ms",
     .type = JSON_TYPE_INT,
     .offset = offsetof(struct in_lease, wait_ms),
     .max = LEASE_WAIT_MS_MAX},
    {.name = "durability",
     .type = JSON_TYPE_TEXT,
     .offset = offsetof(struct in_lease, durability),
     .max = 16},
    {0},
};

static void put_leased(struct exchange *x, const weir_job *jobs, int count,
                       enum weir_durability durability, unsigned orders)
{
    struct json_writer *json = exchange_json(x, 200);

    json_open_object(json);
    json_key(json, "jobs");
    json_open_array(json);
    for (int i = 0; i < count; i++) out_leased(json, &jobs[i]);
    json_close(json);
    out_orders(json, orders);
    out_text(json, "durability", api_durability_name(durability));
    json_close(json);
}

/* An answer that is too large would leave leases that nobody has: they go back. */
static void give_back(struct exchange *x, const weir_job *jobs, int count)
{
    int r = 0;

    /* What cannot be given back now is lost when its lease ends. */
    for (int i = 0; r >= 0 && i < count; i++)
        r = weir_job_release(api_of(x)->store, jobs[i].id, jobs[i].token, 0);
}

/* As many as there is room for; the others are for the next one who asks. */
static void answer_leased(struct exchange *x, const weir_job *jobs, int count,
                          enum weir_durability durability, unsigned orders)
{
    int told = count;

    put_leased(x, jobs, told, durability, orders);
    while (buffer_error(&x->out) == -EMSGSIZE && told > 1) {
        told /= 2;
        put_leased(x, jobs, told, durability, orders);
    }
    if (buffer_error(&x->out) == 0) give_back(x, jobs + told, count - told);
}

struct lease_wait {
    const weir_lease_spec *spec;
    weir_job *jobs;
};

static int lease_some(struct exchange *x, void *arg)
{
    const struct lease_wait *wait = arg;

    return weir_job_lease(api_of(x)->store, wait->spec, wait->jobs);
}

/* What is there is taken without more ado; for the rest the client is watched. */
static int lease_waiting(struct exchange *x, const struct in_lease *in, const weir_lease_spec *spec,
                         weir_job *jobs)
{
    weir_lease_spec at_once = *spec;
    int r;

    at_once.at_once = true;
    r = weir_job_lease(api_of(x)->store, &at_once, jobs);
    if (r != 0) return r;
    return api_wait(x, in->wait_ms,
                    &(struct api_wait){lease_some, &(struct lease_wait){spec, jobs}});
}

static int lease(struct exchange *x, const struct in_lease *in, weir_lease_spec *spec,
                 weir_job *jobs)
{
    weir_store *store = api_of(x)->store;
    unsigned orders;
    int r, leased;

    r = spec->at_once ? weir_job_lease(store, spec, jobs) : lease_waiting(x, in, spec, jobs);
    orders = weir_worker_orders(store, spec->worker);
    if (r == WEIR_ETIMEDOUT || (r == WEIR_ESTOPPING && orders)) r = 0;
    if (r < 0) return api_fail(x, r, "lease");
    leased = r;
    if (r > 0 && api_gone(x)) {
        /* Others get them at once. So it is told of none: who has shut its side still reads. */
        give_back(x, jobs, r);
        if (!SERVER_PLANTED(GIVEN_BACK_TOLD)) r = 0;
    }
    answer_leased(x, jobs, r, spec->durability, orders);
    if (buffer_error(&x->out) < 0) give_back(x, jobs, r);
    while (leased > 0) weir_job_free(&jobs[--leased]);
    return 0;
}

/* Room for as many as are asked for: most ask for one, and API_LEASE_MAX of them have 8 KiB. */
static int lease_counted(struct exchange *x, const struct in_lease *in, weir_lease_spec *spec)
{
    weir_job *jobs = mem_alloc_zeroed(spec->count * sizeof *jobs);
    int r;

    if (!jobs) return api_fail(x, -ENOMEM, "lease");
    r = lease(x, in, spec, jobs);
    mem_free(jobs);
    return r;
}

int queue_lease(struct exchange *x)
{
    struct in_lease *in = mem_alloc_zeroed(sizeof *in);
    weir_lease_spec spec = {.queue = exchange_parameter(x, 0)};
    struct body body = {0};
    int r = api_allow(x, VERB_WORK, spec.queue);

    if (!in) return api_fail(x, -ENOMEM, "lease");
    in->count = 1;
    in->lease_ms = LEASE_MS_DEFAULT;
    if (r == 0) r = api_no_key(x);
    if (r == 0) r = body_open(x, &body);
    if (r == 0) r = body_read(&body, lease_members, in);
    if (r == 0) r = api_durability_of(x, in->durability, &spec.durability);
    if (r == 0) {
        spec.worker = in->worker.at;
        spec.kinds = in->kinds;
        spec.kind_count = in->kind_count;
        spec.count = (size_t)in->count;
        spec.lease_ms = in->lease_ms;
        spec.at_once = in->wait_ms == 0;
        if (spec.durability == WEIR_DURABILITY_UNSET) spec.durability = api_of(x)->durability;
        r = lease_counted(x, in, &spec);
    }
    body_close(&body);
    mem_free(in);
    return r;
}

/* ---- Extending ---- */

struct in_extend {
    bool none;
    struct bytes worker, durability;
    int64_t lease_ms, progress;
    uint64_t token;
    weir_renewal leases[WEIR_JOB_RENEW_MAX];
    uint64_t ids[WEIR_JOB_RENEW_MAX]; /* that they were asked for by */
    unsigned lease_count;
};

struct in_one_lease {
    uint64_t id, token;
};

static const struct json_member one_lease_members[] = {
    {.name = "id",
     .type = JSON_TYPE_BY,
     .offset = offsetof(struct in_one_lease, id),
     .required = true,
     .read = in_read_id},
    {.name = "token",
     .type = JSON_TYPE_BY,
     .offset = offsetof(struct in_one_lease, token),
     .required = true,
     .read = in_read_id},
    {0},
};

static int read_leases(struct json_reader *reader, struct json_texts *texts,
                       struct json_token first, void *into)
{
    struct in_extend *in = (struct in_extend *)((char *)into - offsetof(struct in_extend, leases));

    if (first.kind != JSON_ARRAY) return json_refuse(reader, &first, "an array was expected");
    for (;;) {
        struct json_token token = json_next(reader);
        struct in_one_lease one = {0};

        if (token.kind == JSON_ARRAY_END) return 0;
        if (token.kind == JSON_FAILED) return WEIR_EREFUSED;
        if (token.kind != JSON_OBJECT || in->lease_count == WEIR_JOB_RENEW_MAX)
            return json_refuse(reader, &token, "up to %d leases were expected", WEIR_JOB_RENEW_MAX);
        if (json_object(reader, texts, one_lease_members, &one) < 0) return WEIR_EREFUSED;
        in->leases[in->lease_count++] = (weir_renewal){.id = one.id, .token = one.token};
    }
}

#define EXTEND_COMMON                                               \
    {.name = "worker",                                              \
     .type = JSON_TYPE_TEXT,                                        \
     .offset = offsetof(struct in_extend, worker),                  \
     .max = WEIR_JOB_NAME_BYTES_MAX},                               \
        {.name = "lease_ms",                                        \
         .type = JSON_TYPE_INT,                                     \
         .offset = offsetof(struct in_extend, lease_ms),            \
         .min = 1,                                                  \
         .max = WEIR_JOB_LEASE_MS_MAX},                             \
    {                                                               \
        .name = "durability", .type = JSON_TYPE_TEXT,               \
        .offset = offsetof(struct in_extend, durability), .max = 16 \
    }

static const struct json_member extend_members[] = {
    EXTEND_COMMON,
    {.name = "leases",
     .type = JSON_TYPE_BY,
     .offset = offsetof(struct in_extend, leases),
     .required = true,
     .read = read_leases},
    {0},
};

static const struct json_member extend_one_members[] = {
    EXTEND_COMMON,
    {.name = "token",
     .type = JSON_TYPE_BY,
     .offset = offsetof(struct in_extend, token),
     .required = true,
     .read = in_read_id},
    {0},
};

static const struct json_member progress_members[] = {
    {.name = "token",
     .type = JSON_TYPE_BY,
     .offset = offsetof(struct in_extend, token),
     .required = true,
     .read = in_read_id},
    {.name = "progress",
     .type = JSON_TYPE_INT,
     .offset = offsetof(struct in_extend, progress),
     .required = true,
     .max = UINT32_MAX},
    {.name = "durability",
     .type = JSON_TYPE_TEXT,
     .offset = offsetof(struct in_extend, durability),
     .max = 16},
    {0},
};

static const char *error_code(int error)
{
    return problem_kind_of(problem_of_error(error))->code;
}

static void put_renewal(struct json_writer *json, const weir_renewal *one, uint64_t id)
{
    json_open_object(json);
    api_put_id(json, "id", id);
    if (one->ret_error < 0) {
        out_text(json, "error", error_code(one->ret_error));
    } else {
        out_int(json, "lease_until_ms", one->ret_renewed.lease_until_ms);
        out_orders(json, one->ret_renewed.orders);
    }
    json_close(json);
}

/* Each for itself: a job that is gone, or another's, does not cost the others their leases. It is
 * asked for as the one without a number, which is never there. */
static int keep_allowed(struct exchange *x, struct in_extend *in)
{
    int r = 1;

    for (unsigned i = 0; r >= 0 && i < in->lease_count; i++) {
        in->ids[i] = in->leases[i].id;
        r = api_may_job(x, VERB_WORK, in->ids[i]);
        if (r == 0) in->leases[i].id = 0;
    }
    return r < 0 ? api_fail(x, r, "lease") : 0;
}

static int extend_all(struct exchange *x, struct in_extend *in)
{
    enum weir_durability asked;
    struct json_writer *json;
    int r = api_durability_of(x, in->durability, &asked);

    if (r == 0 && in->lease_count == 0) r = api_allow(x, VERB_WORK, NULL);
    if (r == 0) r = keep_allowed(x, in);
    if (r < 0) return r;
    r = weir_job_renew_all(api_of(x)->store, in->leases, in->lease_count, in->worker.at,
                           in->lease_ms);
    if (r < 0) return api_fail(x, r, "lease");
    r = api_wrote(x, 200, asked, &json);
    if (r < 0) return r;
    json_key(json, "leases");
    json_open_array(json);
    for (unsigned i = 0; i < in->lease_count; i++) put_renewal(json, &in->leases[i], in->ids[i]);
    json_close(json);
    out_orders(json, in->worker.at ? weir_worker_orders(api_of(x)->store, in->worker.at) : 0);
    json_close(json);
    return 0;
}

int leases_extend(struct exchange *x)
{
    struct in_extend in = {.lease_ms = LEASE_MS_DEFAULT};
    struct body body = {0};
    int r = body_open(x, &body);

    if (r == 0) r = body_read(&body, extend_members, &in);
    if (r == 0) r = extend_all(x, &in);
    body_close(&body);
    return r;
}

static int extend_one(struct exchange *x, uint64_t id, const struct in_extend *in)
{
    enum weir_durability asked;
    struct json_writer *json;
    weir_renewed renewed;
    int r = api_durability_of(x, in->durability, &asked);

    if (r < 0) return r;
    r = weir_job_renew(api_of(x)->store, id, in->token, in->worker.at, in->lease_ms, &renewed);
    if (r < 0) return api_fail(x, r, "job");
    r = api_wrote(x, 200, asked, &json);
    if (r < 0) return r;
    out_int(json, "lease_until_ms", renewed.lease_until_ms);
    out_orders(json, renewed.orders);
    json_close(json);
    return 0;
}

int job_extend(struct exchange *x)
{
    struct in_extend in = {.lease_ms = LEASE_MS_DEFAULT};
    struct body body = {0};
    uint64_t id;
    int r = api_id(x, 0, &id);

    if (r == 0) r = api_allow_job(x, VERB_WORK, id);
    if (r == 0) r = body_open(x, &body);
    if (r == 0) r = body_read(&body, extend_one_members, &in);
    if (r == 0) r = extend_one(x, id, &in);
    body_close(&body);
    return r;
}

int job_progress(struct exchange *x)
{
    struct in_extend in = {0};
    struct body body = {0};
    enum weir_durability asked;
    uint64_t id;
    int r = api_id(x, 0, &id);

    if (r == 0) r = api_allow_job(x, VERB_WORK, id);
    if (r == 0) r = body_open(x, &body);
    if (r == 0) r = body_read(&body, progress_members, &in);
    if (r == 0) r = api_durability_of(x, in.durability, &asked);
    if (r == 0) {
        r = weir_job_progress(api_of(x)->store, id, in.token, (uint32_t)in.progress);
        r = r < 0 ? api_fail(x, r, "job") : api_wrote_only(x, asked);
    }
    body_close(&body);
    return r;
}

/* ---- Settling ---- */

static int settle(struct exchange *x, const struct in_settle *in, enum weir_settle how)
{
    enum weir_durability asked;
    weir_settlement one;
    struct json_writer *json;
    int r = api_durability_of(x, in->durability, &asked);

    if (r == 0) r = in_settlement(x, in, how, &one);
    if (r < 0) return r;
    one.durability = asked;
    r = weir_job_settle(api_of(x)->store, &one, 1);
    if (r >= 0 && one.ret_error < 0 && !SERVER_PLANTED(REFUSAL_UNSEEN)) r = one.ret_error;
    if (r < 0) return api_fail(x, r, "job");
    json = api_wrote_as(x, 200, asked);
    api_put_id(json, "id", one.id);
    out_text(json, "state", weir_job_state_name(one.ret_state));
    json_close(json);
    return 0;
}

static int settle_one(struct exchange *x, enum weir_settle how)
{
    struct in_settle in = {0};
    struct body body = {0};
    uint64_t id;
    int r = api_id(x, 0, &id);

    if (r == 0) r = api_allow_job(x, VERB_WORK, id);
    if (r == 0) r = body_open(x, &body);
    if (r == 0) r = body_read(&body, in_settle_members, &in);
    if (r == 0 && ((in.id != 0 && in.id != id) || in.how.at))
        r = exchange_problem(x, PROBLEM_INVALID, "the path says which job, and how");
    in.id = id;
    if (r == 0) r = settle(x, &in, how);
    body_close(&body);
    return r;
}

int job_ack(struct exchange *x)
{
    return settle_one(x, WEIR_SETTLE_ACK);
}

int job_fail(struct exchange *x)
{
    return settle_one(x, WEIR_SETTLE_FAIL);
}

int job_release(struct exchange *x)
{
    return settle_one(x, WEIR_SETTLE_RELEASE);
}

/* ---- Workers ---- */

static void put_worker(struct exchange *x, struct json_writer *json, const char *name)
{
    out_text(json, "worker", name);
    out_orders(json, weir_worker_orders(api_of(x)->store, name));
    json_close(json);
}

int worker_show(struct exchange *x)
{
    struct json_writer *json;
    int r = api_allow(x, VERB_READ, NULL);

    if (r < 0) return r;
    json = exchange_json(x, 200);
    json_open_object(json);
    put_worker(x, json, exchange_parameter(x, 0));
    return 0;
}

struct in_order {
    struct bytes order;
};

static const struct json_member order_members[] = {
    {.name = "order",
     .type = JSON_TYPE_TEXT,
     .offset = offsetof(struct in_order, order),
     .required = true,
     .max = 16},
    {0},
};

static int order(struct exchange *x, struct bytes text)
{
    const char *name = exchange_parameter(x, 0);
    struct json_writer *json;
    unsigned orders;
    int r;

    if (bytes_are(text, BYTES("quiet")))
        orders = WEIR_GO_QUIET;
    else if (bytes_are(text, BYTES("end")))
        orders = WEIR_GO_QUIET | WEIR_GO_END;
    else if (bytes_are(text, BYTES("go-on")))
        orders = WEIR_GO_ON;
    else
        return exchange_problem(x, PROBLEM_INVALID, "order is quiet, end or go-on");
    r = weir_worker_order(api_of(x)->store, name, orders);
    if (r < 0) return api_fail(x, r, "worker");
    json = exchange_json(x, 200);
    json_open_object(json);
    /* Orders are not kept over a restart of the store. */
    out_text(json, "durability", api_durability_name(WEIR_MEMORY));
    put_worker(x, json, name);
    return 0;
}

int worker_order(struct exchange *x)
{
    struct in_order in = {0};
    struct body body = {0};
    int r = api_allow(x, VERB_MANAGE, NULL);

    if (r == 0) r = body_open(x, &body);
    if (r == 0) r = body_read(&body, order_members, &in);
    if (r == 0) r = order(x, in.order);
    body_close(&body);
    return r;
}

/* api_routes.c - all routes of the API: which handler, which right, how long, how much, and what
 * the OpenAPI document says of them. */
#include "server/api.h"
#include "server/api_handlers.h"

enum {
    POLL_DEADLINE_MS = 75000,  /* a long poll of a minute, and its answer */
    MANY_DEADLINE_MS = 300000, /* of an enqueueing by lines */
    BODY_SMALL = 64 << 10,     /* of what has no payload */
    BODY_MANY = 64 << 20,      /* of lines */
    BODY_COMMIT = 4 << 20,     /* of several jobs */
};

#define REF(name_) "{\"$ref\":\"#/components/schemas/" name_ "\"}"
#define QUERY(name_, type_, text_)                                                  \
    "{\"name\":\"" name_ "\",\"in\":\"query\",\"schema\":{\"type\":\"" type_ "\"}," \
    "\"description\":\"" text_ "\"}"
#define Q_DURABILITY "{\"$ref\":\"#/components/parameters/durability\"}"
#define LIST_OF(key_, name_)                                                   \
    "{\"type\":\"object\",\"required\":[\"" key_ "\"],\"properties\":{\"" key_ \
    "\":{\"type\":\"array\",\"items\":" REF(name_) "},\"next\":{\"type\":\"string\"}}}"
#define DOC(...) (&(const struct route_doc){__VA_ARGS__})

/* clang-format off */
static const char query_job[] =
    "[" QUERY("kind", "string", "of the job") ","
    QUERY("idempotent", "boolean", "may it be begun twice?") ","
    QUERY("version", "integer", "of the payload's schema") ","
    QUERY("priority", "integer", "0 to 31") ","
    QUERY("delay", "string", "as 30s") ","
    QUERY("attempts_max", "integer", "with backoff") ","
    QUERY("backoff", "string", "as 1s") ","
    QUERY("backoff_max", "string", "as 1m") ","
    QUERY("timeout", "string", "of an attempt") ","
    Q_DURABILITY "]";
static const char query_list[] =
    "[" QUERY("filter", "string", "as state:dead kind:mail* age>1h") ","
    QUERY("limit", "integer", "1 to 1000") ","
    QUERY("cursor", "string", "next") ","
    QUERY("scan_max", "integer", "rows to look at") ","
    QUERY("payloads_max", "integer", "payloads to read") "]";
static const char query_page[] =
    "[" QUERY("limit", "integer", "1 to 1000") ","
    QUERY("cursor", "string", "next") "]";
static const char query_connections[] =
    "[" QUERY("after", "integer", "an id") ","
    QUERY("limit", "integer", "1 to 1000") "]";
static const char query_audit[] =
    "[" QUERY("before", "integer", "a number") ","
    QUERY("limit", "integer", "1 to 1000") "]";
/* clang-format on */

#define GET_(path_, verb_, serve_, summary_, ...)                                        \
    {                                                                                    \
        .method = METHOD_GET, .path = (path_), .verb = (verb_), .serve = (serve_),       \
        .deadline_ms = ROUTE_DEADLINE_MS, .summary = (summary_), .doc = DOC(__VA_ARGS__) \
    }
#define WRITE_(method_, path_, verb_, serve_, bytes_, summary_, ...)                         \
    {                                                                                        \
        .method = (method_), .path = (path_), .verb = (verb_), .serve = (serve_),            \
        .deadline_ms = ROUTE_DEADLINE_MS, .body_bytes_max = (bytes_), .summary = (summary_), \
        .doc = DOC(__VA_ARGS__)                                                              \
    }
#define POST_(...) WRITE_(METHOD_POST, __VA_ARGS__)
#define PUT_(...) WRITE_(METHOD_PUT, __VA_ARGS__)
#define DELETE_(path_, verb_, serve_, summary_)                                        \
    WRITE_(METHOD_DELETE, path_, verb_, serve_, 0, summary_, .answer = REF("Written"), \
           .status = 200)

enum { BACKUP_DEADLINE_MS = 3600 * 1000 };

static const struct route table[] = {
    /* ---- For those who watch it ---- */
    GET_("/livez", VERB_PUBLIC, health_live, "The process answers", .status = 200),
    GET_("/readyz", VERB_PUBLIC, health_ready, "The store works, and the server is not draining",
         .query = "[" QUERY("verbose", "string", "each check in a line") "]", .status = 200),
    GET_("/openapi.json", VERB_PUBLIC, openapi_show, "This document",
         .answer = "{\"type\":\"object\"}", .status = 200),
    GET_("/metrics", VERB_READ, metrics_show, "Figures: Prometheus text, or OpenMetrics by Accept",
         .status = 200),

    /* ---- New jobs ---- */
    POST_("/v1/jobs", VERB_ENQUEUE, job_enqueue, ROUTE_BODY_BYTES_MAX,
          "Enqueue a job; with Idempotency-Key a repetition gives the same job",
          .query = "[" Q_DURABILITY "]", .body = REF("JobSpec"), .answer = REF("Enqueued"),
          .status = 201),
    {.method = METHOD_POST,
     .path = "/v1/jobs/many",
     .verb = VERB_ENQUEUE,
     .serve = job_enqueue_many,
     .deadline_ms = MANY_DEADLINE_MS,
     .body_bytes_max = BODY_MANY,
     .body_streams = true,
     .summary = "Enqueue many jobs, one JobSpec a line (application/x-ndjson), up to the first "
                "line that is refused",
     .doc = DOC(.query = "[" Q_DURABILITY "]", .body = REF("JobSpec"),
                .answer = REF("ManyEnqueued"), .status = 200)},
    POST_("/v1/queues/{queue}/jobs", VERB_ENQUEUE, job_enqueue_queue, ROUTE_BODY_BYTES_MAX,
          "Enqueue a job; a body of another type than JSON, or with a query, is the payload itself",
          .query = query_job, .body = REF("JobSpec"), .answer = REF("Enqueued"), .status = 201),

    /* ---- One job ---- */
    GET_("/v1/jobs", VERB_READ, jobs_list, "List jobs by a filter, page by page",
         .query = query_list, .answer = REF("JobPage"), .status = 200),
    {.method = METHOD_GET,
     .path = "/v1/jobs/{id}",
     .verb = VERB_READ,
     .serve = job_show,
     .deadline_ms = POLL_DEADLINE_MS,
     .waits = true,
     .summary = "A job; with ?wait=30s once it has ended, or after that time",
     .doc = DOC(.query = "[" QUERY("wait", "string", "up to 60s") "]", .answer = REF("Job"),
                .status = 200)},
    WRITE_(METHOD_PATCH, "/v1/jobs/{id}", VERB_MANAGE, job_patch, BODY_SMALL,
           "Change a job that waits: priority, time, expiry", .body = REF("JobPatch"),
           .answer = REF("JobState"), .status = 200),
    GET_("/v1/jobs/{id}/payload", VERB_READ, job_payload, "Its payload, as the bytes that came",
         .status = 200),
    GET_("/v1/jobs/{id}/result", VERB_READ, job_result, "Its result, as the bytes that came",
         .status = 200),
    POST_("/v1/jobs/{id}/retry", VERB_MANAGE, job_retry, ROUTE_BODY_BYTES_MAX,
          "A dead letter becomes a job again, with another payload if one is given",
          .body = REF("Retry"), .answer = REF("JobState"), .status = 200),
    POST_("/v1/jobs/{id}/cancel", VERB_MANAGE, job_cancel, 0,
          "Cancel a job; the worker of one that runs is told", .query = "[" Q_DURABILITY "]",
          .answer = REF("JobState"), .status = 200),
    POST_("/v1/jobs/{id}/discard", VERB_MANAGE, job_discard, 0, "Forget a job that has ended",
          .query = "[" Q_DURABILITY "]", .answer = REF("Written"), .status = 200),

    /* ---- Many jobs ---- */
    POST_("/v1/jobs/bulk", VERB_MANAGE, bulk_begin, BODY_SMALL,
          "Retry, cancel or discard all that a filter finds, in the background",
          .body = REF("BulkSpec"), .answer = REF("BulkBegun"), .status = 202),
    GET_("/v1/bulk", VERB_READ, bulk_list, "Work on many jobs, the newest first",
         .answer = LIST_OF("bulk", "Bulk"), .status = 200),
    GET_("/v1/bulk/{id}", VERB_READ, bulk_show, "How far it is", .answer = REF("Bulk"),
         .status = 200),
    DELETE_("/v1/bulk/{id}", VERB_MANAGE, bulk_drop,
            "Forget it; if it is not done, it stops there"),

    /* ---- Workers ---- */
    {.method = METHOD_POST,
     .path = "/v1/queues/{queue}/lease",
     .verb = VERB_WORK,
     .serve = queue_lease,
     .deadline_ms = POLL_DEADLINE_MS,
     .waits = true,
     .body_bytes_max = BODY_SMALL,
     .summary = "Lease jobs; with wait_ms as soon as there is one",
     .doc = DOC(.body = REF("LeaseSpec"), .answer = REF("Leased"), .status = 200)},
    POST_("/v1/leases/extend", VERB_WORK, leases_extend, BODY_SMALL,
          "The heartbeat of a worker for all its leases; says what it is to do",
          .body = REF("ExtendSpec"), .answer = REF("Extended"), .status = 200),
    POST_("/v1/jobs/{id}/extend", VERB_WORK, job_extend, BODY_SMALL, "The same for one lease",
          .body = REF("ExtendOneSpec"), .answer = REF("ExtendedOne"), .status = 200),
    POST_("/v1/jobs/{id}/progress", VERB_WORK, job_progress, BODY_SMALL,
          "A number of the job's own, shown while it runs", .body = REF("ProgressSpec"),
          .answer = REF("Written"), .status = 200),
    POST_("/v1/jobs/{id}/ack", VERB_WORK, job_ack, ROUTE_BODY_BYTES_MAX, "The job is done",
          .body = REF("SettleSpec"), .answer = REF("JobState"), .status = 200),
    POST_("/v1/jobs/{id}/fail", VERB_WORK, job_fail, BODY_SMALL,
          "The attempt has failed: again as its policy says, or dead", .body = REF("SettleSpec"),
          .answer = REF("JobState"), .status = 200),
    POST_("/v1/jobs/{id}/release", VERB_WORK, job_release, BODY_SMALL,
          "Given back: the attempt does not count", .body = REF("SettleSpec"),
          .answer = REF("JobState"), .status = 200),
    POST_("/v1/settle", VERB_WORK, jobs_settle, BODY_COMMIT,
          "Settle up to 64 leases, each for itself", .body = REF("SettleAllSpec"),
          .answer = REF("Settled"), .status = 200),
    POST_("/v1/commit", VERB_WORK, jobs_commit, BODY_COMMIT,
          "Enqueue jobs and settle leases, all or nothing", .body = REF("CommitSpec"),
          .answer = REF("Committed"), .status = 200),
    GET_("/v1/workers/{worker}", VERB_READ, worker_show, "What a worker is told to do",
         .answer = REF("Worker"), .status = 200),
    POST_("/v1/workers/{worker}/order", VERB_MANAGE, worker_order, BODY_SMALL,
          "Tell a worker to take on no more, to end, or to go on", .body = REF("OrderSpec"),
          .answer = REF("WorkerOrdered"), .status = 200),

    /* ---- Queues ---- */
    GET_("/v1/queues", VERB_READ, queues_list, "Queues that the token may see", .query = query_page,
         .answer = LIST_OF("queues", "Queue"), .status = 200),
    GET_("/v1/queues/{queue}", VERB_READ, queue_show, "A queue's settings and figures",
         .answer = REF("Queue"), .status = 200),
    PUT_("/v1/queues/{queue}", VERB_MANAGE, queue_set, BODY_SMALL,
         "Set what holds for a queue; paused and draining stay unless they are said",
         .body = REF("QueueSpec"), .answer = REF("Written"), .status = 200),
    WRITE_(METHOD_PATCH, "/v1/queues/{queue}", VERB_MANAGE, queue_change, BODY_SMALL,
           "Change some of what holds for a queue, at once; what is not said stays",
           .body = REF("QueuePatch"), .answer = REF("Written"), .status = 200),
    POST_("/v1/queues/{queue}/pause", VERB_MANAGE, queue_pause, 0, "Nothing is leased from it",
          .query = "[" Q_DURABILITY "]", .answer = REF("Written"), .status = 200),
    POST_("/v1/queues/{queue}/resume", VERB_MANAGE, queue_resume, 0, "The end of pause and drain",
          .query = "[" Q_DURABILITY "]", .answer = REF("Written"), .status = 200),
    POST_("/v1/queues/{queue}/drain", VERB_MANAGE, queue_drain, 0,
          "Nothing is enqueued; what there is is worked off", .query = "[" Q_DURABILITY "]",
          .answer = REF("Written"), .status = 200),
    PUT_("/v1/keys/{key}", VERB_MANAGE, key_set, BODY_SMALL,
         "What holds for a limit key or a fairness key, in all queues", .body = REF("KeySpec"),
         .answer = REF("Written"), .status = 200),

    /* ---- Schedules and batches ---- */
    GET_("/v1/schedules", VERB_READ, schedules_list, "Schedules that the token may see",
         .answer = LIST_OF("schedules", "Schedule"), .status = 200),
    GET_("/v1/schedules/{name}", VERB_READ, schedule_show, "A schedule", .answer = REF("Schedule"),
         .status = 200),
    PUT_("/v1/schedules/{name}", VERB_MANAGE, schedule_set, ROUTE_BODY_BYTES_MAX,
         "A new schedule, or another one under its name", .body = REF("ScheduleSpec"),
         .answer = REF("Written"), .status = 200),
    DELETE_("/v1/schedules/{name}", VERB_MANAGE, schedule_drop, "It does not come any more"),
    GET_("/v1/batches/{id}", VERB_READ, batch_show, "How many members a batch has, and has left",
         .answer = REF("Batch"), .status = 200),
    POST_("/v1/batches/{id}/seal", VERB_ENQUEUE, batch_seal, 0, "No more members come",
          .query = "[" Q_DURABILITY "]", .answer = REF("JobState"), .status = 200),

    /* ---- Tokens and the process ---- */
    GET_("/v1/tokens", VERB_ADMIN, tokens_show, "Tokens, without their secrets",
         .answer = LIST_OF("tokens", "Token"), .status = 200),
    POST_("/v1/tokens", VERB_ADMIN, token_add, BODY_SMALL, "A new token; its text is shown once",
          .body = REF("TokenSpec"), .answer = REF("TokenText"), .status = 201),
    POST_("/v1/tokens/{id}/rotate", VERB_ADMIN, token_rotate, BODY_SMALL,
          "Another text for the same name; the old one lives for overlap_ms",
          .body = REF("RotateSpec"), .answer = REF("TokenText"), .status = 200),
    DELETE_("/v1/tokens/{id}", VERB_ADMIN, token_drop, "It is not valid any more"),
    GET_("/v1/admin/info", VERB_ADMIN, admin_info, "Version, store, service",
         .answer = "{\"type\":\"object\"}", .status = 200),
    GET_("/v1/admin/config", VERB_ADMIN, admin_config,
         "The configuration in force, without secrets", .status = 200),
    GET_("/v1/admin/connections", VERB_ADMIN, admin_connections, "Connections there are",
         .query = query_connections, .answer = "{\"type\":\"object\"}", .status = 200),
    GET_("/v1/admin/tasks", VERB_ADMIN, admin_tasks,
         "The tree of scopes and tasks, with backtraces of those that are parked", .status = 200),
    GET_("/v1/admin/map", VERB_ADMIN, admin_map, "Every boundary: owner, lifetime, bound, failure",
         .query = "[" QUERY("format", "string", "json, text or graphviz") "]",
         .answer = "{\"type\":\"object\"}", .status = 200),
    GET_("/v1/admin/audit", VERB_ADMIN, admin_audit, "Who has changed what, newest first",
         .query = query_audit, .answer = "{\"type\":\"object\"}", .status = 200),
    {.method = METHOD_POST,
     .path = "/v1/admin/backup",
     .verb = VERB_ADMIN,
     .serve = admin_backup,
     .deadline_ms = BACKUP_DEADLINE_MS,
     .body_bytes_max = ROUTE_BODY_BYTES_MAX,
     .summary = "A copy of all that is synced by now, in the server's folder of backups",
     .doc = DOC(.body = "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"}}}",
                .answer = REF("Backup"), .status = 201)},
};

struct routes api_routes(void)
{
    return (struct routes){table, sizeof table / sizeof *table};
}

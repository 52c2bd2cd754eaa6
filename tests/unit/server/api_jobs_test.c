/* api_jobs_test.c - jobs over HTTP: enqueue, look, bytes as they came, change, end. */
#include <inttypes.h>

#include "store/bounded.h"
#include "unit/server/api_test.h"

/* ---- Enqueueing ---- */

API_TEST(a_job_is_enqueued_and_looked_at)
{
    char target[64], text[128];
    uint64_t id;

    CHECK_INT(api_ask(stand, "POST", "/v1/jobs",
                      API_JOB("mail", "welcome",
                              ",\"payload\":{\"to\":1},\"priority\":3,\"tags\":[\"eu\",\"vip\"],"
                              "\"unique_key\":\"u\",\"limit_keys\":[\"l\"],\"fairness_key\":\"f\","
                              "\"order_key\":\"o\",\"delay\":\"1h\",\"version\":2")),
              ==, 201);
    CHECK_CONTAINS(api_body(stand), "\"duplicate\":false,\"durability\":\"synced\"");
    id = (uint64_t)api_number(stand, "id");
    (void)snprintf(target, sizeof target, "/v1/jobs/%" PRIu64, id);
    CHECK_STR(server_field(stand->answer, "location", text, sizeof text), target);
    CHECK_INT(api_ask(stand, "GET", target, NULL), ==, 200);
    CHECK_CONTAINS(api_body(stand),
                   "\"state\":\"scheduled\",\"queue\":\"mail\",\"kind\":\"welcome\"");
    CHECK_CONTAINS(api_body(stand), "\"tags\":[\"eu\",\"vip\"]");
    CHECK_CONTAINS(api_body(stand), "\"unique_key\":\"u\"");
    CHECK_CONTAINS(api_body(stand), "\"limit_keys\":[\"l\"]");
    CHECK_CONTAINS(api_body(stand), "\"priority\":3");
    CHECK_CONTAINS(api_body(stand), "\"version\":2");
}

API_TEST(what_is_wrong_with_a_job_is_said_with_a_stable_code)
{
    static const struct {
        const char *body;
        unsigned status;
        const char *code, *detail;
    } rows[] = {
        {"{", 400, "bad-json", "\"offset\":1"},
        {"{\"colour\":1}", 400, "bad-json", "colour"},
        {"{\"queue\":\"q\",\"kind\":\"k\"}", 422, "invalid", "idempotent is not set"},
        {"{\"kind\":\"k\",\"idempotent\":true}", 422, "invalid", "queue is not set"},
        {"{\"queue\":\"q\",\"idempotent\":true}", 422, "invalid", "kind is not set"},
        {API_JOB("q", "k", ",\"run_at_ms\":5,\"delay_ms\":5"), 422, "invalid", "both"},
        {API_JOB("q", "k", ",\"payload\":1,\"payload_base64\":\"\""), 422, "invalid", "both"},
        {API_JOB("q", "k", ",\"payload_base64\":\"*\""), 400, "bad-json", "base64"},
        {API_JOB("q", "k", ",\"gathers\":\"x\""), 422, "invalid", "gathers"},
        {API_JOB("q", "k", ",\"durability\":\"x\""), 422, "invalid", "durability is"},
        {API_JOB("q", "k", ",\"tags\":[\"a b\"]"), 422, "invalid", "a tag"},
        {API_JOB("q", "k", ",\"batch\":\"77\""), 404, "no-such", "job"},
        {"{\"queue\":\"q\",\"kind\":\"k\",\"idempotent\":false,\"retry\":{\"attempts_max\":3}}",
         422, "invalid", "idempotent"},
    };
    char text[128];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        test_note("%s", rows[i].body);
        CHECK_INT(api_ask(stand, "POST", "/v1/jobs", rows[i].body), ==, rows[i].status);
        CHECK_STR(server_field(stand->answer, "content-type", text, sizeof text),
                  "application/problem+json");
        CHECK_STR(api_member(stand, "code", text), rows[i].code);
        CHECK_CONTAINS(api_body(stand), rows[i].detail);
    }
    stand->type = "text/plain";
    CHECK_INT(api_ask(stand, "POST", "/v1/jobs", "x"), ==, 415);
    stand->type = NULL;
    CHECK_INT(api_ask(stand, "POST", "/v1/jobs?durabilty=synced", "{}"), ==, 400);
    CHECK_STR(api_member(stand, "code", text), "bad-query");
    CHECK_INT(api_ask(stand, "GET", "/v1/jobs/12", NULL), ==, 404);
    CHECK_STR(api_member(stand, "code", text), "no-such");
    CHECK_INT(api_ask(stand, "GET", "/v1/jobs/x", NULL), ==, 422);
    CHECK_INT(api_ask(stand, "GET", "/v1/nothing", NULL), ==, 404);
    CHECK_STR(api_member(stand, "code", text), "not-found");
    CHECK_INT(api_ask(stand, "DELETE", "/v1/jobs", NULL), ==, 405);
}

API_TEST(the_durability_that_was_asked_for_is_the_one_that_is_told)
{
    CHECK_INT(api_ask(stand, "POST", "/v1/jobs?durability=memory", API_JOB("q", "k", "")), ==, 201);
    CHECK_CONTAINS(api_body(stand), "\"durability\":\"memory\"");
    CHECK_INT(api_ask(stand, "POST", "/v1/jobs", API_JOB("q", "k", ",\"durability\":\"written\"")),
              ==, 201);
    CHECK_CONTAINS(api_body(stand), "\"durability\":\"written\"");
    /* Of others it is a least: the store's own is more. */
    CHECK_INT(api_ask(stand, "POST", "/v1/queues/q/pause?durability=memory", NULL), ==, 200);
    CHECK_STR(api_body(stand), "{\"durability\":\"synced\"}");
}

static void check_payload(struct api_stand *stand, uint64_t id, const void *bytes, size_t count,
                          const char *type)
{
    char target[64], text[128];

    (void)snprintf(target, sizeof target, "/v1/jobs/%" PRIu64 "/payload", id);
    CHECK_INT(api_ask(stand, "GET", target, NULL), ==, 200);
    CHECK_INT(stand->answer->body_bytes, ==, count);
    CHECK(memcmp(stand->answer->body, bytes, count) == 0);
    CHECK_STR(server_field(stand->answer, "content-type", text, sizeof text), type);
}

API_TEST(payloads_come_back_as_the_bytes_that_came)
{
    static const char *const values[] = {
        "{\"b\": 1,  \"a\":\t[1.0, 1e3, 12345678901234567890123]}",
        "\"\\u00fc \xc3\xbc \\ud83d\\ude00\"",
        "-0.000",
        "null",
    };
    static const char binary[] = {0, 1, '\n', (char)0xff, '"', 0};
    uint64_t id;

    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        id = api_enqueue(stand, "q", "k", values[i]);
        check_payload(stand, id, values[i], strlen(values[i]), "application/json");
        CHECK_INT(api_ask(stand, "POST", "/v1/queues/q/lease", "{\"worker\":\"w\"}"), ==, 200);
        CHECK_CONTAINS(api_body(stand), "\"payload\":");
        CHECK_CONTAINS(api_body(stand), values[i]);
    }
    stand->type = "application/octet-stream";
    CHECK_INT(api_ask_bytes(stand, "POST", "/v1/queues/q/jobs?kind=raw&idempotent=true&priority=4",
                            binary, sizeof binary),
              ==, 201);
    stand->type = NULL;
    id = (uint64_t)api_number(stand, "id");
    check_payload(stand, id, binary, sizeof binary, "application/octet-stream");
    CHECK_INT(api_ask(stand, "POST", "/v1/queues/q/lease", "{\"worker\":\"w\"}"), ==, 200);
    CHECK_CONTAINS(api_body(stand), "\"payload_base64\":\"AAEK/yIA\"");
    CHECK_INT(
        api_ask(stand, "POST", "/v1/jobs", API_JOB("q", "k", ",\"payload_base64\":\"AAEK/yIA\"")),
        ==, 201);
    check_payload(stand, (uint64_t)api_number(stand, "id"), binary, sizeof binary,
                  "application/octet-stream");
}

API_TEST(json_with_blanks_around_it_is_not_changed_by_a_lease)
{
    CHECK_INT(api_ask(stand, "POST", "/v1/queues/q/jobs?kind=raw&idempotent=true", " 1\n"), ==,
              201);
    CHECK_INT(api_ask(stand, "POST", "/v1/queues/q/lease", "{\"worker\":\"w\"}"), ==, 200);
    CHECK_CONTAINS(api_body(stand), "\"payload_base64\":\"IDEK\"");
}

/* ---- Keys ---- */

API_TEST(a_repeated_request_with_its_key_gives_the_same_job)
{
    uint64_t id;
    char text[128];

    stand->fields = "Idempotency-Key: order-7\r\n";
    CHECK_INT(api_ask(stand, "POST", "/v1/jobs", API_JOB("q", "k", ",\"payload\":[1]")), ==, 201);
    id = (uint64_t)api_number(stand, "id");
    CHECK_INT(api_ask(stand, "POST", "/v1/jobs", API_JOB("q", "k", ",\"payload\":[1]")), ==, 200);
    CHECK_INT(api_number(stand, "id"), ==, id);
    CHECK_CONTAINS(api_body(stand), "\"duplicate\":true");
    CHECK_INT(api_ask(stand, "POST", "/v1/jobs", API_JOB("q", "k", ",\"payload\":[2]")), ==, 409);
    CHECK_STR(api_member(stand, "code", text), "key-reused");
    CHECK_INT(api_ask(stand, "POST", "/v1/jobs", API_JOB("q", "other", ",\"payload\":[1]")), ==,
              409);
    CHECK_INT(api_ask(stand, "POST", "/v1/jobs", API_JOB("q", "k", ",\"idempotency_key\":\"x\"")),
              ==, 422);
    stand->fields = NULL;
    CHECK_INT(api_ask(stand, "POST", "/v1/jobs", API_JOB("q", "k", ",\"payload\":[1]")), ==, 201);
    CHECK(api_number(stand, "id") != (int64_t)id);
}

/* A promise that is not kept is not made: what would be done twice says so. */
API_TEST(a_key_is_refused_where_it_would_be_ignored)
{
    static const struct {
        const char *target, *body;
    } rows[] = {
        {"/v1/commit", "{\"enqueue\":[" API_JOB("q", "k", "") "]}"},
        {"/v1/jobs/bulk", "{\"filter\":\"queue:q\",\"action\":\"cancel\",\"dry_run\":true}"},
        {"/v1/jobs/1/retry", "{}"},
        {"/v1/queues/q/lease", "{\"worker\":\"w\"}"},
        {"/v1/jobs/many", API_JOB("q", "k", "")},
    };

    stand->fields = "Idempotency-Key: again\r\n";
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        test_note("%s", rows[i].target);
        stand->type = strstr(rows[i].target, "many") ? "application/x-ndjson" : NULL;
        CHECK_INT(api_ask(stand, "POST", rows[i].target, rows[i].body), ==, 422);
        CHECK_CONTAINS(api_body(stand), "Idempotency-Key");
    }
    stand->type = NULL;
    /* What is the same when it is repeated needs none, and may have one. */
    CHECK_INT(api_ask(stand, "PUT", "/v1/queues/q", "{\"depth_max\":9,\"overflow\":\"reject\"}"),
              ==, 200);
    CHECK_INT(api_ask(stand, "POST", "/v1/queues/q/pause", NULL), ==, 200);
}

API_TEST(a_client_whose_connection_breaks_asks_again_with_its_key)
{
    const char *body = API_JOB("q", "k", ",\"payload\":[1]");
    weir_queue_figures figures;

    stand->fields = "Idempotency-Key: broken\r\n";
    for (int i = 0; i < 5; i++) {
        api_send(stand, "POST", "/v1/jobs", body, strlen(body));
        api_hang_up(stand); /* whether it was done is not known */
    }
    CHECK(api_ask(stand, "POST", "/v1/jobs", body) <= 201);
    CHECK_OK(weir_queue_get(stand->api.store, "q", &figures));
    CHECK_INT(figures.by_state[WEIR_JOB_READY], ==, 1);
}

API_TEST(a_traceparent_goes_with_the_job_and_a_malformed_one_is_ignored)
{
    const char *trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    char wanted[128];

    stand->fields = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n";
    (void)api_enqueue(stand, "q", "k", "1");
    stand->fields = NULL;
    (void)api_lease(stand, "q", NULL);
    (void)snprintf(wanted, sizeof wanted, "\"traceparent\":\"%s\"", trace);
    CHECK_CONTAINS(api_body(stand), wanted);
    stand->fields = "traceparent: 00-zz-b7ad6b7169203331-01\r\n";
    (void)api_enqueue(stand, "q", "k", "1");
    stand->fields = NULL;
    (void)api_lease(stand, "q", NULL);
    CHECK(!strstr(api_body(stand), "traceparent"));
}

/* ---- Many, by lines ---- */

API_TEST(lines_become_jobs)
{
    static char lines[64 * 1024];
    size_t used = 0;

    for (int i = 0; i < 600; i++)
        used += (size_t)snprintf(
            lines + used, sizeof lines - used,
            "{\"queue\":\"q\",\"kind\":\"k\",\"idempotent\":true,\"payload\":%d}\n", i);
    stand->type = "application/x-ndjson";
    CHECK_INT(api_ask(stand, "POST", "/v1/jobs/many", lines), ==, 200);
    CHECK_INT(api_number(stand, "accepted"), ==, 600);
    CHECK_CONTAINS(api_body(stand), "\"durability\":\"synced\"");
    stand->type = NULL;
    CHECK_INT(api_ask(stand, "POST", "/v1/jobs/many", "{}"), ==, 415);
}

API_TEST(lines_before_a_bad_one_are_in_and_nothing_after_it)
{
    static char lines[64 * 1024];
    weir_queue_figures figures;
    size_t used = 0;
    char text[128];

    for (int i = 1; i <= 300; i++)
        used += (size_t)snprintf(lines + used, sizeof lines - used,
                                 "{\"queue\":\"q\",\"kind\":%s,\"idempotent\":true}\n",
                                 i == 280 ? "7" : "\"k\"");
    stand->type = "application/x-ndjson";
    CHECK_INT(api_ask(stand, "POST", "/v1/jobs/many", lines), ==, 400);
    CHECK_STR(api_member(stand, "code", text), "bad-json");
    CHECK_INT(api_number(stand, "line"), ==, 280);
    CHECK_INT(api_number(stand, "accepted"), ==, 279);
    CHECK_OK(weir_queue_get(stand->api.store, "q", &figures));
    CHECK_INT(figures.by_state[WEIR_JOB_READY], ==, 279);
}

/* Not wrong in what it says, but as a line, or cut off: the same. */
API_TEST(lines_before_one_that_does_not_come_whole_are_in)
{
    static char body[3 * 256 + (1 << 20) + 64];
    const char *line = API_JOB("q", "k", "") "\n";
    size_t used = 0;

    for (int i = 0; i < 3; i++) {
        memcpy(body + used, line, strlen(line));
        used += strlen(line);
    }
    memset(body + used, 'a', sizeof body - used);
    stand->type = "application/x-ndjson";
    CHECK_INT(api_ask_bytes(stand, "POST", "/v1/jobs/many", body, sizeof body), ==, 413);
    CHECK_INT(api_number(stand, "line"), ==, 4);
    CHECK_INT(api_number(stand, "accepted"), ==, 3);
    stand->type = NULL;
    CHECK_INT(api_ask(stand, "GET", "/v1/queues/q", NULL), ==, 200);
    CHECK_INT(api_number(stand, "ready"), ==, 3);
}

API_TEST(lines_are_taken_up_to_the_one_that_finds_the_queue_full)
{
    char text[128];

    CHECK_INT(api_ask(stand, "PUT", "/v1/queues/q", "{\"depth_max\":2,\"overflow\":\"reject\"}"),
              ==, 200);
    stand->type = "application/x-ndjson";
    CHECK_INT(api_ask(stand, "POST", "/v1/jobs/many",
                      API_JOB("q", "k", "") "\n\n" API_JOB("q", "k", "") "\r\n" API_JOB(
                          "q", "k", "") "\n" API_JOB("other", "k", "")),
              ==, 429);
    CHECK_STR(api_member(stand, "code", text), "queue-full");
    CHECK_INT(api_number(stand, "line"), ==, 3);
    CHECK_INT(api_number(stand, "accepted"), ==, 2);
    stand->type = NULL;
    CHECK_INT(api_ask(stand, "POST", "/v1/jobs", API_JOB("q", "k", "")), ==, 429);
    CHECK_STR(server_field(stand->answer, "retry-after", text, sizeof text), "1");
    CHECK_INT(api_ask(stand, "GET", "/v1/queues/other", NULL), ==, 404);
}

/* ---- Waiting, changing, ending ---- */

static int work_later(void *arg)
{
    struct api_stand *stand = *(struct api_stand **)arg;
    weir_job job;
    int r;

    WEIR_DEADLINE(30000) {
        r = weir_job_lease(
            stand->api.store,
            &(weir_lease_spec){.queue = "q", .worker = "late", .count = 1, .lease_ms = 60000},
            &job);
        CHECK_INT(r, ==, 1);
        CHECK_OK(weir_job_ack(stand->api.store, job.id, job.token, "{\"x\": 1}", 8));
        weir_job_free(&job);
    }
    return 0;
}

/* Who makes room needs a turn for it, of which there is one. */
API_TEST(who_waits_for_room_keeps_nobody_from_making_it)
{
    const char *body = API_JOB("q", "k", "");
    struct server_client *waiting;
    weir_store_figures figures;
    uint64_t token, id;
    char target[64], ack[64];

    stand->limits.requests_max = 1;
    api_stand_reopen(stand);
    CHECK_INT(api_ask(stand, "PUT", "/v1/queues/q", "{\"depth_max\":1,\"overflow\":\"wait\"}"), ==,
              200);
    (void)api_enqueue(stand, "q", "k", "1");
    api_send(stand, "POST", "/v1/jobs", body, strlen(body));
    waiting = stand->client;
    stand->client = NULL;
    do {
        CHECK_OK(weir_yield());
        weir_store_figures_of(stand->api.store, &figures);
    } while (figures.waiting_room == 0);
    CHECK_INT(api_ask(stand, "GET", "/v1/queues/q", NULL), ==, 200);
    id = api_lease(stand, "q", &token);
    (void)snprintf(target, sizeof target, "/v1/jobs/%" PRIu64 "/ack", id);
    (void)snprintf(ack, sizeof ack, "{\"token\":%" PRIu64 "}", token);
    CHECK_INT(api_ask(stand, "POST", target, ack), ==, 200);
    api_hang_up(stand);
    stand->client = waiting;
    CHECK_INT(api_read(stand), ==, 201);
}

API_TEST(a_get_that_waits_is_answered_when_the_job_has_ended)
{
    uint64_t id = api_enqueue(stand, "q", "k", "1");
    char target[64];

    (void)snprintf(target, sizeof target, "/v1/jobs/%" PRIu64 "?wait=10ms", id);
    CHECK_INT(api_ask(stand, "GET", target, NULL), ==, 200);
    CHECK_CONTAINS(api_body(stand), "\"state\":\"ready\"");
    CHECK_OK(weir_spawn(stand->base.scope, work_later, &stand, sizeof stand));
    (void)snprintf(target, sizeof target, "/v1/jobs/%" PRIu64 "?wait=30s", id);
    CHECK_INT(api_ask(stand, "GET", target, NULL), ==, 200);
    CHECK_CONTAINS(api_body(stand), "\"state\":\"done\"");
    (void)snprintf(target, sizeof target, "/v1/jobs/%" PRIu64 "/result", id);
    CHECK_INT(api_ask(stand, "GET", target, NULL), ==, 200);
    CHECK_STR(api_body(stand), "{\"x\": 1}");
    (void)snprintf(target, sizeof target, "/v1/jobs/%" PRIu64 "?wait=2h", id);
    CHECK_INT(api_ask(stand, "GET", target, NULL), ==, 400);
}

/* That nothing moved is known then, so it is no timeout, whose outcome is not known. */
API_TEST(room_is_waited_for_as_long_as_is_said)
{
    weir_job_spec spec = stand_job("q", "x");
    weir_enqueued enqueued;

    CHECK_INT(api_ask(stand, "PUT", "/v1/queues/q", "{\"depth_max\":1,\"overflow\":\"wait\"}"), ==,
              200);
    CHECK_OK(job_enqueue_within(stand->api.store, &spec, 5, &enqueued));
    CHECK_INT(job_enqueue_within(stand->api.store, &spec, 5, &enqueued), ==, WEIR_EOVERLOAD);
    CHECK_CONTAINS(weir_why(), "queue 'q': is full");
    CHECK_INT(api_lease(stand, "q", NULL), ==, enqueued.id);
    CHECK_INT(api_lease(stand, "q", NULL), ==, 0);
}

API_TEST(a_job_that_a_full_queue_rejects_is_counted_once)
{
    CHECK_INT(api_ask(stand, "PUT", "/v1/queues/q", "{\"depth_max\":1,\"overflow\":\"reject\"}"),
              ==, 200);
    (void)api_enqueue(stand, "q", "k", "1");
    CHECK_INT(api_ask(stand, "POST", "/v1/jobs", API_JOB("q", "k", "")), ==, 429);
    CHECK_CONTAINS(api_body(stand), "\"code\":\"queue-full\"");
    CHECK_INT(api_ask(stand, "GET", "/v1/queues/q", NULL), ==, 200);
    CHECK_INT(api_number(stand, "rejected"), ==, 1);
}

/* The service ends while it waits, within no more than that takes. */
API_TEST(a_get_that_waits_does_not_hold_up_the_end_of_the_server)
{
    uint64_t id = api_enqueue(stand, "q", "k", "1");
    struct service_figures figures;
    char target[64];
    int r = 0;

    (void)snprintf(target, sizeof target, "/v1/jobs/%" PRIu64 "?wait=60s", id);
    api_send(stand, "GET", target, NULL, 0);
    do {
        CHECK_OK(weir_yield());
        service_figures_of(stand->server.service, &figures);
    } while (figures.requests == 0);
    WEIR_DEADLINE(20 * 1000) { r = service_close(stand->server.service); }
    CHECK_OK(r);
    CHECK_INT(api_read(stand), ==, 200);
    CHECK_CONTAINS(api_body(stand), "\"state\":\"ready\"");
    server_open(&stand->server, stand->base.scope,
                &(struct service_spec){.routes = api_routes(),
                                       .limits = stand->limits,
                                       .keep_deps = &stand->api,
                                       .admit = api_admit,
                                       .done = api_done});
}

API_TEST(a_job_that_waits_is_patched_also_over_a_restart)
{
    uint64_t first = api_enqueue(stand, "q", "k", "1"), second = api_enqueue(stand, "q", "k", "22");
    char target[64];

    (void)snprintf(target, sizeof target, "/v1/jobs/%" PRIu64, second);
    CHECK_INT(api_ask(stand, "PATCH", target, "{\"priority\":9}"), ==, 200);
    CHECK_CONTAINS(api_body(stand), "\"durability\":\"synced\"");
    CHECK_CONTAINS(api_body(stand), "\"state\":\"ready\"");
    api_stand_reopen(stand);
    CHECK_INT(api_ask(stand, "GET", target, NULL), ==, 200);
    CHECK_CONTAINS(api_body(stand), "\"priority\":9");
    check_payload(stand, second, "22", 2, "application/json");
    CHECK_INT(api_lease(stand, "q", NULL), ==, second);
    CHECK_INT(api_ask(stand, "PATCH", target, "{\"priority\":1}"), ==, 409);
    CHECK_INT(api_ask(stand, "PATCH", target, "{}"), ==, 422);
    (void)snprintf(target, sizeof target, "/v1/jobs/%" PRIu64, first);
    CHECK_INT(api_ask(stand, "PATCH", target, "{\"delay_ms\":3600000}"), ==, 200);
    CHECK_CONTAINS(api_body(stand), "\"state\":\"scheduled\"");
    CHECK_INT(api_lease(stand, "q", NULL), ==, 0);
    CHECK_INT(api_ask(stand, "PATCH", target, "{\"run_at_ms\":0}"), ==, 200);
    CHECK_INT(api_lease(stand, "q", NULL), ==, first);
}

API_TEST(a_dead_letter_is_retried_with_another_payload_and_discarded)
{
    uint64_t id = api_dead(stand, "q", "k", "{\"a\":1}"), token;
    char target[64], body[128];

    (void)snprintf(target, sizeof target, "/v1/jobs/%" PRIu64, id);
    CHECK_INT(api_ask(stand, "GET", target, NULL), ==, 200);
    CHECK_CONTAINS(api_body(stand), "\"class\":\"net\",\"message\":\"m\"");
    (void)snprintf(target, sizeof target, "/v1/jobs/%" PRIu64 "/retry", id);
    CHECK_INT(api_ask(stand, "POST", target, "{\"payload\":{\"a\":2}}"), ==, 200);
    CHECK_CONTAINS(api_body(stand), "\"state\":\"ready\"");
    CHECK_INT(api_ask(stand, "POST", target, NULL), ==, 409);
    check_payload(stand, id, "{\"a\":2}", 7, "application/json");
    (void)snprintf(target, sizeof target, "/v1/jobs/%" PRIu64 "/discard", id);
    CHECK_INT(api_ask(stand, "POST", target, NULL), ==, 409);
    CHECK_INT(api_lease(stand, "q", &token), ==, id);
    (void)snprintf(target, sizeof target, "/v1/jobs/%" PRIu64 "/cancel", id);
    CHECK_INT(api_ask(stand, "POST", target, NULL), ==, 200);
    CHECK_CONTAINS(api_body(stand), "\"state\":\"leased\"");
    (void)snprintf(target, sizeof target, "/v1/jobs/%" PRIu64 "/extend", id);
    (void)snprintf(body, sizeof body, "{\"token\":\"%" PRIu64 "\"}", token);
    CHECK_INT(api_ask(stand, "POST", target, body), ==, 200);
    CHECK_CONTAINS(api_body(stand), "\"orders\":[\"cancelled\"]");
    (void)snprintf(target, sizeof target, "/v1/jobs/%" PRIu64 "/release", id);
    CHECK_INT(api_ask(stand, "POST", target, body), ==, 200);
    CHECK_CONTAINS(api_body(stand), "\"state\":\"cancelled\"");
    (void)snprintf(target, sizeof target, "/v1/jobs/%" PRIu64 "/discard", id);
    CHECK_INT(api_ask(stand, "POST", target, NULL), ==, 200);
    CHECK_STR(api_body(stand), "{\"durability\":\"synced\"}");
    CHECK_INT(api_ask(stand, "POST", target, NULL), ==, 404);
}

/* ---- A disk that fails ---- */

/* Whatever the sync fails with: the record may be on disk. */
static int ask_while_syncs_fail(struct store_stand *base)
{
    struct api_stand *stand = api_stand_of(base);
    char text[64];

    api_stand_open(stand, false);
    stand_await_spares(stand->api.store);
    /* Another folder that cannot be written is no end of the store. */
    stand->api.backups = stand->base.path;
    test_fault("mkdir", -EROFS, 1);
    CHECK_INT(api_ask(stand, "POST", "/v1/admin/backup", "{\"name\":\"b\"}"), ==, 500);
    CHECK_CONTAINS(api_body(stand), "\"code\":\"internal\"");
    test_fault("fsync", -ENOMEM, 1000);
    CHECK_INT(api_ask(stand, "POST", "/v1/jobs", API_JOB("q", "k", "")), ==, 504);
    CHECK_CONTAINS(api_body(stand), "\"code\":\"outcome-unknown\"");
    CHECK_CONTAINS(api_body(stand), "the store has stopped");
    CHECK_STR(server_field(stand->answer, "retry-after", text, sizeof text), "");
    test_fault("fsync", -ENOMEM, 0);
    stand->store_ends_with = -EIO;
    api_stand_close(stand);
    return 0;
}

TEST(a_write_whose_sync_fails_may_be_done)
{
    static struct store_stand stand;

    (void)test_calls("fsync"); /* the runtime is to go through the harness */
    store_stand_make(&stand);
    CHECK_OK(store_stand_run(&stand, ask_while_syncs_fail));
    store_stand_remove(&stand);
}

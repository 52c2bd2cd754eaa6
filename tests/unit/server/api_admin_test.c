/* api_admin_test.c - queues, keys, schedules, batches, and what administrators look at. */
#include <inttypes.h>
#include <stdlib.h>

#include "unit/server/api_test.h"

API_TEST(a_queue_is_set_paused_resumed_and_drained)
{
    char text[128];

    CHECK_INT(api_ask(stand, "GET", "/v1/queues/q", NULL), ==, 404);
    CHECK_INT(
        api_ask(stand, "PUT", "/v1/queues/q",
                "{\"depth_max\":7,\"overflow\":\"reject\",\"concurrency\":2,\"rate\":{\"count\":5,"
                "\"period_ms\":1000,\"burst\":2},\"latency_target_ms\":100}"),
        ==, 200);
    CHECK_STR(api_body(stand), "{\"durability\":\"synced\"}");
    CHECK_INT(api_ask(stand, "GET", "/v1/queues/q", NULL), ==, 200);
    CHECK_CONTAINS(api_body(stand), "\"depth_max\":7,\"overflow\":\"reject\",\"concurrency\":2");
    CHECK_CONTAINS(api_body(stand), "\"rate\":{\"count\":5,\"period_ms\":1000,\"burst\":2}");
    CHECK_INT(api_ask(stand, "PUT", "/v1/queues/q", "{\"depth_max\":7,\"overflow\":\"drop\"}"), ==,
              422);
    CHECK_INT(api_ask(stand, "PUT", "/v1/queues/q", "{\"overflow\":\"wait\"}"), ==, 400);
    (void)api_enqueue(stand, "q", "k", "1");
    CHECK_INT(api_ask(stand, "POST", "/v1/queues/q/pause", NULL), ==, 200);
    CHECK_INT(api_lease(stand, "q", NULL), ==, 0);
    /* To set it does not resume it. */
    CHECK_INT(api_ask(stand, "PUT", "/v1/queues/q", "{\"depth_max\":9,\"overflow\":\"wait\"}"), ==,
              200);
    CHECK_INT(api_lease(stand, "q", NULL), ==, 0);
    CHECK_INT(api_ask(stand, "POST", "/v1/queues/q/resume", NULL), ==, 200);
    CHECK(api_lease(stand, "q", NULL) != 0);
    CHECK_INT(api_ask(stand, "POST", "/v1/queues/q/drain", NULL), ==, 200);
    CHECK_INT(api_ask(stand, "POST", "/v1/jobs", API_JOB("q", "k", "")), ==, 503);
    CHECK_STR(api_member(stand, "code", text), "draining");
    CHECK_INT(api_ask(stand, "POST", "/v1/queues/none/pause", NULL), ==, 404);
}

API_TEST(of_a_queue_some_is_changed_and_the_rest_stays)
{
    char before[128], after[128];

    /* One that was never set has the store's bounds, and shows them. */
    (void)api_enqueue(stand, "q", "k", "1");
    CHECK_INT(api_ask(stand, "GET", "/v1/queues/q", NULL), ==, 200);
    CHECK_STR(api_member(stand, "overflow", before), "reject");
    (void)api_member(stand, "depth_max", before);
    CHECK_INT(strtoll(before, NULL, 10), >, 0);
    CHECK_INT(api_ask(stand, "PATCH", "/v1/queues/q", "{\"latency_target_ms\":100}"), ==, 200);
    CHECK_STR(api_body(stand), "{\"durability\":\"synced\"}");
    CHECK_INT(api_ask(stand, "GET", "/v1/queues/q", NULL), ==, 200);
    CHECK_STR(api_member(stand, "depth_max", after), before);
    CHECK_STR(api_member(stand, "overflow", after), "reject");
    CHECK_STR(api_member(stand, "latency_target_ms", after), "100");

    CHECK_INT(api_ask(stand, "PATCH", "/v1/queues/q",
                      "{\"depth_max\":7,\"overflow\":\"wait\",\"concurrency\":2,\"paused\":true,"
                      "\"rate\":{\"count\":5,\"period_ms\":1000,\"burst\":2}}"),
              ==, 200);
    CHECK_INT(api_ask(stand, "PATCH", "/v1/queues/q", "{\"rate\":{\"burst\":3}}"), ==, 200);
    CHECK_INT(api_ask(stand, "PATCH", "/v1/queues/q", "{\"rate\":{\"period_ms\":2000}}"), ==, 200);
    CHECK_INT(api_ask(stand, "GET", "/v1/queues/q", NULL), ==, 200);
    CHECK_CONTAINS(api_body(stand), "\"rate\":{\"count\":5,\"period_ms\":2000,\"burst\":3}");
    CHECK_INT(api_ask(stand, "PATCH", "/v1/queues/q", "{\"rate\":{\"count\":6}}"), ==, 200);
    CHECK_INT(api_ask(stand, "GET", "/v1/queues/q", NULL), ==, 200);
    CHECK_CONTAINS(api_body(stand), "\"rate\":{\"count\":6,\"period_ms\":2000,\"burst\":3}");
    CHECK_INT(
        api_ask(stand, "PATCH", "/v1/queues/q", "{\"rate\":{\"count\":5,\"period_ms\":1000}}"), ==,
        200);
    CHECK_INT(api_ask(stand, "PATCH", "/v1/queues/q", "{\"concurrency\":0}"), ==, 200);
    CHECK_INT(api_ask(stand, "GET", "/v1/queues/q", NULL), ==, 200);
    CHECK_CONTAINS(api_body(stand), "\"depth_max\":7,\"overflow\":\"wait\",\"concurrency\":0");
    CHECK_CONTAINS(api_body(stand), "\"rate\":{\"count\":5,\"period_ms\":1000,\"burst\":3}");
    CHECK_CONTAINS(api_body(stand), "\"latency_target_ms\":100,\"paused\":true");

    CHECK_INT(api_ask(stand, "PATCH", "/v1/queues/q", "{\"depth_max\":0}"), ==, 400);
    CHECK_INT(api_ask(stand, "PATCH", "/v1/queues/q", "{\"overflow\":\"drop\"}"), ==, 422);
    CHECK_INT(api_ask(stand, "PATCH", "/v1/queues/q", "{\"rate\":{\"count\":5,\"period_ms\":0}}"),
              ==, 422);
    CHECK_INT(api_ask(stand, "PATCH", "/v1/queues/q", "{}"), ==, 422);
    CHECK_INT(api_ask(stand, "PATCH", "/v1/queues/none", "{\"durability\":\"synced\"}"), ==, 422);
    CHECK_INT(api_ask(stand, "GET", "/v1/queues/none", NULL), ==, 404);
    CHECK_INT(api_ask(stand, "PATCH", "/v1/queues/none", "{\"rate\":{\"burst\":7}}"), ==, 422);
    CHECK_CONTAINS(api_body(stand), "a burst needs a rate");
    /* It is made if there is none. */
    CHECK_INT(api_ask(stand, "PATCH", "/v1/queues/new", "{\"concurrency\":4}"), ==, 200);
    CHECK_INT(api_ask(stand, "GET", "/v1/queues/new", NULL), ==, 200);
    CHECK_STR(api_member(stand, "depth_max", after), before);
    CHECK_STR(api_member(stand, "concurrency", after), "4");
}

API_TEST(queues_are_listed_page_by_page)
{
    char target[256], next[128] = "";
    unsigned found = 0;

    for (int i = 0; i < 5; i++) {
        (void)snprintf(target, sizeof target, "q%d", i);
        (void)api_enqueue(stand, target, "k", "1");
    }
    do {
        (void)snprintf(target, sizeof target, "/v1/queues?limit=2%s%s", next[0] ? "&cursor=" : "",
                       next);
        CHECK_INT(api_ask(stand, "GET", target, NULL), ==, 200);
        for (const char *at = api_body(stand); (at = strstr(at, "\"name\":\"q")); at++) found++;
        (void)api_member(stand, "next", next);
    } while (next[0]);
    CHECK_INT(found, ==, 5);
    CHECK_INT(api_ask(stand, "GET", "/v1/queues?cursor=x", NULL), ==, 400);
}

API_TEST(a_limit_key_is_set)
{
    CHECK_INT(api_ask(stand, "PUT", "/v1/keys/tenant", "{\"concurrency\":1}"), ==, 200);
    for (int i = 0; i < 2; i++)
        CHECK_INT(
            api_ask(stand, "POST", "/v1/jobs", API_JOB("q", "k", ",\"limit_keys\":[\"tenant\"]")),
            ==, 201);
    CHECK(api_lease(stand, "q", NULL) != 0);
    CHECK_INT(api_lease(stand, "q", NULL), ==, 0);
    CHECK_INT(api_ask(stand, "GET", "/v1/jobs?filter=state:blocked", NULL), ==, 200);
    CHECK_INT(api_number(stand, "matched"), ==, 1);
    CHECK_CONTAINS(api_body(stand), "\"blocked_on\":\"tenant\"");
}

API_TEST(schedules_are_set_shown_and_dropped)
{
    CHECK_INT(
        api_ask(
            stand, "PUT", "/v1/schedules/nightly",
            "{\"cron\":\"0 3 * * *\",\"overlap\":\"skip\",\"catch_up\":\"one\",\"job\":" API_JOB(
                "q", "clean", ",\"payload\":{\"a\":1}") "}"),
        ==, 200);
    CHECK_STR(api_body(stand), "{\"durability\":\"synced\"}");
    CHECK_INT(api_ask(stand, "GET", "/v1/schedules/nightly", NULL), ==, 200);
    CHECK_CONTAINS(api_body(stand),
                   "\"cron\":\"0 3 * * *\",\"zone\":\"UTC\",\"queue\":\"q\",\"kind\":"
                   "\"clean\",\"overlap\":\"skip\",\"catch_up\":\"one\"");
    CHECK(api_number(stand, "next_ms") > api_now_ms());
    CHECK_INT(api_ask(stand, "GET", "/v1/schedules", NULL), ==, 200);
    CHECK_CONTAINS(api_body(stand), "nightly");
    CHECK_INT(
        api_ask(
            stand, "PUT", "/v1/schedules/bad",
            "{\"cron\":\"99 3 * * *\",\"overlap\":\"skip\",\"catch_up\":\"one\",\"job\":" API_JOB(
                "q", "clean", "") "}"),
        ==, 422);
    CHECK_CONTAINS(api_body(stand), "minute");
    CHECK_INT(
        api_ask(stand, "PUT", "/v1/schedules/bad",
                "{\"cron\":\"@daily\",\"zone\":\"Mars/Olympus\",\"overlap\":\"skip\",\"catch_up\":"
                "\"one\",\"job\":" API_JOB("q", "clean", "") "}"),
        ==, 422);
    CHECK_INT(
        api_ask(stand, "PUT", "/v1/schedules/bad",
                "{\"cron\":\"@daily\",\"overlap\":\"x\",\"catch_up\":\"one\",\"job\":" API_JOB(
                    "q", "clean", "") "}"),
        ==, 422);
    CHECK_INT(api_ask(stand, "DELETE", "/v1/schedules/nightly", NULL), ==, 200);
    CHECK_INT(api_ask(stand, "DELETE", "/v1/schedules/nightly", NULL), ==, 404);
    CHECK_INT(api_ask(stand, "GET", "/v1/schedules/nightly", NULL), ==, 404);
}

API_TEST(a_batch_is_gathered_when_it_is_sealed_and_done)
{
    char target[64], body[256];
    uint64_t id, token, member;

    CHECK_INT(api_ask(stand, "POST", "/v1/jobs", API_JOB("q", "gather", ",\"gathers\":\"done\"")),
              ==, 201);
    id = (uint64_t)api_number(stand, "id");
    (void)snprintf(body, sizeof body,
                   "{\"queue\":\"q\",\"kind\":\"m\",\"idempotent\":true,\"batch\":\"%" PRIu64 "\"}",
                   id);
    CHECK_INT(api_ask(stand, "POST", "/v1/jobs", body), ==, 201);
    member = (uint64_t)api_number(stand, "id");
    (void)snprintf(target, sizeof target, "/v1/batches/%" PRIu64, id);
    CHECK_INT(api_ask(stand, "GET", target, NULL), ==, 200);
    CHECK_CONTAINS(api_body(stand), "\"state\":\"held\"");
    CHECK_INT(api_number(stand, "members"), ==, 1);
    CHECK_INT(api_number(stand, "left"), ==, 1);
    (void)snprintf(target, sizeof target, "/v1/batches/%" PRIu64 "/seal", id);
    CHECK_INT(api_ask(stand, "POST", target, NULL), ==, 200);
    CHECK_CONTAINS(api_body(stand), "\"durability\":\"synced\"");
    CHECK_INT(api_ask(stand, "POST", target, NULL), ==, 404);
    CHECK_INT(api_lease(stand, "q", &token), ==, member);
    (void)snprintf(target, sizeof target, "/v1/jobs/%" PRIu64 "/ack", member);
    (void)snprintf(body, sizeof body, "{\"token\":%" PRIu64 "}", token);
    CHECK_INT(api_ask(stand, "POST", target, body), ==, 200);
    CHECK_INT(api_lease(stand, "q", NULL), ==, id);
}

/* ---- What administrators look at ---- */

API_TEST(the_process_shows_what_it_is_and_does)
{
    CHECK_INT(api_ask(stand, "GET", "/v1/admin/info", NULL), ==, 200);
    CHECK_CONTAINS(api_body(stand), "\"name\":\"test\"");
    CHECK_CONTAINS(api_body(stand), "\"durability\":\"synced\"");
    CHECK_CONTAINS(api_body(stand), "\"store\":{\"jobs\":0");
    CHECK_INT(api_ask(stand, "GET", "/v1/admin/config", NULL), ==, 200);
    CHECK_STR(api_body(stand), atom_load(&stand->api.config));
    CHECK_INT(api_ask(stand, "GET", "/v1/admin/connections", NULL), ==, 200);
    CHECK_CONTAINS(api_body(stand), "\"route\":\"");
    CHECK_CONTAINS(api_body(stand), "/v1/admin/connections");
    CHECK_INT(api_ask(stand, "GET", "/v1/admin/tasks", NULL), ==, 200);
    CHECK_CONTAINS(api_body(stand), "scope 'root'");
    CHECK_CONTAINS(api_body(stand), "      at ");
    CHECK_INT(api_ask(stand, "GET", "/v1/admin/map", NULL), ==, 200);
    CHECK_CONTAINS(api_body(stand), "{\"boundaries\":");
    CHECK_INT(api_ask(stand, "GET", "/v1/admin/map?format=text", NULL), ==, 200);
    CHECK_INT(api_ask(stand, "GET", "/v1/admin/map?format=pdf", NULL), ==, 400);
    CHECK_INT(api_ask(stand, "GET", "/v1/tokens", NULL), ==, 501);
}

API_TEST(a_dump_that_is_too_long_for_an_answer_is_cut_and_says_so)
{
    enum { BYTES_MAX = 1500 };
    size_t bytes;

    stand->limits.answer_bytes_max = BYTES_MAX;
    api_stand_reopen(stand);
    CHECK_INT(api_ask(stand, "GET", "/v1/admin/tasks", NULL), ==, 200);
    bytes = strlen(api_body(stand));
    CHECK_INT(bytes, >, BYTES_MAX - 256);
    CHECK_INT(bytes, <=, BYTES_MAX);
    CHECK_STR(api_body(stand) + bytes - strlen("bytes are shown)\n"), "bytes are shown)\n");
    /* A map in JSON would not be JSON any more. */
    for (char name[] = "queue 0"; name[6] < '9'; name[6]++)
        (void)api_enqueue(stand, name, "k", "1");
    CHECK_INT(api_ask(stand, "GET", "/v1/admin/map", NULL), ==, 406);
    CHECK_INT(api_ask(stand, "GET", "/v1/admin/map?format=text", NULL), ==, 200);
}

API_TEST(health_is_told_and_a_server_that_drains_is_not_ready)
{
    CHECK_INT(api_ask(stand, "GET", "/livez", NULL), ==, 200);
    CHECK_STR(api_body(stand), "ok\n");
    CHECK_INT(api_ask(stand, "GET", "/readyz?verbose", NULL), ==, 200);
    CHECK_STR(api_body(stand), "[+]store ok\n[+]serving ok\n[+]room ok\nready\n");
    atom_store(&stand->api.draining, true);
    CHECK_INT(api_ask(stand, "GET", "/readyz", NULL), ==, 503);
    CHECK_STR(api_body(stand), "not ready\n");
    CHECK_INT(api_ask(stand, "GET", "/readyz?verbose", NULL), ==, 503);
    CHECK_CONTAINS(api_body(stand), "[-]serving: draining\n");
    CHECK_INT(api_ask(stand, "GET", "/livez", NULL), ==, 200);
}

API_TEST(figures_are_prometheus_text_or_openmetrics_by_accept)
{
    char text[128];

    (void)api_enqueue(stand, "q", "k", "1");
    CHECK_INT(api_ask(stand, "GET", "/metrics", NULL), ==, 200);
    CHECK_STR(server_field(stand->answer, "content-type", text, sizeof text),
              "text/plain; version=0.0.4; charset=utf-8");
    CHECK_CONTAINS(api_body(stand), "weir_build_info");
    CHECK_CONTAINS(api_body(stand), "process_cpu_seconds_total");
    CHECK_CONTAINS(api_body(stand), "# TYPE process_cpu_seconds_total counter\n");
    CHECK(!strstr(api_body(stand), "# EOF"));
    stand->fields = "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n";
    CHECK_INT(api_ask(stand, "GET", "/metrics", NULL), ==, 200);
    CHECK_CONTAINS(server_field(stand->answer, "content-type", text, sizeof text),
                   "application/openmetrics-text");
    CHECK_CONTAINS(api_body(stand),
                   "# TYPE process_cpu_seconds counter\nprocess_cpu_seconds_total ");
    CHECK_STR(api_body(stand) + stand->answer->body_bytes - 6, "# EOF\n");
    CHECK(!strstr(api_body(stand), "\n\n"));
    stand->fields = "Accept: image/png\r\n";
    CHECK_INT(api_ask(stand, "GET", "/metrics", NULL), ==, 406);
}

API_TEST(changes_are_in_the_audit_log_and_in_its_file)
{
    uint64_t written = 0, lost;
    char path[128], line[1024];
    FILE *file;

    CHECK_INT(api_ask(stand, "PUT", "/v1/queues/q", "{\"depth_max\":9,\"overflow\":\"wait\"}"), ==,
              200);
    CHECK_INT(api_ask(stand, "POST", "/v1/queues/none/pause", NULL), ==, 404);
    CHECK_INT(api_ask(stand, "GET", "/v1/queues", NULL), ==, 200);
    CHECK_INT(api_ask(stand, "GET", "/v1/admin/audit", NULL), ==, 200);
    CHECK_CONTAINS(api_body(stand),
                   "\"method\":\"POST\",\"route\":\"/v1/queues/{queue}/pause\",\"target\":"
                   "\"/v1/queues/none/pause\",\"status\":404");
    CHECK_CONTAINS(api_body(stand), "\"method\":\"PUT\"");
    CHECK(!strstr(api_body(stand), "\"method\":\"GET\""));
    CHECK_INT(api_ask(stand, "GET", "/v1/admin/audit?limit=1", NULL), ==, 200);
    CHECK_INT(api_number(stand, "next"), ==, 2);
    CHECK_INT(api_ask(stand, "GET", "/v1/admin/audit?before=2", NULL), ==, 200);
    CHECK_CONTAINS(api_body(stand), "\"number\":1");
    while (written < 2) {
        CHECK_OK(weir_yield());
        audit_counts(stand->api.audit, &written, &lost);
        CHECK_INT(lost, ==, 0);
    }
    (void)snprintf(path, sizeof path, "%s/audit.log", stand->base.path);
    file = fopen(path, "r");
    CHECK(file && fgets(line, sizeof line, file));
    CHECK_CONTAINS(line, "\"target\":\"/v1/queues/q\",\"status\":200");
    CHECK(fgets(line, sizeof line, file));
    (void)fclose(file);
}

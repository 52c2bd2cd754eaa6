/* api_lease_test.c - workers over HTTP: lease, extend, settle, commit, orders. */
#include <inttypes.h>

#include "unit/server/api_test.h"

static unsigned about(struct api_stand *stand, uint64_t id, const char *what, uint64_t token,
                      const char *more)
{
    char target[64], body[512];

    (void)snprintf(target, sizeof target, "/v1/jobs/%" PRIu64 "/%s", id, what);
    (void)snprintf(body, sizeof body, "{\"token\":\"%" PRIu64 "\"%s}", token, more);
    return api_ask(stand, "POST", target, body);
}

API_TEST(a_job_is_leased_extended_and_acknowledged_with_a_result)
{
    uint64_t id = api_enqueue(stand, "q", "k", "1"), token;
    char target[64], text[128];

    CHECK_INT(api_lease(stand, "q", &token), ==, id);
    CHECK_CONTAINS(api_body(stand), "\"durability\":\"synced\"");
    CHECK_CONTAINS(api_body(stand), "\"orders\":[]");
    CHECK_INT(about(stand, id, "progress", token, ",\"progress\":42"), ==, 200);
    CHECK_STR(api_body(stand), "{\"durability\":\"synced\"}");
    (void)snprintf(target, sizeof target, "/v1/jobs/%" PRIu64, id);
    CHECK_INT(api_ask(stand, "GET", target, NULL), ==, 200);
    CHECK_INT(api_number(stand, "progress"), ==, 42);
    CHECK_INT(about(stand, id, "extend", token, ",\"lease_ms\":60000"), ==, 200);
    CHECK_CONTAINS(api_body(stand), "\"lease_until_ms\":");
    CHECK_INT(about(stand, id, "extend", token + 1, ""), ==, 409);
    CHECK_STR(api_member(stand, "code", text), "stale-lease");
    CHECK_INT(about(stand, id, "ack", token + 1, ""), ==, 409);
    CHECK_INT(about(stand, id, "ack", token, ",\"result\":{\"n\": 1.50}"), ==, 200);
    CHECK_CONTAINS(api_body(stand), "\"state\":\"done\"");
    CHECK_INT(about(stand, id, "ack", token, ""), ==, 409);
    (void)snprintf(target, sizeof target, "/v1/jobs/%" PRIu64 "/result", id);
    CHECK_INT(api_ask(stand, "GET", target, NULL), ==, 200);
    CHECK_STR(api_body(stand), "{\"n\": 1.50}");
    CHECK_INT(about(stand, 999, "ack", token, ""), ==, 404);
    CHECK_INT(about(stand, id, "fail", token, ",\"result\":1"), ==, 422);
}

/* What was refused before, to whomever, is nobody else's business. */
API_TEST(a_stale_lease_is_told_in_words_of_its_own)
{
    uint64_t id = api_enqueue(stand, "q", "k", "1"), token;
    char body[256], text[128];

    CHECK_INT(api_lease(stand, "q", &token), ==, id);
    CHECK_INT(
        api_ask(stand, "PUT", "/v1/queues/secret", "{\"depth_max\":1,\"overflow\":\"reject\"}"), ==,
        200);
    (void)api_enqueue(stand, "secret", "k", "1");
    CHECK_INT(api_ask(stand, "POST", "/v1/jobs", API_JOB("secret", "k", "")), ==, 429);
    CHECK_CONTAINS(api_body(stand), "secret");
    CHECK_INT(about(stand, id, "ack", token + 1, ""), ==, 409);
    CHECK(!strstr(api_body(stand), "secret"));
    (void)snprintf(text, sizeof text, "job %" PRIu64 ": token %" PRIu64 " has no lease", id,
                   token + 1);
    CHECK_CONTAINS(api_body(stand), text);
    CHECK_INT(api_ask(stand, "POST", "/v1/jobs", API_JOB("secret", "k", "")), ==, 429);
    (void)snprintf(body, sizeof body,
                   "{\"settle\":[{\"id\":%" PRIu64 ",\"token\":%" PRIu64 ",\"how\":\"ack\"}]}", id,
                   token + 1);
    CHECK_INT(api_ask(stand, "POST", "/v1/commit", body), ==, 409);
    CHECK_CONTAINS(api_body(stand), text);
}

API_TEST(a_lease_says_which_kinds_and_versions_it_knows)
{
    uint64_t id;

    (void)api_enqueue(stand, "q", "unknown", "1");
    CHECK_INT(api_ask(stand, "POST", "/v1/jobs", API_JOB("q", "known", ",\"version\":3")), ==, 201);
    id = (uint64_t)api_number(stand, "id");
    CHECK_INT(
        api_ask(stand, "POST", "/v1/queues/q/lease",
                "{\"worker\":\"w\",\"count\":9,\"kinds\":[{\"name\":\"known\",\"version_min\":1,"
                "\"version_max\":2}]}"),
        ==, 200);
    CHECK_CONTAINS(api_body(stand), "\"jobs\":[]");
    CHECK_INT(
        api_ask(stand, "POST", "/v1/queues/q/lease",
                "{\"worker\":\"w\",\"count\":9,\"kinds\":[{\"name\":\"known\",\"version_min\":1,"
                "\"version_max\":3}]}"),
        ==, 200);
    CHECK_INT(api_number(stand, "id"), ==, id);
    CHECK_INT(api_ask(stand, "POST", "/v1/queues/q/lease", "{\"count\":1}"), ==, 400);
    CHECK_INT(api_ask(stand, "POST", "/v1/queues/q/lease", "{\"worker\":\"w\",\"count\":65}"), ==,
              400);
    CHECK_INT(api_ask(stand, "POST", "/v1/queues/q/lease", "{\"worker\":\"w\",\"wait_ms\":60001}"),
              ==, 400);
}

API_TEST(leases_that_do_not_fit_into_the_answer_are_for_the_next_who_asks)
{
    static char payload[32000];
    int leased = 0;

    memset(payload, 7, sizeof payload);
    stand->limits.answer_bytes_max = 100000; /* two of them as base64, not three */
    api_stand_reopen(stand);
    for (int i = 0; i < 7; i++) {
        weir_job_spec spec = stand_job("q", "x");
        weir_enqueued enqueued;

        spec.payload = payload;
        spec.payload_bytes = sizeof payload;
        CHECK_OK(weir_job_enqueue(stand->api.store, &spec, &enqueued));
    }
    for (int i = 0; i < 7 && leased < 7; i++) {
        CHECK_INT(api_ask(stand, "POST", "/v1/queues/q/lease", "{\"worker\":\"w\",\"count\":7}"),
                  ==, 200);
        for (const char *at = api_body(stand); (at = strstr(at, "\"token\":")); at++) leased++;
    }
    CHECK_INT(leased, ==, 7);
}

static void until_somebody_waits(struct api_stand *stand)
{
    weir_store_figures figures;

    do {
        CHECK_OK(weir_yield());
        weir_store_figures_of(stand->api.store, &figures);
    } while (figures.waiting == 0);
}

API_TEST(a_lease_that_waits_gets_the_job_that_comes)
{
    const char *body = "{\"worker\":\"w\",\"wait_ms\":50000}";
    uint64_t id;

    CHECK_INT(api_ask(stand, "POST", "/v1/queues/q/lease", "{\"worker\":\"w\",\"wait_ms\":5}"), ==,
              200);
    CHECK_CONTAINS(api_body(stand), "\"jobs\":[]");
    api_send(stand, "POST", "/v1/queues/q/lease", body, strlen(body));
    until_somebody_waits(stand);
    id = stand_enqueue(stand->api.store, "q", "x");
    CHECK_INT(api_read(stand), ==, 200);
    CHECK_INT(api_number(stand, "id"), ==, id);
}

API_TEST(who_goes_away_while_it_waits_keeps_no_job)
{
    const char *body = "{\"worker\":\"w\",\"wait_ms\":50000}";
    struct service_figures figures;
    uint64_t id;

    api_send(stand, "POST", "/v1/queues/q/lease", body, strlen(body));
    until_somebody_waits(stand);
    api_hang_up(stand);
    id = stand_enqueue(stand->api.store, "q", "x");
    /* Its answer was tried, so it has given back what it got. */
    do {
        CHECK_OK(weir_yield());
        service_figures_of(stand->server.service, &figures);
    } while (figures.requests > 0 || figures.connections > 0);
    CHECK_INT(stand_state(stand->api.store, id), ==, WEIR_JOB_READY);
    CHECK_INT(api_lease(stand, "q", NULL), ==, id);
}

static void until_nobody_is_served(struct api_stand *stand)
{
    struct service_figures figures;
    weir_store_figures store;

    do {
        CHECK_OK(weir_yield());
        service_figures_of(stand->server.service, &figures);
        weir_store_figures_of(stand->api.store, &store);
    } while (figures.requests > 0 || figures.connections > 0 || store.waiting > 0);
}

static void until_somebody_is_served(struct api_stand *stand)
{
    struct service_figures figures;

    do {
        CHECK_OK(weir_yield());
        service_figures_of(stand->server.service, &figures);
    } while (figures.requests == 0);
}

/* Nothing comes that could end the wait but the end of the connection. If that were only looked for
 * now and then, so many times would take longer than a test may. */
API_TEST(who_goes_away_while_it_waits_is_noticed_at_once)
{
    enum { TIMES = 100 };
    const char *body = "{\"worker\":\"w\",\"wait_ms\":60000}";
    uint64_t id = stand_enqueue(stand->api.store, "other", "x");
    char target[64];

    (void)snprintf(target, sizeof target, "/v1/jobs/%" PRIu64 "?wait=60s", id);
    for (int i = 0; i < TIMES; i++) {
        api_send(stand, "POST", "/v1/queues/q/lease", body, strlen(body));
        until_somebody_waits(stand);
        api_hang_up(stand);
        until_nobody_is_served(stand);
        api_send(stand, "GET", target, NULL, 0);
        until_somebody_is_served(stand);
        api_hang_up(stand);
        until_nobody_is_served(stand);
    }
}

/* What lies behind the request makes the connection readable, which is no reason to end the
 * wait. */
API_TEST(a_lease_that_waits_goes_on_though_another_request_is_behind_it)
{
    const char *body = "{\"worker\":\"w\",\"wait_ms\":60000}";
    uint64_t id;

    api_send(stand, "POST", "/v1/queues/q/lease", body, strlen(body));
    until_somebody_waits(stand);
    server_send(stand->client, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n");
    for (int i = 0; i < 100; i++) CHECK_OK(weir_yield());
    until_somebody_waits(stand);
    id = stand_enqueue(stand->api.store, "q", "x");
    CHECK_INT(api_read(stand), ==, 200);
    CHECK_INT(api_number(stand, "id"), ==, id);
    CHECK_INT(api_read(stand), ==, 200);
    api_send(stand, "POST", "/v1/queues/q/lease", body, strlen(body));
    until_somebody_waits(stand);
    server_send(stand->client, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n");
    for (int i = 0; i < 100; i++) CHECK_OK(weir_yield());
    until_somebody_waits(stand);
    api_hang_up(stand);
    until_nobody_is_served(stand);
}

API_TEST(who_has_shut_its_side_while_it_waits_is_told_of_no_job)
{
    const char *body = "{\"worker\":\"w\",\"wait_ms\":50000}";
    uint64_t id;

    api_send(stand, "POST", "/v1/queues/q/lease", body, strlen(body));
    until_somebody_waits(stand);
    CHECK_OK(weir_conn_shutdown(stand->client->conn, SHUT_WR));
    id = stand_enqueue(stand->api.store, "q", "x");
    /* It still reads; a lease that others may have by now is not for it. */
    CHECK_INT(api_read(stand), ==, 200);
    CHECK_CONTAINS(api_body(stand), "\"jobs\":[]");
    CHECK_INT(stand_state(stand->api.store, id), ==, WEIR_JOB_READY);
}

API_TEST(many_leases_are_extended_at_once_and_orders_are_told)
{
    uint64_t first, second, token, other;
    char body[512];

    (void)api_enqueue(stand, "q", "k", "1");
    (void)api_enqueue(stand, "q", "k", "2");
    first = api_lease(stand, "q", &token);
    second = api_lease(stand, "q", &other);
    CHECK_INT(api_ask(stand, "POST", "/v1/workers/w/order", "{\"order\":\"end\"}"), ==, 200);
    CHECK_CONTAINS(api_body(stand), "\"durability\":\"memory\"");
    CHECK_CONTAINS(api_body(stand), "\"orders\":[\"quiet\",\"end\"]");
    CHECK_INT(api_ask(stand, "GET", "/v1/workers/w", NULL), ==, 200);
    CHECK_CONTAINS(api_body(stand), "\"orders\":[\"quiet\",\"end\"]");
    (void)snprintf(body, sizeof body,
                   "{\"worker\":\"w\",\"leases\":[{\"id\":\"%" PRIu64 "\",\"token\":\"%" PRIu64
                   "\"},{\"id\":%" PRIu64 ",\"token\":%" PRIu64 "},{\"id\":\"777\",\"token\":1}]}",
                   first, token, second, other + 9);
    CHECK_INT(api_ask(stand, "POST", "/v1/leases/extend", body), ==, 200);
    CHECK_CONTAINS(api_body(stand), "\"orders\":[\"quiet\",\"end\"]");
    CHECK_CONTAINS(api_body(stand), "\"error\":\"stale-lease\"");
    CHECK_CONTAINS(api_body(stand), "\"error\":\"no-such\"");
    CHECK_CONTAINS(api_body(stand), "\"durability\":\"synced\"");
    /* Who was told so leases nothing. */
    (void)api_enqueue(stand, "q", "k", "3");
    CHECK_INT(api_lease(stand, "q", NULL), ==, 0);
    CHECK_CONTAINS(api_body(stand), "\"orders\":[\"quiet\",\"end\"]");
    CHECK_INT(api_ask(stand, "POST", "/v1/workers/w/order", "{\"order\":\"go-on\"}"), ==, 200);
    CHECK(api_lease(stand, "q", NULL) != 0);
    CHECK_INT(api_ask(stand, "POST", "/v1/workers/w/order", "{\"order\":\"dance\"}"), ==, 422);
}

API_TEST(leases_are_settled_together_each_for_itself)
{
    uint64_t ids[4], tokens[4];
    char body[1024];

    for (int i = 0; i < 4; i++) (void)api_enqueue(stand, "q", "k", "1");
    for (int i = 0; i < 4; i++) ids[i] = api_lease(stand, "q", &tokens[i]);
    (void)snprintf(body, sizeof body,
                   "{\"settle\":[{\"id\":%" PRIu64 ",\"token\":%" PRIu64
                   ",\"how\":\"ack\",\"result\":1},{\"id\":%" PRIu64 ",\"token\":%" PRIu64
                   ",\"how\":\"dead\",\"error_class\":\"c\"},{\"id\":%" PRIu64 ",\"token\":%" PRIu64
                   ",\"how\":\"release\"},{\"id\":%" PRIu64 ",\"token\":5,\"how\":\"ack\"}]}",
                   ids[0], tokens[0], ids[1], tokens[1], ids[2], tokens[2], ids[3]);
    CHECK_INT(api_ask(stand, "POST", "/v1/settle", body), ==, 200);
    CHECK_CONTAINS(api_body(stand), "\"state\":\"done\"");
    CHECK_CONTAINS(api_body(stand), "\"state\":\"dead\"");
    CHECK_CONTAINS(api_body(stand), "\"state\":\"ready\"");
    CHECK_CONTAINS(api_body(stand), "\"error\":\"stale-lease\"");
    CHECK_CONTAINS(api_body(stand), "\"durability\":\"synced\"");
    CHECK_INT(api_ask(stand, "POST", "/v1/settle", "{\"settle\":[{\"id\":1,\"token\":2}]}"), ==,
              422);
}

/* Whether all that was decided is on disk. */
static bool all_is_synced(struct api_stand *stand)
{
    struct store *store = store_look_up(stand->api.store, "test");
    struct log_figures figures;
    uint64_t end;

    store_lock(store);
    end = store->end;
    store_unlock(store);
    log_figures(store->log, &figures);
    return figures.synced >= end;
}

static void settle_with(struct api_stand *stand, const char *way, const char *durability)
{
    char told[64], more[128], body[256];
    uint64_t id, token;

    (void)api_enqueue(stand, "q", "k", "1");
    id = api_lease(stand, "q", &token);
    (void)snprintf(told, sizeof told, "\"durability\":\"%s\"", durability);
    if (strcmp(way, "settle") == 0) {
        (void)snprintf(body, sizeof body,
                       "{%s,\"settle\":[{\"id\":%" PRIu64 ",\"token\":%" PRIu64
                       ",\"how\":\"ack\"}]}",
                       told, id, token);
        CHECK_INT(api_ask(stand, "POST", "/v1/settle", body), ==, 200);
    } else {
        (void)snprintf(more, sizeof more, ",%s%s", told,
                       strcmp(way, "ack") == 0 ? "" : ",\"delay_ms\":3600000");
        CHECK_INT(about(stand, id, way, token, more), ==, 200);
    }
    CHECK_CONTAINS(api_body(stand), told);
    CHECK_CONTAINS(api_body(stand), "\"state\":");
}

API_TEST(a_settlement_takes_the_durability_that_is_asked_for)
{
    static const char *const ways[] = {"ack", "fail", "release", "settle"};
    uint64_t id, token;

    for (int i = 0; i < 4; i++) {
        settle_with(stand, ways[i], "synced");
        CHECK(all_is_synced(stand));
        settle_with(stand, ways[i], "written");
        /* Upkeep syncs what is a second old: if this takes so long, once more. */
        do settle_with(stand, ways[i], "memory");
        while (all_is_synced(stand));
    }
    (void)api_enqueue(stand, "q", "k", "1");
    id = api_lease(stand, "q", &token);
    CHECK_INT(about(stand, id, "ack", token, ",\"durability\":\"none\""), ==, 422);
    CHECK_INT(about(stand, id, "ack", token, ""), ==, 200);
    CHECK_CONTAINS(api_body(stand), "\"durability\":\"synced\""); /* the store's */
    CHECK(all_is_synced(stand));
}

API_TEST(a_commit_is_all_or_nothing)
{
    uint64_t id, token, other, other_token;
    weir_queue_figures figures;
    char body[1024];

    (void)api_enqueue(stand, "q", "k", "1");
    (void)api_enqueue(stand, "q", "k", "2");
    id = api_lease(stand, "q", &token);
    other = api_lease(stand, "q", &other_token);
    CHECK_INT(api_ask(stand, "PUT", "/v1/queues/full", "{\"depth_max\":1,\"overflow\":\"reject\"}"),
              ==, 200);
    /* A job that is refused. */
    (void)snprintf(
        body, sizeof body,
        "{\"enqueue\":[" API_JOB("next", "k", "") "," API_JOB("full", "k", "") "," API_JOB(
            "full", "k", "") "],\"settle\":[{\"id\":%" PRIu64 ",\"token\":%" PRIu64
                             ",\"how\":\"ack\"}]}",
        id, token);
    CHECK_INT(api_ask(stand, "POST", "/v1/commit", body), ==, 429);
    /* A lease that is stale. */
    (void)snprintf(body, sizeof body,
                   "{\"enqueue\":[" API_JOB("next", "k", "") "],\"settle\":[{\"id\":%" PRIu64
                                                             ",\"token\":%" PRIu64
                                                             ",\"how\":\"ack\"},{\"id\":%" PRIu64
                                                             ",\"token\":1,\"how\":\"ack\"}]}",
                   id, token, other);
    CHECK_INT(api_ask(stand, "POST", "/v1/commit", body), ==, 409);
    CHECK_INT(weir_queue_get(stand->api.store, "next", &figures), ==, -ENOENT);
    CHECK_INT(stand_state(stand->api.store, id), ==, WEIR_JOB_LEASED);
    (void)snprintf(body, sizeof body,
                   "{\"durability\":\"synced\",\"enqueue\":[" API_JOB("next", "k", "") "," API_JOB(
                       "full", "k",
                       ",\"delay_ms\":5000") "],\"settle\":[{\"id\":%" PRIu64 ",\"token\":%" PRIu64
                                             ",\"how\":\"ack\"},{\"id\":%" PRIu64
                                             ",\"token\":%" PRIu64 ",\"how\":\"dead\"}]}",
                   id, token, other, other_token);
    CHECK_INT(api_ask(stand, "POST", "/v1/commit", body), ==, 200);
    CHECK_CONTAINS(api_body(stand), "\"durability\":\"synced\"");
    api_stand_reopen(stand);
    CHECK_INT(stand_state(stand->api.store, id), ==, WEIR_JOB_DONE);
    CHECK_INT(stand_state(stand->api.store, other), ==, WEIR_JOB_DEAD);
    CHECK_OK(weir_queue_get(stand->api.store, "next", &figures));
    CHECK_INT(figures.by_state[WEIR_JOB_READY], ==, 1);
    CHECK_OK(weir_queue_get(stand->api.store, "full", &figures));
    CHECK_INT(figures.by_state[WEIR_JOB_SCHEDULED], ==, 1);
    CHECK_INT(api_ask(stand, "POST", "/v1/commit", "{}"), ==, 422);
}

API_TEST(a_commit_in_which_a_job_is_settled_twice_is_refused)
{
    uint64_t id, token;
    char body[512];

    (void)api_enqueue(stand, "q", "k", "1");
    id = api_lease(stand, "q", &token);
    (void)snprintf(body, sizeof body,
                   "{\"settle\":[{\"id\":%" PRIu64 ",\"token\":%" PRIu64
                   ",\"how\":\"ack\"},{\"id\":%" PRIu64 ",\"token\":%" PRIu64 ",\"how\":\"ack\"}]}",
                   id, token, id, token);
    CHECK_INT(api_ask(stand, "POST", "/v1/commit", body), ==, 422);
    CHECK_CONTAINS(api_body(stand), "settled twice");
    CHECK_INT(stand_state(stand->api.store, id), ==, WEIR_JOB_LEASED);
}

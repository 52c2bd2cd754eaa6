/* api_list_test.c - listing by filters, page by page; acting on all that a filter finds. */
#include <inttypes.h>
#include <stdlib.h>

#include "unit/server/api_test.h"

static unsigned list(struct api_stand *stand, const char *query)
{
    char target[1024];

    (void)snprintf(target, sizeof target, "/v1/jobs?%s", query);
    return api_ask(stand, "GET", target, NULL);
}

API_TEST(jobs_are_found_by_filters)
{
    (void)api_enqueue(stand, "mail", "send", "{\"user\":{\"id\":1}}");
    (void)api_enqueue(stand, "mail", "sendmany", "{\"user\":{\"id\":2}}");
    (void)api_enqueue(stand, "mailer", "bounce", "{\"user\":{\"id\":1}}");
    CHECK_INT(api_ask(stand, "POST", "/v1/jobs",
                      API_JOB("other", "x",
                              ",\"tags\":[\"eu\",\"de\"],\"priority\":7,"
                              "\"fairness_key\":\"tenant\"")),
              ==, 201);
    CHECK_INT(list(stand, ""), ==, 200);
    CHECK_INT(api_number(stand, "matched"), ==, 4);
    CHECK(!strstr(api_body(stand), "\"next\""));
    CHECK_INT(list(stand, "filter=queue:mail"), ==, 200);
    CHECK_INT(api_number(stand, "matched"), ==, 2);
    CHECK_INT(list(stand, "filter=queue:mail*"), ==, 200);
    CHECK_INT(api_number(stand, "matched"), ==, 3);
    CHECK_INT(list(stand, "filter=kind:send*+state:ready"), ==, 200);
    CHECK_INT(api_number(stand, "matched"), ==, 2);
    CHECK_INT(list(stand, "filter=tag:de"), ==, 200);
    CHECK_INT(api_number(stand, "matched"), ==, 1);
    CHECK_INT(list(stand, "filter=tag:d"), ==, 200);
    CHECK_INT(api_number(stand, "matched"), ==, 0);
    CHECK_INT(list(stand, "filter=key:tenant+priority%3E=7"), ==, 200);
    CHECK_INT(api_number(stand, "matched"), ==, 1);
    CHECK_INT(list(stand, "filter=priority%3C7"), ==, 200);
    CHECK_INT(api_number(stand, "matched"), ==, 3);
    CHECK_INT(list(stand, "filter=age%3E1h"), ==, 200);
    CHECK_INT(api_number(stand, "matched"), ==, 0);
    CHECK_INT(list(stand, "filter=age%3C1h"), ==, 200);
    CHECK_INT(api_number(stand, "matched"), ==, 4);
    CHECK_INT(list(stand, "filter=payload.user.id:1"), ==, 200);
    CHECK_INT(api_number(stand, "matched"), ==, 2);
    CHECK_INT(api_number(stand, "payloads_read"), ==, 4);
    CHECK_INT(list(stand, "filter=payload.user.id:1+queue:mail"), ==, 200);
    CHECK_INT(api_number(stand, "matched"), ==, 1);
    CHECK_INT(api_number(stand, "payloads_read"), ==, 2);
}

API_TEST(a_filter_that_is_none_is_a_problem_with_an_offset)
{
    char text[128];

    CHECK_INT(list(stand, "filter=state:dead+colour:red"), ==, 400);
    CHECK_STR(api_member(stand, "code", text), "bad-filter");
    CHECK_INT(api_number(stand, "offset"), ==, 11);
    CHECK_INT(list(stand, "limit=0"), ==, 400);
    CHECK_INT(list(stand, "cursor=abc"), ==, 400);
    CHECK_STR(api_member(stand, "code", text), "bad-query");
}

/* Pages until there are no more: how often each id came. */
static unsigned page_through(struct api_stand *stand, const char *filter, const uint64_t *ids,
                             unsigned *times, unsigned count, void (*between)(struct api_stand *))
{
    char query[512], next[128] = "";
    unsigned pages = 0;

    do {
        (void)snprintf(query, sizeof query, "filter=%s&limit=7%s%s", filter,
                       next[0] ? "&cursor=" : "", next);
        CHECK_INT(list(stand, query), ==, 200);
        for (unsigned i = 0; i < count; i++) {
            char wanted[64];

            (void)snprintf(wanted, sizeof wanted, "{\"id\":\"%" PRIu64 "\"", ids[i]);
            times[i] += strstr(api_body(stand), wanted) != NULL;
        }
        (void)api_member(stand, "next", next);
        pages++;
        if (between) between(stand);
    } while (next[0]);
    return pages;
}

/* A dead letter with so many errors, each with a message as long as it may be. */
static uint64_t fail_often(struct api_stand *stand, unsigned attempts)
{
    weir_job_spec spec = stand_job("failing", "x");
    weir_enqueued enqueued;
    char message[1024 + 1];

    memset(message, 'm', sizeof message - 1);
    message[sizeof message - 1] = '\0';
    spec.retry.attempts_max = (uint16_t)attempts;
    CHECK_OK(weir_job_enqueue(stand->api.store, &spec, &enqueued));
    for (unsigned attempt = 0; attempt < attempts; attempt++) {
        weir_job job;

        while (stand_lease(stand->api.store, "failing", &job) == 0) CHECK_OK(weir_yield());
        CHECK_INT(weir_job_fail(stand->api.store, job.id, job.token, "net", message, 0), >=, 0);
        weir_job_free(&job);
    }
    return enqueued.id;
}

API_TEST(a_page_ends_before_its_jobs_are_more_than_an_answer_holds)
{
    enum { JOBS = 6 };
    uint64_t ids[JOBS];
    unsigned times[JOBS] = {0};

    stand->limits.answer_bytes_max = 200000; /* two of them, not three */
    api_stand_reopen(stand);
    for (unsigned i = 0; i < JOBS; i++) ids[i] = fail_often(stand, WEIR_JOB_ERRORS_KEPT);
    CHECK_INT(page_through(stand, "state:dead", ids, times, JOBS, NULL), <=, JOBS);
    for (unsigned i = 0; i < JOBS; i++) CHECK_INT(times[i], ==, 1);
}

static void disturb(struct api_stand *stand)
{
    (void)api_enqueue(stand, "q", "later", "1");
    (void)api_lease(stand, "noise", NULL);
}

API_TEST(pages_show_each_job_that_stays_once_whatever_comes_and_goes)
{
    uint64_t ids[40];
    unsigned times[40] = {0};
    char query[512], next[128];

    for (unsigned i = 0; i < 40; i++) {
        ids[i] = api_enqueue(stand, "q", "k", "1");
        (void)api_enqueue(stand, "noise", "k", "1");
    }
    CHECK_INT(page_through(stand, "queue:q", ids, times, 40, disturb), >=, 6);
    for (unsigned i = 0; i < 40; i++) CHECK_INT(times[i], ==, 1);
    CHECK_INT(list(stand, "filter=queue:q&limit=1"), ==, 200);
    (void)api_member(stand, "next", next);
    (void)snprintf(query, sizeof query, "filter=queue:noise&cursor=%s", next);
    CHECK_INT(list(stand, query), ==, 400);
    CHECK_CONTAINS(api_body(stand), "another filter");
}

API_TEST(a_scan_that_is_bounded_says_how_much_it_has_seen_and_goes_on)
{
    uint64_t ids[20];
    unsigned times[20] = {0};

    for (unsigned i = 0; i < 20; i++) ids[i] = api_enqueue(stand, "q", "k", i % 4 ? "[0]" : "[1]");
    CHECK_INT(list(stand, "filter=payload.0:1&payloads_max=6"), ==, 200);
    CHECK_INT(api_number(stand, "payloads_read"), ==, 6);
    CHECK_INT(api_number(stand, "matched"), ==, 2);
    CHECK_CONTAINS(api_body(stand), "\"next\"");
    CHECK_INT(list(stand, "filter=queue:none&scan_max=5"), ==, 200);
    CHECK_INT(list(stand, "scan_max=5"), ==, 200);
    CHECK_INT(api_number(stand, "scanned"), ==, 5);
    (void)page_through(stand, "payload.0:1", ids, times, 20, NULL);
    for (unsigned i = 0; i < 20; i++) CHECK_INT(times[i], ==, i % 4 ? 0 : 1);
}

/* ---- Acting on many ---- */

static void wait_finished(struct api_stand *stand, uint64_t id)
{
    char target[64];

    (void)snprintf(target, sizeof target, "/v1/bulk/%" PRIu64, id);
    do {
        CHECK_INT(api_ask(stand, "GET", target, NULL), ==, 200);
    } while (!strstr(api_body(stand), "\"finished\":true"));
}

API_TEST(all_that_a_filter_finds_is_cancelled_if_it_is_as_many_as_expected)
{
    char text[128];
    uint64_t id;

    for (int i = 0; i < 5; i++) (void)api_enqueue(stand, "q", "k", "1");
    (void)api_enqueue(stand, "other", "k", "1");
    CHECK_INT(api_ask(stand, "POST", "/v1/jobs/bulk",
                      "{\"filter\":\"queue:q\",\"action\":\"cancel\",\"dry_run\":true}"),
              ==, 200);
    CHECK_INT(api_number(stand, "count"), ==, 5);
    CHECK_INT(
        api_ask(stand, "POST", "/v1/jobs/bulk", "{\"filter\":\"queue:q\",\"action\":\"cancel\"}"),
        ==, 422);
    CHECK_INT(api_ask(stand, "POST", "/v1/jobs/bulk",
                      "{\"filter\":\"queue:q\",\"action\":\"cancel\",\"expected_count\":4}"),
              ==, 409);
    CHECK_STR(api_member(stand, "code", text), "count-differs");
    CHECK_INT(api_number(stand, "actual_count"), ==, 5);
    CHECK_INT(api_ask(stand, "POST", "/v1/jobs/bulk",
                      "{\"filter\":\"queue:q\",\"action\":\"explode\",\"expected_count\":5}"),
              ==, 422);
    CHECK_INT(api_ask(stand, "POST", "/v1/jobs/bulk",
                      "{\"filter\":\"queue:q\",\"action\":\"cancel\",\"expected_count\":5}"),
              ==, 202);
    CHECK_CONTAINS(api_body(stand), "\"durability\":\"synced\"");
    id = (uint64_t)api_number(stand, "id");
    wait_finished(stand, id);
    CHECK_INT(api_number(stand, "done"), ==, 5);
    CHECK_INT(api_number(stand, "failed"), ==, 0);
    CHECK_INT(list(stand, "filter=state:cancelled"), ==, 200);
    CHECK_INT(api_number(stand, "matched"), ==, 5);
    CHECK_INT(api_ask(stand, "GET", "/v1/bulk", NULL), ==, 200);
    CHECK_CONTAINS(api_body(stand), "\"action\":\"cancel\"");
    (void)snprintf(text, sizeof text, "/v1/bulk/%" PRIu64, id);
    CHECK_INT(api_ask(stand, "DELETE", text, NULL), ==, 200);
    CHECK_INT(api_ask(stand, "DELETE", text, NULL), ==, 404);
    CHECK_INT(api_ask(stand, "GET", text, NULL), ==, 404);
}

/* Also by what is looked at last. */
API_TEST(work_on_many_that_is_refused_is_not_done)
{
    (void)api_enqueue(stand, "q", "k", "{\"a\":1}");
    CHECK_INT(api_ask(stand, "POST", "/v1/jobs/bulk",
                      "{\"filter\":\"queue:q\",\"action\":\"cancel\",\"expected_count\":1,"
                      "\"durability\":\"sync\"}"),
              ==, 422);
    CHECK_INT(api_ask(stand, "POST", "/v1/jobs/bulk",
                      "{\"filter\":\"payload.a:1\",\"action\":\"cancel\",\"expected_count\":1,"
                      "\"durability\":\"sync\"}"),
              ==, 422);
    CHECK_INT(api_ask(stand, "GET", "/v1/bulk", NULL), ==, 200);
    CHECK_STR(api_body(stand), "{\"bulk\":[]}");
}

API_TEST(a_set_by_payloads_is_frozen_by_ids)
{
    for (int i = 0; i < 10; i++) (void)api_enqueue(stand, "q", "k", i % 2 ? "{\"a\":1}" : "{}");
    CHECK_INT(api_ask(stand, "POST", "/v1/jobs/bulk",
                      "{\"filter\":\"payload.a:1\",\"action\":\"cancel\",\"expected_count\":4}"),
              ==, 409);
    CHECK_INT(api_number(stand, "actual_count"), ==, 5);
    CHECK_INT(api_ask(stand, "POST", "/v1/jobs/bulk",
                      "{\"filter\":\"payload.a:1\",\"action\":\"cancel\",\"expected_count\":5}"),
              ==, 202);
    wait_finished(stand, (uint64_t)api_number(stand, "id"));
    CHECK_INT(list(stand, "filter=state:cancelled+payload.a:1"), ==, 200);
    CHECK_INT(api_number(stand, "matched"), ==, 5);
    CHECK_INT(list(stand, "filter=state:ready"), ==, 200);
    CHECK_INT(api_number(stand, "matched"), ==, 5);
}

API_TEST(work_on_many_goes_on_after_a_restart_of_the_store)
{
    static char lines[128 * 1024];
    size_t used = 0;
    uint64_t id;

    for (int i = 0; i < 1000; i++)
        used += (size_t)snprintf(lines + used, sizeof lines - used,
                                 "{\"queue\":\"q\",\"kind\":\"k\",\"idempotent\":true}\n");
    stand->type = "application/x-ndjson";
    CHECK_INT(api_ask(stand, "POST", "/v1/jobs/many", lines), ==, 200);
    stand->type = NULL;
    CHECK_INT(api_ask(stand, "POST", "/v1/jobs/bulk",
                      "{\"filter\":\"state:ready\",\"action\":\"cancel\",\"expected_count\":1000}"),
              ==, 202);
    id = (uint64_t)api_number(stand, "id");
    api_stand_reopen(stand);
    wait_finished(stand, id);
    CHECK_INT(api_number(stand, "count"), ==, 1000);
    CHECK_INT(api_number(stand, "failed"), ==, 0);
    CHECK_INT(list(stand, "filter=state:ready"), ==, 200);
    CHECK_INT(api_number(stand, "matched"), ==, 0);
}

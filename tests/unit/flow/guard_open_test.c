/* guard_open_test.c - what a guard refuses, and what it shows. */
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "unit/flow/guard_test.h"

enum { SPECS = 21 };

FLOW_TEST(guard_spec_names_what_is_missing_or_contradicts)
{
    weir_guard_spec good = guard_spec(), specs[SPECS];
    static const char *const why[SPECS] = {
        "guard: name is not set",
        "guard 'guard': timeout_ms is not set",
        "guard 'guard': attempt_timeout_ms is negative",
        "guard 'guard': attempt_timeout_ms is not set, and there are 3 attempts",
        "guard 'guard': neither idempotent nor idempotency_key is set, so it cannot be tried 3 "
        "times",
        "guard 'guard': retry.attempts is 0, must be 1 to 16",
        "guard 'guard': retry.attempts is 17, must be 1 to 16",
        "guard 'guard': retry.backoff_ms is not set",
        "guard 'guard': retry.backoff_ms_max is 0, the cap of backoff_ms, 10",
        "guard 'guard': retry.errors is not set: name those that are tried again",
        "guard 'guard': retry.errors has WEIR_ECANCELED, which is never tried again",
        "guard 'guard': retry.errors has 5: errors are negative",
        "guard 'guard': retry.on_exhausted is not set",
        "guard 'guard': retry.keep_dead_letters is set if and only if on_exhausted is",
        /* 3 * 100 + 10 + 20 */
        "guard 'guard': 3 attempts of 100 ms and 30 ms between them take 330 ms at worst, more "
        "than timeout_ms, 329",
        "guard 'guard': hedge_after_ms is 100, and an attempt has 100 ms",
        "guard 'guard': hedge_after_ms needs retry.keep_budget, whose tokens it takes",
        "guard 'guard': neither idempotent nor idempotency_key is set, so it cannot be hedged",
        "guard 'guard': latency_ms is negative",
        "guard 'guard': 1 attempts of 2000 ms and 0 ms between them take 2000 ms at worst",
        "guard 'guard': timeout_ms or attempt_timeout_ms is too long",
    };
    weir_guard *guard = NULL;
    int result;

    for (size_t i = 0; i < SPECS; i++) specs[i] = good;
    specs[0].name = NULL;
    specs[1].timeout_ms = 0;
    specs[2].attempt_timeout_ms = -1;
    specs[3].attempt_timeout_ms = 0;
    specs[4].idempotent = false;
    specs[5].retry.attempts = 0;
    specs[6].retry.attempts = 17;
    specs[7].retry.backoff_ms = 0;
    specs[8].retry.backoff_ms_max = 0;
    memset(specs[9].retry.errors, 0, sizeof specs[9].retry.errors);
    specs[10].retry.errors[2] = WEIR_ECANCELED;
    specs[11].retry.errors[2] = EIO;
    specs[12].retry.on_exhausted = WEIR_EXHAUSTED_UNSET;
    specs[13].retry.on_exhausted = WEIR_EXHAUSTED_DEAD_LETTER;
    specs[14].timeout_ms = 329;
    specs[15].hedge_after_ms = 100;
    specs[16].hedge_after_ms = 50;
    specs[17].hedge_after_ms = 50;
    specs[17].idempotent = false;
    memset(&specs[17].retry, 0, sizeof specs[17].retry);
    specs[18].latency_ms = -1;
    memset(&specs[19].retry, 0, sizeof specs[19].retry);
    specs[19].attempt_timeout_ms = 2000;
    specs[20].timeout_ms = INT64_MAX / 2;
    FLOW_SCOPE(scope, &result)
    {
        for (size_t i = 0; i < SPECS; i++) {
            test_note("spec %zu", i);
            CHECK_INT(weir_guard_open(scope, &specs[i], &guard), ==, WEIR_EREFUSED);
            CHECK_CONTAINS(weir_why(), why[i]);
        }
        CHECK(guard == NULL);
        good.idempotent = false; /* a key will do */
        good.idempotency_key = "header Idempotency-Key";
        good.timeout_ms = 330;
        CHECK_OK(weir_guard_open(scope, &good, &guard));
        weir_guard_close(guard);
        weir_guard_close(NULL);
        /* One attempt needs nothing else than its time. */
        CHECK_OK(weir_guard_open(scope, &(weir_guard_spec){.name = "g", .timeout_ms = 1}, &guard));
    }
    return result;
}

/* ---- What is shown ---- */

static void capture(int (*write_to)(int fd), char *text, size_t bytes)
{
    FILE *file = tmpfile();
    size_t length;

    CHECK(file != NULL);
    CHECK_OK(write_to(fileno(file)));
    rewind(file);
    length = fread(text, 1, bytes - 1, file);
    text[length] = '\0';
    (void)fclose(file);
}

static int write_map(int fd)
{
    return weir_map(fd, WEIR_MAP_TEXT);
}

static int write_metrics(int fd)
{
    return weir_metrics_write(fd, WEIR_METRICS_PROMETHEUS);
}

static void lose_letter(const weir_letter *letter, const void *item, void *keep_arg)
{
    (void)letter, (void)item, (void)keep_arg;
}

static char text[256 * 1024];

static int from_cache(void *arg, int error, void *keep_arg)
{
    (void)arg, (void)error, (void)keep_arg;
    return 0;
}

FLOW_TEST_CLOCK(guard_and_its_parts_are_on_the_map_and_in_the_metrics)
{
    weir_guard_spec spec = guard_spec();
    weir_dead_letters *sink;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        struct script failing = SCRIPT({0, -EAGAIN});
        weir_guard *guard;
        CHECK_OK(weir_dead_letters_open(scope,
                                        &(weir_dead_letters_spec){.name = "graveyard",
                                                                  .capacity = 4,
                                                                  .item_bytes_max = 64,
                                                                  .overflow = WEIR_DROP_OLDEST,
                                                                  .on_lost = lose_letter},
                                        &sink));
        spec.name = "prices";
        spec.keep_breaker = open_breaker(scope);
        spec.retry.keep_budget = open_budget(scope, 10);
        spec.retry.on_exhausted = WEIR_EXHAUSTED_DEAD_LETTER;
        spec.retry.keep_dead_letters = sink;
        guard = open_guard(scope, &spec);
        CHECK_INT(call_script(guard, &failing, NULL, NULL), ==, -EAGAIN);
        CHECK_INT(call_script(guard, &failing, NULL, NULL), ==, -EAGAIN);
        CHECK_INT(call_script(guard, &failing, NULL, NULL), ==, WEIR_EBREAKER);
        capture(write_map, text, sizeof text);
        CHECK_CONTAINS(text, "prices");
        CHECK_CONTAINS(text, "1000 ms a call");
        CHECK_CONTAINS(text, "3 attempts, breaker, dead letter");
        CHECK_CONTAINS(text, "1 probes; it is open");
        CHECK_CONTAINS(text, "10 % of calls, 0 a second, 10 at once");
        CHECK_CONTAINS(text, "4 letters of 64 bytes");
        capture(write_metrics, text, sizeof text);
        CHECK_CONTAINS(text, "weir_breaker_state{breaker=\"breaker\",state=\"open\"} 1\n");
        CHECK_CONTAINS(text, "weir_breaker_state{breaker=\"breaker\",state=\"closed\"} 0\n");
        CHECK_CONTAINS(text, "weir_breaker_changes_total{breaker=\"breaker\",to=\"open\"} 1\n");
        CHECK_CONTAINS(text, "weir_breaker_refused_total{breaker=\"breaker\"} 1\n");
        CHECK_CONTAINS(text, "weir_guard_calls_total{guard=\"prices\",outcome=\"failed\"} 2\n");
        CHECK_CONTAINS(text, "weir_guard_calls_total{guard=\"prices\",outcome=\"refused\"} 1\n");
        CHECK_CONTAINS(text, "weir_guard_refused_total{guard=\"prices\",reason=\"breaker\"} 1\n");
        CHECK_CONTAINS(text, "weir_retry_attempts_total{guard=\"prices\"} 4\n");
        CHECK_CONTAINS(text,
                       "weir_retry_exhausted_total{guard=\"prices\",reason=\"attempts\"} 2\n");
        CHECK_CONTAINS(text, "weir_guard_call_seconds_count{guard=\"prices\"} 3\n");
        CHECK_CONTAINS(text, "weir_retry_budget_taken_total{budget=\"budget\"} 4\n");
        CHECK_CONTAINS(text, "weir_dead_letters{sink=\"graveyard\"} 2\n");
        /* A call has one outcome: what was refused and made good is not refused for its caller. */
        spec = (weir_guard_spec){.name = "cached",
                                 .timeout_ms = 100,
                                 .keep_breaker = spec.keep_breaker,
                                 .fallback = from_cache};
        CHECK_INT(call_script(open_guard(scope, &spec), &failing, NULL, NULL), ==, WEIR_PARTIAL);
        capture(write_metrics, text, sizeof text);
        CHECK_CONTAINS(text, "weir_guard_calls_total{guard=\"cached\",outcome=\"partial\"} 1\n");
        CHECK_CONTAINS(text, "weir_guard_calls_total{guard=\"cached\",outcome=\"refused\"} 0\n");
        CHECK_CONTAINS(text, "weir_guard_refused_total{guard=\"cached\",reason=\"breaker\"} 1\n");
        /* What it has counted stays when it goes. */
        weir_guard_close(guard);
        capture(write_metrics, text, sizeof text);
        CHECK_CONTAINS(text, "weir_guard_calls_total{guard=\"prices\",outcome=\"failed\"} 2\n");
    }
    return result;
}

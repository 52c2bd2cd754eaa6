/* filter_test.c - the filter language: what is taken, what it means, and where it is refused. */
#include "server/filter.h"

#include <string.h>
#include <weir/error.h>

#include "harness/test.h"

static struct filter parsed(const char *text)
{
    static struct filter filter;
    struct filter_refusal refusal = {0};

    if (filter_parse(bytes_of(text), &filter, &refusal) < 0)
        TEST_FAIL("'%s' is refused at %zu: %s", text, refusal.offset, refusal.why);
    return filter;
}

TEST(an_empty_filter_finds_all_jobs)
{
    struct filter_refusal refusal;
    struct filter filter;

    CHECK_OK(filter_parse((struct bytes){NULL, 0}, &filter, &refusal));
    CHECK_INT(filter.jobs.states, ==, 0x3fe);
    filter_at(&filter, 1000);
    CHECK_INT(filter.jobs.created_before_ms, ==, 0);
    CHECK_INT(filter.jobs.created_from_ms, ==, 0);
    CHECK_OK(filter_parse(BYTES("   "), &filter, &refusal));
}

TEST(terms_of_a_filter_are_read_into_what_the_engine_looks_for)
{
    static struct filter filter;
    struct filter_refusal refusal;

    CHECK_OK(filter_parse(BYTES("state:dead,cancelled queue:mail kind:send* tag:eu error:net "
                                "key:c-7 batch:12 id:18446744073709551615 priority>=5 priority<9 "
                                "attempt>2 age>1h age<2d"),
                          &filter, &refusal));
    CHECK_INT(filter.jobs.states, ==,
              WEIR_JOB_STATE_BIT(WEIR_JOB_DEAD) | WEIR_JOB_STATE_BIT(WEIR_JOB_CANCELLED));
    CHECK_STR(filter.jobs.queue, "mail");
    CHECK(!filter.jobs.queue_prefix);
    CHECK_STR(filter.jobs.kind, "send");
    CHECK(filter.jobs.kind_prefix);
    CHECK_STR(filter.jobs.tag, "eu");
    CHECK_STR(filter.jobs.error_class, "net");
    CHECK_STR(filter.jobs.key, "c-7");
    CHECK(filter.jobs.batch == 12 && filter.jobs.id == UINT64_MAX);
    CHECK(filter.jobs.priority_min == 5 && filter.jobs.priority_below == 9);
    CHECK(filter.jobs.attempts_min == 3 && filter.jobs.attempts_below == 0);
    filter_at(&filter, 1000000000);
    CHECK_INT(filter.jobs.created_before_ms, ==, 1000000000 - 3600000);
    CHECK_INT(filter.jobs.created_from_ms, ==, 1000000000 - 2 * 86400000 + 1);
}

TEST(words_for_states_and_equal_numbers)
{
    CHECK_INT(parsed("state:live").jobs.states, ==, 0x3e);
    CHECK_INT(parsed("state:ended").jobs.states, ==, 0x3c0);
    CHECK_INT(parsed("state:any").jobs.states, ==, 0x3fe);
    CHECK_INT(parsed("priority:7").jobs.priority_min, ==, 7);
    CHECK_INT(parsed("priority:7").jobs.priority_below, ==, 8);
    CHECK_INT(parsed("attempt<=3").jobs.attempts_below, ==, 4);
}

TEST(quotes_keep_blanks_and_asterisks)
{
    static struct filter filter;
    struct filter_refusal refusal;

    CHECK_OK(filter_parse(BYTES("kind:\"a b*\" tag:\"\\\"\\\\\""), &filter, &refusal));
    CHECK_STR(filter.jobs.kind, "a b*");
    CHECK(!filter.jobs.kind_prefix);
    CHECK_STR(filter.jobs.tag, "\"\\");
}

TEST(a_refused_filter_says_where_and_what_was_expected)
{
    static const struct {
        const char *text;
        size_t offset;
        const char *why;
    } rows[] = {
        {"colour:red", 0, "state, queue, kind"},
        {"state:dead colour:red", 11, "state, queue, kind"},
        {"state", 5, "was expected after 'state'"},
        {"state:", 6, "a value was expected"},
        {"state:odd", 6, "scheduled, held"},
        {"state:dead,odd", 11, "scheduled, held"},
        {"state>dead", 5, "only : fits"},
        {":x", 0, "a name was expected"},
        {"queue:a*b", 7, "at the end only"},
        {"age:1h", 3, "age> or age<"},
        {"age>soon", 4, "a duration"},
        {"age>1h age>2h", 7, "twice"},
        {"kind:a kind:b", 7, "said twice"},
        {"priority>=32", 10, "at most 31"},
        {"priority>=x", 10, "whole number"},
        {"priority<0", 9, "less than 0"},
        {"id:0", 3, "no job has"},
        {"id:99999999999999999999", 3, "at most"},
        {"batch:1x", 7, "whole number"},
        {"tag:\"eu", 4, "no end"},
        {"tag:\"a\\n\"", 7, "\\\" or \\\\"},
        {"tag:\"a\"b", 7, "a blank was expected"},
        {"tag:a\"b", 5, "in quotes"},
        {"payload.:1", 8, "a name was expected"},
        {"payload.a..b:1", 10, "a name was expected"},
        {"payload.a>1", 9, "only : fits"},
        {"payload.a:1 payload.b:1 payload.c:1 payload.d:1 payload.e:1", 48, "at most 4"},
        {"payload.1.2.3.4.5.6.7.8.9:x", 24, "at most 8"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct filter_refusal refusal = {0};
        static struct filter filter;

        test_note("%s", rows[i].text);
        CHECK_INT(filter_parse(bytes_of(rows[i].text), &filter, &refusal), ==, WEIR_EREFUSED);
        CHECK_INT(refusal.offset, ==, rows[i].offset);
        CHECK_CONTAINS(refusal.why, rows[i].why);
    }
}

TEST(a_filter_that_is_too_long_is_refused)
{
    char text[FILTER_BYTES_MAX + 2];
    struct filter_refusal refusal;
    static struct filter filter;

    memset(text, 'a', sizeof text);
    memcpy(text, "tag:", 4);
    CHECK_OK(filter_parse((struct bytes){text, FILTER_BYTES_MAX}, &filter, &refusal));
    CHECK_INT(filter_parse((struct bytes){text, FILTER_BYTES_MAX + 1}, &filter, &refusal), ==,
              WEIR_EREFUSED);
    CHECK_INT(refusal.offset, ==, FILTER_BYTES_MAX);
}

static bool passes(const char *text, const char *payload)
{
    struct json_key keys[16];
    struct json_limits limits = {.depth_max = 16, .keys = keys, .key_room = 16};
    struct filter_refusal refusal;
    static struct filter filter;

    CHECK_OK(filter_parse(bytes_of(text), &filter, &refusal));
    return filter_payload_passes(&filter, bytes_of(payload), &limits);
}

TEST(members_of_payloads_are_compared)
{
    const char *payload = "{\"a\":[{\"x\":1},{\"b\":\"zwei\"}],\"user\":{\"id\":17,\"ok\":true,"
                          "\"no\":null,\"n\":\"a\\u00fcb\"},\"big\":12345678901234567890}";

    CHECK(passes("payload.user.id:17", payload));
    CHECK(!passes("payload.user.id:1", payload));
    CHECK(!passes("payload.user.id.x:17", payload));
    CHECK(!passes("payload.user:17", payload));
    CHECK(passes("payload.a.1.b:zwei", payload));
    CHECK(!passes("payload.a.2.b:zwei", payload));
    CHECK(passes("payload.user.ok:true", payload));
    CHECK(passes("payload.user.no:null", payload));
    CHECK(passes("payload.user.n:a\xc3\xbc"
                 "b",
                 payload));
    CHECK(passes("payload.big:12345678901234567890", payload));
    CHECK(passes("payload.user.id:17 payload.user.ok:true", payload));
    CHECK(!passes("payload.user.id:17 payload.user.ok:false", payload));
    CHECK(!passes("payload.user.id:17", "no json"));
    CHECK(!passes("payload.user.id:17", ""));
}

/* trace_context_test.c - traceparent and tracestate, by the rules of the W3C. */
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

#include "harness/test.h"

#define GOOD "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

TEST(a_traceparent_is_read_and_written_alike)
{
    weir_trace_context context;
    char text[WEIR_TRACEPARENT_BYTES];

    CHECK_INT(weir_trace_parse(GOOD, NULL, &context), ==, 0);
    CHECK_INT(context.trace_id[0], ==, 0x4b);
    CHECK_INT(context.trace_id[15], ==, 0x36);
    CHECK_INT(context.span_id[7], ==, 0xb7);
    CHECK_INT(context.flags, ==, WEIR_TRACE_SAMPLED);
    CHECK_STR(context.state, "");
    weir_trace_format(&context, text);
    CHECK_STR(text, GOOD);
}

TEST(a_traceparent_that_is_none_is_refused_with_the_part_that_is_wrong)
{
    static const struct {
        const char *text, *why;
    } rows[] = {
        {"", "shorter"},
        {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0", "shorter"},
        {GOOD "0", "follows"},
        {GOOD "-", "follows"},
        {GOOD "-00", "follows"},
        {"ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "version"},
        {"0g-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "version"},
        {"0A-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "version"},
        {"cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-010", "follows"},
        {"00-00000000000000000000000000000000-00f067aa0ba902b7-01", "trace id"},
        {"00-4BF92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "trace id"},
        {"00-4bf92f3577b34da6a3ce929d0e0e473.-00f067aa0ba902b7-01", "trace id"},
        {"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", "parent id"},
        {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902B7-01", "parent id"},
        {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-.1", "flags"},
        {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0A", "flags"},
        {"00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "joined"},
        {"00-4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7-01", "joined"},
        {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7_01", "joined"},
        {" " GOOD, "version"},
    };
    weir_trace_context context;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        test_note("row %zu: '%s'", i, rows[i].text);
        memset(&context, 0x55, sizeof context);
        CHECK_INT(weir_trace_parse(rows[i].text, NULL, &context), ==, WEIR_EREFUSED);
        CHECK_CONTAINS(weir_why(), rows[i].why);
        CHECK_INT(context.flags, ==, 0x55); /* written on success only */
    }
    CHECK_INT(weir_trace_parse(NULL, NULL, &context), ==, WEIR_EREFUSED);
}

TEST(later_versions_and_unknown_flags_are_read_as_far_as_they_are_known)
{
    weir_trace_context context;
    char text[WEIR_TRACEPARENT_BYTES];

    CHECK_OK(weir_trace_parse("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-ff-what-ever",
                              NULL, &context));
    weir_trace_format(&context, text);
    CHECK_STR(text, GOOD);
    CHECK_OK(weir_trace_parse("fe-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-02", NULL,
                              &context));
    CHECK_INT(context.flags, ==, 0);
}

TEST(a_tracestate_is_kept_or_left_out_as_a_whole)
{
    static const struct {
        const char *text, *kept; /* NULL: left out */
    } rows[] = {
        {"", ""},
        {"a=1", "a=1"},
        {"rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"},
        {" \ta=1 \t, b=2\t", "a=1,b=2"},
        {"a=1,,b=2,", "a=1,b=2"},
        {"a= 1 2", "a= 1 2"},
        {"1a-2f@foo=1", "1a-2f@foo=1"},
        {"fw529a3039@dt=FfCxQ", "fw529a3039@dt=FfCxQ"},
        {"a_-*/9=x", "a_-*/9=x"},
        {"a", NULL},
        {"=1", NULL},
        {"a=", NULL},
        {"a=1,a=2", NULL},
        {"A=1", NULL},
        {"1a=1", NULL},
        {"a b=1", NULL},
        {"a=1=2", NULL},
        {"@foo=1", NULL},
        {"foo@=1", NULL},
        {"foo@@bar=1", NULL},
        {"foo@bar@baz=1", NULL},
        {"foo@1bar=1", NULL},
        {"a@abcdefghijklmno=1", NULL}, /* the system has more than 14 */
        {"a=\x01", NULL},
        {"a=\xc3\xa4", NULL},
        {"a=1;b", "a=1;b"},
    };
    weir_trace_context context;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        test_note("row %zu: '%s'", i, rows[i].text);
        CHECK_INT(weir_trace_parse(GOOD, rows[i].text, &context), ==, rows[i].kept ? 0 : 1);
        CHECK_STR(context.state, rows[i].kept ? rows[i].kept : "");
    }
}

/* `count` members of `bytes` each, one after the other. */
static char *members(char *text, int first, int count, size_t bytes)
{
    for (int i = 0; i < count; i++) {
        if (first + i > 0) *text++ = ',';
        int used = sprintf(text, "k%02d=", first + i);
        memset(text + used, 'x', bytes - (size_t)used);
        text += bytes;
    }
    *text = '\0';
    return text;
}

TEST(of_a_tracestate_that_is_too_long_the_large_members_go_first)
{
    weir_trace_context context;
    char text[20000];

    (void)members(text, 0, 32, 15); /* 32 * 15 + 31 is 511 */
    CHECK_INT(weir_trace_parse(GOOD, text, &context), ==, 0);
    CHECK_STR(context.state, text);
    (void)members(text, 0, 33, 10);
    CHECK_INT(weir_trace_parse(GOOD, text, &context), ==, 1);
    CHECK_STR(context.state, "");

    (void)members(members(text, 0, 3, 200), 3, 5, 50);
    CHECK_INT(weir_trace_parse(GOOD, text, &context), ==, 0);
    /* Two of the three large ones have to go, from the end. */
    CHECK_INT(strlen(context.state), ==, 200 + 5 * 51);
    CHECK(strncmp(context.state, "k00=", 4) == 0);
    CHECK(strncmp(context.state + 201, "k03=", 4) == 0);

    (void)members(text, 0, 10, 100);
    CHECK_INT(weir_trace_parse(GOOD, text, &context), ==, 0);
    CHECK_INT(strlen(context.state), ==, 5 * 100 + 4);
    memset(text, ' ', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    CHECK_INT(weir_trace_parse(GOOD, text, &context), ==, 1); /* nobody reads that much */
}

/* http_small_test.c - targets, dates and the values of single header fields. */
#include <errno.h>
#include <weir/error.h>

#include "harness/test.h"
#include "proto/buffer.h"
#include "proto/http_date.h"
#include "proto/http_target.h"
#include "proto/http_value.h"

/* ---- Targets ---- */

/* a|b?c=d&e= for two segments and two pairs; a slash at the end is shown as one. */
static const char *show_target(const char *text, char *memory, size_t bytes)
{
    char block[256];
    struct http_target target;
    struct buffer out;
    const char *why = "?";

    CHECK(strlen(text) <= sizeof block);
    if (http_target_parse(bytes_of(text), block, &target, &why) < 0) return why;
    buffer_init_fixed(&out, memory, bytes - 1);
    if (target.asterisk) buffer_put_char(&out, '*');
    for (unsigned i = 0; i < target.segment_count; i++) {
        if (i > 0) buffer_put_char(&out, '|');
        buffer_put_bytes(&out, target.segments[i]);
    }
    if (target.ends_in_slash) buffer_put_char(&out, '/');
    for (unsigned i = 0; i < target.pair_count; i++) {
        buffer_put_char(&out, i > 0 ? '&' : '?');
        buffer_put_bytes(&out, target.pairs[i].name);
        buffer_put_char(&out, '=');
        buffer_put_bytes(&out, target.pairs[i].value);
    }
    memory[out.used] = '\0';
    return memory;
}

TEST(http_targets_are_cut_and_then_decoded)
{
    static const struct {
        const char *text, *parts;
    } cases[] = {
        {"/", ""},
        {"/a", "a"},
        {"/a/", "a/"},
        {"/a/b%20c", "a|b c"},
        {"/a%2Fb/%2e%2E%2e", "a/b|..."},
        {"/%c3%A4", "\xc3\xa4"},
        {"/a+b?a+b=c+d", "a+b?a b=c d"},
        {"/?", ""},
        {"/?a", "?a="},
        {"/?a=1&&b=2=3&=x", "?a=1&b=2=3&=x"},
        {"/a?x=%26%3D%0a", "a?x=&=\n"},
        {"/a?b?c=/d", "a?b?c=/d"},
        {"*", "*"},
        {"http://h:1/a?b=c", "a?b=c"},
        {"https://h", ""},
        {"http://h?x=1", "?x=1"},
        {"", "not a path"},
        {"a", "not a path"},
        {"//", "empty segment"},
        {"//a", "empty segment"},
        {"/a//b", "empty segment"},
        {"/.", "'.' or '..'"},
        {"/a/../b", "'.' or '..'"},
        {"/a/%2e%2e/b", "'.' or '..'"},
        {"/%", "escape"},
        {"/%1", "escape"},
        {"/%1g", "escape"},
        {"/a?b=%", "escape"},
        {"/%00", "NUL"},
        {"/?a=%00", "NUL"},
        {"/%0a", "control"},
        {"/%7f", "control"},
        {"/%ff", "UTF-8"},
        {"/?a=%c3", "UTF-8"},
        {"/1/2/3/4/5/6/7/8/9/a/b/c/d/e/f/g", "1|2|3|4|5|6|7|8|9|a|b|c|d|e|f|g"},
        {"/1/2/3/4/5/6/7/8/9/a/b/c/d/e/f/g/h", "too many segments"},
        {"/?1&2&3&4&5&6&7&8&9&a&b&c&d&e&f&g&1&2&3&4&5&6&7&8&9&a&b&c&d&e&f&g&h", "too many pairs"},
    };
    char memory[512];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *shown = show_target(cases[i].text, memory, sizeof memory);

        test_note("%s", cases[i].text);
        if (shown == memory) {
            CHECK_STR(shown, cases[i].parts);
        } else {
            CHECK_CONTAINS(shown, cases[i].parts);
        }
    }
}

TEST(http_query_has_a_name_once_or_is_refused)
{
    struct http_target target;
    struct bytes value;
    const char *why;
    char block[64];

    CHECK_INT(http_target_parse(BYTES("/?a=1&b=2&a=3"), block, &target, &why), ==, 0);
    CHECK_INT(http_target_query(&target, BYTES("b"), &value), ==, 0);
    CHECK(bytes_are(value, BYTES("2")));
    CHECK_INT(http_target_query(&target, BYTES("a"), &value), ==, WEIR_EREFUSED);
    CHECK_INT(http_target_query(&target, BYTES("c"), &value), ==, -ENOENT);
}

TEST(http_target_escapes_come_back)
{
    struct bytes text = BYTES("a/b c&d=\xc3\xa4+%?#-._~");
    char escaped[128] = "/", block[128];
    size_t count = http_target_escape(text, escaped + 1);
    struct http_target target;
    const char *why;

    CHECK_STR(escaped, "/a%2Fb%20c%26d%3D%C3%A4%2B%25%3F%23-._~");
    CHECK_INT(http_target_parse((struct bytes){escaped, count + 1}, block, &target, &why), ==, 0);
    CHECK_INT(target.segment_count, ==, 1);
    CHECK(bytes_are(target.segments[0], text));
}

/* ---- Values ---- */

/* Eight bytes are looked at in one go: none of them may be overlooked, wherever it stands. */
TEST(http_values_are_looked_at_byte_by_byte)
{
    for (size_t count = 1; count <= 20; count++) {
        for (size_t at = 0; at < count; at++) {
            for (int c = 0; c < 256; c++) {
                char value[20];

                memset(value, 'a', sizeof value);
                value[at] = (char)c;
                CHECK_INT(http_value_valid((struct bytes){value, count}), ==,
                          is_field_value((char)c));
                if (at > 0) value[at - 1] = '\t'; /* one that is allowed, before it */
                CHECK_INT(http_value_valid((struct bytes){value, count}), ==,
                          is_field_value((char)c));
            }
        }
    }
}

/* ---- Dates ---- */

TEST(http_dates_are_those_of_the_calendar)
{
    static const struct {
        int64_t time_s;
        const char *text;
    } cases[] = {
        {0, "Thu, 01 Jan 1970 00:00:00 GMT"},
        {784111777, "Sun, 06 Nov 1994 08:49:37 GMT"},
        {951782400, "Tue, 29 Feb 2000 00:00:00 GMT"},
        {951868799, "Tue, 29 Feb 2000 23:59:59 GMT"},
        {951868800, "Wed, 01 Mar 2000 00:00:00 GMT"},
        {1798761599, "Thu, 31 Dec 2026 23:59:59 GMT"},
        {4107542400, "Mon, 01 Mar 2100 00:00:00 GMT"},
        {INT64_C(253402300799), "Fri, 31 Dec 9999 23:59:59 GMT"},
    };
    static const char *const refused[] = {
        "",
        "Sun, 06 Nov 1994 08:49:37",
        "Mon, 06 Nov 1994 08:49:37 GMT",
        "Sun, 6 Nov 1994 08:49:37 GMT",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
        "Sun, 06 Nov 1994 08:49:37 UTC",
        "Sun, 06 nov 1994 08:49:37 GMT",
        "Thu, 29 Feb 2100 00:00:00 GMT",
        "Sun, 00 Nov 1994 08:49:37 GMT",
        "Sun, 31 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 24:00:00 GMT",
        "Sun, 06 Nov 1994 08:60:37 GMT",
        "Sun, 06 Nov 1994 08:49:60 GMT",
        "Sun, 06 Nov 1969 08:49:37 GMT",
        "Sun, 06 Nov 1994 08-49:37 GMT",
    };
    char text[HTTP_DATE_BYTES];
    int64_t time_s;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        http_date_format(cases[i].time_s, text);
        CHECK_STR(text, cases[i].text);
        CHECK_INT(http_date_parse(bytes_of(text), &time_s), ==, 0);
        CHECK_INT(time_s, ==, cases[i].time_s);
    }
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        test_note("%s", refused[i]);
        CHECK_INT(http_date_parse(bytes_of(refused[i]), &time_s), ==, WEIR_EREFUSED);
    }
}

/* Over 140 years a day later is the next day, and every date comes back. */
TEST(http_dates_follow_each_other)
{
    char text[HTTP_DATE_BYTES], before[HTTP_DATE_BYTES] = "";
    int64_t back;

    for (int64_t day = 0; day < 51100; day++) {
        http_date_format(day * 86400 + 3661, text);
        CHECK(strcmp(text, before) != 0);
        CHECK_INT(http_date_parse(bytes_of(text), &back), ==, 0);
        CHECK_INT(back, ==, day * 86400 + 3661);
        memcpy(before, text, sizeof before);
    }
}

/* ---- Values ---- */

TEST(http_media_types_are_told_from_their_parameters)
{
    static const struct {
        const char *value;
        bool is;
    } cases[] = {
        {"application/json", true},
        {"Application/JSON", true},
        {"application/json; charset=utf-8", true},
        {"application/json;charset=\"UTF-8\" ; x=\"a;b\"", true},
        {"application/json;", true},
        {"application/json; charset=latin1", false},
        {"application/json; charset", false},
        {"application/jsonx", false},
        {"application/json x", false},
        {"text/plain; x=application/json", false},
        {"", false},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        test_note("%s", cases[i].value);
        CHECK_INT(http_media_is(bytes_of(cases[i].value), BYTES("application/json")), ==,
                  cases[i].is);
    }
}

static unsigned weigh(unsigned (*accepts)(struct http_fields, struct bytes), struct bytes name,
                      const char *value, const char *wanted)
{
    struct http_field field = {name, {NULL, 0}};

    if (!value) return accepts((struct http_fields){NULL, 0}, bytes_of(wanted));
    field.value = bytes_of(value);
    return accepts((struct http_fields){&field, 1}, bytes_of(wanted));
}

TEST(http_encodings_are_wanted_as_much_as_is_said)
{
    static const struct {
        const char *value, *wanted;
        unsigned weight;
    } cases[] = {
        {NULL, "gzip", 1000},
        {"gzip", "gzip", 1000},
        {"GZIP;Q=0.5", "gzip", 500},
        {"deflate, gzip ; q=0.25", "gzip", 250},
        {"deflate", "gzip", 0},
        {"gzip;q=0", "gzip", 0},
        {"*", "gzip", 1000},
        {"*;q=0.1, gzip;q=0.9", "gzip", 900},
        {"gzip;q=0.9, *;q=0", "gzip", 900},
        {"*;q=0", "identity", 0},
        {"identity;q=0", "identity", 0},
        {"gzip", "identity", 1000},
        {"", "identity", 1000},
        {"", "gzip", 0},
        {"gzip;q=1.000", "gzip", 1000},
        {"gzip;q=0.001", "gzip", 1},
        {"gzip;q=1.001", "gzip", 0},
        {"gzip;q=2", "gzip", 0},
        {"gzip;q=", "gzip", 0},
        {"gzip;q", "gzip", 0},
        {"gzip;q=0.1234", "gzip", 0},
        {"gzip;q=-1", "gzip", 0},
        {"gzip;x=\",gzip;q=0\"", "gzip", 1000},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        test_note("%s", cases[i].value);
        CHECK_INT(
            weigh(http_accepts_encoding, BYTES("accept-encoding"), cases[i].value, cases[i].wanted),
            ==, cases[i].weight);
    }
}

TEST(http_media_types_are_wanted_as_much_as_is_said)
{
    static const struct {
        const char *value, *wanted;
        unsigned weight;
    } cases[] = {
        {NULL, "text/html", 1000},
        {"*/*", "text/html", 1000},
        {"text/*;q=0.5, text/html", "text/html", 1000},
        {"text/html, text/*;q=0.5", "text/plain", 500},
        {"*/*;q=0.1, text/*;q=0.5", "text/plain", 500},
        {"application/json", "text/html", 0},
        {"tex/*", "text/html", 0},
        {"text/html;q=0, */*", "text/html", 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        test_note("%s", cases[i].value);
        CHECK_INT(weigh(http_accepts_media, BYTES("accept"), cases[i].value, cases[i].wanted), ==,
                  cases[i].weight);
    }
}

TEST(http_bearer_is_one_token)
{
    static const struct {
        const char *value, *token; /* NULL: refused */
    } cases[] = {
        {"Bearer abc", "abc"}, {"bearer  aZ0-._~+/==", "aZ0-._~+/=="},
        {"Bearer", NULL},      {"Bearer ", NULL},
        {"Bearer =", NULL},    {"Bearer a b", NULL},
        {"Bearer a=b", NULL},  {"Bearer a,b", NULL},
        {"Basic YTpi", NULL},  {"", NULL},
        {"Bearerabc", NULL},   {"Bearer \xc3\xa4", NULL},
    };
    struct http_field fields[2] = {{BYTES("authorization"), {NULL, 0}},
                                   {BYTES("authorization"), BYTES("Bearer x")}};
    struct bytes token;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int r;

        fields[0].value = bytes_of(cases[i].value);
        test_note("%s", cases[i].value);
        r = http_bearer((struct http_fields){fields, 1}, &token);
        CHECK_INT(r, ==, cases[i].token ? 0 : WEIR_EREFUSED);
        if (cases[i].token) CHECK(bytes_are(token, bytes_of(cases[i].token)));
    }
    fields[0].value = BYTES("Bearer x");
    CHECK_INT(http_bearer((struct http_fields){fields, 2}, &token), ==, WEIR_EREFUSED);
    CHECK_INT(http_bearer((struct http_fields){NULL, 0}, &token), ==, -ENOENT);
}

TEST(names_and_values_of_fields_are_made_of_their_characters)
{
    for (int i = 0; i < 256; i++) {
        char c = (char)i;

        test_note("%d", i);
        CHECK_INT(http_name_valid((struct bytes){&c, 1}), ==, is_token(c));
        CHECK_INT(http_value_valid((struct bytes){&c, 1}), ==, is_field_value(c));
    }
    CHECK(!http_name_valid(BYTES("")));
    CHECK(http_value_valid(BYTES("")));
}

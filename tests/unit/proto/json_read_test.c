/* json_read_test.c - what is JSON and what is none, and what tokens hold. Against another reader:
 * json_python_test.c. */
#include "proto/json_read.h"

#include <errno.h>
#include <stdlib.h>
#include <weir/error.h>

#include "harness/test.h"
#include "proto/buffer.h"
#include "proto/json_plain.h"

enum { KEYS = 16, DEPTH = 4 };

static struct json_key keys[KEYS];
static const struct json_limits limits = {.depth_max = DEPTH, .keys = keys, .key_room = KEYS};

/* From memory of the very size, so that a byte too far is found. */
static int check_text(struct bytes text, size_t *ret_at, char why[JSON_WHY_BYTES])
{
    char *copy = malloc(text.count > 0 ? text.count : 1);
    int r;

    CHECK(copy);
    if (text.count > 0) memcpy(copy, text.at, text.count);
    r = json_check((struct bytes){copy, text.count}, &limits, ret_at, why);
    free(copy);
    return r;
}

static const char *const valid[] = {
    "null",
    " true ",
    "\t\r\n false",
    "0",
    "-0",
    "-0.0e-0",
    "1.5E+10",
    "123456789012345678901234567890",
    "\"\"",
    "\"a b\"",
    "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\\uFFFF\"",
    "\"\\ud83d\\ude00\"",
    "\"\x7f\xc2\x80\xe0\xa0\x80\xed\x9f\xbf\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\"",
    "[]",
    "[ ]",
    "{}",
    "[1,2 , [3] ]",
    "[[[[]]]]",
    "{\"a\":1,\"b\":{\"a\":2},\"A\":[{\"a\":3}]}",
    "{\"\":1}",
    "[{\"a\":1},{\"a\":1}]",
    "{\"a\":1,\"ab\":2,\"b\":3,\"aa\":4,\"\\u0061b c\":5}",
};

TEST(json_that_is_valid_is_taken)
{
    for (size_t i = 0; i < sizeof valid / sizeof valid[0]; i++) {
        char why[JSON_WHY_BYTES] = "";
        size_t at = 0;

        test_note("%s", valid[i]);
        CHECK_INT(check_text(bytes_of(valid[i]), &at, why), ==, 0);
    }
}

/* Arrays, objects and strings have an end, so that what is cut off is none of them. */
TEST(json_that_is_cut_off_is_refused)
{
    unsigned cuts = 0;

    for (size_t i = 0; i < sizeof valid / sizeof valid[0]; i++) {
        if (!strchr("[{\"", valid[i][0])) continue;
        for (size_t count = 0; count < strlen(valid[i]); count++, cuts++) {
            char why[JSON_WHY_BYTES] = "";
            size_t at = 0;

            test_note("the first %zu bytes of %s", count, valid[i]);
            CHECK_INT(check_text((struct bytes){valid[i], count}, &at, why), ==, WEIR_EREFUSED);
            CHECK_INT(at, <=, count);
        }
    }
    CHECK_INT(cuts, >, 100);
}

#define TEXT(literal)                \
    {                                \
        literal, sizeof(literal) - 1 \
    }

TEST(json_that_is_none_is_refused_with_a_reason_and_a_place)
{
    static const struct {
        struct bytes text;
        size_t at;
        const char *why;
    } refused[] = {
        {TEXT(""), 0, "ends before"},
        {TEXT(" "), 1, "ends before"},
        {TEXT("nul"), 0, "value"},
        {TEXT("nullx"), 4, "follows"},
        {TEXT("True"), 0, "value"},
        {TEXT("NaN"), 0, "value"},
        {TEXT("Infinity"), 0, "value"},
        {TEXT("'a'"), 0, "value"},
        {TEXT("1 2"), 2, "follows"},
        {TEXT("1\0"), 1, "follows"},
        {TEXT("\xef\xbb\xbf{}"), 0, "value"},
        {TEXT("// x\n1"), 0, "value"},
        {TEXT("01"), 0, "number"},
        {TEXT("+1"), 0, "value"},
        {TEXT("-"), 0, "number"},
        {TEXT("1."), 0, "number"},
        {TEXT(".5"), 0, "value"},
        {TEXT("1e"), 0, "number"},
        {TEXT("1e+"), 0, "number"},
        {TEXT("0x1"), 0, "number"},
        {TEXT("1_0"), 0, "number"},
        {TEXT("\""), 1, "no end"},
        {TEXT("\"a"), 2, "no end"},
        {TEXT("\"a\nb\""), 2, "control"},
        {TEXT("\"\0\""), 1, "control"},
        {TEXT("\"\\x\""), 1, "escape"},
        {TEXT("\"\\"), 1, "escape"},
        {TEXT("\"\\u12\""), 1, "escape"},
        {TEXT("\"\\u12g4\""), 1, "escape"},
        {TEXT("\"\\ud800\""), 1, "escape"},
        {TEXT("\"\\udc00\""), 1, "escape"},
        {TEXT("\"\\ud800\\u0041\""), 1, "escape"},
        {TEXT("\"\\ud800\\ud800\""), 1, "escape"},
        {TEXT("\"\xff\""), 1, "UTF-8"},
        {TEXT("\"\xc0\x80\""), 1, "UTF-8"},
        {TEXT("\"\xc2\""), 1, "UTF-8"},
        {TEXT("\"\xe0\x9f\xbf\""), 1, "UTF-8"},
        {TEXT("\"\xed\xa0\x80\""), 1, "UTF-8"},
        {TEXT("\"\xf4\x90\x80\x80\""), 1, "UTF-8"},
        {TEXT("\"\xf0\x8f\xbf\xbf\""), 1, "UTF-8"},
        {TEXT("["), 1, "ends before"},
        {TEXT("[1"), 2, "',' or ']'"},
        {TEXT("[1,"), 3, "ends before"},
        {TEXT("[1,]"), 3, "value"},
        {TEXT("[,1]"), 1, "value"},
        {TEXT("[1 2]"), 3, "',' or ']'"},
        {TEXT("[1}"), 2, "',' or ']'"},
        {TEXT("]"), 0, "value"},
        {TEXT("{"), 1, "name"},
        {TEXT("{1:2}"), 1, "name"},
        {TEXT("{\"a\"}"), 4, "':'"},
        {TEXT("{\"a\":}"), 5, "value"},
        {TEXT("{\"a\":1,}"), 7, "name"},
        {TEXT("{\"a\":1]"), 6, "',' or '}'"},
        {TEXT("{\"a\":1 \"b\":2}"), 7, "',' or '}'"},
        {TEXT("[[[[[]]]]]"), 4, "deeper than 4"},
        {TEXT("{\"a\":1,\"a\":2}"), 8, "'a' comes twice"},
        {TEXT("{\"a\":1,\"\\u0061\":2}"), 8, "comes twice"},
        {TEXT("{\"\\u00e4\":1,\"b\":1,\"\xc3\xa4\":2}"), 19, "comes twice"},
        {TEXT("{\"d\":1,\"c\":1,\"b\":{\"x\":1,\"x\":1},\"a\":1}"), 25, "'x' comes twice"},
        {TEXT("{\"e\":1,\"d\":1,\"c\":1,\"b\":1,\"a\":1,\"e\":1}"), 32, "'e' comes twice"},
        {TEXT("{\"\":1,\"\":2}"), 7, "'' comes twice"},
        /* More than are compared each with each. */
        {TEXT("{\"j\":1,\"i\":1,\"h\":1,\"g\":1,\"f\":1,\"e\":1,"
              "\"d\":1,\"c\":1,\"b\":1,\"a\":1,\"e\":1}"),
         62, "'e' comes twice"},
        {TEXT("{\"j\":1,\"i\":1,\"h\":1,\"g\":1,\"f\":1,\"e\":1,"
              "\"d\":1,\"c\":1,\"b\":1,\"a\":1,\"\\u0065\":1}"),
         62, "comes twice"},
    };

    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        char why[JSON_WHY_BYTES] = "";
        size_t at = 99;

        test_note("%zu: %.*s", i, (int)refused[i].text.count, refused[i].text.at);
        CHECK_INT(check_text(refused[i].text, &at, why), ==, WEIR_EREFUSED);
        CHECK_CONTAINS(why, refused[i].why);
        CHECK_INT(at, ==, refused[i].at);
    }
}

TEST(json_names_are_bounded_and_their_room_comes_back)
{
    char why[JSON_WHY_BYTES], memory[512];
    struct buffer text;
    size_t at;

    /* 16 at a time fit; two objects of 16, one after the other, too. */
    buffer_init_fixed(&text, memory, sizeof memory);
    buffer_put_char(&text, '[');
    for (int object = 0; object < 2; object++) {
        buffer_put_string(&text, object > 0 ? ",{" : "{");
        for (unsigned key = 0; key < KEYS; key++) {
            buffer_put_string(&text, key > 0 ? ",\"" : "\"");
            buffer_put_uint(&text, key);
            buffer_put_string(&text, "\":1");
        }
        buffer_put_char(&text, '}');
    }
    buffer_put_char(&text, ']');
    CHECK_INT(check_text(buffer_bytes(&text), &at, why), ==, 0);
    /* One more in the second. */
    text.used -= 2;
    buffer_put_string(&text, ",\"z\":1}]");
    CHECK_INT(check_text(buffer_bytes(&text), &at, why), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(why, "more than 16 members");
}

TEST(json_tokens_come_one_after_the_other_and_can_be_skipped)
{
    struct json_reader reader;
    struct json_token token;
    struct bytes raw;

    json_reader_init(&reader, BYTES(" {\"a\": [1, {\"b\": \"x]\"} ] , \"c\":\"y\"}"), &limits);
    CHECK_INT(json_next(&reader).kind, ==, JSON_OBJECT);
    token = json_next(&reader);
    CHECK_INT(token.kind, ==, JSON_KEY);
    CHECK(bytes_are(token.text, BYTES("a")));
    raw = json_skip(&reader, json_next(&reader));
    CHECK(bytes_are(raw, BYTES("[1, {\"b\": \"x]\"} ]")));
    CHECK_INT(json_next(&reader).kind, ==, JSON_KEY);
    raw = json_skip(&reader, json_next(&reader));
    CHECK(bytes_are(raw, BYTES("\"y\"")));
    CHECK_INT(json_next(&reader).kind, ==, JSON_OBJECT_END);
    CHECK_INT(json_next(&reader).kind, ==, JSON_END);
    CHECK_INT(json_next(&reader).kind, ==, JSON_END);

    json_reader_init(&reader, BYTES("[[1,]"), &limits);
    CHECK_INT(json_next(&reader).kind, ==, JSON_ARRAY);
    CHECK(!json_skip(&reader, json_next(&reader)).at);
    CHECK_INT(json_next(&reader).kind, ==, JSON_FAILED);
    CHECK_INT(reader.failed_at, ==, 4);
}

static struct json_token only_token(const char *text)
{
    static struct json_reader reader;

    json_reader_init(&reader, bytes_of(text), &limits);
    return json_next(&reader);
}

TEST(json_text_is_without_escapes)
{
    struct json_token token = only_token("\"\\u0041\\n\\u00e4\\u20ac\\ud83d\\ude00\\u0000/\\/z\"");
    char text[64];
    size_t count = json_text(&token, text);

    CHECK(bytes_are((struct bytes){text, count},
                    BYTES("A\n\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\0//z")));
    CHECK(json_text_is(&token, BYTES("A\n\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\0//z")));
    CHECK(!json_text_is(&token, BYTES("A\n\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\0//")));
    CHECK(!json_text_is(&token, BYTES("A\n\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\0//zz")));
    CHECK(!json_text_is(&token, BYTES("A")));
    token = only_token("\"plain\"");
    CHECK(json_text_is(&token, BYTES("plain")));
    CHECK(!json_text_is(&token, BYTES("plai")));
}

TEST(json_whole_numbers_are_exact_or_refused)
{
    static const struct {
        const char *text;
        int64_t min, max;
        int r;
        int64_t value;
    } cases[] = {
        {"0", INT64_MIN, INT64_MAX, 0, 0},
        {"-0", INT64_MIN, INT64_MAX, 0, 0},
        {"9223372036854775807", INT64_MIN, INT64_MAX, 0, INT64_MAX},
        {"9223372036854775808", INT64_MIN, INT64_MAX, -ERANGE, 0},
        {"-9223372036854775808", INT64_MIN, INT64_MAX, 0, INT64_MIN},
        {"-9223372036854775809", INT64_MIN, INT64_MAX, -ERANGE, 0},
        {"99999999999999999999", INT64_MIN, INT64_MAX, -ERANGE, 0},
        {"1.0", INT64_MIN, INT64_MAX, -ERANGE, 0},
        {"1e3", INT64_MIN, INT64_MAX, -ERANGE, 0},
        {"10", 1, 10, 0, 10},
        {"11", 1, 10, -ERANGE, 0},
        {"0", 1, 10, -ERANGE, 0},
        {"\"1\"", 1, 10, -ERANGE, 0},
        {"true", 0, 10, -ERANGE, 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct json_token token = only_token(cases[i].text);
        int64_t value = 0;

        test_note("%s", cases[i].text);
        CHECK_INT(json_int(&token, cases[i].min, cases[i].max, &value), ==, cases[i].r);
        CHECK_INT(value, ==, cases[i].value);
    }
}

TEST(json_unsigned_numbers_are_exact_or_refused)
{
    struct json_token token = only_token("18446744073709551615");
    uint64_t value = 0;

    CHECK_INT(json_uint(&token, UINT64_MAX, &value), ==, 0);
    CHECK(value == UINT64_MAX);
    CHECK_INT(json_uint(&token, UINT64_MAX - 1, &value), ==, -ERANGE);
    token = only_token("18446744073709551616");
    CHECK_INT(json_uint(&token, UINT64_MAX, &value), ==, -ERANGE);
    token = only_token("-1");
    CHECK_INT(json_uint(&token, UINT64_MAX, &value), ==, -ERANGE);
    token = only_token("5");
    CHECK_INT(json_uint(&token, 3, &value), ==, -ERANGE);
}

TEST(json_doubles_are_as_the_c_library_reads_them)
{
    static const char *const texts[] = {
        "0",
        "-0",
        "0.1",
        "1e22",
        "123456789012345",
        "1.5e-5",
        "0.000001",
        "1e-22",
        "2.5e10",
        "1e0",
        "100e-2",
        "9007199254740991",
        "-3.25",
        "1E+2",
        "0e999",
        "1e308",
        "123.456e-7",
        "0.30000",
        "1e-400",
        "4.35",
        "0.5",
        "5e-324",
        "2.2250738585072014e-308",
        "1.7976931348623157e308",
        "8.41e21",
        "9007199254740993",
        "1e23",
        "6.0221407623e23",
        "3.0540412e5",
        "123456789012345678e-30",
        "9007199254740993.0000000001",
        "-9007199254740993.0000000001",
        "1.00000000000000011102230246251565404236316680908203126",
        "1.00000000000000011102230246251565404236316680908203125",
        "0.000000000000000000000000000000000000001234567890123456789012345",
        "12345678901234567890123456789e-20",
    };
    struct json_token token;
    double value;

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        token = only_token(texts[i]);
        test_note("%s", texts[i]);
        CHECK_INT(json_double(&token, &value), ==, 0);
        CHECK(value == strtod(texts[i], NULL));
    }
    token = only_token("1e309");
    CHECK_INT(json_double(&token, &value), ==, -ERANGE);
    token = only_token("-1e99999999999999999999");
    CHECK_INT(json_double(&token, &value), ==, -ERANGE);
}

/* ---- What goes as it is ---- */

TEST(plain_bytes_end_at_the_first_byte_that_is_not_plain)
{
    char text[24];

    for (int c = 0; c < 256; c++) {
        bool plain = c >= ' ' && c < 0x80 && c != '"' && c != '\\';

        test_note("byte %d", c);
        for (size_t at = 0; at < sizeof text; at++) {
            memset(text, 'x', sizeof text);
            text[at] = (char)c;
            for (size_t count = at + 1; count <= sizeof text; count++) {
                CHECK_INT(json_plain_bytes((struct bytes){text, count}), ==, plain ? count : at);
            }
            /* What stands behind it does not matter. */
            if (at + 1 < sizeof text) memset(text + at + 1, '!', sizeof text - at - 1);
            CHECK_INT(json_plain_bytes((struct bytes){text, sizeof text}), ==,
                      plain ? sizeof text : at);
        }
    }
}

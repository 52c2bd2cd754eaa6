/* json_write_test.c - what is written is JSON, and says the same when it is read again. */
#include "proto/json_write.h"

#include <errno.h>

#include "harness/test.h"
#include "unit/policy/chance.h"

static char memory[4096];

static const char *text_of(struct buffer *buffer)
{
    CHECK_INT(buffer_error(buffer), ==, 0);
    memory[buffer->used] = '\0';
    return memory;
}

TEST(json_is_written_with_its_commas)
{
    struct json_writer json;
    struct buffer out;

    buffer_init_fixed(&out, memory, sizeof memory - 1);
    json_writer_init(&json, &out);
    CHECK(!json_writer_done(&json));
    json_open_object(&json);
    json_key(&json, "none");
    json_open_object(&json);
    json_close(&json);
    json_key(&json, "list");
    json_open_array(&json);
    json_put_null(&json);
    json_put_bool(&json, true);
    json_put_bool(&json, false);
    json_open_array(&json);
    json_close(&json);
    json_put_int(&json, INT64_MIN);
    json_put_uint(&json, UINT64_MAX);
    json_close(&json);
    json_key(&json, "raw");
    json_put_raw(&json, BYTES("{\"a\" : 1}"));
    json_key(&json, "bytes");
    json_put_base64(&json, BYTES("\xff\0"));
    CHECK(!json_writer_done(&json));
    json_close(&json);
    CHECK(json_writer_done(&json));
    CHECK_STR(
        text_of(&out),
        "{\"none\":{},\"list\":[null,true,false,[],-9223372036854775808,18446744073709551615],"
        "\"raw\":{\"a\" : 1},\"bytes\":\"/wA=\"}");
}

TEST(json_texts_are_escaped)
{
    static const struct {
        struct bytes text;
        const char *json;
    } cases[] = {
        {{"", 0}, "\"\""},
        {{"a/b", 3}, "\"a/b\""},
        {{"\"\\\b\f\n\r\t", 7}, "\"\\\"\\\\\\b\\f\\n\\r\\t\""},
        {{"\0\x01\x1f\x7f", 4}, "\"\\u0000\\u0001\\u001f\x7f\""},
        {{"\xc3\xa4\xf0\x9f\x98\x80", 6}, "\"\xc3\xa4\xf0\x9f\x98\x80\""},
        {{"a\xff\xc3", 3}, "\"a\xef\xbf\xbd\xef\xbf\xbd\""},
        {{"\xed\xa0\x80z", 4}, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz\""},
    };
    struct json_writer json;
    struct buffer out;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        buffer_init_fixed(&out, memory, sizeof memory - 1);
        json_writer_init(&json, &out);
        json_put_text(&json, cases[i].text);
        CHECK_STR(text_of(&out), cases[i].json);
    }
}

TEST(json_doubles_are_written_without_a_locale)
{
    static const struct {
        double value;
        const char *json;
    } cases[] = {
        {0, "0"},
        {0.5, "0.5"},
        {-1.25, "-1.25"},
        {0.1, "0.1"},
        {1e15, "1000000000000000"},
        {2.0000001, "2"},
        {0.9999999, "1"},
        {123.000001, "123.000001"},
        {1e30, "null"},
        {-1.0 / 3, "-0.333333"},
    };
    struct json_writer json;
    struct buffer out;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        buffer_init_fixed(&out, memory, sizeof memory - 1);
        json_writer_init(&json, &out);
        json_put_double(&json, cases[i].value);
        CHECK_STR(text_of(&out), cases[i].json);
    }
}

TEST(json_that_was_written_is_read_back)
{
    uint64_t chance = chance_seed();
    struct json_key keys[4];
    struct json_limits limits = {.depth_max = 4, .keys = keys, .key_room = 4};

    for (int round = 0; round < 2000; round++) {
        char text[40], again[sizeof memory];
        size_t count = chance_below(&chance, sizeof text), i = 0;
        struct json_writer json;
        struct json_reader reader;
        struct json_token token;
        struct buffer out;

        /* Valid UTF-8: any of ASCII, and an umlaut now and then. */
        while (i < count) {
            bool umlaut = chance_below(&chance, 8) == 0 && i + 1 < count;

            if (umlaut) text[i++] = (char)0xc3;
            text[i++] = (char)(umlaut ? 0xa4 : chance_below(&chance, 128));
        }
        buffer_init_fixed(&out, memory, sizeof memory);
        json_writer_init(&json, &out);
        json_put_text(&json, (struct bytes){text, count});
        json_reader_init(&reader, buffer_bytes(&out), &limits);
        token = json_next(&reader);
        CHECK_INT(token.kind, ==, JSON_STRING);
        CHECK_INT(json_next(&reader).kind, ==, JSON_END);
        CHECK(bytes_are((struct bytes){again, json_text(&token, again)},
                        (struct bytes){text, count}));
    }
}

TEST(json_beyond_the_bound_of_its_buffer_is_an_error)
{
    struct json_writer json;
    struct buffer out;
    char small[8];

    buffer_init_fixed(&out, small, sizeof small);
    json_writer_init(&json, &out);
    json_open_array(&json);
    json_put_string(&json, "12345");
    CHECK_INT(buffer_error(&out), ==, 0);
    json_put_base64(&json, BYTES("abc"));
    json_close(&json);
    CHECK_INT(buffer_error(&out), ==, -EMSGSIZE);
}

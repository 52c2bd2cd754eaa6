/* json_fuzz.c - any bytes as JSON: what is taken can be written and read again, and says the same;
 * and any of it as an object with known members. */
#include <stddef.h>
#include <string.h>
#include <weir/error.h>

#include "fuzz/fuzz.h"
#include "proto/json_write.h"

enum { KEYS = 64, DEPTH = 16 };

static struct json_key keys[KEYS];
static const struct json_limits limits = {.depth_max = DEPTH, .keys = keys, .key_room = KEYS};

static void put_string(struct json_writer *json, const struct json_token *token, bool key)
{
    char *text = malloc(token->text.count + 1);
    size_t count;

    if (!text) abort();
    count = json_text(token, text);
    MUST(count <= token->text.count);
    text[count] = '\0';
    MUST(json_text_is(token, (struct bytes){text, count}));
    if (key) {
        json_key(json, strlen(text) == count ? text : "nul");
    } else {
        json_put_text(json, (struct bytes){text, count});
    }
    free(text);
}

/* Token by token from one text into another; false: it is no JSON. */
static bool rewrite(struct bytes text, struct buffer *out)
{
    struct json_reader reader;
    struct json_writer json;
    struct json_token token;
    int64_t whole;
    double number;

    json_reader_init(&reader, text, &limits);
    json_writer_init(&json, out);
    for (token = json_next(&reader); token.kind > JSON_END; token = json_next(&reader)) {
        if (token.kind == JSON_OBJECT) {
            json_open_object(&json);
        } else if (token.kind == JSON_ARRAY) {
            json_open_array(&json);
        } else if (token.kind == JSON_OBJECT_END || token.kind == JSON_ARRAY_END) {
            json_close(&json);
        } else if (token.kind == JSON_KEY || token.kind == JSON_STRING) {
            put_string(&json, &token, token.kind == JSON_KEY);
        } else {
            json_put_raw(&json, token.text);
        }
        if (token.kind == JSON_NUMBER) {
            (void)json_int(&token, INT64_MIN, INT64_MAX, &whole);
            if (json_double(&token, &number) == 0) MUST(!__builtin_isinf(number));
        }
    }
    if (token.kind == JSON_FAILED) MUST(reader.why[0] && reader.failed_at <= text.count);
    MUST(token.kind == JSON_FAILED || json_writer_done(&json));
    return token.kind == JSON_END;
}

struct known {
    struct bytes text, raw;
    int64_t number, duration_ms;
    bool truth;
    double real;
    struct {
        int64_t number;
    } inner;
};

static const struct json_member inner_members[] = {
    {.name = "n", .type = JSON_TYPE_INT, .min = INT64_MIN, .max = INT64_MAX, .required = true},
    {.name = NULL},
};

static const struct json_member known_members[] = {
    {.name = "t", .type = JSON_TYPE_TEXT, .offset = offsetof(struct known, text)},
    {.name = "r", .type = JSON_TYPE_RAW, .offset = offsetof(struct known, raw)},
    {.name = "n", .type = JSON_TYPE_INT, .offset = offsetof(struct known, number), .max = 1000},
    {.name = "d",
     .type = JSON_TYPE_DURATION,
     .offset = offsetof(struct known, duration_ms),
     .max = 100000},
    {.name = "b", .type = JSON_TYPE_BOOL, .offset = offsetof(struct known, truth)},
    {.name = "f", .type = JSON_TYPE_DOUBLE, .offset = offsetof(struct known, real)},
    {.name = "o",
     .type = JSON_TYPE_OBJECT,
     .offset = offsetof(struct known, inner),
     .members = inner_members},
    {.name = NULL},
};

static void read_known(struct bytes text, bool valid)
{
    struct json_texts texts = {.at = malloc(text.count + 1), .room = text.count + 1};
    struct known known = {0};
    struct json_reader reader;
    int r;

    if (!texts.at) abort();
    json_reader_init(&reader, text, &limits);
    r = json_document(&reader, &texts, known_members, &known);
    MUST(r == 0 || r == WEIR_EREFUSED);
    MUST(r < 0 || valid);
    if (r < 0) MUST(reader.why[0] && !strstr(reader.why, "strings are too long"));
    if (r == 0 && known.text.at) MUST(strlen(known.text.at) == known.text.count);
    if (r == 0) MUST(known.number >= 0 && known.number <= 1000);
    free(texts.at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes text = {(const char *)data, size};
    size_t room = size * 6 + 64;
    char *first = malloc(room), *second = malloc(room);
    struct buffer out, again;
    bool valid;

    if (!first || !second) abort();
    buffer_init_fixed(&out, first, room);
    valid = rewrite(text, &out);
    if (valid) {
        MUST(buffer_error(&out) == 0);
        buffer_init_fixed(&again, second, room);
        /* Two names with a NUL are both called "nul" here, and then come twice. */
        if (rewrite(buffer_bytes(&out), &again)) {
            MUST(bytes_are(buffer_bytes(&out), buffer_bytes(&again)));
        } else {
            MUST(out.used >= 3 && memmem(out.at, out.used, "nul", 3));
        }
    }
    read_known(text, valid);
    free(first);
    free(second);
    return 0;
}

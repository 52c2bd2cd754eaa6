/* json_read.c - tokens of JSON, and that no name comes twice. */
#include "proto/json_read.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <weir/error.h>

#include "proto/json_plain.h"
#include "proto/utf8.h"

enum { FEW_KEYS = 8 };

/* What may come next. */
enum awaited {
    AWAIT_VALUE,
    AWAIT_FIRST_VALUE, /* or the end of the array */
    AWAIT_FIRST_KEY,   /* or the end of the object */
    AWAIT_COLON,
    AWAIT_COMMA, /* or the end of the array or object */
    AWAIT_NOTHING,
    AWAIT_FAILED,
};

/* ---- Failures ---- */

__attribute__((format(printf, 3, 0))) static void say(struct json_reader *reader, size_t at,
                                                      const char *format, va_list arguments)
{
    if (reader->awaited == AWAIT_FAILED) return; /* the first one counts */
    reader->awaited = AWAIT_FAILED;
    reader->failed_at = at;
    (void)vsnprintf(reader->why, sizeof reader->why, format, arguments);
}

__attribute__((format(printf, 3, 4))) static struct json_token fail(struct json_reader *reader,
                                                                    size_t at, const char *format,
                                                                    ...)
{
    va_list arguments;

    va_start(arguments, format);
    say(reader, at, format, arguments);
    va_end(arguments);
    return (struct json_token){.kind = JSON_FAILED};
}

int json_refuse(struct json_reader *reader, const struct json_token *token, const char *format, ...)
{
    size_t at = reader->at;
    va_list arguments;

    if (token->text.at) at = (size_t)(token->text.at - reader->all.at);
    va_start(arguments, format);
    say(reader, at, format, arguments);
    va_end(arguments);
    return WEIR_EREFUSED;
}

/* ---- Characters ---- */

static int peek(const struct json_reader *reader)
{
    return reader->at < reader->all.count ? (unsigned char)reader->all.at[reader->at] : -1;
}

static void skip_blanks(struct json_reader *reader)
{
    for (int c = peek(reader); c == ' ' || c == '\t' || c == '\n' || c == '\r'; c = peek(reader)) {
        reader->at++;
    }
}

/* Four digits of hex, or -1. */
static int32_t read_four(struct bytes text)
{
    int32_t code = 0;

    if (text.count < 4) return -1;
    for (int i = 0; i < 4; i++) {
        int digit = hex_value(text.at[i]);

        if (digit < 0) return -1;
        code = code << 4 | digit;
    }
    return code;
}

static bool is_high(int32_t code)
{
    return code >= 0xd800 && code <= 0xdbff;
}

static bool is_low(int32_t code)
{
    return code >= 0xdc00 && code <= 0xdfff;
}

/* The character of the escape whose backslash `text` begins with, and how long that is; 0: none. */
static size_t read_escape(struct bytes text, uint32_t *ret_code)
{
    static const char names[] = "\"\\/bfnrt", codes[] = "\"\\/\b\f\n\r\t";
    const char *found;
    int32_t code, low;

    if (text.count < 2) return 0;
    if (text.at[1] != 'u') {
        found = text.at[1] ? strchr(names, text.at[1]) : NULL;
        if (!found) return 0;
        *ret_code = (unsigned char)codes[found - names];
        return 2;
    }
    code = read_four(bytes_after(text, 2));
    if (code < 0 || is_low(code)) return 0;
    *ret_code = (uint32_t)code;
    if (!is_high(code)) return 6;
    if (text.count < 12 || text.at[6] != '\\' || text.at[7] != 'u') return 0;
    low = read_four(bytes_after(text, 8));
    if (!is_low(low)) return 0;
    *ret_code = 0x10000 + ((uint32_t)(code - 0xd800) << 10 | (uint32_t)(low - 0xdc00));
    return 12;
}

/* ---- Strings ---- */

static struct json_token read_string(struct json_reader *reader, enum json_kind kind)
{
    struct bytes rest = bytes_after(reader->all, reader->at + 1);
    struct json_token token = {.kind = kind};
    uint32_t code;
    size_t length;

    token.text.at = rest.at;
    for (;;) {
        size_t at;

        rest = bytes_after(rest, json_plain_bytes(rest));
        if (rest.count == 0 || rest.at[0] == '"') break;
        at = (size_t)(rest.at - reader->all.at);
        if ((unsigned char)rest.at[0] < ' ') {
            return fail(reader, at, "a string has a control character that is not escaped");
        }
        if (rest.at[0] == '\\') {
            length = read_escape(rest, &code);
            if (length == 0) return fail(reader, at, "a string has an escape that is not valid");
            token.escaped = true;
        } else {
            length = utf8_length(rest);
            if (length == 0) return fail(reader, at, "a string is not UTF-8");
        }
        rest = bytes_after(rest, length);
    }
    if (rest.count == 0) return fail(reader, reader->all.count, "a string has no end");
    token.text.count = (size_t)(rest.at - token.text.at);
    reader->at = (size_t)(rest.at - reader->all.at) + 1;
    return token;
}

/* The next bytes of a text without its escapes, up to 4; 0: it has ended. */
static size_t next_bytes(struct bytes *text, char ret_bytes[4])
{
    uint32_t code = 0;

    if (text->count == 0) return 0;
    if (text->at[0] != '\\') {
        ret_bytes[0] = text->at[0];
        *text = bytes_after(*text, 1);
        return 1;
    }
    *text = bytes_after(*text, read_escape(*text, &code));
    return utf8_encode(code, ret_bytes);
}

size_t json_text(const struct json_token *token, char *out)
{
    struct bytes text = token->text;
    size_t count = 0;
    char bytes[4];

    assert(token->kind == JSON_STRING || token->kind == JSON_KEY);
    if (!token->escaped) {
        if (text.count > 0) memcpy(out, text.at, text.count);
        return text.count;
    }
    for (size_t n = next_bytes(&text, bytes); n > 0; n = next_bytes(&text, bytes)) {
        memcpy(out + count, bytes, n);
        count += n;
    }
    return count;
}

bool json_text_is(const struct json_token *token, struct bytes other)
{
    struct bytes text = token->text;
    char bytes[4];

    if (!token->escaped) return bytes_are(text, other);
    for (size_t n = next_bytes(&text, bytes); n > 0; n = next_bytes(&text, bytes)) {
        if (other.count < n || memcmp(other.at, bytes, n) != 0) return false;
        other = bytes_after(other, n);
    }
    return other.count == 0;
}

/* ---- No name twice ---- */

static struct bytes key_text(const struct json_reader *reader, const struct json_key *key)
{
    return (struct bytes){reader->all.at + key->at, key->count};
}

/* Some order of names without their escapes. */
static int compare_keys(const struct json_reader *reader, const struct json_key *a,
                        const struct json_key *b)
{
    struct bytes left = key_text(reader, a), right = key_text(reader, b);
    char from_left[4], from_right[4];
    size_t left_count = 0, right_count = 0, left_at = 0, right_at = 0;

    if (!a->escaped && !b->escaped) {
        size_t count = left.count < right.count ? left.count : right.count;
        int order = count > 0 ? memcmp(left.at, right.at, count) : 0;

        if (order != 0) return order;
        return (left.count > right.count) - (left.count < right.count);
    }
    for (;; left_at++, right_at++) {
        if (left_at == left_count) {
            left_count = next_bytes(&left, from_left);
            left_at = 0;
        }
        if (right_at == right_count) {
            right_count = next_bytes(&right, from_right);
            right_at = 0;
        }
        if (left_count == 0 || right_count == 0) return (left_count > 0) - (right_count > 0);
        if (from_left[left_at] != from_right[right_at]) {
            return (unsigned char)from_left[left_at] - (unsigned char)from_right[right_at];
        }
    }
}

/* A heap with the last name on top; `at` may be smaller than those below it. */
static void sink(const struct json_reader *reader, struct json_key *keys, size_t at, size_t count)
{
    for (size_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
        struct json_key moved = keys[at];

        if (child + 1 < count && compare_keys(reader, &keys[child], &keys[child + 1]) < 0) child++;
        if (compare_keys(reader, &keys[at], &keys[child]) >= 0) return;
        keys[at] = keys[child];
        keys[child] = moved;
        at = child;
    }
}

static void sort_keys(const struct json_reader *reader, struct json_key *keys, size_t count)
{
    for (size_t i = count / 2; i-- > 0;) sink(reader, keys, i, count);
    for (size_t last = count; last-- > 1;) {
        struct json_key top = keys[0];

        keys[0] = keys[last];
        keys[last] = top;
        sink(reader, keys, 0, last);
    }
}

/* A short, printable form of a name for a sentence. */
static void show_key(struct bytes text, char *ret_name, size_t bytes)
{
    size_t count = 0;

    for (; count < text.count && count + 1 < bytes; count++) {
        ret_name[count] = is_visible(text.at[count]) ? text.at[count] : '?';
    }
    ret_name[count] = '\0';
}

/* One that is the same as an earlier one, or NULL. Of few each is compared with each: names that
 * have no escape and another length are different at once. */
static const struct json_key *twice_of_few(const struct json_reader *reader,
                                           const struct json_key *keys, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        for (size_t j = 0; j < i; j++) {
            bool alike = keys[i].count == keys[j].count || keys[i].escaped || keys[j].escaped;

            if (alike && compare_keys(reader, &keys[j], &keys[i]) == 0) return &keys[i];
        }
    }
    return NULL;
}

static const struct json_key *twice_of_many(const struct json_reader *reader, struct json_key *keys,
                                            size_t count)
{
    sort_keys(reader, keys, count);
    for (size_t i = 1; i < count; i++) {
        if (compare_keys(reader, &keys[i - 1], &keys[i]) != 0) continue;
        return keys[i].at > keys[i - 1].at ? &keys[i] : &keys[i - 1];
    }
    return NULL;
}

/* The names of the object that ends. False, and failed: one comes twice. */
static bool drop_keys(struct json_reader *reader)
{
    unsigned below = reader->keys_below[reader->depth - 1];
    struct json_key *keys = reader->limits.keys + below;
    size_t count = reader->key_count - below;
    const struct json_key *twice;
    char name[40];

    reader->key_count = below;
    twice =
        count <= FEW_KEYS ? twice_of_few(reader, keys, count) : twice_of_many(reader, keys, count);
    if (!twice) return true;
    show_key(key_text(reader, twice), name, sizeof name);
    (void)fail(reader, twice->at, "the member '%s' comes twice", name);
    return false;
}

/* ---- Other values ---- */

static size_t skip_digits(struct json_reader *reader)
{
    size_t begin = reader->at;

    while (peek(reader) >= '0' && peek(reader) <= '9') reader->at++;
    return reader->at - begin;
}

static struct json_token read_number(struct json_reader *reader)
{
    size_t begin = reader->at;
    bool valid;

    if (peek(reader) == '-') reader->at++;
    if (peek(reader) == '0') {
        reader->at++;
        valid = true;
    } else {
        valid = skip_digits(reader) > 0;
    }
    if (valid && peek(reader) == '.') {
        reader->at++;
        valid = skip_digits(reader) > 0;
    }
    if (valid && (peek(reader) == 'e' || peek(reader) == 'E')) {
        reader->at++;
        if (peek(reader) == '+' || peek(reader) == '-') reader->at++;
        valid = skip_digits(reader) > 0;
    }
    /* 01, 1x and the like: no sign of structure follows. */
    if (!valid || (peek(reader) >= 0 && !strchr(" \t\r\n,]}", peek(reader)))) {
        return fail(reader, begin, "a number is not valid");
    }
    return (struct json_token){.kind = JSON_NUMBER,
                               .text = {reader->all.at + begin, reader->at - begin}};
}

static struct json_token read_word(struct json_reader *reader)
{
    static const struct {
        const char *word;
        enum json_kind kind;
        bool truth;
    } words[] = {
        {"true", JSON_BOOL, true}, {"false", JSON_BOOL, false}, {"null", JSON_NULL, false}};
    struct bytes rest = bytes_after(reader->all, reader->at);

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        size_t count = strlen(words[i].word);

        if (!bytes_begin(rest, bytes_of(words[i].word))) continue;
        reader->at += count;
        return (struct json_token){
            .kind = words[i].kind, .truth = words[i].truth, .text = {rest.at, count}};
    }
    return fail(reader, reader->at, "a value is expected");
}

static struct json_token open_one(struct json_reader *reader, bool object)
{
    size_t at = reader->at++;

    if (reader->depth == reader->limits.depth_max) {
        return fail(reader, at, "it is nested deeper than %u", reader->limits.depth_max);
    }
    reader->objects &= ~(UINT64_C(1) << reader->depth);
    reader->objects |= (uint64_t)object << reader->depth;
    reader->keys_below[reader->depth++] = reader->key_count;
    reader->awaited = object ? AWAIT_FIRST_KEY : AWAIT_FIRST_VALUE;
    return (struct json_token){.kind = object ? JSON_OBJECT : JSON_ARRAY,
                               .text = {reader->all.at + at, 1}};
}

static void value_done(struct json_reader *reader)
{
    if (reader->awaited == AWAIT_FAILED) return;
    reader->awaited = reader->depth > 0 ? AWAIT_COMMA : AWAIT_NOTHING;
}

static struct json_token close_one(struct json_reader *reader)
{
    size_t at = reader->at++;
    bool object = reader->objects >> (reader->depth - 1) & 1;

    if (object && !drop_keys(reader)) return (struct json_token){.kind = JSON_FAILED};
    reader->depth--;
    value_done(reader);
    return (struct json_token){.kind = object ? JSON_OBJECT_END : JSON_ARRAY_END,
                               .text = {reader->all.at + at, 1}};
}

static struct json_token read_value(struct json_reader *reader)
{
    struct json_token token;

    switch (peek(reader)) {
    case '{': return open_one(reader, true);
    case '[': return open_one(reader, false);
    case '"': token = read_string(reader, JSON_STRING); break;
    case -1: return fail(reader, reader->at, "the text ends before the value does");
    default:
        token = peek(reader) == '-' || is_digit((char)peek(reader)) ? read_number(reader)
                                                                    : read_word(reader);
    }
    value_done(reader);
    return token;
}

static struct json_token read_key(struct json_reader *reader)
{
    struct json_token token;

    if (peek(reader) != '"') return fail(reader, reader->at, "the name of a member is expected");
    token = read_string(reader, JSON_KEY);
    if (token.kind == JSON_FAILED) return token;
    if (reader->key_count == reader->limits.key_room) {
        return fail(reader, (size_t)(token.text.at - reader->all.at),
                    "there are more than %u members", reader->limits.key_room);
    }
    reader->limits.keys[reader->key_count++] = (struct json_key){
        .at = (uint32_t)(token.text.at - reader->all.at),
        .count = (uint32_t)token.text.count,
        .escaped = token.escaped,
    };
    reader->awaited = AWAIT_COLON;
    return token;
}

/* After a value: the end of what it is in, or a comma, behind which more has to come. */
static struct json_token after_value(struct json_reader *reader)
{
    bool object = reader->objects >> (reader->depth - 1) & 1;

    if (peek(reader) == (object ? '}' : ']')) return close_one(reader);
    if (peek(reader) != ',') {
        return fail(reader, reader->at, "',' or '%c' is expected", object ? '}' : ']');
    }
    reader->at++;
    skip_blanks(reader);
    return object ? read_key(reader) : read_value(reader);
}

struct json_token json_next(struct json_reader *reader)
{
    skip_blanks(reader);
    switch ((enum awaited)reader->awaited) {
    case AWAIT_FIRST_VALUE:
        if (peek(reader) == ']') return close_one(reader);
        return read_value(reader);
    case AWAIT_VALUE: return read_value(reader);
    case AWAIT_FIRST_KEY:
        if (peek(reader) == '}') return close_one(reader);
        return read_key(reader);
    case AWAIT_COLON:
        if (peek(reader) != ':') return fail(reader, reader->at, "':' is expected");
        reader->at++;
        skip_blanks(reader);
        return read_value(reader);
    case AWAIT_COMMA: return after_value(reader);
    case AWAIT_NOTHING:
        if (peek(reader) < 0) return (struct json_token){.kind = JSON_END};
        return fail(reader, reader->at, "something follows the value");
    case AWAIT_FAILED: break;
    }
    return (struct json_token){.kind = JSON_FAILED};
}

struct bytes json_skip(struct json_reader *reader, struct json_token first)
{
    unsigned depth = reader->depth;
    struct json_token token = first;

    if (first.kind == JSON_STRING) {
        return (struct bytes){first.text.at - 1, first.text.count + 2};
    }
    if (first.kind != JSON_ARRAY && first.kind != JSON_OBJECT) return first.text;
    while (token.kind != JSON_FAILED && reader->depth >= depth) token = json_next(reader);
    if (token.kind == JSON_FAILED) return (struct bytes){NULL, 0};
    return (struct bytes){first.text.at, (size_t)(reader->all.at + reader->at - first.text.at)};
}

void json_reader_init(struct json_reader *reader, struct bytes all,
                      const struct json_limits *limits)
{
    assert(limits->depth_max > 0 && limits->depth_max <= JSON_DEPTH_MAX);
    assert(all.count <= UINT32_MAX);
    reader->all = all.at ? all : (struct bytes){"", 0};
    reader->at = 0;
    reader->depth = 0;
    reader->objects = 0;
    reader->awaited = AWAIT_VALUE;
    reader->limits = *limits;
    reader->key_count = 0;
    reader->failed_at = 0;
    reader->why[0] = '\0';
}

int json_check(struct bytes all, const struct json_limits *limits, size_t *ret_failed_at,
               char ret_why[JSON_WHY_BYTES])
{
    struct json_reader reader;
    struct json_token token;

    json_reader_init(&reader, all, limits);
    do {
        token = json_next(&reader);
    } while (token.kind != JSON_END && token.kind != JSON_FAILED);
    if (token.kind == JSON_END) return 0;
    *ret_failed_at = reader.failed_at;
    memcpy(ret_why, reader.why, sizeof reader.why);
    return WEIR_EREFUSED;
}

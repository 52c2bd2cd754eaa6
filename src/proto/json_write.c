/* json_write.c - commas, escapes, and what may follow what. */
#include "proto/json_write.h"

#include <assert.h>

#include "proto/base64.h"
#include "proto/json_plain.h"
#include "proto/utf8.h"

void json_writer_init(struct json_writer *json, struct buffer *keep_out)
{
    *json = (struct json_writer){.out = keep_out};
}

bool json_writer_done(const struct json_writer *json)
{
    return json->depth == 0 && json->comma;
}

static bool in_object(const struct json_writer *json)
{
    return json->depth > 0 && (json->objects >> (json->depth - 1) & 1);
}

static void begin_value(struct json_writer *json)
{
    assert(json->depth > 0 || !json->comma); /* one value, and no more */
    assert(in_object(json) == json->keyed);
    if (json->comma && !json->keyed) buffer_put_char(json->out, ',');
    json->comma = true;
    json->keyed = false;
}

static void open_one(struct json_writer *json, bool object)
{
    begin_value(json);
    assert(json->depth < JSON_DEPTH_MAX);
    json->objects &= ~(UINT64_C(1) << json->depth);
    json->objects |= (uint64_t)object << json->depth;
    json->depth++;
    json->comma = false;
    buffer_put_char(json->out, object ? '{' : '[');
}

void json_open_object(struct json_writer *json)
{
    open_one(json, true);
}

void json_open_array(struct json_writer *json)
{
    open_one(json, false);
}

void json_close(struct json_writer *json)
{
    assert(json->depth > 0);
    assert(!json->keyed);
    buffer_put_char(json->out, in_object(json) ? '}' : ']');
    json->depth--;
    json->comma = true;
}

/* Bytes that go out as they are, from the front. */
static size_t plain_bytes(struct bytes text)
{
    size_t count = json_plain_bytes(text);

    while (count < text.count && (unsigned char)text.at[count] >= 0x80) {
        size_t length = utf8_length(bytes_after(text, count));

        if (length == 0) break;
        count += length;
        count += json_plain_bytes(bytes_after(text, count));
    }
    return count;
}

static void put_escape(struct buffer *out, char c)
{
    static const char codes[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt", hex[] = "0123456789abcdef";
    unsigned char code = (unsigned char)c;
    const char *found = c ? strchr(codes, c) : NULL;

    if (found) {
        buffer_put(out, (char[]){'\\', names[found - codes]}, 2);
    } else if (code < ' ') {
        buffer_put(out, (char[]){'\\', 'u', '0', '0', hex[code >> 4], hex[code & 15]}, 6);
    } else {
        buffer_put(out, "\xef\xbf\xbd", 3);
    }
}

static void put_escaped(struct buffer *out, struct bytes text)
{
    buffer_put_char(out, '"');
    while (text.count > 0) {
        size_t count = plain_bytes(text);

        buffer_put(out, text.at, count);
        text = bytes_after(text, count);
        if (text.count == 0) break;
        put_escape(out, text.at[0]);
        text = bytes_after(text, 1);
    }
    buffer_put_char(out, '"');
}

/* Most texts go out as they are: quotes and all in one put. */
static void put_quoted(struct buffer *out, struct bytes text)
{
    char *at;

    if (json_plain_bytes(text) < text.count) {
        put_escaped(out, text);
        return;
    }
    at = buffer_extend(out, text.count + 2);
    if (!at) return;
    at[0] = '"';
    if (text.count > 0) memcpy(at + 1, text.at, text.count);
    at[text.count + 1] = '"';
}

void json_key(struct json_writer *json, const char *key)
{
    assert(in_object(json));
    assert(!json->keyed);
    if (json->comma) buffer_put_char(json->out, ',');
    put_quoted(json->out, bytes_of(key));
    buffer_put_char(json->out, ':');
    json->keyed = true;
}

void json_put_null(struct json_writer *json)
{
    begin_value(json);
    buffer_put_string(json->out, "null");
}

void json_put_bool(struct json_writer *json, bool truth)
{
    begin_value(json);
    buffer_put_string(json->out, truth ? "true" : "false");
}

void json_put_int(struct json_writer *json, int64_t value)
{
    begin_value(json);
    buffer_put_int(json->out, value);
}

void json_put_uint(struct json_writer *json, uint64_t value)
{
    begin_value(json);
    buffer_put_uint(json->out, value);
}

/* Without printf, whose point is that of the locale. Up to 10^12 or so the digits are exact. */
void json_put_double(struct json_writer *json, double value)
{
    const uint64_t scale = 1000000;
    uint64_t whole, fraction;
    char digits[7] = ".";
    size_t count = 7;

    if (__builtin_isnan(value) || value >= 9e18 || value <= -9e18) {
        json_put_null(json);
        return;
    }
    begin_value(json);
    if (value < 0) buffer_put_char(json->out, '-');
    if (value < 0) value = -value;
    whole = (uint64_t)value;
    fraction = (uint64_t)((value - (double)whole) * (double)scale + 0.5);
    whole += fraction / scale;
    fraction %= scale;
    buffer_put_uint(json->out, whole);
    for (size_t i = 6; i > 0; i--, fraction /= 10) digits[i] = (char)('0' + fraction % 10);
    while (count > 1 && digits[count - 1] == '0') count--;
    if (count > 1) buffer_put(json->out, digits, count);
}

void json_put_text(struct json_writer *json, struct bytes text)
{
    begin_value(json);
    put_quoted(json->out, text);
}

void json_put_string(struct json_writer *json, const char *string)
{
    json_put_text(json, bytes_of(string));
}

void json_put_raw(struct json_writer *json, struct bytes value)
{
    begin_value(json);
    buffer_put_bytes(json->out, value);
}

void json_put_base64(struct json_writer *json, struct bytes value)
{
    char *at;

    begin_value(json);
    buffer_put_char(json->out, '"');
    at = buffer_extend(json->out, base64_length(value.count));
    if (at) (void)base64_encode(value, at);
    buffer_put_char(json->out, '"');
}

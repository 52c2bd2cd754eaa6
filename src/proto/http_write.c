/* http_write.c - lines, and the framing of bodies. */
#include "proto/http_write.h"

#include <assert.h>
#include <weir/error.h>

#define BIT(state) (1u << (state))

static const unsigned moves[HTTP_WRITINGS] = {
    [HTTP_WRITING_START] = BIT(HTTP_WRITING_FIELDS),
    [HTTP_WRITING_FIELDS] = BIT(HTTP_WRITING_BODY),
    [HTTP_WRITING_BODY] = BIT(HTTP_WRITING_DONE),
};

static void set_state(struct http_writer *writer, enum http_writing state)
{
    assert(state == HTTP_WRITING_FAILED || moves[writer->state] & BIT(state));
    writer->state = state;
}

static void fail(struct http_writer *writer, int error)
{
    if (writer->state == HTTP_WRITING_FAILED) return;
    set_state(writer, HTTP_WRITING_FAILED);
    writer->error = error;
}

/* True if the writer is in this state. Another one is our own mistake, but for a failure. */
static bool is_in(const struct http_writer *writer, enum http_writing state)
{
    assert(writer->state == state || writer->state == HTTP_WRITING_FAILED);
    return writer->state == state;
}

/* In one put: each answer has several. */
static void put_field(struct http_writer *writer, struct bytes name, struct bytes value)
{
    char *at = buffer_extend(writer->out, name.count + value.count + 4);

    if (!at) return;
    memcpy(at, name.at, name.count);
    memcpy(at + name.count, ": ", 2);
    at += name.count + 2;
    if (value.count > 0) memcpy(at, value.at, value.count);
    memcpy(at + value.count, "\r\n", 2);
}

void http_write_answer(struct http_writer *writer, struct buffer *keep_out, unsigned status,
                       enum http_method method, unsigned minor, bool keep_alive)
{
    assert(status >= 100 && status <= 599);
    *writer = (struct http_writer){
        .out = keep_out,
        .answer = true,
        .silent = method == METHOD_HEAD,
        .bodyless = !http_status_has_body(status),
        .interim = status < 200,
        .switches = status == 101,
        .keep_alive = keep_alive,
        .minor = minor,
    };
    buffer_put_string(keep_out, "HTTP/1.1 ");
    buffer_put_uint(keep_out, status);
    buffer_put_char(keep_out, ' ');
    buffer_put_string(keep_out, http_status_name(status));
    buffer_put_string(keep_out, "\r\n");
    set_state(writer, HTTP_WRITING_FIELDS);
}

void http_write_request(struct http_writer *writer, struct buffer *keep_out,
                        enum http_method method, struct bytes target, struct bytes host,
                        bool keep_alive)
{
    *writer = (struct http_writer){.out = keep_out, .keep_alive = keep_alive, .minor = 1};
    buffer_put_string(keep_out, http_method_name(method));
    buffer_put_char(keep_out, ' ');
    buffer_put_bytes(keep_out, target);
    buffer_put_string(keep_out, " HTTP/1.1\r\n");
    put_field(writer, BYTES("host"), host);
    set_state(writer, HTTP_WRITING_FIELDS);
    if (method == METHOD_NONE || target.count == 0 || !http_authority_valid(host)) {
        fail(writer, WEIR_EREFUSED);
    }
    for (size_t i = 0; i < target.count; i++) {
        if (!is_visible(target.at[i])) fail(writer, WEIR_EREFUSED);
    }
}

static bool is_ours(struct bytes name)
{
    return bytes_are_like(name, BYTES("content-length")) ||
           bytes_are_like(name, BYTES("transfer-encoding")) ||
           bytes_are_like(name, BYTES("connection"));
}

void http_write_field(struct http_writer *writer, struct bytes name, struct bytes value)
{
    if (!is_in(writer, HTTP_WRITING_FIELDS)) return;
    if (!http_name_valid(name) || !http_value_valid(value) || is_ours(name)) {
        fail(writer, WEIR_EREFUSED);
        return;
    }
    put_field(writer, name, value);
}

/* The empty line, and before it what becomes of the connection: 1.1 stays open unless it is said,
 * 1.0 the other way round. What comes before the answer itself says nothing of it. */
static void end_fields(struct http_writer *writer)
{
    const struct bytes connection = BYTES("connection");

    if (writer->switches) {
        put_field(writer, connection, BYTES("upgrade"));
    } else if (!writer->interim && writer->keep_alive && writer->minor == 0) {
        put_field(writer, connection, BYTES("keep-alive"));
    } else if (!writer->interim && !writer->keep_alive && writer->minor > 0) {
        put_field(writer, connection, BYTES("close"));
    }
    buffer_put_string(writer->out, "\r\n");
    set_state(writer, HTTP_WRITING_BODY);
}

void http_write_length(struct http_writer *writer, uint64_t length)
{
    if (!is_in(writer, HTTP_WRITING_FIELDS)) return;
    if (writer->bodyless) {
        http_write_no_body(writer);
        return;
    }
    buffer_put_string(writer->out, "content-length: ");
    buffer_put_uint(writer->out, length);
    buffer_put_string(writer->out, "\r\n");
    writer->left = length;
    end_fields(writer);
}

void http_write_chunked(struct http_writer *writer)
{
    if (!is_in(writer, HTTP_WRITING_FIELDS)) return;
    if (writer->bodyless) {
        http_write_no_body(writer);
        return;
    }
    if (writer->minor == 0) {
        writer->until_close = true;
        writer->keep_alive = false;
    } else {
        writer->chunked = true;
        put_field(writer, BYTES("transfer-encoding"), BYTES("chunked"));
    }
    end_fields(writer);
}

void http_write_no_body(struct http_writer *writer)
{
    if (!is_in(writer, HTTP_WRITING_FIELDS)) return;
    if (!writer->bodyless && writer->answer) {
        http_write_length(writer, 0);
        return;
    }
    writer->bodyless = true;
    end_fields(writer);
}

void http_write_body(struct http_writer *writer, struct bytes piece)
{
    static const char hex[] = "0123456789abcdef";
    char line[16];
    size_t at = sizeof line;

    if (!is_in(writer, HTTP_WRITING_BODY) || piece.count == 0) return;
    if (writer->bodyless) return;
    if (writer->chunked) {
        if (writer->silent) return;
        for (size_t left = piece.count; left > 0; left >>= 4) line[--at] = hex[left & 15];
        buffer_put(writer->out, line + at, sizeof line - at);
        buffer_put_string(writer->out, "\r\n");
        buffer_put_bytes(writer->out, piece);
        buffer_put_string(writer->out, "\r\n");
        return;
    }
    if (!writer->until_close) {
        if (piece.count > writer->left) {
            fail(writer, WEIR_EREFUSED);
            return;
        }
        writer->left -= piece.count;
    }
    if (!writer->silent) buffer_put_bytes(writer->out, piece);
}

int http_write_end(struct http_writer *writer)
{
    if (is_in(writer, HTTP_WRITING_BODY)) {
        /* Who answers a HEAD need not make the body. */
        if (!writer->silent && writer->left > 0) fail(writer, WEIR_EREFUSED);
        if (writer->chunked && !writer->silent) buffer_put_string(writer->out, "0\r\n\r\n");
    }
    if (buffer_error(writer->out) < 0) fail(writer, buffer_error(writer->out));
    if (writer->state == HTTP_WRITING_FAILED) return writer->error;
    set_state(writer, HTTP_WRITING_DONE);
    return 0;
}
